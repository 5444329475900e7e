/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight expressions (their text is in ir/weights/weight.h). Constructors check shapes. A counted stack parses its
 * element once for each number, with {i} in tensor names replaced by it.
 */
#include "ir/text/parser.h"

#include <string.h>

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

/* `name` with {i} replaced. */
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

/* tensor "file":"name" f32[2,3], or q4[2,64] */
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

/* `i in 0..12, E`: parses E again for each number */
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

/* One field of a kind, by its letter in kinds.def. */
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

bool parse_wexpr(struct parser *p, const struct ir_wexpr **out)
{
	struct wx x = {.p = p};
	return parse_expression(&x, out);
}
