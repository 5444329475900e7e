/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files of Marian: every type, padding of data, files that lie, and damage. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "frontend/weights/files.h"
#include "frontend/weights/marian.h"
#include "tests/support/random/rng.h"
#include "tests/support/reading.h"

Suite *suite_marian(void);

static struct reading r;

static void setup(void)
{
	reading_init(&r);
}

static void teardown(void)
{
	reading_destroy(&r);
}

struct tensor {
	const char *name;
	uint64_t type, rank, bytes; /* bytes: of the data with padding */
	int32_t sizes[IR_RANK_MAX];
	const void *data;
	size_t n; /* bytes of the data without padding */
};

/* A file of n tensors; data begin at a multiple of 256. */
static void put_file(struct buf *out, const struct tensor *t, size_t n)
{
	buf_u64le(out, 1);
	buf_u64le(out, n);
	for (size_t i = 0; i < n; i++) {
		buf_u64le(out, strlen(t[i].name) + 1);
		buf_u64le(out, t[i].type);
		buf_u64le(out, t[i].rank);
		buf_u64le(out, t[i].bytes);
	}
	for (size_t i = 0; i < n; i++)
		buf_bytes(out, t[i].name, strlen(t[i].name) + 1);
	for (size_t i = 0; i < n; i++)
		for (uint64_t k = 0; k < t[i].rank && k < IR_RANK_MAX; k++)
			buf_u32le(out, (uint32_t)t[i].sizes[k]);
	size_t padding = 256 - (out->len + 8) % 256;
	buf_u64le(out, padding);
	buf_fill(out, '\0', padding);
	for (size_t i = 0; i < n; i++) {
		buf_bytes(out, t[i].data, t[i].n);
		buf_fill(out, '\0', t[i].bytes - t[i].n);
	}
}

static const float floats[] = {1.5F, -2.0F, 3.25F, 0.0F, 5.0F, -6.0F};
static const int8_t bytes[] = {1, -2, 127};
static const uint16_t f16_bits[] = {0x3c00, 0xc000};

static const struct tensor good[] = {
        {"encoder_l1_self_Wq", 0x404, 2, 256, {2, 3}, floats, sizeof(floats)},
        {"b", 0x101, 1, 3, {3}, bytes, sizeof(bytes)},
        {"half", 0x402, 2, 4, {1, 2}, f16_bits, sizeof(f16_bits)},
        {"packed", 0x4101, 2, 10, {2, 3}, floats, 10},
};

static enum tfmc_status read_file(const struct buf *file, struct stored_tensors *out)
{
	const struct stored_source s = {
	        &r.arena, &r.cx, "model.bin", LOC_NONE, (const unsigned char *)file->data, file->len, false};
	return marian_read(&s, out);
}

START_TEST(tensors_of_every_type)
{
	struct stored_tensors st;
	struct buf file;
	buf_init(&file);
	put_file(&file, good, TFMC_COUNT(good));
	ck_assert_int_eq(read_file(&file, &st), TFMC_OK);
	ck_assert_uint_eq(st.n, TFMC_COUNT(good));
	ck_assert_str_eq(st.items[0].name, "encoder_l1_self_Wq");
	ck_assert_int_eq(st.items[0].rank, 2);
	ck_assert_int_eq(st.items[0].dims[1], 3);
	ck_assert_uint_eq(st.items[0].bytes, sizeof(floats));
	for (size_t i = 0; i < TFMC_COUNT(floats); i++)
		ck_assert_double_eq(stored_element(&st.items[0], i), (double)floats[i]);
	for (size_t i = 0; i < TFMC_COUNT(bytes); i++)
		ck_assert_double_eq(stored_element(&st.items[1], i), bytes[i]);
	ck_assert_double_eq(stored_element(&st.items[2], 0), 1);
	ck_assert_double_eq(stored_element(&st.items[2], 1), -2);
	ck_assert(!st.items[3].readable);
	ck_assert_str_eq(st.items[3].type_name, "type 0x4101 of Marian");
	buf_destroy(&file);
}
END_TEST

/* A file is recognized by its bytes: also with 123 tensors, whose number is the byte that the header of safetensors
 * begins with. */
START_TEST(weight_file)
{
	static const size_t counts[] = {1, 123};
	for (size_t k = 0; k < TFMC_COUNT(counts); k++) {
		struct tensor many[123];
		struct buf file;
		buf_init(&file);
		for (size_t i = 0; i < counts[k]; i++) {
			many[i] = good[0];
			many[i].name = arena_printf(&r.arena, "w%zu", i);
		}
		put_file(&file, many, counts[k]);
		reading_write(&r, "model.bin", file.data, file.len);
		ck_assert_str_eq(weight_file_format((const unsigned char *)file.data, 64), "Marian");
		struct weight_files *wf = weight_files_create(&r.arena, &r.cx, NULL);
		ck_assert_msg(weight_files_open(wf, r.dir, "model.bin", LOC_NONE) == TFMC_OK, "%s",
		              r.log.data);
		const char *last = arena_printf(&r.arena, "w%zu", counts[k] - 1);
		ck_assert_double_eq(stored_element(weight_files_find(wf, last), 2), 3.25);
		weight_files_destroy(wf);
		buf_destroy(&file);
	}
}
END_TEST

static const struct {
	struct tensor t;
	const char *says;
} lies[] = {
        {{"w", 0x404, 2, 20, {2, 3}, floats, 20}, "it has 20 bytes, its shape 24"},
        {{"w", 0x404, 2, 24, {2, -3}, floats, 24}, "a negative size"},
        {{"w", 0x404, 4, 24, {INT32_MAX, INT32_MAX, INT32_MAX, 2}, floats, 24}, "its shape is too large"},
        {{"w", 0x404, 9, 24, {1}, floats, 24}, "it does not begin as a file of Marian"},
        {{"\xff", 0x404, 1, 4, {1}, floats, 4}, "are no name of a tensor"},
        {{"", 0x404, 1, 4, {1}, floats, 4}, "it does not begin as a file of Marian"},
};

START_TEST(files_that_lie)
{
	struct stored_tensors st;
	struct buf file;
	buf_init(&file);
	put_file(&file, &lies[_i].t, 1);
	ck_assert_int_eq(read_file(&file, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, lies[_i].says), "%s, found %s", lies[_i].says, r.log.data);
	buf_destroy(&file);
}
END_TEST

/* Every length but that of the whole file, and one byte more. */
START_TEST(cut_off)
{
	struct stored_tensors st;
	struct buf file;
	buf_init(&file);
	put_file(&file, good, TFMC_COUNT(good));
	size_t whole = file.len;
	buf_char(&file, 'x');
	ck_assert_int_eq(read_file(&file, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, "1 bytes from byte"), "%s", r.log.data);
	for (file.len = 0; file.len < whole; file.len++)
		ck_assert_int_eq(read_file(&file, &st), TFMC_INVALID);
	file.len = whole;
	ck_assert_int_eq(read_file(&file, &st), TFMC_OK);
	buf_destroy(&file);
}
END_TEST

/* Random damage: any answer but a crash, a read outside of the file, or tensors after an error. */
START_TEST(random_damage)
{
	struct rng rng = rng_seed((uint64_t)_i + 1);
	struct buf file;
	int read = 0;
	buf_init(&file);
	for (int round = 0; round < 5000; round++) {
		struct arena_mark mark = arena_mark(&r.arena);
		struct stored_tensors st;
		buf_clear(&file);
		put_file(&file, good, TFMC_COUNT(good));
		for (int k = 0; k <= round % 4; k++)
			file.data[rng_next(&rng) % 256] =
			        (char)(round % 2 == 0 ? rng_next(&rng) : rng_next(&rng) % 4);
		file.len -= round % 7 == 0 ? rng_next(&rng) % file.len : 0;
		bool ok = read_file(&file, &st) == TFMC_OK;
		read += ok;
		ck_assert(ok || st.n == 0);
		for (size_t i = 0; ok && i < st.n; i++)
			for (size_t k = 0;
			     st.items[i].readable && st.items[i].bytes > 0 && k < st.items[i].bytes / 8; k++)
				(void)stored_element(&st.items[i], k);
		reading_clear(&r);
		arena_release(&r.arena, mark);
	}
	ck_assert_int_gt(read, 0);
	buf_destroy(&file);
}
END_TEST

Suite *suite_marian(void)
{
	Suite *s = suite_create("marian");
	TCase *t = tcase_create("marian");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, tensors_of_every_type);
	tcase_add_test(t, weight_file);
	tcase_add_loop_test(t, files_that_lie, 0, (int)TFMC_COUNT(lies));
	tcase_add_test(t, cut_off);
	tcase_add_loop_test(t, random_damage, 0, 4);
	suite_add_tcase(s, t);
	return s;
}
