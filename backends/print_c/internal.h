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

/* A string literal as char *. */
void c_string(const char *text, struct buf *out);
/* Each writes the expression of an instruction of its kind. c_lanes is for any operation on lanes; the three
 * after it are some of them. */
enum print_level c_constant(struct print *p, const struct kb_inst *i, struct buf *out);
enum print_level c_lanes(struct print *p, const struct kb_inst *i, struct buf *out);
enum print_level c_arith(struct print *p, const struct kb_inst *i, struct buf *out);
enum print_level c_convert(struct print *p, const struct kb_inst *i, struct buf *out);
enum print_level c_bitcast(struct print *p, const struct kb_inst *i, struct buf *out);
enum print_level c_memory(struct print *p, const struct kb_inst *i,
                          struct buf *out); /* loads, pointers, atomics */
void c_stmt(struct print *p, const struct kb_inst *i);

/* A helper: a block of prelude.c.in for an element and a number of lanes. */
struct c_helper {
	const char *name;
	enum c_element element;
	int lanes;
	const char *args[6]; /* $1 to $6 of the block */
};
/* Prints the block among the helpers the first time; what it calls was asked for before. Gives the name. */
const char *c_need(struct print *p, const char *block, const struct c_helper *h);
void c_print_block(struct print *p, const char *block, const struct c_helper *h, struct buf *out);

/* Ask for a helper; each gives its name. */
const char *c_need_select(struct print *p, enum c_element e, int lanes);
const char *c_need_splat(struct print *p, enum c_element e, int lanes);
const char *c_need_extreme(struct print *p, enum kb_bin op, enum c_element e, int lanes);

#endif
