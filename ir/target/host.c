/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes the host: cpuid and XCR0, and through Linux the permission to use AMX, or the HWCAP words of aarch64. The
 * runtime does the same for sessions (runtime/system.c).
 */
#define _GNU_SOURCE /* syscall */
#include "ir/target/target.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OSXSAVE        (1u << 27)
#define TILE_DATA      18     /* XCR0 component of AMX tile data */
#define GET_XCOMP_PERM 0x1022 /* ARCH_GET_XCOMP_PERM of Linux */
#define REQ_XCOMP_PERM 0x1023 /* ARCH_REQ_XCOMP_PERM */

static uint32_t cpuid_here(void *user, uint32_t leaf, uint32_t subleaf, uint32_t reg)
{
	unsigned regs[4] = {0};
	(void)user;
	return __get_cpuid_count(leaf, subleaf, &regs[0], &regs[1], &regs[2], &regs[3]) ? regs[reg] : 0;
}

/* 0 if the operating system does not enable xgetbv. */
static uint32_t xcr0_here(void *user)
{
	uint32_t low, high;
	if (!(cpuid_here(user, 1, 0, 2) & OSXSAVE))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	(void)high;
	return low;
}

/* Requests tile data for this process, then returns the permitted components. */
static uint64_t system_here(void *user, int word)
{
	uint64_t permitted = 0;
	(void)user;
	if (word != 0 || syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) ||
	    syscall(SYS_arch_prctl, GET_XCOMP_PERM, &permitted))
		return 0;
	return permitted;
}

const struct target_machine *target_host_machine(void)
{
	static const struct target_machine here = {ARCH_X86_64, cpuid_here, xcr0_here, system_here, NULL};
	return &here;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

static uint64_t system_here(void *user, int word)
{
	(void)user;
	return getauxval(word == 0 ? AT_HWCAP : AT_HWCAP2);
}

const struct target_machine *target_host_machine(void)
{
	static const struct target_machine here = {.arch = ARCH_AARCH64, .system = system_here};
	return &here;
}

#else

const struct target_machine *target_host_machine(void)
{
	return NULL;
}

#endif
