/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attentions of fold-bias: which linears project their heads, and whether a
 * row without a visible key could be seen, whose values are 0 with and without
 * the bias.
 */
#include "ir/core/view.h"
#include "passes/fold_bias/fold_bias_internal.h"

/* --- attentions ----------------------------------------------------------------------------------------- */

/* The output projection: an f32 weight with a bias of the same layer. */
static bool add_out(struct bias_finder *d, struct bias_site *s, const struct ir_op *op)
{
	const struct ir_func *f = d->uses->f;
	const struct ir_op *w = uses_weight_op(f, op->operands[1]), *b = uses_weight_op(f, op->operands[2]);
	struct bias_linear *mark = bias_linear_mark(d, op);
	if (w == NULL || !uses_foldable(uses_weight(f, op->operands[1])) || mark == NULL ||
	    s->n_outs >= BIAS_OUTS_MAX)
		bias_refuse(&s->node[BIAS_V], "the matrix of the output projection is no f32 weight");
	else if (b == NULL || !uses_foldable(uses_weight(f, op->operands[2])) || !uses_same_indices(f, w, b))
		bias_refuse(&s->node[BIAS_V], "the output projection has no bias that it could join");
	else if (mark->source.has[BIAS_K] || mark->source.has[BIAS_V])
		bias_refuse(&s->node[BIAS_V], "the output projection gives keys or values itself");
	else {
		s->outs[s->n_outs++] = op;
		mark->out = s;
		return true;
	}
	return false;
}

/* v is the attention's result with heads merged into its last axis. */
static void follow_out(struct bias_finder *d, struct bias_site *s, struct ir_value v, int depth)
{
	size_t n;
	const struct value_use *u = uses_of(d->uses, v, &n);
	for (size_t i = 0; i < n && bias_node_accepted(&s->node[BIAS_V]); i++) {
		const struct ir_op *op = u[i].op;
		if (op->code == OP_linear && u[i].operand == 0)
			add_out(d, s, op);
		else if (u[i].operand == 0 && depth < BIAS_VIEWS_MAX && bias_keeps_last_axis(d, op))
			follow_out(d, s, op->results[0], depth + 1);
		else
			bias_refuse(&s->node[BIAS_V], "something else than a linear reads the attention");
	}
}

static bool swaps_heads(const struct ir_op *op)
{
	const struct ir_int_list *perm = &((const struct attrs_transpose *)op->attrs)->perm;
	return perm->n == 4 && perm->items[0] == 0 && perm->items[1] == 2 && perm->items[2] == 1;
}

/* [B,H,S,E] -> [B,S,H,E] -> [..,H E], then linears. */
static void find_outs(struct bias_finder *d, struct bias_site *s)
{
	const struct ir_type *t = ir_type_of(d->uses->f, s->attention->results[0]);
	struct ir_value v = s->attention->results[0];
	int64_t heads = 0, width = 0;
	size_t n;
	const struct value_use *u = uses_of(d->uses, v, &n);
	ir_dim_is_const(t->dims[1], &heads);
	ir_dim_is_const(t->dims[3], &width);
	if (n == 1 && u->op->code == OP_transpose && swaps_heads(u->op)) {
		v = u->op->results[0];
		u = uses_of(d->uses, v, &n);
	} else if (heads != 1) {
		bias_refuse(&s->node[BIAS_V], "the heads do not go into one linear");
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const struct ir_type *y =
		        u[i].op->code == OP_reshape ? ir_type_of(d->uses->f, u[i].op->results[0]) : NULL;
		if (y == NULL || y->rank < 2 || !ir_dim_equals(y->dims[y->rank - 1], heads * width))
			bias_refuse(&s->node[BIAS_V], "the heads do not go into one linear");
		else
			follow_out(d, s, u[i].op->results[0], 0);
	}
}

/* The op whose result the view chain of v begins with. */
static const struct ir_op *origin(const struct bias_finder *d, struct ir_value v)
{
	return ir_def(d->uses->f, ir_view_base(d->uses->f, v));
}

/* The bias belongs to the layer of the output projection. */
static bool same_layer(const struct bias_finder *d, const struct bias_site *s)
{
	const struct ir_op *from = origin(d, s->attention->operands[2]);
	for (size_t i = 0; i < s->n_outs; i++) {
		const struct ir_op *w = uses_weight_op(d->uses->f, s->outs[i]->operands[1]);
		const struct ir_op *c = from != NULL && from->code == OP_linear
		                                ? uses_weight_op(d->uses->f, from->operands[2])
		                                : NULL;
		size_t n = 0;
		const struct ir_value *at = c == NULL && from != NULL ? bias_state_indices(from, &n) : NULL;
		bool same = c != NULL ? bias_same_values(d, c->operands, c->n_operands, w->operands,
		                                         w->n_operands)
		                      : at != NULL && bias_same_values(d, at, n, w->operands, w->n_operands);
		if (!same)
			return false;
	}
	return true;
}

static void check_values(struct bias_finder *d, struct bias_site *s)
{
	const struct ir_op *op = s->attention;
	const struct ir_op *from = origin(d, op->operands[2]);
	struct bias_node *node = &s->node[BIAS_V];
	if (from != NULL && (from->code == OP_state_append || from->code == OP_state_read)) {
		struct bias_state *state = bias_info_of(d, from->operands[0]);
		s->values = state->bias;
		s->at = state->at;
	}
	if (s->values == NULL)
		return;
	if (op->operands[3].id != 0)
		bias_refuse(node, "the tensor that is added to the scores may hide all keys");
	else if (!bias_not_negative(d->uses->f, op->operands[5]))
		bias_refuse(node, "the position of the queries may be negative");
	else if (ir_dim_lo(d->m->dims, ir_type_of(d->uses->f, op->operands[1])->dims[2]) < 1)
		bias_refuse(node, "there may be no keys");
	else
		find_outs(d, s);
	if (bias_node_accepted(node) && !same_layer(d, s))
		bias_refuse(node, "the output projection is that of another layer");
	if (!bias_node_accepted(node) || op->operands[4].id == 0)
		return;
	const char *seen = bias_dead_rows(d->p->arena, d->sites->uses, d->uses->f, op);
	if (seen != NULL)
		bias_refuse(node, arena_printf(d->p->arena,
		                               "a sequence of length 0 has no visible key, and %s", seen));
}

void bias_see_attention(void *user, const struct ir_op *op)
{
	struct bias_finder *d = user;
	if (op->code != OP_attention)
		return;
	struct bias_site *s = bias_site_mark(d, op);
	if (s == NULL)
		return;
	if (((const struct attrs_attention *)op->attrs)->softcap != 0)
		bias_refuse(&s->node[BIAS_K], "softcap is not linear in the scores");
	if (((const struct attrs_attention *)op->attrs)->window > 0)
		bias_refuse(&s->node[BIAS_V], "a window may leave a row without visible keys");
	if (op->operands[6].id != 0) {
		bias_refuse(&s->node[BIAS_K], "a sink does not move with the scores");
		bias_refuse(&s->node[BIAS_V], "with a sink the weights do not sum to 1");
	}
	check_values(d, s);
}
