/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds bytes to an ELF relocatable object as a read-only section of its own and
 * defines an undefined symbol at its beginning. The code generator never sees
 * the weights: this costs one copy. Only what LLVM writes is read here (64-bit,
 * little-endian, fewer than 65280 sections); anything else is our bug.
 */
#include "backends/object/object.h"

#include <string.h>

#define SECTION_NAME ".rodata.tfmc"

/* Fields of ELF64 by their byte offsets. */
enum {
	EHDR_SHOFF = 40,
	EHDR_SHENTSIZE = 58,
	EHDR_SHNUM = 60,
	EHDR_SHSTRNDX = 62,
	EHDR_BYTES = 64,
	SHDR_BYTES = 64,
	SHDR_TYPE = 4,
	SHDR_FLAGS = 8,
	SHDR_OFFSET = 24,
	SHDR_SIZE = 32,
	SHDR_LINK = 40,
	SHDR_ALIGN = 48,
	SYM_BYTES = 24,
	SYM_INFO = 4,
	SYM_SHNDX = 6,
	SYM_VALUE = 8,
	SYM_SIZE = 16,
	TYPE_PROGBITS = 1,
	TYPE_SYMTAB = 2,
	FLAG_ALLOC = 2,
	INFO_GLOBAL_OBJECT = 0x11,
	SECTIONS_MAX = 0xff00
};

struct elf {
	struct buf *b;
	uint64_t sections; /* offset of the section headers */
	uint64_t n_sections;
	uint64_t names; /* section number of the section names */
};

static uint64_t get(const struct buf *b, uint64_t at, int bytes)
{
	uint64_t v = 0;
	if (at > b->len || b->len - at < (uint64_t)bytes)
		return 0;
	for (int i = bytes; i-- > 0;)
		v = v << 8 | (unsigned char)b->data[at + (uint64_t)i];
	return v;
}

static void put(struct buf *b, uint64_t at, int bytes, uint64_t v)
{
	if (at > b->len || b->len - at < (uint64_t)bytes)
		return;
	for (int i = 0; i < bytes; i++)
		b->data[at + (uint64_t)i] = (char)(v >> (8 * i));
}

static uint64_t section(const struct elf *e, uint64_t i)
{
	return e->sections + i * SHDR_BYTES;
}

static bool open_elf(struct elf *e, struct buf *b)
{
	static const char magic[] = {0x7f, 'E', 'L', 'F', 2, 1};
	*e = (struct elf){.b = b};
	if (b->len < EHDR_BYTES || memcmp(b->data, magic, sizeof(magic)) != 0)
		return false;
	e->sections = get(b, EHDR_SHOFF, 8);
	e->n_sections = get(b, EHDR_SHNUM, 2);
	e->names = get(b, EHDR_SHSTRNDX, 2);
	uint64_t table = e->n_sections * SHDR_BYTES;
	return get(b, EHDR_SHENTSIZE, 2) == SHDR_BYTES && e->n_sections > 0 && e->n_sections < SECTIONS_MAX &&
	       e->names < e->n_sections && e->sections <= b->len && b->len - e->sections >= table;
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
static bool define_symbol(struct elf *e, const char *symbol, uint64_t index, uint64_t size)
{
	for (uint64_t s = 0; s < e->n_sections; s++) {
		uint64_t head = section(e, s);
		if (get(e->b, head + SHDR_TYPE, 4) != TYPE_SYMTAB)
			continue;
		uint64_t at = get(e->b, head + SHDR_OFFSET, 8), bytes = get(e->b, head + SHDR_SIZE, 8);
		uint64_t link = get(e->b, head + SHDR_LINK, 4);
		uint64_t names = get(e->b, section(e, link) + SHDR_OFFSET, 8);
		for (uint64_t i = at; bytes >= SYM_BYTES; i += SYM_BYTES, bytes -= SYM_BYTES) {
			if (get(e->b, i + SYM_SHNDX, 2) != 0 ||
			    !text_is(e->b, names + get(e->b, i, 4), symbol))
				continue;
			put(e->b, i + SYM_INFO, 1, INFO_GLOBAL_OBJECT);
			put(e->b, i + SYM_SHNDX, 2, index);
			put(e->b, i + SYM_VALUE, 8, 0);
			put(e->b, i + SYM_SIZE, 8, size);
			return true;
		}
	}
	return false;
}

/* Copies the section names behind everything and adds one; gives its offset among the names. */
static uint64_t add_name(struct elf *e, const char *name)
{
	uint64_t head = section(e, e->names);
	uint64_t from = get(e->b, head + SHDR_OFFSET, 8), size = get(e->b, head + SHDR_SIZE, 8);
	uint64_t at = e->b->len;
	for (uint64_t i = 0; i < size && !buf_failed(e->b); i++)
		buf_char(e->b, e->b->data[from + i]);
	buf_bytes(e->b, name, strlen(name) + 1);
	put(e->b, head + SHDR_OFFSET, 8, at);
	put(e->b, head + SHDR_SIZE, 8, e->b->len - at);
	return size;
}

/* Moves the section headers behind everything, with one more at their end. */
static void add_header(struct elf *e, uint64_t name, uint64_t at, uint64_t size)
{
	align_to(e->b, 8);
	uint64_t table = e->b->len;
	for (uint64_t i = 0; i < e->n_sections * SHDR_BYTES && !buf_failed(e->b); i++)
		buf_char(e->b, e->b->data[e->sections + i]);
	uint64_t head = e->b->len;
	buf_fill(e->b, 0, SHDR_BYTES);
	put(e->b, head, 4, name);
	put(e->b, head + SHDR_TYPE, 4, TYPE_PROGBITS);
	put(e->b, head + SHDR_FLAGS, 8, FLAG_ALLOC);
	put(e->b, head + SHDR_OFFSET, 8, at);
	put(e->b, head + SHDR_SIZE, 8, size);
	put(e->b, head + SHDR_ALIGN, 8, OBJECT_ALIGN);
	put(e->b, EHDR_SHOFF, 8, table);
	put(e->b, EHDR_SHNUM, 2, e->n_sections + 1);
}

enum tfmc_status embed_bytes(struct diag_context *cx, struct buf *object, const char *symbol,
                             const struct buf *bytes)
{
	struct elf e;
	if (!open_elf(&e, object) || !define_symbol(&e, symbol, e.n_sections, bytes->len)) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "the object has no symbol '%s' to define", symbol);
		return TFMC_INTERNAL;
	}
	align_to(object, OBJECT_ALIGN);
	uint64_t at = object->len;
	buf_bytes(object, bytes->data, bytes->len);
	uint64_t name = add_name(&e, SECTION_NAME);
	add_header(&e, name, at, bytes->len);
	return buf_failed(object) ? TFMC_NO_MEMORY : TFMC_OK;
}
