/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLVM as a library in this process: crash recovery by handlers (LLVM's fatal errors, the C++ new handler, signals)
 * that siglongjmp out of LLVM, and release of its resident pages. The handlers and the jump target are process-wide.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "backends/object/llvm_guard.h"

#include <llvm-c/ErrorHandling.h>

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ir/support/memory.h"
#include <link.h>
#include <unistd.h>
#include "backends/backend.h"

#define PROBE_BYTES ((size_t)16 << 20) /* if so much cannot be mapped, a crash is taken for out of memory */
#define STACK_BYTES ((size_t)64 << 10) /* alternate signal stack, to survive stack overflow */

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};

enum outcome { OUTCOME_OK, OUTCOME_FATAL, OUTCOME_CRASH, OUTCOME_MEMORY };

static struct {
	sigjmp_buf back;
	bool is_active;
	char why[256];
} guard;

static _Noreturn void jump_back(enum outcome how, const char *why)
{
	(void)snprintf(guard.why, sizeof(guard.why), "%s", why);
	siglongjmp(guard.back, (int)how);
}

static void on_fatal(const char *why)
{
	jump_back(llvm_is_memory_message(why) ? OUTCOME_MEMORY : OUTCOME_FATAL, why);
}

static bool is_out_of_memory(void)
{
	void *p = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED)
		munmap(p, PROBE_BYTES);
	return p == MAP_FAILED;
}

/* LLVM dereferences allocations unchecked, and uncaught C++ exceptions abort: both also happen when memory runs
 * out. */
static void on_crash(int number)
{
	jump_back(is_out_of_memory() ? OUTCOME_MEMORY : OUTCOME_CRASH,
	          number == SIGABRT ? "LLVM gave up" : "LLVM crashed");
}

static void on_new(void)
{
	if (guard.is_active)
		jump_back(OUTCOME_MEMORY, "");
	memory_failed(0);
}

static void on_bad_alloc(void *user, const char *why, bool is_crash_wanted)
{
	(void)user;
	(void)why;
	(void)is_crash_wanted;
	on_new();
}

/* The C API cannot set these, so two C++ functions are looked up by their mangled names: std::set_new_handler and
 * llvm::install_bad_alloc_error_handler (installed only once: LLVM asserts that there is none yet). */
typedef void (*new_handler)(void);

static void set_memory_handler(new_handler handler)
{
	static bool is_installed;
	new_handler (*set_new)(new_handler);
	void (*install)(void (*)(void *, const char *, bool), void *);
	void *at = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
	memcpy(&set_new, &at, sizeof(at));
	if (at)
		set_new(handler);
	at = dlsym(RTLD_DEFAULT, "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
	memcpy(&install, &at, sizeof(at));
	if (at && !is_installed)
		install(on_bad_alloc, NULL);
	is_installed = true;
}

static enum tfmc_status report(struct diag_context *cx, enum outcome how)
{
	if (!cx && (how == OUTCOME_FATAL || how == OUTCOME_CRASH))
		return TFMC_INTERNAL;
	switch (how) {
	case OUTCOME_OK: return TFMC_OK;
	case OUTCOME_MEMORY: memory_failed(0); return TFMC_NO_MEMORY;
	case OUTCOME_FATAL: diag_error(cx, LOC_NONE, DIAG_INTERNAL, "LLVM: %s", guard.why); break;
	case OUTCOME_CRASH:
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "%s while code was generated", guard.why);
		break;
	}
	return TFMC_INTERNAL;
}

bool llvm_is_memory_message(const char *text)
{
	static const char *const phrases[] = {"allocate memory",   "out of memory",
	                                      "Allocation failed", "allocate section memory",
	                                      "not enough memory", "bad alloc"};
	bool found = false;
	for (size_t i = 0; i < TFMC_COUNT(phrases); i++)
		found = found || strstr(text, phrases[i]);
	return found;
}

enum tfmc_status llvm_guard(struct diag_context *cx, void (*work)(void *user), void *user)
{
	struct sigaction crash = {.sa_handler = on_crash, .sa_flags = (int)(SA_ONSTACK | SA_NODEFER)};
	struct sigaction before[TFMC_COUNT(crash_signals)];
	static _Alignas(16) unsigned char stack[STACK_BYTES];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)}, stack_before;
	sigaltstack(&other, &stack_before);
	for (size_t i = 0; i < TFMC_COUNT(crash_signals); i++)
		sigaction(crash_signals[i], &crash, &before[i]);
	LLVMInstallFatalErrorHandler(on_fatal);
	set_memory_handler(on_new);
	guard.is_active = true;
	enum outcome how = (enum outcome)sigsetjmp(guard.back, 1);
	if (how == OUTCOME_OK)
		work(user);
	guard.is_active = false;
	set_memory_handler(NULL);
	LLVMResetFatalErrorHandler();
	for (size_t i = 0; i < TFMC_COUNT(crash_signals); i++)
		sigaction(crash_signals[i], &before[i], NULL);
	sigaltstack(&stack_before, NULL);
	return report(cx, how);
}

/* ---- resident pages ---- */

#define _GNU_SOURCE /* dl_iterate_phdr */

/* Drops the read-only pages of one shared library, if it is LLVM's; they are read from the file again on access. */
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
			(void)madvise((void *)begin, end - begin,
			              MADV_DONTNEED); /* a hint: failure is harmless */
	}
	return 0;
}

/* Lowers the resident size of a process that is done with LLVM: the dynamic linker's relocations, with read-ahead,
 * leave 37 MB of clean pages of libLLVM resident. */
void backend_llvm_release(void)
{
	long size = sysconf(_SC_PAGESIZE);
	uintptr_t page = size > 0 ? (uintptr_t)size : 4096;
	(void)dl_iterate_phdr(release_module, &page);
}
