/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BLAKE2b against RFC 7693's function with 32 bytes, whole and in pieces of all lengths.
 */
#include <check.h>
#include <stdio.h>

#include "ir/support/blake2b.h"

Suite *suite_blake2b(void);

static const char *hex_of(struct blake2b *b)
{
	static char text[2 * BLAKE2B_BYTES + 1];
	unsigned char hash[BLAKE2B_BYTES];
	blake2b_end(b, hash);
	for (int i = 0; i < BLAKE2B_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", hash[i]);
	return text;
}

/* n bytes 0, 1, 2, .. in pieces. */
static const char *counted(size_t n, size_t piece)
{
	unsigned char bytes[1000];
	struct blake2b b;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	blake2b_begin(&b);
	for (size_t at = 0; at < n; at += piece)
		blake2b_add(&b, bytes + at, n - at < piece ? n - at : piece);
	return hex_of(&b);
}

START_TEST(known)
{
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_add(&b, "abc", 3);
	ck_assert_str_eq(hex_of(&b), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
	ck_assert_str_eq(counted(0, 1), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
	ck_assert_str_eq(counted(128, 128),
	                 "c3582f71ebb2be66fa5dd750f80baae97554f3b015663c8be377cfcb2488c1d1");
	ck_assert_str_eq(counted(129, 129),
	                 "f7f3c46ba2564ff4c4c162da1f5b605f9f1c4aa6a20652a9f9a337c1a2f5b9c9");
	ck_assert_str_eq(counted(1000, 1000),
	                 "c636324d47d89f2b2434dc2c994100663fbbaea880ff020fc5de89dd0f77a1ec");
}
END_TEST

START_TEST(pieces)
{
	char whole[2 * BLAKE2B_BYTES + 1];
	for (size_t n = 120; n < 400; n++) {
		snprintf(whole, sizeof(whole), "%s", counted(n, n));
		for (size_t piece = 1; piece < 300; piece += 37)
			ck_assert_str_eq(counted(n, piece), whole);
	}
}
END_TEST

/* Adjacent inputs have different hashes. */
START_TEST(items)
{
	char first[2 * BLAKE2B_BYTES + 1];
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_string(&b, "ab");
	blake2b_string(&b, "c");
	snprintf(first, sizeof(first), "%s", hex_of(&b));
	blake2b_begin(&b);
	blake2b_string(&b, "a");
	blake2b_string(&b, "bc");
	ck_assert_str_ne(hex_of(&b), first);
	blake2b_begin(&b);
	blake2b_string(&b, NULL);
	snprintf(first, sizeof(first), "%s", hex_of(&b));
	blake2b_begin(&b);
	blake2b_string(&b, "");
	ck_assert_str_ne(hex_of(&b), first);
}
END_TEST

/* In the lanes of vectors the same as one after the other. */
START_TEST(side_by_side)
{
	static unsigned char bytes[BLAKE2B_LANES * 3 * BLAKE2B_BLOCK];
	unsigned char out[BLAKE2B_LANES][BLAKE2B_BYTES], one[BLAKE2B_BYTES];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * i >> 5);
	for (size_t n = BLAKE2B_BLOCK; n <= 3 * BLAKE2B_BLOCK; n += BLAKE2B_BLOCK) {
		blake2b_chunks(bytes, n, out);
		for (size_t l = 0; l < BLAKE2B_LANES; l++) {
			struct blake2b b;
			blake2b_begin(&b);
			blake2b_add(&b, bytes + l * n, n);
			blake2b_end(&b, one);
			ck_assert_mem_eq(one, out[l], sizeof(one));
		}
	}
}
END_TEST

Suite *suite_blake2b(void)
{
	Suite *s = suite_create("blake2b");
	TCase *t = tcase_create("all");
	tcase_add_test(t, known);
	tcase_add_test(t, pieces);
	tcase_add_test(t, items);
	tcase_add_test(t, side_by_side);
	suite_add_tcase(s, t);
	return s;
}
