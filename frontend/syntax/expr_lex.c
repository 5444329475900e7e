/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lexer of expressions. Every number has one syntactic form; forms of other languages (010, 1_000, 12:30, .5,
 * 1.) are rejected with a message that shows the correct one. Positions `from` and `to` are byte offsets in the
 * source; a token of kind TOK_ERROR has been reported.
 * make_token() sets the position after the token, also of a wrong one. peek() past the end is zero, so that scans end.
 */
#include "frontend/syntax/lex.h"

#include <math.h>
#include <string.h>

#include "ir/support/chars.h"
#include "ir/support/number.h"
#include "ir/support/utf8.h"

static const char *const puncts[] = {
        "**", "//", "==", "!=", "<=", ">=", "..", "+", "-", "*",
        "/",  "%",  "<",  ">",  "(",  ")",  "[",  "]", ",", "=",
};

/* Columns count code points; a text whose columns are not known (!exact) is located as a whole. */
struct loc expr_lex_loc(const struct expr_source *src, size_t offset, size_t len)
{
	struct loc loc = src->loc;
	if (!src->exact)
		return loc;
	if (offset > src->len)
		offset = src->len;
	if (len > src->len - offset)
		len = src->len - offset;
	loc.col += (uint32_t)utf8_count(src->text, offset);
	loc.len = (uint32_t)utf8_count(src->text + offset, len);
	return loc;
}

const char *expr_lex_describe(struct arena *a, const struct token *t)
{
	if (t->kind == TOK_END)
		return "the end";
	if (t->kind == TOK_STRING || t->kind == TOK_SINGLE)
		return arena_printf(a, "the string '%.40s'", t->text);
	return arena_printf(a, "'%.40s'", t->text);
}

/* The character at a byte offset, zero after the end. */
static char peek(const struct lexer *lx, size_t at)
{
	return at < lx->src.len ? lx->src.text[at] : '\0';
}

/* Makes the token of bytes [from, to) and goes on after it. */
static struct token make_token(struct lexer *lx, enum token_kind kind, size_t from, size_t to)
{
	struct token t = {.kind = kind, .offset = from, .len = to - from};
	t.text = arena_strndup(lx->arena, lx->src.text + from, to - from);
	lx->at = to;
	return t;
}

static size_t skip_digits(const struct lexer *lx, size_t at)
{
	while (char_is_digit(peek(lx, at)))
		at++;
	return at;
}

static size_t skip_word(const struct lexer *lx, size_t at)
{
	while (char_is_word(peek(lx, at)))
		at++;
	return at;
}

/* Reports bytes [from, to), with advice how to write the number. Returns the token of kind TOK_ERROR. */
static struct token bad_number(struct lexer *lx, size_t from, size_t to, const char *advice)
{
	struct token t = make_token(lx, TOK_ERROR, from, to);
	diag_error(lx->cx, expr_lex_loc(&lx->src, from, to - from), DIAG_NUMBER,
	           "'%.40s' is not a number here; %s", t.text, advice);
	return t;
}

/* Reports digits followed by letters (1_000, 0o7, 2x) and the form to write instead. */
static struct token report_letters_after_number(struct lexer *lx, size_t from, size_t to)
{
	const char *text = lx->src.text + from;
	struct buf plain;
	struct token t;
	if (memchr(text, '_', to - from) != NULL) {
		buf_init(&plain);
		buf_str(&plain, "write ");
		for (size_t i = 0; i < to - from; i++) {
			if (text[i] != '_')
				buf_char(&plain, text[i]);
		}
		buf_str(&plain, " without '_'");
		t = bad_number(lx, from, to, plain.data);
		buf_destroy(&plain);
		return t;
	}
	if (text[0] == '0' && (text[1] == 'o' || text[1] == 'b'))
		return bad_number(lx, from, to, "numbers are decimal, or hexadecimal with 0x");
	return bad_number(lx, from, to,
	                  "numbers are written like 12, 0x1f, 0.5 or 1e-5; a product needs '*'");
}

/* Reads 0x and hex digits, at most 64 bits. The parser rejects values beyond int64. */
static struct token hexadecimal(struct lexer *lx, size_t from)
{
	size_t to = skip_word(lx, from);
	const char *text = lx->src.text + from;
	struct token t = {.kind = TOK_INT};
	uint64_t v = 0;
	for (size_t i = 2; i < to - from; i++) {
		int digit = char_hex_value(text[i]);
		if (digit < 0)
			return report_letters_after_number(lx, from, to);
		if (v >> 60 != 0) {
			t = make_token(lx, TOK_ERROR, from, to);
			diag_error(lx->cx, expr_lex_loc(&lx->src, from, to - from), DIAG_OVERFLOW,
			           "'%.40s' does not fit into 64 bits", t.text);
			return t;
		}
		v = v << 4 | (uint64_t)digit;
	}
	if (to - from == 2)
		return report_letters_after_number(lx, from, to);
	t = make_token(lx, TOK_INT, from, to);
	t.magnitude = v;
	return t;
}

/* Reads decimal digits [from, to), at most 64 bits. The sign is an operator, so -2^63 is left to the parser. */
static struct token lex_integer(struct lexer *lx, size_t from, size_t to)
{
	const char *text = lx->src.text + from;
	struct token t;
	uint64_t v = 0;
	if (text[0] == '0' && to - from > 1)
		return bad_number(lx, from, to, "write it without the leading zero");
	/* 12:30 is a number in YAML 1.1 (base 60). */
	if (peek(lx, to) == ':' && char_is_digit(peek(lx, to + 1))) {
		size_t end = to;
		while (char_is_digit(peek(lx, end)) || peek(lx, end) == ':')
			end++;
		return bad_number(lx, from, end,
		                  "write one plain number, or a quoted string where a string is wanted");
	}
	for (size_t i = from; i < to; i++) {
		uint64_t digit = (uint64_t)(lx->src.text[i] - '0');
		if (v > (UINT64_MAX - digit) / 10) {
			t = make_token(lx, TOK_ERROR, from, to);
			diag_error(lx->cx, expr_lex_loc(&lx->src, from, to - from), DIAG_OVERFLOW,
			           "'%.40s' does not fit into 64 bits", t.text);
			return t;
		}
		v = 10 * v + digit;
	}
	t = make_token(lx, TOK_INT, from, to);
	t.magnitude = v;
	return t;
}

/* Reads bytes [from, to) as a float; the caller has checked its form, but for a leading zero. */
static struct token lex_decimal(struct lexer *lx, size_t from, size_t to)
{
	struct token t = make_token(lx, TOK_FLOAT, from, to);
	const char *text = lx->src.text + from;
	if (text[0] == '0' && char_is_digit(text[1]))
		return bad_number(lx, from, to, "write it without the leading zero");
	if (!number_parse_f64(text, to - from, &t.number))
		return report_letters_after_number(lx, from, to);
	if (isinf(t.number)) {
		diag_error(lx->cx, expr_lex_loc(&lx->src, from, to - from), DIAG_OVERFLOW,
		           "'%.40s' is too large for a float", t.text);
		t.kind = TOK_ERROR;
	}
	return t;
}

/* Skips [eE][+-]digits at `at`; returns the end, or `at` when there is none: the letter then follows a number, which
 * lex_number() reports. */
static size_t skip_exponent(const struct lexer *lx, size_t at)
{
	size_t p = at + 1;
	if (peek(lx, at) != 'e' && peek(lx, at) != 'E')
		return at;
	if (peek(lx, p) == '+' || peek(lx, p) == '-')
		p++;
	return char_is_digit(peek(lx, p)) ? skip_digits(lx, p) : at;
}

/* Reads a number; letters directly after it are an error, as `2x` is no product. `1..4` is a range, so two points end
 * a number. */
static struct token lex_number(struct lexer *lx, size_t from)
{
	if (peek(lx, from) == '0' && (peek(lx, from + 1) == 'x' || peek(lx, from + 1) == 'X'))
		return hexadecimal(lx, from);
	size_t to = skip_digits(lx, from);
	bool is_float = false;
	if (peek(lx, to) == '.' && peek(lx, to + 1) != '.') {
		if (!char_is_digit(peek(lx, to + 1)))
			return bad_number(lx, from, to + 1, "write digits on both sides of the point");
		to = skip_digits(lx, to + 1);
		is_float = true;
	}
	size_t end = skip_exponent(lx, to);
	is_float = is_float || end != to;
	if (char_is_word(peek(lx, end)))
		return report_letters_after_number(lx, from, skip_word(lx, end));
	return is_float ? lex_decimal(lx, from, end) : lex_integer(lx, from, end);
}

/* Only `.inf` begins with a point; .5 and member accesses are reported, each with the form to write. */
static struct token lex_point(struct lexer *lx, size_t from)
{
	size_t to = skip_word(lx, from + 1);
	if (to - from == 4 && memcmp(lx->src.text + from, ".inf", 4) == 0) {
		struct token t = make_token(lx, TOK_FLOAT, from, to);
		t.number = (double)INFINITY;
		return t;
	}
	if (char_is_digit(peek(lx, from + 1)))
		return bad_number(lx, from, to, "write digits on both sides of the point");
	if (from > 0 && char_is_letter(peek(lx, from + 1))) {
		struct token t = make_token(lx, TOK_ERROR, from, to);
		diag_error(lx->cx, expr_lex_loc(&lx->src, from, to - from), DIAG_EXPRESSION,
		           "values have no members; operators are functions, as transpose(x, [1, 0])");
		return t;
	}
	return bad_number(lx, from, to == from ? from + 1 : to,
	                  "the only literal that begins with a point is .inf");
}

/* Reads a string in single or double quotes; there are no escapes. Its location has the quotes, its text has not. */
static struct token lex_string(struct lexer *lx, size_t from)
{
	char quote = lx->src.text[from];
	size_t to = from + 1;
	while (to < lx->src.len && lx->src.text[to] != quote)
		to++;
	if (to == lx->src.len) {
		diag_error(lx->cx, expr_lex_loc(&lx->src, from, to - from), DIAG_EXPRESSION,
		           "the string has no closing %c", quote);
		return make_token(lx, TOK_ERROR, from, to);
	}
	struct token t = make_token(lx, quote == '\'' ? TOK_SINGLE : TOK_STRING, from + 1, to);
	t.offset = from;
	t.len = to + 1 - from;
	lx->at = to + 1;
	return t;
}

/* Returns advice for operators of other languages, or "". */
static const char *advice_for_char(char c)
{
	static const char *const advice[][2] = {
	        {"@", "; the product of matrices is matmul(a, b)"},
	        {":", "; a part of an axis is slice(x, axis, begin, end), one element is slice and reshape"},
	        {"^", "; a power is written **"},
	        {"&", "; write `and`"},
	        {"|", "; write `or`"},
	        {"!", "; write `not`"},
	        {"?", "; a choice is if(condition, a, b), of tensors where(condition, a, b)"},
	};
	for (size_t i = 0; i < TFMC_COUNT(advice); i++)
		if (advice[i][0][0] == c)
			return advice[i][1];
	return "";
}

/* Operators are matched in the order of `puncts`, longer ones first. `~` is a name, as YAML writes null. A character
 * without meaning is consumed, so that the text always ends. */
struct token expr_lex_next(struct lexer *lx)
{
	while (char_is_blank(peek(lx, lx->at)))
		lx->at++;
	size_t from = lx->at;
	char c = peek(lx, from);
	if (from >= lx->src.len)
		return make_token(lx, TOK_END, from, from);
	if (char_is_digit(c))
		return lex_number(lx, from);
	if (char_is_letter(c))
		return make_token(lx, TOK_NAME, from, skip_word(lx, from));
	if (c == '\'' || c == '"')
		return lex_string(lx, from);
	if (c == '~')
		return make_token(lx, TOK_NAME, from, from + 1);
	for (size_t i = 0; i < TFMC_COUNT(puncts); i++) {
		size_t n = strlen(puncts[i]);
		if (lx->src.len - from >= n && memcmp(lx->src.text + from, puncts[i], n) == 0)
			return make_token(lx, TOK_PUNCT, from, from + n);
	}
	if (c == '.')
		return lex_point(lx, from);
	uint32_t cp;
	size_t n = utf8_decode(lx->src.text + from, lx->src.len - from, &cp);
	struct token t = make_token(lx, TOK_ERROR, from, from + (n == 0 ? 1 : n));
	diag_error(lx->cx, expr_lex_loc(&lx->src, from, t.len), DIAG_EXPRESSION,
	           "the character '%s' has no meaning in an expression%s", t.text, advice_for_char(c));
	return t;
}
