/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line as a struct, derived from options.def.
 */
#ifndef TFMC_DRIVER_OPTIONS_H
#define TFMC_DRIVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"

enum driver_command {
	COMMAND_COMPILE = 1 << 0,
	COMMAND_RUN = 1 << 1,
	COMMAND_GENERATE = 1 << 2,
	COMMAND_VERIFY = 1 << 3,
	COMMAND_OPT = 1 << 4,
	COMMAND_EXPAND = 1 << 5,
	COMMAND_INSPECT = 1 << 6,
	COMMAND_EXPLAIN = 1 << 7,
	COMMAND_OPS = 1 << 8,
	COMMAND_PASSES = 1 << 9,
	COMMAND_PLAN = 1 << 10,
	COMMAND_SCORE = 1 << 11,
	COMMAND_ATTEND = 1 << 12,
	COMMAND_BENCH = 1 << 13,
	COMMAND_TOKENIZE = 1 << 16,
	COMMAND_REDUCE = 1 << 14,
	COMMAND_IMPORT = 1 << 15,
};

struct option_list {
	const char **items;
	size_t n, cap;
};

#define OPTION_FIELD_FLAG(field) bool field;
#define OPTION_FIELD_TEXT(field) const char *field; /* NULL: not given */
#define OPTION_FIELD_LIST(field) struct option_list field;
struct driver_options {
	enum driver_command command;
	const char *input; /* the positional argument; NULL: none */
#define OPTION(field, name, kind, value, commands, help) OPTION_FIELD_##kind(field)
#include "frontend/driver/options.def"
};

/*
 * Parses argv (the first is the program). False with a one-line message in
 * `error` when the command line cannot be used. @FILE arguments are replaced
 * by the words of the file (separated by white space, "..." and '...' kept).
 */
bool options_parse(struct arena *a, int argc, char **argv, struct driver_options *out, struct buf *error);
/* Text of --help. */
void options_help(struct buf *out, const struct driver_options *o);

#endif
