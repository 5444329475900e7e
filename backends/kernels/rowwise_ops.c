/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise generator: the passes of each op over a row. A pass is a loop (rowwise_loop) that calls a function of this
 * file for each chunk, a vector of the row. Between passes elements are in the buffer of the nest (rowwise_keep_x,
 * rowwise_reload_x); without one each pass reads or computes x, and what it derived from x, again.
 *
 * Norms: the variance is the mean of squares of centered elements, in a pass of its own: E[x^2] - E[x]^2 would cancel
 * all digits of rows whose mean is large. A tile (rowwise_tile) is rows whose elements a work-group reads: its items
 * compute the statistics of all rows together, each every items-th element of each row, reduced in the tree of
 * rowwise.c for all rows at once, so that the bits are those of the norm as a group of its own.
 *
 * Softmax: the maximum score; exponentials relative to it and their sum; results. Exponentials replace the scores in
 * the buffer, so that each is computed once. Elements that are not visible are never read; a masked score is -inf.
 *
 * Quantization: the result is the dequantized f32. An integer is rounded by adding and subtracting 1.5 2^23, where
 * consecutive f32 values differ by one.
 */
#include "backends/kb/math.h"
#include "backends/kernels/rowwise.h"
#include "backends/kernels/rowwise_internal.h"

#include <float.h>
#include <math.h>

/* A pass over elements [0, to) of the row. */
static void loop_prefix(struct rowwise *r, enum rowwise_pass pass, struct kb_val to, rowwise_chunk_fn *body,
                        void *user)
{
	rowwise_loop(r, pass, kb_index(r->k, 0), to, body, user);
}

/* ---- norms ---- */

enum { X = OPERAND(layer_norm, x), GAMMA = OPERAND(layer_norm, gamma), BETA = OPERAND(layer_norm, beta) };

struct norm {
	struct rowwise_acc sum, square_sum;
	struct kb_val mean;    /* f32; none: 0 */
	struct kb_val inverse; /* f32: 1 / sqrt(mean square + eps) */
	struct ir_value gamma, beta;
};

static struct kb_val divide_by_width(struct rowwise *r, struct kb_val sum)
{
	return kb_bin(r->k, KB_DIV, sum, kb_cvt(r->k, rowwise_width(r), KB_F32));
}

/* 1 / sqrt(mean square + eps) */
static struct kb_val inverse_std(struct rowwise *r, const struct norm *n, double eps)
{
	struct kb *k = r->k;
	struct kb_val mean = divide_by_width(r, rowwise_acc_reduce(r, &n->square_sum));
	struct kb_val root = kb_un(k, KB_SQRT, kb_add(k, mean, kb_f32(k, (float)eps)));
	return kb_bin(k, KB_DIV, kb_f32(k, 1), root);
}

/* gamma or beta [D] at the chunk. */
static struct kb_val load_parameter(struct rowwise *r, const struct rowwise_chunk *c, struct ir_value v)
{
	const struct eval_point p = {.rank = 1, .index = {c->at}, .vec = 0};
	return rowwise_splat(r, c, eval_value(&r->e, v, &p));
}

/* ---- passes ---- */

static void add_element(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val x = rowwise_load_x(r, c);
	rowwise_keep_x(r, c, x);
	rowwise_acc_add(r, &n->sum, c, x);
}

static void add_square(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val x = rowwise_load_x(r, c);
	rowwise_keep_x(r, c, x);
	rowwise_acc_square(r, &n->square_sum, c, x);
}

static void add_centered_square(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val mean = rowwise_splat(r, c, n->mean);
	struct kb_val x = kb_sub(r->k, rowwise_reload_x(r, c), mean);
	rowwise_acc_square(r, &n->square_sum, c, x);
}

/* Factors of a norm in the lanes of x; none: mean 0, gamma 1, beta 0. */
struct norm_factors {
	struct kb_val mean, inverse, gamma, beta;
};

/* (x - mean) inverse gamma + beta */
static struct kb_val normalize(struct kb *k, struct kb_val x, const struct norm_factors *s)
{
	if (s->mean.id)
		x = kb_sub(k, x, s->mean);
	x = kb_mul(k, x, s->inverse);
	if (s->gamma.id && s->beta.id)
		return kb_fma(k, x, s->gamma, s->beta);
	if (s->gamma.id)
		return kb_mul(k, x, s->gamma);
	return s->beta.id ? kb_add(k, x, s->beta) : x;
}

/* The last pass of a norm: stores (x - mean) inverse gamma + beta. */
static void scale_and_store(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct norm *n = user;
	struct norm_factors s = {0};
	struct kb_val y = rowwise_reload_x(r, c);
	if (n->mean.id)
		s.mean = rowwise_splat(r, c, n->mean);
	s.inverse = rowwise_splat(r, c, n->inverse);
	if (n->beta.id)
		s.beta = load_parameter(r, c, n->beta);
	if (n->gamma.id)
		s.gamma = load_parameter(r, c, n->gamma);
	rowwise_store_result(r, c, normalize(r->k, y, &s));
}

/* ---- rows ---- */

/* Three passes: the mean; squares of differences from it, which cancel less than the mean of squares; the result. */
void rowwise_layer_norm(struct rowwise *r)
{
	const struct attrs_layer_norm *a = r->root->attrs;
	struct norm n = {.gamma = rowwise_operand(r, GAMMA), .beta = rowwise_operand(r, BETA)};
	rowwise_acc_begin(r, &n.sum, KB_ADD);
	loop_prefix(r, ROWWISE_REDUCE, rowwise_width(r), add_element, &n);
	n.mean = divide_by_width(r, rowwise_acc_reduce(r, &n.sum));
	rowwise_acc_begin(r, &n.square_sum, KB_ADD);
	loop_prefix(r, ROWWISE_REDUCE, rowwise_width(r), add_centered_square, &n);
	n.inverse = inverse_std(r, &n, a->eps);
	loop_prefix(r, ROWWISE_STORE, rowwise_width(r), scale_and_store, &n);
}

/* Two passes, squares and the result: a norm without mean and beta. */
void rowwise_rms_norm(struct rowwise *r)
{
	const struct attrs_rms_norm *a = r->root->attrs;
	struct norm n = {.gamma = rowwise_operand(r, GAMMA)};
	rowwise_acc_begin(r, &n.square_sum, KB_ADD);
	loop_prefix(r, ROWWISE_REDUCE, rowwise_width(r), add_square, &n);
	n.inverse = inverse_std(r, &n, a->eps);
	loop_prefix(r, ROWWISE_STORE, rowwise_width(r), scale_and_store, &n);
}

/* ---- tiles of work-groups ---- */

/* The operand that is normalized. */
static struct ir_value x_of(const struct rowwise_tile *t)
{
	return t->norm->operands[OPERAND(layer_norm, x)];
}

static struct kb_val width_of(const struct rowwise_tile *t)
{
	const struct ir_type *x = ir_type_of(t->e->job->func, x_of(t));
	return eval_dim(t->e, x->dims[x->rank - 1]);
}

/* Evaluator point of element 0 of row `row`. */
static struct eval_point tile_row_point(const struct rowwise_tile *t, struct kb_val row)
{
	struct kb_val size[IR_RANK_MAX];
	struct eval_point p = {.rank = ir_type_of(t->e->job->func, x_of(t))->rank, .vec = -1, .flat = row};
	eval_sizes(t->e, x_of(t), size);
	eval_unravel(t->e, row, size, p.rank - 1, p.index);
	p.index[p.rank - 1] = kb_index(t->e->k, 0);
	return p;
}

/* This item's partial sum of row m: of x, or of (x - mean)^2 (rms_norm: of x^2), every items-th element. */
static struct kb_val item_sum(const struct rowwise_tile *t, struct kb_val m, bool square_sum)
{
	struct kb *k = t->e->k;
	struct kb_var sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	struct eval_point p = tile_row_point(t, kb_add(k, t->first, m));
	struct kb_val mean = {0};
	if (square_sum && t->norm->code == OP_layer_norm)
		mean = kb_load(k, KB_F32_T, t->means, m, 0, 0);
	eval_hoist(t->e, x_of(t), &p);
	size_t mark = eval_mark(t->e);
	p.index[p.rank - 1] = kb_loop(k, "j", t->item, width_of(t), t->items, 0);
	struct kb_val x = eval_value(t->e, x_of(t), &p);
	if (mean.id)
		x = kb_sub(k, x, mean);
	kb_set(k, sum, square_sum ? kb_fma(k, x, x, kb_get(k, sum)) : kb_add(k, x, kb_get(k, sum)));
	kb_end_loop(k);
	eval_release(t->e, mark);
	return kb_get(k, sum);
}

/* partials[m][i] += partials[m][i + half], for i < half, of all rows at once; ends with a barrier. */
static void tree_step(const struct rowwise_tile *t, int64_t half)
{
	struct kb *k = t->e->k;
	struct kb_val n = kb_mul_const(k, t->rows, half);
	struct kb_val i = kb_loop(k, "i", t->item, n, t->items, 0);
	struct kb_val at = kb_mul_const(k, kb_div_const(k, i, half), t->items);
	at = kb_add(k, at, kb_rem_const(k, i, half));
	struct kb_val mine = kb_load(k, KB_F32_T, t->partials, at, 0, 0);
	struct kb_val other = kb_load(k, KB_F32_T, t->partials, at, half, 0);
	kb_store(k, kb_add(k, other, mine), t->partials, at, 0, 0);
	kb_end_loop(k);
	kb_barrier(k);
}

/* Stores means[m], or (square_sum) means[most + m] = 1 / sqrt(mean square + eps), of all rows: partial sums, the tree
 * down to two, whose sum each item computes for one row, without a loop over rows: PoCL 3.1, when it vectorizes items,
 * miscompiles such loops between barriers. */
static void row_statistics(const struct rowwise_tile *t, bool square_sum, double eps)
{
	struct kb *k = t->e->k;
	size_t mark = eval_mark(t->e);
	struct kb_val m = kb_loop(k, "m", kb_index(k, 0), t->rows, 1, 0);
	struct kb_val part = item_sum(t, m, square_sum);
	struct kb_val at = kb_mul_const(k, m, t->items);
	kb_store(k, part, t->partials, kb_add(k, at, t->item), 0, 0);
	kb_end_loop(k);
	eval_release(t->e, mark);
	kb_barrier(k);
	for (int64_t half = t->items / 2; half > 1; half /= 2)
		tree_step(t, half);
	kb_if(k, kb_cmp(k, KB_LT, t->item, t->rows));
	at = kb_mul_const(k, t->item, t->items);
	struct kb_val sum = kb_load(k, KB_F32_T, t->partials, at, 0, 0);
	sum = kb_add(k, kb_load(k, KB_F32_T, t->partials, at, 1, 0), sum);
	struct kb_val value = kb_bin(k, KB_DIV, sum, kb_cvt(k, width_of(t), KB_F32));
	if (square_sum) {
		value = kb_un(k, KB_SQRT, kb_add(k, value, kb_f32(k, (float)eps)));
		value = kb_bin(k, KB_DIV, kb_f32(k, 1), value);
	}
	kb_store(k, value, t->means, t->item, square_sum ? t->most : 0, 0);
	kb_end_if(k);
	kb_barrier(k);
}

/* The centered squares of a layer_norm need the means first. */
void rowwise_tile_stats(const struct rowwise_tile *t)
{
	if (t->norm->code == OP_layer_norm)
		row_statistics(t, false, 0);
	row_statistics(t, true,
	               t->norm->code == OP_layer_norm ? ((const struct attrs_layer_norm *)t->norm->attrs)->eps
	                                              : ((const struct attrs_rms_norm *)t->norm->attrs)->eps);
}

/* Element p of row m of the tile (`lanes` neighbours), normalized by the statistics of the row; gamma and beta are
 * operands 1 and 2, if there are any. */
struct kb_val rowwise_tile_normalized(const struct rowwise_tile *t, struct kb_val m,
                                      const struct eval_point *p, int lanes)
{
	struct kb *k = t->e->k;
	const struct eval_point at = {.rank = 1, .index = {p->index[p->rank - 1]}, .vec = lanes > 1 ? 0 : -1};
	struct eval_width before = eval_width(t->e, lanes, lanes);
	struct norm_factors s = {.inverse = kb_load(k, KB_F32_T, t->means, m, t->most, 0)};
	s.inverse = kb_splat(k, s.inverse, lanes);
	if (t->norm->code == OP_layer_norm)
		s.mean = kb_splat(k, kb_load(k, KB_F32_T, t->means, m, 0, 0), lanes);
	size_t mark = eval_mark(t->e);
	struct kb_val x = kb_splat(k, eval_value(t->e, x_of(t), p), lanes);
	for (size_t i = 1; i < t->norm->n_operands; i++)
		if (t->norm->operands[i].id)
			*(i == 1 ? &s.gamma : &s.beta) =
			        kb_splat(k, eval_value(t->e, t->norm->operands[i], &at), lanes);
	eval_release(t->e, mark);
	eval_width(t->e, before.lanes, before.valid);
	return normalize(k, x, &s);
}

/* ---- softmax ---- */

enum { LEN = OPERAND(masked_softmax, len), PAST = OPERAND(masked_softmax, past) };

struct softmax {
	struct rowwise_acc max, sum;
	struct kb_val shift;  /* f32: the maximum score */
	struct kb_val factor; /* f32: 1 / sum, or log(sum) */
	double scale, softcap;
	struct kb_val first; /* i32: first visible element; none: 0 */
	float hidden;        /* result of elements that are not visible */
};

/* ---- passes ---- */

/* softcap(x scale), limit tanh(x scale / limit): scale and softcap of a masked_softmax. */
static struct kb_val scaled_score(struct rowwise *r, const struct softmax *s, struct kb_val x)
{
	struct kb *k = r->k;
	if (s->scale != 1)
		x = kb_mul(k, x, math_const(k, x, (float)s->scale));
	if (s->softcap > 0) {
		struct kb_val limit = math_const(k, x, (float)s->softcap);
		x = kb_mul(k, limit, math_tanh(k, kb_bin(k, KB_DIV, x, limit)));
	}
	return x;
}

/* x in the window, else -inf; without a window (first none) all of x. */
static struct kb_val mask_window(struct rowwise *r, const struct rowwise_chunk *c, const struct softmax *s,
                                 struct kb_val x)
{
	struct kb *k = r->k;
	if (!s->first.id)
		return x;
	int lanes = kb_type_of(k, x).lanes;
	struct kb_val at = kb_splat(k, kb_cvt(k, c->at, KB_I32), lanes);
	if (lanes > 1)
		at = kb_add(k, at, kb_lane_ids(k, lanes));
	struct kb_val seen = kb_cmp(k, KB_GE, at, kb_splat(k, s->first, lanes));
	return kb_select(k, seen, x, math_const(k, x, -HUGE_VALF));
}

static void find_max(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct softmax *s = user;
	struct kb_val x = mask_window(r, c, s, scaled_score(r, s, rowwise_load_x(r, c)));
	rowwise_keep_x(r, c, x);
	rowwise_acc_add(r, &s->max, c, x);
}

/* score - max, after the first pass. The buffer has scores (keeps_x); x that is read or computed again is scaled again,
 * and the window masked. */
static struct kb_val shifted_score(struct rowwise *r, const struct rowwise_chunk *c, const struct softmax *s)
{
	struct kb_val x = rowwise_reload_x(r, c);
	if (!r->nest.keeps_x)
		x = scaled_score(r, s, x);
	x = mask_window(r, c, s, x);
	return kb_sub(r->k, x, rowwise_splat(r, c, s->shift));
}

/* exp(score - max) */
static struct kb_val exponential(struct rowwise *r, const struct rowwise_chunk *c, const struct softmax *s)
{
	return math_exp_nonpositive(r->k, shifted_score(r, c, s));
}

static void add_exp(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct softmax *s = user;
	struct kb_val e = exponential(r, c, s);
	rowwise_acc_add(r, &s->sum, c, e);
	if (r->nest.keeps_exp)
		rowwise_write_buffer(r, c, e);
}

static void store_quotient(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct softmax *s = user;
	struct kb_val e = r->nest.keeps_exp ? rowwise_read_buffer(r, c) : exponential(r, c, s);
	rowwise_store_result(r, c, kb_mul(r->k, e, rowwise_splat(r, c, s->factor)));
}

static void store_log(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct softmax *s = user;
	struct kb_val factor = rowwise_splat(r, c, s->factor);
	rowwise_store_result(r, c, kb_sub(r->k, shifted_score(r, c, s), factor));
}

static void store_hidden(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct softmax *s = user;
	rowwise_store_result(r, c, rowwise_splat(r, c, kb_f32(r->k, s->hidden)));
}

static void store_x(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	rowwise_store_result(r, c, mask_window(r, c, user, rowwise_load_x(r, c)));
}

/* ---- rows ---- */

/* Stores the result of masked elements [from, width). */
static void loop_hidden(struct rowwise *r, struct kb_val from, struct softmax *s)
{
	rowwise_loop(r, ROWWISE_STORE, from, rowwise_width(r), store_hidden, s);
}

/* Sum over [0, to) of exp(x - max), and s->shift = max. A row of -inf is shifted by 0 and sums to 0 (log_softmax:
 * NaN); NaN reaches the sum. The buffer's last vector is zeroed first where a masked tail will read it; staging has
 * done so. */
static struct kb_val exp_sum(struct rowwise *r, struct kb_val to, struct softmax *s)
{
	struct kb *k = r->k;
	int64_t n;
	if (!r->nest.is_staged && !kb_const_index(k, to, &n))
		rowwise_zero_tail(r, to);
	rowwise_acc_begin(r, &s->max, KB_MAX);
	loop_prefix(r, ROWWISE_REDUCE, to, find_max, s);
	s->shift = rowwise_acc_reduce(r, &s->max);
	if (rowwise_reads_exponentials(r->root->code)) {
		struct kb_val is_empty = kb_cmp(k, KB_EQ, s->shift, kb_f32(k, -HUGE_VALF));
		s->shift = kb_select(k, is_empty, kb_f32(k, 0), s->shift);
	}
	rowwise_acc_begin(r, &s->sum, KB_ADD);
	loop_prefix(r, ROWWISE_EXP, to, add_exp, s);
	return rowwise_acc_reduce(r, &s->sum);
}

/* Softmax of elements [0, to); a row without a sum gives 0. */
static void softmax_prefix(struct rowwise *r, struct kb_val to, struct softmax *s)
{
	struct kb *k = r->k;
	struct kb_val sum = exp_sum(r, to, s);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, sum, kb_f32(k, 0));
	s->factor = kb_bin(k, KB_DIV, kb_f32(k, 1), kb_select(k, is_zero, kb_f32(k, 1), sum));
	loop_prefix(r, ROWWISE_STORE, to, store_quotient, s);
}

/* Only visible elements [0, n) are read, those before the window as -inf; the others become 0. */
static void masked_softmax(struct rowwise *r)
{
	const struct attrs_masked_softmax *a = r->root->attrs;
	struct softmax s = {.scale = a->scale, .softcap = a->softcap};
	const struct eval_mask mask = {rowwise_operand(r, LEN), rowwise_operand(r, PAST),
	                               a->mask == MASK_causal, a->window};
	struct kb_val n = rowwise_visible(r, &mask, &s.first);
	softmax_prefix(r, n, &s);
	loop_hidden(r, n, &s);
}

void rowwise_softmax(struct rowwise *r)
{
	struct softmax s = {.scale = 1};
	if (r->root->code == OP_masked_softmax)
		masked_softmax(r);
	else
		softmax_prefix(r, rowwise_width(r), &s);
}

void rowwise_log_softmax(struct rowwise *r)
{
	struct softmax s = {.scale = 1};
	struct kb_val width = rowwise_width(r), sum = exp_sum(r, width, &s);
	s.factor = math_log(r->k, sum);
	loop_prefix(r, ROWWISE_STORE, width, store_log, &s);
}

/* x where visible, else -inf, in one pass. */
void rowwise_mask(struct rowwise *r)
{
	const struct attrs_mask *a = r->root->attrs;
	struct softmax s = {.hidden = -HUGE_VALF};
	const struct eval_mask mask = {rowwise_operand(r, LEN), rowwise_operand(r, PAST),
	                               a->mask == MASK_causal, a->window};
	struct kb_val n = rowwise_visible(r, &mask, &s.first);
	loop_prefix(r, ROWWISE_STORE, n, store_x, &s);
	loop_hidden(r, n, &s);
}

/* ---- quantization ---- */

#define TO_INTEGER 12582912.0F /* 1.5 2^23 */

struct quantization {
	struct rowwise_acc most; /* max |x|, infinite for NaN */
	struct kb_val inverse, step;
};

static void update_abs_max(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct quantization *n = user;
	struct kb_val x = rowwise_load_x(r, c);
	rowwise_keep_x(r, c, x);
	rowwise_acc_add(r, &n->most, c, rowwise_abs_or_inf(r->k, x));
}

/* Stores the dequantized value: x inverse, rounded to an integer, times step. */
static void quantize_and_store(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct quantization *n = user;
	struct kb *k = r->k;
	struct kb_val large = rowwise_splat(r, c, kb_f32(k, TO_INTEGER));
	struct kb_val inverse = rowwise_splat(r, c, n->inverse);
	struct kb_val v = kb_mul(k, rowwise_reload_x(r, c), inverse);
	v = kb_sub(k, kb_add(k, v, large), large);
	rowwise_store_result(r, c, kb_mul(k, v, rowwise_splat(r, c, n->step)));
}

struct kb_val rowwise_abs_or_inf(struct kb *k, struct kb_val x)
{
	int lanes = kb_type_of(k, x).lanes;
	struct kb_val v = kb_un(k, KB_ABS, x), last = kb_splat(k, kb_f32(k, FLT_MAX), lanes);
	struct kb_val none = kb_splat(k, kb_f32(k, HUGE_VALF), lanes);
	return kb_select(k, kb_cmp(k, KB_LE, v, last), v, none);
}

/* step = most / 127 and its inverse; most 0: inverse 0, so that all is 0. Infinity and NaN of x make the step NaN,
 * which the result shows. */
void rowwise_int8_scales(struct kb *k, struct kb_val most, struct kb_val *inverse, struct kb_val *step)
{
	struct kb_val levels = kb_f32(k, 127), v = kb_bin(k, KB_DIV, levels, most);
	struct kb_val is_finite = kb_cmp(k, KB_LE, v, kb_f32(k, FLT_MAX));
	*inverse = kb_select(k, is_finite, v, kb_f32(k, 0));
	/* most - most: NaN if infinite, else 0 */
	v = kb_bin(k, KB_DIV, most, levels);
	*step = kb_add(k, v, kb_sub(k, most, most));
}

/* A quant block [from, to) of the row: max |x|, which makes the scale, then each element quantized and dequantized. */
static void quantize_block(struct rowwise *r, struct kb_val from, struct kb_val to)
{
	struct quantization n;
	rowwise_acc_begin(r, &n.most, KB_MAX);
	rowwise_loop(r, ROWWISE_REDUCE, from, to, update_abs_max, &n);
	rowwise_int8_scales(r->k, rowwise_acc_reduce(r, &n.most), &n.inverse, &n.step);
	rowwise_loop(r, ROWWISE_STORE, from, to, quantize_and_store, &n);
}

static void round_bf16_and_store(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	(void)user;
	struct kb_val x = rowwise_load_x(r, c);
	rowwise_store_result(r, c, kb_cvt(r->k, kb_cvt(r->k, x, KB_BF16), KB_F32));
}

/* Rounds each quant block (or the row) to 8 bits with its own scale; the last block may be shorter. */
void rowwise_quantize_rows(struct rowwise *r)
{
	struct kb *k = r->k;
	const struct attrs_quantize_rows *a = r->root->attrs;
	struct kb_val zero = kb_index(k, 0), width = rowwise_width(r);
	int64_t length;
	bool is_const = kb_const_index(k, width, &length);
	if (a->to == ROUND_bf16) {
		loop_prefix(r, ROWWISE_STORE, width, round_bf16_and_store, NULL);
		return;
	}
	if (a->block <= 0 || (is_const && a->block >= length)) {
		quantize_block(r, zero, width);
		return;
	}
	struct kb_val full = kb_sub(k, width, kb_rem_const(k, width, a->block));
	struct kb_val from = kb_loop(k, "block", zero, full, a->block, 0);
	quantize_block(r, from, kb_add_const(k, from, a->block));
	kb_end_loop(k);
	if (is_const && length % a->block == 0)
		return;
	kb_if(k, kb_cmp(k, KB_LT, full, width));
	quantize_block(r, full, width);
	kb_end_if(k);
}
