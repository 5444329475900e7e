/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor_div and mod of f32 with every exponent against the IR interpreter: rests are exact,
 * quotients where f64 holds them; in f64 and, for OpenCL, in ints.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "backends/kernels/group.h"
#include "ir/support/compiler.h"
#include "tests/support/kernels/group_case.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v4", "aarch64", "opencl-gpu"};

#define N 3000
#define TEXT(op)                                                                          \
	"module \"m\" stage=groups dim N in [0,3000] "                                    \
	"func @f(%x: f32[N], %y: f32[N]) -> (f32[N]) { %z = group loops { root %q = " #op \
	" %x, %y : f32[N] yield %q } : f32[N] return %z }"

/* The same numbers on every machine. */
static uint32_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) << 1 | (uint32_t)(*state >> 63);
}

static float of_bits(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

static const float special[] = {
        0.0f,      -0.0f,     1.0f,       -1.0f, 0x1p-149f,       -0x1p-149f,       0x1.fffffcp-127f,
        0x1p-126f, HUGE_VALF, -HUGE_VALF, NAN,   0x1.fffffep127f, -0x1.fffffep127f, 3.0f,
        0.1f,      0x1p24f};

/* Two numbers: all pairs of special ones, then any bits, then quotients of moderate size and whole ones. */
static void put_pair(int64_t i, uint64_t *state, float *x, float *y)
{
	const int64_t n = (int64_t)TFMC_COUNT(special);
	if (i < n * n) {
		*x = special[i / n];
		*y = special[i % n];
	} else if (i % 3 == 0) {
		*x = of_bits(next(state));
		*y = of_bits(next(state));
	} else {
		*y = of_bits((next(state) & 0x80ffffffu) | 0x3f000000u);
		*x = of_bits((next(state) & 0x81ffffffu) | 0x3e000000u) * 1000.0f;
		*x = i % 3 == 1 ? *x : *y * (float)(next(state) % 4000);
	}
}

static void check_op(const char *text, const char *target)
{
	const int64_t dims[] = {N};
	struct group_case c;
	struct group_call call;
	uint64_t state = 1;
	group_case_init(&c, text, target, kernel_emit_group);
	group_call_init(&c, &call, dims);
	for (int64_t i = 0; i < N; i++)
		put_pair(i, &state, &((float *)call.in[0])[i], &((float *)call.in[1])[i]);
	group_case_run(&c, &call, 2);
	group_case_expect(&c, &call);
	group_case_destroy(&c);
}

START_TEST(rests_are_exact)
{
	check_op(TEXT(mod), targets[_i]);
}
END_TEST

/* After 2^29 they are rounded. */
START_TEST(quotients_are_rounded_down)
{
	check_op(TEXT(floor_div), targets[_i]);
}
END_TEST

Suite *suite_kernel_quotient(void);

Suite *suite_kernel_quotient(void)
{
	Suite *s = suite_create("kernel_quotient");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, rests_are_exact, 0, (int)TFMC_COUNT(targets));
	tcase_add_loop_test(t, quotients_are_rounded_down, 0, (int)TFMC_COUNT(targets));
	suite_add_tcase(s, t);
	return s;
}
