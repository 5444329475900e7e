/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight expressions of folding: columns times a vector, matrix times vector,
 * matrices without their column means, repeated elements. Rows are read in
 * batches, because the rows of a transposed tensor are cheap only together;
 * sums run in increasing order whatever range is asked for, so that every range
 * has the same bits.
 */
#include "ir/weights/internal.h"

#include <string.h>

#include "ir/support/memory.h"

#define BATCH 65536 /* elements of rows read at once, at least one row */

void wexpr_memo_init(struct wexpr_memo *m)
{
	*m = (struct wexpr_memo){0};
}

void wexpr_memo_destroy(struct wexpr_memo *m)
{
	for (size_t i = 0; i < WEXPR_MEANS; i++)
		memory_free(m->means[i].values);
	memory_free(m->scratch);
	*m = (struct wexpr_memo){0};
}

static double *doubles(int64_t n)
{
	return memory_alloc((size_t)(n > 0 ? n : 1) * sizeof(double));
}

/* ---- columns ---- */

static void multiply(double *restrict out, const double *restrict x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] *= x[i];
}

/* Elements [begin, begin + n) of one matrix, columns [c0, c1) of which meet g[c - c0]. */
static void scale_columns(double *out, int64_t begin, int64_t n, int64_t columns, int64_t c0, int64_t c1,
                          const double *g)
{
	for (int64_t row = begin / columns * columns; row < begin + n; row += columns) {
		int64_t lo = row + c0 < begin ? begin : row + c0;
		int64_t hi = weval_min(row + c1, begin + n);
		multiply(out + (lo - begin), g + (lo - row - c0), hi - lo);
	}
}

enum tfmc_status weval_mul_columns(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   double *out)
{
	double g[WEVAL_CHUNK];
	int64_t columns = e->dims[e->rank - 1], matrix = columns * e->dims[e->rank - 2];
	TFMC_TRY(weval(ev, e->args[0], begin, n, out));
	while (n > 0) {
		int64_t at = begin / matrix, in = begin % matrix;
		int64_t run = weval_min(n, matrix - in);
		for (int64_t c = 0; c < columns; c += WEVAL_CHUNK) {
			int64_t some = weval_min(columns - c, WEVAL_CHUNK);
			TFMC_TRY(weval(ev, e->args[1], at * columns + c, some, g));
			scale_columns(out, in, run, columns, c, c + some, g);
		}
		begin += run;
		out += run;
		n -= run;
	}
	return TFMC_OK;
}

/* ---- matrix times vector ---- */

/* out[i] = row i times v. Four rows at a time: the sums of one wait for each other. */
static void sum_products(const double *rows, int64_t n, int64_t columns, const double *v, double *out)
{
	int64_t i = 0;
	for (; i + 4 <= n; i += 4) {
		const double *x = rows + i * columns;
		double sum[4] = {0};
		for (int64_t k = 0; k < columns; k++)
			for (int64_t r = 0; r < 4; r++)
				sum[r] += x[r * columns + k] * v[k];
		memcpy(out + i, sum, sizeof(sum));
	}
	for (; i < n; i++) {
		double sum = 0;
		for (int64_t k = 0; k < columns; k++)
			sum += rows[i * columns + k] * v[k];
		out[i] = sum;
	}
}

/* Rows [row, row + n) of all matrices, one after the other, times v; `rows` holds a batch. */
static enum tfmc_status multiply_rows(struct weval *ev, const struct ir_wexpr *w, int64_t row, int64_t n,
                                      const double *v, double *rows, double *out)
{
	int64_t columns = w->dims[w->rank - 1];
	int64_t batch = columns < BATCH ? BATCH / columns : 1;
	for (int64_t r = 0; r < n; r += batch) {
		int64_t some = weval_min(n - r, batch);
		TFMC_TRY(weval(ev, w, (row + r) * columns, some * columns, rows));
		sum_products(rows, some, columns, v, out + r);
	}
	return TFMC_OK;
}

static enum tfmc_status matvec(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                               double *scratch, double *out)
{
	const struct ir_wexpr *w = e->args[0];
	int64_t height = w->dims[w->rank - 2], columns = w->dims[w->rank - 1];
	while (n > 0) {
		int64_t run = weval_min(n, height - begin % height);
		TFMC_TRY(weval(ev, e->args[1], begin / height * columns, columns, scratch));
		TFMC_TRY(multiply_rows(ev, w, begin, run, scratch, scratch + columns, out));
		begin += run;
		out += run;
		n -= run;
	}
	return TFMC_OK;
}

enum tfmc_status weval_matvec(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                              double *out)
{
	int64_t columns = e->args[0]->dims[e->args[0]->rank - 1];
	if (columns == 0) {
		memset(out, 0, (size_t)n * sizeof(*out));
		return TFMC_OK;
	}
	double *scratch = doubles(columns + (columns < BATCH ? BATCH : columns));
	if (scratch == NULL)
		return TFMC_NO_MEMORY;
	enum tfmc_status status = matvec(ev, e, begin, n, scratch, out);
	memory_free(scratch);
	return status;
}

/* ---- center ---- */

/* means[i] of the block `outer`: over the axis, of the element i behind it. `rows` holds a batch. */
static enum tfmc_status sum_rows(struct weval *ev, const struct ir_wexpr *e, int64_t outer, double *rows,
                                 double *means)
{
	int64_t inner = weval_inner(e, e->axis + 1), count = e->dims[e->axis];
	int64_t batch = inner < BATCH ? BATCH / inner : 1;
	memset(means, 0, (size_t)inner * sizeof(*means));
	for (int64_t r = 0; r < count; r += batch) {
		int64_t some = weval_min(count - r, batch);
		TFMC_TRY(weval(ev, e->args[0], (outer * count + r) * inner, some * inner, rows));
		for (int64_t i = 0; i < some; i++)
			for (int64_t k = 0; k < inner; k++)
				means[k] += rows[i * inner + k];
	}
	for (int64_t k = 0; k < inner; k++)
		means[k] /= (double)count;
	return TFMC_OK;
}

static enum tfmc_status compute_means(struct weval *ev, const struct ir_wexpr *e, int64_t outer,
                                      double *means)
{
	int64_t inner = weval_inner(e, e->axis + 1);
	double *rows = doubles(inner < BATCH ? BATCH : inner);
	if (rows == NULL)
		return TFMC_NO_MEMORY;
	enum tfmc_status status = sum_rows(ev, e, outer, rows, means);
	memory_free(rows);
	return status;
}

static enum tfmc_status find_means(struct weval *ev, const struct ir_wexpr *e, int64_t outer,
                                   const double **out)
{
	struct wexpr_memo *memo = ev->memo;
	for (size_t i = 0; i < WEXPR_MEANS; i++) {
		if (memo->means[i].e == e && memo->means[i].outer == outer) {
			*out = memo->means[i].values;
			return TFMC_OK;
		}
	}
	/* Found first: a centered expression inside of this one takes its own place in the memo. */
	double *values = doubles(weval_inner(e, e->axis + 1));
	enum tfmc_status status = values == NULL ? TFMC_NO_MEMORY : compute_means(ev, e, outer, values);
	if (status != TFMC_OK) {
		memory_free(values);
		return status;
	}
	struct wexpr_means *slot = &memo->means[memo->next++ % WEXPR_MEANS];
	memory_free(slot->values);
	*slot = (struct wexpr_means){e, outer, values};
	*out = values;
	return TFMC_OK;
}

/* A whole row that is centered by itself: its mean needs no other reading, in the order of sum_rows. */
static void center_row(double *out, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += out[i];
	sum /= (double)n;
	for (int64_t i = 0; i < n; i++)
		out[i] -= sum;
}

static void subtract(double *restrict out, const double *restrict x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] -= x[i];
}

/* Elements [begin, begin + n) of a block. */
struct span {
	int64_t begin, n;
};

static enum tfmc_status subtract_means(struct weval *ev, const struct ir_wexpr *e, int64_t outer,
                                       struct span s, double *out)
{
	int64_t inner = weval_inner(e, e->axis + 1);
	const double *means;
	TFMC_TRY(find_means(ev, e, outer, &means));
	for (int64_t i = 0, k = s.begin % inner, some; i < s.n; i += some, k = 0) {
		some = weval_min(s.n - i, inner - k);
		subtract(out + i, means + k, some);
	}
	return TFMC_OK;
}

enum tfmc_status weval_center(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                              double *out)
{
	int64_t inner = weval_inner(e, e->axis + 1), block = inner * e->dims[e->axis];
	TFMC_TRY(weval(ev, e->args[0], begin, n, out));
	while (n > 0) {
		int64_t in = begin % block, run = weval_min(n, block - in);
		if (inner == 1 && run == block)
			center_row(out, run);
		else
			TFMC_TRY(subtract_means(ev, e, begin / block, (struct span){in, run}, out));
		begin += run;
		out += run;
		n -= run;
	}
	return TFMC_OK;
}

/* ---- repeat ---- */

/* Single elements repeated: a block of the argument gives `begin` times as many elements. */
enum tfmc_status weval_repeat_elements(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                       double *out)
{
	double scratch[WEVAL_CHUNK];
	while (n > 0) {
		int64_t first = begin / e->begin;
		int64_t last = weval_min((begin + n - 1) / e->begin, first + WEVAL_CHUNK - 1);
		int64_t run = last == (begin + n - 1) / e->begin ? n : (last + 1) * e->begin - begin;
		TFMC_TRY(weval(ev, e->args[0], first, last - first + 1, scratch));
		for (int64_t i = 0; i < run; i++)
			out[i] = scratch[(begin + i) / e->begin - first];
		begin += run;
		out += run;
		n -= run;
	}
	return TFMC_OK;
}

enum tfmc_status weval_repeat_rows(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   struct wexpr_out out)
{
	int64_t inner = weval_inner(e, e->axis + 1);
	while (n > 0) {
		int64_t in = begin % inner, run = weval_min(n, inner - in);
		TFMC_TRY(weval_to(ev, e->args[0], begin / inner / e->begin * inner + in, run, out));
		begin += run;
		out = weval_behind(out, run);
		n -= run;
	}
	return TFMC_OK;
}
