/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interface of the attention generator: FlashAttention (Dao and others 2022) for CPUs and
 * work-groups.
 *
 *   attention.c            binds the group, describes it for its nest; rows and heads among workers
 *   attention_nest.[ch]    the loop nest as a value, with the buffers in scratch (ir/target/attention_buffers.def)
 *   attention_pack.c       packs queries, keys and values for the register tiles; both products by AMX tiles
 *   attention_block.c      one KV block for all rows of a task: register tiles of q k^T and of probabilities times v,
 *                          with the online softmax between them; prefetch for few rows
 *   attention_split.c      split-KV: workers divide the KV blocks of a head, and combine their partial results
 *   attention_workgroup.c  all of it for work-groups with local memory
 *
 * The query heads that share a key head (GQA) are rows of one matrix: row r is token r / group of query head
 * r % group, so that the number of visible keys does not decrease with r.
 */
#ifndef TFMC_BACKENDS_KERNELS_ATTENTION_INTERNAL_H
#define TFMC_BACKENDS_KERNELS_ATTENTION_INTERNAL_H

#include "backends/kernels/attention_nest.h"
#include "backends/kernels/eval.h"
#include "backends/kernels/reg_tile.h"
#include "ir/target/tile.h"

#define ATTENTION_LOG2E  1.4426950408889634
#define ATTENTION_MASKED (-1.0f) /* probability of a key that the row does not see */

/* Axes of [B,H,S,E]. */
enum { ATTENTION_BATCH, ATTENTION_HEAD, ATTENTION_ROW, ATTENTION_ELEMENT };

/* The mask, in addition to the length of each sequence. */
struct attention_mask {
	bool rows_differ; /* in the keys they see: causal or with a window */
	int64_t window;   /* a row sees keys at distances below it; 0: no window */
	int64_t reach;    /* rows_differ: number of keys that token 0 at position 0 sees */
};

/* score = cap tanh(q' k^T + bias bias_factor), without cap q' k^T + bias bias_factor; q' = q q_factor */
struct attention_score {
	float q_factor, bias_factor, cap;
	bool base2; /* probabilities are 2^(score - max): log2 e is in q_factor */
};

/* Partial result of online softmax for rows of a task: addresses of unnormalized outputs, row maxima, row
 * sums. */
struct attention_partial {
	struct kb_val acc; /* [br][value_pad] */
	struct kb_val max; /* [br], padded by a vector */
	struct kb_val sum; /* [br], padded by a vector */
};

/* Addresses of the buffers in the worker's scratch. */
struct attention_scratch {
#define BUFFER(name, elements) struct kb_val name;
#include "ir/target/attention_buffers.def"
	struct attention_partial partial; /* acc, max and sum */
	struct kb_val amx_acc;            /* [mr][2 panels] i32 or f32, where AMX tiles are stored */
};

/* Sizes of the call. */
struct attention_heads {
	struct kb_val batch, heads; /* B; key heads K */
	struct kb_val queries;      /* query heads of a key head */
	struct kb_val rows;         /* of a key head: S queries */
	struct kb_tensor
	        lengths; /* of a padded batch whose real rows alone are computed; ptr none: all are */
};

/* An attention group: operands, shapes and loop nest. Set up once, constant while code is emitted. */
struct attention {
	const struct kernel_job *job;
	struct kb *k;
	struct kb_tensor q, key, value, bias, len, past, sinks; /* ptr none: absent */
	struct kb_tensor k_scale, v_scale;                      /* of an int8 KV cache; ptr none: absent */
	struct kb_tensor out;                                   /* the root's axes [B,H,S,V] in the result */
	int64_t size, value_size;                               /* E, V */
	bool is_bf16;                                           /* factors of products are rounded to bf16 */
	struct attention_nest nest;
	struct attention_mask mask;
	struct attention_score score;
	struct attention_scratch scratch;
	struct attention_heads heads;
};

/* Rows of a sequence, and the keys that they see. */
struct attention_limits {
	struct kb_val rows;  /* of a key head, that are computed */
	struct kb_val all;   /* min(T, len): no row sees keys at or beyond it */
	struct kb_val first; /* past + reach: end of the keys of token 0 */
	struct kb_val begin; /* past + 1 - window: their beginning; may be negative */
};

/* Addresses of a key head: token 0 of its first query head, key 0. */
struct attention_head {
	struct kb_val q, k, v, out, bias, sink, k_scale, v_scale;
};

/* Rows [first, first + n) of a head, and the keys [begin, end) that they read; begin is a multiple of 16. */
struct attention_task {
	struct attention_limits limits;
	struct kb_val first, n;
	struct kb_val begin, end;
};

/* A KV block for the rows of a task: keys first, first + 1, ..; its keys [begin, n) are visible. begin is a
 * multiple of 16. */
struct attention_block {
	const struct attention_task *task;
	struct kb_val first, begin, n;
	struct kb_val keys;               /* [..][E][16] */
	struct kb_val values;             /* row-major */
	struct kb_val next;               /* keys of the next block or head, to prefetch; or none */
	struct kb_val bias;               /* of the head */
	struct attention_partial partial; /* that the block is combined with */
};

/* A register tile: rows of a task from `row` on. Of the keys of the block, [low, last) are visible to some
 * row, [common, common_end) to all. */
struct attention_tile {
	struct kb_val row, rows;
	struct kb_val low, common, common_end, last;
	/* bool: each row sees one key more than the row before and, with a window, one less at the other end;
	 * only if nest.has_edges. */
	struct kb_val is_even;
};

/* ---- attention.c ---- */
static inline bool attention_has(const struct kb_tensor *t)
{
	return t->ptr.id != 0;
}
/* Type of a vector of scores or sums. */
struct kb_type attention_vector(const struct attention *a);
/* Address of element `index` of t. */
struct kb_val attention_at(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index);
/* Loads `lanes` elements as f32, only the first n of them. */
struct kb_val attention_load(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index,
                             int64_t disp, int lanes, int n);
/* Loads a vector of elements of the type and converts it to f32, which is exact. */
struct kb_val attention_load_vector(const struct attention *a, enum ir_dtype dtype, struct kb_val ptr,
                                    struct kb_val index, int64_t disp, bool is_aligned);
/* Keys, values and probabilities are bf16 pairs. */
static inline bool attention_by_pairs(const struct attention *a)
{
	return a->nest.product != ATTENTION_F32;
}
/* A factor of a product: x, rounded to bf16 if the group says so. */
struct kb_val attention_round_factor(const struct attention *a, struct kb_val x);
/* Offset in elements of `index` on an axis. */
struct kb_val attention_offset(struct kb *k, const struct kb_tensor *t, int axis, struct kb_val index);
/* n >= 0 rounded to a multiple of step. */
struct kb_val attention_round_up(struct kb *k, struct kb_val n, int64_t step);
struct kb_val attention_round_down(struct kb *k, struct kb_val n, int64_t step);
/* Address of row `row` of an f32 table in scratch whose rows have `length` elements. */
struct kb_val attention_scratch_row(struct kb *k, struct kb_val table, struct kb_val row, int64_t length);
/* Calls step(user, e, lanes, n) for elements e .. of a row of `count`: full vectors, then n lanes of the last
 * one. Short rows are unrolled. */
typedef void attention_row_fn(void *user, struct kb_val e, int lanes, int n);
void attention_loop_row(const struct attention *a, int64_t count, int lanes, attention_row_fn *step,
                        void *user);
/* Sets the rows of x: `step` elements apart, from `first` on. */
static inline void attention_set_x(struct reg_tile *p, struct kb_val first, int64_t step)
{
	for (int i = 0; i < p->rows; i++) {
		p->x[i] = first;
		p->x_disp[i] = i * step;
	}
}
/* ---- attention_workgroup.c ---- */
/* Emits all tasks of the work-groups. */
void attention_workgroup(const struct attention *a);

/* ---- attention_split.c ---- */
/* Slot `index` of those at `slots`. */
struct attention_partial attention_slot(const struct attention *a, struct kb_val slots, struct kb_val index);
/* bool: the call has one new token, so that work-groups divide KV blocks. */
struct kb_val attention_is_split(const struct attention *a);
/* The combine step: rows are divided among workers, and the slots of each are combined in order. */
void attention_combine(const struct attention *a);

/* ---- tasks (attention.c) ---- */
/* Visible keys of sequence b. */
struct attention_limits attention_find_limits(const struct attention *a, struct kb_val b);
/* Number of KV blocks that the rows of one head of that sequence read; number that all heads of the call read. */
struct kb_val attention_head_blocks(const struct attention *a, const struct attention_limits *l);
struct kb_val attention_all_blocks(const struct attention *a);
/* Addresses of key head `key_head` of sequence b, and of its first query head. */
struct attention_head attention_find_head(const struct attention *a, struct kb_val b, struct kb_val key_head);
/* Beginning of worker w's share of `length` units; shares differ by at most one. */
struct kb_val attention_share_begin(const struct attention *a, struct kb_val length, struct kb_val w);
/* Normalizes and stores row first + row of the head, whose partial result is row `row` of scratch. */
void attention_store_row(const struct attention *a, const struct attention_head *h, struct kb_val first,
                         struct kb_val row);
/* Rows [first, first + n) of a head. */
struct attention_task attention_find_task(const struct attention *a, const struct attention_limits *l,
                                          struct kb_val first, struct kb_val n);
/* Factor from the unnormalized output of row r to its result: 1 / sum, with the attention sink of its head. */
struct kb_val attention_row_factor(const struct attention *a, const struct attention_head *h, struct kb_val r,
                                   struct kb_val max, struct kb_val sum);
/* Stores x as element `column` of row r of the head in the result. */
void attention_store(const struct attention *a, const struct attention_head *h, struct kb_val r,
                     struct kb_val column, struct kb_val x);
/* Offset of row r of the head in t, from t's address for the head. */
struct kb_val attention_row_index(const struct attention *a, const struct kb_tensor *t, struct kb_val r);
/* Row r of the head sees keys [begin, limit); none if limit <= begin. */
struct kb_val attention_row_begin(const struct attention *a, const struct attention_limits *l,
                                  struct kb_val r);
struct kb_val attention_row_limit(const struct attention *a, const struct attention_limits *l,
                                  struct kb_val r);

/* ---- attention_pack.c ---- */
/* Copies the task's queries times q_factor; rows up to the next full tile repeat the last one. */
void attention_pack_queries(const struct attention *a, const struct attention_head *h,
                            const struct attention_task *t);
/* Sets b->keys and b->values; packs what register tiles cannot read where it is stored. */
void attention_pack_block(const struct attention *a, const struct attention_head *h,
                          struct attention_block *b);
/* Address of the panel that begins with that key, where keys are stored in panels. */
struct kb_val attention_panel_at(const struct attention *a, struct kb_val table, struct kb_val row);
/* ---- attention_block.c ---- */
/* Combines a KV block into the partial results of all rows of its task. */
void attention_block(const struct attention *a, const struct attention_block *b);

/* ---- online softmax (attention_block.c) ---- */
/* cap tanh(x), of x already divided by cap. */
struct kb_val attention_softcap(struct kb *k, struct kb_val x, float cap);
/* Exponential of x <= 0, to the base of the kernel (e or 2). */
struct kb_val attention_exp(const struct attention *a, struct kb_val x);
/* Returns max(before, now); the factors rescale values relative to either maximum to it. */
struct kb_val attention_combine_max(const struct attention *a, struct kb_val before, struct kb_val now,
                                    struct kb_val *old_factor, struct kb_val *new_factor);

/* ---- AMX (attention_pack.c) ---- */
/* Configures and releases matrix tiles, around all tasks of a function; nothing without AMX. */
void attention_amx_begin(struct attention *a);
void attention_amx_end(const struct attention *a);
/* By AMX, for `rows` rows (16 or 32) of a tile and `columns` (1 or 2) panels: scores of the keys from panel `panel` on;
 * acc = acc old_factor + (probabilities v) new_factor from column e on. */
void attention_amx_scores(const struct attention *a, const struct attention_block *b,
                          const struct attention_tile *t, struct kb_val panel, int rows, int columns);
void attention_amx_values(const struct attention *a, const struct attention_block *b,
                          const struct attention_tile *t, struct kb_val e, int rows, int columns);

#endif
