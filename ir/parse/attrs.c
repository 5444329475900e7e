/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attribute lists of ops, read by the descriptors of ir/core/ops.def.
 */
#include "ir/parse/parser.h"

/* More attributes than any op has. */
#define ATTRS_MAX 32
#define WORDS_MAX 32 /* of a list */

bool parse_ir_keyword(struct parser *p, enum ir_keyword_list list, const char *expected, const char *what,
                      int *out)
{
	const char *names[WORDS_MAX];
	int n = ir_keyword_count(list);
	n = n < WORDS_MAX ? n : WORDS_MAX;
	for (int i = 0; i < n; i++)
		names[i] = ir_keyword(list, i);
	return parse_one_of(p, expected, what, names, (size_t)n, out);
}

static bool parse_attr_value(struct parser *p, const struct ir_attr_desc *d, void *at)
{
	if (d->kind == ATTR_FLAG) {
		*(bool *)at = true;
		return true;
	}
	if (!parse_expect(p, '='))
		return false;
	switch (d->kind) {
	case ATTR_FLOAT: return parse_float(p, at);
	case ATTR_INT: return parse_int(p, at);
	case ATTR_DIM: return parse_dim(p, at);
	case ATTR_DIMS: return parse_dims(p, at);
	case ATTR_INTS: return parse_ints(p, at);
	case ATTR_DTYPE: return parse_dtype(p, at);
	case ATTR_KEYWORD: return parse_ir_keyword(p, d->words, "a word", "word", at);
	case ATTR_FLAG:
	case ATTR_WEIGHT: break;
	}
	return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "%s is not written as an attribute", d->name);
}

static bool is_required(const struct ir_attr_desc *d)
{
	switch (d->kind) {
	case ATTR_DIM:
	case ATTR_INTS:
	case ATTR_DTYPE: return true;
	case ATTR_DIMS:
	case ATTR_FLOAT:
	case ATTR_INT:
	case ATTR_FLAG:
	case ATTR_KEYWORD:
	case ATTR_WEIGHT: return false;
	}
	return false;
}

int parse_attr_name(struct parser *p, const struct ir_op_desc *op, const struct tok *t)
{
	const char *names[ATTRS_MAX];
	size_t n = 0;
	for (; op->attrs[n].name != NULL && op->attrs[n].kind != ATTR_WEIGHT && n < ATTRS_MAX; n++)
		names[n] = op->attrs[n].name;
	return parse_find(p, t, arena_printf(&p->arena, "attribute of %s", op->name), names, n);
}

bool parse_attrs(struct parser *p, enum ir_opcode code, void *attrs, bool skip_required)
{
	const struct ir_op_desc *op = ir_op_desc(code);
	struct loc at = p->tok.loc;
	uint32_t seen = 0;
	if (parse_accept(p, '{')) {
		while (!parse_at(p, '}')) {
			struct tok t;
			if (!parse_take(p, TOK_WORD, "an attribute or '}'", &t))
				return false;
			int i = parse_attr_name(p, op, &t);
			if (i < 0)
				return false;
			if (seen & (1u << i))
				return parse_fail(p, t.loc, DIAG_TIR_SYNTAX, "%s is given twice", t.text);
			seen |= 1u << i;
			if (!parse_attr_value(p, &op->attrs[i], (char *)attrs + op->attrs[i].offset))
				return false;
		}
		parse_next(p);
	}
	for (int i = 0; op->attrs[i].name != NULL && !skip_required; i++)
		if (is_required(&op->attrs[i]) && !(seen & (1u << i)))
			return parse_fail(p, at, DIAG_TIR_SYNTAX, "%s needs {%s=...}", op->name,
			                  op->attrs[i].name);
	return true;
}
