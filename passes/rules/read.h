/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the reader of rules (read.c, read_ops.c, read_expr.c). Functions
 * return false after a report, as those of the parser of the IR text, whose
 * tokens and messages they share.
 */
#ifndef TFMC_PASSES_RULES_READ_H
#define TFMC_PASSES_RULES_READ_H

#include "ir/parse/parser.h"
#include "passes/rules/rule.h"

struct rule_reader {
	struct parser p;     /* tokens and messages; it has no module */
	struct arena *arena; /* of the set */
	struct rule *rule;   /* under construction */
	bool in_into;
	/* What the rule's lists are while it grows; copied when it is complete. */
	struct rule_value values[RULE_VALUES_MAX];
	struct rule_op match[RULE_OPS_MAX], into[RULE_OPS_MAX];
};

/* read_expr.c */
bool read_expr(struct rule_reader *r, const struct rule_expr **out);
bool read_type(struct rule_reader *r, const struct rule_type **out);
/* The variable of that name; when the match may bind it, it is made. -1 after a report. */
int read_variable(struct rule_reader *r, const struct tok *t, bool may_bind, enum ir_attr_kind kind);
/* The dim of that name; the match makes it. -1 after a report. */
int read_dim(struct rule_reader *r, const struct tok *t, bool may_bind);

/* read_ops.c: one line of match or into */
bool read_line(struct rule_reader *r);
bool read_known_value(struct rule_reader *r, const struct tok *t, int *out);

#endif
