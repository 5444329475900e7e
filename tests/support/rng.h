/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCG32 (O'Neill 2014, XSH-RR): small, seeded, the same numbers everywhere.
 */
#ifndef TFMC_TESTS_SUPPORT_RNG_H
#define TFMC_TESTS_SUPPORT_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint32_t rng_next(struct rng *r)
{
	uint64_t old = r->state;
	r->state = old * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27), turn = (uint32_t)(old >> 59);
	return x >> turn | x << (-turn & 31);
}

static inline struct rng rng_seed(uint64_t seed)
{
	struct rng r = {seed + UINT64_C(1442695040888963407)};
	rng_next(&r);
	rng_next(&r);
	return r;
}

/* In [0, n), n > 0. The bias is far below what a test could see. */
static inline int64_t rng_below(struct rng *r, int64_t n)
{
	return (int64_t)(((uint64_t)rng_next(r) << 21 ^ rng_next(r)) % (uint64_t)n);
}

/* In [lo, hi]. */
static inline int64_t rng_between(struct rng *r, int64_t lo, int64_t hi)
{
	return lo + rng_below(r, hi - lo + 1);
}

static inline double rng_real(struct rng *r, double lo, double hi)
{
	return lo + (hi - lo) * ((double)rng_next(r) / 4294967296.0);
}

static inline bool rng_chance(struct rng *r, int percent)
{
	return rng_below(r, 100) < percent;
}

#endif
