/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small commands: run, expand, import, schema, explain, language, ops.
 */
#define _XOPEN_SOURCE 700 /* realpath */

#include "frontend/driver/commands/tensors.h"
#include "frontend/driver/commands/values.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/syntax/files.h"
#include "ir/text/text.h"

static const char *real_directory(struct driver *d, const char *dir)
{
	char *real = realpath(dir[0] == '\0' ? "." : dir, NULL);
	const char *copy = real ? arena_strdup(&d->arena, real) : NULL;
	free(real);
	return copy;
}

/* The directory as a path relative to that of -o, which the written model file contains: "../" for each
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
	const char *made = frontend_hub_yaml(m, relative_to_output(d, frontend_dir(m)));
	struct buf text;
	buf_init(&text);
	if (made == NULL) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "import requires a folder with config.json or a GGUF file, '%s' is neither",
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

/* ---- run ---- */
static void warn_unused_inputs(struct driver *d, const struct named_tensors *in)
{
	for (size_t i = 0; i < in->n; i++)
		if (!in->items[i].used)
			diag_warning(&d->diag, LOC_NONE, DIAG_INPUT,
			             "tensor %s is not an input of this entry", in->items[i].name);
}

static void warn_not_finite_outputs(struct driver *d, const struct named_tensors *out)
{
	for (size_t i = 0; i < out->n; i++) {
		const char *which = tensor_not_finite(d, &out->items[i]);
		if (which)
			diag_warning(&d->diag, LOC_NONE, DIAG_CHECK_FAILED,
			             "the output %s is not finite in %s", out->items[i].name, which);
	}
}

/* Inputs of --input take precedence over those of --inputs with the same name. */
static enum tfmc_status read_inputs(struct driver *d, const struct loaded *l, const char *entry,
                                    struct named_tensors *in)
{
	const struct option_list *given = &d->options.values;
	const struct ir_func *f = ir_find_func(l->module, entry_function(entry));
	for (size_t i = 0; f && i < given->n; i++)
		TFMC_TRY(values_parse_input(d, f, given->items[i], in));
	if (d->options.inputs)
		TFMC_TRY(tensors_read(d, d->options.inputs, d->options.prefix, in));
	return f ? values_map_library_inputs(d, f, in) : TFMC_OK;
}

static enum tfmc_status run_entry(struct driver *d, struct loaded *l, struct compiled *c)
{
	const char *entry = d->options.entry ? d->options.entry : "run";
	bool is_interp = d->options.backend == RUN_INTERPRETED;
	struct named_tensors in = {0}, out = {0};
	TFMC_TRY(read_inputs(d, l, entry, &in));
	struct caller caller = {
	        .d = d, .record = c->model.record, .module = l->module, .weights = &l->weights};
	caller.probes = &l->probes;
	if (is_interp && strcmp(entry, "run") && strcmp(entry, "encode")) {
		diag_error(&d->diag, LOC_NONE, DIAG_UNSUPPORTED,
		           "not supported yet: entry %s in the interpreter", entry);
		return TFMC_INVALID;
	}
	if (is_interp)
		caller.state = interp_state_create(&d->arena, l->module, 64);
	else if (l->probes.n)
		TFMC_TRY(caller_open_session(d, c, entry, &in));
	else
		TFMC_TRY(driver_open_session(d, c, 0));
	caller.session = c->session;
	enum tfmc_status st = caller_run(&caller, entry, &in, &out);
	if (st == TFMC_OK)
		warn_unused_inputs(d, &in);
	if (st != TFMC_OK)
		return st;
	warn_not_finite_outputs(d, &out);
	return d->options.outputs ? tensors_write(d, d->options.outputs, &out)
	                          : values_print(d, &out, &d->out);
}

/* Whether the model has the entry. An unknown entry is reported when it is called. */
static bool is_known_entry(const struct loaded *l, const char *entry)
{
	static const char *const known[] = {"run", "encode", "prefill", "step", "score"};
	for (size_t i = 0; l->model && i < TFMC_COUNT(known); i++)
		if (!strcmp(known[i], entry))
			return ir_find_func(l->module, entry_function(entry)) != NULL;
	return false;
}

enum exit_code command_run(struct driver *d)
{
	struct loaded l;
	struct compiled c = {.all_workers = true};
	if (!d->options.inputs && !d->options.values.n)
		return driver_usage_error(d, "run requires --inputs=FILE or --input NAME=VALUES");
	enum tfmc_status st = driver_load(d, &l);
	const char *entry = d->options.entry ? d->options.entry : "run", *function = entry_function(entry);
	if (st == TFMC_OK)
		st = driver_insert_probes(d, &l, &d->options.probe, &(struct option_list){&function, 1, 1});
	if (st == TFMC_OK)
		st = driver_compile_jit(d, &l, (struct entry_names){&entry, is_known_entry(&l, entry)}, &c);
	if (st == TFMC_OK)
		st = run_entry(d, &l, &c);
	compiled_destroy(&c);
	loaded_destroy(&l);
	return exit_code_of(st);
}

/* ---- texts ---- */
enum exit_code command_explain(struct driver *d)
{
	const char *code = d->options.input, *nearest = NULL;
	struct explanation e;
	if (!code) {
		explain_list(&d->arena, &d->out);
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
