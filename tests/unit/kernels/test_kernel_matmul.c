/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of two values: the kernel of a linear that packs its right operand when it runs, against the IR interpreter
 * on odd shapes and strides. An element has the same bits for every number of workers.
 */
#include <check.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "tests/support/effort.h"
#include "tests/support/kernels/linear_case.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};

#define HEAD "module \"m\" stage=groups dim B in [0,8] dim S in [0,70] "

static const int64_t shapes[][2] = {{1, 1},  {2, 3}, {3, 16}, {1, 17}, {0, 5}, {2, 0},
                                    {1, 33}, {8, 7}, {2, 48}, {1, 64}, {3, 70}};

struct form {
	const char *name, *text;
};

#define PRODUCT(a, b, shape, y, sizes, attrs)                                                    \
	"func @f(%a: f32" a ", " b ": f32" shape ") -> (y: f32" y ") { %y = group linear " sizes \
	" { root %h = matmul %a, " b " " attrs " : f32" y " yield %h } : f32" y " return %y }"
#define MATMUL(a, b, y, sizes, attrs)    PRODUCT(a, "%b", b, y, sizes, attrs)
#define OF_WEIGHT(a, w, y, sizes, attrs) PRODUCT(a, "%w", w, y, sizes, attrs)

static const struct form forms[] = {
        {"rows of b", MATMUL("[B,S,20]", "[B,20,37]", "[B,S,37]", "{scratch=5120}", "")},
        {"columns of b", MATMUL("[B,S,20]", "[B,37,20]", "[B,S,37]", "{scratch=5120}", "{tb}")},
        {"columns of a", MATMUL("[B,20,S]", "[B,20,37]", "[B,S,37]", "{scratch=5120}", "{ta}")},
        {"columns of both", MATMUL("[B,20,S]", "[B,37,20]", "[B,S,37]", "{scratch=5120}", "{ta tb}")},
        {"whole tiles", MATMUL("[B,S,16]", "[B,96,16]", "[B,S,96]", "{scratch=4096}", "{tb}")},
        {"one column", MATMUL("[B,S,16]", "[B,16,1]", "[B,S,1]", "{scratch=4096}", "")},
        {"one row", MATMUL("[B,1,33]", "[B,33,80]", "[B,1,80]", "{scratch=8448}", "")},
        {"one row, a partial panel", MATMUL("[B,1,33]", "[B,33,85]", "[B,1,85]", "{scratch=2112}", "")},
        {"one row, less than a panel", MATMUL("[B,1,9]", "[B,9,5]", "[B,1,5]", "{scratch=576}", "")},
        {"one row, columns of b", MATMUL("[B,1,33]", "[B,80,33]", "[B,1,80]", "{scratch=16896}", "{tb}")},
        {"one row, N of the call", MATMUL("[B,1,20]", "[B,20,S]", "[B,1,S]", "{scratch=1280}", "")},
        {"one row, K of the call, no scratch", MATMUL("[B,1,S]", "[B,S,64]", "[B,1,64]", "{scratch=0}", "")},
        {"few rows", MATMUL("[B,3,20]", "[B,20,101]", "[B,3,101]", "{mr=4 nr=32 scratch=1280}", "")},
        {"few rows, all of the call",
         MATMUL("[B,3,S]", "[B,S,S]", "[B,3,S]", "{mr=4 nr=16 scratch=4480}", "")},
        {"few rows, too little scratch",
         MATMUL("[B,3,41]", "[B,41,37]", "[B,3,37]", "{mr=4 nr=16 kc=6 scratch=2048}", "")},
        {"few columns", MATMUL("[B,S,9]", "[B,5,9]", "[B,S,5]", "{scratch=2304}", "{tb}")},
        {"N of the call", MATMUL("[B,21,20]", "[B,20,S]", "[B,21,S]", "{scratch=5120}", "")},
        {"N of the call, columns of b",
         MATMUL("[B,21,20]", "[B,S,20]", "[B,21,S]", "{scratch=5120}", "{tb}")},
        {"K of the call", MATMUL("[B,21,S]", "[B,S,33]", "[B,21,33]", "{scratch=17920}", "")},
        {"K of the call, one row", MATMUL("[B,1,S]", "[B,S,33]", "[B,1,33]", "{scratch=17920}", "")},
        {"K of the call, in parts",
         MATMUL("[B,21,S]", "[B,33,S]", "[B,21,33]", "{kc=7 scratch=6144}", "{tb}")},
        {"all of the call", MATMUL("[B,S,S]", "[B,S,S]", "[B,S,S]", "{scratch=17920}", "{ta}")},
        {"all of the call, in parts", MATMUL("[B,S,S]", "[B,S,S]", "[B,S,S]", "{kc=16 scratch=8192}", "")},
        {"parts of K", MATMUL("[B,S,41]", "[B,41,48]", "[B,S,48]", "{mr=4 nr=32 kc=6 scratch=4096}", "")},
        {"two axes", MATMUL("[S,20]", "[20,S]", "[S,S]", "{scratch=5120}", "")},
        {"four axes", MATMUL("[B,3,S,8]", "[B,3,S,8]", "[B,3,S,S]", "{scratch=2048}", "{tb}")},
        {"lanes of one",
         MATMUL("[B,S,20]", "[B,37,20]", "[B,S,37]", "{mr=2 nr=16 lanes=1 scratch=5120}", "{tb}")},
        {"one matrix for all",
         "func @f(%a: f32[B,S,20], %b: f32[20,37]) -> (y: f32[B,S,37]) { "
         "%t = broadcast %b {dims=[B,20,37]} : f32[B,20,37] %y = group linear {scratch=5120} { "
         "root %h = matmul %a, %t : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"one matrix for some",
         "func @f(%a: f32[S,20], %b: f32[B,20,37]) -> (y: f32[3,B,S,37]) { "
         "%s = broadcast %a {dims=[3,B,S,20]} : f32[3,B,S,20] "
         "%t = broadcast %b {dims=[3,B,20,37]} : f32[3,B,20,37] %y = group linear {scratch=5120} { "
         "root %h = matmul %s, %t : f32[3,B,S,37] yield %h } : f32[3,B,S,37] return %y }"},
        {"strides of the call",
         "func @f(%a: f32[S,20,B], %b: f32[37,20,B]) -> (y: f32[B,S,37]) { "
         "%s = transpose %a {perm=[2,0,1]} : f32[B,S,20] %t = transpose %b {perm=[2,1,0]} : f32[B,20,37] "
         "%y = group linear {scratch=5120} { root %h = matmul %s, %t : f32[B,S,37] yield %h } "
         ": f32[B,S,37] return %y }"},
        {"slices", "func @f(%a: f32[B,S,60], %b: f32[B,50,40]) -> (y: f32[B,S,37]) { "
                   "%s = slice %a {axis=2 begin=21 size=20} : f32[B,S,20] "
                   "%u = slice %b {axis=1 begin=7 size=20} : f32[B,20,40] "
                   "%t = slice %u {axis=2 begin=3 size=37} : f32[B,20,37] %y = group linear {scratch=5120} { "
                   "root %h = matmul %s, %t : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"one row, slices",
         "func @f(%a: f32[B,1,60], %b: f32[B,50,40]) -> (y: f32[B,1,32]) { "
         "%s = slice %a {axis=2 begin=21 size=20} : f32[B,1,20] "
         "%u = slice %b {axis=1 begin=7 size=20} : f32[B,20,40] "
         "%t = slice %u {axis=2 begin=3 size=32} : f32[B,20,32] %y = group linear {scratch=0} { "
         "root %h = matmul %s, %t : f32[B,1,32] yield %h } : f32[B,1,32] return %y }"},
        {"one row, heads beside each other",
         "func @f(%a: f32[B,3,1,S], %b: f32[B,S,3,16]) -> (y: f32[B,3,1,16]) { "
         "%t = transpose %b {perm=[0,2,1,3]} : f32[B,3,S,16] %y = group linear {scratch=0} { "
         "root %h = matmul %a, %t : f32[B,3,1,16] yield %h } : f32[B,3,1,16] return %y }"},
        {"one row, long epilogue",
         "func @f(%a: f32[B,1,20], %b: f32[B,20,S], %r: f32[B,1,S]) -> (y: f32[B,1,S]) { "
         "%y = group linear {scratch=1280} { root %h = matmul %a, %b : f32[B,1,S] "
         "post %p = gelu %h : f32[B,1,S] post %z = add %p, %r : f32[B,1,S] yield %z } "
         ": f32[B,1,S] return %y }"},
        {"epilogue",
         "func @f(%a: f32[B,S,20], %b: f32[B,37,20], %r: f32[B,S,37], %len: i32[B]) -> (y: f32[B,S,37]) { "
         "%y = group linear {scratch=5120} { root %h = matmul %a, %b {tb} : f32[B,S,37] "
         "post %p = add %h, %r : f32[B,S,37] post %z = mask_rows %p, %len : f32[B,S,37] yield %z } "
         ": f32[B,S,37] return %y }"},
        {"long epilogue, parts of K",
         "func @f(%a: f32[B,S,20], %b: f32[B,20,S], %r: f32[B,S,S]) -> (y: f32[B,S,S]) { "
         "%y = group linear {mr=4 nr=16 kc=6 scratch=4096} { root %h = matmul %a, %b : f32[B,S,S] "
         "post %p = gelu %h : f32[B,S,S] post %z = add %p, %r : f32[B,S,S] yield %z } "
         ": f32[B,S,S] return %y }"},
        {"copied, by hand", "func @f(%a: f32[B,S,20], %b: f32[B,20,37]) -> (y: f32[B,S,37]) { "
                            "%y = group linear {mr=4 nr=16 scratch=5120 mc=8 nc=32 b=copied tiles=full} { "
                            "root %h = matmul %a, %b : f32[B,S,37] yield %h } : f32[B,S,37] return %y }"},
        {"read where it is stored, by hand",
         "func @f(%a: f32[B,1,20], %b: f32[B,20,32]) -> (y: f32[B,1,32]) { "
         "%y = group linear {scratch=0 nc=16 nr1=16 b=stored c=registers} { "
         "root %h = matmul %a, %b : f32[B,1,32] yield %h } : f32[B,1,32] return %y }"},
        {"stored transposed",
         "func @f(%a: f32[B,S,20], %b: f32[B,37,20]) -> (y: f32[37,B,S]) { "
         "%y = group linear {scratch=5120} { root %h = matmul %a, %b {tb} : f32[B,S,37] "
         "post %z = transpose %h {perm=[2,0,1]} : f32[37,B,S] yield %z } : f32[37,B,S] return %y }"},
};

static void expect_bits(const struct linear_call *call, const float *expected, int64_t workers)
{
	for (int64_t i = 0; i < call->n_out; i++)
		ck_assert_msg(memcmp(&call->out[i], &expected[i], 4) == 0,
		              "%d workers, B %d S %d: element %d", (int)workers, (int)call->dims[0],
		              (int)call->dims[1], (int)i);
}

static void check_form(const struct form *f, const char *target, const struct linear_weights *w)
{
	struct linear_case c;
	struct linear_call one, call;
	struct buf text;
	buf_init(&text);
	buf_printf(&text, "%s%s", HEAD, f->text);
	linear_case_init_kept(&c, text.data, target, w);
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		linear_call_init(&c, &one, shapes[i][0], shapes[i][1]);
		linear_run(&c, &one, 1);
		linear_expect(&c, &one);
		linear_call_init(&c, &call, shapes[i][0], shapes[i][1]);
		for (int64_t workers = 2; workers <= 5; workers++) {
			linear_run(&c, &call, workers);
			expect_bits(&call, one.out, workers);
		}
	}
	linear_call_init(&c, &call, 2, 17);
	linear_run_checked(&c, &call, 2);
	linear_expect(&c, &call);
	linear_case_destroy(&c);
	buf_destroy(&text);
}

START_TEST(test_forms)
{
	int n = (int)TFMC_COUNT(targets);
	check_form(&forms[_i / n], targets[_i % n], &(struct linear_weights){.kept = DT_F32});
}
END_TEST

/* The right operand is a weight by rows: in place, in place but for a partial panel, packed. */
static const struct form of_weights[] = {
        {"one row", OF_WEIGHT("[1,33]", "[33,80]", "[1,80]", "{scratch=0}", "")},
        {"few rows, a partial panel",
         OF_WEIGHT("[3,20]", "[20,101]", "[3,101]", "{mr=4 nr=32 scratch=1280}", "")},
        {"few rows of several products",
         OF_WEIGHT("[5,3,20]", "[5,20,48]", "[5,3,48]", "{mr=4 nr=16 scratch=0}", "")},
        {"slices", "func @f(%a: f32[3,20], %w: f32[50,40]) -> (y: f32[3,32]) { "
                   "%u = slice %w {axis=0 begin=7 size=20} : f32[20,40] "
                   "%t = slice %u {axis=1 begin=3 size=32} : f32[20,32] "
                   "%y = group linear {mr=4 nr=32 scratch=0} { root %h = matmul %a, %t : f32[3,32] "
                   "yield %h } : f32[3,32] return %y }"},
        {"many rows", OF_WEIGHT("[S,20]", "[20,37]", "[S,37]", "{scratch=5120}", "")},
        {"columns", OF_WEIGHT("[S,20]", "[37,20]", "[S,37]", "{scratch=5120}", "{tb}")},
};

START_TEST(test_weights)
{
	static const enum ir_dtype kept[] = {DT_F32, DT_BF16, DT_F16};
	int n = (int)TFMC_COUNT(targets), i = _i / n;
	struct linear_weights w = {.is_row_major = true};
	w.kept = w.rounded = kept[i % (int)TFMC_COUNT(kept)];
	check_form(&of_weights[i / (int)TFMC_COUNT(kept)], targets[_i % n], &w);
}
END_TEST

Suite *suite_kernel_matmul(void);

Suite *suite_kernel_matmul(void)
{
	Suite *s = suite_create("kernel_matmul");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 240);
	effort_add_loop(t, test_forms, (int)(TFMC_COUNT(forms) * TFMC_COUNT(targets)), 3);
	int stored = (int)(TFMC_COUNT(of_weights) * TFMC_COUNT(targets)) * 3;
	effort_add_loop(t, test_weights, stored, 5);
	suite_add_tcase(s, t);
	return s;
}
