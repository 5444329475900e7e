/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers against expected ids of tests/golden/tokenizers (made by
 * tests/tokenizers/make.py with the libraries of others), and what must hold of
 * any: streams give what decoding gives, bytes survive, damage is refused.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/files.h"
#include "frontend/json.h"
#include "frontend/tokenizer.h"
#include "runtime/tokenizer/format.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"
#include "tests/support/reading.h"

Suite *suite_tokenizer(void);

#define IDS_MAX   4096
#define BYTES_MAX 65536

static const char *const names[] = {"gpt2.json",       "roberta.json", "llama3.json",   "qwen2.json",
                                    "qwen35.json",     "o200k.json",   "falcon.json",   "starcoder.json",
                                    "bloom.json",      "clip.json",    "llama2.json",   "mistral.json",
                                    "gemma.json",      "t5.json",      "xlmr.json",     "bert.json",
                                    "bert_cased.json", "words.json",   "spm_bpe.model", "spm_unigram.model"};

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

static struct tokenizer_packed pack(struct reading *r, const char *name)
{
	struct tokenizer_source s = {&r->arena, &r->cx, name, LOC_NONE};
	struct tokenizer_packed p = {0};
	const char *text;
	size_t len;
	read_file(r, golden(r, name), &text, &len);
	enum tfmc_status st = strstr(name, ".json")
	                              ? tokenizer_from_json(&s, text, len, &p)
	                              : tokenizer_from_spm(&s, (const unsigned char *)text, len, &p);
	ck_assert_msg(st == TFMC_OK, "%s: %s", name, r->log.data);
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
		/* SentencePiece takes no control tokens from the text. */
		unsigned plain = strstr(name, ".model") ? TFMC_TOKENIZE_PLAIN : 0;
		check_ids(t, name, &cases->items[i], "ids", plain);
		check_ids(t, name, &cases->items[i], "all", plain | TFMC_TOKENIZE_SPECIAL);
		check_text(t, name, &cases->items[i]);
	}
	tfmc_tokenizer_close(t);
	reading_destroy(&r);
}
END_TEST

Suite *suite_tokenizer(void)
{
	Suite *s = suite_create("tokenizer");
	TCase *t = tcase_create("tokenizer");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, expected_ids, 0, (int)TFMC_COUNT(names));
	suite_add_tcase(s, t);
	return s;
}
