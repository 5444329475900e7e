/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of values, interned per module: equal types are equal pointers.
 *
 *   f32[B,S,64]     tensor with symbolic shape (rank 0: f32[])
 *   state @kv       the state declared as @kv in the module (KV cache); a linear type: each value is used exactly once
 */
#ifndef TFMC_IR_TYPES_TYPE_H
#define TFMC_IR_TYPES_TYPE_H

#include "ir/types/dim.h"

#define IR_RANK_MAX 8

enum ir_dtype {
#define DTYPE(keyword, name, bytes, class, st) DT_##name,
#include "ir/types/dtypes.def"
};
#define DTYPE(keyword, name, bytes, class, st) +1
enum {
	IR_N_DTYPES = 0
#include "ir/types/dtypes.def"
};

enum ir_dtype_class { DTCLASS_FLOAT, DTCLASS_INT, DTCLASS_BOOL };

const char *ir_dtype_name(enum ir_dtype t);
int64_t ir_dtype_bytes(enum ir_dtype t);
enum ir_dtype_class ir_dtype_class(enum ir_dtype t);
/* A state of this element type may be stored as packed panels (ENC_PANEL16). */
static inline bool ir_dtype_allows_panels(enum ir_dtype t)
{
	return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_I8;
}
const char *ir_dtype_safetensors(enum ir_dtype t);
/* From the name here (`f32`) or in safetensors (`F32`); false if there is no such type. */
bool ir_dtype_parse(const char *s, size_t n, enum ir_dtype *out);

enum ir_type_kind { IR_TENSOR, IR_STATE };

struct ir_state_decl;

struct ir_type {
	enum ir_type_kind kind;
	enum ir_dtype dtype;                    /* tensor */
	int rank;                               /* tensor: 0..IR_RANK_MAX */
	const struct ir_dim *dims[IR_RANK_MAX]; /* tensor */
	const struct ir_state_decl *state;      /* state */
	uint32_t serial;                        /* order of creation */
};

struct ir_types;                                                             /* interning table of a module */
struct ir_types *ir_types_create(struct arena *arena, struct ir_dims *dims); /* NULL without memory */
/* NULL if rank > IR_RANK_MAX, a dim is NULL or may be negative, or there is no memory. */
const struct ir_type *ir_type_tensor(struct ir_types *t, enum ir_dtype dtype, int rank,
                                     const struct ir_dim *const *dims);
const struct ir_type *ir_type_state(struct ir_types *t, const struct ir_state_decl *state);

/* True if the ranks and all dims are equal, whatever the element types. */
bool ir_same_dims(const struct ir_type *a, const struct ir_type *b);

/* Number of elements: the product of all dims, or of dims [from, to). */
const struct ir_dim *ir_type_count(struct ir_dims *t, const struct ir_type *type);
const struct ir_dim *ir_type_count_range(struct ir_dims *t, const struct ir_type *type, int from, int to);

#endif
