/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms in kernels of linears, see norms.h. The sizes of weights and the
 * target decide; bits do not depend on it, since a linear's kernel walks over
 * the rows of a norm as a kernel of the norm alone does.
 */
#include "passes/group/norms.h"

#include "ir/target/tile.h"

/* The value that the linear reads, before it rounds it. */
static struct ir_value input_of(const struct former *s, const struct ir_op *linear)
{
	const struct ir_op *op = ir_def(s->f, linear->operands[0]);
	return group_rounds_for(s->p, s->f, linear, op) ? op->operands[0] : linear->operands[0];
}

/* The one reader of v, or of what it is rounded to. */
static const struct ir_op *reader_of(const struct former *s, struct ir_value v)
{
	const struct ir_op *op = former_only_reader(s, v);
	const struct ir_op *next =
	        op != NULL && op->code == OP_round_rows ? former_only_reader(s, op->results[0]) : NULL;
	return next != NULL && group_rounds_for(s->p, s->f, next, op) ? next : op;
}

/* Elements of the weights of linears that one worker may be left alone with, when there is one row only. */
#define WHOLE_ROWS_MAX 65536

/*
 * A norm needs whole rows, so that no two workers may share one: with one row, one worker computes it. That
 * is quicker than to wait for all only when the linear is small.
 */
bool group_norm_can_follow(const struct former *s, const struct cluster *c, const struct ir_op *op)
{
	bool linear = c->kind == GROUP_linear && c->root->code == OP_linear;
	const struct ir_type *w = linear ? ir_type_of(s->f, c->root->operands[1]) : NULL;
	struct ir_value v = c->last->results[0];

	if (w == NULL || !s->norms || !ir_is_norm(op->code) || !former_is_free(s, op) ||
	    !ir_same_value(op->operands[0], v) || c->has_norm ||
	    !former_same_dims(ir_type_of(s->f, c->root->results[0]), ir_type_of(s->f, v)))
		return false;
	for (size_t i = 1; i < op->n_operands; i++)
		if (ir_same_value(op->operands[i], v) || !former_is_f32(s->f, op->operands[i]))
			return false;
	const struct ir_op *reader = reader_of(s, op->results[0]);
	if (reader != NULL && reader->code == OP_linear && former_kind_of(s->f, reader) == GROUP_linear)
		return false; /* its prologue */
	int64_t columns = ir_dim_hi(s->m->dims, w->dims[0]), depth = ir_dim_hi(s->m->dims, w->dims[1]);
	if (columns <= WHOLE_ROWS_MAX / (depth > 0 ? depth : 1))
		return true;
	pass_missed(s->p, op->loc,
	            "not fused: %s stays a kernel of its own: workers share the rows of the linear before it",
	            ir_op_desc(op->code)->name);
	return false;
}

/* ---- norms before ---- */

/* Why the norm cannot be computed by the kernel of `linear`, which reads it; NULL: it can. */
static const char *keeps_norm_apart(const struct former *s, const struct ir_op *linear)
{
	const struct target *t = s->p->options->target;
	const struct ir_type *w = ir_type_of(s->f, linear->operands[1]);
	int64_t depth = ir_dim_hi(s->m->dims, w->dims[1]);

	if (t != NULL && t->group_size > 1)
		return "every work-group would compute it again";
	if (t != NULL && t->group_size == 1 && depth > t->l2_bytes / (2 * 4 * target_register_tile(t).mr))
		return "a tile of its rows does not fit into half of the second-level cache";
	return NULL;
}

/* op is a linear with packed weights whose input is v, and only that. */
static bool is_input_of(const struct former *s, struct ir_value v, const struct ir_op *op)
{
	bool once = op->code == OP_linear && ir_same_value(input_of(s, op), v) &&
	            !ir_same_value(op->operands[1], v) &&
	            (op->n_operands < 3 || !ir_same_value(op->operands[2], v));
	return once && former_kind_of(s->f, op) == GROUP_linear;
}

static bool any_linear_reads(const struct former *s, struct ir_value v)
{
	const struct user_list *u = &s->users[v.id];
	for (size_t i = 0; i < u->n; i++)
		if (is_input_of(s, v, u->items[i]))
			return true;
	return false;
}

/* The one linear that reads this norm, as its input, when its kernel may compute the norm's rows. */
const struct ir_op *group_linear_behind(struct former *s, const struct ir_op *norm)
{
	struct ir_value v = norm->results[0];
	const struct ir_op *op = reader_of(s, v);
	const char *why = op == NULL ? "more than one step reads it" : NULL;

	if (s->max_ops < 2 || !s->norms || (op != NULL ? !is_input_of(s, v, op) : !any_linear_reads(s, v)))
		return NULL;
	if (why == NULL)
		why = keeps_norm_apart(s, op);
	if (why != NULL)
		pass_missed(s->p, norm->loc, "not fused: %s stays a kernel of its own: %s",
		            ir_op_desc(norm->code)->name, why);
	return why == NULL ? op : NULL;
}

/*
 * So the norm is no step between what it reads and the linear. What it reads is in memory in any case: a sum that is
 * read again, not one whose linear the norm may follow.
 */
bool group_repeats_norm(const struct former *s, const struct ir_op *linear, const struct ir_op *norm)
{
	const struct target *t = s->p->options->target;
	return t != NULL && t->arch == ARCH_OPENCL && s->max_ops > 1 && s->norms && ir_is_norm(norm->code) &&
	       former_kind_of(s->f, norm) == GROUP_rowwise && linear->n_results > 0 &&
	       ir_same_value(linear->operands[0], norm->results[0]) &&
	       is_input_of(s, norm->results[0], linear) &&
	       former_region_of(s, linear) == former_region_of(s, norm) &&
	       former_only_reader(s, norm->results[0]) == NULL &&
	       former_only_reader(s, norm->operands[0]) == NULL && keeps_norm_apart(s, linear) == NULL;
}

void group_take_norm(struct former *s, size_t cluster)
{
	const struct ir_op *linear = s->g->clusters.items[cluster].root;
	const struct ir_op *norm = ir_def(s->f, input_of(s, linear));

	if (norm == NULL || !ir_is_norm(norm->code) || !former_is_free(s, norm) ||
	    group_linear_behind(s, norm) != linear)
		return;
	former_join(s, norm, cluster, MEMBER_PRE);
	pass_count(s->p, "norm_prologues", 1);
	pass_remark(s->p, norm->loc, "fused: %s into the linear after it", ir_op_desc(norm->code)->name);
}
