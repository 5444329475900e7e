/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices packed into words: where a format holds them, its codes are exactly the elements; any run of elements is
 * that of the whole; scales that are no numbers and groups that are not there.
 */
#include <check.h>
#include <math.h>

#include "frontend/weights/packed.h"
#include "tests/support/random/rng.h"

#define ROWS     8
#define COLUMNS  256
#define GROUP    32
#define GROUPS   (COLUMNS / GROUP)
#define SMALLEST 16 /* group */
#define SCALES   (ROWS * COLUMNS / SMALLEST)
#define ELEMENTS (ROWS * COLUMNS)

Suite *suite_packed(void);

static unsigned char words[ELEMENTS], zeros[SCALES * 4];
static uint16_t scales[SCALES];
static float wide_scales[SCALES];
static unsigned char exponents[SCALES];
static const uint8_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static void setup(void)
{
	struct rng rng = rng_seed(1);
	for (size_t i = 0; i < sizeof(words); i++)
		words[i] = (unsigned char)rng_next(&rng);
	for (size_t i = 0; i < sizeof(zeros); i++)
		zeros[i] = (unsigned char)rng_next(&rng);
	for (size_t i = 0; i < SCALES; i++) {
		scales[i] = f64_to_f16(rng_real(&rng, -2, 2));
		wide_scales[i] = (float)rng_real(&rng, -2, 2);
		exponents[i] = (unsigned char)rng_between(&rng, 0, 251);
	}
}

static struct packed_matrix matrix(int bits, bool by_column, enum ir_dtype scale)
{
	int log = bits == 4 ? 3 : 2;
	struct packed_matrix m = {.n = ROWS, .k = COLUMNS, .group = GROUP, .by_column = by_column};
	m.q = (struct packed_words){.data = words, .bytes = 4, .bits = bits, .down = by_column ? log : 0};
	m.q.across = by_column ? 0 : log;
	m.q.row_words = by_column ? ROWS : COLUMNS >> log;
	m.scales = scale == DT_F32 ? (const void *)wide_scales : (const void *)scales;
	m.scale_dtype = scale;
	m.scale_row = 1;
	m.scale_group = ROWS;
	m.zero = 1 << (bits - 1);
	return m;
}

static struct packed_matrix with_zeros(struct packed_matrix m)
{
	int log = m.q.bits == 4 ? 3 : 2;
	m.zero = 1;
	m.zeros = (struct packed_words){.data = zeros, .bytes = 4, .bits = m.q.bits, .across = log};
	m.zeros.row_words = ROWS >> log;
	m.zeros.order = m.q.bits == 4 ? order : NULL;
	return m;
}

/* Where offsets are rounded: by at most half a unit of the largest product of a scale and a zero point, and of the
 * element. */
static void check_offsets(const struct packed_matrix *m, const double *elements)
{
	static double exact[ELEMENTS];
	struct packed_matrix plain = *m;
	plain.format = FORMAT_PLAIN;
	packed_elements(&plain, 0, ELEMENTS, exact);
	for (int i = 0; i < ELEMENTS; i++) {
		double bound = m->scale_dtype == DT_F32 ? ldexp(2 * 256, -24) : 0;
		ck_assert_msg(fabs(elements[i] - exact[i]) <= bound ||
		                      (isnan(exact[i]) && isnan(elements[i])),
		              "element %d is %g, not %g", i, elements[i], exact[i]);
	}
}

/* The format, and that its codes are the elements. */
static enum ir_format checked_format(struct packed_matrix *m)
{
	static double elements[ELEMENTS], some[ELEMENTS], decoded[ELEMENTS];
	struct weight_quants codes;
	struct rng rng = rng_seed(2);
	m->format = packed_format(m);
	packed_elements(m, 0, ELEMENTS, elements);
	for (int64_t begin = 0, n; begin < ELEMENTS; begin += n) {
		n = rng_between(&rng, 1, 90);
		n = n < ELEMENTS - begin ? n : ELEMENTS - begin;
		packed_elements(m, begin, n, some + begin);
	}
	ck_assert_mem_eq(some, elements, sizeof(some));
	check_offsets(m, elements);
	if (m->format == FORMAT_PLAIN)
		return m->format;
	ck_assert(weight_quants_alloc(&codes, m->format, COLUMNS, ROWS));
	packed_rows(m, 0, ROWS, &codes);
	weight_dequantize(&codes, ROWS, decoded);
	for (int i = 0; i < ELEMENTS; i++)
		ck_assert_msg(decoded[i] == elements[i], "%s: element %d is %g, not %g",
		              ir_format(m->format)->name, i, decoded[i], elements[i]);
	weight_quants_free(&codes);
	return m->format;
}

START_TEST(formats_hold_the_elements)
{
	for (int by_column = 0; by_column < 2; by_column++) {
		struct packed_matrix m = matrix(4, by_column, DT_F16);
		ck_assert_int_eq(checked_format(&m), FORMAT_Q4);
		m.group = COLUMNS;
		ck_assert_int_eq(checked_format(&m), FORMAT_Q4_128);
		m = with_zeros(matrix(4, by_column, DT_F16));
		ck_assert_int_eq(checked_format(&m), FORMAT_Q4G_32);
		m.group = 2 * GROUP;
		ck_assert_int_eq(checked_format(&m), FORMAT_Q4G_64);
		m = matrix(4, by_column, DT_BF16);
		ck_assert_int_eq(checked_format(&m), FORMAT_Q4G_32);
		m = matrix(4, by_column, DT_F32);
		ck_assert_int_eq(checked_format(&m), FORMAT_Q4G_32);
		m = with_zeros(matrix(4, by_column, DT_F32));
		ck_assert_int_eq(checked_format(&m), FORMAT_Q4G_32);
		m = matrix(8, by_column, DT_F16);
		ck_assert_int_eq(checked_format(&m), FORMAT_Q8);
		m.group = COLUMNS;
		ck_assert_int_eq(checked_format(&m), FORMAT_Q8_ROW);
		m = matrix(8, by_column, DT_BF16);
		ck_assert_int_eq(checked_format(&m), FORMAT_Q8F_32);
		m = matrix(8, by_column, DT_F32);
		ck_assert_int_eq(checked_format(&m), FORMAT_Q8F_32);
		m = with_zeros(matrix(8, by_column, DT_F16));
		ck_assert_int_eq(checked_format(&m), FORMAT_Q8G_32);
		m = with_zeros(matrix(8, by_column, DT_F32));
		ck_assert_int_eq(checked_format(&m), FORMAT_Q8G_32);
		m = with_zeros(matrix(8, by_column, DT_BF16));
		m.group = 2 * GROUP;
		ck_assert_int_eq(checked_format(&m), FORMAT_Q8G_64);
		m = matrix(4, by_column, DT_F16);
		m.group = SMALLEST;
		ck_assert_int_eq(checked_format(&m), FORMAT_PLAIN);
		m = matrix(4, by_column, DT_U8);
		m.scales = exponents;
		ck_assert_int_eq(checked_format(&m), FORMAT_MXFP4);
	}
}
END_TEST

START_TEST(order_of_groups)
{
	static unsigned char group_of[4 * COLUMNS];
	struct packed_matrix m = matrix(4, true, DT_F16), sorted = m;
	struct arena arena;
	bool in_order;
	double a, b;
	arena_init(&arena);
	for (int k = 0; k < COLUMNS; k++)
		group_of[4 * k] = (unsigned char)(k / GROUP);
	m.group_of = group_of;
	ck_assert(packed_groups_exist(&m, &in_order) && in_order);
	group_of[0] = GROUPS - 1;
	ck_assert(packed_groups_exist(&m, &in_order) && !in_order);
	ck_assert_int_eq(checked_format(&m), FORMAT_PLAIN);
	packed_elements(&m, 0, 1, &a);
	packed_elements(&sorted, 0, 1, &b);
	ck_assert(a * f16_to_f64(scales[0]) == b * f16_to_f64(scales[(GROUPS - 1) * ROWS]));
	ck_assert(!packed_sort_columns(&arena, &m) && m.order == NULL && m.group_of == group_of);
	group_of[4 * (COLUMNS - 1)] = 0;
	ck_assert(packed_sort_columns(&arena, &m) && m.group_of == NULL);
	ck_assert(m.order[0] == 1 && m.order[GROUP - 1] == COLUMNS - 1 && m.order[COLUMNS - GROUP] == 0);
	ck_assert_int_eq(checked_format(&m), FORMAT_Q4);
	packed_elements(&m, COLUMNS - GROUP, 1, &b);
	ck_assert(a == b);
	m.order = NULL;
	m.group_of = group_of;
	group_of[0] = GROUPS;
	ck_assert(!packed_groups_exist(&m, &in_order));
	group_of[3] = 0x80;
	ck_assert(!packed_groups_exist(&m, &in_order));
	arena_destroy(&arena);
}
END_TEST

START_TEST(scales_that_are_no_numbers)
{
	static double elements[ELEMENTS];
	struct packed_matrix m = matrix(4, false, DT_F16);
	scales[0] = 0x7e00;
	packed_elements(&m, 0, ELEMENTS, elements);
	for (int k = 0; k < COLUMNS; k++)
		ck_assert(isnan(elements[k]) == (k < GROUP));
}
END_TEST

Suite *suite_packed(void)
{
	Suite *s = suite_create("packed");
	TCase *tc = tcase_create("packed");
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, formats_hold_the_elements);
	tcase_add_test(tc, order_of_groups);
	tcase_add_test(tc, scales_that_are_no_numbers);
	suite_add_tcase(s, tc);
	return s;
}
