/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers of GGUF metadata, keys tokenizer.ggml.*. The format names its pre-tokenizer instead of
 * describing it; unknown names are rejected.
 */
#include "frontend/tokenizer/tokenizer.h"
#include "frontend/weights/gguf.h"

#include <string.h>

#include "frontend/tokenizer/spm.h"
#include "frontend/tokenizer/pattern.h"

#define PREFIX "tokenizer.ggml."

static const struct tokenizer_string none = {"", 0};

/* Absent keys are NULL, absent ids NONE, absent flags -1. */
struct reader {
	const struct tokenizer_source *s;
	const struct gguf *g;
	struct tokenizer_desc *d;
	bool failed;
	struct tokenizer_string model, pre;
	const struct gguf_value *tokens, *merges; /* strings; a merge is "left right" */
	const struct gguf_value *scores, *types;  /* one value for each token */
	uint32_t unknown;
	int add_bos, add_eos, prefix, strip_spaces;
	int lowercase, strip_accents; /* of WordPiece */
};

/* ---- keys ---- */

/* Reports the first wrong key; sets r->failed. */
static void key_error(struct reader *r, const char *key, const char *what)
{
	if (!r->failed)
		diag_error(r->s->cx, r->s->loc, DIAG_FILE, "'%s': the key '" PREFIX "%s' %s", r->s->name, key,
		           what);
	r->failed = true;
}

static const struct gguf_value *find_key(const struct reader *r, const char *key)
{
	return gguf_find(r->g, arena_printf(r->s->arena, PREFIX "%s", key));
}

/* The string of a key, `absent` without the key; another type sets r->failed. */
static struct tokenizer_string read_string(struct reader *r, const char *key, const char *absent)
{
	const struct gguf_value *v = find_key(r, key);
	if (v == NULL)
		return tokenizer_string(absent);
	if (v->type != GGUF_STRING)
		key_error(r, key, "is not a string");
	return (struct tokenizer_string){v->text, v->len};
}

/* The id of a key; NONE: no key, or -1, which writers use for none. A wrong one sets r->failed. */
static uint32_t read_id(struct reader *r, const char *key)
{
	const struct gguf_value *v = find_key(r, key);
	if (v == NULL || (gguf_is_integer_type(v->type) && (v->i == -1 || v->i == UINT32_MAX)))
		return TFMC_TOK_NONE;
	if (!gguf_is_integer_type(v->type) || v->i < 0)
		key_error(r, key, "is not an id");
	else if ((uint64_t)v->i >= r->d->n_tokens)
		key_error(r, key, "is not the id of a token");
	return (uint32_t)v->i;
}

/* A flag as 0 or 1; -1: absent, so that the default of the model applies. */
static int read_flag(struct reader *r, const char *key)
{
	const struct gguf_value *v = find_key(r, key);
	if (v != NULL && v->type != GGUF_BOOL)
		key_error(r, key, "is not a bool");
	return v == NULL ? -1 : v->i != 0;
}

/* A list of strings or of numbers; NULL: no key, or after a diagnostic. n 0: of any length. */
static const struct gguf_value *read_list(struct reader *r, const char *key, bool strings, size_t n)
{
	const struct gguf_value *v = find_key(r, key);
	if (v == NULL)
		return NULL;
	bool kind = v->type == GGUF_ARRAY && (strings ? v->element == GGUF_STRING
	                                              : v->element != GGUF_STRING && v->element != GGUF_BOOL);
	if (!kind)
		key_error(r, key, strings ? "is not a list of strings" : "is not a list of numbers");
	else if (v->n > TFMC_TOK_TOKENS_MAX)
		key_error(r, key, "is too long");
	else if (n != 0 && v->n != n)
		key_error(r, key, "does not have one element for each token");
	return r->failed ? NULL : v;
}

/* Reads all keys of the tokenizer that do not depend on its model. tokens come first: lists with an element for each
 * token, and ids, are compared with their number. */
static enum tfmc_status read_keys(struct reader *r)
{
	struct tokenizer_desc *d = r->d;
	const struct gguf_value *charsmap = find_key(r, "precompiled_charsmap");
	struct gguf_value v;
	size_t at = 0;
	r->tokens = read_list(r, "tokens", true, 0);
	if (r->tokens == NULL || r->tokens->n == 0) {
		key_error(r, "tokens", "is missing or empty");
		return TFMC_INVALID;
	}
	d->n_tokens = r->tokens->n;
	r->scores = read_list(r, "scores", false, d->n_tokens);
	r->pre = read_string(r, "pre", "default");
	r->merges = read_list(r, "merges", true, 0);
	r->types = read_list(r, "token_type", false, d->n_tokens);
	while (r->types != NULL && gguf_next_element(r->types, &at, &v))
		if (!gguf_is_integer_type(v.type) || v.i < 0 || v.i > TOKENIZER_PIECE_BYTE)
			key_error(r, "token_type", "has a type that is unknown");
	if (charsmap != NULL && (charsmap->type != GGUF_ARRAY || charsmap->element > GGUF_I8))
		key_error(r, "precompiled_charsmap", "is not a list of bytes");
	else if (charsmap != NULL)
		d->charsmap = (struct tokenizer_string){(const char *)charsmap->bytes, charsmap->n_bytes};
	d->bos = read_id(r, "bos_token_id");
	d->eos = read_id(r, "eos_token_id");
	d->pad = read_id(r, "padding_token_id");
	d->mask = read_id(r, "mask_token_id");
	r->unknown = read_id(r, "unknown_token_id");
	r->add_bos = read_flag(r, "add_bos_token");
	r->add_eos = read_flag(r, "add_eos_token");
	r->prefix = read_flag(r, "add_space_prefix");
	r->strip_spaces = read_flag(r, "remove_extra_whitespaces");
	r->lowercase = read_flag(r, "normalizer.lowercase");
	r->strip_accents = read_flag(r, "normalizer.strip_accents");
	return r->failed ? TFMC_INVALID : TFMC_OK;
}

/* Fills pieces and scores. */
static enum tfmc_status make_tokens(struct reader *r)
{
	struct tokenizer_desc *d = r->d;
	struct gguf_value v;
	d->tokens = ARENA_ARRAY(r->s->arena, struct tokenizer_token, d->n_tokens + 1);
	if (d->tokens == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0, at = 0; gguf_next_element(r->tokens, &at, &v); i++)
		d->tokens[i].piece = (struct tokenizer_string){v.text, v.len};
	for (size_t i = 0, at = 0; r->scores != NULL && gguf_next_element(r->scores, &at, &v); i++)
		d->tokens[i].score = gguf_is_integer_type(v.type) ? (double)(float)v.i : (double)(float)v.f;
	return TFMC_OK;
}

/* Sets the type of every token; without token_type all are normal. bytes: the vocabulary may have byte tokens
 * (SentencePiece's fallback); a byte-level one has pieces of bytes instead. */
static enum tfmc_status set_types(struct reader *r, bool bytes)
{
	struct gguf_value v = {.type = GGUF_I32, .i = TOKENIZER_PIECE_NORMAL};
	size_t at = 0;
	TFMC_TRY(make_tokens(r));
	for (size_t i = 0; i < r->d->n_tokens; i++) {
		if (r->types != NULL)
			(void)gguf_next_element(r->types, &at, &v);
		if (v.i == TOKENIZER_PIECE_BYTE && !bytes)
			return tokenizer_reject_file(
			        r->s, TOKENIZER_UNSUPPORTED, NULL,
			        PREFIX
			        "token_type[%zu] is that of a byte, in a vocabulary whose pieces are bytes "
			        "(" PREFIX "model 'gpt2')",
			        i);
		if (!tokenizer_set_type(r->s, r->d, i, v.i))
			return TFMC_INVALID;
	}
	return TFMC_OK;
}

/* Sets the template: bos and eos by the flags of the file, else by these defaults. */
static void set_template(struct reader *r, bool bos, bool eos)
{
	bool add_bos = r->add_bos < 0 ? bos : r->add_bos != 0,
	     add_eos = r->add_eos < 0 ? eos : r->add_eos != 0;
	const struct tokenizer_named_id names[] = {{"bos_token", add_bos ? r->d->bos : TFMC_TOK_NONE},
	                                           {"eos_token", add_eos ? r->d->eos : TFMC_TOK_NONE},
	                                           {NULL, 0}};
	tokenizer_set_template(r->d, TOKENIZER_TEMPLATE_ENDS, names);
}

/* ---- SentencePiece ---- */

/* Packs a SentencePiece tokenizer (model llama or t5). Absent flags: a mark is prepended; extra spaces are removed by
 * Unigram (t5) and kept by BPE (llama); bos is added by BPE, eos by Unigram. */
static enum tfmc_status from_spm(struct reader *r, bool is_unigram, struct tokenizer_packed *out)
{
	const struct tokenizer_spm spm = {
	        .is_unigram = is_unigram,
	        .mark = TOKENIZER_MARK,
	        .prefix = r->prefix != 0,
	        .extra_blanks = is_unigram ? r->strip_spaces == 0 : r->strip_spaces != 1,
	};
	if (r->scores == NULL)
		return tokenizer_reject_file(r->s, TOKENIZER_WRONG, NULL, PREFIX "scores is missing");
	TFMC_TRY(set_types(r, true));
	if (r->unknown != TFMC_TOK_NONE)
		r->d->unknown = r->unknown;
	TFMC_TRY(tokenizer_spm_finish(r->s, r->d, &spm));
	set_template(r, !is_unigram, is_unigram);
	return tokenizer_pack(r->s, r->d, out);
}

/* ---- byte-level BPE ---- */

#define PATTERNS_MAX 6

/* A pre-tokenizer, a row of gguf_splitters.def. */
struct splitter {
	const char *name;
	const char *regex;                  /* NULL: none */
	bool digits;                        /* numbers are split into digits before */
	bool whole_words;                   /* words of the vocabulary are emitted without merging */
	bool bos;                           /* bos is added unless the file says otherwise */
	const char *patterns[PATTERNS_MAX]; /* each match is a piece */
	size_t n_after;                     /* how many of them run after `regex`, ... */
	uint32_t after_flags;               /* ... perhaps on GPT-2 letters of bytes */
};

#define HAN_AND_HANGUL "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#define HAN_AND_KANA   "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define DEEPSEEK_V3                                                           \
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"               \
	"|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*" \
	"|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

#define NO_HAN_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define NO_HAN_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_K2                                                                                     \
	"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "*" NO_HAN_LOWER "+" REGEX_CONTRACTED "?" \
	"|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "+" NO_HAN_LOWER "*" REGEX_CONTRACTED "?"            \
	"|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct splitter splitters[] = {
#define SPLITTER(name, regex, digits, whole_words, bos) {name, regex, digits, whole_words, bos, {NULL}, 0, 0},
#define PATTERNS(name, regex, n_after, flags, ...) \
	{name, regex, false, false, false, {__VA_ARGS__}, n_after, flags},
#include "frontend/tokenizer/gguf_splitters.def"
};

/* Appends the merges of the file; each must have its three pieces in the vocabulary. */
static enum tfmc_status add_merges(struct reader *r)
{
	struct tokenizer_desc *d = r->d;
	struct tokenizer_index *x = tokenizer_index_new(r->s->arena, d);
	struct tokenizer_string left, right;
	struct gguf_value v;
	size_t at = 0;
	d->merges =
	        ARENA_ARRAY(r->s->arena, struct tokenizer_merge, r->merges != NULL ? r->merges->n + 1 : 1);
	if (x == NULL || d->merges == NULL)
		return TFMC_NO_MEMORY;
	while (r->merges != NULL && gguf_next_element(r->merges, &at, &v))
		if (!tokenizer_split_merge((struct tokenizer_string){v.text, v.len}, &left, &right) ||
		    !tokenizer_add_merge(x, d, left, right))
			return tokenizer_reject_file(r->s, TOKENIZER_WRONG, NULL,
			                             PREFIX "merges[%zu] is not a merge of the vocabulary",
			                             d->n_merges);
	return TFMC_OK;
}

/* Appends a split for each regular expression. They are compiled into the program, so false means no memory. */
static bool add_patterns(const struct reader *r, const char *const *list, size_t n, uint32_t flags)
{
	const char *why;
	for (size_t i = 0; i < n; i++) {
		struct tokenizer_string p = pattern_compile(r->s->arena, list[i], &why);
		if (p.n == 0 || !tokenizer_add_op(&r->d->split, TFMC_TOK_MATCH_PATTERN,
		                                  TFMC_TOK_ISOLATED | flags, p, none))
			return false;
	}
	return true;
}

/* Appends the operations of a pre-tokenizer in the order in which they run: the space before the text, the patterns
 * before `regex`, digits, `regex`, the patterns after it. False: no memory. */
static bool add_splits(const struct reader *r, const struct splitter *p)
{
	size_t n = 0;
	while (n < PATTERNS_MAX && p->patterns[n] != NULL)
		n++;
	bool ok = r->prefix != 1 || tokenizer_add_op(&r->d->split, TFMC_TOK_PREFIX_SPACE, 0, none, none);
	ok = ok && add_patterns(r, p->patterns, n - p->n_after, 0);
	if (p->digits)
		ok = ok &&
		     tokenizer_add_op(&r->d->split, TFMC_TOK_MATCH_DIGIT, TFMC_TOK_ISOLATED, none, none);
	ok = ok && add_patterns(r, &p->regex, p->regex != NULL, 0);
	return ok && add_patterns(r, p->patterns + n - p->n_after, p->n_after, p->after_flags);
}

/* Packs a byte-level BPE tokenizer (model gpt2). Pieces become bytes after the merges are read, which are written in
 * the letters of bytes, too. */
static enum tfmc_status from_byte_level(struct reader *r, struct tokenizer_packed *out)
{
	const struct splitter *p = NULL;
	struct tokenizer_desc *d = r->d;
	for (size_t i = 0; i < TFMC_COUNT(splitters); i++)
		p = tokenizer_string_equals(r->pre, splitters[i].name) ? &splitters[i] : p;
	if (p == NULL)
		return tokenizer_reject_file(r->s, TOKENIZER_UNSUPPORTED, NULL, PREFIX "pre '%.*s'",
		                             (int)r->pre.n, r->pre.text);
	TFMC_TRY(set_types(r, false));
	for (size_t i = 0; i < d->n_added; i++) { /* matched in the raw text, never made by merging */
		d->added[i].in_normalized = false;
		d->tokens[d->added[i].id].is_matched = false;
	}
	TFMC_TRY(add_merges(r));
	for (size_t i = 0; i < d->n_tokens; i++)
		if (d->tokens[i].is_matched)
			d->tokens[i].piece = tokenizer_letters_to_bytes(r->s->arena, d->tokens[i].piece);
	d->model = TFMC_TOK_BPE;
	if (read_flag(r, "normalizer.nfc") == 1 &&
	    !tokenizer_add_op(&d->normalize, TFMC_TOK_NFC, 0, none, none))
		return TFMC_NO_MEMORY;
	d->flags = TFMC_TOK_H_BYTE_LEVEL | (p->whole_words ? TFMC_TOK_H_WHOLE_WORDS : 0u);
	tokenizer_find_byte_tokens(d);
	if (!add_splits(r, p))
		return TFMC_NO_MEMORY;
	set_template(r, p->bos, false);
	return r->failed ? TFMC_INVALID : tokenizer_pack(r->s, d, out);
}

/* ---- WordPiece ---- */

/* GGUF writes the word mark before beginnings of words and nothing before continuations; WordPiece writes nothing and
 * ##: the pieces are rewritten so. Special tokens, by their type or as [NAME], have neither. */
static enum tfmc_status from_wordpiece(struct reader *r, struct tokenizer_packed *out)
{
	struct tokenizer_desc *d = r->d;
	const char **pieces = ARENA_ARRAY(r->s->arena, const char *, d->n_tokens);
	struct gguf_value v, type = {.i = TOKENIZER_PIECE_NORMAL};
	size_t at = 0, type_at = 0;
	if (pieces == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; gguf_next_element(r->tokens, &at, &v); i++) {
		struct tokenizer_string p = {v.text, v.len};
		bool in_brackets = p.n > 1 && p.text[0] == '[' && p.text[p.n - 1] == ']';
		bool begins = p.n >= 3 && !memcmp(p.text, TOKENIZER_MARK, 3);
		if (r->types != NULL)
			(void)gguf_next_element(r->types, &type_at, &type);
		bool continues = !begins && type.i == TOKENIZER_PIECE_NORMAL && !in_brackets;
		pieces[i] = arena_printf(r->s->arena, "%s%.*s", continues ? "##" : "",
		                         (int)(begins ? p.n - 3 : p.n), begins ? p.text + 3 : p.text);
	}
	struct tokenizer_bert bert = TOKENIZER_BERT;
	int add_sep = read_flag(r, "add_sep_token");
	bert.lowercase = r->lowercase;
	bert.strip_accents = r->strip_accents;
	if (r->unknown != TFMC_TOK_NONE)
		bert.unknown = pieces[r->unknown];
	bert.bos = bert.cls = d->bos;
	bert.eos = d->eos;
	bert.sep =
	        read_id(r, find_key(r, "seperator_token_id") != NULL ? "seperator_token_id" : "eos_token_id");
	bert.add_cls = r->add_bos != 0;
	bert.add_sep = r->add_eos != 0;
	bert.add_between = bert.add_sep || add_sep == 1;
	return r->failed ? TFMC_INVALID : tokenizer_from_words(r->s, pieces, d->n_tokens, &bert, out);
}

/* The first key of a normalizer that is not supported for this model; NULL: none. A false one changes nothing. */
static const char *unread_normalizer(const struct reader *r)
{
	static const char space[] = PREFIX "normalizer.";
	bool pieces = tokenizer_string_equals(r->model, "bert"),
	     bytes = tokenizer_string_equals(r->model, "gpt2");
	for (size_t i = 0; i < r->g->n_entries; i++) {
		const struct gguf_entry *e = &r->g->entries[i];
		const char *name = e->key + strlen(space);
		bool is_false = e->value.type == GGUF_BOOL && e->value.i == 0;
		if (strncmp(e->key, space, strlen(space)) != 0 || is_false ||
		    (pieces && (strcmp(name, "lowercase") == 0 || strcmp(name, "strip_accents") == 0)) ||
		    (bytes && strcmp(name, "nfc") == 0))
			continue;
		return e->key;
	}
	return NULL;
}

bool gguf_has_tokenizer(const struct gguf *g)
{
	return gguf_find(g, PREFIX "model") != NULL;
}

/* model names the algorithm: bert (WordPiece), llama and t5 (SentencePiece: BPE, Unigram), gpt2 (byte-level BPE). */
enum tfmc_status gguf_tokenizer(const struct tokenizer_source *s, const struct gguf *g,
                                struct tokenizer_packed *out)
{
	struct reader r = {.s = s, .g = g, .d = ARENA_NEW(s->arena, struct tokenizer_desc)};
	if (r.d == NULL)
		return TFMC_NO_MEMORY;
	tokenizer_desc_init(r.d);
	if (!gguf_has_tokenizer(g))
		key_error(&r, "model", "is missing: the file has no tokenizer");
	r.model = read_string(&r, "model", "");
	if (r.failed)
		return TFMC_INVALID;
	TFMC_TRY(read_keys(&r));
	const char *normalizer = unread_normalizer(&r);
	if (normalizer != NULL)
		return tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL, "%s with " PREFIX "model '%.*s'",
		                             normalizer, (int)r.model.n, r.model.text);
	if (tokenizer_string_equals(r.model, "bert"))
		return from_wordpiece(&r, out);
	if (tokenizer_string_equals(r.model, "llama") || tokenizer_string_equals(r.model, "t5"))
		return from_spm(&r, r.model.text[0] == 't', out);
	if (tokenizer_string_equals(r.model, "gpt2"))
		return from_byte_level(&r, out);
	return tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL, PREFIX "model '%.*s'", (int)r.model.n,
	                             r.model.text);
}
