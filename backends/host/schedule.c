/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of groups, once for each driver:
 *
 *   NAME.func.body(context, args, worker, n) -> i32   every worker runs it; a
 *                 barrier is before a group that needs one (backends/plan/touch.h) and at the
 *                 end of a repeat's body, none at the end; nonzero: cancelled
 *   NAME.func.tasks(context, args)   one thread runs it and gives each group to
 *                 the caller's parallel_for
 *   NAME.func.defaults(context, args, worker) -> i32   worker 0 fills left-out inputs; nonzero
 *                 when there are any
 *
 * A group that only computes an output nobody wants is passed over.
 */
#include "backends/host/host.h"
#include "backends/plan/touch.h"

struct schedule {
	struct emit e;
	bool tasks;
	struct kb_val worker, n_workers, is_several;
	struct kb_val task; /* words for NAME.task: OBJECT_TASK_INDEX + n_indices */
	size_t group;       /* number of the next group */
	struct kb_val index[OBJECT_REPEAT_MAX];
	size_t depth;
	/* Groups since the last barrier. */
	struct {
		const struct ir_op **items;
		size_t n, cap;
	} open;
};

/* ---- left-out inputs ---- */

static enum kb_scalar scalar_of(enum ir_dtype t)
{
	switch (t) {
	case DT_F32: return KB_F32;
	case DT_F16: return KB_F16;
	case DT_BF16: return KB_BF16;
	case DT_F64: return KB_F64;
	case DT_I8: return KB_I8;
	case DT_U8:
	case DT_BOOL: return KB_U8;
	case DT_I16: return KB_I16;
	case DT_I32: return KB_I32;
	case DT_I64: return KB_I64;
	}
	return KB_VOID;
}

static void fill_default(struct emit *e, size_t param, struct kb_val is_first, struct kb_var any)
{
	struct kb *k = e->k;
	const struct ir_param *p = &e->function->func->params[param];
	const struct ir_type *t = ir_type_of(e->function->func, p->value);
	struct kb_val ptr = emit_word(e, KB_PTR, e->function->param_word[param]);
	kb_if(k, kb_cmp(k, KB_EQ, ptr, kb_null(k)));
	kb_set(k, any, kb_i32(k, 1));
	struct kb_val at = kb_ptr_add(k, e->plan, emit_dim(e, e->function->default_at[param]), 0);
	struct kb_val v = p->default_value      ? emit_dim(e, p->default_value)
	                  : t->dtype == DT_BOOL ? kb_i32(k, (int32_t)p->fill)
	                                        : kb_f64(k, p->fill);
	enum kb_scalar s = scalar_of(t->dtype);
	struct kb_val element = kb_cvt(k, v, s);
	struct kb_val n = emit_dim(e, ir_type_count(e->object->module->dims, t));
	struct kb_val end = kb_select(k, is_first, n, kb_index(k, 0));
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), end, 1, 0);
	kb_store(k, element, at, i, 0, 0);
	kb_end_loop(k);
	kb_end_if(k);
}

static bool has_defaults(const struct function *f)
{
	for (size_t i = 0; i < f->func->n_params; i++)
		if (f->default_at[i])
			return true;
	return false;
}

static void emit_defaults(struct object *o, const struct function *f)
{
	struct emit e = {.object = o, .function = f};
	if (!has_defaults(f) || !emit_begin(&e, emit_part(&e, "defaults"), KB_INTERNAL, KB_I32))
		return;
	struct kb_val worker = kb_param(e.k, "worker", KB_INDEX_T, 0);
	struct kb_val is_first = kb_cmp(e.k, KB_EQ, worker, kb_index(e.k, 0));
	emit_load_dims(&e);
	emit_load_bases(&e);
	struct kb_var any = kb_var(e.k, "any", KB_I32_T, kb_i32(e.k, 0));
	for (size_t i = 0; i < f->func->n_params; i++)
		if (f->default_at[i])
			fill_default(&e, i, is_first, any);
	kb_return(e.k, kb_get(e.k, any));
	kb_end(e.k);
}

/* ---- groups ---- */

static void barrier(struct schedule *s)
{
	struct kb_val args[] = {s->e.context, s->worker, s->n_workers};
	kb_if(s->e.k, s->is_several);
	struct kb_val stop = kb_call(s->e.k, emit_internal(s->e.object, ".barrier"), KB_I32, args, 3);
	emit_return_if(&s->e, kb_cmp(s->e.k, KB_NE, stop, kb_i32(s->e.k, 0)), TFMC_RT_E_CANCELLED);
	kb_end_if(s->e.k);
}

/* All that runs is through. */
static void close_open(struct schedule *s)
{
	if (s->open.n > 0)
		barrier(s);
	s->open.n = 0;
}

/* Parts of heads that both the group before and this one, the last of s->group, divide among workers. */
static int64_t parts_before(const struct schedule *s)
{
	const struct function *f = s->e.function;
	size_t at = s->group - 1;
	return at > 0 && f->is_divided[at - 1] && f->is_divided[at] ? f->parts[at - 1] : 1;
}

static void barrier_unless_divided(struct schedule *s, int64_t parts)
{
	struct kb *k = s->e.k;
	struct kb_val rest = kb_bin(k, KB_REM, kb_index(k, parts), s->n_workers);
	kb_if(k, kb_cmp(k, KB_NE, rest, kb_index(k, 0)));
	barrier(s);
	kb_end_if(k);
}

static bool has_join(const struct schedule *s, const struct ir_op *group)
{
	const struct ir_dim *heads;
	return kernel_has_join(s->e.object->module, s->e.function->func, group, &heads);
}

/* kernel_is_split wants the number of heads. */
static void load_heads(struct schedule *s)
{
	const struct function *f = s->e.function;
	for (size_t i = 0; i < f->n_groups; i++)
		if (has_join(s, f->groups[i])) {
			emit_load_dims(&s->e);
			return;
		}
}

static void wait_for_open(struct schedule *s, const struct ir_op *group, bool is_optional)
{
	const struct emit *e = &s->e;
	int64_t parts = parts_before(s);
	bool is_free = true, is_own = parts > 1;
	for (size_t i = 0; i < s->open.n; i++) {
		if (order_is_free(e->object, e->function, s->open.items[i], group) &&
		    !has_join(s, s->open.items[i])) /* others still read this worker's scratch */
			continue;
		is_free = false;
		is_own = is_own && s->open.items[i] == e->function->groups[s->group - 2];
	}
	if (!is_free && is_own) {
		barrier_unless_divided(s, parts);
		is_free = true; /* perhaps: all that is open stays open */
	}
	if (!is_free)
		barrier(s);
	if (!is_free && !is_optional)
		s->open.n = 0; /* an optional one may not have been here */
	const struct ir_op **slot = ARENA_PUSH(e->object->arena, &s->open);
	if (slot)
		*slot = group;
}

static struct kb_val index_at(struct schedule *s, size_t depth)
{
	return depth < s->depth ? s->index[depth] : kb_index(s->e.k, 0);
}

static void call_group(struct schedule *s, const char *symbol)
{
	struct kb_val args[OBJECT_REPEAT_MAX + 4] = {s->e.context, s->e.args};
	size_t n = 2;
	for (size_t i = 0; i < s->e.object->n_indices; i++)
		args[n++] = index_at(s, i);
	args[n++] = s->worker;
	args[n++] = s->n_workers;
	kb_call(s->e.k, symbol, KB_VOID, args, n);
}

static void give_task(struct schedule *s, const char *symbol)
{
	struct kb *k = s->e.k;
	struct kb_val zero = kb_index(k, 0);
	kb_store(k, kb_func_addr(k, symbol), s->task, zero, 0, 8);
	for (size_t i = 0; i < s->e.object->n_indices; i++)
		kb_store(k, index_at(s, i), s->task, zero, OBJECT_TASK_INDEX + (int64_t)i, 8);
	struct kb_val user = emit_context(&s->e, KB_PTR, CONTEXT_USER);
	struct kb_val task = kb_func_addr(k, emit_internal(s->e.object, ".task"));
	struct kb_val args[] = {user, s->n_workers, task, s->task};
	kb_call_ptr(k, emit_context(&s->e, KB_PTR, CONTEXT_PARALLEL_FOR), KB_VOID, args, 4);
}

/* Whether any result of an optional group is wanted; none when the group always runs. */
static struct kb_val is_wanted(struct schedule *s, const struct ir_op *op)
{
	const struct function *f = s->e.function;
	struct kb_val any = {0};
	if (!group_is_optional(f, op))
		return any;
	for (size_t i = 0; i < op->n_results; i++) {
		size_t number = f->places[op->results[i].id].number;
		struct kb_val ptr = emit_word(&s->e, KB_PTR, f->result_word[number]);
		struct kb_val wanted = kb_cmp(s->e.k, KB_NE, ptr, kb_null(s->e.k));
		any = any.id ? kb_bin(s->e.k, KB_OR, any, wanted) : wanted;
	}
	return any;
}

static void run_group(struct schedule *s, const char *symbol)
{
	if (s->tasks)
		give_task(s, symbol);
	else
		call_group(s, symbol);
}

/* The second step of an attention whose blocks were divided; what it writes is what the group writes. */
static void run_join(struct schedule *s, const struct ir_op *op, size_t number)
{
	struct kb *k = s->e.k;
	const struct ir_dim *heads;
	if (!kernel_has_join(s->e.object->module, s->e.function->func, op, &heads))
		return;
	kb_if(k, kernel_is_split(k, emit_dim(&s->e, heads), s->n_workers));
	if (!s->tasks)
		barrier(s);
	run_group(s, group_join_symbol(s->e.object, s->e.function, number));
	kb_end_if(k);
}

static void schedule_group(struct schedule *s, const struct ir_op *op)
{
	size_t number = s->group++;
	struct kb_val wanted = is_wanted(s, op);
	bool optional = wanted.id != 0;
	if (optional)
		kb_if(s->e.k, wanted);
	if (!s->tasks)
		wait_for_open(s, op, optional);
	run_group(s, group_symbol(s->e.object, s->e.function, number));
	run_join(s, op, number);
	if (optional)
		kb_end_if(s->e.k);
}

static void schedule_region(struct schedule *s, const struct ir_region *r);

static void schedule_repeat(struct schedule *s, const struct ir_op *op)
{
	struct kb *k = s->e.k;
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	if (!s->tasks)
		close_open(s);
	struct kb_val l = kb_loop(k, "l", kb_index(k, 0), kb_index(k, count), 1, count > 0 ? KB_NONEMPTY : 0);
	if (s->depth < OBJECT_REPEAT_MAX)
		s->index[s->depth] = l;
	s->depth++;
	schedule_region(s, op->region);
	s->depth--;
	if (!s->tasks)
		close_open(s); /* the next turn begins with any of the groups */
	kb_end_loop(k);
}

static void schedule_region(struct schedule *s, const struct ir_region *r)
{
	for (size_t i = 0; i < r->n_ops; i++) {
		if (r->ops[i]->code == OP_group)
			schedule_group(s, r->ops[i]);
		else if (r->ops[i]->code == OP_repeat)
			schedule_repeat(s, r->ops[i]);
	}
}

/* ---- the two drivers ---- */

static struct kb_val call_defaults(struct schedule *s, struct kb_val worker)
{
	struct kb_val args[] = {s->e.context, s->e.args, worker};
	return kb_call(s->e.k, emit_part(&s->e, "defaults"), KB_I32, args, 3);
}

/* All workers see the same arguments, so that all know whether there is something to wait for. */
static void first_step(struct schedule *s)
{
	struct kb *k = s->e.k;
	if (!has_defaults(s->e.function))
		return;
	kb_if(k, kb_cmp(k, KB_NE, call_defaults(s, s->worker), kb_i32(k, 0)));
	barrier(s);
	kb_end_if(k);
}

static void emit_body(struct object *o, const struct function *f)
{
	struct schedule s = {.e = {.object = o, .function = f}};
	if (!emit_begin(&s.e, emit_part(&s.e, "body"), KB_INTERNAL, KB_I32))
		return;
	s.worker = kb_param(s.e.k, "worker", KB_INDEX_T, 0);
	s.n_workers = kb_param(s.e.k, "n_workers", KB_INDEX_T, 0);
	s.is_several = kb_cmp(s.e.k, KB_GT, s.n_workers, kb_index(s.e.k, 1));
	load_heads(&s);
	first_step(&s);
	schedule_region(&s, f->func->body);
	kb_return(s.e.k, kb_i32(s.e.k, TFMC_RT_OK));
	kb_end(s.e.k);
}

static void emit_tasks(struct object *o, const struct function *f)
{
	struct schedule s = {.e = {.object = o, .function = f}, .tasks = true};
	if (!emit_begin(&s.e, emit_part(&s.e, "tasks"), KB_INTERNAL, KB_VOID))
		return;
	struct kb *k = s.e.k;
	s.n_workers = emit_context(&s.e, KB_INDEX, CONTEXT_WORKERS);
	s.task = kb_local(k, "task", KB_INDEX, 8);
	kb_store(k, s.e.context, s.task, kb_index(k, 0), 1, 8);
	kb_store(k, s.e.args, s.task, kb_index(k, 0), 2, 8);
	if (has_defaults(f))
		call_defaults(&s, kb_index(k, 0));
	load_heads(&s);
	schedule_region(&s, f->func->body);
	kb_end(k);
}

void emit_schedule(struct object *o, const struct function *f)
{
	emit_defaults(o, f);
	emit_body(o, f);
	emit_tasks(o, f);
}
