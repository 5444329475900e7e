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

struct weight_entry_reader;
struct weight_build;
struct weight_entry;

/* A key of a source: how its value is read, and what it makes of the source before it (NULL after a diagnostic, or
 * too deep). Keys that are no step say where the numbers come from; x is NULL then. */
struct weight_op {
	const char *key;
	const char *doc;         /* its value, and what it does */
	enum ir_wexpr_kind kind; /* what it becomes; permute: or WX_ROPE_I2H */
	bool is_step;
	bool (*read)(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e);
	const struct ir_wexpr *(*apply)(struct weight_build *b, const struct weight_entry *e,
	                                const struct ir_wexpr *x);
};
#define WEIGHT_N_STEPS 9
extern const struct weight_op weight_steps[WEIGHT_N_STEPS];

struct weight_entry {
	const struct weight_op *op;
	enum ir_wexpr_kind kind;
	struct loc loc;
	const struct weight_entry **of; /* of a step the one before it; of any, concat, stack their lists */
	size_t n_of;
	const struct weight_template
	        *name;             /* from, mul, div: the tensor; index: `at: "{e}"` instead of begin */
	int64_t axis;              /* index, slice, split, concat */
	int64_t begin, end;        /* slice; split: part `begin` of `end`; index: begin */
	int64_t heads;             /* of the orders of rotary rows */
	int rank;                  /* reshape, transpose; transpose with rank 0: the last two axes */
	int64_t dims[IR_RANK_MAX]; /* reshape: the shape; transpose: where each axis comes from */
	double add;
};

enum weight_optional { OPTIONAL_NONE, OPTIONAL_ZEROS, OPTIONAL_ONES };

struct weight_entry_reader {
	struct arena *arena;
	struct diag_context *cx;
	const struct expr_env *env;
	struct weight_templates templates; /* collects all templates of the entry */
	enum weight_optional optional;
	unsigned depth;
};

/* ---- reading: false or NULL after a diagnostic ---- */
bool weight_fail(const struct weight_entry_reader *r, struct loc loc, const char *what);
const struct weight_template *weight_read_name(struct weight_entry_reader *r, const struct yaml_node *node,
                                               const char *what);
struct weight_int {
	const char *key;
	int64_t *out; /* NULL: has to be there, and is read elsewhere */
};
/* A mapping with exactly these integer keys, at most 4. */
bool weight_read_ints(const struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      const struct weight_int *members, size_t n);
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
/* The stored tensor that the entry names when it is one as it is stored, else NULL. */
struct stored_tensor *weight_entry_tensor(struct weight_build *b, const struct weight_entry *e);
/* The expression of an entry whose names exist; marks its tensors used. NULL after a diagnostic. */
const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e);
/* The stored tensor of a name, as it is meant; marks it used. */
const struct ir_wexpr *weight_tensor(struct weight_build *b, const char *name, struct loc loc);
const struct ir_wexpr *weight_leaf(struct weight_build *b, const struct weight_template *t);
/* Axis i of the result is axis from[i]. */
const struct ir_wexpr *weight_permute_axes(struct arena *a, const struct ir_wexpr *x, const int64_t *from);
/* "[32, 64]" */
const char *weight_shape_text(struct arena *a, int rank, const int64_t *dims);

#endif
