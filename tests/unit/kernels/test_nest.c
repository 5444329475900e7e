/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chooser of loop nests, on random GEMMs of all formats for all targets: the nest covers every number of rows that
 * a call can have, and stays within the limits of register tiles, the columns and the scratch of the group.
 */
#include <check.h>
#include <stdlib.h>

#include "backends/kernels/nest.h"
#include "tests/support/random/rng.h"

#define CASES 4000 /* of each target */

/* A number up to 2^bits, small ones as often as large ones. */
static int64_t any_size(struct rng *s, int bits)
{
	return rng_between(s, 1, (int64_t)1 << rng_between(s, 0, bits));
}

/* A GEMM of format f; a: the attributes of its group. */
static struct gemm random_gemm(struct rng *s, const struct target *t, enum ir_format f, struct attrs_group *a)
{
	struct gemm g = {.target = t, .caps = kb_caps_of(t), .attrs = a};
	const struct activation_quant to = {.bf16 = rng_next(s) % 2, .block = rng_next(s) % 2 ? 32 : 0};
	g.depth = any_size(s, 13);
	g.panel = panel_of(f, g.depth);
	g.columns = (struct matmul_columns){.n = any_size(s, 13), .unit = 1, .nc = MATMUL_NC, .mats = 1};
	g.columns.panels = ceil_div(g.columns.n, MATMUL_PANEL);
	g.rows_lo = rng_between(s, 0, 40);
	g.rows_hi = rng_next(s) % 4 ? g.rows_lo + any_size(s, 11) : g.rows_lo + !g.rows_lo;
	if (rng_next(s) % 2 && quant_dot_block(f, to, g.depth) >= 0)
		g.lowp = (struct matmul_lowp){true, to, activation_row_layout(f, to, g.depth)};
	g.value.is_on = f == FORMAT_PLAIN && rng_next(s) % 2;
	g.value.has_n = g.value.is_on && rng_next(s) % 2;
	g.value.has_depth = g.value.is_on && rng_next(s) % 2;
	g.value.is_n_adjacent = g.value.is_on && rng_next(s) % 2;
	g.value.dtype = DT_F32;
	if (g.value.has_n)
		g.columns.n = panel_round_up(g.columns.n);
	g.is_k_adjacent = rng_next(s) % 2;
	g.makes_x = g.lowp.is_on || (!g.value.is_on && rng_next(s) % 2);
	g.has_norm_after = rng_next(s) % 4 == 0;
	g.needs_c_buffer = g.value.has_n || rng_next(s) % 2;
	g.may_list_rows = !g.value.is_on && rng_next(s) % 4 == 0;
	g.weight_bytes = any_size(s, 34);
	/* scratch of full cache lines: the chooser rounds up to them between two copies */
	*a = (struct attrs_group){.br = any_size(s, 9),
	                          .kc = rng_next(s) % 2 ? target_gemm_kc(t) : 0,
	                          .scratch = 64 * any_size(s, 16)};
	if (rng_next(s) % 8 == 0) /* vectors shorter than the target's */
		a->mr = 2, a->nr = MATMUL_PANEL, a->lanes = (int64_t)1 << rng_between(s, 0, 4);
	return g;
}

/* Row tiles are in order, fit, and those from the highest down divide any number of rows that a call can have. */
static void check_row_tiles(const struct gemm *g, const struct nest *n)
{
	ck_assert_int_ge(n->n_row_tiles, 1);
	ck_assert_int_le(n->n_row_tiles, TILE_MR_MAX);
	for (int i = 0; i < n->n_row_tiles; i++) {
		const struct nest_rows *t = &n->row_tile[i];
		ck_assert(t->rows >= 1 && t->panels >= 1 && t->panels <= MATMUL_NC);
		ck_assert_int_le(t->rows, n->mr);
		ck_assert(i == 0 || t->rows < n->row_tile[i - 1].rows);
		ck_assert_int_le(t->rows * t->panels * (MATMUL_PANEL / n->lanes), MATMUL_ACC_MAX);
		ck_assert(t->panels == 1 || t->panels <= g->columns.n / MATMUL_PANEL);
		ck_assert(t->has_single || g->columns.panels % t->panels == 0);
	}
	for (int64_t rows = g->rows_lo; rows <= g->rows_hi; rows++) {
		int64_t left = rows;
		for (int i = 0; i < n->n_row_tiles; i++)
			left %= n->row_tile[i].rows;
		ck_assert_int_eq(left, 0);
	}
}

/* Each number of rows has a pass, whose heights have microkernels and fit into the registers of a tile. */
static void check_passes(const struct gemm *g, const struct nest *n)
{
	int of = 0;
	ck_assert(n->n_passes >= 1 && n->pass[n->n_passes - 1].rows_max >= g->rows_hi);
	for (int i = 1; i < n->n_passes; i++)
		ck_assert_int_gt(n->pass[i].rows_max, n->pass[i - 1].rows_max);
	for (int64_t rows = g->rows_lo > 0 ? g->rows_lo : 1; rows <= g->rows_hi; rows++) {
		while (n->pass[of].rows_max < rows)
			of++;
		const struct nest_pass *p = &n->pass[of];
		int64_t passes = ceil_div(rows, p->mr);
		ck_assert(!p->is_one || passes == 1);
		ck_assert_int_ge(rows / passes, p->low);
		ck_assert_int_le(ceil_div(rows, passes), p->high);
		ck_assert(p->panels == 1 || p->panels == n->nr || p->panels <= g->columns.n / MATMUL_PANEL);
		ck_assert_int_le(p->high * p->panels * (MATMUL_PANEL / n->lanes), MATMUL_ACC_MAX);
	}
}

/* Bytes of the group's scratch that the copies of the nest take. */
static int64_t scratch_bytes(const struct gemm *g, const struct nest *n)
{
	int64_t bytes = n->x.bytes, panels = (int64_t)g->columns.mats * g->columns.nc;
	if (n->c.location == NEST_SCRATCH)
		bytes += 4 * n->c.rows * n->c.width;
	if (n->b.source == NEST_COPIED)
		bytes += panels * n->b.copy.bytes;
	if (n->b.source == NEST_STORED && gemm_has_partial_panel(g))
		bytes += n->b.copy.bytes;
	if (n->repack.to != REPACK_NONE)
		bytes += n->repack.row_bytes + g->columns.mats * n->repack.group * n->repack.panel.bytes;
	return bytes;
}

/* The K loop of a register tile takes every K element once. */
static void check_k_loop(const struct gemm *g, const struct nest *n, int rows, int panels)
{
	int vectors = panels * (MATMUL_PANEL / n->lanes);
	const struct panel *b = n->b.source == NEST_PACKED ? &g->panel : &n->b.copy;
	const struct nest_tile t = nest_tile(g, n, b, false, rows, vectors);
	ck_assert(t.x_lanes == 1 || t.x_lanes == g->target->k_lanes);
	if (g->lowp.is_on) {
		ck_assert_int_ge(t.unroll, 1);
		return;
	}
	int64_t left = g->depth;
	for (int i = 0; i < t.n_steps; i++)
		left %= t.step[i];
	ck_assert_int_eq(left, 0);
}

START_TEST(covers_and_fits)
{
	const struct target *t = target_level_at((size_t)_i);
	struct rng s = rng_seed((uint64_t)_i);
	int chosen = 0, skinny = 0;
	for (int i = 0; t && i < CASES; i++) {
		struct attrs_group a;
		struct gemm g = random_gemm(&s, t, (enum ir_format)(rng_next(&s) % IR_N_FORMATS), &a);
		struct nest n;
		if (!nest_choose(&g, 0, &n))
			continue; /* scratch is too small */
		chosen++;
		skinny += n.order == NEST_SKINNY;
		ck_assert_int_le(n.mr * n.nr * (MATMUL_PANEL / n.lanes), MATMUL_ACC_MAX);
		ck_assert_int_le(scratch_bytes(&g, &n), a.scratch);
		ck_assert(n.unit % g.columns.unit == 0 && n.unit % n.nr == 0);
		if (n.order == NEST_SKINNY) {
			check_passes(&g, &n);
		} else if (n.order == NEST_M_BLOCKS) {
			ck_assert_int_ge(n.m_block, 1);
			check_row_tiles(&g, &n);
			for (int r = 0; r < n.n_row_tiles; r++)
				check_k_loop(&g, &n, n.row_tile[r].rows, n.row_tile[r].panels);
		}
	}
	ck_assert(!t || chosen > CASES / 8);
	ck_assert(!t || t->arch == ARCH_OPENCL || skinny > 0);
}
END_TEST

Suite *suite_nest(void)
{
	Suite *s = suite_create("nest");
	TCase *c = tcase_create("nest");
	int n = 0;
	while (target_level_at((size_t)n))
		n++;
	tcase_add_loop_test(c, covers_and_fits, 0, n);
	suite_add_tcase(s, c);
	return s;
}
