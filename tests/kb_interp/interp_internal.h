/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel interpreter's frame, and the lane arithmetic its main loop uses.
 */
#ifndef TFMC_TESTS_KB_INTERP_INTERP_INTERNAL_H
#define TFMC_TESTS_KB_INTERP_INTERP_INTERNAL_H

#include "backends/kb/kernel_ir.h"
#include "tests/kb_interp/interp.h"

struct kb_work;

struct kb_frame {
	struct kb_interp *in;
	const struct kb_func *f;
	struct arena arena;
	union kb_cell **values; /* by value id: its lanes */
	union kb_cell **vars;
	size_t *jump; /* by instruction: where LOOP, FOREVER, BREAK_IF, IF, ELSE and ends go; NULL: entering makes it */
	struct kb_range *locals;
	size_t n_locals;
	const union kb_cell *args;
	size_t n_args;
	union kb_cell *result;
	size_t pc;
	int depth;            /* of calls */
	struct kb_work *work; /* the work-group this is an item of, NULL outside launches */
	bool is_waiting;      /* stopped after a barrier */
};

bool kb_frame_fail(struct kb_frame *fr, const char *what); /* always false */
/* Makes the frame's values; its arena is the caller's to destroy, even after failure. */
bool kb_frame_enter(struct kb_frame *fr);
/* Runs from fr->pc to the end of the function, or in a launch to the next barrier. */
bool kb_frame_run(struct kb_frame *fr);
/* Whether memory may be touched; fails otherwise. */
bool kb_frame_allowed(struct kb_frame *fr, const void *p, size_t bytes, bool write);
/* The operations of tiles (tile.c). */
typedef bool kb_frame_op(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out);
kb_frame_op kb_frame_tile_config, kb_frame_tile_zero, kb_frame_tile_memory, kb_frame_tile_dot,
        kb_frame_tile_release;
/* Clears what the run before left; NULL with in->error when there is no such function. */
const struct kb_func *kb_interp_begin(struct kb_interp *in, const char *name);

/* Who touched a byte. Items are counted over all groups from 1, phases (between barriers) over all groups. */
struct kb_shadow {
	uint32_t writer, writer_phase;
	uint32_t reader, reader_phase;      /* the last */
	bool several_items, several_groups; /* that read: in reader_phase, and ever */
};

/* Memory that items of a launch may write: accesses are remembered. */
struct kb_watched {
	struct kb_range range;
	struct kb_shadow *bytes; /* [range.bytes] */
	size_t pc;               /* shared arrays: the instruction that defines it */
	bool is_shared;
};

/* The item of a launch that runs now. */
struct kb_work {
	int64_t group, n_groups, item, n_items;
	uint32_t phase;
	struct kb_watched *memory;
	size_t n_memory;
};

struct kb_watched *kb_work_find(struct kb_work *w, const char *p, size_t bytes);
/* Remembers the access; fails on a race, or a read of shared memory that nobody has written. */
bool kb_work_touch(struct kb_frame *fr, struct kb_watched *m, const char *p, size_t bytes, bool write);
/* The shared array that the instruction at fr->pc defines. */
bool kb_work_shared(struct kb_frame *fr, union kb_cell *out);

/* A value of the type as it is kept: ints wrapped, floats rounded. */
union kb_cell kb_cell_int(enum kb_scalar s, int64_t v);
union kb_cell kb_cell_float(enum kb_scalar s, double v);
union kb_cell kb_cell_bin(enum kb_bin op, enum kb_scalar s, union kb_cell a, union kb_cell b);
union kb_cell kb_cell_un(enum kb_un op, enum kb_scalar s, union kb_cell a);
bool kb_cell_cmp(enum kb_cmp op, enum kb_scalar s, union kb_cell a, union kb_cell b);
union kb_cell kb_cell_cvt(enum kb_scalar from, enum kb_scalar to, union kb_cell a);
union kb_cell kb_cell_read(enum kb_scalar s, const void *p);
/* One word of a dot product: a and b as i32. */
union kb_cell kb_cell_dot(enum kb_dot dot, union kb_cell sum, union kb_cell a, union kb_cell b);
/* a * b + c of bf16 and f32, where operands and results that are no normal numbers are zeros. */
float kb_cell_flushing_fma(float a, float b, float c);
/* Of the two bf16 in a word. */
float kb_cell_bf16_of(union kb_cell word, int at);
void kb_cell_write(enum kb_scalar s, union kb_cell v, void *p);

/* An operation on lanes, and those of its operands, of type `from`. */
struct kb_lanes {
	const struct kb_inst *inst;
	struct kb_type from;
	const union kb_cell *x[3];
};
void kb_lanes_compute(const struct kb_lanes *l, union kb_cell *out);

#endif
