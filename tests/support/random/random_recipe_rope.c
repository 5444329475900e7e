/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legal operands of rope: tables of every even width up to the heads', positions
 * inside the table and beyond it; of expert_linear, with ids beyond the experts;
 * and how attention finds keys and values.
 */
#include "tests/support/random/random_recipe.h"

/* Heads of at least two features; often whole vectors. */
static int64_t head_size(struct gen *g)
{
	static const int64_t whole[] = {8, 16, 32, 64};
	if (rng_chance(&g->rng, 50))
		return whole[rng_below(&g->rng, (int64_t)TFMC_COUNT(whole))];
	return rng_between(&g->rng, 2, 36);
}

static const struct ir_type *heads(struct gen *g)
{
	const struct ir_dim *dims[] = {gen_dim(g), gen_dim(g), gen_dim(g), gen_const(g, head_size(g))};
	return rng_chance(&g->rng, 50) ? gen_type(g, gen_float(g), 4, dims)
	                               : gen_type(g, gen_float(g), 3, dims + 1);
}

static const struct ir_type *matrix(struct gen *g, enum ir_dtype dtype, const struct ir_dim *rows,
                                    const struct ir_dim *columns)
{
	return gen_type(g, dtype, 2, (const struct ir_dim *[]){rows, columns});
}

bool recipe_rope(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	int64_t width = 0;
	if (!x)
		x = heads(g);
	if (!x || ir_dtype_class(x->dtype) != DTCLASS_FLOAT || x->rank < 3 ||
	    !ir_dim_is_const(x->dims[x->rank - 1], &width) || width < 2)
		return false;
	int64_t rows = rng_between(&g->rng, 1, 8), half = width / 2;
	if (rng_chance(&g->rng, 40))
		half = rng_between(&g->rng, 1, half);
	out->in[0] = x;
	out->in[1] = matrix(g, DT_F32, gen_const(g, rows), gen_const(g, 2 * half));
	out->in[2] = matrix(g, DT_I32, x->dims[0], x->dims[x->rank - 2]);
	out->range[2].below = rng_chance(&g->rng, 60) ? rows : 0;
	out->n = 3;
	((struct attrs_rope *)out->attrs)->layout = rng_chance(&g->rng, 60) ? ROPE_halves : ROPE_interleaved;
	return out->in[1] && out->in[2];
}

bool recipe_expert_linear(struct gen *g, const struct ir_type *x, struct recipe *out)
{
	if (!x) {
		const struct ir_dim *dims[] = {gen_dim(g), gen_dim(g), gen_small(g)};
		int skip = rng_chance(&g->rng, 50);
		x = gen_type(g, gen_float(g), 3 - skip, dims + skip);
	}
	if (!x || ir_dtype_class(x->dtype) != DTCLASS_FLOAT || x->rank < 1 || x->rank > 4)
		return false;
	const struct ir_dim *e = gen_const(g, rng_between(&g->rng, 1, 5)), *n = gen_small(g);
	out->in[0] = x;
	out->in[1] = gen_type(g, x->dtype, 3, (const struct ir_dim *[]){e, n, x->dims[x->rank - 1]});
	out->in[2] = gen_type(g, DT_I32, x->rank - 1, x->dims);
	out->n = 3;
	if (rng_chance(&g->rng, 50))
		out->in[out->n++] = matrix(g, x->dtype, e, n);
	return out->in[1] && out->in[2] && (out->n < 4 || out->in[3]);
}

enum ir_dtype recipe_stored_type(const struct gen *g, enum ir_dtype queries, uint64_t salt)
{
	struct rng copy = g->rng;
	struct rng rng = rng_seed((uint64_t)rng_next(&copy) ^ salt);
	if (queries != DT_F32 || !rng_chance(&rng, 30))
		return queries;
	static const enum ir_dtype narrow[] = {DT_F16, DT_BF16, DT_I8};
	return narrow[rng_below(&rng, 3)];
}

const struct ir_type *recipe_scales(struct gen *g, const struct ir_type *x)
{
	const struct ir_dim *dims[] = {x->dims[0], x->dims[1], x->dims[2], gen_const(g, 1)};
	return x->dtype == DT_I8 ? gen_type(g, DT_F32, 4, dims) : NULL;
}
