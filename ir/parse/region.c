/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms of repeat and group:
 *
 *   %y, %c1 = repeat %l = 0 to 6 carry (%x = %x0, %c = %c0) { ... yield %x2, %c2 } : types loc(...)
 *   %q = group linear {mr=14} { pre .. root .. post .. yield %q } at [0] : types loc(...)
 */
#include "ir/parse/parser.h"

/* Both end alike: types, location, names. */
static bool finish(struct parser *p, struct ir_op *op, const struct parse_names *names,
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

/* (%x = %x0, %c = %c0) */
static bool parse_carries(struct parser *p, struct parse_names *names, struct parse_values *init)
{
	if (!parse_expect_word(p, "carry") || !parse_expect(p, '('))
		return false;
	while (!parse_at(p, ')')) {
		struct tok *name = ARENA_PUSH(&p->arena, names);
		struct ir_value *v = ARENA_PUSH(&p->arena, init);
		if (name == NULL || v == NULL || (names->n > 1 && !parse_expect(p, ',')))
			return false;
		if (!parse_take(p, TOK_VALUE, "%name", name) || !parse_expect(p, '=') || !parse_value(p, v))
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
	if (!parse_take(p, TOK_VALUE, "the index of the repeat", index) || !parse_expect(p, '='))
		return false;
	at = p->tok.loc;
	if (!parse_int(p, &from))
		return false;
	if (from != 0)
		return parse_fail(p, at, DIAG_TIR_SYNTAX, "a repeat begins at 0");
	return parse_expect_word(p, "to") && parse_int(p, count);
}

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

bool parse_repeat(struct parser *p, const struct parse_names *results, struct ir_loc loc)
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
	return !irb_failed(p->b) && finish(p, op, results, values, yields.n, loc);
}

/* True at `{name=`: attributes, not the body. */
static bool at_attrs(const struct parser *p)
{
	struct lexer ahead = p->lex;
	if (!parse_at(p, '{'))
		return false;
	char c = lex_peek(&ahead);
	if (c == '%' || c == '}')
		return false;
	ahead.cx = NULL; /* reads one word, which cannot fail */
	bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
	if (!letter)
		return false;
	lex_next(&ahead);
	return lex_peek(&ahead) == '=';
}

static bool parse_offsets(struct parser *p, struct attrs_group *attrs)
{
	return !parse_accept_word(p, "at") || parse_dims(p, &attrs->at);
}

bool parse_group(struct parser *p, const struct parse_names *results, struct ir_loc loc)
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
	if (!parse_body(p, OP_yield, &yields, &root) || !parse_offsets(p, attrs) || yields.n > BUILD_LIST_MAX)
		return false;
	if (root < 0)
		return parse_fail(p, loc.at, DIAG_TIR_SYNTAX, "the group has no root");
	attrs->root = root;
	parse_scope_end(p, mark);
	irb_group_end(p->b, attrs, yields.items, yields.n, values);
	return !irb_failed(p->b) && finish(p, op, results, values, yields.n, loc);
}
