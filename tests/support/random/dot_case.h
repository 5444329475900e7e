/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dot products of words: numbers that overflow where arithmetic of 16 bits or one that saturates would, and what bf16
 * rounds and flushes.
 */
#ifndef TFMC_TESTS_SUPPORT_RANDOM_DOT_CASE_H
#define TFMC_TESTS_SUPPORT_RANDOM_DOT_CASE_H

#include "backends/kb/kernel_ir.h"

#define DOT_LANES 16

struct dot_numbers {
	int32_t sum[DOT_LANES], a[DOT_LANES], b[DOT_LANES];
	float float_sum[DOT_LANES];
	uint16_t x[2 * DOT_LANES], y[2 * DOT_LANES]; /* bf16 */
};

void dot_numbers_fill(struct dot_numbers *n);
/* The dot product of the first `lanes` words of such numbers at `in`. */
struct kb_val dot_of_numbers(struct kb *k, enum kb_dot dot, struct kb_val in, int lanes);
/* A function case(in, out): every kind of every number of lanes up to DOT_LANES, at `out` one after another. */
void dot_case_body(struct kb *k, struct kb_val in, struct kb_val out);
#define DOT_OUT_BYTES ((size_t)4 * (10 * (2 * DOT_LANES - 1) - 3 * 3))

#endif
