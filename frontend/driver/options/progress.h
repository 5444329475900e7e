/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows what long work tells: on a terminal a bar in one line, from the first
 * second of a stage on, else one line of text each 10 seconds.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_PROGRESS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_PROGRESS_H

#include "frontend/driver/options/options.h"
#include "ir/diag/progress.h"

enum progress_form { PROGRESS_NEVER, PROGRESS_LINES, PROGRESS_BAR };

struct progress_view {
	enum progress_form form;
	double (*clock)(void *user); /* seconds */
	void (*write)(void *user, const char *text, size_t n);
	void *user;
	const char *stage; /* shown or waited for; NULL: none */
	double begin, shown;
	uint64_t first; /* what was done when the stage began */
	bool is_drawn;
};

/* What `--progress` means. */
enum progress_form progress_form_of(enum when_word when, bool is_terminal);
/* A listener for struct progress: `user` is a struct progress_view. */
void progress_show(void *user, const struct progress_state *s);
/* Takes the bar away, before other text is written to the terminal; the next call of progress_show draws it
 * again.
 */
void progress_hide(struct progress_view *v);

#endif
