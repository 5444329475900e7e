/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory of the ranks of one host. An exchange goes by chunks; the chunks of all calls are numbered
 * (epochs). Each worker copies its share of a chunk to the stage of its rank; the last worker of the rank publishes
 * the epoch; when all ranks have, each worker adds its share of all stages. A stage has two buffers, for even and
 * odd epochs: a rank that publishes an epoch has read the one before, so one phase is enough. Exchanges of a stage,
 * those of all ranks, and messages between stages have stages and epochs of their own (channels).
 *
 * The memory is an anonymous file (memfd) of rank 0, opened through /proc: the system frees it when the last
 * process ends. Processes are observed by their pidfds, so that the end of a rank is noticed while others wait.
 *
 * A lane is the memory of one rank: its channels and stages, which the others read. A party is the ranks that take part
 * in one epoch of a channel. `staged` counts up and may wrap around: epochs are compared by their difference.
 */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/mpi/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE         128      /* bytes: a pair of cache lines (adjacent-line prefetch) */
#define PAGE         4096     /* bytes */
#define STAGE_FLOATS 65536    /* 256 KiB */
#define SLEEP_MAX_NS 32000000 /* bounds how late a dead rank is noticed */

/* CHANNEL_READ has the epochs of received messages, and no stage. */
enum channel_kind {
	CHANNEL_ALL,
	CHANNEL_STAGE,
	CHANNEL_MESSAGE,
	N_STAGES,
	CHANNEL_READ = N_STAGES,
	N_CHANNELS
};

/* Epochs of one kind that a rank has published. */
struct channel {
	_Alignas(LINE) struct call calls[2];     /* of an even and an odd epoch; written before staged */
	_Atomic uint32_t staged;                 /* last epoch that the rank published; a futex */
	_Atomic uint32_t asleep;                 /* waiters in the futex */
	_Alignas(LINE) _Atomic uint32_t arrived; /* workers of this rank whose share of the epoch is staged */
};

/* The memory of one rank. */
struct lane {
	struct channel channels[N_CHANNELS];
	_Alignas(LINE) _Atomic uint32_t failed; /* 1 + the rank whose failure this one observed; 0: none */
	uint64_t nonce;                         /* of rank 0 */
	_Alignas(PAGE) float stage[N_STAGES][2][STAGE_FLOATS];
};
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "processes share atomics of 32 bits");

struct window {
	struct lane *lanes; /* [n] */
	int64_t rank, n, limit_ns;
	bool spins;
	struct fault *fault;
	int pidfds[]; /* [n] of the other ranks */
};

/* ---- opening ---- */

/* Rank 0 creates the memory of all lanes, zeroed, with a nonce by which map_lanes recognises it; fd -1: it could
 * not. The others have a process id only. */
struct window_address window_create(int64_t rank, int64_t n)
{
	const off_t at = offsetof(struct lane, nonce);
	struct window_address address = {.pid = getpid(), .fd = -1};
	int fd = rank == 0 ? memfd_create("tfmc-ranks", MFD_CLOEXEC) : -1;
	if (fd >= 0 && getrandom(&address.nonce, sizeof(address.nonce), 0) == sizeof(address.nonce) &&
	    !ftruncate(fd, (off_t)sizeof(struct lane) * n) &&
	    pwrite(fd, &address.nonce, sizeof(address.nonce), at) == sizeof(address.nonce))
		address.fd = fd;
	else if (fd >= 0)
		close(fd);
	return address;
}

/* Maps the memory of rank 0 by its descriptor in /proc. A process of another namespace may have its number: the
 * nonce shows that. False: not there, or another file; window_close() unmaps. */
static bool map_lanes(struct window *w, const struct window_address *first)
{
	char path[64];
	off_t bytes = (off_t)sizeof(struct lane) * w->n;
	snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%" PRId64, first->pid, first->fd);
	int fd = first->fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	void *lanes = MAP_FAILED;
	if (lseek(fd, 0, SEEK_END) == bytes)
		lanes = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (lanes == MAP_FAILED)
		return false;
	w->lanes = lanes;
	return w->lanes[0].nonce == first->nonce;
}

/* Maps the lanes, and opens a pidfd of each other process, by which its end is noticed. NULL after any failure: the
 * caller uses messages then. */
struct window *window_open(const struct window_address *addresses, int64_t rank, int64_t n, int64_t limit_ns,
                           bool spins, struct fault *fault)
{
	struct window *w = calloc(1, sizeof(*w) + (size_t)n * sizeof(w->pidfds[0]));
	if (!w)
		return NULL;
	*w = (struct window){.rank = rank, .n = n, .limit_ns = limit_ns, .spins = spins, .fault = fault};
	memset(w->pidfds, -1, (size_t)n * sizeof(w->pidfds[0]));
	bool ok = map_lanes(w, &addresses[0]);
	for (int64_t i = 0; ok && i < n; i++)
		if (i != rank)
			ok = (w->pidfds[i] = (int)syscall(SYS_pidfd_open, addresses[i].pid, 0)) >= 0;
	if (ok) { /* the first writer decides on which memory node a page is */
		memset(w->lanes[rank].stage, 0, sizeof(w->lanes->stage));
		return w;
	}
	window_close(w);
	return NULL;
}

/* Also of a window that was opened in part: pidfds that were not opened are negative, lanes NULL. */
void window_close(struct window *w)
{
	if (!w)
		return;
	for (int64_t i = 0; i < w->n; i++)
		if (w->pidfds[i] >= 0)
			close(w->pidfds[i]);
	if (w->lanes)
		munmap(w->lanes, sizeof(struct lane) * (size_t)w->n);
	free(w);
}

/* ---- waits ---- */

static bool has_staged(struct channel *channel, uint32_t epoch)
{
	return (int32_t)(atomic_load(&channel->staged) - epoch) >= 0;
}

/* Announces an epoch, then wakes sleepers. staged and asleep are sequentially consistent: either the publisher reads
 * asleep, or the sleeper reads the new epoch and does not sleep. `arrived` is reset before, for the workers of the
 * next epoch. */
static void publish(struct channel *channel, uint32_t epoch, const struct call *call)
{
	atomic_store(&channel->arrived, 0);
	channel->calls[epoch & 1] = *call;
	atomic_store(&channel->staged, epoch);
	if (atomic_load(&channel->asleep))
		syscall(SYS_futex, &channel->staged, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps until the channel is published, at most as long as it has waited so far (a dead rank is noticed in time) and
 * SLEEP_MAX_NS. */
static void sleep_on(struct channel *channel, uint32_t epoch, int64_t waited)
{
	struct timespec most = {.tv_nsec = waited < SLEEP_MAX_NS ? waited : SLEEP_MAX_NS};
	atomic_fetch_add(&channel->asleep, 1);
	uint32_t staged = atomic_load(&channel->staged);
	if ((int32_t)(staged - epoch) < 0)
		syscall(SYS_futex, &channel->staged, FUTEX_WAIT, staged, &most, NULL, 0);
	atomic_fetch_sub(&channel->asleep, 1);
}

/* Publishes the failure that this rank observed. */
static bool publish_failure(struct window *w)
{
	atomic_store(&w->lanes[w->rank].failed, (uint32_t)w->fault->rank + 1);
	return false;
}

/* The ranks [first, first + n) that are awaited in an epoch of a channel. */
struct party {
	enum channel_kind kind;
	int64_t first, n;
	uint32_t epoch;
};

static bool is_awaited(const struct party *p, int64_t rank)
{
	return rank >= p->first && rank < p->first + p->n;
}

/* False: a rank has failed, or has ended before it published an epoch that this one awaits. Where a failed rank has
 * published the epoch with another call, the difference is reported (same_call): it is the likely reason. */
static bool all_alive(struct window *w, const struct party *p, const struct call *call)
{
	for (int64_t i = 0; i < w->n && !fault_is_set(w->fault); i++) {
		struct channel *channel = &w->lanes[i].channels[p->kind];
		struct pollfd process = {.fd = w->pidfds[i], .events = POLLIN};
		uint32_t failed = atomic_load(&w->lanes[i].failed);
		if (i == w->rank)
			continue;
		bool staged = is_awaited(p, i) && has_staged(channel, p->epoch);
		if (failed && (!staged || p->kind == CHANNEL_READ ||
		               same_call(w->fault, call, i, &channel->calls[p->epoch & 1])))
			fault_report(w->fault, i, failed - 1);
		else if (poll(&process, 1, 0) > 0 && !staged)
			fault_set(w->fault, i, "rank %" PRId64 " is gone: its process has ended", i);
	}
	return !fault_is_set(w->fault) || publish_failure(w);
}

/* Waits until rank r has published an epoch; false: a rank has failed or ended, or the limit is over. Polls first,
 * then sleeps; whether the others live, which costs system calls, is asked after each sleep only. */
static bool await_lane(struct window *w, int64_t r, const struct party *p, const struct call *call,
                       int64_t limit_ns)
{
	struct wait wait = {.spins = w->spins};
	struct channel *channel = &w->lanes[r].channels[p->kind];
	while (!has_staged(channel, p->epoch)) {
		int64_t waited = wait_poll(&wait);
		if (waited < SLEEP_AFTER_NS)
			continue;
		sleep_on(channel, p->epoch, waited);
		if (!has_staged(channel, p->epoch) && !all_alive(w, p, call))
			return false;
		if (waited > limit_ns) {
			fault_set_late(w->fault, r, waited);
			return publish_failure(w);
		}
	}
	return true;
}

/* ---- calls ---- */

/* The ranks of a call, at the last epoch so far: none completes before each worker has read it. */
static struct party party_of(struct window *w, const struct call *call)
{
	struct party p = {.kind = call->group == w->n ? CHANNEL_ALL : CHANNEL_STAGE,
	                  .first = w->rank - w->rank % call->group,
	                  .n = call->group};
	p.epoch = atomic_load(&w->lanes[w->rank].channels[p.kind].staged);
	return p;
}

/*
 * By each worker when its share of the epoch is staged; true: the stages of all ranks are complete.
 * first_limit_ns: for rank 0, which is awaited first.
 */
static bool exchange(struct window *w, const struct party *p, const struct call *call, int64_t workers,
                     int64_t first_limit_ns)
{
	struct channel *mine = &w->lanes[w->rank].channels[p->kind];
	if (atomic_fetch_add(&mine->arrived, 1) + 1 == (uint32_t)workers)
		publish(mine, p->epoch, call);
	for (int64_t r = p->first; r < p->first + p->n; r++) {
		if (!await_lane(w, r, p, call, r == 0 ? first_limit_ns : w->limit_ns))
			return false;
		if (!same_call(w->fault, call, r, &w->lanes[r].channels[p->kind].calls[p->epoch & 1]))
			return publish_failure(w);
	}
	return true;
}

/* By each worker: copies its share of a chunk to this rank's stage, waits for the other ranks, and combines its share
 * of all stages into out. Even and odd epochs alternate the buffer. 0 elements still take one epoch: calls are
 * compared. */
void window_exchange(struct window *w, const float *x, float *out, const struct call *call, int64_t worker,
                     int64_t workers)
{
	const size_t stride = sizeof(struct lane) / sizeof(*x);
	struct party p = party_of(w, call);
	uint64_t at = 0;
	do {
		uint64_t size = call->count - at < STAGE_FLOATS ? call->count - at : STAGE_FLOATS;
		struct share share = share_of(size, worker, workers);
		p.epoch++;
		if (share.count > 0)
			memcpy(w->lanes[w->rank].stage[p.kind][p.epoch & 1] + share.begin,
			       x + at + share.begin, share.count * sizeof(*x));
		if (!exchange(w, &p, call, workers, w->limit_ns))
			return;
		combine(call, w->lanes[p.first].stage[p.kind][p.epoch & 1], stride, p.n, at, share, out);
		at += size;
	} while (at < call->count);
}

/* Rank 0 writes the chunk to its stage and publishes; the others publish, too, so that rank 0 knows that the buffer
 * before was read. They wait for the first chunk without a limit: the leader may be idle. */
void window_broadcast(struct window *w, void *data, const struct call *call)
{
	const uint64_t most = sizeof(w->lanes->stage[0][0]);
	struct party p = party_of(w, call);
	uint64_t at = 0;
	do {
		uint64_t bytes = call->count - at < most ? call->count - at : most;
		float *stage = w->lanes[0].stage[CHANNEL_ALL][++p.epoch & 1];
		if (w->rank == 0 && bytes > 0)
			memcpy(stage, (const char *)data + at, bytes);
		if (!exchange(w, &p, call, 1, w->rank > 0 && at == 0 ? NO_LIMIT : w->limit_ns))
			return;
		if (w->rank > 0 && bytes > 0)
			memcpy((char *)data + at, stage, bytes);
		at += bytes;
	} while (at < call->count);
}

/* ---- messages ---- */

/*
 * A receiver waits for the work of the stages before it. All stages begin to wait at once, so that the limit of the
 * one behind a rank that hangs is over first.
 */
static int64_t receive_limit(const struct window *w, const struct call *call)
{
	const int64_t stages = w->n / call->group;
	return w->limit_ns * ((w->rank / call->group + stages - 1) % stages);
}

/* At most two chunks ahead of the receiver: a chunk overwrites the buffer of the epoch two before, so it waits until
 * the receiver has published (CHANNEL_READ) that it has read that one. */
void window_send(struct window *w, int64_t to, const float *x, const struct call *call)
{
	struct channel *mine = &w->lanes[w->rank].channels[CHANNEL_MESSAGE];
	uint32_t epoch = atomic_load(&mine->staged);
	uint64_t at = 0;
	do {
		uint64_t size = call->count - at < STAGE_FLOATS ? call->count - at : STAGE_FLOATS;
		const struct party p = {CHANNEL_READ, to, 1, ++epoch - 2};
		if (!await_lane(w, to, &p, call, w->limit_ns * (w->n / call->group)))
			return;
		if (size > 0)
			memcpy(w->lanes[w->rank].stage[CHANNEL_MESSAGE][epoch & 1], x + at,
			       size * sizeof(*x));
		publish(mine, epoch, call);
		at += size;
	} while (at < call->count);
}

/* Reads each chunk from the sender's stage, then publishes in CHANNEL_READ that its buffer is free again. */
void window_receive(struct window *w, int64_t from, float *out, const struct call *call)
{
	struct channel *mine = &w->lanes[w->rank].channels[CHANNEL_READ];
	struct lane *lane = &w->lanes[from];
	uint32_t epoch = atomic_load(&mine->staged);
	uint64_t at = 0;
	do {
		uint64_t size = call->count - at < STAGE_FLOATS ? call->count - at : STAGE_FLOATS;
		const struct party p = {CHANNEL_MESSAGE, from, 1, ++epoch};
		if (!await_lane(w, from, &p, call, receive_limit(w, call)))
			return;
		if (!same_call(w->fault, call, from, &lane->channels[CHANNEL_MESSAGE].calls[epoch & 1])) {
			publish_failure(w);
			return;
		}
		if (size > 0)
			memcpy(out + at, lane->stage[CHANNEL_MESSAGE][epoch & 1], size * sizeof(*out));
		publish(mine, epoch, call);
		at += size;
	} while (at < call->count);
}
