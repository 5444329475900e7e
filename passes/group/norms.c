/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fusion of norms into linears, as prologue or epilogue. Weight sizes and the target decide. The bits do not
 * depend on the decision, since the kernel of a linear traverses the rows of a norm exactly as the norm's own
 * kernel does.
 */
#include "passes/group/fusion.h"

#include "ir/target/target.h"

struct ir_value unrounded_input(const struct fuser *s, const struct ir_op *linear)
{
	const struct ir_op *op = ir_def(s->f, linear->operands[0]);
	return rounds_inside_linear(s->p, s->f, linear, op) ? op->operands[0] : linear->operands[0];
}

const struct ir_op *reader_through_rounding(const struct fuser *s, struct ir_value v)
{
	const struct ir_op *op = fusion_single_reader(s, v);
	const struct ir_op *next =
	        op != NULL && op->code == OP_quantize_rows ? fusion_single_reader(s, op->results[0]) : NULL;
	return next != NULL && rounds_inside_linear(s->p, s->f, next, op) ? next : op;
}

/* A linear of at most this many weights may be computed by one worker. */
#define SINGLE_WORKER_WEIGHTS_MAX 65536

/*
 * A norm needs complete rows, so workers divide rows, not columns, and a single row is left to a single worker.
 * That is faster than a barrier between two kernels only if the linear is small.
 */
bool can_fuse_norm_epilogue(const struct fuser *s, const struct cluster *c, const struct ir_op *op)
{
	bool linear = c->kind == GROUP_linear && c->root->code == OP_linear;
	const struct ir_type *w = linear ? ir_type_of(s->f, c->root->operands[1]) : NULL;
	struct ir_value v = c->last->results[0];

	if (w == NULL || !s->norms || !ir_is_norm(op->code) || !fusion_is_unassigned(s, op) ||
	    !ir_same_value(op->operands[0], v) || c->has_norm_epilogue ||
	    !ir_same_dims(ir_type_of(s->f, c->root->results[0]), ir_type_of(s->f, v)))
		return false;
	for (size_t i = 1; i < op->n_operands; i++)
		if (ir_same_value(op->operands[i], v) || !fusion_is_f32(s->f, op->operands[i]))
			return false;
	const struct ir_op *reader = reader_through_rounding(s, op->results[0]);
	if (reader != NULL && reader->code == OP_linear && fusion_kernel_kind(s->f, reader) == GROUP_linear)
		return false; /* better the prologue of that linear */
	int64_t columns = ir_dim_hi(s->m->dims, w->dims[0]), depth = ir_dim_hi(s->m->dims, w->dims[1]);
	if (columns <= SINGLE_WORKER_WEIGHTS_MAX / (depth > 0 ? depth : 1))
		return true;
	pass_missed(s->p, op->loc,
	            "not fused: %s stays a kernel of its own: workers share the rows of the linear before it",
	            ir_op_desc(op->code)->name);
	return false;
}

/* ---- norms as prologue ---- */

/* op is a linear with packed weights that reads v as its input and as nothing else. */
static bool is_input_of(const struct fuser *s, struct ir_value v, const struct ir_op *op)
{
	bool once = op->code == OP_linear && ir_same_value(unrounded_input(s, op), v) &&
	            !ir_same_value(op->operands[1], v) &&
	            (op->n_operands < 3 || !ir_same_value(op->operands[2], v));
	return once && fusion_kernel_kind(s->f, op) == GROUP_linear;
}

static bool any_linear_reads(const struct fuser *s, struct ir_value v)
{
	const struct user_list *u = &s->users[v.id];
	for (size_t i = 0; i < u->n; i++)
		if (is_input_of(s, v, u->items[i]))
			return true;
	return false;
}

/* An obstacle is only reported if a linear reads the norm, as otherwise there was nothing to fuse. */
const struct ir_op *norm_prologue_linear(struct fuser *s, const struct ir_op *norm)
{
	struct ir_value v = norm->results[0];
	const struct ir_op *op = reader_through_rounding(s, v);
	const struct target *t = s->p->options->target;
	const char *obstacle = NULL;
	if (op == NULL)
		obstacle = "more than one step reads it";
	else if (t != NULL && t->group_size > 1)
		obstacle = "every work-group would compute it again";
	else if (fusion_state_is_written_between(s, norm, op))
		obstacle = "the state that it reads is written before that linear";

	if (s->max_ops < 2 || !s->norms || (op != NULL ? !is_input_of(s, v, op) : !any_linear_reads(s, v)))
		return NULL;
	if (obstacle != NULL)
		pass_missed(s->p, norm->loc, "not fused: %s stays a kernel of its own: %s",
		            ir_op_desc(norm->code)->name, obstacle);
	return obstacle == NULL ? op : NULL;
}

void fuse_norm_prologue(struct fuser *s, size_t cluster)
{
	const struct ir_op *linear = s->g->clusters.items[cluster].root;
	const struct ir_op *norm = ir_def(s->f, unrounded_input(s, linear));

	if (norm == NULL || !ir_is_norm(norm->code) || !fusion_is_unassigned(s, norm) ||
	    norm_prologue_linear(s, norm) != linear)
		return;
	fusion_assign(s, norm, cluster, MEMBER_PRE);
	pass_count(s->p, "norm_prologues", 1);
	pass_remark(s->p, norm->loc, "fused: %s into the linear after it", ir_op_desc(norm->code)->name);
}
