/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result types of the ops on state. The slice of a state [B, L.., rest] at k
 * indices is [B, rest]: the batch axis stays, the next k axes go.
 */
#include <inttypes.h>

#include "ir/builder/infer_internal.h"

/* The slice at the indices in operands [first, n_in); NULL after a report. */
static const struct ir_type *state_slice(const struct infer *c, size_t first)
{
	const struct ir_type *whole = c->in[0]->state->type;
	size_t n_at = c->n_in > first ? c->n_in - first : 0;
	const struct ir_dim *dims[IR_RANK_MAX];
	if ((size_t)whole->rank < n_at + 1) {
		infer_fail(c, DIAG_SHAPE, "%zu indices into the state @%s, which is %s", n_at,
		           c->in[0]->state->name, infer_text(c, whole));
		return NULL;
	}
	for (size_t i = first; i < c->n_in; i++)
		if (!infer_rank(c, i, 0))
			return NULL;
	int rank = whole->rank - (int)n_at;
	for (int i = 0; i < rank; i++)
		dims[i] = whole->dims[i == 0 ? 0 : i + (int)n_at];
	return ir_type_tensor(c->m->types, whole->dtype, rank, dims);
}

static bool slice_mismatch(const struct infer *c, const struct ir_type *slice, const char *what)
{
	return infer_fail(c, DIAG_SHAPE, "x is %s, the slice of the state @%s is %s: %s",
	                  infer_text(c, c->in[1]), c->in[0]->state->name, infer_text(c, slice), what);
}

/* A ring of T rows, of which S new ones leave the `window` - 1 before them alone; panels of 16 are whole. */
static bool check_ring(const struct infer *c, const struct attrs_state_append *a, const struct ir_type *slice)
{
	int64_t held, new = ir_dim_hi(c->m->dims, c->in[1]->dims[2]);
	if (a->rows == 0 && a->window == 0)
		return true;
	if (a->rows < 1 || a->rows > INT32_MAX || a->window < 1 || a->window > IR_WINDOW_MAX)
		return infer_fail(c, DIAG_SHAPE, "a ring needs rows and a window of at least 1");
	if (!ir_dim_is_const(slice->dims[2], &held) || held < 1 || held % 16 != 0)
		return slice_mismatch(c, slice, "a ring holds a constant multiple of 16 rows");
	if (new > held - a->window + 1)
		return infer_fail(c, DIAG_SHAPE,
		                  "a ring of %" PRId64 " rows cannot take %" PRId64
		                  " new ones beside a window of %" PRId64,
		                  held, new, a->window);
	return true;
}

/* The slice that a ring shows: as many rows as it ever takes. */
static const struct ir_type *ring_slice(const struct infer *c, const struct attrs_state_append *a,
                                        const struct ir_type *slice)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	if (a->rows == 0)
		return slice;
	for (int i = 0; i < slice->rank; i++)
		dims[i] = slice->dims[i];
	dims[2] = ir_dim_const(c->m->dims, a->rows);
	return ir_type_tensor(c->m->types, slice->dtype, slice->rank, dims);
}

/* state [B,at..,K,T,E], x [B,K,S,E], past [B] */
bool infer_state_append_rule(const struct infer *c)
{
	const struct ir_type *x = c->in[1], *slice = state_slice(c, 3);
	if (slice == NULL)
		return false;
	if (slice->rank != 4 || x->rank != 4)
		return slice_mismatch(c, slice, "both need four axes [B,K,T,E]");
	if (x->dtype != slice->dtype)
		return slice_mismatch(c, slice, "the element types differ");
	if (x->dims[0] != slice->dims[0] || x->dims[1] != slice->dims[1] || x->dims[3] != slice->dims[3])
		return slice_mismatch(c, slice, "they may differ on axis 2 only");
	if (!infer_per_batch(c, 2, 1) || !check_ring(c, c->attrs, slice))
		return false;
	c->out[0] = ring_slice(c, c->attrs, slice);
	c->out[1] = c->in[0];
	return true;
}

bool infer_state_write_rule(const struct infer *c)
{
	const struct ir_type *x = c->in[1], *slice = state_slice(c, 2);
	if (slice == NULL)
		return false;
	if (x->rank != slice->rank)
		return slice_mismatch(c, slice, "they need equally many axes");
	if (x->dtype != slice->dtype)
		return slice_mismatch(c, slice, "the element types differ");
	for (int i = 0; i < x->rank; i++)
		if (!ir_dim_le(c->m->dims, x->dims[i], slice->dims[i]))
			return slice_mismatch(c, slice, "x does not always fit into the slice");
	c->out[0] = c->in[0];
	return true;
}

bool infer_state_read_rule(const struct infer *c)
{
	c->out[0] = state_slice(c, 1);
	c->out[1] = c->in[0];
	return c->out[0] != NULL;
}
