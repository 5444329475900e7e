/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: what the writer writes the reader reads; every way a header can
 * lie is refused with the tensor's name; damaged files never crash.
 */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "frontend/weights/safetensors.h"
#include "tests/support/reading.h"

Suite *suite_safetensors(void);

static struct reading r;

static void setup(void)
{
	reading_init(&r);
}

static void teardown(void)
{
	reading_destroy(&r);
}

static enum tfmc_status read(const void *bytes, size_t n, struct stored_tensors *out)
{
	return safetensors_read(
	        &(struct stored_source){&r.arena, &r.cx, "w.safetensors", LOC_NONE, bytes, n, false}, out);
}

/* A file with this header and n bytes of data. */
static enum tfmc_status read_header(const char *header, size_t data, struct stored_tensors *out)
{
	struct buf file;
	buf_init(&file);
	buf_u64le(&file, strlen(header));
	buf_str(&file, header);
	buf_fill(&file, 'd', data);
	char *bytes = arena_alloc(&r.arena, file.len);
	memcpy(bytes, file.data, file.len);
	enum tfmc_status st = read(bytes, file.len, out);
	buf_destroy(&file);
	return st;
}

START_TEST(written_files_read_back)
{
	static const float f[6] = {1, 2, 3, 4, 5, 6};
	static const int8_t i[3] = {1, -2, 3};
	static const double d[1] = {0.5};
	const struct stored_tensor items[] = {
	        {.name = "a\"\\\n.w", .dtype = DT_I8, .rank = 1, .dims = {3}, .data = i, .bytes = 3},
	        {.name = "b", .dtype = DT_F32, .rank = 2, .dims = {2, 3}, .data = f, .bytes = sizeof(f)},
	        {.name = "scalar", .dtype = DT_F64, .rank = 0, .data = d, .bytes = 8},
	        {.name = "empty", .dtype = DT_F32, .rank = 2, .dims = {0, 7}},
	};
	struct stored_tensors st;
	struct buf file;
	buf_init(&file);
	ck_assert(safetensors_write(&file, items, 4));
	ck_assert_int_eq(read(file.data, file.len, &st), TFMC_OK);
	ck_assert_uint_eq(st.n, 4);
	ck_assert_str_eq(st.items[0].name, "scalar");
	ck_assert_str_eq(st.items[3].name, "a\"\\\n.w");
	for (size_t k = 0; k < st.n; k++) {
		if (strcmp(st.items[k].name, "b") != 0)
			continue;
		ck_assert(st.items[k].rank == 2 && st.items[k].dims[1] == 3 && st.items[k].readable);
		ck_assert_mem_eq(st.items[k].data, f, sizeof(f));
		ck_assert_uint_eq((size_t)((const char *)st.items[k].data - file.data) % 8, 0);
	}
	struct stored_tensor wrong = items[1];
	wrong.bytes = 20;
	ck_assert(!safetensors_write(&file, &wrong, 1));
	buf_destroy(&file);
}
END_TEST

START_TEST(order_is_that_of_the_data)
{
	struct stored_tensors st;
	ck_assert_int_eq(read_header("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
	                             "\"a\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[0,1]},"
	                             "\"__metadata__\":{\"format\":\"pt\"}}   ",
	                             3, &st),
	                 TFMC_OK);
	ck_assert_uint_eq(st.n, 2);
	ck_assert_str_eq(st.items[0].name, "a");
	ck_assert(st.items[0].rank == 0 && st.items[0].dtype == DT_BOOL);
	ck_assert_int_eq(
	        read_header("{\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, &st),
	        TFMC_OK);
	ck_assert(st.items[0].readable && st.items[0].dtype == DT_F16 && st.items[0].read != NULL);
	ck_assert_str_eq(st.items[0].type_name, "F8_E4M3");
	ck_assert_int_eq(
	        read_header("{\"q\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, &st),
	        TFMC_OK);
	ck_assert(!st.items[0].readable);
	ck_assert_int_eq(read_header("{}", 0, &st), TFMC_OK);
	ck_assert_uint_eq(st.n, 0);
}
END_TEST

#define ENTRY(dtype, shape, begin, end) \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct lie {
	const char *header;
	size_t data;
	const char *says;
} lies[] = {
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") "}", 5, "1 bytes from byte"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") "}", 3, "outside of the data section of 3 bytes"},
        {"{\"a\":" ENTRY("F32", "[1]", "4", "8") "}", 8, "after the end of the data before it"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") ",\"b\":" ENTRY("F32", "[1]", "0", "4") "}", 4,
         "'b': its data begins"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "4") "}", 4, "its shape needs 8 bytes, its data_offsets span 4"},
        {"{\"a\":" ENTRY("F32", "[4611686018427387904,4]", "0", "4") "}", 4,
         "not a possible number of bytes"},
        {"{\"a\":" ENTRY("F4", "[3]", "0", "1") "}", 1, "not a possible number of bytes"},
        {"{\"a\":" ENTRY("F32", "[-1]", "0", "4") "}", 4, "non-negative integers"},
        {"{\"a\":" ENTRY("F32", "[1.0]", "0", "4") "}", 4, "non-negative integers"},
        {"{\"a\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "rank 9, the limit is 8"},
        {"{\"a\":" ENTRY("F32", "[1]", "4", "0") "}", 4, "outside"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4.0") "}", 4, "two non-negative integers"},
        {"{\"a\":" ENTRY("F32", "[1]", "-4", "0") "}", 4, "two non-negative integers"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "18446744073709551620") "}", 4, "JSON at byte"},
        {"{\"a\":" ENTRY("F33", "[1]", "0", "4") "}", 4, "'a': the type 'F33' is not one of the format"},
        {"{\"a\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}", 4,
         "'dtype' is missing or not a string"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "'shape' is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "'data_offsets'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "the key 'x'"},
        {"{\"a\":3}", 0, "its entry is not an object"},
        {"{\"\":" ENTRY("F32", "[1]", "0", "4") "}", 4, "a tensor needs a name"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") ",\"a\":" ENTRY("F32", "[1]", "0", "4") "}", 4, "duplicate"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "'__metadata__' must map strings to strings"},
        {"{\"__metadata__\":[]}", 0, "'__metadata__'"},
        {" {}", 0, "not a JSON object"},
        {"[]", 0, "not a JSON object"},
        {"{}x", 0, "JSON at byte"},
        {"{", 0, "not a JSON object"},
};

START_TEST(lies_are_refused)
{
	struct stored_tensors st;
	ck_assert_int_eq(read_header(lies[_i].header, lies[_i].data, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, lies[_i].says) && reading_says(&r, "[E406]"), "%s", r.log.data);
	ck_assert_uint_eq(r.cx.n_errors, 1);
}
END_TEST

START_TEST(lengths)
{
	static const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'};
	static const unsigned char beyond[10] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
	struct stored_tensors st;
	for (size_t n = 0; n < 8; n++)
		ck_assert_int_eq(read(beyond, n, &st), TFMC_INVALID);
	ck_assert_int_eq(read(beyond, 10, &st), TFMC_INVALID);
	ck_assert_int_eq(read(huge, 16, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "a header of 18446744073709551615 bytes cannot be"));
}
END_TEST

/* Random damage to a good file: any answer but a crash, and never a tensor outside the bytes. */
START_TEST(random_damage)
{
	const char good[] =
	        "{\"a\":" ENTRY("F32", "[2,3]", "0", "24") ",\"b\":" ENTRY("F16", "[4]", "24", "32") "}";
	uint64_t x = 88172645463325252u;
	r.cx.sink = NULL;
	for (int round = 0; round < 3000; round++) {
		unsigned char file[200] = {sizeof(good) - 1};
		size_t n = 8 + sizeof(good) - 1 + 32;
		memcpy(file + 8, good, sizeof(good) - 1);
		for (int i = 0; i < 1 + round % 4; i++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			file[(x >> 33) % n] =
			        (unsigned char)((x >> 20) % 3 == 0 ? x >> 56 : '0' + (x >> 50) % 10);
		}
		struct arena_mark mark = arena_mark(&r.arena);
		struct stored_tensors st;
		if (read(file, n, &st) != TFMC_OK) {
			arena_release(&r.arena, mark);
			continue;
		}
		for (size_t i = 0; i < st.n; i++) {
			const unsigned char *data = st.items[i].data;
			ck_assert(st.items[i].bytes == 0 ||
			          (data >= file && data + st.items[i].bytes <= file + n));
		}
		arena_release(&r.arena, mark);
	}
}
END_TEST

Suite *suite_safetensors(void)
{
	Suite *s = suite_create("safetensors");
	TCase *t = tcase_create("safetensors");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, written_files_read_back);
	tcase_add_test(t, order_is_that_of_the_data);
	tcase_add_loop_test(t, lies_are_refused, 0, (int)TFMC_COUNT(lies));
	tcase_add_test(t, lengths);
	tcase_add_test(t, random_damage);
	suite_add_tcase(s, t);
	return s;
}
