/* SPDX-License-Identifier: Apache-2.0 */
/* String map: open addressing over an array in order of insertion; growing leaves the old arrays in the arena.
 * FNV-1a. */
#include "ir/support/strmap.h"

#include <string.h>

#include "ir/support/checked.h"

uint32_t hash_bytes32(const void *p, size_t n)
{
	const unsigned char *s = p;
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 16777619u;
	return h;
}

uint64_t hash_bytes64(uint64_t seed, const void *p, size_t n)
{
	const unsigned char *s = p;
	uint64_t h = seed;
	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * UINT64_C(1099511628211);
	return h;
}

void strmap_init(struct strmap *m, struct arena *arena)
{
	*m = (struct strmap){.arena = arena};
}

static struct strmap_entry *find_entry(const struct strmap *m, const char *s, size_t n, uint32_t hash)
{
	if (m->n_slots == 0)
		return NULL;
	for (size_t i = hash & (m->n_slots - 1);; i = (i + 1) & (m->n_slots - 1)) {
		if (m->slots[i] == 0)
			return NULL;
		struct strmap_entry *e = &m->items[m->slots[i] - 1];
		if (e->hash == hash && strncmp(e->key, s, n) == 0 && e->key[n] == '\0')
			return e;
	}
}

static void insert_slot(struct strmap *m, uint32_t hash, size_t index)
{
	size_t i = hash & (m->n_slots - 1);
	while (m->slots[i] != 0)
		i = (i + 1) & (m->n_slots - 1);
	m->slots[i] = (uint32_t)(index + 1);
}

/* Grows the hash table for one more entry; it stays at most half full. */
static bool grow(struct strmap *m)
{
	size_t want, doubled;
	if (m->n >= UINT32_MAX / 4 || !checked_mul_size(m->n + 1, 2, &doubled))
		return false;
	if (doubled <= m->n_slots)
		return true;
	want = m->n_slots == 0 ? 16 : m->n_slots * 2;
	uint32_t *slots = ARENA_ARRAY(m->arena, uint32_t, want);
	if (slots == NULL || arena_failed(m->arena))
		return false;
	m->slots = slots;
	m->n_slots = want;
	for (size_t i = 0; i < m->n; i++)
		insert_slot(m, m->items[i].hash, i);
	return true;
}

static struct strmap_entry *insert(struct strmap *m, const char *s, size_t n, uint32_t hash)
{
	if (!grow(m))
		return NULL;
	const char *key = arena_strndup(m->arena, s, n);
	if (arena_failed(m->arena))
		return NULL;
	struct strmap_entry *e = ARENA_PUSH(m->arena, m);
	if (e == NULL)
		return NULL;
	e->key = key;
	e->hash = hash;
	insert_slot(m, hash, m->n - 1);
	return e;
}

void *strmap_get(const struct strmap *m, const char *key)
{
	size_t n = strlen(key);
	const struct strmap_entry *e = find_entry(m, key, n, hash_bytes32(key, n));
	return e == NULL ? NULL : e->value;
}

bool strmap_has(const struct strmap *m, const char *key)
{
	size_t n = strlen(key);
	return find_entry(m, key, n, hash_bytes32(key, n)) != NULL;
}

bool strmap_set(struct strmap *m, const char *key, void *value)
{
	size_t n = strlen(key);
	uint32_t hash = hash_bytes32(key, n);
	struct strmap_entry *e = find_entry(m, key, n, hash);
	if (e == NULL)
		e = insert(m, key, n, hash);
	if (e == NULL)
		return false;
	e->value = value;
	return true;
}

const char *strmap_intern(struct strmap *m, const char *s, size_t n)
{
	uint32_t hash = hash_bytes32(s, n);
	struct strmap_entry *e = find_entry(m, s, n, hash);
	if (e == NULL)
		e = insert(m, s, n, hash);
	return e == NULL ? "" : e->key;
}

/* ---- words ---- */

bool list_word_next(struct word *w)
{
	w->text += w->n;
	w->text += *w->text == ' ';
	w->n = strcspn(w->text, " ");
	return w->n > 0;
}

bool list_has_word(const char *list, const char *text, size_t n)
{
	struct word w = {list, 0};
	while (list_word_next(&w))
		if (w.n == n && memcmp(w.text, text, n) == 0)
			return true;
	return false;
}
