/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: drawing of source lines (tabs, wide and control characters,
 * long lines), limits, notes, warnings as errors, UTF-8.
 */
#include <check.h>
#include <string.h>

#include "ir/support/diag.h"
#include "ir/support/utf8.h"
#include "tests/support/reading.h"

Suite *suite_diag(void);

/* The drawing of one error at a place of a one-line source. */
static void check_drawing(const char *text, uint32_t col, uint32_t len, const char *want)
{
	struct reading r;
	reading_init(&r);
	uint32_t source = diag_add_source(&r.cx, "m.yaml", text, strlen(text));
	diag_error(&r.cx, (struct loc){source, 1, col, len}, DIAG_SHAPE, "wrong");
	const char *drawing = strchr(r.log.data, '\n') + 1;
	ck_assert_str_eq(drawing, want);
	reading_destroy(&r);
}

START_TEST(message_and_caret)
{
	struct reading r;
	reading_init(&r);
	uint32_t source = diag_add_source(&r.cx, "model.yaml", "a: 1\n  heads: 10\n", 17);
	diag_error(&r.cx, (struct loc){source, 2, 10, 2}, DIAG_NOT_DIVISIBLE,
	           "d (%d) is not a multiple of heads (%d)", 768, 10);
	diag_note(&r.cx, (struct loc){source, 0, 0, 0}, "a note");
	diag_error(&r.cx, LOC_NONE, DIAG_OPTION, "no place");
	ck_assert_str_eq(r.log.data,
	                 "model.yaml:2:10: error: d (768) is not a multiple of heads (10) [E108]\n"
	                 "    2 |   heads: 10\n"
	                 "      |          ^~\n"
	                 "model.yaml: note: a note\n"
	                 "error: no place [E702]\n");
	reading_destroy(&r);
}
END_TEST

START_TEST(drawings)
{
	check_drawing("abc", 1, 0, "    1 | abc\n      | ^\n");
	check_drawing("a\tb", 3, 1, "    1 | a       b\n      |         ^\n");
	check_drawing("\xe6\x97\xa5\xe6\x9c\xac x", 4, 1,
	              "    1 | \xe6\x97\xa5\xe6\x9c\xac x\n      |      ^\n");
	check_drawing("\xc3\xa9\xc3\xa9 xy", 4, 2, "    1 | \xc3\xa9\xc3\xa9 xy\n      |    ^~\n");
	check_drawing("a\x1b[0mb", 6, 1, "    1 | a\\x1b[0mb\n      |         ^\n");
	check_drawing("abc", 4, 1, "    1 | abc\n      |    ^\n");
	check_drawing("abc", 90, 5, "    1 | abc\n      |    ^\n");
	check_drawing("a\xff"
	              "b\r\nsecond",
	              3, 1, "    1 | a\\xffb\n      |      ^\n");
	check_drawing("", 1, 1, "    1 | \n      | ^\n");
}
END_TEST

START_TEST(long_lines_are_clipped)
{
	char text[400];
	struct reading r;
	memset(text, 'a', sizeof(text));
	text[300] = 'X';
	reading_init(&r);
	uint32_t source = diag_add_source(&r.cx, "m", text, sizeof(text));
	diag_error(&r.cx, (struct loc){source, 1, 301, 1}, DIAG_SHAPE, "wrong");
	const char *line = strchr(r.log.data, '\n') + 1, *caret = strchr(line, '\n') + 1;
	ck_assert_int_eq(strchr(line, 'X') - line, strchr(caret, '^') - caret);
	ck_assert_uint_lt(strlen(r.log.data), 400);
	reading_destroy(&r);
}
END_TEST

START_TEST(control_characters_of_messages_are_escaped)
{
	struct reading r;
	reading_init(&r);
	diag_error(&r.cx, LOC_NONE, DIAG_NAME, "the name '%s'", "\x1b]0;x\x07\xe2\x80\xae\n");
	ck_assert_str_eq(r.log.data, "error: the name '\\x1b]0;x\\x07\\u202e\\n' [E208]\n");
	reading_destroy(&r);
}
END_TEST

START_TEST(limit_drops_errors_with_their_notes)
{
	struct reading r;
	reading_init(&r);
	r.cx.max_errors = 2;
	for (int i = 0; i < 5; i++) {
		diag_error(&r.cx, LOC_NONE, DIAG_SHAPE, "number %d", i);
		diag_note(&r.cx, LOC_NONE, "note %d", i);
	}
	ck_assert_uint_eq(r.cx.n_errors, 5);
	ck_assert(reading_says(&r, "note 1"));
	ck_assert(!reading_says(&r, "number 2"));
	ck_assert(!reading_says(&r, "note 4"));
	diag_warning(&r.cx, LOC_NONE, DIAG_SHAPE, "careful");
	diag_note(&r.cx, LOC_NONE, "note of the warning");
	ck_assert(reading_says(&r, "warning: careful [E300]"));
	ck_assert(reading_says(&r, "note of the warning"));
	diag_error(&r.cx, LOC_NONE, DIAG_SHAPE, "number 9");
	diag_remark(&r.cx, LOC_NONE, "remark");
	diag_note(&r.cx, LOC_NONE, "note of the remark");
	ck_assert(!reading_says(&r, "number 9"));
	ck_assert(reading_says(&r, "note of the remark"));
	r.cx.warnings_are_errors = true;
	diag_warning(&r.cx, LOC_NONE, DIAG_SHAPE, "careful");
	ck_assert_uint_eq(r.cx.n_errors, 7);
	ck_assert_uint_eq(r.cx.n_warnings, 1);
	reading_destroy(&r);
}
END_TEST

START_TEST(utf8)
{
	uint32_t cp = 0;
	ck_assert_uint_eq(utf8_decode("\xf0\x9f\x98\x80", 4, &cp), 4);
	ck_assert_uint_eq(cp, 0x1F600);
	static const char *const bad[] = {
	        "\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
	        "\xc3", "\xe2\x82", "\xff"};
	for (size_t i = 0; i < TFMC_COUNT(bad); i++)
		ck_assert_uint_eq(utf8_decode(bad[i], strlen(bad[i]), &cp), 0);
	ck_assert_uint_eq(utf8_check("ab\xc3\xa9\xff", 5), 4);
	ck_assert_uint_eq(utf8_count("ab\xc3\xa9", 4), 3);
}
END_TEST

Suite *suite_diag(void)
{
	Suite *s = suite_create("diag");
	TCase *t = tcase_create("diag");
	tcase_add_test(t, message_and_caret);
	tcase_add_test(t, drawings);
	tcase_add_test(t, long_lines_are_clipped);
	tcase_add_test(t, control_characters_of_messages_are_escaped);
	tcase_add_test(t, limit_drops_errors_with_their_notes);
	tcase_add_test(t, utf8);
	suite_add_tcase(s, t);
	return s;
}
