/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Axes of the encoder input (source) in decode. A state has capacity for the longest source; rows past the end
 * of a sequence's own source are garbage. While decode is lowered these axes have the dims of the source, so
 * that every operator that mixes positions detects them: it reads its neutral element there or reports the
 * axis. Finally the dims are bound to the capacity (lower_bind_source). Sizes of a source are states i32 [B] that
 * encode writes. An axis of sequences is B, or B times the rows of each. Builder errors are sticky (irb_failed).
 */
#include <inttypes.h>
#include <math.h>

#include "frontend/lower/lower.h"
#include "ir/core/case.h"

/* Whether an axis of the input depends on the dim symbol. */
static bool input_has(const struct frontend_model *m, size_t input, int sym)
{
	const struct frontend_input *in = &m->inputs.items[input];
	for (int i = 0; i < in->rank; i++) {
		if (ir_dim_has_symbol(in->dims[i], sym))
			return true;
	}
	return false;
}

enum dim_owner lower_dim_owner(const struct frontend_model *m, int sym)
{
	bool of_source = false;
	if (m->generate.kind != GENERATE_SEQ2SEQ || m->tokens < 0 ||
	    ir_dim_has_symbol(m->inputs.items[m->tokens].dims[0], sym))
		return DIM_FREE;
	for (size_t i = 0; i < m->inputs.n; i++)
		of_source = of_source || ((int)i != m->tokens && input_has(m, i, sym));
	if (input_has(m, (size_t)m->tokens, sym))
		return of_source ? DIM_OF_BOTH : DIM_OF_TOKENS;
	return of_source ? DIM_OF_SOURCE : DIM_FREE;
}

/* A dim shared by source and tokens (T = S) gets a separate symbol for the source in decode, whose calls have other
 * numbers of tokens. The symbols follow those of the model, in the order of lower_list_source_dims(). */
bool lower_declare_source(const struct frontend_model *m, struct ir_dims *dims, struct arena *a)
{
	for (size_t i = 0, n = ir_dims_count(m->scope.dims); i < n; i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->scope.dims, i);
		if (lower_dim_owner(m, (int)i) != DIM_OF_BOTH)
			continue;
		const char *base = arena_printf(a, "source_%s", s->name), *name = base;
		for (int k = 2; ir_dims_find(dims, name) >= 0; k++)
			name = arena_printf(a, "%s%d", base, k);
		if (!ir_dims_declare(dims, name, s->lo, s->hi))
			return false;
	}
	return true;
}

/* A dim that tokens have, too, is theirs in decode: there that of the source has the next of the symbols that
 * lower_declare_source() has added, in the same order. */
bool lower_list_source_dims(struct lowering *lw)
{
	struct ir_dims *model_dims = lw->m->scope.dims;
	size_t n = ir_dims_count(model_dims);
	int next = (int)n;
	lw->source.items = ARENA_ARRAY(lw->arena, struct source_dim, n + 1);
	for (size_t i = 0; lw->source.items != NULL && i < n; i++) {
		enum dim_owner owner = lower_dim_owner(lw->m, (int)i);
		const struct ir_dim_sym *s = ir_dims_sym(model_dims, i);
		if (owner != DIM_OF_SOURCE && owner != DIM_OF_BOTH)
			continue;
		lw->source.items[lw->source.n++] =
		        (struct source_dim){.sym = (int)i,
		                            .in_decode = owner == DIM_OF_BOTH ? next++ : (int)i,
		                            .state = arena_printf(lw->arena, "source.%s", s->name)};
	}
	return lw->source.items != NULL;
}

static const struct ir_dim *module_symbol(const struct lowering *lw, int sym)
{
	return ir_dim_sym(lw->module->dims, ir_dims_sym(lw->module->dims, (size_t)sym)->name);
}

const struct ir_dim *lower_source_dim(struct lowering *lw, const struct ir_dim *d)
{
	d = ir_import_dim(lw->module, d);
	for (size_t i = 0; i < lw->source.n; i++) {
		const struct source_dim *s = &lw->source.items[i];
		if (s->in_decode != s->sym)
			d = ir_dim_substitute(lw->module->dims, d, s->sym, module_symbol(lw, s->in_decode));
	}
	return d;
}

bool lower_is_source(const struct lowering *lw, const struct ir_dim *d)
{
	for (size_t i = 0; lw->mode == LOWER_DECODE && i < lw->source.n; i++) {
		if (ir_dim_has_symbol(d, lw->source.items[i].in_decode))
			return true;
	}
	return false;
}

/* ---- sizes ---- */

static struct ir_value full_i32_per_sequence(struct lowering *lw, double v)
{
	const struct ir_dim *dims[] = {lower_batch_dim(lw)};
	return irb_full_of(lw->b, v, DT_I32, 1, dims);
}

/* Evaluates one factor of a dim for each sequence, i32 [B]: a symbol, a quotient (of / by) or a maximum (by is 0).
   Symbols of the source are read from their states. A size that has no state yet is 0 for now: decode is lowered
   again (sizes_missed). */
static struct ir_value per_sequence_atom(struct lowering *lw, const struct ir_dim_atom *a)
{
	const struct ir_dim *dims[] = {lower_batch_dim(lw)};
	if (a->sym < 0) {
		struct ir_value x = lower_source_size(lw, a->of);
		if (a->by == 0)
			return irb_max(lw->b, x, lower_source_size(lw, a->other), NULL);
		return irb_floor_div(lw->b, x, full_i32_per_sequence(lw, (double)a->by), NULL);
	}
	for (size_t i = 0; i < lw->source.n; i++) {
		struct source_dim *s = &lw->source.items[i];
		if (s->in_decode != a->sym)
			continue;
		lw->types->sizes_missed = lw->types->sizes_missed || s->size.id == 0;
		lw->types->sizes |= UINT64_C(1) << i;
		return s->size.id != 0 ? s->size : full_i32_per_sequence(lw, 0);
	}
	return irb_dim_value_of(lw->b, module_symbol(lw, a->sym), 1, dims);
}

/* i32 [B]: evaluates the dim, a sum of products of atoms with a coefficient, for each sequence with IR ops on the
 * stored sizes. */
struct ir_value lower_source_size(struct lowering *lw, const struct ir_dim *d)
{
	struct ir_value sum = IR_NO_VALUE;
	for (size_t i = 0; i < d->n_terms; i++) {
		struct ir_value x = full_i32_per_sequence(lw, (double)d->terms[i].coeff);
		for (size_t k = 0; k < d->terms[i].n_atoms; k++)
			x = irb_mul(lw->b, x, per_sequence_atom(lw, d->terms[i].atoms[k]), NULL);
		sum = sum.id == 0 ? x : irb_add(lw->b, sum, x, NULL);
	}
	return sum.id == 0 ? full_i32_per_sequence(lw, 0) : sum;
}

/* The axis that enumerates sequences: B itself, or axis 0 if it is B times a number of rows of each sequence that no
 * source determines; -1: none. *rows: that number, 1 for B. */
static int batch_axis(struct lowering *lw, const struct ir_type *t, const struct ir_dim **rows)
{
	const struct ir_dim *batch = lower_batch_dim(lw);
	*rows = ir_dim_const(lw->module->dims, 1);
	for (int i = 0; i < t->rank; i++) {
		if (t->dims[i] == batch)
			return i;
	}
	*rows = t->rank > 0 ? ir_dim_divide(lw->module->dims, t->dims[0], batch) : NULL;
	return *rows != NULL && !lower_is_source(lw, *rows) ? 0 : -1;
}

/* Sizes [B] are repeated for the rows of each sequence, [B, rows], flattened into the axis of sequences, and
 * broadcast to the other axes of t. */
bool lower_broadcast_source_size(struct lowering *lw, struct loc at, const struct ir_dim *d,
                                 const struct ir_type *t, struct ir_value *out)
{
	const struct ir_dim *rows, *dims[IR_RANK_MAX], *one = ir_dim_const(lw->module->dims, 1);
	int axis = batch_axis(lw, t, &rows);
	if (axis < 0)
		return lower_fail(lw, at, DIAG_UNSUPPORTED,
		                  "not supported yet: a size of the source in decode with %s, "
		                  "which has no axis of sequences",
		                  ir_type_to_string(lw->arena, lw->module->dims, t));
	const struct ir_dim *two[] = {lower_batch_dim(lw), rows}, *column[] = {two[0], one};
	for (int i = 0; i < t->rank; i++)
		dims[i] = i == axis ? t->dims[i] : one;
	struct ir_value n = irb_reshape_to(lw->b, lower_source_size(lw, d), 2, column);
	n = irb_reshape_to(lw->b, irb_broadcast_to(lw->b, n, 2, two), t->rank, dims);
	*out = irb_broadcast_to(lw->b, n, t->rank, t->dims);
	return !irb_failed(lw->b);
}

/* ---- neutral elements ---- */

/* A tensor of type t of the neutral element of a sum (0), max (lowest value of the type) or min (highest). INT64_MAX is
 * no double. */
static struct ir_value neutral_tensor(struct lowering *lw, enum call_fill fill, const struct ir_type *t)
{
	double lowest = ir_round(t->dtype, -HUGE_VAL), highest = ir_round(t->dtype, HUGE_VAL);
	if (fill == FILL_HIGHEST && t->dtype == DT_I64)
		return lower_large_i64(lw, INT64_MAX, t);
	double v = fill == FILL_ZERO ? 0 : fill == FILL_LOWEST ? lowest : highest;
	return irb_full_of(lw->b, v, t->dtype, t->rank, t->dims);
}

/* Replaces elements at or past each sequence's size along `axis`, by a mask over the axes of sequences and `axis`
 * alone. If one axis holds both, no mask over positions exists. */
bool lower_fill_source(const struct call *c, struct ir_value *x, int64_t axis, enum call_fill fill)
{
	struct lowering *lw = c->lw;
	struct ir_builder *b = lw->b;
	const struct ir_type *t = irb_type(b, *x);
	const struct ir_dim *rows, *d = t->dims[axis];
	const struct ir_dim *dims[IR_RANK_MAX], *one = ir_dim_const(lw->module->dims, 1);
	if (fill == FILL_NONE && ir_dim_divide(lw->module->dims, d, lower_batch_dim(lw)) == NULL)
		/* the padding is at the end of the axis, which does not contain several sequences */
		return true;
	int sequences = batch_axis(lw, t, &rows);
	if (fill == FILL_UNSUPPORTED || sequences < 0 || sequences == axis)
		return lower_fail(lw, c->e->loc, DIAG_UNSUPPORTED,
		                  "not supported yet: %s mixes positions of the source in decode: axis "
		                  "%" PRId64 " of %s%s",
		                  c->e->text, axis, type_to_string(lw, *x),
		                  sequences < 0 ? ", which has no axis of sequences" : "");
	for (int i = 0; i < t->rank; i++)
		dims[i] = i == axis || i == sequences ? t->dims[i] : one;
	const struct ir_type *mask_type = ir_type_tensor(lw->module->types, DT_I32, t->rank, dims);
	struct ir_value end;
	if (mask_type == NULL || !lower_broadcast_source_size(lw, c->e->loc, d, mask_type, &end))
		return false;
	struct ir_value at = irb_iota(b, &(struct attrs_iota){.dims = {dims, (size_t)t->rank}, .axis = axis});
	struct ir_value is_real = irb_cmp(b, at, end, &(struct attrs_cmp){.kind = CMP_lt});
	struct ir_value other = neutral_tensor(lw, fill, t);
	*x = irb_where(b, irb_broadcast_to(b, is_real, t->rank, t->dims), *x, other, NULL);
	return !irb_failed(b);
}

/* Number of elements spanned by the axes before `axis`. */
static const struct ir_dim *elements_before_axis(struct lowering *lw, const struct ir_dim *const *dims,
                                                 int axis)
{
	const struct ir_dim *n = ir_dim_const(lw->module->dims, 1);
	for (int i = 0; i < axis; i++)
		n = ir_dim_mul(lw->module->dims, n, dims[i]);
	return n;
}

/* True if positions past the end of the source stay at the end of axis `axis` of the result: the axis starts at
 * the same element as an axis of the source, or is one of several whose sequences are flattened into the batch. */
static bool preserves_source_end(struct lowering *lw, const struct ir_type *t,
                                 const struct ir_dim *const *dims, int axis)
{
	struct ir_dims *table = lw->module->dims;
	const struct ir_dim *start = elements_before_axis(lw, dims, axis), *batch = lower_batch_dim(lw);
	for (int i = 0; i < t->rank; i++) {
		const struct ir_dim *first = elements_before_axis(lw, t->dims, i),
		                    *quotient = ir_dim_divide(table, start, first);
		bool is_batch = ir_dim_divide(table, dims[axis], batch) != NULL;
		if (first == start && (lower_is_source(lw, t->dims[i]) || (is_batch && t->dims[i] == batch)))
			return true;
		if (quotient != NULL && ir_dim_divide(table, quotient, batch) != NULL &&
		    lower_is_source(lw, t->dims[i]) && ir_dim_divide(table, t->dims[i], quotient) != NULL)
			return true;
	}
	return false;
}

bool lower_reshape_source(const struct call *c, struct ir_value x, int rank, const struct ir_dim *const *dims)
{
	const struct ir_type *t = irb_type(c->lw->b, x);
	for (int i = 0; i < rank; i++) {
		if (lower_is_source(c->lw, dims[i]) && !preserves_source_end(c->lw, t, dims, i))
			return lower_fail(c->lw, c->e->loc, DIAG_UNSUPPORTED,
			                  "not supported yet: reshape of %s in decode: positions of the "
			                  "source would not be contiguous in axis %d of the result",
			                  type_to_string(c->lw, x), i);
	}
	return true;
}

/* ---- state ---- */

/* Records the types of the states that store sizes of the source: one for each dim, whether decode reads it or not;
 * types->sizes says which become states. */
bool lower_record_sizes(struct frontend_model *m, struct ir_module *module, struct state_types *types)
{
	struct lowering lw = {.m = m, .arena = &m->arena, .module = module, .types = types};
	if (!lower_list_source_dims(&lw))
		return false;
	for (size_t i = 0; i < lw.source.n; i++) {
		struct state_type *t = ARENA_PUSH(lw.arena, types);
		if (t == NULL)
			return false;
		*t = (struct state_type){.name = lw.source.items[i].state, .dtype = DT_I32, .rank = 1};
		t->dims[0] = lower_batch_dim(&lw);
		t->loc = (struct ir_loc){m->generate.loc, NULL};
	}
	return true;
}

/* Sizes of the source are dims of the call of encode; those that decode does not read have no state. */
bool lower_write_sizes(struct lowering *lw)
{
	const struct ir_dim *dims[] = {lower_batch_dim(lw)};
	for (size_t i = 0; i < lw->source.n; i++) {
		if ((lw->types->sizes >> i & 1) == 0)
			continue;
		struct lower_state *state = lower_find_state(lw, lw->source.items[i].state);
		if (state == NULL)
			return false;
		struct ir_value n =
		        irb_dim_value_of(lw->b, module_symbol(lw, lw->source.items[i].sym), 1, dims);
		const struct ir_value in[] = {state->value, n};
		state->value = irb_op1(lw->b, OP_state_write, in, 2, NULL);
	}
	return !irb_failed(lw->b);
}

/* Reads the stored sizes i32 [B], at the start of decode; states are threaded through the function, so each read
 * gives the state back. */
bool lower_read_sizes(struct lowering *lw)
{
	for (size_t i = 0; i < lw->source.n; i++) {
		struct ir_value results[2];
		if ((lw->types->sizes >> i & 1) == 0)
			continue;
		struct lower_state *state = lower_find_state(lw, lw->source.items[i].state);
		if (state == NULL)
			return false;
		irb_op(lw->b, OP_state_read, &state->value, 1, NULL, results, 2);
		lw->source.items[i].size = results[0];
		state->value = results[1];
	}
	return !irb_failed(lw->b);
}

/* Clones decode or score with the dims of the source bound to their capacity, their upper bound, which is the size of
 * the states. */
static bool clone_with_source_bound(struct frontend_model *m, const struct lowering *lw,
                                    const struct ir_func *f, struct ir_module *out)
{
	struct ir_condition *capacity = ARENA_ARRAY(&m->arena, struct ir_condition, lw->source.n + 1);
	struct ir_value *map = ARENA_ARRAY(&m->arena, struct ir_value, f->n_values);
	struct ir_builder *b = irb_begin(out, m->cx, f->name, f->loc);
	if (capacity == NULL || map == NULL || b == NULL)
		return false;
	for (size_t i = 0; i < lw->source.n; i++) {
		const struct ir_dim *d = ir_import_dim(out, module_symbol(lw, lw->source.items[i].in_decode));
		capacity[i] = (struct ir_condition){d, IR_EQUAL, ir_dim_hi(out->dims, d)};
	}
	irb_bind_dims(b, &(struct ir_case){f->name, capacity, lw->source.n});
	irb_clone_params(b, f, map);
	struct ir_copy copy = {.b = b, .from = f, .map = map};
	ir_copy_region(&copy, f->body);
	return ir_copy_finish(&copy, NULL) == TFMC_OK;
}

bool lower_bind_source(struct frontend_model *m, struct ir_module *from, struct ir_module *out)
{
	struct lowering lw = {.m = m, .arena = &m->arena, .module = from};
	if (!lower_list_source_dims(&lw))
		return false;
	for (size_t i = 0; i < ir_dims_count(from->dims);
	     i++) { /* score may have declared the dim of its rows */
		const struct ir_dim_sym *s = ir_dims_sym(from->dims, i);
		if (ir_dims_find(out->dims, s->name) < 0 &&
		    !ir_dims_declare(out->dims, s->name, s->lo, s->hi))
			return false;
	}
	for (size_t i = 0; i < from->states.n; i++) {
		const struct ir_state_decl *d = from->states.items[i];
		if (ir_add_state(out, d->name, d->type, d->loc) == NULL)
			return false;
	}
	for (size_t i = 0; i < from->funcs.n; i++) {
		if (!clone_with_source_bound(m, &lw, from->funcs.items[i], out))
			return false;
	}
	return true;
}
