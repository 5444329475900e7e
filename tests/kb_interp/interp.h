/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes recorded functions on the memory of this process, lane by lane: the
 * templates are tested with it without any back end. Every access is checked
 * against the allowed ranges, so a template that reads beyond its tensors fails
 * here before it can hide in a real machine. A call is one worker, and atomics are
 * plain; a launch is the items of work-groups in turns, watched for races.
 */
#ifndef TFMC_BACKENDS_KB_INTERP_INTERP_H
#define TFMC_BACKENDS_KB_INTERP_INTERP_H

#include "backends/kb/kb.h"

/* One lane: integers and bools in i, floats (rounded to their type) in f. */
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

/* A processor to be asked about. */
struct kb_interp_cpu {
	/* Register reg (0..3: eax, ebx, ecx, edx) of a leaf. */
	uint32_t (*cpuid)(void *user, uint32_t leaf, uint32_t subleaf, int reg);
	uint32_t xcr0; /* low half */
	void *user;
};

/* Matrix tiles; rows 0: none. */
struct kb_interp_tile {
	int rows, bytes;
	unsigned char data[KB_TILE_ROWS][KB_TILE_BYTES];
};

struct kb_interp {
	const struct kb_module *module;
	const struct kb_range
	        *ranges; /* memory the functions may touch, beside their own arrays and strings */
	size_t n_ranges;
	const struct kb_interp_symbol *symbols; /* external symbols */
	size_t n_symbols;
	const struct kb_interp_cpu *cpu;       /* what cpuid and xgetbv say; NULL: asking is an error */
	struct kb_interp_tile tiles[KB_TILES]; /* of the worker: calls keep them */
	bool has_dot;                          /* the device has dot products of bytes */
	uint64_t max_steps;                    /* instructions before giving up, 0: 1e10 */
	/* after a run */
	uint64_t steps;
	char error[160]; /* empty: none */
};

/* Calls a function of the module. False with in->error on a bad access, an unknown name, or no memory. */
TFMC_MUST_USE bool kb_interp_call(struct kb_interp *in, const char *name, const union kb_cell *args,
                                  size_t n_args, union kb_cell *result /* may be NULL */);

/*
 * Runs a kernel over `groups` work-groups, one after another; the items of a group in turns from barrier to
 * barrier. Beside the errors of a call: items that wait at different barriers or in different turns of a
 * loop, or end while others wait; two items (of one group without a barrier between them, or of two groups)
 * that touch the same byte when one of them writes; a read of shared memory that nobody has written.
 */
TFMC_MUST_USE bool kb_interp_launch(struct kb_interp *in, const char *name, const union kb_cell *args,
                                    size_t n_args, int64_t groups);

#endif
