/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which linears of a module merge-linear may join: same region, same input,
 * constant weights at the same indices, and no weight that anything else reads.
 * Either all whose results no elementwise op reads, or a pair whose results meet
 * in one (gate and up).
 */
#ifndef TFMC_PASSES_WEIGHTS_MERGE_SETS_H
#define TFMC_PASSES_WEIGHTS_MERGE_SETS_H

#include "passes/framework/pass_impl.h"

struct merge_set {
	const struct ir_func *f;
	const struct ir_op **items; /* linears in program order */
	size_t n, cap;
	bool refused;
	int64_t number; /* of the application */
	bool is_pair;
};
struct merge_sets {
	struct merge_set *items;
	size_t n, cap;
	size_t *of_value; /* of the function in `f`: set + 1 by the linear's result, 0: none */
	const struct ir_func *f;
	struct arena *arena;
};

/* NULL when memory ran out. */
struct merge_sets *merge_sets_collect(struct pass_context *p, const struct ir_module *m);
/* The set that op is in, unless it was refused. */
const struct merge_set *merge_sets_find(struct merge_sets *s, const struct ir_func *f, const struct ir_op *op,
                                        size_t *index);
/*
 * Shortens *head and *tail to the lengths of the parts before and after the middle in which a and b differ,
 * cut at dots: "a.q.w" and "a.k.w" give 2 and 2.
 */
void merge_name_parts(const char *a, const char *b, size_t *head, size_t *tail);

#endif
