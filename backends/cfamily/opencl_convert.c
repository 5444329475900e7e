/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions. Small floats go through float: f16 by vload_half and vstore_half
 * on a private copy of the bits (core OpenCL C, no extension), bf16 by integers.
 * Wide integers reach bf16 through a float rounded to odd, so that the second
 * rounding is the only one. Floats saturate into integers, and NaN gives 0
 * explicitly: the standard leaves it to the device.
 */
#include "backends/cfamily/opencl_convert.h"

#include <string.h>

static bool is_float(enum kb_scalar s)
{
	return s == KB_F16 || s == KB_BF16 || s == KB_F32;
}

/* Has more bits than a float's fraction. */
static bool is_wide(enum kb_scalar s)
{
	return s == KB_I32 || s == KB_I64 || s == KB_INDEX;
}

size_t opencl_convert_calls(enum kb_scalar from, enum kb_scalar to,
                            struct opencl_call calls[OPENCL_CONVERT_CALLS])
{
	size_t n = 0;
	if (from == to)
		return 0;
	if (from == KB_F16)
		calls[n++] = (struct opencl_call){HELPER_F16_TO, KB_F32};
	if (to == KB_BF16 && is_wide(from))
		calls[n++] = (struct opencl_call){HELPER_ODD_FLOAT, from};
	if (to == KB_F16 || to == KB_BF16)
		calls[n++] = (struct opencl_call){to == KB_F16 ? HELPER_F16_OF : HELPER_BF16_OF, KB_F32};
	if (is_float(from) && !is_float(to))
		calls[n++] = (struct opencl_call){HELPER_INT_OF, to};
	return n;
}

static void lanes_suffix(struct buf *out, int lanes)
{
	if (lanes > 1)
		buf_printf(out, "%d", lanes);
}

/* convert_float4( */
static void convert_begin(const struct opencl_expr *e, const char *to)
{
	buf_printf(e->out, "convert_%s", to);
	lanes_suffix(e->out, e->inst->type.lanes);
	buf_char(e->out, '(');
}

/* The operand as a number of C: bools as 0 and 1. */
static void print_number(const struct opencl_expr *e)
{
	bool is_mask = e->from[0].scalar == KB_BOOL && e->from[0].lanes > 1;
	buf_printf(e->out, is_mask ? "(%s & 1)" : "%s", e->args[0]);
}

/* The operand as float, of any type. */
static void print_as_float(const struct opencl_expr *e)
{
	int lanes = e->inst->type.lanes;
	enum kb_scalar from = e->from[0].scalar;
	if (from == KB_F32 || from == KB_F16) {
		buf_str(e->out, e->args[0]);
	} else if (from == KB_BF16) {
		buf_str(e->out, "as_float");
		lanes_suffix(e->out, lanes);
		buf_char(e->out, '(');
		convert_begin(e, "uint");
		buf_printf(e->out, "%s) << 16)", e->args[0]);
	} else if (e->inst->type.scalar == KB_BF16 && is_wide(from)) {
		buf_str(e->out, e->args[0]); /* by its helper */
	} else {
		convert_begin(e, "float");
		print_number(e);
		buf_char(e->out, ')');
	}
}

/* Helpers apply from the inside out. */
static void print_through_helpers(const struct opencl_expr *e, const struct opencl_call *calls, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		opencl_helper_name(e->out, calls[i].helper, calls[i].scalar, e->inst->type.lanes,
		                   e->index_bits);
		buf_char(e->out, '(');
	}
	print_as_float(e);
	buf_fill(e->out, ')', n);
}

void opencl_convert(const struct opencl_expr *e)
{
	struct opencl_call calls[OPENCL_CONVERT_CALLS];
	enum kb_scalar from = e->from[0].scalar, to = e->inst->type.scalar;
	const char *name = opencl_scalar(to, e->index_bits);
	size_t n = opencl_convert_calls(from, to, calls);
	if (is_float(from) || is_float(to)) {
		print_through_helpers(e, calls, n);
	} else if (strcmp(name, opencl_scalar(from, e->index_bits)) == 0) {
		print_number(e);
	} else {
		convert_begin(e, name);
		print_number(e);
		buf_char(e->out, ')');
	}
}

/* Indices are i64 by contract: their bits are their value. */
void opencl_bitcast(const struct opencl_expr *e)
{
	enum kb_scalar from = e->from[0].scalar, to = e->inst->type.scalar;
	const char *a = opencl_scalar(from, e->index_bits), *b = opencl_scalar(to, e->index_bits);
	if (strcmp(a, b) == 0) {
		buf_str(e->out, e->args[0]);
		return;
	}
	bool by_value = from == KB_INDEX || to == KB_INDEX;
	if (by_value) {
		convert_begin(e, b);
	} else {
		buf_printf(e->out, "as_%s", b);
		lanes_suffix(e->out, e->inst->type.lanes);
		buf_char(e->out, '(');
	}
	buf_printf(e->out, "%s)", e->args[0]);
}
