/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pass gets and returns. A pass is one function of type pass_run, named
 * pass_<id>; it reads `in`, fills the empty module `out` (same dims and
 * states) and sets nothing else. Verification, printing and timing belong to
 * the manager.
 */
#ifndef TFMC_PASSES_FRAMEWORK_PASS_IMPL_H
#define TFMC_PASSES_FRAMEWORK_PASS_IMPL_H

#include "ir/builder/build.h"
#include "passes/framework/pass.h"

struct pass_context {
	struct diag_context *cx;
	struct arena *arena; /* for the time of the pass */
	const struct pass_options *options;
	struct pass_report *report;
	const struct pipeline_step *step;
	const char *function; /* the one that is worked on, for remarks; NULL: the module */
	int64_t fuel;         /* applications left */
	int64_t applied;      /* applications so far */
	struct {
		struct said_remark *items;
		size_t n, cap;
	} remarks; /* told at the end of the pass, equal ones once */
};

/* A remark and where it is; texts are in the arena of the pass. */
struct said_remark {
	struct loc at;
	struct diag_remark about;
};

/* The ending of a word that counts n. */
static inline const char *pass_plural(size_t n)
{
	return n == 1 ? "" : "s";
}

typedef enum tfmc_status pass_run(struct pass_context *p, const struct ir_module *in, struct ir_module *out);

#define PASS(id, name, from, to, summary) pass_run pass_##id;
#include "passes/framework/passes.def"

/* Adds n to the counter `name` of the running pass. */
void pass_count(struct pass_context *p, const char *name, int64_t n);
/* "fused: attention" at the place of an op; only with --remarks. */
void pass_remark(struct pass_context *p, struct ir_loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* The same for what was not done: the reason. */
void pass_missed(struct pass_context *p, struct ir_loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
/*
 * Takes fuel for one application and gives its number, from 1; 0: none is left, the pass leaves the place as
 * it is. rebuild.h does it for every match; a pass that decides on sets of ops before the walk does it for
 * each set.
 */
int64_t pass_take_fuel(struct pass_context *p);
/* Says that application `number` happened; `what` names the rule, NULL: the pass says it all. */
void pass_applied(struct pass_context *p, int64_t number, const char *what, struct ir_loc loc);
/* --require-fusion=kind was given. */
bool pass_requires(const struct pass_context *p, const char *kind);
/* An invariant of ours does not hold. Gives TFMC_INTERNAL. */
enum tfmc_status pass_internal(struct pass_context *p, struct ir_loc loc, const char *what);

#endif
