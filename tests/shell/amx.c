/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the command: a processor with matrix tiles (AMX) on a machine that has AVX-512 only. The very
 * instructions of compiled code run: each one of tiles is invalid here, and the handler of SIGILL does what Intel's
 * manual says of it ("Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, and volume 1, chapter
 * 18). Where that processor would stop the process, this does. cpuid and xgetbv tell of no tiles here, so that they are
 * replaced by instructions that are invalid, in the functions that ask; the system's permission is asked for by the
 * `syscall` below.
 *   AMX_REFUSED=1   the system gives no permission
 *   AMX_COUNT=FILE  says there how many products were computed, and of how many threads tiles are still in use
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define TILES 8
#define ROWS  16
#define BYTES 64

#define TILE_BITS      (1u << 22 | 1u << 24 | 1u << 25) /* of cpuid 7.0 EDX: bf16, tiles, int8 */
#define TILE_STATE     (3u << 17)                       /* of XCR0 */
#define TILE_DATA      18
#define GET_PERMISSION 0x1022
#define ASK_PERMISSION 0x1023

struct tile {
	int rows, bytes;
	unsigned char data[ROWS][BYTES];
};

static _Thread_local struct tile tiles[TILES];
static _Thread_local bool is_configured;
static atomic_long products, in_use;
static atomic_bool is_permitted;

static void stop(const char *why)
{
	dprintf(STDERR_FILENO, "amx: %s\n", why);
	_exit(99);
}

/* ---- what an instruction says ---- */

static greg_t *general_register(greg_t *g, int number)
{
	static const int at[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
	                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	return &g[at[number]];
}

/* VEX.128 of three bytes in map 0F38, W0. */
struct instruction {
	int opcode, prefix; /* 0, 0x66, 0xF3, 0xF2 by 0 to 3 */
	int mod, reg, rm, vvvv;
	unsigned char *base; /* of its memory */
	int64_t stride;      /* the scaled index */
	size_t length;
};

static struct instruction decode(const unsigned char *p, greg_t *g)
{
	if (p[0] != 0xC4 || (p[1] & 0x1F) != 2 || (p[2] & 0x84) != 0)
		stop("an instruction that is invalid and none of tiles");
	struct instruction i = {.opcode = p[3],
	                        .prefix = p[2] & 3,
	                        .mod = p[4] >> 6,
	                        .reg = p[4] >> 3 & 7,
	                        .rm = p[4] & 7,
	                        .vvvv = ~p[2] >> 3 & 15,
	                        .length = 5};
	int high_index = p[1] & 0x40 ? 0 : 8, high_base = p[1] & 0x20 ? 0 : 8, base = i.rm;
	if (i.mod == 3)
		return i;
	if (base == 4) {
		int sib = p[i.length++], index = (sib >> 3 & 7) + high_index;
		base = sib & 7;
		i.stride = index == 4 ? 0 : *general_register(g, index) * (1 << (sib >> 6));
	}
	bool is_relative = i.mod == 0 && base == 5;
	int64_t far = 0;
	if (i.mod == 1) {
		far = (signed char)p[i.length];
		i.length += 1;
	} else if (i.mod == 2 || is_relative) {
		int32_t d;
		memcpy(&d, p + i.length, 4);
		far = d;
		i.length += 4;
	}
	if (!is_relative)
		far += *general_register(g, base + high_base);
	else if (i.rm == 5) /* of the next instruction */
		far += (int64_t)(uintptr_t)p + (int64_t)i.length;
	i.base = (unsigned char *)(uintptr_t)far;
	return i;
}

/* ---- tiles ---- */

static void release(void)
{
	in_use -= is_configured;
	is_configured = false;
	memset(tiles, 0, sizeof(tiles));
}

static void configure(const unsigned char *c)
{
	release();
	if (c[0] == 0)
		return;
	for (int i = 1; i < 64; i++) {
		bool is_known = i == 1 || (i >= 16 && i < 32) || (i >= 48 && i < 56);
		if (c[0] != 1 || (!is_known && c[i] != 0))
			stop("a configuration with bytes that must be 0");
	}
	for (int i = 0; i < TILES; i++) {
		tiles[i].bytes = c[16 + 2 * i] + 256 * c[17 + 2 * i];
		tiles[i].rows = c[48 + i];
		if (tiles[i].bytes > BYTES || tiles[i].rows > ROWS || !tiles[i].bytes != !tiles[i].rows)
			stop("a tile of a shape that no tile has");
	}
	is_configured = true;
	in_use++;
}

static struct tile *tile_at(int number)
{
	if (number >= TILES || !is_configured || tiles[number].rows == 0)
		stop("a tile that is not configured");
	return &tiles[number];
}

static void move(const struct instruction *i, bool is_store)
{
	struct tile *t = tile_at(i->reg);
	if (i->mod == 3 || i->rm != 4 || i->vvvv != 0)
		stop("memory of a tile without an index");
	for (int row = 0; row < ROWS; row++) {
		unsigned char *at = i->base + row * i->stride;
		if (is_store && row < t->rows)
			memcpy(at, t->data[row], (size_t)t->bytes);
		if (is_store)
			continue;
		memset(t->data[row], 0, BYTES);
		if (row < t->rows)
			memcpy(t->data[row], at, (size_t)t->bytes);
	}
}

/* ---- products ---- */

/* Denormal numbers are taken for zeros, and given as such. */
static float flushed(float x)
{
	return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float bf16(const unsigned char *p)
{
	uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
	float x;
	memcpy(&x, &bits, 4);
	return flushed(x);
}

static void dot_bf16(struct tile *c, const struct tile *a, const struct tile *b, int m, int n)
{
	float sum, pair[2] = {0, 0};
	for (int k = 0; k < a->bytes / 4; k++)
		for (int j = 0; j < 2; j++)
			pair[j] = flushed(fmaf(bf16(&a->data[m][4 * k + 2 * j]),
			                       bf16(&b->data[k][4 * n + 2 * j]), pair[j]));
	memcpy(&sum, &c->data[m][4 * n], 4);
	sum = flushed(flushed(sum) + flushed(pair[0] + pair[1]));
	memcpy(&c->data[m][4 * n], &sum, 4);
}

/* prefix: F2 both signed, F3 a, 66 b, none neither. */
static void dot_int8(struct tile *c, const struct tile *a, const struct tile *b, int prefix, int m, int n)
{
	uint32_t sum;
	memcpy(&sum, &c->data[m][4 * n], 4);
	for (int k = 0; k < a->bytes; k++) {
		int x = a->data[m][k], y = b->data[k / 4][4 * n + k % 4];
		x = prefix >= 2 ? (signed char)x : x;
		y = prefix & 1 ? (signed char)y : y;
		sum += (uint32_t)(x * y);
	}
	memcpy(&c->data[m][4 * n], &sum, 4);
}

static void dot(const struct instruction *i)
{
	struct tile *c = tile_at(i->reg);
	const struct tile *a = tile_at(i->rm), *b = tile_at(i->vvvv);
	bool is_bf16 = i->opcode == 0x5C;
	if (c == a || c == b || a == b)
		stop("a product of a tile with itself");
	if (c->rows != a->rows || c->bytes != b->bytes || a->bytes != 4 * b->rows)
		stop("a product of tiles that do not fit");
	if (is_bf16 && i->prefix != 2)
		stop("a product that is not known here");
	for (int m = 0; m < c->rows; m++)
		for (int n = 0; n < c->bytes / 4; n++)
			if (is_bf16)
				dot_bf16(c, a, b, m, n);
			else
				dot_int8(c, a, b, i->prefix, m, n);
	products++;
}

/* ---- the processor ---- */

#define CPUID_BY  "\x0F\x0B"     /* ud2 */
#define XGETBV_BY "\x0F\xB9\xC0" /* ud1 eax, eax */

static void tell(greg_t *g, bool is_cpuid)
{
	uint32_t a = (uint32_t)g[REG_RAX], b = 0, c = (uint32_t)g[REG_RCX], d = 0;
	bool has_tiles = is_cpuid ? a == 7 && c == 0 : c == 0;
	if (is_cpuid) {
		__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
		d |= has_tiles ? TILE_BITS : 0;
		g[REG_RBX] = b;
		g[REG_RCX] = c;
	} else {
		__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(c));
		a |= has_tiles ? TILE_STATE : 0;
	}
	g[REG_RAX] = a;
	g[REG_RDX] = d;
	g[REG_RIP] += is_cpuid ? 2 : 3;
}

static void on_invalid(int signal, siginfo_t *info, void *context)
{
	greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	const unsigned char *p = (const unsigned char *)(uintptr_t)g[REG_RIP];
	(void)signal;
	(void)info;
	if (!memcmp(p, CPUID_BY, 2) || !memcmp(p, XGETBV_BY, 3)) {
		tell(g, p[1] == 0x0B);
		return;
	}
	struct instruction i = decode(p, g);
	if (!is_permitted)
		stop("tiles without the system's permission");
	if (i.opcode == 0x49 && i.prefix == 0 && i.mod == 3)
		release();
	else if (i.opcode == 0x49 && i.prefix == 0)
		configure(i.base);
	else if (i.opcode == 0x49 && i.prefix == 3 && i.mod == 3)
		memset(tile_at(i.reg)->data, 0, sizeof(tiles[0].data));
	else if (i.opcode == 0x4B && i.prefix > 0)
		move(&i, i.prefix == 2);
	else if (i.opcode == 0x5C || i.opcode == 0x5E)
		dot(&i);
	else
		stop("an instruction of tiles that is not known here");
	g[REG_RIP] += (greg_t)i.length;
}

/* ---- who asks ---- */

static bool is_asking(const char *function)
{
	size_t n = strlen(function);
	return !strcmp(function, "cpuid_here") || !strcmp(function, "xcr0_here") ||
	       (n > 4 && !strcmp(function + n - 4, ".cpu"));
}

static void replace(unsigned char *code, size_t n)
{
	for (size_t i = 0; i + 3 <= n; i++)
		if (!memcmp(code + i, "\x0F\xA2", 2))
			memcpy(code + i, CPUID_BY, 2);
		else if (!memcmp(code + i, "\x0F\x01\xD0", 3))
			memcpy(code + i, XGETBV_BY, 3);
}

/* The functions of an ELF file that ask; loaded: where a program lies in memory, NULL: in the file, an object. */
static void replace_in(unsigned char *file, unsigned char *loaded)
{
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
	for (int s = 0; s < head->e_shnum; s++) {
		if (sections[s].sh_type != SHT_SYMTAB)
			continue;
		const char *names = (const char *)file + sections[sections[s].sh_link].sh_offset;
		const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[s].sh_offset);
		for (size_t i = 0; i < sections[s].sh_size / sizeof(*symbols); i++) {
			const Elf64_Sym *y = &symbols[i];
			if (ELF64_ST_TYPE(y->st_info) != STT_FUNC || y->st_shndx >= head->e_shnum ||
			    !is_asking(names + y->st_name))
				continue;
			replace(loaded ? loaded + y->st_value
			               : file + sections[y->st_shndx].sh_offset + y->st_value,
			        y->st_size);
		}
	}
}

static int each_loaded(struct dl_phdr_info *info, size_t size, void *user)
{
	(void)size;
	unsigned char *base = (unsigned char *)(uintptr_t)info->dlpi_addr; /* the program is the first one */
	int file = open("/proc/self/exe", O_RDONLY);
	struct stat st;
	(void)user;
	if (file < 0 || fstat(file, &st))
		stop("the program cannot be read");
	unsigned char *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	for (int writes = 1; writes >= 0; writes--) {
		for (int i = 0; i < info->dlpi_phnum; i++) {
			const ElfW(Phdr) *p = &info->dlpi_phdr[i];
			uintptr_t from = ((uintptr_t)base + p->p_vaddr) & ~(uintptr_t)4095;
			uintptr_t end = (uintptr_t)base + p->p_vaddr + p->p_memsz;
			if (p->p_type == PT_LOAD && p->p_flags & PF_X)
				mprotect((void *)from, end - from,
				         PROT_READ | PROT_EXEC | (writes ? PROT_WRITE : 0));
		}
		if (writes)
			replace_in(bytes, base);
	}
	munmap(bytes, (size_t)st.st_size);
	close(file);
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	struct sigaction on = {.sa_sigaction = on_invalid, .sa_flags = SA_SIGINFO | SA_NODEFER};
	sigaction(SIGILL, &on, NULL);
	dl_iterate_phdr(each_loaded, NULL);
}

__attribute__((destructor)) static void end(void)
{
	FILE *f = getenv("AMX_COUNT") ? fopen(getenv("AMX_COUNT"), "w") : NULL;
	if (!f)
		return;
	fprintf(f, "%ld products, %ld threads with tiles\n", (long)products, (long)in_use);
	fclose(f);
}

/* ---- in place of what libraries have ---- */

/* The bytes of an object, before LLVM loads it. */
struct LLVMOpaqueMemoryBuffer *LLVMCreateMemoryBufferWithMemoryRangeCopy(const char *data, size_t n,
                                                                         const char *name)
{
	struct LLVMOpaqueMemoryBuffer *(*real)(const char *, size_t, const char *) =
	        (struct LLVMOpaqueMemoryBuffer * (*)(const char *, size_t, const char *))
	                dlsym(RTLD_NEXT, "LLVMCreateMemoryBufferWithMemoryRangeCopy");
	unsigned char *copy = malloc(n + 1);
	if (!real || !copy)
		stop("no LLVM");
	memcpy(copy, data, n);
	if (n > sizeof(Elf64_Ehdr) && !memcmp(copy, ELFMAG, SELFMAG))
		replace_in(copy, NULL);
	struct LLVMOpaqueMemoryBuffer *made = real((const char *)copy, n, name);
	free(copy);
	return made;
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long args[6];
	va_list ap;
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_arch_prctl && args[0] == ASK_PERMISSION && args[1] == TILE_DATA) {
		is_permitted = getenv("AMX_REFUSED") == NULL;
		return is_permitted ? 0 : -1;
	}
	if (number == SYS_arch_prctl && args[0] == GET_PERMISSION) {
		uint64_t state = 0xE7 | (is_permitted ? TILE_STATE : 0);
		memcpy((void *)args[1], &state, sizeof(state));
		return 0;
	}
	return real(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}
