/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block of keys for all rows of a tile: the keys are transposed once, then
 * every group of rows makes its scores, updates maximum and sum of each row, and
 * adds the weighted values.
 *
 * What happens to a row depends on its own number of visible keys and on the
 * place of the block only: keys a row does not see get the weight 0 and are left
 * out of its products, so that neither their values nor the row's neighbours in
 * the tile can change its bits.
 */
#include "backends/kernel/attention_internal.h"
#include "backends/kernel/math.h"

#include <float.h>
#include <math.h>

struct kb_type attention_vector(const struct attention *a)
{
	return KB_TYPE(KB_F32, a->lanes);
}

/* Address of row `row` of a table in scratch with rows of `length` elements. */
static struct kb_val scratch_row(struct kb *k, struct kb_val table, struct kb_val row, int64_t length)
{
	return kb_ptr_add(k, table, kb_mul(k, row, kb_index(k, length * 4)), 0);
}

/* n rounded up to a multiple of lanes; n >= 0. */
static struct kb_val round_up(struct kb *k, struct kb_val n, int64_t lanes)
{
	struct kb_val vectors = kb_bin(k, KB_DIV, kb_add_const(k, n, lanes - 1), kb_index(k, lanes));
	return kb_mul(k, vectors, kb_index(k, lanes));
}

/* n rounded down to a multiple of step. */
static struct kb_val round_down(struct kb *k, struct kb_val n, int64_t step)
{
	return kb_mul(k, kb_bin(k, KB_DIV, n, kb_index(k, step)), kb_index(k, step));
}

/* How many keys of the block a row of the tile sees. */
static struct kb_val row_keys(const struct attention *a, struct kb_val row)
{
	struct kb *k = a->k;
	if (!a->is_causal)
		return a->n_keys;
	struct kb_val n = kb_sub(k, kb_add(k, a->first_limit, row), a->first_key);
	return kb_max(k, kb_min(k, n, a->n_keys), kb_index(k, 0));
}

/* --- keys --------------------------------------------------------------------------------------------- */

/* Where a group of keys lies; clamped: keys at or beyond n_keys are not read, the last one stands in. */
struct key_group {
	struct kb_val base;  /* address of the block's first key */
	struct kb_val first; /* position in the block */
	bool clamped;
};

/* Elements [e0, e0 + lanes) (only n of them) of key i of a group. */
static struct kb_val key_row(const struct attention *a, const struct key_group *g, int i, struct kb_val e0,
                             int n)
{
	struct kb *k = a->k;
	const struct kb_size *stride = &a->key.stride[2];
	struct kb_val row = kb_add_const(k, g->first, i);
	int64_t disp = 0;
	if (g->clamped) {
		row = kb_min(k, row, kb_add_const(k, a->n_keys, -1));
	} else if (stride->is_const) {
		row = g->first;
		disp = i * stride->c;
	}
	struct kb_val index = kb_add(k, attention_step(k, &a->key, 2, row), e0);
	return attention_load(k, &a->key, g->base, index, disp, a->lanes, n);
}

/* Row i becomes column i of a square of lanes x lanes: exchanges halves of ever larger squares. */
static void transpose_square(struct kb *k, struct kb_val *rows, int lanes)
{
	for (int d = 1; d < lanes; d *= 2) {
		int low[ATTENTION_LANES_MAX], high[ATTENTION_LANES_MAX];
		for (int l = 0; l < lanes; l++) {
			low[l] = l & d ? lanes + l - d : l;
			high[l] = l & d ? lanes + l : l + d;
		}
		for (int i = 0; i < lanes; i++) {
			if (i & d)
				continue;
			struct kb_val x = rows[i], y = rows[i + d];
			rows[i] = kb_shuffle(k, x, y, low, lanes);
			rows[i + d] = kb_shuffle(k, x, y, high, lanes);
		}
	}
}

/* keys[e0 + e][first + i] for e < n, i < lanes. */
static void transpose_keys(const struct attention *a, const struct key_group *g, struct kb_val e0, int n)
{
	struct kb *k = a->k;
	struct kb_val rows[ATTENTION_LANES_MAX];
	for (int i = 0; i < a->lanes; i++)
		rows[i] = key_row(a, g, i, e0, n);
	transpose_square(k, rows, a->lanes);
	struct kb_val at = kb_add(k, kb_mul(k, e0, kb_index(k, a->bc)), g->first);
	for (int e = 0; e < n; e++)
		kb_store(k, rows[e], a->keys, at, e * a->bc, a->lanes * 4);
}

static void transpose_group(const struct attention *a, const struct key_group *g)
{
	struct kb *k = a->k;
	int64_t whole = a->size - a->size % a->lanes;
	if (whole > 0) {
		struct kb_val e0 = kb_loop(k, "e", kb_index(k, 0), kb_index(k, whole), a->lanes, KB_NONEMPTY);
		transpose_keys(a, g, e0, a->lanes);
		kb_end_loop(k);
	}
	if (whole < a->size)
		transpose_keys(a, g, kb_index(k, whole), (int)(a->size - whole));
}

/* Element by element, when those of a key do not lie side by side. */
static void copy_keys(const struct attention *a, struct kb_val base)
{
	struct kb *k = a->k;
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->size), 1, KB_NONEMPTY);
	struct kb_val from = attention_step(k, &a->key, 3, e);
	struct kb_val to = kb_mul(k, e, kb_index(k, a->bc));
	struct kb_val j = kb_loop(k, "j", kb_index(k, 0), a->n_keys, 1, KB_NONEMPTY);
	struct kb_val index = kb_add(k, attention_step(k, &a->key, 2, j), from);
	struct kb_val x = attention_load(k, &a->key, base, index, 0, 1, 1);
	kb_store(k, x, a->keys, kb_add(k, to, j), 0, 0);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* The block's keys become columns: keys [E,bc]. Columns at or beyond n_keys mean nothing. */
static void load_keys(const struct attention *a)
{
	struct kb *k = a->k;
	struct key_group g = {
	        .base = attention_at(k, &a->key, a->k_head, attention_step(k, &a->key, 2, a->first_key))};
	if (!attention_is_dense(&a->key, 3)) {
		copy_keys(a, g.base);
		return;
	}
	struct kb_val whole = round_down(k, a->n_keys, a->lanes);
	g.first = kb_loop(k, "j", kb_index(k, 0), whole, a->lanes, 0);
	transpose_group(a, &g);
	kb_end_loop(k);
	kb_if(k, kb_cmp(k, KB_LT, whole, a->n_keys));
	g.first = whole;
	g.clamped = true;
	transpose_group(a, &g);
	kb_end_if(k);
}

/* --- scores -------------------------------------------------------------------------------------------- */

/* Rows of queries times vectors of keys. */
struct score_tile {
	struct kb_val row, j; /* the first of each */
	int rows, vectors;
	struct kb_val q[ATTENTION_ROWS]; /* addresses of the rows */
	struct kb_var acc[ATTENTION_ROWS][ATTENTION_VECTORS_MAX];
};

/* Neighbours that a step loads as one vector, to multiply by one after another; 1: one by one. */
static int step_lanes(const struct attention *a, bool is_dense)
{
	return is_dense ? a->job->target->k_lanes : 1;
}

/* Elements [e, e + lanes) of queries and keys; each score is one chain in increasing e. */
static void score_step(const struct attention *a, const struct score_tile *t, struct kb_val e, int lanes)
{
	struct kb *k = a->k;
	struct kb_val q[ATTENTION_ROWS], keys[ATTENTION_VECTORS_MAX];
	struct kb_val at = kb_add(k, kb_mul(k, e, kb_index(k, a->bc)), t->j);
	for (int i = 0; i < t->rows; i++)
		if (lanes > 1)
			q[i] = attention_load(k, &a->q, t->q[i], e, 0, lanes, lanes);
	for (int d = 0; d < lanes; d++) {
		for (int v = 0; v < t->vectors; v++)
			keys[v] = kb_load(k, attention_vector(a), a->keys, at, d * a->bc + v * a->lanes,
			                  a->lanes * 4);
		for (int i = 0; i < t->rows; i++) {
			struct kb_val x;
			if (lanes > 1)
				x = kb_lane(k, q[i], d);
			else
				x = attention_load(k, &a->q, t->q[i], attention_step(k, &a->q, 3, e), 0, 1,
				                   1);
			x = kb_splat(k, x, a->lanes);
			for (int v = 0; v < t->vectors; v++)
				kb_set(k, t->acc[i][v], kb_fma(k, x, keys[v], kb_get(k, t->acc[i][v])));
		}
	}
}

/* scores[row + i][j ..] = q[row + i] k^T for all rows and vectors of keys. */
static void score_tile(const struct attention *a, struct score_tile *t)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->lanes);
	int lanes = step_lanes(a, attention_is_dense(&a->q, 3));
	int64_t whole = a->size - a->size % lanes;
	for (int i = 0; i < t->rows; i++) {
		struct kb_val index = attention_step(k, &a->q, 2, kb_add_const(k, t->row, i));
		t->q[i] = attention_at(k, &a->q, a->q_rows, index);
		for (int v = 0; v < t->vectors; v++)
			t->acc[i][v] = kb_var(k, "score", attention_vector(a), zero);
	}
	for (int64_t lo = 0, hi = whole; lo < a->size; lo = hi, hi = a->size, lanes = 1) {
		if (lo == hi)
			continue;
		struct kb_val e = kb_loop(k, "e", kb_index(k, lo), kb_index(k, hi), lanes, KB_NONEMPTY);
		score_step(a, t, e, lanes);
		kb_end_loop(k);
	}
	struct kb_val to = kb_add(k, kb_mul(k, t->row, kb_index(k, a->bc)), t->j);
	for (int i = 0; i < t->rows; i++)
		for (int v = 0; v < t->vectors; v++)
			kb_store(k, kb_get(k, t->acc[i][v]), a->scores, to, i * a->bc + v * a->lanes,
			         a->lanes * 4);
}

/* Scores of a group of rows for the keys its last row sees. */
static void score_rows(const struct attention *a, struct kb_val row, int rows)
{
	struct kb *k = a->k;
	int64_t step = (int64_t)a->vectors * a->lanes;
	struct kb_val end = round_up(k, row_keys(a, kb_add_const(k, row, rows - 1)), a->lanes);
	struct kb_val whole = round_down(k, end, step);
	struct score_tile t = {.row = row, .rows = rows, .vectors = a->vectors};
	t.j = kb_loop(k, "j", kb_index(k, 0), whole, step, 0);
	score_tile(a, &t);
	kb_end_loop(k);
	if (a->vectors == 1)
		return;
	t.vectors = 1;
	t.j = kb_loop(k, "j", whole, end, a->lanes, 0);
	score_tile(a, &t);
	kb_end_loop(k);
}

/* --- softmax -------------------------------------------------------------------------------------------- */

/* s[j] = s[j] scale + bias[j] for `lanes` keys. */
static void bias_step(const struct attention *a, struct kb_val s, struct kb_val bias, struct kb_val j,
                      int lanes)
{
	struct kb *k = a->k;
	bool side_by_side = lanes > 1 && attention_is_dense(&a->bias, 3);
	struct kb_val x = attention_load(k, &a->bias, bias, attention_step(k, &a->bias, 3, j), 0,
	                                 side_by_side ? lanes : 1, side_by_side ? lanes : 1);
	struct kb_val y = kb_load(k, KB_TYPE(KB_F32, lanes), s, j, 0, 0);
	struct kb_val scale = kb_splat(k, kb_f32(k, (float)a->attrs->scale), lanes);
	kb_store(k, kb_fma(k, y, scale, kb_splat(k, x, lanes)), s, j, 0, 0);
}

/* Vectors as far as the bias may be read, then one by one. */
static void add_bias(const struct attention *a, struct kb_val row, struct kb_val s, struct kb_val n)
{
	struct kb *k = a->k;
	const struct kb_tensor *t = &a->bias;
	bool by_vector = attention_is_dense(t, 3) || (t->stride[3].is_const && t->stride[3].c == 0);
	struct kb_val index = kb_add(k, attention_step(k, t, 2, row), attention_step(k, t, 3, a->first_key));
	struct kb_val bias = attention_at(k, t, a->bias_rows, index);
	struct kb_val whole = kb_index(k, 0);
	if (by_vector) {
		whole = round_down(k, n, a->lanes);
		struct kb_val j = kb_loop(k, "j", kb_index(k, 0), whole, a->lanes, 0);
		bias_step(a, s, bias, j, a->lanes);
		kb_end_loop(k);
	}
	struct kb_val j = kb_loop(k, "j", whole, n, 1, 0);
	bias_step(a, s, bias, j, 1);
	kb_end_loop(k);
}

/* From q k^T to the scores as softmax sees them: -inf for keys at or beyond n. */
static struct kb_val finish_score(const struct attention *a, struct kb_val s, struct kb_val j,
                                  struct kb_val n)
{
	struct kb *k = a->k;
	float scale = (float)a->attrs->scale, cap = (float)a->attrs->softcap;
	if (!a->has_bias && scale != 1)
		s = kb_mul(k, s, math_const(k, s, scale));
	if (cap > 0)
		s = kb_mul(k, math_tanh(k, kb_bin(k, KB_DIV, s, math_const(k, s, cap))),
		           math_const(k, s, cap));
	struct kb_val left = kb_cvt(k, kb_sub(k, n, j), KB_I32);
	struct kb_val seen = kb_cmp(k, KB_LT, kb_lane_ids(k, a->lanes), kb_splat(k, left, a->lanes));
	return kb_select(k, seen, s, math_const(k, s, -HUGE_VALF));
}

/* Finishes the scores of one row and gives their maximum; NaN is ignored here. */
static struct kb_val row_max(const struct attention *a, struct kb_val s, struct kb_val n, struct kb_val end)
{
	struct kb *k = a->k;
	struct kb_val least = kb_splat(k, kb_f32(k, -FLT_MAX), a->lanes);
	struct kb_var max = kb_var(k, "block_max", attention_vector(a), least);
	struct kb_val j = kb_loop(k, "j", kb_index(k, 0), end, a->lanes, KB_NONEMPTY);
	struct kb_val x = kb_load(k, attention_vector(a), s, j, 0, a->lanes * 4);
	x = finish_score(a, x, j, n);
	kb_store(k, x, s, j, 0, a->lanes * 4);
	kb_set(k, max, kb_max(k, x, kb_get(k, max)));
	kb_end_loop(k);
	return kb_reduce(k, KB_MAX, kb_get(k, max));
}

/* Exponential for x <= 0, to the base of the op. */
static struct kb_val power(const struct attention *a, struct kb_val x)
{
	return a->attrs->base2 ? math_exp2_nonpositive(a->k, x) : math_exp_nonpositive(a->k, x);
}

/* s = exp(s - max); gives the sum. */
static struct kb_val row_weights(const struct attention *a, struct kb_val s, struct kb_val max,
                                 struct kb_val end)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->lanes);
	struct kb_var sum = kb_var(k, "block_sum", attention_vector(a), zero);
	struct kb_val maxima = kb_splat(k, max, a->lanes);
	struct kb_val j = kb_loop(k, "j", kb_index(k, 0), end, a->lanes, KB_NONEMPTY);
	struct kb_val x = kb_load(k, attention_vector(a), s, j, 0, a->lanes * 4);
	x = power(a, kb_sub(k, x, maxima));
	kb_store(k, x, s, j, 0, a->lanes * 4);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), x));
	kb_end_loop(k);
	return kb_reduce(k, KB_ADD, kb_get(k, sum));
}

/* acc[row] *= alpha */
static void rescale(const struct attention *a, struct kb_val row, struct kb_val alpha)
{
	struct kb *k = a->k;
	struct kb_val acc = scratch_row(k, a->acc, row, a->value_pad);
	struct kb_val factor = kb_splat(k, alpha, a->lanes);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->value_pad), a->lanes, KB_NONEMPTY);
	struct kb_val x = kb_load(k, attention_vector(a), acc, e, 0, a->lanes * 4);
	kb_store(k, kb_mul(k, x, factor), acc, e, 0, a->lanes * 4);
	kb_end_loop(k);
}

/*
 * Scores of one row become weights relative to the maximum so far; sum and
 * accumulators follow when it grows. The least finite number stands for no
 * maximum yet: nothing becomes -inf - -inf, and a row of -inf keeps the sum 0.
 */
static void softmax_row(const struct attention *a, struct kb_val row)
{
	struct kb *k = a->k;
	struct kb_val n = row_keys(a, row);
	kb_if(k, kb_cmp(k, KB_GT, n, kb_index(k, 0)));
	struct kb_val s = scratch_row(k, a->scores, row, a->bc);
	struct kb_val end = round_up(k, n, a->lanes);
	if (a->has_bias)
		add_bias(a, row, s, n);
	struct kb_val before = kb_load(k, KB_F32_T, a->max, row, 0, 0);
	struct kb_val max = kb_max(k, row_max(a, s, n, end), before);
	struct kb_val alpha = power(a, kb_sub(k, before, max));
	struct kb_val sum = row_weights(a, s, max, end);
	sum = kb_fma(k, kb_load(k, KB_F32_T, a->sum, row, 0, 0), alpha, sum);
	kb_store(k, max, a->max, row, 0, 0);
	kb_store(k, sum, a->sum, row, 0, 0);
	kb_if(k, kb_cmp(k, KB_GT, max, before));
	rescale(a, row, alpha);
	kb_end_if(k);
	kb_end_if(k);
}

/* --- values ----------------------------------------------------------------------------------------------
 */

/* A part of the accumulators: rows of the tile, vectors from element e0 on; tail: elements of the last
 * vector. */
struct value_tile {
	struct kb_val row;
	int rows;
	struct kb_val e0;
	int vectors, tail;
	struct kb_var acc[ATTENTION_ROWS][ATTENTION_VECTORS_MAX];
};

/* Vectors e0 .. of one key. */
static void load_values(const struct attention *a, const struct value_tile *t, struct kb_val j,
                        struct kb_val *v)
{
	struct kb *k = a->k;
	struct kb_val key = attention_step(k, &a->value, 2, kb_add(k, a->first_key, j));
	struct kb_val first = kb_add(k, key, attention_step(k, &a->value, 3, t->e0));
	for (int x = 0; x < t->vectors; x++) {
		struct kb_val at = first;
		int64_t disp = (int64_t)x * a->value_lanes;
		if (a->value_lanes == 1) {
			at = kb_add(k, first, attention_step(k, &a->value, 3, kb_index(k, x)));
			disp = 0;
		}
		v[x] = attention_load(k, &a->value, a->v_head, at, disp, a->value_lanes,
		                      x == t->vectors - 1 ? t->tail : a->value_lanes);
	}
}

/* acc[row + i][e0 ..] += weight[row + i][j] v[j][e0 ..] for keys [j, j + lanes), one after another. */
static void value_step(const struct attention *a, const struct value_tile *t, struct kb_val j, int lanes)
{
	struct kb *k = a->k;
	struct kb_type type = KB_TYPE(KB_F32, a->value_lanes), along = KB_TYPE(KB_F32, lanes);
	struct kb_val v[ATTENTION_VECTORS_MAX], weights[ATTENTION_ROWS], w;
	load_values(a, t, j, v);
	struct kb_val at = kb_add(k, kb_mul(k, t->row, kb_index(k, a->bc)), j);
	for (int i = 0; i < t->rows; i++)
		if (lanes > 1)
			weights[i] = kb_load(k, along, a->scores, at, i * a->bc, 0);
	for (int d = 0; d < lanes; d++) {
		if (d > 0)
			load_values(a, t, kb_add_const(k, j, d), v);
		for (int i = 0; i < t->rows; i++) {
			if (lanes > 1)
				w = kb_splat(k, kb_lane(k, weights[i], d), a->value_lanes);
			else
				w = kb_load_splat(k, type, a->scores, at, i * a->bc);
			for (int x = 0; x < t->vectors; x++)
				kb_set(k, t->acc[i][x], kb_fma(k, w, v[x], kb_get(k, t->acc[i][x])));
		}
	}
}

static void value_tile(const struct attention *a, struct value_tile *t, struct kb_val lo, struct kb_val hi)
{
	struct kb *k = a->k;
	struct kb_type type = KB_TYPE(KB_F32, a->value_lanes);
	int lanes = step_lanes(a, a->value_lanes > 1);
	struct kb_val at = kb_add(k, kb_mul(k, t->row, kb_index(k, a->value_pad)), t->e0);
	for (int i = 0; i < t->rows; i++)
		for (int x = 0; x < t->vectors; x++)
			t->acc[i][x] =
			        kb_var(k, "acc", type,
			               kb_load(k, type, a->acc, at, i * a->value_pad + x * a->value_lanes,
			                       a->value_lanes * 4));
	if (lanes > 1) {
		struct kb_val whole = kb_add(k, lo, round_down(k, kb_sub(k, hi, lo), lanes));
		struct kb_val j = kb_loop(k, "j", lo, whole, lanes, 0);
		value_step(a, t, j, lanes);
		kb_end_loop(k);
		lo = whole;
	}
	struct kb_val j = kb_loop(k, "j", lo, hi, 1, 0);
	value_step(a, t, j, 1);
	kb_end_loop(k);
	for (int i = 0; i < t->rows; i++)
		for (int x = 0; x < t->vectors; x++)
			kb_store(k, kb_get(k, t->acc[i][x]), a->acc, at,
			         i * a->value_pad + x * a->value_lanes, a->value_lanes * 4);
}

/* Adds keys [lo, hi) of the block to the accumulators of some rows. */
static void value_rows(const struct attention *a, struct kb_val row, int rows, struct kb_val lo,
                       struct kb_val hi)
{
	struct kb *k = a->k;
	int lanes = a->value_lanes;
	int64_t step = (int64_t)a->vectors * lanes;
	int64_t whole = a->value_size - a->value_size % step, rest = a->value_size - whole;
	struct value_tile t = {.row = row, .rows = rows, .vectors = a->vectors, .tail = lanes};
	if (whole > 0) {
		t.e0 = kb_loop(k, "e", kb_index(k, 0), kb_index(k, whole), step, KB_NONEMPTY);
		value_tile(a, &t, lo, hi);
		kb_end_loop(k);
	}
	if (rest == 0)
		return;
	t.e0 = kb_index(k, whole);
	t.vectors = (int)((rest + lanes - 1) / lanes);
	t.tail = (int)(rest - (int64_t)(t.vectors - 1) * lanes);
	value_tile(a, &t, lo, hi);
}

/* --- the block --------------------------------------------------------------------------------------------
 */

/* Together as far as the first row sees, then each further row to its own end. */
static void add_values(const struct attention *a, struct kb_val row, int rows)
{
	struct kb *k = a->k;
	struct kb_val common = row_keys(a, row);
	value_rows(a, row, rows, kb_index(k, 0), common);
	if (!a->is_causal || rows == 1)
		return;
	struct kb_val last = row_keys(a, kb_add_const(k, row, rows - 1));
	kb_if(k, kb_cmp(k, KB_LT, common, last));
	struct kb_val i =
	        kb_loop(k, "i", kb_add_const(k, row, 1), kb_add_const(k, row, rows), 1, KB_NONEMPTY);
	value_rows(a, i, 1, common, row_keys(a, i));
	kb_end_loop(k);
	kb_end_if(k);
}

static void group_of_rows(const struct attention *a, struct kb_val row, int rows)
{
	struct kb *k = a->k;
	score_rows(a, row, rows);
	struct kb_val i = kb_loop(k, "i", row, kb_add_const(k, row, rows), 1, KB_NONEMPTY);
	softmax_row(a, i);
	kb_end_loop(k);
	add_values(a, row, rows);
}

void attention_block(struct attention *a)
{
	struct kb *k = a->k;
	load_keys(a);
	struct kb_val whole = round_down(k, a->n_rows, ATTENTION_ROWS);
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), whole, ATTENTION_ROWS, 0);
	group_of_rows(a, row, ATTENTION_ROWS);
	kb_end_loop(k);
	row = kb_loop(k, "row", whole, a->n_rows, 1, 0);
	group_of_rows(a, row, 1);
	kb_end_loop(k);
}
