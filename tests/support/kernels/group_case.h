/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group of a function `f`, read from text, emitted by a template, and run by
 * the kernel interpreter (every access checked against the tensors) or as machine
 * code; the IR interpreter tells what must come out. The group's first result is
 * what the function returns. Views of parameters may be before the group. A parameter named lengths, i32[B], says which
 * rows of a padded batch are real.
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_GROUP_CASE_H
#define TFMC_TESTS_SUPPORT_KERNELS_GROUP_CASE_H

#include "backends/backend.h"
#include "backends/kernels/group.h"
#include "tests/support/tir.h"

#define GROUP_CASE_PARAMS 8
#define GROUP_CASE_DIMS   4

typedef enum tfmc_status group_case_template(const struct kernel_job *job);

struct group_case {
	struct tir tir;
	struct arena arena; /* of everything, calls included */
	const struct ir_func *f;
	const struct ir_op *group;
	struct kb_caps caps;
	struct kb_module *kernels;
	struct backend_jit *jit; /* NULL: this machine cannot run the target */
	int64_t items;           /* of a work-group that shares tasks, 1: none */
};

/* Memory of one call; floats random in [-2, 2], integers 0. */
struct group_call {
	int64_t dims[GROUP_CASE_DIMS]; /* of the module's symbols */
	void *in[GROUP_CASE_PARAMS], *out;
	int64_t n_in[GROUP_CASE_PARAMS], n_out; /* elements */
};

/* Fails the test when the text is refused or nothing can be emitted. */
void group_case_init(struct group_case *c, const char *text, const char *target, group_case_template *emit);
/* The same as a kernel over work-groups of `items`, for group_case_launch. */
void group_case_init_shared(struct group_case *c, const char *text, const char *target,
                            group_case_template *emit, int64_t items);
void group_case_destroy(struct group_case *c);
void group_call_init(struct group_case *c, struct group_call *call, const int64_t *dims);
/* Machine code when there is any, else the kernel interpreter. Results are filled with ones before. */
void group_case_run(struct group_case *c, struct group_call *call, int64_t n_workers);
/* The kernel interpreter: no access outside the tensors and the planned scratch. */
void group_case_run_checked(struct group_case *c, struct group_call *call, int64_t n_workers);
/* The kernel interpreter over work-groups: no race, no barrier that some miss. */
void group_case_launch(struct group_case *c, struct group_call *call, int64_t groups);
/* call->out is the IR interpreter's result within the bounds of support/bounds/bound.h. */
void group_case_expect(struct group_case *c, const struct group_call *call);
/* For kernels that a test made wrong: NULL when group_case_run_checked and group_case_expect would pass, else
 * why not. */
const char *group_case_complaint(struct group_case *c, struct group_call *call, int64_t n_workers);

#endif
