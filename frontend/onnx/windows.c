/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of windows that move along the axes from 2 on: convolutions, transposed ones, pools. Tensors are [N, C,
   axes..]; the convolutions of the language are of channels last in one dimension and first in two. A border is the
   padding before or after an axis. frame(x, size, hop) of the language makes a new axis of windows. Refusals are sticky
   (im->failed): after one, helpers return "", 1 or an empty operand; operand_size() refuses a size that varies. */
#include "frontend/onnx/import.h"

#include <string.h>

#define WINDOW_AXES_MAX 3
#define WINDOW_MAX      4096 /* elements of the window of a transposed convolution */

/* Kernel, strides, dilations and borders of the axes from 2 on. */
struct window {
	size_t n;
	int64_t kernel[WINDOW_AXES_MAX], stride[WINDOW_AXES_MAX], dilation[WINDOW_AXES_MAX];
	int64_t pads[2 * WINDOW_AXES_MAX]; /* before, then after */
	int64_t extra
	        [WINDOW_AXES_MAX]; /* ceil_mode: read behind the border; count_include_pad does not count it */
};

/* An attribute with a number for each axis, `def` without it. False: refused. Numbers are below 2^31, so that sums and
   products of two of them do not overflow. */
static bool read_axes(struct importer *im, const char *name, size_t n, int64_t def, int64_t *out)
{
	const int64_t *list;
	size_t given = 0;
	bool has = list_ints(im, name, SIZE_MAX, &list, &given);
	if (has && given != n)
		return import_refuse(im, "%s of %s has %zu numbers", name, im->node->op, given);
	for (size_t i = 0; i < n; i++) {
		out[i] = has ? list[i] : def;
		if (out[i] < 0 || out[i] > INT32_MAX)
			return import_refuse(im, "%s of %s is %lld", name, im->node->op, (long long)out[i]);
	}
	return true;
}

/* auto_pad SAME_UPPER or SAME_LOWER: borders by which there are ceil(size / stride) windows; an odd element goes
   after, or (lower) before. */
static void pad_same(struct importer *im, const struct operand *v, struct window *w, bool lower)
{
	for (size_t i = 0; i < w->n && !im->failed; i++) {
		int64_t size = operand_size(im, v, (int)i + 2),
		        reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
		int64_t all = ((size + w->stride[i] - 1) / w->stride[i] - 1) * w->stride[i] + reach - size;
		all = all > 0 ? all : 0;
		w->pads[i] = lower ? all - all / 2 : all / 2;
		w->pads[w->n + i] = all - w->pads[i];
	}
}

/* Reads the attributes of a window; kernel: the sizes of the weight, NULL: an attribute has them. False: refused. */
static bool read_window(struct importer *im, const struct operand *v, const int64_t *kernel, struct window *w)
{
	const char *automatic = attribute_text(im, "auto_pad", "NOTSET");
	w->n = v->rank > 2 ? (size_t)v->rank - 2 : 0;
	if (w->n < 1 || w->n > WINDOW_AXES_MAX)
		return import_refuse(im, "not supported: %s of %d axes", im->node->op, v->rank);
	for (size_t i = 0; i < w->n && kernel != NULL; i++)
		w->kernel[i] = kernel[i];
	(void)attribute_of(im, "kernel_shape"); /* of a convolution it repeats the sizes of the weight */
	if ((kernel == NULL && !read_axes(im, "kernel_shape", w->n, 0, w->kernel)) ||
	    !read_axes(im, "strides", w->n, 1, w->stride) ||
	    !read_axes(im, "dilations", w->n, 1, w->dilation) || !read_axes(im, "pads", 2 * w->n, 0, w->pads))
		return false;
	for (size_t i = 0; i < w->n; i++)
		if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1)
			return import_refuse(im, "%s: kernel, strides and dilations are at least 1",
			                     im->node->op);
	if (strncmp(automatic, "SAME", 4) == 0)
		pad_same(im, v, w, strcmp(automatic, "SAME_LOWER") == 0);
	return !im->failed;
}

/* conv1d or conv2d of the language, whose padding is symmetric: other borders are padded first. conv1d has channels
   last. */
bool import_conv(struct importer *im)
{
	struct operand *v = operand_needed(im, 0), *weight = operand_needed(im, 1), *bias = operand_at(im, 2);
	struct window w = {0};
	int64_t kernel[WINDOW_AXES_MAX], symmetric[WINDOW_AXES_MAX] = {0};
	if (!operand_is_parameter(weight) || weight->rank != v->rank || v->rank > 4)
		return import_refuse(
		        im, "not supported: a convolution of %d axes, or whose weight is no initializer",
		        v->rank);
	for (int i = 2; i < v->rank; i++)
		kernel[i - 2] = operand_size(im, weight, i);
	int64_t out = operand_size(im, weight, 0);
	if (!read_window(im, v, kernel, &w))
		return false;
	if (bias != NULL && !operand_is_vector(bias, out))
		return import_refuse(im, "not supported: a convolution whose bias is no initializer");
	const char *x = operand_tensor(im, v), *path = import_layer(im, weight, "", bias);
	bool is_symmetric = memcmp(w.pads, w.pads + w.n, w.n * sizeof(*w.pads)) == 0;
	if (is_symmetric)
		memcpy(symmetric, w.pads, w.n * sizeof(*w.pads));
	else
		x = import_padded(im, x, 2, w.pads, w.n, "0.0");
	x = w.n == 1 ? import_text(im, "transpose(%s, [0, 2, 1])", x) : x;
	x = import_text(im,
	                "conv%zud(%s, %s, out=%lld, kernel=%s, stride=%s, padding=%s, dilation=%s, "
	                "groups=%lld, bias=%s)",
	                w.n, x, path, (long long)out, ints_text(im, w.kernel, w.n),
	                ints_text(im, w.stride, w.n), ints_text(im, symmetric, w.n),
	                ints_text(im, w.dilation, w.n), (long long)attribute_int(im, "group", 1),
	                bias != NULL ? "true" : "false");
	return import_output(im, 0, "%s", w.n == 1 ? import_text(im, "transpose(%s, [0, 2, 1])", x) : x);
}

/* ---- transposed convolutions ---- */

/* ConvTranspose: the size of the result along each axis, and where it begins in the sum of all windows. */
struct spread {
	const struct ir_dim *out[WINDOW_AXES_MAX];
	int64_t begin[WINDOW_AXES_MAX];
};

/* Where the result is in the sum of all windows. Missing borders follow from the size of the result: output_shape, or
   with SAME the input times the stride; SAME_UPPER has the smaller half before. False: refused. */
static bool read_spread(struct importer *im, const struct operand *v, const struct window *w,
                        struct spread *s)
{
	const char *automatic = attribute_text(im, "auto_pad", "NOTSET");
	int64_t more[WINDOW_AXES_MAX], wanted[WINDOW_AXES_MAX];
	bool is_same = strncmp(automatic, "SAME", 4) == 0,
	     has_shape = attribute_of(im, "output_shape") != NULL;
	if (!read_axes(im, "output_padding", w->n, 0, more) ||
	    !read_axes(im, "output_shape", w->n, 0, wanted))
		return false;
	for (size_t i = 0; i < w->n && !im->failed; i++) {
		struct ir_dims *t = im->dims;
		const struct ir_dim *in = v->dims[i + 2], *stride = ir_dim_const(t, w->stride[i]);
		const struct ir_dim *all =
		        ir_dim_add(t, ir_dim_mul(t, ir_dim_sub(t, in, ir_dim_const(t, 1)), stride),
		                   ir_dim_const(t, more[i] + (w->kernel[i] - 1) * w->dilation[i] + 1));
		int64_t borders = w->pads[i] + w->pads[w->n + i];
		s->out[i] = has_shape ? ir_dim_const(t, wanted[i])
		            : is_same ? ir_dim_mul(t, in, stride)
		                      : ir_dim_sub(t, all, ir_dim_const(t, borders));
		s->begin[i] = w->pads[i];
		if (has_shape || is_same) {
			if (!ir_dim_is_const(ir_dim_sub(t, all, s->out[i]), &borders))
				return import_refuse(im,
				                     "not supported: ConvTranspose from %s to %s elements",
				                     dim_text(im, all), dim_text(im, s->out[i]));
			borders = borders < 0 ? 0 : borders; /* what is missing follows */
			s->begin[i] =
			        strcmp(automatic, "SAME_UPPER") == 0 ? borders / 2 : borders - borders / 2;
		}
		if (ir_dim_lo(t, s->out[i]) < 1)
			return import_refuse(im, "ConvTranspose to %s elements", dim_text(im, s->out[i]));
	}
	return !im->failed;
}

/*
 * Every element times its window, as [B, M, D0, k0, D1, k1]: a linear of the channels, or where these are in groups, or
 * the weight is no parameter, a product for each group.
 */
static const char *window_products(struct importer *im, const struct operand *v, struct operand *weight,
                                   const struct window *w, int64_t groups)
{
	const struct ir_dim *dims[IR_RANK_MAX], *one = ir_dim_const(im->dims, 1), *places = one;
	const struct ir_dim *channels = v->dims[1], *each = weight->dims[1], *width = each;
	int n = (int)w->n, rank = 0;
	for (int i = 0; i < n; i++) {
		width = ir_dim_mul(im->dims, width, weight->dims[i + 2]);
		places = ir_dim_mul(im->dims, places, v->dims[i + 2]);
	}
	const char *x = tensor_at(im, 0);
	if (groups == 1 && operand_is_parameter(weight)) {
		const struct ir_dim *matrix[] = {channels, width};
		const char *steps = import_text(im, "reshape: %s, transpose: true", dims_text(im, 2, matrix));
		const char *path = import_layer(im, weight, steps, NULL);
		x = import_text(im, "linear(transpose(%s, %s), %s, out=%s, bias=false)", x,
		                n == 1 ? "[0, 2, 1]" : "[0, 2, 3, 1]", path, dim_text(im, width));
		dims[rank++] = v->dims[0];
	} else {
		const struct ir_dim *g = ir_dim_const(im->dims, groups),
		                    *in = ir_dim_floordiv(im->dims, channels, groups);
		const struct ir_dim *rows[] = {v->dims[0], g, in, places}, *factors[] = {g, in, width};
		const char *kernel = operand_tensor(im, weight);
		x = import_text(im, "einsum(\"bgcp,gcw->bgpw\", reshape(%s, %s), reshape(%s, %s))", x,
		                dims_text(im, 4, rows), kernel, dims_text(im, 3, factors));
		dims[rank++] = v->dims[0];
		dims[rank++] = g;
	}
	int64_t order[IR_RANK_MAX] = {0, 1}, at = rank;
	for (int i = 0; i < n; i++)
		dims[rank++] = v->dims[i + 2];
	dims[rank++] = each;
	for (int i = 0; i < n; i++)
		dims[rank++] = weight->dims[i + 2];
	order[at] = at + n;
	for (int i = 0; i < n; i++) {
		order[at + 1 + 2 * i] = at + i;
		order[at + 2 + 2 * i] = at + n + 1 + i;
	}
	x = import_statement(im, "windows", "%s", x);
	return import_statement(im, "windows", "transpose(reshape(%s, %s), %s)", x, dims_text(im, rank, dims),
	                        ints_text(im, order, (size_t)rank));
}

/*
 * The sum of windows k of an axis of n elements, `stride` apart: [L, n, k, R] to [L, out, R]. The window is cut into
 * parts of a stride, which do not overlap; each is moved by its own number of strides, and they are added.
 */
static const char *add_windows(struct importer *im, const char *x, const struct ir_dim *left,
                               const struct ir_dim *n, const struct ir_dim *right, const struct window *w,
                               size_t i, const struct spread *s)
{
	struct ir_dims *t = im->dims;
	int64_t k = w->kernel[i] * w->dilation[i], stride = w->stride[i], parts = (k + stride - 1) / stride;
	const struct ir_dim *spaced[] = {left, n, ir_dim_const(t, w->kernel[i]), ir_dim_const(t, 1), right},
	                    *window[] = {left, n, ir_dim_const(t, k), right},
	                    *cut[] = {left, n, ir_dim_const(t, parts), ir_dim_const(t, stride), right},
	                    *part[] = {left, n, cut[3], right};
	const struct ir_dim *length = ir_dim_mul(t, ir_dim_add(t, n, ir_dim_const(t, parts - 1)), cut[3]);
	const struct ir_dim *whole[] = {left, length, right};
	const struct ir_dim *begin = ir_dim_const(t, s->begin[i]), *end = ir_dim_add(t, begin, s->out[i]);
	const char *sum = "";
	int64_t missing;
	if (k > WINDOW_MAX) {
		import_refuse(im, "not supported: ConvTranspose with a window of %lld elements",
		              (long long)k);
		return "";
	}
	if (w->dilation[i] > 1)
		x = import_text(im, "reshape(pad(reshape(%s, %s), axis=3, before=0, after=%lld), %s)", x,
		                dims_text(im, 5, spaced), (long long)w->dilation[i] - 1,
		                dims_text(im, 4, window));
	else
		x = import_text(im, "reshape(%s, %s)", x, dims_text(im, 4, window));
	if (parts * stride > k)
		x = import_text(im, "pad(%s, axis=2, before=0, after=%lld)", x,
		                (long long)(parts * stride - k));
	x = import_statement(im, "parts", "reshape(%s, %s)", x, dims_text(im, 5, cut));
	for (int64_t p = 0; p < parts && !im->failed; p++) {
		const char *one = import_text(im, "reshape(slice(%s, axis=2, begin=%lld, end=%lld), %s)", x,
		                              (long long)p, (long long)p + 1, dims_text(im, 4, part));
		if (parts > 1)
			one = import_text(im, "pad(%s, axis=1, before=%lld, after=%lld)", one, (long long)p,
			                  (long long)(parts - 1 - p));
		sum = import_statement(im, "sum", "%s", p == 0 ? one : import_text(im, "%s + %s", sum, one));
	}
	x = import_text(im, "reshape(%s, %s)", sum, dims_text(im, 3, whole));
	if (ir_dim_is_const(ir_dim_sub(t, end, length), &missing) && missing > 0)
		x = import_text(im, "pad(%s, axis=1, before=0, after=%lld)", x, (long long)missing);
	return import_statement(im, "sum", "slice(%s, axis=1, begin=%s, end=%s)", x, dim_text(im, begin),
	                        dim_text(im, end));
}

/* Every element times its window (window_products), then the windows are added along one axis after another: `left` are
   the axes that are done, `right` those that follow. Groups are those of the channels. */
bool import_conv_transpose(struct importer *im)
{
	struct operand *v = operand_needed(im, 0), *weight = operand_needed(im, 1), *bias = operand_at(im, 2);
	struct window w = {0};
	struct spread s;
	int64_t kernel[WINDOW_AXES_MAX], groups = attribute_int(im, "group", 1);
	if (im->failed || weight->rank != v->rank || v->rank < 3 || v->rank > 4 || groups < 1 ||
	    groups > INT32_MAX)
		return import_refuse(im, "not supported: ConvTranspose of %d axes in %lld groups", v->rank,
		                     (long long)groups);
	for (int i = 2; i < v->rank; i++)
		kernel[i - 2] = operand_size(im, weight, i);
	if (operand_size(im, v, 1) % groups != 0 || !read_window(im, v, kernel, &w) ||
	    !read_spread(im, v, &w, &s))
		return import_refuse(im, "ConvTranspose of channels in %lld groups", (long long)groups);
	struct ir_dims *t = im->dims;
	const struct ir_dim *dims[] = {v->dims[0], ir_dim_mul(t, weight->dims[1], ir_dim_const(t, groups)),
	                               s.out[0], v->rank == 4 ? s.out[1] : NULL};
	const char *x = window_products(im, v, weight, &w, groups);
	const struct ir_dim *left = ir_dim_mul(t, dims[0], dims[1]);
	for (size_t i = 0; i < w.n; i++) {
		const struct ir_dim *right = ir_dim_const(t, 1);
		if (i + 1 < w.n)
			right = ir_dim_mul(t, v->dims[3], weight->dims[3]);
		x = add_windows(im, x, left, v->dims[i + 2], right, &w, i, &s);
		left = ir_dim_mul(t, left, s.out[i]);
	}
	x = import_text(im, "reshape(%s, %s)", x, dims_text(im, v->rank, dims));
	if (bias != NULL) {
		const struct ir_dim *column[] = {dims[1], ir_dim_const(t, 1), ir_dim_const(t, 1)};
		const char *b = operand_tensor(im, bias);
		x = import_text(im, "%s + reshape(%s, %s)", x, b, dims_text(im, v->rank - 1, column));
	}
	return import_output(im, 0, "%s", x);
}

/* ---- pools ---- */

/* ceil_mode: the last window may end after the border, if it begins in the input or the border before it. w->extra:
   elements that it needs there. import_pool() refuses dilations. */
static void add_last_window(struct importer *im, const struct operand *v, struct window *w)
{
	for (size_t i = 0; i < w->n && !im->failed; i++) {
		int64_t size = operand_size(im, v, (int)i + 2),
		        padded = size + w->pads[i] + w->pads[w->n + i];
		int64_t count = (padded - w->kernel[i] + w->stride[i] - 1) / w->stride[i] + 1;
		if ((count - 1) * w->stride[i] >= size + w->pads[i])
			count--;
		int64_t more = (count - 1) * w->stride[i] + w->kernel[i] - padded;
		w->extra[i] = more > 0 ? more : 0;
	}
}

/* The number of elements that each window of an axis counts, in the shape of the result: the divisor of an average. A
   row of ones, with `border` ("1.0" if the border counts) around, summed by windows. */
static const char *counts_text(struct importer *im, const struct operand *v, const struct window *w, size_t i,
                               const char *border)
{
	const char *ones = import_text(im, "broadcast(const(1.0), [%s])", dim_text(im, v->dims[i + 2]));
	const int64_t pads[] = {w->pads[i], w->pads[w->n + i]}, extra[] = {0, w->extra[i]};
	ones = import_padded(im, import_padded(im, ones, 0, pads, 1, border), 0, extra, 1, "0.0");
	const char *counts =
	        import_statement(im, "counts", "sum(frame(%s, size=%lld, hop=%lld, axis=0), axis=1)", ones,
	                         (long long)w->kernel[i], (long long)w->stride[i]);
	const struct ir_type *t = import_type(im, counts);
	const struct ir_dim *dims[IR_RANK_MAX], *one = ir_dim_const(im->dims, 1);
	for (int k = 0; k < v->rank; k++)
		dims[k] = t != NULL && k == (int)i + 2 ? t->dims[0] : one;
	return import_text(im, "reshape(%s, %s)", counts, dims_text(im, v->rank, dims));
}

/* Windows of one axis after another: a maximum, or an average as a sum over counts, of both axes is that of the one,
   then of the other. */
bool import_pool(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	struct window w = {0};
	bool is_max = strcmp(im->node->op, "MaxPool") == 0,
	     all = attribute_int(im, "count_include_pad", 0) != 0;
	if (im->failed || !read_window(im, v, NULL, &w))
		return false;
	if (v->dtype != DT_F32)
		return import_refuse(im, "not supported: %s of %s", im->node->op, ir_dtype_name(v->dtype));
	if (attribute_int(im, "ceil_mode", 0) != 0)
		add_last_window(im, v, &w);
	const char *x = operand_tensor(im, v), *lowest = "-3.4028234663852886e+38";
	for (size_t i = 0; i < w.n && !im->failed; i++) {
		const int64_t pads[] = {w.pads[i], w.pads[w.n + i] + w.extra[i]};
		if (w.dilation[i] != 1 || (is_max && import_is_read(im, 1)))
			return import_refuse(im, "not supported: %s with dilations, or places of the maxima",
			                     im->node->op);
		bool counts = pads[0] + pads[1] > 0;
		x = import_padded(im, x, (int)i + 2, pads, 1, is_max ? lowest : "0.0");
		x = import_text(im, "%s(frame(%s, size=%lld, hop=%lld, axis=%zu), axis=%zu)",
		                is_max   ? "max"
		                : counts ? "sum"
		                         : "mean",
		                x, (long long)w.kernel[i], (long long)w.stride[i], i + 2, i + 3);
		if (!is_max && counts)
			x = import_text(im, "%s / %s", x, counts_text(im, v, &w, i, all ? "1.0" : "0.0"));
	}
	return import_output(im, 0, "%s", x);
}

/* The maximum or mean of all axes from 2 on, which stay with size 1. */
bool import_global_pool(struct importer *im)
{
	const struct operand *v = operand_needed(im, 0);
	int64_t axes[IR_RANK_MAX];
	for (int i = 2; i < v->rank; i++)
		axes[i - 2] = i;
	if (v->rank < 3)
		return import_refuse(im, "%s of %d axes", im->node->op, v->rank);
	const char *name = strcmp(im->node->op, "GlobalMaxPool") == 0 ? "max" : "mean";
	return import_output(im, 0, "%s(%s, axis=%s, keep=true)", name, tensor_at(im, 0),
	                     ints_text(im, axes, (size_t)v->rank - 2));
}
