/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Analysis of attention scores for fuse-softmax and fuse-attention: reads softmax(mask(softcap(x scale + bias)))
 * backward from the softmax, through values with one use.
 */
#ifndef TFMC_PASSES_GRAPH_SCORES_H
#define TFMC_PASSES_GRAPH_SCORES_H

#include "passes/framework/rebuild.h"

struct scores {
	struct ir_value x, bias, len, past; /* bias, len, past may be absent */
	double scale, softcap;              /* softcap 0: none */
	int mask;                           /* MASK_* */
	int64_t window;                     /* 0: none */
	size_t n_peeled;                    /* ops between x and the softmax */
	const char *blocked;                /* why peeling stopped at an op; NULL: x ends the chain */
};

/* Reads the scores of op, a softmax or masked_softmax; an added bias only with with_bias. */
void scores_read(const struct rebuild *r, const struct ir_op *op, bool with_bias, struct scores *out);
/* Reads the scores x, the operand of a softmax, with bias. */
void scores_read_from(const struct rebuild *r, struct ir_value x, struct scores *out);

#endif
