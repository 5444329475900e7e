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

enum rope_number {
	ROPE_FACTOR,
	ROPE_LOW,
	ROPE_HIGH,
	ROPE_ORIGINAL,
	ROPE_BETA_FAST,
	ROPE_BETA_SLOW,
	ROPE_ATTENTION_FACTOR,
	ROPE_N_NUMBERS
};

struct rope_turn {
	double theta;
	int64_t dim;         /* features that turn */
	const char *scaling; /* a kind, or NULL */
	double number[ROPE_N_NUMBERS];
	bool given[ROPE_N_NUMBERS];
	const double *factors; /* longrope: [n_factors] */
	size_t n_factors;
};

/* The keys of a scaling beside `kind` and `factors`. */
const char *rope_number_name(enum rope_number n);
/*
 * NULL when the description is complete and possible for heads of `width`
 * features, else what is wrong. Fills defaults.
 */
const char *rope_check(struct arena *a, struct rope_turn *r, int64_t width);
/* dim / 2 frequencies; *scale multiplies sines and cosines. The description has been checked. */
void rope_frequencies(const struct rope_turn *r, double *out, double *scale);

#endif
