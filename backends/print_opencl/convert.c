/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions. f16 goes through vload_half and vstore_half on a private copy of the bits (core OpenCL C, no
 * extension); bf16 is integer code of the record (kb_legalize). Floats saturate into integers, and NaN gives 0
 * explicitly: the standard leaves it to the device.
 */
#include "backends/print_opencl/internal.h"

#include <string.h>

/* The operand as a number of C: bools as 0 and 1. (A mask & 1 becomes an extension of a vector of bits, which
 * Oclgrind gets wrong.) */
static void print_number(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	if (print_arg_type(p, i, 0).scalar == KB_BOOL && lanes > 1)
		buf_printf(out, "select((int%d)(0), (int%d)(1), %s)", lanes, lanes, print_arg(p, i, 0));
	else
		buf_str(out, print_bare(p, i, 0));
}

static const char *need_f16(struct print *p, bool is_to, int lanes)
{
	struct print_helper h = {NULL, KB_F32, lanes, {opencl_type(p, is_to ? KB_F16 : KB_F32, lanes)}};
	if (is_to)
		return opencl_need(p, "f16 from bits", "f16_to", h);
	h.name = arena_printf(p->arena, "f16_of_%s", opencl_type(p, KB_F32, lanes));
	h.element = KB_F16;
	return print_helper(p, "bits of f16", &h);
}

static const char *need_int(struct print *p, enum kb_scalar to, int lanes)
{
	const char *mask = to == KB_U8 ? "char" : opencl_scalar(p, to);
	const char *nan = strcmp(mask, "int") == 0 ? "isnan(x)"
	                                           : arena_printf(p->arena, "convert_%s(isnan(x))",
	                                                          opencl_lanes(p, mask, lanes));
	struct print_helper h = {NULL, to, lanes, {opencl_type(p, KB_F32, lanes), nan}};
	return opencl_need(p, lanes == 1 ? "integer of one" : "integer", "trunc", h);
}

enum print_level opencl_cvt(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_scalar from = print_arg_type(p, i, 0).scalar, to = i->type.scalar;
	int lanes = i->type.lanes;
	const char *type = opencl_type(p, to, lanes);
	if (from == KB_F16 || to == KB_F16)
		return print_call_text(p, i, 0, need_f16(p, from == KB_F16, lanes), out);
	if (from == KB_F32)
		return print_call_text(p, i, 0, need_int(p, to, lanes), out);
	if (strcmp(type, opencl_type(p, from, lanes)) != 0) {
		buf_printf(out, "convert_%s(", type);
		print_number(p, i, out);
		buf_char(out, ')');
	} else if (from != KB_BOOL || lanes == 1) {
		return print_same(p, i, 0, out);
	} else {
		print_number(p, i, out);
	}
	return PRINT_PRIMARY;
}

/* Indices are i64 by contract: their bits are their value. */
enum print_level opencl_bitcast(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_scalar from = print_arg_type(p, i, 0).scalar, to = i->type.scalar;
	const char *type = opencl_type(p, to, i->type.lanes), *how = "as";
	if (strcmp(type, opencl_type(p, from, i->type.lanes)) == 0)
		return print_same(p, i, 0, out);
	if (from == KB_INDEX || to == KB_INDEX)
		how = "convert";
	return print_call_text(p, i, 0, arena_printf(p->arena, "%s_%s", how, type), out);
}
