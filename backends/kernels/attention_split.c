/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split-KV (Flash-Decoding: Dao and others 2023). If heads are few and workers many, the KV blocks of a new
 * token are divided among workers, which leave maxima, sums and unnormalized outputs of each block in slots
 * of their scratch. After a barrier, rows are divided, and the slots of each are combined in order, with the
 * arithmetic of one worker that has all blocks: the same bits.
 *
 * Work-groups always divide the blocks of a new token, and a second kernel combines: their slots are in memory
 * of the call, since the number of groups is not known when compiling.
 *
 * A slot is the partial result of one KV block for all rows of a head (acc [rows, V], max, sum). Blocks of all heads
 * are numbered in one sequence, of which worker w has a range; an owner is the worker that has a block's slot.
 */
#include <float.h>

#include "backends/kernels/attention.h"
#include "backends/kernels/attention_internal.h"
#include "ir/core/view.h"
#include "backends/kernels/generator.h"

enum { Q = OPERAND(attention, q), KEY = OPERAND(attention, k), VALUE = OPERAND(attention, v) };

/* ---- choice ---- */

static const struct ir_type *operand_type(const struct ir_func *f, const struct ir_op *group, size_t i)
{
	return ir_type_of(f, ir_group_root(group)->operands[i]);
}

/* The slots of an attention by work-groups, each for the query heads of one key head. False: the number of heads or the
 * head size is not constant, or work-groups cannot compute this attention (attention_group_rows). */
static bool find_group_slots(const struct ir_func *f, const struct ir_op *group, const struct target *t,
                             struct attention_slots *out)
{
	int64_t queries, heads, value_size;
	const struct ir_type *q = operand_type(f, group, Q), *v = operand_type(f, group, VALUE);
	if (attention_group_rows(f, group, t) == 0 || !ir_dim_is_const(q->dims[1], &queries) ||
	    !ir_dim_is_const(v->dims[1], &heads) || !ir_dim_is_const(v->dims[3], &value_size) || heads < 1)
		return false;
	*out = attention_group_slots(queries / heads, value_size);
	return true;
}

/* True: the group has split attention, whose partial results a second kernel combines; *heads: key heads of all
 * sequences, which decide at run time whether workers are split. */
bool kernel_has_combine(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                        const struct target *t, const struct ir_dim **heads)
{
	const struct attrs_group *attrs = group->attrs;
	struct attention_slots s;
	if (attrs->kind != GROUP_attention || attrs->split == 0)
		return false;
	if (t->group_size > 1 && !find_group_slots(f, group, t, &s))
		return false;
	const struct ir_type *key = operand_type(f, group, KEY);
	*heads = ir_dim_mul(m->dims, key->dims[0], key->dims[1]);
	return true;
}

/* Bytes of the partial results in memory of the call, `split` slots of f32 for each key head; NULL: none (no split), or
 * they are in the scratch of workers. */
const struct ir_dim *kernel_combine_bytes(const struct ir_module *m, const struct ir_func *f,
                                          const struct ir_op *group, const struct target *t)
{
	const struct ir_dim *heads;
	struct attention_slots s;
	if (t->group_size <= 1 || !kernel_has_combine(m, f, group, t, &heads) ||
	    !find_group_slots(f, group, t, &s))
		return NULL;
	int64_t split = ((const struct attrs_group *)group->attrs)->split;
	return ir_dim_mul(m->dims, heads, ir_dim_const(m->dims, split * s.size * 4));
}

struct kb_val attention_is_split(const struct attention *a)
{
	return kb_cmp(a->k, KB_LE, a->heads.rows, kb_index(a->k, a->nest.slots.rows));
}

/* Fewer than two heads for each worker, and not as many for each: some workers would wait for others. Heads that divide
 * evenly need no combine step. */
struct kb_val kernel_is_split(struct kb *k, struct kb_val heads, struct kb_val n_workers)
{
	struct kb_val remainder = kb_bin(k, KB_REM, heads, n_workers);
	struct kb_val few = kb_cmp(k, KB_LT, heads, kb_mul_const(k, n_workers, 2));
	return kb_bin(k, KB_AND, few, kb_cmp(k, KB_NE, remainder, kb_index(k, 0)));
}

/* ---- slots ---- */

/* Addresses inside slot `index`: accumulated values, then maxima, then sums. */
struct attention_partial attention_slot(const struct attention *a, struct kb_val slots, struct kb_val index)
{
	struct kb *k = a->k;
	struct attention_partial s;
	s.acc = attention_scratch_row(k, slots, index, a->nest.slots.size);
	s.max = kb_ptr_add(k, s.acc, kb_index(k, 0), a->nest.slots.rows * a->nest.value_pad * 4);
	s.sum = kb_ptr_add(k, s.max, kb_index(k, 0), a->nest.slots.list * 4);
	return s;
}

/* ---- the combine step ---- */

/* A row: its output so far, the output of a block, and the factors that rescale the two. */
struct combine {
	struct kb *k;
	struct kb_val acc, block, old_factor, new_factor;
};

/* acc = acc old_factor + block new_factor for `lanes` elements of a row (an attention_row_fn); rows are padded, so all
 * lanes are computed. */
static void combine_elements(void *user, struct kb_val e, int lanes, int n)
{
	const struct combine *j = user;
	struct kb *k = j->k;
	struct kb_type type = KB_TYPE(KB_F32, lanes);
	struct kb_val sum = kb_mul(k, kb_load(k, type, j->block, e, 0, lanes * 4), j->new_factor);
	struct kb_val before = kb_load(k, type, j->acc, e, 0, lanes * 4);
	(void)n;
	kb_store(k, kb_fma(k, before, j->old_factor, sum), j->acc, e, 0, lanes * 4);
}

/* Combines the slot of a block with the partial result of one row, as combine_rows and value_columns of
 * attention_block.c do, for the row in all lanes: the same operations, so the same bits. */
static void combine_block(const struct attention *a, struct kb_val row, const struct attention_partial *block)
{
	struct kb *k = a->k;
	struct kb_type type = attention_vector(a);
	const struct attention_partial *to = &a->scratch.partial;
	struct combine j = {.k = k};
	struct kb_val before = kb_load_splat(k, type, to->max, row, 0);
	struct kb_val now = kb_load_splat(k, type, block->max, row, 0);
	struct kb_val max = attention_combine_max(a, before, now, &j.old_factor, &j.new_factor);
	struct kb_val sum = kb_mul(k, kb_load_splat(k, type, block->sum, row, 0), j.new_factor);
	sum = kb_fma(k, kb_load_splat(k, type, to->sum, row, 0), j.old_factor, sum);
	/* full vectors are stored: the elements after the row belong to later rows, which are reset before use */
	kb_store(k, max, to->max, row, 0, 4);
	kb_store(k, sum, to->sum, row, 0, 4);
	j.acc = attention_scratch_row(k, to->acc, row, a->nest.value_pad);
	j.block = attention_scratch_row(k, block->acc, row, a->nest.value_pad);
	attention_loop_row(a, a->nest.value_pad, a->nest.lanes, combine_elements, &j);
}

/* KV blocks [first, first + n) of the sequence of all blocks, which has `length`. */
struct block_range {
	struct kb_val first, n, length;
};

/* Slot of block `at` of all. owner: a worker at or before that which has the block, as blocks are visited in order; it
 * is advanced to that one. Another worker's scratch is a multiple of scratch_stride away, before or after. */
static struct attention_partial find_slot(const struct attention *a, const struct block_range *r,
                                          struct kb_val at, struct kb_var owner)
{
	struct kb *k = a->k;
	kb_forever(k);
	struct kb_val next = kb_add_const(k, kb_get(k, owner), 1);
	kb_break_if(k, kb_cmp(k, KB_GT, attention_share_begin(a, r->length, next), at));
	kb_set(k, owner, next);
	kb_end_forever(k);
	struct kb_val w = kb_get(k, owner), away = kb_sub(k, w, a->job->worker);
	struct kb_val step = kb_mul_const(k, away, a->job->scratch_stride);
	struct kb_val index = kb_sub(k, at, attention_share_begin(a, r->length, w));
	return attention_slot(a, kb_ptr_add(k, a->scratch.slots, step, 0), index);
}

/* Combines all blocks [r->first, + n) of row `row` of the head in order, from an empty partial result, and stores the
 * row. */
static void combine_row(const struct attention *a, const struct attention_head *h, struct kb_val row,
                        const struct block_range *r)
{
	struct kb *k = a->k;
	const struct attention_partial *s = &a->scratch.partial;
	int lanes = a->nest.lanes;
	struct kb_var owner = kb_var(k, "owner", KB_INDEX_T, kb_index(k, 0));
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), lanes);
	struct kb_val acc = attention_scratch_row(k, s->acc, row, a->nest.value_pad);
	kb_store(k, kb_splat(k, kb_f32(k, -FLT_MAX), lanes), s->max, row, 0, 4);
	kb_store(k, zero, s->sum, row, 0, 4);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, a->nest.value_pad), lanes, KB_NONEMPTY);
	kb_store(k, zero, acc, e, 0, lanes * 4);
	kb_end_loop(k);
	struct kb_val end = kb_add(k, r->first, r->n);
	struct kb_val at = kb_loop(k, "block", r->first, end, 1, 0);
	const struct attention_partial slot = find_slot(a, r, at, owner);
	combine_block(a, row, &slot);
	kb_end_loop(k);
	attention_store_row(a, h, kb_index(k, 0), row);
}

/* ---- by work-groups ---- */

/* Combines row `row` of a head, whose first slot is `slot`, in order of slots; each item has some columns (every
 * items-th), and all compute maximum and sum, which is cheaper than sharing them. Columns beyond the head read the last
 * one and are not stored. */
static void combine_row_by_items(const struct attention *a, const struct attention_head *h, struct kb_val row,
                                 struct kb_val slot, struct kb_val n_slots)
{
	struct kb *k = a->k;
	struct kb_val item = kb_item_id(k), column[GPU_ATTENTION_COLUMNS], old_factor, new_factor,
	              zero = kb_f32(k, 0);
	struct kb_var max = kb_var(k, "max", KB_F32_T, kb_f32(k, -FLT_MAX));
	struct kb_var sum = kb_var(k, "sum", KB_F32_T, zero), acc[GPU_ATTENTION_COLUMNS];
	int n = (int)ceil_div(a->value_size, a->job->items);
	for (int c = 0; c < n; c++) {
		column[c] = kb_add_const(k, item, c * a->job->items);
		acc[c] = kb_var(k, "acc", KB_F32_T, zero);
	}
	struct kb_val i = kb_loop(k, "block", kb_index(k, 0), n_slots, 1, 0);
	const struct attention_partial from = attention_slot(a, a->job->partials, kb_add(k, slot, i));
	struct kb_val now = kb_load(k, KB_F32_T, from.max, row, 0, 0);
	kb_set(k, max, attention_combine_max(a, kb_get(k, max), now, &old_factor, &new_factor));
	struct kb_val more = kb_mul(k, kb_load(k, KB_F32_T, from.sum, row, 0, 0), new_factor);
	kb_set(k, sum, kb_fma(k, kb_get(k, sum), old_factor, more));
	struct kb_val values = attention_scratch_row(k, from.acc, row, a->nest.value_pad);
	struct kb_val last = kb_index(k, a->value_size - 1);
	for (int c = 0; c < n; c++) {
		more = kb_mul(k, kb_load(k, KB_F32_T, values, kb_min(k, column[c], last), 0, 0), new_factor);
		kb_set(k, acc[c], kb_fma(k, kb_get(k, acc[c]), old_factor, more));
	}
	kb_end_loop(k);
	struct kb_val most = kb_get(k, max);
	struct kb_val factor = attention_row_factor(a, h, row, most, kb_get(k, sum));
	for (int c = 0; c < n; c++) {
		kb_if(k, kb_cmp(k, KB_LT, column[c], kb_index(k, a->value_size)));
		attention_store(a, h, row, column[c], kb_mul(k, kb_get(k, acc[c]), factor));
		kb_end_if(k);
	}
}

/* Rows of all heads are divided among groups, row by row in turn. No row if the call did not divide blocks (more than
 * one new token): the first kernel has stored the results then. */
static void combine_by_groups(const struct attention *a)
{
	struct kb *k = a->k;
	const struct attention_heads *all = &a->heads;
	struct kb_val end = kb_mul(k, kb_mul(k, all->batch, all->heads), all->rows);
	end = kb_select(k, attention_is_split(a), end, kb_index(k, 0));
	struct kb_var next = kb_var(k, "next", KB_INDEX_T, a->job->worker);
	kb_forever(k);
	struct kb_val task = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, task, end));
	struct kb_val head = kb_bin(k, KB_DIV, task, all->rows), row = kb_bin(k, KB_REM, task, all->rows);
	struct kb_val b = kb_bin(k, KB_DIV, head, all->heads);
	const struct attention_limits limits = attention_find_limits(a, b);
	const struct attention_head h = attention_find_head(a, b, kb_bin(k, KB_REM, head, all->heads));
	struct kb_val slot = kb_mul_const(k, head, a->nest.split);
	combine_row_by_items(a, &h, row, slot, attention_head_blocks(a, &limits));
	kb_set(k, next, kb_add(k, task, a->job->n_workers));
	kb_end_forever(k);
}

/* ---- by workers ---- */

/* Rows of all heads are divided among workers, in equal shares [lo, hi); one traversal of the heads counts rows and
 * blocks before each, since heads have different numbers of blocks. */
static void combine_by_workers(const struct attention *a)
{
	struct kb *k = a->k;
	const struct attention_heads *all = &a->heads;
	struct kb_val zero = kb_index(k, 0);
	struct kb_val rows = kb_mul(k, kb_mul(k, all->batch, all->heads), all->rows);
	struct block_range r = {.length = attention_all_blocks(a)};
	struct kb_val lo = attention_share_begin(a, rows, a->job->worker);
	struct kb_val hi = attention_share_begin(a, rows, kb_add_const(k, a->job->worker, 1));
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
	combine_row(a, &h, row, &r);
	kb_end_loop(k);
	kb_set(k, row_at, kb_add(k, at, all->rows));
	kb_set(k, block_at, kb_add(k, r.first, r.n));
	kb_end_loop(k);
	kb_end_loop(k);
}

void attention_combine(const struct attention *a)
{
	if (a->job->items > 1)
		combine_by_groups(a);
	else
		combine_by_workers(a);
}
