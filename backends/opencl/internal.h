/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of backends/opencl/ share.
 */
#ifndef TFMC_BACKENDS_OPENCL_INTERNAL_H
#define TFMC_BACKENDS_OPENCL_INTERNAL_H

#include "backends/opencl/opencl.h"
#include "backends/plan/emit.h"

/* Everything of a program but its source; o is begun, not laid out, its arena is the program's. */
TFMC_MUST_USE enum tfmc_status program_record(struct object *o, struct opencl_program *out);

/* 32, or 64 when an offset or a number of tasks may not fit. */
int width_choose(const struct object *o, const struct opencl_program *p);

#endif
