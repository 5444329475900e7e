/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which norms fold-affine may fold: found function by function, then refused
 * until the weights of those that remain do not grow by more than is allowed.
 */
#ifndef TFMC_PASSES_FOLDS_FOLD_AFFINE_H
#define TFMC_PASSES_FOLDS_FOLD_AFFINE_H

#include "passes/weights/module_uses.h"

#define AFFINE_LINEARS_MAX 32

struct affine_site {
	const struct ir_func *f;
	const struct ir_op *norm;
	const struct ir_weight *gamma, *beta; /* NULL: none */
	const struct ir_op *linears[AFFINE_LINEARS_MAX];
	size_t n_linears;
	bool refused;
	int64_t number; /* of the application: one for all norms with these weights */
};

struct affine_sites {
	struct module_uses *uses; /* marks: the site of a norm or linear */
	struct affine_site **items;
	size_t n, cap;
};

/* growth: bytes that one norm may add. NULL when memory ran out. */
struct affine_sites *affine_sites_collect(struct pass_context *p, const struct ir_module *m, int64_t growth);
/* Every use of w is one of a folded linear, and all of them fold the same. */
bool affine_folds_all(const struct affine_sites *s, const struct ir_weight *w);

/*
 * What folding passes do with their rewrite: rebuilds the module and counts `constants` and `bytes`, what
 * became of the weights. TFMC_INTERNAL when a weight could not be formed.
 */
TFMC_MUST_USE enum tfmc_status fold_rebuild(struct pass_context *p, const struct ir_module *in,
                                            struct ir_module *out, const struct rewrite *rewrite);

#endif
