/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions of f16 and bf16 as integer code, for printers that have none: an object calls no runtime library,
 * and C has no such types. One rounding each, to nearest even; NaN keeps its sign and becomes quiet. What is wider
 * than f32 goes through an f32 rounded to odd, whose last bit is set when anything was lost: the rounding that
 * follows is then the only one.
 */
#include "backends/kb/internal.h"

#include "ir/support/compiler.h"

static bool is_small(enum kb_scalar s)
{
	return s == KB_F16 || s == KB_BF16;
}

static struct kb_val constant(struct kb *k, struct kb_val like, int32_t c)
{
	return kb_splat(k, kb_i32(k, c), kb_typeof(k, like).lanes);
}

/* a op c, of i32 */
static struct kb_val with(struct kb *k, enum kb_bin op, struct kb_val a, int32_t c)
{
	return kb_bin(k, op, a, constant(k, a, c));
}

static struct kb_val compare(struct kb *k, enum kb_cmp op, struct kb_val a, int32_t c)
{
	return kb_cmp(k, op, a, constant(k, a, c));
}

static struct kb_val choose(struct kb *k, struct kb_val is, int32_t a, int32_t b)
{
	struct kb_val first = constant(k, is, a);
	return kb_select(k, is, first, constant(k, is, b));
}

/* The 16 bits of a small float as i32. */
static struct kb_val wide_bits(struct kb *k, struct kb_val v)
{
	return kb_cvt(k, kb_bitcast(k, v, KB_U16), KB_I32);
}

static struct kb_val narrow_bits(struct kb *k, struct kb_val bits, enum kb_scalar to)
{
	return kb_bitcast(k, kb_cvt(k, bits, KB_U16), to);
}

static struct kb_val bf16_to_f32(struct kb *k, struct kb_val v)
{
	return kb_bitcast(k, with(k, KB_SHL, wide_bits(k, v), 16), KB_F32);
}

/* Adds half of the last kept bit, minus one when that bit is even. */
static struct kb_val f32_to_bf16(struct kb *k, struct kb_val v)
{
	struct kb_val bits = kb_bitcast(k, v, KB_I32);
	struct kb_val high = with(k, KB_SHR, bits, 16);
	struct kb_val sum = kb_add(k, bits, with(k, KB_AND, high, 1));
	struct kb_val rounded = with(k, KB_SHR, with(k, KB_ADD, sum, 0x7fff), 16);
	struct kb_val is_nan = kb_cmp(k, KB_NE, v, v);
	struct kb_val nan = with(k, KB_OR, high, 0x40);
	return narrow_bits(k, kb_select(k, is_nan, nan, rounded), KB_BF16);
}

/* Moves sign, exponent and fraction to their f32 places and multiplies by 2^112, which is exact, denormals
 * included; what has the largest exponent gets that of f32. */
static struct kb_val f16_to_f32(struct kb *k, struct kb_val v)
{
	struct kb_val high = with(k, KB_SHL, wide_bits(k, v), 16);
	struct kb_val moved = with(k, KB_AND, with(k, KB_SAR, high, 3), -0x70002000);
	struct kb_val scale = kb_splat(k, kb_f32(k, 0x1p112f), kb_typeof(k, v).lanes);
	struct kb_val finite = kb_bitcast(k, kb_mul(k, kb_bitcast(k, moved, KB_F32), scale), KB_I32);
	struct kb_val is_special = compare(k, KB_EQ, with(k, KB_AND, moved, 0x0f800000), 0x0f800000);
	struct kb_val special = choose(k, is_special, 0x7f800000, 0);
	return kb_bitcast(k, kb_bin(k, KB_OR, finite, special), KB_F32);
}

/* Magnitudes below 2^-14 round in a float addition whose last bit is the last bit of a denormal f16. */
static struct kb_val small_to_f16(struct kb *k, struct kb_val magnitude)
{
	struct kb_val half =
	        kb_splat(k, kb_f32(k, 0.5f), kb_typeof(k, magnitude).lanes); /* its last bit: 2^-24 */
	struct kb_val sum = kb_add(k, kb_bitcast(k, magnitude, KB_F32), half);
	return with(k, KB_SUB, kb_bitcast(k, sum, KB_I32), 0x3f000000);
}

static struct kb_val f32_to_f16(struct kb *k, struct kb_val v)
{
	struct kb_val bits = kb_bitcast(k, v, KB_I32);
	struct kb_val sign = with(k, KB_AND, with(k, KB_SHR, bits, 16), 0x8000);
	struct kb_val magnitude = with(k, KB_AND, bits, 0x7fffffff);
	struct kb_val odd = with(k, KB_AND, with(k, KB_SHR, magnitude, 13), 1);
	/* exponent bias 127 becomes 15, then half of the last kept bit, minus one when that bit is even */
	struct kb_val moved = with(k, KB_ADD, magnitude, -(112 << 23) + 0xfff);
	struct kb_val normal = with(k, KB_SHR, kb_add(k, moved, odd), 13);
	struct kb_val is_small = compare(k, KB_LT, magnitude, 0x38800000);
	struct kb_val finite = kb_select(k, is_small, small_to_f16(k, magnitude), normal);
	struct kb_val is_nan = compare(k, KB_GT, magnitude, 0x7f800000);
	struct kb_val special = choose(k, is_nan, 0x7e00, 0x7c00);
	struct kb_val is_large = compare(k, KB_GE, magnitude, 0x47800000);
	struct kb_val all = kb_select(k, is_large, special, finite);
	return narrow_bits(k, kb_bin(k, KB_OR, sign, all), KB_F16);
}

/* v as f32, rounded to odd: the nearest f32, one step back where it lies farther from zero than v. */
static struct kb_val to_odd_f32(struct kb *k, struct kb_val v)
{
	struct kb_type type = kb_typeof(k, v);
	struct kb_val near = kb_cvt(k, v, KB_F32);
	struct kb_val back = kb_cvt(k, near, type.scalar);
	struct kb_val zero = kb_splat(k, kb_cvt(k, kb_i32(k, 0), type.scalar), type.lanes);
	struct kb_val less = kb_cmp(k, KB_LT, back, v), more = kb_cmp(k, KB_GT, back, v);
	struct kb_val away = kb_select(k, kb_cmp(k, KB_LT, v, zero), less, more);
	struct kb_val lost = kb_cvt(k, kb_bin(k, KB_OR, less, more), KB_I32);
	struct kb_val bits = kb_bitcast(k, near, KB_I32);
	struct kb_val toward = kb_sub(k, bits, kb_cvt(k, away, KB_I32));
	return kb_bitcast(k, kb_bin(k, KB_OR, toward, lost), KB_F32);
}

static bool is_wide(enum kb_scalar s)
{
	return s == KB_I32 || s == KB_I64 || s == KB_INDEX || s == KB_F64;
}

/* Integers that an f32 does not hold are infinite in f16. */
static bool needs_odd(enum kb_scalar from, enum kb_scalar to)
{
	return from == KB_F64 || (to == KB_BF16 && is_wide(from));
}

static struct kb_val convert(struct kb *k, struct kb_val v, enum kb_scalar to, bool has_f16)
{
	enum kb_scalar from = kb_typeof(k, v).scalar;
	if (from == KB_BF16)
		v = bf16_to_f32(k, v);
	else if (from == KB_F16)
		v = has_f16 ? kb_cvt(k, v, KB_F32) : f16_to_f32(k, v);
	if (!is_small(to))
		return kb_cvt(k, v, to);
	v = needs_odd(from, to) ? to_odd_f32(k, v) : kb_cvt(k, v, KB_F32);
	if (to == KB_BF16)
		return f32_to_bf16(k, v);
	return has_f16 ? kb_cvt(k, v, KB_F16) : f32_to_f16(k, v);
}

/* ---- the function ---- */

static bool has_conversion(enum kb_scalar from, enum kb_scalar to, bool has_f16)
{
	bool native = (from == KB_F16 && to == KB_F32) || (from == KB_F32 && to == KB_F16);
	return !(is_small(from) || is_small(to)) || (has_f16 && native);
}

static bool is_legal(const struct kb_func *f, const struct kb_inst *i, const struct kb_caps *has)
{
	switch (i->op) {
	case KBO_CVT:
		if (i->flags & KB_FACTOR)
			return has->has_dot_bf16 && i->type.lanes >= 4;
		return has_conversion(f->types[i->args[0].id].scalar, i->type.scalar, has->has_f16);
	case KBO_NEAREST: return has->has_nearest && i->type.lanes >= 4;
	case KBO_DOT: return kb_has_dot(has, i->dot) && i->type.lanes >= 4;
	default: return true;
	}
}

/* What stands for an instruction that is not legal; its operands are those of the new function. */
static struct kb_val written_out(struct kb *k, const struct kb_inst *i, const struct kb_val *args,
                                 const struct kb_caps *has)
{
	static const struct kb_caps none;
	if (i->op == KBO_NEAREST)
		return kb_write_nearest(k, args[0]);
	if (i->op == KBO_DOT)
		return kb_write_dot(k, i->dot, args, i->type.lanes >= 4 ? has : &none);
	return convert(k, args[0], i->type.scalar, has->has_f16);
}

/* The function under construction again, with the values of f and no instruction. */
static bool reopen(struct kb *k, const struct kb_func *f)
{
	for (size_t i = 0; i < f->n_values; i++) {
		struct kb_type *type = ARENA_PUSH(k->module->arena, &k->types);
		if (!type || !ARENA_PUSH(k->module->arena, &k->defs))
			return false;
		*type = f->types[i];
	}
	return true;
}

static void copy(struct kb *k, const struct kb_inst *i, const uint32_t *now)
{
	struct kb_inst *to = ARENA_PUSH(k->module->arena, &k->insts);
	struct kb_val *args = ARENA_ARRAY(k->module->arena, struct kb_val, i->n_args + 1);
	if (!to || !args)
		return;
	for (size_t a = 0; a < i->n_args; a++)
		args[a].id = now[i->args[a].id];
	*to = *i;
	to->args = args;
	if (i->result && i->op != KBO_VAR)
		k->defs.items[i->result] = (uint32_t)(k->insts.n - 1);
}

const struct kb_func *kb_legalize(const struct kb_func *f, struct arena *arena, const struct kb_caps *has)
{
	size_t first = 0;
	while (first < f->n_insts && is_legal(f, &f->insts[first], has))
		first++;
	if (first == f->n_insts)
		return f;
	struct kb_module module = {.arena = arena};
	struct kb k = {.module = &module, .func = ARENA_NEW(arena, struct kb_func)};
	uint32_t *now = ARENA_ARRAY(arena, uint32_t, f->n_values); /* by id in f: what stands for it */
	if (!k.func || !now || !reopen(&k, f))
		return f;
	*k.func = *f;
	for (uint32_t id = 0; id < f->n_values; id++)
		now[id] = id;
	for (size_t at = 0; at < f->n_insts; at++) {
		const struct kb_inst *i = &f->insts[at];
		struct kb_val args[3] = {{0}};
		if (is_legal(f, i, has)) {
			copy(&k, i, now);
			continue;
		}
		for (size_t a = 0; a < i->n_args && a < TFMC_COUNT(args); a++)
			args[a].id = now[i->args[a].id];
		now[i->result] = written_out(&k, i, args, has).id;
	}
	k.func->insts = k.insts.items;
	k.func->n_insts = k.insts.n;
	k.func->types = k.types.items;
	k.func->n_values = k.types.n;
	return k.func;
}
