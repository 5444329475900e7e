/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON: kinds and order, and what is refused.
 */
#include <check.h>
#include <string.h>

#include "frontend/syntax/json.h"
#include "tests/support/reading.h"

Suite *suite_json(void);

static const struct json_node *parse(struct reading *r, const char *text)
{
	struct json_source src = {"x.json", LOC_NONE, DIAG_WEIGHT_FILE, 8};
	return json_parse(&r->arena, &r->cx, &src, text, strlen(text));
}

START_TEST(kinds)
{
	struct reading r;
	reading_init(&r);
	const struct json_node *n = parse(
	        &r,
	        "{\"z\": [1, -2.5, \"\\u00e9\"], \"a\": null, \"t\": true, \"big\": 9223372036854775807} \n");
	ck_assert_ptr_nonnull(n);
	ck_assert_uint_eq(n->n, 4);
	ck_assert_str_eq(n->keys[0], "z");
	const struct json_node *z = json_find(n, "z");
	ck_assert_int_eq(z->items[0].kind, JSON_NODE_INT);
	ck_assert(z->items[1].kind == JSON_NODE_REAL && z->items[1].f == -2.5);
	ck_assert_str_eq(z->items[2].text, "\xc3\xa9");
	ck_assert_int_eq(json_find(n, "a")->kind, JSON_NODE_NULL);
	ck_assert(json_find(n, "t")->kind == JSON_NODE_BOOL && json_find(n, "t")->i == 1);
	ck_assert(json_find(n, "big")->i == INT64_MAX);
	ck_assert_ptr_null(json_find(n, "none"));
	ck_assert_ptr_null(json_find(z, "a"));
	ck_assert_ptr_null(json_find(NULL, "a"));
	reading_destroy(&r);
}
END_TEST

static const char *const refused[] = {
        "",
        "{",
        "{\"a\": 1, \"a\": 2}",
        "{} {}",
        "[1,]",
        "{\"a\": 9223372036854775808}",
        "\"\\u0000\"",
        "\"\xff\"",
        "[01]",
        "nul",
        "{\"a\\u0000\": 1}",
        "[1e999]",
        "\"a\nb\"",
        "[NaN]",
};

START_TEST(refusals)
{
	struct reading r;
	reading_init(&r);
	ck_assert_ptr_null(parse(&r, refused[_i]));
	ck_assert_msg(reading_says(&r, "'x.json': JSON at byte "), "%s", r.log.data);
	reading_destroy(&r);
}
END_TEST

START_TEST(depth)
{
	char text[2 * 500 + 1];
	struct reading r;
	reading_init(&r);
	for (size_t n = 64; n <= 65; n++) {
		memset(text, '[', n);
		memset(text + n, ']', n);
		text[2 * n] = '\0';
		ck_assert((parse(&r, text) != NULL) == (n == 64));
	}
	memset(text, '[', 1000);
	text[1000] = '\0';
	ck_assert_ptr_null(parse(&r, text));
	reading_destroy(&r);
}
END_TEST

/* Integers beyond int64 are truncated; reals with as many digits, and strings, are not. */
START_TEST(long_ints)
{
	const char text[] = "[1000000000000000019884624838656, -1234567890123456789, 1234567890123456789e3, "
	                    "0.12345678901234567890e-5, 123456789012345678, \"\\\"1234567890123456789\"]";
	struct reading r;
	reading_init(&r);
	const struct json_node *n = parse(&r, json_truncate_long_ints(&r.arena, text, strlen(text)));
	ck_assert_ptr_nonnull(n);
	ck_assert_uint_eq(n->n, 6);
	ck_assert(n->items[0].i == 100000000000000001 && n->items[1].i == -123456789012345678);
	ck_assert(n->items[2].kind == JSON_NODE_REAL && n->items[2].f == 1234567890123456789e3);
	ck_assert(n->items[3].kind == JSON_NODE_REAL && n->items[3].f == 0.12345678901234567890e-5);
	ck_assert(n->items[4].i == 123456789012345678);
	ck_assert_str_eq(n->items[5].text, "\"1234567890123456789");
	reading_destroy(&r);
}
END_TEST

Suite *suite_json(void)
{
	Suite *s = suite_create("json");
	TCase *t = tcase_create("json");
	tcase_add_test(t, kinds);
	tcase_add_loop_test(t, refusals, 0, (int)TFMC_COUNT(refused));
	tcase_add_test(t, depth);
	tcase_add_test(t, long_ints);
	suite_add_tcase(s, t);
	return s;
}
