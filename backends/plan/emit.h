/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code of the functions around kernels: their words as values of the kernel builder, and the addresses that kernels
 * are given.
 */
#ifndef TFMC_BACKENDS_PLAN_EMIT_H
#define TFMC_BACKENDS_PLAN_EMIT_H

#include "backends/kernel/group.h"
#include "backends/plan/object.h"

/* ---- bases ---- */
/* A slice of a state at indices of the axes after the batch. */
struct binding_slice {
	const struct state_place *state;
	const struct ir_value *at;
	size_t n_at;
};

/* Memory with leading axes that are indexed: `offset` bytes, then unit_bytes for each unit of elements. */
struct binding_indexed {
	const struct ir_type *type;
	int first;                         /* axis of the first index */
	const struct ir_state_decl *state; /* NULL: no state */
	int64_t unit;
	int64_t unit_bytes;
	int64_t offset;
};

/* The slice that a state op works on. False: it is no such op. */
bool binding_state_slice(const struct object *o, const struct ir_func *f, const struct ir_op *op,
                         struct binding_slice *out);
/* The slice that v is, or was in the group it came from. False: none. */
bool binding_find_slice(const struct object *o, const struct ir_func *f, struct ir_value v,
                        struct binding_slice *out);
struct binding_indexed binding_slice_axes(const struct object *o, const struct binding_slice *s);
/* The weight that an OP_weight refers to, in the packed weights. False: it has no elements or no place. */
bool binding_weight_axes(const struct object *o, const struct ir_op *op, struct binding_indexed *out);
/* Units after the first n indexed axes: what one step of index n - 1 skips. */
int64_t binding_units(const struct binding_indexed *x, size_t n);

/* Where kernels get addresses from when not from the object's memory: of bases that are slices of states, and
 * of all others. */
struct touch; /* backends/plan/touch.h */
struct emit_bases {
	bool (*slice)(void *user, const struct binding_slice *s, struct kb_val *ptr);
	bool (*place)(void *user, struct ir_value base, struct kb_val *ptr);
	void *user;
};

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
	const struct ir_value *repeat_index; /* [n_repeats] */
	struct kb_val index[OBJECT_REPEAT_MAX];
	size_t n_repeats;
	const struct ir_op *group;
	const struct emit_bases *bases; /* NULL: the object's memory */
};

/* Begins a function (context, args, ..) of e->object. False: no memory. */
bool emit_begin(struct emit *e, const char *name, enum kb_linkage linkage, enum kb_scalar result);
/* FUNCTION.suffix, an internal name. */
const char *emit_part(const struct emit *e, const char *suffix);
struct kb_val emit_context(struct emit *e, enum kb_scalar type, int64_t offset);
void emit_set_context(struct emit *e, struct kb_val v, int64_t offset);
/* if (cond) return status; */
void emit_return_if(struct emit *e, struct kb_val cond, enum tfmc_rt_status status);
/* Loads all dims of the function from the argument words. */
void emit_load_dims(struct emit *e);
/* Loads the addresses groups use. */
void emit_load_bases(struct emit *e);
/* A state that the function reads of encode, possibly of another sequence. */
bool binding_is_source(const struct emit *e, const struct state_place *p);
struct kb_val emit_word(struct emit *e, enum kb_scalar type, size_t word);
struct kb_val emit_dim(struct emit *e, const struct ir_dim *d);
struct kb_size emit_size(struct emit *e, const struct ir_dim *d);
/* All conditions of a case, over e->dims. */
struct kb_val emit_conditions(struct emit *e, const struct ir_case *c);
/* Addresses in the object's memory. False: the base has none, such as a slice or weight at a computed index. */
bool binding_has_address(const struct emit *e, const struct touch *t);
bool binding_slice_address(struct emit *e, const struct binding_slice *s, struct kb_val *ptr);
bool binding_address(struct emit *e, struct ir_value base, struct kb_val *ptr);
/* The last two words of a path, as one identifier: "encoder.layers.self.q.weight" gives q_weight. */
const char *emit_short_name(struct arena *a, const char *path);
/* A symbol of the interface, or of what the variants share: NAME and the text. */
const char *emit_name(const struct object *o, const char *fmt, ...) TFMC_PRINTF(2, 3);
/* The name of an internal function of a variant: its prefix and the text. */
const char *emit_internal(const struct object *o, const char *fmt, ...) TFMC_PRINTF(2, 3);

/* Sets repeat_index, n_repeats from e->group: the repeats around it, outermost first, into index
 * [OBJECT_REPEAT_MAX]. TFMC_INVALID after a diagnostic when there are too many. */
TFMC_MUST_USE enum tfmc_status emit_find_repeats(struct emit *e, struct ir_value *index);
/* Where the group comes from. */
void emit_group_comment(struct emit *e);
struct kernel_binding binding_of(struct emit *e);
struct kb_val binding_input(struct emit *e, size_t param);

#endif
