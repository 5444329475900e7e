/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the OpenCL C dialect share. An operand occurs once in an expression.
 *
 * How values are carried: f16 and bf16 by their bits (ushort), one bool as int 0 or 1, bools of a vector as intN
 * with lanes 0 or -1; pointers as pointers to uchar in their address space.
 */
#ifndef TFMC_BACKENDS_PRINT_OPENCL_INTERNAL_H
#define TFMC_BACKENDS_PRINT_OPENCL_INTERNAL_H

#include "backends/print/print.h"

#define OPENCL_LANES_MAX 16

/* Of the carried element: "int", "float", "ushort"; index by its width. */
const char *opencl_scalar(const struct print *p, enum kb_scalar s);
/* Of an element in memory: as carried, but index is long. */
const char *opencl_memory_scalar(const struct print *p, enum kb_scalar s);
/* NAME and a number of lanes, none for one: "float8". Lives in the arena of what is being printed. */
const char *opencl_lanes(const struct print *p, const char *name, int lanes);
const char *opencl_type(const struct print *p, enum kb_scalar s, int lanes);
/* Of what a pointer points to: "__global const ". */
void opencl_qualifiers(struct space_pointer to, struct buf *out);
/* Bytes of a lane as it is carried. */
int opencl_lane_bytes(const struct print *p, enum kb_scalar s);
/* A helper: the block of prelude.cl.in for a type, named PREFIX_type. Gives the name. */
const char *opencl_need(struct print *p, const char *block, const char *prefix, struct print_helper h);

#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) print_op opencl_##name;
#include "backends/kb/kb_ops.def"

#endif
