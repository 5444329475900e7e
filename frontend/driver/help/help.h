/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of commands and options as text: for a terminal, for man, as Markdown, as completion for shells.
 */
#ifndef TFMC_FRONTEND_DRIVER_HELP_HELP_H
#define TFMC_FRONTEND_DRIVER_HELP_HELP_H

#include "frontend/driver/options/options.h"

/*
 * Appends the help of the command `name`, or with NULL the list of commands. False with a one-line message in
 * `error` when there is no such command.
 */
bool options_help(struct buf *out, const char *name, struct buf *error);
/* The same of all commands for other programs: any form but FORM_TEXT. */
void options_page(struct buf *out, enum form_word form, const char *version);

#define HELP_TITLE "compiles Transformer models into object files"
#define HELP_EXIT_CODES \
	"0 ok, 1 input rejected, 2 usage, 3 environment, 4 verification failed, 70 internal error"
/* "-o, --output=FILE" */
void help_option(struct buf *out, const struct option_row *o);

#endif
