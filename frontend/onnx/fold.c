/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constant folding: nodes whose operands are known at import, above all the shape arithmetic of exporters (Shape,
 * Gather, Concat, Reshape). Ints are dims, so that sizes that vary are folded, too; an operation whose result is no
 * dim (a comparison that no bound decides) stays a node. A fold_ function makes the output of the node a known
 * value; false: it did not, and the node is imported as a statement unless im->failed.
 * A list is an operand of one axis.
 */
#include "frontend/onnx/import.h"

#include <math.h>
#include <string.h>

#define FOLDED_MAX 4096 /* elements of a folded value */

static bool is_float(const struct element *e)
{
	return e->dim == NULL;
}

static bool element_int(const struct element *e, int64_t *out)
{
	return e->dim != NULL && ir_dim_is_const(e->dim, out);
}

/* The only axis of a list. */
static bool is_first_axis(int64_t axis)
{
	return axis == 0 || axis == -1;
}

static struct element int_element(struct importer *im, int64_t v)
{
	return (struct element){ir_dim_const(im->dims, v), 0};
}

const struct element *elements_of_dims(struct importer *im, const struct ir_dim *const *dims, size_t n)
{
	struct element *out = ARENA_ARRAY(im->a, struct element, n + 1);
	for (size_t i = 0; out != NULL && i < n; i++)
		out[i].dim = dims[i];
	return out;
}

/* ---- arithmetic ---- */

enum fold_op { ADD, SUB, MUL, DIV, MOD, MIN, MAX, POW, EQ, LT, GT, LE, GE, AND, OR };

/* a OP b of floats; false: comparisons, MOD and logic, which are not folded for floats. */
static bool fold_floats(enum fold_op op, double a, double b, double *out)
{
	switch (op) {
	case ADD: *out = a + b; return true;
	case SUB: *out = a - b; return true;
	case MUL: *out = a * b; return true;
	case DIV: *out = a / b; return true;
	case MIN: *out = isnan(a) || a < b ? a : b; return true; /* NaN stays NaN, as in ONNX Runtime */
	case MAX: *out = isnan(a) || a > b ? a : b; return true;
	case POW: *out = pow(a, b); return true;
	case MOD:
	case EQ:
	case LT:
	case GT:
	case LE:
	case GE:
	case AND:
	case OR: break;
	}
	return false;
}

/* a / b toward zero, and a % b with the sign of b or, with fmod, of a: of constants, or of a dim that is not negative,
 * by a constant > 0; an exact quotient of any dims. NULL: no dim has this value. */
static const struct ir_dim *fold_quotient(struct importer *im, enum fold_op op, const struct ir_dim *a,
                                          const struct ir_dim *b)
{
	int64_t x, y;
	bool is_fmod = op == MOD && attribute_int(im, "fmod", 0) != 0;
	const struct ir_dim *q = ir_dim_equals(b, 0) ? NULL : ir_dim_divide(im->dims, a, b);
	if (!ir_dim_is_const(b, &y) || y <= 0)
		return op == DIV ? q : NULL;
	if (ir_dim_is_const(a, &x))
		return ir_dim_const(im->dims, op == DIV ? x / y : x % y < 0 && !is_fmod ? x % y + y : x % y);
	if (ir_dim_lo(im->dims, a) < 0)
		return op == DIV ? q : NULL;
	q = ir_dim_floordiv(im->dims, a, y);
	return op == DIV ? q : ir_dim_sub(im->dims, a, ir_dim_mul(im->dims, q, b));
}

/* A comparison of dims by their bounds: 1 it holds for all values, 0 for none, -1: no bound decides. */
static int fold_compare(struct importer *im, enum fold_op op, const struct ir_dim *a, const struct ir_dim *b)
{
	bool le = ir_dim_le(im->dims, a, b), ge = ir_dim_le(im->dims, b, a);
	const struct ir_dim *one = ir_dim_const(im->dims, 1);
	bool lt = ir_dim_le(im->dims, ir_dim_add(im->dims, a, one), b),
	     gt = ir_dim_le(im->dims, ir_dim_add(im->dims, b, one), a);
	switch (op) {
	case EQ: return a == b ? 1 : lt || gt ? 0 : -1;
	case LT: return lt ? 1 : ge ? 0 : -1;
	case GT: return gt ? 1 : le ? 0 : -1;
	case LE: return le ? 1 : gt ? 0 : -1;
	case GE: return ge ? 1 : lt ? 0 : -1;
	case ADD:
	case SUB:
	case MUL:
	case DIV:
	case MOD:
	case MIN:
	case MAX:
	case POW:
	case AND:
	case OR: break;
	}
	return -1;
}

/* a OP b of ints as a dim, bools as 0 and 1; NULL: no dim has this value. min(a, b) is a + b - max(a, b). */
static const struct ir_dim *fold_dims(struct importer *im, enum fold_op op, const struct ir_dim *a,
                                      const struct ir_dim *b)
{
	struct ir_dims *t = im->dims;
	int64_t x, y;
	switch (op) {
	case ADD: return ir_dim_add(t, a, b);
	case SUB: return ir_dim_sub(t, a, b);
	case MUL: return ir_dim_mul(t, a, b);
	case DIV:
	case MOD: return fold_quotient(im, op, a, b);
	case MAX: return ir_dim_max(t, a, b);
	case MIN: return ir_dim_sub(t, ir_dim_add(t, a, b), ir_dim_max(t, a, b));
	case AND:
	case OR:
		if (!ir_dim_is_const(a, &x) || !ir_dim_is_const(b, &y))
			return NULL;
		return ir_dim_const(t, op == AND ? x && y : x || y);
	case EQ:
	case LT:
	case GT:
	case LE:
	case GE: {
		int holds = fold_compare(im, op, a, b);
		return holds < 0 ? NULL : ir_dim_const(t, holds);
	}
	case POW: break;
	}
	return NULL;
}

/* v is a value of the type, if it is a constant; dims that vary are sizes, which fit the type of their
   exporter. */
static bool is_in_range(enum ir_dtype t, const struct ir_dim *v)
{
	int64_t c, values = (int64_t)1 << 8 * (t == DT_I64 ? 1 : ir_dtype_bytes(t));
	int64_t lo = t == DT_U8 ? 0 : -values / 2;
	return t == DT_I64 || t == DT_BOOL || !ir_dim_is_const(v, &c) || (c >= lo && c < lo + values);
}

/* a OP b of elements of the type. False: one is a float and the other an int, or the result is neither a float nor a
   dim, or an int that the type wraps. */
static bool fold_pair(struct importer *im, enum fold_op op, enum ir_dtype dtype, const struct element *a,
                      const struct element *b, struct element *out)
{
	if (is_float(a) != is_float(b))
		return false;
	if (is_float(a)) {
		*out = (struct element){NULL, 0};
		return fold_floats(op, a->f, b->f, &out->f);
	}
	*out = (struct element){fold_dims(im, op, a->dim, b->dim), 0};
	return out->dim != NULL && !ir_dims_failed(im->dims) && is_in_range(dtype, out->dim);
}

/* Operands of one type, as the operators require; floats of any width count as f32. */
static bool have_one_type(const struct operand *a, const struct operand *b)
{
	return a->dtype == b->dtype ||
	       (ir_dtype_class(a->dtype) == DTCLASS_FLOAT && ir_dtype_class(b->dtype) == DTCLASS_FLOAT);
}

/* The operand whose shape the result of a broadcast has: both have as many elements, or one has one. NULL: other
   broadcasts, which stay a node. */
static const struct operand *wider(const struct operand *a, const struct operand *b)
{
	if (a->n == b->n)
		return a->rank >= b->rank ? a : b;
	return b->n == 1 && b->rank <= a->rank ? a : a->n == 1 && a->rank <= b->rank ? b : NULL;
}

/* Element i of an operand, of which one element stands for all. */
static const struct element *at(const struct operand *v, size_t i)
{
	return &v->known[v->n == 1 ? 0 : i];
}

/* out = a OP b, element by element. False also for types that the operator does not have: logic is of bools, arithmetic
 * is not. */
static bool fold_binary(struct importer *im, enum fold_op op)
{
	const struct operand *a = operand_at(im, 0), *b = operand_at(im, 1);
	const struct operand *shape = a != NULL && b != NULL && im->node->inputs.n == 2 ? wider(a, b) : NULL;
	bool is_comparison = op >= EQ && op < AND;
	if (shape == NULL || !have_one_type(a, b) || (!is_comparison && (op >= AND) != (a->dtype == DT_BOOL)))
		return false;
	struct element *out = ARENA_ARRAY(im->a, struct element, shape->n + 1);
	for (size_t i = 0; out != NULL && i < shape->n; i++)
		if (!fold_pair(im, op, a->dtype, at(a, i), at(b, i), &out[i]))
			return false;
	enum ir_dtype dtype = op >= EQ ? DT_BOOL : a->dtype;
	return out != NULL && import_known(im, 0, dtype, shape->rank, shape->dims, out, shape->n);
}

/* ---- unary operators ---- */

/* out = f(a) of floats. False: an int, of which the result would be another type. */
static bool fold_unary(struct importer *im, double (*f)(double))
{
	const struct operand *a = operand_at(im, 0);
	struct element *out = ARENA_ARRAY(im->a, struct element, a->n + 1);
	for (size_t i = 0; out != NULL && i < a->n; i++) {
		if (!is_float(&a->known[i]))
			return false;
		out[i].f = f(a->known[i].f);
	}
	return out != NULL && import_known(im, 0, a->dtype, a->rank, a->dims, out, a->n);
}

static double reciprocal(double x)
{
	return 1 / x;
}

static bool fold_negative(struct importer *im)
{
	const struct operand *a = operand_at(im, 0);
	struct element *out = ARENA_ARRAY(im->a, struct element, a->n + 1);
	const struct element zero = int_element(im, 0);
	for (size_t i = 0; out != NULL && i < a->n; i++) {
		if (is_float(&a->known[i]))
			out[i].f = -a->known[i].f;
		else if (!fold_pair(im, SUB, a->dtype, &zero, &a->known[i], &out[i]))
			return false;
	}
	return out != NULL && import_known(im, 0, a->dtype, a->rank, a->dims, out, a->n);
}

/* Bools are ints 0 and 1. */
static bool fold_not(struct importer *im)
{
	const struct operand *a = operand_at(im, 0);
	struct element *out = ARENA_ARRAY(im->a, struct element, a->n + 1);
	int64_t v;
	for (size_t i = 0; out != NULL && i < a->n; i++) {
		if (!element_int(&a->known[i], &v))
			return false;
		out[i] = int_element(im, !v);
	}
	return out != NULL && import_known(im, 0, DT_BOOL, a->rank, a->dims, out, a->n);
}

/* Cast between ints and floats. False: other types, which might wrap, or a dim that varies as a float or bool. */
static bool fold_cast(struct importer *im)
{
	const struct operand *a = operand_at(im, 0);
	struct element *out = ARENA_ARRAY(im->a, struct element, a->n + 1);
	enum ir_dtype to;
	(void)attribute_of(im, "saturate"); /* of casts to 8-bit floats, which are not folded */
	if (!import_dtype(attribute_int(im, "to", 0), &to) ||
	    (to != DT_F32 && to != DT_I32 && to != DT_I64 && to != DT_BOOL))
		return false;
	for (size_t i = 0; out != NULL && i < a->n; i++) {
		const struct element *e = &a->known[i];
		int64_t v = 0;
		if (is_float(e) ? to != DT_F32 && !(fabs(e->f) < 0x1p31) /* also NaN */
		                : (to == DT_F32 || to == DT_BOOL) && !element_int(e, &v))
			return false;
		if (to == DT_F32)
			out[i].f = is_float(e) ? e->f : (double)v;
		else if (to == DT_BOOL)
			out[i] = int_element(im, is_float(e) ? e->f != 0 : v != 0);
		else
			out[i] = is_float(e) ? int_element(im, (int64_t)e->f) : *e;
	}
	return out != NULL && import_known(im, 0, to, a->rank, a->dims, out, a->n);
}

/* ---- shapes ---- */

/* Shape: the dims [start, end) of any operand, known or not; both bounds are clamped to the rank. */
static bool fold_shape(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t start = attribute_int(im, "start", 0), end = attribute_int(im, "end", v->rank);
	start += start < 0 ? v->rank : 0;
	end += end < 0 ? v->rank : 0;
	start = start < 0 ? 0 : start > v->rank ? v->rank : start;
	end = end > v->rank ? v->rank : end < start ? start : end;
	const struct ir_dim *n = ir_dim_const(im->dims, end - start);
	return import_known(im, 0, DT_I64, 1, &n,
	                    elements_of_dims(im, v->dims + start, (size_t)(end - start)),
	                    (size_t)(end - start));
}

/* Size: the number of elements, of any operand, as its shape is always known. */
static bool fold_size(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	const struct ir_dim *n = ir_dim_const(im->dims, 1);
	for (int i = 0; i < v->rank; i++)
		n = ir_dim_mul(im->dims, n, v->dims[i]);
	return import_known(im, 0, DT_I64, 0, NULL, elements_of_dims(im, &n, 1), 1);
}

/* A node Constant without a tensor: value_int, value_ints, value_float, value_floats. */
static bool fold_constant(struct importer *im)
{
	const struct onnx_attribute *a =
	        im->node->attributes.n > 0 ? attribute_of(im, im->node->attributes.items[0].name) : NULL;
	if (a != NULL && a->kind == ONNX_TENSOR)
		return true; /* bound as a tensor of the file */
	size_t n = a == NULL                ? 0
	           : a->kind == ONNX_INTS   ? a->ints.n
	           : a->kind == ONNX_FLOATS ? a->floats.n
	                                    : 1;
	struct element *out = ARENA_ARRAY(im->a, struct element, n + 1);
	bool is_int = a != NULL && (a->kind == ONNX_INT || a->kind == ONNX_INTS);
	if (out == NULL || a == NULL || (!is_int && a->kind != ONNX_FLOAT && a->kind != ONNX_FLOATS))
		return import_refuse(im, "not supported: a constant of this kind");
	for (size_t i = 0; i < n; i++)
		out[i] = is_int ? int_element(im, a->kind == ONNX_INT ? a->i : a->ints.items[i])
		                : (struct element){NULL, a->kind == ONNX_FLOAT ? a->f : a->floats.items[i]};
	const struct ir_dim *size = ir_dim_const(im->dims, (int64_t)n);
	bool is_list = a->kind == ONNX_INTS || a->kind == ONNX_FLOATS;
	return import_known(im, 0, is_int ? DT_I64 : DT_F32, is_list, &size, out, n);
}

/* start, start + delta, .. before limit, of constant ints; bounds of 32 bits keep the count from overflowing. */
static bool fold_range(struct importer *im)
{
	int64_t start, limit, delta;
	if (!operand_int(operand_at(im, 0), 0, &start) || !operand_int(operand_at(im, 1), 0, &limit) ||
	    !operand_int(operand_at(im, 2), 0, &delta) || delta == 0 || start > INT32_MAX ||
	    start < INT32_MIN || limit > INT32_MAX || limit < INT32_MIN || delta > INT32_MAX ||
	    delta < INT32_MIN)
		return false;
	int64_t n = delta > 0 ? (limit - start + delta - 1) / delta : (start - limit - delta - 1) / -delta;
	n = n < 0 ? 0 : n;
	struct element *out = n <= FOLDED_MAX ? ARENA_ARRAY(im->a, struct element, n + 1) : NULL;
	for (int64_t i = 0; out != NULL && i < n; i++)
		out[i] = int_element(im, start + i * delta);
	const struct ir_dim *size = ir_dim_const(im->dims, n);
	return out != NULL && import_known(im, 0, operand_at(im, 0)->dtype, 1, &size, out, (size_t)n);
}

/* Reshape, Squeeze, Unsqueeze of a number or a list, where the result is a number or a list with the same
   elements. */
static bool fold_reshape(struct importer *im)
{
	const struct operand *v = operand_at(im, 0);
	const struct ir_dim *dims[IR_RANK_MAX], *one = ir_dim_const(im->dims, 1);
	const int64_t *list;
	size_t n = 0, rank = 0;
	if (strcmp(im->node->op, "Reshape") == 0) {
		(void)attribute_of(im, "allowzero"); /* a folded value has elements */
		bool is_list = list_ints(im, "shape", 1, &list, &n) && n <= 1;
		if (!is_list || (n == 1 && list[0] != -1 && list[0] != (int64_t)v->n))
			return false;
		dims[0] = ir_dim_const(im->dims, (int64_t)v->n);
		return import_known(im, 0, v->dtype, (int)n, dims, v->known, v->n);
	}
	if (v->rank > 1)
		return false;
	bool removes = strcmp(im->node->op, "Squeeze") == 0;
	(void)list_ints(im, "axes", 1, &list, &n);
	if (removes && v->n == 1)
		return import_known(im, 0, v->dtype, 0, NULL, v->known, 1);
	if (removes || (size_t)v->rank + n > 1)
		return false;
	for (rank = 0; rank < n; rank++)
		dims[rank] = one;
	return import_known(im, 0, v->dtype, (int)rank, dims, v->known, v->n);
}

/* Lists one after another; the axis of lists is 0. */
static bool fold_concat(struct importer *im)
{
	size_t n = 0, to = 0;
	if (!is_first_axis(attribute_int(im, "axis", 0)))
		return false;
	for (size_t i = 0; i < im->node->inputs.n; i++) {
		const struct operand *v = operand_at(im, i);
		if (v->rank != 1 || v->n > FOLDED_MAX || n > FOLDED_MAX ||
		    !have_one_type(v, operand_at(im, 0)))
			return false;
		n += v->n;
	}
	struct element *out = ARENA_ARRAY(im->a, struct element, n + 1);
	for (size_t i = 0; out != NULL && i < im->node->inputs.n; i++)
		for (size_t k = 0; k < operand_at(im, i)->n; k++)
			out[to++] = operand_at(im, i)->known[k];
	const struct ir_dim *size = ir_dim_const(im->dims, (int64_t)n);
	return out != NULL && import_known(im, 0, operand_at(im, 0)->dtype, 1, &size, out, n);
}

/* Elements of a list; the result has the shape of the ids, of which negative ones count from the end. */
static bool fold_gather(struct importer *im)
{
	const struct operand *v = operand_at(im, 0), *ids = operand_at(im, 1);
	struct element *out =
	        v->rank != 1 || !is_first_axis(attribute_int(im, "axis", 0)) || ids->n > FOLDED_MAX
	                ? NULL
	                : ARENA_ARRAY(im->a, struct element, ids->n + 1);
	for (size_t i = 0; out != NULL && i < ids->n; i++) {
		int64_t id;
		if (!element_int(&ids->known[i], &id))
			return false;
		id += id < 0 ? (int64_t)v->n : 0;
		if (id < 0 || id >= (int64_t)v->n)
			return import_refuse(im, "Gather of element %lld of %zu", (long long)id, v->n);
		out[i] = v->known[id];
	}
	return out != NULL && import_known(im, 0, v->dtype, ids->rank, ids->dims, out, ids->n);
}

/* A slice of a list, with a positive or negative step. Bounds are clamped as the standard does: to [0, n], backwards
   to [-1, n - 1]. Steps beyond the size stay a node: i += by could overflow. */
static bool fold_slice(struct importer *im)
{
	const struct operand *v = operand_at(im, 0);
	const int64_t *begin, *end, *step, *axes;
	size_t n, n_steps = 0;
	if (list_ints(im, "axes", 3, &axes, &n) && (n != 1 || !is_first_axis(axes[0])))
		return false;
	if (v->rank != 1 || v->n > FOLDED_MAX || !list_ints(im, "starts", 1, &begin, &n) || n != 1 ||
	    !list_ints(im, "ends", 2, &end, &n) || n != 1)
		return false;
	int64_t size = (int64_t)v->n,
	        by = list_ints(im, "steps", 4, &step, &n_steps) && n_steps == 1 ? step[0] : 1;
	int64_t from = begin[0] < 0 ? begin[0] + size : begin[0], to = end[0] < 0 ? end[0] + size : end[0];
	struct element *out = ARENA_ARRAY(im->a, struct element, size + 1);
	if (out == NULL || by == 0 || by > size + 1 || by < -size - 1)
		return false;
	from = by > 0 ? (from < 0 ? 0 : from) : from >= size ? size - 1 : from;
	to = by > 0 ? (to > size ? size : to) : to < -1 ? -1 : to;
	if (by < 0 && end[0] < -size) /* the end is before element 0 */
		to = -1;
	n = 0;
	for (int64_t i = from; by > 0 ? i < to : i > to && i >= 0; i += by)
		out[n++] = v->known[i];
	const struct ir_dim *count = ir_dim_const(im->dims, (int64_t)n);
	return import_known(im, 0, v->dtype, 1, &count, out, n);
}

/* c ? a : b, element by element. */
static bool fold_where(struct importer *im)
{
	const struct operand *c = operand_at(im, 0), *a = operand_at(im, 1), *b = operand_at(im, 2);
	const struct operand *shape = have_one_type(a, b) ? wider(a, b) : NULL;
	shape = shape != NULL ? wider(shape, c) : NULL;
	struct element *out = shape == NULL ? NULL : ARENA_ARRAY(im->a, struct element, shape->n + 1);
	int64_t holds;
	for (size_t i = 0; out != NULL && i < shape->n; i++) {
		if (!element_int(at(c, i), &holds))
			return false;
		out[i] = *at(holds ? a : b, i);
	}
	return out != NULL && import_known(im, 0, a->dtype, shape->rank, shape->dims, out, shape->n);
}

/* ReduceProd, ReduceSum, ReduceMax, ReduceMin of a list by the operation of two elements. With keepdims the result is
   a list of one, else a scalar. */
static bool fold_reduce(struct importer *im, enum fold_op op)
{
	const struct operand *v = operand_at(im, 0);
	struct element all;
	const int64_t *axes;
	size_t n;
	const struct ir_dim *one = ir_dim_const(im->dims, 1);
	bool has_axes = list_ints(im, "axes", 1, &axes, &n) && n > 0,
	     keeps_all = attribute_int(im, "noop_with_empty_axes", 0) != 0;
	if (v->rank != 1 || v->n == 0 || (has_axes ? n != 1 || !is_first_axis(axes[0]) : keeps_all))
		return false;
	all = v->known[0];
	for (size_t i = 1; i < v->n; i++) {
		struct element next;
		if (!fold_pair(im, op, v->dtype, &all, &v->known[i], &next))
			return false;
		all = next;
	}
	struct element *out = ARENA_NEW(im->a, struct element);
	if (out != NULL)
		*out = all;
	return import_known(im, 0, v->dtype, attribute_int(im, "keepdims", 1) != 0, &one, out, 1);
}

/* A number or a list of at most FOLDED_MAX equal elements, 0.0 if the node has no value. False: more axes or
   elements, or a size that varies. */
static bool fold_constant_of_shape(struct importer *im)
{
	const int64_t *dims;
	size_t rank;
	const struct onnx_attribute *a = attribute_of(im, "value");
	const struct operand *shape = operand_at(im, 0);
	for (size_t i = 0; i < shape->n; i++)
		if (!element_int(&shape->known[i], &(int64_t){0}))
			return false;
	if (!list_ints(im, "input", 0, &dims, &rank) || rank > 1 ||
	    (rank == 1 && (dims[0] < 0 || dims[0] > FOLDED_MAX)))
		return false;
	const struct stored_tensor *t = a != NULL && a->tensor != NULL ? &a->tensor->stored : NULL;
	if (t != NULL && (!t->readable || t->data == NULL || t->bytes == 0))
		return false;
	bool floats = t == NULL || ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
	double v = t != NULL ? stored_element(t, 0) : 0;
	size_t n = rank == 1 ? (size_t)dims[0] : 1;
	struct element *out = ARENA_ARRAY(im->a, struct element, n + 1);
	for (size_t i = 0; out != NULL && i < n; i++)
		out[i] = floats ? (struct element){NULL, v} : int_element(im, (int64_t)v);
	const struct ir_dim *size = ir_dim_const(im->dims, (int64_t)n);
	return out != NULL && import_known(im, 0, floats ? DT_F32 : t->dtype, (int)rank, &size, out, n);
}

/* ---- the node ---- */

static const struct folder {
	const char *op;
	bool (*plain)(struct importer *im);
	bool (*binary)(struct importer *im, enum fold_op op);
	enum fold_op with;
	double (*unary)(double);
} folders[] = {
        {"Add", NULL, fold_binary, ADD, NULL},
        {"Sub", NULL, fold_binary, SUB, NULL},
        {"Mul", NULL, fold_binary, MUL, NULL},
        {"Div", NULL, fold_binary, DIV, NULL},
        {"Mod", NULL, fold_binary, MOD, NULL},
        {"Min", NULL, fold_binary, MIN, NULL},
        {"Max", NULL, fold_binary, MAX, NULL},
        {"Pow", NULL, fold_binary, POW, NULL},
        {"Equal", NULL, fold_binary, EQ, NULL},
        {"Less", NULL, fold_binary, LT, NULL},
        {"Greater", NULL, fold_binary, GT, NULL},
        {"LessOrEqual", NULL, fold_binary, LE, NULL},
        {"GreaterOrEqual", NULL, fold_binary, GE, NULL},
        {"And", NULL, fold_binary, AND, NULL},
        {"Or", NULL, fold_binary, OR, NULL},
        {"ReduceProd", NULL, fold_reduce, MUL, NULL},
        {"ReduceSum", NULL, fold_reduce, ADD, NULL},
        {"ReduceMax", NULL, fold_reduce, MAX, NULL},
        {"ReduceMin", NULL, fold_reduce, MIN, NULL},
        {"Sqrt", NULL, NULL, ADD, sqrt},
        {"Floor", NULL, NULL, ADD, floor},
        {"Ceil", NULL, NULL, ADD, ceil},
        {"Exp", NULL, NULL, ADD, exp},
        {"Log", NULL, NULL, ADD, log},
        {"Reciprocal", NULL, NULL, ADD, reciprocal},
        {"Neg", fold_negative, NULL, ADD, NULL},
        {"Not", fold_not, NULL, ADD, NULL},
        {"Cast", fold_cast, NULL, ADD, NULL},
        {"Range", fold_range, NULL, ADD, NULL},
        {"Reshape", fold_reshape, NULL, ADD, NULL},
        {"Squeeze", fold_reshape, NULL, ADD, NULL},
        {"Unsqueeze", fold_reshape, NULL, ADD, NULL},
        {"Concat", fold_concat, NULL, ADD, NULL},
        {"Gather", fold_gather, NULL, ADD, NULL},
        {"Slice", fold_slice, NULL, ADD, NULL},
        {"Where", fold_where, NULL, ADD, NULL},
        {"ConstantOfShape", fold_constant_of_shape, NULL, ADD, NULL},
};

/* All operands are known, and as many are there as the operator requires: the fold_ functions read these without
   asking for NULL. */
static bool has_known_operands(struct importer *im)
{
	const char *op = im->node->op;
	size_t needed = strcmp(op, "Range") == 0 || strcmp(op, "Where") == 0 || strcmp(op, "Slice") == 0 ? 3
	                : strcmp(op, "Gather") == 0                                                      ? 2
	                : strcmp(op, "Concat") == 0 ? im->node->inputs.n
	                                            : 1;
	for (size_t i = 0; i < im->node->inputs.n; i++) {
		const struct operand *v = operand_at(im, i);
		if (v == NULL ? i < needed : v->known == NULL)
			return false;
	}
	return im->node->inputs.n >= needed && im->node->inputs.n > 0;
}

/* Shape, Size and Constant are folded for any operands; others by the row of `folders`, when all operands are
   known. */
bool import_fold(struct importer *im)
{
	const char *op = im->node->op;
	if (strcmp(op, "Shape") == 0)
		return fold_shape(im) || im->failed;
	if (strcmp(op, "Size") == 0)
		return fold_size(im) || im->failed;
	if (strcmp(op, "Constant") == 0)
		return fold_constant(im) || im->failed;
	for (size_t i = 0; i < TFMC_COUNT(folders); i++) {
		const struct folder *f = &folders[i];
		if (strcmp(f->op, op) != 0)
			continue;
		if (!has_known_operands(im))
			return false;
		bool folded = f->plain != NULL    ? f->plain(im)
		              : f->binary != NULL ? f->binary(im, f->with)
		                                  : fold_unary(im, f->unary);
		return folded || im->failed;
	}
	return false;
}
