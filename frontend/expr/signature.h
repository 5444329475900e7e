/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures: what is written NAME(arguments), and the one way in which arguments find their places. Operators
 * of graph statements and functions have the rows of calls.def, definitions of a model make theirs.
 */
#ifndef TFMC_FRONTEND_EXPR_SIGNATURE_H
#define TFMC_FRONTEND_EXPR_SIGNATURE_H

#include "frontend/expr/expr.h"

/* What an argument is; the names of the reference. */
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
	const char *name; /* NULL ends a list; ".." at its end: any number of further arguments */
	enum argument_type type;
	const struct expr *def; /* NULL: required */
};

struct signature {
	const char *name;
	const struct argument *args;
	const char *doc; /* one line */
	struct loc loc;  /* of a definition of the model; line 0: a row of calls.def */
};

/* A row of calls.def: the arguments are what its A and O make. */
#define SIGNATURE(name, doc, ...)                                                                 \
	{                                                                                         \
#name, (const struct argument[]){__VA_ARGS__{NULL, ARGUMENT_VALUE, NULL } }, doc, \
		{                                                                                 \
			0                                                                         \
		}                                                                                 \
	}

size_t signature_length(const struct signature *s); /* without ".." */
/* Position of an argument, or -1. */
int signature_find(const struct signature *s, const char *name);
/* NAME(x, axis: int = -1) */
void signature_print(struct buf *out, const struct signature *s);

/* One argument of a use. */
struct given_argument {
	const char *name; /* NULL: by its place */
	struct loc loc;
	const void *value;
};

/* A use, for messages. */
struct signature_use {
	struct arena *arena;
	struct diag_context *cx;
	struct loc loc;
	const char *path; /* of the step, or NULL */
};

/*
 * values[i] becomes what argument i of the signature gets, NULL where nothing was given. Arguments by place
 * come first. Room for every argument of the signature; those of ".." are left out.
 */
bool signature_match(const struct signature_use *use, const struct signature *s,
                     const struct given_argument *given, size_t n, const void **values);
/* The same of a call; absent arguments are their defaults. NULL after a report. */
const struct expr **signature_match_call(const struct signature_use *use, const struct signature *s,
                                         const struct expr *call);

#endif
