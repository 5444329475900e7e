/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the attention template share: the kernel, found once, and the places of its loops: a head
 * of a sequence, a task of its rows, a block of keys, a register tile.
 *
 *   attention.c           reads the group and its schedule
 *   tasks.c     divides heads and rows among workers, begins and ends a task
 *   copy.c      queries, keys and values in the order that the tiles read
 *   block.c     one block of keys for all rows of a task, tile by tile
 *   split.c     blocks of one head divided among workers, joined in a second step
 *   shared.c    all of it by work-groups that share memory, shared_block.c one block of keys
 *   scores.c    q k^T, softmax.c weights, values.c weights v; matrix.c both products by matrix tiles
 *   ahead.c     hints for what a few rows read next
 *
 * The query heads that read one head of keys are one matrix of rows: row r is token r / group of query head
 * r % group, so that rows in order see ever more keys.
 */
#ifndef TFMC_BACKENDS_ATTENTION_INTERNAL_H
#define TFMC_BACKENDS_ATTENTION_INTERNAL_H

#include "backends/kernel/eval.h"
#include "backends/kernel/reg_tile.h"
#include "ir/target/tile.h"

#define ATTENTION_LANES_MAX 16
#define ATTENTION_LOG2E     1.4426950408889634
#define ATTENTION_UNSEEN    (-1.0f) /* in the place of the weight of a key that its row does not see */

/* Axes of [B,H,S,E]. */
enum { ATTENTION_BATCH, ATTENTION_HEAD, ATTENTION_ROW, ATTENTION_ELEMENT };

/* Which keys rows see beside the length of their sequence. */
struct attention_mask {
	bool rows_differ; /* in the keys they see: causal, or with a window */
	int64_t window;   /* a row sees keys less than this away; 0: no window */
	int64_t reach;    /* where rows differ: keys that token 0 sees when its place is 0 */
};

/* score = cap tanh(q' k^T + bias bias_factor), without cap: q' k^T + bias bias_factor; q' = q q_factor */
struct attention_score {
	float q_factor, bias_factor, cap;
	bool base2; /* weights are 2^(score - max) */
};

/* Sums so far of the rows of a task: addresses. */
struct attention_sums {
	struct kb_val acc; /* [br,value_pad] */
	struct kb_val max; /* [br], a vector longer */
	struct kb_val sum; /* likewise */
};

/* Where workers or work-groups divide the blocks of a head: a slot holds the sums of one block. */
struct attention_slots {
	int64_t n;          /* 0: they never do */
	int64_t rows;       /* of a slot */
	int64_t size;       /* elements of a slot */
	int64_t list;       /* elements of a list of rows */
	struct kb_val base; /* [n,size]: those of this worker's blocks; none: of work-groups */
};

/* Addresses in this worker's scratch. */
struct attention_scratch {
	struct kb_val queries;          /* [br,size_pad] */
	struct kb_val keys;             /* [bc/16,E,16] */
	struct kb_val values;           /* [bc,value_pad] */
	struct kb_val k_scale, v_scale; /* [bc], where keys and values have scales */
	struct kb_val scores;           /* [mr,stride] of the open tile */
	int64_t stride;                 /* of a row of scores, in elements */
	struct attention_sums sums;
	struct kb_val tile_max, tile_sum;     /* of the tile's rows in the open block, whole vectors */
	struct kb_val old_factor, new_factor; /* of the rows' sums so far, and of those of the block */
	struct attention_slots slots;
	struct kb_val matrix_sums; /* [mr,two panels], of matrix tiles */
};

/* Sizes of the call. */
struct attention_heads {
	struct kb_val batch, heads; /* heads of keys */
	struct kb_val queries;      /* query heads that read one of them */
	struct kb_val rows;         /* of a head of keys: tokens times queries */
};

/* What the kernel computes and how: found once from the group, then the same for all tasks. */
struct attention {
	const struct kernel_job *job;
	struct kb *k;
	struct kb_tensor q, key, value, bias, len, past, sinks; /* without address: absent */
	struct kb_tensor k_scale, v_scale;                      /* likewise; of keys and values of i8 */
	struct kb_tensor out;                                   /* root's axes [B,H,S,V] in the result */
	int64_t size, value_size;                               /* E, V */
	int64_t size_pad, value_pad;                            /* rounded up to 16 */
	int64_t br, bc;                                         /* rows of a task at most, keys of a block */
	int64_t split; /* blocks of a head that work-groups may divide */
	int lanes;     /* of a vector */
	int mr;        /* rows of the main register tile; attention_few has the other */
	enum ir_dtype key_dtype, value_dtype; /* of keys and values where the tiles read them */
	bool rounds;                          /* what is multiplied, to bf16 */
	bool pairs;         /* products are dot products of pairs of bf16, which are copied so */
	bool matrix;        /* by matrix tiles: mr rows at a time, or half of them */
	bool copies_values; /* the values of a block are copied, whole vectors of f32 side by side */
	struct attention_mask mask;
	struct attention_score score;
	struct attention_scratch scratch;
	struct attention_heads heads;
};

/* The keys that rows of a sequence see. */
struct attention_limits {
	struct kb_val all;   /* min(T, len): any row sees keys before this one */
	struct kb_val first; /* past + reach: where the keys end that token 0 may see */
	struct kb_val begin; /* past + 1 - window: where they begin, which may be negative */
};

/* Addresses of a head of keys: those of token 0 of its first query head, key 0. */
struct attention_head {
	struct kb_val q, k, v, out, bias, sink, k_scale, v_scale;
};

/* Rows first .. + n of a head, and the keys [begin, end) that they read, from a whole panel on. */
struct attention_task {
	struct attention_limits limits;
	struct kb_val first, n;
	struct kb_val begin, end;
};

/* A block of keys for the rows of a task, which see keys [begin, n) of it; begin is a whole panel. */
struct attention_block {
	const struct attention_task *task;
	struct kb_val first, begin, n;
	struct kb_val keys;         /* [..,E,16] */
	struct kb_val values;       /* row-major */
	struct kb_val next;         /* keys of the next block or head; none: there are no hints */
	struct kb_val bias;         /* of the head */
	struct attention_sums sums; /* that the block joins */
};

/* Rows of a task in registers, from `row` on; keys of the block: [low, last) are seen by some row,
 * [common, common_end) by all. */
struct attention_tile {
	struct kb_val row, rows;
	struct kb_val low, common, common_end, last;
	/* bool: each row sees one key more than the row before it, and with a window one less at the other
	 * end; only where attention_has_edges. */
	struct kb_val is_even;
};

/* ---- attention.c ---- */
static inline bool attention_has(const struct kb_tensor *t)
{
	return t->ptr.id != 0;
}
/* A vector of scores, weights or sums. */
struct kb_type attention_vector(const struct attention *a);
/* ptr + index elements of t. */
struct kb_val attention_at(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index);
/* The element, or as many as type has lanes, as f32; n: only the first n lanes. */
struct kb_val attention_load(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index,
                             int64_t disp, int lanes, int n);
/* A vector of elements of that type as f32: exact. */
struct kb_val attention_widen(const struct attention *a, enum ir_dtype dtype, struct kb_val ptr,
                              struct kb_val index, int64_t disp, bool is_aligned);
/* Lines of a panel of keys in scratch. */
static inline int64_t attention_key_lines(const struct attention *a)
{
	return a->pairs ? (a->size + 1) / 2 : a->size;
}
/* Rows of the lowest register tile. */
static inline int attention_lowest(const struct attention *a)
{
	return a->matrix ? KB_TILE_ROWS : 1;
}
/* x of f32 as it is multiplied. */
struct kb_val attention_rounded(const struct attention *a, struct kb_val x);
/* The value of a size; constants stay visible to index arithmetic. */
struct kb_val attention_size(struct kb *k, const struct kb_size *s);
/* index * stride in elements of an axis. */
struct kb_val attention_step(struct kb *k, const struct kb_tensor *t, int axis, struct kb_val index);
/* True when neighbours on the axis lie side by side in memory. */
bool attention_is_dense(const struct kb_tensor *t, int axis);
/* n >= 0 rounded up and down to a multiple of step. */
struct kb_val attention_round_up(struct kb *k, struct kb_val n, int64_t step);
struct kb_val attention_round_down(struct kb *k, struct kb_val n, int64_t step);
/* Address of row `row` of a table in scratch with rows of `length` elements. */
struct kb_val attention_scratch_row(struct kb *k, struct kb_val table, struct kb_val row, int64_t length);
/* step(user, e, lanes, n) for the elements e .. of a row of `count`: whole vectors, then n of the last one.
 * Short rows are unrolled. */
typedef void attention_row_step(void *user, struct kb_val e, int lanes, int n);
void attention_walk_row(const struct attention *a, int64_t count, int lanes, attention_row_step *step,
                        void *user);
/* Rows of the register tile for few rows; 0: there is none. */
static inline int attention_few(const struct attention *a)
{
	return target_attention_skinny_mr(a->job->target);
}
/* Vectors of the sums of a register tile of `rows` rows, for each row: whole panels. */
int attention_tile_vectors(const struct attention *a, int rows);
/* The rows of x begin at `first`, `step` elements from each other. */
static inline void attention_set_x(struct reg_tile *p, struct kb_val first, int64_t step)
{
	for (int i = 0; i < p->rows; i++) {
		p->x[i] = first;
		p->x_disp[i] = i * step;
	}
}
/* OpenCL has no hint that a template could rely on. */
static inline bool attention_has_hints(const struct attention *a)
{
	return a->job->target->arch != ARCH_OPENCL;
}

/* ---- shared.c ---- */
/* All tasks of the group's work-groups. */
void attention_shared(const struct attention *a);

/* ---- split.c ---- */
/* The sums in slot `index` of those at `slots`. */
struct attention_sums attention_slot(const struct attention *a, struct kb_val slots, struct kb_val index);
/* Those of work-groups lie in job->sums: `split` of each head for one token of it. */
struct attention_slots attention_group_slots(int64_t queries, int64_t value_size);
/* bool: the call has one new token, whose blocks work-groups divide. */
struct kb_val attention_is_divided(const struct attention *a);
/* The second step: rows are divided among workers, the blocks of each joined in order. */
void attention_join(const struct attention *a);

/* ---- tasks.c ---- */
/* Which keys the rows of sequence b may see; blocks of keys that rows of a head of it read. */
struct attention_limits attention_find_limits(const struct attention *a, struct kb_val b);
struct kb_val attention_head_blocks(const struct attention *a, const struct attention_limits *l);
/* Those of all heads. */
struct kb_val attention_all_blocks(const struct attention *a);
struct attention_head attention_find_head(const struct attention *a, struct kb_val b, struct kb_val key_head);
/* Where worker w's part of a line begins: parts differ by one at most. */
struct kb_val attention_part_begin(const struct attention *a, struct kb_val length, struct kb_val w);
/* out = acc / sum for row first + row of the head, whose sums are in row `row` of scratch; the power of its
 * sink joins the sum. */
void attention_store_row(const struct attention *a, const struct attention_head *h, struct kb_val first,
                         struct kb_val row);
void attention_tasks(const struct attention *a);
/* Rows [first, first + n) of a head. */
struct attention_task attention_find_task(const struct attention *a, const struct attention_limits *l,
                                          struct kb_val first, struct kb_val n);
/* What brings the sum of weighted values of row r of the head to its result; max, sum: of the row, of all keys. */
struct kb_val attention_row_factor(const struct attention *a, const struct attention_head *h, struct kb_val r,
                                   struct kb_val max, struct kb_val sum);
/* x becomes element `column` of the result's row r of the head. */
void attention_store(const struct attention *a, const struct attention_head *h, struct kb_val r,
                     struct kb_val column, struct kb_val x);
/* Element of t where row r of the head begins, counted from t's address for the head. */
struct kb_val attention_row_index(const struct attention *a, const struct kb_tensor *t, struct kb_val r);
/* Rows are tokens, and edges of what they see have code of their own. */
bool attention_has_edges(const struct attention *a);
/* Where the keys that row r of the head sees begin and end; there are none where the end comes first. */
struct kb_val attention_row_begin(const struct attention *a, const struct attention_limits *l,
                                  struct kb_val r);
struct kb_val attention_row_limit(const struct attention *a, const struct attention_limits *l,
                                  struct kb_val r);

/* ---- copy.c ---- */
/* The task's queries times q_factor; rows up to the next whole tile repeat the last one. */
void attention_copy_queries(const struct attention *a, const struct attention_head *h,
                            const struct attention_task *t);
/* Sets where keys and values of the block lie, copies what does not lie as tiles read it. */
void attention_copy_block(const struct attention *a, const struct attention_head *h,
                          struct attention_block *b);
/* Address of the panel that begins with that row, where keys lie in panels. */
struct kb_val attention_panel_at(const struct attention *a, struct kb_val table, struct kb_val row);
/* Elements from one key's values to the next, where the tiles read them. */
int64_t attention_value_step(const struct attention *a);

/* ---- ahead.c ---- */
/* There are hints: keys and values are read where they lie, and have as many bytes. */
bool attention_has_run(const struct attention *a);
/* A tile of so many rows is about to read panels of keys. One row asks for all of what comes later at once. More rows
 * ask for line e of it when they read line e: sets where the lines begin, to none where nothing is asked for. */
void attention_ask_by_keys(const struct attention *a, const struct attention_block *b, struct kb_val panel,
                           int panels, int rows, struct kb_val ahead[TILE_PANELS_MAX]);
/* It is about to read some columns of the values of key j. */
void attention_ask_by_values(const struct attention *a, const struct attention_block *b, struct kb_val j,
                             struct kb_val column, int columns, int rows);

/* ---- one block ---- */
/* Adds a block of keys to all rows of its task. */
void attention_block(const struct attention *a, const struct attention_block *b);
/* The keys of the block that a row of the task sees are [begin, end). */
struct kb_val attention_row_first(const struct attention *a, const struct attention_block *b,
                                  struct kb_val row);
struct kb_val attention_row_end(const struct attention *a, const struct attention_block *b,
                                struct kb_val row);
/* The tile's scores, for the keys that any of its rows sees, in whole panels; tiles have `rows` rows. */
void attention_scores(const struct attention *a, const struct attention_block *b,
                      const struct attention_tile *t, int rows);
struct kb_val attention_capped(struct kb *k, struct kb_val x, float cap);
/* Exponential for x <= 0, to the base of the kernel. */
struct kb_val attention_power(const struct attention *a, struct kb_val x);
/* A maximum joins that of the row: both factors bring what was relative to one of them to the larger, which
 * is given. */
struct kb_val attention_join_max(const struct attention *a, struct kb_val before, struct kb_val now,
                                 struct kb_val *old_factor, struct kb_val *new_factor);
/* Scores become weights relative to their maximum in the block; the rows' maxima and sums follow. */
void attention_softmax(const struct attention *a, const struct attention_block *b,
                       const struct attention_tile *t);
/* acc = acc old_factor + (weights v) new_factor */
void attention_values(const struct attention *a, const struct attention_block *b,
                      const struct attention_tile *t, int rows);

/* ---- matrix.c ---- */
/* Around all tasks of a function. */
void attention_begin_matrix(struct attention *a);
void attention_end_matrix(const struct attention *a);
/* Steps of a tile, as those above. */
void attention_matrix_scores(const struct attention *a, const struct attention_block *b,
                             const struct attention_tile *t, int rows);
void attention_matrix_values(const struct attention *a, const struct attention_block *b,
                             const struct attention_tile *t, int rows);

#endif
