/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frontend_load: the stages of loading a model file in order; and accessors of frontend.h. A file of another kind is
 * detected by its magic bytes, so that it is reported before the YAML parser fails on it.
 * For a folder of a hub, a GGUF or an ONNX file the text of a model file is generated and read as one; doc.written is
 * the document as read, doc.root the one after its preset and bases were merged in.
 */
#include <string.h>

#include "frontend/lower/steps.h"
#include "frontend/model/compose.h"
#include "frontend/model/folder.h"
#include "frontend/model/model.h"
#include "frontend/model/schema.h"
#include "frontend/onnx/onnx.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/yaml_edit.h"
#include "ir/support/memory.h"

/* ---- files that are no models ---- */

enum advice { ADVICE_INSPECT, ADVICE_DIRECTORY, ADVICE_CONVERT };

/* A kind of file by its magic. */
static const struct kind {
	const char *magic;
	size_t at, n; /* offset and length of the magic */
	const char *description;
	enum advice advice;
} kinds[] = {
        {"\177ELF", 0, 4, "an object or a program", ADVICE_INSPECT},
        {"!<arch>\n", 0, 8, "a library of objects", ADVICE_INSPECT},
        {"WIGHTS1", 0, 8, "the weights of a compiled object", ADVICE_INSPECT},
        {"\0{\"", 7, 3, "a file of weights (safetensors)", ADVICE_DIRECTORY},
        {"\0{}", 7, 3, "a file of weights (safetensors)", ADVICE_DIRECTORY},
        {"\x93NUMPY", 0, 6, "an array of NumPy", ADVICE_DIRECTORY},
        {"PK\3\4", 0, 4, "a zip archive, as .npz and the files of torch.save are", ADVICE_DIRECTORY},
        {"\x80\2", 0, 2, "a pickle of Python", ADVICE_DIRECTORY},
        {"\x89HDF", 0, 4, "a file of HDF5", ADVICE_CONVERT},
};

#define HEAD_BYTES 16

/* Notes what to give instead of a file that is no model: its directory, if that is a hub folder; compiled files can
 * only be inspected. */
static void advise(struct arena *a, struct diag_context *cx, const char *path, enum advice advice)
{
	const char *dir = file_dir(a, path);
	dir = *dir ? dir : ".";
	if (advice != ADVICE_INSPECT && directory_has_file(a, dir, "config.json")) {
		diag_note(cx, LOC_NONE, "its folder is a model: give '%s' in its place", dir);
		return;
	}
	switch (advice) {
	case ADVICE_INSPECT: diag_note(cx, LOC_NONE, "tfmc inspect shows what it is"); return;
	case ADVICE_DIRECTORY:
		diag_note(
		        cx, LOC_NONE,
		        "a model is a model file (.yaml) that names its weights, a folder with config.json, "
		        "or a GGUF file");
		return;
	case ADVICE_CONVERT:
		diag_note(cx, LOC_NONE,
		          "a model is a model file (.yaml), a folder with config.json and weights, or a "
		          "GGUF file; transformers writes such a folder with save_pretrained");
		return;
	}
}

/* Whether the file is JSON without the key `tfmc`, such as config.json. A model may be written in JSON, since JSON is
 * YAML. An unreadable or larger file (64 MiB) counts as a model, and is reported when it is read as one. */
static bool is_other_json(const char *path)
{
	struct arena local_arena;
	const char *text;
	size_t n;
	struct diag_context silent;
	if (!file_ends_with(path, ".json"))
		return false;
	arena_init(&local_arena);
	diag_init(&silent, NULL, NULL);
	bool read = file_read(&local_arena, &silent, path, (size_t)64 << 20, LOC_NONE, &text, &n) == TFMC_OK;
	bool other = read && text[strspn(text, " \t\r\n")] == '{' && !strstr(text, "\"tfmc\"");
	diag_destroy(&silent);
	arena_destroy(&local_arena);
	return other;
}

/* False after a diagnostic that names the kind of the file and what to give instead: objects, weights, pickles, JSON
 * of a hub folder. True otherwise, also for unreadable files, which their reader reports. A file that ends with .gguf
 * comes here only without the magic of GGUF. */
static bool file_kind_may_be_model(struct arena *a, struct diag_context *cx, const char *path)
{
	char head[HEAD_BYTES];
	size_t n = file_head(cx, path, head, sizeof(head));
	for (size_t i = 0; i < TFMC_COUNT(kinds); i++) {
		const struct kind *k = &kinds[i];
		if (k->at + k->n > n || memcmp(head + k->at, k->magic, k->n) != 0)
			continue;
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' is %s, not a model", path, k->description);
		advise(a, cx, path, k->advice);
		return false;
	}
	if (file_ends_with(path, ".gguf") && n > 0) {
		diag_error(cx, LOC_NONE, DIAG_FILE,
		           "'%s' is not a GGUF file: its first four bytes are not 'GGUF'", path);
		return false;
	}
	if (is_other_json(path)) {
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' is a JSON file, not a model", path);
		advise(a, cx, path, ADVICE_DIRECTORY);
		return false;
	}
	return true;
}

/* ---- loading ---- */

struct model_header {
	int64_t tfmc;
	const char *name;
};

/* Reads `tfmc: 1` and `name`, and checks which top-level keys a model needs and which exclude each other: the schema
 * cannot require what a base or preset may provide. --name wins over `name`. False after a diagnostic. */
static bool read_header(struct frontend_model *m)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(model_header, tfmc),
	                                               SCHEMA_MEMBER(model_header, name)};
	struct expr_env env = model_env(&m->scope, false);
	struct model_header head;
	if (!schema_read(&env, m->doc.root, "top", "the model", members, TFMC_COUNT(members), &head))
		return false;
	if (head.tfmc != 1) {
		diag_error(m->cx, model_section(m, "tfmc")->loc, DIAG_UNSUPPORTED,
		           "not supported yet: version %lld of the language", (long long)head.tfmc);
		return false;
	}
	if (!expr_is_name(head.name)) {
		diag_error(m->cx, model_section(m, "name")->loc, DIAG_NAME,
		           "'%s' is not a name (letters, digits, _; at most 63)", head.name);
		return false;
	}
	m->name = m->options.name != NULL ? m->options.name : head.name;
	static const char *const needed[] = {"inputs", "outputs"};
	bool ok = true;
	for (size_t i = 0; i < TFMC_COUNT(needed); i++) {
		if (model_section(m, needed[i]) == NULL) {
			diag_error(m->cx, m->doc.root->loc, DIAG_MISSING, "the model needs '%s'", needed[i]);
			ok = false;
		}
	}
	const struct yaml_pair *model = yaml_find_pair(m->doc.root, "model"),
	                       *graph = yaml_find_pair(m->doc.root, "graph");
	if (model == NULL && graph == NULL)
		diag_error(m->cx, m->doc.root->loc, DIAG_MISSING, "the model needs 'model' or 'graph'");
	if (model != NULL && graph != NULL)
		diag_error(m->cx, graph->key->loc, DIAG_REFUSED, "'model' and 'graph' exclude each other");
	return ok && (model == NULL) != (graph == NULL);
}

/* Reads the sections in the order of their dependencies and expands the steps; continues after errors that do not
 * affect later sections, so that one run reports them all. Steps need inputs and outputs: without valid ones only
 * their keys are checked. False after a diagnostic. */
static bool read_sections(struct frontend_model *m)
{
	const struct yaml_node *root = m->doc.root, *params = yaml_find(root, "params");
	if (!read_header(m))
		return false;
	bool ok = model_read_params(&m->scope, root, &m->options);
	if (params != NULL && params->kind != YAML_MAPPING)
		return false;
	/* Continue after invalid params and dims: their uses report nothing further. */
	ok = model_read_dims(&m->scope, yaml_find(root, "dims")) && ok;
	ok = model_read_definitions(&m->scope, yaml_find(root, "define"), &m->definitions) && ok;
	bool values = model_read_inputs(&m->scope, yaml_find(root, "inputs"), &m->inputs);
	values = model_read_outputs(&m->scope, yaml_find(root, "outputs"), &m->outputs) && values;
	ok = model_read_sections(m) && ok;
	if (!values) {
		steps_check(m);
		return false;
	}
	ok = model_read_generate(m) && ok;
	ok = ok && model_limit_context(m);
	ok = model_read_checks(m) && ok;
	return steps_expand(m) && ok;
}

/* Allocates a model for the document at `path`; nothing is read yet. The arena owns everything but the structure
 * itself. NULL: no memory. */
static struct frontend_model *create_model(struct diag_context *cx, const char *path,
                                           const struct frontend_options *options)
{
	struct frontend_model *m = memory_zeroed(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	arena_init(&m->arena);
	struct arena *a = &m->arena;
	m->cx = cx;
	if (options != NULL)
		m->options = *options;
	m->doc = (struct model_document){.arena = a,
	                                 .cx = cx,
	                                 .path = arena_strdup(a, path),
	                                 .dir = file_dir(a, path),
	                                 .ignored = m->options.ignored,
	                                 .n_ignored = m->options.n_ignored,
	                                 .file_read = m->options.file_read,
	                                 .file_user = m->options.file_user};
	parsed_files_init(&m->doc.parsed, a, cx);
	m->scope = (struct model_scope){.arena = a, .cx = cx, .dims = ir_dims_create(a)};
	strmap_init(&m->scope.params, a);
	strmap_init(&m->scope.names, a);
	strmap_init(&m->weights.resolved, a);
	strmap_init(&m->weights.unquantized, a);
	m->tokens = -1;
	return m;
}

/* Kinds of paths that are not model files, for which a model file is generated. */
enum generated { GENERATED_NONE, GENERATED_DIRECTORY, GENERATED_GGUF, GENERATED_ONNX };

/* The kind of the model's path, by its first bytes if it is a file. */
static enum generated generated_kind(struct frontend_model *m)
{
	return path_is_directory(m->doc.path)     ? GENERATED_DIRECTORY
	       : is_gguf_file(m->cx, m->doc.path) ? GENERATED_GGUF
	       : onnx_is_file(m->cx, m->doc.path) ? GENERATED_ONNX
	                                          : GENERATED_NONE;
}

/* Returns the YAML text generated for a path of this kind, with the keys of --ignore-key; NULL for model files, or
 * after a diagnostic, with *st if the reader sets it. adapters: further keys of `weights` of a directory, after a
 * comma, or "". An ONNX file has no configuration keys to ignore. */
static const char *generated_yaml(struct frontend_model *m, enum generated kind, const char *at,
                                  const char *adapters, enum tfmc_status *st)
{
	const char *text = NULL, *keys = NULL;
	if (kind == GENERATED_ONNX)
		return onnx_model_text(&m->arena, m->cx, m->doc.path, at, &m->options, st);
	if (kind == GENERATED_DIRECTORY)
		text = hub_dir_model(&m->doc.parsed, m->doc.path, m->options.name, at, adapters, st);
	else if (kind == GENERATED_GGUF)
		text = gguf_model(&m->doc.parsed, m->doc.path, m->options.name, at);
	for (size_t i = 0; text != NULL && i < m->options.n_ignored; i++)
		keys = arena_printf(&m->arena, "%s%s%s", keys == NULL ? "" : keys, keys == NULL ? "" : ", ",
		                    yaml_quote(&m->arena, m->options.ignored[i]));
	return keys == NULL ? text : arena_printf(&m->arena, "%shub: {ignore: {mine: [%s]}}\n", text, keys);
}

/* Records the shards that an index file lists, each once. Errors in it are ignored here; they are reported when
 * weights are opened, by a parser of their own. */
static void record_shards(struct frontend_model *m, const char *path)
{
	struct diag_context quiet;
	struct parsed_files once;
	const struct parsed_file *index;
	struct strmap seen;
	strmap_init(&seen, &m->arena);
	diag_init(&quiet, NULL, NULL);
	parsed_files_init(&once, &m->arena, &quiet);
	const struct json_node *map = parsed_json(&once, path, LOC_NONE, false, &index) == TFMC_OK
	                                      ? json_find(index->root, "weight_map")
	                                      : NULL;
	for (size_t i = 0; map != NULL && map->kind == JSON_NODE_OBJECT && i < map->n; i++)
		if (map->items[i].kind == JSON_NODE_STRING)
			strmap_set(&seen, map->items[i].text, m);
	for (size_t i = 0; i < seen.n; i++)
		document_record_file(&m->doc,
		                     file_join(&m->arena, file_dir(&m->arena, path), seen.items[i].key));
	parsed_files_destroy(&once);
	diag_destroy(&quiet);
}

/* Records a file of `weights.files`, and those it lists, as read, though they are opened by the lowering: no output
 * may overwrite them. */
static void record_weight_file(struct frontend_model *m, const struct yaml_node *file)
{
	if (file->kind != YAML_SCALAR)
		return;
	const char *path = file_join(&m->arena, m->doc.dir, file->text);
	document_record_file(&m->doc, path);
	if (file_ends_with(path, ".index.json"))
		record_shards(m, path);
}

/* Records files that are opened later (weights, tokenizer), so that no output can overwrite them. A value of the
 * section `tokenizer` is a file if there is one of that name. */
static void record_lazily_read_files(struct frontend_model *m)
{
	const struct yaml_node *text = model_section(m, "tokenizer"), *section = model_section(m, "weights"),
	                       *files = section != NULL ? yaml_find(section, "files") : NULL;
	for (size_t i = 0; files != NULL && files->kind == YAML_SEQUENCE && i < files->n; i++)
		record_weight_file(m, files->items[i]);
	for (size_t i = 0; text != NULL && text->kind == YAML_MAPPING && i < text->n; i++) {
		const struct yaml_node *value = text->pairs[i].value;
		if (value->kind == YAML_SCALAR && directory_has_file(&m->arena, m->doc.dir, value->text))
			document_record_file(&m->doc, file_join(&m->arena, m->doc.dir, value->text));
	}
}

/* Reads the model file, or the text generated for another path, which is shown in messages as the path and its kind.
 * Adapters of the command line name modules of hub folders; they are rejected for GGUF and ONNX files. */
static enum tfmc_status read_document(struct frontend_model *m)
{
	static const char *const names[] = {
	        [GENERATED_DIRECTORY] = "folder", [GENERATED_GGUF] = "GGUF", [GENERATED_ONNX] = "ONNX"};
	enum generated kind = generated_kind(m);
	if (kind == GENERATED_NONE)
		return file_kind_may_be_model(&m->arena, m->cx, m->doc.path)
		               ? yaml_read(&m->arena, m->cx, m->doc.path, m->doc.path, LOC_NONE,
		                           &m->doc.written)
		               : TFMC_INVALID;
	enum tfmc_status st = TFMC_INVALID;
	if (m->options.n_adapters > 0 && kind != GENERATED_DIRECTORY) {
		diag_error(m->cx, LOC_NONE, DIAG_OPTION,
		           "--adapter is for folders of the hub and model files, '%s' is %s file",
		           m->doc.path, kind == GENERATED_GGUF ? "a GGUF" : "an ONNX");
		return TFMC_INVALID;
	}
	const char *text = generated_yaml(m, kind, "", "", &st);
	if (kind == GENERATED_DIRECTORY) {
		m->doc.dir = m->doc.path;
		/* Files that the generated text depends on but does not name. */
		static const char *const files[] = {"modules.json", "generation_config.json"};
		for (size_t i = 0; i < TFMC_COUNT(files); i++)
			if (directory_has_file(&m->arena, m->doc.path, files[i]))
				document_record_file(&m->doc, file_join(&m->arena, m->doc.path, files[i]));
	}
	if (text == NULL)
		return st;
	return yaml_parse(&m->arena, m->cx, arena_printf(&m->arena, "%s (%s)", m->doc.path, names[kind]),
	                  text, strlen(text), false, &m->doc.written);
}

/* Files are closed before the arena that describes them. */
void frontend_destroy(struct frontend_model *m)
{
	if (m == NULL)
		return;
	model_close_checks(m);
	weight_files_destroy(m->weights.files);
	parsed_files_destroy(&m->doc.parsed);
	arena_destroy(&m->arena);
	memory_free(m);
}

/* The stages in order: the document, its merge with base and preset, sections and steps. A stage that fails has
 * reported it, unless memory ran out. */
enum tfmc_status frontend_load(struct diag_context *cx, const char *path,
                               const struct frontend_options *options, struct frontend_model **out)
{
	*out = NULL;
	struct frontend_model *m = create_model(cx, path, options);
	if (m == NULL)
		return TFMC_NO_MEMORY;
	size_t errors = cx->n_errors;
	enum tfmc_status st = read_document(m);
	m->doc.root = m->doc.written;
	if (st == TFMC_OK && !document_compose(&m->doc))
		st = TFMC_INVALID;
	if (st == TFMC_OK && !read_sections(m)) {
		st = TFMC_INVALID;
		/* The error may be in a value that was read from config.json, which has no location in the model
		 * file. */
		if (m->doc.hub_path != NULL && cx->n_errors != errors)
			diag_note(cx, LOC_NONE, "parameters of the preset come from '%s'", m->doc.hub_path);
	}
	if (st == TFMC_OK && cx->n_errors != errors)
		st = TFMC_INVALID;
	if (arena_failed(&m->arena) && cx->n_errors == errors)
		st = TFMC_NO_MEMORY;
	if (st != TFMC_OK) {
		frontend_destroy(m);
		return st;
	}
	record_lazily_read_files(m);
	*out = m;
	return TFMC_OK;
}

/* The adapters become the key `adapters` of `weights` in the text. */
const char *frontend_hub_yaml(struct frontend_model *m, const char *at, const char *const *adapters,
                              size_t n_adapters)
{
	enum tfmc_status st;
	const char *list = "";
	for (size_t i = 0; i < n_adapters; i++)
		list = arena_printf(&m->arena, "%s%s%s", list, i == 0 ? ", adapters: [" : ", ",
		                    yaml_quote(&m->arena, adapters[i]));
	list = n_adapters > 0 ? arena_printf(&m->arena, "%s]", list) : list;
	return generated_yaml(m, generated_kind(m), at, list, &st);
}

bool frontend_is_onnx(struct diag_context *cx, const char *path)
{
	return !path_is_directory(path) && onnx_is_file(cx, path);
}

const char *frontend_name(const struct frontend_model *m)
{
	return m->name;
}

const char *frontend_preset(const struct frontend_model *m)
{
	return m->doc.preset;
}

const char *frontend_dir(const struct frontend_model *m)
{
	return m->doc.dir;
}

const struct frontend_input *frontend_inputs(const struct frontend_model *m, size_t *n)
{
	*n = m->inputs.n;
	return m->inputs.items;
}

/* An i32 input with a default is that of lengths. */
const struct frontend_input *frontend_find_input(const struct frontend_model *m, const char *name)
{
	for (size_t i = 0; i < m->inputs.n; i++) {
		const struct frontend_input *in = &m->inputs.items[i];
		if (name != NULL ? strcmp(in->name, name) == 0 : in->dtype == DT_I32 && !in->has_default)
			return in;
	}
	return NULL;
}

const struct frontend_target *frontend_target(const struct frontend_model *m)
{
	return &m->target;
}

const struct frontend_generate *frontend_generate(const struct frontend_model *m)
{
	return &m->generate;
}

const struct frontend_check *frontend_checks(const struct frontend_model *m, size_t *n)
{
	*n = m->checks.n;
	return m->checks.items;
}

struct weight_source frontend_weights(struct frontend_model *m)
{
	return weight_files_source(m->weights.files);
}

const char *frontend_unquantized_reason(const struct frontend_model *m, const char *weight)
{
	return strmap_get(&m->weights.unquantized, weight);
}

struct weight_files *frontend_weight_files(const struct frontend_model *m)
{
	return m->weights.files;
}
