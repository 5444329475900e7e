/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: ops on rows of the last axis (norms, softmax), RoPE, and contractions (matmul, linear, attention).
 * INTERP_EVAL(op) is the handler of an op: x[i] are its operands (NULL: absent), out its results, allocated and zero;
 * elements are f64, and only interp.c rounds results to their type. In a run with args->wide floats are never rounded.
 */
#include "ir/interp/interp_internal.h"
#include "ir/support/checked.h"
#include "ir/support/memory.h"

#include <math.h>
#include <string.h>

/* ---- rows ---- */

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

/* Softmax of one row in place. sink: attention sink, a logit whose exponential is added to the sum only; NULL: none.
 * The maximum is subtracted first, so that exp does not overflow. */
static void interp_softmax_row(double *x, int64_t n, const double *sink)
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

/* Key j is visible from query i of sequence b: below its length, in the window around the position i + past, and if
 * causal not after it. window limits both directions. */
static bool interp_is_visible(struct interp_mask v, int64_t b, int64_t i, int64_t j)
{
	if (v.len && (double)j >= v.len->data[b])
		return false;
	double at = (double)i + (v.past ? v.past->data[b] : 0);
	if (v.window > 0 && fabs(at - (double)j) >= (double)v.window)
		return false;
	return !v.causal || (double)j <= at;
}

/* Elements of a row; 0 if there are no elements, so that loops over rows (at < total; at += n) do not run. */
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

/* x - max - log(sum of exp(x - max)): the maximum is subtracted first, so that exp does not overflow. */
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

/* x where the key is visible, else -inf. */
INTERP_EVAL(mask)
{
	const struct attrs_mask *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = x[0]->data[i];
	mask_scores((struct interp_mask){x[1], x[2], a->mask == MASK_causal, a->window}, out);
	return TFMC_OK;
}

/* x [..,S,T]: softmax of softcap(scale x) over the visible keys; a row without any is 0. */
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

/* The largest |x| as f32; infinite if an element is infinite or NaN, which makes the whole block NaN. */
static float max_magnitude(const double *x, int64_t n)
{
	float most = 0;
	for (int64_t i = 0; i < n; i++) {
		float v = fabsf((float)x[i]);
		most = !isfinite(v) ? HUGE_VALF : v > most ? v : most;
	}
	return most;
}

/* Quantizes a block to int8 and dequantizes it; in f32 as kernels do, since the last bit may decide a quant. A block
 * of zeros, or so small that 127 / max overflows, has quants 0. */
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

/* x rounded to bf16, or quantized to int8 by blocks of a row and dequantized; unchanged in a run with
 * args->wide, which computes without rounding. */
INTERP_EVAL(quantize_rows)
{
	const struct attrs_quantize_rows *a = op->attrs;
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

/* x [B, .., S, E], table [P, D] of cosines and sines, at [B, S]: rotates pairs of the first D features by the angles
 * of the position, which is clamped to the table; the other features are copied. A pair is (i, i + D/2) or (2i, 2i +
 * 1). */
INTERP_EVAL(rope)
{
	bool halves = ((const struct attrs_rope *)op->attrs)->layout == ROPE_halves;
	int64_t n = row_length(out), total = interp_size(out), rotated = x[1]->dims[1], index[IR_RANK_MAX];
	for (int64_t at = 0; at < total; at += n) {
		interp_unravel(out, at, index);
		double position = x[2]->data[index[0] * x[2]->dims[1] + index[out->rank - 2]];
		int64_t row = interp_clamp(f64_to_i64(position), 0, x[1]->dims[0] - 1);
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

/* Each row: (x - mean) / sqrt(variance + eps), times the weight, plus the bias, both [K] and optional. */
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

/* Each row: x / sqrt(mean of x^2 + eps), times the optional weight [K]. */
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

/* ---- contractions ---- */

/* Interpreter: contractions. Products are summed in order of increasing k, whatever is vectorized. */

#define DOTS 4 /* columns computed together */
#define ROWS 4 /* rows computed together */

/* A matrix inside a tensor: element [row][col] at row * rows + col * cols. */
struct matrix {
	const double *data;
	int64_t rows, cols; /* strides */
};

/* Sum over k of a[m][k] * b[k][n]. */
static double dot(struct matrix a, struct matrix b, int64_t m, int64_t n, int64_t count)
{
	double sum = 0;
	for (int64_t k = 0; k < count; k++)
		sum += a.data[m * a.rows + k * a.cols] * b.data[k * b.rows + n * b.cols];
	return sum;
}

/* Accumulators of two rows; lanes are independent doubles. */
typedef double pair __attribute__((vector_size(16)));

/*
 * A 4 x 4 microkernel: out[j][r] = dot of row r and column n + j, bit for bit. Independent accumulators hide the
 * latency of addition, and b is read once for all rows.
 */
static void dot_tile(pair (*rows)[ROWS / 2], struct matrix b, int64_t n, int64_t count,
                     pair out[DOTS][ROWS / 2])
{
	const double *b0 = b.data + n * b.cols, *b1 = b0 + b.cols, *b2 = b1 + b.cols, *b3 = b2 + b.cols;
	pair s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
	for (int64_t k = 0; k < count; k++) {
		pair x = rows[k][0], y = rows[k][1];
		int64_t at = k * b.rows;
		s0 += x * b0[at];
		t0 += y * b0[at];
		s1 += x * b1[at];
		t1 += y * b1[at];
		s2 += x * b2[at];
		t2 += y * b2[at];
		s3 += x * b3[at];
		t3 += y * b3[at];
	}
	const pair sums[DOTS][ROWS / 2] = {{s0, t0}, {s1, t1}, {s2, t2}, {s3, t3}};
	memcpy(out, sums, sizeof(sums));
}

/* Rows [m, m + n_rows) of a b + bias (NULL: none), n_rows <= ROWS: out [n_rows, N]. Rows of a are interleaved in
 * `packed`, zeros in place of missing ones; the last columns, fewer than DOTS, are computed one by one, with the
 * same order of additions. */
static void dot_rows(pair (*packed)[ROWS / 2], struct matrix a, struct matrix b, int64_t m, int64_t n_rows,
                     int64_t n_size, int64_t k_size, const double *bias, double *out)
{
	int64_t n = 0;
	for (int64_t k = 0; k < k_size; k++)
		for (int64_t r = 0; r < ROWS; r++)
			packed[k][r / 2][r % 2] = r < n_rows ? a.data[(m + r) * a.rows + k * a.cols] : 0;
	for (; n + DOTS <= n_size; n += DOTS) {
		pair sums[DOTS][ROWS / 2];
		dot_tile(packed, b, n, k_size, sums);
		for (int64_t r = 0; r < n_rows; r++)
			for (int64_t j = 0; j < DOTS; j++)
				out[r * n_size + n + j] = sums[j][r / 2][r % 2];
	}
	for (; n < n_size; n++)
		for (int64_t r = 0; r < n_rows; r++)
			out[r * n_size + n] = dot(a, b, m + r, n, k_size);
	for (int64_t i = 0; bias && i < n_rows * n_size; i++)
		out[i] += bias[i % n_size];
}

/* gemm of one row in f32 (interp_args.single): every product and partial sum is rounded. */
static void dot_row_f32(struct matrix a, struct matrix b, int64_t m, int64_t n_size, int64_t k_size,
                        const double *bias, double *out)
{
	for (int64_t n = 0; n < n_size; n++) {
		float sum = 0;
		for (int64_t k = 0; k < k_size; k++)
			sum += (float)(a.data[m * a.rows + k * a.cols] * b.data[k * b.rows + n * b.cols]);
		out[n] = (double)sum + (bias ? bias[n] : 0);
	}
}

/* out [M, N] = a b + bias (NULL: none). packed: ROWS interleaved rows of a, zeroed memory of at least one element. */
static enum tfmc_status gemm(const struct interp *in, struct matrix a, struct matrix b, int64_t m_size,
                             int64_t n_size, int64_t k_size, const double *bias, double *out)
{
	pair(*packed)[ROWS / 2] = memory_zeroed((size_t)k_size + 1, sizeof(*packed));
	if (!packed)
		return TFMC_NO_MEMORY;
	for (int64_t m = 0; m < m_size && in->args->single; m++)
		dot_row_f32(a, b, m, n_size, k_size, bias, out + m * n_size);
	for (int64_t m = 0; m < m_size && !in->args->single; m += ROWS) {
		int64_t n_rows = m_size - m < ROWS ? m_size - m : ROWS;
		dot_rows(packed, a, b, m, n_rows, n_size, k_size, bias, out + m * n_size);
	}
	memory_free(packed);
	return TFMC_OK;
}

/* The matrix at `data` with the last axis of t as its width; transposed: strides exchanged. */
static struct matrix matrix_of(const double *data, const struct interp_tensor *t, bool transposed)
{
	int64_t width = t->dims[t->rank - 1];
	return transposed ? (struct matrix){data, 1, width} : (struct matrix){data, width, 1};
}

/* a [..,M,K], b [..,K,N] (each transposed if its flag is set): out [..,M,N], matrix by matrix. */
INTERP_EVAL(matmul)
{
	const struct attrs_matmul *at = op->attrs;
	const struct interp_tensor *a = x[0], *b = x[1];
	int64_t m_size = out->dims[out->rank - 2], n_size = out->dims[out->rank - 1];
	int64_t k_size = a->dims[a->rank - (at->ta ? 2 : 1)];
	int64_t batches = interp_span(out, 0, out->rank - 2);
	for (int64_t i = 0; i < batches; i++) {
		struct matrix ma = matrix_of(a->data + i * m_size * k_size, a, at->ta);
		struct matrix mb = matrix_of(b->data + i * k_size * n_size, b, at->tb);
		TFMC_TRY(gemm(in, ma, mb, m_size, n_size, k_size, NULL, out->data + i * m_size * n_size));
	}
	return TFMC_OK;
}

/* x [M, K], w [N, K], b [N]: out [M, N]. w is read as its transpose, by strides. */
INTERP_EVAL(linear)
{
	int64_t n_size = x[1]->dims[0], k_size = x[1]->dims[1];
	int64_t m_size = interp_span(x[0], 0, x[0]->rank - 1);
	struct matrix rows = {x[0]->data, k_size, 1}, weights = {x[1]->data, 1, k_size};
	return gemm(in, rows, weights, m_size, n_size, k_size, x[2] ? x[2]->data : NULL, out->data);
}

/* x [M, K], w [E, N, K], ids [M], b [E, N]: out [M, N]; ids are clamped. Row by row, as each has its own expert. */
INTERP_EVAL(expert_linear)
{
	int64_t n_experts = x[1]->dims[0], n_size = x[1]->dims[1], k_size = x[1]->dims[2];
	int64_t m_size = interp_span(x[0], 0, x[0]->rank - 1);
	struct matrix rows = {x[0]->data, k_size, 1};
	for (int64_t m = 0; m < m_size; m++) {
		int64_t e = (int64_t)x[2]->data[m];
		e = e < 0 ? 0 : e < n_experts ? e : n_experts - 1;
		struct matrix weights = {x[1]->data + e * n_size * k_size, 1, k_size};
		struct matrix row = {rows.data + m * k_size, k_size, 1};
		TFMC_TRY(gemm(in, row, weights, 1, n_size, k_size, x[3] ? x[3]->data + e * n_size : NULL,
		              out->data + m * n_size));
	}
	return TFMC_OK;
}

/* Operands and sizes of one attention op. */
struct attention {
	const struct attrs_attention *attrs;
	const struct interp_tensor *q, *k, *v, *bias; /* [B,H,S,E] [B,K,T,E] [B,K,T,V] [B,H,S,T] */
	const struct interp_tensor *sinks;            /* [H] */
	struct interp_mask visible;
	int64_t heads, kv_heads, queries, keys, size, value_size;
	bool is_rounded; /* operands of all products are rounded to bf16 */
	double *p;       /* probabilities of one row [T], or of all [B,H,S,T] */
	bool all_rows;   /* p has all rows */
};

/* Dequantizes keys or values: x [B,K,T,E] times scales [B,K,T,1], not rounded; the caller frees out->data. Without
 * scales *out is x, whose data is not the caller's. The copy counts against the memory limit. */
static enum tfmc_status dequantize_kv(struct interp *in, const struct ir_op *op,
                                      const struct interp_tensor *x, const struct interp_tensor *scales,
                                      struct interp_tensor *out)
{
	int64_t n = interp_size(x), width = x->dims[3];
	size_t bytes;
	*out = *x;
	if (!scales)
		return TFMC_OK;
	out->data = NULL;
	if (!checked_mul_size((size_t)n, sizeof(double), &bytes) || bytes > in->limit_bytes - in->used_bytes)
		return interp_error(in, op, "keys or values do not fit into memory");
	out->data = memory_zeroed((size_t)n + 1, sizeof(double));
	for (int64_t i = 0; out->data && i < n; i++)
		out->data[i] = x->data[i] * scales->data[i / width];
	return out->data ? TFMC_OK : TFMC_NO_MEMORY;
}

/* Dot product of row 0 of q and column j of k, with elements rounded to bf16. */
static double dot_bf16(struct matrix q, struct matrix k, int64_t j, int64_t n)
{
	double sum = 0;
	for (int64_t e = 0; e < n; e++)
		sum += ir_round(DT_BF16, q.data[e * q.cols]) *
		       ir_round(DT_BF16, k.data[e * k.rows + j * k.cols]);
	return sum;
}

/* p [T]: attention probabilities of query i, head h, sequence b. Head h reads key head h / (H / K) (grouped
 * queries). Softcap is applied before the mask, as it would make -inf finite. */
static void attention_row(const struct attention *a, int64_t b, int64_t h, int64_t i, double *p)
{
	int64_t row = (b * a->heads + h) * a->queries + i;
	int64_t key_head = b * a->kv_heads + h / (a->heads / a->kv_heads);
	struct matrix q = {a->q->data + row * a->size, 0, 1};
	struct matrix k = {a->k->data + key_head * a->keys * a->size, 1, a->size};
	for (int64_t j = 0; j < a->keys; j++) {
		double s = (a->is_rounded ? dot_bf16(q, k, j, a->size) : dot(q, k, 0, j, a->size)) *
		           a->attrs->scale;
		if (a->bias)
			s += a->bias->data[row * a->keys + j];
		if (a->attrs->softcap > 0)
			s = interp_softcap(s, a->attrs->softcap);
		p[j] = interp_is_visible(a->visible, b, i, j) ? s : -HUGE_VAL;
	}
	interp_softmax_row(p, a->keys, a->sinks ? &a->sinks->data[h] : NULL);
}

/* out [B,H,S,V]: for every query the sum of values weighted by its probabilities, which stay in a->p, of all rows
 * for the callback. */
static void attend(const struct attention *a, struct interp_tensor *out)
{
	for (int64_t row = 0; row < out->dims[0] * a->heads * a->queries; row++) {
		int64_t i = row % a->queries, h = row / a->queries % a->heads,
		        b = row / a->queries / a->heads;
		double *p = a->p + (a->all_rows ? row * a->keys : 0);
		attention_row(a, b, h, i, p);
		int64_t key_head = b * a->kv_heads + h / (a->heads / a->kv_heads);
		const double *v = a->v->data + key_head * a->keys * a->value_size;
		double *to = out->data + row * a->value_size;
		for (int64_t j = 0; j < a->keys; j++) {
			/* a masked key does not contribute, even if its value is infinite or NaN */
			double weight = a->is_rounded ? ir_round(DT_BF16, p[j]) : p[j];
			for (int64_t e = 0; e < a->value_size && p[j] != 0; e++) {
				double x = v[j * a->value_size + e];
				to[e] += weight * (a->is_rounded ? ir_round(DT_BF16, x) : x);
			}
		}
	}
}

/* Allocates a->p: one row, or all rows if there is a callback for them, within the memory limit. */
static enum tfmc_status alloc_probabilities(struct interp *in, const struct ir_op *op, struct attention *a,
                                            int64_t batch)
{
	int64_t dims[] = {batch, a->heads, a->queries, a->keys}, n = a->keys;
	size_t bytes;
	a->all_rows = in->args->attention != NULL;
	if (a->all_rows && !checked_product_i64(dims, TFMC_COUNT(dims), &n))
		return interp_error(in, op, "the attention weights do not fit into memory");
	if (!checked_mul_size((size_t)n, sizeof(double), &bytes) || bytes > in->limit_bytes)
		return interp_error(in, op, "the attention weights do not fit into memory");
	a->p = memory_zeroed((size_t)n + 1, sizeof(double));
	return a->p ? TFMC_OK : TFMC_NO_MEMORY;
}

/* Passes probabilities, values and results of this op to the callback of the run, with the indices of the
 * enclosing repeats. */
static void call_trace(const struct interp *in, const struct ir_op *op, const struct attention *a,
                       const struct interp_tensor *out)
{
	struct interp_tensor p = {.dtype = out->dtype,
	                          .rank = 4,
	                          .dims = {out->dims[0], a->heads, a->queries, a->keys},
	                          .data = a->p};
	struct interp_attention trace = {.f = in->f, .op = op, .at = in->at, .p = &p, .v = a->v, .out = out};
	trace.n_at = in->n_at < INTERP_DEPTH_MAX ? in->n_at : INTERP_DEPTH_MAX;
	in->args->attention(in->args->attention_user, &trace);
}

/* Attention with dequantized k and v; operands as in ops.def: q, k, v, bias, len, past, sinks. */
static enum tfmc_status eval_attention(struct interp *in, const struct ir_op *op,
                                       const struct interp_tensor *const *x, const struct interp_tensor *k,
                                       const struct interp_tensor *v, struct interp_tensor *out)
{
	const struct attrs_attention *at = op->attrs;
	struct attention a = {
	        .attrs = at,
	        .q = x[0],
	        .k = k,
	        .v = v,
	        .bias = x[3],
	        .sinks = x[6],
	        .visible = {x[4], x[5], at->mask == MASK_causal, at->window},
	        .is_rounded = at->factors == FACTORS_bf16 && !in->args->wide,
	        .heads = x[0]->dims[1],
	        .kv_heads = k->dims[1],
	        .queries = x[0]->dims[2],
	        .keys = k->dims[2],
	        .size = x[0]->dims[3],
	        .value_size = v->dims[3],
	};
	if (a.kv_heads < 1 || a.heads % a.kv_heads != 0)
		return interp_error(in, op, "%lld query heads for %lld key heads", (long long)a.heads,
		                    (long long)a.kv_heads);
	TFMC_TRY(alloc_probabilities(in, op, &a, out->dims[0]));
	attend(&a, out);
	if (a.all_rows)
		call_trace(in, op, &a, out);
	memory_free(a.p);
	return TFMC_OK;
}

/* Dequantizes keys and values where they have scales, then attends. Frees only what was allocated: without scales k
 * and v are the operands. */
INTERP_EVAL(attention)
{
	const struct interp_tensor *k_scale = x[OPERAND(attention, k_scale)],
	                           *v_scale = x[OPERAND(attention, v_scale)];
	struct interp_tensor k, v = {0};
	if (interp_size(out) == 0)
		return TFMC_OK;
	enum tfmc_status status = dequantize_kv(in, op, x[1], k_scale, &k);
	if (status == TFMC_OK)
		status = dequantize_kv(in, op, x[2], v_scale, &v);
	if (status == TFMC_OK)
		status = eval_attention(in, op, x, &k, &v, out);
	if (k_scale)
		memory_free(k.data);
	if (v_scale)
		memory_free(v.data);
	return status;
}
