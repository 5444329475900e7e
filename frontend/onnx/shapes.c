/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that move elements, or make tensors of positions: reshape, slice, gather, pad, range, .. An import_
 * function makes the outputs of the node values of statements; false: it refused, with a diagnostic. Where nothing
 * changes, the output is an alias of the operand, without a statement. Refusals are sticky (im->failed): after one,
 * helpers return "", 1, axis 0 or an empty operand. Sizes are dims, numbers or expressions of symbols that vary between
 * calls; equal ones are one pointer. list_dims() reads a list that must be known at import, from an attribute or an
 * operand.
 */
#include "frontend/onnx/import.h"

#include <string.h>

/* The product of sizes [from, to), 1 for none. */
static const struct ir_dim *product_of(struct importer *im, const struct ir_dim *const *dims, int from,
                                       int to)
{
	const struct ir_dim *p = ir_dim_const(im->dims, 1);
	for (int i = from; i < to; i++)
		p = ir_dim_mul(im->dims, p, dims[i]);
	return p;
}

static bool same_dims(const struct operand *v, int rank, const struct ir_dim *const *dims)
{
	bool same = v->rank == rank;
	for (int i = 0; same && i < rank; i++)
		same = v->dims[i] == dims[i];
	return same;
}

/* Output 0 is operand 0 in another shape. */
static bool output_reshaped(struct importer *im, int rank, const struct ir_dim *const *dims)
{
	struct operand *v = operand_needed(im, 0);
	if (same_dims(v, rank, dims))
		return import_alias(im, 0, v);
	return import_output(im, 0, "reshape(%s, %s)", operand_tensor(im, v), dims_text(im, rank, dims));
}

/* The list of sizes that is operand i (or the attribute `shape`), into dims[IR_RANK_MAX]; returns the rank, -1 after
   a refusal. */
static int shape_operand(struct importer *im, size_t i, const struct ir_dim **dims)
{
	const struct ir_dim *const *list;
	size_t n;
	if (!list_dims(im, "shape", i, &list, &n) || n > IR_RANK_MAX) {
		import_refuse(im, "%s: a shape of at most %d sizes is missing", im->node->op, IR_RANK_MAX);
		return -1;
	}
	for (size_t k = 0; k < n; k++)
		dims[k] = list[k];
	return (int)n;
}

/* 0 keeps a size (unless allowzero), -1 is the quotient of all elements by the other sizes. */
bool import_reshape(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	const struct ir_dim *dims[IR_RANK_MAX], *others = ir_dim_const(im->dims, 1);
	int rank = shape_operand(im, 1, dims), inferred = -1;
	bool keeps = attribute_int(im, "allowzero", 0) == 0;
	for (int i = 0; i < rank; i++) {
		if (keeps && ir_dim_equals(dims[i], 0) && i < v->rank)
			dims[i] = v->dims[i];
		if (ir_dim_equals(dims[i], -1))
			inferred = i;
		else
			others = ir_dim_mul(im->dims, others, dims[i]);
	}
	if (inferred >= 0 && !im->failed) {
		const struct ir_dim *all = product_of(im, v->dims, 0, v->rank);
		dims[inferred] = ir_dim_equals(others, 0) ? NULL : ir_dim_divide(im->dims, all, others);
		if (dims[inferred] == NULL)
			return import_refuse(im, "Reshape: %s elements are no multiple of %s",
			                     dim_text(im, all), dim_text(im, others));
	}
	return rank >= 0 && output_reshaped(im, rank, dims);
}

/* Two axes: the product of those before `axis`, and that of the others. */
bool import_flatten(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t axis = attribute_int(im, "axis", 1);
	int at = axis == v->rank ? v->rank : axis_of(im, axis, v->rank);
	const struct ir_dim *dims[] = {product_of(im, v->dims, 0, at), product_of(im, v->dims, at, v->rank)};
	return !im->failed && output_reshaped(im, 2, dims);
}

/* Squeeze and Unsqueeze: axes of size 1 go, or come. `full`: the rank with these axes, in which the list counts.
   Squeeze without a list removes all axes that are surely 1. */
bool import_squeeze(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	const struct ir_dim *dims[IR_RANK_MAX], *one = ir_dim_const(im->dims, 1);
	const int64_t *axes;
	size_t n;
	bool adds = strcmp(im->node->op, "Unsqueeze") == 0, all = !list_ints(im, "axes", 1, &axes, &n),
	     listed[IR_RANK_MAX] = {false};
	int full = v->rank + (adds ? (int)n : 0), rank = 0, from = 0;
	if (im->failed || (adds && all) || n > IR_RANK_MAX || full > IR_RANK_MAX)
		return import_refuse(im, "%s: its axes are missing, or too many", im->node->op);
	for (size_t i = 0; i < n && !all && full > 0; i++) {
		int axis = axis_of(im, axes[i], full);
		if (listed[axis])
			return import_refuse(im, "%s: axis %d twice", im->node->op, axis);
		listed[axis] = true;
	}
	for (int i = 0; i < full; i++) {
		if (adds)
			dims[rank++] = listed[i] || from == v->rank ? one : v->dims[from++];
		else if (all ? !ir_dim_equals(v->dims[i], 1) : !listed[i])
			dims[rank++] = v->dims[i];
	}
	return !im->failed && output_reshaped(im, rank, dims);
}

/* Without `perm` all axes are reversed. */
bool import_transpose(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	const int64_t *perm;
	int64_t order[IR_RANK_MAX];
	size_t n;
	bool is_listed = list_ints(im, "perm", SIZE_MAX, &perm, &n);
	for (int i = 0; i < v->rank; i++)
		order[i] = is_listed && i < (int)n ? perm[i] : v->rank - 1 - i;
	if (v->rank < 2)
		return import_alias(im, 0, v);
	return import_output(im, 0, "transpose(%s, %s)", operand_tensor(im, v),
	                     ints_text(im, order, (size_t)v->rank));
}

/* Operands without elements are left out; one tensor that remains is the result. */
bool import_concat(struct importer *im)
{
	const char *list = "";
	struct operand *only = NULL;
	int axis = axis_of(im, attribute_int(im, "axis", 0), operand_needed(im, 0)->rank);
	size_t n = 0;
	for (size_t i = 0; i < im->node->inputs.n; i++) {
		struct operand *v = operand_needed(im, i);
		if (v->rank > axis && ir_dim_equals(v->dims[axis], 0))
			continue; /* an empty cache of an exporter */
		only = v;
		list = import_text(im, "%s%s%s", list, n++ > 0 ? ", " : "", operand_tensor(im, v));
	}
	if (n == 1)
		return import_alias(im, 0, only);
	return import_output(im, 0, "concat([%s], axis=%d)", list, axis);
}

/* Into the sizes of the operand, or into equal parts, the last of which may be smaller. One part is the operand
   itself. */
bool import_split(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int axis = axis_of(im, attribute_int(im, "axis", 0), v->rank);
	const struct ir_dim *const *sizes;
	size_t n = im->node->outputs.n, given;
	if (attribute_int(im, "num_outputs", (int64_t)n) != (int64_t)n || im->failed || n > IR_RANK_MAX * 64)
		return import_refuse(im, "Split into %zu parts", n);
	bool listed = list_dims(im, "split", 1, &sizes, &given);
	const struct ir_dim **parts = ARENA_ARRAY(im->a, const struct ir_dim *, n + 1);
	const char **names = ARENA_ARRAY(im->a, const char *, n + 1);
	if (im->failed || parts == NULL || names == NULL || (listed && given != n))
		return import_refuse(im, "Split: %zu sizes for %zu outputs", given, n);
	int64_t size = listed ? 0 : operand_size(im, v, axis), each = (size + (int64_t)n - 1) / (int64_t)n;
	const char *list = "[";
	for (size_t i = 0; i < n; i++) {
		int64_t left = size - (int64_t)i * each;
		parts[i] = listed ? sizes[i] : ir_dim_const(im->dims, left < each ? left : each);
		list = import_text(im, "%s%s%s", list, i > 0 ? ", " : "", dim_text(im, parts[i]));
	}
	if (n == 1)
		return import_alias(im, 0, operand_at(im, 0));
	const char *value = import_text(im, "split(%s, axis=%d, sizes=%s])", tensor_at(im, 0), axis, list);
	if (!import_statements(im, im->node->outputs.items, n, value, names))
		return false;
	bool ok = true;
	for (size_t i = 0; i < n && ok; i++)
		ok = import_value(im, i, names[i]);
	return ok;
}

/* ---- slices ---- */

/* A bound of a slice, clamped to [0, size]; negative ones count from the end. INT_MAX and beyond mean the end, as
   exporters write it. Comparisons that bounds of dims do not decide become max and min of dims. */
static const struct ir_dim *slice_bound(struct importer *im, const struct ir_dim *bound,
                                        const struct ir_dim *size)
{
	const struct ir_dim *zero = ir_dim_const(im->dims, 0);
	int64_t n;
	if (ir_dim_is_const(bound, &n) && n > INT32_MAX)
		return size;
	if (ir_dim_is_const(bound, &n) && n < -INT32_MAX)
		return zero;
	if (ir_dim_hi(im->dims, bound) < 0)
		bound = ir_dim_add(im->dims, bound, size);
	if (ir_dim_le(im->dims, size, bound))
		return size;
	if (ir_dim_le(im->dims, bound, zero))
		return zero;
	if (!ir_dim_le(im->dims, bound, size)) /* the smaller of both */
		bound = ir_dim_sub(im->dims, ir_dim_add(im->dims, bound, size),
		                   ir_dim_max(im->dims, bound, size));
	return ir_dim_lo(im->dims, bound) < 0 ? ir_dim_max(im->dims, bound, zero) : bound;
}

/* A slice with a negative step as a gather: elements from, from + step, .. down to but without `to`; all numbers are
   constants, and clamped to [-1, size - 1]. */
static const char *backward_text(struct importer *im, const char *x, const struct operand *v, int axis,
                                 int64_t from, int64_t to, int64_t step)
{
	int64_t size = operand_size(im, v, axis);
	from = from < -size ? -1 : from < 0 ? from + size : from >= size ? size - 1 : from;
	to = to < -size ? -1 : to < 0 ? to + size : to >= size ? size - 1 : to;
	int64_t n = step > -INT32_MAX && from > to ? (from - to - step - 1) / -step : from > to ? 1 : 0;
	if (n == 0)
		import_refuse(im, "not supported: a slice without elements");
	return import_text(im, "gather(%s, iota([%lld]) * (%lld) + %lld, axis=%d)", x, (long long)n,
	                   (long long)(n == 1 ? -1 : step), (long long)from, axis);
}

/* Axis after axis; one that keeps all elements writes nothing. Slices that may be empty for some size are refused:
   the language has none. */
bool import_slice(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	const struct ir_dim *const *begin, *const *end;
	const int64_t *axes, *steps;
	size_t n, n_end, n_axes, n_steps;
	if (!list_dims(im, "starts", 1, &begin, &n) || !list_dims(im, "ends", 2, &end, &n_end) || n != n_end)
		return import_refuse(im, "Slice: its bounds are missing");
	bool has_axes = list_ints(im, "axes", 3, &axes, &n_axes),
	     has_steps = list_ints(im, "steps", 4, &steps, &n_steps);
	const char *x = operand_tensor(im, v);
	bool changed = false;
	for (size_t i = 0; i < n && !im->failed; i++) {
		int axis = axis_of(im, has_axes && i < n_axes ? axes[i] : (int64_t)i, v->rank);
		int64_t step = has_steps && i < n_steps ? steps[i] : 1, from, to;
		if (im->failed)
			return false;
		if (step < 0 && ir_dim_is_const(begin[i], &from) && ir_dim_is_const(end[i], &to)) {
			x = backward_text(im, x, v, axis, from, to, step);
			changed = true;
			continue;
		}
		const struct ir_dim *b = slice_bound(im, begin[i], v->dims[axis]),
		                    *e = slice_bound(im, end[i], v->dims[axis]);
		if (step < 1 || ir_dim_lo(im->dims, ir_dim_sub(im->dims, e, b)) < 1)
			return import_refuse(
			        im,
			        "not supported: a slice from %s to %s by %lld, which may have no elements",
			        dim_text(im, b), dim_text(im, e), (long long)step);
		if (ir_dim_equals(b, 0) && e == v->dims[axis] && step == 1)
			continue;
		step = step > INT32_MAX ? INT32_MAX : step;
		const char *by = step == 1 ? "" : import_text(im, ", step=%lld", (long long)step);
		x = import_text(im, "slice(%s, axis=%d, begin=%s, end=%s%s)", x, axis, dim_text(im, b),
		                dim_text(im, e), by);
		changed = true;
	}
	return changed ? import_output(im, 0, "%s", x) : import_alias(im, 0, v);
}

/* ---- sizes ---- */

/* Broadcasts in both directions: a size 1 of the list keeps that of the operand. */
bool import_expand(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	const struct ir_dim *want[IR_RANK_MAX], *dims[IR_RANK_MAX];
	int n = shape_operand(im, 1, want), rank = n > v->rank ? n : v->rank;
	for (int i = 1; i <= rank && n >= 0; i++) {
		const struct ir_dim *a = i <= v->rank ? v->dims[v->rank - i] : ir_dim_const(im->dims, 1),
		                    *b = i <= n ? want[n - i] : a;
		dims[rank - i] = ir_dim_equals(b, 1) ? a : b;
	}
	if (n < 0 || im->failed)
		return false;
	if (same_dims(v, rank, dims))
		return import_alias(im, 0, v);
	return import_output(im, 0, "broadcast(%s, %s)", operand_tensor(im, v), dims_text(im, rank, dims));
}

/* An axis of size 1 before or after the one that repeats is broadcast, and merged with it. */
const char *import_repeated(struct importer *im, const char *x, int rank, const struct ir_dim **dims,
                            int axis, const struct ir_dim *times, bool is_whole)
{
	const struct ir_dim *one[IR_RANK_MAX + 1], *wide[IR_RANK_MAX + 1];
	int at = is_whole ? axis : axis + 1;
	if (rank >= IR_RANK_MAX) {
		import_refuse(im, "not supported: %s of %d axes", im->node->op, rank);
		return "";
	}
	for (int i = 0; i <= rank; i++) {
		one[i] = i == at ? ir_dim_const(im->dims, 1) : dims[i > at ? i - 1 : i];
		wide[i] = i == at ? times : one[i];
	}
	dims[axis] = ir_dim_mul(im->dims, dims[axis], times);
	return import_text(im, "reshape(broadcast(reshape(%s, %s), %s), %s)", x, dims_text(im, rank + 1, one),
	                   dims_text(im, rank + 1, wide), dims_text(im, rank, dims));
}

bool import_tile(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	const struct ir_dim *dims[IR_RANK_MAX], *const *times;
	const char *x = NULL;
	size_t n;
	if (!list_dims(im, "repeats", 1, &times, &n) || n != (size_t)v->rank)
		return import_refuse(im, "Tile: its repeats are missing");
	memcpy(dims, v->dims, sizeof(dims));
	for (int i = 0; i < v->rank; i++)
		if (!ir_dim_equals(times[i], 1)) {
			x = x != NULL ? import_statement(im, "tile", "%s", x) : operand_tensor(im, v);
			x = import_repeated(im, x, v->rank, dims, i, times[i], true);
		}
	return x != NULL ? import_output(im, 0, "%s", x) : import_alias(im, 0, v); /* NULL: nothing repeats */
}

const char *import_padded(struct importer *im, const char *x, int first_axis, const int64_t *pads,
                          size_t n_axes, const char *value)
{
	for (size_t i = 0; i < n_axes; i++) {
		long long before = (long long)pads[i], after = (long long)pads[n_axes + i];
		if (before != 0 || after != 0)
			x = import_text(im, "pad(%s, axis=%d, before=%lld, after=%lld, value=%s)", x,
			                first_axis + (int)i, before, after, value);
	}
	return x;
}

/* Constant padding; sizes below 0 cut off instead. */
bool import_pad(struct importer *im)
{
	struct operand *v = operand_needed(im, 0), *fill = operand_at(im, 2);
	const int64_t *pads, *axes;
	size_t n, n_axes;
	const char *x = operand_tensor(im, v), *value = "0.0";
	if (strcmp(attribute_text(im, "mode", "constant"), "constant") != 0)
		return import_refuse(im, "not supported: Pad in the mode '%.40s'",
		                     attribute_text(im, "mode", ""));
	if (!list_ints(im, "pads", 1, &pads, &n) || n % 2 != 0)
		return import_refuse(im, "Pad: its sizes are missing");
	bool has_axes = list_ints(im, "axes", 3, &axes, &n_axes);
	if (attribute_of(im, "value") != NULL)
		value = float_text(im, attribute_float(im, "value", 0));
	if (fill != NULL && (fill->known == NULL || fill->n != 1))
		return import_refuse(im, "not supported: Pad with a value that is not known");
	if (fill != NULL)
		value = element_text(im, &fill->known[0]);
	for (size_t i = 0; i < n / 2 && !im->failed; i++) {
		int axis = axis_of(im, has_axes && i < n_axes ? axes[i] : (int64_t)i, v->rank);
		int64_t before = pads[i], after = pads[n / 2 + i];
		if (before < 0 || after < 0)
			x = import_text(im, "slice(%s, axis=%d, begin=%lld, end=%s - %lld)", x, axis,
			                (long long)(before < 0 ? -before : 0), dim_text(im, v->dims[axis]),
			                (long long)(after < 0 ? -after : 0));
		const int64_t pair[] = {before > 0 ? before : 0, after > 0 ? after : 0};
		x = import_padded(im, x, axis, pair, 1, value);
	}
	return import_output(im, 0, "%s", x);
}

/* ---- positions ---- */

/* start, start + delta, .. before limit: ceil((limit - start) / delta) elements, which may be a dim. */
bool import_range(struct importer *im)
{
	const struct operand *start = operand_needed(im, 0), *limit = operand_needed(im, 1),
	                     *delta = operand_needed(im, 2);
	int64_t by;
	if (im->failed || start->known == NULL || limit->known == NULL || start->known[0].dim == NULL ||
	    limit->known[0].dim == NULL || !operand_int(delta, 0, &by) || by < 1 || by > INT32_MAX)
		return import_refuse(
		        im, "not supported: Range of numbers that are not known, floats, or backwards");
	const struct ir_dim *n = ir_dim_sub(im->dims, limit->known[0].dim, start->known[0].dim);
	n = ir_dim_floordiv(im->dims, ir_dim_add(im->dims, n, ir_dim_const(im->dims, by - 1)), by);
	const char *x = import_text(im, "iota([%s])", dim_text(im, n));
	x = start->dtype == DT_I32 ? x : import_text(im, "cast(%s, %s)", x, ir_dtype_name(start->dtype));
	x = by == 1 ? x : import_text(im, "%s * %lld", x, (long long)by);
	return import_output(im, 0, "%s",
	                     ir_dim_equals(start->known[0].dim, 0)
	                             ? x
	                             : import_text(im, "%s + %s", x, element_text(im, &start->known[0])));
}

/* Zeros of f32 if the node has no value. */
bool import_constant_of_shape(struct importer *im)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	const struct onnx_attribute *a = attribute_of(im, "value");
	const struct stored_tensor *t = a != NULL && a->tensor != NULL ? &a->tensor->stored : NULL;
	int rank = shape_operand(im, 0, dims);
	if (rank < 0 || (t != NULL && (!t->readable || t->data == NULL || t->bytes == 0)))
		return import_refuse(im, "not supported: ConstantOfShape of this value");
	double v = t != NULL ? stored_element(t, 0) : 0;
	bool is_float = t == NULL || ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
	const char *x =
	        import_text(im, "broadcast(const(%s), %s)", float_text(im, v), dims_text(im, rank, dims));
	return import_output(im, 0, "%s",
	                     is_float ? x : import_text(im, "cast(%s, %s)", x, ir_dtype_name(t->dtype)));
}

/* Bools [n, m] of the last two axes: column minus row, compared with k. k is clamped, as any larger one is beyond
   every diagonal. */
static const char *diagonal_text(struct importer *im, const struct operand *v, const char *compare, int64_t k)
{
	const char *n = dim_text(im, v->dims[v->rank - 2]), *m = dim_text(im, v->dims[v->rank - 1]);
	k = k > INT32_MAX / 2 ? INT32_MAX / 2 : k < INT32_MIN / 2 ? INT32_MIN / 2 : k;
	return import_text(im, "reshape(iota([%s]), [1, %s]) - reshape(iota([%s]), [%s, 1]) %s (%lld)", m, m,
	                   n, n, compare, (long long)k);
}

/* The elements on one side of diagonal k; zeros, or false, elsewhere. */
bool import_trilu(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t k = 0;
	bool upper = attribute_int(im, "upper", 1) != 0;
	if (v->rank < 2 || (operand_at(im, 1) != NULL && !operand_int(operand_at(im, 1), 0, &k)))
		return import_refuse(im, "not supported: Trilu from a diagonal that is not known");
	const char *inside = diagonal_text(im, v, upper ? ">=" : "<=", k), *x = tensor_at(im, 0);
	if (v->dtype == DT_BOOL)
		return import_output(im, 0, "%s and (%s)", x, inside);
	return import_output(im, 0, "where(%s, %s, 0)", inside, x);
}

/* Ones on diagonal k, in the shape of the operand and in the type `dtype` (a number of TensorProto.DataType; 0: that of
   the operand; floats of any width are f32). */
bool import_eye_like(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t type = attribute_int(im, "dtype", 0);
	enum ir_dtype dtype = v->dtype;
	if (v->rank != 2 || (type != 0 && !import_dtype(type, &dtype)))
		return import_refuse(im, "EyeLike of %d axes, or of %s", v->rank, onnx_type_name(type));
	return import_output(im, 0, "cast(%s, %s)", diagonal_text(im, v, "==", attribute_int(im, "k", 0)),
	                     ir_dtype_name(dtype));
}

/* A new axis of `depth` elements: values[1] at the id, values[0] elsewhere. Negative ids count from the end. */
bool import_one_hot(struct importer *im)
{
	struct operand *ids = operand_needed(im, 0);
	const struct ir_dim *at[IR_RANK_MAX], *row[IR_RANK_MAX], *one = ir_dim_const(im->dims, 1);
	int64_t depth;
	if (ids->rank == IR_RANK_MAX || !operand_int(operand_at(im, 1), 0, &depth))
		return import_refuse(im, "not supported: OneHot of a depth that is not known");
	int rank = ids->rank + 1, axis = axis_of(im, attribute_int(im, "axis", -1), rank);
	for (int i = 0, from = 0; i < rank; i++) {
		at[i] = i == axis ? one : ids->dims[from++];
		row[i] = i == axis ? ir_dim_const(im->dims, depth) : one;
	}
	const char *values = tensor_at(im, 2), *x = operand_tensor(im, ids),
	           *type = ir_dtype_name(ids->dtype);
	x = import_text(im, "where(%s < 0, %s + %lld, %s)", x, x, (long long)depth, x);
	return import_output(
	        im, 0,
	        "where(reshape(%s, %s) == cast(reshape(iota([%lld]), %s), %s), reshape(slice(%s, "
	        "axis=0, begin=1, end=2), []), reshape(slice(%s, axis=0, begin=0, end=1), []))",
	        x, dims_text(im, rank, at), (long long)depth, dims_text(im, rank, row), type, values, values);
}

/* ---- blocks of pictures ---- */

/* Output 0 is operand 0 [N, C, H, W], split into six axes, in another order, of which four are merged again. */
static bool output_blocks(struct importer *im, const struct ir_dim *const split[6], const char *order,
                          const struct ir_dim *const dims[4])
{
	return import_output(im, 0, "reshape(transpose(reshape(%s, %s), %s), %s)", tensor_at(im, 0),
	                     dims_text(im, 6, split), order, dims_text(im, 4, dims));
}

/* Channels become blocks of `blocksize` by `blocksize` elements. They are [block, block, C] (DCR) or [C, block,
 * block]. */
bool import_depth_to_space(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t size = attribute_int(im, "blocksize", 0);
	bool crd = strcmp(attribute_text(im, "mode", "DCR"), "CRD") == 0;
	if (v->rank != 4 || size < 1 || size > INT16_MAX)
		return import_refuse(im, "DepthToSpace of %d axes by %lld", v->rank, (long long)size);
	struct ir_dims *t = im->dims;
	const struct ir_dim *s = ir_dim_const(t, size), *c = ir_dim_floordiv(t, v->dims[1], size * size);
	const struct ir_dim *dims[] = {v->dims[0], c, ir_dim_mul(t, v->dims[2], s),
	                               ir_dim_mul(t, v->dims[3], s)};
	const struct ir_dim *split[] = {v->dims[0], crd ? c : s, s, crd ? s : c, v->dims[2], v->dims[3]};
	return output_blocks(im, split, crd ? "[0, 1, 4, 2, 5, 3]" : "[0, 3, 4, 1, 5, 2]", dims);
}

/* The inverse of DepthToSpace. */
bool import_space_to_depth(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t size = attribute_int(im, "blocksize", 0);
	if (v->rank != 4 || size < 1 || size > INT16_MAX)
		return import_refuse(im, "SpaceToDepth of %d axes by %lld", v->rank, (long long)size);
	bool crd = strcmp(attribute_text(im, "mode", "DCR"), "CRD") == 0;
	struct ir_dims *t = im->dims;
	const struct ir_dim *s = ir_dim_const(t, size), *h = ir_dim_floordiv(t, v->dims[2], size),
	                    *w = ir_dim_floordiv(t, v->dims[3], size);
	const struct ir_dim *dims[] = {v->dims[0], ir_dim_mul(t, v->dims[1], ir_dim_mul(t, s, s)), h, w};
	const struct ir_dim *split[] = {v->dims[0], v->dims[1], h, s, w, s};
	return output_blocks(im, split, crd ? "[0, 1, 3, 5, 2, 4]" : "[0, 3, 5, 1, 2, 4]", dims);
}
