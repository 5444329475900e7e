/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser of bodies: one op per line, with results, op, operands, attributes, types and location. The op table drives
 * everything but repeat and group. Each parse_* consumes what it is named after; false after a diagnostic, or without
 * one if memory ran out (ir_parse sees that in the arenas). p->tok is the next token, p->b builds the function, and
 * p->names maps the visible %names to its values. Lists have at most BUILD_LIST_MAX entries, since text may be hostile.
 *
 *   %y, %c1 = repeat %l = 0 to 6 carry (%x = %x0, %c = %c0) { ... yield %x2, %c2 } : types loc(...)
 *   %q = group linear {mr=14} { pre .. root .. post .. yield %q } at [0] : types loc(...)
 */
#include "ir/text/parser.h"

#include <string.h>

#include "ir/support/chars.h"

/* ---- parts of a line ---- */

/* ---- dims ---- */

/* A declared dim symbol. */
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

/* factor = integer | symbol | '(' dim ')' | 'max' '(' dim ',' dim ')' */
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

/* term = factor ('*' factor | '//' integer)*, from left to right: 2*S//4 is (2*S)//4. */
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

/* dim = ['-'] term (('+' | '-') term)* */
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

/* The depth is counted, as parentheses nest; the table of dims is asked for overflows once, at the end. */
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

/* [a,b] */
static bool parse_dims(struct parser *p, struct ir_dim_list *out)
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

/* `[1,2]` */
static bool parse_ints(struct parser *p, struct ir_int_list *out)
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
#define FLOATS(NAME, name, dtype)                                                         #name,
#define FORMAT(NAME, name, bits, block, super, sub, scale, offset, zero, shift, codebook) #name,
#include "ir/types/formats.def"
};

/* By the name of a quantized format a tensor of a weight expression is told from one with an element type. */
bool parse_at_format(const struct parser *p)
{
	enum ir_format f;
	return p->tok.kind == TOK_WORD && ir_format_parse(p->tok.text, strlen(p->tok.text), &f) &&
	       ir_format_is_quantized(f);
}

/* The table begins with `plain`, which is not written. */
bool parse_format(struct parser *p, enum ir_format *out)
{
	int i;
	if (!parse_one_of(p, "a format of weights", "format of weights", format_names + 1,
	                  TFMC_COUNT(format_names) - 1, &i))
		return false;
	*out = (enum ir_format)(i + 1);
	return true;
}

/* *out is valid also after a failure. */
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

/* `@name` of a declared state, after the word `state`. */
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

/* A type of constant or symbolic dims; the table of types rejects a dim that may be negative. */
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

/* Without an encoding *out is row, the default. */
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

/* `:line:column` of a file. It is registered as a source without text if it is not one yet. */
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

/* `#loc24`, defined at the end of the text, which parse_aliases() has parsed before the ops. */
static bool parse_alias(struct parser *p, struct ir_loc *out)
{
	const struct ir_loc *loc = strmap_get(&p->locs, p->tok.text);
	if (loc == NULL)
		return parse_unknown(p, &p->tok, "location", NULL, 0);
	*out = *loc;
	parse_next(p);
	return true;
}

/* loc(#loc24); or, as texts of earlier releases have it, and definitions: loc("file":line:column "path"),
 * loc("file":line:column), loc("path") */
bool parse_loc(struct parser *p, struct ir_loc *out)
{
	struct tok t;
	if (!parse_accept_word(p, "loc"))
		return true;
	if (!parse_expect(p, '('))
		return false;
	if (p->tok.kind == TOK_ENCODING)
		return parse_alias(p, out) && parse_expect(p, ')');
	if (!parse_token(p, TOK_STRING, "a quoted text", &t))
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

/* Collects the names of the list for the message with the nearest one. */
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

/* `=value` of an attribute into the field at `at` of its op's attribute struct, whose C type is that of d->kind; a
 * flag has no value. Weights are written as operands. */
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

/* The attribute has no default, so the text must have it. */
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

/* The attribute of a weight reference ends the list: it has no name in the text. */
int parse_attr_name(struct parser *p, const struct ir_op_desc *op, const struct tok *t)
{
	const char *names[ATTRS_MAX];
	size_t n = 0;
	for (; op->attrs[n].name != NULL && op->attrs[n].kind != ATTR_WEIGHT && n < ATTRS_MAX; n++)
		names[n] = op->attrs[n].name;
	return parse_lookup(p, t, arena_printf(&p->arena, "attribute of %s", op->name), names, n);
}

/* `{name=value ...}` of an op, into `attrs`, which has the defaults. seen: bit i, attribute i. skip_required:
 * attributes without default may be absent, as those of group, whose form has them elsewhere. */
static bool parse_attrs(struct parser *p, enum ir_opcode code, void *attrs, bool skip_required)
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

/* ---- ops ---- */

/* ---- values ---- */

/* A name whose value is NULL in the map is free: parse_scope_end cannot remove keys. */
bool parse_define(struct parser *p, const struct tok *name, struct ir_value v)
{
	if (strmap_get(&p->names, name->text) != NULL)
		return parse_fail(p, name->loc, DIAG_NAME_CLASH, "%%%s is defined twice", name->text);
	const char **slot = ARENA_PUSH(&p->arena, &p->defined);
	if (slot == NULL || !strmap_set(&p->names, name->text, (void *)(uintptr_t)v.id))
		return false;
	*slot = name->text;
	/* a number is no name: the printer numbers values anew */
	if (strspn(name->text, "0123456789") != strlen(name->text))
		irb_name(p->b, v, name->text);
	return true;
}

void parse_scope_end(struct parser *p, size_t mark)
{
	while (p->defined.n > mark)
		strmap_set(&p->names, p->defined.items[--p->defined.n], NULL);
}

/* The value of a visible name; suggestions are the visible names. */
static bool find_value(struct parser *p, const struct tok *t, struct ir_value *out)
{
	uintptr_t id = (uintptr_t)strmap_get(&p->names, t->text);
	*out = (struct ir_value){(uint32_t)id};
	return id != 0 || parse_unknown(p, t, "value", p->defined.items, p->defined.n);
}

/* The declared weight that the token names; NULL after a diagnostic. */
static const struct ir_weight *find_weight(struct parser *p, const struct tok *t)
{
	const struct ir_weight *w = ir_find_weight(p->m, t->text);
	if (w != NULL)
		return w;
	size_t n = p->m->weights.n;
	const char **names = ARENA_ARRAY(&p->arena, const char *, n + 1);
	for (size_t i = 0; names != NULL && i < n; i++)
		names[i] = p->m->weights.items[i]->name;
	parse_unknown(p, t, "weight", names, names != NULL ? n : 0);
	return NULL;
}

/* `[%l,%e]`, the indices of a weight, values of rank 0; *n is 0 if there are none. */
static bool parse_indices(struct parser *p, struct ir_value *index, size_t *n)
{
	*n = 0;
	if (!parse_accept(p, '['))
		return true;
	do {
		struct tok t;
		if (*n == IR_RANK_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d indices", IR_RANK_MAX);
		if (!parse_token(p, TOK_VALUE, "%name", &t) || !find_value(p, &t, &index[(*n)++]))
			return false;
	} while (parse_accept(p, ','));
	return parse_expect(p, ']');
}

/* @name[%l] #panel16. The reference repeats the encoding of the declaration, so that a line of text shows the layout
 * that it reads. */
static bool parse_weight_ref(struct parser *p, struct ir_value *out)
{
	struct ir_value index[IR_RANK_MAX];
	struct tok t = p->tok;
	enum ir_encoding encoding;
	size_t n;
	parse_next(p);
	const struct ir_weight *w = find_weight(p, &t);
	if (w == NULL || !parse_indices(p, index, &n))
		return false;
	struct loc at = p->tok.loc;
	if (!parse_encoding(p, &encoding))
		return false;
	if (encoding != w->encoding)
		return parse_fail(p, at, DIAG_IR_TYPE, "the weight @%s is #%s, here it is #%s", w->name,
		                  ir_encoding_name(w->encoding), ir_encoding_name(encoding));
	build_report_at(p->b, t.loc);
	*out = irb_weight_ref(p->b, w, index, n);
	return !irb_failed(p->b);
}

/* %x or @w[%l] */
static bool parse_value(struct parser *p, struct ir_value *out)
{
	struct tok t;
	if (p->tok.kind == TOK_SYMBOL)
		return parse_weight_ref(p, out);
	return parse_token(p, TOK_VALUE, "%name or @name", &t) && find_value(p, &t, out);
}

/* ---- operands ---- */

/* A word is an operand only as `name=`. */
static bool at_operand(const struct parser *p)
{
	return p->tok.kind == TOK_VALUE || p->tok.kind == TOK_SYMBOL ||
	       (p->tok.kind == TOK_WORD && lex_peek(&p->lex) == '=');
}

/* `name=`, before a named operand; the operands skipped before it become absent (id 0). So it must be later in the
 * row of ops.def than those before it; variadic operands have no names. */
static bool parse_operand_name(struct parser *p, const struct ir_op_desc *op, struct parse_values *list)
{
	struct tok t = p->tok;
	size_t i = 0;
	while (op->operands[i].name != NULL && strcmp(op->operands[i].name, t.text) != 0)
		i++;
	parse_next(p);
	if (op->operands[i].name == NULL || op->operands[i].kind == OPERAND_VARIADIC || i < list->n)
		return parse_fail(p, t.loc, DIAG_TIR_NAME, "%s has no operand '%s' at this place", op->name,
		                  t.text);
	while (list->n < i)
		if (ARENA_PUSH(&p->arena, list) == NULL)
			return false;
	return parse_expect(p, '=');
}

/* `%x, @w, name=%y`: operands up to the first token that begins none; there may be none. */
static bool parse_operands(struct parser *p, const struct ir_op_desc *op, struct parse_values *list)
{
	if (!at_operand(p))
		return true;
	do {
		if (p->tok.kind == TOK_WORD && !parse_operand_name(p, op, list))
			return false;
		struct ir_value *slot = ARENA_PUSH(&p->arena, list);
		if (slot == NULL || !parse_value(p, slot))
			return false;
		if (list->n > BUILD_LIST_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d operands", BUILD_LIST_MAX);
	} while (parse_accept(p, ','));
	return true;
}

/* ---- ops ---- */

/* The written type equals the inferred one. */
static bool check_type(struct parser *p, struct loc at, const struct ir_type *inferred,
                       const struct ir_type *written)
{
	return inferred == written || parse_fail(p, at, DIAG_IR_TYPE, "the text says %s, the op gives %s",
	                                         ir_type_to_string(&p->arena, p->m->dims, written),
	                                         ir_type_to_string(&p->arena, p->m->dims, inferred));
}

/* `: type, type`: n types with their locations. They are parsed before the op is built, since its location
 * follows them. */
static bool parse_type_list(struct parser *p, size_t n, const struct ir_type **types, struct loc *at)
{
	for (size_t i = 0; i < n; i++) {
		if (!parse_expect(p, i == 0 ? ':' : ','))
			return false;
		at[i] = p->tok.loc;
		if (!parse_type(p, &types[i]))
			return false;
	}
	return true;
}

/* `: type, type`, which must be the types of the results of a region op, which is built already. */
static bool parse_result_types(struct parser *p, const struct ir_value *results, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct ir_type *written;
		if (!parse_expect(p, i == 0 ? ':' : ','))
			return false;
		struct loc at = p->tok.loc;
		if (!parse_type(p, &written) || !check_type(p, at, irb_type(p->b, results[i]), written))
			return false;
	}
	return true;
}

/* The line of an op without a region, after its name: `%x, %y {attributes} : types loc(...)`. The location is at the
 * end, but the op gets it when it is built: so types are parsed first and compared after. The builder infers the
 * types of the results, which must be the written ones; then their names are defined. */
static bool parse_plain(struct parser *p, enum ir_opcode code, const struct parse_names *results,
                        struct ir_loc loc)
{
	const struct ir_op_desc *op = ir_op_desc(code);
	struct parse_values operands = {0};
	const struct ir_type *types[2];
	struct ir_value values[2];
	struct loc at[2], line = loc.at;
	void *attrs = ir_default_attrs(&p->arena, code);
	if (attrs == NULL || !parse_operands(p, op, &operands) || !parse_attrs(p, code, attrs, false))
		return false;
	if (results->n != ir_op_desc(code)->results || results->n > TFMC_COUNT(types))
		return parse_fail(p, line, DIAG_TIR_SYNTAX, "%s gives %zu values, %zu are named", op->name,
		                  ir_op_desc(code)->results, results->n);
	if (!parse_type_list(p, results->n, types, at) || !parse_loc(p, &loc))
		return false;
	irb_set_loc(p->b, loc);
	build_report_at(p->b, line);
	irb_op(p->b, code, operands.items, operands.n, attrs, values, results->n);
	if (irb_failed(p->b))
		return false;
	for (size_t i = 0; i < results->n; i++)
		if (!check_type(p, at[i], irb_type(p->b, values[i]), types[i]) ||
		    !parse_define(p, &results->items[i], values[i]))
			return false;
	return true;
}

/* ---- repeat and group ---- */

/* The end of repeat and group after the body: types, location; defines the results. The op exists already, so its
 * location is set here. */
static bool finish_region_op(struct parser *p, struct ir_op *op, const struct parse_names *names,
                             const struct ir_value *results, size_t n, struct ir_loc loc)
{
	if (n != names->n)
		return parse_fail(p, loc.at, DIAG_TIR_SYNTAX, "the region yields %zu values, %zu are named",
		                  n, names->n);
	if (!parse_result_types(p, results, n) || !parse_loc(p, &loc))
		return false;
	op->loc = ir_import_loc(p->m, loc);
	for (size_t i = 0; i < n; i++)
		if (!parse_define(p, &names->items[i], results[i]))
			return false;
	return true;
}

/* (%x = %x0, %c = %c0): names of the arguments of the body, and initial values. args of parse_repeat have space for
 * BUILD_LIST_MAX. */
static bool parse_carries(struct parser *p, struct parse_names *names, struct parse_values *init)
{
	if (!parse_expect_word(p, "carry") || !parse_expect(p, '('))
		return false;
	while (!parse_at(p, ')')) {
		struct tok *name = ARENA_PUSH(&p->arena, names);
		struct ir_value *v = ARENA_PUSH(&p->arena, init);
		if (name == NULL || v == NULL || (names->n > 1 && !parse_expect(p, ',')))
			return false;
		if (!parse_token(p, TOK_VALUE, "%name", name) || !parse_expect(p, '=') || !parse_value(p, v))
			return false;
		if (names->n >= BUILD_LIST_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d carries", BUILD_LIST_MAX);
	}
	return parse_expect(p, ')');
}

/* %l = 0 to 6 */
static bool parse_range(struct parser *p, struct tok *index, int64_t *count)
{
	int64_t from;
	struct loc at;
	if (!parse_token(p, TOK_VALUE, "the index of the repeat", index) || !parse_expect(p, '='))
		return false;
	at = p->tok.loc;
	if (!parse_int(p, &from))
		return false;
	if (from != 0)
		return parse_fail(p, at, DIAG_TIR_SYNTAX, "a repeat begins at 0");
	return parse_expect_word(p, "to") && parse_int(p, count);
}

/* `{ ... yield ... }`: names of the index and the carries are visible in the body only. */
static bool parse_repeat_body(struct parser *p, const struct tok *index, const struct parse_names *carries,
                              const struct ir_value *args, struct parse_values *yields)
{
	size_t mark = p->defined.n;
	if (!parse_expect(p, '{') || !parse_define(p, index, args[REPEAT_INDEX]))
		return false;
	for (size_t i = 0; i < carries->n; i++)
		if (!parse_define(p, &carries->items[i], args[i + 1]))
			return false;
	if (!parse_body(p, OP_yield, yields, NULL))
		return false;
	parse_scope_end(p, mark);
	return true;
}

/* After the word `repeat`. The owner of the scope is read while the body is open: irb_repeat_end leaves it. */
static bool parse_repeat(struct parser *p, const struct parse_names *results, struct ir_loc loc)
{
	struct parse_names carries = {0};
	struct parse_values init = {0}, yields = {0};
	struct ir_value args[BUILD_LIST_MAX + 1], values[BUILD_LIST_MAX];
	struct tok index;
	int64_t count;
	if (!parse_range(p, &index, &count) || !parse_carries(p, &carries, &init))
		return false;
	irb_repeat_begin(p->b, count, init.items, init.n, args);
	if (irb_failed(p->b))
		return false;
	struct ir_op *op = p->b->scope->owner;
	if (!parse_repeat_body(p, &index, &carries, args, &yields) || yields.n > BUILD_LIST_MAX)
		return false;
	irb_repeat_end(p->b, yields.items, yields.n, values);
	return !irb_failed(p->b) && finish_region_op(p, op, results, values, yields.n, loc);
}

/* True at `{name=`: attributes and not the body, whose lines begin with `%` or a word without `=`. Reads ahead with
 * a copy of the lexer. */
static bool at_attrs(const struct parser *p)
{
	struct lexer lookahead = p->lex;
	if (!parse_at(p, '{'))
		return false;
	char c = lex_peek(&lookahead);
	if (c == '%' || c == '}')
		return false;
	lookahead.cx = NULL; /* reads one word, which cannot fail */
	if (!char_is_letter(c))
		return false;
	lex_next(&lookahead);
	return lex_peek(&lookahead) == '=';
}

/* After the word `group`. Root and offsets are known after the body only, so the builder gets all attributes at the
 * end. */
static bool parse_group(struct parser *p, const struct parse_names *results, struct ir_loc loc)
{
	struct parse_values yields = {0};
	struct ir_value values[BUILD_LIST_MAX];
	struct attrs_group *attrs = ir_default_attrs(&p->arena, OP_group);
	size_t mark = p->defined.n;
	int64_t root = -1;
	if (attrs == NULL ||
	    !parse_ir_keyword(p, KEYWORDS_GROUP, "the kind of the group", "kind of group", &attrs->kind))
		return false;
	if (at_attrs(p) && !parse_attrs(p, OP_group, attrs, true))
		return false;
	irb_group_begin(p->b);
	if (irb_failed(p->b) || !parse_expect(p, '{'))
		return false;
	struct ir_op *op = p->b->scope->owner;
	if (!parse_body(p, OP_yield, &yields, &root) ||
	    (parse_accept_word(p, "at") && !parse_dims(p, &attrs->at)) || yields.n > BUILD_LIST_MAX)
		return false;
	if (root < 0)
		return parse_fail(p, loc.at, DIAG_TIR_SYNTAX, "the group has no root");
	attrs->root = root;
	parse_scope_end(p, mark);
	irb_group_end(p->b, attrs, yields.items, yields.n, values);
	return !irb_failed(p->b) && finish_region_op(p, op, results, values, yields.n, loc);
}

/* ---- lines ---- */

/* `%y, %c1 =` before an op; nothing for an op without results. */
static bool parse_results(struct parser *p, struct parse_names *out)
{
	if (p->tok.kind != TOK_VALUE)
		return true;
	do {
		struct tok *t = ARENA_PUSH(&p->arena, out);
		if (t == NULL || !parse_token(p, TOK_VALUE, "%name", t))
			return false;
		if (out->n > BUILD_LIST_MAX)
			return parse_fail(p, p->tok.loc, DIAG_LIMIT, "more than %d results", BUILD_LIST_MAX);
	} while (parse_accept(p, ','));
	return parse_expect(p, '=');
}

/* Names of ops in texts of 0.1.0, and their names today. */
static const char *const renamed_ops[][2] = {{"round_rows", "quantize_rows"},
                                             {"take_rows", "select_rows"},
                                             {"last_at", "last_index"},
                                             {"strip_argmax", "block_argmax"},
                                             {"strip_score", "block_log_softmax"}};

/* Ops of texts of 0.1.0 that were renamed have an error of their own: the nearest name would mislead. */
bool parse_op_name(struct parser *p, const struct tok *t, enum ir_opcode *out)
{
	static const char *const names[] = {
#define OP(name, traits, operands, attributes, results, axes, formula) #name,
#include "ir/core/ops.def"
	};
	if (ir_op_find(t->text, strlen(t->text), out) && *out != OP_weight)
		return true;
	for (size_t i = 0; i < TFMC_COUNT(renamed_ops); i++)
		if (strcmp(t->text, renamed_ops[i][0]) == 0)
			return parse_fail(p, t->loc, DIAG_TIR_NAME, "the op '%s' is now called '%s'", t->text,
			                  renamed_ops[i][1]);
	return parse_unknown(p, t, "op", names, TFMC_COUNT(names));
}

/* One op with its results, attributes, region and location; build_report_at makes errors of the builder point to the
 * line in the text, not to the location it states. */
static bool parse_line(struct parser *p)
{
	struct parse_names results = {0};
	enum ir_opcode code;
	struct tok word;
	struct loc first = p->tok.loc;
	if (!parse_results(p, &results) || !parse_token(p, TOK_WORD, "an op", &word) ||
	    !parse_op_name(p, &word, &code))
		return false;
	struct ir_loc loc = {.at = results.n > 0 ? first : word.loc};
	irb_set_loc(p->b, loc);
	build_report_at(p->b, loc.at);
	if (code == OP_repeat)
		return parse_repeat(p, &results, loc);
	if (code == OP_group)
		return parse_group(p, &results, loc);
	if (ir_op_has(code, TRAIT_TERMINATOR))
		return parse_fail(p, word.loc, DIAG_TIR_SYNTAX, "%s does not belong here", word.text);
	return parse_plain(p, code, &results, loc);
}

/* ---- bodies ---- */

/* `pre`, `root` or `post` before a line of a group, in this order. *root: -1 before the root, which the caller then
 * sets. */
static bool parse_group_prefix(struct parser *p, int64_t *root, bool *is_root)
{
	struct loc at = p->tok.loc;
	*is_root = parse_accept_word(p, "root");
	if (*is_root)
		return *root < 0 || parse_fail(p, at, DIAG_TIR_SYNTAX, "a group has one root");
	if (parse_accept_word(p, "pre"))
		return *root < 0 || parse_fail(p, at, DIAG_TIR_SYNTAX, "'pre' after the root");
	if (parse_accept_word(p, "post"))
		return *root >= 0 || parse_fail(p, at, DIAG_TIR_SYNTAX, "'post' before the root");
	return parse_fail(p, at, DIAG_TIR_SYNTAX, "expected 'pre', 'root', 'post' or 'yield', found '%s'",
	                  p->tok.text);
}

/* The root is the last op that was appended when its line ends; weight references of the line come before it. */
bool parse_body(struct parser *p, enum ir_opcode end, struct parse_values *ends, int64_t *root)
{
	const char *last = ir_op_desc(end)->name;
	while (!parse_at_word(p, last)) {
		bool is_root = false;
		if (p->tok.kind == TOK_END || parse_at(p, '}'))
			return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "the body does not end in '%s'",
			                  last);
		if (root != NULL && !parse_group_prefix(p, root, &is_root))
			return false;
		if (!parse_line(p) || irb_failed(p->b))
			return false;
		if (is_root)
			*root = (int64_t)p->b->scope->ops.n - 1;
	}
	build_report_at(p->b, p->tok.loc);
	parse_next(p);
	return parse_operands(p, ir_op_desc(end), ends) && parse_expect(p, '}');
}
