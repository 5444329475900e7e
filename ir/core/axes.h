/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named axes of ops, as in einsum notation, from their rows of ops.def:
 *
 *   x[*,K] w[N,K] b[N] -> [*,N]
 *
 * A letter is one axis, the wildcards * and & are any number of axes; equal names are the same axis and have equal
 * sizes. Operands that the row leaves out have no named axes. Marks on axes of the result: `D!` each element depends
 * on the full axis, `S@` on the position along the axis, `?` an axis of no operand. Without a mark, position i of the
 * axis depends only on position i of the operands that have it. Views, reductions, concat and pad get their axes from
 * attributes; reshape and ops without operands have none. Type inference, row demand and module reduction use this.
 */
#ifndef TFMC_IR_CORE_AXES_H
#define TFMC_IR_CORE_AXES_H

#include "ir/core/module.h"

#define IR_AXES_OPERANDS_MAX 16
#define IR_AXIS_NAMES        (26 + 2 * IR_RANK_MAX)
#define IR_AXIS_NEW          (-1) /* `?` */

/* Axes of an operand or the result, entry by entry; a wildcard is one entry. */
struct ir_axis_list {
	char name[IR_RANK_MAX], mark[IR_RANK_MAX]; /* mark 0: none */
	int n;
	int wildcard; /* 0: *, 1: &, -1: none; operands have at most one */
};

struct ir_axes {
	struct ir_axis_list in[IR_AXES_OPERANDS_MAX], out;
	size_t n_in;
	int wildcard[2]; /* number of axes that * and & stand for */
};

/*
 * Named axes of an op with these operand types (NULL: absent); operands of matmul with ta or tb in their stored order.
 * False if the op has none (*misfit SIZE_MAX), or the rank of operand *misfit does not match.
 */
bool ir_axes(enum ir_opcode code, const void *attrs, const struct ir_type *const *operands, size_t n,
             struct ir_axes *out, size_t *misfit);
/* Number of axes of the list with wildcards expanded. */
int ir_axes_rank(const struct ir_axes *a, const struct ir_axis_list *list);
/* Name of axis `axis` of the list as a number below IR_AXIS_NAMES, equal for the same axis; or IR_AXIS_NEW. */
int ir_axis_name(const struct ir_axes *a, const struct ir_axis_list *list, int axis);
/* Mark of axis `axis` of the list: `!`, `@` or 0. */
char ir_axis_mark(const struct ir_axes *a, const struct ir_axis_list *list, int axis);

enum ir_axis_kind {
	IR_AXIS_MIXED,    /* a row depends on other rows, or it is not known */
	IR_AXIS_ROWS,     /* row i depends only on rows i of the operands */
	IR_AXIS_WILDCARD, /* the same, and the op is still valid without the axis */
	IR_AXIS_POSITION, /* as ROWS, but the computation also depends on i */
};
/*
 * How slices ("rows") of the first result of `op` along axis `axis` > 0 depend on slices of the operands; axis 0
 * (batch) must be axis 0 of all of them. from[i]: the axis of operand i that corresponds, 0: operand i is needed in
 * full.
 */
enum ir_axis_kind ir_axis_dependence(const struct ir_func *f, const struct ir_op *op, int axis, int *from);
/* The axis > 0 of the operand of a reshape that is axis `axis` of its result: the same size, and as many elements
 * before it; 0: none. */
int ir_reshape_axis(struct ir_dims *dims, const struct ir_func *f, const struct ir_op *op, int axis);

#endif
