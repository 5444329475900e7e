/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases: specializations of a function, its base, for calls whose dims fulfil conditions (struct ir_case in
 * ir/core/module.h). Calling the base is always right; the code generator of an entry may test the conditions and
 * call the case instead.
 */
#ifndef TFMC_IR_CORE_CASE_H
#define TFMC_IR_CORE_CASE_H

#include "ir/core/module.h"

#define IR_CONDITIONS_MAX 16 /* of one case */

/* The symbol occurs in d. */
bool ir_dim_has_symbol(const struct ir_dim *d, int sym);
/* The index of the symbol that d is, or -1. */
int ir_dim_as_symbol(const struct ir_dim *d);

/* The symbol occurs in the type; in a value, attribute or parameter of f, or in its arena. */
bool ir_type_has_symbol(const struct ir_type *t, int sym);
bool ir_func_has_symbol(const struct ir_func *f, int sym);

/* The base of f, or f itself if it is no case; NULL if the module has no function of that name. */
const struct ir_func *ir_case_base(const struct ir_module *m, const struct ir_func *f);
/* All conditions hold where symbol i has the value values[i]; none does whose dim overflows. */
bool ir_case_holds(const struct ir_case *c, const int64_t *values);
/* The first case of `base` whose conditions hold, else base. */
const struct ir_func *ir_select_case(const struct ir_module *m, const struct ir_func *base,
                                     const int64_t *values);

/* d and t with the symbols of `symbol = value` conditions replaced by their values. */
const struct ir_dim *ir_case_bind_dim(struct ir_module *m, const struct ir_case *c, const struct ir_dim *d);
const struct ir_type *ir_case_bind_type(struct ir_module *m, const struct ir_case *c,
                                        const struct ir_type *t);

/* Upper bound of d in calls of f, from the bounds of the symbols and the `<=` conditions of f. */
int64_t ir_func_dim_hi(const struct ir_module *m, const struct ir_func *f, const struct ir_dim *d);

/* The symbol of the number of tokens of a call: rows that f appends to a state, else axis 1 of its first ids [B, T]
 * if it counts past tokens. -1 if there is none. */
int ir_func_token_dim(const struct ir_func *f);

/* `case of @decode when S = 1, B <= 4` */
void ir_case_print(struct buf *out, const struct ir_module *m, const struct ir_case *c);

#endif
