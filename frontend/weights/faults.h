/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters without a fitting tensor, collected while a model is lowered and reported by cause: a wrong
 * number of layers, a wrong map entry or a wrong width is one error, which names the first parameter and
 * counts the others. Private to the weight map.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_FAULTS_H
#define TFMC_FRONTEND_WEIGHTS_FAULTS_H

#include "frontend/syntax/expr.h"
#include "frontend/weights/files.h"
#include "frontend/weights/map.h"

enum weight_fault_kind {
	FAULT_MISSING,  /* no file has `tensor`, which the map names */
	FAULT_UNMAPPED, /* no map entry matches, and no tensor has the parameter's name */
	FAULT_SHAPE,    /* `source` has a different shape */
	FAULT_INTS,     /* `source` has the integer type `tensor` */
};

/* A parameter without a fitting tensor. */
struct weight_fault {
	enum weight_fault_kind kind;
	struct parameter_request request;
	const char *tensor;
	const char *source; /* "the tensor 'a' of 'b'" */
	const char *hint;   /* FAULT_SHAPE: a way to make it fit, or "" */
	struct loc mapped; /* source of the map entry; unmapped: a pattern that matches except for a dot; else
			   LOC_NONE */
	int rank;
	int64_t dims[IR_RANK_MAX];
	bool is_reported;
};

struct weight_faults {
	struct weight_fault *items;
	size_t n, cap;
};

/* Context of the reports. */
struct weight_fault_context {
	struct arena *arena;
	struct diag_context *cx;
	struct weight_files *files;
	const struct expr_env *env; /* to name the model params that have the wrong value */
	size_t n_parameters;        /* number of requested parameters */
	bool has_map;
};

/* Reports the faults that are not yet reported, one error for each cause. */
void weight_faults_report(const struct weight_fault_context *x, struct weight_faults *faults);

/* Series of tensor names: if the index in `name` is beyond all stored ones, returns the common beginning,
 * such as "layers." of "layers.3.w" where the files have layers.0 to layers.2 (*count 3; earlier indices
 * become `*`). of_used: considers used tensors only. NULL: none. */
const char *weight_series(const struct weight_fault_context *x, const char *name, bool of_used,
                          int64_t *count);
/* Index of `name` after the series, or -1. */
int64_t weight_series_index(struct arena *a, const char *series, const char *name);

#endif
