/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of work-groups, run by the kernel interpreter: odd sizes, every number
 * of groups, no race, no barrier that some items miss. Products have the bits of
 * the processors' template, rows agree with the IR interpreter; and how many items
 * and tasks a group has.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/kernels/rowwise.h"
#include "backends/kernels/generator.h"
#include "ir/support/compiler.h"
#include "tests/support/kernels/group_case.h"
#include "tests/support/kernels/linear_case.h"

#define GPU "opencl-gpu"

static const int64_t group_counts[] = {1, 2, 7};

/* ---- products ---- */

struct product {
	int b_max, s_max; /* bounds of the dims, they choose the height of a tile */
	int depth, columns;
	int64_t shapes[3][2]; /* B, S */
};

static const struct product products[] = {
        {1, 1, 1, 1, {{1, 1}, {0, 1}, {1, 0}}},       {1, 8, 5, 17, {{1, 1}, {1, 5}, {1, 8}}},
        {1, 8, 48, 64, {{1, 1}, {1, 0}, {1, 7}}},     {1, 13, 16, 3, {{1, 2}, {1, 13}, {1, 11}}},
        {2, 15, 19, 101, {{2, 15}, {1, 1}, {2, 7}}},  {8, 128, 1, 65, {{1, 1}, {1, 67}, {3, 5}}},
        {8, 128, 33, 37, {{1, 64}, {1, 65}, {0, 3}}}, {8, 128, 18, 130, {{1, 3}, {7, 19}, {2, 31}}},
        {8, 128, 32, 64, {{1, 1}, {2, 64}, {1, 63}}}, {1, 8, 256, 33, {{1, 1}, {1, 2}, {1, 8}}},
        {1, 3, 387, 20, {{1, 1}, {1, 3}, {0, 1}}},    {1, 1, 576, 16, {{1, 1}, {0, 1}, {1, 1}}},
};

static void format_product(struct buf *text, const struct product *p, const char *body)
{
	buf_printf(text,
	           "module \"m\" stage=groups dim B in [0,%d] dim S in [0,%d] "
	           "func @f(%%x: f32[B,S,%d], %%w: f32[%d,%d], %%b: f32[%d], %%r: f32[B,S,%d]) -> "
	           "(y: f32[B,S,%d]) { %%y = group linear { root %%h = linear %%x, %%w, %%b : f32[B,S,%d] ",
	           p->b_max, p->s_max, p->depth, p->columns, p->depth, p->columns, p->columns, p->columns,
	           p->columns);
	for (; *body; body++)
		if (*body == '#')
			buf_printf(text, "f32[B,S,%d]", p->columns);
		else
			buf_char(text, *body);
	buf_printf(text, "} : f32[B,S,%d] return %%y }", p->columns);
}

/* Rows of which items divide K: of 64 elements each of 16 chains has four neighbours, and the chains meet in order. */
#define FEW    8
#define CHAINS 16

static float few_product(const float *x, const float *w, int depth)
{
	float chain[CHAINS] = {0}, sum;
	for (int k = 0; k < depth; k++)
		chain[k / 4 % CHAINS] = fmaf(x[k], w[k], chain[k / 4 % CHAINS]);
	sum = chain[0];
	for (int i = 1; i < CHAINS; i++)
		sum += chain[i];
	return sum;
}

static void check_few(const struct product *p, const struct linear_call *call)
{
	const float *x = call->param[0], *w = call->param[1], *b = call->param[2];
	for (int64_t i = 0; i < call->n_out; i++) {
		int64_t row = i / p->columns, column = i % p->columns;
		float sum = few_product(x + row * p->depth, w + column * p->depth, p->depth) + b[column];
		ck_assert_mem_eq(&call->out[i], &sum, sizeof(sum));
	}
}

/* Of more rows an element is one fma chain, whoever computes it; all of them whatever the number of groups. */
static void check_product(const struct product *p, const char *body, bool same_bits)
{
	struct linear_case gpu, cpu;
	struct linear_call call, expected, first;
	struct buf text;
	buf_init(&text);
	format_product(&text, p, body);
	linear_case_init_shared(&gpu, text.data, GPU);
	linear_case_init(&cpu, text.data, "x86-64-v3");
	for (size_t i = 0; i < 3 * TFMC_COUNT(group_counts); i++) {
		const int64_t *shape = p->shapes[i / 3];
		linear_call_init(&gpu, &call, shape[0], shape[1]);
		linear_call_init(&cpu, &expected, shape[0], shape[1]);
		linear_launch(&gpu, &call, group_counts[i % 3]);
		linear_expect(&gpu, &call);
		if (i % 3 == 0)
			first = call;
		ck_assert_mem_eq(call.out, first.out, (size_t)call.n_out * sizeof(float));
		linear_run(&cpu, &expected, 1);
		if (same_bits && shape[0] * shape[1] <= FEW)
			check_few(p, &call);
		else if (same_bits)
			ck_assert_mem_eq(call.out, expected.out, (size_t)call.n_out * sizeof(float));
	}
	linear_case_destroy(&gpu);
	linear_case_destroy(&cpu);
	buf_destroy(&text);
}

START_TEST(test_products)
{
	check_product(&products[_i], "yield %h ", true);
}
END_TEST

/* Narrow weights give the bits of the same numbers in f32. */
static void check_kept(const struct product *p, enum ir_dtype t)
{
	struct linear_case wide, narrow;
	struct linear_call call, expected;
	struct buf text;
	buf_init(&text);
	format_product(&text, p, "yield %h ");
	linear_case_init_kept(&wide, text.data, GPU,
	                      &(struct linear_weights){.rounded = t, .kept = DT_F32, .is_shared = true});
	linear_case_init_kept(&narrow, text.data, GPU,
	                      &(struct linear_weights){.rounded = t, .kept = t, .is_shared = true});
	for (size_t i = 0; i < 3 * TFMC_COUNT(group_counts); i++) {
		const int64_t *shape = p->shapes[i / 3];
		linear_call_init(&wide, &expected, shape[0], shape[1]);
		linear_call_init(&narrow, &call, shape[0], shape[1]);
		linear_launch(&wide, &expected, group_counts[i % 3]);
		linear_launch(&narrow, &call, group_counts[i % 3]);
		ck_assert_mem_eq(call.out, expected.out, (size_t)call.n_out * sizeof(float));
	}
	linear_case_destroy(&wide);
	linear_case_destroy(&narrow);
	buf_destroy(&text);
}

START_TEST(test_kept)
{
	check_kept(&products[_i], DT_BF16);
	check_kept(&products[_i], DT_F16);
}
END_TEST

#define HEADS(n, all)                                                                                      \
	"func @f(%x: f32[B,S,20], %w: f32[" #all ",20], %b: f32[" #all "], %t: f32[40," #n                 \
	"], %at: i32[B,S]) "                                                                               \
	"-> (y: f32[B,3,S," #n "]) { %y = group linear { root %h = linear %x, %w, %b : f32[B,S," #all "] " \
	"post %r = reshape %h {dims=[B,S,3," #n "]} : f32[B,S,3," #n "] "                                  \
	"post %q = transpose %r {perm=[0,2,1,3]} : f32[B,3,S," #n "] "                                     \
	"post %z = rope %q, %t, %at : f32[B,3,S," #n "] yield %z } : f32[B,3,S," #n "] return %y }"
#define INSIDE(n, begin, size, all)                                                                         \
	"func @f(%x: f32[B,S,20], %w: f32[" #all ",20], %b: f32[" #all "], %g: f32[" #n "], %t: f32[40," #n \
	"], %at: i32[B,S]) -> (y: f32[B,3,S," #n "]) { "                                                    \
	"%y = group linear { root %h = linear %x, %w, %b : f32[B,S," #all "] "                              \
	"post %s = slice %h {axis=2 begin=" #begin " size=" #size "} : f32[B,S," #size "] "                 \
	"post %r = reshape %s {dims=[B,S,3," #n "]} : f32[B,S,3," #n "] "                                   \
	"post %q = transpose %r {perm=[0,2,1,3]} : f32[B,3,S," #n "] "                                      \
	"post %m = rms_norm %q, %g {eps=1e-05} : f32[B,3,S," #n "] "                                        \
	"post %z = rope %m, %t, %at : f32[B,3,S," #n "] yield %z } : f32[B,3,S," #n "] return %y }"
#define COLUMNS(n, begin, all)                                                                         \
	"func @f(%x: f32[B,S,20], %w: f32[" #all ",20]) -> (y: f32[B,S," #n "]) { "                    \
	"%y = group linear { root %h = linear %x, %w : f32[B,S," #all "] "                             \
	"post %s = slice %h {axis=2 begin=" #begin " size=" #n "} : f32[B,S," #n "] yield %s } : f32[" \
	"B,S," #n "] return %y }"
#define NORMS(n, all)                                                                                       \
	"func @f(%x: f32[B,S,20], %w: f32[" #all ",20], %b: f32[" #all "], %g: f32[" #n "], %t: f32[40," #n \
	"], %at: i32[B,S]) -> (y: f32[B,3,S," #n "]) { "                                                    \
	"%y = group linear { root %h = linear %x, %w, %b : f32[B,S," #all "] "                              \
	"post %r = reshape %h {dims=[B,S,3," #n "]} : f32[B,S,3," #n "] "                                   \
	"post %q = transpose %r {perm=[0,2,1,3]} : f32[B,3,S," #n "] "                                      \
	"post %m = rms_norm %q, %g {eps=1e-05} : f32[B,3,S," #n "] "                                        \
	"post %z = rope %m, %t, %at : f32[B,3,S," #n "] yield %z } : f32[B,3,S," #n "] return %y }"
#define BEHIND(k, n, norm)                                                                                   \
	"func @f(%x: f32[B,S," #k "], %w: f32[" #n "," #k "], %b: f32[" #n "], %g: f32[" #n "], %e: f32[" #n \
	"], %r: f32[B,S," #n "]) -> (y: f32[B,S," #n "]) { %y = group linear { root %h = linear %x"          \
	", %w, %b : f32[B,S," #n "] post %a = add %h, %r : f32[B,S," #n "] "                                 \
	"post %m = " norm " : f32[B,S," #n "] post %z = gelu %m : f32[B,S," #n "] yield %z } "               \
	": f32[B,S," #n "] return %y }"
#define GATES(n, all)                                                                                  \
	"func @f(%x: f32[B,S,20], %w: f32[" #all ",20], %b: f32[" #all "]) -> (y: f32[B,S," #n "]) { " \
	"%y = group linear { root %h = linear %x, %w, %b : f32[B,S," #all "] "                         \
	"post %g = slice %h {axis=2 begin=0 size=" #n "} : f32[B,S," #n "] "                           \
	"post %u = slice %h {axis=2 begin=" #n " size=" #n "} : f32[B,S," #n "] "                      \
	"post %a = silu %g : f32[B,S," #n "] post %m = mul %a, %u : f32[B,S," #n "] yield %m } "       \
	": f32[B,S," #n "] return %y }"

/* Heads that fill a part of a tile, one, one and a part of the next, two, more; gate and up of whole and of half tiles;
 * norms of heads, of those that begin inside of a panel; columns that begin inside of a vector; norms of rows after. */
static const char *const parts[] = {
        HEADS(8, 24),
        HEADS(12, 36),
        HEADS(64, 192),
        HEADS(80, 240),
        HEADS(128, 384),
        HEADS(256, 768),
        GATES(16, 32),
        GATES(48, 96),
        GATES(128, 256),
        NORMS(8, 24),
        NORMS(80, 240),
        NORMS(128, 384),
        INSIDE(6, 5, 18, 30),
        INSIDE(36, 70, 108, 250),
        COLUMNS(13, 21, 34),
        COLUMNS(101, 101, 202),
        BEHIND(20, 37, "layer_norm %a, %g, %e {eps=1e-05}"),
        BEHIND(20, 64, "layer_norm %a {eps=1e-05}"),
};

/* A function of dims B in [0,most] and S, for B 1, 2, .. and these S. */
static void check_function(const char *function, int most, const int64_t *rows, size_t n)
{
	struct linear_case c;
	struct linear_call call;
	struct buf text;
	buf_init(&text);
	buf_printf(&text, "module \"m\" stage=groups dim B in [0,%d] dim S in [0,16] %s", most, function);
	linear_case_init_shared(&c, text.data, GPU);
	for (size_t i = 0; i < n; i++) {
		linear_call_init(&c, &call, 1 + (int64_t)i, rows[i]);
		linear_launch(&c, &call, group_counts[i % TFMC_COUNT(group_counts)]);
		linear_expect(&c, &call);
	}
	linear_case_destroy(&c);
	buf_destroy(&text);
}

START_TEST(test_parts)
{
	static const int64_t rows[] = {1, 13, 0, 16};
	check_function(parts[_i], 4, rows, TFMC_COUNT(rows));
}
END_TEST

static const struct product odd = {3, 9, 19, 37, {{1, 1}, {3, 9}, {2, 0}}};

/* Ops after the product. */
START_TEST(test_followers)
{
	static const char *const bodies[] = {
	        "post %a = gelu %h : # yield %a ",
	        "post %a = add %h, %r : # yield %a ",
	        "post %s = scale %h {f=0.5} : # post %a = add %r, %s : # post %z = relu %a : # yield %z ",
	};
	check_product(&odd, bodies[_i], false);
}
END_TEST

/* x, or the result, that does not lie side by side. */
START_TEST(test_forms)
{
	static const char *const forms[] = {
	        "func @f(%x: f32[20,B,S], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
	        "%v = transpose %x {perm=[1,2,0]} : f32[B,S,20] %y = group linear { root %h = linear %v, %w, "
	        "%b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }",
	        "func @f(%x: f32[S,B,20], %w: f32[37,20]) -> (y: f32[B,S,37]) { "
	        "%v = transpose %x {perm=[1,0,2]} : f32[B,S,20] %y = group linear { root %h = linear %v, %w "
	        ": f32[B,S,37] yield %h } : f32[B,S,37] return %y }",
	        "func @f(%x: f32[B,S,60], %w: f32[37,20], %b: f32[37]) -> (y: f32[B,S,37]) { "
	        "%v = slice %x {axis=2 begin=21 size=20} : f32[B,S,20] %y = group linear { root %h = "
	        "linear %v, %w, %b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }",
	        "func @f(%x: f32[20], %w: f32[37,20], %b: f32[37]) -> (y: f32[37]) { %y = group linear { "
	        "root %h = linear %x, %w, %b : f32[37] yield %h } : f32[37] return %y }",
	        "func @f(%x: f32[B,S,20], %w: f32[37,20], %b: f32[37], %len: i32[B]) -> (y: f32[S,37,B]) { "
	        "%y = group linear { root %h = linear %x, %w, %b : f32[B,S,37] "
	        "post %a = mask_rows %h, %len : f32[B,S,37] "
	        "post %t = transpose %a {perm=[1,2,0]} : f32[S,37,B] yield %t } : f32[S,37,B] return %y }",
	};
	static const int64_t rows[TFMC_COUNT(group_counts)] = {13, 13, 13};
	check_function(forms[_i], 8, rows, TFMC_COUNT(rows));
}
END_TEST

/* ---- rows ---- */

struct recipe {
	const char *pre, *root, *post;
	int scratch;
};

static const struct recipe recipes[] = {
        {"", "softmax %x", "", 0},
        {"", "log_softmax %x", "", 0},
        {"", "layer_norm %x, %g, %h {eps=1e-05}", "", 0},
        {"", "rms_norm %x, %g {eps=1e-05}", "", 0},
        {"pre %p = add %x, %y : #", "softmax %p", "post %q = mul %n, %y : #", 0},
        {"pre %p = tanh %x : #", "log_softmax %p", "", 0},
        {"pre %p = add %x, %y : #", "layer_norm %p, %g, %h {eps=1e-05}", "post %q = gelu %n : #", 0},
        {"pre %p = add %x, %y : #", "rms_norm %p {eps=1e-05}", "post %q = add %n, %y : #", 16384},
};

/* # is the type of the rows. */
static void put_rows(struct buf *text, const char *from, const char *width)
{
	for (; *from; from++)
		if (*from == '#')
			buf_printf(text, "f32[R,%s]", width);
		else
			buf_char(text, *from);
}

static void format_rows(struct buf *text, const struct recipe *r, const char *width, int most)
{
	char body[512];
	snprintf(body, sizeof body,
	         "(%%x: #, %%y: #, %%g: f32[@], %%h: f32[@]) -> (#) { %%o = group rowwise {scratch=%d} { %s "
	         "root %%n = %s : # %s yield %%%c } : # return %%o }",
	         r->scratch, r->pre, r->root, r->post, r->post[0] ? 'q' : 'n');
	buf_printf(text, "module \"m\" stage=groups dim R in [0,16] dim D in [0,%d] func @f", most);
	for (char *at; (at = strchr(body, '@')) != NULL;) {
		*at = 0;
		put_rows(text, body, width);
		buf_str(text, width);
		memmove(body, at + 1, strlen(at + 1) + 1);
	}
	put_rows(text, body, width);
}

static void check_rows(const struct recipe *r, int64_t width, bool is_constant, int most)
{
	char number[24] = "D";
	struct group_case c;
	struct group_call call;
	struct buf text;
	buf_init(&text);
	if (is_constant)
		snprintf(number, sizeof number, "%d", (int)width);
	format_rows(&text, r, number, most);
	group_case_init_shared(&c, text.data, GPU, rowwise_emit, GPU_ITEMS);
	for (int64_t rows = 0; rows < 4; rows++) {
		const int64_t dims[] = {rows, width};
		group_call_init(&c, &call, dims);
		group_case_launch(&c, &call, group_counts[rows % 3]);
		group_case_expect(&c, &call);
	}
	group_case_destroy(&c);
	buf_destroy(&text);
}

START_TEST(test_rows)
{
	static const int64_t widths[] = {1, 2, 17, 63, 64, 65, 257};
	for (size_t i = 0; i < TFMC_COUNT(widths); i++) {
		check_rows(&recipes[_i], widths[i], true, 300);
		check_rows(&recipes[_i], widths[i], false, 300);
	}
	check_rows(&recipes[_i], 70, false, 4096); /* too long for shared memory, kept elsewhere */
}
END_TEST

static void put_extremes(float *x, int64_t width)
{
	for (int64_t j = 0; j < width; j++) {
		x[j] = -HUGE_VALF;
		x[width + j] = j == width / 2 ? 1 : -HUGE_VALF;
		x[2 * width + j] = j % 2 ? 3e38f : -3e38f;
		x[3 * width + j] = j == width - 1 ? NAN : (float)j;
		x[4 * width + j] = j == 0 ? HUGE_VALF : (float)j;
		x[5 * width + j] = 1000 + (float)j;
	}
}

/* softmax and log_softmax */
START_TEST(test_extremes)
{
	const int64_t dims[] = {6, 67};
	struct group_case c;
	struct group_call call;
	struct buf text;
	buf_init(&text);
	format_rows(&text, &recipes[_i], "D", 300);
	group_case_init_shared(&c, text.data, GPU, rowwise_emit, GPU_ITEMS);
	group_call_init(&c, &call, dims);
	put_extremes(call.in[0], dims[1]);
	group_case_launch(&c, &call, 2);
	group_case_expect(&c, &call);
	group_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

static const char *const masks[] = {
        "mask %x {mask=causal}",
        "mask %x, %len, %past {mask=causal}",
        "masked_softmax %x {mask=causal}",
        "masked_softmax %x, %len",
        "masked_softmax %x, past=%past {scale=0.25 mask=causal}",
        "masked_softmax %x, %len, %past {scale=0.25 softcap=2.5 mask=causal}",
        "masked_softmax %x, %len, %past {scale=1.5 mask=causal}",
};

/* Sequence 0 sees nothing. */
START_TEST(test_masks)
{
	const int64_t dims[] = {3, 5, 70};
	struct group_case c;
	struct group_call call;
	struct buf text;
	buf_init(&text);
	buf_printf(&text,
	           "module \"m\" stage=groups dim B in [0,4] dim S in [0,16] dim T in [0,300] "
	           "func @f(%%x: f32[B,2,S,T], %%len: i32[B], %%past: i32[B]) -> (f32[B,2,S,T]) { "
	           "%%o = group rowwise { root %%n = %s : f32[B,2,S,T] post %%q = scale %%n {f=2.0} : "
	           "f32[B,2,S,T] yield %%q } : f32[B,2,S,T] return %%o }",
	           masks[_i]);
	group_case_init_shared(&c, text.data, GPU, rowwise_emit, GPU_ITEMS);
	group_call_init(&c, &call, dims);
	for (int32_t b = 0; b < 3; b++) {
		((int32_t *)call.in[1])[b] = 35 * b;
		((int32_t *)call.in[2])[b] = b == 2 ? 300 : 23 * b;
	}
	group_case_launch(&c, &call, 7);
	group_case_expect(&c, &call);
	group_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

/* Bits do not depend on who computes a row. */
START_TEST(test_groups_have_the_same_bits)
{
	const int64_t dims[] = {9, 131};
	struct group_case c;
	struct group_call one, many;
	struct buf text;
	buf_init(&text);
	format_rows(&text, &recipes[_i], "D", 300);
	group_case_init_shared(&c, text.data, GPU, rowwise_emit, GPU_ITEMS);
	group_call_init(&c, &one, dims);
	group_call_init(&c, &many, dims);
	group_case_launch(&c, &one, 1);
	group_case_launch(&c, &many, 7);
	ck_assert_mem_eq(one.out, many.out, (size_t)one.n_out * sizeof(float));
	group_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

/* ---- what has no template ---- */

/* Each item is a worker of its own. */
START_TEST(test_items_alone)
{
	static const char *const groups[][2] = {
	        {"f32[R,D]", "root %a = add %x, %y : f32[R,D] yield %a"},
	        {"f32[R]",
	         "pre %a = add %x, %y : f32[R,D] root %r = reduce_sum %a {axes=[1]} : f32[R] yield %r"},
	        {"f32[]", "root %r = reduce_max %x {axes=[0,1]} : f32[] yield %r"},
	};
	const int64_t dims[] = {5, 37};
	struct group_case c;
	struct group_call call;
	struct buf text;
	buf_init(&text);
	buf_printf(
	        &text,
	        "module \"m\" stage=groups dim R in [0,16] dim D in [0,300] "
	        "func @f(%%x: f32[R,D], %%y: f32[R,D]) -> (%s) { %%o = group loops { %s } : %s return %%o }",
	        groups[_i][0], groups[_i][1], groups[_i][0]);
	group_case_init_shared(&c, text.data, GPU, kernel_emit_group, GPU_ITEMS);
	for (size_t i = 0; i < TFMC_COUNT(group_counts); i++) {
		group_call_init(&c, &call, dims);
		group_case_launch(&c, &call, group_counts[i]);
		group_case_expect(&c, &call);
	}
	group_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

/* ---- work ---- */

struct work {
	const char *text, *target;
	int64_t items, tasks; /* for B = 3, S = 50 */
};

#define HEAD "module \"m\" stage=groups dim B in [0,8] dim S in [0,128] "
#define LINEAR                                                                                            \
	HEAD "weight @w : f32[100,20] #panel16 = sinusoid(rows=100, dim=20, layout=halves, spacing=t2t, " \
	     "start=1, base=100.0) func @f(%x: f32[B,S,20]) -> (y: f32[B,S,100]) { "                      \
	     "%y = group linear { root %h = linear %x, @w #panel16 : f32[B,S,100] yield %h } : "          \
	     "f32[B,S,100] return %y }"
#define SOFTMAX                                                                       \
	HEAD "func @f(%x: f32[B,S,100]) -> (y: f32[B,S,100]) { %y = group rowwise { " \
	     "root %h = softmax %x : f32[B,S,100] yield %h } : f32[B,S,100] return %y }"
#define SHORT                                                                     \
	HEAD "func @f(%x: f32[B,S,9]) -> (y: f32[B,S,9]) { %y = group rowwise { " \
	     "root %h = softmax %x : f32[B,S,9] yield %h } : f32[B,S,9] return %y }"
#define LOOPS                                                                       \
	HEAD "func @f(%x: f32[B,S,100]) -> (y: f32[B,S,100]) { %y = group loops { " \
	     "root %h = tanh %x : f32[B,S,100] yield %h } : f32[B,S,100] return %y }"

#define ATTENTION(size)                                                                                      \
	HEAD "func @f(%q: f32[B,4,S," size "], %k: f32[B,2,S," size                                          \
	     "], %v: f32[B,2,S,8]) -> (y: f32[B,4,S,8]) { "                                                  \
	     "%y = group attention { root %h = attention %q, %k, %v {scale=1.0 mask=causal} : f32[B,4,S,8] " \
	     "yield %h } : f32[B,4,S,8] return %y }"

static const struct work works[] = {
        {LINEAR, GPU, 64, 7}, /* 3 * 2 of many rows, 7 of few */
        {SOFTMAX, GPU, 64, 150},
        {SHORT, GPU, 1, 150},
        {LOOPS, GPU, 1, 150 * 7},
        {ATTENTION("8"), GPU, 64, 12 * 4},
        {ATTENTION("300"), GPU, 1, 12 * 2},
};

START_TEST(test_work)
{
	const struct work *w = &works[_i];
	const int64_t dims[] = {3, 50};
	int64_t tasks = 0;
	struct tir t;
	tir_init(&t);
	tir_load(&t, w->text);
	const struct ir_func *f = ir_find_func(t.m, "f");
	const struct ir_op *group = NULL;
	for (size_t i = 0; i < f->body->n_ops; i++)
		if (f->body->ops[i]->code == OP_group)
			group = f->body->ops[i];
	ck_assert_ptr_nonnull(group);
	const struct target *target = target_find(w->target);
	ck_assert_int_eq(kernel_items(t.m, f, group, target), w->items);
	ck_assert(ir_dim_eval(kernel_tasks(t.m, f, group, target, KERNEL_ANY_ROWS), dims, &tasks));
	ck_assert_int_eq(tasks, w->tasks);
	tir_destroy(&t);
}
END_TEST

Suite *suite_kernel_gpu(void);

Suite *suite_kernel_gpu(void)
{
	Suite *s = suite_create("kernel_gpu");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_products, 0, (int)TFMC_COUNT(products));
	tcase_add_loop_test(t, test_kept, 0, (int)TFMC_COUNT(products));
	tcase_add_loop_test(t, test_followers, 0, 3);
	tcase_add_loop_test(t, test_forms, 0, 5);
	tcase_add_loop_test(t, test_parts, 0, TFMC_COUNT(parts));
	tcase_add_loop_test(t, test_rows, 0, (int)TFMC_COUNT(recipes));
	tcase_add_loop_test(t, test_extremes, 0, 2);
	tcase_add_loop_test(t, test_masks, 0, (int)TFMC_COUNT(masks));
	tcase_add_loop_test(t, test_groups_have_the_same_bits, 0, (int)TFMC_COUNT(recipes));
	tcase_add_loop_test(t, test_items_alone, 0, 3);
	tcase_add_loop_test(t, test_work, 0, (int)TFMC_COUNT(works));
	suite_add_tcase(s, t);
	return s;
}
