/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double array over the pieces of a tokenizer: sorted keys, level by level;
 * the children of a node go to the first base at which all their places are
 * free. Free places are a list that gets shorter from its front when searches
 * are long, so that building is linear also for texts made to hurt.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/build.h"

#define TRIE_NODES_MAX ((size_t)1 << 27)
#define TRIE_TRIES     512 /* free places a node looks at before it goes after all others */
#define TRIE_GIVEN_UP  64

/* Keys [from, to) share the first `depth` bytes, which lead to `node`. */
struct range {
	size_t from, to;
	uint32_t node;
	size_t depth;
};

struct ranges {
	struct range *items;
	size_t n, cap;
};

static int compare_keys(const void *pa, const void *pb)
{
	const struct tokenizer_key *a = pa, *b = pb;
	size_t n = a->text.n < b->text.n ? a->text.n : b->text.n;
	int order = n ? memcmp(a->text.text, b->text.text, n) : 0;
	if (order)
		return order;
	if (a->text.n != b->text.n)
		return a->text.n < b->text.n ? -1 : 1;
	return a->value < b->value ? -1 : a->value > b->value;
}

static bool same_text(const struct tokenizer_key *a, const struct tokenizer_key *b)
{
	return a->text.n == b->text.n && (!a->text.n || !memcmp(a->text.text, b->text.text, a->text.n));
}

/* Makes nodes up to `want`, all new ones free, at the end of the list. */
static bool grow(struct tokenizer_trie *t, size_t want)
{
	size_t old = t->n, cap = t->cap;
	if (want <= old)
		return true;
	if (want > TRIE_NODES_MAX)
		return false;
	while (cap < want)
		cap = cap ? 2 * cap : 1024;
	if (cap != t->cap) {
		t->nodes = arena_grow(t->arena, t->nodes, old, cap, sizeof(*t->nodes));
		t->next = arena_grow(t->arena, t->next, old, cap, sizeof(*t->next));
		t->prev = arena_grow(t->arena, t->prev, old, cap, sizeof(*t->prev));
		t->cap = cap;
	}
	if (arena_failed(t->arena))
		return false;
	for (size_t i = old; i < want; i++) {
		t->nodes[i] = (struct tfmc_tok_node){0, TFMC_TOK_NONE};
		if (i == 0)
			continue; /* the head of the list */
		t->prev[i] = t->prev[0];
		t->next[t->prev[0]] = (uint32_t)i;
		t->next[i] = 0;
		t->prev[0] = (uint32_t)i;
	}
	t->n = want;
	return true;
}

static void take(struct tokenizer_trie *t, uint32_t node)
{
	if (t->prev[node] == node)
		return; /* left the list before */
	t->next[t->prev[node]] = t->next[node];
	t->prev[t->next[node]] = t->prev[node];
	t->prev[node] = node;
}

static unsigned code_at(const struct tokenizer_key *k, size_t depth)
{
	return depth == k->text.n ? 0 : (unsigned char)k->text.text[depth] + 1u;
}

static bool fits(const struct tokenizer_trie *t, size_t base, const unsigned *codes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (base + codes[i] < t->n && t->nodes[base + codes[i]].check != TFMC_TOK_NONE)
			return false;
	return true;
}

/* The base for children with these codes, the smallest first. Base 0 is allowed but for the root's place. */
static size_t find_base(struct tokenizer_trie *t, const unsigned *codes, size_t n)
{
	unsigned tries = 0;
	for (uint32_t at = t->next[0]; at != 0; at = t->next[at]) {
		if (at > codes[0] && fits(t, at - codes[0], codes, n))
			return at - codes[0];
		if (at > codes[0] && ++tries == TRIE_TRIES)
			break;
	}
	/* The first ones have been looked at most often: they are given up, so that no search is long. */
	for (unsigned i = 0; tries == TRIE_TRIES && i < TRIE_GIVEN_UP; i++)
		take(t, t->next[0]);
	return t->n > codes[0] ? t->n - codes[0] : 1;
}

static bool place(struct tokenizer_trie *t, const struct tokenizer_key *keys, const struct range *r,
                  struct ranges *queue)
{
	unsigned codes[257];
	size_t n = 0;
	for (size_t i = r->from; i < r->to; i++) {
		unsigned code = code_at(&keys[i], r->depth);
		if (n == 0 || codes[n - 1] != code)
			codes[n++] = code;
	}
	size_t base = find_base(t, codes, n);
	if (!grow(t, base + codes[n - 1] + 1))
		return false;
	t->nodes[r->node].base = (uint32_t)base;
	size_t from = r->from;
	for (size_t k = 0; k < n; k++) {
		uint32_t child = (uint32_t)base + codes[k];
		size_t to = from;
		while (to < r->to && code_at(&keys[to], r->depth) == codes[k])
			to++;
		take(t, child);
		t->nodes[child].check = r->node;
		if (codes[k] == 0) {
			t->nodes[child].base = keys[from].value;
		} else {
			if (!ARENA_ADDED(t->arena, queue, (struct range){from, to, child, r->depth + 1}))
				return false;
		}
		from = to;
	}
	return true;
}

enum tfmc_status tokenizer_trie_build(struct arena *a, struct tokenizer_key *keys, size_t n,
                                      struct tokenizer_trie *out)
{
	struct ranges queue = {0};
	size_t kept = 0;
	*out = (struct tokenizer_trie){.arena = a};
	if (n > 1)
		qsort(keys, n, sizeof(*keys), compare_keys);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || !same_text(&keys[kept - 1], &keys[i]))
			keys[kept++] = keys[i];
	if (kept == 0)
		return TFMC_OK;
	if (!grow(out, 512))
		return TFMC_NO_MEMORY;
	out->nodes[0].check = 0; /* never free, and no child of itself: codes of the root begin after it */
	if (!ARENA_ADDED(a, &queue, (struct range){0, kept, 0, 0}))
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < queue.n; i++) {
		struct range r = queue.items[i];
		if (!place(out, keys, &r, &queue))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}
