/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A calibration profile: statistics of the inputs of each matrix. `tfmc calibrate` writes it, quantization reads it
 * to weight errors (an importance matrix).
 *
 * It is a safetensors file with one F32 tensor for each parameter W [N, K] that multiplies rows x of the model, y = x
 * W^T. Its name is the path of the parameter with the indices of repeats, as in weights.map, and the word inputs
 * ("layers.3.self.attention.q.weight.inputs"). Its shape is [2, K], or [E, 2, K] for a parameter of E experts. Row 0
 * has the means of x(k)^2 over all rows x that were multiplied with W (for an expert: that were routed to it; for a
 * parameter that is used in several places: over the rows of all of them), row 1 the means of x(k).
 * ir/weights/quants.h tells how they are used. All zeros: the matrix was not used. Parameters that are not multiplied
 * with rows (embedding tables that are only looked up, norms, biases) have no tensor.
 *
 * The reader is frontend/lower/profile.c. It rejects, with the location: a file without tensors, a tensor whose type
 * or shape differs from its parameter's, values that are negative, infinite or NaN, and names that the model does not
 * have (the profile of another model). A matrix without a tensor is a warning: its columns count equally.
 */
#ifndef TFMC_FRONTEND_DRIVER_QUALITY_PROFILE_H
#define TFMC_FRONTEND_DRIVER_QUALITY_PROFILE_H

#include "frontend/driver/commands/tensors.h"

/* Sums over all calls so far: for each parameter `rows` rows of K sums of squares, K sums and a count, in f64. */
struct profile {
	struct profile_entry {
		const char *name;
		int64_t rows, k;
		double *sums; /* [rows, 2 k + 1] */
	} * items;
	size_t n, cap;
	struct strmap numbers; /* name to its number plus 1 */
};

/* Allocates all parameters of the list, zeroed. False: no memory. */
bool profile_begin(struct driver *d, const struct probe_columns *columns, struct profile *out);
/* Adds the results of a call, which have the names of the list. TFMC_INVALID after a diagnostic: a sum is not
 * finite. */
TFMC_MUST_USE enum tfmc_status profile_add(struct driver *d, const struct probe_columns *columns,
                                           const struct named_tensors *results, struct profile *p);
/* Writes the means, in the order in which the model uses the parameters. */
TFMC_MUST_USE enum tfmc_status profile_write(struct driver *d, const struct profile *p, const char *path);

#endif
