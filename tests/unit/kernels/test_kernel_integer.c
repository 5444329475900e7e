/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears whose x is rounded, and whose weights are codes or bf16: bit for bit the sums of integers and the order of
 * sums of f32 that backends/kernels/matmul_lowp.c and matmul_amx.c promise, for every number of rows, workers and
 * every tile; and what the IR means.
 */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/object/llvm.h"
#include "ir/support/compiler.h"
#include "ir/target/tile.h"
#include "tests/support/effort.h"
#include "tests/support/kernels/linear_case.h"
#include "tests/support/kernels/padded.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4-vnni", "x86-64-v4-amx",
                                      "armv8.2-dotprod"};
static const enum ir_format formats[] = {
        FORMAT_Q8_ROW, FORMAT_Q8,     FORMAT_Q8_128, FORMAT_Q8A,   FORMAT_Q6_K,   FORMAT_Q5_K,
        FORMAT_Q4,     FORMAT_Q4_128, FORMAT_Q4A,    FORMAT_Q4_K,  FORMAT_Q4G_32, FORMAT_Q4G_64,
        FORMAT_Q2_K,   FORMAT_IQ4_NL, FORMAT_Q5,     FORMAT_Q5A,   FORMAT_Q3_K,   FORMAT_IQ4_XS,
        FORMAT_MXFP4,  FORMAT_Q4S,    FORMAT_Q8F_32, FORMAT_Q8G_64};
static const int64_t depths[] = {1, 31, 33, 95, 257, 320};
static const int64_t widths[] = {5, 16, 33, 80, 101};
static const int64_t shapes[][2] = {{1, 1}, {1, 2}, {3, 1},  {1, 5}, {1, 13},
                                    {2, 7}, {1, 0}, {1, 29}, {7, 18}};

#define EXPERTS 3
#define HEAD    "module \"m\" stage=groups dim B in [0,8] dim S in [0,128] "

/* ---- the reference ---- */

struct reference {
	const struct linear_case *c;
	const struct target *target;
	const struct linear_call *call;
	int64_t depth, block;
	bool bf16;
	bool matrix; /* by matrix tiles */
	bool odd;    /* bf16 with sums rounded to odd (kb_ops.def) */
	bool experts;
	bool parts;       /* x is a concat, whose rows the kernel makes before it rounds them */
	const char *nest; /* attributes of the group, by hand; NULL: none */
};

static struct activation_quant rounding_of(const struct reference *r)
{
	return (struct activation_quant){.bf16 = r->bf16, .block = r->block};
}

static float largest_of(const float *x, int64_t n)
{
	float most = 0;
	for (int64_t i = 0; i < n; i++)
		most = !isfinite(x[i]) ? HUGE_VALF : fabsf(x[i]) > most ? fabsf(x[i]) : most;
	return most;
}

/* The scale or offset of the block of element k. */
static float number_of(const struct reference *r, const float *numbers, const float *supers, int64_t row,
                       int64_t k)
{
	const struct ir_format_desc *d = ir_format(r->c->format);
	int64_t block = d->block > 0 ? k / d->block : 0;
	float v = numbers[row * ir_format_blocks(r->c->format, r->depth) + block];
	return supers ? v * supers[row * ir_format_super_blocks(r->c->format, r->depth) + block / d->super]
	              : v;
}

static float add_product(const struct reference *r, float a, float b, float sum)
{
	float product = a * b;
	return r->c->caps.has_fma ? fmaf(a, b, sum) : product + sum;
}

/* Elements [from, from + n), with the scale and inverse of x. merged: their blocks have integer scales and offsets,
 * which are applied to sums of integers. */
static float add_step(const struct reference *r, const float *x, int64_t row, int64_t from, int64_t n,
                      bool merged, float sum)
{
	const struct weight_quants *w = &r->call->codes;
	int64_t block = r->block > 0 ? r->block : r->depth, first = from / block * block, products = 0,
	        minima = 0;
	float most = largest_of(x + first, r->depth - first < block ? r->depth - first : block);
	float inverse = isfinite(127 / most) ? 127 / most : 0, scale = isfinite(most) ? most / 127 : NAN;
	for (int64_t k = from; k < from + n; k++) {
		float v = x[k] * inverse;
		int64_t q = isnan(v) ? 0 : (int64_t)rintf(v);
		ck_assert(q >= -127 && q <= 127);
		products += q * w->quants[row * r->depth + k] *
		            (merged ? (int64_t)number_of(r, w->scales, NULL, row, k) : 1);
		minima += q * (merged && w->offsets ? (int64_t)number_of(r, w->offsets, NULL, row, k) : 1);
	}
	ck_assert(products == (int32_t)products);
	if (merged) {
		int64_t super = row * ir_format_super_blocks(r->c->format, r->depth) + from / 256;
		ck_assert(llabs(products) <= 1 << 24 && llabs(minima) <= 1 << 24);
		sum = add_product(r, (float)products, scale * w->super_scales[super], sum);
		return w->offsets ? add_product(r, (float)minima, scale * w->super_offsets[super], sum) : sum;
	}
	sum = add_product(r, (float)(int32_t)products,
	                  scale * number_of(r, w->scales, w->super_scales, row, from), sum);
	if (w->offsets)
		sum = add_product(r, number_of(r, w->offsets, w->super_offsets, row, from),
		                  (float)minima * scale, sum);
	return sum;
}

/* Below the normal numbers is zero. */
static float flush(float v)
{
	return fabsf(v) < FLT_MIN ? copysignf(0, v) : v;
}

static float bf16_of(float v)
{
	return flush((float)ir_round(DT_BF16, (double)v));
}

/* Of the elements of 16 words the first and the second ones of pairs have sums of their own (kb.h). */
static float sum_of_tiles(const struct reference *r, const float *x, int64_t row)
{
	const float *w = (const float *)r->call->param[1] + row * r->depth;
	float sum = 0;
	for (int64_t from = 0; from < r->depth; from += 32) {
		float part[2] = {0, 0};
		for (int64_t k = from; k < r->depth && k < from + 32; k++)
			part[k % 2] = flush(fmaf(bf16_of(x[k]), flush(w[k]), part[k % 2]));
		sum = flush(sum + flush(part[0] + part[1]));
	}
	return sum;
}

/* Pairs in increasing k, the second of each first. */
static float sum_of_pairs(const struct reference *r, const float *x, int64_t row)
{
	const float *w = (const float *)r->call->param[1] + row * r->depth;
	float sum = 0;
	for (int64_t i = 0; i < r->depth + r->depth % 2; i++) {
		int64_t k = i ^ 1;
		float a = k < r->depth ? bf16_of(x[k]) : 0;
		sum = flush(add_product(r, a, k < r->depth ? flush(w[k]) : 0, sum));
	}
	return sum;
}

static float odd_sum(float a, float b)
{
	double sum = (double)a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
	float near = (float)sum;
	double remaining = sum - near + lost;
	uint32_t bits;
	memcpy(&bits, &near, 4);
	if (remaining != 0)
		bits = (bits - ((remaining < 0) != (near < 0))) | 1;
	memcpy(&near, &bits, 4);
	return flush(near);
}

static float sum_of_odd_pairs(const struct reference *r, const float *x, int64_t row)
{
	const float *w = (const float *)r->call->param[1] + row * r->depth;
	float sum = 0;
	for (int64_t k = 0; k < r->depth; k += 2) {
		float first = flush(bf16_of(x[k]) * flush(w[k])), second = 0;
		if (k + 1 < r->depth)
			second = flush(bf16_of(x[k + 1]) * flush(w[k + 1]));
		sum = odd_sum(sum, odd_sum(first, second));
	}
	return sum;
}

static float sum_of_integers(const struct reference *r, const float *x, int64_t row)
{
	int64_t step = quant_dot_block(r->c->format, rounding_of(r), r->depth);
	bool merged = tile_merges_dot_blocks(r->target, r->c->format, rounding_of(r), r->depth);
	float sum = 0;
	step = merged ? 32 : step > 0 ? step : r->depth;
	for (int64_t k = 0; k < r->depth; k += step)
		sum = add_step(r, x, row, k, r->depth - k < step ? r->depth - k : step, merged, sum);
	return sum;
}

static float sum_of(const struct reference *r, const float *x, int64_t row)
{
	if (!r->bf16)
		return sum_of_integers(r, x, row);
	if (r->odd)
		return sum_of_odd_pairs(r, x, row);
	return r->matrix ? sum_of_tiles(r, x, row) : sum_of_pairs(r, x, row);
}

/* Of a row of x; they are clamped. */
static int64_t expert_of(const struct linear_call *call, int64_t row)
{
	int32_t id = ((const int32_t *)call->param[3])[row];
	return id < EXPERTS ? id : EXPERTS - 1;
}

static void expect_bits(const struct reference *r, int64_t columns, const char *what)
{
	const struct linear_call *call = r->call;
	for (int64_t i = 0; i < call->n_out; i++) {
		const float *x = (const float *)call->param[0] + i / columns * r->depth;
		int64_t row = i % columns;
		if (r->experts)
			row += columns * expert_of(call, i / columns);
		float got = call->out[i], sum = sum_of(r, x, row);
		sum += ((const float *)call->param[2])[row];
		ck_assert_msg(memcmp(&got, &sum, 4) == 0 || (isnan(got) && isnan(sum)),
		              "%s, %s: K %d N %d rows %d: element %d is %a, expected %a",
		              ir_format(r->c->format)->name, what, (int)r->depth, (int)columns,
		              (int)(call->n_out / columns), (int)i, (double)got, (double)sum);
	}
}

/* ---- cases ---- */

/* mr 0: what the kernel chooses. */
struct schedule {
	int mr, nr, br;
};

static void write_text(struct buf *text, const struct reference *r, enum ir_format f, int64_t columns,
                       const struct schedule *s, const char *target)
{
	long long k = (long long)r->depth, n = (long long)columns;
	struct activation_row_layout row =
	        activation_row_layout(r->bf16 ? FORMAT_BF16 : f, rounding_of(r), r->depth);
	int64_t rows = s->br + (r->matrix ? AMX_OVERREAD_ROWS : 0), unpacked = 0;
	int64_t stage = r->matrix ? AMX_C_BUFFER_BYTES(s->br) : 0;
	if (!r->bf16) { /* for blocks of many rows */
		struct tile_unpacked_bytes of;
		ck_assert(tile_unpacked_bytes(target_find(target), f, rounding_of(r), r->depth, &of));
		unpacked = s->br * of.row + TILE_PANELS_MAX * of.panel;
	}
	char several[16] = "", parts[160] = "", concat[80] = "";
	if (r->experts)
		snprintf(several, sizeof(several), "%d,", EXPERTS);
	if (r->parts) {
		snprintf(parts, sizeof(parts),
		         "%%u = slice %%x {axis=2 begin=0 size=13} : f32[B,S,13] "
		         "%%v = slice %%x {axis=2 begin=13 size=%lld} : f32[B,S,%lld] ",
		         k - 13, k - 13);
		snprintf(concat, sizeof(concat), "pre %%t = concat %%u, %%v {axis=2} : f32[B,S,%lld] ", k);
	}
	buf_printf(text,
	           HEAD "func @f(%%x: f32[B,S,%lld], %%w: f32[%s%lld,%lld], %%b: f32[%s%lld]%s) -> (y: "
	                "f32[B,S,%lld]) { %s"
	                "%%y = group linear {mr=%d nr=%d br=%d scratch=%lld %s} { %spre %%r = quantize_rows "
	                "%s {to=%s "
	                "block=%d} : "
	                "f32[B,S,%lld] root %%h = %s, %%b : f32[B,S,%lld] yield %%h } : f32[B,S,%lld] "
	                "return %%y }",
	           k, several, n, k, several, n, r->experts ? ", %i: i32[B,S]" : "", n, parts, s->mr, s->nr,
	           s->br, (long long)((rows * row.bytes + 4 * k + 63) / 64 * 64 + unpacked + stage),
	           r->nest ? r->nest : "", concat, r->parts ? "%t" : "%x", r->bf16 ? "bf16" : "int8",
	           (int)r->block, k, r->experts ? "expert_linear %r, %w, %i" : "linear %r, %w", n, n);
}

static void check_shapes(struct reference *r, struct linear_case *c, int64_t columns)
{
	struct linear_call call;
	r->call = &call;
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		linear_call_init(c, &call, shapes[i][0], shapes[i][1]);
		for (int64_t workers = 1; workers <= 3; workers += 2) {
			if (!c->jit && !effort_is_all() && (int64_t)i % 2 != workers / 2)
				continue; /* interpreted: in turn */
			linear_run(c, &call, workers);
			expect_bits(r, columns, "workers");
		}
		linear_expect(c, &call);
	}
	linear_call_init(c, &call, 1, 3);
	linear_run_checked(c, &call, 2);
	if (c->caps.has_fma) /* the kernel interpreter rounds once */
		expect_bits(r, columns, "interpreted");
	linear_expect(c, &call);
}

/* f: codes, or BF16. */
static void check_case(enum ir_format f, int64_t depth, int n, const char *target, bool experts)
{
	static const struct schedule schedules[] = {{2, 16, 1024}, {3, 32, 8}, {6, 16, 13}, {1, 32, 1024}},
	                             of_matrix = {32, 32, 64};
	struct buf text;
	struct linear_case c;
	struct reference r = {.c = &c,
	                      .target = target_find(target),
	                      .depth = depth,
	                      .block = n % 3 == 0 ? 0 : 32,
	                      .bf16 = f == FORMAT_BF16,
	                      .matrix = !strcmp(target, "x86-64-v4-amx"),
	                      .odd = !strcmp(target, "armv8.6"),
	                      .experts = experts};
	struct linear_weights w = {.format = f, .is_streamed = n % 2 == 0};
	if (r.bf16)
		w = (struct linear_weights){.rounded = DT_BF16, .kept = DT_BF16, .is_streamed = n % 2 == 0};
	int64_t columns = experts ? 16 + n % 3 * 32 : widths[n % (int)TFMC_COUNT(widths)];
	if (!r.matrix && !experts && n % 4 == 0) /* the schedule of 2 rows */
		r.nest = "nc=16 nr1=16 order=blocks b=packed prefetch=next tiles=full";
	buf_init(&text);
	write_text(&text, &r, f, columns,
	           r.matrix && n % 2 ? &of_matrix : &schedules[n % (int)TFMC_COUNT(schedules)], target);
	linear_case_init_kept(&c, text.data, target, &w);
	check_shapes(&r, &c, columns);
	linear_case_destroy(&c);
	buf_destroy(&text);
}

/* Rows of padding are not computed, whatever rounds and multiplies. */
static void check_padded(enum ir_format f, int64_t depth, int n, const char *target)
{
	static const struct schedule schedules[] = {{2, 16, 1024}, {6, 16, 13}, {32, 32, 64}};
	struct buf text, with;
	struct linear_case some, all;
	bool is_matrix = !strcmp(target, "x86-64-v4-amx");
	struct reference r = {.c = &all,
	                      .target = target_find(target),
	                      .depth = depth,
	                      .block = n % 3 == 0 ? 0 : 32,
	                      .bf16 = f == FORMAT_BF16,
	                      .matrix = is_matrix};
	struct linear_weights w = {.format = f};
	if (r.bf16)
		w = (struct linear_weights){.rounded = DT_BF16, .kept = DT_BF16};
	buf_init(&text);
	buf_init(&with);
	write_text(&text, &r, f, 80, &schedules[is_matrix ? 2 : n % 2], target);
	padded_text(&with, text.data);
	linear_case_init_kept(&all, text.data, target, &w);
	linear_case_init_kept(&some, with.data, target, &w);
	linear_expect_padded(&some, &all, 3, 16);
	if (some.jit)
		linear_expect_padded(&some, &all, 3, 41);
	linear_expect_padded(&some, &all, 2, 0);
	linear_case_destroy(&some);
	linear_case_destroy(&all);
	buf_destroy(&with);
	buf_destroy(&text);
}

static const enum ir_format padded[] = {FORMAT_Q8_ROW, FORMAT_Q8, FORMAT_Q4_K, FORMAT_IQ4_NL, FORMAT_BF16};

START_TEST(test_padded)
{
	int i = _i / (int)TFMC_COUNT(targets);
	check_padded(padded[i], i % 2 ? 257 : 70, 2 * i + 1, targets[_i % (int)TFMC_COUNT(targets)]);
}
END_TEST

START_TEST(test_formats)
{
	const char *target = targets[_i % (int)TFMC_COUNT(targets)];
	int f = _i / (int)TFMC_COUNT(targets);
	check_case(formats[f], depths[(f + _i) % (int)TFMC_COUNT(depths)], _i + f, target, false);
}
END_TEST

START_TEST(test_depths)
{
	static const enum ir_format some[] = {FORMAT_Q8_ROW, FORMAT_Q8, FORMAT_Q4S, FORMAT_IQ4_NL};
	for (int i = 0; i < (int)TFMC_COUNT(depths); i++)
		check_case(some[_i], depths[i], i, _i == 3 ? "armv8.2-dotprod" : "x86-64-v4-vnni", false);
}
END_TEST

/* Bytes above 127 of weights that are not repacked, where x86 has no dot product of them, and quants of 5 bits, of
 * which i16 holds a few words. */
START_TEST(test_magnitudes)
{
	static const char *const all[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
	static const enum ir_format some[] = {FORMAT_Q8_ROW, FORMAT_Q8,     FORMAT_Q8_128, FORMAT_Q8A,
	                                      FORMAT_Q8G_64, FORMAT_IQ4_NL, FORMAT_IQ4_XS, FORMAT_Q4S,
	                                      FORMAT_Q5,     FORMAT_Q5A,    FORMAT_MXFP4};
	for (int i = 0; i < (int)TFMC_COUNT(some); i++)
		check_case(some[i], depths[(_i + i) % (int)TFMC_COUNT(depths)], 4 * (_i + i), all[_i], false);
}
END_TEST

/* Super-blocks whose factors one row keeps: several of them, then a part of one. */
START_TEST(test_super_blocks)
{
	static const enum ir_format some[] = {FORMAT_Q2_K, FORMAT_Q3_K, FORMAT_Q4_K,
	                                      FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_IQ4_XS};
	for (int i = 0; i < (int)TFMC_COUNT(some); i++)
		check_case(some[i], i % 2 ? 512 : 769, 5, targets[_i], false);
}
END_TEST

/* Dot blocks of 16 whose integer scales are applied to i16, in pairs, or one alone at the end of K; the scale of x is
 * that of 32 elements or of the row. */
START_TEST(test_merged_blocks)
{
	static const char *const all[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
	for (int i = 0; i < 2; i++) {
		enum ir_format f = (i + _i) % 2 ? FORMAT_Q3_K : FORMAT_Q2_K;
		struct activation_quant to = {.block = i ? 32 : 0};
		ck_assert(tile_merges_dot_blocks(target_find(all[_i]), f, to, 257));
		check_case(f, 257, 3 * _i + i, all[_i], false);
	}
}
END_TEST

START_TEST(test_bf16)
{
	static const char *const all[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "aarch64"};
	for (int i = 0; i < (int)TFMC_COUNT(depths); i++)
		check_case(FORMAT_BF16, depths[i], i, all[_i], false);
}
END_TEST

START_TEST(test_experts)
{
	static const enum ir_format some[] = {FORMAT_Q8_ROW, FORMAT_Q4_K, FORMAT_IQ4_NL, FORMAT_BF16};
	for (int i = 0; i < (int)TFMC_COUNT(depths); i++)
		check_case(some[i % (int)TFMC_COUNT(some)], depths[(_i + i) % (int)TFMC_COUNT(depths)],
		           _i + i, targets[_i], true);
}
END_TEST

/* The same bits where the kernel makes the rows that it rounds (im2col). */
START_TEST(test_rows_of_parts)
{
	static const struct {
		const char *target;
		enum ir_format format;
	} some[] = {{"x86-64-v2", FORMAT_Q8},          {"x86-64-v3", FORMAT_Q4},
	            {"x86-64-v4-vnni", FORMAT_Q8_ROW}, {"x86-64-v4-amx", FORMAT_Q8_ROW},
	            {"armv8.2-dotprod", FORMAT_Q4},    {"x86-64-v3", FORMAT_BF16},
	            {"x86-64-v4-bf16", FORMAT_BF16},   {"x86-64-v4-amx", FORMAT_BF16}};
	enum ir_format f = some[_i].format;
	const char *target = some[_i].target;
	struct linear_case c;
	struct reference r = {.c = &c,
	                      .target = target_find(target),
	                      .depth = 70,
	                      .block = f == FORMAT_Q8_ROW ? 0 : 32,
	                      .bf16 = f == FORMAT_BF16,
	                      .matrix = !strcmp(target, "x86-64-v4-amx"),
	                      .parts = true};
	const struct schedule s = {r.matrix ? 32 : 2, r.matrix ? 32 : 16, 64};
	struct linear_weights w = {.format = f};
	struct buf text;
	if (r.bf16)
		w = (struct linear_weights){.rounded = DT_BF16, .kept = DT_BF16};
	buf_init(&text);
	write_text(&text, &r, f, 33, &s, target);
	linear_case_init_kept(&c, text.data, target, &w);
	check_shapes(&r, &c, 33);
	linear_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

START_TEST(test_matrix_tiles)
{
	for (int i = 0; i < (int)TFMC_COUNT(depths); i++)
		check_case(_i ? FORMAT_BF16 : FORMAT_Q8_ROW, depths[i], 3 * i, "x86-64-v4-amx", false);
}
END_TEST

/* A call without rows of a kernel whose rows fill one tile at most. */
START_TEST(test_no_rows)
{
	const struct schedule s = {32, 32, 32};
	const char *target = "x86-64-v4-amx";
	struct buf text;
	struct linear_case c;
	struct linear_call call;
	struct reference r = {.c = &c, .depth = 70, .bf16 = _i == 1, .matrix = true};
	struct linear_weights w = {.format = FORMAT_Q8_ROW};
	if (r.bf16)
		w = (struct linear_weights){.rounded = DT_BF16, .kept = DT_BF16};
	buf_init(&text);
	write_text(&text, &r, w.format, 33, &s, target);
	memcpy(strstr(text.data, "[0,8]"), "[0,1]", 5);
	memcpy(strstr(text.data, "[0,128]"), "[0, 16]", 7);
	linear_case_init_kept(&c, text.data, target, &w);
	for (int64_t rows = 0; rows < 3; rows++) {
		linear_call_init(&c, &call, 1, rows);
		linear_run_checked(&c, &call, 2);
		linear_expect(&c, &call);
	}
	linear_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

/* Sums of steps by matrix tiles, from 16 rows on. */
START_TEST(test_matrix_steps)
{
	static const enum ir_format some[] = {FORMAT_Q8,     FORMAT_Q8_128, FORMAT_Q8A,    FORMAT_Q5_K,
	                                      FORMAT_Q4,     FORMAT_Q4_128, FORMAT_Q4A,    FORMAT_Q4_K,
	                                      FORMAT_Q4G_64, FORMAT_IQ4_NL, FORMAT_IQ4_XS, FORMAT_MXFP4,
	                                      FORMAT_Q4S,    FORMAT_Q8G_128};
	const char *target = "x86-64-v4-amx";
	const int64_t depth = depths[2 + _i % 4];
	ck_assert(depth < 257 || tile_blocks_use_amx(target_find(target), some[_i],
	                                             (struct activation_quant){.block = 32}, depth));
	check_case(some[_i], 257, 3 * _i, target, false); /* steps as long as blocks of weights */
	check_case(some[_i], depth, 3 * _i + 1, target, false);
	check_case(some[_i], 320, 3 * _i + 2, target, _i % 4 == 0);
}
END_TEST

/* Tiles of six rows and fewer: four and more by matrices of 2 x 2 words. */
START_TEST(test_matrices_of_words)
{
	for (int i = 0; i < (int)TFMC_COUNT(depths); i++)
		check_case(_i ? FORMAT_BF16 : FORMAT_Q8_ROW, depths[i], 6 + 12 * i, "armv8.6", false);
}
END_TEST

/* Rows of zeros, of the largest and the smallest numbers, with an infinity, with NaN. */
START_TEST(test_special_rows)
{
	static const float special[] = {0, FLT_MAX, 1e-45F, 1e-38F, 4e-37F, -0.0F, HUGE_VALF, NAN};
	const struct schedule s = {2, 16, 64};
	struct buf text;
	struct linear_case c;
	struct linear_call call;
	struct reference r = {
	        .c = &c, .target = target_find(targets[_i]), .call = &call, .depth = 70, .block = 32};
	buf_init(&text);
	write_text(&text, &r, FORMAT_Q8, 20, &s, targets[_i]);
	linear_case_init_kept(&c, text.data, targets[_i], &(struct linear_weights){.format = FORMAT_Q8});
	linear_call_init(&c, &call, 1, 2 * TFMC_COUNT(special));
	float *x = call.param[0];
	for (int64_t i = 0; i < 2 * (int64_t)TFMC_COUNT(special) * r.depth; i++) {
		float v = special[i / r.depth / 2];
		if (i / r.depth % 2 == 0)
			x[i] = i % 3 ? v : -v;
		else if (i % r.depth == 40)
			x[i] = v; /* among others */
	}
	linear_run(&c, &call, 1);
	expect_bits(&r, 20, "special");
	linear_run_checked(&c, &call, 1);
	if (c.caps.has_fma)
		expect_bits(&r, 20, "special, interpreted");
	linear_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

/* ---- machine code ---- */

/* An innermost loop: the lines from a label to the branch back to it. */
struct loop {
	int dots, on_stack; /* vpdpbusd, vdpbf16ps; vectors on the stack */
};

/* Goes to the next one of the text. False at the end. */
static bool next_loop(const char **at, struct loop *out)
{
	const char *label = NULL;
	size_t n = 0;
	for (const char *line = *at; *line; line = *at) {
		size_t length = strcspn(line, "\n");
		*at = line + length + (line[length] != 0);
		if (line[0] == '.' && memchr(line, ':', length)) {
			label = line;
			n = strcspn(line, ":");
			*out = (struct loop){0};
			continue;
		}
		char text[256] = "";
		memcpy(text, line, length < sizeof(text) - 1 ? length : sizeof(text) - 1);
		out->dots += strstr(text, "vpdpbusd") || strstr(text, "vdpbf16ps");
		out->on_stack += strstr(text, "rsp") && strstr(text, "mm");
		if (text[0] == '\t' && text[1] == 'j' && label && !strncmp(text + length - n, label, n))
			return true;
	}
	return false;
}

/* The K loop of the widest tile has a dot product for each sum and word of x, and keeps its sums in registers. */
START_TEST(test_dot_loops)
{
	static const enum ir_format some[] = {FORMAT_Q8_ROW, FORMAT_Q8, FORMAT_Q4, FORMAT_IQ4_NL,
	                                      FORMAT_BF16};
	static const struct schedule tiles[] = {
	        {14, 32, 1024}, {6, 32, 1024}, {6, 32, 1024}, {6, 32, 1024}, {14, 32, 1024}};
	static const int dots[] = {28, 96, 96, 96, 28}; /* 14 x 2 vectors; 6 x 2 for each of 8 words */
	struct llvm_options options = {.target = target_find("x86-64-v4-bf16"), .opt_level = 2};
	struct reference r = {.depth = 768, .block = _i > 0 ? 32 : 0, .bf16 = some[_i] == FORMAT_BF16};
	struct linear_weights w = {.format = some[_i]};
	if (r.bf16)
		w = (struct linear_weights){.rounded = DT_BF16, .kept = DT_BF16};
	struct linear_case c;
	struct loop loop = {0};
	struct buf text, assembly;
	int most = 0;
	buf_init(&text);
	buf_init(&assembly);
	struct llvm_output out = {.assembly = &assembly};
	write_text(&text, &r, some[_i], 768, &tiles[_i], options.target->name);
	linear_case_init_kept(&c, text.data, options.target->name, &w);
	ck_assert_int_eq(llvm_compile(&c.tir.cx, c.kernels, "m", &options, &out), TFMC_OK);
	for (const char *at = assembly.data; next_loop(&at, &loop);) {
		ck_assert(loop.dots == 0 || loop.on_stack == 0);
		most += loop.dots == dots[_i];
	}
	ck_assert_int_ge(most, 1);
	linear_case_destroy(&c);
	buf_destroy(&assembly);
	buf_destroy(&text);
}
END_TEST

Suite *suite_kernel_integer(void);

Suite *suite_kernel_integer(void)
{
	Suite *s = suite_create("kernel_integer");
	TCase *t = tcase_create("kernel_integer"), *padding = tcase_create("padding");
	int n = (int)TFMC_COUNT(targets);
	tcase_set_timeout(t, 120);
	effort_add_loop(t, test_formats, n * (int)TFMC_COUNT(formats), 7);
	tcase_add_loop_test(t, test_depths, 0, 4);
	tcase_add_loop_test(t, test_bf16, 0, 5);
	tcase_add_loop_test(t, test_experts, 0, n);
	effort_add_loop(t, test_rows_of_parts, 8, 3);
	tcase_add_loop_test(t, test_matrix_tiles, 0, 2);
	tcase_add_loop_test(t, test_no_rows, 0, 2);
	suite_add_tcase(s, t);
	t = tcase_create("few_rows");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_magnitudes, 0, 3);
	tcase_add_loop_test(t, test_super_blocks, 0, n);
	tcase_add_loop_test(t, test_merged_blocks, 0, 3);
	suite_add_tcase(s, t);
	t = tcase_create("amx");
	tcase_set_timeout(t, 120);
	effort_add_loop(t, test_matrix_steps, 14, 3);
	tcase_add_loop_test(t, test_matrices_of_words, 0, 2);
	tcase_add_loop_test(t, test_special_rows, 0, n);
	tcase_add_loop_test(t, test_dot_loops, 0, 5);
	tcase_set_timeout(padding, 240);
	effort_add_loop(padding, test_padded, n * (int)TFMC_COUNT(padded), 7);
	suite_add_tcase(s, padding);
	suite_add_tcase(s, t);
	return s;
}
