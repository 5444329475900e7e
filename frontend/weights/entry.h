/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One source of the weight map: where the numbers of a parameter come from and
 * how they are rearranged. Read from YAML once, then built into a weight
 * expression for each parameter that matches. Private to the weight map.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_ENTRY_H
#define TFMC_FRONTEND_WEIGHTS_ENTRY_H

#include "frontend/expr/expr.h"
#include "frontend/weights/files.h"
#include "frontend/weights/map.h"
#include "frontend/weights/pattern.h"
#include "ir/weights/weight.h"

enum weight_entry_kind { ENTRY_FROM, ENTRY_ANY, ENTRY_CONCAT, ENTRY_STACK };
enum weight_optional { OPTIONAL_NONE, OPTIONAL_ZEROS, OPTIONAL_ONES };

enum weight_step_kind {
	WEIGHT_INDEX,
	WEIGHT_SLICE,
	WEIGHT_SPLIT,
	WEIGHT_TRANSPOSE,
	WEIGHT_RESHAPE,
	WEIGHT_HALVES_TO_INTERLEAVED,
	WEIGHT_INTERLEAVED_TO_HALVES,
	WEIGHT_MUL,
	WEIGHT_DIV,
	WEIGHT_ADD,
};

struct weight_step {
	enum weight_step_kind kind;
	struct loc loc;
	int64_t axis;              /* index, slice, split */
	int64_t begin, end;        /* slice; split: part `begin` of `end`; index: begin */
	int64_t heads;             /* of the orders of rotary rows */
	int rank;                  /* reshape, transpose; transpose with rank 0: the last two axes */
	int64_t dims[IR_RANK_MAX]; /* reshape: the shape; transpose: where each axis comes from */
	double add;
	struct weight_template *name; /* mul, div: the tensor; index: `at: "{e}"` instead of begin */
};

struct weight_entry {
	enum weight_entry_kind kind;
	struct loc loc;
	struct weight_template *name;   /* ENTRY_FROM */
	const struct weight_entry **of; /* the others */
	size_t n_of;
	int64_t axis; /* ENTRY_CONCAT */
	struct {
		struct weight_step *items; /* what is done with it, in the order written */
		size_t n, cap;
	} steps;
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
