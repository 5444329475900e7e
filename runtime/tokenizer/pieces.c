/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unigram (Kudo 2018): Viterbi search for the segmentation with the largest sum of scores, one trie walk per
 * character. WordPiece: greedy longest match at each position of a word. WordLevel: whole words.
 */
#include "runtime/tokenizer/tok.h"

/* ---- Unigram ---- */

/* Replaces a path by a better one to the same position. */
static void relax(struct tok_best *b, double score, size_t start, uint32_t id)
{
	if (b->start == UINT32_MAX || score > b->score)
		*b = (struct tok_best){score, (uint32_t)start, id};
}

/* Relaxes the ends of all pieces that begin at `at`; the character alone is offered as unknown if it is no
 * piece. */
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

static bool is_unknown(const struct tok_run *r, uint32_t id)
{
	return id == TFMC_TOK_NONE || r->t->flags[id] & TFMC_TOK_F_LONE;
}

/* Reads the best path backwards and pushes its ids; consecutive unknown pieces are encoded as one. */
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

static size_t count_chars(const char *s, size_t n, size_t max)
{
	size_t count = 0;
	for (size_t at = 0; at < n && count <= max; count++) {
		uint32_t cp;
		at += tok_decode(s + at, n - at, &cp);
	}
	return count;
}

void tok_wordpiece(struct tok_run *r, const char *s, size_t n)
{
	const struct tfmc_tokenizer *t = r->t;
	uint32_t inside = 0;
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
