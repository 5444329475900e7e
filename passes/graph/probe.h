/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes (--probe): intermediate values of a module at stage graph, selected by path, as additional results of its
 * functions.
 *
 * A value has one name for each iteration of the repeats around it:
 *   h.0.attn.norm          the last value computed by a step of the model (also of a block: h.0)
 *   h.0.attn.attention.k   another value of the step, by its own name or that of its op
 *   ....attention.weights  probabilities (softmax of the scores); recomputed for an op `attention`
 * A second value with the same name ends in .2. In IR text without paths the names of values are used.
 *
 * PROBE_RECOMPUTE: the values of the function keep their readers, so passes fuse it as without probes. Values on
 * the residual stream (and loop-carried ones) are in memory anyway and read from there; any other value is
 * recomputed from the nearest of those by a copy of its ops. PROBE_BARRIER: the value gets a reader, so it is
 * materialized and nothing is fused across it.
 *
 * Repeats stay rolled: one result collects all requested iterations along a leading axis.
 */
#ifndef TFMC_PASSES_GRAPH_PROBE_H
#define TFMC_PASSES_GRAPH_PROBE_H

#include "ir/core/build.h"

enum probe_mode { PROBE_RECOMPUTE, PROBE_BARRIER };

struct probe_request {
	struct diag_context *cx;
	struct arena *arena;         /* for all strings and lists of the result */
	const char *const *patterns; /* glob patterns (ir/support/glob.h) */
	size_t n_patterns;
	const char *const *functions; /* functions to probe; names that do not exist are ignored */
	size_t n_functions;
	enum probe_mode mode;
	bool attentions; /* probe the probabilities of every op `attention` instead of patterns, named by its
	                      step */
	bool by_path;    /* name results by path, with _ for dots and without indices; else probe_0, .. */
	bool alone;      /* drop the other results of the function */
	const bool *taken; /* with attentions: which names of probe_list to probe; NULL: all */
};

/* A probed value. */
struct probe_value {
	const char *name;
	const char *function;
	const char *result;      /* name of the result of the function that contains it */
	size_t site;             /* index of its site in the function */
	int64_t slot;            /* index along the leading axis; -1: the result is the value itself */
	const struct ir_func *f; /* in the input module */
	const struct ir_op *op;
};
struct probe_values { /* in order of execution, function by function */
	struct probe_value *items;
	size_t n, cap;
};

/*
 * Creates *out: the module with additional results; the caller destroys it. TFMC_INVALID after a diagnostic: a
 * pattern matches nothing, too many values, or the module is not at stage graph.
 */
TFMC_MUST_USE enum tfmc_status probe_insert(const struct probe_request *q, const struct ir_module *in,
                                            struct ir_module **out, struct probe_values *values);

/* All names of the values of a function, in order of execution, in the arena. */
struct probe_names {
	struct probe_name {
		const char *name;
		size_t site, moment; /* moment: its position in the execution */
		int64_t iteration;   /* iteration, flattened over the repeats around it */
	} * items;
	size_t n, cap;
};

/* The value that a probe takes from an op. */
enum probe_kind {
	PROBE_RESULT,
	PROBE_PROBABILITIES, /* probabilities of an op attention */
	PROBE_COLUMN_SUMS,   /* column sums of the input of a linear: see probe_columns */
};

/* A point in the function that can be probed. */
struct probe_site {
	const struct ir_op *op;
	unsigned result; /* of the op */
	enum probe_kind part;
	const char *name; /* within its step */
	size_t depth;     /* number of repeats around it */
	bool wanted;
	int64_t first, last;   /* range of requested iterations */
	struct ir_value value; /* during probe_write: the value, or the tensor that collects its iterations */
	const char *result_name;
};
struct probe_sites {
	struct probe_site *items;
	size_t n, cap;
};

/* Lists the sites and names of a function. TFMC_INVALID after a diagnostic: too many. */
TFMC_MUST_USE enum tfmc_status probe_list(const struct probe_request *q, const struct ir_func *f,
                                          struct probe_sites *sites, struct probe_names *names);

/*
 * Inserts iteration indices into the path of an op: "h.3.attn.norm" for "h.attn.norm" in iteration 3 of repeat
 * "h". at [n_at]: iterations of the repeats around `region`, outermost first.
 */
const char *probe_path(struct arena *arena, const char *path, const struct ir_region *region,
                       const int64_t *at, size_t n_at);
/* Copies the function into module `out`, with the wanted sites as results. */
TFMC_MUST_USE enum tfmc_status probe_write(const struct probe_request *q, const struct ir_func *f,
                                           struct ir_module *out, struct probe_sites *sites);

/*
 * The path of the parameter that an op `weight` reads: as probe_path, with the iterations of the repeats whose
 * index selects it. For rows of a parameter (".rows0_63") the path of that parameter. region, at, n_at: as of
 * probe_path.
 */
const char *probe_weight_path(struct arena *arena, const struct ir_func *f, const struct ir_op *weight,
                              const struct ir_region *region, const int64_t *at, size_t n_at);

/* ---- statistics of the inputs of linears ---- */

/*
 * Column sums of the input x [R, K] of a linear or expert_linear, over its rows: K sums of squares, K sums, and R;
 * f32 [2 K + 1]. For experts [E, 2 K + 1], over the rows that are routed to each expert.
 */
struct probe_column {
	const char
	        *weight; /* path of the parameter; of a single expert if experts have separate parameters */
	const char *result; /* result of the function: rows of 2 k + 1 values */
	int64_t first, rows, k;
};
struct probe_columns {
	struct probe_column *items;
	size_t n, cap;
};

/*
 * Creates *out: a module with the function q->functions[0], whose only results are such sums; the caller destroys
 * it. *columns has an element for every use of a weight and every iteration of a repeat. TFMC_INVALID after a
 * diagnostic: no linear, too many, or the module is not at stage graph.
 */
TFMC_MUST_USE enum tfmc_status probe_columns(const struct probe_request *q, const struct ir_module *in,
                                             struct ir_module **out, struct probe_columns *columns);
/* Builds the column sums of x; ids: routing of experts, else IR_NO_VALUE. */
struct ir_value probe_column_sums(struct ir_builder *b, struct ir_value x, struct ir_value ids,
                                  int64_t experts);

#endif
