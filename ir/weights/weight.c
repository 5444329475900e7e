/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Construction, formats and equality of weight expressions. Every constructor checks its shape, that byte sizes fit
 * 64 bits, and that the tree is at most WEXPR_DEPTH_MAX high; evaluation and printing can then recurse without
 * checks.
 */
#include "ir/weights/weight.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ir/support/checked.h"

static const struct {
	const char *word, *fields;
	bool moves;
} kinds[] = {
#define WX(kind, word, moves, fields) [WX_##kind] = {#word, fields, moves},
#include "ir/weights/kinds.def"
#undef WX
};

const char *wexpr_keyword(enum ir_wexpr_kind kind)
{
	return kinds[kind].word;
}

const char *wexpr_fields(enum ir_wexpr_kind kind)
{
	return kinds[kind].fields;
}

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

/* A node without arguments; NULL if the shape does not fit. */
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

/* Copies the arguments to e; false if one is NULL or the tree becomes too high. */
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

/* Adds the size of `arg` along `axis` to dims; false if another axis differs. */
static bool add_concat_size(int64_t *dims, int rank, int axis, const struct ir_wexpr *arg)
{
	if (!arg || arg->rank != rank)
		return false;
	for (int i = 0; i < rank; i++)
		if (i != axis && arg->dims[i] != dims[i])
			return false;
	return checked_add_i64(dims[axis], arg->dims[axis], &dims[axis]);
}

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

const struct ir_wexpr *wexpr_transpose(struct arena *a, const struct ir_wexpr *arg)
{
	if (!arg)
		return NULL;
	int64_t dims[IR_RANK_MAX] = {0};
	memcpy(dims, arg->dims, sizeof(dims));
	if (arg->rank >= 2) {
		dims[arg->rank - 1] = arg->dims[arg->rank - 2];
		dims[arg->rank - 2] = arg->dims[arg->rank - 1];
	}
	return make1(a, WX_TRANSPOSE, arg->rank, dims, arg);
}

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
	int rank = y->rank;
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

const struct ir_wexpr *wexpr_columns(struct arena *a, const struct ir_wexpr *e, const struct ir_wexpr *order)
{
	if (!e || !order || e->rank < 1 || order->rank != 1 || order->dims[0] != e->dims[e->rank - 1])
		return NULL;
	struct ir_wexpr *c = make(a, WX_COLUMNS, e->rank, e->dims);
	return c && set_args(a, c, 2, (const struct ir_wexpr *const[]){e, order}) ? c : NULL;
}

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
	case WX_COLUMNS: return wexpr_columns(a, x, e->n_args > 1 ? e->args[1] : NULL);
	case WX_ROUND: return wexpr_round(a, e->stored, x);
	case WX_QUANTIZE:
		return e->n_args > 2 ? NULL
		                     : wexpr_quantize(a, e->format, x, e->n_args > 1 ? e->args[1] : NULL);
	}
	return NULL;
}

/* A copy of e with rounded arguments. */
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

/* The node moves full rows of the last axis. */
static bool moves_rows(const struct ir_wexpr *e)
{
	switch (e->kind) {
	case WX_STACK: return true;
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
	case WX_COLUMNS:
	case WX_ROUND:
	case WX_QUANTIZE: break;
	}
	return false;
}

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

static bool args_fit_format(const struct ir_wexpr *e, enum ir_format format)
{
	for (size_t i = 0; i < e->n_args; i++)
		if (!wexpr_fits_format(e->args[i], format))
			return false;
	return true;
}

bool wexpr_fits_format(const struct ir_wexpr *e, enum ir_format format)
{
	const struct ir_format_desc *f = ir_format(format);
	if (e->format != FORMAT_PLAIN)
		return e->format == format;
	if (ir_format_is_quantized(format))
		return moves_rows(e) && args_fit_format(e, format);
	if (e->kind == WX_TENSOR || e->kind == WX_ROUND)
		return e->stored == f->dtype;
	if (e->kind == WX_FULL)
		return ir_round(f->dtype, e->value) == e->value;
	return kinds[e->kind].moves ? args_fit_format(e, format) : format == FORMAT_PLAIN;
}

/* The quantized format of the first leaf, or PLAIN. */
static enum ir_format first_format(const struct ir_wexpr *e)
{
	while (e->kind != WX_QUANTIZE && e->n_args > 0)
		e = e->args[0];
	return e->format;
}

enum ir_format wexpr_format(const struct ir_wexpr *e)
{
	bool bf16 = wexpr_fits_format(e, FORMAT_BF16), f16 = wexpr_fits_format(e, FORMAT_F16);
	enum ir_format quantized = first_format(e);
	if (quantized != FORMAT_PLAIN)
		return wexpr_fits_format(e, quantized) ? quantized : FORMAT_PLAIN;
	return bf16 == f16 ? FORMAT_PLAIN : bf16 ? FORMAT_BF16 : FORMAT_F16;
}

bool wexpr_same_node(const struct ir_wexpr *a, const struct ir_wexpr *b)
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
