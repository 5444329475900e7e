/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation of several sequences by continuous batching: each has a generator of its own (generate.c) and a
 * slot (runtime/slots.c); a decode step is one call for all. Batched calls have the bits of single ones,
 * so every sequence is independent of the others.
 */
#include "runtime/feed.h"
#include "runtime/generator.h"

#include <stdlib.h>
#include <string.h>

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

/* Chooses the next id of a sequence from the logits of its slot. */
static void choose_next(struct many *m, struct lane *r)
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

/* Prefills the prompt of an item into a slot. Failures are stored in the item; those that concern the
 * whole session (cancelled, device) are also returned. */
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
		choose_next(m, r);
	return joined == TFMC_RT_E_CANCELLED || joined == TFMC_RT_E_DEVICE ? joined : (int)TFMC_RT_OK;
}

/* Feeds the last id of all running sequences in one call and chooses their next ids. */
static int decode_step(struct many *m)
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
			choose_next(m, &m->lanes[i]);
	return status;
}

/* Fills free lanes with items and decodes until all are done. A status of a shared call ends the running
 * ones. */
static int run_all(struct many *m, struct tfmc_generation *items, uint64_t n)
{
	int status = TFMC_RT_OK;
	for (uint64_t next = 0; status == TFMC_RT_OK && (next < n || tfmc_slots_active(m->slots));) {
		for (int64_t i = 0; i < m->n_lanes && next < n; i++)
			while (!m->lanes[i].item && next < n && status == TFMC_RT_OK)
				status = start_lane(m, &m->lanes[i], &items[next++]);
		status = status == TFMC_RT_OK ? decode_step(m) : status;
	}
	for (int64_t i = 0; i < m->n_lanes; i++)
		if (m->lanes[i].item)
			finish_lane(m, &m->lanes[i], status);
	return status;
}

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
		return TFMC_RT_E_RULES;
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
