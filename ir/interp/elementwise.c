/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: elementwise ops, reductions, scans and selections. Floats in f64; integers modulo 2^64, then wrapped
 * to their width. INTERP_EVAL(op) is the handler of an op: x[i] are its operands (NULL: absent), out its results,
 * allocated and zero. Elements are doubles; those of i64 also have their exact value (interp_get_int,
 * interp_set_int).
 */
#include "ir/interp/interp_internal.h"
#include "ir/support/memory.h"
#include "ir/support/number.h"

#include <math.h>
#include <stdlib.h>

static bool is_int(const struct interp_tensor *t)
{
	return ir_dtype_class(t->dtype) == DTCLASS_INT;
}

/* ---- one operand ---- */

static double sigmoid(double v)
{
	return 1 / (1 + exp(-v));
}

static double gelu_tanh(double v)
{
	return v / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
}

/* max(v, 0), NaN stays NaN. */
static double relu(double v)
{
	return v <= 0 ? 0 : v;
}

#define UNARY(name, expr)                                        \
	INTERP_EVAL(name)                                        \
	{                                                        \
		for (int64_t i = 0; i < interp_size(out); i++) { \
			double v = x[0]->data[i];                \
			out->data[i] = (expr);                   \
		}                                                \
		return TFMC_OK;                                  \
	}

#define UNARY_NUMBER(name, expr, int_expr)                                                   \
	INTERP_EVAL(name)                                                                    \
	{                                                                                    \
		for (int64_t i = 0; i < interp_size(out); i++) {                             \
			double v = x[0]->data[i];                                            \
			int64_t n = is_int(x[0]) ? interp_get_int(x[0], i) : 0;              \
			out->data[i] = (expr);                                               \
			if (is_int(x[0]))                                                    \
				interp_set_int(out, i, interp_wrap(out->dtype, (int_expr))); \
		}                                                                            \
		return TFMC_OK;                                                              \
	}

UNARY_NUMBER(neg, -v, 0 - (uint64_t)n)
UNARY_NUMBER(abs, fabs(v), n < 0 ? 0 - (uint64_t)n : (uint64_t)n)
UNARY(exp, exp(v))
UNARY(log, log(v))
UNARY(sqrt, sqrt(v))
UNARY(rsqrt, 1 / sqrt(v))
UNARY(sin, sin(v))
UNARY(cos, cos(v))
UNARY(tanh, tanh(v))
UNARY(erf, erf(v))
UNARY(floor, floor(v))
UNARY(ceil, ceil(v))
UNARY(sigmoid, sigmoid(v))
UNARY(relu, relu(v))
UNARY(relu2, relu(v) * relu(v))
UNARY(gelu, v == -HUGE_VAL ? -0.0 : v / 2 * (1 + erf(v / sqrt(2))))
UNARY(gelu_tanh, gelu_tanh(v))
UNARY(gelu_quick, v *sigmoid(1.702 * v))
UNARY(silu, v *sigmoid(v))
UNARY(scale, v *((const struct attrs_scale *)op->attrs)->f)
UNARY(softcap, interp_softcap(v, ((const struct attrs_softcap *)op->attrs)->c))
UNARY(not, v == 0)

/* n as a double by round-to-odd: the bits beyond 53 are shifted out, and the last bit is set if one was lost.
 * Rounding it again to a float of at most 51 mantissa bits gives the correctly rounded n. */
static double round_to_odd(int64_t n)
{
	uint64_t v = n < 0 ? 0 - (uint64_t)n : (uint64_t)n, lost = 0;
	int shift = 0;
	for (; v >> 53 != 0; shift++, v >>= 1)
		lost |= v & 1;
	double d = ldexp((double)(v | lost), shift);
	return n < 0 ? -d : d;
}

/* Float to int truncates here; rounding to the result type follows in interp.c. An i64 that becomes a smaller float
 * would be rounded twice, hence round-to-odd. */
static double cast(const struct interp_tensor *x, int64_t i, enum ir_dtype to)
{
	bool rounds_again = ir_dtype_class(to) == DTCLASS_FLOAT && to != DT_F64;
	if (x->exact && rounds_again)
		return round_to_odd(interp_get_int(x, i));
	return ir_dtype_class(to) == DTCLASS_INT ? trunc(x->data[i]) : x->data[i];
}

/* From int to int modulo 2^width, exactly; all other casts through double. */
INTERP_EVAL(cast)
{
	for (int64_t i = 0; i < interp_size(out); i++)
		if (is_int(x[0]) && is_int(out))
			interp_set_int(out, i, interp_get_int(x[0], i));
		else
			out->data[i] = cast(x[0], i, out->dtype);
	return TFMC_OK;
}

/* ---- two operands ---- */

static double smaller(double a, double b)
{
	return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
}

static double larger(double a, double b)
{
	return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
}

#define COMPARE(name, type)                                        \
	static bool name(enum ir_keyword_cmp kind, type a, type b) \
	{                                                          \
		switch (kind) {                                    \
		case CMP_lt: return a < b;                         \
		case CMP_le: return a <= b;                        \
		case CMP_gt: return a > b;                         \
		case CMP_ge: return a >= b;                        \
		case CMP_eq: return a == b;                        \
		case CMP_ne: return a != b;                        \
		}                                                  \
		return false;                                      \
	}

COMPARE(compare, double)
COMPARE(compare_ints, int64_t)

/* Floor division; number_floor_mod is its remainder. a - r is a multiple of b, so the quotient is an integer but for
 * rounding, which `round` removes. */
static double float_quotient(double a, double b)
{
	double r = fmod(a, b), q = (a - r) / b;
	if (b == 0 || isinf(a))
		return a / b;
	return round(r != 0 && (r < 0) != (b < 0) ? q - 1 : q);
}

/* The integer versions, modulo 2^64; 0 if y is 0. */
static uint64_t int_quotient(int64_t x, int64_t y)
{
	if (y == 0)
		return 0;
	if (y == -1)
		return 0 - (uint64_t)x;
	return (uint64_t)(x / y - (x % y != 0 && (x < 0) != (y < 0)));
}

static uint64_t int_remainder(int64_t x, int64_t y)
{
	int64_t r = y == 0 || y == -1 ? 0 : x % y;
	return (uint64_t)(r != 0 && (r < 0) != (y < 0) ? r + y : r);
}

/* x^n modulo 2^64 by repeated squaring. */
static uint64_t int_power(int64_t x, int64_t n)
{
	uint64_t base = (uint64_t)x, r = 1;
	if (n < 0) /* 1 / x^-n toward zero */
		return x == 1 || (x == -1 && n % 2 == 0) ? 1 : x == -1 ? UINT64_MAX : 0;
	for (; n > 0; n /= 2, base *= base)
		r *= n % 2 != 0 ? base : 1;
	return r;
}

#define BINARY(name, expr)                                           \
	INTERP_EVAL(name)                                            \
	{                                                            \
		for (int64_t i = 0; i < interp_size(out); i++) {     \
			double a = x[0]->data[i], b = x[1]->data[i]; \
			out->data[i] = (expr);                       \
		}                                                    \
		return TFMC_OK;                                      \
	}

#define BINARY_NUMBER(name, expr, int_expr)                                               \
	INTERP_EVAL(name)                                                                 \
	{                                                                                 \
		for (int64_t i = 0; i < interp_size(out); i++) {                          \
			double a = x[0]->data[i], b = x[1]->data[i];                      \
			if (!is_int(x[0])) {                                              \
				out->data[i] = (expr);                                    \
				continue;                                                 \
			}                                                                 \
			int64_t n = interp_get_int(x[0], i), m = interp_get_int(x[1], i); \
			interp_set_int(out, i, interp_wrap(out->dtype, (int_expr)));      \
		}                                                                         \
		return TFMC_OK;                                                           \
	}

BINARY_NUMBER(add, a + b, (uint64_t)n + (uint64_t)m)
BINARY_NUMBER(sub, a - b, (uint64_t)n - (uint64_t)m)
BINARY_NUMBER(mul, a *b, (uint64_t)n *(uint64_t)m)
BINARY(div, a / b)
BINARY_NUMBER(floor_div, float_quotient(a, b), int_quotient(n, m))
BINARY_NUMBER(mod, number_floor_mod(a, b), int_remainder(n, m))
BINARY_NUMBER(pow, pow(a, b), int_power(n, m))
BINARY_NUMBER(min, smaller(a, b), (uint64_t)(n < m ? n : m))
BINARY_NUMBER(max, larger(a, b), (uint64_t)(n > m ? n : m))
BINARY(and, a != 0 && b != 0)
BINARY(or, a != 0 || b != 0)

/* Integers are compared exactly, also i64 that are no doubles. */
INTERP_EVAL(cmp)
{
	enum ir_keyword_cmp kind = (enum ir_keyword_cmp)((const struct attrs_cmp *)op->attrs)->kind;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = is_int(x[0])
		                       ? compare_ints(kind, interp_get_int(x[0], i), interp_get_int(x[1], i))
		                       : compare(kind, x[0]->data[i], x[1]->data[i]);
	return TFMC_OK;
}

INTERP_EVAL(where)
{
	for (int64_t i = 0; i < interp_size(out); i++)
		interp_copy(out, i, x[0]->data[i] != 0 ? x[1] : x[2], i, 1);
	return TFMC_OK;
}

/* x [B, S, ...], len [B]: rows s >= len[b] stay 0. */
INTERP_EVAL(mask_rows)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		bool inside = (double)index[1] < x[1]->data[index[0]];
		if (inside)
			interp_copy(out, i, x[0], i, 1);
	}
	return TFMC_OK;
}

/* ---- reductions, scans, selections ---- */

/*
 * Interpreter: reductions, reductions of blocks, scans and selections. A reduction folds every element of x into the
 * element of the result with its index on the remaining axes.
 */

/* stride[i]: distance in the result between neighbours along axis i of x; 0 for reduced axes. */
static void result_strides(const struct interp_tensor *x, const struct ir_int_list *axes,
                           int64_t stride[IR_RANK_MAX])
{
	bool reduced[IR_RANK_MAX] = {0};
	for (size_t i = 0; i < axes->n; i++)
		reduced[interp_axis(x, axes->items[i])] = true;
	int64_t step = 1;
	for (int i = x->rank - 1; i >= 0; i--) {
		stride[i] = reduced[i] ? 0 : step;
		step *= reduced[i] ? 1 : x->dims[i];
	}
}

static double fold_sum(double a, double b)
{
	return a + b;
}

static double fold_max(double a, double b)
{
	return isnan(a) || a > b ? a : b;
}

static double fold_min(double a, double b)
{
	return isnan(a) || a < b ? a : b;
}

static int64_t fold_int_sum(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t fold_int_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t fold_int_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* A reduction: identity element and operation, of floats and of ints. */
struct reduction {
	double first;
	double (*fold)(double, double);
	int64_t first_int;
	int64_t (*fold_int)(int64_t, int64_t);
};

static const struct reduction reduction_sum = {0, fold_sum, 0, fold_int_sum};
static const struct reduction reduction_max = {-HUGE_VAL, fold_max, INT64_MIN, fold_int_max};
static const struct reduction reduction_min = {HUGE_VAL, fold_min, INT64_MAX, fold_int_min};

/* Wraps after every operation: intermediate sums must not saturate as doubles would. */
static void fold_int(const struct reduction *f, int64_t v, struct interp_tensor *out, int64_t at)
{
	int64_t r = f->fold_int(interp_get_int(out, at), v);
	interp_set_int(out, at, interp_wrap(out->dtype, (uint64_t)r));
}

/* Folds all elements of x into out, from the identity of f, which is the result of no elements; ints exactly, modulo
 * their width. */
static void reduce(const struct interp_tensor *x, const struct ir_int_list *axes, const struct reduction *f,
                   struct interp_tensor *out)
{
	int64_t stride[IR_RANK_MAX], index[IR_RANK_MAX];
	bool is_int = ir_dtype_class(out->dtype) == DTCLASS_INT;
	result_strides(x, axes, stride);
	for (int64_t i = 0; i < interp_size(out); i++)
		if (is_int)
			interp_set_int(out, i, f->first_int);
		else
			out->data[i] = f->first;
	for (int64_t i = 0; i < interp_size(x); i++) {
		int64_t at = 0;
		interp_unravel(x, i, index);
		for (int k = 0; k < x->rank; k++)
			at += index[k] * stride[k];
		if (is_int)
			fold_int(f, interp_get_int(x, i), out, at);
		else
			out->data[at] = f->fold(out->data[at], x->data[i]);
	}
}

INTERP_EVAL(reduce_sum)
{
	reduce(x[0], &((const struct attrs_reduce_sum *)op->attrs)->axes, &reduction_sum, out);
	return TFMC_OK;
}

/* The sum over the axes divided by the number of elements that it adds. */
INTERP_EVAL(reduce_mean)
{
	const struct ir_int_list *axes = &((const struct attrs_reduce_mean *)op->attrs)->axes;
	double count = 1;
	reduce(x[0], axes, &reduction_sum, out);
	for (size_t i = 0; i < axes->n; i++)
		count *= (double)x[0]->dims[interp_axis(x[0], axes->items[i])];
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] /= count;
	return TFMC_OK;
}

INTERP_EVAL(reduce_max)
{
	reduce(x[0], &((const struct attrs_reduce_max *)op->attrs)->axes, &reduction_max, out);
	return TFMC_OK;
}

INTERP_EVAL(reduce_min)
{
	reduce(x[0], &((const struct attrs_reduce_min *)op->attrs)->axes, &reduction_min, out);
	return TFMC_OK;
}

static bool is_larger(const struct interp_tensor *x, int64_t i, int64_t j)
{
	return x->exact ? interp_get_int(x, i) > interp_get_int(x, j) : x->data[i] > x->data[j];
}

/* Lowest index of the largest of n elements from position `at` on, `stride` apart; NaN is ignored, 0 if all are NaN. */
static int64_t argmax_strided(const struct interp_tensor *x, int64_t at, int64_t n, int64_t stride)
{
	int64_t best = -1;
	for (int64_t i = 0; i < n; i++)
		if (!isnan(x->data[at + i * stride]) &&
		    (best < 0 || is_larger(x, at + i * stride, at + best * stride)))
			best = i;
	return best < 0 ? 0 : best;
}

/* x [outer, n, inner] around the axis; the result is [outer, inner]. */
INTERP_EVAL(argmax)
{
	int axis = interp_axis(x[0], ((const struct attrs_argmax *)op->attrs)->axis);
	int64_t n = x[0]->dims[axis], inner = interp_span(x[0], axis + 1, x[0]->rank);
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = (double)argmax_strided(x[0], i / inner * n * inner + i % inner, n, inner);
	return TFMC_OK;
}

/* ---- blocks of the last axis: x [..,V] -> [..,k,n], value k of block n ---- */

/* x [rows, columns] in n blocks. */
struct blocks {
	int64_t rows, columns, width, n;
};

static struct blocks blocks_of(const struct interp_tensor *x, int64_t width)
{
	int64_t columns = x->dims[x->rank - 1];
	return (struct blocks){interp_span(x, 0, x->rank - 1), columns, width, (columns - 1) / width + 1};
}

static int64_t block_end(const struct blocks *s, int64_t block)
{
	int64_t end = (block + 1) * s->width;
	return end < s->columns ? end : s->columns;
}

/* Maximum and its column for each block: out [rows, 2, n]. Ties to the lowest column, NaN only if all are. */
INTERP_EVAL(block_argmax)
{
	const struct blocks s = blocks_of(x[0], ((const struct attrs_block_argmax *)op->attrs)->width);
	for (int64_t i = 0; i < s.rows * s.n; i++) {
		int64_t row = i / s.n, block = i % s.n, best = block * s.width;
		const double *v = x[0]->data + row * s.columns;
		for (int64_t c = best; c < block_end(&s, block); c++)
			if (v[c] > v[best] || (isnan(v[best]) && !isnan(v[c])))
				best = c;
		out->data[2 * row * s.n + block] = v[best];
		out->data[(2 * row + 1) * s.n + block] = (double)best;
	}
	return TFMC_OK;
}

/* Partial log-softmax of a block of n columns: maximum m, sum(exp(x - m)), and x[at] - m if it contains column
 * `at`, else -inf. A block of -inf only has the sum 1 and no shift, so that combining blocks gives no NaN. */
static void score_block(const double *x, int64_t n, int64_t at, double out[3])
{
	double m = -HUGE_VAL, sum = 0;
	for (int64_t i = 0; i < n; i++)
		m = x[i] > m ? x[i] : m;
	double shift = m == -HUGE_VAL ? 0 : m;
	for (int64_t i = 0; i < n; i++)
		sum += exp(x[i] - shift);
	out[0] = m;
	out[1] = sum == 0 ? 1 : sum;
	out[2] = at < 0 || at >= n ? -HUGE_VAL : sum == 0 ? 0 : x[at] - shift;
}

/* x [rows, V], at [rows]: score_block for each block: out [rows, 3, n]. at: a column of all of V, so relative to the
 * block it may be outside. */
INTERP_EVAL(block_log_softmax)
{
	const struct blocks s = blocks_of(x[0], ((const struct attrs_block_log_softmax *)op->attrs)->width);
	for (int64_t i = 0; i < s.rows * s.n; i++) {
		int64_t row = i / s.n, block = i % s.n, first = block * s.width;
		int64_t at = interp_clamp(f64_to_i64(x[1]->data[row]), 0, s.columns - 1);
		double three[3];
		score_block(x[0]->data + row * s.columns + first, block_end(&s, block) - first, at - first,
		            three);
		for (int64_t k = 0; k < 3; k++)
			out->data[(3 * row + k) * s.n + block] = three[k];
	}
	return TFMC_OK;
}

/* ---- scans and selections along a row ---- */

/* x [rows, n]: sums from the begin of each row; ints wrap, so the sum so far is in the result. */
INTERP_EVAL(cumsum)
{
	int64_t n = x[0]->dims[x[0]->rank - 1];
	bool is_int = ir_dtype_class(out->dtype) == DTCLASS_INT;
	for (int64_t i = 0; i < interp_size(out); i++) {
		bool is_first = i % n == 0;
		if (is_int) {
			uint64_t sum = is_first ? 0 : (uint64_t)interp_get_int(out, i - 1);
			sum += (uint64_t)interp_get_int(x[0], i);
			interp_set_int(out, i, interp_wrap(out->dtype, sum));
		} else {
			out->data[i] = (is_first ? 0 : out->data[i - 1]) + x[0]->data[i];
		}
	}
	return TFMC_OK;
}

/* An element of a row. */
struct element {
	double value;
	int64_t exact; /* of ints, else 0 */
	int64_t index;
};

/* qsort order: descending, ties by lower index, NaN last. `exact` decides between i64 with equal doubles. */
static int compare_descending(const void *first, const void *second)
{
	const struct element *a = first, *b = second;
	if (isnan(a->value) != isnan(b->value))
		return isnan(a->value) ? 1 : -1;
	if (!isnan(a->value) && a->value != b->value)
		return a->value > b->value ? -1 : 1;
	if (a->exact != b->exact)
		return a->exact > b->exact ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

/* x [rows, n] -> [rows, 2, k]: the k largest values in descending order, and their indices. Sorts each row. */
INTERP_EVAL(topk)
{
	int64_t k = ((const struct attrs_topk *)op->attrs)->k, n = x[0]->dims[x[0]->rank - 1];
	int64_t rows = interp_span(x[0], 0, x[0]->rank - 1);
	struct element *row = memory_zeroed((size_t)n, sizeof(*row));
	if (row == NULL)
		return TFMC_NO_MEMORY;
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t i = 0; i < n; i++)
			row[i] = (struct element){x[0]->data[r * n + i],
			                          x[0]->exact ? interp_get_int(x[0], r * n + i) : 0, i};
		qsort(row, (size_t)n, sizeof(*row), compare_descending);
		for (int64_t i = 0; i < k; i++) {
			interp_copy(out, 2 * r * k + i, x[0], r * n + row[i].index, 1);
			out->data[(2 * r + 1) * k + i] = (double)row[i].index;
		}
	}
	memory_free(row);
	return TFMC_OK;
}

/* ids [M] -> [size]: the largest i with ids[i] = row, -1 where there is none; ids outside of the size are ignored. */
INTERP_EVAL(last_index)
{
	int64_t size = interp_size(out);
	for (int64_t i = 0; i < size; i++)
		out->data[i] = -1;
	for (int64_t i = 0; i < interp_size(x[0]); i++) {
		int64_t row = f64_to_i64(x[0]->data[i]);
		if (row >= 0 && row < size)
			out->data[row] = (double)i;
	}
	return TFMC_OK;
}
