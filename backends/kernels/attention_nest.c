/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the loop nest of attention (attention_nest.h), in the order: product and vectors, copies, register tiles,
 * division of keys, buffers in scratch.
 */
#include "backends/kernels/attention_nest.h"

#include <inttypes.h>
#include <stdio.h>

#define PREFETCH_BYTES 4096 /* a page: hardware prefetchers stop at its end */

static bool is_dense(const struct attention_operand *x)
{
	return x->element == 1;
}

/* ---- product and vectors ---- */

/* Dot products of bf16 pairs apply: rows see the same keys, and operands are read in full vectors. CPUs with AMX
 * multiply pairs in vectors at half the rate of f32, so AMX does it or nothing. */
static enum attention_product choose_product(const struct attention_shape *s, int lanes)
{
	bool amx = s->caps.has_tiles && target_attention_uses_amx(s->target, s->size);
	bool by_pairs = s->rounds_factors && s->caps.has_dot_bf16 && amx == s->caps.has_tiles &&
	                lanes == PANEL_COLUMNS && s->target->k_lanes == 1 && !s->rows_differ &&
	                s->key.ring == 0 && !s->key.has_panels && is_dense(&s->q) && is_dense(&s->key) &&
	                is_dense(&s->value);
	return !by_pairs ? ATTENTION_F32 : amx ? ATTENTION_AMX : ATTENTION_BF16_PAIRS;
}

/* With a softcap tanh dominates, and one vector of maxima is enough. */
static void choose_vectors(const struct attention_shape *s, struct attention_nest *n)
{
	int lanes = tile_lanes(s->attrs->lanes > 0 ? s->attrs->lanes : s->caps.lanes);
	n->lanes = lanes;
	n->product = choose_product(s, lanes);
	n->x_lanes = s->target->k_lanes;
	n->q_lanes = is_dense(&s->q) ? lanes : 1;
	n->key_lanes = is_dense(&s->key) ? lanes : 1;
	n->value_lanes = is_dense(&s->value) ? lanes : 1;
	n->out_lanes = is_dense(&s->out) ? lanes : 1;
	n->is_bias_broadcast = s->bias.element == 0;
	n->bias_lanes = s->bias.element == 0 || s->bias.element == 1 ? lanes : 1;
	n->k_scale_lanes = s->k_scale.row == 1 ? lanes : 1;
	n->v_scale_lanes = s->v_scale.row == 1 ? lanes : 1;
	n->max_vectors = s->has_softcap ? 1 : ATTENTION_MAX_VECTORS;
	n->score_step =
	        n->product == ATTENTION_AMX ? 2 * PANEL_COLUMNS : lanes; /* it reads pairs of panels */
	n->masks_acc = lanes == ATTENTION_LANES_MAX;                     /* AVX-512 */
	/* Only where rows are tokens does each see one key more than the row before. */
	n->has_edges = s->rows_differ && s->queries == 1 && !target_prefers_small_code(s->target);
}

/* ---- copies ---- */

/* Values are packed if rows are not full vectors, or not adjacent in memory, or if several register tiles may each
 * round them to bf16. Head sizes are padded to panels, since full vectors are computed. */
static void choose_copies(const struct attention_shape *s, struct attention_nest *n)
{
	bool by_pairs = n->product != ATTENTION_F32;
	n->size_pad = panel_round_up(s->size);
	n->value_pad = panel_round_up(s->value_size);
	n->keys.is_packed = !s->key.has_panels;
	n->keys.dtype = n->keys.is_packed ? DT_F32 : s->key.dtype;
	n->keys.k_rows = by_pairs ? (s->size + 1) / 2 : s->size;
	n->values.is_packed = by_pairs || s->value_size % n->lanes != 0 || !is_dense(&s->value) ||
	                      s->value.row != s->value_size ||
	                      (s->rounds_factors && s->rows > target_register_tile(s->target).mr);
	n->values.dtype = n->values.is_packed ? DT_F32 : s->value.dtype;
	n->values.stride = n->values.is_packed ? n->value_pad : s->value_size;
	n->is_one_run =
	        !target_prefers_small_code(s->target) && !n->keys.is_packed && !n->values.is_packed &&
	        s->size * ir_dtype_bytes(n->keys.dtype) == s->value_size * ir_dtype_bytes(n->values.dtype);
}

/* ---- register tiles ---- */

/* Vectors of columns of a tile: nr of the main one; fewer rows leave registers for more panels (a power of two), as
 * long as accumulators, a row of B and an operand fit (by lane: a vector of each row). */
static int tile_vectors(const struct attention_shape *s, const struct attention_nest *n, int rows)
{
	const struct target *t = s->target;
	int panel = PANEL_COLUMNS / n->lanes, best = panel, by_lane = n->x_lanes > 1 ? rows : 0;
	if (n->product == ATTENTION_AMX) /* two tiles of accumulators side by side */
		return 2 * panel;
	if (rows == n->mr)
		return target_register_tile(t).nr / n->lanes;
	for (int v = panel; v <= TILE_PANELS_MAX * panel; v *= 2)
		if (rows * v <= t->max_accumulators &&
		    target_tile_registers(t, rows, v * t->lanes) + by_lane <= t->registers)
			best = v;
	return best;
}

/* Prefetch distance in rows of `bytes`, full panels. */
static int64_t prefetch_rows(int64_t bytes)
{
	return panel_round_up(ceil_div(PREFETCH_BYTES, bytes));
}

/*
 * The tile for few rows prefetches; a single row in one run only, since elsewhere out-of-order execution loads far
 * enough ahead. More rows are bound by arithmetic. Panels of several rows are read side by side: at least all of them
 * ahead. Packed values are in the cache.
 */
static void choose_prefetch(const struct attention_shape *s, const struct attention_nest *n,
                            struct attention_row_tile *t)
{
	int64_t keys = (int64_t)t->vectors * n->lanes,
	        far = prefetch_rows(s->size * ir_dtype_bytes(n->keys.dtype));
	bool is_few = t->rows == target_attention_skinny_mr(s->target) || (t->rows == 1 && n->is_one_run);
	if (target_prefers_small_code(s->target) || !is_few)
		return;
	if (n->is_one_run) {
		t->keys_ahead = t->rows > 1 && keys > far ? keys : far;
		t->panel_ahead = far;
	}
	if (!n->values.is_packed)
		t->values_ahead = prefetch_rows(s->value_size * ir_dtype_bytes(n->values.dtype));
}

static void add_tile(const struct attention_shape *s, struct attention_nest *n, int rows, int64_t left_max)
{
	struct attention_row_tile *t = &n->tile[n->n_tiles++];
	int all = (int)ceil_div(s->value_size, n->lanes);
	*t = (struct attention_row_tile){
	        .rows = rows, .left_max = left_max, .vectors = tile_vectors(s, n, rows)};
	t->value_vectors = all < t->vectors ? all : t->vectors;
	t->value_remainder = all % t->value_vectors;
	choose_prefetch(s, n, t);
}

/* Lists the tiles of choose_mr with their left_max: the main one if a key head has more rows than two small ones (AMX:
 * than the lowest); the small one, which replaces it once two suffice; the lowest for rows that are left: one row, of
 * AMX 16. */
static void list_row_tiles(const struct attention_shape *s, struct attention_nest *n)
{
	bool amx = n->product == ATTENTION_AMX;
	int few = target_attention_skinny_mr(s->target), low = amx ? KB_TILE_ROWS : 1;
	n->mr = amx ? AMX_TILE_ROWS : target_register_tile(s->target).mr; /* listed or not: sizes task_rows */
	if (s->rows > (amx ? low : 2 * few) && n->mr > 1)
		add_tile(s, n, n->mr, INT64_MAX);
	if (!amx && few > 1 && s->rows > 1 && (n->n_tiles == 0 || !target_prefers_small_code(s->target)))
		add_tile(s, n, few, 2 * few);
	add_tile(s, n, low, low);
}

/* ---- division of keys ---- */

struct attention_slots attention_group_slots(int64_t queries, int64_t value_size)
{
	int64_t list = panel_round_up(queries);
	return (struct attention_slots){
	        .rows = queries, .size = queries * panel_round_up(value_size) + 2 * list, .list = list};
}

/* ---- the nest ---- */

/* An attribute exceeds a bound, in words and as a number. Returns false. */
static bool reject(struct attention_nest *n, const char *name, int64_t value, const char *bound, int64_t most)
{
	(void)snprintf(n->rejection, sizeof(n->rejection), "%s=%" PRId64 ": %s %" PRId64, name, value, bound,
	               most);
	return false;
}

/* Slots and buffers are those for which the pass that planned the group reserved scratch; work-groups have slots in
 * memory of the call. Lengths let a kernel without split skip padding; with split, all rows of the heads are divided
 * (attention_split.c). */
bool attention_nest_choose(const struct attention_shape *s, struct attention_nest *n)
{
	const struct attrs_group *a = s->attrs;
	int64_t br, bc;
	*n = (struct attention_nest){.product = ATTENTION_F32};
	target_attention_blocks(s->target, s->size, s->value_size, &br, &bc);
	br = a->br > 0 ? a->br : br;
	n->bc = a->bc > 0 ? a->bc : bc;
	if (br > ATTENTION_BLOCK_MAX)
		return reject(n, "br", br, "queries of a block are at most", ATTENTION_BLOCK_MAX);
	if (n->bc % PANEL_COLUMNS != 0 || n->bc > ATTENTION_BLOCK_MAX)
		return reject(n, "bc", n->bc, "keys of a block are a multiple of 16, at most",
		              ATTENTION_BLOCK_MAX);
	choose_vectors(s, n);
	choose_copies(s, n);
	list_row_tiles(s, n);
	for (int i = 0; i < n->n_tiles; i++) /* vectors shorter than the target's take more accumulators */
		if (n->product != ATTENTION_AMX && n->tile[i].rows * n->tile[i].vectors > TILE_ACC_MAX)
			return reject(n, "lanes", n->lanes, "accumulators of a register tile are at most",
			              TILE_ACC_MAX);
	n->task_rows = ceil_div(br, n->mr) * n->mr;
	n->skips_padding = s->has_lengths && !s->shares_rows && a->split == 0;
	const struct target_attention_sizes sizes = {br, n->bc, a->split, s->k_scale.is_on, s->v_scale.is_on};
	target_attention_scratch(s->target, s->size, s->value_size, &sizes, &n->at);
	n->slots = n->at.slot;
	if (n->at.end * 4 > a->scratch)
		return reject(n, "scratch", a->scratch, "bytes of the buffers are", n->at.end * 4);
	if (n->slots.n > 0 && s->rows != INT64_MAX && s->rows > n->slots.rows)
		return reject(n, "split", a->split, "rows of a head whose keys are divided are at most",
		              n->slots.rows);
	if (s->shares_rows && a->split > 0 && s->queries > 0) {
		n->split = a->split;
		n->slots = attention_group_slots(s->queries, s->value_size);
	}
	return true;
}

/* ---- in words ---- */

void attention_nest_print(const struct attention_nest *n, struct buf *out)
{
	static const char *const packed[] = {[ATTENTION_F32] = "packed as f32",
	                                     [ATTENTION_BF16_PAIRS] = "packed as bf16 pairs",
	                                     [ATTENTION_AMX] = "packed as bf16 pairs"};
	int panel = PANEL_COLUMNS / n->lanes;
	buf_printf(out, "tasks of %" PRId64 " rows, KV blocks of %" PRId64 " keys", n->task_rows, n->bc);
	buf_str(out, n->product == ATTENTION_AMX ? "; AMX tiles" : "; tiles");
	for (int i = 0; i < n->n_tiles; i++)
		buf_printf(out, " %d x %d", n->tile[i].rows, n->tile[i].vectors / panel);
	buf_printf(out, "; vectors of %d", n->lanes);
	buf_printf(out, "; keys %s, values %s", n->keys.is_packed ? packed[n->product] : "read in panels",
	           n->values.is_packed ? packed[n->product] : "read where they are stored");
	for (int i = 0; i < n->n_tiles; i++)
		if (n->tile[i].values_ahead > 0)
			buf_printf(out, "; tiles of %d prefetch values %" PRId64 " rows ahead",
			           n->tile[i].rows, n->tile[i].values_ahead);
	buf_printf(out, "; %" PRId64 " bytes of scratch", 4 * n->at.end);
	if (n->slots.n > 0)
		buf_printf(out, ", of them %" PRId64 " partial results of %" PRId64 " rows", n->slots.n,
		           n->slots.rows);
	buf_str(out, n->skips_padding ? "; real rows only" : "");
}
