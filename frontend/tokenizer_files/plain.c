/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vocabularies without a description of their pipeline: the format says which
 * one it is. vocab.json with merges.txt (GPT-2), vocab.txt (BERT), scored lines
 * and the file of llama2.c (SentencePiece with plain spaces).
 */
#include <string.h>

#include "frontend/tokenizer_files/class.h"
#include "ir/support/number.h"
#include "ir/support/utf8.h"

/* ---- lines ---- */

struct lines {
	const char *at, *end;
	size_t number;
};

static bool next_line(struct lines *l, struct tokenizer_string *line)
{
	if (l->at == l->end)
		return false;
	const char *text = l->at;
	*line = (struct tokenizer_string){text, utf8_line(text, l->end, &l->at)};
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

/* ---- vocab.json and merges.txt ---- */

enum tfmc_status tokenizer_read_ids(const struct tokenizer_source *s, const char *text, size_t len,
                                    struct tokenizer_desc **out)
{
	const struct json_source src = {s->name, s->loc, DIAG_TOKENIZER, 0};
	const struct json_node *root = json_parse(s->arena, s->cx, &src, text, len);
	struct tokenizer_reader r = {.source = s, .desc = new_desc(s, 0)};
	if (root == NULL)
		return TFMC_INVALID;
	if (r.desc == NULL)
		return TFMC_NO_MEMORY;
	*out = r.desc;
	if (tokenizer_read_vocab(&r, root, NULL))
		return TFMC_OK;
	return r.no_memory ? TFMC_NO_MEMORY : TFMC_INVALID;
}

/* The class that the files beside a list name must be one that reads it. */
static bool class_reads(const struct tokenizer_source *s, enum tokenizer_files files)
{
	const struct tokenizer_config *c = s->config;
	return c == NULL || (c->class != NULL && c->class->files == files) ||
	       tokenizer_refuse(s, TOKENIZER_UNSUPPORTED, NULL, "the class '%s' without a tokenizer.json",
	                        c->class_name) == TFMC_OK;
}

/* "left right" of each line; `i` is its number. */
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
			items[list->n++] =
			        (struct json_node){.kind = JSON_NODE_STRING,
			                           .text = arena_strndup(s->arena, line.text, line.n),
			                           .i = (int64_t)l.number};
	return list;
}

/* Tokens of these names that a vocabulary has, as a member of a tokenizer.json. */
static const char *special_tokens(struct arena *a, const struct json_node *vocab, const char *const *names,
                                  size_t n)
{
	const char *list = "";
	for (size_t i = 0; i < n; i++) {
		const struct json_node *id = json_find(vocab, names[i]);
		if (id != NULL)
			list = arena_printf(a, "%s%s{\"id\":%lld,\"content\":\"%s\",\"special\":true}", list,
			                    *list ? "," : "", (long long)id->i, names[i]);
	}
	return arena_printf(a, ",\"added_tokens\":[%s]", list);
}

enum tfmc_status tokenizer_from_bpe(const struct tokenizer_source *s, const char *vocab, size_t n_vocab,
                                    const char *merges, size_t n_merges, struct tokenizer_packed *out)
{
	static const char *const end[] = {"<|endoftext|>"};
	const struct json_source src = {s->name, s->loc, DIAG_TOKENIZER, 0};
	struct tokenizer_lists lists = {.class = tokenizer_class_find("GPT2Tokenizer"), .more = ""};
	if (!class_reads(s, TOKENIZER_F_BPE))
		return TFMC_INVALID;
	lists.vocab = json_parse(s->arena, s->cx, &src, vocab, n_vocab);
	if (lists.vocab == NULL)
		return TFMC_INVALID;
	lists.merges = merge_lines(s, merges, n_merges);
	if (s->config == NULL)
		lists.more = special_tokens(s->arena, lists.vocab, end, 1);
	return lists.merges != NULL ? tokenizer_from_lists(s, &lists, out) : TFMC_NO_MEMORY;
}

/* ---- vocab.txt ---- */

static bool has_capitals(const char *word)
{
	size_t n = strlen(word);
	bool is_name = n > 1 && word[0] == '[' && word[n - 1] == ']';
	return !is_name && strpbrk(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != NULL;
}

/* Tokens by their names, and what is around the text when there are the two that do. */
static const char *bert_members(struct arena *a, const struct json_node *vocab, uint32_t bos, uint32_t eos)
{
	static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
	const struct json_node *cls = json_find(vocab, "[CLS]"), *sep = json_find(vocab, "[SEP]");
	const struct json_node *pad = json_find(vocab, "[PAD]"), *mask = json_find(vocab, "[MASK]");
	const struct {
		const char *key;
		int64_t id;
	} roles[] = {{"bos", bos == TFMC_TOK_NONE ? -1 : (int64_t)bos},
	             {"eos", eos == TFMC_TOK_NONE ? -1 : (int64_t)eos},
	             {"pad", pad != NULL ? pad->i : -1},
	             {"mask", mask != NULL ? mask->i : -1}};
	const char *more = special_tokens(a, vocab, names, TFMC_COUNT(names));
	if (cls != NULL && sep != NULL)
		more = arena_printf(a,
		                    "%s,\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"\",%lld],"
		                    "\"cls\":[\"\",%lld]}",
		                    more, (long long)sep->i, (long long)cls->i);
	for (size_t i = 0; i < TFMC_COUNT(roles); i++)
		if (roles[i].id >= 0)
			more = arena_printf(a, "%s,\"%s_token_id\":%lld", more, roles[i].key,
			                    (long long)roles[i].id);
	return more;
}

/* Without a configuration words with capitals say that text is not made lower case. */
enum tfmc_status tokenizer_from_words(const struct tokenizer_source *s, const char *const *words, size_t n,
                                      uint32_t bos, uint32_t eos, struct tokenizer_packed *out)
{
	struct json_node *items = ARENA_ARRAY(s->arena, struct json_node, n + 1);
	const struct json_node vocab = {.kind = JSON_NODE_OBJECT, .n = n, .items = items, .keys = words};
	struct tokenizer_lists lists = {.vocab = &vocab, .unknown = "[UNK]", .more = ""};
	struct tokenizer_source own = *s;
	bool capitals = false;
	if (items == NULL || arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < n; i++) {
		items[i] = (struct json_node){.kind = JSON_NODE_INT, .i = (int64_t)i};
		capitals = capitals || has_capitals(words[i]);
	}
	if (s->config != NULL) {
		struct tokenizer_config config = *s->config;
		if (config.lowercase < 0 && !config.has_file)
			config.lowercase = !capitals;
		own.config = &config;
		return tokenizer_from_lists(&own, &lists, out);
	}
	lists.class = tokenizer_class_find("BertTokenizer");
	lists.normalizer = capitals ? "{\"type\":\"BertNormalizer\",\"lowercase\":false}" : NULL;
	lists.more = bert_members(s->arena, &vocab, bos, eos);
	return tokenizer_from_lists(s, &lists, out);
}

enum tfmc_status tokenizer_from_wordpiece(const struct tokenizer_source *s, const char *text, size_t len,
                                          struct tokenizer_packed *out)
{
	size_t n = count_lines(text, len);
	const char **words = ARENA_ARRAY(s->arena, const char *, n + 1);
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	if (!class_reads(s, TOKENIZER_F_WORDS))
		return TFMC_INVALID;
	while (words != NULL && next_line(&l, &line))
		words[l.number - 1] = arena_strndup(s->arena, line.text, line.n);
	return words != NULL ? tokenizer_from_words(s, words, n, TFMC_TOK_NONE, TFMC_TOK_NONE, out)
	                     : TFMC_NO_MEMORY;
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
		if (!ok)
			return tokenizer_refuse(s, TOKENIZER_WRONG, NULL,
			                        "line %zu is not id %zu, score and bytes in hexadecimal",
			                        l.number, l.number - 1);
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
	if (at != len || n == 0)
		return tokenizer_refuse(s, TOKENIZER_WRONG, NULL,
		                        "no vocabulary of llama2.c: damaged at byte %zu", at);
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
