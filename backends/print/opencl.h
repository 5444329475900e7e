/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL C dialect, internal interface. Types of values: f16 and bf16 as their bits (ushort), bool as int 0 or 1,
 * vectors of bools as intN with lanes 0 or -1, pointers as uchar * in their address space. An expression uses each
 * operand once.
 */
#ifndef TFMC_BACKENDS_PRINT_OPENCL_INTERNAL_H
#define TFMC_BACKENDS_PRINT_OPENCL_INTERNAL_H

#include "backends/print/print.h"

#define OPENCL_LANES_MAX 16

/* The type of a scalar value: "int", "float", "ushort"; KB_INDEX by index_bits. */
const char *opencl_scalar(const struct print *p, enum kb_scalar s);
/* The type of an element in memory: as opencl_scalar, but KB_INDEX is long. */
const char *opencl_memory_scalar(const struct print *p, enum kb_scalar s);
/* `name` with a number of lanes: "float8"; `name` for one lane. In p->arena. */
const char *opencl_lanes(const struct print *p, const char *name, int lanes);
const char *opencl_type(const struct print *p, enum kb_scalar s, int lanes);
/* Prints the qualifiers of a pointer's target: "__global const ". */
void opencl_qualifiers(struct space_pointer to, struct buf *out);
/* Bytes of a lane of a value. */
int opencl_lane_bytes(const struct print *p, enum kb_scalar s);
/* Requests the block of prelude.cl.in for the type of h, under the name PREFIX_type. Returns the name. */
const char *opencl_need(struct print *p, const char *block, const char *prefix, struct print_helper h);

#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) print_op opencl_##name;
#include "backends/kb/kb_ops.def"

#endif
