/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantized operators. Numbers are what the file says, with its roundings: an element becomes round(x / scale) +
 * zero in the type of its zero point, and (q - zero) scale again. Constant matrices are tensors of the weight file
 * (frontend/weights/onnx_quantized.h), which keep their quants where a format has them; products are then of
 * floats, whose sums of integers are exact up to 2^24.
 * A block is a run of elements along an axis that share a scale and zero point. Refusals are sticky (im->failed): after
 * one, helpers return "", 1, axis 0 or an empty operand.
 */
#include "frontend/onnx/import.h"

#include <string.h>

#include "frontend/weights/onnx_quantized.h"

/* Added to x and taken away again: the nearest integer, ties to even, where |x| < 2^22; larger ones exceed all
 * types. */
#define ROUNDED "(%s + 12582912.0) - 12582912.0"

#define EXACT_MAX 16777216 /* integers that f32 has without gaps */

/* ---- scales and zero points ---- */

/* The operand as f32. */
static const char *floats_text(struct importer *im, struct operand *v)
{
	const char *text = operand_tensor(im, v);
	return v->dtype == DT_F32 ? text : import_text(im, "cast(%s, f32)", text);
}

/* Operand i, a scale or zero point of x, as floats that broadcast to it: one number, one for each element along
   `axis`, or (block > 0) one for each block of the axis, repeated and cut to its size. */
static const char *factor_text(struct importer *im, size_t i, const struct operand *x, int axis,
                               int64_t block)
{
	struct operand *v = operand_needed(im, i);
	const struct ir_dim *dims[IR_RANK_MAX];
	int64_t number;
	if (v->n == 1 && v->known != NULL && v->known[0].dim == NULL)
		return float_text(im, v->known[0].f);
	if (v->n == 1 && operand_int(v, 0, &number))
		return float_text(im, (double)number);
	const char *text = floats_text(im, v);
	if (v->rank == 0 || im->failed)
		return text;
	if (v->rank == 1 && ir_dim_equals(v->dims[0], 1))
		return import_text(im, "reshape(%s, [])", text);
	if (v->rank == 1 && block == 0) {
		for (int k = 0; k < x->rank; k++)
			dims[k] = k == axis ? v->dims[0] : ir_dim_const(im->dims, 1);
		return import_text(im, "reshape(%s, %s)", text, dims_text(im, x->rank, dims));
	}
	if (v->rank != x->rank || block < 1 || block > INT32_MAX) {
		import_refuse(im, "%s of %d axes by a scale of %d", im->node->op, x->rank, v->rank);
		return "";
	}
	memcpy(dims, v->dims, sizeof(dims));
	text = import_repeated(im, text, x->rank, dims, axis, ir_dim_const(im->dims, block), false);
	return import_text(im, "slice(%s, axis=%d, begin=0, end=%s)", text, axis,
	                   dim_text(im, x->dims[axis]));
}

/* The axis of the scales, operand 1, and the size of their blocks; *block 0: one scale for each element of the axis,
   or one for all. False: refused. */
static bool read_blocks(struct importer *im, const struct operand *x, int *axis, int64_t *block)
{
	const struct operand *scale = operand_needed(im, 1);
	int64_t at = attribute_int(im, "axis", 1);
	*block = attribute_int(im, "block_size", 0);
	bool is_shared = scale->rank == 0 || (scale->rank == 1 && ir_dim_equals(scale->dims[0], 1));
	*axis = is_shared ? 0 : axis_of(im, at, x->rank);
	return !im->failed;
}

/* Operand i as floats minus the zero point, operand z, if the node has it and it is not 0. */
static const char *centered_text(struct importer *im, size_t i, size_t z, int axis, int64_t block)
{
	struct operand *x = operand_needed(im, i);
	const char *text = floats_text(im, x);
	const char *zero = operand_at(im, z) != NULL ? factor_text(im, z, x, axis, block) : "0.0";
	return strcmp(zero, "0.0") == 0 ? text : import_text(im, "%s - %s", text, zero);
}

/* ---- elements ---- */

/* The type of quantized elements: that of the zero point, or an attribute (TensorProto.DataType: 2 u8, 3 i8, 5 i16),
   without both u8. */
static bool read_quantized_type(struct importer *im, const struct operand *zero, enum ir_dtype *out)
{
	int64_t type = attribute_int(im, "output_dtype", 0);
	bool is_known = zero != NULL || type == 0 || import_dtype(type, out);
	*out = zero != NULL ? zero->dtype : type == 0 ? DT_U8 : *out;
	if (!is_known || (*out != DT_U8 && *out != DT_I8 && *out != DT_I16))
		return import_refuse(im, "not supported: %s to %s", im->node->op,
		                     zero != NULL ? ir_dtype_name(zero->dtype) : onnx_type_name(type));
	return true;
}

/* x / divisor, rounded once: a pass would multiply by the reciprocal of a literal, which rounds twice and moves
   quotients near a tie to another integer; so a literal becomes a tensor. */
static const char *quotient_text(struct importer *im, const char *x, const char *divisor)
{
	bool is_number = strspn(divisor, "(-.0123456789e+)") == strlen(divisor);
	return import_text(im, is_number ? "%s / reshape(const([%s]), [])" : "%s / %s", x, divisor);
}

/* Output i is round(x) + zero, cast to the type, which saturates. */
static bool output_quantized(struct importer *im, size_t i, const char *x, const char *zero,
                             enum ir_dtype type)
{
	const char *at = import_statement(im, "scaled", "%s", x), *q = import_text(im, ROUNDED, at);
	if (strcmp(zero, "0.0") != 0)
		q = import_text(im, "%s + %s", q, zero);
	return import_output(im, i, "cast(%s, %s)", q, ir_dtype_name(type));
}

/* round(x / scale) + zero in the type of the zero point. False: refused. */
bool import_quantize(struct importer *im)
{
	struct operand *x = operand_needed(im, 0), *zero = operand_at(im, 2);
	enum ir_dtype type;
	int64_t block;
	int axis;
	(void)attribute_of(im, "saturate"); /* of 8-bit floats alone */
	(void)attribute_of(im, "precision");
	if (!read_blocks(im, x, &axis, &block) || !read_quantized_type(im, zero, &type))
		return false;
	const char *text = floats_text(im, x), *scale = factor_text(im, 1, x, axis, block),
	           *at = zero != NULL ? factor_text(im, 2, x, axis, block) : "0.0";
	return output_quantized(im, 0, quotient_text(im, text, scale), at, type);
}

/* The tensor of the weight file under `name`, which its reader has made of the quantized constants of a node
   (onnx_quantized.h); NULL: it made none, or an initializer has the name. */
static struct operand *stored_product(struct importer *im, const char *name)
{
	const struct stored_tensor *t =
	        strmap_has(&im->tensors, name) ? NULL : weight_files_find(im->files, name);
	struct operand *v = t != NULL ? ARENA_NEW(im->a, struct operand) : NULL;
	struct onnx_tensor *stored = v != NULL ? ARENA_NEW(im->a, struct onnx_tensor) : NULL;
	if (stored == NULL)
		return NULL;
	*stored = (struct onnx_tensor){.stored = *t, .type = 1};
	*v = (struct operand){.stored = stored, .dtype = DT_F32, .rank = t->rank, .n = 1};
	for (int i = 0; i < t->rank; i++) {
		v->dims[i] = ir_dim_const(im->dims, t->dims[i]);
		v->n *= (size_t)t->dims[i];
	}
	im->keeps_quants = im->keeps_quants || t->packed_as != NULL || t->transposed != NULL;
	return v;
}

/* Constants are the tensor that the weight file has made of them, which keeps its quants; all others are computed: (q
   - zero) scale. */
bool import_dequantize(struct importer *im)
{
	struct operand *x = operand_needed(im, 0), *made;
	int64_t block;
	int axis;
	(void)attribute_of(im, "output_dtype"); /* floats are f32 */
	if (!read_blocks(im, x, &axis, &block))
		return false;
	if (x->stored != NULL && x->n > 1 && (made = stored_product(im, im->node->outputs.items[0])) != NULL)
		return import_alias(im, 0, made);
	const char *q = centered_text(im, 0, 2, axis, block), *scale = factor_text(im, 1, x, axis, block);
	return import_output(im, 0, "(%s) * %s", q, scale);
}

/* Quantizes to u8 with one scale for all elements, computed from the least and the largest, 0 among them. Outputs:
   quants, scale, zero point. */
bool import_dynamic_quantize(struct importer *im)
{
	struct operand *x = operand_needed(im, 0);
	int64_t axes[IR_RANK_MAX];
	for (int i = 0; i < x->rank; i++)
		axes[i] = i;
	const char *text = operand_tensor(im, x), *all = ints_text(im, axes, (size_t)x->rank);
	const char *least = import_statement(im, "least", "minimum(min(%s, axis=%s), 0.0)", text, all);
	const char *most = import_text(im, "(maximum(max(%s, axis=%s), 0.0) - %s)", text, all, least);
	const char *range = import_statement(im, "range", "%s", quotient_text(im, most, "255.0"));
	const char *scale =
	        import_statement(im, im->node->outputs.n > 1 ? im->node->outputs.items[1] : "scale",
	                         "where(%s > 0.0, %s, 1.0)", range, range); /* zeros alone: any scale */
	const char *start = import_statement(im, "start", "0.0 - %s / %s", least, scale);
	const char *zero = import_statement(im, "zero", ROUNDED, start);
	return output_quantized(im, 0, import_text(im, "%s / %s", text, scale), zero, DT_U8) &&
	       import_value(im, 1, scale) && import_output(im, 2, "cast(%s, u8)", zero);
}

/* ---- products ---- */

/* The product of operands `left` and `right`, both less their zero points (operands left_zero, right_zero), as
   floats. A constant right matrix is the tensor that the weight file keeps in quants. */
static const char *product_text(struct importer *im, size_t left, size_t left_zero, size_t right,
                                size_t right_zero)
{
	const struct operand *a = operand_needed(im, left), *b = operand_needed(im, right);
	struct operand *made = NULL;
	if (im->failed || a->rank < 2 || b->rank < 2) {
		import_refuse(im, "not supported: %s of %d and %d axes", im->node->op, a->rank, b->rank);
		return "";
	}
	const char *x =
	        import_statement(im, "integers", "%s", centered_text(im, left, left_zero, a->rank - 2, 0));
	if (b->stored != NULL && b->rank == 2)
		made = stored_product(im, onnx_weight_name(im->a, im->node));
	if (made != NULL) {
		const char *path = import_layer(im, made, "transpose: true", NULL);
		return import_text(im, "linear(%s, %s, out=%s, bias=false)", x, path,
		                   dim_text(im, made->dims[1]));
	}
	const char *y =
	        import_statement(im, "integers", "%s", centered_text(im, right, right_zero, b->rank - 1, 0));
	return import_text(im, "matmul(%s, %s)", x, y);
}

/* The result is i32. Exporters make floats of it at once, and then the Cast is a part of the product; other sums have
   to be exact in f32, so K products of 255 * 255 at most may not exceed 2^24. */
bool import_matmul_integer(struct importer *im)
{
	const struct onnx_node *cast = import_only_reader(im, im->node->outputs.items[0]);
	const struct onnx_attribute *to = cast != NULL ? onnx_attribute(cast, "to") : NULL;
	const struct operand *a = operand_needed(im, 0);
	const char *x = product_text(im, 0, 2, 1, 3);
	if (im->failed)
		return false;
	if (to != NULL && strcmp(cast->op, "Cast") == 0 && cast->outputs.n == 1 &&
	    (to->i == 1 || to->i == 10 || to->i == 16))
		return import_fused(im, cast, x);
	if (operand_size(im, a, a->rank - 1) > EXACT_MAX / (255 * 255))
		return import_refuse(
		        im, "not supported: MatMulInteger of %lld columns, unless it is cast to floats",
		        (long long)operand_size(im, a, a->rank - 1));
	return import_output(im, 0, "cast(%s, i32)", x);
}

/* The product of quants, scaled, and quantized again. Operands: a, scale, zero, b, scale, zero, scale and zero of the
   result. */
bool import_qlinear_matmul(struct importer *im)
{
	struct operand *zero = operand_needed(im, 7), *a = operand_needed(im, 0), *b = operand_needed(im, 3);
	enum ir_dtype type;
	if (!read_quantized_type(im, zero, &type))
		return false;
	const char *x = import_statement(im, "product", "%s", product_text(im, 0, 2, 3, 5));
	const char *left = factor_text(im, 1, a, a->rank - 2, 0),
	           *right = factor_text(im, 4, b, b->rank - 1, 0),
	           *scale = factor_text(im, 6, a, a->rank - 2, 0),
	           *at = factor_text(im, 7, a, a->rank - 2, 0);
	return output_quantized(im, 0, import_text(im, "%s * (%s * %s / %s)", x, left, right, scale), at,
	                        type);
}

/* com.microsoft: x [.., K] times the transpose of a matrix [N, K] of 4 or 8 bits. */
bool import_matmul_nbits(struct importer *im)
{
	struct operand *made = stored_product(im, onnx_weight_name(im->a, im->node)),
	               *bias = operand_at(im, 5);
	static const char *const read[] = {"K", "N", "bits", "block_size", "accuracy_level"};
	for (size_t i = 0; i < TFMC_COUNT(read); i++)
		(void)attribute_of(im, read[i]);
	if (made == NULL || operand_at(im, 4) != NULL)
		return import_refuse(im, "not supported: MatMulNBits of these constants");
	const char *x = tensor_at(im, 0), *path = import_layer(im, made, "", NULL);
	x = import_text(im, "linear(%s, %s, out=%s, bias=false)", x, path, dim_text(im, made->dims[0]));
	return import_output(im, 0, "%s",
	                     bias != NULL ? import_text(im, "%s + %s", x, operand_tensor(im, bias)) : x);
}

/* A Gather of quants that a later node makes floats of is a lookup of floats, so that the table keeps its quants.
   False: it is not so. */
bool import_lookup_of_quants(struct importer *im, const char *ids)
{
	const struct onnx_node *later = import_only_reader(im, im->node->outputs.items[0]);
	struct operand *made =
	        later != NULL && strcmp(later->op, "DequantizeLinear") == 0 && later->outputs.n == 1
	                ? stored_product(im, onnx_weight_name(im->a, later))
	                : NULL;
	return made != NULL && made->rank == 2 && import_fused(im, later, import_embedding(im, ids, made));
}
