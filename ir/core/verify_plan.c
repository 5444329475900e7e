/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a memory plan is right for all values of the dims: values whose live ranges overlap occupy disjoint
 * bytes, all values are inside the arena, the values of a carry have one offset, and a group overwrites a buffer it
 * reads only if its kernel allows that (ir/core/inplace.h). All comparisons are proofs over the bounds of the
 * dims (ir_dim_le); what cannot be proved is an error.
 *
 * Then every read sees the right value: SSA orders the definition before its uses, and nothing else is written to the
 * bytes until the last use.
 */
#include "ir/core/lifetime.h"
#include "ir/core/inplace.h"
#include "ir/core/verify_internal.h"
#include "ir/core/view.h"

/* Bytes [at, end) of the arena. */
struct slot {
	struct ir_value value;
	const struct ir_dim *at, *end;
	const struct ir_dim *line_end; /* end rounded up to a multiple of 64 */
};

struct plan_verifier {
	struct verifier *v;
	struct ir_lifetimes life;
	const struct ir_dim **at; /* [n_values] offset, by carry; NULL: not in the arena */
	struct {
		struct slot *items;
		size_t n, cap;
	} slots; /* in order of the beginning of their live range */
	struct {
		size_t *items;
		size_t n, cap;
	} alive; /* indices of slots that may still be live */
};

/* ---- offsets of all values ---- */

/* Records the offset of result i of a group. */
static void record_offset(struct plan_verifier *p, const struct ir_op *group, size_t i)
{
	const struct ir_dim *at = ((const struct attrs_group *)group->attrs)->at.items[i];
	const struct ir_dim **slot = &p->at[p->life.carry[group->results[i].id]];
	if (ir_type_of(p->v->f, group->results[i])->kind != IR_TENSOR || ir_dim_equals(at, -1))
		return;
	if (*slot != NULL && *slot != at)
		verify_fail(p->v, group->loc, "the values of a carry have different offsets");
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

/* Proves that slot a ends at or before `at`. Offsets are multiples of 64, so the rounded end may be used as well. */
static bool ends_before(const struct plan_verifier *p, const struct slot *a, const struct ir_dim *at)
{
	struct ir_dims *dims = p->v->m->dims;
	return ir_dim_le(dims, a->end, at) || ir_dim_le(dims, a->line_end, at);
}

static bool are_disjoint(const struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	return ends_before(p, a, b->at) || ends_before(p, b, a->at);
}

/* NULL if b may overwrite a in place: the group that defines b is the last user of a, at the same offset, and its
 * kernel allows it. Else the reason. */
static const char *inplace_refusal(const struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	size_t t = p->life.first[b->value.id];
	if (p->life.last[a->value.id] != t || t >= p->life.n_times)
		return "both are alive";
	const struct ir_op *group = p->life.groups[t];
	if (ir_def(p->v->f, b->value) != group || a->at != b->at || !ir_group_reads(p->v->f, group, a->value))
		return "both are alive";
	return ir_inplace_conflict(p->v->m, p->v->f, group, a->value);
}

/* Reports b if it may overlap a in time and memory. */
static void check_disjoint(struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	const struct ir_op *op = ir_def(p->v->f, b->value);
	const char *why;
	if (!ir_lifetimes_overlap(&p->life, a->value, b->value) || are_disjoint(p, a, b) ||
	    inplace_refusal(p, b, a) == NULL)
		return;
	why = inplace_refusal(p, a, b);
	if (why != NULL)
		verify_fail(p->v, op != NULL ? op->loc : p->v->f->loc, "%s may share bytes with %s: %s",
		            verify_value_string(p->v, b->value), verify_value_string(p->v, a->value), why);
}

/* ---- all pairs ---- */

/* Counting sort by the beginning of the live range, so that equal times stay in order of definition. */
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

static void check_all(struct plan_verifier *p)
{
	for (size_t i = 0; i < p->slots.n; i++) {
		struct slot *s = &p->slots.items[i];
		size_t kept = 0;
		if (!ends_before(p, s, p->v->f->arena))
			verify_fail(p->v, p->v->f->loc, "%s may lie outside of the arena",
			            verify_value_string(p->v, s->value));
		for (size_t k = 0; k < p->alive.n; k++) {
			const struct slot *a = &p->slots.items[p->alive.items[k]];
			if (p->life.last[a->value.id] < p->life.first[s->value.id])
				continue;
			check_disjoint(p, a, s);
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
			record_offset(&p, p.life.groups[t], i);
	for (uint32_t i = 1; i < v->f->n_values; i++)
		add_slot(&p, i);
	if (!arena_failed(&v->arena) && sort_slots(&p))
		check_all(&p);
}
