/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: attention masks, and one element of a reduction or contraction (matmul, linear) by a loop in a fixed
 * order. The fallback that is correct for every shape; the generators of linear, attention and rows are the fast
 * paths.
 *
 * A value at point p is a scalar (p->vec -1) or a vector of e->lanes neighbours along axis p->vec; eval_width changes
 * the lanes. eval_mark and eval_release bracket what is cached in a scope, such as an iteration of an emitted loop.
 *
 * Reductions of a range of columns (argmax; maximum and sum of exponentials): full vectors into several accumulators
 * used in turn (slots 1 .. SLOTS), which breaks the dependency chain, the scalar remainder into slot 0; then all are
 * reduced. Block ops compute them for each N block of the last axis of x, so that logits need not be stored: their
 * result is x's leading axes, then [values, blocks]. A column_fn adds one vector or scalar to a slot.
 */
#include "backends/kb/math.h"
#include "backends/kernels/eval.h"

#include <math.h>

/* ---- ranges of columns ---- */

#define SLOTS 4

/* The accumulators of one reduction: [0] of the scalar remainder, [1 .. slots] of vectors, used round-robin to
 * break the dependency chain. */
struct accumulators {
	int slots;
	struct kb_var at[1 + SLOTS];
};

/* Reduces x, which begins at `column`, into accumulator `slot`; x is a scalar for slot 0, otherwise a vector. */
typedef void column_fn(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user);

/* x at a column of the row, or at `lanes` columns from there on: sets the width of the evaluator for this value
 * only. */
static struct kb_val x_at(struct eval *e, const struct eval_columns *c, struct kb_val column, int lanes)
{
	struct eval_point p = c->row;
	p.vec = lanes > 1 ? p.rank - 1 : -1;
	p.index[p.rank - 1] = column;
	struct eval_width before = eval_width(e, lanes, lanes);
	struct kb_val x = eval_value(e, c->x, &p);
	eval_width(e, before.lanes, before.valid);
	return x;
}

/* Emits fn for the column, or for a vector from there on if slot > 0. What it caches is valid in this iteration
 * only. */
static void visit_column(struct eval *e, const struct eval_columns *c, struct kb_val column, int slot,
                         column_fn *fn, void *user)
{
	size_t mark = eval_mark(e);
	fn(e, column, x_at(e, c, column, slot ? c->lanes : 1), slot, user);
	eval_release(e, mark);
}

/* Emits fn for all columns, in order: unrolled (c->unrolled columns, full vectors), or a loop of `slots` vectors per
 * iteration and a loop for the remaining columns, one by one. */
static void for_each_column(struct eval *e, const struct eval_columns *c, int slots, column_fn *fn,
                            void *user)
{
	struct kb *k = e->k;
	struct kb_val i, main = c->first;
	for (int64_t at = 0; at < c->unrolled; at += c->lanes)
		visit_column(e, c, kb_add_const(k, c->first, at), 1 + (int)(at / c->lanes) % slots, fn, user);
	if (c->unrolled > 0)
		return;
	if (c->lanes > 1) {
		int64_t step = (int64_t)c->lanes * slots;
		struct kb_val n = kb_sub(k, c->end, c->first);
		main = kb_sub(k, c->end, kb_rem_const(k, n, step));
		i = kb_loop(k, "i", c->first, main, step, 0);
		for (int slot = 0; slot < slots; slot++)
			visit_column(e, c, kb_add_const(k, i, (int64_t)slot * c->lanes), 1 + slot, fn, user);
		kb_end_loop(k);
	}
	i = kb_loop(k, "i", main, c->end, 1, 0);
	visit_column(e, c, i, 0, fn, user);
	kb_end_loop(k);
}

/* The accumulators in use are [first_slot, end_slot): unrolled columns have no scalar remainder. */
static int first_slot(const struct eval_columns *c)
{
	return c->unrolled > 0;
}

static int end_slot(const struct eval_columns *c, const struct accumulators *f)
{
	return c->lanes > 1 ? 1 + f->slots : 1;
}

/* Creates the accumulators as variables, set to `none`, the neutral element. */
static struct accumulators make_accumulators(struct eval *e, const struct eval_columns *c, const char *name,
                                             int slots, struct kb_val none)
{
	struct accumulators f = {.slots = slots};
	for (int i = first_slot(c); i < end_slot(c, &f); i++) {
		struct kb_type type = {kb_type_of(e->k, none).scalar, i ? c->lanes : 1};
		f.at[i] = kb_var(e->k, name, type, kb_splat(e->k, none, type.lanes));
	}
	return f;
}

/* All accumulators, and the lanes of vectors, reduced by op to one scalar. The scalar accumulator comes last. */
static struct kb_val reduce_all(struct eval *e, const struct eval_columns *c, enum kb_bin op,
                                const struct accumulators *f)
{
	struct kb *k = e->k;
	int n = end_slot(c, f);
	struct kb_val all = kb_get(k, f->at[n - 1]);
	for (int i = n - 2; i > 0; i--)
		all = kb_bin(k, op, kb_get(k, f->at[i]), all);
	if (n > 1)
		all = kb_reduce(k, op, all);
	return n > 1 && first_slot(c) == 0 ? kb_bin(k, op, kb_get(k, f->at[0]), all) : all;
}

/* ---- argmax ---- */

/* The largest element so far and the lowest column that holds it. */
struct argmax {
	struct accumulators best, where;
};

/* A column_fn: keeps the larger element and its column in each lane; of equal elements the first, since columns come in
 * increasing order. NaN is never larger. */
static void update_argmax(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	struct argmax *t = user;
	struct kb *k = e->k;
	struct kb_var best = t->best.at[slot], where = t->where.at[slot];
	struct kb_val old = kb_get(k, best), at = kb_get(k, where);
	int lanes = kb_type_of(k, old).lanes;
	struct kb_val here = kb_splat(k, kb_cvt(k, column, KB_I32), lanes);
	if (lanes > 1)
		here = kb_add(k, here, kb_lane_ids(k, lanes));
	struct kb_val better = kb_cmp(k, KB_GT, x, old);
	kb_set(k, best, kb_select(k, better, x, old));
	kb_set(k, where, kb_select(k, better, here, at));
}

/* If no element is above -infinity (`low`), with which the search began, no comparison has been true: sets `where` to
 * the first column of -infinity, if there is any (all others are NaN). */
static void find_first_low(struct eval *e, const struct eval_columns *c, struct kb_val low,
                           struct kb_var where)
{
	struct kb *k = e->k;
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", c->first, c->end, 1, 0);
	struct kb_val is_low = kb_cmp(k, KB_EQ, x_at(e, c, i, 1), low), old = kb_get(k, where);
	struct kb_val first = kb_min(k, kb_cvt(k, i, KB_I32), old);
	kb_set(k, where, kb_select(k, is_low, first, old));
	kb_end_loop(k);
	eval_release(e, mark);
}

/* Returns the largest element; *where: the lowest column that has it, i32. The maximum of all lanes, then the least
 * column of the lanes that have it. NaN is ignored; if all are NaN, NaN in column `first`. */
static struct kb_val eval_argmax_columns(struct eval *e, const struct eval_columns *c, struct kb_val *where)
{
	struct kb *k = e->k;
	const struct eval_point one = {.vec = -1};
	enum kb_scalar scalar = eval_scalar(eval_type(e, c->x)->dtype);
	struct kb_val none = kb_i32(k, INT32_MAX), low = eval_const(e, &one, scalar, -HUGE_VAL);
	struct argmax t = {.best = make_accumulators(e, c, "best", SLOTS, low)};
	t.where = make_accumulators(e, c, "where", SLOTS, none);
	for_each_column(e, c, SLOTS, update_argmax, &t);
	struct kb_val best = reduce_all(e, c, KB_MAX, &t.best);
	/* the lowest column among lanes that hold the maximum: others get INT32_MAX */
	for (int i = first_slot(c); i < end_slot(c, &t.best); i++) {
		struct kb_val old = kb_get(k, t.best.at[i]), at = kb_get(k, t.where.at[i]);
		int lanes = kb_type_of(k, old).lanes;
		struct kb_val maximum = kb_splat(k, best, lanes), nowhere = kb_splat(k, none, lanes);
		kb_set(k, t.where.at[i], kb_select(k, kb_cmp(k, KB_EQ, old, maximum), at, nowhere));
	}
	struct kb_var first = kb_var(k, "first", KB_I32_T, reduce_all(e, c, KB_MIN, &t.where));
	kb_if(k, kb_cmp(k, KB_EQ, best, low));
	find_first_low(e, c, low, first);
	kb_end_if(k);
	struct kb_val column = kb_cvt(k, c->first, KB_I32), found = kb_get(k, first);
	struct kb_val nothing = kb_cmp(k, KB_EQ, found, none);
	*where = kb_select(k, nothing, column, found);
	return kb_select(k, nothing, eval_const(e, &one, scalar, NAN), best);
}

/* ---- sum of exponentials ---- */

/* Shifted for stability: sum of exp(x - shift), shift = max(x). */
struct exp_sum {
	struct kb_val shift;
	struct accumulators most, sum;
};

/* A column_fn: keeps the maximum, for the shift. */
static void update_max(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	struct kb_var most = ((struct exp_sum *)user)->most.at[slot];
	(void)column;
	kb_set(e->k, most, kb_max(e->k, x, kb_get(e->k, most)));
}

/* A column_fn: adds exp(x - shift). */
static void add_exp(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	const struct exp_sum *p = user;
	struct kb *k = e->k;
	struct kb_var sum = p->sum.at[slot];
	(void)column;
	struct kb_val shift = kb_splat(k, p->shift, kb_type_of(k, x).lanes);
	struct kb_val exponential = math_exp_nonpositive(k, kb_sub(k, x, shift));
	kb_set(k, sum, kb_add(k, kb_get(k, sum), exponential));
}

/*
 * The values of block_log_softmax: [0] the maximum m; [1] sum of exp(x - m); [2] x[id] - m if the id of the row is
 * among the columns, otherwise -infinity. If all columns are -infinity, [1] is 1 and [2] is 0 or -infinity. NaN
 * propagates to [1].
 */
static void score_columns(struct eval *e, const struct ir_op *op, const struct eval_columns *c,
                          struct kb_val number[EVAL_BLOCK_VALUES])
{
	struct kb *k = e->k;
	struct kb_val none = kb_f32(k, -HUGE_VALF), zero = kb_f32(k, 0);
	struct exp_sum p = {.most = make_accumulators(e, c, "most", SLOTS, none)};
	p.sum = make_accumulators(e, c, "sum", 1,
	                          zero); /* one: the latency of the addition is hidden by exp */
	for_each_column(e, c, SLOTS, update_max, &p);
	struct kb_val most = reduce_all(e, c, KB_MAX, &p.most);
	p.shift = kb_select(k, kb_cmp(k, KB_EQ, most, none), zero, most);
	for_each_column(e, c, 1, add_exp, &p);
	struct kb_val sum = reduce_all(e, c, KB_ADD, &p.sum), empty = kb_cmp(k, KB_EQ, sum, zero);
	struct kb_var within = kb_var(k, "within", KB_F32_T, none);
	struct eval_point row = c->row;
	row.rank--;
	row.vec = -1;
	row.flat = (struct kb_val){0};
	const struct ir_type *x = eval_type(e, c->x);
	struct kb_val at = kb_cvt(k, eval_value(e, op->operands[1], &row), KB_INDEX);
	at = eval_clamp_index(e, at, eval_dim(e, x->dims[x->rank - 1]));
	struct kb_val is_below = kb_cmp(k, KB_LT, at, c->end);
	kb_if(k, kb_bin(k, KB_AND, kb_cmp(k, KB_GE, at, c->first), is_below));
	size_t mark = eval_mark(e);
	kb_set(k, within, kb_select(k, empty, zero, kb_sub(k, x_at(e, c, at, 1), p.shift)));
	eval_release(e, mark);
	kb_end_if(k);
	number[0] = most;
	number[1] = kb_select(k, empty, kb_f32(k, 1), sum);
	number[2] = kb_get(k, within);
}

int eval_block_values(struct eval *e, const struct ir_op *op, const struct eval_columns *c,
                      struct kb_val number[EVAL_BLOCK_VALUES])
{
	if (op->code == OP_block_log_softmax) {
		score_columns(e, op, c, number);
		return 3;
	}
	struct kb_val where;
	number[0] = eval_argmax_columns(e, c, &where);
	number[1] = kb_cvt(e->k, where, kb_type_of(e->k, number[0]).scalar);
	return 2;
}

int64_t eval_block_width(const struct ir_op *op)
{
	return op->code == OP_block_argmax ? ((const struct attrs_block_argmax *)op->attrs)->width
	                                   : ((const struct attrs_block_log_softmax *)op->attrs)->width;
}

/* One value of a block op (block_argmax, block_log_softmax) at p = [.., which value, block]; p without lanes. All
 * values of the block are computed, since index `which` is known in the call only, and one is selected: a fallback. */
static struct kb_val eval_row_block(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	const struct ir_type *x = eval_type(e, op->operands[0]);
	struct eval_columns c = {.x = op->operands[0], .row = {.rank = x->rank, .vec = -1}, .lanes = 1};
	struct kb_val number[EVAL_BLOCK_VALUES], width = kb_index(k, eval_block_width(op));
	if (op->code == OP_block_log_softmax && eval_scalar(x->dtype) != KB_F32)
		return eval_unsupported(e, op, "block_log_softmax of f64");
	for (int i = 0; i + 1 < x->rank; i++)
		c.row.index[i] = p->index[i];
	c.first = kb_mul(k, p->index[x->rank], width);
	c.end = kb_min(k, kb_add(k, c.first, width), eval_dim(e, x->dims[x->rank - 1]));
	int n = eval_block_values(e, op, &c, number);
	struct kb_val selected = number[n - 1];
	for (int i = n - 2; i >= 0; i--) {
		struct kb_val is_it = kb_cmp(k, KB_EQ, p->index[x->rank - 1], kb_index(k, i));
		selected = kb_select(k, is_it, number[i], selected);
	}
	return selected;
}

/* ---- masks, reductions, contractions ---- */

/* The type of a variable for v in the lanes of p. */
static struct kb_type var_type(struct eval *e, struct ir_value v, const struct eval_point *p)
{
	return KB_TYPE(eval_scalar(eval_type(e, v)->dtype), p->vec < 0 ? 1 : e->lanes);
}

/* x at p, broadcast to the lanes of `like`. */
static struct kb_val lanes_value(struct eval *e, struct ir_value x, const struct eval_point *p,
                                 const struct eval_point *like)
{
	struct kb_val v = eval_value(e, x, p);
	return like->vec < 0 ? v : kb_splat(e->k, v, e->lanes);
}

/* ---- masks ---- */

/* Element b of v [B], a length per sequence. */
static struct kb_val of_sequence(struct eval *e, struct ir_value v, struct kb_val b)
{
	struct eval_point at = {.rank = 1, .index = {b}, .vec = -1};
	return eval_value(e, v, &at);
}

/* The position of query i of sequence b, i32: tokens before the call, past[b], and i. */
static struct kb_val query_position(struct eval *e, const struct eval_mask *m, struct kb_val b,
                                    struct kb_val i)
{
	struct kb_val at = kb_cvt(e->k, i, KB_I32);
	return m->past.id ? kb_add(e->k, at, of_sequence(e, m->past, b)) : at;
}

/* The length of the sequence and the position of the query bound it; a window without causal mask also ends after. */
struct kb_val eval_visible_end(struct eval *e, const struct eval_mask *m, struct kb_val b, struct kb_val i)
{
	struct kb *k = e->k;
	struct kb_val limit = {0};
	if (m->len.id)
		limit = of_sequence(e, m->len, b);
	if (!m->causal && m->window <= 0)
		return limit;
	struct kb_val last =
	        kb_add(k, query_position(e, m, b, i), kb_i32(k, m->causal ? 1 : (int32_t)m->window));
	return limit.id ? kb_min(k, limit, last) : last;
}

struct kb_val eval_visible_begin(struct eval *e, const struct eval_mask *m, struct kb_val b, struct kb_val i)
{
	struct kb *k = e->k;
	if (m->window <= 0)
		return (struct kb_val){0};
	return kb_add(k, query_position(e, m, b, i), kb_i32(k, 1 - (int32_t)m->window));
}

/* x where lo <= index on the last axis (a key) < limit, otherwise -infinity; lo and limit may be none (no bound). */
static struct kb_val masked(struct eval *e, const struct eval_point *p, struct kb_val lo, struct kb_val limit,
                            struct kb_val x)
{
	if (!limit.id && !lo.id)
		return x;
	struct kb_val j = eval_index_i32(e, p, p->rank - 1);
	int lanes = kb_type_of(e->k, x).lanes;
	struct kb_val none = eval_const(e, p, kb_type_of(e->k, x).scalar, -HUGE_VAL);
	j = kb_splat(e->k, j, lanes);
	none = kb_splat(e->k, none, lanes);
	if (limit.id)
		x = kb_select(e->k, kb_cmp(e->k, KB_LT, j, kb_splat(e->k, limit, lanes)), x, none);
	if (lo.id)
		x = kb_select(e->k, kb_cmp(e->k, KB_GE, j, kb_splat(e->k, lo, lanes)), x, none);
	return x;
}

/* mask of scores x [B, .., S, T]: those of keys that the query does not see become -infinity. Lanes run along keys. */
static struct kb_val mask(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct attrs_mask *a = op->attrs;
	struct eval_mask m = {op->operands[1], op->operands[2], a->mask == MASK_causal, a->window};
	if (p->vec >= 0 && p->vec != p->rank - 1 && e->lanes > 1)
		return eval_internal(e, op, "lanes across rows");
	struct kb_val b = p->index[0], i = p->index[p->rank - 2];
	struct kb_val limit = eval_visible_end(e, &m, b, i), lo = eval_visible_begin(e, &m, b, i);
	return masked(e, p, lo, limit, lanes_value(e, op->operands[0], p, p));
}

/* ---- reductions ---- */

struct reduction {
	struct eval *e;
	const struct ir_op *op;
	bool reduced[IR_RANK_MAX]; /* by axis of x, the operand */
	struct eval_point at;      /* the current element of x */
	int rank;
	struct kb_var sum;  /* accumulator in the lanes of the result */
	struct kb_var wide; /* vector accumulator along the last axis, if wide_lanes > 1 */
	int wide_lanes;     /* vector width of the reduction of the last axis; 1: scalar */
};

/* a and b combined by the op; a mean is a sum until divide_by_count. NaN wins in math_max and math_min. */
static struct kb_val combine(const struct reduction *r, struct kb_val a, struct kb_val b)
{
	switch ((int)r->op->code) {
	case OP_reduce_max: return math_max(r->e->k, a, b);
	case OP_reduce_min: return math_min(r->e->k, a, b);
	}
	return kb_add(r->e->k, a, b);
}

/* The identity of the reduction: 0, or the lowest or highest value of the dtype. */
static struct kb_val neutral(const struct reduction *r)
{
	enum ir_dtype t = eval_type(r->e, r->op->operands[0])->dtype;
	double v = r->op->code == OP_reduce_max   ? ir_round(t, -HUGE_VAL)
	           : r->op->code == OP_reduce_min ? ir_round(t, HUGE_VAL)
	                                          : 0;
	return eval_const(r->e, &(struct eval_point){.vec = -1}, eval_scalar(t), v);
}

/* to = combine(to, x at r->at): the body of the innermost loop, whose cached values end with it. */
static void accumulate(struct reduction *r, struct kb_var to)
{
	struct kb *k = r->e->k;
	size_t mark = eval_mark(r->e);
	struct kb_val x = eval_value(r->e, r->op->operands[0], &r->at);
	struct kb_val old = kb_get(k, to);
	kb_set(k, to, combine(r, old, kb_splat(k, x, kb_type_of(k, old).lanes)));
	eval_release(r->e, mark);
}

static void reduce_axis(struct reduction *r, int axis);

/* The last axis, if vectors can be loaded along it: vectors into `wide`, then the scalar remainder into `sum`. */
static void reduce_row(struct reduction *r, struct kb_val size)
{
	struct kb *k = r->e->k;
	struct kb_val wide = kb_index(k, r->wide_lanes);
	struct kb_val main = kb_mul(k, kb_bin(k, KB_DIV, size, wide), wide);
	struct eval_width before = eval_width(r->e, r->wide_lanes, r->wide_lanes);
	int axis = r->rank - 1;
	r->at.vec = axis;
	r->at.index[axis] = kb_loop(k, "i", kb_index(k, 0), main, r->wide_lanes, 0);
	accumulate(r, r->wide);
	kb_end_loop(k);
	eval_width(r->e, before.lanes, before.valid);
	r->at.vec = -1;
	r->at.index[axis] = kb_loop(k, "i", main, size, 1, 0);
	accumulate(r, r->sum);
	kb_end_loop(k);
}

/* Emits the loop nest over the reduced axes from `axis` on (recursion), around `accumulate`; the last axis by vectors
 * if it can be. */
static void reduce_axis(struct reduction *r, int axis)
{
	struct kb *k = r->e->k;
	while (axis < r->rank && !r->reduced[axis])
		axis++;
	if (axis == r->rank) {
		accumulate(r, r->sum);
		return;
	}
	struct kb_val size = eval_dim(r->e, eval_type(r->e, r->op->operands[0])->dims[axis]);
	if (axis == r->rank - 1 && r->wide_lanes > 1) {
		reduce_row(r, size);
		return;
	}
	r->at.index[axis] = kb_loop(k, "i", kb_index(k, 0), size, 1, 0);
	reduce_axis(r, axis + 1);
	kb_end_loop(k);
}

/* Sets r->at to the indices of p, a point of the result, on the axes of x that are not reduced, lanes included. keep:
 * reduced axes stay in the result with size 1, and are passed over. */
static void set_kept_indices(struct reduction *r, const struct eval_point *p, bool keep)
{
	int from = 0;
	r->at = (struct eval_point){.rank = r->rank, .vec = -1};
	for (int i = 0; i < r->rank; i++) {
		if (r->reduced[i]) {
			from += keep;
			continue;
		}
		r->at.index[i] = p->index[from];
		if (p->vec == from)
			r->at.vec = i;
		from++;
	}
}

/* The reduction of both accumulators, vector and scalar. Min and max combine lane by lane, because kb_reduce would lose
 * NaN, which must reach the result. */
static struct kb_val combine_accumulators(struct reduction *r)
{
	struct kb *k = r->e->k;
	struct kb_val sum = kb_get(k, r->sum);
	if (r->wide_lanes == 1)
		return sum;
	struct kb_val wide = kb_get(k, r->wide);
	bool adds = r->op->code == OP_reduce_sum || r->op->code == OP_reduce_mean;
	if (adds)
		return combine(r, kb_reduce(k, KB_ADD, wide), sum);
	for (int l = 0; l < r->wide_lanes; l++)
		sum = combine(r, sum, kb_lane(k, wide, l));
	return sum;
}

/* The mean: the sum divided by the number of elements of the reduced axes. */
static struct kb_val divide_by_count(struct reduction *r, struct kb_val sum)
{
	struct kb *k = r->e->k;
	const struct ir_type *x = eval_type(r->e, r->op->operands[0]);
	struct kb_val n = kb_index(k, 1);
	for (int i = 0; i < r->rank; i++)
		if (r->reduced[i])
			n = kb_mul(k, n, eval_dim(r->e, x->dims[i]));
	struct kb_type t = kb_type_of(k, sum);
	return kb_bin(k, KB_DIV, sum, kb_splat(k, kb_cvt(k, n, t.scalar), t.lanes));
}

/* The axis at position i of the attributes; negative ones count from the end. */
static int reduced_axis(const struct attrs_reduce_sum *a, int rank, size_t i)
{
	return (int)(a->axes.items[i] < 0 ? a->axes.items[i] + rank : a->axes.items[i]);
}

/* One element of a reduction, or one per lane. A scalar over the last axis is reduced by vectors where x vectorizes.
 * attrs_reduce_sum, _mean, _max and _min have the same layout. Sums of integers wrap to their dtype at the end. */
static struct kb_val reduce_at(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct attrs_reduce_sum *a = op->attrs;
	struct reduction r = {.e = e, .op = op, .rank = eval_type(e, op->operands[0])->rank, .wide_lanes = 1};
	int native = kb_caps(e->k)->lanes;
	for (size_t i = 0; i < a->axes.n; i++)
		r.reduced[reduced_axis(a, r.rank, i)] = true;
	set_kept_indices(&r, p, a->keep);
	struct kb_type t = var_type(e, op->operands[0], p);
	r.sum = kb_var(e->k, "sum", t, kb_splat(e->k, neutral(&r), t.lanes));
	bool scalar = p->vec < 0 || e->lanes == 1;
	if (scalar && r.rank > 0 && r.reduced[r.rank - 1] &&
	    eval_vectorizes(e, op->operands[0], r.rank - 1)) {
		r.wide_lanes = native;
		r.wide = kb_var(e->k, "wide", KB_TYPE(t.scalar, native), kb_splat(e->k, neutral(&r), native));
	}
	size_t mark = eval_mark(e);
	reduce_axis(&r, 0);
	eval_release(e, mark);
	struct kb_val sum = combine_accumulators(&r);
	enum ir_dtype dtype = eval_type(e, op->operands[0])->dtype;
	if (ir_dtype_class(dtype) == DTCLASS_INT)
		return eval_round_to_dtype(e, dtype, sum);
	return op->code == OP_reduce_mean ? divide_by_count(&r, sum) : sum;
}

/* A reduction at p. Lanes along a reduced axis that stays with size 1 are all the same element: it is computed as a
 * scalar, so that its terms can be reduced by vectors, and broadcast. */
static struct kb_val reduce(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct attrs_reduce_sum *a = op->attrs;
	int rank = eval_type(e, op->operands[0])->rank;
	bool same = false;
	for (size_t i = 0; a->keep && i < a->axes.n; i++)
		same = same || reduced_axis(a, rank, i) == p->vec;
	if (!same)
		return reduce_at(e, op, p);
	struct eval_point one = *p;
	one.vec = -1;
	return kb_splat(e->k, reduce_at(e, op, &one), e->lanes);
}

/* argmax over the last axis of x, which is in memory, by vectors of the native width; the columns are a whole row. */
static struct kb_val argmax_of_row(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct ir_type *x = eval_type(e, op->operands[0]);
	int axis = x->rank - 1;
	struct eval_columns c = {.x = op->operands[0], .row = {.rank = x->rank, .vec = axis}};
	struct kb_val where;
	for (int i = 0; i < axis; i++)
		c.row.index[i] = p->index[i];
	c.row.index[axis] = c.first = kb_index(e->k, 0);
	c.end = eval_dim(e, x->dims[axis]);
	c.lanes = kb_caps(e->k)->lanes;
	size_t mark = eval_mark(e);
	eval_hoist(e, c.x, &c.row);
	(void)eval_argmax_columns(e, &c, &where);
	eval_release(e, mark);
	return where;
}

/* The lowest index of the largest element, in any lanes. By vectors along the reduced axis for f32 in memory, else by a
 * loop. For floats the initial best is NaN, which any number replaces; integers take the first element. */
static struct kb_val argmax(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct reduction r = {.e = e, .op = op, .rank = eval_type(e, op->operands[0])->rank};
	int axis = (int)((const struct attrs_argmax *)op->attrs)->axis;
	axis = axis < 0 ? axis + r.rank : axis;
	if (axis == r.rank - 1 && (p->vec < 0 || e->lanes == 1) && kb_caps(k)->lanes > 1 &&
	    eval_scalar(eval_type(e, op->operands[0])->dtype) == KB_F32 && eval_tensor(e, op->operands[0]) &&
	    eval_vectorizes(e, op->operands[0], axis))
		return argmax_of_row(e, op, p);
	r.reduced[axis] = true;
	set_kept_indices(&r, p, false);
	struct kb_type t = var_type(e, op->operands[0], p);
	bool is_int = t.scalar == KB_I32 || t.scalar == KB_I64;
	struct kb_var best = kb_var(k, "best", t, eval_const(e, p, t.scalar, is_int ? 0 : (double)NAN));
	struct kb_var where = kb_var(k, "where", KB_TYPE(KB_I32, t.lanes), eval_const(e, p, KB_I32, 0));
	struct kb_val size = eval_dim(e, eval_type(e, op->operands[0])->dims[axis]);
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), size, 1, 0);
	r.at.index[axis] = i;
	struct kb_val x = lanes_value(e, op->operands[0], &r.at, p), old = kb_get(k, best);
	struct kb_val is_number = kb_cmp(k, KB_EQ, x, x);
	struct kb_val first = kb_bin(k, KB_AND, kb_cmp(k, KB_NE, old, old), is_number);
	if (is_int)
		first = kb_splat(k, kb_cmp(k, KB_EQ, i, kb_index(k, 0)), t.lanes);
	struct kb_val better = kb_bin(k, KB_OR, first, kb_cmp(k, KB_GT, x, old));
	kb_set(k, best, kb_select(k, better, x, old));
	struct kb_val here = kb_splat(k, kb_cvt(k, i, KB_I32), t.lanes);
	kb_set(k, where, kb_select(k, better, here, kb_get(k, where)));
	kb_end_loop(k);
	eval_release(e, mark);
	return kb_get(k, where);
}

/* ---- contractions ---- */

/* The inner product over i < size of a at `at_a` and b at `at_b`, i being the index on axis_a and axis_b. */
struct dot {
	struct ir_value a, b;
	struct eval_point at_a, at_b;
	int axis_a, axis_b;
};

/* Emits the inner product for the lanes of p, which run along N of b; a is a scalar for all lanes. One chain of
 * multiply-adds in increasing i, so that lanes do not change the bits. Row offsets of b are emitted before the loop. */
static struct kb_val dot(struct eval *e, struct dot *d, struct kb_val size, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct kb_type t = var_type(e, d->a, p);
	struct kb_var sum = kb_var(k, "sum", t, eval_const(e, p, t.scalar, 0));
	eval_hoist(e, d->b, &d->at_b);
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "k", kb_index(k, 0), size, 1, 0);
	d->at_a.index[d->axis_a] = i;
	d->at_b.index[d->axis_b] = i;
	struct kb_val a = lanes_value(e, d->a, &d->at_a, p), b = lanes_value(e, d->b, &d->at_b, p);
	kb_set(k, sum, kb_fma(k, a, b, kb_get(k, sum)));
	kb_end_loop(k);
	eval_release(e, mark);
	return kb_get(k, sum);
}

/* True if lanes run along another axis than N, the last one: contractions support none, and analyses exclude it. */
static bool has_lanes_across_rows(struct eval *e, const struct eval_point *p)
{
	return p->vec >= 0 && p->vec != p->rank - 1 && e->lanes > 1;
}

/* matmul: a [.., M, K], with ta [.., K, M]; b [.., K, N], with tb [.., N, K]. Leading axes have the same indices in
 * both. */
static struct kb_val matmul(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct attrs_matmul *at = op->attrs;
	int r = p->rank;
	struct dot d = {.a = op->operands[0], .b = op->operands[1]};
	d.at_a = (struct eval_point){.rank = r, .vec = -1};
	d.at_b = (struct eval_point){.rank = r, .vec = -1};
	if (has_lanes_across_rows(e, p))
		return eval_internal(e, op, "lanes across rows");
	for (int i = 0; i < r - 2; i++)
		d.at_a.index[i] = d.at_b.index[i] = p->index[i];
	d.axis_a = at->ta ? r - 2 : r - 1;
	d.axis_b = at->tb ? r - 1 : r - 2;
	int m = at->ta ? r - 1 : r - 2, n = at->tb ? r - 2 : r - 1;
	d.at_a.index[m] = p->index[r - 2];
	d.at_b.index[n] = p->index[r - 1];
	d.at_a.index[d.axis_a] = d.at_b.index[d.axis_b] = kb_index(e->k, 0);
	d.at_b.vec = p->vec < 0 ? -1 : n;
	return dot(e, &d, eval_dim(e, eval_type(e, d.a)->dims[d.axis_a]), p);
}

/* linear: x [.., K], w [N, K], bias [N]; expert_linear: w [E, N, K], ids [..], bias [E, N], where the id of the row
 * selects the expert and is clamped, so that no id reads outside. */
static struct kb_val linear(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	bool is_expert = op->code == OP_expert_linear;
	int last = p->rank - 1, n = is_expert; /* axis of N in w */
	struct kb_val zero = kb_index(e->k, 0);
	struct dot d = {
	        .a = op->operands[0], .b = op->operands[1], .at_a = *p, .axis_a = last, .axis_b = n + 1};
	struct ir_value bias = op->operands[2 + is_expert];
	if (has_lanes_across_rows(e, p))
		return eval_internal(e, op, "lanes across rows");
	d.at_a.vec = -1;
	d.at_b = (struct eval_point){.rank = n + 2, .vec = p->vec < 0 ? -1 : n};
	if (is_expert) {
		struct eval_point row = *p;
		row.rank = last;
		row.vec = -1;
		row.flat = (struct kb_val){0};
		struct kb_val id = eval_value(e, op->operands[2], &row);
		d.at_b.index[0] = eval_clamp_index(e, id, eval_dim(e, eval_type(e, d.b)->dims[0]));
	}
	d.at_b.index[n] = p->index[last];
	d.at_a.index[last] = d.at_b.index[n + 1] = zero;
	struct kb_val sum = dot(e, &d, eval_dim(e, eval_type(e, d.b)->dims[n + 1]), p);
	if (!bias.id)
		return sum;
	struct eval_point at = d.at_b;
	at.rank = n + 1;
	return kb_add(e->k, sum, lanes_value(e, bias, &at, p));
}

/* A weight without memory: it has no elements, so the code that reads one is never run; or its index is computed. */
static struct kb_val weight_element(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct ir_type *t = ((const struct attrs_weight *)op->attrs)->weight->type;
	for (int i = 0; i < t->rank; i++)
		if (ir_dim_equals(t->dims[i], 0))
			return eval_const(e, p, eval_scalar(eval_type(e, eval_result(op))->dtype), 0);
	return eval_unsupported(e, op, "a weight with an index that is no index of a repeat");
}

/* Ops that no element-by-element rule covers, by opcode. Others are errors: generators bind their results. */
struct kb_val eval_by_loops(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	switch ((int)op->code) {
	case OP_mask: return mask(e, op, p);
	case OP_reduce_sum:
	case OP_reduce_mean:
	case OP_reduce_max:
	case OP_reduce_min: return reduce(e, op, p);
	case OP_argmax: return argmax(e, op, p);
	case OP_block_argmax:
	case OP_block_log_softmax: return eval_row_block(e, op, p);
	case OP_cumsum:
	case OP_topk:
	case OP_last_index: return eval_in_order(e, op, p);
	case OP_matmul: return matmul(e, op, p);
	case OP_linear:
	case OP_expert_linear: return linear(e, op, p);
	case OP_rope: return eval_rope(e, op, p);
	case OP_weight: return weight_element(e, op, p);
	}
	return eval_internal(e, op, "an op that cannot be computed by element stands here");
}
