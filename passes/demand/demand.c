/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward walk over a function, once for each way in which rows are
 * picked; the one by which most products become smaller is kept. A repeat of
 * whose result only such rows are read is walked as if its last iteration was
 * after it. Invariant: an op is seen after everything that reads its results.
 */
#include "passes/demand/demand.h"

#define KEYS_MAX   8
#define CHAIN_MAX  16
#define ROUNDS_MAX 8

static struct demand *demand_of(const struct demand_plan *plan, struct ir_value v)
{
	return &plan->of[v.id];
}

/* ---- what picks rows ---- */

static bool picks_rows(const struct ir_func *f, const struct ir_op *op)
{
	if (op->code == OP_take_rows)
		return !ir_dim_equals(ir_type_of(f, op->operands[0])->dims[1], 1);
	if (op->code != OP_slice)
		return false;
	const struct attrs_slice *a = op->attrs;
	const struct ir_type *x = ir_type_of(f, op->operands[0]);
	return a->axis == 1 && ir_dim_equals(a->size, 1) && !ir_dim_equals(x->dims[1], 1);
}

/* Row `at` of every sequence, when it is a row of `rows` for sure; else NULL. */
static const struct ir_dim *same_row(const struct demand_plan *plan, struct ir_value at,
                                     const struct ir_dim *rows)
{
	struct ir_dims *dims = plan->m->dims;
	const struct ir_op *op = ir_def_as(plan->f, at, OP_dim_value);
	const struct ir_dim *row = op == NULL ? NULL : ((const struct attrs_dim_value *)op->attrs)->dim;
	bool is_inside =
	        row != NULL && ir_dim_lo(dims, row) >= 0 && ir_dim_lo(dims, ir_dim_sub(dims, rows, row)) >= 1;
	return is_inside ? row : NULL;
}

static struct demand_key key_of(const struct demand_plan *plan, const struct ir_op *op)
{
	const struct ir_type *x = ir_type_of(plan->f, op->operands[0]);
	struct demand_key key = {.batch = x->dims[0], .rows = x->dims[1]};
	if (op->code == OP_take_rows)
		key.begin = same_row(plan, op->operands[1], key.rows);
	else
		key.begin = ((const struct attrs_slice *)op->attrs)->begin;
	if (key.begin == NULL)
		key.at = op->operands[1];
	return key;
}

static bool same_key(const struct demand_key *a, const struct demand_key *b)
{
	return a->batch == b->batch && a->rows == b->rows && ir_same_value(a->at, b->at) &&
	       a->begin == b->begin;
}

bool demand_is_root(const struct demand_plan *plan, const struct ir_op *op)
{
	if (!picks_rows(plan->f, op) || ir_value_info(plan->f, op->results[0])->region != plan->f->body)
		return false;
	const struct demand_key key = key_of(plan, op);
	return same_key(&key, &plan->key);
}

/* The row numbers follow from parameters alone, so that they can be computed before everything else. */
static bool is_early(const struct ir_func *f, struct ir_value v, int *left)
{
	const struct ir_op *op = ir_def(f, v);
	if (op == NULL)
		return v.id == 0 || ir_value_info(f, v)->region == f->body;
	if (--*left < 0 || op->region != NULL || !ir_op_has(op->code, TRAIT_PURE) ||
	    ir_value_info(f, v)->region != f->body)
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!is_early(f, op->operands[i], left))
			return false;
	return true;
}

/* ---- one op ---- */

static void want_all(struct demand_plan *plan, struct ir_value v)
{
	demand_of(plan, v)->all = true;
}

static void want_rows(struct demand_plan *plan, struct ir_value v, int axis)
{
	struct demand *d = demand_of(plan, v);
	if (d->axis != 0 && d->axis != axis)
		d->all = true;
	else
		d->axis = axis;
}

static void want_operands(struct demand_plan *plan, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		want_all(plan, op->operands[i]);
}

static void take(struct demand_plan *plan, const struct ir_op *op, const int *axes)
{
	demand_of(plan, op->results[0])->taken = true;
	plan->ops++;
	plan->products += ir_op_has(op->code, TRAIT_CONTRACT);
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id != 0 && axes[i] > 0)
			want_rows(plan, op->operands[i], axes[i]);
		else
			want_all(plan, op->operands[i]);
	}
}

/* A row is cheaper to normalize again than to read twice: the norm keeps its linears as its only readers. */
static bool is_norm(const struct ir_op *op)
{
	return ir_is_norm(op->code) || op->code == OP_round_rows;
}

/* Rows of what is computed whole are picked after the views of it: it stays what it is in other iterations. */
static bool is_kept(const struct demand_plan *plan, struct ir_value v)
{
	const struct ir_op *op = ir_def(plan->f, v);
	while (!demand_of(plan, v)->kept && op != NULL && ir_op_has(op->code, TRAIT_VIEW)) {
		v = op->operands[0];
		op = ir_def(plan->f, v);
	}
	return demand_of(plan, v)->kept;
}

static void see_plain(struct demand_plan *plan, const struct ir_op *op)
{
	int axes[DEMAND_OPERANDS_MAX];
	struct demand *d = op->n_results == 1 ? demand_of(plan, op->results[0]) : NULL;
	bool is_live = op->n_results == 0 || !ir_op_has(op->code, TRAIT_PURE);

	for (size_t i = 0; i < op->n_results && !is_live; i++)
		is_live = demand_of(plan, op->results[i])->all || demand_of(plan, op->results[i])->axis > 0;
	if (!is_live)
		return;
	if (d != NULL && d->axis > 0 && !is_kept(plan, op->results[0]) && (!d->all || is_norm(op)) &&
	    demand_rule(plan, op, d->axis, axes)) {
		take(plan, op, axes);
		if (!d->all)
			return;
	}
	if (d != NULL && d->axis > 0)
		d->all = true;
	want_operands(plan, op);
	if (op->region == NULL)
		return;
	for (struct ir_iter it = ir_iter_begin(op->region); it.op != NULL; ir_iter_next(&it))
		want_operands(plan, it.op);
}

/* ---- repeat ---- */

static void see_region(struct demand_plan *plan, const struct ir_region *region);

/* Why the last iteration cannot be computed apart, or NULL. */
static const char *refusal(const struct demand_plan *plan, const struct ir_op *op)
{
	const struct attrs_repeat *a = op->attrs;
	bool any = false;
	for (size_t i = 0; i < op->n_results; i++) {
		const struct demand *d = demand_of(plan, op->results[i]);
		any = any || (d->axis > 0 && !d->all);
	}
	if (!any)
		return "its result is also read otherwise";
	return a->count < 1 ? "it has no iteration" : NULL;
}

static bool is_state(const struct ir_func *f, struct ir_value v)
{
	return ir_type_of(f, v)->kind == IR_STATE;
}

/* What the last iteration needs; true when that makes products smaller. */
static bool see_last_iteration(struct demand_plan *plan, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	size_t products = plan->products, ops = plan->ops;

	for (size_t i = 0; i < op->n_results; i++) {
		const struct demand d = *demand_of(plan, op->results[i]);
		if (d.all || is_state(plan->f, op->results[i]))
			want_all(plan, yield->operands[i]);
		else if (d.axis > 0)
			want_rows(plan, yield->operands[i], d.axis);
	}
	see_region(plan, body);
	if (plan->products > products)
		return true;
	plan->ops = ops;
	return false;
}

static void see_repeat(struct demand_plan *plan, const struct ir_op *op)
{
	const char *why = refusal(plan, op);
	bool is_read = false;

	for (size_t i = 0; i < op->n_results; i++)
		is_read = is_read || demand_of(plan, op->results[i])->axis > 0;
	if (is_read && plan->may_peel && why == NULL) {
		if (see_last_iteration(plan, op)) {
			plan->peel[op->results[0].id] = true;
			plan->peeled++;
			want_operands(plan, op);
			return;
		}
		why = "no product of its last iteration gets fewer rows";
	}
	if (is_read && why != NULL && plan->may_peel) {
		plan->why = why;
		plan->refused = op;
	}
	for (size_t i = 0; i < op->n_results; i++)
		want_all(plan, op->results[i]);
	see_plain(plan, op);
}

static void see_region(struct demand_plan *plan, const struct ir_region *region)
{
	for (size_t i = region->n_ops; i-- > 0;) {
		const struct ir_op *op = region->ops[i];
		if (region->owner == NULL && demand_is_root(plan, op))
			want_rows(plan, op->operands[0], 1);
		else if (region->owner == NULL && op->code == OP_repeat)
			see_repeat(plan, op);
		else if (region->owner == NULL || !ir_op_has(op->code, TRAIT_TERMINATOR))
			see_plain(plan, op);
	}
}

/* ---- linears that become one ---- */

struct siblings {
	struct demand_plan *plan;
	bool *elementwise; /* [f->n_values] read by an elementwise op: stays a linear of its own */
	bool changed;
};

static void mark_elementwise(struct siblings *s, const struct ir_op *op)
{
	for (size_t i = 0; ir_op_has(op->code, TRAIT_ELEMENTWISE) && i < op->n_operands; i++)
		s->elementwise[op->operands[i].id] = true;
}

static bool may_merge(const struct siblings *s, const struct ir_op *op)
{
	return op->code == OP_linear && ir_weight_of(s->plan->f, op->operands[1]) != NULL &&
	       !s->elementwise[op->results[0].id];
}

/* Another linear of the same input, all of whose rows are read. */
static bool has_sibling(const struct siblings *s, const struct ir_op *op)
{
	const struct ir_region *here = ir_value_info(s->plan->f, op->results[0])->region;
	for (size_t i = 0; i < here->n_ops; i++) {
		const struct ir_op *other = here->ops[i];
		if (other != op && may_merge(s, other) &&
		    ir_same_value(other->operands[0], op->operands[0]) &&
		    demand_of(s->plan, other->results[0])->all)
			return true;
	}
	return false;
}

static void keep_with_siblings(struct siblings *s, const struct ir_op *op)
{
	if (!may_merge(s, op) || !demand_of(s->plan, op->results[0])->taken || !has_sibling(s, op))
		return;
	demand_of(s->plan, op->results[0])->kept = true;
	s->plan->kept++;
	s->changed = true;
}

static void forget(struct demand_plan *plan)
{
	for (size_t i = 0; i < plan->f->n_values; i++) {
		plan->of[i] = (struct demand){.kept = plan->of[i].kept};
		plan->peel[i] = false;
	}
	plan->products = plan->ops = plan->peeled = 0;
	plan->refused = NULL;
}

/*
 * merge-linear reads an input once for all its linears, and weights are stored once, as wide as they are
 * read: a linear beside others that need all rows stays whole and gives its rows afterwards.
 */
static void find_for_key(struct demand_plan *plan)
{
	struct siblings s = {.plan = plan, .changed = true};

	plan->of = ARENA_ARRAY(plan->p->arena, struct demand, plan->f->n_values);
	plan->peel = ARENA_ARRAY(plan->p->arena, bool, plan->f->n_values);
	s.elementwise = ARENA_ARRAY(plan->p->arena, bool, plan->f->n_values);
	plan->kept = plan->products = 0;
	if (plan->of == NULL || plan->peel == NULL || s.elementwise == NULL)
		return;
	for (struct ir_iter it = ir_iter_begin(plan->f->body); it.op != NULL; ir_iter_next(&it))
		mark_elementwise(&s, it.op);
	for (int i = 0; i < ROUNDS_MAX && s.changed; i++) {
		forget(plan);
		see_region(plan, plan->f->body);
		s.changed = false;
		for (struct ir_iter it = ir_iter_begin(plan->f->body); it.op != NULL; ir_iter_next(&it))
			keep_with_siblings(&s, it.op);
	}
	if (s.changed)
		plan->products = 0;
}

/* ---- all ---- */

struct key_list {
	struct demand_key items[KEYS_MAX];
	const struct ir_op *ops[KEYS_MAX];
	size_t n;
};

static void add_key(struct key_list *list, const struct demand_plan *plan, const struct ir_op *op)
{
	if (!picks_rows(plan->f, op))
		return;
	const struct demand_key key = key_of(plan, op);
	for (size_t i = 0; i < list->n; i++)
		if (same_key(&list->items[i], &key))
			return;
	if (list->n < KEYS_MAX) {
		list->ops[list->n] = op;
		list->items[list->n++] = key;
	}
}

bool demand_find(struct demand_plan *plan)
{
	struct demand_plan best = *plan;
	struct key_list list = {.n = 0};

	best.products = 0;
	for (size_t i = 0; i < plan->f->body->n_ops; i++)
		add_key(&list, plan, plan->f->body->ops[i]);
	for (size_t i = 0; i < list.n; i++) {
		struct demand_plan now = *plan;
		int left = CHAIN_MAX;
		now.key = list.items[i];
		if (!is_early(plan->f, now.key.at, &left)) {
			pass_missed(plan->p, list.ops[i]->loc,
			            "rows are not computed apart: which ones is known too late");
			continue;
		}
		find_for_key(&now);
		if (now.refused != NULL)
			pass_missed(plan->p, now.refused->loc, "the last iteration is not computed apart: %s",
			            now.why);
		if (now.products > best.products)
			best = now;
	}
	*plan = best;
	return best.products > 0;
}
