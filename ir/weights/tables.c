/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of tables that have a formula: sinusoidal and rotary positions. */
#include "ir/weights/tables.h"

#include <math.h>

static double sinusoid_at(const struct ir_wexpr *e, int64_t row, int64_t col)
{
	int64_t half = e->dims[1] / 2;
	bool halves = e->layout == SINUSOID_HALVES;
	int64_t j = halves ? col % half : col / 2;
	bool cosine = halves ? col >= half : col % 2 == 1;
	double exponent = e->spacing == SINUSOID_T2T ? -(double)j / ((double)half - 1)
	                                             : -2.0 * (double)j / (double)e->dims[1];
	double angle = (double)(row + e->begin) * pow(e->value, exponent);
	return cosine ? cos(angle) : sin(angle);
}

void table_sinusoid(const struct ir_wexpr *e, int64_t begin, int64_t n, double *out)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = sinusoid_at(e, (begin + i) / e->dims[1], (begin + i) % e->dims[1]);
}

static double rotary_at(const struct ir_wexpr *e, int64_t row, int64_t col)
{
	int64_t half = e->dims[1] / 2;
	double angle = (double)row * e->frequencies[col % half];
	return e->value * (col < half ? cos(angle) : sin(angle));
}

void table_rotary(const struct ir_wexpr *e, int64_t begin, int64_t n, double *out)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = rotary_at(e, (begin + i) / e->dims[1], (begin + i) % e->dims[1]);
}
