/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target records: what passes and kernel templates may know about a machine.
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
	int fma_ports;        /* multiply-adds of whole vectors that begin in a cycle */
	int fma_latency;      /* cycles until the result of one can be used */
	int load_ports;       /* vectors that are loaded in a cycle */
	int max_accumulators; /* accumulators of a register tile at most: what the compiler of the machine keeps in
	                    registers */
	/* Neighbours along K that are loaded as one vector, whose lanes then multiply one after another
	 * (a multiply-add by element); 1: each element is loaded into all lanes. */
	int k_lanes;
	int64_t l1_bytes, l2_bytes;
	int l2_tiles; /* register tiles of weights, of all of K, that L2 should hold: where it does not, K is divided */
	/* OpenCL families: work-items of a work-group that work together (1: each alone), bytes they may
	 * share. 0 elsewhere. */
	int group_size;
	int64_t shared_bytes;
};

/* A level or a processor. */
const struct target *target_find(const char *name);
/* t, or the best level without matrix tiles whose features t has. */
const struct target *target_without_amx(const struct target *t);
/* The end of a name that tells rows of an arch apart: v3 of x86-64-v3; other names whole. */
const char *target_level_name(const struct target *t);
/* Level i of the table, processor i, or NULL. */
const struct target *target_level_at(size_t i);
const struct target *target_processor_at(size_t i);
static inline bool target_has(const struct target *t, enum target_feature f)
{
	return t->features >> f & 1;
}
/* Writes the features that are not those of llvm_cpu, as LLVM reads them: "+avx512vnni,+avx512bf16". */
enum {
	TARGET_FEATURES_BYTES = 1
#define CPUID(NAME, name, leaf, subleaf, reg, bit, xcr0, system) +sizeof(name) + 1
#define HWCAP(NAME, name, word, bit)                             +sizeof(name) + 1
#include "ir/target/features.def"
};
void target_features_string(const struct target *t, char out[TARGET_FEATURES_BYTES]);
/* The least demanding row of an arch: every machine of it executes its code. */
const struct target *target_baseline(enum target_arch arch);

/*
 * What code for a row needs of a machine: bits of registers (0 eax .. 3 edx) of cpuid, register state that the
 * operating system must save (xgetbv), and bits of the words that only the operating system can tell
 * (tfmc_config.system in runtime/abi.h).
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
struct target_requirements target_requirements(const struct target *t);

/* A machine to be asked; cpuid and xcr0 where the arch has them. system is asked last, for a word that is needed. */
struct target_machine {
	enum target_arch arch;
	uint32_t (*cpuid)(void *user, uint32_t leaf, uint32_t subleaf, uint32_t reg);
	uint32_t (*xcr0)(void *user);
	uint64_t (*system)(void *user, int word);
	void *user;
};
/* NULL: tfmc was built for a machine it knows no way to ask. */
const struct target_machine *target_host_machine(void);
/* The last level of the table that the machine executes. NULL: none. */
const struct target *target_level_for_machine(const struct target_machine *m);
/* The processor that the machine is, where the table has it and it executes no less than that; else the level. */
const struct target *target_for_machine(const struct target_machine *m);
/* Of the machine tfmc runs on. */
bool target_runs_on_host(const struct target *t);
const struct target *target_native(void);

/* What became of a choice. NO_NATIVE: no row fits the machine tfmc runs on; NO_CPU: no row of that name
 * belongs to the triple. */
enum target_choice { TARGET_CHOSEN, TARGET_NO_TRIPLE, TARGET_NO_CPU, TARGET_NO_NATIVE };
/* The row for names that a person gave, each NULL when not given. "native" is this machine; without a triple
 * the processor alone says what it is, any row. */
enum target_choice target_choose(const char *triple, const char *cpu, const struct target **out);
/* Appends the known names, separated by ", ": triples; processors of a triple (NULL or unknown: all). */
void target_print_triples(struct buf *out);
void target_print_cpus(struct buf *out, const char *triple);

#endif
