/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded calls (trial.h): which functions, which sizes, which inputs. All
 * numbers follow from the position of the call, so a trial of the same module
 * is the same trial.
 */
#include "passes/validate/trial.h"

#include <math.h>

#include "passes/validate/random.h"

#define ROUNDS 5
#define STEPS  5 /* calls of a session after its prefill */

/* Sequences, and tokens of each: the shapes of the rounds. */
static const int64_t rounds[ROUNDS][2] = {{1, 1}, {2, 5}, {3, 7}, {1, 4}, {2, 11}};

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

/* The symbol that is axis 0 of the first parameter or state, -1: none. */
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

/* `extra` makes other symbols than the batch differ from each other. */
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
		int64_t want = (int)i == which ? batch : tokens + (extra != 0 && i % 2 == 0 ? extra : 0);
		want = want > s->hi ? s->hi : want;
		c->dims[i] = want < s->lo ? s->lo : want;
		if ((int)i == which && c->dims[i] > t->batch)
			t->batch = c->dims[i];
	}
	return true;
}

/* ---- inputs ---- */

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

static void see_narrow(void *user, const struct ir_op *op)
{
	bool *found = user;
	enum ir_dtype t = op->code == OP_cast ? ((const struct attrs_cast *)op->attrs)->dtype : DT_F32;
	bool products = op->code == OP_attention &&
	                ((const struct attrs_attention *)op->attrs)->factors == FACTORS_bf16;
	*found = *found || products || t == DT_F16 || t == DT_BF16 || t == DT_I8 || op->code == OP_round_rows;
}

bool trial_is_narrow(const struct ir_module *m)
{
	bool found = false;
	for (size_t i = 0; i < m->funcs.n; i++)
		ir_visit_ops(m->funcs.items[i]->body, see_narrow, &found);
	return found;
}

static double float_value(struct random *r, bool positive)
{
	double v = random_normal(r);
	return positive ? 0.5 + fabs(v) : v;
}

/* Counts in [0, most]: the first sequence is whole, the second one empty, the others are anything. */
static double count_value(struct random *r, int64_t i, int64_t most, bool whole)
{
	if (whole || i == 0)
		return (double)most;
	return i == 1 ? 0 : (double)random_below(r, most + 1);
}

static bool fill(struct random *r, const struct ir_func *f, const struct ir_param *p, const int64_t *dims,
                 bool whole, struct interp_tensor *t)
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
			v = count_value(r, i, most, whole);
		else if (ir_dtype_class(t->dtype) == DTCLASS_FLOAT)
			v = float_value(r, positive);
		else
			v = (double)random_below(r, ir_dtype_class(t->dtype) == DTCLASS_BOOL ? 2 : 5);
		t->data[i] = ir_round(t->dtype, v);
	}
	return true;
}

/* `plain`: counts are left out where they have a default. */
static bool make_inputs(struct trial *t, const struct ir_func *f, uint64_t seed, bool plain, bool whole,
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
		if (plain && p->has_default)
			continue;
		if (!interp_tensor_make(t->arena, ir_type_of(f, p->value), c->dims, &in->value) ||
		    !fill(&r, f, p, c->dims, whole, &in->value))
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

static bool call_alone(struct trial *t, const struct ir_module *m, const struct ir_func *f)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct trial_call *c = add_call(t, f, true);
		if (c == NULL || !choose_dims(t, m, f, rounds[i][0], rounds[i][1], i % 2, c) ||
		    !make_inputs(t, f, (uint64_t)i * 977 + 1, i == 3, false, c))
			return false;
	}
	return true;
}

/* One session of `batch` sequences: every function that only writes, then the steps of f. */
static bool call_session(struct trial *t, const struct ir_module *m, const struct ir_func *f, int64_t batch)
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

enum tfmc_status trial_make(struct trial *t, struct arena *arena, const struct weight_source *weights,
                            const struct ir_module *m)
{
	*t = (struct trial){.arena = arena, .weights = weights, .batch = 1};
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *f = m->funcs.items[i];
		bool ok = true;
		if (f->when != NULL)
			continue; /* calls of its base come to it */
		if (!has_state(f))
			ok = call_alone(t, m, f);
		for (int64_t batch = 1; batch <= 3 && has_state(f); batch += 2)
			ok = ok && call_session(t, m, f, batch);
		if (!ok)
			return TFMC_NO_MEMORY;
	}
	return arena_failed(arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
