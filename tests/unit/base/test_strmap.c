/* SPDX-License-Identifier: Apache-2.0 */
/*
 * String map, interning, hashes, nearest names, and the text buffer.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "ir/support/buf.h"
#include "ir/support/strmap.h"

Suite *suite_strmap(void);

START_TEST(many_keys)
{
	static int values[3000];
	struct arena a;
	struct strmap m;
	char key[32];
	arena_init(&a);
	strmap_init(&m, &a);
	ck_assert_ptr_null(strmap_get(&m, "none"));
	for (int i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "key.%d", i);
		ck_assert(strmap_set(&m, key, &values[i]));
	}
	ck_assert(strmap_set(&m, "key.7", &values[0]));
	ck_assert_uint_eq(m.n, 3000);
	ck_assert_ptr_eq(strmap_get(&m, "key.7"), &values[0]);
	ck_assert_ptr_eq(strmap_get(&m, "key.2999"), &values[2999]);
	ck_assert(!strmap_has(&m, "key.3000"));
	ck_assert_str_eq(m.items[12].key, "key.12");
	arena_destroy(&a);
}
END_TEST

START_TEST(interning)
{
	struct arena a;
	struct strmap m;
	arena_init(&a);
	strmap_init(&m, &a);
	const char *x = strmap_intern(&m, "abcdef", 3);
	ck_assert_str_eq(x, "abc");
	ck_assert_ptr_eq(x, strmap_intern(&m, "abc", 3));
	ck_assert_ptr_ne(x, strmap_intern(&m, "abcd", 4));
	ck_assert(hash_bytes64(HASH64_SEED, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
	arena_destroy(&a);
}
END_TEST

/* Names that collide in one map are spread in another one: no caller can choose them beforehand. */
START_TEST(seeds)
{
	struct arena a[2];
	struct strmap m[2];
	char key[32];
	unsigned n = 0, n_alike = 0;
	const uint32_t slots = 0xfff;
	for (int i = 0; i < 2; i++) {
		arena_init(&a[i]);
		strmap_init(&m[i], &a[i]);
	}
	for (int i = 0; i < 1 << 17; i++) {
		snprintf(key, sizeof(key), "layers.%d.weight", i);
		ck_assert(strmap_set(&m[0], key, key));
		if ((m[0].items[i].hash & slots) == 0) {
			ck_assert(strmap_set(&m[1], key, key));
			n_alike += (m[1].items[n++].hash & slots) == (m[1].items[0].hash & slots);
		}
	}
	ck_assert_uint_gt(n, 16);
	ck_assert_uint_lt(n_alike, n / 2);
	for (int i = 0; i < 2; i++)
		arena_destroy(&a[i]);
}
END_TEST

static const char *nearest(const char *name)
{
	static const char *const names[] = {"heads", "head_dim", "lengths", "kind", "id", "d"};
	return nearest_name(name, names, TFMC_COUNT(names));
}

START_TEST(nearest_names)
{
	ck_assert_str_eq(nearest("haeds"), "heads");
	ck_assert_str_eq(nearest("length"), "lengths");
	ck_assert_str_eq(nearest("len"), "lengths");
	ck_assert_str_eq(nearest("hea"), "heads"); /* the shorter of two, whatever is nearer by letters */
	ck_assert_ptr_null(nearest("he"));
	ck_assert_str_eq(nearest("headdim"), "head_dim");
	ck_assert_str_eq(nearest("knid"), "kind");
	ck_assert_ptr_null(nearest("dropout"));
	ck_assert_ptr_null(nearest("x"));
	ck_assert_ptr_null(nearest(""));
	ck_assert_str_eq(nearest("d"), "d");
	ck_assert_str_eq(nearest("Heads"), "heads");
	ck_assert_str_eq(nearest("ehads"), "heads");
	ck_assert_str_eq(nearest("head-dim"), "head_dim");
	static const char *const other[][2] = {
	        {"mllama", "llama"}, {"xlnet", "mpnet"},   {"riscv64", "aarch64"},
	        {"llava", "llama"},  {"llama4", "llama"},  {"int5", "int8"},
	        {"foo", "from"},     {"znver9", "znver5"}, {"E9", "E109"}};
	for (size_t i = 0; i < TFMC_COUNT(other); i++)
		ck_assert_ptr_null(nearest_name(other[i][0], &other[i][1], 1));
	ck_assert_ptr_null(nearest_name("a", NULL, 0));
}
END_TEST

START_TEST(buffer)
{
	struct buf b;
	buf_init(&b);
	ck_assert_str_eq(b.data, "");
	buf_clear(&b);
	buf_printf(&b, "%s=%d", "x", 3);
	buf_char(&b, ' ');
	buf_fill(&b, '-', 100);
	ck_assert_uint_eq(b.len, 104);
	ck_assert_uint_eq(strlen(b.data), 104);
	buf_clear(&b);
	buf_quoted(&b, "a\"b\\c\n\t\x01\xc3\xa9\xff");
	ck_assert_str_eq(b.data, "\"a\\\"b\\\\c\\n\\t\\x01\xc3\xa9\\xff\"");
	buf_clear(&b);
	buf_u32le(&b, 0x01020304);
	buf_u64le(&b, 5);
	ck_assert_uint_eq(b.len, 12);
	ck_assert_int_eq(b.data[0], 4);
	ck_assert_int_eq(b.data[4], 5);
	buf_clear(&b);
	buf_f32(&b, 1e-5f);
	buf_char(&b, ' ');
	buf_f64(&b, 2);
	ck_assert_str_eq(b.data, "1e-05 2.0");
	ck_assert(!buf_failed(&b));
	buf_destroy(&b);
}
END_TEST

Suite *suite_strmap(void)
{
	Suite *s = suite_create("strmap");
	TCase *t = tcase_create("strmap");
	tcase_add_test(t, many_keys);
	tcase_add_test(t, interning);
	tcase_add_test(t, seeds);
	tcase_add_test(t, nearest_names);
	tcase_add_test(t, buffer);
	suite_add_tcase(s, t);
	return s;
}
