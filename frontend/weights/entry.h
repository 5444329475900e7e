/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources of the weight map: the tensors and rearrangements that a parameter is made of. An entry is read
 * from YAML once and builds a weight expression for each parameter that matches. Private to the weight map.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_ENTRY_H
#define TFMC_FRONTEND_WEIGHTS_ENTRY_H

#include "frontend/syntax/expr.h"
#include "frontend/weights/files.h"
#include "frontend/weights/map.h"
#include "frontend/weights/pattern.h"
#include "ir/weights/weight.h"

struct weight_entry_reader;
struct weight_build;
struct weight_entry;

/* A key of a source: an origin (from, any, concat, stack) or a step that transforms the source before it. */
struct weight_op {
	const char *key;
	const char *doc;         /* its value and effect, for the reference */
	enum ir_wexpr_kind kind; /* kind of the expression; permute may also make WX_ROPE_I2H */
	bool is_step;
	bool (*read)(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e);
	const struct ir_wexpr *(*apply)(struct weight_build *b, const struct weight_entry *e,
	                                const struct ir_wexpr *x);
};

/* A node of a source: an origin or a step. */
struct weight_entry {
	const struct weight_op *op;
	enum ir_wexpr_kind kind;
	struct loc loc;
	const struct weight_entry **of; /* inputs: of a step the preceding entry; of any, concat, stack
					   their lists */
	size_t n_of;
	const struct weight_template
	        *name;             /* from, mul, div: name of the tensor; index: `at: "{e}"` instead of
				      begin */
	int64_t axis;              /* index, slice, split, concat */
	int64_t begin, end;        /* slice; split: piece `begin` of `end`; index: begin */
	int64_t heads;             /* permute: number of heads */
	int rank;                  /* reshape, transpose; transpose with rank 0: swap the last two axes,
				      -1: identity */
	int64_t dims[IR_RANK_MAX]; /* reshape: the shape; transpose: source axis of each axis */
	double add;
};

enum weight_optional { OPTIONAL_NONE, OPTIONAL_ZEROS, OPTIONAL_ONES };

/* State of reading one map entry. */
struct weight_entry_reader {
	struct arena *arena;
	struct diag_context *cx;
	const struct expr_env *env;
	struct weight_templates templates; /* all templates of the entry, for matching */
	enum weight_optional optional;
	unsigned depth;
};

/* Reads the source of a map entry; NULL after a diagnostic. */
const struct weight_entry *weight_entry_read(struct weight_entry_reader *r, const struct yaml_node *node);

/* Context of building the expression of one parameter. */
struct weight_build {
	struct arena *arena;
	struct diag_context *cx;
	struct weight_files *files;
	const struct weight_captures *captures;
	const struct parameter_request *request;
	const char *missing; /* first tensor name that no file contains */
};

/* True: all tensors of the entry exist; else sets b->missing. */
bool weight_entry_exists(struct weight_build *b, const struct weight_entry *e);
/* The stored tensor if the entry is a single tensor without steps, else NULL. */
struct stored_tensor *weight_entry_tensor(struct weight_build *b, const struct weight_entry *e);
/* Builds the expression of an entry whose tensors exist, and marks them used. NULL after a diagnostic. */
const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e);
/* Expression of a stored tensor in its logical shape; marks it used. NULL: no such tensor, or after a
 * diagnostic. */
const struct ir_wexpr *weight_tensor(struct weight_build *b, const char *name, struct loc loc);
/* "[32, 64]" */
const char *weight_shape_text(struct arena *a, int rank, const int64_t *dims);

#endif
