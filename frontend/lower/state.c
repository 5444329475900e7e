/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States: KV caches of sdpa, and values that encode of a seq2seq model stores for decode. States are parameters of the
 * functions that use them, so their types must be known first: LOWER_RUN records them. Also the bound on tokens of one
 * call, a dim of its own in score and with ring caches, which have rows for the window besides those of the new tokens.
 * A pattern is a name with `{i}` for the indices of enclosing repeats; the state of a pattern stacks all iterations,
 * with an axis for each loop after the batch axis (lower_stacked_name). Functions return false after a report.
 */
#include <string.h>

#include "frontend/lower/lower.h"

const struct state_type *lower_find_state_type(const struct lowering *lw, const char *name)
{
	for (size_t i = 0; i < lw->types->n; i++) {
		if (strcmp(lw->types->items[i].name, name) == 0)
			return &lw->types->items[i];
	}
	return NULL;
}

/* Records the type of a state: that of one iteration with axes for the enclosing loops after the batch axis. */
bool lower_record_state(struct lowering *lw, const char *pattern, const struct state_type *slice)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	const char *name = lower_stacked_name(lw, pattern, loops, &n);
	if (name == NULL)
		return false;
	if ((size_t)slice->rank + n > IR_RANK_MAX || slice->rank < 1)
		return lower_fail(lw, LOC_NONE, DIAG_LIMIT, "the state '%s' has too many axes", name);
	if (lower_find_state_type(lw, name) != NULL)
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

/* Adds the stacked name of a state to *out, unless *out has it: the order of first use is that of the parameters.
 * False after a report, or without memory. */
static bool add_state_name(struct lowering *lw, struct names_list *out, const char *pattern)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	const char *name = lower_stacked_name(lw, pattern, loops, &n);
	for (size_t i = 0; name != NULL && i < out->n; i++) {
		if (strcmp(out->items[i], name) == 0)
			return true;
	}
	const char **slot = name == NULL ? NULL : ARENA_PUSH(lw->arena, out);
	if (slot != NULL)
		*slot = name;
	return slot != NULL;
}

/* Adds the states of a cache. Parts without a recorded type do not exist: scales are of int8 alone. */
static bool add_cache_states(struct lowering *lw, const char *cache, struct names_list *out)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	bool ok = true;
	for (size_t i = 0; ok && i < LOWER_CACHE_PARTS; i++) {
		const char *part = lower_cache_state(lw, cache, i),
		           *name = lower_stacked_name(lw, part, loops, &n);
		ok = name != NULL &&
		     (lower_find_state_type(lw, name) == NULL || add_state_name(lw, out, part));
	}
	return ok;
}

/* Collects the states used by state_put, state_get and, in decode, by caches. encode may have both calls of a state,
 * of which it skips the second (lower_statement); decode has no state_put. */
static bool collect_expr_states(struct lowering *lw, const struct expr *e, struct names_list *out)
{
	bool ok = true;
	bool put = e->kind == EX_CALL &&
	           (strcmp(e->text, "state_put") == 0 || strcmp(e->text, "state_get") == 0);
	if (put && e->n_args > 0 && e->args[0]->kind == EX_STRING)
		ok = add_state_name(lw, out, e->args[0]->text);
	for (size_t i = 0; i < e->n_keywords; i++) {
		const struct expr *v = e->keywords[i].value;
		if (lw->mode == LOWER_DECODE && strcmp(e->keywords[i].name, "cache") == 0 &&
		    (v->kind == EX_STRING || v->kind == EX_NAME)) /* a bare word, as for call_word */
			ok = ok && add_cache_states(lw, v->text, out);
	}
	for (size_t i = 0; ok && i < expr_n_children(e); i++)
		ok = collect_expr_states(lw, expr_child(e, i), out);
	return ok;
}

/* Repeats are entered with their loop in lw->loop, as names of states may have its index. */
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
			ok = collect_expr_states(lw, node->st->values[v], out);
	}
	return ok;
}

/* ---- statements of split bodies ---- */

/* Layout of a value as a state: the batch axis first, rows of a sequence as an axis of their own. */
struct state_layout {
	int axis; /* batch axis of the value, moved to the front; -1: none, axis 0 is batch * rows and is divided */
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
};

/* Plans the layout of a value as a state, whose batch axis must be first: the last axis that is the batch is moved
 * there; else axis 0 is divided into batch and rows. False if no axis enumerates sequences. */
static bool plan_state_layout(struct lowering *lw, int rank, const struct ir_dim *const *dims,
                              struct state_layout *out)
{
	struct ir_dims *table = lw->module->dims;
	const struct ir_dim *batch = lower_batch_dim(lw);
	*out = (struct state_layout){.axis = rank - 1, .rank = rank};
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

/* Records the type of the state of a value; dynamic axes get their capacity, the largest size, but for the batch
 * axis, which calls have, too. */
static bool record_state_of(const struct call *c, const char *name, const struct ir_type *t,
                            const struct state_layout *k)
{
	struct lowering *lw = c->lw;
	struct state_type slice = {.dtype = t->dtype, .rank = k->rank, .loc = lw->loc, .value_rank = t->rank};
	for (int i = 0; i < t->rank; i++)
		slice.value_dims[i] = t->dims[i];
	for (int i = 0; i < k->rank; i++) {
		bool constant = i == 0 || ir_dim_is_const(k->dims[i], NULL);
		slice.dims[i] =
		        constant ? k->dims[i]
		                 : ir_dim_const(lw->module->dims, ir_dim_hi(lw->module->dims, k->dims[i]));
	}
	return lower_record_state(lw, name, &slice);
}

/* state_put(name, x): in encode a write to the state, in the layout of plan_state_layout(); in run only the type of
 * the state is recorded. No result. */
bool lower_state_put(const struct call *c, struct lowered *out)
{
	struct lowering *lw = c->lw;
	const char *pattern = "";
	struct ir_value x;
	struct state_layout k;
	if (!call_word(c, "name", &pattern) || !call_tensor(c, "x", &x))
		return false;
	const struct ir_type *t = irb_type(lw->b, x);
	*out = (struct lowered){.kind = LOWERED_TUPLE}; /* no values: the statement has no targets */
	if (!plan_state_layout(lw, t->rank, t->dims, &k))
		return lower_fail(
		        lw, LOC_NONE, DIAG_UNSUPPORTED,
		        "not supported yet: %s of the source is used in decode and has no axis of sequences",
		        type_to_string(lw, x));
	if (lw->mode == LOWER_RUN)
		return record_state_of(c, pattern, t, &k);
	const struct lower_loop *loops[IR_RANK_MAX];
	struct ir_value in[2 + IR_RANK_MAX];
	size_t n;
	const char *name = lower_stacked_name(lw, pattern, loops, &n);
	struct lower_state *state = name == NULL ? NULL : lower_find_state(lw, name);
	if (state == NULL)
		return false;
	in[0] = state->value;
	in[1] = k.axis < 0 ? irb_reshape_to(lw->b, x, k.rank, k.dims) : lower_axis_to_front(lw, x, k.axis);
	lower_index_operands(loops, n, in + 2);
	state->value = irb_op1(lw->b, OP_state_write, in, 2 + n, NULL);
	return !irb_failed(lw->b);
}

/* Restores the value that was stored: slices the capacity of the state to the size of the source and moves the
 * batch axis back. */
static bool restore_value_layout(struct lowering *lw, const char *name, struct ir_value *x)
{
	const struct state_type *s = lower_find_state_type(lw, name);
	const struct ir_dim *dims[IR_RANK_MAX];
	struct state_layout k;
	for (int i = 0; i < s->value_rank; i++)
		dims[i] = lower_source_dim(lw, s->value_dims[i]);
	if (!plan_state_layout(lw, s->value_rank, dims, &k))
		return false;
	for (int i = 1; i < k.rank; i++)
		*x = irb_slice_of(lw->b, *x, i, ir_dim_const(lw->module->dims, 0), k.dims[i]);
	if (irb_failed(lw->b))
		return false;
	*x = k.axis < 0 ? irb_reshape_to(lw->b, *x, s->value_rank, dims)
	                : lower_axes_from_front(lw, *x, 1, k.axis);
	return !irb_failed(lw->b);
}

/* state_get(name), decode only: the value that encode stored. */
bool lower_state_get(const struct call *c, struct lowered *out)
{
	struct lowering *lw = c->lw;
	const char *pattern = "";
	const struct lower_loop *loops[IR_RANK_MAX];
	struct ir_value in[1 + IR_RANK_MAX], results[2];
	size_t n;
	if (!call_word(c, "name", &pattern))
		return false;
	const char *name = lower_stacked_name(lw, pattern, loops, &n);
	struct lower_state *state = name == NULL ? NULL : lower_find_state(lw, name);
	if (state == NULL)
		return false;
	in[0] = state->value;
	lower_index_operands(loops, n, in + 1);
	irb_op(lw->b, OP_state_read, in, 1 + n, NULL, results, 2);
	state->value = results[1];
	if (irb_failed(lw->b) || !restore_value_layout(lw, name, &results[0]))
		return false;
	*out = lowered_tensor(results[0]);
	return true;
}

/* ---- cache capacity and tokens of a call ---- */

/* Rows of one call of score: logits of a whole sequence never exist at once, and a GEMM of 64 rows is
 * compute-bound (it is from 15 rows on). */
#define SCORE_ROWS 64

#define CACHE_ROWS 16 /* ring buffers are a multiple of a packed panel of keys */

/* ---- lengths of caches ---- */

/* Ring buffers are a multiple of CACHE_ROWS; one that would reach max_len is no ring. */
int64_t cache_rows(int64_t len, int64_t max_len)
{
	int64_t rows = (len + CACHE_ROWS - 1) / CACHE_ROWS * CACHE_ROWS;
	return len >= max_len ? len : rows < max_len ? rows : max_len;
}

/* A ring keeps the keys of the window of the first token of a call while the others are appended. */
const char *cache_len_error(struct arena *a, const struct cache_use *use, int64_t len, int64_t max_len)
{
	if (len >= max_len)
		return NULL;
	if (use->window == 0 || !use->is_causal)
		return arena_printf(
		        a,
		        "a cache of %lld positions, fewer than max_len (%lld), is for causal attention "
		        "with a window",
		        (long long)len, (long long)max_len);
	if (len >= use->window)
		return NULL;
	return arena_printf(
	        a,
	        "a cache of %lld positions is shorter than the window of %lld: calls of n tokens need "
	        "%lld + n positions",
	        (long long)len, (long long)use->window, (long long)use->window - 1);
}

/* ---- rows of a call ---- */

/* The fewest tokens that a ring cache takes in one call; INT64_MAX: no cache is a ring. */
static int64_t min_ring_call_rows(const struct state_types *types)
{
	int64_t least = INT64_MAX;
	for (size_t i = 0; i < types->n; i++)
		if (types->items[i].call_rows > 0 && types->items[i].call_rows < least)
			least = types->items[i].call_rows;
	return least;
}

/* The symbol if the dim is a single symbol, else -1. */
static int single_symbol(const struct ir_dim *d)
{
	bool is_symbol = d->n_terms == 1 && d->terms[0].coeff == 1 && d->terms[0].n_atoms == 1;
	return is_symbol ? d->terms[0].atoms[0]->sym : -1;
}

/* Declares a dim called `name`, at most max, that replaces the number of tokens d in this function (lower_dim).
 * False if d is not one symbol, or is always more than max. */
static bool bind_row_dim(struct lowering *lw, const struct ir_dim *d, const char *name, int64_t max)
{
	struct ir_dims *dims = lw->module->dims;
	const char *free = name;
	for (int i = 2; ir_dims_find(dims, free) >= 0; i++)
		free = arena_printf(lw->arena, "%s%d", name, i);
	int64_t lo = ir_dim_lo(dims, d);
	if (single_symbol(d) < 0 || lo > max || !ir_dims_declare(dims, free, lo, max))
		return false;
	lw->bound = ir_dim_sym(dims, free);
	lw->bound_sym = single_symbol(d);
	return true;
}

/* Rings bound the tokens of a call of decode and score, SCORE_ROWS those of score. Where the tokens may be more, a
   dim of its own with the bound replaces their number in this function. It has another name in score, as one module
   has both. */
bool lower_bind_rows(struct lowering *lw, bool scores)
{
	if (lw->mode != LOWER_DECODE || lw->m->tokens < 0)
		return true;
	const struct ir_dim *d = ir_import_dim(lw->module, lw->m->inputs.items[lw->m->tokens].dims[1]);
	int64_t rings = min_ring_call_rows(lw->types),
	        max = scores && rings > SCORE_ROWS ? SCORE_ROWS : rings;
	/* the bound of score only saves memory: a number of rows that is no symbol stays as it is */
	bool is_needed = max == rings || single_symbol(d) >= 0;
	if (ir_dim_hi(lw->module->dims, d) <= max || !is_needed ||
	    bind_row_dim(lw, d, scores ? "rows" : "part", max))
		return true;
	return lower_fail(lw, lw->m->generate.loc, DIAG_GENERATE,
	                  "%s up to %lld tokens at once, the model at least %lld",
	                  max == rings ? "caches shorter than max_len take" : "the entry score takes",
	                  (long long)max, (long long)ir_dim_lo(lw->module->dims, d));
}
