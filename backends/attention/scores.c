/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores of a tile of rows: the register tile of a linear, whose weights are the
 * panels of keys. Sums stay in registers over all elements of a head; each score
 * is one chain of multiply-adds in increasing element.
 */
#include "backends/attention/internal.h"

struct score_tile {
	int rows, vectors;
	struct kb_val queries; /* address of the first row */
	struct kb_val keys;    /* address of the first panel */
	struct kb_var sum[ATTENTION_SUMS_MAX];
};

/*
 * A few rows read keys as fast as memory gives them, and a panel is about a page, where processors stop
 * looking ahead: line e of the panels of the next tile. One row alone is short enough for the processor to
 * run ahead.
 */
static void ask_ahead(const struct attention *a, const struct score_tile *t, struct kb_val e)
{
	struct kb *k = a->k;
	int64_t bytes = TILE_PANEL * ir_dtype_bytes(a->key_dtype), panel = a->size * bytes,
	        panels = t->vectors * a->lanes / TILE_PANEL;
	if (a->key.encoding != ENC_PANEL16 || t->rows != attention_few(a) || !attention_has_hints(a))
		return;
	struct kb_val line = kb_mul(k, e, kb_index(k, bytes));
	for (int64_t p = 0; p < panels; p++)
		kb_prefetch(k, t->keys, line, (panels + p) * panel);
}

/* sum[i][v] += x[i] keys[v] for all rows. */
static void add_products(const struct attention *a, const struct score_tile *t, const struct kb_val *q, int d,
                         int v, struct kb_val keys)
{
	struct kb *k = a->k;
	for (int i = 0; i < t->rows; i++) {
		struct kb_var sum = t->sum[i * t->vectors + v];
		struct kb_val x = kb_splat(k, kb_lane(k, q[i], d), a->lanes);
		kb_set(k, sum, kb_fma(k, x, keys, kb_get(k, sum)));
	}
}

/* Elements [e, e + lanes) of every row at once, then one after another: beside them lives one line of keys.
 */
static void score_lanes(const struct attention *a, const struct score_tile *t, struct kb_val e, int lanes)
{
	struct kb *k = a->k;
	struct kb_val q[ATTENTION_ROWS_MAX], line = kb_mul(k, e, kb_index(k, TILE_PANEL));
	int per_panel = TILE_PANEL / a->lanes;
	for (int i = 0; i < t->rows; i++)
		q[i] = kb_load(k, KB_TYPE(KB_F32, lanes), t->queries, e, i * a->size_pad, 0);
	for (int d = 0; d < lanes; d++)
		for (int v = 0; v < t->vectors; v++) {
			int64_t disp = v / per_panel * a->size * TILE_PANEL + v % per_panel * a->lanes;
			struct kb_val keys =
			        attention_widen(a, a->key_dtype, t->keys, line, disp + d * TILE_PANEL, true);
			add_products(a, t, q, d, v, keys);
		}
}

/* One element of every row. */
static void score_step(const struct attention *a, const struct score_tile *t, struct kb_val e)
{
	struct kb *k = a->k;
	struct kb_val keys[ATTENTION_SUMS_MAX], line = kb_mul(k, e, kb_index(k, TILE_PANEL));
	int per_panel = TILE_PANEL / a->lanes;
	ask_ahead(a, t, e);
	for (int v = 0; v < t->vectors; v++) {
		int64_t disp = v / per_panel * a->size * TILE_PANEL + v % per_panel * a->lanes;
		keys[v] = attention_widen(a, a->key_dtype, t->keys, line, disp, true);
	}
	for (int i = 0; i < t->rows; i++) {
		struct kb_val x = kb_load_splat(k, attention_vector(a), t->queries, e, i * a->size_pad);
		for (int v = 0; v < t->vectors; v++) {
			struct kb_var sum = t->sum[i * t->vectors + v];
			kb_set(k, sum, kb_fma(k, x, keys[v], kb_get(k, sum)));
		}
	}
}

/* Scores of the panels from `panel` on. */
static void score_panels(const struct attention *a, const struct attention_block *b, struct score_tile *t,
                         struct kb_val panel)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->lanes);
	int lanes = a->job->target->k_lanes;
	int64_t whole = a->size - a->size % lanes;
	int64_t bytes = a->size * TILE_PANEL * ir_dtype_bytes(a->key_dtype);
	t->keys = kb_ptr_add(k, b->keys, kb_mul(k, panel, kb_index(k, bytes)), 0);
	for (int i = 0; i < t->rows * t->vectors; i++)
		t->sum[i] = kb_var(k, "score", attention_vector(a), zero);
	for (int64_t lo = 0, hi = whole; lo < a->size; lo = hi, hi = a->size, lanes = 1) {
		if (lo == hi)
			continue;
		struct kb_val e = kb_loop(k, "e", kb_index(k, lo), kb_index(k, hi), lanes, KB_NONEMPTY);
		if (lanes > 1)
			score_lanes(a, t, e, lanes);
		else
			score_step(a, t, e);
		kb_end_loop(k);
	}
	struct kb_val to = kb_mul(k, panel, kb_index(k, TILE_PANEL));
	for (int i = 0; i < t->rows; i++)
		for (int v = 0; v < t->vectors; v++)
			kb_store(k, kb_get(k, t->sum[i * t->vectors + v]), a->scratch.scores, to,
			         i * a->scratch.stride + v * a->lanes, a->lanes * 4);
}

void attention_scores(const struct attention *a, const struct attention_block *b,
                      const struct attention_tile *t, int rows)
{
	struct kb *k = a->k;
	int vectors = attention_tile_vectors(a, rows), single = TILE_PANEL / a->lanes;
	struct score_tile s = {.rows = rows, .vectors = vectors};
	s.queries = attention_scratch_row(k, a->scratch.queries, t->row, a->size_pad);
	struct kb_val panels = attention_round_up(k, t->last, TILE_PANEL);
	panels = kb_bin(k, KB_DIV, panels, kb_index(k, TILE_PANEL));
	struct kb_val first = kb_bin(k, KB_DIV, t->low, kb_index(k, TILE_PANEL));
	struct kb_val whole = attention_round_down(k, kb_sub(k, panels, first), vectors / single);
	whole = kb_add(k, first, whole);
	struct kb_val panel = kb_loop(k, "panel", first, whole, vectors / single, 0);
	score_panels(a, b, &s, panel);
	kb_end_loop(k);
	if (vectors == single)
		return;
	s.vectors = single;
	panel = kb_loop(k, "panel", whole, panels, 1, 0);
	score_panels(a, b, &s, panel);
	kb_end_loop(k);
}
