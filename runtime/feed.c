/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From ids to calls: finds the tensors of generate by their names in the
 * record, sets the dims of a call from the shape of the ids, and calls.
 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 128

static const int64_t *ids_at(const struct tfmc_record *r, int64_t offset)
{
	return (const void *)((const char *)r + offset);
}

int record_has_id(const struct tfmc_record *r, int64_t ids, int64_t n, int64_t id)
{
	for (int64_t i = 0; i < n; i++)
		if (ids_at(r, ids)[i] == id)
			return 1;
	return 0;
}

int record_allows(const struct tfmc_record *r, int64_t id, int first)
{
	if (record_has_id(r, r->suppress, r->n_suppress, id))
		return 0;
	return !first || !record_has_id(r, r->suppress_first, r->n_suppress_first, id);
}

int32_t *record_start_ids(const struct tfmc_record *r, uint64_t *n)
{
	*n = (uint64_t)r->n_start;
	int32_t *ids = malloc((size_t)(*n ? *n : 1) * sizeof(*ids));
	for (uint64_t i = 0; ids && i < *n; i++)
		ids[i] = (int32_t)ids_at(r, r->start)[i];
	return ids;
}

/* --- calls -----------------------------------------------------------------------------------------------
 */

/* Number of the input or output with that name, or -1. */
static int64_t find_tensor(const struct tfmc_record *r, int64_t entry, const char *name, int output)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, entry);
	uint64_t n = output ? e->n_outputs : e->n_inputs;
	for (uint64_t i = 0; i < n; i++) {
		const struct tfmc_record_tensor *t =
		        output ? tfmc_entry_output(r, entry, i) : tfmc_entry_input(r, entry, i);
		if (!strcmp(tfmc_record_text(r, t->name), name))
			return (int64_t)i;
	}
	return -1;
}

/* Sets the dim that is axis `axis` of a tensor to `value`, when it is one symbol. */
static int set_axis(struct feeder *f, const struct tfmc_record_tensor *t, uint64_t axis, int64_t value)
{
	const uint64_t *w = (const void *)((const char *)f->record + t->sizes[axis]);
	if (w[0] == 1 && w[1] == 1 && w[2] == 1) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(f->record, w[3]);
		if (value < dim->lo || value > dim->hi)
			return axis == 0 ? TFMC_RT_E_BEAM : TFMC_RT_E_PROMPT;
		f->dims[w[3]] = value;
	}
	if (tfmc_tensor_size(f->record, t, axis, f->dims) != value)
		return axis == 0 ? TFMC_RT_E_BEAM : TFMC_RT_E_PROMPT;
	return TFMC_RT_OK;
}

/* Calls an entry with ids [batch, n] as the named input and, when it has them, the logits. */
static int feed(struct feeder *f, const char *entry_name, int64_t tensor_name, const int32_t *ids, uint64_t n)
{
	const struct tfmc_record *r = f->record;
	struct tfmc_buffer inputs[MAX_TENSORS] = {0}, outputs[MAX_TENSORS] = {0};
	int64_t entry = tfmc_entry_find(r, entry_name);
	if (entry < 0 || !tensor_name)
		return TFMC_RT_E_GENERATE;
	int64_t input = find_tensor(r, entry, tfmc_record_text(r, (uint64_t)tensor_name), 0);
	int64_t output = find_tensor(r, entry, tfmc_record_text(r, (uint64_t)r->logits_name), 1);
	if (input < 0 || input >= MAX_TENSORS || output >= MAX_TENSORS)
		return TFMC_RT_E_GENERATE;
	const struct tfmc_record_tensor *t = tfmc_entry_input(r, entry, (uint64_t)input);
	int status = set_axis(f, t, 0, f->batch);
	if (status == TFMC_RT_OK)
		status = set_axis(f, t, 1, (int64_t)n);
	if (status != TFMC_RT_OK)
		return status;
	inputs[input] = (struct tfmc_buffer){(void *)(uintptr_t)ids, (uint64_t)f->batch * n};
	if (output >= 0)
		outputs[output] = (struct tfmc_buffer){f->logits, (uint64_t)(f->batch * f->vocab)};
	status = tfmc_session_call(f->session, entry, f->dims, inputs, outputs);
	return status == TFMC_RT_E_TOKEN ? TFMC_RT_E_PROMPT : status;
}

int feeder_encode(struct feeder *f, const int32_t *ids, uint64_t n)
{
	return n ? feed(f, "encode", f->record->source_name, ids, n) : TFMC_RT_E_PROMPT;
}

int feeder_prefill(struct feeder *f, const int32_t *ids, uint64_t n)
{
	return n ? feed(f, "prefill", f->record->tokens_name, ids, n) : TFMC_RT_E_PROMPT;
}

int feeder_step(struct feeder *f, const int32_t *ids)
{
	return feed(f, "step", f->record->tokens_name, ids, 1);
}

/* --- opening ----------------------------------------------------------------------------------------------
 */

/* Size of the vocabulary: the last axis of prefill's logits. */
static int find_vocab(struct feeder *f)
{
	const struct tfmc_record *r = f->record;
	int64_t entry = tfmc_entry_find(r, "prefill");
	if (entry < 0 || !r->logits_name)
		return TFMC_RT_E_GENERATE;
	int64_t output = find_tensor(r, entry, tfmc_record_text(r, (uint64_t)r->logits_name), 1);
	if (output < 0)
		return TFMC_RT_E_GENERATE;
	const struct tfmc_record_tensor *t = tfmc_entry_output(r, entry, (uint64_t)output);
	f->vocab = tfmc_tensor_size(r, t, t->rank - 1, f->dims);
	if (t->dtype != 0 || f->vocab < 1 || f->vocab > INT32_MAX)
		return TFMC_RT_E_GENERATE;
	f->logits = calloc((size_t)f->vocab * (size_t)f->batch, sizeof(*f->logits));
	if (!f->logits)
		return TFMC_RT_E_MEMORY;
	return TFMC_RT_OK;
}

int feeder_open(struct feeder *f, struct tfmc_session *session, int64_t batch)
{
	*f = (struct feeder){.session = session, .record = tfmc_session_record(session), .batch = batch};
	if (!f->record->generate_kind || f->record->n_dims > FEED_DIMS_MAX)
		return TFMC_RT_E_GENERATE;
	for (uint64_t i = 0; i < f->record->n_dims; i++)
		f->dims[i] = tfmc_record_dim_at(f->record, i)->lo;
	return find_vocab(f);
}

void feeder_close(struct feeder *f)
{
	free(f->logits);
	f->logits = NULL;
}
