/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF: metadata of every type, shapes, placement; every way a file can lie is refused; mutated and cut files
 * never crash and never give a tensor outside the file.
 */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "frontend/weights/gguf.h"
#include "tests/support/reading.h"
#include "tests/support/random/rng.h"

Suite *suite_gguf(void);

static struct reading r;
static struct buf file;

static void setup(void)
{
	reading_init(&r);
	buf_init(&file);
}

static void teardown(void)
{
	buf_destroy(&file);
	reading_destroy(&r);
}

/* ---- writing ---- */

static void put_u32(uint32_t v)
{
	for (int i = 0; i < 4; i++)
		buf_char(&file, (char)(v >> (8 * i)));
}

static void put_text(const char *s)
{
	buf_u64le(&file, strlen(s));
	buf_str(&file, s);
}

static void put_key(const char *key, enum gguf_type type)
{
	put_text(key);
	put_u32((uint32_t)type);
}

static void begin(uint32_t version, uint64_t tensors, uint64_t entries)
{
	buf_str(&file, "GGUF");
	put_u32(version);
	buf_u64le(&file, tensors);
	buf_u64le(&file, entries);
}

/* A tensor of dims {inner, outer}. */
static void put_tensor(const char *name, uint64_t inner, uint64_t outer, uint32_t type, uint64_t offset)
{
	put_text(name);
	put_u32(2);
	buf_u64le(&file, inner);
	buf_u64le(&file, outer);
	put_u32(type);
	buf_u64le(&file, offset);
}

static void pad(size_t alignment)
{
	buf_fill(&file, '\0', (alignment - file.len % alignment) % alignment);
}

/* The bytes in memory of exactly their length, so that a sanitizer sees what is read after them. */
static enum tfmc_status read_bytes(const char *bytes, size_t n, struct gguf *out)
{
	unsigned char *copy = arena_alloc(&r.arena, n + 1);
	memcpy(copy, bytes, n);
	return gguf_read(&(struct stored_source){&r.arena, &r.cx, "m.gguf", LOC_NONE, copy, n, false}, out);
}

static enum tfmc_status read(struct gguf *out)
{
	return read_bytes(file.data, file.len, out);
}

/* Metadata of several types and three tensors. */
static void good_file(void)
{
	begin(3, 3, 5);
	put_key("general.architecture", GGUF_STRING);
	put_text("llama");
	put_key("llama.block_count", GGUF_U32);
	put_u32(2);
	put_key("llama.flag", GGUF_BOOL);
	buf_char(&file, 1);
	put_key("tokens", GGUF_ARRAY);
	put_u32(GGUF_STRING);
	buf_u64le(&file, 2);
	put_text("ab");
	put_text("");
	put_key("kv", GGUF_ARRAY);
	put_u32(GGUF_I16);
	buf_u64le(&file, 3);
	buf_bytes(&file, "\1\0\xff\xff\2\0", 6);
	put_tensor("a", 3, 2, 0, 0);
	put_tensor("b", 32, 1, 2, 32);
	put_tensor("c", 2, 1, 30, 64);
	pad(32);
	buf_fill(&file, '\1', 24);
	pad(32);
	buf_fill(&file, '\2', 18);
	pad(32);
	buf_fill(&file, '\3', 4);
}

START_TEST(a_good_file)
{
	struct gguf g;
	struct gguf_value v;
	size_t at = 0;
	good_file();
	ck_assert_msg(read(&g) == TFMC_OK, "%s", r.log.data);
	ck_assert_uint_eq(g.version, 3);
	ck_assert_uint_eq(g.n_entries, 5);
	ck_assert_int_eq(gguf_find(&g, "llama.block_count")->i, 2);
	ck_assert_int_eq(gguf_find(&g, "llama.flag")->i, 1);
	ck_assert_mem_eq(gguf_find(&g, "general.architecture")->text, "llama", 5);
	const struct gguf_value *kv = gguf_find(&g, "kv"), *tokens = gguf_find(&g, "tokens");
	ck_assert(gguf_next_element(kv, &at, &v) && v.i == 1 && gguf_next_element(kv, &at, &v) && v.i == -1);
	ck_assert(gguf_next_element(kv, &at, &v) && v.i == 2 && !gguf_next_element(kv, &at, &v));
	at = 0;
	ck_assert(gguf_next_element(tokens, &at, &v) && v.len == 2 && memcmp(v.text, "ab", 2) == 0);
	ck_assert(gguf_next_element(tokens, &at, &v) && v.len == 0 && !gguf_next_element(tokens, &at, &v));
	ck_assert_ptr_null(gguf_find(&g, "none"));
	const struct stored_tensor *t = g.tensors.items;
	ck_assert(g.tensors.n == 3 && t[0].rank == 2 && t[0].dims[0] == 2 && t[0].dims[1] == 3);
	ck_assert(t[0].readable && t[0].dtype == DT_F32 && t[0].bytes == 24 && *(const char *)t[0].data == 1);
	ck_assert(t[1].readable && t[1].bytes == 18 && *(const char *)t[1].data == 2);
	ck_assert(t[1].format == FORMAT_Q4 && t[1].read != NULL && t[1].read_quants != NULL);
	ck_assert_str_eq(t[1].type_name, "Q4_0");
	ck_assert(t[2].dtype == DT_BF16 && *(const char *)t[2].data == 3);
}
END_TEST

/* ---- blocks ---- */

static const struct blocks {
	const char *name;
	int64_t elements, bytes;
	enum ir_format format;
	weight_elements *read;
	weight_rows *read_quants;
} blocks[] = {
#define QUANTS(number, name, block, bytes, format) \
	{#name, block, bytes, FORMAT_##format, gguf_elements_##name, gguf_rows_##name},
#include "frontend/weights/gguf_types.def"
};

/* Three rows of any bytes, from the second on: codes of the format, and any run of elements is what they stand for. */
START_TEST(codes_are_the_elements)
{
	enum { ROWS = 3, K = 512 };
	const struct blocks *b = &blocks[_i];
	static unsigned char bytes[ROWS * K * 2];
	static double decoded[ROWS * K], elements[ROWS * K];
	size_t size = (size_t)(ROWS * K / b->elements * b->bytes);
	struct rng rng = rng_seed((uint64_t)_i + 1);
	struct weight_quants codes;
	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)rng_next(&rng);
	ck_assert(weight_quants_alloc(&codes, b->format, K, ROWS - 1));
	b->read_quants(bytes, 1, ROWS - 1, &codes);
	weight_dequantize(&codes, ROWS - 1, decoded);
	for (int64_t begin = 0, n; begin < (ROWS - 1) * K; begin += n) {
		n = 1 + (int64_t)(rng_next(&rng) % 300);
		n = n < (ROWS - 1) * K - begin ? n : (ROWS - 1) * K - begin;
		b->read(bytes, K + begin, n, elements + begin);
	}
	for (int i = 0; i < (ROWS - 1) * K; i++)
		ck_assert_msg(elements[i] == decoded[i] || (isnan(elements[i]) && isnan(decoded[i])),
		              "%s: element %d is %g, its code %g", b->name, i, elements[i], decoded[i]);
	weight_quants_free(&codes);
}
END_TEST

/* Halves of damaged files that are infinite: then elements are NaN, and none is infinite by the sign of its code. */
START_TEST(no_element_is_infinite)
{
	enum { K = 512 };
	const struct blocks *b = &blocks[_i];
	static unsigned char bytes[K * 2];
	static double elements[K];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i % 2 ? 0x7c : 0;
	b->read(bytes, 0, K, elements);
	for (int i = 0; i < K; i++)
		ck_assert_msg(!isinf(elements[i]), "%s: element %d is %g", b->name, i, elements[i]);
}
END_TEST

/* ---- single lies ---- */

static void no_magic(void)
{
	buf_str(&file, "GGUX");
	buf_fill(&file, '\0', 40);
}
static void version_1(void)
{
	begin(1, 0, 0);
}
static void big_endian(void)
{
	begin(0x03000000, 0, 0);
}
static void many_tensors(void)
{
	begin(3, UINT64_MAX, 0);
}
static void few_bytes(void)
{
	begin(3, 0, 100);
	buf_fill(&file, '\0', 100);
}
static void type_13(void)
{
	begin(3, 0, 1);
	put_key("k", (enum gguf_type)13);
	buf_u64le(&file, 0);
}
static void long_text(void)
{
	begin(3, 0, 1);
	put_key("k", GGUF_STRING);
	buf_u64le(&file, UINT64_MAX);
}
static void long_array(void)
{
	begin(3, 0, 1);
	put_key("k", GGUF_ARRAY);
	put_u32(GGUF_F64);
	buf_u64le(&file, UINT64_MAX / 8 + 2);
}
static void nested_array(void)
{
	begin(3, 0, 1);
	put_key("k", GGUF_ARRAY);
	put_u32(GGUF_ARRAY);
	buf_u64le(&file, 0);
}
static void bool_2(void)
{
	begin(3, 0, 1);
	put_key("k", GGUF_BOOL);
	buf_char(&file, 2);
}
static void key_twice(void)
{
	begin(3, 0, 2);
	for (int i = 0; i < 2; i++) {
		put_key("k", GGUF_U32);
		put_u32(1);
	}
}
static void key_bytes(void)
{
	begin(3, 0, 1);
	put_key("k\n", GGUF_U32);
	put_u32(1);
}
static void alignment_24(void)
{
	begin(3, 0, 1);
	put_key("general.alignment", GGUF_U32);
	put_u32(24);
}
static void one_tensor(uint64_t inner, uint64_t outer, uint32_t type, uint64_t offset, size_t data)
{
	begin(3, 1, 0);
	put_tensor("t", inner, outer, type, offset);
	pad(32);
	buf_fill(&file, 'd', data);
}
static void rank_5(void)
{
	begin(3, 1, 0);
	put_text("t");
	put_u32(5);
	buf_fill(&file, '\0', 60);
}
static void unknown_type(void)
{
	one_tensor(4, 1, 4, 0, 32);
}
static void half_block(void)
{
	one_tensor(16, 2, 2, 0, 32);
}
static void size_overflow(void)
{
	one_tensor(UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 0, 32);
}
static void dim_negative(void)
{
	one_tensor(UINT64_MAX, 1, 0, 0, 32);
}
static void offset_later(void)
{
	one_tensor(4, 1, 0, 32, 64);
}
static void offset_odd(void)
{
	one_tensor(4, 1, 0, 4, 64);
}
static void data_cut(void)
{
	one_tensor(4, 2, 0, 0, 31);
}
static void data_trailing(void)
{
	one_tensor(4, 2, 0, 0, 33);
}
static void tensor_twice(void)
{
	begin(3, 2, 0);
	put_tensor("t", 4, 1, 0, 0);
	put_tensor("t", 4, 1, 0, 32);
	pad(32);
	buf_fill(&file, 'd', 64);
}
static void tensors_overlap(void)
{
	begin(3, 2, 0);
	put_tensor("t", 4, 1, 0, 0);
	put_tensor("u", 4, 1, 0, 0);
	pad(32);
	buf_fill(&file, 'd', 64);
}

static const struct lie {
	void (*write)(void);
	const char *says;
} lies[] = {
        {no_magic, "not a GGUF file"},
        {version_1, "version 1 of GGUF"},
        {big_endian, "big-endian"},
        {many_tensors, "the limits are"},
        {few_bytes, "too short for its counts"},
        {type_13, "the type 13 of a value is unknown"},
        {long_text, "ends too early"},
        {long_array, "does not fit into the file"},
        {nested_array, "an array of arrays"},
        {bool_2, "neither 0 nor 1"},
        {key_twice, "the key 'k': is given twice"},
        {key_bytes, "printable characters"},
        {alignment_24, "power of two"},
        {rank_5, "rank 5, the limit is 4"},
        {unknown_type, "number 4, which is unknown"},
        {half_block, "not whole blocks of Q4_0"},
        {size_overflow, "not a possible number of bytes"},
        {dim_negative, "a dim is larger"},
        {offset_later, "its data begin at 32, those before it end at 0"},
        {offset_odd, "its data begin at 4"},
        {data_cut, "reach beyond the 31 bytes"},
        {data_trailing, "belong to no tensor"},
        {tensor_twice, "tensor 't': is there twice"},
        {tensors_overlap, "tensor 'u': its data begin at 0, those before it end at 32"},
};

START_TEST(a_lie)
{
	struct gguf g;
	lies[_i].write();
	ck_assert_int_eq(read(&g), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, lies[_i].says), "%s", r.log.data);
	ck_assert_uint_eq(g.tensors.n, 0);
}
END_TEST

/* ---- damage ---- */

START_TEST(cut_files)
{
	struct gguf g;
	good_file();
	for (size_t n = 0; n < file.len; n++)
		ck_assert_int_eq(read_bytes(file.data, n, &g), TFMC_INVALID);
}
END_TEST

static void check_inside(const struct gguf *g, const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < g->tensors.n; i++) {
		const struct stored_tensor *t = &g->tensors.items[i];
		const unsigned char *data = t->data;
		ck_assert(t->bytes == 0 || (data >= bytes && data + t->bytes <= bytes + n));
	}
	for (size_t i = 0; i < g->n_entries; i++) {
		const struct gguf_value *a = &g->entries[i].value;
		struct gguf_value v;
		size_t at = 0, count = 0;
		while (a->type == GGUF_ARRAY && gguf_next_element(a, &at, &v))
			count++;
		ck_assert(a->type != GGUF_ARRAY || count == a->n);
	}
}

START_TEST(mutated_files)
{
	struct rng rng = rng_seed((uint64_t)_i + 1);
	good_file();
	for (int round = 0; round < 2000; round++) {
		struct arena_mark mark = arena_mark(&r.arena);
		unsigned char *bytes = arena_alloc(&r.arena, file.len);
		struct gguf g;
		memcpy(bytes, file.data, file.len);
		for (int k = 0; k <= round % 4; k++)
			bytes[rng_next(&rng) % file.len] = (unsigned char)(rng_next(&rng) >> (round % 3 * 8));
		if (gguf_read(&(struct stored_source){&r.arena, &r.cx, "m.gguf", LOC_NONE, bytes, file.len,
		                                      false},
		              &g) == TFMC_OK)
			check_inside(&g, bytes, file.len);
		reading_clear(&r);
		arena_release(&r.arena, mark);
	}
}
END_TEST

Suite *suite_gguf(void)
{
	Suite *s = suite_create("gguf");
	TCase *tc = tcase_create("gguf");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_good_file);
	tcase_add_loop_test(tc, codes_are_the_elements, 0, (int)TFMC_COUNT(blocks));
	tcase_add_loop_test(tc, no_element_is_infinite, 0, (int)TFMC_COUNT(blocks));
	tcase_add_loop_test(tc, a_lie, 0, (int)TFMC_COUNT(lies));
	tcase_add_test(tc, cut_files);
	tcase_add_loop_test(tc, mutated_files, 0, 4);
	suite_add_tcase(s, tc);
	return s;
}
