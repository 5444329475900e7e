/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prologue: rows of x that a linear makes in scratch before it multiplies them, by a fused norm, by dynamic
 * quantization to int8 or bf16 (op round_rows), or by both. The f32 source of a quantized row is read where
 * it is stored if its elements are contiguous; else it is copied to scratch first.
 */
#include "backends/kernels/matmul_internal.h"
#include "backends/kernels/rowwise.h"
#include "ir/support/checked.h"

#define CACHE_LINE 64
#define UNROLLED   4 /* vectors */

/* ---- the group ---- */

/* The op of the group that defines v; NULL: it is an input of the group. */
static const struct ir_op *defining_op(const struct linear *l, struct ir_value v)
{
	return eval_is_in_group(l->eval, v) ? ir_def(l->job->func, v) : NULL;
}

/* Binds op round_rows. False: K is not constant, work-items share rows, or the weights have no integer or
 * bf16 products. */
static bool bind_quantization(struct linear *l, const struct ir_op *op)
{
	const struct kb_tensor *w = &l->w->t;
	const struct attrs_round_rows *a = op->attrs;
	struct activation_quant to = {.bf16 = a->to == ROUND_bf16, .block = a->block};
	int64_t depth = w->size[w->rank - 1].c;
	if (!w->size[w->rank - 1].is_const || l->job->items > 1 || quant_dot_block(w->format, to, depth) < 0)
		return false;
	l->lowp = (struct matmul_lowp){
	        .op = op, .to = to, .layout = activation_row_layout(w->format, to, depth)};
	return true;
}

bool matmul_bind_x(struct linear *l)
{
	const struct ir_func *f = l->job->func;
	struct ir_value x = l->g->root->operands[OPERAND(linear, x)];
	const struct ir_op *op = defining_op(l, x);
	if (op && op->code == OP_round_rows) {
		if (!bind_quantization(l, op))
			return false;
		x = op->operands[0];
		op = defining_op(l, x);
	}
	l->k_stride = (struct kb_size){true, 1, kb_index(l->k, 1)};
	l->x = eval_tensor(l->eval, x);
	if (l->x) {
		l->k_stride = l->x->t.stride[ir_type_of(f, x)->rank - 1];
		return l->x->t.dtype == DT_F32;
	}
	if (op && ir_is_norm(op->code) && ir_type_of(f, x)->dtype == DT_F32)
		l->norm.before = op;
	return l->norm.before != NULL;
}

/* ---- scratch ---- */

/* Bytes of a row of x_buf. */
static int64_t x_buf_row_bytes(const struct linear *l)
{
	return l->lowp.op ? l->lowp.layout.bytes : 4 * tile_row_stride(l->depth);
}

/* Rows after those of the M block that AMX tiles of 16 rows may read. */
static int64_t amx_spare_rows(const struct linear *l)
{
	return matmul_uses_amx(l) ? AMX_OVERREAD_ROWS : 0;
}

int64_t matmul_x_buffer_bytes(const struct linear *l)
{
	int64_t bytes =
	        (l->norm.x_rows + amx_spare_rows(l)) * x_buf_row_bytes(l) + (l->lowp.op ? 4 * l->depth : 0);
	return matmul_has_x_buffer(l) ? (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE : 0;
}

bool matmul_alloc_x_buffer(struct linear *l)
{
	const struct attrs_group *s = l->g->attrs;
	int64_t bytes, min_rows = l->rows_hi < l->mr ? l->rows_hi : l->mr;
	if (!matmul_has_x_buffer(l))
		return true;
	if (s->br < min_rows || !checked_mul_i64(s->br + amx_spare_rows(l), x_buf_row_bytes(l), &bytes) ||
	    bytes > s->scratch)
		return false;
	l->norm.x_rows = s->br;
	l->norm.x_buf = l->job->scratch;
	int64_t c_buf_bytes = matmul_uses_amx(l) ? AMX_C_BUFFER_BYTES(s->br) : 0;
	if (l->lowp.op && matmul_x_buffer_bytes(l) > s->scratch - c_buf_bytes)
		return false;
	l->lowp.f32_row = kb_ptr_add(l->k, l->norm.x_buf, kb_index(l->k, bytes), 0);
	return true;
}

/* ---- quantization ---- */

/* A range of a row: n elements from `from` on. */
struct span {
	const struct linear *l;
	int lanes;
	struct kb_val x, quants; /* the row: f32 source, quantized destination */
	struct kb_val from;
	int64_t n;
	struct kb_val inverse;
	struct kb_var acc; /* max |x|, or sum of quants */
};

typedef void span_body(const struct span *s, struct kb_val at, int valid);

/* Loop over full vectors, then the remainder. */
static void loop_span(const struct span *s, span_body *body)
{
	struct kb *k = s->l->k;
	int64_t full = s->n / s->lanes * s->lanes;
	if (full > UNROLLED * s->lanes) {
		struct kb_val at = kb_loop(k, "j", kb_index(k, 0), kb_index(k, full), s->lanes, KB_NONEMPTY);
		body(s, kb_add(k, s->from, at), s->lanes);
		kb_end_loop(k);
	} else {
		for (int64_t at = 0; at < full; at += s->lanes)
			body(s, kb_add_const(k, s->from, at), s->lanes);
	}
	if (full < s->n)
		body(s, kb_add_const(k, s->from, full), (int)(s->n - full));
}

static struct kb_val load_x(const struct span *s, struct kb_val at, int valid)
{
	return kb_load_part(s->l->k, KB_TYPE(KB_F32, s->lanes), valid, s->x, at, 0);
}

static void update_abs_max(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	struct kb_val v = rowwise_abs_or_inf(k, load_x(s, at, valid));
	kb_set(k, s->acc, kb_max(k, v, kb_get(k, s->acc)));
}

/* x is 0 in lanes beyond the range, and so is their quant in the sum. */
static void quantize_chunk(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	struct kb_val v = load_x(s, at, valid);
	struct kb_val quant = kb_cvt_nearest(k, kb_mul(k, v, kb_splat(k, s->inverse, s->lanes)));
	kb_store_part(k, kb_cvt(k, quant, KB_I8), valid, s->quants, at, 0);
	kb_set(k, s->acc, kb_add(k, quant, kb_get(k, s->acc)));
}

static struct kb_val reduce_acc(const struct span *s, enum kb_bin op)
{
	struct kb_val v = kb_get(s->l->k, s->acc);
	return s->lanes > 1 ? kb_reduce(s->l->k, op, v) : v;
}

/* Quantizes dot block `dot_block` of the row (s->from, s->n); stores its sum (times the zero point of the
 * weights) and its scale after the quants. */
static void quantize_dot_block(struct span *s, struct kb_val dot_block, struct kb_val scale)
{
	struct kb *k = s->l->k;
	const struct activation_row_layout *row = &s->l->lowp.layout;
	const struct ir_format_desc *d = ir_format(s->l->panel.format);
	s->acc = kb_var(k, "codes", KB_TYPE(KB_I32, s->lanes), kb_splat(k, kb_i32(k, 0), s->lanes));
	loop_span(s, quantize_chunk);
	struct kb_val sum = reduce_acc(s, KB_ADD);
	int factor = d->shift > 0 ? 1 : -matmul_zero_point(s->l);
	kb_store(k, kb_mul(k, sum, kb_i32(k, factor)), s->quants, dot_block, row->corrections / 4, 0);
	kb_store(k, scale, s->quants, dot_block, row->scales / 4, 0);
	if (d->has_offset)
		kb_store(k, kb_mul(k, kb_cvt(k, sum, KB_F32), scale), s->quants, dot_block,
		         row->offset_sums / 4, 0);
}

/* A block of x with one scale: n elements from `from` on. It has one or more dot blocks (matmul_lowp.c),
 * from number `first` on. */
static void quantize_x_block(struct span *s, struct kb_val from, int64_t n, struct kb_val first)
{
	struct kb *k = s->l->k;
	int64_t dot_block_k = s->l->lowp.layout.block, full = n / dot_block_k;
	struct kb_val scale;
	s->from = from;
	s->n = n;
	s->acc = kb_var(k, "most", KB_TYPE(KB_F32, s->lanes), kb_splat(k, kb_f32(k, 0), s->lanes));
	loop_span(s, update_abs_max);
	rowwise_int8_scales(k, reduce_acc(s, KB_MAX), &s->inverse, &scale);
	s->n = dot_block_k;
	if (full == 1) {
		quantize_dot_block(s, first, scale);
	} else if (full > 1) {
		struct kb_val i = kb_loop(k, "step", kb_index(k, 0), kb_index(k, full), 1, KB_NONEMPTY);
		s->from = kb_add(k, from, kb_mul_const(k, i, dot_block_k));
		quantize_dot_block(s, kb_add(k, first, i), scale);
		kb_end_loop(k);
	}
	if (n % dot_block_k == 0)
		return;
	s->from = kb_add_const(k, from, full * dot_block_k);
	s->n = n % dot_block_k;
	quantize_dot_block(s, kb_add_const(k, first, full), scale);
}

/* Zeros the last partial cache line: dot products read full words. */
static void zero_last_line(const struct span *s, int64_t bytes)
{
	struct kb *k = s->l->k;
	for (int64_t word = bytes / CACHE_LINE * (CACHE_LINE / 4), n = 0;
	     bytes % CACHE_LINE > 0 && n < CACHE_LINE / 4; n++)
		kb_store(k, kb_i32(k, 0), s->quants, kb_index(k, word + n), 0, 0);
}

static void round_chunk_bf16(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	kb_store_part(k, kb_cvt_bf16_ftz(k, load_x(s, at, valid)), valid, s->quants, at, 0);
}

static void round_row_bf16(struct span *s)
{
	zero_last_line(s, 2 * s->l->depth);
	s->from = kb_index(s->l->k, 0);
	s->n = s->l->depth;
	loop_span(s, round_chunk_bf16);
}

/* A row to int8, block by block of x. */
static void quantize_row(struct span *s)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	int64_t block = l->lowp.to.block, dot_block_k = l->lowp.layout.block;
	block = block > 0 && block < l->depth ? block : l->depth;
	int64_t full = l->depth / block, dot_blocks = (block + dot_block_k - 1) / dot_block_k;
	zero_last_line(s, l->depth);
	struct kb_val i = kb_loop(k, "block", kb_index(k, 0), kb_index(k, full), 1, KB_NONEMPTY);
	struct kb_val from = kb_mul_const(k, i, block);
	quantize_x_block(s, from, block, kb_mul_const(k, i, dot_blocks));
	kb_end_loop(k);
	if (l->depth % block > 0)
		quantize_x_block(s, kb_index(k, full * block), l->depth % block,
		                 kb_index(k, full * dot_blocks));
}

/* ---- rows ---- */

static void emit_norm_rows(const struct linear *l, struct kb_val first, struct kb_val end, struct kb_val to)
{
	struct rowwise_rows rows = {.norm = l->norm.before,
	                            .first = first,
	                            .end = end,
	                            .to = to,
	                            .step = tile_row_stride(l->depth)};
	rowwise_norm_rows(l->eval, &rows);
}

/* Address of row `row` in f32; emits the norm, or gathers a row that is not contiguous. */
static struct kb_val f32_row_address(const struct linear *l, struct kb_val row)
{
	struct kb *k = l->k;
	struct kb_val to = l->lowp.f32_row;
	if (l->norm.before) {
		emit_norm_rows(l, row, kb_add_const(k, row, 1), to);
		return to;
	}
	struct eval_point p = matmul_point(l, row, kb_index(k, 0));
	p.vec = l->rank - 1;
	struct kb_val at = eval_offset(l->eval, l->x, &p);
	if (l->k_stride.is_const && l->k_stride.c == 1)
		return kb_ptr_add(k, l->x->t.ptr, kb_mul_const(k, at, 4), 0);
	struct kb_val j = kb_loop(k, "j", kb_index(k, 0), kb_index(k, l->depth), 1, KB_NONEMPTY);
	struct kb_val from = kb_add(k, at, kb_mul(k, j, l->k_stride.v));
	kb_store(k, kb_load(k, KB_F32_T, l->x->t.ptr, from, 0, 0), to, j, 0, 0);
	kb_end_loop(k);
	return to;
}

/* Quantizes rows [first, end). */
static void emit_quantized_rows(const struct linear *l, struct kb_val first, struct kb_val end)
{
	struct kb *k = l->k;
	int lanes = kb_caps(k)->lanes < 16 ? kb_caps(k)->lanes : 16;
	struct span s = {.l = l, .lanes = lanes};
	struct kb_val row = kb_loop(k, "row", first, end, 1, 0);
	size_t mark = eval_mark(l->eval);
	s.x = f32_row_address(l, row);
	struct kb_val bytes = kb_mul_const(k, kb_sub(k, row, first), l->lowp.layout.bytes);
	s.quants = kb_ptr_add(k, l->norm.x_buf, bytes, 0);
	if (l->lowp.to.bf16)
		round_row_bf16(&s);
	else
		quantize_row(&s);
	if (l->repack.x.id)
		matmul_repack_row(l, s.quants, kb_sub(k, row, first));
	eval_release(l->eval, mark);
	kb_end_loop(k);
}

void matmul_fill_x_buffer(const struct linear *l, struct kb_val row, struct kb_val row_end,
                          struct kb_val panel, struct kb_val panel_end)
{
	if (!matmul_has_x_buffer(l))
		return;
	size_t mark = eval_mark(l->eval);
	kb_if(l->k, kb_cmp(l->k, KB_LT, panel, panel_end));
	if (l->lowp.op)
		emit_quantized_rows(l, row, row_end);
	else
		emit_norm_rows(l, row, row_end, l->norm.x_buf);
	kb_end_if(l->k);
	eval_release(l->eval, mark);
}
