/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewriting traversal: copies a module op by op through the builder and replaces the ops that a pass matches. For
 * each function, a backward walk finds the needed values (mark phase of dead code elimination; a match reports the
 * values that its replacement reads), then a forward walk emits the needed ops. Dead ops are therefore dropped.
 * Recursion goes only into regions, whose depth is bounded.
 */
#ifndef TFMC_PASSES_FRAMEWORK_REBUILD_H
#define TFMC_PASSES_FRAMEWORK_REBUILD_H

#include "passes/framework/pass_impl.h"

struct rebuild;

struct rewrite {
	/*
	 * Backward walk: returns true if the pass replaces op, after it called rebuild_need() for every value that the
	 * replacement reads. Must be deterministic: emit may repeat the analysis.
	 */
	bool (*match)(struct rebuild *r, const struct ir_op *op);
	/* Forward walk: builds the replacement and calls rebuild_set() for the needed results of op. */
	void (*emit)(struct rebuild *r, const struct ir_op *op);
	/* Edits of the interface of a function; NULL: parameters and results are copied. */
	void (*params)(struct rebuild *r); /* builds the parameters and records them in r->copy.map */
	/* The old value that is returned as result i; IR_NO_VALUE drops the result. */
	struct ir_value (*result)(const struct rebuild *r, size_t i);
	enum tfmc_status (*finish)(struct rebuild *r); /* calls irb_finish */
	void *user;
	bool is_numbered; /* match consumes fuel itself and stores the number of the application in rebuild.number */
};

struct rebuild {
	struct pass_context *p;
	const struct ir_module *in;
	struct ir_module *out;
	const struct ir_func *f; /* function being read */
	struct ir_builder *b;    /* function being written */
	const struct rewrite *rewrite;
	uint32_t *uses; /* [f->n_values] number of uses in f */
	bool *needed;   /* [f->n_values] */
	/* [f->n_values] by first result: number of the application (-1: no number), 0: op is copied */
	int64_t *replaced;
	struct ir_value *map; /* [f->n_values] old value -> new value */
	struct ir_copy copy;  /* of f, by b and map */
	int64_t number;       /* set by match when rewrite.is_numbered */
	int64_t changes;      /* number of replaced ops */
};

/*
 * Rewrites all functions of `in` into `out`. With a rewrite whose match is NULL only dead ops are dropped; with
 * rewrite NULL the module is copied literally, dead ops and unused weights included. changes (may be NULL): number
 * of replaced ops.
 */
TFMC_MUST_USE enum tfmc_status rebuild_module(struct pass_context *p, const struct ir_module *in,
                                              struct ir_module *out, const struct rewrite *rewrite,
                                              int64_t *changes);

/* Marks a value as needed; IR_NO_VALUE is ignored. */
void rebuild_need(struct rebuild *r, struct ir_value old);
/* Marks all operands of an op as needed. */
void rebuild_need_operands(struct rebuild *r, const struct ir_op *op);
/* The backward walk over the first n ops of a region, for a match that copies its ops. */
void rebuild_need_region(struct rebuild *r, const struct ir_region *region, size_t n);
/* The new value for a needed old one; IR_NO_VALUE for IR_NO_VALUE. */
struct ir_value rebuild_get(struct rebuild *r, struct ir_value old);
/* Replaces old by new_value, which gets the name of old. The types must be equal. */
void rebuild_set(struct rebuild *r, struct ir_value old, struct ir_value new_value);
/* Whether v has exactly one use. */
bool rebuild_has_one_use(const struct rebuild *r, struct ir_value v);

/* Marks all operands of the ops in a group as needed. */
void rebuild_need_group(struct rebuild *r, const struct ir_op *group);
/* Emits a copy of the group with other attributes. */
void rebuild_group(struct rebuild *r, const struct ir_op *group, const struct attrs_group *attrs);

#endif
