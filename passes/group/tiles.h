/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of tiles (--tiles): sizes that a person wants instead of those of the
 * model of ir/target/tile.h.
 *
 *   tiles 1
 *   # kind    target     k     n  rows  sizes
 *   linear    x86-64-v4  768   *  *     mr=12 nr=32
 *   linear    *          *     *  8     mr=8
 *   attention *          64    64 *     br=64 bc=256
 *
 * k and n are the depth and columns of a linear, the features of queries and of
 * values of an attention. rows: the kernel never has more rows (of queries) than
 * this. `*` fits everything. For each size the first line that fits and names it
 * counts; what no line names is chosen by the model.
 */
#ifndef TFMC_PASSES_GROUP_TILES_H
#define TFMC_PASSES_GROUP_TILES_H

#include "ir/core/module.h"
#include "ir/target/tile.h"

enum tile_size { TILE_MR, TILE_NR, TILE_KC, TILE_BR, TILE_BC, N_TILE_SIZES };

struct tile_line {
	struct loc loc;
	int kind;                   /* enum ir_keyword_group */
	const char *target;         /* NULL: all */
	int64_t k, n, rows;         /* -1: all */
	int64_t size[N_TILE_SIZES]; /* 0: not named */
};
struct panel_row_count {
	struct tile_line *items;
	size_t n, cap;
};

/*
 * Reads a file; lines for other targets are read but kept out of *out. Located TILES diagnostics for what
 * cannot be read and for sizes that `target` cannot have; TFMC_INVALID then.
 */
TFMC_MUST_USE enum tfmc_status tiles_read(struct arena *a, struct diag_context *cx,
                                          const struct target *target, const char *name, const char *text,
                                          size_t len, struct panel_row_count *out);
/* The size that a group of this kind gets; 0: no line says so. */
int64_t tiles_find(const struct panel_row_count *t, int kind, int64_t k, int64_t n, int64_t rows,
                   enum tile_size size);
/* k, n and rows of a group, as the lines mean them. False for kinds without tiles. */
bool tiles_key(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group, int64_t *k,
               int64_t *n, int64_t *rows);
/* The sizes of a group after select as a line names them, 0: not; k: of tiles_key. size: [N_TILE_SIZES] */
void tiles_of(const struct ir_op *group, int64_t k, int64_t *size);
/* ` mr=6 nr=16`: those that are named. */
void tiles_print_sizes(struct buf *out, const int64_t *size);
/* The tiles of all groups of a module after select, as such a file. */
void tiles_print(struct buf *out, const struct ir_module *m, const struct target *target);

#endif
