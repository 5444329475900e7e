/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block arena, see arena.h: a list of blocks, of which only the newest is filled. Every block has a scratch area for
 * requests after a failure, so it exists if any block does. All such requests share it: callers that write what they
 * allocated test `failed`, too. Sizes that overflow are reported here (memory_failed), others by memory_alloc.
 */
#include "ir/support/arena.h"

#include <stdio.h>
#include <string.h>

#include "ir/support/checked.h"
#include "ir/support/memory.h"

#define BLOCK_BYTES_MIN ((size_t)4 << 10)
#define BLOCK_BYTES_MAX ((size_t)1 << 20)
#define SCRATCH_BYTES   256

struct arena_block {
	struct arena_block *next; /* older */
	size_t used, size;        /* of data */
	_Alignas(max_align_t) unsigned char scratch[SCRATCH_BYTES];
	_Alignas(max_align_t) unsigned char data[];
};

void arena_init(struct arena *a)
{
	*a = (struct arena){.block_bytes = BLOCK_BYTES_MIN};
}

static void free_until(struct arena *a, struct arena_block *stop)
{
	while (a->head != stop && a->head != NULL) {
		struct arena_block *next = a->head->next;
		memory_free(a->head);
		a->head = next;
	}
}

void arena_destroy(struct arena *a)
{
	free_until(a, NULL);
	arena_init(a);
}

struct arena_mark arena_mark(const struct arena *a)
{
	return (struct arena_mark){a->head, a->head == NULL ? 0 : a->head->used, a->used_bytes};
}

/* Frees the blocks that are newer than the mark; the one it is in becomes the newest again. `failed` stays. */
void arena_release(struct arena *a, struct arena_mark mark)
{
	free_until(a, mark.block);
	if (a->head != NULL)
		a->head->used = mark.used;
	a->used_bytes = mark.used_bytes;
}

bool arena_failed(const struct arena *a)
{
	return a->failed;
}

static void *fail(struct arena *a, size_t n)
{
	a->failed = true;
	if (a->head == NULL || n > SCRATCH_BYTES)
		return NULL;
	return memset(a->head->scratch, 0, SCRATCH_BYTES);
}

/* Adds a block with space for n bytes; false without memory. Block sizes double up to BLOCK_BYTES_MAX; a larger
 * request gets a block of its size. An arena that is only zeroed (block_bytes 0) begins with the smallest. */
static bool add_block(struct arena *a, size_t n)
{
	size_t size = a->block_bytes < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : a->block_bytes;
	size_t total;
	if (n > size)
		size = n;
	if (!checked_add_size(size, sizeof(struct arena_block), &total))
		return false;
	struct arena_block *b = memory_alloc(total);
	if (b == NULL)
		return false;
	b->next = a->head;
	b->used = 0;
	b->size = size;
	a->head = b;
	if (a->block_bytes < BLOCK_BYTES_MAX)
		a->block_bytes = 2 * (a->block_bytes < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : a->block_bytes);
	return true;
}

/* Rounds up to the alignment of any object, so that the next address is aligned, too. A limit is set by the caller:
 * exceeding it is no lack of memory, and the handler is not called. */
void *arena_alloc(struct arena *a, size_t n)
{
	const size_t align = _Alignof(max_align_t);
	size_t padded, total;
	if (n == 0)
		return NULL;
	if (a->failed)
		return fail(a, n);
	if (!checked_add_size(n, align - 1, &padded)) {
		memory_failed(n);
		return fail(a, n);
	}
	padded &= ~(align - 1);
	if (!checked_add_size(a->used_bytes, padded, &total) ||
	    (a->limit_bytes != 0 && total > a->limit_bytes))
		return fail(a, n);
	if ((a->head == NULL || a->head->size - a->head->used < padded) && !add_block(a, padded))
		return fail(a, n);
	unsigned char *p = a->head->data + a->head->used;
	a->head->used += padded;
	a->used_bytes = total;
	return memset(p, 0, padded);
}

/* A product that overflows is a failed allocation. */
void *arena_calloc(struct arena *a, size_t count, size_t size)
{
	size_t n;
	if (!checked_mul_size(count, size, &n)) {
		memory_failed(SIZE_MAX);
		a->failed = true;
		return NULL;
	}
	return arena_alloc(a, n);
}

/* After a failure p may be the scratch area, which is smaller: nothing is copied. */
void *arena_grow(struct arena *a, void *old, size_t count, size_t want, size_t size)
{
	if (want <= count && old != NULL)
		return old;
	void *p = arena_calloc(a, want, size);
	if (p != NULL && old != NULL && count != 0 && !a->failed)
		memcpy(p, old, count * size);
	return p;
}

/* The scratch area of a failed arena is no place for a string: "". */
const char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	size_t total;
	if (a->failed || !checked_add_size(n, 1, &total)) {
		a->failed = true;
		return "";
	}
	char *p = arena_alloc(a, total);
	if (p == NULL || a->failed)
		return "";
	if (n != 0)
		memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

const char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

/* Formats twice: the first time for the length. */
const char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
{
	va_list again;
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0) {
		a->failed = true;
		return "";
	}
	char *p = arena_alloc(a, (size_t)n + 1);
	if (p == NULL || a->failed)
		return "";
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	return p;
}

const char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	const char *s = arena_vprintf(a, fmt, ap);
	va_end(ap);
	return s;
}

/* memcpy accesses the caller's T * without violating strict aliasing. */
void *arena_list_push(struct arena *a, void **items, size_t *n, size_t *cap, size_t size)
{
	void *data;
	memcpy(&data, items, sizeof(data));
	if (*n == *cap) {
		size_t want;
		if (!checked_mul_size(*cap == 0 ? 4 : *cap, 2, &want)) {
			a->failed = true;
			return NULL;
		}
		void *grown = arena_grow(a, data, *cap, want, size);
		if (grown == NULL || a->failed)
			return NULL;
		data = grown;
		memcpy(items, &data, sizeof(data));
		*cap = want;
	}
	void *last = (unsigned char *)data + *n * size;
	memset(last, 0, size);
	*n += 1;
	return last;
}
