/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the entries encode, prefill, step and score with token ids: finds the tensors of `generate` by
 * their names in the record, binds the dims of the call from the shape of the ids, and turns failures into
 * messages about the prompt.
 *
 * A prompt is the ids that a causal model (record->generate_kind 1) continues; other models are sequence to sequence,
 * whose prompt is the source of `encode`, and the target is what they continue. Dims are indexed as in the record,
 * which stores strings, ids and sizes as byte offsets from its beginning; a size is a polynomial of the dims. Inputs
 * without a buffer take their default.
 */
#include "runtime/feed.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

int64_t record_first_id(const struct tfmc_record *r, int64_t ids)
{
	return ids_at(r, ids)[0];
}

int record_allows_id(const struct tfmc_record *r, int64_t id, int first)
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

int feed_check_prompt(struct tfmc_session *session, uint64_t n_first, int64_t max)
{
	const struct tfmc_record *r = tfmc_session_record(session);
	const char *what = r->generate_kind == 1 ? "prompt" : "target";
	if (!n_first)
		return session_prompt_error(session, "the %s is empty, and the model has no start ids", what);
	if (max < 0 || n_first > (uint64_t)max)
		return session_prompt_error(session, "the %s has %llu ids; at most %lld are possible", what,
		                            (unsigned long long)n_first, (long long)max);
	return TFMC_RT_OK;
}

int feed_check_ids(struct tfmc_session *session, const char *what, const int32_t *ids, uint64_t n,
                   int64_t below)
{
	for (uint64_t i = 0; below > 0 && i < n; i++)
		if (ids[i] < 0 || ids[i] >= below)
			return session_prompt_error(
			        session, "id %d, number %llu of %s, is outside of the vocabulary of %lld",
			        (int)ids[i], (unsigned long long)i + 1, what, (long long)below);
	return TFMC_RT_OK;
}

/* ---- calls ---- */

/* Index of the input or output of that name, or -1. */
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

/* The input in words of the caller, for messages. */
static const char *input_label(const struct tfmc_record *r, const struct tfmc_record_tensor *t)
{
	const char *tokens = r->tokens_name ? tfmc_record_text(r, (uint64_t)r->tokens_name) : "";
	if (strcmp(tfmc_record_text(r, t->name), tokens) != 0)
		return "the source";
	return r->generate_kind == 1 ? "the prompt" : "the target";
}

/* E_PROMPT, with a message about a size outside of [lo, hi]: a number of ids where the input is ids (`below`, the
 * vocabulary that bounds them, is positive), else an axis. */
static int axis_error(const struct feeder *f, const struct tfmc_record_tensor *t, uint64_t axis,
                      int64_t value, int64_t lo, int64_t hi)
{
	const char *name = input_label(f->record, t);
	if (t->below > 0)
		return session_prompt_error(f->session, "%s has %lld ids; %lld to %lld are possible", name,
		                            (long long)value, (long long)lo, (long long)hi);
	return session_prompt_error(f->session, "axis %d of %s is %lld; %lld to %lld are possible", (int)axis,
	                            name, (long long)value, (long long)lo, (long long)hi);
}

/* Binds the dim of axis `axis` of a tensor to `value` if the size is a single symbol, else checks that the size is
 * equal. Axis 0 is the batch, which the caller has chosen by its number of sequences: E_BEAM, not a message about the
 * prompt. */
static int bind_axis(struct feeder *f, const struct tfmc_record_tensor *t, uint64_t axis, int64_t value)
{
	const uint64_t *w = (const void *)((const char *)f->record + t->sizes[axis]);
	if (w[0] == 1 && w[1] == 1 && w[2] == 1) { /* one term, coefficient 1, one factor: a symbol */
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(f->record, w[3]);
		if (value < dim->lo || value > dim->hi)
			return axis == 0 ? (int)TFMC_RT_E_BEAM
			                 : axis_error(f, t, axis, value, dim->lo, dim->hi);
		f->dims[w[3]] = value;
	}
	int64_t size = tfmc_tensor_size(f->record, t, axis, f->dims);
	if (size == value)
		return TFMC_RT_OK;
	return axis == 0 ? (int)TFMC_RT_E_BEAM : axis_error(f, t, axis, value, size, size);
}

/* Prepares a call with ids [batch, n] as the named input: binds dims, passes lengths and call_end where the entry has
 * them. tensor_name is an offset in the record, 0: the model has no such input. Without call_end, the default, the
 * length after the call selects the rotary frequencies. */
static int prepare_call(struct feeder *f, struct session_call *c, const char *entry_name, int64_t tensor_name,
                        const int32_t *ids, uint64_t n)
{
	const struct tfmc_record *r = f->record;
	*c = (struct session_call){.entry = tfmc_entry_find(r, entry_name)};
	if (c->entry < 0 || !tensor_name)
		return TFMC_RT_E_GENERATE;
	if (session_consume_cancel(f->session))
		return TFMC_RT_E_CANCELLED;
	int64_t input = find_tensor(r, c->entry, tfmc_record_text(r, (uint64_t)tensor_name), 0);
	if (input < 0 || input >= TFMC_TENSORS_MAX)
		return TFMC_RT_E_GENERATE;
	const struct tfmc_record_tensor *t = tfmc_entry_input(r, c->entry, (uint64_t)input);
	TRY(bind_axis(f, t, 0, f->batch));
	TRY(bind_axis(f, t, 1, n > INT64_MAX ? INT64_MAX : (int64_t)n));
	c->inputs[input] = (struct tfmc_buffer){(void *)(uintptr_t)ids, (uint64_t)f->batch * n};
	if (f->lengths && (t->lengths < 0 || t->lengths >= TFMC_TENSORS_MAX))
		return TFMC_RT_E_GENERATE;
	if (f->lengths)
		c->inputs[t->lengths] =
		        (struct tfmc_buffer){(void *)(uintptr_t)f->lengths, (uint64_t)f->batch};
	int64_t end = r->long_from > 0 ? find_tensor(r, c->entry, "call_end", 0) : -1;
	if (f->call_end > 0 && f->batch == 1 && end >= 0 && end < TFMC_TENSORS_MAX)
		c->inputs[end] = (struct tfmc_buffer){&f->call_end, 1};
	memcpy(c->dims, f->dims, sizeof(c->dims));
	return TFMC_RT_OK;
}

/* Names the missing input in the message of the session. Returns E_PROMPT; E_NULL: none is missing, another pointer
 * was null. Beyond the last input tfmc_entry_input returns NULL. */
static int missing_input_error(struct feeder *f, const struct session_call *c)
{
	for (uint64_t i = 0; i < TFMC_TENSORS_MAX; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(f->record, c->entry, i);
		if (t && !t->has_default && !c->inputs[i].data)
			return session_prompt_error(f->session,
			                            "the model requires the input %s, which only a direct "
			                            "call of its entries can pass",
			                            tfmc_record_text(f->record, t->name));
	}
	return TFMC_RT_E_NULL;
}

/* Sets the message of the session: the first id of the call outside of the vocabulary. */
static void report_wrong_id(struct feeder *f, const struct session_call *c)
{
	for (uint64_t i = 0; i < TFMC_TENSORS_MAX; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(f->record, c->entry, i);
		const struct tfmc_buffer *b = &c->inputs[i];
		if (t && t->below > 0 && b->data)
			(void)feed_check_ids(f->session, input_label(f->record, t), b->data, b->count,
			                     t->below);
	}
}

/* Does a run of one entry. The object reports no more than E_NULL and E_TOKEN: E_NULL becomes E_PROMPT with a
 * message that names the missing input, or stays if none is missing; E_TOKEN becomes E_PROMPT with one that names
 * the id. */
static int execute_run(struct feeder *f, const struct session_call *calls, uint64_t n)
{
	int status = session_run(f->session, calls, n);
	if (status == TFMC_RT_E_NULL)
		return missing_input_error(f, calls);
	if (status != TFMC_RT_E_TOKEN)
		return status;
	for (uint64_t i = 0; i < n; i++)
		report_wrong_id(f, &calls[i]);
	return TFMC_RT_E_PROMPT;
}

/* Prepares a call with ids [batch, n] as the named input. needs_logits: it writes f->logits if the entry has
 * logits. */
static int prepare_ids(struct feeder *f, struct session_call *c, const char *entry_name, int64_t tensor_name,
                       const int32_t *ids, uint64_t n, int needs_logits)
{
	const struct tfmc_record *r = f->record;
	TRY(prepare_call(f, c, entry_name, tensor_name, ids, n));
	int64_t output = find_tensor(r, c->entry, tfmc_record_text(r, (uint64_t)r->logits_name), 1);
	if (output >= TFMC_TENSORS_MAX)
		return TFMC_RT_E_GENERATE;
	if (output >= 0 && needs_logits)
		c->outputs[output] = (struct tfmc_buffer){f->logits, (uint64_t)(f->batch * f->vocab)};
	return TFMC_RT_OK;
}

static int call_with_ids(struct feeder *f, const char *entry_name, int64_t tensor_name, const int32_t *ids,
                         uint64_t n)
{
	struct session_call c;
	TRY(prepare_ids(f, &c, entry_name, tensor_name, ids, n, 1));
	return execute_run(f, &c, 1);
}

/* Calls `encode` with the features of tfmc_session_set_source, whose sizes bind the dims. They come from the
 * application: rank and axes are checked here, with a message. */
static int encode_features(struct feeder *f, const struct session_source *s)
{
	struct session_call c = {.entry = tfmc_entry_find(f->record, "encode")};
	if (c.entry < 0 || !f->record->source_name)
		return TFMC_RT_E_GENERATE;
	if (session_consume_cancel(f->session))
		return TFMC_RT_E_CANCELLED;
	int64_t input = find_tensor(f->record, c.entry,
	                            tfmc_record_text(f->record, (uint64_t)f->record->source_name), 0);
	if (input < 0 || input >= TFMC_TENSORS_MAX)
		return TFMC_RT_E_GENERATE;
	const struct tfmc_record_tensor *t = tfmc_entry_input(f->record, c.entry, (uint64_t)input);
	if (t->rank != s->rank || s->sizes[0] != f->batch)
		return session_prompt_error(
		        f->session, "the source has rank %llu and %lld sequences; it must be %llu and %lld",
		        (unsigned long long)s->rank, (long long)s->sizes[0], (unsigned long long)t->rank,
		        (long long)f->batch);
	for (uint64_t i = 0; i < s->rank; i++)
		TRY(bind_axis(f, t, i, s->sizes[i]));
	c.inputs[input] = (struct tfmc_buffer){(void *)(uintptr_t)s->data, s->n};
	memcpy(c.dims, f->dims, sizeof(c.dims));
	return execute_run(f, &c, 1);
}

int feeder_encode(struct feeder *f, const int32_t *ids, uint64_t n)
{
	const struct session_source *source = session_source(f->session);
	if (source->data)
		return encode_features(f, source);
	if (!n)
		return session_prompt_error(f->session, "the source is empty");
	return ids ? call_with_ids(f, "encode", f->record->source_name, ids, n) : (int)TFMC_RT_E_NULL;
}

/* The token input of an entry, or NULL. */
static const struct tfmc_record_tensor *tokens_input(const struct feeder *f, const char *entry_name)
{
	const struct tfmc_record *r = f->record;
	int64_t entry = tfmc_entry_find(r, entry_name);
	if (entry < 0 || !r->tokens_name)
		return NULL;
	int64_t input = find_tensor(r, entry, tfmc_record_text(r, (uint64_t)r->tokens_name), 0);
	return input < 0 ? NULL : tfmc_entry_input(r, entry, (uint64_t)input);
}

/* Tokens of each sequence that one call of prefill may have: the bound of the object (the size of the token axis at
 * the upper bounds of all dims), and call_tokens of the session. */
static uint64_t max_prefill_tokens(const struct feeder *f)
{
	int64_t bounds[TFMC_DIMS_MAX];
	const struct tfmc_record_tensor *t = tokens_input(f, "prefill");
	for (uint64_t i = 0; i < f->record->n_dims; i++)
		bounds[i] = tfmc_record_dim_at(f->record, i)->hi;
	int64_t max = t ? tfmc_tensor_size(f->record, t, 1, bounds) : 0;
	uint64_t rows = session_max_call_tokens(f->session, f->batch);
	return max > 0 && (uint64_t)max < rows ? (uint64_t)max : rows;
}

int feeder_check_ids(const struct feeder *f, const char *entry, const int32_t *ids, uint64_t n)
{
	const struct tfmc_record_tensor *t = tokens_input(f, entry);
	return t ? feed_check_ids(f->session, input_label(f->record, t), ids, n, t->below) : (int)TFMC_RT_OK;
}

/* Ids of a run whose calls have up to `rows` each. */
static uint64_t run_ids(const struct feeder *f, uint64_t rows)
{
	uint64_t calls = session_run_calls(f->session);
	return rows <= UINT64_MAX / calls ? rows * calls : UINT64_MAX;
}

/* Prefills n ids in one run of calls with up to `rows` ids each. Only the last call can be asked for logits: those
 * after the last token are the ones that choose. */
static int prefill_run(struct feeder *f, const int32_t *ids, uint64_t n, uint64_t rows, bool needs_logits)
{
	uint64_t n_calls = (n - 1) / rows + 1;
	struct session_call *calls = calloc((size_t)n_calls, sizeof(*calls));
	int status = calls ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
	for (uint64_t i = 0; status == TFMC_RT_OK && i < n_calls; i++) {
		uint64_t at = i * rows, count = n - at < rows ? n - at : rows;
		status = prepare_ids(f, &calls[i], "prefill", f->record->tokens_name, ids + at, count,
		                     needs_logits && i + 1 == n_calls);
	}
	if (status == TFMC_RT_OK)
		status = execute_run(f, calls, n_calls);
	free(calls);
	return status;
}

/* A batch is read in one call: its rows are padded to one length. With chunks call_end is the length after the last
 * one, so that all rotate alike (longrope). A prefix of max_len means that an input has its length, which varies. */
int feeder_prefill(struct feeder *f, const int32_t *ids, uint64_t n)
{
	uint64_t rows = f->batch == 1 ? max_prefill_tokens(f) : n, capacity = session_context(f->session);
	if (!n)
		return session_prompt_error(f->session,
		                            "the prompt is empty, and the model has no start ids");
	if (n > capacity)
		return session_prompt_error(f->session,
		                            "the prompt has %llu ids; the state has room for %llu",
		                            (unsigned long long)n, (unsigned long long)capacity);
	if ((int64_t)n < f->record->prefix && f->record->prefix != f->record->max_len)
		return session_prompt_error(
		        f->session,
		        "the prompt has %llu ids; the first %lld positions attend to each other and "
		        "must come in one call",
		        (unsigned long long)n, (long long)f->record->prefix);
	if (!ids)
		return TFMC_RT_E_NULL;
	if (n > rows) /* check all ids before the first call: a sliding-window cache cannot be taken back */
		TRY(feeder_check_ids(f, "prefill", ids, n));
	int32_t call_end = f->call_end;
	if (n > rows && !call_end)
		f->call_end = (int32_t)(session_first_length(f->session) + (int64_t)n);
	int status = TFMC_RT_OK;
	const uint64_t most = run_ids(f, rows);
	for (uint64_t at = 0, count; status == TFMC_RT_OK && at < n; at += count) {
		count = n - at < most ? n - at : most;
		status = prefill_run(f, ids + at, count, rows, at + count == n);
	}
	f->call_end = call_end;
	return status;
}

int feeder_must_reread(const struct feeder *f, int64_t sequence)
{
	return f->record->reread && tfmc_session_length(f->session, sequence) == f->record->long_from;
}

int feeder_step(struct feeder *f, const int32_t *ids)
{
	return call_with_ids(f, "step", f->record->tokens_name, ids, 1);
}

int feeder_has_lengths(const struct feeder *f)
{
	const struct tfmc_record_tensor *t = tokens_input(f, "step");
	return t && t->lengths >= 0 && t->lengths < TFMC_TENSORS_MAX;
}

/* Prepares a call of `score` with ids and targets [batch, n], which writes log_p [batch, n]. */
static int prepare_score(struct feeder *f, struct session_call *c, const int32_t *ids, const int32_t *targets,
                         uint64_t n, float *log_p)
{
	TRY(prepare_call(f, c, "score", f->record->tokens_name, ids, n));
	int64_t input = find_tensor(f->record, c->entry, "targets", 0);
	int64_t output = find_tensor(f->record, c->entry, "log_p", 1);
	if (input < 0 || input >= TFMC_TENSORS_MAX || output < 0 || output >= TFMC_TENSORS_MAX)
		return TFMC_RT_E_GENERATE;
	c->inputs[input] = (struct tfmc_buffer){(void *)(uintptr_t)targets, (uint64_t)f->batch * n};
	c->outputs[output] = (struct tfmc_buffer){log_p, (uint64_t)f->batch * n};
	return TFMC_RT_OK;
}

/* The chunks of one run write consecutive parts of log_p. */
int feeder_score(struct feeder *f, const int32_t *ids, const int32_t *targets, uint64_t n, float *log_p)
{
	uint64_t rows = f->score_rows, n_calls = n > 0 ? (n - 1) / rows + 1 : 1;
	struct session_call *calls = calloc((size_t)n_calls, sizeof(*calls));
	int status = calls ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
	for (uint64_t i = 0; status == TFMC_RT_OK && i < n_calls; i++) {
		uint64_t at = i * rows, count = n - at < rows ? n - at : rows;
		status = prepare_score(f, &calls[i], ids + at, targets + at, count, log_p + at);
	}
	if (status == TFMC_RT_OK)
		status = execute_run(f, calls, n_calls);
	free(calls);
	return status;
}

uint64_t feeder_score_ids(const struct feeder *f)
{
	return run_ids(f, f->score_rows);
}

/* ---- opening ---- */

/* Reads score_rows and vocab from the entry `score`, if there is one: the token axis of `targets` at the upper bounds
 * of the dims, at most call_tokens of the session, and the bound of its ids. */
static int open_score(struct feeder *f)
{
	const struct tfmc_record *r = f->record;
	int64_t entry = tfmc_entry_find(r, "score");
	int64_t input = entry < 0 ? -1 : find_tensor(r, entry, "targets", 0);
	if (input < 0)
		return TFMC_RT_OK;
	const struct tfmc_record_tensor *t = tfmc_entry_input(r, entry, (uint64_t)input);
	int64_t bounds[TFMC_DIMS_MAX];
	for (uint64_t i = 0; i < r->n_dims; i++)
		bounds[i] = tfmc_record_dim_at(r, i)->hi;
	int64_t rows = tfmc_tensor_size(r, t, 1, bounds);
	if (rows < 1 || t->below < 1 || t->below > INT32_MAX)
		return TFMC_RT_E_GENERATE;
	f->score_rows = (uint64_t)rows;
	if (f->score_rows > session_max_call_tokens(f->session, f->batch))
		f->score_rows = session_max_call_tokens(f->session, f->batch);
	f->vocab = t->below;
	return TFMC_RT_OK;
}

/* Reads vocab from the last axis of prefill's logits and allocates f->logits. An object with `score` alone has none:
 * f->logits stays NULL, and vocab is that of open_score. dtype 0 is f32. */
static int open_logits(struct feeder *f)
{
	const struct tfmc_record *r = f->record;
	int64_t entry = tfmc_entry_find(r, "prefill");
	int64_t output = entry < 0 || !r->logits_name
	                         ? -1
	                         : find_tensor(r, entry, tfmc_record_text(r, (uint64_t)r->logits_name), 1);
	if (output < 0)
		return f->score_rows ? (int)TFMC_RT_OK : (int)TFMC_RT_E_GENERATE;
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
	if (!session)
		return TFMC_RT_E_NULL;
	session_clear_prompt_error(session);
	if (!f->record->generate_kind || f->record->n_dims > TFMC_DIMS_MAX)
		return TFMC_RT_E_GENERATE;
	/* until a call binds them; open_logits() evaluates the last axis of the logits, V, with them */
	for (uint64_t i = 0; i < f->record->n_dims; i++)
		f->dims[i] = tfmc_record_dim_at(f->record, i)->lo;
	TRY(open_score(f));
	return open_logits(f);
}

void feeder_close(struct feeder *f)
{
	free(f->logits);
	f->logits = NULL;
}
