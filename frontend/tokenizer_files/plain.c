/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vocabularies without a description of their pipeline: the format says which
 * one it is. vocab.json with merges.txt (GPT-2), vocab.txt (BERT), scored lines
 * and the file of llama2.c (SentencePiece with plain spaces).
 */
#include <string.h>

#include "frontend/tokenizer_files/class.h"
#include "ir/support/number.h"

/* ---- lines ---- */

struct lines {
	const char *at, *end;
	size_t number;
};

static bool next_line(struct lines *l, struct tokenizer_string *line)
{
	if (l->at == l->end)
		return false;
	const char *nl = memchr(l->at, '\n', (size_t)(l->end - l->at));
	const char *stop = nl != NULL ? nl : l->end;
	*line = (struct tokenizer_string){l->at, (size_t)(stop - l->at)};
	if (line->n && line->text[line->n - 1] == '\r')
		line->n--;
	l->at = nl != NULL ? nl + 1 : l->end;
	l->number++;
	return true;
}

static size_t count_lines(const char *text, size_t len)
{
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	while (next_line(&l, &line))
		;
	return l.number;
}

static struct tokenizer_desc *new_desc(const struct tokenizer_source *s, size_t n_tokens)
{
	struct tokenizer_desc *d = ARENA_NEW(s->arena, struct tokenizer_desc);
	if (d == NULL)
		return NULL;
	tokenizer_desc_init(d);
	d->n_tokens = n_tokens;
	d->tokens = ARENA_ARRAY(s->arena, struct tokenizer_token, n_tokens + 1);
	return d->tokens != NULL ? d : NULL;
}

static uint32_t find_piece(const struct tokenizer_desc *d, const char *text)
{
	size_t n = strlen(text);
	for (size_t i = 0; i < d->n_tokens; i++)
		if (d->tokens[i].piece.n == n && !memcmp(d->tokens[i].piece.text, text, n))
			return (uint32_t)i;
	return TFMC_TOK_NONE;
}

/* ---- vocab.json and merges.txt ---- */

enum tfmc_status tokenizer_read_ids(const struct tokenizer_source *s, const char *text, size_t len,
                                    struct tokenizer_desc **out)
{
	const struct json_source src = {s->name, s->loc, DIAG_TOKENIZER, 0};
	const struct json_node *root = json_parse(s->arena, s->cx, &src, text, len);
	size_t n = 0;
	if (root == NULL)
		return TFMC_INVALID;
	for (size_t i = 0; i < root->n; i++) {
		const struct json_node *id = &root->items[i];
		if (root->kind != JSON_NODE_OBJECT || id->kind != JSON_NODE_INT || id->i < 0 ||
		    id->i >= TFMC_TOK_TOKENS_MAX) {
			tokenizer_refuse(s, "no object of pieces and ids");
			return TFMC_INVALID;
		}
		n = (size_t)id->i >= n ? (size_t)id->i + 1 : n;
	}
	*out = new_desc(s, n);
	if (*out == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < root->n; i++) {
		struct tokenizer_token *t = &(*out)->tokens[root->items[i].i];
		t->piece = tokenizer_string(root->keys[i]);
		t->is_written = t->is_matched = true;
	}
	return TFMC_OK;
}

static enum tfmc_status read_merges(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                    const char *text, size_t len)
{
	struct tokenizer_index *x = tokenizer_index_new(s->arena, d);
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	d->merges = ARENA_ARRAY(s->arena, struct tokenizer_merge, count_lines(text, len) + 1);
	if (x == NULL || d->merges == NULL)
		return TFMC_NO_MEMORY;
	while (next_line(&l, &line)) {
		const char *blank = line.n ? memchr(line.text, ' ', line.n) : NULL;
		if (line.n == 0 || (l.number == 1 && line.text[0] == '#'))
			continue;
		size_t left = blank != NULL ? (size_t)(blank - line.text) : 0;
		size_t right = blank != NULL ? line.n - left - 1 : 0;
		const char *both = arena_printf(s->arena, "%.*s%.*s", (int)left, line.text, (int)right,
		                                line.text + line.n - right);
		struct tokenizer_merge m = {tokenizer_index_find(x, line.text, left),
		                            tokenizer_index_find(x, line.text + line.n - right, right),
		                            tokenizer_index_find(x, both, left + right),
		                            (uint32_t)d->n_merges};
		if (m.left == TFMC_TOK_NONE || m.right == TFMC_TOK_NONE || m.id == TFMC_TOK_NONE) {
			tokenizer_refuse(s, "line %zu of the merges is no merge of the vocabulary", l.number);
			return TFMC_INVALID;
		}
		d->merges[d->n_merges++] = m;
	}
	return TFMC_OK;
}

/* The class that the files beside a list name must be one that reads it. */
static bool class_reads(const struct tokenizer_source *s, enum tokenizer_files files)
{
	const struct tokenizer_config *c = s->config;
	if (c->class != NULL && c->class->files == files)
		return true;
	tokenizer_refuse(s, "not supported yet: the class '%s' without a tokenizer.json", c->class_name);
	return false;
}

/* "left right" of each line. */
static const struct json_node *merge_lines(const struct tokenizer_source *s, const char *text, size_t len)
{
	struct json_node *list = ARENA_NEW(s->arena, struct json_node);
	struct json_node *items = ARENA_ARRAY(s->arena, struct json_node, count_lines(text, len) + 1);
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	if (list == NULL || items == NULL)
		return NULL;
	*list = (struct json_node){.kind = JSON_NODE_ARRAY, .items = items};
	while (next_line(&l, &line))
		if (line.n != 0 && !(l.number == 1 && line.text[0] == '#'))
			items[list->n++] = (struct json_node){
			        .kind = JSON_NODE_STRING, .text = arena_strndup(s->arena, line.text, line.n)};
	return list;
}

static enum tfmc_status bpe_of_class(const struct tokenizer_source *s, const char *vocab, size_t n_vocab,
                                     const char *merges, size_t n_merges, struct tokenizer_packed *out)
{
	const struct json_source src = {s->name, s->loc, DIAG_TOKENIZER, 0};
	if (!class_reads(s, TOKENIZER_F_BPE))
		return TFMC_INVALID;
	const struct json_node *ids = json_parse(s->arena, s->cx, &src, vocab, n_vocab);
	if (ids == NULL)
		return TFMC_INVALID;
	const struct json_node *lines = merge_lines(s, merges, n_merges);
	return lines != NULL ? tokenizer_from_class(s, ids, lines, out) : TFMC_NO_MEMORY;
}

enum tfmc_status tokenizer_from_bpe(const struct tokenizer_source *s, const char *vocab, size_t n_vocab,
                                    const char *merges, size_t n_merges, struct tokenizer_packed *out)
{
	struct tokenizer_desc *d;
	if (s->config != NULL)
		return bpe_of_class(s, vocab, n_vocab, merges, n_merges, out);
	TFMC_TRY(tokenizer_read_ids(s, vocab, n_vocab, &d));
	TFMC_TRY(read_merges(s, d, merges, n_merges));
	for (size_t i = 0; i < d->n_tokens; i++)
		d->tokens[i].piece = tokenizer_letters_to_bytes(s->arena, d->tokens[i].piece);
	d->model = TFMC_TOK_BPE;
	d->flags = TFMC_TOK_H_BYTE_LEVEL;
	tokenizer_find_single(d);
	uint32_t end = find_piece(d, "<|endoftext|>");
	if (end != TFMC_TOK_NONE && !tokenizer_add_token(s, d, end, TFMC_TOK_A_SPECIAL, false))
		return TFMC_NO_MEMORY;
	if (!tokenizer_add_split(d, TFMC_TOK_SCAN_GPT2, 0, tokenizer_string("")))
		return TFMC_NO_MEMORY;
	return tokenizer_pack(s, d, out);
}

/* ---- vocab.txt ---- */

static enum tfmc_status bert_specials(const struct tokenizer_source *s, struct tokenizer_desc *d)
{
	static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
	uint32_t ids[TFMC_COUNT(names)];
	for (size_t i = 0; i < TFMC_COUNT(names); i++) {
		ids[i] = find_piece(d, names[i]);
		if (ids[i] != TFMC_TOK_NONE && !tokenizer_add_token(s, d, ids[i], TFMC_TOK_A_SPECIAL, false))
			return TFMC_NO_MEMORY;
	}
	if (ids[1] == TFMC_TOK_NONE) {
		tokenizer_refuse(s, "the vocabulary has no [UNK]");
		return TFMC_INVALID;
	}
	d->pad = ids[0];
	d->unknown = ids[1];
	d->mask = ids[4];
	if (ids[2] == TFMC_TOK_NONE || ids[3] == TFMC_TOK_NONE)
		return TFMC_OK;
	const struct tfmc_tok_item items[] = {{TFMC_TOK_TOKEN, ids[2], 0}, {TFMC_TOK_TEXT_A, 0, 0},
	                                      {TFMC_TOK_TOKEN, ids[3], 0}, {TFMC_TOK_TOKEN, ids[2], 0},
	                                      {TFMC_TOK_TEXT_A, 0, 0},     {TFMC_TOK_TOKEN, ids[3], 0},
	                                      {TFMC_TOK_TEXT_B, 0, 1},     {TFMC_TOK_TOKEN, ids[3], 1}};
	memcpy(d->items, items, sizeof(items));
	d->n_single = 3;
	d->n_items = TFMC_COUNT(items);
	return TFMC_OK;
}

static bool bert_operations(struct tokenizer_desc *d, bool lowercase)
{
	const struct tokenizer_string none = {"", 0};
	return tokenizer_add_normalize(d, TFMC_TOK_BERT_CLEAN, 0, none, none) &&
	       tokenizer_add_normalize(d, TFMC_TOK_BERT_CJK, 0, none, none) &&
	       (!lowercase || (tokenizer_add_normalize(d, TFMC_TOK_NFD, 0, none, none) &&
	                       tokenizer_add_normalize(d, TFMC_TOK_STRIP_MARKS, 1, none, none) &&
	                       tokenizer_add_normalize(d, TFMC_TOK_LOWER, 0, none, none))) &&
	       tokenizer_add_split(d, TFMC_TOK_MATCH_SPACE, TFMC_TOK_REMOVED, none) &&
	       tokenizer_add_split(d, TFMC_TOK_MATCH_PUNCTUATION, TFMC_TOK_ISOLATED, none);
}

enum tfmc_status tokenizer_wordpiece_finish(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                            bool lowercase, struct tokenizer_packed *out)
{
	TFMC_TRY(bert_specials(s, d));
	if (!bert_operations(d, lowercase))
		return TFMC_NO_MEMORY;
	d->model = TFMC_TOK_WORDPIECE;
	d->prefix = tokenizer_string("##");
	d->word_max = 100;
	d->flags |= TFMC_TOK_H_DECODE_WORDS | TFMC_TOK_H_DECODE_CLEAN;
	return tokenizer_pack(s, d, out);
}

/* A name in brackets is no word of the text. */
static bool has_capitals(struct tokenizer_string line)
{
	bool is_name = line.n > 1 && line.text[0] == '[' && line.text[line.n - 1] == ']';
	for (size_t i = 0; !is_name && i < line.n; i++)
		if (line.text[i] >= 'A' && line.text[i] <= 'Z')
			return true;
	return false;
}

static enum tfmc_status wordpiece_of_class(const struct tokenizer_source *s, const char *text, size_t len,
                                           struct tokenizer_packed *out)
{
	size_t n = count_lines(text, len);
	struct json_node *ids = ARENA_NEW(s->arena, struct json_node);
	struct json_node *items = ARENA_ARRAY(s->arena, struct json_node, n + 1);
	const char **keys = ARENA_ARRAY(s->arena, const char *, n + 1);
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	bool capitals = false;
	if (!class_reads(s, TOKENIZER_F_WORDS))
		return TFMC_INVALID;
	if (ids == NULL || items == NULL || keys == NULL)
		return TFMC_NO_MEMORY;
	while (next_line(&l, &line)) {
		items[l.number - 1] = (struct json_node){.kind = JSON_NODE_INT, .i = (int64_t)l.number - 1};
		keys[l.number - 1] = arena_strndup(s->arena, line.text, line.n);
		capitals = capitals || has_capitals(line);
	}
	*ids = (struct json_node){.kind = JSON_NODE_OBJECT, .n = n, .items = items, .keys = keys};
	struct tokenizer_config config = *s->config;
	struct tokenizer_source own = *s;
	own.config = &config;
	if (config.lowercase < 0 && !config.has_file)
		config.lowercase = !capitals;
	return tokenizer_from_class(&own, ids, NULL, out);
}

enum tfmc_status tokenizer_from_wordpiece(const struct tokenizer_source *s, const char *text, size_t len,
                                          struct tokenizer_packed *out)
{
	if (s->config != NULL)
		return wordpiece_of_class(s, text, len, out);
	struct tokenizer_desc *d = new_desc(s, count_lines(text, len));
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	bool lowercase = true;
	if (d == NULL)
		return TFMC_NO_MEMORY;
	while (next_line(&l, &line)) {
		struct tokenizer_token *t = &d->tokens[l.number - 1];
		t->piece = line;
		t->is_written = t->is_matched = true;
		lowercase = lowercase && !has_capitals(line);
	}
	return tokenizer_wordpiece_finish(s, d, lowercase, out);
}

/* ---- scores with bytes as they are ---- */

/* The first three are unknown, start and stop, then come the bytes; control tokens are never matched. */
static enum tfmc_status finish_plain(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                     struct tokenizer_packed *out)
{
	const struct tokenizer_spm spm = {false, true, true, " "};
	for (size_t i = 0; i < d->n_tokens; i++) {
		int64_t type = tokenizer_byte_piece(d->tokens[i].piece) >= 0 ? TOKENIZER_PIECE_BYTE
		               : i == 0                                      ? TOKENIZER_PIECE_UNKNOWN
		               : i < 3                                       ? TOKENIZER_PIECE_CONTROL
		                                                             : TOKENIZER_PIECE_NORMAL;
		if (!tokenizer_set_type(s, d, i, type))
			return TFMC_INVALID;
	}
	d->flags |= TFMC_TOK_H_BARE;
	d->bos = d->n_tokens > 1 ? 1 : TFMC_TOK_NONE;
	d->eos = d->n_tokens > 2 ? 2 : TFMC_TOK_NONE;
	TFMC_TRY(tokenizer_spm_finish(s, d, &spm));
	return tokenizer_pack(s, d, out);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(struct arena *a, const char *text, size_t n, struct tokenizer_string *out)
{
	char *bytes = arena_alloc(a, n / 2 + 1);
	if (bytes == NULL || n % 2)
		return false;
	for (size_t i = 0; i < n; i += 2) {
		int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
		if (high < 0 || low < 0)
			return false;
		bytes[i / 2] = (char)(high * 16 + low);
	}
	*out = (struct tokenizer_string){bytes, n / 2};
	return true;
}

enum tfmc_status tokenizer_from_scored(const struct tokenizer_source *s, const char *text, size_t len,
                                       struct tokenizer_packed *out)
{
	struct tokenizer_desc *d = new_desc(s, count_lines(text, len));
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	if (d == NULL)
		return TFMC_NO_MEMORY;
	while (next_line(&l, &line)) {
		struct tokenizer_token *t = &d->tokens[l.number - 1];
		const char *tab = line.n ? memchr(line.text, '\t', line.n) : NULL;
		size_t rest = tab != NULL ? line.n - (size_t)(tab + 1 - line.text) : 0;
		const char *second = rest ? memchr(tab + 1, '\t', rest) : NULL;
		int64_t id;
		bool ok =
		        second != NULL && number_parse_i64(line.text, (size_t)(tab - line.text), &id) &&
		        id == (int64_t)l.number - 1 &&
		        number_parse_f64(tab + 1, (size_t)(second - tab - 1), &t->score) &&
		        read_hex(s->arena, second + 1, (size_t)(line.text + line.n - second - 1), &t->piece);
		if (!ok) {
			tokenizer_refuse(s, "line %zu is not id %zu, score and bytes in hexadecimal",
			                 l.number, l.number - 1);
			return TFMC_INVALID;
		}
	}
	return finish_plain(s, d, out);
}

static uint32_t u32_at(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Longest piece, then for each token its score (f32), its length and its bytes. */
enum tfmc_status tokenizer_from_llama2c(const struct tokenizer_source *s, const unsigned char *data,
                                        size_t len, struct tokenizer_packed *out)
{
	size_t n = 0, at = 4;
	for (; len >= 12 && len - at >= 8 && u32_at(data + at + 4) <= len - at - 8 && at < len; n++)
		at += 8 + u32_at(data + at + 4);
	struct tokenizer_desc *d = new_desc(s, n);
	if (d == NULL)
		return TFMC_NO_MEMORY;
	if (at != len || n == 0) {
		tokenizer_refuse(s, "no vocabulary of llama2.c: damaged at byte %zu", at);
		return TFMC_INVALID;
	}
	at = 4;
	for (size_t i = 0; i < n; i++) {
		uint32_t bits = u32_at(data + at), bytes = u32_at(data + at + 4);
		float score;
		memcpy(&score, &bits, sizeof(score));
		d->tokens[i].score = (double)score;
		d->tokens[i].piece = (struct tokenizer_string){(const char *)data + at + 8, bytes};
		at += 8 + bytes;
	}
	return finish_plain(s, d, out);
}
