/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expert_linear: every expert's rows go through the tiles of the matmul template
 * with that expert's matrix. A worker has a run of panels of all matrices; for
 * each expert it lists the rows that name it, a block of them at a time, and
 * walks over the strips of its run. An expert that no row names is not read.
 * Each element is one chain over K, so neither the division nor the other rows
 * of a call change a bit.
 */
#include "backends/linear/matmul_internal.h"
#include "ir/builder/case.h"

/* Operands. */
enum { W = OPERAND(expert_linear, w), IDS = OPERAND(expert_linear, ids), BIAS = OPERAND(expert_linear, b) };

#define LIST_MAX 256 /* rows of a block: a strip of weights is read once for all of them */

struct experts {
	struct linear l; /* the bounds of its rows are those of a block */
	struct ir_value ids;
	int64_t n;            /* experts */
	int64_t matrix_bytes; /* from one to the next */
	struct kb_val lo, hi; /* panels of this worker */
	int64_t list_rows;    /* of a block, at most */
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
	/* no norm: the rows of one are in scratch, where there is no x */
	return matmul_find_rows(l) && l->x && !eval_is_in_group(l->eval, x->ids);
}

static bool find_sizes(struct experts *x)
{
	struct linear *l = &x->l;
	const struct ir_type *type = ir_type_of(l->job->func, eval_result(l->g->root));
	struct ir_dims *dims = l->job->module->dims;
	const struct ir_dim *rows = ir_type_count_range(dims, type, 0, type->rank - 1);
	if (!matmul_find_panels(l))
		return false;
	x->n = l->w->t.size[0].c;
	x->matrix_bytes = ir_dtype_bytes(l->w->t.dtype) * l->w->t.stride[0].c;
	l->rank = type->rank;
	eval_sizes(l->eval, eval_result(l->g->root), l->size);
	l->rows = eval_dim(l->eval, rows);
	l->rows_hi = ir_func_dim_hi(l->job->module, l->job->func, rows);
	return l->rows_hi < INT32_MAX;
}

/* Rows of x that stay in the second-level cache beside a strip, in whole tiles. */
static void choose_block(struct experts *x)
{
	struct linear *l = &x->l;
	int64_t rows = matmul_makes_rows(l) ? l->norm.rows
	                                    : target_gemm_mc(l->job->target, l->depth > 0 ? l->depth : 1);
	rows = rows < LIST_MAX ? rows / l->mr * l->mr : LIST_MAX / l->mr * l->mr;
	rows = rows > l->mr ? rows : l->mr;
	x->list_rows = rows < l->rows_hi ? rows : l->rows_hi;
	l->rows_lo = 1;
	l->rows_hi = x->list_rows;
	if (!l->matrix.config.id) {
		l->stage = (struct matmul_stage){.rows = matmul_tile_height(l),
		                                 .width = (int64_t)l->columns.strip * MATMUL_PANEL};
		if (matmul_wants_stage(l->g))
			l->stage.at = kb_local(l->k, "stage", KB_F32, l->stage.rows * l->stage.width);
	}
	matmul_choose_copy(l, false, 0);
	matmul_choose_unpacked(l, matmul_rows_bytes(l));
	if ((l->stage.kc || l->matrix.config.id) && l->stage.rows < x->list_rows)
		l->rows_hi = x->list_rows = l->stage.rows;
	l->list = kb_local(l->k, "list", KB_I32, x->list_rows);
}

/* The expert of a row, as it is stored: ids outside the range are clamped. */
static struct kb_val expert_of(const struct experts *x, struct kb_val row)
{
	const struct linear *l = &x->l;
	struct eval_point p = {.rank = l->rank - 1, .vec = -1};
	size_t mark = eval_mark(l->eval);
	eval_unravel(l->eval, row, l->size, l->rank - 1, p.index);
	struct kb_val id = eval_value(l->eval, x->ids, &p);
	eval_release(l->eval, mark);
	return eval_clamp_index(l->eval, id, kb_index(l->k, x->n));
}

/* Rows from *next on that name the expert, at most a block of them; gives how many. */
static struct kb_val list_rows(const struct experts *x, struct kb_val expert, struct kb_var next)
{
	struct kb *k = x->l.k;
	struct kb_var count = kb_var(k, "count", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	struct kb_val row = kb_get(k, next), n = kb_get(k, count);
	struct kb_val is_full = kb_cmp(k, KB_GE, n, kb_index(k, x->list_rows));
	kb_break_if(k, kb_bin(k, KB_OR, kb_cmp(k, KB_GE, row, x->l.rows), is_full));
	kb_if(k, kb_cmp(k, KB_EQ, expert_of(x, row), expert));
	kb_store(k, kb_cvt(k, row, KB_I32), x->l.list, n, 0, 0);
	kb_set(k, count, kb_add_const(k, n, 1));
	kb_end_if(k);
	kb_set(k, next, kb_add_const(k, row, 1));
	kb_end_forever(k);
	return kb_get(k, count);
}

/* All rows of an expert times this worker's panels of its matrix, a block of rows at a time. */
static void emit_expert(const struct experts *x, struct kb_val expert)
{
	const struct linear *l = &x->l;
	struct kb *k = l->k;
	struct kb_var next = kb_var(k, "next", KB_INDEX_T, kb_index(k, 0));
	struct matmul_strip s = {.row = kb_index(k, 0), .expert = expert};
	s.weights = kb_ptr_add(k, l->w->t.ptr, kb_mul_const(k, expert, x->matrix_bytes), 0);
	kb_forever(k);
	s.rows = s.row_end = list_rows(x, expert, next);
	kb_break_if(k, kb_cmp(k, KB_EQ, s.rows, kb_index(k, 0)));
	matmul_make_rows(l, s.row, s.rows, x->lo, x->hi);
	s.begin = kb_loop(k, "strip", x->lo, x->hi, l->columns.strip, KB_NONEMPTY);
	s.end = kb_min(k, kb_add_const(k, s.begin, l->columns.strip), x->hi);
	matmul_strip(l, &s);
	kb_end_loop(k);
	kb_end_forever(k);
}

/* Whole tiles of panels for each worker. */
static void find_run(struct experts *x)
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
	if (!bind_operands(&x) || !find_sizes(&x) || !matmul_bind_result(l) || !matmul_choose_schedule(l) ||
	    !matmul_place_rows(l) || l->norm.after || l->rank < 2)
		return false;
	if (l->columns.panels == 0 || l->rows_hi == 0)
		return true;
	matmul_begin_matrix(l);
	choose_block(&x);
	find_run(&x);
	kb_if(g->k, kb_cmp(g->k, KB_LT, x.lo, x.hi));
	struct kb_val expert =
	        kb_loop(g->k, "expert", kb_index(g->k, 0), kb_index(g->k, x.n), 1, KB_NONEMPTY);
	emit_expert(&x, expert);
	kb_end_loop(g->k);
	kb_end_if(g->k);
	matmul_end_matrix(l);
	return true;
}
