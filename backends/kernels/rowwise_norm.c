/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise generator: layer_norm and rms_norm. The variance is the mean of squares of centered elements, in a
 * pass of its own: E[x^2] - E[x]^2 would cancel all digits of rows whose mean is large.
 *
 * Also norms of a tile of rows whose elements a work-group reads (rowwise_tile): the items compute the
 * statistics of all rows together, each every items-th element of each row, and reduce them in the tree of
 * rowwise_loop.c for all rows at once, so that the bits are those of the norm as a group of its own.
 */
#include "backends/kernels/rowwise.h"
#include "backends/kernels/rowwise_internal.h"

enum { X = OPERAND(layer_norm, x), GAMMA = OPERAND(layer_norm, gamma), BETA = OPERAND(layer_norm, beta) };

struct norm {
	struct rowwise_acc sum, squares;
	struct kb_val mean;    /* f32; none: 0 */
	struct kb_val inverse; /* f32: 1 / sqrt(mean square + eps) */
	struct ir_value gamma, beta;
};

static struct kb_val divide_by_width(struct rowwise *r, struct kb_val sum)
{
	return kb_bin(r->k, KB_DIV, sum, kb_cvt(r->k, rowwise_width(r), KB_F32));
}

/* 1 / sqrt(mean square + eps) */
static struct kb_val inverse_std(struct rowwise *r, const struct norm *n, double eps)
{
	struct kb *k = r->k;
	struct kb_val mean = divide_by_width(r, rowwise_acc_reduce(r, &n->squares));
	struct kb_val root = kb_un(k, KB_SQRT, kb_add(k, mean, kb_f32(k, (float)eps)));
	return kb_bin(k, KB_DIV, kb_f32(k, 1), root);
}

/* gamma or beta [D] at the chunk. */
static struct kb_val load_parameter(struct rowwise *r, const struct rowwise_chunk *c, struct ir_value v)
{
	const struct eval_point p = {.rank = 1, .index = {c->at}, .vec = 0};
	return rowwise_splat(r, c, eval_value(&r->e, v, &p));
}

/* ---- passes ---- */

static void add_element(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val x = rowwise_load_x(r, c);
	rowwise_keep_x(r, c, x);
	rowwise_acc_add(r, &n->sum, c, x);
}

static void add_square(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val x = rowwise_load_x(r, c);
	rowwise_keep_x(r, c, x);
	rowwise_acc_square(r, &n->squares, c, x);
}

static void add_centered_square(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val mean = rowwise_splat(r, c, n->mean);
	struct kb_val x = kb_sub(r->k, rowwise_reload_x(r, c), mean);
	rowwise_acc_square(r, &n->squares, c, x);
}

/* Factors of a norm in the lanes of x; none: mean 0, gamma 1, beta 0. */
struct norm_factors {
	struct kb_val mean, inverse, gamma, beta;
};

/* (x - mean) inverse gamma + beta */
static struct kb_val normalize(struct kb *k, struct kb_val x, const struct norm_factors *s)
{
	if (s->mean.id)
		x = kb_sub(k, x, s->mean);
	x = kb_mul(k, x, s->inverse);
	if (s->gamma.id && s->beta.id)
		return kb_fma(k, x, s->gamma, s->beta);
	if (s->gamma.id)
		return kb_mul(k, x, s->gamma);
	return s->beta.id ? kb_add(k, x, s->beta) : x;
}

static void scale_and_store(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct norm *n = user;
	struct norm_factors s = {0};
	struct kb_val y = rowwise_reload_x(r, c);
	if (n->mean.id)
		s.mean = rowwise_splat(r, c, n->mean);
	s.inverse = rowwise_splat(r, c, n->inverse);
	if (n->beta.id)
		s.beta = load_parameter(r, c, n->beta);
	if (n->gamma.id)
		s.gamma = load_parameter(r, c, n->gamma);
	rowwise_store_result(r, c, normalize(r->k, y, &s));
}

static void store_row(struct rowwise *r, struct norm *n)
{
	const struct rowwise_loop w = {.body = scale_and_store, .user = n, .lanes = r->out_lanes};
	rowwise_loop(r, kb_index(r->k, 0), rowwise_width(r), &w);
}

/* ---- rows ---- */

void rowwise_layer_norm(struct rowwise *r)
{
	const struct attrs_layer_norm *a = r->root->attrs;
	struct norm n = {.gamma = rowwise_operand(r, GAMMA), .beta = rowwise_operand(r, BETA)};
	rowwise_acc_begin(r, &n.sum, KB_ADD);
	rowwise_for_row(r, add_element, &n);
	n.mean = divide_by_width(r, rowwise_acc_reduce(r, &n.sum));
	rowwise_acc_begin(r, &n.squares, KB_ADD);
	rowwise_for_row(r, add_centered_square, &n);
	n.inverse = inverse_std(r, &n, a->eps);
	store_row(r, &n);
}

void rowwise_rms_norm(struct rowwise *r)
{
	const struct attrs_rms_norm *a = r->root->attrs;
	struct norm n = {.gamma = rowwise_operand(r, GAMMA)};
	rowwise_acc_begin(r, &n.squares, KB_ADD);
	rowwise_for_row(r, add_square, &n);
	n.inverse = inverse_std(r, &n, a->eps);
	store_row(r, &n);
}

/* ---- tiles of work-groups ---- */

/* The operand that is normalized. */
static struct ir_value x_of(const struct rowwise_tile *t)
{
	return t->norm->operands[OPERAND(layer_norm, x)];
}

static struct kb_val width_of(const struct rowwise_tile *t)
{
	const struct ir_type *x = ir_type_of(t->e->job->func, x_of(t));
	return eval_dim(t->e, x->dims[x->rank - 1]);
}

/* Evaluator point of element 0 of row `row`. */
static struct eval_point tile_row_point(const struct rowwise_tile *t, struct kb_val row)
{
	struct kb_val size[IR_RANK_MAX];
	struct eval_point p = {.rank = ir_type_of(t->e->job->func, x_of(t))->rank, .vec = -1, .flat = row};
	eval_sizes(t->e, x_of(t), size);
	eval_unravel(t->e, row, size, p.rank - 1, p.index);
	p.index[p.rank - 1] = kb_index(t->e->k, 0);
	return p;
}

/* This item's partial sum of row m: of x, or of (x - mean)^2 (rms_norm: of x^2). */
static struct kb_val item_sum(const struct rowwise_tile *t, struct kb_val m, bool squares)
{
	struct kb *k = t->e->k;
	struct kb_var sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	struct eval_point p = tile_row_point(t, kb_add(k, t->first, m));
	struct kb_val mean = {0};
	if (squares && t->norm->code == OP_layer_norm)
		mean = kb_load(k, KB_F32_T, t->means, m, 0, 0);
	eval_hoist(t->e, x_of(t), &p);
	size_t mark = eval_mark(t->e);
	p.index[p.rank - 1] = kb_loop(k, "j", t->item, width_of(t), t->items, 0);
	struct kb_val x = eval_value(t->e, x_of(t), &p);
	if (mean.id)
		x = kb_sub(k, x, mean);
	kb_set(k, sum, squares ? kb_fma(k, x, x, kb_get(k, sum)) : kb_add(k, x, kb_get(k, sum)));
	kb_end_loop(k);
	eval_release(t->e, mark);
	return kb_get(k, sum);
}

/* partials[m][i] += partials[m][i + half], for i < half. */
static void tree_step(const struct rowwise_tile *t, int64_t half)
{
	struct kb *k = t->e->k;
	struct kb_val n = kb_mul_const(k, t->rows, half);
	struct kb_val i = kb_loop(k, "i", t->item, n, t->items, 0);
	struct kb_val at = kb_mul_const(k, kb_div_const(k, i, half), t->items);
	at = kb_add(k, at, kb_rem_const(k, i, half));
	struct kb_val mine = kb_load(k, KB_F32_T, t->partials, at, 0, 0);
	struct kb_val other = kb_load(k, KB_F32_T, t->partials, at, half, 0);
	kb_store(k, kb_add(k, other, mine), t->partials, at, 0, 0);
	kb_end_loop(k);
	kb_barrier(k);
}

/* Stores means[m], or means[most + m] = 1 / sqrt(mean square + eps). Each item finishes one row, without a
 * loop over rows: PoCL 3.1, when it vectorizes items, miscompiles such loops between barriers. */
static void row_statistics(const struct rowwise_tile *t, bool squares, double eps)
{
	struct kb *k = t->e->k;
	size_t mark = eval_mark(t->e);
	struct kb_val m = kb_loop(k, "m", kb_index(k, 0), t->rows, 1, 0);
	struct kb_val part = item_sum(t, m, squares);
	struct kb_val at = kb_mul_const(k, m, t->items);
	kb_store(k, part, t->partials, kb_add(k, at, t->item), 0, 0);
	kb_end_loop(k);
	eval_release(t->e, mark);
	kb_barrier(k);
	for (int64_t half = t->items / 2; half > 1; half /= 2)
		tree_step(t, half);
	kb_if(k, kb_cmp(k, KB_LT, t->item, t->rows));
	at = kb_mul_const(k, t->item, t->items);
	struct kb_val sum = kb_load(k, KB_F32_T, t->partials, at, 0, 0);
	sum = kb_add(k, kb_load(k, KB_F32_T, t->partials, at, 1, 0), sum);
	struct kb_val value = kb_bin(k, KB_DIV, sum, kb_cvt(k, width_of(t), KB_F32));
	if (squares) {
		value = kb_un(k, KB_SQRT, kb_add(k, value, kb_f32(k, (float)eps)));
		value = kb_bin(k, KB_DIV, kb_f32(k, 1), value);
	}
	kb_store(k, value, t->means, t->item, squares ? t->most : 0, 0);
	kb_end_if(k);
	kb_barrier(k);
}

void rowwise_tile_stats(const struct rowwise_tile *t)
{
	if (t->norm->code == OP_layer_norm)
		row_statistics(t, false, 0);
	row_statistics(t, true,
	               t->norm->code == OP_layer_norm ? ((const struct attrs_layer_norm *)t->norm->attrs)->eps
	                                              : ((const struct attrs_rms_norm *)t->norm->attrs)->eps);
}

struct kb_val rowwise_tile_normalized(const struct rowwise_tile *t, struct kb_val m,
                                      const struct eval_point *p, int lanes)
{
	struct kb *k = t->e->k;
	const struct eval_point at = {.rank = 1, .index = {p->index[p->rank - 1]}, .vec = lanes > 1 ? 0 : -1};
	struct eval_width before = eval_width(t->e, lanes, lanes);
	struct norm_factors s = {.inverse = kb_load(k, KB_F32_T, t->means, m, t->most, 0)};
	s.inverse = kb_splat(k, s.inverse, lanes);
	if (t->norm->code == OP_layer_norm)
		s.mean = kb_splat(k, kb_load(k, KB_F32_T, t->means, m, 0, 0), lanes);
	size_t mark = eval_mark(t->e);
	struct kb_val x = kb_splat(k, eval_value(t->e, x_of(t), p), lanes);
	for (size_t i = 1; i < t->norm->n_operands; i++)
		if (t->norm->operands[i].id)
			*(i == 1 ? &s.gamma : &s.beta) =
			        kb_splat(k, eval_value(t->e, t->norm->operands[i], &at), lanes);
	eval_release(t->e, mark);
	eval_width(t->e, before.lanes, before.valid);
	return normalize(k, x, &s);
}
