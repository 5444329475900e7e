/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building what a rule puts instead of a match, and the rewriter that brings
 * rules into the two walks of passes/framework/rebuild.h. The replacement has the location of
 * the root. Invariant: it has the type of the root, or the pass fails with an
 * internal error that names the rule.
 */
#include <string.h>

#include "passes/rules/rule.h"

struct maker {
	struct rebuild *r;
	const struct rule_match *m;
	struct ir_value built[RULE_OPS_MAX];
	const struct ir_type *root; /* in the new module */
};

/* ---- types ---- */

/* The dims of a type pattern in the new module; false when the match did not bind them all. */
static bool dims_of(const struct maker *k, const struct rule_type *t, const struct ir_dim **dims, int *rank)
{
	const struct rule_match *m = k->m;
	*rank = 0;
	for (int i = 0; t->lead && i < m->n_lead; i++)
		dims[(*rank)++] = ir_import_dim(k->r->out, m->lead[i]);
	for (int i = 0; i < t->n && *rank < IR_RANK_MAX; i++) {
		const struct rule_axis *axis = &t->axes[i];
		if (axis->dim < 0)
			dims[*rank] = ir_dim_const(k->r->out->dims, axis->size);
		else if (m->dims[axis->dim] != NULL)
			dims[*rank] = ir_import_dim(k->r->out, m->dims[axis->dim]);
		else
			return false;
		(*rank)++;
	}
	return true;
}

/* ---- operands ---- */

static struct ir_value value_of(const struct maker *k, int index)
{
	const struct rule_value *v = &k->m->rule->values[index];
	return v->from_into ? k->built[v->op] : rebuild_get(k->r, k->m->values[index]);
}

/* A constant has the type of the first operand that is a value; the condition of where is none of its kind.
 */
static const struct ir_type *constant_type(const struct maker *k, const struct rule_op *op)
{
	for (size_t i = op->code == OP_where ? 1 : 0; i < op->n_operands; i++)
		if (op->operands[i].kind == ARG_VALUE)
			return irb_type(k->r->b, value_of(k, op->operands[i].index));
	return k->root;
}

static struct ir_value operand(const struct maker *k, const struct rule_op *op, size_t i)
{
	const struct rule_operand *x = &op->operands[i];
	switch (x->kind) {
	case ARG_ABSENT: return IR_NO_VALUE;
	case ARG_VALUE: return value_of(k, x->index);
	case ARG_NUMBER:
	case ARG_VAR: break;
	}
	const struct ir_type *t = constant_type(k, op);
	double value = x->kind == ARG_NUMBER ? x->number : k->m->vars[x->index].number;
	return t == NULL ? IR_NO_VALUE : irb_full_of(k->r->b, value, t->dtype, t->rank, t->dims);
}

/* ---- attributes ---- */

void rule_put_number(const struct ir_attr_desc *d, void *at, double v)
{
	switch (d->kind) {
	case ATTR_FLOAT: *(double *)at = v; return;
	case ATTR_INT: *(int64_t *)at = (int64_t)v; return;
	case ATTR_FLAG: *(bool *)at = v != 0; return;
	case ATTR_WORD: *(int *)at = (int)v; return;
	case ATTR_DTYPE: *(enum ir_dtype *)at = (enum ir_dtype)v; return;
	case ATTR_DIM:
	case ATTR_DIMS:
	case ATTR_INTS:
	case ATTR_WEIGHT: return;
	}
}

static bool put_dims(const struct maker *k, struct ir_dim_list *out, const struct ir_dim *const *dims,
                     size_t n, bool import)
{
	out->items = ARENA_ARRAY(k->r->p->arena, const struct ir_dim *, n + 1);
	out->n = n;
	for (size_t i = 0; out->items != NULL && i < n; i++)
		out->items[i] = import ? ir_import_dim(k->r->out, dims[i]) : dims[i];
	return out->items != NULL;
}

static bool put_var(const struct maker *k, const struct ir_attr_desc *d, void *at, const struct rule_bound *v)
{
	if (d->kind == ATTR_INTS)
		*(struct ir_int_list *)at = v->ints;
	else if (d->kind == ATTR_DIMS)
		return put_dims(k, at, v->dims.items, v->dims.n, true);
	else if (d->kind == ATTR_DIM)
		*(const struct ir_dim **)at = ir_import_dim(k->r->out, v->dim);
	else
		rule_put_number(d, at, v->number);
	return v->is_set;
}

static bool put_ints(const struct maker *k, struct ir_int_list *out, const struct rule_attr *a, int rank)
{
	int n = a->kind == RULE_ATTR_LAST ? 1 : a->kind == RULE_ATTR_SWAP ? rank : a->n_ints;
	out->items = ARENA_ARRAY(k->r->p->arena, int64_t, n + 1);
	out->n = (size_t)n;
	if (out->items == NULL || (a->kind != RULE_ATTR_INTS && rank < 1))
		return false;
	for (int i = 0; i < n; i++) {
		if (a->kind == RULE_ATTR_INTS)
			out->items[i] = a->ints[i];
		else
			out->items[i] = a->kind == RULE_ATTR_LAST ? rank - 1
			                : i < rank - 2            ? i
			                                          : 2 * rank - 3 - i;
	}
	return true;
}

/* Sizes and element types that are not written come from the type of the result, or that of the root. */
static bool put_from_type(const struct maker *k, const struct rule_op *op, const struct ir_attr_desc *d,
                          void *at)
{
	const struct rule_type *t = k->m->rule->values[op->result].type;
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank;
	if (d->kind == ATTR_DTYPE)
		*(enum ir_dtype *)at = t != NULL && t->elem == ELEM_DTYPE ? t->dtype : k->root->dtype;
	else if (d->kind != ATTR_DIMS)
		return false;
	else if (t == NULL)
		return put_dims(k, at, k->root->dims, (size_t)k->root->rank, false);
	else
		return dims_of(k, t, dims, &rank) && put_dims(k, at, dims, (size_t)rank, false);
	return true;
}

static bool put_attr(const struct maker *k, const struct rule_op *op, int i, void *attrs, int rank)
{
	const struct ir_attr_desc *d = &ir_op_desc(op->code)->attrs[i];
	const struct rule_attr *a = &op->attrs[i];
	void *at = (char *)attrs + d->offset;
	double number;
	switch (a->kind) {
	case RULE_ATTR_DEFAULT: return true;
	case RULE_ATTR_ANY: return put_from_type(k, op, d, at);
	case RULE_ATTR_VAR: return put_var(k, d, at, &k->m->vars[a->var]);
	case RULE_ATTR_EXPR:
		if (!rule_expr_eval(a->expr, k->m, &number))
			return false;
		rule_put_number(d, at, number);
		return true;
	case RULE_ATTR_INTS:
	case RULE_ATTR_LAST:
	case RULE_ATTR_SWAP: return put_ints(k, at, a, rank);
	case RULE_ATTR_DTYPE: *(enum ir_dtype *)at = a->dtype; return true;
	}
	return false;
}

/* ---- ops ---- */

static bool make_op(struct maker *k, int n)
{
	const struct rule_op *op = &k->m->rule->into[n];
	struct ir_value operands[RULE_OPERANDS_MAX];
	void *attrs = ir_default_attrs(k->r->p->arena, op->code);
	for (size_t i = 0; i < op->n_operands; i++)
		operands[i] = operand(k, op, i);
	const struct ir_type *first = op->n_operands > 0 ? irb_type(k->r->b, operands[0]) : NULL;
	bool ok = attrs != NULL;
	for (int i = 0; ok && ir_op_desc(op->code)->attrs[i].name != NULL; i++)
		ok = put_attr(k, op, i, attrs, first != NULL ? first->rank : 0);
	if (!ok)
		return false;
	k->built[n] = irb_op1(k->r->b, op->code, operands, op->n_operands, attrs);
	irb_name(k->r->b, k->built[n], k->m->rule->values[op->result].name);
	return k->built[n].id != 0;
}

struct ir_value rule_build(struct rebuild *r, const struct rule_match *m)
{
	const struct rule *rule = m->rule;
	struct maker k = {.r = r, .m = m};
	k.root = ir_import_type(r->out, ir_type_of(r->f, m->values[rule->root]));
	if (k.root == NULL)
		return IR_NO_VALUE;
	for (int i = 0; i < rule->n_into; i++)
		if (!make_op(&k, i))
			return IR_NO_VALUE;
	return value_of(&k, rule->result);
}

static void need(struct rebuild *r, const struct rule_match *m, int index)
{
	if (!m->rule->values[index].from_into)
		rebuild_need(r, m->values[index]);
}

void rule_need(struct rebuild *r, const struct rule_match *m)
{
	need(r, m, m->rule->result);
	for (int i = 0; i < m->rule->n_into; i++) {
		const struct rule_op *op = &m->rule->into[i];
		for (size_t k = 0; k < op->n_operands; k++)
			if (op->operands[k].kind == ARG_VALUE)
				need(r, m, op->operands[k].index);
	}
}

/* ---- rewriter ---- */

bool rewriter_match(struct rewriter *w, struct rebuild *r, const struct ir_op *op)
{
	const struct rule_bucket *bucket = &w->set->by_root[op->code];
	struct rule_match found;
	if (w->f != r->f) {
		w->f = r->f;
		w->found = ARENA_ARRAY(r->p->arena, const struct rule_match *, r->f->n_values);
	}
	for (size_t i = 0; i < bucket->n && w->fuel > 0 && w->found != NULL; i++) {
		if (bucket->items[i]->except_empty && !w->nonempty)
			continue;
		if (!rule_matches(r, bucket->items[i], op, &found))
			continue;
		struct rule_match *keep = ARENA_NEW(r->p->arena, struct rule_match);
		if (keep == NULL)
			return false;
		*keep = found;
		keep->number = ++w->matched;
		w->found[op->results[0].id] = keep;
		w->fuel--;
		rule_need(r, keep);
		return true;
	}
	return false;
}

static void count_hit(struct rewriter *w, struct rebuild *r, const struct rule_match *m, struct ir_loc loc)
{
	const char *name = arena_printf(&r->p->report->arena, "rule %s", m->rule->name);
	w->applied++;
	pass_count(r->p, name, 1);
	pass_applied(r->p, m->number, m->rule->name, loc);
	pass_remark(r->p, loc, "%s (%s), number %lld", name, rule_class_name(m->rule->class),
	            (long long)m->number);
}

bool rewriter_emit(struct rewriter *w, struct rebuild *r, const struct ir_op *op)
{
	const struct rule_match *m = w->f == r->f ? w->found[op->results[0].id] : NULL;
	if (m == NULL)
		return false;
	struct ir_value now = rule_build(r, m);
	const struct ir_type *want = ir_import_type(r->out, ir_type_of(r->f, op->results[0]));
	if (now.id == 0 || irb_type(r->b, now) != want) {
		if (w->wrong == NULL)
			w->wrong_at = op->loc.at;
		w->wrong = w->wrong != NULL ? w->wrong : m->rule;
		now = IR_NO_VALUE;
	}
	rebuild_set(r, op->results[0], now);
	count_hit(w, r, m, op->loc);
	return true;
}

enum tfmc_status rewriter_status(const struct rewriter *w, struct pass_context *p)
{
	if (w->wrong == NULL)
		return TFMC_OK;
	diag_error(p->cx, w->wrong_at, DIAG_INTERNAL, "%s: the rule %s gives a value of another type",
	           p->step->pass->name, w->wrong->name);
	diag_note(p->cx, w->wrong->loc, "the rule is here");
	return TFMC_INTERNAL;
}
