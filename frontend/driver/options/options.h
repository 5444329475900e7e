/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line as a struct, derived from options.def, commands.def and aliases.def.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_OPTIONS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"

enum command_number {
#define COMMAND(id, name, input, synopsis, line, example, text) COMMAND_NUMBER_##id,
#include "frontend/driver/options/commands.def"
};

/* One bit each, so that an option can name those it belongs to. */
enum driver_command {
#define COMMAND(id, name, input, synopsis, line, example, text) COMMAND_##id = 1 << COMMAND_NUMBER_##id,
#include "frontend/driver/options/commands.def"
};

struct option_list {
	const char **items;
	size_t n, cap;
};

#define OPTION_FIELD_FLAG(field) bool field;
#define OPTION_FIELD_TEXT(field) const char *field; /* NULL: not given */
#define OPTION_FIELD_LIST(field) struct option_list field;
/* Numbers, too: NULL when not given. */
#define OPTION_FIELD_INT(field)   const int64_t *field;
#define OPTION_FIELD_COUNT(field) const int64_t *field;
#define OPTION_FIELD_REAL(field)  const double *field;
#define OPTION_FIELD_BYTES(field) const uint64_t *field;
struct driver_options {
	enum driver_command command;
	bool command_named; /* by the first argument */
	const char *input;  /* the positional argument; NULL: none */
#define OPTION(field, name, kind, value, commands, help) OPTION_FIELD_##kind(field)
#include "frontend/driver/options/options.def"
};

static inline int64_t option_int(const int64_t *given, int64_t otherwise)
{
	return given ? *given : otherwise;
}

static inline double option_real(const double *given, double otherwise)
{
	return given ? *given : otherwise;
}

/*
 * Parses argv (the first is the program). False with a one-line message in
 * `error` when the command line cannot be used. @FILE arguments are replaced
 * by the words of the file (separated by white space, "..." and '...' kept).
 */
bool options_parse(struct arena *a, int argc, char **argv, struct driver_options *out, struct buf *error);
/*
 * Appends the help of the command `name`, or with NULL the list of commands. False with a one-line message in
 * `error` when there is no such command.
 */
bool options_help(struct buf *out, const char *name, struct buf *error);

/* ---- for help.c: the tables ---- */
enum option_kind { KIND_FLAG, KIND_TEXT, KIND_LIST, KIND_INT, KIND_COUNT, KIND_REAL, KIND_BYTES };

struct option_row {
	const char *name;
	enum option_kind kind;
	const char *value, *help;
	unsigned commands;
	size_t offset;
};
extern const struct option_row option_rows[];
extern const size_t option_rows_n;

/* Whether a command takes a file (or another word) beside its options. */
enum command_input { COMMAND_INPUT, COMMAND_MAY_INPUT, COMMAND_NO_INPUT };

struct command_row {
	const char *name;
	enum driver_command command;
	enum command_input input;
	const char *synopsis, *line, *example, *text;
};
extern const struct command_row command_rows[];
extern const size_t command_rows_n;
const struct command_row *options_command(enum driver_command command);

/* How the option is written: -o, -O2, --steps. */
const char *option_dash(const char *name);
/* The second name of an option; NULL: it has none. */
const char *option_second_name(const char *name);
/* The command of that name; NULL after a message in `error`. */
const struct command_row *options_find_command(const char *name, struct buf *error);

#endif
