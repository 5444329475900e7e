/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Liveness of names: reads and writes of statements (carries of repeats) and dead code elimination.
 * A name is live at a place if its value there may still be read. `effect` is the name of the call that is kept
 * though no live name gets its result.
 */
#include <string.h>

#include "frontend/syntax/graph.h"

/* True if the expression contains a node of this kind and text: EX_NAME: reads a name, EX_CALL: calls a function. */
static bool expr_contains(const struct expr *e, enum expr_kind kind, const char *text)
{
	bool found = e->kind == kind && strcmp(e->text, text) == 0;
	for (size_t i = 0; !found && i < expr_n_children(e); i++)
		found = expr_contains(expr_child(e, i), kind, text);
	return found;
}

/* Returns how a statement uses a name. Reads come before writes: it evaluates its expressions first. */
static enum graph_use statement_use(const struct expr_statement *st, const char *name)
{
	for (size_t i = 0; i < st->n_values; i++) {
		if (expr_contains(st->values[i], EX_NAME, name))
			return GRAPH_READ;
	}
	for (size_t i = 0; i < st->n_targets; i++) {
		if (strcmp(st->targets[i].name, name) == 0)
			return GRAPH_WRITTEN;
	}
	return GRAPH_UNUSED;
}

/* A body of a repeat counts as run at least once, from its start: a name that it reads first is read. */
enum graph_use graph_first_use(const struct graph_body *body, size_t from, const char *name)
{
	enum graph_use use = GRAPH_UNUSED;
	for (size_t i = from; i < body->n && use == GRAPH_UNUSED; i++) {
		const struct graph_node *node = body->items[i];
		use = node->kind == GRAPH_REPEAT ? graph_first_use(&node->body, 0, name)
		                                 : statement_use(node->st, name);
	}
	return use;
}

/* ---- sets of names ---- */

struct names {
	const char **items;
	size_t n, cap;
};

static bool names_have(const struct names *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++) {
		if (strcmp(s->items[i], name) == 0)
			return true;
	}
	return false;
}

static void names_add(struct arena *a, struct names *s, const char *name)
{
	if (names_have(s, name))
		return;
	ARENA_ADD(a, s, name);
}

/* Removes a name; the last one takes its position, since the order of a set does not matter. */
static void names_drop(struct names *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++) {
		if (strcmp(s->items[i], name) == 0) {
			s->items[i] = s->items[--s->n];
			return;
		}
	}
}

static struct names names_copy(struct arena *a, const struct names *s)
{
	struct names c = {NULL, 0, 0};
	for (size_t i = 0; i < s->n; i++)
		names_add(a, &c, s->items[i]);
	return c;
}

/* Adds the names that the body and its repeats assign, in order. */
static void collect_targets(struct arena *a, const struct graph_body *body, struct names *out)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		if (node->kind == GRAPH_REPEAT) {
			collect_targets(a, &node->body, out);
			continue;
		}
		for (size_t t = 0; t < node->st->n_targets; t++)
			names_add(a, out, node->st->targets[t].name);
	}
}

const char *const *graph_targets(struct arena *a, const struct graph_body *body, size_t *n)
{
	struct names s = {NULL, 0, 0};
	collect_targets(a, body, &s);
	*n = s.n;
	return s.items;
}

/* ---- pruning ---- */

struct prune {
	struct arena *arena;
	const char *effect;
};

/* Adds the names that an expression reads. */
static void add_reads(struct arena *a, const struct expr *e, struct names *live)
{
	if (e->kind == EX_NAME)
		names_add(a, live, e->text);
	for (size_t i = 0; i < expr_n_children(e); i++)
		add_reads(a, expr_child(e, i), live);
}

/* Whether a statement has an effect, or assigns a live name; then all of its targets stay. */
static bool statement_needed(const struct prune *p, const struct expr_statement *st, const struct names *live)
{
	for (size_t i = 0; i < st->n_targets; i++) {
		if (names_have(live, st->targets[i].name))
			return true;
	}
	for (size_t i = 0; i < st->n_values; i++) {
		if (p->effect != NULL && expr_contains(st->values[i], EX_CALL, p->effect))
			return true;
	}
	return false;
}

static struct graph_body prune_body(const struct prune *p, const struct graph_body *body, struct names *live);

/* Prunes a repeat: iterates to a fixed point, since names that the body reads at its start are live at its end.
 * NULL: nothing of the body is needed. *live: in live names after the node, out live names before it. */
static struct graph_node *prune_repeat(const struct prune *p, const struct graph_node *node,
                                       struct names *live)
{
	struct names after = names_copy(p->arena, live);
	struct names before;
	struct graph_body inner;
	size_t n;
	do {
		n = after.n;
		before = names_copy(p->arena, &after);
		inner = prune_body(p, &node->body, &before);
		for (size_t i = 0; i < before.n; i++)
			names_add(p->arena, &after, before.items[i]);
	} while (after.n != n);
	struct graph_node *copy = ARENA_NEW(p->arena, struct graph_node);
	if (inner.n == 0 || copy == NULL)
		return NULL;
	*copy = *node;
	copy->body = inner;
	/* A name read after the repeat is live before it, too: the body may not assign it, or not in each iteration. */
	for (size_t i = 0; i < live->n; i++)
		names_add(p->arena, &before, live->items[i]);
	*live = before;
	return copy;
}

/* Keeps a statement that is needed; NULL: it is not. *live: in live names after it, out live names before it. */
static struct graph_node *prune_statement(const struct prune *p, struct graph_node *node, struct names *live)
{
	if (!statement_needed(p, node->st, live))
		return NULL;
	for (size_t i = 0; i < node->st->n_targets; i++)
		names_drop(live, node->st->targets[i].name);
	for (size_t i = 0; i < node->st->n_values; i++)
		add_reads(p->arena, node->st->values[i], live);
	return node;
}

/* Prunes a body from its end to its start, since liveness flows backward: out.items is filled from its end and then
 * moved to its start. *live: in live names after it, out live names before it. */
static struct graph_body prune_body(const struct prune *p, const struct graph_body *body, struct names *live)
{
	struct graph_body out = {ARENA_ARRAY(p->arena, struct graph_node *, body->n), 0, body->n};
	size_t at = body->n;
	if (out.items == NULL)
		return (struct graph_body){NULL, 0, 0};
	for (size_t i = body->n; i-- > 0;) {
		struct graph_node *node = body->items[i];
		struct graph_node *kept = node->kind == GRAPH_REPEAT ? prune_repeat(p, node, live)
		                                                     : prune_statement(p, node, live);
		if (kept != NULL)
			out.items[--at] = kept;
	}
	out.n = body->n - at;
	memmove(out.items, out.items + at, out.n * sizeof(struct graph_node *));
	return out;
}

struct graph_body graph_prune(struct arena *a, const struct graph_body *body, const char *const *outputs,
                              size_t n, const char *effect)
{
	struct prune p = {a, effect};
	struct names live = {NULL, 0, 0};
	for (size_t i = 0; i < n; i++)
		names_add(a, &live, outputs[i]);
	return prune_body(&p, body, &live);
}
