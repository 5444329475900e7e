/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the kernel builder's record to ELF bytes. This header shows no LLVM
 * types; LLVM-C headers are included in this folder only. Every call has its
 * own LLVM context, so that compilations do not share anything.
 */
#ifndef TFMC_BACKENDS_LLVM_LLVM_H
#define TFMC_BACKENDS_LLVM_LLVM_H

#include "backends/kb/kernel_ir.h"
#include "ir/diag/progress.h"
#include "ir/target/target.h"

struct llvm_options {
	const struct target *target;
	/* Targets of the record's variants, by number, all of `target`'s arch. NULL: all code but KB_BASELINE is
	 * for `target`. */
	const struct target *const *variants;
	int opt_level;                   /* effort of code generation: 0 none, 1 and 2 full */
	const struct progress *progress; /* told after each function; NULL: nobody */
};

/* Initialised by the caller; NULL members are not produced. */
struct llvm_output {
	struct buf *object, *text, *assembly;
};

/*
 * Compiles a verified record. Symbols that are used but not defined in it become
 * hidden external data. TFMC_INTERNAL after a diagnostic when LLVM refuses.
 */
TFMC_MUST_USE enum tfmc_status llvm_compile(struct diag_context *cx, const struct kb_module *m,
                                            const char *name, const struct llvm_options *options,
                                            const struct llvm_output *out);

#endif
