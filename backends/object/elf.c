/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF relocatable objects (64-bit, little-endian): a section for the weights, and the size of code by symbol
 * name.
 * The weights are placed right after the ELF header, in a read-only section of their own at whose beginning
 * an undefined symbol is then defined; everything else moves behind them. So they can be written before the
 * code exists and are copied only once. Fields are accessed by byte offset; reads outside of the object give
 * 0.
 *
 * A section or symbol table entry is addressed by its file offset (`head`, `at`). Names are offsets in a section of
 * strings. An ELF object is the header (64 bytes), the contents of sections, and the table of section headers. Tables
 * that grow (names, headers) are appended as copies, since there is no room after them, and the header then refers to
 * the copy. While it is edited, the buffer is without the weights: offsets that headers have are larger by `gap`.
 */
#include "backends/object/internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SECTION_NAME ".rodata.tfmc"
#define EMBED_ALIGN  4096 /* a page: devices that share memory use the weights in place */

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
	ELF_FUNC = 2, /* STT_FUNC, in the low four bits of a symbol's info */
	ELF_GLOBAL_OBJECT = 0x11,
	ELF_SECTIONS_MAX = 0xff00
};

struct elf {
	const char *bytes;
	uint64_t len;
	uint64_t sections; /* offset of the section headers */
	uint64_t n_sections;
	uint64_t names; /* number of the section with section names */
};

/* Little-endian field of 1 to 8 bytes at offset `at`; 0 outside of the object. */
static uint64_t elf_get(const struct elf *e, uint64_t at, int bytes)
{
	uint64_t v = 0;
	if (at > e->len || e->len - at < (uint64_t)bytes)
		return 0;
	for (int i = bytes; i-- > 0;)
		v = v << 8 | (unsigned char)e->bytes[at + (uint64_t)i];
	return v;
}

/* File offset of the header of section i. */
static uint64_t elf_section(const struct elf *e, uint64_t i)
{
	return e->sections + i * ELF_SHDR_BYTES;
}

/* Reads where sections and their names are. False: not a 64-bit little-endian ELF file, or its section table does not
 * fit into it. */
static bool elf_open(struct elf *e, const void *bytes, uint64_t len)
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

/* ---- the section of weights ---- */

struct elf_editor {
	struct buf *b;
	struct elf elf; /* a view of b, updated by editor_get since b grows */
};

static uint64_t editor_get(struct elf_editor *e, uint64_t at, int bytes)
{
	e->elf.bytes = e->b->data;
	e->elf.len = e->b->len;
	return elf_get(&e->elf, at, bytes);
}

/* Stores a little-endian field; nothing outside of the object, or after lack of memory. */
static void editor_put(struct buf *b, uint64_t at, int bytes, uint64_t v)
{
	if (at > b->len || b->len - at < (uint64_t)bytes)
		return;
	for (int i = 0; i < bytes; i++)
		b->data[at + (uint64_t)i] = (char)(v >> (8 * i));
}

/* Whether the zero-terminated string is at offset `at`. */
static bool string_is_at(const struct buf *b, uint64_t at, const char *text)
{
	size_t n = strlen(text) + 1;
	return at < b->len && b->len - at >= n && !memcmp(b->data + at, text, n);
}

/* Defines an undefined symbol (section 0) as a global object of `size` bytes at the beginning of section `index`, in
 * the symbol table that refers to it. False: there is no such symbol. */
static bool define_symbol(struct elf_editor *e, const char *symbol, uint64_t index, uint64_t size)
{
	for (uint64_t s = 0; s < e->elf.n_sections; s++) {
		uint64_t head = elf_section(&e->elf, s);
		if (editor_get(e, head + ELF_SHDR_TYPE, 4) != ELF_SYMTAB)
			continue;
		uint64_t at = editor_get(e, head + ELF_SHDR_OFFSET, 8),
		         bytes = editor_get(e, head + ELF_SHDR_SIZE, 8);
		uint64_t link = editor_get(e, head + ELF_SHDR_LINK, 4);
		uint64_t names = editor_get(e, elf_section(&e->elf, link) + ELF_SHDR_OFFSET, 8);
		for (uint64_t i = at; bytes >= ELF_SYM_BYTES; i += ELF_SYM_BYTES, bytes -= ELF_SYM_BYTES) {
			if (editor_get(e, i + ELF_SYM_SHNDX, 2) != 0 ||
			    !string_is_at(e->b, names + editor_get(e, i, 4), symbol))
				continue;
			editor_put(e->b, i + ELF_SYM_INFO, 1, ELF_GLOBAL_OBJECT);
			editor_put(e->b, i + ELF_SYM_SHNDX, 2, index);
			editor_put(e->b, i + ELF_SYM_VALUE, 8, 0);
			editor_put(e->b, i + ELF_SYM_SIZE, 8, size);
			return true;
		}
	}
	return false;
}

/* Appends a copy of the section names with one more, since there is no room behind them where they are; returns its
 * offset in them. */
static uint64_t add_section_name(struct elf_editor *e, const char *name)
{
	uint64_t head = elf_section(&e->elf, e->elf.names);
	uint64_t from = editor_get(e, head + ELF_SHDR_OFFSET, 8),
	         size = editor_get(e, head + ELF_SHDR_SIZE, 8);
	uint64_t at = e->b->len;
	for (uint64_t i = 0; i < size && !buf_failed(e->b); i++)
		buf_char(e->b, e->b->data[from + i]);
	buf_bytes(e->b, name, strlen(name) + 1);
	editor_put(e->b, head + ELF_SHDR_OFFSET, 8, at);
	editor_put(e->b, head + ELF_SHDR_SIZE, 8, e->b->len - at);
	return size;
}

/* Appends a copy of the section headers with one more, for the weights. All other sections move by `gap` bytes, but
 * for section 0, which has none. Offsets in the buffer are those without the weights: the header's are larger by
 * `gap`. */
static void add_section_header(struct elf_editor *e, uint64_t name, uint64_t size, uint64_t gap)
{
	while (e->b->len % 8)
		buf_char(e->b, 0);
	uint64_t table = e->b->len;
	for (uint64_t i = 0; i < e->elf.n_sections * ELF_SHDR_BYTES && !buf_failed(e->b); i++)
		buf_char(e->b, e->b->data[e->elf.sections + i]);
	for (uint64_t i = 1; i < e->elf.n_sections; i++) {
		uint64_t at = table + i * ELF_SHDR_BYTES + ELF_SHDR_OFFSET;
		editor_put(e->b, at, 8, editor_get(e, at, 8) + gap);
	}
	uint64_t head = e->b->len;
	buf_fill(e->b, 0, ELF_SHDR_BYTES);
	editor_put(e->b, head, 4, name);
	editor_put(e->b, head + ELF_SHDR_TYPE, 4, ELF_PROGBITS);
	editor_put(e->b, head + ELF_SHDR_FLAGS, 8, ELF_ALLOC);
	editor_put(e->b, head + ELF_SHDR_OFFSET, 8, EMBED_AT);
	editor_put(e->b, head + ELF_SHDR_SIZE, 8, size);
	editor_put(e->b, head + ELF_SHDR_ALIGN, 8, EMBED_ALIGN);
	editor_put(e->b, ELF_EHDR_SHOFF, 8, table + gap);
	editor_put(e->b, ELF_EHDR_SHNUM, 2, e->elf.n_sections + 1);
}

uint64_t embed_bytes(uint64_t size)
{
	return (size + OBJECT_ALIGN - 1) / OBJECT_ALIGN * OBJECT_ALIGN;
}

/* The bytes of the weights are not inserted: the caller writes them between the ELF header and what follows. The new
 * section is the last one, so that others keep their numbers. */
enum tfmc_status embed_section(struct diag_context *cx, struct buf *object, const char *symbol, uint64_t size)
{
	struct elf_editor e = {.b = object};
	if (!elf_open(&e.elf, object->data, object->len) ||
	    !define_symbol(&e, symbol, e.elf.n_sections, size)) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "the object has no symbol '%s' to define", symbol);
		return TFMC_INTERNAL;
	}
	uint64_t name = add_section_name(&e, SECTION_NAME);
	add_section_header(&e, name, size, embed_bytes(size));
	return buf_failed(object) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- sizes of functions ---- */

/* Whether the string at offset `at` begins with the prefix. */
static bool has_prefix_at(const struct elf *e, uint64_t at, const char *prefix)
{
	size_t n = strlen(prefix);
	return at <= e->len && e->len - at >= n && !memcmp(e->bytes + at, prefix, n);
}

/* Sum of st_size of the functions whose names begin with the prefix, in the symbol table whose section header is at
 * `head`. The object may be any file: nothing in it is trusted. */
static uint64_t sum_function_sizes(const struct elf *e, uint64_t head, const char *prefix)
{
	uint64_t at = elf_get(e, head + ELF_SHDR_OFFSET, 8), bytes = elf_get(e, head + ELF_SHDR_SIZE, 8);
	uint64_t link = elf_get(e, head + ELF_SHDR_LINK, 4), sum = 0;
	if (link >= e->n_sections || at > e->len || bytes > e->len - at)
		return 0;
	uint64_t names = elf_get(e, elf_section(e, link) + ELF_SHDR_OFFSET, 8);
	if (names > e->len)
		return 0;
	for (; bytes >= ELF_SYM_BYTES; at += ELF_SYM_BYTES, bytes -= ELF_SYM_BYTES) {
		bool is_function = (elf_get(e, at + ELF_SYM_INFO, 1) & 15) == ELF_FUNC;
		if (is_function && has_prefix_at(e, names + elf_get(e, at, 4), prefix))
			sum += elf_get(e, at + ELF_SYM_SIZE, 8);
	}
	return sum;
}

uint64_t backend_code_bytes(const void *object, size_t bytes, const char *prefix)
{
	struct elf e;
	uint64_t sum = 0;
	if (!elf_open(&e, object, bytes))
		return 0;
	for (uint64_t s = 0; s < e.n_sections; s++)
		if (elf_get(&e, elf_section(&e, s) + ELF_SHDR_TYPE, 4) == ELF_SYMTAB)
			sum += sum_function_sizes(&e, elf_section(&e, s), prefix);
	return sum;
}
