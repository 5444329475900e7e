/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold for every module, whoever made it. Checks, each reported with
 * the entity, its function and both sides:
 *
 *  - operands are defined before use and visible (same or enclosing region);
 *  - operand classes fit ir/core/ops.def; types equal what ir/builder/infer.c derives again;
 *  - regions end in their terminator, repeat yields have the carries' types;
 *  - state values are used exactly once, and come back from the function;
 *  - names of weights, states, functions, params are unique; weight types have
 *    constant dims, their init has the same shape; state axis 0 is a batch dim;
 *  - a case has a base, which is none, and conditions over the base's dims that can
 *    hold; its signature is the base's with the bound symbols replaced, and they
 *    occur nowhere in it; no two cases of one base have the same conditions;
 *  - stage: graph has no group; groups and plan have only groups, views,
 *    constants, repeat, yield and return outside groups; group roots exist;
 *    plan has an offset for every group result (a multiple of 64, or -1: memory of
 *    the caller) and an arena.
 */
#ifndef TFMC_IR_VERIFY_VERIFY_H
#define TFMC_IR_VERIFY_VERIFY_H

#include "ir/core/module.h"

TFMC_MUST_USE enum tfmc_status ir_verify(struct ir_module *m, struct diag_context *cx);

#endif
