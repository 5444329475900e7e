/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading expressions of attributes and type patterns of rules. Variables and
 * dims exist once the match names them; later parts may only use them.
 */
#include "passes/rules/read.h"

#include <string.h>

/* ---- names ---- */

/* Kinds whose value is one number. */
static bool is_number_kind(enum ir_attr_kind kind)
{
	switch (kind) {
	case ATTR_FLOAT:
	case ATTR_INT:
	case ATTR_FLAG:
	case ATTR_KEYWORD: return true;
	case ATTR_DIM:
	case ATTR_DIMS:
	case ATTR_INTS:
	case ATTR_DTYPE:
	case ATTR_WEIGHT: return false;
	}
	return false;
}

static int unknown_variable(struct rule_reader *r, const struct tok *t)
{
	const char *names[RULE_VARS_MAX];
	for (int i = 0; i < r->rule->n_vars; i++)
		names[i] = r->rule->vars[i].name;
	parse_unknown(&r->p, t, "variable", names, (size_t)r->rule->n_vars);
	return -1;
}

int read_variable(struct rule_reader *r, const struct tok *t, bool may_bind, enum ir_attr_kind kind)
{
	struct rule *rule = r->rule;
	for (int i = 0; i < rule->n_vars; i++) {
		enum ir_attr_kind had = rule->vars[i].kind;
		if (strcmp(rule->vars[i].name, t->text) != 0)
			continue;
		if (had == kind || (is_number_kind(had) && is_number_kind(kind)))
			return i;
		parse_fail(&r->p, t->loc, DIAG_TIR_SYNTAX, "$%s holds another kind of attribute", t->text);
		return -1;
	}
	if (!may_bind)
		return unknown_variable(r, t);
	if (rule->n_vars == RULE_VARS_MAX) {
		parse_fail(&r->p, t->loc, DIAG_LIMIT, "a rule has at most %d variables", RULE_VARS_MAX);
		return -1;
	}
	rule->vars[rule->n_vars] =
	        (struct rule_var){.name = arena_strdup(r->arena, t->text), .kind = kind, .is_bound = true};
	return rule->n_vars++;
}

int read_dim(struct rule_reader *r, const struct tok *t, bool may_bind)
{
	struct rule *rule = r->rule;
	for (int i = 0; i < rule->n_dims; i++)
		if (strcmp(rule->dims[i], t->text) == 0)
			return i;
	if (!may_bind) {
		parse_unknown(&r->p, t, "dim", rule->dims, (size_t)rule->n_dims);
		return -1;
	}
	if (rule->n_dims == RULE_DIMS_MAX) {
		parse_fail(&r->p, t->loc, DIAG_LIMIT, "a rule has at most %d dims", RULE_DIMS_MAX);
		return -1;
	}
	rule->dims[rule->n_dims] = arena_strdup(r->arena, t->text);
	return rule->n_dims++;
}

/* ---- expressions ---- */

static const struct rule_expr *node(struct rule_reader *r, struct rule_expr e)
{
	struct rule_expr *copy = ARENA_NEW(r->arena, struct rule_expr);
	if (copy != NULL)
		*copy = e;
	return copy;
}

static bool read_call(struct rule_reader *r, const struct tok *t, const struct rule_expr **out)
{
	const struct rule_expr *x;
	const char *const *names;
	size_t n = rule_call_names(&names);
	int function = parse_find(&r->p, t, "function", names, n);
	if (function < 0 || !parse_expect(&r->p, '(') || !read_expr(r, &x) || !parse_expect(&r->p, ')'))
		return false;
	*out = node(r, (struct rule_expr){.kind = EXPR_CALL, .index = function, .args = {x, NULL}});
	return *out != NULL;
}

static bool read_leaf(struct rule_reader *r, const struct rule_expr **out)
{
	struct tok t = r->p.tok;
	if (t.kind == TOK_VARIABLE) {
		int var = read_variable(r, &t, false, ATTR_FLOAT);
		parse_next(&r->p);
		*out = node(r, (struct rule_expr){.kind = EXPR_VAR, .index = var});
		return var >= 0 && *out != NULL;
	}
	if (t.kind == TOK_WORD && strcmp(t.text, "inf") != 0 && strcmp(t.text, "nan") != 0) {
		parse_next(&r->p);
		if (parse_at(&r->p, '('))
			return read_call(r, &t, out);
		int dim = read_dim(r, &t, false);
		*out = node(r, (struct rule_expr){.kind = EXPR_DIM, .index = dim});
		return dim >= 0 && *out != NULL;
	}
	double number;
	if (!parse_float(&r->p, &number))
		return false;
	*out = node(r, (struct rule_expr){.kind = EXPR_NUMBER, .number = number});
	return *out != NULL;
}

static bool read_factor(struct rule_reader *r, const struct rule_expr **out)
{
	if (!parse_enter(&r->p))
		return false;
	bool ok;
	if (parse_accept(&r->p, '('))
		ok = read_expr(r, out) && parse_expect(&r->p, ')');
	else if (parse_at(&r->p, '-') && lex_peek(&r->p.lex) == '$') {
		const struct rule_expr *x;
		parse_next(&r->p);
		ok = read_factor(r, &x);
		if (ok)
			*out = node(r, (struct rule_expr){.kind = EXPR_CALL,
			                                  .index = rule_call_find("neg"),
			                                  .args = {x}});
	} else {
		ok = read_leaf(r, out);
	}
	parse_leave(&r->p);
	return ok && *out != NULL;
}

static bool read_product(struct rule_reader *r, const struct rule_expr **out)
{
	const struct rule_expr *right;
	if (!read_factor(r, out))
		return false;
	while (parse_accept(&r->p, '*')) {
		if (!read_factor(r, &right))
			return false;
		*out = node(r, (struct rule_expr){.kind = EXPR_MUL, .args = {*out, right}});
	}
	return *out != NULL;
}

bool read_expr(struct rule_reader *r, const struct rule_expr **out)
{
	const struct rule_expr *right;
	if (!read_product(r, out))
		return false;
	while (parse_at(&r->p, '+') || parse_at(&r->p, '-')) {
		enum rule_expr_kind kind = parse_at(&r->p, '+') ? EXPR_ADD : EXPR_SUB;
		parse_next(&r->p);
		if (!read_product(r, &right))
			return false;
		*out = node(r, (struct rule_expr){.kind = kind, .args = {*out, right}});
	}
	return *out != NULL;
}

/* ---- types ---- */

static bool read_elem(struct rule_reader *r, struct rule_type *out)
{
	static const struct {
		const char *name;
		enum rule_elem elem;
	} elems[] = {{"any", ELEM_ANY},
	             {"number", ELEM_NUMBER},
	             {"float", ELEM_FLOAT},
	             {"int", ELEM_INT},
	             {"bool", ELEM_BOOL}};
	const char *names[TFMC_COUNT(elems)];
	struct tok t;
	if (!parse_take(&r->p, TOK_WORD, "any, number, float, int, bool or an element type", &t))
		return false;
	for (size_t i = 0; i < TFMC_COUNT(elems); i++) {
		names[i] = elems[i].name;
		out->elem = elems[i].elem;
		if (strcmp(names[i], t.text) == 0)
			return true;
	}
	out->elem = ELEM_DTYPE;
	return ir_dtype_parse(t.text, strlen(t.text), &out->dtype) ||
	       parse_unknown(&r->p, &t, "element type", names, TFMC_COUNT(elems));
}

static bool read_axis(struct rule_reader *r, struct rule_type *type)
{
	struct tok t = r->p.tok;
	if (type->n == IR_RANK_MAX)
		return parse_fail(&r->p, t.loc, DIAG_LIMIT, "a tensor has at most %d axes", IR_RANK_MAX);
	struct rule_axis *axis = &type->axes[type->n++];
	axis->dim = -1;
	if (t.kind == TOK_NUMBER)
		return parse_int(&r->p, &axis->size);
	if (!parse_take(&r->p, TOK_WORD, "the name of a dim or its size", &t))
		return false;
	axis->dim = read_dim(r, &t, !r->in_into);
	return axis->dim >= 0;
}

bool read_type(struct rule_reader *r, const struct rule_type **out)
{
	struct rule_type *type = ARENA_NEW(r->arena, struct rule_type);
	if (type == NULL || !read_elem(r, type) || !parse_expect(&r->p, '['))
		return false;
	*out = type;
	if (parse_accept(&r->p, ']'))
		return true;
	if (parse_accept(&r->p, PUNCT_RANGE)) {
		type->lead = true;
		if (parse_accept(&r->p, ']'))
			return true;
		if (!parse_expect(&r->p, ','))
			return false;
	}
	do {
		if (!read_axis(r, type))
			return false;
	} while (parse_accept(&r->p, ','));
	return parse_expect(&r->p, ']');
}
