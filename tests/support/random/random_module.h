/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the random generator: what programs (random_ir.c) and modules for one
 * op (random_op.c) share.
 */
#ifndef TFMC_TESTS_SUPPORT_RANDOM_RANDOM_MODULE_H
#define TFMC_TESTS_SUPPORT_RANDOM_RANDOM_MODULE_H

#include "tests/support/random/random_recipe.h"

#define POOL_MAX 256

struct entry {
	struct ir_value value;
	const struct ir_type *type;
	int growth; /* about how many times larger than an input */
	int uses;
};

struct program {
	struct gen g;
	struct entry pool[POOL_MAX]; /* values visible here */
	size_t n, n_weights;
	struct ir_value index; /* inside a repeat: its index */
	int64_t count;         /* and how often it runs */
};

/* An empty module with symbols and the function "f" begun. */
bool random_begin(struct gen *g, struct diag_context *cx, uint64_t seed,
                  const struct random_options *options);
struct ir_value random_param(struct gen *g, const struct ir_type *type, struct recipe_range range);
/* Ends the function; the module, or NULL after a diagnostic. */
struct ir_module *random_end(struct gen *g, const struct ir_value *values, size_t n);
/* A weight with different numbers in [-1, 1]; `type` has constant dims. */
const struct ir_weight *random_weight(struct gen *g, const char *name, const struct ir_type *type);

#endif
