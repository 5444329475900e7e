/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two halves of fold-tables: factors behind tables, and sums of tables.
 */
#ifndef TFMC_PASSES_FOLDS_FOLD_TABLES_H
#define TFMC_PASSES_FOLDS_FOLD_TABLES_H

#include "passes/framework/rebuild.h"

/* scale(gather(T, ids), c) -> gather(c T, ids) */
enum tfmc_status fold_table_scales(struct pass_context *p, const struct ir_module *in, struct ir_module *out);
/* gather(P, ids) + gather(Q, ids) + row -> gather(P + Q + row, ids) */
enum tfmc_status fold_table_sums(struct pass_context *p, const struct ir_module *in, struct ir_module *out);

#endif
