/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numeric tests of rewrite rules (tfmc_rules, unit/pass_rules): random small instances of the left side are rewritten
 * by the rule, and both sides run in the interpreter on inputs chosen to provoke errors. The comparison depends on
 * the class of the rule:
 *
 *   bits         the same bits, also for NaN, infinities and signed zeros, in f32, bf16 and (where it fits) i32
 *   round        in f64 both sides agree to 1e-9 of the largest result; in f32 the right side is at most twice as far
 *                from the f64 result as the left side, plus 4 units in the last place (ulp)
 *   reassociate  as round, with 4 ulp for each element that is summed
 *   approximate  on moderate inputs, to the stated tolerance of the largest result
 *
 * Except for bits, an instance on which the left side overflows (an infinite or NaN intermediate result of finite
 * operands) is undefined and not compared.
 */
#ifndef TFMC_TESTS_RULES_CHECK_H
#define TFMC_TESTS_RULES_CHECK_H

#include "ir/interp/interp.h"
#include "passes/graph/rule.h"

struct rule_check {
	const struct rule *rule;
	int64_t compared;     /* runs whose results were compared */
	int64_t skipped;      /* runs on which the left side overflowed */
	double worst;         /* largest error, relative to the bound */
	const char *wrong;    /* NULL: no error; else a description, in the arena */
	const char *instance; /* IR text of the failing left side, or NULL */
};

/*
 * Tests all rules of a set on `seeds` instances each and prints a table (may be NULL). For a wrong rule an error
 * at its text, with the instance as note, and TFMC_INVALID.
 */
TFMC_MUST_USE enum tfmc_status rule_check_all(struct diag_context *cx, const struct rule_set *set, int seeds,
                                              struct buf *table);

/* ---- instances (instance.c) ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
struct rule_rng {
	uint64_t state;
};
/* Random integer in [0, n), n > 0. */
int rule_below(struct rule_rng *r, int n);
/* Random number in [0, 1). */
double rule_real(struct rule_rng *r);

/*
 * Returns a module with one function, whose body is the left side of the rule; operands are parameters, the root
 * is the result. The same seed gives the same shapes and attributes for every floating type. NULL: this draw
 * violates types or predicates.
 */
struct ir_module *rule_instance(const struct rule *rule, uint64_t seed, enum ir_dtype floats);

#endif
