/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tile files (--tiles): overrides of the tile sizes that ir/target/tile.h computes.
 *
 *   tiles 1
 *   # kind    target     k     n  rows  sizes
 *   linear    x86-64-v4  768   *  *     mr=12 nr=32
 *   linear    *          *     *  8     mr=8
 *   attention *          64    64 *     br=64 bc=256
 *
 * k and n: depth and columns of a linear; features of queries and of values of an attention. rows: maximum number
 * of rows (of queries). `*` matches everything. Each size comes from the first line that matches and names it;
 * sizes that no line names are computed.
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
	int64_t size[N_TILE_SIZES]; /* 0: not given */
};
struct tile_file {
	struct tile_line *items;
	size_t n, cap;
};

/*
 * Parses a tile file. *out gets the lines for `target`; other lines are only checked. TFMC_INVALID after located
 * TILES diagnostics for syntax errors and for sizes that `target` cannot have.
 */
TFMC_MUST_USE enum tfmc_status tiles_read(struct arena *a, struct diag_context *cx,
                                          const struct target *target, const char *name, const char *text,
                                          size_t len, struct tile_file *out);
/* Size for a group of this kind and key; 0: no line gives one. */
int64_t tiles_find(const struct tile_file *t, int kind, int64_t k, int64_t n, int64_t rows,
                   enum tile_size size);
/* Key of a group: its k, n and maximum of rows. False for kinds without tiles. */
bool tiles_key(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group, int64_t *k,
               int64_t *n, int64_t *rows);
/* Sizes of a group after select, as a line gives them (0: not given). k: from tiles_key. size: [N_TILE_SIZES] */
void tiles_of(const struct ir_op *group, int64_t k, int64_t *size);
/* Prints the given sizes: ` mr=6 nr=16`. */
void tiles_print_sizes(struct buf *out, const int64_t *size);
/* Prints the tiles of all groups of a module after select as a tile file (--emit-tiles). */
void tiles_print(struct buf *out, const struct ir_module *m, const struct target *target);

#endif
