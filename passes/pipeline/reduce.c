/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test-case reduction (reduce.h). An edit is applied by copying the module, with two walks for each function as in
 * passes/framework/rebuild.c: backward to find the needed values, forward through the builder; unlike a pass, an
 * edit may change parameters, results and bounds. The search repeats all edits until one iteration accepts none.
 * Ops are tried from the last to the first, because removing an op makes the ops that only it reads dead.
 */
#include "passes/pipeline/reduce.h"

#include <string.h>

#include "ir/core/build.h"
#include "ir/core/verify.h"

/* ---- one edit ---- */

struct copier {
	const struct ir_module *in;
	struct ir_module *out;
	const struct reduce_edit *edit;
	struct diag_context mute;
	struct arena arena;
	const struct ir_func *f;
	struct ir_copy copy;        /* of f */
	const struct ir_op *target; /* the op that is edited; NULL: none in this function */
	bool *needed;               /* [f->n_values] */
	bool applied;
};

static bool is_edit(const struct copier *c, enum reduce_kind kind)
{
	return c->target != NULL && c->edit->kind == kind;
}

/* ---- the op of the edit ---- */

static const struct ir_op *find_op(const struct ir_func *f, size_t at)
{
	struct ir_iter it = ir_iter_begin(f->body);
	for (; it.op != NULL && at > 0; ir_iter_next(&it))
		at--;
	return it.op;
}

/* ---- backward ---- */

static void need_value(struct copier *c, struct ir_value v)
{
	c->needed[v.id] = v.id != 0;
}

static bool is_needed(const struct copier *c, const struct ir_op *op)
{
	bool any = ir_op_has(op->code, TRAIT_TERMINATOR) || ir_op_has(op->code, TRAIT_STATEFUL);
	for (size_t i = 0; i < op->n_results; i++)
		any = any || c->needed[op->results[i].id];
	return any;
}

/* Result i of the function remains after the edit. */
static bool keeps_result(const struct copier *c, size_t i)
{
	return c->edit->kind != REDUCE_RESULT || c->edit->at != i ||
	       c->in->funcs.items[c->edit->func] != c->f;
}

/* The value of result i of the function after the edit. */
static struct ir_value result_value(const struct copier *c, const struct ir_op *ret, size_t i)
{
	const struct ir_op *def = ir_value_info(c->f, ret->operands[i])->def;
	bool earlier = c->edit->kind == REDUCE_EARLIER && c->edit->at == i &&
	               c->in->funcs.items[c->edit->func] == c->f;
	return earlier ? def->operands[c->edit->choice] : ret->operands[i];
}

static void mark_needed(struct copier *c, const struct ir_region *r, size_t n);

/* A repeat that is inlined needs only the carries that are read after it or by needed ops. */
static void mark_inlined(struct copier *c, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	for (size_t i = 0; i < op->n_results; i++)
		if (c->needed[op->results[i].id])
			need_value(c, yield->operands[i]);
	mark_needed(c, body, body->n_ops - 1);
	for (size_t i = 0; i < op->n_operands; i++)
		if (c->needed[body->args[1 + i].id])
			need_value(c, op->operands[i]);
}

/* Marks the values needed by the first n ops of a region. */
static void mark_needed(struct copier *c, const struct ir_region *r, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		const struct ir_op *op = r->ops[i];
		if (!is_needed(c, op))
			continue;
		if (op == c->target && (is_edit(c, REDUCE_INPUT) || is_edit(c, REDUCE_ONES)))
			continue;
		if (op == c->target && is_edit(c, REDUCE_OPERAND)) {
			need_value(c, op->operands[c->edit->choice]);
			continue;
		}
		if (op == c->target && is_edit(c, REDUCE_OPEN)) {
			mark_inlined(c, op);
			continue;
		}
		for (size_t k = 0; k < op->n_operands; k++)
			if (op->code != OP_return)
				need_value(c, op->operands[k]);
			else if (keeps_result(c, k))
				need_value(c, result_value(c, op, k));
		if (op->region != NULL)
			mark_needed(c, op->region, op->region->n_ops);
	}
}

/* ---- forward ---- */

/* Inlines the body of a repeat that runs once. */
static void copy_inlined(struct copier *c, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	if (c->needed[body->args[REPEAT_INDEX].id])
		ir_copy_set(&c->copy, body->args[REPEAT_INDEX], irb_full_of(c->copy.b, 0, DT_I32, 0, NULL));
	for (size_t i = 0; i < op->n_operands; i++)
		if (c->copy.map[op->operands[i].id].id != 0)
			ir_copy_set(&c->copy, body->args[1 + i], c->copy.map[op->operands[i].id]);
	ir_copy_region(&c->copy, body);
	for (size_t i = 0; i < op->n_results; i++)
		ir_copy_set(&c->copy, op->results[i], c->copy.map[yield->operands[i].id]);
}

/* Replaces the results of op by ones. */
static void copy_ones(struct copier *c, const struct ir_op *op)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	for (size_t i = 0; i < op->n_results; i++) {
		const struct ir_type *t = ir_type_of(c->f, op->results[i]);
		for (int k = 0; k < t->rank; k++)
			dims[k] = ir_import_dim(c->out, t->dims[k]);
		ir_copy_set(&c->copy, op->results[i], irb_full_of(c->copy.b, 1, t->dtype, t->rank, dims));
	}
}

/* Copies op, with the edit if it is the target. */
static bool copy_op(struct ir_copy *copy, const struct ir_op *op)
{
	struct copier *c = copy->user;
	if (!is_needed(c, op))
		return true;
	if (op != c->target)
		return false;
	c->applied = true;
	switch (c->edit->kind) {
	case REDUCE_COUNT: ir_copy_repeat(copy, op, 1); return true;
	case REDUCE_OPEN: copy_inlined(c, op); return true;
	case REDUCE_ONES: copy_ones(c, op); return true;
	case REDUCE_OPERAND:
		ir_copy_set(copy, op->results[0], copy->map[op->operands[c->edit->choice].id]);
		return true;
	case REDUCE_INPUT: /* parameters, added by copy_params() */
	case REDUCE_FUNC:
	case REDUCE_RESULT:
	case REDUCE_EARLIER:
	case REDUCE_PARAM:
	case REDUCE_STATE:
	case REDUCE_BOUND: break;
	}
	return true;
}

/* ---- functions ---- */

/* Parameter `at` of the function is dropped. */
static bool drops_param(const struct copier *c, size_t at)
{
	return c->edit->kind == REDUCE_PARAM && c->edit->at == at &&
	       c->in->funcs.items[c->edit->func] == c->f;
}

/* Index, after the edit, of the parameter that holds lengths; -1: none. */
static int lengths_after(const struct copier *c, int lengths)
{
	if (lengths < 0 || c->edit->kind != REDUCE_PARAM || c->in->funcs.items[c->edit->func] != c->f ||
	    (size_t)lengths < c->edit->at)
		return lengths;
	return (size_t)lengths == c->edit->at ? -1 : lengths - 1;
}

/* REDUCE_INPUT: adds a parameter for each result of the op. */
static void add_inputs(struct copier *c)
{
	for (size_t i = 0; is_edit(c, REDUCE_INPUT) && i < c->target->n_results; i++) {
		struct ir_value old = c->target->results[i];
		const struct ir_param p = {.name = arena_printf(&c->arena, "in%zu", c->f->n_params + i),
		                           .lengths = -1};
		c->copy.map[old.id] = irb_param(c->copy.b, &p, ir_import_type(c->out, ir_type_of(c->f, old)));
		c->applied = true;
	}
}

/* Copies the parameters, with the edit; new inputs come before the first state. */
static void copy_params(struct copier *c)
{
	bool has_inputs = false;
	for (size_t i = 0; i < c->f->n_params; i++) {
		struct ir_param p = c->f->params[i];
		const struct ir_type *type = ir_type_of(c->f, p.value);
		if (type->kind != IR_TENSOR && !has_inputs) {
			has_inputs = true;
			add_inputs(c);
		}
		if (drops_param(c, i)) {
			c->applied = !c->needed[p.value.id];
			continue;
		}
		p.default_value = ir_import_dim(c->out, p.default_value);
		p.max = ir_import_dim(c->out, p.max);
		p.lengths = lengths_after(c, p.lengths);
		c->copy.map[p.value.id] = irb_param(c->copy.b, &p, ir_import_type(c->out, type));
	}
	if (!has_inputs)
		add_inputs(c);
}

/* Finishes the function with the results that remain. */
static bool finish(struct copier *c)
{
	const struct ir_op *ret = c->f->body->ops[c->f->body->n_ops - 1];
	struct ir_value *values = ARENA_ARRAY(&c->arena, struct ir_value, ret->n_operands + 1);
	struct ir_result *results = ARENA_ARRAY(&c->arena, struct ir_result, ret->n_operands + 1);
	size_t n = 0;
	for (size_t i = 0; i < ret->n_operands && !arena_failed(&c->arena); i++) {
		if (!keeps_result(c, i)) {
			c->applied = true;
			continue;
		}
		results[n] = c->f->results[i];
		struct ir_value v = result_value(c, ret, i);
		bool same = ir_type_of(c->f, v) == ir_type_of(c->f, ret->operands[i]);
		c->applied = c->applied || !ir_same_value(v, ret->operands[i]);
		results[n].lengths = same ? lengths_after(c, results[n].lengths) : -1;
		values[n++] = c->copy.map[v.id];
	}
	irb_set_loc(c->copy.b, ret->loc);
	return !arena_failed(&c->arena) && n > 0 &&
	       irb_finish(c->copy.b, values, results, n, ir_import_dim(c->out, c->f->arena)) == TFMC_OK;
}

static bool copy_func(struct copier *c, size_t index)
{
	c->f = c->in->funcs.items[index];
	c->target = NULL;
	if (c->edit->func == index && c->edit->kind >= REDUCE_COUNT && c->edit->kind <= REDUCE_ONES)
		c->target = find_op(c->f, c->edit->at);
	c->needed = ARENA_ARRAY(&c->arena, bool, c->f->n_values);
	c->copy = (struct ir_copy){irb_begin(c->out, &c->mute, c->f->name, c->f->loc), c->f,
	                           ARENA_ARRAY(&c->arena, struct ir_value, c->f->n_values), copy_op, c};
	if (arena_failed(&c->arena) || c->copy.b == NULL)
		return false;
	mark_needed(c, c->f->body, c->f->body->n_ops);
	if (c->f->when != NULL)
		irb_case(c->copy.b, c->f->when);
	copy_params(c);
	ir_copy_region(&c->copy, c->f->body);
	return finish(c);
}

/* ---- modules ---- */

/* An empty module with the dims and states of `in`, after edits of those. */
static struct ir_module *begin_module(const struct ir_module *in, const struct reduce_edit *edit)
{
	if (edit->kind != REDUCE_BOUND && edit->kind != REDUCE_STATE)
		return ir_module_create_like(in);
	struct ir_module *m = ir_module_create(in->name);
	bool ok = m != NULL;
	for (size_t i = 0; ok && i < ir_dims_count(in->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(in->dims, i);
		bool is_cut = edit->kind == REDUCE_BOUND && i == edit->at;
		ok = ir_dims_declare(m->dims, s->name, s->lo, is_cut ? edit->choice : s->hi);
	}
	for (size_t i = 0; ok && i < in->states.n; i++) {
		const struct ir_state_decl *s = in->states.items[i];
		if (edit->kind == REDUCE_STATE && i == edit->at)
			continue;
		ok = ir_add_state(m, s->name, ir_import_type(m, s->type), ir_import_loc(m, s->loc)) != NULL &&
		     ir_set_state_encoding(m, s->name, s->encoding);
	}
	if (ok) {
		m->tir_source = in->tir_source;
		return m;
	}
	ir_module_destroy(m);
	return NULL;
}

static bool has_state(const struct ir_func *f, const struct ir_state_decl *s)
{
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_type *t = ir_type_of(f, f->params[i].value);
		if (t->kind == IR_STATE && strcmp(t->state->name, s->name) == 0)
			return true;
	}
	return false;
}

/* REDUCE_EARLIER is possible: both the result and the operand are tensors. */
static bool has_earlier(const struct ir_module *in, const struct reduce_edit *e)
{
	const struct ir_func *f = in->funcs.items[e->func];
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	const struct ir_op *def =
	        e->at < ret->n_operands ? ir_value_info(f, ret->operands[e->at])->def : NULL;
	if (def == NULL || (size_t)e->choice >= def->n_operands || def->operands[e->choice].id == 0)
		return false;
	return ir_type_of(f, ret->operands[e->at])->kind == IR_TENSOR &&
	       ir_type_of(f, def->operands[e->choice])->kind == IR_TENSOR;
}

/* The edit applies to its target. */
static bool is_possible(const struct ir_module *in, const struct reduce_edit *e)
{
	if (e->kind == REDUCE_EARLIER)
		return has_earlier(in, e);
	for (size_t i = 0; e->kind == REDUCE_STATE && i < in->funcs.n; i++)
		if (has_state(in->funcs.items[i], in->states.items[e->at]))
			return false;
	if (e->kind < REDUCE_COUNT || e->kind > REDUCE_ONES)
		return true;
	const struct ir_func *f = in->funcs.items[e->func];
	const struct ir_op *op = find_op(f, e->at);
	if (op == NULL || ir_op_has(op->code, TRAIT_TERMINATOR) || op->n_results == 0)
		return false;
	if (e->kind == REDUCE_COUNT)
		return op->code == OP_repeat && ((const struct attrs_repeat *)op->attrs)->count > 1;
	if (e->kind == REDUCE_OPEN)
		return op->code == OP_repeat && ((const struct attrs_repeat *)op->attrs)->count == 1;
	if (op->code == OP_weight || op->code == OP_full)
		return false;
	for (size_t i = 0; i < op->n_results; i++)
		if (ir_type_of(f, op->results[i])->kind != IR_TENSOR)
			return false;
	return e->kind != REDUCE_OPERAND ||
	       ((size_t)e->choice < op->n_operands && op->n_results == 1 && op->operands[e->choice].id != 0 &&
	        ir_type_of(f, op->operands[e->choice]) == ir_type_of(f, op->results[0]));
}

struct ir_module *reduce_apply(const struct ir_module *in, const struct reduce_edit *edit)
{
	struct copier c = {.in = in, .edit = edit};
	if (!is_possible(in, edit) || (c.out = begin_module(in, edit)) == NULL)
		return NULL;
	diag_init(&c.mute, NULL, NULL);
	arena_init(&c.arena);
	c.applied = edit->kind == REDUCE_FUNC || edit->kind == REDUCE_BOUND || edit->kind == REDUCE_STATE;
	c.out->stage = in->stage;
	bool ok = true;
	for (size_t i = 0; i < in->funcs.n && ok; i++)
		if (edit->kind != REDUCE_FUNC || edit->func != i)
			ok = copy_func(&c, i);
	ok = ok && c.applied && ir_verify(c.out, &c.mute) == TFMC_OK;
	arena_destroy(&c.arena);
	diag_destroy(&c.mute);
	if (ok)
		return c.out;
	ir_module_destroy(c.out);
	return NULL;
}

/* ---- the search ---- */

#define ITERATIONS_MAX 64
#define OPERANDS_MAX   9

struct reducer {
	struct ir_module *current;
	reduce_keep *keep;
	void *user;
	struct reduce_report *report;
	bool changed; /* in this round */
};

/* Applies an edit. True if it was accepted: r->current is the new module. */
static bool try_edit(struct reducer *r, struct reduce_edit edit)
{
	struct ir_module *next = reduce_apply(r->current, &edit);
	if (next == NULL)
		return false;
	r->report->tried++;
	if (!r->keep(r->user, next)) {
		ir_module_destroy(next);
		return false;
	}
	r->report->kept++;
	r->changed = true;
	ir_module_destroy(r->current);
	r->current = next;
	return true;
}

static size_t count_ops(const struct ir_func *f)
{
	size_t n = 0;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		n++;
	return n;
}

/* Tries the ways to remove one op until one is accepted. */
static bool try_op(struct reducer *r, size_t func, size_t at)
{
	if (try_edit(r, (struct reduce_edit){REDUCE_COUNT, func, at, 0}) ||
	    try_edit(r, (struct reduce_edit){REDUCE_OPEN, func, at, 0}))
		return true;
	for (int64_t i = 0; i < OPERANDS_MAX; i++)
		if (try_edit(r, (struct reduce_edit){REDUCE_OPERAND, func, at, i}))
			return true;
	return try_edit(r, (struct reduce_edit){REDUCE_ONES, func, at, 0}) ||
	       try_edit(r, (struct reduce_edit){REDUCE_INPUT, func, at, 0});
}

/* Replaces a result by an operand of its op. */
static bool try_earlier(struct reducer *r, size_t func, size_t result)
{
	for (int64_t i = 0; i < OPERANDS_MAX; i++)
		if (try_edit(r, (struct reduce_edit){REDUCE_EARLIER, func, result, i}))
			return true;
	return false;
}

/* Tries the edits of one function. */
static void try_func(struct reducer *r, size_t func)
{
	for (size_t i = r->current->funcs.items[func]->n_results; i-- > 0;)
		(void)try_edit(r, (struct reduce_edit){REDUCE_RESULT, func, i, 0});
	for (size_t i = r->current->funcs.items[func]->n_results; i-- > 0;)
		while (try_earlier(r, func, i))
			continue;
	for (size_t at = count_ops(r->current->funcs.items[func]); at-- > 0;) {
		(void)try_op(r, func, at);
		size_t n = count_ops(r->current->funcs.items[func]);
		at = at < n ? at : n;
	}
	for (size_t i = r->current->funcs.items[func]->n_params; i-- > 0;)
		(void)try_edit(r, (struct reduce_edit){REDUCE_PARAM, func, i, 0});
}

/* Finds the smallest accepted upper bound of each dim: the lower bound first, then bisection. */
static void try_bounds(struct reducer *r)
{
	for (size_t i = 0; i < ir_dims_count(r->current->dims); i++) {
		int64_t lo = ir_dims_sym(r->current->dims, i)->lo;
		while (lo < ir_dims_sym(r->current->dims, i)->hi) {
			if (try_edit(r, (struct reduce_edit){REDUCE_BOUND, 0, i, lo}))
				break;
			lo += (ir_dims_sym(r->current->dims, i)->hi - lo + 1) / 2;
		}
	}
}

enum tfmc_status module_reduce(const struct ir_module *in, reduce_keep *keep, void *user,
                               struct ir_module **out, struct reduce_report *report)
{
	/* An edit without effect: the copy drops dead ops. */
	const struct reduce_edit none = {REDUCE_BOUND, 0, ir_dims_count(in->dims), 0};
	struct reducer r = {.keep = keep, .user = user, .report = report, .changed = true};
	*report = (struct reduce_report){0};
	*out = NULL;
	r.current = reduce_apply(in, &none);
	if (r.current == NULL)
		return TFMC_NO_MEMORY;
	for (int iteration = 0; iteration < ITERATIONS_MAX && r.changed; iteration++) {
		r.changed = false;
		for (size_t i = r.current->funcs.n; i-- > 0 && r.current->funcs.n > 1;)
			(void)try_edit(&r, (struct reduce_edit){REDUCE_FUNC, i, 0, 0});
		for (size_t i = 0; i < r.current->funcs.n; i++)
			try_func(&r, i);
		try_bounds(&r);
		for (size_t i = r.current->states.n; i-- > 0;)
			(void)try_edit(&r, (struct reduce_edit){REDUCE_STATE, 0, i, 0});
	}
	(void)try_edit(&r, none);
	*out = r.current;
	return TFMC_OK;
}
