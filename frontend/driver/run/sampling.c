/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How generate chooses tokens: the file's `sample` section, then the options.
 * Any sampling option samples; --temperature 0 and a plain --beam 1 are greedy.
 */
#include "frontend/driver/compile/driver.h"

struct tfmc_beam_options driver_beam(const struct frontend_generate *g)
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

bool driver_sampling(const struct driver *d, const struct frontend_generate *g,
                     struct tfmc_sample_options *out)
{
	const struct driver_options *o = &d->options;
	const struct tfmc_sample_options defaults = TFMC_SAMPLE_DEFAULTS;
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
	out->temperature = option_real(o->temperature, out->temperature);
	out->top_k = option_int(o->top_k, out->top_k);
	out->top_p = option_real(o->top_p, out->top_p);
	out->min_p = option_real(o->min_p, out->min_p);
	out->seed = (uint64_t)option_int(o->seed, (int64_t)out->seed);
	return out->temperature != 0 && (asked || by_file);
}
