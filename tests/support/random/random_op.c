/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random modules for one op: its operands are parameters of the function.
 */
#include <string.h>

#include "tests/support/random/random_module.h"

#define TRIES 1000

static const struct recipe_range any_value = {0, NULL};

/* An op with a recipe. */
static struct ir_module *from_recipe(struct gen *g, enum ir_opcode code)
{
	struct recipe r;
	struct ir_value operands[RECIPE_OPERANDS_MAX] = {{0}};
	int tries = 0;
	while (!recipe_make(g, code, NULL, &r))
		if (++tries == TRIES)
			return NULL;
	for (size_t i = 0; i < r.n; i++)
		if (r.in[i])
			operands[i] = random_param(g, r.in[i], r.range[i]);
	struct ir_value y = irb_op1(g->b, code, operands, r.n, r.attrs);
	return random_end(g, &y, 1);
}

static struct ir_dim_list some_dims(struct gen *g)
{
	const struct ir_type *t = gen_shape(g, DT_I32, 1, 4);
	struct ir_dim_list list = {ARENA_ARRAY(&g->m->arena, const struct ir_dim *, t->rank),
	                           (size_t)t->rank};
	memcpy(list.items, t->dims, (size_t)t->rank * sizeof(t->dims[0]));
	return list;
}

static struct ir_module *of_weight(struct gen *g)
{
	const struct ir_dim *dims[4];
	struct ir_value index[4];
	int rank = (int)rng_between(&g->rng, 0, 4);
	size_t n = (size_t)rng_between(&g->rng, 0, rank < 2 ? rank : 2);
	int64_t size;
	for (int i = 0; i < rank; i++)
		dims[i] = rng_chance(&g->rng, 50) ? gen_const(g, 3) : gen_small(g);
	const struct ir_type *type = ir_type_tensor(g->m->types, gen_float(g), rank, dims);
	const struct ir_type *scalar = ir_type_tensor(g->m->types, DT_I32, 0, NULL);
	for (size_t i = 0; i < n; i++) {
		ir_dim_is_const(dims[i], &size);
		index[i] = random_param(g, scalar, (struct recipe_range){size, NULL});
	}
	struct ir_value y = irb_weight_ref(g->b, random_weight(g, "w", type), index, n);
	return random_end(g, &y, 1);
}

static struct ir_module *of_constant(struct gen *g, enum ir_opcode code)
{
	struct ir_value y = IR_NO_VALUE;
	if (code == OP_full) {
		struct attrs_full a = {.dims = some_dims(g), .dtype = gen_any(g)};
		a.value = ir_dtype_class(a.dtype) == DTCLASS_FLOAT ? rng_real(&g->rng, -2, 2)
		                                                   : (double)rng_below(&g->rng, 2);
		y = irb_full(g->b, &a);
	} else if (code == OP_iota) {
		struct attrs_iota a = {.dims = some_dims(g), .start = rng_between(&g->rng, -9, 9)};
		a.axis = rng_below(&g->rng, (int64_t)a.dims.n);
		y = irb_iota(g->b, &a);
	} else {
		const struct ir_dim *d =
		        ir_dim_add(g->m->dims, gen_dim(g), ir_dim_mul(g->m->dims, gen_dim(g), gen_dim(g)));
		y = irb_dim_value(g->b, &(struct attrs_dim_value){.dim = d, .dims = some_dims(g)});
	}
	return random_end(g, &y, 1);
}

/* ---- state [B, (L,) K, T, E] ---- */

struct state_parts {
	const struct ir_dim *batch, *heads, *rows, *size;
	struct ir_value state, at;
	size_t n_at;
};

/* Declares the state; its parameter comes last and is added by the caller. */
static const struct ir_state_decl *declare_state(struct gen *g, struct state_parts *s)
{
	const struct ir_dim *dims[5];
	int rank = 0;
	/* The sequences of a state are a symbol, also where shapes are otherwise constant. */
	if (!g->symbols[0] && !ir_dims_declare(g->m->dims, "B", 1, 5))
		return NULL;
	s->batch = ir_dim_sym(g->m->dims, "B");
	s->heads = gen_const(g, rng_between(&g->rng, 1, 3));
	s->rows = gen_const(g, rng_between(&g->rng, 17, 33));
	s->size = gen_small(g);
	s->n_at = (size_t)rng_below(&g->rng, 2);
	dims[rank++] = s->batch;
	if (s->n_at)
		dims[rank++] = gen_const(g, 3);
	dims[rank++] = s->heads;
	dims[rank++] = s->rows;
	dims[rank++] = s->size;
	const struct ir_type *type = ir_type_tensor(g->m->types, gen_float(g), rank, dims);
	return ir_add_state(g->m, "cache", type, (struct ir_loc){0});
}

/* Writes or appends a random block and reads the slice back. */
static struct ir_module *of_state(struct gen *g, enum ir_opcode code)
{
	struct state_parts s;
	struct ir_value x, past = IR_NO_VALUE, results[2];
	const struct ir_state_decl *decl = declare_state(g, &s);
	if (!decl)
		return NULL;
	const struct ir_dim *queries = gen_dim(g);
	const struct ir_type *block =
	        ir_type_tensor(g->m->types, decl->type->dtype, 4,
	                       (const struct ir_dim *[]){s.batch, s.heads, queries, s.size});
	x = random_param(g, block, any_value);
	if (code == OP_state_append) {
		struct recipe_range range = {0, ir_dim_sub(g->m->dims, s.rows, queries)};
		past = random_param(g, ir_type_tensor(g->m->types, DT_I32, 1, &s.batch), range);
	}
	if (s.n_at)
		s.at = random_param(g, ir_type_tensor(g->m->types, DT_I32, 0, NULL),
		                    (struct recipe_range){3, NULL});
	s.state = random_param(g, ir_type_state(g->m->types, decl), any_value);
	if (code == OP_state_append) {
		irb_op(g->b, code, (struct ir_value[]){s.state, x, past, s.at}, 3 + s.n_at, NULL, results, 2);
	} else {
		struct ir_value after;
		irb_op(g->b, OP_state_write, (struct ir_value[]){s.state, x, s.at}, 2 + s.n_at, NULL, &after,
		       1);
		irb_op(g->b, OP_state_read, (struct ir_value[]){after, s.at}, 1 + s.n_at, NULL, results, 2);
	}
	return random_end(g, results, 2);
}

/* A layer-like loop: x = tanh(x w[i] + x), y = y + i. */
static struct ir_module *of_repeat(struct gen *g)
{
	int64_t count = rng_between(&g->rng, 0, 3), stored = count > 0 ? count : 1;
	const struct ir_dim *width = gen_small(g);
	const struct ir_type *x_type = gen_type(g, DT_F32, 2, (const struct ir_dim *[]){gen_dim(g), width});
	const struct ir_type *w_type = ir_type_tensor(
	        g->m->types, DT_F32, 3, (const struct ir_dim *[]){gen_const(g, stored), width, width});
	struct ir_value init[2], args[3], yields[2], results[2];
	init[0] = random_param(g, x_type, any_value);
	init[1] = random_param(g, ir_type_tensor(g->m->types, DT_I32, 0, NULL), any_value);
	irb_repeat_begin(g->b, count, init, 2, args);
	struct ir_value w = irb_weight_ref(g->b, random_weight(g, "w", w_type), &args[REPEAT_INDEX], 1);
	struct ir_value y = irb_linear(g->b, args[1], w, IR_NO_VALUE, NULL);
	yields[0] = irb_tanh(g->b, irb_add(g->b, y, args[1], NULL), NULL);
	yields[1] = irb_add(g->b, args[2], args[REPEAT_INDEX], NULL);
	irb_repeat_end(g->b, yields, 2, results);
	return random_end(g, results, 2);
}

static struct ir_module *of_op(struct gen *g, enum ir_opcode code)
{
	switch (code) {
	case OP_weight: return of_weight(g);
	case OP_full:
	case OP_iota:
	case OP_dim_value: return of_constant(g, code);
	case OP_state_append:
	case OP_state_write:
	case OP_state_read: return of_state(g, code);
	case OP_repeat: return of_repeat(g);
	default: return from_recipe(g, code); /* every other op has a recipe */
	}
}

struct ir_module *random_module_for_op(struct diag_context *cx, enum ir_opcode code, uint64_t seed,
                                       const struct random_options *options)
{
	struct gen g;
	if (code == OP_group || code == OP_yield || code == OP_return)
		return NULL;
	if (!random_begin(&g, cx, seed ^ (uint64_t)code << 40, options))
		return NULL;
	return of_op(&g, code);
}
