/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: ops that depend on all elements before.
 */
#include <math.h>
#include <stdlib.h>

#include "ir/interp/interp_internal.h"
#include "ir/support/memory.h"

static void add_int(struct interp_tensor *out, int64_t i, int64_t before, int64_t v)
{
	interp_put(out, i, interp_wrap(out->dtype, (uint64_t)before + (uint64_t)v));
}

/* x [rows, n] */
INTERP_EVAL(cumsum)
{
	int64_t n = x[0]->dims[x[0]->rank - 1];
	bool is_int = ir_dtype_class(out->dtype) == DTCLASS_INT;
	for (int64_t i = 0; i < interp_size(out); i++) {
		bool is_first = i % n == 0;
		if (is_int)
			add_int(out, i, is_first ? 0 : interp_get_int(out, i - 1), interp_get_int(x[0], i));
		else
			out->data[i] = (is_first ? 0 : out->data[i - 1]) + x[0]->data[i];
	}
	return TFMC_OK;
}

/* An element of a row. */
struct element {
	double value;
	int64_t exact; /* of ints, else 0 */
	int64_t index;
};

static struct element element_of(const struct interp_tensor *x, int64_t at, int64_t index)
{
	return (struct element){x->data[at], x->exact ? interp_get_int(x, at) : 0, index};
}

/* Larger ones first, then lower indices; NaN last. */
static int compare(const void *first, const void *second)
{
	const struct element *a = first, *b = second;
	if (isnan(a->value) != isnan(b->value))
		return isnan(a->value) ? 1 : -1;
	if (!isnan(a->value) && a->value != b->value)
		return a->value > b->value ? -1 : 1;
	if (a->exact != b->exact)
		return a->exact > b->exact ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

/* x [rows, n] -> [rows, 2, k] */
INTERP_EVAL(topk)
{
	int64_t k = ((const struct attrs_topk *)op->attrs)->k, n = x[0]->dims[x[0]->rank - 1];
	int64_t rows = interp_span(x[0], 0, x[0]->rank - 1);
	struct element *row = memory_zeroed((size_t)n, sizeof(*row));
	if (row == NULL)
		return TFMC_NO_MEMORY;
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t i = 0; i < n; i++)
			row[i] = element_of(x[0], r * n + i, i);
		qsort(row, (size_t)n, sizeof(*row), compare);
		for (int64_t i = 0; i < k; i++) {
			interp_move(out, 2 * r * k + i, x[0], r * n + row[i].index, 1);
			out->data[(2 * r + 1) * k + i] = (double)row[i].index;
		}
	}
	memory_free(row);
	return TFMC_OK;
}

INTERP_EVAL(last_at)
{
	int64_t size = interp_size(out);
	for (int64_t i = 0; i < size; i++)
		out->data[i] = -1;
	for (int64_t i = 0; i < interp_size(x[0]); i++) {
		int64_t row = interp_int(x[0]->data[i]);
		if (row >= 0 && row < size)
			out->data[row] = (double)i;
	}
	return TFMC_OK;
}
