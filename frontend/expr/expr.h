/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expression language: text to tree (lex.c, parse.c) and tree to
 * value (eval.c, func.c); read.c reads YAML scalars of a wanted
 * type. Graph statements use the same tree with calls, keyword arguments and
 * lists allowed.
 *
 * Every function that returns false has reported a located diagnostic. The
 * tree and all values live in the given arena.
 */
#ifndef TFMC_FRONTEND_EXPR_EXPR_H
#define TFMC_FRONTEND_EXPR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frontend/text/yaml_tree.h"
#include "ir/types/dim.h"
#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/diag/diag.h"

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
		const struct value *items; /* scalars; lists are never nested */
		const struct ir_dim *dim;  /* not constant (a constant dim is a VALUE_INT) */
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
/* As an expression that reads back: `8`, `0.5`, `true`, `'text'`, `[1, 2]`, `null`; dims need the table. */
void value_print(struct buf *out, const struct ir_dims *dims, const struct value *v);
/* For messages: "the int 8", "the string 'relu'", "a list of 3". */
const char *value_describe(struct arena *a, const struct ir_dims *dims, const struct value *v);

/* ---- trees ---- */

enum expr_kind {
	EX_NONE,   /* null, ~ */
	EX_INT,    /* i */
	EX_FLOAT,  /* f */
	EX_BOOL,   /* i is 0 or 1 */
	EX_STRING, /* text; graph statements: may hold {name} */
	EX_NAME,   /* text */
	EX_UNARY,  /* op args[0] */
	EX_BINARY, /* args[0] op args[1] */
	EX_INDEX,  /* args[0][args[1], ...]; only graph expressions have other than one index: f32[B, n, 3],
	              f32[] */
	EX_CALL,   /* text(args..., keywords...) */
	EX_LIST,   /* [args...]; graph expressions only */
	EX_DIM,    /* dim; not read from text */
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
	struct loc loc;           /* literal, name, function name, operator; what a message points at */
	int64_t i;                /* EX_INT, EX_BOOL */
	double f;                 /* EX_FLOAT */
	const struct ir_dim *dim; /* EX_DIM: of the model's table */
	const char *text;         /* EX_STRING, EX_NAME, EX_CALL */
	bool parenthesized;       /* written in ( ) */
	size_t n_args;
	const struct expr **args;
	size_t n_keywords; /* EX_CALL */
	struct expr_keyword *keywords;
};

/* Arguments, then the values of keywords. */
static inline size_t expr_n_children(const struct expr *e)
{
	return e->n_args + e->n_keywords;
}
static inline const struct expr *expr_child(const struct expr *e, size_t i)
{
	return i < e->n_args ? e->args[i] : e->keywords[i - e->n_args].value;
}
/* The literal of a value; a dim stands for itself. NULL when memory ran out. */
const struct expr *expr_of_value(struct arena *a, const struct value *v, struct loc loc);
/* The spelling of an operator: "+", "//", "and". */
const char *expr_op_text(enum expr_op op);

/* Where an expression is written. */
struct expr_source {
	const char *text;
	size_t len;
	struct loc loc; /* of the whole text when !exact, else of its first character */
	bool exact;     /* columns inside text can be counted from loc */
};
struct expr_source expr_source_of(const struct yaml_node *scalar);

enum expr_mode {
	EXPR_PLAIN, /* values of YAML: calls only of the known functions, no keywords, no lists
	             */
	EXPR_GRAPH, /* graph statements as well: any call, keywords, lists, "strings", several indices */
};

/* NULL after a diagnostic. The whole text must be one expression. */
const struct expr *expr_parse(struct arena *a, struct diag_context *cx, struct expr_source src,
                              enum expr_mode mode);
/* `E` or `E..E` (dims). *hi is NULL without `..`. */
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
/* A graph statement (STATEMENT on errors of form); NULL after a diagnostic. */
const struct expr_statement *expr_parse_statement(struct arena *a, struct diag_context *cx,
                                                  struct expr_source src);

/* [A-Za-z_][A-Za-z0-9_]*, at most 63 characters. */
bool expr_is_name(const char *s);

/* ---- evaluation ---- */

enum expr_lookup {
	EXPR_ABSENT, /* no such name: the evaluator reports it */
	EXPR_FOUND,
	EXPR_FAILED, /* reported already (a cycle, a parameter that is wrong itself) */
};

struct expr_env {
	struct arena *arena;
	struct diag_context *cx;
	struct ir_dims *dims; /* NULL: dims are not allowed here */
	/* loc: where the name is used. A dim is found as VALUE_DIM also when dims is NULL (the evaluator
	 * refuses it). */
	enum expr_lookup (*lookup)(void *user, const char *name, struct loc loc, struct value *out);
	/* Names for suggestions; may be NULL. */
	const char *const *(*names)(void *user, size_t *n);
	void *user;
};

bool expr_eval(const struct expr_env *env, const struct expr *e, struct value *out);
/*
 * Applies the operator or function of `e` (EX_UNARY, EX_BINARY except and/or,
 * EX_CALL except `if`) to evaluated arguments; for evaluators of graph
 * statements that meet scalars.
 */
bool expr_apply(const struct expr_env *env, const struct expr *e, const struct value *args, size_t n,
                struct value *out);
/* True when the name is a function of plain expressions: min, sqrt, if, ... */
bool expr_is_function(const char *name);

/*
 * Reads a YAML node where the schema wants a type; quoting does not matter.
 * `what` names it in messages: "heads", "attention.eps". Null is an error.
 */
bool expr_read_int(const struct expr_env *env, const struct yaml_node *node, const char *what, int64_t *out);
bool expr_read_float(const struct expr_env *env, const struct yaml_node *node, const char *what, double *out);
bool expr_read_bool(const struct expr_env *env, const struct yaml_node *node, const char *what, bool *out);
/* env->dims must be set; a constant is a constant dim. */
bool expr_read_dim(const struct expr_env *env, const struct yaml_node *node, const char *what,
                   const struct ir_dim **out);
/* One of the words (index into words), or an expression that yields one of them. A word wins over a name. */
bool expr_read_word(const struct expr_env *env, const struct yaml_node *node, const char *what,
                    const char *const *words, size_t n, size_t *out);
/* A value of `params` or `set`: quoted text is a string, plain text an expression, a sequence a list of
 * these. */
bool expr_read_value(const struct expr_env *env, const struct yaml_node *node, const char *what,
                     struct value *out);
/* The same where a list is wanted: a text is the expression of one, quoted or not. */
bool expr_read_list(const struct expr_env *env, const struct yaml_node *node, const char *what,
                    struct value *out);
/* Converts an evaluated value where a type is wanted, as expr_read_* do; reports at loc. */
bool expr_require_int(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                      int64_t *out);
bool expr_require_float(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                        double *out);
bool expr_require_bool(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                       bool *out);
bool expr_require_dim(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                      const struct ir_dim **out);

#endif
