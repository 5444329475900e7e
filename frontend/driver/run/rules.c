/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules that generation obeys: those of the model's section `generate`, then the options, as rules of the
 * runtime library. Start, stop and suppressed ids of the model are in the object's record.
 */
#include "frontend/driver/run/prompts.h"

static bool parse_ids(struct driver *d, const char *text, struct tfmc_ids *out)
{
	struct ids ids = {0};
	if (!text)
		return true;
	if (prompt_list(d, "generate", text, &ids) != TFMC_OK)
		return false;
	*out = (struct tfmc_ids){ids.items, ids.n};
	return true;
}

static bool parse_text(struct driver *d, const struct tfmc_record *r, const char *text, struct tfmc_ids *out)
{
	struct ids ids = {0};
	if (!text)
		return true;
	if (prompt_text(d, r, "generate", PROMPT_TARGET, text, &ids) != TFMC_OK)
		return false;
	*out = (struct tfmc_ids){ids.items, ids.n};
	return true;
}

/* Ids of a model file fit: the lowering has compared them with the vocabulary. */
static struct tfmc_ids model_ids(struct driver *d, const struct frontend_ids *from)
{
	int32_t *ids = ARENA_ARRAY(&d->arena, int32_t, from->n + 1);
	for (size_t i = 0; ids && i < from->n; i++)
		ids[i] = (int32_t)from->items[i];
	return (struct tfmc_ids){ids, ids ? from->n : 0};
}

/* Banned sequences of the model and of --ban-tokens. */
static bool take_banned(struct driver *d, const struct frontend_generate *g, struct tfmc_constraints *out)
{
	const struct option_list *lists = &d->options.ban_tokens;
	struct tfmc_ids *banned = ARENA_ARRAY(&d->arena, struct tfmc_ids, g->banned.n + lists->n + 1);
	if (!banned)
		return false;
	out->banned = banned;
	out->n_banned = g->banned.n + lists->n;
	for (size_t i = 0; i < g->banned.n; i++)
		banned[i] = model_ids(d, &g->banned.items[i].ids);
	for (size_t i = 0; i < lists->n; i++)
		if (!parse_ids(d, lists->items[i], &banned[g->banned.n + i]))
			return false;
	return true;
}

static bool take_biases(struct driver *d, const struct frontend_generate *g, struct tfmc_constraints *out)
{
	struct tfmc_bias *biases = ARENA_ARRAY(&d->arena, struct tfmc_bias, g->bias.n + 1);
	for (size_t i = 0; biases && i < g->bias.n; i++)
		biases[i] = (struct tfmc_bias){model_ids(d, &g->bias.items[i].ids), g->bias.items[i].by};
	out->biases = biases;
	out->n_biases = g->bias.n;
	return biases != NULL;
}

bool driver_rules(struct driver *d, const struct frontend_generate *g, const struct tfmc_record *r,
                  struct tfmc_constraints *out)
{
	const struct driver_options *o = &d->options;
	*out = (struct tfmc_constraints){.struct_size = sizeof(*out)};
	out->stop_texts = o->stop.items;
	out->n_stop_texts = o->stop.n;
	out->banned_texts = o->ban.items;
	out->n_banned_texts = o->ban.n;
	out->no_repeat_ngram = option_int(o->no_repeat_ngram, g->no_repeat_ngram);
	out->source_no_repeat_ngram = g->source_no_repeat_ngram;
	out->min_new_tokens = option_int(o->min_steps, g->min_new);
	out->min_tokens = o->min_steps ? 0 : g->min_total;
	out->max_tokens = o->steps ? 0 : g->max_total;
	out->forced_last = model_ids(d, &g->forced_last);
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
	return take_banned(d, g, out) && take_biases(d, g, out) &&
	       parse_ids(d, o->suppress, &out->suppress) && parse_ids(d, o->stop_tokens, &out->stop) &&
	       parse_text(d, r, o->forced_text, &out->forced) &&
	       parse_ids(d, o->forced_tokens, &out->forced) && !arena_failed(&d->arena);
}
