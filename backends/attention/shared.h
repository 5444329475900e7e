/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by work-groups: shared.c has the tasks, shared_block.c one block of keys. */
#ifndef TFMC_BACKENDS_ATTENTION_SHARED_H
#define TFMC_BACKENDS_ATTENTION_SHARED_H

#include "backends/attention/internal.h"
#include "backends/kernel/generator.h"

#define ITEMS GPU_ITEMS

/* Rows of a tile, keys of a block, elements in shared memory. */
struct share_sizes {
	int64_t rows, keys;
	int64_t per_row; /* items that find the powers of a row: the same for any number of rows */
	int64_t stride;  /* of a key or its values: odd, so that the keys of neighbours lie in other banks */
	int64_t elements;
};

struct shared_attention {
	const struct attention *a;
	struct kb *k;
	struct share_sizes n;
	struct kb_val item;
	/* Shared memory. */
	struct kb_val q;       /* [rows,E] */
	struct kb_val kv;      /* [keys,stride] */
	struct kb_val scores;  /* [rows,keys] */
	struct kb_val parts;   /* [2,ITEMS]: maxima and sums of the items of a row */
	struct kb_val factors; /* [rows] */
	/* Softmax: this item's row, its place among the items of the row. */
	struct kb_val row, part;
	struct kb_val has_row; /* bool: there is a row for this item; none: for all of them */
	struct kb_var max, sum;
	struct kb_var all_max, all_sum; /* of the sections before */
	/* Sums: this item's column (more: ITEMS apart) and its first row (more: `apart` apart). */
	struct kb_val column, first_row;
	int64_t apart;
	int n_rows, n_columns;
	struct kb_var acc[16][4], all[16][4];
	bool is_split; /* sections are divided among groups */
};

/* The task's queries times q_factor; rows after the last repeat it. */
void shared_copy_queries(struct shared_attention *s, const struct attention_head *h,
                         const struct attention_task *t);
/* Adds the block of keys from `first` on, as far as t->end, to max, sum and acc. Begins with a copy to memory that items
 * have done reading, ends with a barrier. */
void shared_block(struct shared_attention *s, const struct attention_head *h, const struct attention_task *t,
                  struct kb_val first);
/* bool: this item is the first one of its row; all of them have the same maxima and sums. */
struct kb_val shared_is_first(struct shared_attention *s);
/* By that one. */
void shared_store_factor(struct shared_attention *s, struct kb_val factor);
/* Row i and column c of this item's sums, the last one where it has fewer. */
struct kb_val shared_acc_row(struct shared_attention *s, int i);
struct kb_val shared_acc_column(struct shared_attention *s, int c);

/* Element `row`, `column` of a table with rows of `stride`. */
static inline struct kb_val shared_place(struct kb *k, struct kb_val row, int64_t stride,
                                         struct kb_val column)
{
	return kb_add(k, kb_mul_const(k, row, stride), column);
}

static inline struct kb_val shared_load(struct shared_attention *s, struct kb_val table, struct kb_val at,
                                        int64_t disp)
{
	return kb_load(s->k, KB_F32_T, table, at, disp, 0);
}

#endif
