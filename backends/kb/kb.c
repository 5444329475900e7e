/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel builder, part 1: modules, functions, constants, variables and control flow. Operand types are checked
 * when an instruction is appended; the first error is stored in the module and reported by kb_verify.
 */
#include "backends/kb/internal.h"

#include <stdarg.h>
#include <string.h>

#include "ir/target/target.h"

#define GROUP_SIZE_MAX 1024

struct kb_caps kb_caps_of(const struct target *t)
{
	return (struct kb_caps){
	        .lanes = t->lanes,
	        .registers = t->registers,
	        .has_fma = t->has_fma,
	        .has_f16 = t->has_fma, /* every processor with FMA has F16C */
	        .has_nearest = t->arch != ARCH_OPENCL,
	        .has_dot_u8s8 = target_has(t, FEATURE_AVXVNNI) || target_has(t, FEATURE_AVX512VNNI) ||
	                        target_has(t, FEATURE_I8MM),
	        .has_dot_s8s8 = target_has(t, FEATURE_AVXVNNIINT8) || target_has(t, FEATURE_DOTPROD),
	        .has_dot_u7s8 = t->arch == ARCH_X86_64,
	        .has_dot_s16s16 = t->arch == ARCH_X86_64,
	        .has_dot_u7s8_i16 = t->arch == ARCH_X86_64,
	        .has_dot_bf16 = target_has(t, FEATURE_AVX512BF16),
	        .has_dot_bf16_odd = target_has(t, FEATURE_BF16),
	        .has_dot_u8s8_2x2 = target_has(t, FEATURE_I8MM),
	        .has_dot_s8s8_2x2 = target_has(t, FEATURE_I8MM),
	        .has_dot_bf16_odd_2x2 = target_has(t, FEATURE_BF16),
	        .has_tiles = target_has(t, FEATURE_AMX_INT8) && target_has(t, FEATURE_AMX_BF16),
	        .short_bytes = t->arch == ARCH_OPENCL,
	        .shared_bytes = t->shared_bytes,
	};
}

struct kb_module *kb_module_create(struct arena *arena, const struct kb_caps *caps)
{
	struct kb_module *m = ARENA_NEW(arena, struct kb_module);
	if (!m)
		return NULL;
	m->arena = arena;
	m->caps = *caps;
	return m;
}

void kb_module_set_variant(struct kb_module *m, int number, const struct kb_caps *caps)
{
	m->variant = number;
	m->caps = *caps;
}

bool kb_module_has_tiles(const struct kb_module *m, int number)
{
	return m->tiled >> number & 1;
}

const struct kb_caps *kb_caps(const struct kb *k)
{
	return &k->caps;
}

bool kb_module_failed(const struct kb_module *m)
{
	return m->error || arena_failed(m->arena);
}

size_t kb_func_count(const struct kb_module *m)
{
	return m->funcs.n;
}

const struct kb_func *kb_func_at(const struct kb_module *m, size_t i)
{
	return m->funcs.items[i]->func;
}

size_t kb_data_count(const struct kb_module *m)
{
	return m->data.n;
}

const struct kb_data_item *kb_data_at(const struct kb_module *m, size_t i)
{
	return &m->data.items[i];
}

bool kb_require(struct kb *k, bool ok, const char *what)
{
	if (!ok && !k->module->error)
		k->module->error = arena_printf(k->module->arena, "%s: instruction %zu: %s", k->func->name,
		                                k->insts.n, what);
	return ok;
}

struct kb_type kb_type_of(const struct kb *k, struct kb_val v)
{
	if (v.id == 0 || v.id >= k->types.n)
		return KB_TYPE(KB_VOID, 1);
	return k->types.items[v.id];
}

/* A new value id, defined by the next instruction. 0 without memory. */
static uint32_t new_value(struct kb *k, struct kb_type type)
{
	struct kb_type *t = ARENA_PUSH(k->module->arena, &k->types);
	uint32_t *def = ARENA_PUSH(k->module->arena, &k->defs);
	if (!t || !def)
		return 0;
	*t = type;
	*def = (uint32_t)k->insts.n;
	return (uint32_t)(k->types.n - 1);
}

struct kb_val kb_emit(struct kb *k, struct kb_inst inst, const struct kb_val *args, size_t n, bool has_result)
{
	struct arena *a = k->module->arena;
	struct kb_val *copy = n ? ARENA_ARRAY(a, struct kb_val, n) : NULL;
	if (n && !copy)
		return (struct kb_val){0};
	for (size_t i = 0; i < n; i++)
		copy[i] = args[i];
	inst.args = copy;
	inst.n_args = n;
	if (has_result)
		inst.result = new_value(k, inst.type);
	if (!ARENA_ADDED(a, &k->insts, inst))
		return (struct kb_val){0};
	return (struct kb_val){has_result ? inst.result : 0};
}

struct kb_val kb_poison(struct kb *k, struct kb_type type)
{
	kb_require(k, false, "operand types do not match the operation");
	struct kb_inst zero = {.op = KBO_CONST_INT, .type = KB_TYPE(type.scalar, 1)};
	struct kb_val v = kb_emit(k, zero, NULL, 0, true);
	if (type.lanes == 1)
		return v;
	struct kb_inst splat = {.op = KBO_SPLAT, .type = type};
	return kb_emit(k, splat, &v, 1, true);
}

/* ---- functions ---- */

struct kb *kb_begin(struct kb_module *m, const char *name, enum kb_linkage linkage, enum kb_scalar result)
{
	struct kb *k = ARENA_NEW(m->arena, struct kb), **slot = ARENA_PUSH(m->arena, &m->funcs);
	struct kb_func *f = ARENA_NEW(m->arena, struct kb_func);
	k = k ? k : &m->lost;
	f = f ? f : &m->lost_func;
	*k = (struct kb){.module = m, .caps = m->caps, .func = f};
	*f = (struct kb_func){.variant = m->variant,
	                      .caps = m->caps,
	                      .name = arena_strdup(m->arena, name),
	                      .linkage = linkage,
	                      .result = result,
	                      .group_size = 1};
	if (slot)
		*slot = k;
	/* ids begin at 1 */
	(void)ARENA_PUSH(m->arena, &k->types);
	(void)ARENA_PUSH(m->arena, &k->defs);
	(void)ARENA_PUSH(m->arena, &k->vars);
	bool fits = result == KB_VOID || result == KB_I32 || result == KB_INDEX || result == KB_PTR;
	kb_require(k, fits, "the result type is not void, i32, index or ptr");
	kb_require(k, linkage != KB_KERNEL || result == KB_VOID, "a kernel with a result");
	return k;
}

void kb_group_size(struct kb *k, int64_t items)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "an operation of work-groups outside of a kernel");
	kb_require(k, items >= 1 && items <= GROUP_SIZE_MAX, "the size of a work-group is out of range");
	k->func->group_size = items;
}

struct kb_val kb_param(struct kb *k, const char *name, struct kb_type type, unsigned flags)
{
	bool first = k->insts.n == 0 || k->insts.items[k->insts.n - 1].op == KBO_PARAM;
	kb_require(k, first, "a parameter after other instructions");
	struct kb_inst inst = {
	        .op = KBO_PARAM, .type = type, .flags = flags, .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, NULL, 0, true);
}

void kb_assume_multiple(struct kb *k, struct kb_val param, int align)
{
	if (param.id == 0) /* no memory for the parameter: defs may be empty */
		return;
	struct kb_inst *inst = &k->insts.items[k->defs.items[param.id]];
	if (kb_require(k, inst->op == KBO_PARAM && align > 0 && (align & (align - 1)) == 0,
	               "not a parameter, or not a power of two"))
		inst->align = align;
}

void kb_comment(struct kb *k, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	struct kb_inst inst = {.op = KBO_COMMENT, .name = arena_vprintf(k->module->arena, fmt, ap)};
	va_end(ap);
	kb_emit(k, inst, NULL, 0, false);
}

void kb_source_loc(struct kb *k, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	struct kb_inst inst = {
	        .op = KBO_COMMENT, .flags = KB_SOURCE_LOC, .name = arena_vprintf(k->module->arena, fmt, ap)};
	va_end(ap);
	kb_emit(k, inst, NULL, 0, false);
}

void kb_return(struct kb *k, struct kb_val v)
{
	bool none = v.id == 0;
	kb_require(k, none == (k->func->result == KB_VOID),
	           "the returned value does not match the result type");
	if (!none)
		kb_require(k, kb_same_type(kb_type_of(k, v), KB_TYPE(k->func->result, 1)),
		           "the returned value does not match the result type");
	struct kb_inst inst = {.op = KBO_RETURN};
	kb_emit(k, inst, &v, none ? 0 : 1, false);
}

void kb_end(struct kb *k)
{
	kb_require(k, k->open.n == 0, "a loop or condition is open at the end of the function");
	kb_require(k, !k->ended, "the function is finished already");
	k->ended = true;
	struct kb_func *f = k->func;
	f->insts = k->insts.items;
	f->n_insts = k->insts.n;
	k->module->n_insts += k->insts.n;
	f->types = k->types.items;
	f->n_values = k->types.n;
	f->var_types = k->vars.items;
	f->n_vars = k->vars.n;
}

static struct kb_val emit_call(struct kb *k, const char *name, unsigned flags, enum kb_scalar result,
                               const struct kb_val *args, size_t n)
{
	struct kb_inst inst = {.op = KBO_CALL,
	                       .type = KB_TYPE(result, 1),
	                       .flags = flags,
	                       .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, args, n, result != KB_VOID);
}

struct kb_val kb_call(struct kb *k, const char *name, enum kb_scalar result, const struct kb_val *args,
                      size_t n)
{
	return emit_call(k, name, 0, result, args, n);
}

struct kb_val kb_call_external(struct kb *k, const char *name, enum kb_scalar result,
                               const struct kb_val *args, size_t n)
{
	return emit_call(k, name, KB_EXTERNAL, result, args, n);
}

struct kb_val kb_call_ptr(struct kb *k, struct kb_val fn, enum kb_scalar result, const struct kb_val *args,
                          size_t n)
{
	kb_require(k, kb_same_type(kb_type_of(k, fn), KB_PTR_T), "the callee is not a pointer");
	struct kb_val *all = ARENA_ARRAY(k->module->arena, struct kb_val, n + 1);
	if (!all)
		return (struct kb_val){0};
	all[0] = fn;
	for (size_t i = 0; i < n; i++)
		all[i + 1] = args[i];
	struct kb_inst inst = {.op = KBO_CALL_PTR, .type = KB_TYPE(result, 1)};
	return kb_emit(k, inst, all, n + 1, result != KB_VOID);
}

/* An address by name: FUNC_ADDR, STRING, SYMBOL. */
static struct kb_val emit_address(struct kb *k, enum kb_opcode op, const char *name)
{
	struct kb_inst inst = {.op = op, .type = KB_PTR_T, .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_func_addr(struct kb *k, const char *name)
{
	return emit_address(k, KBO_FUNC_ADDR, name);
}

/* ---- constants ---- */

static struct kb_val const_int(struct kb *k, enum kb_scalar s, int64_t v)
{
	struct kb_inst inst = {.op = KBO_CONST_INT, .type = KB_TYPE(s, 1), .imm = v};
	return kb_emit(k, inst, NULL, 0, true);
}

static struct kb_val const_float(struct kb *k, enum kb_scalar s, double v)
{
	struct kb_inst inst = {.op = KBO_CONST_FLOAT, .type = KB_TYPE(s, 1), .fimm = v};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_f32(struct kb *k, float v)
{
	return const_float(k, KB_F32, (double)v);
}

struct kb_val kb_f64(struct kb *k, double v)
{
	return const_float(k, KB_F64, v);
}

struct kb_val kb_i32(struct kb *k, int32_t v)
{
	return const_int(k, KB_I32, v);
}

struct kb_val kb_index(struct kb *k, int64_t v)
{
	return const_int(k, KB_INDEX, v);
}

struct kb_val kb_i64(struct kb *k, int64_t v)
{
	return const_int(k, KB_I64, v);
}

struct kb_val kb_bool(struct kb *k, bool v)
{
	return const_int(k, KB_BOOL, v);
}

struct kb_val kb_null(struct kb *k)
{
	struct kb_inst inst = {.op = KBO_NULL, .type = KB_PTR_T};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_string(struct kb *k, const char *text)
{
	return emit_address(k, KBO_STRING, text);
}

struct kb_val kb_symbol(struct kb *k, const char *name)
{
	return emit_address(k, KBO_SYMBOL, name);
}

void kb_data(struct kb_module *m, const char *name, enum kb_linkage linkage, const void *bytes, size_t n,
             int align)
{
	struct kb_data_item *d = ARENA_PUSH(m->arena, &m->data);
	char *copy = arena_alloc(m->arena, n ? n : 1);
	if (!d || !copy)
		return;
	if (n)
		memcpy(copy, bytes, n);
	*d = (struct kb_data_item){arena_strdup(m->arena, name), linkage, copy, n, align};
}

struct kb_val kb_lane_ids(struct kb *k, int lanes)
{
	struct kb_inst inst = {.op = KBO_LANE_IDS, .type = KB_TYPE(KB_I32, lanes)};
	kb_require(k, lanes >= 1 && lanes <= KB_LANES_MAX, "lane_ids with an invalid number of lanes");
	return kb_emit(k, inst, NULL, 0, true);
}

bool kb_const_index(const struct kb *k, struct kb_val v, int64_t *out)
{
	if (v.id == 0 || v.id >= k->defs.n)
		return false;
	const struct kb_inst *d = &k->insts.items[k->defs.items[v.id]];
	if (d->op != KBO_CONST_INT || d->type.scalar != KB_INDEX)
		return false;
	*out = d->imm;
	return true;
}

/* ---- variables, local arrays ---- */

struct kb_var kb_var(struct kb *k, const char *name, struct kb_type type, struct kb_val init)
{
	if (!ARENA_ADDED(k->module->arena, &k->vars, type))
		return (struct kb_var){0};
	struct kb_var v = {(uint32_t)(k->vars.n - 1)};
	if (init.id)
		kb_require(k, kb_same_type(kb_type_of(k, init), type),
		           "the initial value does not match the type of the variable");
	struct kb_inst inst = {
	        .op = KBO_VAR, .type = type, .result = v.id, .name = arena_strdup(k->module->arena, name)};
	kb_emit(k, inst, &init, init.id ? 1 : 0, false);
	return v;
}

static struct kb_type var_type(struct kb *k, struct kb_var v)
{
	if (kb_require(k, v.id > 0 && v.id < k->vars.n, "no such variable"))
		return k->vars.items[v.id];
	return KB_F32_T;
}

struct kb_val kb_get(struct kb *k, struct kb_var v)
{
	struct kb_inst inst = {.op = KBO_GET, .type = var_type(k, v), .imm = v.id};
	return kb_emit(k, inst, NULL, 0, true);
}

void kb_set(struct kb *k, struct kb_var v, struct kb_val value)
{
	struct kb_inst inst = {.op = KBO_SET, .type = var_type(k, v), .imm = v.id};
	kb_require(k, kb_same_type(kb_type_of(k, value), inst.type),
	           "the value does not match the type of the variable");
	kb_emit(k, inst, &value, 1, false);
}

static struct kb_val emit_array(struct kb *k, enum kb_opcode op, const char *name, enum kb_scalar type,
                                int64_t count)
{
	kb_require(k, k->open.n == 0, "an array inside of a loop or condition");
	kb_require(k, count > 0 && count <= 65536 && kb_scalar_bytes(type) > 0,
	           "size or element type of an array");
	struct kb_inst inst = {.op = op,
	                       .type = KB_PTR_T,
	                       .imm = count,
	                       .element = type,
	                       .align = 64,
	                       .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_local(struct kb *k, const char *name, enum kb_scalar type, int64_t count)
{
	return emit_array(k, KBO_LOCAL, name, type, count);
}

struct kb_val kb_shared(struct kb *k, const char *name, enum kb_scalar type, int64_t count)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "an operation of work-groups outside of a kernel");
	while (k->reused < k->reused_end) {
		struct kb_inst *array = &k->insts.items[k->reused++];
		if (array->op != KBO_SHARED || array->element != type)
			continue;
		array->imm = count > array->imm ? count : array->imm;
		return (struct kb_val){array->result};
	}
	return emit_array(k, KBO_SHARED, name, type, count);
}

void kb_reuse_shared(struct kb *k)
{
	kb_barrier(k);
	k->reused = 0;
	k->reused_end = k->insts.n;
}

/* ---- control flow ---- */

static void open_scope(struct kb *k, enum kb_opcode op)
{
	ARENA_ADD(k->module->arena, &k->open, op);
}

/* Closes the innermost scope. False after an error if it is neither op nor or_op. */
static bool close_scope(struct kb *k, enum kb_opcode op, enum kb_opcode or_op)
{
	size_t n = k->open.n;
	bool fits = n > 0 && (k->open.items[n - 1] == op || k->open.items[n - 1] == or_op);
	if (kb_require(k, fits, "the end of a loop or condition that is not open"))
		k->open.n--;
	return fits;
}

struct kb_val kb_loop(struct kb *k, const char *name, struct kb_val lo, struct kb_val hi, int64_t step,
                      unsigned flags)
{
	struct kb_val args[] = {lo, hi};
	for (int i = 0; i < 2; i++)
		kb_require(k, kb_same_type(kb_type_of(k, args[i]), KB_INDEX_T),
		           "a loop bound is not of type index");
	kb_require(k, step > 0, "the loop step is not positive");
	open_scope(k, KBO_LOOP);
	struct kb_inst inst = {.op = KBO_LOOP,
	                       .type = KB_INDEX_T,
	                       .imm = step,
	                       .flags = flags,
	                       .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, args, 2, true);
}

static void emit_bracket(struct kb *k, enum kb_opcode op)
{
	struct kb_inst inst = {.op = op};
	kb_emit(k, inst, NULL, 0, false);
}

void kb_end_loop(struct kb *k)
{
	if (close_scope(k, KBO_LOOP, KBO_LOOP))
		emit_bracket(k, KBO_END_LOOP);
}

void kb_forever(struct kb *k)
{
	open_scope(k, KBO_FOREVER);
	emit_bracket(k, KBO_FOREVER);
}

/* IF or BREAK_IF */
static void emit_conditional(struct kb *k, enum kb_opcode op, struct kb_val cond)
{
	kb_require(k, kb_same_type(kb_type_of(k, cond), KB_BOOL_T), "the condition is not a scalar bool");
	struct kb_inst inst = {.op = op};
	kb_emit(k, inst, &cond, 1, false);
}

void kb_break_if(struct kb *k, struct kb_val cond)
{
	bool inside = k->open.n > 0 && k->open.items[k->open.n - 1] == KBO_FOREVER;
	if (kb_require(k, inside, "break_if outside of forever"))
		emit_conditional(k, KBO_BREAK_IF, cond);
}

void kb_end_forever(struct kb *k)
{
	if (close_scope(k, KBO_FOREVER, KBO_FOREVER))
		emit_bracket(k, KBO_END_FOREVER);
}

void kb_if(struct kb *k, struct kb_val cond)
{
	open_scope(k, KBO_IF);
	emit_conditional(k, KBO_IF, cond);
}

void kb_else(struct kb *k)
{
	if (!close_scope(k, KBO_IF, KBO_IF))
		return;
	open_scope(k, KBO_ELSE);
	emit_bracket(k, KBO_ELSE);
}

void kb_end_if(struct kb *k)
{
	if (close_scope(k, KBO_IF, KBO_ELSE))
		emit_bracket(k, KBO_END_IF);
}

size_t kb_module_inst_count(const struct kb_module *m)
{
	return m->n_insts;
}
