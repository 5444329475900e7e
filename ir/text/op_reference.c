/* SPDX-License-Identifier: Apache-2.0 */
/* The op reference as a Markdown table, generated from ir/core/ops.def: the file ir/ops.md. */
#include "ir/text/text.h"

#include <inttypes.h>

static const char *class_name(enum ir_operand_class class)
{
	switch (class) {
	case CLASS_ANY: return "any";
	case CLASS_FLOAT: return "float";
	case CLASS_INT: return "int";
	case CLASS_I32: return "i32";
	case CLASS_BOOL: return "bool";
	case CLASS_NUMBER: return "number";
	case CLASS_STATE: return "state";
	}
	return "";
}

static void print_operands(struct buf *out, const struct ir_operand_desc *d)
{
	for (size_t i = 0; d[i].name != NULL; i++)
		buf_printf(out, "%s%s%s: %s%s", i > 0 ? ", " : "", d[i].name,
		           d[i].kind == OPERAND_OPTIONAL ? "?" : "", class_name(d[i].class),
		           d[i].kind == OPERAND_VARIADIC ? " ..." : "");
}

/* `none* causal`, the default with a star. */
static void print_keywords(struct buf *out, const struct ir_attr_desc *d)
{
	for (int i = 0; i < ir_keyword_count(d->words); i++)
		buf_printf(out, "%s%s%s", i > 0 ? " " : "", ir_keyword(d->words, i),
		           i == (int)d->int_default ? "*" : "");
}

static void print_attribute(struct buf *out, const struct ir_attr_desc *d)
{
	buf_printf(out, "%s", d->name);
	switch (d->kind) {
	case ATTR_FLOAT:
		buf_str(out, "=");
		buf_f64(out, d->float_default);
		break;
	case ATTR_INT: buf_printf(out, "=%" PRId64, d->int_default); break;
	case ATTR_FLAG: buf_str(out, " (flag)"); break;
	case ATTR_DIM: buf_str(out, ": dim"); break;
	case ATTR_DIMS: buf_str(out, "=[]"); break;
	case ATTR_INTS: buf_str(out, ": ints"); break;
	case ATTR_DTYPE: buf_str(out, ": dtype"); break;
	case ATTR_KEYWORD:
		buf_str(out, ": ");
		print_keywords(out, d);
		break;
	case ATTR_WEIGHT: buf_str(out, ": weight"); break;
	}
}

/* A table cell, with the characters escaped that Markdown interprets. */
static void print_cell(struct buf *out, const char *s)
{
	for (; *s != '\0'; s++) {
		if (*s == '|' || *s == '<' || *s == '*' || *s == '_')
			buf_char(out, '\\');
		buf_char(out, *s);
	}
}

static void print_traits(struct buf *out, unsigned set)
{
	static const char *const names[] = {"pure",     "view",     "elementwise", "rowwise",
	                                    "reduce",   "contract", "move",        "const",
	                                    "stateful", "region",   "terminator",  "commutative"};
	bool any = false;
	for (unsigned i = 0; i < TFMC_COUNT(names); i++) {
		if (!(set & (1u << i)))
			continue;
		buf_printf(out, "%s%s", any ? " " : "", names[i]);
		any = true;
	}
}

void ir_print_op_reference(struct buf *out)
{
	buf_str(out, "| op | operands | attributes | traits | meaning |\n|---|---|---|---|---|\n");
	for (int i = 0; i < IR_N_OPS; i++) {
		const struct ir_op_desc *op = ir_op_desc((enum ir_opcode)i);
		buf_printf(out, "| `%s` | ", op->name);
		print_operands(out, op->operands);
		buf_str(out, " | ");
		for (size_t k = 0; op->attrs[k].name != NULL; k++) {
			buf_str(out, k > 0 ? ", " : "");
			print_attribute(out, &op->attrs[k]);
		}
		buf_str(out, " | ");
		print_traits(out, op->traits);
		buf_str(out, " | ");
		print_cell(out, op->formula);
		buf_str(out, " |\n");
	}
}
