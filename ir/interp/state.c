/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: state. There is one copy of each declared state, updated in place, which is sound because state values
 * are linear. Axis 0 is the sequence; a call with fewer sequences than the state has uses the first ones.
 */
#include <inttypes.h>
#include <string.h>

#include "ir/interp/interp_internal.h"

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

/* Found by name, as the state may have been created for another stage of the module. */
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
		int64_t v = interp_to_int(at[i]->data[0]);
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

/* The slice of a ring buffer: row p is row p mod T of the state. */
static void copy_out_ring(const struct slice *s, struct interp_tensor *out)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		index[s->rank - 2] %= s->dims[s->rank - 2];
		interp_copy(out, i, s->state, slice_at(s, index), 1);
	}
}

/* Writes x [B, K, S, E] to rows past[b] .. of axis T, in a ring buffer modulo T; rows outside of the axis (padding of
 * short sequences) are dropped. */
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
		int64_t row = index[axis] + interp_to_int(x[2]->data[index[0]]);
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
