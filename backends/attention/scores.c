/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores of a tile of rows: the register tile of a linear, whose weights are the
 * panels of keys. Sums stay in registers over all elements of a head; each score
 * is one chain of multiply-adds in increasing element, times the scale of its key where keys have scales.
 */
#include "backends/attention/internal.h"

struct score_tile {
	const struct attention *a;
	struct reg_tile p;
	struct kb_val keys;                   /* address of the first panel */
	struct kb_val ahead[TILE_PANELS_MAX]; /* lines to be asked for; may be none */
};

/* Vector v of the keys, i lines after a line of the panel. */
static struct kb_val load_keys(const void *user, struct kb_val line, int i, int v)
{
	const struct score_tile *t = user;
	const struct attention *a = t->a;
	int per_panel = PANEL_COLUMNS / a->lanes;
	int64_t disp = v / per_panel * attention_key_lines(a) * PANEL_COLUMNS + v % per_panel * a->lanes;
	disp += (int64_t)i * PANEL_COLUMNS;
	if (a->pairs)
		return kb_load(a->k, KB_TYPE(KB_I32, a->lanes), t->keys, line, disp, a->lanes * 4);
	struct kb_val x = attention_widen(a, a->key_dtype, t->keys, line, disp, true);
	return a->key.encoding == ENC_PANEL16 ? attention_rounded(a, x) : x;
}

/* Elements [e, e + lanes) of every row. */
static void score_step(const struct score_tile *t, struct kb_val e, int lanes)
{
	struct kb *k = t->a->k;
	struct kb_val x[TILE_MR_MAX], line = kb_mul_const(k, e, PANEL_COLUMNS);
	if (lanes == 1) {
		struct kb_val bytes = kb_mul_const(k, line, ir_dtype_bytes(t->a->key_dtype));
		for (int i = 0; i < TILE_PANELS_MAX && t->ahead[i].id; i++)
			kb_prefetch(k, t->ahead[i], bytes, 0);
		reg_tile_mac_k(&t->p, e, line, 0, 0, t->p.rows);
		return;
	}
	reg_tile_load_x(&t->p, e, lanes, x);
	for (int i = 0; i < lanes; i++)
		reg_tile_mac_k_lane(&t->p, x, line, i);
}

/* Scores of the panels from `panel` on. */
static void score_panels(const struct attention *a, const struct attention_block *b, struct score_tile *t,
                         struct kb_val panel)
{
	struct kb *k = a->k;
	int lanes = a->job->target->k_lanes;
	int64_t lines = attention_key_lines(a), whole = lines - lines % lanes;
	int64_t bytes = lines * PANEL_COLUMNS * ir_dtype_bytes(a->key_dtype);
	t->keys = kb_ptr_add(k, b->keys, kb_mul_const(k, panel, bytes), 0);
	attention_ask_by_keys(a, b, panel, t->p.vectors * a->lanes / PANEL_COLUMNS, t->p.rows, t->ahead);
	reg_tile_zero(&t->p, "score");
	for (int64_t lo = 0, hi = whole; lo < lines; lo = hi, hi = lines, lanes = 1) {
		if (lo == hi)
			continue;
		struct kb_val e = kb_loop(k, "e", kb_index(k, lo), kb_index(k, hi), lanes, KB_NONEMPTY);
		score_step(t, e, lanes);
		kb_end_loop(k);
	}
	struct kb_val to = kb_mul_const(k, panel, PANEL_COLUMNS);
	for (int v = 0; v < t->p.vectors; v++) {
		struct kb_val scale = {0};
		if (a->pairs)
			scale = kb_splat(k, kb_f32(k, a->score.q_factor), a->lanes);
		if (attention_has(&a->k_scale))
			scale = kb_load(k, attention_vector(a), a->scratch.k_scale, to, v * a->lanes,
			                a->lanes * 4);
		for (int i = 0; i < t->p.rows; i++) {
			struct kb_val sum = reg_tile_acc(&t->p, i, v);
			kb_store(k, scale.id ? kb_mul(k, sum, scale) : sum, a->scratch.scores, to,
			         i * a->scratch.stride + v * a->lanes, a->lanes * 4);
		}
	}
}

void attention_scores(const struct attention *a, const struct attention_block *b,
                      const struct attention_tile *t, int rows)
{
	struct kb *k = a->k;
	if (a->matrix) {
		attention_matrix_scores(a, b, t, rows);
		return;
	}
	int vectors = attention_tile_vectors(a, rows), single = PANEL_COLUMNS / a->lanes;
	struct score_tile s = {.a = a, .p = {.k = k, .rows = rows, .vectors = vectors, .lanes = a->lanes}};
	s.p.pairs = a->pairs;
	s.p.weights = load_keys;
	s.p.user = &s;
	attention_set_x(&s.p, attention_scratch_row(k, a->scratch.queries, t->row, a->size_pad), a->size_pad);
	struct kb_val panels = attention_round_up(k, t->last, PANEL_COLUMNS);
	panels = kb_div_const(k, panels, PANEL_COLUMNS);
	struct kb_val first = kb_div_const(k, t->low, PANEL_COLUMNS);
	struct kb_val whole = attention_round_down(k, kb_sub(k, panels, first), vectors / single);
	whole = kb_add(k, first, whole);
	struct kb_val panel = kb_loop(k, "panel", first, whole, vectors / single, 0);
	score_panels(a, b, &s, panel);
	kb_end_loop(k);
	if (vectors == single)
		return;
	s.p.vectors = single;
	panel = kb_loop(k, "panel", whole, panels, 1, 0);
	score_panels(a, b, &s, panel);
	kb_end_loop(k);
}
