/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loader of relocatable ELF64 files (System V ABI, its supplements for x86-64 and AArch64). An image has three parts,
 * each with its protection: code, stubs of the functions that the object calls, constants.
 *
 * The file is not trusted: every offset, index and size is checked before it is used. Only what tfmc's objects contain
 * is accepted: sections that are never written, relocations of a few types, and the functions in `imports`. Parts
 * begin at page boundaries, since protection is by pages; distances between them are fixed, so relocation needs no
 * table (GOT).
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "runtime/python/object.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/opencl/model.h"

#define PAGE      ((uint64_t)65536) /* the largest page of Linux on both architectures */
#define STUB_SIZE 16
#define IMAGE_MAX (UINT64_C(1) << 31) /* relative addresses have 32 bits */

#if defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_X86_64
#endif

struct tfmc_object {
	unsigned char *image;
	uint64_t bytes;
};

/* A file while it is loaded. All offsets are checked against `bytes`. */
struct elf {
	const unsigned char *data;
	uint64_t bytes;
	const Elf64_Shdr *sections;
	uint64_t n_sections;
	uint64_t *offsets; /* [n_sections] offset of each section in the image; UINT64_MAX: not loaded */
	const Elf64_Sym *symbols;
	uint64_t n_symbols;
	const char *names; /* zero-terminated texts [names_bytes] */
	uint64_t names_bytes;
	uint64_t stubs; /* offset in the image, one for each of `imports` */
	uint64_t code_end;
	unsigned char *image;
	uint64_t image_bytes;
};

/* Functions that objects may call. */
static const struct {
	const char *name;
	uintptr_t address;
} imports[] = {
#define X(function) {#function, (uintptr_t)function},
        X(memcpy) X(memset) TFMC_CL_MODEL_FUNCTIONS(X)
#undef X
};
#define N_IMPORTS (sizeof(imports) / sizeof(*imports))

/* ---- the file ---- */

static bool is_inside(const struct elf *e, uint64_t offset, uint64_t n)
{
	return offset <= e->bytes && n <= e->bytes - offset;
}

/* Name at an offset of the symbol names; "" when it is outside of them. */
static const char *symbol_name(const struct elf *e, const Elf64_Sym *s)
{
	return s->st_name < e->names_bytes ? e->names + s->st_name : "";
}

/* Finds the table of symbols and its names, which must end with a zero. False: none, or damaged. Sections are inside
 * the file (parse_header); the symbols must be aligned to be read in place. */
static bool find_symbols(struct elf *e)
{
	for (uint64_t i = 0; i < e->n_sections; i++) {
		const Elf64_Shdr *s = &e->sections[i];
		if (s->sh_type != SHT_SYMTAB)
			continue;
		if (s->sh_link >= e->n_sections || s->sh_offset % 8)
			return false;
		const Elf64_Shdr *names = &e->sections[s->sh_link];
		if (names->sh_type != SHT_STRTAB || names->sh_size == 0 ||
		    e->data[names->sh_offset + names->sh_size - 1] != 0)
			return false;
		e->symbols = (const void *)(e->data + s->sh_offset);
		e->n_symbols = s->sh_size / sizeof(Elf64_Sym);
		e->names = (const char *)e->data + names->sh_offset;
		e->names_bytes = names->sh_size;
		return true;
	}
	return false;
}

/* Checks the header, and that all sections are inside of the file (NOBITS has no bytes there); finds the symbols.
 * E_CPU: the object is for another architecture; E_FILE: no object; E_RECORD: a damaged one. */
static int parse_header(struct elf *e)
{
	const Elf64_Ehdr *h = (const void *)e->data;
	if (e->bytes < sizeof(*h) || memcmp(h->e_ident, ELFMAG, SELFMAG) ||
	    h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_type != ET_REL)
		return TFMC_RT_E_FILE;
	if (h->e_machine != MACHINE)
		return TFMC_RT_E_CPU;
	e->n_sections = h->e_shnum;
	if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff % 8 ||
	    !is_inside(e, h->e_shoff, e->n_sections * sizeof(Elf64_Shdr)))
		return TFMC_RT_E_RECORD;
	e->sections = (const void *)(e->data + h->e_shoff);
	for (uint64_t i = 0; i < e->n_sections; i++)
		if (e->sections[i].sh_type != SHT_NOBITS &&
		    !is_inside(e, e->sections[i].sh_offset, e->sections[i].sh_size))
			return TFMC_RT_E_RECORD;
	return find_symbols(e) ? (int)TFMC_RT_OK : (int)TFMC_RT_E_RECORD;
}

/* ---- the image ---- */

/* Unwind tables are of no use here: nothing unwinds through a call. */
static bool is_loaded(const Elf64_Shdr *s, bool is_code)
{
	bool has_content = s->sh_type == SHT_PROGBITS && s->sh_size > 0 && s->sh_size < IMAGE_MAX;
	return has_content && (s->sh_flags & SHF_ALLOC) && !(s->sh_flags & SHF_WRITE) &&
	       !(s->sh_flags & SHF_EXECINSTR) == !is_code;
}

/* Assigns offsets to all sections of a kind (code, or constants) from `at` on; the end of the last one. IMAGE_MAX or
 * more: they do not fit, or an alignment is above that of the mapping, the page of this system. */
static uint64_t lay_out_sections(struct elf *e, bool is_code, uint64_t at)
{
	long page = sysconf(_SC_PAGESIZE);
	for (uint64_t i = 0; i < e->n_sections && at < IMAGE_MAX; i++) {
		const Elf64_Shdr *s = &e->sections[i];
		uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
		if (!is_loaded(s, is_code))
			continue;
		if (align > (uint64_t)page || (align & (align - 1)))
			return IMAGE_MAX;
		e->offsets[i] = (at + align - 1) & ~(align - 1);
		at = e->offsets[i] + s->sh_size;
	}
	return at;
}

/* Lays out code, stubs and constants, and copies the sections into a new mapping. The stubs end the executable part,
 * the constants begin on a new page. */
static int make_image(struct elf *e)
{
	e->offsets = malloc((e->n_sections + 1) * sizeof(*e->offsets));
	if (!e->offsets)
		return TFMC_RT_E_MEMORY;
	memset(e->offsets, 0xff, (e->n_sections + 1) * sizeof(*e->offsets));
	e->stubs = (lay_out_sections(e, true, 0) + STUB_SIZE - 1) & ~(uint64_t)(STUB_SIZE - 1);
	e->code_end = (e->stubs + N_IMPORTS * STUB_SIZE + PAGE - 1) & ~(PAGE - 1);
	e->image_bytes = (lay_out_sections(e, false, e->code_end) + PAGE - 1) & ~(PAGE - 1);
	if (e->image_bytes >= IMAGE_MAX)
		return TFMC_RT_E_RECORD;
	void *image = mmap(NULL, e->image_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (image == MAP_FAILED)
		return TFMC_RT_E_MEMORY;
	e->image = image;
	for (uint64_t i = 0; i < e->n_sections; i++)
		if (e->offsets[i] != UINT64_MAX)
			memcpy(e->image + e->offsets[i], e->data + e->sections[i].sh_offset,
			       e->sections[i].sh_size);
	return TFMC_RT_OK;
}

/* A stub jumps to a function of the process, which may be further away than the 32 bits of a call reach; its address
 * is the stub's second half. */
static void write_stubs(struct elf *e)
{
#if defined(__aarch64__)
	static const uint32_t jump[] = {0x58000050u /* ldr x16, 8 */, 0xd61f0200u /* br x16 */};
#else
	static const unsigned char jump[] = {0xff, 0x25, 2, 0, 0, 0 /* jmp *2(%rip) */, 0x90, 0x90};
#endif
	for (uint64_t i = 0; i < N_IMPORTS; i++) {
		memcpy(e->image + e->stubs + i * STUB_SIZE, jump, sizeof(jump));
		memcpy(e->image + e->stubs + i * STUB_SIZE + sizeof(jump), &imports[i].address,
		       sizeof(uint64_t));
	}
}

/* Offset of a symbol in the image; UINT64_MAX: it is nowhere. An undefined symbol is an import, by name: its stub. */
static uint64_t symbol_offset(const struct elf *e, const Elf64_Sym *s)
{
	if (s->st_shndx != SHN_UNDEF) {
		bool is_in = s->st_shndx < e->n_sections && e->offsets[s->st_shndx] != UINT64_MAX;
		return is_in ? e->offsets[s->st_shndx] + s->st_value : UINT64_MAX;
	}
	for (uint64_t i = 0; i < N_IMPORTS; i++)
		if (!strcmp(symbol_name(e, s), imports[i].name))
			return e->stubs + i * STUB_SIZE;
	return UINT64_MAX;
}

/* ---- relocations ---- */

#if defined(__aarch64__)

/* Sets `bits` bits of an instruction from bit `at` on. */
static void set_field(unsigned char *where, unsigned at, unsigned bits, uint64_t value)
{
	uint32_t word, mask = (uint32_t)(((UINT64_C(1) << bits) - 1) << at);
	memcpy(&word, where, sizeof(word));
	word = (word & ~mask) | ((uint32_t)(value << at) & mask);
	memcpy(where, &word, sizeof(word));
}

/* Applies one relocation of the symbol + addend `to` at `where`, both addresses. An address is split into the
 * distance of its 4 KiB page (ADRP, 21 bits in two fields) and the offset in the page (LO12), which loads scale by
 * their size. False: an unknown type. */
static bool relocate(uint32_t type, unsigned char *where, uint64_t to)
{
	uint64_t from = (uint64_t)(uintptr_t)where, pages = (to >> 12) - (from >> 12);
	uint32_t distance = (uint32_t)(to - from);
	unsigned scale = 0; /* log2 of the bytes that a load or store moves */
	switch (type) {
	case R_AARCH64_PREL32: memcpy(where, &distance, sizeof(distance)); return true;
	case R_AARCH64_CALL26:
	case R_AARCH64_JUMP26: set_field(where, 0, 26, (to - from) >> 2); return true;
	case R_AARCH64_ADR_PREL_PG_HI21:
		set_field(where, 29, 2, pages & 3);
		set_field(where, 5, 19, pages >> 2);
		return true;
	case R_AARCH64_LDST128_ABS_LO12_NC: scale = 4; break;
	case R_AARCH64_LDST64_ABS_LO12_NC: scale = 3; break;
	case R_AARCH64_LDST32_ABS_LO12_NC: scale = 2; break;
	case R_AARCH64_LDST16_ABS_LO12_NC: scale = 1; break;
	case R_AARCH64_LDST8_ABS_LO12_NC:
	case R_AARCH64_ADD_ABS_LO12_NC: break;
	default: return false;
	}
	set_field(where, 10, 12, (to & 0xfff) >> scale);
	return true;
}

#else

/* Applies one relocation of the symbol + addend `to` at `where`, both addresses. False: an unknown type. */
static bool relocate(uint32_t type, unsigned char *where, uint64_t to)
{
	uint32_t distance = (uint32_t)(to - (uint64_t)(uintptr_t)where);
	switch (type) {
	case R_X86_64_PC32:
	case R_X86_64_PLT32: memcpy(where, &distance, sizeof(distance)); return true;
	default: return false;
	}
}

#endif

/* Applies the relocations of one table to the loaded section `target`. Each changes 4 bytes, which must be in the
 * section. False: a damaged table, a symbol that is nowhere, or an unknown type. */
static bool relocate_section(struct elf *e, const Elf64_Shdr *table, uint64_t target)
{
	const Elf64_Shdr *section = &e->sections[target];
	const Elf64_Rela *relocations = (const void *)(e->data + table->sh_offset);
	for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Rela); i++) {
		const Elf64_Rela *r = &relocations[i];
		if (ELF64_R_SYM(r->r_info) >= e->n_symbols || section->sh_size < sizeof(uint32_t) ||
		    r->r_offset > section->sh_size - sizeof(uint32_t))
			return false;
		uint64_t offset = symbol_offset(e, &e->symbols[ELF64_R_SYM(r->r_info)]);
		uint64_t to = (uint64_t)(uintptr_t)e->image + offset + (uint64_t)r->r_addend;
		if (offset == UINT64_MAX || !relocate((uint32_t)ELF64_R_TYPE(r->r_info),
		                                      e->image + e->offsets[target] + r->r_offset, to))
			return false;
	}
	return true;
}

/* Applies all relocations of loaded sections, then makes the code executable and nothing writable. The instruction
 * cache is cleared, since AArch64 does not see writes by itself. */
static int relocate_all(struct elf *e)
{
	for (uint64_t i = 0; i < e->n_sections; i++) {
		const Elf64_Shdr *s = &e->sections[i];
		bool is_loaded_target = s->sh_info < e->n_sections && e->offsets[s->sh_info] != UINT64_MAX;
		if (s->sh_type == SHT_RELA && is_loaded_target &&
		    (s->sh_offset % 8 || !relocate_section(e, s, s->sh_info)))
			return TFMC_RT_E_RECORD;
	}
	if (mprotect(e->image, e->code_end, PROT_READ | PROT_EXEC) ||
	    mprotect(e->image + e->code_end, e->image_bytes - e->code_end, PROT_READ))
		return TFMC_RT_E_MEMORY;
	__builtin___clear_cache((char *)e->image, (char *)e->image + e->code_end);
	return TFMC_RT_OK;
}

/* ---- the model ---- */

/* Address of the global symbol PREFIX + suffix, where n is the length of the prefix; NULL: the object does not define
 * it, or outside of the image. */
static void *find(const struct elf *e, const char *prefix, size_t n, const char *suffix)
{
	for (uint64_t i = 0; i < e->n_symbols; i++) {
		const Elf64_Sym *s = &e->symbols[i];
		const char *name = symbol_name(e, s);
		if (ELF64_ST_BIND(s->st_info) == STB_GLOBAL && s->st_shndx != SHN_UNDEF &&
		    !strncmp(name, prefix, n) && !strcmp(name + n, suffix)) {
			uint64_t offset = symbol_offset(e, s);
			return offset < e->image_bytes ? e->image + offset : NULL;
		}
	}
	return NULL;
}

/* Fills the model whose symbols begin with a prefix, as NAME_model() of a header makes it. False: a function is
 * missing, so the prefix is not that of a model. Slots are copied, since ISO C does not convert data pointers to
 * functions. */
static bool bind_model(const struct elf *e, const char *prefix, size_t n, struct tfmc_model *model)
{
	const struct {
		const char *suffix;
		void *slot;
	} rows[] = {{"_record", &model->record},
	            {"_init", &model->init},
	            {"_call", &model->call},
	            {"_reset", &model->reset},
	            {"_trim", &model->trim},
	            {"_fork", &model->fork},
	            {"_select", &model->select},
	            {"_reorder", &model->reorder},
	            {"_fetch", &model->fetch},
	            {"_store", &model->store},
	            {"_close", &model->close},
	            {"_variant", &model->variant},
	            {"_workers", &model->set_workers},
	            {"_arena_bytes", &model->arena_size},
	            {"_state_bytes", &model->state_size}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		void *address = find(e, prefix, n, rows[i].suffix);
		if (!address)
			return false;
		memcpy(rows[i].slot, &address, sizeof(address));
	}
	return true;
}

/* Binds the model of a symbol PREFIX_record for whose prefix all functions exist: an object does not tell its model's
 * name otherwise. */
static int find_model(const struct elf *e, struct tfmc_model *model)
{
	static const char suffix[] = "_record";
	for (uint64_t i = 0; i < e->n_symbols; i++) {
		const char *name = symbol_name(e, &e->symbols[i]);
		size_t n = strlen(name), end = sizeof(suffix) - 1;
		if (n > end && !strcmp(name + n - end, suffix) && bind_model(e, name, n - end, model))
			return model->record->magic == TFMC_RECORD_MAGIC ? (int)TFMC_RT_OK
			                                                 : (int)TFMC_RT_E_RECORD;
	}
	return TFMC_RT_E_RECORD;
}

/* ---- opening ---- */

/* Loads a mapped file and finds its model; frees the image after a failure. */
static int load(struct elf *e, struct tfmc_model *model)
{
	int status = parse_header(e);
	if (status == TFMC_RT_OK)
		status = make_image(e);
	if (status == TFMC_RT_OK) {
		write_stubs(e);
		status = relocate_all(e);
	}
	if (status == TFMC_RT_OK)
		status = find_model(e, model);
	free(e->offsets);
	if (status != TFMC_RT_OK && e->image)
		munmap(e->image, e->image_bytes);
	return status;
}

/* Maps a regular file that is not empty. */
static int map_file(const char *path, struct elf *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *data = MAP_FAILED;
	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
		data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (data == MAP_FAILED)
		return TFMC_RT_E_FILE;
	e->data = data;
	e->bytes = (uint64_t)st.st_size;
	return TFMC_RT_OK;
}

/* Sections are copied to an image, so the file is unmapped again. */
int tfmc_object_open(const char *path, struct tfmc_model *model, struct tfmc_object **out)
{
	struct elf e = {0};
	if (!path || !model || !out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	struct tfmc_object *object = malloc(sizeof(*object));
	int status = object ? map_file(path, &e) : TFMC_RT_E_MEMORY;
	if (status == TFMC_RT_OK) {
		status = load(&e, model);
		munmap((void *)(uintptr_t)e.data, e.bytes);
	}
	if (status != TFMC_RT_OK) {
		free(object);
		return status;
	}
	*object = (struct tfmc_object){e.image, e.image_bytes};
	*out = object;
	return TFMC_RT_OK;
}

void tfmc_object_close(struct tfmc_object *object)
{
	if (!object)
		return;
	munmap(object->image, object->bytes);
	free(object);
}

int tfmc_prepared_call(const struct tfmc_prepared_call *call)
{
	return tfmc_session_call(call->session, call->entry, call->dims, call->inputs, call->outputs);
}
