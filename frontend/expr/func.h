/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of plain expressions; private to the evaluator.
 */
#ifndef TFMC_FRONTEND_EXPR_FUNC_H
#define TFMC_FRONTEND_EXPR_FUNC_H

#include "frontend/expr/expr.h"

/* The function exists and takes so many arguments; else a diagnostic. */
bool expr_check_call(const struct expr_env *env, const struct expr *e);
/* Any function but `if`, on evaluated arguments. */
bool expr_call(const struct expr_env *env, const struct expr *e, const struct value *args, size_t n,
               struct value *out);
/* "; did you mean ...", or "". */
const char *expr_suggest_function(struct arena *a, const char *name);
/* A float result that must be finite. */
bool expr_finite(const struct expr_env *env, const struct expr *e, double r, struct value *out);

#endif
