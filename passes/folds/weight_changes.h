/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of weights that a pass makes instead of changing activations: rows
 * times a factor, rows in another order, a table added. A weight keeps its
 * name, its provenance says what happened to it.
 *
 * A unit is a place in the program that wants changes of weights and can only
 * have all of them or none. Since a weight is changed for everybody, a unit is
 * refused when some reader of one of its weights, in any function, does not want
 * exactly the same; units that are linked stand and fall together. So all functions of
 * a module (run, decode, ..) decide alike.
 */
#ifndef TFMC_PASSES_FOLDS_WEIGHT_CHANGES_H
#define TFMC_PASSES_FOLDS_WEIGHT_CHANGES_H

#include "ir/support/strmap.h"
#include "passes/framework/rebuild.h"
#include "passes/framework/value_uses.h"

enum change_kind {
	CHANGE_SCALE,  /* rows times `factor` */
	CHANGE_HALVES, /* rows of each head: interleaved pairs to halves */
	CHANGE_ADD,    /* the whole weight plus `addend` */
};

struct weight_change {
	enum change_kind kind;
	struct wexpr_rows rows;        /* of the axis behind the indices */
	double factor;                 /* CHANGE_SCALE */
	const struct ir_wexpr *addend; /* CHANGE_ADD: shape of the weight */
	const char *name;              /* CHANGE_ADD: of the result; NULL: the name stays */
};

struct change_unit {
	const struct ir_func *f; /* with op: where it is; NULL for what is no op */
	const struct ir_op *op;
	const char *why; /* refused, and why; NULL: done */
	bool silent;     /* a refusal is not worth a remark */
	int64_t number;  /* of the application, when it is done */
	int64_t tag;     /* of the pass */
};

struct weight_demand {
	size_t unit;
	const struct ir_weight *weight;
	int axis; /* of rows */
	struct value_use use;
	struct weight_change change;
};

struct weight_changes {
	struct pass_context *p;
	const struct ir_module *in;
	struct value_uses *uses; /* [in->funcs.n] */
	struct {
		struct change_unit *items;
		size_t n, cap;
	} units;
	struct {
		struct weight_demand *items;
		size_t n, cap;
	} demands;
	struct {
		struct unit_link {
			size_t a, b;
		} * items;
		size_t n, cap;
	} links;
	struct strmap by_name;   /* struct changed_weight *, of weights with demands */
	const struct ir_func *f; /* the function of_value is of */
	size_t *of_value;        /* unit + 1 of the op that defines a value */
};

enum tfmc_status weight_changes_init(struct weight_changes *c, struct pass_context *p,
                                     const struct ir_module *in);
/* A new unit; its number. */
size_t weight_changes_unit(struct weight_changes *c, const struct ir_func *f, const struct ir_op *op);
void weight_changes_refuse(struct weight_changes *c, size_t unit, const char *why);
void weight_changes_link(struct weight_changes *c, size_t a, size_t b);
/* The unit of an op of the function; NULL when there is none. */
struct change_unit *weight_changes_find(struct weight_changes *c, const struct ir_func *f,
                                        const struct ir_op *op);

/* The weight op behind operand i, or NULL. */
const struct ir_op *weight_changes_constant(const struct ir_func *f, const struct ir_op *op, size_t i);
/*
 * Operand `use` is a weight that the unit wants changed. Gives NULL, or why that cannot be.
 */
const char *weight_changes_demand(struct weight_changes *c, size_t unit, const struct ir_func *f,
                                  const struct value_use *use, const struct weight_change *change);

/* Takes back the demands from number `from` on, the last ones made. */
void weight_changes_drop(struct weight_changes *c, size_t from);

/* Where weight_changes_trace may pass and end. */
enum trace_ways {
	TRACE_LINEAR = 1 << 0, /* ends in weight and bias of a linear */
	TRACE_NORM = 1 << 1,   /* SCALE ends in gamma and beta; HALVES changes them and goes on */
	TRACE_ROPE = 1 << 2,   /* SCALE goes through */
	TRACE_TABLE = 1 << 3,  /* ends in the table of a gather; goes through sums of such */
};
/*
 * Features change->rows of the value that `reader` names are to be changed, and nobody else may read them:
 * finds the weights that make them and demands their change. Gives NULL, or why that cannot be; then nothing
 * was demanded.
 */
const char *weight_changes_trace(struct weight_changes *c, size_t unit, const struct ir_func *f,
                                 const struct value_use *reader, const struct weight_change *change,
                                 unsigned ways);

/*
 * Decides. Afterwards units with `why` NULL are carried out; remarks say why the others are not. Units that
 * share a weight or are linked are one application, which takes fuel: the rewrite of the pass is_numbered.
 */
enum tfmc_status weight_changes_resolve(struct weight_changes *c);
/* As the members of struct rewrite, for ops OP_weight. */
bool weight_changes_match(struct weight_changes *c, struct rebuild *r, const struct ir_op *op);
void weight_changes_emit(struct weight_changes *c, struct rebuild *r, const struct ir_op *op);
/* "@a.weight, @a.bias": what a unit changes. */
const char *weight_changes_names(struct weight_changes *c, const struct change_unit *unit);

/* Multiplication by f is exact (and its inverse too). */
bool change_is_exact(double f);

#endif
