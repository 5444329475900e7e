/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launch sizes: whether the items of a work-group share a task of a group, and the number of tasks. The
 * conditions must agree with those under which group.c emits code.
 */
#include "backends/kernels/attention.h"
#include "backends/kernels/generator.h"
#include "ir/target/tile.h"
#include "ir/core/view.h"

#define SHARED_ROW_MIN 32 /* elements of a row, below which items do not share it */

/* ---- items ---- */

/* True if kernel_linear_shared can emit the group: x is f32 in memory, weights are packed. */
static bool is_workgroup_linear(const struct ir_func *f, const struct ir_op *group, const struct ir_op *root)
{
	const struct attrs_group *attrs = group->attrs;
	if (attrs->kind != GROUP_linear || root->code != OP_linear)
		return false;
	struct ir_value x = ir_view_base(f, root->operands[0]);
	const struct ir_weight *w = ir_weight_of(f, root->operands[1]);
	return ir_value_info(f, x)->region != group->region && ir_type_of(f, x)->dtype == DT_F32 && w &&
	       w->encoding == ENC_PANEL16;
}

static int64_t longest_row(const struct ir_module *m, const struct ir_func *f, const struct ir_op *root)
{
	const struct ir_type *t = ir_type_of(f, root->results[0]);
	return t->rank > 0 ? ir_dim_hi(m->dims, t->dims[t->rank - 1]) : 1;
}

int64_t kernel_items(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                     const struct target *t)
{
	const struct ir_op *root = ir_group_root(group);
	if (t->group_size != GPU_ITEMS || !root)
		return 1;
	if (is_workgroup_linear(f, group, root) || attention_group_rows(f, group, t) > 0)
		return GPU_ITEMS;
	if (kernel_is_rowwise(group->attrs, root) && longest_row(m, f, root) >= SHARED_ROW_MIN)
		return GPU_ITEMS;
	return 1;
}

/* ---- tasks ---- */

static const struct ir_dim *div_up(const struct ir_module *m, const struct ir_dim *a, int64_t by)
{
	return ir_dim_floordiv(m->dims, ir_dim_add(m->dims, a, ir_dim_const(m->dims, by - 1)), by);
}

/* Rows of t: the product of all axes but the last. */
static const struct ir_dim *rows_of(const struct ir_module *m, const struct ir_type *t)
{
	return ir_type_count_range(m->dims, t, 0, t->rank > 1 ? t->rank - 1 : 0);
}

/* Size of the last axis. */
static const struct ir_dim *last_of(const struct ir_module *m, const struct ir_type *t)
{
	return t->rank > 0 ? t->dims[t->rank - 1] : ir_dim_const(m->dims, 1);
}

const struct ir_dim *kernel_few_rows(const struct ir_module *m, const struct ir_func *f,
                                     const struct ir_op *group, const struct target *t)
{
	const struct ir_op *root = ir_group_root(group);
	if (t->group_size != GPU_ITEMS || !root || !is_workgroup_linear(f, group, root))
		return NULL;
	const struct ir_dim *rows = rows_of(m, ir_type_of(f, root->results[0]));
	return ir_dim_lo(m->dims, rows) <= KERNEL_FEW_ROWS_MAX &&
	                       ir_dim_hi(m->dims, rows) > KERNEL_FEW_ROWS_MAX
	               ? rows
	               : NULL;
}

/* Few rows: single panels. Many: row tiles x N blocks. */
static const struct ir_dim *workgroup_linear_tasks(const struct ir_module *m, const struct ir_type *y,
                                                   enum kernel_rows kind)
{
	const struct ir_dim *rows = rows_of(m, y), *columns = last_of(m, y);
	int64_t height = kernel_linear_shared_rows(ir_dim_hi(m->dims, rows));
	const struct ir_dim *few = div_up(m, columns, PANEL_COLUMNS),
	                    *many = ir_dim_mul(m->dims, div_up(m, rows, height),
	                                       div_up(m, columns, GPU_COLUMNS));
	switch (kind) {
	case KERNEL_FEW_ROWS: return few;
	case KERNEL_MANY_ROWS: return many;
	case KERNEL_ANY_ROWS: break;
	}
	return ir_dim_max(m->dims, many, few);
}

/* Few rows: single panels. Many: row tiles x N blocks. The formula is exact for one row tile, where there are
 * as many tasks as panels, and adds at most that difference for more. */
static const struct ir_dim *linear_tasks(const struct ir_module *m, const struct ir_type *y, int64_t mr)
{
	const struct ir_dim *rows = rows_of(m, y), *columns = last_of(m, y);
	const struct ir_dim *panels = div_up(m, columns, PANEL_COLUMNS),
	                    *n_blocks = div_up(m, panels, TILE_PANELS_MAX);
	const struct ir_dim *tiles = div_up(m, rows, mr);
	const struct ir_dim *more = ir_dim_sub(m->dims, panels, n_blocks);
	return ir_dim_add(m->dims, ir_dim_mul(m->dims, tiles, n_blocks), more);
}

/* Pieces of rows of the largest result; rows that are written into state. */
static const struct ir_dim *loops_tasks(const struct ir_module *m, const struct ir_func *f,
                                        const struct ir_op *group, const struct target *t)
{
	const struct ir_dim *most = ir_dim_const(m->dims, 1);
	for (size_t i = 0; i < group->n_results; i++) {
		const struct ir_type *y = ir_type_of(f, group->results[i]);
		if (y->kind != IR_TENSOR || y->rank == 0)
			continue;
		const struct ir_dim *n =
		        ir_dim_mul(m->dims, rows_of(m, y), div_up(m, last_of(m, y), kernel_loops_block(t)));
		most = ir_dim_hi(m->dims, n) > ir_dim_hi(m->dims, most) ? n : most;
	}
	for (size_t i = 0; i < group->region->n_ops; i++) {
		const struct ir_op *op = group->region->ops[i];
		if (op->code != OP_state_append && op->code != OP_state_write)
			continue;
		const struct ir_dim *n = rows_of(m, ir_type_of(f, op->operands[1]));
		most = ir_dim_hi(m->dims, n) > ir_dim_hi(m->dims, most) ? n : most;
	}
	return most;
}

/* Row tiles of all heads: rows are axis 2 of [B, H, S, E]. */
static const struct ir_dim *attention_tasks(const struct ir_module *m, const struct ir_type *q, int64_t rows)
{
	return ir_dim_mul(m->dims, ir_type_count_range(m->dims, q, 0, 2), div_up(m, q->dims[2], rows));
}

const struct ir_dim *kernel_combine_tasks(const struct ir_module *m, const struct ir_func *f,
                                          const struct ir_op *group)
{
	return ir_type_count_range(m->dims, ir_type_of(f, ir_group_root(group)->operands[0]), 0, 2);
}

const struct ir_dim *kernel_tasks(const struct ir_module *m, const struct ir_func *f,
                                  const struct ir_op *group, const struct target *t,
                                  enum kernel_rows rows_kind)
{
	const struct attrs_group *attrs = group->attrs;
	const struct ir_op *root = ir_group_root(group);
	if (!root)
		return ir_dim_const(m->dims, 1);
	const struct ir_type *y = ir_type_of(f, root->results[0]);
	if (attrs->kind == GROUP_attention && root->code == OP_attention && y->rank == 4) {
		int64_t rows = attention_group_rows(f, group, t);
		const struct ir_dim *heads, *tasks = attention_tasks(m, ir_type_of(f, root->operands[0]),
		                                                     rows > 0 ? rows : ATTENTION_TASK_ROWS);
		if (!rows || !kernel_has_combine(m, f, group, t, &heads))
			return tasks;
		return ir_dim_add(m->dims, tasks,
		                  ir_dim_mul(m->dims, heads, ir_dim_const(m->dims, attrs->split)));
	}
	if (kernel_is_rowwise(attrs, root))
		return rows_of(m, y);
	if (attrs->kind == GROUP_linear && root->code == OP_linear)
		return kernel_items(m, f, group, t) > 1
		               ? workgroup_linear_tasks(m, y, rows_kind)
		               : linear_tasks(m, y, attrs->mr > 0 ? attrs->mr : target_register_tile(t).mr);
	return loops_tasks(m, f, group, t);
}
