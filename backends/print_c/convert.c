/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions in portable C. Small floats are integer code that gives the bits
 * of the kernel interpreter on every machine: round to nearest even, NaN quiet.
 * f64 goes to them through f32 rounded to odd, so that there is one rounding.
 * Helpers for one lane and for vectors come from the same text.
 */
#include "backends/print_c/internal.h"

#include <string.h>

/* ---- text of helpers ---- */

/*
 * Writes `text` for a number of lanes: $F $D $U $I $L $H are the types of f32, f64, u32, i32, i64, u16, $N
 * what ends the helper's name behind its element ("x8").
 */
static void expand(struct print *p, const char *text, int lanes)
{
	for (const char *s = text; *s; s++) {
		if (*s != '$') {
			buf_char(&p->helpers, *s);
			continue;
		}
		s++;
		if (*s == 'N' && lanes > 1)
			buf_printf(&p->helpers, "x%d", lanes);
		if (*s != 'N')
			buf_str(&p->helpers, c_type(p,
			                            *s == 'F'   ? C_F32
			                            : *s == 'D' ? C_F64
			                            : *s == 'U' ? C_U32
			                            : *s == 'I' ? C_I32
			                            : *s == 'L' ? C_I64
			                                        : C_U16,
			                            lanes));
	}
}

struct pair {
	const char *name, *one, *many; /* without its lanes; for one lane; for vectors */
};

/* Bits and values of f32; a choice by a condition (one lane) or a mask; 16 bits to 32 and back. */
static const struct pair basics[] = {
        {"bits_f32",
         C_INLINE "uint32_t bits_f32(float x)\n{\n\tuint32_t bits;\n\t__builtin_memcpy(&bits, &x, 4);\n"
                  "\treturn bits;\n}\n",
         C_INLINE "$U bits_f32$N($F x)\n{\n\treturn ($U)x;\n}\n"},
        {"float_u32",
         C_INLINE "float float_u32(uint32_t bits)\n{\n\tfloat x;\n\t__builtin_memcpy(&x, &bits, 4);\n"
                  "\treturn x;\n}\n",
         C_INLINE "$F float_u32$N($U bits)\n{\n\treturn ($F)bits;\n}\n"},
        {"choose_u32",
         C_INLINE "uint32_t choose_u32(bool is, uint32_t a, uint32_t b)\n{\n\treturn is ? a : b;\n}\n",
         C_INLINE "$U choose_u32$N($I is, $U a, $U b)\n{\n\treturn (($U)is & a) | (~($U)is & b);\n}\n"},
        {"widen_u16", C_INLINE "uint32_t widen_u16(uint16_t x)\n{\n\treturn x;\n}\n",
         C_INLINE "$U widen_u16$N($H x)\n{\n\treturn __builtin_convertvector(x, $U);\n}\n"},
        {"narrow_u32", C_INLINE "uint16_t narrow_u32(uint32_t x)\n{\n\treturn (uint16_t)x;\n}\n",
         C_INLINE "$H narrow_u32$N($U x)\n{\n\treturn __builtin_convertvector(x, $H);\n}\n"},
};

static void need_basics(struct print *p, int lanes)
{
	for (size_t i = 0; i < TFMC_COUNT(basics); i++) {
		const char *name =
		        lanes > 1 ? arena_printf(p->arena, "%sx%d", basics[i].name, lanes) : basics[i].name;
		if (print_need(p, name))
			expand(p, lanes > 1 ? basics[i].many : basics[i].one, lanes);
	}
}

/* Exponent and fraction move to their f32 places; times 2^112 is exact, denormals included. */
static const char f16_to_f32[] = C_INLINE
        "$F f16_to_f32$N($H x)\n{\n\tconst $U wide = widen_u16$N(x);\n"
        "\tconst $U sign = (wide & 0x8000u) << 16;\n\tconst $U rest = (wide & 0x7fffu) << 13;\n"
        "\tconst $U finite = bits_f32$N(float_u32$N(rest) * 0x1p112f);\n"
        "\treturn float_u32$N(sign | choose_u32$N(rest >= 0x0f800000u, rest | 0x7f800000u, finite));\n}\n";

static const char bf16_to_f32[] =
        C_INLINE "$F bf16_to_f32$N($H x)\n{\n\treturn float_u32$N(widen_u16$N(x) << 16);\n}\n";

/* Half of the last kept bit is added, minus one when that bit is even. */
static const char f32_to_bf16[] =
        C_INLINE "$H f32_to_bf16$N($F x)\n{\n\tconst $U bits = bits_f32$N(x), high = bits >> 16;\n"
                 "\tconst $U rounded = (bits + (high & 1u) + 0x7fffu) >> 16;\n"
                 "\treturn narrow_u32$N(choose_u32$N((bits & 0x7fffffffu) > 0x7f800000u, high | 0x40u, "
                 "rounded));\n}\n";

/* Magnitudes below 2^-14 round in a sum whose last bit is the last bit of a denormal f16. */
static const char f32_to_f16[] =
        C_INLINE "$H f32_to_f16$N($F x)\n{\n\tconst $U bits = bits_f32$N(x);\n"
                 "\tconst $U sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;\n"
                 "\tconst $U normal = (magnitude - 0x37fff001u + ((magnitude >> 13) & 1u)) >> 13;\n"
                 "\tconst $U small = bits_f32$N(float_u32$N(magnitude) + 0.5f) - 0x3f000000u;\n"
                 "\tconst $U finite = choose_u32$N(magnitude < 0x38800000u, small, normal);\n"
                 "\tconst $U quiet = choose_u32$N(magnitude > 0x7f800000u, (magnitude & 0u) + 0x7e00u, "
                 "(magnitude & 0u) + 0x7c00u);\n"
                 "\treturn narrow_u32$N(sign | choose_u32$N(magnitude >= 0x47800000u, quiet, finite));\n}\n";

/* Toward zero, and the last bit set when anything was lost. */
static const struct pair odd = {
        "odd_f32",
        C_INLINE "float odd_f32(double x)\n{\n\tconst float near = (float)x;\n\tconst double back = near;\n"
                 "\tconst bool away = __builtin_fabs(back) > __builtin_fabs(x);\n"
                 "\treturn float_u32((bits_f32(near) - away) | (back < x || back > x));\n}\n",
        C_INLINE "$F odd_f32$N($D x)\n{\n\tconst $F near = __builtin_convertvector(x, $F);\n"
                 "\tconst $D back = __builtin_convertvector(near, $D);\n"
                 "\tconst $L away = ($L)(($D)(($L)back & INT64_MAX) > ($D)(($L)x & INT64_MAX));\n"
                 "\tconst $L lost = ($L)(back < x) | ($L)(back > x);\n"
                 "\tconst $U toward = bits_f32$N(near) + ($U)__builtin_convertvector(away, $I);\n"
                 "\treturn float_u32$N(toward | (($U)__builtin_convertvector(lost, $I) & 1u));\n}\n"};

/* ---- choosing ---- */

static const char *need(struct print *p, const char *name, const char *text, int lanes)
{
	const char *full = lanes > 1 ? arena_printf(p->arena, "%sx%d", name, lanes) : name;
	if (strmap_has(&p->needed, full))
		return full;
	need_basics(p, lanes);
	(void)print_need(p, full);
	expand(p, text, lanes);
	return full;
}

static const char *need_odd(struct print *p, int lanes)
{
	return need(p, odd.name, lanes > 1 ? odd.many : odd.one, lanes);
}

/* "((float)x)" or "__builtin_convertvector(x, f32x8)" */
static const char *cast(struct print *p, const char *text, enum c_element to, int lanes)
{
	const char *type = c_type(p, to, lanes);
	return lanes > 1 ? arena_printf(p->arena, "__builtin_convertvector(%s, %s)", text, type)
	                 : arena_printf(p->arena, "((%s)%s)", type, text);
}

static const char *call(struct print *p, const char *name, const char *text)
{
	return arena_printf(p->arena, "%s(%s)", name, text);
}

static const char *to_f32(struct print *p, const char *text, enum kb_scalar from, int lanes)
{
	if (from == KB_F16)
		return call(p, need(p, "f16_to_f32", f16_to_f32, lanes), text);
	if (from == KB_BF16)
		return call(p, need(p, "bf16_to_f32", bf16_to_f32, lanes), text);
	return from == KB_F32 ? text : cast(p, text, C_F32, lanes);
}

static const char *float_to_float(struct print *p, const char *text, enum kb_scalar from, struct kb_type to)
{
	if (to.scalar == KB_F32)
		return to_f32(p, text, from, to.lanes);
	if (to.scalar == KB_F64)
		return cast(p, to_f32(p, text, from, to.lanes), C_F64, to.lanes);
	const char *single =
	        from == KB_F64 ? call(p, need_odd(p, to.lanes), text) : to_f32(p, text, from, to.lanes);
	if (to.scalar == KB_BF16)
		return call(p, need(p, "f32_to_bf16", f32_to_bf16, to.lanes), single);
	return call(p, need(p, "f32_to_f16", f32_to_f16, to.lanes), single);
}

/* ---- float to integer ---- */

struct limits {
	const char *lo, *hi;         /* as floats: outside of them is saturated */
	const char *least, *largest; /* as integers */
};

static struct limits limits_of(enum c_element e, bool wide)
{
	switch (e) {
	case C_I8: return (struct limits){"-128.0", "127.0", "INT8_MIN", "INT8_MAX"};
	case C_U8: return (struct limits){"0.0", "255.0", "0", "UINT8_MAX"};
	case C_I16: return (struct limits){"-32768.0", "32767.0", "INT16_MIN", "INT16_MAX"};
	case C_I32:
		return (struct limits){"-2147483648.0", wide ? "2147483647.0" : "2147483648.0", "INT32_MIN",
		                       "INT32_MAX"};
	default: return (struct limits){"-0x1p63", "0x1p63", "INT64_MIN", "INT64_MAX"};
	}
}

static void saturating_one(struct print *p, const char *name, enum c_element from, enum c_element to)
{
	struct limits l = limits_of(to, from == C_F64);
	const char *f = from == C_F32 ? "f" : "", *type = c_element_scalar(to);
	struct buf *out = &p->helpers;
	buf_printf(out, C_INLINE "%s %s(%s x)\n{\n", type, name, c_element_scalar(from));
	buf_printf(out, "\tif (!(x > %s%s))\n\t\treturn x != x ? 0 : %s;\n", l.lo, f, l.least);
	buf_printf(out, "\treturn x >= %s%s ? %s : (%s)x;\n}\n", l.hi, f, l.largest, type);
}

/* Lanes inside of the limits are converted, the others are 0 before and get their limit after. */
static void saturating_many(struct print *p, const char *name, enum c_element from, enum c_element to,
                            int lanes)
{
	struct limits l = limits_of(to, from == C_F64);
	const char *f = from == C_F32 ? "f" : "", *x = c_type(p, from, lanes),
	           *m = c_type(p, c_signed(from), lanes);
	const char *r = c_type(p, to, lanes);
	struct buf *out = &p->helpers;
	buf_printf(out, C_INLINE "%s %s(%s x)\n{\n", r, name, x);
	buf_printf(out, "\tconst %s low = (%s)(x <= %s%s), high = (%s)(x >= %s%s);\n", m, m, l.lo, f, m, l.hi,
	           f);
	buf_printf(out, "\tconst %s inside = ~(low | high) & (%s)(x == x);\n", m, m);
	buf_printf(out, "\tconst %s y = __builtin_convertvector((%s)((%s)x & inside), %s);\n", r, x, m, r);
	buf_printf(out, "\tconst %s least = ", r);
	c_fill(out, l.least, lanes);
	buf_printf(out, ", largest = ");
	c_fill(out, l.largest, lanes);
	buf_printf(out,
	           ";\n\treturn y | (__builtin_convertvector(low, %s) & least) | "
	           "(__builtin_convertvector(high, %s) & "
	           "largest);\n}\n",
	           r, r);
}

static const char *float_to_int(struct print *p, const char *text, enum kb_scalar from, struct kb_type to)
{
	enum c_element e = c_element_of(to.scalar, to.lanes), f = from == KB_F64 ? C_F64 : C_F32;
	const char *x = from == KB_F64 ? text : to_f32(p, text, from, to.lanes);
	const char *name = arena_printf(p->arena, "%s_to_%s", c_element_name(f), c_suffix(p, e, to.lanes));
	if (print_need(p, name)) {
		if (to.lanes > 1)
			saturating_many(p, name, f, e, to.lanes);
		else
			saturating_one(p, name, f, e);
	}
	return call(p, name, x);
}

/* ---- integers ---- */

static const char *int_to_float(struct print *p, const char *text, enum kb_scalar from, struct kb_type to)
{
	bool wide = from == KB_I32 || from == KB_I64 || from == KB_INDEX;
	bool direct = to.scalar == KB_F32 || to.scalar == KB_F64;
	enum kb_scalar via = direct ? to.scalar : wide ? KB_F64 : KB_F32;
	const char *x = cast(p, text, via == KB_F64 ? C_F64 : C_F32, to.lanes);
	return direct ? x : float_to_float(p, x, via, to);
}

void c_convert(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type from = print_arg_type(p, i, 0), to = i->type;
	const char *text = print_arg(p, i, 0);
	if (from.scalar == KB_BOOL && from.lanes > 1)
		text = arena_printf(p->arena, "(%s & 1)", text);
	if (kb_is_float(from.scalar) && kb_is_float(to.scalar))
		buf_str(out, float_to_float(p, text, from.scalar, to));
	else if (kb_is_float(from.scalar))
		buf_str(out, float_to_int(p, text, from.scalar, to));
	else if (kb_is_float(to.scalar))
		buf_str(out, int_to_float(p, text, from.scalar, to));
	else if (c_element_of(from.scalar, from.lanes) == c_element_of(to.scalar, to.lanes))
		buf_str(out, text);
	else
		buf_str(out, cast(p, text, c_element_of(to.scalar, to.lanes), to.lanes));
}

/* ---- bits ---- */

void c_bitcast(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	enum c_element from = c_element_of(print_arg_type(p, i, 0).scalar, lanes),
	               to = c_element_of(i->type.scalar, lanes);
	if (from == to) {
		buf_str(out, print_arg(p, i, 0));
	} else if (lanes > 1 || (!c_is_float(from) && !c_is_float(to))) {
		buf_printf(out, "((%s)%s)", c_type(p, to, lanes), print_arg(p, i, 0));
	} else {
		const char *name =
		        arena_printf(p->arena, "%s_bits_%s", c_element_name(from), c_element_name(to));
		if (print_need(p, name))
			buf_printf(
			        &p->helpers,
			        C_INLINE
			        "%s %s(%s x)\n{\n\t%s y;\n\t__builtin_memcpy(&y, &x, %d);\n\treturn y;\n}\n",
			        c_element_scalar(to), name, c_element_scalar(from), c_element_scalar(to),
			        c_bits(to) / 8);
		buf_printf(out, "%s(", name);
		print_bare_arg(p, i, 0, out);
		buf_char(out, ')');
	}
}
