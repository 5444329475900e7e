/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifier of the kernel IR: no error while building, functions finished and with distinct names, values and
 * variables used only where they are visible (a scope hides its definitions at its end), calls of the module's own
 * functions match their parameters, barriers and shared memory. A violation is a bug of tfmc.
 */
#include "backends/kb/internal.h"

#include <string.h>

struct scope {
	size_t values, vars; /* n_values and n_vars of the verifier at its begin */
};

struct verifier {
	const struct kb_module *m;
	const struct kb_func *f;
	struct arena arena;
	bool *value_seen;        /* by value id: visible now */
	bool *var_seen;          /* by variable id */
	uint32_t *values, *vars; /* stacks of visible ids, in order of definition */
	size_t n_values, n_vars;
	struct scope *scopes;
	size_t n_scopes;
	const char *error;
};

static void fail(struct verifier *v, size_t at, const char *what)
{
	if (!v->error)
		v->error = arena_printf(&v->arena, "kernel %s: instruction %zu: %s", v->f->name, at, what);
}

static void leave_scope(struct verifier *v)
{
	struct scope s = v->scopes[--v->n_scopes];
	while (v->n_values > s.values)
		v->value_seen[v->values[--v->n_values]] = false;
	while (v->n_vars > s.vars)
		v->var_seen[v->vars[--v->n_vars]] = false;
}

static void enter_scope(struct verifier *v)
{
	v->scopes[v->n_scopes++] = (struct scope){v->n_values, v->n_vars};
}

/* Makes the result of inst visible until its scope ends: pushes it on the stack of its kind, which leave_scope pops. */
static void define(struct verifier *v, size_t at, const struct kb_inst *inst)
{
	bool is_var = inst->op == KBO_VAR;
	bool *seen = is_var ? v->var_seen : v->value_seen;
	if (inst->result == 0)
		return;
	if (seen[inst->result])
		fail(v, at, "defined twice");
	seen[inst->result] = true;
	if (is_var)
		v->vars[v->n_vars++] = inst->result;
	else
		v->values[v->n_values++] = inst->result;
}

static const struct kb_func *find_func(const struct kb_module *m, const char *name)
{
	for (size_t i = 0; i < kb_func_count(m); i++)
		if (strcmp(kb_func_at(m, i)->name, name) == 0)
			return kb_func_at(m, i);
	return NULL;
}

/* A call of a function of the module matches its parameters (its first instructions) and result; a name without
 * definition here is external, and the emitter declares it. */
static void check_call(struct verifier *v, size_t at, const struct kb_inst *inst)
{
	const struct kb_func *callee = find_func(v->m, inst->name);
	if (!callee)
		return;
	if (callee->linkage == KB_KERNEL)
		fail(v, at, "kernels are launched, not called");
	size_t n = 0;
	for (; n < callee->n_insts && callee->insts[n].op == KBO_PARAM; n++) {
		bool fits = n < inst->n_args && inst->args[n].id < v->f->n_values &&
		            kb_same_type(callee->insts[n].type, v->f->types[inst->args[n].id]);
		if (!fits)
			fail(v, at, "the arguments do not match the parameters");
	}
	if (n != inst->n_args || inst->type.scalar != callee->result)
		fail(v, at, "the arguments do not match the parameters");
}

/* Operands and variables are defined before, in an enclosing scope. */
static void check_uses(struct verifier *v, size_t at, const struct kb_inst *inst)
{
	for (size_t i = 0; i < inst->n_args; i++) {
		uint32_t id = inst->args[i].id;
		if (id == 0 || id >= v->f->n_values || !v->value_seen[id])
			fail(v, at, "an operand is not visible here");
	}
	if (inst->op != KBO_GET && inst->op != KBO_SET)
		return;
	if (inst->imm <= 0 || inst->imm >= (int64_t)v->f->n_vars || !v->var_seen[inst->imm])
		fail(v, at, "a variable is not visible here");
}

/* Checks one instruction. Scopes change between its uses and its definition: a loop's bounds are outside, its index
 * belongs to the loop; an ELSE ends the scope of its IF and begins one. */
static void check_inst(struct verifier *v, size_t at, const struct kb_inst *inst)
{
	bool ends = inst->op == KBO_END_LOOP || inst->op == KBO_END_FOREVER || inst->op == KBO_END_IF ||
	            inst->op == KBO_ELSE;
	bool begins =
	        inst->op == KBO_LOOP || inst->op == KBO_FOREVER || inst->op == KBO_IF || inst->op == KBO_ELSE;
	check_uses(v, at, inst);
	if (inst->op == KBO_CALL)
		check_call(v, at, inst);
	if (ends && v->n_scopes > 0)
		leave_scope(v);
	if (begins)
		enter_scope(v);
	define(v, at, inst);
}

/* Work-group rules that hold statically: a kernel with barriers returns only as its last instruction (a work-item
 * that returned would miss a barrier), and shared arrays fit into local memory. That all work-items reach each
 * barrier is checked by the interpreter of the tests. */
static void check_kernel(struct verifier *v)
{
	const struct kb_func *f = v->f;
	bool has_barrier = false;
	int64_t shared = 0;
	size_t open = 0;
	for (size_t i = 0; i < f->n_insts; i++)
		has_barrier |= f->insts[i].op == KBO_BARRIER;
	for (size_t i = 0; i < f->n_insts; i++) {
		const struct kb_inst *inst = &f->insts[i];
		open += inst->op == KBO_LOOP || inst->op == KBO_FOREVER || inst->op == KBO_IF;
		open -= inst->op == KBO_END_LOOP || inst->op == KBO_END_FOREVER || inst->op == KBO_END_IF;
		if (inst->op == KBO_SHARED)
			shared += inst->imm * kb_scalar_bytes(inst->element);
		if (inst->op == KBO_RETURN && has_barrier && (open > 0 || i + 1 < f->n_insts))
			fail(v, i, "a return before the end of a kernel with barriers");
	}
	if (shared > f->caps.shared_bytes)
		fail(v, f->n_insts, "more shared memory than a work-group of the target has");
}

/* Checks one function; the first violation is reported as an internal error. Arrays have one element more than
 * needed, since an arena returns NULL for none. */
static enum tfmc_status verify_func(const struct kb_module *m, const struct kb_func *f,
                                    struct diag_context *cx)
{
	struct verifier v = {.m = m, .f = f};
	arena_init(&v.arena);
	v.value_seen = ARENA_ARRAY(&v.arena, bool, f->n_values + 1);
	v.var_seen = ARENA_ARRAY(&v.arena, bool, f->n_vars + 1);
	v.values = ARENA_ARRAY(&v.arena, uint32_t, f->n_values + 1);
	v.vars = ARENA_ARRAY(&v.arena, uint32_t, f->n_vars + 1);
	v.scopes = ARENA_ARRAY(&v.arena, struct scope, f->n_insts + 1);
	enum tfmc_status st = arena_failed(&v.arena) ? TFMC_NO_MEMORY : TFMC_OK;
	for (size_t i = 0; st == TFMC_OK && i < f->n_insts && !v.error; i++)
		check_inst(&v, i, &f->insts[i]);
	if (st == TFMC_OK && f->linkage == KB_KERNEL)
		check_kernel(&v);
	if (v.error) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "%s", v.error);
		st = TFMC_INTERNAL;
	}
	arena_destroy(&v.arena);
	return st;
}

/* The first error of the builder, then each function: finished, with a name of its own, and valid. */
enum tfmc_status kb_verify(const struct kb_module *m, struct diag_context *cx)
{
	if (arena_failed(m->arena))
		return TFMC_NO_MEMORY;
	if (m->error) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "kernel %s", m->error);
		return TFMC_INTERNAL;
	}
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct kb *k = m->funcs.items[i];
		if (!k->ended || find_func(m, k->func->name) != k->func) {
			diag_error(cx, LOC_NONE, DIAG_INTERNAL, "kernel %s is %s", k->func->name,
			           k->ended ? "defined twice" : "not ended");
			return TFMC_INTERNAL;
		}
		TFMC_TRY(verify_func(m, k->func, cx));
	}
	return TFMC_OK;
}
