/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge-linear: linears that read the same input become one wide linear and slices of its result.
 *
 * Requires   fuse-attention (it looks through single uses that the slices would hide).
 * Ensures    the input is read once; weights are concatenated by their provenance expression, widths may
 * differ, a missing bias becomes zeros. The counter `merged` has the number of linears that went in. Example
 * %q = linear %x, @q.w[%l]  %k = linear %x, @k.w[%l]
 *        ->  %y = linear %x, @q_k.w[%l]  %q = slice %y {axis=2 begin=0 size=32}  %k = slice %y {axis=2
 * begin=32 size=32} Refuses    when a weight is also used elsewhere (it would be stored twice), and for a
 * result that goes into an elementwise op: that op is the epilogue of its own linear.
 */
#include "passes/merge_sets.h"

#include <string.h>

#include "passes/rebuild.h"

struct merger {
	struct merge_sets *sets;
	struct ir_value *merged; /* [sets->n] the wide linear once it is built */
};

static const struct merge_set *set_of(const struct rebuild *r, const struct ir_op *op, size_t *index)
{
	const struct merger *g = r->rewrite->user;
	return op->code == OP_linear ? merge_sets_find(g->sets, r->f, op, index) : NULL;
}

static const struct ir_op *weight_op(const struct rebuild *r, const struct ir_op *linear, size_t i)
{
	return linear->operands[i].id == 0 ? NULL : rebuild_def(r, linear->operands[i], OP_weight);
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	size_t index;
	const struct merge_set *s = set_of(r, op, &index);
	if (s == NULL)
		return false;
	const struct ir_op *w = weight_op(r, op, 1);
	rebuild_need(r, op->operands[0]);
	for (size_t i = 0; i < w->n_operands; i++)
		rebuild_need(r, w->operands[i]);
	return true;
}

/* --- the wide weight ----------------------------------------------------------------------------------- */

static const struct ir_weight *weight_at(const struct rebuild *r, const struct ir_op *linear, size_t i)
{
	const struct ir_op *op = weight_op(r, linear, i);
	return op == NULL ? NULL : ((const struct attrs_weight *)op->attrs)->weight;
}

/* Zeros for a missing bias: the weight's dims without K. */
static const struct ir_wexpr *no_bias(struct rebuild *r, const struct ir_wexpr *w)
{
	return wexpr_full(&r->out->arena, 0.0, w->rank - 1, w->dims);
}

static const struct ir_wexpr *concat_of(struct rebuild *r, const struct merge_set *s, size_t operand,
                                        int axis)
{
	const struct ir_wexpr **parts = ARENA_ARRAY(r->p->arena, const struct ir_wexpr *, s->n);
	if (parts == NULL)
		return NULL;
	for (size_t i = 0; i < s->n; i++) {
		const struct ir_weight *w = weight_at(r, s->items[i], operand);
		parts[i] = w != NULL ? w->init : no_bias(r, weight_at(r, s->items[i], 1)->init);
		if (parts[i] == NULL)
			return NULL;
	}
	return wexpr_concat(&r->out->arena, axis, s->n, parts);
}

/* "a.q.weight", "a.k.weight" -> "a.q_k.weight" */
static const char *joined_name(struct rebuild *r, const struct merge_set *s, size_t operand)
{
	const char *first = NULL;
	struct buf name;
	size_t head = 0, tail = 0;
	for (size_t i = 0; i < s->n; i++) {
		const struct ir_weight *w = weight_at(r, s->items[i], operand);
		if (w == NULL)
			continue;
		if (first == NULL) {
			first = w->name;
			head = tail = strlen(first);
		} else {
			merge_name_parts(first, w->name, &head, &tail);
		}
	}
	buf_init(&name);
	buf_bytes(&name, first, head);
	for (size_t i = 0, n = 0; i < s->n; i++) {
		const struct ir_weight *w = weight_at(r, s->items[i], operand);
		if (w == NULL)
			continue;
		buf_str(&name, n++ > 0 ? "_" : "");
		buf_bytes(&name, w->name + head, strlen(w->name) - head - tail);
	}
	buf_str(&name, first + strlen(first) - tail);
	const char *text = arena_strdup(r->p->arena, name.data);
	buf_destroy(&name);
	return text;
}

/* Biases of which some are missing are named after the weights. */
static const char *wide_name(struct rebuild *r, const struct merge_set *s, size_t operand)
{
	for (size_t i = 0; i < s->n; i++)
		if (weight_at(r, s->items[i], operand) == NULL)
			return arena_printf(r->p->arena, "%s.bias", joined_name(r, s, 1));
	return joined_name(r, s, operand);
}

/* A weight of that name or, when it means something else already, of the name and a number. */
static const struct ir_weight *add_unique(struct rebuild *r, struct ir_weight *w)
{
	const char *name = w->name;
	for (int i = 2; i < 1000; i++) {
		const struct ir_weight *clash = ir_find_weight(r->in, w->name);
		const struct ir_weight *added = clash == NULL ? ir_add_weight(r->out, w) : NULL;
		if (added != NULL)
			return added;
		w->name = arena_printf(r->p->arena, "%s.%d", name, i);
	}
	return NULL;
}

static const struct ir_weight *wide_weight(struct rebuild *r, const struct merge_set *s, size_t operand)
{
	const struct ir_weight *model = NULL;
	for (size_t i = 0; i < s->n && model == NULL; i++)
		model = weight_at(r, s->items[i], operand);
	if (model == NULL)
		return NULL;
	int axis = (int)weight_op(r, s->items[0], 1)->n_operands;
	const struct ir_wexpr *init = concat_of(r, s, operand, axis);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (init == NULL)
		return NULL;
	for (int i = 0; i < init->rank; i++)
		dims[i] = ir_dim_const(r->out->dims, init->dims[i]);
	struct ir_weight w = {.name = wide_name(r, s, operand),
	                      .type = ir_type_tensor(r->out->types, model->type->dtype, init->rank, dims),
	                      .encoding = ENC_ROW,
	                      .init = init,
	                      .loc = model->loc};
	return add_unique(r, &w);
}

/* --- rewriting ----------------------------------------------------------------------------------------- */

static struct ir_value weight_ref(struct rebuild *r, const struct ir_op *like, const struct ir_weight *w)
{
	struct ir_value at[IR_RANK_MAX];
	for (size_t i = 0; i < like->n_operands; i++)
		at[i] = rebuild_get(r, like->operands[i]);
	return w == NULL ? IR_NO_VALUE : irb_weight_ref(r->b, w, at, like->n_operands);
}

static struct ir_value build_wide(struct rebuild *r, const struct merge_set *s)
{
	const struct ir_op *like = weight_op(r, s->items[0], 1);
	const struct ir_weight *w = wide_weight(r, s, 1);
	if (w == NULL) {
		diag_error(r->p->cx, s->items[0]->loc.at, DIAG_INTERNAL,
		           "merge-linear: weights cannot be joined");
		return IR_NO_VALUE;
	}
	struct ir_value x = rebuild_get(r, s->items[0]->operands[0]);
	struct ir_value y =
	        irb_linear(r->b, x, weight_ref(r, like, w), weight_ref(r, like, wide_weight(r, s, 2)), NULL);
	pass_count(r->p, "merged", (int64_t)s->n);
	pass_remark(r->p, s->items[0]->loc, "%zu linears merged into @%s", s->n, w->name);
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
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &g};
	pass_count(p, "merged", 0);
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INTERNAL : TFMC_OK;
}
