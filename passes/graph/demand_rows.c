/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demand-rows: linears and attentions compute only the rows that are read.
 *
 * Requires   fuse-attention and merge-heads (it handles whole attention ops).
 * Ensures    if only one row of each sequence of a result is read (select_rows, or slice {axis=1 size=1}),
 *            everything between it and the last op that mixes rows has one row. If that result comes from a
 *            repeat, the last iteration is peeled: k, v and states for all rows, everything after q for the
 *            selected rows. Same ops, same weights (with constant index), same bits. peel=0 leaves repeats alone.
 *            Counters: peeled, products, ops, rows picked, kept.
 * Example    %y = repeat %i = 0 to 5 carry (%x = %x0) { .. }   %r = select_rows %y, %at
 *        ->  %z = repeat %i = 0 to 4 carry (%x = %x0) { .. }   .. of iteration 4, q and what follows [B,1,..]
 * Skips      a result with readers of all rows, or of other rows; row numbers that depend on more than parameters;
 *            a last iteration in which every linear needs all rows. A linear that would be merged with others that
 *            need all rows is left as it is.
 * Benefit    3 to 6 % of the prefill of D4, more for small models; 7 % of D2 on Sapphire Rapids
 *            (tests/perf/passes.md).
 */
#include "passes/graph/demand.h"

#include <string.h>

#include "ir/core/axes.h"
#include "passes/framework/rebuild.h"

struct demand_builder {
	struct rebuild *r;
	const struct demand_plan *plan; /* of r->f */
	struct ir_value *rows;          /* [f->n_values] the new value with one row, of reduced ops */
};

/* ---- selected rows ---- */

/* Builds v, a row number, before its op is reached: the first reduced op needs it. The builder's value numbering
 * merges it with the op that is built there. */
static struct ir_value build_early(struct rebuild *r, struct ir_value v)
{
	const struct ir_op *op = ir_def(r->f, v);
	if (op == NULL || r->map[v.id].id != 0)
		return r->map[v.id];
	for (size_t i = 0; i < op->n_operands; i++)
		build_early(r, op->operands[i]);
	irb_clone(r->b, r->f, op, r->map);
	return r->map[v.id];
}

/* i32[batch], all equal to the dim. */
static struct ir_value full_of_dim(struct demand_builder *d, const struct ir_dim *value)
{
	struct ir_builder *b = d->r->b;
	const struct ir_dim *batch = ir_import_dim(d->r->out, d->plan->key.batch);
	int64_t n;
	if (ir_dim_is_const(value, &n))
		return irb_full_of(b, (double)n, DT_I32, 1, &batch);
	return irb_dim_value_of(b, value, 1, &batch);
}

/* Row number of each sequence, i32[batch], clamped to [0, rows) as select_rows does: the numbers are also added
 * to positions. */
static struct ir_value row_numbers(struct demand_builder *d)
{
	const struct demand_key *key = &d->plan->key;
	struct ir_dims *dims = d->r->out->dims;
	struct ir_builder *b = d->r->b;
	if (key->at.id == 0)
		return full_of_dim(d, ir_import_dim(d->r->out, key->begin));
	const struct ir_dim *last =
	        ir_dim_sub(dims, ir_import_dim(d->r->out, key->rows), ir_dim_const(dims, 1));
	struct ir_value most = full_of_dim(d, last);
	struct ir_value at = irb_min(b, build_early(d->r, key->at), most, NULL);
	return irb_max(b, at, full_of_dim(d, ir_dim_const(dims, 0)), NULL);
}

/* Selects the rows of a value that is computed for all rows. Result: as v, with size 1 along `axis`. The op
 * selects along axis 1, so that axis is moved there, and back afterwards; a constant row is a slice along any
 * axis. */
static struct ir_value select_rows(struct demand_builder *d, struct ir_value v, int axis)
{
	struct rebuild *r = d->r;
	const struct ir_type *type = ir_type_of(r->f, v);
	const struct ir_dim *one = ir_dim_const(r->out->dims, 1), *dims[IR_RANK_MAX];
	struct ir_value x = rebuild_get(r, v);
	int64_t to_axis_1[IR_RANK_MAX], back[IR_RANK_MAX];

	if (d->plan->key.at.id == 0)
		return irb_slice_of(r->b, x, axis, ir_import_dim(r->out, d->plan->key.begin), one);
	for (int i = 0; i < type->rank; i++)
		to_axis_1[i] = i == 1 ? axis : i - (i > 1 && i <= axis);
	for (int i = 0; i < type->rank; i++) {
		back[to_axis_1[i]] = i;
		dims[i] = i == 1 ? one : ir_import_dim(r->out, type->dims[to_axis_1[i]]);
	}
	x = irb_transpose_by(r->b, x, type->rank, to_axis_1);
	x = irb_select_rows(r->b, x, row_numbers(d), NULL);
	x = irb_reshape_to(r->b, x, type->rank, dims);
	pass_count(r->p, "rows picked", 1);
	return irb_transpose_by(r->b, x, type->rank, back);
}

/* The selected row of old value v along `axis`: as v, with size 1 there. Without a reduced form along that axis
 * (another reader selects along another one, or v stays complete) it is selected from all rows. */
static struct ir_value row_of(struct demand_builder *d, struct ir_value v, int axis)
{
	const struct demand *of = &d->plan->of[v.id];
	return of->is_reduced && of->axis == axis ? d->rows[v.id] : select_rows(d, v, axis);
}

/* ---- ops ---- */

/* Dims of the result in the new module, 1 at the row axis. Returns the rank. */
static int result_dims(struct demand_builder *d, const struct ir_op *op, const struct ir_dim **dims)
{
	const struct ir_type *type = ir_type_of(d->r->f, op->results[0]);
	for (int i = 0; i < type->rank; i++)
		dims[i] = ir_import_dim(d->r->out, type->dims[i]);
	dims[d->plan->of[op->results[0].id].axis] = ir_dim_const(d->r->out->dims, 1);
	return type->rank;
}

/* An iota along the row axis becomes the row number plus its start; one along another axis has one row. */
static struct ir_value build_iota(struct demand_builder *d, const struct ir_op *op)
{
	struct attrs_iota a = *(const struct attrs_iota *)op->attrs;
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_builder *b = d->r->b;
	int rank = result_dims(d, op, dims), axis = d->plan->of[op->results[0].id].axis;

	if (a.axis == axis) {
		struct ir_value at = irb_reshape_to(b, row_numbers(d), rank, dims);
		return irb_add(b, at, irb_full_of(b, (double)a.start, DT_I32, rank, dims), NULL);
	}
	a.dims = (struct ir_dim_list){dims, (size_t)rank};
	return irb_iota(b, &a);
}

/* Adds the row number to operand `past`: masks compare the position past + at of the row. */
static void add_row_to_past(struct demand_builder *d, struct ir_value *operands, size_t past)
{
	struct ir_value at = row_numbers(d);
	operands[past] = operands[past].id != 0 ? irb_add(d->r->b, operands[past], at, NULL) : at;
}

/* The mask depends on the position of the row (causal or windowed). */
static bool mask_uses_positions(const struct ir_op *op)
{
	if (op->code == OP_attention) {
		const struct attrs_attention *a = op->attrs;
		return a->mask == MASK_causal || a->window > 0;
	}
	if (op->code == OP_masked_softmax) {
		const struct attrs_masked_softmax *a = op->attrs;
		return a->mask == MASK_causal || a->window > 0;
	}
	const struct attrs_mask *a = op->attrs;
	return op->code == OP_mask && (a->mask == MASK_causal || a->window > 0);
}

/* Builds an op without size attributes; ops that depend on the position of a row get its number added: the row
 * is now row 0. mask_rows compares s >= len, so its len becomes len - at. */
static struct ir_value build_generic(struct demand_builder *d, const struct ir_op *op,
                                     struct ir_value *operands)
{
	int axis = d->plan->of[op->results[0].id].axis, from[DEMAND_OPERANDS_MAX];
	if (ir_axis_dependence(d->r->f, op, axis, from) == IR_AXIS_POSITION) {
		if (op->code == OP_mask_rows)
			operands[OPERAND(mask_rows, len)] =
			        irb_sub(d->r->b, operands[OPERAND(mask_rows, len)], row_numbers(d), NULL);
		else if (mask_uses_positions(op))
			add_row_to_past(d, operands,
			                op->code == OP_attention ? OPERAND(attention, past)
			                                         : OPERAND(mask, past));
	}
	return irb_op1(d->r->b, op->code, operands, op->n_operands, op->attrs);
}

/* Builds op with one row: sizes in attributes become 1 along the row axis. A slice is along another axis: one
 * along the row axis mixes rows and is never reduced. */
static struct ir_value build_op(struct demand_builder *d, const struct ir_op *op, struct ir_value *operands)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_module *out = d->r->out;
	struct ir_builder *b = d->r->b;
	int rank = result_dims(d, op, dims);

	if (op->code == OP_reshape)
		return irb_reshape_to(b, operands[0], rank, dims);
	if (op->code == OP_broadcast)
		return irb_broadcast_to(b, operands[0], rank, dims);
	if (op->code == OP_iota)
		return build_iota(d, op);
	if (op->code == OP_full) {
		const struct attrs_full *a = op->attrs;
		return irb_full_of(b, a->value, a->dtype, rank, dims);
	}
	if (op->code == OP_slice) {
		const struct attrs_slice *a = op->attrs;
		return irb_slice_of(b, operands[0], (int)a->axis, ir_import_dim(out, a->begin),
		                    ir_import_dim(out, a->size));
	}
	return build_generic(d, op, operands);
}

/*
 * Builds a reduced op: the same op with one row, so the same kernel and order of arithmetic; also the complete
 * op if needed.
 */
static void build_reduced(struct demand_builder *d, const struct ir_op *op)
{
	struct ir_value operands[DEMAND_OPERANDS_MAX] = {IR_NO_VALUE};
	const struct demand *of = &d->plan->of[op->results[0].id];
	int axes[DEMAND_OPERANDS_MAX];

	if (of->all_rows)
		irb_clone(d->r->b, d->r->f, op, d->r->map);
	/* True, as in the analysis; repeated for the axes. */
	if (!demand_rule(d->plan, op, of->axis, axes))
		return;
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id == 0)
			continue;
		operands[i] = axes[i] > 0 ? row_of(d, op->operands[i], axes[i])
		                          : rebuild_get(d->r, op->operands[i]);
	}
	irb_set_loc(d->r->b, op->loc);
	struct ir_value new_value = build_op(d, op, operands);
	d->rows[op->results[0].id] = new_value;
	irb_name(d->r->b, new_value, ir_value_info(d->r->f, op->results[0])->name);
}

/* ---- peeling the last iteration ---- */

struct peeler {
	struct demand_plan plan;
	bool active; /* for the function of the plan */
};

/* The plan of the function being read, computed at its first op; NULL: no contraction of it gets fewer rows. */
static struct demand_plan *plan_for(struct demand_plan *plan, bool *active, const struct rebuild *r,
                                    bool peel)
{
	if (plan->f != r->f) {
		*plan = (struct demand_plan){.p = r->p, .m = r->in, .f = r->f, .may_peel = peel};
		*active = demand_find(plan);
	}
	return *active ? plan : NULL;
}

/* First traversal: matches repeats whose last iteration is to be peeled. emit copies the body as it is, so all
 * operands in it are marked, also values from outside of it. */
static bool match_repeat(struct rebuild *r, const struct ir_op *op)
{
	struct peeler *s = r->rewrite->user;
	const struct demand_plan *plan =
	        plan_for(&s->plan, &s->active, r, r->p->step->settings[SETTING_demand_rows_peel] != 0);
	if (plan == NULL || op->code != OP_repeat || !plan->peel[op->results[0].id])
		return false;
	r->number = pass_consume_fuel(r->p);
	if (r->number == 0)
		return false;
	rebuild_need_operands(r, op);
	for (struct ir_iter it = ir_iter_begin(op->region); it.op != NULL; ir_iter_next(&it))
		rebuild_need_operands(r, it.op);
	return true;
}

/* Emits all iterations but the last; carries: in, initial values; out, results. */
static void emit_first_iterations(struct ir_copy *c, const struct ir_op *op, int64_t count,
                                  struct ir_value *carries)
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

/* Peels the last iteration: a repeat of count - 1 iterations, then the body with index count - 1. */
static void emit_repeat(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	struct ir_value carries[BUILD_LIST_MAX];
	struct ir_copy c = {.b = r->b, .from = r->f, .map = r->map};

	ir_copy_values(&c, op->operands, op->n_operands, carries);
	if (count > 1)
		emit_first_iterations(&c, op, count, carries);
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
	            "peeled the last of %lld iterations, which computes only the rows that are read",
	            (long long)count);
}

/* ---- reducing to the selected rows ---- */

struct reducer {
	struct demand_plan plan;
	bool active;
	int64_t number; /* of the application: one for each function */
	struct demand_builder build;
	const struct ir_func *build_of; /* the function that `build` is for */
};

/* Second traversal: matches the row selections of the key and all reduced ops of the function body. All of a
 * function are one application: it consumes one unit of fuel at the first op. Operands that are reduced themselves
 * match as well, so their complete form is not built unless another reader needs it. */
static bool match_reduced(struct rebuild *r, const struct ir_op *op)
{
	struct reducer *s = r->rewrite->user;
	bool is_new = s->plan.f != r->f;
	const struct demand_plan *plan = plan_for(&s->plan, &s->active, r, false);
	if (is_new && plan != NULL) {
		s->number = pass_consume_fuel(r->p);
		s->active = s->number > 0;
	}
	if (!s->active || ir_value_info(r->f, op->results[0])->region != r->f->body)
		return false;
	if (!demand_is_selection(plan, op) && !plan->of[op->results[0].id].is_reduced)
		return false;
	rebuild_need_operands(r, op);
	rebuild_need(r, plan->key.at);
	r->number = s->number;
	return true;
}

/* Prepares the builder for a function, when the forward walk reaches its first reduced op. */
static bool begin_function(struct rebuild *r, struct reducer *s)
{
	if (s->build_of == r->f)
		return s->build.rows != NULL;
	s->build_of = r->f;
	s->build = (struct demand_builder){.r = r, .plan = &s->plan};
	s->build.rows = ARENA_ARRAY(r->p->arena, struct ir_value, r->f->n_values);
	pass_count(r->p, "products", (int64_t)s->plan.contractions);
	pass_count(r->p, "ops", (int64_t)s->plan.ops);
	pass_count(r->p, "kept", (int64_t)s->plan.n_complete);
	pass_remark(r->p, r->f->loc, "%s: %zu product%s for the rows that are read", r->f->name,
	            s->plan.contractions, pass_plural(s->plan.contractions));
	pass_applied(r->p, s->number, NULL, r->f->loc);
	return s->build.rows != NULL;
}

/* Builds a reduced op, or replaces a row selection by the row that its operand now has. */
static void emit_reduced(struct rebuild *r, const struct ir_op *op)
{
	struct reducer *s = r->rewrite->user;
	const struct ir_type *type = ir_type_of(r->f, op->results[0]);
	const struct ir_dim *dims[IR_RANK_MAX];

	if (!begin_function(r, s))
		return;
	if (!demand_is_selection(&s->plan, op)) {
		build_reduced(&s->build, op);
		return;
	}
	for (int i = 0; i < type->rank; i++)
		dims[i] = ir_import_dim(r->out, type->dims[i]);
	struct ir_value row = row_of(&s->build, op->operands[0], 1);
	rebuild_set(r, op->results[0], irb_reshape_to(r->b, row, type->rank, dims));
}

/* Two traversals, each with an analysis of its own: the first peels repeats, the second reduces ops of the
 * function body, to which the peeled iteration then belongs. */
enum tfmc_status pass_demand_rows(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct peeler peeler = {.active = false};
	struct reducer reducer = {.active = false};
	const struct rewrite peel = {
	        .match = match_repeat, .emit = emit_repeat, .user = &peeler, .is_numbered = true};
	const struct rewrite reduce = {
	        .match = match_reduced, .emit = emit_reduced, .user = &reducer, .is_numbered = true};
	struct ir_module *peeled = ir_module_create_like(in);

	if (peeled == NULL)
		return TFMC_NO_MEMORY;
	pass_count(p, "peeled", 0);
	enum tfmc_status st = rebuild_module(p, in, peeled, &peel, NULL);
	if (st == TFMC_OK)
		st = rebuild_module(p, peeled, out, &reduce, NULL);
	ir_module_destroy(peeled);
	return st;
}
