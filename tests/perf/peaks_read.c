/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates of several threads at once, and reading at full speed. Threads are
 * pinned and meet before and after every pass of about two milliseconds; the
 * best pass counts. Buffers are aligned for large pages and touched by the
 * thread that reads them.
 */
#define _GNU_SOURCE /* CPU_SET, MADV_HUGEPAGE */
#include "peaks.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define STREAMS     4
#define PAGE        4096u
#define HUGE_PAGE   (2u << 20)
#define MAX_THREADS 256
#define PASS        2e-3 /* seconds, about */

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- reading: four places at once, two vectors of each in a step ---- */

#define AT(s, k) ((const void *)(p + (size_t)(s)*part + (k)))
#define READ_LOOP(type, load, or)                                                     \
	type a = {0}, b = a, c = a, d = a, e = a, f = a, g = a, h = a;                \
	for (const char *p = data, *end = p + part; p < end; p += 2 * sizeof(type)) { \
		a = or (a, load(AT(0, 0)));                                           \
		b = or (b, load(AT(0, sizeof(type))));                                \
		c = or (c, load(AT(1, 0)));                                           \
		d = or (d, load(AT(1, sizeof(type))));                                \
		e = or (e, load(AT(2, 0)));                                           \
		f = or (f, load(AT(2, sizeof(type))));                                \
		g = or (g, load(AT(3, 0)));                                           \
		h = or (h, load(AT(3, sizeof(type))));                                \
	}                                                                             \
	a = or (or (or (a, b), or (c, d)), or (or (e, f), or (g, h)));                \
	uint64_t out;                                                                 \
	memcpy(&out, &a, sizeof(out));                                                \
	return out

__attribute__((target("avx512f"))) static uint64_t read_512(const char *data, size_t part)
{
	READ_LOOP(__m512i, _mm512_load_si512, _mm512_or_si512);
}

__attribute__((target("avx2"))) static uint64_t read_256(const char *data, size_t part)
{
	READ_LOOP(__m256i, _mm256_load_si256, _mm256_or_si256);
}

static uint64_t read_128(const char *data, size_t part)
{
	READ_LOOP(__m128i, _mm_load_si128, _mm_or_si128);
}

uint64_t peaks_read(const void *data, size_t bytes)
{
	size_t part = bytes / STREAMS;
	if (__builtin_cpu_supports("avx512f"))
		return read_512(data, part);
	return __builtin_cpu_supports("avx2") ? read_256(data, part) : read_128(data, part);
}

/* ---- threads ---- */

struct team {
	const struct peak *peak; /* NULL: read */
	size_t part;             /* bytes of each thread */
	double seconds;
	int n;
	atomic_long arrived; /* of all meetings */
	atomic_int stop;
	long times;  /* steps of one pass, chosen by thread 0 */
	double best; /* work of all over the time of a pass */
};

struct member {
	struct team *team;
	pthread_t thread;
	int number, cpu;
	const char *data;
	volatile uint64_t result;
};

/* Spins: passes are milliseconds, and a sleep would be part of them. */
static void meet(struct team *t)
{
	long mine = atomic_fetch_add(&t->arrived, 1), all = (mine / t->n + 1) * t->n;
	for (long spins = 0; atomic_load_explicit(&t->arrived, memory_order_acquire) < all; spins++)
		if (spins > 100000)
			sched_yield();
}

/* The processor with that number among those this process may use. */
static int nth_cpu(int n)
{
	cpu_set_t all;
	CPU_ZERO(&all);
	sched_getaffinity(0, sizeof(all), &all);
	int count = CPU_COUNT(&all), seen = 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &all) && seen++ == n % count)
			return cpu;
	return 0;
}

static void pin(int cpu)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

/* `times` steps; their operations or bytes. */
static double work(struct member *m, long times)
{
	const struct team *t = m->team;
	if (t->peak) {
		m->result += (uint64_t)t->peak->run(times);
		return (double)times * t->peak->flops;
	}
	for (long i = 0; i < times; i++)
		m->result += peaks_read(m->data, t->part);
	return (double)times * (double)t->part;
}

/* How many steps take PASS seconds. */
static void choose_times(struct member *m)
{
	struct team *t = m->team;
	for (t->times = 1; t->times < 1l << 40; t->times *= 2) {
		double begin = now();
		(void)work(m, t->times);
		if (now() - begin > PASS / 2)
			break;
	}
}

static void run_passes(struct member *m)
{
	struct team *t = m->team;
	if (m->number == 0)
		choose_times(m);
	meet(t);
	double start = now();
	while (!atomic_load(&t->stop)) {
		meet(t);
		double begin = now(), amount = work(m, t->times);
		meet(t);
		if (m->number == 0) {
			double end = now(), rate = amount * t->n / (end - begin);
			t->best = rate > t->best ? rate : t->best;
			atomic_store(&t->stop, end - start > t->seconds);
		}
		meet(t);
	}
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct team *t = m->team;
	size_t room = t->part + HUGE_PAGE;
	char *base = NULL;
	pin(m->cpu);
	if (!t->peak) {
		base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base == MAP_FAILED)
			abort();
		char *data = base + (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
		madvise(data, t->part, MADV_HUGEPAGE);
		memset(data, 1, t->part);
		m->data = data;
	}
	run_passes(m);
	if (base)
		munmap(base, room);
	return NULL;
}

static double best_rate(struct team *t, int n)
{
	struct member m[MAX_THREADS];
	t->n = n < MAX_THREADS ? n : MAX_THREADS;
	for (int i = 0; i < t->n; i++) {
		m[i] = (struct member){.team = t, .number = i, .cpu = nth_cpu(i)};
		if (pthread_create(&m[i].thread, NULL, member_main, &m[i]))
			abort();
	}
	for (int i = 0; i < t->n; i++)
		pthread_join(m[i].thread, NULL);
	return t->best;
}

double peaks_flops(const struct peak *peak, int n_threads, double seconds)
{
	struct team t = {.peak = peak, .seconds = seconds};
	return best_rate(&t, n_threads);
}

double peaks_read_rate(size_t bytes, int n_threads, double seconds)
{
	struct team t = {.part = bytes / (size_t)n_threads / PAGE * PAGE, .seconds = seconds};
	t.part = t.part ? t.part : PAGE;
	return best_rate(&t, n_threads);
}
