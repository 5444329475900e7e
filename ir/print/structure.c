/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a module says apart from the words of people: its text with numbers in
 * place of the names of values, and without locations.
 */
#include "ir/print/internal.h"

#include "ir/support/strmap.h"

#define HASH_BEGIN UINT64_C(14695981039346656037)

uint64_t ir_structure_hash(const struct ir_module *m)
{
	struct buf text;
	buf_init(&text);
	print_module(&text, NULL, m, true);
	uint64_t hash = hash_bytes64(HASH_BEGIN, text.data, text.len);
	buf_destroy(&text);
	return hash;
}
