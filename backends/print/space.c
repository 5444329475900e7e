/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address space inference by unification (union-find): every pointer value, pointer variable and pointer result of
 * the module is a node; copies, additions, selects, comparisons and calls unite nodes; a class has at most one space.
 * A store marks the whole class as written, so that constness agrees wherever pointers are mixed. Pointers in memory,
 * through which a space could not be followed, and calls of other functions are rejected.
 */
#include "backends/print/space.h"

#include <string.h>

struct node {
	uint32_t parent;
	struct space_pointer pointer; /* of the class, at its root */
};

struct infer {
	struct diag_context *cx;
	const struct kb_module *m;
	struct node *nodes;
	size_t *first; /* [functions]: node of the function's result; its values (from id 1) and variables follow */
	size_t at;               /* number of the function being visited */
	const struct kb_func *f; /* the function being visited */
	bool failed;
};

const char *space_qualifier(enum space s)
{
	switch (s) {
	case SPACE_NONE: return "";
	case SPACE_GLOBAL: return "__global";
	case SPACE_LOCAL: return "__local";
	case SPACE_PRIVATE: return "__private";
	case SPACE_CONSTANT: return "__constant";
	}
	return "";
}

/* ---- classes ---- */

static void fail(struct infer *s, const char *what)
{
	if (!s->failed)
		diag_error(s->cx, LOC_NONE, DIAG_UNSUPPORTED, "not supported yet: in OpenCL C, kernel %s %s",
		           s->f->name, what);
	s->failed = true;
}

/* Find, with path halving. */
static uint32_t root(struct infer *s, uint32_t n)
{
	while (s->nodes[n].parent != n) {
		s->nodes[n].parent = s->nodes[s->nodes[n].parent].parent;
		n = s->nodes[n].parent;
	}
	return n;
}

static void set_space(struct infer *s, uint32_t n, enum space space)
{
	struct space_pointer *p = &s->nodes[root(s, n)].pointer;
	if (p->space != SPACE_NONE && space != SPACE_NONE && p->space != space)
		fail(s, "uses one pointer for two address spaces");
	else if (space != SPACE_NONE)
		p->space = space;
}

/* Merges two classes; an error if they have different spaces. */
static void unite(struct infer *s, uint32_t a, uint32_t b)
{
	uint32_t x = root(s, a), y = root(s, b);
	if (x == y)
		return;
	struct space_pointer joined = s->nodes[y].pointer;
	s->nodes[y].parent = x;
	set_space(s, x, joined.space);
	s->nodes[x].pointer.is_written |= joined.is_written;
}

/* ---- nodes of the function being visited ---- */

static uint32_t result_node(const struct infer *s, size_t func)
{
	return (uint32_t)s->first[func];
}

static uint32_t value_node(const struct infer *s, uint32_t id)
{
	return (uint32_t)(s->first[s->at] + id);
}

static uint32_t var_node(const struct infer *s, int64_t id)
{
	return (uint32_t)(s->first[s->at] + s->f->n_values + (size_t)id);
}

static bool is_pointer(const struct infer *s, struct kb_val v)
{
	return s->f->types[v.id].scalar == KB_PTR;
}

/* ---- one instruction ---- */

static bool find_func(const struct kb_module *m, const char *name, size_t *out)
{
	for (*out = 0; *out < kb_func_count(m); ++*out)
		if (strcmp(kb_func_at(m, *out)->name, name) == 0)
			return true;
	return false;
}

/* Unites arguments with the parameters of the callee, which are its first instructions. */
static void visit_call(struct infer *s, const struct kb_inst *i)
{
	size_t callee;
	if (!find_func(s->m, i->name, &callee)) {
		fail(s, "calls a function outside of the module");
		return;
	}
	for (size_t a = 0; a < i->n_args; a++)
		if (is_pointer(s, i->args[a]))
			unite(s, value_node(s, i->args[a].id),
			      (uint32_t)(s->first[callee] + kb_func_at(s->m, callee)->insts[a].result));
	if (i->type.scalar == KB_PTR)
		unite(s, value_node(s, i->result), result_node(s, callee));
}

static void visit_store(struct infer *s, const struct kb_inst *i)
{
	s->nodes[root(s, value_node(s, i->args[1].id))].pointer.is_written = true;
	if (is_pointer(s, i->args[0]))
		fail(s, "stores a pointer in memory");
}

/* The result `to` may be any of the pointers among the operands. */
static void visit_copy(struct infer *s, const struct kb_inst *i, uint32_t to)
{
	for (size_t a = 0; a < i->n_args; a++)
		if (is_pointer(s, i->args[a]))
			unite(s, to, value_node(s, i->args[a].id));
}

/* Unites the pointers that an instruction relates, and sets the space of those that it defines. */
static void visit(struct infer *s, const struct kb_inst *i)
{
	switch (i->op) {
	case KBO_PARAM:
		if (s->f->linkage == KB_KERNEL && i->type.scalar == KB_PTR)
			set_space(s, value_node(s, i->result), SPACE_GLOBAL);
		return;
	case KBO_STRING:
	case KBO_SYMBOL: set_space(s, value_node(s, i->result), SPACE_CONSTANT); return;
	case KBO_LOCAL: set_space(s, value_node(s, i->result), SPACE_PRIVATE); return;
	case KBO_SHARED: set_space(s, value_node(s, i->result), SPACE_LOCAL); return;
	case KBO_STORE:
	case KBO_STORE_PART: visit_store(s, i); return;
	case KBO_CALL: visit_call(s, i); return;
	case KBO_RETURN: visit_copy(s, i, result_node(s, s->at)); return;
	case KBO_VAR: visit_copy(s, i, var_node(s, i->result)); return;
	case KBO_SET: visit_copy(s, i, var_node(s, i->imm)); return;
	case KBO_GET:
		if (i->type.scalar == KB_PTR)
			unite(s, value_node(s, i->result), var_node(s, i->imm));
		return;
	case KBO_PTR_ADD:
	case KBO_PTR_OPAQUE:
	case KBO_SELECT:
		if (i->type.scalar == KB_PTR)
			visit_copy(s, i, value_node(s, i->result));
		return;
	case KBO_CMP:
		if (is_pointer(s, i->args[0]))
			unite(s, value_node(s, i->args[0].id), value_node(s, i->args[1].id));
		return;
	case KBO_LOAD:
	case KBO_LOAD_SPLAT:
	case KBO_LOAD_PART:
		if (i->type.scalar == KB_PTR)
			fail(s, "loads a pointer from memory");
		return;
	case KBO_CALL_PTR:
	case KBO_FUNC_ADDR: fail(s, "calls through a pointer"); return;
	default: return;
	}
}

/* ---- the module ---- */

/* Numbers the nodes of all functions: result, values (whose ids begin with 1), variables; each is a class of its own.
 * False without memory. */
static bool begin(struct infer *s, struct arena *arena)
{
	size_t n = 0, n_funcs = kb_func_count(s->m);
	s->first = ARENA_ARRAY(arena, size_t, n_funcs + 1);
	if (!s->first)
		return false;
	for (size_t i = 0; i < n_funcs; i++) {
		s->first[i] = n;
		n += kb_func_at(s->m, i)->n_values + kb_func_at(s->m, i)->n_vars;
	}
	s->nodes = ARENA_ARRAY(arena, struct node, n + 1);
	for (size_t i = 0; s->nodes && i < n; i++)
		s->nodes[i].parent = (uint32_t)i;
	return s->nodes != NULL;
}

/* Writes the classes of the function's values and variables to *out. Reports stores to constant data, which only the
 * finished classes show. False without memory. */
static bool collect(struct infer *s, struct arena *arena, struct space_func *out)
{
	struct space_pointer *values = ARENA_ARRAY(arena, struct space_pointer, s->f->n_values + 1);
	struct space_pointer *vars = ARENA_ARRAY(arena, struct space_pointer, s->f->n_vars + 1);
	if (!values || !vars)
		return false;
	for (uint32_t i = 0; i < s->f->n_values; i++) {
		values[i] = s->nodes[root(s, value_node(s, i))].pointer;
		if (values[i].space == SPACE_CONSTANT && values[i].is_written)
			fail(s, "stores to constant data");
	}
	for (uint32_t i = 0; i < s->f->n_vars; i++)
		vars[i] = s->nodes[root(s, var_node(s, i))].pointer;
	out->values = values;
	out->vars = vars;
	out->result = values[0]; /* node 0 of a function is its result */
	return true;
}

enum tfmc_status space_infer(struct diag_context *cx, const struct kb_module *m, struct arena *arena,
                             struct space_module *out)
{
	struct infer s = {.cx = cx, .m = m};
	size_t n = kb_func_count(m);
	struct space_func *funcs = ARENA_ARRAY(arena, struct space_func, n + 1);
	if (!funcs || !begin(&s, arena))
		return TFMC_NO_MEMORY;
	for (s.at = 0; s.at < n && !s.failed; s.at++) {
		s.f = kb_func_at(m, s.at);
		for (size_t i = 0; i < s.f->n_insts && !s.failed; i++)
			visit(&s, &s.f->insts[i]);
	}
	for (s.at = 0; s.at < n && !s.failed; s.at++) {
		s.f = kb_func_at(m, s.at);
		if (!collect(&s, arena, &funcs[s.at]))
			return TFMC_NO_MEMORY;
	}
	out->funcs = funcs;
	return s.failed ? TFMC_INVALID : TFMC_OK;
}
