/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hints for a few rows, which read keys and values as fast as memory gives them. These are one run: the keys of a
 * block, its values, the keys of the next block or head, and so on. A processor looks ahead within a page of one
 * stream at best, and heads are short: so what is read asks for what comes a page later in the run.
 */
#include "backends/attention/internal.h"

#define AHEAD 4096 /* bytes */

bool attention_has_run(const struct attention *a)
{
	int64_t key = a->size * ir_dtype_bytes(a->key_dtype);
	return attention_has_hints(a) && a->key.encoding == ENC_PANEL16 && !a->copies_values &&
	       key == a->value_size * ir_dtype_bytes(a->value_dtype);
}

/* A tile of so many rows has hints; one row, which a processor runs ahead of, in a run alone. */
static bool asks(const struct attention *a, int rows)
{
	return attention_has_hints(a) && (rows == attention_few(a) || (rows == 1 && attention_has_run(a)));
}

/* Rows of the run that lie side by side, n of them at `at`. */
struct rows {
	struct kb_val at, n;
};

/* The rows from `ahead` after row `row` of `now` on, which `next` follow; less ahead where these are fewer rows. */
static struct rows rows_ahead(struct kb *k, struct rows now, struct kb_val row, struct rows next,
                              int64_t ahead, int64_t bytes)
{
	row = kb_add(k, row, kb_min(k, now.n, kb_index(k, ahead)));
	struct kb_val is_now = kb_cmp(k, KB_LT, row, now.n), behind = kb_sub(k, row, now.n);
	row = kb_select(k, is_now, row, behind);
	struct rows from = {.at = kb_select(k, is_now, now.at, next.at)};
	from.n = kb_sub(k, kb_select(k, is_now, now.n, next.n), row);
	from.at = kb_ptr_add(k, from.at, kb_mul_const(k, row, bytes), 0);
	return from;
}

/* The rows that AHEAD is, in whole panels. */
static int64_t ahead_of(int64_t bytes)
{
	return panel_round_up((AHEAD + bytes - 1) / bytes);
}

void attention_ask_by_keys(const struct attention *a, const struct attention_block *b, struct kb_val panel,
                           int panels, int rows, struct kb_val ahead[TILE_PANELS_MAX])
{
	struct kb *k = a->k;
	int64_t bytes = a->size * ir_dtype_bytes(a->key_dtype), all = (int64_t)panels * PANEL_COLUMNS;
	for (int i = 0; i < TILE_PANELS_MAX; i++)
		ahead[i] = (struct kb_val){0};
	if (!asks(a, rows) || !attention_has_run(a))
		return;
	int64_t far = rows > 1 && all > ahead_of(bytes) ? all : ahead_of(bytes);
	const struct rows now = {b->keys, attention_round_up(k, b->n, PANEL_COLUMNS)},
	                  next = {b->values, b->n};
	for (int i = 0; i < panels; i++) {
		struct kb_val row = kb_mul_const(k, kb_add_const(k, panel, i), PANEL_COLUMNS);
		const struct rows from = rows_ahead(k, now, row, next, far, bytes);
		if (rows > 1) {
			ahead[i] = from.at;
			continue;
		}
		struct kb_val n = kb_min(k, from.n, kb_index(k, PANEL_COLUMNS)), zero = kb_index(k, 0);
		struct kb_val line = kb_loop(k, "ahead", zero, kb_mul_const(k, n, bytes), PANEL_ROW_BYTES, 0);
		kb_prefetch(k, from.at, line, 0);
		kb_end_loop(k);
	}
}

/* Where the values of a later key lie; of keys that are copied the run is values alone. */
static struct kb_val values_ahead(const struct attention *a, const struct attention_block *b, struct kb_val j,
                                  int64_t bytes)
{
	struct kb *k = a->k;
	const struct rows now = {b->values, b->n}, next = {b->next, b->n};
	if (attention_has_run(a))
		return rows_ahead(k, now, j, next, ahead_of(bytes), bytes).at;
	return kb_ptr_add(k, b->values, kb_mul_const(k, j, bytes), ahead_of(bytes) * bytes);
}

void attention_ask_by_values(const struct attention *a, const struct attention_block *b, struct kb_val j,
                             struct kb_val column, int columns, int rows)
{
	struct kb *k = a->k;
	int64_t element = ir_dtype_bytes(a->value_dtype);
	if (!asks(a, rows) || a->copies_values)
		return;
	struct kb_val from = values_ahead(a, b, j, a->value_size * element);
	struct kb_val first = kb_mul_const(k, column, element);
	for (int64_t x = 0; x < columns * element; x += PANEL_ROW_BYTES)
		kb_prefetch(k, from, first, x);
}
