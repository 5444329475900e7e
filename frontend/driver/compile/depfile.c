/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dependency file of -MD: one rule for make (also read by Ninja), targets
 * are the outputs, prerequisites the files that were read, in the order of
 * reading. It is an output like the others, renamed before them, so that a new
 * object is never beside an old rule.
 */
#include <string.h>

#include "frontend/driver/compile/compile.h"

/* Backslashes before a character that gets one of its own are doubled: make halves them there. */
static void put_name(struct buf *out, const char *name)
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
	buf_fill(out, '\\', slashes); /* what follows a name is a blank or a colon */
}

/* Lines end a rule, and nothing escapes them. */
static bool check_name(struct driver *d, const char *name)
{
	if (!strpbrk(name, "\n\r"))
		return true;
	diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "-MD: make has no way to write the name '%s'", name);
	return false;
}

/* Ninja reads such names as they are. */
static bool check_target(struct driver *d, const char *name)
{
	if (!strpbrk(name, "%="))
		return true;
	diag_warning(&d->diag, LOC_NONE, DIAG_OPTION, "-MD: make takes '%s' for a pattern or a variable",
	             name);
	return !d->diag.warnings_are_errors;
}

static bool put_rule(struct driver *d, struct buf *out)
{
	const struct outputs *o = &d->outputs;
	bool ok = true;
	for (size_t i = 0; i < o->n; i++) {
		ok = check_name(d, o->items[i]->path) && check_target(d, o->items[i]->path) && ok;
		buf_str(out, i ? " " : "");
		put_name(out, o->items[i]->path);
	}
	buf_char(out, ':');
	for (size_t i = 0; i < o->inputs.n; i++) {
		ok = check_name(d, o->inputs.items[i]) && ok;
		buf_str(out, " \\\n ");
		put_name(out, o->inputs.items[i]);
	}
	buf_char(out, '\n');
	return ok;
}

enum tfmc_status driver_add_depfile(struct driver *d, const char *path)
{
	struct buf rule;
	struct output_file *f = NULL;
	if (!d->outputs.n) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "-MD wants an output that is a file");
		return TFMC_INVALID;
	}
	buf_init(&rule);
	bool ok = put_rule(d, &rule);
	if (ok)
		f = outputs_add(&d->outputs, path, d->options.input);
	if (f) {
		(void)output_write_text(f, &rule);
		outputs_move_first(&d->outputs);
	}
	buf_destroy(&rule);
	return !ok ? TFMC_INVALID : f ? TFMC_OK : TFMC_IO;
}
