/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Member `model` of tokenizer.json: vocabulary, merges and scores of BPE, Unigram, WordPiece and WordLevel.
 */
#include <string.h>

#include "frontend/tokenizer/json.h"

static bool no_memory(struct tokenizer_reader *r)
{
	r->no_memory = r->failed = true;
	return false;
}

/* ---- vocabularies ---- */

bool tokenizer_read_vocab(struct tokenizer_reader *r, const struct json_node *vocab, const char *path)
{
	struct tokenizer_desc *d = r->desc;
	if (vocab == NULL || vocab->kind != JSON_NODE_OBJECT)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "no object of pieces and ids");
	for (size_t i = 0; i < vocab->n; i++) {
		const struct json_node *id = &vocab->items[i];
		if (id->kind != JSON_NODE_INT || id->i < 0 || id->i >= TFMC_TOK_TOKENS_MAX)
			return tokenizer_reject(r, TOKENIZER_WRONG, path, "the id of '%s' is not usable",
			                        vocab->keys[i]);
		d->n_tokens = (size_t)id->i >= d->n_tokens ? (size_t)id->i + 1 : d->n_tokens;
	}
	d->tokens = ARENA_ARRAY(r->source->arena, struct tokenizer_token, d->n_tokens + 1);
	if (d->tokens == NULL)
		return no_memory(r);
	for (size_t i = 0; i < vocab->n; i++) {
		struct tokenizer_token *t = &d->tokens[vocab->items[i].i];
		if (t->is_written)
			return tokenizer_reject(r, TOKENIZER_WRONG, path, "'%s' and '%s' have the same id",
			                        t->piece.text, vocab->keys[i]);
		t->piece = tokenizer_string(vocab->keys[i]);
		t->is_written = t->is_matched = true;
	}
	return true;
}

/* Reads [["piece", score], ..]; the id is the index. */
static bool read_scored(struct tokenizer_reader *r, const struct json_node *vocab)
{
	struct tokenizer_desc *d = r->desc;
	double lowest = 0;
	if (vocab == NULL || vocab->kind != JSON_NODE_ARRAY || vocab->n >= TFMC_TOK_TOKENS_MAX)
		return tokenizer_reject(r, TOKENIZER_WRONG, "model.vocab", "no list of pieces and scores");
	d->n_tokens = vocab->n;
	d->tokens = ARENA_ARRAY(r->source->arena, struct tokenizer_token, d->n_tokens + 1);
	if (d->tokens == NULL)
		return no_memory(r);
	for (size_t i = 0; i < vocab->n; i++) {
		const struct json_node *pair = &vocab->items[i];
		bool ok = pair->kind == JSON_NODE_ARRAY && pair->n == 2 &&
		          pair->items[0].kind == JSON_NODE_STRING &&
		          (pair->items[1].kind == JSON_NODE_REAL || pair->items[1].kind == JSON_NODE_INT);
		if (!ok)
			return tokenizer_reject(r, TOKENIZER_WRONG,
			                        tokenizer_item_path(r, "model", "vocab", i),
			                        "no piece with a score");
		const struct json_node *score = &pair->items[1];
		double value = score->kind == JSON_NODE_REAL ? score->f : (double)score->i;
		lowest = i == 0 || value < lowest ? value : lowest;
		d->tokens[i] = (struct tokenizer_token){.piece = tokenizer_string(pair->items[0].text),
		                                        .score = value,
		                                        .is_written = true,
		                                        .is_matched = true};
	}
	d->unknown_score = lowest - 10;
	return true;
}

/* Marks byte tokens, which are not pieces of the text. */
static void mark_bytes(struct tokenizer_desc *d, struct arena *a)
{
	for (size_t i = 0; i < d->n_tokens; i++)
		(void)tokenizer_set_byte_token(a, &d->tokens[i]);
}

/* ---- merges ---- */

/* Splits "left right" or ["left", "right"]. */
static bool merge_texts(const struct json_node *n, struct tokenizer_string *left,
                        struct tokenizer_string *right)
{
	if (n->kind == JSON_NODE_STRING)
		return tokenizer_split_merge(tokenizer_string(n->text), left, right);
	if (n->kind != JSON_NODE_ARRAY || n->n != 2 || n->items[0].kind != JSON_NODE_STRING ||
	    n->items[1].kind != JSON_NODE_STRING)
		return false;
	*left = tokenizer_string(n->items[0].text);
	*right = tokenizer_string(n->items[1].text);
	return true;
}

/* Location of merge i: the line of merges.txt, or the index. */
static const char *merge_place(struct tokenizer_reader *r, const struct json_node *n, size_t i)
{
	return n->kind == JSON_NODE_STRING && n->i > 0
	               ? arena_printf(r->source->arena, "line %lld of the merges", (long long)n->i)
	               : tokenizer_item_path(r, "model", "merges", i);
}

/* Reads the merges; all three pieces must be in the vocabulary. */
static bool read_merges(struct tokenizer_reader *r, const struct json_node *list)
{
	struct tokenizer_desc *d = r->desc;
	struct arena *a = r->source->arena;
	if (list == NULL || list->kind != JSON_NODE_ARRAY)
		return tokenizer_reject(r, TOKENIZER_WRONG, "model.merges", "no list of merges");
	struct tokenizer_index *x = tokenizer_index_new(a, d);
	d->merges = ARENA_ARRAY(a, struct tokenizer_merge, list->n + 1);
	if (x == NULL || d->merges == NULL)
		return no_memory(r);
	for (size_t i = 0; i < list->n; i++) {
		struct tokenizer_string left, right;
		if (!merge_texts(&list->items[i], &left, &right))
			return tokenizer_reject(r, TOKENIZER_WRONG, merge_place(r, &list->items[i], i),
			                        "no pair of pieces");
		if (!tokenizer_add_merge(x, d, left, right))
			return tokenizer_reject(r, TOKENIZER_WRONG, merge_place(r, &list->items[i], i),
			                        "'%.*s%.*s' or a part of it is not in the vocabulary",
			                        (int)left.n, left.text, (int)right.n, right.text);
	}
	return true;
}

/* ---- models ---- */

static const struct json_node *vocab_of(const struct tokenizer_reader *r, const struct json_node *n)
{
	return r->lists != NULL ? r->lists->vocab : json_find(n, "vocab");
}

static const char *unknown_of(struct tokenizer_reader *r, const struct json_node *n)
{
	return r->lists != NULL ? r->lists->unknown
	                        : tokenizer_string_member(r, n, "model", "unk_token", NULL);
}

static bool read_unknown(struct tokenizer_reader *r, const struct json_node *n)
{
	const char *text = unknown_of(r, n);
	if (text == NULL || r->failed)
		return !r->failed;
	for (size_t i = 0; i < r->desc->n_tokens; i++)
		if (tokenizer_string_equals(r->desc->tokens[i].piece, text))
			r->desc->unknown = (uint32_t)i;
	return true;
}

static bool read_bpe(struct tokenizer_reader *r, const struct json_node *n)
{
	struct tokenizer_desc *d = r->desc;
	const struct json_node *dropout = json_find(n, "dropout");
	const char *prefix = tokenizer_string_member(r, n, "model", "continuing_subword_prefix", "");
	d->model = TFMC_TOK_BPE;
	d->prefix = tokenizer_string(tokenizer_string_member(r, n, "model", "end_of_word_suffix", ""));
	if (*prefix)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, "model.continuing_subword_prefix", "'%s'",
		                        prefix);
	if (dropout != NULL && dropout->kind != JSON_NODE_NULL && dropout->f > 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, "model.dropout",
		                        "encoding is deterministic");
	d->flags |=
	        (r->byte_level ? TFMC_TOK_H_BYTE_LEVEL : 0u) |
	        (tokenizer_bool_member(r, n, "model", "fuse_unk", false) ? TFMC_TOK_H_FUSE_UNKNOWN : 0u) |
	        (tokenizer_bool_member(r, n, "model", "byte_fallback", false) ? TFMC_TOK_H_FALLBACK : 0u) |
	        (tokenizer_bool_member(r, n, "model", "ignore_merges", false) ? TFMC_TOK_H_WHOLE_WORDS : 0u);
	if (d->prefix.n)
		d->flags |= TFMC_TOK_H_DECODE_SUFFIX;
	if (!tokenizer_read_vocab(r, vocab_of(r, n), "model.vocab") ||
	    !read_merges(r, r->lists != NULL ? r->lists->merges : json_find(n, "merges")) ||
	    !read_unknown(r, n))
		return false;
	if (d->flags & TFMC_TOK_H_FALLBACK)
		mark_bytes(d, r->source->arena);
	return true;
}

static bool read_unigram(struct tokenizer_reader *r, const struct json_node *n)
{
	struct tokenizer_desc *d = r->desc;
	const struct json_node *unknown = json_find(n, "unk_id");
	d->model = TFMC_TOK_UNIGRAM;
	d->flags |= TFMC_TOK_H_FUSE_UNKNOWN;
	if (!read_scored(r, json_find(n, "vocab")))
		return false;
	if (unknown != NULL && unknown->kind != JSON_NODE_NULL)
		d->unknown = tokenizer_id(r, unknown, "model.unk_id");
	if (tokenizer_bool_member(r, n, "model", "byte_fallback", false)) {
		d->flags |= TFMC_TOK_H_FALLBACK;
		mark_bytes(d, r->source->arena);
	}
	return !r->failed;
}

static bool read_wordpiece(struct tokenizer_reader *r, const struct json_node *n)
{
	struct tokenizer_desc *d = r->desc;
	int64_t max_chars = tokenizer_int_member(r, n, "model", "max_input_chars_per_word", 100);
	d->model = TFMC_TOK_WORDPIECE;
	d->prefix =
	        tokenizer_string(tokenizer_string_member(r, n, "model", "continuing_subword_prefix", "##"));
	if (max_chars < 1 || max_chars > 1 << 20)
		return tokenizer_reject(r, TOKENIZER_WRONG, "model.max_input_chars_per_word", "out of range");
	d->word_max = (uint32_t)max_chars;
	if (!tokenizer_read_vocab(r, vocab_of(r, n), "model.vocab") || !read_unknown(r, n))
		return false;
	if (d->unknown == TFMC_TOK_NONE)
		return tokenizer_reject(r, TOKENIZER_WRONG, "model.unk_token",
		                        "'%s' is not in the vocabulary",
		                        unknown_of(r, n) != NULL ? unknown_of(r, n) : "");
	return true;
}

static bool read_wordlevel(struct tokenizer_reader *r, const struct json_node *n)
{
	r->desc->model = TFMC_TOK_WORDLEVEL;
	return tokenizer_read_vocab(r, vocab_of(r, n), "model.vocab") && read_unknown(r, n);
}

/* Type of a model without `type` (older files). */
static const char *guess_type(const struct json_node *n)
{
	const struct json_node *vocab = json_find(n, "vocab");
	if (json_find(n, "merges") != NULL)
		return "BPE";
	return vocab != NULL && vocab->kind == JSON_NODE_ARRAY ? "Unigram" : "WordPiece";
}

bool tokenizer_read_model(struct tokenizer_reader *r, const struct json_node *n)
{
	if (n == NULL || n->kind != JSON_NODE_OBJECT)
		return tokenizer_reject(r, TOKENIZER_WRONG, "model", "no object");
	const char *type = tokenizer_string_member(r, n, "model", "type", NULL);
	type = type == NULL ? guess_type(n) : type;
	bool ok = false;
	if (!strcmp(type, "BPE"))
		ok = read_bpe(r, n);
	else if (!strcmp(type, "Unigram"))
		ok = read_unigram(r, n);
	else if (!strcmp(type, "WordPiece"))
		ok = read_wordpiece(r, n);
	else if (!strcmp(type, "WordLevel"))
		ok = read_wordlevel(r, n);
	else
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, "model.type", "'%s'", type);
	if (!ok || r->failed)
		return false;
	if (r->byte_level && r->desc->model != TFMC_TOK_BPE)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, "pre_tokenizer", "ByteLevel with %s", type);
	for (size_t i = 0; r->byte_level && i < r->desc->n_tokens; i++) {
		struct tokenizer_token *t = &r->desc->tokens[i];
		t->piece = tokenizer_letters_to_bytes(r->source->arena, t->piece);
	}
	return true;
}
