/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between carried values as OpenCL C expressions; what opencl_expression calls for them. */
#ifndef TFMC_BACKENDS_PRINT_OPENCL_CONVERT_H
#define TFMC_BACKENDS_PRINT_OPENCL_CONVERT_H

#include "backends/print_opencl/text.h"

enum print_level opencl_convert(struct print *p, const struct kb_inst *i, struct buf *out);
enum print_level opencl_bitcast(struct print *p, const struct kb_inst *i, struct buf *out);

#endif
