/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of targets and the question which of them this machine executes.
 * A level needs the instructions (cpuid) and, for wide registers, an operating
 * system that saves them (xgetbv). The levels are those of the x86-64 psABI.
 * Builds for other machines know the table but run none of it.
 */
#include "ir/target/target.h"

#include <string.h>

#include "ir/support/compiler.h"

static const struct target targets[] = {
#define TARGET(name, arch, cpu, features, lanes, registers, fma, ports, latency, loads, sums, k_lanes, l1, \
               l2, items, shared)                                                                          \
	{name,    ARCH_##arch, cpu,  features, lanes, registers, fma,   ports,                             \
	 latency, loads,       sums, k_lanes,  l1,    l2,        items, shared},
#include "ir/target/targets.def"
};

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <cpuid.h>

/* Registers of one cpuid leaf that a level looks at. */
enum cpu_word { WORD_1_ECX, WORD_7_EBX, WORD_80000001_ECX, N_CPU_WORDS };

/* Bits that a level needs beyond the level below it. */
struct level {
	const char *name;
	unsigned need[N_CPU_WORDS];
	unsigned xcr0; /* register state the operating system must save */
};

static const struct level levels[] = {
        {"x86-64-v2",
         {/* SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT */
          [WORD_1_ECX] = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23,
          /* LAHF */
          [WORD_80000001_ECX] = 1u << 0},
         0},
        {"x86-64-v3",
         {/* FMA, MOVBE, OSXSAVE, AVX, F16C */
          [WORD_1_ECX] = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29,
          /* BMI1, AVX2, BMI2 */
          [WORD_7_EBX] = 1u << 3 | 1u << 5 | 1u << 8,
          /* LZCNT */
          [WORD_80000001_ECX] = 1u << 5},
         1u << 1 | 1u << 2}, /* XMM, YMM */
        {"x86-64-v4",
         {/* AVX512 F, DQ, CD, BW, VL */
          [WORD_7_EBX] = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31},
         1u << 5 | 1u << 6 | 1u << 7}, /* mask registers, upper halves, upper registers */
};

static void read_cpu(unsigned words[N_CPU_WORDS])
{
	unsigned a, b, c, d;
	if (__get_cpuid(1, &a, &b, &c, &d))
		words[WORD_1_ECX] = c;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
		words[WORD_7_EBX] = b;
	if (__get_cpuid(0x80000001u, &a, &b, &c, &d))
		words[WORD_80000001_ECX] = c;
}

/* Register state that the operating system saves; 0 when it does not say. */
static unsigned read_xcr0(const unsigned words[N_CPU_WORDS])
{
	unsigned low, high;
	if (!(words[WORD_1_ECX] & 1u << 27)) /* OSXSAVE */
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	(void)high;
	return low;
}

static bool has_level(const struct level *l, const unsigned words[N_CPU_WORDS], unsigned xcr0)
{
	for (int i = 0; i < N_CPU_WORDS; i++)
		if ((words[i] & l->need[i]) != l->need[i])
			return false;
	return (xcr0 & l->xcr0) == l->xcr0;
}

bool target_runs_here(const struct target *t)
{
	unsigned words[N_CPU_WORDS] = {0};
	read_cpu(words);
	unsigned xcr0 = read_xcr0(words);
	for (size_t i = 0; i < TFMC_COUNT(levels); i++) {
		if (!has_level(&levels[i], words, xcr0))
			return false;
		if (!strcmp(levels[i].name, t->name))
			return true;
	}
	return false;
}

#else

bool target_runs_here(const struct target *t)
{
	(void)t;
	return false;
}

#endif

const struct target *target_find(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(targets); i++)
		if (!strcmp(targets[i].name, name))
			return &targets[i];
	return NULL;
}

const char *target_level(const struct target *t)
{
	static const char family[] = "x86-64-";
	size_t n = sizeof(family) - 1;
	return strncmp(t->name, family, n) ? t->name : t->name + n;
}

const struct target *target_at(size_t i)
{
	return i < TFMC_COUNT(targets) ? &targets[i] : NULL;
}

const struct target *target_least(enum target_arch arch)
{
	for (size_t i = 0; i < TFMC_COUNT(targets); i++)
		if (targets[i].arch == arch)
			return &targets[i];
	return NULL;
}

/* Rows go from the least to the most demanding. */
const struct target *target_native(void)
{
	const struct target *best = NULL;
	for (size_t i = 0; i < TFMC_COUNT(targets); i++)
		if (target_runs_here(&targets[i]))
			best = &targets[i];
	return best;
}
