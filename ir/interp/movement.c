/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: ops without arithmetic. Constants; a weight is evaluated at every use, only the slice that its indices
 * select. Movement: most handlers compute for each element of the result where it comes from.
 */
#include <inttypes.h>

#include "ir/interp/interp_internal.h"

/* ---- constants ---- */

INTERP_EVAL(weight)
{
	const struct attrs_weight *a = op->attrs;
	const struct ir_wexpr *init = a->weight->init;
	int64_t at = 0, n = interp_size(out);
	if (!ir_weight_has_value(in->cx, a->weight))
		return TFMC_INVALID;
	for (size_t i = 0; i < op->n_operands; i++) {
		int64_t index = interp_to_int(x[i]->data[0]);
		if (index < 0 || index >= init->dims[i])
			return interp_error(in, op,
			                    "index %" PRId64 " of weight @%s is not in [0,%" PRId64 ")",
			                    index, a->weight->name, init->dims[i]);
		at = at * init->dims[i] + index;
	}
	TFMC_TRY(wexpr_eval(in->cx, init, in->args->weights, at * n, n, out->data));
	return TFMC_OK;
}

INTERP_EVAL(full)
{
	const struct attrs_full *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = a->value;
	return TFMC_OK;
}

INTERP_EVAL(iota)
{
	const struct attrs_iota *a = op->attrs;
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		out->data[i] = (double)a->start + (out->rank ? (double)index[interp_axis(out, a->axis)] : 0);
	}
	return TFMC_OK;
}

INTERP_EVAL(dim_value)
{
	const struct attrs_dim_value *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = (double)interp_dim(in, a->dim);
	return TFMC_OK;
}

/* ---- movement ---- */

INTERP_EVAL(reshape)
{
	int64_t n = interp_size(out);
	if (interp_size(x[0]) != n)
		return interp_error(in, op, "reshape of %" PRId64 " elements to %" PRId64, interp_size(x[0]),
		                    n);
	interp_copy(out, 0, x[0], 0, n);
	return TFMC_OK;
}

INTERP_EVAL(transpose)
{
	const struct ir_int_list *perm = &((const struct attrs_transpose *)op->attrs)->perm;
	int64_t to[IR_RANK_MAX], from[IR_RANK_MAX] = {0};
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, to);
		for (int k = 0; k < out->rank; k++)
			from[perm->items[k]] = to[k];
		interp_copy(out, i, x[0], interp_ravel(x[0], from), 1);
	}
	return TFMC_OK;
}

INTERP_EVAL(broadcast)
{
	int64_t to[IR_RANK_MAX], from[IR_RANK_MAX] = {0};
	int missing = out->rank - x[0]->rank;
	for (int k = 0; k < x[0]->rank; k++)
		if (x[0]->dims[k] != 1 && x[0]->dims[k] != out->dims[k + missing])
			return interp_error(in, op, "broadcast of an axis of %" PRId64 " to %" PRId64,
			                    x[0]->dims[k], out->dims[k + missing]);
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, to);
		for (int k = 0; k < x[0]->rank; k++)
			from[k] = x[0]->dims[k] == 1 ? 0 : to[k + missing];
		interp_copy(out, i, x[0], interp_ravel(x[0], from), 1);
	}
	return TFMC_OK;
}

INTERP_EVAL(slice)
{
	const struct attrs_slice *a = op->attrs;
	int axis = interp_axis(out, a->axis);
	int64_t begin = interp_dim(in, a->begin), index[IR_RANK_MAX];
	if (begin < 0 || begin > x[0]->dims[axis] - out->dims[axis])
		return interp_error(in, op, "slice [%" PRId64 ",%" PRId64 ") of an axis of %" PRId64, begin,
		                    begin + out->dims[axis], x[0]->dims[axis]);
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		index[axis] += begin;
		interp_copy(out, i, x[0], interp_ravel(x[0], index), 1);
	}
	return TFMC_OK;
}

/* Copies x into out at offset `begin` of `axis`. */
static void copy_block(const struct interp_tensor *x, int axis, int64_t begin, struct interp_tensor *out)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(x); i++) {
		interp_unravel(x, i, index);
		index[axis] += begin;
		interp_copy(out, interp_ravel(out, index), x, i, 1);
	}
}

INTERP_EVAL(concat)
{
	int axis = interp_axis(out, ((const struct attrs_concat *)op->attrs)->axis);
	int64_t begin = 0;
	for (size_t i = 0; i < op->n_operands; i++) {
		copy_block(x[i], axis, begin, out);
		begin += x[i]->dims[axis];
	}
	return TFMC_OK;
}

INTERP_EVAL(pad)
{
	const struct attrs_pad *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = a->value;
	copy_block(x[0], interp_axis(out, a->axis), a->before, out);
	return TFMC_OK;
}

/* table [V, row], ids [n]: out [n, row] */
INTERP_EVAL(gather)
{
	int64_t rows = x[0]->dims[0], row = interp_span(x[0], 1, x[0]->rank), n = interp_size(x[1]);
	if (rows == 0 && n * row > 0)
		return interp_error(in, op, "gather from a table without rows");
	for (int64_t i = 0; i < n && row > 0; i++) {
		int64_t id = interp_clamp(interp_to_int(x[1]->data[i]), 0, rows - 1);
		interp_copy(out, i * row, x[0], id * row, row);
	}
	return TFMC_OK;
}

/* x [B, S, row], at [B]: out [B, row] */
INTERP_EVAL(take_rows)
{
	int64_t rows = x[0]->dims[1], row = interp_span(x[0], 2, x[0]->rank);
	if (rows == 0 && interp_size(out) > 0)
		return interp_error(in, op, "take_rows from an axis of size 0");
	for (int64_t b = 0; b < x[0]->dims[0] && row > 0; b++) {
		int64_t at = interp_clamp(interp_to_int(x[1]->data[b]), 0, rows - 1);
		interp_copy(out, b * row, x[0], (b * rows + at) * row, row);
	}
	return TFMC_OK;
}
