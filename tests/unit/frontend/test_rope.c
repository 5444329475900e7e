/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frequencies of rotary positions against numbers computed from the published
 * formulas by another program, and what is refused.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "frontend/lower/rope.h"

Suite *suite_rope(void);

static struct arena arena;

static void setup(void)
{
	arena_init(&arena);
}

static void teardown(void)
{
	arena_destroy(&arena);
}

static struct rope_params plain(double theta, int64_t dim)
{
	return (struct rope_params){.theta = theta, .dim = dim, .truncate = true};
}

static void expect(struct rope_params r, double scale, size_t n, const double *want)
{
	double have[64], s;
	const char *wrong = rope_check(&arena, &r, 64);
	ck_assert_msg(wrong == NULL, "%s", wrong);
	ck_assert_uint_eq((size_t)r.dim / 2, n);
	rope_frequencies(&r, have, &s);
	ck_assert_double_eq_tol(s, scale, 1e-15);
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(fabs(have[i] - want[i]) <= 1e-14 * want[i],
		              "frequency %zu is %.17g, expected %.17g", i, have[i], want[i]);
}

#define EXPECT(r, scale, ...)                                                  \
	do {                                                                   \
		const double want_[] = {__VA_ARGS__};                          \
		expect((r), (scale), sizeof(want_) / sizeof(want_[0]), want_); \
	} while (0)

START_TEST(plain_and_linear)
{
	struct rope_params r = plain(10000, 8);
	EXPECT(r, 1, 1.0, 0.1, 0.01, 0.001);
	r.scaling = ROPE_LINEAR;
	r.factor = 4;
	EXPECT(r, 1, 0.25, 0.025, 0.0025, 0.00025);
}
END_TEST

START_TEST(llama3)
{
	struct rope_params r = plain(100, 12);
	r.scaling = ROPE_LLAMA3;
	r.factor = 4;
	r.low = 1;
	r.high = 4;
	r.original = 64;
	EXPECT(r, 1, 1.0, 0.4641588833612779, 0.11819708906713901, 0.025464790894703257, 0.011603972084031949,
	       0.005386086725079708);
	r = plain(500000, 16);
	r.scaling = ROPE_LLAMA3;
	r.factor = 8;
	r.low = 1;
	r.high = 4;
	r.original = 8192;
	EXPECT(r, 1, 1.0, 0.19392274474868576, 0.03760603093086393, 0.007292664737217109,
	       0.0005248461609929547, 3.428102195952591e-05, 6.647869871181235e-06, 1.2891731721515574e-06);
}
END_TEST

START_TEST(yarn)
{
	struct rope_params r = plain(100, 16);
	r.scaling = ROPE_YARN;
	r.beta_fast = 32;
	r.beta_slow = 1;
	r.factor = 4;
	r.original = 256;
	EXPECT(r, 1.138629436111989, 1.0, 0.5020904689199546, 0.24846467329894412, 0.12066895996692692,
	       0.05714285714285715, 0.02610870438383764, 0.011293848786315641, 0.004445698525097307);
	r.truncate = false;
	EXPECT(r, 1.138629436111989, 1.0, 0.521685890183349, 0.25397231355700634, 0.12066669111942574,
	       0.05539863663460478, 0.024147727312344734, 0.00963994285097862, 0.004445698525097307);
	r = plain(10000, 16);
	r.scaling = ROPE_YARN;
	r.beta_fast = 32;
	r.beta_slow = 1;
	r.factor = 40;
	r.original = 4096;
	r.attention_factor = 1.5;
	EXPECT(r, 1.5, 1.0, 0.31622776601683794, 0.1, 0.023914724805023366, 0.005125, 0.000849862121170252,
	       2.5e-05, 7.905694150420949e-06);
}
END_TEST

START_TEST(longrope)
{
	struct rope_params r = plain(10000, 4);
	r.scaling = ROPE_LONGROPE;
	r.factors = (double[]){2, 5};
	r.n_factors = 2;
	EXPECT(r, 1, 0.5, 0.002);
	r.attention_factor = 1.25;
	EXPECT(r, 1.25, 0.5, 0.002);
}
END_TEST

static void refused(struct rope_params r, const char *says)
{
	const char *wrong = rope_check(&arena, &r, 8);
	ck_assert_msg(wrong != NULL && strstr(wrong, says) != NULL, "'%s' does not say '%s'",
	              wrong ? wrong : "(accepted)", says);
}

START_TEST(refusals)
{
	struct rope_params r = plain(10000, 8), bad;
	refused(plain(10000, 7), "dim is 7, it must be even and at most 8");
	refused(plain(10000, 10), "dim is 10");
	refused(plain(10000, 0), "dim is 0");
	refused(plain(0, 8), "theta must be positive");
	refused(plain(NAN, 8), "theta must be positive");
	bad = r;
	bad.scaling = ROPE_LLAMA3;
	bad.factor = 2;
	bad.low = 2;
	bad.high = 1;
	bad.original = 64;
	refused(bad, "'low' of a scaling must be below 'high'");
	bad = plain(1, 8);
	bad.scaling = ROPE_YARN;
	bad.factor = 2;
	bad.original = 64;
	refused(bad, "theta above 1");
	bad = r;
	bad.scaling = ROPE_LONGROPE;
	bad.factors = (double[]){1, 2, 3};
	bad.n_factors = 3;
	refused(bad, "3 factors for 4 pairs");
}
END_TEST

Suite *suite_rope(void)
{
	Suite *s = suite_create("rope");
	TCase *t = tcase_create("frequencies");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, plain_and_linear);
	tcase_add_test(t, llama3);
	tcase_add_test(t, yarn);
	tcase_add_test(t, longrope);
	tcase_add_test(t, refusals);
	suite_add_tcase(s, t);
	return s;
}
