/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choosers of work-group schedules, on random GEMMs of all formats and random heads of attention: the items compute
 * every element once from operands that are in local memory, which the target has. Planted faults are found.
 */
#include <check.h>
#include <string.h>

#include "backends/kernels/gpu_nest.h"
#include "backends/kernels/group.h"
#include "tests/support/random/rng.h"

#define CASES       3000
#define ROWS_MAX    150
#define PANELS_MAX  48
#define WIDTH_MAX   256
#define OPERAND_MAX (GPU_COLUMNS * (GPU_COLUMNS + GPU_LANES))

#define REQUIRE(condition)                 \
	do {                               \
		if (!(condition))          \
			return #condition; \
	} while (0)

static struct gemm random_gemm(struct rng *s, const struct target *t)
{
	struct gemm g = {.target = t, .caps = kb_caps_of(t)};
	g.depth = rng_between(s, 1, 600);
	g.depth = rng_next(s) % 2 ? g.depth : ceil_div(g.depth, GPU_BLOCK) * GPU_BLOCK;
	g.panel = panel_of((enum ir_format)(rng_next(s) % IR_N_FORMATS), g.depth);
	int64_t unit = rng_next(s) % 2 ? rng_between(s, 1, WIDTH_MAX / MATMUL_PANEL) : 1;
	g.columns.panels = rng_between(s, 1, PANELS_MAX);
	g.columns.n = g.columns.panels * MATMUL_PANEL - rng_between(s, 0, MATMUL_PANEL - 1);
	g.columns.mats = unit == 1 && rng_next(s) % 2 ? 2 : 1;
	g.columns.unit = unit;
	g.columns.nc = (int)(ceil_div(MATMUL_NC, unit) * unit);
	g.rows_lo = rng_between(s, 0, 12);
	g.rows_hi = rng_between(s, g.rows_lo > 0 ? g.rows_lo : 1, rng_next(s) % 2 ? 12 : ROWS_MAX);
	g.is_k_adjacent = rng_next(s) % 4 > 0;
	g.has_norm_after = unit == 1 && g.columns.mats == 1 && rng_next(s) % 4 == 0;
	g.x_block = rng_next(s) % 2 ? GPU_BLOCK : 0;
	return g;
}

/* Every vector of x of a K step is copied by one item, to elements of its own between begin and end. */
static const char *find_in_copy(const struct gpu_tile *t, const struct gpu_copy *c)
{
	static unsigned char copied[OPERAND_MAX];
	REQUIRE(c->per_row * c->lanes == t->f32.step && c->n <= GPU_COPIES_MAX);
	REQUIRE(t->f32.x_row % c->lanes == 0 && t->operands % c->lanes == 0);
	memset(copied, 0, sizeof(copied));
	for (int64_t item = 0; item < c->items; item++) {
		for (int m = 0; m < c->n; m++) {
			int64_t i = m * GPU_ITEMS + item, row = i / c->per_row,
			        at = i % c->per_row * c->lanes;
			REQUIRE(row < t->rows);
			for (int lane = 0; lane < c->lanes; lane++) {
				int64_t to = row * t->f32.x_row + at + lane;
				REQUIRE(to < t->rows * t->f32.x_row && to < OPERAND_MAX && copied[to]++ == 0);
			}
		}
	}
	for (int64_t row = 0; row < t->rows; row++)
		for (int64_t i = 0; i < t->f32.step; i++)
			REQUIRE(copied[row * t->f32.x_row + i] == 1);
	return NULL;
}

/* Operands, partial results and the C buffer are disjoint while they are used, and within the elements. */
static const char *find_in_memory(const struct gemm *g, const struct gpu_tile *t)
{
	int64_t c = t->rows * t->width, x_end = t->operands + t->rows * t->f32.x_row;
	bool is_one_tile = t->width == t->panels * MATMUL_PANEL;
	REQUIRE(c <= t->elements && x_end <= t->elements);
	REQUIRE(t->operands >= c || (is_one_tile && !t->splits_k));
	REQUIRE(!g->has_norm_after || t->rows * GPU_ITEMS <= t->elements);
	if (t->splits_k) {
		REQUIRE(t->operands + (int64_t)t->n_acc * GPU_K_ITEMS * MATMUL_PANEL <= t->elements);
		REQUIRE(!t->int8.is_on || t->operands + t->rows * GPU_K_ITEMS * GPU_X_WORDS <= t->elements);
		return NULL;
	}
	REQUIRE(t->f32.w >= x_end && t->f32.w + t->f32.step * GPU_COLUMNS <= t->elements);
	REQUIRE(t->int8.w >= t->operands + t->rows * GPU_X_WORDS);
	REQUIRE(t->int8.w + (GPU_WORDS + 2) * GPU_COLUMNS <= t->elements);
	return NULL;
}

/* Stores a vector of columns of panel i of the tile at `before` in the C buffer, as the item at row and column has it;
 * written: 1 + the panel of both projections that is stored, for each element. */
static const char *store(const struct gpu_tile *t, int mats, int64_t before, int64_t i, int64_t row,
                         int64_t column, int64_t *written)
{
	int64_t mat = mats > 1 ? i / t->nc : 0, panel = before + i - mat * t->nc;
	REQUIRE(row < t->rows && column + GPU_LANES <= t->width && mat < mats);
	for (int lane = 0; lane < GPU_LANES; lane++) {
		int64_t *at = &written[row * t->width + column + lane];
		REQUIRE(*at == 0);
		*at = 1 + mat * t->nc + panel;
	}
	return NULL;
}

/* The tiles of an N block fill the C buffer once, each column with the panel that the epilogue expects there. */
static const char *find_in_block(const struct gpu_tile *t, int mats)
{
	static int64_t written[GPU_COLUMNS * WIDTH_MAX];
	int64_t end = t->width == t->panels * MATMUL_PANEL ? 1 : t->nc;
	const char *found = NULL;
	REQUIRE(t->n_acc <= GPU_ACC_MAX && t->rows <= GPU_ITEMS &&
	        t->rows * t->width <= GPU_COLUMNS * WIDTH_MAX);
	REQUIRE(t->n_acc == (t->splits_k ? t->rows * t->panels : t->mr * GPU_ITEM_VECTORS));
	REQUIRE(t->item_columns == (t->splits_k ? GPU_PANEL_VECTORS : GPU_SIDE));
	memset(written, 0, sizeof(written));
	for (int64_t before = 0; before < end; before += t->panels) {
		int64_t column = before * MATMUL_PANEL;
		/* split K: accumulators, a vector of which an item adds up */
		for (int i = 0; t->splits_k && !found && i < t->n_acc * GPU_PANEL_VECTORS; i++) {
			int64_t panel = i / GPU_PANEL_VECTORS % t->panels;
			REQUIRE(i < GPU_ITEMS);
			found = store(t, mats, before, panel, i / GPU_PANEL_VECTORS / t->panels,
			              column + panel * MATMUL_PANEL + i % GPU_PANEL_VECTORS * GPU_LANES,
			              written);
		}
		for (int i = 0; !t->splits_k && !found && i < GPU_ITEMS * t->n_acc; i++) {
			int item = i / t->n_acc, acc = i % t->n_acc;
			int64_t in_tile = (acc % GPU_ITEM_VECTORS * GPU_SIDE + item % GPU_SIDE) * GPU_LANES;
			found = store(t, mats, before, in_tile / MATMUL_PANEL,
			              item / GPU_SIDE + acc / GPU_ITEM_VECTORS * GPU_SIDE, column + in_tile,
			              written);
		}
	}
	for (int64_t i = 0; !found && i < t->rows * mats * t->nc; i++) {
		int64_t row = i / (mats * t->nc), panel = i % (mats * t->nc);
		for (int64_t column = 0; column < MATMUL_PANEL; column++)
			REQUIRE(written[row * t->width + panel * MATMUL_PANEL + column] == 1 + panel);
	}
	return found;
}

/* The tasks of a call of `rows` rows store every row of every panel once. */
static const char *find_in_tasks(const struct gemm *g, const struct gpu_tile *t, int64_t rows)
{
	static unsigned char stored[ROWS_MAX][PANELS_MAX];
	int64_t m_tiles = ceil_div(rows, t->rows), panels = g->columns.panels;
	memset(stored, 0, sizeof(stored));
	for (int64_t task = 0; task < m_tiles * ceil_div(panels, t->nc); task++) {
		int64_t first = task % m_tiles * t->rows, panel = task / m_tiles * t->nc;
		for (int64_t row = first; row < first + t->rows && row < rows; row++)
			for (int64_t i = panel; i < panel + t->nc && i < panels; i++)
				REQUIRE(stored[row][i]++ == 0);
	}
	for (int64_t i = 0; i < rows * panels; i++)
		REQUIRE(stored[i / panels][i % panels] == 1);
	return NULL;
}

/* The condition that a tile violates, or NULL. */
static const char *find_fault(const struct gemm *g, const struct gpu_tile *t)
{
	const char *found = NULL;
	int k_unit = t->splits_k ? GPU_LANES * GPU_K_ITEMS : GPU_ITEMS / GPU_PANEL_VECTORS;
	REQUIRE(t->rows >= 1 && t->nc >= 1 && t->panels >= 1 && t->panels <= GPU_COLUMNS / MATMUL_PANEL);
	REQUIRE(t->splits_k || t->rows == (int64_t)t->mr * GPU_SIDE);
	REQUIRE(t->nc % g->columns.unit == 0 || g->has_norm_after);
	REQUIRE(t->splits_k ? t->f32.step % k_unit == 0 : t->f32.step == k_unit);
	REQUIRE(!t->int8.is_on || (g->depth % GPU_BLOCK == 0 && g->is_k_adjacent));
	REQUIRE(!t->int8.is_on || t->rows * (t->splits_k ? GPU_K_ITEMS : 1) <= GPU_ITEMS);
	REQUIRE(t->f32.tail.lanes == 1 && (g->is_k_adjacent || t->f32.full.lanes == 1));
	found = find_in_copy(t, &t->f32.full);
	found = found ? found : find_in_copy(t, &t->f32.tail);
	found = found ? found : find_in_memory(g, t);
	found = found ? found : find_in_block(t, g->columns.mats);
	for (int64_t rows = g->rows_lo; !found && rows <= g->rows_hi; rows += 1 + g->rows_hi / 4)
		found = find_in_tasks(g, t, rows);
	return found;
}

START_TEST(covers_and_fits)
{
	const struct target *t = target_find("opencl-gpu");
	struct rng s = rng_seed(1);
	int kinds[2] = {0}, int8 = 0;
	ck_assert(t != NULL);
	ck_assert_int_eq(t->group_size, GPU_ITEMS);
	for (int i = 0; i < CASES; i++) {
		const struct gemm g = random_gemm(&s, t);
		struct gpu_nest n;
		ck_assert(gpu_nest_choose(&g, &n));
		ck_assert(n.n_tiles == 1 || (n.n_tiles == 2 && n.tile[0].splits_k && !n.tile[1].splits_k));
		ck_assert(!n.tile[0].splits_k || n.n_tiles == 2 || g.rows_hi <= KERNEL_FEW_ROWS_MAX);
		for (int j = 0; j < n.n_tiles; j++) {
			const char *found = find_fault(&g, &n.tile[j]);
			ck_assert_msg(!found, "case %d, tile %d: not %s", i, j, found);
			ck_assert_int_le(n.tile[j].elements, n.elements);
			ck_assert(!g.has_norm_after || n.means >= 2 * n.tile[j].rows);
			kinds[n.tile[j].splits_k]++;
			int8 += n.tile[j].int8.is_on;
		}
		ck_assert_int_le(4 * (n.elements + n.means), t->shared_bytes);
		struct target small = *t;
		small.shared_bytes = 4 * n.elements - 1;
		struct gemm of_small = g;
		of_small.target = &small;
		ck_assert(!gpu_nest_choose(&of_small, &n));
	}
	ck_assert(kinds[0] > CASES / 4 && kinds[1] > CASES / 4 && int8 > CASES / 32);
}
END_TEST

/* ---- planted faults ---- */

static void narrow_x_row(struct gpu_tile *t)
{
	t->f32.x_row -= 2 * GPU_LANES;
}
static void drop_copy(struct gpu_tile *t)
{
	t->f32.full.n--;
}
static void drop_item(struct gpu_tile *t)
{
	t->f32.tail.items--;
}
static void shrink_memory(struct gpu_tile *t)
{
	t->elements--;
}
static void overlap_operands(struct gpu_tile *t)
{
	t->operands -= t->operands > 0 ? GPU_LANES : 0;
}
static void overlap_weights(struct gpu_tile *t)
{
	t->f32.w -= t->splits_k ? 0 : GPU_LANES;
}
static void drop_rows(struct gpu_tile *t)
{
	t->n_acc -= t->splits_k ? (int)t->panels : GPU_ITEM_VECTORS;
}
static void narrow_block(struct gpu_tile *t)
{
	t->width -= t->panels * MATMUL_PANEL;
}
static void shift_panels(struct gpu_tile *t)
{
	t->panels += t->panels > 1 ? -1 : 1;
}

START_TEST(finds_planted_faults)
{
	static void (*const faults[])(struct gpu_tile *) = {narrow_x_row,  drop_copy,        drop_item,
	                                                    shrink_memory, overlap_operands, overlap_weights,
	                                                    drop_rows,     narrow_block,     shift_panels};
	const struct target *t = target_find("opencl-gpu");
	struct rng s = rng_seed(2);
	for (int i = 0; i < CASES / 10; i++) {
		const struct gemm g = random_gemm(&s, t);
		struct gpu_nest n;
		ck_assert(gpu_nest_choose(&g, &n));
		struct gpu_tile *tile = &n.tile[n.n_tiles - 1];
		const struct gpu_tile right = *tile;
		faults[_i](tile);
		if (memcmp(&right, tile, sizeof(right)) != 0)
			ck_assert_msg(find_fault(&g, tile), "case %d", i);
	}
}
END_TEST

/* ---- attention ---- */

/* The condition that a schedule of attention violates, or NULL: the items compute each score, each probability and each
 * element of the output once, from tables that do not overlap. */
static const char *find_attention_fault(const struct gpu_attention *n, int64_t size, int64_t value_size)
{
	static unsigned char scores[GPU_COLUMNS][GPU_COLUMNS], parts[GPU_COLUMNS][GPU_COLUMNS],
	        output[GPU_COLUMNS][GPU_ATTENTION_COLUMNS * GPU_ITEMS];
	REQUIRE(n->rows >= 1 && n->rows <= GPU_ATTENTION_ROWS && n->keys <= 2 * GPU_ATTENTION_ROWS);
	REQUIRE(n->stride % 2 == 1 && n->stride >= size && n->stride >= value_size);
	REQUIRE(n->rows * size <= n->kv && n->kv + n->keys * n->stride <= n->scores);
	REQUIRE(n->scores + n->rows * n->keys <= n->partials && n->partials + 2 * GPU_ITEMS <= n->factors);
	REQUIRE(n->factors + n->rows <= n->elements);
	REQUIRE(n->product.rows >= 1 && n->product.rows <= GPU_ATTENTION_ROWS);
	REQUIRE(n->softmax.keys >= 1 && n->softmax.keys <= GPU_ATTENTION_ROWS);
	REQUIRE(n->output.n_rows >= 1 && n->output.n_rows <= GPU_ATTENTION_ROWS);
	REQUIRE(n->output.n_columns >= 1 && n->output.n_columns <= GPU_ATTENTION_COLUMNS);
	memset(scores, 0, sizeof(scores));
	memset(parts, 0, sizeof(parts));
	memset(output, 0, sizeof(output));
	for (int64_t item = 0; item < GPU_ITEMS; item++) {
		for (int64_t i = 0, row = item / n->keys; i < n->product.rows;
		     i++, row += n->product.row_stride)
			REQUIRE(row < n->rows ? scores[row][item % n->keys]++ == 0 : i == 0);
		int64_t row = item / n->softmax.items, key = item % n->softmax.items * n->softmax.keys;
		for (int64_t i = 0; row < n->rows && i < n->softmax.keys; i++)
			REQUIRE(key + i < n->keys && parts[row][key + i]++ == 0);
		for (int64_t i = 0; i < (int64_t)n->output.n_rows * n->output.n_columns; i++) {
			int64_t at = item / n->output.columns +
			             i / n->output.n_columns * n->output.row_stride,
			        column = item % n->output.columns + i % n->output.n_columns * GPU_ITEMS;
			if (at < n->rows && column < value_size)
				REQUIRE(output[at][column]++ == 0);
		}
	}
	for (int64_t row = 0; row < n->rows; row++) {
		for (int64_t key = 0; key < n->keys; key++)
			REQUIRE(scores[row][key] == 1 && parts[row][key] == 1);
		for (int64_t column = 0; column < value_size; column++)
			REQUIRE(output[row][column] == 1);
	}
	return NULL;
}

/* A lower tile has the order of sums of the full one, so that a row has the same bits in both. */
START_TEST(attention_covers_and_fits)
{
	const struct target *t = target_find("opencl-gpu");
	struct rng s = rng_seed(3);
	int fitting = 0;
	for (int i = 0; i < CASES; i++) {
		int64_t size = rng_between(&s, 1, 300), value_size = rng_between(&s, 1, 300);
		struct gpu_attention full, low;
		if (!gpu_attention_choose(t, size, value_size, GPU_ATTENTION_ROWS, &full))
			continue;
		fitting++;
		ck_assert_int_le(4 * full.elements, t->shared_bytes);
		ck_assert(gpu_attention_choose(t, size, value_size, rng_between(&s, 1, 20), &low));
		ck_assert(low.keys == full.keys && low.softmax.items == full.softmax.items);
		ck_assert_int_le(low.elements, full.elements);
		const char *found = find_attention_fault(&full, size, value_size);
		found = found ? found : find_attention_fault(&low, size, value_size);
		ck_assert_msg(!found, "%d and %d columns: not %s", (int)size, (int)value_size, found);
	}
	ck_assert_int_gt(fitting, CASES / 2);
}
END_TEST

static void overlap_keys(struct gpu_attention *n)
{
	n->kv--;
}
static void overlap_factors(struct gpu_attention *n)
{
	n->factors--;
}
static void drop_score(struct gpu_attention *n)
{
	n->product.rows--;
}
static void drop_key(struct gpu_attention *n)
{
	n->softmax.keys--;
}
static void drop_column(struct gpu_attention *n)
{
	n->output.n_columns--;
}
static void drop_row(struct gpu_attention *n)
{
	n->output.n_rows--;
}

START_TEST(finds_planted_attention_faults)
{
	static void (*const faults[])(struct gpu_attention *) = {overlap_keys, overlap_factors, drop_score,
	                                                         drop_key,     drop_column,     drop_row};
	struct rng s = rng_seed(4);
	for (int i = 0; i < CASES / 10; i++) {
		int64_t size = rng_between(&s, 1, 128), value_size = rng_between(&s, 1, 128);
		struct gpu_attention n;
		ck_assert(gpu_attention_choose(target_find("opencl-gpu"), size, value_size,
		                               rng_between(&s, 1, 20), &n));
		faults[_i](&n);
		ck_assert(find_attention_fault(&n, size, value_size));
	}
}
END_TEST

Suite *suite_gpu_nest(void)
{
	Suite *s = suite_create("gpu_nest");
	TCase *c = tcase_create("gpu_nest");
	tcase_add_test(c, covers_and_fits);
	tcase_add_loop_test(c, finds_planted_faults, 0, 9);
	tcase_add_test(c, attention_covers_and_fits);
	tcase_add_loop_test(c, finds_planted_attention_faults, 0, 6);
	suite_add_tcase(s, c);
	return s;
}
