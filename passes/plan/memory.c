/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan-memory: every buffer gets its place in the arena.
 *
 * Requires   group (its copies make the buffers of carries coincide and give every returned value one reader).
 * Ensures    `at` of every group: the byte offset of each result as a dim polynomial with coefficients that are
 *            multiples of 64, or -1 for what lies in memory of the caller (outputs, state). A function has its
 *            arena size. Values share bytes when they are never alive together, or when a group writes over what
 *            it reads (alias.c).
 * Example    group linear { .. }  ->  group linear { .. } at [128*B*S]
 * Refuses    buffers beyond what 64 bits can address.
 */
#include "passes/plan/plan.h"
#include "passes/framework/rebuild.h"

struct planner {
	struct plan_live *live; /* [number of functions] */
};

static bool match(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_group)
		return false;
	rebuild_need_group(r, op);
	return true;
}

static const struct plan_live *live_of(struct rebuild *r)
{
	const struct planner *g = r->rewrite->user;
	for (size_t i = 0; i < r->in->funcs.n; i++)
		if (r->in->funcs.items[i] == r->f)
			return &g->live[i];
	return NULL;
}

static const struct ir_dim *offset_of(struct ir_module *m, const struct plan_live *live, struct ir_value v)
{
	size_t at = live->buffer_of[v.id];
	if (at == 0)
		return ir_dim_const(m->dims, -1);
	return ir_import_dim(m, live->plan->buffers[at - 1].at);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	const struct plan_live *live = live_of(r);
	struct attrs_group a = *(const struct attrs_group *)op->attrs;
	a.at.items = ARENA_ARRAY(r->p->arena, const struct ir_dim *, op->n_results + 1);
	a.at.n = op->n_results;
	if (a.at.items == NULL || live == NULL)
		return;
	for (size_t i = 0; i < op->n_results; i++)
		a.at.items[i] = offset_of(r->out, live, op->results[i]);
	rebuild_group(r, op, &a);
}

static enum tfmc_status plan_one(struct pass_context *p, const struct ir_module *m, const struct ir_func *f,
                                 struct plan_live *live)
{
	live->plan = ARENA_NEW(&p->report->arena, struct plan_func);
	if (live->plan == NULL)
		return TFMC_NO_MEMORY;
	live->plan->name = arena_strdup(&p->report->arena, f->name);
	TFMC_TRY(plan_live(p, m, f, live));
	return plan_pack(p->arena, m->dims, live->plan) ? TFMC_OK : TFMC_NO_MEMORY;
}

/* The report speaks of the result module, which outlives the pass. */
static void add_report(struct pass_context *p, struct ir_module *out, const struct plan_func *plan)
{
	struct plan_func *copy = ARENA_PUSH(&p->report->arena, &p->report->plans);
	if (copy == NULL)
		return;
	*copy = *plan;
	copy->dims = out->dims;
	copy->arena = ir_import_dim(out, plan->arena);
	copy->lower_bound = ir_import_dim(out, plan->lower_bound);
	for (size_t i = 0; i < copy->n_lanes; i++)
		copy->lanes[i].unit = ir_import_dim(out, copy->lanes[i].unit);
	for (size_t i = 0; i < copy->n_buffers; i++)
		copy->buffers[i].at = ir_import_dim(out, copy->buffers[i].at);
}

enum tfmc_status pass_plan_memory(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct planner g = {.live = ARENA_ARRAY(p->arena, struct plan_live, in->funcs.n + 1)};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &g};

	if (g.live == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < in->funcs.n; i++)
		TFMC_TRY(plan_one(p, in, in->funcs.items[i], &g.live[i]));
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	p->report->plans.n = 0;
	for (size_t i = 0; i < out->funcs.n; i++) {
		out->funcs.items[i]->arena = ir_import_dim(out, g.live[i].plan->arena);
		add_report(p, out, g.live[i].plan);
	}
	if (ir_dims_failed(out->dims)) {
		diag_error(p->cx, LOC_NONE, DIAG_LIMIT, "the arena is larger than 64 bits can address");
		return TFMC_INVALID;
	}
	return TFMC_OK;
}
