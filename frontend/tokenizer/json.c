/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json: typed members, the order of its parts; the model, added tokens, templates and decoders. Truncation
 * and padding are not read: they are left to the caller.
 *
 * Added tokens are overridden by those of the configuration files, of which one without an id gets that of its piece,
 * or the next one. Combinations of decoders are mapped to the flags that have the same effect. Instead of the model's
 * members, the vocabulary may come as lists (json.h) in files of their own. A path names the place of a member in
 * messages. A wrong member sets r->failed after the first diagnostic and is read as its default, so that readers test
 * r->failed once, at their end; they return false then, as tokenizer_reject() does. Letters are the characters by which
 * byte-level vocabularies (GPT-2) write bytes.
 */
#include "frontend/tokenizer/json.h"

#include <stdarg.h>
#include <string.h>

#include "frontend/tokenizer/config.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

bool tokenizer_reject(struct tokenizer_reader *r, enum tokenizer_rejection why, const char *path,
                      const char *fmt, ...)
{
	va_list ap;
	if (r->failed)
		return false;
	va_start(ap, fmt);
	(void)tokenizer_vreject_file(r->source, why, path, fmt, ap);
	va_end(ap);
	r->failed = true;
	return false;
}

const char *tokenizer_member_path(struct tokenizer_reader *r, const char *path, const char *key)
{
	return arena_printf(r->source->arena, "%s.%s", path, key);
}

/* Path of a list item, for messages. */
static const char *tokenizer_item_path(struct tokenizer_reader *r, const char *path, const char *key,
                                       size_t i)
{
	return arena_printf(r->source->arena, "%s.%s[%zu]", path, key, i);
}

static bool no_memory(struct tokenizer_reader *r)
{
	r->no_memory = r->failed = true;
	return false;
}

/* The member; NULL: absent, null, or after a diagnostic for its type. */
static const struct json_node *member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                                      const char *key, enum json_kind kind)
{
	const struct json_node *n = json_find(o, key);
	if (n == NULL || n->kind == JSON_NODE_NULL)
		return NULL;
	if (n->kind == kind)
		return n;
	tokenizer_reject(r, TOKENIZER_WRONG, tokenizer_member_path(r, path, key), "wrong type of value");
	return NULL;
}

const char *tokenizer_string_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                                    const char *key, const char *fallback)
{
	const struct json_node *n = member(r, o, path, key, JSON_NODE_STRING);
	return n != NULL ? n->text : fallback;
}

bool tokenizer_bool_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                           const char *key, bool fallback)
{
	const struct json_node *n = member(r, o, path, key, JSON_NODE_BOOL);
	return n != NULL ? n->i != 0 : fallback;
}

static int64_t tokenizer_int_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                                    const char *key, int64_t fallback)
{
	const struct json_node *n = member(r, o, path, key, JSON_NODE_INT);
	return n != NULL ? n->i : fallback;
}

/* An id below n_tokens; NONE after a diagnostic. */
static uint32_t tokenizer_id(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	if (n != NULL && n->kind == JSON_NODE_INT && n->i >= 0 && (uint64_t)n->i < r->desc->n_tokens)
		return (uint32_t)n->i;
	tokenizer_reject(r, TOKENIZER_WRONG, path, "no id of a token");
	return TFMC_TOK_NONE;
}

/* ---- components ---- */

#define NEST_MAX 8

bool tokenizer_is_type(const struct json_node *n, const char *type)
{
	const struct json_node *type_member = json_find(n, "type");
	return type_member != NULL && type_member->kind == JSON_NODE_STRING &&
	       strcmp(type_member->text, type) == 0;
}

/* Reads each component of the list `key` of a Sequence; false after a diagnostic. Sequences may be nested NEST_MAX
 * deep, since reading them recurses. */
static bool read_sequence(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                          const char *key, tokenizer_read_fn *each)
{
	const struct json_node *list = json_find(n, key);
	size_t depth = 0;
	for (const char *c = path; *c; c++) /* each enclosing list has added an index to the path */
		depth += *c == '[';
	if (list == NULL || list->kind != JSON_NODE_ARRAY || depth >= NEST_MAX)
		return tokenizer_reject(r, TOKENIZER_WRONG, tokenizer_member_path(r, path, key), "no list");
	for (size_t i = 0; i < list->n; i++)
		if (!each(r, &list->items[i], tokenizer_item_path(r, path, key, i)))
			return false;
	return true;
}

/* A part of the table is tried before Sequence, which all kinds of components have. `each` reads an item of a Sequence:
 * the caller's function for any component of the kind. */
bool tokenizer_read_component(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                              const struct tokenizer_component *parts, const char *sequence,
                              tokenizer_read_fn *each)
{
	if (n == NULL || n->kind == JSON_NODE_NULL)
		return true;
	const char *type = tokenizer_string_member(r, n, path, "type", "");
	for (; parts->type != NULL; parts++)
		if (!strcmp(parts->type, type))
			return (parts->read == NULL || parts->read(r, n, path)) && !r->failed;
	return strcmp(type, "Sequence") == 0
	               ? read_sequence(r, n, path, sequence, each)
	               : tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "a component of type '%s'", type);
}

/* ---- the model: vocabulary, merges, scores ---- */

/* Ids need not be contiguous nor in order: the first loop finds the largest, the second fills the array; ids without a
 * piece are tokens that are not written. */
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

/* Reads [["piece", score], ..]; the id is the index. As in SentencePiece, an unknown character costs 10 more than
 * the worst piece. */
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

/* Reads the merges, whose order is their rank; all three pieces must be in the vocabulary. */
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

/* The vocabulary, of the lists if there are some. */
static const struct json_node *vocab_of(const struct tokenizer_reader *r, const struct json_node *n)
{
	return r->lists != NULL ? r->lists->vocab : json_find(n, "vocab");
}

/* Text of the unknown token, of the lists if there are some; NULL: none. */
static const char *unknown_of(struct tokenizer_reader *r, const struct json_node *n)
{
	return r->lists != NULL ? r->lists->unknown
	                        : tokenizer_string_member(r, n, "model", "unk_token", NULL);
}

/* Sets the id of the unknown token; a name that the vocabulary lacks means none, and unknown text is dropped. False
 * after a diagnostic. */
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

/* Reads a BPE model: settings, vocabulary, merges. False after a diagnostic. d->prefix is the end-of-word suffix of
 * BPE; byte tokens are marked after the merges are read, which may name them. */
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

/* Reads a Unigram model: scored pieces, unknown id, byte fallback. Unknown characters in a row are one token, as in
 * SentencePiece. False after a diagnostic. */
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

/* Reads a WordPiece model, which must have an unknown token: words without a segmentation become it. */
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

/* Type of a model without `type` (older files). */
static const char *guess_type(const struct json_node *n)
{
	const struct json_node *vocab = json_find(n, "vocab");
	if (json_find(n, "merges") != NULL)
		return "BPE";
	return vocab != NULL && vocab->kind == JSON_NODE_ARRAY ? "Unigram" : "WordPiece";
}

/* Reads vocabulary and merges, after the splitter, which decides whether pieces are letters of bytes: then they become
 * bytes last, since merges and the unknown token are written in letters, too. */
static bool tokenizer_read_model(struct tokenizer_reader *r, const struct json_node *n)
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
	else if (!strcmp(type, "WordLevel")) {
		r->desc->model = TFMC_TOK_WORDLEVEL;
		ok = tokenizer_read_vocab(r, vocab_of(r, n), "model.vocab") && read_unknown(r, n);
	} else
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

/* ---- added tokens ---- */

/* Grows the token array to n_ids ids; false: no memory. */
static bool grow_tokens(struct tokenizer_reader *r, size_t n_ids)
{
	if (n_ids <= r->desc->n_tokens)
		return true;
	struct tokenizer_token *grown = ARENA_ARRAY(r->source->arena, struct tokenizer_token, n_ids);
	if (grown == NULL)
		return no_memory(r);
	if (r->desc->n_tokens)
		memcpy(grown, r->desc->tokens, r->desc->n_tokens * sizeof(*grown));
	r->desc->tokens = grown;
	r->desc->n_tokens = n_ids;
	return true;
}

/* Grows the token array for the ids of added_tokens, all of which have one: they may be in any order, and add_token()
 * rejects an id outside of the array. */
static bool reserve_ids(struct tokenizer_reader *r, const struct json_node *list)
{
	size_t n_ids = r->desc->n_tokens;
	for (size_t i = 0; i < list->n; i++) {
		int64_t id = tokenizer_int_member(r, &list->items[i],
		                                  tokenizer_item_path(r, "", "added_tokens", i), "id", -1);
		if (id < 0 || id >= TFMC_TOK_TOKENS_MAX)
			return tokenizer_reject(r, TOKENIZER_WRONG,
			                        tokenizer_item_path(r, "", "added_tokens", i),
			                        "no usable id");
		n_ids = (size_t)id >= n_ids ? (size_t)id + 1 : n_ids;
	}
	return grow_tokens(r, n_ids);
}

/* Sets piece and flags of the token of an added one, which may have been a piece of the vocabulary. */
static void set_added_token(struct tokenizer_reader *r, const struct tokenizer_added *a)
{
	struct tokenizer_token *t = &r->desc->tokens[a->id];
	/* Decoders map letters to bytes in any token, so an added one may become bytes, too; <0x41>
	 * already is. */
	if (!(t->flags & TFMC_TOK_F_BYTE))
		tokenizer_set_piece(t, r->byte_level ? tokenizer_letters_to_bytes(r->source->arena, a->text)
		                                     : a->text);
	t->is_written = true;
	t->flags = (t->flags & ~(uint32_t)TFMC_TOK_F_SPECIAL) | TFMC_TOK_F_ADDED |
	           (a->flags & TFMC_TOK_A_SPECIAL ? TFMC_TOK_F_SPECIAL : 0u);
}

/* Reads an item of added_tokens; its id is within the token array. */
static void add_token(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	struct tokenizer_added *a = &r->desc->added[r->desc->n_added++];
	bool special = tokenizer_bool_member(r, n, path, "special", false);
	a->text = tokenizer_string(tokenizer_string_member(r, n, path, "content", ""));
	a->id = tokenizer_id(r, json_find(n, "id"), path);
	a->flags = (tokenizer_bool_member(r, n, path, "lstrip", false) ? TFMC_TOK_A_LSTRIP : 0u) |
	           (tokenizer_bool_member(r, n, path, "rstrip", false) ? TFMC_TOK_A_RSTRIP : 0u) |
	           (tokenizer_bool_member(r, n, path, "single_word", false) ? TFMC_TOK_A_WORD : 0u) |
	           (special ? TFMC_TOK_A_SPECIAL : 0u);
	a->in_normalized = tokenizer_bool_member(r, n, path, "normalized", !special);
	if (!r->failed)
		set_added_token(r, a);
}

/* The added token with this string; NULL: none. */
static struct tokenizer_added *find_added(const struct tokenizer_desc *d, const char *text)
{
	for (size_t i = 0; i < d->n_added; i++) {
		struct tokenizer_added *a = &d->added[i];
		if (tokenizer_string_equals(a->text.text != NULL ? a->text : d->tokens[a->id].piece, text))
			return a;
	}
	return NULL;
}

/* An added token wins over a piece with the same string. */
uint32_t tokenizer_added_id(const struct tokenizer_reader *r, const char *text)
{
	const struct tokenizer_added *a = find_added(r->desc, text);
	if (a != NULL)
		return a->id;
	for (size_t i = 0; i < r->desc->n_tokens; i++)
		if (r->desc->tokens[i].is_written && tokenizer_string_equals(r->desc->tokens[i].piece, text))
			return (uint32_t)i;
	return TFMC_TOK_NONE;
}

/* Adds a token of the configuration files: it names a token of the vocabulary, replaces an added one, or gets a new id.
 * Flags of an added one are replaced only by added_tokens_decoder (is_listed); a mere role makes it special. False
 * after a diagnostic. */
static bool add_named(struct tokenizer_reader *r, const struct tokenizer_named *t,
                      const struct tokenizer_index *pieces)
{
	struct tokenizer_desc *d = r->desc;
	struct tokenizer_added *a = find_added(d, t->text);
	if (a == NULL) {
		uint32_t known = tokenizer_index_find(pieces, t->text, strlen(t->text));
		int64_t id = known != TFMC_TOK_NONE ? (int64_t)known : t->id;
		if (id < 0 && t->is_implied) /* by the class: not of this vocabulary */
			return true;
		id = id < 0 ? (int64_t)d->n_tokens : id;
		if (id >= TFMC_TOK_TOKENS_MAX)
			return tokenizer_reject(r, TOKENIZER_WRONG, t->text, "no usable id");
		if (!grow_tokens(r, (size_t)id + 1))
			return false;
		a = &d->added[d->n_added++];
		*a = (struct tokenizer_added){.id = (uint32_t)id, .text = tokenizer_string(t->text)};
		a->flags = t->flags;
		a->in_normalized = t->normalized;
	} else if (t->is_listed) {
		a->flags = t->flags;
		a->in_normalized = t->normalized;
	} else {
		a->flags |= t->flags & TFMC_TOK_A_SPECIAL;
	}
	a->text = tokenizer_string(t->text);
	set_added_token(r, a);
	return true;
}

/* The index has the pieces before any is added; the array has capacity for all tokens of the configuration. */
bool tokenizer_add_configured(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	struct tokenizer_desc *d = r->desc;
	if (c == NULL || c->n_tokens == 0)
		return true;
	struct tokenizer_index *pieces = tokenizer_index_new(r->source->arena, d);
	struct tokenizer_added *all =
	        ARENA_ARRAY(r->source->arena, struct tokenizer_added, d->n_added + c->n_tokens);
	if (pieces == NULL || all == NULL)
		return no_memory(r);
	if (d->n_added)
		memcpy(all, d->added, d->n_added * sizeof(*all));
	d->added = all;
	for (size_t i = 0; i < c->n_tokens; i++)
		if (!add_named(r, &c->tokens[i], pieces))
			return false;
	return true;
}

/* Reads added_tokens: first the token array grows to all their ids, then each is added. */
static bool tokenizer_read_added(struct tokenizer_reader *r, const struct json_node *list)
{
	if (list == NULL || list->kind == JSON_NODE_NULL || list->n == 0)
		return !r->failed;
	if (list->kind != JSON_NODE_ARRAY)
		return tokenizer_reject(r, TOKENIZER_WRONG, "added_tokens", "wrong type of value");
	if (!reserve_ids(r, list))
		return false;
	r->desc->added = ARENA_ARRAY(r->source->arena, struct tokenizer_added, list->n);
	if (r->desc->added == NULL)
		return no_memory(r);
	for (size_t i = 0; i < list->n && !r->failed; i++)
		add_token(r, &list->items[i], tokenizer_item_path(r, "", "added_tokens", i));
	return !r->failed;
}

/* ---- templates ---- */

static bool add_template_item(struct tokenizer_reader *r, const char *path, enum tfmc_tok_item_kind kind,
                              uint32_t id, int64_t type)
{
	struct tokenizer_desc *d = r->desc;
	if (d->n_items == TFMC_TOK_ITEMS_MAX || type < 0 || type > 255)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "the template is too long");
	d->items[d->n_items++] = (struct tfmc_tok_item){(uint32_t)kind, id, (uint32_t)type};
	return true;
}

/* Adds the ids of a special token of TemplateProcessing, by its name in special_tokens; it may have several. */
static bool add_special_items(struct tokenizer_reader *r, const struct json_node *root,
                              const struct json_node *n, const char *path)
{
	const char *name = tokenizer_string_member(r, n, path, "id", "");
	int64_t type = tokenizer_int_member(r, n, path, "type_id", 0);
	const struct json_node *ids = json_find(json_find(json_find(root, "special_tokens"), name), "ids");
	if (ids == NULL || ids->kind != JSON_NODE_ARRAY)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "special_tokens has no ids for '%s'", name);
	for (size_t i = 0; i < ids->n; i++) {
		uint32_t id = tokenizer_id(r, &ids->items[i], path);
		if (r->failed || !add_template_item(r, path, TFMC_TOK_TOKEN, id, type))
			return false;
	}
	return true;
}

/* Reads the template for one text or for a pair; false after a diagnostic. */
static bool read_items(struct tokenizer_reader *r, const struct json_node *root, const char *key,
                       const char *path)
{
	const struct json_node *list = json_find(root, key);
	for (size_t i = 0; list != NULL && i < list->n; i++) {
		const struct json_node *sequence = json_find(&list->items[i], "Sequence");
		const struct json_node *special = json_find(&list->items[i], "SpecialToken");
		const char *at = tokenizer_item_path(r, path, key, i);
		if (special != NULL && !add_special_items(r, root, special, at))
			return false;
		if (sequence == NULL)
			continue;
		bool is_b = !strcmp(tokenizer_string_member(r, sequence, at, "id", "A"), "B");
		if (!add_template_item(r, at, is_b ? TFMC_TOK_TEXT_B : TFMC_TOK_TEXT_A, 0,
		                       tokenizer_int_member(r, sequence, at, "type_id", 0)))
			return false;
	}
	return true;
}

/* TemplateProcessing: templates for one text and a pair. Of several in a Sequence the last counts. */
static bool read_processing(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	r->desc->n_items = 0;
	if (!read_items(r, n, "single", path))
		return false;
	r->desc->n_single = r->desc->n_items;
	return read_items(r, n, "pair", path) && !r->failed;
}

/* Id of ["text", id]. */
static uint32_t named_id(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                         const char *key)
{
	const struct json_node *pair = json_find(n, key);
	bool ok = pair != NULL && pair->kind == JSON_NODE_ARRAY && pair->n == 2;
	return tokenizer_id(r, ok ? &pair->items[1] : NULL, tokenizer_member_path(r, path, key));
}

/* Reads BertProcessing or RobertaProcessing. */
static bool read_cls_sep(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct tokenizer_named_id names[] = {{"cls_token", named_id(r, n, path, "cls")},
	                                           {"sep_token", named_id(r, n, path, "sep")},
	                                           {NULL, 0}};
	if (tokenizer_is_type(n, "RobertaProcessing"))
		tokenizer_set_template(r->desc, TOKENIZER_TEMPLATE_ROBERTA, names);
	else
		tokenizer_set_template(r->desc, TOKENIZER_TEMPLATE_BERT, names);
	return !r->failed;
}

/* Reads the post_processor as templates. */
static bool tokenizer_read_template(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct tokenizer_component parts[] = {
	        {"TemplateProcessing", read_processing},
	        {"BertProcessing", read_cls_sep},
	        {"RobertaProcessing", read_cls_sep},
	        {"ByteLevel", NULL}, /* trims offsets only */
	        {NULL, NULL},
	};
	return tokenizer_read_component(r, n, path, parts, "processors", tokenizer_read_template);
}

/* ---- decoders ---- */

static bool read_wordpiece_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	bool cleanup = tokenizer_bool_member(r, n, path, "cleanup", true);
	r->desc->flags |= TFMC_TOK_H_DECODE_WORDS | (cleanup ? TFMC_TOK_H_DECODE_CLEAN : 0u);
	return true;
}

/* Metaspace: marks become spaces; the one that encoding prepends is removed. */
static bool read_metaspace_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *scheme = tokenizer_string_member(
	        r, n, path, "prepend_scheme",
	        tokenizer_bool_member(r, n, path, "add_prefix_space", true) ? "always" : "never");
	r->desc->mark = tokenizer_string(tokenizer_string_member(r, n, path, "replacement", TOKENIZER_MARK));
	if (strcmp(scheme, "never") != 0)
		r->desc->flags |= TFMC_TOK_H_DECODE_STRIP;
	return true;
}

/* Replace: another string for the mark becomes a space. */
static bool read_replace_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_string_member(r, json_find(n, "pattern"), path, "String", NULL);
	const char *content = tokenizer_string_member(r, n, path, "content", "");
	if (text == NULL || !*text || strcmp(content, " ") != 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path,
		                        "another replacement than by a space");
	r->desc->mark = tokenizer_string(text);
	return true;
}

/* Strip: removes one space at the beginning, or nothing. */
static bool read_strip_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	if (strcmp(tokenizer_string_member(r, n, path, "content", " "), " ") != 0 ||
	    tokenizer_int_member(r, n, path, "start", 0) > 1 ||
	    tokenizer_int_member(r, n, path, "stop", 0) != 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path,
		                        "other than one space at the beginning");
	if (tokenizer_int_member(r, n, path, "start", 0) == 1)
		r->desc->flags |= TFMC_TOK_H_DECODE_STRIP;
	return true;
}

static bool read_suffix_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	(void)n, (void)path;
	r->desc->flags |= TFMC_TOK_H_DECODE_SUFFIX;
	return true;
}

/* Reads the decoder as flags of the description. Whether there is one counts, too: without it tokens are joined by
 * spaces (tokenizer_from_tree). */
static bool tokenizer_read_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct tokenizer_component parts[] = {
	        {"ByteLevel", NULL}, /* implied by the pieces */
	        {"Fuse", NULL},
	        {"ByteFallback", NULL},
	        {"WordPiece", read_wordpiece_decoder},
	        {"Metaspace", read_metaspace_decoder},
	        {"Replace", read_replace_decoder},
	        {"Strip", read_strip_decoder},
	        {"BPEDecoder", read_suffix_decoder},
	        {NULL, NULL},
	};
	r->has_decoder = r->has_decoder || (n != NULL && n->kind != JSON_NODE_NULL);
	return tokenizer_read_component(r, n, path, parts, "decoders", tokenizer_read_decoder);
}

/* ---- the file ---- */

/* Warns where a flag contradicts the template, which current transformers follows. */
static void warn_if_contradicted(struct tokenizer_reader *r, const char *key, int flag, uint32_t id)
{
	bool has = false;
	for (size_t i = 0; i < r->desc->n_single; i++)
		has = has || (r->desc->items[i].kind == TFMC_TOK_TOKEN && r->desc->items[i].id == id);
	if (flag >= 0 && id != TFMC_TOK_NONE && has != (flag == 1))
		diag_warning(r->source->cx, r->source->loc, DIAG_TOKENIZER,
		             "'%s': %s is %s, but post_processor of '%s' %s the token, and is followed",
		             r->config->name, key, flag ? "true" : "false", r->source->name,
		             has ? "adds" : "does not add");
}

/* Reads ids of special tokens, members that tokenizer.json lacks and bert_members() (plain.c) writes for lists. */
static bool read_roles(struct tokenizer_reader *r, const struct json_node *root)
{
	struct tokenizer_desc *d = r->desc;
	const struct {
		const char *key;
		uint32_t *out;
	} roles[] = {{"bos_token_id", &d->bos},
	             {"eos_token_id", &d->eos},
	             {"pad_token_id", &d->pad},
	             {"mask_token_id", &d->mask}};
	for (size_t i = 0; i < TFMC_COUNT(roles); i++)
		if (json_find(root, roles[i].key) != NULL)
			*roles[i].out = tokenizer_id(r, json_find(root, roles[i].key), roles[i].key);
	return !r->failed;
}

/* Reads the template: of the file, or of the class if the file has none or the class overrides it. False after a
 * diagnostic. */
static bool read_template_of_file_or_class(struct tokenizer_reader *r, const struct json_node *root)
{
	const struct json_node *n = json_find(root, "post_processor");
	bool has_template = r->lists == NULL && n != NULL && n->kind != JSON_NODE_NULL;
	if (!tokenizer_read_template(r, n, "post_processor"))
		return false;
	if (r->config == NULL)
		return r->lists == NULL || read_roles(r, root);
	tokenizer_class_set_special_ids(r);
	if (has_template && r->config->class != NULL &&
	    r->config->class->template_kind == TOKENIZER_T_FLAGS) {
		warn_if_contradicted(r, "add_bos_token", r->config->add_bos, r->desc->bos);
		warn_if_contradicted(r, "add_eos_token", r->config->add_eos, r->desc->eos);
	}
	return has_template ? tokenizer_class_override_template(r) : tokenizer_class_set_template(r);
}

/* Reads the members in the order of their dependencies: splitter and decoder decide how pieces of the model are
 * decoded, and added tokens and templates need its ids. */
static bool read_parts(struct tokenizer_reader *r, const struct json_node *root)
{
	return tokenizer_read_normalizer(r, json_find(root, "normalizer"), "normalizer") &&
	       tokenizer_read_splitter(r, json_find(root, "pre_tokenizer"), "pre_tokenizer") &&
	       tokenizer_read_decoder(r, json_find(root, "decoder"), "decoder") &&
	       tokenizer_read_model(r, json_find(root, "model")) &&
	       tokenizer_read_added(r, json_find(root, "added_tokens")) && tokenizer_add_configured(r) &&
	       read_template_of_file_or_class(r, root) && !r->failed;
}

/* Normalizes the string of an added token that is matched in normalized text; the first call counts its bytes. */
static enum tfmc_status normalize_one(struct tokenizer_reader *r, const struct tfmc_tokenizer *t,
                                      struct tokenizer_added *a)
{
	struct arena *arena = r->source->arena;
	uint64_t n;
	int status = tfmc_tokenizer_normalize(t, a->text.text, a->text.n, NULL, 0, &n);
	if (status == TFMC_TOKENIZER_E_GROWTH)
		return tokenizer_reject_file(r->source, TOKENIZER_WRONG, "added_tokens", "of '%.*s' %s",
		                             (int)(a->text.n < 40 ? a->text.n : 40), a->text.text,
		                             tfmc_tokenizer_status_text(status));
	char *text = status == TFMC_TOKENIZER_OK ? arena_alloc(arena, (size_t)n + 1) : NULL;
	if (text == NULL || tfmc_tokenizer_normalize(t, a->text.text, a->text.n, text, n, &n) != 0)
		return TFMC_NO_MEMORY;
	a->text = (struct tokenizer_string){text, (size_t)n};
	tokenizer_set_piece(&r->desc->tokens[a->id],
	                    r->byte_level ? tokenizer_letters_to_bytes(arena, a->text) : a->text);
	return TFMC_OK;
}

/* Normalizes the added tokens that are matched in normalized text, by the library, which opens the tokenizer
 * without them. Opening can only fail without memory, as tokenizer_pack() has opened the result already. */
static enum tfmc_status normalize_added(struct tokenizer_reader *r)
{
	struct tokenizer_desc *d = r->desc, plain = *d;
	struct tokenizer_packed packed;
	struct tfmc_tokenizer *t;
	size_t n = 0;
	for (size_t i = 0; i < d->n_added; i++)
		n += d->added[i].in_normalized;
	if (n == 0 || d->normalize.n == 0)
		return TFMC_OK;
	plain.n_added = 0;
	TFMC_TRY(tokenizer_pack(r->source, &plain, &packed));
	if (tfmc_tokenizer_open(packed.data, packed.bytes, &t) != TFMC_TOKENIZER_OK)
		return TFMC_NO_MEMORY;
	enum tfmc_status st = TFMC_OK;
	for (size_t i = 0; st == TFMC_OK && i < d->n_added; i++)
		if (d->added[i].in_normalized)
			st = normalize_one(r, t, &d->added[i]);
	tfmc_tokenizer_close(t);
	return st;
}

/* Byte tokens are found after all pieces are final; added tokens are normalized last, by the finished tokenizer. */
enum tfmc_status tokenizer_from_tree(const struct tokenizer_source *s, const struct json_node *root,
                                     const struct tokenizer_lists *lists, struct tokenizer_packed *out)
{
	struct tokenizer_desc *d = ARENA_NEW(s->arena, struct tokenizer_desc);
	struct tokenizer_reader r = {.source = s, .desc = d, .config = s->config, .lists = lists};
	if (d == NULL)
		return TFMC_NO_MEMORY;
	tokenizer_desc_init(d);
	if (root->kind != JSON_NODE_OBJECT)
		return tokenizer_reject_file(s, TOKENIZER_WRONG, NULL, "no object");
	if (!read_parts(&r, root))
		return r.no_memory || arena_failed(s->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	if (d->flags & (TFMC_TOK_H_BYTE_LEVEL | TFMC_TOK_H_FALLBACK))
		tokenizer_find_byte_tokens(d);
	/* Without a decoder the library joins tokens by spaces. Bytes, marks and affixes are not left in the text, as
	 * it would: they become the characters and spaces that they stand for. */
	bool has_spaces = d->mark.n > 0 || d->prefix.n > 0 || d->flags & TFMC_TOK_H_BYTE_LEVEL;
	if (!r.has_decoder &&
	    (!has_spaces || d->model == TFMC_TOK_WORDLEVEL || d->model == TFMC_TOK_WORDPIECE))
		d->flags |= TFMC_TOK_H_DECODE_WORDS;
	TFMC_TRY(normalize_added(&r));
	return tokenizer_pack(s, d, out);
}
