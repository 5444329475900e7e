/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser of rewrite rules; the grammar is in README.md. It shares tokens and messages with the parser of IR text
 * (ir/text). Functions return false after a diagnostic. Variables and dims are created by the match; later parts
 * may only use them. Ops may nest in parentheses; they are appended after the ops that they read, so the last op
 * of a side is its root. The first error ends parsing; without one, all names in a set are resolved.
 */
#include "passes/graph/rule.h"

#include <string.h>

#include "ir/text/parser.h"

struct rule_reader {
	struct parser p;     /* tokens and messages; it has no module */
	struct arena *arena; /* of the set */
	struct rule *rule;   /* under construction */
	bool in_into;
	/* Lists of the rule under construction; copied when it is complete. */
	struct rule_value values[RULE_VALUES_MAX];
	struct rule_op match[RULE_OPS_MAX], into[RULE_OPS_MAX];
};

/* ---- names ---- */

/* The value of an attribute of this kind is one number. */
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

/* Number of the variable with that name; may_bind: creates it. -1 after a diagnostic. Kinds that are one number
 * (is_number_kind) may share a variable. */
static int read_variable(struct rule_reader *r, const struct tok *t, bool may_bind, enum ir_attr_kind kind)
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

/* Number of the dim with that name; may_bind: creates it. -1 after a diagnostic. */
static int read_dim(struct rule_reader *r, const struct tok *t, bool may_bind)
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

static bool read_expr(struct rule_reader *r, const struct rule_expr **out);

static const struct rule_expr *new_expr(struct rule_reader *r, struct rule_expr e)
{
	struct rule_expr *copy = ARENA_NEW(r->arena, struct rule_expr);
	if (copy != NULL)
		*copy = e;
	return copy;
}

/* `(x)` after the name of a function, token t. */
static bool read_call(struct rule_reader *r, const struct tok *t, const struct rule_expr **out)
{
	const struct rule_expr *x;
	const char *const *names;
	size_t n = rule_call_names(&names);
	int function = parse_lookup(&r->p, t, "function", names, n);
	if (function < 0 || !parse_expect(&r->p, '(') || !read_expr(r, &x) || !parse_expect(&r->p, ')'))
		return false;
	*out = new_expr(r, (struct rule_expr){.kind = EXPR_CALL, .index = function, .args = {x, NULL}});
	return *out != NULL;
}

/* A variable `$x`, a dim, a number, or a call. Variables and dims must be bound. inf and nan are words for the
 * lexer, but numbers. */
static bool read_leaf(struct rule_reader *r, const struct rule_expr **out)
{
	struct tok t = r->p.tok;
	if (t.kind == TOK_VARIABLE) {
		int var = read_variable(r, &t, false, ATTR_FLOAT);
		parse_next(&r->p);
		*out = new_expr(r, (struct rule_expr){.kind = EXPR_VAR, .index = var});
		return var >= 0 && *out != NULL;
	}
	if (t.kind == TOK_WORD && strcmp(t.text, "inf") != 0 && strcmp(t.text, "nan") != 0) {
		parse_next(&r->p);
		if (parse_at(&r->p, '('))
			return read_call(r, &t, out);
		int dim = read_dim(r, &t, false);
		*out = new_expr(r, (struct rule_expr){.kind = EXPR_DIM, .index = dim});
		return dim >= 0 && *out != NULL;
	}
	double number;
	if (!parse_float(&r->p, &number))
		return false;
	*out = new_expr(r, (struct rule_expr){.kind = EXPR_NUMBER, .number = number});
	return *out != NULL;
}

/* Parses a parenthesized expression, a negated variable, or a leaf. '-' before a number belongs to the number. */
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
			*out = new_expr(r, (struct rule_expr){.kind = EXPR_CALL,
			                                      .index = rule_call_find("neg"),
			                                      .args = {x}});
	} else {
		ok = read_leaf(r, out);
	}
	parse_leave(&r->p);
	return ok && *out != NULL;
}

/* factor ('*' factor)* */
static bool read_product(struct rule_reader *r, const struct rule_expr **out)
{
	const struct rule_expr *right;
	if (!read_factor(r, out))
		return false;
	while (parse_accept(&r->p, '*')) {
		if (!read_factor(r, &right))
			return false;
		*out = new_expr(r, (struct rule_expr){.kind = EXPR_MUL, .args = {*out, right}});
	}
	return *out != NULL;
}

/* product (('+' | '-') product)* */
static bool read_expr(struct rule_reader *r, const struct rule_expr **out)
{
	const struct rule_expr *right;
	if (!read_product(r, out))
		return false;
	while (parse_at(&r->p, '+') || parse_at(&r->p, '-')) {
		enum rule_expr_kind kind = parse_at(&r->p, '+') ? EXPR_ADD : EXPR_SUB;
		parse_next(&r->p);
		if (!read_product(r, &right))
			return false;
		*out = new_expr(r, (struct rule_expr){.kind = kind, .args = {*out, right}});
	}
	return *out != NULL;
}

/* ---- types ---- */

/* `any`, `number`, `float`, `int`, `bool` or an element type. */
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
	if (!parse_token(&r->p, TOK_WORD, "any, number, float, int, bool or an element type", &t))
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

/* A size or the name of a dim; the match side creates dims. */
static bool read_axis(struct rule_reader *r, struct rule_type *type)
{
	struct tok t = r->p.tok;
	if (type->n == IR_RANK_MAX)
		return parse_fail(&r->p, t.loc, DIAG_LIMIT, "a tensor has at most %d axes", IR_RANK_MAX);
	struct rule_axis *axis = &type->axes[type->n++];
	axis->dim = -1;
	if (t.kind == TOK_NUMBER)
		return parse_int(&r->p, &axis->size);
	if (!parse_token(&r->p, TOK_WORD, "the name of a dim or its size", &t))
		return false;
	axis->dim = read_dim(r, &t, !r->in_into);
	return axis->dim >= 0;
}

/* `float[..,K]`: `..` stands for any number of leading axes. */
static bool read_type(struct rule_reader *r, const struct rule_type **out)
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

#define OP(name, traits, operands, attributes, results, axes, formula) \
	_Static_assert(sizeof(struct operands_##name) - 1 <= RULE_OPERANDS_MAX, #name " has more operands");
#include "ir/core/ops.def"

static bool read_op(struct rule_reader *r, int result);

/* ---- values ---- */

/* Number of the value with that name, or -1. */
static int find_value(const struct rule_reader *r, const char *name)
{
	const struct rule *rule = r->rule;
	for (int i = rule->n_values; i-- > 0;)
		if (rule->values[i].name != NULL && strcmp(rule->values[i].name, name) == 0)
			return i;
	return -1;
}

/* *out: number of the existing value with that name. */
static bool read_known_value(struct rule_reader *r, const struct tok *t, int *out)
{
	const char *names[RULE_VALUES_MAX];
	size_t n = 0;
	*out = find_value(r, t->text);
	if (*out >= 0)
		return true;
	for (int i = 0; i < r->rule->n_values; i++)
		if (r->rule->values[i].name != NULL)
			names[n++] = r->rule->values[i].name;
	return parse_unknown(&r->p, t, "value", names, n);
}

/* Adds a value to the rule; name NULL: a nested op. Returns its number, or -1 after a diagnostic. */
static int add_value(struct rule_reader *r, const char *name, struct loc at)
{
	struct rule *rule = r->rule;
	if (rule->n_values == RULE_VALUES_MAX) {
		parse_fail(&r->p, at, DIAG_LIMIT, "a rule has at most %d values", RULE_VALUES_MAX);
		return -1;
	}
	rule->values[rule->n_values] =
	        (struct rule_value){.name = name != NULL ? arena_strdup(r->arena, name) : NULL,
	                            .op = -1,
	                            .from_into = r->in_into};
	return rule->n_values++;
}

/* ---- operands ---- */

/* `%x`: the match side adds a value that is new, the other side may only use values. */
static bool read_value_operand(struct rule_reader *r, struct rule_operand *out)
{
	struct tok t = r->p.tok;
	parse_next(&r->p);
	out->kind = ARG_VALUE;
	if (r->in_into)
		return read_known_value(r, &t, &out->index);
	out->index = find_value(r, t.text);
	if (out->index < 0)
		out->index = add_value(r, t.text, t.loc);
	return out->index >= 0;
}

/* `(op ..)`: an op without a name, whose result is the operand. */
static bool read_nested_operand(struct rule_reader *r, struct rule_operand *out)
{
	struct loc at = r->p.tok.loc;
	parse_next(&r->p);
	if (!parse_enter(&r->p))
		return false;
	out->kind = ARG_VALUE;
	out->index = add_value(r, NULL, at);
	bool ok = out->index >= 0 && read_op(r, out->index) && parse_expect(&r->p, ')');
	parse_leave(&r->p);
	return ok;
}

/* `%x`, a nested op in parentheses, `$v` (a constant of any value), or a number (a constant of that value). */
static bool read_operand(struct rule_reader *r, struct rule_operand *out)
{
	struct tok t = r->p.tok;
	if (t.kind == TOK_VALUE)
		return read_value_operand(r, out);
	if (parse_at(&r->p, '('))
		return read_nested_operand(r, out);
	if (t.kind == TOK_VARIABLE) {
		parse_next(&r->p);
		out->kind = ARG_VAR;
		out->index = read_variable(r, &t, !r->in_into, ATTR_FLOAT);
		return out->index >= 0;
	}
	out->kind = ARG_NUMBER;
	return parse_float(&r->p, &out->number);
}

/* Parses `name=`: skips to that operand; those before it stay absent. */
static bool read_slot_name(struct rule_reader *r, const struct ir_op_desc *desc, struct rule_op *op)
{
	struct tok t = r->p.tok;
	const char *names[RULE_OPERANDS_MAX];
	size_t n = 0;
	for (; desc->operands[n].name != NULL && n < RULE_OPERANDS_MAX; n++) {
		names[n] = desc->operands[n].name;
		if (n < op->n_operands || strcmp(names[n], t.text) != 0)
			continue;
		op->n_operands = n;
		parse_next(&r->p);
		return parse_expect(&r->p, '=');
	}
	return parse_unknown(&r->p, &t, arena_printf(&r->p.arena, "operand of %s", desc->name), names, n);
}

static bool at_operand(const struct rule_reader *r)
{
	const struct tok *t = &r->p.tok;
	return t->kind == TOK_VALUE || t->kind == TOK_VARIABLE || t->kind == TOK_NUMBER ||
	       parse_at(&r->p, '(') || parse_at(&r->p, '-') || parse_at_word(&r->p, "inf") ||
	       (t->kind == TOK_WORD && lex_peek(&r->p.lex) == '=');
}

/* Operands up to the first token that begins none; `name=` may skip optional ones. */
static bool read_operands(struct rule_reader *r, const struct ir_op_desc *desc, struct rule_op *op)
{
	if (!at_operand(r))
		return true;
	do {
		if (r->p.tok.kind == TOK_WORD && !parse_at_word(&r->p, "inf") && !read_slot_name(r, desc, op))
			return false;
		if (op->n_operands == RULE_OPERANDS_MAX)
			return parse_fail(&r->p, r->p.tok.loc, DIAG_LIMIT, "more than %d operands",
			                  RULE_OPERANDS_MAX);
		if (!read_operand(r, &op->operands[op->n_operands++]))
			return false;
	} while (parse_accept(&r->p, ','));
	return true;
}

/* Checks the number of operands and appends absent optional ones. */
static bool check_operands(struct rule_reader *r, const struct ir_op_desc *desc, struct rule_op *op)
{
	size_t i = 0;
	for (; desc->operands[i].name != NULL && desc->operands[i].kind != OPERAND_VARIADIC; i++)
		if (desc->operands[i].kind == OPERAND_REQUIRED && op->operands[i].kind == ARG_ABSENT)
			return parse_fail(&r->p, op->loc, DIAG_IR_TYPE, "%s lacks its operand %s", desc->name,
			                  desc->operands[i].name);
	if (desc->operands[i].name == NULL && op->n_operands > i)
		return parse_fail(&r->p, op->loc, DIAG_IR_TYPE, "%s has %zu operands, here are %zu",
		                  desc->name, i, op->n_operands);
	if (op->n_operands < i)
		op->n_operands = i;
	return true;
}

/* ---- attributes ---- */

/* Makes *out the constant expression `number`. */
static bool read_number(struct rule_reader *r, double number, struct rule_attr *out)
{
	struct rule_expr *e = ARENA_NEW(r->arena, struct rule_expr);
	if (e == NULL)
		return false;
	*e = (struct rule_expr){.kind = EXPR_NUMBER, .number = number};
	out->kind = RULE_ATTR_EXPR;
	out->expr = e;
	return true;
}

static bool read_word_attr(struct rule_reader *r, enum ir_keyword_list list, struct rule_attr *out)
{
	int i;
	return parse_ir_keyword(&r->p, list, "a word", "word", &i) && read_number(r, i, out);
}

/* `[0,1]`, `last` (the last axis) or `swap` (the last two axes exchanged), which hold for any rank. */
static bool read_ints_attr(struct rule_reader *r, struct rule_attr *out)
{
	static const char *const words[] = {"last", "swap"};
	int i;
	if (r->p.tok.kind == TOK_WORD) {
		bool ok = parse_one_of(&r->p, "a word", "word", words, TFMC_COUNT(words), &i);
		out->kind = i == 0 ? RULE_ATTR_LAST : RULE_ATTR_SWAP;
		return ok;
	}
	out->kind = RULE_ATTR_INTS;
	return parse_shape(&r->p, &out->n_ints, out->ints);
}

/* Parses the value of an attribute according to its kind. A variable alone (with no operator after it) binds
 * the attribute of any kind; strchr also finds the 0 at the end of the text, which the second condition
 * handles. */
static bool read_attr_value(struct rule_reader *r, const struct ir_attr_desc *d, struct rule_attr *out)
{
	struct tok t = r->p.tok;
	bool single = t.kind == TOK_VARIABLE && strchr("+-*", lex_peek(&r->p.lex)) == NULL;
	if (single || (t.kind == TOK_VARIABLE && lex_peek(&r->p.lex) == '\0')) {
		parse_next(&r->p);
		out->kind = RULE_ATTR_VAR;
		out->var = read_variable(r, &t, !r->in_into, d->kind);
		return out->var >= 0;
	}
	switch (d->kind) {
	case ATTR_KEYWORD: return read_word_attr(r, d->words, out);
	case ATTR_INTS: return read_ints_attr(r, out);
	case ATTR_DTYPE: out->kind = RULE_ATTR_DTYPE; return parse_dtype(&r->p, &out->dtype);
	case ATTR_FLOAT:
	case ATTR_INT:
	case ATTR_FLAG: out->kind = RULE_ATTR_EXPR; return read_expr(r, &out->expr);
	case ATTR_DIM:
	case ATTR_DIMS:
	case ATTR_WEIGHT: break;
	}
	return parse_fail(&r->p, t.loc, DIAG_TIR_SYNTAX,
	                  "%s is a $variable here; sizes are written in the type of the result", d->name);
}

/* Pattern of an attribute that is not written: a number must have its default. Sizes, lists and element types have
 * none: match accepts any, and into takes sizes and element types from the type of the result (set_from_type). */
static enum rule_attr_kind unwritten_attr(enum ir_attr_kind kind)
{
	switch (kind) {
	case ATTR_FLOAT:
	case ATTR_INT:
	case ATTR_FLAG:
	case ATTR_KEYWORD: return RULE_ATTR_DEFAULT;
	case ATTR_DIM:
	case ATTR_DIMS:
	case ATTR_INTS:
	case ATTR_DTYPE:
	case ATTR_WEIGHT: return RULE_ATTR_ANY;
	}
	return RULE_ATTR_ANY;
}

/* Parses the attributes in braces; the others get their pattern by unwritten_attr(). */
static bool read_attrs(struct rule_reader *r, const struct ir_op_desc *desc, struct rule_op *op)
{
	size_t n = 0;
	while (desc->attrs[n].name != NULL && n < RULE_ATTRS_MAX)
		n++;
	op->attrs = ARENA_ARRAY(r->arena, struct rule_attr, n + 1);
	if (op->attrs == NULL)
		return false;
	for (size_t i = 0; i < n; i++)
		op->attrs[i].kind = unwritten_attr(desc->attrs[i].kind);
	if (!parse_accept(&r->p, '{'))
		return true;
	while (!parse_at(&r->p, '}')) {
		struct tok t;
		if (!parse_token(&r->p, TOK_WORD, "an attribute or '}'", &t))
			return false;
		int i = parse_attr_name(&r->p, desc, &t);
		if (i < 0)
			return false;
		bool bare = desc->attrs[i].kind == ATTR_FLAG && !parse_at(&r->p, '=');
		bool ok =
		        bare ? read_number(r, 1, &op->attrs[i])
		             : parse_expect(&r->p, '=') && read_attr_value(r, &desc->attrs[i], &op->attrs[i]);
		if (!ok)
			return false;
	}
	parse_next(&r->p);
	return true;
}

/* ---- ops ---- */

static bool read_opcode(struct rule_reader *r, enum ir_opcode *out)
{
	struct tok t;
	if (!parse_token(&r->p, TOK_WORD, "an op", &t) || !parse_op_name(&r->p, &t, out))
		return false;
	return ir_op_has(*out, TRAIT_PURE) ||
	       parse_fail(&r->p, t.loc, DIAG_IR_TYPE, "%s cannot be used in a rule", t.text);
}

/* Parses `op operands {attributes} : type`; `result`: number of the value that it defines. Nested ops are complete,
 * and appended, before this one. */
static bool read_op(struct rule_reader *r, int result)
{
	struct rule *rule = r->rule;
	struct rule_op op = {.loc = r->p.tok.loc, .result = result};
	if (!read_opcode(r, &op.code))
		return false;
	const struct ir_op_desc *desc = ir_op_desc(op.code);
	if (!read_operands(r, desc, &op) || !check_operands(r, desc, &op) || !read_attrs(r, desc, &op))
		return false;
	if (parse_accept(&r->p, ':') && !read_type(r, &rule->values[result].type))
		return false;
	int *n = r->in_into ? &rule->n_into : &rule->n_match;
	struct rule_op *ops = r->in_into ? rule->into : rule->match;
	if (*n == RULE_OPS_MAX)
		return parse_fail(&r->p, op.loc, DIAG_LIMIT, "at most %d ops", RULE_OPS_MAX);
	rule->values[result].op = *n;
	ops[(*n)++] = op;
	return true;
}

/* Defines the name of a line: a new one, or in `into` that of the root. */
static bool define_name(struct rule_reader *r, const struct tok *t, int *out)
{
	int old = find_value(r, t->text);
	bool is_root = r->in_into && old == r->rule->root;
	if (old >= 0 && !is_root)
		return parse_fail(&r->p, t->loc, DIAG_NAME_CLASH, "%%%s is defined twice, or below its use",
		                  t->text);
	if (is_root && r->rule->result >= 0)
		return parse_fail(&r->p, t->loc, DIAG_NAME_CLASH, "%%%s is given twice", t->text);
	*out = add_value(r, is_root ? NULL : t->text, t->loc);
	if (is_root)
		r->rule->result = *out;
	return *out >= 0;
}

/* Parses `%y = %x`: the replacement is an existing value. */
static bool read_alias(struct rule_reader *r, const struct tok *t)
{
	struct tok to = r->p.tok;
	if (!r->in_into || find_value(r, t->text) != r->rule->root || r->rule->result >= 0)
		return parse_fail(&r->p, to.loc, DIAG_TIR_SYNTAX,
		                  "only the root may be another value, in the last line of into");
	parse_next(&r->p);
	return read_known_value(r, &to, &r->rule->result);
}

/* Parses a line of match or into: the type of an operand, or a definition. */
static bool read_line(struct rule_reader *r)
{
	struct tok t;
	int value = -1;
	if (!parse_token(&r->p, TOK_VALUE, "%name", &t))
		return false;
	if (!r->in_into && parse_accept(&r->p, ':')) {
		if (find_value(r, t.text) >= 0)
			return parse_fail(&r->p, t.loc, DIAG_NAME_CLASH, "%%%s is declared below its use",
			                  t.text);
		value = add_value(r, t.text, t.loc);
		return value >= 0 && read_type(r, &r->rule->values[value].type);
	}
	if (!parse_expect(&r->p, '='))
		return false;
	if (r->p.tok.kind == TOK_VALUE)
		return read_alias(r, &t);
	return define_name(r, &t, &value) && read_op(r, value);
}

#define RULES_TEXT_MAX (1u << 20)

/* ---- head ---- */

/* The exactness of a rule; of approximate rules with the tolerance. */
static bool read_class(struct rule_reader *r)
{
	static const enum rule_class all[] = {RULE_BITS, RULE_ROUND, RULE_REASSOCIATE, RULE_APPROXIMATE};
	const char *names[TFMC_COUNT(all)];
	int i;
	for (size_t k = 0; k < TFMC_COUNT(all); k++)
		names[k] = rule_class_name(all[k]);
	if (!parse_one_of(&r->p, "bits, round, reassociate or approximate", "exactness", names,
	                  TFMC_COUNT(all), &i))
		return false;
	r->rule->class = all[i];
	return all[i] != RULE_APPROXIMATE || parse_float(&r->p, &r->rule->tolerance);
}

/* `except nan, inf, empty`, if present: inputs for which the rule need not hold. */
static bool read_exceptions(struct rule_reader *r)
{
	static const char *const words[] = {"nan", "inf", "empty"};
	bool *const exceptions[] = {&r->rule->except_nan, &r->rule->except_inf, &r->rule->except_empty};
	int i;
	if (!parse_accept_word(&r->p, "except"))
		return true;
	do {
		if (!parse_one_of(&r->p, "nan, inf or empty", "word", words, TFMC_COUNT(words), &i))
			return false;
		*exceptions[i] = true;
	} while (parse_accept(&r->p, ','));
	return true;
}

/* ---- where ---- */

/* Properties of a value; the later names are predicates over expressions. */
enum { VALUE_SHARED, VALUE_CONST, VALUE_UNMASKED, N_VALUE_PREDS };

static const char *const pred_names[] = {"shared",   "const",       "unmasked", "equal", "near",
                                         "positive", "nonnegative", "nonzero",  "finite"};

/* Parses shared(%v), const(%v) or unmasked(%v). */
static bool read_value_pred(struct rule_reader *r, int pred)
{
	struct tok t;
	int v;
	if (!parse_expect(&r->p, '(') || !parse_token(&r->p, TOK_VALUE, "%name", &t) ||
	    !read_known_value(r, &t, &v))
		return false;
	struct rule_value *value = &r->rule->values[v];
	if (pred != VALUE_SHARED && value->op >= 0)
		return parse_fail(&r->p, t.loc, DIAG_TIR_SYNTAX, "%s applies to an operand, %%%s is a result",
		                  pred_names[pred], t.text);
	value->is_shared |= pred == VALUE_SHARED;
	value->is_const |= pred == VALUE_CONST;
	value->is_unmasked |= pred == VALUE_UNMASKED;
	return parse_expect(&r->p, ')');
}

/* Parses a predicate of `where`. */
static bool read_pred(struct rule_reader *r)
{
	struct loc at = r->p.tok.loc;
	int i;
	if (!parse_one_of(&r->p, "a predicate or '}'", "predicate", pred_names, TFMC_COUNT(pred_names), &i))
		return false;
	if (i < N_VALUE_PREDS)
		return read_value_pred(r, i);
	if (r->rule->n_preds == RULE_PREDS_MAX)
		return parse_fail(&r->p, at, DIAG_LIMIT, "a rule has at most %d predicates", RULE_PREDS_MAX);
	struct rule_pred *p = &r->rule->preds[r->rule->n_preds++];
	p->kind = (enum rule_pred_kind)(i - N_VALUE_PREDS);
	bool has_two = p->kind == PRED_EQUAL || p->kind == PRED_NEAR;
	return parse_expect(&r->p, '(') && read_expr(r, &p->args[0]) &&
	       (!has_two || (parse_expect(&r->p, ',') && read_expr(r, &p->args[1]))) &&
	       parse_expect(&r->p, ')');
}

/* ---- rules ---- */

/* Checks that every op reads operands of the rule or results above it, and that `into` does not read the root.
 * Within a side a value must be defined by an earlier op (operands of the rule have op -1, and belong to
 * match). */
static bool check_order(struct rule_reader *r, const struct rule_op *ops, int n, bool into)
{
	const struct rule *rule = r->rule;
	for (int i = 0; i < n; i++) {
		for (size_t k = 0; k < ops[i].n_operands; k++) {
			const struct rule_operand *x = &ops[i].operands[k];
			if (x->kind != ARG_VALUE)
				continue;
			const struct rule_value *v = &rule->values[x->index];
			bool above = v->from_into == into ? v->op < i && (v->op >= 0 || !into)
			                                  : x->index != rule->root;
			if (!above)
				return parse_fail(&r->p, ops[i].loc, DIAG_TIR_NAME,
				                  "the op reads its own result, or one that comes later");
		}
	}
	return true;
}

/* Checks that every op of a side but its root has a reader. */
static bool check_used(struct rule_reader *r, const struct rule_op *ops, int n)
{
	for (int i = 0; i + 1 < n; i++) {
		bool used = false;
		for (int j = i + 1; j < n && !used; j++)
			for (size_t k = 0; k < ops[j].n_operands; k++)
				used |= ops[j].operands[k].kind == ARG_VALUE &&
				        ops[j].operands[k].index == ops[i].result;
		if (!used)
			return parse_fail(&r->p, ops[i].loc, DIAG_TIR_NAME, "nothing reads this result");
	}
	return true;
}

/* Checks a complete rule: into ends in the root, which is not replaced by itself, and every op reads what is defined
 * and is read. */
static bool check_rule(struct rule_reader *r)
{
	const struct rule *rule = r->rule;
	if (rule->result < 0)
		return parse_fail(&r->p, r->p.tok.loc, DIAG_TIR_NAME, "into does not give %%%s",
		                  rule->values[rule->root].name);
	if (rule->result == rule->root)
		return parse_fail(&r->p, rule->loc, DIAG_TIR_NAME, "the rule replaces a value by itself");
	if (rule->n_into > 0 && rule->into[rule->n_into - 1].result != rule->result)
		return parse_fail(&r->p, rule->loc, DIAG_TIR_NAME, "the last line of into must give %%%s",
		                  rule->values[rule->root].name);
	return check_order(r, rule->match, rule->n_match, false) &&
	       check_order(r, rule->into, rule->n_into, true) && check_used(r, rule->match, rule->n_match) &&
	       check_used(r, rule->into, rule->n_into);
}

/* `{ lines }` of match, or of into. */
static bool read_lines(struct rule_reader *r, bool into)
{
	r->in_into = into;
	if (!parse_expect(&r->p, '{'))
		return false;
	while (!parse_at(&r->p, '}'))
		if (!read_line(r))
			return false;
	parse_next(&r->p);
	return true;
}

/* `match { .. }`; the last op is the root and needs a name, which `into` defines. */
static bool read_match(struct rule_reader *r)
{
	struct rule *rule = r->rule;
	struct loc at = r->p.tok.loc;
	if (!parse_expect_word(&r->p, "match") || !read_lines(r, false))
		return false;
	if (rule->n_match == 0)
		return parse_fail(&r->p, at, DIAG_TIR_SYNTAX, "match has no op");
	rule->root = rule->match[rule->n_match - 1].result;
	return rule->values[rule->root].name != NULL ||
	       parse_fail(&r->p, at, DIAG_TIR_SYNTAX, "the last op of match needs a name");
}

/* `where { predicates }`, if present. */
static bool read_where(struct rule_reader *r)
{
	if (!parse_accept_word(&r->p, "where"))
		return true;
	if (!parse_expect(&r->p, '{'))
		return false;
	while (!parse_at(&r->p, '}'))
		if (!read_pred(r))
			return false;
	parse_next(&r->p);
	return true;
}

static void *copy_list(struct rule_reader *r, const void *list, int n, size_t size)
{
	void *copy = arena_calloc(r->arena, (size_t)n + 1, size);
	if (copy != NULL)
		memcpy(copy, list, (size_t)n * size);
	return copy;
}

/* Copies the lists under construction into the arena of the set. */
static bool copy_lists(struct rule_reader *r)
{
	struct rule *rule = r->rule;
	rule->values = copy_list(r, r->values, rule->n_values, sizeof(*r->values));
	rule->match = copy_list(r, r->match, rule->n_match, sizeof(*r->match));
	rule->into = copy_list(r, r->into, rule->n_into, sizeof(*r->into));
	return rule->values != NULL && rule->match != NULL && rule->into != NULL;
}

/* rule NAME : CLASS [except ...] { match {...} where {...} into {...} }. Its lists are those of the reader until it
 * is complete: their sizes are not known before. */
static bool read_rule(struct rule_reader *r, struct rule_set *set)
{
	struct tok name;
	if (!parse_expect_word(&r->p, "rule") || !parse_token(&r->p, TOK_WORD, "the name of the rule", &name))
		return false;
	if (rule_set_find(set, name.text) != NULL)
		return parse_fail(&r->p, name.loc, DIAG_NAME_CLASH, "there are two rules %s", name.text);
	r->rule = ARENA_NEW(r->arena, struct rule);
	if (r->rule == NULL)
		return false;
	r->rule->name = arena_strdup(r->arena, name.text);
	r->rule->loc = name.loc;
	r->rule->root = r->rule->result = -1;
	r->rule->values = r->values;
	r->rule->match = r->match;
	r->rule->into = r->into;
	if (!parse_expect(&r->p, ':') || !read_class(r) || !read_exceptions(r) || !parse_expect(&r->p, '{') ||
	    !read_match(r) || !read_where(r) || !parse_expect_word(&r->p, "into") || !read_lines(r, true) ||
	    !check_rule(r) || !copy_lists(r) || !parse_expect(&r->p, '}'))
		return false;
	return ARENA_ADDED(r->arena, &set->rules, r->rule);
}

/* The text may come from the user, so its size is bounded. Strings of the parser are temporary; those of rules are
 * copied to the arena of the set. Without memory parsing ends like after an error, but with TFMC_NO_MEMORY. */
enum tfmc_status rule_set_read(struct rule_set *s, struct diag_context *cx, const char *file_name,
                               const char *text, size_t len)
{
	struct rule_reader r;
	uint32_t source = diag_add_source(cx, file_name, text, len);
	if (source == 0)
		return TFMC_NO_MEMORY;
	if (len > RULES_TEXT_MAX) {
		diag_error(cx, (struct loc){source, 0, 0, 0}, DIAG_LIMIT, "the text has more than %u bytes",
		           RULES_TEXT_MAX);
		return TFMC_INVALID;
	}
	r.p = (struct parser){.cx = cx};
	r.arena = &s->arena;
	arena_init(&r.p.arena);
	lex_init(&r.p.lex, cx, &r.p.arena, source, text, len);
	r.p.lex.variables = true;
	parse_next(&r.p);
	bool ok = true;
	while (ok && r.p.tok.kind != TOK_END)
		ok = read_rule(&r, s);
	bool memory = !arena_failed(&r.p.arena) && !arena_failed(&s->arena);
	ok = ok && !r.p.lex.failed;
	arena_destroy(&r.p.arena);
	return ok && memory ? TFMC_OK : memory ? TFMC_INVALID : TFMC_NO_MEMORY;
}
