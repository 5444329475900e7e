/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: ops that compute an element from single elements of their operands. A result of a dtype narrower than
 * the type it is computed in is rounded after every op, so that fused and separate ops give the same bits. A value at
 * point p is a vector of e->lanes neighbours along axis p->vec, or a scalar if p->vec is -1.
 *
 * Floor division, floor modulo (Python's // and %), integer power: integer division never traps, since divisors 0 and
 * -1 are replaced by 1 and a select fixes the result; f32 is divided in integers, since OpenCL C may lack f64 and fma.
 *
 * RoPE: a rotated feature is x cos + partner (+-sin), one product and one fma for any number of lanes, so that the
 * bits do not depend on the vector width. The table [positions, D] has D/2 cosines, then D/2 sines. Layouts: pairs of
 * features (n, n + D/2), halves, or (2n, 2n + 1), interleaved. Features from D on are copied.
 *
 * Views and movement are index arithmetic: the operand at the point that the op shows. Where lanes are not neighbours
 * in the operand, each lane is evaluated as a scalar (eval_per_lane). p->flat, the row number, is dropped where the
 * operand has other rows. p->shifted: a vector need not begin at a multiple of the lanes.
 */
#include "backends/kb/math.h"
#include "backends/kernels/eval.h"

#include <math.h>

/* ---- division and powers ---- */

/* Constant v in the type and lanes of `like`. */
static struct kb_val constant(struct kb *k, struct kb_val like, int64_t v)
{
	struct kb_type t = kb_type_of(k, like);
	struct kb_val c = t.scalar == KB_F32   ? kb_f32(k, (float)v)
	                  : t.scalar == KB_F64 ? kb_f64(k, (double)v)
	                  : t.scalar == KB_I64 ? kb_i64(k, v)
	                                       : kb_i32(k, (int32_t)v);
	return kb_splat(k, c, t.lanes);
}

/* True where x and y have different signs; false where one is 0 or NaN. Floor division differs from truncation exactly
 * there. */
static struct kb_val differ_in_sign(struct kb *k, struct kb_val x, struct kb_val y)
{
	struct kb_val zero = constant(k, x, 0);
	struct kb_val above = kb_cmp(k, KB_GT, y, zero);
	struct kb_val down = kb_bin(k, KB_AND, kb_cmp(k, KB_LT, x, zero), above);
	struct kb_val below = kb_cmp(k, KB_LT, y, zero);
	struct kb_val up = kb_bin(k, KB_AND, kb_cmp(k, KB_GT, x, zero), below);
	return kb_bin(k, KB_OR, down, up);
}

/* f64 floor division. r = fma(-q, b, a) is the exact remainder for q = floor(a / b); where its sign differs from that
 * of b, the rounded quotient was one too large. is_mod: returns the remainder instead of the quotient, which has the
 * sign of b. */
static struct kb_val divide_f64(struct kb *k, bool is_mod, struct kb_val a, struct kb_val b)
{
	struct kb_val zero = constant(k, a, 0), q = kb_un(k, KB_FLOOR, kb_bin(k, KB_DIV, a, b));
	struct kb_val r = kb_fma(k, kb_un(k, KB_NEG, q), b, a);
	r = kb_select(k, kb_cmp(k, KB_EQ, q, zero), a, r); /* 0 * b is NaN for an infinite b */
	struct kb_val is_too_large = differ_in_sign(k, r, b);
	if (is_mod)
		return kb_select(k, is_too_large, kb_add(k, r, b), r);
	return kb_select(k, is_too_large, kb_sub(k, q, constant(k, q, 1)), q);
}

/*
 * f32 quotient and remainder in integers (as fmodf of C libraries), because OpenCL C may lack f64 and fma.
 * |v| = mantissa * 2^(exponent - 150).
 */
struct float_bits {
	struct kb_val mantissa; /* i64, below 2^24; of a divisor at least 1 */
	struct kb_val exponent; /* i32, at least 1 */
};

#define SHIFT_MAX 38 /* largest shift of a mantissa that fits i64 */

/* The mantissa (with the implicit bit) and exponent of |v|. A denormal has no implicit bit, and the exponent of the
 * least normal number. */
static struct float_bits decompose(struct kb *k, struct kb_val v)
{
	struct kb_val bits = kb_bitcast(k, kb_un(k, KB_ABS, v), KB_I32), one = constant(k, bits, 1);
	struct kb_val exponent = kb_bin(k, KB_SHR, bits, constant(k, bits, 23));
	struct kb_val fraction = kb_bin(k, KB_AND, bits, constant(k, bits, 0x7fffff));
	struct kb_val normal =
	        kb_bin(k, KB_OR, fraction, constant(k, bits, 0x800000)); /* with the implicit bit */
	struct kb_val is_denormal = kb_cmp(k, KB_LT, exponent, one);
	struct kb_val mantissa = kb_cvt(k, kb_select(k, is_denormal, fraction, normal), KB_I64);
	return (struct float_bits){mantissa, kb_select(k, is_denormal, one, exponent)};
}

/* A mantissa of 0 becomes 1, so that no division traps; is_divisible selects another result then. */
static struct float_bits decompose_divisor(struct kb *k, struct kb_val b)
{
	struct float_bits p = decompose(k, b);
	struct kb_val one = constant(k, p.mantissa, 1);
	p.mantissa = kb_bin(k, KB_MAX, p.mantissa, one);
	return p;
}

/* True where a is finite and b neither 0 nor NaN; b may be infinite. */
static struct kb_val is_divisible(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val infinite = kb_splat(k, kb_f32(k, HUGE_VALF), kb_type_of(k, a).lanes);
	struct kb_val finite = kb_cmp(k, KB_LT, kb_un(k, KB_ABS, a), infinite);
	struct kb_val zero = constant(k, b, 0);
	return kb_bin(k, KB_AND, finite, kb_cmp(k, KB_GT, kb_un(k, KB_ABS, b), zero));
}

/* |a| < |b| */
static struct kb_val is_smaller(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val limit = kb_un(k, KB_ABS, b);
	return kb_cmp(k, KB_LT, kb_un(k, KB_ABS, a), limit);
}

/* mantissa * 2^(exponent - 150) as f32, for mantissas below 2^24 (exact), composed from its bits, since OpenCL devices
 * may flush denormal products to zero: the scale is added to the exponent of the converted mantissa. If the result's
 * exponent (high) is not above 0 it is denormal: the mantissa is shifted into place. 0 stays 0. */
static struct kb_val compose(struct kb *k, struct kb_val mantissa, struct kb_val exponent)
{
	struct kb_val m = kb_cvt(k, mantissa, KB_I32), zero = constant(k, m, 0);
	struct kb_val bits = kb_bitcast(k, kb_cvt(k, m, KB_F32), KB_I32);
	struct kb_val scale = kb_sub(k, exponent, constant(k, exponent, 150));
	struct kb_val high = kb_add(k, kb_bin(k, KB_SHR, bits, constant(k, bits, 23)), scale);
	struct kb_val normal = kb_add(k, bits, kb_bin(k, KB_SHL, scale, constant(k, bits, 23)));
	struct kb_val most = constant(k, exponent, 23);
	struct kb_val by = kb_bin(k, KB_MIN, kb_sub(k, exponent, constant(k, exponent, 1)), most);
	struct kb_val denormal = kb_bin(k, KB_SHL, m, by);
	bits = kb_select(k, kb_cmp(k, KB_GT, high, zero), normal, denormal);
	return kb_bitcast(k, kb_select(k, kb_cmp(k, KB_EQ, m, zero), zero, bits), KB_F32);
}

/* a mod b, with the sign of b. Long division of the mantissas: each iteration reduces SHIFT_MAX (38) bits of the
 * quotient, as many as a shifted mantissa in i64 allows, until no lane has any left. Exact. |a| < |b|: the remainder
 * is a. */
static struct kb_val mod_f32_in_ints(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct float_bits x = decompose(k, a), y = decompose_divisor(k, b);
	struct kb_val zero = constant(k, x.exponent, 0), most = constant(k, x.exponent, SHIFT_MAX);
	struct kb_val bits = kb_bin(k, KB_MAX, kb_sub(k, x.exponent, y.exponent), zero);
	struct kb_var left = kb_var(k, "left", kb_type_of(k, bits), bits);
	struct kb_var rem = kb_var(k, "rem", kb_type_of(k, x.mantissa), x.mantissa);
	kb_forever(k);
	struct kb_val n = kb_get(k, left), by = kb_bin(k, KB_MIN, n, most);
	struct kb_val distance = kb_cvt(k, by, KB_I64);
	struct kb_val shifted = kb_bin(k, KB_SHL, kb_get(k, rem), distance);
	kb_set(k, rem, kb_bin(k, KB_REM, shifted, y.mantissa));
	n = kb_sub(k, n, by);
	kb_set(k, left, n);
	bool is_vector = kb_type_of(k, n).lanes > 1;
	kb_break_if(k, kb_cmp(k, KB_LE, is_vector ? kb_reduce(k, KB_MAX, n) : n, kb_i32(k, 0)));
	kb_end_forever(k);
	struct kb_val r = compose(k, kb_get(k, rem), y.exponent);
	struct kb_val negative = kb_un(k, KB_NEG, r);
	r = kb_select(k, kb_cmp(k, KB_LT, a, constant(k, a, 0)), negative, r);
	r = kb_select(k, is_smaller(k, a, b), a, r);
	struct kb_val other = kb_add(k, r, b);
	return kb_select(k, differ_in_sign(k, r, b), other, r);
}

/* floor(a / b), rounded once, by one division of mantissas, a's shifted by the difference of exponents; `rounded`, the
 * floor of the f32 quotient, if that shift is beyond SHIFT_MAX: the quotient is then above 2^24, where every f32 is an
 * integer. Inexact negative quotients go down by 1. */
static struct kb_val floor_div_f32_in_ints(struct kb *k, struct kb_val a, struct kb_val b,
                                           struct kb_val rounded)
{
	struct float_bits x = decompose(k, a), y = decompose_divisor(k, b);
	struct kb_val shift = kb_sub(k, x.exponent, y.exponent), most = constant(k, shift, SHIFT_MAX);
	struct kb_val by = kb_bin(k, KB_MIN, kb_bin(k, KB_MAX, shift, constant(k, shift, 0)), most);
	struct kb_val shifted = kb_bin(k, KB_SHL, x.mantissa, kb_cvt(k, by, KB_I64));
	struct kb_val q = kb_bin(k, KB_DIV, shifted, y.mantissa), zero = constant(k, q, 0);
	struct kb_val is_below_one = is_smaller(k, a, b), one = constant(k, q, 1);
	q = kb_select(k, is_below_one, zero, q);
	struct kb_val is_exact = kb_cmp(k, KB_EQ, kb_mul(k, q, y.mantissa), shifted);
	struct kb_val negative = kb_sub(k, zero, kb_select(k, is_exact, q, kb_add(k, q, one)));
	q = kb_cvt(k, kb_select(k, differ_in_sign(k, a, b), negative, q), KB_F32);
	return kb_select(k, kb_cmp(k, KB_GT, shift, most), rounded, q);
}

/* floor(a / b), with is_mod a mod b, in integers. Where a is not finite, or b is 0 or NaN: what f32 division gives, or
 * NaN for mod. */
static struct kb_val divide_f32(struct kb *k, bool is_mod, struct kb_val a, struct kb_val b)
{
	struct kb_val rounded = kb_un(k, KB_FLOOR, kb_bin(k, KB_DIV, a, b)), ok = is_divisible(k, a, b);
	if (is_mod) {
		struct kb_val nan = kb_splat(k, kb_f32(k, NAN), kb_type_of(k, a).lanes);
		return kb_select(k, ok, mod_f32_in_ints(k, a, b), nan);
	}
	return kb_select(k, ok, floor_div_f32_in_ints(k, a, b, rounded), rounded);
}

/* Truncating division corrected to floor. Divisors 0 and -1 are replaced by 1, so that nothing traps: remainder 0;
 * quotients 0 and -a (wraps). */
static struct kb_val divide_int(struct kb *k, bool is_mod, struct kb_val a, struct kb_val b)
{
	struct kb_val zero = constant(k, a, 0), one = constant(k, a, 1);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, b, zero), is_minus = kb_cmp(k, KB_EQ, b, constant(k, a, -1));
	struct kb_val by = kb_select(k, kb_bin(k, KB_OR, is_zero, is_minus), one, b);
	struct kb_val r = kb_bin(k, KB_REM, a, by), is_too_large = differ_in_sign(k, r, by);
	if (is_mod)
		return kb_select(k, is_too_large, kb_add(k, r, by), r);
	struct kb_val q = kb_bin(k, KB_DIV, a, by);
	q = kb_select(k, is_too_large, kb_sub(k, q, one), q);
	q = kb_select(k, is_minus, kb_sub(k, zero, a), q);
	return kb_select(k, is_zero, zero, q);
}

/* floor_div and mod of a and b, by the type that they are computed in. */
static struct kb_val eval_floor_division(struct eval *e, const struct ir_op *op, struct kb_val a,
                                         struct kb_val b)
{
	enum kb_scalar s = kb_type_of(e->k, a).scalar;
	bool is_mod = op->code == OP_mod;
	if (s == KB_F32)
		return divide_f32(e->k, is_mod, a, b);
	return s == KB_F64 ? divide_f64(e->k, is_mod, a, b) : divide_int(e->k, is_mod, a, b);
}

/* Significant bits of a nonnegative exponent of the dtype: the number of squarings. */
static int64_t exponent_bits(enum ir_dtype t)
{
	return 8 * (int64_t)ir_dtype_bytes(t) - (t == DT_U8 ? 0 : 1);
}

/* pow of integers. Exponentiation by squaring, lowest bit of the exponent first, as many steps as the dtype has bits;
 * wraps. A negative exponent gives the inverse rounded to 0, except for bases 1 and -1, whose inverses are integers. */
static struct kb_val eval_int_power(struct eval *e, const struct ir_op *op, struct kb_val a, struct kb_val b)
{
	struct kb *k = e->k;
	struct kb_type t = kb_type_of(k, a);
	struct kb_val zero = constant(k, a, 0), one = constant(k, a, 1), minus = constant(k, a, -1);
	struct kb_val is_odd = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, b, one), zero);
	struct kb_val sign = kb_select(k, is_odd, minus, one);
	struct kb_var base = kb_var(k, "base", t, a), left = kb_var(k, "left", t, b);
	struct kb_var result = kb_var(k, "power", t, one);
	int64_t bits = exponent_bits(eval_type(e, eval_result(op))->dtype);
	(void)kb_loop(k, "bit", kb_index(k, 0), kb_index(k, bits), 1, 0);
	struct kb_val n = kb_get(k, left), x = kb_get(k, base), y = kb_get(k, result);
	struct kb_val is_set = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, n, one), zero);
	kb_set(k, result, kb_select(k, is_set, kb_mul(k, y, x), y));
	kb_set(k, base, kb_mul(k, x, x));
	kb_set(k, left, kb_bin(k, KB_SHR, n, one));
	kb_end_loop(k);
	struct kb_val inverse = kb_select(k, kb_cmp(k, KB_EQ, a, one), one, zero);
	inverse = kb_select(k, kb_cmp(k, KB_EQ, a, minus), sign, inverse);
	struct kb_val power = kb_get(k, result);
	return kb_select(k, kb_cmp(k, KB_LT, b, zero), inverse, power);
}

/* ---- RoPE ---- */

struct rope {
	struct eval *e;
	const struct ir_op *op;
	const struct eval_point *p;
	enum kb_scalar scalar; /* type of the arithmetic, that of x */
	int64_t rotated;       /* D: number of rotated features */
	bool halves; /* rotate-half layout: pairs are (n, n + D/2); otherwise interleaved: (2n, 2n + 1) */
	struct kb_val feature; /* index on the last axis */
	struct kb_val first;   /* KB_BOOL: feature is the first of its pair */
};

/* The size of an axis of v that is a constant: the table of a rope and the features of x. */
static int64_t constant_axis(const struct eval *e, struct ir_value v, int axis)
{
	int64_t n = 0;
	(void)ir_dim_is_const(eval_type(e, v)->dims[axis], &n); /* the verifier of the IR requires it */
	return n;
}

bool eval_rope_vectorizes(const struct eval *e, const struct ir_op *op, int lanes)
{
	bool halves = ((const struct attrs_rope *)op->attrs)->layout == ROPE_halves;
	int64_t rotated = constant_axis(e, op->operands[1], 1);
	return halves ? rotated / 2 % lanes == 0 : lanes % 2 == 0 && rotated % lanes == 0;
}

/* x at `feature`, in the lanes of p. */
static struct kb_val x_at(const struct rope *r, struct kb_val feature)
{
	struct eval_point at = *r->p;
	struct kb_val v;
	at.index[at.rank - 1] = feature;
	v = eval_value(r->e, r->op->operands[0], &at);
	return r->p->vec < 0 ? v : kb_splat(r->e->k, v, r->e->lanes);
}

/* Column of the table (a cosine or sine), in the lanes of p. */
static struct kb_val table_at(const struct rope *r, struct kb_val row, struct kb_val column)
{
	struct eval_point at = {.rank = 2, .index = {row, column}, .vec = r->p->vec < 0 ? -1 : 1};
	struct kb_val v = kb_cvt(r->e->k, eval_value(r->e, r->op->operands[1], &at), r->scalar);
	return r->p->vec < 0 ? v : kb_splat(r->e->k, v, r->e->lanes);
}

/* The row of the table for the position of p: operand 2 [B, S] at its batch entry and token, clamped to the table. */
static struct kb_val table_row(const struct rope *r)
{
	struct eval_point at = {.rank = 2, .vec = -1};
	at.index[0] = r->p->index[0];
	at.index[1] = r->p->index[r->p->rank - 2];
	struct kb_val position = eval_value(r->e, r->op->operands[2], &at);
	return eval_clamp_index(r->e, position, eval_dim(r->e, eval_type(r->e, r->op->operands[1])->dims[0]));
}

/* -1 for the first feature of a pair, 1 for the second. */
static struct kb_val sine_sign(const struct rope *r)
{
	struct eval_point one = {.vec = -1};
	struct kb_val minus = eval_const(r->e, &one, r->scalar, -1),
	              plus = eval_const(r->e, &one, r->scalar, 1);
	struct kb_val s = kb_select(r->e->k, r->first, minus, plus);
	return r->p->vec < 0 ? s : kb_splat(r->e->k, s, r->e->lanes);
}

/* A shuffle: lane j is lane from + j / 2 * by + j % 2 * odd of the concatenation of a and b (b may be none). */
static struct kb_val shuffle_pairs(const struct rope *r, struct kb_val a, struct kb_val b, int from, int by,
                                   int odd)
{
	int lanes[KB_LANES_MAX];
	for (int j = 0; j < r->e->lanes; j++)
		lanes[j] = from + j / 2 * by + j % 2 * odd;
	return kb_shuffle(r->e->k, a, b, lanes, r->e->lanes);
}

/*
 * A vector of interleaved pairs needs lanes/2 cosines and sines, but full vectors are loaded: the cosines are the low
 * half of the one that begins at column i/2, the sines the high half of the one that ends at column (i + lanes)/2 +
 * D/2, so that neither load leaves the row of the table.
 */
static struct kb_val rotate_interleaved_vector(const struct rope *r)
{
	struct kb *k = r->e->k;
	int lanes = r->e->lanes;
	struct eval_point one = {.vec = -1};
	struct kb_val x = x_at(r, r->feature), row = table_row(r);
	struct kb_val pair = kb_div_const(k, r->feature, 2);
	struct kb_val cosine = table_at(r, row, pair);
	struct kb_val sine = table_at(r, row, kb_add_const(k, pair, (r->rotated - lanes) / 2));
	struct kb_val minus = kb_splat(k, eval_const(r->e, &one, r->scalar, -1), lanes);
	struct kb_val plus = kb_splat(k, eval_const(r->e, &one, r->scalar, 1), lanes);
	const struct kb_val none = {0};
	cosine = shuffle_pairs(r, cosine, none, 0, 1, 0);
	sine = shuffle_pairs(r, sine, none, lanes / 2, 1, 0);
	struct kb_val signs = shuffle_pairs(r, minus, plus, 0, 0, lanes),
	              partner = shuffle_pairs(r, x, none, 1, 2, -1);
	struct kb_val straight = kb_mul(k, x, cosine);
	struct kb_val across = kb_mul(k, sine, signs);
	return kb_fma(k, partner, across, straight);
}

/* The rotated value of a feature below D (or a vector in one half of the features): partner is the other feature of its
 * pair, `pair` the column of its cosine; its sine is D/2 after. Sine is negated for the first of a pair. */
static struct kb_val rotate(struct rope *r)
{
	struct kb *k = r->e->k;
	int64_t half = r->rotated / 2;
	struct kb_val i = r->feature, two = kb_index(k, 2), pair;
	if (!r->halves && r->p->vec >= 0 && r->e->lanes > 1)
		return rotate_interleaved_vector(r);
	if (r->halves) {
		r->first = kb_cmp(k, KB_LT, i, kb_index(k, half));
		pair = kb_select(k, r->first, i, kb_add_const(k, i, -half));
	} else {
		r->first = kb_cmp(k, KB_EQ, kb_bin(k, KB_REM, i, two), kb_index(k, 0));
		pair = kb_bin(k, KB_DIV, i, two);
	}
	int64_t step = r->halves ? half : 1;
	struct kb_val before = kb_add_const(k, i, -step);
	struct kb_val partner = kb_select(k, r->first, kb_add_const(k, i, step), before);
	struct kb_val row = table_row(r);
	struct kb_val cosine = table_at(r, row, pair), sine = table_at(r, row, kb_add_const(k, pair, half));
	struct kb_val straight = kb_mul(k, x_at(r, i), cosine);
	struct kb_val across = kb_mul(k, sine, sine_sign(r));
	return kb_fma(k, x_at(r, partner), across, straight);
}

/* Partial rotary embedding: features from D on are copied, the others rotated under a condition, which is the same for
 * all lanes, since a vector does not cross D (eval_rope_vectorizes). */
static struct kb_val rotate_below_d(struct rope *r)
{
	struct kb *k = r->e->k;
	struct kb_var to =
	        kb_var(k, "rope", KB_TYPE(r->scalar, r->p->vec < 0 ? 1 : r->e->lanes), x_at(r, r->feature));
	size_t mark = eval_mark(r->e);
	kb_if(k, kb_cmp(k, KB_LT, r->feature, kb_index(k, r->rotated)));
	kb_set(k, to, rotate(r));
	kb_end_if(k);
	eval_release(r->e, mark);
	return kb_get(k, to);
}

/* The value of op's result at p, each valid lane evaluated as a scalar: for lanes that are not neighbours in the
 * operands. Lanes along another axis than the last are in different rows, so the row number is dropped. */
static struct kb_val eval_per_lane(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb_val lane[KB_LANES_MAX];
	for (int l = 0; l < e->valid; l++) {
		struct eval_point at = *p;
		at.vec = -1;
		at.index[p->vec] = kb_add_const(e->k, p->index[p->vec], l);
		if (p->vec != p->rank - 1)
			at.flat = (struct kb_val){0};
		lane[l] = eval_value(e, eval_result(op), &at);
	}
	return eval_build_vector(e, lane);
}

/* By vectors only along the last axis, if no vector crosses from one half (or pair) to the other. */
struct kb_val eval_rope(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	int last = p->rank - 1;
	struct rope r = {.e = e, .op = op, .p = p};
	bool along = p->vec == last && !p->shifted && eval_rope_vectorizes(e, op, e->lanes);
	if (p->vec >= 0 && e->lanes > 1 && !along)
		return eval_per_lane(e, op, p);
	r.scalar = eval_scalar(eval_type(e, op->operands[0])->dtype);
	r.rotated = constant_axis(e, op->operands[1], 1);
	r.halves = ((const struct attrs_rope *)op->attrs)->layout == ROPE_halves;
	r.feature = p->index[last];
	return r.rotated < constant_axis(e, op->operands[0], last) ? rotate_below_d(&r) : rotate(&r);
}

/* ---- views and movement ---- */

/* Number of trailing axes of equal size of both shapes: a reshape leaves their indices unchanged. */
static int common_tail(const struct ir_type *a, const struct ir_type *b)
{
	int n = 0;
	while (n < a->rank && n < b->rank && a->dims[a->rank - 1 - n] == b->dims[b->rank - 1 - n])
		n++;
	return n;
}

/* ---- axes ---- */

/* The operand's axis along which lanes run: the same in the common tail. Before it only the axis next to it can be:
 * lanes stay neighbours if the operand's axis is a multiple of it, so that no vector crosses its end. -2: they do
 * not. */
static int reshape_axis(struct eval *e, const struct ir_type *from, const struct ir_type *to, int axis)
{
	int tail = common_tail(from, to);
	int head = to->rank - tail, source = from->rank - tail;
	if (axis >= head)
		return axis - head + source;
	if (axis != head - 1 || source == 0)
		return -2;
	bool is_multiple =
	        ir_dim_divide(e->job->module->dims, from->dims[source - 1], to->dims[axis]) != NULL;
	return is_multiple ? source - 1 : -2;
}

/* The operand's axis, from the right; -1: an axis that is added or repeated, so that all lanes read one element. */
static int broadcast_axis(const struct ir_type *from, const struct ir_type *to, int axis)
{
	int source = axis - (to->rank - from->rank);
	if (source < 0 || from->dims[source] != to->dims[axis])
		return -1;
	return source;
}

int eval_view_axis(struct eval *e, const struct ir_op *op, int axis)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	if (axis < 0)
		return -1;
	switch ((int)op->code) {
	case OP_reshape: return reshape_axis(e, from, to, axis);
	case OP_broadcast: return broadcast_axis(from, to, axis);
	case OP_transpose: return (int)((const struct attrs_transpose *)op->attrs)->perm.items[axis];
	case OP_slice: return axis;
	}
	return -2;
}

/* ---- points ---- */

/* Sets out's indices. Axes before the common tail go through the row-major position in them, which both shapes share.
 * Rows stay the same if there is a tail, so their number does. */
static void reshape_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                          struct eval_point *out)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	int tail = common_tail(from, to);
	int head = to->rank - tail, source = from->rank - tail;
	struct kb_val size[IR_RANK_MAX], at = kb_index(e->k, 0);
	for (int i = 0; i < head; i++)
		at = kb_add(e->k, kb_mul(e->k, at, eval_dim(e, to->dims[i])), p->index[i]);
	for (int i = 0; i < source; i++)
		size[i] = eval_dim(e, from->dims[i]);
	eval_unravel(e, at, size, source, out->index);
	for (int i = 0; i < tail; i++)
		out->index[source + i] = p->index[head + i];
	if (tail > 0)
		out->flat = p->flat;
}

/* Leaves out the axes that a broadcast adds; on those that it repeats the index is 0. */
static void broadcast_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                            struct eval_point *out)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	int added = to->rank - from->rank;
	for (int i = 0; i < from->rank; i++) {
		bool same = from->dims[i] == to->dims[i + added];
		out->index[i] = same ? p->index[i + added] : kb_index(e->k, 0);
	}
}

/* True if a vector along `axis` may begin at any index of the operand, not only at multiples of the lanes: a slice
 * begins anywhere, and before the common tail a reshape changes indices. */
static bool may_misalign(struct eval *e, const struct ir_op *op, int axis)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	if (op->code == OP_reshape)
		return axis >= 0 && axis < to->rank - common_tail(from, to);
	return op->code == OP_slice && axis == (int)((const struct attrs_slice *)op->attrs)->axis;
}

/* Sets *out by the inverse of each view. Axis -2 with one lane is no problem: the point is a scalar. */
bool eval_view_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                     struct eval_point *out)
{
	const struct attrs_slice *slice = op->attrs;
	const struct attrs_transpose *transpose = op->attrs;
	*out = (struct eval_point){.rank = eval_type(e, op->operands[0])->rank};
	out->vec = eval_view_axis(e, op, p->vec);
	if (out->vec == -2 && e->lanes > 1)
		return false;
	out->shifted = p->shifted || may_misalign(e, op, p->vec);
	if (op->code == OP_reshape)
		reshape_point(e, op, p, out);
	if (op->code == OP_broadcast)
		broadcast_point(e, op, p, out);
	for (int i = 0; op->code == OP_transpose && i < p->rank; i++)
		out->index[transpose->perm.items[i]] = p->index[i];
	for (int i = 0; op->code == OP_slice && i < p->rank; i++) {
		out->index[i] = p->index[i];
		if (i == (int)slice->axis)
			out->index[i] = kb_add(e->k, p->index[i], eval_dim(e, slice->begin));
	}
	if (out->vec == -2)
		out->vec = -1; /* one lane: a scalar */
	return true;
}

/* ---- movement ---- */

struct kb_val eval_clamp_index(struct eval *e, struct kb_val index, struct kb_val n)
{
	struct kb *k = e->k;
	struct kb_val top = kb_add_const(k, n, -1);
	struct kb_val i = kb_min(k, kb_cvt(k, index, KB_INDEX), top);
	return kb_max(k, i, kb_index(k, 0));
}

/* table [V, ..], ids [..]: table[ids], whose axes are those of ids, then the others of the table. ids are clamped to
 * the table, so that no id reads outside. Lanes along the ids' axes read different rows: lane by lane. */
static struct kb_val gather(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct ir_type *table = eval_type(e, op->operands[0]);
	int r = eval_type(e, op->operands[1])->rank;
	struct eval_point id = {.rank = r, .vec = -1};
	struct eval_point at = {.rank = table->rank, .vec = -1, .shifted = p->shifted};
	if (p->vec >= 0 && p->vec < r && e->lanes > 1)
		return eval_per_lane(e, op, p);
	for (int i = 0; i < r; i++)
		id.index[i] = p->index[i];
	if (p->rank == r + 1)
		id.flat = (struct kb_val){0};
	at.index[0] = eval_clamp_index(e, eval_value(e, op->operands[1], &id), eval_dim(e, table->dims[0]));
	for (int i = 1; i < table->rank; i++)
		at.index[i] = p->index[r + i - 1];
	if (p->vec >= r)
		at.vec = p->vec - r + 1;
	return eval_value(e, op->operands[0], &at);
}

/* x [B, S, ..], at [B]: x[b, at[b]], [B, ..]; at is clamped to the rows. Lanes along b: lane by lane. */
static struct kb_val select_rows(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct ir_type *x = eval_type(e, op->operands[0]);
	struct eval_point row = {.rank = 1, .vec = -1, .index = {p->index[0]}};
	struct eval_point at = {.rank = x->rank, .vec = p->vec > 0 ? p->vec + 1 : -1, .shifted = p->shifted};
	if (p->vec == 0 && e->lanes > 1)
		return eval_per_lane(e, op, p);
	at.index[0] = p->index[0];
	at.index[1] = eval_clamp_index(e, eval_value(e, op->operands[1], &row), eval_dim(e, x->dims[1]));
	for (int i = 2; i < x->rank; i++)
		at.index[i] = p->index[i - 1];
	return eval_value(e, op->operands[0], &at);
}

/* Emits: if (lo <= index[axis] < hi) to = x at index[axis] - lo. x is loaded under the condition only, since outside
 * it has no element. */
static void set_if_inside(struct eval *e, struct ir_value x, const struct eval_point *p, int axis,
                          struct kb_val lo, struct kb_val hi, struct kb_var to)
{
	struct kb *k = e->k;
	struct kb_val i = p->index[axis];
	struct kb_val is_below = kb_cmp(k, KB_LT, i, hi);
	struct kb_val inside = kb_bin(k, KB_AND, kb_cmp(k, KB_GE, i, lo), is_below);
	struct eval_point at = *p;
	size_t mark = eval_mark(e);
	kb_if(k, inside);
	at.index[axis] = kb_sub(k, i, lo);
	if (axis != p->rank - 1)
		at.flat = (struct kb_val){0};
	struct kb_val v = eval_value(e, x, &at);
	kb_set(k, to, p->vec < 0 ? v : kb_splat(k, v, e->lanes));
	kb_end_if(k);
	eval_release(e, mark);
}

/* A variable of the type of op's result in the lanes of p, set to `init`. */
static struct kb_var result_var(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                                double init)
{
	enum kb_scalar s = eval_scalar(eval_type(e, eval_result(op))->dtype);
	struct kb_type t = KB_TYPE(s, p->vec < 0 ? 1 : e->lanes);
	return kb_var(e->k, ir_op_desc(op->code)->name, t, eval_const(e, p, s, init));
}

/* x at the index less `before`, where x has one; else the value of the padding. */
static struct kb_val pad(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct attrs_pad *a = op->attrs;
	struct kb_var to = result_var(e, op, p, a->value);
	struct kb_val lo = kb_index(e->k, a->before);
	struct kb_val size = eval_dim(e, eval_type(e, op->operands[0])->dims[a->axis]);
	set_if_inside(e, op->operands[0], p, (int)a->axis, lo, kb_add(e->k, lo, size), to);
	return kb_get(e->k, to);
}

/* Each operand is evaluated only where the index falls into its range, which begins at the end of the one
 * before. */
static struct kb_val concat(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	int axis = (int)((const struct attrs_concat *)op->attrs)->axis;
	struct kb_var to = result_var(e, op, p, 0);
	struct kb_val lo = kb_index(e->k, 0);
	for (size_t i = 0; i < op->n_operands; i++) {
		struct kb_val hi = kb_add(e->k, lo, eval_dim(e, eval_type(e, op->operands[i])->dims[axis]));
		set_if_inside(e, op->operands[i], p, axis, lo, hi, to);
		lo = hi;
	}
	return kb_get(e->k, to);
}

/* The axis of a pad or concat. */
static int border_axis(const struct ir_op *op)
{
	return (int)(op->code == OP_pad ? ((const struct attrs_pad *)op->attrs)->axis
	                                : ((const struct attrs_concat *)op->attrs)->axis);
}

/* A pad or concat with lanes along its axis may cross a border within a vector: lane by lane. */
struct kb_val eval_movement(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct eval_point at;
	if (op->code == OP_gather)
		return gather(e, op, p);
	if (op->code == OP_select_rows)
		return select_rows(e, op, p);
	if (op->code == OP_pad || op->code == OP_concat) {
		if (p->vec == border_axis(op) && e->lanes > 1)
			return eval_per_lane(e, op, p);
		return op->code == OP_pad ? pad(e, op, p) : concat(e, op, p);
	}
	if (!eval_view_point(e, op, p, &at))
		return eval_per_lane(e, op, p);
	return eval_value(e, op->operands[0], &at);
}

/* ---- elementwise ops ---- */

typedef struct kb_val unary_fn(struct kb *k, struct kb_val x);
typedef struct kb_val binary_fn(struct kb *k, struct kb_val a, struct kb_val b);

/* Operand i at p, broadcast to the lanes of p if it is a scalar. */
static struct kb_val operand(struct eval *e, const struct ir_op *op, size_t i, const struct eval_point *p)
{
	struct kb_val v = eval_value(e, op->operands[i], p);
	return p->vec < 0 ? v : kb_splat(e->k, v, e->lanes);
}

struct kb_val eval_round_to_dtype(struct eval *e, enum ir_dtype t, struct kb_val v)
{
	switch (t) {
	case DT_F16: return kb_cvt(e->k, kb_cvt(e->k, v, KB_F16), KB_F32);
	case DT_BF16: return kb_cvt(e->k, kb_cvt(e->k, v, KB_BF16), KB_F32);
	case DT_I16: return kb_cvt(e->k, kb_cvt(e->k, v, KB_I16), KB_I32);
	case DT_I8: return kb_cvt(e->k, kb_cvt(e->k, v, KB_I8), KB_I32);
	case DT_U8: return kb_cvt(e->k, kb_cvt(e->k, v, KB_U8), KB_I32);
	case DT_F32:
	case DT_F64:
	case DT_I32:
	case DT_I64:
	case DT_BOOL: return v;
	}
	return v;
}

/* x, or after a diagnostic its f32 conversion if it is f64: elementary functions exist for f32 only. */
static struct kb_val require_f32(struct eval *e, const struct ir_op *op, struct kb_val x)
{
	if (kb_type_of(e->k, x).scalar == KB_F64) {
		eval_unsupported(e, op, "this function of f64");
		return kb_cvt(e->k, x, KB_F32);
	}
	return x;
}

/* The emitter of an elementary function; NULL: the op is none. */
static unary_fn *math_function(enum ir_opcode code)
{
	static unary_fn *const table[IR_N_OPS] = {
	        [OP_exp] = math_exp,
	        [OP_log] = math_log,
	        [OP_rsqrt] = math_rsqrt,
	        [OP_sin] = math_sin,
	        [OP_cos] = math_cos,
	        [OP_tanh] = math_tanh,
	        [OP_erf] = math_erf,
	        [OP_sigmoid] = math_sigmoid,
	        [OP_relu] = math_relu,
	        [OP_gelu] = math_gelu,
	        [OP_gelu_tanh] = math_gelu_tanh,
	        [OP_gelu_quick] = math_gelu_quick,
	        [OP_silu] = math_silu,
	};
	return table[code];
}

/* The kb_un of an op, or -1. */
static int unary_operator(enum ir_opcode code)
{
	switch ((int)code) {
	case OP_neg: return KB_NEG;
	case OP_abs: return KB_ABS;
	case OP_sqrt: return KB_SQRT;
	case OP_floor: return KB_FLOOR;
	case OP_ceil: return KB_CEIL;
	case OP_not: return KB_NOT;
	}
	return -1;
}

/* The KB comparison of the IR's keyword. */
static enum kb_cmp cmp_predicate(int kind)
{
	switch ((enum ir_keyword_cmp)kind) {
	case CMP_lt: return KB_LT;
	case CMP_le: return KB_LE;
	case CMP_gt: return KB_GT;
	case CMP_ge: return KB_GE;
	case CMP_eq: return KB_EQ;
	case CMP_ne: return KB_NE;
	}
	return KB_LT;
}

/* A cast to an integer dtype; saturates, from floats (as kb_cvt does) and from wider integers (by min and max). Dtypes
 * of 1 and 2 bytes are computed in i32, so they are converted to their own type first. */
static struct kb_val to_int(struct eval *e, enum ir_dtype t, const struct eval_point *p, struct kb_val x)
{
	enum kb_scalar from = kb_type_of(e->k, x).scalar;
	if ((from == KB_F32 || from == KB_F64) && ir_dtype_bytes(t) < 4)
		x = kb_cvt(e->k, x, t == DT_I8 ? KB_I8 : t == DT_U8 ? KB_U8 : KB_I16);
	bool is_int = from == KB_I32 || from == KB_I64;
	if (is_int && t != DT_I64) { /* no integer is wider than i64 */
		x = kb_min(e->k, x, eval_const(e, p, from, ir_round(t, HUGE_VAL)));
		x = kb_max(e->k, x, eval_const(e, p, from, ir_round(t, -HUGE_VAL)));
	}
	return kb_cvt(e->k, x, eval_scalar(t));
}

/* x converted to the type that the dtype of the cast is computed in; to bool: x != 0. */
static struct kb_val cast(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	enum ir_dtype t = ((const struct attrs_cast *)op->attrs)->dtype;
	struct kb_val x = operand(e, op, 0, p);
	enum kb_scalar from = kb_type_of(e->k, x).scalar;
	switch (ir_dtype_class(t)) {
	case DTCLASS_FLOAT: return kb_cvt(e->k, x, eval_scalar(t));
	case DTCLASS_INT: return to_int(e, t, p, x);
	case DTCLASS_BOOL: return from == KB_BOOL ? x : kb_cmp(e->k, KB_NE, x, eval_const(e, p, from, 0));
	}
	return x;
}

/* c * tanh(x / c) */
static struct kb_val softcap(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	float c = (float)((const struct attrs_softcap *)op->attrs)->c;
	struct kb_val x = require_f32(e, op, operand(e, op, 0, p)), limit = math_const(e->k, x, c);
	return kb_mul(e->k, limit, math_tanh(e->k, kb_bin(e->k, KB_DIV, x, limit)));
}

/*
 * x [B, S, ..], len [B]: x where s < len[b], else 0. The lanes of a vector along axis 0 have a length each, so len is
 * a vector, too; along any other axis all lanes are of one sequence, whose length is a scalar that the splat
 * broadcasts.
 */
static struct kb_val mask_rows(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct eval_point at = {.rank = 1, .index = {p->index[0]}, .vec = p->vec == 0 ? 0 : -1};
	struct kb_val x = operand(e, op, 0, p);
	struct kb_val len = eval_value(e, op->operands[1], &at);
	struct kb_val row = eval_index_i32(e, p, 1);
	int lanes = kb_type_of(e->k, row).lanes;
	struct kb_val seen = kb_cmp(e->k, KB_LT, row, kb_splat(e->k, len, lanes));
	return kb_select(e->k, seen, x, eval_const(e, p, kb_type_of(e->k, x).scalar, 0));
}

static struct kb_val scale(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb_val x = operand(e, op, 0, p);
	double f = ((const struct attrs_scale *)op->attrs)->f;
	return kb_mul(e->k, x, eval_const(e, p, kb_type_of(e->k, x).scalar, f));
}

static struct kb_val power(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb_val a = operand(e, op, 0, p), b = operand(e, op, 1, p);
	if (ir_dtype_class(eval_type(e, eval_result(op))->dtype) == DTCLASS_INT)
		return eval_int_power(e, op, a, b);
	b = require_f32(e, op, b);
	return math_pow(e->k, require_f32(e, op, a), b);
}

/* The value of an elementwise op at p in the type it is computed in: by function, operator, or the op's attributes.
 * Each operand in a statement of its own, since C does not define the order of calls in one expression. */
static struct kb_val op_result(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	unary_fn *unary = math_function(op->code);
	static binary_fn *const table[IR_N_OPS] = {
	        [OP_add] = kb_add,   [OP_sub] = kb_sub,   [OP_mul] = kb_mul,
	        [OP_min] = math_min, [OP_max] = math_max,
	};
	binary_fn *binary = table[op->code];
	int un = unary_operator(op->code);
	struct kb_val x[3] = {{0}};
	if (unary)
		return unary(k, require_f32(e, op, operand(e, op, 0, p)));
	if (un >= 0)
		return kb_un(k, (enum kb_un)un, operand(e, op, 0, p));
	if (binary) {
		x[0] = operand(e, op, 0, p);
		x[1] = operand(e, op, 1, p);
		return binary(k, x[0], x[1]);
	}
	/* ops with attributes, or with operands that are not at p */
	switch ((int)op->code) {
	case OP_cast: return cast(e, op, p);
	case OP_softcap: return softcap(e, op, p);
	case OP_mask_rows: return mask_rows(e, op, p);
	case OP_scale: return scale(e, op, p);
	case OP_relu2:
		x[0] = math_relu(k, require_f32(e, op, operand(e, op, 0, p)));
		return kb_mul(k, x[0], x[0]);
	case OP_pow: return power(e, op, p);
	}
	for (size_t i = op->n_operands; i-- > 0;)
		x[i] = operand(e, op, i, p);
	switch ((int)op->code) {
	case OP_floor_div:
	case OP_mod: return eval_floor_division(e, op, x[0], x[1]);
	case OP_div: return kb_bin(k, KB_DIV, x[0], x[1]);
	case OP_and: return kb_bin(k, KB_AND, x[0], x[1]);
	case OP_or: return kb_bin(k, KB_OR, x[0], x[1]);
	case OP_cmp: return kb_cmp(k, cmp_predicate(((const struct attrs_cmp *)op->attrs)->kind), x[0], x[1]);
	case OP_where: return kb_select(k, x[0], x[1], x[2]);
	}
	return eval_internal(e, op, "an elementwise op without lowering");
}

struct kb_val eval_elementwise(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	return eval_round_to_dtype(e, eval_type(e, eval_result(op))->dtype, op_result(e, op, p));
}
