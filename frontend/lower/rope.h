/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of rotary position embedding (theta, width, scaling), their check, and the frequencies.
 */
#ifndef TFMC_FRONTEND_LOWER_ROPE_H
#define TFMC_FRONTEND_LOWER_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE };

struct rope_params {
	double theta;
	int64_t dim; /* number of rotated features */
	enum rope_scaling scaling;
	double factor, low, high, original, beta_fast, beta_slow; /* positive if the scaling uses them */
	double attention_factor;                                  /* 0: default of the scaling */
	bool truncate; /* yarn: limits are rounded outwards to whole pairs */
	const double *factors,
	        *short_factors; /* longrope: [n_factors], [n_short]; short_factors NULL: none */
	size_t n_factors, n_short;
};

/* Returns NULL if the parameters are valid for heads of `width` features, else an error message. Sets
 * attention_factor if it is 0. */
const char *rope_check(struct arena *a, struct rope_params *r, int64_t width);
/*
 * Writes dim / 2 frequencies; *scale multiplies sines and cosines. The parameters must have passed rope_check.
 */
void rope_frequencies(const struct rope_params *r, double *out, double *scale);

#endif
