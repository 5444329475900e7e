/* SPDX-License-Identifier: Apache-2.0 */
/* The lexer, see lex.h. Columns are code points, counted once per character (col is that of col_pos, which only
 * advances), so that long lines take linear time. peek_at is 0 after the end, so no bounds need checking. */
#include "ir/text/lex.h"

#include <string.h>

#include "ir/support/chars.h"
#include "ir/support/utf8.h"

void lex_init(struct lexer *lx, struct diag_context *cx, struct arena *arena, uint32_t source,
              const char *text, size_t len)
{
	*lx = (struct lexer){
	        .cx = cx, .arena = arena, .source = source, .text = text, .len = len, .line = 1, .col = 1};
}

/* The character at `offset` from the position; 0 after the end. */
static char peek_at(const struct lexer *lx, size_t offset)
{
	return lx->pos + offset < lx->len ? lx->text[lx->pos + offset] : '\0';
}

/* Skips blanks, newlines and comments, which begin with `;` and end with their line; counts lines. */
static void skip_blanks(struct lexer *lx)
{
	while (lx->pos < lx->len) {
		char c = lx->text[lx->pos];
		if (c == ';') {
			const char *end = memchr(lx->text + lx->pos, '\n', lx->len - lx->pos);
			lx->pos = end != NULL ? (size_t)(end - lx->text) : lx->len;
			continue;
		}
		if (!char_is_blank(c))
			return;
		lx->pos++;
		if (c == '\n') {
			lx->line++;
			lx->col_pos = lx->pos;
			lx->col = 1;
		}
	}
}

/* Only lines are counted; the column at the begin of a line is 1. */
void lex_skip(struct lexer *lx, size_t pos)
{
	for (size_t i = lx->pos; i < pos; i++)
		lx->line += lx->text[i] == '\n';
	lx->pos = lx->col_pos = pos;
	lx->col = 1;
}

char lex_peek(const struct lexer *lx)
{
	struct lexer ahead = *lx;
	skip_blanks(&ahead);
	return peek_at(&ahead, 0);
}

/* The location of the characters from `start` to the current position; one character if there are none. Advances the
 * counted column to `start`. */
static struct loc loc_from(struct lexer *lx, size_t start)
{
	lx->col += (uint32_t)utf8_count(lx->text + lx->col_pos, start - lx->col_pos);
	lx->col_pos = start;
	size_t n = lx->pos > start ? utf8_count(lx->text + start, lx->pos - start) : 1;
	return (struct loc){lx->source, lx->line, lx->col, (uint32_t)n};
}

/* Reports the first error. The position moves to the end, so that all further tokens are TOK_END. */
static struct tok fail(struct lexer *lx, size_t start, const char *message)
{
	struct loc loc = loc_from(lx, start);
	if (!lx->failed)
		diag_error(lx->cx, loc, DIAG_TIR_SYNTAX, "%s", message);
	lx->failed = true;
	lx->pos = lx->len;
	return (struct tok){.kind = TOK_END, .text = "", .loc = loc};
}

/* The token from `start` to the current position, whose text omits the first `skip` characters. */
static struct tok token(struct lexer *lx, enum tok_kind kind, size_t start, size_t skip)
{
	const char *text = arena_strndup(lx->arena, lx->text + start + skip, lx->pos - start - skip);
	return (struct tok){.kind = kind, .text = text, .loc = loc_from(lx, start)};
}

/* ---- strings ---- */

/* Consumes an escape after its backslash; the byte it stands for, or -1. Zero bytes are no escape: strings are
 * zero-terminated. */
static int lex_escape(struct lexer *lx)
{
	char c = peek_at(lx, 0);
	int high, low;
	lx->pos++;
	switch (c) {
	case '"':
	case '\\': return c;
	case 'n': return '\n';
	case 't': return '\t';
	case 'x':
		high = char_hex_value(peek_at(lx, 0));
		low = high < 0 ? -1 : char_hex_value(peek_at(lx, 1));
		if (low < 0 || high * 16 + low == 0)
			return -1;
		lx->pos += 2;
		return high * 16 + low;
	}
	return -1;
}

/* A quoted string, at its opening quote; start: of the token (its sigil). It ends in its line, so that a missing
 * quote is reported there. Escapes make it shorter than its text, hence a copy that grows. */
static struct tok lex_string(struct lexer *lx, enum tok_kind kind, size_t start)
{
	const char *line_end = memchr(lx->text + lx->pos, '\n', lx->len - lx->pos);
	size_t end = line_end != NULL ? (size_t)(line_end - lx->text) : lx->len, n = 0;
	char *out = NULL;
	size_t capacity = 0;
	for (lx->pos++; lx->pos < end && lx->text[lx->pos] != '"';) {
		int c = (unsigned char)lx->text[lx->pos++];
		if (c == '\\')
			c = lex_escape(lx);
		if (c < 0)
			return fail(lx, start,
			            "a backslash must be followed by \\, \", n, t or x and two digits");
		if (n + 1 >= capacity) {
			capacity = capacity == 0 ? 32 : capacity * 2;
			out = arena_grow(lx->arena, out, n, capacity, 1);
			if (out == NULL)
				return fail(lx, start, "out of memory");
		}
		out[n++] = (char)c;
	}
	if (lx->pos >= end)
		return fail(lx, start, "the quoted text does not end in its line");
	lx->pos++;
	const char *text = arena_strndup(lx->arena, out != NULL ? out : "", n);
	return (struct tok){.kind = kind, .text = text, .loc = loc_from(lx, start)};
}

/* ---- names and numbers ---- */

static void skip_name(struct lexer *lx)
{
	while (char_is_word(peek_at(lx, 0)) || peek_at(lx, 0) == '.')
		lx->pos++;
}

/* A name after its sigil (% @ # $), which the text of the token omits. Names of values and symbols may be
 * quoted, those of values may be a number. */
static struct tok lex_sigil(struct lexer *lx, enum tok_kind kind)
{
	size_t start = lx->pos++;
	if (peek_at(lx, 0) == '"' && (kind == TOK_VALUE || kind == TOK_SYMBOL))
		return lex_string(lx, kind, start);
	if (kind == TOK_VALUE && char_is_digit(peek_at(lx, 0))) {
		while (char_is_digit(peek_at(lx, 0)))
			lx->pos++;
		return token(lx, kind, start, 1);
	}
	if (!char_is_letter(peek_at(lx, 0)))
		return fail(lx, start, "a name is missing here");
	skip_name(lx);
	return token(lx, kind, start, 1);
}

static void skip_digits(struct lexer *lx)
{
	while (char_is_digit(peek_at(lx, 0)))
		lx->pos++;
}

/* An unsigned number: decimal with optional fraction and exponent, or 0x hexadecimal. A point without a digit after
 * it is not part of it, so `0..12` is a range. A letter directly after it is an error: `2x` is no product. */
static struct tok lex_number(struct lexer *lx)
{
	size_t start = lx->pos;
	if (peek_at(lx, 0) == '0' && (peek_at(lx, 1) == 'x' || peek_at(lx, 1) == 'X')) {
		lx->pos += 2;
		while (char_hex_value(peek_at(lx, 0)) >= 0)
			lx->pos++;
	} else {
		skip_digits(lx);
		if (peek_at(lx, 0) == '.' && char_is_digit(peek_at(lx, 1))) {
			lx->pos++;
			skip_digits(lx);
		}
		size_t sign = peek_at(lx, 1) == '-' || peek_at(lx, 1) == '+' ? 2 : 1;
		if ((peek_at(lx, 0) == 'e' || peek_at(lx, 0) == 'E') && char_is_digit(peek_at(lx, sign))) {
			lx->pos += sign;
			skip_digits(lx);
		}
	}
	if (char_is_letter(peek_at(lx, 0)))
		return fail(lx, start, "a letter follows the number");
	return token(lx, TOK_NUMBER, start, 0);
}

/* One character or one of the two-character tokens -> // .. <=, which have numbers from PUNCT_ARROW on. */
static struct tok lex_punct(struct lexer *lx)
{
	size_t start = lx->pos;
	char c = peek_at(lx, 0), second = peek_at(lx, 1);
	int punct = c;
	if (c == '-' && second == '>')
		punct = PUNCT_ARROW;
	else if (c == '/' && second == '/')
		punct = PUNCT_DIVIDE;
	else if (c == '.' && second == '.')
		punct = PUNCT_RANGE;
	else if (c == '<' && second == '=')
		punct = PUNCT_AT_MOST;
	else if (strchr("()[]{},:=*+-", c) == NULL)
		return fail(lx, start, "a character that has no meaning here");
	lx->pos += punct >= PUNCT_ARROW ? 2 : 1;
	struct tok t = token(lx, TOK_PUNCT, start, 0);
	t.punct = punct;
	return t;
}

/* The first character decides. A zero byte is an error of its own, since the message cannot show it. */
struct tok lex_next(struct lexer *lx)
{
	skip_blanks(lx);
	if (lx->pos >= lx->len)
		return (struct tok){.kind = TOK_END, .text = "", .loc = loc_from(lx, lx->pos)};
	char c = peek_at(lx, 0);
	if (char_is_letter(c)) {
		size_t start = lx->pos;
		skip_name(lx);
		return token(lx, TOK_WORD, start, 0);
	}
	if (char_is_digit(c))
		return lex_number(lx);
	if (c == '%')
		return lex_sigil(lx, TOK_VALUE);
	if (c == '@')
		return lex_sigil(lx, TOK_SYMBOL);
	if (c == '#')
		return lex_sigil(lx, TOK_ENCODING);
	if (c == '$' && lx->variables)
		return lex_sigil(lx, TOK_VARIABLE);
	if (c == '"')
		return lex_string(lx, TOK_STRING, lx->pos);
	if (c == '\0')
		return fail(lx, lx->pos, "a zero byte");
	return lex_punct(lx);
}
