/* SPDX-License-Identifier: Apache-2.0 */
/*
* Common to columns that are emitted (emit.c) and columns that run here (backends/print/opencl.c)
 * share: plans, and leaving out functions that a back end refuses.
 */
#ifndef TFMC_TESTS_MATRIX_COLUMN_H
#define TFMC_TESTS_MATRIX_COLUMN_H

#include "tests/matrix/matrix.h"

struct column_job {
	const struct column *column;
	const struct target *target;
	struct arena arena;
	struct buf log;     /* diagnostics of the batch at work */
	struct buf refused; /* lines: model, function, message */
	struct diag_context own, *cx;
	const struct batch *batch;
	struct buf *out; /* the batch's text or object; NULL while functions are only tried */
};

bool column_job_begin(struct column_job *j, const struct column *column);
void column_job_end(struct column_job *j);
/* Does the column compile something of this batch? */
bool column_has(const struct column *column, const struct batch *b);
/* This function? With TFMC_ALL all that the column has; without, functions and models take turns: each goes
 * to one column of objects, one of C, and some to OpenCL. */
bool column_takes(const struct column *column, const struct batch *b, const struct ir_func *f);
/* The planned module, or NULL after a diagnostic. */
struct ir_module *column_plan(struct diag_context *cx, const struct ir_module *graph, const char *pipeline,
                              const struct target *target);

/* Hands a planned module of one function to the back end; false after a diagnostic. */
typedef bool column_try(struct column_job *j, const struct ir_module *planned);
/*
 * The module of the functions that the column takes, without those that are refused ("not supported yet" in
 * the diagnostic), which are noted. NULL when that is the whole batch, and after another diagnostic, which is
 * in j->log.
 */
struct ir_module *column_graph(struct column_job *j, const struct batch *b, column_try *attempt);

#endif
