/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Polling: pause instructions first, which leave the core to its other hardware thread, then sched_yield between
 * polls, so that more threads than processors make progress.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "runtime/spin.h"

#include <sched.h>
#include <time.h>

#define POLLS          64   /* polls, each with a pause instruction, per reading of the clock */
#define YIELD_AFTER_NS 4000 /* from then on the waiter calls sched_yield between polls */

int64_t spin_clock(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* True: *word has changed. */
static bool poll_some(const atomic_uint *word, unsigned value)
{
	for (int i = 0; i < POLLS; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != value)
			return true;
		spin_pause();
	}
	return false;
}

/* The clock is read once for POLLS polls, since reading it takes longer than a poll. False: the value is the same
 * after `limit`. */
bool spin_while(const atomic_uint *word, unsigned value, int64_t limit)
{
	if (poll_some(word, value))
		return true;
	for (int64_t start = spin_clock(), passed = 0; passed < limit; passed = spin_clock() - start) {
		if (poll_some(word, value))
			return true;
		if (passed > YIELD_AFTER_NS)
			sched_yield();
	}
	return false;
}

void spin_until(int64_t end)
{
	for (int64_t left = end - spin_clock(); left > 0; left = end - spin_clock()) {
		if (left > YIELD_AFTER_NS)
			sched_yield();
		spin_pause();
	}
}
