/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beam search for one sequence. Every step takes the best continuations of the W live beams by the sum of
 * log-probabilities (ties: earlier beam, lower id), enough of them that W do not stop. Those among the first
 * W that stop are finished hypotheses, of which the best W are kept; the first W that do not stop go on. Each
 * beam has a sequence of the KV cache: the first child of a beam stays in its sequence, further children are
 * copied into sequences without beam.
 *
 * Hypotheses are paths of a tree of nodes, one id each, from the last id up to the prompt (node -1), so that beams
 * share their common beginning. record->generate_kind 1 is a causal model, which continues the prompt; of the others
 * (sequence to sequence) the prompt is the source of `encode`, and the target continues.
 */
#include "runtime/feed.h"
#include "runtime/real.h"
#include "runtime/constraints.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One token of a hypothesis; nodes form a tree linked to the root. */
struct node {
	double log_p; /* sum over the new ids */
	int32_t id;
	int64_t parent;    /* index in nodes, -1: the prompt */
	int64_t n;         /* new ids so far */
	bool is_uncounted; /* bare_scores: the stop token is not counted in the score */
};

/* A live hypothesis, with its last node and its sequence in the KV cache. */
struct live_beam {
	int64_t node;     /* -1: the prompt */
	int64_t sequence; /* sequence of the session */
	double log_p;
};

/* A continuation of a live beam by one id. */
struct candidate {
	double log_p;
	int64_t beam; /* index in live */
	int32_t id;
};

/* A finished hypothesis, by its last node. */
struct hypothesis {
	int64_t node;
	double score;
};

/* State of a beam search. */
struct beam_search {
	struct feeder feeder;
	const struct tfmc_beam_options *options;
	int64_t width, limit; /* number of beams; bound of new ids */
	double *scores;       /* [vocab]: changed log p of the ids after one beam */
	struct node *nodes;
	int64_t n_nodes, cap_nodes;
	struct live_beam *live, *next; /* [width] */
	int64_t n_live, n_next;
	struct candidate *candidates; /* [cap_candidates], best first */
	int64_t n_candidates, cap_candidates;
	struct hypothesis *finished; /* [width], best first */
	int64_t n_finished;
	int32_t *ids; /* [width]: input of a step */
	struct constraints constraints;
	int32_t *history; /* [n_first + limit]: ids of one beam */
};

/* ---- candidates ---- */

/* Order of candidates: larger log p, then earlier beam, then lower id. */
static bool is_better(const struct candidate *a, const struct candidate *b)
{
	if (a->log_p != b->log_p)
		return a->log_p > b->log_p;
	return a->beam != b->beam ? a->beam < b->beam : a->id < b->id;
}

/* Inserts into the sorted list of the best cap_candidates. */
static void insert_candidate(struct beam_search *s, struct candidate c)
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

/* Writes all ids of a hypothesis to the scratch s->history, where the first ids always stand, and returns their
 * number, first ones included. */
static uint64_t restore_history(struct beam_search *s, int64_t node)
{
	uint64_t n = s->constraints.n_first + (node < 0 ? 0 : (uint64_t)s->nodes[node].n);
	for (uint64_t at = n; node >= 0; node = s->nodes[node].parent)
		s->history[--at] = s->nodes[node].id;
	return n;
}

/* Log-sum-exp of the scores of the ids that may follow; 0: none may. */
static double allowed_log_sum_exp(const struct beam_search *s)
{
	double max = -INFINITY, sum = 0;
	for (int64_t id = 0; id < s->feeder.vocab; id++)
		if (!s->constraints.excluded[id] && s->scores[id] > max)
			max = s->scores[id];
	for (int64_t id = 0; max > -INFINITY && id < s->feeder.vocab; id++)
		if (!s->constraints.excluded[id])
			sum += real_exp(s->scores[id] - max);
	return sum > 0 ? max + real_log(sum) : 0;
}

/* Inserts the continuations of a live beam, whose row of the logits is that of its sequence. Log p is the
 * log-softmax of the row after on_logits, with score changes; exclusions do not change it unless the options or
 * constraints renormalize. Ids of probability 0 are no continuations. */
static int collect_beam_candidates(struct beam_search *s, int64_t beam)
{
	const struct feeder *f = &s->feeder;
	const struct live_beam *l = &s->live[beam];
	float *logits = f->logits + l->sequence * f->vocab;
	uint64_t n = restore_history(s, l->node);
	double log_sum;
	TRY(constraints_logits(&s->constraints, logits, s->history, n));
	TRY(log_sum_exp(logits, f->vocab, &log_sum));
	constraints_mark_excluded(&s->constraints, s->history, n);
	constraints_prefer_timestamps(&s->constraints, logits, log_sum);
	for (int64_t id = 0; id < f->vocab; id++)
		s->scores[id] = constraints_score(&s->constraints, (int32_t)id, (double)logits[id] - log_sum);
	/* renormalize: subtracts the log of what the allowed ids have together, so that these sum to 1 */
	bool shares = s->options->bare_scores || s->constraints.given.renormalize;
	double allowed = shares ? allowed_log_sum_exp(s) : 0;
	for (int64_t id = 0; id < f->vocab; id++) {
		double p = l->log_p + (s->scores[id] - allowed);
		if (p > -1e300 && !s->constraints.excluded[id]) /* finite */
			insert_candidate(s, (struct candidate){p, beam, (int32_t)id});
	}
	return TFMC_RT_OK;
}

/* Collects the best continuations of all live beams. E_LOGITS: constraints exclude every id of finite log p, or (from
 * log_sum_exp) a row of the logits is no distribution. */
static int collect_candidates(struct beam_search *s)
{
	s->n_candidates = 0;
	for (int64_t b = 0; b < s->n_live; b++) {
		int status = collect_beam_candidates(s, b);
		if (status != TFMC_RT_OK)
			return status;
	}
	if (s->n_candidates == 0)
		return TFMC_RT_E_LOGITS;
	return TFMC_RT_OK;
}

/* ---- beams ---- */

/* Appends the node of a candidate; -1: no memory. */
static int64_t add_node(struct beam_search *s, const struct candidate *c)
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

/* Log-probability of the counted ids. */
static double counted_log_p(const struct beam_search *s, const struct node *n)
{
	return !n->is_uncounted ? n->log_p : n->parent < 0 ? 0 : s->nodes[n->parent].log_p;
}

/* Length penalty: log p / n^a, or log p / ((5 + n) / 6)^a (Wu et al. 2016, equation 14); the constraints'
 * n_counted is added to n. */
static double hypothesis_score(const struct beam_search *s, double log_p, int64_t n)
{
	double count = (double)(n + s->constraints.given.n_counted);
	double length = s->options->gnmt ? (5 + count) / 6 : count > 0 ? count : 1;
	double a = s->options->length_penalty;
	double log_length = real_log(length) * a; /* logarithm of the divisor */
	/* real_exp takes no positive argument */
	double divisor = log_length <= 0 ? real_exp(log_length) : 1 / real_exp(-log_length);
	return log_p / divisor;
}

/* Inserts a finished hypothesis, sorted by score, stable; drops the worst beyond width. */
static void finish_hypothesis(struct beam_search *s, int64_t node)
{
	const struct node *n = &s->nodes[node];
	double score = hypothesis_score(s, counted_log_p(s, n), n->n - n->is_uncounted);
	int64_t at = s->n_finished;
	for (; at > 0 && score > s->finished[at - 1].score; at--)
		if (at < s->width)
			s->finished[at] = s->finished[at - 1];
	if (at < s->width)
		s->finished[at] = (struct hypothesis){node, score};
	s->n_finished += s->n_finished < s->width;
}

/* True: the candidate ends with a stop id that is not forced, or with a stop string. */
static bool ends_sequence(struct beam_search *s, const struct candidate *c)
{
	uint64_t n = restore_history(s, s->live[c->beam].node);
	s->history[n] = c->id;
	bool is_forced = n - s->constraints.n_first < s->constraints.given.forced.n;
	return (!is_forced && constraints_is_stop(&s->constraints, c->id)) ||
	       constraints_ends_with_stop_text(&s->constraints, s->history, n + 1);
}

/* Divides the candidates, with n new ids, into finished hypotheses and next live beams. The sequences of
 * the latter are assigned by assign_sequences. */
static int advance(struct beam_search *s, int64_t n)
{
	s->n_next = 0;
	for (int64_t i = 0; i < s->n_candidates; i++) {
		const struct candidate *c = &s->candidates[i];
		bool stops = ends_sequence(s, c), ends = stops || n == s->limit;
		if (ends ? i >= s->width : s->n_next >= s->width)
			continue; /* ends count among the first `width` candidates only */
		int64_t node = add_node(s, c);
		if (node < 0)
			return TFMC_RT_E_MEMORY;
		s->nodes[node].is_uncounted =
		        stops && s->options->bare_scores && constraints_is_stop(&s->constraints, c->id);
		if (ends)
			finish_hypothesis(s, node);
		else
			s->next[s->n_next++] =
			        /* sequence: index of the parent for now */
			        (struct live_beam){node, c->beam, c->log_p};
	}
	return TFMC_RT_OK;
}

/* True: no live beam of n new ids can replace a finished hypothesis, or early stopping does not let it. */
static bool is_search_over(const struct beam_search *s, int64_t n)
{
	const struct tfmc_beam_options *o = s->options;
	if (s->n_next == 0)
		return true;
	if (s->n_finished < s->width)
		return false;
	/* a positive penalty raises the score of longer sequences: the best is reached at the limit */
	bool at_limit = o->early_stopping == TFMC_EARLY_NEVER && o->length_penalty > 0;
	double best = hypothesis_score(s, s->next[0].log_p, at_limit ? s->limit : n);
	return o->early_stopping == TFMC_EARLY_ALWAYS || best <= s->finished[s->width - 1].score;
}

/* Replaces parent indices by sequences: the first child of a beam keeps its sequence, further children are forked into
 * sequences without children. used: sequences of beams with children, which are not overwritten. There are enough,
 * since width children need width sequences. */
static int assign_sequences(struct beam_search *s)
{
	bool taken[TFMC_BEAM_MAX] = {false}, used[TFMC_BEAM_MAX] = {false};
	int64_t free_slot = 0;
	for (int64_t i = 0; i < s->n_next; i++)
		used[s->live[s->next[i].sequence].sequence] = true;
	for (int64_t i = 0; i < s->n_next; i++) {
		int64_t from = s->live[s->next[i].sequence].sequence;
		if (!taken[from]) {
			taken[from] = true;
			s->next[i].sequence = from;
			continue;
		}
		while (free_slot < s->width && used[free_slot])
			free_slot++;
		int status = tfmc_session_fork(s->feeder.session, from, free_slot);
		if (status != TFMC_RT_OK)
			return status;
		s->next[i].sequence = free_slot++;
	}
	struct live_beam *before = s->live;
	s->live = s->next;
	s->next = before;
	s->n_live = s->n_next;
	return TFMC_RT_OK;
}

/* The next id reaches the longrope border, from which on all keys have other rotary frequencies: each beam is emptied
 * and prefilled again from its first token, with its own row of the logits; all read the source that prefill_beams
 * selected. */
static int reread_beams(struct beam_search *s)
{
	struct feeder *f = &s->feeder;
	int64_t source = f->record->generate_kind == 1 ? -1 : 0;
	float *logits = f->logits;
	int status = TFMC_RT_OK;
	f->batch = 1;
	for (int64_t i = 0; status == TFMC_RT_OK && i < s->n_live; i++) {
		const struct live_beam *l = &s->live[i];
		uint64_t n = restore_history(s, l->node);
		f->logits = logits + l->sequence * f->vocab;
		status = session_trim(f->session, l->sequence, 0);
		if (status == TFMC_RT_OK)
			status = tfmc_session_select(f->session, l->sequence, source);
		if (status == TFMC_RT_OK)
			status = feeder_prefill(f, s->history, n);
	}
	f->logits = logits;
	f->batch = s->width;
	return status == TFMC_RT_OK ? tfmc_session_select(f->session, 0, source) : status;
}

/* Feeds the last id of every beam in one call of s->width rows. Sequences without a beam get the pad id: their logits
 * are not read, and assign_sequences overwrites them before they are used. */
static int decode_step(struct beam_search *s)
{
	if (feeder_must_reread(&s->feeder, s->live[0].sequence))
		return reread_beams(s);
	int64_t pad = s->feeder.record->pad;
	for (int64_t i = 0; i < s->width; i++)
		s->ids[i] = pad > 0 && pad < s->feeder.vocab ? (int32_t)pad : 0;
	for (int64_t i = 0; i < s->n_live; i++)
		s->ids[s->live[i].sequence] = s->nodes[s->live[i].node].id;
	return feeder_step(&s->feeder, s->ids);
}

/* ---- the search ---- */

/* Prefills sequence 0 and forks it for the other beams. The encoder output is stored once: all rows read that of
 * sequence 0, so that forks copy tokens only. The search begins with one live beam, as all would be equal. */
static int prefill_beams(struct beam_search *s, const int32_t *source, uint64_t n_source,
                         const int32_t *first, uint64_t n_first)
{
	struct feeder *f = &s->feeder;
	f->batch = 1;
	int status = tfmc_session_reset(f->session);
	if (status == TFMC_RT_OK && f->record->generate_kind != 1)
		status = feeder_encode(f, source, n_source);
	if (status == TFMC_RT_OK)
		status = feeder_prefill(f, first, n_first);
	if (status == TFMC_RT_OK && f->record->generate_kind != 1)
		status = tfmc_session_select(f->session, 0, 0); /* before the forks */
	for (int64_t i = 1; status == TFMC_RT_OK && i < s->width; i++)
		status = tfmc_session_fork(f->session, 0, i);
	if (status == TFMC_RT_E_DIM)
		return TFMC_RT_E_BEAM; /* the state has fewer sequences */
	f->batch = s->width;
	s->live[0] = (struct live_beam){-1, 0, 0};
	s->n_live = 1;
	return status;
}

/* Searches until the length limit, or until no beam is live or early stopping ends. */
static int search_loop(struct beam_search *s)
{
	for (int64_t n = 1; n <= s->limit && s->n_live > 0; n++) {
		TRY(collect_candidates(s));
		TRY(advance(s, n));
		if (is_search_over(s, n))
			return TFMC_RT_OK;
		TRY(assign_sequences(s));
		TRY(decode_step(s));
	}
	return TFMC_RT_OK;
}

/* Checks options and allocates, except for the history, whose length depends on the prompt. The caller closes after a
 * failure. E_GENERATE: the entries return no logits. */
static int open_search(struct beam_search *s, struct tfmc_session *session, const struct tfmc_beam_options *o)
{
	*s = (struct beam_search){.options = o};
	if (!o)
		return TFMC_RT_E_NULL;
	if (o->struct_size != sizeof(*o))
		return TFMC_RT_E_ABI;
	bool in_range = o->beam >= 1 && o->beam <= TFMC_BEAM_MAX && o->length_penalty >= -100 &&
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
		status = constraints_open(&s->constraints, s->feeder.record, o->constraints, s->feeder.vocab);
	if (status != TFMC_RT_OK)
		return status;
	/* Every beam may be followed by each stop id, so width (1 + stops) candidates contain width that do
	 * not stop. At least two of each beam: a stop string can end one, too. No more than the vocabulary exist. */
	int64_t stops = s->feeder.record->n_stop + (int64_t)s->constraints.given.stop.n;
	s->cap_candidates = s->width * (stops < 1                 ? 2
	                                : stops < s->feeder.vocab ? 1 + stops
	                                                          : s->feeder.vocab);
	s->candidates = calloc((size_t)s->cap_candidates, sizeof(*s->candidates));
	s->scores = calloc((size_t)s->feeder.vocab, sizeof(*s->scores));
	bool ok = s->live && s->next && s->candidates && s->finished && s->ids && s->scores;
	return ok ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
}

static void close_search(struct beam_search *s)
{
	feeder_close(&s->feeder);
	constraints_close(&s->constraints);
	free(s->history);
	free(s->scores);
	free(s->nodes);
	free(s->live);
	free(s->next);
	free(s->candidates);
	free(s->finished);
	free(s->ids);
}

/* Copies the finished hypotheses to the caller, best first, each from its last node up to the prompt; ids beyond the
 * caller's capacity are dropped, while n is the length in full. E_LOGITS if there are none. */
static int write_hypotheses(const struct beam_search *s, struct tfmc_hypothesis *out, uint64_t cap,
                            uint64_t *n_out)
{
	for (int64_t i = 0; i < s->n_finished && (uint64_t)i < cap; i++) {
		const struct node *n = &s->nodes[s->finished[i].node];
		out[i].n = (uint64_t)n->n;
		out[i].log_p = counted_log_p(s, n);
		out[i].score = s->finished[i].score;
		for (int64_t at = n->n; at > 0; at--, n = n->parent < 0 ? NULL : &s->nodes[n->parent])
			if ((uint64_t)at <= out[i].cap)
				out[i].tokens[at - 1] = n->id;
		*n_out = (uint64_t)i + 1;
	}
	return s->n_finished == 0 ? (int)TFMC_RT_E_LOGITS : (int)TFMC_RT_OK;
}

/* Prefills the first ids and searches. One id less than the bound is allowed for them, so that at least one new id
 * fits. The source of the penalties of the constraints is the prompt, or nothing where the source is features instead
 * of ids. */
static int beam_search(struct beam_search *s, const int32_t *prompt, uint64_t n_prompt, const int32_t *first,
                       uint64_t n_first)
{
	const struct tfmc_record *r = s->feeder.record;
	int64_t max = max_sequence_length(s->options->constraints, s->feeder.session);
	TRY(feed_check_prompt(s->feeder.session, n_first, max - 1));
	int64_t limit = max - (int64_t)n_first, requested = s->options->max_new_tokens;
	s->limit = requested > 0 && requested < limit ? requested : limit;
	s->history = calloc((size_t)n_first + (size_t)s->limit + 1, sizeof(*s->history));
	if (!s->history)
		return TFMC_RT_E_MEMORY;
	memcpy(s->history, first, (size_t)n_first * sizeof(*first));
	struct tfmc_ids source = {prompt, n_prompt};
	if (r->generate_kind == 1)
		source = (struct tfmc_ids){first, n_first};
	else if (session_source(s->feeder.session)->data)
		source = (struct tfmc_ids){0};
	constraints_begin(&s->constraints, n_first, n_first + (uint64_t)s->limit, source);
	TRY(prefill_beams(s, prompt, n_prompt, first, n_first));
	return search_loop(s);
}

int tfmc_beam_search(struct tfmc_session *session, const struct tfmc_beam_options *options,
                     const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                     struct tfmc_hypothesis *out, uint64_t cap, uint64_t *n_out)
{
	struct beam_search s;
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
		status = !n_first && !start
		                 ? TFMC_RT_E_MEMORY
		                 : beam_search(&s, prompt, n_prompt, first, start ? n_start : n_first);
		(void)tfmc_session_select(session, 0, -1); /* each sequence reads its own source again */
		free(start);
	}
	if (status == TFMC_RT_OK)
		status = write_hypotheses(&s, out, cap, n_out);
	close_search(&s);
	return session_end_generation(session, status);
}
