/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types, constants, operators and compares of OpenCL C. Signed arithmetic that may wrap goes through the unsigned
 * type; indices never wrap by contract and stay readable. min and max are compare and pick, because fmin has
 * another rule for NaN.
 */
#include "backends/print_opencl/internal.h"

#include <math.h>
#include <string.h>

/* ---- types ---- */

const char *opencl_scalar(const struct print *p, enum kb_scalar s)
{
	switch (s) {
	case KB_VOID: return "void";
	case KB_BOOL: return "int";
	case KB_I8: return "char";
	case KB_U8: return "uchar";
	case KB_I16: return "short";
	case KB_I32: return "int";
	case KB_I64: return "long";
	case KB_INDEX: return p->options->index_bits == 64 ? "long" : "int";
	case KB_U16:
	case KB_F16:
	case KB_BF16: return "ushort";
	case KB_F32: return "float";
	case KB_F64: return "double";
	case KB_PTR: return "uchar *";
	}
	return "";
}

const char *opencl_memory_scalar(const struct print *p, enum kb_scalar s)
{
	return s == KB_INDEX ? "long" : opencl_scalar(p, s);
}

const char *opencl_lanes(const struct print *p, const char *name, int lanes)
{
	return lanes > 1 ? arena_printf(p->arena, "%s%d", name, lanes) : name;
}

const char *opencl_type(const struct print *p, enum kb_scalar s, int lanes)
{
	return opencl_lanes(p, opencl_scalar(p, s), lanes);
}

int opencl_lane_bytes(const struct print *p, enum kb_scalar s)
{
	return s == KB_BOOL ? 4 : s == KB_INDEX ? p->options->index_bits / 8 : kb_scalar_bytes(s);
}

const char *opencl_need(struct print *p, const char *block, const char *prefix, struct print_helper h)
{
	const char *type = opencl_type(p, (enum kb_scalar)h.element, h.lanes);
	h.name = arena_printf(p->arena, "%s_%s", prefix, type);
	return print_helper(p, block, &h);
}

/* ---- arithmetic ---- */

static bool is_wrapping(enum kb_scalar s)
{
	return s == KB_I32 || s == KB_I64;
}

static bool is_narrow(enum kb_scalar s)
{
	return kb_scalar_bytes(s) == 1 || kb_scalar_bytes(s) == 2;
}

/* The integer of the same width with a sign, or without. */
static const char *integer_type(struct print *p, struct kb_type t, bool is_signed)
{
	const char *type = opencl_type(p, t.scalar, t.lanes);
	if (is_signed)
		return *type == 'u' ? type + 1 : type;
	return *type == 'u' ? type : arena_printf(p->arena, "u%s", type);
}

/* as_int4(as_uint4(a) + as_uint4(b)); one narrow integer becomes an int first, which no product of two leaves without
 * a sign. */
static enum print_level converted_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *type = opencl_type(p, i->type.scalar, i->type.lanes), *sign = kb_bin_sign(i->bin);
	const char *as = integer_type(p, i->type, i->bin == KB_SAR);
	const char *a = print_arg(p, i, 0), *b = print_arg(p, i, 1);
	if (i->type.lanes > 1 || !is_narrow(i->type.scalar))
		buf_printf(out, "as_%s(as_%s(%s) %s as_%s(%s))", type, as, a, sign, as, b);
	else
		buf_printf(out, "(%s)((%s)as_%s(%s) %s as_%s(%s))", type, i->bin == KB_SAR ? "int" : "uint",
		           as, a, sign, as, b);
	return PRINT_PRIMARY;
}

static bool is_converted(enum kb_bin op, enum kb_scalar s)
{
	bool shifts = op == KB_SHL || op == KB_SHR || (op == KB_SAR && is_narrow(s));
	bool wraps = op == KB_ADD || op == KB_SUB || op == KB_MUL;
	return shifts || (wraps && (is_wrapping(s) || is_narrow(s)));
}

/* a op b; x + (-1) of indices reads better as x - 1 */
static enum print_level plain_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_bin op = i->bin;
	bool is_int = i->type.lanes == 1 && is_narrow(i->type.scalar); /* in C, until it is converted */
	bool is_sum = op == KB_ADD && i->type.scalar == KB_INDEX && i->type.lanes == 1;
	int64_t c;
	if (is_sum && print_const_arg(p, i, 1, &c) && c < 0 && c != INT64_MIN)
		buf_printf(out, "%s - %lld%s", print_arg(p, i, 0), (long long)-c,
		           p->options->index_bits == 64 ? "L" : "");
	else if (is_int)
		buf_printf(out, "(%s)(%s %s %s)", opencl_scalar(p, i->type.scalar), print_arg(p, i, 0),
		           kb_bin_sign(op), print_arg(p, i, 1));
	else
		buf_printf(out, "%s %s %s", print_arg(p, i, 0), kb_bin_sign(op), print_arg(p, i, 1));
	return is_int                                                        ? PRINT_PRIMARY
	       : op == KB_AND || op == KB_OR || op == KB_XOR || op == KB_SAR ? PRINT_LOOSE
	                                                                     : PRINT_SUM;
}

static const char *need_extreme(struct print *p, enum kb_bin op, int lanes)
{
	return opencl_need(p, lanes == 1 ? "extreme of one" : "extreme", op == KB_MIN ? "lesser" : "greater",
	                   (struct print_helper){NULL, KB_F32, lanes, {kb_bin_sign(op)}});
}

enum print_level opencl_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool picks = i->bin == KB_MIN || i->bin == KB_MAX;
	if (picks && i->type.scalar == KB_F32)
		return print_call_text(p, i, 0, need_extreme(p, i->bin, i->type.lanes), out);
	if (picks)
		return print_call_text(p, i, 0, kb_bin_name(i->bin), out);
	return is_converted(i->bin, i->type.scalar) ? converted_bin(p, i, out) : plain_bin(p, i, out);
}

static enum print_level print_not(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = i->type;
	bool is_one = t.scalar == KB_BOOL && t.lanes == 1;
	/* one narrow lane would have become an int */
	if (!is_one && t.lanes == 1 && !is_wrapping(t.scalar))
		buf_printf(out, "(%s)", opencl_scalar(p, t.scalar));
	buf_printf(out, "%s%s", is_one ? "!" : "~", print_arg(p, i, 0));
	return PRINT_SUM;
}

enum print_level opencl_un(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool is_float = i->type.scalar == KB_F32;
	const char *a = print_arg(p, i, 0), *type = opencl_type(p, i->type.scalar, i->type.lanes);
	switch (i->un) {
	case KB_NEG:
		if (is_float)
			buf_printf(out, "-%s", a);
		else
			buf_printf(out, "as_%s(-as_u%s(%s))", type, type, a);
		return is_float ? PRINT_SUM : PRINT_PRIMARY;
	case KB_ABS:
		if (is_float)
			buf_printf(out, "fabs(%s)", a);
		else
			buf_printf(out, "as_%s(abs(%s))", type, a);
		return PRINT_PRIMARY;
	case KB_SQRT:
	case KB_FLOOR:
	case KB_CEIL: buf_printf(out, "%s(%s)", kb_un_name(i->un), a); return PRINT_PRIMARY;
	case KB_NOT: return print_not(p, i, out);
	}
	return PRINT_PRIMARY;
}

enum print_level opencl_fma(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct print_helper h = {NULL, KB_F32, i->type.lanes, {0}};
	return print_call_text(p, i, 0, opencl_need(p, "fma", "fma", h), out);
}

/* Signed bytes: the device's products, lane by lane, where it has them. */
static const char *dots_of_device(struct print *p, const char *type, const char *words, int lanes)
{
	const char *all = "";
	for (int i = 0; i < lanes; i++)
		all = arena_printf(p->arena, "%s%sdot_4x8packed_ss_int(as_uint(a.s%x), as_uint(b.s%x))", all,
		                   i ? ", " : "", (unsigned)i, (unsigned)i);
	return arena_printf(p->arena, "#if TFMC_DOT\n\treturn as_%s(as_%s(sum) + as_%s((%s)(%s)));\n#endif\n",
	                    type, words, words, type, all);
}

/* dot_u8s8_int4(sum, a, b); kb_legalize has written out the others. */
enum print_level opencl_dot(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *type = opencl_type(p, KB_I32, i->type.lanes), *words = integer_type(p, i->type, false);
	struct print_helper h = {
	        NULL, KB_I32, i->type.lanes, {words, i->dot == KB_DOT_U8S8 ? words : type, ""}};
	if (i->dot == KB_DOT_S8S8)
		h.args[2] = dots_of_device(p, type, words, i->type.lanes);
	const char *block = i->dot == KB_DOT_S16S16 ? "dot of halves" : "dot of bytes";
	return print_call_text(p, i, 0, opencl_need(p, block, kb_dot_name(i->dot), h), out);
}

enum print_level opencl_cmp(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = print_arg_type(p, i, 0);
	const char *a = print_arg(p, i, 0), *b = print_arg(p, i, 1), *sign = kb_cmp_sign(i->cmp);
	/* lanes of the mask are as wide as what was compared */
	bool converts = t.lanes > 1 && opencl_lane_bytes(p, t.scalar) != 4;
	if (converts)
		buf_printf(out, "convert_int%d(%s %s %s)", t.lanes, a, sign, b);
	else
		buf_printf(out, "%s %s %s", a, sign, b);
	return converts ? PRINT_PRIMARY : PRINT_LOOSE;
}

/* ---- constants ---- */

enum print_level opencl_const_int(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int64_t v = i->imm;
	bool is_wide = opencl_lane_bytes(p, i->type.scalar) == 8;
	if (i->type.scalar == KB_INDEX && !is_wide && v != (int32_t)v)
		print_fail(p, "an index beyond 32 bits");
	if (v == INT64_MIN)
		buf_str(out, "-0x7fffffffffffffffL - 1");
	else if (v == INT32_MIN && !is_wide)
		buf_str(out, "-0x7fffffff - 1");
	else
		buf_printf(out, "%lld%s", (long long)v, is_wide ? "L" : "");
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
enum print_level opencl_const_float(struct print *p, const struct kb_inst *i, struct buf *out)
{
	uint32_t bits;
	float v = (float)i->fimm;
	(void)p;
	memcpy(&bits, &v, sizeof bits);
	if (!isfinite(v)) {
		buf_printf(out, "as_float(0x%08xu)", (unsigned)bits);
		return PRINT_PRIMARY;
	}
	buf_str(out, bits >> 31 ? "-" : "");
	print_magnitude(out, bits & 0x7fffffff);
	return bits >> 31 ? PRINT_SUM : PRINT_PRIMARY;
}

enum print_level opencl_null(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	buf_char(out, '0');
	return PRINT_PRIMARY;
}

/* Numbers of groups are size_t. */
enum print_level opencl_group_id(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	buf_printf(out, "(idx)%s(0)",
	           i->op == KBO_GROUP_ID      ? "get_group_id"
	           : i->op == KBO_GROUP_COUNT ? "get_num_groups"
	                                      : "get_local_id");
	return PRINT_SUM;
}
