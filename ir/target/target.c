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

/* Bits that a level needs beyond the level below it. LAHF is not asked for: all of these processors have it. */
static const struct {
	const char *name;
	uint32_t leaf_1_ecx, leaf_7_ebx, leaf_80000001_ecx, xcr0;
} levels[] = {
        /* SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT */
        {"x86-64-v2", 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23, 0, 0, 0},
        /* FMA, MOVBE, OSXSAVE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT; XMM, YMM */
        {"x86-64-v3", 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29, 1u << 3 | 1u << 5 | 1u << 8,
         1u << 5, 1u << 1 | 1u << 2},
        /* AVX512 F, DQ, CD, BW, VL; mask registers, upper halves, upper registers */
        {"x86-64-v4", 0, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31, 0,
         1u << 5 | 1u << 6 | 1u << 7},
};

struct target_cpu_needs target_cpu_needs(const struct target *t)
{
	enum { ECX = 2, EBX = 1 };
	struct target_cpu_needs n = {.words = {{1, ECX, 0}, {7, EBX, 0}, {0x80000001u, ECX, 0}}};
	for (size_t i = 0; i < TFMC_COUNT(levels); i++) {
		n.words[0].bits |= levels[i].leaf_1_ecx;
		n.words[1].bits |= levels[i].leaf_7_ebx;
		n.words[2].bits |= levels[i].leaf_80000001_ecx;
		n.xcr0 |= levels[i].xcr0;
		if (!strcmp(levels[i].name, t->name))
			return n;
	}
	return (struct target_cpu_needs){0};
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <cpuid.h>

/* Register state that the operating system saves; 0 when it does not say. */
static uint32_t read_xcr0(void)
{
	unsigned regs[4] = {0}, low, high;
	__get_cpuid(1, &regs[0], &regs[1], &regs[2], &regs[3]);
	if (!(regs[2] & 1u << 27)) /* OSXSAVE */
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	(void)high;
	return low;
}

bool target_runs_here(const struct target *t)
{
	const struct target_cpu_needs needs = target_cpu_needs(t);
	for (int i = 0; i < TARGET_CPU_WORDS; i++) {
		const struct target_cpu_word *w = &needs.words[i];
		unsigned regs[4] = {0};
		if (w->bits && (!__get_cpuid_count(w->leaf, 0, &regs[0], &regs[1], &regs[2], &regs[3]) ||
		                (regs[w->reg] & w->bits) != w->bits))
			return false;
	}
	return needs.words[0].bits && (read_xcr0() & needs.xcr0) == needs.xcr0;
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
