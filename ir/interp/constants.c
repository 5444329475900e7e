/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: ops without tensor operands. A weight is evaluated anew at every
 * use, and only the part that its index selects.
 */
#include <inttypes.h>

#include "ir/interp/interp_internal.h"

INTERP_EVAL(weight)
{
	const struct attrs_weight *a = op->attrs;
	const struct ir_wexpr *init = a->weight->init;
	int64_t at = 0, n = interp_size(out);
	if (!ir_weight_has_value(in->cx, a->weight))
		return TFMC_INVALID;
	for (size_t i = 0; i < op->n_operands; i++) {
		int64_t index = interp_int(x[i]->data[0]);
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
