/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight expressions: shapes that do not fit, printing, and evaluation of whole
 * expressions and of every sub-range against values computed by hand or by a
 * plain formula. Stored tensors come from a table in memory.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/buf.h"
#include "ir/weights/weight.h"

struct stored {
	const char *name;
	struct weight_bytes bytes;
};

struct store {
	const struct stored *items;
	size_t n, reads;
};

static enum tfmc_status read_stored(void *user, struct diag_context *cx, const char *file, const char *tensor,
                                    struct weight_bytes *out)
{
	struct store *s = user;
	s->reads++;
	for (size_t i = 0; i < s->n; i++) {
		if (!strcmp(s->items[i].name, tensor)) {
			*out = s->items[i].bytes;
			return TFMC_OK;
		}
	}
	diag_error(cx, LOC_NONE, DIAG_WEIGHT_FILE, "no tensor '%s' in '%s'", tensor, file);
	return TFMC_IO;
}

/* 0, 1, 2, ... as stored f32, large enough for every test. */
static float counting[8192];

struct fixture {
	struct arena arena;
	struct diag_context cx;
	struct buf messages;
	struct stored items[8];
	struct store store;
	struct weight_source source;
};

static struct fixture fx;

static void setup(void)
{
	for (size_t i = 0; i < sizeof(counting) / sizeof(counting[0]); i++)
		counting[i] = (float)i;
	arena_init(&fx.arena);
	buf_init(&fx.messages);
	diag_init(&fx.cx, diag_render_text, &fx.messages);
	fx.items[0] = (struct stored){"m", {.data = counting, .dtype = DT_F32, .rank = 2, .dims = {3, 4}}};
	fx.items[1] = (struct stored){"v", {.data = counting, .dtype = DT_F32, .rank = 1, .dims = {8}}};
	fx.items[2] =
	        (struct stored){"big", {.data = counting, .dtype = DT_F32, .rank = 2, .dims = {2048, 4}}};
	fx.items[3] = (struct stored){"row", {.data = counting, .dtype = DT_F32, .rank = 1, .dims = {3}}};
	fx.items[4] =
	        (struct stored){"cube", {.data = counting, .dtype = DT_F32, .rank = 3, .dims = {2, 3, 4}}};
	fx.items[5] = (struct stored){"rows", {.data = counting, .dtype = DT_F32, .rank = 1, .dims = {2048}}};
	fx.store = (struct store){fx.items, 6, 0};
	fx.source = (struct weight_source){.read = read_stored, .user = &fx.store};
}

static void teardown(void)
{
	diag_destroy(&fx.cx);
	buf_destroy(&fx.messages);
	arena_destroy(&fx.arena);
}

static const struct ir_wexpr *leaf(const char *name)
{
	for (size_t i = 0; i < fx.store.n; i++) {
		const struct weight_bytes *b = &fx.items[i].bytes;
		if (!strcmp(fx.items[i].name, name))
			return wexpr_tensor(&fx.arena, "f", name, b->dtype, b->rank, b->dims);
	}
	return NULL;
}

/* The range as elements of a narrower type is what f64 rounds to. */
static void expect_rounded(const struct ir_wexpr *e, int64_t begin, int64_t n, const double *want)
{
	for (int i = 0; i < 3; i++) {
		const enum ir_dtype t = (const enum ir_dtype[]){DT_F32, DT_F16, DT_BF16}[i];
		size_t bytes = (size_t)(n * ir_dtype_bytes(t));
		char *have = arena_alloc(&fx.arena, bytes + 1), *rounded = arena_alloc(&fx.arena, bytes + 1);
		have[bytes] = 77;
		const struct wexpr_out out = {.at = have, .dtype = t};
		ck_assert_int_eq(wexpr_eval_to(&fx.cx, e, &fx.source, begin, n, out), TFMC_OK);
		weight_write_elements(t, want, n, rounded);
		ck_assert_mem_eq(have, rounded, bytes);
		ck_assert_int_eq(have[bytes], 77);
	}
}

/* The values of the whole expression; every sub-range must give the same, rounded too. */
static const double *values_of(const struct ir_wexpr *e)
{
	ck_assert_ptr_nonnull(e);
	int64_t n = wexpr_count(e);
	double *all = ARENA_ARRAY(&fx.arena, double, n + 1), *part = ARENA_ARRAY(&fx.arena, double, n + 1);
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, &fx.source, 0, n, all), TFMC_OK);
	int64_t step = n > 200 ? n / 13 : 1;
	for (int64_t begin = 0; begin <= n; begin += step) {
		for (int64_t end = begin; end <= n; end += step) {
			ck_assert_int_eq(wexpr_eval(&fx.cx, e, &fx.source, begin, end - begin, part),
			                 TFMC_OK);
			ck_assert_mem_eq(part, all + begin, (size_t)(end - begin) * sizeof(double));
			expect_rounded(e, begin, end - begin, all + begin);
		}
	}
	return all;
}

static void expect(const struct ir_wexpr *e, size_t n, const double *want)
{
	const double *have = values_of(e);
	ck_assert_int_eq(wexpr_count(e), (int64_t)n);
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(have[i] == want[i], "element %zu is %g, expected %g", i, have[i], want[i]);
}

#define EXPECT(e, ...)                                                \
	do {                                                          \
		const double want_[] = {__VA_ARGS__};                 \
		expect((e), sizeof(want_) / sizeof(want_[0]), want_); \
	} while (0)

/* Moves preserve every bit, here of NaNs that a conversion would change. */
START_TEST(moves_bits)
{
	const uint16_t stored[12] = {0x7fa1, 0xffa2, 0x7f93, 0x7c04, 0x7d05, 0xfd06,
	                             0x0001, 0x8000, 0x7fff, 0xff81, 0x3c00, 0x7c01};
	uint16_t have[9];
	const struct wexpr_out out = {.at = have, .dtype = _i ? DT_F16 : DT_BF16};
	fx.items[0] = (struct stored){"m", {.data = stored, .dtype = out.dtype, .rank = 2, .dims = {3, 4}}};
	const struct ir_wexpr *e = wexpr_transpose(&fx.arena, wexpr_slice(&fx.arena, 1, 1, 4, leaf("m")));
	ck_assert_int_eq(wexpr_eval_to(&fx.cx, e, &fx.source, 0, 9, out), TFMC_OK);
	for (size_t i = 0; i < 9; i++)
		ck_assert_uint_eq(have[i], stored[i % 3 * 4 + 1 + i / 3]);
}
END_TEST

static void expect_text(const struct ir_wexpr *e, const char *want)
{
	struct buf b;
	ck_assert_ptr_nonnull(e);
	buf_init(&b);
	wexpr_print(&b, e);
	ck_assert_str_eq(b.data, want);
	buf_destroy(&b);
}

START_TEST(moves_elements)
{
	struct arena *a = &fx.arena;
	const struct ir_wexpr *m = leaf("m"), *v = leaf("v"), *row = leaf("row");
	EXPECT(wexpr_index(a, 0, 1, m), 4, 5, 6, 7);
	EXPECT(wexpr_index(a, 1, 2, m), 2, 6, 10);
	EXPECT(wexpr_slice(a, 0, 1, 3, m), 4, 5, 6, 7, 8, 9, 10, 11);
	EXPECT(wexpr_slice(a, 1, 1, 3, m), 1, 2, 5, 6, 9, 10);
	EXPECT(wexpr_transpose(a, m), 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11);
	EXPECT(wexpr_transpose(a, row), 0, 1, 2);
	ck_assert_ptr_eq(wexpr_transpose(a, wexpr_transpose(a, m)), m);
	EXPECT(wexpr_transpose(a, wexpr_slice(a, 1, 0, 2, leaf("cube"))), 0, 4, 1, 5, 2, 6, 3, 7, 12, 16, 13,
	       17, 14, 18, 15, 19);
	EXPECT(wexpr_reshape(a, 2, (int64_t[]){6, 2}, m), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
	EXPECT(wexpr_stack(a, 2, (const struct ir_wexpr *[]){row, row}), 0, 1, 2, 0, 1, 2);
	EXPECT(wexpr_concat(a, 0, 2, (const struct ir_wexpr *[]){row, v}), 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7);
	EXPECT(wexpr_concat(a, 1, 3,
	                    (const struct ir_wexpr *[]){wexpr_slice(a, 1, 3, 4, m),
	                                                wexpr_slice(a, 1, 2, 2, m),
	                                                wexpr_slice(a, 1, 0, 2, m)}),
	       3, 0, 1, 7, 4, 5, 11, 8, 9);
}
END_TEST

/* Columns by an order, as packed matrices are read, and what lies below it. */
START_TEST(orders_columns)
{
	static const int32_t orders[2][4] = {{2, 0, 3, 1}, {2, 0, 2, 1}};
	struct arena *a = &fx.arena;
	for (size_t i = 0; i < 2; i++)
		fx.items[6 + i] =
		        (struct stored){i == 0 ? "order" : "wrong",
		                        {.data = orders[i], .dtype = DT_I32, .rank = 1, .dims = {4}}};
	fx.store.n = 8;
	const struct ir_wexpr *m = leaf("m"), *e = wexpr_columns(a, m, leaf("order")), *order = NULL;
	double row[4];
	EXPECT(e, 1, 3, 0, 2, 5, 7, 4, 6, 9, 11, 8, 10);
	expect_text(e, "columns(tensor \"f\":\"m\" f32[3,4], tensor \"f\":\"order\" i32[4])");
	ck_assert_ptr_null(wexpr_columns(a, m, leaf("row")));
	ck_assert_int_eq(wexpr_eval(&fx.cx, wexpr_columns(a, m, leaf("wrong")), &fx.source, 4, 4, row),
	                 TFMC_INVALID);
	ck_assert_ptr_nonnull(strstr(fx.messages.data, "2 is not a column, or occurs twice"));
	const struct ir_wexpr *both[] = {wexpr_slice(a, 0, 1, 2, e), e, m};
	const struct ir_wexpr *below = wexpr_without_columns(a, wexpr_concat(a, 0, 2, both), &order);
	ck_assert_ptr_nonnull(below);
	ck_assert(wexpr_equal(order, leaf("order")));
	EXPECT(below, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
	ck_assert_ptr_null(wexpr_without_columns(a, wexpr_concat(a, 0, 3, both), &order)); /* m is in order */
	ck_assert_ptr_null(wexpr_without_columns(a, wexpr_transpose(a, e), &order));
	both[0] = wexpr_columns(a, m, leaf("wrong"));
	ck_assert_ptr_null(wexpr_without_columns(a, wexpr_concat(a, 0, 2, both), &order));
}
END_TEST

START_TEST(turns_positions)
{
	struct arena *a = &fx.arena;
	const double f[] = {1, 0.25}, g[] = {1, 0.5};
	const struct ir_wexpr *e = wexpr_rotary(a, 3, 2, f, 2);
	EXPECT(e, 2, 2, 0, 0, 2 * cos(1), 2 * cos(0.25), 2 * sin(1), 2 * sin(0.25), 2 * cos(2), 2 * cos(0.5),
	       2 * sin(2), 2 * sin(0.5));
	expect_text(e, "rotary(rows=3, scale=2.0, frequencies=[1.0, 0.25])");
	ck_assert(wexpr_equal(e, wexpr_rotary(a, 3, 2, f, 2)));
	ck_assert(!wexpr_equal(e, wexpr_rotary(a, 3, 2, g, 2)));
	ck_assert(!wexpr_equal(e, wexpr_rotary(a, 3, 1, f, 2)));
}
END_TEST

START_TEST(orders_rope_rows)
{
	struct arena *a = &fx.arena;
	const struct ir_wexpr *v = leaf("v");
	/* one head of 8: halves (0..3, 4..7) */
	EXPECT(wexpr_rope(a, WX_ROPE_H2I, 1, v), 0, 4, 1, 5, 2, 6, 3, 7);
	EXPECT(wexpr_rope(a, WX_ROPE_I2H, 1, v), 0, 2, 4, 6, 1, 3, 5, 7);
	/* two heads of 4 */
	EXPECT(wexpr_rope(a, WX_ROPE_H2I, 2, v), 0, 2, 1, 3, 4, 6, 5, 7);
	EXPECT(wexpr_rope(a, WX_ROPE_I2H, 2, wexpr_rope(a, WX_ROPE_H2I, 2, v)), 0, 1, 2, 3, 4, 5, 6, 7);
	EXPECT(wexpr_rope(a, WX_ROPE_H2I, 1, wexpr_reshape(a, 2, (int64_t[]){4, 2}, v)), 0, 1, 4, 5, 2, 3, 6,
	       7);
}
END_TEST

START_TEST(computes)
{
	struct arena *a = &fx.arena;
	const struct ir_wexpr *m = leaf("m"), *row = leaf("row");
	EXPECT(wexpr_binary(a, WX_MUL, m, row), 0, 0, 0, 0, 4, 5, 6, 7, 16, 18, 20, 22);
	EXPECT(wexpr_binary(a, WX_MUL, m, wexpr_reshape(a, 2, (int64_t[]){3, 1}, row)), 0, 0, 0, 0, 4, 5, 6,
	       7, 16, 18, 20, 22);
	EXPECT(wexpr_binary(a, WX_MUL, row, wexpr_full(a, 10, 0, NULL)), 0, 10, 20);
	EXPECT(wexpr_binary(a, WX_DIV, row, wexpr_full(a, 4, 1, (int64_t[]){1})), 0, 0.25, 0.5);
	EXPECT(wexpr_binary(a, WX_MUL, m, m), 0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121);
	EXPECT(wexpr_offset(a, 1, row), 1, 2, 3);
	const struct ir_wexpr *left = wexpr_reshape(a, 2, (int64_t[]){3, 2},
	                                            wexpr_slice(a, 0, 0, 6, leaf("v"))),
	                      *right = wexpr_slice(a, 0, 0, 2, m), *e = wexpr_lowrank(a, 0.5, m, left, right);
	EXPECT(e, 2, 3.5, 5, 6.5, 10, 13.5, 17, 20.5, 18, 23.5, 29, 34.5);
	EXPECT(wexpr_transpose(a, e), 2, 10, 18, 3.5, 13.5, 23.5, 5, 17, 29, 6.5, 20.5, 34.5);
	ck_assert(wexpr_equal(e, wexpr_lowrank(a, 0.5, m, left, right)));
	ck_assert(!wexpr_equal(e, wexpr_lowrank(a, 0.25, m, left, right)));
	ck_assert_ptr_null(wexpr_lowrank(a, 1, m, right, left));
	ck_assert_ptr_null(wexpr_lowrank(a, 1, m, left, wexpr_slice(a, 0, 0, 1, m)));
	ck_assert_ptr_null(wexpr_lowrank(a, 1, leaf("v"), left, right));
}
END_TEST

START_TEST(repeats)
{
	struct arena *a = &fx.arena;
	const struct ir_wexpr *m = leaf("m");
	EXPECT(wexpr_repeat(a, 0, 3, leaf("row")), 0, 0, 0, 1, 1, 1, 2, 2, 2);
	EXPECT(wexpr_repeat(a, 1, 2, wexpr_slice(a, 0, 0, 2, wexpr_slice(a, 1, 0, 2, m))), 0, 0, 1, 1, 4, 4,
	       5, 5);
	EXPECT(wexpr_repeat(a, 0, 2, wexpr_slice(a, 0, 1, 3, m)), 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9,
	       10, 11);
	/* more than one chunk */
	const double *v = values_of(wexpr_repeat(a, 0, 4, leaf("rows")));
	for (int64_t i = 0; i < 8192; i++)
		ck_assert(v[i] == (double)(i / 4));
}
END_TEST

START_TEST(streams_large_ranges)
{
	struct arena *a = &fx.arena;
	const struct ir_wexpr *t = wexpr_transpose(a, wexpr_offset(a, 1, leaf("big")));
	const double *v = values_of(t);
	for (int64_t i = 0; i < 4 * 2048; i++)
		ck_assert(v[i] == (double)(i % 2048 * 4 + i / 2048 + 1));
	const struct ir_wexpr *rows = wexpr_binary(a, WX_MUL, leaf("big"), leaf("rows"));
	v = values_of(rows);
	for (int64_t i = 0; i < 4 * 2048; i++)
		ck_assert(v[i] == (double)(i * (i / 4)));
	/* Names are looked up once a call, not once a row. */
	fx.store.reads = 0;
	double out[4096];
	ck_assert_int_eq(wexpr_eval(&fx.cx, t, &fx.source, 0, 4096, out), TFMC_OK);
	ck_assert_uint_eq(fx.store.reads, 1);
}
END_TEST

START_TEST(reads_every_stored_type)
{
	static const uint16_t f16[] = {0x3c00, 0xc000, 0x7bff}, bf16[] = {0x3f80, 0xc000, 0x0001};
	static const double f64[] = {1e300, -0.5, 3};
	static const int8_t i8[] = {-128, 0, 127};
	static const uint8_t u8[] = {255, 0, 7}, flags[] = {0, 1, 2};
	static const int32_t i32[] = {INT32_MIN, 0, INT32_MAX};
	static const int64_t i64[] = {-(INT64_C(1) << 53), 5, INT64_C(1) << 53};
	const struct {
		enum ir_dtype dtype;
		const void *data;
		double want[3];
	} cases[] = {
	        {DT_F16, f16, {1, -2, 65504}},
	        {DT_BF16, bf16, {1, -2, 0x1p-133}},
	        {DT_F64, f64, {1e300, -0.5, 3}},
	        {DT_I8, i8, {-128, 0, 127}},
	        {DT_U8, u8, {255, 0, 7}},
	        {DT_I32, i32, {-2147483648.0, 0, 2147483647.0}},
	        {DT_I64, i64, {-9007199254740992.0, 5, 9007199254740992.0}},
	        {DT_BOOL, flags, {0, 1, 1}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fx.items[0] = (struct stored){
		        "m", {.data = cases[i].data, .dtype = cases[i].dtype, .rank = 1, .dims = {3}}};
		expect(leaf("m"), 3, cases[i].want);
	}
}
END_TEST

START_TEST(rounds_weights)
{
	static const double near[] = {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, 1 + 3 * 0x1p-8, -0x1p-126 - 0x1p-134};
	static const float far[] = {65519.9f, -65504, 0x1p-25f, 0x1.8p-25f, -HUGE_VALF};
	static const uint16_t bf16[] = {0x3f80, 0xc001, 0x3f81};
	struct arena *a = &fx.arena;
	fx.items[0] = (struct stored){"near", {.data = near, .dtype = DT_F64, .rank = 2, .dims = {2, 2}}};
	fx.items[1] = (struct stored){"far", {.data = far, .dtype = DT_F32, .rank = 1, .dims = {5}}};
	fx.items[2] = (struct stored){"kept", {.data = bf16, .dtype = DT_BF16, .rank = 1, .dims = {3}}};
	/* Once: by way of f32 the second one would be halfway, too. */
	EXPECT(wexpr_round(a, DT_BF16, leaf("near")), 1, 1 + 0x1p-7, 1 + 0x1p-6, -0x1p-126);
	EXPECT(wexpr_round(a, DT_BF16, wexpr_transpose(a, leaf("near"))), 1, 1 + 0x1p-6, 1 + 0x1p-7,
	       -0x1p-126);
	EXPECT(wexpr_round(a, DT_F16, leaf("far")), 65504, -65504, 0, 0x1p-24, -HUGE_VAL);
	EXPECT(wexpr_round(a, DT_BF16, wexpr_offset(a, 256, leaf("kept"))), 256, 254, 258);
	EXPECT(wexpr_round(a, DT_F16, leaf("kept")), 1, -2 - 0x1p-6, 1 + 0x1p-7);
}
END_TEST

START_TEST(rounds_what_is_stored)
{
	static const float big[] = {1, 65520}, sum[] = {3e38f, 3e38f};
	struct arena *a = &fx.arena;
	double out[2];
	fx.items[0] = (struct stored){"big", {.data = big, .dtype = DT_F32, .rank = 1, .dims = {2}}};
	fx.items[1] = (struct stored){"sum", {.data = sum, .dtype = DT_F32, .rank = 1, .dims = {2}}};
	const struct ir_wexpr *e = wexpr_round(a, DT_F16, wexpr_slice(a, 0, 0, 2, leaf("big")));
	expect_text(e, "slice(0, 0, 2, round(f16, tensor \"f\":\"big\" f32[2]))");
	ck_assert(wexpr_fits_format(e, FORMAT_F16) && !wexpr_fits_format(e, FORMAT_BF16) &&
	          wexpr_format(e) == FORMAT_F16);
	ck_assert_ptr_eq(wexpr_round(a, DT_F16, e), e);
	ck_assert(!wexpr_equal(wexpr_round(a, DT_F16, leaf("big")), wexpr_round(a, DT_BF16, leaf("big"))));
	ck_assert(wexpr_equal(wexpr_round(a, DT_F16, leaf("big")), wexpr_round(a, DT_F16, leaf("big"))));
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, &fx.source, 0, 1, out), TFMC_OK);
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, &fx.source, 0, 2, out), TFMC_INVALID);
	ck_assert_ptr_nonnull(strstr(fx.messages.data, "65520 in tensor 'big' of 'f' is too large for f16"));
	ck_assert_ptr_nonnull(strstr(fx.messages.data, "E408"));
	e = wexpr_round(a, DT_BF16, wexpr_binary(a, WX_MUL, leaf("sum"), leaf("sum")));
	expect_text(e, "round(bf16, mul(tensor \"f\":\"sum\" f32[2], tensor \"f\":\"sum\" f32[2]))");
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, &fx.source, 0, 2, out), TFMC_INVALID);
	expect_text(wexpr_round(a, DT_BF16, wexpr_full(a, 0.1, 0, NULL)), "round(bf16, full(0.1, []))");
	expect_text(wexpr_round(a, DT_BF16, wexpr_full(a, 0.5, 0, NULL)), "full(0.5, [])");
	ck_assert_ptr_null(wexpr_round(a, DT_F16, NULL));
}
END_TEST

START_TEST(computes_sinusoids)
{
	for (int layout = 0; layout < 2; layout++) {
		for (int spacing = 0; spacing < 2; spacing++) {
			const struct ir_wexpr *e =
			        wexpr_sinusoid(&fx.arena, 5, 8, (enum ir_sinusoid_layout)layout,
			                       (enum ir_sinusoid_spacing)spacing, 2, 10000);
			const double *v = values_of(e);
			for (int row = 0; row < 5; row++) {
				for (int j = 0; j < 4; j++) {
					double w = spacing == SINUSOID_T2T ? pow(10000, -j / 3.0)
					                                   : pow(10000, -2.0 * j / 8);
					int s = layout == SINUSOID_HALVES ? j : 2 * j;
					int c = layout == SINUSOID_HALVES ? j + 4 : 2 * j + 1;
					ck_assert_double_eq_tol(v[row * 8 + s], sin((row + 2) * w), 1e-15);
					ck_assert_double_eq_tol(v[row * 8 + c], cos((row + 2) * w), 1e-15);
				}
			}
		}
	}
}
END_TEST

START_TEST(refuses_misfits)
{
	struct arena *a = &fx.arena;
	const struct ir_wexpr *m = leaf("m"), *v = leaf("v"), *row = leaf("row");
	const struct ir_wexpr *mixed[] = {m, v};
	int64_t huge[] = {INT64_C(1) << 32, INT64_C(1) << 31};
	ck_assert_ptr_null(wexpr_stack(a, 2, mixed));
	ck_assert_ptr_null(wexpr_stack(a, 0, mixed));
	ck_assert_ptr_null(wexpr_concat(a, 0, 2, mixed));
	ck_assert_ptr_null(wexpr_concat(a, 1, 1, (const struct ir_wexpr *[]){v}));
	ck_assert_ptr_null(wexpr_index(a, 0, 3, m));
	ck_assert_ptr_null(wexpr_index(a, 0, -1, m));
	ck_assert_ptr_null(wexpr_index(a, 2, 0, m));
	ck_assert_ptr_null(wexpr_slice(a, 0, 2, 1, m));
	ck_assert_ptr_null(wexpr_slice(a, 0, 0, 4, m));
	ck_assert_ptr_null(wexpr_reshape(a, 1, (int64_t[]){11}, m));
	ck_assert_ptr_null(wexpr_rope(a, WX_ROPE_H2I, 3, v));
	ck_assert_ptr_null(wexpr_rope(a, WX_ROPE_H2I, 8, v));
	ck_assert_ptr_null(wexpr_rope(a, WX_ROPE_H2I, 0, v));
	ck_assert_ptr_null(wexpr_binary(a, WX_MUL, row, m));
	ck_assert_ptr_null(wexpr_binary(a, WX_MUL, m, v));
	ck_assert_ptr_null(wexpr_full(a, 0, 2, huge));
	ck_assert_ptr_null(wexpr_full(a, 0, 1, (int64_t[]){-1}));
	ck_assert_ptr_null(wexpr_tensor(a, "f", "t", DT_F32, IR_RANK_MAX + 1, huge));
	ck_assert_ptr_null(wexpr_sinusoid(a, 4, 7, SINUSOID_HALVES, SINUSOID_PAPER, 0, 10000));
	ck_assert_ptr_null(wexpr_sinusoid(a, 4, 2, SINUSOID_HALVES, SINUSOID_T2T, 0, 10000));
	ck_assert_ptr_null(wexpr_rotary(a, 4, 1, (double[]){1}, 0));
	ck_assert_ptr_null(wexpr_rotary(a, 4, HUGE_VAL, (double[]){1}, 1));
	ck_assert_ptr_null(wexpr_rotary(a, 4, 1, (double[]){1, NAN}, 2));
	ck_assert_ptr_null(wexpr_rotary(a, INT64_MAX, 1, (double[]){1, 1}, 2));
	ck_assert_ptr_null(wexpr_offset(a, 2, NULL));
	ck_assert_ptr_null(wexpr_repeat(a, 1, 2, v));
	ck_assert_ptr_null(wexpr_repeat(a, 0, 0, v));
	ck_assert_ptr_null(wexpr_repeat(a, 0, INT64_MAX, v));
	for (int i = 1; i < WEXPR_DEPTH_MAX; i++)
		v = wexpr_offset(a, 2, v);
	ck_assert_ptr_nonnull(v);
	ck_assert_ptr_null(wexpr_offset(a, 2, v));
	/* A shape without elements exists, however large its other axes are. */
	ck_assert_int_eq(wexpr_count(wexpr_full(a, 1, 3, (int64_t[]){INT64_MAX, INT64_MAX, 0})), 0);
}
END_TEST

START_TEST(reports_other_files)
{
	const struct ir_wexpr *e = leaf("m");
	double out[12];
	fx.items[0].bytes.dims[0] = 5;
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, &fx.source, 0, 12, out), TFMC_INVALID);
	ck_assert_ptr_nonnull(
	        strstr(fx.messages.data, "tensor 'm' of 'f' is f32[5,4], the model was made with f32[3,4]"));
	ck_assert_ptr_nonnull(strstr(fx.messages.data, "E401"));
	fx.items[0].name = "other";
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, &fx.source, 0, 12, out), TFMC_IO);
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, NULL, 0, 12, out), TFMC_INVALID);
	ck_assert_int_eq(wexpr_eval(&fx.cx, e, NULL, 3, 0, out), TFMC_OK);
}
END_TEST

static const struct ir_wexpr *named(const char *name)
{
	return wexpr_tensor(&fx.arena, "f", name, DT_F16, 2, (int64_t[]){3, 4});
}

static const struct ir_wexpr *stack_of(const char *a, const char *b, const char *c)
{
	return wexpr_stack(&fx.arena, 3, (const struct ir_wexpr *[]){named(a), named(b), named(c)});
}

START_TEST(prints_counted_stacks)
{
	expect_text(stack_of("h.0.w", "h.1.w", "h.2.w"),
	            "stack(i in 0..3, tensor \"f\":\"h.{i}.w\" f16[3,4])");
	expect_text(stack_of("h9", "h10", "h11"), "stack(i in 9..12, tensor \"f\":\"h{i}\" f16[3,4])");
	expect_text(stack_of("10", "11", "12"), "stack(i in 10..13, tensor \"f\":\"{i}\" f16[3,4])");
	const struct ir_wexpr *items[3];
	for (size_t i = 0; i < 3; i++) {
		const struct ir_wexpr *parts[] = {named(arena_printf(&fx.arena, "q%zu", i)),
		                                  named(arena_printf(&fx.arena, "%zu.k", i)), named("same")};
		items[i] = wexpr_transpose(&fx.arena, wexpr_concat(&fx.arena, 0, 3, parts));
	}
	expect_text(wexpr_stack(&fx.arena, 3, items),
	            "stack(i in 0..3, transpose(concat(0, tensor \"f\":\"q{i}\" f16[3,4], tensor "
	            "\"f\":\"{i}.k\" f16[3,4], "
	            "tensor \"f\":\"same\" f16[3,4])))");
}
END_TEST

START_TEST(prints_lists)
{
	expect_text(stack_of("h.0.w", "h.2.w", "h.1.w"),
	            "stack(tensor \"f\":\"h.0.w\" f16[3,4], tensor \"f\":\"h.2.w\" "
	            "f16[3,4], tensor \"f\":\"h.1.w\" f16[3,4])");
	expect_text(stack_of("a0.{i}", "a1.{i}", "a2.{i}"),
	            "stack(tensor \"f\":\"a0.{i}\" f16[3,4], tensor \"f\":\"a1.{i}\" f16[3,4], tensor "
	            "\"f\":\"a2.{i}\" "
	            "f16[3,4])");
	/* two numbers run; a leading zero; equal elements; a number that is gone */
	ck_assert_ptr_nonnull(stack_of("0.0", "1.1", "2.2"));
	const struct ir_wexpr *lists[] = {stack_of("0.0", "1.1", "2.2"), stack_of("h00", "h01", "h02"),
	                                  stack_of("h", "h", "h"), stack_of("h0", "h1", "h")};
	for (size_t i = 0; i < 4; i++) {
		struct buf b;
		buf_init(&b);
		wexpr_print(&b, lists[i]);
		ck_assert_ptr_null(strstr(b.data, "{i}"));
		buf_destroy(&b);
	}
}
END_TEST

START_TEST(prints_every_kind)
{
	struct arena *a = &fx.arena;
	const struct ir_wexpr *x = wexpr_full(a, 0, 1, (int64_t[]){8});
	expect_text(x, "full(0.0, [8])");
	expect_text(wexpr_full(a, 1.5, 0, NULL), "full(1.5, [])");
	expect_text(wexpr_concat(a, 0, 2, (const struct ir_wexpr *[]){x, x}),
	            "concat(0, full(0.0, [8]), full(0.0, [8]))");
	expect_text(wexpr_index(a, 0, 3, x), "index(0, 3, full(0.0, [8]))");
	expect_text(wexpr_slice(a, 0, 0, 3, x), "slice(0, 0, 3, full(0.0, [8]))");
	expect_text(wexpr_reshape(a, 2, (int64_t[]){2, 4}, x), "reshape([2,4], full(0.0, [8]))");
	expect_text(wexpr_rope(a, WX_ROPE_H2I, 2, x), "rope_halves_to_interleaved(2, full(0.0, [8]))");
	expect_text(wexpr_rope(a, WX_ROPE_I2H, 2, x), "rope_interleaved_to_halves(2, full(0.0, [8]))");
	expect_text(wexpr_binary(a, WX_MUL, x, x), "mul(full(0.0, [8]), full(0.0, [8]))");
	expect_text(wexpr_binary(a, WX_DIV, x, x), "div(full(0.0, [8]), full(0.0, [8]))");
	expect_text(wexpr_offset(a, 1, x), "offset(1.0, full(0.0, [8]))");
	expect_text(wexpr_repeat(a, 0, 4, x), "repeat(0, 4, full(0.0, [8]))");
	expect_text(wexpr_sinusoid(a, 64, 32, SINUSOID_HALVES, SINUSOID_T2T, 1, 10000),
	            "sinusoid(rows=64, dim=32, layout=halves, spacing=t2t, start=1, base=10000.0)");
}
END_TEST

START_TEST(compares)
{
	const struct ir_wexpr *a = stack_of("h.0", "h.1", "h.2"), *b = stack_of("h.0", "h.1", "h.2");
	ck_assert(wexpr_equal(a, b));
	ck_assert(!wexpr_equal(a, stack_of("h.0", "h.1", "h.3")));
	ck_assert(!wexpr_equal(a, wexpr_offset(&fx.arena, 1, a)));
	ck_assert(!wexpr_equal(wexpr_full(&fx.arena, 0.0, 0, NULL), wexpr_full(&fx.arena, -0.0, 0, NULL)));
	ck_assert(!wexpr_equal(a, NULL));
}
END_TEST

Suite *suite_weight(void)
{
	Suite *s = suite_create("weight");
	TCase *t = tcase_create("all");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, moves_bits, 0, 2);
	tcase_add_test(t, moves_elements);
	tcase_add_test(t, orders_columns);
	tcase_add_test(t, turns_positions);
	tcase_add_test(t, orders_rope_rows);
	tcase_add_test(t, computes);
	tcase_add_test(t, repeats);
	tcase_add_test(t, streams_large_ranges);
	tcase_add_test(t, reads_every_stored_type);
	tcase_add_test(t, rounds_weights);
	tcase_add_test(t, rounds_what_is_stored);
	tcase_add_test(t, computes_sinusoids);
	tcase_add_test(t, refuses_misfits);
	tcase_add_test(t, reports_other_files);
	tcase_add_test(t, prints_counted_stacks);
	tcase_add_test(t, prints_lists);
	tcase_add_test(t, prints_every_kind);
	tcase_add_test(t, compares);
	suite_add_tcase(s, t);
	return s;
}
