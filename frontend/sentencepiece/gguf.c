/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers of GGUF metadata. The format names the splitter instead of writing
 * it; names that are not in the table are refused.
 */
#include <string.h>

#include "frontend/tokenizer/pattern.h"
#include "frontend/sentencepiece/spm.h"

static const struct tokenizer_string none = {"", 0};

static bool is(struct tokenizer_string s, const char *text)
{
	return s.n == strlen(text) && !memcmp(s.text, text, s.n);
}

static uint32_t id_of(int64_t id)
{
	return id < 0 ? TFMC_TOK_NONE : (uint32_t)id;
}

static enum tfmc_status begin(const struct tokenizer_source *s, const struct tokenizer_gguf *g,
                              struct tokenizer_desc **out)
{
	const int64_t ids[] = {g->bos, g->eos, g->unk, g->sep, g->pad, g->cls, g->mask};
	struct tokenizer_desc *d = *out = ARENA_NEW(s->arena, struct tokenizer_desc);
	if (d == NULL)
		return TFMC_NO_MEMORY;
	tokenizer_desc_init(d);
	for (size_t i = 0; i < TFMC_COUNT(ids); i++) {
		if (ids[i] >= 0 && (uint64_t)ids[i] >= g->n_tokens) {
			tokenizer_refuse(s, "tokenizer.ggml: the id %lld is not that of a token",
			                 (long long)ids[i]);
			return TFMC_INVALID;
		}
	}
	d->n_tokens = g->n_tokens;
	d->tokens = ARENA_ARRAY(s->arena, struct tokenizer_token, g->n_tokens + 1);
	if (d->tokens == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < g->n_tokens; i++) {
		d->tokens[i].piece = g->tokens[i];
		d->tokens[i].score = g->scores != NULL ? (double)g->scores[i] : 0;
	}
	d->bos = id_of(g->bos);
	d->eos = id_of(g->eos);
	d->pad = id_of(g->pad);
	d->mask = id_of(g->mask);
	return TFMC_OK;
}

static int64_t type_of(const struct tokenizer_gguf *g, size_t i)
{
	return g->types != NULL ? g->types[i] : TOKENIZER_PIECE_NORMAL;
}

static void set_template(const struct tokenizer_gguf *g, struct tokenizer_desc *d, bool bos, bool eos)
{
	bool add_bos = g->add_bos < 0 ? bos : g->add_bos != 0,
	     add_eos = g->add_eos < 0 ? eos : g->add_eos != 0;
	tokenizer_bos_eos(d, add_bos ? d->bos : TFMC_TOK_NONE, add_eos ? d->eos : TFMC_TOK_NONE);
}

/* ---- SentencePiece ---- */

static enum tfmc_status from_spm(const struct tokenizer_source *s, const struct tokenizer_gguf *g,
                                 bool is_unigram, struct tokenizer_packed *out)
{
	struct tokenizer_spm spm = {.is_unigram = is_unigram, .mark = TOKENIZER_MARK};
	struct tokenizer_desc *d;
	TFMC_TRY(begin(s, g, &d));
	if (g->scores == NULL) {
		tokenizer_refuse(s, "tokenizer.ggml.scores is missing");
		return TFMC_INVALID;
	}
	for (size_t i = 0; i < g->n_tokens; i++)
		if (!tokenizer_set_type(s, d, i, type_of(g, i)))
			return TFMC_INVALID;
	d->unknown = g->unk >= 0 ? (uint32_t)g->unk : d->unknown;
	d->charsmap = (struct tokenizer_string){(const char *)g->charsmap, g->n_charsmap};
	spm.prefix = g->add_space_prefix != 0;
	spm.extra_blanks = is_unigram ? g->remove_extra_whitespaces == 0 : g->remove_extra_whitespaces != 1;
	TFMC_TRY(tokenizer_spm_finish(s, d, &spm));
	set_template(g, d, !is_unigram, is_unigram);
	return tokenizer_pack(s, d, out);
}

/* ---- byte-level BPE ---- */

#define PATTERNS_MAX 6

struct splitter {
	const char *name;
	enum tfmc_tok_split kind; /* MATCH_PATTERN: none but `patterns` */
	uint32_t flags;
	bool digits;                        /* numbers are cut into digits before */
	bool whole;                         /* words of the vocabulary are taken without merging */
	bool bos;                           /* added unless the file says otherwise */
	const char *patterns[PATTERNS_MAX]; /* what they match are pieces */
	size_t behind;                      /* how many of them come behind `kind`, ... */
	uint32_t behind_flags;              /* ... perhaps over letters of bytes */
};

#define HAN_AND_HANGUL "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#define HAN_AND_KANA   "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define DEEPSEEK_V3                                                           \
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"               \
	"|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*" \
	"|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

#define NO_HAN_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define NO_HAN_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define CONTRACTED   "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define KIMI_K2                                                                           \
	"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "*" NO_HAN_LOWER "+" CONTRACTED \
	"|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "+" NO_HAN_LOWER "*" CONTRACTED            \
	"|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct splitter splitters[] = {
#define SPLITTER(name, kind, flags, digits, whole, bos) {name, kind, flags, digits, whole, bos, {NULL}, 0, 0},
#define PATTERNS(name, kind, behind, flags, ...) \
	{name, kind, 0, false, false, false, {__VA_ARGS__}, behind, flags},
#include "frontend/sentencepiece/gguf_splitters.def"
};

static enum tfmc_status add_merges(const struct tokenizer_source *s, const struct tokenizer_gguf *g,
                                   struct tokenizer_desc *d)
{
	struct tokenizer_index *x = tokenizer_index_new(s->arena, d);
	d->merges = ARENA_ARRAY(s->arena, struct tokenizer_merge, g->n_merges + 1);
	if (x == NULL || d->merges == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < g->n_merges; i++) {
		struct tokenizer_string line = g->merges[i];
		const char *blank = line.n > 1 ? memchr(line.text + 1, ' ', line.n - 1) : NULL;
		size_t left = blank != NULL ? (size_t)(blank - line.text) : 0;
		size_t right = blank != NULL ? line.n - left - 1 : 0;
		char *both = arena_alloc(s->arena, line.n + 1);
		if (both == NULL)
			return TFMC_NO_MEMORY;
		memcpy(both, line.text, left);
		memcpy(both + left, line.text + line.n - right, right);
		struct tokenizer_merge m = {tokenizer_index_find(x, both, left),
		                            tokenizer_index_find(x, both + left, right),
		                            tokenizer_index_find(x, both, left + right), (uint32_t)i};
		if (m.left == TFMC_TOK_NONE || m.right == TFMC_TOK_NONE || m.id == TFMC_TOK_NONE) {
			tokenizer_refuse(s, "tokenizer.ggml.merges[%zu] is no merge of the vocabulary", i);
			return TFMC_INVALID;
		}
		d->merges[d->n_merges++] = m;
	}
	return TFMC_OK;
}

static bool add_patterns(const struct tokenizer_source *s, struct tokenizer_desc *d, const char *const *list,
                         size_t n, uint32_t flags)
{
	const char *why;
	for (size_t i = 0; i < n; i++) {
		struct tokenizer_string p = pattern_compile(s->arena, list[i], &why);
		if (p.n == 0 || !tokenizer_add_split(d, TFMC_TOK_MATCH_PATTERN, TFMC_TOK_ISOLATED | flags, p))
			return false;
	}
	return true;
}

static bool add_splits(const struct tokenizer_source *s, struct tokenizer_desc *d, const struct splitter *p)
{
	size_t n = 0;
	while (n < PATTERNS_MAX && p->patterns[n] != NULL)
		n++;
	bool ok = add_patterns(s, d, p->patterns, n - p->behind, 0);
	if (p->digits)
		ok = ok && tokenizer_add_split(d, TFMC_TOK_MATCH_DIGIT, TFMC_TOK_ISOLATED, none);
	if (p->kind != TFMC_TOK_MATCH_PATTERN)
		ok = ok && tokenizer_add_split(d, p->kind, p->flags, none);
	return ok && add_patterns(s, d, p->patterns + n - p->behind, p->behind, p->behind_flags);
}

static enum tfmc_status from_bytes(const struct tokenizer_source *s, const struct tokenizer_gguf *g,
                                   struct tokenizer_packed *out)
{
	const struct splitter *p = NULL;
	struct tokenizer_desc *d;
	for (size_t i = 0; i < TFMC_COUNT(splitters); i++)
		p = is(g->pre, splitters[i].name) ? &splitters[i] : p;
	if (p == NULL) {
		tokenizer_refuse(s, "not supported yet: tokenizer.ggml.pre '%.*s'", (int)g->pre.n,
		                 g->pre.text != NULL ? g->pre.text : "");
		return TFMC_INVALID;
	}
	TFMC_TRY(begin(s, g, &d));
	for (size_t i = 0; i < g->n_tokens; i++) {
		int64_t type = type_of(g, i);
		if (type == TOKENIZER_PIECE_BYTE) {
			tokenizer_refuse(
			        s,
			        "not supported yet: tokenizer.ggml.token_type[%zu] is that of a byte, in a "
			        "vocabulary whose pieces are bytes (tokenizer.ggml.model 'gpt2')",
			        i);
			return TFMC_INVALID;
		}
		if (!tokenizer_set_type(s, d, i, type))
			return TFMC_INVALID;
		d->tokens[i].is_matched = type == TOKENIZER_PIECE_NORMAL;
		if (type == TOKENIZER_PIECE_USER)
			d->added[d->n_added - 1].in_normalized = false;
	}
	TFMC_TRY(add_merges(s, g, d));
	for (size_t i = 0; i < g->n_tokens; i++)
		if (d->tokens[i].is_matched)
			d->tokens[i].piece = tokenizer_letters_to_bytes(s->arena, d->tokens[i].piece);
	d->model = TFMC_TOK_BPE;
	d->flags = TFMC_TOK_H_BYTE_LEVEL | (p->whole ? TFMC_TOK_H_WHOLE_WORDS : 0u);
	tokenizer_find_single(d);
	bool ok = g->add_space_prefix != 1 || tokenizer_add_split(d, TFMC_TOK_PREFIX_SPACE, 0, none);
	if (!ok || !add_splits(s, d, p))
		return TFMC_NO_MEMORY;
	set_template(g, d, p->bos, false);
	return tokenizer_pack(s, d, out);
}

/* ---- WordPiece ---- */

/* The format writes a mark in front of beginnings of words and nothing in front of continuations. */
static enum tfmc_status from_bert(const struct tokenizer_source *s, const struct tokenizer_gguf *g,
                                  struct tokenizer_packed *out)
{
	struct tokenizer_desc *d;
	bool lowercase = true;
	TFMC_TRY(begin(s, g, &d));
	for (size_t i = 0; i < d->n_tokens; i++) {
		struct tokenizer_token *t = &d->tokens[i];
		struct tokenizer_string p = t->piece;
		int64_t type = type_of(g, i);
		t->is_written = t->is_matched = true;
		if (p.n >= 3 && !memcmp(p.text, TOKENIZER_MARK, 3))
			t->piece = (struct tokenizer_string){p.text + 3, p.n - 3};
		else if (type == TOKENIZER_PIECE_NORMAL &&
		         !(p.n > 1 && p.text[0] == '[' && p.text[p.n - 1] == ']'))
			t->piece = tokenizer_string(
			        arena_printf(s->arena, "##%.*s", (int)p.n, p.n ? p.text : ""));
		else
			continue;
		for (size_t k = 0; k < p.n; k++) /* a vocabulary with capitals is not for text without them */
			lowercase = lowercase && !(p.text[k] >= 'A' && p.text[k] <= 'Z');
	}
	return tokenizer_wordpiece_finish(s, d, lowercase, out);
}

enum tfmc_status tokenizer_from_gguf(const struct tokenizer_source *s, const struct tokenizer_gguf *g,
                                     struct tokenizer_packed *out)
{
	if (g->tokens == NULL || g->n_tokens == 0 || g->n_tokens > TFMC_TOK_TOKENS_MAX) {
		tokenizer_refuse(s, "tokenizer.ggml.tokens is missing or too long");
		return TFMC_INVALID;
	}
	if (is(g->model, "llama") || is(g->model, "t5"))
		return from_spm(s, g, g->model.text[0] == 't', out);
	if (is(g->model, "gpt2"))
		return from_bytes(s, g, out);
	if (is(g->model, "bert"))
		return from_bert(s, g, out);
	tokenizer_refuse(s, "not supported yet: tokenizer.ggml.model '%.*s'", (int)g->model.n,
	                 g->model.text != NULL ? g->model.text : "");
	return TFMC_INVALID;
}
