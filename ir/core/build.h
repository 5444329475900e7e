/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder, the only way to create functions and ops. It infers result types (infer.c), simplifies, and
 * eliminates equal pure ops of a region and its enclosing regions. Errors are sticky: the first is reported as a
 * diagnostic at the current location (IR_TYPE, SHAPE or DTYPE), later calls do nothing and return IR_NO_VALUE, and
 * irb_finish fails.
 */
#ifndef TFMC_IR_CORE_BUILD_H
#define TFMC_IR_CORE_BUILD_H

#include "ir/core/module.h"

/* Operands and results of one op. */
#define BUILD_LIST_MAX 1024

struct ir_builder; /* allocated in the module's arena */

/* Begins a function at `loc`. NULL: no memory for the builder; every later failure is sticky (irb_failed). */
struct ir_builder *irb_begin(struct ir_module *m, struct diag_context *cx, const char *name,
                             struct ir_loc loc);
struct ir_module *irb_module(const struct ir_builder *b);
const struct ir_func *irb_func(const struct ir_builder *b);
bool irb_failed(const struct ir_builder *b);
/* Location of the ops built from now on. */
void irb_set_loc(struct ir_builder *b, struct ir_loc loc);
/* Turns simplification and elimination off: ops are kept as given (parser). */
void irb_set_literal(struct ir_builder *b, bool literal);

/*
 * Makes the function a case (a copy of c). In dims of parameters and ops cloned from now on its symbols are replaced by
 * constants. Once, before the parameters.
 */
void irb_case(struct ir_builder *b, const struct ir_case *c);
/* Replaces the symbols that c binds in dims, like irb_case, without making the function a case: its symbols have these
 * values in all calls. */
void irb_bind_dims(struct ir_builder *b, const struct ir_case *c);
/* Adds a parameter; before any op. All fields of p but value are copied; p->name also names the value. */
struct ir_value irb_param(struct ir_builder *b, const struct ir_param *p, const struct ir_type *type);
/* Names the value, unless it has a name. */
void irb_name(struct ir_builder *b, struct ir_value v, const char *name);
const struct ir_type *irb_type(const struct ir_builder *b, struct ir_value v);

/*
 * Appends an op: operands in the order of ops.def (absent optional ones IR_NO_VALUE), attributes or NULL for defaults.
 * `results` receives n_results values, which must be the number of the op (2 for state_append and state_read, else 1).
 */
void irb_op(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands, size_t n_operands,
            const void *attrs, struct ir_value *results, size_t n_results);
/* As irb_op for ops with one result. */
struct ir_value irb_op1(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                        size_t n_operands, const void *attrs);

/* Opens the body of a repeat; args receives its arguments: the index, then one for each init. */
void irb_repeat_begin(struct ir_builder *b, int64_t count, const struct ir_value *init, size_t n_init,
                      struct ir_value *args /* [1 + n_init] */);
/* Ends the body with a yield; results receives the n results of the repeat. */
void irb_repeat_end(struct ir_builder *b, const struct ir_value *yields, size_t n, struct ir_value *results);
/* Ops built between the two calls are the body of a group; they may use any outer value. attrs->root: position of the
 * root op in the body. */
void irb_group_begin(struct ir_builder *b);
/* Ends the body with a yield; results receives the n results of the group. */
void irb_group_end(struct ir_builder *b, const struct attrs_group *attrs, const struct ir_value *yields,
                   size_t n, struct ir_value *results);

/* Ends the function with a return of n values and adds it to the module. arena: bytes of the arena in the plan stage,
 * else NULL. Fails if any call before failed. */
TFMC_MUST_USE enum tfmc_status irb_finish(struct ir_builder *b, const struct ir_value *values,
                                          const struct ir_result *results, size_t n,
                                          const struct ir_dim *arena);

/* ---- cloning ---- */

/*
 * Clones op `op` of function `from`, with its region. map [from->n_values]: new value for each id of `from`, for
 * operands; the results are added to it. Dims and weights of attributes are imported into the module; names and
 * locations stay.
 */
void irb_clone(struct ir_builder *b, const struct ir_func *from, const struct ir_op *op,
               struct ir_value *map);
/* Adds the parameters of `from` and records them in map; if `from` is a case and the new function is not, it becomes
 * the same case. */
void irb_clone_params(struct ir_builder *b, const struct ir_func *from, struct ir_value *map);

/* Copies a function op by op, with a hook that may replace ops: the frame of most passes. */
struct ir_copy {
	struct ir_builder *b;
	const struct ir_func *from;
	struct ir_value *map; /* [from->n_values] values of the new function */
	/* Called for each op with the builder at its location. True: the hook has built the replacement and recorded
	 * the results; false: op is cloned, with the hook applied in its region. NULL: everything is cloned. */
	bool (*hook)(struct ir_copy *c, const struct ir_op *op);
	void *user;
};

/* Copies all ops of r but its terminator. */
void ir_copy_region(struct ir_copy *c, const struct ir_region *r);
/* out[i]: the new value of old[i]; IR_NO_VALUE stays. */
void ir_copy_values(const struct ir_copy *c, const struct ir_value *old, size_t n, struct ir_value *out);
/* Records `now` as the new value of `old`; it inherits the name. */
void ir_copy_set(struct ir_copy *c, struct ir_value old, struct ir_value now);
/* Copies the repeat `op` with another count. */
void ir_copy_repeat(struct ir_copy *c, const struct ir_op *op, int64_t count);
/*
 * Copies the repeat `op` with n >= op->n_operands carries, of which the first are those of op; the caller builds the
 * body between the two calls. args [1 + n] and results [n]; those that op has are recorded.
 */
void ir_copy_repeat_begin(struct ir_copy *c, const struct ir_op *op, int64_t count,
                          const struct ir_value *init, size_t n, struct ir_value *args);
void ir_copy_repeat_end(struct ir_copy *c, const struct ir_op *op, const struct ir_value *yields, size_t n,
                        struct ir_value *results);
/* Copies the group `op` with other attributes and an unchanged body. */
void ir_copy_group(struct ir_copy *c, const struct ir_op *op, const struct attrs_group *attrs);
/* irb_finish with the results of the copied function. */
TFMC_MUST_USE enum tfmc_status ir_copy_finish(struct ir_copy *c, const struct ir_dim *arena);

/* Typed calls: irb_add(b, a, b), irb_linear(b, x, w, bias), irb_scale(b, x, attrs) for every op with one
 * result and no region. */
#define IN(name, class)  , struct ir_value name
#define OPT(name, class) , struct ir_value name
#define OP(name, traits, operands, attributes, results, axes, formula) \
	struct ir_value irb_##name(struct ir_builder *irb operands, const struct attrs_##name *attrs);
#include "ir/core/ops.def"
/* NOTE: variadic operands cannot be passed to a typed call; use irb_op. */

/* Typed calls with plain arguments in place of attribute structs. */
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

/* Infers the result types of an op (NULL operand: absent). False after a diagnostic at `loc`. */
bool ir_infer(struct ir_module *m, struct diag_context *cx, struct ir_loc loc, enum ir_opcode code,
              const struct ir_type *const *operands, size_t n_operands, const void *attrs,
              const struct ir_type **results);
/* Attributes of an op with their default values; NULL without memory. */
void *ir_default_attrs(struct arena *a, enum ir_opcode code);

#endif
