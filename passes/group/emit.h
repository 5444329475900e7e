/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a function at the stage groups: the walk (group.c) and the copies
 * that make buffers coincide where they must (copies.c).
 */
#ifndef TFMC_PASSES_GROUP_EMIT_H
#define TFMC_PASSES_GROUP_EMIT_H

#include "passes/group/form.h"

struct grouper {
	struct pass_context *p;
	const struct ir_module *in;
	struct ir_module *out;
	const struct ir_func *f;
	struct ir_builder *b;
	struct formed formed;
	struct ir_value *map;    /* [f->n_values] */
	struct ir_value *inside; /* [f->n_values] constants of the open group */
	size_t *stamp;           /* [f->n_values] group in which `inside` was set */
	size_t n_groups;
	int64_t copies, hoisted;
};

/* A group whose root copies v (a reshape to its own shape). */
struct ir_value group_copy(struct grouper *g, struct ir_value v, struct ir_loc loc);

/*
 * The first values of the carries of a repeat: each is the result of a group in the same region with no other
 * use, or a copy. out: [op->n_operands]
 */
void group_carry_inits(struct grouper *g, const struct ir_op *op, struct ir_value *out);
/* What the body yields: each may be written over the old carry, since nothing reads that one any more. */
void group_carry_yields(struct grouper *g, const struct ir_op *op, struct ir_value *out);
/* What the function returns: each is the result of a group that nothing else reads. */
void group_results(struct grouper *g, const struct ir_op *ret, struct ir_value *out);

#endif
