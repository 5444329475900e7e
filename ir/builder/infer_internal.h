/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside type inference: the call under inference and checks that report
 * both sides. A check that fails has reported.
 */
#ifndef TFMC_IR_BUILDER_INFER_INTERNAL_H
#define TFMC_IR_BUILDER_INFER_INTERNAL_H

#include "ir/builder/build.h"

struct infer {
	struct ir_module *m;
	struct diag_context *cx;
	struct ir_loc loc;
	const struct ir_op_desc *desc;
	const struct ir_type *const *in; /* NULL: absent */
	size_t n_in;
	const void *attrs;
	const struct ir_type **out;
};

/* Reports; returns false, so that handlers can return it. */
bool infer_fail(const struct infer *c, enum diag_code code, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* Text of a type or dim for a message; lives as long as the module. */
const char *infer_text(const struct infer *c, const struct ir_type *t);
const char *infer_dim_text(const struct infer *c, const struct ir_dim *d);
/* `op: a is f32[2,3], b is f32[3]: <what>` */
bool infer_mismatch(const struct infer *c, enum diag_code code, size_t a, size_t b, const char *what);
/* Operand i has at least / exactly that rank. */
bool infer_rank_min(const struct infer *c, size_t i, int rank);
bool infer_rank(const struct infer *c, size_t i, int rank);
/* Axis x of operand a equals axis y of operand b. Absent operands fit. */
bool infer_axes_equal(const struct infer *c, size_t a, int x, size_t b, int y);
/* Operand i, if present, is i32[B] with B = axis 0 of operand of. */
bool infer_per_batch(const struct infer *c, size_t i, size_t of);
bool infer_axis(const struct infer *c, int64_t axis, int rank);
bool infer_same_dtype(const struct infer *c, size_t a, size_t b);
/* out[0] = tensor; reports a rank that is too large or a dim that may be negative. */
bool infer_result(const struct infer *c, enum ir_dtype dtype, int rank, const struct ir_dim *const *dims);

/* out[0] by the axes of the op's row, which all operands fit (infer_check.c). */
bool infer_by_axes(const struct infer *c);

/* infer_large.c: the ops with the longest rules. */
bool infer_slice_rule(const struct infer *c);
bool infer_expert_linear_rule(const struct infer *c);
bool infer_attention_rule(const struct infer *c);
bool infer_mask_rule(const struct infer *c);
bool infer_concat_rule(const struct infer *c);
bool infer_rope_rule(const struct infer *c);
/* infer_state.c */
bool infer_state_append_rule(const struct infer *c);
bool infer_state_write_rule(const struct infer *c);
bool infer_state_read_rule(const struct infer *c);

#endif
