/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters without a tensor that fits, collected while a model is lowered and reported by cause: a wrong number of
 * layers, one wrong entry of the map or one wrong width is one error, which names the first parameter and counts the
 * others. Private to the weight map.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_FAULTS_H
#define TFMC_FRONTEND_WEIGHTS_FAULTS_H

#include "frontend/expr/expr.h"
#include "frontend/weights/files.h"
#include "frontend/weights/map.h"

enum weight_fault_kind {
	FAULT_MISSING,  /* no file has `tensor`, which the map names */
	FAULT_UNMAPPED, /* no entry fits, and no tensor has the parameter's name */
	FAULT_SHAPE,    /* `source` has other dims */
	FAULT_INTS,     /* `source` holds ints of the type `tensor` */
};

struct weight_fault {
	enum weight_fault_kind kind;
	struct weight_want want;
	const char *tensor;
	const char *source; /* "the tensor 'a' of 'b'" */
	const char *hint;   /* shape: what would make it fit, or "" */
	struct loc
	        mapped; /* the source of the entry; unmapped: a pattern that a dot keeps from fitting; else LOC_NONE */
	int rank;
	int64_t dims[IR_RANK_MAX];
	bool is_told;
};

struct weight_faults {
	struct weight_fault *items;
	size_t n, cap;
};

struct weight_fault_context {
	struct arena *arena;
	struct diag_context *cx;
	struct weight_files *files;
	const struct expr_env *env; /* its params are named where they have the value that does not fit */
	size_t n_parameters;        /* that were asked for */
	bool has_map;
};

/* Reports the faults that were not told yet, at most one error for each cause. */
void weight_faults_report(const struct weight_fault_context *x, struct weight_faults *faults);

/* The common beginning of names of tensors behind which `name` has a larger index than any of them: "layers." of "layers.3.w"
 * where the files have layers.0 to layers.2, *count 3; indices before it are written `*`. of_used: tensors that are read
 * count alone. NULL: there is none. */
const char *weight_series(const struct weight_fault_context *x, const char *name, bool of_used,
                          int64_t *count);
/* The index of `name` behind the series, or -1. */
int64_t weight_series_index(struct arena *a, const char *series, const char *name);

#endif
