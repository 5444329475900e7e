/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code of the functions around kernels, their words as values of the kernel builder, and of kernels: the areas of
 * a group, the addresses it is given.
 */
#ifndef TFMC_BACKENDS_PLAN_EMIT_H
#define TFMC_BACKENDS_PLAN_EMIT_H

#include "backends/kernel/group.h"
#include "backends/plan/object.h"

/* A slice of a state at indices of the axes after the batch. */
struct state_slice_ref {
	const struct state_layout *state;
	const struct ir_value *at;
	size_t n_at;
};

/* The slice that a state op works on, such as ir_state_slice_op of a value. False: it is no such op, or NULL. */
bool find_state_slice(const struct object *o, const struct ir_func *f, const struct ir_op *op,
                      struct state_slice_ref *out);

/* ---- emission ---- */
/* A function of the object under construction, with what all of its code reads. */
struct emit {
	const struct object *object;
	const struct function *function; /* NULL in functions of the interface */
	struct kb *k;
	struct kb_val context, args;
	const struct kb_val *dims; /* [dims of the module], none where absent */
	struct kb_val plan, weights, state;
	struct kb_val past, blocks, sources; /* addresses for row 0, of a function that has state */
	struct kb_val source_step;           /* none: as many sequences as rows */
	struct ir_value repeat_index[OBJECT_REPEAT_MAX]; /* [n_repeats] */
	struct kb_val index[OBJECT_REPEAT_MAX];
	size_t n_repeats;
	const struct ir_op *group;
	struct area_list areas;  /* of the group */
	struct kb_val *pointers; /* [areas.n]: in its kernel */
};

/* Begins a function (context, args, ..) -> i32 of the object, that is part of f, or NULL. */
struct emit emit_begin(const struct object *o, const struct function *f, const char *name,
                       enum kb_linkage linkage);
/* FUNCTION.suffix, an internal name. */
const char *emit_function_symbol(const struct object *o, const struct function *f, const char *suffix);
struct kb_val emit_load_context(struct emit *e, enum kb_scalar type, int64_t offset);
void emit_store_context(struct emit *e, struct kb_val v, int64_t offset);
/* Numbers and addresses at so many bytes after ptr. */
struct kb_val emit_load(struct kb *k, enum kb_scalar type, struct kb_val ptr, int64_t offset);
void emit_store(struct kb *k, struct kb_val v, struct kb_val ptr, int64_t offset);
/* if (cond) return status; */
void emit_return_if(struct emit *e, struct kb_val cond, enum tfmc_rt_status status);
/* if (v < least || v > most) return status; */
void emit_require_between(struct emit *e, struct kb_val v, int64_t least, struct kb_val most,
                          enum tfmc_rt_status status);
/* Returns the status: the end of the function. */
void emit_end(struct emit *e, enum tfmc_rt_status status);
/* Loads all dims of the function from the argument words. */
void emit_load_dims(struct emit *e);
/* Loads them and the addresses groups use. */
void emit_load_call(struct emit *e);
struct kb_val emit_load_arg(struct emit *e, enum kb_scalar type, size_t word);
struct kb_val emit_has_arg(struct emit *e, size_t word); /* the address in the word is not null */
struct kb_val emit_dim(struct emit *e, const struct ir_dim *d);
struct kb_size emit_size(struct emit *e, const struct ir_dim *d);
/* All conditions of a case, over e->dims. */
struct kb_val emit_conditions(struct emit *e, const struct ir_case *c);
/* The last two words of a path, as one identifier: "encoder.layers.self.q.weight" gives q_weight. */
const char *emit_short_name(struct arena *a, const char *path);
/* NAME_name: a symbol of the interface. */
const char *emit_api_symbol(const struct object *o, const char *name);
/* An internal function of a variant: its prefix and the name. */
const char *emit_variant_symbol(const struct object *o, const char *name);

/* For what a group touches, and for its kernel: with the repeats around it. */
struct emit emit_for_group(const struct object *o, const struct function *f, const struct ir_op *group);
/* Where the group comes from. */
void emit_group_comment(struct emit *e);
/* Records e->group by its template in the function that is begun. `job` says worker, scratch and how; the rest is
 * filled in. What the template notes down has the size of the function and is given back. */
TFMC_MUST_USE enum tfmc_status emit_group_kernel(struct emit *e, struct kernel_job job);

/* ---- areas ---- */
/* Where the memory of a tensor, of a slice lies that e->group names. False: no formula says it: a constant, a slice
 * at an index that is computed. Sets no is_written. */
bool area_of_value(const struct emit *e, struct ir_value v, struct area *out);
bool area_of_slice(const struct emit *e, const struct state_slice_ref *s, struct area *out);
/* An area of the one list and one of the other share memory that one of them is written in; `but` may be shared, or is
 * NULL. */
bool areas_conflict(struct ir_dims *t, const struct area_list *a, const struct area_list *b,
                    const struct area *but);
/* Everything that n groups touch and area_of_value names, in order of their operands, results last; no two are the
 * same memory. */
struct area_list group_areas(const struct object *o, const struct function *f,
                             const struct ir_op *const *groups, size_t n);
/* Its address in the memory of an object, in a function that has loaded its dims and bases. */
struct kb_val area_address(struct emit *e, const struct area *a);
/* Its address in the kernel of e->group, one of e->pointers. False: it is none of its areas. */
bool area_pointer(struct emit *e, const struct area *a, struct kb_val *out);

/* ---- the plan ---- */
/* Records the kernel of k->groups, unless an equal one exists, and fills in the rest: its name, arguments and
 * work; k->areas become those that it uses. */
TFMC_MUST_USE enum tfmc_status emit_plan_kernel(struct object *o, const struct function *f,
                                                struct plan_kernel *k);
/* How many groups from number `first` on one launch computes, and of which of them workers count from the last one on, by
 * bits. 1 but on devices. */
size_t plan_fused_launch(const struct object *o, const struct function *f, size_t first, unsigned *reversed);
/* The function of an object that calls the kernel with its arguments. */
const char *kernel_symbol(const struct object *o, const struct function *f, const struct plan_kernel *k);
/* Makes f->plan, with all kernels. */
TFMC_MUST_USE enum tfmc_status plan_make(struct object *o, struct function *f);

#endif
