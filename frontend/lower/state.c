/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State: caches of sdpa and what a seq2seq model's first part leaves for the
 * second. Types are recorded by a pass without state, because the states are
 * parameters of the function that uses them.
 */
#include <string.h>

#include "frontend/lower/lower.h"

static bool is_recorded(const struct lowering *lw, const char *name)
{
	for (size_t i = 0; i < lw->types->n; i++)
		if (strcmp(lw->types->items[i].name, name) == 0)
			return true;
	return false;
}

bool lower_record_state(struct lowering *lw, const char *pattern, const struct state_type *slice)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	const char *name = lower_indexed(lw, pattern, loops, &n);
	if (name == NULL)
		return false;
	if ((size_t)slice->rank + n > IR_RANK_MAX || slice->rank < 1)
		return lower_fail(lw, LOC_NONE, DIAG_LIMIT, "the state '%s' has too many axes", name);
	if (is_recorded(lw, name))
		return lower_fail(lw, LOC_NONE, DIAG_GENERATE, "two caches are called '%s'", name);
	struct state_type *t = ARENA_PUSH(lw->arena, lw->types);
	if (t == NULL)
		return false;
	*t = *slice;
	t->name = name;
	t->rank = slice->rank + (int)n;
	for (int i = slice->rank - 1; i >= 1; i--)
		t->dims[i + (int)n] = slice->dims[i];
	for (size_t i = 0; i < n; i++)
		t->dims[i + 1] = ir_dim_const(lw->module->dims, loops[i]->node->count);
	return true;
}

struct lower_state *lower_find_state(struct lowering *lw, const char *name)
{
	for (size_t i = 0; i < lw->states.n; i++) {
		if (strcmp(lw->states.items[i].name, name) == 0)
			return &lw->states.items[i];
	}
	lower_fail(lw, LOC_NONE, DIAG_INTERNAL, "no state is called '%s'", name);
	return NULL;
}

const char *lower_cache_state(struct lowering *lw, const char *cache, size_t part)
{
	static const char *const ends[LOWER_CACHE_PARTS] = {"k", "v", "k_scale", "v_scale"};
	return arena_printf(lw->arena, "%s.%s", cache, ends[part]);
}

/* ---- which states a body uses ---- */

static bool add_name(struct lowering *lw, struct names_list *out, const char *pattern)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	const char *name = lower_indexed(lw, pattern, loops, &n);
	for (size_t i = 0; name != NULL && i < out->n; i++) {
		if (strcmp(out->items[i], name) == 0)
			return true;
	}
	const char **slot = name == NULL ? NULL : ARENA_PUSH(lw->arena, out);
	if (slot != NULL)
		*slot = name;
	return slot != NULL;
}

/* Those that the cache has: scales only where it keeps int8. */
static bool add_cache(struct lowering *lw, const char *cache, struct names_list *out)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	bool ok = true;
	for (size_t i = 0; ok && i < LOWER_CACHE_PARTS; i++) {
		const char *part = lower_cache_state(lw, cache, i),
		           *name = lower_indexed(lw, part, loops, &n);
		ok = name != NULL && (!is_recorded(lw, name) || add_name(lw, out, part));
	}
	return ok;
}

static bool expr_states(struct lowering *lw, const struct expr *e, struct names_list *out)
{
	bool ok = true;
	bool put = e->kind == EX_CALL &&
	           (strcmp(e->text, "state_put") == 0 || strcmp(e->text, "state_get") == 0);
	if (put && e->n_args > 0 && e->args[0]->kind == EX_STRING)
		ok = add_name(lw, out, e->args[0]->text);
	for (size_t i = 0; i < e->n_keywords; i++) {
		const struct expr *v = e->keywords[i].value;
		if (lw->mode == LOWER_DECODE && strcmp(e->keywords[i].name, "cache") == 0 &&
		    v->kind == EX_STRING)
			ok = ok && add_cache(lw, v->text, out);
		ok = ok && expr_states(lw, v, out);
	}
	for (size_t i = 0; ok && i < e->n_args; i++)
		ok = expr_states(lw, e->args[i], out);
	return ok;
}

bool lower_body_states(struct lowering *lw, const struct graph_body *body, struct names_list *out)
{
	bool ok = true;
	for (size_t i = 0; ok && i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		if (node->kind == GRAPH_REPEAT) {
			struct lower_loop loop = {lw->loop, node, IR_NO_VALUE};
			lw->loop = &loop;
			ok = lower_body_states(lw, &node->body, out);
			lw->loop = loop.outer;
			continue;
		}
		for (size_t v = 0; ok && v < node->st->n_values; v++)
			ok = expr_states(lw, node->st->values[v], out);
	}
	return ok;
}

/* ---- statements of split bodies ---- */

/* How a value is kept: the axis of sequences first, rows of it as an axis of their own. */
struct kept {
	int axis; /* that comes first; -1: none, the first axis is divided */
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
};

static bool plan_kept(struct lowering *lw, int rank, const struct ir_dim *const *dims, struct kept *out)
{
	struct ir_dims *table = lw->module->dims;
	const struct ir_dim *batch = lower_dim(lw, lw->m->inputs.items[lw->m->tokens].dims[0]);
	*out = (struct kept){.axis = rank - 1, .rank = rank};
	while (out->axis >= 0 && dims[out->axis] != batch)
		out->axis--;
	out->dims[0] = batch;
	for (int i = 0, to = 1; out->axis >= 0 && i < rank; i++) {
		if (i != out->axis)
			out->dims[to++] = dims[i];
	}
	if (out->axis >= 0)
		return true;
	out->dims[1] = rank == 0 || rank == IR_RANK_MAX ? NULL : ir_dim_divide(table, dims[0], batch);
	out->rank = rank + 1;
	for (int i = 1; out->dims[1] != NULL && i < rank; i++)
		out->dims[i + 1] = dims[i];
	return out->dims[1] != NULL;
}

static bool record_put(const struct call *c, const char *name, const struct ir_type *t, const struct kept *k)
{
	struct lowering *lw = c->lw;
	struct state_type slice = {.dtype = t->dtype, .rank = k->rank, .loc = lw->loc, .kept_rank = t->rank};
	for (int i = 0; i < t->rank; i++)
		slice.kept[i] = t->dims[i];
	for (int i = 0; i < k->rank; i++) {
		bool constant = i == 0 || ir_dim_is_const(k->dims[i], NULL);
		slice.dims[i] =
		        constant ? k->dims[i]
		                 : ir_dim_const(lw->module->dims, ir_dim_hi(lw->module->dims, k->dims[i]));
	}
	return lower_record_state(lw, name, &slice);
}

bool lower_state_put(const struct call *c, struct lval *out)
{
	struct lowering *lw = c->lw;
	const char *pattern = "";
	struct ir_value x;
	struct kept k;
	if (!call_word(c, "name", &pattern) || !call_tensor(c, "x", &x))
		return false;
	const struct ir_type *t = irb_type(lw->b, x);
	*out = lval_tensor(x);
	if (!plan_kept(lw, t->rank, t->dims, &k))
		return lower_fail(
		        lw, LOC_NONE, DIAG_UNSUPPORTED,
		        "not supported yet: %s of the source is used beside the tokens, and has no axis "
		        "of sequences",
		        type_text(lw, x));
	if (lw->mode == LOWER_PROBE)
		return record_put(c, pattern, t, &k);
	const struct lower_loop *loops[IR_RANK_MAX];
	struct ir_value in[2 + IR_RANK_MAX];
	size_t n;
	const char *name = lower_indexed(lw, pattern, loops, &n);
	struct lower_state *state = name == NULL ? NULL : lower_find_state(lw, name);
	if (state == NULL)
		return false;
	in[0] = state->value;
	in[1] = k.axis < 0 ? irb_reshape_to(lw->b, x, k.rank, k.dims) : lower_axis_first(lw, x, k.axis);
	lower_index_operands(loops, n, in + 2);
	state->value = irb_op1(lw->b, OP_state_write, in, 2 + n, NULL);
	return !irb_failed(lw->b);
}

/* The value as it was put: the part of its room that the source has. */
static bool unkeep(struct lowering *lw, const char *name, struct ir_value *x)
{
	const struct state_type *s = lw->types->items;
	const struct ir_dim *dims[IR_RANK_MAX];
	struct kept k;
	while (strcmp(s->name, name) != 0)
		s++;
	for (int i = 0; i < s->kept_rank; i++)
		dims[i] = lower_source_dim(lw, s->kept[i]);
	if (!plan_kept(lw, s->kept_rank, dims, &k))
		return false;
	for (int i = 1; i < k.rank; i++)
		*x = irb_slice_of(lw->b, *x, i, ir_dim_const(lw->module->dims, 0), k.dims[i]);
	if (irb_failed(lw->b))
		return false;
	*x = k.axis < 0 ? irb_reshape_to(lw->b, *x, s->kept_rank, dims) : lower_axes_back(lw, *x, 1, k.axis);
	return !irb_failed(lw->b);
}

bool lower_state_get(const struct call *c, struct lval *out)
{
	struct lowering *lw = c->lw;
	const char *pattern = "";
	const struct lower_loop *loops[IR_RANK_MAX];
	struct ir_value in[1 + IR_RANK_MAX], results[2];
	size_t n;
	if (!call_word(c, "name", &pattern))
		return false;
	const char *name = lower_indexed(lw, pattern, loops, &n);
	struct lower_state *state = name == NULL ? NULL : lower_find_state(lw, name);
	if (state == NULL)
		return false;
	in[0] = state->value;
	lower_index_operands(loops, n, in + 1);
	irb_op(lw->b, OP_state_read, in, 1 + n, NULL, results, 2);
	state->value = results[1];
	if (irb_failed(lw->b) || !unkeep(lw, name, &results[0]))
		return false;
	*out = lval_tensor(results[0]);
	return true;
}
