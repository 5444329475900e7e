/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs operands for the register tiles: queries row by row, keys as panels of 16 columns (k-row e of a panel
 * is element e of its keys), values row by row. Keys and values are packed once for all rows of a task; keys
 * that no row sees are never read. Also the products of rows and panels that are
 * packed for matrix tiles (AMX).
 *
 * A group is as many keys as a vector has lanes, transposed in registers. In a ring buffer (sliding window) position p
 * is in row p modulo its length, so that a block may wrap; its length, and the begin of a block, are multiples of 16,
 * so a panel or a vector of keys never wraps. bf16 pairs: two neighbouring elements (or keys, of values) in one 32-bit
 * word, for dot products of pairs.
 *
 * AMX: 32 or 16 rows times two panels at a time. Queries and probabilities are rows of bf16 in tables of f32 size;
 * tiles are stored to memory (amx_acc), where vectors read them. Rows beyond the task are whatever scratch contains,
 * and their results are never read; keys beyond the block have probability 0.
 */
#include "backends/kernels/attention_internal.h"

/* ---- queries ---- */

/* A row of an operand, and its destination in scratch. */
struct row_copy {
	const struct attention *a;
	const struct kb_tensor *t;
	struct kb_val from, to;
	enum ir_dtype dtype; /* in scratch: f32, or the type of the operand */
	float factor;
	bool to_bf16; /* round to bf16 in scratch */
};

/* Copies n of `lanes` elements (an attention_row_fn). Full vectors are stored, with 0 after the last element: scratch
 * is padded. As stored (values whose rows are full vectors, out of a ring), to bf16, or as f32 factors. */
static void copy_elements(void *user, struct kb_val e, int lanes, int n)
{
	const struct row_copy *c = user;
	struct kb *k = c->a->k;
	struct kb_val index = attention_offset(k, c->t, ATTENTION_ELEMENT, e);
	if (c->dtype != DT_F32) {
		struct kb_type type = KB_TYPE(eval_stored_scalar(c->dtype), lanes);
		kb_store(k, kb_load(k, type, c->from, index, 0, 0), c->to, e, 0, 0);
		return;
	}
	struct kb_val x = attention_load(k, c->t, c->from, index, 0, lanes, n);
	if (c->to_bf16) {
		kb_store(k, kb_cvt_bf16_ftz(k, x), c->to, e, 0, lanes * 2);
		return;
	}
	x = attention_round_factor(c->a, x);
	if (c->factor != 1)
		x = kb_mul(k, x, kb_splat(k, kb_f32(k, c->factor), lanes));
	kb_store(k, x, c->to, e, 0, lanes * 4);
}

/* Packs the task's queries times q_factor (bf16 pairs without it: their scores are multiplied instead), up to full
 * tiles: rows beyond the task repeat the last one and are never stored. A single row is a tile by itself. */
void attention_pack_queries(const struct attention *a, const struct attention_head *h,
                            const struct attention_task *t)
{
	struct kb *k = a->k;
	struct row_copy c = {.a = a,
	                     .t = &a->q,
	                     .dtype = DT_F32,
	                     .factor = a->score.q_factor,
	                     .to_bf16 = attention_by_pairs(a)};
	struct kb_val single = kb_cmp(k, KB_EQ, t->n, kb_index(k, 1));
	struct kb_val end = kb_select(k, single, t->n, attention_round_up(k, t->n, a->nest.mr));
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), end, 1, KB_NONEMPTY);
	struct kb_val r = kb_add(k, t->first, kb_min(k, row, kb_add_const(k, t->n, -1)));
	c.from = attention_at(k, &a->q, h->q, attention_row_index(a, &a->q, r));
	c.to = attention_scratch_row(k, a->scratch.queries, row, a->nest.size_pad);
	attention_loop_row(a, a->size, a->nest.q_lanes, copy_elements, &c);
	kb_end_loop(k);
}

/* ---- ring buffers (sliding window) ---- */

/* Row of the ring that stores key j of the block. */
static struct kb_val ring_row(const struct attention *a, const struct attention_block *b, struct kb_val j)
{
	return kb_rem_const(a->k, kb_add(a->k, b->first, j), a->key.ring);
}

/* Address that key 0 of the block would have if the keys around key j were contiguous. */
static struct kb_val ring_base(const struct attention *a, const struct attention_block *b,
                               const struct kb_tensor *t, struct kb_val head, struct kb_val j)
{
	struct kb_val row = kb_sub(a->k, ring_row(a, b, j), j);
	return attention_at(a->k, t, head, attention_offset(a->k, t, ATTENTION_ROW, row));
}

/* ---- keys ---- */

/* As many keys as lanes. clamped: keys at or beyond n are not read, the last one is instead. */
struct key_group {
	int lanes; /* 1 if the elements of a key are not contiguous */
	const struct attention_block *block;
	struct kb_val base;  /* address of the block's first key */
	struct kb_val first; /* position in the block, a multiple of lanes */
	struct kb_val to;    /* destination of element 0 of the first key */
	bool clamped;
};

/* Elements [e0, e0 + lanes) of key i of the group as f32, only n of them exist. A constant stride becomes a
 * displacement, so that all keys share an address; clamped: keys beyond the block repeat the last one. */
static struct kb_val key_row(const struct attention *a, const struct key_group *g, int i, struct kb_val e0,
                             int n)
{
	struct kb *k = a->k;
	const struct kb_size *stride = &a->key.stride[ATTENTION_ROW];
	struct kb_val row = kb_add_const(k, g->first, i);
	int64_t disp = 0;
	if (g->clamped) {
		row = kb_min(k, row, kb_add_const(k, g->block->n, -1));
	} else if (stride->is_const) {
		row = g->first;
		disp = i * stride->c;
	}
	struct kb_val element = attention_offset(k, &a->key, ATTENTION_ELEMENT, e0);
	struct kb_val index = kb_add(k, attention_offset(k, &a->key, ATTENTION_ROW, row), element);
	return attention_load(k, &a->key, g->base, index, disp, g->lanes, n);
}

/* Interleaves two vectors as bf16 pairs, `low` in the low halves of words. */
static struct kb_val interleave_bf16(struct kb *k, struct kb_val low, struct kb_val high)
{
	int lanes[2 * ATTENTION_LANES_MAX];
	for (int i = 0; i < ATTENTION_LANES_MAX; i++) {
		lanes[2 * i] = i;
		lanes[2 * i + 1] = ATTENTION_LANES_MAX + i;
	}
	low = kb_cvt_bf16_ftz(k, low);
	high = kb_cvt_bf16_ftz(k, high);
	return kb_bitcast(k, kb_shuffle(k, low, high, lanes, 2 * ATTENTION_LANES_MAX), KB_I32);
}

/* Transposes elements e0 .. e0 + n - 1 of the group's keys and stores them as k-rows of its columns: an element each,
 * or with bf16 a pair of elements, of which the last may lack its second (0). */
static void transpose_keys(const struct attention *a, const struct key_group *g, struct kb_val e0, int n)
{
	struct kb *k = a->k;
	struct kb_val rows[ATTENTION_LANES_MAX];
	for (int i = 0; i < g->lanes; i++)
		rows[i] = key_row(a, g, i, e0, n);
	reg_tile_transpose(k, rows, g->lanes);
	struct kb_val at = kb_mul_const(k, e0, PANEL_COLUMNS);
	for (int e = 0; !attention_by_pairs(a) && e < n; e++)
		kb_store(k, attention_round_factor(a, rows[e]), g->to, at, e * PANEL_COLUMNS, g->lanes * 4);
	if (!attention_by_pairs(a))
		return;
	at = kb_mul_const(k, e0, PANEL_COLUMNS / 2);
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), g->lanes);
	for (int e = 0; e < n; e += 2)
		kb_store(k, interleave_bf16(k, rows[e], e + 1 < n ? rows[e + 1] : zero), g->to, at,
		         e / 2 * PANEL_COLUMNS, g->lanes * 4);
}

/* Destination of element 0 of key j; panels are [E][16]. */
static struct kb_val panel_column(const struct attention *a, struct kb_val j)
{
	struct kb *k = a->k;
	struct kb_val panel = attention_round_down(k, j, PANEL_COLUMNS), column = kb_sub(k, j, panel);
	struct kb_val index = kb_add(k, kb_mul_const(k, panel, a->nest.keys.k_rows), column);
	return kb_ptr_add(k, a->scratch.keys, kb_mul_const(k, index, 4), 0);
}

/* Transposes a group of keys into columns of its panel, all elements: squares of `lanes`, then the remainder. In a ring
 * the address is that of the group, which does not wrap. */
static void transpose_group(const struct attention *a, const struct attention_head *h, struct key_group *g)
{
	struct kb *k = a->k;
	int64_t full = a->size - a->size % g->lanes;
	if (a->key.ring > 0)
		g->base = ring_base(a, g->block, &a->key, h->k, g->first);
	g->to = panel_column(a, g->first);
	if (full > 0) {
		struct kb_val e0 = kb_loop(k, "e", kb_index(k, 0), kb_index(k, full), g->lanes, KB_NONEMPTY);
		transpose_keys(a, g, e0, g->lanes);
		kb_end_loop(k);
	}
	if (full < a->size)
		transpose_keys(a, g, kb_index(k, full), (int)(a->size - full));
}

/* Zeros the columns of the last panel from `from` on: register tiles compute scores of full panels, and these are
 * ignored. */
static void zero_columns(const struct attention *a, const struct attention_block *b, struct kb_val from,
                         int lanes)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), lanes);
	struct kb_val end = attention_round_up(k, b->n, PANEL_COLUMNS);
	struct kb_val j = kb_loop(k, "j", from, end, lanes, 0);
	struct kb_val to = panel_column(a, j);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->size), 1, KB_NONEMPTY);
	kb_store(k, zero, to, kb_mul_const(k, e, PANEL_COLUMNS), 0, lanes * 4);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* Packs the block's keys into panels, a group of `lanes` keys at a time; the last group repeats its last key instead
 * of reading beyond, and columns after it are zeroed. */
static void pack_keys(const struct attention *a, const struct attention_head *h,
                      const struct attention_block *b)
{
	struct kb *k = a->k;
	struct kb_val first = attention_offset(k, &a->key, ATTENTION_ROW, b->first);
	struct key_group g = {
	        .block = b, .base = attention_at(k, &a->key, h->k, first), .lanes = a->nest.key_lanes};
	struct kb_val full = attention_round_down(k, b->n, g.lanes);
	g.first = kb_loop(k, "j", b->begin, full, g.lanes, 0);
	transpose_group(a, h, &g);
	kb_end_loop(k);
	if (g.lanes > 1) {
		kb_if(k, kb_cmp(k, KB_LT, full, b->n));
		g.first = full;
		g.clamped = true;
		transpose_group(a, h, &g);
		kb_end_if(k);
	}
	if (g.lanes < PANEL_COLUMNS)
		zero_columns(a, b, attention_round_up(k, b->n, g.lanes), g.lanes);
}

struct kb_val attention_panel_at(const struct attention *a, struct kb_val table, struct kb_val row)
{
	return attention_at(a->k, &a->key, table, kb_mul_const(a->k, row, a->size));
}

/* Copies the block's panels of a ring to scratch, in order of keys, without conversion; no panel wraps. */
static void copy_panels(const struct attention *a, const struct attention_head *h,
                        const struct attention_block *b)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	struct kb_type type = KB_TYPE(eval_stored_scalar(a->nest.keys.dtype), a->nest.lanes);
	int align = a->nest.lanes * (int)ir_dtype_bytes(a->nest.keys.dtype);
	struct kb_val j = kb_loop(k, "j", b->begin, b->n, PANEL_COLUMNS, 0);
	struct kb_val from = attention_panel_at(a, h->k, ring_row(a, b, j)),
	              to = attention_panel_at(a, a->scratch.keys, j);
	struct kb_val e =
	        kb_loop(k, "e", zero, kb_index(k, a->size * PANEL_COLUMNS), a->nest.lanes, KB_NONEMPTY);
	kb_store(k, kb_load(k, type, from, e, 0, align), to, e, 0, align);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* ---- values ---- */

/* A pair of values, interleaved; second none: 0. */
struct pair_copy {
	struct row_copy first;
	struct kb_val second;
};

/* Stores n of `lanes` elements of a pair of values as bf16 pairs. */
static void pack_pair(void *user, struct kb_val e, int lanes, int n)
{
	const struct pair_copy *c = user;
	const struct row_copy *r = &c->first;
	struct kb *k = r->a->k;
	struct kb_val index = attention_offset(k, r->t, ATTENTION_ELEMENT, e);
	struct kb_val x = attention_load(k, r->t, r->from, index, 0, lanes, n);
	struct kb_val y = c->second.id ? attention_load(k, r->t, c->second, index, 0, lanes, n)
	                               : kb_splat(k, kb_f32(k, 0), lanes);
	kb_store(k, interleave_bf16(k, x, y), r->to, e, 0, lanes * 4);
}

/* Packs the values of keys j and j + 1 (is_pair: it is in the block; else 0) as pairs, in row j / 2. */
static void pack_value_pair(const struct attention *a, struct kb_val first, struct kb_val j, bool is_pair)
{
	struct kb *k = a->k;
	struct pair_copy c = {.first = {.a = a, .t = &a->value}};
	struct kb_val step = attention_offset(k, &a->value, ATTENTION_ROW, j);
	c.first.from = attention_at(k, &a->value, first, step);
	if (is_pair) {
		step = attention_offset(k, &a->value, ATTENTION_ROW, kb_add_const(k, j, 1));
		c.second = attention_at(k, &a->value, first, step);
	}
	struct kb_val row = kb_div_const(k, j, 2);
	c.first.to = attention_scratch_row(k, a->scratch.values, row, a->nest.value_pad);
	attention_loop_row(a, a->value_size, a->nest.lanes, pack_pair, &c);
}

/* Packs the block's values as bf16 pairs of neighbouring keys, of which the last may be alone. For AMX rows up to a
 * full tile are cleared: 0 times whatever scratch contains might be NaN. */
static void pack_value_pairs(const struct attention *a, const struct attention_block *b, struct kb_val first)
{
	struct kb *k = a->k;
	struct kb_val full = attention_round_down(k, b->n, 2);
	struct kb_val j = kb_loop(k, "j", b->begin, full, 2, 0);
	pack_value_pair(a, first, j, true);
	kb_end_loop(k);
	kb_if(k, kb_cmp(k, KB_LT, full, b->n));
	pack_value_pair(a, first, full, false);
	kb_end_if(k);
	if (a->nest.product != ATTENTION_AMX)
		return;
	/* a matrix tile reads k-rows of 32 keys; keys beyond the block have probability 0 */
	struct kb_val from = kb_div_const(k, kb_add_const(k, b->n, 1), 2);
	struct kb_val end = attention_round_up(k, from, KB_TILE_ROWS);
	struct kb_val row = kb_index(k, a->nest.value_pad), zero = kb_splat(k, kb_i32(k, 0), a->nest.lanes);
	from = kb_mul(k, from, row);
	end = kb_mul(k, end, row);
	struct kb_val at = kb_loop(k, "clear", from, end, a->nest.lanes, 0);
	kb_store(k, zero, a->scratch.values, at, 0, a->nest.lanes * 4);
	kb_end_loop(k);
}

/* Copies values, with 0 after the last element, since full vectors are multiplied (copy_elements pads, but one by one
 * if elements are not contiguous; vectors of one lane end with the row). first: address of the block's first value; in
 * a ring found for each key. */
static void pack_values(const struct attention *a, const struct attention_head *h,
                        const struct attention_block *b, struct kb_val first)
{
	struct kb *k = a->k;
	struct row_copy c = {.a = a, .t = &a->value, .dtype = a->nest.values.dtype, .factor = 1};
	struct kb_val j = kb_loop(k, "j", b->begin, b->n, 1, KB_NONEMPTY);
	if (a->key.ring > 0)
		first = ring_base(a, b, &a->value, h->v, j);
	c.from = attention_at(k, &a->value, first, attention_offset(k, &a->value, ATTENTION_ROW, j));
	int64_t bytes = ir_dtype_bytes(a->nest.values.dtype);
	struct kb_val to = kb_mul_const(k, kb_mul_const(k, j, a->nest.values.stride), bytes);
	c.to = kb_ptr_add(k, a->scratch.values, to, 0);
	attention_loop_row(a, a->value_size, a->nest.value_lanes, copy_elements, &c);
	bool is_padded = a->nest.value_lanes == a->nest.lanes; /* by the last vector */
	for (int64_t i = a->value_size; !is_padded && i < a->nest.value_pad; i++)
		kb_store(k, kb_f32(k, 0), c.to, kb_index(k, i), 0, 0);
	kb_end_loop(k);
}

/* Sets b->keys and b->values in a ring buffer: operands that need no packing are read in place, except in the block
 * where the ring wraps, which is copied. Addresses are those of key 0 of the block, which may be before the ring if
 * the window begins later in the block. */
static void bind_ring_block(const struct attention *a, const struct attention_head *h,
                            struct attention_block *b)
{
	struct kb *k = a->k;
	bool panels = !a->nest.keys.is_packed;
	struct kb_val row = ring_row(a, b, b->begin);
	struct kb_val end = kb_add(k, row, kb_sub(k, b->n, b->begin));
	struct kb_val wraps = kb_cmp(k, KB_GT, end, kb_index(k, a->key.ring));
	b->keys = a->scratch.keys;
	b->values = a->scratch.values;
	if (!panels)
		pack_keys(a, h, b);
	if (a->nest.values.is_packed)
		pack_values(a, h, b, h->v);
	if (!panels && a->nest.values.is_packed)
		return;
	kb_if(k, wraps);
	if (panels)
		copy_panels(a, h, b);
	if (!a->nest.values.is_packed)
		pack_values(a, h, b, h->v);
	kb_end_if(k);
	struct kb_val first = kb_sub(k, row, b->begin);
	if (panels)
		b->keys = kb_select(k, wraps, b->keys, attention_panel_at(a, h->k, first));
	struct kb_val values = ring_base(a, b, &a->value, h->v, b->begin);
	if (!a->nest.values.is_packed)
		b->values = kb_select(k, wraps, b->values, values);
}

/* ---- scales of an int8 KV cache ---- */

/* Copies the scales of keys [j, j + lanes) of the block from `from` to `to`; one by one, beyond the block that of the
 * last key, since register tiles read full panels of scales. */
static void copy_scale(const struct attention *a, const struct kb_tensor *t, const struct attention_block *b,
                       struct kb_val from, struct kb_val to, struct kb_val j, int lanes)
{
	struct kb *k = a->k;
	struct kb_val key = lanes > 1 ? j : kb_min(k, j, kb_add_const(k, b->n, -1));
	struct kb_val row = t->ring > 0 ? ring_row(a, b, key) : kb_add(k, b->first, key);
	struct kb_val x =
	        attention_load(k, t, from, attention_offset(k, t, ATTENTION_ROW, row), 0, lanes, lanes);
	kb_store(k, x, to, j, 0, lanes * 4);
}

/* Copies the scales of the block's keys, if it has any (int8 cache), as f32 up to a full panel: by `lanes`, then one by
 * one. */
static void copy_scales(const struct attention *a, const struct kb_tensor *t, const struct attention_block *b,
                        struct kb_val from, struct kb_val to, int lanes)
{
	struct kb *k = a->k;
	if (!attention_has(t))
		return;
	struct kb_val full = b->begin, end = attention_round_up(k, b->n, PANEL_COLUMNS);
	if (lanes > 1) {
		full = attention_round_down(k, b->n, lanes);
		struct kb_val j = kb_loop(k, "j", b->begin, full, lanes, 0);
		copy_scale(a, t, b, from, to, j, lanes);
		kb_end_loop(k);
	}
	struct kb_val j = kb_loop(k, "j", full, end, 1, 0);
	copy_scale(a, t, b, from, to, j, 1);
	kb_end_loop(k);
}

/* Sets b->keys and b->values: to scratch after packing, or to the operand itself where it can be read as it is (keys in
 * panels of the cache; values whose rows are adjacent full vectors). */
void attention_pack_block(const struct attention *a, const struct attention_head *h,
                          struct attention_block *b)
{
	struct kb *k = a->k;
	copy_scales(a, &a->k_scale, b, h->k_scale, a->scratch.k_scale, a->nest.k_scale_lanes);
	copy_scales(a, &a->v_scale, b, h->v_scale, a->scratch.v_scale, a->nest.v_scale_lanes);
	if (a->key.ring > 0) {
		bind_ring_block(a, h, b);
		return;
	}
	struct kb_val step = attention_offset(k, &a->value, ATTENTION_ROW, b->first);
	struct kb_val first = attention_at(k, &a->value, h->v, step);
	b->keys = a->scratch.keys;
	if (!a->nest.keys.is_packed)
		b->keys = attention_panel_at(a, h->k, b->first);
	else
		pack_keys(a, h, b);
	b->values = a->nest.values.is_packed ? a->scratch.values : first;
	if (attention_by_pairs(a))
		pack_value_pairs(a, b, first);
	else if (a->nest.values.is_packed)
		pack_values(a, h, b, first);
}

/* ---- matrix tiles ---- */

#define PANELS     2                   /* panels of a tile step */
#define K_PER_TILE (2 * PANEL_COLUMNS) /* elements of a row in a matrix tile: 64 bytes of bf16 */
#define ACC_STRIDE (PANELS * KB_TILE_BYTES)

void attention_amx_begin(struct attention *a)
{
	if (a->nest.product != ATTENTION_AMX)
		return;
	a->scratch.amx_acc = kb_local(a->k, "acc", KB_I32, AMX_TILE_ROWS * ACC_STRIDE / 4);
	kb_tile_config_gemm(a->k, kb_local(a->k, "config", KB_I32, KB_TILE_CONFIG / 4), KB_TILE_BYTES);
}

void attention_amx_end(const struct attention *a)
{
	if (a->scratch.amx_acc.id)
		kb_tile_release(a->k);
}

/* The tiles of `rows` rows of bf16, in a table whose f32 rows have `length` elements, times `columns` panels. */
static struct matrix_tiles tile_shape(const struct attention *a, int rows, int columns, int64_t length)
{
	return (struct matrix_tiles){.k = a->k,
	                             .dot = KB_DOT_BF16,
	                             .rows = rows / KB_TILE_ROWS,
	                             .columns = columns,
	                             .x_row_stride = length * 4,
	                             .x_tile_stride = KB_TILE_ROWS * length * 4};
}

/* Multiplies `steps` tiles of the rows at x by k-rows at w; stores the accumulators in amx_acc. Tiles can be stored to
 * memory only. */
static void multiply_tiles(const struct matrix_tiles *t, const struct attention *a, struct kb_val x,
                           struct kb_val w, struct kb_val steps)
{
	struct kb *k = a->k;
	matrix_tiles_zero(t);
	struct kb_val i = kb_loop(k, "step", kb_index(k, 0), steps, 1, KB_NONEMPTY);
	x = kb_ptr_add(k, x, kb_mul_const(k, i, KB_TILE_BYTES), 0);
	w = kb_ptr_add(k, w, kb_mul_const(k, i, KB_TILE_ROWS * t->w_row_stride), 0);
	matrix_tiles_mac_k(t, x, w);
	kb_end_loop(k);
	matrix_tiles_store(t, a->scratch.amx_acc, ACC_STRIDE);
}

/* Vector v of row i of amx_acc. */
static struct kb_val load_acc(const struct attention *a, struct kb_val i, int v)
{
	struct kb *k = a->k;
	struct kb_val at = kb_mul_const(k, i, ACC_STRIDE / 4);
	return kb_load(k, attention_vector(a), a->scratch.amx_acc, at, v * a->nest.lanes, a->nest.lanes * 4);
}

/* Times q_factor, which bf16 queries do not have. The head is full tiles of 32 elements (target_attention_uses_amx). */
void attention_amx_scores(const struct attention *a, const struct attention_block *b,
                          const struct attention_tile *t, struct kb_val panel, int rows, int columns)
{
	struct kb *k = a->k;
	int64_t bytes = a->nest.keys.k_rows * KB_TILE_BYTES;
	struct matrix_tiles p = tile_shape(a, rows, columns, a->nest.size_pad);
	p.w_row_stride = KB_TILE_BYTES;
	p.w_tile_stride = bytes;
	struct kb_val queries = attention_scratch_row(k, a->scratch.queries, t->row, a->nest.size_pad);
	struct kb_val keys = kb_ptr_add(k, b->keys, kb_mul_const(k, panel, bytes), 0);
	multiply_tiles(&p, a, queries, keys, kb_index(k, a->size / K_PER_TILE));
	struct kb_val to = kb_mul_const(k, panel, PANEL_COLUMNS),
	              scale = kb_splat(k, kb_f32(k, a->score.q_factor), a->nest.lanes);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	struct kb_val row = attention_scratch_row(k, a->scratch.scores, i, a->nest.at.score_stride);
	for (int v = 0; v < columns; v++)
		kb_store(k, kb_mul(k, load_acc(a, i, v), scale), row, to, v * a->nest.lanes,
		         a->nest.lanes * 4);
	kb_end_loop(k);
}

/* Keys are processed in full tiles of 32: probabilities beyond the last are 0. Only the tile's rows are combined. */
void attention_amx_values(const struct attention *a, const struct attention_block *b,
                          const struct attention_tile *t, struct kb_val e, int rows, int columns)
{
	struct kb *k = a->k;
	struct kb_type type = attention_vector(a);
	struct matrix_tiles p = tile_shape(a, rows, columns, a->nest.at.score_stride);
	p.w_row_stride = a->nest.value_pad * 4;
	p.w_tile_stride = KB_TILE_BYTES;
	struct kb_val steps = attention_round_up(k, t->last, K_PER_TILE);
	steps = kb_div_const(k, steps, K_PER_TILE);
	struct kb_val values = kb_ptr_add(k, b->values, kb_mul_const(k, e, 4), 0);
	multiply_tiles(&p, a, a->scratch.scores, values, steps);
	struct kb_val acc = attention_scratch_row(k, b->partial.acc, t->row, a->nest.value_pad);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	struct kb_val old_factor = kb_load_splat(k, type, a->scratch.old_factor, i, 0),
	              new_factor = kb_load_splat(k, type, a->scratch.new_factor, i, 0),
	              row = attention_scratch_row(k, acc, i, a->nest.value_pad);
	for (int v = 0; v < columns; v++) {
		struct kb_val sum = kb_mul(k, load_acc(a, i, v), new_factor);
		struct kb_val before = kb_load(k, type, row, e, v * a->nest.lanes, a->nest.lanes * 4);
		kb_store(k, kb_fma(k, before, old_factor, sum), row, e, v * a->nest.lanes, a->nest.lanes * 4);
	}
	kb_end_loop(k);
}
