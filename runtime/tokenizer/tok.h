/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: an open tokenizer, and the state of one encoding. The pipeline streams without intermediate
 * lists: added tokens split the text into segments, normalizers rewrite a segment, each splitter passes its
 * parts to the next one, the last one passes words to the model.
 */
#ifndef TFMC_RUNTIME_TOKENIZER_TOK_H
#define TFMC_RUNTIME_TOKENIZER_TOK_H

#include "runtime/tokenizer/format.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"
#include "runtime/tokenizer/unicode.h"

/* A section with a double-array trie. */
struct tok_trie {
	const struct tfmc_tok_node *nodes;
	uint32_t n;
	bool begins[256]; /* true: some key begins with this byte */
};

/* Operations of a section. */
struct tok_ops {
	const struct tfmc_tok_op *items;
	uint32_t n;
};

/* Precompiled character map of SentencePiece (Darts-clone double array); units NULL: none. */
struct tok_charsmap {
	const uint32_t *units;
	uint32_t n;
	const char *texts;
	uint32_t n_texts;
};

/* An open tokenizer: pointers to the sections, which open.c has validated. */
struct tfmc_tokenizer {
	const struct tfmc_tok_header *head;
	const unsigned char *data;
	const uint32_t *offsets;
	const char *pieces;
	const unsigned char *flags;
	const double *scores;
	struct tok_trie trie, raw, norm;
	const struct tfmc_tok_pair *pairs;
	uint32_t pair_mask;     /* number of slots - 1; 0: no pairs */
	const uint32_t *single; /* [256], or NULL: no single-byte tokens */
	const struct tfmc_tok_added *added;
	uint32_t n_added;
	struct tok_ops normalize, split;
	const struct tfmc_tok_item *items;
	uint32_t n_items;
	struct tok_charsmap chars;
	const char *texts;
	const char *mark, *prefix;
	void *mapped; /* mapping of a file, or NULL */
	uint64_t mapped_bytes;
};

/* Moves to the child of a node for one byte; false: no such child, *node unchanged. */
static inline bool tok_trie_step(const struct tok_trie *t, uint32_t *node, unsigned char byte)
{
	uint32_t next = t->nodes[*node].base + byte + 1u;
	if (next >= t->n || t->nodes[next].check != *node)
		return false;
	*node = next;
	return true;
}

/* Value of the key that ends at a node; false: no key ends there. */
static inline bool tok_trie_value(const struct tok_trie *t, uint32_t node, uint32_t *value)
{
	uint32_t end = t->nodes[node].base;
	if (end >= t->n || end == 0 || t->nodes[end].check != node)
		return false;
	*value = t->nodes[end].base;
	return true;
}

/* Length of the longest key that s begins with, and its value; 0: none. */
size_t tok_trie_longest(const struct tok_trie *t, const char *s, size_t n, uint32_t *value);

struct tok_ids {
	uint32_t *items;
	size_t n, cap;
};

/* Backward analysis of a text for one automaton: at each position, the set of states from which a match
 * still follows. Bounds the cost of failing walks (see split.c). Sets belong to the automaton and are
 * reused for later texts: zero before the first text, is_known is cleared for each. */
struct tok_suffix_sets {
	uint16_t *at; /* positions from `from` on, if is_known: index of the set of states from which a
		         match ends there or later */
	size_t cap, from, n_sets;
	uint64_t *sets;   /* bit sets of states */
	uint16_t *before; /* [set][class]: 1 + the set before a character of that class; 0: not computed
			     yet */
	uint64_t n_steps; /* work done: characters read and states examined */
	bool is_known, failed;
};
void tok_suffix_sets_free(struct tok_suffix_sets *a);

/* BPE of long words: symbol in a doubly linked list; -1 ends it. */
struct tok_symbol {
	uint32_t id;
	int32_t prev, next;
};

/* BPE of long words: candidate merge of two symbols, in a min-heap by key. */
struct tok_heap_entry {
	uint64_t key; /* rank, then position */
	uint32_t left, right, id;
};

/* Unigram: end of the best path to a position: its score, and the last piece with its begin. */
struct tok_best {
	double score;
	uint32_t start, id;
};

/* Word cache: entries of 64 bytes, one cache line each. */
#define TOK_CACHE_BYTES 26
#define TOK_CACHE_IDS   8
/* Entry of the word cache. */
struct tok_cached {
	uint32_t hash;
	unsigned char n, n_ids; /* n 0: empty entry */
	char word[TOK_CACHE_BYTES];
	uint32_t ids[TOK_CACHE_IDS];
};

/* State of one encoding. */
struct tok_run {
	const struct tfmc_tokenizer *t;
	int32_t *ids;
	uint64_t cap, n;
	bool failed; /* no memory, or is_longer */
	bool is_longer;
	bool is_plain;                    /* control tokens in the text are ordinary text */
	bool is_start;                    /* the segment is the beginning of the text */
	size_t normal_limit, level_limit; /* bytes that normalizers and splitters may still write; never 0 */
	struct tok_text normal[2];
	struct tok_text level[TFMC_TOK_OPS_MAX]; /* output of rewriting splitters */
	struct tok_suffix_sets suffixes[TFMC_TOK_OPS_MAX];
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

/* Grows an array of the run to at least `want` elements; sets r->failed and returns `old` if there is no
 * memory. */
void *tok_grow(struct tok_run *r, void *old, size_t *cap, size_t needed, size_t size);
void tok_push(struct tok_run *r, uint32_t id); /* appends to r->word */
/* Encodes bytes that no piece covers: byte-fallback tokens, or one unknown token. */
void tok_push_unknown(struct tok_run *r, const char *s, size_t n);

/* Sets the output limits for a text of `bytes` bytes. */
void tok_set_output_limits(struct tok_run *r, uint64_t bytes);
/* Begins and ends a rewriting step: `out` is emptied and may grow to *limit bytes, which the end reduces by
 * its size. */
void tok_begin_rewrite(struct tok_text *out, size_t limit);
void tok_end_rewrite(struct tok_run *r, const struct tok_text *out, size_t *limit);
/* Status of the run: OK, E_MEMORY or E_GROWTH. */
int tok_status(const struct tok_run *r);
/* Applies all normalizers. Returns `s` or a buffer of the run, *out_n bytes. */
const char *tok_normalize(struct tok_run *r, const char *s, size_t n, size_t *out_n);
/* True if the bytes at an offset in TEXTS are a valid automaton. */
bool tok_automaton_is_valid(const char *a, uint64_t offset, uint64_t n);
/* Position and length of the first match of automaton `op` from s[at] on; n: none. `suffixes` belongs to op
 * and s. */
size_t tok_find_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op,
                      struct tok_suffix_sets *suffixes, const char *s, size_t n, size_t at, size_t *len);
/* Runs the splitters from `level` on, then the model. */
void tok_split(struct tok_run *r, uint32_t level, const char *s, size_t n);

/* The models: write the ids of one word to r->word, which is empty before. BPE merges pairs of pieces by rank,
 * Unigram takes the pieces with the largest sum of scores, WordPiece the longest piece at each place. */
void tok_bpe(struct tok_run *r, const char *s, size_t n);
void tok_unigram(struct tok_run *r, const char *s, size_t n);
void tok_wordpiece(struct tok_run *r, const char *s, size_t n);
void tok_wordlevel(struct tok_run *r, const char *s, size_t n);
/* Encodes a word, by the cache or the model, and emits its ids. */
void tok_word(struct tok_run *r, const char *s, size_t n);

#endif
