/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of several linears as one weight, by concatenation of their
 * provenance, see join_weights.h.
 */
#include "passes/weights/join_weights.h"

#include <string.h>

#include "passes/weights/merge_sets.h"

/* Zeros for a missing bias: the weight's dims without K. */
static const struct ir_wexpr *no_bias(struct rebuild *r, const struct ir_wexpr *w)
{
	return wexpr_full(&r->out->arena, 0.0, w->rank - 1, w->dims);
}

static const struct ir_wexpr *concat_of(struct rebuild *r, const struct join *s, size_t operand, int axis)
{
	const struct ir_wexpr **parts = ARENA_ARRAY(r->p->arena, const struct ir_wexpr *, s->n);
	if (parts == NULL)
		return NULL;
	for (size_t i = 0; i < s->n; i++) {
		const struct ir_weight *w = ir_weight_of(r->f, s->items[i]->operands[operand]);
		parts[i] =
		        w != NULL ? w->init : no_bias(r, ir_weight_of(r->f, s->items[i]->operands[1])->init);
		if (parts[i] == NULL)
			return NULL;
	}
	return wexpr_concat(&r->out->arena, axis, s->n, parts);
}

/* "a.q.weight", "a.k.weight" -> "a.q_k.weight" */
static const char *joined_name(struct rebuild *r, const struct join *s, size_t operand)
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
			merge_name_parts(first, w->name, &head, &tail);
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

/* Biases of which some are missing are named after the weights. */
static const char *wide_name(struct rebuild *r, const struct join *s, size_t operand)
{
	for (size_t i = 0; i < s->n; i++)
		if (ir_weight_of(r->f, s->items[i]->operands[operand]) == NULL)
			return arena_printf(r->p->arena, "%s.bias", joined_name(r, s, 1));
	return joined_name(r, s, operand);
}

const struct ir_weight *join_add_weight(struct rebuild *r, struct ir_weight *w)
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

const struct ir_weight *join_weights(struct rebuild *r, const struct join *s, size_t operand, int axis)
{
	const struct ir_weight *model = NULL;
	for (size_t i = 0; i < s->n && model == NULL; i++)
		model = ir_weight_of(r->f, s->items[i]->operands[operand]);
	if (model == NULL)
		return NULL;
	axis += (int)ir_def_as(r->f, s->items[0]->operands[1], OP_weight)->n_operands;
	const struct ir_wexpr *init = concat_of(r, s, operand, axis);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (init == NULL)
		return NULL;
	for (int i = 0; i < init->rank; i++)
		dims[i] = ir_dim_const(r->out->dims, init->dims[i]);
	struct ir_weight w = {.name = wide_name(r, s, operand),
	                      .type = ir_type_tensor(r->out->types, model->type->dtype, init->rank, dims),
	                      .encoding = ENC_ROW,
	                      .format = wexpr_holds(init, model->format) ? model->format : FORMAT_PLAIN,
	                      .init = init,
	                      .loc = model->loc};
	return join_add_weight(r, &w);
}

struct ir_value join_reference(struct rebuild *r, const struct ir_op *like, const struct ir_weight *w)
{
	struct ir_value at[IR_RANK_MAX];
	for (size_t i = 0; i < like->n_operands; i++)
		at[i] = rebuild_get(r, like->operands[i]);
	return w == NULL ? IR_NO_VALUE : irb_weight_ref(r->b, w, at, like->n_operands);
}
