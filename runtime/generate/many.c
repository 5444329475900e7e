/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation of several sequences side by side: each has a generator of its own
 * (generate.c) and a slot of the session (runtime/core/slots.c); a step is one call for all.
 * Steps of a batch have the bits of steps alone, so every sequence is what it
 * would be without the others.
 */
#include "runtime/core/feed.h"
#include "runtime/generate/generator.h"

#include <stdlib.h>
#include <string.h>

struct running {
	struct generator generator;
	struct tfmc_generation *item; /* NULL: the place is free */
	int64_t slot;
};

struct many {
	struct tfmc_session *session;
	const struct tfmc_generate_options *options;
	struct tfmc_slots *slots;
	int64_t vocab, n_places;
	char fault[SESSION_FAULT];      /* of the first prompt that was refused */
	struct running *places;         /* [n_places] */
	struct tfmc_slot_token *tokens; /* [n_places] */
	float *row;                     /* [vocab] of one slot */
};

static void end(struct many *m, struct running *r, int status)
{
	stream_end(&r->generator.stream);
	r->item->status = status;
	r->item->finish = status == TFMC_RT_OK ? r->generator.finish : TFMC_FINISH_FAILED;
	if (r->slot >= 0)
		(void)tfmc_slots_leave(m->slots, r->slot);
	generator_close(&r->generator);
	r->item = NULL;
}

/* The next id of a sequence after what its slot computed. */
static void choose(struct many *m, struct running *r)
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
		end(m, r, status);
}

/* Reads the prompt into a slot. A failure is the sequence's own, but for those of the session, which are returned. */
static int begin(struct many *m, struct running *r, struct tfmc_generation *item)
{
	const struct tfmc_record *record = tfmc_session_record(m->session);
	int is_causal = record->generate_kind == 1;
	const int32_t *first = is_causal ? item->prompt : item->target;
	uint64_t n_first = is_causal ? item->n_prompt : item->n_target;
	int32_t *start = NULL;
	*r = (struct running){.item = item, .slot = -1};
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
	if (status == TFMC_RT_E_PROMPT && !*m->fault)
		memcpy(m->fault, session_last_fault(m->session), sizeof(m->fault));
	if (status != TFMC_RT_OK || r->generator.limit == 0)
		end(m, r, status);
	else
		choose(m, r);
	return joined == TFMC_RT_E_CANCELLED || joined == TFMC_RT_E_DEVICE ? joined : (int)TFMC_RT_OK;
}

/* Reads a sequence again from its first token, the new one with it. */
static int reread(struct many *m, const struct running *r)
{
	int status = tfmc_slots_trim(m->slots, r->slot, 0);
	return status == TFMC_RT_OK ? tfmc_slots_feed(m->slots, r->slot, r->generator.ids, r->generator.n)
	                            : status;
}

/* One more token for everyone who goes on. */
static int step(struct many *m)
{
	const struct tfmc_record *record = tfmc_session_record(m->session);
	uint64_t n = 0;
	int status = TFMC_RT_OK;
	for (int64_t i = 0; status == TFMC_RT_OK && i < m->n_places; i++) {
		const struct running *r = &m->places[i];
		if (!r->item)
			continue;
		if (record->reread && tfmc_slots_length(m->slots, r->slot) == record->long_from)
			status = reread(m, r);
		else
			m->tokens[n++] = (struct tfmc_slot_token){r->slot, r->item->out[r->item->n - 1]};
	}
	status = status == TFMC_RT_OK ? tfmc_slots_step(m->slots, m->tokens, n) : status;
	for (int64_t i = 0; status == TFMC_RT_OK && i < m->n_places; i++)
		if (m->places[i].item)
			choose(m, &m->places[i]);
	return status;
}

static int run(struct many *m, struct tfmc_generation *items, uint64_t n)
{
	int status = TFMC_RT_OK;
	for (uint64_t next = 0; status == TFMC_RT_OK && (next < n || tfmc_slots_active(m->slots));) {
		for (int64_t i = 0; i < m->n_places && next < n; i++)
			while (!m->places[i].item && next < n && status == TFMC_RT_OK)
				status = begin(m, &m->places[i], &items[next++]);
		status = status == TFMC_RT_OK ? step(m) : status;
	}
	for (int64_t i = 0; i < m->n_places; i++)
		if (m->places[i].item)
			end(m, &m->places[i], status);
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
	m.n_places = tfmc_session_batch(session);
	m.places = calloc((size_t)m.n_places, sizeof(*m.places));
	m.tokens = calloc((size_t)m.n_places, sizeof(*m.tokens));
	m.row = calloc((size_t)m.vocab + 1, sizeof(*m.row));
	status = m.places && m.tokens && m.row ? run(&m, items, n) : TFMC_RT_E_MEMORY;
	free(m.places);
	free(m.tokens);
	free(m.row);
	tfmc_slots_close(m.slots);
	if (*m.fault)
		(void)session_fault(session, "%s", m.fault);
	return session_end(session, status);
}
