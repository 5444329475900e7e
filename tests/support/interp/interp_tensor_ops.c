/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of rowwise ops, reductions, movement and contractions.
 */
#include <float.h>
#include <math.h>

#include "tests/support/interp/interp_checks.h"
#include "tests/support/kernels/op_case.h"

#define INF  HUGE_VAL
#define NANS ((double)NAN)

#define AXES(...)                                                                   \
	{                                                                           \
		(int64_t[]){__VA_ARGS__}, LITERAL_COUNT(((int64_t[]){__VA_ARGS__})) \
	}

/* ---- rows ---- */

void interp_check_softmax(void)
{
	op_case_check(OP_softmax, NULL, INS(TENSOR(F32, (3, 3), 1, 2, 3, -INF, 1000, -INF, -INF, -INF, -INF)),
	              TENSOR(F32, (3, 3), 0.09003057, 0.24472847, 0.66524096, 0, 1, 0, 0, 0, 0));
	op_case_check(OP_softmax, NULL, INS(TENSOR(F32, (2), 1, NANS)), TENSOR(F32, (2), NANS, NANS));
	op_case_check(OP_softmax, NULL, INS(EMPTY(F32, (2, 0))), EMPTY(F32, (2, 0)));
}

void interp_check_log_softmax(void)
{
	op_case_check(
	        OP_log_softmax, NULL, INS(TENSOR(F32, (2, 3), 1, 2, 3, 1000, 1000, -INF)),
	        TENSOR(F32, (2, 3), -2.40760596, -1.40760596, -0.40760596, -0.69314718, -0.69314718, -INF));
}

void interp_check_mask(void)
{
	op_case_check(OP_mask, &(struct attrs_mask){.mask = MASK_causal},
	              INS(TENSOR(F32, (2, 3), 1, 2, 3, 4, 5, 6)),
	              TENSOR(F32, (2, 3), 1, -INF, -INF, 4, 5, -INF));
	/* [B=2, H=1, S=1, T=3] with lengths 1 and 3 */
	op_case_check(OP_mask, &(struct attrs_mask){.mask = MASK_none},
	              INS(TENSOR(F32, (2, 1, 1, 3), 1, 2, 3, 4, 5, 6), TENSOR(I32, (2), 1, 3)),
	              TENSOR(F32, (2, 1, 1, 3), 1, -INF, -INF, 4, 5, 6));
	/* past 0 and 1 */
	op_case_check(OP_mask, &(struct attrs_mask){.mask = MASK_causal},
	              INS(TENSOR(F32, (2, 1, 1, 3), 1, 2, 3, 4, 5, 6), ABSENT, TENSOR(I32, (2), 0, 1)),
	              TENSOR(F32, (2, 1, 1, 3), 1, -INF, -INF, 4, 5, -INF));
	/* a window of 2: the key itself and its neighbours, or the one before; past 1 moves both ends */
	const struct literal x = TENSOR(F32, (1, 1, 2, 4), 1, 2, 3, 4, 5, 6, 7, 8);
	op_case_check(OP_mask, &(struct attrs_mask){.mask = MASK_none, .window = 2}, INS(x),
	              TENSOR(F32, (1, 1, 2, 4), 1, 2, -INF, -INF, 5, 6, 7, -INF));
	op_case_check(OP_mask, &(struct attrs_mask){.mask = MASK_causal, .window = 2},
	              INS(x, ABSENT, TENSOR(I32, (1), 1)),
	              TENSOR(F32, (1, 1, 2, 4), 1, 2, -INF, -INF, -INF, 6, 7, -INF));
}

void interp_check_rope(void)
{
	/* [B=1, S=2, E=5]; rows of the table: cos, cos, sin, sin by angles 0, 0 and 90 degrees, 3-4-5 */
	const struct literal x = TENSOR(F32, (1, 2, 5), 1, 2, 3, 4, 5, 10, 20, 30, 40, 50);
	const struct literal table = TENSOR(F32, (2, 4), 1, 1, 0, 0, 0, 0.6, 1, 0.8);
	op_case_check(
	        OP_rope, &(struct attrs_rope){.layout = ROPE_halves},
	        INS(x, table, TENSOR(I32, (1, 2), 0, 1)),
	        TENSOR(F32, (1, 2, 5), 1, 2, 3, 4, 5, -30, 20 * 0.6 - 40 * 0.8, 10, 40 * 0.6 + 20 * 0.8, 50));
	/* positions outside the table are clamped */
	op_case_check(
	        OP_rope, &(struct attrs_rope){.layout = ROPE_interleaved},
	        INS(x, table, TENSOR(I32, (1, 2), -3, 7)),
	        TENSOR(F32, (1, 2, 5), 1, 2, 3, 4, 5, -20, 10, 30 * 0.6 - 40 * 0.8, 40 * 0.6 + 30 * 0.8, 50));
	/* [B=2, H=2, S=1, E=2]: heads share the position of their sequence */
	op_case_check(OP_rope, &(struct attrs_rope){.layout = ROPE_halves},
	              INS(TENSOR(F32, (2, 2, 1, 2), 1, 2, 3, 4, 5, 6, 7, 8), TENSOR(F32, (2, 2), 1, 0, 0, 1),
	                  TENSOR(I32, (2, 1), 1, 0)),
	              TENSOR(F32, (2, 2, 1, 2), -2, 1, -4, 3, 5, 6, 7, 8));
}

void interp_check_masked_softmax(void)
{
	op_case_check(OP_masked_softmax, &(struct attrs_masked_softmax){.scale = 0.5, .mask = MASK_causal},
	              INS(TENSOR(F32, (1, 1, 2, 3), 7, 8, 9, 2, 4, 9)),
	              TENSOR(F32, (1, 1, 2, 3), 1, 0, 0, 0.26894142, 0.73105858, 0));
	/* softcap 2 after the scale: 2 tanh(1/2) = 0.92423431 against 0; length 0 gives zeros */
	op_case_check(OP_masked_softmax, &(struct attrs_masked_softmax){.scale = 1, .softcap = 2},
	              INS(TENSOR(F32, (2, 1, 1, 2), 0, 1, 5, 6), TENSOR(I32, (2), 2, 0)),
	              TENSOR(F32, (2, 1, 1, 2), 0.28409591, 0.71590409, 0, 0));
	/* a window of 1 leaves each query its own key; the second one lies beyond the length */
	op_case_check(OP_masked_softmax, &(struct attrs_masked_softmax){.scale = 1, .window = 1},
	              INS(TENSOR(F32, (1, 1, 2, 2), 7, 8, 9, 2), TENSOR(I32, (1), 1)),
	              TENSOR(F32, (1, 1, 2, 2), 1, 0, 0, 0));
	/* 2^1 against 2^3 */
	op_case_check(OP_masked_softmax, &(struct attrs_masked_softmax){.scale = 2 * 0.69314718055994531},
	              INS(TENSOR(F32, (1, 1, 1, 2), 0.5, 1.5)), TENSOR(F32, (1, 1, 1, 2), 0.2, 0.8));
}

void interp_check_layer_norm(void)
{
	/* mean 2, variance 2/3 */
	op_case_check(OP_layer_norm, &(struct attrs_layer_norm){.eps = 0}, INS(TENSOR(F32, (1, 3), 1, 2, 3)),
	              TENSOR(F32, (1, 3), -1.22474487, 0, 1.22474487));
	op_case_check(
	        OP_layer_norm, &(struct attrs_layer_norm){.eps = 0},
	        INS(TENSOR(F32, (1, 3), 1, 2, 3), TENSOR(F32, (3), 2, 2, 2), TENSOR(F32, (3), 1, 0, -1)),
	        TENSOR(F32, (1, 3), -1.44948974, 0, 1.44948974));
	op_case_check(OP_layer_norm, &(struct attrs_layer_norm){.eps = 1},
	              INS(TENSOR(F32, (2), 5, 5), ABSENT, TENSOR(F32, (2), 3, 4)), TENSOR(F32, (2), 3, 4));
}

void interp_check_rms_norm(void)
{
	op_case_check(OP_rms_norm, &(struct attrs_rms_norm){.eps = 0}, INS(TENSOR(F32, (2, 2), 1, 7, 3, -3)),
	              TENSOR(F32, (2, 2), 0.2, 1.4, 1, -1));
	op_case_check(OP_rms_norm, &(struct attrs_rms_norm){.eps = 11},
	              INS(TENSOR(F32, (2), 3, 4.1231056256), TENSOR(F32, (2), 2, -2)),
	              TENSOR(F32, (2), 1.22474487, -1.68325082));
}

void interp_check_quantize_rows(void)
{
	/* steps 1, 2 and 0; 0.5 and 1.5 to even integers */
	op_case_check(OP_quantize_rows, &(struct attrs_quantize_rows){.block = 3},
	              INS(TENSOR(F32, (1, 8), 127, 0.5, -1.5, 3, -254, 1, 0, 0)),
	              TENSOR(F32, (1, 8), 127, 0, -2, 4, -254, 0, 0, 0));
	op_case_check(OP_quantize_rows, &(struct attrs_quantize_rows){.block = 0},
	              INS(TENSOR(F32, (2, 3), 1e-45, 0, -1e-38, 127, INFINITY, 1)),
	              TENSOR(F32, (2, 3), 0, 0, 0, NAN, NAN, NAN));
	op_case_check(OP_quantize_rows, &(struct attrs_quantize_rows){.block = 2},
	              INS(TENSOR(F32, (4), NAN, 3, -127, 2.4)), TENSOR(F32, (4), NAN, NAN, -127, 2));
	/* 8 bits: ties to even, the largest and the smallest numbers */
	op_case_check(OP_quantize_rows, &(struct attrs_quantize_rows){.to = ROUND_bf16},
	              INS(TENSOR(F32, (1, 7), 257, 259, -258.5, FLT_MAX, 0x1p-133, NAN, -INFINITY)),
	              TENSOR(F32, (1, 7), 256, 260, -258, INFINITY, 0x1p-133, NAN, -INFINITY));
}

/* ---- reductions ---- */

void interp_check_reduce_sum(void)
{
	op_case_check(OP_reduce_sum, &(struct attrs_reduce_sum){.axes = AXES(0)},
	              INS(TENSOR(F32, (2, 3), 1, 2, 3, 4, 5, 6)), TENSOR(F32, (3), 5, 7, 9));
	op_case_check(OP_reduce_sum, &(struct attrs_reduce_sum){.axes = AXES(0, 2), .keep = true},
	              INS(TENSOR(F32, (2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8)), TENSOR(F32, (1, 2, 1), 14, 22));
	op_case_check(OP_reduce_sum, &(struct attrs_reduce_sum){.axes = AXES(0)}, INS(EMPTY(F32, (0, 2))),
	              TENSOR(F32, (2), 0, 0));
	op_case_check(OP_reduce_sum, &(struct attrs_reduce_sum){.axes = AXES(0)},
	              INS(TENSOR(U8, (3), 200, 100, 1)), SCALAR(U8, 45));
}

void interp_check_reduce_mean(void)
{
	op_case_check(OP_reduce_mean, &(struct attrs_reduce_mean){.axes = AXES(1)},
	              INS(TENSOR(F32, (2, 2), 1, 2, 3, 6)), TENSOR(F32, (2), 1.5, 4.5));
	op_case_check(OP_reduce_mean, &(struct attrs_reduce_mean){.axes = AXES(0, 1)},
	              INS(TENSOR(F32, (2, 2), 1, 2, 3, 6)), SCALAR(F32, 3));
}

void interp_check_reduce_max(void)
{
	op_case_check(OP_reduce_max, &(struct attrs_reduce_max){.axes = AXES(1)},
	              INS(TENSOR(F32, (3, 2), -1, -2, NANS, 6, 6, NANS)), TENSOR(F32, (3), -1, NANS, NANS));
	op_case_check(OP_reduce_max, &(struct attrs_reduce_max){.axes = AXES(1)}, INS(EMPTY(F32, (1, 0))),
	              TENSOR(F32, (1), -INF));
	op_case_check(OP_reduce_max, &(struct attrs_reduce_max){.axes = AXES(1)}, INS(EMPTY(I8, (1, 0))),
	              TENSOR(I8, (1), -128));
}

void interp_check_reduce_min(void)
{
	op_case_check(OP_reduce_min, &(struct attrs_reduce_min){.axes = AXES(1), .keep = true},
	              INS(TENSOR(F32, (3, 2), -1, -2, NANS, 6, 6, NANS)),
	              TENSOR(F32, (3, 1), -2, NANS, NANS));
	op_case_check(OP_reduce_min, &(struct attrs_reduce_min){.axes = AXES(1)}, INS(EMPTY(F32, (1, 0))),
	              TENSOR(F32, (1), INF));
}

void interp_check_argmax(void)
{
	op_case_check(OP_argmax, &(struct attrs_argmax){.axis = -1},
	              INS(TENSOR(F32, (4, 3), 1, 5, 5, NANS, -2, -1, NANS, NANS, NANS, -INF, -INF, -INF)),
	              TENSOR(I32, (4), 1, 2, 0, 0));
	op_case_check(OP_argmax, &(struct attrs_argmax){.axis = 0},
	              INS(TENSOR(F32, (2, 3), 1, 5, 5, 2, 4, 5)), TENSOR(I32, (3), 1, 0, 0));
	op_case_check(OP_argmax, &(struct attrs_argmax){.axis = 0}, INS(TENSOR(I8, (3), -3, -2, -2)),
	              SCALAR(I32, 1));
}

void interp_check_cumsum(void)
{
	op_case_check(OP_cumsum, NULL, INS(TENSOR(F32, (2, 3), 1, 2, 3, -1, INF, -INF)),
	              TENSOR(F32, (2, 3), 1, 3, 6, -1, INF, NANS));
	op_case_check(OP_cumsum, NULL, INS(TENSOR(U8, (3), 200, 100, 1)), TENSOR(U8, (3), 200, 44, 45));
	op_case_check(OP_cumsum, NULL, INS(EMPTY(F32, (2, 0))), EMPTY(F32, (2, 0)));
}

void interp_check_topk(void)
{
	op_case_check(OP_topk, &(struct attrs_topk){.k = 2},
	              INS(TENSOR(F32, (3, 3), 1, 5, 5, NANS, -INF, -1, NANS, 7, NANS)),
	              TENSOR(F32, (3, 2, 2), 5, 5, 1, 2, -1, -INF, 2, 1, 7, NANS, 1, 0));
	op_case_check(OP_topk, &(struct attrs_topk){.k = 1}, INS(TENSOR(I32, (2), -3, -2)),
	              TENSOR(I32, (2, 1), -2, 1));
}

/* Blocks of two columns, the last one of one. */
void interp_check_block_argmax(void)
{
	op_case_check(OP_block_argmax, &(struct attrs_block_argmax){.width = 2},
	              INS(TENSOR(F32, (2, 3), 1, 5, 5, NANS, NANS, -INF)),
	              TENSOR(F32, (2, 2, 2), 5, 5, 1, 2, NANS, -INF, 0, 2));
	op_case_check(OP_block_argmax, &(struct attrs_block_argmax){.width = 8},
	              INS(TENSOR(F32, (4), NANS, 7, 9, 9)), TENSOR(F32, (2, 1), 9, 2));
}

void interp_check_block_log_softmax(void)
{
	op_case_check(OP_block_log_softmax, &(struct attrs_block_log_softmax){.width = 2},
	              INS(TENSOR(F32, (2, 3), 1, 1, 5, -INF, -INF, 2), TENSOR(I32, (2), 1, 0)),
	              TENSOR(F32, (2, 3, 2), 1, 5, 2, 1, 0, -INF, -INF, 2, 1, 1, 0, -INF));
	/* an id beyond the columns is the last one; NaN stays in its block */
	op_case_check(OP_block_log_softmax, &(struct attrs_block_log_softmax){.width = 2},
	              INS(TENSOR(F32, (1, 3), NANS, 1, 5), TENSOR(I32, (1), 7)),
	              TENSOR(F32, (1, 3, 2), 1, 5, NANS, 1, -INF, 0));
}

/* ---- movement ---- */

/* Runs an op whose attributes hold dims of the module of `c`. */
#define CHECK_WITH_DIMS(code, attributes, operands, want) \
	do {                                              \
		struct op_case c;                         \
		op_case_begin(&c);                        \
		struct attrs_##code a = attributes;       \
		op_case_run(&c, OP_##code, &a, operands); \
		op_case_expect(&c, want);                 \
		op_case_end(&c);                          \
	} while (0)
#define DIMS_OF(...) op_case_dims(&c, LITERAL_COUNT(LITERAL_DIMS(__VA_ARGS__)), LITERAL_DIMS(__VA_ARGS__))
#define BRACED(...)         \
	{                   \
		__VA_ARGS__ \
	}

void interp_check_reshape(void)
{
	CHECK_WITH_DIMS(reshape, BRACED(.dims = DIMS_OF(3, 2)), INS(TENSOR(F32, (2, 3), 1, 2, 3, 4, 5, 6)),
	                TENSOR(F32, (3, 2), 1, 2, 3, 4, 5, 6));
}

void interp_check_transpose(void)
{
	op_case_check(OP_transpose, &(struct attrs_transpose){.perm = AXES(1, 0)},
	              INS(TENSOR(F32, (2, 3), 1, 2, 3, 4, 5, 6)), TENSOR(F32, (3, 2), 1, 4, 2, 5, 3, 6));
	/* axis i of the result is axis perm[i]: [2,1,3] -> [3,2,1] */
	op_case_check(OP_transpose, &(struct attrs_transpose){.perm = AXES(2, 0, 1)},
	              INS(TENSOR(I32, (2, 1, 3), 1, 2, 3, 4, 5, 6)),
	              TENSOR(I32, (3, 2, 1), 1, 4, 2, 5, 3, 6));
}

void interp_check_broadcast(void)
{
	CHECK_WITH_DIMS(broadcast, BRACED(.dims = DIMS_OF(2, 2, 3)), INS(TENSOR(F32, (2, 1), 1, 2)),
	                TENSOR(F32, (2, 2, 3), 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2));
	CHECK_WITH_DIMS(broadcast, BRACED(.dims = DIMS_OF(3)), INS(SCALAR(BOOL, 1)),
	                TENSOR(BOOL, (3), 1, 1, 1));
}

void interp_check_slice(void)
{
	CHECK_WITH_DIMS(
	        slice,
	        BRACED(.axis = 1, .begin = ir_dim_const(c.m->dims, 1), .size = ir_dim_const(c.m->dims, 2)),
	        INS(TENSOR(F32, (2, 3), 1, 2, 3, 4, 5, 6)), TENSOR(F32, (2, 2), 2, 3, 5, 6));
}

void interp_check_last_index(void)
{
	CHECK_WITH_DIMS(last_index, BRACED(.size = ir_dim_const(c.m->dims, 4)),
	                INS(TENSOR(I32, (5), 2, 0, 2, -1, 4)), TENSOR(I32, (4), 1, -1, 2, -1));
}

void interp_check_concat(void)
{
	op_case_check(OP_concat, &(struct attrs_concat){.axis = 1},
	              INS(TENSOR(F32, (2, 1), 1, 2), EMPTY(F32, (2, 0)), TENSOR(F32, (2, 2), 3, 4, 5, 6)),
	              TENSOR(F32, (2, 3), 1, 3, 4, 2, 5, 6));
}

void interp_check_pad(void)
{
	op_case_check(OP_pad, &(struct attrs_pad){.axis = 1, .before = 1, .after = 2, .value = -1},
	              INS(TENSOR(F32, (2, 1), 5, 6)), TENSOR(F32, (2, 4), -1, 5, -1, -1, -1, 6, -1, -1));
}

void interp_check_gather(void)
{
	op_case_check(OP_gather, NULL,
	              INS(TENSOR(F32, (3, 2), 1, 2, 3, 4, 5, 6), TENSOR(I32, (2, 2), 2, 0, -5, 9)),
	              TENSOR(F32, (2, 2, 2), 5, 6, 1, 2, 1, 2, 5, 6));
	op_case_check(OP_gather, NULL, INS(TENSOR(I32, (3), 7, 8, 9), SCALAR(I32, 1)), SCALAR(I32, 8));
}

void interp_check_select_rows(void)
{
	op_case_check(OP_select_rows, NULL,
	              INS(TENSOR(F32, (3, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
	                  TENSOR(I32, (3), 1, -1, 2)),
	              TENSOR(F32, (3, 2), 3, 4, 5, 6, 11, 12));
}

/* ---- contractions ---- */

void interp_check_matmul(void)
{
	/* [1 2 3; 4 5 6] [1 0; 0 1; 2 3] in all four storage orders */
	const struct literal a = TENSOR(F32, (2, 3), 1, 2, 3, 4, 5, 6),
	                     at = TENSOR(F32, (3, 2), 1, 4, 2, 5, 3, 6);
	const struct literal b = TENSOR(F32, (3, 2), 1, 0, 0, 1, 2, 3),
	                     bt = TENSOR(F32, (2, 3), 1, 0, 2, 0, 1, 3);
	const struct literal y = TENSOR(F32, (2, 2), 7, 11, 16, 23);
	op_case_check(OP_matmul, NULL, INS(a, b), y);
	op_case_check(OP_matmul, &(struct attrs_matmul){.ta = true}, INS(at, b), y);
	op_case_check(OP_matmul, &(struct attrs_matmul){.tb = true}, INS(a, bt), y);
	op_case_check(OP_matmul, &(struct attrs_matmul){.ta = true, .tb = true}, INS(at, bt), y);
	op_case_check(OP_matmul, NULL,
	              INS(TENSOR(F32, (2, 1, 2), 1, 2, 3, 4), TENSOR(F32, (2, 2, 1), 1, 1, 10, 1)),
	              TENSOR(F32, (2, 1, 1), 3, 34));
	op_case_check(OP_matmul, NULL, INS(EMPTY(F32, (1, 0)), EMPTY(F32, (0, 2))),
	              TENSOR(F32, (1, 2), 0, 0));
}

void interp_check_linear(void)
{
	op_case_check(OP_linear, NULL,
	              INS(TENSOR(F32, (2, 1, 2), 1, 2, 3, 4), TENSOR(F32, (3, 2), 1, 0, 0, 1, 1, 1),
	                  TENSOR(F32, (3), 0, 10, 100)),
	              TENSOR(F32, (2, 1, 3), 1, 12, 103, 3, 14, 107));
	op_case_check(OP_linear, NULL, INS(TENSOR(F32, (2), 1, 2), TENSOR(F16, (1, 2), 3, 4)),
	              TENSOR(F32, (1), 11));
}

void interp_check_expert_linear(void)
{
	/* Two experts [1, 2]; ids beyond them take the nearest one. */
	op_case_check(OP_expert_linear, NULL,
	              INS(TENSOR(F32, (2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8), TENSOR(F32, (2, 1, 2), 1, 0, 0, 10),
	                  TENSOR(I32, (2, 2), 0, 1, -3, 9), TENSOR(F32, (2, 1), 0.5, 0.25)),
	              TENSOR(F32, (2, 2, 1), 1.5, 40.25, 5.5, 80.25));
	op_case_check(OP_expert_linear, NULL,
	              INS(TENSOR(F32, (1, 2), 1, 2), TENSOR(F16, (2, 1, 2), 3, 4, 5, 6), TENSOR(I32, (1), 1)),
	              TENSOR(F32, (1, 1), 17));
}

void interp_check_attention(void)
{
	/* Two query heads on one key head, two queries, three keys; q picks key 0 or 1 with weight e^2
	 * against 1. */
	const struct literal q = TENSOR(F32, (1, 2, 2, 2), 1, 0, 0, 1, 0, 1, 1, 0);
	const struct literal k = TENSOR(F32, (1, 1, 3, 2), 2, 0, 0, 2, 0, 0);
	const struct literal v = TENSOR(F32, (1, 1, 3, 1), 1, 10, 100);
	/* weights of (e^2, 1, 1): 0.78698604, 0.10650698 */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1}, INS(q, k, v),
	              TENSOR(F32, (1, 2, 2, 1), 12.5027537, 18.6270652, 18.6270652, 12.5027537));
	/* causal: query 0 sees key 0 only, query 1 keys 0 and 1: (1, e^2)/(1 + e^2) = 0.11920292, 0.88079708
	 */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1, .mask = MASK_causal}, INS(q, k, v),
	              TENSOR(F32, (1, 2, 2, 1), 1, 8.92717372, 1, 2.07282628));
	/* past 1 moves the diagonal, length 2 hides the last key, length 0 gives 0 */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1, .mask = MASK_causal},
	              INS(q, k, v, ABSENT, TENSOR(I32, (1), 2), TENSOR(I32, (1), 1)),
	              TENSOR(F32, (1, 2, 2, 1), 2.07282628, 8.92717372, 8.92717372, 2.07282628));
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1},
	              INS(q, k, v, ABSENT, TENSOR(I32, (1), 0)), TENSOR(F32, (1, 2, 2, 1), 0, 0, 0, 0));
	/* scale 0 leaves the bias, the softcap acts on it: 2 tanh(0.5) = 0.92423431 against 0, third key
	 * masked */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 0, .softcap = 2},
	              INS(TENSOR(F32, (1, 1, 1, 2), 5, 5), k, v, TENSOR(F32, (1, 1, 1, 3), 0, 1, 0),
	                  TENSOR(I32, (1), 2)),
	              TENSOR(F32, (1, 1, 1, 1), 7.44313678));
	/* a window of 1 */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1, .window = 1}, INS(q, k, v),
	              TENSOR(F32, (1, 2, 2, 1), 1, 10, 1, 10));
	/* a sink of log 3 beside (e^2, 1, 1): 0.59641800, 0.08071640; none at all; and no key: still 0 */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1},
	              INS(q, k, v, ABSENT, ABSENT, ABSENT, TENSOR(F32, (2), 1.09861229, -INFINITY)),
	              TENSOR(F32, (1, 2, 2, 1), 9.47522193, 14.1165364, 18.6270652, 12.5027537));
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1},
	              INS(q, k, v, ABSENT, TENSOR(I32, (1), 0), ABSENT, TENSOR(F32, (2), 1, -20)),
	              TENSOR(F32, (1, 2, 2, 1), 0, 0, 0, 0));
	/* (2^2, 1, 1) and a sink of log 2 */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 0.69314718055994531},
	              INS(q, k, v, ABSENT, ABSENT, ABSENT, TENSOR(F32, (2), 0.693147181, 0.693147181)),
	              TENSOR(F32, (1, 2, 2, 1), 14.25, 17.625, 17.625, 14.25));
	/* keys of (2, 0), (0, 2), (0, 0) and values of 1, 10, 100 as integers with a scale for each position */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 1},
	              INS(q, TENSOR(I8, (1, 1, 3, 2), 4, 0, 0, 127, 7, -127),
	                  TENSOR(I8, (1, 1, 3, 1), 2, 1, -100), ABSENT, ABSENT, ABSENT, ABSENT,
	                  TENSOR(F32, (1, 1, 3, 1), 0.5, 0.0157480315, 0),
	                  TENSOR(F32, (1, 1, 3, 1), 0.5, 10, -1)),
	              TENSOR(F32, (1, 2, 2, 1), 12.5027537, 18.6270652, 18.6270652, 12.5027537));
	/* weights of (2^2, 1, 1): 4/6, 1/6 */
	op_case_check(OP_attention, &(struct attrs_attention){.scale = 0.69314718055994531}, INS(q, k, v),
	              TENSOR(F32, (1, 2, 2, 1), 19, 23.5, 23.5, 19));
}
