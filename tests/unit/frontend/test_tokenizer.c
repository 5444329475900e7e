/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers against expected ids of tests/golden/tokenizers (made by
 * tests/tokenizers/make.py with the libraries of others), and what must hold of
 * any: streams give what decoding gives, bytes survive, damage is refused.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/spm.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/json.h"
#include "frontend/tokenizer/tokenizer.h"
#include "ir/support/utf8.h"
#include "runtime/tokenizer/format.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"
#include "tests/support/reading.h"
#include "tests/support/tokenizer_json.h"

Suite *suite_tokenizer(void);

#define IDS_MAX   4096
#define BYTES_MAX 65536

static const char *const names[] = {"gpt2.json",          "roberta.json",
                                    "llama3.json",        "qwen2.json",
                                    "qwen35.json",        "o200k.json",
                                    "falcon.json",        "starcoder.json",
                                    "bloom.json",         "clip.json",
                                    "llama2.json",        "mistral.json",
                                    "gemma.json",         "t5.json",
                                    "xlmr.json",          "bert.json",
                                    "bert_cased.json",    "words.json",
                                    "spm_bpe.model",      "spm_unigram.model",
                                    "spm_user_bpe.model", "spm_user_unigram.model",
                                    "deepseek_llm.json",  "deepseek_coder.json",
                                    "deepseek_v3.json",   "han.json",
                                    "possessive.json",    "mbart.json",
                                    "albert.json",        "deberta.json",
                                    "added.json",         "added_marked.json",
                                    "added_bytes.json",   "word_level.json",
                                    "llama2c.bin",        "llama2c.tsv"};

static const char *golden(struct reading *r, const char *name)
{
	const char *source = getenv("TFMC_SOURCE");
	return arena_printf(&r->arena, "%s/tests/golden/tokenizers/%s", source ? source : "..", name);
}

static void read_file(struct reading *r, const char *path, const char **text, size_t *len)
{
	ck_assert_msg(file_read(&r->arena, &r->cx, path, (size_t)64 << 20, LOC_NONE, text, len) == TFMC_OK,
	              "%s", r->log.data);
}

static enum tfmc_status read_any(const struct tokenizer_source *s, const char *text, size_t len,
                                 struct tokenizer_packed *out)
{
	const unsigned char *bytes = (const unsigned char *)text;
	if (strstr(s->name, ".json"))
		return tokenizer_from_json(s, text, len, out);
	if (strstr(s->name, ".model"))
		return tokenizer_from_spm(s, bytes, len, out);
	return strstr(s->name, ".bin") ? tokenizer_from_llama2c(s, bytes, len, out)
	                               : tokenizer_from_scored(s, text, len, out);
}

/* These formats have no control tokens in texts. */
static unsigned flags_of(const char *name)
{
	return strstr(name, ".json") ? 0 : TFMC_TOKENIZE_PLAIN;
}

static struct tokenizer_packed pack(struct reading *r, const char *name)
{
	struct tokenizer_source s = {&r->arena, &r->cx, name, LOC_NONE, false, NULL};
	struct tokenizer_packed p = {0};
	const char *text;
	size_t len;
	read_file(r, golden(r, name), &text, &len);
	ck_assert_msg(read_any(&s, text, len, &p) == TFMC_OK, "%s: %s", name, r->log.data);
	return p;
}

static struct tfmc_tokenizer *open_golden(struct reading *r, const char *name)
{
	struct tokenizer_packed p = pack(r, name);
	struct tfmc_tokenizer *t;
	ck_assert_int_eq(tfmc_tokenizer_open(p.data, p.bytes, &t), TFMC_TOKENIZER_OK);
	return t;
}

/* ---- expected ids ---- */

static void check_ids(const struct tfmc_tokenizer *t, const char *name, const struct json_node *c,
                      const char *key, unsigned flags)
{
	static int32_t ids[IDS_MAX];
	const char *text = json_find(c, "text")->text;
	const struct json_node *want = json_find(c, key);
	uint64_t n;
	ck_assert_int_eq(tfmc_tokenizer_encode(t, text, strlen(text), flags, ids, IDS_MAX, &n), 0);
	for (uint64_t i = 0; i < n && i < want->n; i++)
		ck_assert_msg(want->items[i].i == ids[i], "%s: '%s': id %llu is %d, not %lld", name, text,
		              (unsigned long long)i, ids[i], (long long)want->items[i].i);
	ck_assert_msg(want->n == n, "%s: '%s': %llu ids, not %zu", name, text, (unsigned long long)n,
	              want->n);
}

static int append(void *user, const char *text, uint64_t bytes)
{
	struct buf *out = user;
	buf_bytes(out, text, (size_t)bytes);
	return 0;
}

static void check_text(const struct tfmc_tokenizer *t, const char *name, const struct json_node *c)
{
	static int32_t ids[IDS_MAX];
	static char text[BYTES_MAX];
	const struct json_node *list = json_find(c, "ids");
	const char *want = json_find(c, "back")->text;
	struct tfmc_token_stream s;
	struct buf streamed;
	uint64_t n;
	for (size_t i = 0; i < list->n; i++)
		ids[i] = (int32_t)list->items[i].i;
	ck_assert_int_eq(
	        tfmc_tokenizer_decode(t, ids, list->n, TFMC_DETOKENIZE_KEEP, text, BYTES_MAX - 1, &n), 0);
	text[n] = 0;
	buf_init(&streamed);
	tfmc_token_stream_begin(&s, t, TFMC_DETOKENIZE_KEEP, append, &streamed);
	for (size_t i = 0; i < list->n; i++)
		ck_assert_int_eq(tfmc_token_stream_add(&s, ids[i]), 0);
	ck_assert_int_eq(tfmc_token_stream_end(&s), 0);
	ck_assert_msg(!strcmp(streamed.data, want), "%s: '%s': streamed '%s', not '%s'", name,
	              json_find(c, "text")->text, streamed.data, want);
	if (!strstr(want, "\xef\xbf\xbd"))
		ck_assert_msg(!strcmp(text, want), "%s: '%s', not '%s'", name, text, want);
	buf_destroy(&streamed);
}

START_TEST(expected_ids)
{
	const char *name = names[_i];
	struct reading r;
	reading_init(&r);
	struct tfmc_tokenizer *t = open_golden(&r, name);
	const char *text, *base = arena_strndup(&r.arena, name, (size_t)(strchr(name, '.') - name));
	size_t len;
	read_file(&r, golden(&r, arena_printf(&r.arena, "%s.cases.json", base)), &text, &len);
	const struct json_source src = {name, LOC_NONE, DIAG_FILE, 0};
	const struct json_node *cases = json_parse(&r.arena, &r.cx, &src, text, len);
	ck_assert_msg(cases && cases->n > 30, "%s", r.log.data);
	for (size_t i = 0; i < cases->n; i++) {
		unsigned plain = flags_of(name);
		check_ids(t, name, &cases->items[i], "ids", plain);
		check_ids(t, name, &cases->items[i], "all", plain | TFMC_TOKENIZE_SPECIAL);
		check_text(t, name, &cases->items[i]);
	}
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

/* Text of the ids of a source, without </s>. */
static void check_decoded(const struct tfmc_tokenizer *t, const struct json_node *c)
{
	static int32_t ids[IDS_MAX];
	static char text[BYTES_MAX];
	const struct json_node *list = json_find(c, "source");
	uint64_t n;
	for (size_t i = 0; i < list->n; i++)
		ids[i] = (int32_t)list->items[i].i;
	ck_assert_int_eq(tfmc_tokenizer_decode(t, ids, list->n, 0, text, BYTES_MAX - 1, &n), 0);
	while (n && strchr(" \t\r\n", text[n - 1])) /* the other library strips both ends */
		n--;
	text[n] = 0;
	ck_assert_str_eq(text + strspn(text, " \t\r\n"), json_find(c, "back")->text);
}

/* Both sides of Marian: one vocabulary, two models that cut. */
START_TEST(marian)
{
	static const char *const sides[] = {"source", "target"};
	struct reading r;
	struct tokenizer_packed p;
	struct tfmc_tokenizer *t;
	const char *spm, *vocab, *text;
	size_t n_spm, n_vocab, len;
	reading_init(&r);
	read_file(&r, golden(&r, arena_printf(&r.arena, "marian/%s.spm", sides[_i])), &spm, &n_spm);
	read_file(&r, golden(&r, "marian/vocab.json"), &vocab, &n_vocab);
	read_file(&r, golden(&r, "marian/marian.cases.json"), &text, &len);
	struct tokenizer_source s = {&r.arena, &r.cx, "marian", LOC_NONE, false, NULL};
	ck_assert_int_eq(tokenizer_from_marian(&s, (const unsigned char *)spm, n_spm, vocab, n_vocab, &p),
	                 TFMC_OK);
	ck_assert_int_eq(tfmc_tokenizer_open_target(p.data, p.bytes, &t), TFMC_TOKENIZER_OK);
	const struct json_source src = {"marian", LOC_NONE, DIAG_FILE, 0};
	const struct json_node *cases = json_parse(&r.arena, &r.cx, &src, text, len);
	ck_assert_msg(cases && cases->n > 30, "%s", r.log.data);
	for (size_t i = 0; i < cases->n; i++)
		check_ids(t, "marian", &cases->items[i], sides[_i], _i ? 0 : TFMC_TOKENIZE_SPECIAL);
	for (size_t i = 0; i < cases->n; i++)
		check_decoded(t, &cases->items[i]);
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

/* ---- what holds of any text ---- */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Bytes of all kinds: any, ASCII, characters, cut characters, runs. */
static size_t random_bytes(uint64_t *state, char *out, size_t most)
{
	static const char *const parts[] = {"\xc3\xa9",     "e\xcc\x81\xcc\xa3",
	                                    "\xe4\xb8\xad", "\xf0\x9f\x99\x82",
	                                    "'s",           "  ",
	                                    "\r\n",         "<|end|>",
	                                    "\xe2\x96\x81", "\xf0\x9f",
	                                    "\xed\xa0\x80", "12",
	                                    "\xc0\x80",     "\xff"};
	size_t n = 0, want = next_random(state) % most;
	while (n + 16 < want) {
		uint64_t r = next_random(state);
		const char *part = parts[r % TFMC_COUNT(parts)];
		if (r >> 60 == 0)
			for (size_t k = 0; k < 8; k++)
				out[n++] = (char)(r >> 8 * k);
		else if (r >> 60 < 8)
			out[n++] = (char)(32 + (r >> 8) % 95);
		else
			for (size_t k = 0; part[k]; k++)
				out[n++] = part[k];
	}
	return n;
}

START_TEST(bytes_survive)
{
	static const char *const exact[] = {"gpt2.json",        "llama3.json",       "qwen35.json",
	                                    "o200k.json",       "falcon.json",       "starcoder.json",
	                                    "bloom.json",       "deepseek_llm.json", "deepseek_coder.json",
	                                    "deepseek_v3.json", "han.json"};
	static char in[600], out[8192];
	static int32_t ids[IDS_MAX];
	uint64_t state = 88172645463325252ull, n, bytes;
	struct reading r;
	reading_init(&r);
	struct tfmc_tokenizer *t = open_golden(&r, exact[_i]);
	for (int round = 0; round < 1000; round++) {
		size_t len = random_bytes(&state, in, sizeof(in));
		ck_assert_int_eq(tfmc_tokenizer_encode(t, in, len, 0, ids, IDS_MAX, &n), 0);
		ck_assert_int_eq(
		        tfmc_tokenizer_decode(t, ids, n, TFMC_DETOKENIZE_KEEP, out, sizeof(out), &bytes), 0);
		ck_assert_uint_eq(bytes, len);
		ck_assert_int_eq(memcmp(in, out, len), 0);
	}
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

/* Every tokenizer takes any bytes; the ids are its own, streams are UTF-8, no room is no error. */
START_TEST(any_bytes)
{
	static char in[600];
	static int32_t ids[IDS_MAX], types[IDS_MAX];
	uint64_t state = UINT64_C(1234567) + (unsigned)_i, n, again;
	struct reading r;
	struct buf streamed;
	reading_init(&r);
	buf_init(&streamed);
	struct tfmc_tokenizer *t = open_golden(&r, names[_i]);
	for (int round = 0; round < 200; round++) {
		struct tfmc_token_stream s;
		size_t len = random_bytes(&state, in, sizeof(in));
		ck_assert_int_eq(tfmc_tokenizer_encode(t, in, len, TFMC_TOKENIZE_SPECIAL, ids, IDS_MAX, &n),
		                 0);
		ck_assert_int_eq(tfmc_tokenizer_encode(t, in, len, TFMC_TOKENIZE_SPECIAL, NULL, 0, &again),
		                 0);
		ck_assert_uint_eq(n, again);
		buf_clear(&streamed);
		tfmc_token_stream_begin(&s, t, 0, append, &streamed);
		for (uint64_t i = 0; i < n; i++) {
			ck_assert(ids[i] >= 0 && ids[i] < tfmc_tokenizer_size(t));
			ck_assert_int_eq(tfmc_token_stream_add(&s, ids[i]), 0);
		}
		ck_assert_int_eq(tfmc_token_stream_end(&s), 0);
		ck_assert_uint_eq(utf8_check(streamed.data, streamed.len), streamed.len);
		ck_assert_int_eq(tfmc_tokenizer_encode_pair(t, in, len, in, len / 2, ids, types, IDS_MAX, &n),
		                 0);
	}
	buf_destroy(&streamed);
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

/* 131072 bytes of one word, of marks to be sorted, of blanks: what is quadratic does not end in time. */
START_TEST(long_texts)
{
	static const char *const parts[] = {"a", "ab",  " ", "\xcc\x81\xcc\xa3", "\xe4\xb8\xad",   "'",
	                                    "1", "\n ", "<", "\xc3\x89",         "Aa\xe4\xb8\xad", "\xff"};
	const size_t len = (size_t)1 << 17;
	struct reading r;
	reading_init(&r);
	struct tfmc_tokenizer *t = open_golden(&r, names[_i]);
	char *in = malloc(len + 8);
	ck_assert_ptr_nonnull(in);
	for (size_t p = 0; p < TFMC_COUNT(parts); p++) {
		uint64_t n, want = strlen(parts[p]);
		for (size_t at = 0; at < len; at++)
			in[at] = parts[p][at % want];
		ck_assert_int_eq(tfmc_tokenizer_encode(t, in, len, 0, NULL, 0, &n), 0);
		ck_assert(n <= 4 * len);
	}
	free(in);
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

/* ---- damage ---- */

static void repair(unsigned char *data, size_t bytes)
{
	struct tfmc_tok_header h;
	size_t skip = offsetof(struct tfmc_tok_header, model);
	memcpy(&h, data, sizeof(h));
	h.checksum = tfmc_tok_checksum(data + skip, bytes - skip);
	memcpy(data, &h, sizeof(h));
}

/* With a checksum that fits, whatever opens must encode and decode without reading outside (sanitizers look).
 */
START_TEST(damage_is_refused_or_harmless)
{
	static const char text[] = "Hello <s> w\xc3\xb6rld's 1234  \xe4\xb8\xad\xe6\x96\x87 \xff e\xcc\x81";
	static int32_t ids[IDS_MAX];
	static char out[BYTES_MAX];
	uint64_t state = UINT64_C(99) + (unsigned)_i, n, bytes, opened = 0;
	struct reading r;
	reading_init(&r);
	struct tokenizer_packed p = pack(&r, names[_i]);
	unsigned char *copy = malloc(p.bytes);
	ck_assert_ptr_nonnull(copy);
	for (int round = 0; round < 400; round++) {
		struct tfmc_tokenizer *t;
		size_t len = p.bytes;
		memcpy(copy, p.data, len);
		for (uint64_t k = 1 + next_random(&state) % 3; k > 0; k--) {
			/* Half of the damage goes to the header and the first sections. */
			uint64_t at = next_random(&state) % (next_random(&state) % 2 ? len : 400);
			copy[at] = (unsigned char)next_random(&state);
		}
		ck_assert_int_ne(tfmc_tokenizer_open(copy, len - 16, &t), 0);
		repair(copy, len);
		if (tfmc_tokenizer_open(copy, len, &t) != TFMC_TOKENIZER_OK)
			continue;
		opened++;
		ck_assert_int_eq(tfmc_tokenizer_encode(t, text, sizeof(text) - 1, 1, ids, IDS_MAX, &n), 0);
		(void)tfmc_tokenizer_decode(t, ids, n < IDS_MAX ? n : IDS_MAX, 0, out, BYTES_MAX, &bytes);
		tfmc_tokenizer_close(t);
	}
	ck_assert_uint_gt(opened, 0);
	free(copy);
	reading_destroy(&r);
}
END_TEST

/* The checksum sees every changed byte. */
START_TEST(checksum)
{
	struct reading r;
	struct tfmc_tokenizer *t;
	reading_init(&r);
	struct tokenizer_packed p = pack(&r, "bert.json");
	unsigned char *copy = malloc(p.bytes);
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, p.data, p.bytes);
	for (size_t at = 0; at < p.bytes; at += 7) {
		copy[at] ^= 0x40;
		ck_assert_int_ne(tfmc_tokenizer_open(copy, p.bytes, &t), 0);
		copy[at] ^= 0x40;
	}
	ck_assert_int_eq(tfmc_tokenizer_open(copy + 1, p.bytes - 1, &t), TFMC_TOKENIZER_E_ALIGN);
	ck_assert_int_eq(tfmc_tokenizer_open(NULL, 0, &t), TFMC_TOKENIZER_E_NULL);
	ck_assert_int_eq(tfmc_tokenizer_open(copy, 8, &t), TFMC_TOKENIZER_E_FORMAT);
	ck_assert_int_eq(tfmc_tokenizer_open(copy, p.bytes, &t), TFMC_TOKENIZER_OK);
	tfmc_tokenizer_close(t);
	free(copy);
	reading_destroy(&r);
}
END_TEST

/* Changed bytes of files: packed, or refused with a message. */
START_TEST(damaged_files)
{
	uint64_t state = UINT64_C(4242) + (unsigned)_i;
	struct reading r;
	reading_init(&r);
	const char *text;
	size_t len;
	read_file(&r, golden(&r, names[_i]), &text, &len);
	char *copy = malloc(len + 1);
	ck_assert_ptr_nonnull(copy);
	for (int round = 0; round < 60; round++) {
		struct reading each;
		struct tokenizer_packed p;
		struct tfmc_tokenizer *t;
		reading_init(&each);
		struct tokenizer_source s = {&each.arena, &each.cx, names[_i], LOC_NONE, false, NULL};
		memcpy(copy, text, len + 1);
		for (uint64_t k = 1 + next_random(&state) % 4; k > 0; k--) {
			uint64_t what = next_random(&state),
			         at = next_random(&state) % (what & 1 ? len : len / 8);
			copy[at] = what & 2 ? "0123456789,:[]{}\"t-"[what / 4 % 19] : (char)(what >> 8);
		}
		enum tfmc_status st = read_any(&s, copy, len, &p);
		if (st == TFMC_OK) {
			ck_assert_int_eq(tfmc_tokenizer_open(p.data, p.bytes, &t), TFMC_TOKENIZER_OK);
			tfmc_tokenizer_close(t);
		} else {
			ck_assert_int_eq(st, TFMC_INVALID);
			ck_assert_uint_gt(each.cx.n_errors, 0);
		}
		reading_destroy(&each);
	}
	free(copy);
	reading_destroy(&r);
}
END_TEST

/* ---- refusals ---- */

#define MODEL "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1}}"
static const struct {
	const char *text, *says;
} refused[] = {
        {"{" MODEL ",\"normalizer\":{\"type\":\"Odd\"}}",
         "normalizer: not supported yet: a component of type 'Odd'"},
        {"{" MODEL
         ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Odd\"}]}}",
         "normalizer.normalizers[1]: not supported yet"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?<=x)y\"},\"behavior\":"
         "\"Isolated\"}}",
         "the regular expression '(?<=x)y': a group that begins with (?<="},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", "'UnicodeScripts'"},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "decoder: not supported yet"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"Odd\"}}", "post_processor: not supported yet"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",9],\"cls\":[\"a\",1]}}",
         "no id of a token"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]}", "no usable id"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":1,\"content\":5}]}", "wrong type of value"},
        {"{\"model\":{\"type\":\"Odd\"}}", "model.type: not supported yet: 'Odd'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
         "'aa' or a part of it is not in the vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "have the same id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999999},\"merges\":[]}}", "is not usable"},
        {"{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"x\",\"vocab\":{\"a\":0}}}", "unk_token"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}", "no piece with a score"},
        {"[]", "no object"},
        {"{}", "model: no object"},
};

START_TEST(refusals)
{
	struct reading r;
	struct tokenizer_packed p;
	reading_init(&r);
	struct tokenizer_source s = {&r.arena, &r.cx, "t.json", LOC_NONE, false, NULL};
	ck_assert_int_eq(tokenizer_from_json(&s, refused[_i].text, strlen(refused[_i].text), &p),
	                 TFMC_INVALID);
	ck_assert_msg(reading_says(&r, refused[_i].says), "%s", r.log.data);
	reading_destroy(&r);
}
END_TEST

/* As the tokenizers library: without a decoder tokens are joined by spaces, with one that only fuses by nothing. */
START_TEST(no_decoder)
{
	static const char *const models[] = {
	        "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]",
	        "\"type\":\"Unigram\",\"vocab\":[[\"a\",0.0],[\"b\",-1.0]]",
	        "\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1}"};
	static const char *const decoders[] = {"null", "{\"type\":\"Fuse\"}"}, *const texts[] = {"a b", "ab"};
	const int32_t ids[] = {0, 1};
	for (size_t i = 0; i < TFMC_COUNT(decoders); i++) {
		struct reading r;
		struct tokenizer_packed p;
		struct tfmc_tokenizer *t;
		char text[8] = {0};
		uint64_t n;
		reading_init(&r);
		struct tokenizer_source s = {&r.arena, &r.cx, "t.json", LOC_NONE, false, NULL};
		const char *json =
		        arena_printf(&r.arena, "{\"model\":{%s},\"decoder\":%s}", models[_i], decoders[i]);
		ck_assert_int_eq(tokenizer_from_json(&s, json, strlen(json), &p), TFMC_OK);
		ck_assert_int_eq(tfmc_tokenizer_open(p.data, p.bytes, &t), TFMC_TOKENIZER_OK);
		ck_assert_int_eq(tfmc_tokenizer_decode(t, ids, 2, 0, text, sizeof(text) - 1, &n), 0);
		ck_assert_str_eq(text, texts[i]);
		tfmc_tokenizer_close(t);
		reading_destroy(&r);
	}
}
END_TEST

START_TEST(lines_of_merges)
{
	static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2}";
	static const char *const files[] = {"#version: 0.2\na b\nb a\n", "#version: 0.2\r\na b\r\nb a"};
	const char *merges = files[_i];
	struct reading r;
	struct tokenizer_packed p;
	reading_init(&r);
	struct tokenizer_source s = {&r.arena, &r.cx, "t", LOC_NONE, false, NULL};
	ck_assert_int_eq(tokenizer_from_bpe(&s, vocab, strlen(vocab), merges, strlen(merges), &p),
	                 TFMC_INVALID);
	ck_assert_msg(reading_says(&r, "line 3 of the merges: 'ba' or a part of it"), "%s", r.log.data);
	reading_destroy(&r);
}
END_TEST

/* Texts that have no memory are no invalid texts: the status says so, and no diagnostic. */
START_TEST(no_memory_for_a_vocabulary)
{
	static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2}", merges[] = "a b\n";
	struct reading r;
	struct tokenizer_packed p;
	struct tokenizer_desc *d;
	reading_init(&r);
	r.arena.limit_bytes = 1;
	struct tokenizer_source s = {&r.arena, &r.cx, "t", LOC_NONE, false, NULL};
	if (_i == 0)
		ck_assert_int_eq(tokenizer_from_bpe(&s, vocab, strlen(vocab), merges, strlen(merges), &p),
		                 TFMC_NO_MEMORY);
	else
		ck_assert_int_eq(tokenizer_read_ids(&s, vocab, strlen(vocab), &d), TFMC_NO_MEMORY);
	ck_assert_uint_eq(r.cx.n_errors, 0);
	reading_destroy(&r);
}
END_TEST

/* ---- parts ---- */

/* Characters that come in parts, as tokens of bytes, are held back; what can be no character is replaced. */
START_TEST(streams_hold_back)
{
	struct reading r;
	struct buf out;
	struct tfmc_token_stream s;
	reading_init(&r);
	buf_init(&out);
	struct tfmc_tokenizer *t = open_golden(&r, "gpt2.json");
	static const char bytes[] = "\xf0\x9f\x99\x82"
	                            "A"
	                            "\xe4\xb8"
	                            "B"
	                            "\xff";
	static const char face_a[] = "\xf0\x9f\x99\x82"
	                             "A";
	static const char *const after[] = {"", "", "", "\xf0\x9f\x99\x82", face_a};
	tfmc_token_stream_begin(&s, t, 0, append, &out);
	for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
		int32_t id = tfmc_tokenizer_find(t, bytes + i, 1);
		ck_assert_int_ge(id, 0);
		ck_assert_int_eq(tfmc_token_stream_add(&s, id), 0);
		if (i < TFMC_COUNT(after))
			ck_assert_str_eq(out.data, after[i]);
	}
	ck_assert_int_eq(tfmc_token_stream_end(&s), 0);
	ck_assert_str_eq(out.data, "\xf0\x9f\x99\x82"
	                           "A"
	                           "\xef\xbf\xbd"
	                           "B"
	                           "\xef\xbf\xbd");
	ck_assert_int_eq(tfmc_token_stream_add(&s, -1), TFMC_TOKENIZER_E_ID);
	buf_destroy(&out);
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

START_TEST(pairs_and_plain_text)
{
	struct reading r;
	int32_t ids[32], types[32];
	uint64_t n;
	reading_init(&r);
	struct tfmc_tokenizer *t = open_golden(&r, "bert.json");
	int32_t cls = tfmc_tokenizer_find(t, "[CLS]", 5), sep = tfmc_tokenizer_find(t, "[SEP]", 5);
	ck_assert(tfmc_tokenizer_is_special(t, cls) &&
	          !tfmc_tokenizer_is_special(t, tfmc_tokenizer_find(t, "a", 1)));
	ck_assert_int_eq(tfmc_tokenizer_encode_pair(t, "the", 3, "model", 5, ids, types, 32, &n), 0);
	ck_assert(n == 5 && ids[0] == cls && ids[2] == sep && ids[4] == sep);
	ck_assert(types[0] == 0 && types[2] == 0 && types[3] == 1 && types[4] == 1);
	ck_assert_int_eq(tfmc_tokenizer_encode(t, "[SEP]", 5, 0, ids, 32, &n), 0);
	ck_assert(n == 1 && ids[0] == sep);
	ck_assert_int_eq(tfmc_tokenizer_encode(t, "[SEP]", 5, TFMC_TOKENIZE_PLAIN, ids, 32, &n), 0);
	ck_assert(n > 1 && ids[0] != sep);
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

/* Equal files give equal bytes. */
START_TEST(packing_is_deterministic)
{
	struct reading r;
	reading_init(&r);
	struct tokenizer_packed a = pack(&r, names[_i]), b = pack(&r, names[_i]);
	ck_assert_uint_eq(a.bytes, b.bytes);
	ck_assert_int_eq(memcmp(a.data, b.data, a.bytes), 0);
	reading_destroy(&r);
}
END_TEST

Suite *suite_tokenizer(void)
{
	Suite *s = suite_create("tokenizer");
	TCase *t = tcase_create("tokenizer");
	const int n = (int)TFMC_COUNT(names);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, no_decoder, 0, 3);
	tcase_add_loop_test(t, lines_of_merges, 0, 2);
	tcase_add_loop_test(t, expected_ids, 0, n);
	tcase_add_loop_test(t, marian, 0, 2);
	tcase_add_loop_test(t, bytes_survive, 0, 11);
	tcase_add_loop_test(t, any_bytes, 0, n);
	tcase_add_loop_test(t, long_texts, 0, n);
	tcase_add_loop_test(t, damage_is_refused_or_harmless, 0, n);
	tcase_add_test(t, checksum);
	tcase_add_loop_test(t, damaged_files, 0, n);
	tcase_add_loop_test(t, refusals, 0, (int)TFMC_COUNT(refused));
	tcase_add_loop_test(t, no_memory_for_a_vocabulary, 0, 2);
	tcase_add_test(t, streams_hold_back);
	tcase_add_test(t, pairs_and_plain_text);
	tcase_add_loop_test(t, packing_is_deterministic, 0, n);
	suite_add_tcase(s, t);
	return s;
}
