/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks over MPI, one rank of a job (shell/mpi.sh): results against sums computed here, and failures of other ranks.
 *
 *	ranks_check DIRECTORY TRANSPORT results
 *	ranks_check DIRECTORY TRANSPORT tag|count|kind|close|silent     the last rank does something else
 *	ranks_check DIRECTORY TRANSPORT left                            the last stage leaves a call
 *	ranks_check DIRECTORY TRANSPORT exit|kill|idle SEED             a rank ends at a random moment; idle: rank 0
 *
 * TRANSPORT: window, messages. A rank that has found what it should writes the file DIRECTORY/RANK: after a failure of
 * a rank mpirun's status says nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "runtime/abi.h"
#include "runtime/mpi/tfmc_mpi.h"

#define MAX_COUNT   1000000
#define MAX_WORKERS 3
#define ROUNDS      300        /* of small sums */
#define LIMIT_MS    1000       /* where a rank is alive and does not come */
#define LATEST_NS   5000000000 /* no failure comes later, nor by the default limit of 30 s */

/* Those before the longest one fill slots of 2, 3 and 4 ranks but for some elements. */
static const uint64_t counts[] = {0,     1,           15,          16,          17,       4096,
                                  70000, 131072 - 31, 196608 - 31, 262144 - 31, MAX_COUNT};
static const uint64_t sizes[] = {0, 1, 24, 262144, 262145, 1000003};
#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void must(bool ok, const char *format, ...)
{
	va_list list;
	if (ok)
		return;
	fputs("wrong: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	_exit(1);
}

/* Element i of the term of a rank in round `tag`: exponents vary, so that the order of additions shows. */
static float term(int64_t rank, uint64_t tag, uint64_t i)
{
	uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u ^ (tag * 64 + (uint64_t)rank + 1) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 31) * 0x94d049bb133111ebu;
	uint32_t bits = (uint32_t)(h >> 41 | (118 + (h >> 20) % 18) << 23 | (h & 1) << 31);
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Adds neighbours until one term is left. */
static float expected(int64_t n, uint64_t tag, uint64_t i)
{
	float terms[64];
	for (int64_t r = 0; r < n; r++)
		terms[r] = term(r, tag, i);
	for (; n > 1; n = (n + 1) / 2)
		for (int64_t r = 0; 2 * r < n; r++)
			terms[r] = 2 * r + 1 < n ? terms[2 * r] + terms[2 * r + 1] : terms[2 * r];
	return terms[0];
}

/* ---- results ---- */

struct team {
	const struct tfmc_ranks *ranks;
	int64_t workers, group; /* group: ranks of a stage, for messages */
	float *x, *out;
	pthread_barrier_t barrier;
};

struct member {
	struct team *team;
	int64_t worker;
};

static void check_sum(struct team *t, uint64_t count, uint64_t tag, int64_t worker)
{
	const struct tfmc_ranks *ranks = t->ranks;
	for (uint64_t i = 0; worker == 0 && i < count; i++)
		t->x[i] = term(ranks->rank, tag, i);
	if (worker == 0)
		t->out[count] = 77;
	pthread_barrier_wait(&t->barrier);
	ranks->sum(ranks->user, t->x, t->out, count, ranks->n, tag, worker, t->workers);
	pthread_barrier_wait(&t->barrier);
	for (uint64_t i = 0; worker == 0 && i < count; i++) {
		float want = expected(ranks->n, tag, i);
		must(!memcmp(&want, &t->out[i], sizeof(want)),
		     "rank %" PRId64 ": element %" PRIu64 " of %" PRIu64 " is %a, not %a", ranks->rank, i,
		     count, (double)t->out[i], (double)want);
	}
	must(t->out[count] == 77, "the sum writes behind its end");
}

/* Width of the rows of `count` elements: the largest of these that divides it. */
static uint64_t width_of(uint64_t count)
{
	static const uint64_t widths[] = {1000, 48, 17, 16, 15, 7, 1};
	size_t i = 0;
	while (count % widths[i])
		i++;
	return widths[i];
}

static void check_gather(struct team *t, uint64_t count, uint64_t tag, int64_t worker)
{
	const struct tfmc_ranks *ranks = t->ranks;
	const uint64_t width = width_of(count), n = (uint64_t)ranks->n;
	for (uint64_t i = 0; worker == 0 && i < count; i++)
		t->x[i] = term(ranks->rank, tag, i);
	if (worker == 0)
		t->out[n * count] = 77;
	pthread_barrier_wait(&t->barrier);
	ranks->gather(ranks->user, t->x, t->out, count / width, width, ranks->n, tag, worker, t->workers);
	pthread_barrier_wait(&t->barrier);
	for (uint64_t i = 0; worker == 0 && i < n * count; i++) {
		uint64_t row = i / (n * width), rank = i / width % n, column = i % width;
		float want = term((int64_t)rank, tag, row * width + column);
		must(!memcmp(&want, &t->out[i], sizeof(want)),
		     "rank %" PRId64 ": element %" PRIu64 " of %" PRIu64 " is not gathered", ranks->rank, i,
		     n * count);
	}
	must(t->out[n * count] == 77, "the gather writes behind its end");
}

/*
 * Stages of `group` ranks: the first one gives a term, which all others pass on as it is; in between each adds the
 * terms of its stage. A stage may run ahead of those behind it, so that calls meet messages that came early.
 */
static void check_stages(struct team *t, uint64_t count, uint64_t tag, int64_t worker)
{
	const struct tfmc_ranks *r = t->ranks;
	const int64_t group = t->group;
	for (uint64_t i = 0; worker == 0 && i < count; i++)
		t->x[i] = r->rank / group == 1 ? term(r->rank % group, tag, i) : 77;
	pthread_barrier_wait(&t->barrier);
	r->receive(r->user, t->x, t->out, count, group, 3 * tag, worker, t->workers);
	pthread_barrier_wait(&t->barrier);
	for (uint64_t i = 0; worker == 0 && i < count; i++) {
		t->x[i] = term(r->rank % group, tag, i);
		must(!memcmp(&t->x[i], &t->out[i], sizeof(float)), "rank %" PRId64 ": element %" PRIu64,
		     r->rank, i);
	}
	pthread_barrier_wait(&t->barrier);
	r->sum(r->user, t->x, t->out, count, group, 3 * tag + 1, worker, t->workers);
	pthread_barrier_wait(&t->barrier);
	for (uint64_t i = 0; worker == 0 && i < count; i++) {
		float want = expected(group, tag, i);
		must(!memcmp(&want, &t->out[i], sizeof(want)), "rank %" PRId64 ": the sum of a stage",
		     r->rank);
	}
	pthread_barrier_wait(&t->barrier);
	r->send(r->user, t->x, t->out, count, group, 3 * tag + 2, worker, t->workers);
	pthread_barrier_wait(&t->barrier);
	must(worker > 0 || !memcmp(t->out, t->x, count * sizeof(float)), "send changes its values");
}

static void *all_stages(void *arg)
{
	struct member *m = arg;
	const struct tfmc_ranks *r = m->team->ranks;
	for (uint64_t i = 0; i < N_OF(counts) + ROUNDS; i++) {
		uint64_t act = i;
		if (m->worker == 0 && i % 3 == 0)
			must(!r->broadcast(r->user, &act, sizeof(act)) && act == i, "an act is lost");
		check_stages(m->team, i < N_OF(counts) ? counts[i] : 64 + i % 50, i, m->worker);
	}
	return NULL;
}

static void *all_sums(void *arg)
{
	struct member *m = arg;
	for (uint64_t i = 0; i < N_OF(counts); i++) {
		check_sum(m->team, counts[i], 2 * i, m->worker);
		check_gather(m->team, counts[i], 2 * i + 1, m->worker);
	}
	for (uint64_t i = 0; i < ROUNDS; i++) {
		check_sum(m->team, 64 + i % 50, 2 * i, m->worker);
		check_gather(m->team, 64 + i % 50, 2 * i + 1, m->worker);
	}
	return NULL;
}

/* Runs `body` as all workers, whose number differs between ranks. */
static void run_workers(const struct tfmc_ranks *ranks, int64_t more, int64_t group, void *(*body)(void *))
{
	struct team team = {
	        .ranks = ranks, .workers = 1 + (ranks->rank + more) % MAX_WORKERS, .group = group};
	struct member members[MAX_WORKERS];
	pthread_t threads[MAX_WORKERS];
	team.x = calloc(MAX_COUNT + 1, sizeof(float));
	team.out = calloc((size_t)ranks->n * MAX_COUNT + 1, sizeof(float));
	must(team.x && team.out, "no memory");
	pthread_barrier_init(&team.barrier, NULL, (unsigned)team.workers);
	for (int64_t i = 0; i < team.workers; i++)
		members[i] = (struct member){.team = &team, .worker = i};
	for (int64_t i = 1; i < team.workers; i++)
		must(!pthread_create(&threads[i], NULL, body, &members[i]), "no thread");
	body(&members[0]);
	for (int64_t i = 1; i < team.workers; i++)
		pthread_join(threads[i], NULL);
	must(ranks->status(ranks->user) == 0, "a failure without cause");
	free(team.x);
	free(team.out);
}

static void check_broadcasts(const struct tfmc_ranks *ranks)
{
	for (uint64_t k = 0; k < N_OF(sizes); k++) {
		unsigned char *data = calloc(sizes[k] + 1, 1);
		must(data, "no memory");
		for (uint64_t i = 0; ranks->rank == 0 && i < sizes[k]; i++)
			data[i] = (unsigned char)(i * 7 + k + i / 251);
		must(ranks->broadcast(ranks->user, data, sizes[k]) == 0, "broadcast fails");
		for (uint64_t i = 0; i < sizes[k]; i++)
			must(data[i] == (unsigned char)(i * 7 + k + i / 251), "byte %" PRIu64 " of %" PRIu64,
			     i, sizes[k]);
		must(data[sizes[k]] == 0, "the broadcast writes behind its end");
		free(data);
	}
}

/* With four ranks a sum in the order of the ranks has other bits: the check above would notice it. */
static void check_order_shows(void)
{
	uint64_t differ = 0;
	for (uint64_t i = 0; i < 1000; i++)
		differ += ((term(0, 0, i) + term(1, 0, i)) + term(2, 0, i)) + term(3, 0, i) !=
		          expected(4, 0, i);
	must(differ > 100, "the terms do not show the order of additions");
}

/* ---- failures ---- */

static void add_once(const struct tfmc_ranks *ranks, uint64_t count, uint64_t tag)
{
	static float x[8192], out[8192];
	ranks->sum(ranks->user, x, out, count, ranks->n, tag, 0, 1);
}

/* After a failure everything returns at once, and the text names the rank `failed`; -1: any. */
static void check_failed(struct tfmc_mpi *mpi, int64_t failed, int64_t since)
{
	const struct tfmc_ranks *ranks = tfmc_mpi_ranks(mpi);
	char name[40], text[300];
	int64_t passed = now_ns() - since, start = now_ns();
	snprintf(name, sizeof(name), failed < 0 ? "rank " : "rank %" PRId64, failed);
	snprintf(text, sizeof(text), "%s", tfmc_mpi_error(mpi));
	must(ranks->status(ranks->user) == TFMC_RT_E_RANK, "no failure");
	must(strstr(text, name), "rank %" PRId64 ": '%s' does not name %s", ranks->rank, text, name);
	must(passed < LATEST_NS, "rank %" PRId64 " noticed it after %" PRId64 " ms", ranks->rank,
	     passed / 1000000);
	for (int i = 0; i < 100; i++)
		add_once(ranks, 4096, 1);
	must(ranks->broadcast(ranks->user, text, sizeof(text)) != 0, "a broadcast after a failure succeeds");
	must(now_ns() - start < LATEST_NS / 2, "calls after a failure wait");
	must(!strcmp(text, tfmc_mpi_error(mpi)), "the text changes to %s", tfmc_mpi_error(mpi));
	printf("rank %" PRId64 ": %.1f ms: %s\n", ranks->rank, (double)passed * 1e-6, text);
}

/* The last rank makes another call than the others. */
static void check_other_call(struct tfmc_mpi *mpi, const char *what)
{
	const struct tfmc_ranks *ranks = tfmc_mpi_ranks(mpi);
	bool other = ranks->rank == ranks->n - 1;
	char data[16384] = "";
	add_once(ranks, 100, 7);
	must(ranks->status(ranks->user) == 0, "%s", tfmc_mpi_error(mpi));
	int64_t start = now_ns();
	if (other && !strcmp(what, "silent")) {
		sleep(2 * LIMIT_MS / 1000 + 1);
		return;
	}
	if (other && !strcmp(what, "close"))
		tfmc_mpi_close(mpi);
	else if (other && !strcmp(what, "kind"))
		ranks->broadcast(ranks->user, data, sizeof(data));
	else
		add_once(ranks, other && !strcmp(what, "count") ? 4097 : 4096,
		         other && !strcmp(what, "tag") ? 9 : 8);
	if (strcmp(what, "close") || !other)
		check_failed(mpi, other ? 0 : ranks->n - 1, start);
}

/* Each rank is a stage. In the call after the one that it leaves rank 0 meets a message of the latter. */
static void check_left_call(struct tfmc_mpi *mpi)
{
	static float x[4096], out[4096];
	const struct tfmc_ranks *r = tfmc_mpi_ranks(mpi);
	int64_t start = now_ns(), last = r->n - 1;
	for (int64_t act = 0, sent; !r->status(r->user); act++) {
		sent = act;
		if (r->broadcast(r->user, &sent, sizeof(sent)) || (r->rank == 0 && act == 0))
			continue;
		r->receive(r->user, x, out, 4096, 1, 0, 0, 1);
		r->send(r->user, x, out, 4096, 1, 1, 0, 1);
		must(act < 2, "a left call has no consequence");
	}
	check_failed(mpi, r->rank == last ? 0 : last, start);
	must(r->rank > 0 || strstr(tfmc_mpi_error(mpi), "after broadcast 1, this rank to a message"), "%s",
	     tfmc_mpi_error(mpi));
}

struct adder {
	const struct tfmc_ranks *ranks;
	uint64_t count;
	int64_t worker;
};

/* One of two workers that add until a failure; none waits for the other but inside sum. */
static void *add_always(void *arg)
{
	static float x[8192], out[8192];
	struct adder *a = arg;
	while (a->ranks->status(a->ranks->user) == 0)
		a->ranks->sum(a->ranks->user, x, out, a->count, a->ranks->n, 1, a->worker, 2);
	return NULL;
}

static void exit_here(int number)
{
	(void)number;
	_exit(3);
}

static void kill_here(int number)
{
	(void)number;
	kill(getpid(), SIGKILL);
}

/* A rank ends at a moment that rank 0 chooses, while all add without pause, or wait for rank 0 (idle). */
static void check_end(struct tfmc_mpi *mpi, const char *what, unsigned seed, bool messages)
{
	const struct tfmc_ranks *ranks = tfmc_mpi_ranks(mpi);
	bool idle = !strcmp(what, "idle");
	int64_t victim = idle ? 0 : (int64_t)seed % ranks->n, delay = 1000 + (int64_t)(seed * 7919u % 200000),
	        moment;
	uint64_t count = seed % 3 ? 4096 : 17;
	moment = now_ns() + delay * 1000;
	must(ranks->broadcast(ranks->user, &moment, sizeof(moment)) == 0, "%s", tfmc_mpi_error(mpi));
	if (ranks->rank == victim) {
		int64_t left = moment - now_ns();
		struct itimerval timer = {.it_value = {.tv_usec = left > 1000 ? left / 1000 : 1}};
		signal(SIGALRM, strcmp(what, "exit") ? kill_here : exit_here);
		setitimer(ITIMER_REAL, &timer, NULL);
	}
	struct adder adders[2] = {{ranks, count, 0}, {ranks, count, 1}};
	pthread_t second;
	must(idle || !pthread_create(&second, NULL, add_always, &adders[1]), "no thread");
	if (!idle) {
		add_always(&adders[0]);
		pthread_join(second, NULL);
	} else if (ranks->rank == 0) {
		pause();
	} else {
		ranks->broadcast(ranks->user, &moment, sizeof(moment));
	}
	check_failed(mpi, messages ? -1 : victim, moment); /* by messages the awaited rank may wait itself */
}

/* Whether the memory of a window is mapped. */
static bool has_window(void)
{
	char line[4096];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "r");
	must(maps, "no /proc/self/maps");
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, "tfmc-ranks");
	fclose(maps);
	return found;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	const char *what = argv[3];
	bool messages = !strcmp(argv[2], "messages"), results = !strcmp(what, "results");
	struct tfmc_mpi_options options = {
	        .struct_size = sizeof(options), .workers = MAX_WORKERS, .messages_only = messages};
	struct tfmc_mpi *mpi, *none;
	if (!strcmp(what, "silent") || messages)
		options.limit_ms = results ? 0 : LIMIT_MS;
	must(tfmc_mpi_open(&options, NULL) == TFMC_MPI_E_NULL, "open to nothing");
	must(tfmc_mpi_open(&(struct tfmc_mpi_options){0}, &none) == TFMC_MPI_E_OPTIONS && !none,
	     "open with bad options");
	int status = tfmc_mpi_open(&options, &mpi);
	must(status == 0, "open: %d", status);
	const struct tfmc_ranks *ranks = tfmc_mpi_ranks(mpi);
	must(has_window() == (!messages && ranks->n > 1), "the window is%s used", messages ? "" : " not");
	char path[4096];
	snprintf(path, sizeof(path), "%s/%" PRId64, argv[1], ranks->rank);
	if (results) {
		check_order_shows();
		for (int64_t more = 0; more < MAX_WORKERS; more++) {
			run_workers(ranks, more, ranks->n, all_sums);
			check_broadcasts(ranks);
			if (ranks->n > 1) /* two stages, or three of one rank; the same in all calls */
				run_workers(ranks, more, ranks->n % 2 ? 1 : ranks->n / 2, all_stages);
		}
		must(!*tfmc_mpi_error(mpi), "%s", tfmc_mpi_error(mpi));
		tfmc_mpi_close(mpi);
	} else if (argc > 4)
		check_end(mpi, what, (unsigned)strtoul(argv[4], NULL, 10), messages);
	else if (!strcmp(what, "left"))
		check_left_call(mpi);
	else
		check_other_call(mpi, what);
	FILE *f = fopen(path, "w");
	must(f && !fclose(f), "%s", path);
	if (!results) {
		fflush(stdout);
		_exit(0);
	}
	return 0;
}
