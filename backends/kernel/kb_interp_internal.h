/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel interpreter's frame, and the lane arithmetic its main loop uses.
 */
#ifndef TFMC_BACKENDS_KERNEL_KB_INTERP_INTERNAL_H
#define TFMC_BACKENDS_KERNEL_KB_INTERP_INTERNAL_H

#include "backends/kernel/kb_internal.h"
#include "backends/kernel/kb_interp.h"

struct kb_frame {
	struct kb_interp *in;
	const struct kb_func *f;
	struct arena arena;
	union kb_cell **values; /* by value id: its lanes */
	union kb_cell **vars;
	size_t *jump; /* by instruction: where LOOP, FOREVER, BREAK_IF, IF, ELSE and ends go */
	struct kb_range *locals;
	size_t n_locals;
	const union kb_cell *args;
	size_t n_args;
	union kb_cell *result;
	size_t pc;
	int depth; /* of calls */
};

/* A value of the type as it is kept: ints wrapped, floats rounded. */
union kb_cell kb_cell_int(enum kb_scalar s, int64_t v);
union kb_cell kb_cell_float(enum kb_scalar s, double v);
union kb_cell kb_cell_bin(enum kb_bin op, enum kb_scalar s, union kb_cell a, union kb_cell b);
union kb_cell kb_cell_un(enum kb_un op, enum kb_scalar s, union kb_cell a);
bool kb_cell_cmp(enum kb_cmp op, enum kb_scalar s, union kb_cell a, union kb_cell b);
union kb_cell kb_cell_cvt(enum kb_scalar from, enum kb_scalar to, union kb_cell a);
union kb_cell kb_cell_read(enum kb_scalar s, const void *p);
void kb_cell_write(enum kb_scalar s, union kb_cell v, void *p);

#endif
