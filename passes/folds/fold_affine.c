/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold-affine: gamma and beta of a norm go into the linears that read it:
 * (x g + b) W^T + c = x (W diag(g))^T + (c + W b).
 *
 * Requires   merge-heads and demand-rows (they look at norms and linears as written); before merge-linear,
 * whose weights are then concatenated from folded ones.
 * Ensures    a norm that only linears read has no gamma and beta; the products are provenance expressions,
 * computed in f64 and rounded once, over the layers of a stack at once. Counters: `norms`, `linears`,
 * `constants` (weights that changed), `bytes` (growth of the stored weights, may be negative).
 * Example    %h = layer_norm %x, @g[%l], @b[%l]   %y = linear %h, @w[%l], @c[%l]
 *        ->  %h = layer_norm %x                   %y = linear %h, @w[%l], @c[%l]
 *            with @w = mul_columns(W, G) and @c = add(C, matvec(W, B))
 * Refuses    a norm that something else reads too (the residual of a post-norm layer, a result), weights that
 * are computed, not f32 or indexed otherwise; a matrix whose rows are gathered (a tied embedding is stored
 * once); and growth: a matrix that is also read unfolded would be stored twice. The setting `growth` has the
 * bytes that one norm may cost. Norms with one gamma are folded in all functions or in none.
 */
#include "passes/folds/fold_affine.h"

#include "ir/support/checked.h"

struct folder {
	struct pass_context *p;
	struct affine_sites *sites;
};

/* --- rewriting ----------------------------------------------------------------------------------------- */

static const struct affine_site *site_of(const struct rebuild *r, const struct ir_op *op)
{
	const struct folder *g = r->rewrite->user;
	const struct affine_site *s = uses_mark(g->sites->uses, r->f, op);
	return s != NULL && !s->refused ? s : NULL;
}

static void need_indices(struct rebuild *r, const struct ir_op *linear)
{
	const struct ir_op *w = uses_weight_op(r->f, linear->operands[1]);
	for (size_t i = 0; i < w->n_operands; i++)
		rebuild_need(r, w->operands[i]);
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	const struct affine_site *s = site_of(r, op);
	if (s == NULL)
		return false;
	r->number = s->number;
	rebuild_need(r, op->operands[0]);
	if (op == s->norm)
		return true;
	need_indices(r, op);
	if (s->beta == NULL)
		rebuild_need(r, op->operands[2]);
	return true;
}

/* gamma or beta with the leading axes of w: repeated where it has none. */
static const struct ir_wexpr *per_matrix(struct rebuild *r, const struct ir_wexpr *w,
                                         const struct ir_wexpr *v)
{
	struct arena *a = &r->out->arena;
	int64_t dims[IR_RANK_MAX];
	int leading = w->rank - 2;
	if (v->rank == w->rank - 1)
		return v;
	for (int i = 0; i < leading; i++)
		dims[i] = 1;
	dims[leading] = v->dims[0];
	v = wexpr_reshape(a, leading + 1, dims, v);
	for (int i = 0; i < leading && v != NULL; i++)
		v = wexpr_repeat(a, i, w->dims[i], v);
	return v;
}

static const struct ir_weight *fold_matrix(struct rebuild *r, const struct affine_site *s,
                                           const struct ir_weight *w)
{
	const struct folder *g = r->rewrite->user;
	if (s->gamma == NULL)
		return uses_add_weight(r, w, w->name, w->init, true);
	const struct ir_wexpr *v = per_matrix(r, w->init, s->gamma->init);
	bool only = affine_folds_all(g->sites, w);
	const char *name = only ? w->name : arena_printf(r->p->arena, "%s.folded", w->name);
	return uses_add_weight(r, w, name, wexpr_columns(&r->out->arena, WX_MUL_COLUMNS, w->init, v), only);
}

static const struct ir_weight *fold_bias(struct rebuild *r, const struct affine_site *s,
                                         const struct ir_weight *w, const struct ir_weight *c)
{
	const struct folder *g = r->rewrite->user;
	struct arena *a = &r->out->arena;
	const struct ir_wexpr *e =
	        wexpr_columns(a, WX_MATVEC, w->init, per_matrix(r, w->init, s->beta->init));
	if (c == NULL)
		return uses_add_weight(r, w, arena_printf(r->p->arena, "%s.bias", w->name), e, false);
	bool only = affine_folds_all(g->sites, c) && affine_folds_all(g->sites, w);
	const char *name = only ? c->name : arena_printf(r->p->arena, "%s.folded", c->name);
	return uses_add_weight(r, c, name, wexpr_binary(a, WX_ADD, c->init, e), only);
}

static struct ir_value reference(struct rebuild *r, const struct ir_op *like, const struct ir_weight *w)
{
	struct ir_value at[IR_RANK_MAX];
	for (size_t i = 0; i < like->n_operands; i++)
		at[i] = rebuild_get(r, like->operands[i]);
	return w == NULL ? IR_NO_VALUE : irb_weight_ref(r->b, w, at, like->n_operands);
}

static void emit_linear(struct rebuild *r, const struct affine_site *s, const struct ir_op *op)
{
	const struct ir_op *ref = uses_weight_op(r->f, op->operands[1]);
	const struct ir_weight *w = uses_weight(r->f, op->operands[1]),
	                       *c = uses_weight(r->f, op->operands[2]);
	struct ir_value bias = rebuild_get(r, op->operands[2]);
	struct ir_value matrix = reference(r, ref, fold_matrix(r, s, w));
	if (s->beta != NULL)
		bias = reference(r, ref, fold_bias(r, s, w, c));
	rebuild_set(r, op->results[0], irb_linear(r->b, rebuild_get(r, op->operands[0]), matrix, bias, NULL));
	pass_count(r->p, "linears", 1);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	const struct affine_site *s = site_of(r, op);
	struct ir_value operands[3] = {rebuild_get(r, op->operands[0])};
	if (op != s->norm) {
		emit_linear(r, s, op);
		return;
	}
	rebuild_set(r, op->results[0], irb_op1(r->b, op->code, operands, op->n_operands, op->attrs));
	pass_count(r->p, "norms", 1);
	pass_applied(r->p, s->number, NULL, op->loc);
	pass_remark(r->p, op->loc, "folded: @%s into the weights of %zu linear%s",
	            s->gamma != NULL ? s->gamma->name : s->beta->name, s->n_linears,
	            pass_plural(s->n_linears));
}

/* --- the pass ------------------------------------------------------------------------------------------- */

static int64_t changed_weights(const struct ir_module *in, const struct ir_module *out)
{
	int64_t n = 0;
	for (size_t i = 0; i < out->weights.n; i++) {
		const struct ir_weight *w = out->weights.items[i], *old = ir_find_weight(in, w->name);
		n += old == NULL || !wexpr_equal(old->init, w->init);
	}
	return n;
}

enum tfmc_status fold_rebuild(struct pass_context *p, const struct ir_module *in, struct ir_module *out,
                              const struct rewrite *rewrite)
{
	size_t errors = p->cx->n_errors;
	int64_t bytes = 0;
	TFMC_TRY(rebuild_module(p, in, out, rewrite, NULL));
	if (p->cx->n_errors > errors)
		return TFMC_INTERNAL;
	pass_count(p, "constants", changed_weights(in, out));
	if (checked_sub_i64(module_weight_bytes(p->arena, out), module_weight_bytes(p->arena, in), &bytes))
		pass_count(p, "bytes", bytes);
	return TFMC_OK;
}

enum tfmc_status pass_fold_affine(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct folder g = {.p = p, .sites = affine_sites_collect(p, in, p->step->settings[0])};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &g, .is_numbered = true};

	if (g.sites == NULL)
		return TFMC_NO_MEMORY;
	pass_count(p, "norms", 0);
	return fold_rebuild(p, in, out, &rewrite);
}
