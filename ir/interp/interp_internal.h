/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the interpreter: one handler for every op, declared from ir/core/ops.def, and
 * the run they work in. A handler gets its operands with their concrete shapes
 * and results that are allocated, shaped by their types and zeroed; it fills
 * them with unrounded f64, the driver rounds to the result type afterwards.
 * Ops of ints are computed in int64_t and put into results by interp_put.
 */
#ifndef TFMC_IR_INTERP_INTERP_INTERNAL_H
#define TFMC_IR_INTERP_INTERP_INTERNAL_H

#include "ir/interp/interp.h"

/* Contents of one value while it lives. data is NULL for states and dead values. */
struct interp_slot {
	struct interp_tensor tensor;
	const struct ir_op *last_use; /* dies after this op of its own region; NULL: never used */
	bool live;
};

struct interp_memory;

/* Deeper nests of repeats show their outermost indices only. */
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

/* x[i]: operand i, NULL when it is absent (also beyond the op's list) or a state. out[i]: result i; data NULL
 * for states. */
typedef enum tfmc_status interp_handler(struct interp *in, const struct ir_op *op,
                                        const struct interp_tensor *const *x, struct interp_tensor *out);

#define OP(name, traits, operands, attributes, results, axes, formula) interp_handler interp_eval_##name;
#include "ir/core/ops.def"

/* The head of the handler of an op. */
#define INTERP_EVAL(name)                                                          \
	enum tfmc_status interp_eval_##name(                                       \
	        TFMC_UNUSED struct interp *in, TFMC_UNUSED const struct ir_op *op, \
	        TFMC_UNUSED const struct interp_tensor *const *x, TFMC_UNUSED struct interp_tensor *out)

/* Reports at the op: the values given do not allow it. Returns TFMC_INVALID. */
enum tfmc_status interp_error(struct interp *in, const struct ir_op *op, const char *fmt, ...)
        TFMC_PRINTF(3, 4);
/* Value of a dim under the run's symbols; -1 when it does not fit. */
int64_t interp_dim(const struct interp *in, const struct ir_dim *d);

/* values.c: memory of slots, counted against the limit. */
enum tfmc_status interp_slot_make(struct interp *in, const struct ir_op *op, struct ir_value v);
enum tfmc_status interp_slot_copy(struct interp *in, const struct ir_op *op, struct ir_value v,
                                  const struct interp_tensor *from);
void interp_slot_free(struct interp *in, struct ir_value v);

/* region.c: executes the ops before the terminator. */
enum tfmc_status interp_region(struct interp *in, const struct ir_region *r);
/* Records the last use of every value. */
void interp_find_last_uses(struct interp *in, const struct ir_region *r);

/* memory.c: the arena of planned runs. All but begin do nothing in other runs. */
enum tfmc_status interp_memory_begin(struct interp *in);
void interp_memory_end(struct interp *in);
/* Before and after a group: what it reads comes from the arena, its results go there. */
enum tfmc_status interp_memory_read(struct interp *in, const struct ir_op *group);
enum tfmc_status interp_memory_write(struct interp *in, const struct ir_op *group);
/* `to` is another value for the memory of `from`. */
void interp_memory_carry(struct interp *in, struct ir_value to, struct ir_value from);

/* Product of dims [from, to) of a tensor that exists. */
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
/* Row-major element number to index and back. */
void interp_unravel(const struct interp_tensor *t, int64_t at, int64_t index[IR_RANK_MAX]);
int64_t interp_ravel(const struct interp_tensor *t, const int64_t index[IR_RANK_MAX]);
/* Axis with negative numbers counted from the end. */
static inline int interp_axis(const struct interp_tensor *t, int64_t axis)
{
	return (int)(axis < 0 ? axis + t->rank : axis);
}
/* A double that holds an integer; saturates. */
int64_t interp_int(double v);
/* The integer of the dtype's width that equals v modulo 2^width. */
int64_t interp_wrap(enum ir_dtype dtype, uint64_t v);
/* Sets element i of a tensor of ints. */
static inline void interp_put(struct interp_tensor *t, int64_t i, int64_t v)
{
	t->data[i] = (double)v;
	if (t->exact)
		t->exact[i] = v;
}
/* n elements from number j of x to number i of t, which has the same dtype. */
static inline void interp_move(struct interp_tensor *t, int64_t i, const struct interp_tensor *x, int64_t j,
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

/* v as a value of the dtype; floats stay as they are in a wide run. */
static inline double interp_rounded(const struct interp *in, enum ir_dtype dtype, double v)
{
	return in->args->wide && ir_dtype_class(dtype) == DTCLASS_FLOAT ? v : ir_round(dtype, v);
}

/* rowwise.c: in place over one row. sink: NULL, or a logit whose power joins the sum only. */
void interp_softmax_row(double *x, int64_t n, const double *sink);
double interp_softcap(double x, double c);

/* Which keys a query sees: lengths and past of each sequence, either may be NULL. */
struct interp_visible {
	const struct interp_tensor *len, *past;
	bool causal;
	int64_t window; /* 0: none */
};
bool interp_sees(struct interp_visible v, int64_t b, int64_t i, int64_t j);

#endif
