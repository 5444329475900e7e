/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows the products that wait in the stage, row by row: a row of the stage is the place of the root's
 * value, so that the evaluator finds whatever element it asks for.
 */
#include "backends/linear/matmul_internal.h"

/* Row `row` of the stage, for the one row of the result that is open. */
static void place_row(const struct linear *l, const struct matmul_strip *s, struct kb_val row)
{
	struct kb *k = l->k;
	int last = l->rank - 1;
	struct eval_tensor at = {.t = {.ptr = l->stage.at, .dtype = DT_F32, .rank = l->rank}};
	struct eval_bias bias = {.v = l->bias, .expert = s->expert};
	struct kb_val first = kb_mul_const(k, s->begin, MATMUL_PANEL);
	at.skip = kb_sub(k, kb_mul_const(k, row, l->stage.width), first);
	for (int i = 0; i <= last; i++) {
		at.t.size[i] = (struct kb_size){.v = l->size[i]};
		at.t.stride[i] = (struct kb_size){true, i == last, kb_index(k, i == last)};
	}
	bias.step[last] = 1;
	eval_set_tensor(l->eval, eval_result(l->g->root), &at, &bias);
}

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
	int64_t whole = size / lanes * lanes;
	size_t mark = eval_mark(l->eval);
	struct eval_point at = *row;
	at.vec = last;
	at.index[last] = r.lo;
	eval_hoist(l->eval, out->value, &at);
	at.index[last] = kb_loop(k, "column", r.lo, kb_min(k, r.hi, kb_index(k, whole)), lanes, 0);
	store_vector(l, out, &at, lanes, lanes);
	kb_end_loop(k);
	if (whole < size) {
		struct kb_val ends = kb_cmp(k, KB_EQ, r.hi, kb_index(k, size));
		kb_if(k, kb_bin(k, KB_AND, ends, kb_cmp(k, KB_LT, r.lo, r.hi)));
		at.index[last] = kb_index(k, whole);
		store_vector(l, out, &at, lanes, (int)(size - whole));
		kb_end_if(k);
	}
	eval_release(l->eval, mark);
}

struct matmul_piece matmul_piece(const struct linear *l, struct kb_val number, int64_t width)
{
	struct kb *k = l->k;
	int64_t n = MATMUL_PIECES;
	struct matmul_piece p = {kb_index(k, 0), kb_index(k, width), kb_bool(k, true)};
	while (width % (n * l->lanes) != 0 && n > 1)
		n /= 2;
	if (!number.id)
		return p;
	p.any = kb_cmp(k, KB_LT, number, kb_index(k, n));
	p.lo = kb_mul_const(k, number, width / n);
	p.hi = kb_add_const(k, p.lo, width / n);
	return p;
}

struct matmul_range matmul_piece_of(const struct linear *l, const struct matmul_strip *s,
                                    struct matmul_range r, int64_t begin, struct kb_val number)
{
	struct kb *k = l->k;
	if (!number.id)
		return r;
	const struct matmul_piece piece = matmul_piece(l, number, l->stage.width / l->columns.halves);
	int64_t whole = begin / l->lanes * l->lanes; /* vectors of a piece begin at multiples of the lanes */
	struct kb_val first = kb_add_const(k, kb_mul_const(k, s->begin, MATMUL_PANEL), -whole);
	r.lo = kb_max(k, r.lo, kb_add(k, first, piece.lo));
	r.hi = kb_min(k, r.hi, kb_add(k, first, piece.hi));
	r.hi = kb_select(k, piece.any, r.hi, r.lo);
	return r;
}

struct kb_val matmul_open_rows(const struct linear *l, struct kb_val rows, struct kb_val *number)
{
	struct kb *k = l->k;
	*number = (struct kb_val){0};
	if (l->job->items <= 1)
		return kb_loop(k, "row", kb_index(k, 0), rows, 1, KB_NONEMPTY);
	struct kb_val n = kb_index(k, MATMUL_PIECES), all = kb_mul(k, rows, n);
	struct kb_val i = kb_loop(k, "i", kb_item_id(k), all, (int)l->job->items, 0);
	*number = kb_bin(k, KB_REM, i, n);
	return kb_bin(k, KB_DIV, i, n);
}

void matmul_epilogue(const struct linear *l, const struct matmul_strip *s, struct kb_val first,
                     struct kb_val rows)
{
	struct kb *k = l->k;
	if (l->parts) {
		matmul_parts_epilogue(l, s, first, rows);
		return;
	}
	struct kb_val width = kb_index(k, MATMUL_PANEL);
	struct matmul_range r = {.lo = kb_mul(k, s->begin, width)};
	r.hi = kb_min(k, kb_mul(k, s->end, width), kb_index(k, l->columns.n));
	struct kb_val number, row = matmul_open_rows(l, rows, &number);
	size_t mark = eval_mark(l->eval);
	r = matmul_piece_of(l, s, r, 0, number);
	place_row(l, s, row);
	const struct eval_point at = matmul_point(l, kb_add(k, first, row), r.lo);
	if (l->strips)
		matmul_strips_row(l, r, &at);
	else
		matmul_store_row(l, &l->out, l->columns.n, r, &at);
	eval_release(l->eval, mark);
	kb_end_loop(k);
}
