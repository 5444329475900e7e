/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation of one sequence on the entries of a generating object: encode
 * (seq2seq), prefill, then one step for each token. Rules say which ids may be
 * chosen; the arg-max takes the lowest one on a tie.
 */
#include "runtime/core/feed.h"
#include "runtime/generate/generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The allowed id with the largest score, -1 when all of them are -infinity. */
static int32_t arg_max(const struct generator *g, const float *scores)
{
	int32_t best = -1;
	float most = -INFINITY;
	for (int64_t id = 0; id < g->vocab; id++) {
		float v = scores[id];
		if (v > most && !g->rules.excluded[id]) {
			best = (int32_t)id;
			most = v;
		}
	}
	return best;
}

/* The next id after g->ids; log_p: NULL or where its log p goes. */
static int choose(struct generator *g, float *logits, int32_t *id, double *log_p)
{
	double whole = 0;
	TRY(rules_logits(&g->rules, logits, g->ids, g->n));
	if (log_p)
		TRY(row_log_sum(logits, g->vocab, &whole));
	rules_mark(&g->rules, g->ids, g->n);
	rules_weigh_timestamps(&g->rules, logits, 0);
	const float *scores = rules_scores(&g->rules, logits);
	*id = g->sampler ? tfmc_sampler_draw(g->sampler, scores, g->rules.excluded, g->ids, g->n)
	                 : arg_max(g, scores);
	if (*id < 0)
		return TFMC_RT_E_LOGITS;
	if (log_p)
		*log_p = (double)logits[*id] - whole;
	return TFMC_RT_OK;
}

/* Tells the caller of a new id. *ends: it was the last one, for the reason in g->finish. */
static int tell(struct generator *g, int32_t id, bool *ends)
{
	const struct tfmc_generate_options *o = &g->options;
	bool is_forced = g->n - g->rules.n_first <= g->rules.given.forced.n;
	int status = stream_token(&g->stream, id);
	bool no_more = o->on_token && o->on_token(o->user, id);
	*ends = true;
	if (no_more || g->stream.is_ended)
		g->finish = TFMC_FINISH_CALLBACK;
	else if (g->stream.is_stopped)
		g->finish = TFMC_FINISH_TEXT;
	else if (!is_forced && rules_is_stop(&g->rules, id))
		g->finish = TFMC_FINISH_STOP;
	else
		*ends = false;
	return status;
}

/* How many new tokens may follow n_first ones. */
static int64_t token_limit(const struct generator *g, uint64_t n_first, uint64_t cap)
{
	int64_t limit = rules_most(g->options.rules, g->session) - (int64_t)n_first;
	int64_t wanted = g->options.max_new_tokens;
	if (wanted > 0 && wanted < limit)
		limit = wanted;
	return cap < INT64_MAX && limit > (int64_t)cap ? (int64_t)cap : limit;
}

int generator_open(struct generator *g, struct tfmc_session *session, int64_t vocab,
                   const struct tfmc_generate_options *options)
{
	*g = (struct generator){.session = session, .record = tfmc_session_record(session), .vocab = vocab};
	if (options)
		g->options = *options;
	return options && options->struct_size != sizeof(*options) ? TFMC_RT_E_ABI : TFMC_RT_OK;
}

void generator_close(struct generator *g)
{
	stream_close(&g->stream);
	rules_close(&g->rules);
	free(g->ids);
	tfmc_sampler_destroy(g->sampler);
	g->ids = NULL;
	g->sampler = NULL;
}

int generator_begin(struct generator *g, const int32_t *first, uint64_t n_first, struct tfmc_ids source,
                    uint64_t cap)
{
	const struct tfmc_generate_options *o = &g->options;
	bool has_most = o->rules && o->rules->max_tokens > 0; /* then a new one has to fit */
	TRY(feed_check_first(g->session, n_first, rules_most(o->rules, g->session) - has_most));
	g->limit = token_limit(g, n_first, cap);
	int status = rules_open(&g->rules, g->record, o->rules, g->vocab);
	g->rules.ignore_stop = o->ignore_stop != 0;
	g->stream = (struct stream){.rules = &g->rules, .emit = o->on_text, .user = o->user};
	if (status == TFMC_RT_OK && o->on_text && !rules_have_text(&g->rules))
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
	rules_begin(&g->rules, n_first, n_first + (uint64_t)g->limit,
	            is_causal ? (struct tfmc_ids){g->ids, n_first} : source);
	return TFMC_RT_OK;
}

int generator_next(struct generator *g, float *logits, double *log_p, bool *ends)
{
	int32_t id;
	*ends = true;
	int status = choose(g, logits, &id, log_p);
	if (status != TFMC_RT_OK)
		return status;
	g->ids[g->n++] = id;
	status = tell(g, id, ends);
	*ends = *ends || (int64_t)(g->n - g->n_first) >= g->limit;
	return status;
}

/* The last id alone, or all ids where the cached keys would have other rotary frequencies than the new one. */
static int step(struct generator *g, struct feeder *f)
{
	if (!feeder_rereads(f, 0))
		return feeder_step(f, &g->ids[g->n - 1]);
	int status = session_trim(f->session, 0, 0);
	return status == TFMC_RT_OK ? feeder_prefill(f, g->ids, g->n) : status;
}

/* From the first tokens of the growing sequence to its end. */
static int grow(struct generator *g, struct feeder *f, const int32_t *first, uint64_t n_first,
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
			status = step(g, f);
		ends = ends || status != TFMC_RT_OK;
	}
	stream_end(&g->stream);
	return status;
}

static int run(struct generator *g, struct feeder *f, const int32_t *prompt, uint64_t n_prompt,
               const int32_t *target, uint64_t n_target, int32_t *out, uint64_t cap, uint64_t *n_out)
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
		return grow(g, f, first, n_first, source, out, cap, n_out);
	int32_t *start = record_start_ids(r, &n_first);
	status = start ? grow(g, f, start, n_first, source, out, cap, n_out) : TFMC_RT_E_MEMORY;
	free(start);
	return status;
}

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
		status = run(&g, &f, prompt, n_prompt, target, n_target, out, cap, n_out);
	if (g.options.finish)
		*g.options.finish = status == TFMC_RT_OK ? g.finish : TFMC_FINISH_FAILED;
	feeder_close(&f);
	generator_close(&g);
	return session_end(session, status);
}
