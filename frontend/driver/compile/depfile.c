/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dependency file of -MD: one rule for make (Ninja reads it, too). Targets are the outputs, prerequisites the
 * files that were read, in the order of reading. It is an output like the others and renamed before them, so that a
 * new object never stands next to an old rule.
 */
#include <string.h>

#include "frontend/driver/compile/compile.h"

/* make unescapes backslashes only before a character that needs one: those are doubled. */
static void print_escaped_name(struct buf *out, const char *name)
{
	size_t slashes = 0;
	for (const char *p = name; *p; p++) {
		if (*p == ' ' || *p == '\t' || *p == '#' || *p == ':')
			buf_fill(out, '\\', slashes + 1);
		else if (*p == '$')
			buf_char(out, '$');
		slashes = *p == '\\' ? slashes + 1 : 0;
		buf_char(out, *p);
	}
	buf_fill(out, '\\', slashes); /* a blank or a colon follows */
}

/* A newline ends a rule, and make has no escape for it. */
static bool check_newline(struct driver *d, const char *name)
{
	if (!strpbrk(name, "\n\r"))
		return true;
	diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "-MD: make has no way to write the name '%s'", name);
	return false;
}

/* A warning only: Ninja takes such names literally. */
static bool check_pattern(struct driver *d, const char *name)
{
	if (!strpbrk(name, "%="))
		return true;
	diag_warning(&d->diag, LOC_NONE, DIAG_OPTION, "-MD: make takes '%s' for a pattern or a variable",
	             name);
	return !d->diag.warnings_are_errors;
}

static bool print_rule(struct driver *d, struct buf *out)
{
	const struct outputs *o = &d->outputs;
	bool ok = true;
	for (size_t i = 0; i < o->n; i++) {
		ok = check_newline(d, o->items[i]->path) && check_pattern(d, o->items[i]->path) && ok;
		buf_str(out, i ? " " : "");
		print_escaped_name(out, o->items[i]->path);
	}
	buf_char(out, ':');
	for (size_t i = 0; i < o->inputs.n; i++) {
		ok = check_newline(d, o->inputs.items[i]) && ok;
		buf_str(out, " \\\n ");
		print_escaped_name(out, o->inputs.items[i]);
	}
	buf_char(out, '\n');
	return ok;
}

enum tfmc_status driver_add_depfile(struct driver *d, const char *path)
{
	struct buf rule;
	struct output_file *f = NULL;
	if (!d->outputs.n) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "-MD requires an output that is a file");
		return TFMC_INVALID;
	}
	buf_init(&rule);
	bool ok = print_rule(d, &rule);
	if (ok)
		f = outputs_add(&d->outputs, path, d->options.input);
	if (f) {
		(void)output_write_text(f, &rule);
		outputs_move_first(&d->outputs);
	}
	buf_destroy(&rule);
	return !ok ? TFMC_INVALID : f ? TFMC_OK : TFMC_IO;
}
