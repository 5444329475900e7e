/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmcmpi inside: calls and how they are compared, the failure of a rank, waits, the sum of the terms of all ranks
 * (exchange.c), and shared memory inside a host (window.c).
 */
#ifndef TFMC_RUNTIME_MPI_INTERNAL_H
#define TFMC_RUNTIME_MPI_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NO_LIMIT       INT64_MAX
#define SLEEP_AFTER_NS 1000000 /* waits sleep between polls from then on */

/* ---- calls ---- */
enum call_kind { CALL_SUM, CALL_GATHER, CALL_MESSAGE, CALL_BROADCAST, CALL_CLOSE, CALL_FAILED };

/* A call, equal on all ranks that take part. tag: number of the exchange; of CALL_MESSAGE that of the broadcasts before
 * it; of CALL_FAILED the rank that failed. */
struct call {
	uint64_t kind, tag, count; /* count: elements of x, bytes of a broadcast */
	uint64_t width;            /* of the rows of x that are gathered */
	int64_t group; /* ranks of a stage, which take part in sums and gathers; all else: of all ranks */
};

/* ---- failure ---- */
/* The first failure that this rank observed, for good. */
struct fault {
	atomic_int is_set; /* after the others */
	pthread_mutex_t mutex;
	int64_t self, rank; /* this rank; the one that failed */
	char text[256];
};

static inline bool fault_is_set(const struct fault *fault)
{
	return atomic_load_explicit(&fault->is_set, memory_order_acquire);
}

/* Rank `rank` failed; the text names it. */
__attribute__((format(printf, 3, 4))) void fault_set(struct fault *fault, int64_t rank, const char *format,
                                                     ...);

/* Rank `by` reports that rank `rank` failed, which may be this one in its eyes. */
void fault_report(struct fault *fault, int64_t by, int64_t rank);

/* A rank was awaited in vain. */
void fault_set_late(struct fault *fault, int64_t rank, int64_t waited_ns);

/* Compares a call of this rank with that of rank `other`. false: they differ, or that rank failed; the fault is set. */
bool same_call(struct fault *fault, const struct call *mine, int64_t other, const struct call *theirs);

/* ---- waits ---- */
/* Zero-initialised but for spins: each waiting thread has a processor. */
struct wait {
	bool spins;
	unsigned polls;
	int64_t began, waited; /* ns */
};

/* Between two polls: a pause instruction, later sched_yield. Returns the ns since the first poll. */
int64_t wait_poll(struct wait *wait);

/* Whether `threads` threads on this host, `workers` of them in this process, have a processor each. */
bool have_processors(int64_t threads, int64_t workers);

/* ---- sums ---- */
/* out [count] = the sum of n >= 2 terms, added as a tree of neighbours; term i at terms + i * stride floats. */
void add_tree(const float *terms, size_t stride, int64_t n, float *out, uint64_t count);

/* Share i of n of `size` elements, whole cache lines but for the last one. */
struct share {
	uint64_t begin, count;
};
struct share share_of(uint64_t size, int64_t i, int64_t n);

/*
 * out [..] = the sum, or the concatenation by rows, of share `share` of a chunk that begins at element `at` of x; term
 * i of the chunk at terms + i * stride.
 */
void combine(const struct call *call, const float *terms, size_t stride, int64_t n, uint64_t at,
             struct share share, float *out);

/* ---- shared memory ---- */
struct window;

/* Sent by every rank to all others before the window is opened. */
struct window_address {
	int64_t pid;
	int64_t fd; /* of rank 0: the memory; -1: there is none */
	uint64_t nonce;
};

/* Makes the address of this rank; on rank 0 creates the memory, whose file the caller closes. */
struct window_address window_create(int64_t rank, int64_t n);

/* addresses [n]. NULL: another rank's memory or process cannot be reached from this one. fault stays the caller's. */
struct window *window_open(const struct window_address *addresses, int64_t rank, int64_t n, int64_t limit_ns,
                           bool spins, struct fault *fault);

/* As of struct tfmc_ranks; failures set the fault. The call is a sum or a gather; CALL_CLOSE is a sum of nothing. */
void window_exchange(struct window *w, const float *x, float *out, const struct call *call, int64_t worker,
                     int64_t workers);
void window_broadcast(struct window *w, void *data, const struct call *call);
/* Of a CALL_MESSAGE, by one worker: x [call->count] to rank `to`, out from rank `from`. */
void window_send(struct window *w, int64_t to, const float *x, const struct call *call);
void window_receive(struct window *w, int64_t from, float *out, const struct call *call);
void window_close(struct window *w); /* NULL is allowed */

#endif
