/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test-case reduction (reduce.h). An edit is a rewrite of passes/framework/rebuild.h that also changes parameters,
 * results and bounds. The search repeats all edits until one iteration accepts none. Ops are tried from the last to the
 * first, because removing an op makes the ops that only it reads dead.
 *
 * Kinds of edits (enum reduce_kind): FUNC, RESULT, PARAM, STATE remove something; COUNT runs a repeat once, OPEN
 * inlines one that runs once; OPERAND, INPUT, ONES put an operand, a parameter or ones in place of an op; EARLIER
 * returns an operand of the op of a result; BOUND lowers the upper bound of a dim. An edit that changes nothing
 * (applied stays false) is not possible.
 */
#include "passes/pipeline/reduce.h"

#include <string.h>

#include "ir/core/build.h"
#include "ir/core/verify.h"
#include "passes/framework/rebuild.h"

/* ---- one edit ---- */

struct editor {
	const struct reduce_edit *edit;
	const struct ir_func *f;    /* edit->func */
	const struct ir_op *target; /* the op that is edited; NULL: none */
	bool applied;
};

/* The edit if it is of this kind and of the function that is rebuilt, else NULL. */
static const struct reduce_edit *edit_of(const struct rebuild *r, enum reduce_kind kind)
{
	const struct editor *e = r->rewrite->user;
	return e->edit->kind == kind && e->f == r->f ? e->edit : NULL;
}

static const struct ir_op *find_op(const struct ir_func *f, size_t at)
{
	struct ir_iter it = ir_iter_begin(f->body);
	for (; it.op != NULL && at > 0; ir_iter_next(&it))
		at--;
	return it.op;
}

/* ---- ops ---- */

/* A repeat that is inlined needs only the carries that are read after it or by needed ops. */
static void need_inlined(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	for (size_t i = 0; i < op->n_results; i++)
		if (r->needed[op->results[i].id])
			rebuild_need(r, yield->operands[i]);
	rebuild_need_region(r, body, body->n_ops - 1);
	for (size_t i = 0; i < op->n_operands; i++)
		if (r->needed[body->args[1 + i].id])
			rebuild_need(r, op->operands[i]);
}

/* Matches the op that is edited, and marks what its replacement reads: an operand, the body, or nothing for ones and
 * inputs. */
static bool match_target(struct rebuild *r, const struct ir_op *op)
{
	const struct editor *e = r->rewrite->user;
	if (op != e->target)
		return false;
	if (edit_of(r, REDUCE_OPERAND) != NULL) {
		rebuild_need(r, op->operands[e->edit->choice]);
	} else if (edit_of(r, REDUCE_OPEN) != NULL) {
		need_inlined(r, op);
	} else if (edit_of(r, REDUCE_COUNT) != NULL) {
		rebuild_need_operands(r, op);
		rebuild_need_region(r, op->region, op->region->n_ops);
	}
	return true;
}

/* Inlines the body of a repeat that runs once. A carry that no needed op reads has no new value. */
static void emit_inlined(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	if (r->needed[body->args[REPEAT_INDEX].id])
		ir_copy_set(&r->copy, body->args[REPEAT_INDEX], irb_full_of(r->b, 0, DT_I32, 0, NULL));
	for (size_t i = 0; i < op->n_operands; i++)
		if (r->map[op->operands[i].id].id != 0)
			ir_copy_set(&r->copy, body->args[1 + i], r->map[op->operands[i].id]);
	ir_copy_region(&r->copy, body);
	for (size_t i = 0; i < op->n_results; i++)
		ir_copy_set(&r->copy, op->results[i], r->map[yield->operands[i].id]);
}

/* Replaces the results of op by ones; is_possible() has refused an op with another result than tensors. The dims are
 * those of the module that is read, hence imported. */
static void emit_ones(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	for (size_t i = 0; i < op->n_results; i++) {
		const struct ir_type *t = ir_type_of(r->f, op->results[i]);
		for (int k = 0; k < t->rank; k++)
			dims[k] = ir_import_dim(r->out, t->dims[k]);
		ir_copy_set(&r->copy, op->results[i], irb_full_of(r->b, 1, t->dtype, t->rank, dims));
	}
}

/* Emits what takes the place of the edited op. REDUCE_INPUT: nothing, its results are parameters already. */
static void emit_target(struct rebuild *r, const struct ir_op *op)
{
	struct editor *e = r->rewrite->user;
	e->applied = true;
	if (edit_of(r, REDUCE_COUNT) != NULL)
		ir_copy_repeat(&r->copy, op, 1);
	else if (edit_of(r, REDUCE_OPEN) != NULL)
		emit_inlined(r, op);
	else if (edit_of(r, REDUCE_ONES) != NULL)
		emit_ones(r, op);
	else if (edit_of(r, REDUCE_OPERAND) != NULL)
		ir_copy_set(&r->copy, op->results[0], r->map[op->operands[e->edit->choice].id]);
}

/* ---- parameters and results ---- */

/* Index, after the edit, of the parameter that holds lengths; -1: none. */
static int lengths_after(const struct rebuild *r, int lengths)
{
	const struct reduce_edit *dropped = edit_of(r, REDUCE_PARAM);
	if (lengths < 0 || dropped == NULL || (size_t)lengths < dropped->at)
		return lengths;
	return (size_t)lengths == dropped->at ? -1 : lengths - 1;
}

/* REDUCE_INPUT: adds a parameter for each result of the op. */
static void add_inputs(struct rebuild *r)
{
	struct editor *e = r->rewrite->user;
	for (size_t i = 0; edit_of(r, REDUCE_INPUT) != NULL && i < e->target->n_results; i++) {
		struct ir_value old = e->target->results[i];
		const struct ir_param p = {.name = arena_printf(r->p->arena, "in%zu", r->f->n_params + i),
		                           .lengths = -1};
		r->map[old.id] = irb_param(r->b, &p, ir_import_type(r->out, ir_type_of(r->f, old)));
		e->applied = true;
	}
}

/* Copies the parameters, with the edit; new inputs come before the first state, since states are last (ir_verify). A
 * parameter that is still read cannot be removed: the edit is then not applied. */
static void copy_params(struct rebuild *r)
{
	struct editor *e = r->rewrite->user;
	const struct reduce_edit *dropped = edit_of(r, REDUCE_PARAM);
	bool has_inputs = false;
	if (r->f->when != NULL)
		irb_case(r->b, r->f->when);
	for (size_t i = 0; i < r->f->n_params; i++) {
		struct ir_param p = r->f->params[i];
		const struct ir_type *type = ir_type_of(r->f, p.value);
		if (type->kind != IR_TENSOR && !has_inputs) {
			has_inputs = true;
			add_inputs(r);
		}
		if (dropped != NULL && dropped->at == i) {
			e->applied = !r->needed[p.value.id];
			continue;
		}
		p.default_value = ir_import_dim(r->out, p.default_value);
		p.max = ir_import_dim(r->out, p.max);
		p.lengths = lengths_after(r, p.lengths);
		r->map[p.value.id] = irb_param(r->b, &p, ir_import_type(r->out, type));
	}
	if (!has_inputs)
		add_inputs(r);
}

/* The value of result i after the edit; IR_NO_VALUE: dropped. */
static struct ir_value result_value(const struct rebuild *r, size_t i)
{
	const struct ir_op *ret = r->f->body->ops[r->f->body->n_ops - 1];
	const struct reduce_edit *dropped = edit_of(r, REDUCE_RESULT), *earlier = edit_of(r, REDUCE_EARLIER);
	if (dropped != NULL && dropped->at == i)
		return IR_NO_VALUE;
	if (earlier != NULL && earlier->at == i)
		return ir_value_info(r->f, ret->operands[i])->def->operands[earlier->choice];
	return ret->operands[i];
}

/* Finishes the function with the results that remain, at least one. A result of another type than before has no
 * lengths. */
static enum tfmc_status finish(struct rebuild *r)
{
	struct editor *e = r->rewrite->user;
	const struct ir_op *ret = r->f->body->ops[r->f->body->n_ops - 1];
	struct ir_value *values = ARENA_ARRAY(r->p->arena, struct ir_value, ret->n_operands + 1);
	struct ir_result *results = ARENA_ARRAY(r->p->arena, struct ir_result, ret->n_operands + 1);
	size_t n = 0;
	for (size_t i = 0; i < ret->n_operands && !arena_failed(r->p->arena); i++) {
		struct ir_value v = result_value(r, i);
		e->applied = e->applied || !ir_same_value(v, ret->operands[i]);
		if (v.id == 0)
			continue;
		bool same = ir_type_of(r->f, v) == ir_type_of(r->f, ret->operands[i]);
		results[n] = r->f->results[i];
		results[n].lengths = same ? lengths_after(r, results[n].lengths) : -1;
		values[n++] = rebuild_get(r, v);
	}
	irb_set_loc(r->b, ret->loc);
	if (arena_failed(r->p->arena) || n == 0)
		return TFMC_INVALID;
	return irb_finish(r->b, values, results, n, ir_import_dim(r->out, r->f->arena));
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

/* A parameter of f is the state. */
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

/* The edit applies to its target. Kinds from COUNT to ONES name an op, which must have results, all of them
 * tensors unless it is a repeat. */
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

/* Applies the edit as a rewrite, with muted diagnostics: most edits fail. is_numbered: match consumes no fuel, of
 * which this context has none. REDUCE_FUNC rebuilds from a shallow copy of the module without the function. */
struct ir_module *reduce_apply(const struct ir_module *in, const struct reduce_edit *edit)
{
	struct editor e = {.edit = edit, .f = edit->func < in->funcs.n ? in->funcs.items[edit->func] : NULL};
	const struct rewrite rewrite = {.match = match_target,
	                                .emit = emit_target,
	                                .params = copy_params,
	                                .result = result_value,
	                                .finish = finish,
	                                .user = &e,
	                                .is_numbered = true};
	struct diag_context mute;
	struct arena arena;
	struct pass_context p = {.cx = &mute, .arena = &arena};
	struct ir_module from = *in, *out;
	if (!is_possible(in, edit) || (out = begin_module(in, edit)) == NULL)
		return NULL;
	diag_init(&mute, NULL, NULL);
	arena_init(&arena);
	e.applied = edit->kind == REDUCE_FUNC || edit->kind == REDUCE_BOUND || edit->kind == REDUCE_STATE;
	if (edit->kind >= REDUCE_COUNT && edit->kind <= REDUCE_ONES)
		e.target = find_op(e.f, edit->at);
	if (edit->kind == REDUCE_FUNC) {
		from.funcs.n = from.funcs.cap = 0;
		from.funcs.items = NULL;
		for (size_t i = 0; i < in->funcs.n; i++)
			if (i != edit->func)
				ARENA_ADD(&arena, &from.funcs, in->funcs.items[i]);
	}
	bool ok = !arena_failed(&arena) && rebuild_module(&p, &from, out, &rewrite, NULL) == TFMC_OK &&
	          e.applied && ir_verify(out, &mute) == TFMC_OK;
	arena_destroy(&arena);
	diag_destroy(&mute);
	if (ok)
		return out;
	ir_module_destroy(out);
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

/* Tries the ways to remove one op until one is accepted: first a repeat, then an operand in its place, which
 * makes most ops dead; ones before an input, which adds a parameter. */
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

/* Replaces a result by an operand of its op. True: an edit was accepted. */
static bool try_earlier(struct reducer *r, size_t func, size_t result)
{
	for (int64_t i = 0; i < OPERANDS_MAX; i++)
		if (try_edit(r, (struct reduce_edit){REDUCE_EARLIER, func, result, i}))
			return true;
	return false;
}

/* Tries the edits of one function: results first, without which the ops that only they need are dead; parameters
 * last, when fewer ops read them. */
static void try_func(struct reducer *r, size_t func)
{
	for (size_t i = r->current->funcs.items[func]->n_results; i-- > 0;)
		(void)try_edit(r, (struct reduce_edit){REDUCE_RESULT, func, i, 0});
	for (size_t i = r->current->funcs.items[func]->n_results; i-- > 0;)
		while (try_earlier(r, func, i))
			continue;
	for (size_t at = count_ops(r->current->funcs.items[func]); at-- > 0;) {
		(void)try_op(r, func, at);
		size_t n = count_ops(r->current->funcs.items[func]); /* fewer if an edit was accepted */
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

/* Repeats all edits, since one that is accepted may make others possible, up to ITERATIONS_MAX times. */
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
	(void)try_edit(&r, none); /* folding may have left dead ops */
	*out = r.current;
	return TFMC_OK;
}
