/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Construction, formats, equality and text of weight expressions. Every constructor checks its shape, that byte sizes
 * fit 64 bits, and that the tree is at most WEXPR_DEPTH_MAX high; evaluation and printing can then recurse without
 * checks. NULL: an argument is NULL or does not fit, or there is no memory; so calls can be nested and checked once.
 * Nodes are immutable and may share arguments.
 */
#include "ir/weights/weight.h"
#include "ir/support/chars.h"
#include "ir/support/checked.h"
#include "ir/support/number.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
	const char *word, *fields;
	bool moves;
} kinds[] = {
#define WX(kind, word, moves, fields) [WX_##kind] = {#word, fields, moves},
#include "ir/weights/kinds.def"
#undef WX
};

const char *wexpr_fields(enum ir_wexpr_kind kind)
{
	return kinds[kind].fields;
}

/* The rank and dims are valid, and the bytes of the tensor fit into int64 for any element type. */
static bool shape_fits(int rank, const int64_t *dims)
{
	if (rank < 0 || rank > IR_RANK_MAX)
		return false;
	for (int i = 0; i < rank; i++)
		if (dims[i] < 0)
			return false;
	int64_t count, bytes;
	/* the largest element has 8 bytes */
	return checked_product_i64(dims, (size_t)rank, &count) && checked_mul_i64(count, 8, &bytes);
}

/* A node without arguments, so of depth 1; NULL if the shape does not fit. */
static struct ir_wexpr *make(struct arena *a, enum ir_wexpr_kind kind, int rank, const int64_t *dims)
{
	if (!shape_fits(rank, dims))
		return NULL;
	struct ir_wexpr *e = ARENA_NEW(a, struct ir_wexpr);
	if (!e || arena_failed(a))
		return NULL;
	e->kind = kind;
	e->rank = rank;
	for (int i = 0; i < rank; i++)
		e->dims[i] = dims[i];
	e->depth = 1;
	return e;
}

/* Copies the arguments to e, and raises its depth above theirs; false if one is NULL or the tree becomes too high. */
static bool set_args(struct arena *a, struct ir_wexpr *e, size_t n, const struct ir_wexpr *const *args)
{
	const struct ir_wexpr **copy = ARENA_ARRAY(a, const struct ir_wexpr *, n);
	if (!copy || arena_failed(a))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!args[i] || args[i]->depth >= WEXPR_DEPTH_MAX)
			return false;
		if (args[i]->depth + 1 > e->depth)
			e->depth = args[i]->depth + 1;
		copy[i] = args[i];
	}
	e->args = copy;
	e->n_args = n;
	return true;
}

static struct ir_wexpr *make1(struct arena *a, enum ir_wexpr_kind kind, int rank, const int64_t *dims,
                              const struct ir_wexpr *arg)
{
	struct ir_wexpr *e = make(a, kind, rank, dims);
	return e && set_args(a, e, 1, &arg) ? e : NULL;
}

const struct ir_wexpr *wexpr_tensor(struct arena *a, const char *file, const char *tensor,
                                    enum ir_dtype stored, int rank, const int64_t *dims)
{
	struct ir_wexpr *e = make(a, WX_TENSOR, rank, dims);
	if (!e)
		return NULL;
	e->file = arena_strdup(a, file);
	e->tensor = arena_strdup(a, tensor);
	e->stored = stored;
	return arena_failed(a) ? NULL : e;
}

/* Blocks divide the rows of a matrix, hence two axes. Its elements are f32 values (`stored`), in the bytes of the
 * format. */
const struct ir_wexpr *wexpr_tensor_quants(struct arena *a, const char *file, const char *tensor,
                                           enum ir_format format, int rank, const int64_t *dims)
{
	if (rank < 2 || !ir_format_is_quantized(format))
		return NULL;
	const struct ir_wexpr *e = wexpr_tensor(a, file, tensor, DT_F32, rank, dims);
	struct ir_wexpr *quantized = e ? ARENA_NEW(a, struct ir_wexpr) : NULL;
	if (!quantized)
		return NULL;
	*quantized = *e;
	quantized->format = format;
	return quantized;
}

const struct ir_wexpr *wexpr_full(struct arena *a, double value, int rank, const int64_t *dims)
{
	struct ir_wexpr *e = make(a, WX_FULL, rank, dims);
	if (e)
		e->value = value;
	return e;
}

/* Columns are pairs of sine and cosine; positions up to start + rows must exist. */
const struct ir_wexpr *wexpr_sinusoid(struct arena *a, int64_t rows, int64_t dim,
                                      enum ir_sinusoid_layout layout, enum ir_sinusoid_spacing spacing,
                                      int64_t start, double base)
{
	int64_t end;
	if (dim < 2 || dim % 2 != 0 || !(base > 0) || !checked_add_i64(start, rows, &end))
		return NULL;
	/* spacing=t2t divides by d/2 - 1 */
	if (spacing == SINUSOID_T2T && dim < 4)
		return NULL;
	struct ir_wexpr *e = make(a, WX_SINUSOID, 2, (int64_t[]){rows, dim});
	if (!e)
		return NULL;
	e->begin = start;
	e->value = base;
	e->layout = layout;
	e->spacing = spacing;
	return e;
}

/* NaN and infinite angles are rejected here, as evaluation does not report them. */
const struct ir_wexpr *wexpr_rotary(struct arena *a, int64_t rows, double scale, const double *frequencies,
                                    size_t n)
{
	if (n < 1 || n > WEXPR_FREQUENCIES_MAX || !isfinite(scale))
		return NULL;
	double *copy = ARENA_ARRAY(a, double, n);
	struct ir_wexpr *e = make(a, WX_ROTARY, 2, (int64_t[]){rows, 2 * (int64_t)n});
	for (size_t i = 0; copy && e && i < n; i++) {
		if (!isfinite(frequencies[i]))
			return NULL;
		copy[i] = frequencies[i];
	}
	if (!copy || !e)
		return NULL;
	e->value = scale;
	e->frequencies = copy;
	return e;
}

static bool same_shape(const struct ir_wexpr *x, const struct ir_wexpr *y)
{
	return x->rank == y->rank && !memcmp(x->dims, y->dims, (size_t)x->rank * sizeof(x->dims[0]));
}

const struct ir_wexpr *wexpr_stack(struct arena *a, size_t n, const struct ir_wexpr *const *args)
{
	if (n == 0 || !args[0] || args[0]->rank >= IR_RANK_MAX)
		return NULL;
	int64_t dims[IR_RANK_MAX] = {(int64_t)n};
	for (int i = 0; i < args[0]->rank; i++)
		dims[i + 1] = args[0]->dims[i];
	for (size_t i = 1; i < n; i++)
		if (!args[i] || !same_shape(args[0], args[i]))
			return NULL;
	struct ir_wexpr *e = make(a, WX_STACK, args[0]->rank + 1, dims);
	return e && set_args(a, e, n, args) ? e : NULL;
}

const struct ir_wexpr *wexpr_ranks(struct arena *a, size_t n, const struct ir_wexpr *const *args)
{
	if (n == 0 || !args[0])
		return NULL;
	for (size_t i = 1; i < n; i++)
		if (!args[i] || !same_shape(args[0], args[i]))
			return NULL;
	struct ir_wexpr *e = make(a, WX_RANKS, args[0]->rank, args[0]->dims);
	return e && set_args(a, e, n, args) ? e : NULL;
}

/* Adds the size of `arg` along `axis` to dims, the shape so far; false if another axis differs. */
static bool add_concat_size(int64_t *dims, int rank, int axis, const struct ir_wexpr *arg)
{
	if (!arg || arg->rank != rank)
		return false;
	for (int i = 0; i < rank; i++)
		if (i != axis && arg->dims[i] != dims[i])
			return false;
	return checked_add_i64(dims[axis], arg->dims[axis], &dims[axis]);
}

/* The shape of the first argument, with the sizes of all along the axis. */
const struct ir_wexpr *wexpr_concat(struct arena *a, int axis, size_t n, const struct ir_wexpr *const *args)
{
	if (n == 0 || !args[0] || axis < 0 || axis >= args[0]->rank)
		return NULL;
	int64_t dims[IR_RANK_MAX] = {0};
	memcpy(dims, args[0]->dims, sizeof(dims));
	for (size_t i = 1; i < n; i++)
		if (!add_concat_size(dims, args[0]->rank, axis, args[i]))
			return NULL;
	struct ir_wexpr *e = make(a, WX_CONCAT, args[0]->rank, dims);
	if (!e || !set_args(a, e, n, args))
		return NULL;
	e->axis = axis;
	return e;
}

const struct ir_wexpr *wexpr_index(struct arena *a, int axis, int64_t at, const struct ir_wexpr *arg)
{
	if (!arg || axis < 0 || axis >= arg->rank || at < 0 || at >= arg->dims[axis])
		return NULL;
	int64_t dims[IR_RANK_MAX] = {0};
	for (int i = 0, to = 0; i < arg->rank; i++)
		if (i != axis)
			dims[to++] = arg->dims[i];
	struct ir_wexpr *e = make1(a, WX_INDEX, arg->rank - 1, dims, arg);
	if (!e)
		return NULL;
	e->axis = axis;
	e->begin = at;
	return e;
}

const struct ir_wexpr *wexpr_slice(struct arena *a, int axis, int64_t begin, int64_t end,
                                   const struct ir_wexpr *arg)
{
	if (!arg || axis < 0 || axis >= arg->rank || begin < 0 || end < begin || end > arg->dims[axis])
		return NULL;
	int64_t dims[IR_RANK_MAX] = {0};
	memcpy(dims, arg->dims, sizeof(dims));
	dims[axis] = end - begin;
	struct ir_wexpr *e = make1(a, WX_SLICE, arg->rank, dims, arg);
	if (!e)
		return NULL;
	e->axis = axis;
	e->begin = begin;
	e->end = end;
	return e;
}

/* Two transposes cancel, so that equal weights have equal expressions. */
const struct ir_wexpr *wexpr_transpose(struct arena *a, const struct ir_wexpr *arg)
{
	if (!arg)
		return NULL;
	if (arg->kind == WX_TRANSPOSE)
		return arg->args[0];
	int64_t dims[IR_RANK_MAX] = {0};
	memcpy(dims, arg->dims, sizeof(dims));
	if (arg->rank >= 2) {
		dims[arg->rank - 1] = arg->dims[arg->rank - 2];
		dims[arg->rank - 2] = arg->dims[arg->rank - 1];
	}
	return make1(a, WX_TRANSPOSE, arg->rank, dims, arg);
}

/* shape_fits comes first: the product of dims is computed only if it cannot overflow. */
const struct ir_wexpr *wexpr_reshape(struct arena *a, int rank, const int64_t *dims,
                                     const struct ir_wexpr *arg)
{
	if (!arg || !shape_fits(rank, dims))
		return NULL;
	int64_t count;
	if (!checked_product_i64(dims, (size_t)rank, &count) || count != wexpr_count(arg))
		return NULL;
	return make1(a, WX_RESHAPE, rank, dims, arg);
}

const struct ir_wexpr *wexpr_rope(struct arena *a, enum ir_wexpr_kind kind, int64_t heads,
                                  const struct ir_wexpr *arg)
{
	assert(kind == WX_ROPE_H2I || kind == WX_ROPE_I2H);
	/* Rows of axis 0 split into heads of an even number of rows. */
	if (!arg || arg->rank < 1 || heads < 1 || arg->dims[0] % heads != 0)
		return NULL;
	if (arg->dims[0] / heads % 2 != 0)
		return NULL;
	struct ir_wexpr *e = make1(a, kind, arg->rank, arg->dims, arg);
	if (e)
		e->begin = heads;
	return e;
}

const struct ir_wexpr *wexpr_binary(struct arena *a, enum ir_wexpr_kind kind, const struct ir_wexpr *x,
                                    const struct ir_wexpr *y)
{
	assert(kind == WX_MUL || kind == WX_DIV);
	if (!x || !y || y->rank > x->rank)
		return NULL;
	int rank = y->rank; /* without the last axes of size 1: [N, 1] applies to rows of [N, K] */
	while (rank > 0 && y->dims[rank - 1] == 1)
		rank--;
	for (int i = 0; i < rank; i++)
		if (x->dims[i] != y->dims[i])
			return NULL;
	struct ir_wexpr *e = make(a, kind, x->rank, x->dims);
	return e && set_args(a, e, 2, (const struct ir_wexpr *const[]){x, y}) ? e : NULL;
}

const struct ir_wexpr *wexpr_offset(struct arena *a, double value, const struct ir_wexpr *arg)
{
	struct ir_wexpr *e = arg ? make1(a, WX_OFFSET, arg->rank, arg->dims, arg) : NULL;
	if (e)
		e->value = value;
	return e;
}

/* shape_fits (make) checks the product of all dims; that of this axis may overflow before. */
const struct ir_wexpr *wexpr_repeat(struct arena *a, int axis, int64_t times, const struct ir_wexpr *arg)
{
	int64_t dims[IR_RANK_MAX] = {0};
	if (!arg || axis < 0 || axis >= arg->rank || times < 1)
		return NULL;
	memcpy(dims, arg->dims, sizeof(dims));
	if (!checked_mul_i64(dims[axis], times, &dims[axis]))
		return NULL;
	struct ir_wexpr *e = make1(a, WX_REPEAT, arg->rank, dims, arg);
	if (!e)
		return NULL;
	e->axis = axis;
	e->begin = times;
	return e;
}

const struct ir_wexpr *wexpr_lowrank(struct arena *a, double scale, const struct ir_wexpr *w,
                                     const struct ir_wexpr *left, const struct ir_wexpr *right)
{
	if (!w || !left || !right || w->rank != 2 || left->rank != 2 || right->rank != 2 ||
	    left->dims[0] != w->dims[0] || right->dims[1] != w->dims[1] || left->dims[1] != right->dims[0])
		return NULL;
	struct ir_wexpr *e = make(a, WX_LOWRANK, 2, w->dims);
	if (!e || !set_args(a, e, 3, (const struct ir_wexpr *const[]){w, left, right}))
		return NULL;
	e->value = scale;
	return e;
}

const struct ir_wexpr *wexpr_columns(struct arena *a, const struct ir_wexpr *e, const struct ir_wexpr *order)
{
	if (!e || !order || e->rank < 1 || order->rank != 1 || order->dims[0] != e->dims[e->rank - 1])
		return NULL;
	struct ir_wexpr *c = make(a, WX_COLUMNS, e->rank, e->dims);
	return c && set_args(a, c, 2, (const struct ir_wexpr *const[]){e, order}) ? c : NULL;
}

/* The parser and copies of nodes call it with fields that are not checked; an absent argument is NULL, which the
 * constructors reject. */
const struct ir_wexpr *wexpr_make(struct arena *a, const struct ir_wexpr *e)
{
	const struct ir_wexpr *x = e->n_args > 0 ? e->args[0] : NULL;
	switch (e->kind) {
	case WX_TENSOR:
		return e->format != FORMAT_PLAIN
		               ? wexpr_tensor_quants(a, e->file, e->tensor, e->format, e->rank, e->dims)
		               : wexpr_tensor(a, e->file, e->tensor, e->stored, e->rank, e->dims);
	case WX_FULL: return wexpr_full(a, e->value, e->rank, e->dims);
	case WX_SINUSOID:
		return wexpr_sinusoid(a, e->dims[0], e->dims[1], e->layout, e->spacing, e->begin, e->value);
	case WX_ROTARY: return wexpr_rotary(a, e->dims[0], e->value, e->frequencies, (size_t)e->dims[1] / 2);
	case WX_STACK: return wexpr_stack(a, e->n_args, e->args);
	case WX_RANKS: return wexpr_ranks(a, e->n_args, e->args);
	case WX_CONCAT: return wexpr_concat(a, e->axis, e->n_args, e->args);
	case WX_INDEX: return wexpr_index(a, e->axis, e->begin, x);
	case WX_SLICE: return wexpr_slice(a, e->axis, e->begin, e->end, x);
	case WX_TRANSPOSE: return wexpr_transpose(a, x);
	case WX_RESHAPE: return wexpr_reshape(a, e->rank, e->dims, x);
	case WX_ROPE_H2I:
	case WX_ROPE_I2H: return wexpr_rope(a, e->kind, e->begin, x);
	case WX_MUL:
	case WX_DIV: return wexpr_binary(a, e->kind, x, e->n_args > 1 ? e->args[1] : NULL);
	case WX_OFFSET: return wexpr_offset(a, e->value, x);
	case WX_REPEAT: return wexpr_repeat(a, e->axis, e->begin, x);
	case WX_LOWRANK: return e->n_args != 3 ? NULL : wexpr_lowrank(a, e->value, x, e->args[1], e->args[2]);
	case WX_COLUMNS: return wexpr_columns(a, x, e->n_args > 1 ? e->args[1] : NULL);
	case WX_ROUND: return wexpr_round(a, e->stored, x);
	case WX_QUANTIZE:
		return e->n_args > 2 ? NULL
		                     : wexpr_quantize(a, e->format, x, e->n_args > 1 ? e->args[1] : NULL);
	}
	return NULL;
}

/* A copy of e, which moves elements, with rounded arguments; set_args finds the depth again. */
static const struct ir_wexpr *round_args(struct arena *a, enum ir_dtype dtype, const struct ir_wexpr *e)
{
	const struct ir_wexpr **args = ARENA_ARRAY(a, const struct ir_wexpr *, e->n_args);
	struct ir_wexpr *copy = make(a, e->kind, e->rank, e->dims);
	if (!args || !copy)
		return NULL;
	*copy = *e;
	copy->depth = 1;
	for (size_t i = 0; i < e->n_args; i++)
		args[i] = wexpr_round(a, dtype, e->args[i]);
	return set_args(a, copy, e->n_args, args) ? copy : NULL;
}

const struct ir_wexpr *wexpr_round(struct arena *a, enum ir_dtype dtype, const struct ir_wexpr *e)
{
	assert(dtype == DT_F16 || dtype == DT_BF16);
	if (!e || wexpr_fits_format(e, ir_format_from_dtype(dtype)))
		return e;
	if (kinds[e->kind].moves)
		return round_args(a, dtype, e);
	struct ir_wexpr *rounded = make1(a, WX_ROUND, e->rank, e->dims, e);
	if (rounded)
		rounded->stored = dtype;
	return rounded;
}

/* The statistics are mean squares, then means, of each of the K inputs. */
const struct ir_wexpr *wexpr_quantize(struct arena *a, enum ir_format format, const struct ir_wexpr *e,
                                      const struct ir_wexpr *inputs)
{
	const struct ir_wexpr *const args[] = {e, inputs};
	if (!e || e->rank < 2 || !ir_format_is_quantized(format) ||
	    (inputs &&
	     (inputs->rank != 2 || inputs->dims[0] != 2 || inputs->dims[1] != e->dims[e->rank - 1])))
		return NULL;
	struct ir_wexpr *q = make(a, WX_QUANTIZE, e->rank, e->dims);
	if (!q || !set_args(a, q, inputs ? 2 : 1, args))
		return NULL;
	q->format = format;
	return q;
}

int64_t wexpr_count(const struct ir_wexpr *e)
{
	int64_t n = 0;
	bool fits = checked_product_i64(e->dims, (size_t)e->rank, &n);
	assert(fits);
	(void)fits;
	return n;
}

/* The node moves full rows of the last axis, so blocks of a quantized format and the order of columns survive it. */
static bool moves_rows(const struct ir_wexpr *e)
{
	switch (e->kind) {
	case WX_STACK:
	case WX_RANKS: return true;
	case WX_CONCAT:
	case WX_INDEX:
	case WX_SLICE:
	case WX_REPEAT: return e->axis < e->args[0]->rank - 1;
	case WX_RESHAPE: return e->rank > 0 && e->dims[e->rank - 1] == e->args[0]->dims[e->args[0]->rank - 1];
	case WX_ROPE_H2I:
	case WX_ROPE_I2H: return e->rank > 1;
	case WX_TENSOR:
	case WX_FULL:
	case WX_SINUSOID:
	case WX_ROTARY:
	case WX_TRANSPOSE:
	case WX_MUL:
	case WX_DIV:
	case WX_OFFSET:
	case WX_LOWRANK:
	case WX_COLUMNS:
	case WX_ROUND:
	case WX_QUANTIZE: break;
	}
	return false;
}

/* Rebuilds the moving nodes above the `columns` nodes with the arguments of these. A leaf, or a node that computes,
 * has no order to take off: NULL. */
const struct ir_wexpr *wexpr_without_columns(struct arena *a, const struct ir_wexpr *e,
                                             const struct ir_wexpr **order)
{
	if (e->kind == WX_COLUMNS) {
		if (*order && !wexpr_equal(*order, e->args[1]))
			return NULL;
		*order = e->args[1];
		return e->args[0];
	}
	const struct ir_wexpr **args =
	        moves_rows(e) ? ARENA_ARRAY(a, const struct ir_wexpr *, e->n_args) : NULL;
	struct ir_wexpr copy = *e;
	for (size_t i = 0; args && i < e->n_args; i++) {
		args[i] = wexpr_without_columns(a, e->args[i], order);
		if (!args[i])
			return NULL;
	}
	copy.args = args;
	return args ? wexpr_make(a, &copy) : NULL;
}

/* The node cuts or concatenates rows of a quantized format, only at the ends of blocks and super-blocks; so no
 * block changes. */
static bool moves_blocks(const struct ir_wexpr *e, enum ir_format format)
{
	const struct ir_format_desc *f = ir_format(format);
	if ((e->kind != WX_SLICE && e->kind != WX_CONCAT) || f->block == 0 || e->axis != e->rank - 1)
		return false;
	int64_t block = (int64_t)f->block * f->super, k = e->args[0]->dims[e->axis];
	if (e->kind == WX_SLICE)
		return e->begin % block == 0 && (e->end % block == 0 || e->end == k);
	for (size_t i = 0; i + 1 < e->n_args; i++)
		if (e->args[i]->dims[e->axis] % block != 0)
			return false;
	return true;
}

/* Asked of nodes that move elements, which have arguments. */
static bool args_fit_format(const struct ir_wexpr *e, enum ir_format format)
{
	for (size_t i = 0; i < e->n_args; i++)
		if (!wexpr_fits_format(e->args[i], format))
			return false;
	return true;
}

/* A quantized node has its own format only; zeros are in every quantized format. Values of plain formats survive
 * nodes that move elements, computed values are f32 (PLAIN). */
bool wexpr_fits_format(const struct ir_wexpr *e, enum ir_format format)
{
	const struct ir_format_desc *f = ir_format(format);
	if (e->format != FORMAT_PLAIN)
		return e->format == format;
	if (ir_format_is_quantized(format) && e->kind == WX_FULL)
		return e->value == 0;
	if (ir_format_is_quantized(format))
		return (moves_rows(e) || moves_blocks(e, format)) && args_fit_format(e, format);
	if (e->kind == WX_TENSOR || e->kind == WX_ROUND)
		return e->stored == f->dtype;
	if (e->kind == WX_FULL)
		return ir_round(f->dtype, e->value) == e->value;
	return kinds[e->kind].moves ? args_fit_format(e, format) : format == FORMAT_PLAIN;
}

/* If a quantized format fits all, it is that of the first leaf. If both 2-byte formats fit, it is a constant, which
 * needs no 2-byte storage. */
enum ir_format wexpr_format(const struct ir_wexpr *e)
{
	bool bf16 = wexpr_fits_format(e, FORMAT_BF16), f16 = wexpr_fits_format(e, FORMAT_F16);
	const struct ir_wexpr *leaf = e; /* the first */
	while (leaf->kind != WX_QUANTIZE && leaf->n_args > 0)
		leaf = leaf->args[0];
	enum ir_format quantized = leaf->format;
	if (quantized != FORMAT_PLAIN)
		return wexpr_fits_format(e, quantized) ? quantized : FORMAT_PLAIN;
	return bf16 == f16 ? FORMAT_PLAIN : bf16 ? FORMAT_BF16 : FORMAT_F16;
}

/* Equal except for the arguments and the tensor name; unused fields are 0. value is compared bit by bit: NaN equals
 * itself, -0.0 is not 0.0. */
static bool wexpr_same_node(const struct ir_wexpr *a, const struct ir_wexpr *b)
{
	if (a->kind != b->kind || !same_shape(a, b) || a->n_args != b->n_args || a->axis != b->axis ||
	    a->begin != b->begin || a->end != b->end || memcmp(&a->value, &b->value, sizeof(a->value)) != 0 ||
	    a->layout != b->layout || a->spacing != b->spacing || a->stored != b->stored ||
	    a->format != b->format)
		return false;
	if (a->kind == WX_ROTARY)
		return !memcmp(a->frequencies, b->frequencies, (size_t)a->dims[1] / 2 * sizeof(double));
	return a->kind != WX_TENSOR || !strcmp(a->file, b->file);
}

bool wexpr_equal(const struct ir_wexpr *a, const struct ir_wexpr *b)
{
	if (a == b)
		return true;
	if (!a || !b || !wexpr_same_node(a, b) || (a->kind == WX_TENSOR && strcmp(a->tensor, b->tensor) != 0))
		return false;
	for (size_t i = 0; i < a->n_args; i++)
		if (!wexpr_equal(a->args[i], b->args[i]))
			return false;
	return true;
}

/* ---- text ---- */

/*
 * Canonical text of weight expressions: each has exactly one. A stack whose elements differ only in a number of their
 * tensor names that counts up (layers) is printed once, with {i} for the number; every other stack as a list. Stacks
 * inside of a counted stack are lists, so that {i} has one meaning; a tensor name that contains "{i}" forces the list.
 */

#define PLACEHOLDER "{i}"

/* The number in a tensor name that counts: bytes [begin, end) of the name of element 0, and its value there. */
struct counter {
	size_t begin, end;
	int64_t start;
};

/* The number of name `a` at its first difference from `b`, from its first digit on. False if there is none in
 * canonical form: without leading zeros, as it is printed again, and at most 9 digits, so that counting cannot
 * overflow. */
static bool find_counter(const char *a, const char *b, struct counter *out)
{
	size_t at = 0;
	while (a[at] && a[at] == b[at])
		at++;
	while (at > 0 && char_is_digit(a[at - 1]))
		at--;
	out->begin = at;
	while (char_is_digit(a[at]))
		at++;
	out->end = at;
	size_t n = out->end - out->begin;
	if (n == 0 || n > 9 || (n > 1 && a[out->begin] == '0'))
		return false;
	return number_parse_i64(a + out->begin, n, &out->start);
}

/* True if `name` is `first` with `number` in place of the counter. Digits are written from the end of the array. */
static bool has_number(const char *first, const struct counter *p, int64_t number, const char *name)
{
	char digits[24];
	size_t n = 0;
	do
		digits[sizeof(digits) - ++n] = (char)('0' + number % 10);
	while ((number /= 10) > 0);
	return !strncmp(name, first, p->begin) && !strncmp(name + p->begin, digits + sizeof(digits) - n, n) &&
	       !strcmp(name + p->begin + n, first + p->end);
}

/* Leaves of elements 0, 1 and k of a stack: true if they are the same tensor, or their names count from *start
 * (-1: not known yet), which is one number for all leaves of the stack. */
static bool leaves_count(const struct ir_wexpr *e0, const struct ir_wexpr *e1, const struct ir_wexpr *ek,
                         int64_t k, int64_t *start)
{
	struct counter p;
	if (strstr(e0->tensor, PLACEHOLDER))
		return false;
	if (!strcmp(e0->tensor, e1->tensor))
		return !strcmp(e0->tensor, ek->tensor);
	if (!find_counter(e0->tensor, e1->tensor, &p) || (*start >= 0 && *start != p.start))
		return false;
	*start = p.start;
	return has_number(e0->tensor, &p, p.start + 1, e1->tensor) &&
	       has_number(e0->tensor, &p, p.start + k, ek->tensor);
}

/* Nodes that correspond in elements 0, 1 and k of a stack are equal, and the names of their leaves count
 * (leaves_count). */
static bool elements_count(const struct ir_wexpr *e0, const struct ir_wexpr *e1, const struct ir_wexpr *ek,
                           int64_t k, int64_t *start)
{
	if (!wexpr_same_node(e0, e1) || !wexpr_same_node(e0, ek))
		return false;
	if (e0->kind == WX_TENSOR)
		return leaves_count(e0, e1, ek, k, start);
	for (size_t i = 0; i < e0->n_args; i++)
		if (!elements_count(e0->args[i], e1->args[i], ek->args[i], k, start))
			return false;
	return true;
}

/* True if the stack can be written with {i}; *start is the first number. A stack of equal elements has no counter: a
 * list. */
static bool stack_counts(const struct ir_wexpr *e, int64_t *start)
{
	*start = -1;
	for (size_t k = 1; k < e->n_args; k++)
		if (!elements_count(e->args[0], e->args[1], e->args[k], (int64_t)k, start))
			return false;
	return *start >= 0;
}

static void print_dims(struct buf *out, const struct ir_wexpr *e)
{
	buf_char(out, '[');
	for (int i = 0; i < e->rank; i++)
		buf_printf(out, "%s%" PRId64, i ? "," : "", e->dims[i]);
	buf_char(out, ']');
}

/* A leaf; `next`: the same leaf in element 1 of the enclosing counted stack, which shows the counter; NULL: none. */
static void print_tensor(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next)
{
	struct counter p;
	buf_str(out, "tensor ");
	buf_quoted(out, e->file);
	buf_char(out, ':');
	if (next && strcmp(e->tensor, next->tensor) != 0 && find_counter(e->tensor, next->tensor, &p)) {
		struct buf name;
		buf_init(&name);
		buf_bytes(&name, e->tensor, p.begin);
		buf_str(&name, PLACEHOLDER);
		buf_str(&name, e->tensor + p.end);
		buf_quoted(out, name.data);
		out->failed |= buf_failed(&name);
		buf_destroy(&name);
	} else {
		buf_quoted(out, e->tensor);
	}
	buf_printf(out, " %s",
	           e->format != FORMAT_PLAIN ? ir_format(e->format)->name : ir_dtype_name(e->stored));
	print_dims(out, e);
}

/* `frequencies=[1.0, 0.1]`: one for each pair of columns. */
static void print_frequencies(struct buf *out, const struct ir_wexpr *e)
{
	buf_str(out, "frequencies=[");
	for (int64_t i = 0; i < e->dims[1] / 2; i++) {
		buf_str(out, i ? ", " : "");
		buf_f64(out, e->frequencies[i]);
	}
	buf_char(out, ']');
}

/* `next`: the node of element 1 that corresponds to e, as in print_tensor. */
static void print(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next);

/* `next` is NULL outside of a counted stack. */
static void print_args(struct buf *out, const struct ir_wexpr *e, size_t from, size_t to,
                       const struct ir_wexpr *next)
{
	for (size_t i = from; i < to; i++) {
		buf_str(out, i > from ? ", " : "");
		print(out, e->args[i], next ? next->args[i] : NULL);
	}
}

/* One field of kinds.def; *arg: the next argument. */
static void print_field(struct buf *out, const struct ir_wexpr *e, char field, size_t *arg,
                        const struct ir_wexpr *next)
{
	switch (field) {
	case 'a': buf_printf(out, "%d", e->axis); return;
	case 'b': buf_printf(out, "%" PRId64, e->begin); return;
	case 'e': buf_printf(out, "%" PRId64, e->end); return;
	case 'v': buf_f64(out, e->value); return;
	case 'd': print_dims(out, e); return;
	case 't': buf_str(out, ir_dtype_name(e->stored)); return;
	case 'q': buf_str(out, ir_format(e->format)->name); return;
	case '1':
		print_args(out, e, *arg, *arg + 1, next);
		++*arg;
		return;
	case '*': print_args(out, e, 0, e->n_args, next); return;
	case 'r': buf_printf(out, "rows=%" PRId64, e->dims[0]); return;
	case 'c': buf_printf(out, "dim=%" PRId64, e->dims[1]); return;
	case 'l':
		buf_printf(out, "layout=%s", e->layout == SINUSOID_HALVES ? "halves" : "interleaved");
		return;
	case 's': buf_printf(out, "spacing=%s", e->spacing == SINUSOID_T2T ? "t2t" : "paper"); return;
	case 'n': buf_printf(out, "start=%" PRId64, e->begin); return;
	case 'o':
		buf_str(out, "base=");
		buf_f64(out, e->value);
		return;
	case 'x':
		buf_str(out, "scale=");
		buf_f64(out, e->value);
		return;
	case 'f': print_frequencies(out, e); return;
	}
}

/* A counted stack prints its first element, with element 1 to show the counters. next: the node of element 1 that
 * corresponds to e inside of one, where stacks are lists; NULL: none. */
static void print(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next)
{
	const char *fields = wexpr_fields(e->kind);
	int64_t start;
	size_t arg = 0;
	if (e->kind == WX_TENSOR) {
		print_tensor(out, e, next);
		return;
	}
	buf_printf(out, "%s(", kinds[e->kind].word);
	if (e->kind == WX_STACK && !next && stack_counts(e, &start)) {
		buf_printf(out, "i in %" PRId64 "..%" PRId64 ", ", start, start + (int64_t)e->n_args);
		next = e->args[1];
		print(out, e->args[0], next);
	} else {
		for (size_t i = 0; fields[i] != '\0'; i++) {
			buf_str(out, i > 0 ? ", " : "");
			print_field(out, e, fields[i], &arg, next);
		}
	}
	buf_char(out, ')');
}

void wexpr_print(struct buf *out, const struct ir_wexpr *e)
{
	print(out, e, NULL);
}
