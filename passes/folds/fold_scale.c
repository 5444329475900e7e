/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold-scale: the factor of the scores, and log2 e, go into the weights that make the queries.
 *
 * Requires   fuse-attention. Behind fold-affine (weights of linears are products already), before
 * merge-linear (whose slices would do, but whose weights then are long concatenations). Ensures    an
 * attention without softcap and added bias computes 2^s (base2) and its scale is 1 where the weights could
 * take the factor scale log2 e, else scale log2 e; with a softcap or a bias only the scale moves. A
 * masked_softmax that scales anyway computes 2^s. Counters: `folded` attentions whose factor is in weights,
 * `base2` ops that became so, `refused`. Example    %q = linear %x, @q.w, @q.b   %o = attention %q, %k, %v
 * {scale=0.125}
 *        ->  @q.w = scale(0.18.., E)   %o = attention %q, %k, %v {base2}
 *            through views, rope and take_rows; a norm of the queries takes it in its gamma.
 * Refuses    queries that something else reads, or that do not come from weights; weights that something else
 *            reads; weights in short types, unless the factor is a power of two.
 */
#include <math.h>

#include "passes/folds/feature_rows.h"
#include "passes/folds/weight_changes.h"

#define LOG2_E 1.4426950408889634074

enum { Q, BIAS = 3 };

/* 2^s may stand for e^s: nothing is between the factor and the exponential. */
static bool takes_base2(const struct ir_op *op)
{
	const struct attrs_attention *a = op->attrs;
	return !a->base2 && !(a->softcap > 0) && op->operands[BIAS].id == 0;
}

static double factor_of(const struct ir_op *op)
{
	const struct attrs_attention *a = op->attrs;
	return takes_base2(op) ? a->scale * LOG2_E : a->scale;
}

struct finder {
	struct weight_changes *c;
	const struct ir_func *f;
};

static void find(void *user, const struct ir_op *op)
{
	struct finder *x = user;
	int64_t n;
	if (op->code != OP_attention || factor_of(op) == 1)
		return;
	double factor = factor_of(op);
	size_t unit = weight_changes_unit(x->c, x->f, op);
	if (!isfinite(factor) || factor == 0 || !feature_count(x->f, op->operands[Q], &n)) {
		weight_changes_refuse(x->c, unit, "the factor is no number to multiply with");
		return;
	}
	const struct weight_change change = {
	        .kind = CHANGE_SCALE, .rows = feature_rows_all(n), .factor = factor};
	const struct value_use reader = {op, Q};
	const char *why = weight_changes_trace(x->c, unit, x->f, &reader, &change,
	                                       TRACE_LINEAR | TRACE_NORM | TRACE_ROPE);
	if (why != NULL)
		weight_changes_refuse(x->c, unit, arena_printf(x->c->p->arena, "the queries: %s", why));
}

/* --- rewriting ----------------------------------------------------------------------------------------- */

static bool softmax_takes_base2(const struct ir_op *op)
{
	const struct attrs_masked_softmax *a = op->attrs;
	return !a->base2 && !(a->softcap > 0) && a->scale != 1 && isfinite(a->scale * LOG2_E);
}

static bool is_replaced(struct weight_changes *c, const struct ir_func *f, const struct ir_op *op)
{
	const struct change_unit *u = weight_changes_find(c, f, op);
	return (op->code == OP_masked_softmax || op->code == OP_attention) && u != NULL && u->number > 0;
}

/* What computes 2^s although its factor is in no weight: each is an application of its own. */
static void find_base2(void *user, const struct ir_op *op)
{
	struct finder *x = user;
	struct change_unit *u = weight_changes_find(x->c, x->f, op);
	bool refused = op->code == OP_attention && u != NULL && u->why != NULL && takes_base2(op) &&
	               isfinite(factor_of(op));
	if (op->code == OP_masked_softmax && softmax_takes_base2(op)) {
		size_t unit = weight_changes_unit(x->c, x->f, op);
		u = &x->c->units.items[unit];
		u->why = "";
	} else if (!refused) {
		return;
	}
	u->number = pass_take_fuel(x->c->p);
	if (u->number > 0)
		pass_applied(x->c->p, u->number, NULL, op->loc);
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct weight_changes *c = r->rewrite->user;
	if (weight_changes_match(c, r, op))
		return true;
	if (!is_replaced(c, r->f, op))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		rebuild_need(r, op->operands[i]);
	return true;
}

static void emit_attention(struct rebuild *r, const struct ir_op *op, const struct change_unit *unit)
{
	struct attrs_attention a = *(const struct attrs_attention *)op->attrs;
	double factor = factor_of(op);
	struct ir_value x[7] = {{0}};
	bool base2 = takes_base2(op), folded = unit->why == NULL;
	for (size_t i = 0; i < op->n_operands && i < TFMC_COUNT(x); i++)
		x[i] = rebuild_get(r, op->operands[i]);
	a.scale = folded ? 1 : factor;
	a.base2 = a.base2 || base2;
	rebuild_set(r, op->results[0], irb_attention(r->b, x[0], x[1], x[2], x[3], x[4], x[5], x[6], &a));
	pass_count(r->p, "base2", base2);
	pass_count(r->p, "folded", folded);
	if (folded)
		pass_remark(r->p, op->loc, "the factor %.9g%s of the scores is in %s (%s)", factor,
		            base2 ? " (with log2 e)" : "", weight_changes_names(r->rewrite->user, unit),
		            change_is_exact(factor) ? "exact" : "rounds");
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct weight_changes *c = r->rewrite->user;
	if (op->code == OP_weight) {
		weight_changes_emit(c, r, op);
	} else if (op->code == OP_attention) {
		emit_attention(r, op, weight_changes_find(c, r->f, op));
	} else {
		struct attrs_masked_softmax a = *(const struct attrs_masked_softmax *)op->attrs;
		a.scale *= LOG2_E;
		a.base2 = true;
		rebuild_set(r, op->results[0],
		            irb_masked_softmax(r->b, rebuild_get(r, op->operands[0]),
		                               rebuild_get(r, op->operands[1]),
		                               rebuild_get(r, op->operands[2]), &a));
		pass_count(r->p, "base2", 1);
	}
}

enum tfmc_status pass_fold_scale(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct weight_changes c;
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &c, .is_numbered = true};
	size_t errors = p->cx->n_errors;

	TFMC_TRY(weight_changes_init(&c, p, in));
	pass_count(p, "folded", 0);
	for (size_t i = 0; i < in->funcs.n; i++) {
		struct finder x = {&c, in->funcs.items[i]};
		ir_walk(x.f->body, find, &x);
	}
	TFMC_TRY(weight_changes_resolve(&c));
	for (size_t i = 0; i < in->funcs.n; i++) {
		struct finder x = {&c, in->funcs.items[i]};
		ir_walk(x.f->body, find_base2, &x);
	}
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INTERNAL : TFMC_OK;
}
