/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of the text form: declarations of a module, weight expressions, functions, the entry ir_parse (op.c has
 * the bodies). Text may be hostile: depth, counts and sizes are limited, and the first error ends the parse. Each
 * parse_* consumes what it is named after; false after a diagnostic, or without one if memory ran out (ir_parse sees
 * that in the arenas). p->tok is the next token, p->m the module, p->b builds the current function.
 */
#include "ir/core/case.h"
#include "ir/core/names.h"
#include "ir/support/number.h"
#include "ir/support/strmap.h"
#include "ir/support/utf8.h"
#include "ir/text/parser.h"
#include "ir/text/text.h"

#include <string.h>

/* ---- weight expressions ---- */

/*
 * Weight expressions (their text is in ir/weights/weight.h). Constructors check shapes. A counted stack parses its
 * element once for each number, with {i} in tensor names replaced by it.
 */

#define PLACEHOLDER "{i}"
#define STACK_MAX   65536

/* An expression, inside of a counted stack if `counts`, for its number i. */
struct wx {
	struct parser *p;
	bool counts;
	int64_t i;
};

static bool parse_expression(struct wx *x, const struct ir_wexpr **out);

/* ---- leaves ---- */

/* `name` with {i} replaced by the number; outside of a counted stack {i} is text. */
static const char *replace_counter(struct wx *x, const char *name)
{
	struct buf text;
	const char *found;
	if (!x->counts || strstr(name, PLACEHOLDER) == NULL)
		return name;
	buf_init(&text);
	while ((found = strstr(name, PLACEHOLDER)) != NULL) {
		buf_bytes(&text, name, (size_t)(found - name));
		buf_printf(&text, "%lld", (long long)x->i);
		name = found + strlen(PLACEHOLDER);
	}
	buf_str(&text, name);
	const char *copy = arena_strdup(&x->p->arena, text.data);
	buf_destroy(&text);
	return copy;
}

/* tensor "file":"name" f32[2,3], or q4[2,64]: a quantized format has no element type. */
static bool parse_tensor(struct wx *x, struct ir_wexpr *e)
{
	struct parser *p = x->p;
	struct tok file, name;
	if (!parse_token(p, TOK_STRING, "the file in quotes", &file) || !parse_expect(p, ':') ||
	    !parse_token(p, TOK_STRING, "the tensor in quotes", &name))
		return false;
	if (parse_at_format(p) ? !parse_format(p, &e->format) : !parse_dtype(p, &e->stored))
		return false;
	e->file = file.text;
	e->tensor = replace_counter(x, name.text);
	return parse_shape(p, &e->rank, e->dims);
}

/* `[1.0,0.1]`: one frequency for each pair of columns, so the table has twice as many columns. */
static bool parse_frequencies(struct parser *p, struct ir_wexpr *e)
{
	struct {
		double *items;
		size_t n, cap;
	} list = {0};
	struct loc at = p->tok.loc;
	if (!parse_expect(p, '['))
		return false;
	do {
		double *slot = ARENA_PUSH(&p->arena, &list);
		if (list.n > WEXPR_FREQUENCIES_MAX)
			return parse_fail(p, at, DIAG_LIMIT, "more than %d frequencies",
			                  WEXPR_FREQUENCIES_MAX);
		if (slot == NULL || !parse_float(p, slot))
			return false;
	} while (parse_accept(p, ','));
	e->frequencies = list.items;
	e->dims[1] = 2 * (int64_t)list.n;
	return parse_expect(p, ']');
}

/* ---- arguments ---- */

struct wexpr_list {
	const struct ir_wexpr **items;
	size_t n, cap;
};

static bool parse_arg(struct wx *x, struct wexpr_list *list)
{
	const struct ir_wexpr **slot = ARENA_PUSH(&x->p->arena, list);
	return slot != NULL && parse_expression(x, slot);
}

/* `i in 0..12, E`: parses E again for each number, with the lexer set back to its beginning. Only one level, since
 * there is one {i}; the bytes that are parsed again are limited for hostile texts. */
static bool parse_counted(struct wx *x, struct wexpr_list *list)
{
	struct parser *p = x->p;
	int64_t from, to;
	struct loc at = p->tok.loc;
	if (!parse_expect_word(p, "i") || !parse_expect_word(p, "in") || !parse_int(p, &from) ||
	    !parse_expect(p, PUNCT_RANGE) || !parse_int(p, &to) || !parse_expect(p, ','))
		return false;
	if (x->counts)
		return parse_fail(p, at, DIAG_TIR_SYNTAX, "a counted stack inside a counted stack");
	if (from < 0 || to <= from || to - from > STACK_MAX)
		return parse_fail(p, at, DIAG_LIMIT, "a stack has 1 to %d elements", STACK_MAX);
	struct lexer begin = p->lex;
	struct tok first = p->tok;
	for (int64_t i = from; i < to; i++) {
		struct wx inner = {p, true, i};
		p->lex = begin;
		p->tok = first;
		if (!parse_arg(&inner, list))
			return false;
		p->n_again += p->lex.pos - begin.pos;
		if (p->n_again > PARSE_AGAIN_MAX)
			return parse_fail(p, at, DIAG_LIMIT, "counted stacks read more than %u bytes",
			                  PARSE_AGAIN_MAX);
	}
	return true;
}

/* Arguments of a weight expression separated by commas; of a stack also `i in 0..12, E`. */
static bool parse_args(struct wx *x, enum ir_wexpr_kind kind, struct wexpr_list *list)
{
	if (kind == WX_STACK && parse_at_word(x->p, "i"))
		return parse_counted(x, list);
	do {
		if (!parse_arg(x, list))
			return false;
	} while (parse_accept(x->p, ','));
	return true;
}

/* ---- fields ---- */

/* The number of an axis, 0..IR_RANK_MAX - 1; wexpr_make checks it against the rank of the argument. */
static bool parse_axis(struct parser *p, int *axis)
{
	int64_t v;
	struct loc at = p->tok.loc;
	if (!parse_int(p, &v))
		return false;
	if (v < 0 || v >= IR_RANK_MAX)
		return parse_fail(p, at, DIAG_SHAPE, "axis %lld does not exist", (long long)v);
	*axis = (int)v;
	return true;
}

static bool parse_key(struct parser *p, const char *key)
{
	return parse_expect_word(p, key) && parse_expect(p, '=');
}

/* One of two words, after `key=` unless key is NULL. */
static bool parse_choice(struct parser *p, const char *key, const char *zero, const char *one, int *out)
{
	const char *const words[] = {zero, one};
	return (key == NULL || parse_key(p, key)) && parse_one_of(p, "a word", "word", words, 2, out);
}

/* One field of a kind, by its letter in kinds.def, into e; expressions go to args. */
static bool parse_field(struct wx *x, char field, struct ir_wexpr *e, struct wexpr_list *args)
{
	struct parser *p = x->p;
	int i = 0;
	bool ok = false;
	switch (field) {
	case 'a': return parse_axis(p, &e->axis);
	case 'b': return parse_int(p, &e->begin);
	case 'e': return parse_int(p, &e->end);
	case 'v': return parse_float(p, &e->value);
	case 'd': return parse_shape(p, &e->rank, e->dims);
	case 't':
		ok = parse_choice(p, NULL, "bf16", "f16", &i);
		e->stored = i == 1 ? DT_F16 : DT_BF16;
		return ok;
	case 'q': return parse_format(p, &e->format);
	case '1': return parse_arg(x, args);
	case '*': return parse_args(x, e->kind, args);
	case 'r': return parse_key(p, "rows") && parse_int(p, &e->dims[0]);
	case 'c': return parse_key(p, "dim") && parse_int(p, &e->dims[1]);
	case 'l':
		ok = parse_choice(p, "layout", "interleaved", "halves", &i);
		e->layout = i == 1 ? SINUSOID_HALVES : SINUSOID_INTERLEAVED;
		return ok;
	case 's':
		ok = parse_choice(p, "spacing", "paper", "t2t", &i);
		e->spacing = i == 1 ? SINUSOID_T2T : SINUSOID_PAPER;
		return ok;
	case 'n': return parse_key(p, "start") && parse_int(p, &e->begin);
	case 'o': return parse_key(p, "base") && parse_float(p, &e->value);
	case 'x': return parse_key(p, "scale") && parse_float(p, &e->value);
	case 'f': return parse_key(p, "frequencies") && parse_frequencies(p, e);
	}
	return false;
}

/* The fields of an expression in parentheses, after its keyword and in the order of kinds.def, where each is a
 * letter; `tensor`, which has none, has a form of its own. */
static bool parse_fields(struct wx *x, struct ir_wexpr *e)
{
	const char *fields = wexpr_fields(e->kind);
	struct wexpr_list args = {0};
	if (e->kind == WX_TENSOR)
		return parse_tensor(x, e);
	if (!parse_expect(x->p, '('))
		return false;
	for (size_t i = 0; fields[i] != '\0'; i++)
		if ((i > 0 && !parse_expect(x->p, ',')) || !parse_field(x, fields[i], e, &args))
			return false;
	e->args = args.items;
	e->n_args = args.n;
	return parse_expect(x->p, ')');
}

/* A weight expression: keyword and fields. wexpr_make checks shapes, so *out is a valid node or NULL; the number of
 * expressions and their depth are limited. A failure ends the parse, so depth is not restored then. */
static bool parse_expression(struct wx *x, const struct ir_wexpr **out)
{
	static const char *const words[] = {
#define WX(kind, word, moves, fields) #word,
#include "ir/weights/kinds.def"
#undef WX
	};
	struct parser *p = x->p;
	struct ir_wexpr e = {.kind = WX_TENSOR};
	struct loc at = p->tok.loc;
	int kind;
	*out = NULL;
	if (!parse_enter(p) ||
	    !parse_one_of(p, "a weight expression", "weight expression", words, TFMC_COUNT(words), &kind))
		return false;
	e.kind = (enum ir_wexpr_kind)kind;
	if (!parse_fields(x, &e))
		return false;
	parse_leave(p);
	if (p->n_wexprs++ >= PARSE_WEXPR_MAX)
		return parse_fail(p, at, DIAG_LIMIT, "more than %d parts of weight expressions",
		                  PARSE_WEXPR_MAX);
	*out = wexpr_make(&p->arena, &e);
	return *out != NULL || parse_fail(p, at, DIAG_SHAPE, "the arguments of %s do not fit", words[kind]);
}

/* A weight expression outside of a counted stack. */
static bool parse_wexpr(struct parser *p, const struct ir_wexpr **out)
{
	struct wx x = {.p = p};
	return parse_expression(&x, out);
}

/* ---- functions ---- */

/*
 * Functions: the signature with properties of parameters and results, the case, and the body.
 *
 *   func @f(%x: i32[B,S] {below=51 lengths=%n}, %n: i32[B] {default=S max=S}) -> (y: f32[B,S,8]) arena=64*S {
 */

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

/* `name=value` in the braces of a parameter: `default` is a dim, `fill` a float, both make it optional. `lengths`
 * may name a later parameter, so it is looked up when all are parsed. */
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

/* `%x: i32[B,S] {below=51 lengths=%n}`; properties are separated by blanks. */
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

/* `(%x: type, %n: type)`; commas between them only. */
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

/* Index of the parameter that the token names; false after a diagnostic, which suggests the nearest of all names. */
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

/* `role=past` or `lengths=%n` in the braces of a result; parameters are known by now. */
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

/* `y: f32[B,S,8] {lengths=%n}`, the name with its colon optional: a type begins with a word, too, so the character
 * after the word decides. */
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

/* `-> (y: type, type)`; parameters are parsed, which their lengths name. */
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

/* `dim = 1` or `dim <= 14` */
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

/* `case of @base when S = 1, B*S <= 14`; out->of stays NULL if it is absent. The verifier checks base and
 * conditions. */
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

/* The function without its body: `@f(..) -> (..) case .. arena=.. loc(..)`, case, arena and loc optional. s->loc is
 * the place in the text unless a loc is written. */
static bool parse_signature(struct parser *p, struct signature *s)
{
	s->loc.at = p->tok.loc;
	if (!parse_token(p, TOK_SYMBOL, "@name", &s->name) || !parse_params(p, s) || !parse_results(p, s))
		return false;
	if (!parse_case(p, &s->when))
		return false;
	if (parse_accept_word(p, "arena") && (!parse_expect(p, '=') || !parse_dim(p, &s->arena)))
		return false;
	/* only now, as the lengths of a parameter may be a later one */
	for (size_t i = 0; i < s->params.n; i++) {
		struct parsed_param *x = &s->params.items[i];
		if (x->lengths.kind == TOK_VALUE && !find_param(p, s, &x->lengths, &x->param.lengths))
			return false;
	}
	return parse_loc(p, &s->loc);
}

/* Adds the parameters to the builder. A name that is a number is not stored: the printer numbers values again. */
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

/* The returned values have the types of the signature. Types are interned, so pointers are compared. */
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

/* Replaces names that the printer made of paths by the own names of the values, so that a pass that moves a value to
 * another step gives it the name it has there (ir_value_name). The paths of enclosing repeats follow their bodies in
 * the text, hence at the end of the function. */
static void restore_own_names(struct parser *p, struct ir_func *f)
{
	for (uint32_t id = 1; id < f->n_values; id++) {
		const char *name = f->values[id].name;
		const char *own =
		        name != NULL ? ir_own_name(&p->arena, f, (struct ir_value){id}, name) : NULL;
		if (own != NULL && own != name)
			f->values[id].name = strmap_intern(&p->m->strings, own, strlen(own));
	}
}

/* Checks the returned values, restores names now that all paths are known, and ends the function, which adds it to
 * the module. False after a diagnostic. */
static bool finish_func(struct parser *p, const struct signature *s, const struct parse_values *ends)
{
	struct ir_result *results = ARENA_ARRAY(&p->arena, struct ir_result, s->results.n + 1);
	if (results == NULL || !check_return(p, s, ends))
		return false;
	for (size_t i = 0; i < s->results.n; i++)
		results[i] = s->results.items[i].result;
	restore_own_names(p, p->b->f);
	return irb_finish(p->b, ends->items, results, ends->n, s->arena) == TFMC_OK;
}

/* A function, after the word `func`. literal: the builder keeps the ops as they are written. Names are visible in
 * one function only. */
static bool parse_func(struct parser *p)
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

/* ---- declarations of a module ---- */

/* ---- tokens ---- */

bool parse_fail(struct parser *p, struct loc at, enum diag_code code, const char *fmt, ...)
{
	va_list ap;
	if (p->failed || p->lex.failed) {
		p->failed = true;
		return false;
	}
	p->failed = true;
	va_start(ap, fmt);
	diag_error(p->cx, at, code, "%s", arena_vprintf(&p->arena, fmt, ap));
	va_end(ap);
	return false;
}

bool parse_unknown(struct parser *p, const struct tok *t, const char *what, const char *const *candidates,
                   size_t n)
{
	return parse_fail(p, t->loc, DIAG_TIR_NAME, "unknown %s '%s'%s", what, t->text,
	                  did_you_mean(&p->arena, t->text, candidates, n));
}

int parse_lookup(struct parser *p, const struct tok *t, const char *what, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], t->text) == 0)
			return (int)i;
	parse_unknown(p, t, what, names, n);
	return -1;
}

/* *out is 0 after a failure, a valid index. */
bool parse_one_of(struct parser *p, const char *expected, const char *what, const char *const *names,
                  size_t n, int *out)
{
	struct tok t;
	*out = 0;
	return parse_token(p, TOK_WORD, expected, &t) && (*out = parse_lookup(p, &t, what, names, n)) >= 0;
}

void parse_next(struct parser *p)
{
	p->tok = lex_next(&p->lex);
}

bool parse_at(const struct parser *p, int punct)
{
	return p->tok.kind == TOK_PUNCT && p->tok.punct == punct;
}

bool parse_at_word(const struct parser *p, const char *word)
{
	return p->tok.kind == TOK_WORD && strcmp(p->tok.text, word) == 0;
}

bool parse_accept(struct parser *p, int punct)
{
	bool found = parse_at(p, punct);
	if (found)
		parse_next(p);
	return found;
}

bool parse_accept_word(struct parser *p, const char *word)
{
	bool found = parse_at_word(p, word);
	if (found)
		parse_next(p);
	return found;
}

/* Reports the current token, or the end of the text, in place of what was expected. False. */
static bool fail_expected(struct parser *p, const char *what)
{
	if (p->tok.kind == TOK_END)
		return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "expected %s, the text ends here", what);
	return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "expected %s, found '%s'", what, p->tok.text);
}

/* The message shows the punctuation; two-character tokens have numbers that are no characters. */
bool parse_expect(struct parser *p, int punct)
{
	char single[] = {'\'', (char)punct, '\'', '\0'};
	if (parse_accept(p, punct))
		return true;
	return fail_expected(p, punct == PUNCT_ARROW ? "'->'" : punct == PUNCT_RANGE ? "'..'" : single);
}

bool parse_expect_word(struct parser *p, const char *word)
{
	return parse_accept_word(p, word) || fail_expected(p, arena_printf(&p->arena, "'%s'", word));
}

bool parse_token(struct parser *p, enum tok_kind kind, const char *what, struct tok *out)
{
	*out = p->tok;
	if (p->tok.kind != kind)
		return fail_expected(p, what);
	parse_next(p);
	return true;
}

/* The sign is a token of its own; it is put before the digits, so that the smallest number is in range. */
bool parse_int(struct parser *p, int64_t *out)
{
	bool minus = parse_accept(p, '-');
	struct tok t;
	*out = 0;
	if (!parse_token(p, TOK_NUMBER, "an integer", &t))
		return false;
	const char *text = minus ? arena_printf(&p->arena, "-%s", t.text) : t.text;
	if (number_parse_i64(text, strlen(text), out))
		return true;
	return parse_fail(p, t.loc, DIAG_TIR_SYNTAX, "'%s' is not an integer of 64 bits", text);
}

/* `inf` and `nan` are words for the lexer. */
bool parse_float(struct parser *p, double *out)
{
	bool minus = parse_accept(p, '-');
	struct tok t = p->tok;
	*out = 0.0;
	if (t.kind != TOK_NUMBER && !parse_at_word(p, "inf") && !parse_at_word(p, "nan"))
		return fail_expected(p, "a number");
	parse_next(p);
	const char *text = minus ? arena_printf(&p->arena, "-%s", t.text) : t.text;
	if (number_parse_f64(text, strlen(text), out))
		return true;
	return parse_fail(p, t.loc, DIAG_TIR_SYNTAX, "'%s' is not a number", text);
}

bool parse_enter(struct parser *p)
{
	if (p->depth++ < PARSE_DEPTH_MAX)
		return true;
	return parse_fail(p, p->tok.loc, DIAG_LIMIT, "expressions are nested deeper than %d",
	                  PARSE_DEPTH_MAX);
}

void parse_leave(struct parser *p)
{
	p->depth--;
}

/* ---- declarations ---- */

/* `S in [1,512]`, after the word `dim`. A name has no point, which names of values contain. */
static bool parse_dim_decl(struct parser *p)
{
	struct tok name;
	int64_t lo, hi;
	if (!parse_token(p, TOK_WORD, "the name of a dim", &name) || !parse_expect_word(p, "in") ||
	    !parse_expect(p, '[') || !parse_int(p, &lo) || !parse_expect(p, ',') || !parse_int(p, &hi) ||
	    !parse_expect(p, ']'))
		return false;
	if (strchr(name.text, '.') != NULL)
		return parse_fail(p, name.loc, DIAG_NAME, "a dim's name has no point");
	if (ir_dims_find(p->m->dims, name.text) >= 0)
		return parse_fail(p, name.loc, DIAG_NAME_CLASH, "the dim %s is declared twice", name.text);
	if (!ir_dims_declare(p->m->dims, name.text, lo, hi))
		return parse_fail(p, name.loc, DIAG_DIM_BOUND,
		                  "bounds [%lld,%lld] of dim %s: 0 <= low <= high < 2147483648 must hold",
		                  (long long)lo, (long long)hi, name.text);
	return true;
}

/* `as bf16`, if present. */
static bool parse_as_format(struct parser *p, enum ir_format *out)
{
	*out = FORMAT_PLAIN;
	return !parse_accept_word(p, "as") || parse_format(p, out);
}

/* `@w : f32[2,3] #panel16 as q8 = expression loc(..)`, after the word `weight`; all after the type is optional.
 * Checked here is what ir_add_weight relies on; the verifier checks encoding, format and shape. */
static bool parse_weight_decl(struct parser *p)
{
	struct ir_weight w = {.loc = {.at = p->tok.loc}};
	struct tok name;
	if (!parse_token(p, TOK_SYMBOL, "@name", &name) || !parse_expect(p, ':') || !parse_type(p, &w.type) ||
	    !parse_encoding(p, &w.encoding) || !parse_as_format(p, &w.format))
		return false;
	w.name = name.text;
	if (w.type->kind != IR_TENSOR)
		return parse_fail(p, name.loc, DIAG_IR_TYPE, "the weight @%s is not a tensor", name.text);
	if (ir_find_weight(p->m, name.text) != NULL)
		return parse_fail(p, name.loc, DIAG_NAME_CLASH, "the weight @%s is declared twice",
		                  name.text);
	if (parse_accept(p, '=') && !parse_wexpr(p, &w.init))
		return false;
	if (!parse_loc(p, &w.loc))
		return false;
	return ir_add_weight(p->m, &w) != NULL || parse_fail(p, name.loc, DIAG_INTERNAL, "out of memory");
}

/* `@kv : f32[B,T,8] #row loc(..)`, after the word `state`. Panels are of the matrices of the last two axes, after
 * the batch. */
static bool parse_state_decl(struct parser *p)
{
	struct ir_loc loc = {.at = p->tok.loc};
	const struct ir_type *type;
	enum ir_encoding encoding;
	struct tok name;
	if (!parse_token(p, TOK_SYMBOL, "@name", &name) || !parse_expect(p, ':') || !parse_type(p, &type))
		return false;
	if (!parse_encoding(p, &encoding) || !parse_loc(p, &loc))
		return false;
	if (type->kind != IR_TENSOR)
		return parse_fail(p, name.loc, DIAG_IR_TYPE, "the state @%s is not a tensor", name.text);
	if (encoding == ENC_PANEL16 && (type->rank < 3 || !ir_dtype_allows_panels(type->dtype)))
		return parse_fail(p, name.loc, DIAG_UNSUPPORTED,
		                  "not supported yet: a state #panel16 that is no f32, f16, bf16 or i8 of "
		                  "three axes or more");
	if (ir_find_state(p->m, name.text) != NULL)
		return parse_fail(p, name.loc, DIAG_NAME_CLASH, "the state @%s is declared twice", name.text);
	return (ir_add_state(p->m, name.text, type, loc) != NULL &&
	        ir_set_state_encoding(p->m, name.text, encoding)) ||
	       parse_fail(p, name.loc, DIAG_INTERNAL, "out of memory");
}

/* A dim, weight, state or function. */
static bool parse_declaration(struct parser *p)
{
	static const char *const words[] = {"dim", "weight", "state", "func"};
	struct tok t;
	if (!parse_token(p, TOK_WORD, "'dim', 'weight', 'state' or 'func'", &t))
		return false;
	if (strcmp(t.text, "dim") == 0)
		return parse_dim_decl(p);
	if (strcmp(t.text, "weight") == 0)
		return parse_weight_decl(p);
	if (strcmp(t.text, "state") == 0)
		return parse_state_decl(p);
	if (strcmp(t.text, "func") == 0)
		return parse_func(p);
	return parse_unknown(p, &t, "declaration", words, TFMC_COUNT(words));
}

/* `stage=graph`, if present; else *out is unchanged. */
static bool parse_stage(struct parser *p, enum ir_stage *out)
{
	static const char *const words[] = {"graph", "groups", "plan"};
	int i;
	if (!parse_accept_word(p, "stage"))
		return true;
	if (!parse_expect(p, '=') || !parse_one_of(p, "a stage", "stage", words, TFMC_COUNT(words), &i))
		return false;
	*out = (enum ir_stage)i;
	return true;
}

/* `module "name" stage=..`, which may be absent. Creates the module; tir_source marks locations in this text, which
 * are not printed. */
static bool parse_header(struct parser *p)
{
	struct tok name = {.text = "module"};
	enum ir_stage stage = STAGE_GRAPH;
	if (parse_accept_word(p, "module"))
		if (!parse_token(p, TOK_STRING, "the name of the module in quotes", &name) ||
		    !parse_stage(p, &stage))
			return false;
	p->m = ir_module_create(name.text);
	if (p->m == NULL)
		return parse_fail(p, p->tok.loc, DIAG_INTERNAL, "out of memory");
	p->m->stage = stage;
	p->m->tir_source = p->lex.source;
	return true;
}

/* ---- the text ---- */

/* The text is UTF-8, since messages and names quote it; else reports the line of the first invalid byte. */
static bool check_text(struct diag_context *cx, uint32_t source, const char *text, size_t len)
{
	size_t bad = utf8_check(text, len);
	if (bad == len)
		return true;
	uint32_t line = 1;
	for (size_t i = 0; i < bad; i++)
		line += text[i] == '\n';
	diag_error(cx, (struct loc){source, line, 1, 0}, DIAG_ENCODING, "a byte that is not UTF-8");
	return false;
}

/* `#loc24 = loc("model.yaml":24:7 "encoder.layers")`. parse_loc accepts its absence, which is an error here. */
static bool parse_alias_definition(struct parser *p)
{
	struct tok name;
	struct ir_loc *loc = ARENA_NEW(&p->arena, struct ir_loc);
	if (!parse_token(p, TOK_ENCODING, "#name of a location", &name) || !parse_expect(p, '='))
		return false;
	if (strmap_has(&p->locs, name.text))
		return parse_fail(p, name.loc, DIAG_NAME_CLASH, "#%s is defined twice", name.text);
	if (!parse_at_word(p, "loc"))
		return parse_expect_word(p, "loc");
	return loc != NULL && parse_loc(p, loc) && strmap_set(&p->locs, name.text, loc);
}

/* The offset of the definitions of locations, which end the text: of the first line that begins with `#loc`; len: there
 * are none. */
static size_t find_aliases(const char *text, size_t len)
{
	static const char begin[] = "#loc";
	const char *at = text, *end = text + len;
	while (at != NULL && (size_t)(end - at) >= sizeof(begin) - 1) {
		if (memcmp(at, begin, sizeof(begin) - 1) == 0)
			return (size_t)(at - text);
		at = memchr(at, '\n', (size_t)(end - at));
		at = at != NULL ? at + 1 : NULL;
	}
	return len;
}

/* Parses the definitions of locations, which are at the end of the text, before the ops that use them; then sets the
 * lexer back and ends its text where they begin. */
static bool parse_aliases(struct parser *p)
{
	const struct lexer module = p->lex;
	size_t begin = find_aliases(module.text, module.len);
	bool ok = true;
	lex_skip(&p->lex, begin);
	parse_next(p);
	while (ok && p->tok.kind != TOK_END)
		ok = parse_alias_definition(p);
	if (!ok || p->lex.failed)
		return false;
	p->lex = module;
	p->lex.len = begin;
	return true;
}

/* Parses all declarations. *out: the module, NULL unless TFMC_OK. Failed allocations are sticky and checked here
 * once; they are not errors of the text. A failed lexer returns the end of the text, so it is asked, too. */
static enum tfmc_status parse_text(struct parser *p, struct ir_module **out)
{
	bool ok = parse_aliases(p);
	if (ok)
		parse_next(p);
	ok = ok && parse_header(p);
	while (ok && p->tok.kind != TOK_END)
		ok = parse_declaration(p);
	bool memory = !arena_failed(&p->arena) && (p->m == NULL || !arena_failed(&p->m->arena));
	if (ok && !p->lex.failed && memory) {
		*out = p->m;
		return TFMC_OK;
	}
	ir_module_destroy(p->m);
	return memory ? TFMC_INVALID : TFMC_NO_MEMORY;
}

/* Size and encoding are checked before anything is parsed. The source is registered first, so that errors show lines
 * of the text. */
enum tfmc_status ir_parse(struct diag_context *cx, const char *file_name, const char *text, size_t len,
                          struct ir_module **out)
{
	struct parser p = {.cx = cx};
	*out = NULL;
	uint32_t source = diag_add_source(cx, file_name, text, len);
	if (source == 0)
		return TFMC_NO_MEMORY;
	if (len > PARSE_TEXT_MAX) {
		diag_error(cx, (struct loc){source, 0, 0, 0}, DIAG_LIMIT, "the text has more than %u bytes",
		           PARSE_TEXT_MAX);
		return TFMC_INVALID;
	}
	if (!check_text(cx, source, text, len))
		return TFMC_INVALID;
	arena_init(&p.arena);
	strmap_init(&p.names, &p.arena);
	strmap_init(&p.locs, &p.arena);
	lex_init(&p.lex, cx, &p.arena, source, text, len);
	enum tfmc_status status = parse_text(&p, out);
	arena_destroy(&p.arena);
	return status;
}
