/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interface for implementing a pass. A pass is one function pass_<id> of type pass_run: it reads `in` and fills
 * `out`, an empty module with the same dims and states. The manager sets the stage, verifies, prints and times.
 */
#ifndef TFMC_PASSES_FRAMEWORK_PASS_IMPL_H
#define TFMC_PASSES_FRAMEWORK_PASS_IMPL_H

#include "ir/core/build.h"
#include "passes/framework/pass.h"

struct pass_context {
	struct diag_context *cx;
	struct arena *arena; /* destroyed when the pass ends */
	const struct pass_options *options;
	struct pass_report *report;
	const struct pipeline_step *step;
	const char *function; /* being processed, for remarks; NULL: the module */
	int64_t fuel;         /* applications left */
	int64_t applied;      /* applications so far */
	struct {
		struct recorded_remark *items;
		size_t n, cap;
	} remarks; /* emitted at the end of the pass, equal ones once with a count */
};

/* A remark and its location; strings are in the arena of the pass. */
struct recorded_remark {
	struct loc at;
	struct diag_remark about;
};

/* Plural ending for a count. */
static inline const char *pass_plural(size_t n)
{
	return n == 1 ? "" : "s";
}

typedef enum tfmc_status pass_run(struct pass_context *p, const struct ir_module *in, struct ir_module *out);

#define PASS(id, name, from, to, summary) pass_run pass_##id;
#include "passes/framework/passes.def"

/* Indices of struct pipeline_step.settings. */
enum {
#define SETTING(id, index, name, def, lo, hi) SETTING_##id##_##name = index,
#include "passes/framework/passes.def"
};

/* Whether the list contains the word. */
bool name_list_has(const struct name_list *w, const char *word);
/* Adds n to the counter `name` of the running pass (--stats). */
void pass_count(struct pass_context *p, const char *name, int64_t n);
/* Remark "fused: attention" at the location of an op; no effect without --remarks. */
void pass_remark(struct pass_context *p, struct ir_loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* Remark of a missed optimization, with its reason. */
void pass_missed(struct pass_context *p, struct ir_loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* Sends the remarks of the pass to diagnostics, equal ones once with their count. */
void pass_emit_remarks(const struct pass_context *p);
/*
 * Consumes one unit of fuel (the number of applications that a pass may still make, for bisection). Returns the
 * number of the application, from 1, or 0 when no fuel is left: the pass must not rewrite. rebuild_module() calls
 * it for every match; a pass that chooses sets of ops before the traversal calls it for each set.
 */
int64_t pass_consume_fuel(struct pass_context *p);
/*
 * Notifies the `applied` callback of an application; `what`: the rule, or NULL when the name of the pass is
 * enough.
 */
void pass_applied(struct pass_context *p, int64_t number, const char *what, struct ir_loc loc);
/* Whether --require-fusion=kind was given. */
bool pass_requires(const struct pass_context *p, const char *kind);
/* Emits an internal error (a broken invariant of the compiler). Returns TFMC_INTERNAL. */
enum tfmc_status pass_internal_error(struct pass_context *p, struct ir_loc loc, const char *what);

#endif
