/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes room for weights in an ELF relocatable object: they lie right after its first header, in a
 * read-only section of their own at whose beginning an undefined symbol is defined, and everything else moves
 * after them. So they can be written before the code exists and are copied only once. Only what LLVM
 * writes is read here (64-bit, little-endian, fewer than 65280 sections); anything else is our bug.
 */
#include "backends/object/internal.h"

#include <string.h>

#include "backends/object/elf.h"

#define SECTION_NAME ".rodata.tfmc"
#define EMBED_ALIGN  4096 /* a page: a device that shares memory takes the weights where they lie */

struct editor {
	struct buf *b;
	struct elf elf; /* its bytes are those of b: refreshed when b has grown */
};

static uint64_t get(struct editor *e, uint64_t at, int bytes)
{
	e->elf.bytes = e->b->data;
	e->elf.len = e->b->len;
	return elf_get(&e->elf, at, bytes);
}

static void put(struct buf *b, uint64_t at, int bytes, uint64_t v)
{
	if (at > b->len || b->len - at < (uint64_t)bytes)
		return;
	for (int i = 0; i < bytes; i++)
		b->data[at + (uint64_t)i] = (char)(v >> (8 * i));
}

static void align_to(struct buf *b, uint64_t align)
{
	while (b->len % align)
		buf_char(b, 0);
}

/* Is the zero-terminated text at `at`? */
static bool text_is(const struct buf *b, uint64_t at, const char *text)
{
	size_t n = strlen(text) + 1;
	return at < b->len && b->len - at >= n && !memcmp(b->data + at, text, n);
}

/* Defines the symbol at the beginning of section `index`. */
static bool define_symbol(struct editor *e, const char *symbol, uint64_t index, uint64_t size)
{
	for (uint64_t s = 0; s < e->elf.n_sections; s++) {
		uint64_t head = elf_section(&e->elf, s);
		if (get(e, head + ELF_SHDR_TYPE, 4) != ELF_SYMTAB)
			continue;
		uint64_t at = get(e, head + ELF_SHDR_OFFSET, 8), bytes = get(e, head + ELF_SHDR_SIZE, 8);
		uint64_t link = get(e, head + ELF_SHDR_LINK, 4);
		uint64_t names = get(e, elf_section(&e->elf, link) + ELF_SHDR_OFFSET, 8);
		for (uint64_t i = at; bytes >= ELF_SYM_BYTES; i += ELF_SYM_BYTES, bytes -= ELF_SYM_BYTES) {
			if (get(e, i + ELF_SYM_SHNDX, 2) != 0 || !text_is(e->b, names + get(e, i, 4), symbol))
				continue;
			put(e->b, i + ELF_SYM_INFO, 1, ELF_GLOBAL_OBJECT);
			put(e->b, i + ELF_SYM_SHNDX, 2, index);
			put(e->b, i + ELF_SYM_VALUE, 8, 0);
			put(e->b, i + ELF_SYM_SIZE, 8, size);
			return true;
		}
	}
	return false;
}

/* Copies the section names after everything and adds one; gives its offset among the names. */
static uint64_t add_name(struct editor *e, const char *name)
{
	uint64_t head = elf_section(&e->elf, e->elf.names);
	uint64_t from = get(e, head + ELF_SHDR_OFFSET, 8), size = get(e, head + ELF_SHDR_SIZE, 8);
	uint64_t at = e->b->len;
	for (uint64_t i = 0; i < size && !buf_failed(e->b); i++)
		buf_char(e->b, e->b->data[from + i]);
	buf_bytes(e->b, name, strlen(name) + 1);
	put(e->b, head + ELF_SHDR_OFFSET, 8, at);
	put(e->b, head + ELF_SHDR_SIZE, 8, e->b->len - at);
	return size;
}

/* Moves the section headers after everything, with one more at their end. `gap`: bytes that will come
 * between the first header and the rest. */
static void add_header(struct editor *e, uint64_t name, uint64_t size, uint64_t gap)
{
	align_to(e->b, 8);
	uint64_t table = e->b->len;
	for (uint64_t i = 0; i < e->elf.n_sections * ELF_SHDR_BYTES && !buf_failed(e->b); i++)
		buf_char(e->b, e->b->data[e->elf.sections + i]);
	for (uint64_t i = 1; i < e->elf.n_sections; i++) {
		uint64_t at = table + i * ELF_SHDR_BYTES + ELF_SHDR_OFFSET;
		put(e->b, at, 8, get(e, at, 8) + gap);
	}
	uint64_t head = e->b->len;
	buf_fill(e->b, 0, ELF_SHDR_BYTES);
	put(e->b, head, 4, name);
	put(e->b, head + ELF_SHDR_TYPE, 4, ELF_PROGBITS);
	put(e->b, head + ELF_SHDR_FLAGS, 8, ELF_ALLOC);
	put(e->b, head + ELF_SHDR_OFFSET, 8, EMBED_AT);
	put(e->b, head + ELF_SHDR_SIZE, 8, size);
	put(e->b, head + ELF_SHDR_ALIGN, 8, EMBED_ALIGN);
	put(e->b, ELF_EHDR_SHOFF, 8, table + gap);
	put(e->b, ELF_EHDR_SHNUM, 2, e->elf.n_sections + 1);
}

uint64_t embed_gap(uint64_t size)
{
	return (size + OBJECT_ALIGN - 1) / OBJECT_ALIGN * OBJECT_ALIGN;
}

enum tfmc_status embed_room(struct diag_context *cx, struct buf *object, const char *symbol, uint64_t size)
{
	struct editor e = {.b = object};
	if (!elf_open(&e.elf, object->data, object->len) ||
	    !define_symbol(&e, symbol, e.elf.n_sections, size)) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "the object has no symbol '%s' to define", symbol);
		return TFMC_INTERNAL;
	}
	uint64_t name = add_name(&e, SECTION_NAME);
	add_header(&e, name, size, embed_gap(size));
	return buf_failed(object) ? TFMC_NO_MEMORY : TFMC_OK;
}
