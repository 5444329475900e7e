/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this room share: a model on a device, with the launches of its functions.
 */
#ifndef TFMC_RUNTIME_OPENCL_MODEL_INTERNAL_H
#define TFMC_RUNTIME_OPENCL_MODEL_INTERNAL_H

#include <stdbool.h>

#include "runtime/abi.h"
#include "runtime/opencl/model.h"
#include "runtime/opencl/tfmc_cl.h"
#include "runtime/plan/read.h"
#include "runtime/try.h"

/* A buffer that is replaced when it has to be larger. */
struct model_memory {
	struct tfmc_cl_buffer *buffer; /* NULL: none yet */
	uint64_t serial;               /* a number of its own for each buffer of a model, from 1 */
};

/* Bytes [begin, end) of the weights. Each area of a launch lies in one piece. */
struct model_piece {
	struct model_memory memory;
	int64_t begin, end;
};

/* What a kernel has been given last: a number, or the serial of a buffer. */
struct model_arg {
	int64_t value;
	bool is_set;
};

/* A kernel in one turn of the repeats around it. */
struct model_launch {
	int64_t kernel; /* row of KERNELS */
	int64_t turns[PLAN_REPEATS];
	int64_t wanted[PLAN_DEPTH];    /* the steps WANTED that it is in; then -1 */
	struct tfmc_cl_kernel *handle; /* NULL until it is wanted; no other launch sets its arguments */
	size_t first_arg;              /* of the function's */
	int64_t groups;                /* work-groups */
	bool is_wanted;
	struct tfmc_cl_event *event; /* of the call under way, when its time is wanted */
};

struct model_function {
	const char *name;
	/* its kernels that no earlier program has; NULL: none, or not built yet */
	struct tfmc_cl_program *program;
	bool is_built;
	struct model_launch *launches; /* in order, repeats expanded */
	size_t n;
	struct model_arg *args;
	int64_t lengths; /* row of AREAS with the new lengths; -1: none */
	int64_t n_params, n_results;
	/* What the arguments were set for, and what follows from it. */
	bool is_ready;
	uint64_t serial; /* of the newest buffer then */
	int64_t first, source;
	int64_t *dims;
	int64_t *param_bytes, *result_bytes; /* [params], [results]: as far as kernels go */
	bool *wanted;                        /* [results] */
	int64_t past_begin, past_bytes;      /* of the state: lengths that kernels read */
};

struct tfmc_cl_model {
	struct tfmc_cl_code code;
	struct tfmc_device device;
	struct tfmc_plan plan;
	struct tfmc_cl *cl;
	const struct tfmc_cl_device *chosen;
	struct tfmc_cl_context *context;
	/* [rows of KERNELS]: that of a kernel; NULL: none yet. Of the functions */
	struct tfmc_cl_program **programs;
	struct model_function *functions; /* [rows of FUNCTIONS] */
	struct model_piece *pieces;
	size_t n_pieces;
	struct model_memory arena, scratch, state, aside; /* aside: of a permutation */
	struct model_memory *params, *results;            /* of all functions, by number */
	int64_t n_params, n_results;
	int32_t *lengths;           /* [code.batch]: on their way to the caller */
	int64_t *readers;           /* [code.batch]: of a permutation */
	uint64_t serial;            /* of the newest buffer */
	bool has_dot;               /* programs use dot products of bytes of the device */
	struct tfmc_cl_error error; /* of the call that failed last */
};

/* What a message begins with; both may be NULL. */
struct model_site {
	const char *function, *kernel;
};

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/* Leaves a message; TFMC_RT_E_DEVICE. */
int32_t
model_fail(const struct tfmc_cl_model *m, const struct model_site *where, const char *fmt, ...);
/* TFMC_RT_OK for 0, else the same with the text of m->error. */
int32_t model_status(const struct tfmc_cl_model *m, const struct model_site *where, int status);
int32_t model_no_memory(const struct tfmc_cl_model *m);
/* At least so many bytes; what it held is lost when it was smaller. */
int32_t model_grow(struct tfmc_cl_model *m, const struct model_site *where, struct model_memory *memory,
                   int64_t bytes);

#define MODEL_LANGUAGE "-cl-std=CL1.2 -w" /* drivers write warnings to the terminal */
/* Whether the device has dot products of signed bytes that are right, and the source can use them. dot.c */
bool model_has_dot(const struct tfmc_cl_model *m);
/* A program of the kernels of f that no program has yet. */
int32_t model_build(struct tfmc_cl_model *m, struct model_function *f);

/* The launches of all functions. */
int32_t model_build_launches(struct tfmc_cl_model *m);
/* The weights, in as many buffers as the device wants, after model_build_launches. */
int32_t model_upload_weights(struct tfmc_cl_model *m);

static inline int64_t model_cell(const struct tfmc_cl_model *m, enum plan_section s, int64_t row, int column)
{
	return tfmc_plan_cell(&m->plan, s, row, column);
}

static inline int64_t model_kernel(const struct tfmc_cl_model *m, const struct model_launch *l, int column)
{
	return tfmc_plan_cell(&m->plan, PLAN_KERNELS, l->kernel, column);
}

#endif
