/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded numbers, the same everywhere: the generator of passes/pipeline, with the ranges that tests want.
 */
#ifndef TFMC_TESTS_SUPPORT_RANDOM_RNG_H
#define TFMC_TESTS_SUPPORT_RANDOM_RNG_H

#include <stdbool.h>
#include "passes/pipeline/random.h"

struct rng {
	struct random base;
};

static inline uint32_t rng_next(struct rng *r)
{
	return random_u32(&r->base);
}

static inline struct rng rng_seed(uint64_t seed)
{
	return (struct rng){random_seed(seed)};
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
