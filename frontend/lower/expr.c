/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions of graph statements: scalars by the evaluator of frontend/syntax, tensors by the builder, with
 * NumPy broadcasting (trailing axes aligned). Dims and types are interned: equal ones are the same pointer.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include <math.h>

#include "frontend/lower/lower.h"
#include "ir/support/strmap.h"

/* The message ends with the path of the step in parentheses, as one statement of the prelude serves many steps. */
bool lower_fail(struct lowering *lw, struct loc at, enum diag_code code, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, lw->arena, fmt);
	const char *path = lw->loc.path;
	struct loc loc = at.line != 0 ? at : lw->loc.at;
	if (path != NULL && path[0] != '\0')
		diag_error(lw->cx, loc, code, "%s (%s)", text, path);
	else
		diag_error(lw->cx, loc, code, "%s", text);
	return false;
}

const struct ir_dim *lower_dim(struct lowering *lw, const struct ir_dim *d)
{
	const struct ir_dim *imported = ir_import_dim(lw->module, d);
	return lw->bound == NULL ? imported
	                         : ir_dim_substitute(lw->module->dims, imported, lw->bound_sym, lw->bound);
}

const struct ir_dim *lower_batch_dim(struct lowering *lw)
{
	return lower_dim(lw, lw->m->inputs.items[lw->m->tokens].dims[0]);
}

const char *type_to_string(struct lowering *lw, struct ir_value v)
{
	return ir_type_to_string(lw->arena, lw->module->dims, irb_type(lw->b, v));
}

struct lowered lowered_tensor(struct ir_value v)
{
	return (struct lowered){.kind = LOWERED_TENSOR, .v = v};
}

/* ---- broadcasting ---- */

static struct ir_value broadcast_to_dims(struct lowering *lw, struct ir_value v, int rank,
                                         const struct ir_dim *const *dims)
{
	const struct ir_type *t = irb_type(lw->b, v);
	bool same = t != NULL && t->rank == rank;
	for (int i = 0; same && i < rank; i++)
		same = t->dims[i] == dims[i];
	return same ? v : irb_broadcast_to(lw->b, v, rank, dims);
}

bool lower_broadcast_pair(struct lowering *lw, struct loc at, struct ir_value *a, struct ir_value *b)
{
	const struct ir_type *ta = irb_type(lw->b, *a), *tb = irb_type(lw->b, *b);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (ta == NULL || tb == NULL)
		return false;
	int rank = ta->rank > tb->rank ? ta->rank : tb->rank;
	for (int i = 1; i <= rank; i++) {
		const struct ir_dim *da = i <= ta->rank ? ta->dims[ta->rank - i] : NULL;
		const struct ir_dim *db = i <= tb->rank ? tb->dims[tb->rank - i] : NULL;
		bool fits =
		        da == NULL || db == NULL || da == db || ir_dim_equals(da, 1) || ir_dim_equals(db, 1);
		if (!fits)
			return lower_fail(lw, at, DIAG_SHAPE, "%s and %s do not fit together",
			                  type_to_string(lw, *a), type_to_string(lw, *b));
		dims[rank - i] = da == NULL || (db != NULL && ir_dim_equals(da, 1)) ? db : da;
	}
	*a = broadcast_to_dims(lw, *a, rank, dims);
	*b = broadcast_to_dims(lw, *b, rank, dims);
	return !irb_failed(lw->b);
}

struct ir_value lower_cast_to(struct lowering *lw, struct ir_value x, enum ir_dtype dtype)
{
	const struct ir_type *t = irb_type(lw->b, x);
	return t == NULL || t->dtype == dtype ? x : irb_cast(lw->b, x, &(struct attrs_cast){.dtype = dtype});
}

/* From 2^53 on doubles are not contiguous integers. */
bool lower_dtype_holds(enum ir_dtype t, double v)
{
	return ir_dtype_class(t) == DTCLASS_FLOAT || (ir_round(t, v) == v && fabs(v) < 0x1p53);
}

/* The value of a number or bool; false after a report for other kinds. */
static bool scalar_as_double(struct lowering *lw, struct loc at, const struct value *s, double *out)
{
	if (s->kind == VALUE_INT)
		*out = (double)s->i;
	else if (s->kind == VALUE_FLOAT)
		*out = s->f;
	else if (s->kind == VALUE_BOOL)
		*out = s->b ? 1.0 : 0.0;
	else
		return lower_fail(lw, at, DIAG_VALUE_TYPE,
		                  "an operand of a tensor must be a number, found %s",
		                  value_describe(lw->arena, lw->m->scope.dims, s));
	return true;
}

/* As high * 2^32 + low. */
struct ir_value lower_large_i64(struct lowering *lw, int64_t v, const struct ir_type *t)
{
	int64_t low = v & (int64_t)UINT32_MAX;
	struct ir_value high =
	        irb_full_of(lw->b, (double)((v - low) / ((int64_t)1 << 32)), DT_I64, t->rank, t->dims);
	struct ir_value unit = irb_full_of(lw->b, 0x1p32, DT_I64, t->rank, t->dims);
	struct ir_value low_part = irb_full_of(lw->b, (double)low, DT_I64, t->rank, t->dims);
	return irb_add(lw->b, irb_mul(lw->b, high, unit, NULL), low_part, NULL);
}

/* In decode a size of the source differs from sequence to sequence and is read from its state. */
bool lower_splat(struct lowering *lw, struct loc at, struct lowered *v, struct ir_value like)
{
	const struct ir_type *t = irb_type(lw->b, like);
	double d = 0.0;
	if (v->kind == LOWERED_TENSOR)
		return true;
	if (v->kind == LOWERED_TUPLE)
		return lower_fail(lw, at, DIAG_STATEMENT, "an operand is one value, found %zu", v->n);
	if (t == NULL)
		return false;
	if (v->s.kind == VALUE_DIM) { /* its value is known at run time */
		const struct ir_dim *size = lower_dim(lw, v->s.dim);
		struct ir_value n;
		if (!lower_is_source(lw, size))
			n = irb_dim_value_of(lw->b, size, t->rank, t->dims);
		else if (!lower_broadcast_source_size(lw, at, size, t, &n))
			return false;
		if (t->dtype != DT_I32)
			n = irb_cast(lw->b, n, &(struct attrs_cast){.dtype = t->dtype});
		*v = lowered_tensor(n);
		return !irb_failed(lw->b);
	}
	if (!scalar_as_double(lw, at, &v->s, &d))
		return false;
	if (ir_dtype_class(t->dtype) != DTCLASS_FLOAT && v->s.kind == VALUE_FLOAT)
		return lower_fail(lw, at, DIAG_DTYPE, "a float operand of a tensor of %s",
		                  ir_dtype_name(t->dtype));
	bool needs_i64_parts = t->dtype == DT_I64 && v->s.kind == VALUE_INT && fabs(d) >= 0x1p53;
	if (!needs_i64_parts && !lower_dtype_holds(t->dtype, d))
		return lower_fail(lw, at, DIAG_VALUE_TYPE, "%lld is not a value of %s", (long long)v->s.i,
		                  ir_dtype_name(t->dtype));
	*v = lowered_tensor(needs_i64_parts ? lower_large_i64(lw, v->s.i, t)
	                                    : irb_full_of(lw->b, d, t->dtype, t->rank, t->dims));
	return !irb_failed(lw->b);
}

/* ---- scalars ---- */

/* True if e can be evaluated now: it reads no bound name and calls scalar functions only. A name that is bound to
 * nothing may be a param, a dim or a word of an operator. */
static bool is_scalar_expr(const struct lowering *lw, const struct expr *e)
{
	if (e->kind == EX_NAME && lower_find(lw, e->text) != NULL)
		return false;
	if (e->kind == EX_LIST || (e->kind == EX_CALL && (!expr_is_function(e->text) || e->n_keywords > 0)))
		return false;
	for (size_t i = 0; i < e->n_args; i++) {
		if (!is_scalar_expr(lw, e->args[i]))
			return false;
	}
	return true;
}

/* Evaluates e at compile time; a name that is neither param nor dim becomes a string. False after a report. */
static bool eval_scalar(struct lowering *lw, const struct expr *e, struct lowered *out)
{
	*out = (struct lowered){.kind = LOWERED_SCALAR};
	if (e->kind == EX_STRING) {
		out->s = value_string(e->text);
		return true;
	}
	if (e->kind == EX_NAME) {
		enum expr_lookup found = lw->env.lookup(lw->env.user, e->text, e->loc, &out->s);
		if (found == EXPR_ABSENT)
			out->s = value_string(e->text); /* a word or an unknown name; the operator decides */
		return found != EXPR_FAILED;
	}
	return expr_eval(&lw->env, e, &out->s);
}

/* ---- operators ---- */

static bool report_unknown_name(struct lowering *lw, const struct expr *e)
{
	const char **names = ARENA_ARRAY(lw->arena, const char *, lw->vars.n + 1);
	size_t n = 0;
	for (size_t i = 0; names != NULL && i < lw->vars.n; i++) {
		if (lw->vars.items[i].value != NULL)
			names[n++] = lw->vars.items[i].key;
	}
	return lower_fail(lw, e->loc, DIAG_UNKNOWN_VALUE, "no value is called '%s' here%s", e->text,
	                  did_you_mean(lw->arena, e->text, names, n));
}

static bool is_unbound_name(const struct expr *e, const struct lowered *v)
{
	return e->kind == EX_NAME && v->kind == LOWERED_SCALAR && v->s.kind == VALUE_STRING;
}

/* Compares two tensors of one type; the IR op compares numbers, no bools. */
static bool lower_compare(struct lowering *lw, enum expr_op op, struct ir_value a, struct ir_value b,
                          struct lowered *out)
{
	const struct ir_type *t = irb_type(lw->b, a);
	static const int kinds[] = {[EXPR_EQ] = CMP_eq, [EXPR_NE] = CMP_ne, [EXPR_LT] = CMP_lt,
	                            [EXPR_LE] = CMP_le, [EXPR_GT] = CMP_gt, [EXPR_GE] = CMP_ge};
	if (t != NULL && t->dtype == DT_BOOL) { /* comparisons of bools: false < true */
		a = irb_cast(lw->b, a, &(struct attrs_cast){.dtype = DT_I32});
		b = irb_cast(lw->b, b, &(struct attrs_cast){.dtype = DT_I32});
	}
	*out = lowered_tensor(irb_cmp(lw->b, a, b, &(struct attrs_cmp){.kind = kinds[op]}));
	return !irb_failed(lw->b);
}

/* a / b of floats. Ints are rejected: in expressions of params `/` of ints is exact or an error, which a tensor
 * cannot promise. */
static bool lower_divide(struct lowering *lw, const struct expr *e, struct ir_value a, struct ir_value b,
                         struct lowered *out)
{
	const struct ir_type *t = irb_type(lw->b, a);
	if (t != NULL && ir_dtype_class(t->dtype) == DTCLASS_INT)
		return lower_fail(lw, e->loc, DIAG_DTYPE,
		                  "'/' of ints is not exact: write // to round down, or cast %s to f32",
		                  type_to_string(lw, a));
	*out = lowered_tensor(irb_div(lw->b, a, b, NULL));
	return !irb_failed(lw->b);
}

/* Appends the op of a binary operator; a and b have one shape and type. Unary operators do not come here. */
static bool lower_arithmetic(struct lowering *lw, const struct expr *e, struct ir_value a, struct ir_value b,
                             struct lowered *out)
{
	struct ir_value v = IR_NO_VALUE;
	switch (e->op) {
	case EXPR_ADD: v = irb_add(lw->b, a, b, NULL); break;
	case EXPR_SUB: v = irb_sub(lw->b, a, b, NULL); break;
	case EXPR_MUL: v = irb_mul(lw->b, a, b, NULL); break;
	case EXPR_DIV: return lower_divide(lw, e, a, b, out);
	case EXPR_POW: v = irb_pow(lw->b, a, b, NULL); break;
	case EXPR_AND: v = irb_and(lw->b, a, b, NULL); break;
	case EXPR_OR: v = irb_or(lw->b, a, b, NULL); break;
	case EXPR_FLOORDIV: v = irb_floor_div(lw->b, a, b, NULL); break;
	case EXPR_MOD: v = irb_mod(lw->b, a, b, NULL); break;
	case EXPR_NOT:
	case EXPR_NEG: break; /* unary */
	case EXPR_EQ:
	case EXPR_NE:
	case EXPR_LT:
	case EXPR_LE:
	case EXPR_GT:
	case EXPR_GE: return lower_compare(lw, e->op, a, b, out);
	}
	*out = lowered_tensor(v);
	return !irb_failed(lw->b);
}

/* Lowers tensor * constant and tensor / constant to the op scale, which needs no constant tensor. False: not such an
   expression. */
static bool try_scale(struct lowering *lw, const struct expr *e, const struct lowered *a,
                      const struct lowered *b, struct lowered *out)
{
	const struct lowered *t = a->kind == LOWERED_TENSOR ? a : b, *s = t == a ? b : a;
	const struct ir_type *type = irb_type(lw->b, t->v);
	double f = 0.0;
	bool times = e->op == EXPR_MUL, over = e->op == EXPR_DIV && t == a;
	if (s->kind != LOWERED_SCALAR || t->kind != LOWERED_TENSOR || type == NULL ||
	    ir_dtype_class(type->dtype) != DTCLASS_FLOAT || !(times || over) ||
	    (s->s.kind != VALUE_INT && s->s.kind != VALUE_FLOAT))
		return false;
	f = s->s.kind == VALUE_INT ? (double)s->s.i : s->s.f;
	if (over && f == 0.0) /* 1 / f would be infinite: the op div */
		return false;
	*out = lowered_tensor(irb_scale_by(lw->b, t->v, over ? 1.0 / f : f));
	return true;
}

/* Lowers a binary operator of which an operand is a tensor: a scalar becomes a constant like the other operand, then
 * both are broadcast to one shape. False after a report. */
static bool lower_binary(struct lowering *lw, const struct expr *e, struct lowered *out)
{
	struct lowered a, b;
	if (!lower_expr(lw, e->args[0], &a) || !lower_expr(lw, e->args[1], &b))
		return false;
	if (is_unbound_name(e->args[0], &a))
		return report_unknown_name(lw, e->args[0]);
	if (is_unbound_name(e->args[1], &b))
		return report_unknown_name(lw, e->args[1]);
	if (try_scale(lw, e, &a, &b, out))
		return !irb_failed(lw->b);
	/* the operand that is no number first: it is the type of the other, or several values, which is reported */
	struct lowered *like = a.kind == LOWERED_SCALAR ? &b : &a;
	if (!lower_splat(lw, e->loc, like, like->v) || !lower_splat(lw, e->loc, &a, like->v) ||
	    !lower_splat(lw, e->loc, &b, like->v) || !lower_broadcast_pair(lw, e->loc, &a.v, &b.v))
		return false;
	return lower_arithmetic(lw, e, a.v, b.v, out);
}

/* -x or `not` x of a tensor; scalars have been evaluated (eval_scalar), so that anything else is an error. */
static bool lower_unary_operator(struct lowering *lw, const struct expr *e, struct lowered *out)
{
	struct lowered a;
	if (!lower_expr(lw, e->args[0], &a))
		return false;
	if (a.kind != LOWERED_TENSOR)
		return lower_fail(lw, e->loc, DIAG_VALUE_TYPE, "'%s' wants a tensor or a number",
		                  expr_op_name(e->op));
	*out = lowered_tensor(e->op == EXPR_NOT ? irb_not(lw->b, a.v, NULL) : irb_neg(lw->b, a.v, NULL));
	return !irb_failed(lw->b);
}

/* a[i]: element i of axis 0, which goes away. The index must be below the least size that the axis may have. */
static bool lower_index(struct lowering *lw, const struct expr *e, struct lowered *out)
{
	struct lowered a, i;
	if (e->n_args != 2 || !lower_expr(lw, e->args[0], &a) || !lower_expr(lw, e->args[1], &i))
		return e->n_args == 2 ? false : lower_fail(lw, e->loc, DIAG_STATEMENT, "one index is wanted");
	const struct ir_type *t = a.kind == LOWERED_TENSOR ? irb_type(lw->b, a.v) : NULL;
	if (t == NULL || t->rank < 1 || i.kind != LOWERED_SCALAR || i.s.kind != VALUE_INT)
		return lower_fail(lw, e->loc, DIAG_VALUE_TYPE, "indexing wants a tensor and an int");
	if (i.s.i < 0 || i.s.i >= ir_dim_lo(lw->module->dims, t->dims[0]))
		return lower_fail(lw, e->loc, DIAG_INDEX, "index %lld of %s", (long long)i.s.i,
		                  type_to_string(lw, a.v));
	struct ir_dims *d = lw->module->dims;
	struct ir_value s = irb_slice_of(lw->b, a.v, 0, ir_dim_const(d, i.s.i), ir_dim_const(d, 1));
	*out = lowered_tensor(irb_reshape_to(lw->b, s, t->rank - 1, t->dims + 1));
	return !irb_failed(lw->b);
}

bool lower_expr(struct lowering *lw, const struct expr *e, struct lowered *out)
{
	const struct lowered *v = e->kind == EX_NAME ? lower_find(lw, e->text) : NULL;
	if (v != NULL) {
		*out = *v;
		return true;
	}
	if (is_scalar_expr(lw, e))
		return eval_scalar(lw, e, out);
	switch (e->kind) {
	case EX_UNARY: return lower_unary_operator(lw, e, out);
	case EX_BINARY: return lower_binary(lw, e, out);
	case EX_INDEX: return lower_index(lw, e, out);
	case EX_CALL: return lower_call(lw, e, out);
	case EX_LIST: return lower_fail(lw, e->loc, DIAG_STATEMENT, "a list is not a value");
	case EX_NONE:
	case EX_INT:
	case EX_FLOAT:
	case EX_BOOL:
	case EX_STRING:
	case EX_DIM:
	case EX_NAME: break; /* always scalar */
	}
	return eval_scalar(lw, e, out);
}
