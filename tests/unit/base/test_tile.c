/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of tiles on the records of the table, and its bounds on every
 * record that could be.
 */
#include <check.h>

#include "ir/target/tile.h"

struct want {
	const char *target;
	int mr, nr;
	int64_t depth, br, bc; /* heads of 64 features */
};
static const struct want wants[] = {
        {"x86-64-v2", 2, 16, 256, 128, 64},   {"x86-64-v3", 6, 16, 512, 256, 128},
        {"x86-64-v4", 14, 32, 512, 512, 256}, {"aarch64", 6, 16, 512, 256, 128},
        {"opencl-gpu", 4, 16, 512, 64, 128},
};

START_TEST(follows_the_record)
{
	const struct want *w = &wants[_i];
	const struct target *t = target_find(w->target);
	int64_t br, bc;
	ck_assert_ptr_nonnull(t);
	const struct register_tile tile = target_register_tile(t);
	ck_assert_int_eq(tile.mr, w->mr);
	ck_assert_int_eq(tile.nr, w->nr);
	ck_assert_int_eq(target_gemm_kc(t), w->depth);
	/* Narrow weights take a register on their way: there is one but where vectors of x are open. */
	ck_assert_int_eq(register_tile_mr(t, tile, DT_F32), w->mr);
	ck_assert_int_eq(register_tile_mr(t, tile, DT_BF16), t->k_lanes > 1 ? w->mr - 1 : w->mr);
	ck_assert_int_eq(target_l1_ways(t), 8); /* of 32 KiB */
	ck_assert_int_eq(tile_row_stride(768), 768);
	ck_assert_int_eq(tile_row_stride(3072), 3088);
	ck_assert(!target_blocks_k(t, 2048) && target_blocks_k(t, 8192));
	ck_assert_int_ge(target_gemm_mc(t, 8192), 128);
	target_attention_blocks(t, 64, 64, &br, &bc);
	ck_assert_int_eq(br, w->br);
	ck_assert_int_eq(bc, w->bc);
}
END_TEST

/* K is divided where tiles of weights fill the second-level cache; sooner where the next one is far. */
START_TEST(divides_deep_products)
{
	static const struct {
		const char *target;
		int64_t least;
	} rows[] = {
	        {"x86-64-v4", 6145}, {"x86-64-v3", 6145}, {"x86-64-v4-amx", 2458}, {"sapphirerapids", 2458}};
	const struct target *t = target_find(rows[_i].target);
	ck_assert_ptr_nonnull(t);
	ck_assert(target_blocks_k(t, rows[_i].least) && !target_blocks_k(t, rows[_i].least - 1));
	ck_assert_int_eq(target_gemm_kc(t), 512);
}
END_TEST

/* Guarantees for kernels, for records from tiny to huge. */
START_TEST(stays_in_bounds)
{
	static const int lanes[] = {4, 8, 16};
	for (int i = 0; i < 3; i++)
		for (int registers = 4; registers <= 128; registers *= 2)
			for (int64_t cache = 64; cache <= (int64_t)1 << 40; cache *= 16) {
				const struct target t = {.lanes = lanes[i],
				                         .registers = registers,
				                         .has_fma = true,
				                         .fma_ports = 2,
				                         .fma_latency = 4,
				                         .load_ports = 2,
				                         .max_accumulators = TILE_ACC_MAX,
				                         .l1_bytes = cache,
				                         .l2_bytes = cache};
				const struct register_tile tile = target_register_tile(&t);
				int64_t br, bc, depth = target_gemm_kc(&t);
				ck_assert(tile.mr >= 1 && tile.mr <= TILE_MR_MAX);
				ck_assert(tile.nr == 16 || tile.nr == 32 || tile.nr == 64);
				ck_assert(tile.mr * tile.nr / t.lanes <= TILE_ACC_MAX);
				ck_assert(tile.mr == 1 ||
				          target_tile_registers(&t, tile.mr, tile.nr) <= registers);
				ck_assert(depth >= PANEL_COLUMNS && depth % PANEL_COLUMNS == 0);
				for (int64_t e = 1; e <= 65536; e *= 4) {
					target_attention_blocks(&t, e, e, &br, &bc);
					ck_assert(br >= 1 && br <= ATTENTION_BLOCK_MAX);
					ck_assert(bc >= PANEL_COLUMNS && bc <= ATTENTION_BLOCK_MAX);
					ck_assert(bc % PANEL_COLUMNS == 0);
				}
			}
}
END_TEST

static const int quant_widths[] = {2, 3, 4, 5, 6, 8};

/* Every bit of a quant is in one place, and every bit of a k-row belongs to one quant: panels have the bits of their
 * quants, no more. */
START_TEST(fills_k_rows)
{
	int bits = quant_widths[_i], taken[8] = {0};
	const struct quant_group g = quant_group(bits);
	ck_assert_int_eq(g.elements, 4 * g.words);
	ck_assert_int_eq(g.words * bits, 8 * g.k_rows);
	for (int i = 0; i < g.words; i++) {
		const struct quant_word *w = &g.word[i];
		int last = 0, low_bit = 0;
		for (int p = 0; p < w->n; p++) {
			const struct quant_piece *q = &w->piece[p];
			int mask = ((1 << q->bits) - 1) << q->bit;
			ck_assert_int_lt(mask, 256);
			ck_assert_int_eq(taken[q->k_row] & mask, 0);
			ck_assert_int_eq(q->low_bit, low_bit);
			taken[q->k_row] |= mask;
			low_bit += q->bits;
			last = q->k_row > last ? q->k_row : last;
		}
		ck_assert_int_eq(low_bit, bits);
		ck_assert_int_eq(w->last_k_row, last);
		ck_assert_int_eq(w->n > 1, i >= g.n_unsplit);
	}
	for (int i = 0; i < g.k_rows; i++)
		ck_assert_int_eq(taken[i], 255);
}
END_TEST

/* Panels of formats with super-blocks have the bytes of their rows, whatever K in super-blocks of 256: scales lie
 * between quants, which begin at cache lines. */
START_TEST(has_no_padding)
{
	enum ir_format f = (enum ir_format)_i;
	const struct ir_format_desc *d = ir_format(f);
	if (d->super == 1)
		return;
	for (int64_t k = 256; k <= 64 * 256; k += 256) {
		const struct quant_panel_layout t = quant_panel_layout(f, k);
		int64_t rows = 16 * ir_format_row_bytes(f, k);
		ck_assert_int_eq(t.quants % 64, 0);
		ck_assert_int_eq(t.super_block % ((int64_t)d->block * d->super), 0);
		ck_assert_int_ge(t.bytes, rows);
		ck_assert_msg(t.bytes * 100 <= rows * 102, "%s, K %lld: %lld bytes, rows of %lld", d->name,
		              (long long)k, (long long)t.bytes, (long long)rows);
	}
}
END_TEST

Suite *suite_tile(void)
{
	Suite *s = suite_create("tile");
	TCase *c = tcase_create("model");
	tcase_add_loop_test(c, follows_the_record, 0, (int)(sizeof(wants) / sizeof(wants[0])));
	tcase_add_loop_test(c, divides_deep_products, 0, 4);
	tcase_add_test(c, stays_in_bounds);
	tcase_add_loop_test(c, fills_k_rows, 0, (int)(sizeof(quant_widths) / sizeof(quant_widths[0])));
	tcase_add_loop_test(c, has_no_padding, 0, IR_N_FORMATS);
	suite_add_tcase(s, c);
	return s;
}
