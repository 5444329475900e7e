/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the names a person gives (a triple, a processor) to a row of the table of
 * targets, and the lists of names that are known. Both come from the tables.
 */
#include <string.h>

#include "ir/support/compiler.h"
#include "ir/target/target.h"

struct triple {
	const char *name;
	enum target_arch arch;
	const char *row;
};

static const struct triple triples[] = {
#define TRIPLE(name, arch, row) {name, ARCH_##arch, row},
#include "ir/target/triples.def"
};

static bool is_native(const char *name)
{
	return !name || !strcmp(name, "native");
}

static bool find_triple(const char *name, struct triple *out)
{
	for (size_t i = 0; i < TFMC_COUNT(triples); i++) {
		if (strcmp(triples[i].name, name))
			continue;
		*out = triples[i];
		return true;
	}
	const struct target *family = target_find(name);
	if (!family || family->arch != ARCH_OPENCL)
		return false;
	*out = (struct triple){name, ARCH_OPENCL, name};
	return true;
}

/* The row of `cpu` among those of the triple. */
static const struct target *row_of(const struct triple *t, const char *cpu)
{
	const struct target *native = target_native();
	bool here = native && native->arch == t->arch;
	if (cpu && !is_native(cpu)) {
		const struct target *row = target_find(cpu);
		return row && row->arch == t->arch ? row : NULL;
	}
	if (here)
		return native;
	return cpu ? NULL : target_find(t->row);
}

enum target_choice target_choose(const char *triple, const char *cpu, const struct target **out)
{
	struct triple t;
	*out = NULL;
	if (is_native(triple)) {
		*out = is_native(cpu) ? target_native() : target_find(cpu);
		if (*out)
			return TARGET_CHOSEN;
		return is_native(cpu) ? TARGET_NO_NATIVE : TARGET_NO_CPU;
	}
	if (!find_triple(triple, &t))
		return TARGET_NO_TRIPLE;
	*out = row_of(&t, cpu);
	return *out ? TARGET_CHOSEN : TARGET_NO_CPU;
}

void target_print_triples(struct buf *out)
{
	buf_str(out, "native");
	for (size_t i = 0; i < TFMC_COUNT(triples); i++)
		buf_printf(out, ", %s", triples[i].name);
	for (size_t i = 0; target_level_at(i); i++)
		if (target_level_at(i)->arch == ARCH_OPENCL)
			buf_printf(out, ", %s", target_level_at(i)->name);
}

void target_print_cpus(struct buf *out, const char *triple)
{
	struct triple t = {0};
	const struct target *native = target_native();
	bool all = is_native(triple) || !find_triple(triple, &t);
	const char *separator = "";
	if (all || (native && native->arch == t.arch)) {
		buf_str(out, "native");
		separator = ", ";
	}
	for (int tuned = 0; tuned < 2; tuned++) {
		const struct target *row;
		for (size_t i = 0; (row = tuned ? target_processor_at(i) : target_level_at(i)) != NULL; i++) {
			if (!all && row->arch != t.arch)
				continue;
			buf_printf(out, "%s%s", separator, row->name);
			separator = ", ";
		}
	}
}
