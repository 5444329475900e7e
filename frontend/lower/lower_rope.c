/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding (Su et al. 2021). Sines and cosines come from a constant table with a row for every
 * possible position, computed in f64, so they are exact however long the sequence is; therefore an upper bound
 * of the positions must be known at compile time. longrope has two lists of factors: the table then has two parts,
 * first that of the short ones. A value with id 0 is none; functions return false after a report.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower/lower.h"
#include "frontend/lower/rope.h"
#include "ir/support/checked.h"

#define ROWS_MAX (INT64_C(1) << 28)

/* ---- arguments ---- */

static const enum rope_scaling scalings[] = {
#define SCALING(name, id, doc, args) ROPE_##id,
#include "frontend/syntax/calls.def"
};

/* Reads a list [1.0, 2.0] or a param with one; absent: *out is unchanged. */
static bool read_factors(const struct call *s, const char *name, const double **out, size_t *n)
{
	const struct expr *e = call_arg(s, name);
	const struct expr_env *env = &s->lw->env;
	struct value list = {.kind = VALUE_NONE}, one;
	if (lower_is_none(e))
		return true;
	bool written = e->kind == EX_LIST;
	if (!written && !expr_eval(env, e, &list))
		return false;
	if (!written && list.kind != VALUE_LIST)
		return lower_fail(s->lw, e->loc, DIAG_VALUE_TYPE, "'%s' of a scaling wants a list", name);
	*n = written ? e->n_args : list.n;
	double *values = ARENA_ARRAY(s->lw->arena, double, *n + 1);
	for (size_t i = 0; values != NULL && i < *n; i++) {
		if (written && !expr_eval(env, e->args[i], &one))
			return false;
		if (!expr_require_float(env, e->loc, name, written ? &one : &list.items[i], &values[i]))
			return false;
	}
	*out = values;
	return values != NULL;
}

/* Reads KIND(factor=8.0, ...) into the scaling of *r; arguments that the kind does not have, or that are absent, stay
 * 0. *lengths: argument `lengths` of longrope, if present. */
static bool read_scaling(const struct call *c, struct rope_params *r, struct ir_value *lengths)
{
	const struct expr *e = call_arg(c, "scaling");
	if (lower_is_none(e))
		return true;
	size_t number;
	const struct signature *signature =
	        e->kind == EX_CALL ? signature_of(CALL_SCALING, e->text, &number) : NULL;
	struct call s;
	if (signature == NULL)
		return lower_fail(c->lw, e->loc, DIAG_VALUE_TYPE,
		                  "a scaling is linear, llama3, yarn or longrope with its arguments, as in "
		                  "linear(factor=8.0), or none");
	r->scaling = scalings[number];
	if (!call_match(c->lw, e, signature, &s))
		return false;
	const struct {
		const char *name;
		double *out;
	} float_args[] = {{"factor", &r->factor},
	                  {"low", &r->low},
	                  {"high", &r->high},
	                  {"original", &r->original},
	                  {"beta_fast", &r->beta_fast},
	                  {"beta_slow", &r->beta_slow},
	                  {"attention_factor", &r->attention_factor}};
	for (size_t i = 0; i < TFMC_COUNT(float_args); i++) {
		const struct expr *given = call_arg(&s, float_args[i].name);
		if (given == NULL)
			continue;
		if (!call_float(&s, float_args[i].name, float_args[i].out))
			return false;
		if (!(*float_args[i].out > 0) || !isfinite(*float_args[i].out))
			return lower_fail(c->lw, given->loc, DIAG_VALUE_TYPE,
			                  "rope: '%s' of a scaling must be positive", float_args[i].name);
	}
	if (signature_find(signature, "truncate") >= 0 && !call_bool(&s, "truncate", &r->truncate))
		return false;
	if (r->scaling != ROPE_LONGROPE)
		return true;
	if (!lower_is_none(call_arg(&s, "lengths")) && !call_tensor(&s, "lengths", lengths))
		return false;
	return read_factors(&s, "factors", &r->factors, &r->n_factors) &&
	       read_factors(&s, "short", &r->short_factors, &r->n_short);
}

/* halves: features i and i + dim / 2 form a pair; interleaved: 2i and 2i + 1. False after a report. */
static bool read_layout(const struct call *c, int *layout)
{
	const char *word = NULL;
	if (!call_word(c, "layout", &word))
		return false;
	*layout = strcmp(word, "halves") == 0 ? ROPE_halves : ROPE_interleaved;
	return *layout == ROPE_halves || strcmp(word, "interleaved") == 0 ||
	       lower_fail(c->lw, c->e->loc, DIAG_WORD, "layout is halves or interleaved, found '%s'", word);
}

/* Reads and checks theta, dim, scaling for heads of `width` features. False after a report. */
static bool read_rope(const struct call *c, int64_t width, struct rope_params *r, struct ir_value *lengths)
{
	*r = (struct rope_params){.dim = width};
	if (!call_float(c, "theta", &r->theta) || !call_int(c, "dim", &r->dim) ||
	    !read_scaling(c, r, lengths))
		return false;
	const char *wrong = rope_check(c->lw->arena, r, width);
	return wrong == NULL || lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE, "rope: %s", wrong);
}

/* ---- the largest position ---- */

/* The value behind view ops (reshape, transpose, broadcast, slice), all of whose elements are elements of it, so that
 * its upper bound holds for v. */
static struct ir_value strip_views(const struct lowering *lw, struct ir_value v)
{
	const struct ir_op *op = ir_def(irb_func(lw->b), v);
	while (op != NULL && ir_op_has(op->code, TRAIT_VIEW)) {
		v = op->operands[0];
		op = ir_def(irb_func(lw->b), v);
	}
	return v;
}

/* Upper bound of an input whose ids entry functions check (`below`); false: v is no input, or is not checked. */
static bool input_bound(const struct lowering *lw, struct ir_value v, int64_t *out)
{
	const struct ir_func *f = irb_func(lw->b);
	for (size_t i = 0; i < f->n_params; i++) {
		if (!ir_same_value(f->params[i].value, v))
			continue;
		*out = f->params[i].below;
		return *out > 0;
	}
	return false;
}

/* Exclusive upper bound of an i32 value, from its defining ops; false if unknown. `past` is below max_len; a sum a +
 * b of values is below the sum of the bounds less 1. */
static bool position_bound(const struct lowering *lw, struct ir_value v, int64_t *out)
{
	int64_t a, b;
	v = strip_views(lw, v);
	const struct ir_op *op = ir_def(irb_func(lw->b), v);
	if (lw->past.id != 0 && ir_same_value(v, lw->past)) {
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
	if (op != NULL && op->code == OP_dim_value)
		return checked_add_i64(
		        ir_dim_hi(lw->module->dims, ((const struct attrs_dim_value *)op->attrs)->dim), 1,
		        out);
	if (op == NULL)
		return input_bound(lw, v, out);
	if (op->code != OP_add || !position_bound(lw, op->operands[0], &a) ||
	    !position_bound(lw, op->operands[1], &b))
		return false;
	/* past + new positions: callers keep the sum below the capacity of the caches */
	bool past = lw->past.id != 0 && (ir_same_value(strip_views(lw, op->operands[0]), lw->past) ||
	                                 ir_same_value(strip_views(lw, op->operands[1]), lw->past));
	*out = a > b ? a : b;
	return past || checked_add_i64(a, b - 1, out);
}

/* Rows of the table; max_len at least, so that all functions of a generating model share one table. */
static bool table_rows(const struct call *c, struct ir_value pos, int64_t *out)
{
	const struct lowering *lw = c->lw;
	if (!position_bound(lw, pos, out))
		return lower_fail(c->lw, c->e->loc, DIAG_UNSUPPORTED,
		                  "not supported yet: rope at positions without a bound that is known here "
		                  "(positions(x), "
		                  "iota, sizes, inputs with 'below', sums of them and constants)");
	if (lw->m->tokens >= 0 && lw->m->generate.max_len > *out)
		*out = lw->m->generate.max_len;
	if (*out > ROWS_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_LIMIT, "rope: more than %lld positions",
		                  (long long)ROWS_MAX);
	return true;
}

/* Sines and cosines for positions [0, rows); adds the frequencies to *hash, which names the table. */
static const struct ir_wexpr *angle_rows(const struct call *c, const struct rope_params *r, int64_t rows,
                                         uint64_t *hash)
{
	struct lowering *lw = c->lw;
	size_t n = (size_t)r->dim / 2;
	double scale, *list = ARENA_ARRAY(lw->arena, double, n);
	if (list == NULL)
		return NULL;
	rope_frequencies(r, list, &scale);
	*hash = hash_bytes64(hash_bytes64(*hash, &scale, sizeof(scale)), list, n * sizeof(*list));
	return wexpr_rotary(&lw->m->arena, rows, scale, list, n);
}

/* The table: positions [0, rows) with the frequencies of the scaling; preceded, for longrope, by positions [0,
   short_rows) with the short factors. Its name has a hash of the frequencies unless they are the usual ones, since
   tables of one name are shared. False after a report. */
static bool make_table(const struct call *c, const struct rope_params *r, int64_t short_rows, int64_t rows,
                       struct ir_value *out)
{
	struct lowering *lw = c->lw;
	struct rope_params short_params = *r;
	uint64_t hash = HASH64_SEED;
	short_params.factors = r->short_factors;
	const struct ir_wexpr *parts[] = {short_rows > 0 ? angle_rows(c, &short_params, short_rows, &hash)
	                                                 : NULL,
	                                  angle_rows(c, r, rows, &hash)};
	const struct ir_wexpr *e = parts[1];
	if (short_rows > 0 && parts[0] != NULL && parts[1] != NULL)
		e = wexpr_concat(&lw->m->arena, 0, 2, parts);
	if (e == NULL || (short_rows > 0 && parts[0] == NULL))
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "rope: a table of %lld positions is not possible", (long long)rows);
	const char *name =
	        arena_printf(lw->arena, "rope.%lldx%lld", (long long)(short_rows + rows), (long long)r->dim);
	if (r->theta != 10000.0 || r->scaling != ROPE_PLAIN)
		name = arena_printf(lw->arena, "%s.%016llx", name, (unsigned long long)hash);
	return lower_const_table(lw, name, e, out);
}

/* ---- longrope: selection by sequence length ---- */

/* Type of the value that a broadcast or reshape reads, or of no other view: slices and transposes move indices. */
static const struct ir_type *type_before(const struct lowering *lw, const struct ir_op *op)
{
	bool keeps_order = op != NULL && (op->code == OP_broadcast || op->code == OP_reshape);
	return keeps_order ? irb_type(lw->b, op->operands[0]) : NULL;
}

/* True: each element is its index along the last axis, counted from 0, which no view of the iota moves: the axis stays
   the last one, of the same size. */
static bool counts_from_zero(const struct lowering *lw, struct ir_value v)
{
	const struct ir_op *op = ir_def(irb_func(lw->b), v);
	const struct ir_type *t = irb_type(lw->b, v), *in;
	const struct ir_dim *n = t->dims[t->rank - 1];
	for (; (in = type_before(lw, op)) != NULL; op = ir_def(irb_func(lw->b), op->operands[0]))
		if (in->rank == 0 || in->dims[in->rank - 1] != n)
			return false;
	const struct attrs_iota *iota = op != NULL && op->code == OP_iota ? op->attrs : NULL;
	return iota != NULL && iota->start == 0 && iota->axis + 1 == (int64_t)iota->dims.n;
}

/* True: each element is the past of its sequence, the first axis; of one sequence there is one past only. */
static bool is_past(const struct lowering *lw, struct ir_value v)
{
	const struct ir_op *op = ir_def(irb_func(lw->b), v);
	const struct ir_type *in;
	for (; (in = type_before(lw, op)) != NULL; op = ir_def(irb_func(lw->b), v)) {
		const struct ir_type *t = irb_type(lw->b, v);
		bool keeps_first = in->rank > 0 && t->rank > 0 && in->dims[0] == t->dims[0] &&
		                   (op->code == OP_reshape || in->rank == t->rank);
		if (!keeps_first && !ir_dim_equals(irb_type(lw->b, lw->past)->dims[0], 1))
			return false;
		v = op->operands[0];
	}
	return ir_same_value(v, lw->past);
}

/* True if the positions [B, n] are those of the tokens of a call: from 0 on, where tokens of earlier calls precede them
   past + the index. Only then the length after the call is known without the positions. */
static bool counts_from_past(const struct lowering *lw, struct ir_value pos)
{
	const struct ir_op *op = ir_def(irb_func(lw->b), pos);
	if (irb_type(lw->b, pos)->dims[1] != lw->grows)
		return counts_from_zero(lw, pos);
	if (op == NULL || op->code != OP_add)
		return false;
	const struct ir_value *in = op->operands;
	return (is_past(lw, in[0]) && counts_from_zero(lw, in[1])) ||
	       (is_past(lw, in[1]) && counts_from_zero(lw, in[0]));
}

/*
 * Length of each sequence after this call, i32 [B]: past + real tokens of the call; at least call_end, which a
 * caller that reads a prompt in several calls sets to the length of the whole. For other positions: the largest
 * one plus 1.
 */
static bool length_after_call(const struct call *c, struct ir_value pos, struct ir_value lengths,
                              struct ir_value *out)
{
	struct lowering *lw = c->lw;
	struct ir_builder *b = lw->b;
	const struct ir_type *t = irb_type(b, pos);
	const struct ir_dim *const batch[] = {t->dims[0]}, *rows = t->dims[1];
	if (!counts_from_past(lw, pos)) {
		int64_t axis = 1;
		struct ir_value last = irb_reduce_max(b, pos, &(struct attrs_reduce_max){.axes = {&axis, 1}});
		*out = irb_add(b, last, irb_full_of(b, 1.0, DT_I32, 1, batch), NULL);
		return !irb_failed(b);
	}
	*out = lengths.id != 0 ? lengths : irb_dim_value_of(b, rows, 1, batch);
	t = irb_type(b, *out);
	if (t->dtype != DT_I32 || t->rank != 1 || t->dims[0] != batch[0])
		return lower_fail(lw, c->e->loc, DIAG_SHAPE, "'lengths' of longrope wants i32 [B], found %s",
		                  type_to_string(lw, *out));
	if (rows != lw->grows)
		return !irb_failed(b);
	*out = irb_add(b, lw->past, *out, NULL);
	if (lw->call_end.id != 0)
		*out = irb_max(b, *out, lw->call_end, NULL);
	return !irb_failed(b);
}

/* Maps positions to rows of the table: sequences longer than short_rows use the part after the first `short_rows`
 * rows, that of the long factors. All positions of a sequence are rotated by the same factors. */
static bool select_table_part(const struct call *c, int64_t short_rows, struct ir_value lengths,
                              struct ir_value *pos)
{
	struct ir_builder *b = c->lw->b;
	const struct ir_type *t = irb_type(b, *pos);
	const struct ir_dim *const column[] = {t->dims[0], ir_dim_const(c->lw->module->dims, 1)};
	struct ir_value length;
	if (!length_after_call(c, *pos, lengths, &length))
		return false;
	struct ir_value border = irb_full_of(b, (double)short_rows, DT_I32, 1, column);
	struct ir_value is_long = irb_cmp(b, length, border, &(struct attrs_cmp){.kind = CMP_gt});
	struct ir_value first = irb_where(b, is_long, border, irb_full_of(b, 0.0, DT_I32, 1, column), NULL);
	first = irb_broadcast_to(b, irb_reshape_to(b, first, 2, column), 2, t->dims);
	*pos = irb_add(b, *pos, first, NULL);
	return !irb_failed(b);
}

/* ---- the operator ---- */

/* Reshapes x [n, e] to [1, n, e] and broadcasts positions [n] to all sequences, as the IR op takes positions [B, n];
 * checks shapes. */
static bool normalize_shapes(const struct call *c, struct ir_value *x, struct ir_value *pos)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = irb_type(lw->b, *x), *p = irb_type(lw->b, *pos);
	bool fits = t->rank >= 2 && p->dtype == DT_I32 && (p->rank == 1 || (p->rank == 2 && t->rank > 2)) &&
	            p->dims[p->rank - 1] == t->dims[t->rank - 2] &&
	            (p->rank == 1 || p->dims[0] == t->dims[0]);
	if (!fits)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "rope wants x [..., n, e] and i32 positions [n] or [B, n], found %s and %s",
		                  type_to_string(lw, *x), type_to_string(lw, *pos));
	const struct ir_dim *one = ir_dim_const(lw->module->dims, 1);
	if (t->rank == 2)
		*x = irb_reshape_to(lw->b, *x, 3, (const struct ir_dim *[]){one, t->dims[0], t->dims[1]});
	t = irb_type(lw->b, *x);
	if (p->rank == 1)
		*pos = irb_broadcast_to(lw->b, *pos, 2, (const struct ir_dim *[]){t->dims[0], p->dims[0]});
	return !irb_failed(lw->b);
}

/* Appends the op; the result has the type t that x had before normalize_shapes(). */
static bool rotate(const struct call *c, const struct ir_type *t, struct ir_value x, struct ir_value table,
                   struct ir_value pos, int layout, struct lowered *out)
{
	struct ir_builder *b = c->lw->b;
	x = irb_rope(b, x, table, pos, &(struct attrs_rope){.layout = layout});
	*out = lowered_tensor(t->rank == 2 ? irb_reshape_to(b, x, 2, t->dims) : x);
	return !irb_failed(b);
}

/* rope(x, pos, ..): x [.., n, e] rotated by positions; with `table` from the caller's table, else from one made here.
 * Where `original` covers every position, only the short factors are used; else each sequence selects its part of the
 * table by its length. */
bool lower_rope(const struct call *c, struct lowered *out)
{
	struct ir_builder *b = c->lw->b;
	struct ir_value x, pos, table, lengths = IR_NO_VALUE;
	struct rope_params r;
	int64_t width = 0, rows = 0, short_rows = 0;
	int layout = 0;
	if (!call_tensor(c, "x", &x) || !call_tensor(c, "pos", &pos))
		return false;
	const struct ir_type *t = irb_type(b, x);
	if (ir_dtype_class(t->dtype) != DTCLASS_FLOAT || t->rank < 2 ||
	    !ir_dim_is_const(t->dims[t->rank - 1], &width))
		return lower_fail(c->lw, c->e->loc, DIAG_SHAPE,
		                  "rope wants floats [..., n, e] with e constant, found %s",
		                  type_to_string(c->lw, x));
	if (!read_layout(c, &layout) || !normalize_shapes(c, &x, &pos))
		return false;
	if (!lower_is_none(call_arg(c, "table")))
		return call_tensor(c, "table", &table) && rotate(c, t, x, table, pos, layout, out);
	if (!read_rope(c, width, &r, &lengths) || !table_rows(c, pos, &rows))
		return false;
	/* no sequence exceeds the original length */
	if (r.short_factors != NULL && r.original >= (double)rows)
		r.factors = r.short_factors;
	else if (r.short_factors != NULL)
		short_rows = (int64_t)r.original;
	if (short_rows > 0)
		/* longer prompts read in several calls need their whole length at the first (call_end) */
		c->lw->m->generate.long_from = short_rows;
	if (!make_table(c, &r, short_rows, rows, &table) ||
	    (short_rows > 0 && !select_table_part(c, short_rows, lengths, &pos)))
		return false;
	return rotate(c, t, x, table, pos, layout, out);
}
