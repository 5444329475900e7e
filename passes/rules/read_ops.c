/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the lines of match and into: declarations of operands and ops, which
 * may nest in parentheses. Ops are appended after those they read, so that the
 * last one of a side is its root.
 */
#include "passes/rules/read.h"

#include <string.h>

#define OP(name, traits, operands, attributes, results, axes, formula) \
	_Static_assert(sizeof(struct operands_##name) - 1 <= RULE_OPERANDS_MAX, #name " has more operands");
#include "ir/core/ops.def"

static bool read_op(struct rule_reader *r, int result);

/* ---- values ---- */

/* The value of that name or -1. */
static int read_find_value(const struct rule_reader *r, const char *name)
{
	const struct rule *rule = r->rule;
	for (int i = rule->n_values; i-- > 0;)
		if (rule->values[i].name != NULL && strcmp(rule->values[i].name, name) == 0)
			return i;
	return -1;
}

bool read_known_value(struct rule_reader *r, const struct tok *t, int *out)
{
	const char *names[RULE_VALUES_MAX];
	size_t n = 0;
	*out = read_find_value(r, t->text);
	if (*out >= 0)
		return true;
	for (int i = 0; i < r->rule->n_values; i++)
		if (r->rule->values[i].name != NULL)
			names[n++] = r->rule->values[i].name;
	return parse_unknown(&r->p, t, "value", names, n);
}

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

static bool read_value_operand(struct rule_reader *r, struct rule_operand *out)
{
	struct tok t = r->p.tok;
	parse_next(&r->p);
	out->kind = ARG_VALUE;
	if (r->in_into)
		return read_known_value(r, &t, &out->index);
	out->index = read_find_value(r, t.text);
	if (out->index < 0)
		out->index = add_value(r, t.text, t.loc);
	return out->index >= 0;
}

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

/* name=operand: the slots before it stay absent. */
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

/* Every op has all its fixed slots. */
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

/* What an attribute is that the text leaves out. */
static enum rule_attr_kind unwritten(enum ir_attr_kind kind)
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

static bool read_attrs(struct rule_reader *r, const struct ir_op_desc *desc, struct rule_op *op)
{
	size_t n = 0;
	while (desc->attrs[n].name != NULL && n < RULE_ATTRS_MAX)
		n++;
	op->attrs = ARENA_ARRAY(r->arena, struct rule_attr, n + 1);
	if (op->attrs == NULL)
		return false;
	for (size_t i = 0; i < n; i++)
		op->attrs[i].kind = unwritten(desc->attrs[i].kind);
	if (!parse_accept(&r->p, '{'))
		return true;
	while (!parse_at(&r->p, '}')) {
		struct tok t;
		if (!parse_take(&r->p, TOK_WORD, "an attribute or '}'", &t))
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

static bool read_code(struct rule_reader *r, enum ir_opcode *out)
{
	struct tok t;
	if (!parse_take(&r->p, TOK_WORD, "an op", &t) || !parse_op_name(&r->p, &t, out))
		return false;
	return ir_op_has(*out, TRAIT_PURE) ||
	       parse_fail(&r->p, t.loc, DIAG_IR_TYPE, "%s cannot be used in a rule", t.text);
}

/* op operands {attributes} : type; the result is value `result`. */
static bool read_op(struct rule_reader *r, int result)
{
	struct rule *rule = r->rule;
	struct rule_op op = {.loc = r->p.tok.loc, .result = result};
	if (!read_code(r, &op.code))
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

/* A new name, or in `into` that of the root. */
static bool define(struct rule_reader *r, const struct tok *t, int *out)
{
	int old = read_find_value(r, t->text);
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

/* %y = %x, the whole replacement */
static bool read_alias(struct rule_reader *r, const struct tok *t)
{
	struct tok to = r->p.tok;
	if (!r->in_into || read_find_value(r, t->text) != r->rule->root || r->rule->result >= 0)
		return parse_fail(&r->p, to.loc, DIAG_TIR_SYNTAX,
		                  "only the root may be another value, in the last line of into");
	parse_next(&r->p);
	return read_known_value(r, &to, &r->rule->result);
}

bool read_line(struct rule_reader *r)
{
	struct tok t;
	int value = -1;
	if (!parse_take(&r->p, TOK_VALUE, "%name", &t))
		return false;
	if (!r->in_into && parse_accept(&r->p, ':')) {
		if (read_find_value(r, t.text) >= 0)
			return parse_fail(&r->p, t.loc, DIAG_NAME_CLASH, "%%%s is declared below its use",
			                  t.text);
		value = add_value(r, t.text, t.loc);
		return value >= 0 && read_type(r, &r->rule->values[value].type);
	}
	if (!parse_expect(&r->p, '='))
		return false;
	if (r->p.tok.kind == TOK_VALUE)
		return read_alias(r, &t);
	return define(r, &t, &value) && read_op(r, value);
}
