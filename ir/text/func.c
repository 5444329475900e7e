/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions: the signature with properties of parameters and results, the case, and the body.
 *
 *   func @f(%x: i32[B,S] {below=51 lengths=%n}, %n: i32[B] {default=S max=S}) -> (y: f32[B,S,8]) arena=64*S {
 */
#include "ir/core/case.h"
#include "ir/text/parser.h"

#include <string.h>

struct parsed_param {
	struct ir_param param;
	const struct ir_type *type;
	struct tok name;
	struct tok lengths; /* kind TOK_END: none */
};

struct parsed_result {
	struct ir_result result;
	const struct ir_type *type;
	struct loc at;
};

struct signature {
	struct tok name;
	struct {
		struct parsed_param *items;
		size_t n, cap;
	} params;
	struct {
		struct parsed_result *items;
		size_t n, cap;
	} results;
	struct ir_case when; /* when.of NULL: not a case */
	const struct ir_dim *arena;
	struct ir_loc loc;
};

/* ---- parameters ---- */

static bool parse_role(struct parser *p, enum ir_param_role *out)
{
	static const char *const words[] = {"past"};
	int i;
	*out = ROLE_PAST;
	return parse_one_of(p, "a role", "role", words, TFMC_COUNT(words), &i);
}

static bool parse_property(struct parser *p, struct parsed_param *out)
{
	static const char *const words[] = {"role", "below", "lengths", "default", "fill", "max"};
	struct tok t;
	if (!parse_token(p, TOK_WORD, "a property or '}'", &t) || !parse_expect(p, '='))
		return false;
	if (strcmp(t.text, "role") == 0)
		return parse_role(p, &out->param.role);
	if (strcmp(t.text, "below") == 0)
		return parse_int(p, &out->param.below) &&
		       (out->param.below > 0 ||
		        parse_fail(p, t.loc, DIAG_TIR_SYNTAX, "below must be positive"));
	if (strcmp(t.text, "lengths") == 0)
		return parse_token(p, TOK_VALUE, "%name", &out->lengths);
	if (strcmp(t.text, "default") == 0) {
		out->param.has_default = true;
		return parse_dim(p, &out->param.default_value);
	}
	if (strcmp(t.text, "fill") == 0) {
		out->param.has_default = true;
		return parse_float(p, &out->param.fill);
	}
	if (strcmp(t.text, "max") == 0)
		return parse_dim(p, &out->param.max);
	return parse_unknown(p, &t, "property", words, TFMC_COUNT(words));
}

static bool parse_param(struct parser *p, struct parsed_param *out)
{
	out->param.lengths = -1;
	out->param.loc.at = p->tok.loc;
	if (!parse_token(p, TOK_VALUE, "%name", &out->name) || !parse_expect(p, ':') ||
	    !parse_type(p, &out->type))
		return false;
	if (!parse_accept(p, '{'))
		return true;
	while (!parse_at(p, '}'))
		if (!parse_property(p, out))
			return false;
	parse_next(p);
	return true;
}

static bool parse_params(struct parser *p, struct signature *s)
{
	if (!parse_expect(p, '('))
		return false;
	while (!parse_at(p, ')')) {
		struct parsed_param *slot = ARENA_PUSH(&p->arena, &s->params);
		if (slot == NULL || (s->params.n > 1 && !parse_expect(p, ',')) || !parse_param(p, slot))
			return false;
		if (s->params.n > BUILD_LIST_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d parameters",
			                  BUILD_LIST_MAX);
	}
	parse_next(p);
	return true;
}

static bool find_param(struct parser *p, const struct signature *s, const struct tok *name, int *out)
{
	const char **names = ARENA_ARRAY(&p->arena, const char *, s->params.n + 1);
	if (names == NULL)
		return false;
	for (size_t i = 0; i < s->params.n; i++) {
		names[i] = s->params.items[i].name.text;
		if (strcmp(names[i], name->text) == 0) {
			*out = (int)i;
			return true;
		}
	}
	return parse_unknown(p, name, "parameter", names, s->params.n);
}

/* ---- results ---- */

static bool parse_result_property(struct parser *p, const struct signature *s, struct parsed_result *out)
{
	static const char *const words[] = {"role", "lengths"};
	struct tok t, name;
	if (!parse_token(p, TOK_WORD, "a property or '}'", &t) || !parse_expect(p, '='))
		return false;
	if (strcmp(t.text, "role") == 0)
		return parse_role(p, &out->result.role);
	if (strcmp(t.text, "lengths") == 0)
		return parse_token(p, TOK_VALUE, "%name", &name) &&
		       find_param(p, s, &name, &out->result.lengths);
	return parse_unknown(p, &t, "property", words, TFMC_COUNT(words));
}

static bool parse_result(struct parser *p, const struct signature *s, struct parsed_result *out)
{
	out->result.lengths = -1;
	if (p->tok.kind == TOK_STRING || (p->tok.kind == TOK_WORD && lex_peek(&p->lex) == ':')) {
		out->result.name = p->tok.text;
		parse_next(p);
		if (!parse_expect(p, ':'))
			return false;
	}
	out->at = p->tok.loc;
	if (!parse_type(p, &out->type))
		return false;
	if (!parse_accept(p, '{'))
		return true;
	while (!parse_at(p, '}'))
		if (!parse_result_property(p, s, out))
			return false;
	parse_next(p);
	return true;
}

static bool parse_results(struct parser *p, struct signature *s)
{
	if (!parse_expect(p, PUNCT_ARROW) || !parse_expect(p, '('))
		return false;
	while (!parse_at(p, ')')) {
		struct parsed_result *slot = ARENA_PUSH(&p->arena, &s->results);
		if (slot == NULL || (s->results.n > 1 && !parse_expect(p, ',')) || !parse_result(p, s, slot))
			return false;
		if (s->results.n > BUILD_LIST_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d results", BUILD_LIST_MAX);
	}
	parse_next(p);
	return true;
}

/* ---- cases: `case of @base when S = 1, B*S <= 14` ---- */

static bool parse_condition(struct parser *p, struct ir_condition *out)
{
	if (!parse_dim(p, &out->dim))
		return false;
	out->relation = parse_at(p, PUNCT_AT_MOST) ? IR_AT_MOST : IR_EQUAL;
	if (out->relation == IR_EQUAL && !parse_at(p, '='))
		return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "expected '=' or '<=', found '%s'",
		                  p->tok.text);
	parse_next(p);
	return parse_int(p, &out->value);
}

static bool parse_case(struct parser *p, struct ir_case *out)
{
	struct {
		struct ir_condition *items;
		size_t n, cap;
	} list = {0};
	struct tok base;
	if (!parse_accept_word(p, "case"))
		return true;
	if (!parse_expect_word(p, "of") || !parse_token(p, TOK_SYMBOL, "@name", &base) ||
	    !parse_expect_word(p, "when"))
		return false;
	do {
		struct ir_condition *slot = ARENA_PUSH(&p->arena, &list);
		if (slot == NULL || !parse_condition(p, slot))
			return false;
		if (list.n > IR_CONDITIONS_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d conditions",
			                  IR_CONDITIONS_MAX);
	} while (parse_accept(p, ','));
	*out = (struct ir_case){base.text, list.items, list.n};
	return true;
}

/* ---- functions ---- */

static bool parse_signature(struct parser *p, struct signature *s)
{
	s->loc.at = p->tok.loc;
	if (!parse_token(p, TOK_SYMBOL, "@name", &s->name) || !parse_params(p, s) || !parse_results(p, s))
		return false;
	if (!parse_case(p, &s->when))
		return false;
	if (parse_accept_word(p, "arena") && (!parse_expect(p, '=') || !parse_dim(p, &s->arena)))
		return false;
	for (size_t i = 0; i < s->params.n; i++) {
		struct parsed_param *x = &s->params.items[i];
		if (x->lengths.kind == TOK_VALUE && !find_param(p, s, &x->lengths, &x->param.lengths))
			return false;
	}
	return parse_loc(p, &s->loc);
}

static bool define_params(struct parser *p, const struct signature *s)
{
	for (size_t i = 0; i < s->params.n; i++) {
		struct parsed_param *x = &s->params.items[i];
		bool unnamed = strspn(x->name.text, "0123456789") == strlen(x->name.text);
		x->param.name = unnamed ? NULL : x->name.text;
		build_report_at(p->b, x->name.loc);
		struct ir_value v = irb_param(p->b, &x->param, x->type);
		if (irb_failed(p->b) || !parse_define(p, &x->name, v))
			return false;
	}
	return true;
}

/* The returned values have the types of the signature. */
static bool check_return(struct parser *p, const struct signature *s, const struct parse_values *ends)
{
	if (ends->n != s->results.n)
		return parse_fail(p, build_at(p->b), DIAG_IR_TYPE,
		                  "the function has %zu results, %zu are returned", s->results.n, ends->n);
	for (size_t i = 0; i < ends->n; i++) {
		const struct ir_type *got = irb_type(p->b, ends->items[i]);
		const struct ir_type *want = s->results.items[i].type;
		if (got != want)
			return parse_fail(p, s->results.items[i].at, DIAG_IR_TYPE,
			                  "result %zu is %s, returned is %s", i,
			                  ir_type_to_string(&p->arena, p->m->dims, want),
			                  ir_type_to_string(&p->arena, p->m->dims, got));
	}
	return true;
}

static bool finish_func(struct parser *p, const struct signature *s, const struct parse_values *ends)
{
	struct ir_result *results = ARENA_ARRAY(&p->arena, struct ir_result, s->results.n + 1);
	if (results == NULL || !check_return(p, s, ends))
		return false;
	for (size_t i = 0; i < s->results.n; i++)
		results[i] = s->results.items[i].result;
	return irb_finish(p->b, ends->items, results, ends->n, s->arena) == TFMC_OK;
}

bool parse_func(struct parser *p)
{
	struct signature s = {0};
	struct parse_values ends = {0};
	if (!parse_signature(p, &s) || !parse_expect(p, '{'))
		return false;
	p->b = irb_begin(p->m, p->cx, s.name.text, s.loc);
	if (p->b == NULL || irb_failed(p->b))
		return false;
	irb_set_literal(p->b, true);
	if (s.when.of != NULL)
		irb_case(p->b, &s.when);
	bool ok = define_params(p, &s) && parse_body(p, OP_return, &ends, NULL) && finish_func(p, &s, &ends);
	parse_scope_end(p, 0);
	return ok;
}
