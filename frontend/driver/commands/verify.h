/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc verify: compiled code against the interpreter (differential.c); the checks of the model file, values of another
 * framework and the passes one by one (verify.c).
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_VERIFY_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_VERIFY_H

#include "frontend/driver/commands/tensors.h"

/* Prints a line of the report. */
void verify_print_line(struct driver *d, const char *what, double error, double bound, bool ok);
/* ||got - expected|| / ||expected||. Equal infinities, and NaN in both, count as equal. */
double tensor_relative_l2(const struct named_tensor *got, const struct named_tensor *expected);
/* The parameter of that name; NULL: none, or f is NULL. */
const struct ir_param *verify_find_param(const struct ir_func *f, const char *name);
/* Describes the element with the largest error of two tensors of the same shape. */
const char *tensor_difference(struct driver *d, const struct named_tensor *got,
                              const struct named_tensor *expected);

/*
 * Compiled code against the interpreter on seeded inputs: `run` and `encode`, then prefill + step against `run`. Small
 * shapes with ragged lengths, 0 included. Sets *failed when an error exceeds its bound.
 */
TFMC_MUST_USE enum tfmc_status verify_differential(struct driver *d, struct loaded *l, struct compiled *c,
                                                   bool *failed);
/*
 * --poison: both in the interpreter, the planned module in its arena against the module as loaded. Reading bytes that
 * another buffer has overwritten is an error that names both buffers.
 */
TFMC_MUST_USE enum tfmc_status verify_poison(struct driver *d, struct loaded *l, struct compiled *c,
                                             bool *failed);

#endif
