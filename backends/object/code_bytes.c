/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size of code by name: sums the functions in the symbol table of an object.
 * Objects come from files too, so that nothing in them is trusted.
 */
#include "backends/backend.h"

#include "backends/object/elf.h"

/* Does the text at `at` begin with the prefix? */
static bool begins_with(const struct elf *e, uint64_t at, const char *prefix)
{
	size_t n = strlen(prefix);
	return at <= e->len && e->len - at >= n && !memcmp(e->bytes + at, prefix, n);
}

static uint64_t count_symbols(const struct elf *e, uint64_t head, const char *prefix)
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
		if (is_function && begins_with(e, names + elf_get(e, at, 4), prefix))
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
			sum += count_symbols(&e, elf_section(&e, s), prefix);
	return sum;
}
