/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the compiler. Arenas, buffers and the few tables of their own get
 * it here and nowhere else, so that there is one answer to "no memory".
 *
 * A program installs a handler that says what happened and ends the process:
 * the only state of the whole process, as in git, clang and LLVM. Without one
 * (the compiler as a library) a request returns NULL, and the failure is sticky
 * in the arena or the buffer that made it.
 */
#ifndef TFMC_IR_SUPPORT_MEMORY_H
#define TFMC_IR_SUPPORT_MEMORY_H

#include <stddef.h>

/*
 * `stage`: what was being done, after "while"; bytes 0: not known. While it runs, memory comes from a reserve
 * of MEMORY_RESERVE bytes, so that it can build a message.
 */
typedef void memory_handler(void *user, const char *stage, size_t bytes);
#define MEMORY_RESERVE ((size_t)256 << 10)

void memory_set_handler(memory_handler *handler, void *user);
/* What is done from now on: "reading the model"; `name` (NULL: none) is put after it. Both stay valid. */
void memory_stage(const char *what, const char *name);
/* The system, or a library that we call, has no memory. Returns only without a handler, or in it. */
void memory_failed(size_t bytes);

/* At least one byte. Calls memory_failed and returns NULL when there is none. */
void *memory_alloc(size_t n);
void *memory_zeroed(size_t count, size_t size);
/* p (NULL: none) has `old` bytes, and stays as it is when the result is NULL. */
void *memory_resize(void *p, size_t old, size_t n);
void memory_free(void *p);

#endif
