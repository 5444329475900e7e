/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the attention template share: operands, sizes, places in
 * scratch, and the position of the loops that are open. attention.c walks over
 * tiles of rows and blocks of keys, attention_block.c computes one block.
 */
#ifndef TFMC_BACKENDS_KERNEL_ATTENTION_INTERNAL_H
#define TFMC_BACKENDS_KERNEL_ATTENTION_INTERNAL_H

#include "backends/kernel/group.h"

#define ATTENTION_PAD         16 /* E and V are rounded up to this in scratch */
#define ATTENTION_LANES_MAX   16
#define ATTENTION_ROWS        4 /* query rows of a register tile */
#define ATTENTION_VECTORS_MAX 4

struct attention {
	const struct kernel_job *job;
	struct kb *k;
	const struct attrs_attention *attrs;
	const struct attrs_group *schedule;
	bool is_causal, has_bias, has_len, has_past;
	struct kb_tensor q, key, value, bias, len, past, out; /* out: root's axes [B,H,S,V] in the result */
	int64_t size, value_size;                             /* E, V */
	int64_t value_pad; /* V rounded up: elements of an accumulator row */
	int64_t br, bc;    /* query rows of a tile, keys of a block */
	int lanes;         /* keys of a vector of scores */
	int value_lanes;   /* elements of a vector of values; 1 when they do not lie side by side */
	int vectors;       /* vectors of a register tile for each of its rows */

	/* Scratch. */
	struct kb_val keys;   /* [E,bc] */
	struct kb_val scores; /* [br,bc] */
	struct kb_val acc;    /* [br,value_pad] */
	struct kb_val max;    /* [br] */
	struct kb_val sum;    /* [br] */

	/* The task: addresses are those of query row first_row, key 0. */
	struct kb_val q_rows, k_head, v_head, out_rows, bias_rows;
	struct kb_val first_row, n_rows;
	struct kb_val first_limit; /* past + first_row + 1: keys row first_row may see by the causal mask */
	struct kb_val limit;       /* min(T, len): keys any row may see */
	struct kb_val visible;     /* keys the last row of the tile sees */

	/* The block: its first key, and how many keys are visible to the last row of the tile. */
	struct kb_val first_key, n_keys;
};

/* Keys and values of the block as f32 vectors. */
struct kb_type attention_vector(const struct attention *a);
/* ptr + index elements of t. */
struct kb_val attention_at(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index);
/* The element, or as many as type has lanes, as f32; n: only the first n lanes. */
struct kb_val attention_load(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index,
                             int64_t disp, int lanes, int n);
/* index * stride in elements of an axis. */
struct kb_val attention_step(struct kb *k, const struct kb_tensor *t, int axis, struct kb_val index);
/* True when neighbours on the axis lie side by side in memory. */
bool attention_is_dense(const struct kb_tensor *t, int axis);
enum kb_scalar attention_scalar(enum ir_dtype t);

/* Adds the open block of keys to all rows of the tile. */
void attention_block(struct attention *a);

#endif
