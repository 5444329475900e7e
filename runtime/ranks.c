/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks inside one process: threads, one rank alone, delays.
 *
 * A local exchange copies x into staging memory of its rank, waits once until all ranks have arrived, and adds the
 * staged values of all ranks: each rank computes the whole sum. Staging costs a copy in cache and saves the second
 * wait that reading x of other ranks directly would need before x may be written again; and after a failure no
 * thread reads memory of a rank that has returned. Two staging buffers alternate: a rank that has arrived at an
 * exchange has read those of the exchange before the last one, so one wait orders reads and writes. Exchanges of a
 * stage and those of all ranks are counted apart, with buffers of their own. A message between stages is copied to
 * the mailbox of its receiver, which has two buffers, too.
 *
 * A party is the ranks of one exchange (all, or those of a stage), and its meeting counts exchanges that are complete.
 * FAILED in a count is for good: waiters return, and nothing counts on. Workers divide an exchange by ranges of cache
 * lines. One rank alone (mirror) acts as if the others had its own values: to measure one rank of many. Delayed ranks
 * add the time of a network link to exchanges of another table: to measure what a slower link costs.
 */
#include "tfmc_rt.h"

#include "runtime/memory.h"
#include "runtime/spin.h"
#include "runtime/try.h"

#include <pthread.h>

#define CACHE_LINE   64
#define LINE_FLOATS  16
#define BLOCK_FLOATS 256   /* of each partial sum of the tree */
#define STAGE_FLOATS 16384 /* longer exchanges go in pieces of this size */
#define STAGE_BYTES  (STAGE_FLOATS * sizeof(float))
#define SPIN_NS      (TFMC_POOL_SPIN_US * INT64_C(1000))

/* ---- sums ---- */

/* The x of all ranks: that of rank r is at first + r * stride. */
struct terms {
	const float *first;
	uint64_t stride;
	int64_t n;
};

/* out = a + b. Whole cache lines have a constant trip count, which compilers vectorize without a check. */
static void add(float *restrict out, const float *restrict a, const float *restrict b, uint64_t n)
{
	uint64_t i = 0;
	for (; i + LINE_FLOATS <= n; i += LINE_FLOATS)
		for (uint64_t k = i; k < i + LINE_FLOATS; k++)
			out[k] = a[k] + b[k];
	for (; i < n; i++)
		out[i] = a[i] + b[i];
}

/* Sum of n <= BLOCK_FLOATS elements as a tree over the ranks, its left half the largest power of two: the order that
 * all transports have, so that results have the same bits. Returns its address: `out`, or the term itself for one
 * rank. */
static const float *add_tree(struct terms t, uint64_t n, float *out)
{
	float left[BLOCK_FLOATS], right[BLOCK_FLOATS];
	if (t.n == 1)
		return t.first;
	int64_t half = 1;
	while (2 * half < t.n)
		half *= 2;
	const struct terms low = {t.first, t.stride, half};
	const struct terms high = {t.first + (uint64_t)half * t.stride, t.stride, t.n - half};
	add(out, add_tree(low, n, left), add_tree(high, n, right), n);
	return out;
}

/* Elements of a worker: whole cache lines, so that no two workers write one. */
struct range {
	uint64_t from, to;
};

static struct range range_of(uint64_t n, int64_t worker, int64_t workers)
{
	uint64_t lines = (n + LINE_FLOATS - 1) / LINE_FLOATS, all = workers > 1 ? (uint64_t)workers : 1;
	uint64_t from = lines * (uint64_t)worker / all * LINE_FLOATS;
	uint64_t to = lines * ((uint64_t)worker + 1) / all * LINE_FLOATS;
	return (struct range){from, to < n ? to : n};
}

/* out[range] = sum of the terms, block by block, so that partial sums stay in the L1 cache. */
static void sum_range(struct terms t, struct range range, float *out)
{
	for (uint64_t n, i = range.from; i < range.to; i += n) {
		n = range.to - i < BLOCK_FLOATS ? range.to - i : BLOCK_FLOATS;
		const struct terms block = {t.first + i, t.stride, t.n};
		const float *sum = add_tree(block, n, out + i);
		if (sum != out + i)
			memcpy(out + i, sum, n * sizeof(float));
	}
}

/* ---- concatenation ---- */

/*
 * Copies elements range + at of x [rows][width] of all ranks to out [rows][n][width]; those of rank r are at
 * t.first + r * t.stride, from element `at` on.
 */
static void gather_range(struct terms t, struct range range, uint64_t at, uint64_t width, float *out)
{
	for (uint64_t n, i = range.from; i < range.to; i += n) {
		uint64_t row = (at + i) / width, column = (at + i) % width, ranks = (uint64_t)t.n;
		n = range.to - i < width - column ? range.to - i : width - column;
		for (uint64_t r = 0; r < ranks; r++)
			memcpy(out + (row * ranks + r) * width + column, t.first + r * t.stride + i,
			       n * sizeof(float));
	}
}

/* ---- ranks as threads ---- */

/* Must be equal on all ranks. */
enum exchange_kind { EXCHANGE_SUM, EXCHANGE_GATHER, EXCHANGE_BROADCAST, EXCHANGE_MESSAGE };
struct exchange {
	enum exchange_kind kind;
	uint64_t tag, size; /* tag: of a message the broadcasts before it; size: elements or bytes */
};

/* Bit of counts that threads wait for. The count below it wraps around, and is compared for equality only. */
#define FAILED 0x80000000u

/* Where ranks wait for each other. */
struct meeting {
	_Alignas(CACHE_LINE)
	        atomic_uint completed; /* number of exchanges that are complete; with FAILED: for good */
	_Alignas(CACHE_LINE) atomic_uint n_arrived; /* ranks at the current exchange */
};

/* Messages to a rank, in pieces: those written and those read; with FAILED as above. */
struct mailbox {
	_Alignas(CACHE_LINE) atomic_uint written, read;
	struct exchange messages[2]; /* that an even and an odd piece are of */
};

struct local_rank {
	_Alignas(CACHE_LINE) atomic_uint n_arrived; /* workers at the current exchange */
	struct exchange exchange;                   /* written by the last worker that arrives */
	struct tfmc_ranks table;
	struct tfmc_local_ranks *group;
	int64_t index;
	struct meeting stage; /* of the ranks of a stage, of which this is the first */
	struct mailbox mailbox;
	uint64_t n_broadcasts; /* that this rank has taken part in */
};

/* Pairs of staging buffers of a rank. */
enum buffers { BUFFERS_ALL, BUFFERS_STAGE, BUFFERS_MAILBOX, N_BUFFERS };

struct tfmc_local_ranks {
	int64_t n;
	float *stages; /* [n][N_BUFFERS][2][STAGE_FLOATS] */
	struct memory_block memory;
	struct meeting all;
	_Alignas(CACHE_LINE) atomic_uint n_asleep; /* changed under the mutex */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct local_rank ranks[];
};

/* True for the last of `all` that arrive, which begins the count again for the next exchange; one alone is not
 * counted. */
static bool is_last(atomic_uint *n_arrived, unsigned all)
{
	if (all > 1 && atomic_fetch_add_explicit(n_arrived, 1, memory_order_acq_rel) + 1 < all)
		return false;
	atomic_store_explicit(n_arrived, 0, memory_order_relaxed);
	return true;
}

/* Wakes sleepers without a lost wake-up. The counts and `n_asleep` are sequentially consistent: either this thread
 * reads the sleeper, or the sleeper reads the new count before it blocks. Without sleepers it makes no system call. */
static void wake_all(struct tfmc_local_ranks *g)
{
	if (atomic_load_explicit(&g->n_asleep, memory_order_seq_cst) == 0)
		return;
	pthread_mutex_lock(&g->mutex);
	pthread_cond_broadcast(&g->wake);
	pthread_mutex_unlock(&g->mutex);
}

/* Waits while `count` has this value: spins for SPIN_NS, then blocks. False: the group has failed. */
static bool wait_while(struct tfmc_local_ranks *g, atomic_uint *count, unsigned value)
{
	if (!spin_while(count, value, SPIN_NS)) {
		pthread_mutex_lock(&g->mutex);
		atomic_fetch_add_explicit(&g->n_asleep, 1, memory_order_seq_cst);
		while (atomic_load_explicit(count, memory_order_seq_cst) == value)
			pthread_cond_wait(&g->wake, &g->mutex);
		atomic_fetch_sub_explicit(&g->n_asleep, 1, memory_order_relaxed);
		pthread_mutex_unlock(&g->mutex);
	}
	return !(atomic_load_explicit(count, memory_order_acquire) & FAILED);
}

/* Counts on from `value` (modulo 2^31) and wakes, unless FAILED was set meanwhile, which stays: hence compare and
 * exchange. */
static void count_on(struct tfmc_local_ranks *g, atomic_uint *count, unsigned value)
{
	if (atomic_compare_exchange_strong_explicit(count, &value, (value + 1) & ~FAILED,
	                                            memory_order_seq_cst, memory_order_relaxed))
		wake_all(g);
}

static unsigned count_of(atomic_uint *count)
{
	return atomic_load_explicit(count, memory_order_acquire);
}

static bool same_exchange(const struct exchange *a, const struct exchange *b)
{
	return a->kind == b->kind && a->tag == b->tag && a->size == b->size;
}

/* The ranks [first, first + n) that exchange values, and where they meet. */
struct party {
	struct meeting *meeting;
	enum buffers buffers;
	int64_t first, n;
};

/* The ranks of an exchange of n: all, or the n of the stage of r, whose meeting is that of the first one. */
static struct party party_of(struct local_rank *r, int64_t n)
{
	struct tfmc_local_ranks *g = r->group;
	int64_t first = r->index - r->index % n;
	if (n == g->n)
		return (struct party){&g->all, BUFFERS_ALL, 0, n};
	return (struct party){&g->ranks[first].stage, BUFFERS_STAGE, first, n};
}

/* All ranks have arrived: exchange number `count` is complete, unless the ranks are at different ones, which fails the
 * group instead of mixing their values. */
static void complete(struct tfmc_local_ranks *g, const struct party *p, unsigned count)
{
	for (int64_t i = 1; i < p->n; i++)
		if (!same_exchange(&g->ranks[p->first].exchange, &g->ranks[p->first + i].exchange)) {
			tfmc_local_ranks_fail(g);
			return;
		}
	count_on(g, &p->meeting->completed, count);
}

/* A worker arrives at exchange number `count`, its staged values written, and waits for all workers of all ranks. The
 * last worker of a rank arrives for the rank, the last rank completes. False: the group has failed. */
static bool arrive_and_wait(struct local_rank *r, const struct party *p, struct exchange e, unsigned count,
                            int64_t workers)
{
	struct tfmc_local_ranks *g = r->group;
	if (is_last(&r->n_arrived, (unsigned)workers)) {
		r->exchange = e;
		if (is_last(&p->meeting->n_arrived, (unsigned)p->n))
			complete(g, p, count);
	}
	return wait_while(g, &p->meeting->completed, count);
}

#define RANK_FLOATS ((uint64_t)N_BUFFERS * 2 * STAGE_FLOATS)

/* Staging memory of a rank in an exchange. */
static float *stage_of(struct tfmc_local_ranks *g, int64_t rank, enum buffers buffers, unsigned count)
{
	return g->stages + (uint64_t)rank * RANK_FLOATS +
	       (2 * (uint64_t)buffers + (count & 1)) * STAGE_FLOATS;
}

/*
 * Stages x and waits for all ranks, piece by piece; width: of the rows of x [count] that are gathered, 0: a sum. The
 * number of the exchange that a worker begins cannot be complete without this worker.
 */
static void exchange(struct local_rank *r, const float *x, float *out, uint64_t count, uint64_t width,
                     const struct party *p, struct exchange e, int64_t worker, int64_t workers)
{
	struct tfmc_local_ranks *g = r->group;
	uint64_t at = 0, n;
	do {
		unsigned number = count_of(&p->meeting->completed);
		if (number & FAILED)
			return;
		n = count - at < STAGE_FLOATS ? count - at : STAGE_FLOATS;
		struct range range = range_of(n, worker, workers);
		if (range.from < range.to)
			memcpy(stage_of(g, r->index, p->buffers, number) + range.from, x + at + range.from,
			       (range.to - range.from) * sizeof(float));
		if (!arrive_and_wait(r, p, e, number, workers))
			return;
		const struct terms terms = {stage_of(g, p->first, p->buffers, number), RANK_FLOATS, p->n};
		if (range.from < range.to && width > 0)
			gather_range(terms, range, at, width, out);
		else if (range.from < range.to)
			sum_range(terms, range, out + at);
		at += n;
	} while (at < count);
}

static void local_sum(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                      int64_t worker, int64_t workers)
{
	const struct party p = party_of(user, group);
	const struct exchange e = {EXCHANGE_SUM, tag, count};
	exchange(user, x, out, count, 0, &p, e, worker, workers);
}

static void local_gather(void *user, const float *x, float *out, uint64_t rows, uint64_t width, int64_t group,
                         uint64_t tag, int64_t worker, int64_t workers)
{
	const struct party p = party_of(user, group);
	const struct exchange e = {EXCHANGE_GATHER, tag, rows * width};
	exchange(user, x, out, rows * width, width, &p, e, worker, workers);
}

/* Writes a message to the mailbox of rank `to`, piece by piece; the sender is at most two pieces ahead. */
static void write_message(struct tfmc_local_ranks *g, int64_t to, const float *x, struct exchange e)
{
	struct mailbox *box = &g->ranks[to].mailbox;
	const uint64_t count = e.size;
	uint64_t at = 0, n;
	do {
		unsigned number = count_of(&box->written);
		/* both buffers are full as long as the piece before the last one has not been read */
		if ((number & FAILED) || !wait_while(g, &box->read, (number - 2) & ~FAILED))
			return;
		n = count - at < STAGE_FLOATS ? count - at : STAGE_FLOATS;
		if (n > 0)
			memcpy(stage_of(g, to, BUFFERS_MAILBOX, number), x + at, n * sizeof(float));
		box->messages[number & 1] = e;
		count_on(g, &box->written, number);
		at += n;
	} while (at < count);
}

/* Reads a message from the mailbox of rank `to`, this rank, piece by piece. Fails the group if the sender means
 * another one. */
static void read_message(struct tfmc_local_ranks *g, int64_t to, float *out, struct exchange e)
{
	struct mailbox *box = &g->ranks[to].mailbox;
	const uint64_t count = e.size;
	uint64_t at = 0, n;
	do {
		unsigned number = count_of(&box->read);
		if ((number & FAILED) || !wait_while(g, &box->written, number))
			return;
		if (!same_exchange(&e, &box->messages[number & 1])) {
			tfmc_local_ranks_fail(g);
			return;
		}
		n = count - at < STAGE_FLOATS ? count - at : STAGE_FLOATS;
		if (n > 0)
			memcpy(out + at, stage_of(g, to, BUFFERS_MAILBOX, number), n * sizeof(float));
		count_on(g, &box->read, number);
		at += n;
	} while (at < count);
}

/* Worker 0 alone: the others wait in the barrier of the object behind an exchange. */
static void local_send(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                       int64_t worker, int64_t workers)
{
	const struct local_rank *r = user;
	struct tfmc_local_ranks *g = r->group;
	(void)tag;
	(void)workers;
	if (worker > 0)
		return;
	if (r->index >= group)
		write_message(g, (r->index + group) % g->n, x,
		              (struct exchange){EXCHANGE_MESSAGE, r->n_broadcasts, count});
	if (count > 0)
		memcpy(out, x, count * sizeof(float));
}

/* The first stage receives nothing and returns its own operand. Worker 0 alone, as local_send(). */
static void local_receive(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                          int64_t worker, int64_t workers)
{
	const struct local_rank *r = user;
	(void)tag;
	(void)workers;
	if (worker > 0)
		return;
	if (r->index / group != 1) /* stages are 1, 2, .., 0: the first one receives nothing */
		read_message(r->group, r->index, out,
		             (struct exchange){EXCHANGE_MESSAGE, r->n_broadcasts, count});
	else if (count > 0)
		memcpy(out, x, count * sizeof(float));
}

static int32_t local_status(void *user)
{
	const struct local_rank *r = user;
	return count_of(&r->group->all.completed) & FAILED ? TFMC_RT_E_RANK : TFMC_RT_OK;
}

/* Rank 0 stages its data piece by piece; the others copy each piece when all have arrived. All of them count
 * broadcasts: the number is the tag of messages, which belong to the act of the last broadcast. */
static int32_t local_broadcast(void *user, void *data, uint64_t bytes)
{
	struct local_rank *r = user;
	struct tfmc_local_ranks *g = r->group;
	const struct party p = party_of(r, g->n);
	const struct exchange e = {EXCHANGE_BROADCAST, 0, bytes};
	uint64_t at = 0, n;
	r->n_broadcasts++;
	do {
		unsigned number = count_of(&g->all.completed);
		if (number & FAILED)
			return TFMC_RT_E_RANK;
		n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
		if (n > 0 && r->index == 0)
			memcpy(stage_of(g, 0, BUFFERS_ALL, number), (const char *)data + at, n);
		if (!arrive_and_wait(r, &p, e, number, 1))
			return TFMC_RT_E_RANK;
		if (n > 0 && r->index != 0)
			memcpy((char *)data + at, stage_of(g, 0, BUFFERS_ALL, number), n);
		at += n;
	} while (at < bytes);
	return TFMC_RT_OK;
}

/* One allocation has the group, its ranks and their staging memory, zeroed; small pages, since short exchanges touch
 * little. */
int tfmc_local_ranks_create(int64_t n, struct tfmc_local_ranks **out)
{
	struct memory_block memory;
	if (!out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	if (n < 1 || n > TFMC_LOCAL_RANKS_MAX)
		return TFMC_RT_E_RANKS;
	uint64_t head = sizeof(struct tfmc_local_ranks) + (uint64_t)n * sizeof(struct local_rank);
	TRY(memory_block_alloc(&memory, head + (uint64_t)n * RANK_FLOATS * sizeof(float),
	                       MEMORY_SMALL_PAGES));
	struct tfmc_local_ranks *g = memory.data;
	g->n = n;
	g->stages = (float *)(void *)((char *)memory.data + head);
	g->memory = memory;
	pthread_mutex_init(&g->mutex, NULL);
	pthread_cond_init(&g->wake, NULL);
	for (int64_t i = 0; i < n; i++) {
		struct local_rank *r = &g->ranks[i];
		r->group = g;
		r->index = i;
		r->table = (struct tfmc_ranks){.struct_size = sizeof(r->table),
		                               .user = r,
		                               .rank = i,
		                               .n = n,
		                               .sum = local_sum,
		                               .gather = local_gather,
		                               .send = local_send,
		                               .receive = local_receive,
		                               .status = local_status,
		                               .broadcast = local_broadcast};
	}
	*out = g;
	return TFMC_RT_OK;
}

const struct tfmc_ranks *tfmc_local_rank(struct tfmc_local_ranks *ranks, int64_t rank)
{
	return ranks && rank >= 0 && rank < ranks->n ? &ranks->ranks[rank].table : NULL;
}

/* FAILED goes into every count that a thread may wait for. The one of all ranks is first: local_status reads it. */
void tfmc_local_ranks_fail(struct tfmc_local_ranks *ranks)
{
	if (!ranks)
		return;
	/* status reads the first one */
	atomic_fetch_or_explicit(&ranks->all.completed, FAILED, memory_order_seq_cst);
	for (int64_t i = 0; i < ranks->n; i++) {
		struct local_rank *r = &ranks->ranks[i];
		atomic_fetch_or_explicit(&r->stage.completed, FAILED, memory_order_seq_cst);
		atomic_fetch_or_explicit(&r->mailbox.written, FAILED, memory_order_seq_cst);
		atomic_fetch_or_explicit(&r->mailbox.read, FAILED, memory_order_seq_cst);
	}
	wake_all(ranks);
}

void tfmc_local_ranks_destroy(struct tfmc_local_ranks *ranks)
{
	if (!ranks)
		return;
	struct memory_block memory = ranks->memory;
	pthread_cond_destroy(&ranks->wake);
	pthread_mutex_destroy(&ranks->mutex);
	memory_block_free(&memory);
}

/* ---- one rank alone ---- */

/* The tree of n equal terms x: its left half is the largest power of two below n times x, which is exact, plus the
 * tree of the others. It is evaluated from the lowest bit of n up. So the work is about that of one rank of many in a
 * sum of shares, not that of adding all terms. x may be out. */
static void mirror_sum(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                       int64_t worker, int64_t workers)
{
	const struct range range = range_of(count, worker, workers);
	(void)user;
	(void)tag;
	for (uint64_t n, at = range.from; at < range.to; at += n) {
		float sum[BLOCK_FLOATS];
		int64_t bit = group & -group;
		n = range.to - at < BLOCK_FLOATS ? range.to - at : BLOCK_FLOATS;
		for (uint64_t i = 0; i < n; i++)
			sum[i] = x[at + i] * (float)bit;
		for (int64_t remaining = group - bit; remaining > 0; remaining -= bit) {
			bit = remaining & -remaining;
			for (uint64_t i = 0; i < n; i++)
				sum[i] = x[at + i] * (float)bit + sum[i];
		}
		memcpy(out + at, sum, n * sizeof(float));
	}
}

/* Messages come from stages that have the same values. */
static void mirror_message(void *user, const float *x, float *out, uint64_t count, int64_t group,
                           uint64_t tag, int64_t worker, int64_t workers)
{
	(void)user;
	(void)group;
	(void)tag;
	(void)workers;
	if (worker == 0 && count > 0)
		memcpy(out, x, count * sizeof(float));
}

static void mirror_gather(void *user, const float *x, float *out, uint64_t rows, uint64_t width,
                          int64_t group, uint64_t tag, int64_t worker, int64_t workers)
{
	(void)user;
	(void)tag;
	gather_range((struct terms){x, 0, group}, range_of(rows * width, worker, workers), 0, width, out);
}

static int32_t mirror_status(void *user)
{
	(void)user;
	return TFMC_RT_OK;
}

static int32_t mirror_broadcast(void *user, void *data, uint64_t bytes)
{
	(void)user;
	(void)data;
	(void)bytes;
	return TFMC_RT_OK;
}

int tfmc_mirror_ranks_init(struct tfmc_ranks *out, int64_t n)
{
	if (!out)
		return TFMC_RT_E_NULL;
	if (n < 1 || n > TFMC_LOCAL_RANKS_MAX)
		return TFMC_RT_E_RANKS;
	*out = (struct tfmc_ranks){.struct_size = sizeof(*out),
	                           .user = out,
	                           .n = n,
	                           .sum = mirror_sum,
	                           .gather = mirror_gather,
	                           .send = mirror_message,
	                           .receive = mirror_message,
	                           .status = mirror_status,
	                           .broadcast = mirror_broadcast};
	return TFMC_RT_OK;
}

/* ---- delays ---- */

#define NS_PER_SECOND 1e9

static double link_ns(const struct tfmc_link *link, double phases, double bytes)
{
	return phases * (double)link->latency_ns + bytes * NS_PER_SECOND / (double)link->bytes_per_second;
}

/* Time of a sum over a link: short ones in one phase (each rank sends all to all others), long ones in two
 * (reduce-scatter, then all-gather), as the MPI transport does. */
double tfmc_link_sum_ns(const struct tfmc_link *link, int64_t n, uint64_t count)
{
	double bytes = (double)count * sizeof(float), others = (double)n - 1;
	if (!link || n <= 1)
		return 0;
	if (n == 2 || bytes * (double)n <= TFMC_DIRECT_BYTES)
		return link_ns(link, 1, bytes * others);
	return link_ns(link, 2, 2 * bytes * others / (double)n);
}

double tfmc_link_gather_ns(const struct tfmc_link *link, int64_t n, uint64_t count)
{
	return link && n > 1 ? link_ns(link, 1, (double)count * sizeof(float) * ((double)n - 1)) : 0;
}

double tfmc_link_message_ns(const struct tfmc_link *link, uint64_t count)
{
	return link ? link_ns(link, 1, (double)count * sizeof(float)) : 0;
}

/* In each phase every rank that has the bytes sends them on. */
double tfmc_link_broadcast_ns(const struct tfmc_link *link, int64_t n, uint64_t bytes)
{
	double phases = 0;
	for (int64_t reached = 1; reached < n; reached *= 2)
		phases++;
	return link ? link_ns(link, phases, phases * (double)bytes) : 0;
}

static void delay(double ns)
{
	int64_t start = spin_clock();
	spin_until(ns < (double)(INT64_MAX - start) ? start + (int64_t)ns : INT64_MAX);
}

/* Worker 0 waits for all: out counts as complete when all workers have returned, which the barrier of the object
 * behind an exchange makes sure. */
static void delayed_sum(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                        int64_t worker, int64_t workers)
{
	const struct tfmc_delayed_ranks *d = user;
	d->base->sum(d->base->user, x, out, count, group, tag, worker, workers);
	if (worker == 0)
		delay(tfmc_link_sum_ns(&d->link, group, count));
}

static void delayed_gather(void *user, const float *x, float *out, uint64_t rows, uint64_t width,
                           int64_t group, uint64_t tag, int64_t worker, int64_t workers)
{
	const struct tfmc_delayed_ranks *d = user;
	d->base->gather(d->base->user, x, out, rows, width, group, tag, worker, workers);
	if (worker == 0)
		delay(tfmc_link_gather_ns(&d->link, group, rows * width));
}

/* The receiver waits for the link; the sender goes on. */
static void delayed_send(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                         int64_t worker, int64_t workers)
{
	const struct tfmc_delayed_ranks *d = user;
	d->base->send(d->base->user, x, out, count, group, tag, worker, workers);
}

static void delayed_receive(void *user, const float *x, float *out, uint64_t count, int64_t group,
                            uint64_t tag, int64_t worker, int64_t workers)
{
	const struct tfmc_delayed_ranks *d = user;
	d->base->receive(d->base->user, x, out, count, group, tag, worker, workers);
	if (worker == 0 && d->base->rank / group != 1)
		delay(tfmc_link_message_ns(&d->link, count));
}

static int32_t delayed_status(void *user)
{
	const struct tfmc_delayed_ranks *d = user;
	return d->base->status(d->base->user);
}

/* Rank 0 has sent and goes on; the others wait for as long as the message would take. */
static int32_t delayed_broadcast(void *user, void *data, uint64_t bytes)
{
	const struct tfmc_delayed_ranks *d = user;
	int32_t status = d->base->broadcast(d->base->user, data, bytes);
	if (d->base->rank > 0)
		delay(tfmc_link_broadcast_ns(&d->link, d->base->n, bytes));
	return status;
}

/* A table with the functions of `base`, which add the time of a link. Its user is *out itself, which must not be
 * moved. */
int tfmc_delayed_ranks_init(struct tfmc_delayed_ranks *out, const struct tfmc_ranks *base,
                            const struct tfmc_link *link)
{
	if (!out || !base || !link || !base->sum || !base->gather || !base->send || !base->receive ||
	    !base->status || !base->broadcast)
		return TFMC_RT_E_NULL;
	if (link->latency_ns < 0 || (double)link->latency_ns > NS_PER_SECOND || link->bytes_per_second == 0)
		return TFMC_RT_E_DIM;
	*out = (struct tfmc_delayed_ranks){.ranks = *base, .base = base, .link = *link};
	out->ranks.user = out;
	out->ranks.sum = delayed_sum;
	out->ranks.gather = delayed_gather;
	out->ranks.send = delayed_send;
	out->ranks.receive = delayed_receive;
	out->ranks.status = delayed_status;
	out->ranks.broadcast = delayed_broadcast;
	return TFMC_RT_OK;
}
