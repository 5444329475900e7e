/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter: strips of the last axis. A result [.., 2 or 3, n] holds the first
 * numbers of all strips, then the second ones, and so on.
 */
#include <math.h>

#include "ir/interp/interp_internal.h"

/* x [rows, columns] in n strips. */
struct strips {
	int64_t rows, columns, width, n;
};

static struct strips strips_of(const struct interp_tensor *x, int64_t width)
{
	int64_t columns = x->dims[x->rank - 1];
	return (struct strips){interp_span(x, 0, x->rank - 1), columns, width, (columns - 1) / width + 1};
}

static int64_t strip_end(const struct strips *s, int64_t strip)
{
	int64_t end = (strip + 1) * s->width;
	return end < s->columns ? end : s->columns;
}

INTERP_EVAL(strip_argmax)
{
	const struct strips s = strips_of(x[0], ((const struct attrs_strip_argmax *)op->attrs)->width);
	for (int64_t i = 0; i < s.rows * s.n; i++) {
		int64_t row = i / s.n, strip = i % s.n, best = strip * s.width;
		const double *v = x[0]->data + row * s.columns;
		for (int64_t c = best; c < strip_end(&s, strip); c++)
			if (v[c] > v[best] || (isnan(v[best]) && !isnan(v[c])))
				best = c;
		out->data[2 * row * s.n + strip] = v[best];
		out->data[(2 * row + 1) * s.n + strip] = (double)best;
	}
	return TFMC_OK;
}

/* m, sum(exp(x - m)), x[at] - m when the strip x of n columns holds `at`. */
static void score_strip(const double *x, int64_t n, int64_t at, double out[3])
{
	double m = -HUGE_VAL, sum = 0;
	for (int64_t i = 0; i < n; i++)
		m = x[i] > m ? x[i] : m;
	double shift = m == -HUGE_VAL ? 0 : m;
	for (int64_t i = 0; i < n; i++)
		sum += exp(x[i] - shift);
	out[0] = m;
	out[1] = sum == 0 ? 1 : sum;
	out[2] = at < 0 || at >= n ? -HUGE_VAL : sum == 0 ? 0 : x[at] - shift;
}

INTERP_EVAL(strip_score)
{
	const struct strips s = strips_of(x[0], ((const struct attrs_strip_score *)op->attrs)->width);
	for (int64_t i = 0; i < s.rows * s.n; i++) {
		int64_t row = i / s.n, strip = i % s.n, first = strip * s.width;
		int64_t at = interp_clamp(interp_int(x[1]->data[row]), 0, s.columns - 1);
		double three[3];
		score_strip(x[0]->data + row * s.columns + first, strip_end(&s, strip) - first, at - first,
		            three);
		for (int64_t k = 0; k < 3; k++)
			out->data[(3 * row + k) * s.n + strip] = three[k];
	}
	return TFMC_OK;
}
