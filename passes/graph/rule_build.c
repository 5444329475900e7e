/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instantiates the right side of a rule for a match, and applies rules in a rebuild traversal (struct rewriter).
 * The replacement has the location of the root. If its type differs from that of the root, the pass fails with an
 * internal error that names the rule.
 */

#include "passes/graph/rule.h"

/* ---- types ---- */

const struct ir_type *rule_side_type(const struct rule_side *s, const struct rule_type *t,
                                     enum ir_dtype dtype)
{
	struct ir_module *out = irb_module(s->b);
	const struct rule_match *m = s->m;
	const struct ir_dim *dims[2 * IR_RANK_MAX];
	int rank = 0;
	for (int i = 0; (t == NULL || t->lead) && i < m->n_lead; i++)
		dims[rank++] = ir_import_dim(out, m->lead[i]);
	for (int i = 0; t != NULL && i < t->n; i++) {
		const struct rule_axis *axis = &t->axes[i];
		if (axis->dim >= 0 && m->dims[axis->dim] == NULL)
			return NULL;
		dims[rank++] = axis->dim < 0 ? ir_dim_const(out->dims, axis->size)
		                             : ir_import_dim(out, m->dims[axis->dim]);
	}
	return ir_type_tensor(out->types, dtype, rank, dims);
}

/* Type of the first operand that is a value (not the condition of where); NULL: there is none. */
static const struct ir_type *operand_type(const struct rule_side *s, const struct rule_op *op)
{
	for (size_t i = op->code == OP_where ? 1 : 0; i < op->n_operands; i++) {
		const struct rule_operand *x = &op->operands[i];
		if (x->kind == ARG_VALUE && s->values[x->index].id != 0)
			return irb_type(s->b, s->values[x->index]);
	}
	return NULL;
}

/* The first op of the side that reads the value, or NULL. */
static const struct rule_op *reader_of(const struct rule_side *s, int value)
{
	for (int i = 0; i < s->n; i++)
		for (size_t k = 0; k < s->ops[i].n_operands; k++)
			if (s->ops[i].operands[k].kind == ARG_VALUE && s->ops[i].operands[k].index == value)
				return &s->ops[i];
	return NULL;
}

/* Type of the result of op, for attributes that hold sizes: as written, else that of the other operands of its
 * reader, else that of the root. */
static const struct ir_type *result_type(const struct rule_side *s, const struct rule_op *op)
{
	const struct rule_type *t = s->m->rule->values[op->result].type;
	const struct rule_op *reader = reader_of(s, op->result);
	const struct ir_type *sibling = t == NULL && reader != NULL ? operand_type(s, reader) : NULL;
	if (t != NULL)
		return rule_side_type(s, t, t->elem == ELEM_DTYPE ? t->dtype : s->type->dtype);
	return sibling != NULL ? sibling : s->type;
}

/* ---- operands ---- */

/* Operand i of op: a value, absent, or a constant of the type of the other operands. */
static struct ir_value build_operand(const struct rule_side *s, const struct rule_op *op, size_t i)
{
	const struct rule_operand *x = &op->operands[i];
	const struct ir_type *t = operand_type(s, op);
	double value = 0;
	switch (x->kind) {
	case ARG_ABSENT: return IR_NO_VALUE;
	case ARG_VALUE: return s->values[x->index];
	case ARG_NUMBER: value = x->number; break;
	case ARG_VAR: value = s->m->vars[x->index].number; break;
	}
	t = t != NULL ? t : s->type;
	return irb_full_of(s->b, value, t->dtype, t->rank, t->dims);
}

/* ---- attributes ---- */

/* Stores v as the C type of an attribute that is one number. */
static void set_number(const struct ir_attr_desc *d, void *at, double v)
{
	switch (d->kind) {
	case ATTR_FLOAT: *(double *)at = v; return;
	case ATTR_INT: *(int64_t *)at = (int64_t)v; return;
	case ATTR_FLAG: *(bool *)at = v != 0; return;
	case ATTR_KEYWORD: *(int *)at = (int)v; return;
	case ATTR_DTYPE: *(enum ir_dtype *)at = (enum ir_dtype)v; return;
	case ATTR_DIM:
	case ATTR_DIMS:
	case ATTR_INTS:
	case ATTR_WEIGHT: return;
	}
}

static bool set_dims(const struct rule_side *s, struct ir_dim_list *out, const struct ir_dim *const *dims,
                     size_t n)
{
	out->items = ARENA_ARRAY(s->arena, const struct ir_dim *, n + 1);
	out->n = n;
	for (size_t i = 0; out->items != NULL && i < n; i++)
		out->items[i] = ir_import_dim(irb_module(s->b), dims[i]);
	return out->items != NULL;
}

/* Sets an attribute from a bound variable. False: it is unbound. */
static bool set_from_variable(const struct rule_side *s, const struct ir_attr_desc *d, void *at,
                              const struct rule_binding *v)
{
	if (!v->is_set)
		return false;
	if (d->kind == ATTR_DIMS)
		return set_dims(s, at, v->dims.items, v->dims.n);
	if (d->kind == ATTR_INTS)
		*(struct ir_int_list *)at = v->ints;
	else if (d->kind == ATTR_DIM)
		*(const struct ir_dim **)at = ir_import_dim(irb_module(s->b), v->dim);
	else
		set_number(d, at, v->number);
	return true;
}

/* Sets a list attribute: a written list, the last axis, or the swap of the last two axes for this rank. False: the
 * rank is too small, or no memory. */
static bool set_ints(const struct rule_side *s, struct ir_int_list *out, const struct rule_attr *a, int rank)
{
	int n = a->kind == RULE_ATTR_LAST ? 1 : a->kind == RULE_ATTR_SWAP ? rank : a->n_ints;
	out->items = ARENA_ARRAY(s->arena, int64_t, n + 1);
	out->n = (size_t)n;
	if (out->items == NULL || rank < (a->kind == RULE_ATTR_SWAP ? 2 : a->kind == RULE_ATTR_LAST))
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

/* Attributes that hold sizes or element types and are not written are taken from the type of the result. */
static bool set_from_type(const struct rule_side *s, const struct rule_op *op, const struct ir_attr_desc *d,
                          void *at)
{
	const struct ir_type *t = result_type(s, op);
	if (t == NULL || (d->kind != ATTR_DTYPE && d->kind != ATTR_DIMS))
		return false;
	if (d->kind == ATTR_DIMS)
		return set_dims(s, at, t->dims, (size_t)t->rank);
	*(enum ir_dtype *)at = t->dtype;
	return true;
}

/* Sets attribute i of an op that is built; rank: of its first operand. False: it needs a variable or dim that is
 * unbound. */
static bool set_attr(const struct rule_side *s, const struct rule_op *op, int i, void *attrs, int rank)
{
	const struct ir_attr_desc *d = &ir_op_desc(op->code)->attrs[i];
	const struct rule_attr *a = &op->attrs[i];
	void *at = (char *)attrs + d->offset;
	double number;
	switch (a->kind) {
	case RULE_ATTR_DEFAULT: return true;
	case RULE_ATTR_ANY: return set_from_type(s, op, d, at);
	case RULE_ATTR_VAR: return set_from_variable(s, d, at, &s->m->vars[a->var]);
	case RULE_ATTR_EXPR:
		if (!rule_expr_eval(a->expr, s->m, &number))
			return false;
		set_number(d, at, number);
		return true;
	case RULE_ATTR_INTS:
	case RULE_ATTR_LAST:
	case RULE_ATTR_SWAP: return set_ints(s, at, a, rank);
	case RULE_ATTR_DTYPE: *(enum ir_dtype *)at = a->dtype; return true;
	}
	return false;
}

/* ---- ops ---- */

/* Builds one op of the side. False: an attribute is undefined, or the builder failed. Operands come first: `last`,
 * `swap` and unwritten attributes follow from their types. */
static bool build_op(const struct rule_side *s, const struct rule_op *op)
{
	struct ir_value operands[RULE_OPERANDS_MAX];
	void *attrs = ir_default_attrs(s->arena, op->code);
	for (size_t i = 0; i < op->n_operands; i++)
		operands[i] = build_operand(s, op, i);
	const struct ir_type *first = op->n_operands > 0 ? irb_type(s->b, operands[0]) : NULL;
	bool ok = attrs != NULL;
	for (int i = 0; ok && ir_op_desc(op->code)->attrs[i].name != NULL; i++)
		ok = set_attr(s, op, i, attrs, first != NULL ? first->rank : 0);
	if (!ok)
		return false;
	s->values[op->result] = irb_op1(s->b, op->code, operands, op->n_operands, attrs);
	irb_name(s->b, s->values[op->result], s->m->rule->values[op->result].name);
	return s->values[op->result].id != 0;
}

bool rule_side_build(const struct rule_side *s)
{
	for (int i = 0; i < s->n; i++)
		if (!build_op(s, &s->ops[i]))
			return false;
	return true;
}

/* Builds the replacement. IR_NO_VALUE when the builder failed. */
static struct ir_value rule_build(struct rebuild *r, const struct rule_match *m)
{
	const struct rule *rule = m->rule;
	struct ir_value values[RULE_VALUES_MAX];
	const struct rule_side s = {.b = r->b,
	                            .arena = r->p->arena,
	                            .m = m,
	                            .ops = rule->into,
	                            .n = rule->n_into,
	                            .type = ir_import_type(r->out, ir_type_of(r->f, m->values[rule->root])),
	                            .values = values};
	for (int i = 0; i < rule->n_values; i++)
		values[i] = rule->values[i].from_into ? IR_NO_VALUE : rebuild_get(r, m->values[i]);
	return s.type != NULL && rule_side_build(&s) ? values[rule->result] : IR_NO_VALUE;
}

static void need_value(struct rebuild *r, const struct rule_match *m, int index)
{
	if (!m->rule->values[index].from_into)
		rebuild_need(r, m->values[index]);
}

/* Marks the values that the replacement reads as needed. */
static void rule_need(struct rebuild *r, const struct rule_match *m)
{
	need_value(r, m, m->rule->result);
	for (int i = 0; i < m->rule->n_into; i++) {
		const struct rule_op *op = &m->rule->into[i];
		for (size_t k = 0; k < op->n_operands; k++)
			if (op->operands[k].kind == ARG_VALUE)
				need_value(r, m, op->operands[k].index);
	}
}

/* ---- rewriter ---- */

/* The first rule of the op's bucket that matches is stored for rewriter_emit and consumes a unit of fuel; what
 * its replacement reads is marked as needed. Rules `except empty` are used only with the setting nonempty. */
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
		struct rule_match *copy = ARENA_NEW(r->p->arena, struct rule_match);
		if (copy == NULL)
			return false;
		*copy = found;
		copy->number = ++w->matched;
		w->found[op->results[0].id] = copy;
		w->fuel--;
		rule_need(r, copy);
		return true;
	}
	return false;
}

/* Counts and reports one application of a rule, by its name. The counter keeps the name, which is therefore in the
 * arena of the report. */
static void count_hit(struct rewriter *w, struct rebuild *r, const struct rule_match *m, struct ir_loc loc)
{
	const char *name = arena_printf(&r->p->report->arena, "rule %s", m->rule->name);
	w->applied++;
	pass_count(r->p, name, 1);
	pass_applied(r->p, m->number, m->rule->name, loc);
	pass_remark(r->p, loc, "%s (%s), number %lld", name, rule_class_name(m->rule->class),
	            (long long)m->number);
}

/* Builds the replacement of the match that rewriter_match stored. One of another type is a fault of the rule:
 * the first is recorded for rewriter_status, and IR_NO_VALUE fails the builder. */
bool rewriter_emit(struct rewriter *w, struct rebuild *r, const struct ir_op *op)
{
	const struct rule_match *m = w->f == r->f ? w->found[op->results[0].id] : NULL;
	if (m == NULL)
		return false;
	struct ir_value new_value = rule_build(r, m);
	const struct ir_type *expected = ir_import_type(r->out, ir_type_of(r->f, op->results[0]));
	if (new_value.id == 0 || irb_type(r->b, new_value) != expected) {
		if (w->wrong == NULL)
			w->wrong_at = op->loc.at;
		w->wrong = w->wrong != NULL ? w->wrong : m->rule;
		new_value = IR_NO_VALUE;
	}
	rebuild_set(r, op->results[0], new_value);
	count_hit(w, r, m, op->loc);
	return true;
}

/* The error is located at the op; a note shows the rule, which is at fault. */
enum tfmc_status rewriter_status(const struct rewriter *w, struct pass_context *p)
{
	if (w->wrong == NULL)
		return TFMC_OK;
	diag_error(p->cx, w->wrong_at, DIAG_INTERNAL, "%s: the rule %s gives a value of another type",
	           p->step->pass->name, w->wrong->name);
	diag_note(p->cx, w->wrong->loc, "the rule is here");
	return TFMC_INTERNAL;
}
