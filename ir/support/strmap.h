/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Map from strings to pointers and string interning. Iteration is in order of
 * insertion, so nothing that is printed depends on hash values. Keys are
 * copied into the arena.
 */
#ifndef TFMC_IR_SUPPORT_STRMAP_H
#define TFMC_IR_SUPPORT_STRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"

struct strmap_entry {
	const char *key;
	void *value;
	uint32_t hash;
};

struct strmap {
	struct arena *arena;
	struct strmap_entry *items; /* in order of insertion */
	size_t n, cap;
	uint32_t *slots; /* open addressing; index + 1, 0 = empty */
	size_t n_slots;
};

void strmap_init(struct strmap *m, struct arena *arena);
/* The value, or NULL when the key is absent. */
void *strmap_get(const struct strmap *m, const char *key);
bool strmap_has(const struct strmap *m, const char *key);
/* Inserts or replaces. False when memory ran out. */
bool strmap_set(struct strmap *m, const char *key, void *value);
/* One copy of each distinct string: equal texts give equal pointers. Never NULL ("" on failure). */
const char *strmap_intern(struct strmap *m, const char *s, size_t n);

/* A word of a list in which blanks separate them: `struct word w = {list, 0}; while (list_word_next(&w))`. */
struct word {
	const char *text;
	size_t n;
};
bool list_word_next(struct word *w);
/* The list has the first n characters of `text` as a word. */
bool list_has_word(const char *list, const char *text, size_t n);

/* FNV-1a, 32 and 64 bit. */
uint32_t hash_bytes32(const void *p, size_t n);
uint64_t hash_bytes64(uint64_t seed, const void *p, size_t n);
#define HASH64_SEED 0xcbf29ce484222325u

/*
 * The candidate that `name` (of three letters or more) begins, the shortest of several; else the one nearest by edit
 * distance (insert, delete, replace, swap of neighbours), when it is near enough to be a likely typing mistake: of
 * every four letters one is wrong, the first letter and all digits are the same; otherwise NULL. Ties go to the
 * earlier candidate.
 */
const char *nearest_name(const char *name, const char *const *candidates, size_t n);
/* "; did you mean 'NAME'?" for that, or "". */
const char *did_you_mean(struct arena *a, const char *name, const char *const *candidates, size_t n);
/* The same, or "; known: A, B, C". */
const char *did_you_mean_or_known(struct arena *a, const char *name, const char *const *candidates, size_t n);

#endif
