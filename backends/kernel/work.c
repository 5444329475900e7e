/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much work a group is, for launches: what a work-group shares and how many
 * tasks there are.
 */
#include "backends/kernel/group.h"

int64_t kernel_items(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                     const struct target *t)
{
	(void)m, (void)f, (void)group, (void)t;
	return 1;
}

const struct ir_dim *kernel_tasks(const struct ir_module *m, const struct ir_func *f,
                                  const struct ir_op *group, const struct target *t)
{
	const struct ir_type *type = ir_type_of(f, group->results[0]);
	(void)t;
	if (type->kind != IR_TENSOR)
		return ir_dim_const(m->dims, 1);
	return ir_type_count_range(m->dims, type, 0, type->rank > 1 ? type->rank - 1 : type->rank);
}
