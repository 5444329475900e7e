/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real rows of a padded batch: which rows of a value anything reads, given the lengths of its sequences. A backward
 * analysis of uses: mask_rows and the keys and values of an attention read row s of sequence b only where
 * s < lengths[b]; ops that compute each row from the same row of their operands hand that down; a reader of other rows
 * needs all of them. Rows that a call appends to a state are real ones where the lengths are what the call adds to the
 * past of each sequence: later ones belong to no sequence. A kernel whose result is read at real rows only need not
 * compute the others (padding), and leaves them undefined.
 */
#ifndef TFMC_IR_CORE_REAL_ROWS_H
#define TFMC_IR_CORE_REAL_ROWS_H

#include "ir/core/module.h"

/*
 * Of a value [B, ..], row s of sequence b along `axis` is read at most where s < max(lengths[b], 1): row 0 counts as
 * real, since what stands for a sequence (its first row, the row at lengths[b] - 1) is read of an empty one, too.
 */
struct ir_real_rows {
	int axis;                /* 0: all rows may be read */
	struct ir_value lengths; /* a parameter i32[B] */
};

/* [f->n_values], of tensors, in any stage; the array is in `a`. NULL without memory. */
const struct ir_real_rows *ir_real_rows(struct arena *a, const struct ir_module *m, const struct ir_func *f);

#endif
