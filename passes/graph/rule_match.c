/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matches a rule at an op: backtracking over a worklist of pairs (pattern operand, value), starting at the root.
 * For a commutative op both orders of its operands are tried, the written one first, so the result is
 * deterministic. The function is not changed. A match binds values, variables ($x), dims and the leading axes (`..`)
 * of the rule to those of the function (struct rule_match).
 */
#include <string.h>

#include "passes/graph/rule.h"

/* Ops that are searched for a mask; with more, a mask is assumed. */
#define UNMASKED_MAX 32

#define WORKLIST_MAX (RULE_OPS_MAX * RULE_OPERANDS_MAX + 1)

struct matcher {
	const struct rebuild *r;
	const struct rule *rule;
	struct rule_match *m;
	const struct ir_region *region; /* of the root */
	struct pair {
		const struct rule_operand *pattern;
		struct ir_value value;
	} worklist[WORKLIST_MAX];
	int n;
};

static bool match_pairs(struct matcher *t, int at);

/* ---- types ---- */

static bool match_axis(struct rule_match *m, const struct rule_axis *axis, const struct ir_dim *d)
{
	if (axis->dim < 0)
		return ir_dim_equals(d, axis->size);
	if (m->dims[axis->dim] == NULL)
		m->dims[axis->dim] = d;
	return m->dims[axis->dim] == d;
}

/* Matches a type against a pattern and binds dims. `..` stands for the same leading axes everywhere in a rule, so
 * the first type binds them and the others must have them. */
static bool match_type(struct rule_match *m, const struct rule_type *p, const struct ir_type *t)
{
	int lead = t->kind == IR_TENSOR ? t->rank - p->n : -1;
	if (lead < 0 || (lead > 0 && !p->lead) || !rule_elem_fits(p, t->dtype))
		return false;
	if (p->lead && !m->has_lead) {
		m->has_lead = true;
		m->n_lead = lead;
		for (int i = 0; i < lead; i++)
			m->lead[i] = t->dims[i];
	}
	if (p->lead && m->n_lead != lead)
		return false;
	for (int i = 0; i < lead; i++)
		if (m->lead[i] != t->dims[i])
			return false;
	for (int i = 0; i < p->n; i++)
		if (!match_axis(m, &p->axes[i], t->dims[lead + i]))
			return false;
	return true;
}

/* ---- attributes ---- */

/* The attribute at `at` as a number, as expressions see it: flags 0 or 1, keywords and element types their
 * position; 0 for lists and dims. */
static double number_at(const struct ir_attr_desc *d, const void *at)
{
	switch (d->kind) {
	case ATTR_FLOAT: return *(const double *)at;
	case ATTR_INT: return (double)*(const int64_t *)at;
	case ATTR_FLAG: return *(const bool *)at;
	case ATTR_KEYWORD: return *(const int *)at;
	case ATTR_DTYPE: return *(const enum ir_dtype *)at;
	case ATTR_DIM:
	case ATTR_DIMS:
	case ATTR_INTS:
	case ATTR_WEIGHT: break;
	}
	return 0;
}

static bool same_ints(const struct ir_int_list *a, const struct ir_int_list *b)
{
	return a->n == b->n && (a->n == 0 || memcmp(a->items, b->items, a->n * sizeof(*a->items)) == 0);
}

static bool same_dims(const struct ir_dim_list *a, const struct ir_dim_list *b)
{
	return a->n == b->n && (a->n == 0 || memcmp(a->items, b->items, a->n * sizeof(*a->items)) == 0);
}

/* The first occurrence of a variable binds it, the others compare; numbers by their bits, so that -0 is not 0. */
static bool bind_attr(struct rule_binding *b, const struct ir_attr_desc *d, const void *at)
{
	struct rule_binding bound = {.is_set = true, .number = number_at(d, at)};
	if (d->kind == ATTR_INTS)
		bound.ints = *(const struct ir_int_list *)at;
	if (d->kind == ATTR_DIMS)
		bound.dims = *(const struct ir_dim_list *)at;
	if (d->kind == ATTR_DIM)
		bound.dim = *(const struct ir_dim *const *)at;
	if (!b->is_set) {
		*b = bound;
		return true;
	}
	return memcmp(&b->number, &bound.number, sizeof(double)) == 0 && same_ints(&b->ints, &bound.ints) &&
	       same_dims(&b->dims, &bound.dims) && b->dim == bound.dim;
}

/* Matches one attribute as the kind of the pattern says; rank: of the first operand. An expression fails while a
 * variable of it is unbound. */
static bool match_attr(struct matcher *t, const struct rule_attr *p, const struct ir_attr_desc *d,
                       const void *at, int rank)
{
	const struct ir_int_list *ints = at; /* for kinds that are lists */
	struct ir_int_list expected = {.n = (size_t)p->n_ints};
	int64_t items[IR_RANK_MAX];
	double number;
	switch (p->kind) {
	case RULE_ATTR_DEFAULT: return ir_attr_is_default(d, at);
	case RULE_ATTR_ANY: return true;
	case RULE_ATTR_VAR: return bind_attr(&t->m->vars[p->var], d, at);
	case RULE_ATTR_EXPR:
		return rule_expr_eval(p->expr, t->m, &number) && rule_number_fits(number, number_at(d, at));
	case RULE_ATTR_INTS:
		memcpy(items, p->ints, sizeof(items));
		expected.items = items;
		return same_ints(&expected, ints);
	case RULE_ATTR_LAST: return ints->n == 1 && ints->items[0] == rank - 1;
	case RULE_ATTR_SWAP: return ir_is_matrix_transpose(ints);
	case RULE_ATTR_DTYPE: return *(const enum ir_dtype *)at == p->dtype;
	}
	return false;
}

/* Matches all attributes of an op, also those that the rule does not write. */
static bool match_attrs(struct matcher *t, const struct rule_op *p, const struct ir_op *op)
{
	const struct ir_op_desc *desc = ir_op_desc(op->code);
	int rank = op->n_operands > 0 && op->operands[0].id != 0 ? ir_type_of(t->r->f, op->operands[0])->rank
	                                                         : 0;
	for (int i = 0; desc->attrs[i].name != NULL && i < RULE_ATTRS_MAX; i++) {
		const void *at = (const char *)op->attrs + desc->attrs[i].offset;
		if (!match_attr(t, &p->attrs[i], &desc->attrs[i], at, rank))
			return false;
	}
	return true;
}

/* ---- ops and operands ---- */

/* Ops that cost no more than reading their result: they may be in another region and have other users. */
static bool is_free(enum ir_opcode code)
{
	return ir_op_has(code, TRAIT_CONST) || ir_op_has(code, TRAIT_VIEW) || code == OP_scale ||
	       code == OP_neg;
}

static void push(struct matcher *t, const struct rule_operand *p, struct ir_value v)
{
	t->worklist[t->n++] = (struct pair){p, v};
}

/* Matches an op except for its operands, which are pushed; the first two exchanged if `is_swapped`. An op that
 * the replacement computes again (neither free nor shared) must be in the region of the root: in another one it
 * is executed less often. */
static bool match_op(struct matcher *t, const struct rule_op *p, const struct ir_op *op, bool is_swapped)
{
	if (op == NULL || op->code != p->code || op->n_operands != p->n_operands)
		return false;
	bool moves = !is_free(op->code) && !t->rule->values[p->result].is_shared;
	if (moves && ir_value_info(t->r->f, op->results[0])->region != t->region)
		return false;
	const struct rule_type *type = t->rule->values[p->result].type;
	if (!match_attrs(t, p, op) ||
	    (type != NULL && !match_type(t->m, type, ir_type_of(t->r->f, op->results[0]))))
		return false;
	t->m->ops[p - t->rule->match] = op;
	for (size_t i = 0; i < p->n_operands; i++)
		push(t, &p->operands[i], op->operands[is_swapped && i < 2 ? 1 - i : i]);
	return true;
}

/* The value is a `full` of the number in the pattern, or of any number, which binds the variable. */
static bool match_full(struct matcher *t, const struct rule_operand *p, struct ir_value v)
{
	const struct ir_op *op = ir_def_as(t->r->f, v, OP_full);
	if (op == NULL)
		return false;
	double value = ((const struct attrs_full *)op->attrs)->value;
	if (p->kind == ARG_NUMBER)
		return rule_number_fits(p->number, value);
	struct rule_binding *b = &t->m->vars[p->index];
	if (!b->is_set)
		*b = (struct rule_binding){.is_set = true, .number = value};
	return memcmp(&b->number, &value, sizeof(value)) == 0;
}

static bool is_const(const struct rebuild *r, struct ir_value v)
{
	const struct ir_op *op = ir_def(r->f, v);
	return op != NULL && (op->code == OP_weight || op->code == OP_full);
}

/*
 * No element of v can come from a mask: the elementwise ops and views that compute it contain no where, no mask
 * and no conversion of a bool.
 */
static bool is_unmasked(const struct rebuild *r, struct ir_value v, int *budget)
{
	const struct ir_op *op = ir_def(r->f, v);
	if (op == NULL || !(ir_op_has(op->code, TRAIT_ELEMENTWISE) || ir_op_has(op->code, TRAIT_VIEW) ||
	                    op->code == OP_mask))
		return true;
	if (--*budget < 0 || op->code == OP_where || op->code == OP_mask || op->code == OP_mask_rows)
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (ir_type_of(r->f, op->operands[i])->dtype == DT_BOOL ||
		    !is_unmasked(r, op->operands[i], budget))
			return false;
	return true;
}

/* Binds a value of the rule at its first occurrence and checks its declared type and properties. Those of a result
 * of the rule are checked by match_op. */
static bool bind_operand(struct matcher *t, int index, struct ir_value v)
{
	const struct rule_value *value = &t->rule->values[index];
	t->m->values[index] = v;
	if (value->op >= 0)
		return true;
	int budget = UNMASKED_MAX;
	if (value->is_unmasked && !is_unmasked(t->r, v, &budget))
		return false;
	return (value->type == NULL || match_type(t->m, value->type, ir_type_of(t->r->f, v))) &&
	       (!value->is_const || is_const(t->r, v));
}

/* Matches op and then the remaining pairs; for a commutative op with both orders of its operands (backtracking). */
static bool try_op(struct matcher *t, const struct rule_op *p, const struct ir_op *op, int at)
{
	struct rule_match saved;
	int n = t->n;
	if (!ir_op_has(p->code, TRAIT_COMMUTATIVE))
		return match_op(t, p, op, false) && match_pairs(t, at);
	saved = *t->m;
	if (match_op(t, p, op, false) && match_pairs(t, at))
		return true;
	*t->m = saved;
	t->n = n;
	return match_op(t, p, op, true) && match_pairs(t, at);
}

/* Matches the pairs from `at` on. The recursion depth is at most the number of ops of the rule. A pattern
 * operand that is bound already compares: the same name is the same value. */
static bool match_pairs(struct matcher *t, int at)
{
	for (; at < t->n; at++) {
		const struct rule_operand *p = t->worklist[at].pattern;
		struct ir_value v = t->worklist[at].value;
		if (p->kind == ARG_ABSENT || v.id == 0) {
			if (p->kind != ARG_ABSENT || v.id != 0)
				return false;
			continue;
		}
		if (p->kind != ARG_VALUE) {
			if (!match_full(t, p, v))
				return false;
			continue;
		}
		if (t->m->values[p->index].id != 0) {
			if (!ir_same_value(t->m->values[p->index], v))
				return false;
			continue;
		}
		if (!bind_operand(t, p->index, v))
			return false;
		if (t->rule->values[p->index].op >= 0)
			return try_op(t, &t->rule->match[t->rule->values[p->index].op], ir_def(t->r->f, v),
			              at + 1);
	}
	return true;
}

/* ---- complete matches ---- */

/* Number of uses of v by the ops of the match; an op that two ops of the pattern are bound to counts once. */
static uint32_t uses_inside(const struct rule_match *m, struct ir_value v)
{
	uint32_t n = 0;
	for (int i = 0; i < m->rule->n_match; i++) {
		bool again = false;
		for (int k = 0; k < i; k++)
			again |= m->ops[k] == m->ops[i];
		for (size_t k = 0; k < m->ops[i]->n_operands && !again; k++)
			n += ir_same_value(m->ops[i]->operands[k], v);
	}
	return n;
}

/* Intermediate results of the match have no other users: they would have to be computed as well. The root, the last
 * op, may have any: they read the replacement. Free and shared values may be computed twice. */
static bool has_no_other_users(const struct rebuild *r, const struct rule_match *m)
{
	for (int i = 0; i + 1 < m->rule->n_match; i++) {
		const struct ir_op *op = m->ops[i];
		const struct rule_value *value = &m->rule->values[m->rule->match[i].result];
		if (value->is_shared || is_free(op->code))
			continue;
		if (uses_inside(m, op->results[0]) != r->uses[op->results[0].id])
			return false;
	}
	return true;
}

/* Cheap filter: the opcodes of the root and of its operands can match. An operand of the rule (op -1) can be any
 * value. */
static bool may_match(const struct rebuild *r, const struct rule *rule, const struct ir_op *op)
{
	const struct rule_op *root = &rule->match[rule->n_match - 1];
	bool commutes = ir_op_has(root->code, TRAIT_COMMUTATIVE);
	if (op->code != root->code || op->n_results != 1 || op->n_operands != root->n_operands)
		return false;
	for (size_t i = 0; i < root->n_operands; i++) {
		const struct rule_operand *p = &root->operands[i];
		if (p->kind == ARG_ABSENT || (p->kind == ARG_VALUE && rule->values[p->index].op < 0))
			continue;
		enum ir_opcode code =
		        p->kind == ARG_VALUE ? rule->match[rule->values[p->index].op].code : OP_full;
		if (ir_def_as(r->f, op->operands[i], code) == NULL &&
		    !(commutes && i < 2 && ir_def_as(r->f, op->operands[1 - i], code) != NULL))
			return false;
	}
	return true;
}

/* Predicates and the count of other users come last: they need all ops and variables bound. */
bool rule_matches(const struct rebuild *r, const struct rule *rule, const struct ir_op *op,
                  struct rule_match *out)
{
	struct matcher t;
	const struct rule_op *root = &rule->match[rule->n_match - 1];
	if (!may_match(r, rule, op))
		return false;
	*out = (struct rule_match){.rule = rule};
	t.r = r;
	t.rule = rule;
	t.m = out;
	t.n = 0;
	t.region = ir_value_info(r->f, op->results[0])->region;
	out->values[rule->root] = op->results[0];
	if (!try_op(&t, root, op, 0) || !rule_preds_hold(out, NULL) || !has_no_other_users(r, out))
		return false;
	/* If the replacement is an existing value, it must have the type of the root. */
	const struct rule_value *result = &rule->values[rule->result];
	return result->from_into ||
	       ir_type_of(r->f, out->values[rule->result]) == ir_type_of(r->f, op->results[0]);
}
