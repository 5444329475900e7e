/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What generate may write: the options as rules of the runtime library.
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

static bool parse_banned(struct driver *d, struct tfmc_rules *out)
{
	const struct option_list *lists = &d->options.ban_tokens;
	struct tfmc_ids *banned = ARENA_ARRAY(&d->arena, struct tfmc_ids, lists->n + 1);
	if (!banned)
		return false;
	out->banned = banned;
	out->n_banned = lists->n;
	for (size_t i = 0; i < lists->n; i++)
		if (!parse_ids(d, lists->items[i], &banned[i]))
			return false;
	return true;
}

bool driver_rules(struct driver *d, const struct tfmc_record *r, struct tfmc_rules *out)
{
	const struct driver_options *o = &d->options;
	*out = (struct tfmc_rules){.struct_size = sizeof(*out)};
	out->stop_texts = o->stop.items;
	out->n_stop_texts = o->stop.n;
	out->banned_texts = o->ban.items;
	out->n_banned_texts = o->ban.n;
	out->no_repeat_ngram = option_int(o->no_repeat_ngram, 0);
	out->min_new_tokens = option_int(o->min_steps, 0);
	return parse_ids(d, o->suppress, &out->suppress) && parse_ids(d, o->stop_tokens, &out->stop) &&
	       parse_text(d, r, o->forced_text, &out->forced) &&
	       parse_ids(d, o->forced_tokens, &out->forced) && parse_banned(d, out);
}
