/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from strings to pointers, string interning, word lists, FNV-1a hashes, and spelling suggestions. Iteration
 * over a map is in order of insertion, so output never depends on hash values. Keys are copied into the arena.
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
	uint32_t *slots; /* hash table: index + 1 into items, 0: empty */
	size_t n_slots;
};

void strmap_init(struct strmap *m, struct arena *arena);
/* The value; NULL if the key is absent. */
void *strmap_get(const struct strmap *m, const char *key);
bool strmap_has(const struct strmap *m, const char *key);
/* Inserts or replaces. False without memory. */
bool strmap_set(struct strmap *m, const char *key, void *value);
/* The unique copy of a string: equal strings have equal pointers. "" on failure, never NULL. */
const char *strmap_intern(struct strmap *m, const char *s, size_t n);

/* True if both are NULL or have equal characters. */
bool same_string(const char *a, const char *b);

/* Iterates over a blank-separated list: `struct word w = {list, 0}; while (list_word_next(&w))`. */
struct word {
	const char *text;
	size_t n;
};
bool list_word_next(struct word *w);
/* The first n characters of `text` are a word of the list. */
bool list_has_word(const char *list, const char *text, size_t n);

/* FNV-1a, 64 bit. */
uint64_t hash_bytes64(uint64_t seed, const void *p, size_t n);
#define HASH64_SEED 0xcbf29ce484222325u

/*
 * The candidate that `name` (of three letters or more) begins, the shortest of several; else the one nearest by edit
 * distance (insert, delete, replace, swap of neighbours), when it is near enough to be a likely typing mistake: of
 * every four letters one is wrong, the first letter and all digits are the same; otherwise NULL. Ties go to the
 * earlier candidate.
 */
const char *nearest_name(const char *name, const char *const *candidates, size_t n);
/* "; did you mean 'NAME'?" with the nearest name, or "". */
const char *did_you_mean(struct arena *a, const char *name, const char *const *candidates, size_t n);
/* "; did you mean 'NAME'?" with the nearest name, or "; known: A, B, C" if none is near. */
const char *did_you_mean_or_known(struct arena *a, const char *name, const char *const *candidates, size_t n);

#endif
