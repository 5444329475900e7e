/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph expressions and bodies to text. What is printed parses back to the
 * same tree.
 */
#include <string.h>

#include "frontend/graph/graph.h"

struct printer {
	struct buf *out;
	expr_rename *rename, *placeholder;
	void *user;
};

static void print(const struct printer *p, const struct expr *e);

static void print_list(const struct printer *p, const struct expr *const *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print(p, items[i]);
	}
}

/* The text with each {name} that has a replacement replaced. */
static void print_string(const struct printer *p, const char *s)
{
	buf_char(p->out, '"');
	while (*s != '\0') {
		size_t len = *s == '{' ? strcspn(s, "}") : 0;
		char name[80];
		const char *with = NULL;
		if (len > 1 && s[len] == '}' && len < sizeof(name)) {
			memcpy(name, s + 1, len - 1);
			name[len - 1] = '\0';
			with = p->placeholder == NULL ? NULL : p->placeholder(p->user, name);
		}
		if (with != NULL) {
			buf_str(p->out, with);
			s += len + 1;
		} else {
			buf_char(p->out, *s++);
		}
	}
	buf_char(p->out, '"');
}

static void print_call(const struct printer *p, const struct expr *e)
{
	buf_printf(p->out, "%s(", e->text);
	print_list(p, e->args, e->n_args);
	for (size_t i = 0; i < e->n_keywords; i++) {
		buf_printf(p->out, "%s%s=", i + e->n_args > 0 ? ", " : "", e->keywords[i].name);
		print(p, e->keywords[i].value);
	}
	buf_char(p->out, ')');
}

static void print_operation(const struct printer *p, const struct expr *e)
{
	const char *op = expr_op_text(e->op);
	if (e->kind == EX_UNARY) {
		buf_printf(p->out, "%s%s", op, e->op == EXPR_NOT ? " " : "");
		print(p, e->args[0]);
		return;
	}
	print(p, e->args[0]);
	buf_printf(p->out, " %s ", op);
	print(p, e->args[1]);
}

static void print_bare(const struct printer *p, const struct expr *e)
{
	const char *with;
	switch (e->kind) {
	case EX_NONE: buf_str(p->out, "null"); return;
	case EX_INT: buf_printf(p->out, "%lld", (long long)e->i); return;
	case EX_FLOAT: value_print_float(p->out, e->f); return;
	case EX_BOOL: buf_str(p->out, e->i ? "true" : "false"); return;
	case EX_STRING: print_string(p, e->text); return;
	case EX_NAME:
		with = p->rename == NULL ? NULL : p->rename(p->user, e->text);
		buf_str(p->out, with != NULL ? with : e->text);
		return;
	case EX_UNARY:
	case EX_BINARY: print_operation(p, e); return;
	case EX_INDEX:
		print(p, e->args[0]);
		buf_char(p->out, '[');
		print_list(p, e->args + 1, e->n_args - 1);
		buf_char(p->out, ']');
		return;
	case EX_CALL: print_call(p, e); return;
	case EX_LIST:
		buf_char(p->out, '[');
		print_list(p, e->args, e->n_args);
		buf_char(p->out, ']');
		return;
	}
}

static void print(const struct printer *p, const struct expr *e)
{
	if (e->parenthesized)
		buf_char(p->out, '(');
	print_bare(p, e);
	if (e->parenthesized)
		buf_char(p->out, ')');
}

void expr_print(struct buf *out, const struct expr *e, expr_rename *rename, expr_rename *placeholder,
                void *user)
{
	struct printer p = {out, rename, placeholder, user};
	print(&p, e);
}

/* A plain scalar when YAML reads it back as it is. */
static void print_scalar(struct buf *out, const char *text)
{
	bool plain = strstr(text, ": ") == NULL && strstr(text, " #") == NULL;
	if (plain) {
		buf_str(out, text);
		return;
	}
	buf_char(out, '\'');
	for (; *text != '\0'; text++) {
		buf_char(out, *text);
		if (*text == '\'')
			buf_char(out, '\'');
	}
	buf_char(out, '\'');
}

void graph_print(struct buf *out, const struct graph_body *body, unsigned indent)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		buf_fill(out, ' ', indent);
		buf_str(out, "- ");
		if (node->kind == GRAPH_STATEMENT) {
			print_scalar(out, node->text);
			buf_char(out, '\n');
			continue;
		}
		buf_printf(out, "repeat: {count: %lld, as: %s, start: %lld}\n", (long long)node->count,
		           node->as, (long long)node->start);
		buf_fill(out, ' ', indent + 2);
		buf_str(out, "body:\n");
		graph_print(out, &node->body, indent + 4);
	}
}
