/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address space inference for OpenCL C, where the address space is part of a pointer's type. Parameters of kernels
 * point to global memory, LOCAL arrays are private, SHARED arrays local, data constant; other pointers, and
 * parameters of functions, get their space from use.
 */
#ifndef TFMC_BACKENDS_PRINT_SPACE_H
#define TFMC_BACKENDS_PRINT_SPACE_H

#include "backends/kb/kernel_ir.h"

/* SPACE_NONE: not a pointer, or one that is always null. */
enum space { SPACE_NONE, SPACE_GLOBAL, SPACE_LOCAL, SPACE_PRIVATE, SPACE_CONSTANT };

struct space_pointer {
	enum space space;
	bool is_written; /* a store may go through it or a pointer that may alias it: not const */
};

struct space_func {
	const struct space_pointer *values; /* [n_values], by value id */
	const struct space_pointer *vars;   /* [n_vars], by variable id */
	struct space_pointer result;
};

struct space_module {
	const struct space_func *funcs; /* [kb_func_count] */
};

/* Infers the spaces of a verified module; results are in `arena`. TFMC_INVALID after a diagnostic that names the
 * function if a pointer would have two spaces, is loaded from memory, or is a function's address. */
TFMC_MUST_USE enum tfmc_status space_infer(struct diag_context *cx, const struct kb_module *m,
                                           struct arena *arena, struct space_module *out);

/* "__global", ...; "" for NONE. */
const char *space_qualifier(enum space s);

#endif
