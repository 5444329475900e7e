/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows struct progress: on a terminal as a bar in one line, from the first second of a stage on, else as a line of
 * text each 10 seconds.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_PROGRESS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_PROGRESS_H

#include "frontend/driver/options/options.h"
#include "ir/support/progress.h"

enum progress_form { PROGRESS_NEVER, PROGRESS_LINES, PROGRESS_BAR };

struct progress_view {
	enum progress_form form;
	double (*clock)(void *user); /* seconds */
	void (*write)(void *user, const char *text, size_t n);
	void *user;
	const char *stage;   /* of the last report; NULL: none */
	double begin, shown; /* clock at the start of the stage, and of the last drawing */
	uint64_t first;      /* s->done at the start of the stage: the rate counts from there */
	bool is_drawn;       /* the bar is on the terminal */
};

/* The form that --progress selects. */
enum progress_form progress_form_of(enum when_word when, bool is_terminal);
/* The listener of struct progress; `user` is a struct progress_view. */
void progress_show(void *user, const struct progress_state *s);
/* Erases the bar before other text is written to the terminal. The next progress_show draws it again. */
void progress_hide(struct progress_view *v);

#endif
