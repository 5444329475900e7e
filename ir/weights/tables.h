/* SPDX-License-Identifier: Apache-2.0 */
/* Weight expressions that are formulas. */
#ifndef TFMC_IR_WEIGHTS_TABLES_H
#define TFMC_IR_WEIGHTS_TABLES_H

#include "ir/weights/weight.h"

/* Elements [begin, begin + n) of WX_SINUSOID, of WX_ROTARY. */
void table_sinusoid(const struct ir_wexpr *e, int64_t begin, int64_t n, double *out);
void table_rotary(const struct ir_wexpr *e, int64_t begin, int64_t n, double *out);

#endif
