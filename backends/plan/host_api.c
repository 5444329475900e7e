/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interface functions that run no model: init, close, sizes, status strings; host_state.c has those of the state.
 * init checks everything before it writes the context. This code runs before a variant is chosen, so it is
 * compiled for the baseline of the architecture.
 *
 * A variant is the code for one level of processors, or for OpenCL devices; NAME_init tests them from the most
 * demanding down. slots is memory of init for what the choice needs (weights, batch) and returns (the device's
 * handle). Statuses are those of abi.h; magic: the context is complete.
 */
#include "backends/plan/host.h"
#include "backends/plan/opencl.h"

#include <stddef.h>

/* ---- OpenCL devices ---- */

/*
 * OpenCL variants: calls of libtfmccl from the functions around kernels. They open the device with the
 * model's plan and source, call a function of the plan, and copy bytes of the state.
 *
 *   NAME.LEVEL.plan, NAME.LEVEL.source   data: the plan's bytes, the kernels as OpenCL C
 *   NAME.LEVEL.func.body(context, args, worker, n) -> status   worker is 0, n is 1
 */

#define AT(type, field)    ((int64_t)offsetof(struct type, field))
#define SLOTS(type, count) ((int64_t)(sizeof(struct type) / 8 * (count)))

/* ---- the program ---- */

/* Emits plan and source of a device variant as data of the object. */
enum tfmc_status emit_device_program(struct object *o)
{
	struct opencl_program p;
	struct buf plan;
	buf_init(&plan);
	enum tfmc_status status = opencl_compile(o, &p, &plan);
	o->device.plan_bytes = (int64_t)plan.len;
	o->device.source_bytes = (int64_t)p.source.len;
	if (status == TFMC_OK) {
		kb_data(o->kb, emit_variant_symbol(o, "plan"), KB_INTERNAL, plan.data, plan.len, 8);
		kb_data(o->kb, emit_variant_symbol(o, "source"), KB_INTERNAL, p.source.data, p.source.len, 1);
	}
	buf_destroy(&plan);
	opencl_program_destroy(&p);
	return status;
}

/* Body of NAME.cpu for a device variant: opens the device, whose handle libtfmccl writes to slot INIT_DEVICE. */
static void emit_device_open(struct emit *e, struct kb_val config, struct kb_val slots)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	struct kb_val code = kb_local(k, "code", KB_INDEX, SLOTS(tfmc_cl_code, 1));
	struct kb_val weights = emit_load(k, KB_PTR, slots, 8 * INIT_WEIGHTS);
	struct kb_val batch = emit_load(k, KB_INDEX, slots, 8 * INIT_BATCH);
	emit_store(k, kb_symbol(k, emit_variant_symbol(o, "plan")), code, AT(tfmc_cl_code, plan));
	emit_store(k, kb_index(k, o->device.plan_bytes), code, AT(tfmc_cl_code, plan_bytes));
	emit_store(k, kb_symbol(k, emit_variant_symbol(o, "source")), code, AT(tfmc_cl_code, source));
	emit_store(k, kb_index(k, o->device.source_bytes), code, AT(tfmc_cl_code, source_bytes));
	emit_store(k, weights, code, AT(tfmc_cl_code, weights));
	emit_store(k, kb_index(k, o->weights.bytes), code, AT(tfmc_cl_code, weights_bytes));
	emit_store(k, kb_index(k, TFMC_CL_FOR_ANY), code, AT(tfmc_cl_code, devices));
	emit_store(k, batch, code, AT(tfmc_cl_code, batch));
	struct kb_val device = emit_load(k, KB_PTR, config, AT(tfmc_config, device));
	struct kb_val args[] = {code, device, kb_ptr_add(k, slots, kb_index(k, 0), 8 * INIT_DEVICE)};
	kb_return(k, kb_call_external(k, "tfmc_cl_model_open", KB_I32, args, 3));
}

/* ---- calls ---- */

/* Fills struct tfmc_buffer i: the address, and the size of tensor v in bytes instead of elements, which is what
 * libtfmccl checks. */
static void store_tensor(struct emit *e, struct kb_val buffers, size_t i, struct ir_value v,
                         struct kb_val data)
{
	struct kb *k = e->k;
	int64_t at = (int64_t)(sizeof(struct tfmc_buffer) * i);
	const struct ir_type *t = ir_type_of(e->function->func, v);
	struct kb_val n = emit_dim(e, ir_type_count(e->object->module->dims, t));
	emit_store(k, data, buffers, at + AT(tfmc_buffer, data));
	emit_store(k, kb_mul_const(k, n, ir_dtype_bytes(t->dtype)), buffers, at + AT(tfmc_buffer, count));
}

/* Emits the body of a device variant: fills struct tfmc_cl_call on the stack and calls libtfmccl, which runs the plan.
 * Dims that the function does not have get their lower bound, so that formulas stay in range. */
void emit_device_body(struct object *o, const struct function *f)
{
	struct emit e = emit_begin(o, f, emit_function_symbol(o, f, "body"), KB_INTERNAL);
	struct kb *k = e.k;
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	(void)kb_param(k, "n_workers", KB_INDEX_T, 0);
	struct kb_val call = kb_local(k, "call", KB_INDEX, SLOTS(tfmc_cl_call, 1));
	struct kb_val dims = kb_local(k, "dims", KB_INDEX, (int64_t)ir_dims_count(o->module->dims) + 1);
	struct kb_val params = kb_local(k, "params", KB_INDEX, SLOTS(tfmc_buffer, f->func->n_params + 1));
	struct kb_val results = kb_local(k, "results", KB_INDEX, SLOTS(tfmc_buffer, f->func->n_results + 1));
	bool has_past = f->has_state && o->states.batch_dim >= 0;
	struct area input = {.memory = AREA_INPUT, .offset = ir_dim_const(o->module->dims, 0)};
	emit_load_call(&e);
	(void)emit_defaults(&e, worker);
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++)
		emit_store(k, f->has_dim[i] ? e.dims[i] : kb_index(k, ir_dims_sym(o->module->dims, i)->lo),
		           dims, 8 * (int64_t)i);
	emit_zero_words(&e, params, kb_index(k, 8 * SLOTS(tfmc_buffer, f->func->n_params)));
	emit_zero_words(&e, results, kb_index(k, 8 * SLOTS(tfmc_buffer, f->func->n_results)));
	for (input.number = 0; input.number < f->func->n_params; input.number++)
		if (param_is_input(f->func, input.number))
			store_tensor(&e, params, input.number, f->func->params[input.number].value,
			             area_address(&e, &input));
	for (size_t i = 0; i < f->func->n_results; i++)
		if (result_is_output(f->func, i))
			store_tensor(&e, results, i, func_result(f->func, i),
			             emit_load_arg(&e, KB_PTR, f->result_slot[i]));
	emit_store(k, kb_index(k, (int64_t)f->row), call, AT(tfmc_cl_call, function));
	emit_store(k, has_past ? e.past : kb_null(k), call, AT(tfmc_cl_call, past));
	emit_store(k, emit_load_context(&e, KB_INDEX, CONTEXT_FIRST), call, AT(tfmc_cl_call, first));
	emit_store(k, emit_load_context(&e, KB_INDEX, CONTEXT_SOURCE), call, AT(tfmc_cl_call, source));
	emit_store(k, dims, call, AT(tfmc_cl_call, dims));
	emit_store(k, params, call, AT(tfmc_cl_call, params));
	emit_store(k, results, call, AT(tfmc_cl_call, results));
	struct kb_val args[] = {emit_load_context(&e, KB_PTR, CONTEXT_DEVICE), call};
	kb_return(k, kb_call_external(k, "tfmc_cl_model_call", KB_I32, args, 2));
	kb_end(k);
}

/* ---- the state ---- */

struct kb_val emit_is_device(struct emit *e)
{
	return kb_cmp(e->k, KB_NE, emit_load_context(e, KB_PTR, CONTEXT_DEVICE), kb_null(e->k));
}

void emit_device_call(struct emit *e, const char *function, const struct kb_val *args, size_t n)
{
	struct kb_val all[8] = {emit_load_context(e, KB_PTR, CONTEXT_DEVICE)};
	for (size_t i = 0; i < n; i++)
		all[i + 1] = args[i];
	struct kb_val status = kb_call_external(e->k, function, KB_I32, all, n + 1);
	kb_if(e->k, kb_cmp(e->k, KB_NE, status, kb_i32(e->k, TFMC_RT_OK)));
	kb_return(e->k, status);
	kb_end_if(e->k);
}

/* ---- choice of a variant ---- */

/*
 * Selection of the variant by init. It runs before anything else, so it is compiled for the baseline of the
 * architecture.
 *
 *   NAME.cpu(config, start) -> status    (NAME.LEVEL.cpu with several variants) TFMC_RT_OK if this processor and its
 *                                        operating system support the features that the variant uses; of a device
 *                                        variant it opens the device
 */

static void require_bits(struct emit *e, struct kb_val word, struct kb_val bits)
{
	emit_require(e, kb_cmp(e->k, KB_EQ, kb_bin(e->k, KB_AND, word, bits), bits), TFMC_RT_E_CPU);
}

struct target_requirements object_needs(const struct object *o)
{
	const uint64_t tiles = UINT64_C(1) << FEATURE_AMX_TILE | UINT64_C(1) << FEATURE_AMX_INT8 |
	                       UINT64_C(1) << FEATURE_AMX_BF16;
	struct target used = *o->target;
	if (!kb_module_has_tiles(o->kb, (int)(o - o->all)))
		used.features &= ~tiles;
	return target_requirements(&used);
}

/* Emits NAME.cpu: compares each word of cpuid (and xcr0, and what the operating system grants) with the bits that the
 * variant's code uses. In C there is no check: the C compiler's user has chosen. */
void emit_variant_check(struct object *o)
{
	struct emit e = {.object = o};
	struct target_requirements needs = {0};
	e.k = kb_begin(o->kb, emit_variant_symbol(o, "cpu"), KB_INTERNAL, KB_I32);
	struct kb_val config = kb_param(e.k, "config", KB_PTR_T, KB_READONLY);
	struct kb_val slots = kb_param(e.k, "start", KB_PTR_T, 0);
	if (object_is_device(o)) {
		emit_device_open(&e, config, slots);
		kb_end(e.k);
		return;
	}
	if (!o->emits_c)
		needs = object_needs(o);
	for (int i = 0; i < needs.n_words; i++) {
		const struct cpuid_requirement *w = &needs.words[i];
		/* cpuid leaves above the highest one of their range are invalid; the distance from the
		 * range's base compares as unsigned. */
		uint32_t base = w->leaf & 0x80000000u;
		struct kb_val highest = kb_cpuid(e.k, base, 0, 0);
		struct kb_val distance = kb_bin(e.k, KB_SUB, highest, kb_i32(e.k, (int32_t)base));
		emit_require(&e, kb_cmp(e.k, KB_GE, distance, kb_i32(e.k, (int32_t)(w->leaf - base))),
		             TFMC_RT_E_CPU);
		struct kb_val word = kb_cpuid(e.k, w->leaf, (int)w->subleaf, (int)w->reg);
		require_bits(&e, word, kb_i32(e.k, (int32_t)w->bits));
	}
	if (needs.xcr0) {
		struct kb_val saved = kb_xgetbv(e.k);
		require_bits(&e, saved, kb_i32(e.k, (int32_t)needs.xcr0));
	}
	for (int i = 0; i < TARGET_SYSTEM_WORDS; i++) {
		if (!needs.system[i])
			continue;
		struct kb_val granted = emit_load(e.k, KB_INDEX, config, CONFIG(system) + 8 * i);
		require_bits(&e, granted, kb_index(e.k, (int64_t)needs.system[i]));
	}
	emit_end(&e, TFMC_RT_OK);
}

/* (bits & mask) != 0 */
static struct kb_val has_any(struct kb *k, struct kb_val bits, int64_t mask)
{
	return kb_cmp(k, KB_NE, kb_bin(k, KB_AND, bits, kb_index(k, mask)), kb_index(k, 0));
}

/* Emits the choice: the most demanding variant of those that the config allows whose check succeeds. Without one
 * E_DEVICE if a device was among them, else E_CPU. */
struct kb_val emit_choose_variant(struct emit *e, struct kb_val config, struct kb_val slots)
{
	struct kb *k = e->k;
	const struct object *all = e->object->all;
	size_t n = e->object->n_all;
	int64_t all_bits = ((int64_t)1 << n) - 1, devices = 0;
	struct kb_val args[] = {config, slots}, zero = kb_index(k, 0);
	struct kb_val allowed = emit_load(k, KB_INDEX, config, CONFIG(variants));
	emit_return_if(e, has_any(k, allowed, ~all_bits), TFMC_RT_E_VARIANT);
	struct kb_val is_any = kb_cmp(k, KB_EQ, allowed, zero);
	struct kb_val use = kb_select(k, is_any, kb_index(k, all_bits), allowed);
	struct kb_var chosen = kb_var(k, "variant", KB_INDEX_T, kb_index(k, -1));
	for (size_t i = n; i-- > 0;) {
		struct kb_val is_open = kb_cmp(k, KB_LT, kb_get(k, chosen), zero);
		kb_if(k, kb_bin(k, KB_AND, is_open, has_any(k, use, (int64_t)1 << i)));
		struct kb_val status = kb_call(k, emit_variant_symbol(&all[i], "cpu"), KB_I32, args, 2);
		kb_if(k, kb_cmp(k, KB_EQ, status, kb_i32(k, TFMC_RT_OK)));
		kb_set(k, chosen, kb_index(k, (int64_t)i));
		kb_end_if(k);
		kb_end_if(k);
		devices |= object_is_device(&all[i]) ? (int64_t)1 << i : 0;
	}
	kb_if(k, kb_cmp(k, KB_LT, kb_get(k, chosen), zero));
	if (devices)
		emit_return_if(e, has_any(k, use, devices), TFMC_RT_E_DEVICE);
	kb_return(k, kb_i32(k, TFMC_RT_E_CPU));
	kb_end_if(k);
	return kb_get(k, chosen);
}

/* ---- interface functions ---- */

static struct emit begin_api(struct object *o, const char *suffix, enum kb_scalar result)
{
	return (struct emit){.object = o,
	                     .k = kb_begin(o->kb, emit_api_symbol(o, suffix), KB_EXPORTED, result)};
}

void emit_require(struct emit *e, struct kb_val ok, enum tfmc_rt_status status)
{
	emit_return_if(e, kb_un(e->k, KB_NOT, ok), status);
}

static void return_value_if(struct kb *k, struct kb_val cond, int64_t v)
{
	kb_if(k, cond);
	kb_return(k, kb_index(k, v));
	kb_end_if(k);
}

static struct kb_val is_zero(struct emit *e, struct kb_val v)
{
	return kb_cmp(e->k, KB_EQ, v, kb_index(e->k, 0));
}

/* address: a pointer as i64. */
static struct kb_val is_aligned(struct emit *e, struct kb_val address)
{
	return is_zero(e, kb_bin(e->k, KB_AND, address, kb_index(e->k, OBJECT_ALIGN - 1)));
}

void emit_check_magic(struct emit *e)
{
	emit_return_if(e, kb_cmp(e->k, KB_EQ, e->context, kb_null(e->k)), TFMC_RT_E_NULL);
	struct kb_val magic = emit_load_context(e, KB_INDEX, CONTEXT_MAGIC);
	emit_require(e, kb_cmp(e->k, KB_EQ, magic, kb_index(e->k, (int64_t)e->object->structure_hash)),
	             TFMC_RT_E_CONTEXT);
}

void emit_zero_words(struct emit *e, struct kb_val ptr, struct kb_val bytes)
{
	struct kb_val n = kb_div_const(e->k, bytes, 8);
	struct kb_val i = kb_loop(e->k, "i", kb_index(e->k, 0), n, 1, 0);
	kb_store(e->k, kb_index(e->k, 0), ptr, i, 0, 8);
	kb_end_loop(e->k);
}

/* ---- sizes ---- */

/* NAME_arena_bytes: the largest need of all functions of all variants; 0: a dim is out of bounds. A case (a function
 * for some dims) counts whether or not its conditions hold, so that smaller dims never need more. The base, whose
 * calls the case serves then, counts 0 there. */
static void emit_arena_bytes(struct object *o)
{
	struct emit e = begin_api(o, "arena_bytes", KB_INDEX);
	struct kb *k = e.k;
	struct kb_val values = kb_param(k, "dims", KB_PTR_T, KB_READONLY);
	struct kb_val workers = kb_param(k, "workers", KB_INDEX_T, 0);
	size_t n = ir_dims_count(o->module->dims);
	struct kb_val *dims = ARENA_ARRAY(o->arena, struct kb_val, n + 1);
	struct kb_val bad = kb_cmp(k, KB_LT, workers, kb_index(k, 0));
	for (size_t i = 0; dims && i < n; i++) {
		const struct ir_dim_sym *s = ir_dims_sym(o->module->dims, i);
		dims[i] = kb_load(k, KB_INDEX_T, values, kb_index(k, 0), (int64_t)i, 8);
		bad = kb_bin(k, KB_OR, bad, kb_cmp(k, KB_LT, dims[i], kb_index(k, s->lo)));
		bad = kb_bin(k, KB_OR, bad, kb_cmp(k, KB_GT, dims[i], kb_index(k, s->hi)));
	}
	return_value_if(k, bad, 0);
	e.dims = dims;
	struct kb_val most = kb_index(k, 0);
	for (size_t v = 0; v < o->n_all; v++) {
		e.object = &o->all[v];
		for (size_t i = 0; i < e.object->functions.n; i++) {
			const struct function *f = &e.object->functions.items[i];
			if (!f->reached)
				continue;
			/* the base function has no call where the conditions of a case hold */
			struct kb_val need = emit_dim(&e, f->arena);
			for (size_t c = 0; c < e.object->functions.n; c++) {
				const struct function *other = &e.object->functions.items[c];
				if (other->func->when && other->base == f->func)
					need = kb_select(k, emit_conditions(&e, other->func->when),
					                 kb_index(k, 0), need);
			}
			most = kb_max(k, most, need);
		}
	}
	struct kb_val several = kb_max(k, workers, kb_index(k, 1));
	kb_return(k, kb_add(k, most, kb_mul_const(k, several, o->scratch)));
	kb_end(k);
}

/* NAME_state_bytes: the fixed part and a block for each sequence; 0 if the batch is out of bounds. Without a state
 * both are 0. */
static void emit_state_bytes(struct object *o)
{
	struct emit e = begin_api(o, "state_bytes", KB_INDEX);
	struct kb *k = e.k;
	struct kb_val batch = kb_param(k, "batch", KB_INDEX_T, 0);
	if (o->states.batch_dim >= 0) {
		struct kb_val low = kb_cmp(k, KB_LT, batch, kb_index(k, 1));
		struct kb_val high = kb_cmp(k, KB_GT, batch, kb_index(k, o->states.batch_max));
		return_value_if(k, kb_bin(k, KB_OR, low, high), 0);
	}
	struct kb_val blocks = kb_mul_const(k, batch, o->states.batch_bytes);
	kb_return(k, kb_add_const(k, blocks, o->states.fixed_bytes));
	kb_end(k);
}

/* ---- init ---- */

struct init {
	struct emit e;
	struct kb_val config;
	struct kb_val weights, state, arena, arena_bytes, batch, workers, variant;
	struct kb_val slots; /* [INIT_SLOTS] */
};

static struct kb_val config_field(struct init *n, enum kb_scalar type, int64_t offset)
{
	return emit_load(n->e.k, type, n->config, offset);
}

/* Loads weights and arena from the config and checks their sizes and alignment. Weights that are absent are
 * those in the object, if it contains them; the arena holds at least the scratch of all workers. */
static void check_memory(struct init *n)
{
	struct emit *e = &n->e;
	struct kb *k = e->k;
	const struct object *o = e->object;
	n->weights = config_field(n, KB_PTR, CONFIG(weights));
	struct kb_val bytes = config_field(n, KB_INDEX, CONFIG(weights_bytes));
	struct kb_val absent = kb_cmp(k, KB_EQ, n->weights, kb_null(k));
	struct kb_val fits = kb_cmp(k, KB_EQ, bytes, kb_index(k, o->weights.bytes));
	emit_require(e, kb_bin(k, KB_OR, absent, fits), TFMC_RT_E_WEIGHTS);
	emit_require(e, is_aligned(e, config_field(n, KB_INDEX, CONFIG(weights))), TFMC_RT_E_ALIGN);
	if (o->embedded)
		n->weights = kb_select(k, absent, kb_symbol(k, emit_api_symbol(o, "weights")), n->weights);
	else if (o->weights.bytes > 0)
		emit_return_if(e, absent, TFMC_RT_E_NO_WEIGHTS);
	n->arena = config_field(n, KB_PTR, CONFIG(arena));
	n->arena_bytes = config_field(n, KB_INDEX, CONFIG(arena_bytes));
	struct kb_val workers = config_field(n, KB_INDEX, CONFIG(workers));
	n->workers = kb_max(k, workers, kb_index(k, 1));
	emit_require_between(e, workers, 0, kb_index(k, 4096), TFMC_RT_E_WORKER);
	emit_require(e, is_aligned(e, config_field(n, KB_INDEX, CONFIG(arena))), TFMC_RT_E_ALIGN);
	struct kb_val none = kb_cmp(k, KB_EQ, n->arena, kb_null(k));
	n->arena_bytes = kb_select(k, none, kb_index(k, 0), n->arena_bytes);
	struct kb_val scratch = kb_mul_const(k, n->workers, o->scratch);
	emit_require(e, kb_cmp(k, KB_GE, n->arena_bytes, scratch), TFMC_RT_E_SIZE);
}

/* Checks the state's memory and finds the batch. batch 0: as many sequences as fit into state_bytes, at most the bound
 * of the batch dim. No state is allowed (functions that use it then fail): the batch is 0. */
static void check_state(struct init *n)
{
	struct emit *e = &n->e;
	struct kb *k = e->k;
	const struct object *o = e->object;
	n->state = config_field(n, KB_PTR, CONFIG(state));
	if (o->states.batch_dim < 0) {
		n->batch = kb_index(k, 0);
		return;
	}
	n->batch = config_field(n, KB_INDEX, CONFIG(batch));
	emit_require(e, is_aligned(e, config_field(n, KB_INDEX, CONFIG(state))), TFMC_RT_E_ALIGN);
	emit_require_between(e, n->batch, 0, kb_index(k, o->states.batch_max), TFMC_RT_E_DIM);
	struct kb_val bytes = config_field(n, KB_INDEX, CONFIG(state_bytes));
	struct kb_val block_bytes = kb_bin(k, KB_SUB, bytes, kb_index(k, o->states.fixed_bytes));
	int64_t block = o->states.batch_bytes > 0 ? o->states.batch_bytes : 1;
	struct kb_val most = kb_min(k, kb_div_const(k, block_bytes, block), kb_index(k, o->states.batch_max));
	n->batch = kb_select(k, is_zero(e, n->batch), most, n->batch);
	struct kb_val absent = kb_cmp(k, KB_EQ, n->state, kb_null(k));
	struct kb_val some = kb_cmp(k, KB_GE, n->batch, kb_index(k, 1));
	struct kb_val enough = kb_cmp(k, KB_GE, block_bytes, kb_mul_const(k, n->batch, block));
	emit_require(e, kb_bin(k, KB_OR, absent, kb_bin(k, KB_AND, some, enough)), TFMC_RT_E_SIZE);
	n->batch = kb_select(k, absent, kb_index(k, 0), n->batch);
}

/* Objects of several ranks need the table of a group of as many. */
static void check_ranks(struct init *n)
{
	struct emit *e = &n->e;
	if (e->object->ranks <= 1)
		return;
	struct kb_val table = config_field(n, KB_PTR, CONFIG(ranks));
	emit_return_if(e, kb_cmp(e->k, KB_EQ, table, kb_null(e->k)), TFMC_RT_E_RANKS);
	struct kb_val count = emit_load(e->k, KB_INDEX, table, offsetof(struct tfmc_ranks, n));
	emit_require(e, kb_cmp(e->k, KB_EQ, count, kb_index(e->k, e->object->ranks)), TFMC_RT_E_RANKS);
}

/* Fills the context from the config. The magic number comes last: it marks a complete context. */
static void write_context(struct init *n)
{
	struct emit *e = &n->e;
	struct kb *k = e->k;
	struct kb_val scratch = kb_mul_const(k, n->workers, e->object->scratch);
	emit_zero_words(e, e->context, kb_index(k, CONTEXT_SHARED));
	emit_store_context(e, n->weights, CONTEXT_WEIGHTS);
	emit_store_context(e, n->state, CONTEXT_STATE);
	emit_store_context(e, n->arena, CONTEXT_ARENA);
	emit_store_context(e, n->arena_bytes, CONTEXT_ARENA_BYTES);
	emit_store_context(e, kb_ptr_add(k, n->arena, scratch, 0), CONTEXT_BUFFERS);
	emit_store_context(e, n->batch, CONTEXT_BATCH);
	emit_store_context(e, n->variant, CONTEXT_VARIANT);
	emit_store_context(e, emit_load(k, KB_PTR, n->slots, 8 * INIT_DEVICE), CONTEXT_DEVICE);
	emit_store_context(e, n->workers, CONTEXT_WORKERS_MAX);
	emit_set_workers(e, n->workers);
	emit_store_context(e, config_field(n, KB_PTR, CONFIG(parallel_for)), CONTEXT_PARALLEL_FOR);
	emit_store_context(e, config_field(n, KB_PTR, CONFIG(yield)), CONTEXT_YIELD);
	emit_store_context(e, config_field(n, KB_PTR, CONFIG(user)), CONTEXT_USER);
	if (e->object->ranks > 1)
		emit_store_context(e, config_field(n, KB_PTR, CONFIG(ranks)), CONTEXT_RANKS);
	e->state = n->state;
	emit_set_rows(e, kb_index(k, 0), kb_index(k, -1));
	emit_store_context(e, kb_index(k, (int64_t)e->object->structure_hash), CONTEXT_MAGIC);
}

/* NAME_workers: between calls; at most the workers of the config. */
static void set_workers(struct emit *e, const struct kb_val *args)
{
	struct kb_val most = emit_load_context(e, KB_INDEX, CONTEXT_WORKERS_MAX);
	emit_require_between(e, args[0], 1, most, TFMC_RT_E_WORKER);
	emit_set_workers(e, args[0]);
}

/* NAME_init: checks the config, chooses the variant, fills the context and resets the state, unless it is zero. */
static void emit_init(struct object *o)
{
	struct init n = {.e = begin_api(o, "init", KB_I32)};
	struct emit *e = &n.e;
	struct kb *k = e->k;
	e->context = kb_param(k, "context", KB_PTR_T, 0);
	n.config = kb_param(k, "config", KB_PTR_T, KB_READONLY);
	n.slots = kb_local(k, "start", KB_INDEX, INIT_SLOTS);
	struct kb_val no_context = kb_cmp(k, KB_EQ, e->context, kb_null(k));
	struct kb_val no_config = kb_cmp(k, KB_EQ, n.config, kb_null(k));
	emit_return_if(e, kb_bin(k, KB_OR, no_context, no_config), TFMC_RT_E_NULL);
	struct kb_val size = config_field(&n, KB_INDEX, CONFIG(struct_size));
	emit_require(e, kb_cmp(k, KB_EQ, size, kb_index(k, (int64_t)sizeof(struct tfmc_config))),
	             TFMC_RT_E_ABI);
	check_memory(&n);
	check_state(&n);
	check_ranks(&n);
	emit_store(k, n.weights, n.slots, 8 * INIT_WEIGHTS);
	emit_store(k, n.batch, n.slots, 8 * INIT_BATCH);
	emit_store(k, kb_null(k), n.slots, 8 * INIT_DEVICE);
	/* last check: it opens the device, which nothing would close after a later failure */
	n.variant = emit_choose_variant(e, n.config, n.slots);
	write_context(&n);
	kb_if(k, is_zero(e, config_field(&n, KB_INDEX, CONFIG(state_is_zero))));
	kb_return(k, kb_call(k, emit_api_symbol(o, "reset"), KB_I32, &e->context, 1));
	kb_end_if(k);
	emit_end(e, TFMC_RT_OK);
}

/* NAME_close: without its magic number the context counts as uninitialized. */
static void close_context(struct emit *e, const struct kb_val *args)
{
	(void)args;
	emit_store_context(e, kb_index(e->k, 0), CONTEXT_MAGIC);
	if (object_has_device(e->object)) {
		struct kb_val device = emit_load_context(e, KB_PTR, CONTEXT_DEVICE);
		(void)kb_call_external(e->k, "tfmc_cl_model_close", KB_VOID, &device, 1);
	}
}

/* ---- functions of an initialized context ---- */

static const struct context_function {
	const char *suffix;
	struct {
		const char *name;
		enum kb_scalar type;
	} params[2]; /* after the context */
	bool needs_state;
	/* emits the body, which returns failures only */
	void (*emit)(struct emit *e, const struct kb_val *args);
} functions[] = {
        {"reset", {{0}}, false, emit_reset},
        {"trim", {{"sequence", KB_INDEX}, {"length", KB_INDEX}}, true, emit_trim},
        {"fork", {{"from", KB_INDEX}, {"to", KB_INDEX}}, true, emit_fork},
        {"select", {{"first", KB_INDEX}, {"source", KB_INDEX}}, true, emit_select},
        {"reorder", {{"from", KB_PTR}, {"n", KB_INDEX}}, true, emit_reorder},
        {"fetch", {{"sequence", KB_INDEX}}, true, emit_fetch},
        {"store", {{"sequence", KB_INDEX}}, true, emit_store_state},
        {"close", {{0}}, false, close_context},
        {"workers", {{"workers", KB_INDEX}}, false, set_workers},
};

/* Emits NAME_suffix: the checks of context and state that all of them begin with, then the body. */
static void emit_context_function(struct object *o, const struct context_function *f)
{
	struct emit e = begin_api(o, f->suffix, KB_I32);
	struct kb_val args[TFMC_COUNT(f->params)] = {{0}};
	e.context = kb_param(e.k, "context", KB_PTR_T, 0);
	for (size_t i = 0; i < TFMC_COUNT(args) && f->params[i].name; i++)
		args[i] = kb_param(e.k, f->params[i].name, KB_TYPE(f->params[i].type, 1),
		                   f->params[i].type == KB_PTR ? KB_READONLY : 0);
	emit_check_magic(&e);
	e.state = emit_load_context(&e, KB_PTR, CONTEXT_STATE);
	if (f->needs_state)
		emit_return_if(&e, kb_cmp(e.k, KB_EQ, e.state, kb_null(e.k)), TFMC_RT_E_STATE);
	f->emit(&e, args);
	emit_end(&e, TFMC_RT_OK);
}

/* ---- status and variant ---- */

/* NAME_status_text: compares with each status, since a table of addresses would need load-time relocations. */
static void emit_status_text(struct object *o)
{
	static const struct {
		int32_t value;
		const char *text;
	} rows[] = {
#define ROW(name, value, text) {value, text},
	        TFMC_STATUS_TABLE(ROW)
#undef ROW
	};
	struct emit e = begin_api(o, "status_text", KB_PTR);
	struct kb_val status = kb_param(e.k, "status", KB_I32_T, 0);
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		kb_if(e.k, kb_cmp(e.k, KB_EQ, status, kb_i32(e.k, rows[i].value)));
		kb_return(e.k, kb_string(e.k, rows[i].text));
		kb_end_if(e.k);
	}
	kb_return(e.k, kb_string(e.k, "unknown status"));
	kb_end(e.k);
}

/* NAME_variant: -1 if init has not filled the context. */
static void emit_variant_number(struct object *o)
{
	struct emit e = begin_api(o, "variant", KB_INDEX);
	struct kb *k = e.k;
	e.context = kb_param(k, "context", KB_PTR_T, 0);
	return_value_if(k, kb_cmp(k, KB_EQ, e.context, kb_null(k)), -1);
	struct kb_val magic = emit_load_context(&e, KB_INDEX, CONTEXT_MAGIC);
	return_value_if(k, kb_cmp(k, KB_NE, magic, kb_index(k, (int64_t)o->structure_hash)), -1);
	kb_return(k, emit_load_context(&e, KB_INDEX, CONTEXT_VARIANT));
	kb_end(k);
}

/* ---- labels of groups ---- */

/* Stores the label of a kernel, whose function is `e->function`: path and line of its step, kernel, and what it costs.
 * Bytes of weights are those of the largest dims; flops are a formula of the call's. The kernel that joins partial
 * results (is_combine) costs 0: the other one of its group has the costs of both. */
static void store_label(struct emit *e, const struct plan_kernel *kernel, struct kb_val out)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	const struct ir_func *f = e->function->func;
	const struct ir_op *group = kernel->groups[0];
	size_t n = ir_dims_count(o->module->dims);
	int64_t *largest = ARENA_ARRAY(o->arena, int64_t, n + 1);
	struct buf path, line, name;
	for (size_t i = 0; largest && i < n; i++)
		largest[i] = ir_dims_sym(o->module->dims, i)->hi;
	buf_init(&path);
	buf_init(&line);
	buf_init(&name);
	ir_op_title(&path, f, group, true);
	ir_op_line(&line, o->cx, group);
	ir_group_kernel(&name, group);
	if (kernel->is_combine)
		buf_str(&name, ", join");
	struct kb_val flops = kb_f64(k, 0);
	for (enum ir_mac_type kind = 0; kind < MAC_ALL && !kernel->is_combine; kind++)
		flops = kb_add(k, flops,
		               kb_cvt(k, emit_dim(e, ir_op_flops(o->module, f, group, kind)), KB_F64));
	double bytes = largest && !kernel->is_combine ? ir_op_weight_bytes(f, group, largest) : 0;
	emit_store(k, kb_string(k, arena_strdup(o->arena, path.data)), out, AT(tfmc_group_label, path));
	emit_store(k, line.len ? kb_string(k, arena_strdup(o->arena, line.data)) : kb_null(k), out,
	           AT(tfmc_group_label, line));
	emit_store(k, kb_string(k, arena_strdup(o->arena, name.data)), out, AT(tfmc_group_label, kernel));
	emit_store(k, kb_f64(k, bytes), out, AT(tfmc_group_label, bytes));
	emit_store(k, flops, out, AT(tfmc_group_label, flops));
	buf_destroy(&path);
	buf_destroy(&line);
	buf_destroy(&name);
}

/* NAME_label: compares the group with each kernel's caller, which is what a trace calls a group. Returns 1 with *out
 * filled, or 0: no label. Dims that the entry does not have are 1. Of device kernels there is no caller. */
static void emit_label(struct object *o)
{
	struct emit e = begin_api(o, "label", KB_I32);
	struct kb *k = e.k;
	size_t n = ir_dims_count(o->module->dims);
	struct kb_val *dims = ARENA_ARRAY(o->arena, struct kb_val, n + 1);
	(void)kb_param(k, "user", KB_PTR_T, 0);
	struct kb_val query = kb_param(k, "group", KB_PTR_T, KB_READONLY),
	              out = kb_param(k, "out", KB_PTR_T, 0);
	struct kb_val group = emit_load(k, KB_PTR, query, AT(tfmc_group_query, group));
	struct kb_val given = emit_load(k, KB_PTR, query, AT(tfmc_group_query, dims));
	emit_return_if(&e, kb_cmp(k, KB_EQ, given, kb_null(k)), TFMC_RT_OK); /* 0: no label */
	struct kb_val one = kb_index(k, 1);
	for (size_t i = 0; dims && i < n; i++)
		dims[i] = kb_max(k, emit_load(k, KB_INDEX, given, 8 * (int64_t)i), one);
	e.dims = dims;
	for (size_t v = 0; dims && v < o->n_all; v++) {
		e.object = &o->all[v];
		for (size_t i = 0; i < e.object->functions.n && !object_is_device(e.object); i++) {
			const struct function *f = e.function = &e.object->functions.items[i];
			for (size_t at = 0; f->plan && at < f->plan->n; at++) {
				if (f->plan->items[at].kind != PLAN_DISPATCH)
					continue;
				const struct plan_kernel *kernel = f->plan->items[at].kernel;
				const char *caller = kernel_symbol(e.object, f, kernel);
				kb_if(k, kb_cmp(k, KB_EQ, group, kb_func_addr(k, caller)));
				store_label(&e, kernel, out);
				kb_return(k, kb_i32(k, 1));
				kb_end_if(k);
			}
		}
	}
	kb_return(k, kb_i32(k, 0));
	kb_end(k);
}

void emit_api(struct object *o)
{
	emit_arena_bytes(o);
	emit_state_bytes(o);
	emit_init(o);
	for (size_t i = 0; i < TFMC_COUNT(functions); i++)
		emit_context_function(o, &functions[i]);
	emit_variant_number(o);
	emit_status_text(o);
	if (o->options->labels)
		emit_label(o);
}
