/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrite rules as data. A rule says in the text of the IR which ops it
 * matches, under which conditions, what replaces them, and how exact that is
 * (grammar in README.md beside this file). A set is read from text, verified
 * while it is read, and then const; its order is the order of the texts, and
 * for one op the first rule that matches wins.
 *
 * Values, attribute variables and dims of a rule are numbered; `struct
 * rule_match` binds those numbers to the function that is read.
 */
#ifndef TFMC_PASSES_RULES_RULE_H
#define TFMC_PASSES_RULES_RULE_H

#include "passes/framework/rebuild.h"

#define RULE_VALUES_MAX   64
#define RULE_OPS_MAX      32 /* of each side */
#define RULE_VARS_MAX     16
#define RULE_DIMS_MAX     16
#define RULE_OPERANDS_MAX 9
#define RULE_ATTRS_MAX    16
#define RULE_PREDS_MAX    16

/* What a rule may change, from the strictest. */
enum rule_class {
	RULE_BITS,        /* nothing: the same bits for every input */
	RULE_ROUND,       /* an op rounds where it did not, or the reverse: a few units in the last place */
	RULE_REASSOCIATE, /* sums in another order: a bound that grows with their length */
	RULE_APPROXIMATE, /* another function within a stated relative tolerance */
};
const char *rule_class_name(enum rule_class c);

/* ---- expressions of attributes ---- */

enum rule_expr_kind { EXPR_NUMBER, EXPR_VAR, EXPR_DIM, EXPR_ADD, EXPR_SUB, EXPR_MUL, EXPR_CALL };

struct rule_expr {
	enum rule_expr_kind kind;
	double number;
	int index; /* EXPR_VAR, EXPR_DIM: which; EXPR_CALL: which function */
	const struct rule_expr *args[2];
};

/* ---- patterns ---- */

enum rule_elem { ELEM_ANY, ELEM_NUMBER, ELEM_FLOAT, ELEM_INT, ELEM_BOOL, ELEM_DTYPE };

/* float[..,K]: leading axes are those that `..` stands for in the whole rule. */
struct rule_type {
	enum rule_elem elem;
	enum ir_dtype dtype; /* ELEM_DTYPE */
	bool lead;
	int n;
	struct rule_axis {
		int dim;      /* number of a dim name, or -1 */
		int64_t size; /* when dim is -1 */
	} axes[IR_RANK_MAX];
};

enum rule_operand_kind {
	ARG_ABSENT,
	ARG_VALUE,
	ARG_NUMBER, /* a `full` of that number */
	ARG_VAR,    /* a `full` of any number, which the variable gets */
};

struct rule_operand {
	enum rule_operand_kind kind;
	int index; /* of the value or variable */
	double number;
};

enum rule_attr_kind {
	RULE_ATTR_DEFAULT, /* not written: the default of the op */
	RULE_ATTR_ANY,     /* not written and without default (match); from the type (into) */
	RULE_ATTR_VAR,
	RULE_ATTR_EXPR,  /* a number; flags are 0 and 1, words their position */
	RULE_ATTR_INTS,  /* a list */
	RULE_ATTR_LAST,  /* of axes: the last axis only */
	RULE_ATTR_SWAP,  /* of perm: the last two axes exchanged */
	RULE_ATTR_DTYPE, /* an element type, in `number` */
};

struct rule_attr {
	enum rule_attr_kind kind;
	int var;
	const struct rule_expr *expr;
	int64_t ints[IR_RANK_MAX];
	int n_ints;
	enum ir_dtype dtype;
};

struct rule_op {
	enum ir_opcode code;
	struct loc loc;
	int result; /* number of the value */
	struct rule_operand operands[RULE_OPERANDS_MAX];
	size_t n_operands;
	struct rule_attr *attrs; /* one for each attribute of the op, in table order */
};

struct rule_value {
	const char *name;             /* NULL: nested, without a name */
	const struct rule_type *type; /* NULL: any */
	int op; /* op of the match (or, below, of into) that defines it, -1: an operand */
	bool from_into;
	bool is_shared;   /* may have readers outside the match */
	bool is_const;    /* must be a weight or a constant */
	bool is_unmasked; /* no mask is in the elementwise ops before it */
};

struct rule_var {
	const char *name;
	enum ir_attr_kind kind; /* of the attribute that binds it; ATTR_FLOAT for constants */
	bool is_bound;
};

enum rule_pred_kind { PRED_EQUAL, PRED_NEAR, PRED_POSITIVE, PRED_NONNEGATIVE, PRED_NONZERO, PRED_FINITE };

struct rule_pred {
	enum rule_pred_kind kind;
	const struct rule_expr *args[2];
};

struct rule {
	const char *name;
	struct loc loc;
	enum rule_class class;
	double tolerance; /* RULE_APPROXIMATE: relative */
	bool except_nan;  /* nothing is promised for NaN inputs and for rows in which the left side has NaN */
	bool except_inf;  /* nothing is promised where the left side is infinite */
	bool except_empty; /* nothing is promised for rows of scores without a visible key; off by default */
	struct rule_value *values;
	int n_values;
	struct rule_var vars[RULE_VARS_MAX];
	int n_vars;
	const char *dims[RULE_DIMS_MAX];
	int n_dims;
	struct rule_op *match, *into;
	int n_match, n_into;
	int root;   /* number of the value that the last op of match defines */
	int result; /* number of the value that replaces it */
	struct rule_pred preds[RULE_PREDS_MAX];
	int n_preds;
};

struct rule_set {
	struct arena arena;
	struct {
		struct rule **items;
		size_t n, cap;
	} rules;
	struct rule_bucket {
		const struct rule **items;
		size_t n, cap;
	} by_root[IR_N_OPS];
};

void rule_set_init(struct rule_set *s);
void rule_set_destroy(struct rule_set *s);
/* Appends the rules of a text; TFMC_INVALID after located diagnostics. */
TFMC_MUST_USE enum tfmc_status rule_set_read(struct rule_set *s, struct diag_context *cx,
                                             const char *file_name, const char *text, size_t len);
/* The rules that are built in. */
TFMC_MUST_USE enum tfmc_status rule_set_read_builtin(struct rule_set *s, struct diag_context *cx);
/* Reads the extra rules of the options, which are tried first, then the built-in ones without those that the
 * options disable. */
TFMC_MUST_USE enum tfmc_status rule_set_load(struct rule_set *s, struct diag_context *cx,
                                             const struct pass_options *options);
/* The rule of that name or NULL. */
const struct rule *rule_set_find(const struct rule_set *s, const char *name);

/* One embedded file; a NULL name ends the list. */
struct rule_file {
	const char *name;
	const unsigned char *text;
	size_t len;
};
extern const struct rule_file rule_files[];

/* ---- matching ---- */

/* What a variable holds: a number, or a list of the function that is read. */
struct rule_bound {
	bool is_set;
	double number; /* float, int, flag, word, dtype */
	struct ir_int_list ints;
	struct ir_dim_list dims;
	const struct ir_dim *dim;
};

struct rule_match {
	const struct rule *rule;
	int64_t number; /* counts applications from 1: fuel=number is the least with which it happens */
	struct ir_value values[RULE_VALUES_MAX];
	const struct ir_op *ops[RULE_OPS_MAX]; /* what each op of the match is */
	struct rule_bound vars[RULE_VARS_MAX];
	const struct ir_dim *dims[RULE_DIMS_MAX];
	bool has_lead;
	int n_lead;
	const struct ir_dim *lead[IR_RANK_MAX];
};

/* True when op is the root of a match; fills *out. */
bool rule_matches(const struct rebuild *r, const struct rule *rule, const struct ir_op *op,
                  struct rule_match *out);

/* ---- building ---- */

/* One side of a rule, built from what a match binds. */
struct rule_side {
	struct ir_builder *b;
	struct arena *arena; /* for attributes */
	const struct rule_match *m;
	const struct rule_op *ops; /* the side: n of them */
	int n;
	const struct ir_type *type; /* of constants and results about which nothing else says one */
	struct ir_value
	        *values; /* [m->rule->n_values] in the new function: operands are given, results are set */
};
/* Builds all ops. False: they do not fit together, or the builder failed. */
bool rule_side_build(const struct rule_side *s);
/* A type pattern with bound dims; NULL: only the leading axes. NULL when a dim is not bound. */
const struct ir_type *rule_side_type(const struct rule_side *s, const struct rule_type *t,
                                     enum ir_dtype dtype);

/* ---- pieces that matching, building and checking share ---- */

/* False when a dim has no constant value. */
bool rule_expr_eval(const struct rule_expr *e, const struct rule_match *m, double *out);
/* All predicates hold; *failed (may be NULL) receives the first that does not. */
bool rule_preds_hold(const struct rule_match *m, const struct rule_pred **failed);
/* Function of an expression by name, or -1; names for messages. */
int rule_call_find(const char *name);
size_t rule_call_names(const char *const **names);
/* Numbers that f32 holds are compared exactly, others to a relative 1e-6. */
bool rule_number_fits(double pattern, double value);
bool rule_elem_fits(const struct rule_type *t, enum ir_dtype dtype);

/* ---- rewriting ---- */

/* Rules at work on one module: matches found on the way back, built on the way forward. */
struct rewriter {
	const struct rule_set *set;
	int64_t fuel;  /* applications left */
	bool nonempty; /* rules that except empty rows may be used */
	const struct ir_func *f;
	const struct rule_match **found; /* [f->n_values] by first result */
	const struct rule *wrong;        /* its replacement had another type: our mistake */
	struct loc wrong_at;
	int64_t matched, applied;
};

/* As the members of struct rewrite, for a pass that has more than rules. */
bool rewriter_match(struct rewriter *w, struct rebuild *r, const struct ir_op *op);
/* False when op was not matched by a rule. */
bool rewriter_emit(struct rewriter *w, struct rebuild *r, const struct ir_op *op);
/* After a walk: TFMC_INTERNAL with a diagnostic when a replacement had another type. */
TFMC_MUST_USE enum tfmc_status rewriter_status(const struct rewriter *w, struct pass_context *p);

#endif
