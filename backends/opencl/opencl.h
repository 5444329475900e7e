/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A planned module as OpenCL C 1.2 kernels and the plans that launch them. One kernel
 * for each group of the plan, or for some that one launch may compute, equal ones printed once; a function of the IR is the
 * steps of its plan (backends/plan/plan.h). What a host must do, and no
 * more: give each launch its memory, dims and repeat indices, run the steps in
 * order on one queue, and look after the lengths in the state.
 *
 * Kernels take, for every area, a buffer and a byte offset into it, then the
 * dims and repeat indices they use. Buffers are 64-byte aligned; offsets are
 * multiples of the element size (of 64 where nothing is indexed by a repeat).
 */
#ifndef TFMC_BACKENDS_OPENCL_OPENCL_H
#define TFMC_BACKENDS_OPENCL_OPENCL_H

#include "backends/plan/emit.h"

struct opencl_program {
	const struct object *object;   /* laid out, of which it is */
	const struct plan **functions; /* those of the module, in order, but for cases */
	size_t n_functions;
	struct buf source; /* all kernels; index_bits chosen so that no offset overflows */
	int index_bits;    /* of every index argument: 32 or 64 */
};

void opencl_program_destroy(struct opencl_program *p);

/*
 * Builds the program of a verified module of stage plan for a target of ARCH_OPENCL. Everything but `source`
 * lives in `arena`. TFMC_INVALID after diagnostics for what is not supported.
 */
TFMC_MUST_USE enum tfmc_status opencl_build(struct diag_context *cx, const struct ir_module *planned,
                                            const struct target *target, struct arena *arena,
                                            struct opencl_program *out);
/* For an object that is laid out, with its entries: the functions that these reach, in order (function.row), and
 * their plans as bytes. The kernels are recorded in a module of their own. */
TFMC_MUST_USE enum tfmc_status opencl_compile(struct object *o, struct opencl_program *out, struct buf *plan);

/* The plans as bytes, for a host (runtime/plan/format.h). TFMC_INVALID after a diagnostic when formulas or steps are
 * deeper than a reader takes. */
TFMC_MUST_USE enum tfmc_status opencl_write_plan(const struct opencl_program *p, struct buf *out);
/* The launches as text, for people: one line each, repeats indented, offsets and sizes as formulas. */
void opencl_print_plans(const struct opencl_program *p, struct buf *out);

#endif
