/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: reductions. Every element of x is folded into the element of the
 * result that has its index on the axes that stay.
 */
#include <math.h>

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

static double fold_max(double a, double b)
{
	return isnan(a) || a > b ? a : b;
}

static double fold_min(double a, double b)
{
	return isnan(a) || a < b ? a : b;
}

static int64_t fold_int_sum(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t fold_int_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t fold_int_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* What is folded, and the value for nothing, of floats and of ints. */
struct folding {
	double first;
	double (*fold)(double, double);
	int64_t first_int;
	int64_t (*fold_int)(int64_t, int64_t);
};

static const struct folding sums = {0, fold_sum, 0, fold_int_sum};
static const struct folding largest = {-HUGE_VAL, fold_max, INT64_MIN, fold_int_max};
static const struct folding smallest = {HUGE_VAL, fold_min, INT64_MAX, fold_int_min};

/* Wraps at every step: what lies between need not be a double. */
static void fold_int(const struct folding *f, int64_t v, struct interp_tensor *out, int64_t at)
{
	int64_t r = f->fold_int(interp_get_int(out, at), v);
	interp_put(out, at, interp_wrap(out->dtype, (uint64_t)r));
}

static void reduce(const struct interp_tensor *x, const struct ir_int_list *axes, const struct folding *f,
                   struct interp_tensor *out)
{
	int64_t stride[IR_RANK_MAX], index[IR_RANK_MAX];
	bool is_int = ir_dtype_class(out->dtype) == DTCLASS_INT;
	result_strides(x, axes, stride);
	for (int64_t i = 0; i < interp_size(out); i++)
		if (is_int)
			interp_put(out, i, f->first_int);
		else
			out->data[i] = f->first;
	for (int64_t i = 0; i < interp_size(x); i++) {
		int64_t at = 0;
		interp_unravel(x, i, index);
		for (int k = 0; k < x->rank; k++)
			at += index[k] * stride[k];
		if (is_int)
			fold_int(f, interp_get_int(x, i), out, at);
		else
			out->data[at] = f->fold(out->data[at], x->data[i]);
	}
}

INTERP_EVAL(reduce_sum)
{
	reduce(x[0], &((const struct attrs_reduce_sum *)op->attrs)->axes, &sums, out);
	return TFMC_OK;
}

INTERP_EVAL(reduce_mean)
{
	const struct ir_int_list *axes = &((const struct attrs_reduce_mean *)op->attrs)->axes;
	double count = 1;
	reduce(x[0], axes, &sums, out);
	for (size_t i = 0; i < axes->n; i++)
		count *= (double)x[0]->dims[interp_axis(x[0], axes->items[i])];
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] /= count;
	return TFMC_OK;
}

INTERP_EVAL(reduce_max)
{
	reduce(x[0], &((const struct attrs_reduce_max *)op->attrs)->axes, &largest, out);
	return TFMC_OK;
}

INTERP_EVAL(reduce_min)
{
	reduce(x[0], &((const struct attrs_reduce_min *)op->attrs)->axes, &smallest, out);
	return TFMC_OK;
}

static bool is_larger(const struct interp_tensor *x, int64_t i, int64_t j)
{
	return x->exact ? interp_get_int(x, i) > interp_get_int(x, j) : x->data[i] > x->data[j];
}

/* Lowest index of the largest of n numbers that are `stride` apart from number `at` on. */
static int64_t largest_at(const struct interp_tensor *x, int64_t at, int64_t n, int64_t stride)
{
	int64_t best = -1;
	for (int64_t i = 0; i < n; i++)
		if (!isnan(x->data[at + i * stride]) &&
		    (best < 0 || is_larger(x, at + i * stride, at + best * stride)))
			best = i;
	return best < 0 ? 0 : best;
}

/* x [outer, n, inner] around the axis; the result is [outer, inner]. */
INTERP_EVAL(argmax)
{
	int axis = interp_axis(x[0], ((const struct attrs_argmax *)op->attrs)->axis);
	int64_t n = x[0]->dims[axis], inner = interp_span(x[0], axis + 1, x[0]->rank);
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = (double)largest_at(x[0], i / inner * n * inner + i % inner, n, inner);
	return TFMC_OK;
}
