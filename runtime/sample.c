/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing ids from logits. Order: penalties, n-gram blocking, temperature,
 * top-k, top-p, min-p, draw. All arithmetic is IEEE double in a fixed order and
 * uses no library function, so that a seed gives the same ids on every machine
 * (this file is compiled without contraction of a * b + c).
 */
#include "real.h"
#include "tfmc_rt.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
	double weight; /* first the logit, then exp(logit - largest) */
	int32_t id;
};

struct tfmc_sampler {
	struct tfmc_sample_options options;
	uint64_t random; /* state of the generator */
	int64_t vocab;
	struct candidate *items; /* [vocab] */
	int32_t *counts;         /* [vocab]: how often each id stands in the history */
	unsigned char *banned;   /* [vocab]: by n-gram blocking */
};

/* --- numbers ------------------------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood 2014): a number in [0, 1) from its upper 53 bits. */
static double next_uniform(struct tfmc_sampler *s)
{
	uint64_t z = s->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* --- candidates ------------------------------------------------------------------------------------------
 */

static void count_history(struct tfmc_sampler *s, const int32_t *history, uint64_t n, int32_t by)
{
	for (uint64_t i = 0; i < n; i++)
		if (history[i] >= 0 && history[i] < s->vocab)
			s->counts[history[i]] += by;
}

/* Marks (or clears) the ids that would repeat an n-gram of the history. */
static void block_ngrams(struct tfmc_sampler *s, const int32_t *history, uint64_t n, unsigned char mark)
{
	uint64_t length = (uint64_t)s->options.no_repeat_ngram;
	if (length == 0 || n < length)
		return;
	const int32_t *last = history + n - (length - 1);
	for (uint64_t i = 0; i + length <= n; i++) {
		int32_t next = history[i + length - 1];
		if (memcmp(history + i, last, (size_t)(length - 1) * sizeof(*last)) == 0 && next >= 0 &&
		    next < s->vocab)
			s->banned[next] = mark;
	}
}

/* Repetition: Keskar et al. 2019, section 4.1, negative logits multiplied; presence and frequency subtract.
 */
static double penalized(const struct tfmc_sampler *s, double logit, int32_t count)
{
	const struct tfmc_sample_options *o = &s->options;
	if (count <= 0)
		return logit;
	logit = logit > 0 ? logit / o->repetition_penalty : logit * o->repetition_penalty;
	return logit - o->presence_penalty - o->frequency_penalty * (double)count;
}

/* All ids that may be drawn, in their order; gives how many. */
static int64_t collect(struct tfmc_sampler *s, const float *logits, const unsigned char *excluded)
{
	int64_t n = 0;
	for (int64_t id = 0; id < s->vocab; id++) {
		double v = (double)logits[id];
		if (v != v || v < -3.5e38 || s->banned[id] || (excluded && excluded[id]))
			continue;
		v = penalized(s, v, s->counts[id]) / s->options.temperature;
		s->items[n++] = (struct candidate){v, (int32_t)id};
	}
	return n;
}

/* Larger first, the lower id first among equals. */
static int by_weight(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	if (x->weight != y->weight)
		return x->weight < y->weight ? 1 : -1;
	return (x->id > y->id) - (x->id < y->id);
}

static double largest(const struct tfmc_sampler *s, int64_t n)
{
	double max = s->items[0].weight;
	for (int64_t i = 1; i < n; i++)
		max = s->items[i].weight > max ? s->items[i].weight : max;
	return max;
}

/* Logits become weights, the largest 1; infinite logits share everything. Gives their sum. */
static double weigh(struct tfmc_sampler *s, int64_t n)
{
	double max = largest(s, n), sum = 0;
	for (int64_t i = 0; i < n; i++) {
		double v = s->items[i].weight;
		s->items[i].weight = v == max ? 1 : real_exp(v - max);
		sum += s->items[i].weight;
	}
	return sum;
}

/* The fewest of the likeliest whose probability reaches p (Holtzman et al. 2020). The items are sorted. */
static int64_t nucleus(const struct tfmc_sampler *s, int64_t n, double sum)
{
	double reached = 0, wanted = s->options.top_p * sum;
	for (int64_t i = 0; i < n; i++) {
		reached += s->items[i].weight;
		if (reached >= wanted)
			return i + 1;
	}
	return n;
}

/* Keeps what is at least min_p as likely as the likeliest, in the same order. */
static int64_t keep_likely(struct tfmc_sampler *s, int64_t n)
{
	int64_t kept = 0;
	for (int64_t i = 0; i < n; i++)
		if (s->items[i].weight >= s->options.min_p)
			s->items[kept++] = s->items[i];
	return kept;
}

static int32_t pick(struct tfmc_sampler *s, int64_t n)
{
	double sum = 0, passed = 0;
	for (int64_t i = 0; i < n; i++)
		sum += s->items[i].weight;
	double at = next_uniform(s) * sum;
	for (int64_t i = 0; i < n; i++) {
		passed += s->items[i].weight;
		if (at < passed)
			return s->items[i].id;
	}
	return s->items[n - 1].id;
}

static int32_t draw(struct tfmc_sampler *s, int64_t n)
{
	const struct tfmc_sample_options *o = &s->options;
	bool cut_k = o->top_k > 0 && o->top_k < n, cut_p = o->top_p < 1;
	if (n == 0)
		return -1;
	if (cut_k || cut_p)
		qsort(s->items, (size_t)n, sizeof(*s->items), by_weight);
	if (cut_k)
		n = o->top_k;
	double sum = weigh(s, n);
	if (cut_p)
		n = nucleus(s, n, sum);
	return pick(s, keep_likely(s, n));
}

int32_t tfmc_sampler_draw(struct tfmc_sampler *s, const float *logits, const unsigned char *excluded,
                          const int32_t *history, uint64_t n_history)
{
	count_history(s, history, n_history, 1);
	block_ngrams(s, history, n_history, 1);
	int32_t id = draw(s, collect(s, logits, excluded));
	count_history(s, history, n_history, -1);
	block_ngrams(s, history, n_history, 0);
	return id;
}

/* --- life -------------------------------------------------------------------------------------------------
 */

static bool is_valid(const struct tfmc_sample_options *o)
{
	bool numbers = o->temperature > 0 && o->temperature <= 1e6 && o->repetition_penalty > 0 &&
	               o->repetition_penalty <= 1e6 && o->presence_penalty >= -1e6 &&
	               o->presence_penalty <= 1e6 && o->frequency_penalty >= -1e6 &&
	               o->frequency_penalty <= 1e6;
	return numbers && o->top_k >= 0 && o->top_p > 0 && o->top_p <= 1 && o->min_p >= 0 && o->min_p <= 1 &&
	       o->no_repeat_ngram >= 0;
}

int tfmc_sampler_create(const struct tfmc_sample_options *options, int64_t vocab, struct tfmc_sampler **out)
{
	*out = NULL;
	if (options->struct_size != sizeof(*options))
		return TFMC_RT_E_ABI;
	if (!is_valid(options) || vocab < 1 || vocab > INT32_MAX)
		return TFMC_RT_E_SAMPLE;
	struct tfmc_sampler *s = calloc(1, sizeof(*s));
	if (!s)
		return TFMC_RT_E_MEMORY;
	s->options = *options;
	s->random = options->seed;
	s->vocab = vocab;
	s->items = calloc((size_t)vocab, sizeof(*s->items));
	s->counts = calloc((size_t)vocab, sizeof(*s->counts));
	s->banned = calloc((size_t)vocab, 1);
	*out = s;
	if (s->items && s->counts && s->banned)
		return TFMC_RT_OK;
	tfmc_sampler_destroy(s);
	*out = NULL;
	return TFMC_RT_E_MEMORY;
}

void tfmc_sampler_destroy(struct tfmc_sampler *s)
{
	if (!s)
		return;
	free(s->items);
	free(s->counts);
	free(s->banned);
	free(s);
}
