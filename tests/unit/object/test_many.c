/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences that are generated side by side: each is what it is alone, greedy and
 * drawn, under constraints, however many there are for the places of the session; one that
 * cannot be begun fails alone.
 */
#include <check.h>

#include "tests/support/mini_session.h"
#include "tests/support/random/rng.h"

Suite *suite_many(void);

enum { V = MINI_V, MAX_T = MINI_MAX_T, N_SOURCE = 6, N = 11 };

struct many {
	int32_t sources[N][N_SOURCE], out[N][MAX_T];
	double log_p[N][MAX_T];
	struct tfmc_generation items[N];
};

static void fill(struct many *x, uint64_t seed)
{
	struct rng rng = rng_seed(seed);
	for (int i = 0; i < N; i++) {
		for (int k = 0; k < N_SOURCE; k++)
			x->sources[i][k] = (int32_t)rng_below(&rng, V);
		x->items[i] = (struct tfmc_generation){.prompt = x->sources[i],
		                                       .n_prompt = (uint64_t)rng_between(&rng, 1, N_SOURCE),
		                                       .out = x->out[i],
		                                       .cap = (uint64_t)rng_between(&rng, 1, MAX_T),
		                                       .log_p = x->log_p[i]};
	}
}

static void check_alone(struct tfmc_session *alone, const struct tfmc_generate_options *options,
                        const struct tfmc_generation *have)
{
	int32_t want[MAX_T];
	double log_p[MAX_T];
	enum tfmc_finish finish;
	uint64_t n;
	struct tfmc_generate_options o = *options;
	o.log_p = log_p;
	o.finish = &finish;
	ck_assert_int_eq(tfmc_generate(alone, &o, have->prompt, have->n_prompt, NULL, 0, want, have->cap, &n),
	                 TFMC_RT_OK);
	ck_assert_int_eq(have->status, TFMC_RT_OK);
	ck_assert_uint_eq(have->n, n);
	ck_assert_int_eq(have->finish, finish);
	ck_assert_mem_eq(have->out, want, n * sizeof(*want));
	ck_assert_mem_eq(have->log_p, log_p, n * sizeof(*log_p));
}

START_TEST(each_is_what_it_is_alone)
{
	const struct tfmc_sample_options sample = {.struct_size = sizeof(sample),
	                                           .repetition_penalty = 1.3,
	                                           .temperature = 1.5,
	                                           .top_p = 0.9,
	                                           .seed = 17};
	const struct tfmc_constraints constraints = {
	        .struct_size = sizeof(constraints), .no_repeat_ngram = 2, .min_new_tokens = 2};
	static struct many x;
	struct mini_session m, alone;
	mini_open(&m, NULL, 1);
	mini_open(&alone, NULL, 1);
	for (int variant = 0; variant < 4; variant++) {
		const struct tfmc_generate_options o = {.struct_size = sizeof(o),
		                                        .sample = variant & 1 ? &sample : NULL,
		                                        .constraints = variant & 2 ? &constraints : NULL};
		fill(&x, (uint64_t)variant + 5);
		ck_assert_int_eq(tfmc_generate_many(m.session, &o, x.items, N), TFMC_RT_OK);
		for (int i = 0; i < N; i++)
			check_alone(alone.session, &o, &x.items[i]);
	}
	mini_close(&m);
	mini_close(&alone);
}
END_TEST

static int hear(void *user, int32_t token)
{
	(void)user;
	(void)token;
	return 0;
}

START_TEST(failures_stay_alone)
{
	struct tfmc_generate_options o = {.struct_size = sizeof(o)};
	static struct many x;
	struct mini_session m, alone;
	mini_open(&m, NULL, 1);
	mini_open(&alone, NULL, 1);
	fill(&x, 3);
	x.sources[4][0] = V;
	x.items[7].n_prompt = 0;
	x.items[8].cap = 0;
	ck_assert_int_eq(tfmc_generate_many(m.session, &o, x.items, N), TFMC_RT_OK);
	for (int i = 0; i < N; i++)
		if (i != 4 && i != 7)
			check_alone(alone.session, &o, &x.items[i]);
	ck_assert_int_eq(x.items[4].status, TFMC_RT_E_PROMPT);
	ck_assert_int_eq(x.items[4].finish, TFMC_FINISH_FAILED);
	ck_assert_int_ne(x.items[7].status, TFMC_RT_OK);
	ck_assert_uint_eq(x.items[4].n + x.items[7].n + x.items[8].n, 0);
	ck_assert_int_eq(tfmc_generate_many(m.session, NULL, x.items, 0), TFMC_RT_OK);
	o.on_token = hear;
	ck_assert_int_eq(tfmc_generate_many(m.session, &o, x.items, N), TFMC_RT_E_CONSTRAINTS);
	ck_assert_int_ne(x.items[0].status, TFMC_RT_OK);
	o.struct_size = 1;
	ck_assert_int_eq(tfmc_generate_many(m.session, &o, x.items, N), TFMC_RT_E_ABI);
	mini_close(&m);
	mini_close(&alone);
}
END_TEST

Suite *suite_many(void)
{
	Suite *s = suite_create("many");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 280);
	tcase_add_test(t, each_is_what_it_is_alone);
	tcase_add_test(t, failures_stay_alone);
	suite_add_tcase(s, t);
	return s;
}
