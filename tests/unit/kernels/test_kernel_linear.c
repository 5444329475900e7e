/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matmul template against sums in double precision and the IR interpreter on
 * odd shapes, and its promise: an element has the same bits for every number of
 * rows beside it, every schedule and every number of workers.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "tests/support/effort.h"
#include "tests/support/kernels/linear_case.h"
#include "tests/support/kernels/padded.h"
#include "tests/support/random/rng.h"
#include "tests/kb_interp/live.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};

#define HEAD "module \"m\" stage=groups dim B in [0,8] dim S in [0,128] "

/* B and S of every number of rows that is tried. */
static const int64_t shapes[][2] = {{1, 1},  {1, 2},  {3, 1},  {1, 5},  {1, 13}, {2, 7},  {3, 5},
                                    {1, 0},  {1, 29}, {1, 31}, {4, 16}, {1, 67}, {7, 18}, {2, 8},
                                    {1, 17}, {2, 9},  {5, 4},  {1, 7},  {2, 4},  {1, 11}};

/* ---- the product ---- */

static void format_plain(struct buf *text, int64_t depth, int64_t columns, const char *attrs)
{
	long long k = (long long)depth, n = (long long)columns;
	buf_printf(text,
	           HEAD "func @f(%%x: f32[B,S,%lld], %%w: f32[%lld,%lld], %%b: f32[%lld]) -> (y: "
	                "f32[B,S,%lld]) { %%y = group linear %s { root %%h = linear %%x, %%w, %%b : "
	                "f32[B,S,%lld] yield %%h } : f32[B,S,%lld] return %%y }",
	           k, n, k, n, n, attrs, n, n);
}

/* |error| <= 2 K 2^-24 sum |x| |w|, and the rounding of the bias. */
static void expect_product(const struct linear_call *call, int64_t depth, int64_t columns)
{
	const float *x = call->param[0], *w = call->param[1], *b = call->param[2];
	for (int64_t i = 0; i < call->n_out; i++) {
		const float *xr = x + i / columns * depth, *wr = w + i % columns * depth;
		double sum = 0, size = 0;
		for (int64_t k = 0; k < depth; k++) {
			sum += (double)xr[k] * (double)wr[k];
			size += fabs((double)xr[k] * (double)wr[k]);
		}
		sum += (double)b[i % columns];
		double bound = 2 * (double)depth * 0x1p-24 * size + fabs(sum) * 0x1p-23 + 0x1p-40;
		ck_assert_msg(fabs(sum - (double)call->out[i]) <= bound,
		              "K %d N %d rows %d: element %d is %.9g, expected %.9g", (int)depth,
		              (int)columns, (int)(call->n_out / columns), (int)i, (double)call->out[i], sum);
	}
}

static void expect_bits(const struct linear_call *call, const float *expected, const char *what)
{
	for (int64_t i = 0; i < call->n_out; i++)
		ck_assert_msg(memcmp(&call->out[i], &expected[i], 4) == 0, "%s: B %d S %d: element %d", what,
		              (int)call->dims[0], (int)call->dims[1], (int)i);
}

/* Rows are the same in all shapes, so their bits must be, too. */
static void check_bits(struct linear_case *c, const float *expected)
{
	struct linear_call call;
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		linear_call_init(c, &call, shapes[i][0], shapes[i][1]);
		for (int64_t workers = 1; workers <= 3; workers++) {
			linear_run(c, &call, workers);
			expect_bits(&call, expected, "workers");
		}
	}
}

static void check_product(int64_t depth, int64_t columns, const char *attrs, const char *target)
{
	struct linear_case c;
	struct buf text;
	struct linear_call most;
	buf_init(&text);
	format_plain(&text, depth, columns, attrs);
	linear_case_init(&c, text.data, target);
	linear_call_init(&c, &most, 8, 128);
	linear_run(&c, &most, 1);
	expect_product(&most, depth, columns);
	check_bits(&c, most.out);
	linear_case_destroy(&c);
	buf_destroy(&text);
}

START_TEST(test_products)
{
	static const int64_t depths[] = {1, 3, 16, 20, 33, 96, 257};
	static const int64_t widths[] = {1, 5, 15, 16, 17, 31, 32, 33, 48, 96, 101};
	struct rng rng = rng_seed(5);
	for (size_t i = 0; i < 2 * TFMC_COUNT(widths); i++) {
		int64_t depth = depths[rng_below(&rng, (int64_t)TFMC_COUNT(depths))];
		check_product(depth, widths[i % TFMC_COUNT(widths)], "", targets[_i]);
	}
}
END_TEST

START_TEST(test_schedules)
{
	static const char *const attrs[] = {"{mr=1 nr=16}",          "{mr=4 nr=32 lanes=8}",
	                                    "{mr=3 nr=48 lanes=16}", "{mr=6 nr=64 lanes=16}",
	                                    "{mr=8 nr=32}",          "{mr=2 nr=16 lanes=1}",
	                                    "{kc=7 scratch=8192}",   "{mr=4 nr=32 kc=16 scratch=2048}"};
	for (size_t i = 0; i < TFMC_COUNT(attrs); i++)
		check_product(19, 85, attrs[i], targets[_i]);
}
END_TEST

/* Loop nests by hand. */
START_TEST(test_nests)
{
	static const char *const attrs[] = {
	        "{mr=4 nr=16 mc=12 nc=16 nr1=64 tiles=full}",
	        "{mr=6 nr=16 mc=6 nc=96 nr1=32 order=blocks prefetch=none tiles=balanced}",
	        "{mr=2 nr=32 nc=32 c=stack prefetch=next}",
	        "{mr=4 nr=16 kc=6 scratch=16384 mc=8 nc=48 c=scratch prefetch=next}",
	        "{mr=4 nr=32 kc=6 scratch=16384 nc=96 nr1=16 b=packed c=registers}"};
	for (size_t i = 0; i < TFMC_COUNT(attrs); i++)
		check_product(19, 85, attrs[i], targets[_i]);
}
END_TEST

/* The same of at most 32 rows, where panels may be outside of rows. */
START_TEST(test_nests_of_few_rows)
{
	static const char *const attrs[] = {"{order=panels nr1=16 ahead=64}",
	                                    "{order=panels nr1=64 prefetch=none}",
	                                    "{mr=4 nr=48 nc=48 order=panels nr1=32 c=stack prefetch=next}",
	                                    "{mr=12 nr=16 lanes=4 nc=16 order=panels c=registers ahead=4096}",
	                                    "{mr=2 nr=16 lanes=1 order=panels prefetch=none}",
	                                    "{order=blocks prefetch=next mc=32}"};
	static const int64_t rows[] = {1, 2, 3, 5, 8, 9, 16, 23, 31, 32};
	for (size_t i = 0; i < TFMC_COUNT(attrs); i++) {
		struct linear_case c;
		struct linear_call call;
		char text[512];
		(void)snprintf(text, sizeof(text),
		               "module \"m\" stage=groups dim B in [1,1] dim S in [1,32] func @f(%%x: "
		               "f32[B,S,41], %%w: "
		               "f32[85,41], %%b: f32[85]) -> (y: f32[B,S,85]) { %%y = group linear %s { root "
		               "%%h = linear "
		               "%%x, %%w, %%b : f32[B,S,85] yield %%h } : f32[B,S,85] return %%y }",
		               attrs[i]);
		linear_case_init(&c, text, targets[_i]);
		for (size_t r = 0; r < TFMC_COUNT(rows); r++) {
			linear_call_init(&c, &call, 1, rows[r]);
			linear_run(&c, &call, 2);
			linear_expect(&c, &call);
			linear_run_checked(&c, &call, 1);
			linear_expect(&c, &call);
		}
		linear_case_destroy(&c);
	}
}
END_TEST

/* Whatever the height of the main tile, columns of whole tiles are divided among workers panel by panel where rows are
 * few. */
START_TEST(test_heights)
{
	for (int mr = 5; mr <= 14; mr++) {
		char attrs[32];
		(void)snprintf(attrs, sizeof(attrs), "{mr=%d nr=32}", mr);
		check_product(19, 96, attrs, "x86-64-v4");
	}
}
END_TEST

static void format_norm(struct buf *text, const char *attrs, bool is_behind)
{
	const char *before =
	        "pre %n = layer_norm %x : f32[B,S,19] root %h = linear %n, %w : f32[B,S,85] yield %h ";
	const char *behind =
	        "root %l = linear %x, %w : f32[B,S,85] post %h = layer_norm %l : f32[B,S,85] yield %h ";
	buf_printf(text,
	           HEAD "func @f(%%x: f32[B,S,19], %%w: f32[85,19]) -> (y: f32[B,S,85]) { "
	                "%%y = group linear %s { %s} : f32[B,S,85] return %%y }",
	           attrs, is_behind ? behind : before);
}

/* A norm before or after: the block of its rows, which workers choose by the number of rows, changes no
 * bit. */
START_TEST(test_norms)
{
	static const char *const attrs[] = {"{br=1024 scratch=77824}", "{mr=4 nr=32 br=11 scratch=836}",
	                                    "{mr=2 nr=16 kc=8 br=2 scratch=16640}"};
	struct linear_case c;
	struct linear_call most;
	struct buf first, text;
	bool is_behind = _i % 2 == 1;
	buf_init(&first);
	for (size_t i = 0; i < TFMC_COUNT(attrs); i++) {
		buf_init(&text);
		format_norm(&text, attrs[i], is_behind);
		linear_case_init(&c, text.data, targets[_i / 2]);
		linear_call_init(&c, &most, 8, 128);
		linear_run(&c, &most, 1);
		linear_expect(&c, &most);
		if (i == 0)
			buf_bytes(&first, most.out, (size_t)most.n_out * 4);
		expect_bits(&most, (const float *)(const void *)first.data, attrs[i]);
		check_bits(&c, most.out);
		linear_case_destroy(&c);
		buf_destroy(&text);
	}
	buf_destroy(&first);
}
END_TEST

/* A number of rows that is known when the kernel is made: only the heights it needs are there, for every
 * division among workers, which a norm of whole rows makes as it likes. */
static void check_fixed(long long rows, bool has_norm, const char *target)
{
	struct linear_case c;
	struct linear_call call;
	struct buf text;
	buf_init(&text);
	buf_printf(&text, HEAD "func @f(%%x: f32[1,%lld,5], %%w: f32[37,5]) -> (y: f32[1,%lld,37]) { ", rows,
	           rows);
	buf_printf(&text, "%%o = group linear { root %%h = linear %%x, %%w : f32[1,%lld,37] ", rows);
	if (has_norm)
		buf_printf(&text, "post %%n = layer_norm %%h : f32[1,%lld,37] ", rows);
	buf_printf(&text, "yield %s } : f32[1,%lld,37] return %%o }", has_norm ? "%n" : "%h", rows);
	linear_case_init(&c, text.data, target);
	linear_call_init(&c, &call, 1, 1);
	for (int64_t workers = 1; workers <= 3; workers++) {
		linear_run_checked(&c, &call, workers);
		linear_expect(&c, &call);
	}
	linear_case_destroy(&c);
	buf_destroy(&text);
}

START_TEST(test_fixed_rows)
{
	static const int rows[] = {1, 2, 7, 9, 11, 13, 14, 15, 16, 17, 20, 23, 27, 29, 32, 45, 65, 130};
	for (size_t i = 0; i < TFMC_COUNT(rows); i++)
		check_fixed(rows[i], i % 3 == 2, targets[_i]);
	check_fixed(130, false, targets[_i]);
	check_fixed(65, true, targets[_i]);
}
END_TEST

/* ---- other forms ---- */

struct form {
	const char *name, *text;
};

#define XWB  "%x: f32[B,S,20], %w: f32[37,20], %b: f32[37]"
#define ROOT "root %h = linear %x, %w, %b : f32[B,S,37] "

#define XW(n)   "%x: f32[B,S,20], %w: f32[" #n ",20]"
#define WIDE(n) "root %h = linear %x, %w, %b : f32[B,S," #n "] "
#define HALVES(n)                                                                 \
	"post %g = slice %h {axis=2 begin=0 size=" #n "} : f32[B,S," #n "] "      \
	"post %u = slice %h {axis=2 begin=" #n " size=" #n "} : f32[B,S," #n "] " \
	"post %a = silu %g : f32[B,S," #n "] "
#define TURN(n)                                                           \
	"post %r = reshape %h {dims=[B,S,3," #n "]} : f32[B,S,3," #n "] " \
	"post %q = transpose %r {perm=[0,2,1,3]} : f32[B,3,S," #n "] "    \
	"post %z = rope %q, %t, %at : f32[B,3,S," #n "] "
#define NORM(n)                                                            \
	"post %r = reshape %h {dims=[B,S,3," #n "]} : f32[B,S,3," #n "] "  \
	"post %c = scale %r {f=0.5} : f32[B,S,3," #n "] "                  \
	"post %m = layer_norm %c, %g, %g {eps=1e-05} : f32[B,S,3," #n "] " \
	"post %q = transpose %m {perm=[0,2,1,3]} : f32[B,3,S," #n "] "     \
	"post %z = rope %q, %t, %at : f32[B,3,S," #n "] "

static const struct form forms[] = {
        {"no bias",
         "func @f(%x: f32[B,S,20], %w: f32[37,20]) -> (y: f32[B,S,37]) { %y = group linear { root %h "
         "= linear %x, %w : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"residual", "func @f(" XWB ", %r: f32[B,S,37]) -> (y: f32[B,S,37]) { %y = group linear {" ROOT
                     "post %s = scale %h {f=0.5} : f32[B,S,37] post %a = add %r, %s : f32[B,S,37] "
                     "post %z = relu %a : f32[B,S,37] yield %z } : f32[B,S,37] return %y }"},
        {"transposed residual", "func @f(" XWB ", %r: f32[S,37,B]) -> (y: f32[B,S,37]) { "
                                "%t = transpose %r {perm=[2,0,1]} : f32[B,S,37] %y = group linear {" ROOT
                                "post %a = add %h, %t : f32[B,S,37] yield %a } : f32[B,S,37] return %y }"},
        {"mask", "func @f(" XWB ", %len: i32[B]) -> (y: f32[B,S,37]) { %y = group linear {" ROOT
                 "post %a = mask_rows %h, %len : f32[B,S,37] yield %a } : f32[B,S,37] return %y }"},
        {"gelu", "func @f(" XWB ") -> (y: f32[B,S,37]) { %y = group linear {" ROOT
                 "post %a = gelu %h : f32[B,S,37] yield %a } : f32[B,S,37] return %y }"},
        {"tanh and residual",
         "func @f(" XWB ", %r: f32[B,S,37], %len: i32[B]) -> (y: f32[B,S,37]) { %y = group linear {" ROOT
         "post %a = tanh %h : f32[B,S,37] post %c = add %a, %r : f32[B,S,37] "
         "post %d = mask_rows %c, %len : f32[B,S,37] yield %d } : f32[B,S,37] return %y }"},
        {"sliced x",
         "func @f(%x: f32[B,S,60], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
         "%v = slice %x {axis=2 begin=21 size=20} : f32[B,S,20] %y = group linear { root %h = linear %v, %w, "
         "%b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"rows of x apart",
         "func @f(%x: f32[S,B,20], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
         "%v = transpose %x {perm=[1,0,2]} : f32[B,S,20] %y = group linear { root %h = linear %v, %w, "
         "%b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"transposed x",
         "func @f(%x: f32[20,B,S], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
         "%v = transpose %x {perm=[1,2,0]} : f32[B,S,20] %y = group linear { root %h = linear %v, %w, "
         "%b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"one vector",
         "func @f(%x: f32[20], %w: f32[37,20], %b: f32[37]) -> (y: f32[37]) { %y = group linear { "
         "root %h = linear %x, %w, %b : f32[37] yield %h } : f32[37] return %y }"},
        {"stored transposed",
         "func @f(%x: f32[B,S,20], %w: f32[37,20], %b: f32[37]) -> (y: f32[S,37,B]) { %y = group linear "
         "{" ROOT "post %t = transpose %h {perm=[1,2,0]} : f32[S,37,B] yield %t } : f32[S,37,B] return %y }"},
        {"stored flat",
         "func @f(" XWB ") -> (y: f32[B*S,37]) { %y = group linear {" ROOT
         "post %t = reshape %h {dims=[B*S,37]} : f32[B*S,37] yield %t } : f32[B*S,37] return %y }"},
        {"parts of K",
         "func @f(" XWB ", %r: f32[B,S,37], %len: i32[B]) -> (y: f32[B,S,37]) { "
         "%y = group linear {kc=6 scratch=16384} {" ROOT "post %a = gelu %h : f32[B,S,37] "
         "post %c = add %a, %r : f32[B,S,37] post %d = mask_rows %c, %len : f32[B,S,37] yield %d "
         "} : f32[B,S,37] return %y }"},
        {"norm before",
         "func @f(" XWB ", %g: f32[20], %c: f32[20]) -> (y: f32[B,S,37]) { "
         "%y = group linear {br=128 scratch=10240} { pre %n = layer_norm %x, %g, %c : f32[B,S,20] "
         "root %h = linear %n, %w, %b : f32[B,S,37] post %a = gelu %h : f32[B,S,37] "
         "post %z = add %a, %h : f32[B,S,37] yield %z } : f32[B,S,37] return %y }"},
        {"norm before parts of K",
         "func @f(" XWB ", %g: f32[20]) -> (y: f32[B,S,37]) { "
         "%y = group linear {mr=4 nr=16 kc=6 br=5 scratch=16784} { pre %n = rms_norm %x, %g : f32[B,S,20] "
         "root %h = linear %n, %w, %b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"norm of transposed x",
         "func @f(%x: f32[20,B,S], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
         "%v = transpose %x {perm=[1,2,0]} : f32[B,S,20] "
         "%y = group linear {br=14 scratch=1120} { pre %n = layer_norm %v : f32[B,S,20] "
         "root %h = linear %n, %w, %b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"parts beside each other",
         "func @f(%x: f32[B,S,7], %z: f32[S,B,16], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
         "%t = transpose %z {perm=[1,0,2]} : f32[B,S,16] %v = slice %t {axis=2 begin=3 size=11} : "
         "f32[B,S,11] "
         "%u = slice %x {axis=2 begin=5 size=2} : f32[B,S,2] "
         "%y = group linear {br=14 scratch=1120} { pre %n = concat %x, %v, %u {axis=2} : f32[B,S,20] "
         "root %h = linear %n, %w, %b : f32[B,S,37] post %a = gelu %h : f32[B,S,37] yield %a } "
         ": f32[B,S,37] return %y }"},
        {"parts beside each other, parts of K",
         "func @f(%x: f32[B,S,10], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
         "%y = group linear {mr=4 nr=16 kc=6 br=5 scratch=16784} { "
         "pre %n = concat %x, %x {axis=2} : f32[B,S,20] "
         "root %h = linear %n, %w, %b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"norm of picked rows",
         "func @f(%x: f32[B,7,20], %w: f32[37,20], %len: i32[B]) -> (y: f32[B,37]) { "
         "%y = group linear {br=14 scratch=1120} { pre %r = select_rows %x, %len : f32[B,20] "
         "pre %n = rms_norm %r : f32[B,20] "
         "root %h = linear %n, %w : f32[B,37] yield %h } : f32[B,37] return %y }"},
        {"norm of one vector", "func @f(%x: f32[20], %w: f32[37,20], %b: f32[37]) -> (y: f32[37]) { "
                               "%y = group linear {br=1 scratch=128} { pre %n = rms_norm %x : f32[20] "
                               "root %h = linear %n, %w, %b : f32[37] yield %h } : f32[37] return %y }"},
        {"norm behind",
         "func @f(" XWB ", %r: f32[B,S,37], %g: f32[37], %len: i32[B]) -> (y: f32[B,S,37]) { "
         "%y = group linear {" ROOT "post %a = add %r, %h : f32[B,S,37] "
         "post %n = layer_norm %a, %g : f32[B,S,37] post %m = mask_rows %n, %len : f32[B,S,37] yield %m } "
         ": f32[B,S,37] return %y }"},
        {"norms on both sides, parts of K",
         "func @f(" XWB ", %g: f32[20]) -> (y: f32[B*S,37]) { "
         "%y = group linear {mr=4 nr=16 kc=6 br=5 scratch=16784} { pre %n = rms_norm %x, %g : f32[B,S,20] "
         "root %h = linear %n, %w, %b : f32[B,S,37] post %a = gelu %h : f32[B,S,37] "
         "post %m = rms_norm %a : f32[B,S,37] post %z = reshape %m {dims=[B*S,37]} : f32[B*S,37] yield %z } "
         ": f32[B*S,37] return %y }"},
        {"fixed rows",
         "func @f(%x: f32[29,20], %w: f32[37,20], %b: f32[37]) -> (y: f32[29,37]) { %y = group linear { "
         "root %h = linear %x, %w, %b : f32[29,37] post %a = sigmoid %h : f32[29,37] yield %a } : f32[29,37] "
         "return %y }"},
        {"halves that meet",
         "func @f(" XW(96) ", %b: f32[96], %len: i32[B]) -> (y: f32[B,S,48]) { %y = group linear {" WIDE(96)
                 HALVES(48) "post %m = mul %a, %u : f32[B,S,48] post %z = mask_rows %m, %len : f32[B,S,48] "
                            "yield %z } : f32[B,S,48] return %y }"},
        {"halves of one panel",
         "func @f(" XW(32) ", %b: f32[32]) -> (y: f32[B,S,16]) { %y = group linear {" WIDE(32)
                 HALVES(16) "post %m = add %u, %a : f32[B,S,16] yield %m } : f32[B,S,16] return %y }"},
        {"halves in parts of K",
         "func @f(" XW(
                 160) ", %b: f32[160]) -> (y: f32[B,S,80]) { "
                      "%y = group linear {kc=6 scratch=16384} {" WIDE(160) HALVES(
                              80) "post %m = mul %a, %u : f32[B,S,80] yield %m } : f32[B,S,80] return %y }"},
        {"heads of one linear",
         "func @f(" XW(96) ", %b: f32[96], %t: f32[40,32], %at: i32[B,S]) -> (y: f32[B,3,S,32]) { "
                           "%y = group linear {" WIDE(96) TURN(32) "yield %z } : f32[B,3,S,32] return %y }"},
        {"norms of heads",
         "func @f(" XW(
                 96) ", %b: f32[96], %g: f32[32], %t: f32[40,32], %at: i32[B,S]) -> (y: f32[B,3,S,32]) { "
                     "%y = group linear {" WIDE(96) NORM(32) "yield %z } : f32[B,3,S,32] return %y }"},
        {"norms of heads of three panels and a half, in parts of K",
         "func @f(" XW(
                 168) ", %b: f32[168], %g: f32[56], %t: f32[40,28], %at: i32[B,S]) -> (y: f32[B,3,S,56]) { "
                      "%y = group linear {kc=6 scratch=16384} {" WIDE(168)
                              NORM(56) "yield %z } : f32[B,3,S,56] return %y }"},
        {"heads in parts of K",
         "func @f(" XW(144) ", %b: f32[144], %t: f32[40,48], %at: i32[B,S]) -> (y: f32[B,3,S,48]) { "
                            "%y = group linear {kc=6 scratch=16384} {" WIDE(144)
                                    TURN(48) "yield %z } : f32[B,3,S,48] return %y }"},
        {"heads of three panels and a half",
         "func @f(" XW(168) ", %b: f32[168], %t: f32[40,28], %at: i32[B,S]) -> (y: f32[B,3,S,56]) { "
                            "%y = group linear {" WIDE(168)
                                    TURN(56) "yield %z } : f32[B,3,S,56] return %y }"},
        {"heads that begin inside of a panel",
         "func @f(" XW(70) ", %b: f32[70], %t: f32[40,14], %at: i32[B,S]) -> (y: f32[B,3,S,14]) { "
                           "%y = group linear {" WIDE(
                                   70) "post %s = slice %h {axis=2 begin=21 size=42} : f32[B,S,42] "
                                       "post %r = reshape %s {dims=[B,S,3,14]} : f32[B,S,3,14] "
                                       "post %q = transpose %r {perm=[0,2,1,3]} : f32[B,3,S,14] "
                                       "post %z = rope %q, %t, %at : f32[B,3,S,14] yield %z } : "
                                       "f32[B,3,S,14] return %y }"},
};

static void check_form(const struct form *f, const char *target)
{
	struct linear_case c;
	struct linear_call call;
	struct buf text;
	buf_init(&text);
	buf_printf(&text, "%s%s", HEAD, f->text);
	linear_case_init(&c, text.data, target);
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		linear_call_init(&c, &call, shapes[i][0], shapes[i][1]);
		for (int64_t workers = 1; workers <= 3; workers += 2) {
			linear_run(&c, &call, workers);
			linear_expect(&c, &call);
		}
	}
	linear_call_init(&c, &call, 2, 8);
	linear_run_checked(&c, &call, 2);
	linear_expect(&c, &call);
	linear_case_destroy(&c);
	buf_destroy(&text);
}

START_TEST(test_forms)
{
	for (size_t t = 0; t < TFMC_COUNT(targets); t++)
		check_form(&forms[_i], targets[t]);
}
END_TEST

/* ---- padded batches ---- */

static void check_padded(const char *text, const char *target)
{
	static const int64_t padded[][2] = {{3, 16}, {7, 18}, {1, 29}, {5, 4}, {3, 1}, {4, 77}, {2, 0}};
	struct linear_case some, all;
	struct buf head, with;
	buf_init(&head);
	buf_init(&with);
	buf_printf(&head, "%s%s", HEAD, text);
	padded_text(&with, head.data);
	linear_case_init(&all, head.data, target);
	linear_case_init(&some, with.data, target);
	for (size_t i = 0; i < TFMC_COUNT(padded); i++)
		if (some.jit || padded[i][1] < 17) /* few rows where they are interpreted */
			linear_expect_padded(&some, &all, padded[i][0], padded[i][1]);
	linear_case_destroy(&some);
	linear_case_destroy(&all);
	buf_destroy(&with);
	buf_destroy(&head);
}

/* All but the forms whose rows have no sequences. */
START_TEST(test_padded)
{
	if (strstr(forms[_i].text, "root %h = linear %n, %w : f32[B,37]") || !strstr(forms[_i].text, "[B,S,"))
		return;
	for (size_t t = 0; t < TFMC_COUNT(targets); t++)
		check_padded(forms[_i].text, targets[t]);
}
END_TEST

/* ---- few rows, weights from memory ---- */

#define HEAD_FEW "module \"m\" stage=groups dim B in [0,2] dim S in [0,16] "

static const int64_t few_shapes[][2] = {{1, 1}, {1, 6}, {1, 3}, {1, 0},  {1, 5},  {2, 1},  {1, 7},
                                        {2, 4}, {1, 9}, {2, 6}, {1, 13}, {1, 16}, {2, 11}, {2, 16}};

/* Whether a small cache made another kernel. */
static bool differ(const struct linear_case *a, const struct linear_case *b)
{
	struct buf first, second;
	buf_init(&first);
	buf_init(&second);
	kb_dump(&first, a->kernels, "linear");
	kb_dump(&second, b->kernels, "linear");
	bool are_equal = first.len == second.len && memcmp(first.data, second.data, first.len) == 0;
	buf_destroy(&first);
	buf_destroy(&second);
	return !are_equal;
}

/* A stream of panels gives the bits that tiles give, and touches nothing else. */
static void check_stream(const char *text, const char *target, bool must_stream)
{
	struct linear_case tiles, stream;
	struct linear_call call, expected;
	linear_case_init(&tiles, text, target);
	linear_case_init_streamed(&stream, text, target);
	ck_assert(differ(&tiles, &stream) || !must_stream);
	for (size_t i = 0; i < TFMC_COUNT(few_shapes); i++) {
		linear_call_init(&tiles, &expected, few_shapes[i][0], few_shapes[i][1]);
		linear_call_init(&stream, &call, few_shapes[i][0], few_shapes[i][1]);
		linear_run(&tiles, &expected, 1);
		for (int64_t workers = 1; workers <= 3; workers++) {
			linear_run(&stream, &call, workers);
			expect_bits(&call, expected.out, "a stream");
		}
		if (i % 4 != 2)
			continue;
		linear_run_checked(&tiles, &expected, 1);
		linear_run_checked(&stream, &call, 2);
		expect_bits(&call, expected.out, "a stream, interpreted");
	}
	linear_case_destroy(&tiles);
	linear_case_destroy(&stream);
}

START_TEST(test_streams)
{
	static const int64_t widths[] = {1, 16, 31, 80, 101};
	for (size_t i = 0; i < TFMC_COUNT(widths); i++) {
		struct buf text, plain;
		buf_init(&text);
		buf_init(&plain);
		format_plain(&plain, 21, widths[i], "");
		buf_printf(&text, "%s%s", HEAD_FEW, plain.data + strlen(HEAD));
		check_stream(text.data, targets[_i], true);
		buf_destroy(&plain);
		buf_destroy(&text);
	}
}
END_TEST

START_TEST(test_streamed_forms)
{
	struct buf text;
	buf_init(&text);
	buf_printf(&text, "%s%s", HEAD_FEW, forms[_i].text);
	for (size_t t = 0; t < TFMC_COUNT(targets); t++)
		check_stream(text.data, targets[t], false);
	buf_destroy(&text);
}
END_TEST

/* The kernel interpreter checks every access. */
START_TEST(test_accesses)
{
	static const int64_t widths[] = {1, 16, 31, 101};
	for (size_t i = 0; i < TFMC_COUNT(widths); i++) {
		struct linear_case c;
		struct linear_call call;
		struct buf text;
		buf_init(&text);
		format_plain(&text, 5, widths[i], "");
		linear_case_init(&c, text.data, targets[_i]);
		for (size_t s = 0; s < TFMC_COUNT(shapes); s++) {
			linear_call_init(&c, &call, shapes[s][0], shapes[s][1]);
			linear_run_checked(&c, &call, 1 + (int64_t)s % 3);
			expect_product(&call, 5, widths[i]);
		}
		linear_case_destroy(&c);
		buf_destroy(&text);
	}
}
END_TEST

/* ---- prefetch ---- */

/* A linear that prefetches, and the number of rows that reach farthest. */
struct ahead {
	const char *name;
	long long depth, columns;
	const char *attrs;
	int64_t b, s;
	enum ir_format format;
	bool is_streamed, is_int8, is_padded;
};

static const struct ahead ahead[] = {
        {"one N block", 20, 64, "", 4, 16, .format = FORMAT_PLAIN},
        {"more row tiles than bytes of a k-row", 5, 150, "{mr=2 nr=16}", 4, 67, .format = FORMAT_PLAIN},
        {"parts of K", 40, 150, "{kc=16 scratch=16384}", 7, 18, .format = FORMAT_PLAIN},
        {"a part of K and many row tiles", 40, 33, "{mr=2 nr=16 kc=7 scratch=65536}", 4, 67,
         .format = FORMAT_PLAIN},
        {"int8", 64, 80, "{br=128 scratch=65536}", 1, 29, .format = FORMAT_Q8_ROW, .is_int8 = true},
        {"int8 in blocks", 64, 80, "{br=128 scratch=65536}", 1, 29, .format = FORMAT_Q8, .is_int8 = true},
        {"4 bits", 64, 80, "{br=128 scratch=65536}", 1, 29, .format = FORMAT_Q4, .is_int8 = true},
        {"a part of a group of 4 bits", 33, 80, "{br=128 scratch=65536}", 1, 29, .format = FORMAT_Q4,
         .is_int8 = true},
        {"rows of their own sequences, then a row tile", 37, 64, "{mr=6 nr=16}", 48, 6, .is_padded = true},
        {"one row", 300, 96, "", 1, 1, .is_streamed = true},
        {"few rows", 300, 101, "", 1, 5, .is_streamed = true},
        {"several passes", 300, 101, "", 2, 16, .is_streamed = true},
        {"few rows, int8", 256, 80, "{br=32 scratch=32768}", 1, 3, .format = FORMAT_Q8, .is_streamed = true,
         .is_int8 = true},
        {"few rows, 4 bits", 256, 80, "", 1, 3, .format = FORMAT_Q4, .is_streamed = true},
        {"several passes, int8", 256, 80, "{br=32 scratch=32768}", 2, 16, .format = FORMAT_Q8,
         .is_streamed = true, .is_int8 = true},
};

#define HEAD_PADDED "module \"m\" stage=groups dim B in [0,48] dim S in [0,6] "

static void format_ahead(struct buf *out, const struct ahead *a)
{
	long long k = a->depth, n = a->columns;
	struct buf plain, *text = a->is_padded ? &plain : out;
	buf_init(&plain);
	buf_printf(text,
	           "%s func @f(%%x: f32[B,S,%lld], %%w: f32[%lld,%lld], %%b: f32[%lld]) -> (y: "
	           "f32[B,S,%lld]) { ",
	           a->is_streamed ? HEAD_FEW
	           : a->is_padded ? HEAD_PADDED
	                          : HEAD,
	           k, n, k, n, n);
	buf_printf(text, "%%y = group linear %s { ", a->attrs);
	if (a->is_int8)
		buf_printf(text, "pre %%q = quantize_rows %%x {to=int8 block=32} : f32[B,S,%lld] ", k);
	buf_printf(text,
	           "root %%h = linear %s, %%w, %%b : f32[B,S,%lld] yield %%h } : f32[B,S,%lld] return %%y }",
	           a->is_int8 ? "%q" : "%x", n, n);
	if (a->is_padded)
		padded_text(out, plain.data);
	buf_destroy(&plain);
}

/* Emits it with `after` bytes of weights after w, and runs it: the interpreter checks the addresses. */
static void check_ahead(const struct ahead *a, const char *text, const char *target, int64_t after,
                        struct buf *dump)
{
	struct linear_case c;
	struct linear_call call;
	linear_case_init_kept(&c, text, target,
	                      &(struct linear_weights){.kept = DT_F32,
	                                               .format = a->format,
	                                               .is_streamed = a->is_streamed,
	                                               .bytes_after = after,
	                                               .is_interpreted = true});
	linear_call_init(&c, &call, a->b, a->s);
	for (int64_t b = 0; a->is_padded && b < a->b; b++)
		((int32_t *)call.param[c.f->n_params - 1])[b] = (int32_t)(b + 1 < a->b ? 1 : a->s);
	linear_run_checked(&c, &call, 1);
	kb_dump(dump, c.kernels, "linear");
	linear_case_destroy(&c);
}

/* Prefetches end where the model's weights do, however many bytes of them there are after w; where there are enough,
 * the kernel is that of any more. */
START_TEST(test_prefetches)
{
	static const int64_t after[] = {0, 5 << 12, 1 << 20, 1 << 21};
	enum { N = TFMC_COUNT(after) };
	const struct ahead *a = &ahead[_i];
	for (size_t t = (size_t)_i % 2; t < TFMC_COUNT(targets); t += 2) {
		struct buf text, dump[N];
		buf_init(&text);
		format_ahead(&text, a);
		for (size_t i = 0; i < N; i++) {
			buf_init(&dump[i]);
			check_ahead(a, text.data, targets[t], after[i], &dump[i]);
		}
		ck_assert_msg(strstr(dump[0].data, "prefetch") != NULL, "%s, %s", a->name, targets[t]);
		ck_assert_msg(strcmp(dump[0].data, dump[N - 1].data) != 0, "%s, %s", a->name, targets[t]);
		ck_assert_str_eq(dump[N - 2].data, dump[N - 1].data);
		for (size_t i = 0; i < N; i++)
			buf_destroy(&dump[i]);
		buf_destroy(&text);
	}
}
END_TEST

/* ---- registers ---- */

/* The K loop of the main tile fits into the registers. */
START_TEST(test_registers)
{
	struct linear_case c;
	struct buf text;
	buf_init(&text);
	format_plain(&text, 768, 768, "");
	linear_case_init(&c, text.data, targets[_i]);
	int live = kb_max_live_vectors(c.kernels, "linear");
	ck_assert_int_gt(live, 0);
	ck_assert_int_le(live, c.caps.registers);
	linear_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

Suite *suite_kernel_linear(void);

Suite *suite_kernel_linear(void)
{
	Suite *s = suite_create("kernel_linear");
	TCase *t = tcase_create("all"), *padding = tcase_create("padding");
	int n = (int)TFMC_COUNT(targets);
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, test_products, 0, n);
	tcase_add_loop_test(t, test_schedules, 0, n);
	tcase_add_loop_test(t, test_nests, 0, n);
	tcase_add_loop_test(t, test_nests_of_few_rows, 0, n);
	tcase_add_test(t, test_heights);
	tcase_add_loop_test(t, test_norms, 0, 2 * n);
	tcase_add_loop_test(t, test_fixed_rows, 0, n);
	effort_add_loop(t, test_forms, (int)TFMC_COUNT(forms), 5);
	tcase_add_loop_test(t, test_accesses, 0, n);
	tcase_add_loop_test(t, test_streams, 0, n);
	effort_add_loop(t, test_streamed_forms, (int)TFMC_COUNT(forms), 7);
	tcase_add_loop_test(t, test_registers, 0, n);
	tcase_set_timeout(padding, 240);
	effort_add_loop(padding, test_padded, (int)TFMC_COUNT(forms), 7);
	suite_add_tcase(s, padding);
	suite_add_tcase(s, t);
	t = tcase_create("prefetch");
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, test_prefetches, 0, (int)TFMC_COUNT(ahead));
	suite_add_tcase(s, t);
	return s;
}
