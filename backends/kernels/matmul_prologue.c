/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands that a linear makes in scratch before it multiplies: rows of x, and dequantized or repacked weights.
 * Without such a copy of quantized weights the microkernel dequantizes inline, that is, in registers while it
 * multiplies; the registers that dequantizing takes bound the rows (mr) and panels (nr) of its register tile.
 * Both give the same f32 values, and integer accumulators are exact, so results have the same bits with and without
 * copies. nest.c has chosen which copies there are, and that scratch has room for them.
 *
 * Scratch of a worker: rows of x first; then the B buffer with the C buffer after it, or the C buffer alone, or
 * repacked rows of x and repacked panels. A panel of the B buffer is [K or kc][16] f32; addresses are those of K
 * element 0, even if the K block begins later (k_bias). mats 2: panels of gate, then of up.
 *
 * Rows of x are made by a fused norm or concat (im2col), by dynamic quantization to int8 or bf16 (op quantize_rows),
 * or by both. A quantized row has its quants, then for each dot block (K elements with one scale of x and of weights)
 * what matmul_lowp.c reads: zero-point correction, scale, sum (activation_row_layout). A span is a range of a row, of
 * which a span_body computes a vector with `valid` elements.
 */
#include "backends/kernels/matmul_internal.h"
#include "backends/kernels/rowwise.h"
#include "ir/support/checked.h"

/* ---- copies for many rows ---- */

/* Assigns scratch, in the order of the head comment; small C buffers are on the stack (C_IN_stack). */
void matmul_bind_buffers(struct linear *l)
{
	struct kb *k = l->k;
	const struct nest *n = &l->nest;
	struct matmul_buffers *to = &l->buf;
	struct kb_val scratch = l->job->scratch;
	if (l->gemm.makes_x) {
		to->x = scratch;
		to->f32_row = kb_ptr_add(k, scratch, kb_index(k, n->x.f32_row), 0);
	}
	if (n->c.location == C_IN_stack)
		to->c = kb_local(k, "c_buf", KB_F32, n->c.rows * n->c.width);
	else if (n->c.location == C_IN_scratch && n->b.source == B_FROM_packed)
		to->c = kb_ptr_add(k, scratch, kb_index(k, n->x.bytes), 0);
	if (n->b.source == B_FROM_copied ||
	    (n->b.source == B_FROM_stored && gemm_has_partial_panel(&l->gemm)))
		to->b = kb_ptr_add(k, scratch, kb_index(k, n->x.bytes), 0);
	if (n->c.location == C_IN_scratch && n->b.source == B_FROM_copied)
		to->c = kb_ptr_add(k, to->b, kb_index(k, n->kc * n->c.width * 4), 0);
	if (n->repack.to != REPACK_NONE) {
		struct kb_val at = kb_ptr_add(k, scratch, kb_index(k, n->x.bytes), 0);
		to->repacked_x = n->repack.to == REPACK_I16 ? at : (struct kb_val){0};
		to->repacked = kb_ptr_add(k, at, kb_index(k, n->repack.row_bytes), 0);
	}
	matmul_amx_begin(l);
}

/* Stores n dequantized k-rows (a callback of panel_loop). */
static void store_k_row(void *user, const struct panel_loop *w, struct kb_val from, int n)
{
	const struct kb_val *to = user; /* dequantized panel; address as if K began at 0 */
	struct kb *k = w->k;
	struct kb_val at = kb_mul_const(k, from, MATMUL_PANEL);
	for (int i = 0; i < n; i++)
		for (int v = 0; v < w->vectors; v++) {
			struct kb_val weights = panel_loop_vector(w, i, v);
			kb_store(k, weights, *to, at, (int64_t)i * MATMUL_PANEL + (int64_t)v * w->lanes, 0);
		}
}

/* Bytes from the B buffer, which begins with K element k_lo, to where K element 0 would be stored (not positive). */
static struct kb_val k_bias(const struct linear *l, const struct matmul_block *s)
{
	return kb_mul_const(l->k, s->k_lo, -PANEL_ROW_BYTES);
}

/* Dequantizes the K block of a panel (of projection `mat`, or none) into its slot of the B buffer. */
static void dequantize_panel(const struct linear *l, const struct matmul_block *s, struct kb_val panel,
                             struct kb_val mat)
{
	struct kb *k = l->k;
	struct kb_val to = kb_sub(k, panel, s->begin);
	panel = matmul_of_mat(l, panel, mat, l->gemm.columns.panels);
	to = matmul_of_mat(l, to, mat, l->gemm.columns.nc);
	to = kb_mul_const(k, to, l->nest.b.copy.bytes);
	to = kb_ptr_add(k, l->buf.b, kb_add(k, to, k_bias(l, s)), 0);
	struct panel_loop w = {.k = k,
	                       .panel = &l->gemm.panel,
	                       .lanes = l->nest.lanes,
	                       .vectors = MATMUL_PANEL / l->nest.lanes,
	                       .lo = s->k_lo,
	                       .hi = s->k_hi,
	                       .is_k_range = l->nest.kc != 0,
	                       .body = store_k_row,
	                       .user = &to};
	w.at = kb_ptr_add(k, s->weights, kb_mul_const(k, panel, l->gemm.panel.bytes), 0);
	panel_loop(&w);
}

/* ---- B packed from a value ---- */

/* A panel of op matmul: where its columns are, and where its k-rows go (address as if K began at 0). */
struct panel_packer {
	const struct linear *l;
	const struct matmul_block *block;
	struct kb_val first; /* column */
	struct kb_val to;
	bool is_partial; /* columns beyond N are copies of the last one: nothing of them is stored in the result */
};

/* Address of K element 0 of column `i` of the panel; the callers add k. Partial panel: columns beyond N are column
 * N - 1, so that loads stay inside of the value. */
static struct kb_val packed_column(const struct panel_packer *p, int i)
{
	struct kb *k = p->l->k;
	const struct matmul_value *b = &p->l->value;
	struct kb_val n = b->n.id ? b->n : kb_index(k, p->l->gemm.columns.n),
	              column = kb_add_const(k, p->first, i);
	if (p->is_partial)
		column = kb_min(k, column, kb_add_const(k, n, -1));
	struct kb_val offset = kb_mul(k, column, b->n_stride.v);
	return kb_ptr_add(k, p->block->weights, kb_mul_const(k, offset, ir_dtype_bytes(b->t->t.dtype)), 0);
}

/* `lanes` neighbours in memory of the value, as f32. */
static struct kb_val load_value(const struct linear *l, int lanes, struct kb_val from, struct kb_val at,
                                int64_t disp)
{
	enum kb_scalar stored = eval_stored_scalar(l->value.t->t.dtype);
	struct kb_val x = kb_load(l->k, KB_TYPE(stored, lanes), from, at, disp, 0);
	return kb_cvt(l->k, x, KB_F32);
}

/* K elements [lo, hi) of the columns of a panel: element by element, with any strides, or each k-row by vectors of
 * `lanes` columns, which are neighbours in memory (complete panels only, since all 16 columns are read). */
static void pack_k_rows(const struct panel_packer *p, struct kb_val lo, struct kb_val hi, int lanes)
{
	struct kb *k = p->l->k;
	struct kb_val column[MATMUL_PANEL];
	for (int i = 0; i < MATMUL_PANEL; i++)
		column[i] = lanes > 1 && i > 0 ? column[0] : packed_column(p, i);
	struct kb_val at = kb_loop(k, "k", lo, hi, 1, 0);
	struct kb_val row = kb_mul_const(k, at, MATMUL_PANEL), offset = kb_mul(k, at, p->l->value.k_stride.v);
	for (int i = 0; i < MATMUL_PANEL; i += lanes) {
		struct kb_val x = load_value(p->l, lanes, column[i], offset, lanes > 1 ? i : 0);
		kb_store(k, x, p->to, row, i, 0);
	}
	kb_end_loop(k);
}

/* Packs a panel of a value whose neighbours in memory run along K: squares of `lanes` columns are transposed in
 * registers; K elements after the last full square are copied one by one. is_even: columns at a constant distance need
 * one address with displacements; in a partial panel several columns repeat the last one. */
static void pack_columns(const struct panel_packer *p)
{
	const struct linear *l = p->l;
	struct kb *k = l->k;
	const struct kb_size *step = &l->value.n_stride;
	struct kb_val n = kb_div_const(k, kb_sub(k, p->block->k_hi, p->block->k_lo), l->nest.lanes);
	struct kb_val full = kb_add(k, p->block->k_lo, kb_mul_const(k, n, l->nest.lanes)), x[KB_LANES_MAX];
	bool is_even = !p->is_partial && step->is_const && step->c <= INT32_MAX;
	for (int from = 0; from < MATMUL_PANEL; from += l->nest.lanes) {
		struct kb_val column[MATMUL_PANEL];
		for (int i = 0; i < l->nest.lanes; i++)
			column[i] = is_even && i > 0 ? column[0] : packed_column(p, from + i);
		struct kb_val at = kb_loop(k, "k", p->block->k_lo, full, l->nest.lanes, 0);
		for (int i = 0; i < l->nest.lanes; i++)
			x[i] = load_value(l, l->nest.lanes, column[i], at, is_even ? i * step->c : 0);
		reg_tile_transpose(k, x, l->nest.lanes);
		struct kb_val row = kb_mul_const(k, at, MATMUL_PANEL);
		for (int i = 0; i < l->nest.lanes; i++)
			kb_store(k, x[i], p->to, row, i * MATMUL_PANEL + from, 0);
		kb_end_loop(k);
	}
	pack_k_rows(p, full, p->block->k_hi, 1);
}

/* Packs the columns of a panel by vectors along the axis where elements are neighbours, or element by element if there
 * is none (or a partial panel forbids loads of 16 columns). */
static void pack_columns_of_panel(const struct panel_packer *p)
{
	const struct matmul_value *b = &p->l->value;
	if (b->k_stride.is_const && b->k_stride.c == 1 && p->l->nest.lanes > 1)
		pack_columns(p);
	else
		pack_k_rows(p, p->block->k_lo, p->block->k_hi,
		            b->n_stride.is_const && b->n_stride.c == 1 && !p->is_partial ? p->l->nest.lanes
		                                                                         : 1);
}

/* Packs the K block of a panel of op matmul. Only the last panel can be partial: its code is emitted separately, with
 * columns clamped to N. */
static void pack_panel(const struct linear *l, const struct matmul_block *s, struct kb_val panel)
{
	struct kb *k = l->k;
	struct panel_packer p = {.l = l, .block = s, .first = kb_mul_const(k, panel, MATMUL_PANEL)};
	struct kb_val to = kb_mul_const(k, kb_sub(k, panel, s->begin), l->nest.b.copy.bytes);
	p.to = kb_ptr_add(k, l->buf.b, kb_add(k, to, k_bias(l, s)), 0);
	bool may_be_partial = gemm_has_partial_panel(&l->gemm);
	if (may_be_partial) {
		struct kb_val n = l->value.n.id ? l->value.n : kb_index(k, l->gemm.columns.n);
		kb_if(k, kb_cmp(k, KB_GT, kb_add_const(k, p.first, MATMUL_PANEL), n));
		p.is_partial = true;
		pack_columns_of_panel(&p);
		p.is_partial = false;
		kb_else(k);
	}
	pack_columns_of_panel(&p);
	if (may_be_partial)
		kb_end_if(k);
}

/* Nothing, and the block unchanged, if B is read packed in memory. */
struct matmul_block matmul_fill_b_buffer(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct matmul_block block = *s;
	struct kb_val mat = {0};
	if (l->nest.b.source == B_FROM_packed)
		return block;
	if (l->gemm.columns.mats > 1)
		mat = kb_loop(k, "mat", kb_index(k, 0), kb_index(k, l->gemm.columns.mats), 1, KB_NONEMPTY);
	struct kb_val panel = kb_loop(k, "panel", s->begin, s->end, 1, 0);
	if (l->value.t)
		pack_panel(l, s, panel);
	else
		dequantize_panel(l, s, panel, mat);
	kb_end_loop(k);
	if (l->gemm.columns.mats > 1)
		kb_end_loop(k);
	block.b_layout = &l->nest.b.copy;
	block.weights = kb_ptr_add(k, l->buf.b, k_bias(l, s), 0);
	return block;
}

/* ---- repacked integers ---- */

/* Unpacks bytes of words to i16 pairs: even bytes to `to`, odd ones to `to` + odd_offset. */
struct i16_unpack {
	const struct linear *l;
	struct kb_val from, to;
	int64_t bytes, odd_offset;
	bool is_signed;
};

/* Even bytes are shifted up and down again, odd ones down: sign or zero extension of both, in i16 lanes, word by word.
 * x is signed, weights are unsigned (quant + zero point). */
static void unpack_i16(const struct i16_unpack *w)
{
	struct kb *k = w->l->k;
	int lanes = w->l->nest.lanes;
	enum kb_bin right = w->is_signed ? KB_SAR : KB_SHR;
	struct kb_val eight = kb_splat(k, kb_cvt(k, kb_i32(k, 8), KB_I16), 2 * lanes);
	struct kb_val at = kb_loop(k, "word", kb_index(k, 0), kb_index(k, w->bytes / 4), lanes, KB_NONEMPTY);
	struct kb_val words = kb_load(k, KB_TYPE(KB_I32, lanes), w->from, at, 0, 0);
	struct kb_val both = kb_bitcast(k, words, KB_I16);
	struct kb_val even = kb_bin(k, right, kb_bin(k, KB_SHL, both, eight), eight);
	kb_store(k, kb_bitcast(k, even, KB_I32), w->to, at, 0, 0);
	struct kb_val odd = kb_bin(k, right, both, eight);
	kb_store(k, kb_bitcast(k, odd, KB_I32), w->to, at, w->odd_offset / 4, 0);
	kb_end_loop(k);
}

/* Unpacks the quants of row `row` of the M block to i16: even bytes, then odd ones. */
static void matmul_repack_row(const struct linear *l, struct kb_val quants, struct kb_val row)
{
	int64_t bytes = l->gemm.lowp.layout.corrections;
	struct i16_unpack w = {
	        .l = l, .from = quants, .bytes = bytes, .odd_offset = bytes, .is_signed = true};
	w.to = kb_ptr_add(l->k, l->buf.repacked_x, kb_mul_const(l->k, row, 2 * bytes), 0);
	unpack_i16(&w);
}

/* Unpacks words [0, n) from K element i on, a multiple of the group, to bytes. */
static void unpack_words(const struct linear *l, struct kb_val from, struct kb_val to, struct kb_val i, int n)
{
	struct kb *k = l->k;
	struct kb_val at = kb_mul_const(k, i, MATMUL_PANEL / 4);
	for (int word = 0; word < n; word++)
		for (int column = 0; column < MATMUL_PANEL; column += l->nest.lanes) {
			struct kb_val first = kb_index(k, column);
			struct kb_val bytes = l->nest.repack.to == REPACK_AMX
			                              ? panel_load_i8(k, &l->gemm.panel, from, first, i, word,
			                                              l->nest.lanes)
			                              : panel_load_u8(k, &l->gemm.panel, from, first, i, word,
			                                              l->nest.lanes);
			kb_store(k, bytes, to, at, word * MATMUL_PANEL + column, 0);
		}
}

/* A panel as bytes, in the layout of panels of 8 bits: signed ones for AMX, else with zero points. A loop over groups
 * (at least 16 K elements, for code that is worth a loop), then the remainder of K. */
static void unpack_bytes(const struct linear *l, struct kb_val from, struct kb_val to)
{
	struct kb *k = l->k;
	int64_t group = l->gemm.panel.group.elements, unrolled = group > 16 ? group : 16,
	        full = l->gemm.depth / unrolled * unrolled;
	struct kb_val i = kb_loop(k, "unpack", kb_index(k, 0), kb_index(k, full), unrolled, 0);
	unpack_words(l, from, to, i, (int)unrolled / 4);
	kb_end_loop(k);
	unpack_words(l, from, to, kb_index(k, full), (int)(l->gemm.depth - full + 3) / 4);
}

void matmul_repack_block(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct i16_unpack w = {.l = l, .bytes = l->gemm.panel.bytes, .odd_offset = l->gemm.panel.bytes};
	struct kb_val mat =
	        kb_loop(k, "mat", kb_index(k, 0), kb_index(k, l->gemm.columns.mats), 1, KB_NONEMPTY);
	struct kb_val panel = kb_loop(k, "panel", s->begin, s->end, 1, 0);
	struct kb_val from = kb_add(k, panel, kb_mul_const(k, mat, l->gemm.columns.panels));
	struct kb_val to = kb_sub(k, panel, s->begin);
	to = kb_add(k, to, kb_mul_const(k, mat, l->nest.repack.group));
	w.from = kb_ptr_add(k, s->weights, kb_mul_const(k, from, l->gemm.panel.bytes), 0);
	w.to = kb_ptr_add(k, l->buf.repacked, kb_mul_const(k, to, l->nest.repack.panel.bytes), 0);
	if (l->nest.repack.to == REPACK_I16)
		unpack_i16(&w);
	else
		unpack_bytes(l, w.from, w.to);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* ---- rows of x ---- */

#define CACHE_LINE 64
#define UNROLLED   4 /* vectors */

/* ---- the group ---- */

/* The op of the group that defines v; NULL: it is an input of the group. */
static const struct ir_op *defining_op(const struct linear *l, struct ir_value v)
{
	return eval_is_in_group(l->eval, v) ? ir_def(l->job->func, v) : NULL;
}

/* Binds op quantize_rows. False: K is not constant, work-items share rows, or the weights have no integer or
 * bf16 products. */
static bool bind_quantization(struct linear *l, const struct ir_op *op)
{
	const struct kb_tensor *w = &l->w->t;
	const struct attrs_quantize_rows *a = op->attrs;
	struct activation_quant to = {.bf16 = a->to == ROUND_bf16, .block = a->block};
	int64_t depth = w->size[w->rank - 1].c;
	if (!w->size[w->rank - 1].is_const || l->job->items > 1 || quant_dot_block(w->format, to, depth) < 0)
		return false;
	l->gemm.lowp = (struct matmul_lowp){true, to, activation_row_layout(w->format, to, depth)};
	return true;
}

/* The operand x, or that of quantize_rows before it: in memory as f32 with any stride along K, or computed by a norm
 * or concat of the group (norm.before; l->x stays NULL). False: x is of another type, or another op of the group makes
 * it. */
bool matmul_bind_x(struct linear *l)
{
	const struct ir_func *f = l->job->func;
	struct ir_value x = l->g->root->operands[OPERAND(linear, x)];
	const struct ir_op *op = defining_op(l, x);
	if (op && op->code == OP_quantize_rows) {
		if (!bind_quantization(l, op))
			return false;
		x = op->operands[0];
		op = defining_op(l, x);
	}
	l->k_stride = (struct kb_size){true, 1, kb_index(l->k, 1)};
	l->x = eval_tensor(l->eval, x);
	if (l->x) {
		l->k_stride = l->x->t.stride[ir_type_of(f, x)->rank - 1];
		l->gemm.makes_x = l->gemm.lowp.is_on;
		return l->x->t.dtype == DT_F32;
	}
	if (op && (ir_is_norm(op->code) || op->code == OP_concat) && ir_type_of(f, x)->dtype == DT_F32)
		l->norm.before = op;
	l->gemm.makes_x = l->norm.before != NULL;
	return l->gemm.makes_x;
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
	struct kb_var acc;       /* max |x|, or sum of quants */
	struct kb_var negatives; /* by magnitude: sum of |quant| of negative ones; or none */
};

typedef void span_body(const struct span *s, struct kb_val at, int valid);

/* Calls body for the vectors of the span: unrolled if they are few, else in a loop; then for a partial vector. */
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

/* `valid` of `lanes` elements of the f32 row; the other lanes are 0. */
static struct kb_val load_x(const struct span *s, struct kb_val at, int valid)
{
	return kb_load_part(s->l->k, KB_TYPE(KB_F32, s->lanes), valid, s->x, at, 0);
}

/* A span_body: maximum of |x|, infinite if there is NaN. */
static void update_abs_max(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	struct kb_val v = rowwise_abs_or_inf(k, load_x(s, at, valid));
	kb_set(k, s->acc, kb_max(k, v, kb_get(k, s->acc)));
}

/* A span_body: quantizes a vector (x * inverse to the nearest integer, at most 127 in magnitude), stores it and adds it
 * to the sum. x is 0 in lanes beyond the range, and so is their quant in the sum. */
static void quantize_chunk(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	struct kb_val v = load_x(s, at, valid);
	struct kb_val quant = kb_cvt_nearest(k, kb_mul(k, v, kb_splat(k, s->inverse, s->lanes)));
	kb_store_part(k, kb_cvt(k, quant, KB_I8), valid, s->quants, at, 0);
	kb_set(k, s->acc, kb_add(k, quant, kb_get(k, s->acc)));
	if (!s->negatives.id)
		return;
	struct kb_val zero = kb_splat(k, kb_i32(k, 0), s->lanes), negative = kb_min(k, quant, zero);
	kb_set(k, s->negatives, kb_sub(k, kb_get(k, s->negatives), negative));
}

/* An accumulator of the span reduced to a scalar. */
static struct kb_val reduce_acc(const struct span *s, struct kb_var acc, enum kb_bin op)
{
	struct kb_val v = kb_get(s->l->k, acc);
	return s->lanes > 1 ? kb_reduce(s->l->k, op, v) : v;
}

/* Quantizes dot block `dot_block` of the row (s->from, s->n); stores after the quants its sum times - zero point of the
 * weights (the sum itself in formats with shifts, whose factor differs by block; by magnitude plus that of negative
 * ones), its scale, and in formats with minima sum * scale. If dot blocks are merged, sums are i16, and a correction is
 * one in the low half of its word. */
static void quantize_dot_block(struct span *s, struct kb_val dot_block, struct kb_val scale)
{
	struct kb *k = s->l->k;
	const struct activation_row_layout *row = &s->l->gemm.lowp.layout;
	const struct ir_format_desc *d = ir_format(s->l->gemm.panel.format);
	struct kb_val zero = kb_splat(k, kb_i32(k, 0), s->lanes);
	s->acc = kb_var(k, "acc", KB_TYPE(KB_I32, s->lanes), zero);
	if (s->l->nest.dot.by_magnitude)
		s->negatives = kb_var(k, "negatives", KB_TYPE(KB_I32, s->lanes), zero);
	loop_span(s, quantize_chunk);
	struct kb_val sum = reduce_acc(s, s->acc, KB_ADD);
	int factor = d->shift > 0 ? 1 : -s->l->nest.dot.zero;
	struct kb_val correction = kb_mul(k, sum, kb_i32(k, factor));
	if (s->negatives.id)
		correction = kb_add(k, correction, reduce_acc(s, s->negatives, KB_ADD));
	bool merges = s->l->nest.dot.merges;
	if (merges)
		correction = kb_bin(k, KB_AND, correction, kb_i32(k, 0xffff));
	kb_store(k, correction, s->quants, dot_block, row->corrections / 4, 0);
	kb_store(k, scale, s->quants, dot_block, row->scales / 4, 0);
	if (d->has_offset && merges)
		kb_store(k, kb_cvt(k, sum, KB_I16), s->quants, dot_block, row->offset_sums / 2, 0);
	else if (d->has_offset)
		kb_store(k, kb_mul(k, kb_cvt(k, sum, KB_F32), scale), s->quants, dot_block,
		         row->offset_sums / 4, 0);
}

/* A block of x with one scale: n elements from `from` on. First its maximum, which makes the scale, then its dot blocks
 * (one or more, from number `first` on), of which the last may be shorter. */
static void quantize_x_block(struct span *s, struct kb_val from, int64_t n, struct kb_val first)
{
	struct kb *k = s->l->k;
	int64_t dot_block_k = s->l->gemm.lowp.layout.block, full = n / dot_block_k;
	struct kb_val scale;
	s->from = from;
	s->n = n;
	s->acc = kb_var(k, "most", KB_TYPE(KB_F32, s->lanes), kb_splat(k, kb_f32(k, 0), s->lanes));
	loop_span(s, update_abs_max);
	rowwise_int8_scales(k, reduce_acc(s, s->acc, KB_MAX), &s->inverse, &scale);
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

/* Zeros the cache line in which a row of `bytes` bytes of quants ends, before these are stored: dot products read full
 * words, and what is behind the last quant must be 0. */
static void zero_last_line(const struct span *s, int64_t bytes)
{
	struct kb *k = s->l->k;
	for (int64_t word = bytes / CACHE_LINE * (CACHE_LINE / 4), n = 0;
	     bytes % CACHE_LINE > 0 && n < CACHE_LINE / 4; n++)
		kb_store(k, kb_i32(k, 0), s->quants, kb_index(k, word + n), 0, 0);
}

/* A span_body: rounds a vector to bf16. */
static void round_chunk_bf16(const struct span *s, struct kb_val at, int valid)
{
	struct kb *k = s->l->k;
	kb_store_part(k, kb_cvt_bf16_ftz(k, load_x(s, at, valid)), valid, s->quants, at, 0);
}

/* A row to int8, block by block of x (block 0, or longer than K: one block). */
static void quantize_row(struct span *s)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	int64_t block = l->gemm.lowp.to.block, dot_block_k = l->gemm.lowp.layout.block;
	block = block > 0 && block < l->gemm.depth ? block : l->gemm.depth;
	int64_t full = l->gemm.depth / block, dot_blocks = ceil_div(block, dot_block_k);
	const struct activation_row_layout *row = &l->gemm.lowp.layout;
	bool has_offset = ir_format(l->gemm.panel.format)->has_offset;
	zero_last_line(s, l->gemm.depth);
	if (l->nest.dot.merges && has_offset && row->blocks % 2 > 0) /* the last pair of sums has one */
		kb_store(k, kb_i32(k, 0), s->quants, kb_index(k, row->blocks / 2), row->offset_sums / 4, 0);
	struct kb_val i = kb_loop(k, "block", kb_index(k, 0), kb_index(k, full), 1, KB_NONEMPTY);
	struct kb_val from = kb_mul_const(k, i, block);
	quantize_x_block(s, from, block, kb_mul_const(k, i, dot_blocks));
	kb_end_loop(k);
	if (l->gemm.depth % block > 0)
		quantize_x_block(s, kb_index(k, full * block), l->gemm.depth % block,
		                 kb_index(k, full * dot_blocks));
}

/* ---- rows ---- */

/* Emits the norm of rows [first, end) of the M block, as f32 rows at `to`, padded so that they do not collide in L1
 * (tile_row_stride). */
static void emit_norm_rows(const struct linear *l, struct kb_val first, struct kb_val end, struct kb_val to)
{
	struct rowwise_rows rows = {.norm = l->norm.before,
	                            .first = first,
	                            .end = end,
	                            .list = l->row_list,
	                            .to = to,
	                            .step = tile_row_stride(l->gemm.depth)};
	rowwise_norm_rows(l->eval, &rows);
}

/* Rows [first, end) of the concat to `to`: its operands are copied one after the other. The output is bound with
 * leading strides 0, since skip addresses the row. */
static void emit_concat_rows(const struct linear *l, struct kb_val first, struct kb_val end, struct kb_val to)
{
	struct kb *k = l->k;
	int last = l->rank - 1;
	struct eval_output out = {eval_result(l->norm.before), {.t = {.ptr = to, .rank = l->rank}}};
	out.to.t.dtype = DT_F32;
	for (int i = 0; i <= last; i++)
		out.to.t.stride[i] = (struct kb_size){true, i == last, kb_index(k, i == last)};
	struct kb_val row = kb_loop(k, "row", first, end, 1, 0);
	size_t mark = eval_mark(l->eval);
	struct eval_point at = matmul_point(l, row, kb_index(k, 0));
	out.to.skip = kb_mul_const(k, kb_sub(k, row, first), tile_row_stride(l->gemm.depth));
	kernel_output_row(l->g, &out, &at, kb_index(k, 0), kb_index(k, l->gemm.depth));
	eval_release(l->eval, mark);
	kb_end_loop(k);
}

/* Rows [first, end) of the norm or concat, as f32 rows at `to`. */
static void emit_made_rows(const struct linear *l, struct kb_val first, struct kb_val end, struct kb_val to)
{
	if (l->norm.before->code == OP_concat)
		emit_concat_rows(l, first, end, to);
	else
		emit_norm_rows(l, first, end, to);
}

/* Address of row `row` in f32: where x is, if its elements are contiguous; else in scratch, after the norm or concat
 * was emitted, or a gather of elements at a stride. */
static struct kb_val f32_row_address(const struct linear *l, struct kb_val row)
{
	struct kb *k = l->k;
	struct kb_val to = l->buf.f32_row;
	if (l->norm.before) {
		emit_made_rows(l, row, kb_add_const(k, row, 1), to);
		return to;
	}
	struct eval_point p = matmul_point(l, row, kb_index(k, 0));
	p.vec = l->rank - 1;
	struct kb_val at = eval_offset(l->eval, l->x, &p);
	if (l->k_stride.is_const && l->k_stride.c == 1)
		return kb_ptr_add(k, l->x->t.ptr, kb_mul_const(k, at, 4), 0);
	struct kb_val j = kb_loop(k, "j", kb_index(k, 0), kb_index(k, l->gemm.depth), 1, KB_NONEMPTY);
	struct kb_val from = kb_add(k, at, kb_mul(k, j, l->k_stride.v));
	kb_store(k, kb_load(k, KB_F32_T, l->x->t.ptr, from, 0, 0), to, j, 0, 0);
	kb_end_loop(k);
	return to;
}

/* Quantizes rows [first, end) of the M block into the x buffer; also repacks them to i16 if integer products need
 * it. */
static void emit_quantized_rows(const struct linear *l, struct kb_val first, struct kb_val end)
{
	struct kb *k = l->k;
	struct span s = {.l = l, .lanes = tile_lanes(kb_caps(k)->lanes)};
	struct kb_val row = kb_loop(k, "row", first, end, 1, 0);
	size_t mark = eval_mark(l->eval);
	s.x = f32_row_address(l, row);
	struct kb_val bytes = kb_mul_const(k, kb_sub(k, row, first), l->gemm.lowp.layout.bytes);
	s.quants = kb_ptr_add(k, l->buf.x, bytes, 0);
	if (l->gemm.lowp.to.bf16) {
		zero_last_line(&s, 2 * l->gemm.depth);
		s.from = kb_index(k, 0);
		s.n = l->gemm.depth;
		loop_span(&s, round_chunk_bf16);
	} else {
		quantize_row(&s);
	}
	if (l->nest.repack.to == REPACK_I16)
		matmul_repack_row(l, s.quants, kb_sub(k, row, first));
	eval_release(l->eval, mark);
	kb_end_loop(k);
}

/* No code for an x that is read in place. */
void matmul_fill_x_buffer(const struct linear *l, struct kb_val row, struct kb_val row_end,
                          struct kb_val panel, struct kb_val panel_end)
{
	if (!l->gemm.makes_x)
		return;
	size_t mark = eval_mark(l->eval);
	kb_if(l->k, kb_cmp(l->k, KB_LT, panel, panel_end));
	if (l->gemm.lowp.is_on)
		emit_quantized_rows(l, row, row_end);
	else
		emit_made_rows(l, row, row_end, l->buf.x);
	kb_end_if(l->k);
	eval_release(l->eval, mark);
}
