/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who reads what, for passes that change weights: every use of every value, and
 * for each weight how many ops read it as the matrix of a linear and how many
 * otherwise. A weight is shared by all functions, so what becomes of it is
 * decided for the module, never for one function.
 */
#ifndef TFMC_PASSES_WEIGHTS_MODULE_USES_H
#define TFMC_PASSES_WEIGHTS_MODULE_USES_H

#include "passes/framework/rebuild.h"
#include "passes/framework/value_uses.h"

struct func_uses {
	const struct ir_func *f;
	struct value_uses values; /* outer ops before inner ones */
	void **marks;             /* [n_values], by the first result of an op: free for the pass */
};

struct weight_uses {
	const struct ir_weight *weight;
	size_t linear, other; /* uses as the matrix of a linear, and otherwise */
	size_t gathers;       /* of the others, as the table of a gather */
	void *user;           /* free for the pass */
};

struct module_uses {
	const struct ir_module *m;
	struct func_uses *funcs;     /* [m->funcs.n] */
	struct weight_uses *weights; /* [m->weights.n] */
	struct strmap by_name;
};

/* NULL when memory ran out. */
struct module_uses *module_uses_collect(struct arena *a, const struct ir_module *m);
struct func_uses *module_uses_func(const struct module_uses *u, const struct ir_func *f);
struct weight_uses *module_uses_weight(const struct module_uses *u, const struct ir_weight *w);
/* Uses of v; *n is their number. */
const struct value_use *uses_of(const struct func_uses *u, struct ir_value v, size_t *n);
/* The mark of an op, NULL for none. */
void *uses_mark(const struct module_uses *u, const struct ir_func *f, const struct ir_op *op);

/*
 * Entries that `encode` will make of the weight when so many linears read it and all others as they do: a
 * weight that linears and others read has two, but gathers of rows read what linears do.
 */
int64_t weight_entries(const struct weight_uses *u, size_t linear);
/* Bytes of all weights that are read, as `encode` will store them. Saturates. */
int64_t module_weight_bytes(struct arena *a, const struct ir_module *m);
/* Bytes of one weight. */
int64_t weight_bytes_of(const struct ir_weight *w);

/* The weight op behind v, or NULL; and its weight. */
const struct ir_op *uses_weight_op(const struct ir_func *f, struct ir_value v);
const struct ir_weight *uses_weight(const struct ir_func *f, struct ir_value v);
/* A weight whose numbers may be folded: f32, row-major, with a provenance that is not nested too deep. */
bool uses_foldable(const struct ir_weight *w);
/* The same, and new numbers need no second rounding: it is not kept narrow. */
bool uses_changeable(const struct ir_weight *w);
/* Both weight ops have equal indices: the same values, or equal constants. */
bool uses_same_indices(const struct ir_func *f, const struct ir_op *a, const struct ir_op *b);
bool uses_same_index(const struct ir_func *f, struct ir_value a, struct ir_value b);

/*
 * A weight like `like` with another name and provenance (its dims), added to r->out. With `replaces` the name
 * is that of a weight which nothing reads any more. NULL after an internal error.
 */
const struct ir_weight *uses_add_weight(struct rebuild *r, const struct ir_weight *like, const char *name,
                                        const struct ir_wexpr *init, bool replaces);

#endif
