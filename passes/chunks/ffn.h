/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feed-forward blocks of a module: linears of one input, elementwise ops on
 * what they give, a linear back, and perhaps the sum with a residual. Nothing
 * between is read elsewhere, so the hidden columns may be computed in any parts.
 *
 *   y = [x +] down(act(up(n)))     y = [x +] down(act(gate(n)) * up(n))
 */
#ifndef TFMC_PASSES_FOLDS_FFN_H
#define TFMC_PASSES_FOLDS_FFN_H

#include "passes/framework/pass_impl.h"

#define FFN_UPS_MAX 4
#define FFN_OPS_MAX 16

struct ffn {
	const struct ir_func *f;
	const struct ir_op *ups[FFN_UPS_MAX];
	size_t n_ups;
	const struct ir_op *ops[FFN_OPS_MAX]; /* elementwise, each behind those that it reads */
	size_t n_ops;
	const struct ir_op *down;
	const struct ir_op *end;  /* down, or the sum with the residual */
	struct ir_value n;        /* [..,D], input of the ups */
	struct ir_value residual; /* [..,D], or none */
	int64_t hidden;           /* F */
	bool ok;                  /* all its weights are read by blocks only, which are ok themselves */
};

struct ffn_list {
	struct ffn *items;
	size_t n, cap;
};

/*
 * All blocks of the module, in program order. Blocks that share weights with something else are not ok: their
 * weights would be stored twice, and entries of one model would compute differently; blocks inside of more
 * than `depth` repeats are not ok either. Remarks say why. False: no memory.
 */
bool ffn_find(struct pass_context *p, const struct ir_module *m, int depth, struct ffn_list *out);
/* The block that ends with op, or NULL. */
const struct ffn *ffn_of(const struct ffn_list *list, const struct ir_op *op);
/* The reference to a weight behind operand i, or NULL. */
const struct ir_op *ffn_weight_op(const struct ir_func *f, const struct ir_op *linear, size_t i);

#endif
