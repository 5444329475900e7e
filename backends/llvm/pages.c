/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of the library of LLVM. The dynamic linker reads its symbols and relocations, and neighbours come with each page:
 * 37 MB of clean pages of a file, which a process counts as its own though it will never look at them again.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/backend.h"

/* What cannot be written to is the file's: a page that is read again comes from there. */
static int release_module(struct dl_phdr_info *m, size_t size, void *user)
{
	const char *base = m->dlpi_name ? strrchr(m->dlpi_name, '/') : NULL;
	uintptr_t page = *(const uintptr_t *)user;
	(void)size;
	if (!base || strncmp(base, "/libLLVM", strlen("/libLLVM")) != 0)
		return 0;
	for (int i = 0; i < m->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &m->dlpi_phdr[i];
		uintptr_t begin = (m->dlpi_addr + p->p_vaddr + page - 1) / page * page,
		          end = (m->dlpi_addr + p->p_vaddr + p->p_memsz) / page * page;
		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && begin < end)
			(void)madvise((void *)begin, end - begin, MADV_DONTNEED); /* a wish */
	}
	return 0;
}

void backend_llvm_release(void)
{
	long size = sysconf(_SC_PAGESIZE);
	uintptr_t page = size > 0 ? (uintptr_t)size : 4096;
	(void)dl_iterate_phdr(release_module, &page);
}
