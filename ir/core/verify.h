/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The IR verifier: invariants of every module, checked after every pass. Every error is reported with its function
 * and both sides. Checks:
 *
 * - a function has a body, whose arguments are its parameters; ids are those of values that the function has;
 * - SSA: operands are defined before use, in the same or an enclosing region;
 * - operand classes fit ir/core/ops.def, and result types equal those inferred again (ir/core/infer.c);
 * - regions end in their terminator, and yields of a repeat have the types of its carries;
 * - state values are linear: used exactly once, and returned by the function;
 * - names of weights, states, functions and parameters are unique; weights have constant dims and an init of the same
 *   shape; axis 0 of a state is a batch dim;
 * - a case has a base that is no case, and satisfiable conditions over the base's dims; its signature is the base's
 *   with the bound symbols replaced, and they occur nowhere in it; no two cases of a base have the same conditions;
 * - stages: graph has no groups; in groups and plan all ops but views, constants, repeat and terminators are in groups
 *   with a root; plan has an arena, an offset for each group result (a multiple of 64, or -1: memory of the caller),
 *   and offsets without conflicts.
 */
#ifndef TFMC_IR_CORE_VERIFY_H
#define TFMC_IR_CORE_VERIFY_H

#include "ir/core/module.h"

/* TFMC_INVALID after diagnostics. */
TFMC_MUST_USE enum tfmc_status ir_verify(struct ir_module *m, struct diag_context *cx);

#endif
