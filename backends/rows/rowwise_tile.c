/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise template: what norms need of all rows of a tile, found by the items of a work-group for each other. Each
 * item takes every items-th element of each row, and sums meet in the tree of rowwise_items.c, for all rows at once: the
 * bits are those of a group of the norm alone.
 */
#include "backends/rows/rowwise.h"
#include "backends/rows/rowwise_internal.h"

static struct ir_value x_of(const struct rowwise_tile *t)
{
	return t->norm->operands[OPERAND(layer_norm, x)];
}

static struct kb_val width_of(const struct rowwise_tile *t)
{
	const struct ir_type *x = ir_type_of(t->e->job->func, x_of(t));
	return eval_dim(t->e, x->dims[x->rank - 1]);
}

struct eval_point rowwise_tile_row(const struct rowwise_tile *t, struct kb_val row)
{
	struct kb_val size[IR_RANK_MAX];
	struct eval_point p = {.rank = ir_type_of(t->e->job->func, x_of(t))->rank, .vec = -1, .flat = row};
	eval_sizes(t->e, x_of(t), size);
	eval_unravel(t->e, row, size, p.rank - 1, p.index);
	p.index[p.rank - 1] = kb_index(t->e->k, 0);
	return p;
}

/* This item's part of the sum of row m, of x or of the squares of what it is from the mean. */
static struct kb_val part_of(const struct rowwise_tile *t, struct kb_val m, bool squares)
{
	struct kb *k = t->e->k;
	struct kb_var sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	struct eval_point p = rowwise_tile_row(t, kb_add(k, t->first, m));
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

/* parts[m][i] += parts[m][i + half], for i < half */
static void fold(const struct rowwise_tile *t, int64_t half)
{
	struct kb *k = t->e->k;
	struct kb_val n = kb_mul_const(k, t->rows, half);
	struct kb_val i = kb_loop(k, "i", t->item, n, t->items, 0);
	struct kb_val at = kb_mul_const(k, kb_div_const(k, i, half), t->items);
	at = kb_add(k, at, kb_rem_const(k, i, half));
	struct kb_val mine = kb_load(k, KB_F32_T, t->parts, at, 0, 0);
	struct kb_val other = kb_load(k, KB_F32_T, t->parts, at, half, 0);
	kb_store(k, kb_add(k, other, mine), t->parts, at, 0, 0);
	kb_end_loop(k);
	kb_barrier(k);
}

/*
 * means[m], or means[most + m]: 1 / root. An item finishes a row, so there is no loop over rows: PoCL 3.1, where it
 * vectorizes items, makes wrong code of such loops between barriers.
 */
static void find(const struct rowwise_tile *t, bool squares, double eps)
{
	struct kb *k = t->e->k;
	size_t mark = eval_mark(t->e);
	struct kb_val m = kb_loop(k, "m", kb_index(k, 0), t->rows, 1, 0);
	struct kb_val part = part_of(t, m, squares);
	struct kb_val at = kb_mul_const(k, m, t->items);
	kb_store(k, part, t->parts, kb_add(k, at, t->item), 0, 0);
	kb_end_loop(k);
	eval_release(t->e, mark);
	kb_barrier(k);
	for (int64_t half = t->items / 2; half > 1; half /= 2)
		fold(t, half);
	kb_if(k, kb_cmp(k, KB_LT, t->item, t->rows));
	at = kb_mul_const(k, t->item, t->items);
	struct kb_val sum = kb_load(k, KB_F32_T, t->parts, at, 0, 0);
	sum = kb_add(k, kb_load(k, KB_F32_T, t->parts, at, 1, 0), sum);
	struct kb_val value = kb_bin(k, KB_DIV, sum, kb_cvt(k, width_of(t), KB_F32));
	if (squares) {
		value = kb_un(k, KB_SQRT, kb_add(k, value, kb_f32(k, (float)eps)));
		value = kb_bin(k, KB_DIV, kb_f32(k, 1), value);
	}
	kb_store(k, value, t->means, t->item, squares ? t->most : 0, 0);
	kb_end_if(k);
	kb_barrier(k);
}

void rowwise_tile_begin(const struct rowwise_tile *t)
{
	if (t->norm->code == OP_layer_norm)
		find(t, false, 0);
	find(t, true,
	     t->norm->code == OP_layer_norm ? ((const struct attrs_layer_norm *)t->norm->attrs)->eps
	                                    : ((const struct attrs_rms_norm *)t->norm->attrs)->eps);
}

struct kb_val rowwise_tile_value(const struct rowwise_tile *t, struct kb_val m, const struct eval_point *p,
                                 int lanes)
{
	struct kb *k = t->e->k;
	const struct eval_point at = {.rank = 1, .index = {p->index[p->rank - 1]}, .vec = lanes > 1 ? 0 : -1};
	struct eval_width before = eval_width(t->e, lanes, lanes);
	struct rowwise_scale s = {.inverse = kb_load(k, KB_F32_T, t->means, m, t->most, 0)};
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
	return rowwise_scaled(k, x, &s);
}
