/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deliberately wrong passes (mutation testing): each replaces one kind of op as a plausible mistake would. `tfmc
 * verify --after-each` and `--bisect` must find and name every one (tests/shell/planted.sh). Never part of tfmc.
 */
#include "passes/framework/rebuild.h"

#define BLOCK 2 /* elements that plant-block omits */

enum { ATT_Q, ATT_K, ATT_V, ATT_BIAS, ATT_LEN, ATT_PAST, ATT_SINKS, ATT_K_SCALE, ATT_V_SCALE, ATT_N };

static void get_operands(struct rebuild *r, const struct ir_op *op, struct ir_value *out)
{
	for (size_t i = 0; i < op->n_operands; i++)
		out[i] = rebuild_get(r, op->operands[i]);
}

/* Replaces op by one with other operands and attributes. */
static void rebuild_op(struct rebuild *r, const struct ir_op *op, const struct ir_value *operands, size_t n,
                       const void *attrs)
{
	struct ir_value results[2] = {{0}, {0}};
	irb_op(r->b, op->code, operands, n, attrs, results, op->n_results);
	for (size_t i = 0; i < op->n_results; i++)
		rebuild_set(r, op->results[i], results[i]);
}

static struct ir_value one_more(struct rebuild *r, struct ir_value counts)
{
	const struct ir_type *t = irb_type(r->b, counts);
	return irb_add(r->b, counts, irb_full_of(r->b, 1, DT_I32, t->rank, t->dims), NULL);
}

/* ---- rotary pairs ---- */

static bool is_rope(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_rope)
		return false;
	rebuild_need_operands(r, op);
	return true;
}

static void swap_pairs(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[3];
	struct attrs_rope a = *(const struct attrs_rope *)op->attrs;
	a.layout = a.layout == ROPE_halves ? ROPE_interleaved : ROPE_halves;
	get_operands(r, op, x);
	rebuild_op(r, op, x, 3, &a);
}

/* ---- attention: scale, mask, key heads ---- */

static bool is_attention(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_attention)
		return false;
	rebuild_need_operands(r, op);
	return true;
}

static void drop_scale(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[ATT_N] = {{0}};
	struct attrs_attention a = *(const struct attrs_attention *)op->attrs;
	a.scale = 1;
	get_operands(r, op, x);
	rebuild_op(r, op, x, ATT_N, &a);
}

static bool is_causal(struct rebuild *r, const struct ir_op *op)
{
	return op->code == OP_attention && ((const struct attrs_attention *)op->attrs)->mask == MASK_causal &&
	       is_attention(r, op);
}

static void show_one_more(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[ATT_N] = {{0}};
	get_operands(r, op, x);
	const struct ir_type *q = irb_type(r->b, x[ATT_Q]);
	if (x[ATT_PAST].id == 0)
		x[ATT_PAST] = irb_full_of(r->b, 1, DT_I32, 1, q->dims);
	else
		x[ATT_PAST] = one_more(r, x[ATT_PAST]);
	rebuild_op(r, op, x, ATT_N, op->attrs);
}

static bool has_few_heads(struct rebuild *r, const struct ir_op *op)
{
	int64_t keys;
	return op->code == OP_attention &&
	       ir_dim_is_const(ir_type_of(r->f, op->operands[ATT_K])->dims[1], &keys) && keys > 1 &&
	       !ir_dim_equals(ir_type_of(r->f, op->operands[ATT_Q])->dims[1], keys) && is_attention(r, op);
}

static void rotate_heads(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[ATT_N] = {{0}}, parts[2];
	struct ir_dims *dims = r->out->dims;
	const struct ir_dim *zero = ir_dim_const(dims, 0), *one = ir_dim_const(dims, 1);
	get_operands(r, op, x);
	const struct ir_dim *heads = irb_type(r->b, x[ATT_K])->dims[1];
	parts[0] = irb_slice_of(r->b, x[ATT_K], 1, one, ir_dim_sub(dims, heads, one));
	parts[1] = irb_slice_of(r->b, x[ATT_K], 1, zero, one);
	x[ATT_K] = irb_op1(r->b, OP_concat, parts, 2, &(struct attrs_concat){.axis = 1});
	rebuild_op(r, op, x, ATT_N, op->attrs);
}

/* ---- norms ---- */

static bool is_norm(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_layer_norm && op->code != OP_rms_norm)
		return false;
	rebuild_need_operands(r, op);
	return true;
}

static void shrink_eps(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[3] = {{0}};
	get_operands(r, op, x);
	if (op->code == OP_layer_norm) {
		struct attrs_layer_norm a = *(const struct attrs_layer_norm *)op->attrs;
		a.eps *= 0.1;
		rebuild_op(r, op, x, 3, &a);
	} else {
		struct attrs_rms_norm a = *(const struct attrs_rms_norm *)op->attrs;
		a.eps *= 0.1;
		rebuild_op(r, op, x, 2, &a);
	}
}

/* ---- linears ---- */

static bool is_long_linear(struct rebuild *r, const struct ir_op *op)
{
	int64_t k;
	if (op->code != OP_linear || !ir_dim_is_const(ir_type_of(r->f, op->operands[1])->dims[1], &k) ||
	    k <= BLOCK)
		return false;
	rebuild_need_operands(r, op);
	return true;
}

static void drop_block(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[3] = {{0}};
	struct ir_dims *dims = r->out->dims;
	get_operands(r, op, x);
	const struct ir_type *t = irb_type(r->b, x[0]);
	const struct ir_dim *zero = ir_dim_const(dims, 0);
	const struct ir_dim *k = ir_dim_sub(dims, t->dims[t->rank - 1], ir_dim_const(dims, BLOCK));
	x[0] = irb_slice_of(r->b, x[0], t->rank - 1, zero, k);
	x[1] = irb_slice_of(r->b, x[1], 1, zero, k);
	rebuild_op(r, op, x, 3, op->attrs);
}

/* The bias of a linear if it has one row for each layer, else NULL. */
static const struct ir_op *stacked_bias(const struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *b = op->code == OP_linear ? ir_def_as(r->f, op->operands[2], OP_weight) : NULL;
	if (b == NULL || b->n_operands != 1)
		return NULL;
	return ((const struct attrs_weight *)b->attrs)->weight->type->rank == 2 ? b : NULL;
}

static bool has_stacked_bias(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *b = stacked_bias(r, op);
	if (b == NULL)
		return false;
	rebuild_need_operands(r, op);
	rebuild_need(r, b->operands[0]);
	return true;
}

static void drop_last_bias(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *b = stacked_bias(r, op);
	struct ir_weight w = *((const struct attrs_weight *)b->attrs)->weight;
	const struct ir_wexpr *e = w.init, *parts[2];
	int64_t layers = e->dims[0], row[2] = {1, e->dims[1]};
	struct arena *a = r->p->arena;
	struct ir_value x[3] = {{0}}, index = rebuild_get(r, b->operands[0]);
	get_operands(r, op, x);
	parts[0] = wexpr_slice(a, 0, 0, layers - 1, e);
	parts[1] = wexpr_full(a, 0, 2, row);
	w.name = arena_printf(a, "%s.planted", w.name);
	w.type = ir_import_type(r->out, w.type);
	w.init = wexpr_concat(a, 0, 2, parts);
	x[2] = irb_weight_ref(r->b, ir_add_weight(r->out, &w), &index, 1);
	rebuild_op(r, op, x, 3, op->attrs);
}

/* ---- caches ---- */

static bool is_append(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_state_append)
		return false;
	rebuild_need_operands(r, op);
	return true;
}

static void write_late(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[IR_RANK_MAX + 3] = {{0}};
	get_operands(r, op, x);
	x[2] = one_more(r, x[2]);
	rebuild_op(r, op, x, op->n_operands, op->attrs);
}

static bool is_indexed_append(struct rebuild *r, const struct ir_op *op)
{
	return op->n_operands == 4 && is_append(r, op);
}

/* The interpreter fails in the last layer: there is no result to compare. */
static void write_beyond(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x[IR_RANK_MAX + 3] = {{0}};
	get_operands(r, op, x);
	x[3] = irb_add(r->b, x[3], irb_full_of(r->b, 1, DT_I32, 0, NULL), NULL);
	rebuild_op(r, op, x, op->n_operands, op->attrs);
}

/* ---- the passes ---- */

#define PLANT(name, matches, emits)                                                            \
	enum tfmc_status pass_plant_##name(struct pass_context *p, const struct ir_module *in, \
	                                   struct ir_module *out)                              \
	{                                                                                      \
		const struct rewrite rewrite = {.match = matches, .emit = emits};              \
		return rebuild_module(p, in, out, &rewrite, NULL);                             \
	}

PLANT(rope, is_rope, swap_pairs)
PLANT(scale, is_attention, drop_scale)
PLANT(eps, is_norm, shrink_eps)
PLANT(causal, is_causal, show_one_more)
PLANT(block, is_long_linear, drop_block)
PLANT(gqa, has_few_heads, rotate_heads)
PLANT(bias, has_stacked_bias, drop_last_bias)
PLANT(cache, is_append, write_late)
PLANT(state, is_indexed_append, write_beyond)
