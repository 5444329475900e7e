/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peaks of a machine: rates of multiply-add by instruction set, with operands
 * in registers, and rates of reading. Measured in the same run as what is
 * compared with them. Units: operations (a multiply-add is two) and bytes.
 */
#ifndef TFMC_TESTS_PERF_PEAKS_H
#define TFMC_TESTS_PERF_PEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One way to multiply and add. run(n) does n * flops operations
 * and returns a number that depends on all of them.
 */
struct peak {
	const char *name;
	double flops;
	float (*run)(int64_t n);
	bool available; /* on this processor */
};

enum peak_number {
	PEAK_AVX2,
	PEAK_AVX512,
	N_FMA_PEAKS,             /* those of f32 that programs are compared with */
	PEAK_SSE2 = N_FMA_PEAKS, /* multiplies and additions apart: x86-64-v2 has no multiply-add */
	PEAK_BF16,               /* vdpbf16ps */
	PEAK_INT8,               /* vpdpbusd */
	PEAK_AMX_BF16,
	PEAK_AMX_INT8,
	N_PEAKS
};
/* Fills peaks[N_PEAKS] in the order of enum peak_number. */
void peaks_find(struct peak *peaks);
/* The fastest f32 way of this processor: one of the first three. */
const struct peak *peaks_best_f32(const struct peak *peaks);
/* The fastest way to multiply numbers of a type: "f32", "bf16", "int8"; of f32 where the processor has none for it. */
const struct peak *peaks_best(const struct peak *peaks, const char *type);

/* Asks the system for tile registers (AMX); false where there are none. For every thread of the process. */
bool peaks_amx_allow(void);

/* Reads [data, data + bytes) once with the widest loads, in several streams. bytes: a multiple of 4096. */
uint64_t peaks_read(const void *data, size_t bytes);

/*
 * Rates of n threads at once, thread i on the i-th processor the process may use: of the best of the passes
 * that fit into that many seconds, a pass being about two milliseconds of all threads, or one reading of the
 * buffer.
 */
double peaks_flops(const struct peak *peak, int n_threads, double seconds);
/* Every thread reads its own part of a buffer of `bytes` in all, again and again. 0: no memory. */
double peaks_read_rate(size_t bytes, int n_threads, double seconds);

#endif
