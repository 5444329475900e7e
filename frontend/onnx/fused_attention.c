/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of ONNX Runtime's domain com.microsoft: Attention (BERT), MultiHeadAttention, GroupQueryAttention. Their
 * masks add a number to scores of hidden keys, -10000 by default, which is kept: it also decides rows without a visible
 * key. Caches become state, as those of decoders that are written out (past.c). `bias` operands are vectors added to
 * queries, keys and values, one after another in one vector; fused.bias is what is added to the scores. An operand that
 * is absent is NULL of operand_at(). Refusals are sticky (im->failed): after one, helpers return "", 1 or an empty
 * operand. Letters: B batch, S queries, T keys, P keys of the past, K heads of keys.
 */
#include "frontend/onnx/import.h"

#include <string.h>

struct fused {
	struct heads q, k, v;
	struct operand *past[2];   /* keys and values [B, K, P, E]; NULL: none */
	const struct ir_dim *keys; /* T */
	const char *scale, *more;  /* more: arguments of sdpa */
	const char *bias;          /* added to scores; "": none */
	bool is_causal, is_state;
};

/* ---- queries, keys, values ---- */

/* x plus features [at, at + n) of the bias vector, operand i; x itself if the node has no such operand. */
static const char *add_bias(struct importer *im, const char *x, size_t i, int64_t at, int64_t n)
{
	if (operand_at(im, i) == NULL)
		return x;
	return import_text(im, "%s + slice(%s, axis=0, begin=%lld, end=%lld)", x, tensor_at(im, i),
	                   (long long)at, (long long)(at + n));
}

/* The expression x of features [B, S, heads E], as heads [B, heads, S, E] under a name. */
static bool split_heads(struct importer *im, const char *x, int64_t heads, struct heads *out)
{
	struct operand *v = import_operand(im, import_statement(im, "features", "%s", x));
	return v != NULL && import_heads(im, v, heads, out);
}

/* Features begin .. begin + n - 1 of x, plus those of the bias (operand `bias`; SIZE_MAX: none), as heads. */
static bool read_part(struct importer *im, const char *x, int64_t begin, int64_t n, int64_t heads,
                      size_t bias, struct heads *out)
{
	x = import_text(im, "slice(%s, axis=-1, begin=%lld, end=%lld)", x, (long long)begin,
	                (long long)(begin + n));
	return split_heads(im, add_bias(im, x, bias, begin, n), heads, out);
}

/* Operand i of three axes, plus the features from `at` on of the bias (operand `bias`; SIZE_MAX: none), as heads; an
   operand of four axes has heads already, and no bias. */
static bool read_operand(struct importer *im, size_t i, int64_t heads, size_t bias, int64_t at,
                         struct heads *out)
{
	struct operand *v = operand_needed(im, i);
	const char *x = operand_tensor(im, v);
	if (im->failed || v->rank == 4)
		return !im->failed && import_heads(im, v, heads, out);
	int64_t width = operand_size(im, v, v->rank - 1);
	return !im->failed && split_heads(im, add_bias(im, x, bias, at, width), heads, out);
}

/* heads times E: the features of each row, and the offset of the next operand's bias. Refused where it varies. */
static int64_t width_of(struct importer *im, const struct heads *h)
{
	int64_t n = 0, e = 0;
	if (!ir_dim_is_const(h->dims[1], &n) || !ir_dim_is_const(h->dims[3], &e))
		import_refuse(im, "not supported: %s of heads whose size varies", im->node->op);
	return n * e;
}

/* ---- masks ---- */

/* A term of what is added to the scores; "": nothing is. */
static void add_scores(struct importer *im, struct fused *a, const char *text)
{
	a->bias = a->bias[0] == '\0' ? text : import_text(im, "%s + %s", a->bias, text);
}

/* Operand i hides keys: the number of keys of each sequence [B], or 0 for hidden ones, [B, T], [B, S, T] or [B, 1, S,
   T]. Adds mask_filter_value to the scores of hidden keys; a mask that hides none (ones of a state) adds nothing. */
static bool read_mask(struct importer *im, struct fused *a, size_t i)
{
	struct operand *v = operand_at(im, i);
	const char *hidden = float_text(im, attribute_float(im, "mask_filter_value", -10000));
	const struct ir_dim *b = a->q.dims[0], *s = a->q.dims[2], *t = a->keys,
	                    *one = ir_dim_const(im->dims, 1);
	if (v == NULL)
		return !im->failed;
	const char *x = operand_tensor(im, v);
	const struct ir_dim *scores[] = {b, a->q.dims[1], s, t};
	struct operand shape = {.rank = 4};
	memcpy(shape.dims, scores, sizeof(scores));
	if (v->rank == 1 && v->dims[0] == b)
		x = import_text(im,
		                "reshape(iota([%s]), [1, 1, 1, %s]) < reshape(cast(%s, i32), [%s, 1, 1, 1])",
		                dim_text(im, t), dim_text(im, t), x, dim_text(im, b));
	else if (v->rank >= 2 && v->rank <= 4 && v->dims[0] == b && v->dims[v->rank - 1] == t &&
	         (v->rank == 2 || v->dims[v->rank - 2] == s) &&
	         (v->rank < 4 || ir_dim_equals(v->dims[1], 1))) {
		const struct ir_dim *dims[] = {b, one, v->rank > 2 ? s : one, t};
		x = import_text(im, "reshape(%s, %s) > 0", x, dims_text(im, 4, dims));
	} else
		return import_refuse(im, "not supported: %s with a mask of this shape", im->node->op);
	struct operand *seen = import_operand(im, import_statement(im, "seen", "%s", x));
	if (seen != NULL && import_visibility(im, seen, &shape) != VISIBLE_ALL)
		add_scores(im, a, import_text(im, "where(%s, const(0.0), %s)", seen->name, hidden));
	return seen != NULL;
}

/* Operand i is added to the scores; a mask that hides what is behind each query makes attention causal. */
static bool read_bias(struct importer *im, struct fused *a, size_t i)
{
	struct operand *v = operand_at(im, i);
	const struct ir_dim *scores[] = {a->q.dims[0], a->q.dims[1], a->q.dims[2], a->keys};
	struct operand shape = {.rank = 4};
	if (v == NULL)
		return !im->failed;
	memcpy(shape.dims, scores, sizeof(scores));
	const char *x = operand_tensor(im, v);
	enum visibility sees = import_visibility(im, v, &shape);
	if (sees == VISIBLE_UNKNOWN)
		add_scores(im, a, x);
	a->is_causal = a->is_causal || sees == VISIBLE_CAUSAL;
	return !im->failed;
}

/* ---- the past ---- */

/* Operands i and i + 1 are keys and values before those of the node, outputs 1 and 2 have both. When the past becomes
   a state (past.c), sdpa's cache joins them, and nothing is written here. Sets a->keys to the number of all keys. */
static bool join_past(struct importer *im, struct fused *a, size_t i)
{
	struct heads *const parts[] = {&a->k, &a->v};
	a->keys = a->k.dims[2];
	a->is_state = im->past.is_state && operand_at(im, i) != NULL &&
	              strmap_has(&im->past.appends, im->node->inputs.items[i]);
	for (size_t k = 0; k < 2; k++) {
		struct operand *past = operand_at(im, i + k);
		if ((past == NULL) != (operand_at(im, i) == NULL) || (past != NULL && past->rank != 4))
			return import_refuse(im, "%s with a past that is not keys and values of four axes",
			                     im->node->op);
		a->past[k] = past != NULL && !ir_dim_equals(past->dims[2], 0) ? past : NULL;
		if (a->is_state)
			continue;
		if (a->past[k] != NULL) {
			const char *all = import_statement(im, "all", "concat([%s, %s], axis=2)",
			                                   operand_tensor(im, past), parts[k]->x);
			const struct ir_type *t = import_type(im, all);
			if (t == NULL)
				return false;
			parts[k]->x = all;
			memcpy(parts[k]->dims, t->dims, sizeof(parts[k]->dims));
		}
		if (import_is_read(im, 1 + k) && !import_output(im, 1 + k, "identity(%s)", parts[k]->x))
			return false;
	}
	a->keys = a->is_state && a->past[0] != NULL ? ir_dim_add(im->dims, a->keys, a->past[0]->dims[2])
	                                            : a->k.dims[2];
	return !im->failed;
}

/* ---- the statement ---- */

/* Output 0 [B, S, heads E]: queries see keys up to their own position, and are the last of the keys where attention
   is causal. Attention with a state may have neither bias nor other masks: its cache knows causal attention alone. */
static bool output_fused(struct importer *im, const struct fused *a)
{
	const struct ir_dim *flat[] = {a->q.dims[0], a->q.dims[2],
	                               ir_dim_mul(im->dims, a->q.dims[1], a->v.dims[3])};
	const char *more = import_text(im, "scale=%s%s", a->scale, a->more);
	if (a->is_state && (!a->is_causal || a->bias[0] != '\0'))
		return import_refuse(im, "not supported: %s with a past that is not causal attention alone",
		                     im->node->op);
	if (a->is_causal && (a->is_state || a->keys == a->q.dims[2]))
		more = import_text(im, "%s, causal=true", more);
	else if (a->is_causal) {
		const char *s = dim_text(im, a->q.dims[2]), *t = dim_text(im, a->keys);
		const char *seen = import_text(
		        im, "reshape(iota([%s]), [1, %s]) <= reshape(iota([%s]) + (%s - %s), [%s, 1])", t, t,
		        s, t, s, s);
		more = import_text(im, "%s, mask=%s", more, import_statement(im, "seen", "%s", seen));
	}
	if (a->is_state)
		more = import_text(im, "%s, cache=\"kv.%zu\"", more, im->past.n_caches++);
	if (a->bias[0] != '\0')
		more = import_text(im, "%s, bias=%s", more, import_statement(im, "bias", "%s", a->bias));
	const char *y = import_statement(im, "heads", "sdpa(%s, %s, %s, %s)", a->q.x, a->k.x, a->v.x, more);
	return import_output(im, 0, "reshape(transpose(%s, [0, 2, 1, 3]), %s)", y, dims_text(im, 3, flat));
}

/* The factor of the scores; 0 or absent: 1 / sqrt(E). */
static void read_scale(struct importer *im, struct fused *a)
{
	double scale = attribute_float(im, "scale", 0);
	a->scale = scale != 0 ? float_text(im, scale)
	                      : import_text(im, "(1 / sqrt(%s))", dim_text(im, a->q.dims[3]));
}

/* ---- the nodes ---- */

/*
 * Attention: x, matrix [D, 3 E], bias, mask, past, what is added to the scores. The results of the matrix are
 * queries, keys and values.
 */
bool import_fused_attention(struct importer *im)
{
	struct fused a = {.bias = "", .more = ""};
	struct operand *w = operand_needed(im, 1), *bias = operand_at(im, 2);
	const struct onnx_attribute *sizes = attribute_of(im, "qkv_hidden_sizes");
	int64_t heads = attribute_int(im, "num_heads", 0), all = operand_size(im, w, w->rank - 1), n[3];
	if (operand_at(im, 4) != NULL || operand_at(im, 6) != NULL ||
	    attribute_int(im, "do_rotary", 0) != 0 || import_is_read(im, 1))
		return import_refuse(
		        im, "not supported: Attention of com.microsoft with a past, or rotary positions");
	for (size_t i = 0; i < 3; i++)
		n[i] = sizes != NULL && sizes->ints.n == 3 ? sizes->ints.items[i] : all / 3;
	if (im->failed || !operand_is_parameter(w) || w->rank != 2 || n[0] < 1 || n[1] < 1 || n[2] < 1 ||
	    n[0] > all || n[1] > all || n[2] > all || n[0] + n[1] + n[2] != all ||
	    (bias != NULL && !operand_is_vector(bias, all)))
		return import_refuse(
		        im, "not supported: Attention of com.microsoft with matrices of these shapes");
	const char *path = import_layer(im, w, "transpose: true", bias);
	const char *x = import_statement(im, "features", "linear(%s, %s, out=%lld%s)", tensor_at(im, 0), path,
	                                 (long long)all, bias != NULL ? "" : ", bias=false");
	if (!read_part(im, x, 0, n[0], heads, SIZE_MAX, &a.q) ||
	    !read_part(im, x, n[0], n[1], heads, SIZE_MAX, &a.k) ||
	    !read_part(im, x, n[0] + n[1], n[2], heads, SIZE_MAX, &a.v))
		return false;
	a.keys = a.k.dims[2];
	a.is_causal = attribute_int(im, "unidirectional", 0) != 0;
	read_scale(im, &a);
	return read_mask(im, &a, 3) && read_bias(im, &a, 5) && output_fused(im, &a);
}

/* MultiHeadAttention: queries, keys, values, bias, mask, what is added to the scores, keys and values of the past. */
bool import_heads_attention(struct importer *im)
{
	struct fused a = {.bias = "", .more = ""};
	int64_t heads = attribute_int(im, "num_heads", 0);
	if (operand_at(im, 1) == NULL || operand_at(im, 2) == NULL || operand_at(im, 8) != NULL ||
	    operand_at(im, 9) != NULL || import_is_read(im, 3))
		return import_refuse(
		        im, "not supported: MultiHeadAttention of packed operands, or with a shared past");
	if (!read_operand(im, 0, heads, 3, 0, &a.q) ||
	    !read_operand(im, 1, heads, 3, width_of(im, &a.q), &a.k) ||
	    !read_operand(im, 2, heads, 3, width_of(im, &a.q) + width_of(im, &a.k), &a.v) ||
	    !join_past(im, &a, 6))
		return false;
	a.is_causal = attribute_int(im, "unidirectional", 0) != 0;
	read_scale(im, &a);
	return read_mask(im, &a, 4) && read_bias(im, &a, 5) && output_fused(im, &a);
}

/* Rotates heads at the positions of the tokens of a state, by the tables of operands 7 and 8 (cosines, sines). */
static bool rotate(struct importer *im, struct heads *h, bool interleaved)
{
	const char *at = past_positions_name(im, ir_dim_sym(im->dims, im->past.size), h->dims[0], h->dims[2]);
	const char *table = import_rotary_table(im, 7, 8);
	if (at == NULL || table == NULL)
		return import_refuse(im, "not supported: rotary positions of %s with these tables",
		                     im->node->op);
	h->x = import_statement(im, "rotated", "%s", import_rope(im, h->x, at, table, interleaved));
	return !im->failed;
}

/* GroupQueryAttention: queries, keys, values (or all in one), the past, lengths, tables of cosines and sines. All
 * tokens of a state are real, so that lengths are known. */
bool import_grouped_attention(struct importer *im)
{
	struct fused a = {.bias = "", .more = "", .is_causal = true};
	int64_t heads = attribute_int(im, "num_heads", 0), groups = attribute_int(im, "kv_num_heads", 0),
	        window = attribute_int(im, "local_window_size", -1);
	double cap = attribute_float(im, "softcap", 0);
	bool is_packed = operand_at(im, 1) == NULL, rotates = attribute_int(im, "do_rotary", 0) != 0,
	     interleaved = attribute_int(im, "rotary_interleaved", 0) != 0;
	if (heads < 1 || groups < 1 || heads > INT16_MAX || groups > heads || operand_at(im, 9) != NULL ||
	    attribute_int(im, "smooth_softmax", 0) > 0 || attribute_int(im, "qk_output", 0) != 0)
		return import_refuse(im, "not supported: GroupQueryAttention with these operands");
	if (is_packed) {
		struct operand *x = operand_needed(im, 0);
		const char *name = operand_tensor(im, x);
		int64_t each = operand_size(im, x, x->rank - 1) / (heads + 2 * groups);
		if (!read_part(im, name, 0, heads * each, heads, SIZE_MAX, &a.q) ||
		    !read_part(im, name, heads * each, groups * each, groups, SIZE_MAX, &a.k) ||
		    !read_part(im, name, (heads + groups) * each, groups * each, groups, SIZE_MAX, &a.v))
			return false;
	} else if (!read_operand(im, 0, heads, SIZE_MAX, 0, &a.q) ||
	           !read_operand(im, 1, groups, SIZE_MAX, 0, &a.k) ||
	           !read_operand(im, 2, groups, SIZE_MAX, 0, &a.v))
		return false;
	if (!im->past.is_state || operand_at(im, 3) == NULL ||
	    !strmap_has(&im->past.appends, im->node->inputs.items[3]))
		return import_refuse(im,
		                     "not supported: GroupQueryAttention whose past does not become state");
	if ((rotates && (!rotate(im, &a.q, interleaved) || !rotate(im, &a.k, interleaved))) ||
	    !join_past(im, &a, 3))
		return false;
	read_scale(im, &a);
	if (cap != 0)
		a.more = import_text(im, "%s, softcap=%s", a.more, float_text(im, cap));
	if (window > 0)
		a.more = import_text(im, "%s, window=%lld", a.more, (long long)window);
	if (operand_at(im, 11) != NULL)
		a.more = import_text(im, "%s, sinks=%s", a.more, tensor_at(im, 11));
	return read_bias(im, &a, 10) && output_fused(im, &a);
}
