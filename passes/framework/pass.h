/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running pipelines of passes, for whoever has a module and wants the next
 * stage. A pass rebuilds: it reads one module and writes another. The manager
 * verifies after each pass, prints, dumps, counts, times and writes
 * reproducers; it writes no files itself, everything goes to the sink.
 */
#ifndef TFMC_PASSES_FRAMEWORK_PASS_H
#define TFMC_PASSES_FRAMEWORK_PASS_H

#include "ir/core/module.h"
#include "ir/diag/progress.h"
#include "ir/target/target.h"

/* ---- what there is ---- */

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

/* Row i of passes.def, in order; NULL after the last. */
const struct pass_desc *pass_at(size_t i);
const struct pass_desc *pass_find(const char *name);
/* Reports a name that no pass has; `what`: "", or who wants it: "stop after: ". */
void pass_unknown(struct diag_context *cx, const char *what, const char *name);
/* What a pass may change, as the classes of rules. canonicalize: beside what its rules say. */
enum pass_exactness { EXACT_REASSOCIATE, EXACT_ROUND, EXACT_BITS };
enum pass_exactness pass_exactness(const struct pass_desc *pass);
/* Index of the setting of that name, -1: there is none. */
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
 * Reads `canonicalize,group{max_ops=4},plan-memory`; O0, O1 and O2 stand for
 * their passes; the empty text is no pass. Allocates in `a`. TFMC_INVALID after
 * a PIPELINE diagnostic.
 */
TFMC_MUST_USE enum tfmc_status pipeline_parse(struct arena *a, struct diag_context *cx, const char *text,
                                              struct pipeline *out);
/* Canonical text: settings with their default are left out. Parses back to the same pipeline. */
void pipeline_print(struct buf *out, const struct pipeline *p);
/* The passes after a name (O0, O1, O2), or NULL. */
const char *pipeline_named(const char *name);

/* ---- report ---- */

struct pass_counter {
	const char *pass, *name;
	int64_t value;
};

/* One buffer of the arena: the values that share it, and when it is alive (positions of groups in program
 * order). */
struct plan_buffer {
	const char *name;        /* of the first value: `layers.ffn.up linear (model.yaml:14)`, `%h` */
	size_t lane;             /* index into plan_func.lanes */
	int64_t size;            /* coefficient of the lane's unit; bytes, a multiple of 64 */
	int64_t raw;             /* the same without the padding to that */
	const struct ir_dim *at; /* bytes from the begin of the arena on */
	size_t first, last;      /* inclusive */
};
/* Buffers whose size is a multiple of the same positive quantity. */
struct plan_lane {
	const struct ir_dim *unit;
};
/* Points of the dims at which a plan is compared with the bound: all at their largest, all at their smallest,
 * all in the middle, every other one at its smallest. */
#define PLAN_POINTS 4
struct plan_func {
	const char *name;
	const struct ir_dims *dims; /* of the result module: valid as long as it */
	const struct ir_dim *arena, *lower_bound;
	struct plan_lane *lanes;
	size_t n_lanes;
	struct plan_buffer *buffers;
	size_t n_buffers, n_times;
	double gap[PLAN_POINTS]; /* bytes above the lower bound of the whole arena, as a part of it */
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
	} plans; /* of the last plan-memory */
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
/* The counter, 0 when nothing was counted. */
int64_t pass_report_count(const struct pass_report *r, const char *pass, const char *name);
/* Counters and, for each function, lower bound, peak, gap and the map of the arena. */
void pass_report_print(struct buf *out, const struct pass_report *r);
/* The map: time down, bytes across, one letter for each buffer. */
void plan_print_map(struct buf *out, const struct plan_func *p);
/* The maps of n functions as one picture (SVG), with the sizes at these values of the dims. */
void plan_print_svg(struct buf *out, const struct plan_func *plans, size_t n, const int64_t *dims);

/* ---- running ---- */

/* Where text goes; every member may be NULL. */
struct pass_sink {
	/* title: "after group" */
	void (*print)(void *user, const char *title, const struct buf *text);
	/* file_name: "03-fuse-attention.tir" */
	void (*dump)(void *user, const char *file_name, const struct buf *text);
	/* A failing pass: the head of a reproducer, then the IR before it. */
	void (*reproducer)(void *user, const struct buf *text);
	/* After each pass, with its result. False stops with TFMC_INVALID (the hook reported). */
	bool (*after)(void *user, const char *pass, const struct ir_module *m);
	/* Application `number` of a pass with fuel: fuel=number is the least with which it happens. `what` is
	 * the rule, or NULL. */
	void (*applied)(void *user, const char *pass, int64_t number, const char *what, struct ir_loc loc);
	double (*clock)(void *user); /* seconds */
	void *user;
	const struct progress *progress; /* told after each pass; NULL: nobody */
};

struct pass_words {
	const char *const *items;
	size_t n;
};

struct pass_options {
	const struct target *target;    /* needed by select */
	const char *variant;            /* part of dump names; may be NULL */
	struct pass_words print_before; /* names of passes, or all */
	struct pass_words print_after;  /* names of passes, all, or changed */
	struct pass_words diff; /* names of passes, or all: what they changed, as a unified difference */
	const char *stop_after; /* name of a pass; may be NULL */
	struct pass_words require_fusion; /* attention, softmax */
	bool reproduce;                   /* a reproducer of the whole run, not only of a failing pass */
	bool no_locations;                /* prints and dumps leave locations out */
	bool remarks;                     /* diag_remark for what fused or not, and why */
	struct pass_words disable_rules;  /* names of rewrite rules */
	const char *rules_text;           /* more rules, tried before the built-in ones; may be NULL */
	const char *rules_name;           /* of their file, for messages */
	size_t rules_len;
	const char *tiles_text; /* sizes instead of those of the model (passes/group/tiles.h); may be NULL */
	const char *tiles_name; /* of their file, for messages */
	size_t tiles_len;
	size_t first_number; /* of the first dump; 0: 1 */
	struct pass_sink sink;
};

/*
 * Runs the pipeline on `in`, which stays as it is, and gives a new module that
 * the caller destroys. An empty pipeline gives a copy. report may be NULL. On
 * failure *out is NULL and a diagnostic was emitted.
 */
TFMC_MUST_USE enum tfmc_status passes_run(struct diag_context *cx, const struct pipeline *p,
                                          const struct pass_options *options, const struct ir_module *in,
                                          struct ir_module **out, struct pass_report *report);

#endif
