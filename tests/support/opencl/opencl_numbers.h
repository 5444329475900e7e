/* SPDX-License-Identifier: Apache-2.0 */
/*
* Common to cases of OpenCL C: odd floats, lane counts, and how a case
 * loads from the input and puts results one after the other into the output.
 */
#ifndef TFMC_TESTS_SUPPORT_OPENCL_OPENCL_NUMBERS_H
#define TFMC_TESTS_SUPPORT_OPENCL_OPENCL_NUMBERS_H

#include <math.h>

#include "ir/support/compiler.h"
#include "tests/support/opencl/opencl_case.h"

#define LANES 16

struct floats {
	float a[LANES], b[LANES], c[LANES];
};

/* Exact in f32 with one or two roundings, so that devices without fma agree. */
static const struct floats numbers = {
        .a = {1, -2, 3.5f, 0, -0.0f, 100, 0.25f, -7, 2, 1, 16, -4, 8, 9, -0.5f, -3},
        .b = {2, 2, -0.5f, 1, 4, 10, 0.5f, 2, 1, 0.5f, 2, 8, 4, -3, 1, 0.5f},
        .c = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
};

static const int all_lanes[] = {1, 2, 4, 8, 16};

static inline struct kb_val zero(struct kb *k)
{
	return kb_index(k, 0);
}

static inline struct kb_val load(struct kb *k, struct kb_val in, int lanes, int array)
{
	return kb_load(k, KB_TYPE(KB_F32, lanes), in, zero(k), (int64_t)array * LANES, 4);
}

/* Stores at element `at` of four bytes; gives the place after. */
static inline int64_t put(struct kb *k, struct kb_val v, struct kb_val out, int64_t at)
{
	struct kb_type t = kb_type_of(k, v);
	if (t.scalar != KB_F32 && t.scalar != KB_I32)
		v = kb_cvt(k, v, KB_I32);
	kb_store(k, v, out, zero(k), at, 4);
	return at + t.lanes;
}

#endif
