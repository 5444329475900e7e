/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions of the model language: lexer and parser (expr_lex.c, expr_parse.c), evaluator (expr_eval.c,
 * func.c), and typed reading of YAML scalars (expr_read.c). Graph statements use the same tree with calls, keyword
 * arguments and lists.
 *
 * Every function that returns false has reported a located diagnostic. Trees and values live in the given
 * arena.
 */
#ifndef TFMC_FRONTEND_SYNTAX_EXPR_H
#define TFMC_FRONTEND_SYNTAX_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frontend/syntax/yaml_tree.h"
#include "ir/types/dim.h"
#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/diag.h"

#define EXPR_TEXT_MAX  4096 /* characters of an expression */
#define EXPR_DEPTH_MAX 64   /* nested operations and brackets */
#define EXPR_NAME_MAX  63   /* characters of a name */

/* ---- values ---- */

enum value_kind { VALUE_NONE, VALUE_INT, VALUE_FLOAT, VALUE_BOOL, VALUE_STRING, VALUE_LIST, VALUE_DIM };

struct value {
	enum value_kind kind;
	size_t n; /* VALUE_LIST: elements */
	union {
		int64_t i;
		double f;
		bool b;
		const char *s;
		const struct value *items; /* scalars: lists are never nested */
		const struct ir_dim *dim;  /* never constant: a constant dim is a VALUE_INT */
	};
};

struct value value_int(int64_t i);
struct value value_float(double f);
struct value value_bool(bool b);
struct value value_string(const char *s);
struct value value_dim(const struct ir_dim *d); /* VALUE_INT when constant */
bool value_equal(const struct value *a, const struct value *b);
/* The shortest decimal that reads back to the same bits; .inf and -.inf. */
void value_print_float(struct buf *out, double f);
/* A string of the language in these quotes, '"' or '\'', or in the others if it contains them: there are no escapes, so
 * a string has one of them at most. */
void value_print_string(struct buf *out, const char *text, char quote);
/* Prints an expression that parses back to the value: `8`, `0.5`, `true`, `'text'`, `[1, 2]`, `null`. Dims need
 * their table. */
void value_print(struct buf *out, const struct ir_dims *dims, const struct value *v);
/* The same, with another syntax of strings: that of YAML is yaml_print_quoted. */
void value_print_with(struct buf *out, const struct ir_dims *dims, const struct value *v,
                      void (*print_string)(struct buf *, const char *));
/* For messages: "the int 8", "the string 'relu'", "a list of 3". */
const char *value_describe(struct arena *a, const struct ir_dims *dims, const struct value *v);

/* ---- trees ---- */

enum expr_kind {
	EX_NONE,   /* null, ~ */
	EX_INT,    /* i */
	EX_FLOAT,  /* f */
	EX_BOOL,   /* i is 0 or 1 */
	EX_STRING, /* text; in graph statements it may contain {name} placeholders */
	EX_NAME,   /* text */
	EX_UNARY,  /* op args[0] */
	EX_BINARY, /* args[0] op args[1] */
	EX_INDEX, /* args[0][args[1], ...]; graph expressions may have any number of indices: f32[B, n, 3], f32[] */
	EX_CALL, /* text(args..., keywords...) */
	EX_LIST, /* [args...]; graph expressions only */
	EX_DIM,  /* dim; never parsed from text */
};

enum expr_op {
	EXPR_OR,
	EXPR_AND,
	EXPR_NOT,
	EXPR_EQ,
	EXPR_NE,
	EXPR_LT,
	EXPR_LE,
	EXPR_GT,
	EXPR_GE,
	EXPR_ADD,
	EXPR_SUB,
	EXPR_MUL,
	EXPR_DIV,
	EXPR_FLOORDIV,
	EXPR_MOD,
	EXPR_POW,
	EXPR_NEG,
};

struct expr_keyword {
	const char *name;
	struct loc loc;
	const struct expr *value;
};

struct expr {
	enum expr_kind kind;
	enum expr_op op;          /* EX_UNARY, EX_BINARY */
	struct loc loc;           /* of the literal, name, function name or operator; used by messages */
	int64_t i;                /* EX_INT, EX_BOOL */
	double f;                 /* EX_FLOAT */
	const struct ir_dim *dim; /* EX_DIM: in the dim table of the model */
	const char *text;         /* EX_STRING, EX_NAME, EX_CALL */
	bool parenthesized;       /* written in ( ) */
	size_t n_args;
	const struct expr **args;
	size_t n_keywords; /* EX_CALL */
	struct expr_keyword *keywords;
};

/* Children of a node: arguments, then values of keywords. */
static inline size_t expr_n_children(const struct expr *e)
{
	return e->n_args + e->n_keywords;
}
static inline const struct expr *expr_child(const struct expr *e, size_t i)
{
	return i < e->n_args ? e->args[i] : e->keywords[i - e->n_args].value;
}
/* A literal node for a value (EX_DIM for a dim). NULL: no memory. */
const struct expr *expr_of_value(struct arena *a, const struct value *v, struct loc loc);
/* The source text of an operator: "+", "//", "and". */
const char *expr_op_name(enum expr_op op);

/* Source text of an expression. */
struct expr_source {
	const char *text;
	size_t len;
	struct loc loc; /* of the whole text if !exact, else of its first character */
	bool exact;     /* columns inside text can be computed from loc */
};
struct expr_source expr_source_of(const struct yaml_node *scalar);

enum expr_mode {
	EXPR_PLAIN, /* values in YAML: calls of known functions only; no keywords, no lists */
	EXPR_GRAPH, /* graph statements: also any call, keywords, lists, "strings", several indices */
};

/* Parses the whole text as one expression; NULL after a diagnostic. */
const struct expr *expr_parse(struct arena *a, struct diag_context *cx, struct expr_source src,
                              enum expr_mode mode);
/* Parses `E` or a range `E..E` (bounds of dims). *hi is NULL without `..`. */
bool expr_parse_range(struct arena *a, struct diag_context *cx, struct expr_source src,
                      const struct expr **lo, const struct expr **hi);

struct expr_target {
	const char *name;
	struct loc loc;
};

/* `a, b = E` (targets, one value) or `return E, E` (no targets). */
struct expr_statement {
	bool is_return;
	struct loc loc; /* the first character */
	size_t n_targets;
	struct expr_target *targets;
	size_t n_values;
	const struct expr **values;
};
/* Parses a graph statement (syntax errors have the code STATEMENT); NULL after a diagnostic. */
const struct expr_statement *expr_parse_statement(struct arena *a, struct diag_context *cx,
                                                  struct expr_source src);

/* [A-Za-z_][A-Za-z0-9_]*, at most 63 characters. */
bool expr_is_name(const char *s);

/* ---- evaluation ---- */

enum expr_lookup {
	EXPR_ABSENT, /* no such name: the evaluator reports it */
	EXPR_FOUND,
	EXPR_FAILED, /* an error has been reported already (a cycle, an invalid parameter) */
};

struct expr_env {
	struct arena *arena;
	struct diag_context *cx;
	struct ir_dims *dims; /* NULL: dims are rejected */
	/* Looks up a name that is used at loc. A dim is returned as VALUE_DIM even if dims is NULL; the
	 * evaluator then rejects it. */
	enum expr_lookup (*lookup)(void *user, const char *name, struct loc loc, struct value *out);
	/* Known names for "did you mean"; may be NULL. */
	const char *const *(*names)(void *user, size_t *n);
	void *user;
};

bool expr_eval(const struct expr_env *env, const struct expr *e, struct value *out);
/* Applies the operator or function of `e` (EX_UNARY, EX_BINARY except and/or, EX_CALL except `if`) to evaluated
 * arguments. For evaluators that evaluate arguments themselves (lower/partial_eval.c). */
bool expr_apply(const struct expr_env *env, const struct expr *e, const struct value *args, size_t n,
                struct value *out);
/* True for a function of plain expressions: min, sqrt, if, ... */
bool expr_is_function(const char *name);

/* Evaluate a YAML scalar whose type the schema defines; quoting does not matter. `what` names it in messages:
 * "heads", "attention.eps". Null is an error. */
bool expr_read_int(const struct expr_env *env, const struct yaml_node *node, const char *what, int64_t *out);
bool expr_read_float(const struct expr_env *env, const struct yaml_node *node, const char *what, double *out);
bool expr_read_bool(const struct expr_env *env, const struct yaml_node *node, const char *what, bool *out);
/* env->dims must be set; an int becomes a constant dim. */
bool expr_read_dim(const struct expr_env *env, const struct yaml_node *node, const char *what,
                   const struct ir_dim **out);
/* Reads one of an enumeration's words (*out: index into words), or an expression that evaluates to one. A word
 * takes precedence over a param of the same name. */
bool expr_read_word(const struct expr_env *env, const struct yaml_node *node, const char *what,
                    const char *const *words, size_t n, size_t *out);
/* Reads a value of `params` or `set`: quoted text is a string, plain text an expression, a sequence a list of
 * these. */
bool expr_read_value(const struct expr_env *env, const struct yaml_node *node, const char *what,
                     struct value *out);
/* The same where a list is expected: a scalar, quoted or not, is an expression that evaluates to the list. */
bool expr_read_list(const struct expr_env *env, const struct yaml_node *node, const char *what,
                    struct value *out);
/* Convert an evaluated value to the required type, as expr_read_* do (int to float is the only conversion);
 * errors at loc. */
bool expr_require_int(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                      int64_t *out);
bool expr_require_float(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                        double *out);
bool expr_require_bool(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                       bool *out);
bool expr_require_dim(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                      const struct ir_dim **out);

#endif
