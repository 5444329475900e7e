/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: elementwise ops. A result of a dtype narrower than the type it is computed in is rounded after every
 * op, so that fused and separate ops give the same bits.
 */
#include "backends/kernels/eval.h"
#include "backends/kb/math.h"

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

/* Elementary functions exist for f32 only: reports an error for f64. */
static struct kb_val require_f32(struct eval *e, const struct ir_op *op, struct kb_val x)
{
	if (kb_type_of(e->k, x).scalar == KB_F64) {
		eval_unsupported(e, op, "this function of f64");
		return kb_cvt(e->k, x, KB_F32);
	}
	return x;
}

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

static binary_fn *binary_function(enum ir_opcode code)
{
	static binary_fn *const table[IR_N_OPS] = {
	        [OP_add] = kb_add,   [OP_sub] = kb_sub,   [OP_mul] = kb_mul,
	        [OP_min] = math_min, [OP_max] = math_max,
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

/* A cast to an integer dtype; saturates, from floats and from wider integers. */
static struct kb_val to_int(struct eval *e, enum ir_dtype t, const struct eval_point *p, struct kb_val x)
{
	enum kb_scalar from = kb_type_of(e->k, x).scalar;
	double lo = t == DT_I8 ? INT8_MIN : t == DT_U8 ? 0 : t == DT_I16 ? INT16_MIN : INT32_MIN;
	double hi = t == DT_I8 ? INT8_MAX : t == DT_U8 ? UINT8_MAX : t == DT_I16 ? INT16_MAX : INT32_MAX;
	if ((from == KB_F32 || from == KB_F64) && ir_dtype_bytes(t) < 4)
		x = kb_cvt(e->k, x, t == DT_I8 ? KB_I8 : t == DT_U8 ? KB_U8 : KB_I16);
	bool is_int = from == KB_I32 || from == KB_I64;
	if (is_int && t != DT_I64) { /* no integer is wider than i64 */
		x = kb_min(e->k, x, eval_const(e, p, from, hi));
		x = kb_max(e->k, x, eval_const(e, p, from, lo));
	}
	return kb_cvt(e->k, x, eval_scalar(t));
}

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

/* x [B, S, ..], len [B]: x where s < len[b], else 0. */
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

/* The value of op at p in the type it is computed in. */
static struct kb_val op_result(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	unary_fn *unary = math_function(op->code);
	binary_fn *binary = binary_function(op->code);
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
