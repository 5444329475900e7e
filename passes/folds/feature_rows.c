/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Features behind views. An axis of the view whose stride is a multiple of the
 * number of features walks over tokens; of the others at most one may be left
 * beside the last, that of the heads.
 */
#include "passes/folds/feature_rows.h"

#include "ir/core/view.h"

bool feature_count(const struct ir_func *f, struct ir_value v, int64_t *out)
{
	const struct ir_type *t = ir_type_of(f, v);
	return t->rank > 0 && ir_dim_is_const(t->dims[t->rank - 1], out) && *out > 0 && *out <= FEATURES_MAX;
}

int feature_axes(const struct ir_func *f, const struct ir_op *op)
{
	if (op == NULL || (op->code != OP_take_rows && op->code != OP_mask_rows))
		return 1;
	/* x [B,S,...] */
	int rank = ir_type_of(f, op->operands[0])->rank;
	return rank > 2 ? rank - 2 : 1;
}

/* All features of a value that is no view. */
static bool base_count(const struct ir_func *f, struct ir_value base, int64_t *out)
{
	const struct ir_type *t = ir_type_of(f, base);
	int axes = feature_axes(f, ir_def(f, base));
	*out = 1;
	for (int i = 1; i <= axes && i <= t->rank; i++) {
		int64_t n;
		if (!ir_dim_is_const(t->dims[t->rank - i], &n) || n <= 0 || n > FEATURES_MAX)
			return false;
		*out *= n;
		if (*out > FEATURES_MAX)
			return false;
	}
	return t->rank >= axes;
}

struct wexpr_rows feature_rows_all(int64_t n)
{
	return (struct wexpr_rows){.heads = 1, .step = n, .size = n};
}

/* --- views --------------------------------------------------------------------------------------------- */

/* What is left of a distance when whole tokens of n features are taken out. */
static bool within_token(const struct ir_module *m, const struct ir_dim *d, int64_t n, int64_t *out)
{
	int64_t c;
	if (ir_dim_is_const(d, &c)) {
		*out = c % n;
		return c >= 0;
	}
	*out = 0;
	return ir_dim_divide(m->dims, d, ir_dim_const(m->dims, n)) != NULL;
}

struct heads {
	int64_t n, step; /* n 1: no such axis */
};

/* Takes an axis of `n` places, `step` features apart, that lies inside of the axis found so far. */
static bool add_axis(struct heads *h, int64_t n, int64_t step)
{
	if (h->n == 1)
		*h = (struct heads){n, step};
	else if (h->step == n * step)
		*h = (struct heads){h->n * n, step};
	else
		return false;
	return true;
}

/* The last `axes` axes of the view lie side by side. */
static bool is_dense(const struct ir_view *view, int axes)
{
	int64_t expected = 1, size;
	for (int i = view->rank - 1; i >= view->rank - axes; i--) {
		if (i < 0 || !ir_dim_is_const(view->size[i], &size) || size <= 0 || size > FEATURES_MAX)
			return false;
		if (size != 1 && !ir_dim_equals(view->stride[i], expected))
			return false;
		expected *= size;
		if (expected > FEATURES_MAX)
			return false;
	}
	return true;
}

static bool find_heads(const struct ir_module *m, const struct ir_view *view, int axes, int64_t n,
                       struct heads *out)
{
	*out = (struct heads){1, 0};
	for (int i = 0; i + axes < view->rank; i++) {
		int64_t size, step;
		if (ir_dim_equals(view->size[i], 1))
			continue;
		if (!within_token(m, view->stride[i], n, &step))
			return false;
		if (step == 0)
			continue;
		if (!ir_dim_equals(view->stride[i], step) || !ir_dim_is_const(view->size[i], &size) ||
		    size > n || !add_axis(out, size, step))
			return false;
	}
	return true;
}

bool feature_rows_behind_views(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                               int axes, const struct wexpr_rows *in, struct ir_value *base,
                               struct wexpr_rows *out)
{
	struct ir_view view;
	struct heads h;
	int64_t n, offset;

	if (!ir_view_resolve(m, f, v, &view) || view.is_state || view.rank < axes ||
	    !base_count(f, view.base, &n) || !within_token(m, view.offset, n, &offset))
		return false;
	if (!is_dense(&view, axes) || !find_heads(m, &view, axes, n, &h) || (h.n > 1 && in->heads > 1))
		return false;
	*base = view.base;
	*out = *in;
	out->start += offset;
	if (h.n > 1) {
		out->heads = h.n;
		out->step = h.step;
	}
	return wexpr_rows_fit(out, n);
}

/* --- sets ---------------------------------------------------------------------------------------------- */

bool feature_rows_equal(const struct wexpr_rows *a, const struct wexpr_rows *b)
{
	return a->start == b->start && a->heads == b->heads && a->size == b->size &&
	       (a->heads == 1 || a->step == b->step);
}

/* Head `head` of a, against all of b: the nearest heads of b are those at and behind its first row. */
static bool head_meets(const struct wexpr_rows *a, int64_t head, const struct wexpr_rows *b)
{
	int64_t begin = a->start + head * a->step, end = begin + a->size;
	int64_t step = b->step > 0 ? b->step : 1;
	int64_t i = begin > b->start ? (begin - b->start) / step : 0;
	for (; i < b->heads && b->start + i * step < end; i++)
		if (b->start + i * step + b->size > begin)
			return true;
	return false;
}

bool feature_rows_meet(const struct wexpr_rows *a, const struct wexpr_rows *b)
{
	for (int64_t h = 0; h < a->heads; h++)
		if (head_meets(a, h, b))
			return true;
	return false;
}
