/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named axes, see axes.h, parsed from the axes column of ops.def: "x[*,K] w[N,K] b[N] -> [*,N!]". An entry of a list
 * is a letter (one axis) or a wildcard * or & (any number of axes); marks of the result: `!` depends on the full
 * axis, `@` on the position, and `?` in place of a letter is an axis of no operand. A row without an arrow is EACH:
 * all operands have the same axes. Axis names are numbers: 0 .. 25 letters, then IR_RANK_MAX axes of * and
 * IR_RANK_MAX of &.
 */
#include "ir/core/axes.h"

#include <string.h>

/* Parses a list from its `[` on; returns the text after its `]`. A mark belongs to the entry before it. Rows are
 * ours: no errors. */
static const char *parse_list(const char *s, struct ir_axis_list *out)
{
	*out = (struct ir_axis_list){.wildcard = -1};
	for (s++; *s != ']'; s++) {
		if (*s == '!' || *s == '@') {
			out->mark[out->n - 1] = *s;
		} else if (*s != ',') {
			out->wildcard = *s == '*' ? 0 : *s == '&' ? 1 : out->wildcard;
			out->name[out->n++] = *s;
		}
	}
	return s + 1;
}

/* Parses the axes column of a row for n operands; EACH gives every operand and the result [*]. Names of operands
 * before `[` are for readers; operands without a list are left out (n_in). */
static void parse_row(const char *row, size_t n, struct ir_axes *out)
{
	const char *arrow = strstr(row, "->");
	*out = (struct ir_axes){.n_in = n, .wildcard = {-1, -1}};
	if (arrow == NULL) { /* EACH */
		for (size_t i = 0; i < n; i++)
			(void)parse_list("[*]", &out->in[i]);
		(void)parse_list("[*]", &out->out);
		return;
	}
	out->n_in = 0;
	for (const char *s = strchr(row, '['); s < arrow; s = strchr(s, '['))
		s = parse_list(s, &out->in[out->n_in++]);
	(void)parse_list(strchr(arrow, '['), &out->out);
}

/* Number of axes that an entry stands for. */
static int entry_size(const struct ir_axes *a, char name)
{
	return name == '*' ? a->wildcard[0] : name == '&' ? a->wildcard[1] : 1;
}

/* Wildcards count as many axes as the operands have for them. */
int ir_axes_rank(const struct ir_axes *a, const struct ir_axis_list *list)
{
	int rank = 0;
	for (int i = 0; i < list->n; i++)
		rank += entry_size(a, list->name[i]);
	return rank;
}

/* ---- axes that follow from attributes ---- */

/* Names the axes of the first operand A, B, ..; all operands and the result start with these names, which the
 * caller changes where the op does. */
static void name_all(const struct ir_type *const *operands, size_t n, struct ir_axes *out)
{
	*out = (struct ir_axes){.n_in = n, .wildcard = {-1, -1}};
	out->out.wildcard = -1;
	for (int i = 0; i < operands[0]->rank; i++)
		out->out.name[out->out.n++] = (char)('A' + i);
	for (size_t i = 0; i < n; i++)
		out->in[i] = out->out;
}

static void transpose_axes(const struct ir_int_list *perm, struct ir_axes *out)
{
	for (size_t i = 0; i < perm->n; i++)
		out->out.name[i] = out->in[0].name[perm->items[i]];
}

/* Axes of the result of a reduction: those not reduced keep their names; with `keep` a reduced one stays as a new
 * axis of size 1. `axes` ascend (infer_reduce). */
static void reduce_axes(const struct ir_int_list *axes, bool keep, struct ir_axes *out)
{
	size_t next = 0;
	out->out.n = 0;
	for (int i = 0; i < out->in[0].n; i++) {
		bool removed = next < axes->n && axes->items[next] == i;
		next += removed;
		if (!removed || keep)
			out->out.name[out->out.n++] = removed ? '?' : out->in[0].name[i];
	}
}

/* Axes of the result of a broadcast, aligned at the last one; added and repeated axes get names that no operand has,
 * since x is the same for all their indices. */
static void broadcast_axes(const struct ir_type *x, const struct ir_dim_list *to, struct ir_axes *out)
{
	int missing = (int)to->n - x->rank;
	out->out.n = (int)to->n;
	for (int i = 0; i < out->out.n; i++)
		out->out.name[i] = i < missing || x->dims[i - missing] != to->items[i]
		                           ? (char)('A' + IR_RANK_MAX + i)
		                           : out->in[0].name[i - missing];
}

/* Axis `axis` of the result is not that of the operands (slice, concat, pad): its indices are shifted. */
static void set_axis_new(struct ir_axes *out, int64_t axis)
{
	out->out.name[axis] = '?';
	for (size_t i = 0; i < out->n_in; i++)
		out->in[i].name[axis] = '?';
}

/* Axes of views, reductions, concat and pad, all with the axes of operand 0; false for other ops. */
static bool axes_by_attrs(enum ir_opcode code, const void *attrs, const struct ir_type *const *operands,
                          size_t n, struct ir_axes *out)
{
	const struct attrs_reduce_sum *reduce = attrs; /* all reductions but argmax have these attributes */
	if (n == 0 || n > IR_AXES_OPERANDS_MAX || operands[0] == NULL || operands[0]->kind != IR_TENSOR)
		return false;
	name_all(operands, n, out);
	if (code == OP_transpose) {
		transpose_axes(&((const struct attrs_transpose *)attrs)->perm, out);
	} else if (code == OP_broadcast) {
		broadcast_axes(operands[0], &((const struct attrs_broadcast *)attrs)->dims, out);
	} else if (code == OP_reduce_sum || code == OP_reduce_mean || code == OP_reduce_max ||
	           code == OP_reduce_min) {
		reduce_axes(&reduce->axes, reduce->keep, out);
	} else if (code == OP_argmax) {
		int64_t axis = ((const struct attrs_argmax *)attrs)->axis;
		axis += axis < 0 ? operands[0]->rank : 0;
		reduce_axes(&(struct ir_int_list){&axis, 1}, false, out);
	} else if (code == OP_slice) {
		set_axis_new(out, ((const struct attrs_slice *)attrs)->axis);
	} else if (code == OP_concat) {
		set_axis_new(out, ((const struct attrs_concat *)attrs)->axis);
	} else if (code == OP_pad) {
		set_axis_new(out, ((const struct attrs_pad *)attrs)->axis);
	} else {
		return false;
	}
	return true;
}

/* ---- axes of an op ---- */

static void swap_last(struct ir_axis_list *list)
{
	char name = list->name[list->n - 1];
	list->name[list->n - 1] = list->name[list->n - 2];
	list->name[list->n - 2] = name;
}

/* Parses the row of the op, then finds how many axes each wildcard stands for: the first operand with it determines
 * that, all others must agree. *misfit is the operand being checked. */
bool ir_axes(enum ir_opcode code, const void *attrs, const struct ir_type *const *operands, size_t n,
             struct ir_axes *out, size_t *misfit)
{
	const char *row = ir_op_desc(code)->axes;
	*misfit = SIZE_MAX;
	if (row == NULL)
		return axes_by_attrs(code, attrs, operands, n, out);
	parse_row(row, n, out);
	if (code == OP_matmul && ((const struct attrs_matmul *)attrs)->ta)
		swap_last(&out->in[OPERAND(matmul, a)]);
	if (code == OP_matmul && ((const struct attrs_matmul *)attrs)->tb)
		swap_last(&out->in[OPERAND(matmul, b)]);
	out->n_in = out->n_in < n ? out->n_in : n;
	/* The first operand with a wildcard determines the number of axes that it stands for. */
	for (size_t i = 0; i < out->n_in; i++) {
		const struct ir_axis_list *list = &out->in[i];
		if (operands[i] == NULL)
			continue;
		*misfit = i;
		if (list->wildcard >= 0 && out->wildcard[list->wildcard] < 0) {
			if (operands[i]->rank < list->n - 1)
				return false;
			out->wildcard[list->wildcard] = operands[i]->rank - (list->n - 1);
		}
		if (ir_axes_rank(out, list) != operands[i]->rank)
			return false;
	}
	return true;
}

/* Index of the entry that contains axis `axis`; *at: position within a wildcard, else 0. */
static int entry_of(const struct ir_axes *a, const struct ir_axis_list *list, int axis, int *at)
{
	int i = 0;
	for (; i < list->n && axis >= entry_size(a, list->name[i]); i++)
		axis -= entry_size(a, list->name[i]);
	*at = axis;
	return i;
}

int ir_axis_name(const struct ir_axes *a, const struct ir_axis_list *list, int axis)
{
	int at, i = entry_of(a, list, axis, &at);
	switch (list->name[i]) {
	case '*': return 26 + at;
	case '&': return 26 + IR_RANK_MAX + at;
	case '?': return IR_AXIS_NEW;
	default: return list->name[i] - 'A';
	}
}

char ir_axis_mark(const struct ir_axes *a, const struct ir_axis_list *list, int axis)
{
	int at;
	return list->mark[entry_of(a, list, axis, &at)];
}

/* The axis of operand i with that name, or -1. */
static int find_axis(const struct ir_axes *a, size_t i, int name)
{
	int rank = ir_axes_rank(a, &a->in[i]);
	for (int axis = 0; axis < rank; axis++)
		if (ir_axis_name(a, &a->in[i], axis) == name)
			return axis;
	return -1;
}

/* Types for the row of the op, then the entry of the axis: a mark decides, or the operands that have its name.
 * first: the batch axis. */
enum ir_axis_kind ir_axis_dependence(const struct ir_func *f, const struct ir_op *op, int axis, int *from)
{
	const struct ir_type *types[IR_AXES_OPERANDS_MAX];
	struct ir_axes a;
	size_t misfit;
	int at;
	if (op->n_operands > IR_AXES_OPERANDS_MAX)
		return IR_AXIS_MIXED;
	for (size_t i = 0; i < op->n_operands; i++)
		types[i] = op->operands[i].id != 0 ? ir_type_of(f, op->operands[i]) : NULL;
	if (!ir_axes(op->code, op->attrs, types, op->n_operands, &a, &misfit) ||
	    axis >= ir_axes_rank(&a, &a.out))
		return IR_AXIS_MIXED;
	int name = ir_axis_name(&a, &a.out, axis), first = ir_axis_name(&a, &a.out, 0);
	int entry = entry_of(&a, &a.out, axis, &at);
	if (name == IR_AXIS_NEW || a.out.mark[entry] == '!')
		return IR_AXIS_MIXED;
	for (size_t i = 0; i < op->n_operands; i++) {
		int here = i < a.n_in && types[i] != NULL ? find_axis(&a, i, name) : -1;
		from[i] = here < 0 ? 0 : here;
		/* axis 0 must be the same batch axis, and cannot have the rows itself */
		if (here >= 0 && (here == 0 || find_axis(&a, i, first) != 0))
			return IR_AXIS_MIXED;
	}
	if (a.out.mark[entry] == '@')
		return IR_AXIS_POSITION;
	return a.out.name[entry] == '*' || a.out.name[entry] == '&' ? IR_AXIS_WILDCARD : IR_AXIS_ROWS;
}

/* As many elements before it and the same size: then row i of the result is row i of the operand. */
int ir_reshape_axis(struct ir_dims *dims, const struct ir_func *f, const struct ir_op *op, int axis)
{
	const struct ir_type *from = ir_type_of(f, op->operands[0]), *to = ir_type_of(f, op->results[0]);
	const struct ir_dim *before = ir_type_count_range(dims, to, 0, axis);
	for (int i = 1; i < from->rank; i++)
		if (from->dims[i] == to->dims[axis] && ir_type_count_range(dims, from, 0, i) == before)
			return i;
	return 0;
}
