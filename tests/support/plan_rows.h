/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a call with these dims launches a kernel of a plan. */
#ifndef TFMC_TESTS_SUPPORT_PLAN_ROWS_H
#define TFMC_TESTS_SUPPORT_PLAN_ROWS_H

#include "backends/kernels/group.h"
#include "backends/plan/plan.h"

static inline bool plan_has_its_rows(const struct plan_kernel *k, const int64_t *dims)
{
	int64_t rows = -1;
	return !k->rows ||
	       (ir_dim_eval(k->rows, dims, &rows) && (rows <= KERNEL_FEW_ROWS_MAX) == k->is_skinny);
}

#endif
