/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a line: dims, types, encodings, locations and attribute lists.
 *
 *   dim    = ['-'] term (('+' | '-') term)*
 *   term   = factor ('*' factor | '//' integer)*
 *   factor = integer | symbol | '(' dim ')' | 'max' '(' dim ',' dim ')'
 */
#include "ir/text/parser.h"

#include <string.h>

/* ---- dims ---- */

static bool parse_symbol(struct parser *p, const struct ir_dim **out)
{
	struct tok t = p->tok;
	parse_next(p);
	*out = ir_dim_sym(p->m->dims, t.text);
	if (*out != NULL)
		return true;
	size_t n = ir_dims_count(p->m->dims);
	const char **names = ARENA_ARRAY(&p->arena, const char *, n + 1);
	for (size_t i = 0; names != NULL && i < n; i++)
		names[i] = ir_dims_sym(p->m->dims, i)->name;
	return parse_unknown(p, &t, "dim", names, names != NULL ? n : 0);
}

/* The operands of max(a, b). */
static bool parse_max(struct parser *p, const struct ir_dim **out)
{
	const struct ir_dim *other;
	if (!parse_expect(p, '(') || !parse_dim(p, out) || !parse_expect(p, ',') || !parse_dim(p, &other) ||
	    !parse_expect(p, ')'))
		return false;
	*out = ir_dim_max(p->m->dims, *out, other);
	return true;
}

static bool parse_factor(struct parser *p, const struct ir_dim **out)
{
	int64_t v;
	/* max is a function unless a symbol has that name */
	if (p->tok.kind == TOK_WORD && ir_dims_find(p->m->dims, "max") < 0 && parse_accept_word(p, "max"))
		return parse_max(p, out);
	if (p->tok.kind == TOK_WORD)
		return parse_symbol(p, out);
	if (parse_accept(p, '('))
		return parse_dim(p, out) && parse_expect(p, ')');
	if (p->tok.kind != TOK_NUMBER)
		return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "expected a dim, found '%s'", p->tok.text);
	if (!parse_int(p, &v))
		return false;
	*out = ir_dim_const(p->m->dims, v);
	return true;
}

static bool parse_term(struct parser *p, const struct ir_dim **out)
{
	if (!parse_factor(p, out))
		return false;
	for (;;) {
		const struct ir_dim *right;
		struct loc at = p->tok.loc;
		int64_t by;
		if (parse_accept(p, '*')) {
			if (!parse_factor(p, &right))
				return false;
			*out = ir_dim_mul(p->m->dims, *out, right);
		} else if (parse_accept(p, PUNCT_DIVIDE)) {
			if (!parse_int(p, &by))
				return false;
			if (by < 1)
				return parse_fail(p, at, DIAG_TIR_SYNTAX,
				                  "the divisor of a dim must be positive");
			*out = ir_dim_floordiv(p->m->dims, *out, by);
		} else {
			return true;
		}
	}
}

static bool parse_sum(struct parser *p, const struct ir_dim **out)
{
	struct ir_dims *t = p->m->dims;
	bool minus = parse_accept(p, '-');
	if (!parse_term(p, out))
		return false;
	if (minus)
		*out = ir_dim_sub(t, ir_dim_const(t, 0), *out);
	while (parse_at(p, '+') || parse_at(p, '-')) {
		const struct ir_dim *right;
		minus = parse_at(p, '-');
		parse_next(p);
		if (!parse_term(p, &right))
			return false;
		*out = minus ? ir_dim_sub(t, *out, right) : ir_dim_add(t, *out, right);
	}
	return true;
}

bool parse_dim(struct parser *p, const struct ir_dim **out)
{
	struct loc at = p->tok.loc;
	bool ok = parse_enter(p) && parse_sum(p, out);
	parse_leave(p);
	if (ok && ir_dims_failed(p->m->dims))
		return parse_fail(p, at, DIAG_OVERFLOW,
		                  "the dim does not fit into 64 bits or is too complex");
	return ok;
}

bool parse_dims(struct parser *p, struct ir_dim_list *out)
{
	struct {
		const struct ir_dim **items;
		size_t n, cap;
	} list = {0};
	if (!parse_expect(p, '['))
		return false;
	while (!parse_at(p, ']')) {
		const struct ir_dim **slot = ARENA_PUSH(&p->arena, &list);
		if (slot == NULL || (list.n > 1 && !parse_expect(p, ',')) || !parse_dim(p, slot))
			return false;
		if (list.n > BUILD_LIST_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d entries", BUILD_LIST_MAX);
	}
	*out = (struct ir_dim_list){list.items, list.n};
	return parse_expect(p, ']');
}

bool parse_ints(struct parser *p, struct ir_int_list *out)
{
	struct {
		int64_t *items;
		size_t n, cap;
	} list = {0};
	if (!parse_expect(p, '['))
		return false;
	while (!parse_at(p, ']')) {
		int64_t *slot = ARENA_PUSH(&p->arena, &list);
		if (slot == NULL || (list.n > 1 && !parse_expect(p, ',')) || !parse_int(p, slot))
			return false;
		if (list.n > BUILD_LIST_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d entries", BUILD_LIST_MAX);
	}
	*out = (struct ir_int_list){list.items, list.n};
	return parse_expect(p, ']');
}

/* ---- types ---- */

static const char *const format_names[] = {
#define FLOATS(NAME, name, dtype)                                                    #name,
#define FORMAT(NAME, name, bits, block, super, scale, offset, zero, shift, codebook) #name,
#include "ir/types/formats.def"
};

bool parse_at_format(const struct parser *p)
{
	enum ir_format f;
	return p->tok.kind == TOK_WORD && ir_format_parse(p->tok.text, strlen(p->tok.text), &f) &&
	       ir_format_is_quantized(f);
}

bool parse_format(struct parser *p, enum ir_format *out)
{
	int i;
	if (!parse_one_of(p, "a format of weights", "format of weights", format_names + 1,
	                  TFMC_COUNT(format_names) - 1, &i))
		return false;
	*out = (enum ir_format)(i + 1);
	return true;
}

bool parse_dtype(struct parser *p, enum ir_dtype *out)
{
	static const char *const names[] = {
#define DTYPE(keyword, name, bytes, class, st) #keyword,
#include "ir/types/dtypes.def"
	};
	int i;
	bool ok = parse_one_of(p, "an element type", "element type", names, TFMC_COUNT(names), &i);
	*out = ok ? (enum ir_dtype)i : DT_F32;
	return ok;
}

static bool parse_state_type(struct parser *p, const struct ir_type **out)
{
	struct tok t;
	if (!parse_token(p, TOK_SYMBOL, "the name of a state", &t))
		return false;
	const struct ir_state_decl *s = ir_find_state(p->m, t.text);
	if (s != NULL) {
		*out = ir_type_state(p->m->types, s);
		return *out != NULL;
	}
	size_t n = p->m->states.n;
	const char **names = ARENA_ARRAY(&p->arena, const char *, n + 1);
	for (size_t i = 0; names != NULL && i < n; i++)
		names[i] = p->m->states.items[i]->name;
	return parse_unknown(p, &t, "state", names, names != NULL ? n : 0);
}

bool parse_type(struct parser *p, const struct ir_type **out)
{
	struct loc at = p->tok.loc;
	enum ir_dtype dtype;
	struct ir_dim_list dims;
	if (parse_accept_word(p, "state"))
		return parse_state_type(p, out);
	if (!parse_dtype(p, &dtype) || !parse_dims(p, &dims))
		return false;
	if (dims.n > IR_RANK_MAX)
		return parse_fail(p, at, DIAG_LIMIT, "a tensor has at most %d axes", IR_RANK_MAX);
	*out = ir_type_tensor(p->m->types, dtype, (int)dims.n, dims.items);
	return *out != NULL || parse_fail(p, at, DIAG_SHAPE, "a dim of the type may be negative");
}

bool parse_shape(struct parser *p, int *rank, int64_t dims[IR_RANK_MAX])
{
	struct ir_int_list list;
	struct loc at = p->tok.loc;
	*rank = 0;
	if (!parse_ints(p, &list))
		return false;
	if (list.n > IR_RANK_MAX)
		return parse_fail(p, at, DIAG_LIMIT, "a tensor has at most %d axes", IR_RANK_MAX);
	*rank = (int)list.n;
	for (size_t i = 0; i < list.n; i++)
		dims[i] = list.items[i];
	return true;
}

bool parse_encoding(struct parser *p, enum ir_encoding *out)
{
	const char *const names[] = {ir_encoding_name(ENC_ROW), ir_encoding_name(ENC_PANEL16)};
	struct tok t = p->tok;
	*out = ENC_ROW;
	if (t.kind != TOK_ENCODING)
		return true;
	parse_next(p);
	int i = parse_lookup(p, &t, "encoding", names, TFMC_COUNT(names));
	*out = i == 1 ? ENC_PANEL16 : ENC_ROW;
	return i >= 0;
}

/* ---- locations ---- */

static bool parse_source_position(struct parser *p, const char *file, struct ir_loc *out)
{
	int64_t line, col;
	struct loc at = p->tok.loc;
	if (!parse_expect(p, ':') || !parse_int(p, &line) || !parse_expect(p, ':') || !parse_int(p, &col))
		return false;
	if (line < 0 || line > INT32_MAX || col < 0 || col > INT32_MAX)
		return parse_fail(p, at, DIAG_TIR_SYNTAX, "line or column is out of range");
	uint32_t source = diag_find_source(p->cx, file);
	if (source == 0)
		source = diag_add_source(p->cx, file, NULL, 0);
	out->at = (struct loc){source, (uint32_t)line, (uint32_t)col, 0};
	return true;
}

/* loc("file":line:column "path"), loc("file":line:column), loc("path") */
bool parse_loc(struct parser *p, struct ir_loc *out)
{
	struct tok t;
	if (!parse_accept_word(p, "loc"))
		return true;
	if (!parse_expect(p, '(') || !parse_token(p, TOK_STRING, "a quoted text", &t))
		return false;
	*out = (struct ir_loc){.at = LOC_NONE};
	if (!parse_at(p, ':')) {
		out->path = t.text;
		return parse_expect(p, ')');
	}
	if (!parse_source_position(p, t.text, out))
		return false;
	if (p->tok.kind == TOK_STRING) {
		out->path = p->tok.text;
		parse_next(p);
	}
	return parse_expect(p, ')');
}

/* ---- attribute lists, by the descriptors of ir/core/ops.def ---- */

/* More attributes than any op has. */
#define ATTRS_MAX    32
#define KEYWORDS_MAX 32 /* of a list */

bool parse_ir_keyword(struct parser *p, enum ir_keyword_list list, const char *expected, const char *what,
                      int *out)
{
	const char *names[KEYWORDS_MAX];
	int n = ir_keyword_count(list);
	n = n < KEYWORDS_MAX ? n : KEYWORDS_MAX;
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
	return parse_lookup(p, t, arena_printf(&p->arena, "attribute of %s", op->name), names, n);
}

bool parse_attrs(struct parser *p, enum ir_opcode code, void *attrs, bool skip_required)
{
	const struct ir_op_desc *op = ir_op_desc(code);
	struct loc at = p->tok.loc;
	uint32_t seen = 0;
	if (parse_accept(p, '{')) {
		while (!parse_at(p, '}')) {
			struct tok t;
			if (!parse_token(p, TOK_WORD, "an attribute or '}'", &t))
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
