/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena: sizes, alignment, marks, stickiness of failure, growable lists.
 */
#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ir/support/arena.h"

Suite *suite_arena(void);

START_TEST(aligned_and_zeroed)
{
	struct arena a;
	arena_init(&a);
	for (size_t n = 1; n < 9000; n = n * 3 + 1) {
		unsigned char *p = arena_alloc(&a, n);
		ck_assert_ptr_nonnull(p);
		ck_assert_uint_eq((uintptr_t)p % _Alignof(max_align_t), 0);
		for (size_t i = 0; i < n; i++)
			ck_assert_uint_eq(p[i], 0);
		memset(p, 0xAB, n);
	}
	ck_assert_ptr_null(arena_alloc(&a, 0));
	ck_assert(!arena_failed(&a));
	arena_destroy(&a);
}
END_TEST

START_TEST(release_returns_to_the_mark)
{
	struct arena a;
	arena_init(&a);
	const char *kept = arena_strdup(&a, "kept");
	struct arena_mark mark = arena_mark(&a);
	size_t used = a.used_bytes;
	for (int i = 0; i < 100; i++)
		memset(arena_alloc(&a, 10000), 1, 10000);
	arena_release(&a, mark);
	ck_assert_uint_eq(a.used_bytes, used);
	ck_assert_str_eq(kept, "kept");
	const char *again = arena_alloc(&a, 64);
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(again[i], 0);
	arena_release(&a, (struct arena_mark){NULL, 0, 0});
	ck_assert_ptr_null(a.head);
	arena_destroy(&a);
}
END_TEST

START_TEST(failure_is_sticky)
{
	struct arena a;
	arena_init(&a);
	ck_assert_ptr_nonnull(arena_alloc(&a, 16));
	ck_assert_ptr_null(arena_calloc(&a, SIZE_MAX / 2, 4));
	ck_assert(arena_failed(&a));
	char *scratch = arena_alloc(&a, 32);
	ck_assert_ptr_nonnull(scratch);
	scratch[0] = 'x';
	ck_assert_int_eq(((char *)arena_alloc(&a, 32))[0], 0);
	ck_assert_ptr_null(arena_alloc(&a, 100000));
	ck_assert_str_eq(arena_strdup(&a, "text"), "");
	ck_assert_str_eq(arena_printf(&a, "%d", 12), "");
	arena_destroy(&a);
}
END_TEST

START_TEST(limit_is_kept)
{
	struct arena a;
	arena_init(&a);
	a.limit_bytes = 1000;
	ck_assert_ptr_nonnull(arena_alloc(&a, 900));
	ck_assert_ptr_null(arena_alloc(&a, 300));
	ck_assert(arena_failed(&a));
	arena_destroy(&a);
}
END_TEST

START_TEST(size_overflow)
{
	struct arena a;
	arena_init(&a);
	ck_assert_ptr_null(arena_alloc(&a, SIZE_MAX));
	ck_assert(arena_failed(&a));
	arena_destroy(&a);
}
END_TEST

START_TEST(lists_and_text)
{
	struct {
		int *items;
		size_t n, cap;
	} list = {NULL, 0, 0};
	struct arena a;
	arena_init(&a);
	for (int i = 0; i < 1000; i++) {
		int *last = ARENA_PUSH(&a, &list);
		ck_assert_ptr_nonnull(last);
		ck_assert_int_eq(*last, 0);
		*last = i;
	}
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(list.items[i], i);
	ck_assert_str_eq(arena_printf(&a, "%s-%03d", "x", 7), "x-007");
	ck_assert_str_eq(arena_strndup(&a, "abcdef", 3), "abc");
	arena_destroy(&a);
}
END_TEST

Suite *suite_arena(void)
{
	Suite *s = suite_create("arena");
	TCase *t = tcase_create("arena");
	tcase_add_test(t, aligned_and_zeroed);
	tcase_add_test(t, release_returns_to_the_mark);
	tcase_add_test(t, failure_is_sticky);
	tcase_add_test(t, limit_is_kept);
	tcase_add_test(t, size_overflow);
	tcase_add_test(t, lists_and_text);
	suite_add_tcase(s, t);
	return s;
}
