/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreter: ops on rows of the last axis; RoPE. */
#include <math.h>

#include "ir/interp/interp_internal.h"

/* Maximum of n elements; NaN if any is NaN, -inf if n is 0. */
static double row_max(const double *x, int64_t n)
{
	double m = -HUGE_VAL;
	for (int64_t i = 0; i < n; i++)
		if (isnan(x[i]) || x[i] > m)
			m = isnan(m) ? m : x[i];
	return m;
}

static double row_mean(const double *x, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

void interp_softmax_row(double *x, int64_t n, const double *sink)
{
	double extra = sink == NULL ? -HUGE_VAL : *sink;
	double m = row_max(x, n), sum = 0;
	m = isnan(extra) || extra > m ? extra : m;
	bool is_empty = isinf(m) && m < 0; /* no visible key: the row is 0, not 0 / 0 */
	for (int64_t i = 0; i < n; i++) {
		x[i] = is_empty ? 0 : exp(x[i] - m);
		sum += x[i];
	}
	sum += is_empty ? 0 : exp(extra - m);
	for (int64_t i = 0; i < n && sum != 0; i++)
		x[i] /= sum;
}

double interp_softcap(double x, double c)
{
	return c * tanh(x / c);
}

bool interp_is_visible(struct interp_mask v, int64_t b, int64_t i, int64_t j)
{
	if (v.len && (double)j >= v.len->data[b])
		return false;
	double at = (double)i + (v.past ? v.past->data[b] : 0);
	if (v.window > 0 && fabs(at - (double)j) >= (double)v.window)
		return false;
	return !v.causal || (double)j <= at;
}

/* Elements of a row; 0 if there are no rows. */
static int64_t row_length(const struct interp_tensor *t)
{
	return t->rank && interp_size(t) ? t->dims[t->rank - 1] : 0;
}

INTERP_EVAL(softmax)
{
	int64_t n = row_length(out), total = interp_size(out);
	for (int64_t i = 0; i < total; i++)
		out->data[i] = x[0]->data[i];
	for (int64_t at = 0; at < total; at += n)
		interp_softmax_row(out->data + at, n, NULL);
	return TFMC_OK;
}

INTERP_EVAL(log_softmax)
{
	int64_t n = row_length(out), total = interp_size(out);
	for (int64_t at = 0; at < total; at += n) {
		const double *row = x[0]->data + at;
		double m = row_max(row, n), sum = 0;
		for (int64_t i = 0; i < n; i++)
			sum += exp(row[i] - m);
		for (int64_t i = 0; i < n; i++)
			out->data[at + i] = row[i] - m - log(sum);
	}
	return TFMC_OK;
}

/* x [.., S, T]: -inf where the key is not visible. */
static void mask_scores(struct interp_mask v, struct interp_tensor *x)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(x); i++) {
		interp_unravel(x, i, index);
		if (!interp_is_visible(v, index[0], index[x->rank - 2], index[x->rank - 1]))
			x->data[i] = -HUGE_VAL;
	}
}

INTERP_EVAL(mask)
{
	const struct attrs_mask *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = x[0]->data[i];
	mask_scores((struct interp_mask){x[1], x[2], a->mask == MASK_causal, a->window}, out);
	return TFMC_OK;
}

INTERP_EVAL(masked_softmax)
{
	const struct attrs_masked_softmax *a = op->attrs;
	int64_t n = row_length(out), total = interp_size(out);
	for (int64_t i = 0; i < total; i++) {
		double v = x[0]->data[i] * a->scale;
		out->data[i] = a->softcap > 0 ? interp_softcap(v, a->softcap) : v;
	}
	mask_scores((struct interp_mask){x[1], x[2], a->mask == MASK_causal, a->window}, out);
	for (int64_t at = 0; at < total; at += n)
		interp_softmax_row(out->data + at, n, NULL);
	return TFMC_OK;
}

/* The largest |x|; infinite if an element is infinite or NaN. */
static float max_magnitude(const double *x, int64_t n)
{
	float most = 0;
	for (int64_t i = 0; i < n; i++) {
		float v = fabsf((float)x[i]);
		most = !isfinite(v) ? HUGE_VALF : v > most ? v : most;
	}
	return most;
}

/* Quantizes a block to int8 and dequantizes it; in f32 as kernels do, since the last bit may decide a quant. */
static void quantize_block(const double *x, double *out, int64_t n)
{
	float most = max_magnitude(x, n), inverse = 127 / most;
	float scale = isfinite(most) ? most / 127 : NAN;
	inverse = isfinite(inverse) ? inverse : 0;
	for (int64_t i = 0; i < n; i++) {
		float v = (float)x[i] * inverse;
		out[i] = (rintf(v) + 0.0F) * scale; /* no -0 */
	}
}

/* Not rounded in a run with args->wide. */
INTERP_EVAL(round_rows)
{
	const struct attrs_round_rows *a = op->attrs;
	int64_t n = row_length(out), total = interp_size(out), block = a->block > 0 ? a->block : n;
	for (int64_t i = 0; (in->args->wide || a->to == ROUND_bf16) && i < total; i++)
		out->data[i] = in->args->wide ? x[0]->data[i] : ir_round(DT_BF16, x[0]->data[i]);
	if (in->args->wide || a->to == ROUND_bf16)
		return TFMC_OK;
	for (int64_t at = 0; at < total; at += n)
		for (int64_t i = 0; i < n; i += block)
			quantize_block(x[0]->data + at + i, out->data + at + i,
			               n - i < block ? n - i : block);
	return TFMC_OK;
}

/* x [B, .., S, E], table [P, D], at [B, S] */
INTERP_EVAL(rope)
{
	bool halves = ((const struct attrs_rope *)op->attrs)->layout == ROPE_halves;
	int64_t n = row_length(out), total = interp_size(out), rotated = x[1]->dims[1], index[IR_RANK_MAX];
	for (int64_t at = 0; at < total; at += n) {
		interp_unravel(out, at, index);
		double position = x[2]->data[index[0] * x[2]->dims[1] + index[out->rank - 2]];
		int64_t row = interp_clamp(interp_to_int(position), 0, x[1]->dims[0] - 1);
		const double *cosines = x[1]->data + row * rotated, *sines = cosines + rotated / 2;
		for (int64_t i = rotated; i < n; i++)
			out->data[at + i] = x[0]->data[at + i];
		for (int64_t i = 0; i < rotated / 2; i++) {
			int64_t p = at + (halves ? i : 2 * i), q = halves ? p + rotated / 2 : p + 1;
			double a = x[0]->data[p], b = x[0]->data[q];
			out->data[p] = a * cosines[i] - b * sines[i];
			out->data[q] = b * cosines[i] + a * sines[i];
		}
	}
	return TFMC_OK;
}

INTERP_EVAL(layer_norm)
{
	const struct attrs_layer_norm *a = op->attrs;
	int64_t n = row_length(out), total = interp_size(out);
	for (int64_t at = 0; at < total; at += n) {
		const double *row = x[0]->data + at;
		double mean = row_mean(row, n), var = 0;
		for (int64_t i = 0; i < n; i++)
			var += (row[i] - mean) * (row[i] - mean);
		var /= (double)n;
		for (int64_t i = 0; i < n; i++) {
			double y = (row[i] - mean) / sqrt(var + a->eps);
			out->data[at + i] = y * (x[1] ? x[1]->data[i] : 1) + (x[2] ? x[2]->data[i] : 0);
		}
	}
	return TFMC_OK;
}

INTERP_EVAL(rms_norm)
{
	const struct attrs_rms_norm *a = op->attrs;
	int64_t n = row_length(out), total = interp_size(out);
	for (int64_t at = 0; at < total; at += n) {
		const double *row = x[0]->data + at;
		double squares = 0;
		for (int64_t i = 0; i < n; i++)
			squares += row[i] * row[i];
		double root = sqrt(squares / (double)n + a->eps);
		for (int64_t i = 0; i < n; i++)
			out->data[at + i] = row[i] / root * (x[1] ? x[1]->data[i] : 1);
	}
	return TFMC_OK;
}
