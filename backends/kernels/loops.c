/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fallback generator, for any op that the evaluator supports, of any shape and stride: for each result a loop
 * over all elements in row-major order, rows in pieces of at most BLOCK elements divided among workers; then
 * the writes of state ops (KV cache).
 */
#include "backends/kernels/in_order.h"

#define BLOCK       1024
#define SMALL_BLOCK 16 /* of work-items */

int64_t kernel_loops_block(const struct target *t)
{
	return t->group_size > 1 ? SMALL_BLOCK : BLOCK;
}

/* Emits the body for `lanes` elements from i on, of which `valid` exist. */
static void emit_row_chunk(const struct row_loop *l, struct kb_val i, int lanes, int valid)
{
	struct eval_width before = eval_width(l->e, lanes, valid);
	size_t mark = eval_mark(l->e);
	l->at->vec = l->at->rank - 1;
	l->at->index[l->at->rank - 1] = i;
	l->body(l->user, l->e, l->at);
	eval_release(l->e, mark);
	eval_width(l->e, before.lanes, before.valid);
}

static void emit_row_vectors(const struct row_loop *l, struct kb_val lo, struct kb_val hi, int lanes)
{
	struct kb_val i = kb_loop(l->e->k, "i", lo, hi, lanes, 0);
	emit_row_chunk(l, i, lanes, lanes);
	kb_end_loop(l->e->k);
}

/* Elements [lo, hi) of a row: full vectors, then the remainder (one partial vector if bounds are constant,
 * else one by one). */
static void emit_row_loop(const struct row_loop *l)
{
	struct kb *k = l->e->k;
	int64_t lo, hi;
	struct kb_val lanes = kb_index(k, l->lanes);
	if (l->lanes == 1) {
		emit_row_vectors(l, l->lo, l->hi, 1);
		return;
	}
	if (kb_const_index(k, l->lo, &lo) && kb_const_index(k, l->hi, &hi)) {
		int64_t main = lo + (hi - lo) / l->lanes * l->lanes;
		if (main > lo)
			emit_row_vectors(l, l->lo, kb_index(k, main), l->lanes);
		if (main < hi)
			emit_row_chunk(l, kb_index(k, main), l->lanes, (int)(hi - main));
		return;
	}
	struct kb_val length = kb_max(k, kb_sub(k, l->hi, l->lo), kb_index(k, 0));
	struct kb_val full = kb_mul(k, kb_bin(k, KB_DIV, length, lanes), lanes);
	struct kb_val main = kb_add(k, l->lo, full);
	emit_row_vectors(l, l->lo, main, l->lanes);
	emit_row_vectors(l, main, l->hi, 1);
}

/* ---- results ---- */

static void store_element(void *user, struct eval *e, const struct eval_point *at)
{
	eval_store_output(e, user, at);
}

void kernel_output_row(struct kernel *g, struct eval_output *o, struct eval_point *at, struct kb_val lo,
                       struct kb_val hi)
{
	struct eval *e = g->e;
	int last = at->rank - 1;
	bool vectors = eval_vectorizes(e, o->value, last) && o->to.t.stride[last].is_const &&
	               o->to.t.stride[last].c == 1;
	int lanes = vectors ? kb_caps(g->k)->lanes : 1;
	size_t mark = eval_mark(e);
	at->vec = last;
	at->index[last] = lo;
	eval_hoist(e, o->value, at);
	struct row_loop l = {e, lo, hi, lanes, at, store_element, o};
	emit_row_loop(&l);
	eval_release(e, mark);
}

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

/* A result: pieces of rows are divided among workers. */
static void emit_tensor(struct kernel *g, struct eval_output *o)
{
	struct kb *k = g->k;
	int rank = ir_type_of(g->job->func, o->value)->rank;
	int64_t most = kernel_loops_block(g->job->target);
	struct kb_val size[IR_RANK_MAX], block = kb_index(k, most), hi;
	struct eval_point at = {.rank = rank};
	if (rank == 0) {
		emit_scalar(g, o);
		return;
	}
	eval_sizes(g->e, o->value, size);
	struct kb_val width = size[rank - 1];
	struct kb_val pieces = kb_bin(k, KB_DIV, kb_add_const(k, width, most - 1), block);
	struct kb_val rows = eval_dim_product(g->e, size, 0, rank - 1);
	struct kb_val lo = eval_worker_range(g->e, kb_mul(k, rows, pieces), &hi);
	struct kb_val t = kb_loop(k, "task", lo, hi, 1, 0);
	struct kb_val row = kb_bin(k, KB_DIV, t, pieces);
	struct kb_val begin = kb_mul(k, kb_bin(k, KB_REM, t, pieces), block);
	struct kb_val end = kb_min(k, kb_add(k, begin, block), width);
	int64_t c;
	if (kb_const_index(k, width, &c) && c <= most)
		end = width;
	eval_unravel(g->e, row, size, rank - 1, at.index);
	at.flat = row;
	kernel_output_row(g, o, &at, begin, end);
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

/* Rows outside the state (padding of short sequences) are dropped. */
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
	int last = at->rank - 1;
	bool vectors = eval_vectorizes(g->e, w->x, last) && w->to.t.stride[last].is_const &&
	               (w->to.t.stride[last].c == 1 || w->to.t.encoding == ENC_PANEL16);
	kb_if(k, inside);
	struct row_loop l = {g->e, lo, hi, vectors ? kb_caps(k)->lanes : 1, at, store_state_element, w};
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

void kernel_loops(struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	if (kernel_in_order(g))
		return;
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->code == OP_state_append || r->ops[i]->code == OP_state_write)
			emit_state_write(g, r->ops[i]);
	for (size_t i = 0; i < g->out.n; i++)
		emit_tensor(g, &g->out.items[i]);
}
