/* SPDX-License-Identifier: Apache-2.0 */
/*
* Internal declarations of the OpenCL test host: a call under way. Host copies
 * (regions) of all memory are copied to the device and back around every launch,
 * piece by piece.
 */
#ifndef TFMC_TESTS_OPENCL_RUN_INTERNAL_H
#define TFMC_TESTS_OPENCL_RUN_INTERNAL_H

#include "backends/plan/opencl.h"
#include "tests/opencl/run.h"

#define PLACES_MAX 64
#define ARGS_MAX   128

struct opencl_host {
	struct arena arena;
	struct diag_context *cx;
	struct opencl_device *device;
	const struct ir_module *planned;
	struct opencl_program program;
	unsigned char *packed; /* [program.object->weights.bytes] */
	bool tells_unknown;    /* the device reports reads of unwritten memory: Oclgrind */
};

/* Memory of one kind. */
struct region {
	unsigned char *bytes;
	unsigned char *known; /* [n]: 1 where something was written; NULL: everywhere */
	size_t n;
};

/* Results of one group as the interpreter has them. */
struct group_value {
	const struct ir_op *group;
	struct interp_tensor *results; /* [group->n_results] */
};

struct run {
	struct opencl_host *host;
	const struct opencl_call *call;
	const struct plan *f;
	struct region weights, arena, scratch;
	struct region *inputs, *outputs; /* [params], [results] */
	int64_t turns[OBJECT_REPEAT_MAX];
	size_t n_turns;
	int64_t cap;
	struct {
		struct group_value *items;
		size_t n, cap;
	} expected;  /* in order of execution */
	size_t next; /* of expected */
};

/* A place with numbers. */
struct piece {
	struct region *region;
	size_t begin, end; /* bytes of the region */
};

/* Reports at the launch's group, or nowhere. Returns TFMC_INVALID. */
enum tfmc_status run_fail(struct run *r, const struct plan_kernel *l, const char *fmt, ...) TFMC_PRINTF(3, 4);
enum tfmc_status run_device_failed(struct run *r, const struct plan_kernel *l);

int64_t run_groups(const struct run *r, const struct plan_kernel *l);
/* False after a report when the place does not lie in its memory. */
bool run_piece(struct run *r, const struct plan_kernel *l, const struct area *p, struct piece *out);
/* Everything but buffers: indices, with offsets counted from base[place]. */
bool run_args(struct run *r, const struct plan_kernel *l, const struct piece *pieces, const size_t *base,
              const struct opencl_device_buffer *const *buffers, struct opencl_device_arg *out);

/* Calls `launch` for every launch in order, repeats turned. */
typedef enum tfmc_status run_launch(struct run *r, const struct plan_kernel *l);
enum tfmc_status run_steps(struct run *r, run_launch *launch);

enum tfmc_status run_checked(struct run *r);

#endif
