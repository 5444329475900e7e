/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this directory: a model on a device, with the launches of its functions.
 */
#ifndef TFMC_RUNTIME_OPENCL_MODEL_INTERNAL_H
#define TFMC_RUNTIME_OPENCL_MODEL_INTERNAL_H

#include <stdbool.h>

#include "runtime/abi.h"
#include "runtime/opencl/model.h"
#include "runtime/opencl/tfmc_cl.h"
#include "runtime/opencl/plan_read.h"
#include "runtime/try.h"

/* A buffer that is replaced by a larger one when necessary. */
struct model_memory {
	struct tfmc_cl_buffer *buffer; /* NULL: none yet */
	uint64_t serial; /* unique among the buffers of a model, from 1; identifies a replaced buffer */
};

/* Bytes [begin, end) of the weights in one buffer. Each area of a launch is in one piece. */
struct model_piece {
	struct model_memory memory;
	int64_t begin, end;
};

/* The last value of a kernel argument: a number, or the serial of a buffer. */
struct model_arg {
	int64_t value;
	bool is_set;
};

/* A kernel at one iteration of its enclosing repeats. */
struct model_launch {
	int64_t kernel;                /* row of KERNELS */
	int64_t indices[PLAN_REPEATS]; /* of the repeats */
	int64_t wanted[PLAN_DEPTH];    /* the enclosing IF_REQUESTED commands, then -1 */
	struct tfmc_cl_kernel *handle; /* NULL until first needed; not shared, so arguments persist */
	size_t first_arg;              /* index of its first in model_function.args */
	int64_t groups;                /* work-groups */
	bool is_wanted;
	struct tfmc_cl_event *event; /* of the call in progress, if its time is measured */
};

struct model_function {
	const char *name;
	/* the kernels that no earlier program has; NULL: none, or not built yet */
	struct tfmc_cl_program *program;
	bool is_built;
	struct model_launch *launches; /* in order, repeats unrolled */
	size_t n;
	struct model_arg *args;
	int64_t lengths; /* row of AREAS with the new lengths; -1: none */
	int64_t n_params, n_results;
	/* The call that the arguments were set for, and values derived from it. */
	bool is_ready;
	uint64_t serial; /* of the newest buffer at that time */
	int64_t first, source;
	int64_t *dims;
	int64_t *param_bytes, *result_bytes; /* bytes that kernels access */
	bool *wanted;                        /* [results] */
	int64_t past_begin, past_bytes;      /* range of the lengths in the state that kernels read */
};

struct tfmc_cl_model {
	struct tfmc_cl_code code;
	struct tfmc_device device;
	struct tfmc_plan plan;
	struct tfmc_cl *cl;
	const struct tfmc_cl_device *chosen;
	struct tfmc_cl_context *context;
	/* [rows of KERNELS]: the program that has the kernel, owned by a function; NULL: not built yet */
	struct tfmc_cl_program **programs;
	struct model_function *functions; /* [rows of FUNCTIONS] */
	struct model_piece *pieces;
	size_t n_pieces;
	/* permute_buffer: a block of a permutation's cycle */
	struct model_memory arena, scratch, state, permute_buffer;
	struct model_memory *params, *results; /* by number, shared by all functions */
	int64_t n_params, n_results;
	int32_t *lengths;           /* staging for the caller's lengths */
	int64_t *n_readers;         /* [code.batch]: blocks that still read block i (fill_from) */
	uint64_t serial;            /* of the newest buffer */
	bool has_dot;               /* programs use the device's i8 dot products */
	struct tfmc_cl_error error; /* of the last failed call */
};

/* Prefix of a message; both may be NULL. */
struct model_site {
	const char *function, *kernel;
};

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/* Writes a message to tfmc_device.message; returns TFMC_RT_E_DEVICE. */
int32_t
model_fail(const struct tfmc_cl_model *m, const struct model_site *where, const char *fmt, ...);
/* Makes a buffer of at least `bytes` bytes; a replaced one loses its contents. */
int32_t model_grow(struct tfmc_cl_model *m, const struct model_site *where, struct model_memory *memory,
                   int64_t bytes);

#define MODEL_LANGUAGE "-cl-std=CL1.2 -w" /* -w: drivers print warnings to the terminal */
/* Builds a program of the kernels of f that no program has yet. */
int32_t model_build(struct tfmc_cl_model *m, struct model_function *f);

static inline int64_t model_cell(const struct tfmc_cl_model *m, enum plan_section s, int64_t row, int column)
{
	return tfmc_plan_cell(&m->plan, s, row, column);
}

static inline int64_t model_kernel(const struct tfmc_cl_model *m, const struct model_launch *l, int column)
{
	return tfmc_plan_cell(&m->plan, PLAN_KERNELS, l->kernel, column);
}

#endif
