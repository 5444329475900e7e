/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line parser, driven by options.def, commands.def and aliases.def. Nothing is printed here.
 * An alias is another name of an option or a command: SAME is as good, RENAMED is a former name; OTHER (of an option)
 * and ACTION (of a command) are names in other tools, which are only suggested; GONE was removed.
 */
#define _POSIX_C_SOURCE 200809L /* access */
#include "frontend/driver/options/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/support/number.h"
#include "ir/support/strmap.h"

/* The commands under the short names of options.def. */
enum {
#define COMMAND(id, name, input, synopsis, line, example, text) id = COMMAND_##id,
#include "frontend/driver/options/commands.def"
	ALL = -1
};

#define VALUE_FLAG(value)     value
#define VALUE_TEXT(value)     value
#define VALUE_LIST(value)     value
#define VALUE_NAMES(value)    value
#define VALUE_INT(value)      value
#define VALUE_COUNT(value)    value
#define VALUE_REAL(value)     value
#define VALUE_AMOUNT(value)   value
#define VALUE_FRACTION(value) value
#define VALUE_FACTOR(value)   value
#define VALUE_BYTES(value)    value
#define VALUE_WORD(list)      &(list##_WORDS(WORD_TEXT))[1]
const struct option_row option_rows[] = {
#define OPTION(field, name, kind, value, commands, help)  \
	{name, KIND_##kind,          VALUE_##kind(value), \
	 help, (unsigned)(commands), offsetof(struct driver_options, field)},
#include "frontend/driver/options/options.def"
};

const size_t option_rows_n = TFMC_COUNT(option_rows);

const struct command_row command_rows[] = {
#define COMMAND(id, name, input, synopsis, line, example, text) \
	{#name, COMMAND_##id, COMMAND_##input, synopsis, line, example, text},
#include "frontend/driver/options/commands.def"
};
const size_t command_rows_n = TFMC_COUNT(command_rows);

enum alias_kind { ALIAS_SAME, ALIAS_RENAMED, ALIAS_OTHER, ALIAS_ACTION, ALIAS_GONE };

static const struct alias {
	enum alias_kind kind;
	const char *name, *ours, *suffix;
} aliases[] = {
#define SAME(name, ours)          {ALIAS_SAME, name, ours, ""},
#define RENAMED(name, ours)       {ALIAS_RENAMED, name, ours, ""},
#define OTHER(name, ours, suffix) {ALIAS_OTHER, name, ours, suffix},
#define ACTION(name, ours)        {ALIAS_ACTION, name, ours, ""},
#define GONE(name, hint)          {ALIAS_GONE, name, hint, ""},
#include "frontend/driver/options/aliases.def"
};

struct parser {
	struct arena *arena;
	struct driver_options *out;
	struct buf *error;
	struct option_list args; /* with response files expanded */
	size_t next_arg;         /* of the next argument */
};

/* Appends the error message. Always false. */
static bool fail(struct parser *p, const char *fmt, ...) TFMC_PRINTF(2, 3);

static bool fail(struct parser *p, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(p->error, fmt, ap);
	va_end(ap);
	return false;
}

static bool push(struct parser *p, struct option_list *list, const char *text)
{
	if (!ARENA_ADDED(p->arena, list, text))
		return fail(p, "out of memory");
	return true;
}

/* Appends the words of a response file: separated by white space; '...' and "..." are taken literally. */
static bool split_words(struct parser *p, const char *text)
{
	struct buf word;
	buf_init(&word);
	bool ok = true;
	for (const char *s = text; ok && *s;) {
		if (strchr(" \t\r\n", *s)) {
			s++;
			continue;
		}
		buf_clear(&word);
		for (char quote = 0; *s && (quote || !strchr(" \t\r\n", *s)); s++) {
			if (quote ? *s == quote : (*s == '"' || *s == '\''))
				quote = quote ? 0 : *s;
			else
				buf_char(&word, *s);
		}
		ok = push(p, &p->args, arena_strdup(p->arena, word.data));
	}
	buf_destroy(&word);
	return ok;
}

/* Appends the words of the response file @path. False with a message. */
static bool read_response(struct parser *p, const char *path)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return fail(p, "cannot read the response file %s: %s", path, strerror(errno));
	struct buf text;
	buf_init(&text);
	char block[4096];
	size_t n;
	while ((n = fread(block, 1, sizeof(block), f)) > 0 && text.len < (1u << 20))
		buf_bytes(&text, block, n);
	bool ok = !ferror(f) && text.len < (1u << 20) && !memchr(text.data, 0, text.len);
	fclose(f);
	ok = ok ? split_words(p, text.data)
	        : fail(p, "the response file %s is not a text of at most 1 MiB", path);
	buf_destroy(&text);
	return ok;
}

static const struct alias *find_alias(enum alias_kind kind, const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(aliases); i++)
		if (aliases[i].kind == kind && !strcmp(aliases[i].name, name))
			return &aliases[i];
	return NULL;
}

const char *option_second_name(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(aliases); i++)
		if (aliases[i].kind == ALIAS_SAME && !strcmp(aliases[i].ours, name))
			return aliases[i].name;
	return NULL;
}

/* Finds an option by name, alias or former name; NULL: none. */
static const struct option_row *find_option(const char *name)
{
	const struct alias *same = find_alias(ALIAS_SAME, name);
	same = same ? same : find_alias(ALIAS_RENAMED, name);
	for (size_t i = 0; i < option_rows_n; i++)
		if (!strcmp(option_rows[i].name, same ? same->ours : name))
			return &option_rows[i];
	return NULL;
}

const char *option_by_any_name(struct arena *a, const char *name)
{
	char *plain = (char *)(uintptr_t)arena_strdup(a, name);
	for (char *c = plain; c != NULL && *c != '\0'; c++)
		*c = *c == '_' ? '-' : *c;
	const struct alias *other = plain == NULL ? NULL : find_alias(ALIAS_OTHER, plain);
	const struct option_row *row = plain == NULL ? NULL : find_option(other ? other->ours : plain);
	return row == NULL ? NULL : row->name;
}

const char *option_dashes(const char *name)
{
	return strlen(name) <= 2 || !strncmp(name, "mcpu", 4) ? "-" : "--";
}

const struct command_row *options_command(enum driver_command command)
{
	size_t i = 0;
	while (command_rows[i].command != command)
		i++;
	return &command_rows[i];
}

void options_print_commands(struct buf *out, unsigned commands)
{
	bool first = true;
	for (size_t i = 0; i < command_rows_n; i++) {
		unsigned bit = (unsigned)command_rows[i].command;
		if (!(commands & bit))
			continue;
		commands &= ~bit;
		buf_printf(out, "%s%s", first ? "" : commands ? ", " : " and ", command_rows[i].name);
		first = false;
	}
}

/* Reports an unknown option, with the option that another tool calls so, else the nearest name, among those of this
 * command: one of another command would be rejected next. Always false. */
static bool suggest_option(struct parser *p, const char *arg, const char *name)
{
	const char *names[TFMC_COUNT(option_rows)];
	unsigned command = (unsigned)p->out->command;
	const struct alias *other = find_alias(ALIAS_OTHER, name), *gone = find_alias(ALIAS_GONE, name);
	const struct option_row *row = other ? find_option(other->ours) : NULL;
	size_t n = 0;
	if (gone)
		return fail(p, "there is no option %s any more; %s", arg, gone->ours);
	for (size_t i = 0; i < option_rows_n; i++)
		if (option_rows[i].commands & command)
			names[n++] = option_rows[i].name;
	if (row && row->commands & command)
		return fail(p, "unknown option %s; did you mean %s%s%s?", arg, option_dashes(row->name),
		            row->name, other->suffix);
	const char *near = nearest_name(name, names, n);
	if (near)
		return fail(p, "unknown option %s; did you mean %s%s?", arg, option_dashes(near), near);
	return fail(p, "unknown option %s", arg);
}

/* Finds a command by name. what: "command", or "command or file" where the word could be either. NULL with a
 * message in `error`, which suggests the command that other tools call so, or the nearest name. */
static const struct command_row *find_command(const char *name, const char *what, struct buf *error)
{
	const char *names[TFMC_COUNT(command_rows)];
	for (size_t i = 0; i < command_rows_n; i++) {
		names[i] = command_rows[i].name;
		if (!strcmp(names[i], name))
			return &command_rows[i];
	}
	const struct alias *other = find_alias(ALIAS_ACTION, name), *gone = find_alias(ALIAS_GONE, name);
	if (gone) {
		buf_printf(error, "there is no command '%s' any more; %s", name, gone->ours);
		return NULL;
	}
	const char *near = other ? other->ours : nearest_name(name, names, command_rows_n);
	buf_printf(error, "there is no %s '%s'", what, name);
	if (near)
		buf_printf(error, "; did you mean tfmc %s?", near);
	return NULL;
}

const struct command_row *options_find_command(const char *name, struct buf *error)
{
	return find_command(name, "command", error);
}

union number {
	int64_t i;
	uint64_t bytes;
	double real;
};

/* Parses a number and stores its address in the field of the option, which stays NULL if the option is not given.
 * False with a message: not in the range of its kind. */
static bool store_number(struct parser *p, const struct option_row *row, const char *text)
{
	union number *v = ARENA_NEW(p->arena, union number);
	size_t n = strlen(text);
	const char *what = "";
	bool ok = false;
	if (!v)
		return fail(p, "out of memory");
	if (row->kind == KIND_REAL || row->kind == KIND_AMOUNT || row->kind == KIND_FRACTION ||
	    row->kind == KIND_FACTOR) {
		what = row->kind == KIND_AMOUNT     ? "a number from 0"
		       : row->kind == KIND_FRACTION ? "a number from 0 to 1"
		       : row->kind == KIND_FACTOR   ? "a number above 0"
		                                    : "a number";
		ok = number_parse_f64(text, n, &v->real) && isfinite(v->real) &&
		     (row->kind == KIND_REAL || v->real > 0 || (v->real == 0 && row->kind != KIND_FACTOR)) &&
		     (row->kind != KIND_FRACTION || v->real <= 1);
	} else if (row->kind == KIND_BYTES) {
		what = "a number of bytes from 1, such as 500M or 2G";
		ok = number_parse_bytes(text, n, &v->bytes);
	} else {
		what = row->kind == KIND_COUNT ? "a number from 1" : "a number from 0";
		ok = number_parse_i64(text, n, &v->i) && v->i >= (row->kind == KIND_COUNT);
	}
	memcpy((char *)p->out + row->offset, &v, sizeof(v));
	return ok || fail(p, "%s%s is %s, not %s", option_dashes(row->name), row->name, what, text);
}

/* Sets *out to the index of text among words separated by |. False: it is none of them, and *out their number. */
static bool find_word(const char *words, const char *text, unsigned *out)
{
	size_t length = strlen(text), n;
	for (*out = 0; *words; words += n + (words[n] == '|'), ++*out) {
		n = strcspn(words, "|");
		if (n == length && !memcmp(words, text, n))
			return true;
	}
	return false;
}

/* Stores the word of an option of kind WORD. Every enum NAME_word counts from 0 in the order of its words, so the
 * index is the value. False with a message. */
static bool store_word(struct parser *p, const struct option_row *row, const char *text)
{
	if (find_word(row->value, text, (unsigned *)((char *)p->out + row->offset)))
		return true;
	buf_printf(p->error, "%s%s is ", option_dashes(row->name), row->name);
	const char *words = row->value; /* auto|always|never: "auto, always or never" */
	for (size_t n; *words; words += n + (words[n] == '|')) {
		n = strcspn(words, "|");
		bool last = !words[n], before_last = !last && !strchr(words + n + 1, '|');
		buf_printf(p->error, "%.*s%s", (int)n, words, last ? "" : before_last ? " or " : ", ");
	}
	return fail(p, ", not %s", text);
}

/* Stores the value of an option in its field; value NULL for a flag. False with a message. */
static bool store(struct parser *p, const struct option_row *row, const char *value)
{
	void *field = (char *)p->out + row->offset;
	switch (row->kind) {
	case KIND_FLAG: *(bool *)field = true; return true;
	case KIND_TEXT: *(const char **)field = value; return true;
	case KIND_NAMES:
		if (!value[strspn(value, ",")])
			return fail(p, "%s%s requires a name", option_dashes(row->name), row->name);
		return push(p, field, value);
	case KIND_LIST: return push(p, field, value);
	case KIND_WORD: return store_word(p, row, value);
	case KIND_INT:
	case KIND_COUNT:
	case KIND_REAL:
	case KIND_AMOUNT:
	case KIND_FRACTION:
	case KIND_FACTOR:
	case KIND_BYTES: return store_number(p, row, value);
	}
	return false;
}

/* Returns the option of one letter that a value is attached to, as in -oFILE; NULL: arg is not such an option. */
static const struct option_row *find_attached(const char *arg)
{
	const char letter[2] = {arg[1], 0};
	const struct option_row *row = arg[1] == '-' ? NULL : find_option(letter);
	return row && row->kind != KIND_FLAG ? row : NULL;
}

/* Parses one option, with the next word as its value if it needs one and has none after =. False with a message. */
static bool parse_option(struct parser *p, const char *arg)
{
	const char *name = arg + (arg[1] == '-' ? 2 : 1), *value = strchr(name, '=');
	const char *plain = arena_strndup(p->arena, name, strcspn(name, "="));
	if (!plain)
		return fail(p, "out of memory");
	const struct option_row *row = find_option(plain);
	/* not a name of another tool, which suggest_option knows: -ftime-report is not -f with a value */
	if (!row && !find_alias(ALIAS_OTHER, plain) && (row = find_attached(arg)) != NULL)
		value = arg + 1;
	if (!row)
		return suggest_option(p, arg, plain);
	if (!(row->commands & (unsigned)p->out->command)) {
		buf_printf(p->error, "option %s%s belongs to ", option_dashes(row->name), row->name);
		options_print_commands(p->error, row->commands);
		return fail(p, ", not to %s", options_command(p->out->command)->name);
	}
	if (row->kind == KIND_FLAG)
		return value ? fail(p, "option %s%s takes no value", option_dashes(row->name), row->name)
		             : store(p, row, NULL);
	if (value)
		return store(p, row, value + 1);
	if (p->next_arg >= p->args.n)
		return fail(p, "option %s%s requires a value (%s)", option_dashes(row->name), row->name,
		            row->value);
	return store(p, row, p->args.items[p->next_arg++]);
}

static bool is_command(const char *name)
{
	for (size_t i = 0; i < command_rows_n; i++)
		if (!strcmp(command_rows[i].name, name))
			return true;
	return false;
}

/* Reads the command: the first word, or if that is a file or an option, compile. A word that is neither was meant
 * as a command. False with a message. */
static bool parse_command(struct parser *p)
{
	const char *word = p->args.n ? p->args.items[0] : "-";
	p->out->command = COMMAND_COMPILE;
	if (!is_command(word))
		return word[strcspn(word, "-./")] || !access(word, F_OK) ||
		       find_command(word, "command or file", p->error);
	p->out->command = options_find_command(word, p->error)->command;
	p->out->command_named = true;
	p->next_arg = 1;
	return true;
}

/* Sets the file of the command; there is one at most. False with a message. */
static bool parse_positional(struct parser *p, const char *arg)
{
	/* unless there is a file called so */
	if (is_command(arg) && !p->out->command_named && access(arg, F_OK))
		return fail(p, "the command comes first: tfmc %s ...", arg);
	if (p->out->input)
		return fail(p, "expected one file, found %s and %s", p->out->input, arg);
	p->out->input = arg;
	return true;
}

/* Response files are expanded first, since the command itself may come from one. A word - alone is a positional
 * argument; after -- all words are. */
bool options_parse(struct arena *a, int argc, char **argv, struct driver_options *out, struct buf *error)
{
	struct parser p = {.arena = a, .out = out, .error = error};
	memset(out, 0, sizeof(*out));
	for (int i = 1; i < argc; i++) {
		bool ok = argv[i][0] == '@' && argv[i][1] ? read_response(&p, argv[i] + 1)
		                                          : push(&p, &p.args, argv[i]);
		if (!ok)
			return false;
	}
	if (!parse_command(&p))
		return false;
	bool only_files = false;
	while (p.next_arg < p.args.n) {
		const char *arg = p.args.items[p.next_arg++];
		if (!only_files && !strcmp(arg, "--")) {
			only_files = true;
			continue;
		}
		bool is_option = !only_files && arg[0] == '-' && arg[1];
		if (!(is_option ? parse_option(&p, arg) : parse_positional(&p, arg)))
			return false;
	}
	return true;
}

/* The last valid value counts, as in a correct command line, with = or as the next word. */
enum diagnostics_format_word options_guess_diagnostics_format(int argc, char **argv)
{
	const struct option_row *row = find_option("diagnostics");
	unsigned form = DIAGNOSTICS_TEXT, found;
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		const char *word = argv[i] + strspn(argv[i], "-");
		size_t n = strcspn(word, "=");
		if (word == argv[i] || n != strlen(row->name) || strncmp(word, row->name, n))
			continue;
		const char *value = word[n] ? word + n + 1 : i + 1 < argc ? argv[i + 1] : "";
		form = find_word(row->value, value, &found) ? found : form;
	}
	return (enum diagnostics_format_word)form;
}
