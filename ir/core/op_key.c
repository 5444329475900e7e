/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attribute structs handled by their descriptors: defaults, deep copies, equality, hash; and equality of ops as keys.
 */
#include "ir/core/builder.h"

#include <string.h>

static const void *attr_at(const void *attrs, const struct ir_attr_desc *d)
{
	return (const char *)attrs + d->offset;
}

void *ir_default_attrs(struct arena *a, enum ir_opcode code)
{
	const struct ir_op_desc *op = ir_op_desc(code);
	char *attrs = arena_alloc(a, op->attrs_bytes);
	if (attrs == NULL)
		return NULL;
	for (const struct ir_attr_desc *d = op->attrs; d->name != NULL; d++) {
		int word = (int)d->int_default;
		if (d->kind == ATTR_FLOAT)
			memcpy(attrs + d->offset, &d->float_default, sizeof(double));
		else if (d->kind == ATTR_INT)
			memcpy(attrs + d->offset, &d->int_default, sizeof(int64_t));
		else if (d->kind == ATTR_KEYWORD)
			memcpy(attrs + d->offset, &word, sizeof(word));
	}
	return attrs;
}

static bool copy_list(struct arena *a, const void *from, size_t n, size_t size, void **out)
{
	*out = NULL;
	if (n == 0)
		return true;
	*out = arena_calloc(a, n, size);
	if (*out == NULL)
		return false;
	memcpy(*out, from, n * size);
	return true;
}

void *build_copy_attrs(struct ir_module *m, enum ir_opcode code, const void *attrs)
{
	const struct ir_op_desc *op = ir_op_desc(code);
	char *copy = arena_alloc(&m->arena, op->attrs_bytes);
	if (copy == NULL)
		return NULL;
	memcpy(copy, attrs, op->attrs_bytes);
	for (const struct ir_attr_desc *d = op->attrs; d->name != NULL; d++) {
		void *items;
		if (d->kind == ATTR_DIMS) {
			struct ir_dim_list *list = (struct ir_dim_list *)(void *)(copy + d->offset);
			if (!copy_list(&m->arena, list->items, list->n, sizeof(*list->items), &items))
				return NULL;
			list->items = items;
		} else if (d->kind == ATTR_INTS) {
			struct ir_int_list *list = (struct ir_int_list *)(void *)(copy + d->offset);
			if (!copy_list(&m->arena, list->items, list->n, sizeof(*list->items), &items))
				return NULL;
			list->items = items;
		}
	}
	return copy;
}

static bool lists_equal(const void *a, size_t n_a, const void *b, size_t n_b, size_t size)
{
	return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * size) == 0);
}

static bool attr_equal(const struct ir_attr_desc *d, const void *a, const void *b)
{
	switch (d->kind) {
	case ATTR_FLOAT: return memcmp(a, b, sizeof(double)) == 0;
	case ATTR_INT: return *(const int64_t *)a == *(const int64_t *)b;
	case ATTR_FLAG: return *(const bool *)a == *(const bool *)b;
	case ATTR_DIM: return *(const struct ir_dim *const *)a == *(const struct ir_dim *const *)b;
	case ATTR_DTYPE: return *(const enum ir_dtype *)a == *(const enum ir_dtype *)b;
	case ATTR_KEYWORD: return *(const int *)a == *(const int *)b;
	case ATTR_WEIGHT: return *(const struct ir_weight *const *)a == *(const struct ir_weight *const *)b;
	case ATTR_DIMS: {
		const struct ir_dim_list *x = a, *y = b;
		return lists_equal(x->items, x->n, y->items, y->n, sizeof(*x->items));
	}
	case ATTR_INTS: {
		const struct ir_int_list *x = a, *y = b;
		return lists_equal(x->items, x->n, y->items, y->n, sizeof(*x->items));
	}
	}
	return false;
}

static bool attrs_equal(enum ir_opcode code, const void *a, const void *b)
{
	for (const struct ir_attr_desc *d = ir_op_desc(code)->attrs; d->name != NULL; d++)
		if (!attr_equal(d, attr_at(a, d), attr_at(b, d)))
			return false;
	return true;
}

static uint64_t attr_hash(uint64_t h, const struct ir_attr_desc *d, const void *a)
{
	switch (d->kind) {
	case ATTR_FLOAT: return hash_bytes64(h, a, sizeof(double));
	case ATTR_INT: return hash_bytes64(h, a, sizeof(int64_t));
	case ATTR_FLAG: return hash_bytes64(h, a, sizeof(bool));
	case ATTR_DTYPE: return hash_bytes64(h, a, sizeof(enum ir_dtype));
	case ATTR_KEYWORD: return hash_bytes64(h, a, sizeof(int));
	case ATTR_DIM: {
		const struct ir_dim *x = *(const struct ir_dim *const *)a;
		return x == NULL ? h : hash_bytes64(h, &x->serial, sizeof(x->serial));
	}
	case ATTR_WEIGHT: {
		const struct ir_weight *w = *(const struct ir_weight *const *)a;
		return w == NULL ? h : hash_bytes64(h, w->name, strlen(w->name));
	}
	case ATTR_DIMS: {
		const struct ir_dim_list *x = a;
		for (size_t i = 0; i < x->n; i++)
			h = hash_bytes64(h, &x->items[i]->serial, sizeof(uint32_t));
		return h;
	}
	case ATTR_INTS: {
		const struct ir_int_list *x = a;
		return x->n == 0 ? h : hash_bytes64(h, x->items, x->n * sizeof(*x->items));
	}
	}
	return h;
}

/* The order of the two operands does not matter. */
static bool is_commutative(const struct op_key *key)
{
	return key->n_operands == 2 && ir_op_has(key->code, TRAIT_COMMUTATIVE);
}

uint64_t op_key_hash(const struct op_key *key)
{
	uint64_t h = hash_bytes64(HASH64_SEED, &key->code, sizeof(key->code));
	if (is_commutative(key)) {
		uint32_t a = key->operands[0].id, b = key->operands[1].id;
		uint32_t pair[2] = {a < b ? a : b, a < b ? b : a};
		h = hash_bytes64(h, pair, sizeof(pair));
	} else {
		for (size_t i = 0; i < key->n_operands; i++)
			h = hash_bytes64(h, &key->operands[i].id, sizeof(uint32_t));
	}
	for (const struct ir_attr_desc *d = ir_op_desc(key->code)->attrs; d->name != NULL; d++)
		h = attr_hash(h, d, attr_at(key->attrs, d));
	return h;
}

bool op_key_equal(const void *item, const void *k)
{
	const struct ir_op *op = item;
	const struct op_key *key = k;
	if (op->code != key->code || op->n_operands != key->n_operands ||
	    !attrs_equal(op->code, op->attrs, key->attrs))
		return false;
	if (is_commutative(key) && ir_same_value(op->operands[0], key->operands[1]) &&
	    ir_same_value(op->operands[1], key->operands[0]))
		return true;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!ir_same_value(op->operands[i], key->operands[i]))
			return false;
	return true;
}
