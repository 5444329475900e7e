/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensor IR in SSA form: modules, weights, states, functions, regions, ops, values. Only the builder
 * (ir/core/build.h) creates ops, and a finished function is const. A module owns one arena with everything it
 * points to.
 *
 *   module "aren"
 *   dim B in [1,8]
 *   dim S in [1,128]
 *   weight @encoder.tok.weight : f32[51,32] = tensor "model.safetensors":"encoder/embeddings/weight" f32[51,32]
 *   state @decoder.self.k : f32[B,6,8,128,4] #row
 *   func @encode(%src: i32[B,S] {below=51 lengths=%lengths}, %lengths: i32[B] {default=S max=S})
 *       -> (memory: f32[B,S,32]) {
 *     ...
 *   }
 */
#ifndef TFMC_IR_CORE_MODULE_H
#define TFMC_IR_CORE_MODULE_H

#include "ir/core/op.h"
#include "ir/support/diag.h"
#include "ir/support/strmap.h"
#include "ir/weights/weight.h"

/* An SSA value of a function. Ids count from 1 in order of definition; 0 is no value. */
struct ir_value {
	uint32_t id;
};
#define IR_NO_VALUE ((struct ir_value){0})

/* Nesting depth of regions. */
#define IR_DEPTH_MAX 16

/* Source location of an op, and the path of the model step it was made for ("encoder.layers.self"). */
struct ir_loc {
	struct loc at;
	const char *path; /* may be NULL */
};

/* Storage layout of weights and states. It never changes results: replacing every encoding by ENC_ROW leaves a valid,
 * equivalent module. */
enum ir_encoding {
	ENC_ROW, /* row-major */
	ENC_PANEL16, /* packed panels: matrices [N, K] as [ceil(N/16)][K][16], zero padded (weights) or with undefined
	                padding (states); leading axes outside */
};
const char *ir_encoding_name(enum ir_encoding e); /* "row", "panel16" */

struct ir_weight {
	const char *name;           /* canonical parameter path without repeat indices */
	const struct ir_type *type; /* constant dims; leading axes are repeat indices */
	enum ir_encoding encoding;
	/* Storage format of f32 elements that it represents exactly, so it changes no value; PLAIN: stored as `type`.
	 * Quantized formats are stored in panels only. */
	enum ir_format format;
	const struct ir_wexpr *init; /* NULL: no value (IR text without data) */
	struct ir_loc loc;
};

/* The format that elements are stored in: w->format, but PLAIN for quantized formats outside of panels. */
enum ir_format ir_weight_stored_format(const struct ir_weight *w);

/* Memory that persists between calls (KV cache). Axis 0 is the batch dim, so the memory of a sequence is one block. */
struct ir_state_decl {
	const char *name;
	const struct ir_type *type;
	struct ir_loc loc;
	enum ir_encoding encoding; /* PANEL16: of the matrices of the last two axes */
};

struct ir_region {
	struct ir_value *args;
	size_t n_args;
	struct ir_op **ops; /* the last one is the terminator */
	size_t n_ops;
	struct ir_op *owner;      /* NULL: the body of a function */
	struct ir_region *parent; /* the region that contains the owner; NULL: the body of a function */
};

struct ir_op {
	enum ir_opcode code;
	struct ir_loc loc;
	const struct ir_value *operands; /* absent optional operands have id 0; variadic operands are last */
	size_t n_operands;
	const struct ir_value *results;
	size_t n_results;
	const void *attrs;        /* const struct attrs_<op> * */
	struct ir_region *region; /* repeat, group */
};

/* repeat: region args are the index (i32[]) and then one per carry. */
#define REPEAT_INDEX 0

struct ir_value_info {
	const struct ir_type *type;
	const char *name;               /* hint without %, may be NULL; printed names are made unique */
	const struct ir_op *def;        /* NULL: an argument of a function or region */
	const struct ir_region *region; /* the region that defines it */
	unsigned index;                 /* index among the results of def, or the arguments */
};

enum ir_param_role {
	ROLE_INPUT, /* given by the caller */
	ROLE_PAST,  /* i32[B]: number of tokens in the state of each sequence, stored by the object */
};

struct ir_param {
	const char *name;
	struct ir_value value;
	struct ir_loc loc;
	enum ir_param_role role;
	int64_t below;    /* > 0: ids are checked at entry, 0 <= id < below */
	int lengths;      /* index of the parameter i32[B] with the valid lengths along axis 1; -1: none */
	bool has_default; /* the caller may omit it; it is then filled with: */
	const struct ir_dim *default_value; /* the value of this dim, or if NULL: */
	double fill;                        /* 0 or 1 of bool, else a float of the type */
	const struct ir_dim *max; /* values are checked at entry to be in [0, max]; NULL: no check */
};

struct ir_result {
	const char *name;        /* output name; NULL for states and ROLE_PAST */
	enum ir_param_role role; /* ROLE_PAST: new number of tokens of each sequence */
	int lengths;             /* index of the parameter with the valid lengths along axis 1; -1: none */
};

enum ir_relation { IR_EQUAL, IR_AT_MOST };

/* Condition of a case: `S = 1` (dim is a symbol, which the case binds), `B*S <= 14`. */
struct ir_condition {
	const struct ir_dim *dim;
	enum ir_relation relation;
	int64_t value;
};

/*
 * A case is a specialization of a function, its base, for calls whose dims fulfil all conditions; symbols with `=
 * value` are replaced by constants. The cases of a base are tried in order of definition.
 */
struct ir_case {
	const char *of; /* name of the base */
	const struct ir_condition *conditions;
	size_t n;
};

struct ir_func {
	const char *name;
	const struct ir_case *when; /* NULL: not a case */
	struct ir_param *params;    /* tensors, then states */
	size_t n_params;
	struct ir_result *results; /* one per operand of the return op */
	size_t n_results;
	struct ir_region *body;
	struct ir_value_info *values; /* [n_values], values[0] unused */
	size_t n_values, cap_values;
	const struct ir_dim *arena; /* stage plan: bytes; NULL before */
	struct ir_loc loc;
};

enum ir_stage { STAGE_GRAPH, STAGE_GROUPS, STAGE_PLAN };

struct ir_module {
	struct arena arena;
	const char *name; /* prefix of all symbols of the object */
	enum ir_stage stage;
	struct ir_dims *dims;
	struct ir_types *types;
	struct strmap strings;
	uint32_t tir_source; /* the .tir it was parsed from, whose locations are not printed; 0: none */
	struct strmap weight_names, state_names, func_names;
	struct {
		struct ir_weight **items;
		size_t n, cap;
	} weights;
	struct {
		struct ir_state_decl **items;
		size_t n, cap;
	} states;
	struct {
		struct ir_func **items;
		size_t n, cap;
	} funcs;
};

/* NULL without memory. */
struct ir_module *ir_module_create(const char *name);
void ir_module_destroy(struct ir_module *m);
/* A module with the name, dims (same symbol indices) and states of `m`, without weights and functions. NULL without
 * memory. */
struct ir_module *ir_module_create_like(const struct ir_module *m);

const struct ir_weight *ir_find_weight(const struct ir_module *m, const char *name);
/* False after a diagnostic if the weight has no expression (IR text may omit it). */
bool ir_weight_has_value(struct diag_context *cx, const struct ir_weight *w);
const struct ir_state_decl *ir_find_state(const struct ir_module *m, const char *name);
const struct ir_func *ir_find_func(const struct ir_module *m, const char *name);
/* Adds a copy of w to m. If m has a weight of that name, returns it if equal in type, encoding, format and init, else
 * NULL. */
const struct ir_weight *ir_add_weight(struct ir_module *m, const struct ir_weight *w);
/* Adds a state. If m has one of that name, returns it if it has that type, else NULL. */
const struct ir_state_decl *ir_add_state(struct ir_module *m, const char *name, const struct ir_type *type,
                                         struct ir_loc loc);
/* Sets the type of a state that no function uses yet. False if m has no state of that name. */
bool ir_set_state_type(struct ir_module *m, const char *name, const struct ir_type *type);
/* Sets the encoding of a state. False if m has no state of that name. */
bool ir_set_state_encoding(struct ir_module *m, const char *name, enum ir_encoding encoding);
/* The dim of another table, rebuilt in t, which declares the same symbols in the same order; NULL if d has a symbol
 * that t lacks. */
const struct ir_dim *ir_dim_import(struct ir_dims *t, const struct ir_dim *d);
/* Dims and types of another module with the same symbols, rebuilt in m; NULL if not possible. */
const struct ir_dim *ir_import_dim(struct ir_module *m, const struct ir_dim *d);
const struct ir_type *ir_import_type(struct ir_module *m, const struct ir_type *t);
/* loc with its path interned in m. */
struct ir_loc ir_import_loc(struct ir_module *m, struct ir_loc loc);

/* Appends `%name` or `@name`; quoted unless it is letters, digits, `_` and `.`, beginning with a letter or `_`. */
void ir_print_name(struct buf *out, char sigil, const char *name);
/* Appends `f32[B,S]` or `state @name`. */
void ir_type_print(struct buf *out, const struct ir_dims *dims, const struct ir_type *type);
/* The text of ir_type_print as a string in `a`; "" without memory. */
const char *ir_type_to_string(struct arena *a, const struct ir_dims *dims, const struct ir_type *type);

static inline const struct ir_value_info *ir_value_info(const struct ir_func *f, struct ir_value v)
{
	return &f->values[v.id];
}
static inline const struct ir_type *ir_type_of(const struct ir_func *f, struct ir_value v)
{
	return f->values[v.id].type;
}
/* The op that defines v, or NULL for arguments and IR_NO_VALUE. */
static inline const struct ir_op *ir_def(const struct ir_func *f, struct ir_value v)
{
	return f->values[v.id].def;
}
/* The op that defines v if it has this code, else NULL. */
static inline const struct ir_op *ir_def_as(const struct ir_func *f, struct ir_value v, enum ir_opcode code)
{
	const struct ir_op *op = ir_def(f, v);
	return op != NULL && op->code == code ? op : NULL;
}
/* The weight that v is a reference to, or NULL. */
static inline const struct ir_weight *ir_weight_of(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = ir_def_as(f, v, OP_weight);
	return op != NULL ? ((const struct attrs_weight *)op->attrs)->weight : NULL;
}
/* The root op of a group, which determines its kernel generator; NULL if the position is out of range. */
static inline const struct ir_op *ir_group_root(const struct ir_op *group)
{
	const struct attrs_group *a = group->attrs;
	return a->root >= 0 && (size_t)a->root < group->region->n_ops ? group->region->ops[a->root] : NULL;
}
/* The attribute of a after `after` (NULL: the first) by which the text decides on the loop nest of a linear: `mc` and
 * those that follow it, which no pass sets, where they differ from their defaults. NULL: none is left. */
const struct ir_attr_desc *ir_next_nest_attr(const struct attrs_group *a, const struct ir_attr_desc *after);
static inline bool ir_group_has_nest(const struct attrs_group *a)
{
	return ir_next_nest_attr(a, NULL) != NULL;
}
static inline bool ir_is_tensor(const struct ir_func *f, struct ir_value v)
{
	return ir_type_of(f, v)->kind == IR_TENSOR;
}
static inline bool ir_same_value(struct ir_value a, struct ir_value b)
{
	return a.id == b.id;
}

/*
 * Iterates over all ops of a region and its nested regions, in pre-order:
 * for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it)) .. it.op ..
 */
struct ir_iter {
	const struct ir_op *op; /* NULL at the end */
	struct {
		const struct ir_region *region;
		size_t at;
	} stack[IR_DEPTH_MAX + 1]; /* the outermost region first */
	int depth;
};
/* An iterator at the first op of r; its op is NULL if r has none. Then the next op. */
struct ir_iter ir_iter_begin(const struct ir_region *r);
void ir_iter_next(struct ir_iter *it);
typedef void ir_op_visitor(void *user, const struct ir_op *op);
/* Calls visit for all ops of a region and its nested regions, in pre-order. */
void ir_visit_ops(const struct ir_region *r, ir_op_visitor *visit, void *user);
/* uses[v.id]: number of operands in all regions that are v; those that are no value of f are left out. Array of
 * f->n_values in `a`; NULL without memory. */
uint32_t *ir_count_uses(struct arena *a, const struct ir_func *f);

#endif
