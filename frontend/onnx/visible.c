/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks as predicates: the value of a mask at query i and key j, by symbolic evaluation of its ops. Ints are affine,
 * a i + b j + c with a dim c; a comparison that the bounds of t do not decide makes two numbers and the condition
 * t <= 0, of an affine t. Everything else is unknown.
 *
 *   where(iota(T) <= iota(S, start=P) [..], 0, -3.4e38), T = P + S:   j - i - P <= 0 ? 0 : -3.4e38
 * `at` has the index of each axis as such an affine number (c NULL: not known); an outcome is the value there:
 * unknown, one number, or two with the condition between them.
 */
#include "frontend/onnx/import.h"

#define STEPS_MAX 4096 /* ops that are visited; values that several ops read are visited again */
#define DEPTH_MAX 200
#define HIDDEN    (-1e9) /* a mask that adds at most this hides: e^-1e9 is 0 */

/* i, j, c of an affine int; a float has c NULL. */
struct number {
	int64_t i, j;
	const struct ir_dim *c;
	double f;
};

enum outcome_kind { UNKNOWN, ONE, TWO };

struct outcome {
	enum outcome_kind kind;
	struct number test;    /* TWO: test <= 0 ? yes : no */
	struct number yes, no; /* ONE: yes */
};

struct evaluation {
	struct importer *im;
	const struct ir_func *f;
	const struct ir_dim *queries, *keys; /* sizes */
	int steps, depth;
};

typedef bool combine_numbers(struct evaluation *e, const struct ir_op *op, const struct number *a,
                             const struct number *b, struct number *out);

static const struct outcome unknown = {.kind = UNKNOWN};

static struct number int_number(struct evaluation *e, int64_t v)
{
	return (struct number){.c = ir_dim_const(e->im->dims, v)};
}

static bool is_constant(const struct number *a, int64_t *out)
{
	return a->c != NULL && a->i == 0 && a->j == 0 && ir_dim_is_const(a->c, out);
}

static bool same_number(const struct number *a, const struct number *b)
{
	return a->i == b->i && a->j == b->j && a->c == b->c && a->f == b->f;
}

/* a + b, or a - b by op; false: one is a float and the other an int, or coefficients overflow. */
static bool add_numbers(struct evaluation *e, const struct ir_op *op, const struct number *a,
                        const struct number *b, struct number *out)
{
	struct ir_dims *t = e->im->dims;
	bool minus = op->code == OP_sub;
	*out = (struct number){.f = minus ? a->f - b->f : a->f + b->f};
	if ((a->c == NULL) != (b->c == NULL))
		return false;
	out->c = a->c == NULL ? NULL : minus ? ir_dim_sub(t, a->c, b->c) : ir_dim_add(t, a->c, b->c);
	return a->c == NULL ||
	       (out->c != NULL && !(minus ? __builtin_sub_overflow(a->i, b->i, &out->i) ||
	                                            __builtin_sub_overflow(a->j, b->j, &out->j)
	                                  : __builtin_add_overflow(a->i, b->i, &out->i) ||
	                                            __builtin_add_overflow(a->j, b->j, &out->j)));
}

/* The product of floats, or of bools (which is `and`); false: of ints, which are not followed. */
static bool multiply_numbers(struct evaluation *e, const struct ir_op *op, const struct number *a,
                             const struct number *b, struct number *out)
{
	int64_t x, y;
	(void)op;
	*out = (struct number){.f = a->f * b->f};
	if (a->c == NULL && b->c == NULL)
		return true;
	if (!is_constant(a, &x) || !is_constant(b, &y) || x < 0 || x > 1 || y < 0 || y > 1)
		return false;
	*out = int_number(e, x * y);
	return true;
}

/* The disjunction of bools, which are the constants 0 and 1; false: one is no constant. */
static bool or_numbers(struct evaluation *e, const struct ir_op *op, const struct number *a,
                       const struct number *b, struct number *out)
{
	int64_t x, y;
	(void)op;
	if (!is_constant(a, &x) || !is_constant(b, &y))
		return false;
	*out = int_number(e, x != 0 || y != 0);
	return true;
}

/* The outcome of f(a, b) for each side of one condition. Two different conditions are unknown: a mask needs one.
   Equal results of both sides need none. */
static struct outcome combine(struct evaluation *e, const struct ir_op *op, combine_numbers *f,
                              const struct outcome *a, const struct outcome *b)
{
	struct outcome out = {.kind = a->kind == TWO ? TWO : b->kind,
	                      .test = a->kind == TWO ? a->test : b->test};
	if (a->kind == UNKNOWN || b->kind == UNKNOWN ||
	    (a->kind == TWO && b->kind == TWO && !same_number(&a->test, &b->test)) ||
	    !f(e, op, &a->yes, &b->yes, &out.yes))
		return unknown;
	if (out.kind == TWO &&
	    !f(e, op, a->kind == TWO ? &a->no : &a->yes, b->kind == TWO ? &b->no : &b->yes, &out.no))
		return unknown;
	if (out.kind == TWO && same_number(&out.yes, &out.no))
		out.kind = ONE;
	return out;
}

/* The largest (or least) value of k times an index in [0, size): it is at index 0 or size - 1, by the sign of k. */
static const struct ir_dim *reach(struct evaluation *e, int64_t k, const struct ir_dim *size, bool largest)
{
	struct ir_dims *t = e->im->dims;
	return (k > 0) == largest ? ir_dim_mul(t, ir_dim_const(t, k), ir_dim_sub(t, size, ir_dim_const(t, 1)))
	                          : ir_dim_const(t, 0);
}

/* Whether t <= 0: decided where bounds of the indices do it for all of them, else a condition. */
static struct outcome test_outcome(struct evaluation *e, const struct number *t)
{
	struct ir_dims *d = e->im->dims;
	const struct ir_dim *zero = ir_dim_const(d, 0), *one = ir_dim_const(d, 1), *bounds[2];
	for (int largest = 0; largest < 2; largest++)
		bounds[largest] = ir_dim_add(d, ir_dim_add(d, t->c, reach(e, t->i, e->queries, largest)),
		                             reach(e, t->j, e->keys, largest));
	if (ir_dim_le(d, bounds[1], zero))
		return (struct outcome){.kind = ONE, .yes = int_number(e, 1)};
	if (ir_dim_le(d, one, bounds[0]))
		return (struct outcome){.kind = ONE, .yes = int_number(e, 0)};
	return (struct outcome){.kind = TWO, .test = *t, .yes = int_number(e, 1), .no = int_number(e, 0)};
}

/* Comparisons of affine ints as t <= 0: a <= b is a - b <= 0, > and >= exchange the operands, strict ones add 1.
   Equality is decided for constants alone. */
static struct outcome compare(struct evaluation *e, const struct ir_op *op, const struct outcome *a,
                              const struct outcome *b)
{
	int kind = ((const struct attrs_cmp *)op->attrs)->kind;
	const struct ir_op minus = {.code = OP_sub};
	bool is_less = kind == CMP_le || kind == CMP_lt, is_strict = kind == CMP_lt || kind == CMP_gt;
	struct number t;
	int64_t v;
	if (a->kind != ONE || b->kind != ONE || a->yes.c == NULL || b->yes.c == NULL ||
	    !add_numbers(e, &minus, is_less ? &a->yes : &b->yes, is_less ? &b->yes : &a->yes, &t))
		return unknown;
	if (kind == CMP_eq || kind == CMP_ne)
		return is_constant(&t, &v)
		               ? (struct outcome){.kind = ONE,
		                                  .yes = int_number(e, (v == 0) == (kind == CMP_eq))}
		               : unknown;
	if (is_strict)
		t.c = ir_dim_add(e->im->dims, t.c, ir_dim_const(e->im->dims, 1));
	return t.c == NULL ? unknown : test_outcome(e, &t);
}

/* The outcome in another type. Affine ints stay ints; only constants become bools or floats, and floats never
   ints. */
static struct outcome cast_outcome(struct evaluation *e, const struct ir_op *op, struct outcome a)
{
	enum ir_dtype to = ((const struct attrs_cast *)op->attrs)->dtype;
	struct number *const sides[] = {&a.yes, &a.no};
	for (size_t i = 0; i < (a.kind == TWO ? 2 : 1) && a.kind != UNKNOWN; i++) {
		int64_t v = 0;
		bool is_float = ir_dtype_class(to) == DTCLASS_FLOAT, is_known = is_constant(sides[i], &v);
		if (sides[i]->c != NULL && !is_float && to != DT_BOOL)
			continue;
		if ((sides[i]->c != NULL && !is_known) || (sides[i]->c == NULL && to != DT_BOOL && !is_float))
			return unknown;
		if (to == DT_BOOL)
			*sides[i] = int_number(e, sides[i]->c != NULL ? v != 0 : sides[i]->f != 0);
		else if (sides[i]->c != NULL)
			*sides[i] = (struct number){.f = (double)v};
	}
	return a;
}

static struct outcome evaluate(struct evaluation *e, struct ir_value v, const struct number *at);

/* The indices of an operand of which the result is a view; those that are not known have c NULL. */
static void view_indices(struct evaluation *e, const struct ir_op *op, const struct number *at,
                         struct number *in)
{
	const struct ir_type *t = ir_type_of(e->f, op->operands[0]), *to = ir_type_of(e->f, op->results[0]);
	const struct number nothing = {0}, zero = int_number(e, 0);
	const struct ir_op plus = {.code = OP_add};
	for (int i = 0; i < t->rank; i++)
		in[i] = ir_dim_equals(t->dims[i], 1) ? zero : nothing;
	if (op->code == OP_broadcast)
		for (int i = 0; i < t->rank; i++)
			in[i] = ir_dim_equals(t->dims[i], 1) ? zero : at[i + to->rank - t->rank];
	if (op->code == OP_transpose)
		for (int i = 0; i < t->rank; i++)
			in[((const struct attrs_transpose *)op->attrs)->perm.items[i]] = at[i];
	if (op->code == OP_slice) {
		const struct attrs_slice *s = op->attrs;
		const struct number begin = {.c = s->begin};
		for (int i = 0; i < t->rank; i++)
			if (i != s->axis)
				in[i] = at[i];
			else if (at[i].c == NULL || !add_numbers(e, &plus, &at[i], &begin, &in[i]))
				in[i] = nothing;
	}
	/* The axes that are left without those of size 1, if they are the same. */
	for (int i = 0, k = 0; op->code == OP_reshape && i < t->rank; i++) {
		for (; k < to->rank && ir_dim_equals(to->dims[k], 1); k++)
			continue;
		if (ir_dim_equals(t->dims[i], 1))
			continue;
		if (k == to->rank || to->dims[k] != t->dims[i])
			return;
		in[i] = at[k++];
	}
}

/* A known condition chooses; one of indices makes its two sides the outcome. Nested conditions are unknown. */
static struct outcome evaluate_where(struct evaluation *e, const struct ir_op *op, const struct number *at)
{
	struct outcome c = evaluate(e, op->operands[0], at), a = evaluate(e, op->operands[1], at),
	               b = evaluate(e, op->operands[2], at);
	int64_t v;
	if (c.kind == ONE && is_constant(&c.yes, &v))
		return v != 0 ? a : b;
	if (c.kind != TWO || a.kind != ONE || b.kind != ONE || !is_constant(&c.yes, &v))
		return unknown;
	c.yes = v != 0 ? a.yes : b.yes;
	c.no = v != 0 ? b.yes : a.yes;
	return c;
}

/* The outcome of an op by its operands' ones; ops that are not listed are unknown. Sums of floats and ints, and of
   bools, are affine; a view asks its operand at other indices. */
static struct outcome evaluate_op(struct evaluation *e, const struct ir_op *op, const struct number *at)
{
	struct number in[IR_RANK_MAX] = {0};
	struct outcome a = unknown, b;
	if (op->code == OP_full) {
		const struct attrs_full *full = op->attrs;
		bool is_float = ir_dtype_class(full->dtype) == DTCLASS_FLOAT;
		return (struct outcome){.kind = ONE,
		                        .yes = is_float ? (struct number){.f = full->value}
		                                        : int_number(e, (int64_t)full->value)};
	}
	if (op->code == OP_dim_value)
		return (struct outcome){.kind = ONE,
		                        .yes = {.c = ((const struct attrs_dim_value *)op->attrs)->dim}};
	if (op->code == OP_iota) {
		const struct attrs_iota *iota = op->attrs;
		const struct number start = int_number(e, iota->start);
		const struct ir_op plus = {.code = OP_add};
		a.kind = at[iota->axis].c != NULL && add_numbers(e, &plus, &at[iota->axis], &start, &a.yes)
		                 ? ONE
		                 : UNKNOWN;
		return a;
	}
	if (op->code == OP_gather)
		return evaluate(e, op->operands[0], in); /* the same at all indices, or unknown */
	if (op->code == OP_where)
		return evaluate_where(e, op, at);
	bool is_view = op->code == OP_broadcast || op->code == OP_transpose || op->code == OP_slice ||
	               op->code == OP_reshape;
	bool is_binary = op->code == OP_add || op->code == OP_sub || op->code == OP_mul ||
	                 op->code == OP_and || op->code == OP_or || op->code == OP_cmp;
	if (!is_view && !is_binary && op->code != OP_cast && op->code != OP_not && op->code != OP_scale)
		return unknown;
	if (is_view)
		view_indices(e, op, at, in);
	a = evaluate(e, op->operands[0], is_view ? in : at);
	if (is_view || a.kind == UNKNOWN)
		return a;
	if (op->code == OP_cast)
		return cast_outcome(e, op, a);
	if (op->code == OP_not || op->code == OP_scale) {
		const struct ir_op minus = {.code = OP_sub};
		b = (struct outcome){.kind = ONE, .yes = int_number(e, 1)};
		if (op->code == OP_scale)
			b.yes = (struct number){.f = ((const struct attrs_scale *)op->attrs)->f};
		return op->code == OP_not ? combine(e, &minus, add_numbers, &b, &a)
		                          : combine(e, op, multiply_numbers, &a, &b);
	}
	b = evaluate(e, op->operands[1], at);
	if (op->code == OP_cmp)
		return compare(e, op, &a, &b);
	return combine(e, op,
	               op->code == OP_or                          ? or_numbers
	               : op->code == OP_add || op->code == OP_sub ? add_numbers
	                                                          : multiply_numbers,
	               &a, &b);
}

/* The element of v at these indices. Inputs that are masks of a past are ones (past.c); other inputs are unknown. */
static struct outcome evaluate(struct evaluation *e, struct ir_value v, const struct number *at)
{
	const struct ir_op *op = ir_def(e->f, v);
	if (e->steps++ > STEPS_MAX || e->depth > DEPTH_MAX)
		return unknown;
	for (size_t i = 0; i < e->im->past.masks.n; i++) {
		const struct lowered *mask = lower_find(e->im->lw, e->im->past.masks.items[i]);
		if (mask != NULL && ir_same_value(mask->v, v))
			return (struct outcome){.kind = ONE, .yes = int_number(e, 1)};
	}
	if (op == NULL)
		return unknown;
	e->depth++;
	struct outcome out = evaluate_op(e, op, at);
	e->depth--;
	return out;
}

/* Evaluates the mask at query i and key j: always visible, visible where j <= i + T - S and hidden (false, or at most
   HIDDEN) elsewhere, or unknown. */
enum visibility import_visibility(struct importer *im, const struct operand *mask,
                                  const struct operand *scores)
{
	struct evaluation e = {
	        .im = im, .f = irb_func(im->lw->b), .queries = scores->dims[2], .keys = scores->dims[3]};
	struct number at[IR_RANK_MAX] = {0};
	const struct lowered *v = mask->name != NULL ? lower_find(im->lw, mask->name) : NULL;
	if (v == NULL || v->kind != LOWERED_TENSOR)
		return VISIBLE_UNKNOWN;
	for (int k = 0; k < 2 && k < mask->rank; k++) {
		int axis = mask->rank - 1 - k;
		at[axis] = int_number(&e, 0);
		if (!ir_dim_equals(mask->dims[axis], 1))
			*(k == 0 ? &at[axis].j : &at[axis].i) = 1;
	}
	struct outcome out = evaluate(&e, v->v, at);
	int64_t sees = 0, hides = 1;
	bool is_bool = mask->dtype == DT_BOOL;
	if (out.kind == UNKNOWN || (is_bool && !is_constant(&out.yes, &sees)) ||
	    (is_bool && out.kind == TWO && !is_constant(&out.no, &hides)) ||
	    (!is_bool && (out.yes.c != NULL || out.yes.f != 0)) || (is_bool && sees == 0))
		return VISIBLE_UNKNOWN;
	if (out.kind == ONE)
		return VISIBLE_ALL;
	const struct ir_dim *past = ir_dim_sub(im->dims, scores->dims[2], scores->dims[3]);
	bool is_causal = out.test.j == 1 && out.test.i == -1 && out.test.c == past;
	bool is_hidden = is_bool ? hides == 0 : out.no.c == NULL && out.no.f <= HIDDEN;
	return is_causal && is_hidden ? VISIBLE_CAUSAL : VISIBLE_UNKNOWN;
}

/* The counted axis is the index i of the evaluation, whatever its position; the result counts if it is 1 i + c for
   all elements. */
bool import_counts(struct importer *im, struct ir_value v, const int *axes, int axis,
                   const struct ir_dim **first)
{
	const struct ir_dim *one = ir_dim_const(im->dims, 1);
	struct evaluation e = {.im = im, .f = irb_func(im->lw->b), .queries = one, .keys = one};
	struct number at[IR_RANK_MAX] = {0};
	const struct ir_type *t = ir_type_of(e.f, v);
	for (int i = 0; i < t->rank; i++) {
		if (axes[i] == axis || axes[i] == -1)
			at[i] = int_number(&e, 0);
		at[i].i = axes[i] == axis;
		e.queries = axes[i] == axis ? t->dims[i] : e.queries;
	}
	struct outcome out = evaluate(&e, v, at);
	*first = out.yes.c;
	return out.kind == ONE && out.yes.c != NULL && out.yes.i == 1 && out.yes.j == 0;
}
