/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials (trial.h): choice of functions, sizes and inputs, and execution. All inputs follow from the position of
 * the call, so the same module gives the same trial.
 */
#include "passes/pipeline/trial.h"

#include <math.h>
#include <string.h>

#include "ir/core/case.h"
#include "passes/pipeline/random.h"

#define CALLS 5
#define STEPS 5 /* calls of a session after its prefill */

/* Batch size and tokens of the calls of a function without state. */
static const int64_t call_sizes[CALLS][2] = {{1, 1}, {2, 5}, {3, 7}, {1, 4}, {2, 11}};

/* Tokens of the prefill and of the calls after it. */
static const int64_t session_tokens[1 + STEPS] = {4, 1, 1, 2, 1, 1};

/* ---- dims ---- */

static bool has_state(const struct ir_func *f)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (ir_type_of(f, f->params[i].value)->kind == IR_STATE)
			return true;
	return false;
}

static bool has_past(const struct ir_func *f)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (f->params[i].role == ROLE_PAST)
			return true;
	return false;
}

/* The dim symbol of the batch: axis 0 of the first parameter or state; -1: none. */
static int batch_symbol(const struct ir_module *m, const struct ir_func *f)
{
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_type *t = ir_type_of(f, f->params[i].value);
		t = t->kind == IR_STATE ? t->state->type : t;
		if (t->rank == 0 || ir_dim_is_const(t->dims[0], NULL) || t->dims[0]->n_terms != 1)
			continue;
		const struct ir_dim_term *term = &t->dims[0]->terms[0];
		if (term->n_atoms == 1 && term->atoms[0]->sym >= 0 &&
		    (size_t)term->atoms[0]->sym < ir_dims_count(m->dims))
			return term->atoms[0]->sym;
	}
	return -1;
}

/* Chooses the dims of a call within their bounds: `batch` for the symbol of the batch, `tokens` for all others.
 * `extra` is added to every second symbol, so that results differ if a pass confuses two symbols. t->batch: the
 * largest batch, for which states are allocated. */
static bool choose_dims(struct trial *t, const struct ir_module *m, const struct ir_func *f, int64_t batch,
                        int64_t tokens, int64_t extra, struct trial_call *c)
{
	size_t n = ir_dims_count(m->dims);
	int which = batch_symbol(m, f);
	c->dims = ARENA_ARRAY(t->arena, int64_t, n + 1);
	if (c->dims == NULL)
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->dims, i);
		int64_t size = (int)i == which ? batch : tokens + (extra != 0 && i % 2 == 0 ? extra : 0);
		size = size > s->hi ? s->hi : size;
		c->dims[i] = size < s->lo ? s->lo : size;
		if ((int)i == which && c->dims[i] > t->batch)
			t->batch = c->dims[i];
	}
	return true;
}

/* ---- inputs ---- */

/* With a negative or zero operand these ops give NaN or infinity, which hide differences. */
bool trial_is_positive(const struct ir_func *f, struct ir_value v)
{
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it)) {
		const struct ir_op *op = it.op;
		bool base = op->code == OP_log || op->code == OP_sqrt || op->code == OP_rsqrt ||
		            op->code == OP_pow;
		if ((base && ir_same_value(op->operands[0], v)) ||
		    (op->code == OP_div && ir_same_value(op->operands[OPERAND(div, b)], v)))
			return true;
	}
	return false;
}

/* ir_op_visitor: *user, a bool, becomes true if op rounds to 16 or 8 bits. */
static void note_lowp(void *user, const struct ir_op *op)
{
	bool *found = user;
	enum ir_dtype t = op->code == OP_cast ? ((const struct attrs_cast *)op->attrs)->dtype : DT_F32;
	bool has_dots = op->code == OP_attention &&
	                ((const struct attrs_attention *)op->attrs)->factors == FACTORS_bf16;
	*found = *found || has_dots || t == DT_F16 || t == DT_BF16 || t == DT_I8 ||
	         op->code == OP_quantize_rows;
}

bool trial_uses_lowp(const struct ir_module *m)
{
	bool found = false;
	for (size_t i = 0; i < m->funcs.n; i++)
		ir_visit_ops(m->funcs.items[i]->body, note_lowp, &found);
	return found;
}

static double float_value(struct random *r, bool positive)
{
	double v = random_normal(r);
	return positive ? 0.5 + fabs(v) : v;
}

/* Lengths in [0, most]: full for the first sequence, 0 for the second, random for others. */
static double count_value(struct random *r, int64_t i, int64_t most, bool is_full)
{
	if (is_full || i == 0)
		return (double)most;
	return i == 1 ? 0 : (double)random_below(r, most + 1);
}

/* Draws the elements of an input within its bounds: ids, lengths, floats (positive where an op requires it), or
 * small integers. False: its bound overflows. */
static bool fill_input(struct random *r, const struct ir_func *f, const struct ir_param *p,
                       const int64_t *dims, bool is_full, struct interp_tensor *t)
{
	bool positive = trial_is_positive(f, p->value);
	int64_t most = 0;
	if (p->max != NULL && (!ir_dim_eval(p->max, dims, &most) || most < 0))
		return false;
	for (int64_t i = 0; i < interp_count(t); i++) {
		double v = 0;
		if (p->below > 0)
			v = (double)random_below(r, p->below);
		else if (p->max != NULL)
			v = count_value(r, i, most, is_full);
		else if (ir_dtype_class(t->dtype) == DTCLASS_FLOAT)
			v = float_value(r, positive);
		else
			v = (double)random_below(r, ir_dtype_class(t->dtype) == DTCLASS_BOOL ? 2 : 5);
		t->data[i] = ir_round(t->dtype, v);
	}
	return true;
}

/* Creates the inputs of a call but past, which follows from the calls before it (collect_inputs). is_plain: those with
 * a default get no value; is_full: all lengths are full. */
static bool make_inputs(struct trial *t, const struct ir_func *f, uint64_t seed, bool is_plain, bool is_full,
                        struct trial_call *c)
{
	struct random r = random_seed(seed);
	c->inputs = ARENA_ARRAY(t->arena, struct trial_input, f->n_params + 1);
	for (size_t i = 0; i < f->n_params && c->inputs != NULL; i++) {
		const struct ir_param *p = &f->params[i];
		if (ir_type_of(f, p->value)->kind != IR_TENSOR || p->role == ROLE_PAST)
			continue;
		struct trial_input *in = &c->inputs[c->n_inputs++];
		in->name = arena_strdup(t->arena, p->name);
		if (is_plain && p->has_default)
			continue;
		if (!interp_tensor_make(t->arena, ir_type_of(f, p->value), c->dims, &in->value) ||
		    !fill_input(&r, f, p, c->dims, is_full, &in->value))
			return false;
	}
	return c->inputs != NULL;
}

static struct trial_call *add_call(struct trial *t, const struct ir_func *f, bool starts)
{
	struct trial_call *c = ARENA_PUSH(t->arena, &t->calls);
	if (c != NULL)
		*c = (struct trial_call){.func = arena_strdup(t->arena, f->name), .starts = starts};
	return c;
}

/* Adds CALLS calls of a function without state, in several sizes; one omits inputs with defaults. Seeds differ, so
 * that no two calls have the same inputs. */
static bool add_calls(struct trial *t, const struct ir_module *m, const struct ir_func *f)
{
	for (int i = 0; i < CALLS; i++) {
		struct trial_call *c = add_call(t, f, true);
		if (c == NULL || !choose_dims(t, m, f, call_sizes[i][0], call_sizes[i][1], i % 2, c) ||
		    !make_inputs(t, f, (uint64_t)i * 977 + 1, i == 3, false, c))
			return false;
	}
	return true;
}

/* A session of `batch` sequences: every function that only writes state, then prefill and steps of f. Each call
 * has a seed of its own; every second step has full lengths. Cases are not called: calls of their base select
 * them. */
static bool add_session(struct trial *t, const struct ir_module *m, const struct ir_func *f, int64_t batch)
{
	bool starts = true;
	uint64_t seed = (uint64_t)batch * 331 + 7;
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *g = m->funcs.items[i];
		if (g->when != NULL)
			continue;
		struct trial_call *c = has_state(g) && !has_past(g) && g != f ? add_call(t, g, starts) : NULL;
		if (c == NULL)
			continue;
		starts = false;
		if (!choose_dims(t, m, g, batch, 6, 0, c) || !make_inputs(t, g, seed + i, false, false, c))
			return false;
	}
	for (int i = 0; i <= STEPS; i++) {
		struct trial_call *c = add_call(t, f, starts);
		starts = false;
		if (c == NULL || !choose_dims(t, m, f, batch, session_tokens[i], 0, c) ||
		    !make_inputs(t, f, seed + 100 + (uint64_t)i, false, i % 2 == 1, c))
			return false;
	}
	return true;
}

/* Functions with state get a session of one sequence and one of three. A case has no call: calls of its base select
 * it. */
enum tfmc_status trial_make(struct trial *t, struct arena *arena, const struct weight_source *weights,
                            const struct ir_module *m)
{
	*t = (struct trial){.arena = arena, .weights = weights, .batch = 1};
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *f = m->funcs.items[i];
		bool ok = true;
		if (f->when != NULL)
			continue; /* a case: calls of its base select it */
		if (!has_state(f))
			ok = add_calls(t, m, f);
		for (int64_t batch = 1; batch <= 3 && has_state(f); batch += 2)
			ok = ok && add_session(t, m, f, batch);
		if (!ok)
			return TFMC_NO_MEMORY;
	}
	return arena_failed(arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- execution ---- */

/* State lives from a call that begins a session to the next one; temporaries until the end of the execution. */

#define TRIAL_TENSORS_MAX 64

struct execution {
	const struct trial *t;
	struct diag_context *cx;
	const struct ir_module *m;
	const struct trial_mode *mode;
	struct arena scratch;
	struct interp_state *state;
	struct interp_tensor past; /* data NULL: zero */
	struct arena *arena;
	struct trial_outputs *out;
};

/* The function for a call: a case whose conditions hold, else the base. */
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

/* Inputs of f in the order of its parameters, without states; one that is omitted has no data (its default). past is
 * that of the previous call, 0 for sequences that it did not have and after the begin of a session. */
static enum tfmc_status collect_inputs(struct execution *x, const struct ir_func *f,
                                       const struct trial_call *c, struct interp_tensor *in)
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

/* Adds a copy of a result to the outputs. False without memory. */
static bool store_output(struct execution *x, const char *name, size_t call, const struct interp_tensor *from)
{
	struct trial_output *o = ARENA_PUSH(x->arena, x->out);
	struct interp_tensor copy;
	if (o == NULL || !interp_tensor_copy(x->arena, from, &copy))
		return false;
	*o = (struct trial_output){arena_strdup(x->arena, name),
	                           arena_strdup(x->arena, x->t->calls.items[call].func), call, copy};
	return true;
}

/* Stores the results of a call that are tensors; past, which has no name of its own, is also kept for the next call.
 */
static enum tfmc_status store_results(struct execution *x, const struct ir_func *f, size_t call,
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
		if (!store_output(x, r->name != NULL ? r->name : "past", call, &results[n]))
			return TFMC_NO_MEMORY;
		n++;
	}
	return TFMC_OK;
}

/* Executes one call on the module of x. A call that starts a session drops past and creates the state anew, for the
 * largest batch of the trial: all calls of a session share it. */
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
	TFMC_TRY(collect_inputs(x, f, c, in));
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
	return store_results(x, f, number, results);
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

/* A result with equal infinities or NaN at the same places does not differ there (interp_abs_diff). */
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
