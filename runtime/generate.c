/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation of one sequence on the entries of a generating object: encode
 * (seq2seq), prefill, then one step for each token. The arg-max takes the
 * lowest id on a tie; it and the sampler pass over logits that are not numbers.
 */
#include "tfmc_rt.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DIMS    16
#define MAX_TENSORS 128

struct generator {
	struct tfmc_session *session;
	const struct tfmc_record *record;
	const struct tfmc_generate_options *options;
	int64_t dims[MAX_DIMS]; /* of the record */
	float *logits;          /* [V] */
	int64_t vocab;
	struct tfmc_sampler *sampler; /* NULL: greedy */
	unsigned char *excluded;      /* [V]: the sampler's */
	int32_t *history;             /* first ids, then new ones: the sampler's */
	uint64_t n_history;
};

static const int64_t *ids_at(const struct tfmc_record *r, int64_t offset)
{
	return (const void *)((const char *)r + offset);
}

static int contains(const struct tfmc_record *r, int64_t offset, int64_t n, int64_t id)
{
	const int64_t *ids = ids_at(r, offset);
	for (int64_t i = 0; i < n; i++)
		if (ids[i] == id)
			return 1;
	return 0;
}

static int is_allowed(const struct tfmc_record *r, int64_t id, int first)
{
	if (contains(r, r->suppress, r->n_suppress, id))
		return 0;
	return !first || !contains(r, r->suppress_first, r->n_suppress_first, id);
}

static int32_t sample(const struct generator *g, int first)
{
	for (int64_t id = 0; id < g->vocab; id++)
		g->excluded[id] = !is_allowed(g->record, id, first);
	return tfmc_sampler_draw(g->sampler, g->logits, g->excluded, g->history, g->n_history);
}

/* The id of the largest allowed logit, or -1 when none is a number. */
static int32_t choose(const struct generator *g, int first)
{
	int32_t best = -1;
	if (g->sampler)
		return sample(g, first);
	for (int64_t id = 0; id < g->vocab; id++) {
		float v = g->logits[id];
		if (v != v || !is_allowed(g->record, id, first))
			continue;
		if (best < 0 || v > g->logits[best])
			best = (int32_t)id;
	}
	return best;
}

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
static int set_axis(struct generator *g, const struct tfmc_record_tensor *t, uint64_t axis, int64_t value)
{
	const uint64_t *w = (const void *)((const char *)g->record + t->sizes[axis]);
	if (w[0] == 1 && w[1] == 1 && w[2] == 1) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(g->record, w[3]);
		if (value < dim->lo || value > dim->hi)
			return TFMC_RT_E_PROMPT;
		g->dims[w[3]] = value;
	}
	if (tfmc_tensor_size(g->record, t, axis, g->dims) != value)
		return TFMC_RT_E_PROMPT;
	return TFMC_RT_OK;
}

/* Calls an entry with ids [1, n] as the named input and, when it has them, the logits. */
static int feed(struct generator *g, const char *entry_name, int64_t tensor_name, const int32_t *ids,
                uint64_t n)
{
	const struct tfmc_record *r = g->record;
	struct tfmc_buffer inputs[MAX_TENSORS] = {0}, outputs[MAX_TENSORS] = {0};
	int64_t entry = tfmc_entry_find(r, entry_name);
	if (entry < 0 || !tensor_name)
		return TFMC_RT_E_GENERATE;
	int64_t input = find_tensor(r, entry, tfmc_record_text(r, (uint64_t)tensor_name), 0);
	int64_t output = find_tensor(r, entry, tfmc_record_text(r, (uint64_t)r->logits_name), 1);
	if (input < 0 || input >= MAX_TENSORS || output >= MAX_TENSORS)
		return TFMC_RT_E_GENERATE;
	const struct tfmc_record_tensor *t = tfmc_entry_input(r, entry, (uint64_t)input);
	int status = set_axis(g, t, 0, 1);
	if (status == TFMC_RT_OK)
		status = set_axis(g, t, 1, (int64_t)n);
	if (status != TFMC_RT_OK)
		return status;
	inputs[input] = (struct tfmc_buffer){(void *)(uintptr_t)ids, n};
	if (output >= 0)
		outputs[output] = (struct tfmc_buffer){g->logits, (uint64_t)g->vocab};
	status = tfmc_session_call(g->session, entry, g->dims, inputs, outputs);
	return status == TFMC_RT_E_TOKEN ? TFMC_RT_E_PROMPT : status;
}

/* Size of the vocabulary: the last axis of prefill's logits. */
static int find_vocab(struct generator *g)
{
	const struct tfmc_record *r = g->record;
	int64_t entry = tfmc_entry_find(r, "prefill");
	if (entry < 0 || !r->logits_name)
		return TFMC_RT_E_GENERATE;
	int64_t output = find_tensor(r, entry, tfmc_record_text(r, (uint64_t)r->logits_name), 1);
	if (output < 0)
		return TFMC_RT_E_GENERATE;
	const struct tfmc_record_tensor *t = tfmc_entry_output(r, entry, (uint64_t)output);
	g->vocab = tfmc_tensor_size(r, t, t->rank - 1, g->dims);
	if (t->dtype != 0 || g->vocab < 1)
		return TFMC_RT_E_GENERATE;
	g->logits = malloc((size_t)g->vocab * sizeof(*g->logits));
	if (!g->logits)
		return TFMC_RT_E_MEMORY;
	return TFMC_RT_OK;
}

/* The model's start ids as i32; the caller frees. */
static int32_t *start_ids(const struct tfmc_record *r, uint64_t *n)
{
	*n = (uint64_t)r->n_start;
	int32_t *ids = malloc((size_t)(*n ? *n : 1) * sizeof(*ids));
	for (uint64_t i = 0; ids && i < *n; i++)
		ids[i] = (int32_t)ids_at(r, r->start)[i];
	return ids;
}

/* How many new tokens may follow n_first ones. */
static int64_t token_limit(const struct generator *g, uint64_t n_first, uint64_t cap)
{
	int64_t limit = g->record->max_len - (int64_t)n_first;
	int64_t wanted = g->options ? g->options->max_new_tokens : 0;
	if (wanted > 0 && wanted < limit)
		limit = wanted;
	return limit < (int64_t)cap ? limit : (int64_t)cap;
}

static int is_last(const struct generator *g, int32_t id)
{
	const struct tfmc_record *r = g->record;
	if (g->options && g->options->on_token && g->options->on_token(g->options->user, id))
		return 1;
	return !(g->options && g->options->ignore_stop) && contains(r, r->stop, r->n_stop, id);
}

/* Makes the sampler, when there is one, ready for a sequence of n_first ids and `more` new ones. */
static int begin_sampling(struct generator *g, const int32_t *first, uint64_t n_first, int64_t more)
{
	if (!g->options || !g->options->sample)
		return TFMC_RT_OK;
	int status = tfmc_sampler_create(g->options->sample, g->vocab, &g->sampler);
	g->excluded = malloc((size_t)g->vocab);
	g->history = calloc((size_t)n_first + (size_t)more + 1, sizeof(*g->history));
	if (status != TFMC_RT_OK)
		return status;
	if (!g->excluded || !g->history)
		return TFMC_RT_E_MEMORY;
	memcpy(g->history, first, (size_t)n_first * sizeof(*first));
	g->n_history = n_first;
	return TFMC_RT_OK;
}

/* From the first tokens of the growing sequence to its end. */
static int grow(struct generator *g, const int32_t *first, uint64_t n_first, int32_t *out, uint64_t cap,
                uint64_t *n_out)
{
	int64_t limit = token_limit(g, n_first, cap);
	if (!n_first || limit < 0)
		return TFMC_RT_E_PROMPT;
	int status = begin_sampling(g, first, n_first, limit);
	if (status == TFMC_RT_OK)
		status = feed(g, "prefill", g->record->tokens_name, first, n_first);
	while (status == TFMC_RT_OK && (int64_t)*n_out < limit) {
		int32_t id = choose(g, *n_out == 0);
		if (id < 0)
			return TFMC_RT_E_LOGITS;
		out[(*n_out)++] = id;
		if (g->history)
			g->history[g->n_history++] = id;
		if (is_last(g, id) || (int64_t)*n_out == limit)
			break;
		status = feed(g, "step", g->record->tokens_name, &out[*n_out - 1], 1);
	}
	return status;
}

static int run(struct generator *g, const int32_t *prompt, uint64_t n_prompt, const int32_t *target,
               uint64_t n_target, int32_t *out, uint64_t cap, uint64_t *n_out)
{
	const struct tfmc_record *r = g->record;
	int is_causal = r->generate_kind == 1;
	const int32_t *first = is_causal ? prompt : target;
	uint64_t n_first = is_causal ? n_prompt : n_target;
	int status = tfmc_session_reset(g->session);
	if (status == TFMC_RT_OK && !is_causal)
		status = n_prompt ? feed(g, "encode", r->source_name, prompt, n_prompt) : TFMC_RT_E_PROMPT;
	if (status != TFMC_RT_OK)
		return status;
	if (n_first)
		return grow(g, first, n_first, out, cap, n_out);
	int32_t *start = start_ids(r, &n_first);
	status = start ? grow(g, start, n_first, out, cap, n_out) : TFMC_RT_E_MEMORY;
	free(start);
	return status;
}

int tfmc_generate(struct tfmc_session *session, const struct tfmc_generate_options *options,
                  const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                  int32_t *out, uint64_t cap, uint64_t *n_out)
{
	*n_out = 0;
	if (options && options->struct_size != sizeof(*options))
		return TFMC_RT_E_ABI;
	struct generator g = {.session = session, .record = tfmc_session_record(session), .options = options};
	if (!g.record->generate_kind)
		return TFMC_RT_E_GENERATE;
	for (uint64_t i = 0; i < g.record->n_dims; i++)
		g.dims[i] = tfmc_record_dim_at(g.record, i)->lo;
	int status = find_vocab(&g);
	if (status == TFMC_RT_OK)
		status = run(&g, prompt, n_prompt, target, n_target, out, cap, n_out);
	free(g.logits);
	free(g.excluded);
	free(g.history);
	tfmc_sampler_destroy(g.sampler);
	return status;
}
