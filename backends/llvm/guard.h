/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLVM ends the process where it cannot go on: by a fatal error, by abort, or by
 * a signal. After the guard that is an error of the compiler like any other,
 * which the caller can report with a reproducer; what LLVM held is lost.
 */
#ifndef TFMC_BACKENDS_LLVM_GUARD_H
#define TFMC_BACKENDS_LLVM_GUARD_H

#include <stdbool.h>

#include "ir/diag/diag.h"

/*
 * Runs work(user). TFMC_INTERNAL after a diagnostic (cx NULL: without) when LLVM ended it, TFMC_NO_MEMORY
 * when there was no memory for it (without a handler of memory.h). Not reentrant; one thread of the process
 * at a time.
 */
TFMC_MUST_USE enum tfmc_status llvm_guard(struct diag_context *cx, void (*work)(void *user), void *user);

/* Whether a message of LLVM says that the system gave no memory. */
bool llvm_says_memory(const char *text);

#endif
