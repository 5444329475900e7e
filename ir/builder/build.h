/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only way to create functions and ops. The builder infers result types
 * (infer.c), folds trivial ops, and merges equal pure ops within a region.
 * The first mistake is reported as a diagnostic (IR_TYPE, SHAPE or DTYPE, at the
 * current location) and remembered; later calls are harmless and return
 * IR_NO_VALUE. irb_finish tells.
 */
#ifndef TFMC_IR_BUILDER_BUILD_H
#define TFMC_IR_BUILDER_BUILD_H

#include "ir/core/module.h"

/* Operands and results of one op. */
#define BUILD_LIST_MAX 1024

struct ir_builder; /* allocated in the module's arena */

/* Begins a function. The location is the current one for what follows. */
struct ir_builder *irb_begin(struct ir_module *m, struct diag_context *cx, const char *name,
                             struct ir_loc loc);
struct ir_module *irb_module(const struct ir_builder *b);
const struct ir_func *irb_func(const struct ir_builder *b);
bool irb_failed(const struct ir_builder *b);
/* Location of the ops built from now on. */
void irb_set_loc(struct ir_builder *b, struct ir_loc loc);
/* Turns folding and merging off (parser: text stays as written). */
void irb_set_literal(struct ir_builder *b, bool literal);

/*
 * Makes the function a case. Dims of parameters and ops that are cloned from now on have its symbols bound.
 * Copies what it is given; once for a function, before its parameters.
 */
void irb_case(struct ir_builder *b, const struct ir_case *c);
/* The same dims are bound, but the function is no case: its symbols have these values in all calls. */
void irb_bind_dims(struct ir_builder *b, const struct ir_case *c);
/* Parameters, before any op. `p` gives everything but value; p->name becomes the value's name. */
struct ir_value irb_param(struct ir_builder *b, const struct ir_param *p, const struct ir_type *type);
/* Hint for the printed name, when the value has none. */
void irb_name(struct ir_builder *b, struct ir_value v, const char *name);
const struct ir_type *irb_type(const struct ir_builder *b, struct ir_value v);

/*
 * The general call: operands in table order (optional absent: IR_NO_VALUE), attributes or NULL for the
 * defaults. `results` receives n_results values (1 for most ops; weight 1, state_append 2, state_read 2).
 */
void irb_op(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands, size_t n_operands,
            const void *attrs, struct ir_value *results, size_t n_results);
/* As irb_op for ops with one result. */
struct ir_value irb_op1(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                        size_t n_operands, const void *attrs);

/* Regions: begin gives the region's arguments (repeat: index, then one per init). */
void irb_repeat_begin(struct ir_builder *b, int64_t count, const struct ir_value *init, size_t n_init,
                      struct ir_value *args /* [1 + n_init] */);
/* Ends the innermost region with a yield and gives the results of its op. */
void irb_repeat_end(struct ir_builder *b, const struct ir_value *yields, size_t n, struct ir_value *results);
/* group: ops built until the end are inside; any value from outside may be used. attrs->root names the root
 * op. */
void irb_group_begin(struct ir_builder *b);
void irb_group_end(struct ir_builder *b, const struct attrs_group *attrs, const struct ir_value *yields,
                   size_t n, struct ir_value *results);

/* Ends the function with a return. Adds it to the module, or reports that the builder failed. */
TFMC_MUST_USE enum tfmc_status irb_finish(struct ir_builder *b, const struct ir_value *values,
                                          const struct ir_result *results, size_t n,
                                          const struct ir_dim *arena);

/* ---- copies ---- */

/*
 * Copies op `op` of `from` with the operands replaced through map[id] (ids of
 * `from`), imported attributes (dims, weights) and its region (recursively),
 * and records the results in map. Names and locations are kept.
 */
void irb_clone(struct ir_builder *b, const struct ir_func *from, const struct ir_op *op,
               struct ir_value *map);
/* Declares the parameters of `from` again and records them in map; a function that is no case becomes the one
 * that `from` is. */
void irb_clone_params(struct ir_builder *b, const struct ir_func *from, struct ir_value *map);

/* A function that is copied op by op, some ops otherwise than irb_clone does. */
struct ir_copy {
	struct ir_builder *b;
	const struct ir_func *from;
	struct ir_value *map; /* [from->n_values] values of the new function */
	/* True when it did what is to be done for op; else op is cloned, a region inside it by the hook again. May be
	 * NULL. The location is that of op. */
	bool (*hook)(struct ir_copy *c, const struct ir_op *op);
	void *user;
};

/* All ops but the last one, which says what the region gives. */
void ir_copy_region(struct ir_copy *c, const struct ir_region *r);
/* What n values became. */
void ir_copy_values(const struct ir_copy *c, const struct ir_value *old, size_t n, struct ir_value *out);
/* now replaces old; it inherits its name. */
void ir_copy_set(struct ir_copy *c, struct ir_value old, struct ir_value now);
/* The repeat `op` with another count. */
void ir_copy_repeat(struct ir_copy *c, const struct ir_op *op, int64_t count);
/*
 * The repeat `op` with n >= op->n_operands carries, the first ones those of op: between the two calls what is
 * built is its body. args [1 + n] and results [n] are also recorded, as far as op has them.
 */
void ir_copy_repeat_begin(struct ir_copy *c, const struct ir_op *op, int64_t count,
                          const struct ir_value *init, size_t n, struct ir_value *args);
void ir_copy_repeat_end(struct ir_copy *c, const struct ir_op *op, const struct ir_value *yields, size_t n,
                        struct ir_value *results);
/* The group `op` with other attributes; what is inside stays as it is. */
void ir_copy_group(struct ir_copy *c, const struct ir_op *op, const struct attrs_group *attrs);
/* irb_finish with the results of the function that is copied. */
TFMC_MUST_USE enum tfmc_status ir_copy_finish(struct ir_copy *c, const struct ir_dim *arena);

/* Typed calls: irb_add(b, a, b), irb_linear(b, x, w, bias), irb_scale(b, x, attrs) for every op with one
 * result and no region. */
#define IN(name, class)  , struct ir_value name
#define OPT(name, class) , struct ir_value name
#define OP(name, traits, operands, attributes, results, axes, formula) \
	struct ir_value irb_##name(struct ir_builder *irb operands, const struct attrs_##name *attrs);
#include "ir/core/ops.def"
/* NOTE: ops with variadic operands take none of them through the typed call; use irb_op. */

/* Frequent shapes of calls. */
struct ir_value irb_weight_ref(struct ir_builder *b, const struct ir_weight *w, const struct ir_value *index,
                               size_t n);
struct ir_value irb_scale_by(struct ir_builder *b, struct ir_value x, double f);
struct ir_value irb_reshape_to(struct ir_builder *b, struct ir_value x, int rank,
                               const struct ir_dim *const *dims);
struct ir_value irb_transpose_by(struct ir_builder *b, struct ir_value x, int rank, const int64_t *perm);
struct ir_value irb_broadcast_to(struct ir_builder *b, struct ir_value x, int rank,
                                 const struct ir_dim *const *dims);
struct ir_value irb_slice_of(struct ir_builder *b, struct ir_value x, int axis, const struct ir_dim *begin,
                             const struct ir_dim *size);
struct ir_value irb_dim_value_of(struct ir_builder *b, const struct ir_dim *dim, int rank,
                                 const struct ir_dim *const *dims);
struct ir_value irb_full_of(struct ir_builder *b, double value, enum ir_dtype dtype, int rank,
                            const struct ir_dim *const *dims);

/* Result types of an op (used by builder and verifier). False after a diagnostic at `loc`. */
bool ir_infer(struct ir_module *m, struct diag_context *cx, struct ir_loc loc, enum ir_opcode code,
              const struct ir_type *const *operands, size_t n_operands, const void *attrs,
              const struct ir_type **results);
/* Attributes of an op filled with their defaults. */
void *ir_default_attrs(struct arena *a, enum ir_opcode code);

#endif
