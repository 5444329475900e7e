/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random inputs for a function, its run by the interpreter, and comparison.
 */
#include <inttypes.h>
#include <math.h>

#include "passes/pipeline/trial.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/random/rng.h"

/* ---- inputs ---- */

static double random_value(struct rng *r, const struct ir_param *p, enum ir_dtype dtype, int64_t max,
                           bool positive)
{
	if (p->below > 0)
		return (double)rng_below(r, p->below);
	if (p->max)
		return (double)rng_between(r, 0, max);
	switch (ir_dtype_class(dtype)) {
	case DTCLASS_FLOAT: return positive ? rng_real(r, 0.5, 2) : rng_real(r, -2, 2);
	case DTCLASS_INT:
		/* Now and then far out, where sums wrap. */
		return (double)(rng_chance(r, 3) ? rng_between(r, INT32_MIN, INT32_MAX)
		                                 : rng_between(r, -3, 20));
	case DTCLASS_BOOL: return (double)rng_below(r, 2);
	}
	return 0;
}

static bool fill_input(struct rng *r, const struct ir_func *f, const struct ir_param *p, const int64_t *dims,
                       struct interp_tensor *t)
{
	bool positive = trial_is_positive(f, p->value);
	int64_t max = 0;
	if (p->max && (!ir_dim_eval(p->max, dims, &max) || max < 0))
		return false;
	for (int64_t i = 0; i < interp_count(t); i++)
		t->data[i] = ir_round(t->dtype, random_value(r, p, t->dtype, max, positive));
	return true;
}

/* Sizes between the bounds, often one of the ends; large ranges are cut short. */
static int64_t pick_size(struct rng *r, const struct ir_dim_sym *s)
{
	int64_t hi = s->hi - s->lo > 16 ? s->lo + 16 : s->hi;
	if (rng_chance(r, 30))
		return rng_chance(r, 50) ? s->lo : hi;
	return rng_between(r, s->lo, hi);
}

bool random_call_make(struct arena *a, const struct ir_module *m, const struct ir_func *f, uint64_t seed,
                      struct random_call *out)
{
	struct rng r = rng_seed(seed ^ UINT64_C(0x9e3779b97f4a7c15));
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	*out = (struct random_call){
	        .dims = ARENA_ARRAY(a, int64_t, ir_dims_count(m->dims) + 1),
	        .inputs = ARENA_ARRAY(a, struct interp_tensor, f->n_params + 1),
	        .outputs = ARENA_ARRAY(a, struct interp_tensor, ret->n_operands + 1),
	};
	if (arena_failed(a))
		return false;
	for (size_t i = 0; i < ir_dims_count(m->dims); i++)
		out->dims[i] = pick_size(&r, ir_dims_sym(m->dims, i));
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		const struct ir_type *type = ir_type_of(f, p->value);
		if (type->kind != IR_TENSOR)
			continue;
		struct interp_tensor *t = &out->inputs[out->n_inputs++];
		if (!interp_tensor_make(a, type, out->dims, t) || !fill_input(&r, f, p, out->dims, t))
			return false;
	}
	for (size_t i = 0; i < ret->n_operands; i++)
		out->n_outputs += ir_type_of(f, ret->operands[i])->kind == IR_TENSOR;
	return true;
}

enum tfmc_status random_call_run(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                                 struct arena *a, struct random_call *call)
{
	struct interp_args args = {
	        .dims = call->dims, .inputs = call->inputs, .outputs = call->outputs, .arena = a};
	int64_t batch = 1;
	if (m->states.n > 0) {
		if (!ir_dim_eval(m->states.items[0]->type->dims[0], call->dims, &batch))
			return TFMC_INTERNAL;
		args.state = interp_state_create(a, m, batch);
		if (!args.state)
			return TFMC_NO_MEMORY;
	}
	return interp_run(cx, m, f, &args);
}

/* ---- comparison ---- */

static bool same_value(double have, double want, double allowed)
{
	if (isnan(want) || isnan(have))
		return isnan(want) && isnan(have);
	if (isinf(want) || isinf(have))
		return have == want;
	return fabs(have - want) <= allowed;
}

const char *random_compare(struct arena *a, const struct interp_tensor *have,
                           const struct interp_tensor *want, double tolerance)
{
	if (have->dtype != want->dtype || have->rank != want->rank)
		return arena_printf(a, "%s of rank %d, expected %s of rank %d", ir_dtype_name(have->dtype),
		                    have->rank, ir_dtype_name(want->dtype), want->rank);
	for (int i = 0; i < want->rank; i++)
		if (have->dims[i] != want->dims[i])
			return arena_printf(a, "axis %d is %" PRId64 ", expected %" PRId64, i, have->dims[i],
			                    want->dims[i]);
	double largest = 1;
	for (int64_t i = 0; i < interp_count(want); i++)
		if (isfinite(want->data[i]) && fabs(want->data[i]) > largest)
			largest = fabs(want->data[i]);
	double allowed = ir_dtype_class(want->dtype) == DTCLASS_FLOAT ? tolerance * largest : 0;
	for (int64_t i = 0; i < interp_count(want); i++)
		if (!same_value(have->data[i], want->data[i], allowed) ||
		    (allowed == 0 && interp_abs_diff(have, want, i) != 0))
			return arena_printf(a, "element %" PRId64 " is %.9g, expected %.9g, allowed %.3g", i,
			                    have->data[i], want->data[i], allowed);
	return NULL;
}
