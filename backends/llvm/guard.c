/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: handlers of LLVM, of the C++ library and of signals that jump back
 * out of LLVM. All of them are of the whole process, and so is where they jump.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "backends/llvm/guard.h"

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

#define PROBE_BYTES ((size_t)16 << 20) /* without so much memory a crash is a lack of it */
#define STACK_BYTES ((size_t)64 << 10) /* of handlers: a stack that is full is a reason to be called */

static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};

enum ending { ENDED_NOT, ENDED_FATAL, ENDED_CRASH, ENDED_MEMORY };

static struct {
	sigjmp_buf back;
	bool is_active;
	char why[256];
} guard;

static _Noreturn void go_back(enum ending how, const char *why)
{
	(void)snprintf(guard.why, sizeof(guard.why), "%s", why);
	siglongjmp(guard.back, (int)how);
}

static void on_fatal(const char *why)
{
	go_back(llvm_says_memory(why) ? ENDED_MEMORY : ENDED_FATAL, why);
}

static bool is_memory_short(void)
{
	void *p = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED)
		munmap(p, PROBE_BYTES);
	return p == MAP_FAILED;
}

/* LLVM does not check every pointer that it is given, and ends at exceptions that nobody catches. */
static void on_crash(int number)
{
	go_back(is_memory_short() ? ENDED_MEMORY : ENDED_CRASH,
	        number == SIGABRT ? "LLVM gave up" : "LLVM crashed");
}

static void on_new(void)
{
	if (guard.is_active)
		go_back(ENDED_MEMORY, "");
	memory_failed(0);
}

static void on_bad_alloc(void *user, const char *why, bool is_crash_wanted)
{
	(void)user;
	(void)why;
	(void)is_crash_wanted;
	on_new();
}

/* LLVM's C API has no function for this, C++ has two: std::set_new_handler and
 * llvm::install_bad_alloc_error_handler (a second one stops the process, so that it is installed once). */
typedef void (*new_handler)(void);

static void handle_memory(new_handler handler)
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

static enum tfmc_status report(struct diag_context *cx, enum ending how)
{
	if (!cx && (how == ENDED_FATAL || how == ENDED_CRASH))
		return TFMC_INTERNAL;
	switch (how) {
	case ENDED_NOT: return TFMC_OK;
	case ENDED_MEMORY: memory_failed(0); return TFMC_NO_MEMORY;
	case ENDED_FATAL: diag_error(cx, LOC_NONE, DIAG_INTERNAL, "LLVM: %s", guard.why); break;
	case ENDED_CRASH:
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "%s while code was generated", guard.why);
		break;
	}
	return TFMC_INTERNAL;
}

bool llvm_says_memory(const char *text)
{
	static const char *const words[] = {"allocate memory",   "out of memory",
	                                    "Allocation failed", "allocate section memory",
	                                    "not enough memory", "bad alloc"};
	bool found = false;
	for (size_t i = 0; i < TFMC_COUNT(words); i++)
		found = found || strstr(text, words[i]);
	return found;
}

enum tfmc_status llvm_guard(struct diag_context *cx, void (*work)(void *user), void *user)
{
	struct sigaction crash = {.sa_handler = on_crash, .sa_flags = (int)(SA_ONSTACK | SA_NODEFER)};
	struct sigaction before[TFMC_COUNT(crashes)];
	static _Alignas(16) unsigned char stack[STACK_BYTES];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)}, stack_before;
	sigaltstack(&other, &stack_before);
	for (size_t i = 0; i < TFMC_COUNT(crashes); i++)
		sigaction(crashes[i], &crash, &before[i]);
	LLVMInstallFatalErrorHandler(on_fatal);
	handle_memory(on_new);
	guard.is_active = true;
	enum ending how = (enum ending)sigsetjmp(guard.back, 1);
	if (how == ENDED_NOT)
		work(user);
	guard.is_active = false;
	handle_memory(NULL);
	LLVMResetFatalErrorHandler();
	for (size_t i = 0; i < TFMC_COUNT(crashes); i++)
		sigaction(crashes[i], &before[i], NULL);
	sigaltstack(&stack_before, NULL);
	return report(cx, how);
}

/* ---- resident pages ---- */

#define _GNU_SOURCE /* dl_iterate_phdr */

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
