/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matmul template: reads the group, chooses tiles, divides rows and panels
 * of columns among workers, and walks over both. A strip of a few panels stays
 * in the cache while the rows of a block pass by. Rows that do not fill a tile
 * go through lower ones; the results do not depend on which.
 */
#include "backends/kernel/matmul.h"

#include <assert.h>

#include "backends/kernel/matmul_internal.h"

/* Operands of OP_linear. */
enum { X, W, BIAS };

/* Heights of tiles for the rows that do not fill a main tile. */
static const int low_heights[] = {8, 4, 2, 1};
#define HEIGHTS_MAX (1 + (int)TFMC_COUNT(low_heights))

#define TASKS_PER_WORKER 4 /* at least, where there are rows enough */

static enum tfmc_status internal(const struct linear *l, const char *what)
{
	diag_error(l->job->cx, l->job->group->loc.at, DIAG_INTERNAL, "linear: %s", what);
	return TFMC_INTERNAL;
}

/* --- the group -------------------------------------------------------------------------------------------
 */

static enum tfmc_status bind_operands(struct linear *l)
{
	const struct kernel_job *job = l->job;
	const struct ir_op *root = l->root;
	if (root->n_operands > BIAS)
		l->bias = root->operands[BIAS];
	l->x = eval_tensor(&l->eval, root->operands[X]);
	if (!l->x || !job->bind->tensor(job->bind->user, l->k, root->operands[W], &l->w))
		return internal(l, "an operand is not addressable");
	if (l->x->t.dtype == DT_F32 && l->w.dtype == DT_F32 && l->w.rank == 2)
		return TFMC_OK;
	diag_error(job->cx, job->group->loc.at, DIAG_UNSUPPORTED,
	           "not supported yet: linear of %s by %s elements", ir_dtype_name(l->x->t.dtype),
	           ir_dtype_name(l->w.dtype));
	return TFMC_INVALID;
}

static enum tfmc_status bind_result(struct linear *l)
{
	struct eval_outputs outputs;
	TFMC_TRY(eval_outputs(&l->eval, &outputs));
	if (outputs.n != 1)
		return internal(l, "the group has not one result");
	l->out = outputs.items[0];
	const struct ir_type *type = ir_type_of(l->job->func, eval_result(l->root));
	const struct ir_type *last = ir_type_of(l->job->func, l->out.value);
	if (last->rank != type->rank)
		return internal(l, "the epilogue is not elementwise");
	struct ir_dims *dims = l->job->module->dims;
	const struct ir_dim *rows = ir_type_count_range(dims, type, 0, type->rank - 1);
	l->rank = type->rank;
	eval_sizes(&l->eval, eval_result(l->root), l->size);
	l->rows = eval_dim(&l->eval, rows);
	l->rows_lo = ir_dim_lo(dims, rows);
	l->rows_hi = ir_dim_hi(dims, rows);
	return TFMC_OK;
}

/* Ops that cost so much that they are emitted once, not for every accumulator. */
static bool is_long(enum ir_opcode code)
{
	static const bool table[IR_N_OPS] = {
	        [OP_exp] = true,        [OP_log] = true,  [OP_sin] = true,  [OP_cos] = true,
	        [OP_tanh] = true,       [OP_erf] = true,  [OP_gelu] = true, [OP_gelu_tanh] = true,
	        [OP_gelu_quick] = true, [OP_silu] = true, [OP_pow] = true,  [OP_sigmoid] = true,
	        [OP_softcap] = true,
	};
	return table[code];
}

#define SHORT_OPS_MAX 6

static bool wants_stage(const struct linear *l)
{
	const struct ir_region *r = l->job->group->region;
	size_t n = 0;
	for (size_t i = (size_t)l->schedule->root + 1; i < r->n_ops; i++) {
		if (is_long(r->ops[i]->code))
			return true;
		n += ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE);
	}
	return n > SHORT_OPS_MAX;
}

static enum tfmc_status choose_schedule(struct linear *l)
{
	const struct attrs_group *s = l->schedule;
	const struct target *t = l->job->target;
	int64_t lanes = s->lanes > 0 ? s->lanes : t->lanes, mr = s->mr > 0 ? s->mr : t->mr;
	int64_t nr = s->nr > 0 ? s->nr : (int64_t)t->panels * MATMUL_PANEL;
	lanes = lanes < MATMUL_PANEL ? lanes : MATMUL_PANEL;
	bool fits = mr <= MATMUL_ROWS_MAX && nr % MATMUL_PANEL == 0 && nr <= MATMUL_STRIP * MATMUL_PANEL &&
	            MATMUL_PANEL % lanes == 0 && mr * (nr / lanes) <= MATMUL_ACC_MAX &&
	            l->w.size[0].is_const && l->w.size[1].is_const && l->w.size[0].c <= INT32_MAX &&
	            l->w.size[1].c <= INT32_MAX;
	if (!fits)
		return internal(l, "the schedule does not fit");
	l->lanes = (int)lanes;
	l->mr = (int)mr;
	l->nr = (int)(nr / MATMUL_PANEL);
	l->columns = l->w.size[0].c;
	l->depth = l->w.size[1].c;
	l->panels = (l->columns + MATMUL_PANEL - 1) / MATMUL_PANEL;
	l->is_staged = wants_stage(l);
	if (l->is_staged)
		l->stage = kb_local(l->k, "stage", KB_F32, mr * MATMUL_STRIP * MATMUL_PANEL);
	return TFMC_OK;
}

/* --- tiles -----------------------------------------------------------------------------------------------
 */

/* Heights of tiles that can occur, decreasing; gives how many. */
static int choose_heights(const struct linear *l, int *height)
{
	bool fixed = l->rows_lo == l->rows_hi;
	int64_t left = l->rows_hi;
	int n = 0;
	if (left >= l->mr) {
		height[n++] = l->mr;
		left = fixed ? left % l->mr : l->mr - 1;
	}
	for (size_t i = 0; i < TFMC_COUNT(low_heights); i++) {
		if (low_heights[i] >= l->mr || left < low_heights[i])
			continue;
		height[n++] = low_heights[i];
		left = fixed ? left - low_heights[i] : left;
	}
	return n;
}

/* Panels of a tile of so many rows: as many as registers hold beside one line of weights and a broadcast. */
static int panels_of(const struct linear *l, int rows)
{
	const struct kb_caps *caps = kb_caps(l->k);
	int units = caps->lanes < MATMUL_PANEL ? MATMUL_PANEL / caps->lanes : 1; /* registers of a panel */
	int64_t whole = l->columns / MATMUL_PANEL;
	int n = rows == l->mr ? l->nr : MATMUL_STRIP;
	for (; n > 1; n /= 2) {
		int lines = rows > 1 ? n * units : 1;
		bool fits = rows == l->mr || rows * n * units + lines + 1 < caps->registers;
		if (fits && n <= whole && rows * n * (MATMUL_PANEL / l->lanes) <= MATMUL_ACC_MAX)
			break;
	}
	return n;
}

/* All tiles of one height in the strip. */
static void emit_height(struct linear *l, int rows)
{
	struct kb *k = l->k;
	struct kb_val whole = l->strip;
	struct tile t = {.rows = rows, .panels = panels_of(l, rows)};
	if (t.panels > 1) {
		struct kb_val end = kb_min(k, l->strip_end, kb_index(k, l->columns / MATMUL_PANEL));
		struct kb_val n = kb_bin(k, KB_DIV, kb_sub(k, end, l->strip), kb_index(k, t.panels));
		whole = kb_add(k, l->strip, kb_mul(k, n, kb_index(k, t.panels)));
		t.panel = kb_loop(k, "panel", l->strip, whole, t.panels, 0);
		matmul_tile(l, &t);
		kb_end_loop(k);
	}
	t.panels = 1;
	t.panel = kb_loop(k, "panel", whole, l->strip_end, 1, 0);
	matmul_tile(l, &t);
	kb_end_loop(k);
}

/* if (left >= height[0]) ..; else if (left >= height[1]) ..; the last one always fits. */
static void emit_heights(struct linear *l, const int *height, int n, struct kb_val left, struct kb_var done)
{
	struct kb *k = l->k;
	if (n > 1)
		kb_if(k, kb_cmp(k, KB_GE, left, kb_index(k, height[0])));
	emit_height(l, height[0]);
	kb_set(k, done, kb_index(k, height[0]));
	if (n > 1) {
		kb_else(k);
		emit_heights(l, height + 1, n - 1, left, done);
		kb_end_if(k);
	}
}

/* Rows [first, l->row_end) of the strip. */
static void emit_strip(struct linear *l, struct kb_val first)
{
	struct kb *k = l->k;
	int height[HEIGHTS_MAX], n = choose_heights(l, height);
	struct kb_var row = kb_var(k, "row", KB_INDEX_T, first);
	struct kb_var done = kb_var(k, "done", KB_INDEX_T, kb_index(k, 0));
	if (n == 0)
		return;
	kb_forever(k);
	l->row = kb_get(k, row);
	kb_break_if(k, kb_cmp(k, KB_GE, l->row, l->row_end));
	emit_heights(l, height, n, kb_sub(k, l->row_end, l->row), done);
	if (l->is_staged)
		matmul_epilogue(l, kb_get(k, done));
	kb_set(k, row, kb_add(k, l->row, kb_get(k, done)));
	kb_end_forever(k);
}

/* --- the division of work --------------------------------------------------------------------------------
 */

struct division {
	struct kb_val unit;   /* panels of a group of columns */
	struct kb_val groups; /* of columns */
	struct kb_val block;  /* rows of a block */
	struct kb_val blocks; /* of rows */
};

static struct kb_val div_up(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_DIV, kb_add_const(k, kb_add(k, a, b), -1), b);
}

/* Rows that stay in half of the second-level cache, in whole tiles. */
static int64_t rows_in_cache(const struct linear *l)
{
	int64_t rows = l->job->target->l2_bytes / 2 / (4 * (l->depth > 0 ? l->depth : 1));
	return rows > l->mr ? rows / l->mr * l->mr : l->mr;
}

/* Few rows: single panels. Many: strips, and blocks of rows as small as it takes to keep all workers busy. */
static void divide(struct linear *l, struct division *d)
{
	struct kb *k = l->k;
	struct kb_val one = kb_index(k, 1), mr = kb_index(k, l->mr);
	struct kb_val few = kb_cmp(k, KB_LE, l->rows, mr);
	d->unit = l->rows_hi <= l->mr ? one : kb_select(k, few, one, kb_index(k, MATMUL_STRIP));
	d->groups = div_up(k, kb_index(k, l->panels), d->unit);
	struct kb_val tasks = kb_mul(k, l->job->n_workers, kb_index(k, TASKS_PER_WORKER));
	struct kb_val block = div_up(k, l->rows, div_up(k, tasks, d->groups));
	block = kb_mul(k, div_up(k, block, mr), mr);
	d->block = kb_min(k, kb_max(k, block, mr), kb_index(k, rows_in_cache(l)));
	d->blocks = div_up(k, l->rows, d->block);
}

/* This worker's tasks [lo, hi) of blocks x groups: in each block a run of groups. */
static void emit_blocks(struct linear *l)
{
	struct kb *k = l->k;
	struct division d;
	struct kb_val hi, zero = kb_index(k, 0);
	divide(l, &d);
	struct kb_val lo = eval_split(&l->eval, kb_mul(k, d.blocks, d.groups), &hi);
	struct kb_val first_block = kb_bin(k, KB_DIV, lo, d.groups);
	struct kb_val block = kb_loop(k, "block", first_block, div_up(k, hi, d.groups), 1, 0);
	struct kb_val before = kb_mul(k, block, d.groups), row = kb_mul(k, block, d.block);
	struct kb_val first = kb_max(k, kb_sub(k, lo, before), zero);
	struct kb_val end = kb_min(k, kb_sub(k, hi, before), d.groups);
	struct kb_val panel_end = kb_min(k, kb_mul(k, end, d.unit), kb_index(k, l->panels));
	l->row_end = kb_min(k, kb_add(k, row, d.block), l->rows);
	l->strip = kb_loop(k, "strip", kb_mul(k, first, d.unit), panel_end, MATMUL_STRIP, 0);
	l->strip_end = kb_min(k, kb_add_const(k, l->strip, MATMUL_STRIP), panel_end);
	emit_strip(l, row);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* --- weights in rows ---------------------------------------------------------------------------------------
 */

/* One element after the other. */
static void emit_plain(struct linear *l)
{
	struct kb *k = l->k;
	const struct kb_size *xs = &l->x->t.stride[l->rank - 1], *ws = l->w.stride;
	struct kb_val columns = l->w.size[0].v, hi;
	l->lanes = 1;
	struct kb_val lo = eval_split(&l->eval, kb_mul(k, l->rows, columns), &hi);
	struct kb_val at = kb_loop(k, "element", lo, hi, 1, 0);
	struct kb_val n = kb_bin(k, KB_REM, at, columns);
	struct eval_point p = matmul_point(l, kb_bin(k, KB_DIV, at, columns), n);
	struct kb_val x_row = matmul_x_offset(l, &p), w_row = kb_mul(k, n, ws[0].v);
	struct kb_var sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	struct kb_val i = kb_loop(k, "k", kb_index(k, 0), l->w.size[1].v, 1, 0);
	struct kb_val x = kb_load(k, KB_F32_T, l->x->t.ptr, kb_add(k, x_row, kb_mul(k, i, xs->v)), 0, 0);
	struct kb_val w = kb_load(k, KB_F32_T, l->w.ptr, kb_add(k, w_row, kb_mul(k, i, ws[1].v)), 0, 0);
	kb_set(k, sum, kb_fma(k, x, w, kb_get(k, sum)));
	kb_end_loop(k);
	matmul_finish(l, &p, kb_get(k, sum));
	kb_end_loop(k);
}

enum tfmc_status kernel_linear(const struct kernel_job *job)
{
	struct linear l = {.job = job, .k = job->k, .schedule = job->group->attrs};
	assert(l.schedule->root >= 0 && (size_t)l.schedule->root < job->group->region->n_ops);
	l.root = job->group->region->ops[l.schedule->root];
	assert(l.root->code == OP_linear);
	TFMC_TRY(eval_begin(&l.eval, job));
	TFMC_TRY(bind_operands(&l));
	TFMC_TRY(bind_result(&l));
	if (l.w.encoding == ENC_ROW) {
		emit_plain(&l);
		return eval_status(&l.eval);
	}
	TFMC_TRY(choose_schedule(&l));
	if (l.panels > 0 && l.rows_hi > 0)
		emit_blocks(&l);
	return eval_status(&l.eval);
}
