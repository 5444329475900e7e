/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixture of experts (expert_linear): the rows that select an expert go through the GEMM with its matrix. A
 * worker has a run of panels of all matrices; for each expert it lists the rows that select it, an M block at
 * a time, and loops over the N blocks of its run. Experts that no row selects are not read. Each element is
 * one chain over K, so that neither the division of work nor the other rows of a call change a bit.
 */
#include "backends/kernels/matmul_internal.h"
#include "ir/core/case.h"

/* Operands. */
enum { W = OPERAND(expert_linear, w), IDS = OPERAND(expert_linear, ids), BIAS = OPERAND(expert_linear, b) };

#define ROWS_MAX 256 /* rows of an M block, for all of which an N block is read once */

struct experts {
	struct linear l; /* its row bounds are those of an M block */
	struct ir_value ids;
	int64_t n;            /* experts */
	int64_t matrix_bytes; /* from one matrix to the next */
	struct kb_val lo, hi; /* panels of this worker */
	int64_t block_rows;   /* of an M block, at most */
};

static bool bind_operands(struct experts *x)
{
	struct linear *l = &x->l;
	const struct ir_op *root = l->g->root;
	l->bias = root->operands[BIAS];
	x->ids = root->operands[IDS];
	l->w = eval_tensor(l->eval, root->operands[W]);
	if (!l->w || l->w->t.encoding != ENC_PANEL16 || l->w->t.rank != 3 || !l->w->t.stride[0].is_const)
		return false;
	/* not after a fused norm: its rows are in scratch, and x is needed to gather from */
	return matmul_bind_x(l) && l->x && !eval_is_in_group(l->eval, x->ids);
}

/* Binds M, N, K, the number of experts and the distance of their matrices. */
static bool find_sizes(struct experts *x)
{
	struct linear *l = &x->l;
	const struct ir_type *type = ir_type_of(l->job->func, eval_result(l->g->root));
	struct ir_dims *dims = l->job->module->dims;
	const struct ir_dim *rows = ir_type_count_range(dims, type, 0, type->rank - 1);
	if (!matmul_bind_weights(l))
		return false;
	x->n = l->w->t.size[0].c;
	x->matrix_bytes = ir_dtype_bytes(l->w->t.dtype) * l->w->t.stride[0].c;
	l->rank = type->rank;
	eval_sizes(l->eval, eval_result(l->g->root), l->size);
	l->rows = eval_dim(l->eval, rows);
	l->rows_hi = ir_func_dim_hi(l->job->module, l->job->func, rows);
	return l->rows_hi < INT32_MAX;
}

/* Rows of an M block: x stays in L2 together with an N block; full register tiles. */
static void choose_block(struct experts *x)
{
	struct linear *l = &x->l;
	int64_t rows = matmul_has_x_buffer(l) ? l->norm.x_rows
	                                      : target_gemm_mc(l->job->target, l->depth > 0 ? l->depth : 1);
	rows = rows < ROWS_MAX ? rows / l->mr * l->mr : ROWS_MAX / l->mr * l->mr;
	rows = rows > l->mr ? rows : l->mr;
	x->block_rows = rows < l->rows_hi ? rows : l->rows_hi;
	l->rows_lo = 1;
	l->rows_hi = x->block_rows;
	if (!l->amx.config.id) {
		l->c_buf = (struct matmul_c_buffer){.rows = matmul_max_mr(l),
		                                    .width = (int64_t)l->columns.nc * MATMUL_PANEL};
		if (matmul_needs_c_buffer(l->g))
			l->c_buf.at = kb_local(l->k, "stage", KB_F32, l->c_buf.rows * l->c_buf.width);
	}
	matmul_choose_b_buffer(l, false, 0);
	matmul_choose_repack(l, matmul_x_buffer_bytes(l));
	if ((l->c_buf.kc || l->amx.config.id) && l->c_buf.rows < x->block_rows)
		l->rows_hi = x->block_rows = l->c_buf.rows;
	l->row_list = kb_local(l->k, "list", KB_I32, x->block_rows);
}

/* Expert of a row; ids out of range are clamped. */
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

/* Lists rows from *next on that select the expert, at most an M block; returns their number. */
static struct kb_val gather_rows(const struct experts *x, struct kb_val expert, struct kb_var next)
{
	struct kb *k = x->l.k;
	struct kb_var count = kb_var(k, "count", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	struct kb_val row = kb_get(k, next), n = kb_get(k, count);
	struct kb_val is_full = kb_cmp(k, KB_GE, n, kb_index(k, x->block_rows));
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
	s.begin = kb_loop(k, "strip", x->lo, x->hi, l->columns.nc, KB_NONEMPTY);
	s.end = kb_min(k, kb_add_const(k, s.begin, l->columns.nc), x->hi);
	matmul_emit_block(l, &s);
	kb_end_loop(k);
	kb_end_forever(k);
}

/* Panels of this worker, in full register tiles. */
static void find_panel_run(struct experts *x)
{
	struct linear *l = &x->l;
	struct kb *k = l->k;
	struct kb_val hi, unit = kb_index(k, l->nr);
	struct kb_val lo =
	        eval_worker_range(l->eval, kb_index(k, (l->columns.panels + l->nr - 1) / l->nr), &hi);
	x->lo = kb_mul(k, lo, unit);
	x->hi = kb_min(k, kb_mul(k, hi, unit), kb_index(k, l->columns.panels));
}

bool kernel_expert_linear(struct kernel *g)
{
	struct experts x = {.l = matmul_new(g)};
	struct linear *l = &x.l;
	if (!bind_operands(&x) || !find_sizes(&x) || !matmul_bind_result(l) || !matmul_choose_tile(l) ||
	    !matmul_alloc_x_buffer(l) || l->norm.after || l->rank < 2)
		return false;
	if (l->columns.panels == 0 || l->rows_hi == 0)
		return true;
	matmul_amx_begin(l);
	choose_block(&x);
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
