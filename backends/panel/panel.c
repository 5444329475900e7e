/* SPDX-License-Identifier: Apache-2.0 */
/* What a format says about its panels, and lines of floats. */
#include "backends/panel/panel.h"

static enum panel_lines lines_of(const struct ir_format_desc *d)
{
	if (d->bits != 0)
		return PANEL_CODES;
	return d->dtype == DT_BF16 ? PANEL_PAIRS : d->dtype == DT_F16 ? PANEL_HALVES : PANEL_WORDS;
}

struct panel panel_of(enum ir_format f, int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	struct panel p = {.format = f, .lines = lines_of(d), .depth = depth};
	(void)panel_bytes(f, depth, &p.bytes);
	p.per_line = d->bits ? 32 / d->bits : panel_row_k(d->dtype);
	p.unit = p.per_line;
	if (d->bits) {
		bool has_sum = d->has_offset || d->shift > 0 ||
		               (d->scale == DT_F16 && d->super == 1 && !d->codebook);
		const struct quant_panel_layout t = quant_panel_layout(f, depth);
		int group = d->bits == 8 ? 4 : 32;
		p.unit = d->block > group ? d->block : group;
		p.head = t.lines;
		p.held = 1 + has_sum;
	}
	return p;
}

struct kb_val panel_half(struct kb *k, struct kb_val pairs, int odd)
{
	struct kb_val by = kb_splat(k, kb_i32(k, odd ? -65536 : 16), kb_type_of(k, pairs).lanes);
	return kb_bitcast(k, kb_bin(k, odd ? KB_AND : KB_SHL, pairs, by), KB_F32);
}

struct kb_val panel_line(const struct panel_reader *r, struct kb_val at, int i)
{
	struct kb *k = r->k;
	if (r->panel->lines != PANEL_PAIRS)
		return kb_mul_const(k, kb_add_const(k, at, i), PANEL_COLUMNS);
	struct kb_val even = kb_mul_const(k, at, PANEL_COLUMNS / 2);
	return kb_add_const(k, even, (int64_t)i / 2 * PANEL_COLUMNS);
}

/* Vector n of a line of elements of so many bytes. */
static struct kb_val load(const struct panel_reader *r, enum kb_scalar s, int bytes, struct kb_val from,
                          struct kb_val line, int n)
{
	int per_panel = PANEL_COLUMNS / r->lanes;
	int64_t in_panel = n % per_panel * r->lanes, panel = n / per_panel * r->panel->bytes;
	return kb_load(r->k, KB_TYPE(s, r->lanes), from, line, panel / bytes + in_panel, 0);
}

struct kb_val panel_pairs(const struct panel_reader *r, struct kb_val from, struct kb_val line, int n)
{
	return load(r, KB_I32, 4, from, line, n);
}

struct kb_val panel_vector(const struct panel_reader *r, struct kb_val line, int i, int n)
{
	switch (r->panel->lines) {
	case PANEL_PAIRS: {
		struct kb_val from = i % 2 && r->again.id ? r->again : r->at;
		return panel_half(r->k, panel_pairs(r, from, line, n), i % 2);
	}
	case PANEL_HALVES: return kb_cvt(r->k, load(r, KB_F16, 2, r->at, line, n), KB_F32);
	case PANEL_WORDS: return load(r, KB_F32, 4, r->at, line, n);
	case PANEL_CODES: break;
	}
	return (struct kb_val){0};
}
