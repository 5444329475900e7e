/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Concatenation of weights by concatenating their expressions (concat_weights.h).
 */
#include "passes/graph/concat_weights.h"

#include <string.h>

/* Weight ops a and b have the same indices, into stacks of equal height: one reference at these indices reads both.
 * The expression of b can still be nested in a concatenation. */
static bool same_stack(const struct ir_op *a, const struct ir_op *b)
{
	const struct ir_weight *v = ((const struct attrs_weight *)a->attrs)->weight,
	                       *w = ((const struct attrs_weight *)b->attrs)->weight;
	bool same = a->n_operands == b->n_operands && w->init != NULL && w->init->depth < WEXPR_DEPTH_MAX;
	for (size_t i = 0; same && i < a->n_operands; i++)
		same = ir_same_value(a->operands[i], b->operands[i]) && v->init->dims[i] == w->init->dims[i];
	return same;
}

/* K, element type and format must agree, the number of rows (N) may differ. The weights are not packed yet: encode
 * runs later. The bias of b is at the same indices as its weight; without one it gets zeros. */
bool can_concat_weights(const struct ir_func *f, const struct ir_op *a, const struct ir_op *b)
{
	enum { W = OPERAND(linear, w), BIAS = OPERAND(linear, b) };
	const struct ir_op *first = ir_def_as(f, a->operands[W], OP_weight),
	                   *next = ir_def_as(f, b->operands[W], OP_weight),
	                   *bias = ir_def_as(f, b->operands[BIAS], OP_weight);
	if (first == NULL || next == NULL)
		return false;
	const struct ir_weight *v = ir_weight_of(f, a->operands[W]), *w = ir_weight_of(f, b->operands[W]);
	return v->init != NULL && same_stack(first, next) && v->type->dtype == w->type->dtype &&
	       v->format == w->format && w->encoding == ENC_ROW &&
	       v->init->dims[v->init->rank - 1] == w->init->dims[w->init->rank - 1] &&
	       (b->operands[BIAS].id == 0 || (bias != NULL && same_stack(next, bias)));
}

/* Zeros for a missing bias: the dims of the weight without K. */
static const struct ir_wexpr *zero_bias(struct rebuild *r, const struct ir_wexpr *w)
{
	return wexpr_full(&r->out->arena, 0.0, w->rank - 1, w->dims);
}

/* Concatenates the expressions of the weights or biases. NULL: memory ran out, or they do not fit. */
static const struct ir_wexpr *concat_expressions(struct rebuild *r, const struct linear_list *s,
                                                 size_t operand, int axis)
{
	const struct ir_wexpr **parts = ARENA_ARRAY(r->p->arena, const struct ir_wexpr *, s->n);
	if (parts == NULL)
		return NULL;
	for (size_t i = 0; i < s->n; i++) {
		const struct ir_weight *w = ir_weight_of(r->f, s->items[i]->operands[operand]);
		parts[i] = w != NULL ? w->init
		                     : zero_bias(r, ir_weight_of(r->f, s->items[i]->operands[1])->init);
		if (parts[i] == NULL)
			return NULL;
	}
	return wexpr_concat(&r->out->arena, axis, s->n, parts);
}

/*
 * Shortens *head and *tail to the lengths of the parts before and after the middle in which a and b differ,
 * cut at dots: "a.q.w" and "a.k.w" give 2 and 2.
 */
static void common_name_parts(const char *a, const char *b, size_t *head, size_t *tail)
{
	size_t n = strlen(a), k = strlen(b), same = 0, end = 0;

	while (same < *head && same < k && a[same] == b[same])
		same++;
	while (same > 0 && a[same - 1] != '.')
		same--;
	while (end < *tail && end < n - same && end < k - same && a[n - 1 - end] == b[k - 1 - end])
		end++;
	while (end > 0 && a[n - end] != '.')
		end--;
	*head = same;
	*tail = end;
}

/* "a.q.weight", "a.k.weight" -> "a.q_k.weight"; at least one of the linears has the operand. The first loop
 * finds the head and tail that all names share, the second joins the parts between them. */
static const char *join_names(struct rebuild *r, const struct linear_list *s, size_t operand)
{
	const char *first = NULL;
	struct buf name;
	size_t head = 0, tail = 0;
	for (size_t i = 0; i < s->n; i++) {
		const struct ir_weight *w = ir_weight_of(r->f, s->items[i]->operands[operand]);
		if (w == NULL)
			continue;
		if (first == NULL) {
			first = w->name;
			head = tail = strlen(first);
		} else {
			common_name_parts(first, w->name, &head, &tail);
		}
	}
	buf_init(&name);
	buf_bytes(&name, first, head);
	for (size_t i = 0, n = 0; i < s->n; i++) {
		const struct ir_weight *w = ir_weight_of(r->f, s->items[i]->operands[operand]);
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

/* Name of the concatenation. If some biases are missing, the names of the others would not name all parts: the
 * joined names of the weights, with .bias. */
static const char *concat_name(struct rebuild *r, const struct linear_list *s, size_t operand)
{
	for (size_t i = 0; i < s->n; i++)
		if (ir_weight_of(r->f, s->items[i]->operands[operand]) == NULL)
			return arena_printf(r->p->arena, "%s.bias", join_names(r, s, 1));
	return join_names(r, s, operand);
}

/* Tries names up to NAME.999. An equal weight of that name in `out` is returned as it is (ir_add_weight). */
const struct ir_weight *add_weight_renamed(struct arena *a, const struct ir_module *in, struct ir_module *out,
                                           struct ir_weight *w)
{
	const char *name = w->name;
	for (int i = 2; i < 1000; i++) {
		/* A weight of `in` may still be copied to `out`; ir_add_weight rejects a name of `out`. */
		const struct ir_weight *clash = ir_find_weight(in, w->name);
		const struct ir_weight *added = clash == NULL ? ir_add_weight(out, w) : NULL;
		if (added != NULL)
			return added;
		w->name = arena_printf(a, "%s.%d", name, i);
	}
	return NULL;
}

/*
 * Adds the concatenated weight. NULL: no linear has the operand, memory ran out, or the pass concatenates what
 * does not fit.
 */
static const struct ir_weight *concat_weights(struct rebuild *r, const struct linear_list *s, size_t operand,
                                              int axis)
{
	const struct ir_weight *model = NULL; /* the first: its dtype, format and location are used */
	for (size_t i = 0; i < s->n && model == NULL; i++)
		model = ir_weight_of(r->f, s->items[i]->operands[operand]);
	if (model == NULL)
		return NULL;
	/* In the stored weight the axes of the indices (of layers) come first. */
	axis += (int)ir_def_as(r->f, s->items[0]->operands[1], OP_weight)->n_operands;
	const struct ir_wexpr *init = concat_expressions(r, s, operand, axis);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (init == NULL)
		return NULL;
	for (int i = 0; i < init->rank; i++)
		dims[i] = ir_dim_const(r->out->dims, init->dims[i]);
	struct ir_weight w = {.name = concat_name(r, s, operand),
	                      .type = ir_type_tensor(r->out->types, model->type->dtype, init->rank, dims),
	                      .encoding = ENC_ROW,
	                      .format = wexpr_fits_format(init, model->format) ? model->format : FORMAT_PLAIN,
	                      .init = init,
	                      .loc = model->loc};
	return add_weight_renamed(r->p->arena, r->in, r->out, &w);
}

/* The indices of the first linear serve for all, as can_concat_weights has checked; a failure here is a fault of the
 * pass. */
struct ir_value concat_weight_ref(struct rebuild *r, const struct linear_list *s, size_t operand, int axis)
{
	const struct ir_op *like = ir_def_as(r->f, s->items[0]->operands[1], OP_weight);
	struct ir_value at[IR_RANK_MAX];
	bool has = false;
	for (size_t i = 0; i < s->n; i++)
		has = has || s->items[i]->operands[operand].id != 0;
	if (!has)
		return IR_NO_VALUE;
	const struct ir_weight *w = concat_weights(r, s, operand, axis);
	for (size_t i = 0; i < like->n_operands; i++)
		at[i] = rebuild_get(r, like->operands[i]);
	if (w != NULL)
		return irb_weight_ref(r->b, w, at, like->n_operands);
	diag_error(r->p->cx, s->items[0]->loc.at, DIAG_INTERNAL, "weights of linears cannot be concatenated");
	return IR_NO_VALUE;
}
