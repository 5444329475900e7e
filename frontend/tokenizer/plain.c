/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vocabularies whose format implies the pipeline: vocab.json with merges.txt (GPT-2), vocab.txt (BERT),
 * scored lines and the tokenizer of llama2.c (SentencePiece with plain spaces).
 */
#include <string.h>

#include "frontend/tokenizer/json.h"
#include "frontend/tokenizer/spm.h"
#include "ir/support/number.h"
#include "ir/support/utf8.h"

/* ---- lines ---- */

/* Iterator over the lines of a text. */
struct lines {
	const char *at, *end;
	size_t number;
};

/* Reads the next line without its end; false: at the end of the text. */
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

/* A description with n_tokens empty tokens; NULL: no memory. */
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
	if (root == NULL && !arena_failed(s->arena))
		return TFMC_INVALID;
	if (root == NULL || r.desc == NULL)
		return TFMC_NO_MEMORY;
	*out = r.desc;
	if (tokenizer_read_vocab(&r, root, NULL))
		return TFMC_OK;
	return r.no_memory ? TFMC_NO_MEMORY : TFMC_INVALID;
}

/* Checks that the class named by the configuration reads such files. */
static bool class_reads(const struct tokenizer_source *s, enum tokenizer_files files)
{
	const struct tokenizer_config *c = s->config;
	return c == NULL || (c->class != NULL && c->class->files == files) ||
	       tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL,
	                             "the class '%s' without a tokenizer.json", c->class_name) == TFMC_OK;
}

/* JSON list of the lines "left right", without the version line #.. at the top; `i` of an item is its line number. */
static const struct json_node *read_merge_lines(const struct tokenizer_source *s, const char *text,
                                                size_t len)
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

/* Member added_tokens with those of the names that the vocabulary has; they need no escapes in JSON. */
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

/* The files have no special tokens: those of the configuration count, without one <|endoftext|> if it is in the
 * vocabulary. */
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
		return arena_failed(s->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	lists.merges = read_merge_lines(s, merges, n_merges);
	if (s->config == NULL)
		lists.more = special_tokens(s->arena, lists.vocab, end, 1);
	return lists.merges != NULL ? tokenizer_from_lists(s, &lists, out) : TFMC_NO_MEMORY;
}

/* ---- vocab.txt ---- */

/* An item of the template, with its comma; empty if it is not there. */
static const char *template_token(struct arena *a, char name, bool is_there, int type)
{
	return is_there ? arena_printf(a, "{\"SpecialToken\":{\"id\":\"%c\",\"type_id\":%d}},", name, type)
	                : "";
}

/* Member post_processor with BERT's template. An optional token ends with its comma, so that the last needs an item
   after it: the empty {}, which readers skip. */
static const char *bert_template(struct arena *a, const struct tokenizer_bert *b, uint32_t cls, uint32_t sep)
{
	const char *front = template_token(a, 'c', b->add_cls, 0);
	return arena_printf(
	        a,
	        ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"c\":{\"ids\":[%u]"
	        "},"
	        "\"s\":{\"ids\":[%u]}},\"single\":[%s{\"Sequence\":{\"id\":\"A\"}},%s{}],\"pair\":[%s"
	        "{\"Sequence\":{\"id\":\"A\"}},%s{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},%s{}]}",
	        cls, sep, front, template_token(a, 's', b->add_sep, 0), front,
	        template_token(a, 's', b->add_between, 0), template_token(a, 's', b->add_sep, 1));
}

static uint32_t id_of(const struct json_node *vocab, const char *word)
{
	const struct json_node *id = json_find(vocab, word);
	return id != NULL ? (uint32_t)id->i : TFMC_TOK_NONE;
}

/* Members added_tokens and ids, and the template if [CLS] and [SEP] exist. */
static const char *bert_members(struct arena *a, const struct json_node *vocab,
                                const struct tokenizer_bert *b)
{
	static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
	const struct {
		const char *key;
		uint32_t id;
	} roles[] = {{"bos", b->bos},
	             {"eos", b->eos},
	             {"pad", id_of(vocab, "[PAD]")},
	             {"mask", id_of(vocab, "[MASK]")}};
	const char *more = special_tokens(a, vocab, names, TFMC_COUNT(names));
	uint32_t cls = b->cls != TFMC_TOK_NONE ? b->cls : id_of(vocab, "[CLS]");
	uint32_t sep = b->sep != TFMC_TOK_NONE ? b->sep : id_of(vocab, "[SEP]");
	if (cls != TFMC_TOK_NONE && sep != TFMC_TOK_NONE)
		more = arena_printf(a, "%s%s", more, bert_template(a, b, cls, sep));
	for (size_t i = 0; i < TFMC_COUNT(roles); i++)
		if (roles[i].id != TFMC_TOK_NONE)
			more = arena_printf(a, "%s,\"%s_token_id\":%u", more, roles[i].key, roles[i].id);
	return more;
}

/* Member normalizer; unless specified, a vocabulary with capitals is cased. */
static const char *bert_normalizer(struct arena *a, const struct tokenizer_bert *b, const char *const *words,
                                   size_t n)
{
	bool capitals = false;
	for (size_t i = 0; i < n && !capitals; i++) {
		size_t len = strlen(words[i]);
		bool in_brackets = len > 1 && words[i][0] == '[' && words[i][len - 1] == ']'; /* like [CLS] */
		capitals = !in_brackets && strpbrk(words[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != NULL;
	}
	bool lower = b->lowercase < 0 ? !capitals : b->lowercase == 1;
	bool strip = b->strip_accents < 0 ? lower : b->strip_accents == 1;
	return arena_printf(a, "{\"type\":\"BertNormalizer\",\"lowercase\":%s,\"strip_accents\":%s}",
	                    lower ? "true" : "false", strip ? "true" : "false");
}

/* The words become the vocabulary of a tokenizer.json, their ids are their indices. A configuration names class,
 * special tokens and flags; without one they are BERT's and those of `bert`. */
enum tfmc_status tokenizer_from_words(const struct tokenizer_source *s, const char *const *words, size_t n,
                                      const struct tokenizer_bert *bert, struct tokenizer_packed *out)
{
	struct json_node *items = ARENA_ARRAY(s->arena, struct json_node, n + 1);
	const struct json_node vocab = {.kind = JSON_NODE_OBJECT, .n = n, .items = items, .keys = words};
	struct tokenizer_lists lists = {.vocab = &vocab, .unknown = bert->unknown, .more = ""};
	if (items == NULL || arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < n; i++)
		items[i] = (struct json_node){.kind = JSON_NODE_INT, .i = (int64_t)i};
	if (s->config != NULL)
		return tokenizer_from_lists(s, &lists, out);
	lists.class = tokenizer_class_find("BertTokenizer");
	lists.normalizer = bert_normalizer(s->arena, bert, words, n);
	lists.more = bert_members(s->arena, &vocab, bert);
	return tokenizer_from_lists(s, &lists, out);
}

enum tfmc_status tokenizer_from_wordpiece(const struct tokenizer_source *s, const char *text, size_t len,
                                          struct tokenizer_packed *out)
{
	size_t n = count_lines(text, len);
	const char **words = ARENA_ARRAY(s->arena, const char *, n + 1);
	struct lines l = {text, text + len, 0};
	struct tokenizer_string line;
	const struct tokenizer_bert bert = TOKENIZER_BERT;
	if (!class_reads(s, TOKENIZER_F_WORDS))
		return TFMC_INVALID;
	while (words != NULL && next_line(&l, &line))
		words[l.number - 1] = arena_strndup(s->arena, line.text, line.n);
	return words != NULL ? tokenizer_from_words(s, words, n, &bert, out) : TFMC_NO_MEMORY;
}

/* ---- scored vocabularies ---- */

/* Packs a scored vocabulary: tokens 0 to 2 are unknown, start and stop, then the byte tokens; control
 * tokens are never matched. */
static enum tfmc_status finish_scored(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                      struct tokenizer_packed *out)
{
	const struct tokenizer_spm spm = {false, true, true,
	                                  " "}; /* BPE, a space before the text, no space removed */
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

/* Decodes hexadecimal digits; false: another character, an odd number, or no memory. */
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

/* A line is id, score and bytes, separated by tabs; ids must be line numbers from 0 on, so that none is absent or
 * double. */
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
		size_t remaining = tab != NULL ? line.n - (size_t)(tab + 1 - line.text) : 0;
		const char *second = remaining ? memchr(tab + 1, '\t', remaining) : NULL;
		int64_t id;
		bool ok =
		        second != NULL && number_parse_i64(line.text, (size_t)(tab - line.text), &id) &&
		        id == (int64_t)l.number - 1 &&
		        number_parse_f64(tab + 1, (size_t)(second - tab - 1), &t->score) &&
		        read_hex(s->arena, second + 1, (size_t)(line.text + line.n - second - 1), &t->piece);
		if (!ok)
			return tokenizer_reject_file(s, TOKENIZER_WRONG, NULL,
			                             "line %zu is not id %zu, score and bytes in hexadecimal",
			                             l.number, l.number - 1);
	}
	return finish_scored(s, d, out);
}

static uint32_t u32_at(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/*
 * Layout: u32 length of the longest piece, then for each token f32 score, u32 length and bytes. The first loop finds
 * the tokens and checks their lengths. Its invariant is 4 <= at <= len: a token is taken only if its header (8 bytes)
 * and as many bytes as the header says lie within the rest, so no subtraction wraps, and the second loop, which takes
 * as many tokens, reads inside of the file.
 */
enum tfmc_status tokenizer_from_llama2c(const struct tokenizer_source *s, const unsigned char *data,
                                        size_t len, struct tokenizer_packed *out)
{
	size_t n = 0, at = 4;
	for (; len >= at && len - at >= 8 && u32_at(data + at + 4) <= len - at - 8; n++)
		at += 8 + u32_at(data + at + 4);
	struct tokenizer_desc *d = new_desc(s, n);
	if (d == NULL)
		return TFMC_NO_MEMORY;
	if (at != len || n == 0)
		return tokenizer_reject_file(s, TOKENIZER_WRONG, NULL,
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
	return finish_scored(s, d, out);
}
