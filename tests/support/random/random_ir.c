/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs. Values made so far form a pool; every step picks an op, a
 * value of the pool as its first operand and finds or makes the others. `growth`
 * estimates how far a value may have left [-2, 2]: large ones pass through tanh
 * before arithmetic, so that results stay finite and differences small.
 */
#include <assert.h>
#include <string.h>

#include "tests/support/random/random_module.h"

#define GROWTH_LIMIT 6
#define GROWTH_ANY   100 /* may be infinite */
#define RESULTS_MAX  4
#define TRIES        60
#define DEFAULT_OPS  12

/* ---- the pool ---- */

static struct ir_value put(struct program *p, struct ir_value v, int growth)
{
	if (v.id && p->n < POOL_MAX)
		p->pool[p->n++] = (struct entry){v, irb_type(p->g.b, v), growth, 0};
	return v;
}

static bool is_float(const struct ir_type *t)
{
	return ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
}

static struct entry *find_entry(struct program *p, struct ir_value v)
{
	for (size_t i = 0; i < p->n; i++)
		if (ir_same_value(p->pool[i].value, v))
			return &p->pool[i];
	return NULL;
}

static int growth_of(struct program *p, struct ir_value v)
{
	struct entry *e = find_entry(p, v);
	return e ? e->growth : 1;
}

static struct ir_value use(struct program *p, struct ir_value v)
{
	struct entry *e = find_entry(p, v);
	if (e)
		e->uses++;
	return v;
}

/* A value of the pool with this type, now and then none. */
static struct ir_value find_value(struct program *p, const struct ir_type *type)
{
	size_t begin = (size_t)rng_below(&p->g.rng, (int64_t)p->n + 1);
	for (size_t i = 0; i < p->n && rng_chance(&p->g.rng, 95); i++) {
		struct entry *e = &p->pool[(begin + i) % p->n];
		if (e->type == type)
			return e->value;
	}
	return IR_NO_VALUE;
}

/* ---- values out of nothing ---- */

static struct ir_value fill(struct program *p, const struct ir_type *t, double value)
{
	return irb_full_of(p->g.b, value, t->dtype, t->rank, t->dims);
}

static bool constant_dims(const struct ir_type *t)
{
	for (int i = 0; i < t->rank; i++)
		if (!ir_dim_is_const(t->dims[i], NULL))
			return false;
	return true;
}

const struct ir_weight *random_weight(struct gen *g, const char *name, const struct ir_type *type)
{
	int64_t dims[IR_RANK_MAX], n = 1;
	for (int i = 0; i < type->rank; i++) {
		ir_dim_is_const(type->dims[i], &dims[i]);
		n *= dims[i];
	}
	struct arena *a = &g->m->arena;
	int64_t rows = n / 2 + 1, start = rng_below(&g->rng, 1000);
	const struct ir_wexpr *e = wexpr_sinusoid(a, rows, 2, SINUSOID_HALVES, SINUSOID_PAPER, start, 10000);
	e = wexpr_reshape(a, 1, (int64_t[]){2 * rows}, e);
	e = wexpr_reshape(a, type->rank, dims, wexpr_slice(a, 0, 0, n, e));
	struct ir_weight w = {.name = name, .type = type, .init = e};
	return ir_add_weight(g->m, &w);
}

/* A weight of this type; inside a repeat often one row for each iteration. */
static struct ir_value make_weight(struct program *p, const struct ir_type *type)
{
	struct ir_type stacked = {.rank = type->rank + 1};
	const char *name = arena_printf(&p->g.m->arena, "w%zu", p->n_weights++);
	bool indexed = p->index.id && type->rank < IR_RANK_MAX && rng_chance(&p->g.rng, 70);
	if (!indexed)
		return irb_weight_ref(p->g.b, random_weight(&p->g, name, type), NULL, 0);
	stacked.dims[0] = gen_const(&p->g, p->count);
	memcpy(stacked.dims + 1, type->dims, (size_t)type->rank * sizeof(type->dims[0]));
	type = ir_type_tensor(p->g.m->types, type->dtype, stacked.rank, stacked.dims);
	return irb_weight_ref(p->g.b, random_weight(&p->g, name, type), &p->index, 1);
}

static struct ir_value cast_to(struct program *p, struct ir_value v, enum ir_dtype dtype)
{
	return irb_cast(p->g.b, v, &(struct attrs_cast){.dtype = dtype});
}

/* Small integers that differ along one axis, then sines, truths or integers of them. */
static struct ir_value make_pattern(struct program *p, const struct ir_type *type)
{
	struct ir_builder *b = p->g.b;
	struct attrs_iota a = {.dims = {ARENA_ARRAY(&p->g.m->arena, const struct ir_dim *, type->rank + 1),
	                                (size_t)type->rank}};
	if (type->rank == 0)
		return fill(p, type, (double)rng_below(&p->g.rng, 2));
	memcpy(a.dims.items, type->dims, (size_t)type->rank * sizeof(type->dims[0]));
	a.axis = rng_below(&p->g.rng, type->rank);
	a.start = rng_between(&p->g.rng, -3, 8);
	struct ir_value v = irb_iota(b, &a);
	if (type->dtype == DT_BOOL)
		return irb_cmp(b, v, fill(p, irb_type(b, v), 4), &(struct attrs_cmp){.kind = CMP_gt});
	if (type->dtype != DT_I32)
		v = cast_to(p, v, type->dtype);
	return is_float(type) ? irb_sin(b, v, NULL) : v;
}

static struct ir_value make_value(struct program *p, const struct ir_type *type)
{
	struct ir_value v = find_value(p, type);
	if (v.id)
		return v;
	if (is_float(type) && constant_dims(type) && rng_chance(&p->g.rng, 70))
		return put(p, make_weight(p, type), 1);
	return put(p, make_pattern(p, type), 1);
}

/* Counts and ids within their range, whatever they are computed from. */
static struct ir_value keep_in_range(struct program *p, struct ir_value v, struct recipe_range range)
{
	struct ir_builder *b = p->g.b;
	const struct ir_type *t = irb_type(b, v);
	if (!range.max && range.below <= 0)
		return v;
	v = irb_max(b, v, fill(p, t, 0), NULL);
	if (range.below > 0)
		return irb_min(b, v, fill(p, t, (double)range.below - 1), NULL);
	struct ir_value most = irb_dim_value(b, &(struct attrs_dim_value){.dim = range.max});
	return irb_min(b, v, irb_broadcast_to(b, most, t->rank, t->dims), NULL);
}

/* ---- one step ---- */

static struct ir_value squash(struct program *p, struct ir_value v)
{
	return irb_tanh(p->g.b, v, NULL);
}

/* |v| + 0.5, away from zero. */
static struct ir_value positive(struct program *p, struct ir_value v)
{
	v = irb_abs(p->g.b, v, NULL);
	return irb_add(p->g.b, v, fill(p, irb_type(p->g.b, v), 0.5), NULL);
}

static bool wants_positive(enum ir_opcode code, size_t operand)
{
	return ((code == OP_log || code == OP_sqrt || code == OP_rsqrt || code == OP_pow) && operand == 0) ||
	       ((code == OP_div || code == OP_floor_div || code == OP_mod) && operand == 1);
}

static bool wants_small(enum ir_opcode code)
{
	return code == OP_exp || code == OP_sin || code == OP_cos || code == OP_pow || code == OP_relu2 ||
	       code == OP_log_softmax || code == OP_block_log_softmax || code == OP_rope ||
	       ir_op_has(code, TRAIT_CONTRACT);
}

static bool only_moves(enum ir_opcode code)
{
	return ir_op_has(code, TRAIT_VIEW) || ir_op_has(code, TRAIT_MOVE) || code == OP_softmax ||
	       code == OP_masked_softmax || code == OP_tanh || code == OP_sigmoid || code == OP_mask;
}

static bool is_bounded(enum ir_opcode code)
{
	return code == OP_tanh || code == OP_sigmoid || code == OP_erf || code == OP_sin || code == OP_cos ||
	       code == OP_softmax || code == OP_masked_softmax || code == OP_exp || code == OP_log ||
	       code == OP_sqrt || code == OP_rsqrt;
}

/* Brings float operands into a range where the op behaves; returns the growth of the result. */
static int condition(struct program *p, enum ir_opcode code, const struct recipe *r,
                     struct ir_value *operands)
{
	int sum = ir_op_has(code, TRAIT_CONTRACT) || code == OP_rope ? 1 : 0;
	for (size_t i = 0; i < r->n; i++)
		if (operands[i].id && is_float(r->in[i]))
			sum += growth_of(p, operands[i]);
	bool large = !only_moves(code) && sum > GROWTH_LIMIT;
	int growth = large ? 1 : sum;
	for (size_t i = 0; i < r->n; i++) {
		if (!operands[i].id || !is_float(r->in[i]))
			continue;
		if (large || (wants_small(code) && growth_of(p, operands[i]) > 2))
			operands[i] = squash(p, operands[i]);
		if (wants_positive(code, i))
			operands[i] = positive(p, operands[i]);
	}
	return code == OP_mask || code == OP_block_log_softmax ? GROWTH_ANY : is_bounded(code) ? 1 : growth;
}

/* Ops that jump: a last bit may decide their result. */
static bool jumps(enum ir_opcode code, const struct recipe *r)
{
	return code == OP_floor || code == OP_ceil || code == OP_argmax || code == OP_block_argmax ||
	       code == OP_topk || code == OP_quantize_rows ||
	       ((code == OP_cmp || code == OP_floor_div || code == OP_mod) && is_float(r->in[0]));
}

static bool step_op(struct program *p, enum ir_opcode code)
{
	struct recipe r;
	struct ir_value operands[RECIPE_OPERANDS_MAX] = {{0}};
	size_t recent = p->n > 6 && rng_chance(&p->g.rng, 60) ? p->n - 6 : 0;
	bool from_pool = p->n > 0 && !(code == OP_attention) && rng_chance(&p->g.rng, 85);
	size_t at = from_pool ? (size_t)rng_between(&p->g.rng, (int64_t)recent, (int64_t)p->n - 1) : 0;
	if (!recipe_make(&p->g, code, from_pool ? p->pool[at].type : NULL, &r))
		return false;
	if (p->g.opt.smooth && jumps(code, &r))
		return false;
	for (size_t i = 0; i < r.n; i++) {
		if (!r.in[i])
			continue;
		operands[i] = i == 0 && from_pool ? p->pool[at].value : make_value(p, r.in[i]);
		use(p, operands[i]);
		operands[i] = keep_in_range(p, operands[i], r.range[i]);
	}
	int growth = condition(p, code, &r, operands);
	struct ir_value y = irb_op1(p->g.b, code, operands, r.n, r.attrs);
	const struct ir_type *t = irb_type(p->g.b, y);
	/* A float made of integers may be large. */
	put(p, y, code == OP_cast && !is_float(r.in[0]) && is_float(t) ? GROWTH_ANY : growth);
	return true;
}

static void step(struct program *p);

/* The last value of the region with the type of a carry; the carry itself when there is none. */
static struct ir_value pick_yield(struct program *p, size_t first, struct ir_value arg)
{
	const struct ir_type *t = irb_type(p->g.b, arg);
	for (size_t i = p->n; i-- > first;)
		if (p->pool[i].type == t)
			return is_float(t) ? squash(p, p->pool[i].value) : p->pool[i].value;
	return arg;
}

static void step_repeat(struct program *p)
{
	struct ir_value init[2], args[3], yields[2], results[2];
	size_t n = (size_t)rng_between(&p->g.rng, 1, 2);
	for (size_t i = 0; i < n; i++) {
		init[i] = use(p, p->pool[rng_below(&p->g.rng, (int64_t)p->n)].value);
		if (is_float(irb_type(p->g.b, init[i])))
			init[i] = squash(p, init[i]);
	}
	p->count = rng_between(&p->g.rng, 1, 3);
	irb_repeat_begin(p->g.b, p->count, init, n, args);
	size_t outer = p->n;
	p->index = args[REPEAT_INDEX];
	for (size_t i = 0; i < n; i++)
		put(p, args[1 + i], 1);
	int64_t ops = rng_between(&p->g.rng, 2, 5);
	for (int64_t i = 0; i < ops; i++)
		step(p);
	for (size_t i = 0; i < n; i++)
		yields[i] = pick_yield(p, outer + n < p->n ? outer + n : p->n, args[1 + i]);
	irb_repeat_end(p->g.b, yields, n, results);
	p->index = IR_NO_VALUE;
	p->n = outer;
	for (size_t i = 0; i < n; i++)
		put(p, results[i], 1);
}

static void step(struct program *p)
{
	if (!p->g.opt.no_repeat && !p->index.id && p->n > 0 && rng_chance(&p->g.rng, 8)) {
		step_repeat(p);
		return;
	}
	for (int i = 0; i < TRIES && !irb_failed(p->g.b); i++)
		if (step_op(p, (enum ir_opcode)rng_below(&p->g.rng, IR_N_OPS)))
			return;
}

/* ---- the module ---- */

bool random_begin(struct gen *g, struct diag_context *cx, uint64_t seed, const struct random_options *options)
{
	static const char *const names[] = {"B", "S", "T"};
	*g = (struct gen){.m = ir_module_create("random"), .cx = cx, .rng = rng_seed(seed)};
	if (options)
		g->opt = *options;
	if (!g->m)
		return false;
	for (int i = 0; i < 3 && !g->opt.constant_dims; i++) {
		if (!ir_dims_declare(g->m->dims, names[i], 1, i == 0 ? 5 : 17))
			return false;
		g->symbols[i] = ir_dim_sym(g->m->dims, names[i]);
	}
	g->b = irb_begin(g->m, cx, "f", (struct ir_loc){0});
	irb_set_literal(g->b, true);
	return true;
}

struct ir_value random_param(struct gen *g, const struct ir_type *type, struct recipe_range range)
{
	const struct ir_func *f = irb_func(g->b);
	struct ir_param p = {
	        .name = arena_printf(&g->m->arena, "p%zu", f->n_params),
	        .below = range.below,
	        .max = range.max,
	        .lengths = -1,
	};
	return irb_param(g->b, &p, type);
}

struct ir_module *random_end(struct gen *g, const struct ir_value *values, size_t n)
{
	struct ir_result results[RESULTS_MAX];
	assert(n <= RESULTS_MAX);
	for (size_t i = 0; i < n; i++) {
		bool tensor = irb_type(g->b, values[i]) && irb_type(g->b, values[i])->kind == IR_TENSOR;
		results[i] = (struct ir_result){
		        .name = tensor ? arena_printf(&g->m->arena, "y%zu", i) : NULL,
		        .lengths = -1,
		};
	}
	if (irb_finish(g->b, values, results, n, NULL) == TFMC_OK)
		return g->m;
	ir_module_destroy(g->m);
	return NULL;
}

/* The last values that nothing uses; at least the last one made. */
static size_t pick_results(struct program *p, size_t n_params, struct ir_value *out)
{
	size_t n = 0;
	for (size_t i = p->n; i-- > n_params && n < RESULTS_MAX;)
		if (p->pool[i].uses == 0 || (i + 1 == p->n && n == 0))
			out[n++] = p->pool[i].value;
	if (n == 0)
		out[n++] = p->pool[p->n - 1].value;
	return n;
}

struct ir_module *random_module(struct diag_context *cx, uint64_t seed, const struct random_options *options)
{
	struct program p = {.n = 0};
	struct ir_value results[RESULTS_MAX];
	if (!random_begin(&p.g, cx, seed, options))
		return NULL;
	size_t n_params = (size_t)rng_between(&p.g.rng, 2, 4);
	size_t n_ops = p.g.opt.n_ops ? p.g.opt.n_ops : DEFAULT_OPS;
	for (size_t i = 0; i < n_params; i++) {
		enum ir_dtype dtype = i == 0 ? DT_F32 : gen_any(&p.g);
		const struct ir_type *t = gen_shape(&p.g, dtype, i == 0 ? 2 : 0, 4);
		put(&p, random_param(&p.g, t, (struct recipe_range){0, NULL}), is_float(t) ? 1 : GROWTH_ANY);
	}
	for (size_t i = 0; i < n_ops && !irb_failed(p.g.b); i++)
		step(&p);
	size_t n = pick_results(&p, n_params, results);
	return random_end(&p.g, results, n);
}
