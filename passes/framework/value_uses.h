/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who reads a value: all operands of a function by the value they name. For
 * passes that must know that nothing else looks at what they change.
 */
#ifndef TFMC_PASSES_FRAMEWORK_VALUE_USES_H
#define TFMC_PASSES_FRAMEWORK_VALUE_USES_H

#include "ir/core/module.h"

struct value_use {
	const struct ir_op *op;
	size_t operand;
};

struct value_uses {
	const struct ir_func *f;
	size_t *first; /* [n_values + 1]: uses of value v are items[first[v]] .. items[first[v + 1] - 1] */
	struct value_use *items;
};

/* False when memory ran out. */
bool value_uses_of(struct arena *a, const struct ir_func *f, struct value_uses *out);

/* Calls visit for every use of v or of a view of it that is no view itself; `leaf` is the value it names.
 * Stops when visit gives false, and gives that. */
typedef bool value_use_visit(void *user, struct ir_value leaf, const struct value_use *use);
bool value_uses_behind_views(const struct value_uses *u, struct ir_value v, value_use_visit *visit,
                             void *user);

#endif
