/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unified differences: known texts, and random ones, where applying the hunks
 * gives the second text and no shorter difference exists (dynamic programming).
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/diff.h"

#define LINES_MAX 24

Suite *suite_diff(void);

static void expect(const char *before, const char *after, const char *want)
{
	struct buf out;
	buf_init(&out);
	struct diff_text a = {"old", before, strlen(before)}, b = {"new", after, strlen(after)};
	ck_assert(diff_unified(&out, &a, &b));
	ck_assert_str_eq(out.data != NULL ? out.data : "", want);
	buf_destroy(&out);
}

START_TEST(equal_texts_have_none)
{
	expect("", "", "");
	expect("a\nb\n", "a\nb\n", "");
}
END_TEST

START_TEST(one_line)
{
	expect("a\nb\nc\n", "a\nx\nc\n", "--- old\n+++ new\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n");
	expect("", "a\n", "--- old\n+++ new\n@@ -0,0 +1,1 @@\n+a\n");
	expect("a\n", "", "--- old\n+++ new\n@@ -1,1 +0,0 @@\n-a\n");
}
END_TEST

START_TEST(hunks_name_their_function)
{
	expect("func @f {\n 1\n 2\n 3\n 4\n 5\n 6\n 7\n 8\n 9\n}\n",
	       "func @f {\n 1\n 2\n 3\n 4\n 5\n 7\n 8\n 9\n}\n",
	       "--- old\n+++ new\n@@ -4,7 +4,6 @@ func @f {\n  3\n  4\n  5\n- 6\n  7\n  8\n  9\n");
}
END_TEST

START_TEST(distant_changes_are_two_hunks)
{
	expect("a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n",
	       "--- old\n+++ new\n@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@ 4\n 5\n 6\n "
	       "7\n-b\n+B\n");
}
END_TEST

/* ---- random texts ---- */

struct words {
	size_t n;
	char items[LINES_MAX];
};

static struct words make(unsigned *seed)
{
	struct words w = {.n = (size_t)rand_r(seed) % LINES_MAX};
	for (size_t i = 0; i < w.n; i++)
		w.items[i] = (char)('a' + rand_r(seed) % 3);
	return w;
}

static size_t text_of(const struct words *w, char *out)
{
	for (size_t i = 0; i < w->n; i++) {
		out[2 * i] = w->items[i];
		out[2 * i + 1] = '\n';
	}
	return 2 * w->n;
}

/* Changed lines of a shortest edit. */
static int distance(const struct words *a, const struct words *b)
{
	int d[LINES_MAX + 1][LINES_MAX + 1];
	for (size_t i = 0; i <= a->n; i++)
		for (size_t k = 0; k <= b->n; k++) {
			int best = i == 0 && k == 0 ? 0 : 2 * LINES_MAX;
			if (i > 0 && d[i - 1][k] + 1 < best)
				best = d[i - 1][k] + 1;
			if (k > 0 && d[i][k - 1] + 1 < best)
				best = d[i][k - 1] + 1;
			if (i > 0 && k > 0 && a->items[i - 1] == b->items[k - 1] && d[i - 1][k - 1] < best)
				best = d[i - 1][k - 1];
			d[i][k] = best;
		}
	return d[a->n][b->n];
}

/* Reads the hunks, checks every line against both texts, and counts the changes. */
static int apply(const char *diff, const struct words *a, const struct words *b)
{
	size_t i = 0, k = 0, to_i = 0, to_k = 0, n, m;
	int changes = 0;
	for (const char *s = diff; *s != '\0'; s = strchr(s, '\n') + 1) {
		if (strncmp(s, "---", 3) == 0 || strncmp(s, "+++", 3) == 0)
			continue;
		if (sscanf(s, "@@ -%zu,%zu +%zu,%zu @@", &to_i, &n, &to_k, &m) == 4) {
			for (to_i -= n > 0, to_k -= m > 0; i < to_i; i++, k++)
				ck_assert_int_eq(a->items[i], b->items[k]);
			ck_assert_uint_eq(k, to_k);
			continue;
		}
		if (*s != '+')
			ck_assert_int_eq(a->items[i++], s[1]);
		if (*s != '-')
			ck_assert_int_eq(b->items[k++], s[1]);
		changes += *s != ' ';
	}
	ck_assert_uint_eq(a->n - i, b->n - k);
	for (; i < a->n; i++, k++)
		ck_assert_int_eq(a->items[i], b->items[k]);
	return changes;
}

START_TEST(random_texts)
{
	unsigned seed = 5;
	for (int round = 0; round < 5000; round++) {
		char before[2 * LINES_MAX], after[2 * LINES_MAX];
		struct words a = make(&seed), b = make(&seed);
		struct diff_text x = {"a", before, text_of(&a, before)}, y = {"b", after, text_of(&b, after)};
		struct buf out;
		buf_init(&out);
		ck_assert(diff_unified(&out, &x, &y));
		ck_assert_int_eq(apply(out.data != NULL ? out.data : "", &a, &b), distance(&a, &b));
		buf_destroy(&out);
	}
}
END_TEST

Suite *suite_diff(void)
{
	Suite *s = suite_create("diff");
	TCase *t = tcase_create("unified");
	tcase_add_test(t, equal_texts_have_none);
	tcase_add_test(t, one_line);
	tcase_add_test(t, hunks_name_their_function);
	tcase_add_test(t, distant_changes_are_two_hunks);
	tcase_add_test(t, random_texts);
	suite_add_tcase(s, t);
	return s;
}
