/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meaning of the IR: plain loops, f64 inside an op, one rounding to the
 * result type at its end. Slow and obvious on purpose; shares no code with
 * emission. Runs every stage (groups run their bodies, encodings are erased).
 */
#ifndef TFMC_IR_INTERP_INTERP_H
#define TFMC_IR_INTERP_INTERP_H

#include "ir/core/module.h"

/*
 * A tensor with concrete shape. Every element is kept as the double of its rounded value. Of i64, whose
 * values need not be doubles, that is the nearest one and `exact` has the value itself; where the two do not
 * belong together the double was set alone, and is the value.
 */
struct interp_tensor {
	enum ir_dtype dtype;
	int rank;
	int64_t dims[IR_RANK_MAX];
	double *data;   /* [count]; owned by whoever made it */
	int64_t *exact; /* [count] of i64, likewise, or NULL; NULL in tensors of other dtypes */
};

/* Number of elements, or -1 when it does not fit. */
int64_t interp_count(const struct interp_tensor *t);
/* Element i of a tensor of ints. */
int64_t interp_get_int(const struct interp_tensor *t, int64_t i);
/* |a - b| of elements i, of ints without rounding before; equal infinities and NaN are 0 apart. */
double interp_abs_diff(const struct interp_tensor *a, const struct interp_tensor *b, int64_t i);
/* Converts from and to bytes in memory layout of the dtype. */
void interp_from_bytes(struct interp_tensor *t, const void *bytes);
void interp_to_bytes(const struct interp_tensor *t, void *bytes);

/* Called after every op with its results (for finding the first op that differs). May be NULL. */
typedef void interp_trace(void *user, const struct ir_func *f, const struct ir_op *op,
                          const struct interp_tensor *const *results);

/* One attention op at work: what it computed on the way to its result. Valid during the call only. */
struct interp_attention {
	const struct ir_func *f;
	const struct ir_op *op;
	const int64_t *at; /* [n_at] indices of the enclosing repeats, the outermost first */
	size_t n_at;
	const struct interp_tensor *p; /* [B,H,S,T] softmax(mask(softcap(q k^T scale + bias))), not rounded */
	const struct interp_tensor *v; /* [B,K,T,E] */
	const struct interp_tensor *out; /* [B,H,S,E] p v, not rounded */
};
/* Called for every attention op that is executed, in order. */
typedef void interp_attention_trace(void *user, const struct interp_attention *a);

struct interp_state; /* contents of all states of a module, for `batch` sequences, zeroed at first */

/* Contents live in `arena`. NULL when memory ran out. */
struct interp_state *interp_state_create(struct arena *arena, const struct ir_module *m, int64_t batch);

struct interp_args {
	const int64_t *dims;                /* value of every dim symbol of the module, in their order */
	const struct interp_tensor *inputs; /* [number of tensor params]; ROLE_PAST params included */
	struct interp_tensor *outputs;      /* [number of tensor results] filled; data allocated in `arena` */
	struct interp_state *state;         /* NULL when the function has no state */
	const struct weight_source *weights; /* may be NULL when no weight has a stored tensor */
	struct arena *arena;                 /* for results */
	interp_trace *trace;
	void *trace_user;
	interp_attention_trace *attention; /* may be NULL */
	void *attention_user;
	size_t memory_limit; /* bytes for intermediates; 0: 8 GiB */
	/*
	 * Floats are not rounded, neither results of ops nor state: what is equal in the reals agrees to f64,
	 * so that a wrong rewrite stands out from rounding.
	 */
	bool wide;
	/*
	 * matmul, linear and expert_linear round every product and partial sum to f32: how far a result is
	 * then from that of a plain run is what rounding makes of it, in the first order.
	 */
	bool single;
	/*
	 * Stage plan: values go through the bytes of the arena, poisoned at first. A read of bytes that
	 * somebody else wrote since, or nobody, is an error that names the buffers.
	 */
	bool planned;
};

TFMC_MUST_USE enum tfmc_status interp_run(struct diag_context *cx, const struct ir_module *m,
                                          const struct ir_func *f, const struct interp_args *args);

/* Memory for the elements of a tensor of this dtype and shape, zeroed. False when they do not fit. */
bool interp_tensor_alloc(struct arena *a, struct interp_tensor *t);
/* A copy with memory of its own. */
bool interp_tensor_copy(struct arena *a, const struct interp_tensor *t, struct interp_tensor *out);
/* A tensor of the right size for a type under dim values; data zeroed. False when it does not fit. */
bool interp_tensor_make(struct arena *a, const struct ir_type *type, const int64_t *dims,
                        struct interp_tensor *out);

#endif
