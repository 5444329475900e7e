/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of 64-bit little-endian ELF by their byte offsets: what embed.c and
 * code_bytes.c read of the objects that LLVM writes. Bytes outside the object
 * read as zero.
 */
#ifndef TFMC_BACKENDS_OBJECT_ELF_H
#define TFMC_BACKENDS_OBJECT_ELF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	ELF_EHDR_SHOFF = 40,
	ELF_EHDR_SHENTSIZE = 58,
	ELF_EHDR_SHNUM = 60,
	ELF_EHDR_SHSTRNDX = 62,
	ELF_EHDR_BYTES = 64,
	ELF_SHDR_BYTES = 64,
	ELF_SHDR_TYPE = 4,
	ELF_SHDR_FLAGS = 8,
	ELF_SHDR_OFFSET = 24,
	ELF_SHDR_SIZE = 32,
	ELF_SHDR_LINK = 40,
	ELF_SHDR_ALIGN = 48,
	ELF_SYM_BYTES = 24,
	ELF_SYM_INFO = 4,
	ELF_SYM_SHNDX = 6,
	ELF_SYM_VALUE = 8,
	ELF_SYM_SIZE = 16,
	ELF_PROGBITS = 1,
	ELF_SYMTAB = 2,
	ELF_ALLOC = 2,
	ELF_FUNC = 2, /* low four bits of a symbol's info */
	ELF_GLOBAL_OBJECT = 0x11,
	ELF_SECTIONS_MAX = 0xff00
};

struct elf {
	const char *bytes;
	uint64_t len;
	uint64_t sections; /* offset of the section headers */
	uint64_t n_sections;
	uint64_t names; /* section number of the section names */
};

static inline uint64_t elf_get(const struct elf *e, uint64_t at, int bytes)
{
	uint64_t v = 0;
	if (at > e->len || e->len - at < (uint64_t)bytes)
		return 0;
	for (int i = bytes; i-- > 0;)
		v = v << 8 | (unsigned char)e->bytes[at + (uint64_t)i];
	return v;
}

/* Offset of the header of section i. */
static inline uint64_t elf_section(const struct elf *e, uint64_t i)
{
	return e->sections + i * ELF_SHDR_BYTES;
}

/* False: no such object, or one whose table of sections does not fit into it. */
static inline bool elf_open(struct elf *e, const void *bytes, uint64_t len)
{
	static const char magic[] = {0x7f, 'E', 'L', 'F', 2, 1};
	*e = (struct elf){.bytes = bytes, .len = len};
	if (len < ELF_EHDR_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0)
		return false;
	e->sections = elf_get(e, ELF_EHDR_SHOFF, 8);
	e->n_sections = elf_get(e, ELF_EHDR_SHNUM, 2);
	e->names = elf_get(e, ELF_EHDR_SHSTRNDX, 2);
	uint64_t table = e->n_sections * ELF_SHDR_BYTES;
	return elf_get(e, ELF_EHDR_SHENTSIZE, 2) == ELF_SHDR_BYTES && e->n_sections > 0 &&
	       e->n_sections < ELF_SECTIONS_MAX && e->names < e->n_sections && e->sections <= len &&
	       len - e->sections >= table;
}

#endif
