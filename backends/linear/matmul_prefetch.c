/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights ahead of their use: while the rows of a block pass over a strip, each
 * step of K asks for some bytes of the weights that come next, which are the next
 * part of K or the next strip. Every tile of rows takes an equal share, so
 * that the first of them finds the next weights in the cache. After the last
 * strip that is whatever lies after the matrix, as a rule the next one of
 * the model. Only hints: no result depends on them.
 */
#include "backends/linear/matmul_internal.h"

/* OpenCL has no hint that a template could rely on. */
static bool has_hints(const struct linear *l)
{
	return l->rows_hi > l->mr && !l->copy.at.id && l->job->target->arch != ARCH_OPENCL;
}

struct matmul_ahead matmul_begin_ahead(const struct linear *l, struct kb_val rows, int height, int panels)
{
	struct kb *k = l->k;
	struct matmul_ahead a = {.turn = {0}};
	if (!has_hints(l))
		return a;
	struct kb_val tiles = kb_div_const(k, kb_add_const(k, rows, height - 1), height);
	int64_t step = matmul_step_bytes(l);
	struct kb_val bytes = kb_add_const(k, tiles, panels * step - 1);
	a.step = kb_min(k, kb_bin(k, KB_DIV, bytes, tiles), kb_index(k, step));
	a.turn = kb_var(k, "turn", KB_INDEX_T, kb_index(k, 0));
	return a;
}

void matmul_end_turn(const struct linear *l, const struct matmul_ahead *a)
{
	if (a->turn.id)
		kb_set(l->k, a->turn, kb_add_const(l->k, kb_get(l->k, a->turn), 1));
}

/* With all of K at once, panels follow one another, and so do their shares. */
static struct kb_val whole_depth(const struct linear *l, const struct matmul_strip *s,
                                 const struct matmul_ahead *a, struct kb_val w)
{
	struct kb *k = l->k;
	struct kb_val share = kb_mul_const(k, a->step, l->depth);
	struct kb_val first = kb_mul(k, share, kb_get(k, a->turn));
	return kb_ptr_add(k, w, first,
	                  (s->is_unpacked ? l->unpacked.step : l->columns.strip) * l->panel.bytes);
}

/* Part of K: a share that ends a panel of the part goes on in the next panel. */
static struct kb_val part_of_depth(const struct linear *l, const struct matmul_strip *s,
                                   const struct matmul_ahead *a, struct kb_val w)
{
	struct kb *k = l->k;
	struct kb_val line = kb_index(k, matmul_step_bytes(l)), depth = kb_index(k, l->panel.bytes);
	struct kb_val part = kb_mul(k, kb_sub(k, s->k_hi, s->k_lo), line), behind = kb_mul(k, s->k_hi, line);
	struct kb_val steps = kb_sub(k, s->k_hi, s->k_lo);
	struct kb_val share = kb_mul(k, kb_mul(k, a->step, kb_get(k, a->turn)), steps);
	struct kb_val panel = kb_bin(k, KB_DIV, share, part), rest = kb_bin(k, KB_REM, share, part);
	struct kb_val next = kb_select(k, kb_cmp(k, KB_LT, s->k_hi, kb_index(k, l->depth)), behind,
	                               kb_index(k, l->columns.strip * l->panel.bytes));
	struct kb_val before = kb_mul(k, panel, depth);
	struct kb_val at = kb_add(k, kb_add(k, next, rest), before);
	/* The steps count k from 0. */
	return kb_ptr_add(k, w, kb_sub(k, at, kb_mul(k, s->k_lo, a->step)), 0);
}

/* Tiles that divide the work: those of many rows, with all panels of the main tile. */
struct kb_val matmul_ahead(const struct linear *l, const struct matmul_strip *s, const struct matmul_tile *t,
                           struct kb_val w)
{
	const struct matmul_ahead *a = &t->ahead;
	bool is_main = matmul_strip_by_steps(l, s) || (2 * t->rows >= l->mr && t->panels == l->nr);
	if (a->from.id || !a->turn.id || !is_main)
		return a->from;
	return l->stage.kc ? part_of_depth(l, s, a, w) : whole_depth(l, s, a, w);
}

void matmul_line_ahead(const struct linear *l, const struct matmul_ahead *a, struct kb_val at,
                       struct kb_val section, struct kb_val word)
{
	if (!a->behind) {
		matmul_step_ahead(l, a, at);
		return;
	}
	struct kb_val bytes = kb_mul_const(l->k, word, 4);
	for (int i = 0; i < a->panels; i++)
		kb_prefetch(l->k, section, bytes, a->behind + i * l->panel.bytes);
}

void matmul_steps_ahead(const struct linear *l, const struct matmul_ahead *a, struct kb_val at, int64_t n)
{
	struct kb *k = l->k;
	if (!a->from.id)
		return;
	struct kb_val begin = kb_mul(k, at, a->step), end = kb_add(k, begin, kb_mul_const(k, a->step, n));
	kb_prefetch_l2(k, a->from, kb_loop(k, "ahead", begin, end, PANEL_ROW_BYTES, KB_NONEMPTY), 0);
	kb_end_loop(k);
}

void matmul_step_ahead(const struct linear *l, const struct matmul_ahead *a, struct kb_val at)
{
	struct kb_val from = kb_mul(l->k, at, a->step);
	for (int i = 0; i < a->panels || i == 0; i++)
		kb_prefetch(l->k, a->from, from, i * l->panel.bytes);
}
