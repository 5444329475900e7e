/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for dot products, see dot_case.h.
 */
#include "tests/support/random/dot_case.h"

#include "ir/support/compiler.h"

static uint32_t next(uint64_t *x)
{
	*x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
	return (uint32_t)(*x >> 20);
}

void dot_numbers_fill(struct dot_numbers *n)
{
	static const uint32_t a[] = {0xffffffff, 0x80808080, 0xff7fff7f, 0, 0x01020304, 0x80008000};
	static const uint32_t b[] = {0x80808080, 0x80808080, 0x7f7f7f7f, 0xffffffff, 0xfffefdfc, 0x80008000};
	/* 0, -0, the largest and the least denormal, the least normal number, 1, -3.5, 2^-70 */
	static const uint16_t odd[] = {0, 0x8000, 0x807f, 1, 0x0080, 0x3f80, 0xc060, 0x1c80};
	uint64_t x = 88172645463325252u;
	for (size_t i = 0; i < DOT_LANES; i++) {
		n->sum[i] = (int32_t)next(&x);
		n->a[i] = (int32_t)(i < TFMC_COUNT(a) ? a[i] : next(&x));
		n->b[i] = (int32_t)(i < TFMC_COUNT(b) ? b[i] : next(&x));
		n->float_sum[i] = (float)(int32_t)next(&x) * 0x1p-30f;
		if (i % 3 == 0)
			n->float_sum[i] = (float)(next(&x) >> 10) * 0x1p-149f;
	}
	for (size_t i = 0; i < TFMC_COUNT(n->x); i++) {
		/* a sign, exponents near that of 1, any fraction */
		n->x[i] = (uint16_t)(0x3c00 + (next(&x) & 0x83ff));
		n->y[i] = (uint16_t)(0x3c00 + (next(&x) & 0x83ff));
		if (i % 3 == 0)
			n->x[i] = odd[i / 3 % TFMC_COUNT(odd)];
		if (i % 7 == 0)
			n->y[i] = odd[i / 7 % TFMC_COUNT(odd)];
	}
}

/* `array`: of words in struct dot_numbers. */
static struct kb_val words(struct kb *k, enum kb_scalar s, struct kb_val in, int lanes, int array)
{
	return kb_load(k, KB_TYPE(s, lanes), in, kb_index(k, 0), (int64_t)array * DOT_LANES, 4);
}

struct kb_val dot_of_numbers(struct kb *k, enum kb_dot dot, struct kb_val in, int lanes)
{
	bool is_float = kb_dot_is_float(dot);
	struct kb_val sum = words(k, is_float ? KB_F32 : KB_I32, in, lanes, is_float ? 3 : 0);
	struct kb_val a = words(k, KB_I32, in, lanes, is_float ? 4 : 1);
	struct kb_val b = words(k, KB_I32, in, lanes, is_float ? 5 : 2);
	struct kb_val seven = kb_splat(k, kb_i32(k, 0x7f7f7f7f), lanes);
	switch (dot) {
	case KB_DOT_U7S8: return kb_dot_u7s8(k, sum, kb_bin(k, KB_AND, a, seven), b);
	case KB_DOT_U7S8_I16: return kb_dot_u7s8_i16(k, sum, kb_bin(k, KB_AND, a, seven), b);
	case KB_DOT_U8S8: return kb_dot_u8s8(k, sum, a, b);
	case KB_DOT_S8S8: return kb_dot_s8s8(k, sum, a, b);
	case KB_DOT_S16S16: return kb_dot_s16s16(k, sum, a, b);
	case KB_DOT_BF16: return kb_dot_bf16(k, sum, a, b);
	case KB_DOT_BF16_ODD: return kb_dot_bf16_odd(k, sum, a, b);
	case KB_DOT_U8S8_2X2: return kb_dot_u8s8_2x2(k, sum, a, b);
	case KB_DOT_S8S8_2X2: return kb_dot_s8s8_2x2(k, sum, a, b);
	case KB_DOT_BF16_ODD_2X2: return kb_dot_bf16_odd_2x2(k, sum, a, b);
	}
	return sum;
}

void dot_case_body(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = 0;
	for (int lanes = 1; lanes <= DOT_LANES; lanes *= 2)
		for (int dot = KB_DOT_U8S8; dot <= KB_DOT_BF16_ODD_2X2; dot++) {
			if (lanes < 4 && kb_dot_is_2x2((enum kb_dot)dot))
				continue;
			kb_store(k, dot_of_numbers(k, (enum kb_dot)dot, in, lanes), out, kb_index(k, 0), at,
			         4);
			at += lanes;
		}
}
