/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions of OpenCL C, one for each operation of the builder. Signed
 * arithmetic that may wrap goes through the unsigned type; indices never wrap by
 * contract and stay readable. min and max are compare and pick, because fmin
 * has another rule for NaN.
 */
#include "backends/print_opencl/text.h"

#include <math.h>
#include <string.h>

#include "backends/print_opencl/convert.h"

struct expr {
	struct print *p;
	const struct kb_inst *inst;
	struct buf *out;
	int index_bits;
};

/* ---- types ---- */

const char *opencl_scalar(enum kb_scalar s, int index_bits)
{
	switch (s) {
	case KB_VOID: return "void";
	case KB_BOOL: return "int";
	case KB_I8: return "char";
	case KB_U8: return "uchar";
	case KB_I16: return "short";
	case KB_I32: return "int";
	case KB_I64: return "long";
	case KB_INDEX: return index_bits == 64 ? "long" : "int";
	case KB_U16:
	case KB_F16:
	case KB_BF16: return "ushort";
	case KB_F32: return "float";
	case KB_F64: return "double";
	case KB_PTR: return "uchar *";
	}
	return "";
}

const char *opencl_memory_scalar(enum kb_scalar s)
{
	return opencl_scalar(s, 64);
}

static void type_name(struct buf *out, const char *scalar, int lanes)
{
	buf_str(out, scalar);
	if (lanes > 1)
		buf_printf(out, "%d", lanes);
}

void opencl_type(struct buf *out, struct kb_type t, int index_bits)
{
	if (t.scalar == KB_INDEX && t.lanes == 1)
		buf_str(out, "idx");
	else
		type_name(out, opencl_scalar(t.scalar, index_bits), t.lanes);
}

static const char *arg(const struct expr *e, size_t k)
{
	return print_arg(e->p, e->inst, k);
}

static void bare_arg(const struct expr *e, size_t k)
{
	print_bare_arg(e->p, e->inst, k, e->out);
}

/* name(a, b, c) of all operands; the name is written. */
static void call_args(const struct expr *e)
{
	for (size_t k = 0; k < e->inst->n_args; k++) {
		buf_str(e->out, k ? ", " : "(");
		bare_arg(e, k);
	}
	buf_char(e->out, ')');
}

static void call_helper(const struct expr *e, enum opencl_helper h)
{
	struct kb_type t = print_arg_type(e->p, e->inst, 0);
	opencl_helper(e->p, h, t.scalar, t.lanes, e->out);
	call_args(e);
}

static bool is_wrapping(enum kb_scalar s)
{
	return s == KB_I32 || s == KB_I64;
}

/* "int4" or "uint4" */
static void int_type(const struct expr *e, bool is_unsigned)
{
	struct kb_type t = e->inst->type;
	if (is_unsigned)
		buf_char(e->out, 'u');
	type_name(e->out, opencl_scalar(t.scalar, e->index_bits), t.lanes);
}

/* ---- arithmetic ---- */

/* as_int4(as_uint4(a) + as_uint4(b)) */
static void unsigned_bin(const struct expr *e, const char *op)
{
	buf_str(e->out, "as_");
	int_type(e, false);
	buf_str(e->out, "(as_");
	int_type(e, true);
	buf_printf(e->out, "(%s) %s as_", arg(e, 0), op);
	int_type(e, true);
	buf_printf(e->out, "(%s))", arg(e, 1));
}

static bool goes_unsigned(enum kb_bin op, enum kb_scalar s)
{
	bool shifts = op == KB_SHL || op == KB_SHR;
	bool wraps = op == KB_ADD || op == KB_SUB || op == KB_MUL;
	return shifts || (wraps && is_wrapping(s));
}

/* a op b; x + (-1) of indices reads better as x - 1 */
static enum print_level plain_bin(const struct expr *e)
{
	enum kb_bin op = e->inst->bin;
	bool is_sum = op == KB_ADD && e->inst->type.scalar == KB_INDEX && e->inst->type.lanes == 1;
	int64_t c;
	if (is_sum && print_const_arg(e->p, e->inst, 1, &c) && c < 0 && c != INT64_MIN)
		buf_printf(e->out, "%s - %lld%s", arg(e, 0), (long long)-c, e->index_bits == 64 ? "L" : "");
	else
		buf_printf(e->out, "%s %s %s", arg(e, 0), kb_bin_sign(op), arg(e, 1));
	return op == KB_AND || op == KB_OR || op == KB_XOR || op == KB_SAR ? PRINT_LOOSE : PRINT_SUM;
}

static enum print_level print_bin(const struct expr *e)
{
	enum kb_bin op = e->inst->bin;
	enum kb_scalar s = e->inst->type.scalar;
	bool picks = op == KB_MIN || op == KB_MAX;
	if (picks && s == KB_F32) {
		call_helper(e, op == KB_MIN ? HELPER_LESSER : HELPER_GREATER);
	} else if (picks) {
		buf_str(e->out, kb_bin_name(op));
		call_args(e);
	} else if (goes_unsigned(op, s)) {
		unsigned_bin(e, kb_bin_sign(op));
	} else {
		return plain_bin(e);
	}
	return PRINT_PRIMARY;
}

/* as_int(-as_uint(a)), as_int(abs(a)) */
static void wrapped_un(const struct expr *e, const char *before, bool is_unsigned)
{
	buf_str(e->out, "as_");
	int_type(e, false);
	buf_printf(e->out, "(%s", before);
	if (is_unsigned) {
		buf_str(e->out, "as_");
		int_type(e, true);
	}
	buf_printf(e->out, "(%s))", arg(e, 0));
}

static void print_not(const struct expr *e)
{
	struct kb_type t = e->inst->type;
	if (t.scalar == KB_BOOL && t.lanes == 1) {
		buf_printf(e->out, "!%s", arg(e, 0));
		return;
	}
	/* one narrow lane would have become an int */
	if (t.lanes == 1 && !is_wrapping(t.scalar))
		buf_printf(e->out, "(%s)", opencl_scalar(t.scalar, e->index_bits));
	buf_printf(e->out, "~%s", arg(e, 0));
}

static enum print_level print_un(const struct expr *e)
{
	bool is_float = e->inst->type.scalar == KB_F32;
	const char *a = arg(e, 0);
	switch (e->inst->un) {
	case KB_NEG:
		if (!is_float) {
			wrapped_un(e, "-", true);
			return PRINT_PRIMARY;
		}
		buf_printf(e->out, "-%s", a);
		return PRINT_SUM;
	case KB_ABS:
		if (is_float)
			buf_printf(e->out, "fabs(%s)", a);
		else
			wrapped_un(e, "abs", false);
		return PRINT_PRIMARY;
	case KB_SQRT:
	case KB_FLOOR:
	case KB_CEIL: buf_printf(e->out, "%s(%s)", kb_un_name(e->inst->un), a); return PRINT_PRIMARY;
	case KB_NOT: print_not(e); return PRINT_SUM;
	}
	return PRINT_PRIMARY;
}

/* Bytes of a lane as it is carried. */
static int lane_bytes(enum kb_scalar s, int index_bits)
{
	switch (s) {
	case KB_I8:
	case KB_U8: return 1;
	case KB_I16:
	case KB_U16:
	case KB_F16:
	case KB_BF16: return 2;
	case KB_BOOL:
	case KB_I32:
	case KB_F32: return 4;
	case KB_INDEX: return index_bits / 8;
	case KB_I64:
	case KB_F64: return 8;
	case KB_VOID:
	case KB_PTR: return 0;
	}
	return 0;
}

static enum print_level print_cmp(const struct expr *e)
{
	struct kb_type t = print_arg_type(e->p, e->inst, 0);
	const char *op = kb_cmp_sign(e->inst->cmp);
	/* lanes of the mask are as wide as what was compared */
	bool converts = t.lanes > 1 && lane_bytes(t.scalar, e->index_bits) != 4;
	if (converts)
		buf_printf(e->out, "convert_int%d(%s %s %s)", t.lanes, arg(e, 0), op, arg(e, 1));
	else
		buf_printf(e->out, "%s %s %s", arg(e, 0), op, arg(e, 1));
	return converts ? PRINT_PRIMARY : PRINT_LOOSE;
}

static enum print_level print_select(const struct expr *e)
{
	struct kb_type t = e->inst->type;
	const char *c = arg(e, 0), *a = arg(e, 1), *b = arg(e, 2);
	int bytes = lane_bytes(t.scalar, e->index_bits);
	if (t.lanes == 1) {
		buf_printf(e->out, "%s ? %s : %s", c, a, b);
		return PRINT_LOOSE;
	}
	if (bytes == 4)
		buf_printf(e->out, "select(%s, %s, %s)", b, a, c);
	else
		buf_printf(e->out, "select(%s, %s, convert_%s%d(%s))", b, a,
		           bytes == 1   ? "char"
		           : bytes == 2 ? "short"
		                        : "long",
		           t.lanes, c);
	return PRINT_PRIMARY;
}

static void print_reduce(const struct expr *e)
{
	enum kb_bin op = e->inst->bin;
	call_helper(e, op == KB_ADD ? HELPER_SUM : op == KB_MIN ? HELPER_LEAST : HELPER_MOST);
}

/* ---- constants and vectors ---- */

static enum print_level print_int(const struct expr *e)
{
	struct kb_type t = e->inst->type;
	int64_t v = e->inst->imm;
	bool is_wide = t.scalar == KB_I64 || (t.scalar == KB_INDEX && e->index_bits == 64);
	if (v == INT64_MIN)
		buf_str(e->out, "-0x7fffffffffffffffL - 1");
	else if (v == INT32_MIN && !is_wide)
		buf_str(e->out, "-0x7fffffff - 1");
	else
		buf_printf(e->out, "%lld%s", (long long)v, is_wide ? "L" : "");
	return v < 0 ? PRINT_SUM : PRINT_PRIMARY;
}

/* Whole numbers as such, others by their digits of base 16, which are exact. */
static void print_magnitude(struct buf *out, uint32_t bits)
{
	int exponent = (int)(bits >> 23) - 127;
	uint32_t fraction = bits & 0x7fffff, one = exponent < -126 ? 0 : 1;
	float v;
	memcpy(&v, &bits, sizeof v);
	if (v < 65536 && v == (float)(int)v)
		buf_printf(out, "%d.0f", (int)v);
	else
		buf_printf(out, "0x%u.%06xp%df", (unsigned)one, (unsigned)fraction << 1,
		           one ? exponent : -126);
}

/* Infinities and NaN by their bits, which no option of a compiler may take for impossible. */
static enum print_level print_float(struct buf *out, float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	if (!isfinite(v)) {
		buf_printf(out, "as_float(0x%08xu)", (unsigned)bits);
		return PRINT_PRIMARY;
	}
	buf_str(out, bits >> 31 ? "-" : "");
	print_magnitude(out, bits & 0x7fffffff);
	return bits >> 31 ? PRINT_SUM : PRINT_PRIMARY;
}

static void vector_begin(const struct expr *e)
{
	buf_char(e->out, '(');
	type_name(e->out, opencl_scalar(e->inst->type.scalar, e->index_bits), e->inst->type.lanes);
	buf_str(e->out, ")(");
}

static enum print_level print_lane_ids(const struct expr *e)
{
	int lanes = e->inst->type.lanes;
	if (lanes == 1) {
		buf_char(e->out, '0');
		return PRINT_PRIMARY;
	}
	vector_begin(e);
	for (int i = 0; i < lanes; i++)
		buf_printf(e->out, "%s%d", i ? ", " : "", i);
	buf_char(e->out, ')');
	return PRINT_SUM;
}

static enum print_level print_splat(const struct expr *e)
{
	if (e->inst->type.lanes == 1)
		return print_same(e->p, e->inst, 0, e->out);
	vector_begin(e);
	buf_printf(e->out, "%s%s)", e->inst->type.scalar == KB_BOOL ? "-" : "", arg(e, 0));
	return PRINT_SUM;
}

static enum print_level print_lane(const struct expr *e, const char *vector, int lane)
{
	bool is_bool = e->inst->type.scalar == KB_BOOL;
	buf_printf(e->out, is_bool ? "%s.s%x & 1" : "%s.s%x", vector, (unsigned)lane);
	return is_bool ? PRINT_LOOSE : PRINT_PRIMARY;
}

/* Lanes of one vector: v.s0213 */
static void print_swizzle(const struct expr *e)
{
	buf_printf(e->out, "%s.s", arg(e, 0));
	for (int i = 0; i < e->inst->type.lanes; i++)
		buf_printf(e->out, "%x", (unsigned)e->inst->lanes[i]);
}

static enum print_level print_shuffle(const struct expr *e)
{
	int from = print_arg_type(e->p, e->inst, 0).lanes, n = e->inst->type.lanes;
	const int *lanes = e->inst->lanes;
	if (n == 1 && from == 1)
		return print_same(e->p, e->inst, (size_t)lanes[0], e->out);
	if (n == 1)
		return print_lane(e, arg(e, (size_t)(lanes[0] / from)), lanes[0] % from);
	if (e->inst->n_args == 1 && from > 1) {
		print_swizzle(e);
	} else {
		opencl_shuffle_helper(e->p, e->inst, e->out);
		call_args(e);
	}
	return PRINT_PRIMARY;
}

/* ---- one operation ---- */

/* Numbers of groups are size_t. */
static enum print_level group_number(const struct expr *e, const char *function)
{
	buf_printf(e->out, "(idx)%s(0)", function);
	return PRINT_SUM;
}

enum print_level opencl_expression(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const struct expr all = {p, i, out, p->options->index_bits}, *e = &all;
	switch (i->op) {
	case KBO_CONST_INT: return print_int(e);
	case KBO_CONST_FLOAT: return print_float(out, (float)i->fimm);
	case KBO_NULL: buf_char(e->out, '0'); return PRINT_PRIMARY;
	case KBO_LANE_IDS: return print_lane_ids(e);
	case KBO_BIN: return print_bin(e);
	case KBO_UN: return print_un(e);
	case KBO_FMA: call_helper(e, HELPER_FMA); return PRINT_PRIMARY;
	case KBO_CMP: return print_cmp(e);
	case KBO_SELECT: return print_select(e);
	case KBO_SPLAT: return print_splat(e);
	case KBO_LANE: return print_lane(e, arg(e, 0), e->inst->lane);
	case KBO_CVT: return opencl_convert(p, i, out);
	case KBO_BITCAST: return opencl_bitcast(p, i, out);
	case KBO_SHUFFLE: return print_shuffle(e);
	case KBO_REDUCE: print_reduce(e); return PRINT_PRIMARY;
	case KBO_GROUP_ID: return group_number(e, "get_group_id");
	case KBO_GROUP_COUNT: return group_number(e, "get_num_groups");
	case KBO_ITEM_ID: return group_number(e, "get_local_id");
	default: print_fail(p, "this operation in OpenCL C"); return PRINT_PRIMARY;
	}
}
