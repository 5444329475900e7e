/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference interpreter, which defines the semantics of the IR: plain loops in f64 and one rounding to the result
 * type at the end of each op. Slow and simple on purpose, and independent of code generation. Runs every stage:
 * groups execute their bodies, encodings are ignored.
 */
#ifndef TFMC_IR_INTERP_INTERP_H
#define TFMC_IR_INTERP_INTERP_H

#include "ir/core/module.h"

/*
 * A tensor with concrete shape. Elements of all dtypes are doubles. i64 values may not be representable: data has the
 * nearest double and `exact` the value. If exact[i] does not round to data[i], only data[i] was written, and is the
 * value.
 */
struct interp_tensor {
	enum ir_dtype dtype;
	int rank;
	int64_t dims[IR_RANK_MAX];
	double *data;   /* [count]; owned by the creator */
	int64_t *exact; /* [count], of i64, or NULL; NULL for other dtypes */
};

/* Number of elements; -1 on overflow. */
int64_t interp_count(const struct interp_tensor *t);
/* Element i of an integer tensor. */
int64_t interp_get_int(const struct interp_tensor *t, int64_t i);
/* |a[i] - b[i]|, of integers exact before the result is rounded; 0 for equal infinities and for two NaN. */
double interp_abs_diff(const struct interp_tensor *a, const struct interp_tensor *b, int64_t i);
/* Converts from and to row-major elements of the dtype. */
void interp_from_bytes(struct interp_tensor *t, const void *bytes);
void interp_to_bytes(const struct interp_tensor *t, void *bytes);

/* Called after every op with its results, to find the first op that differs. May be NULL. */
typedef void interp_trace(void *user, const struct ir_func *f, const struct ir_op *op,
                          const struct interp_tensor *const *results);

/* Intermediate values of one execution of an attention op, valid during the callback. */
struct interp_attention {
	const struct ir_func *f;
	const struct ir_op *op;
	const int64_t *at; /* [n_at] indices of the enclosing repeats, the outermost first */
	size_t n_at;
	const struct interp_tensor *p;   /* [B,H,S,T] probabilities after softmax, not rounded */
	const struct interp_tensor *v;   /* [B,K,T,E] */
	const struct interp_tensor *out; /* [B,H,S,E] p v, not rounded */
};
/* Called for every execution of an attention op, in order. */
typedef void interp_attention_trace(void *user, const struct interp_attention *a);

struct interp_state; /* contents of all states of a module, for `batch` sequences, zeroed at first */

/* In `arena`. NULL without memory. */
struct interp_state *interp_state_create(struct arena *arena, const struct ir_module *m, int64_t batch);

/*
 * One of several interpreters that run the same function on parts of its weights (weights->rank). Calls of one function
 * come in the same order on all ranks; all return NULL or false after a failure of another rank.
 */
struct interp_ranks {
	int64_t n;
	/* x of the ranks [first, first + n), of which this is one: [n] arrays of `count` elements, valid until the next
	 * call. */
	const double *const *(*exchange)(void *user, int64_t rank, int64_t first, int64_t n, const double *x,
	                                 int64_t count);
	/* Between stages; receive returns [count], valid until the next call. */
	bool (*send)(void *user, int64_t rank, int64_t to, const double *x, int64_t count);
	const double *(*receive)(void *user, int64_t rank, int64_t from, int64_t count);
	void *user;
};

struct interp_args {
	const int64_t *dims;                /* value of every dim symbol of the module, in their order */
	const struct interp_tensor *inputs; /* [tensor parameters], including ROLE_PAST; data NULL: omitted */
	struct interp_tensor *outputs;      /* [tensor results], filled; data in `arena` */
	struct interp_state *state;         /* NULL if the function has no state */
	const struct weight_source *weights; /* NULL if no weight has a stored tensor */
	struct arena *arena;                 /* for outputs */
	interp_trace *trace;
	void *trace_user;
	interp_attention_trace *attention; /* may be NULL */
	void *attention_user;
	size_t memory_limit; /* bytes for intermediates; 0: 8 GiB */
	/*
	 * Do not round floats, neither results nor state: expressions that are equal over the reals then agree to f64
	 * precision, so a wrong rewrite is distinguishable from rounding.
	 */
	bool wide;
	/*
	 * matmul, linear and expert_linear round every product and partial sum to f32: the difference from a plain
	 * run is a first-order estimate of the rounding error of kernels.
	 */
	bool single;
	/*
	 * Stage plan: values go through the bytes of the planned arena, poisoned at first. Reading bytes that were not
	 * written, or were overwritten by another value, is an error that names the buffers.
	 */
	bool planned;
	const struct interp_ranks *ranks; /* NULL: all ranks of an exchange have the values of this one */
};

/* Executes f. TFMC_INVALID after a diagnostic: bad inputs, bounds, or memory_limit exceeded. */
TFMC_MUST_USE enum tfmc_status interp_run(struct diag_context *cx, const struct ir_module *m,
                                          const struct ir_func *f, const struct interp_args *args);

/* Allocates zeroed elements for the dtype and shape of t. False on overflow or without memory. */
bool interp_tensor_alloc(struct arena *a, struct interp_tensor *t);
/* A deep copy. */
bool interp_tensor_copy(struct arena *a, const struct interp_tensor *t, struct interp_tensor *out);
/* A zeroed tensor of the type where symbol i has the value dims[i]. False on overflow or without memory. */
bool interp_tensor_make(struct arena *a, const struct ir_type *type, const int64_t *dims,
                        struct interp_tensor *out);

#endif
