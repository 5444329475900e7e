/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numeric checks of rules: small random instances of the left side are built, rewritten by that one rule, and
 * both sides run in the interpreter on numbers chosen to provoke errors. What "equal" means follows from the
 * class of the rule:
 *
 *   bits         the same bits, also of NaN, infinities and signed zeros, in f32, bf16 and (where it fits) i32
 *   round        in f64 both sides agree to 1e-9 of the largest result; in f32 the right side is at most
 *                twice as far from the f64 result as the left side, plus 4 units in the last place
 *   reassociate  as round, with 4 units for each element that is summed
 *   approximate  on moderate numbers, to the stated tolerance of the largest result
 *
 * Except for bits, an instance on which the left side overflows (an infinite or NaN intermediate result of
 * finite operands) promises nothing and is not compared.
 */
#ifndef TFMC_PASSES_RULE_CHECK_CHECK_H
#define TFMC_PASSES_RULE_CHECK_CHECK_H

#include "ir/interp/interp.h"
#include "passes/rules/rule.h"

struct rule_check {
	const struct rule *rule;
	int64_t compared;     /* runs whose results were compared */
	int64_t skipped;      /* runs on which the left side overflowed */
	double worst;         /* largest error as a part of what is allowed */
	const char *wrong;    /* NULL: all is well; else what differs, in the arena */
	const char *instance; /* IR text of the left side that shows it; NULL when there is none */
};

/*
 * All rules of a set; a table goes to `table` (may be NULL). A wrong rule is an
 * error diagnostic at its text, with the instance as note; then TFMC_INVALID.
 */
TFMC_MUST_USE enum tfmc_status rule_check_all(struct diag_context *cx, const struct rule_set *set, int seeds,
                                              struct buf *table);

/* ---- instances (instance.c) ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
struct rule_rng {
	uint64_t state;
};
/* In [0, n), n > 0. */
int rule_below(struct rule_rng *r, int n);
/* In [0, 1). */
double rule_real(struct rule_rng *r);

/*
 * A module with one function whose body is the left side: its operands are the
 * parameters, its root is the result. The same seed gives the same shapes and
 * attributes for every dtype of the floats. NULL when this draw does not fit
 * together (types or predicates).
 */
struct ir_module *rule_instance(const struct rule *rule, uint64_t seed, enum ir_dtype floats);

#endif
