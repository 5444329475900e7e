/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of backends/opencl/ share: the program under construction. The
 * layout of weights, states and arena is the object's (backends/object/).
 */
#ifndef TFMC_BACKENDS_OPENCL_INTERNAL_H
#define TFMC_BACKENDS_OPENCL_INTERNAL_H

#include "backends/kb/record.h"
#include "backends/plan/touch.h"
#include "backends/opencl/opencl.h"

struct builder {
	struct object object; /* laid out; its arena is the program's */
	struct kb_module *kb;
	struct {
		struct opencl_step *items;
		size_t n, cap;
	} steps; /* of the function under construction */
};

/* A group under construction. */
struct group {
	struct builder *b;
	const struct function *function;
	struct emit e;
	struct ir_value repeats[OBJECT_REPEAT_MAX];
};

/* ---- kernels ---- */
/* Records the kernel of a group, unless an equal one exists, and fills in the launch. */
TFMC_MUST_USE enum tfmc_status kernel_record(struct builder *b, const struct function *f,
                                             const struct ir_op *op, struct opencl_launch *out);

/* Everything of a program but its source; b->object is begun, not laid out. */
TFMC_MUST_USE enum tfmc_status program_record(struct builder *b, struct opencl_program *out);

/* 32, or 64 when an offset or a number of tasks may not fit. */
int width_choose(const struct builder *b, const struct opencl_program *p);

#endif
