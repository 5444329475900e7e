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

struct target {
	const char *name;
	enum target_arch arch;
	const char *llvm_cpu, *llvm_features;
	int lanes;     /* f32 elements of a vector register */
	int registers; /* vector registers */
	bool has_fma;
	int fma_ports;   /* multiply-adds of whole vectors that begin in a cycle */
	int fma_latency; /* cycles until the result of one can be used */
	int load_ports;  /* vectors that are loaded in a cycle */
	int tile_sums;   /* accumulators of a register tile at most: what the compiler of the machine keeps in
	                    registers */
	/* Neighbours along K that are loaded as one vector, whose lanes then multiply one after another
	 * (a multiply-add by element); 1: each element is loaded into all lanes. */
	int k_lanes;
	int64_t l1_bytes, l2_bytes;
	/* OpenCL families: work-items of a work-group that work together (1: each alone), bytes they may
	 * share. 0 elsewhere. */
	int group_size;
	int64_t shared_bytes;
};

const struct target *target_find(const char *name);
/* The end of a name that tells rows of an arch apart: v3 of x86-64-v3; other names whole. */
const char *target_level(const struct target *t);
/* Row i of the table, or NULL. */
const struct target *target_at(size_t i);
/* The best row that the machine tfmc runs on can execute (cpuid and xgetbv). NULL: none. */
const struct target *target_native(void);
/* The least demanding row of an arch: every machine of it executes its code. */
const struct target *target_least(enum target_arch arch);
/* True when this machine can execute code for t. */
bool target_runs_here(const struct target *t);

/* What code for a level of x86-64 needs, with what the levels below it need: bits of registers (0 eax .. 3 edx)
 * of leaves of cpuid, and register state that the operating system must save (xgetbv). */
enum { TARGET_CPU_WORDS = 3 };
struct target_cpu_needs {
	struct target_cpu_word {
		uint32_t leaf, reg, bits;
	} words[TARGET_CPU_WORDS]; /* without bits: not asked for */
	uint32_t xcr0;
};
/* All zero for rows that are no such level. */
struct target_cpu_needs target_cpu_needs(const struct target *t);

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
