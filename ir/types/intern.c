/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set for hash-consing (intern.h): open addressing with linear probing, at most half full. Growing leaves the old
 * slots in the arena.
 */
#include "ir/types/intern.h"

void intern_init(struct intern *t, struct arena *arena)
{
	*t = (struct intern){.arena = arena};
}

void *intern_find(const struct intern *t, uint64_t hash, intern_equal *equal, const void *key)
{
	if (t->cap == 0)
		return NULL;
	for (size_t i = (size_t)hash & (t->cap - 1); t->slots[i].item != NULL; i = (i + 1) & (t->cap - 1))
		if (t->slots[i].hash == hash && equal(t->slots[i].item, key))
			return t->slots[i].item;
	return NULL;
}

static void insert_slot(struct intern *t, struct intern_slot slot)
{
	size_t i = (size_t)slot.hash & (t->cap - 1);
	while (t->slots[i].item != NULL)
		i = (i + 1) & (t->cap - 1);
	t->slots[i] = slot;
}

/* Doubles the capacity and inserts all items again, by their stored hashes. False without memory. */
static bool grow(struct intern *t)
{
	struct intern old = *t;
	size_t cap = old.cap == 0 ? 16 : old.cap * 2;
	struct intern_slot *slots = ARENA_ARRAY(t->arena, struct intern_slot, cap);
	if (slots == NULL || arena_failed(t->arena))
		return false;
	t->slots = slots;
	t->cap = cap;
	for (size_t i = 0; i < old.cap; i++)
		if (old.slots[i].item != NULL)
			insert_slot(t, old.slots[i]);
	return true;
}

bool intern_add(struct intern *t, uint64_t hash, void *item)
{
	if (t->n >= t->cap / 2 && !grow(t))
		return false;
	insert_slot(t, (struct intern_slot){hash, item});
	t->n++;
	return true;
}
