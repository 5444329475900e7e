/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of tables. The terms of a sum that are rows of a table at ids which are
 * no constants each carry what else depends on the same ids, or on nothing; the
 * terms so carried disappear.
 */
#include <string.h>

#include "ir/core/view.h"
#include "passes/folds/feature_rows.h"
#include "passes/folds/fold_tables.h"
#include "passes/weights/merge_sets.h"
#include "passes/folds/weight_changes.h"

#define TERMS_MAX 32

/* Terms that disappear, by the value: unit + 1. */
struct carried {
	const struct ir_func *f;
	size_t *unit; /* [f->n_values] */
};

struct summer {
	struct weight_changes c;
	struct carried *funcs; /* [in->funcs.n] */
	size_t n_funcs;
};

struct finder {
	struct summer *s;
	const struct ir_func *f;
	const struct value_uses *uses;
	struct carried *carried;
};

struct term {
	struct ir_value v;
	const struct ir_op *op; /* gather of a constant table, or broadcast of a constant row */
	const struct ir_weight *weight;
	bool is_row; /* the same row everywhere: number `row` of the table, or the vector itself */
	int64_t row;
	int64_t rows;   /* of the table */
	size_t carrier; /* index of the term that carries this one + 1 */
};

static size_t n_uses(const struct finder *x, struct ir_value v)
{
	return x->uses->first[v.id + 1] - x->uses->first[v.id];
}

/* --- terms --------------------------------------------------------------------------------------------- */

/* The weight behind an operand, without indices, with all dims constant. */
static const struct ir_weight *whole_weight(const struct ir_func *f, const struct ir_op *op, int rank)
{
	const struct ir_op *ref = weight_changes_constant(f, op, 0);
	const struct ir_weight *w = ref != NULL ? ((const struct attrs_weight *)ref->attrs)->weight : NULL;
	return w != NULL && ref->n_operands == 0 && w->init != NULL && w->encoding == ENC_ROW &&
	                       w->narrow == DT_F32 && w->type->rank == rank
	               ? w
	               : NULL;
}

/* ids are the same number everywhere. */
static bool constant_id(const struct ir_func *f, struct ir_value ids, int64_t rows, int64_t *out)
{
	const struct ir_op *op = ir_def(f, ir_view_base(f, ids));
	if (op == NULL || op->code != OP_full)
		return false;
	double v = ((const struct attrs_full *)op->attrs)->value;
	*out = v < 0 ? 0 : v > (double)(rows - 1) ? rows - 1 : (int64_t)v;
	return true;
}

static void read_term(const struct finder *x, struct ir_value v, struct term *out)
{
	const struct ir_op *op = ir_def(x->f, v);
	*out = (struct term){.v = v};
	if (op == NULL)
		return;
	if (op->code == OP_gather && (out->weight = whole_weight(x->f, op, 2)) != NULL) {
		out->op = op;
		if (!ir_dim_is_const(out->weight->type->dims[0], &out->rows) || out->rows < 1)
			out->op = NULL;
		else
			out->is_row = constant_id(x->f, op->operands[1], out->rows, &out->row);
	} else if (op->code == OP_broadcast && (out->weight = whole_weight(x->f, op, 1)) != NULL) {
		out->op = op;
		out->is_row = true;
		out->row = -1;
	}
}

/* The terms of the sum at v; false when there are too many. */
static bool collect(const struct finder *x, struct ir_value v, bool is_root, struct term *terms, size_t *n)
{
	const struct ir_op *op = ir_def(x->f, v);
	if (op != NULL && op->code == OP_add && (is_root || n_uses(x, v) == 1))
		return collect(x, op->operands[0], false, terms, n) &&
		       collect(x, op->operands[1], false, terms, n);
	if (*n == TERMS_MAX)
		return false;
	read_term(x, v, &terms[(*n)++]);
	return true;
}

/* --- what is carried ----------------------------------------------------------------------------------- */

static bool may_carry(const struct finder *x, const struct term *t)
{
	return t->op != NULL && !t->is_row && n_uses(x, t->v) == 1;
}

/* The first table at the same ids, or the smallest of all for a row; the term itself: none. */
static size_t find_carrier(const struct finder *x, const struct term *terms, size_t n, size_t i)
{
	size_t best = i;
	for (size_t k = 0; k < n; k++) {
		const struct term *t = &terms[k];
		if (k == i || !may_carry(x, t) || t->carrier != 0)
			continue;
		if (!terms[i].is_row && k < i && ir_same(t->op->operands[1], terms[i].op->operands[1]) &&
		    t->rows == terms[i].rows)
			return k;
		if (terms[i].is_row && (best == i || t->rows < terms[best].rows))
			best = k;
	}
	return best;
}

/* What term t adds to a table of `rows` rows. */
static const struct ir_wexpr *addend(struct arena *a, const struct term *t, int64_t rows)
{
	const struct ir_wexpr *e = t->weight->init;
	if (!t->is_row)
		return e;
	if (t->row >= 0)
		e = wexpr_index(a, 0, t->row, e);
	int64_t dims[2] = {1, e != NULL ? e->dims[0] : 0};
	return wexpr_repeat(a, 0, rows, wexpr_reshape(a, 2, dims, e));
}

/* "a.pos.weight", "a.type.weight" -> "a.pos_type.weight" */
static const char *sum_name(const struct finder *x, const char *a, const char *b)
{
	size_t head = strlen(a), tail = head, n = head, k = strlen(b);
	merge_name_parts(a, b, &head, &tail);
	const char *name = arena_printf(x->s->c.p->arena, "%.*s_%.*s%s", (int)(n - tail), a,
	                                (int)(k - head - tail), b + head, a + n - tail);
	return ir_find_weight(x->s->c.in, name) == NULL ? name : NULL;
}

/* The unit of carrier i, when some terms lean on it. */
static void carry(struct finder *x, const struct term *terms, size_t n, size_t i)
{
	struct arena *a = x->s->c.p->arena;
	struct weight_change change = {.kind = CHANGE_ADD, .rows = feature_rows_all(terms[i].rows)};
	const char *name = terms[i].weight->name;
	size_t found = 0, unit = 0;
	for (size_t k = 0; k < n; k++) {
		if (terms[k].carrier != i + 1)
			continue;
		const struct ir_wexpr *e = addend(a, &terms[k], terms[i].rows);
		if (found++ == 0)
			unit = weight_changes_unit(&x->s->c, x->f, terms[i].op);
		change.addend = found == 1 ? e : wexpr_binary(a, WX_ADD, change.addend, e);
		if (name != NULL)
			name = sum_name(x, name, terms[k].weight->name);
		x->carried->unit[terms[k].v.id] = unit + 1;
	}
	if (found == 0)
		return;
	change.name = name;
	const struct value_use use = {terms[i].op, 0};
	const char *why = change.addend != NULL ? weight_changes_demand(&x->s->c, unit, x->f, &use, &change)
	                                        : "the provenance of its weights would nest too deep";
	if (why != NULL)
		weight_changes_refuse(&x->s->c, unit, why);
}

static bool is_inner(const struct finder *x, const struct ir_op *op)
{
	struct ir_value v = op->results[0];
	return n_uses(x, v) == 1 && x->uses->items[x->uses->first[v.id]].op->code == OP_add;
}

static void find(void *user, const struct ir_op *op)
{
	struct finder *x = user;
	struct term terms[TERMS_MAX];
	size_t n = 0;
	if (op->code != OP_add || is_inner(x, op) || !collect(x, op->results[0], true, terms, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		size_t carrier = terms[i].op != NULL ? find_carrier(x, terms, n, i) : i;
		terms[i].carrier = carrier != i ? carrier + 1 : 0;
	}
	for (size_t i = 0; i < n; i++)
		if (terms[i].op != NULL && terms[i].carrier == 0)
			carry(x, terms, n, i);
}

/* --- rewriting ----------------------------------------------------------------------------------------- */

static const struct carried *carried_of(const struct summer *s, const struct ir_func *f)
{
	for (size_t i = 0; i < s->n_funcs; i++)
		if (s->funcs[i].f == f)
			return &s->funcs[i];
	return NULL;
}

/* The term, or sum of terms, is in a table now. */
static bool is_gone(const struct summer *s, const struct ir_func *f, struct ir_value v, int depth)
{
	size_t unit = carried_of(s, f)->unit[v.id];
	if (unit != 0)
		return s->c.units.items[unit - 1].number > 0;
	const struct ir_op *op = ir_def(f, v);
	return op != NULL && op->code == OP_add && depth < TERMS_MAX &&
	       is_gone(s, f, op->operands[0], depth + 1) && is_gone(s, f, op->operands[1], depth + 1);
}

/* Operand of the add that stays alone; 2: both stay. */
static size_t left_over(const struct summer *s, const struct ir_func *f, const struct ir_op *op)
{
	if (op->code != OP_add)
		return 2;
	bool a = is_gone(s, f, op->operands[0], 0), b = is_gone(s, f, op->operands[1], 0);
	return a && !b ? 1 : b && !a ? 0 : 2;
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct summer *s = r->rewrite->user;
	if (weight_changes_match(&s->c, r, op))
		return true;
	size_t left = left_over(s, r->f, op);
	if (left == 2)
		return false;
	rebuild_need(r, op->operands[left]);
	return true;
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct summer *s = r->rewrite->user;
	if (op->code == OP_weight) {
		weight_changes_emit(&s->c, r, op);
		return;
	}
	size_t left = left_over(s, r->f, op);
	rebuild_set(r, op->results[0], rebuild_get(r, op->operands[left]));
	pass_count(r->p, "sums", 1);
	pass_remark(r->p, op->loc, "a constant term of the sum is in a table");
}

enum tfmc_status fold_table_sums(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct summer s = {.n_funcs = in->funcs.n};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &s, .is_numbered = true};

	TFMC_TRY(weight_changes_init(&s.c, p, in));
	s.funcs = ARENA_ARRAY(p->arena, struct carried, in->funcs.n + 1);
	if (s.funcs == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < in->funcs.n; i++) {
		const struct ir_func *f = in->funcs.items[i];
		s.funcs[i] = (struct carried){f, ARENA_ARRAY(p->arena, size_t, f->n_values)};
		struct finder x = {&s, f, &s.c.uses[i], &s.funcs[i]};
		if (s.funcs[i].unit == NULL)
			return TFMC_NO_MEMORY;
		ir_walk(f->body, find, &x);
	}
	TFMC_TRY(weight_changes_resolve(&s.c));
	return rebuild_module(p, in, out, &rewrite, NULL);
}
