/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: ops without arithmetic. Constants; a weight is evaluated at every use, only the slice that its indices
 * select. Movement: most handlers compute for each element of the result where it comes from. State. INTERP_EVAL(op) is
 * the handler of an op: x[i] are its operands (NULL: absent, or a state), out its results, allocated and zero;
 * interp_unravel turns a row-major position into an index for each axis, interp_ravel turns it back.
 */
#include "ir/interp/interp_internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- ranks ---- */

/* Adds the terms of ranks [0, n) pairwise, as a binary tree over the ranks whose first half is the largest power of
 * two below n, each sum rounded to the type: as runtime/mpi/exchange.c, so that results have the same bits. */
static double add_tree(enum ir_dtype dtype, bool wide, const double *const *terms, int64_t n, int64_t i)
{
	if (n == 1)
		return terms[0][i];
	int64_t half = 1;
	while (2 * half < n)
		half *= 2;
	double sum = add_tree(dtype, wide, terms, half, i) + add_tree(dtype, wide, terms + half, n - half, i);
	return wide ? sum : ir_round(dtype, sum);
}

/* Sets terms[n] to x of all n ranks that exchange, of which this one is one: ranks [rank - rank % n, ..), so that
 * groups of n consecutive ranks exchange among themselves; in a run of one process (args->ranks NULL) each of them
 * has its x. NULL from the callback: another rank failed. */
static enum tfmc_status exchange(struct interp *in, const struct ir_op *op, const struct interp_tensor *x,
                                 int64_t n, const double *terms[IR_RANKS_MAX])
{
	const struct interp_ranks *ranks = in->args->ranks;
	int64_t rank = in->args->weights != NULL ? in->args->weights->rank : 0;
	if (n < 1 || n > IR_RANKS_MAX || (ranks != NULL && ranks->n % n != 0))
		return interp_error(in, op, "%" PRId64 " ranks exchange values of %" PRId64,
		                    ranks != NULL ? ranks->n : 1, n);
	const double *const *all = ranks != NULL ? ranks->exchange(ranks->user, rank, rank - rank % n, n,
	                                                           x->data, interp_size(x))
	                                         : NULL;
	if (ranks != NULL && all == NULL)
		return interp_error(in, op, "another rank failed");
	for (int64_t i = 0; i < n; i++)
		terms[i] = all != NULL ? all[i] : x->data;
	return TFMC_OK;
}

/* The sum of x over all ranks, added as a tree in a fixed order, so that every rank has the same bits. */
INTERP_EVAL(all_reduce)
{
	int64_t n = ((const struct attrs_all_reduce *)op->attrs)->ranks, count = interp_size(out);
	const double *terms[IR_RANKS_MAX];
	TFMC_TRY(exchange(in, op, x[0], n, terms));
	for (int64_t i = 0; i < count; i++)
		out->data[i] = add_tree(out->dtype, in->args->wide, terms, n, i);
	return TFMC_OK;
}

/* x [rows, width] of n ranks -> [rows, n width]. */
INTERP_EVAL(all_gather)
{
	int64_t n = ((const struct attrs_all_gather *)op->attrs)->ranks, width = x[0]->dims[x[0]->rank - 1];
	int64_t rows = width > 0 ? interp_size(x[0]) / width : 0;
	const double *terms[IR_RANKS_MAX];
	TFMC_TRY(exchange(in, op, x[0], n, terms));
	for (int64_t row = 0; row < rows; row++)
		for (int64_t i = 0; i < n; i++)
			memcpy(&out->data[(row * n + i) * width], &terms[i][row * width],
			       (size_t)width * sizeof(double));
	return TFMC_OK;
}

/* Sends x to the same rank of the next stage; the last stage, whose ranks come first, does not. The result is x. */
INTERP_EVAL(send)
{
	const struct interp_ranks *ranks = in->args->ranks;
	int64_t n = ((const struct attrs_send *)op->attrs)->ranks, count = interp_size(out);
	int64_t rank = in->args->weights != NULL ? in->args->weights->rank : 0;
	if (ranks != NULL && rank >= n &&
	    !ranks->send(ranks->user, rank, (rank + n) % ranks->n, x[0]->data, count))
		return interp_error(in, op, "another rank failed");
	memcpy(out->data, x[0]->data, (size_t)count * sizeof(double));
	return TFMC_OK;
}

/* x on the first stage, whose ranks are n .. 2n - 1 (and without other ranks); elsewhere the values sent by the
 * stage before. */
INTERP_EVAL(receive)
{
	const struct interp_ranks *ranks = in->args->ranks;
	int64_t n = ((const struct attrs_receive *)op->attrs)->ranks, count = interp_size(out);
	int64_t rank = in->args->weights != NULL ? in->args->weights->rank : 0;
	const double *from = x[0]->data;
	if (ranks != NULL && rank / n != 1)
		from = ranks->receive(ranks->user, rank, (rank - n + ranks->n) % ranks->n, count);
	if (from == NULL)
		return interp_error(in, op, "another rank failed");
	memcpy(out->data, from, (size_t)count * sizeof(double));
	return TFMC_OK;
}

/* ---- constants ---- */

/* The slice of the weight at the indices, evaluated now: no weight is kept between uses. Weights may have no value
 * in IR text. Indices are leading axes, so the slice is a range. */
INTERP_EVAL(weight)
{
	const struct attrs_weight *a = op->attrs;
	const struct ir_wexpr *init = a->weight->init;
	int64_t at = 0, n = interp_size(out);
	if (!ir_weight_has_value(in->cx, a->weight))
		return TFMC_INVALID;
	for (size_t i = 0; i < op->n_operands; i++) {
		int64_t index = f64_to_i64(x[i]->data[0]);
		if (index < 0 || index >= init->dims[i])
			return interp_error(in, op,
			                    "index %" PRId64 " of weight @%s is not in [0,%" PRId64 ")",
			                    index, a->weight->name, init->dims[i]);
		at = at * init->dims[i] + index;
	}
	TFMC_TRY(wexpr_eval(in->cx, init, in->args->weights, at * n, n, out->data));
	return TFMC_OK;
}

INTERP_EVAL(full)
{
	const struct attrs_full *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = a->value;
	return TFMC_OK;
}

/* start + index along the axis. */
INTERP_EVAL(iota)
{
	const struct attrs_iota *a = op->attrs;
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		out->data[i] = (double)a->start + (out->rank ? (double)index[interp_axis(out, a->axis)] : 0);
	}
	return TFMC_OK;
}

/* The value of the dim in this run, in each element. */
INTERP_EVAL(dim_value)
{
	const struct attrs_dim_value *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = (double)interp_dim(in, a->dim);
	return TFMC_OK;
}

/* ---- movement ---- */

/* The row-major elements stay; their number may differ only if the type was wrong. */
INTERP_EVAL(reshape)
{
	int64_t n = interp_size(out);
	if (interp_size(x[0]) != n)
		return interp_error(in, op, "reshape of %" PRId64 " elements to %" PRId64, interp_size(x[0]),
		                    n);
	interp_copy(out, 0, x[0], 0, n);
	return TFMC_OK;
}

/* Axis k of the result is axis perm[k] of x. */
INTERP_EVAL(transpose)
{
	const struct ir_int_list *perm = &((const struct attrs_transpose *)op->attrs)->perm;
	int64_t to[IR_RANK_MAX], from[IR_RANK_MAX] = {0};
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, to);
		for (int k = 0; k < out->rank; k++)
			from[perm->items[k]] = to[k];
		interp_copy(out, i, x[0], interp_ravel(x[0], from), 1);
	}
	return TFMC_OK;
}

/* Axes are aligned at the last one; axes of size 1 are repeated. `missing`: axes of the result before those of x. */
INTERP_EVAL(broadcast)
{
	int64_t to[IR_RANK_MAX], from[IR_RANK_MAX] = {0};
	int missing = out->rank - x[0]->rank;
	for (int k = 0; k < x[0]->rank; k++)
		if (x[0]->dims[k] != 1 && x[0]->dims[k] != out->dims[k + missing])
			return interp_error(in, op, "broadcast of an axis of %" PRId64 " to %" PRId64,
			                    x[0]->dims[k], out->dims[k + missing]);
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, to);
		for (int k = 0; k < x[0]->rank; k++)
			from[k] = x[0]->dims[k] == 1 ? 0 : to[k + missing];
		interp_copy(out, i, x[0], interp_ravel(x[0], from), 1);
	}
	return TFMC_OK;
}

/* Elements [begin, begin + size) of one axis; begin is a dim, so it is checked in every run. */
INTERP_EVAL(slice)
{
	const struct attrs_slice *a = op->attrs;
	int axis = interp_axis(out, a->axis);
	int64_t begin = interp_dim(in, a->begin), index[IR_RANK_MAX];
	if (begin < 0 || begin > x[0]->dims[axis] - out->dims[axis])
		return interp_error(in, op, "slice [%" PRId64 ",%" PRId64 ") of an axis of %" PRId64, begin,
		                    begin + out->dims[axis], x[0]->dims[axis]);
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		index[axis] += begin;
		interp_copy(out, i, x[0], interp_ravel(x[0], index), 1);
	}
	return TFMC_OK;
}

/* Copies x into out at offset `begin` of `axis`. */
static void copy_block(const struct interp_tensor *x, int axis, int64_t begin, struct interp_tensor *out)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(x); i++) {
		interp_unravel(x, i, index);
		index[axis] += begin;
		interp_copy(out, interp_ravel(out, index), x, i, 1);
	}
}

/* Operands one after the other along the axis. */
INTERP_EVAL(concat)
{
	int axis = interp_axis(out, ((const struct attrs_concat *)op->attrs)->axis);
	int64_t begin = 0;
	for (size_t i = 0; i < op->n_operands; i++) {
		copy_block(x[i], axis, begin, out);
		begin += x[i]->dims[axis];
	}
	return TFMC_OK;
}

/* `before` elements of `value` come before x on the axis, the remaining ones after it. */
INTERP_EVAL(pad)
{
	const struct attrs_pad *a = op->attrs;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = a->value;
	copy_block(x[0], interp_axis(out, a->axis), a->before, out);
	return TFMC_OK;
}

/* table [V, row], ids [n]: out [n, row]; ids are clamped to the table. */
INTERP_EVAL(gather)
{
	int64_t rows = x[0]->dims[0], row = interp_span(x[0], 1, x[0]->rank), n = interp_size(x[1]);
	if (rows == 0 && n * row > 0)
		return interp_error(in, op, "gather from a table without rows");
	for (int64_t i = 0; i < n && row > 0; i++) {
		int64_t id = interp_clamp(f64_to_i64(x[1]->data[i]), 0, rows - 1);
		interp_copy(out, i * row, x[0], id * row, row);
	}
	return TFMC_OK;
}

/* x [B, S, row], at [B]: out [B, row]; positions are clamped. */
INTERP_EVAL(select_rows)
{
	int64_t rows = x[0]->dims[1], row = interp_span(x[0], 2, x[0]->rank);
	if (rows == 0 && interp_size(out) > 0)
		return interp_error(in, op, "select_rows from an axis of size 0");
	for (int64_t b = 0; b < x[0]->dims[0] && row > 0; b++) {
		int64_t at = interp_clamp(f64_to_i64(x[1]->data[b]), 0, rows - 1);
		interp_copy(out, b * row, x[0], (b * rows + at) * row, row);
	}
	return TFMC_OK;
}

/* ---- state ---- */

/*
 * Interpreter: state. There is one copy of each declared state, updated in place, which is sound because state values
 * are linear. Axis 0 is the sequence; a call with fewer sequences than the state has uses the first ones.
 */

struct interp_state {
	const struct ir_module *m;
	struct interp_tensor *items; /* [m->states.n] */
	int64_t batch;
};

/* A state for `batch` sequences; other dims have their upper bounds. */
static bool alloc_state(struct arena *arena, const struct ir_module *m, const struct ir_state_decl *decl,
                        int64_t batch, struct interp_tensor *out)
{
	*out = (struct interp_tensor){.dtype = decl->type->dtype, .rank = decl->type->rank};
	for (int i = 0; i < out->rank; i++)
		out->dims[i] = i == 0 ? batch : ir_dim_hi(m->dims, decl->type->dims[i]);
	return interp_tensor_alloc(arena, out);
}

/* An array of one element more, since an arena returns NULL for none. */
struct interp_state *interp_state_create(struct arena *arena, const struct ir_module *m, int64_t batch)
{
	struct interp_state *s = ARENA_NEW(arena, struct interp_state);
	struct interp_tensor *items = ARENA_ARRAY(arena, struct interp_tensor, m->states.n + 1);
	if (!s || !items || arena_failed(arena) || batch < 0)
		return NULL;
	for (size_t i = 0; i < m->states.n; i++)
		if (!alloc_state(arena, m, m->states.items[i], batch, &items[i]))
			return NULL;
	*s = (struct interp_state){m, items, batch};
	return s;
}

/* Found by name, as the state may have been created for another stage of the module, with other declarations. */
static struct interp_tensor *interp_state_of(const struct interp *in, struct ir_value v)
{
	const struct ir_type *type = ir_type_of(in->f, v);
	const struct interp_state *s = in->args->state;
	for (size_t i = 0; i < s->m->states.n; i++)
		if (!strcmp(s->m->states.items[i]->name, type->state->name))
			return &s->items[i];
	return NULL;
}

/* A state at fixed indices of the axes after the sequence: [B, axes..], one block for each sequence. */
struct slice {
	struct interp_tensor *state;
	int64_t offset; /* of the block within a sequence */
	int64_t stride; /* from one sequence to the next */
	int rank;       /* with the sequence axis */
	int64_t dims[IR_RANK_MAX];
};

/* The slice of a state at the n_at indices `at`, for the first `batch` sequences: axis 0 is the sequence, the next
 * n_at axes are selected. Reports indices and batches that the state does not have. */
static enum tfmc_status find_slice(struct interp *in, const struct ir_op *op,
                                   const struct interp_tensor *const *at, size_t n_at, int64_t batch,
                                   struct slice *out)
{
	struct interp_tensor *t = interp_state_of(in, op->operands[0]);
	if (!t)
		return interp_error(in, op, "the run has no contents for a state of this function");
	if (batch > t->dims[0])
		return interp_error(in, op, "%" PRId64 " sequences, the state holds %" PRId64, batch,
		                    t->dims[0]);
	*out = (struct slice){.state = t, .stride = interp_span(t, 1, t->rank), .rank = t->rank - (int)n_at};
	int64_t index = 0;
	for (size_t i = 0; i < n_at; i++) {
		int64_t v = f64_to_i64(at[i]->data[0]);
		if (v < 0 || v >= t->dims[1 + i])
			return interp_error(in, op, "index %" PRId64 " of a state axis of %" PRId64, v,
			                    t->dims[1 + i]);
		index = index * t->dims[1 + i] + v;
	}
	out->offset = index * interp_span(t, 1 + (int)n_at, t->rank);
	out->dims[0] = batch;
	for (int i = 1; i < out->rank; i++)
		out->dims[i] = t->dims[i + (int)n_at];
	return TFMC_OK;
}

/* Position in the state of the element at an index of the slice. */
static int64_t slice_at(const struct slice *s, const int64_t *index)
{
	int64_t at = 0;
	for (int i = 1; i < s->rank; i++)
		at = at * s->dims[i] + index[i];
	return index[0] * s->stride + s->offset + at;
}

/* Stores element i of x in the slice, rounded to the type of the state: results are rounded after the handler,
 * states only here. */
static void copy_in(struct interp *in, const struct slice *s, const int64_t *index,
                    const struct interp_tensor *x, int64_t i)
{
	int64_t at = slice_at(s, index);
	interp_copy(s->state, at, x, i, 1);
	s->state->data[at] = interp_round_float(in, s->state->dtype, s->state->data[at]);
}

static void copy_out(const struct slice *s, struct interp_tensor *out)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		interp_copy(out, i, s->state, slice_at(s, index), 1);
	}
}

/* The slice of a ring buffer: row p is row p mod T of the state. Rows that were never appended, or overwritten, have
 * other values; readers see the last `window` rows only. */
static void copy_out_ring(const struct slice *s, struct interp_tensor *out)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		index[s->rank - 2] %= s->dims[s->rank - 2];
		interp_copy(out, i, s->state, slice_at(s, index), 1);
	}
}

/* Writes x [B, K, S, E] to rows past[b] .. of axis T, in a ring buffer (a->rows logical rows) modulo T; rows outside
 * of the axis (padding of short sequences) are dropped. Operands: state, x, past, then the indices of the slice. */
INTERP_EVAL(state_append)
{
	const struct attrs_state_append *a = op->attrs;
	struct slice s;
	int64_t index[IR_RANK_MAX];
	TFMC_TRY(find_slice(in, op, x + 3, op->n_operands - 3, x[1]->dims[0], &s));
	int axis = s.rank - 2;
	int64_t capacity = s.dims[axis], rows = a->rows > 0 ? a->rows : capacity;
	for (int64_t i = 0; i < interp_size(x[1]); i++) {
		interp_unravel(x[1], i, index);
		int64_t row = index[axis] + f64_to_i64(x[2]->data[index[0]]);
		index[axis] = a->rows > 0 && row >= 0 ? row % capacity : row;
		if (row >= 0 && row < rows)
			copy_in(in, &s, index, x[1], i);
	}
	if (a->rows > 0)
		copy_out_ring(&s, out);
	else
		copy_out(&s, out);
	return TFMC_OK;
}

/* Writes x [B, ..] to the first elements of each axis of the slice. Operands: state, x, then the indices of the
 * slice. */
INTERP_EVAL(state_write)
{
	struct slice s;
	int64_t index[IR_RANK_MAX];
	TFMC_TRY(find_slice(in, op, x + 2, op->n_operands - 2, x[1]->dims[0], &s));
	for (int i = 1; i < s.rank; i++)
		if (x[1]->dims[i] > s.dims[i])
			return interp_error(in, op,
			                    "axis %d has %" PRId64 " elements, the state holds %" PRId64, i,
			                    x[1]->dims[i], s.dims[i]);
	for (int64_t i = 0; i < interp_size(x[1]); i++) {
		interp_unravel(x[1], i, index);
		copy_in(in, &s, index, x[1], i);
	}
	return TFMC_OK;
}

INTERP_EVAL(state_read)
{
	struct slice s;
	TFMC_TRY(find_slice(in, op, x + 1, op->n_operands - 1, out->dims[0], &s));
	copy_out(&s, out);
	return TFMC_OK;
}
