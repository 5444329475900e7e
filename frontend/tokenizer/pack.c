/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs a tokenizer description. The description is validated as a whole (ids in range, a usable model), so
 * that readers need not; the result is a function of the description.
 *
 * Construction of a double-array trie (Aoe 1989) over sorted keys, breadth first: the children of a node get
 * the first base at which all their slots are free. Free slots are a list; after long searches slots are
 * dropped from its front, so that building stays linear for adversarial keys.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/build.h"
#include "ir/support/checked.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

/* Output state. */
struct packer {
	const struct tokenizer_source *source;
	const struct tokenizer_desc *desc;
	struct arena *arena;
	struct tfmc_tok_header head;
	struct buf out;   /* sections after the header */
	struct buf texts; /* TFMC_TOK_TEXTS */
};

void tokenizer_desc_init(struct tokenizer_desc *d)
{
	*d = (struct tokenizer_desc){.unknown = TFMC_TOK_NONE, .bos = TFMC_TOK_NONE, .eos = TFMC_TOK_NONE};
	d->pad = d->mask = TFMC_TOK_NONE;
	for (unsigned i = 0; i < 256; i++)
		d->single[i] = TFMC_TOK_NONE;
}

struct tokenizer_string tokenizer_string(const char *text)
{
	return (struct tokenizer_string){text, text ? strlen(text) : 0};
}

/* A warning too returns TFMC_INVALID: there is no tokenizer, and the caller decides whether it goes on without one. */
enum tfmc_status tokenizer_vreject_file(const struct tokenizer_source *s, enum tokenizer_rejection why,
                                        const char *path, const char *fmt, va_list ap)
{
	struct buf text;
	bool is_warning = s->may_lack && why == TOKENIZER_UNSUPPORTED;
	buf_init(&text);
	if (path != NULL)
		buf_printf(&text, "%s: ", path);
	if (why == TOKENIZER_UNSUPPORTED)
		buf_str(&text, "not supported yet: ");
	buf_vprintf(&text, fmt, ap);
	if (is_warning)
		diag_warning(s->cx, s->loc, DIAG_TOKENIZER,
		             "'%s': %s; without its tokenizer the model takes ids alone", s->name, text.data);
	else
		diag_error(s->cx, s->loc, DIAG_TOKENIZER, "'%s': %s", s->name, text.data);
	buf_destroy(&text);
	return TFMC_INVALID;
}

enum tfmc_status tokenizer_reject_file(const struct tokenizer_source *s, enum tokenizer_rejection why,
                                       const char *path, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	enum tfmc_status st = tokenizer_vreject_file(s, why, path, fmt, ap);
	va_end(ap);
	return st;
}

bool tokenizer_add_op(struct tokenizer_ops *ops, uint32_t kind, uint32_t flags, struct tokenizer_string a,
                      struct tokenizer_string b)
{
	if (ops->n == TFMC_TOK_OPS_MAX)
		return false;
	ops->items[ops->n++] = (struct tokenizer_op){kind, flags, a, b};
	return true;
}

static uint32_t named_id(const struct tokenizer_named_id *names, const char *text, size_t n)
{
	for (; names->name != NULL; names++)
		if (strlen(names->name) == n && memcmp(names->name, text, n) == 0)
			return names->id;
	return TFMC_TOK_NONE;
}

/* Parses a template string (`cls_token $A sep_token:1`; a number after ':' is the segment id, one digit) into items.
 * Names without an id are left out. */
static void add_items(struct tokenizer_desc *d, const char *at, const struct tokenizer_named_id *names)
{
	for (; *at != '\0'; at += strspn(at, " ")) {
		size_t n = strcspn(at, ": ");
		bool is_text = *at == '$';
		struct tfmc_tok_item item = {TFMC_TOK_TOKEN, is_text ? 0 : named_id(names, at, n), 0};
		if (is_text)
			item.kind = at[1] == 'A' ? TFMC_TOK_TEXT_A : TFMC_TOK_TEXT_B;
		if (at[n] == ':')
			item.type = (uint32_t)(at[n + 1] - '0');
		if (item.id != TFMC_TOK_NONE && d->n_items < TFMC_TOK_ITEMS_MAX)
			d->items[d->n_items++] = item;
		at += strcspn(at, " ");
	}
}

void tokenizer_set_template(struct tokenizer_desc *d, const char *single, const char *pair,
                            const struct tokenizer_named_id *names)
{
	d->n_items = 0;
	add_items(d, single, names);
	d->n_single = d->n_items;
	add_items(d, pair, names);
}

/* ---- double-array trie ---- */

struct tokenizer_key {
	struct tokenizer_string text;
	uint32_t value;
};
/* A double-array trie under construction. */
struct tokenizer_trie {
	struct tfmc_tok_node *nodes;
	size_t n, cap;
	uint32_t *next, *prev; /* list of free nodes, ascending; 0 ends it */
	struct arena *arena;
};

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

/* Order of keys by bytes, then length, then value, so that the first of equal keys has the least value. */
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

/* Grows to n_nodes nodes. Appends new ones to the free list, a ring whose head is node 0: arena_grow zeroes new memory,
 * which links the head to itself. False: no memory, or the trie is too large. */
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

/* True: the slots of all children are free with this base; those after the last node are. */
static bool is_base_free(const struct tokenizer_trie *t, size_t base, const unsigned *codes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (base + codes[i] < t->n && t->nodes[base + codes[i]].check != TFMC_TOK_NONE)
			return false;
	return true;
}

/* First base that fits children with these codes, ascending: the first child takes a slot of the free list. Base 0 is
 * allowed, except for the slot of the root. */
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
	/* the slots after the last node are free */
	return t->n > codes[0] ? t->n - codes[0] : 1;
}

/* Allocates the children of a node, one for each code that follows its prefix, and queues those with further
 * children. The end of a key (code 0) has its value as base. False: no memory, or too many nodes. */
static bool place_children(struct tokenizer_trie *t, const struct tokenizer_key *keys, const struct range *r,
                           struct ranges *queue)
{
	unsigned codes[257]; /* of 256 bytes, and the end of a key */
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

/* Builds the trie. Sorts the keys and removes duplicates (the first value stays). */
static enum tfmc_status tokenizer_trie_build(struct arena *a, struct tokenizer_key *keys, size_t n,
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

/* ---- sections ---- */

static void begin_section(struct packer *p, enum tfmc_tok_section_kind kind)
{
	size_t over = p->out.len % TFMC_TOK_ALIGN;
	buf_fill(&p->out, 0, over ? TFMC_TOK_ALIGN - over : 0);
	p->head.sections[kind].offset = sizeof(p->head) + p->out.len;
}

static void end_section(struct packer *p, enum tfmc_tok_section_kind kind)
{
	p->head.sections[kind].bytes = sizeof(p->head) + p->out.len - p->head.sections[kind].offset;
}

/* Appends a string to TEXTS, aligned for the tables of automata. */
static void write_string(struct packer *p, struct tokenizer_string text, uint32_t *at, uint32_t *n)
{
	buf_fill(&p->texts, 0, (0 - p->texts.len) % 4);
	*at = (uint32_t)p->texts.len;
	*n = (uint32_t)text.n;
	buf_bytes(&p->texts, text.text, text.n);
}

/* Writes the pieces with their offsets (the end of the last one, too), the flags, and for Unigram the scores; other
 * models have an empty section. */
static void write_tokens(struct packer *p)
{
	const struct tokenizer_desc *d = p->desc;
	size_t at = 0;
	begin_section(p, TFMC_TOK_OFFSETS);
	for (size_t i = 0; i <= d->n_tokens; i++) {
		buf_u32le(&p->out, (uint32_t)at);
		at += i < d->n_tokens ? d->tokens[i].piece.n : 0;
	}
	end_section(p, TFMC_TOK_OFFSETS);
	begin_section(p, TFMC_TOK_PIECES);
	for (size_t i = 0; i < d->n_tokens; i++)
		buf_bytes(&p->out, d->tokens[i].piece.text, d->tokens[i].piece.n);
	end_section(p, TFMC_TOK_PIECES);
	begin_section(p, TFMC_TOK_FLAGS);
	for (size_t i = 0; i < d->n_tokens; i++)
		buf_char(&p->out, (char)d->tokens[i].flags);
	end_section(p, TFMC_TOK_FLAGS);
	begin_section(p, TFMC_TOK_SCORES);
	for (size_t i = 0; d->model == TFMC_TOK_UNIGRAM && i < d->n_tokens; i++) {
		uint64_t bits;
		memcpy(&bits, &d->tokens[i].score, sizeof(bits));
		buf_u64le(&p->out, bits);
	}
	end_section(p, TFMC_TOK_SCORES);
}

/* Writes a section with the trie of these keys. */
static enum tfmc_status write_trie(struct packer *p, enum tfmc_tok_section_kind kind,
                                   struct tokenizer_key *keys, size_t n)
{
	struct tokenizer_trie t;
	TFMC_TRY(tokenizer_trie_build(p->arena, keys, n, &t));
	begin_section(p, kind);
	for (size_t i = 0; i < t.n; i++) {
		buf_u32le(&p->out, t.nodes[i].base);
		buf_u32le(&p->out, t.nodes[i].check);
	}
	end_section(p, kind);
	return TFMC_OK;
}

/* Writes the trie from the strings that the model matches to their ids. */
static enum tfmc_status write_piece_trie(struct packer *p)
{
	const struct tokenizer_desc *d = p->desc;
	size_t n = 0;
	struct tokenizer_key *keys = ARENA_ARRAY(p->arena, struct tokenizer_key, d->n_tokens);
	if (keys == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < d->n_tokens; i++)
		if (d->tokens[i].is_matched && tokenizer_match_key(&d->tokens[i]).n)
			keys[n++] = (struct tokenizer_key){tokenizer_match_key(&d->tokens[i]), (uint32_t)i};
	return write_trie(p, TFMC_TOK_TRIE, keys, n);
}

/* Writes added tokens, and the tries of those matched in raw and in normalized text. */
static enum tfmc_status write_added(struct packer *p)
{
	const struct tokenizer_desc *d = p->desc;
	begin_section(p, TFMC_TOK_ADDED);
	for (size_t i = 0; i < d->n_added; i++) {
		buf_u32le(&p->out, d->added[i].id);
		buf_u32le(&p->out, d->added[i].flags);
	}
	end_section(p, TFMC_TOK_ADDED);
	for (int in_normalized = 0; in_normalized < 2; in_normalized++) {
		size_t n = 0;
		struct tokenizer_key *keys = ARENA_ARRAY(p->arena, struct tokenizer_key, d->n_added + 1);
		if (keys == NULL)
			return TFMC_NO_MEMORY;
		for (size_t i = 0; i < d->n_added; i++) {
			const struct tokenizer_added *a = &d->added[i];
			struct tokenizer_string text = a->text.n ? a->text : d->tokens[a->id].piece;
			if (a->in_normalized == in_normalized && text.n)
				keys[n++] = (struct tokenizer_key){text, (uint32_t)i};
		}
		TFMC_TRY(write_trie(p, in_normalized ? TFMC_TOK_NORM_TRIE : TFMC_TOK_RAW_TRIE, keys, n));
	}
	return TFMC_OK;
}

/* Builds the hash table of merges, at most half full: searches are short. Of equal ones the lowest rank stays. */
static enum tfmc_status write_pairs(struct packer *p)
{
	const struct tokenizer_desc *d = p->desc;
	size_t n = 16;
	while (n < 2 * d->n_merges)
		n *= 2;
	struct tfmc_tok_pair *slots = d->n_merges ? ARENA_ARRAY(p->arena, struct tfmc_tok_pair, n) : NULL;
	if (d->n_merges && slots == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; slots && i < n; i++)
		slots[i] = (struct tfmc_tok_pair){TFMC_TOK_NONE, TFMC_TOK_NONE, TFMC_TOK_NONE, TFMC_TOK_NONE};
	for (size_t i = 0; i < d->n_merges; i++) {
		const struct tokenizer_merge *m = &d->merges[i];
		size_t at = tfmc_tok_pair_hash(m->left, m->right) & (n - 1);
		while (slots[at].left != TFMC_TOK_NONE &&
		       (slots[at].left != m->left || slots[at].right != m->right))
			at = (at + 1) & (n - 1);
		if (slots[at].left == TFMC_TOK_NONE || slots[at].rank > m->rank)
			slots[at] = (struct tfmc_tok_pair){m->left, m->right, m->rank, m->id};
	}
	begin_section(p, TFMC_TOK_PAIRS);
	for (size_t i = 0; slots && i < n; i++) {
		buf_u32le(&p->out, slots[i].left);
		buf_u32le(&p->out, slots[i].right);
		buf_u32le(&p->out, slots[i].rank);
		buf_u32le(&p->out, slots[i].id);
	}
	end_section(p, TFMC_TOK_PAIRS);
	return TFMC_OK;
}

/* Writes operations; their strings go to TEXTS. */
static void write_ops(struct packer *p, enum tfmc_tok_section_kind kind, const struct tokenizer_ops *ops)
{
	begin_section(p, kind);
	for (size_t i = 0; i < ops->n; i++) {
		uint32_t a, n_a, b, n_b;
		write_string(p, ops->items[i].a, &a, &n_a);
		write_string(p, ops->items[i].b, &b, &n_b);
		const uint32_t fields[] = {ops->items[i].kind, ops->items[i].flags, a, n_a, b, n_b};
		for (size_t k = 0; k < TFMC_COUNT(fields); k++)
			buf_u32le(&p->out, fields[k]);
	}
	end_section(p, kind);
}

/* Writes byte tokens, operations, template and character map; then TEXTS, to which all of these append. */
static void write_remaining_sections(struct packer *p)
{
	const struct tokenizer_desc *d = p->desc;
	begin_section(p, TFMC_TOK_SINGLE);
	for (unsigned i = 0; d->has_single && i < 256; i++)
		buf_u32le(&p->out, d->single[i]);
	end_section(p, TFMC_TOK_SINGLE);
	write_ops(p, TFMC_TOK_NORMALIZE, &d->normalize);
	write_ops(p, TFMC_TOK_SPLIT, &d->split);
	begin_section(p, TFMC_TOK_TEMPLATE);
	for (size_t i = 0; i < d->n_items; i++) {
		buf_u32le(&p->out, d->items[i].kind);
		buf_u32le(&p->out, d->items[i].id);
		buf_u32le(&p->out, d->items[i].type);
	}
	end_section(p, TFMC_TOK_TEMPLATE);
	begin_section(p, TFMC_TOK_CHARSMAP);
	buf_bytes(&p->out, d->charsmap.text, d->charsmap.n);
	end_section(p, TFMC_TOK_CHARSMAP);
	write_string(p, d->mark, &p->head.mark, &p->head.n_mark);
	write_string(p, d->prefix, &p->head.prefix, &p->head.n_prefix);
	begin_section(p, TFMC_TOK_TEXTS);
	buf_append(&p->out, &p->texts);
	end_section(p, TFMC_TOK_TEXTS);
}

/* ---- checks ---- */

static bool is_id_or_none(const struct tokenizer_desc *d, uint32_t id)
{
	return id == TFMC_TOK_NONE || id < d->n_tokens;
}

/* True if every id of the description is that of a token, or NONE where this is allowed. */
static bool are_ids_in_range(const struct tokenizer_desc *d)
{
	bool ok = is_id_or_none(d, d->unknown) && is_id_or_none(d, d->bos) && is_id_or_none(d, d->eos) &&
	          is_id_or_none(d, d->pad) && is_id_or_none(d, d->mask);
	for (size_t i = 0; ok && i < d->n_added; i++)
		ok = d->added[i].id < d->n_tokens;
	for (size_t i = 0; ok && i < d->n_merges; i++)
		ok = d->merges[i].left < d->n_tokens && d->merges[i].right < d->n_tokens &&
		     d->merges[i].id < d->n_tokens;
	for (size_t i = 0; ok && i < d->n_items; i++)
		ok = d->items[i].kind != TFMC_TOK_TOKEN || d->items[i].id < d->n_tokens;
	for (unsigned i = 0; ok && d->has_single && i < 256; i++)
		ok = is_id_or_none(d, d->single[i]);
	return ok;
}

/* Checks the layout: u32 size of the double array, the double array, strings of which the last one is
 * terminated. */
static bool is_charsmap_valid(struct tokenizer_string map)
{
	const unsigned char *m = (const unsigned char *)map.text;
	if (map.n == 0)
		return true;
	size_t units = map.n < 4 ? 0 : m[0] | (size_t)m[1] << 8 | (size_t)m[2] << 16 | (size_t)m[3] << 24;
	return units != 0 && units % 4 == 0 && units < map.n - 4 && m[map.n - 1] == 0;
}

static bool are_scores_finite(const struct tokenizer_desc *d)
{
	bool ok = d->unknown_score - d->unknown_score == 0; /* neither NaN nor infinity */
	for (size_t i = 0; ok && d->model == TFMC_TOK_UNIGRAM && i < d->n_tokens; i++)
		ok = d->tokens[i].score - d->tokens[i].score == 0;
	return ok;
}

/* Checks sizes, character map, scores and ids of a description. Offsets of pieces have 32 bits; a merge takes less than
 * four slots of 16 bytes (write_pairs). */
static enum tfmc_status check_desc(const struct tokenizer_source *s, const struct tokenizer_desc *d)
{
	size_t bytes = 0, merges;
	bool fits = d->n_tokens <= TFMC_TOK_TOKENS_MAX && checked_mul_size(d->n_merges, 64, &merges) &&
	            merges <= UINT32_MAX;
	for (size_t i = 0; fits && i < d->n_tokens; i++)
		fits = checked_add_size(bytes, d->tokens[i].piece.n, &bytes) && bytes <= UINT32_MAX / 2;
	const char *wrong = d->n_tokens == 0                          ? "the tokenizer has no tokens"
	                    : !fits || d->charsmap.n > UINT32_MAX / 2 ? "the tokenizer is too large"
	                    : !is_charsmap_valid(d->charsmap) ? "the precompiled map of characters is damaged"
	                    : !are_scores_finite(d)           ? "a score is not a finite number"
	                    : !are_ids_in_range(d) ? "an id of the tokenizer is not that of a token"
	                                           : NULL;
	return wrong == NULL ? TFMC_OK : tokenizer_reject_file(s, TOKENIZER_WRONG, NULL, "%s", wrong);
}

/* ---- packing ---- */

/* True: words may be cut at marks before merging, since no piece has a mark after something else. */
static bool may_cut_at_mark(const struct tokenizer_desc *d)
{
	bool ok = d->mark.n > 0 && d->model == TFMC_TOK_BPE && !(d->flags & TFMC_TOK_H_BYTE_LEVEL);
	for (size_t i = 0; ok && i < d->n_tokens; i++) {
		struct tokenizer_string p = tokenizer_match_key(&d->tokens[i]);
		bool is_mark = true;
		for (size_t at = 0; ok && d->tokens[i].is_matched && at < p.n;) {
			bool here = p.n - at >= d->mark.n && !memcmp(p.text + at, d->mark.text, d->mark.n);
			ok = is_mark || !here;
			is_mark = here;
			at += here ? d->mark.n : 1;
		}
	}
	return ok;
}

static void init_header(struct packer *p)
{
	const struct tokenizer_desc *d = p->desc;
	p->head = (struct tfmc_tok_header){.magic = TFMC_TOK_MAGIC, .version = TFMC_TOK_VERSION};
	p->head.n_sections = TFMC_TOK_N_SECTIONS;
	p->head.model = (uint32_t)d->model;
	p->head.flags = d->flags | (may_cut_at_mark(d) ? TFMC_TOK_H_CUT_AT_MARK : 0u);
	p->head.n_tokens = (uint32_t)d->n_tokens;
	p->head.unknown = d->unknown;
	p->head.bos = d->bos;
	p->head.eos = d->eos;
	p->head.pad = d->pad;
	p->head.mask = d->mask;
	p->head.word_max = d->word_max;
	p->head.n_single = (uint32_t)d->n_single;
	p->head.unknown_score = d->unknown_score;
}

/* Copies header and sections into the arena and sets the checksum, which covers all bytes after it. */
static enum tfmc_status finish(struct packer *p, struct tokenizer_packed *out)
{
	size_t over = p->out.len % TFMC_TOK_ALIGN;
	buf_fill(&p->out, 0, over ? TFMC_TOK_ALIGN - over : 0);
	size_t bytes = sizeof(p->head) + p->out.len, skip = offsetof(struct tfmc_tok_header, model);
	unsigned char *data =
	        buf_failed(&p->out) || buf_failed(&p->texts) ? NULL : arena_alloc(p->arena, bytes);
	if (data == NULL)
		return TFMC_NO_MEMORY;
	p->head.bytes = bytes;
	memcpy(data, &p->head, sizeof(p->head));
	memcpy(data + sizeof(p->head), p->out.data, p->out.len);
	p->head.checksum = tfmc_tok_checksum(data + skip, bytes - skip);
	memcpy(data, &p->head, sizeof(p->head));
	*out = (struct tokenizer_packed){data, bytes};
	return TFMC_OK;
}

/* Opens the result with the library, so that errors appear now and not on the target machine. */
static enum tfmc_status check_packed(const struct tokenizer_source *s, const struct tokenizer_packed *p)
{
	struct tfmc_tokenizer *t;
	int status = tfmc_tokenizer_open(p->data, p->bytes, &t);
	if (status == TFMC_TOKENIZER_E_MEMORY)
		return TFMC_NO_MEMORY;
	if (status != TFMC_TOKENIZER_OK)
		return tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL,
		                             "libtfmctok would say of it that %s",
		                             tfmc_tokenizer_status_text(status));
	tfmc_tokenizer_close(t);
	return TFMC_OK;
}

/* A failed write of a section shows in the buffers or in st; TEXTS is written last, as other sections append to it. */
enum tfmc_status tokenizer_pack(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                struct tokenizer_packed *out)
{
	struct packer p = {.source = s, .desc = d, .arena = s->arena};
	TFMC_TRY(check_desc(s, d));
	init_header(&p);
	buf_init(&p.out);
	buf_init(&p.texts);
	write_tokens(&p);
	enum tfmc_status st = write_piece_trie(&p);
	if (st == TFMC_OK)
		st = write_pairs(&p);
	if (st == TFMC_OK)
		st = write_added(&p);
	write_remaining_sections(&p);
	if (st == TFMC_OK)
		st = finish(&p, out);
	buf_destroy(&p.out);
	buf_destroy(&p.texts);
	return st == TFMC_OK ? check_packed(s, out) : st;
}
