/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the interpreter: the state of a run, and one handler for every op of ir/core/ops.def. A handler gets
 * operands with concrete shapes, and results that are allocated and zeroed; it writes unrounded f64, and interp.c
 * rounds to the result type. Integer ops compute in int64_t and write results with interp_set_int.
 */
#ifndef TFMC_IR_INTERP_INTERP_INTERNAL_H
#define TFMC_IR_INTERP_INTERP_INTERNAL_H

#include "ir/interp/interp.h"

/* A value of the function. tensor.data is NULL for states and dead values. */
struct interp_slot {
	struct interp_tensor tensor;
	const struct ir_op *last_use; /* op of its own region after which it is dead; NULL: unused */
	bool live;
};

struct interp_memory;

/* Of deeper nests of repeats only the outermost indices are recorded. */
#define INTERP_DEPTH_MAX 16

struct interp {
	struct diag_context *cx;
	const struct ir_module *m;
	const struct ir_func *f;
	const struct interp_args *args;
	struct interp_slot *slots; /* [f->n_values], by id */
	size_t used_bytes, limit_bytes;
	int64_t at[INTERP_DEPTH_MAX]; /* indices of the repeats being executed, the outermost first */
	size_t n_at;
	struct interp_memory *memory; /* of planned runs, else NULL */
};

/* x[i]: operand i, NULL if absent (also after the end of the op's operands) or a state. out[i]: result i, data NULL
 * for a state. */
typedef enum tfmc_status interp_handler(struct interp *in, const struct ir_op *op,
                                        const struct interp_tensor *const *x, struct interp_tensor *out);

#define OP(name, traits, operands, attributes, results, axes, formula) interp_handler interp_eval_##name;
#include "ir/core/ops.def"

/* The head of the handler of an op. */
#define INTERP_EVAL(name)                                                          \
	enum tfmc_status interp_eval_##name(                                       \
	        TFMC_UNUSED struct interp *in, TFMC_UNUSED const struct ir_op *op, \
	        TFMC_UNUSED const struct interp_tensor *const *x, TFMC_UNUSED struct interp_tensor *out)

/* Reports an error of the inputs at the op (NULL: at the function). Returns TFMC_INVALID. */
enum tfmc_status interp_error(struct interp *in, const struct ir_op *op, const char *fmt, ...)
        TFMC_PRINTF(3, 4);
/* Value of a dim in this run; -1 on overflow. */
int64_t interp_dim(const struct interp *in, const struct ir_dim *d);

/* Product of dims [from, to); cannot overflow, as the tensor is allocated. */
static inline int64_t interp_span(const struct interp_tensor *t, int from, int to)
{
	int64_t n = 1;
	for (int i = from; i < to; i++)
		n *= t->dims[i];
	return n;
}
static inline int64_t interp_size(const struct interp_tensor *t)
{
	return interp_span(t, 0, t->rank);
}
/* Row-major position to multi-index and back. */
void interp_unravel(const struct interp_tensor *t, int64_t at, int64_t index[IR_RANK_MAX]);
int64_t interp_ravel(const struct interp_tensor *t, const int64_t index[IR_RANK_MAX]);
/* Axis as a non-negative number: -1 is the last. */
static inline int interp_axis(const struct interp_tensor *t, int64_t axis)
{
	return (int)(axis < 0 ? axis + t->rank : axis);
}
/* v modulo 2^width as an integer of the dtype. */
int64_t interp_wrap(enum ir_dtype dtype, uint64_t v);
/* Sets element i of an integer tensor. */
static inline void interp_set_int(struct interp_tensor *t, int64_t i, int64_t v)
{
	t->data[i] = (double)v;
	if (t->exact)
		t->exact[i] = v;
}
/* Copies n elements from position j of x to position i of t, which has the same dtype. */
static inline void interp_copy(struct interp_tensor *t, int64_t i, const struct interp_tensor *x, int64_t j,
                               int64_t n)
{
	for (int64_t k = 0; k < n; k++)
		t->data[i + k] = x->data[j + k];
	for (int64_t k = 0; t->exact && k < n; k++)
		t->exact[i + k] = interp_get_int(x, j + k);
}
static inline int64_t interp_clamp(int64_t v, int64_t lo, int64_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

/* v rounded to the dtype, except floats in a run with args->wide. */
static inline double interp_round_float(const struct interp *in, enum ir_dtype dtype, double v)
{
	return in->args->wide && ir_dtype_class(dtype) == DTCLASS_FLOAT ? v : ir_round(dtype, v);
}

double interp_softcap(double x, double c);

/* Attention mask: lengths and past of each sequence, either may be NULL. */
struct interp_mask {
	const struct interp_tensor *len, *past;
	bool causal;
	int64_t window; /* 0: none */
};

#endif
