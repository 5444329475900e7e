/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models: one word to ids, which are pushed to r->word. BPE merges the adjacent pair of the lowest rank until none has
 * one; Unigram searches for the best segmentation; WordPiece takes the longest piece at each position; WordLevel looks
 * up words as a whole. Pieces are found in a trie (a double array whose transitions are checked), merges in a hash
 * table. TFMC_TOK_NONE: no token.
 */
#include "runtime/tokenizer/tok.h"

#include <string.h>

/* ---- BPE ---- */

/*
 * Byte pair encoding (Sennrich et al. 2016) of one word: merges the pair of the lowest rank, the leftmost of
 * equal ones, until none is left. Short words rescan all pairs for each merge, long ones use a heap: n log n
 * for any input.
 */

#define SHORT_WORD 32

/* Looks up the merge of two ids by open addressing; NULL: none. A quarter of the slots is empty (open.c), so the
 * search ends. */
static const struct tfmc_tok_pair *find_pair(const struct tfmc_tokenizer *t, uint32_t left, uint32_t right)
{
	if (!t->pair_mask)
		return NULL;
	uint32_t at = tfmc_tok_pair_hash(left, right) & t->pair_mask;
	for (;; at = (at + 1) & t->pair_mask) {
		const struct tfmc_tok_pair *p = &t->pairs[at];
		if (p->left == left && p->right == right)
			return p;
		if (p->left == TFMC_TOK_NONE)
			return NULL;
	}
}

/* ---- initial symbols ---- */

/* Initial symbols of byte-level BPE: one id per byte; a byte without a token is the unknown one, or is dropped. */
static void push_bytes(struct tok_run *r, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t id = r->t->single[(unsigned char)s[i]];
		if (id != TFMC_TOK_NONE)
			tok_push(r, id);
		else if (r->t->head->unknown != TFMC_TOK_NONE)
			tok_push(r, r->t->head->unknown);
	}
}

/* Finds the piece of one character, with the end-of-word suffix if it is the last one of the word. False: there is
 * none. */
static bool find_char_piece(const struct tfmc_tokenizer *t, const char *s, size_t len, bool is_last,
                            uint32_t *id)
{
	uint32_t node = 0, n_suffix = is_last ? t->head->n_prefix : 0;
	for (size_t i = 0; i < len; i++)
		if (!t->trie.n || !tok_trie_step(&t->trie, &node, (unsigned char)s[i]))
			return false;
	for (uint32_t i = 0; i < n_suffix; i++)
		if (!tok_trie_step(&t->trie, &node, (unsigned char)t->prefix[i]))
			return false;
	return tok_trie_value(&t->trie, node, id) && *id < t->head->n_tokens;
}

/* Initial symbols: one piece per character (byte-level with a suffix: per byte); others are unknown, with FUSE_UNKNOWN
 * one unknown token for a run of them. */
static void push_chars(struct tok_run *r, const char *s, size_t n)
{
	size_t unknown = 0; /* bytes before `at` that no piece covers */
	bool byte_level = r->t->head->flags & TFMC_TOK_H_BYTE_LEVEL;
	bool fuse = r->t->head->flags & TFMC_TOK_H_FUSE_UNKNOWN && r->t->head->unknown != TFMC_TOK_NONE;
	for (size_t at = 0; at < n;) {
		uint32_t cp, id;
		size_t len = byte_level ? 1 : tok_decode(s + at, n - at, &cp);
		if (find_char_piece(r->t, s + at, len, at + len == n, &id)) {
			if (unknown)
				tok_push_unknown(r, s + at - unknown, unknown);
			unknown = 0;
			tok_push(r, id);
		} else if (fuse) {
			unknown += len;
		} else {
			tok_push_unknown(r, s + at, len);
		}
		at += len;
	}
	if (unknown)
		tok_push_unknown(r, s + n - unknown, unknown);
}

/* ---- short words ---- */

/* Merges in place by rescanning all pairs; returns the number of symbols left. `<` keeps the leftmost of equal ranks.
 * Only the pairs on both sides of a merge are looked up again. */
static size_t merge_short(const struct tfmc_tokenizer *t, uint32_t *ids, size_t n)
{
	const struct tfmc_tok_pair *pairs[SHORT_WORD]; /* [i]: merge of symbols i and i + 1 */
	for (size_t i = 0; i + 1 < n; i++)
		pairs[i] = find_pair(t, ids[i], ids[i + 1]);
	for (;;) {
		size_t best = n;
		for (size_t i = 0; i + 1 < n; i++)
			if (pairs[i] && (best == n || pairs[i]->rank < pairs[best]->rank))
				best = i;
		if (best == n)
			return n;
		ids[best] = pairs[best]->id;
		n--;
		memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof(*ids));
		if (best + 1 < n)
			memmove(pairs + best, pairs + best + 1, (n - best - 1) * sizeof(*pairs));
		pairs[n - 1] = NULL;
		if (best > 0)
			pairs[best - 1] = find_pair(t, ids[best - 1], ids[best]);
		if (best + 1 < n)
			pairs[best] = find_pair(t, ids[best], ids[best + 1]);
	}
}

/* ---- long words ---- */

/* Pushes the merge of the symbol `at` and its successor, if there is one. The key orders by rank, then by position;
 * positions are indices of the first symbols, which merges keep in order. */
static void heap_push(struct tok_run *r, int32_t at)
{
	const struct tok_symbol *s = &r->symbols[at];
	if (s->next < 0)
		return;
	uint32_t right = r->symbols[s->next].id;
	const struct tfmc_tok_pair *p = find_pair(r->t, s->id, right);
	if (!p)
		return;
	if (r->n_heap == r->cap_heap)
		r->heap = tok_grow(r, r->heap, &r->cap_heap, r->n_heap + 1, sizeof(*r->heap));
	if (r->failed)
		return;
	struct tok_heap_entry e = {(uint64_t)p->rank << 32 | (uint32_t)at, s->id, right, p->id};
	size_t i = r->n_heap++;
	for (; i > 0 && r->heap[(i - 1) / 2].key > e.key; i = (i - 1) / 2)
		r->heap[i] = r->heap[(i - 1) / 2];
	r->heap[i] = e;
}

/* Pops the merge of the lowest rank, the leftmost one of equal rank. */
static struct tok_heap_entry heap_pop(struct tok_run *r)
{
	struct tok_heap_entry top = r->heap[0], last = r->heap[--r->n_heap];
	size_t i = 0;
	for (size_t child = 1; child < r->n_heap; child = 2 * i + 1) {
		if (child + 1 < r->n_heap && r->heap[child + 1].key < r->heap[child].key)
			child++;
		if (last.key <= r->heap[child].key)
			break;
		r->heap[i] = r->heap[child];
		i = child;
	}
	r->heap[i] = last;
	return top;
}

/* Applies a merge of the heap to the linked list of symbols and pushes the new neighbor pairs. Entries of symbols that
 * were merged meanwhile stay in the heap and are recognized by their ids. */
static void merge_at(struct tok_run *r, const struct tok_heap_entry *e)
{
	int32_t at = (int32_t)(e->key & 0xffffffffu);
	struct tok_symbol *s = &r->symbols[at];
	if (s->id != e->left || s->next < 0 || r->symbols[s->next].id != e->right)
		return; /* stale entry: one of the symbols was merged before */
	struct tok_symbol *merged = &r->symbols[s->next];
	s->id = e->id;
	s->next = merged->next;
	merged->id = TFMC_TOK_NONE;
	if (s->next >= 0)
		r->symbols[s->next].prev = at;
	if (s->prev >= 0)
		heap_push(r, s->prev);
	heap_push(r, at);
}

/* Merges by a heap over a linked list of symbols, whose links are int32. The first symbol is never merged into one
 * before it, so the list begins at 0. */
static void merge_long(struct tok_run *r)
{
	size_t n = r->word.n;
	if (n > INT32_MAX) {
		r->failed = true;
		return;
	}
	r->symbols = tok_grow(r, r->symbols, &r->cap_symbols, n, sizeof(*r->symbols));
	if (r->failed)
		return;
	for (size_t i = 0; i < n; i++)
		r->symbols[i] = (struct tok_symbol){r->word.items[i], (int32_t)i - 1,
		                                    i + 1 < n ? (int32_t)i + 1 : -1};
	r->n_heap = 0;
	for (size_t i = 0; i + 1 < n; i++)
		heap_push(r, (int32_t)i);
	while (r->n_heap && !r->failed) {
		struct tok_heap_entry e = heap_pop(r);
		merge_at(r, &e);
	}
	size_t n_kept = 0;
	for (int32_t i = 0; i >= 0; i = r->symbols[i].next)
		r->word.items[n_kept++] = r->symbols[i].id;
	r->word.n = n_kept;
}

/* With WHOLE_WORDS a word that is a piece is its token without merges (ignore_merges). */
void tok_bpe(struct tok_run *r, const char *s, size_t n)
{
	const struct tfmc_tokenizer *t = r->t;
	uint32_t id;
	if (t->head->flags & TFMC_TOK_H_WHOLE_WORDS && tok_trie_longest(&t->trie, s, n, &id) == n &&
	    id < t->head->n_tokens) {
		tok_push(r, id);
		return;
	}
	if (t->head->flags & TFMC_TOK_H_BYTE_LEVEL && !t->head->n_prefix)
		push_bytes(r, s, n);
	else
		push_chars(r, s, n);
	if (r->failed)
		return;
	if (r->word.n > SHORT_WORD)
		merge_long(r);
	else if (r->word.n > 1)
		r->word.n = merge_short(t, r->word.items, r->word.n);
}

/* ---- Unigram, WordPiece, WordLevel ---- */

/*
 * Unigram (Kudo 2018): Viterbi search for the segmentation with the largest sum of scores, one trie walk per
 * character. WordPiece: greedy longest match at each position of a word. WordLevel: whole words.
 */

/* ---- Unigram ---- */

/* Replaces a path by a better one to the same position. */
static void relax(struct tok_best *b, double score, size_t start, uint32_t id)
{
	if (b->start == UINT32_MAX || score > b->score)
		*b = (struct tok_best){score, (uint32_t)start, id};
}

/* Relaxes the ends of all pieces that begin at `at`, whose best score is known since all paths to it come from earlier
 * positions; the character alone (len bytes) is offered as unknown if it is no piece, so that each position can be
 * reached. */
static void relax_pieces(struct tok_run *r, const char *s, size_t n, size_t at, size_t len)
{
	const struct tfmc_tokenizer *t = r->t;
	double here = at ? r->best[at].score : 0;
	uint32_t node = 0, id;
	bool is_piece = false;
	for (size_t i = at; t->trie.n && i < n && tok_trie_step(&t->trie, &node, (unsigned char)s[i]); i++) {
		if (!tok_trie_value(&t->trie, node, &id) || id >= t->head->n_tokens)
			continue;
		relax(&r->best[i + 1], here + t->scores[id], at, id);
		is_piece = is_piece || i + 1 - at == len;
	}
	if (!is_piece)
		relax(&r->best[at + len], here + t->head->unknown_score, at, TFMC_TOK_NONE);
}

/* True: no piece, or a character that the vocabulary has but the model does not know (LONE), which is unknown among
 * unknown ones. */
static bool is_unknown(const struct tok_run *r, uint32_t id)
{
	return id == TFMC_TOK_NONE || r->t->flags[id] & TFMC_TOK_F_LONE;
}

/* Reads the best path backwards and pushes its ids; consecutive unknown pieces are encoded as one, a LONE one by
 * itself keeps its id. The ends of the path are stored in the scores of the array's last entries, from its end, which
 * the path has already passed: no second array. */
static void push_best_path(struct tok_run *r, const char *s, size_t n)
{
	size_t n_kept = 0;
	for (size_t end = n; end > 0; end = r->best[end].start) /* positions of the path, stored from the
								   end of the array */
		r->best[n - n_kept++].score = (double)end;
	for (size_t i = n_kept; i-- > 0;) {
		size_t end = (size_t)r->best[n - i].score, start = r->best[end].start;
		uint32_t id = r->best[end].id;
		if (!is_unknown(r, id)) {
			tok_push(r, id);
			continue;
		}
		while (i > 0) { /* extend over the next piece if it is unknown, too */
			size_t next = (size_t)r->best[n - i + 1].score;
			if (!is_unknown(r, r->best[next].id))
				break;
			end = next;
			id = TFMC_TOK_NONE;
			i--;
		}
		if (id != TFMC_TOK_NONE)
			tok_push(r, id);
		else
			tok_push_unknown(r, s + start, end - start);
	}
}

/* best[i] is the best path to byte i: its score, and begin and id of its last piece. Positions inside of a character
 * are never reached. Positions have 32 bits; UINT32_MAX marks those without a path. */
void tok_unigram(struct tok_run *r, const char *s, size_t n)
{
	if (n >= UINT32_MAX) {
		r->failed = true;
		return;
	}
	r->best = tok_grow(r, r->best, &r->cap_best, n + 1, sizeof(*r->best));
	if (r->failed)
		return;
	for (size_t i = 0; i <= n; i++)
		r->best[i] = (struct tok_best){0, UINT32_MAX, TFMC_TOK_NONE};
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		size_t len = tok_decode(s + at, n - at, &cp);
		if (at == 0 || r->best[at].start != UINT32_MAX)
			relax_pieces(r, s, n, at, len);
		at += len;
	}
	push_best_path(r, s, n);
}

/* ---- WordPiece ---- */

/* Number of characters, counted up to max + 1. */
static size_t count_chars(const char *s, size_t n, size_t max)
{
	size_t count = 0;
	for (size_t at = 0; at < n && count <= max; count++) {
		uint32_t cp;
		at += tok_decode(s + at, n - at, &cp);
	}
	return count;
}

/* A word that no pieces cover, or with more than word_max characters, is one unknown token. */
void tok_wordpiece(struct tok_run *r, const char *s, size_t n)
{
	const struct tfmc_tokenizer *t = r->t;
	uint32_t inside = 0; /* trie node after the prefix of pieces that continue a word */
	bool continues = t->trie.n != 0;
	for (uint32_t i = 0; continues && i < t->head->n_prefix; i++)
		continues = tok_trie_step(&t->trie, &inside, (unsigned char)t->prefix[i]);
	bool ok = t->trie.n && count_chars(s, n, t->head->word_max) <= t->head->word_max;
	for (size_t at = 0; ok && at < n;) {
		uint32_t node = at ? inside : 0, id = 0, found;
		size_t longest = 0;
		for (size_t i = at; i < n && (at == 0 || continues); i++) {
			if (!tok_trie_step(&t->trie, &node, (unsigned char)s[i]))
				break;
			if (tok_trie_value(&t->trie, node, &found) && found < t->head->n_tokens) {
				longest = i + 1 - at;
				id = found;
			}
		}
		ok = longest > 0;
		if (ok)
			tok_push(r, id);
		at += longest;
	}
	if (!ok) {
		r->word.n = 0;
		tok_push(r, t->head->unknown);
	}
}

void tok_wordlevel(struct tok_run *r, const char *s, size_t n)
{
	uint32_t id;
	bool known = tok_trie_longest(&r->t->trie, s, n, &id) == n && id < r->t->head->n_tokens;
	if (known || r->t->head->unknown != TFMC_TOK_NONE)
		tok_push(r, known ? id : r->t->head->unknown);
}
