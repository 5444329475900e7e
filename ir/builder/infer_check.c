/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of type inference that many ops share, with their messages.
 */
#include "ir/builder/infer_internal.h"

#include <inttypes.h>

#include "ir/core/axes.h"

bool infer_fail(const struct infer *c, enum diag_code code, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	const char *text = arena_vprintf(&c->m->arena, fmt, ap);
	va_end(ap);
	diag_error(c->cx, c->loc.at, code, "%s: %s", c->desc->name, text);
	return false;
}

const char *infer_text(const struct infer *c, const struct ir_type *t)
{
	return ir_type_to_string(&c->m->arena, c->m->dims, t);
}

const char *infer_dim_text(const struct infer *c, const struct ir_dim *d)
{
	return ir_dim_to_string(&c->m->arena, c->m->dims, d, false);
}

static const char *infer_name(const struct infer *c, size_t i)
{
	const struct ir_operand_desc *d = c->desc->operands;
	for (size_t k = 0; k < i && d->name != NULL && d->kind != OPERAND_VARIADIC; k++)
		d++;
	return d->name != NULL ? d->name : "operand";
}

bool infer_mismatch(const struct infer *c, enum diag_code code, size_t a, size_t b, const char *what)
{
	return infer_fail(c, code, "%s is %s, %s is %s: %s", infer_name(c, a), infer_text(c, c->in[a]),
	                  infer_name(c, b), infer_text(c, c->in[b]), what);
}

bool infer_rank_min(const struct infer *c, size_t i, int rank)
{
	if (c->in[i]->rank >= rank)
		return true;
	return infer_fail(c, DIAG_SHAPE, "%s is %s, it needs at least %d axes", infer_name(c, i),
	                  infer_text(c, c->in[i]), rank);
}

bool infer_rank(const struct infer *c, size_t i, int rank)
{
	if (c->in[i] == NULL || c->in[i]->rank == rank)
		return true;
	return infer_fail(c, DIAG_SHAPE, "%s is %s, it needs %d axes", infer_name(c, i),
	                  infer_text(c, c->in[i]), rank);
}

bool infer_axes_equal(const struct infer *c, size_t a, int x, size_t b, int y)
{
	if (c->in[a] == NULL || c->in[b] == NULL || c->in[a]->dims[x] == c->in[b]->dims[y])
		return true;
	const char *what = arena_printf(&c->m->arena, "axis %d of %s (%s) and axis %d of %s (%s) differ", x,
	                                infer_name(c, a), infer_dim_text(c, c->in[a]->dims[x]), y,
	                                infer_name(c, b), infer_dim_text(c, c->in[b]->dims[y]));
	return infer_mismatch(c, DIAG_SHAPE, a, b, what);
}

bool infer_per_batch(const struct infer *c, size_t i, size_t of)
{
	if (i >= c->n_in || c->in[i] == NULL)
		return true;
	return infer_rank(c, i, 1) && infer_axes_equal(c, i, 0, of, 0);
}

bool infer_axis(const struct infer *c, int64_t axis, int rank)
{
	if (axis >= 0 && axis < rank)
		return true;
	return infer_fail(c, DIAG_SHAPE, "axis %" PRId64 " of a tensor with %d axes", axis, rank);
}

bool infer_same_dtype(const struct infer *c, size_t a, size_t b)
{
	if (c->in[a]->dtype == c->in[b]->dtype)
		return true;
	return infer_mismatch(c, DIAG_DTYPE, a, b, "the element types differ");
}

bool infer_result(const struct infer *c, enum ir_dtype dtype, int rank, const struct ir_dim *const *dims)
{
	if (rank > IR_RANK_MAX)
		return infer_fail(c, DIAG_SHAPE, "the result has %d axes, at most %d are possible", rank,
		                  IR_RANK_MAX);
	for (int i = 0; i < rank; i++) {
		if (dims[i] == NULL)
			return infer_fail(c, DIAG_SHAPE, "a dim of the result is missing");
		if (ir_dim_lo(c->m->dims, dims[i]) < 0)
			return infer_fail(c, DIAG_SHAPE, "axis %d of the result (%s) may be negative", i,
			                  infer_dim_text(c, dims[i]));
	}
	c->out[0] = ir_type_tensor(c->m->types, dtype, rank, dims);
	return c->out[0] != NULL || infer_fail(c, DIAG_INTERNAL, "out of memory");
}

/* ---- by the axes of the row ---- */

/* Where a named axis was met first. */
struct axis_place {
	bool known;
	size_t operand;
	int axis;
};

static bool wrong_rank(const struct infer *c, const struct ir_axes *a, size_t i)
{
	const struct ir_axis_list *list = &a->in[i];
	if (list->run >= 0 && list->n == 1 && a->in[0].n == 1)
		return infer_mismatch(c, DIAG_SHAPE, 0, i, "the shapes differ (only broadcast repeats axes)");
	if (list->run >= 0 && a->run[list->run] < 0)
		return infer_rank_min(c, i, list->n - 1);
	return infer_rank(c, i, ir_axes_rank(a, list));
}

/* Operands of the same names have equal axes; `place` becomes where each name is. */
static bool find_places(const struct infer *c, const struct ir_axes *a, struct axis_place *place)
{
	for (size_t i = 0; i < a->n_in; i++)
		for (int k = 0; c->in[i] != NULL && k < c->in[i]->rank; k++) {
			struct axis_place *p = &place[ir_axis_name(a, &a->in[i], k)];
			if (!p->known)
				*p = (struct axis_place){true, i, k};
			else if (c->in[p->operand]->dims[p->axis] != c->in[i]->dims[k])
				return a->in[i].n == 1 && a->in[i].run >= 0 && p->operand == 0 &&
				                       a->in[0].n == 1
				               ? wrong_rank(c, a, i)
				               : infer_axes_equal(c, p->operand, p->axis, i, k);
		}
	return true;
}

bool infer_by_axes(const struct infer *c)
{
	struct axis_place place[IR_AXIS_NAMES] = {{0}};
	const struct ir_dim *dims[2 * IR_RANK_MAX];
	struct ir_axes a;
	size_t misfit;
	if (!ir_axes(c->desc->code, c->attrs, c->in, c->n_in, &a, &misfit))
		return misfit == SIZE_MAX ? infer_fail(c, DIAG_INTERNAL, "has neither axes nor a rule")
		                          : wrong_rank(c, &a, misfit);
	if (!find_places(c, &a, place))
		return false;
	int rank = ir_axes_rank(&a, &a.out);
	for (int i = 0; i < rank && i < (int)TFMC_COUNT(dims); i++) {
		const struct axis_place *p = &place[ir_axis_name(&a, &a.out, i)];
		dims[i] = c->in[p->operand]->dims[p->axis];
	}
	return infer_result(c, c->in[0]->dtype, rank, dims);
}
