/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beam search on a compiled model against a plain one that computes every
 * hypothesis from its beginning, log-probabilities of given ids, copies of
 * sequences, and what all of them refuse.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/mini_session.h"

enum { V = MINI_V, MAX_B = MINI_MAX_B, MAX_T = MINI_MAX_T, START = MINI_START, STOP = MINI_STOP };
enum { BANNED = MINI_BANNED, BANNED_FIRST = MINI_FIRST, N_SOURCE = 6 };

static const int32_t source[N_SOURCE] = {4, 9, 1, 13, 17, 2};

/* ---- the plain search ---- */

struct hypothesis {
	int32_t ids[MAX_T];
	int n;
	double log_p, before, score; /* before: without the last id */
	int parent, next;            /* while it is a candidate: the beam it comes from, its new id */
};

struct plain {
	struct tfmc_session *session;
	int width;
	bool bare; /* probabilities are among the ids that may follow */
	struct hypothesis live[MAX_B], finished[MAX_B + 1], candidates[MAX_B * V];
	int n_live, n_finished, n_candidates;
};

static int by_log_p(const void *a, const void *b)
{
	const struct hypothesis *x = a, *y = b;
	if (x->log_p != y->log_p)
		return x->log_p < y->log_p ? 1 : -1;
	return x->parent != y->parent ? x->parent - y->parent : x->next - y->next;
}

static void extend(struct plain *p, int beam, bool first)
{
	const struct hypothesis *h = &p->live[beam];
	int32_t ids[MAX_T + 1] = {START};
	float logits[V];
	double sum = 0;
	memcpy(ids + 1, h->ids, (size_t)h->n * sizeof(*ids));
	mini_encode(p->session, source, N_SOURCE);
	mini_prefill(p->session, ids, (uint64_t)h->n + 1, logits);
	for (int id = 0; id < V; id++)
		if (!p->bare || (id != BANNED && !(first && id == BANNED_FIRST)))
			sum += exp((double)logits[id]);
	for (int id = 0; id < V; id++) {
		if (id == BANNED || (first && id == BANNED_FIRST))
			continue;
		struct hypothesis *c = &p->candidates[p->n_candidates++];
		*c = *h;
		c->ids[c->n++] = id;
		c->before = h->log_p;
		c->log_p += (double)logits[id] - log(sum);
		c->parent = beam;
		c->next = id;
	}
}

static double score_of(const struct tfmc_beam_options *o, double log_p, int count)
{
	double length = o->gnmt ? (5.0 + count) / 6 : count > 0 ? count : 1;
	return log_p / pow(length, o->length_penalty);
}

/* The best `width` are kept. */
static void finish(struct plain *p, struct hypothesis *h, const struct tfmc_beam_options *o)
{
	bool bare = o->bare_scores && h->ids[h->n - 1] == STOP;
	h->log_p = bare ? h->before : h->log_p;
	h->score = score_of(o, h->log_p, h->n - bare);
	int at = p->n_finished++;
	for (; at > 0 && h->score > p->finished[at - 1].score; at--)
		p->finished[at] = p->finished[at - 1];
	p->finished[at] = *h;
	p->n_finished = p->n_finished > p->width ? p->width : p->n_finished;
}

/* As tfmc_early_stopping says. */
static bool goes_on(const struct plain *p, const struct tfmc_beam_options *o, int step, int limit)
{
	if (p->n_finished < p->width)
		return true;
	double worst = p->finished[p->width - 1].score, best = p->live[0].log_p;
	switch (o->early_stopping) {
	case TFMC_EARLY_ALWAYS: return false;
	case TFMC_EARLY_JUDGED: return score_of(o, best, step) > worst;
	case TFMC_EARLY_NEVER: return score_of(o, best, o->length_penalty > 0 ? limit : step) > worst;
	}
	return false;
}

static void search(struct plain *p, const struct tfmc_beam_options *o, int limit)
{
	p->n_live = 1;
	memset(&p->live[0], 0, sizeof(p->live[0]));
	bool runs = true;
	for (int step = 1; step <= limit && p->n_live > 0 && runs; step++) {
		p->n_candidates = 0;
		for (int b = 0; b < p->n_live; b++)
			extend(p, b, step == 1);
		qsort(p->candidates, (size_t)p->n_candidates, sizeof(p->candidates[0]), by_log_p);
		p->n_live = 0;
		for (int i = 0; i < p->n_candidates && i < 2 * p->width; i++) {
			bool ends = p->candidates[i].next == STOP || step == limit;
			if (ends && i < p->width)
				finish(p, &p->candidates[i], o);
			else if (!ends && p->n_live < p->width)
				p->live[p->n_live++] = p->candidates[i];
		}
		runs = p->n_live > 0 && goes_on(p, o, step, limit);
	}
}

static void compare(struct tfmc_session *s, const struct tfmc_beam_options *o)
{
	static struct plain p;
	struct tfmc_hypothesis got[3 * MAX_B];
	int32_t tokens[3 * MAX_B][MAX_T];
	uint64_t n;
	int limit = o->max_new_tokens ? (int)o->max_new_tokens : MAX_T - 1;
	p = (struct plain){.session = s, .width = (int)o->beam, .bare = o->bare_scores};
	search(&p, o, limit);
	for (int i = 0; i < 3 * MAX_B; i++)
		got[i] = (struct tfmc_hypothesis){.tokens = tokens[i], .cap = MAX_T};
	ck_assert_int_eq(tfmc_beam_search(s, o, source, N_SOURCE, NULL, 0, got, 3 * MAX_B, &n), TFMC_RT_OK);
	ck_assert_int_eq((int)n, p.n_finished);
	for (uint64_t i = 0; i < n; i++) {
		ck_assert_int_eq((int)got[i].n, p.finished[i].n);
		ck_assert_mem_eq(tokens[i], p.finished[i].ids, (size_t)p.finished[i].n * sizeof(int32_t));
		ck_assert_double_eq_tol(got[i].log_p, p.finished[i].log_p, 1e-12 * (1 + fabs(got[i].log_p)));
		ck_assert_double_eq_tol(got[i].score, p.finished[i].score, 1e-12 * (1 + fabs(got[i].score)));
	}
}

START_TEST(agrees_with_the_plain_search)
{
	static const double penalties[] = {0, 0.6, 1, 2, -1};
	struct mini_session b;
	mini_open(&b, NULL, 1);
	for (int64_t beam = 1; beam <= MAX_B; beam++)
		for (int64_t limit = 0; limit < MAX_T; limit += 3)
			for (size_t i = 0; i < sizeof(penalties) / sizeof(penalties[0]); i++) {
				struct tfmc_beam_options o = {.struct_size = sizeof(o),
				                              .beam = beam,
				                              .length_penalty = penalties[i],
				                              .gnmt = i % 2 == 1,
				                              .max_new_tokens = limit};
				for (int early = TFMC_EARLY_ALWAYS; early <= TFMC_EARLY_NEVER; early++) {
					o.early_stopping = (enum tfmc_early_stopping)early;
					o.bare_scores = 0;
					compare(b.session, &o);
					o.bare_scores = 1;
					compare(b.session, &o);
				}
			}
	mini_close(&b);
}
END_TEST

START_TEST(copies_go_on_like_the_original)
{
	static const int32_t prompt[] = {START, 8, 2, 14}, next[] = {6, 6, 6};
	struct mini_session b;
	float alone[V], together[3 * V];
	mini_open(&b, NULL, 1);
	mini_encode(b.session, source, N_SOURCE);
	mini_prefill(b.session, prompt, 4, alone);
	ck_assert_int_eq(tfmc_session_fork(b.session, 0, 1), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_fork(b.session, 1, 2), TFMC_RT_OK);
	struct tfmc_buffer in[] = {{(void *)(uintptr_t)next, 3}};
	ck_assert_int_eq(mini_call(b.session, "step", 3, in, together), TFMC_RT_OK);
	mini_encode(b.session, source, N_SOURCE);
	mini_prefill(b.session, prompt, 4, alone);
	in[0].count = 1;
	ck_assert_int_eq(mini_call(b.session, "step", 1, in, alone), TFMC_RT_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_mem_eq(alone, together + i * V, sizeof(alone));
	mini_close(&b);
}
END_TEST

/* Each id after a prefill of everything before it. */
START_TEST(scores_given_ids)
{
	static const int32_t ids[] = {START, 8, 2, BANNED, 14, 14, 0, STOP};
	enum { N = sizeof(ids) / sizeof(ids[0]) - 1 };
	struct mini_session b;
	double log_p[N];
	float logits[V];
	mini_open(&b, NULL, 1);
	ck_assert_int_eq(tfmc_score(b.session, source, N_SOURCE, ids + 1, N, log_p), TFMC_RT_OK);
	for (int i = 0; i < N; i++) {
		double sum = 0;
		mini_encode(b.session, source, N_SOURCE);
		mini_prefill(b.session, ids, (uint64_t)i + 1, logits);
		for (int id = 0; id < V; id++)
			sum += exp((double)logits[id]);
		ck_assert_double_eq_tol(log_p[i], (double)logits[ids[i + 1]] - log(sum), 1e-12);
	}
	static const int32_t far[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, wrong[] = {1, V};
	double many[11];
	ck_assert_int_eq(tfmc_score(b.session, source, N_SOURCE, ids, 0, NULL), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_score(b.session, source, N_SOURCE, far, 10, many), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_score(b.session, source, N_SOURCE, far, 11, many), TFMC_RT_E_PROMPT);
	ck_assert_int_eq(tfmc_score(b.session, source, N_SOURCE, wrong, 2, many), TFMC_RT_E_PROMPT);
	ck_assert_int_eq(tfmc_score(b.session, source, 0, ids, 1, many), TFMC_RT_E_PROMPT);
	mini_close(&b);
}
END_TEST

START_TEST(refuses)
{
	struct mini_session b;
	uint64_t n;
	struct tfmc_beam_options o = {.struct_size = sizeof(o), .beam = MAX_B + 1, .length_penalty = 1};
	int32_t tokens[MAX_T];
	struct tfmc_hypothesis h = {.tokens = tokens, .cap = MAX_T};
	mini_open(&b, NULL, 1);
	struct tfmc_session *s = b.session;
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_fork(s, 0, 1), TFMC_RT_E_STATE); /* nothing is encoded */
	mini_encode(s, source, N_SOURCE);
	ck_assert_int_eq(tfmc_session_fork(s, 1, 2), TFMC_RT_E_STATE); /* 1 is empty */
	ck_assert_int_eq(tfmc_session_fork(s, 0, MAX_B), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_fork(s, -1, 0), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_fork(s, 0, 0), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_beam_search(s, &o, source, N_SOURCE, NULL, 0, &h, 1, &n), TFMC_RT_E_BEAM);
	o.beam = 0;
	ck_assert_int_eq(tfmc_beam_search(s, &o, source, N_SOURCE, NULL, 0, &h, 1, &n), TFMC_RT_E_BEAM);
	o.beam = 2;
	o.length_penalty = NAN;
	ck_assert_int_eq(tfmc_beam_search(s, &o, source, N_SOURCE, NULL, 0, &h, 1, &n), TFMC_RT_E_BEAM);
	o.length_penalty = 1;
	ck_assert_int_eq(tfmc_beam_search(s, &o, source, 0, NULL, 0, &h, 1, &n), TFMC_RT_E_PROMPT);
	static const int32_t wrong[] = {1, 99};
	ck_assert_int_eq(tfmc_beam_search(s, &o, wrong, 2, NULL, 0, &h, 1, &n), TFMC_RT_E_PROMPT);
	h.cap = 1; /* more tokens than room: their number is still told */
	ck_assert_int_eq(tfmc_beam_search(s, &o, source, N_SOURCE, NULL, 0, &h, 1, &n), TFMC_RT_OK);
	ck_assert_int_ge((int)h.n, 1);
	mini_close(&b);
}
END_TEST

Suite *suite_beam(void);
Suite *suite_beam(void)
{
	Suite *s = suite_create("beam");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, agrees_with_the_plain_search);
	tcase_add_test(t, scores_given_ids);
	tcase_add_test(t, copies_go_on_like_the_original);
	tcase_add_test(t, refuses);
	suite_add_tcase(s, t);
	return s;
}
