/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Head of a reproducer: comments before IR text that record the pipeline and all options that change its result,
 * so that `tfmc opt FILE` runs it again from one file:
 *   ; reproducer 1
 *   ; passes canonicalize,group
 *   ; mcpu x86-64-v3
 *   ; disable-rule add_zero
 *   ; rule |rule mine : bits {        (each line of the file of --rules)
 */
#ifndef TFMC_PASSES_FRAMEWORK_REPRODUCER_H
#define TFMC_PASSES_FRAMEWORK_REPRODUCER_H

#include "passes/framework/pass.h"

struct reproducer {
	const char *passes;               /* "" for none */
	const char *mcpu;                 /* NULL: not given */
	const char *const *disable_rules; /* [n_disable_rules] */
	size_t n_disable_rules;
	const char *rules; /* contents of --rules; NULL: none */
	size_t rules_len;
};

/* Prints the pipeline and the options of `o` that change results. */
void reproducer_print(struct buf *out, const struct pipeline *p, const struct pass_options *o);
/*
 * Parses the head of a file; strings are allocated in `a`. Returns false if the text does not begin with a head
 * (not an error). An unknown line or version sets *status to TFMC_INVALID after a PIPELINE diagnostic.
 */
bool reproducer_read(struct arena *a, struct diag_context *cx, const char *text, size_t len,
                     struct reproducer *out, enum tfmc_status *status);

#endif
