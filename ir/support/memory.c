/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation, and the process-wide handler for failures. One thread at a time runs the handler; another one whose
 * allocation fails meanwhile waits for it, which usually means until the process ends. Only the thread that runs the
 * handler allocates from the reserve.
 */
#include "ir/support/memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_MAX 256

static struct {
	memory_handler *handler;
	void *user;
	const char *what, *name;
	_Atomic(const char *) owner; /* this_thread of the thread that runs the handler; NULL: none does */
	size_t used;                 /* bytes of the reserve */
} process;

/* Its address identifies the thread. */
static _Thread_local const char this_thread;

static _Alignas(max_align_t) unsigned char reserve[MEMORY_RESERVE];

void memory_set_handler(memory_handler *handler, void *user)
{
	process.handler = handler;
	process.user = user;
}

void memory_stage(const char *what, const char *name)
{
	process.what = what;
	process.name = name;
}

static bool is_handling(void)
{
	return atomic_load(&process.owner) == &this_thread;
}

/* Does nothing without a handler, or in the thread that runs it, whose own failures it survives by the reserve. The
 * compare-exchange makes this thread the owner; when it fails it overwrites `none`. */
void memory_failed(size_t bytes)
{
	char stage[STAGE_MAX];
	const char *none = NULL;
	if (process.handler == NULL || is_handling())
		return;
	while (!atomic_compare_exchange_weak(&process.owner, &none, &this_thread)) {
		none = NULL;
		sched_yield();
	}
	snprintf(stage, sizeof(stage), "%s%s%s", process.what != NULL ? process.what : "starting",
	         process.name != NULL ? " " : "", process.name != NULL ? process.name : "");
	process.handler(process.user, stage, bytes);
	atomic_store(&process.owner, NULL);
}

static bool is_reserved(const void *p)
{
	uintptr_t at = (uintptr_t)p, begin = (uintptr_t)reserve;
	return at >= begin && at < begin + sizeof(reserve);
}

/* Allocates n bytes of the reserve, which is never freed, for the thread that runs the handler; no lock is needed,
 * as there is one. NULL when it is used up. */
static void *from_reserve(size_t n)
{
	const size_t align = _Alignof(max_align_t);
	if (n > sizeof(reserve) - process.used)
		return NULL;
	void *p = reserve + process.used;
	process.used += (n + align - 1) / align * align;
	if (process.used > sizeof(reserve))
		process.used = sizeof(reserve);
	return p;
}

/* At least one byte, since malloc(0) may be NULL without a failure. */
void *memory_alloc(size_t n)
{
	if (is_handling())
		return from_reserve(n);
	void *p = malloc(n != 0 ? n : 1);
	if (p == NULL)
		memory_failed(n);
	return p;
}

/* calloc and not memset: unused pages of a large table are never touched. */
void *memory_zeroed(size_t count, size_t size)
{
	size_t bytes = size != 0 && count > SIZE_MAX / size ? SIZE_MAX : count * size;
	if (is_handling()) {
		void *p = from_reserve(bytes);
		return p != NULL ? memset(p, 0, bytes) : NULL;
	}
	void *p = calloc(count != 0 ? count : 1, size != 0 ? size : 1);
	if (p == NULL)
		memory_failed(bytes);
	return p;
}

/* The handler may resize its own blocks, or some that were allocated before it ran. */
void *memory_resize(void *p, size_t old, size_t n)
{
	if (!is_handling()) {
		void *grown = realloc(p, n != 0 ? n : 1);
		if (grown == NULL)
			memory_failed(n);
		return grown;
	}
	/* the handler runs in this thread: the reserve only grows, so the block is copied */
	void *copy = from_reserve(n);
	if (copy != NULL && p != NULL)
		memcpy(copy, p, old < n ? old : n);
	return copy;
}

void memory_free(void *p)
{
	if (!is_reserved(p))
		free(p);
}
