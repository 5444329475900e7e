/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building what demand_find planned: each taken op once more, or only, with one
 * row where it has all rows.
 */
#ifndef TFMC_PASSES_DEMAND_BUILD_H
#define TFMC_PASSES_DEMAND_BUILD_H

#include "passes/demand/demand.h"
#include "passes/framework/rebuild.h"

struct demand_builder {
	struct rebuild *r;
	const struct demand_plan *plan; /* of the function that r reads */
	struct ir_value *rows;          /* [f->n_values] the new value with one row, of taken ops */
};

/* The row of old value v along `axis`: as v, with size 1 there. */
struct ir_value demand_row(struct demand_builder *d, struct ir_value v, int axis);
/* Builds a taken op. */
void demand_build(struct demand_builder *d, const struct ir_op *op);

#endif
