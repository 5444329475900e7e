/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multiply-add loops behind roofs.h. Each function is compiled for its own
 * instruction set and called only where the processor has it. Twelve
 * accumulators: latency 4 times two units is covered, sixteen registers suffice.
 */
#include "roofs.h"

#include <immintrin.h>

#define ACCUMULATORS 12
#define EACH(X)      X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#define ZERO_256(i) __m256 a##i = _mm256_set1_ps((float)i);
#define STEP_256(i) a##i = _mm256_fmadd_ps(a##i, x, y);
#define LAST_256(i) sum = _mm256_add_ps(sum, a##i);

__attribute__((target("avx2,fma"))) static float fma_256(int64_t n)
{
	__m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(1.0f), sum = x;
	EACH(ZERO_256)
	for (int64_t i = 0; i < n; i++) {
		EACH(STEP_256)
	}
	EACH(LAST_256)
	return _mm256_cvtss_f32(sum);
}

#define ZERO_512(i) __m512 a##i = _mm512_set1_ps((float)i);
#define STEP_512(i) a##i = _mm512_fmadd_ps(a##i, x, y);
#define LAST_512(i) sum = _mm512_add_ps(sum, a##i);

__attribute__((target("avx512f"))) static float fma_512(int64_t n)
{
	__m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(1.0f), sum = x;
	EACH(ZERO_512)
	for (int64_t i = 0; i < n; i++) {
		EACH(STEP_512)
	}
	EACH(LAST_512)
	return _mm512_cvtss_f32(sum);
}

void roofs_find(struct roof *roofs)
{
	__builtin_cpu_init();
	roofs[0] = (struct roof){.name = "f32 FMA, AVX2", .flops = ACCUMULATORS * 8 * 2, .run = fma_256};
	roofs[0].available = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	roofs[1] = (struct roof){.name = "f32 FMA, AVX-512", .flops = ACCUMULATORS * 16 * 2, .run = fma_512};
	roofs[1].available = __builtin_cpu_supports("avx512f");
}
