/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the memory lies that a group touches, as a formula over the dims and the indices of the repeats around it:
 * what the functions of an object compute before they call a kernel, and what an OpenCL host gives to a launch.
 */
#ifndef TFMC_BACKENDS_PLAN_AREA_H
#define TFMC_BACKENDS_PLAN_AREA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OBJECT_REPEAT_MAX 4 /* repeats inside each other */

enum area_memory {
	AREA_WEIGHTS, /* the packed weights, laid out as backend_pack writes them after their header */
	AREA_ARENA,   /* the function's planned buffers and, after them, spare memory */
	AREA_STATE,   /* fixed part, then one block for each sequence (backends/object/README.md) */
	AREA_INPUT,   /* the caller's tensor: parameter `number` */
	AREA_OUTPUT,  /* the caller's tensor: result `number` */
	AREA_SCRATCH  /* of all workers, contents undefined */
};

/* `bytes` at `offset` + the sum over open repeats of index x step. */
struct area {
	const char *name; /* for people: an identifier, distinct among the areas of a group */
	enum area_memory memory;
	size_t number;                   /* INPUT, OUTPUT: index into the function's params or results */
	const struct ir_dim *offset;     /* bytes */
	int64_t step[OBJECT_REPEAT_MAX]; /* bytes for each round, outermost repeat first */
	const struct ir_dim *bytes;      /* SCRATCH: for one worker */
	const struct state_place *state; /* STATE: whose slice it is; NULL: the lengths of the sequences */
	const struct ir_dim
	        *spare; /* OUTPUT: place in the arena when the caller gives no memory; NULL: none */
	bool is_written, is_read;
};

struct area_list {
	struct area *items;
	size_t n, cap;
};

#endif
