/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation under constraints, on a compiled model: random rules against a plain
 * reading of their definitions, callbacks, cancellation,
 * logits that are no numbers, and what is refused.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/mini_session.h"
#include "tests/support/random/rng.h"

enum { V = MINI_V, MAX_T = MINI_MAX_T, N_SOURCE = 6 };

static const int32_t source[N_SOURCE] = {4, 9, 1, 13, 17, 2};

/* ---- a plain reading of the constraints ---- */

static bool contains(const struct tfmc_ids *ids, int32_t id)
{
	for (uint64_t i = 0; i < ids->n; i++)
		if (ids->items[i] == id)
			return true;
	return false;
}

/* ids[0..n) would hold an n-gram twice whose last one is at its end. */
static bool repeats(const int32_t *ids, int n, int length)
{
	for (int at = 0; length > 0 && at + length < n; at++)
		if (!memcmp(ids + at, ids + n - length, (size_t)length * sizeof(*ids)))
			return true;
	return false;
}

/* `id` may follow ids[0..n), the first of which is the start id. */
static bool may_follow(const struct tfmc_constraints *r, const int32_t *ids, int n, int32_t id)
{
	int32_t all[MAX_T + 1];
	int n_new = n - 1;
	memcpy(all, ids, (size_t)n * sizeof(*ids));
	all[n] = id;
	if ((uint64_t)n_new < r->forced.n)
		return id == r->forced.items[n_new];
	if (id == MINI_BANNED || (n_new == 0 && id == MINI_FIRST) || contains(&r->suppress, id))
		return false;
	bool stops = id == MINI_STOP || contains(&r->stop, id);
	if ((n_new < r->min_new_tokens || n < r->min_tokens) && stops)
		return false;
	for (int at = 0, length = (int)r->source_no_repeat_ngram; length > 0 && at + length <= N_SOURCE; at++)
		if (length <= n + 1 &&
		    !memcmp(source + at, all + n + 1 - length, (size_t)length * sizeof(*all)))
			return false;
	for (uint64_t i = 0; i < r->n_banned; i++) {
		int length = (int)r->banned[i].n;
		if (length <= n + 1 &&
		    !memcmp(all + n + 1 - length, r->banned[i].items, (size_t)length * sizeof(*all)))
			return false;
	}
	return !repeats(all, n + 1, (int)r->no_repeat_ngram);
}

static int count_of(const int32_t *ids, int n, int32_t id)
{
	int count = 0;
	for (int i = 0; i < n; i++)
		count += ids[i] == id;
	return count;
}

static double divided(double score, double by)
{
	return score < 0 ? score * by : score / by;
}

/* The score of an id after ids[0..n). */
static float changed(const struct tfmc_constraints *r, const int32_t *ids, int n, int32_t id, double score)
{
	int32_t all[MAX_T + 1];
	int count = count_of(ids, n, id), decays = n - 1 - (int)r->decay_after;
	memcpy(all, ids, (size_t)n * sizeof(*ids));
	all[n] = id;
	for (uint64_t i = 0; i < r->n_biases; i++) {
		const struct tfmc_ids *b = &r->biases[i].ids;
		if ((int)b->n <= n + 1 && !memcmp(all + n + 1 - b->n, b->items, (size_t)b->n * sizeof(*all)))
			score += r->biases[i].by;
	}
	if (count_of(source, N_SOURCE, id))
		score = divided(score, 1 / r->source_repetition_penalty);
	if (count)
		score = divided(score, r->repetition_penalty) - r->presence_penalty -
		        r->frequency_penalty * count;
	if (r->decay > 0 && decays > 0 && (id == MINI_STOP || contains(&r->stop, id)))
		score += fabs(score) * (pow(r->decay, decays) - 1);
	return (float)score;
}

/* Greedy, every step from the beginning. Gives the number of new ids. */
static int plain_greedy(struct tfmc_session *s, const struct tfmc_constraints *r, int limit, int32_t *out)
{
	int32_t ids[MAX_T + 1] = {MINI_START};
	for (int n = 0; n < limit; n++) {
		float logits[V];
		int32_t best = -1;
		mini_encode(s, source, N_SOURCE);
		mini_prefill(s, ids, (uint64_t)n + 1, logits);
		bool is_last = n + 1 == limit && r->forced_last.n;
		for (int32_t id = 0; id < V; id++)
			logits[id] = changed(r, ids, n + 1, id, (double)logits[id]);
		for (int32_t id = 0; id < V; id++)
			if (is_last ? contains(&r->forced_last, id) && best < 0
			            : may_follow(r, ids, n + 1, id) &&
			                      (best < 0 || logits[id] > logits[best]))
				best = id;
		if (best < 0)
			return -1;
		out[n] = ids[n + 1] = best;
		if ((uint64_t)n >= r->forced.n && (best == MINI_STOP || contains(&r->stop, best)))
			return n + 1;
	}
	return limit;
}

struct random_rules {
	struct tfmc_constraints constraints;
	int32_t forced[3], suppress[V], stop[4], sequences[6][3];
	struct tfmc_ids banned[6];
	struct tfmc_bias biases[4];
	int32_t biased[4][3], last[2];
};

static void draw_ids(struct rng *rng, int32_t *ids, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		ids[i] = (int32_t)rng_below(rng, V);
}

static void draw_rules(struct rng *rng, struct random_rules *r)
{
	*r = (struct random_rules){.constraints = {.struct_size = sizeof(r->constraints)}};
	int64_t n_forced = rng_below(rng, 4), n_suppress = rng_below(rng, V - 2), n_stop = rng_below(rng, 5);
	draw_ids(rng, r->forced, n_forced);
	draw_ids(rng, r->suppress, n_suppress);
	draw_ids(rng, r->stop, n_stop);
	r->constraints.forced = (struct tfmc_ids){r->forced, (uint64_t)n_forced};
	r->constraints.suppress = (struct tfmc_ids){r->suppress, (uint64_t)n_suppress};
	r->constraints.stop = (struct tfmc_ids){r->stop, (uint64_t)n_stop};
	r->constraints.n_banned = (uint64_t)rng_below(rng, 7);
	r->constraints.banned = r->banned;
	for (uint64_t i = 0; i < r->constraints.n_banned; i++) {
		draw_ids(rng, r->sequences[i], 3);
		r->banned[i] = (struct tfmc_ids){r->sequences[i], (uint64_t)rng_between(rng, 1, 3)};
	}
	r->constraints.no_repeat_ngram = rng_below(rng, 4);
	r->constraints.min_new_tokens = rng_below(rng, 6);
}

/* Changes of scores, of which the best id depends. */
static void draw_changes(struct rng *rng, struct random_rules *r)
{
	static const double factors[] = {1, 1, 1.3, 0.7, 2.5};
	r->constraints.n_biases = (uint64_t)rng_below(rng, 5);
	r->constraints.biases = r->biases;
	for (uint64_t i = 0; i < r->constraints.n_biases; i++) {
		draw_ids(rng, r->biased[i], 3);
		r->biases[i].ids = (struct tfmc_ids){r->biased[i], (uint64_t)rng_between(rng, 1, 3)};
		r->biases[i].by = (double)rng_between(rng, -8, 8) / 2;
	}
	r->constraints.repetition_penalty = factors[rng_below(rng, 5)];
	r->constraints.source_repetition_penalty = factors[rng_below(rng, 5)];
	r->constraints.presence_penalty = (double)rng_below(rng, 3) / 4;
	r->constraints.frequency_penalty = (double)rng_below(rng, 3) / 4;
	r->constraints.decay = rng_below(rng, 2) ? 0 : factors[rng_below(rng, 5)];
	r->constraints.decay_after = rng_below(rng, 4);
	r->constraints.source_no_repeat_ngram = rng_below(rng, 4);
	r->constraints.min_tokens = rng_below(rng, 6);
	draw_ids(rng, r->last, 2);
	r->constraints.forced_last = (struct tfmc_ids){r->last, (uint64_t)rng_below(rng, 3)};
}

START_TEST(follows_the_rules)
{
	struct mini_session m;
	struct rng rng = rng_seed(11), changes = rng_seed(12);
	int n_stopped = 0, n_stuck = 0;
	mini_open(&m, NULL, 1);
	for (int round = 0; round < 300; round++) {
		struct random_rules r;
		int32_t want[MAX_T], have[MAX_T];
		uint64_t n;
		enum tfmc_finish finish;
		draw_rules(&rng, &r);
		draw_changes(&changes, &r);
		struct tfmc_sample_options one = TFMC_SAMPLE_DEFAULTS;
		struct tfmc_generate_options o = {
		        .struct_size = sizeof(o), .constraints = &r.constraints, .finish = &finish};
		o.max_new_tokens = rng_between(&rng, 1, MAX_T - 1);
		one.top_k = 1; /* sampling from one id is greedy */
		o.sample = rng_below(&rng, 2) ? &one : NULL;
		int n_want = plain_greedy(m.session, &r.constraints, (int)o.max_new_tokens, want);
		int status = tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, have, MAX_T, &n);
		if (n_want < 0) {
			ck_assert_int_eq(status, TFMC_RT_E_LOGITS);
			ck_assert_int_eq(finish, TFMC_FINISH_FAILED);
			n_stuck++;
			continue;
		}
		ck_assert_int_eq(status, TFMC_RT_OK);
		ck_assert_int_eq((int)n, n_want);
		ck_assert_mem_eq(have, want, (size_t)n * sizeof(*have));
		n_stopped += finish == TFMC_FINISH_STOP;
		ck_assert(finish == TFMC_FINISH_STOP || (int64_t)n == o.max_new_tokens);
	}
	ck_assert_msg(n_stopped > 30 && n_stuck > 0 && n_stuck < 100, "%d, %d", n_stopped, n_stuck);
	mini_close(&m);
}
END_TEST

/* A beam as wide as everything that can be written, under constraints: no hypothesis breaks one, and the best is as
 * good as the greedy one. */
START_TEST(beams_follow_the_rules)
{
	struct mini_session m;
	struct rng rng = rng_seed(5);
	mini_open(&m, NULL, 1);
	for (int round = 0; round < 100; round++) {
		struct random_rules r;
		struct tfmc_hypothesis got[3 * MINI_MAX_B];
		int32_t tokens[3 * MINI_MAX_B][MAX_T];
		uint64_t n;
		draw_rules(&rng, &r);
		struct tfmc_beam_options o = {
		        .struct_size = sizeof(o), .length_penalty = 1, .constraints = &r.constraints};
		o.beam = rng_between(&rng, 1, MINI_MAX_B);
		o.max_new_tokens = rng_between(&rng, 1, MAX_T - 1);
		for (int i = 0; i < 3 * MINI_MAX_B; i++)
			got[i] = (struct tfmc_hypothesis){.tokens = tokens[i], .cap = MAX_T};
		int status =
		        tfmc_beam_search(m.session, &o, source, N_SOURCE, NULL, 0, got, 3 * MINI_MAX_B, &n);
		ck_assert(status == TFMC_RT_OK || (status == TFMC_RT_E_LOGITS && n == 0));
		for (uint64_t i = 0; i < n; i++) {
			int32_t ids[MAX_T + 1] = {MINI_START};
			double log_p[MAX_T], sum = 0;
			for (uint64_t k = 0; k < got[i].n; k++) {
				ck_assert(may_follow(&r.constraints, ids, (int)k + 1, tokens[i][k]));
				bool is_last = k + 1 == got[i].n;
				bool stops = tokens[i][k] == MINI_STOP ||
				             contains(&r.constraints.stop, tokens[i][k]);
				ck_assert(is_last || !stops || k < r.constraints.forced.n);
				ids[k + 1] = tokens[i][k];
			}
			ck_assert_int_eq(tfmc_score(m.session, source, N_SOURCE, tokens[i], got[i].n, log_p),
			                 TFMC_RT_OK);
			for (uint64_t k = 0; k < got[i].n; k++)
				sum += log_p[k];
			ck_assert_double_eq_tol(sum, got[i].log_p, 1e-9 * (1 + fabs(sum)));
		}
	}
	mini_close(&m);
}
END_TEST

/* ---- callbacks ---- */

struct meddler {
	struct tfmc_session *session;
	int at;    /* which row */
	float put; /* into every logit of that row but id 9's; what is put there: */
	float at_nine;
	bool all, cancel, cancel_session;
	int n;
	int32_t last[MAX_T + 1];
	uint64_t n_last;
};

static int meddle(void *user, float *logits, int64_t vocab, const int32_t *ids, uint64_t n)
{
	struct meddler *w = user;
	memcpy(w->last, ids, (size_t)n * sizeof(*ids));
	w->n_last = n;
	if (w->n++ != w->at)
		return 0;
	if (w->cancel_session)
		tfmc_session_cancel(w->session);
	for (int64_t i = 0; i < vocab; i++)
		if (w->all && i != 9)
			logits[i] = w->put;
	logits[9] = w->at_nine;
	return w->cancel;
}

static int generate_with(struct mini_session *m, struct meddler *w, const struct tfmc_sample_options *sample,
                         int32_t *out, uint64_t *n)
{
	struct tfmc_constraints constraints = {
	        .struct_size = sizeof(constraints), .on_logits = meddle, .user = w};
	struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .ignore_stop = 1, .constraints = &constraints};
	o.sample = sample;
	w->session = m->session;
	w->n = 0;
	return tfmc_generate(m->session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, n);
}

START_TEST(odd_logits_are_reported)
{
	static const float odd[] = {NAN, -NAN, INFINITY};
	static const struct tfmc_sample_options sample = TFMC_SAMPLE_DEFAULTS;
	struct mini_session m;
	int32_t out[MAX_T], plain[MAX_T];
	uint64_t n;
	mini_open(&m, NULL, 1);
	struct meddler none = {.at = -1};
	ck_assert_int_eq(generate_with(&m, &none, NULL, plain, &n), TFMC_RT_OK);
	ck_assert_int_eq((int)n, MAX_T - 1);
	for (int at = 0; at < 4; at++)
		for (int i = 0; i < 12; i++) {
			struct meddler w = {.at = at, .put = 1, .at_nine = odd[i % 3], .all = i % 2};
			const struct tfmc_sample_options *s = i < 6 ? NULL : &sample;
			ck_assert_int_eq(generate_with(&m, &w, s, out, &n), TFMC_RT_E_LOGITS);
			ck_assert_int_eq((int)n, at); /* what came before is there */
			ck_assert(s || !memcmp(out, plain, (size_t)n * sizeof(*out)));
		}
	/* all -infinity: nothing to choose; all but one: that one */
	for (int i = 0; i < 2; i++) {
		struct meddler w = {.at = 2, .put = -INFINITY, .at_nine = -INFINITY, .all = true};
		ck_assert_int_eq(generate_with(&m, &w, i ? &sample : NULL, out, &n), TFMC_RT_E_LOGITS);
		w.at_nine = -1e30f;
		ck_assert_int_eq(generate_with(&m, &w, i ? &sample : NULL, out, &n), TFMC_RT_OK);
		ck_assert_int_eq(out[2], 9);
	}
	mini_close(&m);
}
END_TEST

START_TEST(odd_logits_end_a_search)
{
	struct mini_session m;
	int32_t tokens[MAX_T];
	struct tfmc_hypothesis h = {.tokens = tokens, .cap = MAX_T};
	uint64_t n;
	mini_open(&m, NULL, 1);
	for (int at = 0; at < 8; at += 3) {
		struct meddler w = {.at = at, .at_nine = NAN};
		struct tfmc_constraints constraints = {
		        .struct_size = sizeof(constraints), .on_logits = meddle, .user = &w};
		struct tfmc_beam_options o = {
		        .struct_size = sizeof(o), .beam = 3, .constraints = &constraints};
		ck_assert_int_eq(tfmc_beam_search(m.session, &o, source, N_SOURCE, NULL, 0, &h, 1, &n),
		                 TFMC_RT_E_LOGITS);
		w = (struct meddler){.at = at, .cancel = true, .at_nine = 0};
		ck_assert_int_eq(tfmc_beam_search(m.session, &o, source, N_SOURCE, NULL, 0, &h, 1, &n),
		                 TFMC_RT_E_CANCELLED);
	}
	mini_close(&m);
}
END_TEST

START_TEST(callbacks_end_it)
{
	struct mini_session m;
	int32_t out[MAX_T];
	uint64_t n;
	enum tfmc_finish finish;
	mini_open(&m, MINI_VOCABULARY, 1);
	struct meddler w = {.at = 3, .at_nine = 100, .cancel = true};
	ck_assert_int_eq(generate_with(&m, &w, NULL, out, &n), TFMC_RT_E_CANCELLED);
	ck_assert_int_eq((int)n, 3);
	ck_assert_uint_eq(w.n_last, 4);
	ck_assert_int_eq(w.last[0], MINI_START);
	ck_assert_mem_eq(w.last + 1, out, 3 * sizeof(*out));
	w.cancel = false; /* changed logits decide */
	ck_assert_int_eq(generate_with(&m, &w, NULL, out, &n), TFMC_RT_OK);
	ck_assert_int_eq(out[3], 9);
	w = (struct meddler){.at = 3, .cancel_session = true}; /* taken before the next call of the model */
	ck_assert_int_eq(generate_with(&m, &w, NULL, out, &n), TFMC_RT_E_CANCELLED);
	ck_assert_int_eq((int)n, 4);
	tfmc_session_cancel(m.session); /* none runs: the next one ends */
	struct meddler none = {.at = -1};
	ck_assert_int_eq(generate_with(&m, &none, NULL, out, &n), TFMC_RT_E_CANCELLED);
	ck_assert_int_eq((int)n, 0);
	ck_assert_int_eq(generate_with(&m, &none, NULL, out, &n), TFMC_RT_OK);
	struct mini_heard h = {.limit = 2};
	struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .on_text = mini_hear, .user = &h, .finish = &finish};
	o.ignore_stop = 1;
	ck_assert_int_eq(tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, &n), TFMC_RT_OK);
	ck_assert_int_eq(h.pieces, 2);
	ck_assert_int_eq(finish, TFMC_FINISH_CALLBACK);
	mini_close(&m);
}
END_TEST

START_TEST(tells_log_p)
{
	struct mini_session m;
	int32_t out[MAX_T];
	double told[MAX_T], scored[MAX_T];
	uint64_t n;
	mini_open(&m, NULL, 1);
	for (uint64_t seed = 0; seed < 10; seed++) {
		struct tfmc_sample_options sample = TFMC_SAMPLE_DEFAULTS;
		struct tfmc_generate_options o = {.struct_size = sizeof(o), .ignore_stop = 1, .log_p = told};
		sample.temperature = 1.7;
		sample.seed = seed;
		o.sample = &sample;
		ck_assert_int_eq(tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, &n),
		                 TFMC_RT_OK);
		ck_assert_int_eq(tfmc_score(m.session, source, N_SOURCE, out, n, scored), TFMC_RT_OK);
		for (uint64_t i = 0; i < n; i++)
			ck_assert_double_eq(told[i], scored[i]);
	}
	mini_close(&m);
}
END_TEST

START_TEST(equal_for_any_number_of_workers)
{
	int32_t first[10][MAX_T];
	for (int64_t workers = 1; workers <= 4; workers++) {
		struct mini_session m;
		mini_open(&m, NULL, workers);
		for (uint64_t seed = 0; seed < 10; seed++) {
			struct tfmc_sample_options sample = TFMC_SAMPLE_DEFAULTS;
			struct tfmc_generate_options o = {.struct_size = sizeof(o), .ignore_stop = 1};
			int32_t out[MAX_T] = {0};
			uint64_t n;
			sample.seed = seed;
			sample.top_p = 0.95;
			o.sample = &sample;
			ck_assert_int_eq(
			        tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, &n),
			        TFMC_RT_OK);
			if (workers == 1)
				memcpy(first[seed], out, sizeof(out));
			ck_assert_mem_eq(first[seed], out, sizeof(out));
		}
		mini_close(&m);
	}
}
END_TEST

START_TEST(refuses_rules)
{
	static const int32_t ids[] = {1, V};
	static const char *const texts[] = {"a", ""};
	const struct tfmc_ids wrong = {ids, 2}, negative = {(const int32_t[]){-1}, 1}, empty = {ids, 0};
	struct mini_session m, silent;
	struct tfmc_constraints r;
	int32_t out[MAX_T];
	uint64_t n;
	struct tfmc_generate_options o = {.struct_size = sizeof(o), .constraints = &r};
	mini_open(&m, MINI_VOCABULARY, 1);
	mini_open(&silent, NULL, 1);
#define REFUSED(at, want, ...)                                                                               \
	do {                                                                                                 \
		r = (struct tfmc_constraints){.struct_size = sizeof(r), __VA_ARGS__};                        \
		ck_assert_int_eq(tfmc_generate((at).session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, &n), \
		                 want);                                                                      \
		ck_assert_uint_eq(n, 0);                                                                     \
	} while (0)
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .forced = wrong);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .suppress = negative);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .stop = wrong);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .banned = &wrong, .n_banned = 1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .banned = &empty, .n_banned = 1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .no_repeat_ngram = -1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .min_new_tokens = -1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .repetition_penalty = -1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .source_repetition_penalty = NAN);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .decay = INFINITY);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .presence_penalty = 1e9);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .n_biases = 1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .max_tokens = -1);
	REFUSED(m, TFMC_RT_E_PROMPT, .max_tokens = 1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .stop_texts = texts, .n_stop_texts = 2);
	REFUSED(silent, TFMC_RT_E_TEXT, .stop_texts = texts, .n_stop_texts = 1);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .banned_texts = texts, .n_banned_texts = 2);
	REFUSED(m, TFMC_RT_E_CONSTRAINTS, .n_banned_texts = 1);
	REFUSED(silent, TFMC_RT_E_TEXT, .banned_texts = texts, .n_banned_texts = 1);
#undef REFUSED
	r = (struct tfmc_constraints){.struct_size = 8};
	ck_assert_int_eq(tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, &n),
	                 TFMC_RT_E_ABI);
	struct mini_heard h = {0};
	o = (struct tfmc_generate_options){.struct_size = sizeof(o), .on_text = mini_hear, .user = &h};
	ck_assert_int_eq(tfmc_generate(silent.session, &o, source, N_SOURCE, NULL, 0, out, MAX_T, &n),
	                 TFMC_RT_E_TEXT);
	mini_close(&m);
	mini_close(&silent);
}
END_TEST

Suite *suite_generate(void);
Suite *suite_generate(void)
{
	Suite *s = suite_create("generate");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 280);
	tcase_add_test(t, follows_the_rules);
	tcase_add_test(t, beams_follow_the_rules);
	tcase_add_test(t, odd_logits_are_reported);
	tcase_add_test(t, odd_logits_end_a_search);
	tcase_add_test(t, callbacks_end_it);
	tcase_add_test(t, tells_log_p);
	tcase_add_test(t, equal_for_any_number_of_workers);
	tcase_add_test(t, refuses_rules);
	suite_add_tcase(s, t);
	return s;
}
