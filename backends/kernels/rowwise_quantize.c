/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise generator: round_rows, dynamic quantization to int8 or rounding to bf16; the result is the
 * dequantized f32 value. An integer is rounded by adding and subtracting 1.5 2^23, where consecutive f32
 * values differ by one.
 */
#include <float.h>
#include <math.h>

#include "backends/kernels/rowwise.h"
#include "backends/kernels/rowwise_internal.h"

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

void rowwise_int8_scales(struct kb *k, struct kb_val most, struct kb_val *inverse, struct kb_val *step)
{
	struct kb_val levels = kb_f32(k, 127), v = kb_bin(k, KB_DIV, levels, most);
	struct kb_val is_finite = kb_cmp(k, KB_LE, v, kb_f32(k, FLT_MAX));
	*inverse = kb_select(k, is_finite, v, kb_f32(k, 0));
	/* most - most: NaN if infinite, else 0 */
	v = kb_bin(k, KB_DIV, most, levels);
	*step = kb_add(k, v, kb_sub(k, most, most));
}

/* A quant block [from, to) of the row: max |x|, then rounding. */
static void quantize_block(struct rowwise *r, struct kb_val from, struct kb_val to)
{
	struct quantization n;
	struct rowwise_loop w = {.body = update_abs_max, .user = &n, .lanes = r->lanes};
	rowwise_acc_begin(r, &n.most, KB_MAX);
	rowwise_loop(r, from, to, &w);
	rowwise_int8_scales(r->k, rowwise_acc_reduce(r, &n.most), &n.inverse, &n.step);
	w = (struct rowwise_loop){.body = quantize_and_store, .user = &n, .lanes = r->out_lanes};
	rowwise_loop(r, from, to, &w);
}

static void round_bf16_and_store(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	(void)user;
	struct kb_val x = rowwise_load_x(r, c);
	rowwise_store_result(r, c, kb_cvt(r->k, kb_cvt(r->k, x, KB_BF16), KB_F32));
}

bool rowwise_has_quant_blocks(const struct rowwise *r)
{
	const struct attrs_round_rows *a = r->root->attrs;
	return r->root->code == OP_round_rows && a->to == ROUND_int8 && a->block > 0 &&
	       (r->width < 0 || a->block < r->width);
}

void rowwise_round_rows(struct rowwise *r)
{
	struct kb *k = r->k;
	const struct attrs_round_rows *a = r->root->attrs;
	struct kb_val zero = kb_index(k, 0), width = rowwise_width(r);
	if (a->to == ROUND_bf16) {
		rowwise_for_row(r, round_bf16_and_store, NULL);
		return;
	}
	if (!rowwise_has_quant_blocks(r)) {
		quantize_block(r, zero, width);
		return;
	}
	struct kb_val full = kb_sub(k, width, kb_rem_const(k, width, a->block));
	struct kb_val from = kb_loop(k, "block", zero, full, a->block, 0);
	quantize_block(r, from, kb_add_const(k, from, a->block));
	kb_end_loop(k);
	if (r->width >= 0 && r->width % a->block == 0)
		return;
	kb_if(k, kb_cmp(k, KB_LT, full, width));
	quantize_block(r, full, width);
	kb_end_if(k);
}
