/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of values as texts and messages show them: the path of the model step, without the components that name the
 * enclosing repeats, and the name of the value in the step. In a repeat with the path "encoder.layers" the value q of
 * the step "encoder.layers.self.attention" is `encoder.self.attention.q`. `x`, the variable that steps read and assign,
 * is not written: the result of "encoder.layers.norm1" is `encoder.norm1`.
 */
#ifndef TFMC_IR_CORE_NAMES_H
#define TFMC_IR_CORE_NAMES_H

#include "ir/core/module.h"

/* True if text forms write a value of this name by number: "" and digits. */
bool ir_name_is_number(const char *name);
/* The name of v, in `a` or in the module, not unique; NULL: v has none. Arguments, and values of ops without a path,
 * have their own name (ir_value_info.name). */
const char *ir_value_name(struct arena *a, const struct ir_func *f, struct ir_value v);
/* The inverse: the own name of v for which ir_value_name returns `name`, else `name`. NULL without memory. */
const char *ir_own_name(struct arena *a, const struct ir_func *f, struct ir_value v, const char *name);

#endif
