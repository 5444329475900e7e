/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chooser of loop nests of attention, on random attentions for all targets: register tiles cover every number of
 * rows that a task can have and every column, once, and fit into the registers; buffers do not overlap and fit into the
 * group's scratch. Faults that are planted in a nest are found by the same checks.
 */
#include <check.h>

#include "backends/kernels/attention_nest.h"
#include "tests/support/random/rng.h"

#define CASES   2000 /* of each target */
#define PLANTED 8    /* every eighth nest has faults planted */
#define ROWS_TO 150  /* tasks of up to as many rows, and the highest, are divided into tiles */

static struct attention_operand random_operand(struct rng *s, enum ir_dtype dtype, int64_t size)
{
	return (struct attention_operand){.is_on = true,
	                                  .dtype = dtype,
	                                  .row = rng_next(s) % 4 ? size : rng_between(s, -1, 9000),
	                                  .element = rng_next(s) % 8 ? 1 : rng_between(s, -1, 300)};
}

/* An attention; a: the attributes of its group, with the scratch that the pass plans, or less. */
static struct attention_shape random_attention(struct rng *s, const struct target *t, struct attrs_group *a)
{
	static const enum ir_dtype stored[] = {DT_F32, DT_BF16, DT_F16, DT_I8};
	enum ir_dtype kv = stored[rng_next(s) % TFMC_COUNT(stored)];
	struct attention_shape x = {.target = t, .caps = kb_caps_of(t), .attrs = a};
	x.size = rng_next(s) % 2 ? 32 * rng_between(s, 1, 8) : rng_between(s, 1, 300);
	x.value_size = rng_next(s) % 2 ? x.size : rng_between(s, 1, 300);
	x.queries = rng_between(s, 0, 8);
	x.rows = x.queries > 0 && rng_next(s) % 2 ? x.queries * rng_between(s, 1, 100) : INT64_MAX;
	x.q = random_operand(s, DT_F32, x.size);
	x.key = random_operand(s, kv, x.size);
	x.value = random_operand(s, kv, x.value_size);
	x.out = random_operand(s, DT_F32, x.value_size);
	x.key.has_panels = rng_next(s) % 3 == 0;
	x.key.ring = x.value.ring = rng_next(s) % 4 ? 0 : 16 * rng_between(s, 1, 40);
	if (rng_next(s) % 3 == 0)
		x.bias = random_operand(s, DT_F32, 1);
	if (kv == DT_I8)
		x.k_scale = x.v_scale = random_operand(s, DT_F32, 1);
	x.rows_differ = rng_next(s) % 2;
	x.has_softcap = rng_next(s) % 4 == 0;
	x.rounds_factors = rng_next(s) % 2;
	x.has_lengths = rng_next(s) % 2;
	*a = (struct attrs_group){.br = rng_next(s) % 2 ? rng_between(s, 1, 200) : 0,
	                          .bc = rng_next(s) % 2 ? 16 * rng_between(s, 1, 20) : 0,
	                          .lanes = rng_next(s) % 4 ? 0 : (int64_t)1 << rng_between(s, 0, 4),
	                          .split = rng_next(s) % 3 ? 0 : rng_between(s, 1, 9)};
	int64_t br, bc;
	target_attention_blocks(t, x.size, x.value_size, &br, &bc);
	br = a->br ? a->br : br;
	if (a->split > 0 && x.rows != INT64_MAX) /* a slot has all rows of a head */
		x.rows = x.rows < br ? x.rows : br;
	struct target_attention_scratch of;
	const struct target_attention_sizes sizes = {br, a->bc ? a->bc : bc, a->split, x.k_scale.is_on,
	                                             x.v_scale.is_on};
	target_attention_scratch(t, x.size, x.value_size, &sizes, &of);
	a->scratch = rng_next(s) % 8 ? 4 * of.end : rng_between(s, 0, 4 * of.end - 1);
	return x;
}

/* The lowest tile that serves `left` rows. */
static const struct attention_row_tile *tile_of(const struct attention_nest *n, int64_t left)
{
	const struct attention_row_tile *t = &n->tile[0];
	for (int i = 1; i < n->n_tiles; i++)
		t = left <= n->tile[i].left_max ? &n->tile[i] : t;
	return t;
}

/* Row after the last one that tiles of a task of `rows` rows write; at most one tile more than needed of the lowest. */
static int64_t end_of_tiles(const struct attention_nest *n, int64_t rows)
{
	int64_t row = 0;
	while (row < rows)
		row += tile_of(n, rows - row)->rows;
	return row;
}

static const char *fault_of_tiles(const struct attention_shape *s, const struct attention_nest *n)
{
	int64_t most = s->rows < n->task_rows ? s->rows : n->task_rows;
	const struct target *t = s->target;
	if (n->n_tiles < 1 || n->n_tiles > ATTENTION_TILES_MAX)
		return "number of tiles";
	for (int64_t rows = 1; rows <= most; rows += rows < ROWS_TO || rows == most ? 1 : most - rows) {
		/* queries are packed up to full main tiles; a single row alone */
		int64_t packed = rows > 1 ? ceil_div(rows, n->mr) * n->mr : n->tile[n->n_tiles - 1].rows;
		if (end_of_tiles(n, rows) > packed)
			return "tiles read rows that are not packed";
		if (end_of_tiles(n, rows) - rows >= n->mr)
			return "a tile without rows";
	}
	for (int i = 0; i < n->n_tiles; i++) {
		const struct attention_row_tile *x = &n->tile[i];
		int all = (int)ceil_div(s->value_size, n->lanes), by_lane = x->rows < n->mr ? x->rows : 0;
		if (x->rows < 1 || x->rows > n->mr || (i > 0 && x->rows >= n->tile[i - 1].rows))
			return "order of tiles";
		if (x->vectors < 1 || x->vectors * n->lanes % PANEL_COLUMNS != 0)
			return "part of a panel";
		if (x->value_vectors < 1 || x->value_vectors > x->vectors || x->value_remainder < 0 ||
		    x->value_remainder >= x->value_vectors ||
		    (all - x->value_remainder) % x->value_vectors != 0)
			return "columns of values";
		if (n->product == ATTENTION_AMX && x->vectors * n->lanes > 2 * PANEL_COLUMNS)
			return "more panels than matrix tiles store";
		if (n->product != ATTENTION_AMX && x->rows * x->vectors > TILE_ACC_MAX)
			return "more accumulators than a tile has";
		if (n->product != ATTENTION_AMX && !s->attrs->lanes &&
		    (x->rows * x->vectors > t->max_accumulators || x->rows > TILE_MR_MAX ||
		     target_tile_registers(t, x->rows, x->vectors * n->lanes) +
		                     (n->x_lanes > 1 ? by_lane : 0) >
		             t->registers))
			return "registers";
		if ((x->keys_ahead > 0) != (x->panel_ahead > 0) || (x->keys_ahead > 0 && !n->is_one_run) ||
		    (x->rows > 1 && x->keys_ahead > 0 && x->keys_ahead < x->vectors * n->lanes) ||
		    (x->values_ahead > 0 && n->values.is_packed))
			return "prefetch";
	}
	return NULL;
}

static const char *fault_of_buffers(const struct attention_shape *s, const struct attention_nest *n)
{
	const struct target_attention_scratch *at = &n->at;
	const struct attention_slots *slot = &n->slots;
	int64_t maxima = n->task_rows + n->lanes, tile = ceil_div(n->mr, n->lanes) * n->lanes;
	/* in order: where it begins, elements that are written */
	const int64_t buffers[][2] = {{at->queries, n->task_rows * n->size_pad},
	                              {at->keys, n->bc * s->size},
	                              {at->values, n->bc * n->value_pad},
	                              {at->scores, n->mr * n->at.score_stride},
	                              {at->acc, n->task_rows * n->value_pad},
	                              {at->max, maxima},
	                              {at->sum, maxima},
	                              {at->tile_max, tile},
	                              {at->tile_sum, tile},
	                              {at->old_factor, tile},
	                              {at->new_factor, tile},
	                              {at->slots, slot->n * slot->size},
	                              {at->k_scale, s->k_scale.is_on ? n->bc : 0},
	                              {at->v_scale, s->v_scale.is_on ? n->bc : 0},
	                              {at->end, 0}};
	for (size_t i = 0; i + 1 < TFMC_COUNT(buffers); i++)
		if (buffers[i][0] % PANEL_COLUMNS != 0 || buffers[i][0] + buffers[i][1] > buffers[i + 1][0])
			return "buffers overlap";
	if (at->queries < 0 || at->end * 4 > s->attrs->scratch)
		return "scratch";
	if (n->at.score_stride < ceil_div(n->bc, n->score_step) * n->score_step)
		return "rows of scores overlap";
	if (slot->n > 0 &&
	    (slot->list < slot->rows + n->lanes || slot->size < slot->rows * n->value_pad + 2 * slot->list))
		return "slots";
	return NULL;
}

/* The fault of a nest, NULL if it has none. */
static const char *fault_of(const struct attention_shape *s, const struct attention_nest *n)
{
	if (n->lanes < 1 || PANEL_COLUMNS % n->lanes != 0 || n->bc < PANEL_COLUMNS ||
	    n->bc % PANEL_COLUMNS != 0 || n->task_rows % n->mr != 0)
		return "sizes";
	if ((n->product == ATTENTION_AMX && !s->caps.has_tiles) ||
	    (n->product != ATTENTION_F32 && (!s->caps.has_dot_bf16 || !n->keys.is_packed)))
		return "product";
	const char *fault = fault_of_tiles(s, n);
	return fault ? fault : fault_of_buffers(s, n);
}

#define N_FAULTS   11
#define PANEL_MORE 10 /* must be found in any nest */

/* Plants a fault in the nest. */
static void plant(struct attention_nest *n, int fault)
{
	struct attention_row_tile *low = &n->tile[n->n_tiles - 1];
	switch (fault) {
	case 0: n->tile[0].rows++; break;
	case 1: low->left_max = 0; break;
	case 2: low->value_remainder++; break;
	case 3: n->tile[0].vectors *= 4; break;
	case 4: n->task_rows += n->mr; break;
	case 5: n->bc += PANEL_COLUMNS; break;
	case 6: n->at.acc -= PANEL_COLUMNS; break;
	case 7: n->at.score_stride += PANEL_COLUMNS; break;
	case 8: n->at.end += n->at.end; break;
	case 9: n->slots.n++; break;
	case PANEL_MORE:
		n->tile[0].vectors += n->product == ATTENTION_AMX ? PANEL_COLUMNS / n->lanes : TILE_ACC_MAX;
		break;
	}
}

START_TEST(covers_and_fits)
{
	const struct target *t = target_level_at((size_t)_i);
	struct rng s = rng_seed((uint64_t)_i);
	int chosen = 0, refused = 0, found[N_FAULTS] = {0};
	for (int i = 0; i < CASES; i++) {
		struct attrs_group a;
		const struct attention_shape x = random_attention(&s, t, &a);
		struct attention_nest n;
		if (!attention_nest_choose(&x, &n)) {
			ck_assert_msg(n.rejection[0], "attention %d is refused without a reason", i);
			refused++;
			continue;
		}
		chosen++;
		const char *fault = fault_of(&x, &n);
		ck_assert_msg(!fault, "attention %d: %s", i, fault);
		struct attention_nest bad = n;
		for (int f = 0; i % PLANTED == 0 && f < N_FAULTS; bad = n, f++) {
			plant(&bad, f);
			bool is_found = fault_of(&x, &bad) != NULL;
			ck_assert_msg(is_found || f != PANEL_MORE, "attention %d: %d vectors of %d lanes", i,
			              bad.tile[0].vectors, bad.lanes);
			found[f] += is_found;
		}
	}
	ck_assert(chosen > CASES / 2 && refused > CASES / 16);
	for (int f = 0; f < N_FAULTS; f++)
		ck_assert_msg(found[f] > chosen / PLANTED / 16, "planted fault %d is found in %d nests", f,
		              found[f]);
}
END_TEST

Suite *suite_attention_nest(void)
{
	Suite *s = suite_create("attention_nest");
	TCase *c = tcase_create("attention_nest");
	int n = 0;
	while (target_level_at((size_t)n))
		n++;
	tcase_add_loop_test(c, covers_and_fits, 0, n);
	suite_add_tcase(s, c);
	return s;
}
