/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on elements, and along axes: templates, and those whose text depends on types and attributes. An import_
 * function makes the outputs of the node values of statements; false: it refused, with a diagnostic. A literal is the
 * text of a known number in place of a name; an alias is an output that is an operand itself, without a statement.
 * Refusals are sticky: after one, helpers return "", 1, axis 0 or an empty operand, and im->failed is tested once.
 * attribute_of() also marks an attribute as read: one that no function reads is refused after the node.
 */
#include "frontend/onnx/import.h"

#include <string.h>

/* ---- operands as text ---- */

static bool is_literal(const struct operand *v)
{
	return v->name == NULL && v->known != NULL && v->n == 1 && v->dtype != DT_BOOL;
}

/* Operand i as a literal, if it is one number and stands next to a tensor of its type that has its axes: the language
   types and broadcasts a literal after its neighbour. Else its name. */
static const char *text_at(struct importer *im, size_t i)
{
	struct operand *v = operand_needed(im, i);
	for (size_t k = 0; is_literal(v) && k < im->node->inputs.n; k++) {
		const struct operand *other = operand_at(im, k);
		if (k != i && other != NULL && !is_literal(other) && other->dtype == v->dtype &&
		    other->rank >= v->rank)
			return element_text(im, &v->known[0]);
	}
	return operand_tensor(im, v);
}

/* ---- templates ---- */

/* The arguments `axis=[1], keep=true` of a reduction; without axes it reduces all, or nothing with
   noop_with_empty_axes. NULL: it reduces nothing, or was refused. */
static const char *reduction_text(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	const int64_t *axes;
	size_t n;
	int64_t all[IR_RANK_MAX], keep = attribute_int(im, "keepdims", 1);
	bool reduces_none = attribute_int(im, "noop_with_empty_axes", 0) != 0;
	if (v->dtype == DT_BOOL) {
		import_refuse(im, "not supported: %s of bool", im->node->op);
		return NULL;
	}
	if (!list_ints(im, "axes", 1, &axes, &n) || n == 0) {
		if (im->failed || v->rank == 0 || reduces_none)
			return NULL;
		for (int i = 0; i < v->rank; i++)
			all[i] = i;
		axes = all;
		n = (size_t)v->rank;
	}
	return import_text(im, "axis=%s, keep=%s", ints_text(im, axes, n), keep != 0 ? "true" : "false");
}

/* {alpha=0.2} of a template, from `text` to `end`: the attribute of the node, or the default behind `=`. */
static const char *placeholder_text(struct importer *im, const char *text, const char *end)
{
	const char *eq = memchr(text, '=', (size_t)(end - text));
	const struct onnx_attribute *a = attribute_of(im, arena_strndup(im->a, text, (size_t)(eq - text)));
	return a != NULL ? float_text(im, a->f) : arena_strndup(im->a, eq + 1, (size_t)(end - eq - 1));
}

/* Expands the text of a row of ops.def: $a, $b, .. are operands, $t the type of operand 0, $r the arguments of a
   reduction, {name=default} a float attribute. A reduction of nothing is its operand. */
bool import_template(struct importer *im, const char *text)
{
	struct buf out;
	const char *value, *reduction = NULL;
	if (strstr(text, "$r") != NULL && (reduction = reduction_text(im)) == NULL)
		return !im->failed && import_alias(im, 0, operand_needed(im, 0));
	buf_init(&out);
	for (const char *p = text; *p != '\0' && !im->failed; p++) {
		const char *end = *p == '{' ? strchr(p, '}') : p + 1;
		if (*p == '{')
			buf_str(&out, placeholder_text(im, p + 1, end));
		else if (*p != '$')
			buf_char(&out, *p);
		else if (p[1] == 'r')
			buf_str(&out, reduction);
		else
			buf_str(&out, p[1] == 't' ? ir_dtype_name(operand_needed(im, 0)->dtype)
			                          : text_at(im, (size_t)(p[1] - 'a')));
		p = *p == '{' ? end : *p == '$' ? p + 1 : p;
	}
	value = arena_strdup(im->a, out.data);
	buf_destroy(&out);
	return import_output(im, 0, "%s", value);
}

/* ---- elementwise ---- */

bool import_identity(struct importer *im)
{
	return import_alias(im, 0, operand_needed(im, 0));
}

/* Out of training (operand 2 absent or false) Dropout is the identity. */
bool import_dropout(struct importer *im)
{
	const struct operand *training = operand_at(im, 2);
	int64_t on = 0;
	(void)attribute_of(im, "ratio"); /* of training alone, as the seed */
	(void)attribute_of(im, "seed");
	if ((training != NULL && (!operand_int(training, 0, &on) || on != 0)) || import_is_read(im, 1))
		return import_refuse(im, "not supported: Dropout in training, or its mask");
	return import_identity(im);
}

/* Float types of 16 and 64 bits become f32, as in all statements. CastLike: to the type of operand 1. The numbers are
   those of TensorProto.DataType. */
bool import_cast(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	int64_t to = attribute_int(im, "to", 0);
	enum ir_dtype dtype = DT_F32;
	if (strcmp(im->node->op, "CastLike") == 0)
		dtype = operand_needed(im, 1)->dtype;
	else if (!import_dtype(to, &dtype))
		return import_refuse(im, "not supported: Cast to %s", onnx_type_name(to));
	if (v->dtype == dtype)
		return import_alias(im, 0, v);
	if (v->ids != NULL && (dtype == DT_I32 || dtype == DT_I64)) { /* checked ids stay those */
		struct operand *ids = ARENA_NEW(im->a, struct operand);
		*ids = *v;
		ids->dtype = dtype;
		ids->name = dtype == DT_I32 ? v->ids->name : NULL;
		return import_alias(im, 0, ids);
	}
	return import_output(im, 0, "cast(%s, %s)", operand_tensor(im, v), ir_dtype_name(dtype));
}

/* Limits are attributes min and max of old files, or operands 1 and 2; absent ones do not limit. */
bool import_clip(struct importer *im)
{
	static const char *const names[] = {"min", "max"};
	struct operand *v = operand_needed(im, 0);
	const char *limits = "";
	for (size_t i = 0; i < 2; i++) {
		const struct onnx_attribute *a = attribute_of(im, names[i]);
		struct operand *limit = operand_at(im, i + 1);
		if (a == NULL && limit == NULL)
			continue;
		const char *text = a != NULL           ? float_text(im, a->f)
		                   : is_literal(limit) ? element_text(im, &limit->known[0])
		                                       : operand_tensor(im, limit);
		limits = import_text(im, "%s, %s=%s", limits, names[i], text);
	}
	if (limits[0] == '\0')
		return import_alias(im, 0, v);
	return import_output(im, 0, "clip(%s%s)", operand_tensor(im, v), limits);
}

/* Ints are divided toward zero, the language rounds down: for a negative quotient -a // b is negated. */
bool import_divide(struct importer *im)
{
	const char *a = text_at(im, 0), *b = text_at(im, 1);
	enum ir_dtype_class type = ir_dtype_class(operand_needed(im, 0)->dtype);
	return import_output(
	        im, 0, "%s",
	        type == DTCLASS_FLOAT
	                ? import_text(im, "%s / %s", a, b)
	                : import_text(im, "where((%s < 0) != (%s < 0), neg(neg(%s) // %s), %s // %s)", a, b,
	                              a, b, a, b));
}

/* Without fmod the result has the sign of the divisor, as % of the language; with fmod that of the dividend: the
   remainder of |a| by |b|, negated for a negative a. */
bool import_modulo(struct importer *im)
{
	const char *a = tensor_at(im, 0), *b = text_at(im, 1);
	if (attribute_int(im, "fmod", 0) == 0)
		return import_output(im, 0, "%s %% %s", a, b);
	return import_output(im, 0, "where(%s < 0, neg(neg(%s) %% abs(%s)), %s %% abs(%s))", a, a, b, a, b);
}

/* The type is that of the base. `**` has no ints to a float power: these are computed as f32 and cast back. */
bool import_power(struct importer *im)
{
	struct operand *a = operand_needed(im, 0), *b = operand_needed(im, 1);
	const char *base = operand_tensor(im, a), *type = ir_dtype_name(a->dtype), *exponent;
	bool is_int = a->dtype != DT_F32, both_ints = is_int && b->dtype != DT_F32;
	int64_t n;
	if (b->known != NULL && b->n == 1 && b->rank <= a->rank && b->known[0].dim == NULL)
		exponent = float_text(im, b->known[0].f);
	else if (b->rank <= a->rank && b->n == 1 && operand_int(b, 0, &n))
		exponent = import_text(im, "(%lld%s)", (long long)n, both_ints ? "" : ".0");
	else
		exponent = import_text(im, "cast(%s, %s)", operand_tensor(im, b), both_ints ? type : "f32");
	if (!is_int || both_ints)
		return import_output(im, 0, "%s ** %s", base, exponent);
	return import_output(im, 0, "cast(cast(%s, f32) ** %s, %s)", base, exponent, type);
}

bool import_gelu(struct importer *im)
{
	bool tanh = strcmp(attribute_text(im, "approximate", "none"), "tanh") == 0;
	return import_output(im, 0, "gelu%s(%s)", tanh ? "_tanh" : "", tensor_at(im, 0));
}

/* Gelu, BiasGelu and FastGelu of ONNX Runtime: operand 1 is added first; FastGelu is that by tanh. */
bool import_biased_gelu(struct importer *im)
{
	const char *x = tensor_at(im, 0), *bias = operand_at(im, 1) != NULL ? tensor_at(im, 1) : NULL;
	x = bias != NULL ? import_text(im, "%s + %s", x, bias) : x;
	return import_output(im, 0, "gelu%s(%s)", strcmp(im->node->op, "FastGelu") == 0 ? "_tanh" : "", x);
}

/* x sigmoid(alpha x); gelu_quick of the language has the alpha 1.702. */
bool import_quick_gelu(struct importer *im)
{
	const char *x = tensor_at(im, 0);
	double alpha = attribute_float(im, "alpha", 1.702);
	return import_output(im, 0, "%s",
	                     (float)alpha == 1.702F
	                             ? import_text(im, "gelu_quick(%s)", x)
	                             : import_text(im, "%s * sigmoid(%s * %s)", x, x, float_text(im, alpha)));
}

/* True for infinities of one sign (detect_positive, detect_negative), or of both. */
bool import_is_inf(struct importer *im)
{
	bool above = attribute_int(im, "detect_positive", 1) != 0,
	     below = attribute_int(im, "detect_negative", 1) != 0;
	const char *x = tensor_at(im, 0);
	if (!above && !below)
		return import_refuse(im, "not supported: IsInf of no infinity");
	if (above && below)
		return import_output(im, 0, "abs(%s) == .inf", x);
	return import_output(im, 0, "%s == (%s.inf)", x, above ? "" : "-");
}

/* Max, Min, Sum, Mean of any number of tensors. */
bool import_variadic(struct importer *im)
{
	const char *op = im->node->op, *text = tensor_at(im, 0);
	bool is_max = strcmp(op, "Max") == 0, is_min = strcmp(op, "Min") == 0;
	for (size_t i = 1; i < im->node->inputs.n; i++)
		text = is_max || is_min ? import_text(im, "%s(%s, %s)", is_max ? "maximum" : "minimum", text,
		                                      tensor_at(im, i))
		                        : import_text(im, "%s + %s", text, tensor_at(im, i));
	if (strcmp(op, "Mean") == 0)
		text = import_text(im, "(%s) / %zu.0", text, im->node->inputs.n);
	return import_output(im, 0, "%s", text);
}

/* ---- along axes ---- */

/* Before opset 13 the axes from `axis` on are one: the tensor is reshaped to rows of them, and back. */
bool import_softmax(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	const char *name = strcmp(im->node->op, "Softmax") == 0 ? "softmax" : "log_softmax",
	           *x = tensor_at(im, 0);
	bool is_old = im->onnx->opset > 0 && im->onnx->opset < 13;
	int axis = axis_of(im, attribute_int(im, "axis", is_old ? 1 : -1), v->rank);
	if (!is_old || axis == v->rank - 1)
		return import_output(im, 0, "%s(%s, axis=%d)", name, x, axis);
	const struct ir_dim *flat[2] = {ir_dim_const(im->dims, 1), ir_dim_const(im->dims, 1)};
	for (int i = 0; i < v->rank; i++)
		flat[i >= axis] = ir_dim_mul(im->dims, flat[i >= axis], v->dims[i]);
	return import_output(im, 0, "reshape(%s(reshape(%s, %s)), %s)", name, x, dims_text(im, 2, flat),
	                     dims_text(im, v->rank, v->dims));
}

/* 1 at the first largest element along the axis, else 0: indices of the axis compared with argmax. */
bool import_hardmax(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int axis = axis_of(im, attribute_int(im, "axis", -1), v->rank);
	const struct ir_dim *at[IR_RANK_MAX], *row[IR_RANK_MAX], *one = ir_dim_const(im->dims, 1);
	for (int i = 0; i < v->rank; i++) {
		at[i] = i == axis ? one : v->dims[i];
		row[i] = i == axis ? v->dims[i] : one;
	}
	if (im->failed)
		return false;
	return import_output(im, 0, "cast(reshape(argmax(%s, axis=%d), %s) == reshape(iota([%s]), %s), f32)",
	                     tensor_at(im, 0), axis, dims_text(im, v->rank, at), dim_text(im, v->dims[axis]),
	                     dims_text(im, v->rank, row));
}

/* ArgMin is ArgMax of the negated values. */
bool import_argmax(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int axis = axis_of(im, attribute_int(im, "axis", 0), v->rank);
	const struct ir_dim *dims[IR_RANK_MAX];
	const char *x = tensor_at(im, 0);
	if (attribute_int(im, "select_last_index", 0) != 0)
		return import_refuse(im, "not supported: %s with select_last_index", im->node->op);
	/* Of integers -1 - x, which reverses their order without overflow. */
	if (strcmp(im->node->op, "ArgMin") == 0)
		x = import_text(im, ir_dtype_class(v->dtype) == DTCLASS_FLOAT ? "neg(%s)" : "(neg(%s) - 1)",
		                x);
	x = import_text(im, "argmax(%s, axis=%d)", x, axis);
	for (int i = 0; i < v->rank; i++)
		dims[i] = i == axis ? ir_dim_const(im->dims, 1) : v->dims[i];
	if (attribute_int(im, "keepdims", 1) != 0)
		x = import_text(im, "reshape(%s, %s)", x, dims_text(im, v->rank, dims));
	return import_output(im, 0, "cast(%s, i64)", x);
}

/* x in the other order along an axis. */
static const char *reversed(struct importer *im, const char *x, const struct operand *v, int axis)
{
	const char *n = dim_text(im, v->dims[axis]);
	return import_text(im, "gather(%s, neg(iota([%s])) + (%s - 1), axis=%d)", x, n, n, axis);
}

/* `reverse` sums from the end: the axis is reversed before and after. `exclusive` sums without the element itself. */
bool import_cumsum(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t axis = 0;
	const char *x = tensor_at(im, 0), *sum;
	if (!operand_int(operand_at(im, 1), 0, &axis))
		return import_refuse(im, "not supported: CumSum along an axis that is not known");
	int at = axis_of(im, axis, v->rank);
	if (im->failed)
		return false;
	bool backward = attribute_int(im, "reverse", 0) != 0;
	sum = import_text(im, "cumsum(%s, axis=%d)", backward ? reversed(im, x, v, at) : x, at);
	if (backward)
		sum = reversed(im, import_statement(im, "sum", "%s", sum), v, at);
	return import_output(im, 0, "%s",
	                     attribute_int(im, "exclusive", 0) != 0 ? import_text(im, "%s - %s", sum, x)
	                                                            : sum);
}

/* topk of the language takes the largest elements of the last axis: other axes are swapped with it, and smallest
 * elements are largest negated ones. */
bool import_topk(struct importer *im)
{
	static const char *const stems[] = {"largest", "places"};
	const struct operand *v = operand_needed(im, 0), *count = operand_at(im, 1);
	int64_t k = attribute_int(im, "k", 0), perm[IR_RANK_MAX];
	int axis = axis_of(im, attribute_int(im, "axis", -1), v->rank), last = v->rank - 1;
	(void)attribute_of(im, "sorted"); /* results are in order in any case */
	bool smallest = attribute_int(im, "largest", 1) == 0;
	const char *x = tensor_at(im, 0), *names[2];
	if (count != NULL && !operand_int(count, 0, &k))
		return import_refuse(im, "not supported: TopK of a number that is not known");
	if (im->failed)
		return false;
	for (int i = 0; i <= last; i++)
		perm[i] = i;
	perm[axis] = last;
	perm[last] = axis;
	const char *order = ints_text(im, perm, (size_t)v->rank);
	x = axis != last ? import_text(im, "transpose(%s, %s)", x, order) : x;
	x = smallest ? import_text(im, "neg(%s)", x) : x;
	if (!import_statements(im, stems, 2, import_text(im, "topk(%s, %lld)", x, (long long)k), names))
		return false;
	const char *values = smallest ? import_text(im, "neg(%s)", names[0]) : names[0], *at = names[1];
	if (axis != last) {
		values = import_text(im, "transpose(%s, %s)", values, order);
		at = import_text(im, "transpose(%s, %s)", at, order);
	}
	return import_output(im, 0, "%s", values) && import_output(im, 1, "cast(%s, i64)", at);
}
