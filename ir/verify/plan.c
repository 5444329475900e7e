/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory plan is right when, for all values of the dims: what is alive at the
 * same time lies apart, everything lies inside the arena, the values of a
 * carry lie at one offset, and a group writes over something that it reads only
 * where its kernel allows that (ir/analysis/inplace.h). Sizes are bytes of types; all
 * comparisons are proofs over the bounds of the dims, what cannot be proved is
 * an error.
 *
 * Every value is written before it is read: a group's result is defined before
 * its readers (visibility), and nothing else is written to its bytes until its
 * last reader has run (this file).
 */
#include "ir/analysis/lifetime.h"
#include "ir/analysis/inplace.h"
#include "ir/verify/internal.h"
#include "ir/core/view.h"

struct slot {
	struct ir_value value;
	const struct ir_dim *at, *end;
	const struct ir_dim *line_end; /* end, rounded up to a line */
};

struct plan_verifier {
	struct verifier *v;
	struct ir_lifetimes life;
	const struct ir_dim **at; /* [n_values] of its carry; NULL: not in the arena */
	struct {
		struct slot *items;
		size_t n, cap;
	} slots; /* all, by first time */
	struct {
		size_t *items;
		size_t n, cap;
	} alive; /* slots that may still be alive */
};

/* ---- offsets of all values ---- */

static void place(struct plan_verifier *p, const struct ir_op *group, size_t i)
{
	const struct ir_dim *at = ((const struct attrs_group *)group->attrs)->at.items[i];
	const struct ir_dim **slot = &p->at[p->life.carry[group->results[i].id]];
	if (ir_type_of(p->v->f, group->results[i])->kind != IR_TENSOR || ir_dim_equals(at, -1))
		return;
	if (*slot != NULL && *slot != at)
		verify_fail(p->v, group->loc, "the values of a carry lie at different offsets");
	*slot = at;
}

static void add_slot(struct plan_verifier *p, uint32_t v)
{
	struct ir_value value = {v};
	const struct ir_type *t = ir_type_of(p->v->f, value);
	const struct ir_dim *at = p->at[p->life.carry[v]];
	const struct ir_op *def = ir_def(p->v->f, value);
	bool is_view = def != NULL && ir_op_has(def->code, TRAIT_VIEW);
	if (at == NULL || t->kind != IR_TENSOR || is_view || p->life.first[v] > p->life.last[v])
		return;
	struct ir_dims *dims = p->v->m->dims;
	const struct ir_dim *bytes = ir_value_bytes(p->v->m, p->v->f, value), *line = ir_dim_const(dims, 64);
	const struct ir_dim *lines =
	        ir_dim_floordiv(dims, ir_dim_add(dims, bytes, ir_dim_const(dims, 63)), 64);
	ARENA_ADD(&p->v->arena, &p->slots,
	          (struct slot){value, at, ir_dim_add(dims, at, bytes),
	                        ir_dim_add(dims, at, ir_dim_mul(dims, line, lines))});
}

/* ---- comparisons ---- */

/* Offsets are multiples of 64, so that either end will do. */
static bool ends_before(const struct plan_verifier *p, const struct slot *a, const struct ir_dim *at)
{
	struct ir_dims *dims = p->v->m->dims;
	return ir_dim_le(dims, a->end, at) || ir_dim_le(dims, a->line_end, at);
}

static bool apart(const struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	return ends_before(p, a, b->at) || ends_before(p, b, a->at);
}

/* b is written at the time when a is read for the last time, by the group that reads it. */
static const char *handed_over(const struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	size_t t = p->life.first[b->value.id];
	if (p->life.last[a->value.id] != t || t >= p->life.n_times)
		return "both are alive";
	const struct ir_op *group = p->life.groups[t];
	if (ir_def(p->v->f, b->value) != group || a->at != b->at || !ir_group_reads(p->v->f, group, a->value))
		return "both are alive";
	return ir_inplace_conflict(p->v->m, p->v->f, group, a->value);
}

static void compare(struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	const struct ir_op *op = ir_def(p->v->f, b->value);
	const char *why;
	if (!ir_lifetimes_overlap(&p->life, a->value, b->value) || apart(p, a, b) ||
	    handed_over(p, b, a) == NULL)
		return;
	why = handed_over(p, a, b);
	if (why != NULL)
		verify_fail(p->v, op != NULL ? op->loc : p->v->f->loc, "%s may share bytes with %s: %s",
		            verify_value_text(p->v, b->value), verify_value_text(p->v, a->value), why);
}

static bool inside(const struct plan_verifier *p, const struct slot *s)
{
	return ends_before(p, s, p->v->f->arena);
}

/* ---- all ---- */

/* Slots in order of their first time: a counting sort, so that equal times keep the order of definition. */
static bool sort_slots(struct plan_verifier *p)
{
	size_t n = p->life.n_times + 2, *start = ARENA_ARRAY(&p->v->arena, size_t, n + 1);
	struct slot *sorted = ARENA_ARRAY(&p->v->arena, struct slot, p->slots.n + 1);
	if (start == NULL || sorted == NULL)
		return false;
	for (size_t i = 0; i < p->slots.n; i++)
		start[p->life.first[p->slots.items[i].value.id] + 1]++;
	for (size_t t = 0; t < n; t++)
		start[t + 1] += start[t];
	for (size_t i = 0; i < p->slots.n; i++)
		sorted[start[p->life.first[p->slots.items[i].value.id]]++] = p->slots.items[i];
	p->slots.items = sorted;
	return true;
}

static void compare_all(struct plan_verifier *p)
{
	for (size_t i = 0; i < p->slots.n; i++) {
		struct slot *s = &p->slots.items[i];
		size_t kept = 0;
		if (!inside(p, s))
			verify_fail(p->v, p->v->f->loc, "%s may lie outside of the arena",
			            verify_value_text(p->v, s->value));
		for (size_t k = 0; k < p->alive.n; k++) {
			const struct slot *a = &p->slots.items[p->alive.items[k]];
			if (p->life.last[a->value.id] < p->life.first[s->value.id])
				continue;
			compare(p, a, s);
			p->alive.items[kept++] = p->alive.items[k];
		}
		p->alive.n = kept;
		ARENA_ADD(&p->v->arena, &p->alive, i);
	}
}

void verify_plan(struct verifier *v)
{
	struct plan_verifier p = {.v = v,
	                          .at = ARENA_ARRAY(&v->arena, const struct ir_dim *, v->f->n_values)};
	if (p.at == NULL || !ir_lifetimes(&v->arena, v->f, &p.life))
		return;
	for (size_t t = 0; t < p.life.n_times; t++)
		for (size_t i = 0; i < p.life.groups[t]->n_results; i++)
			place(&p, p.life.groups[t], i);
	for (uint32_t i = 1; i < v->f->n_values; i++)
		add_slot(&p, i);
	if (!arena_failed(&v->arena) && sort_slots(&p))
		compare_all(&p);
}
