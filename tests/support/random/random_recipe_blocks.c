/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legal operands of argmax, block_argmax and block_log_softmax: the last two with a last axis of constant
 * size, blocks narrower and wider than it, ids inside it and beyond. And of the ops of rows in order.
 */
#include "tests/support/random/random_recipe.h"

bool recipe_argmax(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	if (!x)
		x = gen_shape(g, gen_number(g), 1, IR_RANK_MAX);
	if (!x || ir_dtype_class(x->dtype) == DTCLASS_BOOL || x->rank < 1)
		return false;
	out->in[out->n++] = x;
	((struct attrs_argmax *)out->attrs)->axis = rng_between(&g->rng, -1, x->rank - 1);
	return true;
}

static const struct ir_type *rows(struct gen *g, const struct ir_type *x)
{
	int64_t columns;
	if (!x) {
		const struct ir_dim *dims[] = {gen_dim(g), gen_dim(g),
		                               gen_const(g, rng_between(&g->rng, 1, 150))};
		int first = (int)rng_between(&g->rng, 0, 2);
		x = gen_type(g, DT_F32, 3 - first, dims + first);
	}
	bool is_float = x && ir_dtype_class(x->dtype) == DTCLASS_FLOAT && x->dtype != DT_F64;
	return is_float && x->rank >= 1 && x->rank < IR_RANK_MAX &&
	                       ir_dim_is_const(x->dims[x->rank - 1], &columns) && columns > 0
	               ? x
	               : NULL;
}

static int64_t width(struct gen *g)
{
	return rng_chance(&g->rng, 50) ? 64 : rng_between(&g->rng, 1, 80);
}

bool recipe_block_argmax(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	out->in[0] = rows(g, x);
	out->n = 1;
	((struct attrs_block_argmax *)out->attrs)->width = width(g);
	return out->in[0];
}

bool recipe_block_log_softmax(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	int64_t columns;
	x = rows(g, x);
	if (!x || !ir_dim_is_const(x->dims[x->rank - 1], &columns))
		return false;
	out->in[0] = x;
	out->in[1] = ir_type_tensor(g->m->types, DT_I32, x->rank - 1, x->dims);
	out->range[1].below = rng_chance(&g->rng, 60) ? columns : 0;
	out->n = 2;
	((struct attrs_block_log_softmax *)out->attrs)->width = width(g);
	return out->in[1];
}

bool recipe_quantize_rows(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	static const int64_t blocks[] = {0, 1, 3, 16, 32};
	if (!x)
		x = gen_shape(g, gen_float(g), 1, 4);
	if (!x || ir_dtype_class(x->dtype) != DTCLASS_FLOAT || x->dtype == DT_F64 || x->rank < 1)
		return false;
	out->in[out->n++] = x;
	struct attrs_quantize_rows *a = out->attrs;
	a->block = blocks[rng_below(&g->rng, (int64_t)TFMC_COUNT(blocks))];
	a->to = rng_chance(&g->rng, 25) ? ROUND_bf16 : ROUND_int8;
	return true;
}

bool recipe_cumsum(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	if (!x)
		x = gen_shape(g, gen_number(g), 1, 4);
	if (!x || ir_dtype_class(x->dtype) == DTCLASS_BOOL || x->rank < 1)
		return false;
	out->in[out->n++] = x;
	return true;
}

bool recipe_topk(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	int64_t columns;
	x = rows(g, x);
	if (!x || x->dtype != DT_F32 || !ir_dim_is_const(x->dims[x->rank - 1], &columns))
		return false;
	out->in[out->n++] = x;
	((struct attrs_topk *)out->attrs)->k = rng_between(&g->rng, 1, columns);
	return true;
}

bool recipe_last_index(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	const struct ir_dim *m = gen_dim(g);
	if (x && (x->dtype != DT_I32 || x->rank != 1))
		return false;
	out->in[out->n] = x ? x : gen_type(g, DT_I32, 1, &m);
	((struct attrs_last_index *)out->attrs)->size = gen_dim(g);
	return out->in[out->n++] != NULL;
}
