/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --shards: the ranks of a model as threads of this process. Rank 0 is the session of the command (the leader); every
 * other rank has a thread that opens a session with its own weights and follows the leader until that closes.
 * A table (struct tfmc_ranks) has the functions by which the session of one rank exchanges values with the others.
 */
#include "frontend/driver/compile/ranks.h"

#include <pthread.h>

#include "ir/support/memory.h"

/* ---- threads ---- */

struct member {
	pthread_t thread; /* of rank 0: none */
	struct rank_threads *group;
	struct tfmc_delayed_ranks delayed; /* the table of the options where there is a link */
	struct tfmc_session_options options;
};

struct rank_threads {
	const struct tfmc_model *model;
	struct tfmc_local_ranks *ranks; /* NULL: `alone` */
	struct tfmc_ranks alone;
	int64_t n_started;
	struct member *members; /* [ranks] */
};

/* The thread of a rank: opens its session and serves rank 0 until that closes. A failure wakes all ranks. */
static void *run_follower(void *arg)
{
	struct member *f = arg;
	struct tfmc_session *s = NULL;
	if (tfmc_session_open(f->group->model, &f->options, &s) != TFMC_RT_OK ||
	    tfmc_session_follow(s) != TFMC_RT_OK)
		tfmc_local_ranks_fail(f->group->ranks);
	tfmc_session_close(s);
	return NULL;
}

void rank_threads_end(struct rank_threads *g)
{
	if (!g)
		return;
	tfmc_local_ranks_fail(g->ranks); /* ends those that wait for a rank 0 which could not open */
	for (int64_t i = 1; i <= g->n_started; i++)
		pthread_join(g->members[i].thread, NULL);
	tfmc_local_ranks_destroy(g->ranks);
	memory_free(g->members);
	memory_free(g);
}

/* Allocates the group. Refused memory ends the command (ir/support/memory.h). */
static struct rank_threads *begin(const struct tfmc_model *model, int64_t n_members)
{
	struct rank_threads *g = memory_zeroed(1, sizeof(*g));
	g->model = model;
	g->members = memory_zeroed((size_t)n_members, sizeof(*g->members));
	return g;
}

/* Sets the table that a rank's session uses: `base`, delayed by the link if there is one. */
static int set_table(struct member *m, const struct tfmc_ranks *base, const struct tfmc_link *link)
{
	m->options.ranks = link ? &m->delayed.ranks : base;
	return link ? tfmc_delayed_ranks_init(&m->delayed, base, link) : (int)TFMC_RT_OK;
}

/* Starts the thread of a rank. TFMC_RT_E_THREAD: all ranks are woken. */
static int start_follower(struct member *f)
{
	f->options.message = NULL; /* rank 0 names the rank that fails */
	if (pthread_create(&f->thread, NULL, run_follower, f)) {
		tfmc_local_ranks_fail(f->group->ranks);
		return TFMC_RT_E_THREAD;
	}
	f->group->n_started++;
	return TFMC_RT_OK;
}

int rank_threads_begin(const struct tfmc_model *model, const struct tfmc_session_options *options,
                       const struct packed *parts, const struct tfmc_link *link, struct rank_threads **out)
{
	int64_t n = model->record->ranks;
	*out = begin(model, n);
	int status = tfmc_local_ranks_create(n, &(*out)->ranks);
	for (int64_t i = 0; i < n && status == TFMC_RT_OK; i++) {
		struct member *m = &(*out)->members[i];
		*m = (struct member){.group = *out, .options = *options};
		m->options.weights = &parts[i].map;
		status = set_table(m, tfmc_local_rank((*out)->ranks, i), link);
		if (i > 0 && status == TFMC_RT_OK)
			status = start_follower(m);
	}
	if (status != TFMC_RT_OK) /* ends those that wait for rank 0 */
		tfmc_local_ranks_fail((*out)->ranks);
	return status;
}

int rank_threads_begin_alone(const struct tfmc_model *model, const struct tfmc_link *link,
                             struct rank_threads **out)
{
	*out = begin(model, 1);
	int status = tfmc_mirror_ranks_init(&(*out)->alone, model->record->ranks);
	return status == TFMC_RT_OK ? set_table((*out)->members, &(*out)->alone, link) : status;
}

const struct tfmc_ranks *rank_threads_leader(const struct rank_threads *g)
{
	return g->members->options.ranks;
}

/* ---- times ---- */

#define DEFAULT_LATENCY   5.0  /* microseconds */
#define DEFAULT_LINK_RATE 10.0 /* gigabytes a second */

struct tfmc_link driver_link(const struct driver *d)
{
	return (struct tfmc_link){
	        .latency_ns = (int64_t)(option_real(d->options.latency, DEFAULT_LATENCY) * 1e3),
	        .bytes_per_second = (uint64_t)(option_real(d->options.link_rate, DEFAULT_LINK_RATE) * 1e9)};
}

/* sum, send or receive of a table. */
typedef void exchange_fn(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                         int64_t worker, int64_t workers);

/* Runs an exchange. Only worker 0 adds its time: the others run at the same time. */
static void run_timed(struct timed_ranks *t, exchange_fn *run, const float *x, float *out, uint64_t count,
                      int64_t group, uint64_t tag, int64_t worker, int64_t workers)
{
	double start = driver_clock(NULL);
	run(t->base->user, x, out, count, group, tag, worker, workers);
	if (worker == 0)
		t->seconds += driver_clock(NULL) - start;
}

static void timed_sum(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                      int64_t worker, int64_t workers)
{
	struct timed_ranks *t = user;
	run_timed(t, t->base->sum, x, out, count, group, tag, worker, workers);
}

static void timed_send(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                       int64_t worker, int64_t workers)
{
	struct timed_ranks *t = user;
	run_timed(t, t->base->send, x, out, count, group, tag, worker, workers);
}

static void timed_receive(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
                          int64_t worker, int64_t workers)
{
	struct timed_ranks *t = user;
	run_timed(t, t->base->receive, x, out, count, group, tag, worker, workers);
}

/* Like run_timed(), for the other arguments of gather. */
static void timed_gather(void *user, const float *x, float *out, uint64_t rows, uint64_t width, int64_t group,
                         uint64_t tag, int64_t worker, int64_t workers)
{
	struct timed_ranks *t = user;
	double start = driver_clock(NULL);
	t->base->gather(t->base->user, x, out, rows, width, group, tag, worker, workers);
	if (worker == 0)
		t->seconds += driver_clock(NULL) - start;
}

static int32_t timed_status(void *user)
{
	const struct timed_ranks *t = user;
	return t->base->status(t->base->user);
}

static int32_t timed_broadcast(void *user, void *data, uint64_t bytes)
{
	const struct timed_ranks *t = user;
	return t->base->broadcast(t->base->user, data, bytes);
}

void timed_ranks_init(struct timed_ranks *out, const struct tfmc_ranks *base)
{
	*out = (struct timed_ranks){.ranks = *base, .base = base};
	out->ranks.user = out;
	out->ranks.sum = timed_sum;
	out->ranks.gather = timed_gather;
	out->ranks.send = timed_send;
	out->ranks.receive = timed_receive;
	out->ranks.status = timed_status;
	out->ranks.broadcast = timed_broadcast;
}
