/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel interpreter: executes kernel IR on the memory of this process, lane by lane, so that kernel generators
 * are tested without a back end. Every access is checked against the allowed ranges: an access outside of a tensor
 * fails here before it hides on a real machine. A call runs one worker, and atomics are plain; a launch runs the
 * work-items of each group one after the other from barrier to barrier and detects data races.
 */
#ifndef TFMC_TESTS_KB_INTERP_INTERP_H
#define TFMC_TESTS_KB_INTERP_INTERP_H

#include "backends/kb/kb.h"

/* The value of one lane: integers and bools in i, floats (rounded to their type) in f, pointers in p. */
union kb_cell {
	int64_t i;
	double f;
	void *p;
};

struct kb_range {
	void *base;
	size_t bytes;
	bool writable;
};

struct kb_interp_symbol {
	const char *name;
	void *address;
};

/* A mock x86 processor for cpuid and xgetbv. */
struct kb_interp_cpu {
	/* Returns register reg (0..3: eax, ebx, ecx, edx) of a leaf. */
	uint32_t (*cpuid)(void *user, uint32_t leaf, uint32_t subleaf, int reg);
	uint32_t xcr0; /* low half */
	void *user;
};

/* An AMX tile register; rows 0: not configured. */
struct kb_interp_tile {
	int rows, bytes;
	unsigned char data[KB_TILE_ROWS][KB_TILE_BYTES];
};

struct kb_interp {
	const struct kb_module *module;
	const struct kb_range *ranges; /* memory that may be accessed, besides own arrays and strings */
	size_t n_ranges;
	const struct kb_interp_symbol *symbols; /* external symbols */
	size_t n_symbols;
	const struct kb_interp_cpu *cpu;       /* NULL: cpuid and xgetbv are errors */
	struct kb_interp_tile tiles[KB_TILES]; /* of the worker: preserved over calls */
	bool has_dot;                          /* result of kb_device_dot */
	bool checks_prefetches;                /* prefetches outside of the ranges are errors, too */
	uint64_t max_steps;                    /* instructions before an endless loop is assumed; 0: 1e10 */
	/* results */
	uint64_t steps;
	char error[160]; /* empty: none */
};

/* Calls a function of the module. False with in->error on a bad access, an unknown name, or no memory. */
TFMC_MUST_USE bool kb_interp_call(struct kb_interp *in, const char *name, const union kb_cell *args,
                                  size_t n_args, union kb_cell *result /* may be NULL */);

/*
 * Runs a kernel over `groups` work-groups, one after the other; the work-items of a group run in turn from barrier to
 * barrier. In addition to the errors of a call, these fail: work-items at different barriers, or in different
 * iterations of a loop, or that end while others wait; a data race (two work-items, of one group without a barrier in
 * between or of two groups, access the same byte and one writes); a read of uninitialized shared memory.
 */
TFMC_MUST_USE bool kb_interp_launch(struct kb_interp *in, const char *name, const union kb_cell *args,
                                    size_t n_args, int64_t groups);

#endif
