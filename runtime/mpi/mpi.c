/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks over MPI: opening, closing, exchanges by messages. Messages are non-blocking and tested with a limit,
 * since a blocking call never returns when another process is killed. Each begins with the call, which the
 * receiver compares with its own. Worker 0 alone calls MPI (MPI_THREAD_FUNNELED).
 *
 * A rank has one slot (a message with its data) from and to each other rank; slot in[rank] is its own term, so that
 * terms of all ranks of a stage are consecutive for the sum. Of n ranks, requests [0, n) are receives, [n, 2 n) sends,
 * [2 n, 3 n) reports of a failure, each by rank. Longer data go in chunks of a slot. Where all ranks share
 * a host, the exchanges go through memory instead (window.c).
 */
#define _POSIX_C_SOURCE 200809L
#include "runtime/abi.h"
#include "runtime/mpi/internal.h"
#include "runtime/mpi/tfmc_mpi.h"

#include <inttypes.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS     30000
#define LIMIT_MS_MAX 86400000
#define WORKERS_MAX  65536
#define SLOT_FLOATS  65536     /* 256 KiB */
#define WHOLE_FLOATS 16384     /* of all ranks: smaller sums take one phase */
#define SLEEP_PART   16        /* a waiter sleeps this part of the time that it has waited */
#define SLEEP_MAX_NS 1000000   /* at most */
#define GRACE_NS     100000000 /* after a failure, for messages that others still wait for */

/* A message. */
struct slot {
	_Alignas(64) struct call call;
	_Alignas(64) float data[SLOT_FLOATS];
};

struct tfmc_mpi {
	struct tfmc_ranks ranks;
	struct fault fault;
	int64_t limit_ns;
	bool initialised, spins;
	uint64_t n_broadcasts; /* that this rank has taken part in */
	MPI_Comm comm;
	struct window *window; /* NULL: by messages */
	struct slot *in, *out; /* [n] from and to each rank; in[rank] is this rank's own term */
	MPI_Request *requests; /* [3 n] receives, sends, reports of a failure, each by rank */
	struct call report;
};

/* ---- messages ---- */

/* Sets the fault for `rank` unless the code of an MPI function is a success. */
static void check(struct tfmc_mpi *m, int64_t rank, int code)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;
	if (code == MPI_SUCCESS)
		return;
	MPI_Error_string(code, text, &length);
	fault_set(&m->fault, rank, "rank %" PRId64 " cannot be reached: %s", rank, text);
}

/* bytes: of the data. */
static void send(struct tfmc_mpi *m, int64_t to, const struct slot *slot, uint64_t bytes)
{
	int size = (int)(offsetof(struct slot, data) + bytes);
	MPI_Request *request = &m->requests[m->ranks.n + to];
	check(m, to, MPI_Isend(slot, size, MPI_BYTE, (int)to, 0, m->comm, request));
}

/* Any message fits: not every MPI returns from one that is too long. */
static void receive(struct tfmc_mpi *m, int64_t from)
{
	struct slot *slot = &m->in[from];
	check(m, from, MPI_Irecv(slot, sizeof(*slot), MPI_BYTE, (int)from, 0, m->comm, &m->requests[from]));
}

/* Tests request i until it is done or the fault is set. Spins first, then sleeps for a part of the time that it has
 * waited, so that a long wait costs no processor and a short one little latency. Request i belongs to rank i modulo
 * n. */
static void await_request(struct tfmc_mpi *m, int64_t i, struct wait *wait, int64_t limit_ns)
{
	int64_t rank = i % m->ranks.n;
	for (int is_done = 0;;) {
		check(m, rank, MPI_Test(&m->requests[i], &is_done, MPI_STATUS_IGNORE));
		if (is_done || fault_is_set(&m->fault))
			return;
		int64_t waited = wait_poll(wait), part = waited / SLEEP_PART;
		if (waited > limit_ns)
			fault_set_late(&m->fault, rank, waited);
		struct timespec most = {.tv_nsec = part < SLEEP_MAX_NS ? part : SLEEP_MAX_NS};
		if (waited > SLEEP_AFTER_NS)
			nanosleep(&most, NULL);
	}
}

/* Sends CALL_FAILED to the others, which wait for a message of this rank. Messages progress only while MPI is called:
 * those that others still wait for are tested for GRACE_NS. */
static void report_failure(struct tfmc_mpi *m)
{
	int64_t n = m->ranks.n;
	struct wait wait = {.spins = false};
	m->report = (struct call){.kind = CALL_FAILED, .tag = (uint64_t)m->fault.rank};
	for (int64_t r = 0; r < n; r++)
		if (r != m->ranks.rank)
			MPI_Isend(&m->report, sizeof(m->report), MPI_BYTE, (int)r, 0, m->comm,
			          &m->requests[2 * n + r]);
	for (int64_t i = n; i < 3 * n; i++)
		for (int is_done = 0; !is_done && wait_poll(&wait) < GRACE_NS;)
			if (MPI_Test(&m->requests[i], &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
				break;
}

/* Completes the messages that were started, receives first (requests 0 .. n - 1), and compares the call of each
 * received one with this rank's. After a failure they stay pending, and so do their slots. False: a failure. */
static bool complete(struct tfmc_mpi *m, const struct call *call, int64_t limit_ns)
{
	int64_t n = m->ranks.n;
	struct wait wait = {.spins = m->spins};
	for (int64_t i = 0; i < 2 * n && !fault_is_set(&m->fault); i++) {
		bool receives = i < n && m->requests[i] != MPI_REQUEST_NULL;
		await_request(m, i, &wait, limit_ns);
		if (receives && !fault_is_set(&m->fault))
			same_call(&m->fault, call, i, &m->in[i].call);
	}
	if (fault_is_set(&m->fault))
		report_failure(m);
	return !fault_is_set(&m->fault);
}

/* ---- calls by messages ---- */

/* Second phase: sends the sum of this rank's panel (its share of `size` elements) to the others, and receives
 * theirs. */
static bool gather_panels(struct tfmc_mpi *m, const struct call *call, float *out, uint64_t size)
{
	int64_t n = call->group, rank = m->ranks.rank, first = rank - rank % n;
	struct share own = share_of(size, rank - first, n);
	m->out[rank].call = *call;
	memcpy(m->out[rank].data, out + own.begin, own.count * sizeof(*out));
	for (int64_t r = first; r < first + n; r++)
		if (r != rank) {
			receive(m, r);
			send(m, r, &m->out[rank], own.count * sizeof(*out));
		}
	if (!complete(m, call, m->limit_ns))
		return false;
	for (int64_t r = first; r < first + n; r++) {
		struct share panel = share_of(size, r - first, n);
		if (r != rank)
			memcpy(out + panel.begin, m->in[r].data, panel.count * sizeof(*out));
	}
	return true;
}

/* Exchanges the chunk of `size` elements of x that begins at element `at`; false: a failure. whole: each rank receives
 * and combines all elements, in one phase; else each adds a panel, which costs fewer bytes, and gather_panels
 * distributes the sums. */
static bool exchange_chunk(struct tfmc_mpi *m, const struct call *call, const float *x, float *out,
                           uint64_t at, uint64_t size, bool whole)
{
	int64_t n = call->group, rank = m->ranks.rank, first = rank - rank % n, panels = whole ? 1 : n;
	struct share own = share_of(size, whole ? 0 : rank - first, panels);
	for (int64_t r = first; r < first + n; r++) {
		struct share panel = share_of(size, whole ? 0 : r - first, panels);
		struct slot *slot = r == rank ? &m->in[r] : &m->out[r];
		slot->call = *call;
		if (panel.count > 0)
			memcpy(slot->data, x + at + panel.begin, panel.count * sizeof(*x));
		if (r != rank) {
			receive(m, r);
			send(m, r, slot, panel.count * sizeof(*x));
		}
	}
	if (!complete(m, call, m->limit_ns))
		return false;
	const size_t stride = sizeof(struct slot) / sizeof(*x);
	if (whole) {
		combine(call, m->in[first].data, stride, n, at, own, out);
		return true;
	}
	add_tree(m->in[first].data, stride, n, out + at + own.begin, own.count);
	return gather_panels(m, call, out + at, size);
}

/* A sum or gather of the ranks of a stage, chunk by chunk; small ones in one phase, and those of two ranks, whose
 * second phase would send as many bytes. The loop runs once for 0 elements: the ranks still compare their calls. */
static void exchange_by_messages(struct tfmc_mpi *m, const float *x, float *out, const struct call *call)
{
	uint64_t n = (uint64_t)call->group, at = 0, size;
	const bool whole = call->kind == CALL_GATHER || n == 2 || call->count <= WHOLE_FLOATS / n;
	const uint64_t most = whole ? SLOT_FLOATS : SLOT_FLOATS * n;
	do {
		size = call->count - at < most ? call->count - at : most;
		if (!exchange_chunk(m, call, x, out, at, size, whole))
			return;
		at += size;
	} while (at < call->count);
}

/* Sends x to rank `to`, or receives out from rank `from` (-1: not), in chunks of a slot. A receiver waits for the work
 * of the stages before it, a sender for the receiver, which may wait for all: their limits are multiples of one
 * stage's. */
static void pass_by_messages(struct tfmc_mpi *m, int64_t to, int64_t from, const float *x, float *out,
                             const struct call *call)
{
	const int64_t stages = m->ranks.n / call->group;
	const int64_t before = (m->ranks.rank / call->group + stages - 1) % stages;
	const int64_t limit_ns = m->limit_ns * (from >= 0 ? before : stages);
	uint64_t at = 0, size;
	do {
		size = call->count - at < SLOT_FLOATS ? call->count - at : SLOT_FLOATS;
		if (to >= 0) {
			m->out[to].call = *call;
			if (size > 0)
				memcpy(m->out[to].data, x + at, size * sizeof(*x));
			send(m, to, &m->out[to], size * sizeof(*x));
		} else
			receive(m, from);
		if (!complete(m, call, limit_ns))
			return;
		if (from >= 0 && size > 0)
			memcpy(out + at, m->in[from].data, size * sizeof(*out));
		at += size;
	} while (at < call->count);
}

/* Data of rank 0 to all, chunk by chunk. Followers wait for the first chunk without a limit: the leader may be
 * idle. */
static void broadcast_by_messages(struct tfmc_mpi *m, char *data, const struct call *call)
{
	const uint64_t most = sizeof(m->in->data);
	const bool leads = m->ranks.rank == 0;
	uint64_t at = 0, bytes;
	do {
		bytes = call->count - at < most ? call->count - at : most;
		m->out[0].call = *call;
		if (leads && bytes > 0)
			memcpy(m->out[0].data, data + at, bytes);
		for (int64_t r = 1; leads && r < m->ranks.n; r++)
			send(m, r, &m->out[0], bytes);
		if (!leads)
			receive(m, 0);
		if (!complete(m, call, leads || at > 0 ? m->limit_ns : NO_LIMIT))
			return;
		if (!leads && bytes > 0)
			memcpy(data + at, m->in[0].data, bytes);
		at += bytes;
	} while (at < call->count);
}

/* ---- the table ---- */

/* By each worker: a sum or gather through the window, or by worker 0 with messages. A rank alone has its own
 * values. */
static void exchange(struct tfmc_mpi *m, const float *x, float *out, const struct call *call, int64_t worker,
                     int64_t workers)
{
	if (fault_is_set(&m->fault))
		return;
	if (call->group > 1 && m->window)
		window_exchange(m->window, x, out, call, worker, workers);
	else if (call->group > 1 && worker == 0)
		exchange_by_messages(m, x, out, call);
	else if (worker == 0 && call->count > 0)
		memcpy(out, x, call->count * sizeof(*x));
}

static void sum(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                int64_t worker, int64_t workers)
{
	const struct call call = {.kind = CALL_SUM, .tag = tag, .count = count, .group = group};
	exchange(user, x, out, &call, worker, workers);
}

static void gather(void *user, const float *x, float *out, uint64_t rows, uint64_t width, int64_t group,
                   uint64_t tag, int64_t worker, int64_t workers)
{
	const struct call call = {
	        .kind = CALL_GATHER, .tag = tag, .count = rows * width, .width = width, .group = group};
	exchange(user, x, out, &call, worker, workers);
}

/* Passes this stage's values to the same rank of the next stage, and copies them to out: the op returns its operand.
 * The last stage, that of rank 0, sends nothing. The tag is the broadcast that began the act, since each stage counts
 * its own ops. */
static void send_stage(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                       int64_t worker, int64_t workers)
{
	struct tfmc_mpi *m = user;
	const struct call call = {
	        .kind = CALL_MESSAGE, .tag = m->n_broadcasts, .count = count, .group = group};
	const int64_t to = (m->ranks.rank + group) % m->ranks.n;
	(void)tag;
	(void)workers;
	if (worker > 0 || fault_is_set(&m->fault))
		return;
	if (m->ranks.rank >= group && m->window)
		window_send(m->window, to, x, &call);
	else if (m->ranks.rank >= group)
		pass_by_messages(m, to, -1, x, NULL, &call);
	if (count > 0)
		memcpy(out, x, count * sizeof(*x));
}

/* Receives the values of the stage before. The first stage, that after rank 0's, receives nothing and returns x. */
static void receive_stage(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                          int64_t worker, int64_t workers)
{
	struct tfmc_mpi *m = user;
	const struct call call = {
	        .kind = CALL_MESSAGE, .tag = m->n_broadcasts, .count = count, .group = group};
	const int64_t from = (m->ranks.rank - group + m->ranks.n) % m->ranks.n;
	(void)tag;
	(void)workers;
	if (worker > 0 || fault_is_set(&m->fault))
		return;
	if (m->ranks.rank / group == 1) {
		if (count > 0)
			memcpy(out, x, count * sizeof(*x));
	} else if (m->window)
		window_receive(m->window, from, out, &call);
	else
		pass_by_messages(m, -1, from, NULL, out, &call);
}

static int32_t status(void *user)
{
	struct tfmc_mpi *m = user;
	return fault_is_set(&m->fault) ? TFMC_RT_E_RANK : TFMC_RT_OK;
}

/* All ranks count broadcasts: the number identifies the act to which messages between stages belong. */
static int32_t broadcast(void *user, void *data, uint64_t bytes)
{
	struct tfmc_mpi *m = user;
	const struct call call = {.kind = CALL_BROADCAST, .count = bytes, .group = m->ranks.n};
	m->n_broadcasts++;
	if (m->window && !fault_is_set(&m->fault))
		window_broadcast(m->window, data, &call);
	else if (m->ranks.n > 1 && !fault_is_set(&m->fault))
		broadcast_by_messages(m, data, &call);
	return status(m);
}

/* ---- opening ---- */

/* Initialises MPI unless the application has, and fills the table. Below MPI_THREAD_SERIALIZED only the main thread
 * may call MPI: this one, worker 0, has to be it; below MPI_THREAD_FUNNELED there may be no other workers. */
static int init(struct tfmc_mpi *m, int64_t workers)
{
	int was_initialised, is_finalized, level = MPI_THREAD_SINGLE, is_main = 1, rank, n;
	MPI_Initialized(&was_initialised);
	MPI_Finalized(&is_finalized);
	if (is_finalized || (!was_initialised && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level)))
		return TFMC_MPI_E_MPI;
	m->initialised = !was_initialised;
	if (m->initialised) /* errors of requests may go to this communicator */
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Query_thread(&level);
	MPI_Is_thread_main(&is_main);
	if (level < MPI_THREAD_SERIALIZED && (!is_main || (level < MPI_THREAD_FUNNELED && workers > 1)))
		return TFMC_MPI_E_THREAD;
	if (MPI_Comm_dup(MPI_COMM_WORLD, &m->comm) || MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN) ||
	    MPI_Comm_rank(m->comm, &rank) || MPI_Comm_size(m->comm, &n))
		return TFMC_MPI_E_MPI;
	m->ranks = (struct tfmc_ranks){sizeof(m->ranks), m,          rank,          n,      sum,
	                               gather,           send_stage, receive_stage, status, broadcast};
	m->fault.self = rank;
	return TFMC_MPI_OK;
}

/* Ranks on this host; 0 after an error. */
static int count_host(struct tfmc_mpi *m)
{
	MPI_Comm host;
	int n = 0;
	if (!MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host)) {
		MPI_Comm_size(host, &n);
		MPI_Comm_free(&host);
	}
	return n;
}

static bool all_agree(struct tfmc_mpi *m, bool yes)
{
	int mine = yes, all = 0;
	return MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, m->comm) == MPI_SUCCESS && all;
}

/* Tries to share memory among all ranks; they agree after each step that can fail, so that all have the window or
 * none. The descriptor is no longer needed once all have mapped the memory. */
static void open_window(struct tfmc_mpi *m)
{
	int64_t n = m->ranks.n, rank = m->ranks.rank;
	const int bytes = sizeof(struct window_address);
	struct window_address mine = window_create(rank, n), *all = calloc((size_t)n, sizeof(mine));
	if (all_agree(m, all) && !MPI_Allgather(&mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, m->comm))
		m->window = window_open(all, rank, n, m->limit_ns, m->spins, &m->fault);
	if (!all_agree(m, m->window)) {
		window_close(m->window);
		m->window = NULL;
	}
	if (mine.fd >= 0)
		close((int)mine.fd);
	free(all);
}

/* Allocates the slots and requests of messages; true on all ranks or on none. */
static bool open_slots(struct tfmc_mpi *m)
{
	size_t n = (size_t)m->ranks.n;
	void *slots = NULL;
	m->requests = malloc(3 * n * sizeof(*m->requests));
	for (size_t i = 0; m->requests && i < 3 * n; i++)
		m->requests[i] = MPI_REQUEST_NULL;
	if (!posix_memalign(&slots, _Alignof(struct slot), 2 * n * sizeof(struct slot)))
		m->in = slots;
	m->out = m->in ? m->in + n : NULL;
	return all_agree(m, m->in && m->requests);
}

/* Opens the transport: shared memory if all ranks are on one host, else messages. */
static int open_ranks(struct tfmc_mpi *m, int64_t workers, bool messages_only)
{
	int code = init(m, workers);
	if (code != TFMC_MPI_OK)
		return code;
	int64_t n = m->ranks.n, on_host = count_host(m);
	m->spins = have_processors(on_host * workers, workers);
	if (n > 1 && all_agree(m, on_host == n && !messages_only))
		open_window(m);
	return n == 1 || m->window || open_slots(m) ? TFMC_MPI_OK : TFMC_MPI_E_MEMORY;
}

/* Frees the slots, the communicator and, if this library has initialised it, MPI. */
static void free_ranks(struct tfmc_mpi *m)
{
	free(m->in);
	free(m->requests);
	if (m->comm != MPI_COMM_NULL)
		MPI_Comm_free(&m->comm);
	if (m->initialised)
		MPI_Finalize();
	pthread_mutex_destroy(&m->fault.mutex);
	free(m);
}

int tfmc_mpi_open(const struct tfmc_mpi_options *options, struct tfmc_mpi **out)
{
	static const struct tfmc_mpi_options defaults = {.struct_size = sizeof(defaults)};
	const struct tfmc_mpi_options *o = options ? options : &defaults;
	if (!out)
		return TFMC_MPI_E_NULL;
	*out = NULL;
	if (o->struct_size != sizeof(*o) || o->limit_ms < 0 || o->limit_ms > LIMIT_MS_MAX || o->workers < 0 ||
	    o->workers > WORKERS_MAX)
		return TFMC_MPI_E_OPTIONS;
	struct tfmc_mpi *m = calloc(1, sizeof(*m));
	if (!m)
		return TFMC_MPI_E_MEMORY;
	m->limit_ns = (o->limit_ms ? o->limit_ms : LIMIT_MS) * 1000000;
	m->comm = MPI_COMM_NULL;
	pthread_mutex_init(&m->fault.mutex, NULL);
	int code = open_ranks(m, o->workers ? o->workers : 1, o->messages_only != 0);
	if (code == TFMC_MPI_OK)
		*out = m;
	else
		free_ranks(m);
	return code;
}

const struct tfmc_ranks *tfmc_mpi_ranks(struct tfmc_mpi *mpi)
{
	return mpi ? &mpi->ranks : NULL;
}

const char *tfmc_mpi_error(const struct tfmc_mpi *mpi)
{
	return mpi && fault_is_set(&mpi->fault) ? mpi->fault.text : "";
}

/* Closing is a call of all ranks: one that is still in another call learns that this one ends. After a failure MPI may
 * still read and write the slots of pending messages: they are not freed. */
void tfmc_mpi_close(struct tfmc_mpi *mpi)
{
	if (!mpi)
		return;
	const struct call call = {.kind = CALL_CLOSE, .group = mpi->ranks.n};
	exchange(mpi, NULL, NULL, &call, 0, 1);
	window_close(mpi->window);
	mpi->window = NULL;
	if (!fault_is_set(&mpi->fault))
		free_ranks(mpi);
}
