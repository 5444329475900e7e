/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile, which `tfmc calibrate` writes and the search of scales reads: what the inputs of each matrix are like.
 *
 * It is a safetensors file with one F32 tensor for each parameter W [N, K] that multiplies rows x of the model,
 * y = x W^T. Its name is the path of the parameter with the indices of repeats, as weights.map has it, and the word inputs
 * ("layers.3.self.attention.q.weight.inputs"); its shape is [2, K], for a parameter that holds E experts [E, 2, K]. Row 0
 * has the means of x(k)^2 over all rows x that were multiplied with W (of an expert: that it was given), for a parameter
 * that is used in several places over the rows of all of them; row 1 the means of x(k). What is made of them:
 * ir/weights/quants.h. All zeros: no row came there, nothing is known of it. Parameters that are in no product (tables that
 * are looked up alone, norms, biases) have no tensor.
 *
 * The reader is frontend/lower/profile.c. It refuses, with the place: a file of no tensors, one of another type or shape than
 * its parameter wants, and numbers that are negative, infinite or NaN. Names that the model has not are refused as well: the
 * profile is that of another model. Matrices that it says nothing of are a warning: their columns count the same.
 */
#ifndef TFMC_FRONTEND_DRIVER_QUALITY_PROFILE_H
#define TFMC_FRONTEND_DRIVER_QUALITY_PROFILE_H

#include "frontend/driver/run/tensors.h"

/* Sums over the calls so far: for each parameter `rows` rows of K sums of squares, K sums and a count, in f64. */
struct profile {
	struct profile_entry {
		const char *name;
		int64_t rows, k;
		double *sums; /* [rows, 2 k + 1] */
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
