/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set of interned items by hash: the shared bottom of dims, types and merged
 * ops. Items are found by a key that the caller compares; nothing is iterated,
 * so results never depend on hash values.
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
/* The item equal to key, or NULL. */
void *intern_find(const struct intern *t, uint64_t hash, intern_equal *equal, const void *key);
/* Adds an item that is not there yet. False when memory ran out. */
bool intern_add(struct intern *t, uint64_t hash, void *item);

#endif
