/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice among measured tile sizes.
 */
#include "frontend/driver/commands/tune_choose.h"

double tune_least(const double *seconds, size_t n_rounds, size_t n, size_t candidate)
{
	double least = seconds[candidate];
	for (size_t r = 1; r < n_rounds; r++)
		least = seconds[r * n + candidate] < least ? seconds[r * n + candidate] : least;
	return least;
}

size_t tune_choose(const double *seconds, size_t n_rounds, size_t n)
{
	size_t best = 0;
	double bound = n_rounds > 0 ? tune_least(seconds, n_rounds, n, 0) * (1 - TUNE_GAIN) : 0;
	for (size_t c = 1; c < n && n_rounds > 0; c++) {
		double least = tune_least(seconds, n_rounds, n, c);
		size_t won = 0;
		for (size_t r = 0; r < n_rounds; r++)
			won += seconds[r * n + c] < seconds[r * n] * (1 - TUNE_GAIN);
		if (least >= bound || won * 4 < n_rounds * TUNE_TIMES)
			continue;
		bound = least;
		best = c;
	}
	return best;
}
