/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line as a struct. options.def, commands.def and aliases.def are the tables; parser, help and completion
 * are derived from them.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_OPTIONS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"

/* Values of options of the kind WORD: NAME_WORDS lists those that options.def calls NAME, as enum NAME_word and
 * their spelling. The first is the default. */
#define backend_WORDS(W) W(RUN_COMPILED, "cpu") W(RUN_INTERPRETED, "interp")
#define early_stopping_WORDS(W)             \
	W(EARLY_STOPPING_FROM_FILE, "file") \
	W(EARLY_STOPPING_TRUE, "true") W(EARLY_STOPPING_FALSE, "false") W(EARLY_STOPPING_NEVER, "never")
#define help_format_WORDS(W)                \
	W(HELP_FORMAT_TEXT, "text")         \
	W(HELP_FORMAT_MARKDOWN, "markdown") \
	W(HELP_FORMAT_MAN, "man")           \
	W(HELP_FORMAT_BASH, "bash") W(HELP_FORMAT_ZSH, "zsh") W(HELP_FORMAT_FISH, "fish")
#define diagnostics_format_WORDS(W) \
	W(DIAGNOSTICS_TEXT, "text") \
	W(DIAGNOSTICS_SHORT, "short") W(DIAGNOSTICS_JSON, "json") W(DIAGNOSTICS_SARIF, "sarif")
#define weights_placement_WORDS(W) W(WEIGHTS_AUTO, "auto") W(WEIGHTS_EMBED, "embed") W(WEIGHTS_FILE, "file")
#define when_WORDS(W)              W(WHEN_AUTO, "auto") W(WHEN_ALWAYS, "always") W(WHEN_NEVER, "never")

#define WORD_ID(id, text)   id,
#define WORD_TEXT(id, text) "|" text
enum backend_word { backend_WORDS(WORD_ID) };
enum early_stopping_word { early_stopping_WORDS(WORD_ID) };
enum help_format_word { help_format_WORDS(WORD_ID) };
enum diagnostics_format_word { diagnostics_format_WORDS(WORD_ID) };
enum weights_placement_word { weights_placement_WORDS(WORD_ID) };
enum when_word { when_WORDS(WORD_ID) };

enum command_number {
#define COMMAND(id, name, input, synopsis, line, example, text) COMMAND_NUMBER_##id,
#include "frontend/driver/options/commands.def"
};

/* One bit each, so that an option can name those it belongs to. */
enum driver_command {
#define COMMAND(id, name, input, synopsis, line, example, text) COMMAND_##id = 1 << COMMAND_NUMBER_##id,
#include "frontend/driver/options/commands.def"
};

/* Values of an option that may be repeated. */
struct option_list {
	const char **items;
	size_t n, cap;
};

/* The field of struct driver_options for each kind. Single values are NULL when the option is not given. */
#define OPTION_FIELD_FLAG(field, value)     bool field;
#define OPTION_FIELD_TEXT(field, value)     const char *field;
#define OPTION_FIELD_LIST(field, value)     struct option_list field;
#define OPTION_FIELD_NAMES(field, value)    struct option_list field;
#define OPTION_FIELD_WORD(field, value)     enum value##_word field;
#define OPTION_FIELD_INT(field, value)      const int64_t *field;
#define OPTION_FIELD_COUNT(field, value)    const int64_t *field;
#define OPTION_FIELD_REAL(field, value)     const double *field;
#define OPTION_FIELD_AMOUNT(field, value)   const double *field;
#define OPTION_FIELD_FRACTION(field, value) const double *field;
#define OPTION_FIELD_FACTOR(field, value)   const double *field;
#define OPTION_FIELD_BYTES(field, value)    const uint64_t *field;
struct driver_options {
	enum driver_command command;
	bool command_named; /* the command was given by name, not implied by a file */
	const char *input;  /* the positional argument; NULL: none */
#define OPTION(field, name, kind, value, commands, help) OPTION_FIELD_##kind(field, value)
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
 * Parses argv; argv[0] is the program. False with a one-line message in `error` when the command line is wrong. An
 * argument @FILE (response file) is replaced by the words of the file, split at white space outside of quotes.
 */
bool options_parse(struct arena *a, int argc, char **argv, struct driver_options *out, struct buf *error);
/* The value of --diagnostics in a command line that options_parse() rejects, so that this error has its format,
 * too. */
enum diagnostics_format_word options_guess_diagnostics_format(int argc, char **argv);
/* ---- the tables ---- */
enum option_kind {
	KIND_FLAG,
	KIND_TEXT,
	KIND_LIST,
	KIND_NAMES,
	KIND_WORD,
	KIND_INT,
	KIND_COUNT,
	KIND_REAL,
	KIND_AMOUNT,   /* real >= 0 */
	KIND_FRACTION, /* 0 to 1 */
	KIND_FACTOR,   /* real > 0 */
	KIND_BYTES
};

struct option_row {
	const char *name;
	enum option_kind kind;
	const char *value; /* placeholder in the help; WORD: its values, separated by | */
	const char *help;
	unsigned commands; /* enum driver_command bits of those that accept it */
	size_t offset;     /* of the field in struct driver_options */
};
extern const struct option_row option_rows[];
extern const size_t option_rows_n;

/* Whether a command takes a file (or another positional argument). */
enum command_input { COMMAND_INPUT, COMMAND_MAY_INPUT, COMMAND_NO_INPUT };

struct command_row {
	const char *name;
	enum driver_command command;
	enum command_input input;
	const char *synopsis, *line, *example, *text;
};
extern const struct command_row command_rows[];
extern const size_t command_rows_n;
/* The row of a command, always found. */
const struct command_row *options_command(enum driver_command command);

/* Appends the names of the commands whose bits are set: "run, generate and score". */
void options_print_commands(struct buf *out, unsigned commands);
/* The dashes that an option is written with: "-" for -o, -O2 and -mcpu, else "--". */
const char *option_dashes(const char *name);
/* The alias of an option that help shows, too; NULL: none. */
const char *option_second_name(const char *name);
/* The option that is called so by tfmc or by another tool, with _ for -; NULL: none. For hints at names in
 * --set. */
const char *option_by_any_name(struct arena *a, const char *name);
/* The command of that name; NULL with a message in `error`. */
const struct command_row *options_find_command(const char *name, struct buf *error);

/* ---- help, in help.c ---- */
/* Appends the help of the command `name`, or the list of commands (NULL). False with a one-line message in
 * `error` when there is no such command. */
bool options_help(struct buf *out, const char *name, struct buf *error);
/* All commands and options in a format for other programs, any but HELP_FORMAT_TEXT. */
void options_page(struct buf *out, enum help_format_word form, const char *version);

#endif
