/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands in the order that the register tiles read: queries row by row, keys
 * as panels of 16 columns (line e of a panel is element e of its keys), values
 * row by row. Keys and values are copied once for all rows of a task; what no
 * row sees is never read.
 */
#include "backends/attention/internal.h"

#define PANEL TILE_PANEL

/* ---- queries ---- */

/* A row of an operand, and where it goes in scratch. */
struct row_copy {
	const struct attention *a;
	const struct kb_tensor *t;
	struct kb_val from, to;
	enum ir_dtype dtype; /* in scratch: f32, or the operand's */
	float factor;
};

/* n of `lanes` elements; whole vectors are stored, with 0 after the last element: scratch has room. */
static void copy_part(void *user, struct kb_val e, int lanes, int n)
{
	const struct row_copy *c = user;
	struct kb *k = c->a->k;
	struct kb_val index = attention_step(k, c->t, ATTENTION_ELEMENT, e);
	if (c->dtype != DT_F32) {
		struct kb_type type = KB_TYPE(attention_scalar(c->dtype), lanes);
		kb_store(k, kb_load(k, type, c->from, index, 0, 0), c->to, e, 0, 0);
		return;
	}
	struct kb_val x = attention_load(k, c->t, c->from, index, 0, lanes, n);
	if (c->factor != 1)
		x = kb_mul(k, x, kb_splat(k, kb_f32(k, c->factor), lanes));
	kb_store(k, x, c->to, e, 0, lanes * 4);
}

void attention_copy_queries(const struct attention *a)
{
	struct kb *k = a->k;
	int lanes = attention_is_dense(&a->q, ATTENTION_ELEMENT) ? a->lanes : 1;
	struct row_copy c = {.a = a, .t = &a->q, .dtype = DT_F32, .factor = a->q_factor};
	struct kb_val single = kb_cmp(k, KB_EQ, a->n_rows, kb_index(k, 1));
	struct kb_val end = kb_select(k, single, a->n_rows, attention_round_up(k, a->n_rows, a->mr));
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), end, 1, KB_NONEMPTY);
	struct kb_val r = kb_add(k, a->first_row, kb_min(k, row, kb_add_const(k, a->n_rows, -1)));
	c.from = attention_at(k, &a->q, a->head.q, attention_row_index(a, &a->q, r));
	c.to = attention_scratch_row(k, a->queries, row, a->size_pad);
	attention_walk_row(a, a->size, lanes, copy_part, &c);
	kb_end_loop(k);
}

/* ---- rings ---- */

/* The row of a ring in which key j of the block lies. */
static struct kb_val ring_row(const struct attention *a, struct kb_val j)
{
	return kb_bin(a->k, KB_REM, kb_add(a->k, a->block.first, j), kb_index(a->k, a->ring));
}

/* Address at which key 0 of the block would lie when those around key j lie in one piece. */
static struct kb_val ring_base(const struct attention *a, const struct kb_tensor *t, struct kb_val head,
                               struct kb_val j)
{
	struct kb_val row = kb_sub(a->k, ring_row(a, j), j);
	return attention_at(a->k, t, head, attention_step(a->k, t, ATTENTION_ROW, row));
}

/* ---- keys ---- */

/* As many keys as a vector has lanes; clamped: those at or beyond n_keys are not read, the last one is
 * in. */
struct key_group {
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
		row = kb_min(k, row, kb_add_const(k, a->block.n, -1));
	} else if (stride->is_const) {
		row = g->first;
		disp = i * stride->c;
	}
	struct kb_val index = kb_add(k, attention_step(k, &a->key, ATTENTION_ROW, row), e0);
	return attention_load(k, &a->key, g->base, index, disp, a->lanes, n);
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

/* Lines e0 .. e0 + n of the group's columns. */
static void transpose_keys(const struct attention *a, const struct key_group *g, struct kb_val e0, int n)
{
	struct kb *k = a->k;
	struct kb_val rows[ATTENTION_LANES_MAX];
	for (int i = 0; i < a->lanes; i++)
		rows[i] = key_row(a, g, i, e0, n);
	transpose_square(k, rows, a->lanes);
	struct kb_val at = kb_mul(k, e0, kb_index(k, PANEL));
	for (int e = 0; e < n; e++)
		kb_store(k, rows[e], g->to, at, e * PANEL, a->lanes * 4);
}

/* Address of element 0 of key j of the block; panels are [E,16]. */
static struct kb_val panel_column(const struct attention *a, struct kb_val j)
{
	struct kb *k = a->k;
	struct kb_val panel = attention_round_down(k, j, PANEL), column = kb_sub(k, j, panel);
	struct kb_val index = kb_add(k, kb_mul(k, panel, kb_index(k, a->size)), column);
	return kb_ptr_add(k, a->keys, kb_mul(k, index, kb_index(k, 4)), 0);
}

static void transpose_group(const struct attention *a, struct key_group *g)
{
	struct kb *k = a->k;
	int64_t whole = a->size - a->size % a->lanes;
	if (a->ring > 0)
		g->base = ring_base(a, &a->key, a->head.k, g->first);
	g->to = panel_column(a, g->first);
	if (whole > 0) {
		struct kb_val e0 = kb_loop(k, "e", kb_index(k, 0), kb_index(k, whole), a->lanes, KB_NONEMPTY);
		transpose_keys(a, g, e0, a->lanes);
		kb_end_loop(k);
	}
	if (whole < a->size)
		transpose_keys(a, g, kb_index(k, whole), (int)(a->size - whole));
}

/* Columns of the last panel from `from` on, a group of `lanes`: their scores are computed, and mean nothing.
 */
static void clear_columns(const struct attention *a, struct kb_val from, int lanes)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), lanes);
	struct kb_val end = attention_round_up(k, a->block.n, PANEL);
	struct kb_val j = kb_loop(k, "j", from, end, lanes, 0);
	struct kb_val to = panel_column(a, j);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->size), 1, KB_NONEMPTY);
	kb_store(k, zero, to, kb_mul(k, e, kb_index(k, PANEL)), 0, lanes * 4);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* Element by element, when those of a key do not lie side by side. */
static void copy_keys_by_element(const struct attention *a, struct kb_val base)
{
	struct kb *k = a->k;
	struct kb_val j = kb_loop(k, "j", a->block.begin, a->block.n, 1, KB_NONEMPTY);
	struct kb_val from = attention_step(k, &a->key, ATTENTION_ROW, j), to = panel_column(a, j);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->size), 1, KB_NONEMPTY);
	struct kb_val index = kb_add(k, from, attention_step(k, &a->key, ATTENTION_ELEMENT, e));
	struct kb_val x = attention_load(k, &a->key, base, index, 0, 1, 1);
	kb_store(k, x, to, kb_mul(k, e, kb_index(k, PANEL)), 0, 0);
	kb_end_loop(k);
	kb_end_loop(k);
	clear_columns(a, a->block.n, 1);
}

/* Columns at or beyond n_keys mean nothing. */
static void copy_keys(const struct attention *a)
{
	struct kb *k = a->k;
	struct kb_val first = attention_step(k, &a->key, ATTENTION_ROW, a->block.first);
	struct key_group g = {.base = attention_at(k, &a->key, a->head.k, first)};
	if (!attention_is_dense(&a->key, ATTENTION_ELEMENT)) {
		copy_keys_by_element(a, g.base);
		return;
	}
	struct kb_val whole = attention_round_down(k, a->block.n, a->lanes);
	g.first = kb_loop(k, "j", a->block.begin, whole, a->lanes, 0);
	transpose_group(a, &g);
	kb_end_loop(k);
	kb_if(k, kb_cmp(k, KB_LT, whole, a->block.n));
	g.first = whole;
	g.clamped = true;
	transpose_group(a, &g);
	kb_end_if(k);
	if (a->lanes < PANEL)
		clear_columns(a, attention_round_up(k, a->block.n, a->lanes), a->lanes);
}

/* Address of the panel that begins with that row, where keys lie in panels. */
static struct kb_val panel_at(const struct attention *a, struct kb_val table, struct kb_val row)
{
	return attention_at(a->k, &a->key, table, kb_mul(a->k, row, kb_index(a->k, a->size)));
}

/* Panels of a ring, one after the other. */
static void copy_panels(const struct attention *a)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	struct kb_type type = KB_TYPE(attention_scalar(a->key_dtype), a->lanes);
	int align = a->lanes * (int)ir_dtype_bytes(a->key_dtype);
	struct kb_val j = kb_loop(k, "j", a->block.begin, a->block.n, PANEL, 0);
	struct kb_val from = panel_at(a, a->head.k, ring_row(a, j)), to = panel_at(a, a->keys, j);
	struct kb_val e = kb_loop(k, "e", zero, kb_index(k, a->size * PANEL), a->lanes, KB_NONEMPTY);
	kb_store(k, kb_load(k, type, from, e, 0, align), to, e, 0, align);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* ---- values ---- */

/* Whole vectors are multiplied: after the last element there is 0. */
static void copy_values(const struct attention *a, struct kb_val first)
{
	struct kb *k = a->k;
	bool is_dense = attention_is_dense(&a->value, ATTENTION_ELEMENT);
	struct row_copy c = {.a = a, .t = &a->value, .dtype = a->value_dtype, .factor = 1};
	struct kb_val j = kb_loop(k, "j", a->block.begin, a->block.n, 1, KB_NONEMPTY);
	if (a->ring > 0)
		first = ring_base(a, &a->value, a->head.v, j);
	c.from = attention_at(k, &a->value, first, attention_step(k, &a->value, ATTENTION_ROW, j));
	struct kb_val bytes = kb_index(k, ir_dtype_bytes(a->value_dtype));
	c.to = kb_ptr_add(k, a->values, kb_mul(k, kb_mul(k, j, a->block.value_step), bytes), 0);
	attention_walk_row(a, a->value_size, is_dense ? a->lanes : 1, copy_part, &c);
	for (int64_t i = a->value_size; !is_dense && i < a->value_pad; i++)
		kb_store(k, kb_f32(k, 0), c.to, kb_index(k, i), 0, 0);
	kb_end_loop(k);
}

/*
 * What lies as the tiles read it is read where it lies, but for the block in which the ring begins again:
 * that one is copied. Addresses are those of the block's key 0, which may lie before the ring.
 */
static void find_in_ring(struct attention *a)
{
	struct kb *k = a->k;
	bool panels = a->key.encoding == ENC_PANEL16;
	struct kb_val row = ring_row(a, a->block.begin);
	struct kb_val end = kb_add(k, row, kb_sub(k, a->block.n, a->block.begin));
	struct kb_val is_apart = kb_cmp(k, KB_GT, end, kb_index(k, a->ring));
	a->block.keys = a->keys;
	a->block.values = a->values;
	if (!panels)
		copy_keys(a);
	if (a->copies_values)
		copy_values(a, a->head.v);
	if (!panels && a->copies_values)
		return;
	kb_if(k, is_apart);
	if (panels)
		copy_panels(a);
	if (!a->copies_values)
		copy_values(a, a->head.v);
	kb_end_if(k);
	struct kb_val first = kb_sub(k, row, a->block.begin);
	if (panels)
		a->block.keys = kb_select(k, is_apart, a->keys, panel_at(a, a->head.k, first));
	struct kb_val values = ring_base(a, &a->value, a->head.v, a->block.begin);
	if (!a->copies_values)
		a->block.values = kb_select(k, is_apart, a->values, values);
}

void attention_copy_block(struct attention *a)
{
	struct kb *k = a->k;
	if (a->ring > 0) {
		find_in_ring(a);
		return;
	}
	struct kb_val step = attention_step(k, &a->value, ATTENTION_ROW, a->block.first);
	struct kb_val first = attention_at(k, &a->value, a->head.v, step);
	a->block.keys = a->keys;
	if (a->key.encoding == ENC_PANEL16)
		a->block.keys = panel_at(a, a->head.k, a->block.first);
	else
		copy_keys(a);
	a->block.values = a->copies_values ? a->values : first;
	if (a->copies_values)
		copy_values(a, first);
}
