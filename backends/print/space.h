/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the pointers of a module point, for OpenCL C, which writes it into their
 * types: parameters of kernels to global memory, arrays of the function to
 * private and shared ones to local memory, data to constant memory; everything
 * else follows from use. Functions take pointers of the spaces their callers give.
 */
#ifndef TFMC_BACKENDS_PRINT_SPACE_H
#define TFMC_BACKENDS_PRINT_SPACE_H

#include "backends/kb/kernel_ir.h"

/* NONE: no pointer, or one that is only ever null. */
enum space { SPACE_NONE, SPACE_GLOBAL, SPACE_LOCAL, SPACE_PRIVATE, SPACE_CONSTANT };

struct space_pointer {
	enum space space;
	bool is_written; /* something may be stored through it, or through one it may be */
};

struct space_func {
	const struct space_pointer *values; /* [n_values], by value id */
	const struct space_pointer *vars;   /* [n_vars], by variable id */
	struct space_pointer result;
};

struct space_module {
	const struct space_func *funcs; /* [kb_func_count] */
};

/*
 * Infers all of it for a verified module; results live in `arena`. TFMC_INVALID after a diagnostic that names
 * the function when a pointer would be of two spaces, or comes out of memory or from a function's address.
 */
TFMC_MUST_USE enum tfmc_status space_infer(struct diag_context *cx, const struct kb_module *m,
                                           struct arena *arena, struct space_module *out);

/* "__global", ...; "" for NONE. */
const char *space_qualifier(enum space s);

#endif
