/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of `tfmc verify`: the checks of the file (verify.c) and the comparison
 * of compiled code with the interpreter (differential.c), the passes one by one
 * (validate.c).
 */
#ifndef TFMC_FRONTEND_DRIVER_CHECK_VERIFY_H
#define TFMC_FRONTEND_DRIVER_CHECK_VERIFY_H

#include "frontend/driver/run/tensors.h"

/* One line of the report. */
void verify_print_line(struct driver *d, const char *what, double error, double bound, bool ok);
/* ||got - want|| / ||want||; equal infinities and NaN are no difference. */
double tensor_relative_l2(const struct named_tensor *got, const struct named_tensor *want);
/* The parameter of this name; NULL: none, also of no function. */
const struct ir_param *verify_find_param(const struct ir_func *f, const char *name);
/* Where two tensors of one shape differ most, in words. */
const char *tensor_difference(struct driver *d, const struct named_tensor *got,
                              const struct named_tensor *want);

/*
 * Object against interpreter on seeded inputs: `run`, `encode`, and prefill + step
 * against `run` in one call, on small shapes with ragged lengths, 0 included.
 * *failed is set when a bound is exceeded.
 */
TFMC_MUST_USE enum tfmc_status verify_differential(struct driver *d, struct loaded *l, struct compiled *c,
                                                   bool *failed);
/*
 * --poison: the planned module in the bytes of its arena against the module as it was read, both in the
 * interpreter. A read of bytes that another buffer was written to is an error that names both.
 */
TFMC_MUST_USE enum tfmc_status verify_poison(struct driver *d, struct loaded *l, struct compiled *c,
                                             bool *failed);
/*
 * --after-each, --bisect: the interpreter before and after each pass (passes/validate), a line for each;
 * names the first pass that changes results, and its rule or application. Nothing is compiled.
 */
TFMC_MUST_USE enum tfmc_status verify_passes(struct driver *d, struct loaded *l, bool *failed);
/* --reduced-model: the object of a shrunk copy against the interpreter. */
TFMC_MUST_USE enum tfmc_status verify_reduced_model(struct driver *d, struct loaded *l, bool *failed);
/*
 * verify --reference: the values of a file of tensors, named by layer paths, against those of the object, in
 * the order of computation. Inputs of `run` are in the same file.
 */
TFMC_MUST_USE enum tfmc_status verify_reference(struct driver *d, struct loaded *l, bool *failed);

#endif
