/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fallback generator, for any op that the evaluator supports, of any shape and stride: for each result a loop
 * over all elements in row-major order, rows in pieces of at most BLOCK elements divided among workers; then
 * the writes of state ops (KV cache). Ops that carry state along a row have loops of their own.
 *
 * An element of a value is computed by the evaluator at a point (index of each axis); e->lanes neighbours at once along
 * at.vec. eval_mark and eval_release bracket what is cached in an iteration of an emitted loop.
 *
 * A scan computes a row in order: cumsum carries the sum; topk keeps the k best elements so far as a heap in the
 * memory of the result [.., 2, k], the worst at its root, and compares full vectors with the root first; last_index
 * stores the index of each id in the row that the id selects. Larger values rank first, then lower indices; NaN ranks
 * last. Without a scan (fused after another root) the same op is evaluated element by element, by loops over the row.
 */
#include "backends/kernels/generator.h"
#include "backends/kernels/rowwise_nest.h"

#include <inttypes.h>
#include <math.h>

/* ---- ops that scan rows in order ---- */

/* ---- ranking ---- */

/* An element and its index. Larger values rank first, then lower indices; NaN ranks last. */
struct ranked {
	struct kb_val value, index;
};

/* bool: a ranks after b: its value is less (or NaN, and that of b is not), or equal and its index higher. */
static struct kb_val ranked_after(struct kb *k, struct ranked a, struct ranked b)
{
	enum kb_scalar s = kb_type_of(k, a.value).scalar;
	struct kb_val less = kb_cmp(k, KB_LT, a.value, b.value), same = kb_cmp(k, KB_EQ, a.value, b.value);
	if (s == KB_F32 || s == KB_F64) {
		struct kb_val none_a = kb_cmp(k, KB_NE, a.value, a.value);
		struct kb_val none_b = kb_cmp(k, KB_NE, b.value, b.value);
		less = kb_bin(k, KB_OR, less, kb_bin(k, KB_AND, none_a, kb_un(k, KB_NOT, none_b)));
		same = kb_bin(k, KB_OR, same, kb_bin(k, KB_AND, none_a, none_b));
	}
	struct kb_val later = kb_bin(k, KB_AND, same, kb_cmp(k, KB_GT, a.index, b.index));
	return kb_bin(k, KB_OR, less, later);
}

/* An index as a value of type s, as topk stores it. */
static struct kb_val ranked_index(struct kb *k, struct kb_val index, enum kb_scalar s)
{
	return s == KB_I64 ? kb_cvt(k, index, KB_I64) : kb_cvt(k, kb_cvt(k, index, KB_I32), s);
}

/* ---- the scan ---- */

struct row_scan {
	struct kernel *g;
	struct eval *e;
	struct kb *k;
	const struct ir_op *op;
	const struct eval_tensor *to;
	struct eval_point at;  /* point in x */
	struct eval_point out; /* point in the result */
	struct kb_val size;    /* of the last axis of x */
	enum ir_dtype dtype;
	enum kb_scalar scalar;
};

/* x at index i of the open row. */
static struct kb_val x_at(struct row_scan *w, struct kb_val i)
{
	w->at.index[w->at.rank - 1] = i;
	w->at.vec = -1;
	return eval_value(w->e, w->op->operands[0], &w->at);
}

/* ---- cumsum ---- */

/* Stores all sums of the row; the running sum itself is not rounded to the dtype, so that errors do not add up. */
static void scan_cumsum(struct row_scan *w)
{
	struct kb *k = w->k;
	struct kb_val zero = eval_const(w->e, &w->out, w->scalar, 0);
	struct kb_var sum = kb_var(k, "sum", KB_TYPE(w->scalar, 1), zero);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), w->size, 1, 0);
	size_t mark = eval_mark(w->e);
	struct kb_val x = x_at(w, i);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), x));
	w->out.index[w->out.rank - 1] = i;
	eval_store(w->e, w->to, &w->out, eval_round_to_dtype(w->e, w->dtype, kb_get(k, sum)));
	eval_release(w->e, mark);
	kb_end_loop(k);
}

/* ---- topk: the result [.., 2, k] is a heap of values and indices ---- */

enum { VALUE, INDEX };

/* Element of the result that is slot `slot` of the heap's values or indices. */
static struct kb_val heap_offset(struct row_scan *w, int which, struct kb_val slot)
{
	w->out.index[w->out.rank - 2] = kb_index(w->k, which);
	w->out.index[w->out.rank - 1] = slot;
	return eval_offset(w->e, w->to, &w->out);
}

static struct ranked heap_load(struct row_scan *w, struct kb_val slot)
{
	struct kb_type t = KB_TYPE(w->scalar, 1);
	struct kb_val value = kb_load(w->k, t, w->to->t.ptr, heap_offset(w, VALUE, slot), 0, 0);
	return (struct ranked){value, kb_load(w->k, t, w->to->t.ptr, heap_offset(w, INDEX, slot), 0, 0)};
}

static void heap_store(struct row_scan *w, struct kb_val slot, struct ranked x)
{
	kb_store(w->k, x.value, w->to->t.ptr, heap_offset(w, VALUE, slot), 0, 0);
	kb_store(w->k, x.index, w->to->t.ptr, heap_offset(w, INDEX, slot), 0, 0);
}

/* Stores x in the subheap below `slot`, whose root is free (sift-down): the worse child moves up until x ranks after
 * both. `end`: slots of the heap. */
static void sift_down(struct row_scan *w, struct kb_val slot, struct kb_val end, struct ranked x)
{
	struct kb *k = w->k;
	struct kb_var hole = kb_var(k, "hole", KB_INDEX_T, slot);
	kb_forever(k);
	struct kb_val at = kb_get(k, hole);
	struct kb_val left = kb_add_const(k, kb_mul_const(k, at, 2), 1);
	kb_break_if(k, kb_cmp(k, KB_GE, left, end));
	struct kb_val right = kb_add_const(k, left, 1);
	right = kb_select(k, kb_cmp(k, KB_LT, right, end), right, left);
	struct ranked a = heap_load(w, left), b = heap_load(w, right);
	struct kb_val is_right = ranked_after(k, b, a);
	struct ranked worse = {.value = kb_select(k, is_right, b.value, a.value)};
	worse.index = kb_select(k, is_right, b.index, a.index);
	kb_break_if(k, ranked_after(k, x, worse));
	heap_store(w, at, worse);
	kb_set(k, hole, kb_select(k, is_right, right, left));
	kb_end_forever(k);
	heap_store(w, kb_get(k, hole), x);
}

static struct ranked load_ranked(struct row_scan *w, struct kb_val i)
{
	struct ranked x = {.value = x_at(w, i)};
	x.index = ranked_index(w->k, i, w->scalar);
	return x;
}

/* Builds the heap from the first n elements (Floyd): the worst at the root. */
static void build_heap(struct row_scan *w, int64_t n)
{
	struct kb *k = w->k;
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, n), 1, 0);
	size_t mark = eval_mark(w->e);
	heap_store(w, i, load_ranked(w, i));
	eval_release(w->e, mark);
	kb_end_loop(k);
	i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, n / 2), 1, 0);
	struct kb_val slot = kb_sub(k, kb_index(k, n / 2 - 1), i);
	sift_down(w, slot, kb_index(k, n), heap_load(w, slot));
	kb_end_loop(k);
}

/* Offers element i, which ranks after equal ones in the heap: replaces the root if better. */
static void heap_offer(struct row_scan *w, struct kb_val i, int64_t n)
{
	struct kb *k = w->k;
	size_t mark = eval_mark(w->e);
	struct ranked x = load_ranked(w, i);
	kb_if(k, ranked_after(k, heap_load(w, kb_index(k, 0)), x));
	sift_down(w, kb_index(k, 0), kb_index(k, n), x);
	kb_end_if(k);
	eval_release(w->e, mark);
}

/* Offers elements [i, i + lanes) one by one, if any exceeds the root's value (or that is NaN, which any number beats):
 * most vectors are passed by one comparison. An equal element has a higher index, so it never enters. */
static void heap_offer_vector(struct row_scan *w, struct kb_val i, int lanes, int64_t n)
{
	struct kb *k = w->k;
	size_t mark = eval_mark(w->e);
	struct eval_width before = eval_width(w->e, lanes, lanes);
	w->at.index[w->at.rank - 1] = i;
	w->at.vec = w->at.rank - 1;
	w->at.shifted = true;
	struct kb_val x = eval_value(w->e, w->op->operands[0], &w->at);
	struct kb_val low = kb_splat(k, kb_f32(k, -HUGE_VALF), lanes);
	x = kb_select(k, kb_cmp(k, KB_EQ, x, x), x, low);
	eval_width(w->e, before.lanes, before.valid);
	struct kb_val root = heap_load(w, kb_index(k, 0)).value;
	struct kb_val more = kb_cmp(k, KB_GT, kb_reduce(k, KB_MAX, x), root);
	more = kb_bin(k, KB_OR, more, kb_cmp(k, KB_NE, root, root));
	eval_release(w->e, mark);
	kb_if(k, more);
	struct kb_val j = kb_loop(k, "j", i, kb_add_const(k, i, lanes), 1, KB_NONEMPTY);
	heap_offer(w, j, n);
	kb_end_loop(k);
	kb_end_if(k);
}

/* Heapsort: moves the root, the worst of the remaining elements, behind them, so that the best is first at the end. */
static void sort_heap(struct row_scan *w, int64_t n)
{
	struct kb *k = w->k;
	struct kb_val i = kb_loop(k, "i", kb_index(k, 1), kb_index(k, n), 1, 0);
	struct kb_val end = kb_sub(k, kb_index(k, n), i);
	struct ranked last = heap_load(w, end);
	heap_store(w, end, heap_load(w, kb_index(k, 0)));
	sift_down(w, kb_index(k, 0), end, last);
	kb_end_loop(k);
}

/* The k best elements of a row, sorted: a heap of the first k, to which all others are offered, by vectors if x is f32
 * and vectorizes, then one by one. */
static void scan_topk(struct row_scan *w)
{
	struct kb *k = w->k;
	int64_t n = ((const struct attrs_topk *)w->op->attrs)->k;
	int lanes = rowwise_lanes(w->g->job->group->attrs, kb_caps(k));
	struct kb_val main = kb_index(k, n);
	build_heap(w, n);
	if (w->scalar == KB_F32 && lanes > 1 && eval_vectorizes(w->e, w->op->operands[0], w->at.rank - 1)) {
		struct kb_val vector = kb_index(k, lanes), left = kb_sub(k, w->size, main);
		main = kb_add(k, main, kb_mul(k, kb_bin(k, KB_DIV, left, vector), vector));
		struct kb_val i = kb_loop(k, "i", kb_index(k, n), main, lanes, 0);
		heap_offer_vector(w, i, lanes, n);
		kb_end_loop(k);
	}
	struct kb_val i = kb_loop(k, "i", main, w->size, 1, 0);
	heap_offer(w, i, n);
	kb_end_loop(k);
	sort_heap(w, n);
}

/* ---- last_index ---- */

/* For each row of the result the last position whose id is the row, or -1. Rows of the result are divided among
 * workers; each worker scans all ids and stores those of its rows, later ones over earlier ones. */
static void emit_last_index(struct row_scan *w)
{
	struct kb *k = w->k;
	struct kb_val hi, rows = eval_dim(w->e, ir_type_of(w->g->job->func, w->op->results[0])->dims[0]);
	struct kb_val lo = eval_worker_range(w->e, rows, &hi);
	struct kb_val i = kb_loop(k, "row", lo, hi, 1, 0);
	w->out.index[0] = i;
	eval_store(w->e, w->to, &w->out, kb_i32(k, -1));
	kb_end_loop(k);
	i = kb_loop(k, "i", kb_index(k, 0), w->size, 1, 0);
	size_t mark = eval_mark(w->e);
	struct kb_val row = kb_cvt(k, x_at(w, i), KB_INDEX);
	struct kb_val is_below = kb_cmp(k, KB_LT, row, hi);
	kb_if(k, kb_bin(k, KB_AND, kb_cmp(k, KB_GE, row, lo), is_below));
	w->out.index[0] = row;
	eval_store(w->e, w->to, &w->out, kb_cvt(k, i, KB_I32));
	kb_end_if(k);
	eval_release(w->e, mark);
	kb_end_loop(k);
}

/* ---- rows ---- */

/* Loop over this worker's rows; result and operand have the same axes before the last of x. */
static void loop_rows(struct row_scan *w, void (*row)(struct row_scan *w))
{
	struct kb *k = w->k;
	struct kb_val size[IR_RANK_MAX], hi;
	int lead = w->at.rank - 1;
	eval_sizes(w->e, w->op->operands[0], size);
	struct kb_val lo = eval_worker_range(w->e, eval_dim_product(w->e, size, 0, lead), &hi);
	struct kb_val t = kb_loop(k, "row", lo, hi, 1, 0);
	size_t mark = eval_mark(w->e);
	eval_unravel(w->e, t, size, lead, w->at.index);
	for (int i = 0; i < lead; i++)
		w->out.index[i] = w->at.index[i];
	row(w);
	eval_release(w->e, mark);
	kb_end_loop(k);
}

/* True: the group is one scan, and was emitted; else its elements are evaluated. */
static bool kernel_in_order(struct kernel *g)
{
	enum ir_opcode code = g->root->code;
	bool is_scan = code == OP_cumsum || code == OP_topk || code == OP_last_index;
	if (!is_scan || g->out.n != 1 || !ir_same_value(g->out.items[0].value, g->root->results[0]))
		return false;
	const struct ir_type *x = ir_type_of(g->job->func, g->root->operands[0]);
	struct row_scan w = {
	        .g = g, .e = g->e, .k = g->k, .op = g->root, .to = &g->out.items[0].to, .dtype = x->dtype};
	w.scalar = eval_scalar(x->dtype);
	w.at = (struct eval_point){.rank = x->rank, .vec = -1};
	w.out = (struct eval_point){.rank = ir_type_of(g->job->func, g->root->results[0])->rank, .vec = -1};
	w.size = eval_dim(w.e, x->dims[x->rank - 1]);
	if (code == OP_last_index)
		emit_last_index(&w);
	else
		loop_rows(&w, code == OP_cumsum ? scan_cumsum : scan_topk);
	return true;
}

/* ---- the evaluator ---- */

static const struct ir_type *operand_type(const struct eval *e, const struct ir_op *op)
{
	return ir_type_of(e->job->func, op->operands[0]);
}

/* x at index i of the row of `at`. */
static struct kb_val element_at(struct eval *e, const struct ir_op *op, struct eval_point *at,
                                struct kb_val i)
{
	at->index[at->rank - 1] = i;
	return eval_value(e, op->operands[0], at);
}

/* Sum of elements 0 .. p of the row. */
static struct kb_val cumsum(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct eval_point at = {.rank = p->rank, .vec = -1};
	for (int i = 0; i < p->rank; i++)
		at.index[i] = p->index[i];
	enum ir_dtype dtype = operand_type(e, op)->dtype;
	enum kb_scalar s = eval_scalar(dtype);
	struct kb_var sum = kb_var(k, "sum", KB_TYPE(s, 1), eval_const(e, &at, s, 0));
	struct kb_val end = kb_add_const(k, p->index[p->rank - 1], 1);
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), end, 1, 0);
	struct kb_val x = element_at(e, op, &at, i);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), x));
	kb_end_loop(k);
	eval_release(e, mark);
	return eval_round_to_dtype(e, dtype, kb_get(k, sum));
}

/* Finds the first element of the row in ranking order after (value, index), and sets these variables to it; index -1:
 * the first of all. One pass over the row: the best of the elements that rank after the last one found. */
static void find_next(struct eval *e, const struct ir_op *op, struct eval_point *at, struct kb_var value,
                      struct kb_var index)
{
	struct kb *k = e->k;
	struct ranked last = {.value = kb_get(k, value)};
	last.index = kb_get(k, index);
	struct kb_val none = kb_index(k, -1);
	struct kb_var best = kb_var(k, "best", kb_type_of(k, last.value), last.value);
	struct kb_var best_index = kb_var(k, "where", KB_INDEX_T, none);
	const struct ir_type *x = operand_type(e, op);
	struct kb_val size = eval_dim(e, x->dims[x->rank - 1]);
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), size, 1, 0);
	struct ranked here = {element_at(e, op, at, i), i}, old = {.value = kb_get(k, best)};
	old.index = kb_get(k, best_index);
	struct kb_val is_after_last = ranked_after(k, here, last);
	struct kb_val open = kb_bin(k, KB_OR, kb_cmp(k, KB_EQ, last.index, none), is_after_last);
	struct kb_val before = ranked_after(k, old, here);
	struct kb_val beats_best = kb_bin(k, KB_OR, kb_cmp(k, KB_EQ, old.index, none), before);
	struct kb_val better = kb_bin(k, KB_AND, open, beats_best);
	kb_set(k, best, kb_select(k, better, here.value, old.value));
	kb_set(k, best_index, kb_select(k, better, i, old.index));
	kb_end_loop(k);
	eval_release(e, mark);
	kb_set(k, value, kb_get(k, best));
	kb_set(k, index, kb_get(k, best_index));
}

/* x [.., V] -> [.., 2, k]: values and indices. Element `slot` of the result by slot + 1 passes over the row, without
 * memory for a heap. */
static struct kb_val topk(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct eval_point at = {.rank = p->rank - 1, .vec = -1};
	for (int i = 0; i + 2 < p->rank; i++)
		at.index[i] = p->index[i];
	enum kb_scalar s = eval_scalar(operand_type(e, op)->dtype);
	struct kb_var value = kb_var(k, "value", KB_TYPE(s, 1), eval_const(e, &at, s, 0));
	struct kb_var index = kb_var(k, "index", KB_INDEX_T, kb_index(k, -1));
	struct kb_val end = kb_add_const(k, p->index[p->rank - 1], 1);
	(void)kb_loop(k, "slot", kb_index(k, 0), end, 1, 0);
	find_next(e, op, &at, value, index);
	kb_end_loop(k);
	struct kb_val is_value = kb_cmp(k, KB_EQ, p->index[p->rank - 2], kb_index(k, 0));
	struct kb_val number = ranked_index(k, kb_get(k, index), s);
	return kb_select(k, is_value, kb_get(k, value), number);
}

/* Index of the last element equal to p, or -1. */
static struct kb_val last_index(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct eval_point at = {.rank = 1, .vec = -1};
	struct kb_val row = kb_cvt(k, p->index[0], KB_I32);
	struct kb_var found = kb_var(k, "found", KB_TYPE(KB_I32, 1), kb_i32(k, -1));
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), eval_dim(e, operand_type(e, op)->dims[0]), 1, 0);
	struct kb_val here = kb_cmp(k, KB_EQ, element_at(e, op, &at, i), row);
	struct kb_val old = kb_get(k, found);
	kb_set(k, found, kb_select(k, here, kb_cvt(k, i, KB_I32), old));
	kb_end_loop(k);
	eval_release(e, mark);
	return kb_get(k, found);
}

struct kb_val eval_in_order(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	switch ((int)op->code) {
	case OP_cumsum: return cumsum(e, op, p);
	case OP_topk: return topk(e, op, p);
	case OP_last_index: return last_index(e, op, p);
	}
	return eval_internal(e, op, "not an op that scans rows");
}

/* ---- element by element ---- */

/* A loop along the last axis: vectors as the nest has them, then the remainder. `body` is emitted for each. */
struct row_loop {
	struct eval *e;
	struct loops_nest nest;
	struct kb_val lo, hi;  /* elements [lo, hi), not aligned */
	struct eval_point *at; /* of each row of the nest; index[last] and vec are set for the body */
	struct ir_value v;     /* what the body evaluates */
	void (*body)(void *user, struct eval *e, const struct eval_point *at);
	void *user;
};

/* Evaluates elementwise ops of the group that have the shape of l->v, op by op for all rows, so that each value that
 * several rows read is loaded when they need it, not for the last row alone. */
static void evaluate_rows(const struct row_loop *l)
{
	const struct ir_region *r = l->e->job->group->region;
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		if (ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE) &&
		    ir_same_dims(eval_type(l->e, r->ops[i]->results[0]), eval_type(l->e, l->v)))
			for (int row = 0; row < l->nest.rows; row++)
				(void)eval_value(l->e, r->ops[i]->results[0], &l->at[row]);
}

/* Emits the body for `lanes` elements from i on, of which `valid` exist, in each row. */
static void emit_row_chunk(const struct row_loop *l, struct kb_val i, int lanes, int valid)
{
	struct eval_width before = eval_width(l->e, lanes, valid);
	size_t mark = eval_mark(l->e);
	for (int row = 0; row < l->nest.rows; row++) {
		l->at[row].vec = l->at[row].rank - 1;
		l->at[row].index[l->at[row].rank - 1] = i;
	}
	if (l->nest.rows > 1)
		evaluate_rows(l);
	for (int row = 0; row < l->nest.rows; row++)
		l->body(l->user, l->e, &l->at[row]);
	eval_release(l->e, mark);
	eval_width(l->e, before.lanes, before.valid);
}

static void emit_row_vectors(const struct row_loop *l, struct kb_val lo, struct kb_val hi, int lanes)
{
	struct kb_val i = kb_loop(l->e->k, "i", lo, hi, lanes, 0);
	emit_row_chunk(l, i, lanes, lanes);
	kb_end_loop(l->e->k);
}

/* Elements [lo, hi) of a row: several vectors at once, then one by one, then the remainder (one partial vector if
 * bounds are constant, since a masked access has a constant number of lanes; else single elements). hi may be below lo:
 * no element. */
static void emit_row_loop(const struct row_loop *l)
{
	struct kb *k = l->e->k;
	int64_t begin = 0, end = 0;
	int one = l->nest.lanes;
	struct kb_val lo = l->lo;
	bool is_const = kb_const_index(k, l->lo, &begin) && kb_const_index(k, l->hi, &end);
	for (int n = one > 1 ? l->nest.vectors : 0; n > 0; n = n > 1 ? 1 : 0) {
		int lanes = n * one;
		struct kb_val vector = kb_index(k, lanes);
		struct kb_val length = kb_max(k, kb_sub(k, l->hi, lo), kb_index(k, 0));
		struct kb_val full = kb_mul(k, kb_bin(k, KB_DIV, length, vector), vector);
		struct kb_val main = kb_add(k, lo, full);
		if (!is_const || end - begin >= lanes)
			emit_row_vectors(l, lo, main, lanes);
		begin += is_const ? (end - begin) / lanes * lanes : 0;
		lo = main;
	}
	if (!is_const || one == 1)
		emit_row_vectors(l, lo, l->hi, 1);
	else if (begin < end)
		emit_row_chunk(l, lo, one, (int)(end - begin));
}

/* ---- the nest ---- */

/* op is about one instruction. */
static bool is_one_instruction(enum ir_opcode code)
{
	switch ((int)code) {
	case OP_add:
	case OP_sub:
	case OP_mul:
	case OP_div:
	case OP_min:
	case OP_max:
	case OP_neg:
	case OP_abs:
	case OP_sqrt:
	case OP_scale:
	case OP_relu:
	case OP_cmp:
	case OP_and:
	case OP_or:
	case OP_not:
	case OP_where: return true;
	}
	return false;
}

/* Counts the elementwise ops of the group: all, those of the longest path, the vectors that they load, and the values
 * that several of them read. Ops that are not one instruction make no chain. */
static void count_ops(const struct kernel *g, struct loops_shape *s)
{
	const struct ir_region *r = g->job->group->region;
	struct node {
		int depth, readers; /* dependent ops up to the value; operands that are the value */
	} *nodes = ARENA_ARRAY(g->job->arena, struct node, g->job->func->n_values);
	s->has_functions = !nodes;
	for (size_t i = 0; nodes && i + 1 < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		if (ir_op_has(op->code, TRAIT_VIEW) || ir_op_has(op->code, TRAIT_CONST))
			continue;
		s->has_functions = !is_one_instruction(op->code);
		if (s->has_functions)
			return;
		struct node *y = &nodes[op->results[0].id];
		for (size_t k = 0; k < op->n_operands; k++) {
			const struct eval_tensor *t = eval_tensor(g->e, op->operands[k]);
			struct node *x = &nodes[op->operands[k].id];
			bool is_vector = !t || t->t.rank == 0 || !t->t.stride[t->t.rank - 1].is_const ||
			                 t->t.stride[t->t.rank - 1].c != 0;
			s->loads += t && is_vector && x->readers == 0;
			s->row_loads += t && is_vector && x->readers == 0 && t->t.rank > 1 &&
			                t->t.stride[t->t.rank - 2].is_const &&
			                t->t.stride[t->t.rank - 2].c == 0;
			s->shared += is_vector && ++x->readers == 2;
			y->depth = x->depth > y->depth ? x->depth : y->depth;
		}
		s->depth = ++y->depth > s->depth ? y->depth : s->depth;
		s->ops++;
	}
}

/* The nest of v, which is stored as `to`. A write to a state is no chain. rows: neighbouring rows that may be computed
 * at once; -1: none. */
static struct loops_nest nest_of(const struct kernel *g, struct ir_value v, const struct kb_tensor *to,
                                 bool is_write, int64_t rows)
{
	const struct ir_type *type = eval_type(g->e, v);
	int last = type->rank - 1;
	struct loops_shape s = {.target = g->job->target,
	                        .caps = *kb_caps(g->k),
	                        .attrs = g->job->group->attrs,
	                        .has_functions = is_write,
	                        .rows = rows};
	struct loops_nest n;
	if (last >= 0) {
		const struct kb_size *stride = &to->stride[last];
		s.vectorizes = stride->is_const &&
		               (stride->c == 1 || (is_write && to->encoding == ENC_PANEL16)) &&
		               eval_vectorizes(g->e, v, last);
	}
	if (s.vectorizes && !is_write)
		count_ops(g, &s);
	loops_nest_choose(&s, &n);
	return n;
}

/* The nest of a result, whose rows may be computed several at once if their number is constant. */
static struct loops_nest nest_of_result(const struct kernel *g, const struct eval_output *o)
{
	const struct ir_type *type = eval_type(g->e, o->value);
	int64_t rows;
	if (type->rank < 2 || !ir_dim_is_const(type->dims[type->rank - 2], &rows))
		rows = -1;
	return nest_of(g, o->value, &o->to.t, false, rows);
}

/* ---- results ---- */

static void store_element(void *user, struct eval *e, const struct eval_point *at)
{
	eval_store_output(e, user, at);
}

/* The concat or pad of the group that v is, along the last axis, whose row is copied piece by piece; NULL: another
 * value, or one in memory. */
static const struct ir_op *row_of_parts(const struct kernel *g, struct ir_value v)
{
	const struct ir_op *op = eval_tensor(g->e, v) ? NULL : ir_def(g->job->func, v);
	int64_t last = eval_type(g->e, v)->rank - 1;
	if (!op || !eval_is_in_group(g->e, v))
		return NULL;
	if (op->code == OP_pad)
		return ((const struct attrs_pad *)op->attrs)->axis == last ? op : NULL;
	return op->code == OP_concat && ((const struct attrs_concat *)op->attrs)->axis == last ? op : NULL;
}

/* Copies the elements of [lo, hi) of a result's row that are in operand i of op, which begins at element `first`: as a
 * row of the operand (perhaps a concat again), stored with a skip of `first` elements. */
static void output_operand_row(struct kernel *g, const struct ir_op *op, size_t i,
                               const struct eval_output *o, const struct eval_point *row, struct kb_val first,
                               struct kb_val lo, struct kb_val hi)
{
	struct kb *k = g->k;
	int last = row->rank - 1;
	struct eval_point at = *row;
	struct eval_output part = {op->operands[i], o->to};
	struct kb_val size = eval_dim(g->e, eval_type(g->e, part.value)->dims[last]);
	struct kb_val skip = kb_mul(k, first, o->to.t.stride[last].v);
	part.to.skip = o->to.skip.id ? kb_add(k, o->to.skip, skip) : skip;
	struct kb_val begin = kb_max(k, kb_sub(k, lo, first), kb_index(k, 0));
	kernel_output_row(g, &part, &at, begin, kb_min(k, kb_sub(k, hi, first), size));
}

/* Elements [lo, hi) of the row of a pad: the value of the padding before and after the operand, which is copied. */
static void output_pad_row(struct kernel *g, const struct ir_op *op, const struct eval_output *o,
                           const struct eval_point *row, struct kb_val lo, struct kb_val hi)
{
	struct kb *k = g->k;
	const struct attrs_pad *a = op->attrs;
	int last = row->rank - 1;
	struct eval_point at = *row;
	struct kb_val before = kb_index(k, a->before);
	struct kb_val after = kb_add(k, before, eval_dim(g->e, eval_type(g->e, op->operands[0])->dims[last]));
	at.vec = -1;
	for (int side = 0; side < 2; side++) {
		struct kb_val begin = side ? kb_max(k, lo, after) : lo,
		              end = side ? hi : kb_min(k, hi, before);
		at.index[last] = kb_loop(k, "i", begin, end, 1, 0);
		enum kb_scalar s = eval_scalar(eval_type(g->e, o->value)->dtype);
		eval_store(g->e, &o->to, &at, eval_const(g->e, &at, s, a->value));
		kb_end_loop(k);
	}
	output_operand_row(g, op, 0, o, row, before, lo, hi);
}

/* Copies the operands of a concat one after the other: no element asks which of them has it. */
static void output_concat_row(struct kernel *g, const struct ir_op *op, const struct eval_output *o,
                              const struct eval_point *row, struct kb_val lo, struct kb_val hi)
{
	struct kb_val first = kb_index(g->k, 0);
	for (size_t i = 0; i < op->n_operands; i++) {
		output_operand_row(g, op, i, o, row, first, lo, hi);
		const struct ir_type *type = eval_type(g->e, op->operands[i]);
		first = kb_add(g->k, first, eval_dim(g->e, type->dims[type->rank - 1]));
	}
}

/* Stores elements [lo, hi) of the rows of the nest, at their points. Row offsets are emitted before the loop
 * (eval_hoist). */
static void output_rows(struct kernel *g, struct eval_output *o, const struct loops_nest *n,
                        struct eval_point *at, struct kb_val lo, struct kb_val hi)
{
	struct eval *e = g->e;
	struct row_loop l = {e, *n, lo, hi, at, o->value, store_element, o};
	size_t mark = eval_mark(e);
	for (int row = 0; row < n->rows; row++) {
		at[row].vec = at[row].rank - 1;
		at[row].index[at[row].rank - 1] = lo;
		eval_hoist(e, o->value, &at[row]);
	}
	emit_row_loop(&l);
	eval_release(e, mark);
}

/* Stores elements [lo, hi) of a row of a result, in vectors where value and result allow; concat and pad operand by
 * operand. */
void kernel_output_row(struct kernel *g, struct eval_output *o, struct eval_point *at, struct kb_val lo,
                       struct kb_val hi)
{
	const struct ir_op *parts = row_of_parts(g, o->value);
	if (parts && parts->code == OP_pad) {
		output_pad_row(g, parts, o, at, lo, hi);
		return;
	}
	if (parts) {
		output_concat_row(g, parts, o, at, lo, hi);
		return;
	}
	struct loops_nest n = nest_of(g, o->value, &o->to.t, false, -1);
	output_rows(g, o, &n, at, lo, hi);
}

/* A result of rank 0: the first worker stores it. */
static void emit_scalar(struct kernel *g, const struct eval_output *o)
{
	struct eval_point at = {.vec = -1};
	struct kb_val first = kb_cmp(g->k, KB_EQ, g->job->worker, kb_index(g->k, 0));
	size_t mark = eval_mark(g->e);
	kb_if(g->k, first);
	eval_store_output(g->e, o, &at);
	kb_end_if(g->k);
	eval_release(g->e, mark);
}

/* Emits a result: a task is a piece of a row, or of the rows that the nest computes at once. Where a row is one piece
 * its constant end is used, so that the loop has a constant count. */
static void emit_tensor(struct kernel *g, struct eval_output *o)
{
	struct kb *k = g->k;
	int rank = ir_type_of(g->job->func, o->value)->rank;
	struct kb_val size[IR_RANK_MAX], hi;
	struct eval_point at = {.rank = rank};
	if (rank == 0) {
		emit_scalar(g, o);
		return;
	}
	int64_t most = loops_piece(g->job->target), n;
	struct kb_val piece = kb_index(k, most);
	const struct loops_nest nest = nest_of_result(g, o);
	eval_sizes(g->e, o->value, size);
	if (nest.rows > 1)
		size[rank - 2] = kb_div_const(k, size[rank - 2], nest.rows);
	struct kb_val width = size[rank - 1];
	struct kb_val pieces = kb_bin(k, KB_DIV, kb_add_const(k, width, most - 1), piece);
	struct kb_val rows = eval_dim_product(g->e, size, 0, rank - 1);
	struct kb_val lo = eval_worker_range(g->e, kb_mul(k, rows, pieces), &hi);
	struct kb_val t = kb_loop(k, "task", lo, hi, 1, 0);
	struct kb_val row = kb_bin(k, KB_DIV, t, pieces);
	struct kb_val begin = kb_mul(k, kb_bin(k, KB_REM, t, pieces), piece);
	struct kb_val end = kb_min(k, kb_add(k, begin, piece), width);
	if (loops_is_one_piece(g->job->target, kb_const_index(k, width, &n) ? n : -1))
		end = width;
	eval_unravel(g->e, row, size, rank - 1, at.index);
	at.flat = row;
	if (row_of_parts(g, o->value)) {
		kernel_output_row(g, o, &at, begin, end);
	} else {
		struct eval_point rows_at[LOOPS_VECTORS_MAX];
		if (nest.rows > 1) {
			at.flat = kb_mul_const(k, row, nest.rows);
			at.index[rank - 2] = kb_mul_const(k, at.index[rank - 2], nest.rows);
		}
		rows_at[0] = at;
		for (int r = 1; r < nest.rows; r++) {
			rows_at[r] = at;
			rows_at[r].flat = kb_add_const(k, at.flat, r);
			rows_at[r].index[rank - 2] = kb_add_const(k, at.index[rank - 2], r);
		}
		output_rows(g, o, &nest, rows_at, begin, end);
	}
	kb_end_loop(k);
}

/* ---- state ---- */

bool kernel_make_write(struct kernel *g, const struct ir_op *op, struct kernel_write *w)
{
	const struct kernel_binding *b = g->job->bind;
	*w = (struct kernel_write){.op = op, .x = op->operands[1], .shifted = -1};
	if (op->code == OP_state_append)
		w->shifted = ir_type_of(g->job->func, w->x)->rank - 2;
	if (!b->state(b->user, g->k, op, &w->to.t)) {
		eval_internal(g->e, op, "a state has no storage");
		return false;
	}
	return true;
}

/* The body of a row_loop: stores x in the state, with the row of the state in place of that of x. */
static void store_state_element(void *user, struct eval *e, const struct eval_point *at)
{
	struct kernel_write *w = user;
	struct kb_val x = eval_value(e, w->x, at);
	struct eval_point to = *at;
	to.flat = (struct kb_val){0};
	if (w->shifted >= 0)
		to.index[w->shifted] = w->row;
	eval_store(e, &w->to, &to, x);
}

/* Writes a row of x into the state, an append at position past + row: of a ring (a->rows > 0, the rows of its slice) at
 * the position modulo its length. Positions outside the slice (padding of short sequences) are dropped. x is evaluated
 * by vectors where the state is contiguous or in panels, in which lanes are then stored one by one. */
void kernel_write_row(struct kernel *g, struct kernel_write *w, struct eval_point *at, struct kb_val lo,
                      struct kb_val hi)
{
	struct kb *k = g->k;
	struct kb_val inside = kb_bool(k, true);
	size_t mark = eval_mark(g->e);
	if (w->shifted >= 0) {
		struct eval_point b = {.rank = 1, .index = {at->index[0]}, .vec = -1};
		struct kb_val past = kb_cvt(k, eval_value(g->e, w->op->operands[2], &b), KB_INDEX);
		struct kb_val row = kb_add(k, at->index[w->shifted], past), end = w->to.t.size[w->shifted].v;
		const struct attrs_state_append *a = w->op->attrs;
		w->row = a->rows > 0 ? kb_bin(k, KB_REM, row, end) : row;
		end = a->rows > 0 ? kb_index(k, a->rows) : end;
		inside = kb_cmp(k, KB_GE, row, kb_index(k, 0));
		inside = kb_bin(k, KB_AND, kb_cmp(k, KB_LT, row, end), inside);
	}
	kb_if(k, inside);
	struct row_loop l = {
	        g->e, nest_of(g, w->x, &w->to.t, true, -1), lo, hi, at, w->x, store_state_element, w};
	emit_row_loop(&l);
	kb_end_if(k);
	eval_release(g->e, mark);
}

/* A write into a state: rows are divided among workers. */
static void emit_state_write(struct kernel *g, const struct ir_op *op)
{
	struct kb *k = g->k;
	struct kernel_write w;
	struct kb_val size[IR_RANK_MAX], hi;
	if (!kernel_make_write(g, op, &w))
		return;
	int rank = ir_type_of(g->job->func, w.x)->rank;
	if (rank < 1 || rank != w.to.t.rank) {
		eval_internal(g->e, op, "a state and what is written differ in rank");
		return;
	}
	struct eval_point at = {.rank = rank};
	eval_sizes(g->e, w.x, size);
	struct kb_val lo = eval_worker_range(g->e, eval_dim_product(g->e, size, 0, rank - 1), &hi);
	struct kb_val row = kb_loop(k, "row", lo, hi, 1, 0);
	eval_unravel(g->e, row, size, rank - 1, at.index);
	at.flat = row;
	at.vec = rank - 1;
	at.index[rank - 1] = kb_index(k, 0);
	kernel_write_row(g, &w, &at, at.index[rank - 1], size[rank - 1]);
	kb_end_loop(k);
}

/* Reports the nests of the results. */
static void remark_nests(const struct kernel *g)
{
	struct buf text = kernel_begin_remark(g->job);
	for (size_t i = 0; i < g->out.n; i++) {
		const struct eval_output *o = &g->out.items[i];
		const struct ir_type *type = eval_type(g->e, o->value);
		const struct loops_nest n = nest_of_result(g, o);
		int64_t width = 1;
		if (type->rank > 0 && !ir_dim_is_const(type->dims[type->rank - 1], &width))
			width = -1;
		buf_str(&text, i > 0 ? "; " : "");
		if (row_of_parts(g, o->value)) {
			buf_str(&text, "operand by operand");
			continue;
		}
		if (loops_is_one_piece(g->job->target, width))
			buf_str(&text, "tasks of a row, ");
		else
			buf_printf(&text, "tasks of %" PRId64 " elements of a row, ",
			           loops_piece(g->job->target));
		loops_nest_print(&n, &text);
	}
	kernel_remark_nest(g->job, &text);
}

void kernel_loops(struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	if (kernel_in_order(g))
		return;
	if (g->job->remarks && g->out.n > 0)
		remark_nests(g);
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->code == OP_state_append || r->ops[i]->code == OP_state_write)
			emit_state_write(g, r->ops[i]);
	for (size_t i = 0; i < g->out.n; i++)
		emit_tensor(g, &g->out.items[i]);
}
