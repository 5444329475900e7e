/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epilogue from the C buffer, row by row: a row of the buffer is bound as the storage of the root's value, so
 * that the evaluator finds every element that the ops after the product read.
 *
 * Strip ops (strip_argmax, strip_score) replace logits that only an arg-max or a log-probability reads: of
 * each strip of MATMUL_NC panels a row leaves two or three values. Strips begin at multiples of their width,
 * whoever computes them, so values do not depend on the division of work.
 */
#include "backends/kernels/matmul_internal.h"

/* Binds row `row` of the C buffer as the row of the result that is open. */
static void bind_c_row(const struct linear *l, const struct matmul_block *s, struct kb_val row)
{
	struct kb *k = l->k;
	int last = l->rank - 1;
	struct eval_tensor at = {.t = {.ptr = l->c_buf.at, .dtype = DT_F32, .rank = l->rank}};
	struct eval_bias bias = {.v = l->bias, .expert = s->expert};
	struct kb_val first = kb_mul_const(k, s->begin, MATMUL_PANEL);
	at.skip = kb_sub(k, kb_mul_const(k, row, l->c_buf.width), first);
	for (int i = 0; i <= last; i++) {
		at.t.size[i] = (struct kb_size){.v = l->size[i]};
		at.t.stride[i] = (struct kb_size){true, i == last, kb_index(k, i == last)};
	}
	bias.step[last] = 1;
	eval_set_tensor(l->eval, eval_result(l->g->root), &at, &bias);
}

/* Evaluates and stores `lanes` columns, of which `valid` exist. */
static void store_vector(const struct linear *l, const struct eval_output *out, const struct eval_point *at,
                         int lanes, int valid)
{
	size_t mark = eval_mark(l->eval);
	struct eval_width before = eval_width(l->eval, lanes, valid);
	eval_store_output(l->eval, out, at);
	eval_width(l->eval, before.lanes, before.valid);
	eval_release(l->eval, mark);
}

void matmul_store_row(const struct linear *l, const struct eval_output *out, int64_t size,
                      struct matmul_range r, const struct eval_point *row)
{
	struct kb *k = l->k;
	int last = l->rank - 1, lanes = eval_vectorizes(l->eval, out->value, last) ? l->lanes : 1;
	int64_t full = size / lanes * lanes;
	size_t mark = eval_mark(l->eval);
	struct eval_point at = *row;
	at.vec = last;
	at.index[last] = r.lo;
	eval_hoist(l->eval, out->value, &at);
	at.index[last] = kb_loop(k, "column", r.lo, kb_min(k, r.hi, kb_index(k, full)), lanes, 0);
	store_vector(l, out, &at, lanes, lanes);
	kb_end_loop(k);
	if (full < size) {
		struct kb_val has_end = kb_cmp(k, KB_EQ, r.hi, kb_index(k, size));
		kb_if(k, kb_bin(k, KB_AND, has_end, kb_cmp(k, KB_LT, r.lo, r.hi)));
		at.index[last] = kb_index(k, full);
		store_vector(l, out, &at, lanes, (int)(size - full));
		kb_end_if(k);
	}
	eval_release(l->eval, mark);
}

struct matmul_piece matmul_piece(const struct linear *l, struct kb_val piece_id, int64_t width)
{
	struct kb *k = l->k;
	int64_t n = MATMUL_PIECES;
	struct matmul_piece p = {kb_index(k, 0), kb_index(k, width), kb_bool(k, true)};
	while (width % (n * l->lanes) != 0 && n > 1)
		n /= 2;
	if (!piece_id.id)
		return p;
	p.any = kb_cmp(k, KB_LT, piece_id, kb_index(k, n));
	p.lo = kb_mul_const(k, piece_id, width / n);
	p.hi = kb_add_const(k, p.lo, width / n);
	return p;
}

struct matmul_range matmul_clip_to_piece(const struct linear *l, const struct matmul_block *s,
                                         struct matmul_range r, int64_t begin, struct kb_val piece_id)
{
	struct kb *k = l->k;
	if (!piece_id.id)
		return r;
	const struct matmul_piece piece = matmul_piece(l, piece_id, l->c_buf.width / l->columns.mats);
	int64_t aligned =
	        begin / l->lanes * l->lanes; /* vectors of a piece begin at multiples of the lanes */
	struct kb_val first = kb_add_const(k, kb_mul_const(k, s->begin, MATMUL_PANEL), -aligned);
	r.lo = kb_max(k, r.lo, kb_add(k, first, piece.lo));
	r.hi = kb_min(k, r.hi, kb_add(k, first, piece.hi));
	r.hi = kb_select(k, piece.any, r.hi, r.lo);
	return r;
}

struct kb_val matmul_loop_rows(const struct linear *l, struct kb_val rows, struct kb_val *piece_id)
{
	struct kb *k = l->k;
	*piece_id = (struct kb_val){0};
	if (l->job->items <= 1)
		return kb_loop(k, "row", kb_index(k, 0), rows, 1, KB_NONEMPTY);
	struct kb_val n = kb_index(k, MATMUL_PIECES), all = kb_mul(k, rows, n);
	struct kb_val i = kb_loop(k, "i", kb_item_id(k), all, (int)l->job->items, 0);
	*piece_id = kb_bin(k, KB_REM, i, n);
	return kb_bin(k, KB_DIV, i, n);
}

/* ---- strip ops ---- */

#define STRIP_WIDTH  ((int64_t)MATMUL_NC * MATMUL_PANEL)
#define UNROLLED_MAX 8 /* vectors */

bool matmul_bind_strip_op(struct linear *l)
{
	const struct kernel *g = l->g;
	const struct ir_region *r = g->job->group->region;
	const struct ir_op *last = NULL;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++) {
		enum ir_opcode code = r->ops[i]->code;
		if (code == OP_strip_argmax || code == OP_strip_score)
			last = r->ops[i];
		else if (last && code != OP_yield)
			return false;
		else if (!ir_op_has(code, TRAIT_ELEMENTWISE) && !ir_op_has(code, TRAIT_CONST) &&
		         code != OP_yield)
			return false;
	}
	if (!last || g->out.n != 1 || g->job->items > 1 || eval_strip_width(last) != STRIP_WIDTH ||
	    g->out.items[0].value.id != eval_result(last).id || g->out.items[0].to.t.dtype != DT_F32 ||
	    ir_type_of(l->job->func, last->operands[0])->dtype != DT_F32)
		return false;
	l->strip_op = last;
	l->norm.after = NULL;
	l->out = g->out.items[0];
	l->columns.unit = MATMUL_NC;
	return true;
}

/* Evaluates the strip op over columns c and stores its values. */
static void store_strip_values(const struct linear *l, const struct eval_columns *c)
{
	struct kb *k = l->k;
	struct kb_val value[EVAL_STRIP_VALUES];
	size_t mark = eval_mark(l->eval);
	int n = eval_strip_values(l->eval, l->strip_op, c, value);
	struct eval_point p = c->row;
	p.rank = l->rank + 1;
	p.vec = -1;
	p.flat = (struct kb_val){0};
	p.index[l->rank] = kb_div_const(k, c->first, STRIP_WIDTH);
	for (int i = 0; i < n; i++) {
		p.index[l->rank - 1] = kb_index(k, i);
		kb_store(k, value[i], l->out.to.t.ptr, eval_offset(l->eval, &l->out.to, &p), 0, 0);
	}
	eval_release(l->eval, mark);
}

/* Stores the values of the strip of columns r. Full strips of few vectors are unrolled. */
static void store_strip(const struct linear *l, struct matmul_range r, const struct eval_point *row)
{
	struct kb *k = l->k;
	struct eval_columns c = {l->strip_op->operands[0], *row, r.lo, r.hi, l->lanes, 0};
	bool is_unrolled = STRIP_WIDTH / l->lanes <= UNROLLED_MAX && l->columns.n >= STRIP_WIDTH;
	bool has_partial = l->columns.n % STRIP_WIDTH != 0;
	if (!is_unrolled) {
		store_strip_values(l, &c);
		return;
	}
	if (has_partial) {
		kb_if(k, kb_cmp(k, KB_LT, kb_sub(k, r.hi, r.lo), kb_index(k, STRIP_WIDTH)));
		store_strip_values(l, &c);
		kb_else(k);
	}
	c.unrolled = STRIP_WIDTH;
	store_strip_values(l, &c);
	if (has_partial)
		kb_end_if(k);
}

/* ---- rows of the C buffer ---- */

void matmul_epilogue(const struct linear *l, const struct matmul_block *s, struct kb_val first,
                     struct kb_val rows)
{
	struct kb *k = l->k;
	if (l->ranges) {
		matmul_ranges_epilogue(l, s, first, rows);
		return;
	}
	struct kb_val width = kb_index(k, MATMUL_PANEL);
	struct matmul_range r = {.lo = kb_mul(k, s->begin, width)};
	r.hi = kb_min(k, kb_mul(k, s->end, width), kb_index(k, l->columns.n));
	struct kb_val piece_id, row = matmul_loop_rows(l, rows, &piece_id);
	size_t mark = eval_mark(l->eval);
	r = matmul_clip_to_piece(l, s, r, 0, piece_id);
	bind_c_row(l, s, row);
	const struct eval_point at = matmul_point(l, kb_add(k, first, row), r.lo);
	if (l->strip_op)
		store_strip(l, r, &at);
	else
		matmul_store_row(l, &l->out, l->columns.n, r, &at);
	eval_release(l->eval, mark);
	kb_end_loop(k);
}
