/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside libtfmctok: an open tokenizer, and the state of one encoding. Steps
 * follow each other without lists between them: added tokens cut the text into
 * segments, normalizers rewrite a segment, splitters give parts to splitters,
 * the last one gives words to the model.
 */
#ifndef TFMC_RUNTIME_TOKENIZER_TOK_H
#define TFMC_RUNTIME_TOKENIZER_TOK_H

#include "runtime/tokenizer/format.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"
#include "runtime/unicode/unicode.h"

struct tok_trie {
	const struct tfmc_tok_node *nodes;
	uint32_t n;
	bool begins[256]; /* a key begins with this byte */
};

struct tok_ops {
	const struct tfmc_tok_op *items;
	uint32_t n;
};

/* The map of characters; units NULL: none. */
struct tok_charsmap {
	const uint32_t *units;
	uint32_t n;
	const char *texts;
	uint32_t n_texts;
};

struct tfmc_tokenizer {
	const struct tfmc_tok_header *head;
	const unsigned char *data;
	const uint32_t *offsets;
	const char *pieces;
	const unsigned char *flags;
	const double *scores;
	struct tok_trie trie, raw, norm;
	const struct tfmc_tok_pair *pairs;
	uint32_t pair_mask;     /* slots - 1; 0: no pairs */
	const uint32_t *single; /* NULL: none */
	const struct tfmc_tok_added *added;
	uint32_t n_added;
	struct tok_ops normalize, split;
	const struct tfmc_tok_item *items;
	uint32_t n_items;
	struct tok_charsmap chars;
	const char *texts;
	const char *mark, *prefix;
	void *mapped; /* file, or NULL */
	uint64_t mapped_bytes;
};

/* Child of a node for one byte; false: there is none. */
static inline bool tok_step(const struct tok_trie *t, uint32_t *node, unsigned char byte)
{
	uint32_t next = t->nodes[*node].base + byte + 1u;
	if (next >= t->n || t->nodes[next].check != *node)
		return false;
	*node = next;
	return true;
}

/* Value of the key that ends at a node; false: none does. */
static inline bool tok_value(const struct tok_trie *t, uint32_t node, uint32_t *value)
{
	uint32_t end = t->nodes[node].base;
	if (end >= t->n || end == 0 || t->nodes[end].check != node)
		return false;
	*value = t->nodes[end].base;
	return true;
}

/* Longest key at the beginning of s; 0: none. */
size_t tok_longest(const struct tok_trie *t, const char *s, size_t n, uint32_t *value);

struct tok_ids {
	uint32_t *items;
	size_t n, cap;
};

/* What follows at each place of a text, as far as an automaton asked for it. Sets of states belong to the
 * automaton and stay from text to text: zeroed before the first one, is_known is cleared for each. */
struct tok_ahead {
	uint16_t *at; /* places from `from` on, if is_known: the set of states from which a match ends there
	                 or later */
	size_t cap, from, n_sets;
	uint64_t *sets;   /* a bit for each state */
	uint16_t *before; /* [set][class]: 1 + the set before such a character; 0: not known yet */
	uint64_t n_steps; /* work so far: characters and states that were looked at */
	bool is_known, failed;
};
void tok_ahead_end(struct tok_ahead *a);

struct tok_symbol {
	uint32_t id;
	int32_t prev, next;
};

struct tok_heap_entry {
	uint64_t key; /* rank, then place */
	uint32_t left, right, id;
};

struct tok_best {
	double score;
	uint32_t start, id;
};

/* Words that were seen, in lines of a processor's cache. */
#define TOK_CACHE_BYTES 26
#define TOK_CACHE_IDS   8
struct tok_cached {
	uint32_t hash;
	unsigned char n, n_ids; /* n 0: free */
	char word[TOK_CACHE_BYTES];
	uint32_t ids[TOK_CACHE_IDS];
};

struct tok_run {
	const struct tfmc_tokenizer *t;
	int32_t *ids;
	uint64_t cap, n;
	bool failed; /* no memory, or is_longer */
	bool is_longer;
	bool is_plain;                  /* control tokens in the text are text */
	bool is_start;                  /* nothing of the text is before the segment */
	size_t normal_most, level_most; /* bytes that normalizers and splitters may still write; not 0 */
	struct tok_text normal[2];
	struct tok_text level[TFMC_TOK_OPS_MAX]; /* text that a splitter rewrote */
	struct tok_ahead ahead[TFMC_TOK_OPS_MAX];
	struct tok_ids word;
	struct tok_symbol *symbols;
	size_t cap_symbols;
	struct tok_heap_entry *heap;
	size_t n_heap, cap_heap;
	struct tok_best *best;
	size_t cap_best;
	struct tok_cached *cache;
	uint32_t cache_mask;
};

/* Grows an array of the run; NULL, and failed, when there is no memory. */
void *tok_grow(struct tok_run *r, void *old, size_t *cap, size_t want, size_t size);
void tok_push(struct tok_run *r, uint32_t id); /* to r->word */
/* Bytes without a token of their own: tokens of bytes, or one unknown token. */
void tok_push_unknown(struct tok_run *r, const char *s, size_t n);

/* Before a text of so many bytes. */
void tok_limit(struct tok_run *r, uint64_t bytes);
/* `out` is empty and may take *most bytes; afterwards they are fewer by those that it has. */
void tok_begin_text(struct tok_text *out, size_t most);
void tok_end_text(struct tok_run *r, const struct tok_text *out, size_t *most);
/* TFMC_TOKENIZER_OK, or why the run failed. */
int tok_run_status(const struct tok_run *r);
/* The letter that byte-level vocabularies write for a byte. */
uint32_t tok_letter(unsigned char byte);
/* The text after all normalizers: in `s`, or in a buffer of the run. */
const char *tok_normalize(struct tok_run *r, const char *s, size_t n, size_t *out_n);
/* Length of what scanner `op` takes at s; *is_part false: it is dropped. n > 0. */
size_t tok_scan(const struct tfmc_tok_op *op, const char *s, size_t n, bool *is_part);
/* The same for splitters by matches: *is_part is whether it matched. */
size_t tok_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s, size_t n,
                 bool *is_match);
/* Whether bytes at an offset in TEXTS are an automaton. */
bool tok_automaton_fits(const char *a, uint64_t offset, uint64_t n);
/* Where automaton `op` matches from s[at] on, and how much; n: nowhere. `ahead` belongs to op and s. */
size_t tok_automaton(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, struct tok_ahead *ahead,
                     const char *s, size_t n, size_t at, size_t *len);
/* All splitters from `level` on, then the model. */
void tok_split(struct tok_run *r, uint32_t level, const char *s, size_t n);

/* The models: ids of one word to r->word, which is empty before. */
void tok_bpe(struct tok_run *r, const char *s, size_t n);
void tok_unigram(struct tok_run *r, const char *s, size_t n);
void tok_wordpiece(struct tok_run *r, const char *s, size_t n);
void tok_wordlevel(struct tok_run *r, const char *s, size_t n);
/* A word by the cache or by the model, to the ids of the run. */
void tok_word(struct tok_run *r, const char *s, size_t n);

#endif
