/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portable C dialect: C11 with the vector extensions that gcc and clang share. Pointers are char *; memory is
 * accessed through may_alias types. Operations that the kernel IR defines are never undefined in the emitted C:
 * signed arithmetic is done in unsigned types, so that it wraps. Types of values: bool, fixed-width integers, float,
 * double, char *; f16 and bf16 as their bits (uint16_t); vectors f32x16 etc.; vectors of bools i32xN with lanes 0 or
 * -1. Helpers are called OPERATION_TYPE and printed on their first request.
 *
 * The functions c_OPERATION are the rows of `ops`: they print the expression of an instruction to `out` and return its
 * precedence, by which the expression that uses it decides about parentheses. need_HELPER requests a helper and
 * returns its name.
 *
 * A helper is an inline function of the emitted file, made from a block of the prelude whose placeholders are its
 * element type, lanes and args. A value has the text of its expression; `inner` is the text without the outer
 * conversion, in the unsigned type, so that sums need not be converted back and forth. Operand k of an instruction is
 * printed by print_arg (in parentheses where needed) or print_bare_arg.
 *
 * Integers that may wrap are computed in the unsigned type and converted back, which gcc and clang define; scalars
 * below 32 bits as uint32_t, since C promotes them to int, whose products could overflow. Shift counts are masked.
 * Floats saturate into integers, NaN becomes 0. Selects of vectors are bit masks, because gcc has no ?: of vectors in
 * C. Memory is accessed by helpers named after the alignment: aligned_ if the full vector is aligned, no prefix if its
 * elements are, bytes_ if not even these.
 */
#include "backends/print/print.h"
#include "ir/support/number.h"

#include <math.h>
#include <string.h>

/* Element types in the emitted C. */
enum c_element { C_I8, C_U8, C_I16, C_U16, C_I32, C_U32, C_I64, C_U64, C_F32, C_F64, C_PTR, C_BOOL };

/* ---- types ---- */

static const struct {
	const char *name, *scalar;
	int bits;
} elements[] = {[C_I8] = {"i8", "int8_t", 8},     [C_U8] = {"u8", "uint8_t", 8},
                [C_I16] = {"i16", "int16_t", 16}, [C_U16] = {"u16", "uint16_t", 16},
                [C_I32] = {"i32", "int32_t", 32}, [C_U32] = {"u32", "uint32_t", 32},
                [C_I64] = {"i64", "int64_t", 64}, [C_U64] = {"u64", "uint64_t", 64},
                [C_F32] = {"f32", "float", 32},   [C_F64] = {"f64", "double", 64},
                [C_PTR] = {"ptr", "char *", 64},  [C_BOOL] = {"bool", "bool", 8}};

/* The element in which values of a scalar type are held: f16 and bf16 as their bits, lanes of bools as i32
 * masks. */
static enum c_element c_element_of(enum kb_scalar s, int lanes)
{
	switch (s) {
	case KB_VOID:
	case KB_BOOL: return lanes > 1 ? C_I32 : C_BOOL;
	case KB_I8: return C_I8;
	case KB_U8: return C_U8;
	case KB_I16: return C_I16;
	case KB_U16: return C_U16;
	case KB_I32: return C_I32;
	case KB_I64:
	case KB_INDEX: return C_I64;
	case KB_F16:
	case KB_BF16: return C_U16;
	case KB_F32: return C_F32;
	case KB_F64: return C_F64;
	case KB_PTR: return C_PTR;
	}
	return C_I32;
}

static bool c_is_float(enum c_element e)
{
	return e == C_F32 || e == C_F64;
}

/* the unsigned integer of the same width */
static enum c_element c_unsigned(enum c_element e)
{
	switch (elements[e].bits) {
	case 8: return C_U8;
	case 16: return C_U16;
	case 32: return C_U32;
	default: return C_U64;
	}
}

/* the integer of the same width */
static enum c_element c_signed(enum c_element e)
{
	switch (elements[e].bits) {
	case 8: return C_I8;
	case 16: return C_I16;
	case 32: return C_I32;
	default: return C_I64;
	}
}

/* "f32x16" or "f32": suffix of helper names. In p->arena. */
static const char *c_suffix(struct print *p, enum c_element e, int lanes)
{
	return lanes > 1 ? arena_printf(p->arena, "%sx%d", elements[e].name, lanes) : elements[e].name;
}

/* The name of the type; prints the typedef of a vector type on its first request. */
static const char *c_type(struct print *p, enum c_element e, int lanes)
{
	if (lanes == 1)
		return elements[e].scalar;
	const char *name = c_suffix(p, e, lanes);
	if (print_once(p, name))
		buf_printf(&p->types, "typedef %s %s __attribute__((vector_size(%d)));\n", elements[e].scalar,
		           name, elements[e].bits / 8 * lanes);
	return name;
}

/* "{x, x, ...}" with `lanes` elements. */
static const char *c_fill(struct print *p, const char *x, int lanes)
{
	const char *text = x;
	for (int i = 1; i < lanes; i++)
		text = arena_printf(p->arena, "%s, %s", text, x);
	return arena_printf(p->arena, "{%s}", text);
}

/* Requests the helper that broadcasts a scalar. Returns its name. */
static const char *c_need_splat(struct print *p, enum c_element e, int lanes)
{
	const char *name = arena_printf(p->arena, "splat_%s", c_suffix(p, e, lanes));
	if (strmap_has(&p->needed, name))
		return name;
	struct print_helper h = {name, e, lanes, {c_fill(p, "x", lanes)}};
	return print_helper(p, "splat", &h);
}

/* ---- memory ---- */

/* Memory access in portable C: `load_f32x16(p, i)` loads from element i on, through a may_alias type with the alignment
 * of the access. */

/* The prefix for an access of known alignment; *out: bytes of alignment of its memory type. */
static const char *alignment_prefix(enum c_element e, int lanes, int align, int *out)
{
	int element = elements[e].bits / 8;
	if (align < element) {
		*out = 1;
		return "bytes_";
	}
	bool is_aligned = lanes > 1 && align >= element * lanes;
	*out = is_aligned ? element * lanes : element;
	return is_aligned ? "aligned_" : "";
}

/* Requests the may_alias type of an access, the typedef of which states the alignment. Returns its name. Bools are
 * never in memory, so they need no typedef. */
static const char *memory_type(struct print *p, enum c_element e, int lanes, const char *prefix, int align)
{
	const char *name = arena_printf(p->arena, "%s%s_m", prefix, c_suffix(p, e, lanes));
	if (e == C_BOOL || !print_once(p, name))
		return name;
	buf_printf(&p->types, "typedef %s %s __attribute__((", elements[e].scalar, name);
	if (lanes > 1)
		buf_printf(&p->types, "vector_size(%d), ", elements[e].bits / 8 * lanes);
	buf_printf(&p->types, "aligned(%d), may_alias));\n", align);
	return name;
}

/* Requests the helper of an access. what: load or store. */
static const char *accessor(struct print *p, const char *what, enum c_element e, int lanes, int align)
{
	int bytes;
	const char *prefix = alignment_prefix(e, lanes, align, &bytes);
	const char *name = arena_printf(p->arena, "%s_%s%s", what, prefix, c_suffix(p, e, lanes));
	if (strmap_has(&p->needed, name))
		return name;
	struct print_helper h = {name, e, lanes, {memory_type(p, e, lanes, prefix, bytes)}};
	return print_helper(p, what, &h);
}

/* Requests load_part or store_part. */
static const char *part_accessor(struct print *p, const char *block, enum c_element e, int lanes)
{
	struct print_helper h = {
	        arena_printf(p->arena, "%s_%s", block, c_suffix(p, e, lanes)), e, lanes, {0}};
	return print_helper(p, block, &h);
}

/* Operand k, an index, and the displacement: "i * 4 + 3", without the terms that are 0. An unsigned expression needs no
 * conversion (inner), since the helper's parameter converts it; no cast of INT64_MIN to print its magnitude. */
static void index_text(const struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	int64_t c = 0;
	if (print_const_arg(p, i, k, &c) && c == 0) {
		buf_printf(out, "%lld", (long long)i->imm);
		return;
	}
	const struct print_value *v = print_arg_value(p, i, k);
	bool is_loose = v->precedence == PRINT_LOWEST && i->imm != 0;
	buf_printf(out, is_loose ? "(%s)" : "%s", v->inner ? v->inner : v->bare);
	if (i->imm > 0)
		buf_printf(out, " + %lld", (long long)i->imm);
	else if (i->imm < 0)
		buf_printf(out, " - %llu", 0 - (unsigned long long)i->imm);
}

/* The call of an accessor up to the index: "load_f32x8(p, i" or "store_part_f32x8(p, i"; operand k is the pointer. */
static void begin_access(struct print *p, const struct kb_inst *i, const char *what, size_t k,
                         struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	bool is_part = i->op == KBO_LOAD_PART || i->op == KBO_STORE_PART;
	buf_printf(out, "%s(",
	           is_part ? part_accessor(p, arena_printf(p->arena, "%s_part", what), e, i->type.lanes)
	                   : accessor(p, what, e, i->type.lanes, i->align));
	buf_printf(out, "%s, ", print_bare_arg(p, i, k));
	index_text(p, i, k + 1, out);
}

/* The number of lanes of a partial access, and the parenthesis. */
static enum print_prec end_access(const struct kb_inst *i, struct buf *out)
{
	if (i->op == KBO_LOAD_PART || i->op == KBO_STORE_PART)
		buf_printf(out, ", %d", i->n_lanes);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

static enum print_prec c_load(struct print *p, const struct kb_inst *i, struct buf *out)
{
	begin_access(p, i, "load", 0, out);
	return end_access(i, out);
}

/* splat_f32x8(load_f32(p, i)): the load of one element, printed by c_load for a copy of the instruction. */
static enum print_prec c_load_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_inst one = *i;
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	one.op = KBO_LOAD;
	one.type.lanes = 1;
	buf_printf(out, "%s(", c_need_splat(p, e, i->type.lanes));
	(void)c_load(p, &one, out);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

static enum print_prec c_store(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const struct print_value *v = print_arg_value(p, i, 0);
	begin_access(p, i, "store", 1, out);
	buf_printf(out, ", %s", v->inner ? v->inner : v->bare);
	return end_access(i, out);
}

static enum print_prec c_prefetch(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "__builtin_prefetch(%s + (", print_arg(p, i, 0));
	index_text(p, i, 1, out);
	buf_str(out, i->flags & KB_L2 ? "), 0, 2)" : "))");
	return PRINT_PRIMARY;
}

static enum print_prec c_ptr_opaque(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return print_forwarded_arg(p, i, 0, out);
}

/* p + (i + 3), without the terms that are 0. */
static enum print_prec c_ptr_add(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int64_t c = 0;
	bool only_disp = print_const_arg(p, i, 1, &c) && c == 0;
	buf_printf(out, "%s + ", print_arg(p, i, 0));
	if (!only_disp && i->imm == 0) {
		buf_str(out, print_arg(p, i, 1));
	} else {
		buf_str(out, only_disp && i->imm >= 0 ? "" : "(");
		index_text(p, i, 1, out);
		buf_str(out, only_disp && i->imm >= 0 ? "" : ")");
	}
	return PRINT_ADDITIVE;
}

/* ---- atomics ---- */

/* All atomic operations: a helper such as atomic_add_i32(p, displacement, x), whose prelude block has the name
 * of the operation. A load has no x. */
static enum print_prec c_atomic_load(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool is_load = i->op == KBO_ATOMIC_LOAD;
	const char *block = kb_op_name(i->op);
	(void)memory_type(p, C_I32, 1, "", 4);
	struct print_helper h = {arena_printf(p->arena, "%s_i32", block), C_I32, 1, {0}};
	buf_printf(out, "%s(%s, %lld", print_helper(p, block, &h), print_bare_arg(p, i, is_load ? 0 : 1),
	           (long long)i->imm);
	buf_printf(out, is_load ? ")" : ", %s)", print_bare_arg(p, i, 0));
	return PRINT_PRIMARY;
}

static enum print_prec c_pause(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)i;
	buf_printf(out, "%s()", print_helper(p, "spin_pause", &(struct print_helper){.name = "spin_pause"}));
	return PRINT_PRIMARY;
}

/* ---- values ---- */

/* ---- constants ---- */

/* Prints an integer literal and returns its precedence: a sign binds like a sum. C has no literal of the least int,
 * which would be the negation of one that does not fit. */
static enum print_prec int_text(enum kb_scalar s, int64_t v, struct buf *out)
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
	return s != KB_BOOL && v < 0 ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

/* The shortest literal that reads back as the same bits; NaN and infinity by builtins. */
static enum print_prec float_text(enum kb_scalar s, double v, struct buf *out)
{
	char text[NUMBER_TEXT_MAX];
	const char *f = s == KB_F32 ? "f" : "";
	if (isnan(v)) {
		buf_printf(out, "__builtin_nan%s(\"\")", f);
		return PRINT_PRIMARY;
	}
	if (isinf(v)) {
		buf_printf(out, v < 0 ? "-__builtin_inf%s()" : "__builtin_inf%s()", f);
		return v < 0 ? PRINT_ADDITIVE : PRINT_PRIMARY;
	}
	if (s == KB_F32)
		number_print_f32(text, (float)v);
	else
		number_print_f64(text, v);
	buf_printf(out, "%s%s", text, f);
	return signbit(v) ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

static enum print_prec c_const_int(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	bool is_float = i->type.scalar == KB_F32 || i->type.scalar == KB_F64;
	return is_float ? float_text(i->type.scalar, 0, out) : int_text(i->type.scalar, i->imm, out);
}

static enum print_prec c_const_float(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	return float_text(i->type.scalar, i->fimm, out);
}

static enum print_prec c_null(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	buf_str(out, "(char *)0");
	return PRINT_PRIMARY;
}

/* {0, 1, ..} */
static enum print_prec c_lane_ids(struct print *p, const struct kb_inst *i, struct buf *out)
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

/* ---- select, min and max ---- */

/* Requests the helper of a select of vectors. Masks have lanes of 32 bits: for other widths the helper converts
 * them. */
static const char *need_select(struct print *p, enum c_element e, int lanes)
{
	struct print_helper h = {arena_printf(p->arena, "select_%s", c_suffix(p, e, lanes)), e, lanes, {0}};
	return print_helper(p, elements[e].bits == 32 ? "select of 32 bits" : "select", &h);
}

/* Requests the helper of min or max: a op b ? a : b, of vectors by the select, which the helper calls and which is
 * therefore requested first. */
static const char *need_min_max(struct print *p, enum kb_bin op, enum c_element e, int lanes)
{
	const char *name = arena_printf(p->arena, "%s_%s", kb_bin_name(op), c_suffix(p, e, lanes));
	const char *select = lanes > 1 ? need_select(p, e, lanes) : "";
	struct print_helper h = {name, e, lanes, {kb_bin_sign(op), select}};
	return print_helper(p,
	                    lanes == 1               ? "min or max, scalar"
	                    : elements[e].bits == 32 ? "min or max of 32 bits"
	                                             : "min or max",
	                    &h);
}

/* ---- integers ---- */

/* Prints operand k in the unsigned type if that is free: its inner text, or a literal with suffix u. Returns true if
 * it has the unsigned type; false: it is printed as it is, and the caller converts one of the two. */
static bool unsigned_operand(struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	const struct print_value *v = print_arg_value(p, i, k);
	bool wide = elements[c_element_of(i->type.scalar, 1)].bits == 64;
	int64_t c;
	if (v->inner)
		buf_printf(out, "(%s)", v->inner);
	else if (print_const_arg(p, i, k, &c) && c >= 0)
		buf_printf(out, wide ? "%lldull" : "%lldu", (long long)c);
	else
		buf_str(out, print_arg(p, i, k));
	return v->inner || (print_const_arg(p, i, k, &c) && c >= 0);
}

/* Prints the shift count, masked to the width. */
static void shift_count(const struct print *p, const struct kb_inst *i, int bits, struct buf *out)
{
	int64_t c;
	if (print_const_arg(p, i, 1, &c))
		buf_printf(out, "%lld", (long long)(c & (bits - 1)));
	else
		buf_printf(out, "(%s & %d)", print_arg(p, i, 1), bits - 1);
}

/* a + b, a - b, a * b, SHL and SHR of 32 and 64 bits, in the unsigned type, where overflow is defined, and converted
 * back. One unsigned operand is enough: C converts the other. SHR shifts zeros in, so its operand must be cast. */
static enum print_prec wrapping(struct print *p, const struct kb_inst *i, struct buf *out)
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
		shift_count(p, i, elements[e].bits, &b);
	else
		done |= unsigned_operand(p, i, 1, &b);
	if (!done)
		buf_printf(&both, "(%s)", elements[c_unsigned(e)].scalar);
	buf_printf(&both, "%s %s %s", a.data, kb_bin_sign(i->bin), b.data);
	enum print_prec precedence = print_converted(p, i, elements[e].scalar, both.data,
	                                             is_shift ? PRINT_LOWEST : PRINT_ADDITIVE, out);
	out->failed |= a.failed || b.failed || both.failed;
	buf_destroy(&a);
	buf_destroy(&b);
	buf_destroy(&both);
	return precedence;
}

static enum print_prec arithmetic_shift(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, 1);
	buf_printf(out, "(%s)%s >> ", elements[e].scalar, print_arg(p, i, 0));
	shift_count(p, i, elements[e].bits, out);
	return PRINT_LOWEST;
}

/* Integer arithmetic of vectors, converted to the unsigned type (signed for SAR, DIV and REM) and back; shift
 * counts are masked. Vectors of narrow lanes are not promoted, so all widths go this way. */
static void vector_int(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	const char *type = c_type(p, e, i->type.lanes), *op = kb_bin_sign(i->bin);
	bool is_signed = i->bin == KB_DIV || i->bin == KB_REM || i->bin == KB_SAR; /* U8, U16: only SAR */
	bool is_shift = i->bin == KB_SHL || i->bin == KB_SHR || i->bin == KB_SAR;
	const char *u = c_type(p, is_signed ? c_signed(e) : c_unsigned(e), i->type.lanes);
	if (is_shift)
		buf_printf(out, "(%s)((%s)%s %s ((%s)%s & %d))", type, u, print_arg(p, i, 0), op, u,
		           print_arg(p, i, 1), elements[e].bits - 1);
	else
		buf_printf(out, "(%s)((%s)%s %s (%s)%s)", type, u, print_arg(p, i, 0), op, u,
		           print_arg(p, i, 1));
}

/* a op b */
static enum print_prec plain(struct print *p, const struct kb_inst *i, const char *sign, struct buf *out)
{
	bool is_bits = i->op != KBO_BIN || i->bin == KB_AND || i->bin == KB_OR || i->bin == KB_XOR;
	buf_printf(out, "%s %s %s", print_arg(p, i, 0), sign, print_arg(p, i, 1));
	return is_bits ? PRINT_LOWEST : PRINT_ADDITIVE;
}

/* "(int8_t)" etc. for scalar integers below 32 bits, which C promotes to int; otherwise "". */
static const char *narrow_cast(struct print *p, struct kb_type t)
{
	enum c_element e = c_element_of(t.scalar, t.lanes);
	if (t.lanes > 1 || e == C_BOOL || elements[e].bits >= 32)
		return "";
	return arena_printf(p->arena, "(%s)", elements[e].scalar);
}

/* Arithmetic on scalar integers below 32 bits, as uint32_t: no sum or product of two overflows it. Shifts right see
 * the value in its own sign. */
static enum print_prec narrow_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, 1);
	bool is_shift = i->bin == KB_SHL || i->bin == KB_SHR || i->bin == KB_SAR;
	enum c_element as = i->bin == KB_SHR ? c_unsigned(e) : i->bin == KB_SAR ? c_signed(e) : C_U32;
	buf_printf(out, "(%s)((%s)%s %s ", elements[e].scalar, elements[as].scalar, print_arg(p, i, 0),
	           kb_bin_sign(i->bin));
	if (is_shift)
		shift_count(p, i, elements[e].bits, out);
	else
		buf_printf(out, "(uint32_t)%s", print_arg(p, i, 1));
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

/* MIN and MAX by helpers, bools by logical operators, floats and bit operations plainly, integers so that they
 * wrap. */
static enum print_prec c_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_bin op = i->bin;
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	const char *cast = narrow_cast(p, i->type);
	bool bits = op == KB_AND || op == KB_OR || op == KB_XOR;
	if (e == C_BOOL)
		return plain(p, i, op == KB_AND ? "&&" : op == KB_OR ? "||" : "!=", out);
	if (op == KB_MIN || op == KB_MAX) {
		return print_call_text(p, i, 0, need_min_max(p, op, e, i->type.lanes), out);
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
		return narrow_bin(p, i, out);
	if (op == KB_DIV || op == KB_REM)
		return plain(p, i, kb_bin_sign(op), out);
	return op == KB_SAR ? arithmetic_shift(p, i, out) : wrapping(p, i, out);
}

/* ---- one operand ---- */

/* The helper of floor (up: ceil) without a library: truncates and corrects by 1; values from 2^23 (f64: 2^52) on are
 * integers already. */
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
	return print_helper(p, h->lanes == 1 ? "floor or ceil, scalar" : "floor or ceil", &all);
}

/* The helper of sqrt, of vectors lane by lane. That of one lane, requested first, names the instruction (s or d: its
 * SSE suffix), because gcc would call the library for negative numbers. */
static const char *need_sqrt(struct print *p, const struct print_helper *h)
{
	bool single = h->element == C_F32;
	const char *one = arena_printf(p->arena, "sqrt_%s", elements[h->element].name);
	struct print_helper of_one = {
	        one, h->element, 1, {single ? "s" : "d", c_type(p, h->element, single ? 4 : 2)}};
	(void)print_helper(p, "sqrt, scalar", &of_one);
	struct print_helper all = {h->name, h->element, h->lanes, {one}};
	return print_helper(p, "sqrt", &all);
}

static const char *need_abs(struct print *p, const struct print_helper *h)
{
	struct print_helper all = *h;
	if (!c_is_float(h->element))
		return print_helper(p, h->lanes == 1 ? "abs, scalar" : "abs", h);
	all.args[0] = h->element == C_F32 ? "INT32_MAX" : "INT64_MAX";
	return print_helper(p, h->lanes == 1 ? "abs of a float" : "abs of floats", &all);
}

/* -x of a float, not PRINT_PRIMARY, since -(-x) would read --x; 0 - x in the unsigned type of an integer, so that the
 * least one wraps. A cast of a term in parentheses is PRINT_PRIMARY (print.h). */
static enum print_prec negated(struct print *p, const struct kb_inst *i, enum c_element e, struct buf *out)
{
	if (c_is_float(e)) {
		buf_printf(out, "-%s", print_arg(p, i, 0));
		return PRINT_ADDITIVE;
	}
	const char *unsigned_type = c_type(p, c_unsigned(e), i->type.lanes);
	const char *inner = arena_printf(p->arena, "0 - (%s)%s", unsigned_type, print_arg(p, i, 0));
	if (i->type.lanes == 1)
		return print_converted(p, i, elements[e].scalar, inner, PRINT_ADDITIVE, out);
	buf_printf(out, "(%s)(%s)", c_type(p, e, i->type.lanes), inner);
	return PRINT_PRIMARY;
}

static enum print_prec bitwise_not(struct print *p, const struct kb_inst *i, enum c_element e,
                                   struct buf *out)
{
	const char *cast = narrow_cast(p, i->type);
	buf_printf(out, *cast ? "%s(%s%s)" : "%s%s%s", cast, e == C_BOOL ? "!" : "~", print_arg(p, i, 0));
	return *cast ? PRINT_PRIMARY : PRINT_ADDITIVE;
}

/* Operators, or helpers named after operation and type, where C has none or would call a library. */
static enum print_prec c_un(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	struct print_helper h = {.element = e, .lanes = i->type.lanes};
	h.name = arena_printf(p->arena, "%s_%s", kb_un_name(i->un), c_suffix(p, e, h.lanes));
	switch (i->un) {
	case KB_NEG: return negated(p, i, e, out);
	case KB_NOT: return bitwise_not(p, i, e, out);
	case KB_ABS: return print_call_text(p, i, 0, need_abs(p, &h), out);
	case KB_SQRT: return print_call_text(p, i, 0, need_sqrt(p, &h), out);
	case KB_FLOOR:
	case KB_CEIL: return print_call_text(p, i, 0, need_rounding(p, &h, i->un == KB_CEIL), out);
	}
	return PRINT_PRIMARY;
}

/* ---- comparisons, dot products, fma ---- */

/* A bool of scalars, a mask of i32 lanes of vectors; comparisons of 32-bit lanes give that mask already. */
static enum print_prec c_cmp(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type from = print_arg_type(p, i, 0);
	const char *a = print_arg(p, i, 0), *b = print_arg(p, i, 1), *sign = kb_cmp_sign(i->cmp);
	if (from.lanes == 1)
		return plain(p, i, sign, out);
	if (elements[c_element_of(from.scalar, from.lanes)].bits == 32)
		buf_printf(out, "(%s)(%s %s %s)", c_type(p, C_I32, from.lanes), a, sign, b);
	else
		buf_printf(out, "__builtin_convertvector(%s %s %s, %s)", a, sign, b,
		           c_type(p, C_I32, from.lanes));
	return PRINT_PRIMARY;
}

/* dot_u8s8_i32x16(acc, a, b); other dot products have been legalized. Arguments of the block: the type of a
 * (of u8 unsigned); whether x86 may have an instruction (VNNI, u8s8 of up to 16 lanes); bits of the vector. */
static enum print_prec c_dot(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	const char *name = arena_printf(p->arena, "%s_%s", kb_dot_name(i->dot), c_suffix(p, C_I32, lanes));
	bool is_u8 = i->dot == KB_DOT_U8S8;
	struct print_helper h = {name,
	                         C_I32,
	                         lanes,
	                         {c_type(p, is_u8 ? C_U32 : C_I32, lanes), is_u8 && lanes <= 16 ? "1" : "0",
	                          arena_printf(p->arena, "%d", 32 * lanes)}};
	const char *block = i->dot == KB_DOT_S16S16 ? "dot of i16" : "dot of bytes";
	return print_call_text(p, i, 0, print_helper(p, block, &h), out);
}

static enum print_prec c_fma(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "%s * %s + %s", print_arg(p, i, 0), print_arg(p, i, 1), print_arg(p, i, 2));
	return PRINT_ADDITIVE;
}

/* ---- conversions ---- */

/* ---- float to integer ---- */

struct limits {
	const char *lo, *hi;         /* as floats: values outside are saturated */
	const char *least, *largest; /* as integers */
};

/* is_f64: 2147483647 is exact in f64; the f32 limit is 2147483648. */
static struct limits limits_of(enum c_element e, bool is_f64)
{
	switch (e) {
	case C_I8: return (struct limits){"-128.0", "127.0", "INT8_MIN", "INT8_MAX"};
	case C_U8: return (struct limits){"0.0", "255.0", "0", "UINT8_MAX"};
	case C_I16: return (struct limits){"-32768.0", "32767.0", "INT16_MIN", "INT16_MAX"};
	case C_I32:
		return (struct limits){"-2147483648.0", is_f64 ? "2147483647.0" : "2147483648.0", "INT32_MIN",
		                       "INT32_MAX"};
	default: return (struct limits){"-0x1p63", "0x1p63", "INT64_MIN", "INT64_MAX"};
	}
}

/* The helper that converts floats to integers: truncates, saturates, NaN gives 0. */
static const char *need_saturating(struct print *p, enum c_element from, enum c_element to, int lanes)
{
	struct limits l = limits_of(to, from == C_F64);
	const char *name = arena_printf(p->arena, "%s_to_%s", elements[from].name, c_suffix(p, to, lanes));
	const char *f = from == C_F32 ? "f" : "";
	bool is_one = lanes == 1;
	struct print_helper h = {
	        name,
	        to,
	        lanes,
	        {c_type(p, from, lanes), arena_printf(p->arena, "%s%s", l.lo, f),
	         arena_printf(p->arena, "%s%s", l.hi, f), is_one ? l.least : c_fill(p, l.least, lanes),
	         is_one ? l.largest : c_fill(p, l.largest, lanes), c_type(p, c_signed(from), lanes)}};
	return print_helper(p, is_one ? "saturating conversion, scalar" : "saturating conversion", &h);
}

/* A cast of a scalar, __builtin_convertvector of a vector. */
static enum print_prec cast(const char *type, int lanes, const char *text, struct buf *out)
{
	if (lanes > 1)
		buf_printf(out, "__builtin_convertvector(%s, %s)", text, type);
	else
		buf_printf(out, "(%s)%s", type, text);
	return lanes > 1 ? PRINT_PRIMARY : PRINT_ADDITIVE;
}

/* Converts by a cast, floats to integers by a helper that saturates; true of a mask is -1 and becomes 1. Types that
 * have one C element (I64 and INDEX) are the same value. */
static enum print_prec c_cvt(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type from = print_arg_type(p, i, 0), to = i->type;
	enum c_element before = c_element_of(from.scalar, from.lanes),
	               after = c_element_of(to.scalar, to.lanes);
	bool is_mask = from.scalar == KB_BOOL && from.lanes > 1;
	const char *text = print_arg(p, i, 0);
	if (is_mask)
		text = arena_printf(p->arena, "(%s & 1)", text);
	if (before == after && is_mask) {
		buf_printf(out, "%s & 1", print_arg(p, i, 0));
		return PRINT_LOWEST;
	}
	if (before == after)
		return print_forwarded_arg(p, i, 0, out);
	if (!c_is_float(before) || c_is_float(after))
		return cast(c_type(p, after, to.lanes), to.lanes, text, out);
	buf_printf(out, "%s(%s)", need_saturating(p, before, after, to.lanes), text);
	return PRINT_PRIMARY;
}

/* A cast between integers or between vectors, which keeps the bits; else a helper with memcpy. */
static enum print_prec c_bitcast(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int before = print_arg_type(p, i, 0).lanes, lanes = i->type.lanes;
	enum c_element from = c_element_of(print_arg_type(p, i, 0).scalar, before),
	               to = c_element_of(i->type.scalar, lanes);
	bool are_ints = before == 1 && lanes == 1 && !c_is_float(from) && !c_is_float(to);
	if (from == to)
		return print_forwarded_arg(p, i, 0, out);
	if (are_ints || (before > 1 && lanes > 1)) {
		buf_printf(out, "(%s)%s", c_type(p, to, lanes), print_arg(p, i, 0));
		return PRINT_ADDITIVE;
	}
	const char *name =
	        arena_printf(p->arena, "%s_bits_%s", c_suffix(p, from, before), c_suffix(p, to, lanes));
	(void)print_helper(p, "bitcast", &(struct print_helper){name, to, lanes, {c_type(p, from, before)}});
	return print_call_text(p, i, 0, name, out);
}

/* ---- lanes ---- */

static enum print_prec c_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *name = c_need_splat(p, c_element_of(i->type.scalar, i->type.lanes), i->type.lanes);
	if (i->type.scalar != KB_BOOL)
		return print_call_text(p, i, 0, name, out);
	buf_printf(out, "%s(-(int32_t)%s)", name, print_arg(p, i, 0));
	return PRINT_PRIMARY;
}

/* ?: of scalars, a helper with bit masks for vectors, since gcc has no ?: of vectors in C. */
static enum print_prec c_select(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	if (lanes == 1) {
		buf_printf(out, "%s ? %s : %s", print_arg(p, i, 0), print_arg(p, i, 1), print_arg(p, i, 2));
		return PRINT_LOWEST;
	}
	return print_call_text(p, i, 0, need_select(p, c_element_of(i->type.scalar, lanes), lanes), out);
}

/* One lane as v[number]; a value that is neither a name nor in parentheses needs them, as [] binds more tightly than a
 * cast. A lane of a mask becomes a bool. */
static enum print_prec lane(const struct print *p, const struct kb_inst *i, size_t k, int number,
                            struct buf *out)
{
	const struct print_value *v = print_arg_value(p, i, k);
	bool is_bool = i->type.scalar == KB_BOOL;
	buf_printf(out, v->is_name || v->text != v->bare ? "%s[%d]" : "(%s)[%d]", v->text, number);
	buf_str(out, is_bool ? " != 0" : "");
	return is_bool ? PRINT_LOWEST : PRINT_PRIMARY;
}

static enum print_prec c_lane(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return lane(p, i, 0, i->lane, out);
}

/* A shuffle of one-lane operands: a vector literal, in which a bool becomes a lane of 0 or -1; with one lane as its
 * result, an operand. */
static enum print_prec shuffle_scalars(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	bool is_bool = i->type.scalar == KB_BOOL && i->type.lanes > 1;
	if (i->type.lanes == 1)
		return print_forwarded_arg(p, i, (size_t)i->lanes[0], out);
	buf_printf(out, "(%s)", c_type(p, e, i->type.lanes));
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, "%s%s%s", k ? ", " : "{", is_bool ? "-(int32_t)" : "",
		           print_arg(p, i, (size_t)i->lanes[k]));
	buf_char(out, '}');
	return PRINT_PRIMARY;
}

/* __builtin_shufflevector; with one lane on a side an element or a literal. */
static enum print_prec c_shuffle(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int from = print_arg_type(p, i, 0).lanes;
	if (from == 1)
		return shuffle_scalars(p, i, out);
	if (i->type.lanes == 1)
		return lane(p, i, i->lanes[0] < from ? 0 : 1, i->lanes[0] % from, out);
	(void)c_type(p, c_element_of(i->type.scalar, i->type.lanes), i->type.lanes);
	buf_printf(out, "__builtin_shufflevector(%s, %s", print_arg(p, i, 0), print_arg(p, i, i->n_args > 1));
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, ", %d", i->lanes[k]);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

/* A helper, whose argument is the type of the table of 16 bytes, for any number of indices. */
static enum print_prec c_lookup16(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	struct print_helper h = {arena_printf(p->arena, "lookup16_%s", c_suffix(p, C_U8, lanes)),
	                         C_U8,
	                         lanes,
	                         {c_type(p, C_U8, 16)}};
	return print_call_text(p, i, 0, print_helper(p, "lookup16", &h), out);
}

/* ---- reductions ---- */

static const char *lane_list(struct print *p, int first, int n)
{
	const char *text = arena_printf(p->arena, "%d", first);
	for (int k = 1; k < n; k++)
		text = arena_printf(p->arena, "%s, %d", text, first + k);
	return text;
}

/* The expression a op b of n lanes, in a reduce helper. */
static const char *combine(struct print *p, enum kb_bin op, enum c_element e, int n)
{
	if (op != KB_ADD)
		return arena_printf(p->arena, "%s(a, b)", need_min_max(p, op, e, n));
	if (c_is_float(e))
		return "a + b";
	const char *unsigned_type = c_type(p, c_unsigned(e), n);
	return arena_printf(p->arena, "(%s)((%s)a + (%s)b)", c_type(p, e, n), unsigned_type, unsigned_type);
}

/* The helper that combines the two halves of a vector and calls the helper of the half, down to one lane: the tree of
 * kb_reduce. Helpers that it calls are requested before it, so that they are defined first. */
static const char *need_reduce(struct print *p, enum kb_bin op, enum c_element e, int lanes)
{
	int n = lanes / 2;
	const char *name = arena_printf(p->arena, "reduce_%s_%s", kb_bin_name(op), c_suffix(p, e, lanes));
	if (strmap_has(&p->needed, name))
		return name;
	const char *both = combine(p, op, e, n);
	if (n == 1)
		return print_helper(p, "reduce to scalar", &(struct print_helper){name, e, lanes, {both}});
	const char *next = need_reduce(p, op, e, n);
	struct print_helper h = {
	        name, e, lanes, {c_type(p, e, n), lane_list(p, 0, n), lane_list(p, n, n), both, next}};
	return print_helper(p, "reduce", &h);
}

static enum print_prec c_reduce(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = print_arg_type(p, i, 0).lanes;
	return print_call_text(p, i, 0, need_reduce(p, i->bin, c_element_of(i->type.scalar, 1), lanes), out);
}

/* ---- types, functions, the file ---- */

extern const unsigned char c_prelude[]; /* prelude.c.in */

/* The text of $LETTER in a block of prelude.c.in: types of the helper's element and lanes, sizes, the suffix of
 * literals. */
static const char *placeholder(struct print *p, const struct print_helper *h, char letter)
{
	switch (letter) {
	case 'V': return c_type(p, (enum c_element)h->element, h->lanes);
	case 'S': return elements[h->element].scalar;
	case 'I': return c_type(p, c_signed((enum c_element)h->element), h->lanes);
	case 'U': return c_type(p, c_unsigned((enum c_element)h->element), h->lanes);
	case 'M': return c_type(p, C_I32, h->lanes);
	case 'B': return arena_printf(p->arena, "%d", elements[h->element].bits / 8);
	case 'L': return arena_printf(p->arena, "%d", h->lanes);
	default: return (enum c_element)h->element == C_F32 ? "f" : "";
	}
}

static void prelude(struct print *p, struct buf *out)
{
	print_block(p, "begin", &(struct print_helper){.name = ""}, out);
}

/* The feature that the function needs and C lacks, for the message; NULL: none. */
static const char *missing_feature(const struct print *p, const struct kb_func *f)
{
	if (f->linkage == KB_KERNEL)
		return "work-groups in C";
	for (size_t i = 0; i < f->n_insts; i++)
		if (f->insts[i].op == KBO_TILE_CONFIG)
			return "matrix tiles in C: choose a level without them, such as -mcpu=x86-64-v4-bf16";
	return p->options->index_bits == 64 ? NULL : "indices of 32 bits in C";
}

static void type(struct print *p, struct kb_type t, struct space_pointer pointer, struct buf *out)
{
	(void)pointer;
	buf_str(out, c_type(p, c_element_of(t.scalar, t.lanes), t.lanes));
}

static void result_type(enum kb_scalar s, struct buf *out)
{
	buf_str(out, s == KB_VOID ? "void " : elements[c_element_of(s, 1)].scalar);
	if (s != KB_VOID && s != KB_PTR)
		buf_char(out, ' ');
}

/* The head of a function: internal ones are static, and marked if nothing calls them. */
static void head(struct print *p, const struct kb_func *f, bool is_used, struct buf *out)
{
	if (f->linkage == KB_INTERNAL)
		buf_str(out, is_used ? "static " : "static __attribute__((unused)) ");
	result_type(f->result, out);
	buf_printf(out, "%s(", print_global(p, f->name));
	print_params(p, "", ", ", out);
}

/* Little-endian 64-bit word at byte `at`, padded with zeros. */
static uint64_t u64_at(const struct kb_data_item *d, size_t at)
{
	const unsigned char *bytes = d->bytes;
	uint64_t word = 0;
	for (size_t k = 8; k-- > 0;)
		word = word << 8 | (at + k < d->n ? bytes[at + k] : 0u);
	return word;
}

/* Read-only data as an array of u64 in hexadecimal: shorter than bytes, and compilers parse it faster.
 * Little-endian. */
static void data(struct print *p, const struct kb_data_item *d, const char *name, struct buf *out)
{
	size_t n_words = d->n / 8 + (d->n % 8 != 0);
	static const char digits[] = "0123456789abcdef";
	(void)p;
	if (d->linkage != KB_INTERNAL)
		buf_printf(out, "extern const uint64_t %s[];\n", name);
	buf_printf(out, "%sconst uint64_t %s[%zu] __attribute__((aligned(%d)%s)) = {",
	           d->linkage == KB_INTERNAL ? "static " : "", name, n_words ? n_words : 1,
	           d->align > 8 ? d->align : 8, d->linkage == KB_INTERNAL ? ", unused" : "");
	for (size_t i = 0; i < n_words; i++) {
		uint64_t w = u64_at(d, 8 * i);
		char text[19] = "0x";
		int n = 2;
		for (int shift = 60; shift >= 0; shift -= 4)
			if (n > 2 || (w >> shift) & 15 || shift == 0)
				text[n++] = digits[(w >> shift) & 15];
		buf_str(out, i % 6 ? ", " : i ? ",\n\t" : "\n\t");
		buf_bytes(out, text, (size_t)n);
	}
	buf_str(out, n_words ? "\n};\n" : "0};\n");
}

/* ---- values ---- */

/* ((int32_t (*)(char *, int64_t))(uintptr_t)f)(a, b): the pointer is a char * in the kernel IR; uintptr_t, since ISO C
 * does not convert data pointers to functions. */
static enum print_prec c_call_ptr(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_str(out, "((");
	result_type(i->type.scalar, out);
	buf_str(out, "(*)(");
	for (size_t k = 1; k < i->n_args; k++) {
		struct kb_type t = print_arg_type(p, i, k);
		buf_printf(out, "%s%s", k > 1 ? ", " : "",
		           c_type(p, c_element_of(t.scalar, t.lanes), t.lanes));
	}
	buf_printf(out, "%s))(uintptr_t)%s)", i->n_args > 1 ? "" : "void", print_arg(p, i, 0));
	return print_call_text(p, i, 1, "", out);
}

/* Data of another file is declared on its first use. Pointers are char *, without const, in the kernel IR. */
static enum print_prec c_symbol(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool known = strmap_has(&p->globals, i->name);
	if (!known && print_once(p, i->name))
		buf_printf(&p->types, "extern const char %s[];\n", i->name);
	buf_printf(out, "(char *)%s", print_global(p, i->name));
	return PRINT_PRIMARY;
}

static enum print_prec c_func_addr(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "(char *)(uintptr_t)%s", print_global(p, i->name));
	return PRINT_PRIMARY;
}

static enum print_prec c_string(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	buf_str(out, "(char *)");
	print_string(i->name, out);
	return PRINT_PRIMARY;
}

static void array(struct print *p, const struct kb_inst *i, const char *name)
{
	int bytes = elements[c_element_of(i->element, 1)].bits / 8;
	print_line(p, "char %s[%lld * %d] __attribute__((aligned(%d))); /* %s [%lld] */", name,
	           (long long)i->imm, bytes, i->align, elements[c_element_of(i->element, 1)].name,
	           (long long)i->imm);
}

static void array_text(struct print *p, const struct kb_inst *i, const char *name, struct buf *out)
{
	(void)p;
	(void)i;
	buf_str(out, name);
}

/* Identifiers of this dialect's types ("f32x8") and helpers (OPERATION_TYPE), and those that C reserves: whatever
 * ends, after the last underscore, with the name of an element type, or in _t. Too many rather than too few: another
 * name is found. */
static bool is_reserved(const char *name)
{
	const char *last = strrchr(name, '_');
	const char *end = last ? last + 1 : name;
	if (!strncmp(name, "__", 2) || !strcmp(name, "TFMC_INLINE") || strstr(name, "int8_t") ||
	    !strcmp(end, "t"))
		return true;
	for (int e = C_I8; e <= C_PTR; e++)
		if (!strncmp(end, elements[e].name, strlen(elements[e].name)))
			return true;
	return false;
}

static const char *const reserved[] = {"INT64_C", "UINT64_C", "spin_pause", NULL};

#define c_load_part    c_load
#define c_store_part   c_store
#define c_atomic_store c_atomic_load
#define c_atomic_add   c_atomic_load
#define c_nearest      print_unsupported
#define c_tile_config  print_unsupported
#define c_tile_zero    print_unsupported
#define c_tile_load    print_unsupported
#define c_tile_store   print_unsupported
#define c_tile_dot     print_unsupported
#define c_tile_release print_unsupported
#define c_cpuid        print_unsupported
#define c_xgetbv       print_unsupported
#define c_group_id     print_unsupported
#define c_group_count  print_unsupported
#define c_item_id      print_unsupported
#define c_device_dot   print_unsupported
#define c_barrier      print_unsupported

static print_op *const ops[] = {
#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) [KBO_##op] = c_##name,
#include "backends/kb/kb_ops.def"
};

/* Of the operations that a target may lack (`has`), this dialect has helpers for dot products of integers. */
const struct cfamily_dialect_table *cfamily_c(void)
{
	static const struct cfamily_dialect_table table = {
	        .name = "C",
	        .helpers = (const char *)c_prelude,
	        .placeholder = placeholder,
	        .has = {.has_dot_u8s8 = true, .has_dot_s8s8 = true, .has_dot_s16s16 = true},
	        .prelude = prelude,
	        .missing_feature = missing_feature,
	        .type = type,
	        .head = head,
	        .ops = ops,
	        .array = array,
	        .array_text = array_text,
	        .data = data,
	        .reserved = reserved,
	        .is_reserved = is_reserved};
	return &table;
}
