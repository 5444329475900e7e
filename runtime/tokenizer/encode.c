/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to ids: added tokens split the text into segments, segments pass normalizers and splitters, words are
 * encoded by a cache or by the model.
 *
 * Added tokens are matched by two tries: `raw` in the text as it is, `norm` in normalized text. A word is a piece
 * of text that the splitters pass to the model; a cache of one run has the ids of earlier words. is_plain: special
 * tokens in the text are text. is_start: no token comes before, which decides on prefixes of words. Ids beyond the
 * caller's capacity are counted only.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/tokenizer/tok.h"

#define CACHE_MAX 8192

/* Returns the grown array, or `old` with r->failed where memory or size_t does not suffice, so that callers check once
 * at the end. */
void *tok_grow(struct tok_run *r, void *old, size_t *cap, size_t needed, size_t size)
{
	if (needed <= *cap)
		return old;
	size_t more = needed + needed / 2 + 16;
	void *grown = more > needed && more <= SIZE_MAX / size ? realloc(old, more * size) : NULL;
	if (!grown) {
		r->failed = true;
		return old;
	}
	*cap = more;
	return grown;
}

void tok_push(struct tok_run *r, uint32_t id)
{
	struct tok_ids *w = &r->word;
	if (w->n == w->cap)
		w->items = tok_grow(r, w->items, &w->cap, w->n + 1, sizeof(*w->items));
	if (w->n < w->cap)
		w->items[w->n++] = id;
}

/* Bytes that the model has no piece for: one token for each byte (byte fallback) if all have one, else the unknown
 * token, if any. */
void tok_push_unknown(struct tok_run *r, const char *s, size_t n)
{
	const struct tfmc_tokenizer *t = r->t;
	bool bytes = t->head->flags & TFMC_TOK_H_FALLBACK && t->single;
	for (size_t i = 0; bytes && i < n; i++)
		bytes = t->single[(unsigned char)s[i]] != TFMC_TOK_NONE;
	for (size_t i = 0; bytes && i < n; i++)
		tok_push(r, t->single[(unsigned char)s[i]]);
	if (!bytes && t->head->unknown != TFMC_TOK_NONE)
		tok_push(r, t->head->unknown);
}

/* Limit against damaged or hostile files, which could replace every byte by a megabyte. Real scripts need
 * less: NFKC writes 11 bytes for one, SentencePiece 3 for a space. */
#define GROWTH     32u
#define BASE_LIMIT (64u << 10)

void tok_set_output_limits(struct tok_run *r, uint64_t bytes)
{
	r->normal_limit = r->level_limit =
	        bytes < (SIZE_MAX - BASE_LIMIT) / GROWTH ? (size_t)bytes * GROWTH + BASE_LIMIT : SIZE_MAX;
}

void tok_begin_rewrite(struct tok_text *out, size_t limit)
{
	out->n = 0;
	out->limit = limit;
}

void tok_end_rewrite(struct tok_run *r, const struct tok_text *out, size_t *limit)
{
	r->failed = r->failed || out->failed;
	r->is_longer = r->is_longer || out->is_longer;
	*limit -= out->n < *limit ? out->n : *limit - 1;
}

int tok_status(const struct tok_run *r)
{
	return r->is_longer ? TFMC_TOKENIZER_E_GROWTH
	       : r->failed  ? TFMC_TOKENIZER_E_MEMORY
	                    : TFMC_TOKENIZER_OK;
}

static void emit(struct tok_run *r, uint32_t id)
{
	if (r->n < r->cap)
		r->ids[r->n] = (int32_t)id;
	r->n++;
}

/* ---- words ---- */

/* Encodes a word by the model and emits its ids. A piece without an id of its own (F_UNKNOWN) is the unknown token. */
static void encode_word(struct tok_run *r, const char *s, size_t n)
{
	r->word.n = 0;
	switch ((enum tfmc_tok_model)r->t->head->model) {
	case TFMC_TOK_BPE: tok_bpe(r, s, n); break;
	case TFMC_TOK_UNIGRAM: tok_unigram(r, s, n); break;
	case TFMC_TOK_WORDPIECE: tok_wordpiece(r, s, n); break;
	case TFMC_TOK_WORDLEVEL: tok_wordlevel(r, s, n); break;
	}
	for (size_t i = 0; i < r->word.n; i++) {
		uint32_t *id = &r->word.items[i]; /* in place: cached as well */
		*id = r->t->flags[*id] & TFMC_TOK_F_UNKNOWN ? r->t->head->unknown : *id;
		emit(r, *id);
	}
}

/* Multiplicative hash of 8 bytes at a time. The last ones are filled with zeros, so the length is hashed, too. Equal
 * words only need equal hashes in one process: the byte order of the machine does not matter. */
static uint32_t hash_word(const char *s, size_t n)
{
	uint64_t h = n * 0x9e3779b97f4a7c15ull, w;
	for (; n >= 8; s += 8, n -= 8) {
		memcpy(&w, s, 8);
		h = (h ^ w) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	w = 0;
	memcpy(&w, s, n);
	h = (h ^ w) * 0xff51afd7ed558ccdull;
	return (uint32_t)(h >> 32);
}

/* Encodes a word of at most TOK_CACHE_BYTES through the cache, which has one entry for each hash: a collision replaces
 * it. Words with more than TOK_CACHE_IDS ids are not cached. */
static void encode_cached(struct tok_run *r, const char *s, size_t n)
{
	uint32_t hash = hash_word(s, n);
	struct tok_cached *c = &r->cache[hash & r->cache_mask];
	if (c->n == n && c->hash == hash && !memcmp(c->word, s, n)) {
		for (unsigned i = 0; i < c->n_ids; i++)
			emit(r, c->ids[i]);
		return;
	}
	encode_word(r, s, n);
	if (r->failed || r->word.n > TOK_CACHE_IDS)
		return;
	c->hash = hash;
	c->n = (unsigned char)n;
	c->n_ids = (unsigned char)r->word.n;
	memcpy(c->word, s, n);
	for (size_t i = 0; i < r->word.n; i++)
		c->ids[i] = r->word.items[i];
}

/* Encodes a word, through the cache if it fits. */
static void encode_word_cached(struct tok_run *r, const char *s, size_t n)
{
	if (n <= TOK_CACHE_BYTES && r->cache)
		encode_cached(r, s, n);
	else
		encode_word(r, s, n);
}

/* Encodes a text word by word, cut before the word marks, so that words can be cached although the text was not split.
 * No piece continues across such a cut (CUT_AT_MARK is set only then); marks in a row stay together. */
static void encode_at_marks(struct tok_run *r, const char *s, size_t n)
{
	const char *mark = r->t->mark;
	size_t n_mark = r->t->head->n_mark, from = 0;
	bool was_mark = true;
	for (size_t at = 0; at < n;) {
		bool is_mark = s[at] == mark[0] && n - at >= n_mark && !memcmp(s + at, mark, n_mark);
		if (is_mark && !was_mark) {
			encode_word_cached(r, s + from, at - from);
			from = at;
		}
		was_mark = is_mark;
		at += is_mark ? n_mark : 1;
	}
	encode_word_cached(r, s + from, n - from);
}

void tok_word(struct tok_run *r, const char *s, size_t n)
{
	if (r->t->head->flags & TFMC_TOK_H_CUT_AT_MARK && r->t->head->n_mark)
		encode_at_marks(r, s, n);
	else
		encode_word_cached(r, s, n);
}

/* ---- segments ---- */

static bool is_word_char(const char *s, size_t n)
{
	uint32_t cp;
	return n && (tok_decode(s, n, &cp), tok_is_word(cp));
}

/* An added token in the text, with the white space that it consumes. */
struct added_match {
	size_t from, to;
	uint32_t id;
};

/* Checks a match f of an added token (one that must be a word has no word character on either side) and extends it by
 * the white space that it strips, on the left not before `from`, where the last match ended. */
static bool check_added(const struct tfmc_tok_added *a, const char *s, size_t n, size_t from,
                        struct added_match *f)
{
	uint32_t cp;
	f->id = a->id;
	if (a->flags & TFMC_TOK_A_WORD) {
		size_t before = f->from ? tok_last_char(s, f->from) : 0;
		if ((f->from && is_word_char(s + before, f->from - before)) ||
		    is_word_char(s + f->to, n - f->to))
			return false;
	}
	while (a->flags & TFMC_TOK_A_LSTRIP && f->from > from) {
		size_t before = tok_last_char(s, f->from);
		tok_decode(s + before, f->from - before, &cp);
		if (before < from || !(tok_class(cp) & TOK_SPACE))
			break;
		f->from = before;
	}
	while (a->flags & TFMC_TOK_A_RSTRIP && f->to < n) {
		size_t len = tok_decode(s + f->to, n - f->to, &cp);
		if (!(tok_class(cp) & TOK_SPACE))
			break;
		f->to += len;
	}
	return true;
}

/* Finds the next added token of `trie` from *at on; false: none. Matches never overlap, rejected ones included; white
 * space that a token consumes may still begin the next match. HIDDEN ones do not split the text: others look them up
 * (format.h). */
static bool next_added_token(const struct tok_run *r, const struct tok_trie *trie, const char *s, size_t n,
                             size_t from, size_t *at, struct added_match *f)
{
	while (trie->n && *at < n) {
		uint32_t index;
		size_t len = trie->begins[(unsigned char)s[*at]]
		                     ? tok_trie_longest(trie, s + *at, n - *at, &index)
		                     : 0;
		if (!len || index >= r->t->n_added) {
			++*at;
			continue;
		}
		const struct tfmc_tok_added *a = &r->t->added[index];
		if (a->flags & TFMC_TOK_A_HIDDEN) {
			++*at;
			continue;
		}
		*f = (struct added_match){*at, *at + len, 0};
		*at += len;
		if (!(r->is_plain && a->flags & TFMC_TOK_A_SPECIAL) && check_added(a, s, n, from, f))
			return true;
	}
	return false;
}

/* Normalizes a segment, splits off added tokens of normalized text, and encodes the text between them. */
static void encode_normalized(struct tok_run *r, const char *s, size_t n)
{
	size_t from = 0, at = 0;
	struct added_match f;
	s = tok_normalize(r, s, n, &n);
	while (!r->failed && next_added_token(r, &r->t->norm, s, n, from, &at, &f)) {
		if (f.from > from)
			tok_split(r, 0, s + from, f.from - from);
		emit(r, f.id);
		r->is_start = false;
		from = f.to;
	}
	if (!r->failed)
		tok_split(r, 0, s + from, n - from);
	r->is_start = false;
}

/* Encodes the language code `>>code<<` at the beginning of a Marian segment as one token, the unknown one if the
 * vocabulary has no such code. Returns its length; 0: none. */
static size_t encode_language_code(struct tok_run *r, const char *s, size_t n)
{
	uint32_t index;
	size_t end = 2;
	if (!(r->t->head->flags & TFMC_TOK_H_CODES) || n < 4 || memcmp(s, ">>", 2) != 0)
		return 0;
	while (end + 2 <= n && memcmp(s + end, "<<", 2) != 0)
		end++;
	if (end + 2 > n)
		return 0;
	end += 2;
	bool known = tok_trie_longest(&r->t->raw, s, end, &index) == end && index < r->t->n_added;
	emit(r, known ? r->t->added[index].id : r->t->head->unknown);
	r->is_start = false;
	return end;
}

/* Encodes a segment between raw added tokens. */
static void encode_segment(struct tok_run *r, const char *s, size_t n)
{
	size_t code = encode_language_code(r, s, n);
	if (n > code)
		encode_normalized(r, s + code, n - code);
}

/* Splits off raw added tokens and encodes the segments between them. */
static void encode_text(struct tok_run *r, const char *s, size_t n)
{
	size_t from = 0, at = 0;
	struct added_match f;
	r->is_start = true;
	while (!r->failed && next_added_token(r, &r->t->raw, s, n, from, &at, &f)) {
		encode_segment(r, s + from, f.from - from);
		emit(r, f.id);
		r->is_start = false;
		from = f.to;
	}
	encode_segment(r, s + from, n - from);
}

/* ---- runs ---- */

/* Prepares the encoding of a text of `bytes` bytes, with a word cache of a size to suit (an entry for 8 bytes, a power
 * of two). Ids beyond `cap` are counted only. */
static void open_run(struct tok_run *r, const struct tfmc_tokenizer *t, uint64_t bytes, int32_t *ids,
                     uint64_t cap)
{
	uint32_t entries = 64;
	*r = (struct tok_run){.t = t, .ids = ids, .cap = cap};
	while (entries < CACHE_MAX && entries < bytes / 8)
		entries *= 2;
	tok_set_output_limits(r, bytes);
	r->cache = calloc(entries, sizeof(*r->cache)); /* optional: NULL works, slower */
	r->cache_mask = entries - 1;
}

/* Frees the buffers of a run; *n: number of ids. Returns its status. */
static int close_run(struct tok_run *r, uint64_t *n)
{
	*n = r->n;
	for (unsigned i = 0; i < 2; i++)
		free(r->normal[i].data);
	for (unsigned i = 0; i < TFMC_TOK_OPS_MAX; i++) {
		free(r->level[i].data);
		tok_suffix_sets_free(&r->suffixes[i]);
	}
	free(r->word.items);
	free(r->symbols);
	free(r->heap);
	free(r->best);
	free(r->cache);
	return tok_status(r);
}

/* With SPECIAL the items of the template for one text: tokens and the text; a model without template has the text
 * alone. */
int tfmc_tokenizer_encode(const struct tfmc_tokenizer *t, const char *text, uint64_t bytes, unsigned flags,
                          int32_t *ids, uint64_t cap, uint64_t *n)
{
	struct tok_run r;
	if (!t || (!text && bytes) || (!ids && cap) || !n)
		return TFMC_TOKENIZER_E_NULL;
	open_run(&r, t, bytes, ids, cap);
	r.is_plain = flags & TFMC_TOKENIZE_PLAIN;
	uint32_t n_items = flags & TFMC_TOKENIZE_SPECIAL ? t->head->n_single : 0;
	for (uint32_t i = 0; i < n_items && !r.failed; i++) {
		if (t->items[i].kind == TFMC_TOK_TOKEN)
			emit(&r, t->items[i].id);
		else
			encode_text(&r, text, (size_t)bytes);
	}
	if (!n_items)
		encode_text(&r, text, (size_t)bytes);
	return close_run(&r, n);
}

/* The template's items after those for one text are for a pair; without them a and b follow each other, with types 0
 * and 1. */
int tfmc_tokenizer_encode_pair(const struct tfmc_tokenizer *t, const char *a, uint64_t n_a, const char *b,
                               uint64_t n_b, int32_t *ids, int32_t *types, uint64_t cap, uint64_t *n)
{
	static const struct tfmc_tok_item plain[] = {{TFMC_TOK_TEXT_A, 0, 0}, {TFMC_TOK_TEXT_B, 0, 1}};
	struct tok_run r;
	if (!t || (!a && n_a) || (!b && n_b) || (!ids && cap) || !n)
		return TFMC_TOKENIZER_E_NULL;
	open_run(&r, t, n_a + n_b, ids, cap);
	bool has_pair = t->n_items > t->head->n_single;
	const struct tfmc_tok_item *items = has_pair ? t->items + t->head->n_single : plain;
	uint32_t n_items = has_pair ? t->n_items - t->head->n_single : 2;
	for (uint32_t i = 0; i < n_items && !r.failed; i++) {
		uint64_t before = r.n;
		if (items[i].kind == TFMC_TOK_TOKEN)
			emit(&r, items[i].id);
		else if (items[i].kind == TFMC_TOK_TEXT_A)
			encode_text(&r, a, (size_t)n_a);
		else
			encode_text(&r, b, (size_t)n_b);
		for (uint64_t k = before; types && k < r.n && k < cap; k++)
			types[k] = (int32_t)items[i].type;
	}
	return close_run(&r, n);
}
