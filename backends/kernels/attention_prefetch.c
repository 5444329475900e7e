/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Software prefetch for few rows, which read keys and values at the speed of memory. The data of a head is
 * one run: keys of a block, its values, keys of the next block or head, and so on. Hardware prefetchers stop
 * at the page boundary of a stream, and heads are short; so each read prefetches the address one page later
 * in the run.
 */
#include "backends/kernels/attention_internal.h"

#define PREFETCH_BYTES 4096 /* bytes */

bool attention_is_contiguous(const struct attention *a)
{
	int64_t key = a->size * ir_dtype_bytes(a->key_dtype);
	return attention_has_prefetch(a) && a->key.encoding == ENC_PANEL16 && !a->packs_values &&
	       key == a->value_size * ir_dtype_bytes(a->value_dtype);
}

/* True if a tile of `rows` rows prefetches. A single row needs it in contiguous runs only: elsewhere
 * out-of-order execution loads far enough ahead. */
static bool prefetches(const struct attention *a, int rows)
{
	return attention_has_prefetch(a) &&
	       (rows == attention_small_mr(a) || (rows == 1 && attention_is_contiguous(a)));
}

/* n contiguous rows of the run, at address `at`. */
struct rows {
	struct kb_val at, n;
};

/* The rows of the run `ahead` rows after row `row` of `now`, which `next` follows; less ahead if `now` has
 * fewer rows. */
static struct rows advance(struct kb *k, struct rows now, struct kb_val row, struct rows next, int64_t ahead,
                           int64_t bytes)
{
	row = kb_add(k, row, kb_min(k, now.n, kb_index(k, ahead)));
	struct kb_val is_now = kb_cmp(k, KB_LT, row, now.n), past_end = kb_sub(k, row, now.n);
	row = kb_select(k, is_now, row, past_end);
	struct rows from = {.at = kb_select(k, is_now, now.at, next.at)};
	from.n = kb_sub(k, kb_select(k, is_now, now.n, next.n), row);
	from.at = kb_ptr_add(k, from.at, kb_mul_const(k, row, bytes), 0);
	return from;
}

/* Prefetch distance in rows, full panels. */
static int64_t prefetch_rows(int64_t bytes)
{
	return panel_round_up((PREFETCH_BYTES + bytes - 1) / bytes);
}

void attention_prefetch_keys(const struct attention *a, const struct attention_block *b, struct kb_val panel,
                             int panels, int rows, struct kb_val ahead[TILE_PANELS_MAX])
{
	struct kb *k = a->k;
	int64_t bytes = a->size * ir_dtype_bytes(a->key_dtype), all = (int64_t)panels * PANEL_COLUMNS;
	for (int i = 0; i < TILE_PANELS_MAX; i++)
		ahead[i] = (struct kb_val){0};
	if (!prefetches(a, rows) || !attention_is_contiguous(a))
		return;
	int64_t far = rows > 1 && all > prefetch_rows(bytes) ? all : prefetch_rows(bytes);
	const struct rows now = {b->keys, attention_round_up(k, b->n, PANEL_COLUMNS)},
	                  next = {b->values, b->n};
	for (int i = 0; i < panels; i++) {
		struct kb_val row = kb_mul_const(k, kb_add_const(k, panel, i), PANEL_COLUMNS);
		const struct rows from = advance(k, now, row, next, far, bytes);
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

/* Address of the values to prefetch; if keys are packed, the run is values alone. */
static struct kb_val values_to_prefetch(const struct attention *a, const struct attention_block *b,
                                        struct kb_val j, int64_t bytes)
{
	struct kb *k = a->k;
	const struct rows now = {b->values, b->n}, next = {b->next, b->n};
	if (attention_is_contiguous(a))
		return advance(k, now, j, next, prefetch_rows(bytes), bytes).at;
	return kb_ptr_add(k, b->values, kb_mul_const(k, j, bytes), prefetch_rows(bytes) * bytes);
}

void attention_prefetch_values(const struct attention *a, const struct attention_block *b, struct kb_val j,
                               struct kb_val column, int columns, int rows)
{
	struct kb *k = a->k;
	int64_t element = ir_dtype_bytes(a->value_dtype);
	if (!prefetches(a, rows) || a->packs_values)
		return;
	struct kb_val from = values_to_prefetch(a, b, j, a->value_size * element);
	struct kb_val first = kb_mul_const(k, column, element);
	for (int64_t x = 0; x < columns * element; x += PANEL_ROW_BYTES)
		kb_prefetch(k, from, first, x);
}
