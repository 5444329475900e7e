/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions as the model language says them: theta, width, scaling, and
 * the frequencies that follow. Steps and graph statements fill the same
 * description; what they must give is checked in one place.
 */
#ifndef TFMC_FRONTEND_OPERATORS_ROPE_H
#define TFMC_FRONTEND_OPERATORS_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE };

struct rope_params {
	double theta;
	int64_t dim; /* features that turn */
	enum rope_scaling scaling;
	double factor, low, high, original, beta_fast, beta_slow; /* positive where the scaling has them */
	double attention_factor;                                  /* 0: that of the scaling */
	bool truncate;                                            /* yarn: limits are cut to whole pairs */
	const double *factors, *short_factors; /* longrope: [n_factors], [n_short]; short ones NULL: none */
	size_t n_factors, n_short;
};

/*
 * NULL when the description is possible for heads of `width` features, else
 * what is wrong. Fills attention_factor.
 */
const char *rope_check(struct arena *a, struct rope_params *r, int64_t width);
/* dim / 2 frequencies; *scale multiplies sines and cosines. The description has been checked. */
void rope_frequencies(const struct rope_params *r, double *out, double *scale);

#endif
