/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch from a group to its kernel generator, by the kind that the schedule chose and by the root op.
 * Groups without a specialized generator go to kernels/loops.c.
 */
#include "backends/kernels/attention.h"
#include "backends/kernels/group.h"
#include "backends/kernels/rowwise.h"
#include "backends/kernels/generator.h"

/* A comment in the emitted code: kind, root and types of the group. */
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
	kb_comment(g->k, "%s", text.data);
	buf_destroy(&text);
}

static bool is_row_op(enum ir_opcode code)
{
	return code == OP_mask || code == OP_softmax || code == OP_log_softmax || code == OP_masked_softmax ||
	       ir_is_norm(code) || code == OP_round_rows;
}

bool kernel_is_rowwise(const struct attrs_group *attrs, const struct ir_op *root)
{
	return is_row_op(root->code) && (attrs->kind == GROUP_rowwise || root->code != OP_mask);
}

/* The job with each work-item as a worker of its own. */
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

/* Generators for work-groups; other groups are computed item by item. */
static enum tfmc_status emit_by_workgroup(struct kernel *g)
{
	struct kernel_job alone;
	if (g->attrs->kind == GROUP_linear && g->root->code == OP_linear && kernel_linear_shared(g))
		return eval_status(g->e);
	alone = items_as_workers(g->job);
	g->job = g->e->job = &alone;
	kernel_loops(g);
	return eval_status(g->e);
}

static bool emit_by_worker(struct kernel *g)
{
	if (g->attrs->kind != GROUP_linear)
		return false;
	if (g->root->code == OP_expert_linear)
		return kernel_expert_linear(g);
	return g->root->code == OP_linear && kernel_linear(g);
}

enum tfmc_status kernel_emit_group(const struct kernel_job *job)
{
	struct eval e;
	const struct attrs_group *attrs = job->group->attrs;
	const struct ir_region *r = job->group->region;
	struct kernel g = {.e = &e, .k = job->k, .job = job, .attrs = attrs};
	if (attrs->root < 0 || (size_t)attrs->root >= r->n_ops) {
		diag_error(job->cx, job->group->loc.at, DIAG_INTERNAL, "kernel: a group without root");
		return TFMC_INTERNAL;
	}
	g.root = r->ops[attrs->root];
	comment_types(&g);
	if (attrs->kind == GROUP_attention && g.root->code == OP_attention)
		return kernel_attention(job);
	if (kernel_is_rowwise(attrs, g.root))
		return rowwise_emit(job);
	TFMC_TRY(eval_begin(&e, job));
	TFMC_TRY(eval_outputs(&e, &g.out));
	if (job->items > 1)
		return emit_by_workgroup(&g);
	if (!emit_by_worker(&g))
		kernel_loops(&g);
	return eval_status(&e);
}
