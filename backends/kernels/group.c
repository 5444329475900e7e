/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generator of a group, and the size of its launch. choose_generator is the only place that decides: emission,
 * the work-items that share a task, and the number of tasks follow from its result.
 *
 * The root of a group is its main op (linear, norm, ..); others are computed with it. A task is a piece of the result
 * that one worker computes; the number of tasks (a formula of the dims) is how many workers a launch can use, an
 * estimate: any number of workers gives the same results. On targets with work-groups of GPU_ITEMS work-items a worker
 * is a group (items > 1) or a single item. mr: rows of a register tile; panels are 16 columns.
 */
#include "backends/kernels/attention.h"
#include "backends/kernels/generator.h"
#include "backends/kernels/rowwise_nest.h"
#include "backends/kernels/rowwise.h"
#include "ir/core/view.h"
#include "ir/target/tile.h"
#include "runtime/abi.h"

#include <inttypes.h>

#define SHARED_ROW_MIN 32 /* elements of a row, below which items do not share it */

/* ---- choice of the generator ---- */

enum generator {
	GENERATOR_ATTENTION,
	GENERATOR_ROWWISE,
	GENERATOR_LINEAR,           /* one worker computes a tile */
	GENERATOR_WORKGROUP_LINEAR, /* the items of a work-group do */
	GENERATOR_EXPERTS,
	GENERATOR_EXCHANGE,
	GENERATOR_LOOPS
};

struct choice {
	enum generator generator;
	int64_t items; /* work-items that compute a task together; 1: each is a worker by itself */
	int64_t rows;  /* attention by work-groups: rows of a task; else 0 */
};

/* True for ops on rows of the last axis; a mask alone is one only in groups of that kind. */
static bool is_rowwise(const struct attrs_group *attrs, enum ir_opcode root)
{
	return root == OP_softmax || root == OP_log_softmax || root == OP_masked_softmax ||
	       ir_is_norm(root) || root == OP_quantize_rows ||
	       (root == OP_mask && attrs->kind == GROUP_rowwise);
}

/* True if work-groups can compute the linear: x is f32 in memory, weights are packed. */
static bool suits_workgroups(const struct ir_func *f, const struct ir_op *group, const struct ir_op *root)
{
	struct ir_value x = ir_view_base(f, root->operands[0]);
	const struct ir_weight *w = ir_weight_of(f, root->operands[1]);
	return ir_value_info(f, x)->region != group->region && ir_type_of(f, x)->dtype == DT_F32 && w &&
	       w->encoding == ENC_PANEL16;
}

/* The generator of a group with this root, and how many work-items compute a task together. A linear generator may
 * still decline, if the layout of an operand does not fit; the group is then computed by kernel_loops. Short rows are
 * not shared by items, most of which would wait; matmul of two values has no generator for work-groups. */
static struct choice choose_generator(const struct ir_module *m, const struct ir_func *f,
                                      const struct ir_op *group, const struct ir_op *root,
                                      const struct target *t)
{
	const struct attrs_group *attrs = group->attrs;
	const struct ir_type *y = ir_type_of(f, root->results[0]);
	bool has_groups = t->group_size == GPU_ITEMS;
	struct choice c = {.generator = GENERATOR_LOOPS, .items = 1};
	if (attrs->kind == GROUP_exchange && ir_op_has(root->code, TRAIT_EXCHANGE)) {
		c.generator = GENERATOR_EXCHANGE;
	} else if (attrs->kind == GROUP_attention && root->code == OP_attention) {
		c.generator = GENERATOR_ATTENTION;
		c.rows = attention_group_rows(f, group, t);
		c.items = c.rows > 0 ? GPU_ITEMS : 1;
	} else if (is_rowwise(attrs, root->code)) {
		int64_t longest = y->rank > 0 ? ir_dim_hi(m->dims, y->dims[y->rank - 1]) : 1;
		c.generator = GENERATOR_ROWWISE;
		c.items = has_groups && longest >= SHARED_ROW_MIN ? GPU_ITEMS : 1;
	} else if (attrs->kind == GROUP_linear && root->code == OP_linear) {
		bool by_group = has_groups && suits_workgroups(f, group, root);
		c.generator = by_group ? GENERATOR_WORKGROUP_LINEAR : GENERATOR_LINEAR;
		c.items = by_group ? GPU_ITEMS : 1;
	} else if (attrs->kind == GROUP_linear && root->code == OP_matmul && !has_groups) {
		c.generator = GENERATOR_LINEAR;
	} else if (attrs->kind == GROUP_linear && root->code == OP_expert_linear) {
		c.generator = GENERATOR_EXPERTS;
	}
	return c;
}

int64_t kernel_items(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                     const struct target *t)
{
	const struct ir_op *root = ir_group_root(group);
	return root ? choose_generator(m, f, group, root, t).items : 1;
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

/* The number of rows if calls need two kernels, skinny for few and tiled for many; NULL: one serves all, because rows
 * are always few or always many, or another generator computes the group. */
const struct ir_dim *kernel_few_rows(const struct ir_module *m, const struct ir_func *f,
                                     const struct ir_op *group, const struct target *t)
{
	const struct ir_op *root = ir_group_root(group);
	if (!root || choose_generator(m, f, group, root, t).generator != GENERATOR_WORKGROUP_LINEAR)
		return NULL;
	const struct ir_dim *rows = rows_of(m, ir_type_of(f, root->results[0]));
	bool has_both = ir_dim_lo(m->dims, rows) <= KERNEL_FEW_ROWS_MAX &&
	                ir_dim_hi(m->dims, rows) > KERNEL_FEW_ROWS_MAX;
	return has_both ? rows : NULL;
}

/* Tasks of a GEMM by work-groups, by the calls that the kernel serves. Few rows: single panels. Many: row tiles x N
 * blocks. Any: the larger number, so that no kind of call lacks workers. */
static const struct ir_dim *workgroup_linear_tasks(const struct ir_module *m, const struct ir_type *y,
                                                   enum kernel_rows kind)
{
	const struct ir_dim *rows = rows_of(m, y), *columns = last_of(m, y);
	int64_t tile_rows = gpu_tile_rows(ir_dim_hi(m->dims, rows));
	const struct ir_dim *few = div_up(m, columns, PANEL_COLUMNS),
	                    *many = ir_dim_mul(m->dims, div_up(m, rows, tile_rows),
	                                       div_up(m, columns, GPU_COLUMNS));
	switch (kind) {
	case KERNEL_FEW_ROWS: return few;
	case KERNEL_MANY_ROWS: return many;
	case KERNEL_ANY_ROWS: break;
	}
	return ir_dim_max(m->dims, many, few);
}

/* Tasks of a GEMM: row tiles x N blocks (of 4 panels), + panels - N blocks. The formula is exact for one row tile,
 * where there are as many tasks as panels, and for more too large by at most that difference, without a maximum of
 * formulas. */
static const struct ir_dim *linear_tasks(const struct ir_module *m, const struct ir_type *y, int64_t mr)
{
	const struct ir_dim *rows = rows_of(m, y), *columns = last_of(m, y);
	const struct ir_dim *panels = div_up(m, columns, PANEL_COLUMNS),
	                    *n_blocks = div_up(m, panels, MATMUL_NC);
	const struct ir_dim *tiles = div_up(m, rows, mr);
	const struct ir_dim *more = ir_dim_sub(m->dims, panels, n_blocks);
	return ir_dim_add(m->dims, ir_dim_mul(m->dims, tiles, n_blocks), more);
}

/* Tasks of the fallback: pieces of rows of the largest result, or the rows that are written into state if these are
 * more (by upper bounds). Results are computed one after the other by all workers, so the largest one counts. */
static const struct ir_dim *loops_tasks(const struct ir_module *m, const struct ir_func *f,
                                        const struct ir_op *group, const struct target *t)
{
	const struct ir_dim *most = ir_dim_const(m->dims, 1);
	for (size_t i = 0; i < group->n_results; i++) {
		const struct ir_type *y = ir_type_of(f, group->results[i]);
		if (y->kind != IR_TENSOR || y->rank == 0)
			continue;
		const struct ir_dim *n =
		        ir_dim_mul(m->dims, rows_of(m, y), div_up(m, last_of(m, y), loops_piece(t)));
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

/* Row tiles of all heads, rows being axis 2 of [B, H, S, E]; of work-groups that divide the keys of a new token, also
 * the pieces of all key heads. */
static const struct ir_dim *attention_tasks(const struct ir_module *m, const struct ir_func *f,
                                            const struct ir_op *group, const struct target *t, int64_t rows)
{
	const struct ir_type *q = ir_type_of(f, ir_group_root(group)->operands[0]);
	const struct ir_dim *heads, *row_tiles = div_up(m, q->dims[2], rows > 0 ? rows : ATTENTION_TASK_ROWS);
	const struct ir_dim *tasks = ir_dim_mul(m->dims, ir_type_count_range(m->dims, q, 0, 2), row_tiles);
	if (!rows || !kernel_has_combine(m, f, group, t, &heads))
		return tasks;
	int64_t split = ((const struct attrs_group *)group->attrs)->split;
	return ir_dim_add(m->dims, tasks, ir_dim_mul(m->dims, heads, ir_dim_const(m->dims, split)));
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
	struct choice c = choose_generator(m, f, group, root, t);
	switch (c.generator) {
	case GENERATOR_ATTENTION: return attention_tasks(m, f, group, t, c.rows);
	case GENERATOR_ROWWISE: return rows_of(m, y);
	case GENERATOR_EXCHANGE: return ir_dim_const(m->dims, 1);
	case GENERATOR_WORKGROUP_LINEAR: return workgroup_linear_tasks(m, y, rows_kind);
	case GENERATOR_LINEAR: return linear_tasks(m, y, nest_mr(t, attrs, DT_F32));
	case GENERATOR_EXPERTS:
	case GENERATOR_LOOPS: break;
	}
	return loops_tasks(m, f, group, t);
}

/* ---- emission ---- */

/* A comment in the emitted code for its readers: kind and root of the group, types of operands and results, and whether
 * only the real rows of a padded batch are computed. */
static void comment_types(const struct kernel *g)
{
	struct buf text;
	const struct ir_func *f = g->job->func;
	const struct ir_op *op = g->root;
	buf_init(&text);
	buf_printf(&text, "%s %s", ir_keyword(KEYWORDS_GROUP, g->attrs->kind), ir_op_desc(op->code)->name);
	for (size_t i = 0; i < op->n_operands; i++) {
		if (!op->operands[i].id)
			continue;
		buf_char(&text, ' ');
		ir_type_print(&text, g->job->module->dims, ir_type_of(f, op->operands[i]));
	}
	buf_str(&text, " ->");
	for (size_t i = 0; i < g->job->group->n_results; i++) {
		buf_char(&text, ' ');
		ir_type_print(&text, g->job->module->dims, ir_type_of(f, g->job->group->results[i]));
	}
	if (g->job->lengths.id)
		buf_str(&text, ", real rows of the batch");
	kb_comment(g->k, "%s", text.data);
	buf_destroy(&text);
}

/* The job with each work-item as a worker of its own: for kernel_loops, after a generator declined that was to share
 * tasks among items. The launch stays, so there are items times as many workers. */
static struct kernel_job items_as_workers(const struct kernel_job *job)
{
	struct kernel_job alone = *job;
	struct kb_val items = kb_index(job->k, job->items);
	alone.items = 1;
	struct kb_val item = kb_item_id(job->k);
	alone.worker = kb_add(job->k, kb_mul(job->k, job->worker, items), item);
	alone.n_workers = kb_mul(job->k, job->n_workers, items);
	return alone;
}

/* Emits a linear of any kind. False: its generator declines. */
static bool emit_linear(struct kernel *g, enum generator generator)
{
	switch (generator) {
	case GENERATOR_LINEAR: return kernel_linear(g);
	case GENERATOR_WORKGROUP_LINEAR: return kernel_workgroup_linear(g);
	case GENERATOR_EXPERTS: return kernel_expert_linear(g);
	case GENERATOR_ATTENTION:
	case GENERATOR_ROWWISE:
	case GENERATOR_EXCHANGE:
	case GENERATOR_LOOPS: break;
	}
	return false;
}

static struct kb_val load_ranks_field(const struct kernel_job *job, int64_t offset)
{
	struct kb_val zero = kb_index(job->k, 0);
	return kb_load(job->k, KB_PTR_T, kb_ptr_add(job->k, job->ranks, zero, offset), zero, 0, 0);
}

/* Byte offset of the function of the table that an exchange calls. */
static int64_t function_of(enum ir_opcode code)
{
	switch (code) {
	case OP_all_gather: return offsetof(struct tfmc_ranks, gather);
	case OP_send: return offsetof(struct tfmc_ranks, send);
	case OP_receive: return offsetof(struct tfmc_ranks, receive);
	default: return offsetof(struct tfmc_ranks, sum);
	}
}

/*
 * An exchange with other ranks: a call of the table that the application passed (struct tfmc_ranks), by every
 * worker, which computes its share of the elements. all_gather has rows and their width in place of a count, since a
 * rank's columns go between those of others. The table takes f32 arrays without padding only; OpenCL devices have none.
 */
static enum tfmc_status emit_exchange(const struct kernel_job *job, const struct ir_op *root)
{
	struct kb *k = job->k;
	struct kb_tensor x, y;
	const struct ir_type *t = ir_type_of(job->func, root->results[0]);
	if (job->ranks.id == 0) {
		diag_error(job->cx, job->group->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: several ranks on an OpenCL device");
		return TFMC_INVALID;
	}
	if (t->dtype != DT_F32 || !job->bind->tensor(job->bind->user, k, root->operands[0], &x) ||
	    !job->bind->tensor(job->bind->user, k, job->group->results[0], &y) ||
	    !ir_is_one_array(job->func, root->operands[0]) ||
	    ((const struct attrs_group *)job->group->attrs)->pad != 0) {
		diag_error(job->cx, job->group->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: ranks that add values which are not f32 in row-major order");
		return TFMC_INVALID;
	}
	bool gathers = root->code == OP_all_gather;
	const struct attrs_all_reduce *a = root->attrs; /* those of all exchanges begin alike */
	struct kb_val user = load_ranks_field(job, offsetof(struct tfmc_ranks, user)),
	              fn = load_ranks_field(job, function_of(root->code)), group = kb_index(k, a->ranks);
	const struct ir_type *in = ir_type_of(job->func, root->operands[0]);
	const struct ir_dim *count = gathers ? ir_type_count_range(job->module->dims, in, 0, in->rank - 1)
	                                     : ir_type_count(job->module->dims, t);
	struct kb_val n = job->bind->dim(job->bind->user, k, count).v, tag = kb_index(k, a->tag);
	if (gathers) {
		struct kb_val width = job->bind->dim(job->bind->user, k, in->dims[in->rank - 1]).v;
		struct kb_val args[] = {user, x.ptr,       y.ptr,         n, width, group,
		                        tag,  job->worker, job->n_workers};
		(void)kb_call_ptr(k, fn, KB_VOID, args, TFMC_COUNT(args));
	} else {
		struct kb_val args[] = {user, x.ptr, y.ptr, n, group, tag, job->worker, job->n_workers};
		(void)kb_call_ptr(k, fn, KB_VOID, args, TFMC_COUNT(args));
	}
	return TFMC_OK;
}

struct kb_loc kernel_loc(const struct diag_context *cx, struct ir_loc loc)
{
	return (struct kb_loc){.file = loc.at.source ? diag_source_name(cx, loc.at.source) : NULL,
	                       .path = loc.path ? loc.path : "",
	                       .line = loc.at.line,
	                       .col = loc.at.col};
}

uint32_t kernel_set_loc(struct kb *k, const struct diag_context *cx, struct ir_loc loc)
{
	struct kb_loc at = kernel_loc(cx, loc);
	return kb_set_loc(k, &at);
}

/* Attention and rowwise kernels begin an evaluator themselves; the others share one, with which the fallback goes on
 * if a linear generator declines. */
enum tfmc_status kernel_emit_group(const struct kernel_job *job)
{
	struct eval e;
	const struct attrs_group *attrs = job->group->attrs;
	struct kernel g = {
	        .e = &e, .k = job->k, .job = job, .attrs = attrs, .root = ir_group_root(job->group)};
	if (!g.root) {
		diag_error(job->cx, job->group->loc.at, DIAG_INTERNAL, "kernel: a group without root");
		return TFMC_INTERNAL;
	}
	if (attrs->lanes > 0 && (attrs->lanes > PANEL_COLUMNS || PANEL_COLUMNS % attrs->lanes != 0)) {
		diag_error(job->cx, job->group->loc.at, DIAG_SCHEDULE,
		           "lanes=%" PRId64 ": a vector has 1, 2, 4, 8 or 16 elements (group)", attrs->lanes);
		return TFMC_INVALID;
	}
	struct choice c = choose_generator(job->module, job->func, job->group, g.root, job->target);
	comment_types(&g);
	if (c.generator == GENERATOR_ATTENTION)
		return kernel_attention(job);
	if (c.generator == GENERATOR_ROWWISE)
		return rowwise_emit(job);
	if (c.generator == GENERATOR_EXCHANGE)
		return emit_exchange(job, g.root);
	TFMC_TRY(eval_begin(&e, job));
	TFMC_TRY(eval_outputs(&e, &g.out));
	/* work-groups divide a linear in their own way (gpu_gemm.c) */
	bool has_nest = ir_group_has_nest(attrs);
	if (!(has_nest && c.generator == GENERATOR_WORKGROUP_LINEAR) && emit_linear(&g, c.generator))
		return eval_status(&e);
	if (has_nest)
		eval_reject(&e, "attributes of a loop nest: this kernel has none");
	if (eval_status(&e) != TFMC_OK)
		return eval_status(&e);
	struct kernel_job alone;
	if (job->items > 1) {
		alone = items_as_workers(job);
		g.job = e.job = &alone;
	}
	kernel_loops(&g);
	return eval_status(&e);
}

struct buf kernel_begin_remark(const struct kernel_job *job)
{
	struct buf text;
	buf_init(&text);
	text.failed = !job->remarks;
	return text;
}

void kernel_remark_nest(const struct kernel_job *job, struct buf *text)
{
	const struct ir_op *root = ir_group_root(job->group);
	const struct diag_remark about = {
	        .pass = "nest", .function = job->func->name, .path = root->loc.path, .text = text->data};
	if (!buf_failed(text))
		diag_remark_about(job->cx, root->loc.at, &about);
	buf_destroy(text);
}

/* ---- facts about the ops of a group ---- */

/* True for functions of many instructions. */
static bool is_long_function(enum ir_opcode code)
{
	static const bool table[IR_N_OPS] = {
	        [OP_exp] = true,        [OP_log] = true,  [OP_sin] = true,  [OP_cos] = true,
	        [OP_tanh] = true,       [OP_erf] = true,  [OP_gelu] = true, [OP_gelu_tanh] = true,
	        [OP_gelu_quick] = true, [OP_silu] = true, [OP_pow] = true,  [OP_sigmoid] = true,
	        [OP_softcap] = true,
	};
	return table[code];
}

bool kernel_has_functions(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	for (size_t i = 0; i < r->n_ops; i++)
		if (is_long_function(r->ops[i]->code))
			return true;
	return false;
}
