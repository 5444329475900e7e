/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test-case reduction (delta debugging, Zeller and Hildebrandt 2002): makes a module smaller while a predicate
 * holds, for example while a pass fails on it. Removes functions, results, parameters, iterations and ops, and
 * lowers bounds.
 */
#ifndef TFMC_PASSES_PIPELINE_REDUCE_H
#define TFMC_PASSES_PIPELINE_REDUCE_H

#include "ir/core/module.h"

enum reduce_kind {
	REDUCE_FUNC,    /* remove function `func` */
	REDUCE_RESULT,  /* remove result `at` of the function */
	REDUCE_EARLIER, /* replace result `at` by operand `choice` of the op that defines it */
	REDUCE_COUNT,   /* run the repeat op number `at` once */
	REDUCE_OPEN,    /* inline the body of a repeat that runs once */
	REDUCE_OPERAND, /* replace the result of op number `at` by its operand `choice` of the same type */
	REDUCE_INPUT,   /* replace the results of op number `at` by parameters */
	REDUCE_ONES,    /* replace the results of op number `at` by ones */
	REDUCE_PARAM,   /* remove parameter `at`, which has no reader */
	REDUCE_STATE,   /* remove state `at`, which no function uses */
	REDUCE_BOUND,   /* set the upper bound of dim symbol `at` to `choice` */
};

/* One edit. Ops are numbered in the order of the text, outer before inner. */
struct reduce_edit {
	enum reduce_kind kind;
	size_t func, at;
	int64_t choice;
};

/*
 * Returns the module after the edit, without dead ops; the caller destroys it. NULL, without diagnostic, if the
 * edit is not possible or the result does not verify.
 */
struct ir_module *reduce_apply(const struct ir_module *in, const struct reduce_edit *edit);

/* The predicate: true if the module is still of interest. */
typedef bool reduce_keep(void *user, const struct ir_module *m);

struct reduce_report {
	size_t tried, kept;
};

/*
 * Tries all edits, those that remove most first, until none is accepted. keep(in) must be true. Deterministic.
 * *out: the reduced module, which the caller destroys. TFMC_NO_MEMORY is the only failure.
 */
TFMC_MUST_USE enum tfmc_status module_reduce(const struct ir_module *in, reduce_keep *keep, void *user,
                                             struct ir_module **out, struct reduce_report *report);

#endif
