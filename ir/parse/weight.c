/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Provenance expressions of weights (ir/weights/weight.h has their text). The constructors
 * check shapes; here are words, counts and the counted stack, which reads its
 * element once for each number with {i} in tensor names replaced.
 */
#include "ir/parse/parser.h"

#include <string.h>

#define PLACEHOLDER "{i}"
#define STACK_MAX   65536

/* The counter of the stack around, when there is one. */
struct wx {
	struct parser *p;
	bool counts;
	int64_t i;
};

static bool parse_any(struct wx *x, const struct ir_wexpr **out);

static bool fits(struct wx *x, struct loc at, const char *word, const struct ir_wexpr *e)
{
	if (x->p->n_wexprs++ >= PARSE_WEXPR_MAX)
		return parse_fail(x->p, at, DIAG_LIMIT, "more than %d parts of weight expressions",
		                  PARSE_WEXPR_MAX);
	return e != NULL || parse_fail(x->p, at, DIAG_SHAPE, "the arguments of %s do not fit", word);
}

/* ---- leaves ---- */

static const char *numbered(struct wx *x, const char *name)
{
	struct buf text;
	const char *hole;
	if (!x->counts || strstr(name, PLACEHOLDER) == NULL)
		return name;
	buf_init(&text);
	while ((hole = strstr(name, PLACEHOLDER)) != NULL) {
		buf_bytes(&text, name, (size_t)(hole - name));
		buf_printf(&text, "%lld", (long long)x->i);
		name = hole + strlen(PLACEHOLDER);
	}
	buf_str(&text, name);
	const char *copy = arena_strdup(&x->p->arena, text.data);
	buf_destroy(&text);
	return copy;
}

/* tensor "file":"name" f32[2,3] */
static bool parse_tensor(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	struct parser *p = x->p;
	struct tok file, name, type;
	enum ir_dtype stored;
	int64_t dims[IR_RANK_MAX];
	int rank;
	if (!parse_take(p, TOK_STRING, "the file in quotes", &file) || !parse_expect(p, ':') ||
	    !parse_take(p, TOK_STRING, "the tensor in quotes", &name) ||
	    !parse_take(p, TOK_WORD, "an element type", &type))
		return false;
	if (!ir_dtype_parse(type.text, strlen(type.text), &stored))
		return parse_unknown(p, &type, "element type", NULL, 0);
	if (!parse_shape(p, &rank, dims))
		return false;
	*out = wexpr_tensor(&p->arena, file.text, numbered(x, name.text), stored, rank, dims);
	return fits(x, at, "tensor", *out);
}

/* full(0.0, [32]) */
static bool parse_full(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	struct parser *p = x->p;
	int64_t dims[IR_RANK_MAX];
	double value;
	int rank;
	if (!parse_float(p, &value) || !parse_expect(p, ',') || !parse_shape(p, &rank, dims))
		return false;
	*out = wexpr_full(&p->arena, value, rank, dims);
	return fits(x, at, "full", *out);
}

static bool parse_key(struct parser *p, const char *key, bool first)
{
	return (first || parse_expect(p, ',')) && parse_expect_word(p, key) && parse_expect(p, '=');
}

/* One of two words. */
static bool parse_choice(struct parser *p, const char *zero, const char *one, bool *is_one)
{
	const char *words[] = {zero, one};
	struct tok t;
	if (!parse_take(p, TOK_WORD, "a word", &t))
		return false;
	*is_one = strcmp(t.text, one) == 0;
	return *is_one || strcmp(t.text, zero) == 0 || parse_unknown(p, &t, "word", words, 2);
}

/* sinusoid(rows=64, dim=32, layout=halves, spacing=t2t, start=1, base=10000.0) */
static bool parse_sinusoid(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	struct parser *p = x->p;
	int64_t rows, dim, start;
	bool halves, t2t;
	double base;
	if (!parse_key(p, "rows", true) || !parse_int(p, &rows) || !parse_key(p, "dim", false) ||
	    !parse_int(p, &dim) || !parse_key(p, "layout", false) ||
	    !parse_choice(p, "interleaved", "halves", &halves) || !parse_key(p, "spacing", false) ||
	    !parse_choice(p, "paper", "t2t", &t2t) || !parse_key(p, "start", false) ||
	    !parse_int(p, &start) || !parse_key(p, "base", false) || !parse_float(p, &base))
		return false;
	*out = wexpr_sinusoid(&p->arena, rows, dim, halves ? SINUSOID_HALVES : SINUSOID_INTERLEAVED,
	                      t2t ? SINUSOID_T2T : SINUSOID_PAPER, start, base);
	return fits(x, at, "sinusoid", *out);
}

struct numbers {
	double *items;
	size_t n, cap;
};

/* rotary(rows=64, scale=1.0, frequencies=[1.0, 0.01]) */
static bool parse_rotary(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	struct parser *p = x->p;
	struct numbers list = {0};
	int64_t rows;
	double scale;
	if (!parse_key(p, "rows", true) || !parse_int(p, &rows) || !parse_key(p, "scale", false) ||
	    !parse_float(p, &scale) || !parse_key(p, "frequencies", false) || !parse_expect(p, '['))
		return false;
	do {
		double *slot = ARENA_PUSH(&p->arena, &list);
		if (list.n > WEXPR_FREQUENCIES_MAX)
			return parse_fail(p, at, DIAG_LIMIT, "more than %d frequencies",
			                  WEXPR_FREQUENCIES_MAX);
		if (slot == NULL || !parse_float(p, slot))
			return false;
	} while (parse_accept(p, ','));
	if (!parse_expect(p, ']'))
		return false;
	*out = wexpr_rotary(&p->arena, rows, scale, list.items, list.n);
	return fits(x, at, "rotary", *out);
}

/* ---- lists ---- */

struct wexpr_list {
	const struct ir_wexpr **items;
	size_t n, cap;
};

static bool parse_list(struct wx *x, struct wexpr_list *list)
{
	do {
		const struct ir_wexpr **slot = ARENA_PUSH(&x->p->arena, list);
		if (slot == NULL || !parse_any(x, slot))
			return false;
	} while (parse_accept(x->p, ','));
	return true;
}

/* i in 0..12, E: reads E again for each number */
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
		const struct ir_wexpr **slot = ARENA_PUSH(&p->arena, list);
		p->lex = begin;
		p->tok = first;
		if (slot == NULL || !parse_any(&inner, slot))
			return false;
	}
	return true;
}

static bool parse_stack(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	struct wexpr_list list = {0};
	bool counted = parse_at_word(x->p, "i");
	if (counted ? !parse_counted(x, &list) : !parse_list(x, &list))
		return false;
	*out = wexpr_stack(&x->p->arena, list.n, list.items);
	return fits(x, at, "stack", *out);
}

static bool parse_axis(struct parser *p, int *axis)
{
	int64_t v;
	struct loc at = p->tok.loc;
	*axis = 0;
	if (!parse_int(p, &v) || !parse_expect(p, ','))
		return false;
	if (v < 0 || v >= IR_RANK_MAX)
		return parse_fail(p, at, DIAG_SHAPE, "axis %lld does not exist", (long long)v);
	*axis = (int)v;
	return true;
}

static bool parse_concat(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	struct wexpr_list list = {0};
	int axis;
	if (!parse_axis(x->p, &axis) || !parse_list(x, &list))
		return false;
	*out = wexpr_concat(&x->p->arena, axis, list.n, list.items);
	return fits(x, at, "concat", *out);
}

/* ---- with one or two expressions ---- */

static bool parse_int_comma(struct parser *p, int64_t *out)
{
	return parse_int(p, out) && parse_expect(p, ',');
}

static bool parse_index(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	int64_t begin;
	int axis;
	if (!parse_axis(x->p, &axis) || !parse_int_comma(x->p, &begin) || !parse_any(x, &e))
		return false;
	*out = wexpr_index(&x->p->arena, axis, begin, e);
	return fits(x, at, "index", *out);
}

static bool parse_slice(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	int64_t begin, end;
	int axis;
	if (!parse_axis(x->p, &axis) || !parse_int_comma(x->p, &begin) || !parse_int_comma(x->p, &end) ||
	    !parse_any(x, &e))
		return false;
	*out = wexpr_slice(&x->p->arena, axis, begin, end, e);
	return fits(x, at, "slice", *out);
}

static bool parse_transpose(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	if (!parse_any(x, &e))
		return false;
	*out = wexpr_transpose(&x->p->arena, e);
	return fits(x, at, "transpose", *out);
}

static bool parse_reshape(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	int64_t dims[IR_RANK_MAX];
	int rank;
	if (!parse_shape(x->p, &rank, dims) || !parse_expect(x->p, ',') || !parse_any(x, &e))
		return false;
	*out = wexpr_reshape(&x->p->arena, rank, dims, e);
	return fits(x, at, "reshape", *out);
}

static bool parse_rope(struct wx *x, struct loc at, enum ir_wexpr_kind kind, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	int64_t heads;
	if (!parse_int_comma(x->p, &heads) || !parse_any(x, &e))
		return false;
	*out = wexpr_rope(&x->p->arena, kind, heads, e);
	return fits(x, at, "the rope permutation", *out);
}

static bool parse_binary(struct wx *x, struct loc at, enum ir_wexpr_kind kind, const struct ir_wexpr **out)
{
	const struct ir_wexpr *a, *b;
	if (!parse_any(x, &a) || !parse_expect(x->p, ',') || !parse_any(x, &b))
		return false;
	*out = wexpr_binary(&x->p->arena, kind, a, b);
	return fits(x, at, "the operation", *out);
}

static bool parse_offset(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	double value;
	if (!parse_float(x->p, &value) || !parse_expect(x->p, ',') || !parse_any(x, &e))
		return false;
	*out = wexpr_offset(&x->p->arena, value, e);
	return fits(x, at, "offset", *out);
}

static bool parse_repeated(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	int64_t times;
	int axis;
	if (!parse_axis(x->p, &axis) || !parse_int_comma(x->p, &times) || !parse_any(x, &e))
		return false;
	*out = wexpr_repeat(&x->p->arena, axis, times, e);
	return fits(x, at, "repeat", *out);
}

/* round(bf16, E); elements that are numbers of the type need none */
static bool parse_round(struct wx *x, struct loc at, const struct ir_wexpr **out)
{
	const struct ir_wexpr *e;
	bool is_f16;
	if (!parse_choice(x->p, "bf16", "f16", &is_f16) || !parse_expect(x->p, ',') || !parse_any(x, &e))
		return false;
	*out = wexpr_round(&x->p->arena, is_f16 ? DT_F16 : DT_BF16, e);
	return fits(x, at, "round", *out);
}

/* ---- by the word ---- */

/* Spellings in the order of enum ir_wexpr_kind. */
static const char *const kind_words[] = {
        [WX_TENSOR] = "tensor",
        [WX_FULL] = "full",
        [WX_SINUSOID] = "sinusoid",
        [WX_ROTARY] = "rotary",
        [WX_STACK] = "stack",
        [WX_CONCAT] = "concat",
        [WX_INDEX] = "index",
        [WX_SLICE] = "slice",
        [WX_TRANSPOSE] = "transpose",
        [WX_RESHAPE] = "reshape",
        [WX_ROPE_H2I] = "rope_halves_to_interleaved",
        [WX_ROPE_I2H] = "rope_interleaved_to_halves",
        [WX_MUL] = "mul",
        [WX_DIV] = "div",
        [WX_OFFSET] = "offset",
        [WX_REPEAT] = "repeat",
        [WX_ROUND] = "round",
};

static bool parse_arguments(struct wx *x, struct loc at, enum ir_wexpr_kind kind, const struct ir_wexpr **out)
{
	switch (kind) {
	case WX_TENSOR: return parse_tensor(x, at, out);
	case WX_FULL: return parse_full(x, at, out);
	case WX_SINUSOID: return parse_sinusoid(x, at, out);
	case WX_ROTARY: return parse_rotary(x, at, out);
	case WX_STACK: return parse_stack(x, at, out);
	case WX_CONCAT: return parse_concat(x, at, out);
	case WX_INDEX: return parse_index(x, at, out);
	case WX_SLICE: return parse_slice(x, at, out);
	case WX_TRANSPOSE: return parse_transpose(x, at, out);
	case WX_RESHAPE: return parse_reshape(x, at, out);
	case WX_ROPE_H2I:
	case WX_ROPE_I2H: return parse_rope(x, at, kind, out);
	case WX_MUL:
	case WX_DIV: return parse_binary(x, at, kind, out);
	case WX_OFFSET: return parse_offset(x, at, out);
	case WX_REPEAT: return parse_repeated(x, at, out);
	case WX_ROUND: return parse_round(x, at, out);
	}
	return false;
}

static bool parse_kind(struct parser *p, struct tok *t, enum ir_wexpr_kind *kind)
{
	*kind = WX_TENSOR;
	if (!parse_take(p, TOK_WORD, "a weight expression", t))
		return false;
	for (size_t i = 0; i < TFMC_COUNT(kind_words); i++) {
		if (strcmp(kind_words[i], t->text) == 0) {
			*kind = (enum ir_wexpr_kind)i;
			return true;
		}
	}
	return parse_unknown(p, t, "weight expression", kind_words, TFMC_COUNT(kind_words));
}

static bool parse_any(struct wx *x, const struct ir_wexpr **out)
{
	struct parser *p = x->p;
	enum ir_wexpr_kind kind;
	struct tok t;
	*out = NULL;
	if (!parse_enter(p) || !parse_kind(p, &t, &kind))
		return false;
	if (kind != WX_TENSOR && !parse_expect(p, '('))
		return false;
	bool ok = parse_arguments(x, t.loc, kind, out) && (kind == WX_TENSOR || parse_expect(p, ')'));
	parse_leave(p);
	return ok;
}

bool parse_wexpr(struct parser *p, const struct ir_wexpr **out)
{
	struct wx x = {.p = p};
	return parse_any(&x, out);
}
