/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching of regular expressions by deterministic automata: one walk over the characters finds the match at
 * a position. Walks that fail far beyond their match would make repeated matching quadratic (`\s+$`). So the
 * first walk that goes FAR beyond its match computes once, from the end of the text backwards, from which
 * states a match still follows at each position; later walks stop as soon as none does.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/tokenizer/tok.h"

#define MAX_OVERSHOOT  32u        /* bytes that a walk may go beyond its match */
#define NOT_FIRST_BYTE UINT16_MAX /* a position inside of a character */

/* Maximum number of distinct sets of states; few occur in practice. */
#define SETS_MAX  256u
#define SET_ALL   0u /* all states: used beyond SETS_MAX, prunes nothing */
#define SET_EMPTY 1u

/* Tables of a packed automaton, see format.h. */
struct automaton {
	uint32_t states, classes, ranges;
	const uint32_t *starts;
	const unsigned char *ascii, *of;
	const uint16_t *steps;
};

/* Size in bytes of an automaton; all arguments are below 2^16. */
static uint64_t automaton_bytes(uint64_t states, uint64_t classes, uint64_t ranges)
{
	return ((12 + 4 * ranges + 128 + ranges + 3) & ~UINT64_C(3)) + 2 * states * classes;
}

/* Pointers to the tables of a packed automaton. */
static struct automaton automaton_view(const char *a)
{
	const uint32_t *head = (const void *)a;
	struct automaton v = {head[0], head[1], head[2], head + 3, NULL, NULL, NULL};
	v.ascii = (const unsigned char *)(v.starts + v.ranges);
	v.of = v.ascii + 128;
	v.steps = (const void *)(a + automaton_bytes(0, 0, v.ranges));
	return v;
}

bool tok_automaton_is_valid(const char *a, uint64_t offset, uint64_t n)
{
	uint32_t head[3];
	if (offset % 4 || n < sizeof(head))
		return false;
	memcpy(head, a, sizeof(head));
	if (head[0] < 1 || head[0] >= TFMC_TOK_A_DEAD || head[1] < 2 || head[1] > 256 || head[2] < 1 ||
	    head[2] > 1u << 16 || automaton_bytes(head[0], head[1], head[2]) != n)
		return false;
	struct automaton v = automaton_view(a);
	bool ok = v.starts[0] == 0;
	for (uint32_t i = 1; ok && i < v.ranges; i++)
		ok = v.starts[i] > v.starts[i - 1];
	for (uint32_t i = 0; ok && i < 128 + v.ranges; i++)
		ok = v.ascii[i] < v.classes;
	for (uint64_t i = 0; ok && i < (uint64_t)v.states * v.classes; i++) {
		uint32_t to = v.steps[i] & TFMC_TOK_A_DEAD;
		ok = to < v.states || to == TFMC_TOK_A_DEAD;
	}
	return ok;
}

/* Class of a character: a table for ASCII, binary search over ranges. */
static uint32_t char_class(const struct automaton *v, uint32_t cp)
{
	uint32_t low = 0, high = v->ranges;
	if (cp < 128)
		return v->ascii[cp];
	while (high - low > 1) {
		uint32_t mid = (low + high) / 2;
		if (v->starts[mid] <= cp)
			low = mid;
		else
			high = mid;
	}
	return v->of[low];
}

/* Class of the character at s, of the end of the text for n = 0. Returns its length. */
static size_t next_class(const struct automaton *v, uint32_t flags, const char *s, size_t n, uint32_t *class)
{
	uint32_t cp;
	size_t len = 1;
	if (n == 0) {
		*class = v->classes - 1;
		return 0;
	}
	if (flags & TFMC_TOK_LETTERS)
		cp = tok_byte_letter((unsigned char)s[0]);
	else
		len = tok_decode(s, n, &cp);
	*class = char_class(v, cp & TOK_INVALID ? 0x110000u : cp);
	return len;
}

/* ---- backward analysis ---- */

static uint64_t *set_at(const struct tok_suffix_sets *a, const struct automaton *v, size_t id)
{
	return a->sets + id * ((v->states + 63) / 64);
}

static bool set_contains(const struct tok_suffix_sets *a, const struct automaton *v, size_t id,
                         uint32_t state)
{
	return set_at(a, v, id)[state / 64] >> state % 64 & 1;
}

static bool alloc_sets(struct tok_suffix_sets *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	a->sets = calloc(SETS_MAX + 1, bytes); /* one more for the candidate set */
	a->before = calloc((size_t)SETS_MAX * v->classes, sizeof(*a->before));
	if (!a->sets || !a->before)
		return false;
	memset(set_at(a, v, SET_ALL), 0xff, bytes);
	a->n_sets = SET_EMPTY + 1;
	return true;
}

/* Index of the candidate set, which is at index n_sets: an equal one, a new one, or EVERY. */
static uint16_t intern_set(struct tok_suffix_sets *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	const uint64_t *candidate = set_at(a, v, a->n_sets);
	for (size_t id = 0; id < a->n_sets; id++)
		if (!memcmp(set_at(a, v, id), candidate, bytes))
			return (uint16_t)id;
	return a->n_sets == SETS_MAX ? SET_ALL : (uint16_t)a->n_sets++;
}

/* Set of states from which a match follows before a character of `class`, given the set `id` after the
 * character. */
static uint16_t predecessor_set(struct tok_suffix_sets *a, const struct automaton *v, uint16_t id,
                                uint32_t class)
{
	uint16_t *known = &a->before[id * v->classes + class];
	if (*known)
		return (uint16_t)(*known - 1);
	uint64_t *candidate = set_at(a, v, a->n_sets);
	memset(candidate, 0, (v->states + 63) / 64 * sizeof(*candidate));
	for (uint32_t state = 0; state < v->states; state++) {
		uint32_t next_class = v->steps[state * v->classes + class], to = next_class & TFMC_TOK_A_DEAD;
		if (next_class & TFMC_TOK_A_MATCH || (to != TFMC_TOK_A_DEAD && set_contains(a, v, id, to)))
			candidate[state / 64] |= UINT64_C(1) << state % 64;
	}
	a->n_steps += v->states;
	uint16_t found = intern_set(a, v);
	*known = (uint16_t)(found + 1);
	return found;
}

/* Computes the sets for all positions of s[from .. n). */
static bool analyze_suffixes(struct tok_suffix_sets *a, const struct automaton *v, uint32_t flags,
                             const char *s, size_t n, size_t from)
{
	uint32_t class;
	if (n >= a->cap) {
		uint16_t *grown = n < SIZE_MAX / 4 ? realloc(a->at, (n + 1) * sizeof(*grown)) : NULL;
		if (!grown)
			return false;
		a->at = grown;
		a->cap = n + 1;
	}
	if (!a->sets && !alloc_sets(a, v))
		return false;
	for (size_t at = from, end; at < n; at = end) {
		end = at + next_class(v, flags, s + at, n - at, &class);
		for (size_t i = at; i < end; i++)
			a->at[i] = i == at ? (uint16_t) class : NOT_FIRST_BYTE;
	}
	uint16_t id = a->at[n] = predecessor_set(a, v, SET_EMPTY, v->classes - 1);
	for (size_t at = n; at-- > from;)
		if (a->at[at] != NOT_FIRST_BYTE)
			a->at[at] = id = predecessor_set(a, v, id, a->at[at]);
	a->n_steps += 2 * (n - from);
	a->is_known = true;
	a->from = from;
	return true;
}

/* ---- matches ---- */

/* Length of the match that begins at s[at]; 0: none. */
static size_t match_length(const struct automaton *v, uint32_t flags, struct tok_suffix_sets *a,
                           const char *s, size_t n, size_t at)
{
	uint32_t state = 0, class;
	size_t match = at, from = at;
	for (;;) {
		if (!a->is_known && at - match > MAX_OVERSHOOT && !analyze_suffixes(a, v, flags, s, n, at)) {
			a->failed = true;
			break;
		}
		if (a->is_known && at >= a->from && !set_contains(a, v, a->at[at], state))
			break;
		size_t len = next_class(v, flags, s + at, n - at, &class);
		uint32_t to = v->steps[state * v->classes + class];
		match = to & TFMC_TOK_A_MATCH ? at : match;
		state = to & TFMC_TOK_A_DEAD;
		a->n_steps++;
		if (state == TFMC_TOK_A_DEAD || len == 0)
			break;
		at += len;
	}
	return match - from;
}

void tok_suffix_sets_free(struct tok_suffix_sets *a)
{
	free(a->at);
	free(a->sets);
	free(a->before);
}

size_t tok_find_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op,
                      struct tok_suffix_sets *suffixes, const char *s, size_t n, size_t at, size_t *len)
{
	struct automaton v = automaton_view(t->texts + op->a);
	uint32_t flags = op->kind == TFMC_TOK_MATCH_PATTERN ? op->flags : 0, class;
	for (*len = 0; at < n && !suffixes->failed;) {
		size_t width = next_class(&v, flags, s + at, n - at, &class);
		suffixes->n_steps++;
		if ((v.steps[class] & TFMC_TOK_A_DEAD) != TFMC_TOK_A_DEAD)
			*len = match_length(&v, flags, suffixes, s, n, at);
		if (*len)
			return at;
		at += width;
	}
	return n;
}
