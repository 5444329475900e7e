/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge-heads: attentions of one head each, concatenated, or summed after an output linear each, become one
 * attention of all heads.
 *
 * Requires   fuse-attention.
 * Ensures    one attention reads the queries, keys and values of all heads; where those are linears of one input,
 *            they are one linear. The counter `merged` has the number of merged heads.
 * Example    %o0 = attention %q0, ..  %o1 = attention %q1, ..  %y = concat %o0, %o1 {axis=2}
 *        ->  %o = attention %q, ..  %t = transpose %o {perm=[0,2,1,3]}  %y = reshape %t
 *            A sum of output linears (W_0 o_0 + W_1 o_1) becomes one linear of the concatenated heads, also if a
 *            repeat accumulates it: such a repeat is unrolled first.
 * Skips      heads that differ in shape, scale, mask or lengths, that have a bias of scores or other users; output
 *            linears with a bias.
 * Benefit    graphs that write their heads one by one get the kernels of those that do not; nothing elsewhere.
 */
#include "passes/graph/concat_weights.h"

/* ---- loops over heads ---- */

/*
 * repeat %i = 0 to H carry (%y) { .. %o = attention of one head ..  yield %y + W[%i] %o } is unrolled, and a
 * weight at [%i] becomes a weight of its own with the expression index(0, i, E). Only if the body is exactly one
 * head and the loop index only selects weights: then the heads are merged below, and no code grows.
 */

#define UNROLL_HEADS_MAX 256
#define INDEX_ARG        0
#define CARRY_ARG        1

/* Position of the loop index among the indices of a weight op, or -1. */
static int index_position(const struct ir_op *weight, struct ir_value index)
{
	for (size_t i = 0; i < weight->n_operands; i++)
		if (ir_same_value(weight->operands[i], index))
			return (int)i;
	return -1;
}

/* The body has only pure ops, and every use of its index selects a weight, which has an expression with room
 * for two more levels (index, then concat). *n_attention: number of attentions in it. */
static bool is_unrollable(const struct rebuild *r, const struct ir_region *body, size_t *n_attention)
{
	uint32_t n_weights = 0;
	*n_attention = 0;
	for (size_t i = 0; i + 1 < body->n_ops; i++) {
		const struct ir_op *op = body->ops[i];
		if (!ir_op_has(op->code, TRAIT_PURE))
			return false;
		*n_attention += op->code == OP_attention;
		if (op->code != OP_weight || index_position(op, body->args[INDEX_ARG]) < 0)
			continue;
		const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
		if (w->init == NULL || w->encoding != ENC_ROW || w->init->depth + 2 > WEXPR_DEPTH_MAX)
			return false;
		n_weights++;
	}
	return r->uses[body->args[INDEX_ARG].id] == n_weights;
}

/* v is the output linear of one head [B,1,S,E], with a different weight in each iteration and no other user. It
 * repeats the conditions under which find_head and add_term accept the unrolled heads: unrolling without merging
 * would only make code larger. */
static bool is_head_term(const struct rebuild *r, const struct ir_region *body, struct ir_value v)
{
	const struct ir_op *out = ir_def_as(r->f, v, OP_linear);
	if (out == NULL || out->operands[OPERAND(linear, b)].id != 0 || !rebuild_has_one_use(r, v))
		return false;
	const struct ir_op *w = ir_def_as(r->f, out->operands[1], OP_weight);
	const struct ir_op *flat = ir_def_as(r->f, out->operands[0], OP_reshape);
	if (w == NULL || flat == NULL || index_position(w, body->args[INDEX_ARG]) < 0 ||
	    !rebuild_has_one_use(r, out->operands[1]) || !rebuild_has_one_use(r, out->operands[0]))
		return false;
	const struct ir_op *a = ir_def_as(r->f, flat->operands[0], OP_attention);
	return a != NULL && rebuild_has_one_use(r, flat->operands[0]) &&
	       a->operands[OPERAND(attention, bias)].id == 0 &&
	       a->operands[OPERAND(attention, sinks)].id == 0 &&
	       a->operands[OPERAND(attention, k_scale)].id == 0 &&
	       a->operands[OPERAND(attention, v_scale)].id == 0 &&
	       ir_type_of(r->f, flat->results[0])->rank == 3 &&
	       ir_dim_equals(ir_type_of(r->f, a->results[0])->dims[1], 1);
}

/* The yielded value is the carry plus the term of one head. */
static bool adds_a_head(const struct rebuild *r, const struct ir_region *body)
{
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	const struct ir_op *sum = ir_def_as(r->f, yield->operands[0], OP_add);
	struct ir_value carry = body->args[CARRY_ARG];
	if (sum == NULL || r->uses[carry.id] != 1)
		return false;
	size_t at = ir_same_value(sum->operands[0], carry) ? 0 : 1;
	return ir_same_value(sum->operands[at], carry) && is_head_term(r, body, sum->operands[1 - at]);
}

/* Matches a repeat over heads with one carry, the sum; not more heads than can be merged. Marks what its body reads
 * from outside. */
static bool unroll_heads_match(struct rebuild *r, const struct ir_op *op)
{
	size_t n_attention;
	if (op->code != OP_repeat || op->n_operands != 1 ||
	    ((const struct attrs_repeat *)op->attrs)->count > UNROLL_HEADS_MAX)
		return false;
	const struct ir_region *body = op->region;
	if (!is_unrollable(r, body, &n_attention) || n_attention != 1 || !adds_a_head(r, body))
		return false;
	rebuild_need(r, op->operands[0]);
	for (size_t i = 0; i + 1 < body->n_ops; i++)
		for (size_t k = 0; k < body->ops[i]->n_operands; k++)
			if (body->ops[i]->operands[k].id != 0 &&
			    ir_value_info(r->f, body->ops[i]->operands[k])->region != body)
				rebuild_need(r, body->ops[i]->operands[k]);
	return true;
}

/* Adds element n of the axis that the loop index selects as a weight, and maps the op to a reference to it. */
static void emit_weight(struct rebuild *r, const struct ir_op *op, int axis, int64_t n)
{
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	struct ir_weight one = *w;
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_value index[IR_RANK_MAX];
	size_t n_index = 0;
	int rank = 0;
	for (int i = 0; i < w->type->rank; i++)
		if (i != axis)
			dims[rank++] = ir_import_dim(r->out, w->type->dims[i]);
	for (size_t i = 0; i < op->n_operands; i++)
		if ((int)i != axis)
			index[n_index++] = rebuild_get(r, op->operands[i]);
	one.name = arena_printf(r->p->arena, "%s.%lld", w->name, (long long)n);
	one.type = ir_type_tensor(r->out->types, w->type->dtype, rank, dims);
	one.init = wexpr_index(&r->out->arena, axis, n, w->init);
	const struct ir_weight *added = one.type != NULL && one.init != NULL
	                                        ? add_weight_renamed(r->p->arena, r->in, r->out, &one)
	                                        : NULL;
	if (added != NULL)
		r->map[op->results[0].id] = irb_weight_ref(r->b, added, index, n_index);
}

/* Emits the body once for each iteration, with constant weights in place of indexed ones. */
static void unroll_heads_emit(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	struct ir_value carry = rebuild_get(r, op->operands[0]);
	for (int64_t n = 0; n < count && !irb_failed(r->b); n++) {
		r->map[body->args[CARRY_ARG].id] = carry;
		for (size_t i = 0; i + 1 < body->n_ops; i++) {
			const struct ir_op *inner = body->ops[i];
			int axis =
			        inner->code == OP_weight ? index_position(inner, body->args[INDEX_ARG]) : -1;
			irb_set_loc(r->b, inner->loc);
			if (axis >= 0)
				emit_weight(r, inner, axis, n);
			else
				irb_clone(r->b, r->f, inner, r->map);
		}
		carry = rebuild_get(r, yield->operands[0]);
	}
	rebuild_set(r, op->results[0], carry);
	pass_count(r->p, "loops unrolled", 1);
	pass_remark(r->p, op->loc, "unrolled a loop over %lld heads", (long long)count);
}

/* ---- merging heads ---- */

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
	const struct ir_op *out[HEADS_MAX];      /* output linears of a sum, in the order of the heads */
	struct ir_value other_terms[LEAVES_MAX]; /* terms of the sum that are not heads */
	size_t n, n_other_terms;
	bool is_sum;
};

/* ---- matching ---- */

static bool in_region_of(const struct rebuild *r, const struct ir_op *root, struct ir_value v)
{
	return ir_value_info(r->f, v)->region == ir_value_info(r->f, root->results[0])->region;
}

/* Types [B,1,S,E] and [B,S,E] with equal dims. */
static bool is_one_head(const struct ir_type *rank4, const struct ir_type *flat)
{
	return rank4->rank == 4 && flat->rank == 3 && ir_dim_equals(rank4->dims[1], 1) &&
	       rank4->dims[0] == flat->dims[0] && rank4->dims[2] == flat->dims[1] &&
	       rank4->dims[3] == flat->dims[2];
}

/* The attention [B,1,S,E] that v [B,S,E] is a reshape of, without other users; NULL if v is not such a head. */
static const struct ir_op *find_head(const struct rebuild *r, const struct ir_op *root, struct ir_value v)
{
	const struct ir_op *flat = ir_def_as(r->f, v, OP_reshape);
	if (flat == NULL || !rebuild_has_one_use(r, v) || !in_region_of(r, root, v))
		return NULL;
	struct ir_value o = flat->operands[0];
	const struct ir_op *a = ir_def_as(r->f, o, OP_attention);
	if (a == NULL || !rebuild_has_one_use(r, o) || !in_region_of(r, root, o))
		return NULL;
	bool one = is_one_head(ir_type_of(r->f, o), ir_type_of(r->f, v));
	/* Bias, sinks and scales belong to single heads; lengths are compared by same_attention(). */
	for (size_t i = BIAS; one && i < a->n_operands; i++)
		one = i == LEN || i == PAST || a->operands[i].id == 0;
	return one ? a : NULL;
}

/* Attentions a and b have equal attributes, operand types and lengths, so they can be heads of one attention. */
static bool same_attention(const struct rebuild *r, const struct ir_op *a, const struct ir_op *b)
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

/* Adds an attention, with its output linear in a sum (else NULL), to the heads. False: it is NULL, differs from
 * the first head, or there are too many. */
static bool add_head(const struct rebuild *r, struct heads *h, const struct ir_op *attention,
                     const struct ir_op *out)
{
	if (attention == NULL || h->n == HEADS_MAX ||
	    (h->n > 0 && !same_attention(r, h->attention[0], attention)))
		return false;
	h->attention[h->n] = attention;
	h->out[h->n++] = out;
	return true;
}

/* All operands of a concat along the last axis are heads. */
static bool find_concat(const struct rebuild *r, const struct ir_op *op, struct heads *h)
{
	if (((const struct attrs_concat *)op->attrs)->axis != ir_type_of(r->f, op->results[0])->rank - 1)
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!add_head(r, h, find_head(r, op, op->operands[i]), NULL))
			return false;
	return h->n > 1;
}

/* The weights of linears a and b can be concatenated and have no other user. */
static bool can_concat(const struct rebuild *r, const struct ir_op *a, const struct ir_op *b)
{
	return can_concat_weights(r->f, a, b) && rebuild_has_one_use(r, b->operands[1]) &&
	       ir_type_of(r->f, a->operands[1]) == ir_type_of(r->f, b->operands[1]);
}

/* Adds v to the heads if it is an output linear W o of a head. */
static bool add_term(const struct rebuild *r, const struct ir_op *root, struct ir_value v, struct heads *h)
{
	const struct ir_op *out = ir_def_as(r->f, v, OP_linear);
	if (out == NULL || !rebuild_has_one_use(r, v) || !in_region_of(r, root, v) ||
	    out->operands[OPERAND(linear, b)].id != 0 || !can_concat(r, h->n > 0 ? h->out[0] : out, out))
		return false;
	return add_head(r, h, find_head(r, root, out->operands[0]), out);
}

/* Flattens a tree of additions with single uses into heads and other terms, both in the order of the text (the
 * right operand is pushed first). True if at least two terms are heads. */
static bool find_sum(const struct rebuild *r, const struct ir_op *op, struct heads *h)
{
	struct ir_value stack[LEAVES_MAX];
	size_t n = 0;
	h->is_sum = true;
	stack[n++] = op->operands[1];
	stack[n++] = op->operands[0];
	while (n > 0) {
		struct ir_value v = stack[--n];
		const struct ir_op *inner = ir_def_as(r->f, v, OP_add);
		if (inner != NULL && rebuild_has_one_use(r, v) && in_region_of(r, op, v) &&
		    n + 2 <= LEAVES_MAX) {
			stack[n++] = inner->operands[1];
			stack[n++] = inner->operands[0];
		} else if (!add_term(r, op, v, h)) {
			if (h->n_other_terms == LEAVES_MAX)
				return false;
			h->other_terms[h->n_other_terms++] = v;
		}
	}
	return h->n > 1;
}

/* Fills h with the heads that op combines, a concat or a sum. False: fewer than two. */
static bool match_heads(const struct rebuild *r, const struct ir_op *op, struct heads *h)
{
	h->n = h->n_other_terms = 0;
	h->is_sum = false;
	if (op->code == OP_concat)
		return find_concat(r, op, h);
	return op->code == OP_add && find_sum(r, op, h);
}

/* ---- operands of the heads ---- */

/* Finds the linears [B,S,E] that compute operand i of all heads. True if they can become one linear of one input. */
static bool find_operand_linears(const struct rebuild *r, const struct heads *h, size_t i,
                                 const struct ir_op *linears[HEADS_MAX])
{
	for (size_t k = 0; k < h->n; k++) {
		struct ir_value v = h->attention[k]->operands[i];
		const struct ir_op *rank4 = ir_def_as(r->f, v, OP_reshape);
		linears[k] = rank4 != NULL && rebuild_has_one_use(r, v)
		                     ? ir_def_as(r->f, rank4->operands[0], OP_linear)
		                     : NULL;
		if (linears[k] == NULL || !rebuild_has_one_use(r, rank4->operands[0]) ||
		    !in_region_of(r, h->attention[k], rank4->operands[0]) ||
		    !can_concat(r, linears[0], linears[k]) ||
		    !ir_same_value(linears[k]->operands[0], linears[0]->operands[0]) ||
		    !is_one_head(ir_type_of(r->f, v), ir_type_of(r->f, rank4->operands[0])))
			return false;
	}
	return true;
}

/* Marks what operand i of the merged attention reads: the input and weight indices of its linears if they merge,
 * else the operands of all heads. */
static void need_operand(struct rebuild *r, const struct heads *h, size_t i)
{
	const struct ir_op *linears[HEADS_MAX];
	if (find_operand_linears(r, h, i, linears)) {
		rebuild_need(r, linears[0]->operands[0]);
		rebuild_need_operands(r, ir_def_as(r->f, linears[0]->operands[1], OP_weight));
		return;
	}
	for (size_t k = 0; k < h->n; k++)
		rebuild_need(r, h->attention[k]->operands[i]);
}

/* Matches the concat or the outermost sum of at least two heads; marks what the merged attention reads. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct heads *h = r->rewrite->user;
	if (!match_heads(r, op, h))
		return false;
	for (size_t i = Q; i <= V; i++)
		need_operand(r, h, i);
	rebuild_need(r, h->attention[0]->operands[LEN]);
	rebuild_need(r, h->attention[0]->operands[PAST]);
	if (h->is_sum)
		rebuild_need_operands(r, ir_def_as(r->f, h->out[0]->operands[1], OP_weight));
	for (size_t i = 0; i < h->n_other_terms; i++)
		rebuild_need(r, h->other_terms[i]);
	return true;
}

/* ---- building ---- */

static const int64_t swap_heads_and_rows[4] = {0, 2, 1, 3};

/* Builds [B,S,H E] as [B,H,S,E]. */
static struct ir_value split_heads(struct rebuild *r, const struct heads *h, struct ir_value v)
{
	const struct ir_type *t = irb_type(r->b, v);
	if (t == NULL)
		return v;
	const struct ir_dim *n = ir_dim_const(r->out->dims, (int64_t)h->n);
	const struct ir_dim *dims[4] = {t->dims[0], t->dims[1], n,
	                                ir_dim_divide(r->out->dims, t->dims[2], n)};
	return irb_transpose_by(r->b, irb_reshape_to(r->b, v, 4, dims), 4, swap_heads_and_rows);
}

/* Builds [B,H,S,E] as [B,S,H E]. */
static struct ir_value concat_heads(struct rebuild *r, struct ir_value v)
{
	struct ir_value t = irb_transpose_by(r->b, v, 4, swap_heads_and_rows);
	const struct ir_type *type = irb_type(r->b, t);
	if (type == NULL)
		return t;
	const struct ir_dim *dims[3] = {type->dims[0], type->dims[1],
	                                ir_dim_mul(r->out->dims, type->dims[2], type->dims[3])};
	return irb_reshape_to(r->b, t, 3, dims);
}

/* Builds operand i of the merged attention: one linear where possible, else a concat of the heads. */
static struct ir_value build_operand(struct rebuild *r, const struct heads *h, size_t i)
{
	const struct ir_op *linears[HEADS_MAX];
	struct ir_value parts[HEADS_MAX];
	if (find_operand_linears(r, h, i, linears)) {
		const struct linear_list list = {linears, h->n};
		struct ir_value w = concat_weight_ref(r, &list, 1, 0), b = concat_weight_ref(r, &list, 2, 0);
		irb_set_loc(r->b, linears[0]->loc);
		return split_heads(r, h,
		                   irb_linear(r->b, rebuild_get(r, linears[0]->operands[0]), w, b, NULL));
	}
	for (size_t k = 0; k < h->n; k++)
		parts[k] = rebuild_get(r, h->attention[k]->operands[i]);
	return irb_op1(r->b, OP_concat, parts, h->n, &(struct attrs_concat){.axis = 1});
}

static struct ir_value build_sum(struct rebuild *r, const struct heads *h, struct ir_value o)
{
	const struct linear_list list = {h->out, h->n};
	struct ir_value y = irb_linear(r->b, o, concat_weight_ref(r, &list, 1, 1), IR_NO_VALUE, NULL);
	for (size_t i = 0; i < h->n_other_terms; i++)
		y = irb_add(r->b, y, rebuild_get(r, h->other_terms[i]), NULL);
	return y;
}

/* Builds one attention of all heads, then their concatenation or its output linear with the other terms of the sum.
 * Matches again, since h is scratch of the last match. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct heads *h = r->rewrite->user;
	if (!match_heads(r, op, h))
		return;
	const struct ir_op *first = h->attention[0];
	struct ir_value q = build_operand(r, h, Q), k = build_operand(r, h, K), v = build_operand(r, h, V);
	irb_set_loc(r->b, first->loc);
	struct ir_value o = irb_attention(r->b, q, k, v, IR_NO_VALUE, rebuild_get(r, first->operands[LEN]),
	                                  rebuild_get(r, first->operands[PAST]), IR_NO_VALUE, IR_NO_VALUE,
	                                  IR_NO_VALUE, first->attrs);
	irb_set_loc(r->b, op->loc);
	o = concat_heads(r, o);
	rebuild_set(r, op->results[0], h->is_sum ? build_sum(r, h, o) : o);
	pass_count(r->p, "merged", (int64_t)h->n);
	pass_remark(r->p, first->loc, "%zu heads merged into one attention", h->n);
}

/* Unrolls loops over heads first, so that the second traversal sees their heads as a sum. An error of
 * concat_weight_ref cannot be returned by emit, so errors are counted. */
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
