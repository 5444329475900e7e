/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of operators of the graph level: arguments are matched to the signatures of calls.def and read with a
 * type.
 * signature_of() gives the number of a row of calls.def, which is its place in `lowerings`, too.
 * call_match() has checked that required arguments are present and put defaults in place of absent ones.
 */
#include <string.h>

#include "frontend/lower/lower.h"
#include "ir/support/strmap.h"

static op_lowering *const lowerings[] = {
#define OPERATOR(name, lowering, doc, args) lower_##lowering,
#define INTERNAL(name, lowering, doc, args) lower_##lowering,
#include "frontend/syntax/calls.def"
};

static bool report_unknown_operator(struct lowering *lw, const struct expr *e)
{
	const char *names[TFMC_COUNT(lowerings)];
	const struct signature *s;
	size_t n = 0;
	for (; (s = signature_at(CALL_OPERATOR, n)) != NULL; n++)
		names[n] = s->name;
	return lower_fail(lw, e->loc, DIAG_UNKNOWN_NAME, "no operator is called '%s'%s", e->text,
	                  did_you_mean_or_known(lw->arena, e->text, names, n));
}

bool lower_call(struct lowering *lw, const struct expr *e, struct lowered *out)
{
	size_t number;
	const struct signature *s = signature_of(CALL_OPERATOR | CALL_INTERNAL, e->text, &number);
	if (s == NULL)
		return report_unknown_operator(lw, e);
	struct call c;
	return call_match(lw, e, s, &c) && lowerings[number](&c, out) && !irb_failed(lw->b);
}

bool call_match(struct lowering *lw, const struct expr *e, const struct signature *signature,
                struct call *out)
{
	struct signature_use use = {lw->arena, lw->cx, e->loc.line != 0 ? e->loc : lw->loc.at, lw->loc.path};
	*out = (struct call){lw, e, signature, signature_match_call(&use, signature, e)};
	return out->values != NULL;
}

const struct expr *call_written(const struct expr *e, const char *name)
{
	size_t number;
	const struct signature *s = signature_of(CALL_OPERATOR | CALL_INTERNAL, e->text, &number);
	int at = s == NULL ? -1 : signature_find(s, name);
	for (size_t i = 0; i < e->n_keywords; i++)
		if (strcmp(e->keywords[i].name, name) == 0)
			return e->keywords[i].value;
	return at >= 0 && (size_t)at < e->n_args ? e->args[at] : NULL;
}

/* c->values has the default of an absent argument. NULL only for the default NONE of calls.def; a null that the
 * caller has written is passed on, and the operator reads it as `none` or rejects it. */
const struct expr *call_arg(const struct call *c, const char *name)
{
	int at = signature_find(c->signature, name);
	bool is_absent =
	        at < 0 || (c->values[at] == c->signature->args[at].def && c->values[at]->kind == EX_NONE);
	return is_absent ? NULL : c->values[at];
}

/* ---- extraction ---- */

/* As call_arg; reports an internal error if the signature declares another type than the lowering reads. */
#define TYPE(id) (1u << ARGUMENT_##id)
static const struct expr *typed_arg(const struct call *c, const char *name, unsigned types)
{
	int at = signature_find(c->signature, name);
	if (at < 0 || (types >> c->signature->args[at].type & 1u) == 0)
		lower_fail(c->lw, c->e->loc, DIAG_INTERNAL, "'%s' of %s is read as another type", name,
		           c->signature->name);
	return call_arg(c, name);
}

/* A name that is bound to nothing has been lowered to a string: it is an unknown value here. */
bool call_tensor(const struct call *c, const char *name, struct ir_value *out)
{
	const struct expr *e = typed_arg(c, name, TYPE(TENSOR));
	struct lowered v;
	if (e == NULL || !lower_expr(c->lw, e, &v))
		return false;
	if (v.kind == LOWERED_TENSOR) {
		*out = v.v;
		return true;
	}
	if (e->kind == EX_NAME)
		return lower_fail(c->lw, e->loc, DIAG_UNKNOWN_VALUE, "no value is called '%s' here", e->text);
	return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE, "'%s' of %s wants a tensor", name, c->e->text);
}

/* Lowers an argument that must not be a tensor; *given: it is present or has a default. False after a report. */
static bool scalar_arg(const struct call *c, const char *name, unsigned types, struct lowered *v, bool *given)
{
	const struct expr *e = typed_arg(c, name, types);
	*given = e != NULL;
	if (e == NULL)
		return true;
	if (!lower_expr(c->lw, e, v))
		return false;
	if (v->kind == LOWERED_SCALAR)
		return true;
	return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE, "'%s' of %s wants a number or word, found a tensor",
	                  name, c->e->text);
}

bool call_int(const struct call *c, const char *name, int64_t *out)
{
	struct lowered v;
	bool given;
	if (!scalar_arg(c, name, TYPE(INT) | TYPE(VALUE), &v, &given))
		return false;
	return !given || expr_require_int(&c->lw->env, call_arg(c, name)->loc, name, &v.s, out);
}

bool call_float(const struct call *c, const char *name, double *out)
{
	struct lowered v;
	bool given;
	if (!scalar_arg(c, name, TYPE(FLOAT) | TYPE(NUMBERS), &v, &given))
		return false;
	return !given || expr_require_float(&c->lw->env, call_arg(c, name)->loc, name, &v.s, out);
}

bool call_bool(const struct call *c, const char *name, bool *out)
{
	struct lowered v;
	bool given;
	if (!scalar_arg(c, name, TYPE(BOOL), &v, &given))
		return false;
	return !given || expr_require_bool(&c->lw->env, call_arg(c, name)->loc, name, &v.s, out);
}

/* A word or a string. A bare name is taken as written, so that a param of that name does not change the meaning of a
 * word; absent without a default: *out stays. False after a report. */
bool call_word(const struct call *c, const char *name, const char **out)
{
	const unsigned words = TYPE(WORD) | TYPE(PATH) | TYPE(TEXT);
	const struct expr *e = typed_arg(c, name, words);
	struct lowered v;
	bool given;
	if (e != NULL && e->kind == EX_NAME) { /* a word takes precedence over a param of this name */
		*out = e->text;
		return true;
	}
	if (!scalar_arg(c, name, words, &v, &given))
		return false;
	if (!given)
		return true;
	if (v.s.kind != VALUE_STRING)
		return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE, "'%s' of %s wants a word or a string", name,
		                  c->e->text);
	*out = v.s.s;
	return true;
}

/* Reads a shape: one size, or a list of them. A size of -1 is no request to infer it, as in NumPy. */
bool call_dims(const struct call *c, const char *name, int *rank, const struct ir_dim **dims)
{
	const struct expr *e = typed_arg(c, name, TYPE(SHAPE));
	if (e == NULL)
		return false;
	size_t n = e->kind == EX_LIST ? e->n_args : 1;
	if (n > IR_RANK_MAX)
		return lower_fail(c->lw, e->loc, DIAG_LIMIT, "more than %d axes", IR_RANK_MAX);
	for (size_t i = 0; i < n; i++) {
		const struct expr *item = e->kind == EX_LIST ? e->args[i] : e;
		struct value v;
		const struct ir_dim *d;
		if (!expr_eval(&c->lw->env, item, &v) ||
		    !expr_require_dim(&c->lw->env, item->loc, name, &v, &d))
			return false;
		if (ir_dim_lo(c->lw->m->scope.dims, d) < 0)
			return lower_fail(c->lw, item->loc, DIAG_SHAPE,
			                  v.kind == VALUE_INT
			                          ? "the axis %lld: write the size, none is inferred"
			                          : "an axis may be negative (%lld)",
			                  (long long)ir_dim_lo(c->lw->m->scope.dims, d));
		dims[i] = lower_dim(c->lw, d);
	}
	*rank = (int)n;
	return true;
}

/* An axis in [0, rank): negative ones count from the end, as in NumPy. False after a report. */
bool call_axis(const struct call *c, const char *name, int rank, int64_t *axis)
{
	if (!call_int(c, name, axis))
		return false;
	if (*axis < -rank || *axis >= rank)
		return lower_fail(c->lw, c->e->loc, DIAG_SHAPE, "%s: axis %lld of a tensor with %d axes",
		                  c->e->text, (long long)*axis, rank);
	*axis += *axis < 0 ? rank : 0;
	return true;
}

const struct ir_type *call_type(const struct call *c, struct ir_value v)
{
	return irb_type(c->lw->b, v);
}

bool call_return(const struct call *c, struct lowered *out, struct ir_value v)
{
	*out = lowered_tensor(v);
	return !irb_failed(c->lw->b);
}

/* True if the dim d contains the tokens of a call, also inside of a quotient or maximum. sym: that dim, not constant,
 * of which the first factor of the first term identifies it. */
static bool dim_depends_on(const struct ir_dim *d, const struct ir_dim *sym)
{
	if (d == sym)
		return true;
	for (size_t i = 0; i < d->n_terms; i++) {
		for (size_t k = 0; k < d->terms[i].n_atoms; k++) {
			const struct ir_dim_atom *a = d->terms[i].atoms[k];
			const struct ir_dim_atom *s = sym->terms[0].atoms[0];
			if (a == s || (a->of != NULL && dim_depends_on(a->of, sym)) ||
			    (a->other != NULL && dim_depends_on(a->other, sym)))
				return true;
		}
	}
	return false;
}

/* lw->grows is the number of tokens of a call (decode alone): an axis that depends on it lacks the positions of
 * earlier calls, so no operator may mix along it. Axes of the source are complete, but padded. */
bool call_mixes_axis(const struct call *c, struct ir_value *x, int64_t axis, enum call_fill fill)
{
	const struct ir_type *t = irb_type(c->lw->b, *x);
	const struct ir_dim *grows = c->lw->grows;
	if (grows == NULL || t == NULL ||
	    axis >= t->rank) /* the builder reports an axis that does not exist */
		return true;
	/* a constant number of tokens does not tell which axes have them */
	if (ir_dim_is_const(grows, NULL) || !dim_depends_on(t->dims[axis], grows))
		return !lower_is_source(c->lw, t->dims[axis]) || lower_fill_source(c, x, axis, fill);
	return lower_fail(
	        c->lw, c->e->loc, DIAG_GENERATE,
	        "%s mixes positions between tokens and logits of a generating model: axis %lld of %s",
	        c->e->text, (long long)axis, type_to_string(c->lw, *x));
}
