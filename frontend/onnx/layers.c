/* SPDX-License-Identifier: Apache-2.0 */
/* Operators with parameters, and their relatives: products of matrices, norms, tables. A constant weight becomes a
   layer with a path (import_layer), so that it stays a parameter of the weight file that may be packed or
   quantized; other operands are plain products. Norms that the language does not have are written out: rewrite rules of
   passes/graph make the same kernels of them. Refusals are sticky (im->failed): after one, helpers return "", 1, axis 0
   or an empty operand, and operand_size() refuses a size that varies. */
#include "frontend/onnx/import.h"

#include <string.h>

static bool is_matrix(const struct operand *v)
{
	return operand_is_parameter(v) && v->rank == 2;
}

/* ---- products ---- */

/* The constant vector that the only reader of the node's output adds; the caller makes that Add a part of the layer.
   NULL: none. */
static struct operand *fused_bias(struct importer *im, int64_t width)
{
	const char *product = im->node->outputs.items[0];
	const struct onnx_node *add = import_only_reader(im, product);
	if (add == NULL || strcmp(add->op, "Add") != 0 || add->domain[0] != '\0' || add->inputs.n != 2 ||
	    add->outputs.n != 1)
		return NULL;
	struct operand *bias =
	        strmap_get(&im->values, add->inputs.items[strcmp(add->inputs.items[0], product) == 0]);
	return operand_is_vector(bias, width) ? bias : NULL;
}

/* Output 0, or that of the Add that fused_bias() finds, is linear(x, ..). w is [K, N], or [N, K] if is_transposed, as
   the language stores weights: `transpose: true` of the map transposes the former. */
static bool output_linear(struct importer *im, const char *x, struct operand *w, bool is_transposed,
                          struct operand *bias)
{
	const struct ir_dim *out = w->dims[is_transposed ? 0 : 1], *in = w->dims[is_transposed ? 1 : 0];
	int64_t width = operand_size(im, w, is_transposed ? 0 : 1);
	const struct ir_type *t = import_type(im, x);
	if (t == NULL || t->rank == 0 || t->dims[t->rank - 1] != in)
		return t != NULL &&
		       import_refuse(im, "%s of rows of %s and a matrix of %s rows", im->node->op,
		                     t->rank > 0 ? dim_text(im, t->dims[t->rank - 1]) : "a number",
		                     dim_text(im, in));
	struct operand *added = bias == NULL ? fused_bias(im, width) : NULL;
	const char *path =
	        import_layer(im, w, is_transposed ? "" : "transpose: true", bias != NULL ? bias : added);
	const char *text = import_text(im, "linear(%s, %s, out=%s%s)", x, path, dim_text(im, out),
	                               bias == NULL && added == NULL ? ", bias=false" : "");
	return added != NULL ? import_fused(im, import_only_reader(im, im->node->outputs.items[0]), text)
	                     : import_output(im, 0, "%s", text);
}

/* Attention that ends here is tried first, then a layer. matmul() has no vectors: they become matrices with one row
   or column, whose axis the reshape after it removes. */
bool import_matmul(struct importer *im)
{
	struct operand *a = operand_needed(im, 0), *b = operand_needed(im, 1);
	const struct ir_dim *dims[IR_RANK_MAX], *one = ir_dim_const(im->dims, 1);
	int rank = 0, left = a->rank, right = b->rank;
	if (im->failed || left < 1 || right < 1)
		return import_refuse(im, "MatMul of %d and %d axes", left, right);
	if (left == 4 && right == 4 && import_sdpa(im))
		return !im->failed;
	if (is_matrix(b) && left > 1)
		return output_linear(im, operand_tensor(im, a), b, false, NULL);
	const char *x = operand_tensor(im, a), *y = operand_tensor(im, b);
	if (left > 1 && right > 1)
		return import_output(im, 0, "matmul(%s, %s)", x, y);
	if (left == 1)
		x = import_text(im, "reshape(%s, %s)", x,
		                dims_text(im, 2, (const struct ir_dim *[]){one, a->dims[0]}));
	if (right == 1)
		y = import_text(im, "reshape(%s, %s)", y,
		                dims_text(im, 2, (const struct ir_dim *[]){b->dims[0], one}));
	for (int i = 0; i < left - 1; i++)
		dims[rank++] = a->dims[i];
	for (int i = 0; left == 1 && i < right - 2; i++)
		dims[rank++] = b->dims[i];
	if (right > 1)
		dims[rank++] = b->dims[right - 1];
	return import_output(im, 0, "reshape(matmul(%s, %s), %s)", x, y, dims_text(im, rank, dims));
}

/* FusedMatMul of ONNX Runtime: alpha a b, with the last two axes of a and b transposed or not. */
bool import_fused_matmul(struct importer *im)
{
	struct operand *a = operand_needed(im, 0), *b = operand_needed(im, 1);
	bool ta = attribute_int(im, "transA", 0) != 0, tb = attribute_int(im, "transB", 0) != 0;
	double alpha = attribute_float(im, "alpha", 1);
	if (attribute_int(im, "transBatchA", 0) != 0 || attribute_int(im, "transBatchB", 0) != 0 ||
	    a->rank < 2 || b->rank < 2)
		return import_refuse(im, "not supported: FusedMatMul of vectors, or with transposed batches");
	if (is_matrix(b) && !ta && alpha == 1)
		return output_linear(im, operand_tensor(im, a), b, tb, NULL);
	const char *left = operand_tensor(im, a), *right = operand_tensor(im, b);
	const char *x = import_text(im, "matmul(%s, %s, transpose_a=%s, transpose_b=%s)", left, right,
	                            ta ? "true" : "false", tb ? "true" : "false");
	return import_output(im, 0, "%s",
	                     alpha == 1 ? x : import_text(im, "%s * %s", x, float_text(im, alpha)));
}

/* The operand [.., K] that a Reshape has made the matrix [M, K] of: the product may read it in place of the matrix.
   NULL: none. */
static struct operand *before_merged_rows(struct importer *im, const struct operand *matrix)
{
	const struct onnx_node *node = strmap_get(&im->makers, im->node->inputs.items[0]);
	bool is_reshape = node != NULL && strcmp(node->op, "Reshape") == 0 && node->domain[0] == '\0';
	struct operand *x = is_reshape ? strmap_get(&im->values, node->inputs.items[0]) : NULL;
	return x != NULL && x->rank > 2 && x->dims[x->rank - 1] == matrix->dims[1] ? x : NULL;
}

/* Gemm of rows that a Reshape has merged: linear of the operand x before it [.., K], so that passes see batch and
   sequence, merged to [rows, N] after it. */
static bool output_merged_rows(struct importer *im, const char *x, struct operand *w, bool is_transposed,
                               struct operand *bias, const struct ir_dim *rows)
{
	const struct ir_dim *out = w->dims[is_transposed ? 0 : 1], *dims[] = {rows, out};
	const char *path = import_layer(im, w, is_transposed ? "" : "transpose: true", bias);
	const char *y = import_statement(im, import_text(im, "%s_rows", im->node->outputs.items[0]),
	                                 "linear(%s, %s, out=%s)", x, path, dim_text(im, out));
	return import_output(im, 0, "reshape(%s, %s)", y, dims_text(im, 2, dims));
}

/* alpha a b + beta c, with a and b transposed or not; a layer if b is stored and the rest is that of a layer. */
bool import_gemm(struct importer *im)
{
	struct operand *a = operand_needed(im, 0), *b = operand_needed(im, 1), *c = operand_at(im, 2);
	bool ta = attribute_int(im, "transA", 0) != 0, tb = attribute_int(im, "transB", 0) != 0;
	double alpha = attribute_float(im, "alpha", 1), beta = attribute_float(im, "beta", 1);
	if (im->failed || a->rank != 2 || b->rank != 2)
		return import_refuse(im, "Gemm of %d and %d axes", a->rank, b->rank);
	int64_t width = operand_size(im, b, tb ? 0 : 1);
	bool is_plain = !ta && alpha == 1 && (c == NULL || (beta == 1 && operand_is_vector(c, width)));
	struct operand *merged = is_matrix(b) && is_plain && c != NULL ? before_merged_rows(im, a) : NULL;
	if (merged != NULL)
		return output_merged_rows(im, operand_tensor(im, merged), b, tb, c, a->dims[0]);
	if (is_matrix(b) && is_plain)
		return output_linear(im, operand_tensor(im, a), b, tb, c);
	const char *left = operand_tensor(im, a), *right = operand_tensor(im, b);
	const char *x = import_text(im, "matmul(%s, %s, transpose_a=%s, transpose_b=%s)", left, right,
	                            ta ? "true" : "false", tb ? "true" : "false");
	x = alpha == 1 ? x : import_text(im, "%s * %s", x, float_text(im, alpha));
	if (c != NULL)
		x = import_text(
		        im, "%s + %s", x,
		        beta == 1 ? operand_tensor(im, c)
		                  : import_text(im, "%s * %s", operand_tensor(im, c), float_text(im, beta)));
	return import_output(im, 0, "%s", x);
}

/* Einsum of one or two tensors. Without `->` the labels that occur once are those of the result, in alphabetic order,
   which is written for the language. */
bool import_einsum(struct importer *im)
{
	const char *text = attribute_text(im, "equation", "");
	char spec[2 * 128] = "";
	size_t n = 0;
	for (const char *p = text; *p != '\0' && n < sizeof(spec) / 2; p++)
		if (*p != ' ')
			spec[n++] = *p;
	if (im->node->inputs.n > 2 || n >= sizeof(spec) / 2 || strpbrk(spec, ".\"'\\{}") != NULL)
		return import_refuse(im, "not supported: Einsum of more than two tensors, or with '...'");
	if (strstr(spec, "->") == NULL) {
		size_t end = n;
		spec[n++] = '-';
		spec[n++] = '>';
		for (char c = 'A'; c <= 'z'; c++) {
			const char *at = memchr(spec, c, end);
			if (at != NULL && memchr(at + 1, c, (size_t)(spec + end - at - 1)) == NULL)
				spec[n++] = c;
		}
	}
	const char *second = im->node->inputs.n == 2 ? import_text(im, ", %s", tensor_at(im, 1)) : "";
	return import_output(im, 0, "einsum(\"%s\", %s%s)", spec, tensor_at(im, 0), second);
}

/* ---- norms ---- */

/* A vector along axis 1 of a tensor of `rank` axes. */
static const char *channels_text(struct importer *im, const char *x, const struct ir_dim *n, int rank)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 1; i < rank; i++)
		dims[i - 1] = i == 1 ? n : ir_dim_const(im->dims, 1);
	return import_text(im, "reshape(%s, %s)", x, dims_text(im, rank - 1, dims));
}

/* x * scale + shift for each channel (axis 1), with the stored mean and variance. */
bool import_batch_norm(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	if (v->rank < 2 || attribute_int(im, "training_mode", 0) != 0 || im->node->outputs.n > 1)
		return import_refuse(im, "not supported: BatchNormalization in training");
	const char *eps = float_text(im, attribute_float(im, "epsilon", 1e-5));
	const char *gamma = tensor_at(im, 1), *beta = tensor_at(im, 2), *mean = tensor_at(im, 3),
	           *variance = tensor_at(im, 4);
	const char *scale = import_statement(im, "scale", "%s / sqrt(%s + %s)", gamma, variance, eps);
	const char *shift = import_statement(im, "shift", "%s - %s * %s", beta, mean, scale);
	return import_output(im, 0, "%s * %s + %s", tensor_at(im, 0),
	                     channels_text(im, scale, v->dims[1], v->rank),
	                     channels_text(im, shift, v->dims[1], v->rank));
}

/* GroupNormalization and InstanceNormalization, where each channel is a group: rows of a group's elements are
   normalized, then scaled by channel, or by group in old opsets, where scale has a number for each group. */
bool import_group_norm(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0), *scale = operand_needed(im, 1);
	struct ir_dims *t = im->dims;
	if (im->failed || v->rank < 3)
		return import_refuse(im, "%s of %d axes", im->node->op, v->rank);
	int64_t channels = operand_size(im, v, 1), groups = attribute_int(im, "num_groups", channels);
	if (groups < 1 || channels % groups != 0 || scale->rank != 1)
		return import_refuse(im, "%s of %lld channels in %lld groups", im->node->op,
		                     (long long)channels, (long long)groups);
	const struct ir_dim *each = ir_dim_const(t, channels / groups),
	                    *rows[] = {v->dims[0], ir_dim_const(t, groups), each};
	for (int i = 2; i < v->rank; i++)
		rows[2] = ir_dim_mul(t, rows[2], v->dims[i]);
	const char *eps = float_text(im, attribute_float(im, "epsilon", 1e-5));
	const char *x =
	        import_statement(im, "rows", "reshape(%s, %s)", tensor_at(im, 0), dims_text(im, 3, rows));
	x = import_statement(im, "rows", "%s - mean(%s, axis=-1, keep=true)", x, x);
	x = import_text(im, "%s * rsqrt(mean(%s * %s, axis=-1, keep=true) + %s)", x, x, x, eps);
	bool by_group = ir_dim_equals(scale->dims[0], groups) && groups != channels;
	const struct ir_dim *n = by_group ? rows[1] : v->dims[1];
	int rank = by_group ? 3 : v->rank;
	const char *back = dims_text(im, v->rank, v->dims);
	x = by_group ? x : import_text(im, "reshape(%s, %s)", x, back);
	const char *gamma = tensor_at(im, 1), *beta = tensor_at(im, 2);
	x = import_text(im, "%s * %s + %s", x, channels_text(im, gamma, n, rank),
	                channels_text(im, beta, n, rank));
	return import_output(im, 0, "%s", by_group ? import_text(im, "reshape(%s, %s)", x, back) : x);
}

/* The results of a norm of v beside its rows, if they are read: Mean and InvStdDev of LayerNormalization, InvStdDev
   (output 1) of the others. */
static bool output_moments(struct importer *im, const struct operand *v, int axis, double epsilon,
                           bool is_rms)
{
	const char *eps = float_text(im, epsilon);
	int64_t axes[IR_RANK_MAX];
	if (!import_is_read(im, 1) && !import_is_read(im, 2))
		return !im->failed;
	for (int i = axis; i < v->rank; i++)
		axes[i - axis] = i;
	const char *along = ints_text(im, axes, (size_t)(v->rank - axis)), *x = v->name;
	if (is_rms)
		return import_output(im, 1, "rsqrt(mean(%s * %s, axis=%s, keep=true) + %s)", x, x, along,
		                     eps);
	const char *mean = import_statement(im, "mean", "mean(%s, axis=%s, keep=true)", x, along);
	return import_output(im, 1, "identity(%s)", mean) &&
	       import_output(im, 2, "rsqrt(mean((%s - %s) * (%s - %s), axis=%s, keep=true) + %s)", x, mean, x,
	                     mean, along, eps);
}

/* Output 0 is the norm of v, a value of statements, along the axes from `axis` on. bias NULL: none. Constant vectors
   along the last axis are a layer; else the axes are merged, normalized, and scaled by separate ops. */
static bool output_norm(struct importer *im, const struct operand *v, struct operand *scale,
                        struct operand *bias, int axis, double epsilon, bool is_rms)
{
	const char *name = is_rms ? "rms_norm" : "layer_norm", *eps = float_text(im, epsilon), *x = v->name;
	int64_t width;
	bool is_last = axis == v->rank - 1 && ir_dim_is_const(v->dims[axis], &width);
	if (is_last && operand_is_vector(scale, width) && (bias == NULL || operand_is_vector(bias, width))) {
		const char *path = import_layer(im, scale, "", bias),
		           *more = is_rms || bias != NULL ? "" : ", bias=false";
		return import_output(im, 0, "%s(%s, %s, eps=%s%s)", name, x, path, eps, more);
	}
	const struct ir_dim *flat[IR_RANK_MAX];
	for (int i = 0; i < axis; i++)
		flat[i] = v->dims[i];
	flat[axis] = ir_dim_const(im->dims, 1);
	for (int i = axis; i < v->rank; i++)
		flat[axis] = ir_dim_mul(im->dims, flat[axis], v->dims[i]);
	x = import_text(im, "reshape(%s(reshape(%s, %s), none, eps=%s), %s) * %s", name, x,
	                dims_text(im, axis + 1, flat), eps, dims_text(im, v->rank, v->dims),
	                operand_tensor(im, scale));
	if (bias != NULL)
		x = import_text(im, "%s + %s", x, operand_tensor(im, bias));
	return import_output(im, 0, "%s", x);
}

/* LayerNormalization and RMSNormalization, which ONNX Runtime calls SimplifiedLayerNormalization, along the axes from
 * `axis` on. */
bool import_layer_norm(struct importer *im)
{
	struct operand *v = operand_needed(im, 0), *scale = operand_needed(im, 1), *bias = operand_at(im, 2);
	bool is_rms = strcmp(im->node->op, "LayerNormalization") != 0;
	(void)attribute_of(im, "stash_type"); /* sums are f32 in any case */
	int axis = axis_of(im, attribute_int(im, "axis", -1), v->rank);
	if (im->failed || v->rank == 0)
		return import_refuse(im, "%s of a number", im->node->op);
	(void)operand_tensor(im, v); /* names v: both functions below read v->name */
	double epsilon = attribute_float(im, "epsilon", 1e-5);
	return output_norm(im, v, scale, is_rms ? NULL : bias, axis, epsilon, is_rms) &&
	       output_moments(im, v, axis, epsilon, is_rms);
}

/* The norm of a sum, which is output 3: operands x, what is added, scale, shift (LayerNormalization alone), bias. */
bool import_skip_norm(struct importer *im)
{
	bool is_rms = strcmp(im->node->op, "SkipLayerNormalization") != 0;
	if (import_is_read(im, 1) || import_is_read(im, 2))
		return import_refuse(im, "not supported: %s with its moments, which are for training",
		                     im->node->op);
	struct operand *scale = operand_needed(im, 2), *shift = is_rms ? NULL : operand_at(im, 3),
	               *bias = operand_at(im, is_rms ? 3 : 4);
	const char *x = tensor_at(im, 0), *added = tensor_at(im, 1);
	x = import_text(im, "%s + %s", x, added);
	if (bias != NULL)
		x = import_text(im, "%s + %s", x, operand_tensor(im, bias));
	const char *sum = import_statement(im,
	                                   im->node->outputs.n > 3 && im->node->outputs.items[3][0] != '\0'
	                                           ? im->node->outputs.items[3]
	                                           : "sum",
	                                   "%s", x);
	struct operand *v = import_operand(im, sum);
	if (v != NULL && v->rank == 0)
		return import_refuse(im, "%s of a number", im->node->op);
	return v != NULL && import_alias(im, 3, v) &&
	       output_norm(im, v, scale, shift, v->rank - 1, attribute_float(im, "epsilon", 1e-12), is_rms);
}

/* ---- tables ---- */

/* embed() of the table, operand i, at the ids of operand `ids`; without these and by_position at 0, 1, .. along the
   last axis of operand 0. "": the node has no such table, or was refused. */
static const char *rows_text(struct importer *im, size_t i, size_t ids, bool by_position)
{
	struct operand *table = operand_at(im, i), *at = operand_at(im, ids);
	if (table == NULL || (at == NULL && !by_position))
		return "";
	if (!operand_is_parameter(table) || table->rank != 2) {
		import_refuse(im, "not supported: %s with tables that are no constants", im->node->op);
		return "";
	}
	const struct operand *first = operand_needed(im, 0);
	const char *text =
	        at != NULL ? import_ids(im, at, table->dims[0])
	                   : import_text(im, "iota([%s])", dim_text(im, first->dims[first->rank - 1]));
	return import_embedding(im, text, table);
}

/* EmbedLayerNormalization: the norm of a sum of rows of tables. Operands: ids, segments, their tables (words,
   positions, segments), scale, shift, mask, positions. Output 1 is the number of real tokens, output 2 the sum. */
bool import_embed_norm(struct importer *im)
{
	const struct operand *ids = operand_needed(im, 0);
	if (im->failed || ids->rank != 2)
		return import_refuse(im, "%s of ids of %d axes", im->node->op, ids->rank);
	(void)attribute_of(im, "mask_index_type");
	const char *words = rows_text(im, 2, 0, false), *places = rows_text(im, 3, 8, true),
	           *segments = rows_text(im, 4, 1, false);
	const char *x =
	        import_text(im, segments[0] != '\0' ? "%s + %s + %s" : "%s + %s", words, places, segments);
	struct operand *v = import_operand(im, import_statement(im, "sum", "%s", x)),
	               *mask = operand_at(im, 7);
	if (v == NULL || !import_alias(im, 2, v) ||
	    !output_norm(im, v, operand_needed(im, 5), operand_needed(im, 6), v->rank - 1,
	                 attribute_float(im, "epsilon", 1e-12), false))
		return false;
	if (!import_is_read(im, 1))
		return true;
	return import_output(
	        im, 1, "%s",
	        mask == NULL ? import_text(im, "iota([%s]) * 0", dim_text(im, ids->dims[0]))
	                     : import_text(im, "sum(cast(%s == 1, i32), axis=1)", operand_tensor(im, mask)));
}

/* x / (its l1 or l2 norm along the axis). */
bool import_lp_norm(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int axis = axis_of(im, attribute_int(im, "axis", -1), v->rank);
	bool is_l1 = attribute_int(im, "p", 2) == 1;
	const char *x = tensor_at(im, 0);
	const char *norm = is_l1 ? import_text(im, "sum(abs(%s), axis=%d, keep=true)", x, axis)
	                         : import_text(im, "sqrt(sum(%s * %s, axis=%d, keep=true))", x, x, axis);
	/* Zeros stay zeros: the least normal number keeps them from 0 / 0. */
	return import_output(im, 0, "%s / maximum(%s, 1.1754943508222875e-38)", x, norm);
}
