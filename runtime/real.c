/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exponential and logarithm by range reduction and series. ln 2 is split so that the product of its upper
 * part with a small integer is exact (Cody and Waite 1980).
 */
#include "runtime/real.h"

#include "tfmc_rt.h"

#include <float.h>
#include <string.h>

#define LN2_HI 0x1.62e42feep-1
#define LN2_LO 0x1.a39ef35793c76p-33

/* 2^n for n in [-1022, 1023]. */
static double power_of_two(int64_t n)
{
	uint64_t bits = (uint64_t)(n + 1023) << 52;
	double v;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* 1 / k! for k = 14 .. 0. */
static const double inverse_factorials[] = {1 / 87178291200.0,
                                            1 / 6227020800.0,
                                            1 / 479001600.0,
                                            1 / 39916800.0,
                                            1 / 3628800.0,
                                            1 / 362880.0,
                                            1 / 40320.0,
                                            1 / 5040.0,
                                            1 / 720.0,
                                            1 / 120.0,
                                            1 / 24.0,
                                            1 / 6.0,
                                            1 / 2.0,
                                            1,
                                            1};

/* x = n ln 2 + r, |r| <= ln 2 / 2; the Taylor series of e^r, whose first omitted term (r^15 / 15!) is below 1 ulp.
 * Below -708 the result would leave the normal numbers: 0, also for NaN. */
double real_exp(double x)
{
	if (!(x > -708))
		return 0;
	double scaled = x * 0x1.71547652b82fep+0 - 0.5;
	int64_t n = (int64_t)scaled; /* truncation rounds to nearest, since scaled <= 0 */
	double r = x - (double)n * LN2_HI;
	r = r - (double)n * LN2_LO;
	double sum = inverse_factorials[0];
	for (int k = 1; k < 15; k++)
		sum = sum * r + inverse_factorials[k];
	return sum * power_of_two(n);
}

/* x = 2^n m, m in [sqrt 1/2, sqrt 2); ln m = 2 artanh(t), t = (m - 1) / (m + 1). |t| < 0.172, so the series in t^2
 * up to t^23 leaves less than 1 ulp. */
double real_log(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof(bits));
	int64_t n = (int64_t)(bits >> 52 & 0x7ff) - 1023;
	/* 2^-1023 is not a normal number: two factors */
	double m = x * power_of_two(n == 1023 ? -1022 : -n); /* in [1, 2), then below sqrt 2 */
	m = n == 1023 ? m * 0.5 : m;
	if (m > 0x1.6a09e667f3bcdp+0) {
		m = m * 0.5;
		n++;
	}
	double t = (m - 1) / (m + 1), square = t * t, sum = 0;
	for (int k = 23; k > 1; k -= 2)
		sum = (sum + 1.0 / k) * square;
	double series = 2 * t + 2 * t * sum;
	return (double)n * LN2_HI + (series + (double)n * LN2_LO);
}

int log_sum_exp(const float *logits, int64_t vocab, double *out)
{
	float max = logits[0];
	double sum = 0;
	int wrong = 0;
	for (int64_t i = 0; i < vocab; i++) {
		wrong |= !(logits[i] <= FLT_MAX);
		max = logits[i] > max ? logits[i] : max;
	}
	if (wrong || max < -FLT_MAX)
		return TFMC_RT_E_LOGITS;
	for (int64_t i = 0; i < vocab; i++)
		sum += real_exp((double)logits[i] - (double)max);
	*out = (double)max + real_log(sum);
	return TFMC_RT_OK;
}
