/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases: functions that serve some calls of another function, their base, with
 * some of its dims bound or bounded (struct ir_case in ir/core/module.h). Calling the
 * base directly is always right; whoever makes code for an entry may test the
 * conditions and call the case instead.
 */
#ifndef TFMC_IR_BUILDER_CASE_H
#define TFMC_IR_BUILDER_CASE_H

#include "ir/core/module.h"

#define IR_CONDITIONS_MAX 16 /* of one case */

/* Whether the symbol occurs in d. */
bool ir_dim_has_symbol(const struct ir_dim *d, int sym);
/* The symbol that d consists of, or -1. */
int ir_dim_as_symbol(const struct ir_dim *d);

/* Whether it occurs in the type; in a value, an attribute, a parameter or the arena of f. */
bool ir_type_has_symbol(const struct ir_type *t, int sym);
bool ir_func_has_symbol(const struct ir_func *f, int sym);

/* The function that f is a case of, f itself when it is none. NULL when there is no such function. */
const struct ir_func *ir_case_base(const struct ir_module *m, const struct ir_func *f);
/* values[i]: the value of symbol i. */
bool ir_case_holds(const struct ir_case *c, const int64_t *values);
/* The first case of `base` whose conditions hold, otherwise base. */
const struct ir_func *ir_select_case(const struct ir_module *m, const struct ir_func *base,
                                     const int64_t *values);

/* d and t with the symbols that `= value` binds replaced. */
const struct ir_dim *ir_case_bind_dim(struct ir_module *m, const struct ir_case *c, const struct ir_dim *d);
const struct ir_type *ir_case_bind_type(struct ir_module *m, const struct ir_case *c,
                                        const struct ir_type *t);

/* Upper bound of d in calls that f serves: the bounds of the symbols, and what `<=` says. */
int64_t ir_func_dim_hi(const struct ir_module *m, const struct ir_func *f, const struct ir_dim *d);

/* The dim of the rows that a call of f appends to the state, when that is one symbol and not that of the
 * batch; otherwise -1. */
int ir_func_token_dim(const struct ir_func *f);

/* `case of @decode when S = 1, B <= 4` */
void ir_case_print(struct buf *out, const struct ir_module *m, const struct ir_case *c);

#endif
