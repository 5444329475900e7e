/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help: the tables of commands and options for a terminal, as Markdown, as a man page, and as completion for shells.
 */
#ifndef TFMC_FRONTEND_DRIVER_HELP_HELP_H
#define TFMC_FRONTEND_DRIVER_HELP_HELP_H

#include "frontend/driver/options/options.h"

/* Appends the help of the command `name`, or the list of commands (NULL). False with a one-line message in
 * `error` when there is no such command. */
bool options_help(struct buf *out, const char *name, struct buf *error);
/* All commands and options in a format for other programs, any but HELP_FORMAT_TEXT. */
void options_page(struct buf *out, enum help_format_word form, const char *version);

#endif
