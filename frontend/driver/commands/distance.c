/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distances between next-token distributions.
 */
#include "frontend/driver/commands/distance.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* log of the sum of e^logit, and argmax (of equal logits the lowest id). False: NaN, +infinity, or all
 * -infinity. */
static bool log_sum_exp(const float *logits, int64_t vocab, double *log_sum, int64_t *top)
{
	double sum = 0;
	*top = 0;
	for (int64_t v = 0; v < vocab; v++) {
		if (!(logits[v] <= FLT_MAX))
			return false;
		*top = logits[v] > logits[*top] ? v : *top;
	}
	double max = (double)logits[*top];
	if (max < -FLT_MAX)
		return false;
	for (int64_t v = 0; v < vocab; v++)
		sum += exp((double)logits[v] - max);
	*log_sum = max + log(sum);
	return true;
}

bool distance_add_position(struct arena *arena, const float *p, const float *q, int64_t vocab, int32_t next,
                           struct distance_sums *sums, struct distance_list *list)
{
	double p_sum, q_sum, kl = 0;
	int64_t p_top, q_top;
	if (!log_sum_exp(p, vocab, &p_sum, &p_top) || !log_sum_exp(q, vocab, &q_sum, &q_top))
		return false;
	for (int64_t v = 0; v < vocab; v++) {
		double log_p = (double)p[v] - p_sum, part = exp(log_p);
		kl += part > 0 ? part * (log_p - ((double)q[v] - q_sum)) : 0;
	}
	double *slot = isfinite(kl) ? ARENA_PUSH(arena, list) : NULL;
	if (!slot)
		return false;
	*slot = kl > 0 ? kl : 0;
	double log_p = (double)p[next] - p_sum, log_q = (double)q[next] - q_sum;
	double change = exp(log_q) - exp(log_p);
	sums->kl += *slot;
	sums->square += change * change;
	sums->log_p += log_p;
	sums->log_q += log_q;
	sums->n_same += p_top == q_top;
	sums->n++;
	return true;
}

void distance_add_sums(struct distance_sums *to, const struct distance_sums *from)
{
	to->kl += from->kl;
	to->square += from->square;
	to->log_p += from->log_p;
	to->log_q += from->log_q;
	to->n_same += from->n_same;
	to->n += from->n;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double distance_quantile(struct distance_list *list, double share)
{
	qsort(list->items, list->n, sizeof(*list->items), compare_doubles);
	size_t rank = (size_t)ceil(share * (double)list->n);
	return list->items[(rank < 1 ? 1 : rank > list->n ? list->n : rank) - 1];
}
