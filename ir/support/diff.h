/* SPDX-License-Identifier: Apache-2.0 */
/* Line differences of two texts in unified format, as diff -u. */
#ifndef TFMC_IR_SUPPORT_DIFF_H
#define TFMC_IR_SUPPORT_DIFF_H

#include "ir/support/buf.h"
#include "ir/support/compiler.h"

/* A text and the name that its header line gets. Lines end in '\n' or at the end of the text. */
struct diff_text {
	const char *name, *text;
	size_t len;
};

/*
 * Appends `--- name`, `+++ name` and hunks with three lines of context; nothing if the texts are equal. The header of
 * a hunk ends in the last unindented line before it. The number of changed lines is minimal (E. Myers, "An O(ND)
 * Difference Algorithm and Its Variations", 1986). False without memory.
 */
TFMC_MUST_USE bool diff_unified(struct buf *out, const struct diff_text *before,
                                const struct diff_text *after);

#endif
