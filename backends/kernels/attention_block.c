/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One KV block for all rows of a task, register tile by register tile: scores, softmax relative to the
 * block's maximum, probabilities times values. Each block is computed from zero and then combined with the
 * row's partial result, so that blocks may be computed anywhere and combined in order.
 *
 * Both products are GEMM microkernels. Scores: packed keys take the place of weights; each score is one chain
 * of multiply-adds in increasing element, times the scale of its key if the KV cache is int8. Values: rows of
 * values take the place of weights; each sum is one chain over the keys that the row sees, in increasing key.
 *
 * The bits of a row depend on its visible keys and on the position of the block only: masked keys have
 * probability 0 and are left out of the products, so that neither their values nor other rows of the tile can
 * change them.
 *
 * Keys that a row sees form one range. low, last: the keys that any row of the tile sees; common: those that all see;
 * between them are the edges, where rows differ. is_even: each row sees one key more than the one before (causal
 * mask). Probabilities of masked keys are marked by ATTENTION_MASKED (-1), since 0 is a probability, too.
 *
 * Online softmax (Milakov and Gimelshein 2018): row by row the maximum of the block, then probabilities relative to it
 * and their sum; at the end, for a vector of rows at once, the row maxima so far and the factors that rescale old and
 * new partial results to them. A chunk is a vector of scores; only chunks that a row sees in part need a mask.
 * -FLT_MAX stands for "no maximum yet": -inf - -inf never occurs, and a row of -inf keeps the sum 0. base2: scores
 * have the factor log2 e, so the exponential is 2^x. cap: softcap.
 *
 * Prefetch, for few rows, which read keys and values at the speed of memory: the data of a head is one run (keys of a
 * block, its values, keys of the next block or head). Hardware prefetchers stop at page boundaries, and heads are
 * short; so each read prefetches the address one page later in the run. mr: rows of a register tile, known in the
 * call; code exists for each.
 */
#include "backends/kb/math.h"
#include "backends/kernels/attention_internal.h"

#include <float.h>
#include <math.h>

/* ---- prefetch ---- */

/* n contiguous rows of the run, at address `at`. */
struct rows {
	struct kb_val at, n;
};

/* The rows of the run `ahead` rows after row `row` of `now`, which `next` follows (`bytes` each): from that row to the
 * end of its piece. Less ahead if `now` has fewer rows, so that it is never beyond `next`. */
static struct rows advance(struct kb *k, struct rows now, struct kb_val row, struct rows next, int64_t ahead,
                           int64_t bytes)
{
	row = kb_add(k, row, kb_min(k, now.n, kb_index(k, ahead)));
	struct kb_val is_now = kb_cmp(k, KB_LT, row, now.n), past_end = kb_sub(k, row, now.n);
	row = kb_select(k, is_now, row, past_end);
	struct rows from = {.at = kb_select(k, is_now, now.at, next.at)};
	from.n = kb_sub(k, kb_select(k, is_now, now.n, next.n), row);
	from.at = kb_ptr_add(k, from.at, kb_mul_const(k, row, bytes), 0);
	return from;
}

/* Before a tile of `rows` rows reads panels of keys. One row: prefetches whole panels at once. More rows: sets ahead[]
 * to addresses of which k-row e is prefetched when k-row e is read (none: nothing). */
static void attention_prefetch_keys(const struct attention *a, const struct attention_block *b,
                                    struct kb_val panel, int panels, int rows, int64_t far,
                                    struct kb_val ahead[TILE_PANELS_MAX])
{
	struct kb *k = a->k;
	int64_t bytes = a->size * ir_dtype_bytes(a->nest.keys.dtype);
	for (int i = 0; i < TILE_PANELS_MAX; i++)
		ahead[i] = (struct kb_val){0};
	if (far == 0)
		return;
	const struct rows now = {b->keys, attention_round_up(k, b->n, PANEL_COLUMNS)},
	                  next = {b->values, b->n};
	for (int i = 0; i < panels; i++) {
		struct kb_val row = kb_mul_const(k, kb_add_const(k, panel, i), PANEL_COLUMNS);
		const struct rows from = advance(k, now, row, next, far, bytes);
		if (rows > 1) {
			ahead[i] = from.at;
			continue;
		}
		struct kb_val n = kb_min(k, from.n, kb_index(k, PANEL_COLUMNS)), zero = kb_index(k, 0);
		struct kb_val line = kb_loop(k, "ahead", zero, kb_mul_const(k, n, bytes), PANEL_ROW_BYTES, 0);
		kb_prefetch(k, from.at, line, 0);
		kb_end_loop(k);
	}
}

/* Before a tile reads `columns` columns of the values of key j: prefetches as many, `far` rows later. If keys are
 * packed (copied), the run is values alone. */
static void attention_prefetch_values(const struct attention *a, const struct attention_block *b,
                                      struct kb_val j, struct kb_val column, int columns, int64_t far)
{
	struct kb *k = a->k;
	int64_t element = ir_dtype_bytes(a->nest.values.dtype), bytes = a->value_size * element;
	const struct rows now = {b->values, b->n}, next = {b->next, b->n};
	if (far == 0)
		return;
	struct kb_val from = a->nest.is_one_run
	                             ? advance(k, now, j, next, far, bytes).at
	                             : kb_ptr_add(k, b->values, kb_mul_const(k, j, bytes), far * bytes);
	struct kb_val first = kb_mul_const(k, column, element);
	for (int64_t x = 0; x < columns * element; x += PANEL_ROW_BYTES)
		kb_prefetch(k, from, first, x);
}

/* ---- online softmax ---- */

/* ---- a row ---- */

/* A row of the tile, and its visible keys. */
struct score_row {
	struct kb_val row;         /* in the task */
	struct kb_val s;           /* address of its scores */
	struct kb_val low, n;      /* the keys it sees are [low, n) */
	struct kb_val begin, end;  /* chunks of the tile: full vectors */
	struct kb_val first, full; /* chunks that are fully visible; none if first >= full */
};

/* The first key of the block that a row of the task sees; it sees keys up to attention_row_end. */
static struct kb_val attention_row_first(const struct attention *a, const struct attention_block *b,
                                         struct kb_val row)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	if (a->mask.window == 0)
		return zero;
	struct kb_val begin = attention_row_begin(a, &b->task->limits, kb_add(k, b->task->first, row));
	return kb_max(k, kb_min(k, kb_sub(k, begin, b->first), b->n), zero);
}

/* One past the last key of the block that a row of the task sees; at most the first one: it sees none. */
static struct kb_val attention_row_end(const struct attention *a, const struct attention_block *b,
                                       struct kb_val row)
{
	struct kb *k = a->k;
	if (!a->mask.rows_differ)
		return b->n;
	struct kb_val limit = attention_row_limit(a, &b->task->limits, kb_add(k, b->task->first, row));
	return kb_max(k, kb_min(k, kb_sub(k, limit, b->first), b->n), kb_index(k, 0));
}

/* Finds the visible keys of row i of the tile, and the chunks (full vectors) that it sees fully: only the others need
 * a mask. All chunks that any row of the tile sees are visited, in full steps. */
static struct score_row open_row(const struct attention *a, const struct attention_block *b,
                                 const struct attention_tile *t, struct kb_val i)
{
	struct kb *k = a->k;
	struct score_row r = {.row = kb_add(k, t->row, i)};
	r.s = attention_scratch_row(k, a->scratch.scores, i, a->nest.at.score_stride);
	r.low = attention_row_first(a, b, r.row);
	r.n = attention_row_end(a, b, r.row);
	r.end = attention_round_up(k, t->last, a->nest.score_step);
	r.begin = attention_round_down(k, t->low, a->nest.lanes);
	r.first = kb_index(k, 0);
	r.full = attention_round_down(k, r.n, a->nest.lanes);
	if (a->mask.window > 0) {
		r.first = kb_min(k, attention_round_up(k, r.low, a->nest.lanes), r.end);
		r.full = kb_max(k, r.full, r.first);
	}
	return r;
}

/* ---- bias ---- */

/* s[j] += bias[j] bias_factor for `lanes` keys; one element for all of them if the bias is broadcast along keys. */
static void add_bias_chunk(const struct attention *a, struct kb_val s, struct kb_val bias, struct kb_val j,
                           int lanes)
{
	struct kb *k = a->k;
	int n = a->nest.is_bias_broadcast ? 1 : lanes;
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
 * by one up to the last visible key, since nothing beyond may be read. */
static void add_bias(const struct attention *a, const struct attention_block *b, const struct score_row *r)
{
	struct kb *k = a->k;
	struct kb_val s = r->s, begin = r->begin;
	const struct kb_tensor *t = &a->bias;
	int lanes = a->nest.bias_lanes;
	struct kb_val index = attention_row_index(a, t, kb_add(k, b->task->first, r->row));
	index = kb_add(k, index, attention_offset(k, t, ATTENTION_ELEMENT, b->first));
	struct kb_val bias = attention_at(k, t, b->bias, index);
	struct kb_val n = kb_max(k, r->n, begin), full = begin;
	if (lanes > 1) {
		full = attention_round_down(k, n, lanes);
		struct kb_val j = kb_loop(k, "j", begin, full, lanes, 0);
		add_bias_chunk(a, s, bias, j, lanes);
		kb_end_loop(k);
	}
	struct kb_val j = kb_loop(k, "j", full, n, 1, 0);
	add_bias_chunk(a, s, bias, j, 1);
	kb_end_loop(k);
}

/* ---- maxima ---- */

/* Mask of the `lanes` keys from j on that the row sees: lane ids compared with the distances to its end and begin. */
static struct kb_val visible_lanes(const struct attention *a, const struct score_row *r, struct kb_val j)
{
	struct kb *k = a->k;
	struct kb_val left = kb_cvt(k, kb_sub(k, r->n, j), KB_I32), ids = kb_lane_ids(k, a->nest.lanes);
	struct kb_val is_seen = kb_cmp(k, KB_LT, ids, kb_splat(k, left, a->nest.lanes));
	if (a->mask.window == 0)
		return is_seen;
	struct kb_val before = kb_cvt(k, kb_sub(k, r->low, j), KB_I32);
	return kb_bin(k, KB_AND, is_seen, kb_cmp(k, KB_GE, ids, kb_splat(k, before, a->nest.lanes)));
}

struct kb_val attention_softcap(struct kb *k, struct kb_val x, float cap)
{
	struct kb_val most = math_const(k, x, cap);
	return kb_mul(k, math_tanh(k, x), most);
}

/* Replaces those of the `lanes` values x of keys j .. that the row does not see. */
static struct kb_val hide_lanes(const struct attention *a, const struct score_row *r, struct kb_val j,
                                struct kb_val x, float hidden)
{
	struct kb_val other = math_const(a->k, x, hidden);
	return kb_select(a->k, visible_lanes(a, r, j), x, other);
}

/* max = max(max, scores j + disp ..), NaN ignored; a softcap is applied here and the scores stored again, once. In a
 * partly visible vector masked scores become -inf, whose probability is then 0. */
static void update_max(const struct attention *a, const struct score_row *r, struct kb_val j, int64_t disp,
                       bool is_masked, struct kb_var max)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, attention_vector(a), r->s, j, disp, a->nest.lanes * 4);
	if (a->score.cap > 0)
		x = attention_softcap(k, x, a->score.cap);
	if (is_masked)
		x = hide_lanes(a, r, j, x, -HUGE_VALF);
	if (a->score.cap > 0 || is_masked)
		kb_store(k, x, r->s, j, disp, a->nest.lanes * 4);
	kb_set(k, max, kb_max(k, x, kb_get(k, max)));
}

/* Marks masked keys of a vector, so that P V can tell them from probability 0. */
static void mark_masked(const struct attention *a, const struct score_row *r, struct kb_val j)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, attention_vector(a), r->s, j, 0, a->nest.lanes * 4);
	kb_store(k, hide_lanes(a, r, j, x, ATTENTION_MASKED), r->s, j, 0, a->nest.lanes * 4);
}

/* Loops over the chunks that the row sees partly, before the fully visible ones (window) and after them: updates max
 * with their scores, or marks their probabilities (max none). */
static void loop_masked_chunks(const struct attention *a, const struct score_row *r, struct kb_var max)
{
	struct kb *k = a->k;
	for (int is_after = a->mask.window == 0; is_after < 2; is_after++) {
		struct kb_val begin = is_after ? r->full : r->begin, end = is_after ? r->end : r->first;
		struct kb_val j = kb_loop(k, "j", begin, end, a->nest.lanes, 0);
		if (max.id)
			update_max(a, r, j, 0, true, max);
		else
			mark_masked(a, r, j);
		kb_end_loop(k);
	}
}

/* Stores the maximum of row i, with bias and softcap applied to its scores. Several accumulators hide the latency of
 * max; with a softcap, tanh dominates and one is enough. */
static void row_max(const struct attention *a, const struct attention_block *b,
                    const struct attention_tile *t, struct kb_val i)
{
	struct kb *k = a->k;
	struct score_row r = open_row(a, b, t, i);
	struct kb_var max[ATTENTION_MAX_VECTORS];
	int n = a->nest.max_vectors;
	if (attention_has(&a->bias))
		add_bias(a, b, &r);
	for (int x = 0; x < n; x++)
		max[x] = kb_var(k, "max", attention_vector(a),
		                kb_splat(k, kb_f32(k, -FLT_MAX), a->nest.lanes));
	struct kb_val most = attention_round_down(k, kb_sub(k, r.full, r.first), (int64_t)a->nest.lanes * n);
	most = kb_add(k, r.first, most);
	struct kb_val j = kb_loop(k, "j", r.first, most, (int64_t)a->nest.lanes * n, 0);
	for (int x = 0; x < n; x++)
		update_max(a, &r, j, (int64_t)x * a->nest.lanes, false, max[x]);
	kb_end_loop(k);
	if (n > 1) {
		j = kb_loop(k, "j", most, r.full, a->nest.lanes, 0);
		update_max(a, &r, j, 0, false, max[0]);
		kb_end_loop(k);
	}
	loop_masked_chunks(a, &r, max[0]);
	struct kb_val row_max_vector = kb_get(k, max[0]);
	for (int x = 1; x < n; x++)
		row_max_vector = kb_max(k, kb_get(k, max[x]), row_max_vector);
	kb_store(k, kb_reduce(k, KB_MAX, row_max_vector), a->scratch.tile_max, i, 0, 0);
}

struct kb_val attention_exp(const struct attention *a, struct kb_val x)
{
	return a->score.base2 ? math_exp2_nonpositive(a->k, x) : math_exp_nonpositive(a->k, x);
}

/* Turns a vector of scores into probabilities and adds them to the sum; then multiplies by the scales of int8 values,
 * which the sum does not have, so that values need no scale when they are multiplied. */
static void store_probabilities(const struct attention *a, const struct score_row *r, struct kb_val j,
                                struct kb_val max, struct kb_var sum)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, attention_vector(a), r->s, j, 0, a->nest.lanes * 4);
	x = attention_exp(a, kb_sub(k, x, max));
	kb_set(k, sum, kb_add(k, kb_get(k, sum), x));
	if (attention_has(&a->v_scale))
		x = kb_mul(k, x,
		           kb_load(k, attention_vector(a), a->scratch.v_scale, j, 0, a->nest.lanes * 4));
	if (attention_by_pairs(a)) /* in place: bf16 never overtakes the scores still to be read */
		kb_store(k, kb_cvt_bf16_ftz(k, x), r->s, j, 0, a->nest.lanes * 2);
	else
		kb_store(k, attention_round_factor(a, x), r->s, j, 0, a->nest.lanes * 4);
}

/* Probabilities of the row and their sum, in the order of keys, lane by lane: one accumulator, so that the bits depend
 * on the keys alone. Masked keys are then marked if rows of a tile see different keys. */
static void row_probabilities(const struct attention *a, const struct attention_block *b,
                              const struct attention_tile *t, struct kb_val i)
{
	struct kb *k = a->k;
	struct score_row r = open_row(a, b, t, i);
	struct kb_val max = kb_load_splat(k, attention_vector(a), a->scratch.tile_max, i, 0);
	struct kb_var sum = kb_var(k, "sum", attention_vector(a), kb_splat(k, kb_f32(k, 0), a->nest.lanes));
	struct kb_val j = kb_loop(k, "j", r.begin, r.end, a->nest.lanes, KB_NONEMPTY);
	store_probabilities(a, &r, j, max, sum);
	kb_end_loop(k);
	kb_store(k, kb_reduce(k, KB_ADD, kb_get(k, sum)), a->scratch.tile_sum, i, 0, 0);
	if (a->mask.rows_differ)
		loop_masked_chunks(a, &r, (struct kb_var){0});
}

/* ---- the tile ---- */

struct kb_val attention_combine_max(const struct attention *a, struct kb_val before, struct kb_val now,
                                    struct kb_val *old_factor, struct kb_val *new_factor)
{
	struct kb_val max = kb_max(a->k, now, before);
	*old_factor = attention_exp(a, kb_sub(a->k, before, max));
	*new_factor = attention_exp(a, kb_sub(a->k, now, max));
	return max;
}

/* Combines maxima and sums of a vector of rows from tile row i on with those of earlier blocks; stores the factors
 * that rescale the accumulated values (old) and the block's (new) to the common maximum. Task rows begin anywhere, so
 * accesses are aligned to 4 bytes only. */
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

/* Computes the tile's probabilities, relative to the maximum of its scores in the block; updates row maxima and sums at
 * the end, by vectors of rows. Those of the last vector beyond the tile's rows are combined, too, so all begin with
 * neutral values. */
static void attention_softmax(const struct attention *a, const struct attention_block *b,
                              const struct attention_tile *t)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->nest.lanes);
	for (int i = 0; i < a->nest.mr; i += a->nest.lanes) {
		kb_store(k, math_const(k, zero, -FLT_MAX), a->scratch.tile_max, kb_index(k, i), 0, 0);
		kb_store(k, zero, a->scratch.tile_sum, kb_index(k, i), 0, 0);
	}
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	row_max(a, b, t, i);
	kb_end_loop(k);
	i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	row_probabilities(a, b, t, i);
	kb_end_loop(k);
	i = kb_loop(k, "i", kb_index(k, 0), t->rows, a->nest.lanes, KB_NONEMPTY);
	combine_rows(a, b, t, i);
	kb_end_loop(k);
}

/* ---- a KV block ---- */

/* ---- scores ---- */

struct score_tile {
	const struct attention *a;
	const struct attention_tile *rows_of;
	struct reg_tile p;
	struct kb_val keys;                   /* first panel */
	int64_t far;                          /* prefetch distance in rows; 0: none */
	struct kb_val ahead[TILE_PANELS_MAX]; /* panels to prefetch from; or none */
};

/* Vector v of keys of the k-row i rows after offset `k_row` (a callback of struct reg_tile). Keys that were packed have
 * been rounded to bf16 factors then; those in panels of the cache are rounded here. */
static struct kb_val load_keys(const void *user, struct kb_val k_row, int i, int v)
{
	const struct score_tile *t = user;
	const struct attention *a = t->a;
	int per_panel = PANEL_COLUMNS / a->nest.lanes;
	int64_t disp = v / per_panel * a->nest.keys.k_rows * PANEL_COLUMNS + v % per_panel * a->nest.lanes;
	disp += (int64_t)i * PANEL_COLUMNS;
	if (attention_by_pairs(a))
		return kb_load(a->k, KB_TYPE(KB_I32, a->nest.lanes), t->keys, k_row, disp, a->nest.lanes * 4);
	struct kb_val x = attention_load_vector(a, a->nest.keys.dtype, t->keys, k_row, disp, true);
	return a->nest.keys.is_packed ? x : attention_round_factor(a, x);
}

/* Adds head elements [e, e + lanes) to the scores of all rows. lanes > 1: machines that multiply by a lane of a
 * register. One element: prefetches k-row e of the panels ahead. */
static void score_k(const struct score_tile *t, struct kb_val e, int lanes)
{
	struct kb *k = t->a->k;
	struct kb_val x[TILE_MR_MAX], k_row = kb_mul_const(k, e, PANEL_COLUMNS);
	if (lanes == 1) {
		struct kb_val bytes = kb_mul_const(k, k_row, ir_dtype_bytes(t->a->nest.keys.dtype));
		for (int i = 0; i < TILE_PANELS_MAX && t->ahead[i].id; i++)
			kb_prefetch(k, t->ahead[i], bytes, 0);
		reg_tile_mac_k(&t->p, e, k_row, 0, 0, t->p.rows);
		return;
	}
	reg_tile_load_x(&t->p, e, lanes, x);
	for (int i = 0; i < lanes; i++)
		reg_tile_mac_k_lane(&t->p, x, k_row, i);
}

/* Scores for the panels from `panel` on: one chain of multiply-adds over the head's elements (a loop by lanes, then one
 * for the remainder), then the scale: that of the key (int8 cache), or q_factor, which bf16 queries do not have. */
static void score_panels(const struct attention *a, const struct attention_block *b, struct score_tile *t,
                         struct kb_val panel)
{
	struct kb *k = a->k;
	int lanes = a->nest.x_lanes, panels = t->p.vectors * a->nest.lanes / PANEL_COLUMNS;
	int64_t k_rows = a->nest.keys.k_rows, full = k_rows - k_rows % lanes;
	int64_t bytes = k_rows * PANEL_COLUMNS * ir_dtype_bytes(a->nest.keys.dtype);
	if (a->nest.product == ATTENTION_AMX) {
		attention_amx_scores(a, b, t->rows_of, panel, t->p.rows, panels);
		return;
	}
	t->keys = kb_ptr_add(k, b->keys, kb_mul_const(k, panel, bytes), 0);
	attention_prefetch_keys(a, b, panel, panels, t->p.rows, t->far, t->ahead);
	reg_tile_zero(&t->p, "score");
	for (int64_t lo = 0, hi = full; lo < k_rows; lo = hi, hi = k_rows, lanes = 1) {
		if (lo == hi)
			continue;
		struct kb_val e = kb_loop(k, "e", kb_index(k, lo), kb_index(k, hi), lanes, KB_NONEMPTY);
		score_k(t, e, lanes);
		kb_end_loop(k);
	}
	struct kb_val to = kb_mul_const(k, panel, PANEL_COLUMNS);
	for (int v = 0; v < t->p.vectors; v++) {
		struct kb_val scale = {0};
		if (attention_by_pairs(a))
			scale = kb_splat(k, kb_f32(k, a->score.q_factor), a->nest.lanes);
		if (attention_has(&a->k_scale))
			scale = kb_load(k, attention_vector(a), a->scratch.k_scale, to, v * a->nest.lanes,
			                a->nest.lanes * 4);
		for (int i = 0; i < t->p.rows; i++) {
			struct kb_val sum = reg_tile_acc(&t->p, i, v);
			kb_store(k, scale.id ? kb_mul(k, sum, scale) : sum, a->scratch.scores, to,
			         i * a->nest.at.score_stride + v * a->nest.lanes, a->nest.lanes * 4);
		}
	}
}

/* Scores of a tile, for all keys that any of them sees, in full panels: several at once, then one by
 * one. */
static void emit_scores(const struct attention *a, const struct attention_block *b,
                        const struct attention_tile *t, const struct attention_row_tile *of)
{
	struct kb *k = a->k;
	int vectors = of->vectors, single = PANEL_COLUMNS / a->nest.lanes;
	struct score_tile s = {.a = a,
	                       .rows_of = t,
	                       .p = {.k = k, .rows = of->rows, .vectors = vectors, .lanes = a->nest.lanes},
	                       .far = of->keys_ahead};
	s.p.pairs = attention_by_pairs(a);
	s.p.weights = load_keys;
	s.p.user = &s;
	attention_set_x(&s.p, attention_scratch_row(k, a->scratch.queries, t->row, a->nest.size_pad),
	                a->nest.size_pad);
	struct kb_val panels = attention_round_up(k, t->last, PANEL_COLUMNS);
	panels = kb_div_const(k, panels, PANEL_COLUMNS);
	struct kb_val first = kb_div_const(k, t->low, PANEL_COLUMNS);
	struct kb_val full = attention_round_down(k, kb_sub(k, panels, first), vectors / single);
	full = kb_add(k, first, full);
	struct kb_val panel = kb_loop(k, "panel", first, full, vectors / single, 0);
	score_panels(a, b, &s, panel);
	kb_end_loop(k);
	if (vectors == single)
		return;
	s.p.vectors = single;
	s.far = of->panel_ahead;
	panel = kb_loop(k, "panel", full, panels, 1, 0);
	score_panels(a, b, &s, panel);
	kb_end_loop(k);
}

/* ---- values ---- */

struct value_tile {
	const struct attention *a;
	const struct attention_tile *rows_of;
	struct reg_tile p; /* probabilities times values: K of the GEMM is the key */
	const struct attention_block *block;
	int64_t values_ahead; /* prefetch distance in rows; 0: none */
	struct kb_val column; /* first column */
	struct kb_val values; /* its address, for the first key of the block */
};

/* Vector v of a row of values, or with bf16 pairs of two rows (a callback of struct reg_tile). Values that were packed
 * have been rounded to bf16 factors then. */
static struct kb_val load_values(const void *user, struct kb_val k_row, int i, int v)
{
	const struct value_tile *t = user;
	const struct attention *a = t->a;
	(void)i;
	if (attention_by_pairs(a))
		return kb_load(a->k, KB_TYPE(KB_I32, a->nest.lanes), t->values, k_row, v * a->nest.lanes, 0);
	struct kb_val x =
	        attention_load_vector(a, a->nest.values.dtype, t->values, k_row, v * a->nest.lanes, false);
	return a->nest.values.is_packed ? x : attention_round_factor(a, x);
}

/* Offset of the values of a key, in elements. */
static struct kb_val value_offset(const struct attention *a, struct kb_val key)
{
	return kb_mul_const(a->k, key, a->nest.values.stride);
}

/* Adds key j for rows [from, to) of the tile. */
static void add_key(const struct value_tile *t, struct kb_val j, int from, int to)
{
	reg_tile_mac_k(&t->p, j, value_offset(t->a, j), 0, from, to);
}

/*
 * Adds keys [from, to) that only some rows of the tile see, row by row with a test of the marked probability: acc += w
 * v if the row sees the key. With mask registers the multiply-add is masked. Else values are 0 for a masked key: its
 * probability w is -1, and acc + -0 is acc. Values are loaded again for each row, as memory operands: accumulators, a
 * row of values and a mask exceed 16 registers.
 */
static void loop_masked_keys(const struct attention *a, const struct value_tile *t, struct kb_val from,
                             struct kb_val to)
{
	struct kb *k = a->k;
	struct kb_val j = kb_loop(k, "j", from, to, 1, 0), k_row = value_offset(a, j);
	for (int i = 0; i < t->p.rows; i++) {
		struct kb_val w = kb_load_splat(k, attention_vector(a), t->p.x[i], j, t->p.x_disp[i]);
		struct kb_val masked = kb_splat(k, kb_f32(k, ATTENTION_MASKED), a->nest.lanes);
		struct kb_val is_seen = kb_cmp(k, KB_NE, w, masked);
		struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->nest.lanes);
		for (int x = 0; x < t->p.vectors; x++) {
			struct kb_var var = t->p.sum[i * t->p.vectors + x];
			struct kb_val sum = kb_get(k, var), v = load_values(t, k_row, 0, x);
			if (a->nest.masks_acc)
				kb_set(k, var, kb_select(k, is_seen, kb_fma(k, w, v, sum), sum));
			else
				kb_set(k, var, kb_fma(k, w, kb_select(k, is_seen, v, zero), sum));
		}
	}
	kb_end_loop(k);
}

/* Keys [begin, end) at an edge of the mask, which only some rows see. If rows are even and the edge has a key less than
 * rows (only where nest.has_edges), no probability is tested: at the upper edge key d is for the rows after row d, at
 * the lower edge for those up to it. */
static void loop_edge_keys(const struct attention *a, const struct value_tile *t, struct kb_val begin,
                           struct kb_val end, bool is_upper)
{
	struct kb *k = a->k;
	if (a->nest.has_edges) {
		struct kb_val full = kb_cmp(k, KB_EQ, kb_sub(k, end, begin), kb_index(k, t->p.rows - 1));
		kb_if(k, kb_bin(k, KB_AND, t->rows_of->is_even, full));
		for (int d = 0; d < t->p.rows - 1; d++)
			add_key(t, kb_add_const(k, begin, d), is_upper ? d + 1 : 0,
			        is_upper ? t->p.rows : d + 1);
		kb_else(k);
	}
	loop_masked_keys(a, t, begin, end);
	if (a->nest.has_edges)
		kb_end_if(k);
}

/* All keys that rows of the tile see, in increasing order: those at a lower edge (window), those common to all rows, by
 * lanes where the target multiplies by element, those at the upper edge. bf16 pairs: an iteration adds two keys. */
static void loop_keys(const struct attention *a, const struct value_tile *t)
{
	struct kb *k = a->k;
	const struct attention_tile *of = t->rows_of;
	int lanes = a->nest.x_lanes;
	struct kb_val lo = of->common, j, probabilities[TILE_MR_MAX];
	bool is_masked = a->mask.rows_differ && t->p.rows > 1;
	if (is_masked && a->mask.window > 0)
		loop_edge_keys(a, t, of->low, of->common, false);
	if (lanes > 1) {
		struct kb_val n = attention_round_down(k, kb_sub(k, of->common_end, lo), lanes);
		struct kb_val full = kb_add(k, lo, n);
		j = kb_loop(k, "j", lo, full, lanes, 0);
		reg_tile_load_x(&t->p, j, lanes, probabilities);
		for (int i = 0; i < lanes; i++)
			reg_tile_mac_k_lane(&t->p, probabilities, value_offset(a, kb_add_const(k, j, i)), i);
		kb_end_loop(k);
		lo = full;
	}
	struct kb_val end = of->common_end;
	if (attention_by_pairs(a))
		end = kb_div_const(k, kb_add_const(k, end, 1), 2);
	j = kb_loop(k, "j", lo, end, 1, 0);
	attention_prefetch_values(a, t->block, j, t->column, t->p.vectors * a->nest.lanes, t->values_ahead);
	add_key(t, j, 0, t->p.rows);
	kb_end_loop(k);
	if (is_masked)
		loop_edge_keys(a, t, of->common_end, of->last, true);
}

/* Columns from e0 on of acc = acc old_factor + block new_factor: the block's values, over all its keys, are summed in
 * the register tile and combined with those of earlier blocks. */
static void value_columns(const struct attention *a, const struct attention_block *b, struct value_tile *t,
                          struct kb_val e0)
{
	struct kb *k = a->k;
	struct kb_type type = attention_vector(a);
	int lanes = a->nest.lanes;
	if (a->nest.product == ATTENTION_AMX) {
		attention_amx_values(a, b, t->rows_of, e0, t->p.rows, t->p.vectors * lanes / PANEL_COLUMNS);
		return;
	}
	struct kb_val bytes = kb_mul_const(k, e0, ir_dtype_bytes(a->nest.values.dtype));
	t->column = e0;
	t->values = kb_ptr_add(k, b->values, bytes, 0);
	reg_tile_zero(&t->p, "sum");
	loop_keys(a, t);
	struct kb_val acc = attention_scratch_row(k, b->partial.acc, t->rows_of->row, a->nest.value_pad);
	struct kb_val zero = kb_index(k, 0);
	for (int i = 0; i < t->p.rows; i++) {
		struct kb_val old_factor = kb_load_splat(k, type, a->scratch.old_factor, zero, i);
		struct kb_val new_factor = kb_load_splat(k, type, a->scratch.new_factor, zero, i);
		for (int x = 0; x < t->p.vectors; x++) {
			int64_t disp = i * a->nest.value_pad + x * lanes;
			struct kb_val sum = kb_mul(k, reg_tile_acc(&t->p, i, x), new_factor);
			struct kb_val before = kb_load(k, type, acc, e0, disp, lanes * 4);
			kb_store(k, kb_fma(k, before, old_factor, sum), acc, e0, disp, lanes * 4);
		}
	}
}

/* acc = acc old_factor + (probabilities v) new_factor for a tile, columns of the head by columns that a
 * register tile has; fewer vectors at the end. */
static void emit_values(const struct attention *a, const struct attention_block *b,
                        const struct attention_tile *t, const struct attention_row_tile *of)
{
	struct kb *k = a->k;
	struct value_tile v = {.a = a,
	                       .block = b,
	                       .values_ahead = of->values_ahead,
	                       .rows_of = t,
	                       .p = {.k = k, .rows = of->rows, .lanes = a->nest.lanes}};
	v.p.pairs = attention_by_pairs(a);
	v.p.vectors = of->value_vectors;
	v.p.weights = load_values;
	v.p.user = &v;
	attention_set_x(&v.p, a->scratch.scores, a->nest.at.score_stride);
	int64_t full = (ceil_div(a->value_size, a->nest.lanes) - of->value_remainder) * a->nest.lanes;
	struct kb_val e0 = kb_loop(k, "e", kb_index(k, 0), kb_index(k, full),
	                           (int64_t)v.p.vectors * a->nest.lanes, KB_NONEMPTY);
	value_columns(a, b, &v, e0);
	kb_end_loop(k);
	if (of->value_remainder == 0)
		return;
	v.p.vectors = of->value_remainder;
	value_columns(a, b, &v, kb_index(k, full));
}

/* ---- tiles ---- */

/* Emits a phase of a tile; code exists for each row tile of the nest. */
typedef void tile_fn(const struct attention *a, const struct attention_block *b,
                     const struct attention_tile *t, const struct attention_row_tile *of);

/* Emits the phase for each row tile, behind comparisons with mr of the tile at run time; the lowest needs none. */
static void emit_by_mr(const struct attention *a, const struct attention_block *b,
                       const struct attention_tile *t, struct kb_val mr, tile_fn *phase)
{
	struct kb *k = a->k;
	const struct attention_nest *n = &a->nest;
	for (int i = 0; i < n->n_tiles - 1; i++) {
		kb_if(k, kb_cmp(k, KB_EQ, mr, kb_index(k, n->tile[i].rows)));
		phase(a, b, t, &n->tile[i]);
		kb_else(k);
	}
	phase(a, b, t, &n->tile[n->n_tiles - 1]);
	for (int i = 0; i < n->n_tiles - 1; i++)
		kb_end_if(k);
}

/* mr of the next tile if `left` rows are left: of the lowest that serves as many (left_max). A tile may have fewer rows
 * than mr: packed queries repeat the last one. */
static struct kb_val choose_mr(const struct attention *a, struct kb_val left)
{
	struct kb *k = a->k;
	struct kb_val mr = kb_index(k, a->nest.tile[0].rows);
	for (int i = 1; i < a->nest.n_tiles; i++) {
		const struct attention_row_tile *t = &a->nest.tile[i];
		/* where the lowest is one row, EQ saves a register */
		enum kb_cmp op = t->left_max == 1 ? KB_EQ : KB_LE;
		struct kb_val is_few = kb_cmp(k, op, left, kb_index(k, t->left_max));
		mr = kb_select(k, is_few, kb_index(k, t->rows), mr);
	}
	return mr;
}

/* bool: each row's visible keys end (and with a window begin) inside the block, one key after those of the
 * row before, and with a window the two edges are disjoint. Rows `first` to `last` of the task. */
static struct kb_val find_even_rows(const struct attention *a, const struct attention_block *b,
                                    struct kb_val first, struct kb_val last)
{
	struct kb *k = a->k;
	const struct attention_limits *l = &b->task->limits;
	struct kb_val row = kb_add(k, b->task->first, first), zero = kb_index(k, 0);
	struct kb_val end = kb_sub(k, attention_row_limit(a, l, row), b->first);
	struct kb_val is_even = kb_cmp(k, KB_GE, end, zero);
	if (a->mask.window == 0)
		return is_even;
	struct kb_val begin = kb_sub(k, kb_add(k, l->begin, row), b->first);
	struct kb_val upper = attention_row_end(a, b, first);
	struct kb_val edges_are_disjoint = kb_cmp(k, KB_LE, attention_row_first(a, b, last), upper);
	is_even = kb_bin(k, KB_AND, is_even, kb_cmp(k, KB_GE, begin, zero));
	return kb_bin(k, KB_AND, is_even, edges_are_disjoint);
}

/* The tile of rows from `row` on: as many as mr and the task have, and the keys that any and all of them see. Later
 * rows see later keys, so the first and the last row bound both ranges; no common key: common_end = common. */
static struct attention_tile find_tile(const struct attention *a, const struct attention_block *b,
                                       struct kb_val row, struct kb_val mr)
{
	struct kb *k = a->k;
	struct attention_tile t = {.row = row};
	t.rows = kb_min(k, mr, kb_sub(k, b->task->n, row));
	struct kb_val last_row = kb_add_const(k, kb_add(k, row, t.rows), -1);
	t.low = attention_row_first(a, b, row);
	t.last = attention_row_end(a, b, last_row);
	t.common = kb_index(k, 0);
	t.common_end = attention_row_end(a, b, row);
	if (a->mask.window > 0) {
		t.common = kb_min(k, attention_row_first(a, b, last_row), t.last);
		t.common_end = kb_max(k, t.common_end, t.common);
	}
	if (a->nest.has_edges)
		t.is_even = find_even_rows(a, b, row, last_row);
	return t;
}

/* Tiles are computed in order of rows, phase by phase; a tile that sees no key of the block is left out, so its partial
 * result stays. The softmax has the same code for each mr. */
void attention_block(const struct attention *a, const struct attention_block *b)
{
	struct kb *k = a->k;
	struct kb_var next = kb_var(k, "row", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	struct kb_val row = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, row, b->task->n));
	struct kb_val mr = choose_mr(a, kb_sub(k, b->task->n, row));
	const struct attention_tile t = find_tile(a, b, row, mr);
	kb_if(k, kb_cmp(k, KB_GT, t.last, t.low));
	emit_by_mr(a, b, &t, mr, emit_scores);
	attention_softmax(a, b, &t);
	emit_by_mr(a, b, &t, mr, emit_values);
	kb_end_if(k);
	kb_set(k, next, kb_add(k, row, mr));
	kb_end_forever(k);
}
