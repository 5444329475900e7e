/* SPDX-License-Identifier: Apache-2.0 */
/* The page of tfmc plan: memory of each function over time, and the weights by size. */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_PLAN_PAGE_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_PLAN_PAGE_H

#include "frontend/driver/compile/compile.h"

/* Appends the page of a planned module at these values of its dims. */
TFMC_MUST_USE enum tfmc_status plan_page(struct arena *a, const struct diag_context *cx,
                                         const struct ir_module *planned, const struct pass_report *report,
                                         const int64_t *dims, const char *caption, struct buf *out);

#endif
