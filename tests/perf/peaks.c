/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops after peaks.h. Each function is compiled for its own instruction
 * set and called only where the processor has it. Twelve accumulators: latency
 * 4 times two units is covered, sixteen registers suffice.
 */
#define _GNU_SOURCE /* syscall */
#include "peaks.h"

#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ACCUMULATORS 12
#define EACH(X)      X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#define ZERO_128(i) __m128 a##i = _mm_set1_ps((float)i);
#define STEP_128(i) a##i = _mm_add_ps(_mm_mul_ps(a##i, x), y);
#define LAST_128(i) sum = _mm_add_ps(sum, a##i);

static float mul_add_128(int64_t n)
{
	__m128 x = _mm_set1_ps(0.5f), y = _mm_set1_ps(1.0f), sum = x;
	EACH(ZERO_128)
	for (int64_t i = 0; i < n; i++) {
		EACH(STEP_128)
	}
	EACH(LAST_128)
	return _mm_cvtss_f32(sum);
}

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

#define STEP_BF16(i) a##i = _mm512_dpbf16_ps(a##i, p, p);

__attribute__((target("avx512f,avx512bf16"))) static float dot_bf16(int64_t n)
{
	__m512 sum = _mm512_set1_ps(0.5f);
	__m512bh p = (__m512bh)_mm512_setzero_si512();
	EACH(ZERO_512)
	for (int64_t i = 0; i < n; i++) {
		EACH(STEP_BF16)
	}
	EACH(LAST_512)
	return _mm512_cvtss_f32(sum);
}

#define ZERO_I32(i) __m512i a##i = _mm512_set1_epi32(i);
#define STEP_I32(i) a##i = _mm512_dpbusd_epi32(a##i, p, p);
#define LAST_I32(i) sum = _mm512_add_epi32(sum, a##i);

__attribute__((target("avx512f,avx512vnni"))) static float dot_int8(int64_t n)
{
	__m512i sum = _mm512_setzero_si512(), p = _mm512_set1_epi32((int)n & 1);
	EACH(ZERO_I32)
	for (int64_t i = 0; i < n; i++) {
		EACH(STEP_I32)
	}
	EACH(LAST_I32)
	return (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(sum));
}

/* ---- tiles (AMX), spelled as bytes and instructions: any level of the assembler does ---- */

struct tile_config {
	uint8_t palette, start, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

/* Eight tiles of 16 rows of 64 bytes, all zero. */
static void tiles_open(void)
{
	struct tile_config c = {.palette = 1};
	for (int i = 0; i < 8; i++) {
		c.row_bytes[i] = 64;
		c.rows[i] = 16;
	}
	__asm__ volatile("ldtilecfg %0\n\t"
	                 "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
	                 "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7"
	                 :
	                 : "m"(c));
}

#define SIX_TILES(op)                                                        \
	op " %%tmm7, %%tmm6, %%tmm0\n\t" op " %%tmm7, %%tmm6, %%tmm1\n\t" op \
	   " %%tmm7, %%tmm6, %%tmm2\n\t" op " %%tmm7, %%tmm6, %%tmm3\n\t" op \
	   " %%tmm7, %%tmm6, %%tmm4\n\t" op " %%tmm7, %%tmm6, %%tmm5"

static float tile_bf16(int64_t n)
{
	tiles_open();
	for (int64_t i = 0; i < n; i++)
		__asm__ volatile(SIX_TILES("tdpbf16ps")::: "memory");
	__asm__ volatile("tilerelease");
	return 0;
}

static float tile_int8(int64_t n)
{
	tiles_open();
	for (int64_t i = 0; i < n; i++)
		__asm__ volatile(SIX_TILES("tdpbusd")::: "memory");
	__asm__ volatile("tilerelease");
	return 0;
}

static uint32_t leaf_7(int subleaf, int reg)
{
	uint32_t r[4] = {7, 0, (uint32_t)subleaf, 0};
	__asm__ volatile("cpuid" : "+a"(r[0]), "=b"(r[1]), "+c"(r[2]), "=d"(r[3]));
	return r[reg];
}

bool peaks_amx_allow(void)
{
	enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
	return leaf_7(0, 3) >> 24 & 1 && !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
}

void peaks_find(struct peak *peaks)
{
	const double lanes_128 = 4, lanes_256 = 8, lanes_512 = 16, tile = 6.0 * 16 * 16 * 2;
	__builtin_cpu_init();
	bool fma = __builtin_cpu_supports("fma"), wide = __builtin_cpu_supports("avx512f");
	bool amx = peaks_amx_allow();
	peaks[PEAK_AVX2] = (struct peak){"f32 FMA, AVX2", ACCUMULATORS * lanes_256 * 2, fma_256,
	                                 __builtin_cpu_supports("avx2") && fma};
	peaks[PEAK_AVX512] = (struct peak){"f32 FMA, AVX-512", ACCUMULATORS * lanes_512 * 2, fma_512, wide};
	peaks[PEAK_SSE2] = (struct peak){"f32, SSE2", ACCUMULATORS * lanes_128 * 2, mul_add_128, true};
	peaks[PEAK_BF16] = (struct peak){"bf16 dot, AVX-512", ACCUMULATORS * lanes_512 * 4, dot_bf16,
	                                 wide && leaf_7(1, 0) >> 5 & 1};
	peaks[PEAK_INT8] = (struct peak){"int8 dot, AVX-512", ACCUMULATORS * lanes_512 * 8, dot_int8,
	                                 wide && leaf_7(0, 2) >> 11 & 1};
	peaks[PEAK_AMX_BF16] =
	        (struct peak){"bf16 tiles, AMX", tile * 32, tile_bf16, amx && leaf_7(0, 3) >> 22 & 1};
	peaks[PEAK_AMX_INT8] =
	        (struct peak){"int8 tiles, AMX", tile * 64, tile_int8, amx && leaf_7(0, 3) >> 25 & 1};
}

const struct peak *peaks_best(const struct peak *peaks, const char *type)
{
	if (!strcmp(type, "bf16") && peaks[PEAK_AMX_BF16].available)
		return &peaks[PEAK_AMX_BF16];
	if (!strcmp(type, "bf16") && peaks[PEAK_BF16].available)
		return &peaks[PEAK_BF16];
	if (!strcmp(type, "int8") && peaks[PEAK_AMX_INT8].available)
		return &peaks[PEAK_AMX_INT8];
	if (!strcmp(type, "int8") && peaks[PEAK_INT8].available)
		return &peaks[PEAK_INT8];
	return peaks_best_f32(peaks);
}

const struct peak *peaks_best_f32(const struct peak *peaks)
{
	if (peaks[PEAK_AVX512].available)
		return &peaks[PEAK_AVX512];
	return &peaks[peaks[PEAK_AVX2].available ? PEAK_AVX2 : PEAK_SSE2];
}
