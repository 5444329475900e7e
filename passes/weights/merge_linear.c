/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge-linear: linears that read the same input become one wide linear and slices of its result.
 *
 * Requires   fuse-attention (it looks through single uses that the slices would hide).
 * Ensures    the input is read once; weights are concatenated by their provenance expression, widths may
 *            differ, a missing bias becomes zeros. The counter `merged` has the number of linears that went
 *            in. Two linears of equal width whose results meet in an elementwise op (gate and up) are a pair,
 *            the counter `pairs` has their number; `group` makes one kernel of them and of where they meet.
 * Example    %q = linear %x, @q.w[%l]  %k = linear %x, @k.w[%l]
 *        ->  %y = linear %x, @q_k.w[%l]  %q = slice %y {axis=2 begin=0 size=32}
 *            %k = slice %y {axis=2 begin=32 size=32}
 * Refuses    when a weight is also used elsewhere (it would be stored twice); for any other result that goes
 *            into an elementwise op, which is the epilogue of its own linear; for pairs that are no whole
 *            panels: they keep two kernels.
 * Pays       up to 3.5 % of a call on Sapphire Rapids, up to 1.6 % on Zen 5 (tests/perf/passes.md).
 */
#include "passes/weights/join_weights.h"
#include "passes/weights/merge_sets.h"

struct merger {
	struct merge_sets *sets;
	struct ir_value *merged; /* [sets->n] the wide linear once it is built */
};

static const struct merge_set *set_of(const struct rebuild *r, const struct ir_op *op, size_t *index)
{
	const struct merger *g = r->rewrite->user;
	return op->code == OP_linear ? merge_sets_find(g->sets, r->f, op, index) : NULL;
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	size_t index;
	const struct merge_set *s = set_of(r, op, &index);
	if (s == NULL)
		return false;
	const struct ir_op *w = ir_def_as(r->f, op->operands[1], OP_weight);
	rebuild_need(r, op->operands[0]);
	for (size_t i = 0; i < w->n_operands; i++)
		rebuild_need(r, w->operands[i]);
	return true;
}

/* ---- rewriting ---- */

static struct ir_value build_wide(struct rebuild *r, const struct merge_set *s)
{
	const struct join join = {s->items, s->n};
	struct ir_value w = join_reference(r, &join, 1, 0), b = join_reference(r, &join, 2, 0);
	struct ir_value y = irb_linear(r->b, rebuild_get(r, s->items[0]->operands[0]), w, b, NULL);
	pass_count(r->p, "merged", (int64_t)s->n);
	pass_applied(r->p, s->number, NULL, s->items[0]->loc);
	pass_count(r->p, "pairs", s->is_pair);
	if (w.id != 0)
		pass_remark(r->p, s->items[0]->loc, "%zu linears %s @%s", s->n,
		            s->is_pair ? "that meet become one," : "merged into",
		            ir_weight_of(irb_func(r->b), w)->name);
	return y;
}

static int64_t width_of(const struct rebuild *r, const struct ir_op *linear)
{
	int64_t n = 0;
	ir_dim_is_const(ir_type_of(r->f, linear->operands[1])->dims[0], &n);
	return n;
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct merger *g = r->rewrite->user;
	size_t index;
	const struct merge_set *s = set_of(r, op, &index);
	struct ir_dims *dims = r->out->dims;
	int64_t begin = 0;

	if (g->merged[index].id == 0)
		g->merged[index] = build_wide(r, s);
	for (size_t i = 0; s->items[i] != op; i++)
		begin += width_of(r, s->items[i]);
	int axis = ir_type_of(r->f, op->results[0])->rank - 1;
	if (g->merged[index].id != 0)
		rebuild_set(r, op->results[0],
		            irb_slice_of(r->b, g->merged[index], axis, ir_dim_const(dims, begin),
		                         ir_dim_const(dims, width_of(r, op))));
}

/* Each set is one application. */
static void number_sets(struct pass_context *p, struct merge_sets *sets)
{
	for (size_t i = 0; i < sets->n; i++) {
		struct merge_set *s = &sets->items[i];
		s->number = s->refused ? 0 : pass_take_fuel(p);
		s->refused = s->number == 0;
	}
}

enum tfmc_status pass_merge_linear(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct merge_sets *sets = merge_sets_collect(p, in);
	struct merger g = {.sets = sets};
	size_t errors = p->cx->n_errors;

	if (sets == NULL)
		return TFMC_NO_MEMORY;
	g.merged = ARENA_ARRAY(p->arena, struct ir_value, sets->n + 1);
	if (g.merged == NULL)
		return TFMC_NO_MEMORY;
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &g, .is_numbered = true};
	number_sets(p, sets);
	pass_count(p, "merged", 0);
	pass_count(p, "pairs", 0);
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INTERNAL : TFMC_OK;
}
