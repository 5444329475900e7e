/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error bounds of a function, element by element: how far a result of compiled
 * code may be from the interpreter's. The function is rewritten into one that
 * computes values and, beside every float value, a first-order bound of its error
 * in f64; the interpreter runs it. What an op adds to the errors of its operands is
 * one row or rule of bound_rules.c. tests/matrix/README.md says where the numbers come from.
 */
#ifndef TFMC_TESTS_SUPPORT_BOUNDS_BOUND_H
#define TFMC_TESTS_SUPPORT_BOUNDS_BOUND_H

#include "ir/interp/interp.h"

/*
 * bounds[i]: for result i of f an array as long as the result (0: bit-equal, NaN or infinity: no bound, so
 * bit-equal as well), allocated in `a`. dims and inputs as for interp_run, outputs as it left them. f has
 * no state, groups are what their ops are. TFMC_INVALID after a diagnostic.
 */
enum tfmc_status bound_run(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                           const struct interp_args *args, struct arena *a, double **bounds);

/*
 * NULL, or the first element of f's only result that is farther from the interpreter's than its bound; `got` has
 * the result's bytes. args->outputs and args->arena are not used. The text is allocated in `a`.
 */
const char *bound_complaint(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                            const struct interp_args *args, const void *got, struct arena *a);

/* ---- between bound.c and bound_rules.c ---- */
struct bound {
	struct ir_builder *b;
	const struct ir_func *from;
	struct ir_value *value, *err; /* [ids of from]; err id 0: exact */
};

/* The bound of op's only result, whose value has been built. */
struct ir_value bound_rule(struct bound *s, const struct ir_op *op);
/* Zeros of the shape of v where e is no value. */
struct ir_value bound_or_zero(struct bound *s, struct ir_value e, struct ir_value v);

#endif
