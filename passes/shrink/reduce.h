/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a module smaller while something stays true of it: fewer functions,
 * results, parameters, layers and ops, smaller bounds. For whoever has a module
 * on which a pass or a kernel fails and wants to see why.
 */
#ifndef TFMC_PASSES_SHRINK_REDUCE_H
#define TFMC_PASSES_SHRINK_REDUCE_H

#include "ir/core/module.h"

enum reduce_kind {
	REDUCE_FUNC,    /* function `func` is left out */
	REDUCE_RESULT,  /* result `at` of the function */
	REDUCE_EARLIER, /* result `at` becomes operand `choice` of the op that computes it */
	REDUCE_COUNT,   /* the repeat op number `at` runs once */
	REDUCE_OPEN,    /* the body of the repeat, which runs once, is in its place */
	REDUCE_OPERAND, /* operand `choice` of op number `at` instead of its result of the same type */
	REDUCE_INPUT,   /* parameters instead of the results of op number `at` */
	REDUCE_ONES,    /* ones instead of the results of op number `at` */
	REDUCE_PARAM,   /* parameter `at`, which nothing reads */
	REDUCE_STATE,   /* state `at`, which no function has */
	REDUCE_BOUND,   /* the upper bound of dim symbol `at` becomes `choice` */
};

/* One step to a smaller module. Ops are numbered in the order of the text, outer before inner. */
struct reduce_edit {
	enum reduce_kind kind;
	size_t func, at;
	int64_t choice;
};

/*
 * The module after the edit, without what nobody reads; NULL when it does not apply or does not verify (no
 * diagnostic). The caller destroys it.
 */
struct ir_module *reduce_apply(const struct ir_module *in, const struct reduce_edit *edit);

/* True when the module is still of interest. */
typedef bool reduce_keep(void *user, const struct ir_module *m);

struct reduce_report {
	size_t tried, kept;
};

/*
 * Tries every edit, the ones that remove most first, until none is kept any more. keep(in) must be true. The
 * same module and answers give the same result. TFMC_NO_MEMORY is the only failure; the caller destroys *out.
 */
TFMC_MUST_USE enum tfmc_status module_reduce(const struct ir_module *in, reduce_keep *keep, void *user,
                                             struct ir_module **out, struct reduce_report *report);

#endif
