/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention that exporters write out: at the product of probabilities and values the nodes before it are followed back
 * to the product of queries and keys. The statement sdpa reads none of the values between, whose statements are left
 * out unless another node reads them.
 *
 *   y = MatMul(Softmax(MatMul(q * a, Transpose(k) * b) * c + mask), v)   ->   sdpa(q, k, v, scale=a b c, bias=mask)
 *
 * A mask that is a predicate (visible.c) becomes causal=true; keys and values that are repeated for groups of
 * queries are read as they were before; with a past, those of this call are read, and the cache keeps them.
 * Values are strings here, the names of the file: `makers` finds the node that made one, `values` its operand.
 */
#include "frontend/onnx/import.h"

#include <math.h>
#include <string.h>

/* Names of the file. */
struct attention {
	const char *q, *transposed, *v; /* transposed: the keys as [B, H, E, T]; of FusedMatMul as they are */
	bool is_fused;
	const char *product; /* q times k */
	const char *mask;    /* added to the scores; NULL: none */
	double scale;
};

/* The node that makes a value, if it is one of this operator. */
static const struct onnx_node *maker(const struct importer *im, const char *name, const char *op)
{
	const struct onnx_node *node = strmap_get(&im->makers, name);
	bool is_op = node != NULL && strcmp(node->op, op) == 0 && node->domain[0] == '\0';
	return is_op && node->inputs.n > 0 ? node : NULL;
}

static const struct operand *value_of(const struct importer *im, const char *name)
{
	return strmap_get(&im->values, name);
}

/* A float that is known at import. */
static bool is_factor(const struct importer *im, const char *name, double *out)
{
	const struct operand *v = value_of(im, name);
	if (v == NULL || v->known == NULL || v->n != 1 || v->known[0].dim != NULL)
		return false;
	*out = v->known[0].f;
	return true;
}

/* The value before multiplications by a known factor, which *scale is multiplied by. */
static const char *unscaled(const struct importer *im, const char *name, double *scale)
{
	for (;;) {
		const struct onnx_node *node = strmap_get(&im->makers, name);
		const char *const *in = node != NULL ? node->inputs.items : NULL;
		double f = 1;
		if (node == NULL || node->inputs.n == 0)
			return name;
		if (maker(im, name, "Mul") && is_factor(im, in[1], &f))
			name = in[0];
		else if (maker(im, name, "Mul") && is_factor(im, in[0], &f))
			name = in[1];
		else if (maker(im, name, "Div") && is_factor(im, in[1], &f)) {
			name = in[0];
			f = 1 / f;
		} else
			return name;
		*scale *= f;
	}
}

/* The keys or values [B, K, T, E] that Unsqueeze, Expand and Reshape have repeated to H heads for groups of queries:
   sdpa reads them unrepeated. `name` itself if they are not. */
static const char *unrepeated(const struct importer *im, const char *name)
{
	const struct onnx_node *flat = maker(im, name, "Reshape"),
	                       *wide = flat != NULL ? maker(im, flat->inputs.items[0], "Expand") : NULL,
	                       *one = wide != NULL ? maker(im, wide->inputs.items[0], "Unsqueeze") : NULL;
	if (one == NULL)
		return name;
	const struct operand *x = value_of(im, one->inputs.items[0]),
	                     *y = value_of(im, one->outputs.items[0]),
	                     *z = value_of(im, wide->outputs.items[0]), *all = value_of(im, name);
	if (x == NULL || y == NULL || z == NULL || x->rank != 4 || y->rank != 5 || z->rank != 5 ||
	    all->rank != 4 || !ir_dim_equals(y->dims[2], 1))
		return name;
	bool same = true;
	for (int i = 0; i < 4; i++)
		same = same && x->dims[i] == y->dims[i < 2 ? i : i + 1] &&
		       x->dims[i] == z->dims[i < 2 ? i : i + 1] && (i == 1 || x->dims[i] == all->dims[i]);
	return same ? one->inputs.items[0] : name;
}

/* The node of the product of q and k that makes `name`: MatMul, or FusedMatMul of ONNX Runtime, which has a factor
   and transposes the keys itself. NULL: it is none. */
static const struct onnx_node *find_product(const struct importer *im, const char *name)
{
	const struct onnx_node *node = strmap_get(&im->makers, name);
	bool is_fused = node != NULL && strcmp(node->op, "FusedMatMul") == 0 && node->inputs.n == 2;
	const struct onnx_attribute *b = is_fused ? onnx_attribute(node, "transB") : NULL,
	                            *a = is_fused ? onnx_attribute(node, "transA") : NULL;
	if (is_fused)
		return b != NULL && b->i == 1 && (a == NULL || a->i == 0) ? node : NULL;
	node = maker(im, name, "MatMul");
	return node != NULL && node->inputs.n == 2 ? node : NULL;
}

/* Follows the scores back to q, k, their scale and the mask that is added; false: they are no scores of attention.
   The operand of the Add that comes from the product are the scores, the other one is the mask. */
static bool read_scores(const struct importer *im, const char *name, struct attention *at)
{
	const struct onnx_node *add = maker(im, name, "Add");
	for (size_t i = 0; add != NULL && at->mask == NULL && i < 2 && add->inputs.n == 2; i++) {
		double factor = 1;
		if (find_product(im, unscaled(im, add->inputs.items[i], &factor)) == NULL)
			continue;
		at->mask = add->inputs.items[1 - i];
		name = add->inputs.items[i];
	}
	at->scale = 1;
	at->product = unscaled(im, name, &at->scale);
	const struct onnx_node *product = find_product(im, at->product);
	if (product == NULL)
		return false;
	const struct onnx_attribute *alpha = onnx_attribute(product, "alpha");
	at->is_fused = strcmp(product->op, "FusedMatMul") == 0;
	at->scale *= at->is_fused && alpha != NULL ? alpha->f : 1;
	at->q = unscaled(im, product->inputs.items[0], &at->scale);
	at->transposed = unscaled(im, product->inputs.items[1], &at->scale);
	return true;
}

/* The softmax is along the keys, the last of four axes; before opset 13 the default axis was another. */
static bool is_last_axis(const struct importer *im, const struct onnx_node *softmax)
{
	const struct onnx_attribute *axis = onnx_attribute(softmax, "axis");
	return axis != NULL ? axis->i == -1 || axis->i == 3 : im->onnx->opset >= 13;
}

/* Keys or values before they are repeated, without factors; with `past` (not NULL) those of this call, and in *past
   the cache that they are appended to. */
static const char *read_heads(const struct importer *im, const char *name, const char **past, double *scale)
{
	name = unscaled(im, unrepeated(im, unscaled(im, name, scale)), scale);
	return import_past(im, name, past);
}

/* The keys [B, K, T, E] in statements, and the past that they come after (NULL: none). The file has them transposed,
   [B, H, E, T]; a Transpose of the last two axes is passed over, any other is undone. */
static const char *keys_text(struct importer *im, struct attention *at, const char **past)
{
	if (at->is_fused)
		return operand_tensor(
		        im, strmap_get(&im->values, read_heads(im, at->transposed, past, &at->scale)));
	const struct onnx_node *node = maker(im, at->transposed, "Transpose");
	const struct onnx_attribute *perm = node != NULL ? onnx_attribute(node, "perm") : NULL;
	if (perm == NULL || perm->ints.n != 4)
		return import_text(im, "transpose(%s, [0, 1, 3, 2])",
		                   operand_tensor(im, strmap_get(&im->values, at->transposed)));
	const int64_t *p = perm->ints.items, back[] = {p[0], p[1], p[3], p[2]};
	if (p[0] == 0 && p[1] == 1 && p[2] == 3)
		return operand_tensor(
		        im, strmap_get(&im->values, read_heads(im, node->inputs.items[0], past, &at->scale)));
	return import_text(im, "transpose(%s, %s)",
	                   operand_tensor(im, strmap_get(&im->values, node->inputs.items[0])),
	                   ints_text(im, back, 4));
}

/* Whether the value can be a bias or mask of the scores [B, H, S, T]. */
static bool fits_scores(const struct operand *mask, const struct operand *scores)
{
	bool fits = (mask->dtype == DT_F32 || mask->dtype == DT_BOOL) && mask->rank <= 4;
	for (int i = 0; fits && i < mask->rank; i++)
		fits = ir_dim_equals(mask->dims[i], 1) || mask->dims[i] == scores->dims[i + 4 - mask->rank];
	return fits;
}

/* [B, H, n, E] of floats with a constant number of heads and size, as sdpa requires. */
static bool is_heads(const struct operand *v)
{
	return v != NULL && v->rank == 4 && v->dtype == DT_F32 && ir_dim_is_const(v->dims[1], NULL) &&
	       ir_dim_is_const(v->dims[3], NULL);
}

/* The Softmax of the probabilities. Exporters write 0 where it is NaN, in rows without a visible key, as sdpa does. */
static const struct onnx_node *find_softmax(const struct importer *im, const char *p)
{
	double factor = 1, zero;
	p = unscaled(im, p, &factor);
	const struct onnx_node *where = maker(im, p, "Where"),
	                       *nan = where != NULL ? maker(im, where->inputs.items[0], "IsNaN") : NULL;
	if (nan != NULL && is_factor(im, where->inputs.items[1], &zero) && zero == 0 &&
	    value_of(im, nan->inputs.items[0]) == value_of(im, where->inputs.items[2]))
		p = unscaled(im, where->inputs.items[2], &factor);
	return factor == 1 ? maker(im, p, "Softmax") : NULL;
}

/* The bool that holds where a mask adds 0 and not -inf; NULL: it is no predicate. */
static struct operand *find_predicate(const struct importer *im, const char *mask)
{
	const struct onnx_node *where = maker(im, mask, "Where");
	double yes, no;
	bool is_predicate = where != NULL && is_factor(im, where->inputs.items[1], &yes) && yes == 0 &&
	                    is_factor(im, where->inputs.items[2], &no) && no == -HUGE_VAL;
	return is_predicate ? strmap_get(&im->values, where->inputs.items[0]) : NULL;
}

/* A bool under a Where of 0 and -inf replaces the mask, and is asked for causality (visible.c). Keys and values are
   read before their past only in causal attention: only then the cache may keep them. */
bool import_sdpa(struct importer *im)
{
	struct attention at = {0};
	double factor = 1;
	const char *past[2] = {NULL, NULL};
	const struct onnx_node *softmax = find_softmax(im, im->node->inputs.items[0]);
	if (softmax == NULL || !is_last_axis(im, softmax) || !read_scores(im, softmax->inputs.items[0], &at))
		return false;
	const struct operand *q = value_of(im, at.q), *v = value_of(im, im->node->inputs.items[1]),
	                     *scores = value_of(im, at.product), *transposed = value_of(im, at.transposed);
	struct operand *mask = at.mask != NULL ? strmap_get(&im->values, at.mask) : NULL;
	if (!is_heads(q) || !is_heads(v) || transposed == NULL || transposed->rank != 4 ||
	    scores->rank != 4 || transposed->dims[1] != q->dims[1] || v->dims[1] != q->dims[1] ||
	    v->dims[3] != q->dims[3])
		return false;
	struct operand *predicate = mask != NULL ? find_predicate(im, at.mask) : NULL;
	mask = predicate != NULL ? predicate : mask;
	if (mask != NULL)
		(void)operand_tensor(im, mask);
	enum visibility sees = mask != NULL ? import_visibility(im, mask, scores) : VISIBLE_ALL;
	bool is_causal = sees == VISIBLE_CAUSAL && (im->past.is_state || scores->dims[2] == scores->dims[3]);
	bool is_masked = mask != NULL && !is_causal && sees != VISIBLE_ALL;
	if (is_masked && !fits_scores(mask, scores))
		return false;
	const char *keys = keys_text(im, &at, is_causal ? &past[0] : NULL);
	const char *values = read_heads(im, im->node->inputs.items[1], is_causal ? &past[1] : NULL, &factor);
	if (factor != 1 || (past[0] == NULL) != (past[1] == NULL))
		return false;
	const char *mode =
	        past[0] != NULL ? import_text(im, ", causal=true, cache=\"kv.%zu\"", im->past.n_caches++)
	        : is_causal     ? ", causal=true"
	        : !is_masked
	                ? ""
	                : import_text(im, ", %s=%s", mask->dtype == DT_BOOL ? "mask" : "bias", mask->name);
	const char *queries = operand_tensor(im, strmap_get(&im->values, at.q));
	return import_output(im, 0, "sdpa(%s, %s, %s, scale=%s%s)", queries, keys,
	                     operand_tensor(im, strmap_get(&im->values, values)), float_text(im, at.scale),
	                     mode);
}
