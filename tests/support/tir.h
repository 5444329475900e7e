/* SPDX-License-Identifier: Apache-2.0 */
/*
* Common to tests of the IR: a module read from text, with its diagnostics as
 * text.
 */
#ifndef TFMC_TESTS_SUPPORT_TIR_H
#define TFMC_TESTS_SUPPORT_TIR_H

#include "ir/core/module.h"

struct tir {
	struct diag_context cx;
	struct buf log; /* rendered diagnostics */
	struct ir_module *m;
};

void tir_init(struct tir *t);
void tir_destroy(struct tir *t);
/* Reads the text as "test.tir" into t->m; the module before is destroyed. */
enum tfmc_status tir_parse(struct tir *t, const char *text);
/* As tir_parse; fails the test with the diagnostics when the text is refused or does not verify. */
void tir_load(struct tir *t, const char *text);
/* The module as text, in the arena. */
const char *tir_text(struct arena *a, const struct diag_context *cx, const struct ir_module *m);
/* The module's text is exactly this. */
void tir_expect(const struct tir *t, const char *text);
/* A copy of f in m as the case `name`; fails the test when the module does not verify then. */
const struct ir_func *tir_add_case(struct diag_context *cx, struct ir_module *m, const struct ir_func *f,
                                   const char *name, const struct ir_case *c);
/* The log has the words. */
void tir_says(const struct tir *t, const char *words);

#endif
