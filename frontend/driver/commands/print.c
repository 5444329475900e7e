/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that print a text: expand, import, explain, schema, language, ops.
 */
#define _XOPEN_SOURCE 700 /* realpath */

#include <stdlib.h>
#include <string.h>

#include "frontend/driver/compile/compile.h"
#include "frontend/syntax/files.h"
#include "ir/text/text.h"

/* Returns the absolute path without symbolic links, in the arena; dir "" is the current directory. NULL: it does
 * not exist. */
static const char *real_directory(struct driver *d, const char *dir)
{
	char *real = realpath(dir[0] == '\0' ? "." : dir, NULL);
	const char *copy = real ? arena_strdup(&d->arena, real) : NULL;
	free(real);
	return copy;
}

/* Returns the directory as a path relative to that of -o, which the written model file contains: "../" for each
 * differing component; "" when they are the same, for stdout, and when one of them does not exist. */
static const char *relative_to_output(struct driver *d, const char *dir)
{
	const char *to_stdout = d->options.output ? d->options.output : "-", *up = "";
	if (strcmp(to_stdout, "-") == 0)
		return "";
	const char *to = real_directory(d, dir),
	           *from = real_directory(d, file_dir(&d->arena, d->options.output));
	if (!to || !from)
		return ""; /* writing the output fails, too */
	/* The number of bytes of both paths that are equal components. */
	size_t same = 0;
	for (size_t i = 0; i == 0 || to[i - 1] == from[i - 1]; i++) {
		bool ends = (to[i] == '/' || to[i] == '\0') && (from[i] == '/' || from[i] == '\0');
		same = ends ? i : same;
		if (to[i] == '\0' || from[i] == '\0')
			break;
	}
	for (const char *p = from + same; *p != '\0'; p++)
		up = *p == '/' && p[1] != '\0' ? arena_printf(&d->arena, "%s../", up) : up;
	const char *down = to + same + (to[same] == '/');
	if (*down == '\0' && *up != '\0')
		return arena_strndup(&d->arena, up, strlen(up) - 1);
	return arena_printf(&d->arena, "%s%s", up, down);
}

enum exit_code command_expand(struct driver *d)
{
	struct frontend_model *m;
	enum tfmc_status st = driver_read_model(d, &m);
	if (st != TFMC_OK)
		return exit_code_of(st);
	struct buf text;
	buf_init(&text);
	st = frontend_expand(m, relative_to_output(d, frontend_dir(m)), &text);
	if (st == TFMC_OK)
		st = driver_write_main_output(d, &text);
	buf_destroy(&text);
	frontend_destroy(m);
	return exit_code_of(st);
}

/* Loads the directory first, so that the written file is known to be a valid model. */
enum exit_code command_import(struct driver *d)
{
	struct frontend_model *m;
	enum tfmc_status st = driver_read_model(d, &m);
	if (st != TFMC_OK)
		return exit_code_of(st);
	struct option_list adapters = {0};
	for (size_t i = 0; i < d->options.adapter.n; i++)
		ARENA_ADD(&d->arena, &adapters, relative_to_output(d, d->options.adapter.items[i]));
	const char *made =
	        frontend_hub_yaml(m, relative_to_output(d, frontend_dir(m)), adapters.items, adapters.n);
	struct buf text;
	buf_init(&text);
	if (made == NULL) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "import requires a folder with config.json, a GGUF or an ONNX file, '%s' is none",
		           d->options.input);
		st = TFMC_INVALID;
	} else {
		buf_str(&text, made);
		st = driver_write_main_output(d, &text);
	}
	buf_destroy(&text);
	frontend_destroy(m);
	return exit_code_of(st);
}

enum exit_code command_explain(struct driver *d)
{
	const char *code = d->options.input, *nearest = NULL;
	struct explanation e;
	if (!code) {
		explain_list(&d->arena, &d->out);
		return EXIT_OK;
	}
	if (!strcmp(code, "tir")) {
		explain_tir(&d->out);
		return EXIT_OK;
	}
	if (!explain_find(&d->arena, code, &e, &nearest))
		return driver_usage_error(d, "no diagnostic has the code %s%s%s%s; `tfmc explain` lists them",
		                          code, nearest ? "; did you mean " : "", nearest ? nearest : "",
		                          nearest ? "?" : "");
	explain_print(&d->out, &e);
	return EXIT_OK;
}

enum exit_code command_schema(struct driver *d)
{
	frontend_schema(&d->out);
	return EXIT_OK;
}

enum exit_code command_language(struct driver *d)
{
	frontend_reference(&d->out);
	return EXIT_OK;
}

enum exit_code command_ops(struct driver *d)
{
	ir_print_op_reference(&d->out);
	return EXIT_OK;
}
