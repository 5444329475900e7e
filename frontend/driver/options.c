/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line parser and help, driven by options.def. Nothing is printed here.
 */
#include "frontend/driver/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/strmap.h"

enum option_kind { KIND_FLAG, KIND_TEXT, KIND_LIST };

struct option_row {
	const char *name;
	enum option_kind kind;
	const char *value, *help;
	unsigned commands;
	size_t offset;
};

#define COMPILE  COMMAND_COMPILE
#define RUN      COMMAND_RUN
#define GENERATE COMMAND_GENERATE
#define VERIFY   COMMAND_VERIFY
#define OPT      COMMAND_OPT
#define EXPAND   COMMAND_EXPAND
#define IMPORT   COMMAND_IMPORT
#define INSPECT  COMMAND_INSPECT
#define PLAN     COMMAND_PLAN
#define BENCH    COMMAND_BENCH
#define REDUCE   COMMAND_REDUCE
#define SCORE    COMMAND_SCORE
#define ATTEND   COMMAND_ATTEND
#define TOKENIZE COMMAND_TOKENIZE
#define ALL      (~0u)
static const struct option_row rows[] = {
#define OPTION(field, name, kind, value, commands, help) \
	{name, KIND_##kind, value, help, (unsigned)(commands), offsetof(struct driver_options, field)},
#include "frontend/driver/options.def"
};
#undef COMPILE
#undef RUN
#undef GENERATE
#undef VERIFY
#undef OPT
#undef EXPAND
#undef IMPORT
#undef INSPECT
#undef PLAN
#undef BENCH
#undef REDUCE
#undef SCORE
#undef ATTEND
#undef TOKENIZE
#undef ALL

struct command_row {
	const char *name;
	enum driver_command command;
	const char *synopsis, *help;
};

static const struct command_row commands[] = {
        {"compile", COMMAND_COMPILE, "tfmc [compile] MODEL -o FILE.o",
         "compile a model file into an object and a header"},
        {"run", COMMAND_RUN, "tfmc run MODEL --inputs FILE --outputs FILE",
         "compile in memory and run one entry"},
        {"generate", COMMAND_GENERATE, "tfmc generate MODEL --prompt TEXT | --tokens IDS",
         "generate text or token ids"},
        {"score", COMMAND_SCORE, "tfmc score MODEL --prompt TEXT | --tokens IDS",
         "log-probability of every token of a text"},
        {"attend", COMMAND_ATTEND, "tfmc attend MODEL --prompt TEXT --html FILE",
         "which token looks at which, for every layer and head"},
        {"tokenize", COMMAND_TOKENIZE, "tfmc tokenize MODEL --prompt TEXT | --tokens IDS | -o FILE",
         "ids of a text, text of ids, or the packed tokenizer as a file"},
        {"verify", COMMAND_VERIFY, "tfmc verify MODEL",
         "run the checks of the file and compare with the interpreter"},
        {"plan", COMMAND_PLAN, "tfmc plan MODEL", "memory and work of the model, before any code generation"},
        {"bench", COMMAND_BENCH, "tfmc bench MODEL [--entry NAME]",
         "time of an entry, beside the measured roof"},
        {"opt", COMMAND_OPT, "tfmc opt FILE.tir --passes=LIST", "IR text in, IR text out"},
        {"reduce", COMMAND_REDUCE, "tfmc reduce FILE.tir --test=COMMAND -o SMALL.tir",
         "the smallest IR text on which a command still fails"},
        {"expand", COMMAND_EXPAND, "tfmc expand MODEL",
         "print the model at the next lower level of the language"},
        {"import", COMMAND_IMPORT, "tfmc import FOLDER|GGUF -o model.yaml",
         "a model file for a hub folder (config.json and weights) or a GGUF file"},
        {"inspect", COMMAND_INSPECT, "tfmc inspect FILE", "what a file is: model, weights, object"},
        {"explain", COMMAND_EXPLAIN, "tfmc explain E108", "an error in full"},
        {"ops", COMMAND_OPS, "tfmc ops", "reference of the ops of the IR (markdown)"},
        {"passes", COMMAND_PASSES, "tfmc passes", "list of the passes"},
};

struct parser {
	struct arena *arena;
	struct driver_options *out;
	struct buf *error;
	struct option_list args; /* after response files */
	size_t at;
};

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
	const char **slot = ARENA_PUSH(p->arena, list);
	if (!slot)
		return fail(p, "out of memory");
	*slot = text;
	return true;
}

/* Splits the text of a response file into words. */
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

static const struct option_row *find_option(const char *name, size_t n)
{
	for (size_t i = 0; i < TFMC_COUNT(rows); i++)
		if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n))
			return &rows[i];
	return NULL;
}

/* Among the options of the command: another command's would be refused next. */
static const char *nearest_option(const char *name, enum driver_command command)
{
	const char *names[TFMC_COUNT(rows)];
	size_t n = 0;
	for (size_t i = 0; i < TFMC_COUNT(rows); i++)
		if (rows[i].commands & (unsigned)command)
			names[n++] = rows[i].name;
	return nearest_name(name, names, n);
}

static bool store(struct parser *p, const struct option_row *row, const char *value)
{
	void *field = (char *)p->out + row->offset;
	switch (row->kind) {
	case KIND_FLAG: *(bool *)field = true; return true;
	case KIND_TEXT: *(const char **)field = value; return true;
	case KIND_LIST: return push(p, field, value);
	}
	return false;
}

static bool parse_option(struct parser *p, const char *arg)
{
	const char *name = arg + (arg[1] == '-' ? 2 : 1);
	size_t n = strcspn(name, "=");
	const struct option_row *row = find_option(name, n);
	if (!row) {
		const char *near = nearest_option(arena_strndup(p->arena, name, n), p->out->command);
		if (near)
			return fail(p, "unknown option %s; did you mean --%s?", arg, near);
		return fail(p, "unknown option %s", arg);
	}
	if (!(row->commands & (unsigned)p->out->command))
		return fail(p, "option --%s does not belong to this command", row->name);
	if (row->kind == KIND_FLAG)
		return name[n] ? fail(p, "option --%s takes no value", row->name) : store(p, row, NULL);
	if (name[n])
		return store(p, row, name + n + 1);
	if (p->at >= p->args.n)
		return fail(p, "option --%s wants a value (%s)", row->name, row->value);
	return store(p, row, p->args.items[p->at++]);
}

static void parse_command(struct parser *p)
{
	p->out->command = COMMAND_COMPILE;
	if (!p->args.n)
		return;
	for (size_t i = 0; i < TFMC_COUNT(commands); i++) {
		if (strcmp(p->args.items[0], commands[i].name))
			continue;
		p->out->command = commands[i].command;
		p->at = 1;
		return;
	}
}

static bool parse_positional(struct parser *p, const char *arg)
{
	if (p->out->input)
		return fail(p, "one file is wanted, found %s and %s", p->out->input, arg);
	p->out->input = arg;
	return true;
}

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
	parse_command(&p);
	bool only_files = false;
	while (p.at < p.args.n) {
		const char *arg = p.args.items[p.at++];
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

static void help_options(struct buf *out, unsigned command)
{
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		if (!(rows[i].commands & command))
			continue;
		const char *dash = strlen(rows[i].name) <= 2 || rows[i].name[0] == 'O' ? "-" : "--";
		size_t from = out->len;
		buf_printf(out, "  %s%s%s%s", dash, rows[i].name,
		           rows[i].value[0] ? (strlen(rows[i].name) > 1 ? "=" : " ") : "", rows[i].value);
		size_t used = out->len - from;
		buf_fill(out, ' ', used < 34 ? 34 - used : 1);
		buf_printf(out, "%s\n", rows[i].help);
	}
}

void options_help(struct buf *out, const struct driver_options *o)
{
	buf_str(out, "tfmc: compiles Transformer models into object files\n\n");
	for (size_t i = 0; i < TFMC_COUNT(commands); i++)
		buf_printf(out, "  %-48s %s\n", commands[i].synopsis, commands[i].help);
	buf_str(out, "\nOptions of this command:\n");
	help_options(out, (unsigned)o->command);
	buf_str(out, "\nExit codes: 0 ok, 1 input rejected, 2 usage, 3 environment, 4 verification failed, "
	             "70 internal error\n");
}
