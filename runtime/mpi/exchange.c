/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of both transports: comparison of calls, the failure of a rank, waits, and the sum. The order of additions is a
 * binary tree over the ranks, whatever the transport, so that results have the same bits.
 *
 * A stage is a group of ranks that share one part of the layers; sums and gathers are among them. A call describes one
 * exchange (kind, count, tag), and a rank sends its own along, so that ranks that disagree fail instead of mixing
 * data. A fault is the first failure that a rank knows of. A share is the part of a vector that one worker or rank
 * combines.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/mpi/internal.h"
#include "runtime/spin.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLLS   64    /* polls, each with a pause instruction, per reading of the clock */
#define SPIN_NS 50000 /* from then on the waiter calls sched_yield between polls */
#define VECTOR  16    /* floats; a loop of constant length becomes vector code at -O2 */
#define AHEAD   256   /* floats to prefetch: lines that another core wrote come one by one else */
#define BLOCK   512   /* floats of a partial sum: all levels of the tree stay in L1 */

/* ---- failure ---- */

/* Only the first failure counts: later ones mostly follow from it. is_set is stored after the text, which others read
 * without the mutex once it is set. */
void fault_set(struct fault *fault, int64_t rank, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	pthread_mutex_lock(&fault->mutex);
	if (!fault_is_set(fault)) {
		vsnprintf(fault->text, sizeof(fault->text), format, list);
		fault->rank = rank;
	}
	atomic_store_explicit(&fault->is_set, 1, memory_order_release);
	pthread_mutex_unlock(&fault->mutex);
	va_end(list);
}

/* Another rank reports a failure: where it accuses this rank, which is alive, it is itself the failed one. */
void fault_report(struct fault *fault, int64_t by, int64_t rank)
{
	fault_set(fault, rank == fault->self ? by : rank,
	          "rank %" PRId64 " reports a failure of rank %" PRId64, by, rank);
}

void fault_set_late(struct fault *fault, int64_t rank, int64_t waited_ns)
{
	fault_set(fault, rank, "rank %" PRId64 " has not come for %" PRId64 " ms", rank, waited_ns / 1000000);
}

/* text [size]: the call as words of a message. */
static void describe(const struct call *call, char *text, size_t size)
{
	if (call->kind == CALL_SUM || call->kind == CALL_GATHER)
		snprintf(text, size, "exchange %" PRIu64 " of %" PRIu64 " elements", call->tag, call->count);
	else if (call->kind == CALL_MESSAGE)
		snprintf(text, size, "a message of %" PRIu64 " elements after broadcast %" PRIu64,
		         call->count, call->tag);
	else
		snprintf(text, size,
		         call->kind == CALL_BROADCAST ? "a broadcast of %" PRIu64 " bytes" : "its end",
		         call->count);
}

/* A rank that has failed sends CALL_FAILED with the rank that it blames in `tag`. */
bool same_call(struct fault *fault, const struct call *mine, int64_t other, const struct call *theirs)
{
	char here[80], there[80];
	if (!memcmp(mine, theirs, sizeof(*mine)))
		return true;
	describe(mine, here, sizeof(here));
	describe(theirs, there, sizeof(there));
	if (theirs->kind == CALL_FAILED)
		fault_report(fault, other, (int64_t)theirs->tag);
	else
		fault_set(fault, other, "rank %" PRId64 " has come to %s, this rank to %s", other, there,
		          here);
	return false;
}

/* ---- waits ---- */

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Reading the clock costs more than a poll, so it is read once in POLLS while the waiter spins; a waiter that does not
 * spin (fewer processors than threads) yields each time. Returns the nanoseconds waited, as of the last reading. */
int64_t wait_poll(struct wait *wait)
{
	if (wait->spins && wait->waited < SPIN_NS && ++wait->polls % POLLS) {
		spin_pause();
		return wait->waited;
	}
	int64_t now = now_ns();
	if (!wait->began)
		wait->began = now;
	wait->waited = now - wait->began;
	if (!wait->spins || wait->waited >= SPIN_NS)
		sched_yield();
	return wait->waited;
}

bool have_processors(int64_t threads, int64_t workers)
{
	cpu_set_t allowed;
	return threads <= sysconf(_SC_NPROCESSORS_ONLN) &&
	       (sched_getaffinity(0, sizeof(allowed), &allowed) || workers <= CPU_COUNT(&allowed));
}

/* ---- sums ---- */

/* Whole lines but for the last one; no share has more than the lines of all, divided and rounded up. */
struct share share_of(uint64_t size, int64_t i, int64_t n)
{
	const uint64_t line = 16, lines = (size + line - 1) / line;
	uint64_t begin = lines * (uint64_t)i / (uint64_t)n * line;
	uint64_t end = lines * (uint64_t)(i + 1) / (uint64_t)n * line;
	begin = begin < size ? begin : size;
	end = end < size ? end : size;
	return (struct share){begin, end - begin};
}

/* out = a + b; out may be a or b: each vector is summed before it is written. */
static void add(const float *a, const float *b, float *out, uint64_t count)
{
	uint64_t i = 0;
	for (; i + VECTOR <= count; i += VECTOR) {
		float sum[VECTOR];
		__builtin_prefetch(a + i + AHEAD);
		__builtin_prefetch(b + i + AHEAD);
		for (int j = 0; j < VECTOR; j++)
			sum[j] = a[i + (uint64_t)j] + b[i + (uint64_t)j];
		memcpy(out + i, sum, sizeof(sum));
	}
	for (; i < count; i++)
		out[i] = a[i] + b[i];
}

/* add_tree of at most BLOCK elements. The left subtree has the largest power of two of the ranks below n. n >= 2: of
 * one rank there is nothing to add. The left sum goes to out, the right one to the stack. */
static void add_block(const float *terms, size_t stride, int64_t n, float *out, uint64_t count)
{
	float sum[BLOCK];
	const float *left = terms, *right;
	int64_t half = 1;
	while (2 * half < n)
		half *= 2;
	right = terms + (size_t)half * stride;
	if (half > 1) {
		add_block(left, stride, half, out, count);
		left = out;
	}
	if (n - half > 1) {
		add_block(right, stride, n - half, sum, count);
		right = sum;
	}
	add(left, right, out, count);
}

void add_tree(const float *terms, size_t stride, int64_t n, float *out, uint64_t count)
{
	for (uint64_t i = 0; i < count; i += BLOCK)
		add_block(terms + i, stride, n, out + i, count - i < BLOCK ? count - i : BLOCK);
}

/* out [rows][n][width], the columns of the ranks next to each other, from terms [n][stride] of one chunk, whose first
 * element is element `at` of the call. Elements of a share may begin and end inside rows. */
static void gather_rows(const struct call *call, const float *terms, size_t stride, int64_t n, uint64_t at,
                        struct share share, float *out)
{
	for (uint64_t size, i = 0; i < share.count; i += size) {
		uint64_t first = share.begin + i, row = (at + first) / call->width,
		         column = (at + first) % call->width, left = share.count - i;
		size = left < call->width - column ? left : call->width - column;
		for (int64_t r = 0; r < n; r++)
			memcpy(out + (row * (uint64_t)n + (uint64_t)r) * call->width + column,
			       terms + (size_t)r * stride + first, size * sizeof(*out));
	}
}

void combine(const struct call *call, const float *terms, size_t stride, int64_t n, uint64_t at,
             struct share share, float *out)
{
	if (call->kind == CALL_GATHER)
		gather_rows(call, terms, stride, n, at, share, out);
	else
		add_tree(terms + share.begin, stride, n, out + at + share.begin, share.count);
}
