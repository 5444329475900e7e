/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor as a weight file stores it: what every reader of a format (safetensors, GGUF, npy) delivers.
 */
#ifndef TFMC_FRONTEND_FORMATS_STORED_H
#define TFMC_FRONTEND_FORMATS_STORED_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/diag/diag.h"
#include "ir/weights/weight.h"

struct stored_tensor {
	const char *name;      /* in the file */
	const char *type_name; /* of the format: "F32", "Q4_K" */
	bool readable;         /* dtype is valid; else a known type of the format that we do not read */
	enum ir_dtype dtype;
	weight_elements
	        *read; /* NULL: elements are dtype; else how they are read, dtype holds all their values */
	bool reversed; /* the data are those of the tensor with its axes in reverse order (order of Fortran) */
	int rank;
	int64_t dims[IR_RANK_MAX]; /* outermost first, of the tensor as it is meant */
	const void *data; /* into the given bytes or the arena; may be unaligned; NULL when bytes = 0 */
	size_t bytes;
	/* Of a tensor of a model (frontend/weights/files.h), which writes them. */
	const char *key;  /* what the map and `ignore` see: the name after strip_prefix */
	const char *file; /* as written in the model (an index: the shard beside it) */
	struct loc loc;   /* the entry of weights.files */
	bool used, ignored;
};

struct stored_tensors {
	struct stored_tensor *items; /* in the order of their data */
	size_t n;
};

#endif
