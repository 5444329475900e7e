/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile, which `tfmc calibrate` writes and the search of scales reads: how large the inputs of each matrix are.
 *
 * It is a safetensors file with one F32 tensor for each parameter W [N, K] that multiplies rows x of the model,
 * y = x W^T. Its name is the path of the parameter with the indices of repeats, as weights.map has it
 * ("layers.3.self.attention.q.weight"); its shape is [K], for a parameter that holds E experts [E, K]. Element k is
 * the mean of x(k)^2 over all rows x that were multiplied with W (of an expert: that it was given), for a parameter
 * that is used in several places over the rows of all of them. An error e of W then changes y by
 *
 *     mean |x e^T|^2  =  sum over n, k of e(n, k)^2 mean x(k)^2  +  products of different columns,
 *
 * and the first part is what the search makes small (the diagonal of the Hessian of LeCun et al. 1990, "Optimal Brain
 * Damage"). All zeros: no row came there, nothing is known of it. Parameters that are in no product (tables that are
 * looked up alone, norms, biases) have no tensor.
 *
 * A reader refuses, with the place: a file that is no safetensors file, a tensor of another type or shape than its
 * parameter wants, and numbers that are negative, infinite or NaN. Names that the model has not are refused as well:
 * the profile is that of another model.
 */
#ifndef TFMC_FRONTEND_DRIVER_QUALITY_PROFILE_H
#define TFMC_FRONTEND_DRIVER_QUALITY_PROFILE_H

#include "frontend/driver/compile/driver.h"

/* Sums over the calls so far: for each parameter `rows` rows of K sums and a count, in f64. */
struct profile {
	struct profile_entry {
		const char *name;
		int64_t rows, k;
		double *sums; /* [rows, k + 1] */
	} * items;
	size_t n, cap;
	struct strmap numbers; /* name to its number plus 1 */
};

/* Makes room for all parameters of the list, in the arena. False when memory ran out. */
bool profile_begin(struct driver *d, const struct probe_columns *columns, struct profile *out);
/* Adds what a call gave; its tensors have the names of the results of the list. TFMC_INVALID after a diagnostic: a sum
 * is not finite. */
TFMC_MUST_USE enum tfmc_status profile_add(struct driver *d, const struct probe_columns *columns,
                                           const struct named_tensors *results, struct profile *p);
/* The means, in the order in which the model uses the parameters. */
TFMC_MUST_USE enum tfmc_status profile_write(struct driver *d, const struct profile *p, const char *path);

#endif
