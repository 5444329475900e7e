/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: continuous batching. The active sequences are always sequences 0 .. n_active - 1 of the session, so
 * that a decode step is one call on the first rows; a sequence that leaves is replaced by the last one, whose
 * cache rows are copied once. A slot is the stable handle of a sequence.
 *
 * INVARIANT: slots[].sequence and slot_of are inverse maps on the active sequences; a call that fails leaves
 * lengths, slots and logits unchanged.
 *
 * logits of a slot outlive the call that made them, since the feeder's rows (row_logits) are overwritten by the next
 * call of any slot; has_logits 0: the sequence has changed since. Where `step` has the input lengths, rows of length 0
 * are skipped.
 */
#include "runtime/feed.h"

#include <stdlib.h>
#include <string.h>

/* Handle of a sequence. */
struct slot {
	int64_t sequence; /* of the session; -1: the slot is free */
	int has_logits;
};

/* The slots of a session; owns all arrays but row_logits. */
struct tfmc_slots {
	struct tfmc_session *session;
	struct feeder feeder;
	int64_t n, n_active;
	struct slot *slots; /* [n] */
	int64_t *slot_of;   /* [n]: slot of each sequence */
	float *logits;      /* [n, V], indexed by slot */
	float *row_logits;  /* [n, V]: rows of the last call; owned by the feeder */
	int32_t *ids;       /* [n]: input of a step */
	int32_t *lengths;   /* [n]: input of a step, 1 or 0 */
};

/* Allocates the arrays and resets the session. E_STATE: the session has no state; E_GENERATE: no logits. The caller
 * closes after a failure. */
static int open_slots(struct tfmc_slots *s)
{
	s->n = tfmc_session_batch(s->session);
	if (s->n < 1)
		return TFMC_RT_E_STATE;
	TRY(feeder_open(&s->feeder, s->session, s->n));
	s->row_logits = s->feeder.logits;
	if (!s->row_logits)
		return TFMC_RT_E_GENERATE;
	size_t n = (size_t)s->n;
	s->slots = calloc(n, sizeof(*s->slots));
	s->slot_of = calloc(n, sizeof(*s->slot_of));
	s->ids = calloc(n, sizeof(*s->ids));
	s->lengths = calloc(n, sizeof(*s->lengths));
	s->logits = calloc(n * (size_t)s->feeder.vocab, sizeof(*s->logits));
	if (!s->slots || !s->slot_of || !s->ids || !s->lengths || !s->logits)
		return TFMC_RT_E_MEMORY;
	for (int64_t i = 0; i < s->n; i++)
		s->slots[i].sequence = -1;
	return tfmc_session_reset(s->session);
}

int tfmc_slots_open(struct tfmc_session *session, struct tfmc_slots **out)
{
	if (!out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	if (!session)
		return TFMC_RT_E_NULL;
	struct tfmc_slots *s = calloc(1, sizeof(*s));
	if (!s)
		return TFMC_RT_E_MEMORY;
	s->session = session;
	int status = open_slots(s);
	if (status == TFMC_RT_OK)
		*out = s;
	else
		tfmc_slots_close(s);
	return status;
}

/* Frees the slots and resets the session, which the application may use again. */
void tfmc_slots_close(struct tfmc_slots *slots)
{
	if (!slots)
		return;
	(void)tfmc_session_reset(slots->session);
	feeder_close(&slots->feeder);
	free(slots->slots);
	free(slots->slot_of);
	free(slots->ids);
	free(slots->lengths);
	free(slots->logits);
	free(slots);
}

/* ---- map between slots and sequences ---- */

static int is_active(const struct tfmc_slots *s, int64_t slot)
{
	return s && slot >= 0 && slot < s->n && s->slots[slot].sequence >= 0;
}

/* The lowest free slot, or -1. */
static int64_t find_free_slot(const struct tfmc_slots *s)
{
	for (int64_t i = 0; i < s->n; i++)
		if (s->slots[i].sequence < 0)
			return i;
	return -1;
}

static float *logits_of(const struct tfmc_slots *s, int64_t slot)
{
	return s->logits + slot * s->feeder.vocab;
}

/* Makes sequence n_active the sequence of the slot. */
static void assign_slot(struct tfmc_slots *s, int64_t slot)
{
	s->slots[slot] = (struct slot){.sequence = s->n_active};
	s->slot_of[s->n_active++] = slot;
}

static void store_logits(struct tfmc_slots *s, int64_t slot, const float *row)
{
	memcpy(logits_of(s, slot), row, (size_t)s->feeder.vocab * sizeof(*row));
	s->slots[slot].has_logits = 1;
}

/* ---- one sequence ---- */

/* Prefills one sequence, which session_select has made row 0, in as many calls as needed. After a failure it is
 * trimmed to its former length, unless a sliding-window cache has overwritten older rows. */
static int prefill_sequence(struct tfmc_slots *s, int64_t sequence, const int32_t *ids, uint64_t n)
{
	int64_t before = tfmc_session_length(s->session, sequence);
	uint64_t capacity = session_context(s->session);
	if (n > capacity || (uint64_t)before > capacity - n)
		return TFMC_RT_E_FULL;
	s->feeder.batch = 1;
	s->feeder.lengths = NULL;
	int status = feeder_prefill(&s->feeder, ids, n);
	if (status != TFMC_RT_OK)
		(void)session_trim(s->session, sequence, before);
	return status;
}

/* Encodes the source (of all models but causal ones, kind 1) and prefills the tokens into sequence n_active, the first
 * that has no slot: a failure leaves the slots as they are. */
static int prefill_new(struct tfmc_slots *s, const int32_t *ids, uint64_t n, const int32_t *source,
                       uint64_t n_source)
{
	TRY(session_trim(s->session, s->n_active, 0));
	TRY(tfmc_session_select(s->session, s->n_active, -1));
	s->feeder.batch = 1;
	s->feeder.lengths = NULL;
	if (s->feeder.record->generate_kind != 1)
		TRY(feeder_encode(&s->feeder, source, n_source));
	return prefill_sequence(s, s->n_active, ids, n);
}

/* The sequence gets its slot only after everything has worked; before that it is beyond the active ones, which no call
 * reads. */
int tfmc_slots_join(struct tfmc_slots *slots, const int32_t *ids, uint64_t n, const int32_t *source,
                    uint64_t n_source, int64_t *slot)
{
	struct tfmc_slots *s = slots;
	int32_t *start = NULL;
	if (!slot)
		return TFMC_RT_E_NULL;
	*slot = -1;
	if (!s || (!ids && n) || (!source && n_source))
		return TFMC_RT_E_NULL;
	session_clear_prompt_error(s->session);
	int64_t index = find_free_slot(s);
	if (index < 0)
		return TFMC_RT_E_SLOT;
	if (n == 0) {
		start = record_start_ids(s->feeder.record, &n);
		if (!start)
			return TFMC_RT_E_MEMORY;
	}
	int status = prefill_new(s, start ? start : ids, n, source, n_source);
	free(start);
	if (status != TFMC_RT_OK)
		return status;
	assign_slot(s, index);
	store_logits(s, index, s->row_logits);
	*slot = index;
	return TFMC_RT_OK;
}

/* After a failure prefill_sequence trims to the length before; where a sliding window does not allow that, the
 * logits no longer belong to the sequence. */
int tfmc_slots_feed(struct tfmc_slots *slots, int64_t slot, const int32_t *ids, uint64_t n)
{
	struct tfmc_slots *s = slots;
	if (!s || (!ids && n))
		return TFMC_RT_E_NULL;
	if (!is_active(s, slot))
		return TFMC_RT_E_SLOT;
	session_clear_prompt_error(s->session);
	int status = tfmc_session_select(s->session, s->slots[slot].sequence, -1);
	int64_t before = tfmc_slots_length(s, slot);
	if (status == TFMC_RT_OK)
		status = prefill_sequence(s, s->slots[slot].sequence, ids, n);
	if (status == TFMC_RT_OK)
		store_logits(s, slot, s->row_logits);
	else if (tfmc_slots_length(s, slot) != before)
		s->slots[slot].has_logits = 0;
	return status;
}

/* select -1: with a source that all rows share, fork would copy tokens only; the copy needs its own encoder output,
 * too. The new sequence is n_active, the first without a slot. */
int tfmc_slots_fork(struct tfmc_slots *slots, int64_t slot, int64_t *copy)
{
	struct tfmc_slots *s = slots;
	if (!copy)
		return TFMC_RT_E_NULL;
	*copy = -1;
	if (!s)
		return TFMC_RT_E_NULL;
	int64_t index = find_free_slot(s);
	if (!is_active(s, slot) || index < 0)
		return TFMC_RT_E_SLOT;
	TRY(tfmc_session_select(s->session, 0, -1));
	TRY(tfmc_session_fork(s->session, s->slots[slot].sequence, s->n_active));
	assign_slot(s, index);
	s->slots[index].has_logits = s->slots[slot].has_logits;
	memcpy(logits_of(s, index), logits_of(s, slot), (size_t)s->feeder.vocab * sizeof(float));
	*copy = index;
	return TFMC_RT_OK;
}

/* The last sequence moves to the freed one. select -1: fork copies the encoder output of the sequence, too. The trim
 * may fail without harm: sequences from n_active on are not read, and prefill_new empties them again. */
int tfmc_slots_leave(struct tfmc_slots *slots, int64_t slot)
{
	struct tfmc_slots *s = slots;
	if (!s)
		return TFMC_RT_E_NULL;
	if (!is_active(s, slot))
		return TFMC_RT_E_SLOT;
	int64_t freed = s->slots[slot].sequence, last = s->n_active - 1;
	TRY(tfmc_session_select(s->session, 0, -1));
	if (freed != last)
		TRY(tfmc_session_fork(s->session, last, freed));
	(void)session_trim(s->session, last, 0);
	s->slots[s->slot_of[last]].sequence = freed;
	s->slot_of[freed] = s->slot_of[last];
	s->slots[slot] = (struct slot){.sequence = -1};
	s->n_active = last;
	return TFMC_RT_OK;
}

int tfmc_slots_trim(struct tfmc_slots *slots, int64_t slot, int64_t length)
{
	if (!slots)
		return TFMC_RT_E_NULL;
	if (!is_active(slots, slot))
		return TFMC_RT_E_SLOT;
	int64_t before = tfmc_slots_length(slots, slot);
	TRY(tfmc_session_trim(slots->session, slots->slots[slot].sequence, length));
	if (length != before)
		slots->slots[slot].has_logits = 0;
	return TFMC_RT_OK;
}

/* ---- decode step ---- */

/* Sets ids and lengths of the rows; *end: one past the last row that grows. E_SLOT: inactive or named twice. E_FULL: a
 * sequence has as many tokens as the session allows; the object checks its own limit. */
static int set_step_rows(struct tfmc_slots *s, const struct tfmc_slot_token *tokens, uint64_t n, int64_t *end)
{
	memset(s->lengths, 0, (size_t)s->n * sizeof(*s->lengths));
	memset(s->ids, 0, (size_t)s->n * sizeof(*s->ids));
	*end = 0;
	for (uint64_t i = 0; i < n; i++) {
		if (!is_active(s, tokens[i].slot))
			return TFMC_RT_E_SLOT;
		int64_t row = s->slots[tokens[i].slot].sequence;
		if (s->lengths[row])
			return TFMC_RT_E_SLOT;
		s->lengths[row] = 1;
		s->ids[row] = tokens[i].id;
		*end = row + 1 > *end ? row + 1 : *end;
	}
	/* The object checks its own limit; a smaller one of the session is checked here. */
	uint64_t capacity = session_context(s->session);
	if (capacity >= s->feeder.record->context_limit)
		return TFMC_RT_OK;
	TRY(feeder_check_ids(&s->feeder, "step", s->ids, (uint64_t)*end));
	for (int64_t row = 0; row < *end; row++)
		if (s->lengths[row] && tfmc_session_length(s->session, row) >= (int64_t)capacity)
			return TFMC_RT_E_FULL;
	return TFMC_RT_OK;
}

/* One call on rows [first, end): row i is sequence first + i, each with its own encoder output (-1). all: every row
 * grows, so that no lengths are needed. The feeder's fields for the call are reset after it. */
static int step_rows(struct tfmc_slots *s, int64_t first, int64_t end, int all)
{
	struct feeder *f = &s->feeder;
	f->batch = end - first;
	f->lengths = all ? NULL : s->lengths + first;
	f->logits = s->row_logits + first * f->vocab;
	int status = tfmc_session_select(s->session, first, -1);
	if (status == TFMC_RT_OK)
		status = feeder_step(f, s->ids + first);
	f->logits = s->row_logits;
	f->lengths = NULL;
	return status;
}

/* For an object without lengths: one call for each run of consecutive rows that grow. */
static int step_runs(struct tfmc_slots *s, int64_t end)
{
	for (int64_t first = 0, next; first < end; first = next) {
		next = first + 1;
		if (!s->lengths[first])
			continue;
		while (next < end && s->lengths[next])
			next++;
		int status = step_rows(s, first, next, 1);
		if (status == TFMC_RT_OK)
			continue;
		/* Undoes the steps of the earlier calls: a failed step changes no sequence. */
		for (int64_t row = 0; row < first; row++)
			if (s->lengths[row])
				(void)session_trim(s->session, row, tfmc_session_length(s->session, row) - 1);
		return status;
	}
	return TFMC_RT_OK;
}

/* As many tokens as rows up to the last one: all rows grow, since set_step_rows rejects a slot named twice. Else
 * rows of length 0 are skipped, by the object where it takes lengths. */
int tfmc_slots_step(struct tfmc_slots *slots, const struct tfmc_slot_token *tokens, uint64_t n)
{
	struct tfmc_slots *s = slots;
	int64_t end;
	if (!s || (!tokens && n))
		return TFMC_RT_E_NULL;
	session_clear_prompt_error(s->session);
	int status = set_step_rows(s, tokens, n, &end);
	if (status != TFMC_RT_OK || end == 0)
		return status;
	int all = (uint64_t)end == n;
	status = all || feeder_has_lengths(&s->feeder) ? step_rows(s, 0, end, all) : step_runs(s, end);
	for (int64_t row = 0; status == TFMC_RT_OK && row < end; row++)
		if (s->lengths[row])
			store_logits(s, s->slot_of[row], s->row_logits + row * s->feeder.vocab);
	return status;
}

/* ---- queries ---- */

const float *tfmc_slots_logits(const struct tfmc_slots *slots, int64_t slot)
{
	return is_active(slots, slot) && slots->slots[slot].has_logits ? logits_of(slots, slot) : NULL;
}

int64_t tfmc_slots_vocabulary(const struct tfmc_slots *slots)
{
	return slots ? slots->feeder.vocab : 0;
}

int64_t tfmc_slots_length(const struct tfmc_slots *slots, int64_t slot)
{
	return is_active(slots, slot) ? tfmc_session_length(slots->session, slots->slots[slot].sequence) : -1;
}

int64_t tfmc_slots_active(const struct tfmc_slots *slots)
{
	return slots ? slots->n_active : 0;
}

int tfmc_slots_save(const struct tfmc_slots *slots, int64_t slot, void *out, uint64_t cap, uint64_t *n_out)
{
	if (!n_out)
		return TFMC_RT_E_NULL;
	*n_out = 0;
	if (!slots)
		return TFMC_RT_E_NULL;
	if (!is_active(slots, slot))
		return TFMC_RT_E_SLOT;
	return tfmc_session_save(slots->session, slots->slots[slot].sequence, out, cap, n_out);
}

/* A sequence that was saved while rows shared a source has no encoder output of its own, so it cannot be decoded:
 * E_STATE. Logits are not saved. */
int tfmc_slots_restore(struct tfmc_slots *slots, const void *data, uint64_t n, int64_t *slot)
{
	if (!slot)
		return TFMC_RT_E_NULL;
	*slot = -1;
	if (!slots)
		return TFMC_RT_E_NULL;
	int64_t index = find_free_slot(slots);
	if (index < 0)
		return TFMC_RT_E_SLOT;
	int status = tfmc_session_restore(slots->session, slots->n_active, data, n);
	if (status == TFMC_RT_OK && !session_has_source(slots->session, slots->n_active)) {
		(void)session_trim(slots->session, slots->n_active, 0);
		return TFMC_RT_E_STATE; /* it was saved with a shared source */
	}
	if (status != TFMC_RT_OK)
		return status;
	assign_slot(slots, index);
	*slot = index;
	return TFMC_RT_OK;
}
