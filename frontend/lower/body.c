/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements and repeats to IR: binding of names, loop-carried values, states threaded through loops.
 * A target is a name that a statement assigns; a loop-carried value passes from one iteration to the next. Types are
 * interned: equal types are the same pointer.
 */
#include <string.h>

#include "frontend/lower/lower.h"

void lower_bind(struct lowering *lw, const char *name, const struct lowered *v)
{
	struct lowered *copy = ARENA_NEW(lw->arena, struct lowered);
	if (copy == NULL)
		return;
	*copy = *v;
	strmap_set(&lw->vars, name, copy);
}

const struct lowered *lower_find(const struct lowering *lw, const char *name)
{
	return strmap_get(&lw->vars, name);
}

/* ---- statements ---- */

/* Binds one target to a value. Inputs, dims and params cannot be assigned. A string is a name that eval_scalar did
 * not find, or a word, which only arguments can be; it is reported as an unknown name. False after a report. */
static bool bind_target(struct lowering *lw, const struct expr_target *t, struct lowered *v)
{
	/* in decode an input of the source is no parameter (unbound): its state_get assigns it */
	bool input = model_find_input(&lw->m->inputs, t->name) >= 0 && lower_find(lw, t->name) != NULL;
	if (input || model_is_param_or_dim(&lw->m->scope, t->name))
		return lower_fail(lw, t->loc, DIAG_NAME_CLASH,
		                  "'%s' is an input, dim or param and cannot be assigned", t->name);
	if (v->kind == LOWERED_SCALAR && v->s.kind == VALUE_STRING)
		return lower_fail(lw, t->loc, DIAG_UNKNOWN_VALUE, "no value is called '%s' here", v->s.s);
	if (v->kind == LOWERED_TUPLE)
		return lower_fail(lw, t->loc, DIAG_STATEMENT, "one name for %zu values", v->n);
	if (v->kind == LOWERED_TENSOR)
		irb_name(lw->b, v->v, t->name);
	lower_bind(lw, t->name, v);
	return true;
}

/* Lowers the values of a statement and binds its targets; one call may return a tuple. False after a report. */
static bool lower_statement(struct lowering *lw, const struct expr_statement *st)
{
	const struct expr *first = st->n_values > 0 ? st->values[0] : NULL;
	bool is_get = first != NULL && first->kind == EX_CALL && strcmp(first->text, "state_get") == 0;
	if (is_get && lw->mode != LOWER_DECODE) /* the name has the value that was put */
		return true;
	struct lowered *v = ARENA_ARRAY(lw->arena, struct lowered, st->n_values + 1);
	if (v == NULL)
		return false;
	for (size_t i = 0; i < st->n_values; i++) {
		if (!lower_expr(lw, st->values[i], &v[i]))
			return false;
	}
	const struct lowered *values = v;
	size_t n = st->n_values;
	if (n == 1 && v[0].kind == LOWERED_TUPLE) {
		values = v[0].items;
		n = v[0].n;
	}
	if (n != st->n_targets)
		return lower_fail(lw, st->loc, DIAG_STATEMENT, "%zu names for %zu values", st->n_targets, n);
	for (size_t i = 0; i < n; i++) {
		struct lowered value = values[i];
		if (!bind_target(lw, &st->targets[i], &value))
			return false;
	}
	return true;
}

/* ---- repeats ---- */

struct carries {
	const char **names; /* tensors */
	struct ir_value *init;
	const struct ir_type **types;
	size_t n;
	struct names_list states;
	const char *const *targets;
	size_t n_targets;
};

/* Liveness: true if a name is read after the current node before it is written, in the remaining nodes of its body,
 * the next iteration of the loop, the bodies around it, or at last as an output. */
static bool live_after(const struct lowering *lw, const char *name)
{
	for (const struct lower_frame *f = lw->frame; f != NULL; f = f->outer) {
		enum graph_use use = graph_first_use(f->body, f->at + 1, name);
		/* the next iteration reads from the start of the body */
		if (use == GRAPH_UNUSED && f->loop)
			use = graph_first_use(f->body, 0, name) == GRAPH_READ ? GRAPH_READ : GRAPH_UNUSED;
		if (use != GRAPH_UNUSED)
			return use == GRAPH_READ;
	}
	for (size_t i = 0; i < lw->n_outputs; i++) {
		if (strcmp(lw->outputs[i], name) == 0)
			return true;
	}
	return false;
}

/* Finds the loop-carried values of a repeat: names the body reads before it writes them or that are live after it,
 * and its states. Run and type inference have no states. lw->loop is that of the repeat meanwhile, as names of states
 * contain its index. False after a report, or without memory. */
static bool find_carries(struct lowering *lw, const struct graph_node *node, struct carries *c)
{
	c->targets = graph_targets(lw->arena, &node->body, &c->n_targets);
	c->names = ARENA_ARRAY(lw->arena, const char *, c->n_targets + 1);
	struct lower_loop loop = {lw->loop, node, IR_NO_VALUE};
	lw->loop = &loop;
	bool ok = c->names != NULL && (lw->states.n == 0 || lower_body_states(lw, &node->body, &c->states));
	lw->loop = loop.outer;
	if (!ok)
		return false;
	c->init = ARENA_ARRAY(lw->arena, struct ir_value, c->n_targets + c->states.n + 1);
	c->types = ARENA_ARRAY(lw->arena, const struct ir_type *, c->n_targets + c->states.n + 1);
	if (c->init == NULL || c->types == NULL)
		return false;
	for (size_t i = 0; i < c->n_targets; i++) {
		const char *name = c->targets[i];
		const struct lowered *v = lower_find(lw, name);
		if (graph_first_use(&node->body, 0, name) != GRAPH_READ && !live_after(lw, name))
			continue;
		if (v == NULL)
			return lower_fail(lw, node->loc.at, DIAG_UNKNOWN_VALUE,
			                  "'%s' is read before it is assigned, or after the repeat; assign "
			                  "it before the repeat",
			                  name);
		if (v->kind != LOWERED_TENSOR)
			return lower_fail(lw, node->loc.at, DIAG_UNSUPPORTED,
			                  "not supported yet: the number '%s' changes inside a repeat", name);
		c->types[c->n] = irb_type(lw->b, v->v);
		c->init[c->n] = v->v;
		c->names[c->n++] = name;
	}
	return true;
}

/* Binds carried names, then states, to the values of the loop body or to the results of the loop. */
static void bind_carries(struct lowering *lw, const struct carries *c, const struct ir_value *values)
{
	for (size_t i = 0; i < c->n; i++) {
		struct lowered v = lowered_tensor(values[i]);
		lower_bind(lw, c->names[i], &v);
	}
	for (size_t i = 0; i < c->states.n; i++) {
		struct lower_state *s = lower_find_state(lw, c->states.items[i]);
		if (s != NULL)
			s->value = values[c->n + i];
	}
}

/* The loop-carried values at the end of the body, with which the next iteration begins: each must still have the type
 * that it had before the loop. */
static bool collect_yields(struct lowering *lw, const struct carries *c, struct ir_value *yields)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct lowered *v = lower_find(lw, c->names[i]);
		if (v == NULL)
			return false;
		if (v->kind != LOWERED_TENSOR)
			return lower_fail(lw, LOC_NONE, DIAG_SHAPE,
			                  "'%s' is %s before a repeat and a number at the end of its body",
			                  c->names[i], type_to_string(lw, c->init[i]));
		if (irb_type(lw->b, v->v) != c->types[i])
			return lower_fail(lw, LOC_NONE, DIAG_SHAPE,
			                  "'%s' changes its type inside a repeat to %s", c->names[i],
			                  type_to_string(lw, v->v));
		yields[i] = v->v;
	}
	for (size_t i = 0; i < c->states.n; i++) {
		struct lower_state *s = lower_find_state(lw, c->states.items[i]);
		if (s == NULL)
			return false;
		yields[c->n + i] = s->value;
	}
	return true;
}

/* Lowers a repeat to the IR op repeat with loop-carried values and states. args: in the body the index, then the
   carried values and states; after it the results, without an index. */
static bool lower_repeat(struct lowering *lw, const struct graph_node *node)
{
	struct carries c = {.n = 0};
	if (!find_carries(lw, node, &c))
		return false;
	for (size_t i = 0; i < c.states.n; i++) {
		struct lower_state *s = lower_find_state(lw, c.states.items[i]);
		if (s == NULL)
			return false;
		c.init[c.n + i] = s->value;
	}
	size_t total = c.n + c.states.n;
	struct ir_value *args = ARENA_ARRAY(lw->arena, struct ir_value, total + 1);
	struct ir_value *yields = ARENA_ARRAY(lw->arena, struct ir_value, total + 1);
	if (args == NULL || yields == NULL)
		return false;
	irb_repeat_begin(lw->b, node->count, c.init, total, args);
	if (irb_failed(lw->b))
		return false;
	irb_name(lw->b, args[0], node->as);
	struct lower_loop loop = {lw->loop, node, args[0]};
	lw->loop = &loop;
	bind_carries(lw, &c, args + 1);
	bool ok = lower_body(lw, &node->body, true) && collect_yields(lw, &c, yields);
	lw->loop = loop.outer;
	if (!ok)
		return false;
	irb_repeat_end(lw->b, yields, total, args);
	/* names of the body are unbound after it, unless they are carried */
	for (size_t i = 0; i < c.n_targets; i++)
		strmap_set(&lw->vars, c.targets[i], NULL);
	bind_carries(lw, &c, args);
	return !irb_failed(lw->b);
}

/* Path for locations, without indices. If an index belongs to a loop that is not around (values hoisted out of
 * it), the path is truncated there. */
static const char *path_without_indices(struct lowering *lw, const char *pattern)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	const char *path = pattern == NULL ? NULL : lower_stacked_name(lw, pattern, loops, &n);
	const char *open = path == NULL ? NULL : strstr(path, ".{");
	return open == NULL ? path : arena_strndup(lw->arena, path, (size_t)(open - path));
}

bool lower_body(struct lowering *lw, const struct graph_body *body, bool loop)
{
	struct lower_frame frame = {lw->frame, body, 0, loop};
	size_t errors = lw->cx->n_errors;
	bool ok = true;
	lw->frame = &frame;
	for (size_t i = 0; ok && i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		struct ir_loc loc = {node->loc.at, path_without_indices(lw, node->loc.path)};
		frame.at = i;
		lw->loc = loc;
		irb_set_loc(lw->b, loc);
		ok = node->kind == GRAPH_REPEAT ? lower_repeat(lw, node) : lower_statement(lw, node->st);
	}
	/* The builder fails on sizes beyond its limits without a message. */
	bool has_memory = !arena_failed(lw->arena) && !arena_failed(&lw->module->arena);
	if (!ok && has_memory && lw->cx->n_errors == errors)
		lower_fail(lw, LOC_NONE, DIAG_LIMIT, "a tensor of this statement is too large");
	lw->frame = frame.outer;
	return ok;
}
