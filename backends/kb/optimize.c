/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Analysis and transformations of finished functions: alignment; dead code elimination, and merging of identical
 * functions (as LLVM's MergeFunctions), which keeps one kernel for all layers of a model. No function computes anything
 * else afterwards.
 */
#include "backends/kb/internal.h"

#include <string.h>

/* ---- alignment ---- */

/*
 * Alignment analysis: for every value the largest known power of two that divides it (an integer) or its address (a
 * pointer), as LLVM's KnownBits counts trailing zeros. A forward data-flow pass; variables, which loops assign, begin
 * at the maximum and are lowered until a fixed point. Alignments are stored as log2, the number of trailing zero bits.
 * OpenCL needs it: GPU compilers split a vector access into scalar ones unless its alignment is stated.
 */

#define LOG2_MAX 31 /* the alignment of 0, above any that an access needs */

struct alignments {
	const struct kb_func *f;
	uint8_t *values, *vars; /* log2, by id */
	bool changed;
};

/* Trailing zero bits of v, at most LOG2_MAX, which 0 has: every power of two divides it. */
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

/* log2 of the alignment of x op y, those of x and y being a and b: trailing zeros add in products, `and` keeps the
 * larger number of them, sums and choices the smaller; after division and right shifts nothing is known. by: the
 * instruction that defines y (NULL: unknown), for shifts by a constant. */
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

/* log2 of the alignment of the result of i; 0: nothing known, as for loaded values. definitions: by value id, the
 * instruction that defines it. A conversion between integers keeps trailing zeros; a loop index is its begin plus
 * multiples of the step. */
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

/* Lowers the alignment of the result of i, or of the variable that it sets. A VAR without initial value lowers
 * nothing: its value comes from a SET. */
static void visit(struct alignments *a, const struct kb_inst *i, const struct kb_inst *const *definitions)
{
	if (i->op == KBO_VAR && i->n_args > 0 && i->args[0].id)
		lower_to(a, &a->vars[i->result], a->values[i->args[0].id]);
	else if (i->op == KBO_SET)
		lower_to(a, &a->vars[i->imm], a->values[i->args[0].id]);
	else if (i->op != KBO_VAR && i->result)
		lower_to(a, &a->values[i->result], align_of_result(a, i, definitions));
}

/* Starts with all maximal and lowers until nothing changes, so that a variable that a loop advances is found, too; it
 * ends since values only fall. */
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

/* Address = ptr + (index + imm) elements: the least of the three, limited to 4096. The alignment that the generator
 * states (align) may be more. A store has its value before pointer and index. */
int kb_access_align(const uint8_t *alignments, const struct kb_inst *i)
{
	size_t ptr = i->op == KBO_STORE || i->op == KBO_STORE_PART;
	int element = log2_of(kb_scalar_bytes(i->type.scalar));
	int index = alignments[i->args[ptr + 1].id] + element, disp = log2_of(i->imm) + element;
	int known = 1 << least(alignments[i->args[ptr].id], least(least(index, disp), 12));
	return known > i->align ? known : i->align;
}

/* ---- dead code, equal functions ---- */

/* ---- dead code ---- */

struct dce {
	struct kb_func *f;
	bool *insts, *values, *vars; /* live; by position, value id, variable id */
	bool changed;
};

/* VAR and SET are live if their variable is read, others if their value is used or they have an effect. */
static bool is_live(const struct dce *p, const struct kb_inst *inst)
{
	if (inst->op == KBO_SET)
		return p->vars[inst->imm];
	if (inst->op == KBO_VAR)
		return p->vars[inst->result];
	return kb_has_side_effect(inst->op) || (inst->result && p->values[inst->result]);
}

/* One backward pass. Uses follow definitions, so it reaches the operands of what it marks, except that a loop may
 * read a variable before the SET that follows in its body: the caller repeats until nothing changes. */
static void mark_live(struct dce *p)
{
	p->changed = false;
	for (size_t i = p->f->n_insts; i-- > 0;) {
		const struct kb_inst *inst = &p->f->insts[i];
		if (p->insts[i] || !is_live(p, inst))
			continue;
		p->insts[i] = p->changed = true;
		for (size_t a = 0; a < inst->n_args; a++)
			p->values[inst->args[a].id] = true;
		if (inst->op == KBO_GET)
			p->vars[inst->imm] = true;
	}
}

/* Marks to a fixed point, then compacts the list in place. Ids stay, so that nothing else changes. Without memory
 * nothing is removed; a module with an error stays as it is, for kb_verify. */
void kb_dce(struct kb *k)
{
	struct arena a;
	struct kb_func *f = k->func;
	if (!kb_require(k, k->ended, "dead code elimination in an unfinished function") ||
	    kb_module_failed(k->module))
		return;
	arena_init(&a);
	struct dce p = {.f = f};
	p.insts = ARENA_ARRAY(&a, bool, f->n_insts + 1);
	p.values = ARENA_ARRAY(&a, bool, f->n_values + 1);
	p.vars = ARENA_ARRAY(&a, bool, f->n_vars + 1);
	size_t n = 0;
	if (!arena_failed(&a)) {
		do
			mark_live(&p);
		while (p.changed);
		for (size_t i = 0; i < f->n_insts; i++)
			if (p.insts[i])
				f->insts[n++] = f->insts[i];
		f->n_insts = k->insts.n = n;
	}
	arena_destroy(&a);
}

/* ---- identical functions ---- */

/* The correspondence of values and variables of two functions. */
struct pairing {
	const struct kb_func *a, *b;
	uint32_t *values, *vars; /* by id of a: the id of b; 0: not defined yet */
};

/* Names of symbols are part of the code; names of values, variables and loops are for readers. */
static bool has_significant_name(enum kb_opcode op)
{
	return op == KBO_CALL || op == KBO_FUNC_ADDR || op == KBO_STRING || op == KBO_SYMBOL;
}

static bool same_imm(const struct pairing *p, const struct kb_inst *x, const struct kb_inst *y)
{
	if (x->op == KBO_GET || x->op == KBO_SET)
		return p->vars[x->imm] == (uint32_t)y->imm;
	return x->imm == y->imm;
}

/* x and y are equal for the correspondence so far, which their results extend: operands by correspondence, all else
 * alike. fimm is compared bit by bit, since -0.0 and NaN matter; `detail` is the union of the fields by opcode;
 * locations are 0 unless they are kept. */
static bool same_inst(struct pairing *p, const struct kb_inst *x, const struct kb_inst *y)
{
	if (x->op != y->op || !kb_same_type(x->type, y->type) || x->n_args != y->n_args ||
	    x->detail != y->detail || x->align != y->align || x->loc != y->loc ||
	    memcmp(&x->fimm, &y->fimm, sizeof(x->fimm)) != 0 || (x->result == 0) != (y->result == 0) ||
	    !same_imm(p, x, y))
		return false;
	if (has_significant_name(x->op) &&
	    !(x->name == y->name || (x->name && y->name && !strcmp(x->name, y->name))))
		return false;
	if (x->op == KBO_SHUFFLE &&
	    memcmp(x->lanes, y->lanes, sizeof(*x->lanes) * (size_t)x->type.lanes) != 0)
		return false;
	for (size_t i = 0; i < x->n_args; i++)
		if (p->values[x->args[i].id] != y->args[i].id)
			return false;
	if (x->result)
		*(x->op == KBO_VAR ? &p->vars[x->result] : &p->values[x->result]) = y->result;
	return true;
}

/* The position of the first instruction from i on that is not a comment. */
static size_t skip_comments(const struct kb_func *f, size_t i)
{
	while (i < f->n_insts && f->insts[i].op == KBO_COMMENT)
		i++;
	return i;
}

/* The bodies are equal, comments aside. */
static bool same_insts(struct pairing *p)
{
	size_t i = skip_comments(p->a, 0), j = skip_comments(p->b, 0);
	while (i < p->a->n_insts && j < p->b->n_insts) {
		if (!same_inst(p, &p->a->insts[i], &p->b->insts[j]))
			return false;
		i = skip_comments(p->a, i + 1);
		j = skip_comments(p->b, j + 1);
	}
	return i == p->a->n_insts && j == p->b->n_insts;
}

/* Same variant, linkage, result, work-items, parameters and code. Names of functions, values and variables, and
 * comments may differ. False without memory: then both functions stay. */
static bool same_func(const struct kb_func *a, const struct kb_func *b)
{
	struct arena arena;
	if (a->variant != b->variant || a->linkage != b->linkage || a->result != b->result ||
	    a->group_size != b->group_size)
		return false;
	arena_init(&arena);
	struct pairing p = {.a = a, .b = b};
	p.values = ARENA_ARRAY(&arena, uint32_t, a->n_values + 1);
	p.vars = ARENA_ARRAY(&arena, uint32_t, a->n_vars + 1);
	bool same = !arena_failed(&arena) && same_insts(&p);
	arena_destroy(&arena);
	return same;
}

/* Called after each kernel, so the last function need only be compared with the earlier ones, which differ from each
 * other. */
const struct kb_func *kb_dedup_last(struct kb_module *m)
{
	size_t last = kb_func_count(m) - 1;
	for (size_t i = 0; i < last; i++)
		if (same_func(kb_func_at(m, i), kb_func_at(m, last))) {
			m->funcs.n = last;
			return kb_func_at(m, i);
		}
	return kb_func_at(m, last);
}
