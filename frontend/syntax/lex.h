/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lexer of expressions; private to the parser. Malformed numbers are reported here, with the correct form.
 */
#ifndef TFMC_FRONTEND_SYNTAX_LEX_H
#define TFMC_FRONTEND_SYNTAX_LEX_H

#include "frontend/syntax/expr.h"

enum token_kind {
	TOK_END,
	TOK_ERROR, /* reported */
	TOK_INT,   /* magnitude */
	TOK_FLOAT, /* number */
	TOK_NAME,  /* text; also and, or, not, true, null */
	TOK_STRING,
	TOK_SINGLE, /* text: a string in single quotes */
	TOK_PUNCT,  /* text: an operator or a bracket */
};

struct token {
	enum token_kind kind;
	size_t offset, len; /* bytes in the source */
	const char *text;   /* zero-terminated; strings without quotes */
	uint64_t magnitude;
	double number;
};

struct lexer {
	struct arena *arena;
	struct diag_context *cx;
	struct expr_source src;
	size_t at;
};

/* Location of bytes [offset, offset + len) of the source. */
struct loc expr_lex_loc(const struct expr_source *src, size_t offset, size_t len);
struct token expr_lex_next(struct lexer *lx);
/* For messages: the token in quotes, or "the end". */
const char *expr_lex_describe(struct arena *a, const struct token *t);

#endif
