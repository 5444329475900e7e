/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Register pressure of kernel IR: the maximum number of live vectors, by live intervals over the list of
 * instructions. An interval extends to the end of every loop that uses a value defined before it. A GET, and a value
 * that is only SET into a variable, share the variable's register; a broadcast load is a memory operand of its use.
 */
#include "tests/kb_interp/live.h"

#include <string.h>

struct interval {
	size_t begin, end; /* positions of instructions; end 0: unused */
	int units;         /* native registers */
};

struct liveness {
	const struct kb_func *f;
	const struct kb_caps *caps;
	struct interval *values, *vars;
	size_t *loop_end; /* by instruction: the end of the loop that begins there */
};

static int units_of(const struct liveness *l, struct kb_type t)
{
	if (t.lanes == 1)
		return 0;
	return (t.lanes + l->caps->lanes - 1) / l->caps->lanes;
}

static void find_loop_ends(struct liveness *l, size_t *stack)
{
	size_t depth = 0;
	for (size_t i = 0; i < l->f->n_insts; i++) {
		enum kb_opcode op = l->f->insts[i].op;
		if (op == KBO_LOOP || op == KBO_FOREVER)
			stack[depth++] = i;
		if ((op == KBO_END_LOOP || op == KBO_END_FOREVER) && depth > 0)
			l->loop_end[stack[--depth]] = i;
	}
}

/* Extends the interval to a use, or to the end of the outermost loop that contains the use but not the definition. */
static void extend(const struct liveness *l, struct interval *v, size_t at)
{
	size_t end = at;
	for (size_t i = v->begin + 1; i < at; i++) {
		if (l->loop_end[i] > at) {
			end = l->loop_end[i];
			break;
		}
	}
	if (end > v->end)
		v->end = end;
}

static void collect(struct liveness *l)
{
	for (size_t i = 0; i < l->f->n_insts; i++) {
		const struct kb_inst *inst = &l->f->insts[i];
		for (size_t a = 0; a < inst->n_args; a++)
			extend(l, &l->values[inst->args[a].id], i);
		if (inst->op == KBO_GET || inst->op == KBO_SET)
			extend(l, &l->vars[inst->imm], i);
		if (inst->result == 0)
			continue;
		struct interval *v = inst->op == KBO_VAR ? &l->vars[inst->result] : &l->values[inst->result];
		v->begin = i;
		v->units = units_of(l, inst->type);
		if (inst->op == KBO_GET || inst->op == KBO_LOAD_SPLAT)
			v->units = 0;
	}
}

/* A value whose only use is the SET right after it is computed in the variable's register. */
static void merge_sets(struct liveness *l)
{
	for (size_t i = 0; i < l->f->n_insts; i++) {
		const struct kb_inst *inst = &l->f->insts[i];
		if (inst->op != KBO_SET && !(inst->op == KBO_VAR && inst->n_args == 1))
			continue;
		struct interval *v = &l->values[inst->args[0].id];
		if (v->end == i && v->begin + 1 == i)
			v->units = 0;
	}
}

static int largest_sum(const struct liveness *l, int *change)
{
	for (size_t i = 0; i < l->f->n_values + l->f->n_vars; i++) {
		bool is_var = i >= l->f->n_values;
		const struct interval *v = is_var ? &l->vars[i - l->f->n_values] : &l->values[i];
		if (v->end <= v->begin)
			continue;
		change[v->begin] += v->units;
		change[v->end] -= v->units;
	}
	int live = 0, most = 0;
	for (size_t i = 0; i < l->f->n_insts; i++) {
		live += change[i];
		most = live > most ? live : most;
	}
	return most;
}

static int count_func(const struct kb_func *f)
{
	struct arena a;
	arena_init(&a);
	struct liveness l = {.f = f, .caps = &f->caps};
	l.values = ARENA_ARRAY(&a, struct interval, f->n_values + 1);
	l.vars = ARENA_ARRAY(&a, struct interval, f->n_vars + 1);
	l.loop_end = ARENA_ARRAY(&a, size_t, f->n_insts + 1);
	size_t *stack = ARENA_ARRAY(&a, size_t, f->n_insts + 1);
	int *change = ARENA_ARRAY(&a, int, f->n_insts + 1);
	int most = 0;
	if (!arena_failed(&a)) {
		find_loop_ends(&l, stack);
		collect(&l);
		merge_sets(&l);
		most = largest_sum(&l, change);
	}
	arena_destroy(&a);
	return most;
}

int kb_max_live_vectors(const struct kb_module *m, const char *name)
{
	for (size_t i = 0; i < kb_func_count(m); i++)
		if (strcmp(kb_func_at(m, i)->name, name) == 0)
			return count_func(kb_func_at(m, i));
	return 0;
}
