/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling. Order: penalties, temperature, top-k, top-p, min-p, draw. All arithmetic is IEEE double in a
 * fixed order without libm, so that a seed gives the same ids on every machine (compiled without contraction
 * of a * b + c to fma). A candidate's weight is its logit, and from softmax_weights() on e^(logit - max).
 */
#include "runtime/real.h"
#include "tfmc_rt.h"

#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An id that may be drawn. */
struct candidate {
	double weight; /* the logit, later e^(logit - max) */
	int32_t id;
};

/* Options, random state and buffers; items is used as a list and as a heap. */
struct tfmc_sampler {
	struct tfmc_sample_options options;
	uint64_t random; /* state of the generator */
	int64_t vocab;
	struct candidate *items; /* [vocab] */
	int32_t *counts;         /* [vocab]: occurrences of each id in the history */
};

/* ---- random numbers ---- */

/* SplitMix64 (Steele, Lea, Flood 2014): uniform in [0, 1) from the upper 53 bits. */
static double next_uniform(struct tfmc_sampler *s)
{
	uint64_t z = s->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* ---- candidates ---- */

/* Adds `by` to the count of each id of the history; -1 removes them again without clearing all counts. */
static void count_history(struct tfmc_sampler *s, const int32_t *history, uint64_t n, int32_t by)
{
	for (uint64_t i = 0; i < n; i++)
		if (history[i] >= 0 && history[i] < s->vocab)
			s->counts[history[i]] += by;
}

/* Repetition penalty (Keskar et al. 2019, section 4.1: negative logits are multiplied), then presence and
 * frequency. */
static double apply_penalties(const struct tfmc_sampler *s, double logit, int32_t count)
{
	const struct tfmc_sample_options *o = &s->options;
	if (count <= 0)
		return logit;
	logit = logit > 0 ? logit / o->repetition_penalty : logit * o->repetition_penalty;
	return logit - o->presence_penalty - o->frequency_penalty * (double)count;
}

/* Collects the ids that may be drawn, in ascending order, with penalties and temperature applied; returns their
 * number. NaN and -infinity cannot be drawn. */
static int64_t collect_candidates(struct tfmc_sampler *s, const float *logits, const unsigned char *excluded)
{
	int64_t n = 0;
	for (int64_t id = 0; id < s->vocab; id++) {
		double v = (double)logits[id];
		if (v != v || v < -FLT_MAX || (excluded && excluded[id]))
			continue;
		v = apply_penalties(s, v, s->counts[id]) / s->options.temperature;
		s->items[n++] = (struct candidate){v, (int32_t)id};
	}
	return n;
}

/* Descending weight, ascending id among equals. */
static bool is_before(const struct candidate *x, const struct candidate *y)
{
	return x->weight != y->weight ? x->weight > y->weight : x->id < y->id;
}

/* Restores the heap property of items[0..n) below `root`; items[0] is first in order. */
static void sift_down(struct candidate *items, int64_t n, int64_t root)
{
	struct candidate moved = items[root];
	for (int64_t child; (child = 2 * root + 1) < n; root = child) {
		if (child + 1 < n && is_before(&items[child + 1], &items[child]))
			child++;
		if (!is_before(&items[child], &moved))
			break;
		items[root] = items[child];
	}
	items[root] = moved;
}

static void make_heap(struct candidate *items, int64_t n)
{
	for (int64_t i = n / 2; i-- > 0;)
		sift_down(items, n, i);
}

/* Pops the first of the heap items[0..n) into items[n - 1]. */
static void pop_heap(struct candidate *items, int64_t n)
{
	struct candidate first = items[0];
	items[0] = items[n - 1];
	sift_down(items, n - 1, 0);
	items[n - 1] = first;
}

/* Moves the last `n_kept` of n items to the front and reverses them: the heap pops into items from the end down, so
 * the first popped is last. Returns n_kept. */
static int64_t move_popped_to_front(struct candidate *items, int64_t n, int64_t n_kept)
{
	memmove(items, items + n - n_kept, (size_t)n_kept * sizeof(*items));
	for (int64_t i = 0, k = n_kept - 1; i < k; i++, k--) {
		struct candidate first = items[i];
		items[i] = items[k];
		items[k] = first;
	}
	return n_kept;
}

/* Replaces logits by e^(logit - max), so that the largest is 1 (also for infinite logits). Returns the
 * sum. */
static double softmax_weights(struct candidate *items, int64_t n)
{
	double max = items[0].weight, sum = 0;
	for (int64_t i = 1; i < n; i++)
		max = items[i].weight > max ? items[i].weight : max;
	for (int64_t i = 0; i < n; i++) {
		double v = items[i].weight;
		items[i].weight = v == max ? 1 : real_exp(v - max);
		sum += items[i].weight;
	}
	return sum;
}

/* Top-p (nucleus, Holtzman et al. 2020): keeps the smallest set of most likely ids whose probability reaches p, most
 * likely first. sum: of all n weights. Returns the number kept. A heap, since few of n are popped: cheaper than
 * sorting. */
static int64_t keep_top_p(struct tfmc_sampler *s, int64_t n, double sum)
{
	double reached = 0, target = s->options.top_p * sum;
	int64_t n_kept = 0;
	make_heap(s->items, n);
	while (n_kept < n && reached < target) {
		pop_heap(s->items, n - n_kept);
		n_kept++;
		reached += s->items[n - n_kept].weight;
	}
	return move_popped_to_front(s->items, n, n_kept);
}

/* Top-k: keeps the k most likely, most likely first. */
static int64_t keep_top_k(struct tfmc_sampler *s, int64_t n, int64_t k)
{
	make_heap(s->items, n);
	for (int64_t i = 0; i < k; i++)
		pop_heap(s->items, n - i);
	return move_popped_to_front(s->items, n, k);
}

/* Min-p: keeps ids with at least min_p times the largest weight, which is 1 (softmax_weights), in order. Returns their
 * number, at least 1. */
static int64_t keep_min_p(struct tfmc_sampler *s, int64_t n)
{
	int64_t n_kept = 0;
	for (int64_t i = 0; i < n; i++)
		if (s->items[i].weight >= s->options.min_p)
			s->items[n_kept++] = s->items[i];
	return n_kept;
}

/* Draws an id with probability proportional to its weight: the first whose cumulative weight exceeds a uniform number.
 * The last one where rounding leaves none. */
static int32_t draw_weighted(struct tfmc_sampler *s, int64_t n)
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

/* Applies top-k, top-p and min-p to n candidates and draws one; -1: no candidate. Weights become probabilities after
 * top-k, so top-p is a part of what top-k has kept. */
static int32_t sample_id(struct tfmc_sampler *s, int64_t n)
{
	const struct tfmc_sample_options *o = &s->options;
	if (n == 0)
		return -1;
	if (o->top_k > 0 && o->top_k < n)
		n = keep_top_k(s, n, o->top_k);
	double sum = softmax_weights(s->items, n);
	if (o->top_p < 1)
		n = keep_top_p(s, n, sum);
	return draw_weighted(s, keep_min_p(s, n));
}

/* The counts are all 0 between draws. */
int32_t tfmc_sampler_draw(struct tfmc_sampler *s, const float *logits, const unsigned char *excluded,
                          const int32_t *history, uint64_t n_history)
{
	if (!s || !logits || (!history && n_history))
		return -1;
	count_history(s, history, n_history, 1);
	int32_t id = sample_id(s, collect_candidates(s, logits, excluded));
	count_history(s, history, n_history, -1);
	return id;
}

/* ---- creation ---- */

static bool are_options_valid(const struct tfmc_sample_options *o)
{
	bool in_range = o->temperature > 0 && o->temperature <= 1e6 && o->repetition_penalty > 0 &&
	                o->repetition_penalty <= 1e6 && o->presence_penalty >= -1e6 &&
	                o->presence_penalty <= 1e6 && o->frequency_penalty >= -1e6 &&
	                o->frequency_penalty <= 1e6;
	return in_range && o->top_k >= 0 && o->top_p > 0 && o->top_p <= 1 && o->min_p >= 0 && o->min_p <= 1;
}

int tfmc_sampler_create(const struct tfmc_sample_options *options, int64_t vocab, struct tfmc_sampler **out)
{
	if (!out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	if (!options)
		return TFMC_RT_E_NULL;
	if (options->struct_size != sizeof(*options))
		return TFMC_RT_E_ABI;
	if (!are_options_valid(options) || vocab < 1 || vocab > INT32_MAX)
		return TFMC_RT_E_SAMPLE;
	struct tfmc_sampler *s = calloc(1, sizeof(*s));
	if (!s)
		return TFMC_RT_E_MEMORY;
	s->options = *options;
	s->random = options->seed;
	s->vocab = vocab;
	s->items = calloc((size_t)vocab, sizeof(*s->items));
	s->counts = calloc((size_t)vocab, sizeof(*s->counts));
	*out = s;
	if (s->items && s->counts)
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
	free(s);
}
