/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of the elementwise ops, with the special numbers.
 */
#include <check.h>
#include <math.h>

#include "tests/support/interp/interp_checks.h"
#include "tests/support/kernels/op_case.h"

#define INF  HUGE_VAL
#define NANS ((double)NAN)

/* One float operand of n elements. */
#define CHECK_UNARY(code, n, inputs, ...) \
	op_case_check(OP_##code, NULL, INS(TENSOR(F32, (n), inputs)), TENSOR(F32, (n), __VA_ARGS__))
#define LIST(...) __VA_ARGS__

void interp_check_neg(void)
{
	CHECK_UNARY(neg, 3, LIST(1.5, -2, INF), -1.5, 2, -INF);
	op_case_check(OP_neg, NULL, INS(TENSOR(I32, (3), 5, -7, -2147483648.0)),
	              TENSOR(I32, (3), -5, 7, -2147483648.0));
	op_case_check(OP_neg, NULL, INS(TENSOR(U8, (2), 1, 0)), TENSOR(U8, (2), 255, 0));
}

void interp_check_abs(void)
{
	CHECK_UNARY(abs, 3, LIST(1.5, -2, -INF), 1.5, 2, INF);
	op_case_check(OP_abs, NULL, INS(TENSOR(I8, (3), 5, -7, -128)), TENSOR(I8, (3), 5, 7, -128));
}

void interp_check_exp(void)
{
	CHECK_UNARY(exp, 5, LIST(0, 1, -1, 1000, -INF), 1, 2.7182817, 0.36787945, INF, 0);
}

void interp_check_log(void)
{
	CHECK_UNARY(log, 4, LIST(1, 10, 0, -1), 0, 2.3025851, -INF, NANS);
}

void interp_check_sqrt(void)
{
	CHECK_UNARY(sqrt, 4, LIST(4, 2, 0, -1), 2, 1.4142135, 0, NANS);
}

void interp_check_rsqrt(void)
{
	CHECK_UNARY(rsqrt, 3, LIST(4, 0.25, 0), 0.5, 2, INF);
}

void interp_check_sin(void)
{
	CHECK_UNARY(sin, 2, LIST(0, 1), 0, 0.84147098);
}

void interp_check_cos(void)
{
	CHECK_UNARY(cos, 2, LIST(0, 1), 1, 0.54030231);
}

void interp_check_tanh(void)
{
	CHECK_UNARY(tanh, 3, LIST(0, 0.5, 100), 0, 0.46211716, 1);
}

void interp_check_erf(void)
{
	CHECK_UNARY(erf, 3, LIST(0, 0.5, -10), 0, 0.52049988, -1);
}

void interp_check_floor(void)
{
	CHECK_UNARY(floor, 3, LIST(1.5, -1.5, 3), 1, -2, 3);
}

void interp_check_ceil(void)
{
	CHECK_UNARY(ceil, 3, LIST(1.5, -1.5, 3), 2, -1, 3);
}

void interp_check_sigmoid(void)
{
	CHECK_UNARY(sigmoid, 4, LIST(0, 1, -1000, 1000), 0.5, 0.73105858, 0, 1);
}

void interp_check_relu(void)
{
	CHECK_UNARY(relu, 4, LIST(-1, 2, NANS, -INF), 0, 2, NANS, 0);
}

void interp_check_relu2(void)
{
	CHECK_UNARY(relu2, 3, LIST(-1, 3, NANS), 0, 9, NANS);
}

void interp_check_gelu(void)
{
	CHECK_UNARY(gelu, 3, LIST(0, 1, -1), 0, 0.84134475, -0.15865525);
}

void interp_check_gelu_tanh(void)
{
	CHECK_UNARY(gelu_tanh, 3, LIST(0, 1, -1), 0, 0.84119199, -0.15880801);
}

void interp_check_gelu_quick(void)
{
	CHECK_UNARY(gelu_quick, 2, LIST(0, 1), 0, 0.84579577);
}

void interp_check_silu(void)
{
	CHECK_UNARY(silu, 2, LIST(1, -1), 0.73105858, -0.26894142);
}

void interp_check_scale(void)
{
	op_case_check(OP_scale, &(struct attrs_scale){.f = 0.5}, INS(TENSOR(F32, (2, 1), 3, -4)),
	              TENSOR(F32, (2, 1), 1.5, -2));
	/* One rounding, to the type of the result. */
	op_case_check(OP_scale, &(struct attrs_scale){.f = 1.0 / 3}, INS(TENSOR(F16, (1), 1)),
	              TENSOR(F16, (1), 0.333251953125));
}

void interp_check_softcap(void)
{
	op_case_check(OP_softcap, &(struct attrs_softcap){.c = 2}, INS(TENSOR(F32, (3), 0, 1, 1000)),
	              TENSOR(F32, (3), 0, 0.92423431, 2));
}

void interp_check_not(void)
{
	op_case_check(OP_not, NULL, INS(TENSOR(BOOL, (2), 0, 1)), TENSOR(BOOL, (2), 1, 0));
}

void interp_check_cast(void)
{
	op_case_check(OP_cast, &(struct attrs_cast){.dtype = DT_I32},
	              INS(TENSOR(F32, (5), 1.9, -1.9, 3e9, -INF, NANS)),
	              TENSOR(I32, (5), 1, -1, 2147483647.0, -2147483648.0, 0));
	op_case_check(OP_cast, &(struct attrs_cast){.dtype = DT_U8}, INS(TENSOR(F32, (3), -1, 255.5, 256)),
	              TENSOR(U8, (3), 0, 255, 255));
	op_case_check(OP_cast, &(struct attrs_cast){.dtype = DT_BOOL}, INS(TENSOR(F32, (3), 0, 0.25, NANS)),
	              TENSOR(BOOL, (3), 0, 1, 1));
	op_case_check(OP_cast, &(struct attrs_cast){.dtype = DT_F16}, INS(TENSOR(I32, (2), 2049, 100000)),
	              TENSOR(F16, (2), 2048, INF));
	op_case_check(OP_cast, &(struct attrs_cast){.dtype = DT_F32}, INS(TENSOR(BOOL, (2), 0, 1)),
	              TENSOR(F32, (2), 0, 1));
}

/* Two float operands of n elements. */
#define CHECK_BINARY(code, n, a, b, ...)                                              \
	op_case_check(OP_##code, NULL, INS(TENSOR(F32, (n), a), TENSOR(F32, (n), b)), \
	              TENSOR(F32, (n), __VA_ARGS__))
#define CHECK_INT32(code, n, a, b, ...)                                               \
	op_case_check(OP_##code, NULL, INS(TENSOR(I32, (n), a), TENSOR(I32, (n), b)), \
	              TENSOR(I32, (n), __VA_ARGS__))

void interp_check_add(void)
{
	CHECK_BINARY(add, 3, LIST(1, -2, INF), LIST(0.5, 2, -INF), 1.5, 0, NANS);
	CHECK_INT32(add, 2, LIST(2147483647.0, 3), LIST(1, -4), -2147483648.0, -1);
	op_case_check(OP_add, NULL, INS(TENSOR(U8, (1), 200), TENSOR(U8, (1), 100)), TENSOR(U8, (1), 44));
	op_case_check(OP_add, NULL, INS(EMPTY(F32, (2, 0)), EMPTY(F32, (2, 0))), EMPTY(F32, (2, 0)));
}

void interp_check_sub(void)
{
	CHECK_BINARY(sub, 2, LIST(1, -2), LIST(0.5, 2), 0.5, -4);
	CHECK_INT32(sub, 2, LIST(-2147483648.0, 3), LIST(1, 4), 2147483647.0, -1);
}

void interp_check_mul(void)
{
	CHECK_BINARY(mul, 3, LIST(1, -2, INF), LIST(0.5, 2, 0), 0.5, -4, NANS);
	CHECK_INT32(mul, 2, LIST(65536, -3), LIST(65537, 7), 65536, -21);
	/* 2^33 * 2^33 wraps to 2^66 mod 2^64 */
	op_case_check(OP_mul, NULL, INS(TENSOR(I64, (1), 0x1p33), TENSOR(I64, (1), 0x1p33)),
	              TENSOR(I64, (1), 0));
}

void interp_check_div(void)
{
	CHECK_BINARY(div, 3, LIST(1, -2, 0), LIST(4, 0, 0), 0.25, -INF, NANS);
}

void interp_check_floor_div(void)
{
	CHECK_BINARY(floor_div, 7, LIST(7, -7, 7, 1, -5, INF, 3), LIST(2, 2, -2, 0, INF, 2, 0.1f), 3, -4, -4,
	             INF, -1, INF, 29);
	CHECK_INT32(floor_div, 6, LIST(7, -7, 7, -7, 7, -2147483648.0), LIST(2, 2, -2, -2, 0, -1), 3, -4, -4,
	            3, 0, -2147483648.0);
	op_case_check(OP_floor_div, NULL, INS(TENSOR(I8, (2), -128, 127), TENSOR(I8, (2), -1, -128)),
	              TENSOR(I8, (2), -128, -1));
}

void interp_check_mod(void)
{
	CHECK_BINARY(mod, 7, LIST(7, -7, 7, 1, -5, INF, 5.5), LIST(2, 2, -2, 0, INF, 2, 2), 1, 1, -1, NANS,
	             INF, NANS, 1.5);
	CHECK_INT32(mod, 6, LIST(7, -7, 7, -7, 7, -2147483648.0), LIST(3, 3, -3, -3, 0, -1), 1, 2, -2, -1, 0,
	            0);
}

void interp_check_pow(void)
{
	CHECK_BINARY(pow, 3, LIST(2, 9, -2), LIST(10, 0.5, 3), 1024, 3, -8);
	CHECK_INT32(pow, 9, LIST(2, -3, 0, 2, 3, -1, -1, 1, 0), LIST(10, 3, 0, 31, -1, -3, -4, -5, -1), 1024,
	            -27, 1, -2147483648.0, 0, -1, 1, 1, 0);
	op_case_check(OP_pow, NULL, INS(TENSOR(U8, (2), 3, 2), TENSOR(U8, (2), 6, 255)),
	              TENSOR(U8, (2), 217, 0));
}

void interp_check_min(void)
{
	CHECK_BINARY(min, 4, LIST(1, -2, NANS, 1), LIST(4, -3, 0, NANS), 1, -3, NANS, NANS);
	CHECK_INT32(min, 2, LIST(1, -2), LIST(4, -3), 1, -3);
}

void interp_check_max(void)
{
	CHECK_BINARY(max, 4, LIST(1, -2, NANS, 1), LIST(4, -3, 0, NANS), 4, -2, NANS, NANS);
	CHECK_INT32(max, 2, LIST(1, -2), LIST(4, -3), 4, -2);
}

void interp_check_cmp(void)
{
	static const double want[][4] = {
	        [CMP_lt] = {1, 0, 0, 0}, [CMP_le] = {1, 1, 0, 0}, [CMP_gt] = {0, 0, 1, 0},
	        [CMP_ge] = {0, 1, 1, 0}, [CMP_eq] = {0, 1, 0, 0}, [CMP_ne] = {1, 0, 1, 1},
	};
	for (int kind = CMP_lt; kind <= CMP_ne; kind++)
		op_case_check(OP_cmp, &(struct attrs_cmp){.kind = kind},
		              INS(TENSOR(F32, (4), 1, 2, 3, NANS), TENSOR(F32, (4), 2, 2, 2, NANS)),
		              TENSOR(BOOL, (4), want[kind][0], want[kind][1], want[kind][2], want[kind][3]));
}

void interp_check_and(void)
{
	op_case_check(OP_and, NULL, INS(TENSOR(BOOL, (4), 0, 0, 1, 1), TENSOR(BOOL, (4), 0, 1, 0, 1)),
	              TENSOR(BOOL, (4), 0, 0, 0, 1));
}

void interp_check_or(void)
{
	op_case_check(OP_or, NULL, INS(TENSOR(BOOL, (4), 0, 0, 1, 1), TENSOR(BOOL, (4), 0, 1, 0, 1)),
	              TENSOR(BOOL, (4), 0, 1, 1, 1));
}

void interp_check_where(void)
{
	op_case_check(OP_where, NULL,
	              INS(TENSOR(BOOL, (2), 1, 0), TENSOR(F32, (2), 1, NANS), TENSOR(F32, (2), NANS, 4)),
	              TENSOR(F32, (2), 1, 4));
}

void interp_check_mask_rows(void)
{
	op_case_check(
	        OP_mask_rows, NULL,
	        INS(TENSOR(F32, (2, 3, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, NANS, INF), TENSOR(I32, (2), 3, 1)),
	        TENSOR(F32, (2, 3, 2), 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0));
	op_case_check(OP_mask_rows, NULL, INS(TENSOR(I32, (1, 2), 8, 9), TENSOR(I32, (1), 0)),
	              TENSOR(I32, (1, 2), 0, 0));
}

void interp_check_all_gather(void)
{
	const struct attrs_all_gather two = {.ranks = 2};
	op_case_check(OP_all_gather, &two, INS(TENSOR(F32, (2, 3), 1, 2, 3, 4, 5, INF)),
	              TENSOR(F32, (2, 6), 1, 2, 3, 1, 2, 3, 4, 5, INF, 4, 5, INF));
}

/* Without other ranks the stage before and the one behind have the values of this one. */
void interp_check_send(void)
{
	const struct attrs_send two = {.ranks = 3, .tag = 7, .stages = 2}, one = {.ranks = 3, .stages = 1};
	op_case_check(OP_send, &two, INS(TENSOR(F32, (2, 2), 1, -2, 0, INF)),
	              TENSOR(F32, (2, 2), 1, -2, 0, INF));
	struct op_case c;
	op_case_begin(&c);
	ck_assert_int_eq(op_case_try(&c, OP_send, &one, INS(TENSOR(F32, (1), 1))), TFMC_INVALID);
	op_case_end(&c);
}

void interp_check_receive(void)
{
	const struct attrs_receive two = {.ranks = 1, .stages = 2};
	op_case_check(OP_receive, &two, INS(TENSOR(F32, (2, 2), 1, -2, 0, INF)),
	              TENSOR(F32, (2, 2), 1, -2, 0, INF));
}

/* Without other ranks every term is that of this one. */
void interp_check_all_reduce(void)
{
	const struct attrs_all_reduce three = {.ranks = 3, .tag = 7}, none = {.ranks = 0};
	op_case_check(OP_all_reduce, &three, INS(TENSOR(F32, (2, 2), 1, -2, 0, INF)),
	              TENSOR(F32, (2, 2), 3, -6, 0, INF));
	/* (1 + 1) + 1 and rounding after each addition: 2^24 + 2^24 + 1 has no f32 */
	op_case_check(OP_all_reduce, &three, INS(TENSOR(F32, (1), 16777217)), TENSOR(F32, (1), 50331648));
	struct op_case c;
	op_case_begin(&c);
	ck_assert_int_eq(op_case_try(&c, OP_all_reduce, &none, INS(TENSOR(F32, (1), 1))), TFMC_INVALID);
	op_case_end(&c);
}
