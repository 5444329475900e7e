/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alignment analysis: for every value the largest known power of two that divides it (an integer) or its address (a
 * pointer), as LLVM's KnownBits counts trailing zeros. A forward data-flow pass; variables, which loops assign, begin
 * at the maximum and are lowered until a fixed point. OpenCL needs it: GPU compilers split a vector access into
 * scalar ones unless its alignment is stated.
 */
#include "backends/kb/internal.h"

#define LOG2_MAX 31 /* the alignment of 0, above any that an access needs */

struct alignments {
	const struct kb_func *f;
	uint8_t *values, *vars; /* log2, by id */
	bool changed;
};

static int log2_of(int64_t v)
{
	int n = 0;
	while (n < LOG2_MAX && !((uint64_t)v >> n & 1))
		n++;
	return n;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* log2 of the alignment of x op y, those of x and y being a and b. by: the instruction that defines y, or NULL. */
static int align_of_bin(enum kb_bin op, int a, int b, const struct kb_inst *by)
{
	bool is_const = by != NULL && by->op == KBO_CONST_INT;
	switch (op) {
	case KB_MUL: return least(a + b, LOG2_MAX);
	case KB_AND: return a > b ? a : b;
	case KB_SHL:
		return is_const && by->imm >= 0 && by->imm < LOG2_MAX ? least(a + (int)by->imm, LOG2_MAX) : a;
	case KB_ADD:
	case KB_SUB:
	case KB_REM:
	case KB_MIN:
	case KB_MAX:
	case KB_OR:
	case KB_XOR: return least(a, b);
	case KB_DIV:
	case KB_SHR:
	case KB_SAR: break;
	}
	return 0;
}

/* log2 of the alignment of the result of i. definitions: by value id, the instruction that defines it. */
static int align_of_result(const struct alignments *a, const struct kb_inst *i,
                           const struct kb_inst *const *definitions)
{
	int arg[3] = {0};
	for (size_t n = 0; n < i->n_args && n < 3; n++)
		arg[n] = a->values[i->args[n].id];
	if (i->op == KBO_CONST_INT)
		return log2_of(i->imm);
	if (i->op == KBO_PARAM || i->op == KBO_LOCAL || i->op == KBO_SHARED)
		return i->align > 0 ? log2_of(i->align) : 0;
	if (i->op == KBO_GET)
		return a->vars[i->imm];
	if (i->op == KBO_LOOP)
		return least(arg[0], log2_of(i->imm));
	if (i->op == KBO_PTR_ADD)
		return least(least(arg[0], arg[1]), log2_of(i->imm));
	if (i->op == KBO_PTR_OPAQUE || (i->op == KBO_CVT && !kb_is_float(i->type.scalar) &&
	                                !kb_is_float(a->f->types[i->args[0].id].scalar)))
		return arg[0];
	if (i->op == KBO_SELECT)
		return least(arg[1], arg[2]);
	if (i->op == KBO_BIN && !kb_is_float(i->type.scalar))
		return align_of_bin(i->bin, arg[0], arg[1], definitions[i->args[1].id]);
	return 0;
}

static void lower_to(struct alignments *a, uint8_t *align, int to)
{
	if (to >= *align)
		return;
	*align = (uint8_t)to;
	a->changed = true;
}

static void visit(struct alignments *a, const struct kb_inst *i, const struct kb_inst *const *definitions)
{
	if (i->op == KBO_VAR && i->n_args > 0 && i->args[0].id)
		lower_to(a, &a->vars[i->result], a->values[i->args[0].id]);
	else if (i->op == KBO_SET)
		lower_to(a, &a->vars[i->imm], a->values[i->args[0].id]);
	else if (i->op != KBO_VAR && i->result)
		lower_to(a, &a->values[i->result], align_of_result(a, i, definitions));
}

const uint8_t *kb_alignments(const struct kb_func *f, struct arena *arena)
{
	struct alignments a = {.f = f};
	a.values = ARENA_ARRAY(arena, uint8_t, f->n_values + 1);
	a.vars = ARENA_ARRAY(arena, uint8_t, f->n_vars + 1);
	const struct kb_inst **definitions = ARENA_ARRAY(arena, const struct kb_inst *, f->n_values + 1);
	if (arena_failed(arena))
		return NULL;
	for (size_t i = 0; i <= f->n_values; i++)
		a.values[i] = LOG2_MAX;
	for (size_t i = 0; i <= f->n_vars; i++)
		a.vars[i] = LOG2_MAX;
	for (size_t i = 0; i < f->n_insts; i++)
		if (f->insts[i].result && f->insts[i].op != KBO_VAR)
			definitions[f->insts[i].result] = &f->insts[i];
	do {
		a.changed = false;
		for (size_t i = 0; i < f->n_insts; i++)
			visit(&a, &f->insts[i], definitions);
	} while (a.changed);
	return a.values;
}

int kb_access_align(const uint8_t *alignments, const struct kb_inst *i)
{
	size_t ptr = i->op == KBO_STORE || i->op == KBO_STORE_PART;
	int element = log2_of(kb_scalar_bytes(i->type.scalar));
	int index = alignments[i->args[ptr + 1].id] + element, disp = log2_of(i->imm) + element;
	int known = 1 << least(alignments[i->args[ptr].id], least(least(index, disp), 12));
	return known > i->align ? known : i->align;
}
