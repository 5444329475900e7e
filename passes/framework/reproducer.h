/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a reproducer: comments before the text of a module that hold the
 * pipeline and the options that change what it does, so that one file is
 * enough to run it again (`tfmc opt FILE`):
 *   ; reproducer 1
 *   ; passes canonicalize,group
 *   ; mcpu x86-64-v3
 *   ; disable-rule add_zero
 *   ; rule |rule mine : bits {        (each line of a file of rules)
 *   ; tile |tiles 1                   (each line of a file of tiles)
 */
#ifndef TFMC_PASSES_FRAMEWORK_REPRODUCER_H
#define TFMC_PASSES_FRAMEWORK_REPRODUCER_H

#include "passes/framework/pass.h"

struct reproducer {
	const char *passes;               /* "" for none */
	const char *mcpu;                 /* NULL: not given */
	const char *const *disable_rules; /* [n_disable_rules] */
	size_t n_disable_rules;
	const char *rules; /* text of rules; NULL: none */
	size_t rules_len;
	const char *tiles; /* text of a file of tiles; NULL: none */
	size_t tiles_len;
};

/* The options of `o` that change results, and the pipeline. */
void reproducer_print(struct buf *out, const struct pipeline *p, const struct pass_options *o);
/*
 * Reads the head of a text; allocates in `a`. False when the text does not begin with one, which is no
 * mistake. A line of the head that is not known is a PIPELINE diagnostic and gives TFMC_INVALID in *status.
 */
bool reproducer_read(struct arena *a, struct diag_context *cx, const char *text, size_t len,
                     struct reproducer *out, enum tfmc_status *status);

#endif
