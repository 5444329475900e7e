/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elementary functions of the kernel builder against libm in double, by the
 * kernel interpreter: largest error over sampled ranges, in units in the last
 * place or relative to the argument, and the values at the edges.
 */
#include <check.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/kb_interp/interp.h"
#include "backends/kb/math.h"

#define SAMPLES 4096

typedef struct kb_val unary_fn(struct kb *k, struct kb_val x);

struct fixture {
	struct arena arena;
	struct diag_context cx;
	struct kb_module *m;
};

static void setup(struct fixture *t)
{
	const struct kb_caps caps = {.lanes = 4, .registers = 16, .has_fma = true};
	arena_init(&t->arena);
	diag_init(&t->cx, NULL, NULL);
	t->m = kb_module_create(&t->arena, &caps);
}

static void teardown(struct fixture *t)
{
	diag_destroy(&t->cx);
	arena_destroy(&t->arena);
}

/* y[i] = fn(x[i]) for i < n, four lanes at a time; n a multiple of 4. */
static void apply(unary_fn *fn, const float *x, float *y, int64_t n)
{
	struct fixture t;
	setup(&t);
	struct kb *k = kb_begin(t.m, "f", KB_INTERNAL, KB_VOID);
	struct kb_val from = kb_param(k, "x", KB_PTR_T, 0), to = kb_param(k, "y", KB_PTR_T, 0);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, n), 4, 0);
	kb_store(k, fn(k, kb_load(k, KB_TYPE(KB_F32, 4), from, i, 0, 0)), to, i, 0, 0);
	kb_end_loop(k);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	size_t bytes = (size_t)n * sizeof(float);
	struct kb_range ranges[] = {{(void *)(uintptr_t)x, bytes, false}, {y, bytes, true}};
	struct kb_interp in = {.module = t.m, .ranges = ranges, .n_ranges = 2};
	const union kb_cell args[] = {{.p = (void *)(uintptr_t)x}, {.p = y}};
	ck_assert_msg(kb_interp_call(&in, "f", args, 2, NULL), "%s", in.error);
	teardown(&t);
}

static float apply_one(unary_fn *fn, float x)
{
	float in[4] = {x, x, x, x}, out[4];
	apply(fn, in, out, 4);
	return out[0];
}

static void same(float have, float want)
{
	ck_assert_msg(memcmp(&have, &want, sizeof have) == 0 || (isnan(have) && isnan(want)), "%a is not %a",
	              (double)have, (double)want);
}

/* ---- error bounds ---- */

static double silu(double x)
{
	return x / (1 + exp(-x));
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double gelu(double x)
{
	return x * 0.5 * erfc(-x / sqrt(2));
}

static double gelu_tanh(double x)
{
	return x * 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double gelu_quick(double x)
{
	return x * sigmoid(1.702 * x);
}

static double rsqrt(double x)
{
	return 1 / sqrt(x);
}

/* Distance of neighbours at y, at least that at `floor_at`. */
static double unit_at(double y, double floor_at)
{
	double a = fmax(fabs(y), fmax(floor_at, (double)FLT_MIN));
	return ldexp(1, ilogb(a) - 23);
}

struct bound {
	const char *name;
	unary_fn *fn;
	double (*want)(double);
	double lo, hi;
	double ulp;      /* largest error in units in the last place ... */
	double floor_at; /* ... of results at least this large */
};

static const struct bound bounds[] = {
        {"exp", math_exp, exp, -87, 88.7, 1.5, 0},
        {"exp", math_exp, exp, -1, 1, 1.5, 0},
        {"exp_nonpositive", math_exp_nonpositive, exp, -87, 0, 1.5, 0},
        {"exp2_nonpositive", math_exp2_nonpositive, exp2, -126, 0, 1.5, 0},
        {"log", math_log, log, 1e-30, 1e30, 1.5, 0},
        {"log", math_log, log, 0.5, 2, 2.5, 0},
        {"sin", math_sin, sin, -10, 10, 2, 1e-3},
        {"sin", math_sin, sin, -32000, 32000, 2, 1e-2},
        {"cos", math_cos, cos, -10, 10, 2, 1e-3},
        {"cos", math_cos, cos, -32000, 32000, 2, 1e-2},
        {"tanh", math_tanh, tanh, -1, 1, 2.5, 0},
        {"tanh", math_tanh, tanh, -12, 12, 2.5, 0},
        {"erf", math_erf, erf, -1.2, 1.2, 2.5, 0},
        {"erf", math_erf, erf, -6, 6, 2.5, 0},
        {"sigmoid", math_sigmoid, sigmoid, -80, 80, 3, 0},
        {"silu", math_silu, silu, -80, 80, 3, 0},
        {"gelu", math_gelu, gelu, -1.3, 1.3, 4, 0},
        {"gelu", math_gelu, gelu, 0, 20, 4, 0},
        {"gelu", math_gelu, gelu, -5, 0, 40, 0},
        {"gelu_tanh", math_gelu_tanh, gelu_tanh, 0, 20, 6, 0},
        {"gelu_tanh", math_gelu_tanh, gelu_tanh, -4, 0, 6, 1e-1},
        {"gelu_quick", math_gelu_quick, gelu_quick, -20, 20, 40, 0},
        {"rsqrt", math_rsqrt, rsqrt, 1e-30, 1e30, 1.5, 0},
};

START_TEST(errors_are_bounded)
{
	const struct bound *b = &bounds[_i];
	static float x[SAMPLES], y[SAMPLES];
	double worst = 0, at = 0;
	for (int i = 0; i < SAMPLES; i++)
		x[i] = (float)(b->lo + (b->hi - b->lo) * (i + 0.37) / SAMPLES);
	apply(b->fn, x, y, SAMPLES);
	for (int i = 0; i < SAMPLES; i++) {
		double want = b->want((double)x[i]);
		double error = fabs((double)y[i] - want) / unit_at(want, b->floor_at);
		if (!(error <= worst)) {
			worst = error;
			at = (double)x[i];
		}
	}
	ck_assert_msg(worst <= b->ulp, "%s: %g units at %.9g, allowed are %g", b->name, worst, at, b->ulp);
}
END_TEST

/* ---- edges ---- */

START_TEST(edges_of_exponentials)
{
	same(apply_one(math_exp, -INFINITY), 0.0f);
	same(apply_one(math_exp, -1e30f), 0.0f);
	same(apply_one(math_exp, INFINITY), INFINITY);
	same(apply_one(math_exp, 89.0f), INFINITY);
	same(apply_one(math_exp, 0.0f), 1.0f);
	same(apply_one(math_exp, NAN), NAN);
	ck_assert(apply_one(math_exp, -100.0f) > 0); /* subnormal */
	same(apply_one(math_exp_nonpositive, -INFINITY), 0.0f);
	same(apply_one(math_exp_nonpositive, -1e4f), 0.0f);
	same(apply_one(math_exp_nonpositive, -88.0f), 0.0f);
	same(apply_one(math_exp_nonpositive, 0.0f), 1.0f);
	same(apply_one(math_exp_nonpositive, NAN), NAN);
	same(apply_one(math_exp2_nonpositive, -INFINITY), 0.0f);
	same(apply_one(math_exp2_nonpositive, -126.6f), 0.0f);
	same(apply_one(math_exp2_nonpositive, -126.0f), 0x1p-126f);
	same(apply_one(math_exp2_nonpositive, 0.0f), 1.0f);
	same(apply_one(math_exp2_nonpositive, NAN), NAN);
}
END_TEST

START_TEST(edges_of_the_logarithm)
{
	same(apply_one(math_log, 0.0f), -INFINITY);
	same(apply_one(math_log, 1.0f), 0.0f);
	same(apply_one(math_log, -1.0f), NAN);
	same(apply_one(math_log, INFINITY), INFINITY);
	same(apply_one(math_log, NAN), NAN);
	ck_assert(fabs((double)apply_one(math_log, 1e-40f) - log((double)1e-40f)) < 1e-5);
}
END_TEST

START_TEST(edges_of_activations)
{
	unary_fn *const all[] = {math_tanh, math_erf,       math_sigmoid,    math_relu, math_gelu,
	                         math_silu, math_gelu_tanh, math_gelu_quick, math_sin,  math_rsqrt};
	for (size_t i = 0; i < TFMC_COUNT(all); i++)
		same(apply_one(all[i], NAN), NAN);
	same(apply_one(math_tanh, 100.0f), 1.0f);
	same(apply_one(math_tanh, -INFINITY), -1.0f);
	same(apply_one(math_erf, 10.0f), 1.0f);
	same(apply_one(math_erf, -INFINITY), -1.0f);
	same(apply_one(math_sigmoid, -INFINITY), 0.0f);
	same(apply_one(math_sigmoid, 200.0f), 1.0f);
	same(apply_one(math_relu, -3.0f), 0.0f);
	same(apply_one(math_gelu, 100.0f), 100.0f);
	same(apply_one(math_gelu, INFINITY), INFINITY);
	same(apply_one(math_gelu, -0.0f), -0.0f);
	same(apply_one(math_gelu, -1e30f), -0.0f);
	same(apply_one(math_silu, 200.0f), 200.0f);
	same(apply_one(math_silu, -200.0f), -0.0f);
	same(apply_one(math_silu, INFINITY), INFINITY);
	same(apply_one(math_tanh, 1e-30f), 1e-30f);
	same(apply_one(math_rsqrt, 4.0f), 0.5f);
}
END_TEST

/* ---- powers ---- */

struct power {
	float a, b;
};

/* Also where the sign rules of IEEE 754 say what comes out. */
static const struct power powers[] = {
        {2, 10},           {2, -10},          {10, 0.5f},      {-2, 3},
        {-2, 4},           {-2, 0.5f},        {0, 3},          {0, 0},
        {0, -2},           {-5, 0},           {NAN, 0},        {1, NAN},
        {NAN, 2},          {2, NAN},          {1.5f, 100},     {0.9f, 300},
        {3.7f, -40},       {INFINITY, 2},     {2, 1000},       {2, -1000},
        {1e-20f, 2},       {1e20f, -1},       {INFINITY, -1},  {0.5f, 20},
        {1.00001f, 1000},  {7.25f, 1},        {100, 3},        {-3, 5},
        {0.5f, INFINITY},  {0.5f, -INFINITY}, {-1, INFINITY},  {-2, INFINITY},
        {-0.5f, INFINITY}, {1.5f, -INFINITY}, {1.5f, 3e38f},   {0.5f, 3e38f},
        {-0.0f, -1},       {-0.0f, 3},        {-0.0f, 2},      {-0.0f, 0.5f},
        {-INFINITY, 0.5f}, {-INFINITY, 3},    {-INFINITY, -3}, {-INFINITY, -0.5f},
};

static struct kb_val raise(struct kb *k, struct kb_val x, float b)
{
	return math_pow(k, x, math_const(k, x, b));
}

START_TEST(powers_follow_the_rules)
{
	struct power p = powers[_i];
	struct fixture t;
	float in[4] = {p.a, p.a, p.a, p.a}, out[4];
	setup(&t);
	struct kb *k = kb_begin(t.m, "f", KB_INTERNAL, KB_VOID);
	struct kb_val from = kb_param(k, "x", KB_PTR_T, 0), zero = kb_index(k, 0);
	struct kb_val y = raise(k, kb_load(k, KB_TYPE(KB_F32, 4), from, zero, 0, 0), p.b);
	kb_store(k, y, kb_local(k, "spare", KB_F32, 4), zero, 0, 0);
	kb_store(k, y, from, zero, 0, 0);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	memcpy(out, in, sizeof out);
	struct kb_range range = {out, sizeof out, true};
	struct kb_interp run = {.module = t.m, .ranges = &range, .n_ranges = 1};
	const union kb_cell args[] = {{.p = out}};
	ck_assert_msg(kb_interp_call(&run, "f", args, 1, NULL), "%s", run.error);
	float want = (float)pow((double)p.a, (double)p.b);
	bool close = fabs((double)out[0] - (double)want) <= 4e-6 * fabs((double)want);
	close = close && !signbit(out[0]) == !signbit(want);
	ck_assert_msg(close || (isinf(want) && out[0] == want) || (isnan(out[0]) && isnan(want)),
	              "%g^%g is %g, not %g", (double)p.a, (double)p.b, (double)out[0], (double)want);
	teardown(&t);
}
END_TEST

Suite *suite_kernel_math(void);

Suite *suite_kernel_math(void)
{
	Suite *s = suite_create("kernel_math");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, errors_are_bounded, 0, (int)TFMC_COUNT(bounds));
	tcase_add_loop_test(t, powers_follow_the_rules, 0, (int)TFMC_COUNT(powers));
	tcase_add_test(t, edges_of_exponentials);
	tcase_add_test(t, edges_of_the_logarithm);
	tcase_add_test(t, edges_of_activations);
	suite_add_tcase(s, t);
	return s;
}
