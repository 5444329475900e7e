/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x that a linear makes in scratch before it multiplies them: a norm of the group, rounding to integers
 * or bf16 (round_rows), or one after the other. A row that is rounded is read where it lies when its elements are side by
 * side, else from scratch.
 */
#include "backends/linear/matmul_internal.h"
#include "backends/rows/rowwise.h"
#include "ir/support/checked.h"

#define MADE_LINE 64 /* bytes that parts of scratch are aligned to */
#define UNROLLED  4  /* vectors */

/* ---- the group ---- */

/* The op of the group that gives v. */
static const struct ir_op *op_inside(const struct linear *l, struct ir_value v)
{
	return eval_is_in_group(l->eval, v) ? ir_def(l->job->func, v) : NULL;
}

static bool find_rounding(struct linear *l, const struct ir_op *op)
{
	const struct kb_tensor *w = &l->w->t;
	const struct attrs_round_rows *a = op->attrs;
	struct activation_quant to = {.bf16 = a->to == ROUND_bf16, .block = a->block};
	int64_t depth = w->size[w->rank - 1].c;
	if (!w->size[w->rank - 1].is_const || l->job->items > 1 || quant_dot_block(w->format, to, depth) < 0)
		return false;
	l->rounded = (struct matmul_rounded){
	        .round = op, .to = to, .row = activation_row_layout(w->format, to, depth)};
	return true;
}

bool matmul_find_rows(struct linear *l)
{
	const struct ir_func *f = l->job->func;
	struct ir_value x = l->g->root->operands[OPERAND(linear, x)];
	const struct ir_op *op = op_inside(l, x);
	if (op && op->code == OP_round_rows) {
		if (!find_rounding(l, op))
			return false;
		x = op->operands[0];
		op = op_inside(l, x);
	}
	l->along = (struct kb_size){true, 1, kb_index(l->k, 1)};
	l->x = eval_tensor(l->eval, x);
	if (l->x) {
		l->along = l->x->t.stride[ir_type_of(f, x)->rank - 1];
		return l->x->t.dtype == DT_F32;
	}
	if (op && ir_is_norm(op->code) && ir_type_of(f, x)->dtype == DT_F32)
		l->norm.before = op;
	return l->norm.before != NULL;
}

/* ---- scratch ---- */

static int64_t row_bytes(const struct linear *l)
{
	return l->rounded.round ? l->rounded.row.bytes : 4 * tile_row_stride(l->depth);
}

/* Behind those of the block, which tiles of always as many rows read. */
static int64_t spare_rows(const struct linear *l)
{
	return matmul_by_matrix(l) ? AMX_OVERREAD_ROWS : 0;
}

int64_t matmul_rows_bytes(const struct linear *l)
{
	int64_t bytes = (l->norm.rows + spare_rows(l)) * row_bytes(l) + (l->rounded.round ? 4 * l->depth : 0);
	return matmul_makes_rows(l) ? (bytes + MADE_LINE - 1) / MADE_LINE * MADE_LINE : 0;
}

/* As many rows as the schedule says, a tile of them at least. */
bool matmul_place_rows(struct linear *l)
{
	const struct attrs_group *s = l->g->attrs;
	int64_t bytes, least = l->rows_hi < l->mr ? l->rows_hi : l->mr;
	if (!matmul_makes_rows(l))
		return true;
	if (s->br < least || !checked_mul_i64(s->br + spare_rows(l), row_bytes(l), &bytes) ||
	    bytes > s->scratch)
		return false;
	l->norm.rows = s->br;
	l->norm.at = l->job->scratch;
	int64_t stage = matmul_by_matrix(l) ? AMX_C_BUFFER_BYTES(s->br) : 0;
	if (l->rounded.round && matmul_rows_bytes(l) > s->scratch - stage)
		return false;
	l->rounded.source = kb_ptr_add(l->k, l->norm.at, kb_index(l->k, bytes), 0);
	return true;
}

/* ---- rounding ---- */

/* Part of a row: n elements from `from` on. */
struct span {
	const struct linear *l;
	int lanes;
	struct kb_val x, codes; /* of the row: f32, bytes */
	struct kb_val from;
	int64_t n;
	struct kb_val inverse;
	struct kb_var acc; /* the largest |x|, or the sum of codes */
};

typedef void span_body(const struct span *s, struct kb_val at, int valid);

/* Whole vectors, then what is left. */
static void walk_span(const struct span *s, span_body *body)
{
	struct kb *k = s->l->k;
	int64_t whole = s->n / s->lanes * s->lanes;
	if (whole > UNROLLED * s->lanes) {
		struct kb_val at = kb_loop(k, "j", kb_index(k, 0), kb_index(k, whole), s->lanes, KB_NONEMPTY);
		body(s, kb_add(k, s->from, at), s->lanes);
		kb_end_loop(k);
	} else {
		for (int64_t at = 0; at < whole; at += s->lanes)
			body(s, kb_add_const(k, s->from, at), s->lanes);
	}
	if (whole < s->n)
		body(s, kb_add_const(k, s->from, whole), (int)(s->n - whole));
}

static struct kb_val load_x(const struct span *s, struct kb_val at, int valid)
{
	return kb_load_part(s->l->k, KB_TYPE(KB_F32, s->lanes), valid, s->x, at, 0);
}

static void see_largest(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	struct kb_val v = rowwise_magnitude(k, load_x(s, at, valid));
	kb_set(k, s->acc, kb_max(k, v, kb_get(k, s->acc)));
}

/* Lanes that do not exist are 0. */
static void store_codes(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	struct kb_val v = load_x(s, at, valid);
	struct kb_val code = kb_cvt_nearest(k, kb_mul(k, v, kb_splat(k, s->inverse, s->lanes)));
	kb_store_part(k, kb_cvt(k, code, KB_I8), valid, s->codes, at, 0);
	kb_set(k, s->acc, kb_add(k, code, kb_get(k, s->acc)));
}

static struct kb_val reduce(const struct span *s, enum kb_bin op)
{
	struct kb_val v = kb_get(s->l->k, s->acc);
	return s->lanes > 1 ? kb_reduce(s->l->k, op, v) : v;
}

/* Step number `step`: codes, and what stands behind them. */
static void emit_step(struct span *s, struct kb_val step, struct kb_val scale)
{
	struct kb *k = s->l->k;
	const struct activation_row_layout *row = &s->l->rounded.row;
	const struct ir_format_desc *d = ir_format(s->l->panel.format);
	s->acc = kb_var(k, "codes", KB_TYPE(KB_I32, s->lanes), kb_splat(k, kb_i32(k, 0), s->lanes));
	walk_span(s, store_codes);
	struct kb_val sum = reduce(s, KB_ADD);
	int factor = d->shift > 0 ? 1 : -matmul_codes_zero(s->l);
	kb_store(k, kb_mul(k, sum, kb_i32(k, factor)), s->codes, step, row->starts / 4, 0);
	kb_store(k, scale, s->codes, step, row->scales / 4, 0);
	if (d->has_offset)
		kb_store(k, kb_mul(k, kb_cvt(k, sum, KB_F32), scale), s->codes, step, row->totals / 4, 0);
}

/* A block: n elements from `from` on, where step number `first` begins. */
static void emit_block(struct span *s, struct kb_val from, int64_t n, struct kb_val first)
{
	struct kb *k = s->l->k;
	int64_t step = s->l->rounded.row.step, whole = n / step;
	struct kb_val scale;
	s->from = from;
	s->n = n;
	s->acc = kb_var(k, "most", KB_TYPE(KB_F32, s->lanes), kb_splat(k, kb_f32(k, 0), s->lanes));
	walk_span(s, see_largest);
	rowwise_rounding(k, reduce(s, KB_MAX), &s->inverse, &scale);
	s->n = step;
	if (whole == 1) {
		emit_step(s, first, scale);
	} else if (whole > 1) {
		struct kb_val i = kb_loop(k, "step", kb_index(k, 0), kb_index(k, whole), 1, KB_NONEMPTY);
		s->from = kb_add(k, from, kb_mul_const(k, i, step));
		emit_step(s, kb_add(k, first, i), scale);
		kb_end_loop(k);
	}
	if (n % step == 0)
		return;
	s->from = kb_add_const(k, from, whole * step);
	s->n = n % step;
	emit_step(s, kb_add_const(k, first, whole), scale);
}

/* The last line is whole: zeros first. */
static void clear_last_line(const struct span *s, int64_t bytes)
{
	struct kb *k = s->l->k;
	for (int64_t word = bytes / MADE_LINE * (MADE_LINE / 4), n = 0;
	     bytes % MADE_LINE > 0 && n < MADE_LINE / 4; n++)
		kb_store(k, kb_i32(k, 0), s->codes, kb_index(k, word + n), 0, 0);
}

static void store_bf16(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	kb_store_part(k, kb_cvt_bf16_ftz(k, load_x(s, at, valid)), valid, s->codes, at, 0);
}

static void emit_bf16(struct span *s)
{
	clear_last_line(s, 2 * s->l->depth);
	s->from = kb_index(s->l->k, 0);
	s->n = s->l->depth;
	walk_span(s, store_bf16);
}

static void emit_codes(struct span *s)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	int64_t block = l->rounded.to.block, step = l->rounded.row.step;
	block = block > 0 && block < l->depth ? block : l->depth;
	int64_t whole = l->depth / block, steps = (block + step - 1) / step;
	clear_last_line(s, l->depth);
	struct kb_val i = kb_loop(k, "block", kb_index(k, 0), kb_index(k, whole), 1, KB_NONEMPTY);
	struct kb_val from = kb_mul_const(k, i, block);
	emit_block(s, from, block, kb_mul_const(k, i, steps));
	kb_end_loop(k);
	if (l->depth % block > 0)
		emit_block(s, kb_index(k, whole * block), l->depth % block, kb_index(k, whole * steps));
}

/* ---- rows ---- */

static void emit_norm(const struct linear *l, struct kb_val first, struct kb_val end, struct kb_val to)
{
	struct rowwise_rows rows = {.norm = l->norm.before,
	                            .first = first,
	                            .end = end,
	                            .to = to,
	                            .step = tile_row_stride(l->depth)};
	rowwise_norm_rows(l->eval, &rows);
}

/* Where the f32 of row `row` begin. */
static struct kb_val find_source(const struct linear *l, struct kb_val row)
{
	struct kb *k = l->k;
	struct kb_val to = l->rounded.source;
	if (l->norm.before) {
		emit_norm(l, row, kb_add_const(k, row, 1), to);
		return to;
	}
	struct eval_point p = matmul_point(l, row, kb_index(k, 0));
	p.vec = l->rank - 1;
	struct kb_val at = eval_offset(l->eval, l->x, &p);
	if (l->along.is_const && l->along.c == 1)
		return kb_ptr_add(k, l->x->t.ptr, kb_mul_const(k, at, 4), 0);
	struct kb_val j = kb_loop(k, "j", kb_index(k, 0), kb_index(k, l->depth), 1, KB_NONEMPTY);
	struct kb_val from = kb_add(k, at, kb_mul(k, j, l->along.v));
	kb_store(k, kb_load(k, KB_F32_T, l->x->t.ptr, from, 0, 0), to, j, 0, 0);
	kb_end_loop(k);
	return to;
}

static void round_rows(const struct linear *l, struct kb_val first, struct kb_val end)
{
	struct kb *k = l->k;
	int lanes = kb_caps(k)->lanes < 16 ? kb_caps(k)->lanes : 16;
	struct span s = {.l = l, .lanes = lanes};
	struct kb_val row = kb_loop(k, "row", first, end, 1, 0);
	size_t mark = eval_mark(l->eval);
	s.x = find_source(l, row);
	struct kb_val bytes = kb_mul_const(k, kb_sub(k, row, first), l->rounded.row.bytes);
	s.codes = kb_ptr_add(k, l->norm.at, bytes, 0);
	if (l->rounded.to.bf16)
		emit_bf16(&s);
	else
		emit_codes(&s);
	if (l->unpacked.rows.id)
		matmul_unpack_row(l, s.codes, kb_sub(k, row, first));
	eval_release(l->eval, mark);
	kb_end_loop(k);
}

void matmul_make_rows(const struct linear *l, struct kb_val row, struct kb_val row_end, struct kb_val panel,
                      struct kb_val panel_end)
{
	if (!matmul_makes_rows(l))
		return;
	size_t mark = eval_mark(l->eval);
	kb_if(l->k, kb_cmp(l->k, KB_LT, panel, panel_end));
	if (l->rounded.round)
		round_rows(l, row, row_end);
	else
		emit_norm(l, row, row_end, l->norm.at);
	kb_end_if(l->k);
	eval_release(l->eval, mark);
}
