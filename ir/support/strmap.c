/* SPDX-License-Identifier: Apache-2.0 */
/* String map: open addressing over an array in order of insertion; growing leaves the old arrays in the arena.
 * FNV-1a with a seed of the process. And suggestions for misspelt names. */
#include "ir/support/strmap.h"
#include "ir/support/buf.h"
#include "ir/support/checked.h"

#include <ctype.h>
#include <string.h>

uint64_t hash_bytes64(uint64_t seed, const void *p, size_t n)
{
	const unsigned char *s = p;
	uint64_t h = seed;
	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * UINT64_C(1099511628211);
	return h;
}

/*
 * The address of the arena, which differs from process to process, is the seed: names of a file that were chosen to
 * collide would make insertion quadratic.
 */
static uint32_t hash_key(const struct strmap *m, const char *s, size_t n)
{
	uint64_t h = hash_bytes64(HASH64_SEED ^ (uintptr_t)m->arena, s, n);
	return (uint32_t)(h ^ (h >> 32));
}

void strmap_init(struct strmap *m, struct arena *arena)
{
	*m = (struct strmap){.arena = arena};
}

/* The entry with the key s[0, n) and that hash; NULL if it is absent. The table is at most half full, so an empty
 * slot ends the search. */
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

/* Grows the hash table for one more entry; it stays at most half full. Slots are u32 indices, hence the limit. False
 * without memory. */
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

/* Adds an entry for a key that is absent, with a NULL value. NULL without memory. The slot is set last, when the
 * entry is complete. */
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
	const struct strmap_entry *e = find_entry(m, key, n, hash_key(m, key, n));
	return e == NULL ? NULL : e->value;
}

bool strmap_has(const struct strmap *m, const char *key)
{
	size_t n = strlen(key);
	return find_entry(m, key, n, hash_key(m, key, n)) != NULL;
}

bool strmap_set(struct strmap *m, const char *key, void *value)
{
	size_t n = strlen(key);
	uint32_t hash = hash_key(m, key, n);
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
	uint32_t hash = hash_key(m, s, n);
	struct strmap_entry *e = find_entry(m, s, n, hash);
	if (e == NULL)
		e = insert(m, s, n, hash);
	return e == NULL ? "" : e->key;
}

/* ---- words ---- */

bool same_string(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Skips the word and a blank. n is 0 before the first word, and again after the last. */
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

/* ---- suggestions ---- */

/*
 * Suggestions for misspelt names: a candidate that the name is a prefix of, else the nearest by optimal string
 * alignment distance (insertion, deletion, substitution, transposition of neighbours). Declared in strmap.h.
 */

#define NAME_MAX_BYTES 160 /* longer names are not compared */
#define KNOWN_LISTED   100 /* more names than these are not listed */
#define SHORT_BYTES    6   /* in shorter names a substitution costs 2 */
#define PREFIX_BYTES   3   /* shorter names begin too many others */

/* Largest distance of a suggestion: a quarter of the letters; 0 below three letters. */
static unsigned max_distance(size_t a, size_t b)
{
	size_t n = a > b ? a : b;
	return n < 3 ? 0 : n < 8 ? 1 : (unsigned)(n / 4);
}

/* The first letters agree, or are swapped: what begins otherwise is another name (mllama, llama), not a typing
 * mistake. */
static bool has_same_beginning(const char *a, const char *b)
{
	int a0 = tolower((unsigned char)a[0]), b0 = tolower((unsigned char)b[0]);
	return a0 == b0 || (a[0] != '\0' && b[0] != '\0' && a[0] == b[1] && a[1] == b[0]);
}

/* True if both names have the same digits in the same order. Names that differ in their digits are different
 * things (int5, int8), not a typing mistake. */
static bool same_digits(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (*a != '\0' && !isdigit((unsigned char)*a))
			a++;
		while (*b != '\0' && !isdigit((unsigned char)*b))
			b++;
		if (*a != *b || *a == '\0')
			return *a == *b;
	}
}

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;
	return m < c ? m : c;
}

/* The last three rows of the dynamic programming table. */
struct rows {
	unsigned replaced; /* cost of a substitution; 2 in short names (llava, llama) */
	unsigned row[3][NAME_MAX_BYTES + 1];
};

/* Computes row i: distances of the first i letters of a to all prefixes of b; a letter in the other case costs 1.
 * Rows are kept modulo 3: the one above, and for transpositions the one before. Returns the minimum of the row. */
static unsigned next_row(struct rows *r, const char *a, size_t i, const char *b, size_t n)
{
	const unsigned *before = r->row[(i + 1) % 3], *above = r->row[(i + 2) % 3];
	unsigned *cur = r->row[i % 3], best = (unsigned)i;
	cur[0] = (unsigned)i;
	for (size_t j = 1; j <= n; j++) {
		bool same_letter = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
		unsigned cost = a[i - 1] == b[j - 1] ? 0 : same_letter ? 1 : r->replaced;
		unsigned d = min3(above[j] + 1, cur[j - 1] + 1, above[j - 1] + cost);
		if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < d)
			d = before[j - 2] + 1;
		cur[j] = d;
		best = d < best ? d : best;
	}
	return best;
}

/* Returns the optimal string alignment distance; if it exceeds the limit, some number above the limit. A difference
 * of lengths above it needs no table. Stops after two rows above the limit: a transposition continues the row before
 * the last, so one such row proves nothing. */
static unsigned alignment_distance(const char *a, size_t na, const char *b, size_t nb, unsigned limit)
{
	struct rows r;
	r.replaced = na < SHORT_BYTES && nb < SHORT_BYTES ? 2 : 1;
	if ((na > nb ? na - nb : nb - na) > limit)
		return limit + 1;
	for (size_t j = 0; j <= nb; j++)
		r.row[0][j] = (unsigned)j;
	unsigned previous = 0;
	for (size_t i = 1; i <= na; i++) {
		unsigned best = next_row(&r, a, i, b, nb);
		if (best > limit && previous > limit)
			return limit + 1;
		previous = best;
	}
	return r.row[na % 3][nb];
}

/* The shortest candidate that begins with the name, or NULL. */
static const char *find_completion(const char *name, size_t na, const char *const *candidates, size_t n)
{
	const char *best = NULL;
	for (size_t i = 0; na >= PREFIX_BYTES && i < n; i++)
		if (!strncmp(candidates[i], name, na) && (!best || strlen(candidates[i]) < strlen(best)))
			best = candidates[i];
	return best;
}

/* Only a smaller distance replaces the best, so that ties go to the earlier candidate; a limit below the best lets
 * alignment_distance stop early. */
const char *nearest_name(const char *name, const char *const *candidates, size_t n)
{
	size_t na = strlen(name);
	const char *nearest = find_completion(name, na, candidates, n);
	unsigned best = NAME_MAX_BYTES + 1;
	if (nearest || na > NAME_MAX_BYTES)
		return nearest;
	for (size_t i = 0; i < n && best > 0; i++) {
		size_t nb = strlen(candidates[i]);
		if (nb > NAME_MAX_BYTES || !has_same_beginning(name, candidates[i]) ||
		    !same_digits(name, candidates[i]))
			continue;
		unsigned limit = max_distance(na, nb);
		if (limit > best - 1)
			limit = best - 1;
		unsigned d = alignment_distance(name, na, candidates[i], nb, limit);
		if (d <= limit) {
			best = d;
			nearest = candidates[i];
		}
	}
	return nearest;
}

const char *did_you_mean(struct arena *a, const char *name, const char *const *candidates, size_t n)
{
	const char *nearest = nearest_name(name, candidates, n);
	return nearest == NULL ? "" : arena_printf(a, "; did you mean '%s'?", nearest);
}

/* The list names each candidate once, since tables contain synonyms twice; a list of more than KNOWN_LISTED would
 * not help. */
const char *did_you_mean_or_known(struct arena *a, const char *name, const char *const *candidates, size_t n)
{
	struct buf out;
	if (nearest_name(name, candidates, n) != NULL)
		return did_you_mean(a, name, candidates, n);
	buf_init(&out);
	for (size_t i = 0; i < n && n <= KNOWN_LISTED; i++) {
		size_t first = 0;
		while (strcmp(candidates[first], candidates[i]) != 0)
			first++;
		if (first == i)
			buf_printf(&out, "%s%s", i == 0 ? "; known: " : ", ", candidates[i]);
	}
	const char *text = arena_strdup(a, out.data);
	buf_destroy(&out);
	return text;
}
