/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of scalar types and operations: sizes, names, side effects, operand types. Generated from kb_ops.def.
 */
#include "backends/kb/internal.h"

bool kb_is_float(enum kb_scalar s)
{
	return s == KB_F16 || s == KB_BF16 || s == KB_F32 || s == KB_F64;
}

/* Integers with full arithmetic; narrower ones have no division, negation and reduction. */
static bool is_wide_int(enum kb_scalar s)
{
	return s == KB_I32 || s == KB_I64 || s == KB_INDEX;
}

bool kb_is_int(enum kb_scalar s)
{
	return s == KB_I8 || s == KB_U8 || s == KB_I16 || s == KB_U16 || is_wide_int(s);
}

/* INDEX is stored as i64, whatever its width in registers (KB_INDEX in kb.h). */
int kb_scalar_bytes(enum kb_scalar s)
{
	switch (s) {
	case KB_VOID: return 0;
	case KB_BOOL: return 0; /* never in memory: generators convert to U8 */
	case KB_I8:
	case KB_U8: return 1;
	case KB_I16:
	case KB_U16:
	case KB_F16:
	case KB_BF16: return 2;
	case KB_I32:
	case KB_F32: return 4;
	case KB_I64:
	case KB_INDEX:
	case KB_F64:
	case KB_PTR: return 8;
	}
	return 0;
}

const char *kb_scalar_name(enum kb_scalar s)
{
	static const char *const names[] = {
	        [KB_VOID] = "void",   [KB_BOOL] = "bool", [KB_I8] = "i8",     [KB_U8] = "u8",
	        [KB_I16] = "i16",     [KB_U16] = "u16",   [KB_I32] = "i32",   [KB_I64] = "i64",
	        [KB_INDEX] = "index", [KB_F16] = "f16",   [KB_BF16] = "bf16", [KB_F32] = "f32",
	        [KB_F64] = "f64",     [KB_PTR] = "ptr"};
	return names[s];
}

/* ---- operations ---- */

static const struct {
	const char *name;
	bool has_effect;
} ops[] = {
#define KB_OP(op, name, effect) [KBO_##op] = {#name, effect},
#include "backends/kb/kb_ops.def"
};

/* Operand types that an operator accepts (kb_ops.def). */
enum kb_operands { KB_ON_NUMERIC, KB_ON_WIDE, KB_ON_FLOATS, KB_ON_WIDE_INTS, KB_ON_INTS, KB_ON_BITS };

static const struct {
	const char *name, *sign;
	enum kb_operands operands;
} bins[] = {
#define KB_BIN(op, name, sign, operands) [KB_##op] = {name, sign, KB_ON_##operands},
#include "backends/kb/kb_ops.def"
};

static const struct {
	const char *name;
	enum kb_operands operands;
} uns[] = {
#define KB_UN(op, name, operands) [KB_##op] = {name, KB_ON_##operands},
#include "backends/kb/kb_ops.def"
};

static const char *const dots[] = {
#define KB_DOT(op, name) [KB_##op] = #name,
#include "backends/kb/kb_ops.def"
};

static const struct {
	const char *name, *sign;
} cmps[] = {
#define KB_CMP(op, name, sign) [KB_##op] = {name, sign},
#include "backends/kb/kb_ops.def"
};

bool kb_has_side_effect(enum kb_opcode op)
{
	return ops[op].has_effect;
}

const char *kb_op_name(enum kb_opcode op)
{
	return ops[op].name;
}

const char *kb_bin_name(enum kb_bin op)
{
	return bins[op].name;
}

const char *kb_un_name(enum kb_un op)
{
	return uns[op].name;
}

const char *kb_dot_name(enum kb_dot dot)
{
	return dots[dot];
}

bool kb_dot_is_2x2(enum kb_dot dot)
{
	return dot == KB_DOT_U8S8_2X2 || dot == KB_DOT_S8S8_2X2 || dot == KB_DOT_BF16_ODD_2X2;
}

bool kb_dot_is_float(enum kb_dot dot)
{
	return dot == KB_DOT_BF16 || dot == KB_DOT_BF16_ODD || dot == KB_DOT_BF16_ODD_2X2;
}

bool kb_has_dot(const struct kb_caps *caps, enum kb_dot dot)
{
	const bool has[] = {
#define KB_DOT(op, name) [KB_##op] = caps->has_##name,
#include "backends/kb/kb_ops.def"
	};
	bool is_u7 = dot == KB_DOT_U7S8 || dot == KB_DOT_U7S8_I16;
	return has[dot] && !(is_u7 && caps->has_dot_u8s8); /* VNNI is better than vpmaddubsw */
}

const char *kb_cmp_name(enum kb_cmp op)
{
	return cmps[op].name;
}

const char *kb_bin_sign(enum kb_bin op)
{
	return bins[op].sign;
}

const char *kb_cmp_sign(enum kb_cmp op)
{
	return cmps[op].sign;
}

/* The set of operand types contains s. */
static bool accepts(enum kb_operands operands, enum kb_scalar s)
{
	bool is_float = s == KB_F32 || s == KB_F64;
	switch (operands) {
	case KB_ON_NUMERIC: return is_float || kb_is_int(s);
	case KB_ON_WIDE: return is_float || is_wide_int(s);
	case KB_ON_FLOATS: return is_float;
	case KB_ON_WIDE_INTS: return is_wide_int(s);
	case KB_ON_INTS: return kb_is_int(s);
	case KB_ON_BITS: return s == KB_BOOL || kb_is_int(s);
	}
	return false;
}

bool kb_bin_fits(enum kb_bin op, enum kb_scalar s)
{
	return accepts(bins[op].operands, s);
}

bool kb_un_fits(enum kb_un op, enum kb_scalar s)
{
	return accepts(uns[op].operands, s);
}
