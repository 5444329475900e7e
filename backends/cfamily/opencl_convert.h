/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between carried values as OpenCL C expressions; what opencl_expression calls for them. */
#ifndef TFMC_BACKENDS_CFAMILY_OPENCL_CONVERT_H
#define TFMC_BACKENDS_CFAMILY_OPENCL_CONVERT_H

#include "backends/cfamily/opencl_text.h"

void opencl_convert(const struct opencl_expr *e);
void opencl_bitcast(const struct opencl_expr *e);

/* What a conversion calls; at most OPENCL_CONVERT_CALLS. */
#define OPENCL_CONVERT_CALLS 2
struct opencl_call {
	enum opencl_helper helper;
	enum kb_scalar scalar;
};
size_t opencl_convert_calls(enum kb_scalar from, enum kb_scalar to,
                            struct opencl_call calls[OPENCL_CONVERT_CALLS]);

#endif
