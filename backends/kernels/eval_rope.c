/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: rotary position embedding (RoPE). A rotated feature is x * cos + partner * (+-sin), one product and
 * one fma for any number of lanes, so that the bits do not depend on the vector width. The table [positions, D] holds
 * D/2 cosines, then D/2 sines. Features from D on are copied.
 */
#include "backends/kernels/eval.h"

struct rope {
	struct eval *e;
	const struct ir_op *op;
	const struct eval_point *p;
	enum kb_scalar scalar; /* type of the arithmetic, that of x */
	int64_t rotated;       /* D: number of rotated features */
	bool halves; /* rotate-half layout: pairs are (n, n + D/2); otherwise interleaved: (2n, 2n + 1) */
	struct kb_val feature; /* index on the last axis */
	struct kb_val first;   /* KB_BOOL: feature is the first of its pair */
};

static int64_t constant_axis(const struct eval *e, struct ir_value v, int axis)
{
	int64_t n = 0;
	(void)ir_dim_is_const(eval_type(e, v)->dims[axis], &n); /* the verifier of the IR requires it */
	return n;
}

bool eval_rope_vectorizes(const struct eval *e, const struct ir_op *op, int lanes)
{
	bool halves = ((const struct attrs_rope *)op->attrs)->layout == ROPE_halves;
	int64_t rotated = constant_axis(e, op->operands[1], 1);
	return halves ? rotated / 2 % lanes == 0 : lanes % 2 == 0 && rotated % lanes == 0;
}

/* x at `feature`, in the lanes of p. */
static struct kb_val x_at(const struct rope *r, struct kb_val feature)
{
	struct eval_point at = *r->p;
	struct kb_val v;
	at.index[at.rank - 1] = feature;
	v = eval_value(r->e, r->op->operands[0], &at);
	return r->p->vec < 0 ? v : kb_splat(r->e->k, v, r->e->lanes);
}

/* Column of the table (a cosine or sine), in the lanes of p. */
static struct kb_val table_at(const struct rope *r, struct kb_val row, struct kb_val column)
{
	struct eval_point at = {.rank = 2, .index = {row, column}, .vec = r->p->vec < 0 ? -1 : 1};
	struct kb_val v = kb_cvt(r->e->k, eval_value(r->e, r->op->operands[1], &at), r->scalar);
	return r->p->vec < 0 ? v : kb_splat(r->e->k, v, r->e->lanes);
}

/* The row of the table for the position of p. */
static struct kb_val table_row(const struct rope *r)
{
	struct eval_point at = {.rank = 2, .vec = -1};
	at.index[0] = r->p->index[0];
	at.index[1] = r->p->index[r->p->rank - 2];
	struct kb_val position = eval_value(r->e, r->op->operands[2], &at);
	return eval_clamp_index(r->e, position, eval_dim(r->e, eval_type(r->e, r->op->operands[1])->dims[0]));
}

/* -1 for the first feature of a pair, 1 for the second. */
static struct kb_val sine_sign(const struct rope *r)
{
	struct eval_point one = {.vec = -1};
	struct kb_val minus = eval_const(r->e, &one, r->scalar, -1),
	              plus = eval_const(r->e, &one, r->scalar, 1);
	struct kb_val s = kb_select(r->e->k, r->first, minus, plus);
	return r->p->vec < 0 ? s : kb_splat(r->e->k, s, r->e->lanes);
}

/* A shuffle: lane j is lane from + j / 2 * by + j % 2 * odd of the concatenation of a and b (b may be none). */
static struct kb_val shuffle_pairs(const struct rope *r, struct kb_val a, struct kb_val b, int from, int by,
                                   int odd)
{
	int lanes[KB_LANES_MAX];
	for (int j = 0; j < r->e->lanes; j++)
		lanes[j] = from + j / 2 * by + j % 2 * odd;
	return kb_shuffle(r->e->k, a, b, lanes, r->e->lanes);
}

/*
 * A vector of interleaved pairs needs lanes/2 cosines and sines, but full vectors are loaded: the cosines are the low
 * half of the one that begins at column i/2, the sines the high half of the one that ends at column (i + lanes)/2 +
 * D/2, so that neither load leaves the row of the table.
 */
static struct kb_val rotate_interleaved_vector(const struct rope *r)
{
	struct kb *k = r->e->k;
	int lanes = r->e->lanes;
	struct eval_point one = {.vec = -1};
	struct kb_val x = x_at(r, r->feature), row = table_row(r);
	struct kb_val pair = kb_div_const(k, r->feature, 2);
	struct kb_val cosine = table_at(r, row, pair);
	struct kb_val sine = table_at(r, row, kb_add_const(k, pair, (r->rotated - lanes) / 2));
	struct kb_val minus = kb_splat(k, eval_const(r->e, &one, r->scalar, -1), lanes);
	struct kb_val plus = kb_splat(k, eval_const(r->e, &one, r->scalar, 1), lanes);
	const struct kb_val none = {0};
	cosine = shuffle_pairs(r, cosine, none, 0, 1, 0);
	sine = shuffle_pairs(r, sine, none, lanes / 2, 1, 0);
	struct kb_val signs = shuffle_pairs(r, minus, plus, 0, 0, lanes),
	              partner = shuffle_pairs(r, x, none, 1, 2, -1);
	struct kb_val straight = kb_mul(k, x, cosine);
	struct kb_val across = kb_mul(k, sine, signs);
	return kb_fma(k, partner, across, straight);
}

/* The rotated value of a feature below D. */
static struct kb_val rotate(struct rope *r)
{
	struct kb *k = r->e->k;
	int64_t half = r->rotated / 2;
	struct kb_val i = r->feature, two = kb_index(k, 2), pair;
	if (!r->halves && r->p->vec >= 0 && r->e->lanes > 1)
		return rotate_interleaved_vector(r);
	if (r->halves) {
		r->first = kb_cmp(k, KB_LT, i, kb_index(k, half));
		pair = kb_select(k, r->first, i, kb_add_const(k, i, -half));
	} else {
		r->first = kb_cmp(k, KB_EQ, kb_bin(k, KB_REM, i, two), kb_index(k, 0));
		pair = kb_bin(k, KB_DIV, i, two);
	}
	int64_t step = r->halves ? half : 1;
	struct kb_val before = kb_add_const(k, i, -step);
	struct kb_val partner = kb_select(k, r->first, kb_add_const(k, i, step), before);
	struct kb_val row = table_row(r);
	struct kb_val cosine = table_at(r, row, pair), sine = table_at(r, row, kb_add_const(k, pair, half));
	struct kb_val straight = kb_mul(k, x_at(r, i), cosine);
	struct kb_val across = kb_mul(k, sine, sine_sign(r));
	return kb_fma(k, x_at(r, partner), across, straight);
}

/* Partial rotary embedding: features from D on are copied. */
static struct kb_val rotate_below_d(struct rope *r)
{
	struct kb *k = r->e->k;
	struct kb_var to =
	        kb_var(k, "rope", KB_TYPE(r->scalar, r->p->vec < 0 ? 1 : r->e->lanes), x_at(r, r->feature));
	size_t mark = eval_mark(r->e);
	kb_if(k, kb_cmp(k, KB_LT, r->feature, kb_index(k, r->rotated)));
	kb_set(k, to, rotate(r));
	kb_end_if(k);
	eval_release(r->e, mark);
	return kb_get(k, to);
}

struct kb_val eval_rope(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	int last = p->rank - 1;
	struct rope r = {.e = e, .op = op, .p = p};
	bool along = p->vec == last && !p->shifted && eval_rope_vectorizes(e, op, e->lanes);
	if (p->vec >= 0 && e->lanes > 1 && !along)
		return eval_per_lane(e, op, p);
	r.scalar = eval_scalar(eval_type(e, op->operands[0])->dtype);
	r.rotated = constant_axis(e, op->operands[1], 1);
	r.halves = ((const struct attrs_rope *)op->attrs)->layout == ROPE_halves;
	r.feature = p->index[last];
	return r.rotated < constant_axis(e, op->operands[0], last) ? rotate_below_d(&r) : rotate(&r);
}
