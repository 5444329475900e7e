/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One small kernel compiled for every target this machine runs, loaded and
 * called, and compared byte for byte with the kernel interpreter.
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_LLVM_CASE_H
#define TFMC_TESTS_SUPPORT_KERNELS_LLVM_CASE_H

#include "backends/kb/kb.h"
#include "ir/target/target.h"

/* Emits the body of a function `case(in, out)`; it must not return. */
typedef void llvm_case_body(struct kb *k, struct kb_val in, struct kb_val out);
/* Functions the body calls; may be NULL. */
typedef void llvm_case_module(struct kb_module *m);

struct llvm_case {
	llvm_case_body *body;
	llvm_case_module *functions;
	const void *in;
	size_t in_bytes, out_bytes;
};

/* Fails the running test where a target and the interpreter differ. */
void llvm_case_check(const struct llvm_case *c);
/* The same for one machine, which must run here or be emulated, as a record with those caps sees it. */
void llvm_case_check_on(const struct llvm_case *c, const struct target *t, const struct kb_caps *caps);

#endif
