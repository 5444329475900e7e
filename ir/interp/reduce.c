/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: reductions. Every element of x is folded into the element of the
 * result that has its index on the axes that stay.
 */
#include <math.h>
#include <string.h>

#include "ir/interp/interp_internal.h"

/* Distance in the result when each axis of x steps by one; 0 on reduced axes. */
static void result_strides(const struct interp_tensor *x, const struct ir_int_list *axes,
                           int64_t stride[IR_RANK_MAX])
{
	bool reduced[IR_RANK_MAX] = {0};
	for (size_t i = 0; i < axes->n; i++)
		reduced[interp_axis(x, axes->items[i])] = true;
	int64_t step = 1;
	for (int i = x->rank - 1; i >= 0; i--) {
		stride[i] = reduced[i] ? 0 : step;
		step *= reduced[i] ? 1 : x->dims[i];
	}
}

static double fold_sum(double a, double b)
{
	return a + b;
}

/* Modulo 2^64; the result is rounded to its width by who calls. */
static double fold_int_sum(double a, double b)
{
	return (double)(int64_t)((uint64_t)interp_int(a) + (uint64_t)interp_int(b));
}

static double fold_max(double a, double b)
{
	return isnan(a) || a > b ? a : b;
}

static double fold_min(double a, double b)
{
	return isnan(a) || a < b ? a : b;
}

static void reduce(const struct interp_tensor *x, const struct ir_int_list *axes, double first,
                   double (*fold)(double, double), struct interp_tensor *out)
{
	int64_t stride[IR_RANK_MAX], index[IR_RANK_MAX];
	result_strides(x, axes, stride);
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = first;
	for (int64_t i = 0; i < interp_size(x); i++) {
		int64_t at = 0;
		interp_unravel(x, i, index);
		for (int k = 0; k < x->rank; k++)
			at += index[k] * stride[k];
		out->data[at] = fold(out->data[at], x->data[i]);
	}
}

enum tfmc_status interp_eval_reduce_sum(struct interp *in, const struct ir_op *op,
                                        const struct interp_tensor *const *x, struct interp_tensor *out)
{
	bool is_int = ir_dtype_class(out->dtype) == DTCLASS_INT;
	(void)in;
	reduce(x[0], &((const struct attrs_reduce_sum *)op->attrs)->axes, 0, is_int ? fold_int_sum : fold_sum,
	       out);
	for (int64_t i = 0; is_int && i < interp_size(out); i++)
		out->data[i] = interp_wrap(out->dtype, (uint64_t)interp_int(out->data[i]));
	return TFMC_OK;
}

enum tfmc_status interp_eval_reduce_mean(struct interp *in, const struct ir_op *op,
                                         const struct interp_tensor *const *x, struct interp_tensor *out)
{
	const struct ir_int_list *axes = &((const struct attrs_reduce_mean *)op->attrs)->axes;
	double count = 1;
	(void)in;
	reduce(x[0], axes, 0, fold_sum, out);
	for (size_t i = 0; i < axes->n; i++)
		count *= (double)x[0]->dims[interp_axis(x[0], axes->items[i])];
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] /= count;
	return TFMC_OK;
}

enum tfmc_status interp_eval_reduce_max(struct interp *in, const struct ir_op *op,
                                        const struct interp_tensor *const *x, struct interp_tensor *out)
{
	(void)in;
	reduce(x[0], &((const struct attrs_reduce_max *)op->attrs)->axes, -HUGE_VAL, fold_max, out);
	return TFMC_OK;
}

enum tfmc_status interp_eval_reduce_min(struct interp *in, const struct ir_op *op,
                                        const struct interp_tensor *const *x, struct interp_tensor *out)
{
	(void)in;
	reduce(x[0], &((const struct attrs_reduce_min *)op->attrs)->axes, HUGE_VAL, fold_min, out);
	return TFMC_OK;
}

/* Lowest index of the largest of n numbers that stand `stride` apart. */
static int64_t largest_at(const double *x, int64_t n, int64_t stride)
{
	int64_t best = -1;
	for (int64_t i = 0; i < n; i++)
		if (!isnan(x[i * stride]) && (best < 0 || x[i * stride] > x[best * stride]))
			best = i;
	return best < 0 ? 0 : best;
}

/* x [outer, n, inner] around the axis; the result is [outer, inner]. */
enum tfmc_status interp_eval_argmax(struct interp *in, const struct ir_op *op,
                                    const struct interp_tensor *const *x, struct interp_tensor *out)
{
	int axis = interp_axis(x[0], ((const struct attrs_argmax *)op->attrs)->axis);
	int64_t n = x[0]->dims[axis], inner = interp_span(x[0], axis + 1, x[0]->rank);
	(void)in;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = (double)largest_at(x[0]->data + i / inner * n * inner + i % inner, n, inner);
	return TFMC_OK;
}
