/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the matmul template share: matmul.c divides rows and panels among workers and walks over
 * tiles, matmul_tile.c computes one register tile and what follows the product, matmul_few.c is the walk when
 * rows are few.
 */
#ifndef TFMC_BACKENDS_LINEAR_MATMUL_INTERNAL_H
#define TFMC_BACKENDS_LINEAR_MATMUL_INTERNAL_H

#include "backends/kernel/reg_tile.h"
#include "backends/kernel/generator.h"
#include "backends/panel/panel.h"
#include "ir/target/tile.h"

#define MATMUL_PANEL    PANEL_COLUMNS
#define MATMUL_STRIP    TILE_PANELS_MAX /* panels that are walked over together at least; no tile is wider */
#define MATMUL_ROWS_MAX TILE_MR_MAX
#define MATMUL_ACC_MAX  TILE_ACC_MAX

/* How columns of the result are divided. */
struct matmul_columns {
	int64_t n;      /* N, of one half */
	int64_t panels; /* the last may be partial */
	int64_t unit;   /* panels that one task takes at least: those of whole heads */
	int strip;      /* panels of a strip, a multiple of the unit */
	/* 2: columns are pairs (gate and up), whose second ones are panels [panels, 2 panels) of the weights.
	 */
	int halves;
};

/* Norms of the group: of the rows of x, and of the rows of the result. */
struct matmul_norms {
	const struct ir_op *before; /* its result is x; NULL: x lies in memory */
	struct kb_val at;           /* scratch [rows, tile_row_stride(K)]: x of the open block */
	int64_t rows;
	const struct ir_op *after; /* NULL: none */
};

/* round_rows before the product: x is codes or pairs of bf16 in scratch (activation_row_layout), and products are those of
 * integers or of bf16. */
struct matmul_rounded {
	const struct ir_op *round; /* its result is x, of the norm or in memory; NULL: x is f32 */
	struct activation_quant to;
	struct activation_row_layout row;
	struct kb_val source; /* scratch f32 [K]: a row before it is rounded */
};

/* Memory of matrix tiles, of the function: their shapes, lines of K that fill none. */
struct matmul_matrix {
	struct kb_val config, rest; /* config: none where products are not those of tiles */
};

/* Where finished products wait for what follows, without bias: [rows, width]. */
struct matmul_stage {
	struct kb_val at; /* none: tiles finish their sums themselves */
	int64_t rows;     /* those of a tile, or of a block when K is divided or matrix tiles multiply */
	int64_t width;    /* columns of a strip, of all halves */
	int64_t kc;       /* part of K that is walked over at once, sums wait in the stage; 0: all */
};

/* Codes of a strip as f32, for many rows. */
struct matmul_copy {
	struct kb_val
	        at; /* scratch [panels of a strip, of all halves][K or its part][16]; none: tiles read codes */
	struct panel panel; /* one of these */
};

/* What integers are multiplied as, for many rows (tile_unpacked_bytes). Halves of 16 bits: words of four bytes of rows and
 * panels are two words, of bytes 0 and 2 and of bytes 1 and 3. Where matrix tiles multiply the steps: signed codes. */
struct matmul_unpacked {
	/* Scratch [rows][2][as many bytes as codes], or none; [panels][bytes]. No panels: tiles read codes as they lie. */
	struct kb_val rows, panels;
	int step;           /* panels that are unpacked together */
	int64_t bytes;      /* of a panel */
	struct kb_val sums; /* of a step, local i32 [16][16], where matrix tiles multiply; or none */
};

/* What the kernel computes and how: found once from the group, then the same for all tiles. */
struct linear {
	struct kernel *g;
	const struct kernel_job *job;
	struct kb *k;
	struct eval *eval;
	const struct eval_tensor *x; /* [..,K], also before it is rounded; NULL: a norm's rows in scratch */
	const struct eval_tensor *w; /* [N,K] in panels */
	struct ir_value bias;        /* [N], or none */
	struct eval_output out; /* result of the group at the root's axes, or what the norm after it reads */
	int rank;               /* of the result */
	struct kb_val size[IR_RANK_MAX]; /* of its axes */
	struct kb_val rows;              /* product of the leading axes */
	int64_t rows_lo, rows_hi;        /* bounds */
	int64_t depth;                   /* K */
	struct panel panel;              /* how weights lie in memory */
	struct kb_size along;            /* elements from one k to the next in a row of x */
	int lanes;                       /* of an accumulator; divides 16 */
	int mr, nr;                      /* rows and panels of the main tile */
	struct matmul_columns columns;
	struct matmul_norms norm;
	struct matmul_rounded rounded;
	struct matmul_matrix matrix;
	struct matmul_stage stage;
	struct matmul_copy copy;
	struct matmul_unpacked unpacked;
	struct matmul_parts *parts; /* NULL: one result, at the root's axes */
	const struct ir_op *strips; /* strip_argmax or strip_score at the end of the group; NULL: none */
	struct kb_val list;         /* of experts: numbers of the rows, i32; or none */
};

/* Panels [begin, end), and the rows [row, row_end) that pass by them. */
struct matmul_strip {
	struct kb_val rows; /* in all: of the call, or of the list */
	struct kb_val row, row_end;
	struct kb_val begin, end;
	struct kb_val weights;    /* of the matrix */
	struct kb_val expert;     /* whose matrix it is; none: there is one */
	struct kb_val k_lo, k_hi; /* part of K */
	/* How the copy in f32 of the strip, from `begin` and the first line of the part on, lies at `weights`;
	 * NULL: these are those in memory. */
	const struct panel *copied;
	bool is_unpacked; /* the strip lies in matmul_unpacked.panels, too */
};

/* Weights are asked for before they are used (matmul_ahead.c). */
struct matmul_ahead {
	struct kb_val from; /* what step k = 0 asks for; none: follows from the turn */
	struct kb_val step; /* bytes for each k */
	int panels;         /* in which a line is asked for; 0: one */
	int64_t behind;     /* bytes from each line to the one that it asks for; 0: from and step say which */
	struct kb_var turn; /* number of the tile of rows; none: tiles ask for nothing */
};

/* rows x panels of the result from row `row` and panel `panel`; stored, or left in the stage. */
struct matmul_tile {
	int rows, panels;
	struct kb_val row, panel;
	struct kb_val half;      /* where there are two */
	struct kb_val stage_row; /* of row */
	struct matmul_ahead ahead;
};

#define MATMUL_HEIGHTS_MAX (MATMUL_ROWS_MAX + 1)
/* With nothing found out yet. matmul.c */
struct linear matmul_new(struct kernel *g);
/* Columns, K and panels of the matrix w [.., N, K]. False: their sizes are not known. matmul.c */
bool matmul_find_panels(struct linear *l);
/* Bytes of an element of K in a line of PANEL_ROW_BYTES bytes. */
static inline int64_t matmul_step_bytes(const struct linear *l)
{
	return PANEL_ROW_BYTES / l->panel.per_line;
}
/* True: the code is compiled when a program starts (OpenCL), and is to be short before it is fast for every number of
 * rows. matmul_heights.c */
bool matmul_is_short(const struct linear *l);
/* Heights of tiles that can occur, decreasing; gives how many. matmul_heights.c */
int matmul_heights(const struct linear *l, int *height);
/* True for heights that are chosen only when there are more rows than a tile has. */
bool matmul_of_many(const struct linear *l, int rows);
/* The next tile of a walk that has `left` of `rows` rows to go is the highest one that is no higher than
 * this. */
struct kb_val matmul_height(const struct linear *l, struct kb_val rows, struct kb_val left);
/* Weights that come next, matmul_ahead.c: begins the walk over `rows` rows of a strip, of which each tile of that height
 * and width ends a turn: an equal share for each. */
struct matmul_ahead matmul_begin_ahead(const struct linear *l, struct kb_val rows, int height, int panels);
void matmul_end_turn(const struct linear *l, const struct matmul_ahead *a);
/* Where the share of a tile begins whose own weights begin at w, or none; and the hint of its step k = at. */
struct kb_val matmul_ahead(const struct linear *l, const struct matmul_strip *s, const struct matmul_tile *t,
                           struct kb_val w);
void matmul_step_ahead(const struct linear *l, const struct matmul_ahead *a, struct kb_val at);
/* Those of the elements at .. at + n - 1, in the second-level cache. */
void matmul_steps_ahead(const struct linear *l, const struct matmul_ahead *a, struct kb_val at, int64_t n);
/* The hint of a line of codes, that of element `at` of K; it lies at `word` of its section. */
void matmul_line_ahead(const struct linear *l, const struct matmul_ahead *a, struct kb_val at,
                       struct kb_val section, struct kb_val word);
/* Few rows, and weights that come from memory: matmul_few.c. */
bool matmul_is_few(const struct linear *l);
void matmul_few(const struct linear *l);
/* Rows of x are made in scratch: by a norm, by rounding, or both. */
static inline bool matmul_makes_rows(const struct linear *l)
{
	return l->norm.before || l->rounded.round;
}
/* The norm and the rounding that make x; false: weights want another x. Scratch for their rows; false: there is not
 * enough. matmul_rows.c */
bool matmul_find_rows(struct linear *l);
bool matmul_place_rows(struct linear *l);
/* Bytes of scratch that the rows of a block take. */
int64_t matmul_rows_bytes(const struct linear *l);
/* x of the rows [row, row_end): every worker that has some of the panels makes all rows for itself. */
void matmul_make_rows(const struct linear *l, struct kb_val row, struct kb_val row_end, struct kb_val panel,
                      struct kb_val panel_end);

#define MATMUL_WORDS \
	4 /* of a vector of x, where the machine multiplies by an element or matrices of 2 x 2 words */
#define MATMUL_WORDS_OPEN 2 /* vectors */
/* Products of rounded rows over all of K, of integers and of pairs of bf16, matmul_rounded.c. p->x are such rows,
 * distances in words; w: where the first panel of the tile begins. */
struct matmul_rounded_tile {
	const struct linear *l;
	const struct reg_tile *p;
	struct kb_val w;
	/* Where each panel begins, and the same again: the table of a codebook in tiles of more rows than panels, or
	 * words of x, have the registers that would keep a line. */
	struct kb_val panel[MATMUL_STRIP], again[MATMUL_STRIP];
	struct quant_panel_layout codes;
	/* Of the step that is open: where its section begins, its first word of x, the word of weights of its first
	 * line, from the beginning of a panel on. */
	struct kb_val section, first, line;
	struct kb_val turn; /* number of the line in a chunk whose lines are a loop; none elsewhere */
	const struct matmul_ahead *ahead;
	/* Unpacked: the rows, as p->x, and the first panel; none: they are not. */
	struct kb_val unpacked_x, unpacked_w;
	struct kb_var sum[MATMUL_ACC_MAX]; /* of integers */
	/* Where sums of a chunk fit into halves of 16 bits: those of the chunk that is open; none elsewhere. */
	struct kb_var half[MATMUL_ACC_MAX];
	/* Words of x, four of each row, that are open where the machine multiplies by an element of a vector. */
	struct kb_val words[MATMUL_WORDS_OPEN][MATMUL_ROWS_MAX];
};
/* The machine has dot products of what rows are rounded to: one instruction. */
bool matmul_has_dots(const struct linear *l);
void matmul_integer_depth(struct matmul_rounded_tile *c);
void matmul_bf16_depth(struct matmul_rounded_tile *c);
/* Vector v of line `line` of those from word `at` on. */
struct kb_val matmul_load_words(const struct matmul_rounded_tile *c, const struct kb_val *panel,
                                struct kb_val at, int line, int v);
/* Products of 2 x 2 words; of lines [0, n), n even: sum[m][v] becomes the sum of row m, vector v. matmul_matrix.c */
bool matmul_by_squares(const struct matmul_rounded_tile *c);
void matmul_walk_squares(const struct matmul_rounded_tile *c, int64_t n, struct kb_val *sum);
/* What the bytes that are multiplied have too much. */
int matmul_codes_zero(const struct linear *l);
/* sum and the sum of integers of a step in row m, scaled. */
struct kb_val matmul_add_scaled(const struct matmul_rounded_tile *c, struct kb_val step, int m,
                                const struct panel_block *s, struct kb_val integers, struct kb_val sum);
/* The sum of integers of all of K, which is one step, scaled. */
struct kb_val matmul_rounded_alone(const struct matmul_rounded_tile *c, int m, int v, struct kb_val integers);
/* Tiles are configured and have a stage, where products are theirs; given back. All of a strip, then. */
void matmul_begin_matrix(struct linear *l);
void matmul_end_matrix(const struct linear *l);
void matmul_matrix_strip(const struct linear *l, const struct matmul_strip *s);
/* Rounded rows go through matrix tiles. */
static inline bool matmul_by_matrix(const struct linear *l)
{
	return l->rounded.round && tile_uses_amx(l->job->target, l->panel.format, l->rounded.to, l->depth);
}
/* Each step of them does, where there are many. */
static inline bool matmul_by_steps(const struct linear *l)
{
	return l->rounded.round &&
	       tile_blocks_use_amx(l->job->target, l->panel.format, l->rounded.to, l->depth);
}
/* Those of the strip's tiles: 16 rows of one panel, unpacked. */
static inline bool matmul_strip_by_steps(const struct linear *l, const struct matmul_strip *s)
{
	return s->is_unpacked && l->unpacked.sums.id;
}
/* Rows of the highest tile. */
static inline int matmul_tile_height(const struct linear *l)
{
	return matmul_by_steps(l) && l->mr < KB_TILE_ROWS ? KB_TILE_ROWS : l->mr;
}
/* Shapes of tiles; a panel as signed codes; products of a tile. */
void matmul_begin_steps(struct linear *l);
void matmul_unpack_panel(const struct linear *l, struct kb_val from, struct kb_val to);
void matmul_steps_depth(const struct matmul_rounded_tile *c);
/* Registers of a panel: of one step of K and one row. */
static inline int matmul_units(const struct linear *l)
{
	int lanes = kb_caps(l->k)->lanes;
	return lanes < MATMUL_PANEL ? MATMUL_PANEL / lanes : 1;
}
/* Registers that an accumulator takes: there may be one of integers beside. */
static inline int matmul_sum_registers(const struct linear *l)
{
	return 1 + (l->rounded.round && l->rounded.row.steps > 1);
}

/* Columns of the root's result that go their own way, and where to: matmul_parts.c. False: there are none. */
bool matmul_find_parts(struct linear *l);
/* The rest of the group for the first rows of the stage, which are those of the result from `first` on:
 * matmul_stage.c. The same, part by part. */
void matmul_epilogue(const struct linear *l, const struct matmul_strip *s, struct kb_val first,
                     struct kb_val rows);
void matmul_parts_epilogue(const struct linear *l, const struct matmul_strip *s, struct kb_val first,
                           struct kb_val rows);
/* Columns. */
struct matmul_range {
	struct kb_val lo, hi;
};
/* Items of a work-group that share a row of the stage: number `number` of them takes columns [lo, hi) of `width`, or not
 * any. None: one worker takes all. matmul_stage.c */
#define MATMUL_PIECES 8
struct matmul_piece {
	struct kb_val lo, hi, any;
};
struct matmul_piece matmul_piece(const struct linear *l, struct kb_val number, int64_t width);
/* Those of the columns r in the strip, counted from column `begin` of the result on. */
struct matmul_range matmul_piece_of(const struct linear *l, const struct matmul_strip *s,
                                    struct matmul_range r, int64_t begin, struct kb_val number);
/* Begins a loop over the first rows of the stage, and over pieces of them where items share them. */
struct kb_val matmul_open_rows(const struct linear *l, struct kb_val rows, struct kb_val *number);
/* Evaluates and stores those columns of a row of an output that has `size` of them. */
void matmul_store_row(const struct linear *l, const struct eval_output *out, int64_t size,
                      struct matmul_range r, const struct eval_point *row);
/* Columns that are only read in strips: matmul_strips.c. False: they are not, or not in those of the
 * template. */
bool matmul_find_strips(struct linear *l);
/* The numbers of the strip that these columns of a row are. */
void matmul_strips_row(const struct linear *l, struct matmul_range r, const struct eval_point *row);
/* Where there is scratch and rows for more than a tile: a copy, and the parts of K that it takes; else tiles that
 * read codes, low enough for the registers. matmul_copy.c */
void matmul_choose_copy(struct linear *l, bool is_few, int64_t scratch_begin);
/* Whether tiles read codes, and panels of a tile of so many rows that does: as many as registers hold; those of one
 * row as many as hide the latency of multiply-adds, whose scales may wait in memory. */
bool matmul_reads_codes(const struct linear *l);
int matmul_panels_of_codes(const struct linear *l, int rows);
/* Copies the strip's part of K; the strip to walk over instead. */
struct matmul_strip matmul_copy_strip(const struct linear *l, const struct matmul_strip *s);
/* Room for what is unpacked, where there is any and it pays; a row of codes, and the panels of the strip.
 * matmul_copy.c */
void matmul_choose_unpacked(struct linear *l, int64_t scratch_begin);
void matmul_unpack_row(const struct linear *l, struct kb_val codes, struct kb_val row);
void matmul_unpack_strip(const struct linear *l, const struct matmul_strip *s);
/* What matmul.c decides and walks, for other walks: the one result; tiles; whether there is a stage; the
 * rows of a strip; the panels of a strip in tiles as wide as t, and single ones where that leaves any. */
bool matmul_bind_result(struct linear *l);
bool matmul_choose_schedule(struct linear *l);
bool matmul_wants_stage(const struct kernel *g);
void matmul_strip(const struct linear *l, const struct matmul_strip *s);
/* Where the last of the tiles of so many whole panels from the strip's beginning on ends. */
struct kb_val matmul_whole_panels(const struct linear *l, const struct matmul_strip *s, int panels);
void matmul_walk_panels(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t,
                        bool has_single);
/* Operands, sizes, and the one result of the group or its parts. False when they do not lie as tiles need it. */
bool matmul_begin(struct linear *l, struct kernel *g);
void matmul_tile(const struct linear *l, const struct matmul_strip *s, const struct matmul_tile *t);
/* The point of the element in row `row` (all leading axes as one) and column `column`. */
struct eval_point matmul_point(const struct linear *l, struct kb_val row, struct kb_val column);

#endif
