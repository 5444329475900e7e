/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demand-rows: products are computed for the rows that are read.
 *
 * Requires   fuse-attention and merge-heads (it looks at whole attentions).
 * Ensures    where only one row of each sequence of a result is read (take_rows, or slice {axis=1 size=1}),
 *            everything between it and the last mixing of rows has one row. When that result is the result of a
 *            repeat, its last iteration is computed apart: k, v and states on all rows, what follows q on the
 *            rows that are read. Same ops, same weights (indexed by the constant), same bits. The setting peel=0
 *            leaves repeats as they are. Counters: peeled, products, ops, rows picked, kept.
 * Example    %y = repeat %i = 0 to 5 carry (%x = %x0) { .. }   %r = take_rows %y, %at
 *        ->  %z = repeat %i = 0 to 4 carry (%x = %x0) { .. }   .. of iteration 4, q and what follows [B,1,..]
 * Refuses    a result of which all rows, or rows picked in another way, are read too; row numbers that depend on
 *            more than parameters; a last iteration whose products all need every row. A linear beside others of
 *            the same input that need all rows stays whole: they become one linear.
 * Pays       3 to 6 % of the prefill of D4, more for small models; 7 % of D2 on Sapphire Rapids (tests/perf/passes.md).
 */
#include "passes/demand/build.h"

#include <string.h>

/* ---- the last iteration apart ---- */

struct peeler {
	struct demand_plan plan;
	bool active; /* for the function of the plan */
};

static struct demand_plan *plan_for(struct demand_plan *plan, bool *active, const struct rebuild *r,
                                    bool peel)
{
	if (plan->f != r->f) {
		*plan = (struct demand_plan){.p = r->p, .m = r->in, .f = r->f, .may_peel = peel};
		*active = demand_find(plan);
	}
	return *active ? plan : NULL;
}

static void need_operands(struct rebuild *r, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		rebuild_need(r, op->operands[i]);
}

static bool match_repeat(struct rebuild *r, const struct ir_op *op)
{
	struct peeler *s = r->rewrite->user;
	const struct demand_plan *plan = plan_for(&s->plan, &s->active, r, r->p->step->settings[0] != 0);
	if (plan == NULL || op->code != OP_repeat || !plan->peel[op->results[0].id])
		return false;
	r->number = pass_take_fuel(r->p);
	if (r->number == 0)
		return false;
	need_operands(r, op);
	for (struct ir_iter it = ir_iter_begin(op->region); it.op != NULL; ir_iter_next(&it))
		need_operands(r, it.op);
	return true;
}

/* All iterations but the last one; `carries` becomes what they give. */
static void copy_first(struct ir_copy *c, const struct ir_op *op, int64_t count, struct ir_value *carries)
{
	const struct ir_region *body = op->region;
	struct ir_value args[BUILD_LIST_MAX + 1];
	ir_copy_repeat_begin(c, op, count - 1, carries, op->n_operands, args);
	ir_copy_region(c, body);
	ir_copy_values(c, body->ops[body->n_ops - 1]->operands, op->n_operands, carries);
	irb_set_loc(c->b, op->loc);
	irb_repeat_end(c->b, carries, op->n_operands, args);
	memcpy(carries, args, op->n_operands * sizeof(*args));
}

static void emit_repeat(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	struct ir_value carries[BUILD_LIST_MAX];
	struct ir_copy c = {.b = r->b, .from = r->f, .map = r->map};

	ir_copy_values(&c, op->operands, op->n_operands, carries);
	if (count > 1)
		copy_first(&c, op, count, carries);
	r->map[body->args[REPEAT_INDEX].id] = irb_full_of(r->b, (double)(count - 1), DT_I32, 0, NULL);
	for (size_t i = 0; i < op->n_operands; i++)
		r->map[body->args[i + 1].id] = carries[i];
	ir_copy_region(&c, body);
	ir_copy_values(&c, body->ops[body->n_ops - 1]->operands, op->n_operands, carries);
	for (size_t i = 0; i < op->n_results; i++)
		rebuild_set(r, op->results[i], carries[i]);
	pass_count(r->p, "peeled", 1);
	pass_applied(r->p, r->replaced[op->results[0].id], NULL, op->loc);
	pass_remark(r->p, op->loc,
	            "the last of %lld iterations is computed apart, for the rows that are read",
	            (long long)count);
}

/* ---- rows ---- */

struct taker {
	struct demand_plan plan;
	bool active;
	int64_t number; /* of the application: the rows of a function are one */
	struct demand_builder build;
	const struct ir_func *build_of; /* the function that `build` is for */
};

static bool match_rows(struct rebuild *r, const struct ir_op *op)
{
	struct taker *s = r->rewrite->user;
	bool is_new = s->plan.f != r->f;
	const struct demand_plan *plan = plan_for(&s->plan, &s->active, r, false);
	if (is_new && plan != NULL) {
		s->number = pass_take_fuel(r->p);
		s->active = s->number > 0;
	}
	if (!s->active || ir_value_info(r->f, op->results[0])->region != r->f->body)
		return false;
	if (!demand_is_root(plan, op) && !plan->of[op->results[0].id].taken)
		return false;
	need_operands(r, op);
	rebuild_need(r, plan->key.at);
	r->number = s->number;
	return true;
}

/* Once for each function, when the forward walk meets its first op. */
static bool begin_function(struct rebuild *r, struct taker *s)
{
	if (s->build_of == r->f)
		return s->build.rows != NULL;
	s->build_of = r->f;
	s->build = (struct demand_builder){.r = r, .plan = &s->plan};
	s->build.rows = ARENA_ARRAY(r->p->arena, struct ir_value, r->f->n_values);
	pass_count(r->p, "products", (int64_t)s->plan.products);
	pass_count(r->p, "ops", (int64_t)s->plan.ops);
	pass_count(r->p, "kept", (int64_t)s->plan.kept);
	pass_remark(r->p, r->f->loc, "%s: %zu product%s for the rows that are read", r->f->name,
	            s->plan.products, pass_plural(s->plan.products));
	pass_applied(r->p, s->number, NULL, r->f->loc);
	return s->build.rows != NULL;
}

static void emit_rows(struct rebuild *r, const struct ir_op *op)
{
	struct taker *s = r->rewrite->user;
	const struct ir_type *type = ir_type_of(r->f, op->results[0]);
	const struct ir_dim *dims[IR_RANK_MAX];

	if (!begin_function(r, s))
		return;
	if (!demand_is_root(&s->plan, op)) {
		demand_build(&s->build, op);
		return;
	}
	for (int i = 0; i < type->rank; i++)
		dims[i] = ir_import_dim(r->out, type->dims[i]);
	struct ir_value row = demand_row(&s->build, op->operands[0], 1);
	rebuild_set(r, op->results[0], irb_reshape_to(r->b, row, type->rank, dims));
}

enum tfmc_status pass_demand_rows(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct peeler peeler = {.active = false};
	struct taker taker = {.active = false};
	const struct rewrite apart = {
	        .match = match_repeat, .emit = emit_repeat, .user = &peeler, .is_numbered = true};
	const struct rewrite rows = {
	        .match = match_rows, .emit = emit_rows, .user = &taker, .is_numbered = true};
	struct ir_module *peeled = ir_module_create_like(in);

	if (peeled == NULL)
		return TFMC_NO_MEMORY;
	pass_count(p, "peeled", 0);
	enum tfmc_status st = rebuild_module(p, in, peeled, &apart, NULL);
	if (st == TFMC_OK)
		st = rebuild_module(p, peeled, out, &rows, NULL);
	ir_module_destroy(peeled);
	return st;
}
