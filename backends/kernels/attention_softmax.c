/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Online softmax of a tile of scores (Milakov and Gimelshein 2018): row by row the maximum of the block, then
 * probabilities relative to it and their sum; at the end, for a vector of rows at once, the row maxima so far
 * and the factors that rescale old and new partial results. Full vectors of visible keys come first, then
 * partly visible ones.
 *
 * -FLT_MAX stands for "no maximum yet": -inf - -inf never occurs, and a row of -inf keeps the sum 0.
 */
#include "backends/kernels/attention_internal.h"
#include "backends/kb/math.h"

#include <float.h>
#include <math.h>

#define MAX_ACC 4

/* ---- a row ---- */

/* A row of the tile, and its visible keys. */
struct score_row {
	struct kb_val row;         /* in the task */
	struct kb_val s;           /* address of its scores */
	struct kb_val low, n;      /* the keys it sees are [low, n) */
	struct kb_val begin, end;  /* chunks of the tile: full vectors */
	struct kb_val first, full; /* chunks that are fully visible; none if first >= full */
};

/* Finds the visible keys of row i of the tile, and the chunks that it sees fully. */
static struct score_row open_row(const struct attention *a, const struct attention_block *b,
                                 const struct attention_tile *t, struct kb_val i)
{
	struct kb *k = a->k;
	struct score_row r = {.row = kb_add(k, t->row, i)};
	r.s = attention_scratch_row(k, a->scratch.scores, i, a->scratch.stride);
	r.low = attention_row_first(a, b, r.row);
	r.n = attention_row_end(a, b, r.row);
	r.end = attention_round_up(k, t->last, a->amx ? 2 * PANEL_COLUMNS : a->lanes);
	r.begin = attention_round_down(k, t->low, a->lanes);
	r.first = kb_index(k, 0);
	r.full = attention_round_down(k, r.n, a->lanes);
	if (a->mask.window > 0) {
		r.first = kb_min(k, attention_round_up(k, r.low, a->lanes), r.end);
		r.full = kb_max(k, r.full, r.first);
	}
	return r;
}

/* ---- bias ---- */

/* s[j] += bias[j] bias_factor for `lanes` keys. */
static void add_bias_chunk(const struct attention *a, struct kb_val s, struct kb_val bias, struct kb_val j,
                           int lanes)
{
	struct kb *k = a->k;
	bool side_by_side = lanes > 1 && attention_is_dense(&a->bias, ATTENTION_ELEMENT);
	int n = side_by_side ? lanes : 1;
	struct kb_val index = attention_offset(k, &a->bias, ATTENTION_ELEMENT, j);
	struct kb_val x = attention_load(k, &a->bias, bias, index, 0, n, n);
	struct kb_val y = kb_load(k, KB_TYPE(KB_F32, lanes), s, j, 0, 0);
	x = n == lanes ? x : kb_splat(k, x, lanes);
	if (a->score.bias_factor != 1)
		y = kb_fma(k, x, kb_splat(k, kb_f32(k, a->score.bias_factor), lanes), y);
	else
		y = kb_add(k, x, y);
	kb_store(k, y, s, j, 0, 0);
}

/* Adds the bias to the row's scores: full vectors if the bias is contiguous or broadcast along keys, then one
 * by one. */
static void add_bias(const struct attention *a, const struct attention_block *b, const struct score_row *r)
{
	struct kb *k = a->k;
	struct kb_val s = r->s, begin = r->begin;
	const struct kb_tensor *t = &a->bias;
	const struct kb_size *along = &t->stride[ATTENTION_ELEMENT];
	struct kb_val index = attention_row_index(a, t, kb_add(k, b->task->first, r->row));
	index = kb_add(k, index, attention_offset(k, t, ATTENTION_ELEMENT, b->first));
	struct kb_val bias = attention_at(k, t, b->bias, index);
	struct kb_val n = kb_max(k, r->n, begin), full = begin;
	if (along->is_const && (along->c == 0 || along->c == 1)) {
		full = attention_round_down(k, n, a->lanes);
		struct kb_val j = kb_loop(k, "j", begin, full, a->lanes, 0);
		add_bias_chunk(a, s, bias, j, a->lanes);
		kb_end_loop(k);
	}
	struct kb_val j = kb_loop(k, "j", full, n, 1, 0);
	add_bias_chunk(a, s, bias, j, 1);
	kb_end_loop(k);
}

/* ---- maxima ---- */

/* Mask of the keys from j on that the row sees. */
static struct kb_val visible_lanes(const struct attention *a, const struct score_row *r, struct kb_val j)
{
	struct kb *k = a->k;
	struct kb_val left = kb_cvt(k, kb_sub(k, r->n, j), KB_I32), ids = kb_lane_ids(k, a->lanes);
	struct kb_val is_seen = kb_cmp(k, KB_LT, ids, kb_splat(k, left, a->lanes));
	if (a->mask.window == 0)
		return is_seen;
	struct kb_val before = kb_cvt(k, kb_sub(k, r->low, j), KB_I32);
	return kb_bin(k, KB_AND, is_seen, kb_cmp(k, KB_GE, ids, kb_splat(k, before, a->lanes)));
}

struct kb_val attention_softcap(struct kb *k, struct kb_val x, float cap)
{
	struct kb_val most = math_const(k, x, cap);
	return kb_mul(k, math_tanh(k, x), most);
}

/* max = max(max, scores j + disp ..), capped if there is a softcap; NaN is ignored. */
static void update_max(const struct attention *a, const struct score_row *r, struct kb_val j, int64_t disp,
                       struct kb_var max)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, attention_vector(a), r->s, j, disp, a->lanes * 4);
	if (a->score.cap > 0) {
		x = attention_softcap(k, x, a->score.cap);
		kb_store(k, x, r->s, j, disp, a->lanes * 4);
	}
	kb_set(k, max, kb_max(k, x, kb_get(k, max)));
}

/* The same for a partly visible vector: masked scores become -inf. */
static void update_max_masked(const struct attention *a, const struct score_row *r, struct kb_val j,
                              struct kb_var max)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, attention_vector(a), r->s, j, 0, a->lanes * 4);
	if (a->score.cap > 0)
		x = attention_softcap(k, x, a->score.cap);
	struct kb_val hidden = math_const(k, x, -HUGE_VALF);
	x = kb_select(k, visible_lanes(a, r, j), x, hidden);
	kb_store(k, x, r->s, j, 0, a->lanes * 4);
	kb_set(k, max, kb_max(k, x, kb_get(k, max)));
}

/* Emits a chunk of which the row does not see every key. */
typedef void masked_chunk_fn(const struct attention *a, const struct score_row *r, struct kb_val j,
                             struct kb_var var);

/* Loop over the chunks that the row sees partly: before the fully visible ones (window) and after them. */
static void loop_masked_chunks(const struct attention *a, const struct score_row *r, masked_chunk_fn *body,
                               struct kb_var var)
{
	struct kb *k = a->k;
	struct kb_val j;
	if (a->mask.window > 0) {
		j = kb_loop(k, "j", r->begin, r->first, a->lanes, 0);
		body(a, r, j, var);
		kb_end_loop(k);
	}
	j = kb_loop(k, "j", r->full, r->end, a->lanes, 0);
	body(a, r, j, var);
	kb_end_loop(k);
}

/* Maximum of the row. Several accumulators hide the latency of max; with a softcap, tanh dominates and one is
 * enough. */
static void row_max(const struct attention *a, const struct attention_block *b,
                    const struct attention_tile *t, struct kb_val i)
{
	struct kb *k = a->k;
	struct score_row r = open_row(a, b, t, i);
	struct kb_var max[MAX_ACC];
	int n = a->score.cap > 0 ? 1 : MAX_ACC;
	if (attention_has(&a->bias))
		add_bias(a, b, &r);
	for (int x = 0; x < n; x++)
		max[x] = kb_var(k, "max", attention_vector(a), kb_splat(k, kb_f32(k, -FLT_MAX), a->lanes));
	struct kb_val most = attention_round_down(k, kb_sub(k, r.full, r.first), (int64_t)a->lanes * n);
	most = kb_add(k, r.first, most);
	struct kb_val j = kb_loop(k, "j", r.first, most, (int64_t)a->lanes * n, 0);
	for (int x = 0; x < n; x++)
		update_max(a, &r, j, (int64_t)x * a->lanes, max[x]);
	kb_end_loop(k);
	if (n > 1) {
		j = kb_loop(k, "j", most, r.full, a->lanes, 0);
		update_max(a, &r, j, 0, max[0]);
		kb_end_loop(k);
	}
	loop_masked_chunks(a, &r, update_max_masked, max[0]);
	struct kb_val row_max_vector = kb_get(k, max[0]);
	for (int x = 1; x < n; x++)
		row_max_vector = kb_max(k, kb_get(k, max[x]), row_max_vector);
	kb_store(k, kb_reduce(k, KB_MAX, row_max_vector), a->scratch.tile_max, i, 0, 0);
}

struct kb_val attention_exp(const struct attention *a, struct kb_val x)
{
	return a->score.base2 ? math_exp2_nonpositive(a->k, x) : math_exp_nonpositive(a->k, x);
}

/* Turns a vector of scores into probabilities and adds them to the sum; the scale of an int8 value is
 * multiplied in. */
static void store_probabilities(const struct attention *a, const struct score_row *r, struct kb_val j,
                                struct kb_val max, struct kb_var sum)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, attention_vector(a), r->s, j, 0, a->lanes * 4);
	x = attention_exp(a, kb_sub(k, x, max));
	kb_set(k, sum, kb_add(k, kb_get(k, sum), x));
	if (attention_has(&a->v_scale))
		x = kb_mul(k, x, kb_load(k, attention_vector(a), a->scratch.v_scale, j, 0, a->lanes * 4));
	if (a->bf16_dot) /* in place: bf16 never overtakes the scores still to be read */
		kb_store(k, kb_cvt_bf16_ftz(k, x), r->s, j, 0, a->lanes * 2);
	else
		kb_store(k, attention_round_factor(a, x), r->s, j, 0, a->lanes * 4);
}

/* Marks masked keys of a vector, so that P V can tell them from probability 0. */
static void mark_masked(const struct attention *a, const struct score_row *r, struct kb_val j,
                        struct kb_var unused)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, attention_vector(a), r->s, j, 0, a->lanes * 4);
	(void)unused;
	struct kb_val hidden = math_const(k, x, ATTENTION_MASKED);
	x = kb_select(k, visible_lanes(a, r, j), x, hidden);
	kb_store(k, x, r->s, j, 0, a->lanes * 4);
}

/* Probabilities of the row and their sum, in the order of keys, lane by lane. Masked keys are then marked:
 * rows of a tile see different keys. */
static void row_probabilities(const struct attention *a, const struct attention_block *b,
                              const struct attention_tile *t, struct kb_val i)
{
	struct kb *k = a->k;
	struct score_row r = open_row(a, b, t, i);
	struct kb_val max = kb_load_splat(k, attention_vector(a), a->scratch.tile_max, i, 0);
	struct kb_var sum = kb_var(k, "sum", attention_vector(a), kb_splat(k, kb_f32(k, 0), a->lanes));
	struct kb_val j = kb_loop(k, "j", r.begin, r.end, a->lanes, KB_NONEMPTY);
	store_probabilities(a, &r, j, max, sum);
	kb_end_loop(k);
	kb_store(k, kb_reduce(k, KB_ADD, kb_get(k, sum)), a->scratch.tile_sum, i, 0, 0);
	if (a->mask.rows_differ)
		loop_masked_chunks(a, &r, mark_masked, sum);
}

/* ---- the tile ---- */

/* Neutral maxima and sums for rows of the last vector beyond the tile. */
static void reset_tile_rows(const struct attention *a)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->lanes);
	for (int i = 0; i < a->mr; i += a->lanes) {
		kb_store(k, math_const(k, zero, -FLT_MAX), a->scratch.tile_max, kb_index(k, i), 0, 0);
		kb_store(k, zero, a->scratch.tile_sum, kb_index(k, i), 0, 0);
	}
}

struct kb_val attention_combine_max(const struct attention *a, struct kb_val before, struct kb_val now,
                                    struct kb_val *old_factor, struct kb_val *new_factor)
{
	struct kb_val max = kb_max(a->k, now, before);
	*old_factor = attention_exp(a, kb_sub(a->k, before, max));
	*new_factor = attention_exp(a, kb_sub(a->k, now, max));
	return max;
}

/* Combines maxima and sums of a vector of rows from tile row i on; stores the rescaling factors. */
static void combine_rows(const struct attention *a, const struct attention_block *b,
                         const struct attention_tile *t, struct kb_val i)
{
	struct kb *k = a->k;
	struct kb_type type = attention_vector(a);
	const struct attention_scratch *s = &a->scratch;
	struct kb_val row = kb_add(k, t->row, i), old_factor, new_factor;
	struct kb_val before = kb_load(k, type, b->partial.max, row, 0, 4),
	              now = kb_load(k, type, s->tile_max, i, 0, 4);
	struct kb_val max = attention_combine_max(a, before, now, &old_factor, &new_factor);
	struct kb_val sum = kb_mul(k, kb_load(k, type, s->tile_sum, i, 0, 4), new_factor);
	sum = kb_fma(k, kb_load(k, type, b->partial.sum, row, 0, 4), old_factor, sum);
	kb_store(k, max, b->partial.max, row, 0, 4);
	kb_store(k, sum, b->partial.sum, row, 0, 4);
	kb_store(k, old_factor, s->old_factor, i, 0, 4);
	kb_store(k, new_factor, s->new_factor, i, 0, 4);
}

void attention_softmax(const struct attention *a, const struct attention_block *b,
                       const struct attention_tile *t)
{
	struct kb *k = a->k;
	reset_tile_rows(a);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	row_max(a, b, t, i);
	kb_end_loop(k);
	i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	row_probabilities(a, b, t, i);
	kb_end_loop(k);
	i = kb_loop(k, "i", kb_index(k, 0), t->rows, a->lanes, KB_NONEMPTY);
	combine_rows(a, b, t, i);
	kb_end_loop(k);
}
