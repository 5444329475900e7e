/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants, operators and compares in portable C. Integers that may wrap are
 * computed as unsigned and converted back, which gcc and clang define; an
 * expression that goes on as unsigned leaves the conversion out.
 */
#include "backends/print_c/internal.h"

#include <math.h>

#include "ir/support/number.h"

/* ---- constants ---- */

static enum print_level int_text(enum kb_scalar s, int64_t v, struct buf *out)
{
	bool wide = v > INT32_MAX || v < -(int64_t)INT32_MAX;
	if (s == KB_BOOL)
		buf_str(out, v ? "true" : "false");
	else if (s == KB_I32 && v == INT32_MIN)
		buf_str(out, "-2147483647 - 1");
	else if (v == INT64_MIN)
		buf_str(out, "-INT64_C(9223372036854775807) - 1");
	else if (wide)
		buf_printf(out, v < 0 ? "-INT64_C(%llu)" : "INT64_C(%llu)",
		           v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v);
	else
		buf_printf(out, "%lld", (long long)v);
	return s != KB_BOOL && v < 0 ? PRINT_SUM : PRINT_PRIMARY;
}

static enum print_level float_text(enum kb_scalar s, double v, struct buf *out)
{
	char text[NUMBER_TEXT_MAX];
	const char *f = s == KB_F32 ? "f" : "";
	if (isnan(v)) {
		buf_printf(out, "__builtin_nan%s(\"\")", f);
		return PRINT_PRIMARY;
	}
	if (isinf(v)) {
		buf_printf(out, v < 0 ? "-__builtin_inf%s()" : "__builtin_inf%s()", f);
		return v < 0 ? PRINT_SUM : PRINT_PRIMARY;
	}
	if (s == KB_F32)
		number_print_f32(text, (float)v);
	else
		number_print_f64(text, v);
	buf_printf(out, "%s%s", text, f);
	return signbit(v) ? PRINT_SUM : PRINT_PRIMARY;
}

enum print_level c_const_int(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	bool is_float = i->type.scalar == KB_F32 || i->type.scalar == KB_F64;
	return is_float ? float_text(i->type.scalar, 0, out) : int_text(i->type.scalar, i->imm, out);
}

enum print_level c_const_float(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	return float_text(i->type.scalar, i->fimm, out);
}

enum print_level c_null(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	buf_str(out, "(char *)0");
	return PRINT_PRIMARY;
}

enum print_level c_lane_ids(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (i->type.lanes == 1) {
		buf_char(out, '0');
		return PRINT_PRIMARY;
	}
	buf_printf(out, "(%s)", c_type(p, C_I32, i->type.lanes));
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, "%s%d", k ? ", " : "{", k);
	buf_char(out, '}');
	return PRINT_PRIMARY;
}

/* ---- integers ---- */

/* Operand k; true when its type is the unsigned one. */
static bool unsigned_operand(struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	const struct print_value *v = print_arg_value(p, i, k);
	bool wide = c_bits(c_element_of(i->type.scalar, 1)) == 64;
	int64_t c;
	if (v->inner)
		buf_printf(out, "(%s)", v->inner);
	else if (print_const_arg(p, i, k, &c) && c >= 0)
		buf_printf(out, wide ? "%lldull" : "%lldu", (long long)c);
	else
		buf_str(out, print_arg(p, i, k));
	return v->inner || (print_const_arg(p, i, k, &c) && c >= 0);
}

/* The number of bits to shift by. */
static void shift_count(const struct print *p, const struct kb_inst *i, int bits, struct buf *out)
{
	int64_t c;
	if (print_const_arg(p, i, 1, &c))
		buf_printf(out, "%lld", (long long)(c & (bits - 1)));
	else
		buf_printf(out, "(%s & %d)", print_arg(p, i, 1), bits - 1);
}

/* a + b, a - b, a * b of words, and shifts but SAR: in the unsigned type. */
static enum print_level wrapping(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct buf a, b, both;
	enum c_element e = c_element_of(i->type.scalar, 1);
	bool is_shift = i->bin == KB_SHL || i->bin == KB_SHR, done = false;
	buf_init(&a);
	buf_init(&b);
	buf_init(&both);
	if (i->bin == KB_SHR)
		buf_str(&a, print_arg(p, i, 0));
	else
		done = unsigned_operand(p, i, 0, &a);
	if (is_shift)
		shift_count(p, i, c_bits(e), &b);
	else
		done |= unsigned_operand(p, i, 1, &b);
	if (!done)
		buf_printf(&both, "(%s)", c_element_scalar(c_unsigned(e)));
	buf_printf(&both, "%s %s %s", a.data, kb_bin_sign(i->bin), b.data);
	enum print_level level = print_converted(p, i, c_element_scalar(e), both.data,
	                                         is_shift ? PRINT_LOOSE : PRINT_SUM, out);
	out->failed |= a.failed || b.failed || both.failed;
	buf_destroy(&a);
	buf_destroy(&b);
	buf_destroy(&both);
	return level;
}

static enum print_level shift_arithmetic(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, 1);
	buf_printf(out, "(%s)%s >> ", c_element_scalar(e), print_arg(p, i, 0));
	shift_count(p, i, c_bits(e), out);
	return PRINT_LOOSE;
}

static void vector_int(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	const char *type = c_type(p, e, i->type.lanes), *op = kb_bin_sign(i->bin);
	bool is_signed = i->bin == KB_DIV || i->bin == KB_REM || i->bin == KB_SAR; /* U8, U16: only SAR */
	bool is_shift = i->bin == KB_SHL || i->bin == KB_SHR || i->bin == KB_SAR;
	const char *u = c_type(p, is_signed ? c_signed(e) : c_unsigned(e), i->type.lanes);
	if (is_shift)
		buf_printf(out, "(%s)((%s)%s %s ((%s)%s & %d))", type, u, print_arg(p, i, 0), op, u,
		           print_arg(p, i, 1), c_bits(e) - 1);
	else
		buf_printf(out, "(%s)((%s)%s %s (%s)%s)", type, u, print_arg(p, i, 0), op, u,
		           print_arg(p, i, 1));
}

/* a op b */
static enum print_level plain(struct print *p, const struct kb_inst *i, const char *sign, struct buf *out)
{
	bool is_bits = i->op != KBO_BIN || i->bin == KB_AND || i->bin == KB_OR || i->bin == KB_XOR;
	buf_printf(out, "%s %s %s", print_arg(p, i, 0), sign, print_arg(p, i, 1));
	return is_bits ? PRINT_LOOSE : PRINT_SUM;
}

/* Narrow integers are int in expressions: the result goes back. */
static const char *narrow_cast(struct print *p, struct kb_type t)
{
	enum c_element e = c_element_of(t.scalar, t.lanes);
	if (t.lanes > 1 || e == C_BOOL || c_bits(e) >= 32)
		return "";
	return arena_printf(p->arena, "(%s)", c_element_scalar(e));
}

/* One narrow integer is an int in expressions: no sum or product of two leaves 32 bits without a sign. */
static enum print_level narrow(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, 1);
	bool is_shift = i->bin == KB_SHL || i->bin == KB_SHR || i->bin == KB_SAR;
	enum c_element as = i->bin == KB_SHR ? c_unsigned(e) : i->bin == KB_SAR ? c_signed(e) : C_U32;
	buf_printf(out, "(%s)((%s)%s %s ", c_element_scalar(e), c_element_scalar(as), print_arg(p, i, 0),
	           kb_bin_sign(i->bin));
	if (is_shift)
		shift_count(p, i, c_bits(e), out);
	else
		buf_printf(out, "(uint32_t)%s", print_arg(p, i, 1));
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

enum print_level c_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_bin op = i->bin;
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	const char *cast = narrow_cast(p, i->type);
	bool bits = op == KB_AND || op == KB_OR || op == KB_XOR;
	if (e == C_BOOL)
		return plain(p, i, op == KB_AND ? "&&" : op == KB_OR ? "||" : "!=", out);
	if (op == KB_MIN || op == KB_MAX) {
		return print_call_text(p, i, 0, c_need_extreme(p, op, e, i->type.lanes), out);
	}
	if (bits && *cast) {
		buf_printf(out, "%s(%s %s %s)", cast, print_arg(p, i, 0), kb_bin_sign(op),
		           print_arg(p, i, 1));
		return PRINT_PRIMARY;
	}
	if (c_is_float(e) || bits)
		return plain(p, i, kb_bin_sign(op), out);
	if (i->type.lanes > 1) {
		vector_int(p, i, out);
		return PRINT_PRIMARY;
	}
	if (*cast)
		return narrow(p, i, out);
	if (op == KB_DIV || op == KB_REM)
		return plain(p, i, kb_bin_sign(op), out);
	return op == KB_SAR ? shift_arithmetic(p, i, out) : wrapping(p, i, out);
}

/* a op b ? a : b */
const char *c_need_extreme(struct print *p, enum kb_bin op, enum c_element e, int lanes)
{
	const char *name = arena_printf(p->arena, "%s_%s", kb_bin_name(op), c_suffix(p, e, lanes));
	const char *select = lanes > 1 ? c_need_select(p, e, lanes) : "";
	struct print_helper h = {name, e, lanes, {kb_bin_sign(op), select}};
	return print_helper(p,
	                    lanes == 1        ? "extreme of one"
	                    : c_bits(e) == 32 ? "extreme of 32 bits"
	                                      : "extreme",
	                    &h);
}

/* ---- one operand ---- */

static const char *need_rounding(struct print *p, const struct print_helper *h, bool up)
{
	bool single = h->element == C_F32;
	struct print_helper all = *h;
	all.args[0] = up ? "ceil" : "floor";
	all.args[1] = up ? "<" : ">";
	all.args[2] = up ? "+" : "-";
	all.args[3] = up ? "-" : "+";
	all.args[4] = single ? "8388608.0f" : "4503599627370496.0";
	all.args[5] = single ? "INT32_MIN" : "INT64_MIN";
	return print_helper(p, h->lanes == 1 ? "rounding of one" : "rounding", &all);
}

static const char *need_sqrt(struct print *p, const struct print_helper *h)
{
	bool single = h->element == C_F32;
	const char *one = arena_printf(p->arena, "sqrt_%s", c_element_name(h->element));
	struct print_helper of_one = {
	        one, h->element, 1, {single ? "s" : "d", c_type(p, h->element, single ? 4 : 2)}};
	(void)print_helper(p, "sqrt of one", &of_one);
	struct print_helper all = {h->name, h->element, h->lanes, {one}};
	return print_helper(p, "sqrt", &all);
}

static const char *need_abs(struct print *p, const struct print_helper *h)
{
	struct print_helper all = *h;
	if (!c_is_float(h->element))
		return print_helper(p, h->lanes == 1 ? "abs of one" : "abs", h);
	all.args[0] = h->element == C_F32 ? "INT32_MAX" : "INT64_MAX";
	return print_helper(p, h->lanes == 1 ? "abs of one float" : "abs of floats", &all);
}

static enum print_level negated(struct print *p, const struct kb_inst *i, enum c_element e, struct buf *out)
{
	if (c_is_float(e)) {
		buf_printf(out, "-%s", print_arg(p, i, 0));
		return PRINT_SUM;
	}
	const char *unsigned_type = c_type(p, c_unsigned(e), i->type.lanes);
	const char *inner = arena_printf(p->arena, "0 - (%s)%s", unsigned_type, print_arg(p, i, 0));
	if (i->type.lanes == 1)
		return print_converted(p, i, c_element_scalar(e), inner, PRINT_SUM, out);
	buf_printf(out, "(%s)(%s)", c_type(p, e, i->type.lanes), inner);
	return PRINT_PRIMARY;
}

static enum print_level inverted(struct print *p, const struct kb_inst *i, enum c_element e, struct buf *out)
{
	const char *cast = narrow_cast(p, i->type);
	buf_printf(out, *cast ? "%s(%s%s)" : "%s%s%s", cast, e == C_BOOL ? "!" : "~", print_arg(p, i, 0));
	return *cast ? PRINT_PRIMARY : PRINT_SUM;
}

enum print_level c_un(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	struct print_helper h = {.element = e, .lanes = i->type.lanes};
	h.name = arena_printf(p->arena, "%s_%s", kb_un_name(i->un), c_suffix(p, e, h.lanes));
	switch (i->un) {
	case KB_NEG: return negated(p, i, e, out);
	case KB_NOT: return inverted(p, i, e, out);
	case KB_ABS: return print_call_text(p, i, 0, need_abs(p, &h), out);
	case KB_SQRT: return print_call_text(p, i, 0, need_sqrt(p, &h), out);
	case KB_FLOOR:
	case KB_CEIL: return print_call_text(p, i, 0, need_rounding(p, &h, i->un == KB_CEIL), out);
	}
	return PRINT_PRIMARY;
}

/* ---- compares ---- */

enum print_level c_cmp(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type from = print_arg_type(p, i, 0);
	const char *a = print_arg(p, i, 0), *b = print_arg(p, i, 1), *sign = kb_cmp_sign(i->cmp);
	if (from.lanes == 1)
		return plain(p, i, sign, out);
	if (c_bits(c_element_of(from.scalar, from.lanes)) == 32)
		buf_printf(out, "(%s)(%s %s %s)", c_type(p, C_I32, from.lanes), a, sign, b);
	else
		buf_printf(out, "__builtin_convertvector(%s %s %s, %s)", a, sign, b,
		           c_type(p, C_I32, from.lanes));
	return PRINT_PRIMARY;
}

/* dot_u8s8_i32x16(sum, a, b); kb_legalize has written out the others. */
enum print_level c_dot(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	const char *name = arena_printf(p->arena, "%s_%s", kb_dot_name(i->dot), c_suffix(p, C_I32, lanes));
	bool is_u8 = i->dot == KB_DOT_U8S8;
	struct print_helper h = {name,
	                         C_I32,
	                         lanes,
	                         {c_type(p, is_u8 ? C_U32 : C_I32, lanes), is_u8 && lanes <= 16 ? "1" : "0",
	                          arena_printf(p->arena, "%d", 32 * lanes)}};
	const char *block = i->dot == KB_DOT_S16S16 ? "dot of halves" : "dot of bytes";
	return print_call_text(p, i, 0, print_helper(p, block, &h), out);
}

enum print_level c_fma(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "%s * %s + %s", print_arg(p, i, 0), print_arg(p, i, 1), print_arg(p, i, 2));
	return PRINT_SUM;
}
