/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building bodies of the graph level.
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
	if (kind == GRAPH_REPEAT)
		node->cuts = ARENA_NEW(a, struct graph_cuts);
	return kind == GRAPH_REPEAT && node->cuts == NULL ? NULL : node;
}

bool graph_push_statement(struct arena *a, struct graph_body *body, struct ir_loc loc,
                          const struct expr_statement *st)
{
	struct graph_node *node = st == NULL ? NULL : graph_push(a, body, GRAPH_STATEMENT, loc);
	if (node != NULL)
		node->st = st;
	return node != NULL;
}

bool graph_push_text(struct arena *a, struct diag_context *cx, struct graph_body *body, struct ir_loc loc,
                     const char *text)
{
	struct expr_source src = {text, strlen(text), loc.at, false};
	return graph_push_statement(a, body, loc, expr_parse_statement(a, cx, src));
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
