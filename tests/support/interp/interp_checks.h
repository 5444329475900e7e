/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One check of the interpreter for every op, declared from ir/core/ops.def: a function
 * that fails the running Check test when the op's values are wrong.
 */
#ifndef TFMC_TESTS_SUPPORT_INTERP_INTERP_CHECKS_H
#define TFMC_TESTS_SUPPORT_INTERP_INTERP_CHECKS_H

#define OP(name, traits, operands, attributes, results, axes, formula) void interp_check_##name(void);
#include "ir/core/ops.def"

#endif
