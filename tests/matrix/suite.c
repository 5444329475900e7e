/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls with inputs, and what the interpreter makes of them.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/support/bounds/bound.h"
#include "tests/matrix/matrix.h"
#include "tests/support/random/random_ir.h"

/* ---- functions ---- */

static void see_op(void *user, const struct ir_op *op)
{
	struct ops_set *o = user;
	o->bits[op->code / 64] |= UINT64_C(1) << (op->code % 64);
}

struct ops_set ops_of(const struct ir_func *f)
{
	struct ops_set o = {{0}};
	ir_visit_ops(f->body, see_op, &o);
	return o;
}

static const struct ir_param *tensor_param(const struct ir_func *f, size_t tensor)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (ir_type_of(f, f->params[i].value)->kind == IR_TENSOR && tensor-- == 0)
			return &f->params[i];
	return NULL;
}

bool input_is_caller(const struct ir_func *f, size_t tensor)
{
	const struct ir_param *p = tensor_param(f, tensor);
	return p && p->role == ROLE_INPUT;
}

bool output_is_caller(const struct ir_func *f, size_t tensor)
{
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0; i < ret->n_operands; i++)
		if (ir_type_of(f, ret->operands[i])->kind == IR_TENSOR && tensor-- == 0)
			return f->results[i].role == ROLE_INPUT;
	return false;
}

/* ---- inputs ---- */

/* Ends of the range, subnormals, what is no number; sine and cosine are for |x| < 2^15. */
static double special(uint64_t i, bool is_bounded)
{
	static const double far[] = {0.0,    -0.0, HUGE_VAL, -HUGE_VAL, NAN,   3e38,  -3e38, 1e-40,
	                             -1e-40, 1.0,  -1.0,     88.5,      -88.5, 1e-30, -104,  0.5};
	static const double near[] = {0.0,   -0.0,   1e-40, 3.1415927, -1.5707964,
	                              32000, -32000, 1e-30, 0.7853982};
	return is_bounded ? near[i % TFMC_COUNT(near)] : far[i % TFMC_COUNT(far)];
}

static void refill(const struct ir_func *f, struct matrix_case *c, enum fill fill)
{
	bool is_bounded = ops_has(&c->ops, OP_sin) || ops_has(&c->ops, OP_cos);
	for (size_t i = 0; i < c->n_inputs; i++) {
		struct interp_tensor *t = &c->inputs[i];
		const struct ir_param *p = tensor_param(f, i);
		bool is_float = ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
		for (int64_t k = 0; k < interp_count(t); k++)
			if (fill == FILL_SPECIAL && is_float)
				t->data[k] = ir_round(t->dtype,
				                      special((uint64_t)k * (2 * i + 1) + 5 * i, is_bounded));
			else if (fill == FILL_EMPTY && (p->max || t->dtype == DT_BOOL))
				t->data[k] = 0;
	}
}

/* random_call_make draws dims; given ones replace them before inputs are made. */
static bool make_call(struct suite *s, const struct ir_module *m, const struct ir_func *f,
                      const int64_t *dims, uint64_t seed, struct random_call *call)
{
	if (!random_call_make(s->arena, m, f, seed, call))
		return false;
	if (!dims)
		return true;
	struct rng r = rng_seed(seed);
	size_t n = 0;
	memcpy(call->dims, dims, ir_dims_count(m->dims) * sizeof(*dims));
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		int64_t most = 19;
		if (ir_type_of(f, p->value)->kind != IR_TENSOR)
			continue;
		struct interp_tensor *t = &call->inputs[n++];
		if (!interp_tensor_make(s->arena, ir_type_of(f, p->value), dims, t))
			return false;
		if (p->max && !ir_dim_eval(p->max, dims, &most))
			return false;
		for (int64_t k = 0; k < interp_count(t); k++)
			t->data[k] = ir_dtype_class(t->dtype) == DTCLASS_FLOAT
			                     ? ir_round(t->dtype, rng_real(&r, -2, 2))
			                     : (double)rng_between(&r, 0,
			                                           p->below > 0          ? p->below - 1
			                                           : t->dtype == DT_BOOL ? 1
			                                                                 : most);
	}
	return true;
}

static const char *dims_text(struct suite *s, const struct ir_module *m, const int64_t *dims)
{
	const char *text = "";
	for (size_t i = 0; i < ir_dims_count(m->dims); i++)
		text = arena_printf(s->arena, "%s %s=%lld", text, ir_dims_sym(m->dims, i)->name,
		                    (long long)dims[i]);
	return text;
}

struct matrix_case *suite_add_call(struct suite *s, size_t batch, const struct ir_func *f,
                                   const int64_t *dims, uint64_t seed, enum fill fill)
{
	static const char *const kinds[] = {"", " special", " empty"};
	const struct batch *b = &s->batches.items[batch];
	struct random_call call;
	struct matrix_case *c = ARENA_PUSH(s->arena, &s->cases);
	if (!c || !make_call(s, b->graph, f, dims, seed, &call))
		return NULL;
	*c = (struct matrix_case){.row = f->name,
	                          .batch = batch,
	                          .f = f,
	                          .entry = f->name,
	                          .ops = ops_of(f),
	                          .reset = true,
	                          .dims = call.dims,
	                          .inputs = call.inputs,
	                          .outputs = call.outputs,
	                          .n_inputs = call.n_inputs,
	                          .n_outputs = call.n_outputs};
	c->what = arena_printf(s->arena, "%s.%s%s%s", b->name, f->name, dims_text(s, b->graph, c->dims),
	                       kinds[fill]);
	refill(f, c, fill);
	return c;
}

bool suite_expect(struct suite *s, struct matrix_case *c)
{
	const struct batch *b = &s->batches.items[c->batch];
	struct interp_args args = {.dims = c->dims,
	                           .inputs = c->inputs,
	                           .outputs = c->outputs,
	                           .weights = &b->weights,
	                           .arena = s->arena};
	c->bounds = ARENA_ARRAY(s->arena, double *, c->n_outputs + 1);
	if (!c->bounds || interp_run(s->cx, b->graph, c->f, &args) != TFMC_OK)
		return false;
	return bound_run(s->cx, b->graph, c->f, &args, s->arena, c->bounds) == TFMC_OK;
}

/* ---- the suite ---- */

bool suite_build(struct suite *s)
{
	if (!suite_add_random(s) || !suite_add_odd(s))
		return false;
	for (size_t i = 0; i < s->cases.n; i++)
		if (!suite_expect(s, &s->cases.items[i]))
			return false;
	return suite_add_examples(s);
}

void suite_destroy(struct suite *s)
{
	for (size_t i = 0; i < s->batches.n; i++) {
		ir_module_destroy(s->batches.items[i].graph);
		frontend_destroy(s->batches.items[i].model);
	}
}
