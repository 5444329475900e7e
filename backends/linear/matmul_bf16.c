/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bf16: rows of x are pairs in scratch (matmul_rows.c), weights are pairs in panels (ir/target/tile.h).
 * Each sum is one chain over the pairs in increasing k, with the arithmetic of kb_dot_bf16.
 */
#include "backends/linear/matmul_internal.h"

#define TURN     8  /* lines without a loop, where sums are few */
#define SUMS_FEW 16 /* in a tile of more of them a line alone keeps the processor busy */

/* Line number at + i. */
static void add_line(const struct matmul_rounded_tile *c, struct kb_val at, int i)
{
	struct kb *k = c->l->k;
	const struct products *p = c->p;
	struct kb_val words = kb_mul(k, at, kb_index(k, MATMUL_PANEL)), w[MATMUL_ACC_MAX];
	if (c->ahead->from.id)
		matmul_step_ahead(c->l, c->ahead, kb_mul(k, kb_add_const(k, at, i), kb_index(k, 2)));
	for (int v = 0; v < p->vectors; v++)
		w[v] = kb_load(k, KB_TYPE(KB_I32, p->lanes), c->w, words,
		               matmul_rounded_vector(c, v, 4) + (int64_t)i * MATMUL_PANEL, 0);
	for (int m = 0; m < p->rows; m++) {
		struct kb_val x = matmul_rounded_word(c, m, at, i);
		for (int v = 0; v < p->vectors; v++)
			kb_set(k, p->sum[m * p->vectors + v], kb_dot_bf16(k, products_sum(p, m, v), w[v], x));
	}
}

void matmul_bf16_depth(const struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	int64_t lines = tile_lines(DT_BF16, c->l->depth);
	int turn = c->p->rows * c->p->vectors > SUMS_FEW ? 1 : TURN;
	int64_t whole = lines / turn * turn;
	if (whole > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, whole), turn, KB_NONEMPTY);
		for (int i = 0; i < turn; i++)
			add_line(c, at, i);
		kb_end_loop(k);
	}
	for (int i = 0; i < lines - whole; i++)
		add_line(c, kb_index(k, whole), i);
}
