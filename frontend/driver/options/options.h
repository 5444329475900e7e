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

/* The words of options of the kind WORD: options.def names the list NAME, whose words are enum NAME_word. The first
 * is the default. */
#define backend_WORDS(W) W(RUN_COMPILED, "cpu") W(RUN_INTERPRETED, "interp")
#define early_WORDS(W)           \
	W(EARLY_BY_FILE, "file") \
	W(EARLY_WORD_TRUE, "true") W(EARLY_WORD_FALSE, "false") W(EARLY_WORD_NEVER, "never")
#define form_WORDS(W)                \
	W(FORM_TEXT, "text")         \
	W(FORM_MARKDOWN, "markdown") \
	W(FORM_MAN, "man") W(FORM_BASH, "bash") W(FORM_ZSH, "zsh") W(FORM_FISH, "fish")
#define message_WORDS(W)            \
	W(DIAGNOSTICS_TEXT, "text") \
	W(DIAGNOSTICS_SHORT, "short") W(DIAGNOSTICS_JSON, "json") W(DIAGNOSTICS_SARIF, "sarif")
#define place_WORDS(W) W(WEIGHTS_AUTO, "auto") W(WEIGHTS_EMBED, "embed") W(WEIGHTS_FILE, "file")
#define when_WORDS(W)  W(WHEN_AUTO, "auto") W(WHEN_ALWAYS, "always") W(WHEN_NEVER, "never")

#define WORD_ID(id, text)   id,
#define WORD_TEXT(id, text) "|" text
enum backend_word { backend_WORDS(WORD_ID) };
enum early_word { early_WORDS(WORD_ID) };
enum form_word { form_WORDS(WORD_ID) };
enum message_word { message_WORDS(WORD_ID) };
enum place_word { place_WORDS(WORD_ID) };
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

struct option_list {
	const char **items;
	size_t n, cap;
};

#define OPTION_FIELD_FLAG(field, value)  bool field;
#define OPTION_FIELD_TEXT(field, value)  const char *field; /* NULL: not given */
#define OPTION_FIELD_LIST(field, value)  struct option_list field;
#define OPTION_FIELD_NAMES(field, value) struct option_list field;
#define OPTION_FIELD_WORD(field, value)  enum value##_word field;
/* Numbers, too: NULL when not given. */
#define OPTION_FIELD_INT(field, value)      const int64_t *field;
#define OPTION_FIELD_COUNT(field, value)    const int64_t *field;
#define OPTION_FIELD_REAL(field, value)     const double *field;
#define OPTION_FIELD_AMOUNT(field, value)   const double *field;
#define OPTION_FIELD_FRACTION(field, value) const double *field;
#define OPTION_FIELD_FACTOR(field, value)   const double *field;
#define OPTION_FIELD_BYTES(field, value)    const uint64_t *field;
struct driver_options {
	enum driver_command command;
	bool command_named; /* by the first argument */
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
 * Parses argv (the first is the program). False with a one-line message in
 * `error` when the command line cannot be used. @FILE arguments are replaced
 * by the words of the file (separated by white space, "..." and '...' kept).
 */
bool options_parse(struct arena *a, int argc, char **argv, struct driver_options *out, struct buf *error);
/* The form of messages that words of a command line ask for which could not be parsed otherwise. */
enum message_word options_guess_form(int argc, char **argv);
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
	KIND_AMOUNT,   /* a real from 0 */
	KIND_FRACTION, /* from 0 to 1 */
	KIND_FACTOR,   /* above 0 */
	KIND_BYTES
};

struct option_row {
	const char *name;
	enum option_kind kind;
	const char *value; /* WORD: its words with | between them */
	const char *help;
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

/* ", " and " and " between the names of some commands. */
void options_print_commands(struct buf *out, unsigned commands);
/* How the option is written: -o, -O2, --steps. */
const char *option_dash(const char *name);
/* The second name of an option; NULL: it has none. */
const char *option_second_name(const char *name);
/* The option that is called so here or elsewhere, _ as -; or NULL. */
const char *option_meant(struct arena *a, const char *name);
/* The command of that name; NULL after a message in `error`. */
const struct command_row *options_find_command(const char *name, struct buf *error);

#endif
