/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge-heads: attentions of one head each, side by side or summed after their own output linears, become
 * one attention of all heads.
 *
 * Requires   fuse-attention.
 * Ensures    one attention reads the queries, keys and values of all heads; where these came from linears of
 *            one input, that is one linear. The counter `merged` has the number of heads that went in.
 * Example    %o0 = attention %q0, ..  %o1 = attention %q1, ..  %y = concat %o0, %o1 {axis=2}
 *        ->  %o = attention %q, ..  %t = transpose %o {perm=[0,2,1,3]}  %y = reshape %t
 *            The sum of linears of heads (W_0 o_0 + W_1 o_1) is one linear of the heads side by side, also
 *            when a repeat adds them up.
 * Refuses    heads that differ in shape, scale, mask or lengths, that have a bias of scores, that are read
 *            elsewhere; output linears with a bias.
 * Pays       graphs that write their heads out get the kernels of those that do not; nothing elsewhere.
 */
#include "passes/weights/join_weights.h"
#include "passes/graph/unroll_heads.h"

#define HEADS_MAX  256
#define LEAVES_MAX 512

enum {
	Q = OPERAND(attention, q),
	K = OPERAND(attention, k),
	V = OPERAND(attention, v),
	BIAS = OPERAND(attention, bias),
	LEN = OPERAND(attention, len),
	PAST = OPERAND(attention, past)
};

struct heads {
	const struct ir_op *attention[HEADS_MAX];
	const struct ir_op *out[HEADS_MAX]; /* their linears in a sum */
	struct ir_value rest[LEAVES_MAX];   /* other terms of a sum */
	size_t n, n_rest;
	bool is_sum;
};

/* ---- finding ---- */

static bool here(const struct rebuild *r, const struct ir_op *root, struct ir_value v)
{
	return ir_value_info(r->f, v)->region == ir_value_info(r->f, root->results[0])->region;
}

/* [B,1,S,E] and [B,S,E] */
static bool is_one_head(const struct ir_type *wide, const struct ir_type *flat)
{
	return wide->rank == 4 && flat->rank == 3 && ir_dim_equals(wide->dims[1], 1) &&
	       wide->dims[0] == flat->dims[0] && wide->dims[2] == flat->dims[1] &&
	       wide->dims[3] == flat->dims[2];
}

/* v [B,S,E] is one head: an attention [B,1,S,E] that nothing else reads. */
static const struct ir_op *head_behind(const struct rebuild *r, const struct ir_op *root, struct ir_value v)
{
	const struct ir_op *flat = ir_def_as(r->f, v, OP_reshape);
	if (flat == NULL || !rebuild_once(r, v) || !here(r, root, v))
		return NULL;
	struct ir_value o = flat->operands[0];
	const struct ir_op *a = ir_def_as(r->f, o, OP_attention);
	if (a == NULL || !rebuild_once(r, o) || !here(r, root, o))
		return NULL;
	bool one = is_one_head(ir_type_of(r->f, o), ir_type_of(r->f, v));
	for (size_t i = BIAS; one && i < a->n_operands; i++)
		one = i == LEN || i == PAST || a->operands[i].id == 0;
	return one ? a : NULL;
}

static bool same_kind(const struct rebuild *r, const struct ir_op *a, const struct ir_op *b)
{
	const struct attrs_attention *x = a->attrs, *y = b->attrs;
	if (x->scale != y->scale || x->softcap != y->softcap || x->mask != y->mask ||
	    x->window != y->window || x->factors != y->factors)
		return false;
	for (size_t i = Q; i <= V; i++)
		if (ir_type_of(r->f, a->operands[i]) != ir_type_of(r->f, b->operands[i]))
			return false;
	return ir_same_value(a->operands[LEN], b->operands[LEN]) &&
	       ir_same_value(a->operands[PAST], b->operands[PAST]);
}

static bool add_head(const struct rebuild *r, struct heads *h, const struct ir_op *attention,
                     const struct ir_op *out)
{
	if (attention == NULL || h->n == HEADS_MAX || (h->n > 0 && !same_kind(r, h->attention[0], attention)))
		return false;
	h->attention[h->n] = attention;
	h->out[h->n++] = out;
	return true;
}

static bool find_concat(const struct rebuild *r, const struct ir_op *op, struct heads *h)
{
	if (((const struct attrs_concat *)op->attrs)->axis != ir_type_of(r->f, op->results[0])->rank - 1)
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!add_head(r, h, head_behind(r, op, op->operands[i]), NULL))
			return false;
	return h->n > 1;
}

/* The linears' weights can be joined and are read once. */
static bool can_join(const struct rebuild *r, const struct ir_op *a, const struct ir_op *b)
{
	return join_fits(r->f, a, b) && rebuild_once(r, b->operands[1]) &&
	       ir_type_of(r->f, a->operands[1]) == ir_type_of(r->f, b->operands[1]);
}

/* v is the output linear of a head: W o. */
static bool add_term(const struct rebuild *r, const struct ir_op *root, struct ir_value v, struct heads *h)
{
	const struct ir_op *out = ir_def_as(r->f, v, OP_linear);
	if (out == NULL || !rebuild_once(r, v) || !here(r, root, v) ||
	    out->operands[OPERAND(linear, b)].id != 0 || !can_join(r, h->n > 0 ? h->out[0] : out, out))
		return false;
	return add_head(r, h, head_behind(r, root, out->operands[0]), out);
}

/* The terms of a sum in order; inner sums that are read once are part of it. */
static bool find_sum(const struct rebuild *r, const struct ir_op *op, struct heads *h)
{
	struct ir_value open[LEAVES_MAX];
	size_t n = 0;
	h->is_sum = true;
	open[n++] = op->operands[1];
	open[n++] = op->operands[0];
	while (n > 0) {
		struct ir_value v = open[--n];
		const struct ir_op *inner = ir_def_as(r->f, v, OP_add);
		if (inner != NULL && rebuild_once(r, v) && here(r, op, v) && n + 2 <= LEAVES_MAX) {
			open[n++] = inner->operands[1];
			open[n++] = inner->operands[0];
		} else if (!add_term(r, op, v, h)) {
			if (h->n_rest == LEAVES_MAX)
				return false;
			h->rest[h->n_rest++] = v;
		}
	}
	return h->n > 1;
}

static bool find(const struct rebuild *r, const struct ir_op *op, struct heads *h)
{
	h->n = h->n_rest = 0;
	h->is_sum = false;
	if (op->code == OP_concat)
		return find_concat(r, op, h);
	return op->code == OP_add && find_sum(r, op, h);
}

/* ---- operands of the heads ---- */

/* The linears [B,S,E] after operand i of all heads, when they read one input and can be one linear. */
static bool linears_behind(const struct rebuild *r, const struct heads *h, size_t i,
                           const struct ir_op *linears[HEADS_MAX])
{
	for (size_t k = 0; k < h->n; k++) {
		struct ir_value v = h->attention[k]->operands[i];
		const struct ir_op *wide = ir_def_as(r->f, v, OP_reshape);
		linears[k] = wide != NULL && rebuild_once(r, v)
		                     ? ir_def_as(r->f, wide->operands[0], OP_linear)
		                     : NULL;
		if (linears[k] == NULL || !rebuild_once(r, wide->operands[0]) ||
		    !here(r, h->attention[k], wide->operands[0]) || !can_join(r, linears[0], linears[k]) ||
		    !ir_same_value(linears[k]->operands[0], linears[0]->operands[0]) ||
		    !is_one_head(ir_type_of(r->f, v), ir_type_of(r->f, wide->operands[0])))
			return false;
	}
	return true;
}

static void need_indices(struct rebuild *r, const struct ir_op *linear)
{
	const struct ir_op *w = ir_def_as(r->f, linear->operands[1], OP_weight);
	for (size_t i = 0; i < w->n_operands; i++)
		rebuild_need(r, w->operands[i]);
}

static void need_operand(struct rebuild *r, const struct heads *h, size_t i)
{
	const struct ir_op *linears[HEADS_MAX];
	if (linears_behind(r, h, i, linears)) {
		rebuild_need(r, linears[0]->operands[0]);
		need_indices(r, linears[0]);
		return;
	}
	for (size_t k = 0; k < h->n; k++)
		rebuild_need(r, h->attention[k]->operands[i]);
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct heads *h = r->rewrite->user;
	if (!find(r, op, h))
		return false;
	for (size_t i = Q; i <= V; i++)
		need_operand(r, h, i);
	rebuild_need(r, h->attention[0]->operands[LEN]);
	rebuild_need(r, h->attention[0]->operands[PAST]);
	if (h->is_sum)
		need_indices(r, h->out[0]);
	for (size_t i = 0; i < h->n_rest; i++)
		rebuild_need(r, h->rest[i]);
	return true;
}

/* ---- building ---- */

static const int64_t heads_inside[4] = {0, 2, 1, 3};

/* [B,S,H E] as [B,H,S,E] */
static struct ir_value split_heads(struct rebuild *r, const struct heads *h, struct ir_value v)
{
	const struct ir_type *t = irb_type(r->b, v);
	if (t == NULL)
		return v;
	const struct ir_dim *n = ir_dim_const(r->out->dims, (int64_t)h->n);
	const struct ir_dim *dims[4] = {t->dims[0], t->dims[1], n,
	                                ir_dim_divide(r->out->dims, t->dims[2], n)};
	return irb_transpose_by(r->b, irb_reshape_to(r->b, v, 4, dims), 4, heads_inside);
}

/* [B,H,S,E] as [B,S,H E] */
static struct ir_value side_by_side(struct rebuild *r, struct ir_value v)
{
	struct ir_value t = irb_transpose_by(r->b, v, 4, heads_inside);
	const struct ir_type *type = irb_type(r->b, t);
	if (type == NULL)
		return t;
	const struct ir_dim *dims[3] = {type->dims[0], type->dims[1],
	                                ir_dim_mul(r->out->dims, type->dims[2], type->dims[3])};
	return irb_reshape_to(r->b, t, 3, dims);
}

static struct ir_value operand_of_all(struct rebuild *r, const struct heads *h, size_t i)
{
	const struct ir_op *linears[HEADS_MAX];
	struct ir_value parts[HEADS_MAX];
	if (linears_behind(r, h, i, linears)) {
		const struct join join = {linears, h->n};
		struct ir_value w = join_reference(r, &join, 1, 0), b = join_reference(r, &join, 2, 0);
		irb_set_loc(r->b, linears[0]->loc);
		return split_heads(r, h,
		                   irb_linear(r->b, rebuild_get(r, linears[0]->operands[0]), w, b, NULL));
	}
	for (size_t k = 0; k < h->n; k++)
		parts[k] = rebuild_get(r, h->attention[k]->operands[i]);
	return irb_op1(r->b, OP_concat, parts, h->n, &(struct attrs_concat){.axis = 1});
}

static struct ir_value sum_of_all(struct rebuild *r, const struct heads *h, struct ir_value o)
{
	const struct join join = {h->out, h->n};
	struct ir_value y = irb_linear(r->b, o, join_reference(r, &join, 1, 1), IR_NO_VALUE, NULL);
	for (size_t i = 0; i < h->n_rest; i++)
		y = irb_add(r->b, y, rebuild_get(r, h->rest[i]), NULL);
	return y;
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct heads *h = r->rewrite->user;
	if (!find(r, op, h))
		return;
	const struct ir_op *first = h->attention[0];
	struct ir_value q = operand_of_all(r, h, Q), k = operand_of_all(r, h, K), v = operand_of_all(r, h, V);
	irb_set_loc(r->b, first->loc);
	struct ir_value o = irb_attention(r->b, q, k, v, IR_NO_VALUE, rebuild_get(r, first->operands[LEN]),
	                                  rebuild_get(r, first->operands[PAST]), IR_NO_VALUE, IR_NO_VALUE,
	                                  IR_NO_VALUE, first->attrs);
	irb_set_loc(r->b, op->loc);
	o = side_by_side(r, o);
	rebuild_set(r, op->results[0], h->is_sum ? sum_of_all(r, h, o) : o);
	pass_count(r->p, "merged", (int64_t)h->n);
	pass_remark(r->p, first->loc, "%zu heads merged into one attention", h->n);
}

/* Loops over heads first, so that the second walk sees their heads as a sum. */
enum tfmc_status pass_merge_heads(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct heads *h = ARENA_NEW(p->arena, struct heads);
	struct ir_module *flat = ir_module_create_like(in);
	const struct rewrite unroll = {.match = unroll_heads_match, .emit = unroll_heads_emit};
	const struct rewrite merge = {.match = match, .emit = emit, .user = h};
	size_t errors = p->cx->n_errors;
	enum tfmc_status st = h != NULL && flat != NULL ? TFMC_OK : TFMC_NO_MEMORY;
	pass_count(p, "merged", 0);
	if (st == TFMC_OK)
		st = rebuild_module(p, in, flat, &unroll, NULL);
	if (st == TFMC_OK)
		st = rebuild_module(p, flat, out, &merge, NULL);
	ir_module_destroy(flat);
	return st == TFMC_OK && p->cx->n_errors > errors ? TFMC_INTERNAL : st;
}
