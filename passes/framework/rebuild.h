/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding a module op by op. Two walks for each function: backward, to find
 * what is needed (a pass says which ops it replaces and what the replacements
 * read), then forward through the builder. What nobody needs disappears.
 * Iterative along a region, recursive only into regions, whose depth is bounded.
 */
#ifndef TFMC_PASSES_FRAMEWORK_REBUILD_H
#define TFMC_PASSES_FRAMEWORK_REBUILD_H

#include "passes/framework/pass_impl.h"

struct rebuild;

struct rewrite {
	/*
	 * Backward: true when the pass replaces op; it then has called rebuild_need for every value that its
	 * replacement reads. Must give the same answer whenever asked.
	 */
	bool (*match)(struct rebuild *r, const struct ir_op *op);
	/* Forward: builds the replacement and calls rebuild_set for the results of op that are needed. */
	void (*emit)(struct rebuild *r, const struct ir_op *op);
	void *user;
	bool is_numbered; /* the pass takes fuel itself; its match may leave a number in rebuild.number */
};

struct rebuild {
	struct pass_context *p;
	const struct ir_module *in;
	struct ir_module *out;
	const struct ir_func *f; /* the function that is read */
	struct ir_builder *b;    /* the one that is written */
	const struct rewrite *rewrite;
	uint32_t *uses;       /* [f->n_values], of the function that is read */
	bool *needed;         /* [f->n_values] */
	int64_t *replaced;    /* [f->n_values], by the first result: number of the application, 0: stays */
	struct ir_value *map; /* [f->n_values] values of the new function */
	int64_t number;       /* of the application that match found, when the pass counts itself */
	int64_t changes;      /* replaced ops */
};

/*
 * All functions. A rewrite without `match` only drops dead ops; without a rewrite all is copied as it is.
 * changes may be NULL.
 */
TFMC_MUST_USE enum tfmc_status rebuild_module(struct pass_context *p, const struct ir_module *in,
                                              struct ir_module *out, const struct rewrite *rewrite,
                                              int64_t *changes);

void rebuild_need(struct rebuild *r, struct ir_value old);
/* The new value of an old one that was needed. IR_NO_VALUE for none. */
struct ir_value rebuild_get(struct rebuild *r, struct ir_value old);
/* now replaces old; it inherits its name. */
void rebuild_set(struct rebuild *r, struct ir_value old, struct ir_value now);
/* v is used by one operand only. */
bool rebuild_once(const struct rebuild *r, struct ir_value v);

/* What a group reads. */
void rebuild_need_group(struct rebuild *r, const struct ir_op *group);
/* The group with other attributes. */
void rebuild_group(struct rebuild *r, const struct ir_op *group, const struct attrs_group *attrs);

#endif
