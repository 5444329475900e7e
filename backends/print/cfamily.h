/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of kernel IR as source text in one of two dialects: portable C (gcc and clang, vector extensions), or
 * OpenCL C 1.2 without extensions. The text is deterministic and compiles without warnings.
 */
#ifndef TFMC_BACKENDS_PRINT_CFAMILY_H
#define TFMC_BACKENDS_PRINT_CFAMILY_H

#include "backends/kb/kernel_ir.h"

enum cfamily_dialect { CFAMILY_C, CFAMILY_OPENCL };

/* Read-only data outside of the kernel IR (the packed weights). */
struct cfamily_data {
	const char *name; /* as kb_symbol names it */
	const void *bytes;
	size_t n;
};

struct cfamily_options {
	enum cfamily_dialect dialect;
	int index_bits;    /* width of KB_INDEX: C 64, OpenCL 32 or 64 */
	const char *title; /* first comment of the file; may be NULL */
	const struct cfamily_data *data;
	size_t n_data;
};

/* Appends the source file of a module that kb_verify accepts. TFMC_INVALID after a diagnostic for operations that the
 * dialect cannot express (f64, atomics or calls through pointers in OpenCL C; work-groups in C). */
TFMC_MUST_USE enum tfmc_status cfamily_print(struct diag_context *cx, const struct kb_module *m,
                                             const struct cfamily_options *options, struct buf *out);

/* True for keywords of C up to C23 and macros that compilers predefine (linux, ..). */
bool cfamily_is_keyword(const char *name);

#endif
