/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the portable C dialect share. Values are carried as: bool,
 * fixed-width integers, float, double, char * ; f16 and bf16 by their bits
 * (uint16_t); vectors as f32x16 and so on, vectors of bools as i32xN with lanes
 * 0 or -1. Helpers are named OPERATION_TYPE and printed once, when needed.
 */
#ifndef TFMC_BACKENDS_PRINT_C_INTERNAL_H
#define TFMC_BACKENDS_PRINT_C_INTERNAL_H

#include "backends/print/print.h"

/* Elements as they are carried: letter and bits name the vector and the helpers ("f32", "u16"). */
enum c_element { C_I8, C_U8, C_I16, C_U16, C_I32, C_U32, C_I64, C_U64, C_F32, C_F64, C_PTR, C_BOOL };

enum c_element c_element_of(enum kb_scalar s, int lanes);
enum c_element c_unsigned(enum c_element e);
enum c_element c_signed(enum c_element e); /* the integer of the same width */
bool c_is_float(enum c_element e);
int c_bits(enum c_element e);
const char *c_element_name(enum c_element e);   /* "f32" */
const char *c_element_scalar(enum c_element e); /* "float" */

/* "f32x16" or "f32": the end of helper names. Lives in the arena of what is being printed. */
const char *c_suffix(struct print *p, enum c_element e, int lanes);
/* The type; prints the typedef of a vector when it is the first. */
const char *c_type(struct print *p, enum c_element e, int lanes);
/* "{x, x, ...}" or "(x)" as an initialiser of that many lanes. */
const char *c_fill(struct print *p, const char *x, int lanes);

#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) print_op c_##name;
#include "backends/kb/kb_ops.def"

/* Ask for a helper; each gives its name. */
const char *c_need_select(struct print *p, enum c_element e, int lanes);
const char *c_need_splat(struct print *p, enum c_element e, int lanes);
const char *c_need_extreme(struct print *p, enum kb_bin op, enum c_element e, int lanes);

#endif
