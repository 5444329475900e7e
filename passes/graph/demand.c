/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demand analysis: one backward walk over a function for each row selection. A repeat whose result is needed in
 * selected rows only is analyzed as if its last iteration was peeled. Invariant: an op is visited after all
 * readers of its results.
 *
 * Row selection: an op that reads one row of each sequence of a value with several (select_rows, slice); its key is
 * which row of which axes. The demand of a value (struct demand): whether readers need all its rows, or the selected
 * ones along `axis`. An op is reduced if it is computed for the selected rows alone. It stays complete, though only
 * selected rows are read, if merge-linear will merge it with a linear of the same input that needs all rows.
 */
#include "passes/graph/demand.h"

#include "ir/core/axes.h"

#define KEYS_MAX       8  /* row selections of a function that are compared */
#define CHAIN_MAX      16 /* ops that compute row numbers */
#define ITERATIONS_MAX 8  /* of find_for_key() */

/* ---- rows of one op ---- */

/*
 * Invariant: axis 0 of a value with rows is the batch axis, and the row axis has the size that the key says, so
 * that rows can be selected from any such value.
 */

static const struct ir_type *operand_type(const struct demand_plan *plan, const struct ir_op *op, size_t i)
{
	return ir_type_of(plan->f, op->operands[i]);
}

/* demand_rule without its check of the operands: axes[i] is the row axis of operand i. False if op mixes rows. */
static bool axis_rule(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes)
{
	if (op->code == OP_reshape) {
		axes[0] = ir_reshape_axis(plan->m->dims, plan->f, op, axis);
		return axes[0] > 0;
	}
	/* Along the row axis an iota becomes the row numbers [B,1]: further axes would need a broadcast. */
	if (op->code == OP_iota)
		return ir_type_of(plan->f, op->results[0])->rank == 2 ||
		       ((const struct attrs_iota *)op->attrs)->axis != axis;
	/* An op without known axes mixes rows. */
	return op->code == OP_full || ir_axis_dependence(plan->f, op, axis, axes) != IR_AXIS_MIXED;
}

/* Rows are selected by numbers that are valid for one batch and one number of rows, those of the key, so operands
 * with rows must have these. */
bool demand_rule(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes)
{
	if (op->n_operands > DEMAND_OPERANDS_MAX || op->n_results != 1)
		return false;
	for (size_t i = 0; i < DEMAND_OPERANDS_MAX; i++)
		axes[i] = 0;
	if (!axis_rule(plan, op, axis, axes))
		return false;
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id == 0 || axes[i] == 0)
			continue;
		const struct ir_type *t = operand_type(plan, op, i);
		if (axes[i] >= t->rank || t->dims[0] != plan->key.batch || t->dims[axes[i]] != plan->key.rows)
			return false;
	}
	return true;
}

static struct demand *demand_of(const struct demand_plan *plan, struct ir_value v)
{
	return &plan->of[v.id];
}

/* ---- row selections ---- */

/* op reads one row of each sequence of a value that has several (or an unknown number). */
static bool selects_row(const struct ir_func *f, const struct ir_op *op)
{
	if (op->code == OP_select_rows)
		return !ir_dim_equals(ir_type_of(f, op->operands[0])->dims[1], 1);
	if (op->code != OP_slice)
		return false;
	const struct attrs_slice *a = op->attrs;
	const struct ir_type *x = ir_type_of(f, op->operands[0]);
	return a->axis == 1 && ir_dim_equals(a->size, 1) && !ir_dim_equals(x->dims[1], 1);
}

/* If `at` is the same row in every sequence and provably in [0, rows), returns the row; else NULL. */
static const struct ir_dim *constant_row(const struct demand_plan *plan, struct ir_value at,
                                         const struct ir_dim *rows)
{
	struct ir_dims *dims = plan->m->dims;
	const struct ir_op *op = ir_def_as(plan->f, at, OP_dim_value);
	const struct ir_dim *row = op == NULL ? NULL : ((const struct attrs_dim_value *)op->attrs)->dim;
	bool is_inside =
	        row != NULL && ir_dim_lo(dims, row) >= 0 && ir_dim_lo(dims, ir_dim_sub(dims, rows, row)) >= 1;
	return is_inside ? row : NULL;
}

/* The key of a row selection. A select_rows whose rows are provably one constant row is keyed as a slice. */
static struct demand_key key_of(const struct demand_plan *plan, const struct ir_op *op)
{
	const struct ir_type *x = ir_type_of(plan->f, op->operands[0]);
	struct demand_key key = {.batch = x->dims[0], .rows = x->dims[1]};
	if (op->code == OP_select_rows)
		key.begin = constant_row(plan, op->operands[1], key.rows);
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

bool demand_is_selection(const struct demand_plan *plan, const struct ir_op *op)
{
	if (!selects_row(plan->f, op) || ir_value_info(plan->f, op->results[0])->region != plan->f->body)
		return false;
	const struct demand_key key = key_of(plan, op);
	return same_key(&key, &plan->key);
}

/* v depends on parameters alone (through at most *left ops), so the row numbers can be computed before
 * everything else. An absent v depends on nothing. */
static bool depends_on_parameters_only(const struct ir_func *f, struct ir_value v, int *left)
{
	const struct ir_op *op = ir_def(f, v);
	if (op == NULL)
		return v.id == 0 || ir_value_info(f, v)->region == f->body;
	if (--*left < 0 || op->region != NULL || !ir_op_has(op->code, TRAIT_PURE) ||
	    ir_value_info(f, v)->region != f->body)
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!depends_on_parameters_only(f, op->operands[i], left))
			return false;
	return true;
}

/* ---- one op ---- */

static void require_all(struct demand_plan *plan, struct ir_value v)
{
	demand_of(plan, v)->all_rows = true;
}

/* v is needed in the selected rows along `axis`; in all rows if another reader selects along another axis. */
static void require_rows(struct demand_plan *plan, struct ir_value v, int axis)
{
	struct demand *d = demand_of(plan, v);
	if (d->axis != 0 && d->axis != axis)
		d->all_rows = true;
	else
		d->axis = axis;
}

static void require_all_operands(struct demand_plan *plan, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		require_all(plan, op->operands[i]);
}

/* Marks op as reduced and propagates the demand to its operands: selected rows along axes[i], or all rows. */
static void reduce_op(struct demand_plan *plan, const struct ir_op *op, const int *axes)
{
	demand_of(plan, op->results[0])->is_reduced = true;
	plan->ops++;
	plan->contractions += ir_op_has(op->code, TRAIT_CONTRACT);
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id != 0 && axes[i] > 0)
			require_rows(plan, op->operands[i], axes[i]);
		else
			require_all(plan, op->operands[i]);
	}
}

/* op may be computed twice, for all rows and for the selected ones: a second norm of one row costs less than losing the
 * fusion of the norm into its linears. */
static bool may_be_computed_twice(const struct ir_op *op)
{
	return ir_is_norm(op->code) || op->code == OP_quantize_rows;
}

/*
 * v is a view of an unreduced value: rows are selected after the views, so that the ops equal those of other
 * iterations.
 */
static bool is_view_of_complete(const struct demand_plan *plan, struct ir_value v)
{
	const struct ir_op *op = ir_def(plan->f, v);
	while (!demand_of(plan, v)->stays_complete && op != NULL && ir_op_has(op->code, TRAIT_VIEW)) {
		v = op->operands[0];
		op = ir_def(plan->f, v);
	}
	return demand_of(plan, v)->stays_complete;
}

/* Propagates the demand of op's results to its operands: reduces it if only selected rows are needed and the op
 * allows that, else requires all rows, of which those that readers select are selected afterwards. Dead pure ops are
 * ignored; a region is needed as a whole. */
static void visit_op(struct demand_plan *plan, const struct ir_op *op)
{
	int axes[DEMAND_OPERANDS_MAX];
	struct demand *d = op->n_results == 1 ? demand_of(plan, op->results[0]) : NULL;
	bool is_live = op->n_results == 0 || !ir_op_has(op->code, TRAIT_PURE);

	for (size_t i = 0; i < op->n_results && !is_live; i++)
		is_live = demand_of(plan, op->results[i])->all_rows ||
		          demand_of(plan, op->results[i])->axis > 0;
	if (!is_live)
		return;
	if (d != NULL && d->axis > 0 && !is_view_of_complete(plan, op->results[0]) &&
	    (!d->all_rows || may_be_computed_twice(op)) && demand_rule(plan, op, d->axis, axes)) {
		reduce_op(plan, op, axes);
		if (!d->all_rows)
			return;
	}
	if (d != NULL && d->axis > 0)
		d->all_rows = true;
	require_all_operands(plan, op);
	if (op->region == NULL)
		return;
	for (struct ir_iter it = ir_iter_begin(op->region); it.op != NULL; ir_iter_next(&it))
		require_all_operands(plan, it.op);
}

/* ---- repeat ---- */

static void visit_region(struct demand_plan *plan, const struct ir_region *region);

/* Reason why the last iteration of a repeat cannot be peeled, or NULL. Some result must be needed in selected
 * rows only: otherwise nothing of that iteration gets fewer rows. */
static const char *peel_obstacle(const struct demand_plan *plan, const struct ir_op *op)
{
	const struct attrs_repeat *a = op->attrs;
	bool any = false;
	for (size_t i = 0; i < op->n_results; i++) {
		const struct demand *d = demand_of(plan, op->results[i]);
		any = any || (d->axis > 0 && !d->all_rows);
	}
	if (!any)
		return "its result has other readers";
	return a->count < 1 ? "it has no iteration" : NULL;
}

static bool is_state(const struct ir_func *f, struct ir_value v)
{
	return ir_type_of(f, v)->kind == IR_STATE;
}

/* Analyzes the last iteration as if it was peeled: what it yields is needed as the results are, states in full.
 * True if that reduces a contraction; else the caller requires all rows, and the reduced ops are not counted. */
static bool visit_last_iteration(struct demand_plan *plan, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	size_t contractions = plan->contractions, ops = plan->ops;

	for (size_t i = 0; i < op->n_results; i++) {
		const struct demand d = *demand_of(plan, op->results[i]);
		if (d.all_rows || is_state(plan->f, op->results[i]))
			require_all(plan, yield->operands[i]);
		else if (d.axis > 0)
			require_rows(plan, yield->operands[i], d.axis);
	}
	visit_region(plan, body);
	if (plan->contractions > contractions)
		return true;
	plan->ops = ops;
	return false;
}

/* Analyzes a repeat as peeled if that reduces a contraction; else all rows of its operands and body are needed. */
static void visit_repeat(struct demand_plan *plan, const struct ir_op *op)
{
	const char *reason = peel_obstacle(plan, op);
	bool is_read = false;

	for (size_t i = 0; i < op->n_results; i++)
		is_read = is_read || demand_of(plan, op->results[i])->axis > 0;
	if (is_read && plan->may_peel && reason == NULL) {
		if (visit_last_iteration(plan, op)) {
			plan->peel[op->results[0].id] = true;
			plan->peeled++;
			/* The iterations before the last one compute all rows. */
			require_all_operands(plan, op);
			return;
		}
		reason = "no linear or attention of its last iteration gets fewer rows";
	}
	if (is_read && reason != NULL && plan->may_peel) {
		plan->reason = reason;
		plan->unpeeled = op;
	}
	for (size_t i = 0; i < op->n_results; i++)
		require_all(plan, op->results[i]);
	visit_op(plan, op);
}

/* Visits the ops of a region from the last to the first; only row selections and repeats in the function body
 * count. A yield adds no demand: visit_last_iteration has passed on that of the results. */
static void visit_region(struct demand_plan *plan, const struct ir_region *region)
{
	for (size_t i = region->n_ops; i-- > 0;) {
		const struct ir_op *op = region->ops[i];
		if (region->owner == NULL && demand_is_selection(plan, op))
			require_rows(plan, op->operands[0], 1);
		else if (region->owner == NULL && op->code == OP_repeat)
			visit_repeat(plan, op);
		else if (region->owner == NULL || !ir_op_has(op->code, TRAIT_TERMINATOR))
			visit_op(plan, op);
	}
}

/* ---- linears that will be merged ---- */

struct siblings {
	struct demand_plan *plan;
	bool *elementwise; /* [f->n_values] read by an elementwise op: is not merged */
	bool changed;
};

static bool may_merge(const struct siblings *s, const struct ir_op *op)
{
	return op->code == OP_linear && ir_weight_of(s->plan->f, op->operands[1]) != NULL &&
	       !s->elementwise[op->results[0].id];
}

/* Another linear of the same input needs all rows. */
static bool has_sibling(const struct siblings *s, const struct ir_op *op)
{
	const struct ir_region *here = ir_value_info(s->plan->f, op->results[0])->region;
	for (size_t i = 0; i < here->n_ops; i++) {
		const struct ir_op *other = here->ops[i];
		if (other != op && may_merge(s, other) &&
		    ir_same_value(other->operands[0], op->operands[0]) &&
		    demand_of(s->plan, other->results[0])->all_rows)
			return true;
	}
	return false;
}

/* Marks a reduced linear that merge-linear would merge with a sibling which needs all rows; the next iteration
 * leaves it unreduced. */
static void leave_with_siblings(struct siblings *s, const struct ir_op *op)
{
	if (!may_merge(s, op) || !demand_of(s->plan, op->results[0])->is_reduced || !has_sibling(s, op))
		return;
	demand_of(s->plan, op->results[0])->stays_complete = true;
	s->plan->n_complete++;
	s->changed = true;
}

/* Clears the result of the last iteration of find_for_key but the linears that stay complete, which only grow in
 * number. */
static void reset_demand(struct demand_plan *plan)
{
	for (size_t i = 0; i < plan->f->n_values; i++) {
		plan->of[i] = (struct demand){.stays_complete = plan->of[i].stays_complete};
		plan->peel[i] = false;
	}
	plan->contractions = plan->ops = plan->peeled = 0;
	plan->unpeeled = NULL;
}

/*
 * Computes the demand for plan->key. A linear that merge-linear would merge with a sibling which needs all rows is
 * left unreduced, and its rows are selected afterwards: otherwise the merge would be lost. Iterates until that is
 * stable.
 */
static void find_for_key(struct demand_plan *plan)
{
	struct siblings s = {.plan = plan, .changed = true};

	plan->of = ARENA_ARRAY(plan->p->arena, struct demand, plan->f->n_values);
	plan->peel = ARENA_ARRAY(plan->p->arena, bool, plan->f->n_values);
	s.elementwise = ARENA_ARRAY(plan->p->arena, bool, plan->f->n_values);
	plan->n_complete = plan->contractions = 0;
	if (plan->of == NULL || plan->peel == NULL || s.elementwise == NULL)
		return;
	for (struct ir_iter it = ir_iter_begin(plan->f->body); it.op != NULL; ir_iter_next(&it))
		for (size_t i = 0; ir_op_has(it.op->code, TRAIT_ELEMENTWISE) && i < it.op->n_operands; i++)
			s.elementwise[it.op->operands[i].id] = true;
	for (int i = 0; i < ITERATIONS_MAX && s.changed; i++) {
		reset_demand(plan);
		visit_region(plan, plan->f->body);
		s.changed = false;
		for (struct ir_iter it = ir_iter_begin(plan->f->body); it.op != NULL; ir_iter_next(&it))
			leave_with_siblings(&s, it.op);
	}
	/* Not stable: demand_find then discards the key. */
	if (s.changed)
		plan->contractions = 0;
}

/* ---- choice of the row selection ---- */

struct key_list {
	struct demand_key items[KEYS_MAX];
	const struct ir_op *ops[KEYS_MAX];
	size_t n;
};

/* Adds the key of op if it is a new row selection; more than KEYS_MAX are ignored. */
static void add_key(struct key_list *list, const struct demand_plan *plan, const struct ir_op *op)
{
	if (!selects_row(plan->f, op))
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

/* Each key gets an analysis of its own. Row numbers that depend on more than parameters are known too late to select
 * rows early. */
bool demand_find(struct demand_plan *plan)
{
	struct demand_plan best = *plan;
	struct key_list list = {.n = 0};

	best.contractions = 0;
	for (size_t i = 0; i < plan->f->body->n_ops; i++)
		add_key(&list, plan, plan->f->body->ops[i]);
	for (size_t i = 0; i < list.n; i++) {
		struct demand_plan candidate = *plan;
		int left = CHAIN_MAX;
		candidate.key = list.items[i];
		if (!depends_on_parameters_only(plan->f, candidate.key.at, &left)) {
			pass_missed(
			        plan->p, list.ops[i]->loc,
			        "rows are not selected early: their numbers depend on more than parameters");
			continue;
		}
		find_for_key(&candidate);
		if (candidate.unpeeled != NULL)
			pass_missed(plan->p, candidate.unpeeled->loc, "the last iteration is not peeled: %s",
			            candidate.reason);
		if (candidate.contractions > best.contractions)
			best = candidate;
	}
	*plan = best;
	return best.contractions > 0;
}
