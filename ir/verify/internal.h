/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the verifier: what is known of the function under check. Checks
 * report and go on.
 */
#ifndef TFMC_IR_VERIFY_INTERNAL_H
#define TFMC_IR_VERIFY_INTERNAL_H

#include "ir/verify/verify.h"

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
/* Text of a type for a message, in the verifier's arena. */
const char *verify_type_text(struct verifier *v, const struct ir_type *t);
/* `%name` as the text form prints it, without making it unique. */
const char *verify_value_text(struct verifier *v, struct ir_value value);

/* module.c: names, weights, states, signatures */
void verify_declarations(struct verifier *v);
void verify_signature(struct verifier *v);
/* case.c: conditions and signature of a case */
void verify_case(struct verifier *v);
/* stage.c */
void verify_stage_of(struct verifier *v, const struct ir_op *op);
/* plan.c: a function of the stage plan whose structure is right */
void verify_plan(struct verifier *v);

#endif
