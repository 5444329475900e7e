/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the manager: what runs (manager.c) and what it shows (show.c).
 */
#ifndef TFMC_PASSES_FRAMEWORK_MANAGER_H
#define TFMC_PASSES_FRAMEWORK_MANAGER_H

#include "passes/framework/pass.h"

struct manager {
	struct diag_context *cx;
	const struct pipeline *pipeline;
	const struct pass_options *options;
	struct pass_report *report;
	size_t number; /* of the next dump */
};

bool pass_words_have(const struct pass_words *w, const char *word);

void manager_show_before(const struct manager *g, const char *pass, const struct ir_module *m);
/* The text and the difference, as the options ask for. */
void manager_show_after(const struct manager *g, const char *pass, const struct ir_module *before,
                        const struct ir_module *after);
void manager_dump(struct manager *g, const char *pass, const struct ir_module *m);
/* The module before step `step`, with all that it takes to run the rest of the pipeline again. */
void manager_reproduce(const struct manager *g, size_t step, const struct ir_module *m);

#endif
