/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chooser of loop nests, on random GEMMs of all formats for all targets: the nest covers every number of rows that
 * a call can have, and stays within the limits of register tiles, the columns and the scratch of the group. Attributes
 * of the group are met or rejected; those of a chosen nest make it again.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

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
	g.columns.unit = rng_next(s) % 4 ? 1 : rng_between(s, 1, 6);
	g.columns.nc = (int)(ceil_div(MATMUL_NC, g.columns.unit) * g.columns.unit);
	g.columns.mats = rng_next(s) % 4 ? 1 : 2;
	*a = (struct attrs_group){.br = rng_next(s) % 8 ? any_size(s, 9) : 0,
	                          .kc = rng_next(s) % 2 ? target_gemm_kc(t) : 0,
	                          .scratch = 64 * any_size(s, 16)};
	if (rng_next(s) % 8 == 0) /* vectors shorter than the target's */
		a->mr = 2, a->nr = MATMUL_PANEL, a->lanes = (int64_t)1 << rng_between(s, 0, 4);
	return g;
}

/* The most rows of an M block if experts select the rows of g, else 0. */
static int64_t random_expert_rows(struct rng *s, const struct gemm *g)
{
	return !g->value.is_on && !g->has_norm_after && !g->may_list_rows && rng_next(s) % 4 == 0 ? 256 : 0;
}

/* Sets some attributes, mostly to what a kernel may have. */
static void randomize_attrs(struct rng *s, struct attrs_group *a)
{
	int64_t mr = rng_between(s, 1, 16);
	if (rng_next(s) % 4 == 0)
		a->lanes = (int64_t)1 << rng_between(s, 0, 4);
	if (rng_next(s) % 4 == 0)
		a->nr = rng_next(s) % 8 ? 16 * rng_between(s, 1, 4) : any_size(s, 8);
	if (rng_next(s) % 3 == 0)
		a->mr = mr;
	if (rng_next(s) % 3 == 0)
		a->mc = rng_next(s) % 8 ? mr * any_size(s, 6) : any_size(s, 62);
	if (rng_next(s) % 3 == 0)
		a->nc = rng_next(s) % 8 ? 16 * any_size(s, 6) : any_size(s, 62);
	if (rng_next(s) % 3 == 0)
		a->nr1 = rng_next(s) % 8 ? 16 * rng_between(s, 1, 4) : any_size(s, 62);
	if (rng_next(s) % 4 == 0)
		a->ahead = rng_next(s) % 8 ? 64 * any_size(s, 8) : any_size(s, 62);
	if (rng_next(s) % 3 == 0)
		a->order = (int)rng_between(s, 0, ORDER_panels);
	if (rng_next(s) % 4 == 0)
		a->b = (int)rng_between(s, 0, B_FROM_repacked);
	if (rng_next(s) % 4 == 0)
		a->c = (int)rng_between(s, 0, C_IN_scratch);
	if (rng_next(s) % 4 == 0)
		a->prefetch = (int)rng_between(s, 0, PREFETCH_next);
	if (rng_next(s) % 4 == 0)
		a->tiles = (int)rng_between(s, 0, TILES_balanced);
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
	if (n->c.location == C_IN_scratch)
		bytes += 4 * n->c.rows * n->c.width;
	if (n->b.source == B_FROM_copied)
		bytes += panels * n->b.copy.bytes;
	if (n->b.source == B_FROM_stored && gemm_has_partial_panel(g))
		bytes += n->b.copy.bytes;
	if (n->repack.to != REPACK_NONE)
		bytes += n->repack.row_bytes + g->columns.mats * n->repack.group * n->repack.panel.bytes;
	return bytes;
}

/* The K loop of a register tile takes every K element once. */
static void check_k_loop(const struct gemm *g, const struct nest *n, int rows, int panels)
{
	int vectors = panels * (MATMUL_PANEL / n->lanes);
	const struct panel *b = n->b.source == B_FROM_packed ? &g->panel : &n->b.copy;
	const struct nest_tile t = nest_tile(g, n, b, false, rows, vectors);
	ck_assert(t.x_lanes == 1 || t.x_lanes == g->target->k_lanes);
	if (g->lowp.is_on) {
		ck_assert(t.words_i16 == 0 ||
		          t.words_i16 * 2 * 127 * ir_format_u8_max(g->panel.format) <= INT16_MAX);
		ck_assert_int_ge(t.unroll, 1);
		return;
	}
	int64_t left = g->depth;
	for (int i = 0; i < t.n_steps; i++)
		left %= t.step[i];
	ck_assert_int_eq(left, 0);
}

static void check_nest(const struct gemm *g, const struct nest *n, int64_t expert_rows)
{
	ck_assert(n->m_block == 0 || expert_rows == 0 ||
	          (g->rows_hi <= n->m_block && n->m_block <= expert_rows));
	ck_assert_int_le(n->mr * n->nr * (MATMUL_PANEL / n->lanes), MATMUL_ACC_MAX);
	ck_assert_int_le(scratch_bytes(g, n), g->attrs->scratch);
	ck_assert(n->unit % g->columns.unit == 0 && n->unit % n->nr == 0);
	ck_assert(g->columns.nc % g->columns.unit == 0);
	if (n->order == NEST_SKINNY) {
		check_passes(g, n);
	} else if (n->order == NEST_M_BLOCKS) {
		ck_assert_int_ge(n->m_block, 1);
		ck_assert(!n->kc || n->m_block <= n->c.rows);
		ck_assert(!g->makes_x || n->m_block <= n->x.rows || g->rows_hi <= n->x.rows);
		check_row_tiles(g, n);
		for (int r = 0; r < n->n_row_tiles; r++)
			check_k_loop(g, n, n->row_tile[r].rows, n->row_tile[r].panels);
	}
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
		int64_t experts = random_expert_rows(&s, &g);
		if (!nest_choose(&g, experts, &n)) {
			/* scratch is too small */
			ck_assert(n.rejection[0] == '\0' || strncmp(n.rejection, "br=", 3) == 0);
			continue;
		}
		chosen++;
		skinny += n.order == NEST_SKINNY;
		check_nest(&g, &n, experts);
	}
	ck_assert(!t || chosen > CASES / 8);
	ck_assert(!t || t->arch == ARCH_OPENCL || skinny > 0);
}
END_TEST

/* The nest has the values of the attributes. */
static void check_met(const struct attrs_group *a, const struct gemm *g, const struct nest *n)
{
	const struct attrs_group of = nest_attrs(g, n);
	ck_assert(a->nc == 0 || of.nc == a->nc);
	ck_assert(a->mc == 0 || of.mc == a->mc);
	ck_assert(a->nr1 == 0 || of.nr1 == a->nr1);
	ck_assert(a->lanes == 0 || n->lanes == a->lanes);
	ck_assert(a->mr == 0 || n->mr <= a->mr);
	ck_assert(a->order == ORDER_automatic || of.order == a->order);
	ck_assert(a->b == B_FROM_automatic || of.b == a->b);
	ck_assert(a->c == C_IN_automatic || of.c == a->c);
	ck_assert(a->tiles == TILES_automatic || of.tiles == a->tiles);
	if (n->order == NEST_M_BLOCKS)
		ck_assert(a->prefetch == PREFETCH_automatic || of.prefetch == a->prefetch);
	else if (a->prefetch == PREFETCH_next)
		ck_assert(!n->pass[n->n_passes - 1].is_one && n->pass[n->n_passes - 1].panels > 1);
	for (int i = 0; i < n->n_passes; i++) {
		ck_assert(a->ahead == 0 || n->pass[i].ahead == a->ahead);
		ck_assert(a->prefetch != PREFETCH_none || n->pass[i].ahead == 0);
	}
}

/* No nest has the attributes: with an order of the loops, they are refused as well. */
static void check_refused(const struct gemm *g, int64_t experts)
{
	for (int order = ORDER_automatic + 1; order <= ORDER_panels; order++) {
		struct gemm again = *g;
		struct attrs_group a = *g->attrs;
		struct nest n;
		again.attrs = &a;
		a.order = order;
		ck_assert(!nest_choose(&again, experts, &n));
	}
}

START_TEST(meets_or_refuses_attributes)
{
	const struct target *t = target_level_at((size_t)_i);
	struct rng s = rng_seed((uint64_t)_i);
	int met = 0, refused = 0;
	for (int i = 0; t && i < CASES; i++) {
		struct attrs_group a;
		struct gemm g = random_gemm(&s, t, (enum ir_format)(rng_next(&s) % IR_N_FORMATS), &a);
		const struct gemm given = g;
		struct nest n;
		int64_t experts = random_expert_rows(&s, &g);
		randomize_attrs(&s, &a);
		if (nest_choose(&g, experts, &n)) {
			met++;
			check_nest(&g, &n, experts);
			check_met(&a, &g, &n);
			continue;
		}
		ck_assert(n.rejection[0] || !ir_group_has_nest(&a));
		if (a.order == ORDER_automatic)
			check_refused(&given, experts);
		refused += n.rejection[0] != '\0';
	}
	ck_assert(!t || (met > CASES / 40 && refused > CASES / 40));
}
END_TEST

static void print(const struct gemm *g, const struct nest *n, struct buf *out)
{
	buf_init(out);
	nest_print(g, n, out);
	ck_assert(!buf_failed(out));
}

START_TEST(attributes_make_the_nest_again)
{
	const struct target *t = target_level_at((size_t)_i);
	struct rng s = rng_seed((uint64_t)_i);
	for (int i = 0; t && i < CASES; i++) {
		struct attrs_group a, of;
		struct gemm g = random_gemm(&s, t, (enum ir_format)(rng_next(&s) % IR_N_FORMATS), &a);
		struct gemm again = g;
		struct nest n, m;
		struct buf first, second;
		int64_t experts = random_expert_rows(&s, &g);
		if (rng_next(&s) % 2)
			randomize_attrs(&s, &a);
		if (!nest_choose(&g, experts, &n))
			continue;
		of = nest_attrs(&g, &n);
		again.attrs = &of;
		print(&g, &n, &first);
		ck_assert_msg(nest_choose(&again, experts, &m), "%s\n%s", first.data, m.rejection);
		print(&again, &m, &second);
		ck_assert_str_eq(first.data, second.data);
		buf_destroy(&first);
		buf_destroy(&second);
	}
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
	tcase_add_loop_test(c, meets_or_refuses_attributes, 0, n);
	tcase_add_loop_test(c, attributes_make_the_nest_again, 0, n);
	suite_add_tcase(s, c);
	return s;
}
