/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands in the order that the register tiles read: queries row by row, keys
 * as panels of 16 columns (line e of a panel is element e of its keys), values
 * row by row. Keys and values are copied once for all rows of a task; what no
 * row sees is never read.
 */
#include "backends/attention/internal.h"

#define PANEL PANEL_COLUMNS

/* ---- queries ---- */

/* A row of an operand, and where it goes in scratch. */
struct row_copy {
	const struct attention *a;
	const struct kb_tensor *t;
	struct kb_val from, to;
	enum ir_dtype dtype; /* in scratch: f32, or the operand's */
	float factor;
	bool narrow; /* in scratch they are bf16 */
};

/* n of `lanes` elements; whole vectors are stored, with 0 after the last element: scratch has room. */
static void copy_part(void *user, struct kb_val e, int lanes, int n)
{
	const struct row_copy *c = user;
	struct kb *k = c->a->k;
	struct kb_val index = attention_step(k, c->t, ATTENTION_ELEMENT, e);
	if (c->dtype != DT_F32) {
		struct kb_type type = KB_TYPE(eval_stored_scalar(c->dtype), lanes);
		kb_store(k, kb_load(k, type, c->from, index, 0, 0), c->to, e, 0, 0);
		return;
	}
	struct kb_val x = attention_load(k, c->t, c->from, index, 0, lanes, n);
	if (c->narrow) {
		kb_store(k, kb_cvt_bf16_ftz(k, x), c->to, e, 0, lanes * 2);
		return;
	}
	x = attention_rounded(c->a, x);
	if (c->factor != 1)
		x = kb_mul(k, x, kb_splat(k, kb_f32(k, c->factor), lanes));
	kb_store(k, x, c->to, e, 0, lanes * 4);
}

void attention_copy_queries(const struct attention *a, const struct attention_head *h,
                            const struct attention_task *t)
{
	struct kb *k = a->k;
	int lanes = attention_is_dense(&a->q, ATTENTION_ELEMENT) ? a->lanes : 1;
	struct row_copy c = {
	        .a = a, .t = &a->q, .dtype = DT_F32, .factor = a->score.q_factor, .narrow = a->pairs};
	struct kb_val single = kb_cmp(k, KB_EQ, t->n, kb_index(k, 1));
	struct kb_val end = kb_select(k, single, t->n, attention_round_up(k, t->n, a->mr));
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), end, 1, KB_NONEMPTY);
	struct kb_val r = kb_add(k, t->first, kb_min(k, row, kb_add_const(k, t->n, -1)));
	c.from = attention_at(k, &a->q, h->q, attention_row_index(a, &a->q, r));
	c.to = attention_scratch_row(k, a->scratch.queries, row, a->size_pad);
	attention_walk_row(a, a->size, lanes, copy_part, &c);
	kb_end_loop(k);
}

/* ---- rings ---- */

/* The row of a ring in which key j of the block lies. */
static struct kb_val ring_row(const struct attention *a, const struct attention_block *b, struct kb_val j)
{
	return kb_rem_const(a->k, kb_add(a->k, b->first, j), a->key.ring);
}

/* Address at which key 0 of the block would lie when those around key j lie in one piece. */
static struct kb_val ring_base(const struct attention *a, const struct attention_block *b,
                               const struct kb_tensor *t, struct kb_val head, struct kb_val j)
{
	struct kb_val row = kb_sub(a->k, ring_row(a, b, j), j);
	return attention_at(a->k, t, head, attention_step(a->k, t, ATTENTION_ROW, row));
}

/* ---- keys ---- */

/* As many keys as there are lanes; clamped: those at or beyond n_keys are not read, the last one is
 * in. */
struct key_group {
	int lanes; /* 1 where elements of a key do not lie side by side */
	const struct attention_block *block;
	struct kb_val base;  /* address of the block's first key */
	struct kb_val first; /* position in the block, a multiple of lanes */
	struct kb_val to;    /* address of element 0 of the first one */
	bool clamped;
};

/* Elements [e0, e0 + lanes) (only n of them) of key i of a group. */
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
	struct kb_val element = attention_step(k, &a->key, ATTENTION_ELEMENT, e0);
	struct kb_val index = kb_add(k, attention_step(k, &a->key, ATTENTION_ROW, row), element);
	return attention_load(k, &a->key, g->base, index, disp, g->lanes, n);
}

/* Row i becomes column i of a square of lanes x lanes: exchanges halves of ever larger squares. */
static void transpose_square(struct kb *k, struct kb_val *rows, int lanes)
{
	for (int d = 1; d < lanes; d *= 2) {
		int low[ATTENTION_LANES_MAX], high[ATTENTION_LANES_MAX];
		for (int l = 0; l < lanes; l++) {
			low[l] = l & d ? lanes + l - d : l;
			high[l] = l & d ? lanes + l : l + d;
		}
		for (int i = 0; i < lanes; i++) {
			if (i & d)
				continue;
			struct kb_val x = rows[i], y = rows[i + d];
			rows[i] = kb_shuffle(k, x, y, low, lanes);
			rows[i + d] = kb_shuffle(k, x, y, high, lanes);
		}
	}
}

/* Words of pairs: of each lane the bf16 of low, then that of high. */
static struct kb_val pair_up(struct kb *k, struct kb_val low, struct kb_val high)
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

/* Lines e0 .. e0 + n of the group's columns. */
static void transpose_keys(const struct attention *a, const struct key_group *g, struct kb_val e0, int n)
{
	struct kb *k = a->k;
	struct kb_val rows[ATTENTION_LANES_MAX];
	for (int i = 0; i < g->lanes; i++)
		rows[i] = key_row(a, g, i, e0, n);
	transpose_square(k, rows, g->lanes);
	struct kb_val at = kb_mul_const(k, e0, PANEL);
	for (int e = 0; !a->pairs && e < n; e++)
		kb_store(k, attention_rounded(a, rows[e]), g->to, at, e * PANEL, g->lanes * 4);
	if (!a->pairs)
		return;
	at = kb_mul_const(k, e0, PANEL / 2);
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), g->lanes);
	for (int e = 0; e < n; e += 2)
		kb_store(k, pair_up(k, rows[e], e + 1 < n ? rows[e + 1] : zero), g->to, at, e / 2 * PANEL,
		         g->lanes * 4);
}

/* Address of element 0 of key j of the block; panels are [E,16]. */
static struct kb_val panel_column(const struct attention *a, struct kb_val j)
{
	struct kb *k = a->k;
	struct kb_val panel = attention_round_down(k, j, PANEL), column = kb_sub(k, j, panel);
	struct kb_val index = kb_add(k, kb_mul_const(k, panel, attention_key_lines(a)), column);
	return kb_ptr_add(k, a->scratch.keys, kb_mul_const(k, index, 4), 0);
}

static void transpose_group(const struct attention *a, const struct attention_head *h, struct key_group *g)
{
	struct kb *k = a->k;
	int64_t whole = a->size - a->size % g->lanes;
	if (a->key.ring > 0)
		g->base = ring_base(a, g->block, &a->key, h->k, g->first);
	g->to = panel_column(a, g->first);
	if (whole > 0) {
		struct kb_val e0 = kb_loop(k, "e", kb_index(k, 0), kb_index(k, whole), g->lanes, KB_NONEMPTY);
		transpose_keys(a, g, e0, g->lanes);
		kb_end_loop(k);
	}
	if (whole < a->size)
		transpose_keys(a, g, kb_index(k, whole), (int)(a->size - whole));
}

/* Columns of the last panel from `from` on, a group of `lanes`: their scores are computed, and mean nothing.
 */
static void clear_columns(const struct attention *a, const struct attention_block *b, struct kb_val from,
                          int lanes)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), lanes);
	struct kb_val end = attention_round_up(k, b->n, PANEL);
	struct kb_val j = kb_loop(k, "j", from, end, lanes, 0);
	struct kb_val to = panel_column(a, j);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->size), 1, KB_NONEMPTY);
	kb_store(k, zero, to, kb_mul_const(k, e, PANEL), 0, lanes * 4);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* Columns at or beyond n_keys mean nothing. */
static void copy_keys(const struct attention *a, const struct attention_head *h,
                      const struct attention_block *b)
{
	struct kb *k = a->k;
	struct kb_val first = attention_step(k, &a->key, ATTENTION_ROW, b->first);
	struct key_group g = {.block = b, .base = attention_at(k, &a->key, h->k, first)};
	g.lanes = attention_is_dense(&a->key, ATTENTION_ELEMENT) ? a->lanes : 1;
	struct kb_val whole = attention_round_down(k, b->n, g.lanes);
	g.first = kb_loop(k, "j", b->begin, whole, g.lanes, 0);
	transpose_group(a, h, &g);
	kb_end_loop(k);
	if (g.lanes > 1) {
		kb_if(k, kb_cmp(k, KB_LT, whole, b->n));
		g.first = whole;
		g.clamped = true;
		transpose_group(a, h, &g);
		kb_end_if(k);
	}
	if (g.lanes < PANEL)
		clear_columns(a, b, attention_round_up(k, b->n, g.lanes), g.lanes);
}

struct kb_val attention_panel_at(const struct attention *a, struct kb_val table, struct kb_val row)
{
	return attention_at(a->k, &a->key, table, kb_mul_const(a->k, row, a->size));
}

/* Panels of a ring, one after the other. */
static void copy_panels(const struct attention *a, const struct attention_head *h,
                        const struct attention_block *b)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	struct kb_type type = KB_TYPE(eval_stored_scalar(a->key_dtype), a->lanes);
	int align = a->lanes * (int)ir_dtype_bytes(a->key_dtype);
	struct kb_val j = kb_loop(k, "j", b->begin, b->n, PANEL, 0);
	struct kb_val from = attention_panel_at(a, h->k, ring_row(a, b, j)),
	              to = attention_panel_at(a, a->scratch.keys, j);
	struct kb_val e = kb_loop(k, "e", zero, kb_index(k, a->size * PANEL), a->lanes, KB_NONEMPTY);
	kb_store(k, kb_load(k, type, from, e, 0, align), to, e, 0, align);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* ---- values ---- */

int64_t attention_value_step(const struct attention *a)
{
	return a->copies_values ? a->value_pad : a->value_size;
}

/* Element e on of two values as words; the second may be none: 0. */
struct pair_copy {
	struct row_copy first;
	struct kb_val second;
};

static void copy_pair(void *user, struct kb_val e, int lanes, int n)
{
	const struct pair_copy *c = user;
	const struct row_copy *r = &c->first;
	struct kb *k = r->a->k;
	struct kb_val index = attention_step(k, r->t, ATTENTION_ELEMENT, e);
	struct kb_val x = attention_load(k, r->t, r->from, index, 0, lanes, n);
	struct kb_val y = c->second.id ? attention_load(k, r->t, c->second, index, 0, lanes, n)
	                               : kb_splat(k, kb_f32(k, 0), lanes);
	kb_store(k, pair_up(k, x, y), r->to, e, 0, lanes * 4);
}

/* Values j, and j + 1 where it is one of the block. */
static void copy_value_pair(const struct attention *a, struct kb_val first, struct kb_val j, bool is_pair)
{
	struct kb *k = a->k;
	struct pair_copy c = {.first = {.a = a, .t = &a->value}};
	struct kb_val step = attention_step(k, &a->value, ATTENTION_ROW, j);
	c.first.from = attention_at(k, &a->value, first, step);
	if (is_pair) {
		step = attention_step(k, &a->value, ATTENTION_ROW, kb_add_const(k, j, 1));
		c.second = attention_at(k, &a->value, first, step);
	}
	struct kb_val row = kb_div_const(k, j, 2);
	c.first.to = attention_scratch_row(k, a->scratch.values, row, a->value_pad);
	attention_walk_row(a, a->value_size, a->lanes, copy_pair, &c);
}

static void copy_value_pairs(const struct attention *a, const struct attention_block *b, struct kb_val first)
{
	struct kb *k = a->k;
	struct kb_val whole = attention_round_down(k, b->n, 2);
	struct kb_val j = kb_loop(k, "j", b->begin, whole, 2, 0);
	copy_value_pair(a, first, j, true);
	kb_end_loop(k);
	kb_if(k, kb_cmp(k, KB_LT, whole, b->n));
	copy_value_pair(a, first, whole, false);
	kb_end_if(k);
	if (!a->matrix)
		return;
	/* a tile reads the lines of 32 keys, and those that are none have the weight 0 */
	struct kb_val from = kb_div_const(k, kb_add_const(k, b->n, 1), 2);
	struct kb_val end = attention_round_up(k, from, KB_TILE_ROWS);
	struct kb_val row = kb_index(k, a->value_pad), zero = kb_splat(k, kb_i32(k, 0), a->lanes);
	from = kb_mul(k, from, row);
	end = kb_mul(k, end, row);
	struct kb_val at = kb_loop(k, "clear", from, end, a->lanes, 0);
	kb_store(k, zero, a->scratch.values, at, 0, a->lanes * 4);
	kb_end_loop(k);
}

/* Whole vectors are multiplied: after the last element there is 0. `first`: address of the block's first. */
static void copy_values(const struct attention *a, const struct attention_head *h,
                        const struct attention_block *b, struct kb_val first)
{
	struct kb *k = a->k;
	bool is_dense = attention_is_dense(&a->value, ATTENTION_ELEMENT);
	struct row_copy c = {.a = a, .t = &a->value, .dtype = a->value_dtype, .factor = 1};
	struct kb_val j = kb_loop(k, "j", b->begin, b->n, 1, KB_NONEMPTY);
	if (a->key.ring > 0)
		first = ring_base(a, b, &a->value, h->v, j);
	c.from = attention_at(k, &a->value, first, attention_step(k, &a->value, ATTENTION_ROW, j));
	int64_t bytes = ir_dtype_bytes(a->value_dtype);
	struct kb_val to = kb_mul_const(k, kb_mul_const(k, j, attention_value_step(a)), bytes);
	c.to = kb_ptr_add(k, a->scratch.values, to, 0);
	attention_walk_row(a, a->value_size, is_dense ? a->lanes : 1, copy_part, &c);
	for (int64_t i = a->value_size; !is_dense && i < a->value_pad; i++)
		kb_store(k, kb_f32(k, 0), c.to, kb_index(k, i), 0, 0);
	kb_end_loop(k);
}

/*
 * What lies as the tiles read it is read where it lies, but for the block in which the ring begins again:
 * that one is copied. Addresses are those of the block's key 0, which may lie before the ring.
 */
static void find_in_ring(const struct attention *a, const struct attention_head *h, struct attention_block *b)
{
	struct kb *k = a->k;
	bool panels = a->key.encoding == ENC_PANEL16;
	struct kb_val row = ring_row(a, b, b->begin);
	struct kb_val end = kb_add(k, row, kb_sub(k, b->n, b->begin));
	struct kb_val is_apart = kb_cmp(k, KB_GT, end, kb_index(k, a->key.ring));
	b->keys = a->scratch.keys;
	b->values = a->scratch.values;
	if (!panels)
		copy_keys(a, h, b);
	if (a->copies_values)
		copy_values(a, h, b, h->v);
	if (!panels && a->copies_values)
		return;
	kb_if(k, is_apart);
	if (panels)
		copy_panels(a, h, b);
	if (!a->copies_values)
		copy_values(a, h, b, h->v);
	kb_end_if(k);
	struct kb_val first = kb_sub(k, row, b->begin);
	if (panels)
		b->keys = kb_select(k, is_apart, b->keys, attention_panel_at(a, h->k, first));
	struct kb_val values = ring_base(a, b, &a->value, h->v, b->begin);
	if (!a->copies_values)
		b->values = kb_select(k, is_apart, b->values, values);
}

/* ---- scales ---- */

/* Those of keys [j, j + lanes) of the block; of a key beyond it that of the last one. */
static void copy_scale(const struct attention *a, const struct kb_tensor *t, const struct attention_block *b,
                       struct kb_val from, struct kb_val to, struct kb_val j, int lanes)
{
	struct kb *k = a->k;
	struct kb_val key = lanes > 1 ? j : kb_min(k, j, kb_add_const(k, b->n, -1));
	struct kb_val row = t->ring > 0 ? ring_row(a, b, key) : kb_add(k, b->first, key);
	struct kb_val x =
	        attention_load(k, t, from, attention_step(k, t, ATTENTION_ROW, row), 0, lanes, lanes);
	kb_store(k, x, to, j, 0, lanes * 4);
}

/* As many as the scores of the block are, in whole panels. */
static void copy_scales(const struct attention *a, const struct kb_tensor *t, const struct attention_block *b,
                        struct kb_val from, struct kb_val to)
{
	struct kb *k = a->k;
	if (!attention_has(t))
		return;
	struct kb_val whole = b->begin, end = attention_round_up(k, b->n, PANEL_COLUMNS);
	if (attention_is_dense(t, ATTENTION_ROW)) {
		whole = attention_round_down(k, b->n, a->lanes);
		struct kb_val j = kb_loop(k, "j", b->begin, whole, a->lanes, 0);
		copy_scale(a, t, b, from, to, j, a->lanes);
		kb_end_loop(k);
	}
	struct kb_val j = kb_loop(k, "j", whole, end, 1, 0);
	copy_scale(a, t, b, from, to, j, 1);
	kb_end_loop(k);
}

void attention_copy_block(const struct attention *a, const struct attention_head *h,
                          struct attention_block *b)
{
	struct kb *k = a->k;
	copy_scales(a, &a->k_scale, b, h->k_scale, a->scratch.k_scale);
	copy_scales(a, &a->v_scale, b, h->v_scale, a->scratch.v_scale);
	if (a->key.ring > 0) {
		find_in_ring(a, h, b);
		return;
	}
	struct kb_val step = attention_step(k, &a->value, ATTENTION_ROW, b->first);
	struct kb_val first = attention_at(k, &a->value, h->v, step);
	b->keys = a->scratch.keys;
	if (a->key.encoding == ENC_PANEL16)
		b->keys = attention_panel_at(a, h->k, b->first);
	else
		copy_keys(a, h, b);
	b->values = a->copies_values ? a->scratch.values : first;
	if (a->pairs)
		copy_value_pairs(a, b, first);
	else if (a->copies_values)
		copy_values(a, h, b, first);
}
