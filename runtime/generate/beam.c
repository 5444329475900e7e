/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beam search for one sequence. Every step takes the likeliest continuations of the W live beams by the sum of
 * log-probabilities (ties: earlier beam, lower id), so many that W of them do not stop; those among the first W that
 * stop are finished, of which the W best are kept, the first W that do not stop live on. A beam lives in a
 * sequence of the state; the first child of a beam stays there, further ones are copied into sequences that died.
 */
#include "runtime/core/feed.h"
#include "runtime/generate/real.h"
#include "runtime/generate/rules.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BEAM_MAX 256

/* A continuation; steps are linked backward. */
struct node {
	double log_p; /* sum over the new ids */
	int32_t id;
	int64_t parent; /* index in nodes, -1: the prompt */
	int64_t n;      /* new ids so far */
	bool is_bare;   /* its id does not count in the score */
};

struct live {
	int64_t node; /* -1: the prompt */
	int64_t slot; /* sequence of the state */
	double log_p;
};

struct candidate {
	double log_p;
	int64_t beam; /* of the live ones */
	int32_t id;
};

struct finished {
	int64_t node;
	double score;
};

struct search {
	struct feeder feeder;
	const struct tfmc_beam_options *options;
	int64_t width, limit; /* beams, new ids */
	double *scores;       /* [vocab]: log p of what may follow a beam */
	struct node *nodes;
	int64_t n_nodes, cap_nodes;
	struct live *live, *next; /* [width] */
	int64_t n_live, n_next;
	struct candidate *candidates; /* [cap_candidates], best first */
	int64_t n_candidates, cap_candidates;
	struct finished *finished; /* [width], best first */
	int64_t n_finished;
	int32_t *ids; /* [width]: of a step */
	struct rules rules;
	int32_t *history; /* [first ids + limit]: of one beam */
};

/* ---- candidates ---- */

static bool is_better(const struct candidate *a, const struct candidate *b)
{
	if (a->log_p != b->log_p)
		return a->log_p > b->log_p;
	return a->beam != b->beam ? a->beam < b->beam : a->id < b->id;
}

static void offer(struct search *s, struct candidate c)
{
	int64_t cap = s->cap_candidates, at = s->n_candidates;
	if (at == cap && !is_better(&c, &s->candidates[cap - 1]))
		return;
	at = at == cap ? cap - 1 : at;
	for (; at > 0 && is_better(&c, &s->candidates[at - 1]); at--)
		s->candidates[at] = s->candidates[at - 1];
	s->candidates[at] = c;
	s->n_candidates += s->n_candidates < cap;
}

/* The ids of a hypothesis to s->history; gives how many with the first ones. */
static uint64_t recall(struct search *s, int64_t node)
{
	uint64_t n = s->rules.n_first + (node < 0 ? 0 : (uint64_t)s->nodes[node].n);
	for (uint64_t at = n; node >= 0; node = s->nodes[node].parent)
		s->history[--at] = s->nodes[node].id;
	return n;
}

/* log of the sum of e^score over the ids that may follow. */
static double allowed_log_sum(const struct search *s)
{
	double most = -INFINITY, sum = 0;
	for (int64_t id = 0; id < s->feeder.vocab; id++)
		if (!s->rules.excluded[id] && s->scores[id] > most)
			most = s->scores[id];
	for (int64_t id = 0; most > -INFINITY && id < s->feeder.vocab; id++)
		if (!s->rules.excluded[id])
			sum += real_exp(s->scores[id] - most);
	return sum > 0 ? most + real_log(sum) : 0;
}

/* Offers what may follow a live beam. */
static int collect_beam(struct search *s, int64_t beam)
{
	const struct feeder *f = &s->feeder;
	const struct live *l = &s->live[beam];
	float *logits = f->logits + l->slot * f->vocab;
	uint64_t n = recall(s, l->node);
	double whole;
	TRY(rules_logits(&s->rules, logits, s->history, n));
	TRY(row_log_sum(logits, f->vocab, &whole));
	rules_mark(&s->rules, s->history, n);
	rules_weigh_timestamps(&s->rules, logits, whole);
	for (int64_t id = 0; id < f->vocab; id++)
		s->scores[id] = rules_score(&s->rules, (int32_t)id, (double)logits[id] - whole);
	bool shares = s->options->bare_scores || s->rules.given.renormalize;
	double allowed = shares ? allowed_log_sum(s) : 0;
	for (int64_t id = 0; id < f->vocab; id++) {
		double p = l->log_p + (s->scores[id] - allowed);
		if (p > -1e300 && !s->rules.excluded[id])
			offer(s, (struct candidate){p, beam, (int32_t)id});
	}
	return TFMC_RT_OK;
}

static int collect(struct search *s)
{
	s->n_candidates = 0;
	for (int64_t b = 0; b < s->n_live; b++) {
		int status = collect_beam(s, b);
		if (status != TFMC_RT_OK)
			return status;
	}
	if (s->n_candidates == 0)
		return TFMC_RT_E_LOGITS;
	return TFMC_RT_OK;
}

/* ---- beams ---- */

static int64_t add_node(struct search *s, const struct candidate *c)
{
	int64_t parent = s->live[c->beam].node;
	int64_t n = parent < 0 ? 1 : s->nodes[parent].n + 1;
	if (s->n_nodes == s->cap_nodes) {
		int64_t cap = s->cap_nodes ? 2 * s->cap_nodes : 256;
		struct node *grown = realloc(s->nodes, (size_t)cap * sizeof(*grown));
		if (!grown)
			return -1;
		s->nodes = grown;
		s->cap_nodes = cap;
	}
	s->nodes[s->n_nodes] = (struct node){c->log_p, c->id, parent, n, false};
	return s->n_nodes++;
}

/* Of the ids that count. */
static double log_p_of(const struct search *s, const struct node *n)
{
	return !n->is_bare ? n->log_p : n->parent < 0 ? 0 : s->nodes[n->parent].log_p;
}

/* log p / n^a, or log p / ((5 + n) / 6)^a (Wu et al. 2016, equation 14); ids that are counted are before n new ones.
 */
static double score_of(const struct search *s, double log_p, int64_t n)
{
	double count = (double)(n + s->rules.given.n_counted);
	double length = s->options->gnmt ? (5 + count) / 6 : count > 0 ? count : 1;
	double a = s->options->length_penalty;
	double log_length = real_log(length) * a; /* of the divisor */
	double divisor = log_length <= 0 ? real_exp(log_length) : 1 / real_exp(-log_length);
	return log_p / divisor;
}

/* Sorted by score, the earlier one first among equals; the worst of too many is dropped. */
static void finish(struct search *s, int64_t node)
{
	const struct node *n = &s->nodes[node];
	double score = score_of(s, log_p_of(s, n), n->n - n->is_bare);
	int64_t at = s->n_finished;
	for (; at > 0 && score > s->finished[at - 1].score; at--)
		if (at < s->width)
			s->finished[at] = s->finished[at - 1];
	if (at < s->width)
		s->finished[at] = (struct finished){node, score};
	s->n_finished += s->n_finished < s->width;
}

/* Ends with a stop id that is not forced, or with a stop text. */
static bool is_end_of(struct search *s, const struct candidate *c)
{
	uint64_t n = recall(s, s->live[c->beam].node);
	s->history[n] = c->id;
	bool is_forced = n - s->rules.n_first < s->rules.given.forced.n;
	return (!is_forced && rules_is_stop(&s->rules, c->id)) ||
	       rules_stop_text(&s->rules, s->history, n + 1);
}

/* Deals the candidates with n new ids out to the finished and the living; slots are given later. */
static int advance(struct search *s, int64_t n)
{
	s->n_next = 0;
	for (int64_t i = 0; i < s->n_candidates; i++) {
		const struct candidate *c = &s->candidates[i];
		bool stops = is_end_of(s, c), ends = stops || n == s->limit;
		if (ends ? i >= s->width : s->n_next >= s->width)
			continue;
		int64_t node = add_node(s, c);
		if (node < 0)
			return TFMC_RT_E_MEMORY;
		s->nodes[node].is_bare = stops && s->options->bare_scores && rules_is_stop(&s->rules, c->id);
		if (ends)
			finish(s, node);
		else
			s->next[s->n_next++] =
			        (struct live){node, c->beam, c->log_p}; /* slot: of the parent */
	}
	return TFMC_RT_OK;
}

/* No live beam of n new ids can replace a finished one, or none shall. */
static bool is_over(const struct search *s, int64_t n)
{
	const struct tfmc_beam_options *o = s->options;
	if (s->n_next == 0)
		return true;
	if (s->n_finished < s->width)
		return false;
	bool at_limit = o->early_stopping == TFMC_EARLY_NEVER && o->length_penalty > 0;
	double best = score_of(s, s->next[0].log_p, at_limit ? s->limit : n);
	return o->early_stopping == TFMC_EARLY_ALWAYS || best <= s->finished[s->width - 1].score;
}

/* Turns parents' numbers into slots: the first child stays, others are copied into slots without children. */
static int settle(struct search *s)
{
	bool taken[BEAM_MAX] = {false}, used[BEAM_MAX] = {false};
	int64_t free_slot = 0;
	for (int64_t i = 0; i < s->n_next; i++)
		used[s->live[s->next[i].slot].slot] = true;
	for (int64_t i = 0; i < s->n_next; i++) {
		int64_t from = s->live[s->next[i].slot].slot;
		if (!taken[from]) {
			taken[from] = true;
			s->next[i].slot = from;
			continue;
		}
		while (free_slot < s->width && used[free_slot])
			free_slot++;
		int status = tfmc_session_fork(s->feeder.session, from, free_slot);
		if (status != TFMC_RT_OK)
			return status;
		s->next[i].slot = free_slot++;
	}
	struct live *before = s->live;
	s->live = s->next;
	s->next = before;
	s->n_live = s->n_next;
	return TFMC_RT_OK;
}

/* All beams are read again from their first tokens. */
static int reread(struct search *s)
{
	struct feeder *f = &s->feeder;
	int64_t source = f->record->generate_kind == 1 ? -1 : 0;
	float *logits = f->logits;
	int status = TFMC_RT_OK;
	f->batch = 1;
	for (int64_t i = 0; status == TFMC_RT_OK && i < s->n_live; i++) {
		const struct live *l = &s->live[i];
		uint64_t n = recall(s, l->node);
		f->logits = logits + l->slot * f->vocab;
		status = session_trim(f->session, l->slot, 0);
		if (status == TFMC_RT_OK)
			status = tfmc_session_select(f->session, l->slot, source);
		if (status == TFMC_RT_OK)
			status = feeder_prefill(f, s->history, n);
	}
	f->logits = logits;
	f->batch = s->width;
	return status == TFMC_RT_OK ? tfmc_session_select(f->session, 0, source) : status;
}

/* All beams grow by their last id; slots without a beam by the pad id. */
static int step(struct search *s)
{
	if (feeder_rereads(&s->feeder, s->live[0].slot))
		return reread(s);
	int64_t pad = s->feeder.record->pad;
	for (int64_t i = 0; i < s->width; i++)
		s->ids[i] = pad > 0 && pad < s->feeder.vocab ? (int32_t)pad : 0;
	for (int64_t i = 0; i < s->n_live; i++)
		s->ids[s->live[i].slot] = s->nodes[s->live[i].node].id;
	return feeder_step(&s->feeder, s->ids);
}

/* ---- the search ---- */

/* One sequence is filled, then copied to the slots of the others. */
static int begin(struct search *s, const int32_t *source, uint64_t n_source, const int32_t *first,
                 uint64_t n_first)
{
	struct feeder *f = &s->feeder;
	f->batch = 1;
	int status = tfmc_session_reset(f->session);
	if (status == TFMC_RT_OK && f->record->generate_kind != 1)
		status = feeder_encode(f, source, n_source);
	if (status == TFMC_RT_OK)
		status = feeder_prefill(f, first, n_first);
	if (status == TFMC_RT_OK && f->record->generate_kind != 1)
		status = tfmc_session_select(f->session, 0, 0); /* one source for all beams */
	for (int64_t i = 1; status == TFMC_RT_OK && i < s->width; i++)
		status = tfmc_session_fork(f->session, 0, i);
	if (status == TFMC_RT_E_DIM)
		return TFMC_RT_E_BEAM; /* the state has fewer sequences */
	f->batch = s->width;
	s->live[0] = (struct live){-1, 0, 0};
	s->n_live = 1;
	return status;
}

static int grow(struct search *s)
{
	for (int64_t n = 1; n <= s->limit && s->n_live > 0; n++) {
		TRY(collect(s));
		TRY(advance(s, n));
		if (is_over(s, n))
			return TFMC_RT_OK;
		TRY(settle(s));
		TRY(step(s));
	}
	return TFMC_RT_OK;
}

static int open_search(struct search *s, struct tfmc_session *session, const struct tfmc_beam_options *o)
{
	*s = (struct search){.options = o};
	if (!o)
		return TFMC_RT_E_NULL;
	if (o->struct_size != sizeof(*o))
		return TFMC_RT_E_ABI;
	bool in_range = o->beam >= 1 && o->beam <= BEAM_MAX && o->length_penalty >= -100 &&
	                o->length_penalty <= 100 && o->early_stopping <= TFMC_EARLY_NEVER;
	if (!in_range)
		return TFMC_RT_E_BEAM;
	s->width = o->beam;
	size_t n = (size_t)o->beam;
	s->live = calloc(n, sizeof(*s->live));
	s->next = calloc(n, sizeof(*s->next));
	s->finished = calloc(n, sizeof(*s->finished));
	s->ids = calloc(n, sizeof(*s->ids));
	int status = feeder_open(&s->feeder, session, s->width);
	if (status == TFMC_RT_OK && !s->feeder.logits)
		status = TFMC_RT_E_GENERATE;
	if (status == TFMC_RT_OK)
		status = rules_open(&s->rules, s->feeder.record, o->rules, s->feeder.vocab);
	if (status != TFMC_RT_OK)
		return status;
	/* All beams may be followed by every stop id; of more there are no more than the vocabulary has ids. */
	int64_t stops = s->feeder.record->n_stop + (int64_t)s->rules.given.stop.n;
	s->cap_candidates = s->width * (stops < 1                 ? 2
	                                : stops < s->feeder.vocab ? 1 + stops
	                                                          : s->feeder.vocab);
	s->candidates = calloc((size_t)s->cap_candidates, sizeof(*s->candidates));
	s->scores = calloc((size_t)s->feeder.vocab, sizeof(*s->scores));
	bool ok = s->live && s->next && s->candidates && s->finished && s->ids && s->scores;
	return ok ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
}

static void close_search(struct search *s)
{
	feeder_close(&s->feeder);
	rules_close(&s->rules);
	free(s->history);
	free(s->scores);
	free(s->nodes);
	free(s->live);
	free(s->next);
	free(s->candidates);
	free(s->finished);
	free(s->ids);
}

static int give(const struct search *s, struct tfmc_hypothesis *out, uint64_t cap, uint64_t *n_out)
{
	for (int64_t i = 0; i < s->n_finished && (uint64_t)i < cap; i++) {
		const struct node *n = &s->nodes[s->finished[i].node];
		out[i].n = (uint64_t)n->n;
		out[i].log_p = log_p_of(s, n);
		out[i].score = s->finished[i].score;
		for (int64_t at = n->n; at > 0; at--, n = n->parent < 0 ? NULL : &s->nodes[n->parent])
			if ((uint64_t)at <= out[i].cap)
				out[i].tokens[at - 1] = n->id;
		*n_out = (uint64_t)i + 1;
	}
	return s->n_finished == 0 ? (int)TFMC_RT_E_LOGITS : (int)TFMC_RT_OK;
}

static int search(struct search *s, const int32_t *prompt, uint64_t n_prompt, const int32_t *first,
                  uint64_t n_first)
{
	const struct tfmc_record *r = s->feeder.record;
	int64_t most = rules_most(s->options->rules, s->feeder.session);
	TRY(feed_check_first(s->feeder.session, n_first, most - 1));
	int64_t limit = most - (int64_t)n_first, wanted = s->options->max_new_tokens;
	s->limit = wanted > 0 && wanted < limit ? wanted : limit;
	s->history = calloc((size_t)n_first + (size_t)s->limit + 1, sizeof(*s->history));
	if (!s->history)
		return TFMC_RT_E_MEMORY;
	memcpy(s->history, first, (size_t)n_first * sizeof(*first));
	struct tfmc_ids source = {prompt, n_prompt};
	if (r->generate_kind == 1)
		source = (struct tfmc_ids){first, n_first};
	else if (session_source(s->feeder.session)->data)
		source = (struct tfmc_ids){0};
	rules_begin(&s->rules, n_first, n_first + (uint64_t)s->limit, source);
	TRY(begin(s, prompt, n_prompt, first, n_first));
	return grow(s);
}

int tfmc_beam_search(struct tfmc_session *session, const struct tfmc_beam_options *options,
                     const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                     struct tfmc_hypothesis *out, uint64_t cap, uint64_t *n_out)
{
	struct search s;
	bool has_room = out || !cap;
	if (!n_out)
		return TFMC_RT_E_NULL;
	*n_out = 0;
	for (uint64_t i = 0; has_room && i < cap; i++)
		has_room = out[i].tokens || !out[i].cap;
	if (!session || !has_room || (!prompt && n_prompt) || (!target && n_target))
		return TFMC_RT_E_NULL;
	int status = open_search(&s, session, options);
	if (status == TFMC_RT_OK) {
		const struct tfmc_record *r = s.feeder.record;
		bool is_causal = r->generate_kind == 1;
		uint64_t n_first = is_causal ? n_prompt : n_target, n_start = 0;
		int32_t *start = n_first ? NULL : record_start_ids(r, &n_start);
		const int32_t *first = start ? start : is_causal ? prompt : target;
		status = !n_first && !start ? TFMC_RT_E_MEMORY
		                            : search(&s, prompt, n_prompt, first, start ? n_start : n_first);
		(void)tfmc_session_select(session, 0, -1);
		free(start);
	}
	if (status == TFMC_RT_OK)
		status = give(&s, out, cap, n_out);
	close_search(&s);
	return session_end(session, status);
}
