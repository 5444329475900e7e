/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME.cpu() -> status: whether this processor, and the operating system on it,
 * has what the object's code uses. Runs before anything else, so it is compiled
 * for every processor of the architecture.
 */
#include "backends/object/object.h"

#include <string.h>

enum { EAX, EBX, ECX, EDX };

struct feature {
	uint32_t leaf;
	int reg;
	uint32_t bits;
};

struct level {
	const char *target;
	const struct feature *features; /* bits 0 ends the list */
	uint32_t xcr0;                  /* register state the system must save */
};

/* Sets of the x86-64 psABI; each includes those below it. */
static const struct feature v2[] = {{1, ECX, 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23},
                                    {0, 0, 0}};
static const struct feature v3[] = {
        {1, ECX,
         1u << 0 | 1u << 9 | 1u << 12 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 22 | 1u << 23 | 1u << 27 |
                 1u << 28 | 1u << 29},
        {7, EBX, 1u << 3 | 1u << 5 | 1u << 8},
        {0x80000001u, ECX, 1u << 5},
        {0, 0, 0},
};
static const struct feature v4[] = {
        {1, ECX,
         1u << 0 | 1u << 9 | 1u << 12 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 22 | 1u << 23 | 1u << 27 |
                 1u << 28 | 1u << 29},
        {7, EBX, 1u << 3 | 1u << 5 | 1u << 8 | 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31},
        {0x80000001u, ECX, 1u << 5},
        {0, 0, 0},
};
static const struct level levels[] = {
        {"x86-64-v2", v2, 0},
        {"x86-64-v3", v3, 0x06},
        {"x86-64-v4", v4, 0xe6},
};

static struct kb_val has_bits(struct emit *e, struct kb_val word, uint32_t bits)
{
	struct kb_val wanted = kb_i32(e->k, (int32_t)bits);
	return kb_cmp(e->k, KB_EQ, kb_bin(e->k, KB_AND, word, wanted), wanted);
}

static void require(struct emit *e, struct kb_val ok)
{
	emit_return_if(e, kb_un(e->k, KB_NOT, ok), TFMC_RT_E_CPU);
}

/* The highest leaf is compared as unsigned by its distance from the base of its range. */
static void require_leaf(struct emit *e, uint32_t leaf)
{
	uint32_t base = leaf & 0x80000000u;
	struct kb_val highest = kb_cpuid(e->k, base, 0, EAX);
	struct kb_val distance = kb_bin(e->k, KB_SUB, highest, kb_i32(e->k, (int32_t)base));
	require(e, kb_cmp(e->k, KB_GE, distance, kb_i32(e->k, (int32_t)(leaf - base))));
}

static void require_level(struct emit *e, const struct level *l)
{
	for (const struct feature *f = l->features; f->bits; f++) {
		require_leaf(e, f->leaf);
		require(e, has_bits(e, kb_cpuid(e->k, f->leaf, 0, f->reg), f->bits));
	}
	if (l->xcr0)
		require(e, has_bits(e, kb_xgetbv(e->k), l->xcr0));
}

void emit_cpu(struct object *o)
{
	struct emit e = {.object = o};
	e.k = kb_begin(o->kb, emit_name(o, ".cpu"), KB_INTERNAL, KB_I32);
	if (!e.k)
		return;
	for (size_t i = 0; i < TFMC_COUNT(levels); i++)
		if (!o->is_text && !strcmp(levels[i].target, o->target->name))
			require_level(&e, &levels[i]);
	kb_return(e.k, kb_i32(e.k, TFMC_RT_OK));
	kb_end(e.k);
}
