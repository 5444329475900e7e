/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help for a terminal (at most 100 columns wide), Markdown, man, and completion for bash, zsh and fish, all derived
 * from the tables of options and commands.
 */

#include "frontend/driver/options/options.h"

#include <string.h>

#define HELP_COLUMNS     100
#define MARKDOWN_COLUMNS 130
#define HELP_TITLE       "compiles Transformer models into object files"
#define HELP_EXIT_CODES \
	"0 ok, 1 input rejected, 2 usage, 3 environment, 4 verification failed, 70 internal error"

/* Prints a row of two columns, the second from `column` on, wrapped. A name that does not fit into the first is
   followed by a line break. The first has two blanks on either side. */
static void print_row(struct buf *out, const char *name, const char *text, size_t column)
{
	size_t n = strlen(name);
	buf_printf(out, "  %s", name);
	if (n + 4 > column)
		buf_char(out, '\n');
	buf_fill(out, ' ', n + 4 > column ? column : column - n - 2);
	buf_wrap(out, text, column, column, HELP_COLUMNS);
}

/* Prints the names of an option and its value, "-o, --output=FILE", the one-letter name first. */
static void print_option(struct buf *out, const struct option_row *o)
{
	const char *second = option_second_name(o->name);
	bool second_first = second && strlen(second) == 1;
	const char *a = second_first ? second : o->name, *b = second_first ? o->name : second;
	buf_printf(out, "%s%s", option_dashes(a), a);
	if (b)
		buf_printf(out, ", %s%s", option_dashes(b), b);
	if (o->value[0])
		buf_printf(out, "%s%s", b || strlen(a) > 2 ? "=" : " ", o->value);
}

/* Prints the options of one command: those of every command (`common`), or its own. */
static void print_options(struct buf *out, unsigned command, bool common)
{
	struct buf name;
	buf_init(&name);
	for (const struct option_row *o = option_rows; o < option_rows + option_rows_n; o++) {
		if (!(o->commands & command) || (o->commands == ~0u) != common)
			continue;
		buf_clear(&name);
		print_option(&name, o);
		print_row(out, name.data, o->help, 34);
	}
	buf_destroy(&name);
}

/* Prints the help of one command. */
static void print_command(struct buf *out, const struct command_row *c)
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
	print_options(&options, (unsigned)c->command, false);
	if (options.len)
		buf_printf(out, "\nOptions:\n%s", options.data);
	buf_str(out, "\nOptions of every command:\n");
	print_options(out, (unsigned)c->command, true);
	buf_destroy(&options);
}

/* Appends the help of the command `name`, or, without a name, the list of commands. False with a message in `error`:
 * there is no such command. */
bool options_help(struct buf *out, const char *name, struct buf *error)
{
	const struct command_row *c = name ? options_find_command(name, error) : NULL;
	if (c)
		print_command(out, c);
	if (name)
		return c != NULL;
	buf_str(out, "tfmc: " HELP_TITLE "\n\n");
	for (size_t i = 0; i < command_rows_n; i++)
		print_row(out, command_rows[i].name, command_rows[i].line, 14);
	buf_str(out, "\nCompiling a model: tfmc MODEL -o model.o\n");
	buf_wrap(out, "MODEL is a model file (.yaml), a hub folder (config.json and weights) or a GGUF file.",
	         0, 0, HELP_COLUMNS);
	buf_str(out, "Options of a command: tfmc help COMMAND\n");
	buf_str(out,
	        "Manual: share/doc/tfmc/manual where tfmc is installed, frontend/manual in its sources\n");
	buf_wrap(out, "Exit codes: " HELP_EXIT_CODES, 0, 12, HELP_COLUMNS);
	return true;
}

/* How a shell completes the value of an option. */
enum value_kind { VALUE_NONE, VALUE_ANY, VALUE_FILE, VALUE_DIRECTORY, VALUE_WORDS };

/* Returns what the value of an option is; the table has it as the placeholder of the help. */
static enum value_kind value_kind(const struct option_row *o)
{
	if (o->kind == KIND_FLAG)
		return VALUE_NONE;
	if (o->kind == KIND_WORD)
		return VALUE_WORDS;
	return !strcmp(o->value, "FILE")  ? VALUE_FILE
	       : !strcmp(o->value, "DIR") ? VALUE_DIRECTORY
	                                  : VALUE_ANY;
}

/* Puts `before` before every character of `marks`. */
static void print_escaped(struct buf *out, const char *text, const char *marks, const char *before)
{
	for (; *text; text++) {
		if (strchr(marks, *text))
			buf_str(out, before);
		buf_char(out, *text);
	}
}

static void print_commands_of(struct buf *out, const struct option_row *o)
{
	if (o->commands == ~0u)
		buf_str(out, "every command");
	else
		options_print_commands(out, o->commands);
}

/* ---- Markdown ---- */

/* Prints all options as a list; characters that are Markdown are escaped. */
static void print_markdown_options(struct buf *out)
{
	struct buf item;
	buf_init(&item);
	for (const struct option_row *o = option_rows; o < option_rows + option_rows_n; o++) {
		buf_clear(&item);
		buf_str(&item, "- `");
		print_option(&item, o);
		buf_str(&item, "` (");
		print_commands_of(&item, o);
		buf_str(&item, "): ");
		print_escaped(&item, o->help, "*<", "\\");
		buf_wrap(out, item.data, 0, 2, MARKDOWN_COLUMNS);
	}
	buf_destroy(&item);
}

static void print_markdown_commands(struct buf *out)
{
	struct buf item;
	buf_init(&item);
	for (size_t i = 0; i < command_rows_n; i++) {
		const struct command_row *c = &command_rows[i];
		buf_clear(&item);
		buf_printf(&item, "- `tfmc %s`: %s", c->synopsis, c->text);
		buf_wrap(out, item.data, 0, 2, MARKDOWN_COLUMNS);
	}
	buf_destroy(&item);
}

/* Prints the page of all commands and options. The examples are one script: later ones read files that earlier ones
 * wrote. */
static void print_markdown(struct buf *out)
{
	buf_str(out, "# Commands and options\n\n");
	buf_wrap(out,
	         "`tfmc help --format=markdown` prints this page, `tfmc help COMMAND` one command with "
	         "its "
	         "options. Exit codes: " HELP_EXIT_CODES ".",
	         0, 0, MARKDOWN_COLUMNS);
	buf_str(out, "\n## Commands\n");
	print_markdown_commands(out);
	buf_str(out,
	        "\nExamples of commands and options, in a folder with the source of tfmc in `tfmc`:\n```sh\n"
	        "ln -s tfmc/examples .; export PATH=~/opt/tfmc/bin:$PATH\n"
	        "tfmc examples/embed/model.yaml --emit=tir=embed.tir --stop-after=encode\n"
	        "echo 1,2,3 >ids.txt; echo 3/3/21 >dates.txt; mkdir a\n"
	        "echo '{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4}' >a/adapter_config.json\n"
	        "q=base_model.model.model.layers.0.self_attn.q_proj\n"
	        "python3 examples/manual/draw.py a/adapter_model.safetensors $q.lora_A.weight:2x96 "
	        "$q.lora_B.weight:96x2\n");
	size_t line = out->len;
	for (size_t i = 0; i < command_rows_n; i++) {
		bool fits = i > 0 && out->len - line + strlen(command_rows[i].example) < 100;
		buf_str(out, fits ? "; " : i ? "\n" : "");
		line = fits ? line : out->len;
		buf_str(out, command_rows[i].example);
	}
	buf_str(out, "\n```\n\n## Options\n");
	buf_wrap(out,
	         "Options have one or two dashes, their values come after `=` or as the next word; a word "
	         "@FILE stands for the words of a file.",
	         0, 0, MARKDOWN_COLUMNS);
	print_markdown_options(out);
}

/* ---- man ---- */

/* Escapes characters that roff reads as an escape or, at the start of a line, as a request. */
static void print_roff(struct buf *out, const char *text)
{
	buf_str(out, strchr(".'", *text) ? "\\&" : "");
	for (; *text; text++) {
		const char *as = *text == '\\'  ? "\\e"
		                 : *text == '-' ? "\\-"
		                 : *text == '~' ? "\\(ti"
		                 : *text == '^' ? "\\(ha"
		                                : NULL;
		if (as)
			buf_str(out, as);
		else
			buf_char(out, *text);
	}
	buf_char(out, '\n');
}

/* Prints all options as tagged paragraphs. */
static void print_roff_options(struct buf *out)
{
	struct buf text;
	buf_init(&text);
	for (const struct option_row *o = option_rows; o < option_rows + option_rows_n; o++) {
		buf_clear(&text);
		print_option(&text, o);
		buf_str(out, ".TP\n.B ");
		print_roff(out, text.data);
		buf_clear(&text);
		buf_printf(&text, "%s (", o->help);
		print_commands_of(&text, o);
		buf_char(&text, ')');
		print_roff(out, text.data);
	}
	buf_destroy(&text);
}

/* Prints the manual page of section 1, in the macros of man(7). */
static void print_man(struct buf *out, const char *version)
{
	buf_printf(out, ".TH TFMC 1 \"\" \"tfmc %s\" \"User Commands\"\n.SH NAME\ntfmc \\- " HELP_TITLE "\n",
	           version);
	buf_str(out, ".SH SYNOPSIS\n");
	for (size_t i = 0; i < command_rows_n; i++) {
		buf_str(out, i ? ".br\n.B tfmc\n" : ".B tfmc\n");
		print_roff(out, command_rows[i].synopsis);
	}
	buf_str(out, ".SH DESCRIPTION\nOptions have one or two dashes, their values come after = or as the "
	             "next word.\n"
	             "A word @FILE stands for the words of a file.\n.SH COMMANDS\n");
	for (size_t i = 0; i < command_rows_n; i++) {
		const struct command_row *c = &command_rows[i];
		buf_printf(out, ".SS %s\n", c->name);
		print_roff(out, c->text);
		buf_str(out, ".PP\n.nf\n");
		print_roff(out, c->example);
		buf_str(out, ".fi\n");
	}
	buf_str(out, ".SH OPTIONS\n");
	print_roff_options(out);
	buf_str(out, ".SH EXIT STATUS\n" HELP_EXIT_CODES
	             ".\n.SH FILES\n.TP\n.I ~/.cache/tfmc\nCode and packed weights of "
	             "commands that run a model; it may be removed at any time.\n");
}

/* ---- shells ---- */

static void put_name(struct buf *out, const char *name, const char *separator)
{
	buf_printf(out, "%s%s%s", option_dashes(name), name, separator);
}

/* Both names of an option, each followed by the separator. */
static void put_names(struct buf *out, const struct option_row *o, const char *separator)
{
	const char *second = option_second_name(o->name);
	put_name(out, o->name, separator);
	if (second)
		put_name(out, second, separator);
}

/* The values of a WORD option, separated by blanks. */
static void put_words(struct buf *out, const char *words)
{
	for (; *words; words++)
		buf_char(out, *words == '|' ? ' ' : *words);
}

static void command_names(struct buf *out, const char *separator)
{
	for (size_t i = 0; i < command_rows_n; i++)
		buf_printf(out, "%s%s", i ? separator : "", command_rows[i].name);
}

/* A case of `case $before in` for all options with values of this kind. A separator follows each name, so the last
 * pattern is -, which no option is. */
static void bash_values(struct buf *out, enum value_kind kind, const char *action)
{
	for (size_t i = 0; i < option_rows_n; i++)
		if (value_kind(&option_rows[i]) == kind)
			put_names(out, &option_rows[i], " | ");
	buf_printf(out, "-) %s; return ;;\n", action);
}

/* Prints a function that completes the value of the option before the word, else options of the command, else files.
 * bash splits words at =, so a word = is skipped. Commands are printed from the last to the first, compile, whose
 * pattern * is for calls without a command. */
static void print_bash(struct buf *out)
{
	buf_str(out, "# Completion of tfmc for bash.\n_tfmc()\n{\n"
	             "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options "
	             "IFS=$' \\t\\n'\n"
	             "\t[ \"$word\" != = ] || word=\n"
	             "\t[ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}\n"
	             "\tcase $before in\n");
	for (size_t i = 0; i < option_rows_n; i++) {
		if (value_kind(&option_rows[i]) != VALUE_WORDS)
			continue;
		buf_char(out, '\t');
		put_names(out, &option_rows[i], " | ");
		buf_str(out, "-) COMPREPLY=($(compgen -W \"");
		put_words(out, option_rows[i].value);
		buf_str(out, "\" -- \"$word\")); return ;;\n");
	}
	buf_char(out, '\t');
	bash_values(out, VALUE_FILE, "mapfile -t COMPREPLY < <(compgen -f -- \"$word\")");
	buf_char(out, '\t');
	bash_values(out, VALUE_DIRECTORY, "mapfile -t COMPREPLY < <(compgen -d -- \"$word\")");
	buf_char(out, '\t');
	bash_values(out, VALUE_ANY, "COMPREPLY=()");
	buf_str(out, "\thelp) COMPREPLY=($(compgen -W \"");
	command_names(out, " ");
	buf_str(out, "\" -- \"$word\")); return ;;\n\tesac\n\tcase ${COMP_WORDS[1]} in\n");
	for (size_t i = command_rows_n; i-- > 0;) {
		buf_printf(out, "\t%s) options=\"", i ? command_rows[i].name : "*");
		for (size_t k = 0; k < option_rows_n; k++)
			if (option_rows[k].commands & (unsigned)command_rows[i].command)
				put_names(out, &option_rows[k], " ");
		buf_str(out, "\" ;;\n");
	}
	buf_str(out, "\tesac\n\tmapfile -t COMPREPLY < <(\n\t\tcase $word in\n"
	             "\t\t-*) compgen -W \"$options\" -- \"$word\" ;;\n"
	             "\t\t*)\n\t\t\t[ \"$COMP_CWORD\" -ne 1 ] || compgen -W \"");
	command_names(out, " ");
	buf_str(out, "\" -- \"$word\"\n\t\t\tcompgen -f -- \"$word\"\n\t\t\t;;\n\t\tesac\n\t)\n}\n"
	             "complete -o filenames -F _tfmc tfmc\n");
}

/* Prints an argument of _arguments for one name of an option: *, if it may be repeated, name, help in brackets,
 * kind of the value. */
static void zsh_option(struct buf *out, const struct option_row *o, const char *name)
{
	enum value_kind kind = value_kind(o);
	buf_printf(out, " \\\n\t\t'%s", o->kind == KIND_LIST || o->kind == KIND_NAMES ? "*" : "");
	put_name(out, name, kind == VALUE_NONE ? "[" : strlen(name) > 1 ? "=[" : "[");
	for (const char *s = o->help; *s; s++) {
		if (strchr("[]:\\", *s))
			buf_char(out, '\\');
		buf_str(out, *s == '\'' ? "'\\''" : (char[]){*s, 0});
	}
	buf_char(out, ']');
	switch (kind) {
	case VALUE_NONE: break;
	case VALUE_ANY: buf_str(out, ":value: "); break;
	case VALUE_FILE: buf_str(out, ":file:_files"); break;
	case VALUE_DIRECTORY: buf_str(out, ":folder:_files -/"); break;
	case VALUE_WORDS:
		buf_str(out, ":word:(");
		put_words(out, o->value);
		buf_char(out, ')');
		break;
	}
	buf_char(out, '\'');
}

/* Prints a function that calls _arguments with the options of the command. The pattern * of compile, which is called
 * without a name, comes last. */
static void print_zsh(struct buf *out)
{
	buf_str(out, "#compdef tfmc\n# Completion of tfmc for zsh.\n_tfmc_commands()\n{\n\tlocal -a "
	             "commands=(");
	for (size_t i = 0; i < command_rows_n; i++) {
		buf_printf(out, "\n\t\t'%s:", command_rows[i].name);
		print_escaped(out, command_rows[i].line, ":", "\\");
		buf_char(out, '\'');
	}
	buf_str(out, ")\n\t_describe command commands\n}\n"
	             "if ((CURRENT == 2)) && [[ $words[2] != -* ]]; "
	             "then\n\t_tfmc_commands\n\t_files\n\treturn\nfi\n"
	             "case $words[2] in\n");
	for (size_t i = command_rows_n; i-- > 0;) {
		const struct command_row *c = &command_rows[i];
		buf_printf(out, "%s)\n\t_arguments", i ? c->name : "*");
		for (size_t k = 0; k < option_rows_n; k++) {
			const char *second = option_second_name(option_rows[k].name);
			if (!(option_rows[k].commands & (unsigned)c->command))
				continue;
			zsh_option(out, &option_rows[k], option_rows[k].name);
			if (second)
				zsh_option(out, &option_rows[k], second);
		}
		const char *input = c->command == COMMAND_HELP ? "_tfmc_commands" : "_files";
		if (c->input != COMMAND_NO_INPUT)
			buf_printf(out, " \\\n\t\t'*:input:%s'", input);
		buf_str(out, "\n\t;;\n");
	}
	buf_str(out, "esac\n");
}

/* Prints a text as a word of fish in single quotes. */
static void fish_text(struct buf *out, const char *text)
{
	buf_char(out, '\'');
	print_escaped(out, text, "'\\", "\\");
	buf_char(out, '\'');
}

/* Prints a name as an argument of complete: -s for one letter, -o for a long name with one dash, else -l. */
static void fish_name(struct buf *out, const char *name)
{
	bool is_old = strlen(name) > 1 && !strcmp(option_dashes(name), "-");
	buf_printf(out, " -%s %s", strlen(name) == 1 ? "s" : is_old ? "o" : "l", name);
}

/* Prints a call of `complete` for each command and each option. An option is offered after its commands (-n), that
 * of compile also where no command was given. Its value is a file (-r -F), or none of fish's own (-x). */
static void print_fish(struct buf *out)
{
	buf_str(out, "# Completion of tfmc for fish.\nfunction __tfmc_compiles\n\tnot "
	             "__fish_seen_subcommand_from ");
	command_names(out, " ");
	buf_str(out, "\nend\n");
	for (size_t i = 0; i < command_rows_n; i++) {
		buf_printf(out, "complete -c tfmc -n __fish_use_subcommand -a %s -d ", command_rows[i].name);
		fish_text(out, command_rows[i].line);
		buf_char(out, '\n');
	}
	for (size_t i = 0; i < option_rows_n; i++) {
		const struct option_row *o = &option_rows[i];
		enum value_kind kind = value_kind(o);
		bool is_common = o->commands == ~0u, is_compile = o->commands & (unsigned)COMMAND_COMPILE;
		buf_str(out, "complete -c tfmc");
		if (!is_common)
			buf_printf(out, " -n '%s__fish_seen_subcommand_from",
			           is_compile ? "__tfmc_compiles; or " : "");
		for (size_t k = 0; !is_common && k < command_rows_n; k++)
			if (o->commands & (unsigned)command_rows[k].command)
				buf_printf(out, " %s", command_rows[k].name);
		buf_str(out, is_common ? "" : "'");
		fish_name(out, o->name);
		if (option_second_name(o->name))
			fish_name(out, option_second_name(o->name));
		buf_str(out, kind == VALUE_NONE                              ? ""
		             : kind == VALUE_FILE || kind == VALUE_DIRECTORY ? " -r -F"
		                                                             : " -x");
		if (kind == VALUE_WORDS) {
			buf_str(out, " -a '");
			put_words(out, o->value);
			buf_char(out, '\'');
		}
		buf_str(out, " -d ");
		fish_text(out, o->help);
		buf_char(out, '\n');
	}
}

void options_page(struct buf *out, enum help_format_word form, const char *version)
{
	switch (form) {
	case HELP_FORMAT_TEXT: return;
	case HELP_FORMAT_MARKDOWN: print_markdown(out); return;
	case HELP_FORMAT_MAN: print_man(out, version); return;
	case HELP_FORMAT_BASH: print_bash(out); return;
	case HELP_FORMAT_ZSH: print_zsh(out); return;
	case HELP_FORMAT_FISH: print_fish(out); return;
	}
}
