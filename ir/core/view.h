/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views as strides. A chain of reshape, transpose, broadcast and slice over a
 * value that has its own memory (parameter, weight reference, carry, result of
 * a group or of an op that is no view) becomes an offset and one stride for
 * each axis, all in elements of the base.
 *
 * The base lies row-major in its own shape, with two exceptions. A group may leave room behind each row of its
 * result (`pad`): rows that lie a multiple of a way of the cache apart would meet in one set. And axis 0 of a
 * state slice (first result of state_append and state_read, or of a group that
 * yields it) steps over sequences, whose distance only the owner of the state's
 * memory knows. Such steps are counted in sequences and marked.
 *
 *   element [i0, i1, ..] of the view lies at element
 *     offset + sum over axes without state_axis of i * stride
 *     + (state_offset + sum over axes with state_axis of i * stride) * <elements from one sequence to the
 * next>
 */
#ifndef TFMC_IR_CORE_VIEW_H
#define TFMC_IR_CORE_VIEW_H

#include "ir/core/module.h"

/* Longer chains are refused, so that hostile text costs little. */
#define IR_VIEW_CHAIN_MAX 64

struct ir_view {
	struct ir_value base;
	bool is_state;               /* the base is a state slice; of a ring there is the whole one only */
	const struct ir_dim *offset; /* elements */
	const struct ir_dim *state_offset; /* sequences; 0 unless is_state */
	int rank;
	const struct ir_dim *size[IR_RANK_MAX];
	const struct ir_dim *stride[IR_RANK_MAX]; /* 0 where broadcast; of no meaning where the size is 1 */
	bool state_axis[IR_RANK_MAX];             /* stride counts sequences of the state */
};

/* The value at the root of a chain of views; v itself when it is no view. */
struct ir_value ir_view_base(const struct ir_func *f, struct ir_value v);
/* Elements of memory behind each row of v; 0 unless v is the result of a group that says so. */
int64_t ir_row_pad(const struct ir_func *f, struct ir_value v);
/* Bytes that v takes where it lies row-major, with what is behind its rows. */
const struct ir_dim *ir_value_bytes(const struct ir_module *m, const struct ir_func *f, struct ir_value v);
/* The op that gives a state slice, in the group it came from; NULL: v is none. */
const struct ir_op *ir_state_slice_op(const struct ir_func *f, struct ir_value v);
/* True when v is a state slice: state_append or state_read result 0, also as the result of a group. */
bool ir_is_state_slice(const struct ir_func *f, struct ir_value v);

/* True when v is the slice of a ring (state_append with rows), whose row t is row t mod *held in memory. */
bool ir_is_ring_slice(const struct ir_func *f, struct ir_value v, int64_t *held);

/* Where the elements of v lie in its base. False when a reshape cannot be expressed, the chain is too long,
 * or it is one of a ring's slice. */
TFMC_MUST_USE bool ir_view_resolve(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                                   struct ir_view *out);

/*
 * The inverse, for whoever computes the base and stores it as v: the strides of
 * the base's axes inside the row-major buffer of v, with `pad` elements behind each of its rows. out->size is
 * that of the base. False when the chain has a broadcast or slice, or cannot be expressed.
 */
TFMC_MUST_USE bool ir_view_inverse(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                                   int64_t pad, struct ir_view *out);

/*
 * A reshape that divides the last axis into heads: [.., n] to [.., H, E], or with the axis H further to the
 * front where only axes of size 1 (or H = 1 itself) are between. *axis: where H is in `to`.
 */
bool ir_view_splits_heads(const struct ir_type *from, const struct ir_type *to, int *axis, int64_t *width);

#endif
