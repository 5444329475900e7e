/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frequencies of rotary position embedding for every scaling that is fixed at compile time. All in f64.
 */
#include "frontend/lower/rope.h"

#include <math.h>

#define ROPE_DIM_MAX ((int64_t)1 << 16) /* limits the memory of the compiler: 8 bytes for each pair */
#define PI           3.14159265358979323846

/* ---- checks ---- */

static bool is_positive(double v)
{
	return v > 0 && isfinite(v);
}

/* NULL if there is one positive factor for each pair, else an error message. */
static const char *check_factors(struct arena *a, const double *factors, size_t n, int64_t pairs)
{
	if ((int64_t)n != pairs)
		return arena_printf(a, "%zu factors for %lld pairs of features", n, (long long)pairs);
	for (size_t i = 0; i < n; i++)
		if (!is_positive(factors[i]))
			return "the factors of a scaling must be positive";
	return NULL;
}

/* NULL if the two lists of factors are valid, else an error message. `original` is the length up to which the short
 * ones are used, so neither makes sense alone. */
static const char *check_longrope(struct arena *a, const struct rope_params *r)
{
	const char *wrong = check_factors(a, r->factors, r->n_factors, r->dim / 2);
	if (wrong != NULL)
		return wrong;
	if ((r->short_factors == NULL) != (r->original == 0))
		return "'short' and 'original' of longrope go together";
	return r->short_factors == NULL ? NULL : check_factors(a, r->short_factors, r->n_short, r->dim / 2);
}

/* NULL if the scaling is valid, else an error message. Sets attention_factor, if it is 0, to the default of the
 * scaling: of YaRN 0.1 ln(factor) + 1 (Peng et al. 2023), which a small factor makes negative. */
static const char *check_scaling(struct arena *a, struct rope_params *r)
{
	double attention = r->scaling == ROPE_YARN ? 0.1 * log(r->factor) + 1 : 1;
	const char *wrong = r->scaling == ROPE_LONGROPE ? check_longrope(a, r) : NULL;
	if (wrong != NULL)
		return wrong;
	if (r->scaling == ROPE_LLAMA3 && r->low >= r->high)
		return "'low' of a scaling must be below 'high'";
	if (r->scaling == ROPE_YARN && r->theta <= 1)
		return "scaling of kind yarn needs a theta above 1";
	if (r->attention_factor == 0)
		r->attention_factor = attention;
	return is_positive(r->attention_factor) ? NULL : "a factor this small needs 'attention_factor'";
}

const char *rope_check(struct arena *a, struct rope_params *r, int64_t width)
{
	if (r->dim < 2 || r->dim % 2 != 0 || r->dim > width)
		return arena_printf(a, "dim is %lld, it must be even and at most %lld", (long long)r->dim,
		                    (long long)width);
	if (r->dim > ROPE_DIM_MAX)
		return arena_printf(a, "dim is %lld, the limit is %lld", (long long)r->dim,
		                    (long long)ROPE_DIM_MAX);
	if (!is_positive(r->theta))
		return "theta must be positive";
	return check_scaling(a, r);
}

/* ---- frequencies ---- */

/* Llama 3.1: long wavelengths are scaled, short ones stay, those between are interpolated. */
static double llama3_frequency(const struct rope_params *r, double frequency)
{
	double wave = 2 * PI / frequency;
	if (wave > r->original / r->low)
		return frequency / r->factor;
	if (wave < r->original / r->high)
		return frequency;
	double t = (r->original / wave - r->low) / (r->high - r->low);
	return (1 - t) * frequency / r->factor + t * frequency;
}

/* Index, with a fraction, of the pair that rotates this number of times over the original length (YaRN, Peng et
 * al. 2023, section 3.2). */
static double pair_with_rotations(const struct rope_params *r, double rotations)
{
	return (double)r->dim * log(r->original / (2 * PI * rotations)) / (2 * log(r->theta));
}

/* YaRN (Peng et al. 2023): pairs above beta_fast rotations keep their frequency, below beta_slow it is divided by
 * factor, between them both are mixed by a linear ramp over the pair index. */
static double yarn_frequency(const struct rope_params *r, int64_t pair, double frequency)
{
	double fast = pair_with_rotations(r, r->beta_fast), slow = pair_with_rotations(r, r->beta_slow);
	double lo = fmax(r->truncate ? floor(fast) : fast, 0);
	double hi = fmin(r->truncate ? ceil(slow) : slow, (double)r->dim - 1);
	/* negative if both limits are on one side: then no pair or every pair is on the ramp */
	double span = hi == lo ? 0.001 /* no division by zero */ : hi - lo;
	double ramp = fmin(fmax(((double)pair - lo) / span, 0), 1);
	return frequency / r->factor * ramp + frequency * (1 - ramp);
}

/* The frequency of a pair of features (pair < dim / 2) after the scaling; `frequency`: theta^(-2 pair / dim). */
static double scaled_frequency(const struct rope_params *r, int64_t pair, double frequency)
{
	switch (r->scaling) {
	case ROPE_PLAIN: return frequency;
	case ROPE_LINEAR: return frequency / r->factor;
	case ROPE_LLAMA3: return llama3_frequency(r, frequency);
	case ROPE_YARN: return yarn_frequency(r, pair, frequency);
	case ROPE_LONGROPE: return frequency / r->factors[pair];
	}
	return frequency;
}

void rope_frequencies(const struct rope_params *r, double *out, double *scale)
{
	*scale = r->attention_factor;
	for (int64_t n = 0; n < r->dim / 2; n++)
		out[n] = scaled_frequency(r, n, pow(r->theta, -2.0 * (double)n / (double)r->dim));
}
