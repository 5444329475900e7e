/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A planned module as OpenCL C 1.2 kernels and tables of launches. One kernel
 * for each group of the plan, equal ones printed once; a function of the IR is a
 * list of steps: launches, and repeats around them. What a host must do, and no
 * more: give each launch its memory, dims and repeat indices, run the steps in
 * order on one queue, and look after the lengths in the state.
 *
 * Kernels take, for every place, a buffer and a byte offset into it, then the
 * dims and repeat indices they use. Buffers are 64-byte aligned; offsets are
 * multiples of the element size (of 64 where nothing is indexed by a repeat).
 */
#ifndef TFMC_BACKENDS_OPENCL_OPENCL_H
#define TFMC_BACKENDS_OPENCL_OPENCL_H

#include "backends/plan/area.h"
#include "ir/core/module.h"
#include "ir/support/buf.h"
#include "ir/target/target.h"

enum opencl_arg_kind {
	OPENCL_ARG_BUFFER, /* __global pointer: the buffer of place `number` */
	OPENCL_ARG_OFFSET, /* index: byte offset of place `number` in it */
	OPENCL_ARG_DIM,    /* index: value of the module's dim symbol `number` */
	OPENCL_ARG_REPEAT  /* index: of the open repeat `number`, outermost first */
};

struct opencl_arg {
	enum opencl_arg_kind kind;
	size_t number;
};

struct opencl_launch {
	const char *kernel;
	const struct ir_op *group; /* OP_group, of the planned module */
	const struct area *places;
	size_t n_places;
	const struct opencl_arg *args; /* in the kernel's order */
	size_t n_args;
	/* Work-groups that find something to do; every number from 1 on gives the same bits. 0: launch one.
	 * Many more than this may overflow indices of 32 bits. */
	const struct ir_dim *tasks;
	int64_t items;   /* of a work-group: the local size, required by the kernel */
	int64_t workers; /* for each work-group: 1 when its items share tasks, else `items` */
	int64_t scratch; /* bytes for each worker; 0: no place of that kind */
};

enum opencl_step_kind { OPENCL_LAUNCH, OPENCL_REPEAT, OPENCL_END_REPEAT };

struct opencl_step {
	enum opencl_step_kind kind;
	struct opencl_launch launch; /* LAUNCH */
	int64_t count;               /* REPEAT: rounds */
};

struct opencl_function {
	const struct ir_func *func;
	const struct opencl_step *steps;
	size_t n_steps;
	const struct ir_dim *arena_bytes;
	/* [results]: where the new length of each sequence (i32 [B]) lies after the last step when the
	 * result is the state's lengths; memory AREA_STATE there is written by the host only. NULL: none.
	 */
	const struct area *past_result;
};

struct opencl_program {
	const struct opencl_function *functions; /* those of the module, in order */
	size_t n_functions;
	struct buf source; /* all kernels; index_bits chosen so that no offset overflows */
	int index_bits;    /* of every index argument: 32 or 64 */
	uint64_t weights_bytes;
	int64_t state_fixed_bytes, state_batch_bytes; /* bytes of a state: fixed + sequences x batch */
};

void opencl_program_destroy(struct opencl_program *p);

/*
 * Builds the program of a verified module of stage plan for a target of ARCH_OPENCL. Everything but `source`
 * lives in `arena`. TFMC_INVALID after diagnostics for what is not supported.
 */
TFMC_MUST_USE enum tfmc_status opencl_build(struct diag_context *cx, const struct ir_module *planned,
                                            const struct target *target, struct arena *arena,
                                            struct opencl_program *out);

/* The launches as text, for people: one line each, repeats indented, offsets and sizes as formulas. */
void opencl_print_table(const struct opencl_program *p, const struct ir_module *planned, struct buf *out);

#endif
