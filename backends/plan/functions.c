/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of functions and entries: argument slots of dims and tensors, the groups in execution order, and the
 * arena: the buffers of the memory planner, then spare buffers for omitted inputs and outputs, then partial
 * results of split attention.
 */
#include "backends/plan/object.h"

#include <string.h>

#include "backends/kernels/group.h"
#include "ir/core/lifetime.h"

bool param_is_input(const struct ir_func *f, size_t i)
{
	return f->params[i].role == ROLE_INPUT && ir_type_of(f, f->params[i].value)->kind == IR_TENSOR;
}

struct ir_value func_result(const struct ir_func *f, size_t i)
{
	return f->body->ops[f->body->n_ops - 1]->operands[i];
}

bool result_is_output(const struct ir_func *f, size_t i)
{
	return f->results[i].role == ROLE_INPUT && ir_type_of(f, func_result(f, i))->kind == IR_TENSOR;
}

/* x rounded up to a multiple of OBJECT_ALIGN. */
static const struct ir_dim *round_up(const struct object *o, const struct ir_dim *x)
{
	struct ir_dims *t = o->module->dims;
	const struct ir_dim *up = ir_dim_add(t, x, ir_dim_const(t, OBJECT_ALIGN - 1));
	return ir_dim_mul(t, ir_dim_floordiv(t, up, OBJECT_ALIGN), ir_dim_const(t, OBJECT_ALIGN));
}

/* ---- argument slots ---- */

static void assign_slots(struct object *o, struct function *f)
{
	const struct ir_func *func = f->func;
	f->past_param = f->past_result = -1;
	for (size_t i = 0; i < func->n_params; i++) {
		f->has_state = f->has_state || ir_type_of(func, func->params[i].value)->kind == IR_STATE;
		if (func->params[i].role == ROLE_PAST)
			f->past_param = (int)i;
	}
	for (size_t i = 0; i < func->n_results; i++)
		if (func->results[i].role == ROLE_PAST)
			f->past_result = (int)i;
	f->has_state = f->has_state || f->past_param >= 0 || f->past_result >= 0;
	/* Every dim of any value, so that emission can load each dim it needs; the same set for a function
	 * and all of its cases, so that a call passes equal slots to all. */
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++) {
		f->has_dim[i] = f->has_state && (int)i == o->states.batch_dim;
		for (size_t k = 0; k < o->module->funcs.n && !f->has_dim[i]; k++)
			f->has_dim[i] = ir_case_base(o->module, o->module->funcs.items[k]) == f->base &&
			                ir_func_has_symbol(o->module->funcs.items[k], (int)i);
		if (f->has_dim[i])
			f->dim_slot[i] = f->n_dims++;
	}
	for (size_t i = 0; i < func->n_params; i++)
		if (param_is_input(func, i))
			f->param_slot[i] = f->n_dims + 2 * f->n_inputs++;
	for (size_t i = 0; i < func->n_results; i++)
		if (result_is_output(func, i))
			f->result_slot[i] = f->n_dims + 2 * (f->n_inputs + f->n_outputs++);
}

/* ---- groups and arena ---- */

int64_t groups_scratch(const struct ir_op *const *groups, size_t n)
{
	int64_t most = 0;
	for (size_t i = 0; i < n; i++) {
		int64_t bytes = ((const struct attrs_group *)groups[i]->attrs)->scratch;
		most = bytes > most ? bytes : most;
	}
	return (most + OBJECT_ALIGN - 1) / OBJECT_ALIGN * OBJECT_ALIGN;
}

/* Appends a buffer for a tensor of type t to the arena; returns its offset. */
static const struct ir_dim *append_buffer(struct object *o, struct function *f, const struct ir_type *t)
{
	struct ir_dims *dims = o->module->dims;
	const struct ir_dim *at = f->arena, *each = ir_dim_const(dims, ir_dtype_bytes(t->dtype));
	f->arena = ir_dim_add(dims, at, round_up(o, ir_dim_mul(dims, ir_type_count(dims, t), each)));
	return at;
}

/* Only the return op reads output v, directly or through views. */
static bool only_returned(const struct function *f, struct ir_value v)
{
	struct ir_value r = func_result(f->func, f->storage[v.id]->number);
	for (; f->uses[r.id] == 1; r = ir_def(f->func, r)->operands[0]) {
		if (ir_same_value(r, v))
			return true;
		if (!ir_def(f->func, r) || !ir_op_has(ir_def(f->func, r)->code, TRAIT_VIEW))
			return false;
	}
	return false;
}

bool group_is_optional(const struct function *f, const struct ir_op *group)
{
	for (size_t i = 0; i < group->n_results; i++)
		if (f->storage[group->results[i].id]->kind != STORAGE_OUTPUT ||
		    !only_returned(f, group->results[i]))
			return false;
	return group->n_results > 0;
}

/* Whether v is an output that is computed even if the caller passes no buffer for it. */
static bool needs_spare_buffer(const struct function *f, uint32_t v)
{
	const struct storage *p = f->storage[v];
	const struct ir_op *op = ir_def(f->func, (struct ir_value){v});
	if (p->at || ir_type_of(f->func, (struct ir_value){v})->kind != IR_TENSOR)
		return false;
	if (p->kind == STORAGE_ARENA)
		return true;
	if (p->kind != STORAGE_OUTPUT)
		return false;
	return !(op && op->code == OP_group && op->n_results == 1 && group_is_optional(f, op));
}

/* Spare buffers after the planned ones. */
static void append_spare_buffers(struct object *o, struct function *f)
{
	const struct ir_func *func = f->func;
	struct ir_dims *t = o->module->dims;
	const struct ir_dim *partials = ir_dim_const(t, 0);
	f->arena = round_up(o, func->arena ? func->arena : partials);
	for (size_t i = 0; i < func->n_params; i++)
		if (param_is_input(func, i) && func->params[i].has_default) {
			f->default_at[i] = append_buffer(o, f, ir_type_of(func, func->params[i].value));
			f->has_defaults = true;
		}
	for (uint32_t v = 1; v < func->n_values; v++)
		if (needs_spare_buffer(f, v))
			f->storage[v]->at = append_buffer(o, f, ir_type_of(func, (struct ir_value){v}));
	/* One buffer for all split attentions: each one's partial results are combined before the next one
	 * starts. */
	for (size_t i = 0; i < f->n_groups; i++) {
		const struct ir_dim *bytes = kernel_combine_bytes(o->module, func, f->groups[i], o->target);
		partials = bytes ? ir_dim_max(t, partials, bytes) : partials;
	}
	f->partials_at = f->arena;
	f->arena = round_up(o, ir_dim_add(t, f->arena, partials));
}

static enum tfmc_status add_function(struct object *o, const struct ir_func *func)
{
	size_t n_dims = ir_dims_count(o->module->dims);
	struct function *f = ARENA_PUSH(o->arena, &o->functions);
	if (!f)
		return TFMC_NO_MEMORY;
	f->func = func;
	f->base = ir_case_base(o->module, func);
	f->symbol = arena_printf(o->arena, "%s.%s", o->prefix, func->name);
	f->has_dim = ARENA_ARRAY(o->arena, bool, n_dims + 1);
	f->dim_slot = ARENA_ARRAY(o->arena, size_t, n_dims + 1);
	f->param_slot = ARENA_ARRAY(o->arena, size_t, func->n_params + 1);
	f->result_slot = ARENA_ARRAY(o->arena, size_t, func->n_results + 1);
	f->default_at = ARENA_ARRAY(o->arena, const struct ir_dim *, func->n_params + 1);
	f->uses = ir_count_uses(o->arena, func);
	struct ir_lifetimes life;
	if (arena_failed(o->arena) || !ir_lifetimes(o->arena, func, &life))
		return TFMC_NO_MEMORY;
	assign_slots(o, f);
	f->groups = life.groups;
	f->n_groups = life.n_times;
	f->scratch = groups_scratch(f->groups, f->n_groups);
	TFMC_TRY(assign_storage(o, f, life.carry));
	append_spare_buffers(o, f);
	o->scratch = f->scratch > o->scratch ? f->scratch : o->scratch;
	if (!ir_dims_failed(o->module->dims) && ir_dim_hi(o->module->dims, f->arena) < INT64_MAX / 4)
		return TFMC_OK;
	diag_error(o->cx, func->loc.at, DIAG_LIMIT, "function '%s' needs more memory than can be addressed",
	           func->name);
	return TFMC_INVALID;
}

bool function_is_encode(const struct function *f)
{
	return !strcmp(f->base->name, "encode");
}

bool function_has_source(const struct object *o, const struct function *f)
{
	return o->states.encoded_at && !function_is_encode(f);
}

size_t function_arg_slots(const struct function *f)
{
	return f->n_dims + 2 * (f->n_inputs + f->n_outputs);
}

enum tfmc_status layout_functions(struct object *o)
{
	for (size_t i = 0; i < o->module->funcs.n; i++)
		TFMC_TRY(add_function(o, o->module->funcs.items[i]));
	return TFMC_OK;
}

/* ---- entries ---- */

const struct ir_dim *entry_dim(const struct object *o, const struct entry *e, const struct ir_dim *d)
{
	if (e->fixed_dim < 0)
		return d;
	return ir_dim_substitute(o->module->dims, d, e->fixed_dim, ir_dim_const(o->module->dims, 1));
}

size_t entry_dims(const struct object *o, const struct entry *e, uint64_t *out)
{
	size_t n = 0;
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++)
		if (o->functions.items[e->function].has_dim[i] && (int)i != e->fixed_dim)
			out[n++] = i;
	return n;
}

static enum tfmc_status add_entry(struct object *o, const char *name, enum tfmc_entry_kind kind,
                                  size_t function, int fixed_dim)
{
	const struct backend_options *b = o->options;
	bool is_wanted = b->n_entries == 0;
	for (size_t i = 0; i < b->n_entries; i++)
		is_wanted |= !strcmp(b->entries[i], name);
	if (is_wanted)
		ARENA_ADD(o->arena, &o->entries,
		          (struct entry){
		                  .name = name, .kind = kind, .function = function, .fixed_dim = fixed_dim});
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* The IR function decode has two entries: prefill, and step with its token dim fixed to 1. */
static enum tfmc_status add_decode(struct object *o, size_t function)
{
	const struct ir_func *f = o->functions.items[function].func;
	int tokens = ir_func_token_dim(f);
	TFMC_TRY(add_entry(o, "prefill", TFMC_ENTRY_PREFILL, function, -1));
	if (tokens < 0) {
		diag_error(o->cx, f->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: entry 'step' of a function that appends to no state");
		return TFMC_INVALID;
	}
	return add_entry(o, "step", TFMC_ENTRY_STEP, function, tokens);
}

enum case_use entry_case(const struct object *o, const struct entry *e, const struct function *f)
{
	const struct ir_case *c = f->func->when;
	enum case_use use = CASE_ALWAYS;
	if (!c || f->base != o->functions.items[e->function].func)
		return CASE_NEVER;
	for (size_t i = 0; i < c->n; i++) {
		const struct ir_condition *x = &c->conditions[i];
		const struct ir_dim *d = entry_dim(o, e, x->dim);
		int64_t lo = ir_dim_lo(o->module->dims, d), hi = ir_dim_hi(o->module->dims, d);
		bool equal = x->relation == IR_EQUAL;
		if (lo > x->value || (equal && hi < x->value))
			return CASE_NEVER;
		if (hi > x->value || (equal && lo < x->value))
			use = CASE_SOMETIMES;
	}
	return use;
}

/* The module has no requested entry: names those it has. */
static enum tfmc_status report_no_entry(const struct object *o)
{
	struct buf names;
	buf_init(&names);
	for (size_t i = 0; i < o->functions.n; i++) {
		const char *name = o->functions.items[i].func->name;
		if (!o->functions.items[i].func->when)
			buf_printf(&names, "%s%s", names.len > 0 ? ", " : "",
			           !strcmp(name, "decode") ? "prefill, step" : name);
	}
	diag_error(o->cx, LOC_NONE, DIAG_OPTION, "the model has none of the requested entries; it has %s",
	           names.data);
	buf_destroy(&names);
	return TFMC_INVALID;
}

enum tfmc_status layout_entries(struct object *o)
{
	for (size_t i = 0; i < o->functions.n; i++) {
		const char *name = o->functions.items[i].func->name;
		if (o->functions.items[i].func->when)
			continue;
		enum tfmc_entry_kind kind = !strcmp(name, "encode")  ? TFMC_ENTRY_ENCODE
		                            : !strcmp(name, "score") ? TFMC_ENTRY_SCORE
		                                                     : TFMC_ENTRY_RUN;
		TFMC_TRY(!strcmp(name, "decode") ? add_decode(o, i) : add_entry(o, name, kind, i, -1));
	}
	for (size_t k = 0; k < o->entries.n; k++) { /* mark the functions and cases that calls can reach */
		enum case_use use = CASE_NEVER;
		for (size_t i = 0; i < o->functions.n && use != CASE_ALWAYS; i++) {
			use = entry_case(o, &o->entries.items[k], &o->functions.items[i]);
			o->functions.items[i].reached |= use != CASE_NEVER;
		}
		if (use != CASE_ALWAYS)
			o->functions.items[o->entries.items[k].function].reached = true;
	}
	o->scratch = 0;
	for (size_t i = 0; i < o->functions.n; i++)
		if (o->functions.items[i].reached && o->functions.items[i].scratch > o->scratch)
			o->scratch = o->functions.items[i].scratch;
	return o->entries.n > 0 ? TFMC_OK : report_no_entry(o);
}
