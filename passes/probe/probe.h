/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes: intermediate values of a module of stage graph, by the path of the step, as
 * further results of its functions.
 *
 * A value has a name for each round of the repeats around it:
 *   h.0.attn.norm          the last value that a step computes (also of whole blocks: h.0)
 *   h.0.attn.attention.k   another value of the step: its name, or that of its op
 *   ....attention.weights  softmax of the scores; of an op `attention` it is computed beside it
 * A second value of the same name ends in .2. In text without paths the names of values are used.
 *
 * PROBE_RECOMPUTE: what the function computes for its own results has the readers that it had, so the passes
 * fuse it as before. Values on the residual stream (and what goes round in repeats) are taken from there; any
 * other value is computed again from the nearest of those, by a copy of its ops. PROBE_BARRIER: the value
 * gets a reader, so it must exist as it is and nothing is fused across it.
 *
 * Rounds of a repeat stay rolled: one result holds all rounds that are asked for, on a leading axis.
 */
#ifndef TFMC_PASSES_PROBE_PROBE_H
#define TFMC_PASSES_PROBE_PROBE_H

#include "ir/builder/build.h"

enum probe_mode { PROBE_RECOMPUTE, PROBE_BARRIER };

struct probe_request {
	struct diag_context *cx;
	struct arena *arena;         /* for all texts and lists of the answer */
	const char *const *patterns; /* ir/algorithms/glob.h */
	size_t n_patterns;
	const char *const *functions; /* which functions get results; those that do not exist are left out */
	size_t n_functions;
	enum probe_mode mode;
	bool attentions; /* the weights of every op `attention` instead of patterns; names are those of its
	                      step */
	bool by_path; /* results are named by paths, with _ for dots and without indices; else probe_0, .. */
	bool alone;   /* the function loses its other results */
	const bool *taken; /* of one function's attentions: those that are wanted, for each name of
	                      probe_list; NULL: all */
};

/* One value that was asked for. */
struct probe_value {
	const char *name;
	const char *function;
	const char *result;      /* name of the result of the function that holds it */
	size_t site;             /* among the places of the function */
	int64_t slot;            /* index of its leading axis, -1: the result is the value */
	const struct ir_func *f; /* of the module that was read */
	const struct ir_op *op;
};
struct probe_values { /* in the order in which they are computed, function after function */
	struct probe_value *items;
	size_t n, cap;
};

/*
 * Makes *out: the module with further results (TFMC_INVALID after a diagnostic: nothing matches a pattern,
 * too many values, a module that is no graph any more). The caller destroys *out.
 */
TFMC_MUST_USE enum tfmc_status probe_insert(const struct probe_request *q, const struct ir_module *in,
                                            struct ir_module **out, struct probe_values *values);

/* Every name of a function's values, in the order of computation, in the arena. */
struct probe_names {
	struct probe_name {
		const char *name;
		size_t site, moment; /* moment: when it is computed */
		int64_t round;       /* of all rounds of the repeats around it, counted together */
	} * items;
	size_t n, cap;
};

/* What is seen of an op. */
enum probe_part {
	PART_RESULT,
	PART_WEIGHTS, /* of an op attention */
	PART_COLUMNS, /* of a product with a weight: see probe_columns */
};

/* A place in the function that has values. */
struct probe_site {
	const struct ir_op *op;
	unsigned result; /* of the op */
	enum probe_part part;
	const char *name; /* within the step */
	size_t depth;     /* repeats around it */
	bool wanted;
	int64_t first, last; /* rounds that are wanted */
	struct ir_value now; /* while the function is written: the value, or what was gathered of it */
	const char *result_name;
};
struct probe_sites {
	struct probe_site *items;
	size_t n, cap;
};

/* TFMC_INVALID when there are more than can be listed. */
TFMC_MUST_USE enum tfmc_status probe_list(const struct probe_request *q, const struct ir_func *f,
                                          struct probe_sites *sites, struct probe_names *names);

/*
 * The path of an op with the index of each repeat after the path of that repeat: "h.3.attn.norm" of
 * "h.attn.norm" in round 3 of "h". `at`: indices of the repeats around `region`, the outermost first.
 */
const char *probe_path(struct arena *arena, const char *path, const struct ir_region *region,
                       const int64_t *at, size_t n_at);
/* Writes the function with the wanted sites as results into module `out`. */
TFMC_MUST_USE enum tfmc_status probe_write(const struct probe_request *q, const struct ir_func *f,
                                           struct ir_module *out, struct probe_sites *sites);

/*
 * The path of the weight that an op `weight` names, as probe_path: with the index of each repeat by whose index it
 * is chosen. Rows of a parameter (".rows0_63") have its path. `at`: as of probe_path, around `region`.
 */
const char *probe_weight_path(struct arena *arena, const struct ir_func *f, const struct ir_op *weight,
                              const struct ir_region *region, const int64_t *at, size_t n_at);

/* ---- what products with weights read ---- */

/*
 * The columns of x [R, K] of a product x w^T (linear, expert_linear), summed over its rows: K sums of squares, K sums and R,
 * 2 K + 1 numbers in f32. Of experts a row of such numbers for each of E experts, over the rows that it is given.
 */
struct probe_column {
	const char *weight; /* path of the parameter; that of a single expert when experts have their own */
	const char *result; /* of the function: rows of 2 k + 1 numbers */
	int64_t first, rows, k;
};
struct probe_columns {
	struct probe_column *items;
	size_t n, cap;
};

/*
 * Makes *out: the module with one function, that of q->functions[0], whose only results are such sums. A weight that is
 * used several times, and each round of a repeat, is an element of the list. TFMC_INVALID after a diagnostic: no
 * product, too many, a module that is no graph any more. The caller destroys *out.
 */
TFMC_MUST_USE enum tfmc_status probe_columns(const struct probe_request *q, const struct ir_module *in,
                                             struct ir_module **out, struct probe_columns *columns);
/* The sums of x in the function that is built; ids: of experts, else IR_NO_VALUE. */
struct ir_value probe_column_sums(struct ir_builder *b, struct ir_value x, struct ir_value ids,
                                  int64_t experts);

#endif
