/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suggestions for misspelt names: a candidate that the name is a prefix of, else the nearest by optimal string
 * alignment distance (insertion, deletion, substitution, transposition of neighbours). Declared in strmap.h.
 */
#include <ctype.h>
#include <string.h>

#include "ir/support/buf.h"
#include "ir/support/strmap.h"

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

/* Names that differ in their digits are different things (int5, int8), not a typing mistake. */
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
 * Returns the minimum of the row. */
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

/* Returns the optimal string alignment distance; if it exceeds the limit, some number above the limit. Stops after two
 * rows above the limit: a transposition continues the row before the last, so one such row proves nothing. */
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
