/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes a trial on a module by the interpreter and compares what came out.
 * State lives from a call that starts to the next one; memory of an execution
 * is gone at its end, results are copied to the caller's arena before.
 */
#include <math.h>
#include <string.h>

#include "ir/builder/case.h"
#include "passes/validate/trial.h"

#define TRIAL_TENSORS_MAX 64

struct execution {
	const struct trial *t;
	struct diag_context *cx;
	const struct ir_module *m;
	const struct trial_mode *mode;
	struct arena scratch;
	struct interp_state *state;
	struct interp_tensor past; /* data NULL: nothing is past */
	struct arena *arena;
	struct trial_outputs *out;
};

/* The function that serves a call, a case of it when its conditions hold. */
static const struct ir_func *trial_func(const struct ir_module *m, const struct trial_call *call)
{
	const struct ir_func *f = ir_find_func(m, call->func);
	return f != NULL ? ir_select_case(m, f, call->dims) : NULL;
}

static const struct trial_input *find_input(const struct trial_call *c, const char *name)
{
	for (size_t i = 0; i < c->n_inputs; i++)
		if (strcmp(c->inputs[i].name, name) == 0)
			return &c->inputs[i];
	return NULL;
}

static enum tfmc_status give_inputs(struct execution *x, const struct ir_func *f, const struct trial_call *c,
                                    struct interp_tensor *in)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		const struct trial_input *given = find_input(c, p->name);
		if (ir_type_of(f, p->value)->kind != IR_TENSOR)
			continue;
		if (n == TRIAL_TENSORS_MAX)
			return TFMC_INTERNAL;
		in[n] = given != NULL ? given->value : (struct interp_tensor){0};
		if (p->role == ROLE_PAST) {
			if (!interp_tensor_make(&x->scratch, ir_type_of(f, p->value), c->dims, &in[n]))
				return TFMC_NO_MEMORY;
			for (int64_t k = 0; x->past.data != NULL && k < interp_count(&in[n]); k++)
				in[n].data[k] = k < interp_count(&x->past) ? x->past.data[k] : 0;
		}
		n++;
	}
	return TFMC_OK;
}

static bool keep(struct execution *x, const char *name, size_t call, const struct interp_tensor *from)
{
	struct trial_output *o = ARENA_PUSH(x->arena, x->out);
	struct interp_tensor copy;
	if (o == NULL || !interp_tensor_copy(x->arena, from, &copy))
		return false;
	*o = (struct trial_output){arena_strdup(x->arena, name),
	                           arena_strdup(x->arena, x->t->calls.items[call].func), call, copy};
	return true;
}

static enum tfmc_status take_results(struct execution *x, const struct ir_func *f, size_t call,
                                     const struct interp_tensor *results)
{
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	size_t n = 0;
	for (size_t i = 0; i < f->n_results; i++) {
		const struct ir_result *r = &f->results[i];
		if (ir_type_of(f, ret->operands[i])->kind != IR_TENSOR)
			continue;
		if (r->role == ROLE_PAST)
			x->past = results[n];
		if (!keep(x, r->name != NULL ? r->name : "past", call, &results[n]))
			return TFMC_NO_MEMORY;
		n++;
	}
	return TFMC_OK;
}

static enum tfmc_status execute_call(struct execution *x, size_t number)
{
	const struct trial_call *c = &x->t->calls.items[number];
	const struct ir_func *f = trial_func(x->m, c);
	struct interp_tensor in[TRIAL_TENSORS_MAX], results[TRIAL_TENSORS_MAX];
	if (f == NULL || f->n_results > TRIAL_TENSORS_MAX) {
		diag_error(x->cx, LOC_NONE, DIAG_INTERNAL, "the function @%s is gone", c->func);
		return TFMC_INTERNAL;
	}
	if (c->starts) {
		x->past.data = NULL;
		x->state = x->m->states.n > 0 ? interp_state_create(&x->scratch, x->m, x->t->batch) : NULL;
	}
	TFMC_TRY(give_inputs(x, f, c, in));
	struct interp_args args = {.dims = c->dims,
	                           .inputs = in,
	                           .outputs = results,
	                           .state = x->state,
	                           .weights = x->t->weights,
	                           .arena = &x->scratch,
	                           .wide = x->mode->wide};
	if (x->mode->trace != NULL && x->mode->trace_call == number) {
		args.trace = x->mode->trace;
		args.trace_user = x->mode->trace_user;
	}
	TFMC_TRY(interp_run(x->cx, x->m, f, &args));
	return take_results(x, f, number, results);
}

enum tfmc_status trial_execute(const struct trial *t, struct diag_context *cx, const struct ir_module *m,
                               const struct trial_mode *mode, struct arena *arena, struct trial_outputs *out)
{
	struct execution x = {.t = t, .cx = cx, .m = m, .mode = mode, .arena = arena, .out = out};
	enum tfmc_status st = TFMC_OK;
	*out = (struct trial_outputs){0};
	arena_init(&x.scratch);
	for (size_t i = 0; i < t->calls.n && st == TFMC_OK; i++)
		st = execute_call(&x, i);
	arena_destroy(&x.scratch);
	return st;
}

/* ---- comparison ---- */

static bool same_shape(const struct interp_tensor *a, const struct interp_tensor *b)
{
	bool same = a->dtype == b->dtype && a->rank == b->rank;
	for (int i = 0; same && i < a->rank; i++)
		same = a->dims[i] == b->dims[i];
	return same;
}

double trial_tensor_difference(const struct interp_tensor *a, const struct interp_tensor *b)
{
	double worst = 0, largest = 0;
	if (!same_shape(a, b))
		return INFINITY;
	for (int64_t i = 0; i < interp_count(a); i++) {
		double x = a->data[i], y = b->data[i];
		if (isfinite(y) && fabs(y) > largest)
			largest = fabs(y);
		double distance = interp_abs_diff(a, b, i);
		if (distance == 0)
			continue;
		if (!isfinite(x) || !isfinite(y))
			return INFINITY;
		worst = distance > worst ? distance : worst;
	}
	if (worst == 0)
		return 0;
	return largest > 0 ? worst / largest : INFINITY;
}
