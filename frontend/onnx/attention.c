/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and RotaryEmbedding of opset 23 and later. Attention is `sdpa`; scores as a result, and a mask that is
 * added behind a softcap, are written out step by step. Texts are expressions of the model language: import_statement()
 * gives one a name, import_output() makes it an output of the node. Refusals are sticky: after one, helpers return "",
 * 1 or an empty operand, and im->failed is tested once, before what cannot be undone. Sizes are dims, numbers or
 * expressions of symbols; equal ones are one pointer.
 */
#include "frontend/onnx/import.h"

#include <string.h>

struct attention {
	struct heads q, k, v;
	const struct ir_dim *past; /* keys before those of the node; NULL: none */
	const char *scale, *cap;   /* cap "": none */
	const char *lengths;       /* of the keys; "": all are real */
	const char *bias, *mask;   /* an operand of floats, bools; "": none */
	bool is_causal;
};

/* ---- operands ---- */

/* E of v [B, S, heads E]; NULL: it has other axes, or no whole heads. */
static const struct ir_dim *head_size(struct importer *im, const struct operand *v, int64_t heads)
{
	return v->rank == 3 && heads > 0 && heads <= INT32_MAX
	               ? ir_dim_divide(im->dims, v->dims[2], ir_dim_const(im->dims, heads))
	               : NULL;
}

/* Three axes are split into `heads` heads of equal size, whose axis then comes before the sequence; four are heads
   already, and `heads` is not read. */
bool import_heads(struct importer *im, struct operand *v, int64_t heads, struct heads *out)
{
	const char *x = operand_tensor(im, v);
	if (v->rank == 4) {
		out->x = x;
		memcpy(out->dims, v->dims, sizeof(out->dims));
		return !im->failed;
	}
	const struct ir_dim *each = head_size(im, v, heads);
	if (each == NULL)
		return import_refuse(im, "%s of %d axes in %lld heads", im->node->op, v->rank,
		                     (long long)heads);
	const struct ir_dim *split[] = {v->dims[0], v->dims[1], ir_dim_const(im->dims, heads), each};
	out->x = import_statement(im, "heads", "transpose(reshape(%s, %s), [0, 2, 1, 3])", x,
	                          dims_text(im, 4, split));
	const struct ir_dim *dims[] = {split[0], split[2], split[1], split[3]};
	memcpy(out->dims, dims, sizeof(dims));
	return !im->failed;
}

/* Operand i of three axes [B, S, heads E], or four. */
static bool read_heads(struct importer *im, size_t i, const char *count, struct heads *out)
{
	return import_heads(im, operand_needed(im, i), attribute_int(im, count, 0), out);
}

/* Puts the keys or values of operand `past` before those of the node; all of them are output i, too (identity() gives
   them its name). A past of no positions adds nothing. */
static bool join_past(struct importer *im, struct heads *h, size_t past, size_t i)
{
	struct operand *before = operand_at(im, past);
	if (before != NULL && (before->rank != 4 || !ir_dim_equals(before->dims[2], 0))) {
		const char *old = operand_tensor(im, before);
		h->x = import_statement(im, "all", "concat([%s, %s], axis=2)", old, h->x);
		const struct ir_type *t = import_type(im, h->x);
		if (t == NULL)
			return false;
		memcpy(h->dims, t->dims, sizeof(h->dims));
	}
	return import_is_read(im, i) ? import_output(im, i, "identity(%s)", h->x) : !im->failed;
}

/* attn_mask, operand 3: bools say which keys are visible (a->mask), floats are added to the scores (a->bias). One
   that is shorter than the keys is padded: keys behind its end are not visible. */
static bool read_mask(struct importer *im, struct attention *a)
{
	struct operand *v = operand_at(im, 3);
	a->bias = a->mask = "";
	if (v == NULL)
		return true;
	const char *x = operand_tensor(im, v);
	bool is_bool = v->dtype == DT_BOOL;
	if (v->rank < 2 || v->rank > 4)
		return import_refuse(im, "Attention: a mask of %d axes", v->rank);
	const struct ir_dim *given = v->dims[v->rank - 1];
	if (given != a->k.dims[2]) {
		const struct ir_dim *missing = ir_dim_sub(im->dims, a->k.dims[2], given);
		const char *left = dim_text(im, missing);
		if (!ir_dim_is_const(missing, NULL))
			return import_refuse(im, "not supported: Attention of %s keys and a mask of %s",
			                     dim_text(im, a->k.dims[2]), dim_text(im, given));
		x = is_bool ? import_text(im,
		                          "pad(cast(%s, f32), axis=-1, before=0, after=%s, value=0.0) > 0.5",
		                          x, left)
		            : import_text(im, "pad(%s, axis=-1, before=0, after=%s, value=-.inf)", x, left);
		x = import_statement(im, "given", "%s", x);
	}
	*(is_bool ? &a->mask : &a->bias) = x;
	return !im->failed;
}

/* Bools [.., S, T]: key j is visible where j is at most the position of query i. Queries come after the past, or,
   with lengths, are the last S of the real keys. */
static const char *causal_text(struct importer *im, const struct attention *a)
{
	const char *s = dim_text(im, a->q.dims[2]), *t = dim_text(im, a->k.dims[2]);
	const char *queries = import_text(im, "reshape(iota([%s]), [%s, 1])", s, s);
	if (a->lengths[0] != '\0')
		queries = import_text(im, "%s + reshape(%s - (%s), [%s, 1, 1, 1])", queries, a->lengths, s,
		                      dim_text(im, a->q.dims[0]));
	else if (a->past != NULL)
		queries = import_text(im, "%s + (%s)", queries, dim_text(im, a->past));
	return import_statement(im, "seen", "reshape(iota([%s]), [1, %s]) <= %s", t, t, queries);
}

/* ---- step by step ---- */

/* Keys or values repeated for each head of the queries: head h reads head h // group of them, and matmul() has no
   groups. The heads as they are where both counts are the same, or after a refusal. */
static const char *for_all_heads(struct importer *im, const struct attention *a, const struct heads *h)
{
	int64_t group;
	const struct ir_dim *n = ir_dim_divide(im->dims, a->q.dims[1], h->dims[1]);
	if (n == NULL || !ir_dim_is_const(n, &group))
		import_refuse(im, "Attention of %s heads and %s of keys", dim_text(im, a->q.dims[1]),
		              dim_text(im, h->dims[1]));
	else if (group > 1)
		return import_text(im, "gather(%s, iota([%s]) // %lld, axis=1)", h->x,
		                   dim_text(im, a->q.dims[1]), (long long)group);
	return h->x;
}

/* Makes the scores x output 3 if `mode` is the stage of qk_matmul_output_mode, and the output is read. */
static bool output_scores(struct importer *im, int64_t mode, const char *x)
{
	return attribute_int(im, "qk_matmul_output_mode", 0) != mode || !import_is_read(im, 3)
	               ? !im->failed
	               : import_output(im, 3, "identity(%s)", x);
}

/* Attention in separate statements, in the order of the standard, so that the scores of each stage may be an output:
   product (mode 0), softcap (1), bias and masks (2), softmax (3). Returns the text of the result. */
static const char *write_scores(struct importer *im, const struct attention *a)
{
	const char *k = for_all_heads(im, a, &a->k), *v = for_all_heads(im, a, &a->v), *seen;
	const char *x =
	        import_statement(im, "scores", "matmul(%s, %s, transpose_b=true) * %s", a->q.x, k, a->scale);
	(void)output_scores(im, 0, x);
	if (a->cap[0] != '\0')
		x = import_statement(im, "scores", "softcap(%s, %s)", x, a->cap);
	(void)output_scores(im, 1, x);
	if (a->bias[0] != '\0')
		x = import_statement(im, "scores", "%s + %s", x, a->bias);
	if (a->mask[0] != '\0')
		x = import_statement(im, "scores", "where(%s, %s, -.inf)", a->mask, x);
	if (a->is_causal) {
		seen = causal_text(im, a);
		x = import_statement(im, "scores", "where(%s, %s, -.inf)", seen, x);
	}
	(void)output_scores(im, 2, x);
	x = import_statement(im, "weights", "softmax(%s)", x);
	(void)output_scores(im, 3, x);
	return import_text(im, "matmul(%s, %s)", x, v);
}

/* Attention as one call of sdpa. `causal=true` sees keys up to the index of the query; where queries come after a
   past, or at the end of real keys, the causal mask is written out. */
static const char *write_sdpa(struct importer *im, const struct attention *a)
{
	const char *more = import_text(im, "scale=%s", a->scale), *mask = a->mask;
	bool moves = a->past != NULL || a->lengths[0] != '\0';
	if (a->is_causal && (moves || mask[0] != '\0')) {
		const char *seen = causal_text(im, a);
		mask = mask[0] == '\0' ? seen : import_statement(im, "seen", "%s and %s", mask, seen);
	} else if (a->is_causal)
		more = import_text(im, "%s, causal=true", more);
	if (mask[0] != '\0')
		more = import_text(im, "%s, mask=%s", more, mask);
	if (a->bias[0] != '\0')
		more = import_text(im, "%s, bias=%s", more, a->bias);
	if (a->cap[0] != '\0')
		more = import_text(im, "%s, softcap=%s", more, a->cap);
	if (a->lengths[0] != '\0')
		more = import_text(im, "%s, lengths=%s", more, a->lengths);
	return import_text(im, "sdpa(%s, %s, %s, %s)", a->q.x, a->k.x, a->v.x, more);
}

/* ---- the nodes ---- */

/* Reads operands and attributes: q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen. k and v include the past
   when it returns. */
static bool read_attention(struct importer *im, struct attention *a)
{
	const struct operand *past = operand_at(im, 4);
	double cap = attribute_float(im, "softcap", 0);
	const struct onnx_attribute *scale = attribute_of(im, "scale");
	struct operand *lengths = operand_at(im, 6);
	(void)attribute_of(im, "softmax_precision"); /* f32 in any case */
	if (!read_heads(im, 0, "q_num_heads", &a->q) || !read_heads(im, 1, "kv_num_heads", &a->k) ||
	    !read_heads(im, 2, "kv_num_heads", &a->v))
		return false;
	a->past = past != NULL && past->rank == 4 && !ir_dim_equals(past->dims[2], 0) ? past->dims[2] : NULL;
	a->is_causal = attribute_int(im, "is_causal", 0) != 0;
	a->cap = cap != 0 ? float_text(im, cap) : "";
	a->scale = scale != NULL && scale->f != 0
	                   ? float_text(im, scale->f)
	                   : import_text(im, "(1 / sqrt(%s))", dim_text(im, a->q.dims[3]));
	a->lengths = "";
	if (lengths != NULL)
		a->lengths = import_statement(im, "lengths", "cast(%s, i32)", operand_tensor(im, lengths));
	return join_past(im, &a->k, 4, 1) && join_past(im, &a->v, 5, 2) && read_mask(im, a);
}

/* sdpa adds a bias before its softcap, and has no scores as a result: those two are written step by step. A result of
   three axes is [B, S, heads E], as the queries. */
bool import_attention(struct importer *im)
{
	struct attention a = {0};
	if (!read_attention(im, &a))
		return false;
	(void)attribute_of(im, "qk_matmul_output_mode");
	bool by_steps = (a.cap[0] != '\0' && a.bias[0] != '\0') || import_is_read(im, 3);
	if (by_steps && a.lengths[0] != '\0')
		return import_refuse(im, "not supported: Attention with the scores of padded keys");
	const char *y = by_steps ? write_scores(im, &a) : write_sdpa(im, &a);
	const struct ir_dim *flat[] = {a.q.dims[0], a.q.dims[2],
	                               ir_dim_mul(im->dims, a.q.dims[1], a.v.dims[3])};
	if (operand_needed(im, 0)->rank == 3)
		y = import_text(im, "reshape(transpose(%s, [0, 2, 1, 3]), %s)",
		                import_statement(im, "heads", "%s", y), dims_text(im, 3, flat));
	return import_output(im, 0, "%s", y);
}

/* The cosines or sines of operand i as [.., n] that broadcasts to x with four axes: tables [positions, n] are looked
   up at operand 3, without it they are [B, S, n] already. heads_first: x is [B, H, S, E], else [B, S, H, E]. */
static const char *angles_text(struct importer *im, size_t i, bool heads_first, const struct ir_dim *n)
{
	struct operand *at = operand_at(im, 3);
	const char *table = tensor_at(im, i);
	if (at != NULL) {
		const char *ids = operand_tensor(im, at);
		table = import_statement(im, "angles", "gather(%s, cast(%s, i32))", table, ids);
	}
	const struct ir_type *t = import_type(im, table);
	if (t == NULL || t->rank != 3 || t->dims[2] != n) {
		import_refuse(im, "RotaryEmbedding: tables of another shape");
		return "";
	}
	const struct ir_dim *one = ir_dim_const(im->dims, 1);
	const struct ir_dim *dims[] = {t->dims[0], heads_first ? one : t->dims[1],
	                               heads_first ? t->dims[1] : one, n};
	return import_statement(im, "angles", "reshape(%s, %s)", table, dims_text(im, 4, dims));
}

/* Part i (0, 1) of the pairs of x: halves of its last axis, or every other element of it. */
static const char *part_text(struct importer *im, const char *x, int64_t n, int i, bool interleaved)
{
	const char *part = interleaved ? import_text(im, "slice(%s, axis=-1, begin=%d, end=%lld, step=2)", x,
	                                             i, (long long)(2 * n))
	                               : import_text(im, "slice(%s, axis=-1, begin=%lld, end=%lld)", x,
	                                             (long long)(i * n), (long long)((i + 1) * n));
	return import_statement(im, "part", "%s", part);
}

const char *import_rotary_table(struct importer *im, size_t cosines, size_t sines)
{
	const struct operand *c = operand_at(im, cosines), *s = operand_at(im, sines);
	bool fits = c != NULL && s != NULL && operand_is_parameter(c) && operand_is_parameter(s) &&
	            c->rank == 2 && s->rank == 2 && c->dims[0] == s->dims[0] && c->dims[1] == s->dims[1];
	return fits ? import_joined(im, c, s) : NULL;
}

const char *import_rope(struct importer *im, const char *x, const char *at, const char *table,
                        bool interleaved)
{
	return import_text(im, "rope(%s, %s, layout=%s, table=%s)", x, at,
	                   interleaved ? "interleaved" : "halves", table);
}

/* The rotation as one `rope`, by stored tables. RotaryEmbedding of ONNX Runtime has the positions before the tables:
   [B, S], or the first one. dims: those of x with four axes. True: this node has been imported so, or refused; false:
   the standard operator without such tables, which is written out. */
static bool rotary_by_table(struct importer *im, struct operand *v, const struct ir_dim *const dims[4],
                            bool interleaved)
{
	bool is_standard = im->node->domain[0] == '\0' || strcmp(im->node->domain, "ai.onnx") == 0,
	     is_flat = v->rank == 3;
	struct operand *at = operand_at(im, is_standard ? 3 : 1);
	const char *table =
	        at != NULL ? import_rotary_table(im, is_standard ? 1 : 2, is_standard ? 2 : 3) : NULL;
	const struct ir_dim *n = is_flat ? dims[1] : dims[2];
	if (table == NULL || at->rank < 1 || at->rank > 2 ||
	    (at->rank == 1 && !ir_dim_equals(at->dims[0], 1)) ||
	    (at->rank == 2 && (at->dims[0] != dims[0] || at->dims[1] != n)))
		return !is_standard && !import_refuse(im, "not supported: RotaryEmbedding with these tables");
	const char *ids =
	        at->ids != NULL ? at->ids->name : import_text(im, "cast(%s, i32)", operand_tensor(im, at));
	if (at->rank == 1)
		ids = import_text(im, "iota([%s]) + %s", dim_text(im, n), ids);
	const char *x = operand_tensor(im, v), *flat = dims_text(im, 3, v->dims);
	if (!is_flat)
		return import_output(im, 0, "%s", import_rope(im, x, ids, table, interleaved)) || im->failed;
	x = import_text(im, "transpose(reshape(%s, %s), [0, 2, 1, 3])", x, dims_text(im, 4, dims));
	x = import_statement(im, "heads", "%s", x);
	x = import_statement(im, "rotated", "%s", import_rope(im, x, ids, table, interleaved));
	return import_output(im, 0, "reshape(transpose(%s, [0, 2, 1, 3]), %s)", x, flat) || im->failed;
}

/* (a, b) becomes (a cos - b sin, a sin + b cos) in the first `rotary_embedding_dim` features (0: all), by `rope`
   where tables are stored, else written out. Rows of three axes are split into heads and merged again; ONNX Runtime may
   leave out their number, and then rotates whole heads, of twice the columns of the tables. */
bool import_rotary(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	bool interleaved = attribute_int(im, "interleaved", 0) != 0, is_flat = v->rank == 3;
	int64_t heads = attribute_int(im, "num_heads", 0), width;
	const struct operand *stored = operand_at(im, 2);
	if (heads == 0 && im->node->domain[0] != '\0' && is_flat && stored != NULL && stored->rank == 2 &&
	    !ir_dim_equals(stored->dims[1], 0))
		heads = operand_size(im, v, 2) /
		        (2 * operand_size(im, stored, 1)); /* whole heads are rotated */
	if (attribute_float(im, "scale", 1) != 1 || attribute_int(im, "is_packed_batching", 0) != 0)
		return import_refuse(im,
		                     "not supported: RotaryEmbedding that scales, or of packed sequences");
	const struct ir_dim *dims[4] = {0}, *each = head_size(im, v, heads);
	const char *x = operand_tensor(im, v);
	if (im->failed || (v->rank != 4 && each == NULL))
		return import_refuse(im, "RotaryEmbedding of %d axes in %lld heads", v->rank,
		                     (long long)heads);
	memcpy(dims, v->dims, sizeof(dims));
	if (is_flat) {
		dims[2] = ir_dim_const(im->dims, heads);
		dims[3] = each;
	}
	(void)attribute_of(im, "rotary_embedding_dim");
	if (rotary_by_table(im, v, dims, interleaved))
		return !im->failed;
	if (is_flat) {
		x = import_statement(im, "heads", "reshape(%s, %s)", x, dims_text(im, 4, dims));
	}
	if (!ir_dim_is_const(dims[3], &width))
		return import_refuse(im, "not supported: RotaryEmbedding of %s features",
		                     dim_text(im, dims[3]));
	int64_t rotated = attribute_int(im, "rotary_embedding_dim", 0);
	rotated = rotated == 0 ? width : rotated;
	if (rotated < 2 || rotated > width || rotated % 2 != 0)
		return import_refuse(im, "RotaryEmbedding of %lld of %lld features", (long long)rotated,
		                     (long long)width);
	const struct ir_dim *half = ir_dim_const(im->dims, rotated / 2);
	const char *cosines = angles_text(im, 1, !is_flat, half), *sines = angles_text(im, 2, !is_flat, half);
	const char *a = part_text(im, x, rotated / 2, 0, interleaved),
	           *b = part_text(im, x, rotated / 2, 1, interleaved);
	const char *first = import_text(im, "%s * %s - %s * %s", a, cosines, b, sines),
	           *second = import_text(im, "%s * %s + %s * %s", a, sines, b, cosines), *y;
	if (interleaved) {
		const struct ir_dim *pair[] = {dims[0], dims[1], dims[2], half, ir_dim_const(im->dims, 1)},
		                    *flat[] = {dims[0], dims[1], dims[2], ir_dim_const(im->dims, rotated)};
		const char *column = dims_text(im, 5, pair);
		y = import_text(im, "reshape(concat([reshape(%s, %s), reshape(%s, %s)], axis=-1), %s)", first,
		                column, second, column, dims_text(im, 4, flat));
	} else
		y = import_text(im, "concat([%s, %s], axis=-1)", first, second);
	if (rotated < width)
		y = import_text(im, "concat([%s, slice(%s, axis=-1, begin=%lld, end=%lld)], axis=-1)", y, x,
		                (long long)rotated, (long long)width);
	return import_output(im, 0, "%s",
	                     is_flat ? import_text(im, "reshape(%s, %s)", y, dims_text(im, 3, v->dims)) : y);
}
