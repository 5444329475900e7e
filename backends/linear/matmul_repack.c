/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of codes and many rows: the codes of a strip become f32 in scratch once, and the tiles of f32 pass over
 * them. Both read the same numbers, so results have the same bits with and without.
 *
 * Integers, where products are those of halves of 16 bits (pmaddwd): words of four bytes become two words in scratch, of
 * bytes 0 and 2 and of bytes 1 and 3, of each row of x once and of a few panels once for all rows of a block. Sums of
 * integers are exact, so results have the same bits here, too.
 */
#include "backends/linear/matmul_internal.h"

#define CONSTANTS 4 /* registers: of codes on their way to f32, and an element of x */
#define ON_WAY    2 /* of a vector of columns: a line, and the element */

/* Rows of a tile that reads codes: sums beside what each vector of columns keeps. */
static int rows_beside_codes(const struct linear *l, int panels)
{
	const struct kb_caps *caps = kb_caps(l->k);
	int units = panels * matmul_units(l);
	return (caps->registers - units * (ON_WAY + l->panel.held) - CONSTANTS - !caps->has_fma) / units;
}

static void lower_tiles(struct linear *l)
{
	int rows = rows_beside_codes(l, l->nr);
	if (rows < 2 && l->nr > 1) {
		l->nr = 1;
		rows = rows_beside_codes(l, 1);
	}
	l->mr = rows < l->mr ? rows : l->mr;
	l->mr = l->mr > 1 ? l->mr : 1;
}

bool matmul_reads_codes(const struct linear *l)
{
	return l->panel.lines == PANEL_CODES && !l->rounded.round && !l->copy.at.id;
}

/* The scales of so many vectors may wait in memory, from where instructions take operands; machines that multiply by an
 * element load everything first. */
static bool may_wait(const struct linear *l, int vectors)
{
	int registers = vectors * (ON_WAY + l->panel.held) + CONSTANTS;
	return l->job->target->k_lanes == 1 || registers <= kb_caps(l->k)->registers;
}

int matmul_panels_of_codes(const struct linear *l, int rows)
{
	const struct target *t = l->job->target;
	int units = matmul_units(l), n = MATMUL_STRIP;
	for (; n > 1; n /= 2) {
		bool hides =
		        rows == 1 && n * units <= t->fma_latency * t->fma_ports && may_wait(l, n * units);
		if ((rows <= rows_beside_codes(l, n) || hides) && n <= l->columns.n / MATMUL_PANEL)
			break;
	}
	return n;
}

void matmul_choose_copy(struct linear *l, bool is_few, int64_t begin)
{
	const struct attrs_group *s = l->g->attrs;
	int64_t width = (int64_t)l->columns.halves * l->columns.strip * MATMUL_PANEL * 4;
	int64_t lines = (s->scratch - begin) / width, unit = l->panel.unit;
	if (l->panel.lines != PANEL_CODES || l->rounded.round)
		return;
	int64_t kc = s->kc < lines / 2 ? s->kc / unit * unit : lines / 2 / unit * unit;
	bool is_whole = lines >= l->depth;
	if (is_few || l->rows_hi <= l->mr || (!is_whole && (kc < 1 || lines - kc < l->mr))) {
		lower_tiles(l);
		return;
	}
	int64_t depth = is_whole ? l->depth : kc;
	l->copy.at = kb_ptr_add(l->k, l->job->scratch, kb_index(l->k, begin), 0);
	l->copy.panel = panel_of(FORMAT_PLAIN, depth);
	if (is_whole)
		return;
	l->stage.kc = kc;
	l->stage.rows = lines - kc;
	l->stage.at = kb_ptr_add(l->k, l->copy.at, kb_index(l->k, kc * width), 0);
}

struct copier {
	const struct linear *l;
	struct kb_val to; /* the panel's copy, K from 0 on */
};

static void copy_line(void *user, const struct panel_walk *w, struct kb_val from, int n)
{
	const struct copier *c = user;
	struct kb *k = w->k;
	struct kb_val at = kb_mul_const(k, from, MATMUL_PANEL);
	for (int i = 0; i < n; i++)
		for (int v = 0; v < w->vectors; v++) {
			struct kb_val weights = panel_walk_vector(w, i, v);
			kb_store(k, weights, c->to, at, (int64_t)i * MATMUL_PANEL + (int64_t)v * w->lanes, 0);
		}
}

/* Bytes from the copy's place to where its K would be 0. */
static struct kb_val before(const struct linear *l, const struct matmul_strip *s)
{
	return kb_mul_const(l->k, s->k_lo, -PANEL_ROW_BYTES);
}

static void copy_panel(const struct linear *l, const struct matmul_strip *s, struct kb_val panel,
                       struct kb_val half)
{
	struct kb *k = l->k;
	struct copier c = {.l = l};
	struct kb_val to = kb_sub(k, panel, s->begin);
	if (half.id) {
		panel = kb_add(k, panel, kb_mul_const(k, half, l->columns.panels));
		to = kb_add(k, to, kb_mul_const(k, half, l->columns.strip));
	}
	to = kb_mul_const(k, to, l->copy.panel.bytes);
	c.to = kb_ptr_add(k, l->copy.at, kb_add(k, to, before(l, s)), 0);
	struct panel_walk w = {.k = k,
	                       .panel = &l->panel,
	                       .lanes = l->lanes,
	                       .vectors = MATMUL_PANEL / l->lanes,
	                       .lo = s->k_lo,
	                       .hi = s->k_hi,
	                       .is_part = l->stage.kc != 0,
	                       .line = copy_line,
	                       .user = &c};
	w.at = kb_ptr_add(k, s->weights, kb_mul_const(k, panel, l->panel.bytes), 0);
	panel_walk(&w);
}

struct matmul_strip matmul_copy_strip(const struct linear *l, const struct matmul_strip *s)
{
	struct kb *k = l->k;
	struct matmul_strip copy = *s;
	struct kb_val half = {0};
	if (!l->copy.at.id)
		return copy;
	if (l->columns.halves > 1)
		half = kb_loop(k, "half", kb_index(k, 0), kb_index(k, l->columns.halves), 1, KB_NONEMPTY);
	struct kb_val panel = kb_loop(k, "panel", s->begin, s->end, 1, 0);
	copy_panel(l, s, panel, half);
	kb_end_loop(k);
	if (l->columns.halves > 1)
		kb_end_loop(k);
	copy.copied = &l->copy.panel;
	copy.weights = kb_ptr_add(k, l->copy.at, before(l, s), 0);
	return copy;
}

/* ---- integers ---- */

void matmul_choose_unpacked(struct linear *l, int64_t begin)
{
	const struct attrs_group *s = l->g->attrs;
	bool is_whole = l->stage.at.id || l->parts || l->strips || matmul_by_steps(l);
	int step = is_whole ? l->columns.strip : l->nr;
	if (!l->rounded.round || l->rows_hi < UNPACK_MIN_ROWS)
		return;
	struct tile_unpacked_bytes of;
	if (!tile_unpacked_bytes(l->job->target, l->panel.format, l->rounded.to, l->depth, &of))
		return;
	if (matmul_by_steps(l) && KB_TILE_ROWS * MATMUL_PANEL / l->lanes > MATMUL_ACC_MAX)
		return; /* short vectors: too many sums */
	int64_t rows = l->norm.rows * of.row, left = s->scratch - begin - rows;
	if (of.panel == 0 || l->columns.halves * step * of.panel > left)
		return;
	l->unpacked.step = step;
	l->unpacked.bytes = of.panel;
	struct kb_val at = kb_ptr_add(l->k, l->job->scratch, kb_index(l->k, begin), 0);
	l->unpacked.rows = of.row > 0 ? at : (struct kb_val){0};
	l->unpacked.panels = kb_ptr_add(l->k, at, kb_index(l->k, rows), 0);
	if (matmul_by_steps(l))
		matmul_begin_steps(l);
}

/* What the words at from + at become, bytes 1 and 3 at to + at + apart. */
struct widening {
	const struct linear *l;
	struct kb_val from, to;
	int64_t bytes, apart;
	bool is_signed;
};

static void widen(const struct widening *w)
{
	struct kb *k = w->l->k;
	int lanes = w->l->lanes;
	enum kb_bin right = w->is_signed ? KB_SAR : KB_SHR;
	struct kb_val eight = kb_splat(k, kb_cvt(k, kb_i32(k, 8), KB_I16), 2 * lanes);
	struct kb_val at = kb_loop(k, "word", kb_index(k, 0), kb_index(k, w->bytes / 4), lanes, KB_NONEMPTY);
	struct kb_val words = kb_load(k, KB_TYPE(KB_I32, lanes), w->from, at, 0, 0);
	struct kb_val both = kb_bitcast(k, words, KB_I16);
	struct kb_val even = kb_bin(k, right, kb_bin(k, KB_SHL, both, eight), eight);
	kb_store(k, kb_bitcast(k, even, KB_I32), w->to, at, 0, 0);
	struct kb_val odd = kb_bin(k, right, both, eight);
	kb_store(k, kb_bitcast(k, odd, KB_I32), w->to, at, w->apart / 4, 0);
	kb_end_loop(k);
}

void matmul_unpack_row(const struct linear *l, struct kb_val codes, struct kb_val row)
{
	int64_t bytes = l->rounded.row.starts;
	struct widening w = {.l = l, .from = codes, .bytes = bytes, .apart = bytes, .is_signed = true};
	w.to = kb_ptr_add(l->k, l->unpacked.rows, kb_mul_const(l->k, row, 2 * bytes), 0);
	widen(&w);
}

void matmul_unpack_strip(const struct linear *l, const struct matmul_strip *s)
{
	struct kb *k = l->k;
	struct widening w = {.l = l, .bytes = l->panel.bytes, .apart = l->panel.bytes};
	struct kb_val half =
	        kb_loop(k, "half", kb_index(k, 0), kb_index(k, l->columns.halves), 1, KB_NONEMPTY);
	struct kb_val panel = kb_loop(k, "panel", s->begin, s->end, 1, 0);
	struct kb_val from = kb_add(k, panel, kb_mul_const(k, half, l->columns.panels));
	struct kb_val to = kb_sub(k, panel, s->begin);
	to = kb_add(k, to, kb_mul_const(k, half, l->unpacked.step));
	w.from = kb_ptr_add(k, s->weights, kb_mul_const(k, from, l->panel.bytes), 0);
	w.to = kb_ptr_add(k, l->unpacked.panels, kb_mul_const(k, to, l->unpacked.bytes), 0);
	if (l->unpacked.sums.id)
		matmul_unpack_panel(l, w.from, w.to);
	else
		widen(&w);
	kb_end_loop(k);
	kb_end_loop(k);
}
