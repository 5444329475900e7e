/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of OpenCL C: names of types, expressions for single operations, and
 * helper functions for what has no operator. Operands come as text that binds
 * tighter than any operator and has no side effects, so it may stand twice.
 *
 * How values are carried: f16 and bf16 by their bits (ushort), one bool as int 0
 * or 1, bools of a vector as intN with lanes 0 or -1.
 */
#ifndef TFMC_BACKENDS_CFAMILY_OPENCL_TEXT_H
#define TFMC_BACKENDS_CFAMILY_OPENCL_TEXT_H

#include "backends/kernel/record.h"

#define OPENCL_LANES_MAX 16

/* Of the carried element: "int", "float", "ushort"; index by its width. */
const char *opencl_scalar(enum kb_scalar s, int index_bits);
/* Of an element in memory: as carried, but index is long. */
const char *opencl_memory_scalar(enum kb_scalar s);
/* "float8"; a single index is "idx". */
void opencl_type(struct buf *out, struct kb_type t, int index_bits);

struct opencl_expr {
	struct buf *out;
	int index_bits;
	const struct kb_inst *inst;
	const struct kb_type *from; /* [n_args] types of the operands */
	const char *const *args;    /* [n_args] their text */
};

/* Constants, lane numbers, arithmetic, selects, vectors, conversions: the value of the instruction. */
void opencl_expression(const struct opencl_expr *e);

/* Prints the helper functions that instructions of the module need, each once. */
void opencl_helpers(struct buf *out, const struct kb_module *m, int index_bits);

/* --- names of helpers -------------------------------------------------------------------------------- */
enum opencl_helper {
	HELPER_FMA,
	HELPER_ADD, /* of all lanes, one tree */
	HELPER_MIN,
	HELPER_MAX,
	HELPER_F16_OF,   /* bits of f16 from float */
	HELPER_F16_TO,   /* float from bits of f16 */
	HELPER_BF16_OF,  /* bits of bf16 from float */
	HELPER_INT_OF,   /* integer from float */
	HELPER_ODD_FLOAT /* float from integer, rounded to odd */
};
/* What is called for elements of `s`, which is the integer of INT_OF and ODD_FLOAT. */
void opencl_helper_name(struct buf *out, enum opencl_helper h, enum kb_scalar s, int lanes, int index_bits);

#endif
