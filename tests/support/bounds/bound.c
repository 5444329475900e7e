/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rewriting of a function into one that also computes bounds: ops are copied
 * in order, repeats carry the bounds of their carries. Rules are in bound_rules.c.
 */
#include "tests/support/bounds/bound.h"

#include <math.h>

#include "ir/core/build.h"

#define CARRIES_MAX 16

static void rewrite(struct bound *s, const struct ir_region *r);

static bool is_float(const struct ir_type *t)
{
	return t->kind == IR_TENSOR && ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
}

struct ir_value bound_or_zero(struct bound *s, struct ir_value e, struct ir_value v)
{
	const struct ir_type *t = irb_type(s->b, v);
	return e.id || !t ? e : irb_full_of(s->b, 0, DT_F64, t->rank, t->dims);
}

/* Operands and their bounds, floats first all values, then the bounds of the floats. */
static size_t with_errors(struct bound *s, const struct ir_value *old, size_t n, struct ir_value *out)
{
	size_t at = n;
	for (size_t i = 0; i < n; i++) {
		out[i] = s->value[old[i].id];
		if (is_float(ir_type_of(s->from, old[i])))
			out[at++] = bound_or_zero(s, s->err[old[i].id], out[i]);
	}
	return at;
}

static void record(struct bound *s, const struct ir_value *old, size_t n, const struct ir_value *now)
{
	size_t at = n;
	for (size_t i = 0; i < n; i++) {
		s->value[old[i].id] = now[i];
		if (is_float(ir_type_of(s->from, old[i])))
			s->err[old[i].id] = now[at++];
	}
}

static void rewrite_repeat(struct bound *s, const struct ir_op *op)
{
	struct ir_value carry[2 * CARRIES_MAX], args[1 + 2 * CARRIES_MAX], results[2 * CARRIES_MAX];
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	size_t n = op->n_operands, all = with_errors(s, op->operands, n, carry);
	irb_repeat_begin(s->b, ((const struct attrs_repeat *)op->attrs)->count, carry, all, args);
	s->value[op->region->args[REPEAT_INDEX].id] = args[REPEAT_INDEX];
	record(s, op->region->args + 1, n, args + 1);
	rewrite(s, op->region);
	with_errors(s, yield->operands, n, carry);
	irb_repeat_end(s->b, carry, all, results);
	record(s, op->results, n, results);
}

/* A group is what its ops are. */
static void rewrite_group(struct bound *s, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	rewrite(s, op->region);
	for (size_t i = 0; i < op->n_results; i++) {
		s->value[op->results[i].id] = s->value[yield->operands[i].id];
		s->err[op->results[i].id] = s->err[yield->operands[i].id];
	}
}

static void rewrite(struct bound *s, const struct ir_region *r)
{
	for (size_t i = 0; i + 1 < r->n_ops && !irb_failed(s->b); i++) {
		const struct ir_op *op = r->ops[i];
		if (op->code == OP_repeat) {
			if (op->n_operands <= CARRIES_MAX)
				rewrite_repeat(s, op);
			continue;
		}
		if (op->code == OP_group) {
			rewrite_group(s, op);
			continue;
		}
		irb_clone(s->b, s->from, op, s->value);
		s->err[op->results[0].id] = bound_rule(s, op);
	}
}

/* The function "bound" of `to`; its results are the bounds of those results of f that have one. */
static enum tfmc_status build(struct diag_context *cx, struct ir_module *to, const struct ir_func *f,
                              struct arena *a, bool *has)
{
	struct bound s = {.b = irb_begin(to, cx, "bound", f->loc), .from = f};
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	struct ir_value *values = ARENA_ARRAY(a, struct ir_value, ret->n_operands + 1);
	struct ir_result *results = ARENA_ARRAY(a, struct ir_result, ret->n_operands + 1);
	size_t n = 0;
	s.value = ARENA_ARRAY(a, struct ir_value, f->n_values);
	s.err = ARENA_ARRAY(a, struct ir_value, f->n_values);
	if (arena_failed(a) || !s.b)
		return TFMC_NO_MEMORY;
	irb_clone_params(s.b, f, s.value);
	rewrite(&s, f->body);
	for (size_t i = 0; i < ret->n_operands; i++) {
		has[i] = s.err[ret->operands[i].id].id != 0;
		if (!has[i])
			continue;
		results[n] = (struct ir_result){.name = arena_printf(&to->arena, "e%zu", i), .lengths = -1};
		values[n++] = s.err[ret->operands[i].id];
	}
	return irb_finish(s.b, values, results, n, NULL);
}

enum tfmc_status bound_run(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                           const struct interp_args *args, struct arena *a, double **bounds)
{
	size_t n = f->n_results, k = 0;
	struct interp_args run = *args;
	bool *has = ARENA_ARRAY(a, bool, n + 1);
	struct ir_module *to = ir_module_create_like(m);
	run.outputs = ARENA_ARRAY(a, struct interp_tensor, n + 1);
	run.arena = a;
	if (!to || arena_failed(a))
		return TFMC_NO_MEMORY;
	to->stage = STAGE_GRAPH;
	enum tfmc_status st = build(cx, to, f, a, has);
	if (st == TFMC_OK)
		st = interp_run(cx, to, ir_find_func(to, "bound"), &run);
	for (size_t i = 0; st == TFMC_OK && i < n; i++) {
		bounds[i] = has[i] ? run.outputs[k++].data
		                   : ARENA_ARRAY(a, double, interp_count(&args->outputs[i]) + 1);
		if (!bounds[i] && interp_count(&args->outputs[i]) > 0)
			st = TFMC_NO_MEMORY;
	}
	ir_module_destroy(to);
	return st;
}

const char *bound_complaint(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                            const struct interp_args *args, const void *got, struct arena *a)
{
	struct interp_tensor expected, out;
	struct interp_args run = *args;
	double *bounds = NULL;
	run.outputs = &expected;
	run.arena = a;
	if (interp_run(cx, m, f, &run) != TFMC_OK || bound_run(cx, m, f, &run, a, &bounds) != TFMC_OK)
		return "the reference has not run";
	out = expected;
	if (!interp_tensor_alloc(a, &out))
		return "no memory";
	interp_from_bytes(&out, got);
	for (int64_t i = 0, n = interp_count(&out); i < n; i++) {
		double apart = interp_abs_diff(&out, &expected, i);
		if (apart != 0 && !(isfinite(apart) && isfinite(bounds[i]) && apart <= bounds[i]))
			return arena_printf(a, "element %lld is %.9g, expected %.9g within %.3g",
			                    (long long)i, out.data[i], expected.data[i], bounds[i]);
	}
	return NULL;
}
