/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants, elementwise operators and reductions of the graph level. A lowering reads its arguments with call_*,
 * which report mistakes, and returns false after a report. call_mixes_axis declares each axis whose positions
 * influence each other: in decode an error for the axis of new tokens; on an axis of the encoder input, padding
 * gets a neutral element.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read; call_return() checks it at the end.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower/lower.h"

/* ---- constants ---- */

/* const([..]): a constant tensor named by a hash of its values, so that equal lists share one weight. */
static bool lower_const_list(const struct call *c, const struct expr *e, struct lowered *out)
{
	struct lowering *lw = c->lw;
	struct arena *a = &lw->m->arena;
	uint64_t hash = HASH64_SEED;
	struct ir_value table;
	if (e->n_args == 0)
		return lower_fail(lw, e->loc, DIAG_VALUE_TYPE, "const wants a number or a list of numbers");
	const struct ir_wexpr **parts = ARENA_ARRAY(a, const struct ir_wexpr *, e->n_args);
	for (size_t i = 0; parts != NULL && i < e->n_args; i++) {
		struct value v;
		double value;
		if (!expr_eval(&lw->env, e->args[i], &v) ||
		    !expr_require_float(&lw->env, e->args[i]->loc, "const", &v, &value))
			return false;
		hash = hash_bytes64(hash, &value, sizeof(value));
		parts[i] = wexpr_full(a, value, 0, NULL);
	}
	const char *name = arena_printf(lw->arena, "const.%zu.%016llx", e->n_args, (unsigned long long)hash);
	return parts != NULL && lower_const_table(lw, name, wexpr_stack(a, e->n_args, parts), &table) &&
	       call_return(c, out, table);
}

/* const(v): an f32 scalar for a number, an f32 vector for a list. */
bool lower_const(const struct call *c, struct lowered *out)
{
	double v = 0.0;
	const struct expr *e = call_arg(c, "value");
	if (e->kind == EX_LIST)
		return lower_const_list(c, e, out);
	return call_float(c, "value", &v) && call_return(c, out, irb_full_of(c->lw->b, v, DT_F32, 0, NULL));
}

/* iota(n, start): i32 of shape n with start, start + 1, .. along axis 0. */
bool lower_iota(const struct call *c, struct lowered *out)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank;
	int64_t start = 0;
	if (!call_dims(c, "n", &rank, dims) || !call_int(c, "start", &start))
		return false;
	struct attrs_iota at = {.dims = {dims, (size_t)rank}, .axis = 0, .start = start};
	return call_return(c, out, irb_iota(c->lw->b, &at));
}

static bool read_sinusoid_words(const struct call *c, const char **layout, const char **spacing)
{
	if (!call_word(c, "layout", layout) || !call_word(c, "spacing", spacing))
		return false;
	if (strcmp(*layout, "halves") != 0 && strcmp(*layout, "interleaved") != 0)
		return lower_fail(c->lw, c->e->loc, DIAG_WORD, "layout is halves or interleaved, found '%s'",
		                  *layout);
	if (strcmp(*spacing, "paper") != 0 && strcmp(*spacing, "t2t") != 0)
		return lower_fail(c->lw, c->e->loc, DIAG_WORD, "spacing is paper or t2t, found '%s'",
		                  *spacing);
	return true;
}

/* sinusoid(len, dim, ..): a constant table [len, dim] of sinusoidal positions. Its name has all arguments, so that
 * equal calls share one weight. */
bool lower_sinusoid(const struct call *c, struct lowered *out)
{
	int64_t len = 0, dim = 0, start = 0;
	double base = 0.0;
	const char *layout = "", *spacing = "";
	if (!call_int(c, "len", &len) || !call_int(c, "dim", &dim) || !call_int(c, "start", &start) ||
	    !call_float(c, "base", &base) || !read_sinusoid_words(c, &layout, &spacing))
		return false;
	struct lowering *lw = c->lw;
	const struct ir_wexpr *e =
	        wexpr_sinusoid(&lw->m->arena, len, dim,
	                       strcmp(layout, "halves") == 0 ? SINUSOID_HALVES : SINUSOID_INTERLEAVED,
	                       strcmp(spacing, "paper") == 0 ? SINUSOID_PAPER : SINUSOID_T2T, start, base);
	if (e == NULL)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "a sinusoid of %lld rows and width %lld is not possible", (long long)len,
		                  (long long)dim);
	const char *name = arena_printf(lw->arena, "sinusoid.%s.%s.%lldx%lld.from%lld", layout, spacing,
	                                (long long)len, (long long)dim, (long long)start);
	if (base != 10000.0) /* the default base is not part of the name */
		name = arena_printf(lw->arena, "%s.base%016llx", name,
		                    (unsigned long long)hash_bytes64(HASH64_SEED, &base, sizeof(base)));
	struct ir_value v;
	return lower_const_table(lw, name, e, &v) && call_return(c, out, v);
}

/* param(path, shape): a parameter of the weight files. */
bool lower_param(const struct call *c, struct lowered *out)
{
	struct weight_request need = {.pattern = NULL};
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_value v;
	if (!call_word(c, "path", &need.pattern) || !call_dims(c, "shape", &need.rank, dims))
		return false;
	for (int i = 0; i < need.rank; i++) {
		if (!ir_dim_is_const(dims[i], &need.dims[i]))
			return lower_fail(c->lw, c->e->loc, DIAG_SHAPE,
			                  "the shape of a parameter must be constant");
	}
	return lower_weight(c->lw, &need, &v) && call_return(c, out, v);
}

/* ---- elementwise ---- */

bool lower_identity(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	return call_tensor(c, "x", &x) && call_return(c, out, x);
}

/* The IR op has the name of the operator (rows `unary` of calls.def). */
bool lower_unary(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	enum ir_opcode code;
	const char *name = c->signature->name;
	return call_tensor(c, "x", &x) && ir_op_find(name, strlen(name), &code) &&
	       call_return(c, out, irb_op1(c->lw->b, code, &x, 1, NULL));
}

/* cap tanh(x / cap); x itself if cap is 0. */
bool lower_softcap(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	double cap = 0.0;
	if (!call_tensor(c, "x", &x) || !call_float(c, "cap", &cap))
		return false;
	return call_return(c, out,
	                   cap == 0.0 ? x : irb_softcap(c->lw->b, x, &(struct attrs_softcap){.c = cap}));
}

/* Reads two operands, of which one may be a scalar, and broadcasts them. */
static bool two_operands(const struct call *c, const char *first, const char *second, struct ir_value *a,
                         struct ir_value *b)
{
	struct lowered x, y;
	const struct expr *ex = call_arg(c, first), *ey = call_arg(c, second);
	if (!lower_expr(c->lw, ex, &x) || !lower_expr(c->lw, ey, &y))
		return false;
	if (x.kind != LOWERED_TENSOR && y.kind != LOWERED_TENSOR)
		return lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE, "%s wants a tensor", c->e->text);
	struct ir_value like = x.kind == LOWERED_TENSOR ? x.v : y.v;
	if (!lower_splat(c->lw, ex->loc, &x, like) || !lower_splat(c->lw, ey->loc, &y, like))
		return false;
	*a = x.v;
	*b = y.v;
	return lower_broadcast_pair(c->lw, c->e->loc, a, b);
}

static bool binary_op(const struct call *c, const char *first, const char *second, enum ir_opcode code,
                      struct lowered *out)
{
	struct ir_value in[2];
	return two_operands(c, first, second, &in[0], &in[1]) &&
	       call_return(c, out, irb_op1(c->lw->b, code, in, 2, NULL));
}

/* pow, minimum, maximum of two operands, of which one may be a number. */
bool lower_pair(const struct call *c, struct lowered *out)
{
	const char *name = c->signature->name;
	enum ir_opcode code = strcmp(name, "pow") == 0       ? OP_pow
	                      : strcmp(name, "minimum") == 0 ? OP_min
	                                                     : OP_max;
	return binary_op(c, "a", "b", code, out);
}

/* clip(x, min, max): x = max(x, min), then x = min(x, max), so that max wins where min exceeds it; one of the limits
 * may be absent. */
bool lower_clip(const struct call *c, struct lowered *out)
{
	struct ir_value x, limit;
	const struct expr *ex = call_arg(c, "x");
	struct ir_builder *b = c->lw->b;
	if (call_arg(c, "min") == NULL && call_arg(c, "max") == NULL)
		return lower_fail(c->lw, c->e->loc, DIAG_MISSING, "clip needs 'min' or 'max'");
	if (!call_tensor(c, "x", &x))
		return false;
	for (int is_max = 0; is_max < 2; is_max++) {
		const struct expr *e = call_arg(c, is_max ? "max" : "min");
		struct lowered v;
		if (e == NULL)
			continue;
		if (!lower_expr(c->lw, e, &v) || !lower_splat(c->lw, e->loc, &v, x))
			return false;
		limit = v.v;
		if (!lower_broadcast_pair(c->lw, ex->loc, &x, &limit))
			return false;
		x = is_max ? irb_min(b, x, limit, NULL) : irb_max(b, x, limit, NULL);
	}
	return call_return(c, out, x);
}

/* x where it is positive, else slope x, as a select: the IR has no such op. */
bool lower_leaky_relu(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	double slope = 0.0;
	struct ir_builder *b = c->lw->b;
	if (!call_tensor(c, "x", &x) || !call_float(c, "slope", &slope))
		return false;
	const struct ir_type *t = call_type(c, x);
	if (ir_dtype_class(t->dtype) != DTCLASS_FLOAT)
		return lower_fail(c->lw, c->e->loc, DIAG_DTYPE, "leaky_relu wants floats, found %s",
		                  type_to_string(c->lw, x));
	struct ir_value zero = irb_full_of(b, 0.0, t->dtype, t->rank, t->dims);
	struct ir_value positive = irb_cmp(b, x, zero, &(struct attrs_cmp){.kind = CMP_gt});
	return call_return(c, out, irb_where(b, positive, x, irb_scale_by(b, x, slope), NULL));
}

static bool is_16_bit_float(enum ir_dtype t)
{
	return t == DT_F16 || t == DT_BF16;
}

/* log10 x = log(x) / log(10), since the IR has the natural logarithm only. f16 and bf16 are computed in f32, so that
 * the result is rounded once. */
bool lower_log10(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	struct ir_builder *b = c->lw->b;
	if (!call_tensor(c, "x", &x))
		return false;
	enum ir_dtype dtype = call_type(c, x)->dtype;
	if (is_16_bit_float(dtype))
		x = irb_cast(b, x, &(struct attrs_cast){.dtype = DT_F32});
	x = irb_scale_by(b, irb_log(b, x, NULL), 0.43429448190325182765);
	return call_return(c, out,
	                   is_16_bit_float(dtype) ? irb_cast(b, x, &(struct attrs_cast){.dtype = dtype}) : x);
}

/* where(c, a, b) with the common shape of all three. */
bool lower_where(const struct call *c, struct lowered *out)
{
	struct ir_value cond, a, b;
	if (!call_tensor(c, "c", &cond) || !two_operands(c, "a", "b", &a, &b))
		return false;
	/* each pair broadcasts two of three operands; after the fourth all have one shape */
	if (!lower_broadcast_pair(c->lw, c->e->loc, &cond, &a) ||
	    !lower_broadcast_pair(c->lw, c->e->loc, &cond, &b) ||
	    !lower_broadcast_pair(c->lw, c->e->loc, &a, &b) ||
	    !lower_broadcast_pair(c->lw, c->e->loc, &cond, &a))
		return false;
	return call_return(c, out, irb_where(c->lw->b, cond, a, b, NULL));
}

/* cast(x, dtype): dtype is a word such as f16. */
bool lower_cast(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	const char *word = "";
	enum ir_dtype dtype;
	if (!call_tensor(c, "x", &x) || !call_word(c, "dtype", &word))
		return false;
	if (!ir_dtype_parse(word, strlen(word), &dtype))
		return lower_fail(c->lw, c->e->loc, DIAG_WORD, "'%s' is not an element type", word);
	return call_return(c, out, irb_cast(c->lw->b, x, &(struct attrs_cast){.dtype = dtype}));
}

/* ---- reductions ---- */

/* Reads `axis`, an int or a list of ints of which negative ones count from the end, into axes[*n] in ascending order,
   as reductions require, and declares each to call_mixes_axis, which may put neutral elements into *x. False after a
   report. */
static bool read_axes(const struct call *c, struct ir_value *x, enum call_fill fill, int64_t *axes, size_t *n)
{
	const struct expr *e = call_arg(c, "axis");
	int rank = call_type(c, *x)->rank;
	*n = e->kind == EX_LIST ? e->n_args : 1;
	if (*n == 0 || *n > (size_t)rank)
		return lower_fail(c->lw, e->loc, DIAG_SHAPE, "%zu axes of %s", *n, type_to_string(c->lw, *x));
	for (size_t i = 0; i < *n; i++) {
		struct value v;
		const struct expr *item = e->kind == EX_LIST ? e->args[i] : e;
		if (!expr_eval(&c->lw->env, item, &v) ||
		    !expr_require_int(&c->lw->env, item->loc, "axis", &v, &axes[i]))
			return false;
		axes[i] += axes[i] < 0 ? rank : 0;
		if (axes[i] < 0 || axes[i] >= rank)
			return lower_fail(c->lw, e->loc, DIAG_SHAPE, "axis %lld of %s", (long long)axes[i],
			                  type_to_string(c->lw, *x));
		if (!call_mixes_axis(c, x, axes[i], fill))
			return false;
		for (size_t k = i; k > 0 && axes[k - 1] > axes[k]; k--) {
			int64_t t = axes[k];
			axes[k] = axes[k - 1];
			axes[k - 1] = t;
		}
	}
	return true;
}

/* Ints become f32, the type of their mean. */
static struct ir_value int_to_float(const struct call *c, struct ir_value x)
{
	if (ir_dtype_class(call_type(c, x)->dtype) != DTCLASS_INT)
		return x;
	return irb_cast(c->lw->b, x, &(struct attrs_cast){.dtype = DT_F32});
}

/* The mean; along axes of the source the divisor is the real size of each sequence's source, as read_axes() has put
 * zeros past its end. */
static bool mean_over_real_length(const struct call *c, struct ir_value x, const struct attrs_reduce_sum *sum,
                                  struct lowered *out)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = call_type(c, x);
	const struct ir_dim *d = ir_dim_const(lw->module->dims, 1);
	struct attrs_reduce_mean mean = {.axes = sum->axes, .keep = sum->keep};
	struct ir_value n;
	for (size_t i = 0; i < sum->axes.n; i++)
		d = ir_dim_mul(lw->module->dims, d, t->dims[sum->axes.items[i]]);
	if (!lower_is_source(lw, d))
		return call_return(c, out, irb_reduce_mean(lw->b, x, &mean));
	x = irb_reduce_sum(lw->b, x, sum);
	if (irb_failed(lw->b) || !lower_broadcast_source_size(lw, c->e->loc, d, call_type(c, x), &n))
		return false;
	n = irb_cast(lw->b, n, &(struct attrs_cast){.dtype = t->dtype});
	return call_return(c, out, irb_div(lw->b, x, n, NULL));
}

/* sum, mean, max or min along axes; `fill` is the element that does not change the result. */
bool lower_reduce(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	int64_t axes[IR_RANK_MAX];
	size_t n;
	bool keep = false;
	const char *name = c->signature->name;
	enum call_fill fill = strcmp(name, "max") == 0   ? FILL_LOWEST
	                      : strcmp(name, "min") == 0 ? FILL_HIGHEST
	                                                 : FILL_ZERO;
	if (!call_tensor(c, "x", &x) || !read_axes(c, &x, fill, axes, &n) || !call_bool(c, "keep", &keep))
		return false;
	struct attrs_reduce_sum sum = {.axes = {axes, n}, .keep = keep};
	struct attrs_reduce_max max = {.axes = {axes, n}, .keep = keep};
	struct attrs_reduce_min min = {.axes = {axes, n}, .keep = keep};
	if (strcmp(name, "sum") == 0)
		return call_return(c, out, irb_reduce_sum(c->lw->b, x, &sum));
	if (strcmp(name, "mean") == 0)
		return mean_over_real_length(c, int_to_float(c, x), &sum, out);
	return call_return(c, out,
	                   strcmp(name, "max") == 0 ? irb_reduce_max(c->lw->b, x, &max)
	                                            : irb_reduce_min(c->lw->b, x, &min));
}

/* Distinguishes elementwise max(a, b) from the reduction max(x, axis), whose signature both have: the second argument
 * is a tensor or a float, or the first is a number. An int or a list of ints is an axis; a name as first argument may
 * be a word, which is no number. False after a report. */
static bool is_elementwise_extreme(const struct call *c, bool *is_elementwise)
{
	struct lowered v;
	const struct expr *first = call_arg(c, "x"), *second = call_arg(c, "axis");
	*is_elementwise = false;
	if (c->e->n_args != 2 || c->e->n_keywords != 0 || second->kind == EX_LIST)
		return true;
	if (!lower_expr(c->lw, first, &v))
		return false;
	*is_elementwise = v.kind == LOWERED_SCALAR && v.s.kind != VALUE_STRING;
	if (*is_elementwise)
		return true;
	if (!lower_expr(c->lw, second, &v))
		return false;
	*is_elementwise = v.kind == LOWERED_TENSOR || (v.kind == LOWERED_SCALAR && v.s.kind == VALUE_FLOAT);
	return true;
}

bool lower_extreme(const struct call *c, struct lowered *out)
{
	bool is_elementwise, is_max = strcmp(c->signature->name, "max") == 0;
	return is_elementwise_extreme(c, &is_elementwise) &&
	       (is_elementwise ? binary_op(c, "x", "axis", is_max ? OP_max : OP_min, out)
	                       : lower_reduce(c, out));
}

/* Padding of a source gets the lowest value; it wins no tie, as the first of equal elements counts. */
bool lower_argmax(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	int64_t axis = 0;
	if (!call_tensor(c, "x", &x) || !call_axis(c, "axis", call_type(c, x)->rank, &axis) ||
	    !call_mixes_axis(c, &x, axis, FILL_LOWEST))
		return false;
	return call_return(c, out, irb_argmax(c->lw->b, x, &(struct attrs_argmax){.axis = axis}));
}

/* softmax or log_softmax along an axis. The IR ops work on the last axis: another one is swapped with it and back. */
bool lower_softmax(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	int64_t axis = 0, perm[IR_RANK_MAX];
	if (!call_tensor(c, "x", &x))
		return false;
	int rank = call_type(c, x)->rank;
	if (!call_axis(c, "axis", rank, &axis) || !call_mixes_axis(c, &x, axis, FILL_LOWEST))
		return false;
	for (int i = 0; i < rank; i++)
		perm[i] = i;
	perm[axis] = rank - 1;
	perm[rank - 1] = axis;
	bool last = axis == rank - 1;
	struct ir_value t = last ? x : irb_transpose_by(c->lw->b, x, rank, perm);
	t = strcmp(c->e->text, "softmax") == 0 ? irb_softmax(c->lw->b, t, NULL)
	                                       : irb_log_softmax(c->lw->b, t, NULL);
	return call_return(c, out, last ? t : irb_transpose_by(c->lw->b, t, rank, perm));
}

/* m, or 0 where it is infinite: subtracting an infinite maximum would give NaN. */
static struct ir_value zero_if_infinite(const struct call *c, struct ir_value m)
{
	struct ir_builder *b = c->lw->b;
	const struct ir_type *t = call_type(c, m);
	if (t == NULL)
		return m;
	struct ir_value is_max = irb_full_of(b, HUGE_VAL, t->dtype, t->rank, t->dims);
	struct ir_value zero = irb_full_of(b, 0.0, t->dtype, t->rank, t->dims);
	struct ir_value is_infinite =
	        irb_cmp(b, irb_abs(b, m, NULL), is_max, &(struct attrs_cmp){.kind = CMP_eq});
	return irb_where(b, is_infinite, zero, m, NULL);
}

/* m + log(sum(exp(x - m))) with m the maximum; f16 and bf16 are computed in f32, so that the result is rounded
 * once. */
bool lower_logsumexp(const struct call *c, struct lowered *out)
{
	struct ir_value x, m, max_broadcast;
	int64_t axes[IR_RANK_MAX];
	size_t n;
	bool keep = false;
	struct ir_builder *b = c->lw->b;
	if (!call_tensor(c, "x", &x) || !read_axes(c, &x, FILL_LOWEST, axes, &n) ||
	    !call_bool(c, "keep", &keep))
		return false;
	enum ir_dtype dtype = call_type(c, x)->dtype;
	if (is_16_bit_float(dtype))
		x = irb_cast(b, x, &(struct attrs_cast){.dtype = DT_F32});
	m = irb_reduce_max(b, x, &(struct attrs_reduce_max){.axes = {axes, n}, .keep = true});
	m = zero_if_infinite(c, m);
	max_broadcast = m;
	struct ir_value full = x;
	if (!lower_broadcast_pair(c->lw, c->e->loc, &full, &max_broadcast))
		return false;
	struct ir_value s = irb_exp(b, irb_sub(b, x, max_broadcast, NULL), NULL);
	s = irb_add(b,
	            irb_log(b,
	                    irb_reduce_sum(b, s, &(struct attrs_reduce_sum){.axes = {axes, n}, .keep = true}),
	                    NULL),
	            m, NULL);
	if (!keep) /* the axes have size 1: a sum removes them */
		s = irb_reduce_sum(b, s, &(struct attrs_reduce_sum){.axes = {axes, n}, .keep = false});
	return call_return(c, out,
	                   is_16_bit_float(dtype) ? irb_cast(b, s, &(struct attrs_cast){.dtype = dtype}) : s);
}
