/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Automata of regular expressions: one walk over characters gives the match at
 * a place. A walk that goes far beyond its match first finds, once, from the end
 * of the text backwards, in which states a match still follows at each place;
 * from then on walks end with their matches, so that texts made to be walked over
 * again and again are not.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/tokenizer/tok.h"

#define FAR    32u        /* bytes of a walk beyond its match */
#define INSIDE UINT16_MAX /* a place that is not the first byte of a character */

/* Sets of states; there are few, for they say how a text goes on. */
#define SETS_MAX 256u
#define EVERY    0u /* where there would be more of them: nothing is known */
#define NONE     1u

struct automaton {
	uint32_t states, classes, ranges;
	const uint32_t *starts;
	const unsigned char *ascii, *of;
	const uint16_t *steps;
};

/* Bytes of an automaton with these numbers, which are below 2^16. */
static uint64_t size_of(uint64_t states, uint64_t classes, uint64_t ranges)
{
	return ((12 + 4 * ranges + 128 + ranges + 3) & ~UINT64_C(3)) + 2 * states * classes;
}

static struct automaton view(const char *a)
{
	const uint32_t *head = (const void *)a;
	struct automaton v = {head[0], head[1], head[2], head + 3, NULL, NULL, NULL};
	v.ascii = (const unsigned char *)(v.starts + v.ranges);
	v.of = v.ascii + 128;
	v.steps = (const void *)(a + size_of(0, 0, v.ranges));
	return v;
}

bool tok_automaton_fits(const char *a, uint64_t offset, uint64_t n)
{
	uint32_t head[3];
	if (offset % 4 || n < sizeof(head))
		return false;
	memcpy(head, a, sizeof(head));
	if (head[0] < 1 || head[0] >= TFMC_TOK_A_DEAD || head[1] < 2 || head[1] > 256 || head[2] < 1 ||
	    head[2] > 1u << 16 || size_of(head[0], head[1], head[2]) != n)
		return false;
	struct automaton v = view(a);
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

static uint32_t class_of(const struct automaton *v, uint32_t cp)
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

static size_t step(const struct automaton *v, uint32_t flags, const char *s, size_t n, uint32_t *class)
{
	uint32_t cp;
	size_t len = 1;
	if (n == 0) {
		*class = v->classes - 1;
		return 0;
	}
	if (flags & TFMC_TOK_LETTERS)
		cp = tok_letter((unsigned char)s[0]);
	else
		len = tok_decode(s, n, &cp);
	*class = class_of(v, cp & TOK_INVALID ? 0x110000u : cp);
	return len;
}

/* ---- what follows ---- */

static uint64_t *set_at(const struct tok_ahead *a, const struct automaton *v, size_t id)
{
	return a->sets + id * ((v->states + 63) / 64);
}

static bool has(const struct tok_ahead *a, const struct automaton *v, size_t id, uint32_t state)
{
	return set_at(a, v, id)[state / 64] >> state % 64 & 1;
}

static bool begin_sets(struct tok_ahead *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	a->sets = calloc(SETS_MAX + 1, bytes); /* one more for a set that is not known yet */
	a->before = calloc((size_t)SETS_MAX * v->classes, sizeof(*a->before));
	if (!a->sets || !a->before)
		return false;
	memset(set_at(a, v, EVERY), 0xff, bytes);
	a->n_sets = NONE + 1;
	return true;
}

/* The set that was just written after the others. */
static uint16_t keep_set(struct tok_ahead *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	const uint64_t *fresh = set_at(a, v, a->n_sets);
	for (size_t id = 0; id < a->n_sets; id++)
		if (!memcmp(set_at(a, v, id), fresh, bytes))
			return (uint16_t)id;
	return a->n_sets == SETS_MAX ? EVERY : (uint16_t)a->n_sets++;
}

/* States from which a match follows before a character, when it does from those of `id` after it. */
static uint16_t set_before(struct tok_ahead *a, const struct automaton *v, uint16_t id, uint32_t class)
{
	uint16_t *known = &a->before[id * v->classes + class];
	if (*known)
		return (uint16_t)(*known - 1);
	uint64_t *fresh = set_at(a, v, a->n_sets);
	memset(fresh, 0, (v->states + 63) / 64 * sizeof(*fresh));
	for (uint32_t state = 0; state < v->states; state++) {
		uint32_t step = v->steps[state * v->classes + class], to = step & TFMC_TOK_A_DEAD;
		if (step & TFMC_TOK_A_MATCH || (to != TFMC_TOK_A_DEAD && has(a, v, id, to)))
			fresh[state / 64] |= UINT64_C(1) << state % 64;
	}
	a->n_steps += v->states;
	uint16_t found = keep_set(a, v);
	*known = (uint16_t)(found + 1);
	return found;
}

/* Fills in what follows from s[from] on. */
static bool look_ahead(struct tok_ahead *a, const struct automaton *v, uint32_t flags, const char *s,
                       size_t n, size_t from)
{
	uint32_t class;
	if (n >= a->cap) {
		uint16_t *grown = n < SIZE_MAX / 4 ? realloc(a->at, (n + 1) * sizeof(*grown)) : NULL;
		if (!grown)
			return false;
		a->at = grown;
		a->cap = n + 1;
	}
	if (!a->sets && !begin_sets(a, v))
		return false;
	for (size_t at = from, end; at < n; at = end) {
		end = at + step(v, flags, s + at, n - at, &class);
		for (size_t i = at; i < end; i++)
			a->at[i] = i == at ? (uint16_t) class : INSIDE;
	}
	uint16_t id = a->at[n] = set_before(a, v, NONE, v->classes - 1);
	for (size_t at = n; at-- > from;)
		if (a->at[at] != INSIDE)
			a->at[at] = id = set_before(a, v, id, a->at[at]);
	a->n_steps += 2 * (n - from);
	a->is_known = true;
	a->from = from;
	return true;
}

/* ---- matches ---- */

/* Length of the match at s[at], 0: none. */
static size_t match_at(const struct automaton *v, uint32_t flags, struct tok_ahead *a, const char *s,
                       size_t n, size_t at)
{
	uint32_t state = 0, class;
	size_t match = at, from = at;
	for (;;) {
		if (!a->is_known && at - match > FAR && !look_ahead(a, v, flags, s, n, at)) {
			a->failed = true;
			break;
		}
		if (a->is_known && at >= a->from && !has(a, v, a->at[at], state))
			break;
		size_t len = step(v, flags, s + at, n - at, &class);
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

void tok_ahead_end(struct tok_ahead *a)
{
	free(a->at);
	free(a->sets);
	free(a->before);
}

size_t tok_automaton(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, struct tok_ahead *ahead,
                     const char *s, size_t n, size_t at, size_t *len)
{
	struct automaton v = view(t->texts + op->a);
	uint32_t flags = op->kind == TFMC_TOK_MATCH_PATTERN ? op->flags : 0, class;
	for (*len = 0; at < n && !ahead->failed;) {
		size_t width = step(&v, flags, s + at, n - at, &class);
		ahead->n_steps++;
		if ((v.steps[class] & TFMC_TOK_A_DEAD) != TFMC_TOK_A_DEAD)
			*len = match_at(&v, flags, ahead, s, n, at);
		if (*len)
			return at;
		at += width;
	}
	return n;
}
