/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One source of the weight map: where the numbers of a parameter come from and
 * how they are rearranged. Read from YAML once, then built into a weight
 * expression for each parameter that matches. Private to the weight map.
 */
#ifndef TFMC_FRONTEND_WEIGHT_ENTRY_H
#define TFMC_FRONTEND_WEIGHT_ENTRY_H

#include "frontend/expr.h"
#include "frontend/weight_files.h"
#include "frontend/weight_map.h"
#include "frontend/weight_pattern.h"
#include "ir/weight.h"

enum weight_entry_kind { ENTRY_FROM, ENTRY_ANY, ENTRY_CONCAT, ENTRY_STACK };
enum weight_permute { PERMUTE_NONE, PERMUTE_HALVES_TO_INTERLEAVED, PERMUTE_INTERLEAVED_TO_HALVES };
enum weight_optional { OPTIONAL_NONE, OPTIONAL_ZEROS, OPTIONAL_ONES };

struct weight_entry {
	enum weight_entry_kind kind;
	struct loc loc;
	struct weight_template *name;   /* ENTRY_FROM */
	const struct weight_entry **of; /* the others */
	size_t n_of;
	int64_t axis; /* ENTRY_CONCAT */
	/* Then, in this order; a member that is absent changes nothing. */
	bool has_index, has_slice, has_split, transpose, has_reshape, has_add;
	int64_t index_axis, index_at;
	struct weight_template *index_template; /* `at: "{e}"`, instead of index_at */
	int64_t slice_axis, slice_begin, slice_end;
	int64_t split_axis, split_part, split_of;
	int reshape_rank;
	int64_t reshape_dims[IR_RANK_MAX];
	enum weight_permute permute;
	int64_t permute_heads;
	struct weight_template *mul, *div; /* tensor names */
	double add;
	enum weight_optional optional;
};

struct weight_entry_reader {
	struct arena *arena;
	struct diag_context *cx;
	const struct expr_env *env;
	struct weight_templates templates; /* collects all templates of the entry */
	unsigned depth;
};

/* NULL after a diagnostic. */
const struct weight_entry *weight_entry_read(struct weight_entry_reader *r, const struct yaml_node *node);

struct weight_build {
	struct arena *arena;
	struct diag_context *cx;
	struct weight_files *files;
	const struct weight_captures *captures;
	const struct weight_want *want;
	const char *missing; /* first tensor name that no file has */
};

/* All names exist. Sets missing when not. */
bool weight_entry_exists(struct weight_build *b, const struct weight_entry *e);
/* The expression of an entry whose names exist; marks its tensors used. NULL after a diagnostic. */
const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e);
/* "[32, 64]" */
const char *weight_shape_text(struct arena *a, int rank, const int64_t *dims);

#endif
