/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few heads and many workers: a new token's blocks of keys are divided among
 * workers, which leave each block's maxima, sums and weighted values in slots of
 * their scratch. After a barrier rows are divided, and each joins its blocks in
 * order, with the arithmetic of one worker that has them all: the same bits.
 */
#include <float.h>

#include "backends/attention/internal.h"
#include "ir/core/view.h"

enum { Q = OPERAND(attention, q), KEY = OPERAND(attention, k) };

/* ---- when ---- */

bool kernel_has_join(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                     const struct ir_dim **heads)
{
	const struct attrs_group *attrs = group->attrs;
	if (attrs->kind != GROUP_attention || attrs->split == 0)
		return false;
	const struct ir_type *key = ir_type_of(f, group->region->ops[attrs->root]->operands[KEY]);
	*heads = ir_dim_mul(m->dims, key->dims[0], key->dims[1]);
	return true;
}

struct kb_val kernel_is_split(struct kb *k, struct kb_val heads, struct kb_val n_workers)
{
	struct kb_val rest = kb_bin(k, KB_REM, heads, n_workers);
	struct kb_val few = kb_cmp(k, KB_LT, heads, kb_mul(k, n_workers, kb_index(k, 2)));
	return kb_bin(k, KB_AND, few, kb_cmp(k, KB_NE, rest, kb_index(k, 0)));
}

/* ---- slots ---- */

struct attention_sums attention_slot(const struct attention *a, struct kb_val slots, struct kb_val index)
{
	struct kb *k = a->k;
	struct attention_sums s;
	s.acc = attention_scratch_row(k, slots, index, a->scratch.slots.size);
	s.max = kb_ptr_add(k, s.acc, kb_index(k, 0), a->scratch.slots.rows * a->value_pad * 4);
	s.sum = kb_ptr_add(k, s.max, kb_index(k, 0), a->scratch.slots.list * 4);
	return s;
}

/* ---- the second step ---- */

/* What a row of the head has so far, and its share of one block: rows of values, and what they are times. */
struct join {
	struct kb *k;
	struct kb_val acc, block, old_factor, new_factor;
};

static void join_part(void *user, struct kb_val e, int lanes, int n)
{
	const struct join *j = user;
	struct kb *k = j->k;
	struct kb_type type = KB_TYPE(KB_F32, lanes);
	struct kb_val sum = kb_mul(k, kb_load(k, type, j->block, e, 0, lanes * 4), j->new_factor);
	struct kb_val before = kb_load(k, type, j->acc, e, 0, lanes * 4);
	(void)n;
	kb_store(k, kb_fma(k, before, j->old_factor, sum), j->acc, e, 0, lanes * 4);
}

/* As attention_softmax and attention_values join a block, for one row in all lanes. */
static void join_block(const struct attention *a, struct kb_val row, const struct attention_sums *block)
{
	struct kb *k = a->k;
	struct kb_type type = attention_vector(a);
	const struct attention_sums *to = &a->scratch.sums;
	struct join j = {.k = k};
	struct kb_val before = kb_load_splat(k, type, to->max, row, 0);
	struct kb_val now = kb_load_splat(k, type, block->max, row, 0);
	struct kb_val max = attention_join_max(a, before, now, &j.old_factor, &j.new_factor);
	struct kb_val sum = kb_mul(k, kb_load_splat(k, type, block->sum, row, 0), j.new_factor);
	sum = kb_fma(k, kb_load_splat(k, type, to->sum, row, 0), j.old_factor, sum);
	/* what lies after the row belongs to rows that come later */
	kb_store(k, max, to->max, row, 0, 4);
	kb_store(k, sum, to->sum, row, 0, 4);
	j.acc = attention_scratch_row(k, to->acc, row, a->value_pad);
	j.block = attention_scratch_row(k, block->acc, row, a->value_pad);
	attention_walk_row(a, a->value_pad, a->lanes, join_part, &j);
}

static void clear_row(const struct attention *a, struct kb_val row)
{
	struct kb *k = a->k;
	const struct attention_sums *s = &a->scratch.sums;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->lanes);
	struct kb_val acc = attention_scratch_row(k, s->acc, row, a->value_pad);
	kb_store(k, kb_splat(k, kb_f32(k, -FLT_MAX), a->lanes), s->max, row, 0, 4);
	kb_store(k, zero, s->sum, row, 0, 4);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->value_pad), a->lanes, KB_NONEMPTY);
	kb_store(k, zero, acc, e, 0, a->lanes * 4);
	kb_end_loop(k);
}

/* Blocks [first, first + n) of the line, which is `length` long. */
struct range {
	struct kb_val first, n, length;
};

/* The slot of block `at` of the line; owner: the worker that has it, or one before. */
static struct attention_sums find_slot(const struct attention *a, const struct range *r, struct kb_val at,
                                       struct kb_var owner)
{
	struct kb *k = a->k;
	kb_forever(k);
	struct kb_val next = kb_add_const(k, kb_get(k, owner), 1);
	kb_break_if(k, kb_cmp(k, KB_GT, attention_part_begin(a, r->length, next), at));
	kb_set(k, owner, next);
	kb_end_forever(k);
	struct kb_val w = kb_get(k, owner), away = kb_sub(k, w, a->job->worker);
	struct kb_val step = kb_mul(k, away, kb_index(k, a->job->scratch_step));
	struct kb_val index = kb_sub(k, at, attention_part_begin(a, r->length, w));
	return attention_slot(a, kb_ptr_add(k, a->scratch.slots.base, step, 0), index);
}

/* Row `row` of the head: its blocks one after the other. */
static void join_row(const struct attention *a, const struct attention_head *h, struct kb_val row,
                     const struct range *r)
{
	struct kb *k = a->k;
	struct kb_var owner = kb_var(k, "owner", KB_INDEX_T, kb_index(k, 0));
	clear_row(a, row);
	struct kb_val end = kb_add(k, r->first, r->n);
	struct kb_val at = kb_loop(k, "block", r->first, end, 1, 0);
	const struct attention_sums slot = find_slot(a, r, at, owner);
	join_block(a, row, &slot);
	kb_end_loop(k);
	attention_store_row(a, h, kb_index(k, 0), row);
}

void attention_join(const struct attention *a)
{
	struct kb *k = a->k;
	const struct attention_heads *all = &a->heads;
	struct kb_val zero = kb_index(k, 0);
	struct kb_val rows = kb_mul(k, kb_mul(k, all->batch, all->heads), all->rows);
	struct range r = {.length = attention_all_blocks(a)};
	struct kb_val lo = attention_part_begin(a, rows, a->job->worker);
	struct kb_val hi = attention_part_begin(a, rows, kb_add_const(k, a->job->worker, 1));
	struct kb_var row_at = kb_var(k, "row_at", KB_INDEX_T, zero);
	struct kb_var block_at = kb_var(k, "block_at", KB_INDEX_T, zero);
	struct kb_val b = kb_loop(k, "b", zero, all->batch, 1, 0);
	const struct attention_limits limits = attention_find_limits(a, b);
	r.n = attention_head_blocks(a, &limits);
	struct kb_val head = kb_loop(k, "head", zero, all->heads, 1, 0), at = kb_get(k, row_at);
	const struct attention_head h = attention_find_head(a, b, head);
	r.first = kb_get(k, block_at);
	struct kb_val first = kb_max(k, kb_sub(k, lo, at), zero);
	struct kb_val end = kb_min(k, kb_sub(k, hi, at), all->rows);
	struct kb_val row = kb_loop(k, "row", first, end, 1, 0);
	join_row(a, &h, row, &r);
	kb_end_loop(k);
	kb_set(k, row_at, kb_add(k, at, all->rows));
	kb_set(k, block_at, kb_add(k, r.first, r.n));
	kb_end_loop(k);
	kb_end_loop(k);
}
