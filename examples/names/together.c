/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names side by side: as many as there is room for take each step in one call of the model, whoever is
 * ready makes room for the next one. The names are those that one after the other gives, letter for letter.
 */
#include "together.h"

#include <stdlib.h>

struct name {
	struct tfmc_sampler *sampler;
	int64_t slot; /* -1: not begun, or ready */
	struct made made;
};

struct together {
	const struct tfmc_record *record;
	struct tfmc_slots *slots;
	struct name *names;
	uint64_t count, begun, ready;
	unsigned char *first, *later; /* [V]: 1 where an id may not be the first one, or any */
};

static const int64_t *ids_at(const struct tfmc_record *record, int64_t offset)
{
	return (const void *)((const char *)record + offset);
}

/* The ids that the model itself leaves out. */
static int find_excluded(struct together *t)
{
	const struct tfmc_record *r = t->record;
	size_t vocabulary = (size_t)tfmc_slots_vocabulary(t->slots);
	t->first = calloc(vocabulary, 1);
	t->later = calloc(vocabulary, 1);
	if (!t->first || !t->later)
		return TFMC_RT_E_MEMORY;
	for (int64_t i = 0; i < r->n_suppress; i++)
		t->first[ids_at(r, r->suppress)[i]] = t->later[ids_at(r, r->suppress)[i]] = 1;
	for (int64_t i = 0; i < r->n_suppress_first; i++)
		t->first[ids_at(r, r->suppress_first)[i]] = 1;
	return TFMC_RT_OK;
}

/* The next name joins, from the model's start id. */
static int begin(struct together *t, const struct tfmc_sample_options *sample)
{
	struct tfmc_sample_options own = *sample;
	struct name *n = &t->names[t->begun];
	own.seed += t->begun++;
	int status = tfmc_sampler_create(&own, tfmc_slots_vocabulary(t->slots), &n->sampler);
	return status == TFMC_RT_OK ? tfmc_slots_join(t->slots, NULL, 0, NULL, 0, &n->slot) : status;
}

/* Draws the next letter; *ends: it was the last one. */
static int draw(struct together *t, struct name *n, int *ends)
{
	const float *logits = tfmc_slots_logits(t->slots, n->slot);
	struct made *m = &n->made;
	int32_t id = tfmc_sampler_draw(n->sampler, logits, m->n ? t->later : t->first, m->ids, m->n);
	if (id < 0)
		return TFMC_RT_E_LOGITS;
	m->ids[m->n++] = id;
	*ends = m->n == MADE_MAX || tfmc_slots_length(t->slots, n->slot) + 1 >= t->record->max_len;
	for (int64_t i = 0; i < t->record->n_stop; i++)
		*ends = *ends || ids_at(t->record, t->record->stop)[i] == id;
	return TFMC_RT_OK;
}

/* One letter for each name that is begun, in one call. */
static int step(struct together *t, struct tfmc_slot_token *tokens)
{
	uint64_t n_tokens = 0;
	int status = TFMC_RT_OK;
	for (uint64_t i = 0; status == TFMC_RT_OK && i < t->begun; i++) {
		struct name *n = &t->names[i];
		int ends = 0;
		if (n->slot < 0)
			continue;
		status = draw(t, n, &ends);
		if (status == TFMC_RT_OK && !ends) {
			tokens[n_tokens++] = (struct tfmc_slot_token){n->slot, n->made.ids[n->made.n - 1]};
			continue;
		}
		(void)tfmc_slots_leave(t->slots, n->slot);
		n->slot = -1;
		t->ready++;
	}
	return status == TFMC_RT_OK ? tfmc_slots_step(t->slots, tokens, n_tokens) : status;
}

static int make_all(struct together *t, const struct tfmc_sample_options *sample, int64_t room)
{
	struct tfmc_slot_token *tokens = calloc((size_t)room, sizeof(*tokens));
	int status = tokens ? find_excluded(t) : (int)TFMC_RT_E_MEMORY;
	while (status == TFMC_RT_OK && t->ready < t->count) {
		while (status == TFMC_RT_OK && t->begun < t->count && tfmc_slots_active(t->slots) < room)
			status = begin(t, sample);
		if (status == TFMC_RT_OK)
			status = step(t, tokens);
	}
	free(tokens);
	return status;
}

int make_together(struct tfmc_session *session, const struct tfmc_sample_options *sample, uint64_t count,
                  struct made *out)
{
	struct together t = {.record = tfmc_session_record(session), .count = count};
	t.names = calloc((size_t)count + 1, sizeof(*t.names));
	if (!t.names)
		return TFMC_RT_E_MEMORY;
	for (uint64_t i = 0; i < count; i++)
		t.names[i].slot = -1;
	int status = tfmc_slots_open(session, &t.slots);
	if (status == TFMC_RT_OK)
		status = make_all(&t, sample, tfmc_session_batch(session));
	for (uint64_t i = 0; i < count; i++) {
		out[i] = t.names[i].made;
		tfmc_sampler_destroy(t.names[i].sampler);
	}
	tfmc_slots_close(t.slots);
	free(t.first);
	free(t.later);
	free(t.names);
	return status;
}
