/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMM generator for CPUs: binds the operands of a linear group, divides the work, and emits the loop nest (nest.c
 * chooses it) around the microkernel (Goto and van de Geijn 2008):
 *
 *   M blocks x N runs      one task of a worker
 *     N block (nc panels)  stays in L2 while the rows of the M block pass
 *       K block (kc)       only if accumulators can be stored in the C buffer in between
 *         row tiles (mr)   remainder rows use smaller register tiles
 *           panels (nr)    register tile: matmul_microkernel.c
 *
 * Each f32 accumulator is one chain of multiply-adds in increasing k (matmul_lowp.c has the order of int8 and bf16),
 * so results are bitwise independent of tiles, blocks and workers.
 *
 * M is the rows of x, N the columns of the result, K the depth. mr, nr: rows and panels (of 16 columns) of a register
 * tile. A column group is `unit` panels that stay in one task. Scratch of a worker (matmul_internal.h): x buffer, rows
 * of x that a fused norm or quantization makes; B buffer, an N block dequantized or packed to f32; C buffer,
 * accumulators before bias and epilogue; repacked operands of integer products. True from a bind_ function: the
 * operands fit this generator; false: the group is computed in another way (at last by loops.c).
 *
 * Functions emit kernel IR: an `if` of C decides by facts of the model, kb_if in the call. A kb_val with id 0 is none.
 * M of a call is from rows_lo (perhaps 0) to rows_hi. value.n, value.depth, value.batches: N, K and number of products
 * of op matmul where only the call has them; else none, and the constants apply.
 */
#include "backends/kernels/matmul_internal.h"
#include "backends/kernels/rowwise.h"
#include "ir/core/case.h"
#include "ir/support/checked.h"

/* Operands of OP_linear. */
enum { X = OPERAND(linear, x), W = OPERAND(linear, w), BIAS = OPERAND(linear, b) };

#define M_BLOCKS_MAX     8  /* M blocks at most, to balance the load */
#define TASKS_PER_WORKER 16 /* tasks of a worker beyond which one more or less is no imbalance */

/* ---- the group ---- */

/* Binds the output, and the norm after the product if the group has one. A norm reads complete rows, so its operand is
 * stored first, as f32 where the result goes, and normalized in place (rowwise_norm_after). False: the result is not
 * of f32 in row order. */
static bool bind_norm_after(struct linear *l)
{
	const struct ir_region *r = l->job->group->region;
	for (size_t i = (size_t)l->g->attrs->root + 1; i < r->n_ops; i++)
		if (ir_is_norm(r->ops[i]->code))
			l->norm.after = r->ops[i];
	l->out = l->g->out.items[0];
	if (!l->norm.after)
		return true;
	l->out.value = l->norm.after->operands[0];
	return l->out.to.t.dtype == DT_F32 && l->out.to.t.encoding == ENC_ROW;
}

/* N, K and panels of the packed weights [.., N, K]. Format PLAIN does not tell f32 from bf16 and f16: the layout then
 * follows from dtype. False: a size is not constant, or exceeds int32. */
static bool matmul_bind_weights(struct linear *l)
{
	const struct kb_tensor *w = &l->w->t;
	for (int i = 0; i < w->rank; i++)
		if (!w->size[i].is_const || w->size[i].c > INT32_MAX)
			return false;
	l->gemm.columns.n = w->size[w->rank - 2].c;
	l->gemm.columns.panels = ceil_div(l->gemm.columns.n, MATMUL_PANEL);
	l->gemm.depth = w->size[w->rank - 1].c;
	l->gemm.panel = panel_of(w->format != FORMAT_PLAIN ? w->format : ir_format_from_dtype(w->dtype),
	                         l->gemm.depth);
	return true;
}

/* Binds M (the rows of the result: all axes but the last as one) with its bounds, N, K and the result's axes. rows_hi:
 * the bound in calls of this function, which may be less than that of the dim. False: the weights do not fit. */
static bool find_sizes(struct linear *l)
{
	const struct ir_type *type = ir_type_of(l->job->func, eval_result(l->g->root));
	struct ir_dims *dims = l->job->module->dims;
	const struct ir_dim *rows = ir_type_count_range(dims, type, 0, type->rank - 1);
	if (type->rank < 1 || !matmul_bind_weights(l))
		return false;
	l->rank = type->rank;
	eval_sizes(l->eval, eval_result(l->g->root), l->size);
	l->rows = eval_dim(l->eval, rows);
	l->gemm.rows_lo = ir_dim_lo(dims, rows);
	l->gemm.rows_hi = ir_func_dim_hi(l->job->module, l->job->func, rows);
	return true;
}

/* True if elements of t are at constant strides: no panels, quants or ring buffer. */
static bool is_strided(const struct eval_tensor *t)
{
	return t && !ir_format_is_quantized(t->t.format) && t->t.encoding == ENC_ROW && t->t.ring == 0;
}

/* True if all indices of the leading axes address the same matrix: each axis has size 1 or is a broadcast (stride
 * 0). */
static bool is_repeated(const struct kb_tensor *t)
{
	for (int i = 0; i < t->rank - 2; i++) {
		bool is_one = t->size[i].is_const && t->size[i].c == 1;
		if (!is_one && !(t->stride[i].is_const && t->stride[i].c == 0))
			return false;
	}
	return true;
}

/* Binds op matmul, y = a b, of two values: a is x, b is packed to panels when it is multiplied. ta, tb: the last two
 * axes of a, b are exchanged, which changes strides alone. If all products share b, leading axes are further rows of
 * one product; else they are batches. False: a is not f32, an operand is packed or a ring, or a size exceeds int32. */
static bool bind_values(struct linear *l, struct kernel *g)
{
	const struct ir_op *root = g->root;
	const struct attrs_matmul *at = root->attrs;
	const struct ir_type *y = ir_type_of(g->job->func, eval_result(root)),
	                     *a = ir_type_of(g->job->func, root->operands[0]);
	struct ir_dims *dims = g->job->module->dims;
	int r = y->rank;
	const struct ir_dim *depth = a->dims[r - (at->ta ? 2 : 1)], *n = y->dims[r - 1];
	struct eval_tensor *x = ARENA_NEW(g->job->arena, struct eval_tensor);
	l->value.t = eval_tensor(l->eval, root->operands[1]);
	if (!x || !is_strided(eval_tensor(l->eval, root->operands[0])) || !is_strided(l->value.t) ||
	    ir_dim_hi(dims, depth) > INT32_MAX || ir_dim_hi(dims, n) > INT32_MAX)
		return false;
	*x = *eval_tensor(l->eval, root->operands[0]);
	if (x->t.dtype != DT_F32)
		return false;
	l->k_stride = x->t.stride[r - (at->ta ? 2 : 1)];
	if (at->ta) { /* rows are M, the last axis in memory; those of several matrices are not at one stride */
		x->t.stride[r - 2] = x->t.stride[r - 1];
		x->is_flat = r == 2;
	}
	l->x = x;
	l->w = l->value.t;
	l->value.k_stride = l->w->t.stride[r - (at->tb ? 1 : 2)];
	l->value.n_stride = l->w->t.stride[r - (at->tb ? 2 : 1)];
	l->rank = r;
	eval_sizes(l->eval, eval_result(root), l->size);
	bool is_one = is_repeated(&l->w->t) && x->is_flat;
	const struct ir_dim *rows = is_one ? ir_type_count_range(dims, y, 0, r - 1) : y->dims[r - 2];
	l->rows = eval_dim(l->eval, rows);
	l->gemm.rows_lo = ir_dim_lo(dims, rows);
	l->gemm.rows_hi = ir_func_dim_hi(l->job->module, l->job->func, rows);
	if (!is_one)
		l->value.batches = eval_dim(l->eval, ir_type_count_range(dims, y, 0, r - 2));
	if (!ir_dim_is_const(depth, &l->gemm.depth)) {
		l->gemm.depth = ir_dim_hi(dims, depth);
		l->value.depth = eval_dim(l->eval, depth);
	}
	if (!ir_dim_is_const(
	            n, &l->gemm.columns.n)) { /* the last panel is complete, and its end is not stored */
		l->gemm.columns.n = panel_round_up(ir_dim_hi(dims, n));
		l->value.n = eval_dim(l->eval, n);
	}
	l->gemm.columns.panels = ceil_div(l->gemm.columns.n, MATMUL_PANEL);
	l->gemm.panel = panel_of(FORMAT_PLAIN, l->gemm.depth);
	return true;
}

/* ---- register tiles ---- */

/* Rows that the next tile may have at most, of `left` remaining ones of `rows` in all; matmul_emit_by_rows takes the
 * highest emitted tile not above it. Low tiles load as many weights as high ones, so at least half_mr rows are left
 * over, if any: one odd tile makes the number even, since the other middle tiles are even. half_mr 0: not balanced. */
static struct kb_val next_mr_bound(const struct linear *l, struct kb_val rows, struct kb_val left)
{
	struct kb *k = l->k;
	struct kb_val mr = kb_index(k, l->nest.mr), min_rows = kb_index(k, l->nest.half_mr);
	if (l->nest.half_mr == 0)
		return left;
	struct kb_val is_odd = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, left, kb_index(k, 1)), kb_index(k, 0));
	/* many: at least min_rows remain, or the tile has min_rows; odd: an odd tile, the only one that is emitted */
	struct kb_val others = kb_sub(k, left, min_rows);
	struct kb_val odd = kb_max(k, kb_min(k, others, kb_add_const(k, min_rows, 1)), min_rows);
	struct kb_val even = kb_min(k, others, mr);
	struct kb_val many = kb_select(k, is_odd, odd, even);
	/* calls of at most mr rows have tasks of single panels, and middle tiles are emitted for full width only */
	struct kb_val few = kb_min(k, left, min_rows);
	few = kb_select(k, kb_cmp(k, KB_LE, rows, mr), few, left);
	few = kb_select(k, kb_cmp(k, KB_EQ, left, mr), mr, few);
	return kb_select(k, kb_cmp(k, KB_GT, left, mr), many, few);
}

/* Panel where the last tile of `panels` full panels of the block ends. */
static struct kb_val full_tiles_end(const struct linear *l, const struct matmul_block *s, int panels)
{
	struct kb *k = l->k;
	struct kb_val end = kb_min(k, s->end, kb_index(k, l->gemm.columns.n / MATMUL_PANEL));
	struct kb_val n = kb_div_const(k, kb_sub(k, end, s->begin), panels);
	return kb_add(k, s->begin, kb_mul_const(k, n, panels));
}

bool matmul_open_panels(const struct linear *l, const struct matmul_block *s, struct matmul_tile *t,
                        struct kb_val *end)
{
	bool is_second = end->id != 0;
	struct kb_val first = is_second ? *end : s->begin;
	if (is_second && (t->panels == 1 || !t->has_single))
		return false;
	t->panels = is_second ? 1 : t->panels;
	*end = t->panels > 1 ? full_tiles_end(l, s, t->panels) : s->end;
	bool has_any = t->panels > 1 && !t->has_single;
	t->panel = kb_loop(l->k, "panel", first, *end, t->panels, has_any ? KB_NONEMPTY : 0);
	return true;
}

/* Row tile: all register tiles of t->rows rows in the N block, of gate and then of up where both are fused. t.done
 * reports its rows to emit_row_tiles, since the call selects one of several emitted tiles. */
static void emit_row_tile(const struct linear *l, const struct matmul_block *s,
                          const struct matmul_tile *of_rows)
{
	struct kb *k = l->k;
	struct matmul_tile t = *of_rows;
	struct kb_val end = {0};
	if (l->gemm.columns.mats > 1)
		t.mat = kb_loop(k, "mat", kb_index(k, 0), kb_index(k, l->gemm.columns.mats), 1, KB_NONEMPTY);
	while (matmul_open_panels(l, s, &t, &end)) {
		matmul_microkernel(l, s, &t);
		kb_end_loop(k);
	}
	if (l->gemm.columns.mats > 1)
		kb_end_loop(k);
	if (t.done.id)
		kb_set(k, t.done, kb_index(k, t.rows));
}

void matmul_emit_by_rows(const struct linear *l, const struct matmul_block *s, struct matmul_tile t,
                         const struct nest_rows *of, int n, struct kb_val rows, matmul_tile_emitter *emit)
{
	struct kb *k = l->k;
	int panels = t.panels;
	for (int i = 0; i < n; i++) {
		if (i + 1 < n)
			kb_if(k, kb_cmp(k, KB_GE, rows, kb_index(k, of[i].rows)));
		t.rows = of[i].rows;
		t.panels = panels ? panels : of[i].panels;
		t.has_single = of[i].has_single;
		emit(l, s, &t);
		if (i + 1 < n)
			kb_else(k);
	}
	for (int i = 0; i + 1 < n; i++)
		kb_end_if(k);
}

/* Rows from `row` on that a register tile can have: to the end of the M block; with row_runs (real rows of a padded
 * batch, x read in place) to the end of the sequence, since a tile reads rows of x at one stride. */
static struct kb_val rows_of_tiles(const struct linear *l, const struct matmul_block *s, struct kb_val row)
{
	struct kb *k = l->k;
	struct kb_val left = kb_sub(k, s->row_end, row);
	if (!l->row_runs.id)
		return left;
	return kb_min(k, left, kb_cvt(k, kb_load(k, KB_I32_T, l->row_runs, row, 0, 0), KB_INDEX));
}

/* Loop over row tiles, from row `first` to the end of the M block, over one K block. Advances by the rows of the tile
 * that ran (done). panels: of a register tile; 0: as the nest has them. If K is blocked, the C buffer has all rows of
 * the M block until the last K block; otherwise (if there is one) those of a tile, whose epilogue follows at once. */
static void emit_row_tiles(const struct linear *l, const struct matmul_block *s, struct kb_val first,
                           int panels)
{
	struct kb *k = l->k;
	struct kb_var row = kb_var(k, "row", KB_INDEX_T, first);
	struct kb_var done = kb_var(k, "done", KB_INDEX_T, kb_index(k, 0));
	struct matmul_tile t = {
	        .panels = panels,
	        .done = done,
	        .prefetch = matmul_prefetch_begin(l, kb_sub(k, s->row_end, s->row), l->nest.mr, l->nest.nr)};
	kb_forever(k);
	t.row = kb_get(k, row);
	t.c_row = l->nest.kc ? kb_sub(k, t.row, s->row) : kb_index(k, 0);
	kb_break_if(k, kb_cmp(k, KB_GE, t.row, s->row_end));
	struct kb_val most = next_mr_bound(l, s->rows, rows_of_tiles(l, s, t.row));
	matmul_emit_by_rows(l, s, t, l->nest.row_tile, l->nest.n_row_tiles, most, emit_row_tile);
	if (l->buf.c.id && !l->nest.kc)
		matmul_epilogue(l, s, t.row, kb_get(k, done));
	matmul_prefetch_next_row_tile(l, &t.prefetch);
	kb_set(k, row, kb_add(k, t.row, kb_get(k, done)));
	kb_end_forever(k);
}

/* AMX by dot blocks: full row tiles of 16, for which the N block is repacked once; not for calls of fewer rows, which
 * would not repay it. Returns the first row that is left for vectors (matmul_lowp.c). */
static struct kb_val emit_amx_row_tiles(const struct linear *l, struct matmul_block s)
{
	struct kb *k = l->k;
	struct matmul_tile t = {.rows = KB_TILE_ROWS, .panels = 1, .c_row = kb_index(k, 0)};
	struct kb_val tile_rows = kb_index(k, KB_TILE_ROWS), rows = kb_sub(k, s.row_end, s.row),
	              full = kb_mul(k, kb_bin(k, KB_DIV, rows, tile_rows), tile_rows);
	struct kb_var first = kb_var(k, "first", KB_INDEX_T, s.row);
	kb_if(k, kb_cmp(k, KB_GE, rows, kb_index(k, UNPACK_MIN_ROWS)));
	matmul_repack_block(l, &s);
	s.is_repacked = true;
	t.prefetch = matmul_prefetch_begin(l, rows, t.rows, t.panels);
	kb_set(k, first, kb_add(k, s.row, full));
	t.row = kb_loop(k, "row", s.row, kb_get(k, first), KB_TILE_ROWS, KB_NONEMPTY);
	emit_row_tile(l, &s, &t);
	if (l->buf.c.id)
		matmul_epilogue(l, &s, t.row, tile_rows);
	matmul_prefetch_next_row_tile(l, &t.prefetch);
	kb_end_loop(k);
	kb_end_if(k);
	return kb_get(k, first);
}

/* Repacks a few panels at a time, so that they are still in L1 when they are read. */
static void emit_repacked(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct matmul_block sub = *s;
	sub.is_repacked = true;
	sub.begin = kb_loop(k, "wide", s->begin, s->end, l->nest.repack.group, 0);
	sub.end = kb_min(k, kb_add_const(k, sub.begin, l->nest.repack.group), s->end);
	matmul_repack_block(l, &sub);
	emit_row_tiles(l, &sub, s->row, 0);
	kb_end_loop(k);
}

/* Op matmul whose rows read B once: full panels are read where they are stored, since packing would cost more; the
 * partial last panel is packed to the B buffer, because a k-row of 16 would be read beyond the matrix. Panels of such a
 * block count from s->begin (b_layout), so full.weights begins there. */
static void emit_unpacked(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct matmul_block full = *s, partial = *s;
	bool has_partial = gemm_has_partial_panel(&l->gemm);
	struct kb_val n = l->value.n.id ? l->value.n : kb_index(k, l->gemm.columns.n);
	if (has_partial)
		full.end = kb_min(k, s->end, kb_div_const(k, n, MATMUL_PANEL));
	full.b_layout = &l->nest.b.stored;
	full.weights = kb_ptr_add(k, s->weights, kb_mul_const(k, s->begin, l->nest.b.stored.bytes), 0);
	if (has_partial)
		kb_if(k, kb_cmp(k, KB_LT, s->begin, full.end));
	emit_row_tiles(l, &full, s->row, 0);
	if (!has_partial)
		return;
	kb_end_if(k);
	kb_if(k, kb_cmp(k, KB_LT, full.end, s->end));
	partial.begin = full.end;
	partial = matmul_fill_b_buffer(l, &partial);
	emit_row_tiles(l, &partial, s->row, 1);
	kb_end_if(k);
}

/* Emits a macro block: all of K, epilogue included, by the operands that the nest chose (AMX; repacked; B where it is
 * stored; dequantized). Only a blocked K (nest.kc) loops here: the C buffer is cleared, each K block adds to it, and
 * the epilogue runs once at the end. */
static void matmul_emit_block(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct matmul_block sub = *s;
	struct kb_val rows = kb_sub(k, s->row_end, s->row);
	struct kb_val depth = l->value.depth.id ? l->value.depth : kb_index(k, l->gemm.depth);
	if (l->nest.order == NEST_AMX) {
		matmul_amx_block(l, s);
		return;
	}
	sub.k_lo = kb_index(k, 0);
	sub.k_hi = depth;
	if (l->nest.repack.to == REPACK_AMX) { /* AMX for full tiles of 16 rows, vectors for the remainder */
		emit_row_tiles(l, &sub, emit_amx_row_tiles(l, sub), 0);
		return;
	}
	if (!l->nest.kc && l->nest.repack.to != REPACK_NONE) { /* repacking pays from a number of rows on */
		kb_if(k, kb_cmp(k, KB_GE, rows, kb_index(k, UNPACK_MIN_ROWS)));
		emit_repacked(l, &sub);
		kb_else(k);
		emit_row_tiles(l, &sub, s->row, 0);
		kb_end_if(k);
		return;
	}
	if (l->nest.b.source == B_FROM_stored) {
		emit_unpacked(l, &sub);
		return;
	}
	if (!l->nest.kc) {
		sub = matmul_fill_b_buffer(l, &sub);
		emit_row_tiles(l, &sub, s->row, 0);
		return;
	}
	/* A single row tile reads B once: blocking K gains nothing, and one iteration takes all of K. Not with a B
	 * buffer, which has room for kc k-rows. */
	struct kb_val few =
	        kb_cmp(k, KB_LE, rows, kb_index(k, l->nest.b.source == B_FROM_copied ? 0 : l->nest.mr));
	struct kb_val n = kb_mul_const(k, rows, l->nest.c.width); /* clears the C buffer */
	struct kb_val at = kb_loop(k, "clear", kb_index(k, 0), n, l->nest.lanes, 0);
	kb_store(k, kb_splat(k, kb_f32(k, 0), l->nest.lanes), l->buf.c, at, 0, 0);
	kb_end_loop(k);
	struct kb_val end = kb_select(k, few, kb_index(k, 1), depth);
	sub.k_lo = kb_loop(k, "block", sub.k_lo, end, l->nest.kc, l->value.depth.id ? 0 : KB_NONEMPTY);
	sub.k_hi = kb_select(k, few, depth, kb_min(k, kb_add_const(k, sub.k_lo, l->nest.kc), depth));
	sub = matmul_fill_b_buffer(l, &sub);
	emit_row_tiles(l, &sub, s->row, 0);
	kb_end_loop(k);
	matmul_epilogue(l, s, s->row, rows);
}

/* ---- the division of work ---- */

struct division {
	struct kb_val panels; /* of N */
	struct kb_val unit;   /* panels of a column group */
	struct kb_val groups; /* column groups: N is split into them */
	struct kb_val block;  /* rows of an M block */
	struct kb_val blocks; /* M blocks */
};

static struct kb_val emit_div_up(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_DIV, kb_add_const(k, kb_add(k, a, b), -1), b);
}

/* Divides M only, since a norm after the product needs complete rows: one block for each worker, or more where m_block
 * allows fewer rows. d.groups is the constant 1 here, also the least rows of a block: M = 0 must not divide by 0. */
static struct division divide_rows(const struct linear *l)
{
	struct kb *k = l->k;
	struct kb_val block = emit_div_up(k, l->rows, l->job->n_workers);
	struct division d = {.unit = kb_index(k, l->gemm.columns.panels),
	                     .panels = kb_index(k, l->gemm.columns.panels)};
	d.groups = kb_index(k, 1);
	d.block = kb_min(k, kb_max(k, block, d.groups), kb_index(k, l->nest.m_block));
	d.blocks = emit_div_up(k, l->rows, d.block);
	return d;
}

/*
 * M blocks, at least `min_blocks`, that balance the load: with `groups` column groups each, 1, 2, 4 or 8 of
 * them, the fewest for which tasks divide evenly among the workers, or are many (TASKS_PER_WORKER for each). Each
 * block reads all weights, so fewer are better. One worker: min_blocks.
 */
static struct kb_val balanced_m_blocks(const struct linear *l, struct kb_val groups, struct kb_val min_blocks)
{
	struct kb *k = l->k;
	struct kb_val n = l->job->n_workers, blocks = kb_index(k, M_BLOCKS_MAX);
	struct kb_var all = kb_var(k, "blocks", KB_INDEX_T, min_blocks);
	kb_if(k, kb_cmp(k, KB_GT, n, kb_index(k, 1)));
	struct kb_val many = kb_mul_const(k, n, TASKS_PER_WORKER);
	for (int64_t i = M_BLOCKS_MAX / 2; i > 0; i /= 2) {
		struct kb_val tasks = kb_mul_const(k, groups, i);
		struct kb_val remainder = kb_bin(k, KB_REM, tasks, n);
		struct kb_val even = kb_cmp(k, KB_EQ, remainder, kb_index(k, 0));
		even = kb_bin(k, KB_OR, even, kb_cmp(k, KB_GE, tasks, many));
		blocks = kb_select(k, even, kb_index(k, i), blocks);
	}
	kb_set(k, all, kb_max(k, min_blocks, blocks));
	kb_end_if(k);
	return kb_get(k, all);
}

/* Columns whose weights all workers together read while they make one row of x. */
#define COLUMNS_PER_MADE_ROW 4

/* Least number of M blocks, by the capacity m_block. With AMX and many rows (COLUMNS_PER_MADE_ROW) making the rows of x
 * takes a worker longer than reading the weights: one block for each worker, so that workers make different rows. */
static struct kb_val min_m_blocks(const struct linear *l)
{
	struct kb *k = l->k;
	struct kb_val most = kb_index(k, l->nest.m_block);
	struct kb_val min_blocks = emit_div_up(k, kb_max(k, l->rows, kb_index(k, 1)), most);
	if (l->nest.order != NEST_AMX)
		return min_blocks;
	struct kb_val tiles = emit_div_up(k, l->rows, kb_index(k, AMX_TILE_ROWS));
	struct kb_val all = kb_max(k, min_blocks, kb_min(k, l->job->n_workers, tiles));
	struct kb_val columns = kb_index(k, l->gemm.columns.n * l->gemm.columns.mats / COLUMNS_PER_MADE_ROW);
	return kb_select(k, kb_cmp(k, KB_GE, l->rows, columns), all, min_blocks);
}

/* Rounds rows up to full AMX tiles, at most the capacity of the x buffer. */
static struct kb_val round_to_amx_tiles(const struct linear *l, struct kb_val rows)
{
	struct kb *k = l->k;
	struct kb_val tile_rows = kb_index(k, KB_TILE_ROWS), most = kb_index(k, l->nest.m_block);
	if (l->nest.order != NEST_AMX && l->nest.repack.to != REPACK_AMX)
		return rows;
	return kb_min(k, kb_mul(k, emit_div_up(k, rows, tile_rows), tile_rows), most);
}

/* Division of M and N. At most mr rows: by single panels (except in small code), for the finest balance. More: by full
 * tiles, and M blocks as small as keeps all workers busy, but no lower than a tile. No block if M = 0. */
static struct division divide(const struct linear *l)
{
	struct kb *k = l->k;
	if (l->norm.after)
		return divide_rows(l);
	struct kb_val many = kb_index(k, l->nest.unit), mr = kb_index(k, l->nest.mr);
	struct kb_val one = kb_index(k, l->nest.few_unit);
	struct kb_val panels = l->value.n.id ? emit_div_up(k, l->value.n, kb_index(k, MATMUL_PANEL))
	                                     : kb_index(k, l->gemm.columns.panels);
	struct division d = {.panels = panels, .unit = one, .blocks = kb_index(k, 1), .block = mr};
	if (l->gemm.rows_lo <= 0)
		d.blocks = kb_min(k, l->rows, d.blocks);
	if (l->gemm.rows_hi > l->nest.mr) {
		d.unit = kb_select(k, kb_cmp(k, KB_LE, l->rows, mr), one, many);
		struct kb_val min_blocks = min_m_blocks(l);
		struct kb_val groups = emit_div_up(k, panels, d.unit);
		if (l->value.batches.id)
			groups = kb_mul(k, groups, l->value.batches);
		d.blocks = balanced_m_blocks(l, groups, min_blocks);
		d.block = kb_max(k, round_to_amx_tiles(l, emit_div_up(k, l->rows, d.blocks)), mr);
		d.blocks = emit_div_up(k, l->rows, d.block);
	}
	d.groups = emit_div_up(k, panels, d.unit);
	if (l->value.n.id)
		d.groups = kb_max(k, d.groups, kb_index(k, 1)); /* N = 0 is divided, too */
	return d;
}

/* Sets rows and right operand of M block `block`, counted over all products of op matmul (d->blocks each). Rows are
 * numbered over all products: those of product i begin at i M. */
static void enter_batch(const struct linear *l, const struct division *d, struct kb_val block,
                        struct matmul_block *s)
{
	struct kb *k = l->k;
	const struct kb_tensor *b = &l->w->t;
	struct kb_val batch = kb_bin(k, KB_DIV, block, d->blocks), index[IR_RANK_MAX];
	struct kb_val first = kb_mul(k, batch, l->rows), at = kb_index(k, 0);
	struct kb_val of_batch = kb_sub(k, block, kb_mul(k, batch, d->blocks));
	s->row = kb_add(k, first, kb_mul(k, of_batch, d->block));
	struct kb_val end = kb_add(k, first, l->rows);
	s->row_end = kb_min(k, kb_add(k, s->row, d->block), end);
	eval_unravel(l->eval, batch, l->size, l->rank - 2, index);
	for (int i = 0; i < l->rank - 2; i++)
		at = kb_add(k, at, kb_mul(k, index[i], b->stride[i].v));
	s->weights = kb_ptr_add(k, b->ptr, kb_mul_const(k, at, ir_dtype_bytes(b->dtype)), 0);
}

/* Computes only the real rows of a padded batch (README.md): an M block is a list of them in local memory. Rows of the
 * x buffer are dense, so only x that is read in place needs row_runs. A block has m_block rows, but at least mr
 * (divide). */
static void bind_real_rows(struct linear *l)
{
	const struct batch_rows rows = batch_rows_of(l->eval, eval_result(l->g->root), l->size);
	if (!rows.lengths.ptr.id || !l->nest.lists_rows)
		return;
	l->real = rows;
	l->rows = rows.n;
	l->gemm.rows_lo = 0;
	int64_t most = l->nest.m_block > l->nest.mr ? l->nest.m_block : l->nest.mr;
	l->row_list = kb_local(l->k, "list", KB_I32, most);
	if (!l->gemm.makes_x)
		l->row_runs = kb_local(l->k, "runs", KB_I32, most);
}

/* Lists rows number [s->row, s->row_end) of the real ones; from now on s->row .. count in the list, from 0. */
static void list_rows(const struct linear *l, struct matmul_block *s)
{
	struct kb *k = l->k;
	struct kb_var n = kb_var(k, "listed", KB_INDEX_T, kb_index(k, 0));
	const struct batch_row at = batch_rows_begin(k, &l->real, s->row, s->row_end);
	struct kb_val i = kb_get(k, n);
	kb_store(k, kb_cvt(k, at.row, KB_I32), l->row_list, i, 0, 0);
	if (l->row_runs.id)
		kb_store(k, kb_cvt(k, at.run, KB_I32), l->row_runs, i, 0, 0);
	kb_set(k, n, kb_add_const(k, i, 1));
	batch_rows_end(k, &l->real);
	s->row_end = kb_sub(k, s->row_end, s->row);
	s->row = kb_index(k, 0);
}

/* Emits this worker's tasks [lo, hi) of blocks x groups, numbered M block by M block: in each M block a run of column
 * groups, for which the rows of x are made once. A norm after the product follows when all columns are stored. */
static void emit_blocks(const struct linear *l)
{
	struct kb *k = l->k;
	struct division d = divide(l);
	struct kb_val hi, zero = kb_index(k, 0);
	struct kb_val tasks = kb_mul(k, d.blocks, d.groups);
	if (l->value.batches.id)
		tasks = kb_mul(k, tasks, l->value.batches);
	struct kb_val lo = eval_worker_range(l->eval, tasks, &hi);
	struct kb_val first_block = kb_bin(k, KB_DIV, lo, d.groups);
	struct kb_val block = kb_loop(k, "block", first_block, emit_div_up(k, hi, d.groups), 1, 0);
	struct kb_val before = kb_mul(k, block, d.groups), row = kb_mul(k, block, d.block);
	struct kb_val first = kb_max(k, kb_sub(k, lo, before), zero);
	struct kb_val end = kb_min(k, kb_sub(k, hi, before), d.groups);
	struct kb_val panel_end = kb_min(k, kb_mul(k, end, d.unit), d.panels);
	struct kb_val panel = kb_mul(k, first, d.unit);
	struct matmul_block s = {.rows = l->rows, .row = row, .weights = l->w->t.ptr};
	s.row_end = kb_min(k, kb_add(k, row, d.block), l->rows);
	if (l->value.batches.id)
		enter_batch(l, &d, block, &s);
	if (l->real.lengths.ptr.id)
		list_rows(l, &s);
	matmul_fill_x_buffer(l, s.row, s.row_end, panel, panel_end);
	s.begin = kb_loop(k, "n_block", panel, panel_end, l->gemm.columns.nc, 0);
	s.end = kb_min(k, kb_add_const(k, s.begin, l->gemm.columns.nc), panel_end);
	matmul_emit_block(l, &s);
	kb_end_loop(k);
	const struct rowwise_after after = {l->norm.after, &l->g->out, s.row, s.row_end, l->row_list};
	if (after.norm)
		rowwise_norm_after(l->eval, &after);
	kb_end_loop(k);
}

/* ---- the nest ---- */

/* Bytes of all weights of the model, at least those of this linear; saturates. */
static int64_t model_weight_bytes(const struct linear *l)
{
	int64_t of_linear;
	if (!checked_mul_i64(l->gemm.columns.n, ir_format_row_bytes(l->gemm.panel.format, l->gemm.depth),
	                     &of_linear))
		return INT64_MAX;
	return of_linear > l->job->weight_bytes ? of_linear : l->job->weight_bytes;
}

#define SHORT_OPS_MAX 6

/* True if the epilogue is long (gemm.needs_c_buffer). */
static bool has_long_epilogue(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	size_t n = 0;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++)
		n += ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE);
	return n > SHORT_OPS_MAX || kernel_has_functions(g);
}

void matmul_describe(struct linear *l)
{
	struct gemm *g = &l->gemm;
	const struct kb_size *step = &l->value.n_stride;
	bool is_value = l->value.t != NULL;
	g->target = l->job->target;
	g->caps = *kb_caps(l->k);
	g->attrs = l->g->attrs;
	g->value.is_on = is_value;
	g->value.has_n = l->value.n.id != 0;
	g->value.has_depth = l->value.depth.id != 0;
	g->value.is_n_adjacent = is_value && step->is_const && step->c == 1;
	g->value.dtype = is_value ? l->value.t->t.dtype : DT_F32;
	g->is_k_adjacent = l->k_stride.is_const && l->k_stride.c == 1;
	g->has_norm_after = l->norm.after != NULL;
	g->needs_c_buffer = l->ranges || l->block_op || g->value.has_n || has_long_epilogue(l->g);
	g->may_list_rows = l->job->lengths.id && l->rank >= 3 && l->g->root->code == OP_linear &&
	                   g->rows_hi <= INT32_MAX;
	g->shares_rows = l->job->items > 1;
	g->weight_bytes = model_weight_bytes(l);
}

/* Describes the GEMM and chooses its nest. False, nest_choose, after an error if attributes are refused. */
static bool choose_nest(struct linear *l, int64_t expert_rows)
{
	matmul_describe(l);
	if (!nest_choose(&l->gemm, expert_rows, &l->nest)) {
		if (l->nest.rejection[0])
			eval_reject(l->eval, l->nest.rejection);
		return false;
	}
	struct buf text = kernel_begin_remark(l->job);
	nest_print(&l->gemm, &l->nest, &text);
	kernel_remark_nest(l->job, &text);
	return true;
}

/* State with nothing bound yet. */
static struct linear matmul_new(struct kernel *g)
{
	return (struct linear){.g = g,
	                       .job = g->job,
	                       .k = g->k,
	                       .eval = g->e,
	                       .gemm.columns = {.unit = 1, .nc = MATMUL_NC, .mats = 1}};
}

/* Binds the operands and sizes of the root, op matmul or linear. False: they do not fit (weights of a linear must be
 * packed in panels). */
static bool bind_group(struct linear *l, struct kernel *g)
{
	*l = matmul_new(g);
	const struct ir_op *root = l->g->root;
	if (root->code == OP_matmul)
		return bind_values(l, g);
	l->bias = root->n_operands > BIAS ? root->operands[BIAS] : IR_NO_VALUE;
	l->w = eval_tensor(l->eval, root->operands[W]);
	return l->w && l->w->t.encoding == ENC_PANEL16 && matmul_bind_x(l) && find_sizes(l);
}

/* True if the group has one output, and only elementwise ops, transposes, reshapes and a norm follow the
 * product: the evaluator then computes each element of it from the same element of the product. */
static bool is_plain_epilogue(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++)
		if (!ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE) &&
		    !ir_op_has(r->ops[i]->code, TRAIT_CONST) && r->ops[i]->code != OP_reshape &&
		    r->ops[i]->code != OP_transpose && r->ops[i]->code != OP_yield &&
		    !ir_is_norm(r->ops[i]->code))
			return false;
	return g->out.n == 1;
}

/* Binds the one output of the group, which the epilogue addresses by the root's axes, so the ranks must agree. False:
 * the group needs the epilogue of a block op or of column ranges (matmul_epilogue.c). */
static bool matmul_bind_result(struct linear *l)
{
	if (!is_plain_epilogue(l->g) || !bind_norm_after(l))
		return false;
	return ir_type_of(l->job->func, l->out.value)->rank == l->rank;
}

bool matmul_bind(struct linear *l, struct kernel *g)
{
	return bind_group(l, g) && (matmul_bind_result(l) || matmul_find_ranges(l));
}

/* Tries the epilogues from the simplest on; each resets what the one before has bound (norm.after, out). Without
 * columns or rows nothing is computed. */
bool kernel_linear(struct kernel *g)
{
	struct linear l;
	if (!bind_group(&l, g) ||
	    (!matmul_bind_result(&l) && !matmul_bind_block_op(&l) && !matmul_find_ranges(&l)) ||
	    !choose_nest(&l, 0))
		return false;
	matmul_bind_buffers(&l);
	if (l.gemm.columns.panels > 0 && l.gemm.rows_hi > 0) {
		if (l.nest.order == NEST_SKINNY) {
			matmul_skinny(&l);
		} else {
			bind_real_rows(&l);
			emit_blocks(&l);
		}
	}
	matmul_amx_end(&l);
	return true;
}

/* ---- mixture of experts ---- */

/*
 * Mixture of experts (expert_linear): the rows that select an expert go through the GEMM with its matrix. A
 * worker has a run of panels of all matrices; for each expert it lists the rows that select it, an M block at
 * a time, and loops over the N blocks of its run. Experts that no row selects are not read. Each element is
 * one chain over K, so that neither the division of work nor the other rows of a call change a bit.
 */

/* Operands. */
enum {
	EXPERT_W = OPERAND(expert_linear, w),
	EXPERT_IDS = OPERAND(expert_linear, ids),
	EXPERT_BIAS = OPERAND(expert_linear, b)
};

#define EXPERT_ROWS_MAX 256 /* rows of an M block, for all of which an N block is read once */

struct experts {
	struct linear l; /* its row bounds are those of an M block */
	struct ir_value ids;
	int64_t n;            /* experts */
	int64_t matrix_bytes; /* from one matrix to the next */
	struct kb_val lo, hi; /* panels of this worker */
};

/* Binds w [experts, N, K], ids, bias and x. False: w is not in panels, or its matrices are not at a constant distance;
 * x has no memory to gather from; the group computes the ids, which each worker reads for all rows. */
static bool bind_expert_operands(struct experts *x)
{
	struct linear *l = &x->l;
	const struct ir_op *root = l->g->root;
	l->bias = root->operands[EXPERT_BIAS];
	x->ids = root->operands[EXPERT_IDS];
	l->w = eval_tensor(l->eval, root->operands[EXPERT_W]);
	if (!l->w || l->w->t.encoding != ENC_PANEL16 || l->w->t.rank != 3 || !l->w->t.stride[0].is_const)
		return false;
	/* not after a fused norm: its rows are in scratch, and x is needed to gather from */
	return matmul_bind_x(l) && l->x && !eval_is_in_group(l->eval, x->ids);
}

/* Binds M, N, K, the number of experts and the distance of their matrices. False: not constant, or M exceeds int32, in
 * which rows are listed. */
static bool find_expert_sizes(struct experts *x)
{
	struct linear *l = &x->l;
	if (!find_sizes(l))
		return false;
	x->n = l->w->t.size[0].c;
	x->matrix_bytes = ir_dtype_bytes(l->w->t.dtype) * l->w->t.stride[0].c;
	return l->gemm.rows_hi < INT32_MAX;
}

/* Expert of a row: its id, clamped so that no id reads outside of the weights. The cache scope ends, because the caller
 * emits it under a condition of the loop over rows. */
static struct kb_val expert_of_row(const struct experts *x, struct kb_val row)
{
	const struct linear *l = &x->l;
	struct eval_point p = {.rank = l->rank - 1, .vec = -1};
	size_t mark = eval_mark(l->eval);
	eval_unravel(l->eval, row, l->size, l->rank - 1, p.index);
	struct kb_val id = eval_value(l->eval, x->ids, &p);
	eval_release(l->eval, mark);
	return eval_clamp_index(l->eval, id, kb_index(l->k, x->n));
}

/* Lists rows from *next on that select the expert, at most an M block, and advances *next; returns their number, 0 at
 * the end. */
static struct kb_val gather_rows(const struct experts *x, struct kb_val expert, struct kb_var next)
{
	struct kb *k = x->l.k;
	struct kb_var count = kb_var(k, "count", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	struct kb_val row = kb_get(k, next), n = kb_get(k, count);
	struct kb_val is_full = kb_cmp(k, KB_GE, n, kb_index(k, x->l.gemm.rows_hi));
	kb_break_if(k, kb_bin(k, KB_OR, kb_cmp(k, KB_GE, row, x->l.rows), is_full));
	kb_if(k, kb_cmp(k, KB_EQ, expert_of_row(x, row), expert));
	kb_store(k, kb_cvt(k, row, KB_I32), x->l.row_list, n, 0, 0);
	kb_set(k, count, kb_add_const(k, n, 1));
	kb_end_if(k);
	kb_set(k, next, kb_add_const(k, row, 1));
	kb_end_forever(k);
	return kb_get(k, count);
}

/* All rows of an expert times this worker's panels of its matrix, M block by M block. */
static void emit_expert(const struct experts *x, struct kb_val expert)
{
	const struct linear *l = &x->l;
	struct kb *k = l->k;
	struct kb_var next = kb_var(k, "next", KB_INDEX_T, kb_index(k, 0));
	struct matmul_block s = {.row = kb_index(k, 0), .expert = expert};
	s.weights = kb_ptr_add(k, l->w->t.ptr, kb_mul_const(k, expert, x->matrix_bytes), 0);
	kb_forever(k);
	s.rows = s.row_end = gather_rows(x, expert, next);
	kb_break_if(k, kb_cmp(k, KB_EQ, s.rows, kb_index(k, 0)));
	matmul_fill_x_buffer(l, s.row, s.rows, x->lo, x->hi);
	s.begin = kb_loop(k, "n_block", x->lo, x->hi, l->gemm.columns.nc, KB_NONEMPTY);
	s.end = kb_min(k, kb_add_const(k, s.begin, l->gemm.columns.nc), x->hi);
	matmul_emit_block(l, &s);
	kb_end_loop(k);
	kb_end_forever(k);
}

/* Panels [x->lo, x->hi) of this worker, in full register tiles; the same of each expert's matrix, so that experts need
 * no balance among workers. */
static void find_panel_run(struct experts *x)
{
	struct linear *l = &x->l;
	struct kb *k = l->k;
	struct kb_val hi, unit = kb_index(k, l->nest.nr);
	struct kb_val lo =
	        eval_worker_range(l->eval, kb_index(k, ceil_div(l->gemm.columns.panels, l->nest.nr)), &hi);
	x->lo = kb_mul(k, lo, unit);
	x->hi = kb_min(k, kb_mul(k, hi, unit), kb_index(k, l->gemm.columns.panels));
}

/* Loop over all experts; those that no row selects cost a pass over the ids. No norm after the product: the rows of an
 * expert are complete on no worker. */
bool kernel_expert_linear(struct kernel *g)
{
	struct experts x = {.l = matmul_new(g)};
	struct linear *l = &x.l;
	if (!bind_expert_operands(&x) || !find_expert_sizes(&x) || !matmul_bind_result(l) || l->norm.after ||
	    l->rank < 2)
		return false;
	if (l->gemm.columns.panels == 0 || l->gemm.rows_hi == 0)
		return true;
	if (!choose_nest(l, EXPERT_ROWS_MAX))
		return false;
	matmul_bind_buffers(l);
	l->row_list = kb_local(l->k, "list", KB_I32, l->gemm.rows_hi);
	find_panel_run(&x);
	kb_if(g->k, kb_cmp(g->k, KB_LT, x.lo, x.hi));
	struct kb_val expert =
	        kb_loop(g->k, "expert", kb_index(g->k, 0), kb_index(g->k, x.n), 1, KB_NONEMPTY);
	emit_expert(&x, expert);
	kb_end_loop(g->k);
	kb_end_if(g->k);
	matmul_amx_end(l);
	return true;
}
