/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuse-softmax and fuse-attention share: reading softmax(mask(softcap(x
 * scale + bias))) backward from the softmax, through values with one use.
 */
#ifndef TFMC_PASSES_GRAPH_SCORES_H
#define TFMC_PASSES_GRAPH_SCORES_H

#include "passes/framework/rebuild.h"

struct scores {
	struct ir_value x, bias, len, past; /* bias, len, past may be none */
	double scale, softcap;              /* softcap 0: none */
	int mask;                           /* MASK_* */
	int64_t window;                     /* 0: none */
	size_t n_peeled;                    /* ops between x and the softmax */
	const char *blocked; /* why an op was not passed; NULL when x is the end of the chain */
};

/* op: softmax or masked_softmax. Takes an added bias only when asked to. */
void scores_read(const struct rebuild *r, const struct ir_op *op, bool with_bias, struct scores *out);
/* The same from the operand of a softmax on, with a bias. */
void scores_read_from(const struct rebuild *r, struct ir_value x, struct scores *out);

#endif
