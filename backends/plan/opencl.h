/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A planned module as an OpenCL C 1.2 program and the launch plans of its functions (backends/plan/plan.h).
 * Equal kernels are printed once. A host binds memory, dims and repeat indices for each launch, runs the
 * commands in order on one queue, and stores the new lengths of the sequences.
 *
 * Kernels take a buffer and a byte offset for each area, then the dims and repeat indices they use. Buffers
 * are 64-byte aligned; offsets are multiples of the element size (of 64 where no repeat index is involved).
 */
#ifndef TFMC_BACKENDS_PLAN_OPENCL_H
#define TFMC_BACKENDS_PLAN_OPENCL_H

#include "backends/plan/emit.h"

struct opencl_program {
	const struct object *object;   /* the object, laid out, that the program belongs to */
	const struct plan **functions; /* one plan per function that a host can call, in order */
	size_t n_functions;
	struct buf source; /* OpenCL C of all kernels */
	int index_bits;    /* width of every number argument, 32 or 64: no offset or index overflows */
};

void opencl_program_destroy(struct opencl_program *p);

/* Builds the program of a verified module of stage plan for a target of ARCH_OPENCL. options NULL: the defaults. All
 * but `source` is allocated in `arena`. TFMC_INVALID with diagnostics if something is not supported. */
TFMC_MUST_USE enum tfmc_status opencl_build(struct diag_context *cx, const struct ir_module *planned,
                                            const struct target *target,
                                            const struct backend_options *options, struct arena *arena,
                                            struct opencl_program *out);
/* Builds the program of an object that is laid out, for the functions that its entries reach (sets
 * function.row), and appends their plans as bytes. The kernels go to a kernel module of their own. */
TFMC_MUST_USE enum tfmc_status opencl_compile(struct object *o, struct opencl_program *out, struct buf *plan);

/* Appends the plans as bytes (runtime/opencl/plan_format.h). TFMC_INVALID with a diagnostic if formulas or
 * commands nest deeper than readers support. */
TFMC_MUST_USE enum tfmc_status opencl_write_plan(const struct opencl_program *p, struct buf *out);
/* Prints the plans, one command per line. */
void opencl_print_plans(const struct opencl_program *p, struct buf *out);

#endif
