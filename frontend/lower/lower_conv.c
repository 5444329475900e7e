/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions as linears (im2col): the values under the taps of the kernel are concatenated, channels
 * innermost, and multiplied by one GEMM. If the windows tile the input (patch embedding), im2col is a
 * transposition. Groups are the batch of one matmul. A depthwise convolution, whose groups have one channel,
 * is a sum over its taps of slices times a weight of each channel: elementwise ops along the channels, or along the
 * rows of planes.
 *
 *   y[.., l, o] = b[o] + sum over c, k of W[o, c, k] x[.., l stride + k dilation - padding, c], zero outside
 *
 * Functions return false after a report; call_mixes_axis rejects axes of tokens or of an encoder input in decode.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */

#include "frontend/lower/lower.h"
#include "ir/support/checked.h"

#include <string.h>

#define TAPS_SLICED_MAX 256 /* up to this number of taps, each is a slice; more are gathered with one op */

/* One spatial axis. */
struct conv_axis {
	int64_t kernel, stride, padding, dilation;
	const struct ir_dim *size; /* size of the result */
	bool needs_gather; /* stride > 1 over an axis of dynamic size: no reshape can select every stride-th element */
};

struct conv {
	const struct call *c;
	struct ir_builder *b;
	int n_axes;     /* 1 or 2 */
	int first_axis; /* the first spatial axis of what is convolved: 1 where channels are last, 2 of planes */
	struct conv_axis axis[2];
	int64_t channels, out, groups, taps;
	const char *path;
	bool bias;
};

static struct ir_dims *dims_of(const struct conv *v)
{
	return v->c->lw->module->dims;
}

static bool report_bad_conv(const struct conv *v, enum diag_code code, const char *text)
{
	return lower_fail(v->c->lw, v->c->e->loc, code, "%s: %s", v->c->e->text, text);
}

/* ---- arguments ---- */

/* Reads one int, at least lo, for all axes, or a list with one for each. */
static bool read_pair(const struct conv *v, const char *name, int64_t lo, int64_t *first, int64_t *second)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	int n = 0;
	int64_t *out[] = {first, second};
	if (!call_dims(v->c, name, &n, dims))
		return false;
	if (n != 1 && n != v->n_axes)
		return report_bad_conv(v, DIAG_SHAPE, "a number for every axis is wanted");
	for (int i = 0; i < v->n_axes; i++) {
		if (!ir_dim_is_const(dims[n == 1 ? 0 : i], out[i]))
			return report_bad_conv(v, DIAG_VALUE_TYPE, "sizes of the kernel must be constant");
		if (*out[i] < lo || *out[i] > INT32_MAX)
			return report_bad_conv(v, DIAG_VALUE_TYPE,
			                       "kernel, stride and dilation are at least 1");
	}
	return true;
}

/* Reads and checks the arguments; a convolution of one axis gets a second one with a kernel of size 1, so that loops
 * over taps have no case for it. */
static bool read_arguments(struct conv *v)
{
	struct conv_axis *a = v->axis;
	if (!call_word(v->c, "path", &v->path) || !call_int(v->c, "out", &v->out) ||
	    !call_int(v->c, "groups", &v->groups) || !call_bool(v->c, "bias", &v->bias) ||
	    !read_pair(v, "kernel", 1, &a[0].kernel, &a[1].kernel) ||
	    !read_pair(v, "stride", 1, &a[0].stride, &a[1].stride) ||
	    !read_pair(v, "padding", 0, &a[0].padding, &a[1].padding) ||
	    !read_pair(v, "dilation", 1, &a[0].dilation, &a[1].dilation))
		return false;
	if (v->out < 1 || v->out > INT32_MAX || v->groups < 1)
		return report_bad_conv(v, DIAG_VALUE_TYPE, "out and groups are at least 1");
	if (v->n_axes == 1)
		a[1] = (struct conv_axis){.kernel = 1, .stride = 1, .dilation = 1};
	if (!checked_mul_i64(a[0].kernel, a[1].kernel, &v->taps))
		return report_bad_conv(v, DIAG_LIMIT, "the kernel is too large");
	return true;
}

/* Sets the size of the result: (L + 2 padding - dilation (kernel - 1) - 1) // stride + 1. An axis of dynamic size
 * needs a gather if the stride is above 1: its size is no multiple of the stride, as strided_slice requires. */
static bool set_output_size(struct conv *v, struct conv_axis *a, const struct ir_dim *size)
{
	struct ir_dims *t = dims_of(v);
	int64_t reach, pads, n;
	if (!checked_mul_i64(a->dilation, a->kernel - 1, &reach) || !checked_mul_i64(2, a->padding, &pads) ||
	    reach > INT32_MAX || pads > INT32_MAX)
		return report_bad_conv(v, DIAG_LIMIT, "the kernel is too large");
	const struct ir_dim *span = ir_dim_add(t, size, ir_dim_const(t, pads - reach - 1));
	if (ir_dim_lo(t, span) < 0)
		return report_bad_conv(v, DIAG_SHAPE, "the kernel is larger than the padded input");
	a->size = ir_dim_add(t, ir_dim_floordiv(t, span, a->stride), ir_dim_const(t, 1));
	a->needs_gather = a->stride > 1 && !ir_dim_is_const(size, &n);
	return true;
}

/* ---- the GEMM ---- */

/* The parameters PATH.weight [out, C / groups, taps..], arranged in this form for its user (lower.h), and PATH.bias
 * [out]; *bias: no value if it has none. */
static bool conv_weights(const struct conv *v, enum weight_form form, struct ir_value *w,
                         struct ir_value *bias)
{
	struct weight_request need = {.rank = v->n_axes + 2,
	                              .dims = {v->out, v->channels / v->groups, v->axis[0].kernel},
	                              .form = form};
	*bias = IR_NO_VALUE;
	if (v->n_axes == 2)
		need.dims[3] = v->axis[1].kernel;
	need.pattern = arena_printf(v->c->lw->arena, "%s.weight", v->path);
	if (!lower_weight(v->c->lw, &need, w))
		return false;
	need.rank = 1;
	need.form = WEIGHT_PLAIN;
	need.pattern = arena_printf(v->c->lw->arena, "%s.bias", v->path);
	return !v->bias || lower_weight(v->c->lw, &need, bias);
}

/* Multiplies x by the weight as a matrix [out, channels * taps], and adds the bias. */
static bool conv_linear(const struct conv *v, struct ir_value x, enum weight_form form, struct ir_value *y)
{
	struct ir_value w, bias;
	if (!conv_weights(v, form, &w, &bias))
		return false;
	*y = irb_linear(v->b, x, w, bias, NULL);
	return !irb_failed(v->b);
}

/* ---- im2col; x [B, axes.., channels], or planes [B, channels, axes..] ---- */

/* Pads an axis with zeros up to the end of the last window, and to a multiple of the stride, so that strided_slice
 * can reshape. That end less the size is a constant: of a dynamic axis the stride is 1, and the sizes cancel; or a
 * gather needs the plain padding alone. */
static struct ir_value pad_axis(const struct conv *v, struct ir_value x, int i)
{
	const struct conv_axis *a = &v->axis[i];
	struct ir_dims *t = dims_of(v);
	const struct ir_dim *end = ir_dim_const(t, a->dilation * (a->kernel - 1));
	end = ir_dim_add(t, end, ir_dim_mul(t, a->size, ir_dim_const(t, a->stride)));
	end = ir_dim_sub(t, end, irb_type(v->b, x)->dims[i + v->first_axis]);
	int64_t after = ir_dim_hi(t, end) - a->padding;
	if (a->needs_gather)
		after = a->padding;
	struct attrs_pad at = {
	        .axis = i + v->first_axis, .before = a->padding, .after = after > 0 ? after : 0};
	return at.before == 0 && at.after == 0 ? x : irb_pad(v->b, x, &at);
}

/* Elements offset, offset + stride, .. of an axis of dynamic size, by a gather; all of them exist. */
static struct ir_value strided_gather(const struct conv *v, struct ir_value x, int i, int64_t offset)
{
	const struct conv_axis *a = &v->axis[i];
	const struct ir_dim *size = a->size;
	struct ir_value at = irb_iota(v->b, &(struct attrs_iota){.dims = {&size, 1}, .axis = 0});
	at = irb_mul(v->b, at, irb_full_of(v->b, (double)a->stride, DT_I32, 1, &a->size), NULL);
	at = irb_add(v->b, at, irb_full_of(v->b, (double)offset, DT_I32, 1, &a->size), NULL);
	if (irb_failed(v->b))
		return x;
	int axis = i + v->first_axis;
	x = irb_gather(v->b, lower_axis_to_front(v->c->lw, x, axis), at, NULL);
	return irb_failed(v->b) ? x : lower_axes_from_front(v->c->lw, x, 1, axis);
}

/* Elements offset, offset + stride, ..: slices [size * stride], which pad_axis() has made room for, then reshapes to
 * [size, stride] and takes column 0. */
static struct ir_value strided_slice(const struct conv *v, struct ir_value x, int i, int64_t offset)
{
	const struct conv_axis *a = &v->axis[i];
	struct ir_dims *t = dims_of(v);
	const struct ir_dim *dims[IR_RANK_MAX], *stride = ir_dim_const(t, a->stride);
	int n = 0, axis = i + v->first_axis;
	if (a->needs_gather)
		return strided_gather(v, x, i, offset);
	x = irb_slice_of(v->b, x, axis, ir_dim_const(t, offset), ir_dim_mul(t, a->size, stride));
	if (irb_failed(v->b) || a->stride == 1)
		return x;
	const struct ir_type *type = irb_type(v->b, x);
	for (int k = 0; k < type->rank; k++) {
		dims[n++] = k == axis ? a->size : type->dims[k];
		if (k == axis)
			dims[n++] = stride;
	}
	x = irb_reshape_to(v->b, x, n, dims);
	x = irb_slice_of(v->b, x, axis + 1, ir_dim_const(t, 0), ir_dim_const(t, 1));
	for (int k = axis + 1; k + 1 < n; k++)
		dims[k] = dims[k + 1];
	return irb_reshape_to(v->b, x, n - 1, dims);
}

/* im2col with one gather for each axis, for any number of taps: result as gather_taps. The last axis comes first, so
 * that the numbers of the axes before it stay. With groups the row [taps, groups, width] becomes [groups, taps,
 * width]. */
static struct ir_value gather_windows(const struct conv *v, struct ir_value x)
{
	static const int64_t taps_last[] = {0, 1, 3, 2, 4, 5}, groups_first[] = {0, 2, 1, 3};
	struct ir_dims *table = dims_of(v);
	const struct ir_dim *dims[] = {irb_type(v->b, x)->dims[0], v->axis[0].size, v->axis[1].size, NULL,
	                               NULL};
	const struct ir_dim *rows = ir_dim_mul(table, dims[0], dims[1]),
	                    *groups = ir_dim_const(table, v->groups),
	                    *width = ir_dim_const(table, v->channels / v->groups);
	int n = 1 + v->n_axes;
	if (v->n_axes == 2)
		rows = ir_dim_mul(table, rows, dims[2]);
	const struct ir_dim *by_tap[] = {rows, ir_dim_const(table, v->taps), groups, width};
	for (int i = v->n_axes - 1; i >= 0 && !irb_failed(v->b); i--) {
		const struct conv_axis *a = &v->axis[i];
		const struct lower_windows w = {a->size, a->kernel, a->stride, a->dilation};
		x = lower_windows(v->c->lw, x, i + 1, &w);
	}
	if (v->n_axes == 2 &&
	    !irb_failed(v->b)) /* [B, h, taps of h, w, taps of w, C]: both taps after h and w */
		x = irb_transpose_by(v->b, x, 6, taps_last);
	if (v->groups > 1 && !irb_failed(v->b)) {
		x = irb_transpose_by(v->b, irb_reshape_to(v->b, x, 4, by_tap), 4, groups_first);
		dims[n++] = groups;
	}
	dims[n++] = ir_dim_const(table, v->taps * (v->channels / v->groups));
	return irb_failed(v->b) ? x : irb_reshape_to(v->b, x, n, dims);
}

/* The values [B, result axes.., channels] under each tap of padded x, at most TAPS_SLICED_MAX, in the order of the
 * taps in the kernel: the last axis varies fastest. Returns their number. */
static size_t slice_taps(const struct conv *v, struct ir_value x, struct ir_value *part)
{
	size_t n = 0;
	for (int64_t k = 0; k < v->axis[0].kernel && !irb_failed(v->b); k++) {
		struct ir_value row_taps = strided_slice(v, x, 0, k * v->axis[0].dilation);
		for (int64_t m = 0; m < v->axis[1].kernel && !irb_failed(v->b); m++)
			part[n++] = v->n_axes == 1 ? row_taps
			                           : strided_slice(v, row_taps, 1, m * v->axis[1].dilation);
	}
	return n;
}

/* im2col of padded x: [B, result axes.., taps * channels]; of groups [B, result axes.., groups, taps * channels of a
 * group], for which each part is reshaped to [.., groups, channels of a group] before the concatenation. Leaves more
 * taps to gather_windows, whose result has the same layout. Returns any value after an error of the builder. */
static struct ir_value gather_taps(const struct conv *v, struct ir_value x)
{
	struct ir_value part[TAPS_SLICED_MAX];
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank = v->n_axes + 2;
	if (v->taps > TAPS_SLICED_MAX)
		return gather_windows(v, x);
	size_t n = slice_taps(v, x, part);
	for (size_t i = 0; i < n && v->groups > 1 && !irb_failed(v->b); i++) {
		memcpy(dims, irb_type(v->b, part[i])->dims, sizeof(*dims) * (size_t)rank);
		dims[rank - 1] = ir_dim_const(dims_of(v), v->groups);
		dims[rank] = ir_dim_const(dims_of(v), v->channels / v->groups);
		part[i] = irb_reshape_to(v->b, part[i], rank + 1, dims);
	}
	if (n <= 1 || irb_failed(v->b))
		return n == 1 ? part[0] : x;
	return irb_op1(v->b, OP_concat, part, n,
	               &(struct attrs_concat){.axis = v->n_axes + 1 + (v->groups > 1)});
}

/* Adds the bias, broadcast to y; no value: y. */
static struct ir_value add_bias(const struct conv *v, struct ir_value y, struct ir_value bias)
{
	if (bias.id == 0 || irb_failed(v->b))
		return y;
	const struct ir_type *t = irb_type(v->b, y);
	return irb_add(v->b, y, irb_broadcast_to(v->b, bias, t->rank, t->dims), NULL);
}

static bool is_depthwise(const struct conv *v)
{
	return v->groups == v->channels && v->groups == v->out && v->taps <= TAPS_SLICED_MAX;
}

/* A group for each channel: the sum over the taps of the values under a tap times its weights, one a channel. The
 * weight is [taps, C], of planes [C, taps] with axes of size 1 after C, so that a tap broadcasts to the values. */
static bool convolve_depthwise(const struct conv *v, struct ir_value x, struct ir_value *y)
{
	struct ir_value part[TAPS_SLICED_MAX], w, bias;
	struct ir_dims *t = dims_of(v);
	bool in_planes = v->first_axis == 2;
	const struct ir_dim *one = ir_dim_const(t, 1), *of_channel[] = {ir_dim_const(t, v->out), one, one};
	int rank = in_planes ? 1 + v->n_axes : 1;
	if (!conv_weights(v, in_planes ? WEIGHT_MATRIX : WEIGHT_TAPS_OUTERMOST, &w, &bias))
		return false;
	if (bias.id != 0)
		bias = irb_reshape_to(v->b, bias, rank, of_channel);
	size_t n = slice_taps(v, x, part);
	for (size_t i = 0; i < n && !irb_failed(v->b); i++) {
		const struct ir_type *type = irb_type(v->b, part[i]);
		struct ir_value tap = irb_slice_of(v->b, w, in_planes, ir_dim_const(t, (int64_t)i), one);
		tap = irb_reshape_to(v->b, tap, rank, of_channel);
		tap = irb_broadcast_to(v->b, tap, type->rank, type->dims);
		struct ir_value product = irb_mul(v->b, part[i], tap, NULL);
		*y = i == 0 ? add_bias(v, product, bias) : irb_add(v->b, *y, product, NULL);
	}
	return !irb_failed(v->b);
}

/* Groups of channels: one matmul [groups, rows, taps * channels] by [groups, out, taps * channels]^T; groups are the
 * batch, so they go to the front and back. */
static bool convolve_groups(const struct conv *v, struct ir_value x, struct ir_value *y)
{
	struct ir_dims *t = dims_of(v);
	struct ir_value w, bias;
	const struct ir_dim *groups = ir_dim_const(t, v->groups), *out = ir_dim_const(t, v->out / v->groups),
	                    *depth = ir_dim_const(t, v->channels / v->groups * v->taps);
	if (!conv_weights(v, WEIGHT_TAPS_FIRST, &w, &bias))
		return false;
	x = gather_taps(v, x);
	if (irb_failed(v->b))
		return false;
	const struct ir_type *type = irb_type(v->b, x);
	const struct ir_dim *rows = ir_type_count_range(t, type, 0, type->rank - 2);
	const struct ir_dim *by_group[] = {groups, rows, depth}, *of_w[] = {groups, out, depth},
	                    *of_bias[] = {groups, ir_dim_const(t, 1), out};
	const struct ir_dim *flat[] = {rows, groups, depth}, *all[IR_RANK_MAX];
	static const int64_t swap[] = {1, 0, 2};
	x = irb_transpose_by(v->b, irb_reshape_to(v->b, x, 3, flat), 3, swap);
	w = irb_reshape_to(v->b, w, 3, of_w);
	*y = irb_matmul(v->b, irb_reshape_to(v->b, x, 3, by_group), w, &(struct attrs_matmul){.tb = true});
	if (bias.id != 0)
		bias = irb_reshape_to(v->b, bias, 3, of_bias);
	*y = add_bias(v, *y, bias);
	memcpy(all, type->dims, sizeof(*all) * (size_t)type->rank);
	all[type->rank - 2] = ir_dim_const(t, v->out);
	*y = irb_reshape_to(v->b, irb_transpose_by(v->b, *y, 3, swap), type->rank - 1, all);
	return !irb_failed(v->b);
}

/* x [B, axes.., channels] to y [B, result axes.., out]; a depthwise one also planes to planes (first_axis 2). */
static bool convolve(const struct conv *v, struct ir_value x, struct ir_value *y)
{
	for (int i = 0; i < v->n_axes && !irb_failed(v->b); i++)
		x = pad_axis(v, x, i);
	if (irb_failed(v->b))
		return false;
	if (v->groups == 1)
		return conv_linear(v, gather_taps(v, x), WEIGHT_TAPS_FIRST, y);
	return is_depthwise(v) ? convolve_depthwise(v, x, y) : convolve_groups(v, x, y);
}

/* ---- patches: windows that tile the image ---- */

/* True if the windows partition the input [B, C, H, W], so that im2col is a transposition: stride = kernel, no
 * padding, sizes divisible. */
static bool windows_tile_input(const struct conv *v, const struct ir_type *type)
{
	bool tiled = v->groups == 1;
	for (int i = 0; i < v->n_axes; i++) {
		const struct conv_axis *a = &v->axis[i];
		int64_t n;
		tiled = tiled && a->stride == a->kernel && a->padding == 0 && a->dilation == 1 &&
		        ir_dim_is_const(type->dims[i + 2], &n) && n % a->kernel == 0;
	}
	return tiled;
}

/* [B, C, H, W] -> [B, H/h, W/w, C h w], the order in which the kernel is stored. */
static bool lower_patches(const struct conv *v, struct ir_value x, struct ir_value *y)
{
	static const int64_t perm[] = {0, 2, 4, 1, 3, 5};
	struct ir_dims *t = dims_of(v);
	const struct ir_type *type = irb_type(v->b, x);
	const struct conv_axis *a = v->axis;
	const struct ir_dim *split[] = {type->dims[0], type->dims[1],
	                                a[0].size,     ir_dim_const(t, a[0].kernel),
	                                a[1].size,     ir_dim_const(t, a[1].kernel)};
	const struct ir_dim *rows[] = {type->dims[0], a[0].size, a[1].size,
	                               ir_dim_const(t, v->channels * v->taps)};
	x = irb_reshape_to(v->b, x, 6, split);
	x = irb_transpose_by(v->b, x, 6, perm);
	x = irb_reshape_to(v->b, x, 4, rows);
	return !irb_failed(v->b) && conv_linear(v, x, WEIGHT_MATRIX, y);
}

/* ---- operators ---- */

/* Checks the type of x and the groups; sets the number of channels and the sizes of the result. The limits keep rows
 * of im2col below 2^31 elements. */
static bool check_input(struct conv *v, const struct ir_type *type, int channel_axis)
{
	int64_t row;
	if (type->rank != v->n_axes + 2 || !ir_dim_is_const(type->dims[channel_axis], &v->channels))
		return report_bad_conv(v, DIAG_SHAPE,
		                       v->n_axes == 1 ? "wants x [B, L, C] with constant C"
		                                      : "wants x [B, C, H, W] with constant C");
	if (v->channels < 1 || v->channels % v->groups != 0 || v->out % v->groups != 0)
		return report_bad_conv(v, DIAG_SHAPE, "groups must divide the channels of both sides");
	if (!checked_mul_i64(v->channels, v->taps, &row) || row > INT32_MAX)
		return report_bad_conv(v, DIAG_LIMIT, "the kernel is too large");
	for (int i = 0; i < v->n_axes; i++) {
		if (!set_output_size(v, &v->axis[i], type->dims[v->n_axes == 1 ? 1 : i + 2]))
			return false;
	}
	return true;
}

/* x [B, L, C] to [B, l, out]. In decode neither tokens nor a source may be convolved (FILL_UNSUPPORTED). */
bool lower_conv1d(const struct call *c, struct lowered *out)
{
	struct conv v = {.c = c, .b = c->lw->b, .n_axes = 1, .first_axis = 1};
	struct ir_value x, y;
	if (!call_tensor(c, "x", &x) || !read_arguments(&v) || !call_mixes_axis(c, &x, 1, FILL_UNSUPPORTED) ||
	    !check_input(&v, irb_type(v.b, x), 2))
		return false;
	if (!convolve(&v, x, &y))
		return false;
	*out = lowered_tensor(y);
	return true;
}

#define PLANE_WIDTH_MIN 16 /* columns from which vectors along a row of a plane are mostly full */

/* A depthwise convolution of planes whose rows fill vectors, and that are not channels last in memory already. */
static bool stays_in_planes(const struct conv *v, struct ir_value x)
{
	return is_depthwise(v) && v->axis[1].stride == 1 &&
	       ir_dim_hi(dims_of(v), v->axis[1].size) >= PLANE_WIDTH_MIN &&
	       ir_def_as(irb_func(v->b), x, OP_transpose) == NULL;
}

/* x [B, C, H, W] to [B, out, h, w]: planes as they are, patches by a reshape, else with the channels last, as im2col
 * wants them, and back. */
bool lower_conv2d(const struct call *c, struct lowered *out)
{
	static const int64_t last[] = {0, 2, 3, 1}, second[] = {0, 3, 1, 2};
	struct conv v = {.c = c, .b = c->lw->b, .n_axes = 2, .first_axis = 1};
	struct ir_value x, y;
	if (!call_tensor(c, "x", &x) || !read_arguments(&v) || !call_mixes_axis(c, &x, 2, FILL_UNSUPPORTED) ||
	    !call_mixes_axis(c, &x, 3, FILL_UNSUPPORTED) || !check_input(&v, irb_type(v.b, x), 1))
		return false;
	if (stays_in_planes(&v, x)) {
		v.first_axis = 2;
		if (!convolve(&v, x, &y))
			return false;
		*out = lowered_tensor(y);
		return true;
	}
	bool tiled = windows_tile_input(&v, irb_type(v.b, x));
	if (tiled ? !lower_patches(&v, x, &y) : !convolve(&v, irb_transpose_by(v.b, x, 4, last), &y))
		return false;
	*out = lowered_tensor(irb_transpose_by(v.b, y, 4, second));
	return !irb_failed(v.b);
}
