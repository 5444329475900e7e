/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lexer of the text form. Line ends only end comments, which begin with `;`. The first malformed token is
 * reported, and all tokens after it are TOK_END.
 */
#ifndef TFMC_IR_TEXT_LEX_H
#define TFMC_IR_TEXT_LEX_H

#include "ir/support/diag.h"

enum tok_kind {
	TOK_END,
	TOK_WORD,     /* letters, digits, `_`, `.`; begins with a letter or `_` */
	TOK_VALUE,    /* %name, %"name", %12 */
	TOK_SYMBOL,   /* @name, @"name" */
	TOK_ENCODING, /* #name, of an encoding or of a location */
	TOK_VARIABLE, /* $name, only if lexer.variables (rewrite rules) */
	TOK_STRING,
	TOK_NUMBER, /* without sign */
	TOK_PUNCT,
};

/* Punctuation of two characters; a single character is its own code. */
enum { PUNCT_ARROW = 256, PUNCT_DIVIDE, PUNCT_RANGE, PUNCT_AT_MOST };

struct tok {
	enum tok_kind kind;
	int punct;        /* TOK_PUNCT */
	const char *text; /* name without sigil, decoded string, or the characters of a word or number */
	struct loc loc;
};

struct lexer {
	struct diag_context *cx;
	struct arena *arena; /* for tok.text */
	uint32_t source;
	const char *text;
	size_t len, pos;
	uint32_t line;
	size_t col_pos; /* position whose column is `col`; columns are counted incrementally */
	uint32_t col;
	bool failed;
	bool variables; /* accept $name; not in .tir */
};

void lex_init(struct lexer *lx, struct diag_context *cx, struct arena *arena, uint32_t source,
              const char *text, size_t len);
/* Goes on at the begin of a line, `pos` bytes from that of the text, after the current position. */
void lex_skip(struct lexer *lx, size_t pos);
/* Consumes blanks, comments and a token. TOK_END at the end and after an error. */
struct tok lex_next(struct lexer *lx);
/* The next character after blanks and comments, without consuming it; 0 at the end. */
char lex_peek(const struct lexer *lx);

#endif
