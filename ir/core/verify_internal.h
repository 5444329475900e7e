/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the verifier. Checks report and continue. */
#ifndef TFMC_IR_VERIFY_INTERNAL_H
#define TFMC_IR_VERIFY_INTERNAL_H

#include "ir/core/verify.h"

struct verifier {
	struct ir_module *m;
	struct diag_context *cx;
	const struct ir_func *f;
	struct arena arena;
	bool *visible;  /* [n_values] */
	uint32_t *uses; /* [n_values] */
	size_t n_failed;
};

void verify_fail(struct verifier *v, struct ir_loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* `%name`, not made unique; in the verifier's arena. */
const char *verify_value_string(struct verifier *v, struct ir_value value);

/* case.c: the case v->f, if it is one */
void verify_case(struct verifier *v);
/* plan.c: the memory plan of v->f, whose structure has been verified */
void verify_plan(struct verifier *v);

#endif
