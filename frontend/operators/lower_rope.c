/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions: sines and cosines are a table with a row for every position
 * that can occur, so they are exact however long the sequence is; the positions
 * therefore need a bound that is known here.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower/lower.h"
#include "frontend/operators/rope.h"
#include "ir/support/checked.h"

#define ROWS_MAX (INT64_C(1) << 28)

/* ---- arguments ---- */

static const struct scaling_row {
	struct signature signature;
	enum rope_scaling kind;
} scalings[] = {
#define SCALING(name, id, doc, args) {SIGNATURE(name, doc, args), ROPE_##id},
#include "frontend/expr/calls.def"
};

static const struct scaling_row *find_scaling(const struct expr *e)
{
	for (size_t i = 0; e->kind == EX_CALL && i < TFMC_COUNT(scalings); i++) {
		if (strcmp(scalings[i].signature.name, e->text) == 0)
			return &scalings[i];
	}
	return NULL;
}

/* [1.0, 2.0], or the name of such a parameter */
static bool factors(const struct call *s, struct rope_turn *r)
{
	const struct expr *e = call_arg(s, "factors");
	const struct expr_env *env = &s->lw->env;
	struct value list = {.kind = VALUE_NONE}, one;
	bool written = e->kind == EX_LIST;
	if (!written && !expr_eval(env, e, &list))
		return false;
	if (!written && list.kind != VALUE_LIST)
		return lower_fail(s->lw, e->loc, DIAG_VALUE_TYPE, "'factors' of a scaling wants a list");
	r->n_factors = written ? e->n_args : list.n;
	double *out = ARENA_ARRAY(s->lw->arena, double, r->n_factors + 1);
	for (size_t i = 0; out != NULL && i < r->n_factors; i++) {
		if (written && !expr_eval(env, e->args[i], &one))
			return false;
		if (!expr_want_float(env, e->loc, "factors", written ? &one : &list.items[i], &out[i]))
			return false;
	}
	r->factors = out;
	return out != NULL;
}

/* KIND(factor=8.0, ...) */
static bool scaling(const struct call *c, struct rope_turn *r)
{
	const struct expr *e = call_arg(c, "scaling");
	if (lower_is_none(e))
		return true;
	const struct scaling_row *row = find_scaling(e);
	struct call s;
	if (row == NULL)
		return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE,
		                  "a scaling is linear, llama3, yarn or longrope with its arguments, as in "
		                  "linear(factor=8.0), or none");
	r->scaling = row->kind;
	if (!call_match(c->lw, e, &row->signature, &s))
		return false;
	const struct {
		const char *name;
		double *out;
	} numbers[] = {{"factor", &r->factor},
	               {"low", &r->low},
	               {"high", &r->high},
	               {"original", &r->original},
	               {"beta_fast", &r->beta_fast},
	               {"beta_slow", &r->beta_slow},
	               {"attention_factor", &r->attention_factor}};
	for (size_t i = 0; i < TFMC_COUNT(numbers); i++) {
		const struct expr *given = call_arg(&s, numbers[i].name);
		if (given == NULL)
			continue;
		if (!call_float(&s, numbers[i].name, numbers[i].out))
			return false;
		if (!(*numbers[i].out > 0) || !isfinite(*numbers[i].out))
			return lower_fail(c->lw, given->loc, DIAG_VALUE_TYPE,
			                  "rope: '%s' of a scaling must be positive", numbers[i].name);
	}
	if (signature_find(&row->signature, "truncate") >= 0 && !call_bool(&s, "truncate", &r->truncate))
		return false;
	return signature_find(&row->signature, "factors") < 0 || factors(&s, r);
}

static bool read_turn(const struct call *c, int64_t width, struct rope_turn *r, int *layout)
{
	const char *word = NULL;
	*r = (struct rope_turn){.dim = width};
	if (!call_float(c, "theta", &r->theta) || !call_int(c, "dim", &r->dim) || !scaling(c, r) ||
	    !call_word(c, "layout", &word))
		return false;
	*layout = strcmp(word, "halves") == 0 ? ROPE_halves : ROPE_interleaved;
	if (*layout != ROPE_halves && strcmp(word, "interleaved") != 0)
		return lower_fail(c->lw, c->e->loc, DIAG_WORD, "layout is halves or interleaved, found '%s'",
		                  word);
	const char *wrong = rope_check(c->lw->arena, r, width);
	return wrong == NULL || lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE, "rope: %s", wrong);
}

/* ---- the largest position ---- */

/* After views that keep every element. */
static struct ir_value stripped(const struct lowering *lw, struct ir_value v)
{
	const struct ir_op *op = ir_def(irb_func(lw->b), v);
	while (op != NULL && ir_op_has(op->code, TRAIT_VIEW)) {
		v = op->operands[0];
		op = ir_def(irb_func(lw->b), v);
	}
	return v;
}

/* Ids below a number that entries check. */
static bool input_below(const struct lowering *lw, struct ir_value v, int64_t *out)
{
	const struct ir_func *f = irb_func(lw->b);
	for (size_t i = 0; i < f->n_params; i++) {
		if (!ir_same(f->params[i].value, v))
			continue;
		*out = f->params[i].below;
		return *out > 0;
	}
	return false;
}

/* One more than the largest value; false when it is not known. */
static bool bound_of(const struct lowering *lw, struct ir_value v, int64_t *out)
{
	int64_t a, b;
	v = stripped(lw, v);
	const struct ir_op *op = ir_def(irb_func(lw->b), v);
	if (lw->past.id != 0 && ir_same(v, lw->past)) {
		*out = lw->m->generate.max_len;
		return true;
	}
	if (op != NULL && op->code == OP_iota) {
		const struct attrs_iota *at = op->attrs;
		a = ir_dim_hi(lw->module->dims, at->dims.items[at->axis]);
		return at->start >= 0 && checked_add_i64(a, at->start, out);
	}
	if (op != NULL && op->code == OP_full && ((const struct attrs_full *)op->attrs)->value >= 0) {
		*out = (int64_t)((const struct attrs_full *)op->attrs)->value + 1;
		return ((const struct attrs_full *)op->attrs)->value < (double)ROWS_MAX;
	}
	if (op == NULL)
		return input_below(lw, v, out);
	if (op->code != OP_add || !bound_of(lw, op->operands[0], &a) || !bound_of(lw, op->operands[1], &b))
		return false;
	/* past + new positions: the caller keeps the sum below the length of the caches */
	bool past = lw->past.id != 0 && (ir_same(stripped(lw, op->operands[0]), lw->past) ||
	                                 ir_same(stripped(lw, op->operands[1]), lw->past));
	*out = a > b ? a : b;
	return past || checked_add_i64(a, b - 1, out);
}

/* A model that generates has one table for all its functions. */
static bool table_rows(const struct call *c, struct ir_value pos, int64_t *out)
{
	const struct lowering *lw = c->lw;
	if (!bound_of(lw, pos, out))
		return lower_fail(c->lw, c->e->loc, DIAG_UNSUPPORTED,
		                  "not supported yet: rope at positions without a bound that is known here "
		                  "(positions(x), "
		                  "iota, inputs with 'below', sums of them and constants)");
	if (lw->m->tokens >= 0 && lw->m->generate.max_len > *out)
		*out = lw->m->generate.max_len;
	if (*out > ROWS_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_LIMIT, "rope: more than %lld positions",
		                  (long long)ROWS_MAX);
	return true;
}

static bool make_table(const struct call *c, const struct rope_turn *r, int64_t rows, struct ir_value *out)
{
	struct lowering *lw = c->lw;
	size_t n = (size_t)r->dim / 2;
	double scale, *list = ARENA_ARRAY(lw->arena, double, n);
	if (list == NULL)
		return false;
	rope_frequencies(r, list, &scale);
	const struct ir_wexpr *e = wexpr_rotary(&lw->m->arena, rows, scale, list, n);
	if (e == NULL)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "rope: a table of %lld positions is not possible", (long long)rows);
	const char *name = arena_printf(lw->arena, "rope.%lldx%lld", (long long)rows, (long long)r->dim);
	if (r->theta != 10000.0 || r->scaling != ROPE_PLAIN) {
		uint64_t hash = hash_bytes64(HASH64_SEED, &scale, sizeof(scale));
		hash = hash_bytes64(hash, list, n * sizeof(*list));
		name = arena_printf(lw->arena, "%s.%016llx", name, (unsigned long long)hash);
	}
	return lower_table(lw, name, e, out);
}

/* ---- the call ---- */

/* x [n, e] as [1, n, e]; positions [n] for every sequence. */
static bool align(const struct call *c, struct ir_value *x, struct ir_value *pos)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = irb_type(lw->b, *x), *p = irb_type(lw->b, *pos);
	bool fits = t->rank >= 2 && p->dtype == DT_I32 && (p->rank == 1 || (p->rank == 2 && t->rank > 2)) &&
	            p->dims[p->rank - 1] == t->dims[t->rank - 2] &&
	            (p->rank == 1 || p->dims[0] == t->dims[0]);
	if (!fits)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "rope wants x [..., n, e] and i32 positions [n] or [B, n], found %s and %s",
		                  type_text(lw, *x), type_text(lw, *pos));
	const struct ir_dim *one = ir_dim_const(lw->module->dims, 1);
	if (t->rank == 2)
		*x = irb_reshape_to(lw->b, *x, 3, (const struct ir_dim *[]){one, t->dims[0], t->dims[1]});
	t = irb_type(lw->b, *x);
	if (p->rank == 1)
		*pos = irb_broadcast_to(lw->b, *pos, 2, (const struct ir_dim *[]){t->dims[0], p->dims[0]});
	return !irb_failed(lw->b);
}

bool lower_rope(const struct call *c, struct lval *out)
{
	struct ir_builder *b = c->lw->b;
	struct ir_value x, pos, table;
	struct rope_turn r;
	int64_t width = 0, rows = 0;
	int layout = 0;
	if (!call_tensor(c, "x", &x) || !call_tensor(c, "pos", &pos))
		return false;
	const struct ir_type *t = irb_type(b, x);
	if (ir_dtype_class(t->dtype) != DTCLASS_FLOAT || t->rank < 2 ||
	    !ir_dim_is_const(t->dims[t->rank - 1], &width))
		return lower_fail(c->lw, c->e->loc, DIAG_SHAPE,
		                  "rope wants floats [..., n, e] with e constant, found %s",
		                  type_text(c->lw, x));
	if (!read_turn(c, width, &r, &layout) || !align(c, &x, &pos) || !table_rows(c, pos, &rows) ||
	    !make_table(c, &r, rows, &table))
		return false;
	x = irb_rope(b, x, table, pos, &(struct attrs_rope){.layout = layout});
	*out = lval_tensor(t->rank == 2 ? irb_reshape_to(b, x, 2, t->dims) : x);
	return !irb_failed(b);
}
