/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints expressions and bodies of the graph level; the text parses back to an equal tree.
 * Parentheses that were written are kept; others are added where the tree needs them.
 */
#include <string.h>

#include "frontend/syntax/graph.h"
#include "frontend/syntax/yaml_edit.h"

static void print_list(struct buf *out, const struct ir_dims *dims, const struct expr *const *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		buf_str(out, i > 0 ? ", " : "");
		expr_print(out, dims, items[i]);
	}
}

/* Prints a call: positional arguments, then named ones. */
static void print_call(struct buf *out, const struct ir_dims *dims, const struct expr *e)
{
	buf_printf(out, "%s(", e->text);
	print_list(out, dims, e->args, e->n_args);
	for (size_t i = 0; i < e->n_keywords; i++) {
		buf_printf(out, "%s%s=", i + e->n_args > 0 ? ", " : "", e->keywords[i].name);
		expr_print(out, dims, e->keywords[i].value);
	}
	buf_char(out, ')');
}

/* Returns the binding strength of the outermost operation; larger than that of any operation if there is none. A
 * negative number reads back as a sign and its operand, and a dim of several terms as a sum: they get parentheses. */
static int precedence(const struct expr *e)
{
	static const int of[] = {
	        [EXPR_OR] = 0,  [EXPR_AND] = 1,     [EXPR_NOT] = 2, [EXPR_EQ] = 3,  [EXPR_NE] = 3,
	        [EXPR_LT] = 3,  [EXPR_LE] = 3,      [EXPR_GT] = 3,  [EXPR_GE] = 3,  [EXPR_ADD] = 4,
	        [EXPR_SUB] = 4, [EXPR_MUL] = 5,     [EXPR_DIV] = 5, [EXPR_MOD] = 5, [EXPR_NEG] = 6,
	        [EXPR_POW] = 7, [EXPR_FLOORDIV] = 5};
	if ((e->kind == EX_INT && e->i < 0) || (e->kind == EX_FLOAT && e->f < 0.0))
		return 4; /* needs parentheses after an operator */
	if (e->kind == EX_DIM)
		return e->dim->n_terms > 1 ? 4 : 8;
	return e->kind == EX_UNARY || e->kind == EX_BINARY ? of[e->op] : 8;
}

/* Prints an operand, in parentheses if it binds weaker than min_level and has none of its own. */
static void print_operand(struct buf *out, const struct ir_dims *dims, const struct expr *e, int min_level)
{
	bool opens = !e->parenthesized && precedence(e) < min_level;
	buf_str(out, opens ? "(" : "");
	expr_print(out, dims, e);
	buf_str(out, opens ? ")" : "");
}

/* Prints an operator with its operands. The operand on the side where the operator does not associate must bind
 * stronger: the right one, of ** the left one. The exponent of ** may be a sign with its operand, one level weaker. */
static void print_operation(struct buf *out, const struct ir_dims *dims, const struct expr *e)
{
	const char *op = expr_op_name(e->op);
	int level = precedence(e);
	if (e->kind == EX_UNARY) {
		buf_printf(out, "%s%s", op, e->op == EXPR_NOT ? " " : "");
		print_operand(out, dims, e->args[0], level);
		return;
	}
	print_operand(out, dims, e->args[0], e->op == EXPR_POW ? level + 1 : level);
	buf_printf(out, " %s ", op);
	print_operand(out, dims, e->args[1], e->op == EXPR_POW ? level - 1 : level + 1);
}

/* Prints an expression without its outer parentheses. */
static void print_unparenthesized(struct buf *out, const struct ir_dims *dims, const struct expr *e)
{
	switch (e->kind) {
	case EX_NONE: buf_str(out, "null"); return;
	case EX_INT: buf_printf(out, "%lld", (long long)e->i); return;
	case EX_FLOAT: value_print_float(out, e->f); return;
	case EX_BOOL: buf_str(out, e->i ? "true" : "false"); return;
	case EX_DIM: ir_dim_print(out, dims, e->dim, false); return;
	case EX_STRING: value_print_string(out, e->text, '"'); return;
	case EX_NAME: buf_str(out, e->text); return;
	case EX_UNARY:
	case EX_BINARY: print_operation(out, dims, e); return;
	case EX_INDEX:
		expr_print(out, dims, e->args[0]);
		buf_char(out, '[');
		print_list(out, dims, e->args + 1, e->n_args - 1);
		buf_char(out, ']');
		return;
	case EX_CALL: print_call(out, dims, e); return;
	case EX_LIST:
		buf_char(out, '[');
		print_list(out, dims, e->args, e->n_args);
		buf_char(out, ']');
		return;
	}
}

void expr_print(struct buf *out, const struct ir_dims *dims, const struct expr *e)
{
	if (e->parenthesized)
		buf_char(out, '(');
	print_unparenthesized(out, dims, e);
	if (e->parenthesized)
		buf_char(out, ')');
}

/* Prints an assignment; bodies contain no return. */
static void print_statement(struct buf *out, const struct ir_dims *dims, const struct expr_statement *st)
{
	for (size_t i = 0; i < st->n_targets; i++)
		buf_printf(out, "%s%s", i > 0 ? ", " : "", st->targets[i].name);
	buf_str(out, " = ");
	print_list(out, dims, st->values, st->n_values);
}

/* A statement is a plain scalar of YAML where that reads back, else quoted. */
void graph_print(struct buf *out, const struct ir_dims *dims, const struct graph_body *body, unsigned indent)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		buf_fill(out, ' ', indent);
		buf_str(out, "- ");
		if (node->kind == GRAPH_STATEMENT) {
			struct buf text;
			buf_init(&text);
			print_statement(&text, dims, node->st);
			/* YAML would read a mapping or a comment there */
			bool quotes = strstr(text.data, ": ") != NULL || strstr(text.data, " #") != NULL;
			(quotes ? yaml_print_quoted : buf_str)(out, text.data);
			buf_destroy(&text);
			buf_char(out, '\n');
			continue;
		}
		buf_printf(out, "repeat: {count: %lld, as: %s, start: %lld}\n", (long long)node->count,
		           node->as, (long long)node->start);
		buf_fill(out, ' ', indent + 2);
		buf_str(out, "body:\n");
		graph_print(out, dims, &node->body, indent + 4);
	}
}
