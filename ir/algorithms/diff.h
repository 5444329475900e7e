/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Differences of two texts, line by line, in the unified form of diff -u.
 */
#ifndef TFMC_IR_ALGORITHMS_DIFF_H
#define TFMC_IR_ALGORITHMS_DIFF_H

#include "ir/support/buf.h"
#include "ir/support/compiler.h"

/* A text and the name that its header line gets. Lines end in '\n' or at the end of the text. */
struct diff_text {
	const char *name, *text;
	size_t len;
};

/*
 * Appends `--- name`, `+++ name` and one hunk for each group of changes with three lines around it; nothing
 * when the texts are equal. A hunk's header ends in the last line before it that begins in column one. The
 * fewest possible lines are shown as changed (E. Myers, "An O(ND) Difference Algorithm and Its Variations",
 * 1986). False when memory ran out.
 */
TFMC_MUST_USE bool diff_unified(struct buf *out, const struct diff_text *before,
                                const struct diff_text *after);

#endif
