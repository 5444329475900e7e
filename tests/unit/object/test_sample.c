/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing ids from logits: distributions by a chi-square test, the sets that
 * top-k, top-p and min-p leave against a plain reference, penalties, repeated
 * n-grams, odd logits, and the generator's known numbers.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tfmc_rt.h"
#include "tests/support/random/rng.h"

#define VOCAB 12
#define DRAWS 1000000

/* Probability mass before an id. */
struct past {
	const int32_t *ids;
	int n;
};

static double penalized(const struct tfmc_sample_options *o, double logit, struct past past, int id)
{
	int count = 0;
	for (int i = 0; i < past.n; i++)
		count += past.ids[i] == id;
	if (!count)
		return logit;
	logit = logit < 0 ? logit * o->repetition_penalty : logit / o->repetition_penalty;
	return logit - count * o->frequency_penalty - o->presence_penalty;
}

/* Probabilities of all ids by the definition, in the order penalties, temperature, top-k, top-p, min-p. */
static void reference(const struct tfmc_sample_options *o, const float *given, struct past past, double *p)
{
	int order[VOCAB], n = VOCAB;
	double logits[VOCAB], max = -INFINITY, sum = 0, reached = 0;
	for (int i = 0; i < VOCAB; i++) {
		logits[i] = penalized(o, (double)given[i], past, i);
		order[i] = i;
		max = fmax(max, logits[i] / o->temperature);
	}
	for (int i = 0; i < VOCAB; i++)
		for (int j = i + 1; j < VOCAB; j++)
			if (logits[order[j]] > logits[order[i]]) {
				int moved = order[j];
				memmove(&order[i + 1], &order[i], (size_t)(j - i) * sizeof(*order));
				order[i] = moved;
			}
	if (o->top_k > 0 && o->top_k < n)
		n = (int)o->top_k;
	for (int i = 0; i < VOCAB; i++)
		p[i] = 0;
	for (int i = 0; i < n; i++)
		sum += p[order[i]] = exp(logits[order[i]] / o->temperature - max);
	for (int i = 0; i < n; i++) {
		if (reached >= o->top_p * sum || p[order[i]] < o->min_p)
			p[order[i]] = 0;
		reached += p[order[i]];
	}
	sum = 0;
	for (int i = 0; i < VOCAB; i++)
		sum += p[i];
	for (int i = 0; i < VOCAB; i++)
		p[i] /= sum;
}

static struct tfmc_sampler *sampler(const struct tfmc_sample_options *o)
{
	struct tfmc_sampler *s;
	ck_assert_int_eq(tfmc_sampler_create(o, VOCAB, &s), TFMC_RT_OK);
	return s;
}

/* Pearson's statistic against the reference; ids of probability 0 must not come. */
static void check_distribution(const struct tfmc_sample_options *o, const float *logits, struct past past)
{
	struct tfmc_sampler *s = sampler(o);
	double p[VOCAB], statistic = 0;
	int64_t seen[VOCAB] = {0};
	int degrees = -1;
	reference(o, logits, past, p);
	for (int i = 0; i < DRAWS; i++) {
		int32_t id = tfmc_sampler_draw(s, logits, NULL, past.ids, (uint64_t)past.n);
		if (id < 0 || id >= VOCAB)
			ck_abort_msg("the id %d was drawn", id);
		seen[id]++;
	}
	for (int i = 0; i < VOCAB; i++) {
		double expected = p[i] * DRAWS, d = (double)seen[i] - expected;
		ck_assert_msg(p[i] > 0 || seen[i] == 0, "id %d was cut off and drawn", i);
		ck_assert_msg(p[i] == 0 || seen[i] > 0, "id %d of probability %g never came", i, p[i]);
		degrees += p[i] > 0;
		statistic += p[i] > 0 ? d * d / expected : 0;
	}
	/* mean + 6 standard deviations of chi-square: passed over by chance once in far more than 10^6 runs
	 */
	ck_assert_msg(statistic <= degrees + 6 * sqrt(2.0 * degrees + 1), "chi-square %g of %d degrees",
	              statistic, degrees);
	tfmc_sampler_destroy(s);
}

START_TEST(draws_follow_the_distribution)
{
	static const float logits[VOCAB] = {0.5f, -1, 2, 2, 1.25f, -3, 0, 0.75f, 1, -0.5f, 1.5f, 0.25f};
	static const struct {
		double temperature, top_p, min_p;
		int64_t top_k;
	} settings[] = {{1, 1, 0, 0},     {0.7, 1, 0, 0},   {2.5, 1, 0, 0},     {1, 1, 0, 1},
	                {1, 1, 0, 5},     {1, 0.5, 0, 0},   {1, 0.9, 0, 0},     {1, 1, 0.2, 0},
	                {0.8, 0.9, 0, 6}, {1.3, 1, 0.1, 7}, {0.9, 0.8, 0.15, 9}};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
		o.temperature = settings[i].temperature;
		o.top_p = settings[i].top_p;
		o.min_p = settings[i].min_p;
		o.top_k = settings[i].top_k;
		o.seed = 1000 + i;
		check_distribution(&o, logits, (struct past){NULL, 0});
	}
}
END_TEST

/* Penalties, equal logits, temperatures at which everything or nothing is equal. */
START_TEST(odd_settings_follow_the_distribution)
{
	static const int32_t ids[] = {2, 3, 3, 2, 5, 2, 11, 0};
	static const float mixed[VOCAB] = {0.5f, -1, 2, 2, 1.25f, -3, 0, 0.75f, 1, -0.5f, 1.5f, 0.25f};
	static const float even[VOCAB] = {0}, steps[VOCAB] = {1, 1, 1, 1, 0, 0, 0, 0, -1, -1, -1, -1};
	static const struct {
		double repetition, presence, frequency, temperature, top_p, min_p;
		int64_t top_k;
		const float *logits;
	} settings[] = {
	        {1.5, 0, 0, 1, 1, 0, 0, mixed},     {1, 0.7, 0, 1, 1, 0, 0, mixed},
	        {1, 0, 0.4, 1, 1, 0, 0, mixed},     {1.3, 0.2, 0.3, 0.8, 0.9, 0.02, 9, mixed},
	        {0.5, -1, -0.5, 1, 1, 0, 0, mixed}, {1, 0, 0, 1, 1, 0, 0, even},
	        {1, 0, 0, 1, 1, 0, 7, even},        {1, 0, 0, 1, 0.51, 0, 0, even},
	        {1, 0, 0, 1, 1, 0, 6, steps},       {1, 0, 0, 1, 0.8, 0, 0, steps},
	        {1, 0, 0, 1, 1, 0.36, 0, steps},    {1, 0, 0, 1e6, 1, 0, 0, mixed},
	        {1, 0, 0, 1e-6, 1, 0, 0, mixed},    {1, 0, 0, 1e-6, 1, 0, 3, steps},
	};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
		o.repetition_penalty = settings[i].repetition;
		o.presence_penalty = settings[i].presence;
		o.frequency_penalty = settings[i].frequency;
		o.temperature = settings[i].temperature;
		o.top_p = settings[i].top_p;
		o.min_p = settings[i].min_p;
		o.top_k = settings[i].top_k;
		o.seed = 77 + i;
		check_distribution(&o, settings[i].logits, (struct past){ids, 8});
	}
}
END_TEST

/* Large vocabularies: top-k and top-p keep what a full sort keeps, the lower ids among equals. */
START_TEST(cuts_of_large_vocabularies)
{
	enum { LARGE = 5000 };
	static float logits[LARGE];
	static int kept[LARGE], seen[LARGE];
	struct rng rng = rng_seed(21);
	for (int i = 0; i < LARGE; i++)
		logits[i] = (float)rng_below(&rng, 700) / 64;
	for (int64_t k = 1; k <= 40; k += 13) {
		struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
		struct tfmc_sampler *s;
		o.top_k = k;
		o.temperature = 50; /* nearly even among those that are kept */
		ck_assert_int_eq(tfmc_sampler_create(&o, LARGE, &s), TFMC_RT_OK);
		memset(seen, 0, sizeof(seen));
		for (int i = 0; i < 2000; i++)
			seen[tfmc_sampler_draw(s, logits, NULL, NULL, 0)]++;
		for (int id = 0; id < LARGE; id++) {
			int64_t before = 0;
			for (int other = 0; other < LARGE; other++)
				before += logits[other] > logits[id] ||
				          (logits[other] == logits[id] && other < id);
			kept[id] = before < k;
			ck_assert_int_eq(seen[id] > 0, kept[id]);
		}
		tfmc_sampler_destroy(s);
	}
}
END_TEST

START_TEST(one_id_is_enough)
{
	struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
	struct tfmc_sampler *s;
	float logits[VOCAB];
	o.top_k = 3;
	o.top_p = 0.5;
	o.min_p = 1;
	o.temperature = 1e-6;
	ck_assert_int_eq(tfmc_sampler_create(&o, 1, &s), TFMC_RT_OK);
	for (int i = 0; i < 20; i++) {
		static const float only[] = {-3e38f, 0, 3e38f, INFINITY};
		ck_assert_int_eq(tfmc_sampler_draw(s, &only[i % 4], NULL, NULL, 0), 0);
	}
	tfmc_sampler_destroy(s);
	s = sampler(&o);
	for (int id = 0; id < VOCAB; id++) {
		for (int i = 0; i < VOCAB; i++)
			logits[i] = i == id ? -3e38f : -INFINITY;
		ck_assert_int_eq(tfmc_sampler_draw(s, logits, NULL, NULL, 0), id);
	}
	tfmc_sampler_destroy(s);
}
END_TEST

/* Which ids can be drawn at all, on random logits with ties. */
START_TEST(cuts_leave_the_right_ids)
{
	struct rng rng = rng_seed(7);
	for (int round = 0; round < 400; round++) {
		struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
		float logits[VOCAB];
		double p[VOCAB];
		int seen[VOCAB] = {0};
		for (int i = 0; i < VOCAB; i++)
			logits[i] = (float)((int)(rng_next(&rng) % 9) - 4) / 4;
		o.top_k = (int64_t)(rng_next(&rng) % (VOCAB + 2));
		o.top_p = 0.05 + (double)(rng_next(&rng) % 96) / 100.0;
		o.min_p = (double)(rng_next(&rng) % 80) / 100.0;
		o.temperature = 0.4 + (double)(rng_next(&rng) % 30) / 10.0;
		o.seed = rng_next(&rng);
		reference(&o, logits, (struct past){NULL, 0}, p);
		struct tfmc_sampler *s = sampler(&o);
		for (int i = 0; i < 3000; i++)
			seen[tfmc_sampler_draw(s, logits, NULL, NULL, 0)]++;
		for (int i = 0; i < VOCAB; i++)
			ck_assert_msg((p[i] > 0) == (seen[i] > 0),
			              "round %d: id %d, probability %g, drawn %d times", round, i, p[i],
			              seen[i]);
		tfmc_sampler_destroy(s);
	}
}
END_TEST

START_TEST(seeds_draw_the_same_ids)
{
	/* the ids that seed 1 gives from even odds: SplitMix64's first outputs in units of 1 / 12 */
	static const float even[VOCAB] = {0};
	static const float sloped[VOCAB] = {3, 2.5f, 2, 1.5f, 1, 0.5f, 0, -0.5f, -1, -1.5f, -2, -2.5f};
	struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
	o.seed = 1;
	struct tfmc_sampler *a = sampler(&o), *b = sampler(&o);
	uint64_t state = 1;
	for (int i = 0; i < 1000; i++) {
		uint64_t z = state += 0x9e3779b97f4a7c15u;
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		int32_t want = (int32_t)((double)((z ^ (z >> 31)) >> 11) * 0x1p-53 * VOCAB);
		ck_assert_int_eq(tfmc_sampler_draw(a, even, NULL, NULL, 0), want);
		ck_assert_int_eq(tfmc_sampler_draw(b, even, NULL, NULL, 0), want);
	}
	o.top_k = 9;
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(tfmc_sampler_draw(a, sloped, NULL, NULL, 0),
		                 tfmc_sampler_draw(b, sloped, NULL, NULL, 0));
	tfmc_sampler_destroy(a);
	tfmc_sampler_destroy(b);
}
END_TEST

START_TEST(penalties_change_logits)
{
	static const float logits[VOCAB] = {2, 2, -1, -1, 0};
	static const int32_t history[] = {0, 2, 0, 77, -1};
	struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
	o.top_k = 1;
	o.repetition_penalty = 1.5;
	struct tfmc_sampler *s = sampler(&o);
	ck_assert_int_eq(tfmc_sampler_draw(s, logits, NULL, NULL, 0), 0);
	ck_assert_int_eq(tfmc_sampler_draw(s, logits, NULL, history, 5), 1); /* 2 / 1.5 < 2 */
	tfmc_sampler_destroy(s);
	o.repetition_penalty = 1;
	o.presence_penalty = -5; /* 2 + 5, and for id 2: -1 + 5 */
	s = sampler(&o);
	ck_assert_int_eq(tfmc_sampler_draw(s, logits, NULL, history + 1, 1), 2);
	tfmc_sampler_destroy(s);
	o.presence_penalty = 0;
	o.frequency_penalty = 0.9; /* 2 - 1.8 for id 0 */
	s = sampler(&o);
	ck_assert_int_eq(tfmc_sampler_draw(s, logits, NULL, history, 3), 1);
	tfmc_sampler_destroy(s);
}
END_TEST

START_TEST(odd_logits)
{
	float logits[VOCAB];
	unsigned char excluded[VOCAB] = {0};
	struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
	struct tfmc_sampler *s = sampler(&o);
	for (int i = 0; i < VOCAB; i++)
		logits[i] = i % 2 ? NAN : -INFINITY;
	ck_assert_int_eq(tfmc_sampler_draw(s, logits, NULL, NULL, 0), -1);
	logits[4] = -1e30f;
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(tfmc_sampler_draw(s, logits, NULL, NULL, 0), 4);
	excluded[4] = 1;
	ck_assert_int_eq(tfmc_sampler_draw(s, logits, excluded, NULL, 0), -1);
	logits[6] = logits[9] = INFINITY;
	logits[8] = 3e38f;
	int seen[VOCAB] = {0};
	for (int i = 0; i < 200; i++)
		seen[tfmc_sampler_draw(s, logits, excluded, NULL, 0)]++;
	ck_assert_int_eq(seen[6] + seen[9], 200);
	ck_assert(seen[6] > 50 && seen[9] > 50);
	tfmc_sampler_destroy(s);
}
END_TEST

START_TEST(refuses_what_is_out_of_range)
{
	static const struct tfmc_sample_options good = TFMC_SAMPLE_DEFAULTS;
	struct tfmc_sampler *s;
	struct tfmc_sample_options o = good;
#define REFUSED(field, value)                                                           \
	do {                                                                            \
		o = good;                                                               \
		o.field = value;                                                        \
		ck_assert_int_eq(tfmc_sampler_create(&o, VOCAB, &s), TFMC_RT_E_SAMPLE); \
		ck_assert_ptr_null(s);                                                  \
	} while (0)
	REFUSED(temperature, 0);
	REFUSED(temperature, NAN);
	REFUSED(temperature, INFINITY);
	REFUSED(top_k, -1);
	REFUSED(top_p, 0);
	REFUSED(top_p, 1.01);
	REFUSED(min_p, -0.1);
	REFUSED(min_p, NAN);
	REFUSED(repetition_penalty, 0);
	REFUSED(frequency_penalty, INFINITY);
#undef REFUSED
	ck_assert_int_eq(tfmc_sampler_create(&good, 0, &s), TFMC_RT_E_SAMPLE);
	o = good;
	o.struct_size = 8;
	ck_assert_int_eq(tfmc_sampler_create(&o, VOCAB, &s), TFMC_RT_E_ABI);
}
END_TEST

Suite *suite_sample(void);
Suite *suite_sample(void)
{
	Suite *s = suite_create("sample");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 280);
	tcase_add_test(t, draws_follow_the_distribution);
	tcase_add_test(t, odd_settings_follow_the_distribution);
	tcase_add_test(t, cuts_leave_the_right_ids);
	tcase_add_test(t, cuts_of_large_vocabularies);
	tcase_add_test(t, one_id_is_enough);
	tcase_add_test(t, seeds_draw_the_same_ids);
	tcase_add_test(t, penalties_change_logits);
	tcase_add_test(t, odd_logits);
	tcase_add_test(t, refuses_what_is_out_of_range);
	suite_add_tcase(s, t);
	return s;
}
