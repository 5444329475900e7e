/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The located YAML tree: positions, nulls, quoting, order; and everything that
 * is refused, with its code and place.
 */
#include <check.h>
#include <string.h>

#include "frontend/syntax/yaml_tree.h"
#include "tests/support/reading.h"

Suite *suite_yaml_tree(void);

static struct reading r;

static void setup(void)
{
	reading_init(&r);
}

static void teardown(void)
{
	reading_destroy(&r);
}

static void check_loc(struct loc loc, uint32_t line, uint32_t col, uint32_t len)
{
	ck_assert_uint_eq(loc.line, line);
	ck_assert_uint_eq(loc.col, col);
	ck_assert_uint_eq(loc.len, len);
}

START_TEST(positions_count_characters)
{
	const struct yaml_node *n = reading_yaml(
	        &r, "\xef\xbb\xbf# h\xc3\xa9\r\n\xc3\xa9: [a, 'b c', \"d\\n\"]\r\nk:\n  - {x: 1, y}\n");
	ck_assert_ptr_nonnull(n);
	ck_assert_int_eq(n->kind, YAML_MAPPING);
	const struct yaml_node *list = yaml_find(n, "\xc3\xa9");
	check_loc(list->loc, 2, 4, 1);
	check_loc(list->items[0]->loc, 2, 5, 1);
	check_loc(list->items[1]->loc, 2, 8, 5);
	ck_assert(list->items[1]->quoted && list->items[1]->exact);
	ck_assert(list->items[2]->quoted && !list->items[2]->exact);
	ck_assert_str_eq(list->items[2]->text, "d\n");
	const struct yaml_node *map = yaml_find(n, "k")->items[0];
	check_loc(map->pairs[1].key->loc, 4, 12, 1);
	ck_assert(map->pairs[1].value->null);
	check_loc(yaml_loc_at(list->items[1], 2, 1), 2, 11, 1);
	check_loc(yaml_loc_at(list->items[2], 0, 1), 2, 15, 5);
}
END_TEST

START_TEST(nulls_and_quotes)
{
	const struct yaml_node *n = reading_yaml(&r, "[~, null, 'null', \"~\", '', Null, nil]");
	static const bool null[] = {true, true, false, false, false, false, false};
	for (size_t i = 0; i < n->n; i++)
		ck_assert(n->items[i]->null == null[i]);
	n = reading_yaml(&r, "{a: , b: |\n  text\n}");
	ck_assert_ptr_null(n);
	n = reading_yaml(&r, "a: |\n  text\n  more\nb: plain\n   text\n");
	ck_assert(yaml_find(n, "a")->quoted && !yaml_find(n, "a")->exact);
	ck_assert_str_eq(yaml_find(n, "a")->text, "text\nmore\n");
	ck_assert_str_eq(yaml_find(n, "b")->text, "plain text");
	ck_assert(!yaml_find(n, "b")->exact);
}
END_TEST

START_TEST(pairs_in_flow_sequences)
{
	const struct yaml_node *n = reading_yaml(&r, "[norm: {id: a}, attention]");
	ck_assert_uint_eq(n->n, 2);
	ck_assert_int_eq(n->items[0]->kind, YAML_MAPPING);
	ck_assert_uint_eq(n->items[0]->n, 1);
	ck_assert(yaml_is(n->items[1], "attention"));
	ck_assert(!yaml_is(n, "attention") && !yaml_is(NULL, ""));
}
END_TEST

static const struct refusal {
	const char *text, *says;
} refusals[] = {
        {"a: 1\nb: 2\na: 3\n", "t.yaml:3:1: error: the key 'a' is given twice [E102]"},
        {"{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i: 1, j: 1, b: 2}", "t.yaml:1:62: error"},
        {"a: &x 1\n", "t.yaml:1:4: error: the anchor '&x' is not allowed"},
        {"a: *x\n", "the alias '*x' is not allowed"},
        {"<<: {a: 1}\n", "merge keys are not allowed"},
        {"a: !!int 1\n", "t.yaml:1:4: error: the tag"},
        {"a: ! x\n", "[E105]"},
        {"%YAML 1.1\n---\na: 1\n", "only 1.2 is [E101]"},
        {"%TAG ! tag:x,2026:\n---\na: 1\n", "[E105]"},
        {"%FOO\n---\na: 1\n", "[E101]"},
        {"a: 1\n---\nb: 1\n", "t.yaml:2:1: error: a second document"},
        {"a: 1\n...\n---\n", "a second document"},
        {"? [a]\n: b\n", "a key must be a scalar, found a list"},
        {"{{a: 1}: b}", "a key must be a scalar, found a mapping"},
        {"a: [1, 2\n", "[E101]"},
        {"a:\n\tb: 1\n", "a tab cannot indent"},
        {"a: @x\n", "text cannot begin with '@'; put it in quotes"},
        {"a: b: c\n", "[E101]"},
        {"a: \xff\n", "t.yaml:1:4: error: the byte 0xff at offset 3 is not valid UTF-8 [E100]"},
        {"a: \x07\n", "the control character U+0007"},
        {"a: \"\\0\"\n", "zero character"},
        {"\xff\xfe"
         "a",
         "UTF-16"},
};

START_TEST(refused)
{
	ck_assert_ptr_null(reading_yaml(&r, refusals[_i].text));
	ck_assert_msg(reading_says(&r, refusals[_i].says), "%s", r.log.data);
}
END_TEST

START_TEST(a_model_is_a_mapping)
{
	static const char *const texts[] = {"",       "# only a comment\n", "---\n", "- a\n",
	                                    "text\n", "---\n...\n"};
	const struct yaml_node *n;
	for (size_t i = 0; i < TFMC_COUNT(texts); i++) {
		reading_clear(&r);
		ck_assert_int_eq(yaml_parse(&r.arena, &r.cx, "m", texts[i], strlen(texts[i]), false, &n),
		                 TFMC_INVALID);
		ck_assert_msg(reading_says(&r, "[E101]"), "%zu %s", i, r.log.data);
	}
	ck_assert(reading_yaml(&r, "")->null);
}
END_TEST

static void nested(char *out, size_t n)
{
	memset(out, '[', n);
	memset(out + n, ']', n);
	out[2 * n] = '\0';
}

START_TEST(limits)
{
	static char text[YAML_SCALAR_MAX + 100];
	const struct yaml_node *n;
	nested(text, YAML_DEPTH_MAX);
	ck_assert_ptr_nonnull(reading_yaml(&r, text));
	nested(text, YAML_DEPTH_MAX + 1);
	ck_assert_ptr_null(reading_yaml(&r, text));
	ck_assert(reading_says(&r, "t.yaml:1:65: error: nested deeper than 64 levels [E106]"));
	nested(text, 30000);
	ck_assert_ptr_null(reading_yaml(&r, text));
	memset(text, 'x', sizeof(text));
	text[YAML_SCALAR_MAX] = '\0';
	ck_assert_ptr_nonnull(reading_yaml(&r, text));
	text[YAML_SCALAR_MAX] = 'x';
	text[YAML_SCALAR_MAX + 1] = '\0';
	ck_assert_ptr_null(reading_yaml(&r, text));
	ck_assert(reading_says(&r, "the limit is 65536"));
	reading_clear(&r);
	ck_assert_int_eq(yaml_parse(&r.arena, &r.cx, "m", text, YAML_FILE_MAX + 1, false, &n), TFMC_INVALID);
	ck_assert(reading_says(&r, "m: error: the file has 4194305 bytes"));
}
END_TEST

START_TEST(many_keys_are_checked_fast)
{
	struct buf text;
	buf_init(&text);
	for (int i = 0; i < 100000; i++)
		buf_printf(&text, "k%d: %d\n", i, i);
	buf_str(&text, "k77: 1\n");
	ck_assert_ptr_null(reading_yaml(&r, text.data));
	ck_assert(reading_says(&r, "t.yaml:100001:1: error: the key 'k77' is given twice"));
	ck_assert(reading_says(&r, "t.yaml:78:1: note: the first one is here"));
	buf_destroy(&text);
}
END_TEST

START_TEST(one_long_line_is_read_fast)
{
	struct buf text;
	buf_init(&text);
	buf_char(&text, '[');
	for (int i = 0; i < 300000; i++)
		buf_str(&text, "a,");
	buf_char(&text, ']');
	const struct yaml_node *n = reading_yaml(&r, text.data);
	ck_assert_uint_eq(n->n, 300000);
	check_loc(n->items[299999]->loc, 1, 600000, 1);
	buf_destroy(&text);
}
END_TEST

START_TEST(keys_and_kinds)
{
	static const char *const keys[] = {"heads", "mask", "lengths"};
	const struct yaml_node *n = reading_yaml(&r, "{heads: 1, length: 2, dropout: 0.1, foo: [], mask: }");
	ck_assert(!yaml_check_keys(&r.cx, n, keys, 3, "attention"));
	ck_assert(reading_says(
	        &r, "t.yaml:1:12: error: unknown key 'length' in attention; did you mean 'lengths'? [E103]"));
	ck_assert(reading_says(&r, "'dropout' matters only for training"));
	ck_assert(reading_says(&r, "unknown key 'foo' in attention; known: heads, mask, lengths [E103]"));
	ck_assert_uint_eq(r.cx.n_errors, 3);
	ck_assert(!yaml_expect(&r.cx, yaml_find(n, "foo"), YAML_MAPPING, "foo"));
	ck_assert(reading_says(&r, "'foo' wants a mapping, found a list [E107]"));
	ck_assert(!yaml_expect(&r.cx, yaml_find(n, "mask"), YAML_SCALAR, "mask"));
	ck_assert(reading_says(&r, "[E115]"));
	ck_assert(yaml_expect(&r.cx, yaml_find(n, "heads"), YAML_SCALAR, "heads"));
	ck_assert_ptr_null(yaml_find(n, "x"));
	ck_assert_ptr_null(yaml_find(NULL, "x"));
	ck_assert_uint_eq(yaml_as_list(&r.arena, yaml_find(n, "heads")).n, 1);
	ck_assert_uint_eq(yaml_as_list(&r.arena, yaml_find(n, "foo")).n, 0);
}
END_TEST

START_TEST(files)
{
	const struct yaml_node *n;
	struct loc from = {0, 0, 0, 0};
	ck_assert_int_eq(yaml_read(&r.arena, &r.cx, "no/such/file.yaml", "file.yaml", from, &n), TFMC_IO);
	ck_assert(reading_says(&r, "there is no such file [E701]"));
	ck_assert_int_eq(yaml_read(&r.arena, &r.cx, "/", "/", from, &n), TFMC_IO);
	ck_assert(reading_says(&r, "it is a directory"));
	ck_assert_int_eq(yaml_read(&r.arena, &r.cx, "/dev/null", "/dev/null", from, &n), TFMC_IO);
	ck_assert(reading_says(&r, "not a regular file"));
}
END_TEST

Suite *suite_yaml_tree(void)
{
	Suite *s = suite_create("yaml_tree");
	TCase *t = tcase_create("yaml_tree");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, positions_count_characters);
	tcase_add_test(t, nulls_and_quotes);
	tcase_add_test(t, pairs_in_flow_sequences);
	tcase_add_loop_test(t, refused, 0, (int)TFMC_COUNT(refusals));
	tcase_add_test(t, a_model_is_a_mapping);
	tcase_add_test(t, limits);
	tcase_add_test(t, many_keys_are_checked_fast);
	tcase_add_test(t, one_long_line_is_read_fast);
	tcase_add_test(t, keys_and_kinds);
	tcase_add_test(t, files);
	suite_add_tcase(s, t);
	return s;
}
