/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public interface of the optimizer: the table of passes, pipelines, and passes_run(). A pass reads one module and
 * writes another; the manager verifies after each pass, prints, dumps, counts, times and writes reproducers. It
 * opens no files: all text goes to the callbacks of struct pass_sink.
 */
#ifndef TFMC_PASSES_FRAMEWORK_PASS_H
#define TFMC_PASSES_FRAMEWORK_PASS_H

#include "ir/core/module.h"
#include "ir/support/progress.h"
#include "ir/target/target.h"

/* ---- the table of passes (passes.def) ---- */

enum pass_id {
#define PASS(id, name, from, to, summary) PASS_##id,
#include "passes/framework/passes.def"
};

#define PASS_SETTINGS_MAX 4

/* An integer setting of a pass: group{max_ops=8}. */
struct pass_setting {
	const char *name; /* NULL ends the list */
	int64_t def, lo, hi;
};

struct pass_desc {
	enum pass_id id;
	const char *name, *summary;
	enum ir_stage from, to; /* stage of the module it reads and writes */
	const struct pass_setting *settings;
};

/* Row i of passes.def; NULL after the last row. */
const struct pass_desc *pass_at(size_t i);
/* The pass of that name, or NULL. */
const struct pass_desc *pass_find(const char *name);
/*
 * Emits a diagnostic for an unknown pass name, with a suggestion; `what` begins it: "" or an option, "stop
 * after: ".
 */
void pass_report_unknown(struct diag_context *cx, const char *what, const char *name);
/* How far a pass may change results, as rule_class of rewrite rules. For canonicalize: without its rules, which have
 * classes of their own. */
enum pass_exactness { EXACT_REASSOCIATE, EXACT_ROUND, EXACT_BITS };
enum pass_exactness pass_exactness(const struct pass_desc *pass);
/* Index of the setting of that name, or -1. */
int pass_setting_find(const struct pass_desc *pass, const char *name);

/* ---- pipelines ---- */

struct pipeline_step {
	const struct pass_desc *pass;
	int64_t settings[PASS_SETTINGS_MAX];
};
struct pipeline {
	struct pipeline_step *items;
	size_t n, cap;
};

/*
 * Parses `canonicalize,group{max_ops=4},plan-memory`. O0, O1 and O2 expand to their passes; the empty string is
 * the empty pipeline. Allocates in `a`. TFMC_INVALID after a PIPELINE diagnostic.
 */
TFMC_MUST_USE enum tfmc_status pipeline_parse(struct arena *a, struct diag_context *cx, const char *text,
                                              struct pipeline *out);
/* Canonical form, without settings that have their default; pipeline_parse() reads it back. */
void pipeline_print(struct buf *out, const struct pipeline *p);
/* The passes that O0, O1 or O2 stands for, or NULL. */
const char *pipeline_named(const char *name);
/* pipeline_named with the passes that divide a module among `stages` of `ranks` processes each (shard, stages); in `a`,
 * "" without memory. */
const char *pipeline_of_ranks(struct arena *a, const char *name, int64_t ranks, int64_t stages);

/* ---- report ---- */

struct pass_counter {
	const char *pass, *name;
	int64_t value;
};

/* A buffer of the arena: one class of values that share memory, alive from group `first` to group `last`. */
struct plan_buffer {
	const char *name;        /* of its first value: `layers.ffn.up linear (model.yaml:14)`, `%h` */
	size_t lane;             /* index into plan_func.lanes */
	int64_t size;            /* bytes = size * unit of the lane; a multiple of 64 */
	int64_t raw;             /* size before it was rounded up */
	const struct ir_dim *at; /* byte offset in the arena */
	size_t first, last;      /* positions of groups in program order, inclusive */
};
/* Buffers whose sizes are multiples of one symbolic quantity, such as B*S. */
struct plan_lane {
	const struct ir_dim *unit;
};
/* Sample values of the dims at which a plan is compared with its lower bound: all at the maximum, all at the minimum,
 * all in the middle, alternating maximum and minimum. */
#define PLAN_POINTS 4
struct plan_func {
	const char *name;
	const struct ir_dims *dims; /* of the result module, which owns them */
	const struct ir_dim *arena, *lower_bound;
	struct plan_lane *lanes;
	size_t n_lanes;
	struct plan_buffer *buffers;
	size_t n_buffers, n_times;
	double gap[PLAN_POINTS]; /* (peak - lower bound) / lower bound */
};

struct pass_report {
	struct arena arena;
	struct {
		struct pass_counter *items;
		size_t n, cap;
	} counters;
	struct {
		struct plan_func *items;
		size_t n, cap;
	} plans; /* of the last plan-memory, one for each function */
	struct {
		struct pass_time {
			const char *pass;
			double pass_seconds, verify_seconds;
		} * items;
		size_t n, cap;
	} times;
};
void pass_report_init(struct pass_report *r);
void pass_report_destroy(struct pass_report *r);
/* --stats: the counters and, for each function, lower bound, size, gap and map of the arena. */
void pass_report_print(struct buf *out, const struct pass_report *r);
/* Memory map as text: a line for each group, bytes across, a letter for each buffer. */
void plan_print_map(struct buf *out, const struct plan_func *p);
/* Memory maps of n functions as one SVG picture under a caption, evaluated at these values of the dims. */
void plan_print_svg(struct buf *out, const char *caption, const struct plan_func *plans, size_t n,
                    const int64_t *dims);

/* ---- running ---- */

/* Callbacks of the caller; every member may be NULL. */
struct pass_sink {
	/* title: "after group" */
	void (*print)(void *user, const char *title, const struct buf *text);
	/* file_name: "03-fuse-attention.tir" */
	void (*dump)(void *user, const char *file_name, const struct buf *text);
	/* A pass failed (or options.reproduce): the head of a reproducer, then the IR before the pass. */
	void (*reproducer)(void *user, const struct buf *text);
	/* After each pass, with its result. False stops with TFMC_INVALID; the callback has emitted the diagnostic. */
	bool (*after)(void *user, const char *pass, const struct ir_module *m);
	/* Application `number` of a pass with fuel, from 1: fuel=number is the least that still allows it. `what`: the
	 * rule, or NULL. */
	void (*applied)(void *user, const char *pass, int64_t number, const char *what, struct ir_loc loc);
	double (*clock)(void *user); /* seconds */
	void *user;
	const struct progress *progress; /* notified after each pass; may be NULL */
};

/* A list of names: of passes, rules or fusions. */
struct name_list {
	const char *const *items;
	size_t n;
};

struct pass_options {
	const struct target *target;   /* required by select */
	const char *variant;           /* part of dump names; may be NULL */
	struct name_list print_before; /* names of passes, or all */
	struct name_list print_after;  /* names of passes, all, or changed */
	struct name_list diff;  /* names of passes, or all: what they changed, as a unified difference */
	const char *stop_after; /* name of a pass; may be NULL */
	struct name_list require_fusion; /* attention, softmax */
	bool reproduce;                  /* write a reproducer of the whole run, not only of a failing pass */
	bool no_locations;               /* print and dump IR without locations */
	bool remarks;                    /* emit remarks: what was fused, or the reason why not */
	struct name_list disable_rules;  /* names of rewrite rules */
	const char *rules_text;          /* more rules, tried before the built-in ones; may be NULL */
	const char *rules_name;          /* of their file, for messages */
	size_t rules_len;
	size_t first_number; /* number of the first dump; 0 means 1 */
	struct pass_sink sink;
};

#endif
