/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCG32 (O'Neill 2014, XSH-RR) for seeded inputs and weights: the same sequence on every machine.
 */
#ifndef TFMC_PASSES_PIPELINE_RANDOM_H
#define TFMC_PASSES_PIPELINE_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state;
};

static inline uint32_t random_u32(struct random *r)
{
	uint64_t old = r->state;
	r->state = old * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27), rotation = (uint32_t)(old >> 59);
	return x >> rotation | x << (-rotation & 31);
}

static inline struct random random_seed(uint64_t seed)
{
	struct random r = {seed + UINT64_C(1442695040888963407)};
	random_u32(&r);
	random_u32(&r);
	return r;
}

/* Random integer in [0, n); 0 for n <= 0. */
static inline int64_t random_below(struct random *r, int64_t n)
{
	return n > 0 ? (int64_t)(random_u32(r) % (uint64_t)n) : 0;
}

/* Approximately normal: the sum of four uniform numbers, mean 0, variance 1. */
static inline double random_normal(struct random *r)
{
	double sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (double)random_u32(r) / 4294967296.0 - 0.5;
	return sum * 1.7320508075688772;
}

#endif
