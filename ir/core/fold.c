/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algebraic simplification in the builder, only where the bits are the same for every input: x * 1, x + (-0), views of
 * views, casts to the same type. A handler returns the value to use in place of the op, or IR_NO_VALUE.
 */
#include "ir/core/builder.h"

#include <math.h>

struct fold {
	struct ir_builder *b;
	const struct ir_value *operands;
	const struct ir_type *result;
	const void *attrs;
};

typedef struct ir_value fold_fn(const struct fold *f);

/* The op that defines operand i if it has that code, else NULL. */
static const struct ir_op *defined_by(const struct fold *f, size_t i, enum ir_opcode code)
{
	return ir_def_as(f->b->f, f->operands[i], code);
}

/* Operand i is `full` with exactly these bits. */
static bool is_full(const struct fold *f, size_t i, double value)
{
	const struct ir_op *op = defined_by(f, i, OP_full);
	if (op == NULL)
		return false;
	const struct attrs_full *a = op->attrs;
	return a->value == value && signbit(a->value) == signbit(value);
}

static bool is_float(const struct fold *f)
{
	return ir_dtype_class(f->result->dtype) == DTCLASS_FLOAT;
}

/* A view of `full` or `dim_value` is the same op with the shape of the view. */
static struct ir_value fold_constant_view(const struct fold *f)
{
	const struct ir_op *full = defined_by(f, 0, OP_full), *dim = defined_by(f, 0, OP_dim_value);
	if (full != NULL) {
		const struct attrs_full *a = full->attrs;
		return irb_full_of(f->b, a->value, a->dtype, f->result->rank, f->result->dims);
	}
	if (dim == NULL)
		return IR_NO_VALUE;
	const struct attrs_dim_value *a = dim->attrs;
	return irb_dim_value_of(f->b, a->dim, f->result->rank, f->result->dims);
}

/* The operand itself if the op does not change its type. */
static struct ir_value fold_same_type(const struct fold *f)
{
	return irb_type(f->b, f->operands[0]) == f->result ? f->operands[0] : IR_NO_VALUE;
}

/* ---- arithmetic ---- */

static struct ir_value fold_scale(const struct fold *f)
{
	const struct attrs_scale *a = f->attrs;
	return a->f == 1.0 ? f->operands[0] : IR_NO_VALUE;
}

static struct ir_value fold_mul(const struct fold *f)
{
	if (is_full(f, 1, 1.0))
		return f->operands[0];
	return is_full(f, 0, 1.0) ? f->operands[1] : IR_NO_VALUE;
}

static struct ir_value fold_div(const struct fold *f)
{
	return is_full(f, 1, 1.0) ? f->operands[0] : IR_NO_VALUE;
}

/* dim_value +- full, both i32, is a dim_value if it fits into i32. */
static struct ir_value fold_dim_sum(const struct fold *f, int sign)
{
	struct ir_dims *dims = f->b->m->dims;
	const struct ir_op *dim = defined_by(f, 0, OP_dim_value), *full = defined_by(f, 1, OP_full);
	if (dim == NULL || full == NULL)
		return IR_NO_VALUE;
	const struct ir_dim *n =
	        ir_dim_const(dims, sign * (int64_t)((const struct attrs_full *)full->attrs)->value);
	n = ir_dim_add(dims, ((const struct attrs_dim_value *)dim->attrs)->dim, n);
	bool fits = ir_dim_lo(dims, n) >= INT32_MIN && ir_dim_hi(dims, n) <= INT32_MAX;
	return fits ? irb_dim_value_of(f->b, n, f->result->rank, f->result->dims) : IR_NO_VALUE;
}

/* x + (-0.0) is x for every float; x + 0.0 is not for x = -0.0. */
static struct ir_value fold_add(const struct fold *f)
{
	double zero = is_float(f) ? -0.0 : 0.0;
	if (is_full(f, 1, zero))
		return f->operands[0];
	return is_full(f, 0, zero) ? f->operands[1] : fold_dim_sum(f, 1);
}

static struct ir_value fold_sub(const struct fold *f)
{
	return is_full(f, 1, 0.0) ? f->operands[0] : fold_dim_sum(f, -1);
}

/* Involutions: neg of neg, not of not. */
static struct ir_value fold_involution(const struct fold *f, enum ir_opcode code)
{
	const struct ir_op *op = defined_by(f, 0, code);
	return op != NULL ? op->operands[0] : IR_NO_VALUE;
}

static struct ir_value fold_neg(const struct fold *f)
{
	return fold_involution(f, OP_neg);
}

static struct ir_value fold_not(const struct fold *f)
{
	return fold_involution(f, OP_not);
}

static struct ir_value fold_where(const struct fold *f)
{
	return ir_same_value(f->operands[1], f->operands[2]) ? f->operands[1] : IR_NO_VALUE;
}

static struct ir_value fold_mask_rows(const struct fold *f)
{
	const struct ir_op *op = defined_by(f, 0, OP_mask_rows);
	return op != NULL && ir_same_value(op->operands[1], f->operands[1]) ? f->operands[0] : IR_NO_VALUE;
}

/* ---- movement ---- */

static struct ir_value fold_reshape(const struct fold *f)
{
	struct ir_value same = fold_same_type(f);
	if (same.id != 0)
		return same;
	const struct ir_op *inner = defined_by(f, 0, OP_reshape);
	if (inner != NULL)
		return irb_reshape_to(f->b, inner->operands[0], f->result->rank, f->result->dims);
	return fold_constant_view(f);
}

static struct ir_value fold_transpose(const struct fold *f)
{
	const struct attrs_transpose *a = f->attrs;
	int64_t perm[IR_RANK_MAX];
	bool identity = true;
	for (size_t i = 0; i < a->perm.n; i++)
		identity = identity && a->perm.items[i] == (int64_t)i;
	if (identity)
		return f->operands[0];
	const struct ir_op *inner = defined_by(f, 0, OP_transpose);
	if (inner == NULL)
		return fold_constant_view(f);
	const struct attrs_transpose *first = inner->attrs;
	for (size_t i = 0; i < a->perm.n; i++)
		perm[i] = first->perm.items[a->perm.items[i]];
	return irb_transpose_by(f->b, inner->operands[0], (int)a->perm.n, perm);
}

static struct ir_value fold_broadcast(const struct fold *f)
{
	struct ir_value same = fold_same_type(f);
	if (same.id != 0)
		return same;
	const struct ir_op *inner = defined_by(f, 0, OP_broadcast);
	if (inner != NULL)
		return irb_broadcast_to(f->b, inner->operands[0], f->result->rank, f->result->dims);
	return fold_constant_view(f);
}

static struct ir_value fold_slice(const struct fold *f)
{
	const struct attrs_slice *a = f->attrs;
	struct ir_value same = fold_same_type(f);
	if (same.id != 0)
		return same;
	const struct ir_op *inner = defined_by(f, 0, OP_slice);
	if (inner == NULL)
		return fold_constant_view(f);
	const struct attrs_slice *first = inner->attrs;
	if (first->axis != a->axis)
		return IR_NO_VALUE;
	const struct ir_dim *begin = ir_dim_add(f->b->m->dims, first->begin, a->begin);
	return irb_slice_of(f->b, inner->operands[0], (int)a->axis, begin, a->size);
}

struct ir_value build_fold(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                           const struct ir_type *result, const void *attrs)
{
	static fold_fn *const folds[IR_N_OPS] = {
	        [OP_scale] = fold_scale,
	        [OP_mul] = fold_mul,
	        [OP_div] = fold_div,
	        [OP_add] = fold_add,
	        [OP_sub] = fold_sub,
	        [OP_neg] = fold_neg,
	        [OP_not] = fold_not,
	        [OP_where] = fold_where,
	        [OP_mask_rows] = fold_mask_rows,
	        [OP_reshape] = fold_reshape,
	        [OP_transpose] = fold_transpose,
	        [OP_broadcast] = fold_broadcast,
	        [OP_slice] = fold_slice,
	        [OP_cast] = fold_same_type,
	        [OP_pad] = fold_same_type,
	};
	if (folds[code] == NULL)
		return IR_NO_VALUE;
	return folds[code](&(struct fold){b, operands, result, attrs});
}
