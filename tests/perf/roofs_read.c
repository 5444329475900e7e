/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates of several threads at once, and reading at full speed. Threads are
 * pinned, start at a barrier and stamp their own begin and end. Buffers are
 * aligned for large pages and touched by the thread that reads them.
 */
#define _GNU_SOURCE /* CPU_SET, MADV_HUGEPAGE */
#include "roofs.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define STREAMS     4
#define PAGE        4096u
#define HUGE_PAGE   (2u << 20)
#define MAX_THREADS 256

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- reading: four places at once, 128 bytes of each in a step
 * ------------------------------------------------- */

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

uint64_t roofs_read(const void *data, size_t bytes)
{
	size_t part = bytes / STREAMS;
	if (__builtin_cpu_supports("avx512f"))
		return read_512(data, part);
	return __builtin_cpu_supports("avx2") ? read_256(data, part) : read_128(data, part);
}

/* --- threads
 * ------------------------------------------------------------------------------------------------- */

struct team {
	pthread_barrier_t start;
	const struct roof *roof; /* NULL: read */
	size_t part;             /* bytes of each thread */
	double seconds;
};

struct member {
	struct team *team;
	pthread_t thread;
	int cpu;
	double begin, end;
	double work; /* operations or bytes */
	volatile uint64_t result;
};

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

static void compute(struct member *m)
{
	const struct team *t = m->team;
	const int64_t steps = 20000;
	while (m->end - m->begin < t->seconds) {
		m->result += (uint64_t)t->roof->run(steps);
		m->work += (double)steps * t->roof->flops;
		m->end = now();
	}
}

/* Small buffers are read often between two looks at the clock. */
static void read_often(struct member *m, const char *data)
{
	const struct team *t = m->team;
	size_t times = t->part < (1u << 20) ? (1u << 20) / t->part : 1;
	while (m->end - m->begin < t->seconds) {
		for (size_t i = 0; i < times; i++)
			m->result += roofs_read(data, t->part);
		m->work += (double)times * (double)t->part;
		m->end = now();
	}
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct team *t = m->team;
	size_t room = t->part + HUGE_PAGE;
	char *base = NULL, *data = NULL;
	pin(m->cpu);
	if (!t->roof) {
		base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base == MAP_FAILED)
			abort();
		data = base + (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
		madvise(data, t->part, MADV_HUGEPAGE);
		memset(data, 1, t->part);
		m->result += roofs_read(data, t->part);
	}
	pthread_barrier_wait(&t->start);
	m->begin = m->end = now();
	if (t->roof)
		compute(m);
	else
		read_often(m, data);
	if (base)
		munmap(base, room);
	return NULL;
}

/* Work of all over the time from the first begin to the last end. */
static double rate(struct team *t, int n)
{
	struct member m[MAX_THREADS];
	double begin = 0, end = 0, work = 0;
	n = n < MAX_THREADS ? n : MAX_THREADS;
	pthread_barrier_init(&t->start, NULL, (unsigned)n);
	for (int i = 0; i < n; i++) {
		m[i] = (struct member){.team = t, .cpu = nth_cpu(i)};
		if (pthread_create(&m[i].thread, NULL, member_main, &m[i]))
			abort();
	}
	for (int i = 0; i < n; i++) {
		pthread_join(m[i].thread, NULL);
		begin = i == 0 || m[i].begin < begin ? m[i].begin : begin;
		end = i == 0 || m[i].end > end ? m[i].end : end;
		work += m[i].work;
	}
	pthread_barrier_destroy(&t->start);
	return work / (end - begin);
}

double roofs_flops(const struct roof *roof, int n_threads, double seconds)
{
	struct team t = {.roof = roof, .seconds = seconds};
	return rate(&t, n_threads);
}

double roofs_read_rate(size_t bytes, int n_threads, double seconds)
{
	struct team t = {.part = bytes / (size_t)n_threads / PAGE * PAGE, .seconds = seconds};
	t.part = t.part ? t.part : PAGE;
	return rate(&t, n_threads);
}
