/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor as stored in a weight file: the common result of the format readers (safetensors, GGUF, npy), and
 * their diagnostics.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_STORED_H
#define TFMC_FRONTEND_WEIGHTS_STORED_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/support/diag.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/weights/weight.h"

/* An update of a matrix W by an adapter: W + scale * b a; `transposed`: of W^T. */
struct weight_update {
	const struct stored_tensor *a, *b; /* floats [r, in], [out, r] */
	double scale;
	bool transposed; /* W is [in, out] */
	struct weight_update *next;
};

/* A stored tensor: type, shape, data, and how its elements are read. */
struct stored_tensor {
	const char *name;      /* in the file */
	const char *type_name; /* type name of the format: "F32", "Q4_K" */
	bool readable;         /* dtype is valid; false: a known type of the format that is not supported */
	enum ir_dtype dtype;
	weight_elements
	        *read; /* NULL: elements are stored as dtype; else reads elements whose values dtype can
		          represent */
	enum ir_format
	        format; /* quantized format, read by read_quants: dtype is F32, rank at least 2; else PLAIN */
	weight_rows *read_quants;
	bool reversed; /* Fortran order: the data are stored with the axes reversed */
	int rank;
	int64_t dims[IR_RANK_MAX]; /* logical shape, outermost first */
	const void *data; /* points into the file or the arena; may be unaligned; NULL when bytes = 0 */
	size_t bytes;
	const struct stored_tensor
	        *order;         /* i32 [K]: original column of each stored column of a matrix (act-order);
			          NULL: identity */
	const char *packed_as;  /* description of a packed matrix: bits and group size; else NULL */
	const char *transposed; /* name of the transpose of a matrix, whose rows are codes; NULL: none */
	/* Set by frontend/weights/files.h for the tensors of a model. */
	const char *key;  /* name for the map and `ignore`: the name after strip_prefix */
	const char *file; /* file name as written in the model (of an index: the shard) */
	struct loc loc;   /* the entry of weights.files */
	bool used, ignored;
	/* Set by frontend/weights/adapter.h, for tensors of floats. */
	struct weight_update *updates; /* NULL: none */
	struct stored_tensor
	        *replaced_by; /* the tensor that holds its values, maybe itself; NULL: not replaced */
	bool is_table;        /* updated as the table of an embedding */
	const char *reader;   /* if it is a table or replaced: path of the parameter that reads it */
};

struct stored_tensors {
	struct stored_tensor *items; /* in data order */
	size_t n;
};

/* A file in memory and its context for diagnostics. */
struct stored_source {
	struct arena *arena; /* owns the tensors */
	struct diag_context *cx;
	const char *name; /* file name in messages */
	struct loc loc;   /* location of the reference */
	const unsigned char *bytes;
	size_t len;
	bool headers_only; /* compressed data are not inflated: data is NULL */
};

/* Reader of a format; TFMC_INVALID after a diagnostic. */
typedef enum tfmc_status stored_reader(const struct stored_source *s, struct stored_tensors *out);

/* Report a WEIGHT_FILE error about the file, an item in it (kind "tensor", its name), or a byte of it;
 * return false. */
bool weight_file_error(const struct stored_source *s, const char *fmt, ...) TFMC_PRINTF(2, 3);
bool weight_file_error_in(const struct stored_source *s, const char *kind, const char *item, const char *fmt,
                          ...) TFMC_PRINTF(4, 5);
bool weight_file_error_at(const struct stored_source *s, size_t at, const char *fmt, ...) TFMC_PRINTF(3, 4);

/* ---- elements ---- */

/* Little-endian unsigned integer of n <= 8 bytes. */
uint64_t read_little_endian(const unsigned char *p, size_t n);

/*
 * Readers of element types that the IR lacks, as f64, for weight_bytes.read. All are exact except u64 above
 * 2^53, which is rounded to nearest even.
 */
weight_elements stored_read_u16, stored_read_u32, stored_read_u64;
/* 8-bit floats; E4M3, E4M3FNUZ, E5M2FNUZ have no infinities. E8M0 fits into bf16, the others into f16. */
weight_elements stored_read_f8_e4m3, stored_read_f8_e5m2, stored_read_f8_e4m3fnuz, stored_read_f8_e5m2fnuz,
        stored_read_f8_e8m0;
/* Big-endian. */
weight_elements stored_read_be_i16, stored_read_be_u16, stored_read_be_i32, stored_read_be_u32,
        stored_read_be_i64, stored_read_be_u64, stored_read_be_f16, stored_read_be_f32, stored_read_be_f64;

/* Element i of a readable tensor that is no quants; i64 beyond 2^53 is rounded. */
double stored_element(const struct stored_tensor *t, size_t i);

/* Value of IEEE bit patterns: f32 in the lower 32 bits, f64. */
double f32_from_bits(uint64_t bits);
double f64_from_bits(uint64_t bits);

#endif
