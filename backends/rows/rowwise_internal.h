/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the rowwise template share. A row is walked in chunks of
 * `lanes` elements by small bodies; between two walks its elements stay in
 * registers (short rows), where x lies, or in the buffer. Sums take the elements
 * in an order that depends on the row's length only.
 */
#ifndef TFMC_BACKENDS_ROWS_ROWWISE_INTERNAL_H
#define TFMC_BACKENDS_ROWS_ROWWISE_INTERNAL_H

#include "backends/kernel/eval.h"

#define ROWWISE_HELD_MAX 16   /* chunks of a row that may stay in registers */
#define ROWWISE_UNROLL   4    /* chunks of a loop's body, each with an accumulator of its own */
#define ROWWISE_SHARED   2048 /* elements of a row that may lie in shared memory */

struct rowwise {
	struct eval e;
	const struct kernel_job *job;
	struct kb *k;
	const struct ir_op *root;
	struct eval_outputs outputs;
	int rank;
	struct kb_val size[IR_RANK_MAX];
	int64_t width;  /* elements of a row; -1: known at run time */
	int lanes;      /* of a vector */
	int out_lanes;  /* of the walk that stores; 1: the ops after the root do not take vectors */
	bool is_held;   /* rows stay in registers */
	bool is_filled; /* x was copied to the buffer, element by element, before the first walk */
	bool x_stays;   /* later walks read x again where it lies */
	bool has_none;  /* there is no buffer: every walk computes x, and what is made of it, again */
	bool in_result; /* the buffer is the row of the result, else scratch */
	bool is_padded; /* whole vectors may be touched at the end of the buffer */
	bool is_inner;  /* results go to the buffer too: another template's root reads them there */

	int64_t items;      /* work-items that share a row, a power of two; 1: rows are one worker's alone */
	struct kb_val item; /* index of this one */
	struct kb_val sums; /* shared f32 [items] */

	struct eval_point row; /* the open row, at element 0 */
	struct kb_val buffer;  /* f32 [width] */
	struct kb_val held[ROWWISE_HELD_MAX];
};

/* Neighbours in the row. */
struct rowwise_chunk {
	struct kb_val at; /* index of the first */
	int lanes, valid;
	int slot;           /* accumulator */
	int number;         /* in the row, when rows are held */
	bool is_rest;       /* single element after the last whole vector */
	struct kb_val mask; /* bool lanes that exist; none: all */
};

typedef void rowwise_body(struct rowwise *r, const struct rowwise_chunk *c, void *user);

struct rowwise_walk {
	rowwise_body *body;
	void *user;
	int lanes;
	bool pads;   /* body touches the buffer only, and looks at the mask */
	int at_once; /* vectors of a turn, at most ROWWISE_UNROLL; 0: so many */
};

/* Emits the body for all elements of the open row in [from, to), from <= to. */
void rowwise_walk(struct rowwise *r, struct kb_val from, struct kb_val to, const struct rowwise_walk *w);
/* Gives the last vector of [0, to) in a padded buffer numbers, before elements are put there one by one: a
 * walk that pads reads all of it. */
void rowwise_clear_rest(struct rowwise *r, struct kb_val to);
/* All elements, with whole vectors. */
void rowwise_all(struct rowwise *r, rowwise_body *body, void *user);

/* Emits the body at one chunk, in a scope of its own. */
void rowwise_chunk(struct rowwise *r, const struct rowwise_walk *w, const struct rowwise_chunk *c);

/* Rows that work-items share, at function level. */
void rowwise_items_begin(struct rowwise *r);
/* This item's elements of [from, to). */
void rowwise_items_walk(struct rowwise *r, struct kb_val from, struct kb_val to,
                        const struct rowwise_walk *w);
/* The same to all items of the group: what they have, combined by op. All of them come here. */
struct kb_val rowwise_items_reduce(struct rowwise *r, enum kb_bin op, struct kb_val mine);

/* x at the chunk, in the first walk. */
struct kb_val rowwise_first(struct rowwise *r, const struct rowwise_chunk *c);
/* Keeps what the first walk made of x. Nothing to do when x stays. */
void rowwise_keep(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value);
/* What the first walk kept. */
struct kb_val rowwise_again(struct rowwise *r, const struct rowwise_chunk *c);
/* A second value instead of x, and that value. Not without a buffer. */
void rowwise_put(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value);
struct kb_val rowwise_get(struct rowwise *r, const struct rowwise_chunk *c);
/* The root's result at the chunk is known: computes and stores what the group yields. */
void rowwise_store(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value);
/* A scalar in the lanes of the chunk. */
struct kb_val rowwise_splat(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val scalar);

/* A sum or maximum over a row. */
struct rowwise_acc {
	enum kb_bin op; /* KB_ADD, KB_MAX (NaN is passed over) */
	struct kb_var slot[ROWWISE_UNROLL];
	struct kb_var rest;
};
void rowwise_acc_begin(struct rowwise *r, struct rowwise_acc *a, enum kb_bin op);
void rowwise_acc_add(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c,
                     struct kb_val x);
/* Adds x^2. */
void rowwise_acc_square(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c,
                        struct kb_val x);
struct kb_val rowwise_acc_value(struct rowwise *r, const struct rowwise_acc *a);

/* What a norm makes of x, in the lanes of x: (x - mean) inverse gamma + beta; none: 0, 1, 0. */
struct rowwise_scale {
	struct kb_val mean, inverse, gamma, beta;
};
struct kb_val rowwise_scaled(struct kb *k, struct kb_val x, const struct rowwise_scale *s);

/* The elements of the open row that are visible: [*first, result); *first is none where there is no window.
 */
struct kb_val rowwise_visible(struct rowwise *r, const struct eval_mask *mask, struct kb_val *first);
struct kb_val rowwise_width(const struct rowwise *r);
static inline struct ir_value rowwise_operand(const struct rowwise *r, size_t i)
{
	return i < r->root->n_operands ? r->root->operands[i] : IR_NO_VALUE;
}

/* Bodies of one row, by root. */
void rowwise_softmax(struct rowwise *r);
void rowwise_log_softmax(struct rowwise *r);
void rowwise_mask(struct rowwise *r);
void rowwise_layer_norm(struct rowwise *r);
void rowwise_rms_norm(struct rowwise *r);
void rowwise_round_rows(struct rowwise *r);
/* Rows are walked over in blocks that the root names. */
bool rowwise_has_blocks(const struct rowwise *r);

#endif
