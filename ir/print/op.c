/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of ops, derived from the descriptors; repeat and group have their own
 * form. Attributes that equal their default are left out; dims, lists, dtypes
 * have no default.
 */
#include "ir/print/internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- attributes ---- */

static bool is_default(const struct ir_attr_desc *d, const void *a)
{
	switch (d->kind) {
	case ATTR_FLOAT: return memcmp(a, &d->float_default, sizeof(double)) == 0;
	case ATTR_INT: return *(const int64_t *)a == d->int_default;
	case ATTR_FLAG: return !*(const bool *)a;
	case ATTR_KEYWORD: return *(const int *)a == (int)d->int_default;
	case ATTR_WEIGHT: return true; /* printed with the operands */
	case ATTR_DIMS: return ((const struct ir_dim_list *)a)->n == 0;
	case ATTR_DIM:
	case ATTR_INTS:
	case ATTR_DTYPE: return false;
	}
	return false;
}

static void print_dims(const struct printer *p, const struct ir_dim_list *list, const char *separator)
{
	buf_char(p->out, '[');
	for (size_t i = 0; i < list->n; i++) {
		buf_str(p->out, i > 0 ? separator : "");
		ir_dim_print(p->out, p->m->dims, list->items[i], true);
	}
	buf_char(p->out, ']');
}

static void print_ints(const struct printer *p, const struct ir_int_list *list)
{
	buf_char(p->out, '[');
	for (size_t i = 0; i < list->n; i++)
		buf_printf(p->out, "%s%" PRId64, i > 0 ? "," : "", list->items[i]);
	buf_char(p->out, ']');
}

static void print_attr(const struct printer *p, const struct ir_attr_desc *d, const void *a)
{
	buf_str(p->out, d->name);
	if (d->kind != ATTR_FLAG)
		buf_char(p->out, '=');
	switch (d->kind) {
	case ATTR_FLOAT: buf_f64(p->out, *(const double *)a); break;
	case ATTR_INT: buf_printf(p->out, "%" PRId64, *(const int64_t *)a); break;
	case ATTR_FLAG: break;
	case ATTR_DIM: ir_dim_print(p->out, p->m->dims, *(const struct ir_dim *const *)a, true); break;
	case ATTR_DIMS: print_dims(p, a, ","); break;
	case ATTR_INTS: print_ints(p, a); break;
	case ATTR_DTYPE: buf_str(p->out, ir_dtype_name(*(const enum ir_dtype *)a)); break;
	case ATTR_KEYWORD: buf_str(p->out, ir_keyword(d->words, *(const int *)a)); break;
	case ATTR_WEIGHT: break;
	}
}

/* What the form of group says elsewhere. */
static bool has_own_place(const struct ir_op *op, const char *name)
{
	return op->code == OP_group &&
	       (strcmp(name, "kind") == 0 || strcmp(name, "root") == 0 || strcmp(name, "at") == 0);
}

static void print_attrs(const struct printer *p, const struct ir_op *op)
{
	bool any = false;
	if (op->attrs == NULL)
		return;
	for (const struct ir_attr_desc *d = ir_op_desc(op->code)->attrs; d->name != NULL; d++) {
		const void *a = (const char *)op->attrs + d->offset;
		if (is_default(d, a) || has_own_place(op, d->name))
			continue;
		buf_str(p->out, any ? " " : " {");
		print_attr(p, d, a);
		any = true;
	}
	if (any)
		buf_char(p->out, '}');
}

/* ---- ops ---- */

/* `%a, name=%b`: after an absent operand the next ones say their names. */
static void print_operands(const struct printer *p, const struct ir_op *op)
{
	const struct ir_operand_desc *d = ir_op_desc(op->code)->operands;
	bool gap = false, any = false;
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id != 0) {
			buf_str(p->out, any ? ", " : " ");
			if (gap)
				buf_printf(p->out, "%s=", d->name);
			print_value(p, op->operands[i]);
			any = true;
		} else {
			gap = true;
		}
		if (d->name != NULL && d->kind != OPERAND_VARIADIC)
			d++;
	}
}

static void print_types(const struct printer *p, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_results; i++) {
		buf_str(p->out, i == 0 ? " : " : ", ");
		ir_type_print(p->out, p->m->dims, ir_type_of(p->f, op->results[i]));
	}
}

static void print_repeat_head(const struct printer *p, const struct ir_op *op)
{
	const struct attrs_repeat *a = op->attrs;
	const struct ir_region *r = op->region;
	buf_char(p->out, ' ');
	print_value(p, r->args[REPEAT_INDEX]);
	buf_printf(p->out, " = 0 to %" PRId64 " carry (", a->count);
	for (size_t i = 0; i < op->n_operands; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_value(p, r->args[i + 1]);
		buf_str(p->out, " = ");
		print_value(p, op->operands[i]);
	}
	buf_char(p->out, ')');
}

static void print_group_head(const struct printer *p, const struct ir_op *op)
{
	const struct attrs_group *a = op->attrs;
	buf_printf(p->out, " %s", ir_keyword(KEYWORDS_GROUP, a->kind));
	print_attrs(p, op);
}

static void print_body(const struct printer *p, const struct ir_op *op, int indent)
{
	buf_str(p->out, " {\n");
	print_region(p, op->region, indent + 2);
	buf_fill(p->out, ' ', (size_t)indent);
	buf_char(p->out, '}');
	if (op->code != OP_group)
		return;
	const struct attrs_group *a = op->attrs;
	if (a->at.n > 0) {
		buf_str(p->out, " at ");
		print_dims(p, &a->at, ", ");
	}
}

/* The op with its region, ending in a newline. `word`: what is before it in its line. */
static void print_op(const struct printer *p, const struct ir_op *op, int indent, const char *word)
{
	buf_fill(p->out, ' ', (size_t)indent);
	buf_str(p->out, word);
	print_values(p, op->results, op->n_results);
	buf_str(p->out, op->n_results > 0 ? " = " : "");
	buf_str(p->out, ir_op_desc(op->code)->name);
	if (op->code == OP_repeat) {
		print_repeat_head(p, op);
	} else if (op->code == OP_group) {
		print_group_head(p, op);
	} else {
		print_operands(p, op);
		print_attrs(p, op);
	}
	if (op->region != NULL)
		print_body(p, op, indent);
	print_types(p, op);
	if (!ir_op_has(op->code, TRAIT_TERMINATOR))
		print_loc(p->out, p->cx, p->m, op->loc);
	buf_char(p->out, '\n');
}

/* The word of the op at position i of a group. */
static const char *stage_word(const struct ir_region *r, size_t i)
{
	if (r->owner == NULL || r->owner->code != OP_group || ir_op_has(r->ops[i]->code, TRAIT_TERMINATOR))
		return "";
	const struct attrs_group *a = r->owner->attrs;
	if ((int64_t)i == a->root)
		return "root ";
	return (int64_t)i < a->root ? "pre  " : "post ";
}

void print_region(const struct printer *p, const struct ir_region *r, int indent)
{
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->code != OP_weight)
			print_op(p, r->ops[i], indent, stage_word(r, i));
}
