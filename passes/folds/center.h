/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residual streams for the pass center: sets of values that are linked by adds,
 * views and the carries of repeats, with everything that writes and reads them.
 * Centering all writers centers every value of the set.
 */
#ifndef TFMC_PASSES_FOLDS_CENTER_H
#define TFMC_PASSES_FOLDS_CENTER_H

#include "passes/weights/module_uses.h"

/* What becomes of an op of a stream. */
enum center_role {
	CENTER_NONE = 0,
	CENTER_WRITER = 1, /* linear: mean over N leaves its matrix and bias */
	CENTER_NORM = 2,   /* layer_norm: becomes rms_norm */
	CENTER_TABLE = 4,  /* gather: its table is centered */
	CENTER_CUT = 8,    /* its result enters the stream: a runtime center behind it */
};

struct stream {
	const struct ir_func *f;
	const struct ir_op *first_norm; /* place of remarks */
	int64_t n_norms;                /* executions of norms that read it */
	bool refused;
	const struct ir_weight *writer; /* matrix of the first linear that writes it */
	int64_t number;                 /* of the application: one for all streams with this writer */
};

struct stream_member {
	struct stream *stream;
	const struct ir_op *op;
	unsigned role;
};

struct streams {
	struct module_uses *uses;
	struct {
		struct stream_member *items;
		size_t n, cap;
	} members;
	unsigned char **roles; /* [funcs][n_values], by the first result: roles of streams that remain */
};

/* NULL when memory ran out. */
struct streams *streams_collect(struct pass_context *p, const struct ir_module *m);
/* The application that an op belongs to. */
int64_t streams_number(const struct streams *s, const struct ir_func *f, const struct ir_op *op);
unsigned streams_role(const struct streams *s, const struct ir_func *f, const struct ir_op *op);

/* op takes operand 0 (add and sub: both) apart along the last axis only and keeps that axis. */
bool stream_links(const struct ir_func *f, const struct ir_op *op);

#endif
