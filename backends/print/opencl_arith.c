/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types, constants, arithmetic, comparisons, conversions and vectors in OpenCL C. Signed arithmetic that may wrap
 * goes through the unsigned type; indices never wrap by contract and are printed plainly. min and max are compare and
 * select, because fmin has another NaN rule. f16 goes through vload_half and vstore_half on a private copy of the
 * bits (core OpenCL C, no extension). Floats saturate into integers, and NaN gives 0 explicitly: the standard leaves
 * it to the device.
 */
#include "backends/print/opencl.h"

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

/* as_int4(as_uint4(a) + as_uint4(b)). Scalar integers below 32 bits are computed as uint, which no product of two
 * overflows. */
static enum print_prec wrapping_bin(struct print *p, const struct kb_inst *i, struct buf *out)
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

/* True if the operator must be computed in the unsigned type (SAR: in the signed one). */
static bool needs_unsigned(enum kb_bin op, enum kb_scalar s)
{
	bool shifts = op == KB_SHL || op == KB_SHR || (op == KB_SAR && is_narrow(s));
	bool wraps = op == KB_ADD || op == KB_SUB || op == KB_MUL;
	return shifts || (wraps && (is_wrapping(s) || is_narrow(s)));
}

/* a op b; index + (-1) is printed as index - 1. */
static enum print_prec plain_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_bin op = i->bin;
	bool is_int = i->type.lanes == 1 && is_narrow(i->type.scalar); /* promoted to int by C */
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
	       : op == KB_AND || op == KB_OR || op == KB_XOR || op == KB_SAR ? PRINT_LOWEST
	                                                                     : PRINT_ADDITIVE;
}

/* Requests the helper of min or max of floats. */
static const char *need_min_max(struct print *p, enum kb_bin op, int lanes)
{
	return opencl_need(p, lanes == 1 ? "min or max, scalar" : "min or max",
	                   op == KB_MIN ? "lesser" : "greater",
	                   (struct print_helper){NULL, KB_F32, lanes, {kb_bin_sign(op)}});
}

enum print_prec opencl_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool picks = i->bin == KB_MIN || i->bin == KB_MAX;
	if (picks && i->type.scalar == KB_F32)
		return print_call_text(p, i, 0, need_min_max(p, i->bin, i->type.lanes), out);
	if (picks)
		return print_call_text(p, i, 0, kb_bin_name(i->bin), out);
	return needs_unsigned(i->bin, i->type.scalar) ? wrapping_bin(p, i, out) : plain_bin(p, i, out);
}

static enum print_prec print_not(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = i->type;
	bool is_one = t.scalar == KB_BOOL && t.lanes == 1;
	/* C promotes narrow scalars to int: convert back */
	if (!is_one && t.lanes == 1 && !is_wrapping(t.scalar))
		buf_printf(out, "(%s)", opencl_scalar(p, t.scalar));
	buf_printf(out, "%s%s", is_one ? "!" : "~", print_arg(p, i, 0));
	return PRINT_ADDITIVE;
}

enum print_prec opencl_un(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool is_float = i->type.scalar == KB_F32;
	const char *a = print_arg(p, i, 0), *type = opencl_type(p, i->type.scalar, i->type.lanes);
	switch (i->un) {
	case KB_NEG:
		if (is_float)
			buf_printf(out, "-%s", a);
		else
			buf_printf(out, "as_%s(-as_u%s(%s))", type, type, a);
		return is_float ? PRINT_ADDITIVE : PRINT_PRIMARY;
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

enum print_prec opencl_fma(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct print_helper h = {NULL, KB_F32, i->type.lanes, {0}};
	return print_call_text(p, i, 0, opencl_need(p, "fma", "fma", h), out);
}

/* The body of a dot_s8s8 helper by the device's instruction (cl_khr_integer_dot_product), one lane after the
 * other. */
static const char *device_dot_body(struct print *p, const char *type, const char *unsigned_type, int lanes)
{
	const char *all = "";
	for (int i = 0; i < lanes; i++)
		all = arena_printf(p->arena, "%s%sdot_4x8packed_ss_int(as_uint(a.s%x), as_uint(b.s%x))", all,
		                   i ? ", " : "", (unsigned)i, (unsigned)i);
	return arena_printf(p->arena, "#if TFMC_DOT\n\treturn as_%s(as_%s(sum) + as_%s((%s)(%s)));\n#endif\n",
	                    type, unsigned_type, unsigned_type, type, all);
}

/* dot_u8s8_int4(acc, a, b); other dot products have been legalized. */
enum print_prec opencl_dot(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *type = opencl_type(p, KB_I32, i->type.lanes),
	           *unsigned_type = integer_type(p, i->type, false);
	struct print_helper h = {NULL,
	                         KB_I32,
	                         i->type.lanes,
	                         {unsigned_type, i->dot == KB_DOT_U8S8 ? unsigned_type : type, ""}};
	if (i->dot == KB_DOT_S8S8)
		h.args[2] = device_dot_body(p, type, unsigned_type, i->type.lanes);
	const char *block = i->dot == KB_DOT_S16S16 ? "dot of i16" : "dot of bytes";
	return print_call_text(p, i, 0, opencl_need(p, block, kb_dot_name(i->dot), h), out);
}

enum print_prec opencl_cmp(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = print_arg_type(p, i, 0);
	const char *a = print_arg(p, i, 0), *b = print_arg(p, i, 1), *sign = kb_cmp_sign(i->cmp);
	/* a comparison gives a mask of lanes as wide as its operands */
	bool converts = t.lanes > 1 && opencl_lane_bytes(p, t.scalar) != 4;
	if (converts)
		buf_printf(out, "convert_int%d(%s %s %s)", t.lanes, a, sign, b);
	else
		buf_printf(out, "%s %s %s", a, sign, b);
	return converts ? PRINT_PRIMARY : PRINT_LOWEST;
}

/* ---- constants ---- */

enum print_prec opencl_const_int(struct print *p, const struct kb_inst *i, struct buf *out)
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
	return v < 0 ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

/* Small integers in decimal, other floats as hexadecimal literals, which are exact. */
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

/* Infinities and NaN are given by their bits: compilers with -cl-finite-math-only may assume that literals are
 * finite. */
enum print_prec opencl_const_float(struct print *p, const struct kb_inst *i, struct buf *out)
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
	return bits >> 31 ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

enum print_prec opencl_null(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	buf_char(out, '0');
	return PRINT_PRIMARY;
}

/* get_group_id etc. return size_t. */
enum print_prec opencl_group_id(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	buf_printf(out, "(idx)%s(0)",
	           i->op == KBO_GROUP_ID      ? "get_group_id"
	           : i->op == KBO_GROUP_COUNT ? "get_num_groups"
	                                      : "get_local_id");
	return PRINT_ADDITIVE;
}

/* ---- conversions ---- */

/* Operand 0 as a number: vectors of bools as 0 and 1. Not `mask & 1`, which becomes a zext of a vector of i1, which
 * Oclgrind computes wrongly. */
static void print_number(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	if (print_arg_type(p, i, 0).scalar == KB_BOOL && lanes > 1)
		buf_printf(out, "select((int%d)(0), (int%d)(1), %s)", lanes, lanes, print_arg(p, i, 0));
	else
		buf_str(out, print_bare_arg(p, i, 0));
}

static const char *need_f16(struct print *p, bool is_to, int lanes)
{
	struct print_helper h = {NULL, KB_F32, lanes, {opencl_type(p, is_to ? KB_F16 : KB_F32, lanes)}};
	if (is_to)
		return opencl_need(p, "f16 from bits", "f16_to", h);
	h.name = arena_printf(p->arena, "f16_of_%s", opencl_type(p, KB_F32, lanes));
	h.element = KB_F16;
	return print_helper(p, "f16 to bits", &h);
}

static const char *need_int(struct print *p, enum kb_scalar to, int lanes)
{
	const char *mask = to == KB_U8 ? "char" : opencl_scalar(p, to);
	const char *nan = strcmp(mask, "int") == 0 ? "isnan(x)"
	                                           : arena_printf(p->arena, "convert_%s(isnan(x))",
	                                                          opencl_lanes(p, mask, lanes));
	struct print_helper h = {NULL, to, lanes, {opencl_type(p, KB_F32, lanes), nan}};
	return opencl_need(p, lanes == 1 ? "float to integer, scalar" : "float to integer", "trunc", h);
}

enum print_prec opencl_cvt(struct print *p, const struct kb_inst *i, struct buf *out)
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
		return print_forwarded_arg(p, i, 0, out);
	} else {
		print_number(p, i, out);
	}
	return PRINT_PRIMARY;
}

/* A bitcast from or to KB_INDEX is one of i64 by contract, whatever the width of idx: it converts the value. */
enum print_prec opencl_bitcast(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_scalar from = print_arg_type(p, i, 0).scalar, to = i->type.scalar;
	const char *type = opencl_type(p, to, i->type.lanes), *how = "as";
	if (strcmp(type, opencl_type(p, from, i->type.lanes)) == 0)
		return print_forwarded_arg(p, i, 0, out);
	if (from == KB_INDEX || to == KB_INDEX)
		how = "convert";
	return print_call_text(p, i, 0, arena_printf(p->arena, "%s_%s", how, type), out);
}

/* ---- lanes ---- */

/* "(int4)(" */
static void vector_begin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "(%s)(", opencl_type(p, i->type.scalar, i->type.lanes));
}

enum print_prec opencl_lane_ids(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (i->type.lanes == 1) {
		buf_char(out, '0');
		return PRINT_PRIMARY;
	}
	vector_begin(p, i, out);
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, "%s%d", k ? ", " : "", k);
	buf_char(out, ')');
	return PRINT_ADDITIVE;
}

enum print_prec opencl_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (i->type.lanes == 1)
		return print_forwarded_arg(p, i, 0, out);
	vector_begin(p, i, out);
	buf_printf(out, "%s%s)", i->type.scalar == KB_BOOL ? "-" : "", print_arg(p, i, 0));
	return PRINT_ADDITIVE;
}

enum print_prec opencl_select(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *c = print_arg(p, i, 0), *a = print_arg(p, i, 1), *b = print_arg(p, i, 2);
	int bytes = opencl_lane_bytes(p, i->type.scalar);
	if (i->type.lanes == 1) {
		buf_printf(out, "%s ? %s : %s", c, a, b);
		return PRINT_LOWEST;
	}
	if (bytes == 4)
		buf_printf(out, "select(%s, %s, %s)", b, a, c);
	else
		buf_printf(out, "select(%s, %s, convert_%s%d(%s))", b, a,
		           bytes == 1   ? "char"
		           : bytes == 2 ? "short"
		                        : "long",
		           i->type.lanes, c);
	return PRINT_PRIMARY;
}

/* ---- shuffles ---- */

static enum print_prec lane(const struct kb_inst *i, const char *vector, int number, struct buf *out)
{
	bool is_bool = i->type.scalar == KB_BOOL;
	buf_printf(out, is_bool ? "%s.s%x & 1" : "%s.s%x", vector, (unsigned)number);
	return is_bool ? PRINT_LOWEST : PRINT_PRIMARY;
}

enum print_prec opencl_lane(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return lane(i, print_arg(p, i, 0), i->lane, out);
}

/* Requests the helper of a shuffle: shuffle_float4_0819 of two vectors, permute_float4_1032 of one; the lanes in
 * base 32, numbered through a and b. */
static const char *need_shuffle(struct print *p, const struct kb_inst *i, int from)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
	bool is_bool = i->type.scalar == KB_BOOL, is_two = i->n_args > 1;
	const char *type = opencl_type(p, i->type.scalar, from);
	const char *name = arena_printf(p->arena, "%s%s%s_", is_two ? "shuffle_" : "permute_",
	                                is_bool ? "bool_" : "", type);
	const char *lanes = "";
	for (int k = 0; k < i->type.lanes; k++) {
		char which = i->lanes[k] < from ? 'a' : 'b';
		name = arena_printf(p->arena, "%s%c", name, digits[i->lanes[k] & 31]);
		lanes = arena_printf(p->arena, "%s%s%s%c", lanes, k ? ", " : "",
		                     from == 1 && is_bool ? "-" : "", which);
		if (from > 1)
			lanes = arena_printf(p->arena, "%s.s%x", lanes, (unsigned)(i->lanes[k] % from));
	}
	const char *params = arena_printf(p->arena, is_two ? "%s a, %s b" : "%s a", type, type);
	return print_helper(p, "shuffle",
	                    &(struct print_helper){name, i->type.scalar, i->type.lanes, {params, lanes}});
}

enum print_prec opencl_shuffle(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int from = print_arg_type(p, i, 0).lanes, n = i->type.lanes;
	if (n == 1 && from == 1)
		return print_forwarded_arg(p, i, (size_t)i->lanes[0], out);
	if (n == 1)
		return lane(i, print_arg(p, i, (size_t)(i->lanes[0] / from)), i->lanes[0] % from, out);
	if (i->n_args > 1 || from == 1)
		return print_call_text(p, i, 0, need_shuffle(p, i, from), out);
	buf_printf(out, "%s.s", print_arg(p, i, 0));
	for (int k = 0; k < n; k++)
		buf_printf(out, "%x", (unsigned)i->lanes[k]);
	return PRINT_PRIMARY;
}

enum print_prec opencl_lookup16(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return print_call_text(p, i, 0, "shuffle", out);
}

/* ---- reductions ---- */

/* The expression x op y of `lanes` lanes, in a reduce helper. */
static const char *combine(struct print *p, enum kb_bin op, enum kb_scalar s, int lanes)
{
	const char *sign = kb_bin_sign(op), *type = opencl_type(p, s, lanes);
	if (op == KB_ADD && s == KB_F32)
		return "x + y";
	if (op == KB_ADD)
		return arena_printf(p->arena, "as_%s(as_u%s(x) + as_u%s(y))", type, type, type);
	if (s != KB_F32)
		return op == KB_MIN ? "min(x, y)" : "max(x, y)";
	return arena_printf(p->arena, lanes == 1 ? "x %s y ? x : y" : "select(y, x, x %s y)", sign);
}

static const char *need_reduce(struct print *p, enum kb_bin op, enum kb_scalar s, int lanes)
{
	int half = lanes / 2;
	const char *next = half > 1 ? arena_printf(p->arena, "%s(", need_reduce(p, op, s, half)) : "";
	return opencl_need(p, "reduce",
	                   op == KB_ADD   ? "sum"
	                   : op == KB_MIN ? "least"
	                                  : "most",
	                   (struct print_helper){NULL,
	                                         s,
	                                         lanes,
	                                         {opencl_type(p, s, half), combine(p, op, s, half), next,
	                                          half > 1 ? ")" : ""}});
}

enum print_prec opencl_reduce(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = print_arg_type(p, i, 0).lanes;
	return print_call_text(p, i, 0, need_reduce(p, i->bin, i->type.scalar, lanes), out);
}
