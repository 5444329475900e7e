/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens of the text form. Lines have no meaning except that `;` begins a
 * comment until the end of its line. The first malformed token is reported and
 * every token after it is TOK_END.
 */
#ifndef TFMC_IR_PARSE_LEX_H
#define TFMC_IR_PARSE_LEX_H

#include "ir/diag/diag.h"

enum tok_kind {
	TOK_END,
	TOK_WORD,     /* letters, digits, `_`, `.`; begins with a letter or `_` */
	TOK_VALUE,    /* %name, %"name", %12 */
	TOK_SYMBOL,   /* @name, @"name" */
	TOK_ENCODING, /* #name */
	TOK_VARIABLE, /* $name, only where the lexer has `variables` (rewrite rules) */
	TOK_STRING,
	TOK_NUMBER, /* without sign */
	TOK_PUNCT,
};

/* Punctuation of two characters; the others are their character. */
enum { PUNCT_ARROW = 256, PUNCT_DIVIDE, PUNCT_RANGE, PUNCT_AT_MOST };

struct tok {
	enum tok_kind kind;
	int punct;        /* TOK_PUNCT */
	const char *text; /* name without sigil, decoded string, spelling of a word or number */
	struct loc loc;
};

struct lexer {
	struct diag_context *cx;
	struct arena *arena; /* of the tokens' texts */
	uint32_t source;
	const char *text;
	size_t len, pos;
	uint32_t line;
	size_t col_pos; /* `col` is the column of this position */
	uint32_t col;
	bool failed;
	bool variables; /* $name is a token; in .tir it has no meaning */
};

void lex_init(struct lexer *lx, struct diag_context *cx, struct arena *arena, uint32_t source,
              const char *text, size_t len);
struct tok lex_next(struct lexer *lx);
/* The next character that is not blank or comment; 0 at the end. */
char lex_peek(const struct lexer *lx);

#endif
