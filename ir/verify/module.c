/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification of declarations: unique names, weights, states, and the
 * signatures of functions.
 */
#include <string.h>

#include "ir/verify/internal.h"

/* Reports the second of two things with one name. */
static void check_unique(struct verifier *v, struct strmap *names, const char *what, const char *name,
                         struct ir_loc loc)
{
	if (name == NULL)
		return;
	if (strmap_has(names, name))
		verify_fail(v, loc, "two %s are named '%s'", what, name);
	if (!strmap_set(names, name, NULL))
		v->n_failed++;
}

static bool is_constant(const struct ir_type *t)
{
	for (int i = 0; i < t->rank; i++)
		if (!ir_dim_is_const(t->dims[i], NULL))
			return false;
	return true;
}

static void verify_weight(struct verifier *v, const struct ir_weight *w)
{
	if (w->type == NULL || w->type->kind != IR_TENSOR || !is_constant(w->type)) {
		verify_fail(v, w->loc, "the weight @%s is %s: weights have constant dims", w->name,
		            w->type == NULL ? "without type" : verify_type_text(v, w->type));
		return;
	}
	if (w->encoding == ENC_PANEL16 && w->type->rank < 2)
		verify_fail(v, w->loc, "the weight @%s is %s: panels need two axes", w->name,
		            verify_type_text(v, w->type));
	if (w->format != FORMAT_PLAIN && w->type->dtype != DT_F32)
		verify_fail(v, w->loc, "the weight @%s is %s: only f32 is kept as %s", w->name,
		            verify_type_text(v, w->type), ir_format(w->format)->name);
	if (ir_format_is_quantized(w->format) && w->type->rank < 2)
		verify_fail(v, w->loc, "the weight @%s is %s: %s needs two axes", w->name,
		            verify_type_text(v, w->type), ir_format(w->format)->name);
	if (w->init == NULL)
		return;
	if (w->format != FORMAT_PLAIN && !wexpr_fits_format(w->init, w->format))
		verify_fail(v, w->loc, "the weight @%s is kept as %s, its expression has other numbers",
		            w->name, ir_format(w->format)->name);
	bool same = w->init->rank == w->type->rank;
	for (int i = 0; same && i < w->type->rank; i++)
		same = ir_dim_equals(w->type->dims[i], w->init->dims[i]);
	if (same)
		return;
	struct buf text;
	buf_init(&text);
	for (int i = 0; i < w->init->rank; i++)
		buf_printf(&text, "%s%lld", i > 0 ? "," : "", (long long)w->init->dims[i]);
	verify_fail(v, w->loc, "the weight @%s is %s, its expression has the shape [%s]", w->name,
	            verify_type_text(v, w->type), text.data);
	buf_destroy(&text);
}

static bool is_symbol(const struct ir_dim *d)
{
	return d->n_terms == 1 && d->terms[0].coeff == 1 && d->terms[0].n_atoms == 1 &&
	       d->terms[0].atoms[0]->sym >= 0;
}

static void verify_state(struct verifier *v, const struct ir_state_decl *s)
{
	if (s->type == NULL || s->type->kind != IR_TENSOR || s->type->rank < 1 ||
	    !is_symbol(s->type->dims[0]))
		verify_fail(v, s->loc, "the state @%s is %s: its axis 0 must be a batch dim", s->name,
		            s->type == NULL ? "without type" : verify_type_text(v, s->type));
	else if (s->encoding == ENC_PANEL16 && (s->type->rank < 3 || !ir_dtype_allows_panels(s->type->dtype)))
		verify_fail(v, s->loc, "the state @%s is %s: only matrices of f32, f16 and bf16 are #panel16",
		            s->name, verify_type_text(v, s->type));
}

void verify_declarations(struct verifier *v)
{
	struct strmap weights, states, funcs;
	strmap_init(&weights, &v->arena);
	strmap_init(&states, &v->arena);
	strmap_init(&funcs, &v->arena);
	for (size_t i = 0; i < v->m->weights.n; i++) {
		check_unique(v, &weights, "weights", v->m->weights.items[i]->name,
		             v->m->weights.items[i]->loc);
		verify_weight(v, v->m->weights.items[i]);
	}
	for (size_t i = 0; i < v->m->states.n; i++) {
		check_unique(v, &states, "states", v->m->states.items[i]->name, v->m->states.items[i]->loc);
		verify_state(v, v->m->states.items[i]);
	}
	for (size_t i = 0; i < v->m->funcs.n; i++)
		check_unique(v, &funcs, "functions", v->m->funcs.items[i]->name, v->m->funcs.items[i]->loc);
}

/* ---- signatures ---- */

static bool is_counts(const struct ir_type *t)
{
	return t != NULL && t->kind == IR_TENSOR && t->dtype == DT_I32 && t->rank == 1;
}

/* `lengths` of a parameter or result names a parameter i32[B]. */
static void verify_lengths(struct verifier *v, int lengths, const char *of, struct ir_loc loc)
{
	const struct ir_func *f = v->f;
	if (lengths < 0)
		return;
	if ((size_t)lengths >= f->n_params || !is_counts(ir_type_of(f, f->params[lengths].value)))
		verify_fail(v, loc, "the lengths of '%s' are not a parameter i32[B]", of);
}

/* Sizes fill numbers; anything else is one number of the type. */
static bool default_fits(const struct ir_param *p, const struct ir_type *t)
{
	if (t->kind != IR_TENSOR)
		return false;
	switch (ir_dtype_class(t->dtype)) {
	case DTCLASS_BOOL: return p->default_value == NULL && (p->fill == 0.0 || p->fill == 1.0);
	case DTCLASS_INT: return p->default_value != NULL && p->fill == 0.0;
	case DTCLASS_FLOAT: return p->default_value == NULL || p->fill == 0.0;
	}
	return false;
}

static void verify_param(struct verifier *v, const struct ir_param *p)
{
	const struct ir_type *t = ir_type_of(v->f, p->value);
	const char *name = p->name != NULL ? p->name : "";
	bool counts = is_counts(t);
	verify_lengths(v, p->lengths, name, p->loc);
	if (p->role == ROLE_PAST && !counts)
		verify_fail(v, p->loc, "the past length '%s' is %s, not i32[B]", name,
		            verify_type_text(v, t));
	if ((p->below > 0 || p->max != NULL) && (t->kind != IR_TENSOR || t->dtype != DT_I32))
		verify_fail(v, p->loc, "'%s' is %s: only i32 has checked values", name,
		            verify_type_text(v, t));
	if (p->has_default && !default_fits(p, t))
		verify_fail(v, p->loc, "'%s' is %s, which cannot be filled with its default", name,
		            verify_type_text(v, t));
}

static void verify_params(struct verifier *v)
{
	const struct ir_func *f = v->f;
	struct strmap names, states;
	bool state = false;
	strmap_init(&names, &v->arena);
	strmap_init(&states, &v->arena);
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		const struct ir_type *t = ir_type_of(f, p->value);
		check_unique(v, &names, "parameters", p->name, p->loc);
		verify_param(v, p);
		if (t->kind == IR_STATE)
			check_unique(v, &states, "parameters for states", t->state->name, p->loc);
		else if (state)
			verify_fail(v, p->loc, "the parameter '%s' comes after a state",
			            p->name ? p->name : "");
		state = state || t->kind == IR_STATE;
	}
}

void verify_signature(struct verifier *v)
{
	const struct ir_func *f = v->f;
	const struct ir_op *last = f->body->ops[f->body->n_ops - 1];
	struct strmap names;
	verify_params(v);
	strmap_init(&names, &v->arena);
	if (last->n_operands != f->n_results) {
		verify_fail(v, f->loc, "%zu results are declared, %zu are returned", f->n_results,
		            last->n_operands);
		return;
	}
	for (size_t i = 0; i < f->n_results; i++) {
		const struct ir_result *r = &f->results[i];
		const struct ir_type *t = ir_type_of(f, last->operands[i]);
		check_unique(v, &names, "results", r->name, f->loc);
		verify_lengths(v, r->lengths, r->name != NULL ? r->name : "", f->loc);
		if (r->role == ROLE_PAST && !is_counts(t))
			verify_fail(v, f->loc, "the past length among the results is %s, not i32[B]",
			            verify_type_text(v, t));
	}
}
