/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the kernel interpreter: frames, race detection, and the arithmetic of lanes.
 */
#ifndef TFMC_TESTS_KB_INTERP_INTERP_INTERNAL_H
#define TFMC_TESTS_KB_INTERP_INTERP_INTERNAL_H

#include "backends/kb/kernel_ir.h"
#include "tests/kb_interp/interp.h"

struct kb_work;

/* A call of a function, or a work-item of a launch. */
struct kb_frame {
	struct kb_interp *in;
	const struct kb_func *f;
	struct arena arena;
	union kb_cell **values; /* by value id: its lanes */
	union kb_cell **vars;
	size_t *jump; /* by instruction: targets of control flow (resolve_jumps); NULL: kb_frame_enter computes it */
	struct kb_range *locals;
	size_t n_locals;
	const union kb_cell *args;
	size_t n_args;
	union kb_cell *result;
	size_t pc;
	int depth;            /* of nested calls */
	struct kb_work *work; /* the state of the launch; NULL: a call */
	bool is_waiting;      /* stopped at a barrier */
};

/* Sets in->error unless it is set. Returns false. */
bool kb_frame_fail(struct kb_frame *fr, const char *what);
/* Allocates values and variables. The caller destroys fr->arena, also after failure. */
bool kb_frame_enter(struct kb_frame *fr);
/* Runs from fr->pc to the end of the function, or in a launch to the next barrier. False after an error. */
bool kb_frame_run(struct kb_frame *fr);
/* True if the memory may be accessed; otherwise fails. In a launch: also checks for races. */
bool kb_frame_allowed(struct kb_frame *fr, const void *p, size_t bytes, bool write);
/* AMX (tile.c). */
typedef bool kb_frame_op(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out);
kb_frame_op kb_frame_tile_config, kb_frame_tile_zero, kb_frame_tile_memory, kb_frame_tile_dot,
        kb_frame_tile_release;
/* Resets the results and finds the function. NULL with in->error if there is none. */
const struct kb_func *kb_interp_begin(struct kb_interp *in, const char *name);

/* Shadow memory: the last accesses of a byte. Work-items are numbered from 1, phases (between barriers) over all
 * groups. */
struct kb_shadow {
	uint32_t writer, writer_phase;
	uint32_t reader, reader_phase; /* the last reader */
	bool several_items,
	        several_groups; /* readers: several work-items in reader_phase; several groups ever */
};

/* Memory with a shadow: shared arrays, and ranges that a launch may write. */
struct kb_watched {
	struct kb_range range;
	struct kb_shadow *bytes; /* [range.bytes] */
	size_t pc;               /* shared arrays: the instruction that defines it */
	bool is_shared;
};

/* The state of a launch: the work-item that is running. */
struct kb_work {
	int64_t group, n_groups, item, n_items;
	uint32_t phase;
	struct kb_watched *memory;
	size_t n_memory;
};

struct kb_watched *kb_work_find(struct kb_work *w, const char *p, size_t bytes);
/* Updates the shadow. Fails on a race, or a read of uninitialized shared memory. */
bool kb_work_touch(struct kb_frame *fr, struct kb_watched *m, const char *p, size_t bytes, bool write);
/* Address of the shared array that the instruction at fr->pc defines. */
bool kb_work_shared(struct kb_frame *fr, union kb_cell *out);

/* v as a value of type s: integers wrap, floats are rounded. */
union kb_cell kb_cell_int(enum kb_scalar s, int64_t v);
union kb_cell kb_cell_float(enum kb_scalar s, double v);
union kb_cell kb_cell_bin(enum kb_bin op, enum kb_scalar s, union kb_cell a, union kb_cell b);
union kb_cell kb_cell_un(enum kb_un op, enum kb_scalar s, union kb_cell a);
bool kb_cell_cmp(enum kb_cmp op, enum kb_scalar s, union kb_cell a, union kb_cell b);
union kb_cell kb_cell_cvt(enum kb_scalar from, enum kb_scalar to, union kb_cell a);
union kb_cell kb_cell_read(enum kb_scalar s, const void *p);
/* n of them, one behind the other. */
void kb_cells_read(enum kb_scalar s, const void *p, int n, union kb_cell *out);
/* One lane of a dot product; a and b: 32 bits of packed elements. */
union kb_cell kb_cell_dot(enum kb_dot dot, union kb_cell sum, union kb_cell a, union kb_cell b);
/* fma(a, b, c) with denormal operands and results flushed to zero. */
float kb_cell_flushing_fma(float a, float b, float c);
/* bf16 `at` (0 or 1) of a packed lane. */
float kb_cell_bf16_of(union kb_cell word, int at);
void kb_cell_write(enum kb_scalar s, union kb_cell v, void *p);

/* A KB_LANES operation and the lanes of its operands, of type `from`. */
struct kb_lanes {
	const struct kb_inst *inst;
	struct kb_type from;
	const union kb_cell *x[3];
	unsigned char raw[8 * KB_LANES_MAX]; /* BITCAST: the operand as it lies in memory */
};
void kb_lanes_compute(struct kb_lanes *l, union kb_cell *out);

#endif
