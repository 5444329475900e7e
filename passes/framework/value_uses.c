/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses of values, counted first and then filled in, in the order of the text.
 */
#include "passes/framework/value_uses.h"

struct filler {
	struct value_uses *u;
	size_t *next; /* [n_values] */
};

static void fill(void *user, const struct ir_op *op)
{
	struct filler *x = user;
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id != 0)
			x->u->items[x->next[op->operands[i].id]++] = (struct value_use){op, i};
}

bool value_uses_of(struct arena *a, const struct ir_func *f, struct value_uses *out)
{
	uint32_t *n = ir_count_uses(a, f);
	struct filler x = {out, ARENA_ARRAY(a, size_t, f->n_values + 1)};
	size_t total = 0;

	*out = (struct value_uses){f, ARENA_ARRAY(a, size_t, f->n_values + 1), NULL};
	if (n == NULL || out->first == NULL || x.next == NULL)
		return false;
	for (size_t v = 0; v < f->n_values; v++) {
		out->first[v] = x.next[v] = total;
		total += v != 0 ? n[v] : 0;
	}
	out->first[f->n_values] = total;
	out->items = ARENA_ARRAY(a, struct value_use, total + 1);
	if (out->items == NULL)
		return false;
	ir_walk(f->body, fill, &x);
	return true;
}

bool value_uses_behind_views(const struct value_uses *u, struct ir_value v, value_use_visit *visit,
                             void *user)
{
	for (size_t i = u->first[v.id]; i < u->first[v.id + 1]; i++) {
		const struct value_use *use = &u->items[i];
		bool go_on = ir_op_has(use->op->code, TRAIT_VIEW)
		                     ? value_uses_behind_views(u, use->op->results[0], visit, user)
		                     : visit(user, v, use);
		if (!go_on)
			return false;
	}
	return true;
}
