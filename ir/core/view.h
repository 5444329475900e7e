/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views as strides. A chain of reshape, transpose, broadcast and slice over a base (a value with memory of its own:
 * parameter, weight reference, carry, result of a group or of an op that is no view) becomes an offset and a stride
 * for each axis, in elements of the base.
 *
 * The base is row-major in its own shape, with two exceptions. A group may pad the rows of its result (`pad`), so
 * that rows do not fall into the same cache set. And the stride between sequences (axis 0) of a state slice is known
 * only at run time: it is counted in sequences, and such axes are marked.
 *
 *   element [i0, i1, ..] of the view is element
 *     offset + sum over axes without state_axis of i * stride
 *     + (state_offset + sum over axes with state_axis of i * stride) * <elements of a sequence of the state>
 */
#ifndef TFMC_IR_CORE_VIEW_H
#define TFMC_IR_CORE_VIEW_H

#include "ir/core/module.h"

/* Longer chains are rejected (hostile input). */
#define IR_VIEW_CHAIN_MAX 64

struct ir_view {
	struct ir_value base;
	bool is_state; /* the base is a state slice; views of a ring buffer's slice are not resolved */
	const struct ir_dim *offset;       /* elements */
	const struct ir_dim *state_offset; /* sequences; 0 unless is_state */
	int rank;
	const struct ir_dim *size[IR_RANK_MAX];
	const struct ir_dim *stride[IR_RANK_MAX]; /* 0 where broadcast; arbitrary where the size is 1 */
	bool state_axis[IR_RANK_MAX];             /* stride counts sequences of the state */
};

/* The value at the root of a chain of views; v itself if it is no view. */
struct ir_value ir_view_base(const struct ir_func *f, struct ir_value v);
/* Padding elements after each row of v; 0 unless v is the result of a group with `pad`. */
int64_t ir_row_pad(const struct ir_func *f, struct ir_value v);
/* The elements of v are one row-major array: a value that is no view, with reshapes of it, rows without padding. */
bool ir_is_one_array(const struct ir_func *f, struct ir_value v);
/* Bytes of v stored row-major, with the padding of its rows. */
const struct ir_dim *ir_value_bytes(const struct ir_module *m, const struct ir_func *f, struct ir_value v);
/*
 * The state_append or state_read that defines v, also through the yields of nested groups; NULL if v is no state
 * slice. A state slice is result 0 of these ops, the part of a state (KV cache) at `at`, read in place; the last
 * result is the new state.
 */
const struct ir_op *ir_state_slice_op(const struct ir_func *f, struct ir_value v);
bool ir_is_state_slice(const struct ir_func *f, struct ir_value v);

/*
 * True if v is the slice of a ring buffer (state_append with rows > 0), whose row t is stored in row t mod *capacity.
 */
bool ir_is_ring_slice(const struct ir_func *f, struct ir_value v, int64_t *capacity);

/* Offset and strides of v in its base. False if a reshape cannot be expressed by strides, the chain is too long, or the
 * base is the slice of a ring buffer. */
TFMC_MUST_USE bool ir_view_resolve(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                                   struct ir_view *out);

/*
 * The inverse, for a kernel that computes the base and stores it as v: the strides of the base's axes in the
 * row-major buffer of v, whose rows have `pad` elements of padding. out->size is the shape of the base. False if the
 * chain contains a broadcast or slice, or cannot be expressed.
 */
TFMC_MUST_USE bool ir_view_inverse(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                                   int64_t pad, struct ir_view *out);

/*
 * True if a reshape splits the last axis into heads of *width elements: [.., n] to [.., H, E], or with H further to the
 * front if only axes of size 1 are in between (or H is 1). *axis: the axis H of `to`.
 */
bool ir_view_splits_heads(const struct ir_type *from, const struct ir_type *to, int *axis, int64_t *width);

#endif
