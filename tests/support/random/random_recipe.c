/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legal operands and attributes of every op; see random_recipe.h.
 */
#include "tests/support/random/random_recipe.h"

#include <string.h>

const struct ir_dim *gen_const(struct gen *g, int64_t v)
{
	return ir_dim_const(g->m->dims, v);
}

const struct ir_dim *gen_small(struct gen *g)
{
	/* Sizes at and around vector lengths, and 1. */
	static const int64_t edges[] = {1, 1, 4, 8, 15, 16, 17};
	if (rng_chance(&g->rng, 40))
		return gen_const(g, edges[rng_below(&g->rng, (int64_t)TFMC_COUNT(edges))]);
	return gen_const(g, rng_between(&g->rng, 1, 17));
}

const struct ir_dim *gen_dim(struct gen *g)
{
	if (g->symbols[0] && rng_chance(&g->rng, 35))
		return g->symbols[rng_below(&g->rng, 3)];
	return gen_small(g);
}

const struct ir_type *gen_type(struct gen *g, enum ir_dtype dtype, int rank, const struct ir_dim *const *dims)
{
	const struct ir_type *t = ir_type_tensor(g->m->types, dtype, rank, dims);
	if (!t || ir_dim_hi(g->m->dims, ir_type_count(g->m->dims, t)) > RANDOM_ELEMENTS_MAX)
		return NULL;
	return t;
}

const struct ir_type *gen_shape(struct gen *g, enum ir_dtype dtype, int lo, int hi)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	for (;;) {
		int rank = (int)rng_between(&g->rng, lo, hi);
		for (int i = 0; i < rank; i++)
			dims[i] = gen_dim(g);
		const struct ir_type *t = gen_type(g, dtype, rank, dims);
		if (t)
			return t;
	}
}

enum ir_dtype gen_float(struct gen *g)
{
	static const enum ir_dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_F64};
	return g->opt.all_dtypes && rng_chance(&g->rng, 50) ? types[rng_below(&g->rng, 4)] : DT_F32;
}

static enum ir_dtype gen_int(struct gen *g)
{
	static const enum ir_dtype types[] = {DT_I32, DT_I8, DT_U8, DT_I64, DT_I16};
	return g->opt.all_dtypes && rng_chance(&g->rng, 50) ? types[rng_below(&g->rng, 5)] : DT_I32;
}

enum ir_dtype gen_number(struct gen *g)
{
	return rng_chance(&g->rng, 75) ? gen_float(g) : gen_int(g);
}

enum ir_dtype gen_any(struct gen *g)
{
	return rng_chance(&g->rng, 85) ? gen_number(g) : DT_BOOL;
}

/* ---- building a recipe ---- */

static void add(struct recipe *r, const struct ir_type *t)
{
	r->in[r->n++] = t;
}

static void add_ranged(struct recipe *r, const struct ir_type *t, int64_t below, const struct ir_dim *max)
{
	r->range[r->n] = (struct recipe_range){below, max};
	add(r, t);
}

static const struct ir_type *same_shape(struct gen *g, const struct ir_type *x, enum ir_dtype dtype)
{
	return ir_type_tensor(g->m->types, dtype, x->rank, x->dims);
}

/* Type of counts per sequence, [axis 0 of x]. */
static const struct ir_type *per_batch(struct gen *g, const struct ir_type *x)
{
	return ir_type_tensor(g->m->types, DT_I32, 1, x->dims);
}

static const struct ir_type *vector(struct gen *g, enum ir_dtype dtype, const struct ir_dim *d)
{
	return ir_type_tensor(g->m->types, dtype, 1, &d);
}

static bool is_float(const struct ir_type *t)
{
	return ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
}

/* The first operand: x if it has the class and rank, a random one if x is NULL. */
static const struct ir_type *first(struct gen *g, const struct ir_type *x, enum ir_operand_class class,
                                   int lo, int hi)
{
	if (x) {
		enum ir_dtype_class have = ir_dtype_class(x->dtype);
		bool fits = x->rank >= lo && x->rank <= hi;
		if (class == CLASS_FLOAT)
			fits = fits && have == DTCLASS_FLOAT;
		if (class == CLASS_NUMBER)
			fits = fits && have != DTCLASS_BOOL;
		if (class == CLASS_BOOL)
			fits = fits && have == DTCLASS_BOOL;
		return fits ? x : NULL;
	}
	enum ir_dtype dtype = class == CLASS_FLOAT  ? gen_float(g)
	                      : class == CLASS_BOOL ? DT_BOOL
	                      : class == CLASS_ANY  ? gen_any(g)
	                                            : gen_number(g);
	return gen_shape(g, dtype, lo, hi < 4 ? hi : 4);
}

/* n operands of one type. */
static bool equal_operands(struct gen *g, const struct ir_type *x, enum ir_operand_class class, size_t n,
                           struct recipe *out)
{
	x = first(g, x, class, 0, IR_RANK_MAX);
	for (size_t i = 0; x && i < n; i++)
		add(out, x);
	return x != NULL;
}

static bool unary(struct gen *g, const struct ir_type *x, enum ir_operand_class class, struct recipe *out)
{
	return equal_operands(g, x, class, 1, out);
}

/* ---- attributes and operands by op ---- */

static bool make_cast(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_cast *a = out->attrs;
	if (!unary(g, x, CLASS_ANY, out))
		return false;
	a->dtype = g->opt.smooth && is_float(out->in[0]) ? gen_float(g) : gen_any(g);
	return true;
}

static bool make_where(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	const struct ir_type *c = first(g, x, CLASS_BOOL, 0, IR_RANK_MAX);
	if (!c)
		return false;
	add(out, c);
	enum ir_dtype dtype = gen_any(g);
	add(out, same_shape(g, c, dtype));
	add(out, same_shape(g, c, dtype));
	return true;
}

static bool make_mask_rows(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	x = first(g, x, CLASS_ANY, 2, IR_RANK_MAX);
	if (!x)
		return false;
	add(out, x);
	add_ranged(out, per_batch(g, x), 0, x->dims[1]);
	return true;
}

/* Optional lengths and past of scores [B, .., S, T]; returns a mask kind. */
static int add_visibility(struct gen *g, const struct ir_type *batch, const struct ir_dim *keys,
                          struct recipe *out)
{
	bool len = rng_chance(&g->rng, 50), past = rng_chance(&g->rng, 30);
	if (len || past)
		add_ranged(out, len ? per_batch(g, batch) : NULL, 0, keys);
	if (past)
		add_ranged(out, per_batch(g, batch), 0, keys);
	return rng_chance(&g->rng, 50) ? MASK_causal : MASK_none;
}

static bool make_mask(struct gen *g, enum ir_opcode code, const struct ir_type *x, struct recipe *out)
{
	x = first(g, x, CLASS_FLOAT, 3, 4);
	if (!x)
		return false;
	add(out, x);
	int mask = add_visibility(g, x, x->dims[x->rank - 1], out);
	int64_t window = rng_chance(&g->rng, 25) ? rng_between(&g->rng, 1, 6) : 0;
	if (code == OP_mask) {
		*(struct attrs_mask *)out->attrs = (struct attrs_mask){.mask = mask, .window = window};
		return true;
	}
	struct attrs_masked_softmax *a = out->attrs;
	a->mask = mask;
	a->window = window;
	a->scale = rng_real(&g->rng, 0.1, 2);
	a->softcap = rng_chance(&g->rng, 30) ? 3 : 0;
	return true;
}

static bool make_norm(struct gen *g, enum ir_opcode code, const struct ir_type *x, struct recipe *out)
{
	double eps = rng_chance(&g->rng, 50) ? 1e-3 : 0.5;
	x = first(g, x, CLASS_FLOAT, 1, IR_RANK_MAX);
	if (!x)
		return false;
	const struct ir_type *row = vector(g, x->dtype, x->dims[x->rank - 1]);
	add(out, x);
	if (rng_chance(&g->rng, 70))
		add(out, row);
	if (code == OP_rms_norm) {
		((struct attrs_rms_norm *)out->attrs)->eps = eps;
		return true;
	}
	((struct attrs_layer_norm *)out->attrs)->eps = eps;
	if (rng_chance(&g->rng, 70)) {
		out->n = 2; /* beta is third, also without gamma */
		add(out, row);
	}
	return true;
}

static bool make_reduce(struct gen *g, const struct ir_type *x, enum ir_operand_class k, struct recipe *out)
{
	/* The four reductions have the same attributes. */
	struct attrs_reduce_sum *a = out->attrs;
	x = first(g, x, k, 1, IR_RANK_MAX);
	if (!x)
		return false;
	add(out, x);
	a->keep = rng_chance(&g->rng, 50);
	a->axes.items = ARENA_ARRAY(&g->m->arena, int64_t, IR_RANK_MAX);
	while (a->axes.n == 0)
		for (int i = 0; i < x->rank; i++)
			if (rng_chance(&g->rng, 40))
				a->axes.items[a->axes.n++] = i;
	return true;
}

static struct ir_dim_list dim_list(struct gen *g, int rank, const struct ir_dim *const *dims)
{
	struct ir_dim_list list = {ARENA_ARRAY(&g->m->arena, const struct ir_dim *, rank + 1), (size_t)rank};
	if (rank > 0)
		memcpy(list.items, dims, (size_t)rank * sizeof(*dims));
	return list;
}

/* Splits a constant axis into two factors at *at, if it can be. */
static bool split_axis(struct gen *g, const struct ir_type *x, int at, const struct ir_dim **dims)
{
	int64_t size, factor = rng_between(&g->rng, 1, 5);
	if (!ir_dim_is_const(x->dims[at], &size) || size % factor != 0 || x->rank == IR_RANK_MAX)
		return false;
	for (int i = 0; i < x->rank; i++)
		dims[i < at ? i : i + 1] = x->dims[i];
	dims[at] = gen_const(g, factor);
	dims[at + 1] = gen_const(g, size / factor);
	return true;
}

/* Splits an axis, merges two, or flattens. */
static bool make_reshape(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_reshape *a = out->attrs;
	const struct ir_dim *dims[IR_RANK_MAX + 1];
	x = first(g, x, CLASS_ANY, 0, 5);
	if (!x)
		return false;
	add(out, x);
	int at = x->rank ? (int)rng_below(&g->rng, x->rank) : 0;
	if (x->rank > 0 && rng_chance(&g->rng, 40) && split_axis(g, x, at, dims)) {
		a->dims = dim_list(g, x->rank + 1, dims);
	} else if (at + 1 < x->rank && rng_chance(&g->rng, 60)) {
		for (int i = 0; i < x->rank; i++)
			dims[i <= at ? i : i - 1] = x->dims[i];
		dims[at] = ir_dim_mul(g->m->dims, x->dims[at], x->dims[at + 1]);
		a->dims = dim_list(g, x->rank - 1, dims);
	} else {
		dims[0] = ir_type_count(g->m->dims, x);
		a->dims = dim_list(g, 1, dims);
	}
	return true;
}

static bool make_transpose(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_transpose *a = out->attrs;
	x = first(g, x, CLASS_ANY, 0, 5);
	if (!x)
		return false;
	add(out, x);
	a->perm.items = ARENA_ARRAY(&g->m->arena, int64_t, x->rank + 1);
	a->perm.n = (size_t)x->rank;
	for (int i = 0; i < x->rank; i++) {
		int k = (int)rng_below(&g->rng, i + 1);
		a->perm.items[i] = a->perm.items[k];
		a->perm.items[k] = i;
	}
	return true;
}

static bool make_broadcast(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_broadcast *a = out->attrs;
	const struct ir_dim *dims[IR_RANK_MAX];
	x = first(g, x, CLASS_ANY, 0, 4);
	if (!x)
		return false;
	int more = (int)rng_below(&g->rng, 3);
	for (int i = 0; i < more; i++)
		dims[i] = gen_dim(g);
	for (int i = 0; i < x->rank; i++)
		dims[more + i] = ir_dim_equals(x->dims[i], 1) ? gen_dim(g) : x->dims[i];
	if (!gen_type(g, x->dtype, x->rank + more, dims))
		return false;
	add(out, x);
	a->dims = dim_list(g, x->rank + more, dims);
	return true;
}

/* Of a constant axis any part; of a symbolic one the first row, the last row, or all. */
static bool make_slice(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_slice *a = out->attrs;
	int64_t size;
	x = first(g, x, CLASS_ANY, 1, IR_RANK_MAX);
	if (!x)
		return false;
	add(out, x);
	a->axis = rng_below(&g->rng, x->rank);
	const struct ir_dim *whole = x->dims[a->axis], *one = gen_const(g, 1);
	a->begin = gen_const(g, 0);
	a->size = whole;
	if (ir_dim_is_const(whole, &size)) {
		int64_t begin = rng_between(&g->rng, 0, size > 0 ? size - 1 : 0);
		a->begin = gen_const(g, begin);
		a->size = gen_const(g, size > 0 ? rng_between(&g->rng, 1, size - begin) : 0);
	} else if (ir_dim_lo(g->m->dims, whole) >= 1 && rng_chance(&g->rng, 70)) {
		a->size = one;
		a->begin = rng_chance(&g->rng, 50) ? ir_dim_sub(g->m->dims, whole, one) : a->begin;
	}
	return true;
}

static bool make_concat(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	x = first(g, x, CLASS_ANY, 1, IR_RANK_MAX);
	if (!x)
		return false;
	int64_t axis = rng_below(&g->rng, x->rank), n = rng_between(&g->rng, 0, 3);
	((struct attrs_concat *)out->attrs)->axis = axis;
	add(out, x);
	for (int64_t i = 0; i < n; i++) {
		struct ir_type other = *x;
		other.dims[axis] = gen_dim(g);
		const struct ir_type *t = gen_type(g, x->dtype, x->rank, other.dims);
		if (t)
			add(out, t);
	}
	return true;
}

static bool make_pad(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_pad *a = out->attrs;
	x = first(g, x, CLASS_ANY, 1, IR_RANK_MAX);
	if (!x)
		return false;
	add(out, x);
	a->axis = rng_below(&g->rng, x->rank);
	a->before = rng_below(&g->rng, 4);
	a->after = rng_below(&g->rng, 4);
	a->value = is_float(x) ? rng_real(&g->rng, -2, 2) : (double)rng_below(&g->rng, 2);
	return true;
}

static bool make_gather(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	int64_t rows = 0;
	x = first(g, x, CLASS_ANY, 1, 4);
	if (!x)
		return false;
	const struct ir_type *ids = gen_shape(g, DT_I32, 0, 2);
	const struct ir_dim *dims[IR_RANK_MAX];
	memcpy(dims, ids->dims, sizeof(dims));
	for (int i = 1; i < x->rank; i++)
		dims[ids->rank + i - 1] = x->dims[i];
	if (!gen_type(g, x->dtype, ids->rank + x->rank - 1, dims))
		return false;
	add(out, x);
	/* Without a bound the ids reach beyond the table, where the clamp acts. */
	bool bounded = ir_dim_is_const(x->dims[0], &rows) && rng_chance(&g->rng, 60);
	add_ranged(out, ids, bounded ? rows : 0, NULL);
	return true;
}

static bool make_select_rows(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	x = first(g, x, CLASS_ANY, 2, IR_RANK_MAX);
	if (!x)
		return false;
	add(out, x);
	add(out, per_batch(g, x));
	return true;
}

static bool make_matmul(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_matmul *a = out->attrs;
	x = first(g, x, CLASS_FLOAT, 2, 4);
	if (!x)
		return false;
	a->ta = rng_chance(&g->rng, 40);
	a->tb = rng_chance(&g->rng, 40);
	int r = x->rank;
	struct ir_type y = *x;
	y.dims[a->tb ? r - 1 : r - 2] = x->dims[a->ta ? r - 2 : r - 1];
	y.dims[a->tb ? r - 2 : r - 1] = gen_dim(g);
	const struct ir_type *other = gen_type(g, x->dtype, r, y.dims);
	add(out, x);
	add(out, other);
	return other != NULL;
}

static bool make_linear(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	x = first(g, x, CLASS_FLOAT, 1, 4);
	if (!x)
		return false;
	const struct ir_dim *n = gen_small(g);
	const struct ir_type *w =
	        gen_type(g, x->dtype, 2, (const struct ir_dim *[]){n, x->dims[x->rank - 1]});
	add(out, x);
	add(out, w);
	if (rng_chance(&g->rng, 50))
		add(out, vector(g, x->dtype, n));
	return w != NULL;
}

static bool make_attention(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	struct attrs_attention *a = out->attrs;
	int64_t kv_heads = rng_between(&g->rng, 1, 3), shared = rng_between(&g->rng, 1, 3);
	if (x) /* shapes of four fitting axes are too rare to wait for */
		return false;
	enum ir_dtype dtype = gen_float(g);
	const struct ir_dim *b = g->symbols[0] && rng_chance(&g->rng, 60) ? g->symbols[0] : gen_const(g, 2);
	const struct ir_dim *s = gen_dim(g), *t = rng_chance(&g->rng, 50) ? s : gen_dim(g);
	const struct ir_dim *h = gen_const(g, kv_heads * shared), *k = gen_const(g, kv_heads);
	const struct ir_dim *e = gen_small(g), *v = rng_chance(&g->rng, 70) ? e : gen_small(g);
	add(out, gen_type(g, dtype, 4, (const struct ir_dim *[]){b, h, s, e}));
	add(out, gen_type(g, recipe_stored_type(g, dtype, 1), 4, (const struct ir_dim *[]){b, k, t, e}));
	add(out, gen_type(g, recipe_stored_type(g, dtype, 2), 4, (const struct ir_dim *[]){b, k, t, v}));
	if (!out->in[0] || !out->in[1] || !out->in[2])
		return false;
	const struct ir_type *bias = gen_type(g, dtype, 4, (const struct ir_dim *[]){b, h, s, t});
	add(out, rng_chance(&g->rng, 30) ? bias : NULL);
	a->mask = add_visibility(g, out->in[0], t, out);
	a->scale = rng_real(&g->rng, 0.1, 1);
	a->softcap = rng_chance(&g->rng, 20) ? 5 : 0;
	a->window = rng_chance(&g->rng, 35) ? rng_between(&g->rng, 1, 9) : 0;
	out->n = 6; /* lengths and past may be left out */
	add(out, rng_chance(&g->rng, 25) ? vector(g, dtype, h) : NULL);
	add(out, recipe_scales(g, out->in[1]));
	add(out, recipe_scales(g, out->in[2]));
	return bias != NULL;
}

static bool make_rows(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	x = first(g, x, CLASS_FLOAT, 1, IR_RANK_MAX);
	if (x)
		add(out, x);
	return x != NULL;
}

static bool make_cmp(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	((struct attrs_cmp *)out->attrs)->kind = (int)rng_below(&g->rng, ir_keyword_count(KEYWORDS_CMP));
	return equal_operands(g, x, CLASS_NUMBER, 2, out);
}

static bool make_scale(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	((struct attrs_scale *)out->attrs)->f = rng_real(&g->rng, -2, 2);
	return unary(g, x, CLASS_FLOAT, out);
}

static bool make_softcap(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	((struct attrs_softcap *)out->attrs)->c = rng_real(&g->rng, 0.5, 5);
	return unary(g, x, CLASS_FLOAT, out);
}

/* ---- which of them an op uses ---- */

typedef bool recipe_fn(struct gen *g, const struct ir_type *x, struct recipe *out);

#define RECIPE(name, call)                                                           \
	static bool name(struct gen *g, const struct ir_type *x, struct recipe *out) \
	{                                                                            \
		return call;                                                         \
	}
RECIPE(one_number, unary(g, x, CLASS_NUMBER, out))
RECIPE(one_float, unary(g, x, CLASS_FLOAT, out))
RECIPE(one_bool, unary(g, x, CLASS_BOOL, out))
RECIPE(two_numbers, equal_operands(g, x, CLASS_NUMBER, 2, out))
RECIPE(reduce_number, make_reduce(g, x, CLASS_NUMBER, out))
RECIPE(reduce_float, make_reduce(g, x, CLASS_FLOAT, out))
RECIPE(two_floats, equal_operands(g, x, CLASS_FLOAT, 2, out))
RECIPE(two_bools, equal_operands(g, x, CLASS_BOOL, 2, out))
RECIPE(plain_mask, make_mask(g, OP_mask, x, out))
RECIPE(masked_softmax, make_mask(g, OP_masked_softmax, x, out))
RECIPE(layer_norm, make_norm(g, OP_layer_norm, x, out))
RECIPE(rms_norm, make_norm(g, OP_rms_norm, x, out))

/* Ops without an entry are built by hand in random_ir.c, or not at all. */
static recipe_fn *const recipes[IR_N_OPS] = {
        [OP_neg] = one_number,
        [OP_abs] = one_number,
        [OP_exp] = one_float,
        [OP_log] = one_float,
        [OP_sqrt] = one_float,
        [OP_rsqrt] = one_float,
        [OP_sin] = one_float,
        [OP_cos] = one_float,
        [OP_tanh] = one_float,
        [OP_erf] = one_float,
        [OP_floor] = one_float,
        [OP_ceil] = one_float,
        [OP_sigmoid] = one_float,
        [OP_relu] = one_float,
        [OP_relu2] = one_float,
        [OP_gelu] = one_float,
        [OP_gelu_tanh] = one_float,
        [OP_gelu_quick] = one_float,
        [OP_silu] = one_float,
        [OP_scale] = make_scale,
        [OP_softcap] = make_softcap,
        [OP_not] = one_bool,
        [OP_cast] = make_cast,
        [OP_add] = two_numbers,
        [OP_sub] = two_numbers,
        [OP_mul] = two_numbers,
        [OP_div] = two_floats,
        [OP_floor_div] = two_numbers,
        [OP_mod] = two_numbers,
        [OP_pow] = two_numbers,
        [OP_min] = two_numbers,
        [OP_max] = two_numbers,
        [OP_cmp] = make_cmp,
        [OP_and] = two_bools,
        [OP_or] = two_bools,
        [OP_where] = make_where,
        [OP_mask_rows] = make_mask_rows,
        [OP_softmax] = make_rows,
        [OP_log_softmax] = make_rows,
        [OP_mask] = plain_mask,
        [OP_masked_softmax] = masked_softmax,
        [OP_layer_norm] = layer_norm,
        [OP_rms_norm] = rms_norm,
        [OP_quantize_rows] = recipe_quantize_rows,
        [OP_reduce_sum] = reduce_number,
        [OP_reduce_mean] = reduce_float,
        [OP_reduce_max] = reduce_number,
        [OP_reduce_min] = reduce_number,
        [OP_argmax] = recipe_argmax,
        [OP_block_argmax] = recipe_block_argmax,
        [OP_block_log_softmax] = recipe_block_log_softmax,
        [OP_cumsum] = recipe_cumsum,
        [OP_topk] = recipe_topk,
        [OP_last_index] = recipe_last_index,
        [OP_reshape] = make_reshape,
        [OP_transpose] = make_transpose,
        [OP_broadcast] = make_broadcast,
        [OP_slice] = make_slice,
        [OP_concat] = make_concat,
        [OP_pad] = make_pad,
        [OP_gather] = make_gather,
        [OP_select_rows] = make_select_rows,
        [OP_matmul] = make_matmul,
        [OP_linear] = make_linear,
        [OP_expert_linear] = recipe_expert_linear,
        [OP_attention] = make_attention,
        [OP_rope] = recipe_rope,
};

bool recipe_make(struct gen *g, enum ir_opcode code, const struct ir_type *x, struct recipe *out)
{
	*out = (struct recipe){.attrs = ir_default_attrs(&g->m->arena, code)};
	return out->attrs && recipes[code] && recipes[code](g, x, out);
}
