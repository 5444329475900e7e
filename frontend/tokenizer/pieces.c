/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of several readers: index of pieces, letters of byte-level vocabularies, byte tokens, merges from
 * scores.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/build.h"
#include "ir/support/utf8.h"

#define SCORED_PIECE_MAX 256 /* bytes of a piece that is split in every way */

/* ---- pieces by text ---- */

/* Hash table of pieces with linear probing. */
struct tokenizer_index {
	struct arena *arena;
	const struct tokenizer_desc *desc;
	struct tokenizer_string *texts; /* [mask + 1] */
	uint32_t *ids;                  /* [mask + 1]; NONE: empty */
	size_t mask;
};

/* Place of a string in the hash table, or the empty one where it belongs. The table is larger than the number of
   pieces, so that one is empty. */
static size_t find_slot(const struct tokenizer_index *x, const char *text, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
	size_t at = (size_t)(h ^ h >> 29) & x->mask;
	while (x->ids[at] != TFMC_TOK_NONE &&
	       (x->texts[at].n != n || memcmp(x->texts[at].text, text, n) != 0))
		at = (at + 1) & x->mask;
	return at;
}

/* Of equal pieces the first one is found. The table is at most half full. */
struct tokenizer_index *tokenizer_index_new(struct arena *a, const struct tokenizer_desc *d)
{
	struct tokenizer_index *x = ARENA_NEW(a, struct tokenizer_index);
	size_t n = 64;
	while (n < 2 * d->n_tokens)
		n *= 2;
	if (x == NULL)
		return NULL;
	*x = (struct tokenizer_index){a, d, ARENA_ARRAY(a, struct tokenizer_string, n),
	                              ARENA_ARRAY(a, uint32_t, n), n - 1};
	if (x->texts == NULL || x->ids == NULL)
		return NULL;
	memset(x->ids, 0xff, n * sizeof(*x->ids));
	for (size_t i = 0; i < d->n_tokens; i++) {
		struct tokenizer_string p = d->tokens[i].piece;
		if (!d->tokens[i].is_matched || p.n == 0)
			continue;
		size_t at = find_slot(x, p.text, p.n);
		if (x->ids[at] == TFMC_TOK_NONE) {
			x->ids[at] = (uint32_t)i;
			x->texts[at] = p;
		}
	}
	return x;
}

uint32_t tokenizer_index_find(const struct tokenizer_index *x, const char *text, size_t n)
{
	return n ? x->ids[find_slot(x, text, n)] : TFMC_TOK_NONE;
}

/* ---- bytes ---- */

/*
 * The byte of a GPT-2 letter, -1: none. Printable bytes are their own letters; the others, 0-32, 127-160 and
 * 173, are numbered from 256 on.
 */
static int byte_of_letter(uint32_t cp)
{
	if ((cp >= 33 && cp <= 126) || (cp >= 161 && cp <= 172) || (cp >= 174 && cp <= 255))
		return (int)cp;
	if (cp < 256 || cp > 323)
		return -1;
	int k = (int)cp - 256;
	return k <= 32 ? k : k <= 66 ? 127 + k - 33 : 173;
}

/* A string with another character is not written in letters, as added tokens may not be: it stands for itself. */
struct tokenizer_string tokenizer_letters_to_bytes(struct arena *a, struct tokenizer_string letters)
{
	char *out = arena_alloc(a, letters.n + 1);
	size_t n = 0;
	for (size_t at = 0; out != NULL && at < letters.n;) {
		uint32_t cp;
		size_t len = utf8_decode(letters.text + at, letters.n - at, &cp);
		int byte = len ? byte_of_letter(cp) : -1;
		if (byte < 0)
			return letters;
		out[n++] = (char)byte;
		at += len;
	}
	return out == NULL ? letters : (struct tokenizer_string){out, n};
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tokenizer_byte_piece(struct tokenizer_string p)
{
	if (p.n != 6 || memcmp(p.text, "<0x", 3) != 0 || p.text[5] != '>' || hex(p.text[3]) < 0 ||
	    hex(p.text[4]) < 0)
		return -1;
	return hex(p.text[3]) * 16 + hex(p.text[4]);
}

/* Its piece becomes the byte, for decoding; text never matches the name. */
bool tokenizer_set_byte_token(struct arena *a, struct tokenizer_token *t)
{
	int byte = tokenizer_byte_piece(t->piece);
	if (byte < 0)
		return false;
	const char c = (char)byte;
	t->piece = (struct tokenizer_string){arena_strndup(a, &c, 1), 1};
	t->flags |= TFMC_TOK_F_BYTE;
	t->is_matched = false;
	return true;
}

/* Byte tokens are recognized by their flag, in byte-level models by a piece of one byte. Goes backwards: of several
 * tokens of one byte the first counts. */
void tokenizer_find_byte_tokens(struct tokenizer_desc *d)
{
	bool byte_level = d->flags & TFMC_TOK_H_BYTE_LEVEL;
	d->has_single = byte_level; /* byte-level models may lack tokens of some bytes, which are unknown */
	for (size_t i = d->n_tokens; i-- > 0;) {
		const struct tokenizer_token *t = &d->tokens[i];
		struct tokenizer_string p = tokenizer_match_key(t);
		bool is_single = p.n == 1 && (byte_level ? t->is_matched : t->flags & TFMC_TOK_F_BYTE);
		if (is_single) {
			d->single[(unsigned char)p.text[0]] = (uint32_t)i;
			d->has_single = true;
		}
	}
}

/* ---- merges ---- */

/* The rank is the number of merges before. `small` avoids an allocation for each of 100000s of merges. */
bool tokenizer_add_merge(const struct tokenizer_index *x, struct tokenizer_desc *d,
                         struct tokenizer_string left, struct tokenizer_string right)
{
	size_t n = left.n + right.n;
	char small[256], *merged = n <= sizeof(small) ? small : arena_alloc(x->arena, n);
	if (merged == NULL || left.n == 0 || right.n == 0)
		return false;
	memcpy(merged, left.text, left.n);
	memcpy(merged + left.n, right.text, right.n);
	struct tokenizer_merge m = {tokenizer_index_find(x, left.text, left.n),
	                            tokenizer_index_find(x, right.text, right.n),
	                            tokenizer_index_find(x, merged, n), (uint32_t)d->n_merges};
	if (m.left == TFMC_TOK_NONE || m.right == TFMC_TOK_NONE || m.id == TFMC_TOK_NONE)
		return false;
	d->merges[d->n_merges++] = m;
	return true;
}

/* The first character may be a space itself: the piece " ". */
bool tokenizer_split_merge(struct tokenizer_string line, struct tokenizer_string *left,
                           struct tokenizer_string *right)
{
	const char *space = line.n > 1 ? memchr(line.text + 1, ' ', line.n - 1) : NULL;
	if (space == NULL)
		return false;
	*left = (struct tokenizer_string){line.text, (size_t)(space - line.text)};
	*right = (struct tokenizer_string){space + 1, line.n - left->n - 1};
	return true;
}

/* ---- merges from scores ---- */

struct merges {
	struct tokenizer_merge *items;
	size_t n, cap;
};

static int compare_scores(const void *pa, const void *pb)
{
	double a = *(const double *)pa, b = *(const double *)pb;
	return a > b ? -1 : a < b;
}

/* Distinct scores of matched pieces, descending: the index of a score is the rank of merges to pieces that have it. */
static enum tfmc_status sort_scores(const struct tokenizer_source *s, const struct tokenizer_desc *d,
                                    double **scores, size_t *n)
{
	size_t n_distinct = 0;
	*scores = ARENA_ARRAY(s->arena, double, d->n_tokens + 1);
	*n = 0;
	if (*scores == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < d->n_tokens; i++) {
		if (d->tokens[i].score != d->tokens[i].score)
			return tokenizer_reject_file(s, TOKENIZER_WRONG, NULL,
			                             "the score of token %zu is not a number", i);
		if (d->tokens[i].is_matched)
			(*scores)[(*n)++] = d->tokens[i].score;
	}
	if (*n > 1)
		qsort(*scores, *n, sizeof(double), compare_scores);
	for (size_t i = 0; i < *n; i++)
		if (n_distinct == 0 || (*scores)[n_distinct - 1] > (*scores)[i])
			(*scores)[n_distinct++] = (*scores)[i];
	*n = n_distinct;
	return TFMC_OK;
}

/* Adds all splits of a piece into two pieces, between characters, as merges. False: no memory. */
static bool add_splits(const struct tokenizer_source *s, const struct tokenizer_index *x, uint32_t id,
                       uint32_t rank, struct merges *out)
{
	struct tokenizer_string p = x->desc->tokens[id].piece;
	for (size_t at = 1; at < p.n; at++) {
		if (((unsigned char)p.text[at] & 0xc0) == 0x80) /* inside of a character */
			continue;
		uint32_t left = tokenizer_index_find(x, p.text, at);
		uint32_t right =
		        left == TFMC_TOK_NONE ? left : tokenizer_index_find(x, p.text + at, p.n - at);
		if (right == TFMC_TOK_NONE)
			continue;
		if (!ARENA_ADDED(s->arena, out, (struct tokenizer_merge){left, right, id, rank}))
			return false;
	}
	return true;
}

/* Equal pieces but the first are skipped. Long ones are an error: a piece is split at each of its characters, and each
 * part is hashed. */
enum tfmc_status tokenizer_merges_by_score(const struct tokenizer_source *s, struct tokenizer_desc *d)
{
	struct tokenizer_index *x = tokenizer_index_new(s->arena, d);
	struct merges out = {0};
	double *scores;
	size_t n;
	if (x == NULL)
		return TFMC_NO_MEMORY;
	TFMC_TRY(sort_scores(s, d, &scores, &n));
	for (size_t i = 0; i < d->n_tokens; i++) {
		const struct tokenizer_token *t = &d->tokens[i];
		if (!t->is_matched || tokenizer_index_find(x, t->piece.text, t->piece.n) != i)
			continue;
		if (t->piece.n > SCORED_PIECE_MAX)
			return tokenizer_reject_file(
			        s, TOKENIZER_WRONG, NULL,
			        "token %zu has %zu bytes, at most %d are possible with scores", i, t->piece.n,
			        SCORED_PIECE_MAX);
		const double *at = bsearch(&t->score, scores, n, sizeof(double), compare_scores);
		if (!add_splits(s, x, (uint32_t)i, at != NULL ? (uint32_t)(at - scores) : 0, &out))
			return TFMC_NO_MEMORY;
	}
	d->merges = out.items;
	d->n_merges = out.n;
	return TFMC_OK;
}
