/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of backends/opencl/ share: the program under construction. The
 * layout of weights, states and arena is the object's (backends/object/).
 */
#ifndef TFMC_BACKENDS_OPENCL_INTERNAL_H
#define TFMC_BACKENDS_OPENCL_INTERNAL_H

#include "backends/kb/record.h"
#include "backends/plan/emit.h"
#include "backends/opencl/opencl.h"

_Static_assert(OPENCL_REPEATS_MAX == OBJECT_REPEAT_MAX, "one layout");

struct builder {
	struct object object; /* laid out; its arena is the program's */
	struct kb_module *kb;
	struct {
		struct opencl_step *items;
		size_t n, cap;
	} steps; /* of the function under construction */
};

struct place_list {
	struct opencl_place *items;
	size_t n, cap;
};

/* A group under construction. */
struct group {
	struct builder *b;
	const struct function *function;
	struct emit e;
	struct ir_value repeats[OBJECT_REPEAT_MAX];
	struct place_list places; /* no two are the same memory */
	struct kb_val *pointers;  /* [places.n] */
};

/* ---- places: the same value gives the same place whenever it is asked for ---- */
/* Memory of a base that is no slice of a state. False: it has none, like a constant. */
bool place_of_value(const struct group *g, struct ir_value base, struct opencl_place *out);
bool place_of_slice(const struct group *g, const struct binding_slice *s, struct opencl_place *out);
/* Index in g->places, or -1. */
int place_find(const struct group *g, const struct opencl_place *p);
/* Everything the group touches, in order of its operands, results last. */
TFMC_MUST_USE enum tfmc_status place_collect(struct group *g);

/* ---- kernels ---- */
/* Records the kernel of a group, unless an equal one exists, and fills in the launch. */
TFMC_MUST_USE enum tfmc_status kernel_record(struct builder *b, const struct function *f,
                                             const struct ir_op *op, struct opencl_launch *out);

/* Everything of a program but its source; b->object is begun, not laid out. */
TFMC_MUST_USE enum tfmc_status program_record(struct builder *b, struct opencl_program *out);

/* 32, or 64 when an offset or a number of tasks may not fit. */
int width_choose(const struct builder *b, const struct opencl_program *p);

#endif
