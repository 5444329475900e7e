/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distance of the next-token distributions q of a model from the distributions p of a reference model. At a position
 * with logits x [V] the distribution is p(v) = e^(x(v) - m) / sum over u of e^(x(u) - m), m = max x, computed in
 * f64 from logits in f32.
 *
 *   kl        D(p || q) = sum over v of p(v) (log p(v) - log q(v)), in nats (Kullback, Leibler 1951, eq. 2.4); a
 *             sum that rounding brings below 0 is 0
 *   same_top  whether argmax of both is the same token (of equal logits the lowest id)
 *   p, q      probability of the token that follows in the text
 *
 * Of n positions: the mean of kl; its 99.9 % quantile, the element number ceil(0.999 n) of the sorted list
 * (nearest rank); the share of positions with same_top; the root mean square of q - p; the perplexities
 * e^(-mean of log p) and e^(-mean of log q).
 */
#ifndef TFMC_FRONTEND_DRIVER_QUALITY_DISTANCE_H
#define TFMC_FRONTEND_DRIVER_QUALITY_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/support/arena.h"

/* Sums over the positions of one sequence, or of all. */
struct distance_sums {
	double kl, square, log_p, log_q; /* square: sum of (q - p)^2 */
	int64_t n_same, n;
};

/* kl of each position, for the quantile. */
struct distance_list {
	double *items;
	size_t n, cap;
};

/*
 * Adds the position after which `next` follows; 0 <= next < vocab, and vocab >= 1. False, and nothing is added,
 * when a logit is NaN or +infinity, when all are -infinity, or when q is 0 where p is not.
 */
bool distance_add_position(struct arena *arena, const float *p, const float *q, int64_t vocab, int32_t next,
                           struct distance_sums *sums, struct distance_list *list);
void distance_add_sums(struct distance_sums *to, const struct distance_sums *from);
/* The nearest-rank quantile, 0 < share <= 1, of a list with n >= 1; sorts it. */
double distance_quantile(struct distance_list *list, double share);

#endif
