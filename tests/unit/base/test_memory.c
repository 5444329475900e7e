/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refused memory in several threads at once: the handler runs in one thread at a time and has the reserve for itself.
 */
#define _GNU_SOURCE /* usleep */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "ir/support/memory.h"

#define THREADS 4
#define ROUNDS  200

static struct {
	atomic_int inside, most, calls;
	pthread_barrier_t begun, ended;
} seen;

static void count_threads(void *user, const char *stage, size_t bytes)
{
	(void)user;
	(void)stage;
	(void)bytes;
	int now = atomic_fetch_add(&seen.inside, 1) + 1;
	if (now > atomic_load(&seen.most))
		atomic_store(&seen.most, now);
	usleep(50);
	atomic_fetch_add(&seen.calls, 1);
	atomic_fetch_sub(&seen.inside, 1);
}

static void *fail_often(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++)
		memory_failed(1);
	return NULL;
}

START_TEST(handler_runs_in_one_thread)
{
	pthread_t threads[THREADS];
	memory_set_handler(count_threads, NULL);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, fail_often, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	memory_set_handler(NULL, NULL);
	ck_assert_int_eq(atomic_load(&seen.most), 1);
	ck_assert_int_eq(atomic_load(&seen.calls), THREADS * ROUNDS);
}
END_TEST

/* The handler's thread waits until the other one has allocated. */
static void wait_for_other(void *user, const char *stage, size_t bytes)
{
	(void)user;
	(void)stage;
	(void)bytes;
	pthread_barrier_wait(&seen.begun);
	pthread_barrier_wait(&seen.ended);
}

static void *fail_once(void *unused)
{
	(void)unused;
	memory_failed(1);
	return NULL;
}

START_TEST(reserve_is_the_handlers)
{
	pthread_t other;
	pthread_barrier_init(&seen.begun, NULL, 2);
	pthread_barrier_init(&seen.ended, NULL, 2);
	memory_set_handler(wait_for_other, NULL);
	ck_assert_int_eq(pthread_create(&other, NULL, fail_once, NULL), 0);
	pthread_barrier_wait(&seen.begun);
	void *more = memory_alloc(2 * MEMORY_RESERVE), *zeros = memory_zeroed(2, MEMORY_RESERVE);
	void *grown = memory_resize(NULL, 0, 2 * MEMORY_RESERVE);
	pthread_barrier_wait(&seen.ended);
	pthread_join(other, NULL);
	memory_set_handler(NULL, NULL);
	ck_assert(more && zeros && grown);
	memory_free(more);
	memory_free(zeros);
	memory_free(grown);
}
END_TEST

/* The product of count and size overflows to 16 bytes, which the reserve has. */
static void zero_too_many(void *user, const char *stage, size_t bytes)
{
	(void)stage;
	(void)bytes;
	((void **)user)[0] = memory_zeroed(SIZE_MAX / 16 + 2, 16);
	((void **)user)[1] = memory_zeroed(4, 16);
}

START_TEST(products_of_the_handler_are_checked)
{
	void *got[2] = {got, NULL};
	memory_set_handler(zero_too_many, got);
	memory_failed(1);
	memory_set_handler(NULL, NULL);
	ck_assert_ptr_null(got[0]);
	ck_assert_ptr_nonnull(got[1]);
}
END_TEST

Suite *suite_memory(void);

Suite *suite_memory(void)
{
	Suite *s = suite_create("memory");
	TCase *t = tcase_create("all");
	tcase_add_test(t, handler_runs_in_one_thread);
	tcase_add_test(t, reserve_is_the_handlers);
	tcase_add_test(t, products_of_the_handler_are_checked);
	suite_add_tcase(s, t);
	return s;
}
