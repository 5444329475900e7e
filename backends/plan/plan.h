/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch plan of a function: the kernels that a call runs, in order, as a list of commands (the command
 * buffer of GPU interfaces). It names the memory that each kernel reads and writes, its arguments, and the
 * barriers.
 * The functions of an object are emitted from it (backends/plan); an OpenCL host interprets it
 * (runtime/opencl/plan_format.h).
 */
#ifndef TFMC_BACKENDS_PLAN_PLAN_H
#define TFMC_BACKENDS_PLAN_PLAN_H

#include "ir/core/module.h"
#include "ir/support/buf.h"
#include "runtime/opencl/plan_format.h"

#define OBJECT_REPEAT_MAX PLAN_REPEATS

/* ---- memory ---- */

/* A byte range of one memory: `bytes` bytes at `offset` + the sum over the open repeats of index x stride. */
struct area {
	const char *name; /* an identifier, unique among the areas of a kernel */
	enum area_memory memory;
	size_t number;                     /* INPUT, OUTPUT: index into the function's params or results */
	const struct ir_dim *offset;       /* bytes */
	int64_t stride[OBJECT_REPEAT_MAX]; /* bytes per iteration, outermost repeat first */
	const struct ir_dim *bytes;        /* SCRATCH: of one worker */
	/* STATE: the state that it is a slice of; NULL: the lengths of the sequences */
	const struct state_layout *state;
	bool is_source; /* STATE: written by encode, read through the source sequence of a row */
	/* OUTPUT: offset in the arena that replaces the caller's buffer when that is null; NULL: none is needed. */
	const struct ir_dim *spare;
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
	const char *name; /* equal kernels share one name */
	/* OP_groups of the planned module, consecutive in their function, the first of them number
	 * `number`. Only device kernels have several. */
	const struct ir_op *const *groups;
	size_t n_groups, number;
	unsigned reversed; /* bit i: group i numbers its workers from the last one down */
	/* Selects the calls that launch it: those whose `rows` (M of a linear) are at most KERNEL_FEW_ROWS_MAX when
	 * is_skinny, or more than that otherwise; NULL: all. */
	const struct ir_dim *rows;
	bool is_skinny;
	bool is_combine; /* the kernel that combines the partial results of a split attention (split-KV) */
	/* counts of the enclosing repeats, outermost first, then 0 */
	int64_t repeat_counts[OBJECT_REPEAT_MAX];
	struct area_list areas;      /* areas that the kernel accesses, results last, then scratch */
	const struct plan_arg *args; /* in the order of the kernel's parameters */
	size_t n_args;
	int64_t scratch; /* scratch bytes per worker; 0: it has no scratch area */
	/* OpenCL: number of work-groups that get a task. Any launch of 1 or more groups gives the same
	 * bits, so a host may cap it; 0: launch one. Many more than this may overflow 32-bit indices. NULL:
	 * the kernel of an object. */
	const struct ir_dim *tasks;
	int64_t items;   /* work-items of a work-group: the local size that the kernel requires */
	int64_t workers; /* workers of a work-group: 1 when its work-items share tasks, else `items` */
};

/* ---- commands ---- */

struct plan_command {
	enum plan_command_kind kind;
	const struct plan_kernel *kernel; /* DISPATCH */
	int64_t count;                    /* REPEAT */
	const size_t *outputs;            /* IF_REQUESTED: results of the function */
	size_t n_outputs;
	const struct ir_dim *heads; /* IF_SPLIT */
};

struct plan {
	const struct ir_func *func;
	struct plan_command *items;
	size_t n, cap;
	const struct ir_dim *arena_bytes;
	/* the sequences' new lengths (command LENGTHS); NULL: the function has none */
	const struct area *lengths;
};

/* Prints one line per command, repeats indented, offsets and sizes as formulas. */
void plan_print(const struct plan *p, const struct ir_module *planned, struct buf *out);

#endif
