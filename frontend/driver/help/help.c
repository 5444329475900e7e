/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of help: the list of commands, and one command with its options, at most 100 columns wide.
 */
#include "frontend/driver/help/help.h"

#include <string.h>

#define HELP_COLUMNS 100

/* Two columns; a name that is too long for the first has a line of its own. */
static void row(struct buf *out, const char *name, const char *text, size_t column)
{
	size_t n = strlen(name);
	buf_printf(out, "  %s", name);
	if (n + 4 > column)
		buf_char(out, '\n');
	buf_fill(out, ' ', n + 4 > column ? column : column - n - 2);
	buf_wrap(out, text, column, column, HELP_COLUMNS);
}

void help_option(struct buf *out, const struct option_row *o)
{
	const char *second = option_second_name(o->name);
	bool second_first = second && strlen(second) == 1;
	const char *a = second_first ? second : o->name, *b = second_first ? o->name : second;
	buf_printf(out, "%s%s", option_dash(a), a);
	if (b)
		buf_printf(out, ", %s%s", option_dash(b), b);
	if (o->value[0])
		buf_printf(out, "%s%s", b || strlen(a) > 2 ? "=" : " ", o->value);
}

static void options_of(struct buf *out, unsigned command, bool common)
{
	struct buf name;
	buf_init(&name);
	for (const struct option_row *o = option_rows; o < option_rows + option_rows_n; o++) {
		if (!(o->commands & command) || (o->commands == ~0u) != common)
			continue;
		buf_clear(&name);
		help_option(&name, o);
		row(out, name.data, o->help, 34);
	}
	buf_destroy(&name);
}

static void one_command(struct buf *out, const struct command_row *c)
{
	buf_printf(out, "tfmc %s\n\n", c->synopsis);
	buf_wrap(out, c->text, 0, 0, HELP_COLUMNS);
	struct buf options;
	buf_init(&options);
	buf_str(out, "\nExamples:\n");
	for (const char *line = c->example; *line; line += *line == '\n') {
		buf_wrap(out, line, 0, 4, HELP_COLUMNS);
		line += strcspn(line, "\n");
	}
	options_of(&options, (unsigned)c->command, false);
	if (options.len)
		buf_printf(out, "\nOptions:\n%s", options.data);
	buf_str(out, "\nOptions of every command:\n");
	options_of(out, (unsigned)c->command, true);
	buf_destroy(&options);
}

bool options_help(struct buf *out, const char *name, struct buf *error)
{
	const struct command_row *c = name ? options_find_command(name, error) : NULL;
	if (c)
		one_command(out, c);
	if (name)
		return c != NULL;
	buf_str(out, "tfmc: " HELP_TITLE "\n\n");
	for (size_t i = 0; i < command_rows_n; i++)
		row(out, command_rows[i].name, command_rows[i].line, 14);
	buf_str(out, "\nCompiling a model: tfmc MODEL -o model.o\n");
	buf_wrap(out,
	         "MODEL is a model file (.yaml), a hub folder (config.json and safetensors) or a GGUF file.",
	         0, 0, HELP_COLUMNS);
	buf_str(out, "Options of a command: tfmc help COMMAND\n");
	buf_str(out,
	        "Manual: share/doc/tfmc/manual where tfmc is installed, frontend/manual in its sources\n");
	buf_wrap(out, "Exit codes: " HELP_EXIT_CODES, 0, 12, HELP_COLUMNS);
	return true;
}
