/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random instances of the left side of a rule. Shapes are drawn from the type patterns, attribute variables until
 * the predicates hold; whatever a pattern leaves open (an operand without a type, the sizes of a broadcast)
 * follows from the op that reads it.
 */
#include <string.h>

#include "ir/support/number.h"
#include "tests/rules/check.h"

#define DRAWS 64

struct instance_builder {
	const struct rule *rule;
	struct rule_rng rng;
	enum ir_dtype floats;
	struct diag_context cx; /* without output */
	struct ir_module *m;
	struct rule_match bound; /* dims, lead and variables; values of the new function */
	struct rule_side side;
};

/* ---- numbers ---- */

int rule_below(struct rule_rng *r, int n)
{
	return (int)(number_random(&r->state) % (uint64_t)n);
}

double rule_real(struct rule_rng *r)
{
	return (double)(number_random(&r->state) >> 11) / 9007199254740992.0;
}

/* ---- shapes ---- */

static const struct ir_dim *draw_dim(struct instance_builder *d)
{
	static const int sizes[] = {1, 2, 3, 5, 4, 7};
	return ir_dim_const(d->m->dims, sizes[rule_below(&d->rng, (int)TFMC_COUNT(sizes))]);
}

static bool has_axes(const struct rule *rule)
{
	for (int i = 0; i < rule->n_values; i++)
		if (rule->values[i].type != NULL && rule->values[i].type->n > 0)
			return true;
	return false;
}

/* Without named axes `..` is the complete shape, which must have at least one axis. */
static void draw_shapes(struct instance_builder *d)
{
	struct rule_match *m = &d->bound;
	for (int i = 0; i < d->rule->n_dims; i++)
		m->dims[i] = draw_dim(d);
	m->has_lead = true;
	m->n_lead = has_axes(d->rule) ? rule_below(&d->rng, 3) : 1 + rule_below(&d->rng, 3);
	for (int i = 0; i < m->n_lead; i++)
		m->lead[i] = draw_dim(d);
}

static enum ir_dtype dtype_of_class(const struct instance_builder *d, enum ir_operand_class class)
{
	switch (class) {
	case CLASS_ANY:
	case CLASS_FLOAT:
	case CLASS_NUMBER: return d->floats;
	case CLASS_INT:
	case CLASS_I32: return DT_I32;
	case CLASS_BOOL: return DT_BOOL;
	case CLASS_STATE: break;
	}
	return d->floats;
}

/* The operand class required by the first op that reads the value. */
static enum ir_operand_class required_class(const struct rule *rule, int value)
{
	for (int i = 0; i < rule->n_match; i++)
		for (size_t k = 0; k < rule->match[i].n_operands; k++) {
			const struct rule_operand *x = &rule->match[i].operands[k];
			if (x->kind == ARG_VALUE && x->index == value)
				return ir_op_desc(rule->match[i].code)->operands[k].class;
		}
	return CLASS_FLOAT;
}

static enum ir_dtype operand_dtype(const struct instance_builder *d, int value)
{
	const struct rule_type *t = d->rule->values[value].type;
	enum rule_elem elem = t != NULL ? t->elem : ELEM_ANY;
	switch (elem) {
	case ELEM_FLOAT: return d->floats;
	case ELEM_INT: return DT_I32;
	case ELEM_BOOL: return DT_BOOL;
	case ELEM_DTYPE: return t->dtype;
	case ELEM_NUMBER:
	case ELEM_ANY: break;
	}
	return dtype_of_class(d, required_class(d->rule, value));
}

/* ---- variables ---- */

static double draw_number(struct instance_builder *d, enum ir_attr_kind kind)
{
	static const double floats[] = {1e-5, 0.5, 1, 2, -1, 0.125, 3, -2.5, 1e-3, -1e9, -1e4};
	if (kind == ATTR_FLAG)
		return rule_below(&d->rng, 2);
	if (kind == ATTR_INT || kind == ATTR_KEYWORD)
		return rule_below(&d->rng, 3);
	if (kind == ATTR_DTYPE)
		return d->floats;
	if (rule_below(&d->rng, 3) > 0)
		return floats[rule_below(&d->rng, (int)TFMC_COUNT(floats))];
	return 8 * rule_real(&d->rng) - 4;
}

/* A random permutation of the axes, or an ascending subset. */
static void draw_ints(struct instance_builder *d, struct rule_binding *v, bool is_perm, int rank)
{
	v->ints.items = ARENA_ARRAY(&d->m->arena, int64_t, IR_RANK_MAX);
	v->ints.n = 0;
	if (v->ints.items == NULL)
		return;
	for (int i = 0; i < rank; i++)
		if (is_perm || rule_below(&d->rng, 2) == 0)
			v->ints.items[v->ints.n++] = i;
	for (int i = (int)v->ints.n - 1; is_perm && i > 0; i--) {
		int k = rule_below(&d->rng, i + 1);
		int64_t x = v->ints.items[i];
		v->ints.items[i] = v->ints.items[k];
		v->ints.items[k] = x;
	}
}

/* The attribute that binds a variable. */
static const struct ir_attr_desc *binding_attr(const struct rule *rule, int var, const struct rule_op **op)
{
	for (int i = 0; i < rule->n_match; i++) {
		const struct ir_op_desc *desc = ir_op_desc(rule->match[i].code);
		for (int k = 0; desc->attrs[k].name != NULL; k++) {
			if (rule->match[i].attrs[k].kind != RULE_ATTR_VAR ||
			    rule->match[i].attrs[k].var != var)
				continue;
			*op = &rule->match[i];
			return &desc->attrs[k];
		}
	}
	return NULL;
}

static int rank_of(const struct instance_builder *d, const struct rule_op *op)
{
	const struct rule_type *t = NULL;
	if (op != NULL && op->n_operands > 0 && op->operands[0].kind == ARG_VALUE)
		t = d->rule->values[op->operands[0].index].type;
	return t == NULL ? d->bound.n_lead : t->n + (t->lead ? d->bound.n_lead : 0);
}

static void draw_variables(struct instance_builder *d)
{
	for (int i = 0; i < d->rule->n_vars; i++) {
		struct rule_binding *v = &d->bound.vars[i];
		enum ir_attr_kind kind = d->rule->vars[i].kind;
		const struct rule_op *op = NULL;
		const struct ir_attr_desc *attr = binding_attr(d->rule, i, &op);
		v->is_set = kind != ATTR_DIM && kind != ATTR_DIMS;
		if (kind == ATTR_INTS)
			draw_ints(d, v, attr != NULL && strcmp(attr->name, "perm") == 0, rank_of(d, op));
		else
			v->number = draw_number(d, kind);
	}
}

/* Solves equal($a, e), near($a, e), near($a*b, e) and near($a*$b, e) for $a. */
static void solve(struct instance_builder *d, const struct rule_pred *p)
{
	const struct rule_expr *left = p->args[0], *factor = NULL;
	double value, divisor = 1;
	if (left->kind == EXPR_MUL && left->args[0]->kind == EXPR_VAR) {
		factor = left->args[1];
		left = left->args[0];
	}
	if ((p->kind != PRED_EQUAL && p->kind != PRED_NEAR) || left->kind != EXPR_VAR ||
	    !rule_expr_eval(p->args[1], &d->bound, &value) ||
	    (factor != NULL && !rule_expr_eval(factor, &d->bound, &divisor)))
		return;
	d->bound.vars[left->index].number = value / divisor;
}

static bool draw_until_true(struct instance_builder *d)
{
	for (int i = 0; i < DRAWS; i++) {
		draw_variables(d);
		for (int k = 0; k < d->rule->n_preds; k++)
			solve(d, &d->rule->preds[k]);
		if (rule_preds_hold(&d->bound, NULL))
			return true;
	}
	return false;
}

/* ---- operands ---- */

/* A weight whose elements differ: a column of a sinusoid table, reshaped. */
static struct ir_value draw_weight(struct instance_builder *d, const struct ir_type *t, int value)
{
	struct arena *a = &d->m->arena;
	int64_t dims[IR_RANK_MAX], count = 1;
	for (int i = 0; i < t->rank; i++) {
		if (!ir_dim_is_const(t->dims[i], &dims[i]))
			return IR_NO_VALUE;
		count *= dims[i];
	}
	const struct ir_wexpr *e =
	        wexpr_sinusoid(a, count, 2, SINUSOID_HALVES, SINUSOID_PAPER, 1 + rule_below(&d->rng, 9), 10);
	e = e != NULL ? wexpr_slice(a, 1, 0, 1, e) : NULL;
	e = e != NULL ? wexpr_reshape(a, t->rank, dims, e) : NULL;
	const struct ir_weight w = {
	        .name = arena_printf(a, "w%d", value), .type = t, .encoding = ENC_ROW, .init = e};
	const struct ir_weight *added = e != NULL ? ir_add_weight(d->m, &w) : NULL;
	return added != NULL ? irb_weight_ref(d->side.b, added, NULL, 0) : IR_NO_VALUE;
}

/* Parameters first, weights after them. */
static bool make_operands(struct instance_builder *d, bool weights)
{
	for (int i = 0; i < d->rule->n_values; i++) {
		const struct rule_value *v = &d->rule->values[i];
		if (v->op >= 0 || v->from_into || v->is_const != weights)
			continue;
		const struct ir_type *t = rule_side_type(&d->side, v->type, operand_dtype(d, i));
		if (t == NULL)
			return false;
		const struct ir_param p = {.name = v->name, .lengths = -1};
		d->bound.values[i] = weights ? draw_weight(d, t, i) : irb_param(d->side.b, &p, t);
		if (d->bound.values[i].id == 0)
			return false;
	}
	return true;
}

/* Builds the left side as the body of function f. */
static bool make_body(struct instance_builder *d)
{
	const struct ir_result result = {.name = "y", .lengths = -1};
	struct ir_builder *b = irb_begin(d->m, &d->cx, "f", (struct ir_loc){.path = NULL});
	if (b == NULL)
		return false;
	irb_set_literal(b, true);
	d->side = (struct rule_side){.b = b,
	                             .arena = &d->m->arena,
	                             .m = &d->bound,
	                             .ops = d->rule->match,
	                             .n = d->rule->n_match,
	                             .values = d->bound.values};
	d->side.type = rule_side_type(&d->side, NULL, d->floats);
	return d->side.type != NULL && make_operands(d, false) && make_operands(d, true) &&
	       rule_side_build(&d->side) &&
	       irb_finish(b, &d->bound.values[d->rule->root], &result, 1, NULL) == TFMC_OK;
}

struct ir_module *rule_instance(const struct rule *rule, uint64_t seed, enum ir_dtype floats)
{
	struct instance_builder d = {
	        .rule = rule, .rng = {seed}, .floats = floats, .m = ir_module_create("check")};
	if (d.m == NULL)
		return NULL;
	d.bound.rule = rule;
	diag_init(&d.cx, NULL, NULL);
	draw_shapes(&d);
	bool ok = draw_until_true(&d) && make_body(&d);
	diag_destroy(&d.cx);
	if (ok)
		return d.m;
	ir_module_destroy(d.m);
	return NULL;
}
