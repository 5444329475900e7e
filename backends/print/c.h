/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portable C dialect, internal interface. Types of values: bool, fixed-width integers, float, double, char *; f16
 * and bf16 as their bits (uint16_t); vectors f32x16 etc.; vectors of bools i32xN with lanes 0 or -1. Helpers are
 * called OPERATION_TYPE and printed on their first request.
 */
#ifndef TFMC_BACKENDS_PRINT_C_INTERNAL_H
#define TFMC_BACKENDS_PRINT_C_INTERNAL_H

#include "backends/print/print.h"

/* Element types in the emitted C. */
enum c_element { C_I8, C_U8, C_I16, C_U16, C_I32, C_U32, C_I64, C_U64, C_F32, C_F64, C_PTR, C_BOOL };

enum c_element c_element_of(enum kb_scalar s, int lanes);
enum c_element c_unsigned(enum c_element e); /* the unsigned integer of the same width */
enum c_element c_signed(enum c_element e);   /* the integer of the same width */
bool c_is_float(enum c_element e);
int c_bits(enum c_element e);
const char *c_element_name(enum c_element e);   /* "f32" */
const char *c_element_scalar(enum c_element e); /* "float" */

/* "f32x16" or "f32": suffix of helper names. In p->arena. */
const char *c_suffix(struct print *p, enum c_element e, int lanes);
/* The name of the type; prints the typedef of a vector type on its first request. */
const char *c_type(struct print *p, enum c_element e, int lanes);
/* "{x, x, ...}" with `lanes` elements. */
const char *c_fill(struct print *p, const char *x, int lanes);

#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) print_op c_##name;
#include "backends/kb/kb_ops.def"

/* Requests the helper that broadcasts a scalar. Returns its name. */
const char *c_need_splat(struct print *p, enum c_element e, int lanes);

#endif
