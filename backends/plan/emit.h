/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of an object's functions through the kernel builder (kb): access to the context and to argument
 * slots, values of dims, memory areas of groups and their addresses, and the kernels of groups.
 */
#ifndef TFMC_BACKENDS_PLAN_EMIT_H
#define TFMC_BACKENDS_PLAN_EMIT_H

#include "backends/kernels/group.h"
#include "backends/plan/object.h"

/* A slice of a state, indexed on its leading axes after the batch. */
struct state_slice_ref {
	const struct state_layout *state;
	const struct ir_value *at;
	size_t n_at;
};

/* *out: the slice that op (state_append, state_read, state_write) accesses. False: op is NULL or another
 * op. */
bool find_state_slice(const struct object *o, const struct ir_func *f, const struct ir_op *op,
                      struct state_slice_ref *out);

/* The function under construction and the values that its code shares. */
struct emit {
	const struct object *object;
	const struct function *function; /* NULL in functions of the object's interface */
	struct kb *k;
	struct kb_val context, args;
	const struct kb_val *dims; /* [dims of the module]; id 0: not an argument of the function */
	struct kb_val buffers, weights, state; /* base addresses; buffers: the arena after the scratch */
	struct kb_val past, blocks, sources; /* base addresses for row 0 of a call, in functions with state */
	/* sequences between the sources of two rows: 1, or 0 if all rows share one; id 0: no source */
	struct kb_val source_step;
	struct ir_value repeat_index[OBJECT_REPEAT_MAX]; /* [n_repeats] */
	struct kb_val index[OBJECT_REPEAT_MAX];
	size_t n_repeats;
	const struct ir_op *group;
	struct area_list areas;  /* of the group */
	struct kb_val *pointers; /* [areas.n]: addresses in the group's kernel */
};

/* Begins a function (context, args, ..) -> i32 of the object. f: the IR function that it belongs to, or
 * NULL. */
struct emit emit_begin(const struct object *o, const struct function *f, const char *name,
                       enum kb_linkage linkage);
/* The internal symbol FUNCTION.suffix. */
const char *emit_function_symbol(const struct object *o, const struct function *f, const char *suffix);
/* Loads and stores of context fields, at the offsets of enum object_context. */
struct kb_val emit_load_context(struct emit *e, enum kb_scalar type, int64_t offset);
void emit_store_context(struct emit *e, struct kb_val v, int64_t offset);
/* Load and store `offset` bytes after ptr. */
struct kb_val emit_load(struct kb *k, enum kb_scalar type, struct kb_val ptr, int64_t offset);
void emit_store(struct kb *k, struct kb_val v, struct kb_val ptr, int64_t offset);
/* Emits: if (cond) return status; */
void emit_return_if(struct emit *e, struct kb_val cond, enum tfmc_rt_status status);
/* Emits: if (v < least || v > most) return status; */
void emit_require_between(struct emit *e, struct kb_val v, int64_t least, struct kb_val most,
                          enum tfmc_rt_status status);
/* Ends the function: return status; */
void emit_end(struct emit *e, enum tfmc_rt_status status);
/* Sets e->dims from the argument slots. */
void emit_load_dims(struct emit *e);
/* emit_load_dims, and the base addresses that groups use. */
void emit_load_call(struct emit *e);
/* The argument slot (8 bytes) of that number, as `type`. */
struct kb_val emit_load_arg(struct emit *e, enum kb_scalar type, size_t slot);
struct kb_val emit_has_arg(struct emit *e, size_t slot); /* the pointer in the slot is not null */
/* The value of a dim expression, over e->dims; emit_size also reports whether it is constant. */
struct kb_val emit_dim(struct emit *e, const struct ir_dim *d);
struct kb_size emit_size(struct emit *e, const struct ir_dim *d);
/* Whether all conditions of a case hold, over e->dims. */
struct kb_val emit_conditions(struct emit *e, const struct ir_case *c);
/* The last two components of a path as one identifier: "encoder.layers.self.q.weight" gives q_weight. */
const char *emit_short_name(struct arena *a, const char *path);
/* The exported symbol NAME_name. */
const char *emit_api_symbol(const struct object *o, const char *name);
/* The internal symbol PREFIX.name of a variant. */
const char *emit_variant_symbol(const struct object *o, const char *name);

/* An emit for the areas of a group and for its kernel, with the enclosing repeats; no function is begun. */
struct emit emit_for_group(const struct object *o, const struct function *f, const struct ir_op *group);
/* The lengths of the padded batch whose real rows alone e->group computes; none: it computes all rows. */
struct ir_value emit_group_lengths(const struct emit *e);
/* Writes the source location of e->group as a comment. */
void emit_group_comment(struct emit *e);

/* ---- areas ---- */
/* *out: the memory of a tensor value, or of a state slice, that e->group accesses; is_written stays false.
 * False: the address is no formula over dims and repeat indices (a constant, an index that is computed). */
bool area_of_value(const struct emit *e, struct ir_value v, struct area *out);
bool area_of_slice(const struct emit *e, const struct state_slice_ref *s, struct area *out);
/* The address of an area in an object, in a function after emit_load_call. */
struct kb_val area_address(struct emit *e, const struct area *a);
/* *out: the pointer parameter for the area in the kernel of e->group. False: the kernel has no such area. */
bool area_pointer(struct emit *e, const struct area *a, struct kb_val *out);

/* ---- the plan ---- */
/* Emits the kernel of k->groups, or finds an equal one, and sets its name, arguments and work-group counts;
 * unused areas leave k->areas. */
TFMC_MUST_USE enum tfmc_status emit_plan_kernel(struct object *o, const struct function *f,
                                                struct plan_kernel *k);
/* Symbol of the function of an object that loads the arguments of the kernel and calls it. */
const char *kernel_symbol(const struct object *o, const struct function *f, const struct plan_kernel *k);
/* Builds f->plan and emits all of its kernels. */
TFMC_MUST_USE enum tfmc_status plan_make(struct object *o, struct function *f);

#endif
