/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the axes of ops.def. Names of axes are numbers: the letters, then the axes of * and those of &.
 */
#include "ir/core/axes.h"

#include <string.h>

/* From the bracket on; gives what follows its end. */
static const char *read_list(const char *s, struct ir_axis_list *out)
{
	*out = (struct ir_axis_list){.run = -1};
	for (s++; *s != ']'; s++) {
		if (*s == '!' || *s == '@') {
			out->mark[out->n - 1] = *s;
		} else if (*s != ',') {
			out->run = *s == '*' ? 0 : *s == '&' ? 1 : out->run;
			out->name[out->n++] = *s;
		}
	}
	return s + 1;
}

static void read_row(const char *row, size_t n, struct ir_axes *out)
{
	const char *arrow = strstr(row, "->");
	*out = (struct ir_axes){.n_in = n, .run = {-1, -1}};
	if (arrow == NULL) { /* EACH */
		for (size_t i = 0; i < n; i++)
			(void)read_list("[*]", &out->in[i]);
		(void)read_list("[*]", &out->out);
		return;
	}
	out->n_in = 0;
	for (const char *s = strchr(row, '['); s < arrow; s = strchr(s, '['))
		s = read_list(s, &out->in[out->n_in++]);
	(void)read_list(strchr(arrow, '['), &out->out);
}

/* How many axes the entry stands for. */
static int entry_size(const struct ir_axes *a, char name)
{
	return name == '*' ? a->run[0] : name == '&' ? a->run[1] : 1;
}

int ir_axes_rank(const struct ir_axes *a, const struct ir_axis_list *list)
{
	int rank = 0;
	for (int i = 0; i < list->n; i++)
		rank += entry_size(a, list->name[i]);
	return rank;
}

static void swap_last(struct ir_axis_list *list)
{
	char name = list->name[list->n - 1];
	list->name[list->n - 1] = list->name[list->n - 2];
	list->name[list->n - 2] = name;
}

bool ir_axes(enum ir_opcode code, const void *attrs, const struct ir_type *const *operands, size_t n,
             struct ir_axes *out, size_t *misfit)
{
	const char *row = ir_op_desc(code)->axes;
	*misfit = SIZE_MAX;
	if (row == NULL)
		return false;
	read_row(row, n, out);
	if (code == OP_matmul && ((const struct attrs_matmul *)attrs)->ta)
		swap_last(&out->in[OPERAND(matmul, a)]);
	if (code == OP_matmul && ((const struct attrs_matmul *)attrs)->tb)
		swap_last(&out->in[OPERAND(matmul, b)]);
	out->n_in = out->n_in < n ? out->n_in : n;
	for (size_t i = 0; i < out->n_in; i++) {
		const struct ir_axis_list *list = &out->in[i];
		if (operands[i] == NULL)
			continue;
		*misfit = i;
		if (list->run >= 0 && out->run[list->run] < 0) {
			if (operands[i]->rank < list->n - 1)
				return false;
			out->run[list->run] = operands[i]->rank - (list->n - 1);
		}
		if (ir_axes_rank(out, list) != operands[i]->rank)
			return false;
	}
	return true;
}

/* The entry of the list that stands for the axis; *at: which of its axes it is. */
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

/* The axis of operand i with that name, -1: none. */
static int find(const struct ir_axes *a, size_t i, int name)
{
	int rank = ir_axes_rank(a, &a->in[i]);
	for (int axis = 0; axis < rank; axis++)
		if (ir_axis_name(a, &a->in[i], axis) == name)
			return axis;
	return -1;
}

enum ir_axis_kind ir_axis_rows(const struct ir_func *f, const struct ir_op *op, int axis, int *from)
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
		int here = i < a.n_in && types[i] != NULL ? find(&a, i, name) : -1;
		from[i] = here < 0 ? 0 : here;
		if (here >= 0 && (here == 0 || find(&a, i, first) != 0))
			return IR_AXIS_MIXED;
	}
	if (a.out.mark[entry] == '@')
		return IR_AXIS_POSITION;
	return a.out.name[entry] == '*' || a.out.name[entry] == '&' ? IR_AXIS_RUN : IR_AXIS_ROWS;
}
