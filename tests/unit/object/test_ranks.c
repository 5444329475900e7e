/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks inside one process: sums have the bits of a sequential tree whatever the number of ranks and of
 * workers, exchanges that differ between ranks fail, and after a failure no call waits.
 */
#define _POSIX_C_SOURCE 200809L
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/tfmc_rt.h"
#include "tests/support/random/rng.h"

Suite *suite_ranks(void);

enum { RANKS = 8, WORKERS = 3, CAP = 40000, LINE = 16, WIDTH = 8, LIMIT_S = 120 };

static const int64_t group_sizes[] = {1, 2, 3, 4, 5, 7, 8};
#define N_SIZES (sizeof(group_sizes) / sizeof(group_sizes[0]))
static const uint64_t counts[] = {1000, 0, 1, 15, 16, 17, 16384, 16385, CAP};
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))

static void sleep_us(int64_t us)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* ---- values ---- */

/* Magnitudes differ, so that sums depend on their order; sometimes not finite, or a negative zero. */
static void fill(float *x, uint64_t count, uint64_t exchange, int64_t rank)
{
	static const float special[] = {NAN, INFINITY, -INFINITY, -0.0f};
	struct rng rng = rng_seed(exchange * RANKS + (uint64_t)rank);
	for (uint64_t i = 0; i < count; i++) {
		uint32_t bits = rng_next(&rng);
		x[i] = ldexpf((float)(bits & 0xffff) - 32768, (int)(bits >> 16 & 15) - 8);
		if (i % 5 == 0 && bits >> 31)
			x[i] = special[bits >> 29 & 3];
	}
}

/* Level by level: neighbours first. */
static float tree(float *terms, int64_t n)
{
	for (; n > 1; n = (n + 1) / 2) {
		for (int64_t i = 0; i < n / 2; i++)
			terms[i] = terms[2 * i] + terms[2 * i + 1];
		if (n % 2)
			terms[n / 2] = terms[n - 1];
	}
	return terms[0];
}

static int same(float a, float b)
{
	return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof(a));
}

/* ---- sums by threads ---- */

/* A rank: workers of their own, a barrier between them as objects have it. */
struct side {
	const struct tfmc_ranks *ranks;
	int64_t workers; /* threads; an exchange uses 1 to all of them */
	uint64_t exchanges;
	pthread_barrier_t barrier;
	float x[CAP], out[RANKS * CAP], other[RANKS][CAP];
	uint64_t n_wrong, n_by_order; /* sums that are not the tree; that are not those from left to right */
};

struct worker {
	struct side *side;
	int64_t worker;
	pthread_t thread;
};

static void check_sum(struct side *s, uint64_t count, uint64_t exchange)
{
	float terms[RANKS];
	for (int64_t r = 0; r < s->ranks->n; r++)
		fill(s->other[r], count, exchange, r);
	for (uint64_t i = 0; i < count; i++) {
		float in_order = s->other[0][i];
		for (int64_t r = 0; r < s->ranks->n; r++) {
			terms[r] = s->other[r][i];
			in_order = r > 0 ? in_order + terms[r] : in_order;
		}
		float want = tree(terms, s->ranks->n);
		s->n_wrong += !same(want, s->out[i]);
		s->n_by_order += !same(want, in_order);
	}
}

/* Rows of WIDTH elements, or one row. */
static uint64_t width_of(uint64_t count)
{
	return count % WIDTH == 0 ? WIDTH : count;
}

static void check_gather(struct side *s, uint64_t count, uint64_t exchange)
{
	uint64_t width = width_of(count), n = (uint64_t)s->ranks->n;
	for (int64_t r = 0; r < s->ranks->n; r++)
		fill(s->other[r], count, exchange, r);
	for (uint64_t i = 0; i < count; i++)
		for (uint64_t r = 0; r < n; r++)
			s->n_wrong += !same(s->other[r][i], s->out[(i / width * n + r) * width + i % width]);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct side *s = w->side;
	for (uint64_t k = 0; k < s->exchanges; k++) {
		uint64_t count = counts[k % N_COUNTS];
		int64_t workers = 1 + (int64_t)k % s->workers;
		if (w->worker == 0)
			fill(s->x, count, k, s->ranks->rank);
		pthread_barrier_wait(&s->barrier);
		if (w->worker < workers)
			s->ranks->sum(s->ranks->user, s->x, s->out, count, s->ranks->n, k, w->worker,
			              workers);
		pthread_barrier_wait(&s->barrier);
		if (w->worker == 0)
			check_sum(s, count, k);
		pthread_barrier_wait(&s->barrier);
		if (w->worker < workers)
			s->ranks->gather(s->ranks->user, s->x, s->out, count / width_of(count + !count),
			                 width_of(count + !count), s->ranks->n, k, w->worker, workers);
		pthread_barrier_wait(&s->barrier);
		if (w->worker == 0)
			check_gather(s, count, k);
	}
	return NULL;
}

/* Every worker of every rank runs `body` in a thread. */
static void run_threads(struct side *sides, int64_t n, void *(*body)(void *))
{
	static struct worker workers[RANKS][WORKERS];
	for (int64_t r = 0; r < n; r++) {
		ck_assert(!pthread_barrier_init(&sides[r].barrier, NULL, (unsigned)sides[r].workers));
		for (int64_t i = 0; i < sides[r].workers; i++) {
			workers[r][i] = (struct worker){.side = &sides[r], .worker = i};
			ck_assert(!pthread_create(&workers[r][i].thread, NULL, body, &workers[r][i]));
		}
	}
	for (int64_t r = 0; r < n; r++) {
		for (int64_t i = 0; i < sides[r].workers; i++)
			pthread_join(workers[r][i].thread, NULL);
		pthread_barrier_destroy(&sides[r].barrier);
	}
}

static struct side sides[RANKS];

/* n ranks; rank r has a number of workers of its own, which `shift` changes. */
static struct tfmc_local_ranks *open_group(int64_t n, int64_t shift, uint64_t exchanges)
{
	struct tfmc_local_ranks *group;
	ck_assert_int_eq(tfmc_local_ranks_create(n, &group), TFMC_RT_OK);
	for (int64_t r = 0; r < n; r++) {
		sides[r].ranks = tfmc_local_rank(group, r);
		sides[r].workers = 1 + (r + shift) % WORKERS;
		sides[r].exchanges = exchanges;
		sides[r].n_wrong = sides[r].n_by_order = 0;
	}
	return group;
}

START_TEST(sums_are_the_tree)
{
	for (int64_t shift = 0; shift < WORKERS; shift++) {
		int64_t n = group_sizes[_i];
		struct tfmc_local_ranks *group = open_group(n, shift, N_COUNTS + 2);
		run_threads(sides, n, work);
		for (int64_t r = 0; r < n; r++) {
			ck_assert_int_eq(sides[r].ranks->rank, r);
			ck_assert_int_eq(sides[r].ranks->n, n);
			ck_assert_int_eq(sides[r].ranks->status(sides[r].ranks->user), 0);
			ck_assert_uint_eq(sides[r].n_wrong, 0);
			ck_assert((sides[r].n_by_order > 0) == (n > 3));
		}
		tfmc_local_ranks_destroy(group);
	}
}
END_TEST

/* x changes right after each return, without a barrier: one worker. */
static void *overwrite(void *arg)
{
	struct side *s = ((struct worker *)arg)->side;
	for (uint64_t k = 0; k < s->exchanges; k++) {
		for (int64_t i = 0; i < LINE; i++)
			s->x[i] = (float)(k + (uint64_t)s->ranks->rank);
		s->ranks->sum(s->ranks->user, s->x, s->out, LINE, s->ranks->n, 0, 0, 1);
		for (int64_t i = 0; i < LINE; i++)
			s->n_wrong += s->out[i] != (float)(2 * k + 1);
	}
	return NULL;
}

START_TEST(exchanges_follow_each_other)
{
	struct tfmc_local_ranks *group = open_group(2, 0, 20000);
	sides[1].workers = 1;
	run_threads(sides, 2, overwrite);
	ck_assert_uint_eq(sides[0].n_wrong + sides[1].n_wrong, 0);
	tfmc_local_ranks_destroy(group);
}
END_TEST

/* ---- stages ---- */

static int64_t stage_ranks; /* of a stage */

/* Values that the first stage of rank `rank` gives to exchange k, and each stage adds 1 to: small numbers, which are
 * exact. */
static float first_value(int64_t rank, uint64_t k, uint64_t i)
{
	return (float)((i * 7 + k * 3 + (uint64_t)(rank % stage_ranks) * 5) % 1000);
}

/* All that a stage does in a call, as worker w: receive, a sum and a gather of the stage, send. */
static void run_stage(struct side *s, uint64_t k, int64_t w, int64_t workers)
{
	const struct tfmc_ranks *r = s->ranks;
	const int64_t group = stage_ranks, stages = r->n / group;
	const float place = (float)((r->rank / group + stages - 1) % stages);
	uint64_t count = counts[k % N_COUNTS];
	for (uint64_t i = 0; w == 0 && i < count; i++)
		s->x[i] = place == 0 ? first_value(r->rank, k, i) : -1;
	pthread_barrier_wait(&s->barrier);
	r->receive(r->user, s->x, s->out, count, group, 4 * k, w, workers);
	pthread_barrier_wait(&s->barrier);
	for (uint64_t i = 0; w == 0 && i < count; i++) {
		s->n_wrong += s->out[i] != first_value(r->rank, k, i) + place;
		s->x[i] = s->out[i] + 1;
	}
	pthread_barrier_wait(&s->barrier);
	r->sum(r->user, s->x, s->out, count, group, 4 * k + 1, w, workers);
	pthread_barrier_wait(&s->barrier);
	for (uint64_t i = 0; w == 0 && i < count; i++) {
		float sum = 0;
		for (int64_t m = 0; m < group; m++)
			sum += first_value(m, k, i) + place + 1;
		s->n_wrong += s->out[i] != sum;
	}
	pthread_barrier_wait(&s->barrier);
	r->gather(r->user, s->x, s->out, 1, count + !count, group, 4 * k + 2, w, workers);
	pthread_barrier_wait(&s->barrier);
	for (uint64_t i = 0; w == 0 && i < count * (uint64_t)group; i++)
		s->n_wrong += s->out[i] != first_value((int64_t)(i / count), k, i % count) + place + 1;
	pthread_barrier_wait(&s->barrier);
	r->send(r->user, s->x, s->out, count, group, 4 * k + 3, w, workers);
	pthread_barrier_wait(&s->barrier);
	for (uint64_t i = 0; w == 0 && i < count; i++)
		s->n_wrong += s->out[i] != s->x[i];
}

/* Two calls of the stages, then the next act. */
static void *pass_on(void *arg)
{
	const struct worker *w = arg;
	struct side *s = w->side;
	for (uint64_t k = 0; k < s->exchanges; k++) {
		uint64_t act = s->ranks->rank == 0 ? k : 0;
		if (w->worker == 0 && k % 2 == 0)
			s->n_wrong += s->ranks->broadcast(s->ranks->user, &act, sizeof(act)) || act != k;
		run_stage(s, k, w->worker, s->workers);
	}
	return NULL;
}

START_TEST(stages_pass_values_on)
{
	static const int64_t shapes[][2] = {{2, 1}, {3, 1}, {4, 2}, {6, 3}};
	int64_t n = shapes[_i][0];
	stage_ranks = shapes[_i][1];
	struct tfmc_local_ranks *group = open_group(n, _i, N_COUNTS + 2);
	run_threads(sides, n, pass_on);
	for (int64_t r = 0; r < n; r++) {
		ck_assert_int_eq(sides[r].ranks->status(sides[r].ranks->user), 0);
		ck_assert_uint_eq(sides[r].n_wrong, 0);
	}
	tfmc_local_ranks_destroy(group);
}
END_TEST

static bool leaves_a_call; /* the last stage */

/* The first stage sends another number of values than the last one receives, or those of a call that this one
 * leaves. */
static void *pass_other(void *arg)
{
	const struct worker *w = arg;
	struct side *s = w->side;
	const struct tfmc_ranks *r = s->ranks;
	uint64_t act = 0;
	if (r->rank == 1)
		r->send(r->user, s->x, s->out, 100, 1, 0, w->worker, s->workers);
	if (leaves_a_call && w->worker == 0)
		s->n_wrong += r->broadcast(r->user, &act, sizeof(act)) != 0;
	if (r->rank == 0)
		r->receive(r->user, s->x, s->out, leaves_a_call ? 100 : 101, 1, 0, w->worker, s->workers);
	return NULL;
}

START_TEST(messages_of_other_calls_fail)
{
	leaves_a_call = _i;
	struct tfmc_local_ranks *group = open_group(2, 0, 0);
	run_threads(sides, 2, pass_other);
	ck_assert_int_eq(sides[0].ranks->status(sides[0].ranks->user), TFMC_RT_E_RANK);
	ck_assert_uint_eq(sides[0].n_wrong, 0);
	tfmc_local_ranks_destroy(group);
}
END_TEST

/* ---- failures ---- */

enum difference { SAME_TAG, OTHER_TAG, OTHER_COUNT, OTHER_CALL, OTHER_BYTES, N_DIFFERENCES };
static enum difference difference;

/* The last rank calls something else. */
static void *differ(void *arg)
{
	const struct worker *w = arg;
	struct side *s = w->side;
	void *user = s->ranks->user;
	int64_t other = s->ranks->rank == s->ranks->n - 1;
	switch (difference) {
	case SAME_TAG: s->ranks->sum(user, s->x, s->out, 100, s->ranks->n, 7, w->worker, s->workers); break;
	case OTHER_TAG:
		s->ranks->sum(user, s->x, s->out, 100, s->ranks->n, 7 + (uint64_t)other, w->worker,
		              s->workers);
		break;
	case OTHER_COUNT:
		s->ranks->sum(user, s->x, s->out, other ? CAP : 100, s->ranks->n, 7, w->worker, s->workers);
		break;
	case OTHER_CALL:
		if (!other)
			s->ranks->sum(user, s->x, s->out, 100, s->ranks->n, 0, w->worker, s->workers);
		else if (w->worker == 0)
			s->n_wrong += s->ranks->broadcast(user, s->x, 100) == 0;
		break;
	case OTHER_BYTES:
		if (w->worker == 0)
			s->n_wrong += s->ranks->broadcast(user, s->x, other ? CAP : 100) == 0;
		break;
	case N_DIFFERENCES: break;
	}
	return NULL;
}

START_TEST(what_differs_fails)
{
	for (int64_t n = 2; n <= 5; n += 3) {
		struct tfmc_local_ranks *group = open_group(n, _i, 0);
		difference = (enum difference)_i;
		for (int64_t r = 0; r < n; r++)
			sides[r].x[0] = 3, sides[r].out[0] = -1;
		run_threads(sides, n, differ);
		for (int64_t r = 0; r < n; r++) {
			const struct tfmc_ranks *ranks = sides[r].ranks;
			bool fails = _i != SAME_TAG;
			ck_assert_int_eq(ranks->status(ranks->user), fails ? TFMC_RT_E_RANK : TFMC_RT_OK);
			ck_assert(sides[r].out[0] == (fails ? -1 : 3 * (float)n));
			ck_assert_uint_eq(sides[r].n_wrong, 0);
			if (fails)
				ck_assert_int_eq(ranks->broadcast(ranks->user, sides[r].x, 4),
				                 TFMC_RT_E_RANK);
		}
		tfmc_local_ranks_destroy(group);
	}
}
END_TEST

/* Exchanges, or messages between stages of one rank, until one fails; rank 0 may stay away. */
static atomic_int stays_away, by_messages;

static void *go_on(void *arg)
{
	const struct worker *w = arg;
	struct side *s = w->side;
	if (s->ranks->rank == 0 && atomic_load(&stays_away))
		return NULL;
	while (!s->ranks->status(s->ranks->user) && atomic_load(&by_messages)) {
		s->ranks->receive(s->ranks->user, s->x, s->out, 100, 1, 0, w->worker, s->workers);
		s->ranks->send(s->ranks->user, s->x, s->out, 100, 1, 1, w->worker, s->workers);
	}
	while (!s->ranks->status(s->ranks->user))
		s->ranks->sum(s->ranks->user, s->x, s->out, 100, s->ranks->n, 0, w->worker, s->workers);
	return NULL;
}

struct failure {
	struct tfmc_local_ranks *group;
	int64_t after_us;
};

static void *fail_later(void *arg)
{
	const struct failure *f = arg;
	sleep_us(f->after_us);
	tfmc_local_ranks_fail(f->group);
	return NULL;
}

/* While ranks exchange, and while they poll or are blocked because one of them does not come. */
START_TEST(a_failure_ends_all_waits)
{
	struct rng rng = rng_seed((uint64_t)_i + 1);
	for (int k = 0; k < 20; k++) {
		struct failure f = {open_group(4, _i, 0), rng_below(&rng, 3000)};
		pthread_t thread;
		atomic_store(&stays_away, _i % 2);
		atomic_store(&by_messages, _i >= 2);
		ck_assert(!pthread_create(&thread, NULL, fail_later, &f));
		run_threads(sides, 4, go_on);
		pthread_join(thread, NULL);
		for (int64_t r = 0; r < 4; r++)
			ck_assert_int_eq(sides[r].ranks->status(sides[r].ranks->user), TFMC_RT_E_RANK);
		tfmc_local_ranks_destroy(f.group);
	}
}
END_TEST

/* ---- broadcast ---- */

static const uint64_t sizes[] = {0, 1, 100, 65536, 65537, sizeof(sides[0].x)};
#define N_BYTES (sizeof(sizes) / sizeof(sizes[0]))

/* Rank 0 comes so late that the others are blocked. */
static void *receive(void *arg)
{
	const struct worker *w = arg;
	struct side *s = w->side;
	for (uint64_t k = 0; k < N_BYTES; k++) {
		memset(s->x, s->ranks->rank == 0 ? (int)k + 1 : 0, sizeof(s->x));
		memset(s->out, (int)k + 1, sizes[k]);
		if (s->ranks->rank == 0)
			sleep_us(2000);
		s->n_wrong += s->ranks->broadcast(s->ranks->user, s->x, sizes[k]) != 0;
		s->n_wrong += memcmp(s->x, s->out, sizes[k]) != 0;
		if (s->ranks->rank > 0 && sizes[k] < sizeof(s->x))
			s->n_wrong += ((char *)s->x)[sizes[k]] != 0;
	}
	return NULL;
}

START_TEST(a_broadcast_reaches_all)
{
	struct tfmc_local_ranks *group = open_group(5, 0, 0);
	for (int64_t r = 0; r < 5; r++)
		sides[r].workers = 1;
	run_threads(sides, 5, receive);
	for (int64_t r = 0; r < 5; r++)
		ck_assert_uint_eq(sides[r].n_wrong, 0);
	tfmc_local_ranks_destroy(group);
}
END_TEST

/* ---- one rank alone, delays ---- */

START_TEST(a_mirror_adds_equal_terms)
{
	struct tfmc_ranks ranks;
	struct side *s = &sides[0];
	int64_t n = group_sizes[_i];
	ck_assert_int_eq(tfmc_mirror_ranks_init(&ranks, n), TFMC_RT_OK);
	ck_assert_int_eq(ranks.n, n);
	fill(s->x, CAP, 1, 0);
	for (int64_t workers = 1; workers <= WORKERS; workers++) {
		memset(s->out, 0, sizeof(s->out));
		for (int64_t i = 0; i < workers; i++)
			ranks.sum(ranks.user, s->x, s->out, CAP - 1, n, 0, i, workers);
		for (int64_t i = 0; i < CAP - 1; i++) {
			float terms[RANKS];
			for (int64_t r = 0; r < n; r++)
				terms[r] = s->x[i];
			ck_assert(same(s->out[i], tree(terms, n)));
		}
		ck_assert(s->out[CAP - 1] == 0);
	}
	ck_assert_int_eq(ranks.broadcast(ranks.user, s->x, 4), 0);
	ck_assert_int_eq(ranks.status(ranks.user), 0);
}
END_TEST

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

START_TEST(a_delay_is_that_of_the_link)
{
	const struct tfmc_link link = {.latency_ns = 1000000, .bytes_per_second = 1000000000};
	struct tfmc_delayed_ranks d;
	struct side *s = &sides[0];
	ck_assert(tfmc_link_sum_ns(&link, 1, 1000) == 0);
	ck_assert(tfmc_link_sum_ns(&link, 2, 100000) == 1e6 + 4e5);
	ck_assert(tfmc_link_sum_ns(&link, 4, 4096) == 1e6 + 3 * 16384);
	ck_assert(tfmc_link_sum_ns(&link, 4, 4100) == 2e6 + 1.5 * 16400);
	ck_assert(tfmc_link_broadcast_ns(&link, 1, 1000) == 0);
	ck_assert(tfmc_link_broadcast_ns(&link, 5, 1000) == 3e6 + 3000);
	struct tfmc_local_ranks *group = open_group(1, 0, 0);
	struct tfmc_ranks mirror;
	ck_assert_int_eq(tfmc_mirror_ranks_init(&mirror, 4), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_delayed_ranks_init(&d, &mirror, &link), TFMC_RT_OK);
	ck_assert_int_eq(d.ranks.n, 4);
	s->x[0] = 3;
	int64_t start = now_ns();
	d.ranks.sum(d.ranks.user, s->x, s->out, 4100, 4, 0, 0, 2);
	d.ranks.sum(d.ranks.user, s->x, s->out, 4100, 4, 0, 1, 2);
	ck_assert_int_ge(now_ns() - start, 2024600);
	ck_assert(s->out[0] == 12);
	ck_assert_int_eq(d.ranks.broadcast(d.ranks.user, s->x, 4), 0);
	ck_assert_int_eq(tfmc_delayed_ranks_init(&d, tfmc_local_rank(group, 0), &link), TFMC_RT_OK);
	ck_assert_int_eq(d.ranks.status(d.ranks.user), TFMC_RT_OK);
	tfmc_local_ranks_fail(group);
	ck_assert_int_eq(d.ranks.status(d.ranks.user), TFMC_RT_E_RANK);
	ck_assert_int_eq(d.ranks.broadcast(d.ranks.user, s->x, 4), TFMC_RT_E_RANK);
	tfmc_local_ranks_destroy(group);
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);
	tcase_set_timeout(t, LIMIT_S);
	suite_add_tcase(s, t);
	return t;
}

Suite *suite_ranks(void)
{
	Suite *s = suite_create("ranks");
	TCase *exchanges = add_case(s, "exchanges"), *failures = add_case(s, "failures"),
	      *alone = add_case(s, "alone");
	tcase_add_loop_test(exchanges, sums_are_the_tree, 0, N_SIZES);
	tcase_add_test(exchanges, exchanges_follow_each_other);
	tcase_add_test(exchanges, a_broadcast_reaches_all);
	tcase_add_loop_test(exchanges, stages_pass_values_on, 0, 4);
	tcase_add_loop_test(failures, messages_of_other_calls_fail, 0, 2);
	tcase_add_loop_test(failures, what_differs_fails, 0, N_DIFFERENCES);
	tcase_add_loop_test(failures, a_failure_ends_all_waits, 0, 4);
	tcase_add_loop_test(alone, a_mirror_adds_equal_terms, 0, N_SIZES);
	tcase_add_test(alone, a_delay_is_that_of_the_link);
	return s;
}
