/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of plain expressions; private to syntax/.
 */
#ifndef TFMC_FRONTEND_SYNTAX_FUNC_H
#define TFMC_FRONTEND_SYNTAX_FUNC_H

#include "frontend/syntax/expr.h"

/* True if the function exists and the arguments match its signature; else reports. */
bool expr_check_call(const struct expr_env *env, const struct expr *e);
/* Calls any function except `if` on evaluated arguments. */
bool expr_call(const struct expr_env *env, const struct expr *e, const struct value *args, size_t n,
               struct value *out);
/* "; did you mean NAME", or "". */
const char *expr_suggest_function(struct arena *a, const char *name);
/* The value of an int or a float. */
double expr_as_double(const struct value *v);
/* Returns r as a float value; an infinite or NaN result is reported. */
bool expr_finite(const struct expr_env *env, const struct expr *e, double r, struct value *out);

#endif
