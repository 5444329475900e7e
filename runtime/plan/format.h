/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans in a file: what a call does, for a host that knows nothing of models. Numbers of enumerations are those of the
 * file and never change their meaning; PLAN_VERSION counts changes of the layout.
 *
 * All numbers are i64, least significant byte first:
 *
 *   header    [PLAN_HEADER]
 *   sections  one after the other in the order of plan_section, rows x columns
 *   names     bytes, each name ended by a zero byte; a column `name` is an offset here
 *
 * The rows that a row refers to by FIRST and N follow those of the row before it, and kernels are in the order of their
 * steps, so that checking takes time in proportion to the bytes.
 */
#ifndef TFMC_RUNTIME_PLAN_FORMAT_H
#define TFMC_RUNTIME_PLAN_FORMAT_H

#define PLAN_MAGIC   0x6e616c70636d6674 /* "tfmcplan" */
#define PLAN_VERSION 7

#define PLAN_REPEATS 4  /* repeats inside each other */
#define PLAN_DEPTH   8  /* repeats and conditions inside each other */
#define PLAN_STACK   32 /* of a formula */

/* ---- kinds ---- */

enum plan_command_kind {
	PLAN_DISPATCH = 0,
	PLAN_REPEAT = 1,    /* the steps up to its END run `count` times */
	PLAN_IF_WANTED = 2, /* those up to its END run when the caller wants one of `outputs` */
	/* Of an object alone, in no file: those up to its END run when the workers divide the blocks of `heads`
	 * heads: heads < 2n and heads % n != 0 for n workers. */
	PLAN_IF_SPLIT = 3,
	PLAN_END = 4,     /* of the innermost REPEAT, WANTED or SPLIT */
	PLAN_BARRIER = 5, /* what follows needs what kernels since the last one did */
	PLAN_LENGTHS = 6  /* last: the sequences' new lengths, i32 [B], are in `lengths` */
};

enum plan_arg_kind {
	PLAN_BUFFER = 0, /* of an object: the address of area `number`; OpenCL: the memory that it is in */
	PLAN_OFFSET = 1, /* OpenCL: byte offset of area `number` in its memory */
	PLAN_DIM = 2,    /* value of the module's dim symbol `number` */
	PLAN_INDEX = 3,  /* of the open repeat `number`, outermost first */
	/* Of an object alone, in no file; kernels of OpenCL ask their work-group. */
	PLAN_WORKER = 4,
	PLAN_WORKERS = 5,
	/* Sequences from what one row reads of encode to what the next one reads: 1, or 0 when all share one. */
	PLAN_SOURCE_STEP = 6
};

enum area_memory {
	AREA_WEIGHTS = 0, /* the packed weights, laid out as backend_pack writes them after their header */
	AREA_ARENA = 1,   /* the function's planned buffers and, after them, spare memory */
	AREA_STATE = 2,   /* fixed part, then one block for each sequence (backends/object/README.md) */
	AREA_INPUT = 3,   /* the caller's tensor: parameter `number` */
	AREA_OUTPUT = 4,  /* the caller's tensor: result `number` */
	AREA_SCRATCH = 5  /* of all workers, contents undefined */
};

/* A formula leaves one number on its stack. */
enum plan_op {
	PLAN_CONST = 0,  /* pushes `value` */
	PLAN_SYMBOL = 1, /* pushes dim `value` */
	PLAN_ADD = 2,    /* of the two on top, as MULTIPLY and MAX */
	PLAN_MULTIPLY = 3,
	PLAN_MAX = 4,
	PLAN_FLOOR_DIV = 5 /* floor(top / `value`), `value` >= 1 */
};

/* What of the state an area is. */
enum plan_state {
	PLAN_STATE_NONE = 0,
	PLAN_STATE_OWN = 1,
	PLAN_STATE_SOURCE = 2 /* read of what encode has filled */
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
	PLAN_H_BYTES,      /* of the whole file */
	PLAN_H_CHECKSUM,   /* FNV-1a, 64 bits, of all bytes after this number */
	PLAN_H_INDEX_BITS, /* of number arguments: 32 or 64 */
	PLAN_H_WEIGHTS,    /* bytes */
	PLAN_H_STATE_FIXED,
	PLAN_H_STATE_BATCH, /* bytes for each sequence */
	PLAN_H_NAMES,       /* bytes */
	PLAN_H_ROWS,        /* of each section */
	PLAN_HEADER = PLAN_H_ROWS + PLAN_SECTIONS
};

/* Columns. A formula is its row; of the optional ones 0 means none, else 1 + its row. */
enum { DIM_NAME, DIM_LO, DIM_HI, DIM_COLUMNS };
enum { CODE_OP, CODE_VALUE, CODE_COLUMNS };
enum { FORMULA_FIRST, FORMULA_N, FORMULA_COLUMNS }; /* of CODE */
enum {
	AREA_C_NAME,
	AREA_C_MEMORY,
	AREA_C_NUMBER, /* INPUT, OUTPUT */
	AREA_C_STATE,  /* plan_state; NONE of STATE: the lengths */
	AREA_C_OFFSET,
	AREA_C_BYTES,
	AREA_C_SPARE,  /* optional: offset in the arena when the caller gives no output */
	AREA_C_STRIDE, /* bytes for each turn of each repeat */
	AREA_C_COLUMNS = AREA_C_STRIDE + PLAN_REPEATS
};
enum { ARG_KIND, ARG_NUMBER, ARG_COLUMNS }; /* BUFFER, OFFSET: count from the kernel's first area */
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
	/* Optional: a formula. Calls launch the kernel when its value is within [KERNEL_ROWS_LO, KERNEL_ROWS_HI]. */
	KERNEL_ROWS,
	KERNEL_ROWS_LO,
	KERNEL_ROWS_HI,
	KERNEL_GROUP, /* number of the first group that it computes, among those of the function */
	KERNEL_COLUMNS
};
enum { OUTPUT_NUMBER, OUTPUT_COLUMNS };
enum {
	COMMAND_KIND,
	COMMAND_A, /* KERNEL: its row. WANTED: first row of OUTPUTS. LENGTHS: row of AREAS */
	COMMAND_B, /* REPEAT: count. WANTED: outputs */
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
