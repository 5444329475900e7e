/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise generator: softmax, log_softmax, masked_softmax and mask. Three passes: the maximum score;
 * exponentials and their sum; results. Exponentials are kept, so that each is computed once, unless there is
 * no buffer. Elements that are not visible are never read.
 */
#include <math.h>

#include "backends/kb/math.h"
#include "backends/kernels/rowwise_internal.h"

enum {
	X = OPERAND(masked_softmax, x),
	LEN = OPERAND(masked_softmax, len),
	PAST = OPERAND(masked_softmax, past)
};

struct softmax {
	struct rowwise_acc max, sum;
	struct kb_val shift;  /* f32: the maximum score */
	struct kb_val factor; /* f32: 1 / sum, or log(sum) */
	double scale, softcap;
	bool keeps_exp;      /* softmax; log_softmax reads the scores again instead */
	struct kb_val first; /* i32: first visible element; none: 0 */
	float hidden;        /* result of elements that are not visible */
};

/* ---- passes ---- */

/* softcap(x scale) */
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

/* x in the window, else -inf. */
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

/* score - max, after the first pass. */
static struct kb_val shifted_score(struct rowwise *r, const struct rowwise_chunk *c, const struct softmax *s)
{
	struct kb_val x = rowwise_reload_x(r, c);
	if (r->recomputes)
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
	if (s->keeps_exp && !r->recomputes)
		rowwise_write_buffer(r, c, e);
}

static void store_quotient(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct softmax *s = user;
	struct kb_val e = r->recomputes ? exponential(r, c, s) : rowwise_read_buffer(r, c);
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

/* A pass over the visible elements [0, to). */
static void loop_visible(struct rowwise *r, struct kb_val to, int lanes, rowwise_chunk_fn *body,
                         struct softmax *s)
{
	const struct rowwise_loop w = {.body = body, .user = s, .lanes = lanes};
	rowwise_loop(r, kb_index(r->k, 0), to, &w);
}

#define REGISTERS_FOR_FOUR_EXP 32 /* with fewer, four interleaved exponentials spill constants and sums */

/* True if exponentials replace scores in the buffer. */
static bool keeps_exp_in_buffer(const struct rowwise *r, const struct softmax *s)
{
	return s->keeps_exp && !r->rereads_x;
}

/* The pass of exponentials; in a padded buffer its tail is one masked vector. */
static void loop_exp(struct rowwise *r, struct kb_val to, struct softmax *s)
{
	struct rowwise_loop w = {
	        .body = add_exp, .user = s, .lanes = r->lanes, .is_masked_tail = keeps_exp_in_buffer(r, s)};
	w.unroll = !s->keeps_exp && kb_caps(r->k)->registers < REGISTERS_FOR_FOUR_EXP ? 2 : 0;
	rowwise_loop(r, kb_index(r->k, 0), to, &w);
}

/* Stores the result of masked elements [from, width). */
static void loop_hidden(struct rowwise *r, struct kb_val from, struct softmax *s)
{
	const struct rowwise_loop w = {.body = store_hidden, .user = s, .lanes = r->out_lanes};
	rowwise_loop(r, from, rowwise_width(r), &w);
}

/* Sum over [0, to) of exp(x - max). A row of -inf is shifted by 0 and sums to 0; NaN reaches the sum. */
static struct kb_val exp_sum(struct rowwise *r, struct kb_val to, struct softmax *s)
{
	struct kb *k = r->k;
	int64_t n;
	if (keeps_exp_in_buffer(r, s) && !r->is_staged && !kb_const_index(k, to, &n))
		rowwise_zero_tail(r, to);
	rowwise_acc_begin(r, &s->max, KB_MAX);
	loop_visible(r, to, r->lanes, find_max, s);
	s->shift = rowwise_acc_reduce(r, &s->max);
	if (s->keeps_exp) {
		struct kb_val is_empty = kb_cmp(k, KB_EQ, s->shift, kb_f32(k, -HUGE_VALF));
		s->shift = kb_select(k, is_empty, kb_f32(k, 0), s->shift);
	}
	rowwise_acc_begin(r, &s->sum, KB_ADD);
	loop_exp(r, to, s);
	return rowwise_acc_reduce(r, &s->sum);
}

/* Softmax of elements [0, to); a row without a sum gives 0. */
static void softmax_prefix(struct rowwise *r, struct kb_val to, struct softmax *s)
{
	struct kb *k = r->k;
	struct kb_val sum = exp_sum(r, to, s);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, sum, kb_f32(k, 0));
	s->factor = kb_bin(k, KB_DIV, kb_f32(k, 1), kb_select(k, is_zero, kb_f32(k, 1), sum));
	loop_visible(r, to, r->out_lanes, store_quotient, s);
}

static void masked_softmax(struct rowwise *r)
{
	const struct attrs_masked_softmax *a = r->root->attrs;
	struct softmax s = {.scale = a->scale, .softcap = a->softcap, .keeps_exp = true};
	const struct eval_mask mask = {rowwise_operand(r, LEN), rowwise_operand(r, PAST),
	                               a->mask == MASK_causal, a->window};
	struct kb_val n = rowwise_visible(r, &mask, &s.first);
	softmax_prefix(r, n, &s);
	loop_hidden(r, n, &s);
}

void rowwise_softmax(struct rowwise *r)
{
	struct softmax s = {.scale = 1, .keeps_exp = true};
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
	loop_visible(r, width, r->out_lanes, store_log, &s);
}

void rowwise_mask(struct rowwise *r)
{
	const struct attrs_mask *a = r->root->attrs;
	struct softmax s = {.hidden = -HUGE_VALF};
	const struct eval_mask mask = {rowwise_operand(r, LEN), rowwise_operand(r, PAST),
	                               a->mask == MASK_causal, a->window};
	struct kb_val n = rowwise_visible(r, &mask, &s.first);
	loop_visible(r, n, r->out_lanes, store_x, &s);
	loop_hidden(r, n, &s);
}
