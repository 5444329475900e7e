/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive-descent parser of expressions and graph statements, one precedence level per call, one token of
 * lookahead. Nesting is counted, so hostile text cannot exhaust the C stack. The first error is reported and sets
 * p->failed, which ends the expression: functions return NULL or false from then on.
 * Plain expressions are values in YAML; graph statements, the other mode, have lists, named arguments and strings in
 * double quotes, too.
 */
#include <string.h>

#include "frontend/syntax/expr.h"
#include "frontend/syntax/func.h"
#include "frontend/syntax/lex.h"
#include "ir/support/utf8.h"

struct parser {
	struct lexer lx;
	struct token tok; /* lookahead, not consumed yet */
	enum expr_mode mode;
	enum diag_code code; /* of syntax errors */
	unsigned depth;
	bool failed;
};

static const struct expr *parse_level(struct parser *p, unsigned level);
static const struct expr *parse_expr(struct parser *p);

/* ---- tokens ---- */

static void advance(struct parser *p)
{
	p->tok = expr_lex_next(&p->lx);
	if (p->tok.kind == TOK_ERROR)
		p->failed = true;
}

static struct loc token_loc(const struct parser *p)
{
	return expr_lex_loc(&p->lx.src, p->tok.offset, p->tok.len == 0 ? 1 : p->tok.len);
}

/* Reports the lookahead as a syntax error, unless one was reported before. Always NULL. */
static const struct expr *report_expected(struct parser *p, const char *expected)
{
	if (!p->failed)
		diag_error(p->lx.cx, token_loc(p), p->code, "expected %s, found %s", expected,
		           expr_lex_describe(p->lx.arena, &p->tok));
	p->failed = true;
	return NULL;
}

static bool at_punct(const struct parser *p, const char *text)
{
	return p->tok.kind == TOK_PUNCT && strcmp(p->tok.text, text) == 0;
}

static bool at_word(const struct parser *p, const char *text)
{
	return p->tok.kind == TOK_NAME && strcmp(p->tok.text, text) == 0;
}

/* Consumes the token if it is this operator or bracket. */
static bool accept(struct parser *p, const char *text)
{
	if (!at_punct(p, text))
		return false;
	advance(p);
	return true;
}

/* Consumes the token, which must be this one; `expected` names it in the message. */
static bool expect(struct parser *p, const char *text, const char *expected)
{
	if (accept(p, text))
		return true;
	report_expected(p, expected);
	return false;
}

/* ---- nodes ---- */

/* NULL, and p->failed: no memory. */
static struct expr *new_expr(struct parser *p, enum expr_kind kind, struct loc loc)
{
	struct expr *e = ARENA_NEW(p->lx.arena, struct expr);
	if (e == NULL) {
		p->failed = true;
		return NULL;
	}
	e->kind = kind;
	e->loc = loc;
	return e;
}

struct args {
	const struct expr **items;
	size_t n, cap;
};

struct keywords {
	struct expr_keyword *items;
	size_t n, cap;
};

/* Appends an argument; e NULL: it failed to parse. */
static void push_arg(struct parser *p, struct args *list, const struct expr *e)
{
	const struct expr **slot = ARENA_PUSH(p->lx.arena, list);
	if (slot == NULL || e == NULL)
		p->failed = true;
	else
		*slot = e;
}

/* Makes a node with arguments. NULL after an error, also one of an argument. */
static const struct expr *make_operation(struct parser *p, enum expr_kind kind, enum expr_op op,
                                         struct loc loc, struct args args)
{
	struct expr *e = new_expr(p, kind, loc);
	if (e == NULL || p->failed)
		return NULL;
	e->op = op;
	e->args = args.items;
	e->n_args = args.n;
	return e;
}

static const struct expr *make_unary(struct parser *p, enum expr_op op, struct loc loc, const struct expr *x)
{
	struct args args = {NULL, 0, 0};
	push_arg(p, &args, x);
	return make_operation(p, EX_UNARY, op, loc, args);
}

static const struct expr *make_binary(struct parser *p, enum expr_op op, struct loc loc, const struct expr *x,
                                      const struct expr *y)
{
	struct args args = {NULL, 0, 0};
	push_arg(p, &args, x);
	push_arg(p, &args, y);
	return make_operation(p, EX_BINARY, op, loc, args);
}

/* Counts one more level; leave_nesting() follows unless it fails. False: EXPR_DEPTH_MAX levels, reported once. */
static bool enter_nesting(struct parser *p)
{
	if (++p->depth <= EXPR_DEPTH_MAX)
		return true;
	if (!p->failed)
		diag_error(p->lx.cx, token_loc(p), DIAG_LIMIT,
		           "the expression is nested deeper than %d levels", EXPR_DEPTH_MAX);
	p->failed = true;
	return false;
}

static void leave_nesting(struct parser *p)
{
	p->depth--;
}

/* ---- primary expressions ---- */

/* Parses an int literal; it has no sign, so it ends at 2^63 - 1. */
static const struct expr *parse_int(struct parser *p)
{
	struct expr *e = new_expr(p, EX_INT, token_loc(p));
	if (p->tok.magnitude > (uint64_t)INT64_MAX) {
		diag_error(p->lx.cx, token_loc(p), DIAG_OVERFLOW, "'%.40s' does not fit into 64 bits",
		           p->tok.text);
		p->failed = true;
		return NULL;
	}
	if (e != NULL)
		e->i = (int64_t)p->tok.magnitude;
	advance(p);
	return e;
}

static const struct expr *parse_float(struct parser *p)
{
	struct expr *e = new_expr(p, EX_FLOAT, token_loc(p));
	if (e != NULL)
		e->f = p->tok.number;
	advance(p);
	return e;
}

/* Parses a string. Double quotes are for graph statements only: in YAML they belong to the scalar. */
static const struct expr *parse_string(struct parser *p)
{
	if (p->tok.kind == TOK_STRING && p->mode == EXPR_PLAIN)
		return report_expected(p, "a string in single quotes");
	struct expr *e = new_expr(p, EX_STRING, token_loc(p));
	if (e != NULL)
		e->text = p->tok.text;
	advance(p);
	return e;
}

/* Parses NAME = VALUE. Returns false and restores the position if no `=` follows the name, since the name then begins
 * an ordinary argument; true also after an error. The parser is copied as a whole: a lexer has no other state. */
static bool parse_keyword(struct parser *p, struct keywords *list)
{
	struct parser before = *p;
	struct loc loc = token_loc(p);
	const char *name = p->tok.text;
	if (p->mode != EXPR_GRAPH || p->tok.kind != TOK_NAME)
		return false;
	advance(p);
	if (p->failed || !accept(p, "=")) {
		if (!p->failed)
			*p = before;
		return p->failed;
	}
	for (size_t i = 0; i < list->n; i++) {
		if (strcmp(list->items[i].name, name) == 0) {
			diag_error(p->lx.cx, loc, DIAG_ARGUMENTS, "the argument '%.63s' is given twice",
			           name);
			p->failed = true;
			return true;
		}
	}
	struct expr_keyword *k = ARENA_PUSH(p->lx.arena, list);
	const struct expr *value = parse_expr(p);
	if (k == NULL || value == NULL)
		p->failed = true;
	else
		*k = (struct expr_keyword){name, loc, value};
	return true;
}

/* Parses arguments up to and including the closing bracket, named ones after all others. keywords NULL: none are
 * allowed. */
static void parse_args(struct parser *p, const char *close, struct args *args, struct keywords *keywords)
{
	if (accept(p, close))
		return;
	while (!p->failed) {
		if (keywords == NULL || !parse_keyword(p, keywords)) {
			if (keywords != NULL && keywords->n != 0) {
				report_expected(p, "a named argument after named arguments");
				return;
			}
			push_arg(p, args, parse_expr(p));
		}
		if (p->failed || accept(p, close))
			return;
		if (!expect(p, ",", close[0] == ')' ? "',' or ')'" : "',' or ']'"))
			return;
	}
}

/* Parses the arguments of a call, from its '('. Plain expressions know only functions of calls.def, which are matched
 * to their signatures when they are evaluated; calls of graph statements are matched when they are lowered. */
static const struct expr *parse_call(struct parser *p, const struct token *name, struct loc loc)
{
	struct args args = {NULL, 0, 0};
	struct keywords keywords = {NULL, 0, 0};
	if (p->mode == EXPR_PLAIN && !expr_is_function(name->text)) {
		diag_error(p->lx.cx, loc, DIAG_UNKNOWN_NAME, "there is no function '%.63s'%s", name->text,
		           expr_suggest_function(p->lx.arena, name->text));
		p->failed = true;
		return NULL;
	}
	advance(p);
	parse_args(p, ")", &args, &keywords);
	struct expr *e = new_expr(p, EX_CALL, loc);
	if (e == NULL || p->failed)
		return NULL;
	e->text = name->text;
	e->args = args.items;
	e->n_args = args.n;
	e->keywords = keywords.items;
	e->n_keywords = keywords.n;
	return e;
}

/* Parses a name, a call, or a word that is a value: true, false, null. A name of an operator is no value. */
static const struct expr *parse_name(struct parser *p)
{
	struct token name = p->tok;
	struct loc loc = token_loc(p);
	struct expr *e = new_expr(p, EX_NAME, loc);
	if (e == NULL)
		return NULL;
	advance(p);
	if (at_punct(p, "("))
		return parse_call(p, &name, loc);
	e->text = name.text;
	if (strcmp(name.text, "true") == 0 || strcmp(name.text, "false") == 0) {
		e->kind = EX_BOOL;
		e->i = name.text[0] == 't';
	} else if (strcmp(name.text, "null") == 0 || strcmp(name.text, "~") == 0) {
		e->kind = EX_NONE;
	} else if (strcmp(name.text, "and") == 0 || strcmp(name.text, "or") == 0 ||
	           strcmp(name.text, "not") == 0) {
		p->tok = name;
		return report_expected(p, "a value");
	}
	return e;
}

/* Parses a list, which only graph statements have; in YAML lists are sequences. */
static const struct expr *parse_list(struct parser *p)
{
	struct args args = {NULL, 0, 0};
	struct loc loc = token_loc(p);
	if (p->mode == EXPR_PLAIN)
		return report_expected(p, "a value");
	advance(p);
	parse_args(p, "]", &args, NULL);
	return make_operation(p, EX_LIST, EXPR_OR, loc, args); /* the operator of a list is not read */
}

/* Parses ( E ) and marks E, so that printing keeps the parentheses. */
static const struct expr *parse_parentheses(struct parser *p)
{
	advance(p);
	struct expr *e = (struct expr *)parse_expr(p);
	if (e == NULL || !expect(p, ")", "')'"))
		return NULL;
	e->parenthesized = true;
	return e;
}

/* Parses an operand without operators and indices. */
static const struct expr *parse_primary(struct parser *p)
{
	switch (p->tok.kind) {
	case TOK_INT: return parse_int(p);
	case TOK_FLOAT: return parse_float(p);
	case TOK_NAME: return parse_name(p);
	case TOK_STRING:
	case TOK_SINGLE: return parse_string(p);
	case TOK_PUNCT:
		if (at_punct(p, "("))
			return parse_parentheses(p);
		if (at_punct(p, "["))
			return parse_list(p);
		if (at_punct(p, "+"))
			return report_expected(p, "a value (a number has no '+' sign)");
		return report_expected(p, "a value");
	case TOK_END:
	case TOK_ERROR: return report_expected(p, "a value");
	}
	return NULL;
}

/* Parses an operand and the indices after it; a plain expression has one index each. */
static const struct expr *parse_postfix(struct parser *p)
{
	const struct expr *e = parse_primary(p);
	while (e != NULL && !p->failed && at_punct(p, "[")) {
		struct args args = {NULL, 0, 0};
		struct loc loc = token_loc(p);
		push_arg(p, &args, e);
		advance(p);
		parse_args(p, "]", &args, NULL);
		if (!p->failed && p->mode == EXPR_PLAIN && args.n != 2) {
			diag_error(p->lx.cx, loc, p->code, "a list is read with one index");
			p->failed = true;
		}
		e = make_operation(p, EX_INDEX, EXPR_OR, loc, args); /* nor is that of an index */
	}
	return p->failed ? NULL : e;
}

/* ---- operators ---- */

static const struct expr *parse_unary(struct parser *p);

/* Parses x ** y: right associative, binding stronger than a sign before x; the exponent may have a sign: 2 ** -1. */
static const struct expr *parse_power(struct parser *p)
{
	const struct expr *base = parse_postfix(p);
	struct loc loc = token_loc(p);
	if (base == NULL || !accept(p, "**"))
		return base;
	if (!enter_nesting(p))
		return NULL;
	const struct expr *exponent = parse_unary(p);
	leave_nesting(p);
	return exponent == NULL ? NULL : make_binary(p, EXPR_POW, loc, base, exponent);
}

/* Parses the digits of -9223372036854775808 after the sign, since 2^63 alone does not fit into int64. NULL
 * without an error: another operand follows. */
static const struct expr *parse_int64_min(struct parser *p, struct loc loc)
{
	struct parser before = *p;
	if (p->tok.kind != TOK_INT || p->tok.magnitude != (uint64_t)INT64_MAX + 1)
		return NULL;
	advance(p);
	/* -X ** 2 is -(X ** 2), so this X is no literal with a sign. */
	if (p->failed || at_punct(p, "**") || at_punct(p, "[")) {
		*p = before;
		return NULL;
	}
	struct expr *e = new_expr(p, EX_INT, loc);
	if (e != NULL)
		e->i = INT64_MIN;
	return e;
}

/* Parses a sign and its operand; ** binds stronger. */
static const struct expr *parse_unary(struct parser *p)
{
	struct loc loc = token_loc(p);
	if (!accept(p, "-"))
		return parse_power(p);
	const struct expr *e = parse_int64_min(p, loc);
	if (e != NULL || p->failed || !enter_nesting(p))
		return e;
	const struct expr *x = parse_unary(p);
	leave_nesting(p);
	return x == NULL ? NULL : make_unary(p, EXPR_NEG, loc, x);
}

struct operator_row {
	const char *text;
	unsigned level;
	enum expr_op op;
};

enum { LEVEL_OR, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE, LEVEL_SUM, LEVEL_PRODUCT, LEVEL_UNARY };

static const struct operator_row operators[] = {
        {"or", LEVEL_OR, EXPR_OR},
        {"and", LEVEL_AND, EXPR_AND},
        {"==", LEVEL_COMPARE, EXPR_EQ},
        {"!=", LEVEL_COMPARE, EXPR_NE},
        {"<", LEVEL_COMPARE, EXPR_LT},
        {"<=", LEVEL_COMPARE, EXPR_LE},
        {">", LEVEL_COMPARE, EXPR_GT},
        {">=", LEVEL_COMPARE, EXPR_GE},
        {"+", LEVEL_SUM, EXPR_ADD},
        {"-", LEVEL_SUM, EXPR_SUB},
        {"*", LEVEL_PRODUCT, EXPR_MUL},
        {"/", LEVEL_PRODUCT, EXPR_DIV},
        {"//", LEVEL_PRODUCT, EXPR_FLOORDIV},
        {"%", LEVEL_PRODUCT, EXPR_MOD},
};

/* The operator that the lookahead is on this level; NULL: none. */
static const struct operator_row *operator_at(const struct parser *p, unsigned level)
{
	if (p->tok.kind != TOK_PUNCT && p->tok.kind != TOK_NAME)
		return NULL;
	for (size_t i = 0; i < TFMC_COUNT(operators); i++) {
		if (operators[i].level == level && strcmp(operators[i].text, p->tok.text) == 0)
			return &operators[i];
	}
	return NULL;
}

/* `not` binds weaker than comparisons. */
static const struct expr *parse_not(struct parser *p)
{
	struct loc loc = token_loc(p);
	if (!at_word(p, "not"))
		return parse_level(p, LEVEL_COMPARE);
	advance(p);
	if (p->failed || !enter_nesting(p))
		return NULL;
	const struct expr *x = parse_not(p);
	leave_nesting(p);
	return x == NULL ? NULL : make_unary(p, EXPR_NOT, loc, x);
}

/* Parses a left-associative chain of the operators of one level (precedence climbing): operands are of the next
 * stronger level. Comparisons do not chain: a < b < c would compare a bool. */
static const struct expr *parse_level(struct parser *p, unsigned level)
{
	if (level == LEVEL_UNARY)
		return parse_unary(p);
	if (level == LEVEL_NOT)
		return parse_not(p);
	const struct expr *e = parse_level(p, level + 1);
	for (const struct operator_row *row = operator_at(p, level);
	     e != NULL && row != NULL && !p->failed;) {
		struct loc loc = token_loc(p);
		advance(p);
		const struct expr *right = p->failed ? NULL : parse_level(p, level + 1);
		if (right == NULL)
			return NULL;
		e = make_binary(p, row->op, loc, e, right);
		row = operator_at(p, level);
		if (row != NULL && level == LEVEL_COMPARE) {
			diag_error(p->lx.cx, token_loc(p), p->code,
			           "comparisons do not chain; write 'a < b and b < c'");
			p->failed = true;
			return NULL;
		}
	}
	return p->failed ? NULL : e;
}

static const struct expr *parse_expr(struct parser *p)
{
	if (p->failed || !enter_nesting(p))
		return NULL;
	const struct expr *e = parse_level(p, LEVEL_OR);
	leave_nesting(p);
	return e;
}

/* ---- entry points ---- */

/* Initializes the parser and reads the first token. False after a diagnostic: too long, or a first token that is
 * wrong. */
static bool start_parser(struct parser *p, struct arena *a, struct diag_context *cx, struct expr_source src)
{
	p->lx = (struct lexer){a, cx, src, 0};
	if (utf8_count(src.text, src.len) > EXPR_TEXT_MAX) {
		diag_error(cx, expr_lex_loc(&src, 0, 1), DIAG_LIMIT,
		           "the expression has more than %d characters", EXPR_TEXT_MAX);
		return false;
	}
	advance(p);
	return !p->failed;
}

/* Whether the whole text was parsed without an error. expected: what could follow, for the message. */
static bool finish_parser(struct parser *p, const char *expected)
{
	if (!p->failed && p->tok.kind != TOK_END)
		report_expected(p, expected);
	return !p->failed && !arena_failed(p->lx.arena);
}

const struct expr *expr_parse(struct arena *a, struct diag_context *cx, struct expr_source src,
                              enum expr_mode mode)
{
	struct parser p = {.mode = mode, .code = DIAG_EXPRESSION};
	if (!start_parser(&p, a, cx, src))
		return NULL;
	const struct expr *e = parse_expr(&p);
	return finish_parser(&p, "an operator or the end") ? e : NULL;
}

/* `..` is a token of its own, which no expression has. */
bool expr_parse_range(struct arena *a, struct diag_context *cx, struct expr_source src,
                      const struct expr **lo, const struct expr **hi)
{
	struct parser p = {.mode = EXPR_PLAIN, .code = DIAG_EXPRESSION};
	*hi = NULL;
	if (!start_parser(&p, a, cx, src))
		return false;
	*lo = parse_expr(&p);
	if (!p.failed && accept(&p, ".."))
		*hi = parse_expr(&p);
	return finish_parser(&p, "'..', an operator or the end");
}

/* Parses `return E, E`. */
static void parse_return(struct parser *p, struct expr_statement *st)
{
	struct args values = {NULL, 0, 0};
	advance(p);
	do {
		push_arg(p, &values, parse_expr(p));
	} while (!p->failed && accept(p, ","));
	st->is_return = true;
	st->values = values.items;
	st->n_values = values.n;
}

/* Parses `a, b = E`, with one value: calls may return several. */
static void parse_assignment(struct parser *p, struct expr_statement *st)
{
	struct {
		struct expr_target *items;
		size_t n, cap;
	} targets = {NULL, 0, 0};
	struct args values = {NULL, 0, 0};
	do {
		struct expr_target *t = ARENA_PUSH(p->lx.arena, &targets);
		if (p->tok.kind != TOK_NAME || t == NULL) {
			report_expected(p, "'NAME = EXPRESSION' or 'return EXPRESSION'");
			return;
		}
		if (!expr_is_name(p->tok.text)) {
			diag_error(p->lx.cx, token_loc(p), DIAG_NAME,
			           "'%.80s' is not a name of at most %d characters", p->tok.text,
			           EXPR_NAME_MAX);
			p->failed = true;
			return;
		}
		*t = (struct expr_target){p->tok.text, token_loc(p)};
		advance(p);
	} while (!p->failed && accept(p, ","));
	if (p->failed || !expect(p, "=", "'=' (a statement is 'NAME = EXPRESSION')"))
		return;
	push_arg(p, &values, parse_expr(p));
	st->targets = targets.items;
	st->n_targets = targets.n;
	st->values = values.items;
	st->n_values = values.n;
}

const struct expr_statement *expr_parse_statement(struct arena *a, struct diag_context *cx,
                                                  struct expr_source src)
{
	struct parser p = {.mode = EXPR_GRAPH, .code = DIAG_STATEMENT};
	struct expr_statement *st = ARENA_NEW(a, struct expr_statement);
	if (st == NULL || !start_parser(&p, a, cx, src))
		return NULL;
	st->loc = token_loc(&p);
	if (at_word(&p, "return"))
		parse_return(&p, st);
	else
		parse_assignment(&p, st);
	return finish_parser(&p, "an operator or the end") ? st : NULL;
}
