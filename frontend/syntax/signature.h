/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures of NAME(arguments) and the matching of arguments to them. Operators of graph statements and
 * functions have the rows of calls.def; definitions of a model declare their own.
 */
#ifndef TFMC_FRONTEND_SYNTAX_SIGNATURE_H
#define TFMC_FRONTEND_SYNTAX_SIGNATURE_H

#include "frontend/syntax/expr.h"

/* Types of arguments and their names in the language reference. */
#define ARGUMENT_TYPES(X)     \
	X(TENSOR, "tensor")   \
	X(TENSORS, "tensors") \
	X(OPERAND, "operand") \
	X(INT, "int")         \
	X(FLOAT, "float")     \
	X(BOOL, "bool")       \
	X(WORD, "word")       \
	X(PATH, "path")       \
	X(TEXT, "text")       \
	X(AXES, "axes")       \
	X(SHAPE, "shape")     \
	X(NUMBER, "number")   \
	X(NUMBERS, "numbers") \
	X(SCALING, "scaling") \
	X(VALUE, "value")     \
	X(LIST, "list")       \
	X(NAME, "name")       \
	X(EXPRESSION, "expression")

enum argument_type {
#define TYPE(id, name) ARGUMENT_##id,
	ARGUMENT_TYPES(TYPE)
#undef TYPE
};

struct argument {
	const char *name; /* NULL terminates the array; ".." as last name: any number of further arguments */
	enum argument_type type;
	const struct expr *def; /* NULL: required */
};

struct signature {
	const char *name;
	const struct argument *args;
	const char *doc; /* one line */
	struct loc loc;  /* of the definition in the model; line 0: a row of calls.def */
};

/* Initializer for a row of calls.def; its A() and O() make the array of arguments. */
#define SIGNATURE(name, doc, ...)                                                                 \
	{                                                                                         \
#name, (const struct argument[]){__VA_ARGS__{NULL, ARGUMENT_VALUE, NULL } }, doc, \
		{                                                                                 \
			0                                                                         \
		}                                                                                 \
	}

/* Classes of the rows of calls.def. A set of classes is their sum; its rows are numbered in the order of calls.def, so
 * a table made of the rows of the same macros has the same numbers. */
enum call_class {
	CALL_OPERATOR = 1,
	CALL_INTERNAL = 2,
	CALL_SCALING = 4,
	CALL_FUNCTION = 8,
	CALL_FORM = 16,
	CALL_QUERY = 32,
	CALL_QUERY_FORM = 64,
};
/* Row number i; NULL after the last one. */
const struct signature *signature_at(unsigned classes, size_t i);
/* The row of that name, and its number; NULL: none. */
const struct signature *signature_of(unsigned classes, const char *name, size_t *number);

size_t signature_length(const struct signature *s); /* number of arguments without ".." */
/* Index of an argument, or -1. */
int signature_find(const struct signature *s, const char *name);
/* Prints NAME(x, axis: int = -1). */
void signature_print(struct buf *out, const struct signature *s);

/* One argument of a call. */
struct given_argument {
	const char *name; /* NULL: positional */
	struct loc loc;
	const void *value;
};

/* A call, for messages. */
struct signature_use {
	struct arena *arena;
	struct diag_context *cx;
	struct loc loc;
	const char *path; /* path of the step, or NULL */
};

/*
 * Sets values[i] to the value of argument i of the signature, NULL where none was given. Positional arguments
 * come first. `values` has room for every argument of the signature; those of ".." are left out. False after a
 * report.
 */
bool signature_match(const struct signature_use *use, const struct signature *s,
                     const struct given_argument *given, size_t n, const void **values);
/* The same for a call expression; absent arguments have their defaults. NULL after a report. */
const struct expr **signature_match_call(const struct signature_use *use, const struct signature *s,
                                         const struct expr *call);

#endif
