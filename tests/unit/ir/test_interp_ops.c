/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter, op by op: one check for every row of ir/core/ops.def (a missing one
 * does not compile), with values computed by hand. The checks are in
 * tests/support/interp.
 */
#include <check.h>

#include "ir/core/op.h"
#include "tests/support/interp/interp_checks.h"

static void (*const checks[IR_N_OPS])(void) = {
#define OP(name, traits, operands, attributes, results, axes, formula) [OP_##name] = interp_check_##name,
#include "ir/core/ops.def"
};

START_TEST(computes_op)
{
	checks[_i]();
}
END_TEST

Suite *suite_interp_ops(void)
{
	Suite *s = suite_create("interp_ops");
	TCase *t = tcase_create("all");
	tcase_add_loop_test(t, computes_op, 0, IR_N_OPS);
	suite_add_tcase(s, t);
	return s;
}
