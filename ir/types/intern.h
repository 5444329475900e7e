/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash-consing set, used for dims, types and common subexpressions (equal pure ops). The caller supplies hash and
 * equality. There is no iteration, so results never depend on hash values.
 */
#ifndef TFMC_IR_TYPES_INTERN_H
#define TFMC_IR_TYPES_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"

struct intern_slot {
	uint64_t hash;
	void *item; /* NULL: empty */
};

struct intern {
	struct arena *arena;
	struct intern_slot *slots;
	size_t n, cap; /* cap: a power of two, or 0 */
};

typedef bool intern_equal(const void *item, const void *key);

void intern_init(struct intern *t, struct arena *arena);
/* The item with this hash for which equal(item, key), or NULL. */
void *intern_find(const struct intern *t, uint64_t hash, intern_equal *equal, const void *key);
/* Adds an item that is not in the set. False without memory. */
bool intern_add(struct intern *t, uint64_t hash, void *item);

#endif
