/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target records: what passes and kernel generators know about a machine; and the choice of a record from names or by
 * probing the CPU. A level is a set of features (x86-64-v3, armv8.6); a processor (znver5) has the features of a level
 * with its own caches and ports.
 */
#ifndef TFMC_IR_TARGET_TARGET_H
#define TFMC_IR_TARGET_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/buf.h"

enum target_arch { ARCH_X86_64, ARCH_AARCH64, ARCH_OPENCL };
enum target_feature {
#define CPUID(NAME, name, leaf, subleaf, reg, bit, xcr0, system) FEATURE_##NAME,
#define HWCAP(NAME, name, word, bit)                             FEATURE_##NAME,
#include "ir/target/features.def"
	N_FEATURES
};

struct target {
	const char *name;
	enum target_arch arch;
	const char *llvm_cpu;
	uint64_t features; /* bit i: code may use feature i */
	int lanes;         /* f32 elements of a vector register */
	int registers;     /* vector registers */
	bool has_fma;
	int fma_ports;        /* vector FMAs issued per cycle */
	int fma_latency;      /* cycles */
	int load_ports;       /* vector loads per cycle */
	int max_accumulators; /* of a register tile: as many as the compiler of the target keeps in registers */
	/* K elements of A loaded as one vector and used by FMA by element (NEON); 1: each element is broadcast. */
	int k_lanes;
	int64_t l1_bytes, l2_bytes;
	int l2_tiles; /* register tiles of weights, over all of K, that L2 should hold; if it cannot, K is blocked */
	/* OpenCL: work-items of a work-group, which cooperate, and bytes of local memory. 0 elsewhere. */
	int group_size;
	int64_t shared_bytes;
};

/* The level or processor of that name, or NULL. */
const struct target *target_find(const char *name);
/* t itself without AMX; else the best level without AMX whose features t has. */
const struct target *target_without_amx(const struct target *t);
/* Short name of a level: v3 of x86-64-v3; other names unchanged. */
const char *target_level_name(const struct target *t);
/* Level i of the table, or processor i; NULL after the last. */
const struct target *target_level_at(size_t i);
const struct target *target_processor_at(size_t i);
static inline bool target_has(const struct target *t, enum target_feature f)
{
	return t->features >> f & 1;
}
/* Writes the features in addition to those of llvm_cpu in LLVM's form: "+avx512vnni,+avx512bf16". */
enum {
	TARGET_FEATURES_BYTES = 1
#define CPUID(NAME, name, leaf, subleaf, reg, bit, xcr0, system) +sizeof(name) + 1
#define HWCAP(NAME, name, word, bit)                             +sizeof(name) + 1
#include "ir/target/features.def"
};
void target_features_string(const struct target *t, char out[TARGET_FEATURES_BYTES]);
/* The first level of an arch, which every machine of the arch executes. */
const struct target *target_baseline(enum target_arch arch);

/*
 * Requirements of code for a target on the machine: bits of cpuid registers (0 eax .. 3 edx), register state that the
 * operating system saves (XCR0), and bits that only the operating system reports (tfmc_config.system in
 * runtime/abi.h).
 */
enum { TARGET_CPU_WORDS = 7, TARGET_SYSTEM_WORDS = 2 };
struct target_requirements {
	struct cpuid_requirement {
		uint32_t leaf, subleaf, reg, bits;
	} words[TARGET_CPU_WORDS];
	int n_words;
	uint32_t xcr0;
	uint64_t system[TARGET_SYSTEM_WORDS];
};
/* The requirements of all features of the target. */
struct target_requirements target_requirements(const struct target *t);

/* A machine, as functions, so that tests can simulate one. cpuid and xcr0 are NULL if the arch has none. system is
 * called last and only for required words, as it may request AMX state from the kernel. */
struct target_machine {
	enum target_arch arch;
	uint32_t (*cpuid)(void *user, uint32_t leaf, uint32_t subleaf, uint32_t reg);
	uint32_t (*xcr0)(void *user);
	uint64_t (*system)(void *user, int word);
	void *user;
};
/* The last, so best, level of the table that the machine executes; NULL if none. */
const struct target *target_level_for_machine(const struct target_machine *m);
/* The processor that cpuid identifies, if the table has it and its features are those of the machine's level; else the
 * level. */
const struct target *target_for_machine(const struct target_machine *m);
/* The host executes code for t. */
bool target_runs_on_host(const struct target *t);
/* target_for_machine of the host, or NULL. */
const struct target *target_native(void);

/* NO_TRIPLE: unknown triple; NO_CPU: the triple has no processor of that name; NO_NATIVE: no record fits the host. */
enum target_choice { TARGET_CHOSEN, TARGET_NO_TRIPLE, TARGET_NO_CPU, TARGET_NO_NATIVE };
/* The record for --target and -mcpu, each NULL if not given. "native" is the host; without a triple the processor alone
 * decides. *out is NULL unless TARGET_CHOSEN. */
enum target_choice target_choose(const char *triple, const char *cpu, const struct target **out);
/* For the name of a target that tfmc no longer has: what to use in its place. Else NULL. */
const char *target_replacement(const char *name);
/* Appends the known names, separated by ", ": triples; processors of a triple (NULL or unknown: all). */
void target_print_triples(struct buf *out);
void target_print_cpus(struct buf *out, const char *triple);

/* OpenCL compiles at program start, so that code size counts more than a kernel for each case; nor is its prefetch
 * implemented by all devices. */
static inline bool target_prefers_small_code(const struct target *t)
{
	return t->arch == ARCH_OPENCL;
}

#endif
