/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named tensors of the command line: read from and written to files, and entries called on them through a session or
 * the interpreter.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_TENSORS_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_TENSORS_H

#include "frontend/driver/compile/jit.h"

struct named_tensor {
	const char *name;
	enum ir_dtype dtype;
	int rank;
	int64_t dims[IR_RANK_MAX];
	void *data;                      /* row-major, in the arena; 8-byte aligned */
	int64_t count;                   /* elements */
	bool used;                       /* an entry has read it */
	const struct probe_value *probe; /* NULL: not a probed value */
};
struct named_tensors {
	struct named_tensor *items;
	size_t n, cap;
};
/* Appends a zeroed tensor; copies the name. NULL when it does not fit into memory. */
struct named_tensor *tensors_add(struct driver *d, struct named_tensors *list, const char *name,
                                 enum ir_dtype dtype, int rank, const int64_t *dims);
/* NULL: there is none of that name. */
struct named_tensor *tensors_find(const struct named_tensors *t, const char *name);
/* Element i, converted. */
double tensor_value(const struct named_tensor *t, int64_t i);
/* "12 of 97 elements, the first NaN at [0,4,17]" of a float tensor with NaN or infinity; NULL: all are finite. */
const char *tensor_not_finite(struct driver *d, const struct named_tensor *t);
/* Sets all elements, values[count], rounded to the tensor's type. */
void tensor_set_values(struct named_tensor *t, const double *values);
/* Reads a safetensors or npy file; with a prefix only tensors whose names begin with it, which is removed. */
TFMC_MUST_USE enum tfmc_status tensors_read(struct driver *d, const char *path, const char *prefix,
                                            struct named_tensors *out);
/* Writes a safetensors file and commits the outputs; "-" is stdout. */
TFMC_MUST_USE enum tfmc_status tensors_write(struct driver *d, const char *path,
                                             const struct named_tensors *t);

/* How entries are called on named tensors. */
struct caller {
	struct driver *d;
	struct tfmc_session *session; /* NULL: the interpreter */
	const struct tfmc_record *record;
	const struct probe_values *probes; /* their values become tensors of their own; NULL: none */
	/* The rest is for the interpreter. */
	const struct ir_module *module;
	const struct weight_source *weights;
	struct interp_state *state;
	bool planned; /* computes in the arena of the module's memory plan */
	bool wide;    /* does not round floats */
	bool single;  /* accumulates in f32 */
};
/* The IR function that implements an entry: decode for prefill and step. */
const char *entry_function(const char *entry);
/* The index of the entry in the record; -1 after a diagnostic. */
int64_t caller_find_entry(struct driver *d, const struct tfmc_record *r, const char *name);
/* Calls an entry. Dims follow from the shapes of the inputs; outputs are appended to *out. */
TFMC_MUST_USE enum tfmc_status caller_run(struct caller *c, const char *entry, struct named_tensors *in,
                                          struct named_tensors *out);
/* Opens a session with memory for one call of an entry on inputs of these shapes. */
TFMC_MUST_USE enum tfmc_status caller_open_session(struct driver *d, struct compiled *c, const char *entry,
                                                   const struct named_tensors *in);

#endif
