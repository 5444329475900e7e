/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which axes of operands and result of an op are one, read from its row of ops.def:
 *
 *   x[*,K] w[N,K] b[N] -> [*,N]
 *
 * A letter stands for one axis, * and & for any number of them; the same name is the same axis, of one size.
 * Operands that the row leaves out are not spoken of. Marks of the result: `D!` each element depends on the whole
 * axis, `S@` on its position, `?` the axis is none of an operand. An axis without a mark is computed element by
 * element: those of the result from the same ones of each operand that has the axis. Views, reductions, concat and
 * pad have axes by their attributes; reshape and all ops without operands have none.
 */
#ifndef TFMC_IR_CORE_AXES_H
#define TFMC_IR_CORE_AXES_H

#include "ir/core/module.h"

#define IR_AXES_OPERANDS_MAX 16
#define IR_AXIS_NAMES        (26 + 2 * IR_RANK_MAX)
#define IR_AXIS_NEW          (-1) /* `?` */

struct ir_axis_list {
	char name[IR_RANK_MAX], mark[IR_RANK_MAX]; /* in order; mark 0: none */
	int n;
	int run; /* of an operand, which has one at most: 0: *, 1: &, -1: every name is one axis */
};

struct ir_axes {
	struct ir_axis_list in[IR_AXES_OPERANDS_MAX], out;
	size_t n_in;
	int run[2]; /* how many axes * and & are */
};

/*
 * The axes of an op with such operands (NULL: absent), whose ranks fit; transposed operands as they are stored. False: none
 * are known, or the rank of the operand *misfit is another one (SIZE_MAX: none are known).
 */
bool ir_axes(enum ir_opcode code, const void *attrs, const struct ir_type *const *operands, size_t n,
             struct ir_axes *out, size_t *misfit);
/* Rank of the list, and the number of its axis `axis`, below IR_AXIS_NAMES; or IR_AXIS_NEW. */
int ir_axes_rank(const struct ir_axes *a, const struct ir_axis_list *list);
int ir_axis_name(const struct ir_axes *a, const struct ir_axis_list *list, int axis);

enum ir_axis_kind { IR_AXIS_MIXED, IR_AXIS_ROWS, IR_AXIS_WILDCARD, IR_AXIS_POSITION };
/*
 * How rows along axis `axis` > 0 of op's first result follow from rows of its operands, with axis 0 the same one in
 * all of them. from[i]: the axis of operand i that has the rows, 0: it is read whole. MIXED: they need other rows,
 * or none are known. RUN: the axis is one of a run, the op is the same without it. POSITION: what is computed depends on
 * where the row stands, too.
 */
enum ir_axis_kind ir_axis_dependence(const struct ir_func *f, const struct ir_op *op, int axis, int *from);

#endif
