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
	int64_t quant_block;    /* of quantize_rows to int8, less than a row; 0: the row is one */
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
enum rowwise_pass {
	ROWWISE_COPY,   /* of x to the buffer, element by element */
	ROWWISE_REDUCE, /* adds, or takes the maximum */
	ROWWISE_EXP,    /* exponentials and their sum */
	ROWWISE_STORE   /* results */
};

struct rowwise_nest {
	enum rowwise_buffer buffer; /* of elements between passes */
	bool is_staged;  /* x does not vectorize: it is copied to the buffer, element by element, first */
	bool keeps_x;    /* the first pass stores x there; else all passes read or compute it again */
	bool keeps_exp;  /* exponentials of a softmax replace x there; else they are computed again */
	bool masks_tail; /* the last vector of exponentials of a range of unknown length is masked */
	int lanes, store_lanes; /* of a vector; of one of results */
	int exp_vectors;        /* of exponentials of an iteration; of other passes ROWWISE_UNROLL */
	int accumulators;       /* that passes over a row use */
};

/* A part of a range of elements, after the part before it. */
struct rowwise_part {
	int lanes, valid;   /* of a vector; those of them that exist */
	int64_t vectors;    /* of an iteration, in accumulators 0, 1, ..; 0: the range has no such part */
	int64_t iterations; /* 1: no loop; 0: known in the call only, as many as are full */
	int64_t first;      /* vectors before it that are not looped over, which are in accumulators, too */
	bool is_masked;     /* lanes after the end of the range are masked */
	bool is_tail;       /* single elements, with an accumulator of their own */
};

#define ROWWISE_PARTS 3
struct rowwise_range {
	int vectors; /* accumulators: vector i of the range has number i mod vectors */
	struct rowwise_part part[ROWWISE_PARTS];
};

void rowwise_nest_choose(const struct rowwise_shape *s, struct rowwise_nest *n);
/* Appends the nest in words, of one line. */
void rowwise_nest_print(const struct rowwise_shape *s, const struct rowwise_nest *n, struct buf *out);
/* Divides a range of `length` elements, from the beginning of the row; -1: of a length known in the call only. */
struct rowwise_range rowwise_divide(const struct rowwise_nest *n, enum rowwise_pass pass, int64_t length);

static inline bool rowwise_has_mask(enum ir_opcode root)
{
	return root == OP_mask || root == OP_masked_softmax;
}
/* True for roots whose exponentials are read by a later pass; log_softmax reads the scores again. */
static inline bool rowwise_reads_exponentials(enum ir_opcode root)
{
	return root == OP_softmax || root == OP_masked_softmax;
}
/* Lanes of a vector of the group: its attribute, or those of the target. */
static inline int rowwise_lanes(const struct attrs_group *a, const struct kb_caps *c)
{
	return a->lanes > 0 ? (int)a->lanes : c->lanes;
}

/* ---- element by element ---- */

#define LOOPS_VECTORS_MAX 4

/* A result of kernel_loops, and the ops of its group. */
struct loops_shape {
	const struct target *target;
	struct kb_caps caps;
	const struct attrs_group *attrs; /* lanes */
	bool vectorizes;                 /* along a row, as what it is computed from */
	/* A chain is elementwise ops of one instruction each: their number, of dependent ones on the longest path;
	 * vectors that are loaded, and those of them that are equal in neighbouring rows; values that several of them
	 * read. */
	bool has_functions; /* no chain */
	int ops, depth, loads, row_loads, shared;
	int64_t rows; /* size of the axis before the last one; -1: known in the call only, or none */
};

struct loops_nest {
	int lanes;   /* of a vector */
	int vectors; /* 1, 2 or 4: vectors that an iteration computes at once, op by op */
	int rows;    /* 1, 2 or 4: neighbouring rows that it computes, op by op, a vector of each */
};

/* Elements of a row that are a task, at most: few on GPUs, where thousands of work-items need a task each. */
int64_t loops_piece(const struct target *t);
/* A row is a task, and its loop has a constant count. width -1: known in the call only. */
bool loops_is_one_piece(const struct target *t, int64_t width);
void loops_nest_choose(const struct loops_shape *s, struct loops_nest *n);
/* Appends the nest in words. */
void loops_nest_print(const struct loops_nest *n, struct buf *out);

#endif
