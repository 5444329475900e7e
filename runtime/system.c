/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processor features that only the operating system can report or enable: AMX tiles on x86-64 Linux, HWCAP on
 * aarch64.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "tfmc_rt.h"

#if defined(__linux__) && defined(__aarch64__)

#include <sys/auxv.h>

void tfmc_system_words(const struct tfmc_record *record, uint64_t words[2])
{
	(void)record;
	words[0] = getauxval(AT_HWCAP);
	words[1] = getauxval(AT_HWCAP2);
}

#elif defined(__linux__) && defined(__x86_64__)

#include <sys/syscall.h>
#include <unistd.h>

#define TILE_DATA           18     /* bit of XCR0: AMX tile data */
#define GET_XCOMP_PERMITTED 0x1022 /* ARCH_GET_XCOMP_PERM */
#define REQUEST_XCOMP       0x1023 /* ARCH_REQ_XCOMP_PERM */

/* Requests AMX only if a variant of the object uses it: the permission makes the signal frames of the
 * process larger. */
void tfmc_system_words(const struct tfmc_record *record, uint64_t words[2])
{
	words[0] = words[1] = 0;
	if (!record || !(record->system[0] >> TILE_DATA & 1))
		return;
	if (syscall(SYS_arch_prctl, REQUEST_XCOMP, TILE_DATA) ||
	    syscall(SYS_arch_prctl, GET_XCOMP_PERMITTED, words))
		words[0] = 0;
}

#else

void tfmc_system_words(const struct tfmc_record *record, uint64_t words[2])
{
	(void)record;
	words[0] = words[1] = 0;
}

#endif
