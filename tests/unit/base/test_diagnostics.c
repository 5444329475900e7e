/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics as JSON and SARIF: any bytes become valid text, notes stay with
 * their diagnostic, places are left out where there are none.
 */
#include <check.h>
#include <string.h>

#include "frontend/driver/options/diagnostics.h"
#include "frontend/syntax/json.h"
#include "tests/support/reading.h"

Suite *suite_diagnostics(void);

static const struct {
	const char *text, *json;
} strings[] = {
        {"", "\"\""},
        {"a \"b\" \\c/", "\"a \\\"b\\\" \\\\c/\""},
        {"\n\t\r\x01\x1f\x7f", "\"\\n\\t\\u000d\\u0001\\u001f\\u007f\""},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
        {"\xff", "\"\\ufffd\""},
        {"a\xc3", "\"a\\ufffd\""},                     /* cut off */
        {"\xc3z", "\"\\ufffdz\""},                     /* cut off, then text */
        {"\xc0\x80", "\"\\ufffd\\ufffd\""},            /* overlong zero */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""}, /* a surrogate */
        {"\xe2\x80\xae", "\"\\u202e\""},               /* changes the direction of text */
};

START_TEST(escapes)
{
	struct buf out;
	buf_init(&out);
	buf_json(&out, strings[_i].text);
	ck_assert_str_eq(out.data, strings[_i].json);
	buf_destroy(&out);
}
END_TEST

/* Every single byte, and every byte after the head of a sequence, is read back by the strict reader. */
START_TEST(any_bytes)
{
	static const char heads[] = {'a', '\xc3', '\xe2', '\xf0', '\xff', '"', '\\'};
	struct json_source src = {"x.json", LOC_NONE, DIAG_WEIGHT_FILE, 8};
	for (size_t h = 0; h < sizeof(heads); h++) {
		for (int byte = 1; byte < 256; byte++) {
			struct reading r;
			struct buf out;
			reading_init(&r);
			buf_init(&out);
			buf_json(&out, (char[]){heads[h], (char)byte, 0});
			const struct json_node *n = json_parse(&r.arena, &r.cx, &src, out.data, out.len);
			ck_assert_ptr_nonnull(n);
			ck_assert_int_eq(n->kind, JSON_NODE_STRING);
			buf_destroy(&out);
			reading_destroy(&r);
		}
	}
}
END_TEST

START_TEST(uris)
{
	struct buf out;
	buf_init(&out);
	diagnostics_json_uri(&out, "/a b/m#1.yaml");
	ck_assert_str_eq(out.data, "\"file:///a%20b/m%231.yaml\"");
	buf_clear(&out);
	diagnostics_json_uri(&out, "c:x/\xc3\xa9\xff\"%");
	ck_assert_str_eq(out.data, "\"c%3Ax/%C3%A9%FF%22%25\"");
	buf_destroy(&out);
}
END_TEST

struct sink {
	struct diagnostics s;
	struct buf log;
};

static void add(void *user, const struct diag_context *cx, const struct diag *m)
{
	struct sink *k = user;
	diagnostics_add(&k->s, cx, m, &k->log);
}

/* A note alone, an error with two notes, a remark. */
static void report(enum diagnostics_format_word form, struct sink *k, struct arena *a)
{
	struct diag_context cx;
	diag_init(&cx, add, k);
	diagnostics_init(&k->s, a);
	buf_init(&k->log);
	k->s.format = form;
	uint32_t file = diag_add_source(&cx, "m.yaml", "a: 1\n", 5);
	diag_note(&cx, LOC_NONE, "alone");
	diag_error(&cx, (struct loc){file, 1, 4, 0}, DIAG_UNKNOWN_KEY, "bad %s", "\xff");
	diag_note(&cx, (struct loc){file, 1, 1, 2}, "first");
	diag_note(&cx, LOC_NONE, "second");
	diag_remark(&cx, (struct loc){file, 0, 0, 0}, "whole file");
	diagnostics_finish(&k->s, 1, "0", &k->log);
	diagnostics_destroy(&k->s);
	diag_destroy(&cx);
}

START_TEST(lines)
{
	struct arena a;
	struct sink k;
	arena_init(&a);
	report(DIAGNOSTICS_JSON, &k, &a);
	ck_assert_str_eq(
	        k.log.data,
	        "{\"severity\":\"note\",\"code\":null,\"message\":\"alone\",\"file\":null,\"line\":null,"
	        "\"column\":null,\"length\":null,\"notes\":[]}\n"
	        "{\"severity\":\"error\",\"code\":\"E103\",\"message\":\"bad \\ufffd\",\"file\":\"m.yaml\","
	        "\"line\":1,\"column\":4,\"length\":1,\"notes\":[{\"message\":\"first\",\"file\":\"m.yaml\","
	        "\"line\":1,\"column\":1,\"length\":2},{\"message\":\"second\",\"file\":null,\"line\":null,"
	        "\"column\":null,\"length\":null}]}\n"
	        "{\"severity\":\"remark\",\"code\":null,\"message\":\"whole file\",\"file\":\"m.yaml\","
	        "\"line\":null,\"column\":null,\"length\":null,\"notes\":[]}\n");
	buf_destroy(&k.log);
	arena_destroy(&a);
}
END_TEST

START_TEST(document)
{
	struct reading r;
	struct sink k;
	struct json_source src = {"x.sarif", LOC_NONE, DIAG_WEIGHT_FILE, 16};
	reading_init(&r);
	report(DIAGNOSTICS_SARIF, &k, &r.arena);
	const struct json_node *n = json_parse(&r.arena, &r.cx, &src, k.log.data, k.log.len);
	ck_assert_ptr_nonnull(n);
	const struct json_node *results = json_find(&json_find(n, "runs")->items[0], "results");
	ck_assert_uint_eq(results->n, 3);
	const struct json_node *e = &results->items[1];
	ck_assert_str_eq(json_find(e, "ruleId")->text, "E103");
	ck_assert_int_eq(json_find(e, "ruleIndex")->i, 1);
	const struct json_node *notes = json_find(e, "relatedLocations");
	ck_assert_uint_eq(notes->n, 2);
	ck_assert_int_eq(json_find(&notes->items[1], "id")->i, 2);
	ck_assert_ptr_nonnull(
	        strstr(k.log.data, "\"region\":{\"startLine\":1,\"startColumn\":4,\"endColumn\":5}"));
	ck_assert_int_eq(json_find(&results->items[2], "ruleIndex")->i, 0);
	buf_destroy(&k.log);
	reading_destroy(&r);
}
END_TEST

Suite *suite_diagnostics(void)
{
	Suite *s = suite_create("diagnostics");
	TCase *c = tcase_create("diagnostics");
	tcase_add_loop_test(c, escapes, 0, (int)TFMC_COUNT(strings));
	tcase_add_test(c, any_bytes);
	tcase_add_test(c, uris);
	tcase_add_test(c, lines);
	tcase_add_test(c, document);
	suite_add_tcase(s, c);
	return s;
}
