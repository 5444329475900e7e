/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: argmax over the last axis of what lies in memory, by vectors.
 * Two walks: the largest number, then the lowest index that holds it. NaN is
 * never larger than a number and never equal to one; a row of NaN gives 0.
 */
#include "backends/kernel/eval.h"

#include <math.h>

#define SLOTS 2 /* vectors of a step, each with variables of its own */

struct top {
	struct eval *e;
	struct ir_value x;
	struct eval_point at; /* in x, at the row */
	int axis, lanes;
	struct kb_val size;
	struct kb_var found[SLOTS +
	                    1]; /* the last one: single elements; f32 in the first walk, i32 in the second */
	struct kb_val largest;  /* f32 */
};

typedef void step_fn(struct top *t, struct kb_val i, int lanes, struct kb_var found);

static struct kb_val x_at(struct top *t, struct kb_val i, int lanes)
{
	t->at.index[t->axis] = i;
	t->at.vec = lanes > 1 ? t->axis : -1;
	return eval_value(t->e, t->x, &t->at);
}

static void find_largest(struct top *t, struct kb_val i, int lanes, struct kb_var found)
{
	struct kb_val x = x_at(t, i, lanes);
	kb_set(t->e->k, found, kb_max(t->e->k, x, kb_get(t->e->k, found)));
}

static void find_index(struct top *t, struct kb_val i, int lanes, struct kb_var found)
{
	struct kb *k = t->e->k;
	struct kb_val x = x_at(t, i, lanes), best = kb_get(k, found);
	struct kb_val index = kb_splat(k, kb_cvt(k, i, KB_I32), lanes);
	if (lanes > 1)
		index = kb_add(k, index, kb_lane_ids(k, lanes));
	struct kb_val here = kb_cmp(k, KB_EQ, x, kb_splat(k, t->largest, lanes));
	kb_set(k, found, kb_select(k, here, kb_min(k, index, best), best));
}

static void take_step(struct top *t, step_fn *step, struct kb_val i, int slot)
{
	int lanes = slot < SLOTS ? t->lanes : 1;
	size_t mark = eval_mark(t->e);
	struct eval_width before = eval_width(t->e, lanes, lanes);
	step(t, i, lanes, t->found[slot]);
	eval_width(t->e, before.lanes, before.valid);
	eval_release(t->e, mark);
}

/* The whole row, by whole steps and then by single elements; what was found in all of it. */
static struct kb_val walk(struct top *t, step_fn *step, struct kb_val none, enum kb_bin op)
{
	struct kb *k = t->e->k;
	int64_t width = (int64_t)SLOTS * t->lanes;
	struct kb_val rest = kb_bin(k, KB_REM, t->size, kb_index(k, width));
	struct kb_val main = kb_sub(k, t->size, rest);
	for (int s = 0; s <= SLOTS; s++) {
		int lanes = s < SLOTS ? t->lanes : 1;
		t->found[s] = kb_var(k, "found", KB_TYPE(kb_type_of(k, none).scalar, lanes),
		                     kb_splat(k, none, lanes));
	}
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), main, width, 0);
	for (int s = 0; s < SLOTS; s++)
		take_step(t, step, kb_add_const(k, i, (int64_t)s * t->lanes), s);
	kb_end_loop(k);
	i = kb_loop(k, "i", main, t->size, 1, 0);
	take_step(t, step, i, SLOTS);
	kb_end_loop(k);
	struct kb_val all = kb_get(k, t->found[0]);
	for (int s = 1; s < SLOTS; s++)
		all = kb_bin(k, op, kb_get(k, t->found[s]), all);
	struct kb_val most = kb_reduce(k, op, all);
	return kb_bin(k, op, kb_get(k, t->found[SLOTS]), most);
}

bool eval_argmax_vectorizes(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct ir_type *x = ir_type_of(e->job->func, op->operands[0]);
	int64_t axis = ((const struct attrs_argmax *)op->attrs)->axis;
	bool is_last = axis == -1 || axis == x->rank - 1;
	return is_last && (p->vec < 0 || e->lanes == 1) && eval_scalar(x->dtype) == KB_F32 &&
	       kb_caps(e->k)->lanes > 1 && eval_tensor(e, op->operands[0]) &&
	       eval_vectorizes(e, op->operands[0], x->rank - 1);
}

struct kb_val eval_argmax(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	const struct ir_type *x = ir_type_of(e->job->func, op->operands[0]);
	struct top t = {.e = e, .x = op->operands[0], .axis = x->rank - 1, .lanes = kb_caps(k)->lanes};
	t.at = (struct eval_point){.rank = x->rank, .vec = t.axis};
	for (int i = 0; i < t.axis; i++)
		t.at.index[i] = p->index[i];
	t.at.index[t.axis] = kb_index(k, 0);
	t.size = eval_dim(e, x->dims[t.axis]);
	size_t mark = eval_mark(e);
	eval_hoist(e, t.x, &t.at);
	t.largest = walk(&t, find_largest, kb_f32(k, -HUGE_VALF), KB_MAX);
	struct kb_val none = kb_i32(k, INT32_MAX), index = walk(&t, find_index, none, KB_MIN);
	eval_release(e, mark);
	return kb_select(k, kb_cmp(k, KB_EQ, index, none), kb_i32(k, 0), index);
}
