/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the random generator: for one op, which operand types and attributes
 * are legal. The module generators decide where the operands come from.
 */
#ifndef TFMC_TESTS_SUPPORT_RANDOM_RANDOM_RECIPE_H
#define TFMC_TESTS_SUPPORT_RANDOM_RANDOM_RECIPE_H

#include "ir/core/build.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/random/rng.h"

#define RECIPE_OPERANDS_MAX 9

struct gen {
	struct ir_module *m;
	struct diag_context *cx;
	struct ir_builder *b;
	struct rng rng;
	struct random_options opt;
	const struct ir_dim *symbols[3]; /* B, S, T; NULL without symbols */
};

/* Range of an operand's values, for operands that are counts or ids. */
struct recipe_range {
	int64_t below;
	const struct ir_dim *max;
};

struct recipe {
	size_t n;
	const struct ir_type *in[RECIPE_OPERANDS_MAX]; /* NULL: absent */
	struct recipe_range range[RECIPE_OPERANDS_MAX];
	void *attrs;
};

/*
 * Types and attributes for `code`; x is the wanted type of the first operand or
 * NULL. False when the op cannot take x, or has no tensor operands.
 */
bool recipe_make(struct gen *g, enum ir_opcode code, const struct ir_type *x, struct recipe *out);

/* The same for rope and expert_linear (random_recipe_rope.c). */
bool recipe_rope(struct gen *g, const struct ir_type *x, struct recipe *out);
bool recipe_expert_linear(struct gen *g, const struct ir_type *x, struct recipe *out);
/* Of keys or values: as the queries, or narrow beside f32. Drawn from a copy: other draws stay as they are.
 */
enum ir_dtype recipe_stored_type(const struct gen *g, enum ir_dtype queries, uint64_t salt);
/* Of keys or values x of i8, else NULL. */
const struct ir_type *recipe_scales(struct gen *g, const struct ir_type *x);
/* random_recipe_blocks.c */
bool recipe_quantize_rows(struct gen *g, const struct ir_type *x, struct recipe *out);
bool recipe_argmax(struct gen *g, const struct ir_type *x, struct recipe *out);
bool recipe_block_argmax(struct gen *g, const struct ir_type *x, struct recipe *out);
bool recipe_block_log_softmax(struct gen *g, const struct ir_type *x, struct recipe *out);
bool recipe_cumsum(struct gen *g, const struct ir_type *x, struct recipe *out);
bool recipe_topk(struct gen *g, const struct ir_type *x, struct recipe *out);
bool recipe_last_index(struct gen *g, const struct ir_type *x, struct recipe *out);

const struct ir_dim *gen_const(struct gen *g, int64_t v);
/* A size of 1 .. 17. */
const struct ir_dim *gen_small(struct gen *g);
/* A size, now and then a symbol. */
const struct ir_dim *gen_dim(struct gen *g);
/* NULL when the type would be too large. */
const struct ir_type *gen_type(struct gen *g, enum ir_dtype dtype, int rank,
                               const struct ir_dim *const *dims);
/* A random type of rank lo .. hi that fits. */
const struct ir_type *gen_shape(struct gen *g, enum ir_dtype dtype, int lo, int hi);
enum ir_dtype gen_float(struct gen *g);
enum ir_dtype gen_number(struct gen *g);
enum ir_dtype gen_any(struct gen *g);

#endif
