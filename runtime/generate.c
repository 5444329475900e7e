/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation: encode (seq2seq), prefill, then one decode step for each token, of one sequence or of several at once.
 * The constraints say which ids may be chosen; the arg-max takes the lowest id on a tie.
 */
#include "runtime/constraints.h"
#include "runtime/feed.h"
#include "runtime/real.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One growing sequence. */
struct generator { /* n_first ids, then new ones: n in all */
	struct tfmc_session *session;
	const struct tfmc_record *record;
	int64_t vocab;
	struct tfmc_generate_options options;
	struct constraints constraints;
	struct stream stream;
	struct tfmc_sampler *sampler; /* NULL: greedy */
	int32_t *ids;                 /* ids before the new ones, then new ones */
	uint64_t n, n_first;
	int64_t limit; /* bound of the number of new ids */
	enum tfmc_finish finish;
};

/* The allowed id with the largest score, or -1 if all are -infinity. */
static int32_t arg_max(const struct generator *g, const float *scores)
{
	int32_t best = -1;
	float max = -INFINITY;
	for (int64_t id = 0; id < g->vocab; id++) {
		float v = scores[id];
		if (v > max && !g->constraints.excluded[id]) {
			best = (int32_t)id;
			max = v;
		}
	}
	return best;
}

/* Chooses the id after g->ids. on_logits comes first, since it may change the row; log p is that of the row before
 * exclusions and score changes. Marking excluded ids also sets the state of the score changes, which the timestamp
 * rule and the scores read. log_p: NULL, or receives the chosen id's. E_LOGITS: no id is allowed. */
static int choose_next(struct generator *g, float *logits, int32_t *id, double *log_p)
{
	double log_sum = 0;
	TRY(constraints_logits(&g->constraints, logits, g->ids, g->n));
	if (log_p)
		TRY(log_sum_exp(logits, g->vocab, &log_sum));
	constraints_mark_excluded(&g->constraints, g->ids, g->n);
	constraints_prefer_timestamps(&g->constraints, logits, 0);
	const float *scores = constraints_scores(&g->constraints, logits);
	*id = g->sampler ? tfmc_sampler_draw(g->sampler, scores, g->constraints.excluded, g->ids, g->n)
	                 : arg_max(g, scores);
	if (*id < 0)
		return TFMC_RT_E_LOGITS;
	if (log_p)
		*log_p = (double)logits[*id] - log_sum;
	return TFMC_RT_OK;
}

/* Passes a new id, which is in g->ids already, to the callbacks. *ends: it was the last one, for the reason in
 * g->finish: of several a callback's wish, a stop string, a stop id, in this order. A forced stop id does not end
 * the sequence. */
static int report_token(struct generator *g, int32_t id, bool *ends)
{
	const struct tfmc_generate_options *o = &g->options;
	bool is_forced = g->n - g->constraints.n_first <= g->constraints.given.forced.n;
	int status = stream_token(&g->stream, id);
	bool no_more = o->on_token && o->on_token(o->user, id);
	*ends = true;
	if (no_more || g->stream.is_ended)
		g->finish = TFMC_FINISH_CALLBACK;
	else if (g->stream.is_stopped)
		g->finish = TFMC_FINISH_TEXT;
	else if (!is_forced && constraints_is_stop(&g->constraints, id))
		g->finish = TFMC_FINISH_STOP;
	else
		*ends = false;
	return status;
}

/* Bound of the number of new tokens after n_first ones: length bound of the sequence, max_new_tokens, and the caller's
 * buffer of cap ids. It is not negative, since generator_begin has checked n_first. */
static int64_t token_limit(const struct generator *g, uint64_t n_first, uint64_t cap)
{
	int64_t limit = max_sequence_length(g->options.constraints, g->session) - (int64_t)n_first;
	int64_t requested = g->options.max_new_tokens;
	if (requested > 0 && requested < limit)
		limit = requested;
	return cap < INT64_MAX && limit > (int64_t)cap ? (int64_t)cap : limit;
}

/* options may be NULL. Call generator_close also after a failure. */
static int generator_open(struct generator *g, struct tfmc_session *session, int64_t vocab,
                          const struct tfmc_generate_options *options)
{
	*g = (struct generator){.session = session, .record = tfmc_session_record(session), .vocab = vocab};
	if (options)
		g->options = *options;
	return options && options->struct_size != sizeof(*options) ? TFMC_RT_E_ABI : TFMC_RT_OK;
}

static void generator_close(struct generator *g)
{
	stream_close(&g->stream);
	constraints_close(&g->constraints);
	free(g->ids);
	tfmc_sampler_destroy(g->sampler);
	g->ids = NULL;
	g->sampler = NULL;
}

/* Starts the sequence with the ids before the new ones, of which there are at most cap. The caller owns the source
 * ids, which penalties and n-grams refer to: of a causal model they are the first ids. */
static int generator_begin(struct generator *g, const int32_t *first, uint64_t n_first,
                           struct tfmc_ids source, uint64_t cap)
{
	const struct tfmc_generate_options *o = &g->options;
	/* with an explicit bound at least one new token must fit */
	bool has_most = o->constraints && o->constraints->max_tokens > 0;
	TRY(feed_check_prompt(g->session, n_first,
	                      max_sequence_length(o->constraints, g->session) - has_most));
	g->limit = token_limit(g, n_first, cap);
	int status = constraints_open(&g->constraints, g->record, o->constraints, g->vocab);
	g->constraints.ignore_stop = o->ignore_stop != 0;
	g->stream = (struct stream){.constraints = &g->constraints, .emit = o->on_text, .user = o->user};
	if (status == TFMC_RT_OK && o->on_text && !constraints_have_text(&g->constraints))
		status = TFMC_RT_E_TEXT;
	if (status == TFMC_RT_OK && o->sample)
		status = tfmc_sampler_create(o->sample, g->vocab, &g->sampler);
	if (status != TFMC_RT_OK)
		return status;
	g->ids = calloc((size_t)n_first + (size_t)g->limit + 1, sizeof(*g->ids));
	if (!g->ids)
		return TFMC_RT_E_MEMORY;
	memcpy(g->ids, first, (size_t)n_first * sizeof(*first));
	g->n = g->n_first = n_first;
	bool is_causal = g->record->generate_kind == 1;
	constraints_begin(&g->constraints, n_first, n_first + (uint64_t)g->limit,
	                  is_causal ? (struct tfmc_ids){g->ids, n_first} : source);
	return TFMC_RT_OK;
}

/*
 * Chooses and reports the next id, from logits [vocab], which on_logits may change. log_p: NULL, or receives
 * its log-probability. *ends: it is the last one, for the reason in g->finish. When a callback fails, the id
 * still counts as new: g->n has grown.
 */
static int generator_next(struct generator *g, float *logits, double *log_p, bool *ends)
{
	int32_t id;
	*ends = true;
	int status = choose_next(g, logits, &id, log_p);
	if (status != TFMC_RT_OK)
		return status;
	g->ids[g->n++] = id;
	status = report_token(g, id, ends);
	*ends = *ends || (int64_t)(g->n - g->n_first) >= g->limit;
	return status;
}

/* Feeds the last id; all ids where the cached keys would have other rotary frequencies than the new one
 * (longrope). */
static int decode_step(struct generator *g, struct feeder *f)
{
	if (!feeder_must_reread(f, 0))
		return feeder_step(f, &g->ids[g->n - 1]);
	int status = session_trim(f->session, 0, 0);
	return status == TFMC_RT_OK ? feeder_prefill(f, g->ids, g->n) : status;
}

/* Prefill and decode loop of one sequence. New ids are copied to `out` before the status is read, so that those before
 * a failure are the caller's, too. The last id is not fed: nothing would read its logits. */
static int decode_loop(struct generator *g, struct feeder *f, const int32_t *first, uint64_t n_first,
                       struct tfmc_ids source, int32_t *out, uint64_t cap, uint64_t *n_out)
{
	double *log_p = g->options.log_p;
	int status = generator_begin(g, first, n_first, source, cap);
	if (status == TFMC_RT_OK)
		status = feeder_prefill(f, first, n_first);
	bool ends = status != TFMC_RT_OK || g->limit == 0;
	while (!ends) {
		status = generator_next(g, f->logits, log_p ? &log_p[*n_out] : NULL, &ends);
		for (; *n_out < g->n - n_first; ++*n_out)
			out[*n_out] = g->ids[n_first + *n_out];
		if (!ends && status == TFMC_RT_OK)
			status = decode_step(g, f);
		ends = ends || status != TFMC_RT_OK;
	}
	stream_end(&g->stream);
	return status;
}

/* Resets the session, encodes the source and generates from prompt, target or start ids (those of the model, where the
 * caller has none). Features instead of source ids: the constraints have no source. */
static int run_generation(struct generator *g, struct feeder *f, const int32_t *prompt, uint64_t n_prompt,
                          const int32_t *target, uint64_t n_target, int32_t *out, uint64_t cap,
                          uint64_t *n_out)
{
	const struct tfmc_record *r = g->record;
	int is_causal = r->generate_kind == 1;
	const int32_t *first = is_causal ? prompt : target;
	uint64_t n_first = is_causal ? n_prompt : n_target;
	int status = tfmc_session_reset(f->session);
	if (status == TFMC_RT_OK && !is_causal)
		status = feeder_encode(f, prompt, n_prompt);
	if (status != TFMC_RT_OK)
		return status;
	const struct tfmc_ids source =
	        session_source(f->session)->data ? (struct tfmc_ids){0} : (struct tfmc_ids){prompt, n_prompt};
	if (n_first)
		return decode_loop(g, f, first, n_first, source, out, cap, n_out);
	int32_t *start = record_start_ids(r, &n_first);
	status = start ? decode_loop(g, f, start, n_first, source, out, cap, n_out) : TFMC_RT_E_MEMORY;
	free(start);
	return status;
}

/* The vocabulary is known once the feeder is open: until then the generator has 0. After E_ABI the options have an
 * unknown layout, so that finish is not written. */
int tfmc_generate(struct tfmc_session *session, const struct tfmc_generate_options *options,
                  const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                  int32_t *out, uint64_t cap, uint64_t *n_out)
{
	struct generator g;
	struct feeder f = {0};
	if (!n_out)
		return TFMC_RT_E_NULL;
	*n_out = 0;
	if (!session || (!prompt && n_prompt) || (!target && n_target) || (!out && cap))
		return TFMC_RT_E_NULL;
	int status = generator_open(&g, session, 0, options);
	if (status != TFMC_RT_OK)
		return status;
	status = feeder_open(&f, session, 1);
	g.vocab = f.vocab;
	if (status == TFMC_RT_OK && !f.logits)
		status = TFMC_RT_E_GENERATE;
	if (status == TFMC_RT_OK)
		status = run_generation(&g, &f, prompt, n_prompt, target, n_target, out, cap, n_out);
	if (g.options.finish)
		*g.options.finish = status == TFMC_RT_OK ? g.finish : TFMC_FINISH_FAILED;
	feeder_close(&f);
	generator_close(&g);
	return session_end_generation(session, status);
}

/* ---- several sequences ---- */

/*
 * Generation of several sequences by continuous batching: each has a generator of its own (generate.c) and a
 * slot (runtime/slots.c); a decode step is one call for all. Batched calls have the bits of single ones,
 * so every sequence is independent of the others.
 */

/* A sequence in progress. */
struct lane {
	struct generator generator;
	struct tfmc_generation *item; /* NULL: the lane is free */
	int64_t slot;
};

/* State of tfmc_generate_many. */
struct many {
	struct tfmc_session *session;
	const struct tfmc_generate_options *options;
	struct tfmc_slots *slots;
	int64_t vocab, n_lanes;
	char prompt_error[SESSION_ERROR_BYTES]; /* about the first prompt that was rejected */
	struct lane *lanes;                     /* [n_lanes] */
	struct tfmc_slot_token *tokens;         /* [n_lanes] */
	float *row;                             /* [vocab] of one slot */
};

/* Ends a sequence with a status and frees its slot. */
static void finish_lane(struct many *m, struct lane *r, int status)
{
	stream_end(&r->generator.stream);
	r->item->status = status;
	r->item->finish = status == TFMC_RT_OK ? r->generator.finish : TFMC_FINISH_FAILED;
	if (r->slot >= 0)
		(void)tfmc_slots_leave(m->slots, r->slot);
	generator_close(&r->generator);
	r->item = NULL;
}

/* Chooses the next id of a sequence from the logits of its slot: a copy, since on_logits may change them. Ends the
 * sequence after its last id or a failure. */
static void advance_lane(struct many *m, struct lane *r)
{
	struct tfmc_generation *item = r->item;
	const float *logits = tfmc_slots_logits(m->slots, r->slot);
	bool ends = true;
	int status = TFMC_RT_E_LOGITS;
	if (logits) {
		memcpy(m->row, logits, (size_t)m->vocab * sizeof(*m->row));
		status = generator_next(&r->generator, m->row, item->log_p ? &item->log_p[item->n] : NULL,
		                        &ends);
	}
	for (; item->n < r->generator.n - r->generator.n_first; item->n++)
		item->out[item->n] = r->generator.ids[r->generator.n_first + item->n];
	if (ends || status != TFMC_RT_OK)
		finish_lane(m, r, status);
}

/* Prefills the prompt of an item into a slot. Failures are stored in the item; those that concern the whole session
 * (cancelled, device) are also returned. The session keeps one message: that of the first rejected prompt is saved. */
static int start_lane(struct many *m, struct lane *r, struct tfmc_generation *item)
{
	const struct tfmc_record *record = tfmc_session_record(m->session);
	int is_causal = record->generate_kind == 1;
	const int32_t *first = is_causal ? item->prompt : item->target;
	uint64_t n_first = is_causal ? item->n_prompt : item->n_target;
	int32_t *start = NULL;
	*r = (struct lane){.item = item, .slot = -1};
	item->n = 0;
	int status = generator_open(&r->generator, m->session, m->vocab, m->options);
	if ((!item->prompt && item->n_prompt) || (!item->target && item->n_target) ||
	    (!item->out && item->cap))
		status = TFMC_RT_E_NULL;
	if (status == TFMC_RT_OK && !n_first) {
		first = start = record_start_ids(record, &n_first);
		status = start ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
	}
	if (status == TFMC_RT_OK)
		status = generator_begin(&r->generator, first, n_first,
		                         (struct tfmc_ids){item->prompt, item->n_prompt}, item->cap);
	int joined = TFMC_RT_OK;
	if (status == TFMC_RT_OK)
		status = joined = tfmc_slots_join(m->slots, first, n_first, is_causal ? NULL : item->prompt,
		                                  is_causal ? 0 : item->n_prompt, &r->slot);
	free(start);
	if (status == TFMC_RT_E_PROMPT && !*m->prompt_error)
		memcpy(m->prompt_error, session_prompt_error_text(m->session), sizeof(m->prompt_error));
	if (status != TFMC_RT_OK || r->generator.limit == 0)
		finish_lane(m, r, status);
	else
		advance_lane(m, r);
	return joined == TFMC_RT_E_CANCELLED || joined == TFMC_RT_E_DEVICE ? joined : (int)TFMC_RT_OK;
}

/* Feeds the last id of all running sequences in one call and chooses their next ids. A failure of the call concerns
 * all. */
static int step_lanes(struct many *m)
{
	const struct tfmc_record *record = tfmc_session_record(m->session);
	uint64_t n = 0;
	int status = TFMC_RT_OK;
	for (int64_t i = 0; status == TFMC_RT_OK && i < m->n_lanes; i++) {
		const struct lane *r = &m->lanes[i];
		if (!r->item)
			continue;
		if (!record->reread || tfmc_slots_length(m->slots, r->slot) != record->long_from) {
			m->tokens[n++] = (struct tfmc_slot_token){r->slot, r->item->out[r->item->n - 1]};
			continue;
		}
		/* longrope border: prefill the sequence again from its first token, including the new one */
		status = tfmc_slots_trim(m->slots, r->slot, 0);
		if (status == TFMC_RT_OK)
			status = tfmc_slots_feed(m->slots, r->slot, r->generator.ids, r->generator.n);
	}
	status = status == TFMC_RT_OK ? tfmc_slots_step(m->slots, m->tokens, n) : status;
	for (int64_t i = 0; status == TFMC_RT_OK && i < m->n_lanes; i++)
		if (m->lanes[i].item)
			advance_lane(m, &m->lanes[i]);
	return status;
}

/* Fills free lanes with items and decodes until all are done. A status of a shared call ends the running ones. An item
 * that ends with its first id (or fails) frees its lane at once: hence the inner loop. */
static int run_all(struct many *m, struct tfmc_generation *items, uint64_t n)
{
	int status = TFMC_RT_OK;
	for (uint64_t next = 0; status == TFMC_RT_OK && (next < n || tfmc_slots_active(m->slots));) {
		for (int64_t i = 0; i < m->n_lanes && next < n; i++)
			while (!m->lanes[i].item && next < n && status == TFMC_RT_OK)
				status = start_lane(m, &m->lanes[i], &items[next++]);
		status = status == TFMC_RT_OK ? step_lanes(m) : status;
	}
	for (int64_t i = 0; i < m->n_lanes; i++)
		if (m->lanes[i].item)
			finish_lane(m, &m->lanes[i], status);
	return status;
}

/* Items that no lane reaches before a failure keep E_CANCELLED. Callbacks, log_p and finish of the options belong to
 * one sequence: E_CONSTRAINTS. Calls clear the session's message, so that of the first rejected prompt is set again
 * at the end. */
int tfmc_generate_many(struct tfmc_session *session, const struct tfmc_generate_options *options,
                       struct tfmc_generation *items, uint64_t n)
{
	struct many m = {.session = session, .options = options};
	const struct tfmc_generate_options *o = options;
	if (!session || (!items && n))
		return TFMC_RT_E_NULL;
	for (uint64_t i = 0; i < n; i++) {
		items[i].n = 0;
		items[i].finish = TFMC_FINISH_FAILED;
		items[i].status = TFMC_RT_E_CANCELLED;
	}
	if (o && o->struct_size != sizeof(*o))
		return TFMC_RT_E_ABI;
	if (o && (o->on_token || o->on_text || o->log_p || o->finish))
		return TFMC_RT_E_CONSTRAINTS;
	int status = tfmc_slots_open(session, &m.slots);
	if (status != TFMC_RT_OK)
		return status;
	m.vocab = tfmc_slots_vocabulary(m.slots);
	m.n_lanes = tfmc_session_batch(session);
	m.lanes = calloc((size_t)m.n_lanes, sizeof(*m.lanes));
	m.tokens = calloc((size_t)m.n_lanes, sizeof(*m.tokens));
	m.row = calloc((size_t)m.vocab + 1, sizeof(*m.row));
	status = m.lanes && m.tokens && m.row ? run_all(&m, items, n) : TFMC_RT_E_MEMORY;
	free(m.lanes);
	free(m.tokens);
	free(m.row);
	tfmc_slots_close(m.slots);
	if (*m.prompt_error)
		(void)session_prompt_error(session, "%s", m.prompt_error);
	return session_end_generation(session, status);
}
