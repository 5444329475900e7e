/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weighted values of a tile of rows in one block: a register tile whose
 * weights are the rows of values. Each sum is one chain of multiply-adds over
 * the keys that its row sees, in increasing key, from zero; then it joins what
 * the row has of the blocks before.
 */
#include "backends/attention/internal.h"

struct value_tile {
	const struct attention *a;
	const struct attention_tile *rows_of;
	struct reg_tile p; /* of weights and values: a step is a key */
	const struct attention_block *block;
	struct kb_val column; /* the first one */
	struct kb_val values; /* its address, of the block's first key */
};

static struct kb_val load_values(const void *user, struct kb_val line, int i, int v)
{
	const struct value_tile *t = user;
	const struct attention *a = t->a;
	(void)i;
	if (a->pairs)
		return kb_load(a->k, KB_TYPE(KB_I32, a->lanes), t->values, line, v * a->lanes, 0);
	struct kb_val x = attention_widen(a, a->value_dtype, t->values, line, v * a->lanes, false);
	return a->copies_values ? x : attention_rounded(a, x);
}

/* Element of the values where those of a key begin. */
static struct kb_val line_of(const struct attention *a, struct kb_val key)
{
	return kb_mul_const(a->k, key, attention_value_step(a));
}

/* A key that the rows [from, to) of the tile see. */
static void value_step(const struct value_tile *t, struct kb_val j, int from, int to)
{
	reg_tile_mac_k(&t->p, j, line_of(t->a, j), 0, from, to);
}

/* Keys [j, j + lanes), which all rows of the tile see. */
static void value_lanes(const struct value_tile *t, struct kb_val j, int lanes)
{
	struct kb_val weights[TILE_MR_MAX];
	reg_tile_load_x(&t->p, j, lanes, weights);
	for (int i = 0; i < lanes; i++)
		reg_tile_mac_k_lane(&t->p, weights, line_of(t->a, kb_add_const(t->a->k, j, i)), i);
}

/*
 * sum += w v where the row sees the key. With masks in registers of their own, the multiply-add is masked;
 * else the values are 0 where it does not: the weight is -1 there, and sum + -0 is sum. Values are then
 * loaded again for each row, as operands: sums, a line of values and a mask are more than 16 registers.
 */
static void add_masked(const struct attention *a, const struct value_tile *t, struct kb_val line, int row,
                       struct kb_val w)
{
	struct kb *k = a->k;
	struct kb_val is_seen = kb_cmp(k, KB_NE, w, kb_splat(k, kb_f32(k, ATTENTION_UNSEEN), a->lanes));
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->lanes);
	for (int x = 0; x < t->p.vectors; x++) {
		struct kb_var var = t->p.sum[row * t->p.vectors + x];
		struct kb_val sum = kb_get(k, var), v = load_values(t, line, 0, x);
		if (a->lanes == ATTENTION_LANES_MAX)
			kb_set(k, var, kb_select(k, is_seen, kb_fma(k, w, v, sum), sum));
		else
			kb_set(k, var, kb_fma(k, w, kb_select(k, is_seen, v, zero), sum));
	}
}

/* Keys that some rows of the tile see. */
static void walk_masked(const struct attention *a, const struct value_tile *t, struct kb_val from,
                        struct kb_val to)
{
	struct kb_val j = kb_loop(a->k, "j", from, to, 1, 0);
	struct kb_val line = line_of(a, j);
	for (int i = 0; i < t->p.rows; i++)
		add_masked(a, t, line, i,
		           kb_load_splat(a->k, attention_vector(a), t->p.x[i], j, t->p.x_disp[i]));
	kb_end_loop(a->k);
}

/*
 * The keys [begin, end) that only some rows see, where rows are even: of the upper edge key d is for the rows
 * after row d, of the lower one for those up to it. No weight has to be looked at.
 */
static void walk_edge(const struct attention *a, const struct value_tile *t, struct kb_val begin,
                      struct kb_val end, bool is_upper)
{
	struct kb *k = a->k;
	struct kb_val whole = kb_cmp(k, KB_EQ, kb_sub(k, end, begin), kb_index(k, t->p.rows - 1));
	kb_if(k, kb_bin(k, KB_AND, t->rows_of->is_even, whole));
	for (int d = 0; d < t->p.rows - 1; d++)
		value_step(t, kb_add_const(k, begin, d), is_upper ? d + 1 : 0, is_upper ? t->p.rows : d + 1);
	kb_else(k);
	walk_masked(a, t, begin, end);
	kb_end_if(k);
}

static void walk_differing(const struct attention *a, const struct value_tile *t, struct kb_val begin,
                           struct kb_val end, bool is_upper)
{
	if (attention_has_edges(a))
		walk_edge(a, t, begin, end, is_upper);
	else
		walk_masked(a, t, begin, end);
}

static void walk_keys(const struct attention *a, const struct value_tile *t)
{
	struct kb *k = a->k;
	const struct attention_tile *of = t->rows_of;
	int lanes = a->job->target->k_lanes;
	struct kb_val lo = of->common, j;
	bool is_masked = a->mask.rows_differ && t->p.rows > 1;
	if (is_masked && a->mask.window > 0)
		walk_differing(a, t, of->low, of->common, false);
	if (lanes > 1) {
		struct kb_val n = attention_round_down(k, kb_sub(k, of->common_end, lo), lanes);
		struct kb_val whole = kb_add(k, lo, n);
		j = kb_loop(k, "j", lo, whole, lanes, 0);
		value_lanes(t, j, lanes);
		kb_end_loop(k);
		lo = whole;
	}
	struct kb_val end = of->common_end;
	if (a->pairs)
		end = kb_div_const(k, kb_add_const(k, end, 1), 2);
	j = kb_loop(k, "j", lo, end, 1, 0);
	attention_ask_by_values(a, t->block, j, t->column, t->p.vectors * a->lanes, t->p.rows);
	value_step(t, j, 0, t->p.rows);
	kb_end_loop(k);
	if (is_masked)
		walk_differing(a, t, of->common_end, of->last, true);
}

/* Columns from e0 on of acc = acc old_factor + sums new_factor; acc: address of the tile's first row. */
static void join_sums(const struct attention *a, const struct value_tile *t, struct kb_val acc,
                      struct kb_val e0)
{
	struct kb *k = a->k;
	struct kb_type type = attention_vector(a);
	struct kb_val zero = kb_index(k, 0);
	for (int i = 0; i < t->p.rows; i++) {
		struct kb_val old_factor = kb_load_splat(k, type, a->scratch.old_factor, zero, i);
		struct kb_val new_factor = kb_load_splat(k, type, a->scratch.new_factor, zero, i);
		for (int x = 0; x < t->p.vectors; x++) {
			int64_t disp = i * a->value_pad + x * a->lanes;
			struct kb_val sum = kb_mul(k, reg_tile_acc(&t->p, i, x), new_factor);
			struct kb_val before = kb_load(k, type, acc, e0, disp, a->lanes * 4);
			kb_store(k, kb_fma(k, before, old_factor, sum), acc, e0, disp, a->lanes * 4);
		}
	}
}

static void value_columns(const struct attention *a, const struct attention_block *b, struct value_tile *t,
                          struct kb_val e0)
{
	struct kb *k = a->k;
	struct kb_val bytes = kb_mul_const(k, e0, ir_dtype_bytes(a->value_dtype));
	t->column = e0;
	t->values = kb_ptr_add(k, b->values, bytes, 0);
	reg_tile_zero(&t->p, "sum");
	walk_keys(a, t);
	struct kb_val acc = attention_scratch_row(k, b->sums.acc, t->rows_of->row, a->value_pad);
	join_sums(a, t, acc, e0);
}

void attention_values(const struct attention *a, const struct attention_block *b,
                      const struct attention_tile *t, int rows)
{
	struct kb *k = a->k;
	if (a->matrix) {
		attention_matrix_values(a, b, t, rows);
		return;
	}
	int all = (int)((a->value_size + a->lanes - 1) / a->lanes), most = attention_tile_vectors(a, rows);
	struct value_tile v = {
	        .a = a, .block = b, .rows_of = t, .p = {.k = k, .rows = rows, .lanes = a->lanes}};
	v.p.pairs = a->pairs;
	v.p.vectors = all < most ? all : most;
	v.p.weights = load_values;
	v.p.user = &v;
	attention_set_x(&v.p, a->scratch.scores, a->scratch.stride);
	int whole = all - all % v.p.vectors;
	struct kb_val e0 = kb_loop(k, "e", kb_index(k, 0), kb_index(k, (int64_t)whole * a->lanes),
	                           (int64_t)v.p.vectors * a->lanes, KB_NONEMPTY);
	value_columns(a, b, &v, e0);
	kb_end_loop(k);
	if (whole == all)
		return;
	v.p.vectors = all - whole;
	value_columns(a, b, &v, kb_index(k, (int64_t)whole * a->lanes));
}
