/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is packed is opened by the library, and what is refused says why: small
 * descriptions, files and GGUF metadata that name no usable tokenizer.
 */
#include <check.h>
#include <string.h>

#include "frontend/tokenizer_build.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"
#include "tests/support/reading.h"

Suite *suite_tokenizer_pack(void);

#define WORDS(...)                        \
	(const struct tokenizer_string[]) \
	{                                 \
		__VA_ARGS__               \
	}
#define WORD(text)                     \
	{                              \
		text, sizeof(text) - 1 \
	}

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

static struct tokenizer_gguf gpt2(const struct tokenizer_string *tokens, size_t n, const int32_t *types)
{
	struct tokenizer_gguf g = {
	        .model = WORD("gpt2"), .pre = WORD("gpt-2"), .tokens = tokens, .n_tokens = n};
	g.types = types;
	g.bos = g.eos = g.unk = g.sep = g.pad = g.cls = g.mask = -1;
	g.add_bos = g.add_eos = g.add_space_prefix = g.remove_extra_whitespaces = -1;
	return g;
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
	struct tokenizer_gguf g = gpt2(WORDS(WORD("abc"), WORD("xyz")), 2, NULL);
	ck_assert_msg(tokenizer_from_gguf(&s, &g, &p) == TFMC_OK, "%s", r.log.data);
	ck_assert_uint_eq(count_ids(&p, "abc xyz"), 0);
	reading_destroy(&r);
}
END_TEST

/* A warning where the model goes on without its tokenizer, an error where text was asked for. */
START_TEST(bytes_in_a_byte_level_vocabulary)
{
	static const int32_t types[] = {1, 6};
	struct tokenizer_gguf g = gpt2(WORDS(WORD("a"), WORD("<0x0A>")), 2, types);
	for (int may_lack = 0; may_lack < 2; may_lack++) {
		struct reading r;
		struct tokenizer_packed p;
		reading_init(&r);
		struct tokenizer_source s = {&r.arena, &r.cx, "t.gguf", LOC_NONE, may_lack, NULL};
		ck_assert_int_eq(tokenizer_from_gguf(&s, &g, &p), TFMC_INVALID);
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
	struct tokenizer_token token = {.piece = WORD("a"), .is_written = true, .is_matched = true};
	reading_init(&r);
	struct tokenizer_source s = {&r.arena, &r.cx, "t.json", LOC_NONE, false, NULL};
	tokenizer_desc_init(&d);
	d.model = TFMC_TOK_WORDPIECE;
	d.tokens = &token;
	d.n_tokens = 1;
	d.unknown = 0;
	ck_assert_int_eq(tokenizer_pack(&s, &d, &p), TFMC_INVALID);
	ck_assert_msg(
	        reading_says(&r, "'t.json': not supported: libtfmctok would say of it that the bytes are no"),
	        "%s", r.log.data);
	d.word_max = 100;
	ck_assert_int_eq(tokenizer_pack(&s, &d, &p), TFMC_OK);
	ck_assert_uint_eq(count_ids(&p, "a"), 1);
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
	suite_add_tcase(s, t);
	return s;
}
