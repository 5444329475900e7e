/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block arena (region-based allocation): all memory is freed together, when the arena is destroyed or released to a
 * mark. An object may point into its own arena or a longer-lived one, never the reverse.
 *
 * Failure is sticky. After the first failed allocation (no memory, size overflow, limit) small requests return a
 * zeroed scratch area inside of the arena and larger ones NULL, so callers may check arena_failed once at the end;
 * only callers that index into an array must check for NULL.
 */
#ifndef TFMC_IR_SUPPORT_ARENA_H
#define TFMC_IR_SUPPORT_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdarg.h>

#include "ir/support/compiler.h"

struct arena_block;

struct arena {
	struct arena_block *head; /* newest block */
	size_t block_bytes;       /* size of the next ordinary block */
	size_t used_bytes;        /* bytes handed out, for statistics */
	size_t limit_bytes;       /* 0: none; above it allocation fails */
	bool failed;              /* sticky */
};

struct arena_mark {
	struct arena_block *block;
	size_t used, used_bytes;
};

void arena_init(struct arena *a);
void arena_destroy(struct arena *a); /* frees everything; the arena may be initialised again */
struct arena_mark arena_mark(const struct arena *a);
void arena_release(struct arena *a, struct arena_mark mark);
bool arena_failed(const struct arena *a);

/* Zeroed memory, aligned for any object. NULL on failure or n = 0. */
void *arena_alloc(struct arena *a, size_t n);
void *arena_calloc(struct arena *a, size_t count, size_t size);
/* Grows an array from `count` to `want` elements by copying; the old memory stays in the arena. */
void *arena_grow(struct arena *a, void *old, size_t count, size_t want, size_t size);
/* Zero-terminated copies; "" on failure, never NULL. */
const char *arena_strdup(struct arena *a, const char *s);
const char *arena_strndup(struct arena *a, const char *s, size_t n);
const char *arena_printf(struct arena *a, const char *fmt, ...) TFMC_PRINTF(2, 3);
const char *arena_vprintf(struct arena *a, const char *fmt, va_list ap) TFMC_PRINTF(2, 0);
/* In a function with arguments after `fmt`: sets `text` to them, formatted in the arena. */
#define ARENA_FROM_ARGS(text, a, fmt)                  \
	do {                                           \
		va_list ap_;                           \
		va_start(ap_, fmt);                    \
		(text) = arena_vprintf((a), fmt, ap_); \
		va_end(ap_);                           \
	} while (0)

#define ARENA_NEW(a, type)          ((type *)arena_calloc((a), 1, sizeof(type)))
#define ARENA_ARRAY(a, type, count) ((type *)arena_calloc((a), (size_t)(count), sizeof(type)))

/* Growable list in an arena: a struct with `T *items; size_t n, cap;`. ARENA_PUSH evaluates to the new, zeroed last
 * element; NULL on failure, which leaves the list unchanged. */
void *arena_list_push(struct arena *a, void **items, size_t *n, size_t *cap, size_t size);
#define ARENA_PUSH(a, list) \
	arena_list_push((a), (void **)&(list)->items, &(list)->n, &(list)->cap, sizeof(*(list)->items))
/* Appends a value; on failure the list is unchanged and the arena has failed. */
#define ARENA_ADD(a, list, ...)                                       \
	do {                                                          \
		if (ARENA_PUSH((a), (list)))                          \
			(list)->items[(list)->n - 1] = (__VA_ARGS__); \
	} while (0)

/* Appends a value, as an expression; false on failure. */
#define ARENA_ADDED(a, list, ...) \
	(ARENA_PUSH((a), (list)) != NULL && ((list)->items[(list)->n - 1] = (__VA_ARGS__), true))

#endif
