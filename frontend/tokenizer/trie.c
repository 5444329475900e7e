/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Construction of a double-array trie (Aoe 1989) over sorted keys, breadth first: the children of a node get
 * the first base at which all their slots are free. Free slots are a list; after long searches slots are
 * dropped from its front, so that building stays linear for adversarial keys.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/build.h"

#define TRIE_NODES_MAX ((size_t)1 << 27)
#define BASE_TRIES_MAX 512 /* free slots tried for a node before it is appended at the end */
#define NODES_GIVEN_UP 64

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

static bool is_same_key(const struct tokenizer_key *a, const struct tokenizer_key *b)
{
	return a->text.n == b->text.n && (!a->text.n || !memcmp(a->text.text, b->text.text, a->text.n));
}

/* Grows to `want` nodes; new ones are appended to the free list. */
static bool grow_nodes(struct tokenizer_trie *t, size_t n_nodes)
{
	size_t old = t->n, cap = t->cap;
	if (n_nodes <= old)
		return true;
	if (n_nodes > TRIE_NODES_MAX)
		return false;
	while (cap < n_nodes)
		cap = cap ? 2 * cap : 1024;
	if (cap != t->cap) {
		t->nodes = arena_grow(t->arena, t->nodes, old, cap, sizeof(*t->nodes));
		t->next = arena_grow(t->arena, t->next, old, cap, sizeof(*t->next));
		t->prev = arena_grow(t->arena, t->prev, old, cap, sizeof(*t->prev));
		t->cap = cap;
	}
	if (arena_failed(t->arena))
		return false;
	for (size_t i = old; i < n_nodes; i++) {
		t->nodes[i] = (struct tfmc_tok_node){0, TFMC_TOK_NONE};
		if (i == 0)
			continue; /* list head */
		t->prev[i] = t->prev[0];
		t->next[t->prev[0]] = (uint32_t)i;
		t->next[i] = 0;
		t->prev[0] = (uint32_t)i;
	}
	t->n = n_nodes;
	return true;
}

/* Takes a node off the free list. */
static void allocate_node(struct tokenizer_trie *t, uint32_t node)
{
	if (t->prev[node] == node)
		return; /* not in the list */
	t->next[t->prev[node]] = t->next[node];
	t->prev[t->next[node]] = t->prev[node];
	t->prev[node] = node;
}

/* Code of a key at a depth: byte + 1, 0 at its end. */
static unsigned code_at(const struct tokenizer_key *k, size_t depth)
{
	return depth == k->text.n ? 0 : (unsigned char)k->text.text[depth] + 1u;
}

static bool is_base_free(const struct tokenizer_trie *t, size_t base, const unsigned *codes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (base + codes[i] < t->n && t->nodes[base + codes[i]].check != TFMC_TOK_NONE)
			return false;
	return true;
}

/* First base that fits children with these codes. Base 0 is allowed, except for the slot of the root. */
static size_t find_base(struct tokenizer_trie *t, const unsigned *codes, size_t n)
{
	unsigned tries = 0;
	for (uint32_t at = t->next[0]; at != 0; at = t->next[at]) {
		if (at > codes[0] && is_base_free(t, at - codes[0], codes, n))
			return at - codes[0];
		if (at > codes[0] && ++tries == BASE_TRIES_MAX)
			break;
	}
	/* The front slots have been tried most often: drop them, which bounds all searches. */
	for (unsigned i = 0; tries == BASE_TRIES_MAX && i < NODES_GIVEN_UP; i++)
		allocate_node(t, t->next[0]);
	return t->n > codes[0] ? t->n - codes[0] : 1;
}

/* Places the children of a node and queues them. */
static bool place_children(struct tokenizer_trie *t, const struct tokenizer_key *keys, const struct range *r,
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
	if (!grow_nodes(t, base + codes[n - 1] + 1))
		return false;
	t->nodes[r->node].base = (uint32_t)base;
	size_t from = r->from;
	for (size_t k = 0; k < n; k++) {
		uint32_t child = (uint32_t)base + codes[k];
		size_t to = from;
		while (to < r->to && code_at(&keys[to], r->depth) == codes[k])
			to++;
		allocate_node(t, child);
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
	size_t n_unique = 0;
	*out = (struct tokenizer_trie){.arena = a};
	if (n > 1)
		qsort(keys, n, sizeof(*keys), compare_keys);
	for (size_t i = 0; i < n; i++)
		if (n_unique == 0 || !is_same_key(&keys[n_unique - 1], &keys[i]))
			keys[n_unique++] = keys[i];
	if (n_unique == 0)
		return TFMC_OK;
	if (!grow_nodes(out, 512))
		return TFMC_NO_MEMORY;
	out->nodes[0].check = 0; /* never free; not its own child, because the root's codes begin after it */
	if (!ARENA_ADDED(a, &queue, (struct range){0, n_unique, 0, 0}))
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < queue.n; i++) {
		struct range r = queue.items[i];
		if (!place_children(out, keys, &r, &queue))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}
