/* SPDX-License-Identifier: Apache-2.0 */
/* What codes changed. */
#include "ir/support/memory.h"
#include "ir/weights/quants.h"
#include "ir/weights/weight.h"

#define AT_ONCE 16384 /* elements, at least a row */

/* A row x that became q; in: means of squares and means of the inputs, NULL: not known. */
static void add_row(struct wexpr_quant_errors *out, const double *x, const double *q, const double *in,
                    int64_t k)
{
	const struct weight_input_stats inputs = {in, in ? in + k : NULL};
	double sum = 0, sum_x = 0;
	for (int64_t i = 0; i < k; i++) {
		double e = q[i] - x[i], variance = in ? weight_input_variance(&inputs, i) : 0;
		out->elements += e * e;
		out->of_elements += x[i] * x[i];
		out->products += variance * e * e;
		out->of_products += variance * x[i] * x[i];
		sum += in ? in[k + i] * e : 0;
		sum_x += in ? in[k + i] * x[i] : 0;
	}
	out->products += sum * sum;
	out->of_products += sum_x * sum_x;
}

static enum tfmc_status add_matrix(struct diag_context *cx, const struct ir_wexpr *e,
                                   const struct weight_source *source, struct wexpr_quant_errors *out)
{
	int64_t k = e->dims[e->rank - 1], n = wexpr_count(e), some = k < AT_ONCE ? AT_ONCE / k * k : k;
	double *x = memory_alloc((size_t)(2 * some + 2 * k) * sizeof(*x) + 1), *q = x + some, *in = q + some;
	bool has_inputs = e->n_args > 1;
	enum tfmc_status st = x ? TFMC_OK : TFMC_NO_MEMORY;
	if (st == TFMC_OK && has_inputs)
		st = wexpr_eval(cx, e->args[1], source, 0, 2 * k, in);
	for (int64_t at = 0; st == TFMC_OK && at < n; at += some) {
		some = n - at < some ? n - at : some;
		st = wexpr_eval(cx, e->args[0], source, at, some, x);
		if (st == TFMC_OK)
			st = wexpr_eval(cx, e, source, at, some, q);
		for (int64_t i = 0; st == TFMC_OK && i < some; i += k)
			add_row(out, x + i, q + i, has_inputs ? in : NULL, k);
	}
	memory_free(x);
	return st;
}

enum tfmc_status wexpr_add_quant_errors(struct diag_context *cx, const struct ir_wexpr *e,
                                        const struct weight_source *source, struct wexpr_quant_errors *out)
{
	if (e->kind == WX_QUANTIZE)
		return add_matrix(cx, e, source, out);
	for (size_t i = 0; i < e->n_args; i++)
		TFMC_TRY(wexpr_add_quant_errors(cx, e->args[i], source, out));
	return TFMC_OK;
}
