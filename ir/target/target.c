/* SPDX-License-Identifier: Apache-2.0 */
/* The table of targets, levels in order of preference with the best last, which of them a machine executes, and the
 * choice of one from a triple and a processor name. */
#define _GNU_SOURCE /* syscall */

#include "ir/target/target.h"
#include "ir/support/compiler.h"

#include <stdio.h>
#include <string.h>

/* ---- this machine ---- */

/*
 * Probes the host: cpuid and XCR0, and through Linux the permission to use AMX, or the HWCAP words of aarch64. The
 * runtime does the same for sessions (runtime/session.c). The functions have the form of struct target_machine, by
 * which tests simulate other machines.
 */

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OSXSAVE        (1u << 27)
#define TILE_DATA      18     /* XCR0 component of AMX tile data */
#define GET_XCOMP_PERM 0x1022 /* ARCH_GET_XCOMP_PERM of Linux */
#define REQ_XCOMP_PERM 0x1023 /* ARCH_REQ_XCOMP_PERM */

/* 0 for a leaf that the processor does not have: it then has none of its features. */
static uint32_t cpuid_here(void *user, uint32_t leaf, uint32_t subleaf, uint32_t reg)
{
	unsigned regs[4] = {0};
	(void)user;
	return __get_cpuid_count(leaf, subleaf, &regs[0], &regs[1], &regs[2], &regs[3]) ? regs[reg] : 0;
}

/* XCR0: the registers that the operating system saves, so that programs may use them. 0 if it does not let xgetbv
 * read that (OSXSAVE). The upper half has no component in use. */
static uint32_t xcr0_here(void *user)
{
	uint32_t low, high;
	if (!(cpuid_here(user, 1, 0, 2) & OSXSAVE))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	(void)high;
	return low;
}

/* Requests tile data for this process, then returns the permitted components: Linux grants AMX state on request only.
 * x86-64 has word 0 alone. */
static uint64_t system_here(void *user, int word)
{
	uint64_t permitted = 0;
	(void)user;
	if (word != 0 || syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) ||
	    syscall(SYS_arch_prctl, GET_XCOMP_PERM, &permitted))
		return 0;
	return permitted;
}

/* The machine tfmc runs on; NULL if tfmc was built for an arch or system that it cannot probe. */
static const struct target_machine *target_host_machine(void)
{
	static const struct target_machine here = {ARCH_X86_64, cpuid_here, xcr0_here, system_here, NULL};
	return &here;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

static uint64_t system_here(void *user, int word)
{
	(void)user;
	return getauxval(word == 0 ? AT_HWCAP : AT_HWCAP2);
}

static const struct target_machine *target_host_machine(void)
{
	static const struct target_machine here = {.arch = ARCH_AARCH64, .system = system_here};
	return &here;
}

#else

static const struct target_machine *target_host_machine(void)
{
	return NULL;
}

#endif

/* ---- the table ---- */

#define HAS(feature) ((uint64_t)1 << FEATURE_##feature)

#define ROW(name, arch, cpu, features, lanes, registers, fma, ports, latency, loads, sums, k_lanes, l1, l2, \
            l2_tiles, items, shared)                                                                        \
	{name,  ARCH_##arch, cpu,     features, lanes, registers, fma,   ports, latency,                    \
	 loads, sums,        k_lanes, l1,       l2,    l2_tiles,  items, shared},

static const struct target targets[] = {
#define TARGET ROW
#include "ir/target/targets.def"
};
static const struct target tuned[] = {
#define TUNED ROW
#include "ir/target/targets.def"
};

/* cpuid family and range of models of a processor. */
struct processor {
	const char *name, *vendor;
	uint32_t family, from, to;
};
static const struct processor processors[] = {
#define PROCESSOR(name, vendor, family, from, to) {name, vendor, family, from, to},
#include "ir/target/targets.def"
};

enum { EAX, EBX, ECX, EDX };

struct feature {
	const char *name;
	struct cpuid_requirement cpu; /* bits 0: no cpuid bit */
	uint32_t xcr0;
	uint64_t system[TARGET_SYSTEM_WORDS];
};

static const struct feature features[] = {
#define CPUID(NAME, name, leaf, subleaf, reg, bit, xcr0, system) \
	{name, {leaf, subleaf, reg, (uint32_t)1 << (bit)}, xcr0, {system}},
#define HWCAP(NAME, name, word, bit) \
	{name, {0}, 0, {(uint64_t)((word) == 0) << (bit), (uint64_t)((word) == 1) << (bit)}},
#include "ir/target/features.def"
};
_Static_assert(N_FEATURES <= 64, "target.features has a bit for each feature");

/* ---- requirements ---- */

/* Adds cpuid bits, merging those of the same register; TARGET_CPU_WORDS is the number of registers in features.def. */
static void require_cpuid(struct target_requirements *n, const struct cpuid_requirement *w)
{
	for (int i = 0; i < n->n_words; i++) {
		struct cpuid_requirement *have = &n->words[i];
		if (have->leaf == w->leaf && have->subleaf == w->subleaf && have->reg == w->reg) {
			have->bits |= w->bits;
			return;
		}
	}
	n->words[n->n_words++] = *w;
}

/* The bits of all features of the target: cpuid by register, XCR0, and the words of the system. */
struct target_requirements target_requirements(const struct target *t)
{
	struct target_requirements n = {0};
	for (int i = 0; i < N_FEATURES; i++) {
		const struct feature *f = &features[i];
		if (!target_has(t, (enum target_feature)i))
			continue;
		if (f->cpu.bits)
			require_cpuid(&n, &f->cpu);
		n.xcr0 |= f->xcr0;
		for (int w = 0; w < TARGET_SYSTEM_WORDS; w++)
			n.system[w] |= f->system[w];
	}
	return n;
}

/* The machine has the arch, the cpuid bits and the registers that the system must enable (XCR0, HWCAP) for t. The
 * system is called last, and only if t needs it, as it may request AMX state. */
static bool target_runs(const struct target *t, const struct target_machine *m)
{
	const struct target_requirements n = target_requirements(t);
	if (t->arch != m->arch)
		return false;
	for (int i = 0; i < n.n_words; i++) {
		const struct cpuid_requirement *w = &n.words[i];
		if ((m->cpuid(m->user, w->leaf, w->subleaf, w->reg) & w->bits) != w->bits)
			return false;
	}
	if (n.xcr0 && (m->xcr0(m->user) & n.xcr0) != n.xcr0)
		return false;
	for (int w = 0; w < TARGET_SYSTEM_WORDS; w++)
		if (n.system[w] && (m->system(m->user, w) & n.system[w]) != n.system[w])
			return false;
	return true;
}

/* The last level that runs: rows are in order of preference. */
const struct target *target_level_for_machine(const struct target_machine *m)
{
	const struct target *best = NULL;
	for (size_t i = 0; i < TFMC_COUNT(targets); i++)
		if (target_runs(&targets[i], m))
			best = &targets[i];
	return best;
}

bool target_runs_on_host(const struct target *t)
{
	const struct target_machine *here = target_host_machine();
	return here && target_runs(t, here);
}

/*
 * Vendor, family and model of cpuid leaf 1; the extended fields count for families 6 and 15, as both vendors specify.
 */
static bool is_processor(const struct processor *p, const struct target_machine *m)
{
	const uint32_t order[] = {EBX, EDX, ECX};
	char vendor[13] = "";
	for (int i = 0; i < 12; i++)
		vendor[i] = (char)(m->cpuid(m->user, 0, 0, order[i / 4]) >> 8 * (i % 4) & 0xff);
	uint32_t eax = m->cpuid(m->user, 1, 0, EAX), family = eax >> 8 & 15, model = eax >> 4 & 15;
	if (family == 6 || family == 15)
		model += (eax >> 16 & 15) << 4;
	if (family == 15)
		family += eax >> 20 & 255;
	return !strcmp(vendor, p->vendor) && family == p->family && p->from <= model && model <= p->to;
}

/* A processor whose features are not all enabled counts as its level: its record may have other features than the
 * machine. */
const struct target *target_for_machine(const struct target_machine *m)
{
	const struct target *best = target_level_for_machine(m);
	for (size_t i = 0; m->arch == ARCH_X86_64 && best && i < TFMC_COUNT(processors); i++) {
		const struct target *t = target_find(processors[i].name);
		if (t->features == best->features && is_processor(&processors[i], m))
			return t;
	}
	return best;
}

const struct target *target_native(void)
{
	const struct target_machine *here = target_host_machine();
	return here ? target_for_machine(here) : NULL;
}

/* ---- the table ---- */

/* Levels first; processors have other names. */
const struct target *target_find(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(targets); i++)
		if (!strcmp(targets[i].name, name))
			return &targets[i];
	for (size_t i = 0; i < TFMC_COUNT(tuned); i++)
		if (!strcmp(tuned[i].name, name))
			return &tuned[i];
	return NULL;
}

const char *target_level_name(const struct target *t)
{
	static const char family[] = "x86-64-";
	size_t n = sizeof(family) - 1;
	return strncmp(t->name, family, n) ? t->name : t->name + n;
}

const struct target *target_level_at(size_t i)
{
	return i < TFMC_COUNT(targets) ? &targets[i] : NULL;
}

const struct target *target_processor_at(size_t i)
{
	return i < TFMC_COUNT(tuned) ? &tuned[i] : NULL;
}

const struct target *target_baseline(enum target_arch arch)
{
	for (size_t i = 0; i < TFMC_COUNT(targets); i++)
		if (targets[i].arch == arch)
			return &targets[i];
	return NULL;
}

/* The best level of the arch whose features are a subset of those of t. */
const struct target *target_without_amx(const struct target *t)
{
	const struct target *best = t;
	for (size_t i = 0; target_has(t, FEATURE_AMX_TILE) && i < TFMC_COUNT(targets); i++)
		if (targets[i].arch == t->arch && !(targets[i].features & ~t->features) &&
		    !target_has(&targets[i], FEATURE_AMX_TILE))
			best = &targets[i];
	return best;
}

/* llvm_cpu itself is a record if LLVM gives it features of the table; only those beyond it are written. */
void target_features_string(const struct target *t, char out[TARGET_FEATURES_BYTES])
{
	const struct target *cpu = target_find(t->llvm_cpu);
	uint64_t additional = t->features & ~(cpu ? cpu->features : 0);
	size_t at = 0;
	out[0] = 0;
	for (int i = 0; i < N_FEATURES; i++)
		if (additional >> i & 1)
			at += (size_t)snprintf(out + at, TARGET_FEATURES_BYTES - at, "%s+%s", at ? "," : "",
			                       features[i].name);
}

/* ---- from names to a target ---- */

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

/* The row of triples.def with that name; false if there is none. */
static bool find_triple(const char *name, struct triple *out)
{
	for (size_t i = 0; i < TFMC_COUNT(triples); i++)
		if (!strcmp(triples[i].name, name)) {
			*out = triples[i];
			return true;
		}
	return false;
}

const char *target_replacement(const char *name)
{
#define REMOVED(removed, hint)      \
	if (!strcmp(name, removed)) \
		return hint;
#include "ir/target/triples.def"
	return NULL;
}

/* The record of `cpu`, or without one (or `native`) this machine if it is of the arch, else the default row of the
 * triple; NULL if the triple does not have that processor, or `native` is another arch. */
static const struct target *target_of_triple(const struct triple *t, const char *cpu)
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

/* Without a triple, or with `native`, the processor alone decides, and may be of another arch than the host. */
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
	*out = target_of_triple(&t, cpu);
	return *out ? TARGET_CHOSEN : TARGET_NO_CPU;
}

void target_print_triples(struct buf *out)
{
	buf_str(out, "native");
	for (size_t i = 0; i < TFMC_COUNT(triples); i++)
		buf_printf(out, ", %s", triples[i].name);
}

/* `native` where this machine is one of the triple, levels, then processors. */
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
	for (int is_tuned = 0; is_tuned < 2; is_tuned++) {
		const struct target *row;
		for (size_t i = 0; (row = is_tuned ? target_processor_at(i) : target_level_at(i)) != NULL;
		     i++) {
			if (!all && row->arch != t.arch)
				continue;
			buf_printf(out, "%s%s", separator, row->name);
			separator = ", ";
		}
	}
}
