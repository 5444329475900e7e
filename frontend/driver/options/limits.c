/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource limits of one run of the command.
 */
#define _GNU_SOURCE /* _SC_PHYS_PAGES, sched_getaffinity */
#include "frontend/driver/options/limits.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "frontend/driver/options/options.h"
#include "ir/support/number.h"

#define DEFAULT_WEIGHTS UINT64_C(1000000000)
#define DEFAULT_CODE    UINT64_C(64000000)

static uint64_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
	return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : UINT64_MAX;
}

/* The CPU quota of a container (cgroup v2, cpu.max), rounded up; `most` without one. */
static int64_t quota_processors(int64_t most)
{
	long long quota, period;
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
	bool is_given = f && fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0;
	if (f)
		fclose(f);
	int64_t n = is_given ? (quota + period - 1) / period : most;
	return n < most ? n : most;
}

int64_t limits_processors(void)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	int64_t n = online > 0 ? online : 1;
#ifdef __linux__
	cpu_set_t allowed;
	if (!sched_getaffinity(0, sizeof(allowed), &allowed) && CPU_COUNT(&allowed) > 0)
		n = CPU_COUNT(&allowed);
#endif
	return quota_processors(n);
}

struct limits limits_of(const struct driver_options *o)
{
	return (struct limits){.weights = o->limit_weights ? *o->limit_weights : DEFAULT_WEIGHTS,
	                       .code = o->limit_code ? *o->limit_code : DEFAULT_CODE,
	                       .memory = o->limit_memory ? *o->limit_memory : machine_memory()};
}

enum tfmc_status limits_session(const struct limits *l, struct diag_context *cx, uint64_t arena,
                                uint64_t state)
{
	char values[NUMBER_TEXT_MAX], states[NUMBER_TEXT_MAX], limit[NUMBER_TEXT_MAX];
	uint64_t sum = arena > UINT64_MAX - state ? UINT64_MAX : arena + state;
	if (sum <= l->memory)
		return TFMC_OK;
	number_print_bytes(values, arena);
	number_print_bytes(states, state);
	number_print_bytes(limit, l->memory);
	diag_error(cx, LOC_NONE, DIAG_LIMIT,
	           "a session takes %s for intermediate values at the largest dims and %s for state, the "
	           "limit is %s",
	           values, states, limit);
	diag_note(cx, LOC_NONE,
	          "--context=N (tokens of a sequence) or smaller bounds in `dims` of a model file make it "
	          "smaller, "
	          "--limit-memory=%llu raises the limit",
	          (unsigned long long)sum);
	return TFMC_INVALID;
}
