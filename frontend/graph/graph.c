/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building bodies of the graph level: statements from text, comparison, and
 * copies with an index filled in.
 */
#include "frontend/graph/graph.h"

#include <string.h>

struct graph_node *graph_push(struct arena *a, struct graph_body *body, enum graph_kind kind,
                              struct ir_loc loc)
{
	struct graph_node **slot = ARENA_PUSH(a, body);
	struct graph_node *node = ARENA_NEW(a, struct graph_node);
	if (slot == NULL || node == NULL) {
		body->n -= slot != NULL;
		return NULL;
	}
	*slot = node;
	node->kind = kind;
	node->loc = loc;
	return node;
}

bool graph_push_text(struct arena *a, struct diag_context *cx, struct graph_body *body, struct ir_loc loc,
                     const char *text)
{
	struct expr_source src = {text, strlen(text), loc.at, false};
	const struct expr_statement *st = expr_parse_statement(a, cx, src);
	struct graph_node *node = st == NULL ? NULL : graph_push(a, body, GRAPH_STATEMENT, loc);
	if (node == NULL)
		return false;
	node->text = text;
	node->st = st;
	return true;
}

static bool node_equal(const struct graph_node *a, const struct graph_node *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == GRAPH_STATEMENT)
		return strcmp(a->text, b->text) == 0;
	return a->count == b->count && a->start == b->start && strcmp(a->as, b->as) == 0 &&
	       graph_equal(&a->body, &b->body);
}

bool graph_equal(const struct graph_body *a, const struct graph_body *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		if (!node_equal(a->items[i], b->items[i]))
			return false;
	}
	return true;
}

const char *graph_fill(struct arena *a, const char *pattern, const char *name, const char *with)
{
	const char *placeholder = arena_printf(a, "{%s}", name);
	size_t len = strlen(placeholder);
	struct buf out;
	if (pattern == NULL || len == 0 || strstr(pattern, placeholder) == NULL)
		return pattern;
	buf_init(&out);
	for (const char *p = pattern; *p != '\0';) {
		if (strncmp(p, placeholder, len) == 0) {
			buf_str(&out, with);
			p += len;
		} else {
			buf_char(&out, *p++);
		}
	}
	const char *text = arena_strdup(a, out.data);
	buf_destroy(&out);
	return text;
}

static bool substitute_node(struct arena *a, struct diag_context *cx, const struct graph_node *node,
                            const char *name, const char *with, struct graph_body *out)
{
	struct ir_loc loc = {node->loc.at, graph_fill(a, node->loc.path, name, with)};
	if (node->kind == GRAPH_STATEMENT) {
		const char *text = graph_fill(a, node->text, name, with);
		if (text != node->text)
			return graph_push_text(a, cx, out, loc, text);
	}
	struct graph_node *copy = graph_push(a, out, node->kind, loc);
	if (copy == NULL)
		return false;
	*copy = *node;
	copy->loc = loc;
	copy->body = (struct graph_body){NULL, 0, 0};
	return node->kind == GRAPH_STATEMENT || graph_substitute(a, cx, &node->body, name, with, &copy->body);
}

bool graph_substitute(struct arena *a, struct diag_context *cx, const struct graph_body *body,
                      const char *name, const char *with, struct graph_body *out)
{
	for (size_t i = 0; i < body->n; i++) {
		if (!substitute_node(a, cx, body->items[i], name, with, out))
			return false;
	}
	return true;
}
