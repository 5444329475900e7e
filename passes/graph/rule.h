/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrite rules as data. A rule gives in IR text the ops that it matches, conditions, the replacement, and how
 * exact that is (grammar: README.md). A set is parsed and checked once and then constant; rules are in the order
 * of their texts, and the first that matches an op wins.
 *
 * Values, attribute variables and dims of a rule are numbered; struct rule_match binds the numbers to the function
 * being read.
 */
#ifndef TFMC_PASSES_GRAPH_RULE_H
#define TFMC_PASSES_GRAPH_RULE_H

#include "passes/framework/rebuild.h"

#define RULE_VALUES_MAX   64
#define RULE_OPS_MAX      32 /* of each side */
#define RULE_VARS_MAX     16
#define RULE_DIMS_MAX     16
#define RULE_OPERANDS_MAX 9
#define RULE_ATTRS_MAX    16
#define RULE_PREDS_MAX    16

/* How far a rule may change results, strictest first. */
enum rule_class {
	RULE_BITS,        /* not at all: the same bits for every input */
	RULE_ROUND,       /* some rounding more or less: a few units in the last place */
	RULE_REASSOCIATE, /* sums in another order: the bound grows with their length */
	RULE_APPROXIMATE, /* another function, within a given relative tolerance */
};
/* The name in rules files and messages. */
const char *rule_class_name(enum rule_class c);

/* ---- expressions of attributes ---- */

enum rule_expr_kind { EXPR_NUMBER, EXPR_VAR, EXPR_DIM, EXPR_ADD, EXPR_SUB, EXPR_MUL, EXPR_CALL };

struct rule_expr {
	enum rule_expr_kind kind;
	double number;
	int index; /* variable, dim, or function of EXPR_CALL */
	const struct rule_expr *args[2];
};

/* ---- patterns ---- */

enum rule_elem { ELEM_ANY, ELEM_NUMBER, ELEM_FLOAT, ELEM_INT, ELEM_BOOL, ELEM_DTYPE };

/* A type pattern such as float[..,K]; `..` stands for the same leading axes everywhere in a rule. */
struct rule_type {
	enum rule_elem elem;
	enum ir_dtype dtype; /* ELEM_DTYPE */
	bool lead;           /* begins with `..` */
	int n;               /* axes after it */
	struct rule_axis {
		int dim;      /* number of the dim, or -1 */
		int64_t size; /* when dim is -1 */
	} axes[IR_RANK_MAX];
};

enum rule_operand_kind {
	ARG_ABSENT,
	ARG_VALUE,
	ARG_NUMBER, /* a `full` of that number */
	ARG_VAR,    /* a `full` of any number, which binds the variable */
};

struct rule_operand {
	enum rule_operand_kind kind;
	int index; /* of the value or variable */
	double number;
};

enum rule_attr_kind {
	RULE_ATTR_DEFAULT, /* not written: must have the default of the op */
	RULE_ATTR_ANY,     /* not written, no default: any (match); taken from the type (into) */
	RULE_ATTR_VAR,
	RULE_ATTR_EXPR,  /* a number; flags are 0 and 1, keywords their position */
	RULE_ATTR_INTS,  /* a list */
	RULE_ATTR_LAST,  /* of axes: the last axis only */
	RULE_ATTR_SWAP,  /* of perm: the last two axes exchanged */
	RULE_ATTR_DTYPE, /* an element type */
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
	struct rule_attr *attrs; /* one for each attribute of the op, in the order of ops.def */
};

struct rule_value {
	const char *name;             /* NULL: nested, without a name */
	const struct rule_type *type; /* NULL: any */
	int op; /* op of match (or into, see from_into) that defines it; -1: an operand of the rule */
	bool from_into;
	bool is_shared;   /* may have readers outside the match */
	bool is_const;    /* must be a weight or a constant */
	bool is_unmasked; /* the elementwise ops before it contain no mask */
};

struct rule_var {
	const char *name;
	enum ir_attr_kind kind; /* of the binding attribute; ATTR_FLOAT for constants */
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
	bool except_nan;  /* undefined for NaN inputs and for rows in which the left side has a NaN */
	bool except_inf;  /* undefined where the left side is infinite */
	bool except_empty; /* undefined for rows of scores without a visible key; such rules are off by default */
	struct rule_value *values;
	int n_values;
	struct rule_var vars[RULE_VARS_MAX];
	int n_vars;
	const char *dims[RULE_DIMS_MAX];
	int n_dims;
	struct rule_op *match, *into;
	int n_match, n_into;
	int root;   /* value defined by the last op of match */
	int result; /* value that replaces it */
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
/* Parses and appends rules. TFMC_INVALID after located diagnostics. */
TFMC_MUST_USE enum tfmc_status rule_set_read(struct rule_set *s, struct diag_context *cx,
                                             const char *file_name, const char *text, size_t len);
/* Appends the built-in rules. */
TFMC_MUST_USE enum tfmc_status rule_set_read_builtin(struct rule_set *s, struct diag_context *cx);
/* Loads the rules of --rules, which are tried first, and the built-in ones, without those of --disable-rule. */
TFMC_MUST_USE enum tfmc_status rule_set_load(struct rule_set *s, struct diag_context *cx,
                                             const struct pass_options *options);
/* The rule of that name, or NULL. */
const struct rule *rule_set_find(const struct rule_set *s, const char *name);

/* An embedded .rule file; a NULL name ends the list. */
struct rule_file {
	const char *name;
	const unsigned char *text;
	size_t len;
};
extern const struct rule_file rule_files[];

/* ---- matching ---- */

/* Value of a variable: a number, or a list or dim of the function being read. */
struct rule_binding {
	bool is_set;
	double number; /* float, int, flag, word, dtype */
	struct ir_int_list ints;
	struct ir_dim_list dims;
	const struct ir_dim *dim;
};

struct rule_match {
	const struct rule *rule;
	int64_t number; /* of the application, from 1: fuel=number is the least that still allows it */
	struct ir_value values[RULE_VALUES_MAX];
	const struct ir_op *ops[RULE_OPS_MAX]; /* the op that each op of match is bound to */
	struct rule_binding vars[RULE_VARS_MAX];
	const struct ir_dim *dims[RULE_DIMS_MAX];
	bool has_lead;
	int n_lead;
	const struct ir_dim *lead[IR_RANK_MAX];
};

/* Whether the rule matches with op as root; fills *out. */
bool rule_matches(const struct rebuild *r, const struct rule *rule, const struct ir_op *op,
                  struct rule_match *out);

/* ---- building ---- */

/* Instantiation of one side of a rule with the bindings of a match. */
struct rule_side {
	struct ir_builder *b;
	struct arena *arena; /* for attribute lists */
	const struct rule_match *m;
	const struct rule_op *ops; /* [n] ops of the side */
	int n;
	const struct ir_type *type; /* default type of constants and results */
	struct ir_value *values;    /* [m->rule->n_values] in the new function; in: operands; out: results */
};
/* Builds all ops. False: their types do not fit, or the builder failed. */
bool rule_side_build(const struct rule_side *s);
/* The type of a pattern with bound dims; t NULL: the leading axes only. Returns NULL if a dim is not bound. */
const struct ir_type *rule_side_type(const struct rule_side *s, const struct rule_type *t,
                                     enum ir_dtype dtype);

/* ---- evaluation, shared by matching, building and checking ---- */

/* Evaluates an expression. False: a variable is unbound or a dim is not constant. */
bool rule_expr_eval(const struct rule_expr *e, const struct rule_match *m, double *out);
/* Whether all predicates are true; *failed (may be NULL): the first that is false. */
bool rule_preds_hold(const struct rule_match *m, const struct rule_pred **failed);
/* Index of a function of expressions, or -1; all names, for messages. */
int rule_call_find(const char *name);
size_t rule_call_names(const char *const **names);
/* Compares exactly if f32 represents the pattern, else to a relative 1e-6. */
bool rule_number_fits(double pattern, double value);
/* Whether the type of a rule admits the dtype. */
bool rule_elem_fits(const struct rule_type *t, enum ir_dtype dtype);

/* ---- rewriting ---- */

/* Applies a rule set in a rebuild traversal: matches in the backward walk, replacements in the forward walk. */
struct rewriter {
	const struct rule_set *set;
	int64_t fuel;  /* applications left */
	bool nonempty; /* rules that except empty rows may be used */
	const struct ir_func *f;
	const struct rule_match **found; /* [f->n_values] by first result */
	const struct rule *wrong; /* first rule whose replacement had another type (an error in the rule) */
	struct loc wrong_at;
	int64_t matched, applied;
};

/* For match and emit of struct rewrite, in a pass that has more than rules. */
bool rewriter_match(struct rewriter *w, struct rebuild *r, const struct ir_op *op);
/* False when op was not matched by a rule. */
bool rewriter_emit(struct rewriter *w, struct rebuild *r, const struct ir_op *op);
/* After a traversal: TFMC_INTERNAL after a diagnostic if a replacement had another type. */
TFMC_MUST_USE enum tfmc_status rewriter_status(const struct rewriter *w, struct pass_context *p);

#endif
