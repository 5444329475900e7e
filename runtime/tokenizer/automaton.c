/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Automata of regular expressions: one walk over characters gives the match at
 * a place. A walk that goes far beyond its match leaves a trail: where a later
 * one comes into the same state at the same place, the rest is known. So texts
 * made to be walked over again and again are not.
 */
#include <stdlib.h>
#include <string.h>

#include "tok.h"

#define TRAIL_FROM 32 /* bytes of a walk without a trail */

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

/* Writes down where the walk is; true: an earlier one was there, too. */
static bool leave_trail(struct tok_trail *t, size_t n, size_t at, bool is_first, uint32_t state)
{
	if (at >= t->from && at < t->to && t->states[at] == state) {
		t->from = is_first ? at : t->from;
		return true;
	}
	if (n >= t->cap) {
		uint16_t *grown = n < SIZE_MAX / 4 ? realloc(t->states, (n + 1) * sizeof(*grown)) : NULL;
		if (!grown) {
			t->failed = true;
			return true;
		}
		t->states = grown;
		t->cap = n + 1;
	}
	t->states[at] = (uint16_t)state;
	return false;
}

/* Length of the match at s[at], 0: none. */
static size_t match_at(const struct automaton *v, uint32_t flags, struct tok_trail *trail, const char *s,
                       size_t n, size_t at)
{
	uint32_t state = 0, class;
	size_t match = at, from = at, first = 0;
	for (;;) {
		size_t len = step(v, flags, s + at, n - at, &class);
		uint32_t to = v->steps[state * v->classes + class];
		match = to & TFMC_TOK_A_MATCH ? at : match;
		state = to & TFMC_TOK_A_DEAD;
		if (state == TFMC_TOK_A_DEAD || len == 0)
			break;
		at += len;
		if (at - from <= TRAIL_FROM)
			continue;
		if (leave_trail(trail, n, at, !first, state)) {
			match = trail->match >= at ? trail->match : match;
			trail->match = match;
			trail->from = first ? first : trail->from;
			return match - from;
		}
		first = first ? first : at;
	}
	if (first) {
		trail->from = first;
		trail->to = at + 1;
		trail->match = match;
	}
	return match - from;
}

size_t tok_automaton(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, struct tok_trail *trail,
                     const char *s, size_t n, size_t at, size_t *len)
{
	struct automaton v = view(t->texts + op->a);
	uint32_t flags = op->kind == TFMC_TOK_MATCH_PATTERN ? op->flags : 0, class;
	for (*len = 0; at < n;) {
		size_t width = step(&v, flags, s + at, n - at, &class);
		if ((v.steps[class] & TFMC_TOK_A_DEAD) != TFMC_TOK_A_DEAD)
			*len = match_at(&v, flags, trail, s, n, at);
		if (*len)
			return at;
		at += width;
	}
	return n;
}
