/* SPDX-License-Identifier: Apache-2.0 */
/*
* Packed tokenizers are opened by the library, and rejections have a reason: small
 * descriptions, files and GGUF metadata that name no usable tokenizer. The work
 * of regular expressions, which is counted.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/tokenizer.h"
#include "frontend/weights/gguf.h"
#include "frontend/tokenizer/build.h"
#include "runtime/tokenizer/tok.h"
#include "tests/support/reading.h"
#include "tests/support/tokenizer_json.h"

Suite *suite_tokenizer_pack(void);

static uint64_t count_ids(const struct tokenizer_packed *p, const char *text)
{
	struct tfmc_tokenizer *t;
	int32_t ids[64];
	uint64_t n;
	ck_assert_int_eq(tfmc_tokenizer_open(p->data, p->bytes, &t), TFMC_TOKENIZER_OK);
	ck_assert_int_eq(tfmc_tokenizer_encode(t, text, strlen(text), 0, ids, 64, &n), 0);
	tfmc_tokenizer_close(t);
	return n;
}

static void add_string(struct buf *b, const char *text)
{
	buf_u64le(b, strlen(text));
	buf_str(b, text);
}

/* Packs metadata of byte-level BPE with two tokens; a type for each, NULL: none. */
static enum tfmc_status pack_gpt2(const struct tokenizer_source *s, const char *first, const char *second,
                                  const unsigned char *types, struct tokenizer_packed *out)
{
	struct buf tokens;
	buf_init(&tokens);
	add_string(&tokens, first);
	add_string(&tokens, second);
	const struct gguf_entry entries[] = {
	        {"tokenizer.ggml.model", {.type = GGUF_STRING, .text = "gpt2", .len = 4}},
	        {"tokenizer.ggml.pre", {.type = GGUF_STRING, .text = "gpt-2", .len = 5}},
	        {"tokenizer.ggml.tokens",
	         {.type = GGUF_ARRAY,
	          .element = GGUF_STRING,
	          .n = 2,
	          .bytes = (const unsigned char *)tokens.data,
	          .n_bytes = tokens.len}},
	        {"tokenizer.ggml.token_type",
	         {.type = GGUF_ARRAY, .element = GGUF_U8, .n = 2, .bytes = types, .n_bytes = 2}}};
	const struct gguf g = {.version = 3, .entries = entries, .n_entries = types != NULL ? 4 : 3};
	enum tfmc_status st = gguf_tokenizer(s, &g, out);
	buf_destroy(&tokens);
	return st;
}

/* Bytes without a token are dropped, as other libraries do, though that be all of them. */
START_TEST(without_single_bytes)
{
	static const char json[] =
	        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
	        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"abc\":0,\"xyz\":1},\"merges\":[]}}";
	struct reading r;
	struct tokenizer_packed p;
	reading_init(&r);
	struct tokenizer_source s = {&r.arena, &r.cx, "t.json", LOC_NONE, false, NULL};
	ck_assert_msg(tokenizer_from_json(&s, json, sizeof(json) - 1, &p) == TFMC_OK, "%s", r.log.data);
	ck_assert_uint_eq(count_ids(&p, "abc xyz"), 0);
	ck_assert_msg(pack_gpt2(&s, "abc", "xyz", NULL, &p) == TFMC_OK, "%s", r.log.data);
	ck_assert_uint_eq(count_ids(&p, "abc xyz"), 0);
	reading_destroy(&r);
}
END_TEST

/* A warning where the model goes on without its tokenizer, an error where text was asked for. */
START_TEST(bytes_in_a_byte_level_vocabulary)
{
	static const unsigned char types[] = {1, 6};
	for (int may_lack = 0; may_lack < 2; may_lack++) {
		struct reading r;
		struct tokenizer_packed p;
		reading_init(&r);
		struct tokenizer_source s = {&r.arena, &r.cx, "t.gguf", LOC_NONE, may_lack, NULL};
		ck_assert_int_eq(pack_gpt2(&s, "a", "<0x0A>", types, &p), TFMC_INVALID);
		ck_assert_uint_eq(r.cx.n_errors, !may_lack);
		ck_assert_msg(reading_says(&r, "tokenizer.ggml.token_type[1] is that of a byte"), "%s",
		              r.log.data);
		reading_destroy(&r);
	}
}
END_TEST

/* No reader of a format describes this: the packer sees what the library would say. */
START_TEST(what_the_library_refuses)
{
	struct reading r;
	struct tokenizer_packed p;
	struct tokenizer_desc d;
	struct tokenizer_token token = {.piece = {"a", 1}, .is_written = true, .is_matched = true};
	reading_init(&r);
	struct tokenizer_source s = {&r.arena, &r.cx, "t.json", LOC_NONE, false, NULL};
	tokenizer_desc_init(&d);
	d.model = TFMC_TOK_WORDPIECE;
	d.tokens = &token;
	d.n_tokens = 1;
	d.unknown = 0;
	ck_assert_int_eq(tokenizer_pack(&s, &d, &p), TFMC_INVALID);
	ck_assert_msg(
	        reading_says(&r,
	                     "'t.json': not supported yet: libtfmctok would say of it that the bytes are no"),
	        "%s", r.log.data);
	d.word_max = 100;
	ck_assert_int_eq(tokenizer_pack(&s, &d, &p), TFMC_OK);
	ck_assert_uint_eq(count_ids(&p, "a"), 1);
	reading_destroy(&r);
}
END_TEST

#define O200K_WORD "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
static const struct {
	const char *regex, *unit, *end;
} texts[] = {
        {"a*b", "a", ""},
        {"a*b|a", "a", "b"},
        {"(?:aa)*b", "a", ""},
        {"(?:aa)*b|a", "a", "b"},
        {"(?:aaa|aa)*b|(?:a{7})*c|a", "a", "ac"},
        {"[ab]*c|b*d", "ab", ""},
        {"\\\\s+$|\\\\s+(?!\\\\S)|\\\\s", " ", "x"},
        {O200K_WORD "*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|" O200K_WORD
                    "+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s+",
         "\xe2\x80\x8b", "A"},
};

/* Steps that finding all matches takes, for a text of at least n bytes. */
static uint64_t count_steps(const struct tfmc_tokenizer *t, const char *unit, const char *end, size_t n)
{
	struct tok_suffix_sets ahead = {0};
	struct buf text;
	buf_init(&text);
	while (text.len < n)
		buf_str(&text, unit);
	buf_str(&text, end);
	for (size_t at = 0, len; at < text.len; at += len)
		at = tok_find_match(t, &t->split.items[0], &ahead, text.data, text.len, at, &len);
	ck_assert(!ahead.failed);
	tok_suffix_sets_free(&ahead);
	buf_destroy(&text);
	return ahead.n_steps;
}

START_TEST(matching_is_linear)
{
	struct reading r;
	struct tokenizer_packed p;
	struct tfmc_tokenizer *t;
	reading_init(&r);
	struct tokenizer_source s = {&r.arena, &r.cx, "t.json", LOC_NONE, false, NULL};
	const char *json =
	        arena_printf(&r.arena,
	                     "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
	                     "\"behavior\":\"Isolated\"},"
	                     "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}",
	                     texts[_i].regex);
	ck_assert_msg(tokenizer_from_json(&s, json, strlen(json), &p) == TFMC_OK, "%s", r.log.data);
	ck_assert_int_eq(tfmc_tokenizer_open(p.data, p.bytes, &t), TFMC_TOKENIZER_OK);
	for (size_t n = 10000; n <= 1000000; n *= 10) {
		uint64_t steps = count_steps(t, texts[_i].unit, texts[_i].end, n);
		ck_assert_msg(steps >= n / 3 && steps <= 8 * n + 20000, "'%s': %llu steps for %zu bytes",
		              texts[_i].regex, (unsigned long long)steps, n);
	}
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

Suite *suite_tokenizer_pack(void)
{
	Suite *s = suite_create("tokenizer_pack");
	TCase *t = tcase_create("tokenizer_pack");
	tcase_add_test(t, without_single_bytes);
	tcase_add_test(t, bytes_in_a_byte_level_vocabulary);
	tcase_add_test(t, what_the_library_refuses);
	tcase_add_loop_test(t, matching_is_linear, 0, (int)TFMC_COUNT(texts));
	suite_add_tcase(s, t);
	return s;
}
