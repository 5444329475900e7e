/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files that evaluate weight expressions: eval.c has the
 * dispatch, stored tensors and what moves or maps elements one by one,
 * sums.c what reads whole rows or columns for one element.
 */
#ifndef TFMC_IR_WEIGHTS_INTERNAL_H
#define TFMC_IR_WEIGHTS_INTERNAL_H

#include "ir/weights/weight.h"

#define WEVAL_CHUNK  1024
#define WEVAL_RECENT 8

/* One call of wexpr_eval: the stored tensors met last, so that short ranges do not look names up again. */
struct weval {
	struct diag_context *cx;
	const struct weight_source *source;
	struct wexpr_memo *memo;
	const struct ir_wexpr *leaf[WEVAL_RECENT];
	struct weight_bytes bytes[WEVAL_RECENT];
	size_t next;
};

/* Elements [begin, begin + n) of e. */
enum tfmc_status weval(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n, double *out);

static inline struct wexpr_out weval_behind(struct wexpr_out out, int64_t n)
{
	return (struct wexpr_out){(char *)out.at + n * ir_dtype_bytes(out.dtype), out.dtype};
}
/* The same; what only moves elements does so in the type that is wanted, all arithmetic is in f64 and then
 * rounded. */
enum tfmc_status weval_to(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                          struct wexpr_out out);

typedef enum tfmc_status weval_node(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                    double *out);
weval_node weval_mul_columns, weval_matvec, weval_center, weval_repeat_elements;
/* Whole rows repeated. */
enum tfmc_status weval_repeat_rows(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   struct wexpr_out out);

static inline int64_t weval_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Product of dims [from, rank). */
static inline int64_t weval_inner(const struct ir_wexpr *e, int from)
{
	int64_t n = 1;
	for (int i = from; i < e->rank; i++)
		n *= e->dims[i];
	return n;
}

#endif
