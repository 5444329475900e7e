/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: occurrence of symbols, selection of a case, replacement of symbols, bounds of dims, text. */
#include "ir/core/case.h"

#include <inttypes.h>
#include <string.h>

#include "ir/core/builder.h"
#include "ir/support/checked.h"

static bool atom_has(const struct ir_dim_atom *atom, int sym)
{
	if (atom->sym >= 0)
		return atom->sym == sym;
	return ir_dim_has_symbol(atom->of, sym) ||
	       (atom->other != NULL && ir_dim_has_symbol(atom->other, sym));
}

bool ir_dim_has_symbol(const struct ir_dim *d, int sym)
{
	for (size_t t = 0; t < d->n_terms; t++)
		for (size_t a = 0; a < d->terms[t].n_atoms; a++)
			if (atom_has(d->terms[t].atoms[a], sym))
				return true;
	return false;
}

bool ir_type_has_symbol(const struct ir_type *t, int sym)
{
	if (t == NULL)
		return false;
	if (t->kind == IR_STATE)
		t = t->state->type;
	for (int i = 0; i < t->rank; i++)
		if (ir_dim_has_symbol(t->dims[i], sym))
			return true;
	return false;
}

/* The symbol occurs in a dim among the attributes of op, found by the descriptors. */
static bool attrs_have(const struct ir_op *op, int sym)
{
	bool found = false;
	const struct ir_attr_desc *d = op->attrs != NULL ? ir_op_desc(op->code)->attrs : NULL;
	for (; d != NULL && d->name != NULL; d++) {
		const void *at = (const char *)op->attrs + d->offset;
		const struct ir_dim_list *list = at;
		if (d->kind == ATTR_DIM)
			found = found || ir_dim_has_symbol(*(const struct ir_dim *const *)at, sym);
		for (size_t i = 0; d->kind == ATTR_DIMS && i < list->n; i++)
			found = found || ir_dim_has_symbol(list->items[i], sym);
	}
	return found;
}

/* In the type of any value, also of results and arguments of regions, which all have ids; then in the dims that are
 * no types. */
bool ir_func_has_symbol(const struct ir_func *f, int sym)
{
	bool found = f->arena != NULL && ir_dim_has_symbol(f->arena, sym);
	for (size_t i = 1; i < f->n_values; i++)
		found = found || ir_type_has_symbol(f->values[i].type, sym);
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		found = found || (p->default_value != NULL && ir_dim_has_symbol(p->default_value, sym)) ||
		        (p->max != NULL && ir_dim_has_symbol(p->max, sym));
	}
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		found = found || attrs_have(it.op, sym);
	return found;
}

int ir_dim_as_symbol(const struct ir_dim *d)
{
	if (d->n_terms != 1 || d->terms[0].coeff != 1 || d->terms[0].n_atoms != 1)
		return -1;
	return d->terms[0].atoms[0]->sym;
}

/* ---- which call ---- */

const struct ir_func *ir_case_base(const struct ir_module *m, const struct ir_func *f)
{
	return f->when == NULL ? f : ir_find_func(m, f->when->of);
}

/* An overflow holds no condition: the base, which is always right, is called then. */
bool ir_case_holds(const struct ir_case *c, const int64_t *values)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct ir_condition *x = &c->conditions[i];
		int64_t v;
		if (!ir_dim_eval(x->dim, values, &v))
			return false;
		if (x->relation == IR_EQUAL ? v != x->value : v > x->value)
			return false;
	}
	return true;
}

/* Cases are tried in order of definition, as the entry of an object tests them. */
const struct ir_func *ir_select_case(const struct ir_module *m, const struct ir_func *base,
                                     const int64_t *values)
{
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *f = m->funcs.items[i];
		if (f->when != NULL && strcmp(f->when->of, base->name) == 0 && ir_case_holds(f->when, values))
			return f;
	}
	return base;
}

/* ---- dims ---- */

/* Only equations of a symbol bind; `<=` conditions stay bounds (ir_func_dim_hi). */
const struct ir_dim *ir_case_bind_dim(struct ir_module *m, const struct ir_case *c, const struct ir_dim *d)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct ir_condition *x = &c->conditions[i];
		int sym = ir_dim_as_symbol(x->dim);
		if (x->relation == IR_EQUAL && sym >= 0)
			d = ir_dim_substitute(m->dims, d, sym, ir_dim_const(m->dims, x->value));
	}
	return d;
}

/* State types are those of the module, for all functions. */
const struct ir_type *ir_case_bind_type(struct ir_module *m, const struct ir_case *c, const struct ir_type *t)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	if (t->kind != IR_TENSOR)
		return t;
	for (int i = 0; i < t->rank; i++)
		dims[i] = ir_case_bind_dim(m, c, t->dims[i]);
	return ir_type_tensor(m->types, t->dtype, t->rank, dims);
}

/* The smaller of hi and the bound of d by condition x: if d = q x->dim with q >= 0, then d <= q x->value, at most
 * the upper bound of q times it. */
static int64_t bound_by_condition(const struct ir_module *m, const struct ir_dim *d,
                                  const struct ir_condition *x, int64_t hi)
{
	const struct ir_dim *q = ir_dim_divide(m->dims, d, x->dim);
	int64_t least, most, bound;
	if (q == NULL)
		return hi;
	least = ir_dim_lo(m->dims, q);
	most = ir_dim_hi(m->dims, q);
	if (least < 0 || x->value < 0 || !checked_mul_i64(most, x->value, &bound))
		return hi;
	return bound < hi ? bound : hi;
}

int64_t ir_func_dim_hi(const struct ir_module *m, const struct ir_func *f, const struct ir_dim *d)
{
	int64_t hi = ir_dim_hi(m->dims, d);
	for (size_t i = 0; f->when != NULL && i < f->when->n; i++)
		if (f->when->conditions[i].relation == IR_AT_MOST)
			hi = bound_by_condition(m, d, &f->when->conditions[i], hi);
	return hi;
}

/* The symbol T of the first parameter i32[B,T], if a parameter has the role past (the function continues sequences);
 * else -1. Scanned from the last to the first, so that the first one stays. */
static int token_dim_of_params(const struct ir_func *f)
{
	bool counts = false;
	int rows = -1;
	for (size_t i = f->n_params; i-- > 0;) {
		const struct ir_type *t = ir_type_of(f, f->params[i].value);
		counts = counts || f->params[i].role == ROLE_PAST;
		if (t->kind == IR_TENSOR && t->dtype == DT_I32 && t->rank == 2)
			rows = ir_dim_as_symbol(t->dims[1]);
	}
	return counts ? rows : -1;
}

/* The first state_append whose rows are a symbol other than the batch; without one, the ids. */
int ir_func_token_dim(const struct ir_func *f)
{
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it)) {
		if (it.op->code != OP_state_append)
			continue;
		const struct ir_type *x = ir_type_of(f, it.op->operands[OPERAND(state_append, x)]);
		const struct ir_type *state =
		        ir_type_of(f, it.op->operands[OPERAND(state_append, state)])->state->type;
		/* S of [B,K,S,E]; the batch is no number of tokens */
		int rows = ir_dim_as_symbol(x->dims[x->rank - 2]);
		if (rows >= 0 && rows != ir_dim_as_symbol(state->dims[0]))
			return rows;
	}
	return token_dim_of_params(f);
}

/* ---- text and copies ---- */

void ir_case_print(struct buf *out, const struct ir_module *m, const struct ir_case *c)
{
	buf_str(out, "case of ");
	ir_print_name(out, '@', c->of);
	for (size_t i = 0; i < c->n; i++) {
		const struct ir_condition *x = &c->conditions[i];
		buf_str(out, i == 0 ? " when " : ", ");
		ir_dim_print(out, m->dims, x->dim, true);
		buf_printf(out, " %s %" PRId64, x->relation == IR_EQUAL ? "=" : "<=", x->value);
	}
}

/* Deep copy: the case may be of another module, whose dims are rebuilt. */
void irb_bind_dims(struct ir_builder *b, const struct ir_case *c)
{
	if (b->failed)
		return;
	struct ir_case *copy = ARENA_NEW(&b->m->arena, struct ir_case);
	struct ir_condition *list = ARENA_ARRAY(&b->m->arena, struct ir_condition, c->n + 1);
	if (copy == NULL || list == NULL || c->n > IR_CONDITIONS_MAX) {
		b->failed = true;
		return;
	}
	for (size_t i = 0; i < c->n; i++) {
		list[i] = c->conditions[i];
		list[i].dim = ir_import_dim(b->m, list[i].dim);
		if (list[i].dim == NULL)
			build_fail(b, DIAG_INTERNAL, "a condition of @%s cannot be copied", c->of);
	}
	*copy = (struct ir_case){strmap_intern(&b->m->strings, c->of, strlen(c->of)), list, c->n};
	b->bound = copy;
}

void irb_case(struct ir_builder *b, const struct ir_case *c)
{
	irb_bind_dims(b, c);
	if (!b->failed)
		b->f->when = b->bound;
}
