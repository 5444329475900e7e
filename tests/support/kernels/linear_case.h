/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function with one linear group, read from text, emitted once for all B and S
 * and run as machine code or by the kernel interpreter (every access and prefetch checked).
 * Parameters are the tensors; the one named w is what the kernel reads packed. One named lengths, i32[B], says which
 * rows of a padded batch are real.
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_LINEAR_CASE_H
#define TFMC_TESTS_SUPPORT_KERNELS_LINEAR_CASE_H

#include "backends/backend.h"
#include "backends/kb/kb.h"
#include "ir/target/target.h"
#include "ir/weights/quants.h"
#include "tests/support/tir.h"

#define LINEAR_PARAMS_MAX 8

struct linear_case {
	struct tir tir;
	struct arena arena;
	const struct ir_func *f;
	struct kb_caps caps;
	struct kb_module *kernels;
	struct backend_jit *jit; /* NULL: this machine cannot run the target */
	bool is_shared;          /* emitted for work-groups that share tiles */
	enum ir_dtype rounded;   /* what the numbers of w are rounded to */
	enum ir_dtype kept;      /* what they lie in memory as */
	enum ir_format format;   /* codes instead; else PLAIN */
	bool is_wide;            /* their numbers as f32 */
	bool is_row_major;       /* w is not packed */
	int64_t bytes_after;     /* of weights after w */
};

/* Tensors of one call as bytes, filled with seeded numbers (i32: in [0, S]). */
struct linear_call {
	int64_t dims[2]; /* B, S */
	void *param[LINEAR_PARAMS_MAX];
	int64_t count[LINEAR_PARAMS_MAX]; /* elements */
	void *packed;                     /* w as the kernel reads it */
	size_t packed_bytes;
	struct weight_quants codes; /* of w, of a format that has them */
	float *out;
	int64_t n_out;
};

/* Dims of the text are B and S, in this order. */
void linear_case_init(struct linear_case *c, const char *text, const char *target);
/* The same for a machine with tiny caches: all weights come from memory. */
void linear_case_init_streamed(struct linear_case *c, const char *text, const char *target);
/* The numbers of w are rounded to a type, and lie in memory as `kept`: f32 or that type. */
struct linear_weights {
	enum ir_dtype rounded, kept;
	enum ir_format format; /* PLAIN, or a format of codes: w is numbers of it, whatever the others say */
	bool is_streamed, is_shared; /* as by the other two */
	bool is_wide;                /* numbers of the format lie in memory as f32 */
	bool is_row_major;           /* w is not packed */
	int64_t bytes_after;         /* of weights after w, a multiple of 64 */
	bool is_interpreted;         /* no machine code is made */
};
void linear_case_init_kept(struct linear_case *c, const char *text, const char *target,
                           const struct linear_weights *w);
/* The same as a kernel over work-groups, for linear_launch. */
void linear_case_init_shared(struct linear_case *c, const char *text, const char *target);
void linear_case_destroy(struct linear_case *c);
void linear_call_init(struct linear_case *c, struct linear_call *call, int64_t b, int64_t s);
/* Computes call->out by machine code when there is any, else by the kernel interpreter. */
void linear_run(struct linear_case *c, struct linear_call *call, int64_t n_workers);
void linear_run_checked(struct linear_case *c, struct linear_call *call, int64_t n_workers);
/* The kernel interpreter over work-groups: no race, no barrier that some miss. */
void linear_launch(struct linear_case *c, struct linear_call *call, int64_t groups);
/* call->out is the IR interpreter's result within the bounds of support/bounds/bound.h. */
void linear_expect(struct linear_case *c, const struct linear_call *call);
/* The same call by two cases, of which `some` has lengths: it computes the real rows of a padded batch, with the bits
 * that they have in `all`, and leaves the others alone (padded.h), whatever the number of workers. */
void linear_expect_padded(struct linear_case *some, struct linear_case *all, int64_t b, int64_t s);
/*
 * For kernels that a test made wrong: NULL when the kernel interpreter (n workers, or n work-groups of a
 * shared case) has no complaint and the result is near, else what is wrong.
 */
const char *linear_complaint(struct linear_case *c, struct linear_call *call, int64_t n);

#endif
