/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resize and Upsample. Interpolation is separable: each axis becomes a sum over the taps of the kernel, of elements
 * gathered at ids of the tap times its weights; both are known at import. Nearest neighbours by a whole factor are
 * repeated elements, of any size.
 *
 * Kernels: the triangle, and the cubic convolution of Keys 1981 (with its a); with antialias both are as much wider as
 * the axis shrinks, and divided by their sum.
 * scale is the size of the result over that of the input, as the file gives it, not as rounding makes it. struct
 * picture is the tensor between axes: its text and dims. Refusals are sticky (im->failed).
 */
#include "frontend/onnx/import.h"

#include <math.h>
#include <string.h>

#define RESIZED_MAX 8192 /* elements of an axis */
#define TAPS_MAX    64

enum resize_mode { NEAREST, LINEAR, CUBIC };

struct resize {
	enum resize_mode mode;
	const char *coordinates, *nearest;
	double a; /* of the cubic kernel */
	bool antialias, excludes;
};

/* An axis of `in` elements becomes one of `out`. */
struct resized_axis {
	int64_t in, out;
	double scale;
};

/* ---- positions and weights ---- */

/* The position in the input, in elements, of element i of the result, by coordinate_transformation_mode; formulas are
   those of the operator's specification. */
static double source_of(const struct resize *r, const struct resized_axis *s, int64_t i)
{
	double at = (double)i, in = (double)s->in, wide = s->scale * in;
	double half = (at + 0.5) / s->scale - 0.5;
	if (strcmp(r->coordinates, "align_corners") == 0)
		return wide == 1 ? 0 : at * (in - 1) / (wide - 1);
	if (strcmp(r->coordinates, "asymmetric") == 0)
		return at / s->scale;
	if (strcmp(r->coordinates, "pytorch_half_pixel") == 0)
		return s->out > 1 ? half : 0;
	if (strcmp(r->coordinates, "half_pixel_symmetric") == 0)
		return half + in / 2 * (1 - (double)s->out / wide);
	return half;
}

/* The element that stands for position x, by nearest_mode; it may be outside of the axis. */
static int64_t nearest_of(const struct resize *r, double x)
{
	double at = strcmp(r->nearest, "floor") == 0               ? floor(x)
	            : strcmp(r->nearest, "ceil") == 0              ? ceil(x)
	            : strcmp(r->nearest, "round_prefer_ceil") == 0 ? floor(x + 0.5)
	                                                           : ceil(x - 0.5);
	return (int64_t)at;
}

/* The weight of an element at the distance x: a triangle, or Keys' cubic polynomials with a. */
static double kernel_at(const struct resize *r, double x)
{
	double a = r->a;
	x = fabs(x);
	if (r->mode == LINEAR)
		return x < 1 ? 1 - x : 0;
	if (x <= 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* The weights of the n taps around x, the first of which is the element *first, which may be outside. stretch < 1
   makes the kernel larger (antialias). exclude_outside gives taps outside no weight; then, or with antialias, weights
   are divided by their sum. */
static void read_taps(const struct resize *r, const struct resized_axis *s, double x, double stretch, int n,
                      int64_t *first, double *weights)
{
	double below = ceil(x) - 1, sum = 0; /* the element on the left: below x where x is one */
	*first = (int64_t)below - n / 2 + 1;
	for (int t = 0; t < n; t++) {
		int64_t at = *first + t;
		weights[t] = kernel_at(r, ((double)at - x) * stretch);
		if (r->excludes && (at < 0 || at >= s->in))
			weights[t] = 0;
		sum += weights[t];
	}
	for (int t = 0; t < n && (r->antialias || r->excludes) && sum != 0; t++)
		weights[t] /= sum;
}

static int64_t clamped(int64_t i, int64_t n)
{
	return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* ---- an axis ---- */

/* A tensor as it is between the axes. */
struct picture {
	const char *x;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
};

/* Known elements as a tensor of one axis in statements: makes an operand of them, which operand.c writes out. */
static const char *list_of(struct importer *im, enum ir_dtype dtype, const struct element *known, int64_t n)
{
	struct operand *v = ARENA_NEW(im->a, struct operand);
	*v = (struct operand){.known = known, .n = (size_t)n, .dtype = dtype, .rank = 1};
	v->dims[0] = ir_dim_const(im->dims, n);
	return operand_tensor(im, v);
}

/* Each element of an axis `by` times in a row. */
static void repeat_axis(struct importer *im, struct picture *p, int axis, int64_t by)
{
	p->x = import_repeated(im, p->x, p->rank, p->dims, axis, ir_dim_const(im->dims, by), false);
}

/* True: nearest neighbours of the axis are each element out / in times, in order. */
static bool is_repeated(const struct resize *r, const struct resized_axis *s)
{
	bool same = r->mode == NEAREST && s->out % s->in == 0;
	for (int64_t i = 0; same && i < s->out; i++)
		same = clamped(nearest_of(r, source_of(r, s, i)), s->in) == i / (s->out / s->in);
	return same;
}

/* The axis by nearest neighbours: each element of the result is one of the input. */
static void gather_nearest(struct importer *im, const struct resize *r, const struct resized_axis *s,
                           struct picture *p, int axis)
{
	struct element *ids = ARENA_ARRAY(im->a, struct element, s->out);
	for (int64_t i = 0; ids != NULL && i < s->out; i++)
		ids[i].dim = ir_dim_const(im->dims, clamped(nearest_of(r, source_of(r, s, i)), s->in));
	if (ids != NULL)
		p->x = import_text(im, "gather(%s, %s, axis=%d)", p->x, list_of(im, DT_I32, ids, s->out),
		                   axis);
}

/* The axis as a sum over taps: elements at the ids of a tap times its weights, both of s->out elements. Ids outside
   are clamped: the border's element stands for what is outside. Each sum is a statement, as texts of statements are
   limited. */
static void add_taps(struct importer *im, const struct resize *r, const struct resized_axis *s,
                     struct picture *p, int axis)
{
	double stretch = r->antialias && s->scale < 1 ? s->scale : 1, weights[TAPS_MAX];
	double reach = ceil((r->mode == LINEAR ? 1 : 2) / stretch);
	int n = reach > TAPS_MAX / 2 ? 0 : 2 * (int)reach;
	struct element *ids = ARENA_ARRAY(im->a, struct element, n * s->out + 1),
	               *factors = ARENA_ARRAY(im->a, struct element, n * s->out + 1);
	const struct ir_dim *column[IR_RANK_MAX];
	const char *x = import_statement(im, "rows", "%s", p->x), *sum = "";
	if (n == 0 || ids == NULL || factors == NULL) {
		import_refuse(im, "not supported: %s by the factor %g", im->node->op, s->scale);
		return;
	}
	for (int64_t i = 0; i < s->out; i++) {
		int64_t first;
		read_taps(r, s, source_of(r, s, i), stretch, n, &first, weights);
		for (int t = 0; t < n; t++) {
			ids[t * s->out + i].dim = ir_dim_const(im->dims, clamped(first + t, s->in));
			factors[t * s->out + i].f = (float)weights[t];
		}
	}
	for (int i = 0; i < p->rank; i++)
		column[i] = ir_dim_const(im->dims, i == axis ? s->out : 1);
	for (int t = 0; t < n && !im->failed; t++) {
		const char *at = list_of(im, DT_I32, ids + t * s->out, s->out),
		           *factor = list_of(im, DT_F32, factors + t * s->out, s->out);
		const char *tap = import_text(im, "gather(%s, %s, axis=%d) * reshape(%s, %s)", x, at, axis,
		                              factor, dims_text(im, p->rank, column));
		sum = t == 0 ? tap : import_text(im, "%s + %s", import_statement(im, "taps", "%s", sum), tap);
	}
	p->x = sum;
}

/* Resizes one axis; false: refused. An axis of a size that varies can only repeat its elements: whether the factor
   and the coordinates do that shows on eight elements as on any number. */
static bool resize_axis(struct importer *im, const struct resize *r, struct picture *p, int axis,
                        const struct ir_dim *out, double scale)
{
	struct resized_axis s = {.scale = scale};
	const struct ir_dim *factor = ir_dim_divide(im->dims, out, p->dims[axis]);
	int64_t by;
	if (!ir_dim_is_const(p->dims[axis], &s.in) || !ir_dim_is_const(out, &s.out)) {
		const struct resized_axis like = {8, 8 * (int64_t)scale, scale};
		if (factor == NULL || !ir_dim_is_const(factor, &by) || by < 1 || by > RESIZED_MAX ||
		    scale != (double)by || strcmp(r->coordinates, "align_corners") == 0 ||
		    !is_repeated(r, &like))
			return import_refuse(im, "not supported: %s of an axis of the size %s to %s",
			                     im->node->op, dim_text(im, p->dims[axis]), dim_text(im, out));
		repeat_axis(im, p, axis, by);
		return !im->failed;
	}
	if (s.in < 1 || s.out < 1 || s.out > RESIZED_MAX || s.in > INT32_MAX)
		return import_refuse(im, "not supported: %s of an axis of the size %lld to %lld",
		                     im->node->op, (long long)s.in, (long long)s.out);
	if (is_repeated(r, &s)) {
		repeat_axis(im, p, axis, s.out / s.in);
		return !im->failed;
	}
	if (r->mode == NEAREST)
		gather_nearest(im, r, &s, p, axis);
	else
		add_taps(im, r, &s, p, axis);
	p->dims[axis] = out;
	return !im->failed;
}

/* ---- the node ---- */

/* Reads the attributes of the node, whose defaults were others before opset 11; false: refused. */
static bool read_resize(struct importer *im, struct resize *r)
{
	static const char coordinates[] =
	        "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric";
	static const char nearest[] = "round_prefer_floor round_prefer_ceil floor ceil";
	bool is_old = strcmp(im->node->op, "Upsample") == 0 || (im->onnx->opset > 0 && im->onnx->opset < 11);
	const char *mode = attribute_text(im, "mode", "nearest");
	r->coordinates =
	        attribute_text(im, "coordinate_transformation_mode", is_old ? "asymmetric" : "half_pixel");
	r->nearest = attribute_text(im, "nearest_mode", is_old ? "floor" : "round_prefer_floor");
	r->a = attribute_float(im, "cubic_coeff_a", -0.75);
	r->antialias = attribute_int(im, "antialias", 0) != 0;
	r->excludes = attribute_int(im, "exclude_outside", 0) != 0;
	(void)attribute_of(im, "extrapolation_value"); /* of tf_crop_and_resize alone */
	r->mode = strcmp(mode, "linear") == 0 ? LINEAR : strcmp(mode, "cubic") == 0 ? CUBIC : NEAREST;
	if ((r->mode == NEAREST && strcmp(mode, "nearest") != 0) ||
	    !list_has_word(coordinates, r->coordinates, strlen(r->coordinates)) ||
	    !list_has_word(nearest, r->nearest, strlen(r->nearest)))
		return import_refuse(im, "not supported: %s in the mode '%.40s', '%.40s', '%.40s'",
		                     im->node->op, mode, r->coordinates, r->nearest);
	if (r->mode != NEAREST && operand_needed(im, 0)->dtype != DT_F32)
		return import_refuse(im, "not supported: %s of ints between elements", im->node->op);
	return true;
}

/* keep_aspect_ratio_policy: all axes by the least (not_larger), or the largest (not_smaller), of the factors; writes
   the new sizes and factors. "stretch" leaves both. False: refused. */
static bool keep_proportions(struct importer *im, const struct operand *v, const int *axes, size_t n,
                             const struct ir_dim **out, double *scales)
{
	const char *policy = attribute_text(im, "keep_aspect_ratio_policy", "stretch");
	bool not_larger = strcmp(policy, "not_larger") == 0;
	if (strcmp(policy, "stretch") == 0 || n == 0)
		return true;
	double factor = scales[0];
	for (size_t i = 1; i < n; i++)
		factor = not_larger ? fmin(factor, scales[i]) : fmax(factor, scales[i]);
	for (size_t i = 0; i < n; i++) {
		scales[i] = factor;
		out[i] = ir_dim_const(im->dims,
		                      (int64_t)floor(factor * (double)operand_size(im, v, axes[i]) + 0.5));
	}
	return not_larger || strcmp(policy, "not_smaller") == 0 ||
	       import_refuse(im, "not supported: Resize with the policy '%.40s'", policy);
}

/* The sizes and factors of `axes`, by the operand `sizes`. A factor is size over old size, or their quotient as dims;
   0: it varies, which resize_axis() refuses. */
static bool read_sizes(struct importer *im, const struct operand *v, const int *axes, size_t n,
                       const struct ir_dim **out, double *scales)
{
	const struct ir_dim *const *sizes;
	size_t given;
	int64_t in, size;
	if (!list_dims(im, "sizes", 3, &sizes, &given) || given != n)
		return import_refuse(im, "%s of %zu axes has neither scales nor sizes for them", im->node->op,
		                     n);
	for (size_t i = 0; i < n; i++) {
		const struct ir_dim *old = v->dims[axes[i]], *factor;
		out[i] = sizes[i];
		factor = ir_dim_divide(im->dims, sizes[i], old);
		scales[i] = ir_dim_is_const(sizes[i], &size) && ir_dim_is_const(old, &in) && in > 0
		                    ? (double)size / (double)in
		            : factor != NULL && ir_dim_is_const(factor, &size) ? (double)size
		                                                               : 0;
	}
	return keep_proportions(im, v, axes, n, out, scales);
}

/* The sizes and factors of `axes`, by factors: the attribute a of old operators, or an operand. A size that varies by
   a fraction stays as it is, which resize_axis() refuses. */
static bool read_scales(struct importer *im, const struct operand *v, const int *axes, size_t n,
                        const struct operand *factors, const struct onnx_attribute *a,
                        const struct ir_dim **out, double *scales)
{
	size_t given = a != NULL ? a->floats.n : factors->n;
	if (given != n || (a == NULL && factors->known == NULL))
		return import_refuse(im, "not supported: %s by factors that are not known, or too few",
		                     im->node->op);
	for (size_t i = 0; i < n; i++) {
		const struct ir_dim *in = v->dims[axes[i]];
		int64_t size;
		scales[i] = a != NULL ? a->floats.items[i] : factors->known[i].f;
		if (!(scales[i] > 0 && scales[i] <= RESIZED_MAX))
			return import_refuse(im, "%s by the factor %g", im->node->op, scales[i]);
		out[i] = ir_dim_is_const(in, &size)
		                 ? ir_dim_const(im->dims, (int64_t)floor(scales[i] * (double)size))
		         : scales[i] == floor(scales[i])
		                 ? ir_dim_mul(im->dims, in, ir_dim_const(im->dims, (int64_t)scales[i]))
		                 : in;
	}
	return true;
}

/* Resizes axis after axis, those that change. Operands: X, roi, scales, sizes; before opset 11 X, scales. */
bool import_resize(struct importer *im)
{
	struct operand *v = operand_needed(im, 0), *factors;
	const struct onnx_attribute *a = attribute_of(im, "scales");
	const struct ir_dim *out[IR_RANK_MAX];
	const int64_t *listed;
	double scales[IR_RANK_MAX];
	struct resize r;
	int axes[IR_RANK_MAX];
	size_t n;
	bool has_axes = list_ints(im, "axes", SIZE_MAX, &listed, &n);
	n = has_axes ? n : (size_t)v->rank;
	for (size_t i = 0; i < n && n <= IR_RANK_MAX; i++)
		axes[i] = has_axes ? axis_of(im, listed[i], v->rank) : (int)i;
	if (im->failed || n > IR_RANK_MAX || !read_resize(im, &r))
		return import_refuse(im, "%s of %zu axes", im->node->op, n);
	factors = operand_at(im, im->node->inputs.n == 2 ? 1 : 2);
	bool by_factor = a != NULL || (factors != NULL && factors->n > 0);
	if (!(by_factor ? read_scales(im, v, axes, n, factors, a, out, scales)
	                : read_sizes(im, v, axes, n, out, scales)))
		return false;
	struct picture p = {.x = operand_tensor(im, v), .rank = v->rank};
	memcpy(p.dims, v->dims, sizeof(p.dims));
	bool changed = false;
	for (size_t i = 0; i < n && !im->failed; i++) {
		if (out[i] == p.dims[axes[i]] && (!by_factor || scales[i] == 1))
			continue;
		changed = true;
		if (!resize_axis(im, &r, &p, axes[i], out[i], scales[i]))
			return false;
	}
	return changed ? import_output(im, 0, "%s", p.x) : import_alias(im, 0, v);
}
