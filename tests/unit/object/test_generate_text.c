/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation of text on a compiled model: what is held back until no stop text can begin in it, searches that end with
 * one, texts that are never written.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/support/mini_session.h"
#include "tests/support/random/rng.h"

enum { MAX_T = MINI_MAX_T, N_SOURCE = 6 };

static const int32_t source[N_SOURCE] = {4, 9, 1, 13, 17, 2};

/* The text up to where the first stop text ends, without it; the longest of those that end there. */
static bool plain_cut(char *text, const char *const *stops, size_t n)
{
	for (size_t end = 1; end <= strlen(text); end++) {
		size_t cut = end;
		for (size_t i = 0; i < n; i++) {
			size_t length = strlen(stops[i]);
			if (length <= end && !memcmp(text + end - length, stops[i], length) &&
			    end - length < cut)
				cut = end - length;
		}
		if (cut < end) {
			text[cut] = 0;
			return true;
		}
	}
	return false;
}

START_TEST(stop_texts_are_never_heard)
{
	static const char *const stops[] = {"ab",  "b",  "aba", "cab",     "bcd",
	                                    "xxa", "lk", "ii",  "abcabca", "e"};
	struct mini_session m;
	struct rng rng = rng_seed(3);
	int n_cut = 0;
	mini_open(&m, MINI_VOCABULARY, 1);
	const struct tfmc_record *record = tfmc_session_record(m.session);
	for (int round = 0; round < 300; round++) {
		struct mini_heard h = {0};
		struct tfmc_sample_options sample = TFMC_SAMPLE_DEFAULTS;
		struct tfmc_constraints constraints = {.struct_size = sizeof(constraints)};
		struct tfmc_generate_options o = {.struct_size = sizeof(o), .ignore_stop = 1};
		enum tfmc_finish finish;
		int32_t whole[MAX_T], out[MAX_T];
		char text[256];
		uint64_t n_whole, n, bytes;
		sample.seed = rng_next(&rng);
		sample.temperature = 3;
		o.sample = &sample;
		ck_assert_int_eq(
		        tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, whole, MAX_T, &n_whole),
		        TFMC_RT_OK);
		ck_assert_int_eq(tfmc_text_decode(record, whole, n_whole, text, sizeof(text), &bytes),
		                 TFMC_RT_OK);
		uint64_t first = (uint64_t)rng_below(&rng, 8);
		constraints.stop_texts = stops + first;
		constraints.n_stop_texts = (uint64_t)rng_between(&rng, 1, (int64_t)(10 - first));
		o.constraints = &constraints;
		o.on_text = mini_hear;
		o.on_token = mini_count_token;
		o.user = &h;
		o.finish = &finish;
		ck_assert_int_eq(tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, &n),
		                 TFMC_RT_OK);
		ck_assert_int_eq((int)n, h.tokens);
		ck_assert_mem_eq(out, whole, (size_t)n * sizeof(*out));
		uint64_t cut_at = tfmc_text_stop(&constraints, text);
		bool is_cut = plain_cut(text, constraints.stop_texts, (size_t)constraints.n_stop_texts);
		ck_assert_str_eq(h.text, text);
		ck_assert_uint_eq(cut_at, strlen(text));
		ck_assert_int_eq(finish == TFMC_FINISH_TEXT, is_cut);
		ck_assert(is_cut || n == n_whole);
		n_cut += is_cut;
	}
	ck_assert(n_cut > 50 && n_cut < 290);
	mini_close(&m);
}
END_TEST

struct forbidden {
	const struct tfmc_record *record;
	const char *const *texts;
	size_t n;
};

/* Ids with which the text of ids[1..n) would contain one of the texts get no probability. */
static int forbid(void *user, float *logits, int64_t vocab, const int32_t *ids, uint64_t n)
{
	const struct forbidden *f = user;
	for (int32_t id = 0; id < vocab; id++) {
		int32_t all[MAX_T + 1];
		char text[256];
		uint64_t bytes;
		memcpy(all, ids + 1, (size_t)(n - 1) * sizeof(*ids));
		all[n - 1] = id;
		ck_assert_int_eq(tfmc_text_decode(f->record, all, n, text, sizeof(text), &bytes), TFMC_RT_OK);
		for (size_t i = 0; i < f->n; i++)
			if (strstr(text, f->texts[i]))
				logits[id] = -INFINITY;
	}
	return 0;
}

START_TEST(banned_texts_are_never_written)
{
	static const char *const texts[] = {"ab",  "b",  "aba", "cab",     "bcd",
	                                    "xxa", "lk", "ii",  "abcabca", "e"};
	struct mini_session m;
	struct rng rng = rng_seed(17);
	int n_other = 0;
	mini_open(&m, MINI_VOCABULARY, 1);
	const struct tfmc_record *record = tfmc_session_record(m.session);
	for (int round = 0; round < 300; round++) {
		struct tfmc_sample_options sample = TFMC_SAMPLE_DEFAULTS;
		struct tfmc_constraints banned = {.struct_size = sizeof(banned)}, plain = banned;
		struct tfmc_generate_options o = {.struct_size = sizeof(o), .ignore_stop = 1};
		int32_t free[MAX_T], want[MAX_T], have[MAX_T];
		uint64_t n_free, n_want, n;
		size_t first = (size_t)rng_below(&rng, 8);
		struct forbidden f = {record, texts + first,
		                      (size_t)rng_between(&rng, 1, (int64_t)(10 - first))};
		sample.seed = rng_next(&rng);
		sample.temperature = 3;
		o.sample = rng_below(&rng, 4) ? &sample : NULL;
		ck_assert_int_eq(
		        tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, free, MAX_T, &n_free),
		        TFMC_RT_OK);
		plain.on_logits = forbid;
		plain.user = &f;
		o.constraints = &plain;
		ck_assert_int_eq(
		        tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, want, MAX_T, &n_want),
		        TFMC_RT_OK);
		banned.banned_texts = f.texts;
		banned.n_banned_texts = f.n;
		o.constraints = &banned;
		ck_assert_int_eq(tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, have, MAX_T, &n),
		                 TFMC_RT_OK);
		ck_assert_uint_eq(n, n_want);
		ck_assert_mem_eq(have, want, (size_t)n * sizeof(*have));
		n_other += n != n_free || memcmp(have, free, (size_t)n * sizeof(*have)) != 0;
	}
	ck_assert_int_gt(n_other, 50);
	mini_close(&m);
}
END_TEST

/* A beam that ends with a stop text has it across its last token, and nowhere before. */
START_TEST(beams_end_with_stop_texts)
{
	static const char *const stops[] = {"ab", "ca", "bb"};
	struct mini_session m;
	int n_ended = 0;
	mini_open(&m, MINI_VOCABULARY, 1);
	const struct tfmc_record *record = tfmc_session_record(m.session);
	for (int64_t penalty = 0; penalty < 5; penalty++) {
		struct tfmc_constraints constraints = {
		        .struct_size = sizeof(constraints), .stop_texts = stops, .n_stop_texts = 3};
		struct tfmc_beam_options o = {
		        .struct_size = sizeof(o), .beam = MINI_MAX_B, .constraints = &constraints};
		struct tfmc_hypothesis got[3 * MINI_MAX_B];
		int32_t tokens[3 * MINI_MAX_B][MAX_T];
		uint64_t n, bytes;
		o.length_penalty = (double)penalty / 2;
		for (int i = 0; i < 3 * MINI_MAX_B; i++)
			got[i] = (struct tfmc_hypothesis){.tokens = tokens[i], .cap = MAX_T};
		ck_assert_int_eq(
		        tfmc_beam_search(m.session, &o, source, N_SOURCE, NULL, 0, got, 3 * MINI_MAX_B, &n),
		        TFMC_RT_OK);
		for (uint64_t i = 0; i < n; i++) {
			char text[256], before[256];
			ck_assert_int_eq(tfmc_text_decode(record, tokens[i], got[i].n, text, 256, &bytes),
			                 TFMC_RT_OK);
			ck_assert_int_eq(
			        tfmc_text_decode(record, tokens[i], got[i].n - 1, before, 256, &bytes),
			        TFMC_RT_OK);
			ck_assert(!plain_cut(before, stops, 3));
			bool by_text = plain_cut(text, stops, 3),
			     by_id = tokens[i][got[i].n - 1] == MINI_STOP;
			ck_assert(by_text || by_id || got[i].n == MAX_T - 1);
			n_ended += by_text;
		}
	}
	ck_assert_int_gt(n_ended, 0);
	mini_close(&m);
}
END_TEST

Suite *suite_generate_text(void);
Suite *suite_generate_text(void)
{
	Suite *s = suite_create("generate_text");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 280);
	tcase_add_test(t, stop_texts_are_never_heard);
	tcase_add_test(t, banned_texts_are_never_written);
	tcase_add_test(t, beams_end_with_stop_texts);
	suite_add_tcase(s, t);
	return s;
}
