/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the matmul template share: matmul.c divides rows and panels among workers and walks over
 * tiles, matmul_tile.c computes one register tile and what follows the product, matmul_few.c is the walk when
 * rows are few.
 */
#ifndef TFMC_BACKENDS_LINEAR_MATMUL_INTERNAL_H
#define TFMC_BACKENDS_LINEAR_MATMUL_INTERNAL_H

#include "backends/kernel/templates.h"
#include "ir/target/tile.h"

#define MATMUL_PANEL    TILE_PANEL
#define MATMUL_STRIP    TILE_PANELS_MAX /* panels that are walked over together at least; no tile is wider */
#define MATMUL_ROWS_MAX TILE_ROWS_MAX
#define MATMUL_ACC_MAX  TILE_SUMS_MAX

struct linear {
	const struct kernel_job *job;
	struct kb *k;
	struct eval *eval;
	const struct ir_op *root;
	const struct attrs_group *schedule;
	const struct eval_output *out; /* result of the group at the root's axes */
	const struct eval_tensor *x;   /* [..,K]; NULL: the norm's rows in `normed` */
	const struct eval_tensor *w;   /* [N,K] in panels */
	struct ir_value bias;          /* [N], or none */
	const struct ir_op *after;     /* a norm of whole rows after the root; NULL: none */
	struct eval_output before;     /* what it reads, in the place of the result */
	const struct eval_outputs *results;
	const struct ir_op *norm; /* its result is x; NULL: x lies in memory */
	struct kb_val normed;     /* scratch [normed_rows, K]: x of the open block */
	int64_t normed_rows;

	int rank;                        /* of the result */
	struct kb_val size[IR_RANK_MAX]; /* of its axes */
	struct kb_val rows;              /* product of the leading axes */
	int64_t rows_lo, rows_hi;        /* bounds */

	/* Packed weights. */
	int64_t depth, columns; /* K, N */
	int64_t panels;         /* the last may be partial */
	enum ir_dtype stored;   /* what they lie in memory as */
	int per_line;           /* elements of K in a line of TILE_LINE bytes */
	int64_t lines;          /* of a panel */
	int lanes;              /* of an accumulator; divides 16 */
	int mr, nr;             /* rows and panels of the main tile */
	bool is_few;            /* matmul_few.c walks */
	bool is_staged;      /* the epilogue runs in a loop of its own, over finished products in `stage` */
	int64_t stage_rows;  /* those of a tile, or of a block when K is divided */
	struct kb_val stage; /* [stage_rows, stage_width] products without bias */
	int64_t stage_width; /* columns of a strip, of all halves */
	int64_t kc;          /* part of K that is walked over at once, sums wait in the stage; 0: all */

	struct kb_size along; /* elements from one k to the next in a row of x */

	int64_t unit_panels; /* panels that one task takes at least: those of whole heads */
	int strip_panels;    /* panels of a strip, a multiple of the unit */
	/* 2: columns are pairs (gate and up), whose second ones are panels [panels, 2 panels) of the weights.
	 */
	int halves;
	bool by_parts;              /* may be divided by parts of heads */
	struct matmul_parts *parts; /* NULL: one result, at the root's axes */
	const struct ir_op *strips; /* strip_argmax or strip_score at the end of the group; NULL: none */
	struct kb_val half;         /* index of the open half */

	/* The open loops: rows [row, row_end) of the block, panels [strip, strip_end). */
	struct kb_val block; /* first row of the block */
	struct kb_val row, row_end, strip, strip_end;
	struct kb_val k_lo, k_hi; /* part of K */
	struct kb_val stage_row;  /* of the tile */

	/* Of experts (matmul_experts.c): whose matrix is open, and the rows of the block, i32; or none. */
	struct kb_val expert, matrix, list;

	/* Weights are asked for before they are used (matmul_ahead.c). */
	struct kb_val ahead_step; /* bytes for each k */
	struct kb_var ahead_turn; /* number of the tile of rows */
};

/* rows x panels of the result from row l->row and panel `panel`; stored, or left in the stage. */
struct tile {
	int rows, panels;
	struct kb_val panel;
	struct kb_val fetch; /* of few rows: the bytes that step k = 0 asks for ahead of their use; or none */
};

#define MATMUL_HEIGHTS_MAX (MATMUL_ROWS_MAX + 1)
/* With nothing found out yet. matmul.c */
struct linear matmul_new(const struct kernel *g);
/* Columns, K and panels of the matrix w [.., N, K]. False: their sizes are not known. matmul.c */
bool matmul_find_panels(struct linear *l);
/* Bytes of a panel, and of one element of K in it. */
static inline int64_t matmul_panel_bytes(const struct linear *l)
{
	return l->lines * TILE_LINE;
}
static inline int64_t matmul_step_bytes(const struct linear *l)
{
	return TILE_LINE / l->per_line;
}
/* Panels that stay together when there are many rows: whole tiles of whole heads. matmul.c */
int64_t matmul_unit_of_many(const struct linear *l);
/* Heights of tiles that can occur, decreasing; gives how many. matmul_heights.c */
int matmul_heights(const struct linear *l, int *height);
/* True for heights that are chosen only when there are more rows than a tile has. */
bool matmul_of_many(const struct linear *l, int rows);
/* The next tile of a walk that has `left` rows to go is the highest one that is no higher than this. */
struct kb_val matmul_height(struct linear *l, struct kb_val left);
/* Weights that come next, matmul_ahead.c: which tiles ask for them; begins the walk over `rows` rows of a
 * strip, of which each tile ends a turn. */
bool matmul_runs_ahead(const struct linear *l, const struct tile *t);
void matmul_begin_ahead(struct linear *l, struct kb_val rows);
void matmul_end_turn(struct linear *l);
/* Where the share of a tile begins whose own weights begin at w; and the hint of its step k = at. */
struct kb_val matmul_ahead(struct linear *l, struct kb_val w);
void matmul_step_ahead(struct linear *l, struct kb_val ahead, struct kb_val at);
/* Few rows, and weights that come from memory: matmul_few.c. */
bool matmul_is_few(const struct linear *l);
void matmul_few(struct linear *l);
/* x of the block: every worker that has some of its columns normalises all rows for itself. */
void matmul_norm(struct linear *l, struct kb_val panel, struct kb_val panel_end);

/* Whether all parts of the columns divide by parts of heads; says so to the caller of the template. */
bool matmul_divides_heads(const struct linear *l);
/*
 * Runs of panels [*panel, *panel_end) of this worker: one, or, divided by parts of heads, one in the columns
 * of each of queries, keys and values. Opens a loop over them when there may be several; matmul_end_runs
 * closes it.
 */
void matmul_begin_runs(struct linear *l, struct kb_val *panel, struct kb_val *panel_end);
void matmul_end_runs(struct linear *l);
/* Columns of the root's result that go their own way, and where to: matmul_parts.c. False: there are none. */
bool matmul_find_parts(struct linear *l, struct kernel *g);
/* The rest of the group for `rows` finished rows of the stage, part by part. */
void matmul_parts_epilogue(struct linear *l, struct kb_val rows);
/* Columns that are only read in strips: matmul_strips.c. False: they are not, or not in those of the
 * template. */
bool matmul_find_strips(struct linear *l, const struct kernel *g);
/* The rest of the group for `rows` finished rows of the stage: two numbers of each row. */
void matmul_strips_epilogue(struct linear *l, struct kb_val rows);
/* What matmul.c decides and walks, for matmul_experts.c: the one result; tiles; whether there is a stage;
 * rows [first, l->row_end) of the open strip. */
bool matmul_bind_result(struct linear *l, const struct kernel *g);
bool matmul_choose_schedule(struct linear *l);
bool matmul_wants_stage(const struct kernel *g);
void matmul_strip(struct linear *l, struct kb_val first);
/* Operands, sizes and the one result of the group. False when they do not lie as tiles need it. */
bool matmul_begin(struct linear *l, const struct kernel *g);
void matmul_tile(struct linear *l, const struct tile *t);
/* The rest of the group for `rows` finished rows of the stage. */
void matmul_epilogue(struct linear *l, struct kb_val rows);
/* The point of the element in row `row` (all leading axes as one) and column `column`. */
struct eval_point matmul_point(struct linear *l, struct kb_val row, struct kb_val column);
/* Adds the bias to a product at p: from now on the root's value there. */
void matmul_bind(struct linear *l, const struct eval_point *p, struct kb_val product);
/* The same, and computes what follows, stores. */
void matmul_finish(struct linear *l, const struct eval_point *p, struct kb_val product);

#endif
