/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays in NumPy's formats: every type and order, headers that lie, archives that lie, damage; and the
 * element types that only files have.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>

#include "frontend/weights/npy.h"
#include "frontend/weights/stored.h"
#include "tests/support/reading.h"
#include "tests/support/random/rng.h"

Suite *suite_npy(void);

static struct reading r;

static void setup(void)
{
	reading_init(&r);
}

static void teardown(void)
{
	reading_destroy(&r);
}

/* ---- .npy ---- */

static void put_array(struct buf *out, const char *header, const void *data, size_t n)
{
	size_t len = strlen(header);
	buf_bytes(out, "\x93NUMPY\1\0", 8);
	buf_char(out, (char)(len & 0xff));
	buf_char(out, (char)(len >> 8));
	buf_str(out, header);
	buf_bytes(out, data, n);
}

/* The bytes in memory of exactly their length, so that a sanitizer sees what is read after them. */
static const unsigned char *exact(const struct buf *b)
{
	unsigned char *copy = arena_alloc(&r.arena, b->len + 1);
	memcpy(copy, b->data, b->len);
	return copy;
}

static enum tfmc_status read_array(const char *header, const void *data, size_t n, struct stored_tensors *out)
{
	struct buf file;
	buf_init(&file);
	put_array(&file, header, data, n);
	enum tfmc_status st = npy_read(&(struct stored_source){&r.arena, &r.cx, "dir/w.npy", LOC_NONE,
	                                                       exact(&file), file.len, false},
	                               out);
	buf_destroy(&file);
	return st;
}

static double first(const struct stored_tensor *t)
{
	double v;
	if (t->read != NULL)
		t->read(t->data, 0, 1, &v);
	else
		weight_read_elements(t->dtype, t->data, 0, 1, &v);
	return v;
}

static const struct {
	const char *descr, *bytes;
	size_t n;
	double value;
} kinds[] = {
        {"<f4", "\0\0\xc0\xbf", 4, -1.5},
        {">f4", "\xbf\xc0\0\0", 4, -1.5},
        {"<f2", "\0\xbe", 2, -1.5},
        {">f2", "\xbe\0", 2, -1.5},
        {"<f8", "\0\0\0\0\0\0\xf8\xbf", 8, -1.5},
        {">f8", "\xbf\xf8\0\0\0\0\0\0", 8, -1.5},
        {"|V2", "\xc0\xbf", 2, -1.5},
        {"|i1", "\xfe", 1, -2},
        {"|u1", "\xfe", 1, 254},
        {"|b1", "\1", 1, 1},
        {"<i2", "\xfe\xff", 2, -2},
        {">i2", "\xff\xfe", 2, -2},
        {"<u2", "\xfe\xff", 2, 65534},
        {">u2", "\xff\xfe", 2, 65534},
        {"<i4", "\xfe\xff\xff\xff", 4, -2},
        {">i4", "\xff\xff\xff\xfe", 4, -2},
        {"<u4", "\xfe\xff\xff\xff", 4, 4294967294.0},
        {">u4", "\xff\xff\xff\xfe", 4, 4294967294.0},
        {"<i8", "\xfe\xff\xff\xff\xff\xff\xff\xff", 8, -2},
        {">i8", "\xff\xff\xff\xff\xff\xff\xff\xfe", 8, -2},
        {"<u8", "\0\0\0\0\0\0\0\x80", 8, 0x1p63},
        {">u8", "\x80\0\0\0\0\0\0\0", 8, 0x1p63},
};

START_TEST(every_type)
{
	struct stored_tensors st;
	char header[100];
	snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (1,), }  \n",
	         kinds[_i].descr);
	ck_assert_msg(read_array(header, kinds[_i].bytes, kinds[_i].n, &st) == TFMC_OK, "%s", r.log.data);
	ck_assert(st.n == 1 && st.items[0].readable && st.items[0].rank == 1 && st.items[0].dims[0] == 1);
	ck_assert_str_eq(st.items[0].name, "w");
	ck_assert_double_eq(first(&st.items[0]), kinds[_i].value);
}
END_TEST

START_TEST(shapes_and_orders)
{
	struct stored_tensors st;
	static const char data[24];
	ck_assert_int_eq(
	        read_array("{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}", data, 24, &st),
	        TFMC_OK);
	ck_assert(st.items[0].reversed && st.items[0].rank == 2 && st.items[0].dims[1] == 3);
	ck_assert_int_eq(
	        read_array("{\"descr\":\"<f4\",\"fortran_order\":True,\"shape\":()}\n", data, 4, &st),
	        TFMC_OK);
	ck_assert(!st.items[0].reversed && st.items[0].rank == 0);
	ck_assert_int_eq(
	        read_array("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5)}", data, 0, &st),
	        TFMC_OK);
	ck_assert(st.items[0].bytes == 0 && st.items[0].data == NULL);
}
END_TEST

static const struct {
	const char *header, *says;
} wrong[] = {
        {"", "not a literal"},
        {"{}", "lacks"},
        {"{'descr': '<f4', 'fortran_order': False}", "lacks"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "the type '<c8'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "the type '|O'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "not a simple type"},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "non-negative"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", "not a tuple of integers"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", "not a tuple of integers"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         "not a possible number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "more than 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "needs 8 bytes, there are 4"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", "unknown or there twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "unknown or there twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + {}", "text after"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", "not a literal"},
        {"__import__('os')", "not a literal"},
};

START_TEST(wrong_headers)
{
	struct stored_tensors st;
	ck_assert_int_eq(read_array(wrong[_i].header, "abcd", 4, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, wrong[_i].says), "%s", r.log.data);
}
END_TEST

/* ---- .npz ---- */

#define HEADER "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"

static void put_number(struct buf *out, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		buf_char(out, (char)(v >> (8 * i)));
}

/* CRC-32, the polynomial of zip, bit by bit. */
static uint32_t checksum(const struct buf *b)
{
	uint32_t crc = UINT32_MAX;
	for (size_t i = 0; i < b->len; i++) {
		crc ^= (unsigned char)b->data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
	}
	return ~crc;
}

/* Bytes of an archive entry, and its records in both directories. */
struct part {
	struct buf array, packed;
	unsigned method; /* 0: stored; 8: deflated */
	uint32_t crc;
	size_t size;
};

static void part_begin(struct part *p, unsigned method)
{
	*p = (struct part){.method = method};
	buf_init(&p->array);
	buf_init(&p->packed);
	put_array(&p->array, HEADER, "\0\0\x80\x3f", 4);
	if (method == 8) { /* one block that is stored: RFC 1951, 3.2.4 */
		put_number(&p->packed, 1, 1);
		put_number(&p->packed, p->array.len, 2);
		put_number(&p->packed, ~p->array.len, 2);
	}
	buf_bytes(&p->packed, p->array.data, p->array.len);
	p->crc = checksum(&p->array);
	p->size = p->array.len;
}

static void part_end(struct part *p)
{
	buf_destroy(&p->array);
	buf_destroy(&p->packed);
}

/* Fields of an entry in both directories. */
static void put_common(struct buf *out, const struct part *p, const char *name)
{
	put_number(out, 20, 2);
	put_number(out, 0, 2);
	put_number(out, p->method, 2);
	put_number(out, 0, 4); /* time, date */
	put_number(out, p->crc, 4);
	put_number(out, p->packed.len, 4);
	put_number(out, p->size, 4);
	put_number(out, strlen(name), 2);
	put_number(out, 0, 2);
}

/* An archive of this array under each of the names. */
static void put_parts(struct buf *out, const char *const *names, size_t n, const struct part *part)
{
	size_t places[4];
	for (size_t i = 0; i < n; i++) {
		places[i] = out->len;
		buf_bytes(out, "PK\3\4", 4);
		put_common(out, part, names[i]);
		buf_str(out, names[i]);
		buf_bytes(out, part->packed.data, part->packed.len);
	}
	size_t directory = out->len;
	for (size_t i = 0; i < n; i++) {
		buf_bytes(out, "PK\1\2\0\0", 6);
		put_common(out, part, names[i]);
		put_number(out, 0, 4); /* comment, disk */
		put_number(out, 0, 6); /* attributes */
		put_number(out, places[i], 4);
		buf_str(out, names[i]);
	}
	size_t bytes = out->len - directory;
	buf_bytes(out, "PK\5\6\0\0\0\0", 8);
	put_number(out, n, 2);
	put_number(out, n, 2);
	put_number(out, bytes, 4);
	put_number(out, directory, 4);
	put_number(out, 0, 2);
}

static void put_archive(struct buf *out, const char *const *names, size_t n, unsigned method)
{
	struct part part;
	part_begin(&part, method);
	put_parts(out, names, n, &part);
	part_end(&part);
}

static enum tfmc_status read_archive(const char *const *names, size_t n, unsigned method,
                                     struct stored_tensors *out)
{
	struct buf file;
	buf_init(&file);
	put_archive(&file, names, n, method);
	enum tfmc_status st = npz_read(
	        &(struct stored_source){&r.arena, &r.cx, "w.npz", LOC_NONE, exact(&file), file.len, false},
	        out);
	buf_destroy(&file);
	return st;
}

START_TEST(archives)
{
	struct stored_tensors st;
	ck_assert_msg(read_archive((const char *const[]){"a.npy", "x/b.npy"}, 2, 0, &st) == TFMC_OK, "%s",
	              r.log.data);
	ck_assert(st.n == 2 && st.items[1].dtype == DT_F32);
	ck_assert_str_eq(st.items[0].name, "a");
	ck_assert_str_eq(st.items[1].name, "x/b");
	ck_assert_double_eq(first(&st.items[1]), 1.0);
	ck_assert_int_eq(read_archive(NULL, 0, 0, &st), TFMC_OK);
	ck_assert_uint_eq(st.n, 0);
	ck_assert_int_eq(read_archive((const char *const[]){"a.npy"}, 1, 12, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "entry 'a.npy': not supported: it is compressed by another method"));
	ck_assert_int_eq(read_archive((const char *const[]){"data.pkl"}, 1, 0, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "entry 'data.pkl': not supported: it is not a .npy array"));
	ck_assert_int_eq(read_archive((const char *const[]){"a.npy", "a.npy"}, 2, 0, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "entry 'a.npy': is there twice"));
}
END_TEST

static enum tfmc_status read_part_or_header(const struct part *part, bool headers_only,
                                            struct stored_tensors *out)
{
	struct buf file;
	buf_init(&file);
	put_parts(&file, (const char *const[]){"a.npy"}, 1, part);
	enum tfmc_status st = npz_read(&(struct stored_source){&r.arena, &r.cx, "w.npz", LOC_NONE,
	                                                       exact(&file), file.len, headers_only},
	                               out);
	buf_destroy(&file);
	return st;
}

static enum tfmc_status read_part(const struct part *part, struct stored_tensors *out)
{
	return read_part_or_header(part, false, out);
}

START_TEST(compressed_archives)
{
	struct stored_tensors st;
	struct part p;
	ck_assert_msg(read_archive((const char *const[]){"a.npy", "b.npy"}, 2, 8, &st) == TFMC_OK, "%s",
	              r.log.data);
	ck_assert(st.n == 2 && first(&st.items[0]) == 1 && first(&st.items[1]) == 1);
	part_begin(&p, 8);
	p.crc ^= 1;
	ck_assert_int_eq(read_part(&p, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "entry 'a.npy': its data do not have the checksum"));
	p.crc ^= 1;
	p.size++;
	ck_assert_int_eq(read_part(&p, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "entry 'a.npy': its compressed data are damaged"));
	p.size -= 2; /* seen in the header, before anything is taken for its data */
	ck_assert_int_eq(read_part(&p, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "array 'a': its shape needs 4 bytes, there are 3"));
	p.size = 1032 * p.packed.len + 1032;
	ck_assert_int_eq(read_part(&p, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "entry 'a.npy': it cannot have the size"));
	p.size = p.array.len;
	p.packed.data[0] = 7; /* a kind of block that there is not */
	ck_assert_int_eq(read_part(&p, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "entry 'a.npy': its compressed data are damaged"));
	part_end(&p);
}
END_TEST

/* Commands that print only shapes read no data, whatever its type. */
START_TEST(headers_of_archives)
{
	struct stored_tensors st;
	struct part p;
	part_begin(&p, 8);
	p.crc ^= 1; /* of data that are not read */
	ck_assert_int_eq(read_part_or_header(&p, true, &st), TFMC_OK);
	ck_assert(st.n == 1 && st.items[0].bytes == 4 && st.items[0].data == NULL);
	ck_assert(st.items[0].rank == 1 && st.items[0].dims[0] == 1 && st.items[0].dtype == DT_F32);
	part_end(&p);
	part_begin(&p, 0);
	ck_assert_int_eq(read_part_or_header(&p, true, &st), TFMC_OK);
	ck_assert_double_eq(first(&st.items[0]), 1.0);
	p.packed.len--;
	p.size--;
	ck_assert_int_eq(read_part_or_header(&p, true, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "needs 4 bytes, there are 3"));
	part_end(&p);
}
END_TEST

START_TEST(damaged_archives)
{
	struct rng rng = rng_seed((uint64_t)_i + 1);
	bool is_packed = _i % 2 == 1;
	struct buf file;
	buf_init(&file);
	put_archive(&file, (const char *const[]){"a.npy", "b.npy"}, 2, is_packed ? 8 : 0);
	for (int round = 0; round < 2000; round++) {
		struct arena_mark mark = arena_mark(&r.arena);
		size_t n = round % 5 == 0 ? (size_t)rng_below(&rng, (int64_t)file.len) : file.len;
		unsigned char *bytes = arena_alloc(&r.arena, n + 1);
		struct stored_tensors st;
		memcpy(bytes, file.data, n);
		for (int k = 0; n > 0 && k <= round % 4; k++)
			bytes[rng_next(&rng) % n] = (unsigned char)rng_next(&rng);
		if (npz_read(&(struct stored_source){&r.arena, &r.cx, "w.npz", LOC_NONE, bytes, n, false},
		             &st) == TFMC_OK) {
			for (size_t i = 0; i < st.n && !is_packed; i++)
				ck_assert((const unsigned char *)st.items[i].data + st.items[i].bytes <=
				          bytes + n);
		}
		reading_clear(&r);
		arena_release(&r.arena, mark);
	}
	buf_destroy(&file);
}
END_TEST

/* ---- floats of 8 bits ---- */

static double one(weight_elements *read, unsigned char code)
{
	double v;
	read(&code, 0, 1, &v);
	return v;
}

START_TEST(small_floats)
{
	ck_assert_double_eq(one(stored_read_f8_e4m3, 0x7e), 448);
	ck_assert_double_eq(one(stored_read_f8_e4m3, 0x81), -0x1p-9);
	ck_assert_double_eq(one(stored_read_f8_e4m3, 0x38), 1);
	ck_assert(isnan(one(stored_read_f8_e4m3, 0xff)));
	ck_assert_double_eq(one(stored_read_f8_e5m2, 0x7b), 57344);
	ck_assert_double_eq(one(stored_read_f8_e5m2, 0x01), 0x1p-16);
	ck_assert(isinf(one(stored_read_f8_e5m2, 0xfc)) && isnan(one(stored_read_f8_e5m2, 0x7d)));
	ck_assert_double_eq(one(stored_read_f8_e4m3fnuz, 0x7f), 240);
	ck_assert_double_eq(one(stored_read_f8_e4m3fnuz, 0x01), 0x1p-10);
	ck_assert(isnan(one(stored_read_f8_e4m3fnuz, 0x80)));
	ck_assert_double_eq(one(stored_read_f8_e5m2fnuz, 0x7f), 57344);
	ck_assert_double_eq(one(stored_read_f8_e5m2fnuz, 0x01), 0x1p-17);
	ck_assert(isnan(one(stored_read_f8_e5m2fnuz, 0x80)));
	ck_assert_double_eq(one(stored_read_f8_e8m0, 0), 0x1p-127);
	ck_assert_double_eq(one(stored_read_f8_e8m0, 0xfe), 0x1p127);
	ck_assert(isnan(one(stored_read_f8_e8m0, 0xff)));
}
END_TEST

/* The type that is said to hold all values does. */
START_TEST(small_floats_fit)
{
	static weight_elements *const halves[] = {stored_read_f8_e4m3, stored_read_f8_e5m2,
	                                          stored_read_f8_e4m3fnuz, stored_read_f8_e5m2fnuz};
	for (unsigned code = 0; code < 256; code++) {
		for (size_t i = 0; i < TFMC_COUNT(halves); i++) {
			double v = one(halves[i], (unsigned char)code);
			ck_assert(isnan(v) || f16_to_f64(f64_to_f16(v)) == v);
		}
		double v = one(stored_read_f8_e8m0, (unsigned char)code);
		ck_assert(isnan(v) || bf16_to_f64(f64_to_bf16(v)) == v);
	}
}
END_TEST

Suite *suite_npy(void)
{
	Suite *s = suite_create("npy");
	TCase *tc = tcase_create("npy");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, every_type, 0, (int)TFMC_COUNT(kinds));
	tcase_add_test(tc, shapes_and_orders);
	tcase_add_loop_test(tc, wrong_headers, 0, (int)TFMC_COUNT(wrong));
	tcase_add_test(tc, archives);
	tcase_add_test(tc, compressed_archives);
	tcase_add_test(tc, headers_of_archives);
	tcase_add_loop_test(tc, damaged_archives, 0, 4);
	tcase_add_test(tc, small_floats);
	tcase_add_test(tc, small_floats_fit);
	suite_add_tcase(s, tc);
	return s;
}
