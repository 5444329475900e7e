/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts the graph of a seq2seq model between the part that does not depend on the tokens (encode) and the rest
 * (decode), by forward dependence analysis: every name has a level, constant < source < tokens. A source value
 * read by a statement of level tokens crosses over where it is defined: `state_put("s", x)`, then
 * `x = state_get("s")`. encode is the backward slice from the puts, decode the one from the logits, which ends at
 * the gets (graph_prune); run has all statements and no states, and determines their types. A source
 * subexpression inside a tokens statement is hoisted, so that encode computes it once.
 *
 * With a reduced-precision KV cache, keys and values of cross attention cross in the format of the cache, so
 * that states are small; run rounds them in the same way. The same holds for compute: bf16: values read from a
 * state are not rounded again for the products of attention (lower_sdpa.c).
 *
 * INVARIANT: a loop appears in both parts with the same count, so that a state indexed by the loop has one
 * entry for each iteration.
 *
 * A scope is the top of the graph or a repeat, with its statements so far; s->scope is the innermost one. Without
 * memory functions return their input; split_encode_decode() checks the arena at the end.
 */
#include <string.h>

#include "frontend/lower/lower.h"

enum level { LEVEL_CONST, LEVEL_SOURCE, LEVEL_TOKENS };

struct split_scope {
	struct split_scope *outer;
	const struct graph_node *loop; /* NULL at the top */
	const char *const *targets;    /* names that the loop assigns */
	size_t n_targets;
	size_t id; /* from 1 */
	struct graph_body body;
};

/* A name of the graph, an input, a dim of the tokens, or a name that the split introduces. */
struct split_name {
	enum level level;
	struct split_scope *scope; /* introduced names: the scope that defines it; else NULL */
	const char *state;         /* introduced names: last component of the name of its state; else NULL */
	size_t crossed;    /* id of the scope in which its value has been read from a state; 0: none */
	size_t converted;  /* id of the scope in which kv are its value in the cache format; 0: none */
	const char *kv[2]; /* of int8 quants and scales */
	size_t n_kv;
};

struct split {
	struct frontend_model *m;
	struct arena *arena;
	struct strmap names;     /* name -> struct split_name * */
	struct strmap states;    /* names of states without the names of indices */
	struct split_name spare; /* without memory: any name */
	struct split_scope *scope;
	size_t n_scopes;
};

/* The properties of a name, which is added if it is new. */
static struct split_name *name_info(struct split *s, const char *name)
{
	struct split_name *n = strmap_get(&s->names, name);
	if (n != NULL)
		return n;
	n = ARENA_NEW(s->arena, struct split_name);
	return n != NULL && strmap_set(&s->names, name, n) ? n : &s->spare;
}

static enum level level_of_name(const struct split *s, const char *name)
{
	const struct split_name *n = strmap_get(&s->names, name);
	return n == NULL ? LEVEL_CONST : n->level;
}

/* The highest level of the names in e. */
static enum level level_of(const struct split *s, const struct expr *e)
{
	enum level l = e->kind == EX_NAME ? level_of_name(s, e->text) : LEVEL_CONST;
	for (size_t i = 0; i < expr_n_children(e); i++) {
		enum level a = level_of(s, expr_child(e, i));
		l = a > l ? a : l;
	}
	return l;
}

/* The highest level of the values of a statement. */
static enum level statement_level(const struct split *s, const struct expr_statement *st)
{
	enum level l = LEVEL_CONST;
	for (size_t i = 0; i < st->n_values; i++) {
		enum level a = level_of(s, st->values[i]);
		l = a > l ? a : l;
	}
	return l;
}

/* Computes the levels of names after a body, whose repeats run once here: propagate_loop_levels() repeats this until
   the levels that an iteration gives to the next are known. */
static void propagate_levels(struct split *s, const struct graph_body *body)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		if (node->kind == GRAPH_REPEAT) {
			propagate_levels(s, &node->body);
			continue;
		}
		enum level level = statement_level(s, node->st);
		for (size_t k = 0; k < node->st->n_targets; k++)
			name_info(s, node->st->targets[k].name)->level = level;
	}
}

/* Fixed point of the levels of loop-carried names: a level at the end of the body that is higher than at the start,
 * of a name that the body reads first, rises at the start. Others get their level of before back. */
static void propagate_loop_levels(struct split *s, const struct split_scope *scope)
{
	const struct graph_body *body = &scope->loop->body;
	enum level *before = ARENA_ARRAY(s->arena, enum level, scope->n_targets + 1);
	bool rose = before != NULL;
	while (rose && !arena_failed(s->arena)) {
		rose = false;
		for (size_t i = 0; i < scope->n_targets; i++)
			before[i] = level_of_name(s, scope->targets[i]);
		propagate_levels(s, body);
		for (size_t i = 0; i < scope->n_targets; i++) {
			struct split_name *info = name_info(s, scope->targets[i]);
			bool rises = info->level > before[i] &&
			             graph_first_use(body, 0, scope->targets[i]) == GRAPH_READ;
			rose = rose || rises;
			info->level = rises ? info->level : before[i];
		}
	}
}

/* ---- crossing ---- */

/* The scope whose statements define the current value of a name: that of an introduced name is stored; else the
 * innermost loop that assigns it, or the top. */
static struct split_scope *defining_scope(const struct split *s, const char *name)
{
	struct split_scope *scope = s->scope;
	const struct split_name *info = strmap_get(&s->names, name);
	if (info != NULL && info->scope != NULL)
		return info->scope;
	for (; scope->loop != NULL; scope = scope->outer) {
		for (size_t i = 0; i < scope->n_targets; i++) {
			if (strcmp(scope->targets[i], name) == 0)
				return scope;
		}
	}
	return scope;
}

/* The pattern with loop indices reduced to "{}", by which names of states are compared: those that differ only in the
   index variable are the same name in an iteration, and would collide. */
static const char *drop_index_names(struct split *s, const char *pattern)
{
	struct buf text;
	buf_init(&text);
	for (const char *p = pattern; *p != '\0'; p++) {
		buf_char(&text, *p);
		p += *p == '{' ? strcspn(p, "}") - 1 : 0;
	}
	const char *copy = arena_strdup(s->arena, text.data);
	buf_destroy(&text);
	return copy;
}

/* An unused name for the state of a value: below the path of the statement that reads it, if that is in the loop
 * that defines it; else with an index for each loop of its scope. */
static const char *state_name(struct split *s, const struct split_scope *scope, const struct graph_node *node,
                              const char *name)
{
	const struct split_name *info = name_info(s, name);
	name = info->state == NULL ? name : info->state;
	bool here = scope == s->scope && scope->loop != NULL && node->loc.path != NULL &&
	            node->loc.path[0] != '\0';
	const char *base = here ? arena_printf(s->arena, "%s.%s", node->loc.path, name) : name;
	for (const struct split_scope *c = scope; !here && c->loop != NULL; c = c->outer)
		base = arena_printf(s->arena, "%s.{%s}", base, c->loop->as);
	const char *unique = base;
	for (int i = 2; strmap_has(&s->states, drop_index_names(s, unique)); i++)
		unique = arena_printf(s->arena, "%s.%d", base, i);
	strmap_set(&s->states, drop_index_names(s, unique), s);
	return unique;
}

static bool is_call(const struct expr *e, const char *name)
{
	return e->kind == EX_CALL && strcmp(e->text, name) == 0;
}

/* Makes a source value available to decode, by a state, in the scope that defines it: decode keeps the state_get,
 * encode the state_put. Once per scope and definition (`crossed`, which an assignment resets). */
static void cross_value(struct split *s, const struct graph_node *node, const char *name)
{
	struct split_scope *scope = defining_scope(s, name);
	struct split_name *info = name_info(s, name);
	struct loc at = node->loc.at;
	if (info->crossed == scope->id)
		return;
	info->crossed = scope->id;
	const struct expr *const args[] = {
	        expr_make_leaf(s->arena, EX_STRING, state_name(s, scope, node, name), at),
	        expr_make_leaf(s->arena, EX_NAME, name, at)};
	graph_push_assignment(s->arena, &scope->body, node->loc, NULL, 0,
	                      expr_make_call(s->arena, "state_put", at, args, 2));
	graph_push_assignment(s->arena, &scope->body, node->loc, &name, 1,
	                      expr_make_call(s->arena, "state_get", at, args, 1));
}

/* Crosses every source name that the expression reads. */
static void cross_reads(struct split *s, const struct graph_node *node, const struct expr *e)
{
	if (e->kind == EX_NAME && level_of_name(s, e->text) == LEVEL_SOURCE)
		cross_value(s, node, e->text);
	for (size_t i = 0; i < expr_n_children(e); i++)
		cross_reads(s, node, expr_child(e, i));
}

/* Introduces a name BEGIN_`name` of level source, unused in the graph, defined in the scope. state: last component of
 * its state's name; NULL: the name itself. */
static const char *derive_name(struct split *s, struct split_scope *scope, const char *begin,
                               const char *name, const char *state)
{
	const char *base = arena_printf(s->arena, "%s_%s", begin, name), *unique = base;
	for (int i = 2; strmap_has(&s->names, unique); i++)
		unique = arena_printf(s->arena, "%s_%d", base, i);
	struct split_name *info = name_info(s, unique);
	info->level = LEVEL_SOURCE;
	info->scope = scope;
	info->state = state == NULL ? unique : state;
	return unique;
}

/* ---- rewriting of statements ---- */

struct rewriting {
	struct split *s;
	const struct graph_node *node;
};

/* True if the expression is sdpa(q, k, v, ..). */
static bool is_sdpa(const struct expr *e)
{
	return is_call(e, "sdpa") && e->n_args >= 3;
}

/* A copy of sdpa with fn applied to keys and values, arguments 1 and 2; the call itself if the arena has failed. */
static const struct expr *map_keys_and_values(struct rewriting *r, const struct expr *e, expr_map_fn *fn)
{
	struct expr *copy = ARENA_NEW(r->s->arena, struct expr);
	const struct expr **args = ARENA_ARRAY(r->s->arena, const struct expr *, e->n_args);
	if (copy == NULL || args == NULL)
		return e;
	*copy = *e;
	copy->args = args;
	for (size_t i = 0; i < e->n_args; i++)
		args[i] = i == 1 || i == 2 ? fn(r, e->args[i]) : e->args[i];
	return arena_failed(r->s->arena) ? e : copy;
}

/* A copy of the statement with fn applied to its values (expr_map); the statement itself without memory. */
static const struct expr_statement *rewrite_statement(struct split *s, const struct graph_node *node,
                                                      const struct expr_statement *st, expr_map_fn *fn)
{
	struct expr_statement *copy = ARENA_NEW(s->arena, struct expr_statement);
	const struct expr **values = ARENA_ARRAY(s->arena, const struct expr *, st->n_values);
	struct rewriting r = {s, node};
	if (copy == NULL || values == NULL || arena_failed(s->arena))
		return st;
	*copy = *st;
	copy->values = values;
	for (size_t i = 0; i < st->n_values; i++)
		values[i] = expr_map(s->arena, st->values[i], fn, &r);
	return copy;
}

/* ---- hoisting of source expressions ---- */

/* True for names and views of them, which are too cheap to be worth a state. */
static bool is_view_only(const struct expr *e)
{
	static const char *const calls[] = {"reshape", "transpose", "broadcast", "slice", "identity"};
	bool moves = e->kind != EX_CALL && e->kind != EX_BINARY && e->kind != EX_UNARY;
	for (size_t i = 0; e->kind == EX_CALL && !moves && i < TFMC_COUNT(calls); i++)
		moves = is_call(e, calls[i]);
	return moves && (e->n_args == 0 || is_view_only(e->args[0]));
}

/* The outermost scope in which the expression has the same value: the innermost of the scopes of its children, each
 * of which is an ancestor of s->scope or s->scope itself. */
static struct split_scope *scope_of(const struct split *s, const struct expr *e)
{
	struct split_scope *inner = s->scope, *found;
	while (inner->outer != NULL)
		inner = inner->outer;
	if (e->kind == EX_NAME && level_of_name(s, e->text) != LEVEL_CONST)
		return defining_scope(s, e->text);
	if (e->kind == EX_NAME && strmap_has(&s->names, e->text))
		return s->scope; /* a constant may change from iteration to iteration */
	/* a path */
	for (found = s->scope; e->kind == EX_STRING && found->loop != NULL; found = found->outer) {
		if (has_index(s->arena, e->text, found->loop->as))
			return found;
	}
	for (size_t i = 0; i < expr_n_children(e); i++) {
		found = scope_of(s, expr_child(e, i));
		for (struct split_scope *c = found; c != NULL; c = c->outer)
			inner = c == inner ? found : inner; /* found is inside of inner */
	}
	return inner;
}

/* Assigns the expression to a new name in the scope in which it has the same value, and returns that name. */
static const struct expr *hoist_expr(struct rewriting *r, const struct expr *e)
{
	struct split *s = r->s;
	struct split_scope *scope = scope_of(s, e);
	const char *name = derive_name(s, scope, "source", r->node->st->targets[0].name, NULL);
	graph_push_assignment(s->arena, &scope->body, r->node->loc, &name, 1, e);
	return expr_make_leaf(s->arena, EX_NAME, name, e->loc);
}

static const struct expr *hoist_keys_or_values(void *user, const struct expr *e)
{
	struct rewriting *r = user;
	return e->kind != EX_NAME && level_of(r->s, e) == LEVEL_SOURCE ? hoist_expr(r, e) : e;
}

/* Hoists the largest subexpressions that depend on the source only; keys and values of sdpa even if they are
 * views, so that they can cross in the cache format. */
static const struct expr *hoist_source_exprs(void *user, const struct expr *e)
{
	struct rewriting *r = user;
	if (level_of(r->s, e) == LEVEL_SOURCE && e->kind != EX_NAME && e->kind != EX_LIST)
		return is_view_only(e) ? e : hoist_expr(r, e);
	if (!is_sdpa(e))
		return NULL;
	return expr_map_children(r->s->arena, map_keys_and_values(r, e, hoist_keys_or_values),
	                         hoist_source_exprs, r);
}

/* ---- cross attention in the format of the KV cache ---- */

/* Appends the conversion of `name` to the cache format to its defining scope, once per scope and definition
 * (`converted`): quants, and for int8 their scales, which cross as states of their own. */
static const struct split_name *convert_name(struct split *s, const struct graph_node *node, const char *name)
{
	struct split_scope *scope = defining_scope(s, name);
	struct split_name *info = name_info(s, name);
	if (info->converted == scope->id)
		return info;
	const char *state = info->state == NULL ? name : info->state;
	info->converted = scope->id;
	info->n_kv = 0;
	info->kv[info->n_kv++] = derive_name(s, scope, "narrow", name, state);
	if (s->m->dtypes.cache == DT_I8)
		info->kv[info->n_kv++] =
		        derive_name(s, scope, "scale", name, arena_printf(s->arena, "%s_scale", state));
	const struct expr *x = expr_make_leaf(s->arena, EX_NAME, name, node->loc.at);
	graph_push_assignment(s->arena, &scope->body, node->loc, info->kv, info->n_kv,
	                      expr_make_call(s->arena, "quantize_kv", node->loc.at, &x, 1));
	return info;
}

/* Replaces the name of keys or values of the source by dequantize_kv(converted names). */
static const struct expr *dequantize_keys_or_values(void *user, const struct expr *e)
{
	struct rewriting *r = user;
	const struct expr *names[2];
	if (e->kind != EX_NAME || level_of_name(r->s, e->text) != LEVEL_SOURCE)
		return e;
	const struct split_name *info = convert_name(r->s, r->node, e->text);
	for (size_t i = 0; i < info->n_kv; i++)
		names[i] = expr_make_leaf(r->s->arena, EX_NAME, info->kv[i], e->loc);
	return expr_make_call(r->s->arena, "dequantize_kv", e->loc, names, info->n_kv);
}

static bool has_keyword(const struct expr *e, const char *name)
{
	for (size_t i = 0; i < e->n_keywords; i++) {
		if (strcmp(e->keywords[i].name, name) == 0)
			return true;
	}
	return false;
}

/* Rewrites sdpa over keys and values of the source to read them from the cache format. */
static const struct expr *quantize_sdpa_inputs(void *user, const struct expr *e)
{
	struct rewriting *r = user;
	if (!is_sdpa(e) || has_keyword(e, "cache"))
		return NULL;
	e = expr_map_children(r->s->arena, e, quantize_sdpa_inputs, r);
	return arena_failed(r->s->arena) ? e : map_keys_and_values(r, e, dequantize_keys_or_values);
}

/* ---- traversal ---- */

/* Splits a statement of level tokens: hoists source expressions, crosses the source values it reads. */
static void split_tokens(struct split *s, const struct graph_node *node)
{
	bool uses_cache_format = s->m->dtypes.cache != DT_F32 || s->m->dtypes.compute == COMPUTE_BF16;
	const struct expr_statement *st = rewrite_statement(s, node, node->st, hoist_source_exprs);
	if (uses_cache_format)
		st = rewrite_statement(s, node, st, quantize_sdpa_inputs);
	for (size_t i = 0; !arena_failed(s->arena) && i < st->n_values; i++)
		cross_reads(s, node, st->values[i]);
	graph_push_statement(s->arena, &s->scope->body, node->loc, st);
}

/* Adds a statement; those of level tokens get what they need of the source before them. Its targets have a new
 * definition, which has not crossed. */
static void split_statement(struct split *s, const struct graph_node *node)
{
	enum level level = statement_level(s, node->st);
	if (level == LEVEL_TOKENS)
		split_tokens(s, node);
	else
		graph_push_statement(s->arena, &s->scope->body, node->loc, node->st);
	for (size_t i = 0; i < node->st->n_targets; i++) {
		struct split_name *info = name_info(s, node->st->targets[i].name);
		info->level = level;
		info->crossed = info->converted = 0;
	}
}

/* Adds the nodes of a body to the current scope, with what their statements need of the source. */
static void split_body(struct split *s, const struct graph_body *body)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		if (node->kind == GRAPH_STATEMENT) {
			split_statement(s, node);
			continue;
		}
		struct split_scope inner = {.outer = s->scope, .loop = node, .id = ++s->n_scopes};
		inner.targets = graph_targets(s->arena, &node->body, &inner.n_targets);
		propagate_loop_levels(s, &inner);
		s->scope = &inner;
		split_body(s, &node->body);
		s->scope = inner.outer;
		struct graph_node *copy = graph_push(s->arena, &s->scope->body, GRAPH_REPEAT, node->loc);
		if (copy == NULL)
			return;
		*copy = *node;
		copy->body = inner.body;
	}
}

/* Adds the names of the graph, which introduced ones must not have, and the levels of inputs and dims. A dim of the
 * tokens alone differs between encode and decode, so what reads it is of the tokens. */
static void init_names(struct split *s, const struct graph_body *graph)
{
	const struct frontend_model *m = s->m;
	size_t n;
	const char *const *names = graph_targets(s->arena, graph, &n);
	for (size_t i = 0; i < n; i++)
		name_info(s, names[i]);
	for (size_t i = 0; i < m->inputs.n; i++) {
		bool tokens = (int)i == m->tokens || m->inputs.items[m->tokens].lengths_at == (int)i;
		name_info(s, m->inputs.items[i].name)->level = tokens ? LEVEL_TOKENS : LEVEL_SOURCE;
	}
	for (size_t i = 0; i < ir_dims_count(m->scope.dims); i++) {
		if (lower_dim_owner(m, (int)i) == DIM_OF_TOKENS)
			name_info(s, ir_dims_sym(m->scope.dims, i)->name)->level = LEVEL_TOKENS;
	}
}

bool split_encode_decode(struct frontend_model *m, const struct graph_body *graph, struct split_result *out)
{
	struct split_scope top = {.id = 1};
	struct split s = {.m = m, .arena = &m->arena, .scope = &top, .n_scopes = 1};
	bool *of_source = ARENA_ARRAY(s.arena, bool, m->outputs.n);
	strmap_init(&s.names, s.arena);
	strmap_init(&s.states, s.arena);
	init_names(&s, graph);
	split_body(&s, graph);
	for (size_t i = 0; of_source != NULL && i < m->outputs.n; i++)
		of_source[i] = level_of_name(&s, m->outputs.items[i].value) != LEVEL_TOKENS;
	*out = (struct split_result){top.body, of_source};
	return of_source != NULL && !arena_failed(s.arena);
}
