/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedule of a rowwise group as a value: the passes over a row, and where its elements are between two passes; and
 * that of results that are computed element by element (loops.c).
 * rowwise_nest.c chooses it from the root, its operands, the group's attributes and the target before code is emitted;
 * rowwise*.c emit the loops that it describes. A row is computed by one worker, or by the items of a work-group, each
 * every items-th element.
 */
#ifndef TFMC_BACKENDS_KERNELS_ROWWISE_NEST_H
#define TFMC_BACKENDS_KERNELS_ROWWISE_NEST_H

#include "backends/kb/kb.h"
#include "ir/core/module.h"
#include "ir/support/buf.h"
#include "ir/target/target.h"

#define ROWWISE_REGISTER_VECTORS 16   /* vectors of a row that may stay in registers */
#define ROWWISE_UNROLL           4    /* vectors of an iteration, each with its accumulator */
#define ROWWISE_SHARED           2048 /* elements of a row that may be kept in local memory */

/* The rows that a nest is chosen for. */
struct rowwise_shape {
	struct kb_caps caps;             /* of the target */
	const struct attrs_group *attrs; /* lanes and scratch: attributes of the group */
	enum ir_opcode root;
	int64_t width, longest; /* elements of a row, -1: known in the call only; their bound */
	int64_t quant_block;    /* of quantize_rows to int8; 0: the row */
	int64_t items;          /* work-items that share a row, a power of two; 1: a row is one worker's */
	bool has_one_pass;      /* a mask, and rounding to bf16: x is read once */
	bool x_is_stored;       /* x is in memory; else the prologue computes it */
	bool x_vectorizes, results_vectorize;
	bool scales_x;    /* a masked softmax scales or caps the scores that its first pass reads */
	bool fits_result; /* rows of the first result can hold one: f32, contiguous */
	bool is_producer; /* the caller has the buffer, from which the root of another group reads the rows */
};

enum rowwise_buffer {
	ROWWISE_NO_BUFFER,
	ROWWISE_REGISTERS,
	ROWWISE_LOCAL_MEMORY, /* of the work-group */
	ROWWISE_SCRATCH,
	ROWWISE_RESULT, /* the row of the first result */
	ROWWISE_CALLER
};

/* A pass over elements of a row. */
struct rowwise_pass {
	int lanes;          /* of a vector */
	int vectors;        /* of an iteration, each with its accumulator */
	int64_t looped_min; /* full vectors of a constant range from which on they are looped over, else unrolled */
	bool masks_tail; /* the last vector of other ranges is masked; else its elements follow one by one */
};

/* The vectors of a constant range. */
struct rowwise_vectors {
	int64_t looped, unrolled; /* full ones: in iterations of the pass; after them */
	int tail;                 /* elements of a partial one at the end; 0: none */
};

struct rowwise_nest {
	int64_t items;
	enum rowwise_buffer buffer; /* of elements between passes */
	int64_t local_elements;     /* of the buffer in local memory */
	bool is_staged;      /* x does not vectorize: it is copied to the buffer, element by element, first */
	bool keeps_x;        /* the first pass stores x there; else all passes read or compute it again */
	bool keeps_exp;      /* exponentials of a softmax replace x there; else they are computed again */
	int accumulators;    /* that passes over a row use */
	int64_t quant_block; /* elements of a block; 0: the row is one */
	bool has_partial_block; /* the last one may be shorter */
	/* In order: the copy; sums or the maximum; exponentials and their sum; results. */
	struct rowwise_pass copy, reduce, exp, store;
};

void rowwise_nest_choose(const struct rowwise_shape *s, struct rowwise_nest *n);
/* Appends the nest in words, of one line. */
void rowwise_nest_print(const struct rowwise_shape *s, const struct rowwise_nest *n, struct buf *out);
/* Divides a constant range of n elements. */
struct rowwise_vectors rowwise_divide(const struct rowwise_pass *p, int64_t n);

/* ---- element by element ---- */

#define LOOPS_VECTORS_MAX 4

/* A result of kernel_loops, and the ops of its group. */
struct loops_shape {
	const struct target *target;
	struct kb_caps caps;
	int64_t width;   /* elements of a row; -1: known in the call only */
	bool vectorizes; /* along a row, as what it is computed from */
	/* A chain is elementwise ops of one instruction each: their number, of dependent ones on the longest path;
	 * vectors that are loaded; values that several of them read. */
	bool has_functions; /* no chain */
	int ops, depth, loads, shared;
};

struct loops_nest {
	int64_t piece;     /* elements of a row that are a task, at most */
	bool is_one_piece; /* a row is a task, and its loop has a constant count */
	int lanes;         /* of a vector */
	int vectors;       /* 1, 2 or 4: vectors that an iteration computes at once, op by op */
};

/* Few on GPUs, where thousands of work-items need a task each. */
int64_t loops_piece(const struct target *t);
bool loops_is_one_piece(const struct target *t, int64_t width);
void loops_nest_choose(const struct loops_shape *s, struct loops_nest *n);
void loops_nest_print(const struct loops_nest *n, struct buf *out);

#endif
