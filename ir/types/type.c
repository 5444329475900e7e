/* SPDX-License-Identifier: Apache-2.0 */
/* Element types (dtypes.def) and the interned types of a module. Invariant: dims of a tensor type are provably >= 0. */
#include "ir/types/type.h"

#include <string.h>

#include "ir/types/intern.h"
#include "ir/support/strmap.h"

struct dtype_row {
	const char *name;
	int64_t bytes;
	enum ir_dtype_class class;
	const char *safetensors;
};

static const struct dtype_row dtype_rows[] = {
#define DTYPE(keyword, name, bytes, class, st) [DT_##name] = {#keyword, bytes, DTCLASS_##class, st},
#include "ir/types/dtypes.def"
};

const char *ir_dtype_name(enum ir_dtype t)
{
	return dtype_rows[t].name;
}

int64_t ir_dtype_bytes(enum ir_dtype t)
{
	return dtype_rows[t].bytes;
}

enum ir_dtype_class ir_dtype_class(enum ir_dtype t)
{
	return dtype_rows[t].class;
}

const char *ir_dtype_safetensors(enum ir_dtype t)
{
	return dtype_rows[t].safetensors;
}

static bool equals_bytes(const char *name, const char *s, size_t n)
{
	return strlen(name) == n && memcmp(name, s, n) == 0;
}

bool ir_dtype_parse(const char *s, size_t n, enum ir_dtype *out)
{
	for (size_t i = 0; i < TFMC_COUNT(dtype_rows); i++) {
		if (equals_bytes(dtype_rows[i].name, s, n) || equals_bytes(dtype_rows[i].safetensors, s, n)) {
			*out = (enum ir_dtype)i;
			return true;
		}
	}
	return false;
}

/* ---- interning ---- */

struct ir_types {
	struct arena *arena;
	struct ir_dims *dims;
	struct intern set;
	uint32_t n;
};

/* dims NULL: the module had no memory for them. */
struct ir_types *ir_types_create(struct arena *arena, struct ir_dims *dims)
{
	struct ir_types *t = ARENA_NEW(arena, struct ir_types);
	if (t == NULL || dims == NULL)
		return NULL;
	t->arena = arena;
	t->dims = dims;
	intern_init(&t->set, arena);
	return t;
}

/* intern_equal of types: dims and states are interned or unique, so their pointers are compared. */
static bool type_equal(const void *item, const void *key)
{
	const struct ir_type *a = item, *b = key;
	if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank || a->state != b->state)
		return false;
	for (int i = 0; i < a->rank; i++)
		if (a->dims[i] != b->dims[i])
			return false;
	return true;
}

static uint64_t type_hash(const struct ir_type *key)
{
	int64_t head[3] = {(int64_t)key->kind, (int64_t)key->dtype, key->rank};
	uint64_t h = hash_bytes64(HASH64_SEED, head, sizeof(head));
	for (int i = 0; i < key->rank; i++)
		h = hash_bytes64(h, &key->dims[i]->serial, sizeof(uint32_t));
	return h; /* all state types have one hash: there are few */
}

/* The type of the module equal to `key`, created if it is new; NULL without memory. */
static const struct ir_type *intern_type(struct ir_types *t, const struct ir_type *key)
{
	uint64_t hash = type_hash(key);
	struct ir_type *r = intern_find(&t->set, hash, type_equal, key);
	if (r != NULL)
		return r;
	r = ARENA_NEW(t->arena, struct ir_type);
	if (r == NULL)
		return NULL;
	*r = *key;
	r->serial = t->n++;
	return intern_add(&t->set, hash, r) ? r : NULL;
}

/* Rejects a dim whose lower bound is negative: all that compute with shapes rely on it. */
const struct ir_type *ir_type_tensor(struct ir_types *t, enum ir_dtype dtype, int rank,
                                     const struct ir_dim *const *dims)
{
	struct ir_type key = {.kind = IR_TENSOR, .dtype = dtype, .rank = rank};
	if (rank < 0 || rank > IR_RANK_MAX)
		return NULL;
	for (int i = 0; i < rank; i++) {
		if (dims[i] == NULL || ir_dim_lo(t->dims, dims[i]) < 0)
			return NULL;
		key.dims[i] = dims[i];
	}
	return intern_type(t, &key);
}

const struct ir_type *ir_type_state(struct ir_types *t, const struct ir_state_decl *state)
{
	struct ir_type key = {.kind = IR_STATE, .state = state};
	return intern_type(t, &key);
}

bool ir_same_dims(const struct ir_type *a, const struct ir_type *b)
{
	if (a->rank != b->rank)
		return false;
	for (int i = 0; i < a->rank; i++)
		if (a->dims[i] != b->dims[i])
			return false;
	return true;
}

const struct ir_dim *ir_type_count(struct ir_dims *t, const struct ir_type *type)
{
	return ir_type_count_range(t, type, 0, type->rank);
}

const struct ir_dim *ir_type_count_range(struct ir_dims *t, const struct ir_type *type, int from, int to)
{
	const struct ir_dim *n = ir_dim_const(t, 1);
	for (int i = from; i < to; i++)
		n = ir_dim_mul(t, n, type->dims[i]);
	return n;
}
