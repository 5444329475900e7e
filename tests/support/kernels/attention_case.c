/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds, emits and runs attention groups, see attention_case.h. The kernel is
 * called with one array of words: tensors, scratch, then B, S, T.
 */
#include "tests/support/kernels/attention_case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernels/attention.h"
#include "backends/kernels/generator.h"
#include "tests/kb_interp/interp.h"
#include "backends/object/llvm.h"
#include "ir/core/build.h"
#include "ir/interp/interp.h"
#include "ir/target/tile.h"
#include "ir/core/view.h"
#include "tests/support/kernels/attention_store.h"
#include "tests/support/effort.h"
#include "tests/support/bounds/bound.h"
#include "tests/support/random/rng.h"

enum {
	WORD_Q,
	WORD_K,
	WORD_V,
	WORD_BIAS,
	WORD_LEN,
	WORD_PAST,
	WORD_SINKS,
	WORD_K_SCALE,
	WORD_V_SCALE,
	WORD_OUT,
	WORD_SCRATCH,
	WORD_SUMS,
	WORD_DIMS,
	N_WORDS = 15
};

typedef void kernel_function(void *const *words, int64_t worker, int64_t n_workers);

/* ---- the module ---- */

struct build {
	const struct attention_config *c;
	struct ir_module *m;
	struct ir_builder *b;
	const struct ir_dim *batch, *rows, *keys;
};

static const struct ir_dim *constant(const struct build *x, int64_t n)
{
	return ir_dim_const(x->m->dims, n);
}

static struct ir_value param(const struct build *x, const char *name, enum ir_dtype dtype, int rank,
                             const struct ir_dim *const *dims)
{
	struct ir_param p = {.name = name, .lengths = -1};
	return irb_param(x->b, &p, ir_type_tensor(x->m->types, dtype, rank, dims));
}

static enum ir_dtype float_type(const struct build *x)
{
	return x->c->is_bf16 ? DT_BF16 : DT_F32;
}

static struct ir_value key_param(const struct build *x, const char *name, int64_t size)
{
	bool transposed = x->c->transposed_kv;
	const struct ir_dim *e = constant(x, size);
	const struct ir_dim *dims[] = {x->batch, constant(x, x->c->key_heads), transposed ? e : x->keys,
	                               transposed ? x->keys : e};
	return param(x, name, attention_key_type(x->c), 4, dims);
}

static struct ir_value bias_param(const struct build *x)
{
	const struct ir_dim *heads = constant(x, x->c->heads), *one = constant(x, 1);
	const struct ir_dim *full[] = {x->batch, heads, x->rows, x->keys};
	const struct ir_dim *by_key[] = {x->batch, one, one, x->keys};
	const struct ir_dim *by_row[] = {one, heads, x->rows, one};
	switch (x->c->bias) {
	case BIAS_NONE: return param(x, "bias", float_type(x), 1, &one);
	case BIAS_FULL: return param(x, "bias", float_type(x), 4, full);
	case BIAS_KEYS: return param(x, "bias", float_type(x), 4, by_key);
	case BIAS_ROWS: return param(x, "bias", float_type(x), 4, by_row);
	}
	return IR_NO_VALUE;
}

#define N_OPERANDS 9

/* The operands as parameters, q and others then seen through views. */
static void build_operands(const struct build *x, struct ir_value v[N_OPERANDS])
{
	static const int64_t swap[] = {0, 2, 1, 3}, turn[] = {0, 1, 3, 2};
	const struct ir_dim *heads = constant(x, x->c->heads), *size = constant(x, x->c->size);
	const struct ir_dim *flat[] = {x->batch, x->rows, constant(x, x->c->heads * x->c->size)};
	const struct ir_dim *split[] = {x->batch, x->rows, heads, size};
	const struct ir_dim *full[] = {x->batch, heads, x->rows, x->keys};
	const struct ir_dim *scales[] = {x->batch, constant(x, x->c->key_heads), x->keys, constant(x, 1)};
	v[0] = param(x, "q", float_type(x), 3, flat);
	v[1] = key_param(x, "k", x->c->size);
	v[2] = key_param(x, "v", x->c->value_size);
	v[3] = bias_param(x);
	v[4] = param(x, "len", DT_I32, 1, &x->batch);
	v[5] = param(x, "past", DT_I32, 1, &x->batch);
	v[6] = param(x, "sinks", float_type(x), 1, &heads);
	v[7] = param(x, "k_scale", DT_F32, 4, scales);
	v[8] = param(x, "v_scale", DT_F32, 4, scales);
	v[0] = irb_transpose_by(x->b, irb_reshape_to(x->b, v[0], 4, split), 4, swap);
	if (x->c->transposed_kv) {
		v[1] = irb_transpose_by(x->b, v[1], 4, turn);
		v[2] = irb_transpose_by(x->b, v[2], 4, turn);
	}
	v[3] = x->c->bias == BIAS_NONE ? IR_NO_VALUE : irb_broadcast_to(x->b, v[3], 4, full);
	v[4] = x->c->has_len ? v[4] : IR_NO_VALUE;
	v[5] = x->c->has_past ? v[5] : IR_NO_VALUE;
	v[6] = x->c->has_sinks ? v[6] : IR_NO_VALUE;
	v[7] = x->c->kv == DT_I8 ? v[7] : IR_NO_VALUE;
	v[8] = x->c->kv == DT_I8 ? v[8] : IR_NO_VALUE;
}

static struct attrs_group schedule_of(const struct attention_config *c)
{
	const struct target *t = target_find(c->target);
	struct target_attention_scratch s;
	int64_t br, bc;
	target_attention_blocks(t, c->size, c->value_size, &br, &bc);
	const struct target_attention_sizes sizes = {c->br ? c->br : br, c->bc ? c->bc : bc, c->split,
	                                             c->kv == DT_I8, c->kv == DT_I8};
	target_attention_scratch(t, c->size, c->value_size, &sizes, &s);
	return (struct attrs_group){
	        .kind = GROUP_attention, .br = c->br, .bc = c->bc, .split = c->split, .scratch = 4 * s.end};
}

static struct ir_value build_group(const struct build *x, const struct ir_value v[N_OPERANDS])
{
	static const int64_t swap[] = {0, 2, 1, 3};
	struct attrs_attention attrs = {.scale = x->c->scale,
	                                .softcap = x->c->softcap,
	                                .mask = x->c->is_causal ? MASK_causal : MASK_none,
	                                .window = x->c->window,
	                                .factors = x->c->rounds ? FACTORS_bf16 : FACTORS_f32};
	struct attrs_group schedule = schedule_of(x->c);
	const struct ir_dim *flat[] = {x->batch, x->rows, constant(x, x->c->heads * x->c->value_size)};
	struct ir_value result;
	irb_group_begin(x->b);
	struct ir_value y = irb_attention(x->b, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], &attrs);
	y = irb_reshape_to(x->b, irb_transpose_by(x->b, y, 4, swap), 3, flat);
	irb_group_end(x->b, &schedule, &y, 1, &result);
	return result;
}

static void build_module(struct attention_case *c)
{
	c->m = ir_module_create("m");
	struct ir_dims *d = c->m->dims;
	ck_assert(ir_dims_declare(d, "B", 0, 64) && ir_dims_declare(d, "S", 0, 4096) &&
	          ir_dims_declare(d, "T", 0, 4096));
	struct build x = {.c = &c->config,
	                  .m = c->m,
	                  .batch = ir_dim_sym(d, "B"),
	                  .rows = ir_dim_sym(d, "S"),
	                  .keys = ir_dim_sym(d, "T")};
	x.b = irb_begin(c->m, &c->cx, "f", (struct ir_loc){0});
	struct ir_value v[N_OPERANDS];
	build_operands(&x, v);
	struct ir_value y = build_group(&x, v);
	const struct ir_result result = {.name = "y", .lengths = -1};
	ck_assert_msg(irb_finish(x.b, &y, &result, 1, NULL) == TFMC_OK, "%s", c->log.data);
	c->f = ir_find_func(c->m, "f");
	c->scratch_bytes = schedule_of(&c->config).scratch;
}

/* ---- the kernel ---- */

struct binding {
	const struct attention_case *c;
	struct kb_val words, dims[3];
};

static struct kb_val dim_value(const struct binding *b, struct kb *k, const struct ir_dim *d)
{
	struct kb_val sum = kb_index(k, 0);
	for (size_t i = 0; i < d->n_terms; i++) {
		struct kb_val product = kb_index(k, d->terms[i].coeff);
		for (size_t a = 0; a < d->terms[i].n_atoms; a++) {
			ck_assert_int_ge(d->terms[i].atoms[a]->sym, 0);
			product = kb_mul(k, product, b->dims[d->terms[i].atoms[a]->sym]);
		}
		sum = kb_add(k, sum, product);
	}
	return sum;
}

static struct kb_size bind_dim(void *user, struct kb *k, const struct ir_dim *d)
{
	struct kb_size s = {.v = dim_value(user, k, d)};
	s.is_const = ir_dim_is_const(d, &s.c);
	return s;
}

static struct kb_val word(const struct binding *b, struct kb *k, struct kb_type type, int at)
{
	return kb_load(k, type, b->words, kb_index(k, at), 0, 0);
}

static int word_of(const struct attention_case *c, struct ir_value base)
{
	for (size_t i = 0; i < c->f->n_params; i++)
		if (ir_same_value(c->f->params[i].value, base))
			return (int)i;
	return WORD_OUT;
}

/* Keys [B,K,ceil(T/16),E,16], as an object says it of a state. */
static void panel_strides(const struct binding *b, struct kb *k, struct kb_tensor *out)
{
	const struct attention_config *c = &b->c->config;
	struct kb_val up = c->ring > 0 ? kb_index(k, c->ring) : kb_add_const(k, b->dims[2], 15);
	struct kb_val rows = kb_mul_const(k, kb_div_const(k, up, 16), 16 * c->size);
	out->encoding = ENC_PANEL16;
	out->stride[0] = (struct kb_size){.v = kb_mul_const(k, rows, c->key_heads)};
	out->stride[1] = (struct kb_size){.v = rows};
	out->stride[2] = (struct kb_size){.is_const = true, .v = kb_index(k, 0)};
	out->stride[3] = (struct kb_size){.is_const = true, .c = 16, .v = kb_index(k, 16)};
}

/* As many rows for a head as the ring holds; sizes stay those of all positions. */
static void ring_strides(const struct attention_config *c, struct kb *k, struct kb_tensor *out, int64_t size)
{
	int64_t head = c->ring * size, all = head * c->key_heads;
	out->ring = c->ring;
	out->stride[0] = (struct kb_size){true, all, kb_index(k, all)};
	out->stride[1] = (struct kb_size){true, head, kb_index(k, head)};
}

static bool bind_tensor(void *user, struct kb *k, struct ir_value v, struct kb_tensor *out)
{
	const struct binding *b = user;
	const struct attention_config *g = &b->c->config;
	struct ir_view view;
	if (!ir_view_resolve(b->c->m, b->c->f, v, &view) || !ir_dim_equals(view.offset, 0))
		return false;
	*out = (struct kb_tensor){.dtype = ir_type_of(b->c->f, v)->dtype, .rank = view.rank};
	out->ptr = word(b, k, KB_PTR_T, word_of(b->c, view.base));
	for (int i = 0; i < view.rank; i++) {
		out->size[i] = bind_dim(user, k, view.size[i]);
		out->stride[i] = bind_dim(user, k, view.stride[i]);
	}
	if (g->ring > 0 && view.base.id == b->c->f->params[WORD_K].value.id)
		ring_strides(g, k, out, g->size);
	if (g->ring > 0 && view.base.id == b->c->f->params[WORD_V].value.id)
		ring_strides(g, k, out, g->value_size);
	for (int i = WORD_K_SCALE; g->ring > 0 && i <= WORD_V_SCALE; i++)
		if (view.base.id == b->c->f->params[i].value.id)
			ring_strides(g, k, out, 1);
	if (g->panel_keys && view.base.id == b->c->f->params[WORD_K].value.id)
		panel_strides(b, k, out);
	return true;
}

static const struct ir_op *group_of(const struct attention_case *c)
{
	for (size_t i = 0; i < c->f->body->n_ops; i++)
		if (c->f->body->ops[i]->code == OP_group)
			return c->f->body->ops[i];
	return NULL;
}

static void emit_kernel(struct attention_case *c, const struct target *target, bool is_combine)
{
	struct kb *k = kb_begin(c->kernels, is_combine ? "join" : "attend",
	                        c->is_shared ? KB_KERNEL : KB_EXPORTED, KB_VOID);
	struct binding b = {.c = c, .words = kb_param(k, "words", KB_PTR_T, 0)};
	struct kb_val worker = c->is_shared ? kb_group_id(k) : kb_param(k, "worker", KB_INDEX_T, 0);
	struct kb_val n_workers = c->is_shared ? kb_group_count(k) : kb_param(k, "n_workers", KB_INDEX_T, 0);
	if (c->is_shared)
		kb_group_size(k, GPU_ITEMS);
	for (int i = 0; i < 3; i++)
		b.dims[i] = word(&b, k, KB_INDEX_T, WORD_DIMS + i);
	struct kernel_binding bind = {.tensor = bind_tensor, .dim = bind_dim, .user = &b};
	struct kb_val offset = kb_mul_const(k, worker, c->scratch_bytes);
	struct kernel_job job = {.k = k,
	                         .module = c->m,
	                         .func = c->f,
	                         .group = group_of(c),
	                         .target = target,
	                         .bind = &bind,
	                         .worker = worker,
	                         .n_workers = n_workers,
	                         .scratch = kb_ptr_add(k, word(&b, k, KB_PTR_T, WORD_SCRATCH), offset, 0),
	                         .scratch_stride = c->scratch_bytes,
	                         .is_combine = is_combine,
	                         .partials = word(&b, k, KB_PTR_T, WORD_SUMS),
	                         .items = c->is_shared ? GPU_ITEMS : 1,
	                         .lengths = c->config.is_padded ? c->f->params[WORD_LEN].value : IR_NO_VALUE,
	                         .cx = &c->cx,
	                         .arena = &c->arena};
	ck_assert_msg(kernel_attention(&job) == TFMC_OK, "%s", c->log.data);
	kb_return(k, (struct kb_val){0});
	kb_end(k);
}

static void emit_kernels(struct attention_case *c, const struct target *target)
{
	c->caps = kb_caps_of(target);
	c->kernels = kb_module_create(&c->arena, &c->caps);
	emit_kernel(c, target, false);
	if (c->config.split > 0)
		emit_kernel(c, target, true);
	ck_assert_msg(kb_verify(c->kernels, &c->cx) == TFMC_OK, "%s", c->log.data);
}

static void compile_kernel(struct attention_case *c, const struct target *target)
{
	struct llvm_options options = {.target = target, .opt_level = effort_of_code()};
	struct buf object;
	buf_init(&object);
	struct llvm_output out = {.object = &object};
	ck_assert_msg(llvm_compile(&c->cx, c->kernels, "m", &options, &out) == TFMC_OK, "%s", c->log.data);
	ck_assert_msg(backend_jit_load(&c->cx, &object, &c->jit) == TFMC_OK, "%s", c->log.data);
	buf_destroy(&object);
}

void attention_case_init(struct attention_case *c, const struct attention_config *config)
{
	*c = (struct attention_case){.config = *config};
	buf_init(&c->log);
	diag_init(&c->cx, diag_render_text, &c->log);
	arena_init(&c->arena);
	build_module(c);
	const struct target *target = target_find(config->target);
	ck_assert_ptr_nonnull(target);
	struct gpu_attention n;
	c->is_shared = gpu_attention_choose(target, config->size, config->value_size, GPU_ATTENTION_ROWS, &n);
	emit_kernels(c, target);
	if (target_runs_on_host(target))
		compile_kernel(c, target);
}

void attention_case_destroy(struct attention_case *c)
{
	backend_jit_destroy(c->jit);
	ir_module_destroy(c->m);
	arena_destroy(&c->arena);
	diag_destroy(&c->cx);
	buf_destroy(&c->log);
}

/* ---- calls ---- */

/* Numbers that the type holds exactly. */
static void round_to(enum ir_dtype t, float *x, int64_t n)
{
	for (int64_t i = 0; t != DT_F32 && i < n; i++)
		x[i] = (float)ir_round(t, (double)x[i]);
}

static float *numbers(struct attention_case *c, struct rng *rng, int64_t n)
{
	float *x = ARENA_ARRAY(&c->arena, float, n + 1);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)rng_real(rng, -2, 2);
	round_to(c->config.is_bf16 ? DT_BF16 : DT_F32, x, n);
	return x;
}

/* Between 0 and 2 / 127; some are 0. */
static void make_scales(struct attention_case *c, struct rng *rng, struct attention_call *call)
{
	call->k_scale = numbers(c, rng, call->n_scales);
	call->v_scale = numbers(c, rng, call->n_scales);
	for (int64_t i = 0; i < call->n_scales; i++) {
		call->k_scale[i] = i % 11 == 3 ? 0 : fabsf(call->k_scale[i]) / 127;
		call->v_scale[i] = i % 13 == 5 ? 0 : fabsf(call->v_scale[i]) / 127;
	}
}

void attention_call_init(struct attention_case *c, struct attention_call *call, int64_t b, int64_t s,
                         int64_t t)
{
	const struct attention_config *g = &c->config;
	struct rng rng = rng_seed((uint64_t)(b * 1000003 + s * 1009 + t));
	*call = (struct attention_call){.b = b, .s = s, .t = t};
	call->n_q = b * s * g->heads * g->size;
	call->n_k = b * g->key_heads * t * g->size;
	call->n_v = b * g->key_heads * t * g->value_size;
	call->n_out = b * s * g->heads * g->value_size;
	const int64_t bias[] = {1, b * g->heads * s * t, b * t, g->heads * s};
	call->n_bias = bias[g->bias];
	call->q = numbers(c, &rng, call->n_q);
	call->k = numbers(c, &rng, call->n_k);
	call->v = numbers(c, &rng, call->n_v);
	const float factor = g->kv == DT_I8 ? 63.5F : 1;
	for (int64_t i = 0; i < call->n_k; i++)
		call->k[i] *= factor;
	for (int64_t i = 0; i < call->n_v; i++)
		call->v[i] *= factor;
	round_to(g->kv, call->k, call->n_k);
	round_to(g->kv, call->v, call->n_v);
	call->n_scales = g->kv == DT_I8 ? b * g->key_heads * t : 0;
	make_scales(c, &rng, call);
	call->bias = numbers(c, &rng, call->n_bias);
	call->sinks = numbers(c, &rng, g->heads);
	for (int64_t h = 0; h < g->heads; h++)
		call->sinks[h] += (float)g->sink;
	call->len = ARENA_ARRAY(&c->arena, int32_t, b + 1);
	call->past = ARENA_ARRAY(&c->arena, int32_t, b + 1);
	call->out = ARENA_ARRAY(&c->arena, float, call->n_out + 1);
}

static void load_result(const struct attention_case *c, struct attention_call *call, void *const *words)
{
	const uint16_t *from = words[WORD_OUT];
	for (int64_t i = 0; c->config.is_bf16 && i < call->n_out; i++) {
		uint32_t bits = (uint32_t)from[i] << 16;
		memcpy(&call->out[i], &bits, 4);
	}
}

static int64_t sums_bytes(const struct attention_case *c, const struct attention_call *call)
{
	const struct ir_dim *bytes =
	        kernel_combine_bytes(c->m, c->f, group_of(c), target_find(c->config.target));
	int64_t n = 0;
	ck_assert(!bytes || ir_dim_eval(bytes, (int64_t[]){call->b, call->s, call->t}, &n));
	return n;
}

/* The words of a call; scratch and result filled with NaN, as memory may be. */
static void **words_of(struct attention_case *c, struct attention_call *call, int64_t n_workers)
{
	size_t bytes = (size_t)(c->scratch_bytes * n_workers);
	void **words = ARENA_ARRAY(&c->arena, void *, N_WORDS);
	char *scratch = arena_alloc(&c->arena, bytes + 64);
	ck_assert_ptr_nonnull(scratch);
	scratch += -(uintptr_t)scratch & 63;
	memset(scratch, 0xff, bytes);
	memset(call->out, 0xff, (size_t)call->n_out * 4);
	words[WORD_Q] = attention_stored(c, call->q, call->n_q);
	words[WORD_K] = attention_stored_keys(c, call);
	words[WORD_V] = attention_stored_values(c, call);
	words[WORD_BIAS] = attention_stored(c, call->bias, call->n_bias);
	words[WORD_LEN] = call->len;
	words[WORD_PAST] = call->past;
	words[WORD_SINKS] = attention_stored(c, call->sinks, c->config.heads);
	words[WORD_K_SCALE] = attention_stored_scales(c, call, call->k_scale);
	words[WORD_V_SCALE] = attention_stored_scales(c, call, call->v_scale);
	words[WORD_OUT] = attention_stored(c, call->out, call->n_out);
	words[WORD_SCRATCH] = scratch;
	words[WORD_SUMS] = arena_alloc(&c->arena, (size_t)sums_bytes(c, call) + 1);
	memset(words[WORD_SUMS], 0xff, (size_t)sums_bytes(c, call));
	const int64_t dims[] = {call->b, call->s, call->t};
	memcpy(words + WORD_DIMS, dims, sizeof dims);
	return words;
}

static const char *const steps[] = {"attend", "join"};

/* 2: the workers have divided blocks. */
static int steps_of(const struct attention_case *c, const struct attention_call *call, int64_t n_workers)
{
	int64_t heads = call->b * c->config.key_heads;
	return c->config.split > 0 && heads % n_workers != 0 && heads < 2 * n_workers ? 2 : 1;
}

void attention_run(struct attention_case *c, struct attention_call *call, int64_t n_workers)
{
	if (!c->jit) {
		attention_run_checked(c, call, n_workers);
		return;
	}
	void **words = words_of(c, call, n_workers);
	for (int step = 0; step < steps_of(c, call, n_workers); step++) {
		void *at = backend_jit_symbol(c->jit, steps[step]);
		kernel_function *kernel;
		memcpy(&kernel, &at, sizeof at);
		for (int64_t w = 0; w < n_workers; w++)
			kernel(words, w, n_workers);
	}
	load_result(c, call, words);
}

/* NULL, or the complaint of the kernel interpreter. */
static const char *interpret(struct attention_case *c, struct attention_call *call, int64_t n_workers)
{
	void **words = words_of(c, call, n_workers);
	size_t bytes = c->config.is_bf16 ? 2 : 4,
	       kv_bytes = (size_t)ir_dtype_bytes(attention_key_type(&c->config));
	const struct kb_range ranges[] = {
	        {words, N_WORDS * sizeof(void *), false},
	        {words[WORD_Q], (size_t)call->n_q * bytes, false},
	        {words[WORD_K], (size_t)attention_key_floats(c, call) * kv_bytes, false},
	        {words[WORD_V], (size_t)attention_value_floats(c, call) * kv_bytes, false},
	        {words[WORD_BIAS], (size_t)call->n_bias * bytes, false},
	        {call->len, (size_t)call->b * 4, false},
	        {call->past, (size_t)call->b * 4, false},
	        {words[WORD_SINKS], (size_t)c->config.heads * bytes, false},
	        {words[WORD_K_SCALE], (size_t)attention_scale_floats(c, call) * 4, false},
	        {words[WORD_V_SCALE], (size_t)attention_scale_floats(c, call) * 4, false},
	        {words[WORD_OUT], (size_t)call->n_out * bytes, true},
	        {words[WORD_SCRATCH], (size_t)(c->scratch_bytes * n_workers), true},
	        {words[WORD_SUMS], (size_t)sums_bytes(c, call), true},
	};
	struct kb_interp in = {.module = c->kernels, .ranges = ranges, .n_ranges = TFMC_COUNT(ranges)};
	bool ok = true;
	for (int step = 0; ok && c->is_shared && step < (c->config.split > 0 ? 2 : 1); step++)
		ok = kb_interp_launch(&in, steps[step], &(const union kb_cell){.p = words}, 1,
		                      step == 0 ? n_workers : 2 * n_workers - 1);
	for (int64_t i = 0; ok && !c->is_shared && i < n_workers * steps_of(c, call, n_workers); i++) {
		const union kb_cell args[] = {{.p = words}, {.i = i % n_workers}, {.i = n_workers}};
		ok = kb_interp_call(&in, steps[i / n_workers], args, 3, NULL);
	}
	load_result(c, call, words);
	return ok ? NULL : arena_strdup(&c->arena, in.error);
}

void attention_run_checked(struct attention_case *c, struct attention_call *call, int64_t n_workers)
{
	const char *why = interpret(c, call, n_workers);
	ck_assert_msg(why == NULL, "%s", why);
}

/* ---- the reference ---- */

static void fill(struct interp_tensor *t, const float *from, int64_t n)
{
	ck_assert_int_eq(interp_count(t), n);
	while (n-- > 0)
		t->data[n] = (double)from[n];
}

static void fill_ints(struct interp_tensor *t, const int32_t *from, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		t->data[i] = from[i];
}

static const char *difference(struct attention_case *c, const struct attention_call *call)
{
	const int64_t dims[] = {call->b, call->s, call->t};
	struct interp_tensor in[N_OPERANDS];
	struct arena a;
	arena_init(&a);
	for (size_t i = 0; i < N_OPERANDS; i++)
		ck_assert(interp_tensor_make(&a, ir_type_of(c->f, c->f->params[i].value), dims, &in[i]));
	fill(&in[0], call->q, call->n_q);
	fill(&in[1], call->k, call->n_k);
	fill(&in[2], call->v, call->n_v);
	fill(&in[3], call->bias, call->n_bias);
	fill_ints(&in[4], call->len, call->b);
	fill_ints(&in[5], call->past, call->b);
	fill(&in[6], call->sinks, c->config.heads);
	for (int i = 0; c->config.kv == DT_I8 && i < 2; i++)
		fill(&in[7 + i], i ? call->v_scale : call->k_scale, call->n_scales);
	const struct interp_args args = {.dims = dims, .inputs = in};
	const char *why =
	        bound_complaint(&c->cx, c->m, c->f, &args, attention_stored(c, call->out, call->n_out), &a);
	if (why != NULL)
		why = arena_printf(&c->arena, "B %d S %d T %d: %s%s", (int)call->b, (int)call->s,
		                   (int)call->t, why, c->log.data);
	arena_destroy(&a);
	return why;
}

void attention_expect(struct attention_case *c, const struct attention_call *call)
{
	const char *why = difference(c, call);
	ck_assert_msg(why == NULL, "%s", why);
}

const char *attention_complaint(struct attention_case *c, struct attention_call *call, int64_t n_workers)
{
	const char *why = interpret(c, call, n_workers);
	return why != NULL ? why : difference(c, call);
}
