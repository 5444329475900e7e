/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How weights in panels of 16 columns (ir/target/tile.h) are read, whatever their format: as vectors of f32 of
 * neighbouring columns at one element of K.
 *
 * An element of codes is scale code + offset of its block, rounded once where the machine has fma (scale code is
 * exact for the formats without super blocks whose scales are f16), scale and offset of a super block multiplied
 * first, which is exact. Then it is a number like any other: sums over K are those of the same numbers in f32.
 */
#ifndef TFMC_BACKENDS_PANEL_PANEL_H
#define TFMC_BACKENDS_PANEL_PANEL_H

#include "backends/kb/kb.h"
#include "ir/target/tile.h"

/* What is in a line of PANEL_ROW_BYTES bytes: f32; pairs of bf16; rows of f16; codes. */
enum panel_lines { PANEL_WORDS, PANEL_PAIRS, PANEL_HALVES, PANEL_CODES };

struct panel {
	enum ir_format format;
	enum panel_lines lines;
	int64_t depth, bytes; /* K; of a panel */
	int64_t head;         /* bytes of a section of codes before its lines */
	int per_line;         /* elements of K */
	int unit;             /* parts of K begin at multiples of it */
	int held;             /* registers that a vector of columns takes while K passes, beside its sums */
};
struct panel panel_of(enum ir_format f, int64_t depth);

/* Panels side by side, floats. */
struct panel_reader {
	struct kb *k;
	const struct panel *panel;
	int lanes;
	struct kb_val at;    /* first line of the first panel */
	struct kb_val again; /* the same, for the second elements of pairs; or none */
};
/* Where element at + i of K begins in a panel, `at` a multiple of the elements of a line: words of pairs, else
 * elements. */
struct kb_val panel_line(const struct panel_reader *r, struct kb_val at, int i);
/* Vector n of the pairs in that line; one half of pairs as f32. */
struct kb_val panel_pairs(const struct panel_reader *r, struct kb_val from, struct kb_val line, int n);
struct kb_val panel_half(struct kb *k, struct kb_val pairs, int odd);
/* Vector n of element i in that line, as f32. */
struct kb_val panel_vector(const struct panel_reader *r, struct kb_val line, int i, int n);

/* Columns [column, column + lanes) of element i of K of the panel of codes at `at`. */
struct kb_val panel_code(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                         struct kb_val i, int lanes);
/* The same of n elements from i on, which is a multiple of 4 where n is more than 1, n <= 4. */
void panel_codes(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column, struct kb_val i,
                 int n, int lanes, struct kb_val *out);

/*
 * Codes of elements i + 4 line .. i + 4 line + 3, signed and with what shifts add, as bytes of words; i is a multiple of 4, and
 * of 16 where there are further lines. Formats of 8 bits: those of zero 128, of shifts: with a codebook.
 */
struct kb_val panel_words(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                          struct kb_val i, int line, int lanes);
/* What an element of these has beside its code: scale code + offset; none: 0. */
struct panel_block {
	struct kb_val scale, offset;
};
struct panel_block panel_block(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                               struct kb_val i, int lanes);

/* Numbers of codes of a codebook, the low four bits of each byte of the words -> code + zero in 8 bits; of other formats the
 * words themselves. */
struct kb_val panel_look_up(struct kb *k, const struct panel *p, struct kb_val words, int zero, int lanes);

/* Scales and offsets (none: the format has none) of block b of a section of codes, for vector v of the panels whose
 * section begins at `at`; i16: what is added to its codes, of formats with shifts, whose offsets are scale shift. */
struct kb_val panel_scale(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                          int lanes);
struct kb_val panel_shift(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                          int lanes);
struct kb_val panel_offset(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                           int lanes);

/* A walk along K over panels of codes side by side. */
struct panel_walk {
	struct kb *k;
	const struct panel *panel;
	int lanes, vectors;
	struct kb_val at;     /* where the first panel begins */
	struct kb_val lo, hi; /* elements of K; lo a multiple of the unit, hi as well or the end */
	bool is_part;         /* they may be less than all */
	/* Emits what becomes of n neighbours from element `from` on; panel_walk_vector gives their weights. */
	void (*line)(void *user, const struct panel_walk *w, struct kb_val from, int n);
	void *user;
	/* What is open while `line` runs. */
	struct kb_val section; /* its address */
	bool is_first; /* nobody saw this line before; `position` elements of K are in the lines before it */
	struct kb_val position;
	struct kb_val word;  /* of the line, from the section's beginning on */
	struct kb_val alone; /* the one element, at no line; or none */
	int half;
	struct kb_val scale[TILE_ACC_MAX], offset[TILE_ACC_MAX], codes[TILE_ACC_MAX];
};
void panel_walk(struct panel_walk *w);
/* Vector v of neighbour i, f32. */
struct kb_val panel_walk_vector(const struct panel_walk *w, int i, int v);

#endif
