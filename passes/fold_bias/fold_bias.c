/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold-bias: the bias of values goes into the bias of the output projection, the bias of keys disappears.
 *
 * Requires   fuse-attention; before merge-linear, whose slices are longer chains of views.
 * Ensures    rows of a softmax sum to 1: P (V + 1 b^T) W^T + c = P V W^T + (c + W b'), b' being b repeated
 * for the query heads of each key head. A key bias adds q b to every score of a row, which softmax takes away
 * again. Columns of a fused projection become 0. Counters: `key biases`, `value biases` (linears), `outputs`
 * (projections), `constants`, `bytes`. Exactness: reassociate.
 * Example    %v = linear %x, @wv, @bv   %a = attention %q, %k, heads(%v)   %y = linear merged(%a), @wo, @bo
 *        ->  %v = linear %x, @wv        ...                               with @bo = add(BO, matvec(WO, BV))
 * Refuses    keys behind anything but views (rope, norms) or with softcap; keys and values beside sinks;
 * values when a row may see no key and that can be seen: lengths may be 0, so the rows must be masked by the
 * same lengths before a result, a state or another attention reads them; scores with an added tensor; an
 * output projection without bias (nothing would be saved); a state that other biases are stored in, or of
 * which unwritten rows are visible; and a bias that is used elsewhere. What shares a weight or a state is
 * folded in all functions or in none.
 */
#include "passes/fold_bias/fold_bias.h"

#include "passes/folds/fold_affine.h"

static const struct bias_linear *mark_of(const struct rebuild *r, const struct ir_op *op)
{
	const struct bias_sites *s = r->rewrite->user;
	return op->code == OP_linear ? uses_mark(s->uses, r->f, op) : NULL;
}

static bool folds(const struct bias_source *s, enum bias_kind kind)
{
	return s->has[kind] && s->node[kind] != NULL && bias_node_accepted(s->node[kind]);
}

static bool loses(const struct bias_linear *m)
{
	return m != NULL && (folds(&m->source, BIAS_K) || folds(&m->source, BIAS_V));
}

static bool gains(const struct bias_linear *m)
{
	return m != NULL && m->out != NULL && m->out->values != NULL &&
	       bias_node_accepted(&m->out->node[BIAS_V]);
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	const struct bias_linear *m = mark_of(r, op);
	if (!loses(m) && !gains(m))
		return false;
	r->number = gains(m) ? bias_node_number(&m->out->node[BIAS_V]) : 1;
	const struct ir_op *c = uses_weight_op(r->f, op->operands[2]);
	rebuild_need(r, op->operands[0]);
	rebuild_need(r, op->operands[1]);
	for (size_t i = 0; i < c->n_operands; i++)
		rebuild_need(r, c->operands[i]);
	return true;
}

/* --- expressions ---------------------------------------------------------------------------------------- */

/* e [.., N] as [.., heads, stride] when the columns are not contiguous. */
static const struct ir_wexpr *by_heads(struct arena *a, const struct ir_wexpr *e,
                                       const struct bias_columns *at)
{
	int64_t dims[IR_RANK_MAX];
	if (at->heads == 1 || e->rank >= IR_RANK_MAX)
		return e;
	for (int i = 0; i < e->rank - 1; i++)
		dims[i] = e->dims[i];
	dims[e->rank - 1] = at->heads;
	dims[e->rank] = at->stride;
	return wexpr_reshape(a, e->rank + 1, dims, e);
}

/* e with zeros in these columns */
static const struct ir_wexpr *without(struct arena *a, const struct ir_wexpr *e,
                                      const struct bias_columns *at)
{
	const struct ir_wexpr *parts[3], *h = by_heads(a, e, at);
	size_t n = 0;
	int64_t dims[IR_RANK_MAX];
	if (h == NULL)
		return NULL;
	int axis = h->rank - 1;
	for (int i = 0; i < axis; i++)
		dims[i] = h->dims[i];
	dims[axis] = at->width;
	if (at->begin > 0)
		parts[n++] = wexpr_slice(a, axis, 0, at->begin, h);
	parts[n++] = wexpr_full(a, 0.0, h->rank, dims);
	if (at->begin + at->width < at->stride)
		parts[n++] = wexpr_slice(a, axis, at->begin + at->width, at->stride, h);
	h = n == 1 ? parts[0] : wexpr_concat(a, axis, n, parts);
	return at->heads == 1 ? h : wexpr_reshape(a, e->rank, e->dims, h);
}

/* These columns of e, those of each key head repeated for its query heads: [.., H E]. */
static const struct ir_wexpr *for_queries(struct arena *a, const struct ir_wexpr *e,
                                          const struct bias_columns *at, int64_t key_heads, int64_t times)
{
	int64_t dims[IR_RANK_MAX];
	int axis = e->rank - 1;
	const struct ir_wexpr *h = by_heads(a, e, at);
	if (h != NULL && (at->begin > 0 || at->width < at->stride))
		h = wexpr_slice(a, h->rank - 1, at->begin, at->begin + at->width, h);
	for (int i = 0; i < axis; i++)
		dims[i] = e->dims[i];
	dims[axis] = key_heads;
	dims[axis + 1] = at->heads * at->width / key_heads;
	if (times > 1)
		h = wexpr_repeat(a, axis, times, wexpr_reshape(a, e->rank + 1, dims, h));
	dims[axis] = at->heads * at->width * times;
	return h != NULL && h->rank == e->rank && times == 1 ? h : wexpr_reshape(a, e->rank, dims, h);
}

/* --- rewriting -------------------------------------------------------------------------------------------
 */

static struct ir_value reference(struct rebuild *r, const struct ir_op *like, const struct ir_weight *w)
{
	struct ir_value at[IR_RANK_MAX];
	for (size_t i = 0; i < like->n_operands; i++)
		at[i] = rebuild_get(r, like->operands[i]);
	return w == NULL ? IR_NO_VALUE : irb_weight_ref(r->b, w, at, like->n_operands);
}

/* Keys and values beside each other are one block of columns. */
static bool adjoin(const struct bias_source *s)
{
	const struct bias_columns *k = &s->at[BIAS_K], *v = &s->at[BIAS_V];
	return folds(s, BIAS_K) && folds(s, BIAS_V) && k->heads == 1 && v->heads == 1 &&
	       k->begin + k->width == v->begin;
}

static const struct ir_wexpr *left_over(struct arena *a, const struct bias_source *s)
{
	const struct ir_wexpr *e = s->bias->init;
	struct bias_columns both = s->at[BIAS_K];
	if (adjoin(s)) {
		both.width += s->at[BIAS_V].width;
		return without(a, e, &both);
	}
	for (int kind = 0; kind < BIAS_KINDS; kind++)
		if (folds(s, (enum bias_kind)kind) && e != NULL)
			e = without(a, e, &s->at[kind]);
	return e;
}

/* The bias without the columns of keys and values that fold; no value when nothing is left. */
static struct ir_value reduced(struct rebuild *r, const struct bias_source *s, const struct ir_op *op)
{
	static const char *const counters[BIAS_KINDS] = {"key biases", "value biases"};
	int64_t left = s->bias->init->dims[s->bias->init->rank - 1];
	for (int kind = 0; kind < BIAS_KINDS; kind++) {
		if (!folds(s, (enum bias_kind)kind))
			continue;
		left -= s->at[kind].heads * s->at[kind].width;
		pass_count(r->p, counters[kind], 1);
		pass_applied(r->p, bias_node_number(s->node[kind]), NULL, op->loc);
	}
	if (left == 0)
		return IR_NO_VALUE;
	return reference(r, uses_weight_op(r->f, op->operands[2]),
	                 uses_add_weight(r, s->bias, s->bias->name, left_over(&r->out->arena, s), true));
}

/* c + W b' */
static struct ir_value enlarged(struct rebuild *r, const struct bias_site *s, const struct ir_op *op)
{
	struct arena *a = &r->out->arena;
	const struct ir_weight *w = uses_weight(r->f, op->operands[1]),
	                       *c = uses_weight(r->f, op->operands[2]);
	const struct ir_type *q = ir_type_of(s->f, s->attention->operands[0]);
	const struct ir_type *k = ir_type_of(s->f, s->attention->operands[1]);
	int64_t heads = 1, key_heads = 1;
	ir_dim_is_const(q->dims[1], &heads);
	ir_dim_is_const(k->dims[1], &key_heads);
	const struct ir_wexpr *b = for_queries(a, s->values->init, &s->at, key_heads, heads / key_heads);
	const struct ir_wexpr *e = wexpr_binary(a, WX_ADD, c->init, wexpr_columns(a, WX_MATVEC, w->init, b));
	pass_count(r->p, "outputs", 1);
	pass_remark(r->p, op->loc, "folded: the bias of values @%s into @%s", s->values->name, c->name);
	bool only = bias_changes_everywhere(r->rewrite->user, c);
	const char *name = only ? c->name : arena_printf(r->p->arena, "%s.folded", c->name);
	return reference(r, uses_weight_op(r->f, op->operands[2]), uses_add_weight(r, c, name, e, only));
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	const struct bias_linear *m = mark_of(r, op);
	struct ir_value bias = gains(m) ? enlarged(r, m->out, op) : reduced(r, &m->source, op);
	if (folds(&m->source, BIAS_K))
		pass_remark(r->p, op->loc, "dropped: the bias of keys in @%s", m->source.bias->name);
	rebuild_set(r, op->results[0],
	            irb_linear(r->b, rebuild_get(r, op->operands[0]), rebuild_get(r, op->operands[1]), bias,
	                       NULL));
}

enum tfmc_status pass_fold_bias(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	const struct rewrite rewrite = {
	        .match = match, .emit = emit, .user = bias_sites_collect(p, in), .is_numbered = true};

	if (rewrite.user == NULL)
		return TFMC_NO_MEMORY;
	pass_count(p, "key biases", 0);
	pass_count(p, "value biases", 0);
	return fold_rebuild(p, in, out, &rewrite);
}
