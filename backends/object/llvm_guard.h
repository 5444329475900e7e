/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash recovery, as clang's CrashRecoveryContext: LLVM ends the process on a fatal error, an assertion, a crash or
 * when memory runs out. Under the guard these become ordinary errors, which the caller reports with a reproducer.
 * Memory that LLVM held then leaks.
 */
#ifndef TFMC_BACKENDS_LLVM_GUARD_H
#define TFMC_BACKENDS_LLVM_GUARD_H

#include <stdbool.h>

#include "ir/support/diag.h"

/*
 * Runs work(user). Returns TFMC_INTERNAL after a diagnostic (none if cx is NULL) if LLVM crashed, TFMC_NO_MEMORY if
 * its memory ran out (memory.h may have a handler that does not return). Installs process-wide handlers: not
 * reentrant, one thread at a time.
 */
TFMC_MUST_USE enum tfmc_status llvm_guard(struct diag_context *cx, void (*work)(void *user), void *user);

/* True if a message of LLVM reports that memory ran out. */
bool llvm_is_memory_message(const char *text);

#endif
