/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of OpenCL C: names of types, expressions for single operations, and
 * helper functions for what has no operator. An operand occurs once in an expression.
 *
 * How values are carried: f16 and bf16 by their bits (ushort), one bool as int 0
 * or 1, bools of a vector as intN with lanes 0 or -1.
 */
#ifndef TFMC_BACKENDS_PRINT_OPENCL_TEXT_H
#define TFMC_BACKENDS_PRINT_OPENCL_TEXT_H

#include "backends/print/print.h"

#define OPENCL_LANES_MAX 16

/* Of the carried element: "int", "float", "ushort"; index by its width. */
const char *opencl_scalar(enum kb_scalar s, int index_bits);
/* Of an element in memory: as carried, but index is long. */
const char *opencl_memory_scalar(enum kb_scalar s);
/* "float8"; a single index is "idx". */
void opencl_type(struct buf *out, struct kb_type t, int index_bits);

/* Constants, lane numbers, arithmetic, selects, vectors, conversions, numbers of groups: the value of the
 * instruction. Asks for the helpers it calls. */
enum print_level opencl_expression(struct print *p, const struct kb_inst *i, struct buf *out);

/* ---- helpers: functions printed before the first one that calls them ---- */
enum opencl_helper {
	HELPER_FMA,
	HELPER_LESSER,  /* a < b ? a : b */
	HELPER_GREATER, /* a > b ? a : b */
	HELPER_SUM,     /* of all lanes, one tree */
	HELPER_LEAST,
	HELPER_MOST,
	HELPER_F16_OF, /* bits of f16 from float */
	HELPER_F16_TO, /* float from bits of f16 */
	HELPER_INT_OF  /* integer from float */
};
/* Writes the name for elements of `s`, which is the integer of INT_OF, and asks for it. */
void opencl_helper(struct print *p, enum opencl_helper h, enum kb_scalar s, int lanes, struct buf *out);
/* The same for a shuffle of two operands. */
void opencl_shuffle_helper(struct print *p, const struct kb_inst *i, struct buf *out);
/* True for names of helpers, and of types. */
bool opencl_is_helper(const char *name);
bool opencl_is_type(const char *name);

#endif
