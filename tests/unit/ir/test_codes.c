/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats of codes: codes for rows and back, by themselves and as weight expressions, of which every sub-range and
 * every way to move rows gives the same numbers. The squared error of a block is at most that of half a step for each
 * element, the step being found anew here from the elements.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/buf.h"
#include "ir/weights/weight.h"

#define ROWS    6
#define LONGEST 600

static struct arena arena;
static struct diag_context cx;
static struct buf messages;
static float stored[ROWS * LONGEST];
static int64_t width; /* of a row */
static float inputs[2 * LONGEST];

static enum tfmc_status read_stored(void *user, struct diag_context *c, const char *file, const char *tensor,
                                    struct weight_bytes *out)
{
	(void)user, (void)c, (void)file;
	*out = (struct weight_bytes){.data = stored, .dtype = DT_F32, .rank = 2, .dims = {ROWS, width}};
	if (!strcmp(tensor, "inputs"))
		*out = (struct weight_bytes){.data = inputs, .dtype = DT_F32, .rank = 2, .dims = {2, width}};
	return TFMC_OK;
}
static const struct weight_source source = {.read = read_stored, .user = NULL};

static void setup(void)
{
	uint32_t state = 1;
	for (size_t i = 0; i < TFMC_COUNT(stored); i++) {
		state = state * 1664525u + 1013904223u;
		stored[i] =
		        (float)((int32_t)state / 0x1p31) * (i % 97 == 0 ? 30 : 1) * (i % 5 == 0 ? 0.01f : 1);
	}
	arena_init(&arena);
	buf_init(&messages);
	diag_init(&cx, diag_render_text, &messages);
}

static void teardown(void)
{
	diag_destroy(&cx);
	buf_destroy(&messages);
	arena_destroy(&arena);
}

static const struct ir_wexpr *matrix(int64_t k)
{
	width = k;
	return wexpr_tensor(&arena, "f", "m", DT_F32, 2, (int64_t[]){ROWS, k});
}

static double *values(const struct ir_wexpr *e)
{
	double *out = arena_alloc(&arena, (size_t)wexpr_count(e) * sizeof(*out) + 1);
	ck_assert_int_eq(wexpr_eval(&cx, e, &source, 0, wexpr_count(e), out), TFMC_OK);
	return out;
}

/* Half the distance of neighbouring codes of this block, with what rounding of scales and offsets may add. */
static double step_of(const struct ir_format_desc *d, const float *x, int64_t n)
{
	double least = x[0], most = x[0];
	for (int64_t i = 1; i < n; i++) {
		least = fmin(least, (double)x[i]);
		most = fmax(most, (double)x[i]);
	}
	double far = fmax(-least, most), half = d->codebook ? 0.17 : 0.5 / ((1 << (d->bits - 1)) - 1);
	double range = d->has_offset ? 2 * far : far;
	return range * half * (d->super > 1 ? 1.2 : 1.02) + (d->super > 1 ? 0.3 : 1e-3 * far);
}

static const int64_t widths[] = {1, 16, 31, 32, 33, 96, 128, 129, 256, 300, LONGEST};

START_TEST(is_near)
{
	enum ir_format f = (enum ir_format)_i;
	const struct ir_format_desc *d = ir_format(f);
	if (!ir_format_is_quantized(f))
		return;
	for (size_t w = 0; w < TFMC_COUNT(widths); w++) {
		int64_t k = widths[w], block = d->block ? d->block : k;
		const double *got = values(wexpr_quantize(&arena, f, matrix(k), NULL));
		double most = d->bits < 8 && !d->codebook && !d->has_offset ? 2 : 1, sum = 0;
		for (int64_t i = 0; i < ROWS * k; i++) {
			int64_t begin = i - i % k % block, end = i - i % k + k;
			int64_t n = end - begin < block ? end - begin : block;
			double step = most * step_of(d, stored + begin, n),
			       error = got[i] - (double)stored[i];
			sum = i == begin ? error * error : sum + error * error;
			ck_assert_double_eq(got[i], (double)(float)got[i]);
			ck_assert_msg(i + 1 < begin + n || sum <= (double)n * step * step,
			              "%s, %lld columns, block at %lld: squared error %g", d->name,
			              (long long)k, (long long)begin, sum);
		}
	}
}
END_TEST

/* Numbers of a format are their own nearest ones, but where scales are rounded twice. */
START_TEST(moves_rows)
{
	enum ir_format f = (enum ir_format)_i;
	if (!ir_format_is_quantized(f))
		return;
	const struct ir_wexpr *q = wexpr_quantize(&arena, f, matrix(96), NULL);
	const struct ir_wexpr *parts[] = {wexpr_slice(&arena, 0, 4, 6, q), q};
	const struct ir_wexpr *all[] = {
	        wexpr_concat(&arena, 0, 2, parts),
	        wexpr_rope(&arena, WX_ROPE_H2I, 1, q),
	        wexpr_stack(&arena, 2, (const struct ir_wexpr *[]){q, q}),
	        wexpr_reshape(&arena, 3, (int64_t[]){2, 3, 96}, q),
	        wexpr_repeat(&arena, 0, 2, q),
	        wexpr_index(&arena, 0, 1, wexpr_reshape(&arena, 3, (int64_t[]){2, 3, 96}, q))};
	for (size_t i = 0; i < TFMC_COUNT(all); i++) {
		const struct ir_wexpr *e = all[i];
		int64_t n = wexpr_count(e), rows = n / 96;
		struct weight_quants quants;
		ck_assert(wexpr_fits_format(e, f) && wexpr_format(e) == f);
		ck_assert(weight_quants_alloc(&quants, f, 96, rows));
		ck_assert_int_eq(wexpr_eval_to(&cx, e, &source, 0, n, (struct wexpr_out){.quants = quants}),
		                 TFMC_OK);
		double *decoded = arena_alloc(&arena, (size_t)n * sizeof(*decoded));
		weight_dequantize(&quants, rows, decoded);
		ck_assert_mem_eq(decoded, values(e), (size_t)n * sizeof(*decoded));
		weight_quants_free(&quants);
	}
	const struct ir_wexpr *none[] = {wexpr_transpose(&arena, q), wexpr_slice(&arena, 1, 1, 33, q),
	                                 wexpr_reshape(&arena, 2, (int64_t[]){12, 48}, q),
	                                 wexpr_offset(&arena, 1, q), wexpr_round(&arena, DT_BF16, q)};
	for (size_t i = 0; i < TFMC_COUNT(none); i++)
		ck_assert(!wexpr_fits_format(none[i], f) && wexpr_format(none[i]) != f);
}
END_TEST

/* Rows are joined at the ends of blocks and super-blocks, with zeros or with each other. */
START_TEST(joins_blocks)
{
	enum ir_format f = (enum ir_format)_i;
	const struct ir_format_desc *d = ir_format(f);
	if (!ir_format_is_quantized(f))
		return;
	const struct ir_wexpr *q = wexpr_quantize(&arena, f, matrix(256), NULL);
	const struct ir_wexpr *zeros = wexpr_full(&arena, 0, 2, (int64_t[]){ROWS, 256});
	const struct ir_wexpr *few = wexpr_full(&arena, 0, 2, (int64_t[]){ROWS, 5});
	const struct ir_wexpr *joined[] = {
	        wexpr_concat(&arena, 1, 2, (const struct ir_wexpr *[]){q, few}),
	        wexpr_concat(&arena, 1, 3, (const struct ir_wexpr *[]){zeros, q, q})};
	for (size_t i = 0; i < TFMC_COUNT(joined); i++) {
		const struct ir_wexpr *e = joined[i];
		int64_t n = wexpr_count(e);
		struct weight_quants quants;
		ck_assert_int_eq(wexpr_fits_format(e, f), d->block > 0);
		if (d->block == 0)
			continue;
		ck_assert(weight_quants_alloc(&quants, f, e->dims[1], ROWS));
		ck_assert_int_eq(wexpr_eval_to(&cx, e, &source, 0, n, (struct wexpr_out){.quants = quants}),
		                 TFMC_OK);
		double *decoded = arena_alloc(&arena, (size_t)n * sizeof(*decoded));
		weight_dequantize(&quants, ROWS, decoded);
		const double *expected = values(e);
		for (int64_t k = 0; k < n; k++)
			ck_assert_double_eq(decoded[k], expected[k]);
		weight_quants_free(&quants);
	}
	ck_assert(!wexpr_fits_format(wexpr_concat(&arena, 1, 2, (const struct ir_wexpr *[]){few, q}), f));
}
END_TEST

/* mean (sum of e(k) z(k))^2 of inputs z whose columns are independent, of all rows. */
static double expected_error(const double *got)
{
	double all = 0;
	for (int64_t r = 0; r < ROWS; r++) {
		double sum = 0;
		for (int64_t k = 0; k < width; k++) {
			double e = got[r * width + k] - (double)stored[r * width + k],
			       mean = (double)inputs[width + k];
			all += ((double)inputs[k] - mean * mean) * e * e;
			sum += mean * e;
		}
		all += sum * sum;
	}
	return all;
}

/* Known inputs reduce bounds of large errors, and correlated errors cancel. */
START_TEST(errors_count_by_inputs)
{
	enum ir_format f = (enum ir_format)_i;
	const struct ir_wexpr *m = matrix(300);
	const struct ir_wexpr *in = wexpr_tensor(&arena, "f", "inputs", DT_F32, 2, (int64_t[]){2, 300});
	if (!ir_format_is_quantized(f))
		return;
	memset(inputs, 0, sizeof(inputs));
	const double *plain = values(wexpr_quantize(&arena, f, m, NULL));
	ck_assert_mem_eq(plain, values(wexpr_quantize(&arena, f, m, in)), sizeof(*plain) * ROWS * 300);
	for (int k = 0; k < 300; k++) {
		inputs[300 + k] = (float)(k % 7 - 2) / 4;
		inputs[k] =
		        inputs[300 + k] * inputs[300 + k] + (float)(k % 11 + 1) / 8 * (k % 5 == 0 ? 9 : 1);
	}
	double before = expected_error(plain),
	       after = expected_error(values(wexpr_quantize(&arena, f, m, in)));
	ck_assert_msg(after < 0.9 * before, "%s: %g becomes %g", ir_format(f)->name, before, after);
}
END_TEST

START_TEST(evaluates_every_range)
{
	const struct ir_wexpr *q = wexpr_quantize(&arena, FORMAT_Q4_K, matrix(37), NULL);
	const double *all = values(q);
	double some[ROWS * 37];
	for (int64_t begin = 0; begin < ROWS * 37; begin += 5)
		for (int64_t n = 0; begin + n <= ROWS * 37; n += 13) {
			ck_assert_int_eq(wexpr_eval(&cx, q, &source, begin, n, some), TFMC_OK);
			ck_assert_mem_eq(some, all + begin, (size_t)n * sizeof(*some));
		}
}
END_TEST

/* Scales are searched for: with those that just reach the farthest element q8 has 0.0051 here. */
START_TEST(searches)
{
	static const struct {
		enum ir_format format;
		double most; /* root of the squared errors over that of the squares */
	} bounds[] = {{FORMAT_Q8, 0.0048}, {FORMAT_Q4A, 0.069}, {FORMAT_Q4_K, 0.0695}, {FORMAT_Q4S, 0.0646}};
	const struct ir_wexpr *m = matrix(512);
	uint32_t state = 7;
	for (int i = 0; i < ROWS * 512; i++) {
		stored[i] = 0;
		for (int k = 0; k < 12; k++) {
			state = state * 1664525u + 1013904223u;
			stored[i] += (float)((int32_t)state / 0x1p31);
		}
	}
	for (size_t b = 0; b < TFMC_COUNT(bounds); b++) {
		const double *got = values(wexpr_quantize(&arena, bounds[b].format, m, NULL));
		double errors = 0, squares = 0;
		for (int i = 0; i < ROWS * 512; i++) {
			errors += (got[i] - (double)stored[i]) * (got[i] - (double)stored[i]);
			squares += (double)stored[i] * (double)stored[i];
		}
		ck_assert_msg(sqrt(errors / squares) <= bounds[b].most, "%s: %g",
		              ir_format(bounds[b].format)->name, sqrt(errors / squares));
	}
}
END_TEST

/* Blocks that have every code of 4 bits, or the ends of more, are found again, with every shift. */
START_TEST(finds_what_it_holds)
{
	enum ir_format f = (enum ir_format)_i;
	const struct ir_format_desc *d = ir_format(f);
	if (!ir_format_is_quantized(f) || d->super > 1)
		return;
	const struct ir_wexpr *m = matrix(32);
	for (int turn = 0; turn < 32; turn++) {
		int shift = d->shift > 0 ? turn - 16 : 0;
		/* 4, and in its lowest bits the shift */
		double scale =
		        d->shift > 0 ? f16_to_f64((uint16_t)(0x4400 + turn)) / FORMAT_SHIFT_SCALE : 0.25;
		for (int i = 0; i < ROWS * 32; i++) {
			int n = (i * 7 + i / 32) % 16, least = ir_format_quant_min(d),
			    code = least + n * (ir_format_quant_max(d) - least) / 15;
			stored[i] = (float)(scale * ((d->codebook ? d->codebook[n] : code) + shift));
		}
		const double *got = values(wexpr_quantize(&arena, f, m, NULL));
		for (int i = 0; i < ROWS * 32; i++)
			ck_assert_msg(fabs(got[i] - (double)stored[i]) <= 2e-3 * scale,
			              "%s, shift %d: %g is %g", d->name, shift, (double)stored[i], got[i]);
	}
}
END_TEST

/* Zeros, one number beside which all others are nothing, numbers below the normal ones and in every order: what comes
 * is finite, and no worse than zeros. */
START_TEST(bears_odd_rows)
{
	static const float odd[][3] = {{0, 0, 0},           {3000, 1e-6f, 0},       {-3000, 1, 1},
	                               {1e-40f, 1e-45f, 0}, {-1e-7f, 2e-7f, 1e-6f}, {5, 5, 5}};
	enum ir_format f = (enum ir_format)_i;
	if (!ir_format_is_quantized(f))
		return;
	const struct ir_wexpr *m = matrix(300);
	for (int i = 0; i < ROWS * 300; i++) {
		const float *of = odd[i / 300];
		stored[i] = i % 300 == 77 ? of[0] : of[1 + i % 2];
	}
	const double *got = values(wexpr_quantize(&arena, f, m, NULL));
	for (int r = 0; r < ROWS; r++) {
		double errors = 0, squares = 0;
		for (int i = r * 300; i < (r + 1) * 300; i++) {
			double x = (double)stored[i];
			ck_assert(isfinite(got[i]));
			errors += (got[i] - x) * (got[i] - x);
			squares += x * x;
		}
		ck_assert_msg(errors <= squares, "%s, row %d: %g of %g", ir_format(f)->name, r, errors,
		              squares);
	}
}
END_TEST

/* A row with an element that is no number is refused, and one whose products would be beyond f32 although each element
 * is not. */
START_TEST(refuses_what_it_cannot_hold)
{
	enum ir_format f = (enum ir_format)_i;
	if (!ir_format_is_quantized(f))
		return;
	static const struct {
		float wrong, beside;
		const char *says;
	} rows[] = {{NAN, 0, "nan in tensor 'm' of 'f' cannot be "},
	            {-NAN, HUGE_VALF, "nan in tensor 'm' of 'f' cannot be "},
	            {-HUGE_VALF, 0, "-inf in tensor 'm' of 'f' is too large for "},
	            {3e38f, -2e38f, "3.00000001e+38 in tensor 'm' of 'f' is too large for "}};
	const struct ir_wexpr *e = matrix(64);
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		double out[64];
		const char *says = arena_printf(&arena, "%s%s [E408]", rows[i].says, ir_format(f)->name);
		stored[3 * 64 + 5] = rows[i].wrong;
		stored[3 * 64 + 63] = rows[i].beside;
		const struct ir_wexpr *q = wexpr_quantize(&arena, f, e, NULL);
		ck_assert_int_eq(wexpr_eval(&cx, q, &source, 2 * 64, 64, out), TFMC_OK);
		ck_assert_int_eq(wexpr_eval(&cx, q, &source, 3 * 64, 64, out), TFMC_INVALID);
		ck_assert_msg(strstr(messages.data, says) != NULL, "%s: %s", says, messages.data);
	}
}
END_TEST

/* FNV-1a of numbers, of which every bit counts. */
static uint32_t hash_of(const double *v, int64_t n)
{
	uint32_t h = 2166136261u;
	for (int64_t i = 0; i < n; i++) {
		float one = (float)v[i];
		uint32_t bits;
		memcpy(&bits, &one, sizeof(bits));
		h = (h ^ bits) * 16777619u;
	}
	return h;
}

/* The same numbers on every processor, with every width of its vectors and for any number of rows at once. */
START_TEST(is_the_same_everywhere)
{
	static const uint32_t known[IR_N_FORMATS][2] = {
	        [FORMAT_Q8_ROW] = {2705694099u, 705392727u},   [FORMAT_Q8] = {3894360805u, 1302806181u},
	        [FORMAT_Q8_128] = {1742302245u, 467486245u},   [FORMAT_Q8A] = {833541029u, 3582045301u},
	        [FORMAT_Q6_K] = {3630757803u, 2820726845u},    [FORMAT_Q2_K] = {1722513125u, 1009780453u},
	        [FORMAT_Q5] = {2072343397u, 3912637797u},      [FORMAT_Q5A] = {3464757605u, 1313198949u},
	        [FORMAT_Q3_K] = {620437765u, 3615216581u},     [FORMAT_Q5_K] = {947931465u, 3123520801u},
	        [FORMAT_Q4] = {4214095205u, 3033501029u},      [FORMAT_Q4_128] = {2017892709u, 3180313957u},
	        [FORMAT_Q4A] = {1282345189u, 4180879781u},     [FORMAT_Q4_K] = {3277701937u, 1491591993u},
	        [FORMAT_Q4G_32] = {661557947u, 2336992901u},   [FORMAT_Q4G_64] = {1426103663u, 4174096046u},
	        [FORMAT_Q4G_128] = {3233556630u, 1638524900u}, [FORMAT_IQ4_NL] = {329456741u, 1585023141u},
	        [FORMAT_IQ4_XS] = {44802459u, 381719729u},     [FORMAT_MXFP4] = {638704997u, 1266867557u},
	        [FORMAT_Q4S] = {2164717605u, 1574691557u},     [FORMAT_Q8F_32] = {587019998u, 1657399527u},
	        [FORMAT_Q8F_128] = {1283050020u, 3272474056u}, [FORMAT_Q8G_32] = {1788248652u, 3881514044u},
	        [FORMAT_Q8G_64] = {685485753u, 1004884558u},   [FORMAT_Q8G_128] = {1413632465u, 2849850833u},
	};
	enum ir_format f = (enum ir_format)_i;
	uint32_t hash[2];
	if (!ir_format_is_quantized(f))
		return;
	const struct ir_wexpr *m = matrix(300),
	                      *by = wexpr_tensor(&arena, "f", "inputs", DT_F32, 2, (int64_t[]){2, 300});
	for (int i = 0; i < 300; i++) {
		inputs[i] = (float)(1 + i % 7);
		inputs[300 + i] = (float)(i % 3) / 4;
	}
	for (int k = 0; k < 2; k++) {
		const struct ir_wexpr *q = wexpr_quantize(&arena, f, m, k ? by : NULL);
		const double *all = values(q);
		double row[300];
		for (int64_t r = 0; r < ROWS; r++) {
			ck_assert_int_eq(wexpr_eval(&cx, q, &source, r * 300, 300, row), TFMC_OK);
			ck_assert_mem_eq(row, all + r * 300, sizeof(row));
		}
		hash[k] = hash_of(all, ROWS * 300);
	}
	ck_assert_msg(hash[0] == known[f][0] && hash[1] == known[f][1], "%s: {%uu, %uu}", ir_format(f)->name,
	              hash[0], hash[1]);
}
END_TEST

START_TEST(refuses_misfits)
{
	const struct ir_wexpr *m = matrix(8), *flat = wexpr_reshape(&arena, 1, (int64_t[]){8 * ROWS}, m);
	const struct ir_wexpr *row = wexpr_full(&arena, 1, 1, (int64_t[]){8});
	ck_assert_ptr_nonnull(
	        wexpr_quantize(&arena, FORMAT_Q8, m, wexpr_full(&arena, 1, 2, (int64_t[]){2, 8})));
	ck_assert_ptr_null(wexpr_quantize(&arena, FORMAT_Q8, m, row));
	ck_assert_ptr_null(wexpr_quantize(&arena, FORMAT_Q8, m, wexpr_full(&arena, 1, 2, (int64_t[]){2, 7})));
	ck_assert_ptr_null(wexpr_quantize(&arena, FORMAT_Q8, flat, NULL));
	ck_assert_ptr_null(wexpr_quantize(&arena, FORMAT_BF16, m, NULL));
	ck_assert_ptr_null(wexpr_quantize(&arena, FORMAT_Q8, m, m));
	ck_assert_ptr_null(wexpr_quantize(&arena, FORMAT_Q8, NULL, NULL));
	ck_assert_ptr_null(wexpr_tensor_quants(&arena, "f", "m", FORMAT_Q8, 1, (int64_t[]){8}));
	ck_assert_ptr_null(wexpr_tensor_quants(&arena, "f", "m", FORMAT_F16, 2, (int64_t[]){8, 8}));
}
END_TEST

Suite *suite_codes(void)
{
	Suite *s = suite_create("codes");
	TCase *t = tcase_create("codes");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, is_near, 0, IR_N_FORMATS);
	tcase_add_loop_test(t, moves_rows, 0, IR_N_FORMATS);
	tcase_add_loop_test(t, joins_blocks, 0, IR_N_FORMATS);
	tcase_add_loop_test(t, refuses_what_it_cannot_hold, 0, IR_N_FORMATS);
	tcase_add_loop_test(t, finds_what_it_holds, 0, IR_N_FORMATS);
	tcase_add_loop_test(t, bears_odd_rows, 0, IR_N_FORMATS);
	tcase_add_loop_test(t, errors_count_by_inputs, 0, IR_N_FORMATS);
	tcase_add_loop_test(t, is_the_same_everywhere, 0, IR_N_FORMATS);
	tcase_add_test(t, evaluates_every_range);
	tcase_add_test(t, searches);
	tcase_add_test(t, refuses_misfits);
	suite_add_tcase(s, t);
	return s;
}
