/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage of the IR: module, weights, states, functions, regions, ops, values.
 * Only the builder (ir/builder/build.h) creates ops; everything is const once a function is finished. A module
 * owns one arena; destroying it is one call.
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
#include "ir/diag/diag.h"
#include "ir/support/strmap.h"
#include "ir/weights/weight.h"

/* A value of a function; id 0 is no value. Ids count from 1 in order of definition. */
struct ir_value {
	uint32_t id;
};
#define IR_NO_VALUE ((struct ir_value){0})

/* Regions within regions. */
#define IR_DEPTH_MAX 16

/* Where an op comes from: a place in a source text and the path of the step ("encoder.layers.self"). */
struct ir_loc {
	struct loc at;
	const char *path; /* may be NULL */
};

/* Storage encodings of weights and state. Erasing every encoding leaves a valid module with the same results.
 */
enum ir_encoding {
	ENC_ROW,     /* row-major */
	ENC_PANEL16, /* matrices [N, K] as panels of 16 rows of N: [ceil(N/16)][K][16], zero padded; leading
	                axes outside. Of a state: rows that nobody wrote mean nothing */
};
const char *ir_encoding_name(enum ir_encoding e); /* "row", "panel16" */

struct ir_weight {
	const char *name;           /* canonical parameter path; repeat indices left out */
	const struct ir_type *type; /* constant dims; leading axes are repeat indices */
	enum ir_encoding encoding;
	/* What the elements, f32, are numbers of and lie in memory as; PLAIN: as `type` says. Codes lie in panels
	 * only. Like encodings it changes no value. */
	enum ir_format format;
	const struct ir_wexpr *init;
	struct ir_loc loc;
};

/* What the elements lie in memory as: the format, but for codes that are not in panels. */
enum ir_format ir_weight_stored_format(const struct ir_weight *w);

/*
 * Memory that outlives a call. Axis 0 is always the batch dim (its symbol), so
 * that the memory of one sequence is one block.
 */
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
	struct ir_region *parent; /* the region that holds the owner; NULL: the body of a function */
};

struct ir_op {
	enum ir_opcode code;
	struct ir_loc loc;
	const struct ir_value
	        *operands; /* optional operands that are absent have id 0; variadic ones at the end */
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
	const char *name;               /* hint without the %, may be NULL; printed names are made unique */
	const struct ir_op *def;        /* NULL: an argument of a function or region */
	const struct ir_region *region; /* the region whose argument or op result it is */
	unsigned index;                 /* which result or argument */
};

enum ir_param_role {
	ROLE_INPUT, /* given by the caller */
	ROLE_PAST,  /* i32[B]: tokens already in the state of each sequence, kept by the object */
};

struct ir_param {
	const char *name;
	struct ir_value value;
	struct ir_loc loc;
	enum ir_param_role role;
	int64_t below;    /* > 0: 0 <= id < below is checked at entry */
	int lengths;      /* parameter i32[B] that says how many leading positions are real; -1: none */
	bool has_default; /* may be left out: filled with this value */
	const struct ir_dim *default_value;
	double fill; /* the value when default_value is NULL; 0 or 1 of bool, else a float that the type holds
	              */
	const struct ir_dim *max; /* values are checked to be in [0, max]; NULL: no check */
};

struct ir_result {
	const char *name;        /* output name; NULL for state and roles */
	enum ir_param_role role; /* ROLE_PAST: new past length of each sequence */
	int lengths;             /* parameter with the lengths of its axis 1, -1: none */
};

enum ir_relation { IR_EQUAL, IR_AT_MOST };

/* One condition of a case: `S = 1` (dim is a symbol, which the case binds), `B*S <= 14`. */
struct ir_condition {
	const struct ir_dim *dim;
	enum ir_relation relation;
	int64_t value;
};

/*
 * What makes a function a case of another one, its base: the same function with
 * some symbols bound, which serves the calls for whose dims all conditions hold.
 * Cases of one base are tried in the order of the text.
 */
struct ir_case {
	const char *of; /* name of the base */
	const struct ir_condition *conditions;
	size_t n;
};

struct ir_func {
	const char *name;
	const struct ir_case *when; /* NULL: no case */
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
	uint32_t tir_source; /* the .tir this module was parsed from; such locations are not printed. 0: none
	                      */
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

/* NULL when memory ran out. */
struct ir_module *ir_module_create(const char *name);
void ir_module_destroy(struct ir_module *m);
/* An empty module with the same name, dims (same symbol numbers) and states as `m`; weights and functions are
 * not copied. */
struct ir_module *ir_module_create_like(const struct ir_module *m);

const struct ir_weight *ir_find_weight(const struct ir_module *m, const char *name);
/* IR text may leave out what a weight is made of: false after a diagnostic at its place. */
bool ir_weight_has_value(struct diag_context *cx, const struct ir_weight *w);
const struct ir_state_decl *ir_find_state(const struct ir_module *m, const char *name);
const struct ir_func *ir_find_func(const struct ir_module *m, const char *name);
/* Adds, or returns the one of that name if equal in type, encoding, narrowness and init (else NULL). Copies
 * what it is given into m. */
const struct ir_weight *ir_add_weight(struct ir_module *m, const struct ir_weight *w);
const struct ir_state_decl *ir_add_state(struct ir_module *m, const char *name, const struct ir_type *type,
                                         struct ir_loc loc);
/* Says how a state of m is stored. False: m has no state of that name. */
bool ir_set_state_encoding(struct ir_module *m, const char *name, enum ir_encoding encoding);
/* Types and dims of another module, made again in m (m has the same dim symbols). */
/* A dim of another table that declares the same symbols in the same order; NULL: it has more. */
const struct ir_dim *ir_dim_import(struct ir_dims *t, const struct ir_dim *d);
const struct ir_dim *ir_import_dim(struct ir_module *m, const struct ir_dim *d);
const struct ir_type *ir_import_type(struct ir_module *m, const struct ir_type *t);
/* A location whose path lives in m. */
struct ir_loc ir_import_loc(struct ir_module *m, struct ir_loc loc);

/* `%name` or `@name`; quoted when it is not letters, digits, `_` and `.`, beginning with a letter or `_`. */
void ir_print_name(struct buf *out, char sigil, const char *name);
/* `f32[B,S]`, `state @name`. */
void ir_type_print(struct buf *out, const struct ir_dims *dims, const struct ir_type *type);
/* The same as a text in `a`. */
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
/* That op when it has this code, else NULL. */
static inline const struct ir_op *ir_def_as(const struct ir_func *f, struct ir_value v, enum ir_opcode code)
{
	const struct ir_op *op = ir_def(f, v);
	return op != NULL && op->code == code ? op : NULL;
}
/* The weight that v is, or NULL. */
static inline const struct ir_weight *ir_weight_of(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = ir_def_as(f, v, OP_weight);
	return op != NULL ? ((const struct attrs_weight *)op->attrs)->weight : NULL;
}
/* The op of a group that its template is for, or NULL: it has none. */
static inline const struct ir_op *ir_group_root(const struct ir_op *group)
{
	const struct attrs_group *a = group->attrs;
	return a->root >= 0 && (size_t)a->root < group->region->n_ops ? group->region->ops[a->root] : NULL;
}
static inline bool ir_same_value(struct ir_value a, struct ir_value b)
{
	return a.id == b.id;
}

/*
 * Every op of a region, outer before inner, in order:
 * for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it)) .. it.op ..
 */
struct ir_iter {
	const struct ir_op *op; /* NULL: there is none left */
	struct {
		const struct ir_region *region;
		size_t at;
	} stack[IR_DEPTH_MAX + 1]; /* from the region on */
	int depth;
};
struct ir_iter ir_iter_begin(const struct ir_region *r);
void ir_iter_next(struct ir_iter *it);
/* The same with a call for every op. */
typedef void ir_op_visitor(void *user, const struct ir_op *op);
void ir_visit_ops(const struct ir_region *r, ir_op_visitor *visit, void *user);
/* uses[v.id]: number of operands (in all regions) that name v; array of f->n_values in `a`. */
uint32_t *ir_count_uses(struct arena *a, const struct ir_func *f);

#endif
