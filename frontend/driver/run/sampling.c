/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How generate chooses tokens: the file's `sample` section, then the options.
 * Any sampling option samples; --temperature 0 and a plain --beam 1 are greedy.
 */
#include "frontend/driver/compile/driver.h"

#include <string.h>

#include "ir/support/number.h"

static bool parse_real(struct driver *d, const char *name, const char *text, double *out)
{
	if (!text || number_parse_f64(text, strlen(text), out))
		return true;
	(void)driver_usage(d, "--%s is a number, not %s", name, text);
	return false;
}

static bool parse_integer(struct driver *d, const char *name, const char *text, int64_t *out)
{
	if (!text || (number_parse_i64(text, strlen(text), out) && *out >= 0))
		return true;
	(void)driver_usage(d, "--%s is a number from 0, not %s", name, text);
	return false;
}

static bool parse_all(struct driver *d, struct tfmc_sample_options *out)
{
	const struct driver_options *o = &d->options;
	int64_t seed = (int64_t)out->seed;
	bool ok = parse_real(d, "temperature", o->temperature, &out->temperature) &&
	          parse_integer(d, "top-k", o->top_k, &out->top_k) &&
	          parse_real(d, "top-p", o->top_p, &out->top_p) &&
	          parse_real(d, "min-p", o->min_p, &out->min_p) && parse_integer(d, "seed", o->seed, &seed) &&
	          parse_real(d, "repetition-penalty", o->repetition_penalty, &out->repetition_penalty) &&
	          parse_real(d, "presence-penalty", o->presence_penalty, &out->presence_penalty) &&
	          parse_real(d, "frequency-penalty", o->frequency_penalty, &out->frequency_penalty);
	out->seed = (uint64_t)seed;
	return ok;
}

struct tfmc_beam_options driver_beam(const struct frontend_generate *g)
{
	struct tfmc_beam_options o = {.struct_size = sizeof(o), .beam = 1, .length_penalty = 1};
	if (!g->search.given)
		return o;
	o.beam = g->search.beam;
	o.length_penalty = g->search.length_penalty;
	o.gnmt = g->search.gnmt;
	return o;
}

bool driver_sampling(struct driver *d, const struct frontend_generate *g, struct tfmc_sample_options *out,
                     bool *is_sampled)
{
	const struct driver_options *o = &d->options;
	const struct tfmc_sample_options defaults = TFMC_SAMPLE_DEFAULTS;
	bool penalties = o->repetition_penalty || o->presence_penalty || o->frequency_penalty;
	bool asked = o->temperature || o->top_k || o->top_p || o->min_p || o->seed;
	bool by_file = g->sample.given && !o->beam;
	*out = defaults;
	if (by_file) {
		out->temperature = g->sample.temperature;
		out->top_k = g->sample.top_k;
		out->top_p = g->sample.top_p;
		out->min_p = g->sample.min_p;
		out->seed = (uint64_t)g->sample.seed;
	}
	if (!parse_all(d, out))
		return false;
	*is_sampled = asked || by_file || penalties;
	if (out->temperature == 0 || (penalties && !asked && !by_file)) {
		*is_sampled = penalties; /* greedy, but for what the penalties change */
		out->temperature = 1;
		out->top_k = 1;
	}
	return true;
}
