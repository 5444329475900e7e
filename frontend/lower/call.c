/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of the graph level: the table, argument checking against the
 * signature, typed extraction.
 */
#include <string.h>

#include "frontend/lower/lower.h"

#define NEAR_LISTED 3 /* operators that a message names instead of an unknown one */
#define UNARY_MAX   64
#define N_PRIVATE   3 /* rows at the end of the table that only the compiler writes */

struct op_row {
	const char *name, *signature;
	size_t required;
	op_lowering *lower;
};

static const struct op_row rows[] = {
        {"param", "path shape", 2, lower_param},
        {"const", "value", 1, lower_const},
        {"iota", "n start", 1, lower_iota},
        {"sinusoid", "len dim layout spacing start base", 4, lower_sinusoid},
        {"softcap", "x cap", 2, lower_softcap},
        {"pow", "a b", 2, lower_pair},
        {"minimum", "a b", 2, lower_pair},
        {"maximum", "a b", 2, lower_pair},
        {"clip", "x min max", 1, lower_clip},
        {"leaky_relu", "x slope", 1, lower_leaky_relu},
        {"log10", "x", 1, lower_log10},
        {"where", "c a b", 3, lower_where},
        {"cast", "x dtype", 2, lower_cast},
        {"sum", "x axis keep", 2, lower_reduce},
        {"mean", "x axis keep", 2, lower_reduce},
        {"max", "x axis keep", 2, lower_extreme},
        {"min", "x axis keep", 2, lower_extreme},
        {"argmax", "x axis", 2, lower_argmax},
        {"softmax", "x axis", 1, lower_softmax},
        {"log_softmax", "x axis", 1, lower_softmax},
        {"logsumexp", "x axis keep", 2, lower_logsumexp},
        {"cumsum", "x axis", 2, lower_cumsum},
        {"topk", "x k", 2, lower_topk},
        {"reshape", "x shape", 2, lower_reshape},
        {"transpose", "x perm", 2, lower_transpose},
        {"broadcast", "x shape", 2, lower_broadcast},
        {"concat", "xs axis", 2, lower_concat},
        {"split", "x axis sizes", 3, lower_split},
        {"slice", "x axis begin end step", 4, lower_slice},
        {"pad", "x axis before after value", 2, lower_pad},
        {"frame", "x size hop axis", 3, lower_frame},
        {"gather", "x ids axis", 2, lower_gather},
        {"scatter", "x ids y axis", 3, lower_scatter},
        {"matmul", "a b transpose_a transpose_b", 2, lower_matmul},
        {"einsum", "spec a b", 2, lower_einsum},
        {"linear", "x path out bias act tie first of groups", 3, lower_linear},
        {"expert_linear", "x ids path role experts out bias act", 6, lower_expert_linear},
        {"embed", "ids path vocab dim", 4, lower_embed},
        {"layer_norm", "x path eps bias plus_one", 3, lower_norm},
        {"rms_norm", "x path eps plus_one", 3, lower_norm},
        {"conv1d", "x path out kernel stride padding dilation groups bias", 4, lower_conv1d},
        {"conv2d", "x path out kernel stride padding dilation groups bias", 4, lower_conv2d},
        {"rope", "x pos theta dim layout scaling", 2, lower_rope},
        {"sdpa",
         "q k v causal window prefix scale softcap bias mask lengths sinks cache alibi alibi_scale rel_bias "
         "buckets "
         "max_distance bidirectional cache_len cache_dtype",
         3, lower_sdpa},
        {"expect", "x type", 2, lower_expect},
        {"positions", "x", 1, lower_positions},
        {"mask_rows", "x lengths", 2, lower_mask_rows},
        {"take_rows", "x at", 2, lower_take_rows},
        {"state_put", "name x padded", 2, lower_state_put},
        {"state_get", "name", 1, lower_state_get},
        {"key_lengths", "x", 1, lower_key_lengths},
};

static const struct op_row unary_row = {"", "x", 1, lower_unary};

static const struct op_row *find_row(const char *name)
{
	for (size_t i = 0; lower_unary_name(i) != NULL; i++) {
		if (strcmp(lower_unary_name(i), name) == 0)
			return &unary_row;
	}
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	}
	return NULL;
}

/* Position of a name in a signature, or -1. */
static int position_of(const char *signature, const char *name)
{
	size_t len = strlen(name);
	int at = 0;
	for (const char *p = signature; *p != '\0'; at++) {
		size_t n = strcspn(p, " ");
		if (n == len && strncmp(p, name, len) == 0)
			return at;
		p += n + (p[n] == ' ');
	}
	return -1;
}

static int signature_length(const char *signature)
{
	int n = 1;
	for (const char *p = signature; *p != '\0'; p++)
		n += *p == ' ';
	return n;
}

const struct expr *call_arg(const struct call *c, const char *name)
{
	int at = position_of(c->signature, name);
	if (at >= 0 && (size_t)at < c->e->n_args)
		return c->e->args[at];
	for (size_t i = 0; i < c->e->n_keywords; i++) {
		if (strcmp(c->e->keywords[i].name, name) == 0)
			return c->e->keywords[i].value;
	}
	return NULL;
}

static bool check_arguments(const struct call *c, size_t required)
{
	const struct expr *e = c->e;
	if (e->n_args > (size_t)signature_length(c->signature))
		return lower_fail(c->lw, e->loc, DIAG_ARGUMENTS, "%s has the arguments (%s), found %zu",
		                  e->text, c->signature, e->n_args);
	for (size_t i = 0; i < e->n_keywords; i++) {
		int at = position_of(c->signature, e->keywords[i].name);
		if (at < 0)
			return lower_fail(c->lw, e->keywords[i].loc, DIAG_ARGUMENTS,
			                  "%s has no argument '%s' (%s)", e->text, e->keywords[i].name,
			                  c->signature);
		if ((size_t)at < e->n_args)
			return lower_fail(c->lw, e->keywords[i].loc, DIAG_ARGUMENTS,
			                  "'%s' of %s is given twice", e->keywords[i].name, e->text);
	}
	const char *p = c->signature;
	for (size_t i = 0; i < required; i++) {
		size_t n = strcspn(p, " ");
		const char *name = arena_strndup(c->lw->arena, p, n);
		if (call_arg(c, name) == NULL)
			return lower_fail(c->lw, e->loc, DIAG_MISSING, "%s needs '%s'", e->text, name);
		p += n + (p[n] == ' ');
	}
	return true;
}

/* The few operators of nearly that name, else all of them. */
static bool unknown_operator(struct lowering *lw, const struct expr *e)
{
	const char *names[TFMC_COUNT(rows) + UNARY_MAX];
	size_t n = 0, listed = 0;
	struct buf near;
	for (size_t i = 0; i < TFMC_COUNT(rows) - N_PRIVATE; i++)
		names[n++] = rows[i].name;
	for (size_t i = 0; lower_unary_name(i) != NULL && i < UNARY_MAX; i++)
		names[n++] = lower_unary_name(i);
	buf_init(&near);
	for (const char *name; listed < NEAR_LISTED && (name = nearest_name(e->text, names, n)) != NULL;
	     listed++) {
		buf_printf(&near, "%s'%s'", listed == 0 ? "; did you mean " : " or ", name);
		for (size_t i = 0; i < n; i++) {
			if (names[i] == name)
				names[i] = names[--n];
		}
	}
	buf_str(&near, listed == 0 ? "" : "?");
	lower_fail(lw, e->loc, DIAG_UNKNOWN_NAME, "no operator is called '%s'%s", e->text, near.data);
	buf_clear(&near);
	for (size_t i = 0; listed == 0 && i < n; i++)
		buf_printf(&near, "%s%s", i == 0 ? "" : ", ", names[i]);
	if (listed == 0)
		diag_note(lw->cx, LOC_NONE, "the operators are %s", near.data);
	buf_destroy(&near);
	return false;
}

bool lower_call(struct lowering *lw, const struct expr *e, struct lval *out)
{
	const struct op_row *row = find_row(e->text);
	if (row == NULL)
		return unknown_operator(lw, e);
	struct call c = {lw, e, row->signature};
	return check_arguments(&c, row->required) && row->lower(&c, out) && !irb_failed(lw->b);
}

/* ---- extraction ---- */

bool call_tensor(const struct call *c, const char *name, struct ir_value *out)
{
	const struct expr *e = call_arg(c, name);
	struct lval v;
	if (e == NULL || !lower_expr(c->lw, e, &v))
		return false;
	if (v.kind == LV_TENSOR) {
		*out = v.v;
		return true;
	}
	if (e->kind == EX_NAME)
		return lower_fail(c->lw, e->loc, DIAG_UNKNOWN_VALUE, "no value is called '%s' here", e->text);
	return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE, "'%s' of %s wants a tensor", name, c->e->text);
}

static bool scalar_arg(const struct call *c, const char *name, struct lval *v, bool *given)
{
	const struct expr *e = call_arg(c, name);
	*given = e != NULL;
	if (e == NULL)
		return true;
	if (!lower_expr(c->lw, e, v))
		return false;
	if (v->kind == LV_SCALAR)
		return true;
	return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE, "'%s' of %s wants a number or word, found a tensor",
	                  name, c->e->text);
}

bool call_int(const struct call *c, const char *name, int64_t *out)
{
	struct lval v;
	bool given;
	if (!scalar_arg(c, name, &v, &given))
		return false;
	return !given || expr_want_int(&c->lw->env, call_arg(c, name)->loc, name, &v.s, out);
}

bool call_float(const struct call *c, const char *name, double *out)
{
	struct lval v;
	bool given;
	if (!scalar_arg(c, name, &v, &given))
		return false;
	return !given || expr_want_float(&c->lw->env, call_arg(c, name)->loc, name, &v.s, out);
}

bool call_bool(const struct call *c, const char *name, bool *out)
{
	struct lval v;
	bool given;
	if (!scalar_arg(c, name, &v, &given))
		return false;
	return !given || expr_want_bool(&c->lw->env, call_arg(c, name)->loc, name, &v.s, out);
}

bool call_word(const struct call *c, const char *name, const char **out)
{
	const struct expr *e = call_arg(c, name);
	struct lval v;
	bool given;
	if (e != NULL && e->kind == EX_NAME) { /* a word wins over a param of that name */
		*out = e->text;
		return true;
	}
	if (!scalar_arg(c, name, &v, &given))
		return false;
	if (!given)
		return true;
	if (v.s.kind != VALUE_STRING)
		return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE, "'%s' of %s wants a word or a string", name,
		                  c->e->text);
	*out = v.s.s;
	return true;
}

bool call_dims(const struct call *c, const char *name, int *rank, const struct ir_dim **dims)
{
	const struct expr *e = call_arg(c, name);
	if (e == NULL)
		return false;
	size_t n = e->kind == EX_LIST ? e->n_args : 1;
	if (n > IR_RANK_MAX)
		return lower_fail(c->lw, e->loc, DIAG_LIMIT, "more than %d axes", IR_RANK_MAX);
	for (size_t i = 0; i < n; i++) {
		const struct expr *item = e->kind == EX_LIST ? e->args[i] : e;
		struct value v;
		const struct ir_dim *d;
		if (!expr_eval(&c->lw->env, item, &v) || !expr_want_dim(&c->lw->env, item->loc, name, &v, &d))
			return false;
		if (ir_dim_lo(c->lw->m->dims, d) < 0)
			return lower_fail(c->lw, item->loc, DIAG_SHAPE, "an axis may be negative");
		dims[i] = lower_dim(c->lw, d);
	}
	*rank = (int)n;
	return true;
}

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

static bool depends(const struct ir_dim *d, const struct ir_dim *sym)
{
	if (d == sym)
		return true;
	for (size_t i = 0; i < d->n_terms; i++) {
		for (size_t k = 0; k < d->terms[i].n_atoms; k++) {
			const struct ir_dim_atom *a = d->terms[i].atoms[k];
			const struct ir_dim_atom *s = sym->terms[0].atoms[0];
			if (a == s || (a->of != NULL && depends(a->of, sym)) ||
			    (a->other != NULL && depends(a->other, sym)))
				return true;
		}
	}
	return false;
}

bool call_refuse_mixing(const struct call *c, struct ir_value x, int64_t axis)
{
	const struct ir_type *t = irb_type(c->lw->b, x);
	const struct ir_dim *grows = c->lw->grows;
	if (c->lw->mode != LOWER_DECODE || grows == NULL || t == NULL || axis >= t->rank ||
	    ir_dim_is_const(grows, NULL) || !depends(t->dims[axis], grows))
		return true;
	return lower_fail(
	        c->lw, c->e->loc, DIAG_GENERATE,
	        "%s mixes positions between tokens and logits of a generating model: axis %lld of %s",
	        c->e->text, (long long)axis, type_text(c->lw, x));
}
