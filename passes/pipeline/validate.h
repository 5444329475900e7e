/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translation validation by testing: after every pass the interpreter executes a trial (trial.h) and compares the
 * results with those of the module before the pass; bisection then finds the single application that changed a
 * result.
 *
 * Every trial runs twice. As the IR defines it, every op rounded: a pass of class BITS may change no bit, the
 * others stay within a bound for f32, or within eight times the error that rounding causes anyway. And in f64
 * without rounding, where everything but an approximation agrees to 1e-9, so that errors much smaller than f32
 * rounding are found.
 */
#ifndef TFMC_PASSES_PIPELINE_VALIDATE_H
#define TFMC_PASSES_PIPELINE_VALIDATE_H

#include "passes/framework/pass.h"

/* Result of the comparison for one pass and one function. */
struct validate_line {
	const char *pass, *func;
	const char *class;           /* bits, round, reassociate, approximate */
	double error, bound;         /* with rounding, relative to the largest magnitude of a result */
	double f64_error, f64_bound; /* in f64 */
	bool ok;
};

/* The application of a pass that changed a result. */
struct validate_culprit {
	size_t step; /* of the pipeline, from 0 */
	const char *pass;
	int64_t number;            /* of the application; 0: the pass has no fuel */
	bool fails;                /* the pass failed, or its module cannot be executed */
	const char *what;          /* rule, or part of the pass; may be NULL */
	struct ir_loc loc;         /* of the application, if number > 0 */
	const char *func, *output; /* the result that changed most */
	const char *op, *value;    /* the first op whose value changed; NULL: not found */
	struct ir_loc op_loc;
};

struct validate {
	struct diag_context *cx;
	struct arena *arena; /* for the strings of the culprit */
	const struct pipeline *pipeline;
	const struct pass_options *options; /* its sink is not used */
	const struct weight_source *weights;
	void (*line)(void *user, const struct validate_line *line); /* may be NULL */
	void *user;
};

/*
 * Runs the pipeline on m and compares after every pass. *found: a comparison failed; *culprit: the first pass that
 * changed a result, and the application.
 */
TFMC_MUST_USE enum tfmc_status validate_after_each(const struct validate *v, const struct ir_module *m,
                                                   bool *found, struct validate_culprit *culprit);
/* As validate_after_each, but finds the pass by bisection over the length of the pipeline. */
TFMC_MUST_USE enum tfmc_status validate_bisect(const struct validate *v, const struct ir_module *m,
                                               bool *found, struct validate_culprit *culprit);

#endif
