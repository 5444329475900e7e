/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the parser of the text form (recursive descent); also used by the parser of rewrite rules. Functions
 * return false after a diagnostic; the first failure ends the parse.
 */
#ifndef TFMC_IR_TEXT_PARSER_H
#define TFMC_IR_TEXT_PARSER_H

#include "ir/core/builder.h"
#include "ir/text/lex.h"

/* Limits for hostile text. */
#define PARSE_DEPTH_MAX 64 /* of expressions */
#define PARSE_TEXT_MAX  (256u << 20)
#define PARSE_WEXPR_MAX 1000000     /* nodes of all weight expressions */
#define PARSE_AGAIN_MAX (64u << 20) /* bytes that are parsed again for counted stacks */

struct parser {
	struct diag_context *cx;
	struct arena arena; /* strings of tokens, lists */
	struct lexer lex;
	struct tok tok; /* the current token, not consumed */
	struct ir_module *m;
	struct ir_builder *b; /* the current function */
	struct strmap names;  /* visible values: name -> id */
	struct strmap locs;   /* name -> const struct ir_loc *, as `loc24` of `#loc24 = loc(..)` */
	struct {
		const char **items;
		size_t n, cap;
	} defined; /* names in order of definition, to remove those of a region at its end */
	size_t depth, n_wexprs, n_again;
	bool failed;
};

/* A list of values or types under construction. */
struct parse_values {
	struct ir_value *items;
	size_t n, cap;
};
struct parse_names {
	struct tok *items;
	size_t n, cap;
};

/* Reports an error unless one was reported, by the lexer or here: the first ends the parse. Returns false. */
bool parse_fail(struct parser *p, struct loc at, enum diag_code code, const char *fmt, ...) TFMC_PRINTF(4, 5);
/* Reports `unknown <what> 'name'` with the nearest candidate. */
bool parse_unknown(struct parser *p, const struct tok *t, const char *what, const char *const *candidates,
                   size_t n);
/* Index of a token's text in `names`; -1 after parse_unknown. */
int parse_lookup(struct parser *p, const struct tok *t, const char *what, const char *const *names, size_t n);
/* Consumes a word that is one of `names`; *out: its index. `expected`: for the message if there is no word. */
bool parse_one_of(struct parser *p, const char *expected, const char *what, const char *const *names,
                  size_t n, int *out);
void parse_next(struct parser *p);
bool parse_at(const struct parser *p, int punct);
bool parse_at_word(const struct parser *p, const char *word);
/* Consume the token if it is this one. */
bool parse_accept(struct parser *p, int punct);
bool parse_accept_word(struct parser *p, const char *word);
/* Consume the token, or report what was expected and found. */
bool parse_expect(struct parser *p, int punct);
bool parse_expect_word(struct parser *p, const char *word);
bool parse_token(struct parser *p, enum tok_kind kind, const char *what, struct tok *out);
bool parse_int(struct parser *p, int64_t *out);
bool parse_float(struct parser *p, double *out);
/* Count the nesting of expressions. */
bool parse_enter(struct parser *p);
void parse_leave(struct parser *p);

/* ---- parts of a line (op.c) ---- */

/* A dim expression, such as `2*S + 1`; the name of a dtype. */
bool parse_dim(struct parser *p, const struct ir_dim **out);
bool parse_dtype(struct parser *p, enum ir_dtype *out);
/* The name of a storage format except `plain`. */
bool parse_format(struct parser *p, enum ir_format *out);
/* The current token is the name of a quantized format. */
bool parse_at_format(const struct parser *p);
/* A type, such as `f32[B,S,64]`, or of a state. */
bool parse_type(struct parser *p, const struct ir_type **out);
/* `[2,3]`: constant dims. */
bool parse_shape(struct parser *p, int *rank, int64_t dims[IR_RANK_MAX]);
/* `loc(#loc24)` or `loc("model.yaml":24:7 "encoder.layers")` if present; else *out is unchanged. */
bool parse_loc(struct parser *p, struct ir_loc *out);
/* The name of an encoding of packed weights or states. */
bool parse_encoding(struct parser *p, enum ir_encoding *out);
/* Index of the attribute of `op` that a token names; -1 after a diagnostic. */
int parse_attr_name(struct parser *p, const struct ir_op_desc *op, const struct tok *t);
/* A keyword of a list of ir/core/keywords.def. */
bool parse_ir_keyword(struct parser *p, enum ir_keyword_list list, const char *expected, const char *what,
                      int *out);

/* ---- bodies (op.c) ---- */

/* A body up to and including `}`. end: its terminator, whose operands go to `ends`. root: position of the root of a
 * group, which the caller sets to -1; NULL: not a group. */
bool parse_body(struct parser *p, enum ir_opcode end, struct parse_values *ends, int64_t *root);
/* *out: the opcode that a token names. False after a diagnostic: no op, or weight, which has no line of its own: a
 * reference @name is written in place of an operand. */
bool parse_op_name(struct parser *p, const struct tok *t, enum ir_opcode *out);
/* Makes v visible as %name. */
bool parse_define(struct parser *p, const struct tok *name, struct ir_value v);
/* Removes names that were defined when p->defined.n was >= mark. */
void parse_scope_end(struct parser *p, size_t mark);

#endif
