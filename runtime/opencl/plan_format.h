/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serialized launch plans: what a call launches, for a host that knows nothing of models. Enumerators are
 * stored in files and never change their meaning; PLAN_VERSION counts changes of the layout.
 *
 * All numbers are i64, little-endian:
 *
 *   header    [PLAN_HEADER]
 *   sections  in the order of plan_section, rows x columns
 *   names     zero-terminated strings; a column `name` is an offset here
 *
 * Rows that a row refers to by FIRST and N directly follow those of the row before it, and kernels are in the
 * order of their commands, so a file is checked in linear time.
 */
#ifndef TFMC_RUNTIME_OPENCL_PLAN_FORMAT_H
#define TFMC_RUNTIME_OPENCL_PLAN_FORMAT_H

#define PLAN_MAGIC   0x6e616c70636d6674 /* "tfmcplan" */
#define PLAN_VERSION 7

#define PLAN_REPEATS 4  /* nested repeats */
#define PLAN_DEPTH   8  /* nested repeats and conditions */
#define PLAN_STACK   32 /* values on the stack of a formula */

/* ---- kinds ---- */

enum plan_command_kind {
	PLAN_DISPATCH = 0,
	PLAN_REPEAT = 1,       /* runs the commands up to its END `count` times */
	PLAN_IF_REQUESTED = 2, /* runs them if the caller wants one of `outputs` */
	/* Only in objects, never in a file: runs the commands up to its END if n workers split the KV
	 * blocks of attention: heads < 2n and heads % n != 0. */
	PLAN_IF_SPLIT = 3,
	PLAN_END = 4,     /* ends the innermost REPEAT, IF_REQUESTED or IF_SPLIT */
	PLAN_BARRIER = 5, /* later kernels depend on kernels since the last barrier */
	PLAN_LENGTHS = 6  /* last: the new lengths of the sequences, i32 [B], are in area `lengths` */
};

enum plan_arg_kind {
	PLAN_BUFFER = 0, /* object: the address of area `number`; OpenCL: the buffer that it is in */
	PLAN_OFFSET = 1, /* OpenCL: byte offset of area `number` in its buffer */
	PLAN_DIM = 2,    /* value of the module's dim symbol `number` */
	PLAN_INDEX = 3,  /* index of the open repeat `number`, outermost first */
	/* Only in objects, never in a file: OpenCL kernels derive them from their work-group. */
	PLAN_WORKER = 4,
	PLAN_WORKERS = 5,
	/* Sequences between the encoder outputs that consecutive rows read: 1, or 0 if all rows share one. */
	PLAN_SOURCE_STEP = 6,
	PLAN_RANKS = 7 /* struct tfmc_ranks; of objects alone, never serialized */
};

enum area_memory {
	AREA_WEIGHTS = 0, /* the packed weights, as a weights file has them after its header */
	AREA_ARENA = 1,   /* the function's planned buffers, then spare buffers */
	AREA_STATE = 2,   /* fixed part, then one block per sequence (backends/object/README.md) */
	AREA_INPUT = 3,   /* the caller's tensor: parameter `number` */
	AREA_OUTPUT = 4,  /* the caller's tensor: result `number` */
	AREA_SCRATCH = 5  /* scratch of all workers, uninitialized */
};

/* A formula is stack code (reverse Polish) that leaves one value. */
enum plan_op {
	PLAN_CONST = 0,  /* pushes `value` */
	PLAN_SYMBOL = 1, /* pushes dim `value` */
	PLAN_ADD = 2,    /* replaces the two topmost values, as MULTIPLY and MAX do */
	PLAN_MULTIPLY = 3,
	PLAN_MAX = 4,
	PLAN_FLOOR_DIV = 5 /* floor(top / `value`), `value` >= 1 */
};

/* The part of the state that an area is in. */
enum plan_state {
	PLAN_STATE_NONE = 0,  /* not in the state, or the lengths */
	PLAN_STATE_OWN = 1,   /* in the blocks of the call's sequences */
	PLAN_STATE_SOURCE = 2 /* encoder output, in the blocks of the sources */
};

/* ---- layout ---- */

enum plan_section {
	PLAN_DIMS,
	PLAN_CODE,
	PLAN_FORMULAS,
	PLAN_AREAS,
	PLAN_ARGS,
	PLAN_KERNELS,
	PLAN_OUTPUTS,
	PLAN_COMMANDS,
	PLAN_FUNCTIONS,
	PLAN_SECTIONS
};

enum plan_header {
	PLAN_H_MAGIC,
	PLAN_H_VERSION,
	PLAN_H_BYTES,      /* of the file */
	PLAN_H_CHECKSUM,   /* 64-bit FNV-1a of all bytes after this field */
	PLAN_H_INDEX_BITS, /* width of number arguments: 32 or 64 */
	PLAN_H_WEIGHTS,    /* bytes */
	PLAN_H_STATE_FIXED,
	PLAN_H_STATE_BATCH, /* bytes per sequence */
	PLAN_H_NAMES,       /* bytes */
	PLAN_H_ROWS,        /* rows of each section */
	PLAN_HEADER = PLAN_H_ROWS + PLAN_SECTIONS
};

/* Columns. A formula is referred to by its row; optional ones by 1 + row, 0: none. */
enum { DIM_NAME, DIM_LO, DIM_HI, DIM_COLUMNS };
enum { CODE_OP, CODE_VALUE, CODE_COLUMNS };
enum { FORMULA_FIRST, FORMULA_N, FORMULA_COLUMNS }; /* of CODE */
enum {
	AREA_C_NAME,
	AREA_C_MEMORY,
	AREA_C_NUMBER, /* INPUT, OUTPUT */
	AREA_C_STATE,  /* plan_state; AREA_STATE with NONE: the lengths */
	AREA_C_OFFSET,
	AREA_C_BYTES,
	AREA_C_SPARE,  /* optional: offset in the arena that is used if the caller passes no output */
	AREA_C_STRIDE, /* bytes per iteration of each repeat */
	AREA_C_COLUMNS = AREA_C_STRIDE + PLAN_REPEATS
};
enum { ARG_KIND, ARG_NUMBER, ARG_COLUMNS }; /* BUFFER, OFFSET: relative to the kernel's first area */
enum {
	KERNEL_NAME,
	KERNEL_AREAS_FIRST,
	KERNEL_AREAS_N,
	KERNEL_ARGS_FIRST,
	KERNEL_ARGS_N,
	KERNEL_TASKS,
	KERNEL_WORK_ITEMS,
	KERNEL_WORKERS,
	KERNEL_SCRATCH,
	/* Optional: a formula. Calls launch the kernel if its value is in [KERNEL_ROWS_LO, KERNEL_ROWS_HI]. */
	KERNEL_ROWS,
	KERNEL_ROWS_LO,
	KERNEL_ROWS_HI,
	KERNEL_GROUP, /* number of its first group in the function */
	KERNEL_COLUMNS
};
enum { OUTPUT_NUMBER, OUTPUT_COLUMNS };
enum {
	COMMAND_KIND,
	COMMAND_A, /* DISPATCH: row of KERNELS. IF_REQUESTED: first row of OUTPUTS. LENGTHS: row of AREAS */
	COMMAND_B, /* REPEAT: count. IF_REQUESTED: number of outputs */
	COMMAND_COLUMNS
};
enum {
	FUNCTION_NAME,
	FUNCTION_COMMANDS_FIRST,
	FUNCTION_COMMANDS_N,
	FUNCTION_ARENA, /* formula: bytes */
	FUNCTION_PARAMS,
	FUNCTION_RESULTS,
	FUNCTION_COLUMNS
};

#endif
