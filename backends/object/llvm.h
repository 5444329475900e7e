/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From kernel IR to an ELF object. This header shows no LLVM types; LLVM-C headers are included in this directory
 * only. Every call has its own LLVM context, so compilations share nothing.
 */
#ifndef TFMC_BACKENDS_OBJECT_LLVM_H
#define TFMC_BACKENDS_OBJECT_LLVM_H

#include "backends/kb/kernel_ir.h"
#include "ir/support/progress.h"
#include "ir/target/target.h"

struct llvm_options {
	const struct target *target;
	/* Targets of the variants (kb_module_set_variant) by number, all of the arch of `target`. NULL: all
	 * functions but KB_BASELINE are for `target`. */
	const struct target *const *variants;
	int opt_level; /* of instruction selection and register allocation: 0 none, 1 and 2 default */
	const struct progress *progress; /* notified after each function; may be NULL */
};

/* Buffers initialized by the caller; NULL members are not produced. */
struct llvm_output {
	struct buf *object, *text, *assembly;
};

/* Compiles a module that kb_verify accepts. Symbols that it uses but does not define become hidden external data.
 * TFMC_INTERNAL after a diagnostic if LLVM fails. */
TFMC_MUST_USE enum tfmc_status llvm_compile(struct diag_context *cx, const struct kb_module *m,
                                            const char *name, const struct llvm_options *options,
                                            const struct llvm_output *out);

#endif
