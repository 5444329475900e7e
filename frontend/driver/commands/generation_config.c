/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling, beam search and logit constraints: the model's section `generate`, overridden by options.
 */
#include "frontend/driver/commands/generation_config.h"

#include <string.h>

#include "frontend/driver/commands/prompts.h"

/* Returns how many ids the model can produce, from the last axis of its logits; 0: unknown. Lower bounds serve as
   dims, since that axis has the same size for all. */
static int64_t count_output_ids(struct driver *d, const struct tfmc_record *r)
{
	int64_t *dims = ARENA_ARRAY(&d->arena, int64_t, (size_t)r->n_dims + 1),
	        entry = tfmc_entry_find(r, "prefill");
	const struct tfmc_record_entry *e = entry < 0 ? NULL : tfmc_entry_at(r, entry);
	for (uint64_t i = 0; dims && i < r->n_dims; i++)
		dims[i] = tfmc_record_dim_at(r, i)->lo;
	for (uint64_t i = 0; dims && e && r->logits_name > 0 && i < e->n_outputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_output(r, entry, i);
		if (!strcmp(tfmc_record_text(r, t->name), tfmc_record_text(r, (uint64_t)r->logits_name)) &&
		    t->rank > 0)
			return tfmc_tensor_size(r, t, t->rank - 1, dims);
	}
	return 0;
}

/* Reads the list of ids of the option --NAME; text NULL: not given, *out stays. False after a diagnostic: not a
 * list, or an id that the model cannot produce. */
static bool read_id_option(struct driver *d, const struct tfmc_record *r, const char *name, const char *text,
                           struct tfmc_ids *out)
{
	struct ids ids = {0};
	if (!text)
		return true;
	if (prompt_append_list(d, "generate", text, &ids) != TFMC_OK)
		return false;
	int64_t most = count_output_ids(d, r);
	for (size_t i = 0; most > 0 && i < ids.n; i++)
		if (ids.items[i] < 0 || ids.items[i] >= most) {
			diag_error(
			        &d->diag, LOC_NONE, DIAG_OPTION,
			        "--%s: id %d, number %zu of the list, is outside of the vocabulary of %lld",
			        name, ids.items[i], i + 1, (long long)most);
			return false;
		}
	*out = (struct tfmc_ids){ids.items, ids.n};
	return true;
}

/* Encodes the text of an option as generated text is, by the target's tokenizer; text NULL: not given, *out stays.
 * False after a diagnostic. */
static bool read_text_option(struct driver *d, const struct tfmc_record *r, const char *text,
                             struct tfmc_ids *out)
{
	struct ids ids = {0};
	if (!text)
		return true;
	if (prompt_append_text(d, r, "generate", PROMPT_TARGET, text, &ids) != TFMC_OK)
		return false;
	*out = (struct tfmc_ids){ids.items, ids.n};
	return true;
}

/* As i32: the front end has checked them against the vocabulary. */
static struct tfmc_ids copy_model_ids(struct driver *d, const struct frontend_ids *from)
{
	int32_t *ids = ARENA_ARRAY(&d->arena, int32_t, from->n + 1);
	for (size_t i = 0; ids && i < from->n; i++)
		ids[i] = (int32_t)from->items[i];
	return (struct tfmc_ids){ids, ids ? from->n : 0};
}

/* Adds the banned sequences of the model and of --bad-words-ids. False: no memory, or after a diagnostic. */
static bool add_banned(struct driver *d, const struct frontend_generate *g, const struct tfmc_record *r,
                       struct tfmc_constraints *out)
{
	const struct option_list *lists = &d->options.bad_words_ids;
	struct tfmc_ids *banned = ARENA_ARRAY(&d->arena, struct tfmc_ids, g->banned.n + lists->n + 1);
	if (!banned)
		return false;
	out->banned = banned;
	out->n_banned = g->banned.n + lists->n;
	for (size_t i = 0; i < g->banned.n; i++)
		banned[i] = copy_model_ids(d, &g->banned.items[i].ids);
	for (size_t i = 0; i < lists->n; i++)
		if (!read_id_option(d, r, "bad-words-ids", lists->items[i], &banned[g->banned.n + i]))
			return false;
	return true;
}

/* Adds the biases of token sequences that the model specifies; no option changes them. False: no memory. */
static bool add_biases(struct driver *d, const struct frontend_generate *g, struct tfmc_constraints *out)
{
	struct tfmc_bias *biases = ARENA_ARRAY(&d->arena, struct tfmc_bias, g->bias.n + 1);
	for (size_t i = 0; biases && i < g->bias.n; i++)
		biases[i] = (struct tfmc_bias){copy_model_ids(d, &g->bias.items[i].ids), g->bias.items[i].by};
	out->biases = biases;
	out->n_biases = g->bias.n;
	return biases != NULL;
}

/* An option replaces the value of the section `generate`; a setting without an option comes from there. */
bool generation_constraints(struct driver *d, const struct frontend_generate *g, const struct tfmc_record *r,
                            struct tfmc_constraints *out)
{
	const struct driver_options *o = &d->options;
	*out = (struct tfmc_constraints){.struct_size = sizeof(*out)};
	out->stop_texts = o->stop.items;
	out->n_stop_texts = o->stop.n;
	out->banned_texts = o->bad_words.items;
	out->n_banned_texts = o->bad_words.n;
	out->no_repeat_ngram = option_int(o->no_repeat_ngram, g->no_repeat_ngram);
	out->source_no_repeat_ngram = g->source_no_repeat_ngram;
	out->min_new_tokens = option_int(o->min_tokens, g->min_new);
	/* Bounds of the whole text are the model's; an option counts new tokens and replaces them. */
	out->min_tokens = o->min_tokens ? 0 : g->min_total;
	out->max_tokens = o->max_tokens ? 0 : g->max_total;
	out->forced_last = copy_model_ids(d, &g->forced_last);
	out->repetition_penalty = option_real(o->repetition_penalty, g->repetition_penalty);
	out->source_repetition_penalty = g->source_repetition_penalty;
	out->presence_penalty = option_real(o->presence_penalty, 0);
	out->frequency_penalty = option_real(o->frequency_penalty, 0);
	out->decay_after = g->decay.after;
	out->decay = g->decay.factor;
	out->n_counted = g->forced;
	out->renormalize = g->renormalize;
	if (g->speech.given && (o->timestamps || g->speech.timestamps)) {
		out->timestamps = g->speech.no_timestamps + 1;
		out->latest_timestamp =
		        g->speech.latest_first < 0 ? 0 : out->timestamps + g->speech.latest_first;
	}
	return add_banned(d, g, r, out) && add_biases(d, g, out) &&
	       read_id_option(d, r, "suppress", o->suppress, &out->suppress) &&
	       read_id_option(d, r, "stop-tokens", o->stop_tokens, &out->stop) &&
	       read_text_option(d, r, o->forced_text, &out->forced) &&
	       read_id_option(d, r, "forced-tokens", o->forced_tokens, &out->forced) &&
	       !arena_failed(&d->arena);
}

/* ---- sampling and beam search ---- */

struct tfmc_beam_options generation_beam(const struct frontend_generate *g)
{
	struct tfmc_beam_options o = {.struct_size = sizeof(o), .beam = 1, .length_penalty = 1};
	if (!g->search.given)
		return o;
	o.beam = g->search.beam;
	o.length_penalty = g->search.length_penalty;
	o.gnmt = g->search.penalty == PENALTY_GNMT;
	switch (g->search.early_stopping) {
	case EARLY_NONE:
	case EARLY_TRUE: o.early_stopping = TFMC_EARLY_ALWAYS; break;
	case EARLY_FALSE: o.early_stopping = TFMC_EARLY_JUDGED; break;
	case EARLY_NEVER: o.early_stopping = TFMC_EARLY_NEVER; break;
	}
	return o;
}

/* The section's sampling holds unless --beam is given; each option replaces one of its values, and makes a greedy
 * model sample. Temperature 0 is greedy whatever else is given. */
bool generation_sampling(const struct driver *d, const struct frontend_generate *g,
                         struct tfmc_sample_options *out)
{
	const struct driver_options *o = &d->options;
	const struct tfmc_sample_options defaults = TFMC_SAMPLE_DEFAULTS;
	bool asked = o->temperature || o->top_k || o->top_p || o->min_p || o->seed;
	bool by_file = g->sample.given && !o->beam; /* --beam asks for a search instead */
	*out = defaults;
	if (by_file) {
		out->temperature = g->sample.temperature;
		out->top_k = g->sample.top_k;
		out->top_p = g->sample.top_p;
		out->min_p = g->sample.min_p;
		out->seed = (uint64_t)g->sample.seed;
	}
	out->temperature = option_real(o->temperature, out->temperature);
	out->top_k = option_int(o->top_k, out->top_k);
	out->top_p = option_real(o->top_p, out->top_p);
	out->min_p = option_real(o->min_p, out->min_p);
	out->seed = (uint64_t)option_int(o->seed, (int64_t)out->seed);
	return out->temperature != 0 && (asked || by_file);
}
