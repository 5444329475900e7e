/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor as a weight file stores it: what every reader of a format (safetensors, GGUF, npy) delivers.
 */
#ifndef TFMC_FRONTEND_FORMATS_STORED_H
#define TFMC_FRONTEND_FORMATS_STORED_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/diag/diag.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/weights/weight.h"

struct stored_tensor {
	const char *name;      /* in the file */
	const char *type_name; /* of the format: "F32", "Q4_K" */
	bool readable;         /* dtype is valid; else a known type of the format that we do not read */
	enum ir_dtype dtype;
	weight_elements
	        *read; /* NULL: elements are dtype; else how they are read, dtype holds all their values */
	enum ir_format
	        format; /* of codes, which read_quants reads: dtype is F32, rank at least 2; else PLAIN */
	weight_rows *read_quants;
	bool reversed; /* the data are those of the tensor with its axes in reverse order (order of Fortran) */
	int rank;
	int64_t dims[IR_RANK_MAX]; /* outermost first, of the tensor as it is meant */
	const void *data; /* into the given bytes or the arena; may be unaligned; NULL when bytes = 0 */
	size_t bytes;
	const struct stored_tensor
	        *order;        /* i32 [K]: the column that each one of a matrix really is; NULL: itself */
	const char *packed_as; /* of a matrix of few bits in parts: how many, and groups; else NULL */
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

/* The bytes of a file, and what messages say of it. */
struct stored_source {
	struct arena *arena; /* of the tensors */
	struct diag_context *cx;
	const char *name; /* as shown */
	struct loc loc;   /* who asked for it */
	const unsigned char *bytes;
	size_t len;
	bool headers_only; /* what would have to be decompressed stays so: data is NULL */
};

/* A format: TFMC_INVALID after a diagnostic. */
typedef enum tfmc_status stored_reader(const struct stored_source *s, struct stored_tensors *out);

/* A WEIGHT_FILE diagnostic about the file, a thing in it ("tensor", its name), or a byte of it; false. */
bool stored_bad(const struct stored_source *s, const char *fmt, ...) TFMC_PRINTF(2, 3);
bool stored_bad_item(const struct stored_source *s, const char *kind, const char *item, const char *fmt, ...)
        TFMC_PRINTF(4, 5);
bool stored_bad_byte(const struct stored_source *s, size_t at, const char *fmt, ...) TFMC_PRINTF(3, 4);

/* ---- elements ---- */

/* A whole number of n bytes, the least first. */
uint64_t stored_little(const unsigned char *p, size_t n);

/*
 * Elements of stored types that the IR has no name for, as f64: what a weight_bytes' `read` may be. All are
 * exact but u64 above 2^53, which is rounded to nearest even.
 */
weight_elements stored_read_u16, stored_read_u32, stored_read_u64;
/* Floats of 8 bits; E4M3, E4M3FNUZ, E5M2FNUZ have no infinities. They and E5M2 fit into f16, E8M0 into bf16.
 */
weight_elements stored_read_f8_e4m3, stored_read_f8_e5m2, stored_read_f8_e4m3fnuz, stored_read_f8_e5m2fnuz,
        stored_read_f8_e8m0;
/* Big-endian. */
weight_elements stored_read_be_i16, stored_read_be_u16, stored_read_be_i32, stored_read_be_u32,
        stored_read_be_i64, stored_read_be_u64, stored_read_be_f16, stored_read_be_f32, stored_read_be_f64;

/* What bits of IEEE floats are worth: of the lower 32, of 64. */
double stored_float(uint64_t bits);
double stored_double(uint64_t bits);

#endif
