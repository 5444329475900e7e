/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof by trial that passes keep what a module means: the interpreter executes
 * a trial (trial.h) after every pass and compares with the module before it,
 * and a bisection ends at the one application that changed something.
 *
 * Two executions are compared. As the IR means it, every op rounded: a pass of
 * class BITS may change no bit, others stay within a bound for f32, or within
 * eight times the error that rounding gives the result anyhow. And wide,
 * floats not rounded: everything but an approximation agrees to 1e-9, so that
 * mistakes much smaller than f32 rounding are seen.
 */
#ifndef TFMC_PASSES_VALIDATE_VALIDATE_H
#define TFMC_PASSES_VALIDATE_VALIDATE_H

#include "passes/framework/pass.h"

/* One comparison: a pass and a function of the module. */
struct validate_line {
	const char *pass, *func;
	const char *class;   /* bits, round, reassociate, approximate */
	double error, bound; /* as rounded, relative to the largest number of a result */
	double wide_error, wide_bound;
	bool ok;
};

/* The application that changed something. */
struct validate_culprit {
	size_t step; /* of the pipeline, from 0 */
	const char *pass;
	int64_t number;            /* of the application; 0: the pass counts none */
	bool fails;                /* the pass gave no module that can be executed */
	const char *what;          /* rule or part of the pass; may be NULL */
	struct ir_loc loc;         /* of the application, when there is a number */
	const char *func, *output; /* result that changed most */
	const char *op, *value;    /* the first op whose value changed; NULL: not found */
	struct ir_loc op_loc;
};

struct validate {
	struct diag_context *cx;
	struct arena *arena; /* for what the culprit names */
	const struct pipeline *pipeline;
	const struct pass_options *options; /* its sink is not used */
	const struct weight_source *weights;
	void (*line)(void *user, const struct validate_line *line); /* may be NULL */
	void *user;
};

/*
 * Runs the pipeline on m and compares after every pass. *found is set when a comparison failed; *culprit then
 * names the first pass that changed something and its application.
 */
TFMC_MUST_USE enum tfmc_status validate_after_each(const struct validate *v, const struct ir_module *m,
                                                   bool *found, struct validate_culprit *culprit);
/* As validate_after_each, but looks for the pass by bisection over the length of the pipeline. */
TFMC_MUST_USE enum tfmc_status validate_bisect(const struct validate *v, const struct ir_module *m,
                                               bool *found, struct validate_culprit *culprit);

#endif
