/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation for the whole compiler (arenas, buffers, tables), so that out of memory is handled in one place.
 *
 * A program installs a handler that reports the error and exits, as in git and LLVM; it is the only process-wide
 * state. Without a handler (the compiler as a library) allocation returns NULL, and the failure is sticky in the
 * arena or buffer.
 */
#ifndef TFMC_IR_SUPPORT_MEMORY_H
#define TFMC_IR_SUPPORT_MEMORY_H

#include <stddef.h>

/*
 * Handler for failed allocations. stage: the current activity, to follow "while"; bytes 0: unknown. While the handler
 * runs, allocations of its thread come from a static reserve of MEMORY_RESERVE bytes, so that it can build a message.
 */
typedef void memory_handler(void *user, const char *stage, size_t bytes);
#define MEMORY_RESERVE ((size_t)256 << 10)

void memory_set_handler(memory_handler *handler, void *user);
/* Sets the current activity for the handler: "reading the model", followed by `name` unless NULL. Not copied. */
void memory_stage(const char *what, const char *name);
/* Calls the handler: the system or a library has no memory. Returns if there is none, or this thread runs it; while
 * another thread runs it, waits first. */
void memory_failed(size_t bytes);

/* n bytes, at least one; NULL after memory_failed. */
void *memory_alloc(size_t n);
void *memory_zeroed(size_t count, size_t size);
/* Resizes p (NULL: allocates) from `old` to n bytes; p stays valid if the result is NULL. */
void *memory_resize(void *p, size_t old, size_t n);
void memory_free(void *p);

#endif
