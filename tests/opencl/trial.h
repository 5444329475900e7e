/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that are run on an OpenCL device against the interpreter, for the unit
 * suite and for tfmc_opencl (under Oclgrind): random modules for one op, and random
 * programs. A trial runs with several numbers of work-groups, whose bits must be
 * equal.
 */
#ifndef TFMC_TESTS_OPENCL_TRIAL_H
#define TFMC_TESTS_OPENCL_TRIAL_H

#include "ir/target/target.h"
#include "tests/opencl/run.h"

enum trial_result {
	TRIAL_PASSED,
	TRIAL_FAILED,
	TRIAL_NOTHING /* no such module, or "not supported yet" */
};

struct trial {
	struct opencl_device *device;
	const struct target *target;
	const char *pipeline;
	bool once;        /* with one number of work-groups: enough where memory is watched */
	int64_t cap;      /* work-groups of the first run; 0: the default */
	double tolerance; /* of groups; 0: the default */
	struct arena arena;
	struct diag_context cx;
	struct buf log; /* diagnostics, and after them what is needed to see why */
};

/* The caller sets once and cap afterwards. */
void trial_init(struct trial *t, struct opencl_device *device, const char *target, const char *pipeline);
void trial_destroy(struct trial *t);

/* A module of stage graph with states used by no other; it is destroyed. Inputs are random. */
enum trial_result trial_module(struct trial *t, struct ir_module *graph, uint64_t seed);
enum trial_result trial_op(struct trial *t, enum ir_opcode code, uint64_t seed, bool all_dtypes);
enum trial_result trial_program(struct trial *t, uint64_t seed, size_t n_ops);
/* The run of a random Transformer (random_transformer.h). */
enum trial_result trial_transformer(struct trial *t, uint64_t seed);
/* A module from text. */
enum trial_result trial_text(struct trial *t, const char *name, const char *text, uint64_t seed);

#endif
