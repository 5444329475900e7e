/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a padded batch, see batch_rows.h. Finding a row passes over the lengths: B loads, few beside the row. */
#include "backends/kernels/batch_rows.h"

struct kb_val batch_real_positions(struct kb *k, const struct kb_tensor *lengths, struct kb_val positions,
                                   struct kb_val b)
{
	struct kb_val at = kb_mul(k, b, lengths->stride[0].v);
	struct kb_val n = kb_cvt(k, kb_load(k, KB_I32_T, lengths->ptr, at, 0, 0), KB_INDEX);
	return kb_min(k, kb_max(k, n, kb_index(k, 1)), positions);
}

/* Real rows of sequence b. */
static struct kb_val rows_of_sequence(struct kb *k, const struct batch_rows *rows, struct kb_val b)
{
	return kb_mul(k, batch_real_positions(k, &rows->lengths, rows->positions, b), rows->inner);
}

/* Emits the number of all real rows: workers divide these, not padding. */
static struct kb_val count_rows(struct kb *k, const struct batch_rows *rows)
{
	struct kb_var n = kb_var(k, "real_rows", KB_INDEX_T, kb_index(k, 0));
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), rows->batch, 1, 0);
	struct kb_val before = kb_get(k, n);
	kb_set(k, n, kb_add(k, before, rows_of_sequence(k, rows, b)));
	kb_end_loop(k);
	return kb_get(k, n);
}

/* Rows of a value [B, S, .., width]: all (also of values without an axis S), or with lengths those below each
 * sequence's, times the axes between. */
struct batch_rows batch_rows_of(struct eval *e, struct ir_value v, const struct kb_val *size)
{
	const struct kernel_job *job = e->job;
	int rank = ir_type_of(job->func, v)->rank;
	struct batch_rows rows = {.n = {0}};
	if (!job->lengths.id || rank < 3 ||
	    !job->bind->tensor(job->bind->user, e->k, job->lengths, &rows.lengths)) {
		rows.lengths.ptr = (struct kb_val){0};
		rows.n = eval_dim_product(e, size, 0, rank - 1);
		return rows;
	}
	rows.batch = size[0];
	rows.positions = size[1];
	rows.inner = eval_dim_product(e, size, 2, rank - 1);
	rows.n = count_rows(e->k, &rows);
	return rows;
}

/* Opens the loop over real rows [lo, hi), numbered without padding: over the sequences, then the rows of each that are
 * in the range. Returns the row's number with padding, and how many from it on are in the sequence and the range. Two
 * loops are open with lengths, else one: batch_rows_end closes them. */
struct batch_row batch_rows_begin(struct kb *k, const struct batch_rows *rows, struct kb_val lo,
                                  struct kb_val hi)
{
	struct kb_val zero = kb_index(k, 0);
	if (!rows->lengths.ptr.id) {
		struct kb_val row = kb_loop(k, "row", lo, hi, 1, 0);
		return (struct batch_row){row, kb_sub(k, hi, row)};
	}
	struct kb_var before = kb_var(k, "before", KB_INDEX_T, zero);
	struct kb_val b = kb_loop(k, "b", zero, rows->batch, 1, 0), first = kb_get(k, before);
	struct kb_val n = rows_of_sequence(k, rows, b);
	kb_set(k, before, kb_add(k, first, n));
	struct kb_val begin = kb_max(k, kb_sub(k, lo, first), zero);
	struct kb_val end = kb_min(k, kb_sub(k, hi, first), n);
	struct kb_val at = kb_loop(k, "row", begin, end, 1, 0);
	struct kb_val of_batch = kb_mul(k, kb_mul(k, b, rows->positions), rows->inner);
	struct kb_val row = kb_add(k, of_batch, at);
	return (struct batch_row){row, kb_sub(k, end, at)};
}

void batch_rows_end(struct kb *k, const struct batch_rows *rows)
{
	kb_end_loop(k);
	if (rows->lengths.ptr.id)
		kb_end_loop(k);
}
