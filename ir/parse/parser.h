/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the parser of the text form. Functions return false after a
 * report; the first failure ends the parse.
 */
#ifndef TFMC_IR_PARSE_PARSER_H
#define TFMC_IR_PARSE_PARSER_H

#include "ir/builder/builder.h"
#include "ir/parse/lex.h"

/* Limits that hostile text cannot exceed. */
#define PARSE_DEPTH_MAX 64 /* of expressions */
#define PARSE_TEXT_MAX  (256u << 20)
#define PARSE_WEXPR_MAX 1000000     /* nodes of all provenance expressions */
#define PARSE_AGAIN_MAX (64u << 20) /* bytes that counted stacks read again */

struct parser {
	struct diag_context *cx;
	struct arena arena; /* texts of tokens, lists */
	struct lexer lex;
	struct tok tok; /* the one not consumed yet */
	struct ir_module *m;
	struct ir_builder *b; /* the current function */
	struct strmap names;  /* visible values: name -> id */
	struct {
		const char **items;
		size_t n, cap;
	} defined; /* in order, for the end of a region */
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

bool parse_fail(struct parser *p, struct loc at, enum diag_code code, const char *fmt, ...) TFMC_PRINTF(4, 5);
/* `unknown <what> 'name'` with the nearest of the candidates. */
bool parse_unknown(struct parser *p, const struct tok *t, const char *what, const char *const *candidates,
                   size_t n);
/* The place of a token's text in a list of names; -1 after `unknown <what> ..`. */
int parse_find(struct parser *p, const struct tok *t, const char *what, const char *const *names, size_t n);
/* A word of a list: its place. `expected` is for the message when there is no word. */
bool parse_one_of(struct parser *p, const char *expected, const char *what, const char *const *names,
                  size_t n, int *out);
void parse_next(struct parser *p);
bool parse_at(const struct parser *p, int punct);
bool parse_at_word(const struct parser *p, const char *word);
/* Consume when it is there. */
bool parse_accept(struct parser *p, int punct);
bool parse_accept_word(struct parser *p, const char *word);
/* Consume or report what was expected and what is there. */
bool parse_expect(struct parser *p, int punct);
bool parse_expect_word(struct parser *p, const char *word);
bool parse_take(struct parser *p, enum tok_kind kind, const char *what, struct tok *out);
bool parse_int(struct parser *p, int64_t *out);
bool parse_float(struct parser *p, double *out);
/* Nesting of expressions. */
bool parse_enter(struct parser *p);
void parse_leave(struct parser *p);

/* dim.c */
bool parse_dim(struct parser *p, const struct ir_dim **out);
bool parse_dims(struct parser *p, struct ir_dim_list *out); /* [a,b] */
bool parse_ints(struct parser *p, struct ir_int_list *out);
bool parse_dtype(struct parser *p, enum ir_dtype *out);
/* The name of a format but `plain`; whether the next word is one of codes. */
bool parse_format(struct parser *p, enum ir_format *out);
bool parse_at_format(const struct parser *p);
bool parse_type(struct parser *p, const struct ir_type **out);
/* Constant dims, as weights have them. */
bool parse_shape(struct parser *p, int *rank, int64_t dims[IR_RANK_MAX]);
/* `loc(...)` when it is there; otherwise *out stays. */
bool parse_loc(struct parser *p, struct ir_loc *out);
bool parse_encoding(struct parser *p, enum ir_encoding *out);
/* The row of the attribute that a token names, -1 after a report; the place of a word of a list. */
int parse_attr_name(struct parser *p, const struct ir_op_desc *op, const struct tok *t);
bool parse_ir_keyword(struct parser *p, enum ir_keyword_list list, const char *expected, const char *what,
                      int *out);
/* {name=value ...} of an op; `attrs` has the defaults. `skip_required`: lists may be absent (group). */
bool parse_attrs(struct parser *p, enum ir_opcode code, void *attrs, bool skip_required);

/* weight.c */
bool parse_wexpr(struct parser *p, const struct ir_wexpr **out);

/* op.c: the body up to and with its closing brace; `end` is its terminator, whose operands are given.
 */
bool parse_body(struct parser *p, enum ir_opcode end, struct parse_values *ends, int64_t *root);
bool parse_value(struct parser *p, struct ir_value *out); /* %x or @w[%l] */
bool parse_op_name(struct parser *p, const struct tok *t, enum ir_opcode *out);
bool parse_define(struct parser *p, const struct tok *name, struct ir_value v);
/* The types after `:`, compared with those of the results; then loc. */
bool parse_result_types(struct parser *p, const struct ir_value *results, size_t n);
void parse_scope_end(struct parser *p, size_t mark);

/* region.c: after the word `repeat` or `group` */
bool parse_repeat(struct parser *p, const struct parse_names *results, struct ir_loc loc);
bool parse_group(struct parser *p, const struct parse_names *results, struct ir_loc loc);

/* func.c: after the word `func` */
bool parse_func(struct parser *p);

#endif
