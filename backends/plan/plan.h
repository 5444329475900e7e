/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of a function does, as data: steps in order, the memory that each kernel reads and writes, its
 * arguments, and where workers wait. The functions of an object are emitted from it, an OpenCL host walks it.
 */
#ifndef TFMC_BACKENDS_PLAN_PLAN_H
#define TFMC_BACKENDS_PLAN_PLAN_H

#include "ir/core/module.h"
#include "ir/support/buf.h"
#include "runtime/plan/format.h"

#define OBJECT_REPEAT_MAX PLAN_REPEATS

/* ---- memory ---- */

/* `bytes` at `offset` + the sum over open repeats of index x step. */
struct area {
	const char *name; /* for people: an identifier, distinct among the areas of a kernel */
	enum area_memory memory;
	size_t number;                    /* INPUT, OUTPUT: index into the function's params or results */
	const struct ir_dim *offset;      /* bytes */
	int64_t step[OBJECT_REPEAT_MAX];  /* bytes for each round, outermost repeat first */
	const struct ir_dim *bytes;       /* SCRATCH: for one worker */
	const struct state_layout *state; /* STATE: whose slice it is; NULL: the lengths of the sequences */
	bool is_source;                   /* what encode has left, possibly of another sequence */
	const struct ir_dim
	        *spare; /* OUTPUT: place in the arena when the caller gives no memory; NULL: none */
	bool is_written;
};

struct area_list {
	struct area *items;
	size_t n, cap;
};

/* ---- kernels ---- */

struct plan_arg {
	enum plan_arg_kind kind;
	size_t number;
};

struct plan_kernel {
	const char *name; /* kernels that are equal have one name */
	/* OP_group, of the planned module, one after the other in its function, the first of them number `number`: several
	 * only on a device. A worker needs nothing of another one, see together.c. */
	const struct ir_op *const *groups;
	size_t n_groups, number;
	unsigned reversed; /* bits: groups whose workers are counted from the last one on */
	/* The calls that launch it: those whose `rows` are few or many (kernel_few_rows); NULL: all. */
	const struct ir_dim *rows;
	bool is_skinny;
	bool is_combine; /* the second step of an attention whose blocks the workers have divided */
	int64_t repeat_counts[OBJECT_REPEAT_MAX]; /* of the repeats around it, outermost first; then 0 */
	struct area_list areas;                   /* that the kernel touches, results last, then scratch */
	const struct plan_arg *args;              /* in the kernel's order */
	size_t n_args;
	int64_t scratch; /* bytes that it uses for each worker; 0: no area of that kind */
	/* OpenCL: work-groups that find something to do; every number from 1 on gives the same bits. 0: launch
	 * one. Many more than this may overflow indices of 32 bits. NULL: of an object. */
	const struct ir_dim *tasks;
	int64_t items;   /* of a work-group: the local size, required by the kernel */
	int64_t workers; /* for each work-group: 1 when its items share tasks, else `items` */
};

/* ---- steps ---- */

struct plan_command {
	enum plan_command_kind kind;
	const struct plan_kernel *kernel; /* KERNEL */
	int64_t count;                    /* REPEAT */
	const size_t *outputs;            /* WANTED: results of the function */
	size_t n_outputs;
	const struct ir_dim *heads; /* SPLIT */
};

struct plan {
	const struct ir_func *func;
	struct plan_command *items;
	size_t n, cap;
	const struct ir_dim *arena_bytes;
	const struct area *lengths; /* of the step LENGTHS; NULL: there is none */
};

/* As text, for people: one line for each step, offsets and sizes as formulas. */
void plan_print(const struct plan *p, const struct ir_module *planned, struct buf *out);

#endif
