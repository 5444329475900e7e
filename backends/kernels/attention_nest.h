/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop nest of attention as a value: tiles, KV blocks, copies and buffers in scratch. attention_nest.c chooses it
 * from the shape, the operands, the group's attributes and the target before code is emitted; attention*.c emit the
 * loops that it describes. Levels, from the outermost:
 *
 *           rows: S queries of a group of heads    keys (T)             columns (V)
 *   task    task_rows
 *   block                                          bc
 *   tile    tile[].rows                            tile[].vectors       tile[].value_vectors
 *   vector                                         lanes                lanes
 */
#ifndef TFMC_BACKENDS_KERNELS_ATTENTION_NEST_H
#define TFMC_BACKENDS_KERNELS_ATTENTION_NEST_H

#include "backends/kb/kb.h"
#include "ir/core/module.h"
#include "ir/support/buf.h"
#include "ir/target/tile.h"

#define ATTENTION_LANES_MAX   16
#define ATTENTION_TILES_MAX   3
#define ATTENTION_MAX_VECTORS 4 /* of running maxima */

/* An operand [B,H,S,E] in memory; of scales E is 1. */
struct attention_operand {
	bool is_on;      /* false: the attention has none */
	bool has_panels; /* keys in panels of 16, as a cache may have them */
	enum ir_dtype dtype;
	int64_t row, element; /* elements between neighbours on S, and on E; -1: known in the call only */
	int64_t ring;         /* rows of a ring buffer; 0: none */
};

/* The attention that a nest is chosen for. */
struct attention_shape {
	const struct target *target;
	struct kb_caps caps;             /* of the target */
	const struct attrs_group *attrs; /* blocks, split and scratch: attributes of the group */
	int64_t size, value_size;        /* E, V */
	int64_t queries;                 /* query heads of a key head; 0: known in the call only */
	int64_t rows; /* of a key head, S times queries; INT64_MAX: known in the call only */
	struct attention_operand q, key, value, bias, k_scale, v_scale, out;
	bool rows_differ; /* in the keys they see */
	bool has_softcap;
	bool rounds_factors; /* of both products to bf16 */
	bool has_lengths;    /* of a padded batch */
	bool shares_rows;    /* several work-items compute a task */
};

/* Both products: f32; bf16 pairs of elements (of keys, in P V) in words by dot products of pairs; these by AMX. */
enum attention_product { ATTENTION_F32, ATTENTION_BF16_PAIRS, ATTENTION_AMX };

/* Register tile of `rows` rows. */
struct attention_row_tile {
	int rows;
	int64_t left_max; /* rows that are left: the lowest tile that serves as many is taken */
	int vectors;      /* of keys: full panels; those that are left one by one */
	int value_vectors, value_remainder; /* of columns of values; of the last columns, 0: none are left */
	/* Prefetch distance in rows of memory: of `vectors` of keys, of a panel that is left, of values. 0: none. */
	int64_t keys_ahead, panel_ahead, values_ahead;
};

struct attention_nest {
	enum attention_product product;
	int lanes; /* of a vector */
	int x_lanes; /* elements that are loaded as a vector and multiplied by element (NEON); 1: each is broadcast */
	int mr;            /* rows of the main register tile */
	int64_t bc;        /* keys of a KV block */
	int64_t task_rows; /* at most: full main tiles */
	int n_tiles;
	struct attention_row_tile tile[ATTENTION_TILES_MAX]; /* that calls can need, by decreasing rows */
	/* Keys that register tiles read: f32 or words of pairs of scratch, or the panels of the cache, converted in
	 * registers. */
	struct {
		bool is_packed;
		enum ir_dtype dtype;
		int64_t k_rows; /* of a panel */
	} keys;
	/* Values: full f32 vectors, or pairs, of scratch; or where they are stored. */
	struct {
		bool is_packed;
		enum ir_dtype dtype;
		int64_t stride; /* elements between rows */
	} values;
	/* Elements that are loaded or stored at once; 1 where neighbours are not neighbours in memory. */
	int q_lanes, key_lanes, value_lanes, k_scale_lanes, v_scale_lanes, bias_lanes, out_lanes;
	bool is_bias_broadcast; /* along keys: loaded once for a vector of them */
	/* Softmax of a row: vectors of running maxima, which hide the latency of max; keys of a step, to which the
	 * keys of a tile are rounded up. */
	int max_vectors, score_step;
	bool masks_acc; /* masked keys: by masked multiply-adds of mask registers; else their values become 0 */
	bool has_edges;     /* keys that only some rows of a tile see have code of their own */
	bool is_one_run;    /* keys of a block, its values and the next keys are prefetched as one run */
	bool skips_padding; /* only rows below the lengths are computed */
	int64_t split; /* KV blocks of a head that work-groups may divide, with slots in memory of the call */
	struct attention_slots slots;
	int64_t size_pad, value_pad; /* E and V rounded up to 16 */
	struct target_attention_scratch at;
	char rejection[128]; /* which attribute of the group cannot be met, and its bound */
};

/* False: n->rejection says which attribute cannot be met. */
bool attention_nest_choose(const struct attention_shape *s, struct attention_nest *n);
/* Appends the nest in words, of one line: rows and keys, tiles, then keys, values and scores. */
void attention_nest_print(const struct attention_nest *n, struct buf *out);
/* Slots of work-groups in memory of the call, for one token of `queries` query heads. */
struct attention_slots attention_group_slots(int64_t queries, int64_t value_size);

#endif
