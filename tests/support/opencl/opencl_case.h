/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One small kernel printed as OpenCL C with both widths of the index, checked by
 * clang without any extension, run on PoCL, and compared with the kernel
 * interpreter. Without a device or clang the rest is done and stderr says so.
 */
#ifndef TFMC_TESTS_SUPPORT_OPENCL_OPENCL_CASE_H
#define TFMC_TESTS_SUPPORT_OPENCL_OPENCL_CASE_H

#include "backends/kb/kb.h"

/* Emits the body of a kernel `case_kernel(in, out)`; it must not return. */
typedef void opencl_case_body(struct kb *k, struct kb_val in, struct kb_val out);
/* Functions the body calls; may be NULL. */
typedef void opencl_case_module(struct kb_module *m);

struct opencl_case {
	opencl_case_body *body;
	opencl_case_module *functions;
	const void *in;
	size_t in_bytes, out_bytes;
	int64_t groups, items; /* 0: one */
	/* Expected output; NULL: of the interpreter. */
	const void *expected;
};

/* Fails the running test where the text, the lint or the bytes are wrong. */
void opencl_case_check(const struct opencl_case *c);
/* The text with an index of 32 bits; the caller destroys it. */
void opencl_case_print(const struct opencl_case *c, struct buf *out);
/* The diagnostic that printing the case gives; fails the test when there is none. */
void opencl_case_refused(const struct opencl_case *c, const char *message);

#endif
