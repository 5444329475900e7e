/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits the graph of a seq2seq model into what does not depend on the tokens
 * (encode) and the rest (decode). Every name has a level: constant, source,
 * tokens. A source value that a tokens statement reads crosses over: encode
 * puts it into a state where it was defined, decode gets it there.
 *
 * INVARIANT: a loop appears in both parts with the same count, so that a state
 * that is indexed by the loop has one entry for each round.
 */
#include <string.h>

#include "frontend/lower/lower.h"

enum level { LEVEL_CONST, LEVEL_SOURCE, LEVEL_TOKENS };

static const enum level levels[] = {LEVEL_CONST, LEVEL_SOURCE, LEVEL_TOKENS};

struct split_scope {
	struct split_scope *outer;
	const struct graph_node *loop; /* NULL at the top */
	struct graph_body encode, decode;
	struct strmap crossed; /* names that decode has already got here */
};

struct split {
	struct frontend_model *m;
	struct arena *arena;
	struct strmap level; /* name -> element of levels */
	struct strmap states;
	struct split_scope *scope;
};

static enum level level_of_name(const struct split *s, const char *name)
{
	const enum level *l = strmap_get(&s->level, name);
	return l == NULL ? LEVEL_CONST : *l;
}

static void set_level(struct split *s, const char *name, enum level level)
{
	strmap_set(&s->level, name, (void *)(uintptr_t)&levels[level]);
}

static enum level level_of(const struct split *s, const struct expr *e)
{
	enum level l = e->kind == EX_NAME ? level_of_name(s, e->text) : LEVEL_CONST;
	for (size_t i = 0; i < expr_n_children(e); i++) {
		enum level a = level_of(s, expr_child(e, i));
		l = a > l ? a : l;
	}
	return l;
}

static enum level statement_level(const struct split *s, const struct expr_statement *st)
{
	enum level l = LEVEL_CONST;
	for (size_t i = 0; i < st->n_values; i++) {
		enum level a = level_of(s, st->values[i]);
		l = a > l ? a : l;
	}
	return l;
}

static void assign(struct split *s, const struct expr_statement *st, enum level level)
{
	for (size_t i = 0; i < st->n_targets; i++)
		set_level(s, st->targets[i].name, level);
}

/* Levels after a body; true when one that the body starts with rose. */
static void flow(struct split *s, const struct graph_body *body)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		if (node->kind == GRAPH_STATEMENT)
			assign(s, node->st, statement_level(s, node->st));
		else
			flow(s, &node->body);
	}
}

/* Joins the levels at the end of a loop body into those at its beginning until nothing rises. */
static void enter_loop(struct split *s, const struct graph_body *body)
{
	size_t n;
	const char *const *names = graph_targets(s->arena, body, &n);
	enum level *before = ARENA_ARRAY(s->arena, enum level, n + 1);
	bool rose = before != NULL;
	while (rose) {
		rose = false;
		for (size_t i = 0; i < n; i++)
			before[i] = level_of_name(s, names[i]);
		flow(s, body);
		for (size_t i = 0; i < n; i++) {
			bool carried = graph_first_use(body, 0, names[i]) == GRAPH_READ;
			enum level after = level_of_name(s, names[i]);
			rose = rose || (carried && after > before[i]);
			set_level(s, names[i], carried && after > before[i] ? after : before[i]);
		}
	}
}

/* ---- crossing ---- */

/* The scope whose statements define the present value of a name. */
static struct split_scope *defining_scope(const struct split *s, const char *name)
{
	struct split_scope *scope = s->scope;
	for (; scope->loop != NULL; scope = scope->outer) {
		size_t n;
		const char *const *names = graph_targets(s->arena, &scope->loop->body, &n);
		for (size_t i = 0; i < n; i++) {
			if (strcmp(names[i], name) == 0)
				return scope;
		}
	}
	return scope;
}

static const char *state_name(struct split *s, const struct split_scope *scope, const struct graph_node *node,
                              const char *name)
{
	bool here = scope == s->scope && scope->loop != NULL && node->loc.path != NULL &&
	            node->loc.path[0] != '\0';
	const char *base = here ? arena_printf(s->arena, "%s.%s", node->loc.path, name) : name;
	for (const struct split_scope *c = scope; !here && c->loop != NULL; c = c->outer)
		base = arena_printf(s->arena, "%s.{%s}", base, c->loop->as);
	const char *unique = base;
	for (int i = 2; strmap_has(&s->states, unique); i++)
		unique = arena_printf(s->arena, "%s.%d", base, i);
	strmap_set(&s->states, unique, s);
	return unique;
}

/* True when every mention of the name is as keys or values of an sdpa. */
static bool only_keys(const struct expr *e, const char *name, bool key)
{
	if (e->kind == EX_NAME && strcmp(e->text, name) == 0)
		return key;
	bool sdpa = e->kind == EX_CALL && strcmp(e->text, "sdpa") == 0;
	for (size_t i = 0; i < expr_n_children(e); i++) {
		if (!only_keys(expr_child(e, i), name, sdpa && i < e->n_args && (i == 1 || i == 2)))
			return false;
	}
	return true;
}

static bool push(struct split *s, struct graph_body *body, struct ir_loc loc, const char *text)
{
	return graph_push_text(s->arena, s->m->cx, body, loc, text);
}

static bool cross(struct split *s, struct split_scope *scope, const struct graph_node *node, const char *name,
                  bool keys)
{
	if (strmap_get(&scope->crossed, name) != NULL)
		return true;
	const char *state = state_name(s, scope, node, name);
	strmap_set(&scope->crossed, name, s);
	return push(s, &scope->encode, node->loc,
	            arena_printf(s->arena, "put_%s = state_put(\"%s\", %s, padded=%s)", name, state, name,
	                         keys ? "true" : "false")) &&
	       push(s, &scope->decode, node->loc,
	            arena_printf(s->arena, "%s = state_get(\"%s\")", name, state));
}

static bool cross_reads(struct split *s, const struct graph_node *node, const struct expr *e,
                        const struct expr *whole)
{
	bool ok = true;
	if (e->kind == EX_NAME && level_of_name(s, e->text) == LEVEL_SOURCE)
		ok = cross(s, defining_scope(s, e->text), node, e->text, only_keys(whole, e->text, false));
	for (size_t i = 0; ok && i < expr_n_children(e); i++)
		ok = cross_reads(s, node, expr_child(e, i), whole);
	return ok;
}

/* ---- keys without lengths: the state is longer than the source, so their number crosses too ---- */

static const struct expr *keyword(const struct expr *e, const char *name)
{
	for (size_t i = 0; i < e->n_keywords; i++) {
		if (strcmp(e->keywords[i].name, name) == 0)
			return e->keywords[i].value;
	}
	return NULL;
}

static bool add_lengths(struct split *s, struct graph_node *node, const struct expr *call,
                        const struct expr **out)
{
	const char *keys = call->args[1]->text;
	const char *name = arena_printf(s->arena, "len_%s", keys);
	struct split_scope *scope = defining_scope(s, keys);
	struct expr *copy = ARENA_NEW(s->arena, struct expr), *value = ARENA_NEW(s->arena, struct expr);
	if (copy == NULL || value == NULL ||
	    !push(s, &scope->encode, node->loc, arena_printf(s->arena, "%s = key_lengths(%s)", name, keys)) ||
	    !cross(s, scope, node, name, false))
		return false;
	*copy = *call;
	*value = (struct expr){.kind = EX_NAME, .loc = call->loc, .text = name};
	copy->keywords = ARENA_ARRAY(s->arena, struct expr_keyword, call->n_keywords + 1);
	if (copy->keywords == NULL)
		return false;
	for (size_t i = 0; i < call->n_keywords; i++)
		copy->keywords[i] = call->keywords[i];
	copy->keywords[copy->n_keywords++] = (struct expr_keyword){"lengths", call->loc, value};
	*out = copy;
	return true;
}

struct completing {
	struct split *s;
	struct graph_node *node;
	bool failed;
};

/* A call of sdpa over keys of the source that says no lengths gets them. */
static const struct expr *complete(void *user, const struct expr *e)
{
	struct completing *c = user;
	const struct expr *with = NULL;
	bool sdpa = e->kind == EX_CALL && strcmp(e->text, "sdpa") == 0 && e->n_args >= 3;
	if (sdpa && keyword(e, "lengths") == NULL && e->args[1]->kind == EX_NAME &&
	    level_of_name(c->s, e->args[1]->text) == LEVEL_SOURCE)
		c->failed = !add_lengths(c->s, c->node, e, &with) || c->failed;
	return with;
}

/* ---- the walk ---- */

static bool push_node(struct split *s, struct graph_body *body, const struct graph_node *node)
{
	struct graph_node *copy = graph_push(s->arena, body, node->kind, node->loc);
	if (copy == NULL)
		return false;
	*copy = *node;
	return true;
}

static bool split_tokens(struct split *s, const struct graph_node *node)
{
	struct graph_node *copy = ARENA_NEW(s->arena, struct graph_node);
	struct expr_statement *st = ARENA_NEW(s->arena, struct expr_statement);
	if (copy == NULL || st == NULL)
		return false;
	*copy = *node;
	*st = *node->st;
	struct completing c = {s, copy, false};
	copy->st = st;
	st->values = ARENA_ARRAY(s->arena, const struct expr *, st->n_values);
	for (size_t i = 0; st->values != NULL && i < st->n_values; i++) {
		const struct expr *e = node->st->values[i];
		if (!cross_reads(s, node, e, e))
			return false;
		st->values[i] = expr_map(s->arena, e, complete, &c);
	}
	return st->values != NULL && !c.failed && push_node(s, &s->scope->decode, copy);
}

static void forget_crossings(struct split *s, const struct expr_statement *st)
{
	for (size_t i = 0; i < st->n_targets; i++) {
		for (struct split_scope *c = s->scope; c != NULL; c = c->outer) {
			if (strmap_get(&c->crossed, st->targets[i].name) != NULL)
				strmap_set(&c->crossed, st->targets[i].name, NULL);
		}
	}
}

static bool split_statement(struct split *s, const struct graph_node *node)
{
	enum level level = statement_level(s, node->st);
	bool ok = true;
	if (level == LEVEL_TOKENS)
		ok = split_tokens(s, node);
	else
		ok = push_node(s, &s->scope->encode, node);
	if (level == LEVEL_CONST)
		ok = ok && push_node(s, &s->scope->decode, node);
	assign(s, node->st, level);
	forget_crossings(s, node->st);
	return ok;
}

static bool split_body(struct split *s, const struct graph_body *body);

static bool push_loop(struct split *s, struct graph_body *out, const struct graph_node *node,
                      const struct graph_body *body)
{
	if (body->n == 0)
		return true;
	struct graph_node *copy = graph_push(s->arena, out, GRAPH_REPEAT, node->loc);
	if (copy == NULL)
		return false;
	*copy = *node;
	copy->body = *body;
	return true;
}

static bool split_repeat(struct split *s, const struct graph_node *node)
{
	struct split_scope inner = {.outer = s->scope, .loop = node};
	strmap_init(&inner.crossed, s->arena);
	enter_loop(s, &node->body);
	s->scope = &inner;
	bool ok = split_body(s, &node->body);
	s->scope = inner.outer;
	return ok && push_loop(s, &s->scope->encode, node, &inner.encode) &&
	       push_loop(s, &s->scope->decode, node, &inner.decode);
}

static bool split_body(struct split *s, const struct graph_body *body)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		if (!(node->kind == GRAPH_REPEAT ? split_repeat(s, node) : split_statement(s, node)))
			return false;
	}
	return true;
}

static void start_levels(struct split *s)
{
	const struct frontend_model *m = s->m;
	for (size_t i = 0; i < m->inputs.n; i++) {
		bool tokens = (int)i == m->tokens || m->inputs.items[m->tokens].lengths_at == (int)i;
		set_level(s, m->inputs.items[i].name, tokens ? LEVEL_TOKENS : LEVEL_SOURCE);
	}
}

bool split_graph(struct frontend_model *m, struct split_result *out)
{
	struct split s = {.m = m, .arena = &m->arena};
	struct split_scope top = {.outer = NULL};
	size_t n = m->outputs.n;
	strmap_init(&s.level, s.arena);
	strmap_init(&s.states, s.arena);
	strmap_init(&top.crossed, s.arena);
	s.scope = &top;
	start_levels(&s);
	*out = (struct split_result){.encode_outputs = ARENA_ARRAY(s.arena, const char *, n),
	                             .encode_index = ARENA_ARRAY(s.arena, size_t, n)};
	if (out->encode_outputs == NULL || out->encode_index == NULL || !split_body(&s, &m->graph))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (level_of_name(&s, m->outputs.items[i].value) == LEVEL_TOKENS)
			continue;
		out->encode_outputs[out->n_encode_outputs] = m->outputs.items[i].value;
		out->encode_index[out->n_encode_outputs++] = i;
	}
	out->encode =
	        graph_prune(s.arena, &top.encode, out->encode_outputs, out->n_encode_outputs, "state_put");
	out->decode = top.decode;
	return true;
}
