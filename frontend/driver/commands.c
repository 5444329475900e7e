/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small commands: run, expand, import, inspect, explain, ops, passes.
 */
#include "frontend/driver/probes.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/files.h"
#include "frontend/gguf.h"
#include "frontend/safetensors.h"
#include "frontend/weight_files.h"
#include "ir/support/number.h"
#include "ir/text.h"
#include "ir/verify.h"

enum tfmc_status driver_put(struct driver *d, const char *path, const struct buf *text)
{
	if (!strcmp(path, "-")) {
		buf_append(&d->out, text);
		return TFMC_OK;
	}
	struct output_file *f = outputs_add(&d->outputs, path, d->options.input);
	return f && output_text(f, text) ? TFMC_OK : TFMC_IO;
}

enum tfmc_status driver_emit_text(struct driver *d, const struct buf *text)
{
	TFMC_TRY(driver_put(d, d->options.output ? d->options.output : "-", text));
	return outputs_commit(&d->outputs);
}

enum exit_code command_expand(struct driver *d)
{
	struct frontend_model *m;
	struct frontend_options o = driver_frontend_options(d);
	enum tfmc_status st = frontend_load(&d->diag, d->options.input, &o, &m);
	if (st != TFMC_OK)
		return exit_code_of(st);
	struct buf text;
	buf_init(&text);
	st = frontend_expand(m, &text);
	if (st == TFMC_OK)
		st = driver_emit_text(d, &text);
	buf_destroy(&text);
	frontend_destroy(m);
	return exit_code_of(st);
}

/* The folder is loaded first, so that what is written has been checked. */
enum exit_code command_import(struct driver *d)
{
	struct frontend_model *m;
	struct frontend_options o = driver_frontend_options(d);
	enum tfmc_status st = frontend_load(&d->diag, d->options.input, &o, &m);
	if (st != TFMC_OK)
		return exit_code_of(st);
	const char *made = frontend_folder_text(m);
	struct buf text;
	buf_init(&text);
	if (made == NULL) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "import wants a folder with config.json or a GGUF file, '%s' is neither",
		           d->options.input);
		st = TFMC_INVALID;
	} else {
		buf_str(&text, made);
		st = driver_emit_text(d, &text);
	}
	buf_destroy(&text);
	frontend_destroy(m);
	return exit_code_of(st);
}

/* --- run ------------------------------------------------------------------------------------------- */
static enum tfmc_status write_tensors(struct driver *d, const char *path, const struct named_tensors *t)
{
	struct stored_tensor *items = ARENA_ARRAY(&d->arena, struct stored_tensor, t->n ? t->n : 1);
	if (!items)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < t->n; i++) {
		const struct named_tensor *v = &t->items[i];
		items[i] = (struct stored_tensor){
		        .name = v->name, .dtype = v->dtype, .readable = true, .rank = v->rank};
		items[i].type_name = ir_dtype_safetensors(v->dtype);
		memcpy(items[i].dims, v->dims, sizeof(v->dims));
		items[i].data = v->data;
		items[i].bytes = (size_t)v->count * (size_t)ir_dtype_bytes(v->dtype);
	}
	struct buf text;
	buf_init(&text);
	enum tfmc_status st = safetensors_write(&text, items, t->n) ? TFMC_OK : TFMC_NO_MEMORY;
	if (st == TFMC_OK)
		st = driver_put(d, path, &text);
	buf_destroy(&text);
	return st == TFMC_OK ? outputs_commit(&d->outputs) : st;
}

static void warn_unused(struct driver *d, const struct named_tensors *in)
{
	for (size_t i = 0; i < in->n; i++)
		if (!in->items[i].used)
			diag_warning(&d->diag, LOC_NONE, DIAG_INPUT,
			             "tensor %s is not an input of this entry", in->items[i].name);
}

static enum tfmc_status run_entry(struct driver *d, struct loaded *l, struct compiled *c)
{
	const char *entry = d->options.entry ? d->options.entry : "run";
	bool is_interp = d->options.backend && !strcmp(d->options.backend, "interp");
	struct named_tensors in = {0}, out = {0};
	struct tfmc_session *session = NULL;
	TFMC_TRY(tensors_read(d, d->options.inputs, d->options.prefix, &in));
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
		TFMC_TRY(driver_session_of(d, c, entry, &in, &session));
	else
		TFMC_TRY(driver_session(d, c, &session));
	caller.session = session;
	enum tfmc_status st = caller_run(&caller, entry, &in, &out);
	tfmc_session_close(session);
	if (st == TFMC_OK)
		warn_unused(d, &in);
	return st == TFMC_OK ? write_tensors(d, d->options.outputs, &out) : st;
}

/* Entries of other names are refused by name when they are called. */
static bool has_entry(const struct loaded *l, const char *entry)
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
	struct compiled c = {0};
	const char *backend = d->options.backend ? d->options.backend : "cpu";
	if (!d->options.inputs || !d->options.outputs)
		return driver_usage(d, "run wants --inputs=FILE and --outputs=FILE");
	if (strcmp(backend, "cpu") && strcmp(backend, "interp"))
		return driver_usage(d, "--backend is cpu or interp, not %s", backend);
	d->all_workers = true;
	enum tfmc_status st = driver_load(d, &l);
	const char *entry = d->options.entry ? d->options.entry : "run", *function = entry_function(entry);
	if (st == TFMC_OK)
		st = driver_probe(d, &l, &d->options.probe, &(struct option_list){&function, 1, 1});
	d->entries = &entry;
	d->n_entries = st == TFMC_OK && has_entry(&l, entry);
	if (st == TFMC_OK)
		st = driver_compile_native(d, &l, NULL, &c);
	if (st == TFMC_OK)
		st = run_entry(d, &l, &c);
	driver_release(&c);
	driver_unload(&l);
	return exit_code_of(st);
}

/* --- inspect ------------------------------------------------------------------------------------------ */
static void inspect_tensors(struct driver *d, const struct stored_tensors *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct stored_tensor *t = &s->items[i];
		buf_printf(&d->out, "%-64s %s[", t->name, t->type_name);
		for (int k = 0; k < t->rank; k++)
			buf_printf(&d->out, "%s%lld", k ? "," : "", (long long)t->dims[k]);
		buf_printf(&d->out, "] %zu bytes\n", t->bytes);
	}
}

/* Texts may hold any bytes: control characters are shown as dots. */
static void print_value(struct driver *d, const struct gguf_value *v)
{
	char number[NUMBER_TEXT_MAX];
	switch (v->type) {
	case GGUF_STRING:
		for (size_t i = 0; i < v->len && i < 200; i++)
			buf_char(&d->out,
			         (unsigned char)v->text[i] < 0x20 || v->text[i] == 0x7f ? '.' : v->text[i]);
		return;
	case GGUF_ARRAY: buf_printf(&d->out, "%zu of %s", v->n, gguf_type_name(v->element)); return;
	case GGUF_BOOL: buf_str(&d->out, v->i ? "true" : "false"); return;
	case GGUF_F32:
	case GGUF_F64: buf_printf(&d->out, "%.*s", (int)number_print_f64(number, v->f), number); return;
	case GGUF_U8:
	case GGUF_I8:
	case GGUF_U16:
	case GGUF_I16:
	case GGUF_U32:
	case GGUF_I32:
	case GGUF_U64:
	case GGUF_I64: buf_printf(&d->out, "%lld", (long long)v->i); return;
	}
}

static enum tfmc_status inspect_gguf(struct driver *d, const struct file_map *map)
{
	struct gguf g;
	TFMC_TRY(gguf_read(&d->arena, &d->diag, d->options.input, LOC_NONE, map->data, map->len, &g));
	buf_printf(&d->out, "GGUF, version %u\n", g.version);
	for (size_t i = 0; i < g.n_entries; i++) {
		buf_printf(&d->out, "%-48s = ", g.entries[i].key);
		print_value(d, &g.entries[i].value);
		buf_char(&d->out, '\n');
	}
	inspect_tensors(d, &g.tensors);
	return TFMC_OK;
}

static void inspect_model(struct driver *d, const struct frontend_model *m)
{
	size_t n;
	const struct frontend_input *in = frontend_inputs(m, &n);
	buf_printf(&d->out, "model file, name %s\n", frontend_name(m));
	for (size_t i = 0; i < n; i++)
		buf_printf(&d->out, "input  %s %s rank %d\n", in[i].name, ir_dtype_name(in[i].dtype),
		           in[i].rank);
	const char *const *out = frontend_outputs(m, &n);
	for (size_t i = 0; i < n; i++)
		buf_printf(&d->out, "output %s\n", out[i]);
}

/* The record of an object is found by its magic in the bytes: an object need not be loadable here. */
static const struct tfmc_record *find_record(const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i + sizeof(struct tfmc_record) <= n; i += 8) {
		const struct tfmc_record *r = (const void *)(bytes + i);
		if (r->magic == TFMC_RECORD_MAGIC && r->abi_version == TFMC_ABI_VERSION &&
		    r->bytes <= n - i && r->bytes >= sizeof(*r) && r->name < r->bytes && r->target < r->bytes)
			return r;
	}
	return NULL;
}

/* A damaged object's text may lack its end: nothing is read beyond the record. */
static int text_limit(const struct tfmc_record *r, uint64_t offset)
{
	uint64_t n = r->bytes - offset;
	return n < 256 ? (int)n : 256;
}

/* Names and code of the variants, as far as they lie in the record. */
static void inspect_variants(struct driver *d, const struct file_map *map, const struct tfmc_record *r)
{
	const char *targets[BACKEND_VARIANTS_MAX];
	struct code_names names = {.targets = targets};
	uint64_t n = r->n_variants;
	if (n > BACKEND_VARIANTS_MAX || r->variants > r->bytes ||
	    r->bytes - r->variants < n * sizeof(uint64_t))
		return;
	names.model = arena_printf(&d->arena, "%.*s", text_limit(r, r->name), tfmc_record_text(r, r->name));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at;
		memcpy(&at, (const char *)r + r->variants + i * sizeof(at), sizeof(at));
		if (at >= r->bytes)
			return;
		targets[names.n++] =
		        arena_printf(&d->arena, "%.*s", text_limit(r, at), tfmc_record_text(r, at));
	}
	driver_print_code(d, &d->out, &names, map->data, map->len);
}

static enum tfmc_status inspect_object(struct driver *d, const struct file_map *map)
{
	const struct tfmc_record *r = find_record(map->data, map->len);
	if (!r) {
		diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s is an object without a tfmc record",
		           d->options.input);
		return TFMC_INVALID;
	}
	buf_printf(&d->out, "tfmc object, name %.*s, target %.*s, interface version %u\n",
	           text_limit(r, r->name), tfmc_record_text(r, r->name), text_limit(r, r->target),
	           tfmc_record_text(r, r->target), r->abi_version);
	buf_printf(&d->out, "structure %016llx, weights %016llx, %llu bytes %s\n",
	           (unsigned long long)r->structure_hash, (unsigned long long)r->weights_hash,
	           (unsigned long long)r->weights_bytes, r->weights_embedded ? "embedded" : "in a file");
	inspect_variants(d, map, r);
	buf_printf(
	        &d->out,
	        "arena at the bounds %llu bytes, %llu for each worker; state %llu bytes for each sequence\n",
	        (unsigned long long)r->arena_bytes_max, (unsigned long long)r->scratch_bytes,
	        (unsigned long long)r->state_batch_bytes);
	return TFMC_OK;
}

static enum tfmc_status inspect_weights(struct driver *d, const struct file_map *map)
{
	struct tfmc_weights_header h;
	memcpy(&h, map->data, sizeof(h));
	buf_printf(&d->out, "tfmc weights, structure %016llx, weights %016llx, %llu bytes\n",
	           (unsigned long long)h.structure_hash, (unsigned long long)h.weights_hash,
	           (unsigned long long)h.bytes);
	return TFMC_OK;
}

static enum tfmc_status inspect_binary(struct driver *d, const struct file_map *map)
{
	struct tfmc_weights_header h;
	if (map->len >= 4 && !memcmp(map->data, "\177ELF", 4))
		return inspect_object(d, map);
	if (map->len >= sizeof(h)) {
		memcpy(&h, map->data, sizeof(h));
		if (h.magic == TFMC_WEIGHTS_MAGIC)
			return inspect_weights(d, map);
	}
	struct stored_tensors s;
	if (gguf_is(map->data, map->len))
		return inspect_gguf(d, map);
	TFMC_TRY(weight_file_read(&d->arena, &d->diag, d->options.input, LOC_NONE, map->data, map->len, &s));
	inspect_tensors(d, &s);
	return TFMC_OK;
}

enum exit_code command_inspect(struct driver *d)
{
	const char *path = d->options.input;
	if (d->options.probe.n)
		return inspect_probes(d);
	if (path_ends_with(path, ".yaml") || path_ends_with(path, ".yml")) {
		struct frontend_model *m;
		enum tfmc_status st = frontend_load(&d->diag, path, &(struct frontend_options){0}, &m);
		if (st == TFMC_OK) {
			inspect_model(d, m);
			frontend_destroy(m);
		}
		return exit_code_of(st);
	}
	struct file_map map;
	enum tfmc_status st = file_map_open(&d->diag, path, LOC_NONE, &map);
	if (st != TFMC_OK)
		return exit_code_of(st);
	st = inspect_binary(d, &map);
	file_map_close(&map);
	return exit_code_of(st);
}

/* --- texts -----------------------------------------------------------------------------------------------
 */
enum exit_code command_explain(struct driver *d)
{
	const char *code = d->options.input;
	char *end;
	long number = strtol(code + (code[0] == 'E' || code[0] == 'e'), &end, 10);
	const struct diag_info *info =
	        *end || number < 0 || number > 9999 ? NULL : diag_find_info((int)number);
	if (!info)
		return driver_usage(d, "no diagnostic has the code %s", code);
	buf_printf(&d->out, "E%d: %s\n\n%s\n", (int)info->code, info->title, info->help);
	return EXIT_OK;
}

enum exit_code command_ops(struct driver *d)
{
	ir_print_op_reference(&d->out);
	return EXIT_OK;
}
