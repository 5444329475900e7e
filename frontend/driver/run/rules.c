/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What generate may write: the options as rules of the runtime library.
 */
#include "frontend/driver/run/prompts.h"

#include <string.h>

#include "ir/support/number.h"

static bool parse_count(struct driver *d, const char *name, const char *text, int64_t *out)
{
	if (!text || (number_parse_i64(text, strlen(text), out) && *out >= 0))
		return true;
	(void)driver_usage(d, "--%s is a number from 0, not %s", name, text);
	return false;
}

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

static bool parse_banned(struct driver *d, const struct tfmc_record *r, struct tfmc_rules *out)
{
	const struct option_list *texts = &d->options.ban, *lists = &d->options.ban_tokens;
	struct tfmc_ids *banned = ARENA_ARRAY(&d->arena, struct tfmc_ids, texts->n + lists->n + 1);
	if (!banned)
		return false;
	out->banned = banned;
	out->n_banned = texts->n + lists->n;
	for (size_t i = 0; i < texts->n; i++)
		if (!parse_text(d, r, texts->items[i], &banned[i]))
			return false;
	for (size_t i = 0; i < lists->n; i++)
		if (!parse_ids(d, lists->items[i], &banned[texts->n + i]))
			return false;
	return true;
}

bool driver_rules(struct driver *d, const struct tfmc_record *r, struct tfmc_rules *out)
{
	const struct driver_options *o = &d->options;
	*out = (struct tfmc_rules){.struct_size = sizeof(*out)};
	out->stop_texts = o->stop.items;
	out->n_stop_texts = o->stop.n;
	return parse_count(d, "no-repeat-ngram", o->no_repeat_ngram, &out->no_repeat_ngram) &&
	       parse_count(d, "min-steps", o->min_steps, &out->min_new_tokens) &&
	       parse_ids(d, o->suppress, &out->suppress) && parse_ids(d, o->stop_tokens, &out->stop) &&
	       parse_text(d, r, o->forced_text, &out->forced) &&
	       parse_ids(d, o->forced_tokens, &out->forced) && parse_banned(d, r, out);
}
