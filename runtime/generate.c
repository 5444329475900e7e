/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation of one sequence on the entries of a generating object: encode
 * (seq2seq), prefill, then one step for each token. The arg-max takes the
 * lowest id on a tie; it and the sampler pass over logits that are not numbers.
 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

struct generator {
	struct feeder feeder;
	const struct tfmc_record *record;
	const struct tfmc_generate_options *options;
	struct tfmc_sampler *sampler; /* NULL: greedy */
	unsigned char *excluded;      /* [V]: the sampler's */
	int32_t *history;             /* first ids, then new ones: the sampler's */
	uint64_t n_history;
};

static int32_t sample(const struct generator *g, int first)
{
	for (int64_t id = 0; id < g->feeder.vocab; id++)
		g->excluded[id] = !record_allows(g->record, id, first);
	return tfmc_sampler_draw(g->sampler, g->feeder.logits, g->excluded, g->history, g->n_history);
}

/* The id of the largest allowed logit, or -1 when none is a number. */
static int32_t choose(const struct generator *g, int first)
{
	int32_t best = -1;
	if (g->sampler)
		return sample(g, first);
	for (int64_t id = 0; id < g->feeder.vocab; id++) {
		float v = g->feeder.logits[id];
		if (v != v || !record_allows(g->record, id, first))
			continue;
		if (best < 0 || v > g->feeder.logits[best])
			best = (int32_t)id;
	}
	return best;
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
	return !(g->options && g->options->ignore_stop) && record_has_id(r, r->stop, r->n_stop, id);
}

/* Makes the sampler, when there is one, ready for a sequence of n_first ids and `more` new ones. */
static int begin_sampling(struct generator *g, const int32_t *first, uint64_t n_first, int64_t more)
{
	if (!g->options || !g->options->sample)
		return TFMC_RT_OK;
	int status = tfmc_sampler_create(g->options->sample, g->feeder.vocab, &g->sampler);
	g->excluded = malloc((size_t)g->feeder.vocab);
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
		status = feeder_prefill(&g->feeder, first, n_first);
	while (status == TFMC_RT_OK && (int64_t)*n_out < limit) {
		int32_t id = choose(g, *n_out == 0);
		if (id < 0)
			return TFMC_RT_E_LOGITS;
		out[(*n_out)++] = id;
		if (g->history)
			g->history[g->n_history++] = id;
		if (is_last(g, id) || (int64_t)*n_out == limit)
			break;
		status = feeder_step(&g->feeder, &out[*n_out - 1]);
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
	int status = tfmc_session_reset(g->feeder.session);
	if (status == TFMC_RT_OK && !is_causal)
		status = feeder_encode(&g->feeder, prompt, n_prompt);
	if (status != TFMC_RT_OK)
		return status;
	if (n_first)
		return grow(g, first, n_first, out, cap, n_out);
	int32_t *start = record_start_ids(r, &n_first);
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
	struct generator g = {.record = tfmc_session_record(session), .options = options};
	int status = feeder_open(&g.feeder, session, 1);
	if (status == TFMC_RT_OK)
		status = run(&g, prompt, n_prompt, target, n_target, out, cap, n_out);
	feeder_close(&g.feeder);
	free(g.excluded);
	free(g.history);
	tfmc_sampler_destroy(g.sampler);
	return status;
}
