/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of a function does, as data: steps in order, the memory that each kernel reads and writes, its
 * arguments, and where workers wait. The functions of an object are emitted from it, an OpenCL host walks it.
 */
#ifndef TFMC_BACKENDS_PLAN_PLAN_H
#define TFMC_BACKENDS_PLAN_PLAN_H

#include "ir/core/module.h"
#include "ir/support/buf.h"

#define OBJECT_REPEAT_MAX 4 /* repeats inside each other */

/* ---- memory ---- */

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
	const char *name; /* for people: an identifier, distinct among the areas of a kernel */
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

/* ---- kernels ---- */

enum plan_arg_kind {
	PLAN_BUFFER, /* of an object: the address of area `number`; OpenCL: the memory that it is in */
	PLAN_OFFSET, /* OpenCL: byte offset of area `number` in its memory */
	PLAN_DIM,    /* value of the module's dim symbol `number` */
	PLAN_INDEX,  /* of the open repeat `number`, outermost first */
	/* Of an object alone; kernels of OpenCL ask their work-group. */
	PLAN_WORKER,
	PLAN_WORKERS,
	PLAN_SOURCE_STEP /* sequences from what one row reads of encode to what the next one reads: 1, or 0 */
};

struct plan_arg {
	enum plan_arg_kind kind;
	size_t number;
};

struct plan_kernel {
	const char *name;          /* kernels that are equal have one name */
	const struct ir_op *group; /* OP_group, of the planned module */
	size_t number;             /* of the group in its function */
	bool is_join;              /* the second step of an attention whose blocks the workers have divided */
	bool is_divided;           /* by heads, as the kernel before or after it (kernel_job.parts) */
	int64_t rounds[OBJECT_REPEAT_MAX]; /* of the repeats around it, outermost first; then 0 */
	struct area_list areas;            /* that the kernel touches, results last, then scratch */
	const struct plan_arg *args;       /* in the kernel's order */
	size_t n_args;
	int64_t scratch; /* bytes that it uses for each worker; 0: no area of that kind */
	/* OpenCL: work-groups that find something to do; every number from 1 on gives the same bits. 0: launch
	 * one. Many more than this may overflow indices of 32 bits. NULL: of an object. */
	const struct ir_dim *tasks;
	int64_t items;   /* of a work-group: the local size, required by the kernel */
	int64_t workers; /* for each work-group: 1 when its items share tasks, else `items` */
};

/* ---- steps ---- */

enum plan_step_kind {
	PLAN_KERNEL,
	PLAN_REPEAT, /* the steps up to its END run `count` times */
	PLAN_WANTED, /* those up to its END run when the caller wants one of `outputs` */
	PLAN_SPLIT, /* those up to its END run when the workers divide the blocks of `heads` heads: heads < 2n
	                 and heads % n != 0 for n workers */
	PLAN_END,   /* of the innermost REPEAT, WANTED or SPLIT */
	PLAN_BARRIER, /* what follows needs what kernels since the last one did; `parts` > 1: not when the number
	                 of workers divides it */
	/* What no kernel does. FILL and RING come first, LENGTHS and ENCODED last, when nothing can fail. */
	PLAN_FILL,    /* parameter `number` gets its default when the caller has left it out */
	PLAN_RING,    /* `rows` new rows overwrite a ring of `held`, of which `window` are read */
	PLAN_LENGTHS, /* the sequences' new lengths, i32 [B], are in `lengths` */
	PLAN_ENCODED  /* the sequences of the call have been filled */
};

struct plan_step {
	enum plan_step_kind kind;
	const struct plan_kernel *kernel; /* KERNEL */
	int64_t count;                    /* REPEAT */
	const size_t *outputs;            /* WANTED: results of the function */
	size_t n_outputs;
	const struct ir_dim *heads; /* SPLIT */
	int64_t parts;              /* BARRIER */
	size_t number;              /* FILL */
	const struct ir_dim *rows;  /* RING */
	int64_t held, window;
	const struct area *lengths; /* LENGTHS */
};

struct plan {
	const struct ir_func *func;
	struct plan_step *items;
	size_t n, cap;
	const struct ir_dim *arena_bytes;
};

/* The first step of a kind; NULL: none. */
const struct plan_step *plan_find(const struct plan *p, enum plan_step_kind kind);
/* As text, for people: one line for each step, offsets and sizes as formulas. */
void plan_print(const struct plan *p, const struct ir_module *planned, struct buf *out);

#endif
