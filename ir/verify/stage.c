/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each stage allows: graph has no groups; in groups and plan all work is
 * inside groups; plan has an offset for every result of a group. A group computes
 * products and softmaxes at its root only.
 */
#include "ir/core/view.h"
#include "ir/verify/internal.h"

#define PAD_MAX 1024

static const char *stage_name(enum ir_stage s)
{
	switch (s) {
	case STAGE_GRAPH: return "graph";
	case STAGE_GROUPS: return "groups";
	case STAGE_PLAN: return "plan";
	}
	return "";
}

/* An offset in the arena, a multiple of 64; or -1: in memory of the caller (an output, a state). */
static bool is_offset(const struct ir_dims *dims, const struct ir_dim *d)
{
	if (ir_dim_equals(d, -1))
		return true;
	for (size_t i = 0; i < d->n_terms; i++)
		if (d->terms[i].coeff % 64 != 0)
			return false;
	return ir_dim_lo(dims, d) >= 0;
}

static void verify_offsets(struct verifier *v, const struct ir_op *op, const struct attrs_group *a)
{
	if (v->m->stage != STAGE_PLAN) {
		if (a->at.n > 0)
			verify_fail(v, op->loc, "a group has offsets before the stage plan");
		return;
	}
	if (a->at.n != op->n_results) {
		verify_fail(v, op->loc, "a group has %zu results and %zu offsets", op->n_results, a->at.n);
		return;
	}
	for (size_t i = 0; i < a->at.n; i++)
		if (!is_offset(v->m->dims, a->at.items[i]))
			verify_fail(v, op->loc, "offset %zu of a group is neither a multiple of 64 nor -1",
			            i);
}

/* Room behind rows: of the one result, whose memory is its own. */
static void verify_pad(struct verifier *v, const struct ir_op *op, const struct attrs_group *a)
{
	const struct ir_type *t = op->n_results == 1 ? ir_type_of(v->f, op->results[0]) : NULL;
	int64_t row;
	if (a->pad == 0)
		return;
	if (a->pad < 0 || a->pad > PAD_MAX || t == NULL || t->kind != IR_TENSOR || t->rank < 2 ||
	    !ir_dim_is_const(t->dims[t->rank - 1], &row) || ir_is_state_slice(v->f, op->results[0]))
		verify_fail(
		        v, op->loc,
		        "pad=%lld: it may be up to %d, in a group whose one result has rows of a constant "
		        "length",
		        (long long)a->pad, PAD_MAX);
}

/* What lies in memory of the caller or of a carry has no room behind its rows. */
static void verify_dense(struct verifier *v, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id != 0 && ir_row_pad(v->f, ir_view_base(v->f, op->operands[i])) != 0)
			verify_fail(v, op->loc, "%s of a value with room behind its rows (pad)",
			            ir_op_desc(op->code)->name);
}

static bool is_softmax(enum ir_opcode code)
{
	return code == OP_softmax || code == OP_log_softmax || code == OP_masked_softmax;
}

/*
 * What a kernel computes once for each of its results: anywhere but at the root a product would be computed
 * again for every element that reads it, the argument of a softmax for every walk over its row.
 */
static void verify_once(struct verifier *v, const struct ir_op *group, const struct ir_op *root)
{
	const struct ir_region *r = group->region;
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i] != root &&
		    (is_softmax(r->ops[i]->code) || ir_op_has(r->ops[i]->code, TRAIT_CONTRACT)))
			verify_fail(v, r->ops[i]->loc, "%s is not the root of its group",
			            ir_op_desc(r->ops[i]->code)->name);
}

static void verify_group(struct verifier *v, const struct ir_op *op)
{
	const struct attrs_group *a = op->attrs;
	const struct ir_region *r = op->region;
	if (a->root < 0 || (size_t)a->root + 1 >= r->n_ops || r->ops[a->root]->code == OP_weight)
		verify_fail(v, op->loc, "the root of a group (position %lld) is not one of its %zu ops",
		            (long long)a->root, r->n_ops - 1);
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->region != NULL)
			verify_fail(v, r->ops[i]->loc, "%s inside a group",
			            ir_op_desc(r->ops[i]->code)->name);
	verify_offsets(v, op, a);
	verify_pad(v, op, a);
	if (a->root < 0 || (size_t)a->root + 1 >= r->n_ops)
		return;
	verify_once(v, op, r->ops[a->root]);
}

static bool allowed_outside(enum ir_opcode code)
{
	return code == OP_state_read || ir_op_has(code, TRAIT_REGION) || ir_op_has(code, TRAIT_TERMINATOR) ||
	       ir_op_has(code, TRAIT_VIEW) || ir_op_has(code, TRAIT_CONST);
}

/* op is outside groups */
void verify_stage_of(struct verifier *v, const struct ir_op *op)
{
	if (op->code == OP_group && v->m->stage == STAGE_GRAPH)
		verify_fail(v, op->loc, "a group in the stage graph");
	else if (op->code == OP_group)
		verify_group(v, op);
	else if (v->m->stage != STAGE_GRAPH && !allowed_outside(op->code))
		verify_fail(v, op->loc, "%s outside of a group in the stage %s", ir_op_desc(op->code)->name,
		            stage_name(v->m->stage));
	if (op->code == OP_repeat || ir_op_has(op->code, TRAIT_TERMINATOR))
		verify_dense(v, op);
}
