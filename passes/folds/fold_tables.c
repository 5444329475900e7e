/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold-tables: what is multiplied with or added to rows of constant tables becomes part of the tables.
 *
 * Requires   canonicalize (factors are `scale`).
 * Ensures    a factor behind rows of tables, or behind a sum of them, is in the tables; tables that are read
 *            at the same ids and added are one table, and constant rows (a type row at a fixed id, a
 * broadcast vector) are in the smallest of the tables. A table that is also the weight of an output linear
 *            takes a factor that is a power of two, when the norm before that linear can undo it in its
 *            gamma. Counters: `scales`, `heads` (output linears so undone), `sums` (terms gone), `refused`.
 * Example    %t = gather @tok, %ids   %s = scale %t {f=8.0}   %p = gather @pos, %at   %x = add %s, %p
 *        ->  @tok = scale(8.0, E)   %t = gather @tok, %ids   %p = gather @pos, %at   %x = add %t, %p
 * Refuses    tables that something else reads, also in another function.
 */
#include "passes/folds/fold_tables.h"

#include <math.h>

#include "ir/core/view.h"
#include "passes/folds/feature_rows.h"
#include "passes/folds/weight_changes.h"

#define SUM_DEPTH 4

struct finder {
	struct weight_changes *c;
	const struct ir_func *f;
	const struct change_unit *unit; /* whose tables heads are looked for */
	const struct ir_weight *table;
	size_t number; /* of the unit */
	double factor;
};

static bool is_table(const struct ir_func *f, const struct ir_op *op)
{
	return op != NULL && op->code == OP_gather && weight_changes_constant(f, op, 0) != NULL;
}

/* v is rows of a table, or a sum of such. */
static bool comes_from_tables(const struct ir_func *f, struct ir_value v, int depth)
{
	const struct ir_op *op = ir_def(f, ir_view_base(f, v));
	if (op == NULL || depth == SUM_DEPTH)
		return false;
	if (op->code == OP_add)
		return comes_from_tables(f, op->operands[0], depth + 1) &&
		       comes_from_tables(f, op->operands[1], depth + 1);
	return is_table(f, op);
}

static void find_scale(void *user, const struct ir_op *op)
{
	struct finder *x = user;
	int64_t n;
	if (op->code != OP_scale || !comes_from_tables(x->f, op->operands[0], 0) ||
	    !feature_count(x->f, op->operands[0], &n))
		return;
	double factor = ((const struct attrs_scale *)op->attrs)->f;
	size_t unit = weight_changes_unit(x->c, x->f, op);
	const struct weight_change change = {
	        .kind = CHANGE_SCALE, .rows = feature_rows_all(n), .factor = factor};
	const struct value_use reader = {op, 0};
	const char *why = isfinite(factor) && factor != 0
	                          ? weight_changes_trace(x->c, unit, x->f, &reader, &change, TRACE_TABLE)
	                          : "the factor is no number to multiply with";
	if (why != NULL)
		weight_changes_refuse(x->c, unit, why);
}

/* --- output linears with the same table ---------------------------------------------------------------- */

/* The linear multiplies with a table that becomes `factor` times as large: what it reads must shrink. */
static void find_head(void *user, const struct ir_op *op)
{
	struct finder *x = user;
	const struct ir_op *ref = op->code == OP_linear ? weight_changes_constant(x->f, op, 1) : NULL;
	int64_t rows, n;
	if (ref == NULL || ((const struct attrs_weight *)ref->attrs)->weight != x->table)
		return;
	struct change_unit *known = weight_changes_find(x->c, x->f, op);
	size_t unit =
	        known != NULL ? (size_t)(known - x->c->units.items) : weight_changes_unit(x->c, x->f, op);
	weight_changes_link(x->c, unit, x->number);
	if (known != NULL)
		return;
	x->c->units.items[unit].silent = true;
	if (!change_is_exact(x->factor)) {
		weight_changes_refuse(x->c, unit,
		                      "an output linear reads the table too, and the factor is no power of "
		                      "two that could be undone exactly");
		return;
	}
	const struct value_use table = {op, 1}, reader = {op, 0};
	if (!ir_dim_is_const(x->table->type->dims[0], &rows) || !feature_count(x->f, op->operands[0], &n))
		return;
	struct weight_change change = {
	        .kind = CHANGE_SCALE, .rows = feature_rows_all(rows), .factor = x->factor};
	const char *why = weight_changes_demand(x->c, unit, x->f, &table, &change);
	change.rows = feature_rows_all(n);
	change.factor = 1 / x->factor;
	if (why == NULL)
		why = weight_changes_trace(x->c, unit, x->f, &reader, &change, TRACE_LINEAR | TRACE_NORM);
	if (why != NULL)
		weight_changes_refuse(x->c, unit,
		                      arena_printf(x->c->p->arena,
		                                   "an output linear reads the table too, and what it "
		                                   "reads cannot take the factor back: %s",
		                                   why));
}

static void find_heads_of(struct weight_changes *c, size_t demand)
{
	const struct weight_demand d = c->demands.items[demand];
	struct finder x = {.c = c, .table = d.weight, .number = d.unit, .factor = d.change.factor};
	for (size_t i = 0; i < c->in->funcs.n; i++) {
		x.f = c->in->funcs.items[i];
		ir_walk(x.f->body, find_head, &x);
	}
}

/* --- rewriting ----------------------------------------------------------------------------------------- */

static const struct change_unit *scale_unit(struct weight_changes *c, const struct ir_func *f,
                                            const struct ir_op *op)
{
	const struct change_unit *u = op->code == OP_scale ? weight_changes_find(c, f, op) : NULL;
	return u != NULL && u->number > 0 ? u : NULL;
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct weight_changes *c = r->rewrite->user;
	if (weight_changes_match(c, r, op))
		return true;
	if (scale_unit(c, r->f, op) == NULL)
		return false;
	rebuild_need(r, op->operands[0]);
	return true;
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct weight_changes *c = r->rewrite->user;
	if (op->code == OP_weight) {
		weight_changes_emit(c, r, op);
		return;
	}
	double factor = ((const struct attrs_scale *)op->attrs)->f;
	rebuild_set(r, op->results[0], rebuild_get(r, op->operands[0]));
	pass_count(r->p, "scales", 1);
	pass_remark(r->p, op->loc, "the factor %.9g is in %s (%s)", factor,
	            weight_changes_names(c, scale_unit(c, r->f, op)),
	            change_is_exact(factor) ? "exact" : "rounds");
}

static void say_heads(struct weight_changes *c)
{
	for (size_t i = 0; i < c->units.n; i++) {
		const struct change_unit *u = &c->units.items[i];
		if (u->op->code != OP_linear || u->number == 0)
			continue;
		c->p->function = u->f->name;
		pass_count(c->p, "heads", 1);
		pass_remark(c->p, u->op->loc,
		            "the factor of the table is undone before the output linear, in %s",
		            weight_changes_names(c, u));
	}
	c->p->function = NULL;
}

enum tfmc_status fold_table_scales(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct weight_changes c;
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &c, .is_numbered = true};

	TFMC_TRY(weight_changes_init(&c, p, in));
	for (size_t i = 0; i < in->funcs.n; i++) {
		struct finder x = {.c = &c, .f = in->funcs.items[i]};
		ir_walk(x.f->body, find_scale, &x);
	}
	for (size_t i = 0, n = c.demands.n; i < n; i++)
		find_heads_of(&c, i);
	TFMC_TRY(weight_changes_resolve(&c));
	say_heads(&c);
	return rebuild_module(p, in, out, &rewrite, NULL);
}

enum tfmc_status pass_fold_tables(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct ir_module *between = ir_module_create_like(in);
	size_t errors = p->cx->n_errors;

	if (between == NULL)
		return TFMC_NO_MEMORY;
	pass_count(p, "scales", 0);
	pass_count(p, "sums", 0);
	enum tfmc_status st = fold_table_scales(p, in, between);
	if (st == TFMC_OK)
		st = fold_table_sums(p, between, out);
	ir_module_destroy(between);
	return st == TFMC_OK && p->cx->n_errors > errors ? TFMC_INTERNAL : st;
}
