/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frequencies of rotary positions, for every scaling whose list is fixed at
 * compile time. All in f64.
 */
#include "frontend/operators/rope.h"

#include <math.h>
#include <string.h>

#include "ir/support/buf.h"
#include "ir/support/checked.h"

#define PI 3.14159265358979323846

typedef double scaled_fn(const struct rope_turn *r, int64_t pair, double frequency);

/* Which numbers a kind needs and which it may have; bits by enum rope_number. */
struct rope_kind {
	const char *name;
	unsigned needs, has;
	bool factors;
	scaled_fn *scaled;
};

#define BIT(n) (1u << ROPE_##n)

static scaled_fn linear, llama3, yarn, longrope;

static const struct rope_kind kinds[] = {
        {"linear", BIT(FACTOR), BIT(FACTOR), false, linear},
        {"llama3", BIT(FACTOR) | BIT(LOW) | BIT(HIGH) | BIT(ORIGINAL),
         BIT(FACTOR) | BIT(LOW) | BIT(HIGH) | BIT(ORIGINAL), false, llama3},
        {"yarn", BIT(FACTOR) | BIT(ORIGINAL),
         BIT(FACTOR) | BIT(ORIGINAL) | BIT(BETA_FAST) | BIT(BETA_SLOW) | BIT(ATTENTION_FACTOR), false, yarn},
        {"longrope", 0, BIT(ATTENTION_FACTOR), true, longrope},
};

static const char *const numbers[] = {
        [ROPE_FACTOR] = "factor",
        [ROPE_LOW] = "low",
        [ROPE_HIGH] = "high",
        [ROPE_ORIGINAL] = "original",
        [ROPE_BETA_FAST] = "beta_fast",
        [ROPE_BETA_SLOW] = "beta_slow",
        [ROPE_ATTENTION_FACTOR] = "attention_factor",
};

const char *rope_number_name(enum rope_number n)
{
	return numbers[n];
}

static const struct rope_kind *find_kind(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(kinds); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

/* ---- checks ---- */

static bool is_positive(double v)
{
	return v > 0 && isfinite(v);
}

static const char *check_numbers(struct arena *a, const struct rope_turn *r, const struct rope_kind *kind)
{
	for (int i = 0; i < ROPE_N_NUMBERS; i++) {
		if (!r->given[i] && (kind->needs >> i & 1))
			return arena_printf(a, "scaling of kind %s needs '%s'", kind->name, numbers[i]);
		if (r->given[i] && !(kind->has >> i & 1))
			return arena_printf(a, "scaling of kind %s has no '%s'", kind->name, numbers[i]);
		if (r->given[i] && !is_positive(r->number[i]))
			return arena_printf(a, "'%s' of a scaling must be positive", numbers[i]);
	}
	return NULL;
}

static const char *check_factors(struct arena *a, const struct rope_turn *r, const struct rope_kind *kind)
{
	if (!kind->factors && r->n_factors > 0)
		return arena_printf(a, "scaling of kind %s has no 'factors'", kind->name);
	if (kind->factors && r->n_factors == 0)
		return arena_printf(a, "scaling of kind %s needs 'factors'", kind->name);
	if (kind->factors && (int64_t)r->n_factors != r->dim / 2)
		return arena_printf(a, "%zu factors for %lld pairs of features", r->n_factors,
		                    (long long)(r->dim / 2));
	for (size_t i = 0; i < r->n_factors; i++)
		if (!is_positive(r->factors[i]))
			return "the factors of a scaling must be positive";
	return NULL;
}

static void fill(struct rope_turn *r, enum rope_number n, double v)
{
	if (!r->given[n])
		r->number[n] = v;
}

static const char *check_scaling(struct arena *a, struct rope_turn *r)
{
	const struct rope_kind *kind = find_kind(r->scaling);
	if (!kind)
		return arena_printf(a, "a scaling is linear, llama3, yarn or longrope, found '%s'",
		                    r->scaling);
	const char *wrong = check_numbers(a, r, kind);
	if (!wrong)
		wrong = check_factors(a, r, kind);
	if (wrong)
		return wrong;
	if (kind->scaled == llama3 && r->number[ROPE_LOW] >= r->number[ROPE_HIGH])
		return "'low' of a scaling must be below 'high'";
	if (kind->scaled == yarn && r->theta <= 1)
		return "scaling of kind yarn needs a theta above 1";
	fill(r, ROPE_BETA_FAST, 32);
	fill(r, ROPE_BETA_SLOW, 1);
	fill(r, ROPE_ATTENTION_FACTOR, kind->scaled == yarn ? 0.1 * log(r->number[ROPE_FACTOR]) + 1 : 1);
	if (!is_positive(r->number[ROPE_ATTENTION_FACTOR]))
		return "a factor this small needs 'attention_factor'";
	return NULL;
}

const char *rope_check(struct arena *a, struct rope_turn *r, int64_t width)
{
	if (r->dim < 2 || r->dim % 2 != 0 || r->dim > width)
		return arena_printf(a, "dim is %lld, it must be even and at most %lld", (long long)r->dim,
		                    (long long)width);
	if (!is_positive(r->theta))
		return "theta must be positive";
	return r->scaling ? check_scaling(a, r) : NULL;
}

/* ---- frequencies ---- */

static double linear(const struct rope_turn *r, int64_t pair, double frequency)
{
	(void)pair;
	return frequency / r->number[ROPE_FACTOR];
}

/* Long waves are stretched, short ones stay, those between are mixed. */
static double llama3(const struct rope_turn *r, int64_t pair, double frequency)
{
	double low = r->number[ROPE_LOW], high = r->number[ROPE_HIGH], factor = r->number[ROPE_FACTOR];
	double wave = 2 * PI / frequency, original = r->number[ROPE_ORIGINAL];
	(void)pair;
	if (wave > original / low)
		return frequency / factor;
	if (wave < original / high)
		return frequency;
	double t = (original / wave - low) / (high - low);
	return (1 - t) * frequency / factor + t * frequency;
}

/* The pair that makes `turns` turns over the original length (Peng et al. 2023, section 3.2). */
static double pair_of_turns(const struct rope_turn *r, double turns)
{
	return (double)r->dim * log(r->number[ROPE_ORIGINAL] / (2 * PI * turns)) / (2 * log(r->theta));
}

static double yarn(const struct rope_turn *r, int64_t pair, double frequency)
{
	double lo = fmax(floor(pair_of_turns(r, r->number[ROPE_BETA_FAST])), 0);
	double hi = fmin(ceil(pair_of_turns(r, r->number[ROPE_BETA_SLOW])), (double)r->dim - 1);
	double ramp = fmin(fmax(((double)pair - lo) / fmax(hi - lo, 0.001), 0), 1);
	return frequency / r->number[ROPE_FACTOR] * ramp + frequency * (1 - ramp);
}

static double longrope(const struct rope_turn *r, int64_t pair, double frequency)
{
	return frequency / r->factors[pair];
}

void rope_frequencies(const struct rope_turn *r, double *out, double *scale)
{
	const struct rope_kind *kind = r->scaling ? find_kind(r->scaling) : NULL;
	bool attention = kind && (kind->has & BIT(ATTENTION_FACTOR));
	*scale = attention ? r->number[ROPE_ATTENTION_FACTOR] : 1;
	for (int64_t n = 0; n < r->dim / 2; n++) {
		double frequency = pow(r->theta, -2.0 * (double)n / (double)r->dim);
		out[n] = kind ? kind->scaled(r, n, frequency) : frequency;
	}
}
