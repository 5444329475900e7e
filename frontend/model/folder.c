/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hub folder or a GGUF file as the text of a model file: name, configuration, weights. `tfmc import` writes
 * this text.
 */
#include "frontend/model/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "frontend/syntax/expr.h"
#include "frontend/syntax/files.h"
#include "frontend/tokenizer/gguf_tokenizer.h"

#define FILES_MAX 4096

bool path_is_directory(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool directory_has_file(struct arena *a, const char *dir, const char *name)
{
	return file_exists(file_join(a, dir, name));
}

/* A component of a path: [from, end). */
struct component {
	size_t from, end;
};

/* Last component before `end`; empty if there is none. */
static struct component last_component(const char *path, size_t end)
{
	while (end > 1 && path[end - 1] == '/')
		end--;
	size_t from = end;
	while (from > 0 && path[from - 1] != '/')
		from--;
	return (struct component){from, end};
}

static bool component_begins_with(const char *path, struct component p, const char *text)
{
	size_t n = strlen(text);
	return p.end - p.from >= n && memcmp(path + p.from, text, n) == 0;
}

/* Component that names the model: the last one; in a hub cache, models--OWNER--NAME/snapshots/HASH, NAME. */
static struct component naming_component(const char *path)
{
	struct component last = last_component(path, strlen(path)),
	                 snapshots = last_component(path, last.from);
	struct component cached = last_component(path, snapshots.from);
	if (snapshots.end - snapshots.from != 9 || !component_begins_with(path, snapshots, "snapshots") ||
	    !component_begins_with(path, cached, "models--"))
		return last;
	size_t from = cached.end;
	while (memcmp(path + from - 2, "--", 2) != 0)
		from--;
	return from < cached.end ? (struct component){from, cached.end} : last;
}

/* Model name for a path: letters, digits and underscores, at most EXPR_NAME_MAX. */
static const char *model_name(struct arena *a, const char *path)
{
	struct component p = naming_component(path);
	size_t from = p.from, n = p.end;
	char *name = arena_alloc(a, EXPR_NAME_MAX + 1);
	size_t len = 0;
	if (name == NULL)
		return NULL;
	if (from < n && isdigit((unsigned char)path[from]))
		name[len++] = 'm';
	for (size_t i = from; i < n && len < EXPR_NAME_MAX; i++) {
		unsigned char c = (unsigned char)path[i];
		name[len++] = c < 0x80 && isalnum(c) ? (char)tolower(c) : '_';
	}
	name[len] = '\0';
	bool plain = len > 0 && (isalpha((unsigned char)name[0]) || strspn(name, "_") < len);
	return plain ? name : "model";
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* Single quotes, doubled inside; double quotes with escapes if there are control characters. */
const char *yaml_quote(struct arena *a, const char *text)
{
	struct buf out;
	bool escapes = false;
	for (const char *p = text; *p != '\0'; p++)
		escapes = escapes || is_control(*p);
	buf_init(&out);
	buf_char(&out, escapes ? '"' : '\'');
	for (; *text != '\0'; text++) {
		if (is_control(*text))
			buf_printf(&out, "\\x%02x", (unsigned)(unsigned char)*text);
		else if (escapes && (*text == '"' || *text == '\\'))
			buf_printf(&out, "\\%c", *text);
		else
			buf_str(&out, !escapes && *text == '\'' ? "''" : (const char[]){*text, '\0'});
	}
	buf_char(&out, escapes ? '"' : '\'');
	const char *word = arena_strdup(a, out.data);
	buf_destroy(&out);
	return word;
}

/* Value of `name`; the string null must be quoted. */
static const char *quote_if_null(struct arena *a, const char *name)
{
	return strcasecmp(name, "null") == 0 ? yaml_quote(a, name) : name;
}

const char *folder_file_scalar(struct arena *a, const char *at, const char *name)
{
	return at[0] == '\0' ? name : yaml_quote(a, file_join(a, at, name));
}

/* List of all files with a suffix, sorted by name; NULL: none, or after a diagnostic. */
static const char *list_files_with_suffix(struct arena *a, struct diag_context *cx, const char *dir,
                                          const char *at, const char *ending)
{
	const char *names[FILES_MAX], *list = NULL;
	size_t n = 0;
	DIR *d = opendir(dir);
	if (d == NULL) {
		diag_environment_error(cx, LOC_NONE, DIAG_FILE, "cannot read '%s': %s", dir, strerror(errno));
		return NULL;
	}
	for (struct dirent *e; n < FILES_MAX && (e = readdir(d)) != NULL;) {
		size_t len = strlen(e->d_name), end = strlen(ending);
		if (len > end && strcmp(e->d_name + len - end, ending) == 0 &&
		    directory_has_file(a, dir, e->d_name))
			names[n++] = arena_strdup(a, e->d_name);
	}
	closedir(d);
	qsort(names, n, sizeof(names[0]), compare_strings);
	for (size_t i = 0; i < n; i++)
		list = arena_printf(a, "%s%s%s", list == NULL ? "" : list, list == NULL ? "" : ", ",
		                    yaml_quote(a, file_join(a, at, names[i])));
	return list;
}

/* Unsupported weight files, with advice on conversion. */
static const struct substitute {
	const char *name; /* file name, or a suffix that begins with a dot */
	const char *what, *advice;
} substitutes[] = {
        {"adapter_config.json", "an adapter (LoRA) for another model",
         "peft merges it into that model: AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload()"
         ".save_pretrained(OTHER); OTHER is a model"},
        {".bin", "weights as pickles of PyTorch",
         "transformers writes safetensors: AutoModel.from_pretrained(FOLDER).save_pretrained(OTHER), with "
         "the class "
         "that 'architectures' of config.json names in place of AutoModel"},
        {".pt", "weights as pickles of PyTorch",
         "safetensors.torch.save_file(torch.load(FILE), 'model.safetensors') converts them"},
        {".pth", "weights as pickles of PyTorch",
         "safetensors.torch.save_file(torch.load(FILE), 'model.safetensors') converts them"},
        {".gguf", "GGUF files", "a GGUF file is a model of its own: give its name in place of the folder's"},
        {".onnx", "a model as a graph of ONNX", ONNX_ADVICE},
        {".h5", "weights of TensorFlow",
         "transformers of version 4 reads them: from_pretrained(FOLDER, "
         "from_tf=True).save_pretrained(OTHER)"},
        {".msgpack", "weights of Flax",
         "transformers of version 4 reads them: from_pretrained(FOLDER, "
         "from_flax=True).save_pretrained(OTHER)"},
};

/* First file name with a suffix, in alphabetical order; NULL: none. */
static const char *first_file_with_suffix(struct arena *a, const char *dir, const char *ending)
{
	const char *first = NULL;
	DIR *d = opendir(dir);
	if (d == NULL)
		return NULL;
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		if (file_ends_with(e->d_name, ending) && (first == NULL || strcmp(e->d_name, first) < 0))
			first = arena_strdup(a, e->d_name);
	}
	closedir(d);
	return first;
}

/* Reports unsupported weights in the directory; false: none found. */
static bool report_substitute(struct arena *a, struct diag_context *cx, const char *dir)
{
	for (size_t i = 0; i < TFMC_COUNT(substitutes); i++) {
		const struct substitute *s = &substitutes[i];
		const char *found = s->name[0] == '.' ? first_file_with_suffix(a, dir, s->name)
		                    : directory_has_file(a, dir, s->name) ? s->name
		                                                          : NULL;
		if (found == NULL)
			continue;
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' holds %s ('%s'), which tfmc does not read", dir,
		           s->what, found);
		diag_note(cx, LOC_NONE, "%s", s->advice);
		return true;
	}
	return false;
}

const char *folder_model(struct parsed_files *f, const char *path, const char *name, const char *at,
                         enum tfmc_status *st)
{
	struct arena *a = f->arena;
	struct diag_context *cx = f->cx;
	static const char *const whole_names[] = {"model.safetensors.index.json", "model.safetensors"};
	const char *files = NULL;
	size_t errors = cx->n_errors;
	*st = TFMC_IO;
	if (!directory_has_file(a, path, "config.json")) {
		if (report_substitute(a, cx, path))
			return NULL;
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' is a folder without config.json", path);
		diag_note(cx, LOC_NONE,
		          "a model folder has config.json and safetensors; a model file (.yaml) is given by "
		          "its name");
		return NULL;
	}
	for (size_t i = 0; files == NULL && i < TFMC_COUNT(whole_names); i++)
		files = directory_has_file(a, path, whole_names[i])
		                ? folder_file_scalar(a, at, whole_names[i])
		                : NULL;
	if (files == NULL && !directory_has_file(a, path, "adapter_config.json"))
		files = list_files_with_suffix(a, cx, path, at, ".safetensors");
	if (files == NULL && cx->n_errors == errors && !report_substitute(a, cx, path))
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' has no weights: no file ends with .safetensors",
		           path);
	if (files == NULL)
		return NULL;
	const char *more = NULL, *projection = NULL;
	const struct json_node *config = folder_json(f, path, "config.json");
	if (config != NULL && directory_has_file(a, path, "modules.json"))
		more = folder_sentence(f, path, &projection);
	else if (config != NULL)
		more = folder_generation(f, path, config);
	if (projection != NULL)
		files = arena_printf(a, "%s, %s", files, yaml_quote(a, file_join(a, at, projection)));
	*st = more == NULL ? TFMC_INVALID : TFMC_OK;
	return more == NULL ? NULL
	                    : arena_printf(a, "tfmc: 1\nname: %s\nhf: %s\n%sweights: {files: [%s]}\n%s",
	                                   quote_if_null(a, name != NULL ? name : model_name(a, path)),
	                                   folder_file_scalar(a, at, "config.json"), more, files,
	                                   folder_tokenizer(a, path, at, config));
}

/* ---- GGUF ---- */

#define PARTS_MAX 1000

bool is_gguf_file(struct diag_context *cx, const char *path)
{
	return file_begins_with(cx, path, "GGUF", 4);
}

static const char part_suffix[] = "-#####-of-#####.gguf";

/* Parses NAME-00002-of-00003.gguf; false for other names. */
static bool parse_part_name(const char *path, int *component, int *parts)
{
	size_t n = strlen(path), len = sizeof(part_suffix) - 1;
	int numbers[2] = {0, 0}, at = 0;
	if (n <= len)
		return false;
	const char *end = path + n - len;
	for (size_t i = 0; i < len; i++) {
		bool digit = part_suffix[i] == '#' && isdigit((unsigned char)end[i]);
		if (!digit && part_suffix[i] != end[i])
			return false;
		if (digit)
			numbers[at] = numbers[at] * 10 + (end[i] - '0');
		at += digit && part_suffix[i + 1] != '#' && at == 0;
	}
	*component = numbers[0];
	*parts = numbers[1];
	return *component >= 1 && *component <= *parts && *parts <= PARTS_MAX;
}

int gguf_part_count(const char *path)
{
	int component, parts;
	return parse_part_name(path, &component, &parts) && component == 1 ? parts : 1;
}

const char *gguf_part_name(struct arena *a, const char *path, int i)
{
	int parts = gguf_part_count(path);
	if (parts == 1)
		return path;
	size_t stem = strlen(path) - (sizeof(part_suffix) - 1);
	return arena_printf(a, "%.*s-%05d-of-%05d.gguf", (int)stem, path, i, parts);
}

/* Integer metadata key ARCHITECTURE.key, -1: not this architecture, or no such key. */
static int64_t architecture_key(struct arena *a, const struct gguf *g, const char *architecture,
                                const char *key)
{
	const struct gguf_value *name = gguf_find(g, "general.architecture");
	if (name == NULL || name->type != GGUF_STRING || name->len != strlen(architecture) ||
	    memcmp(name->text, architecture, name->len) != 0)
		return -1;
	const struct gguf_value *v = gguf_find(g, arena_printf(a, "%s.%s", architecture, key));
	return v != NULL && gguf_is_integer_type(v->type) ? v->i : -1;
}

/* Text for bert.pooling_type: pooling and its output; "": none. */
static const char *pooling_text(struct arena *a, struct diag_context *cx, const char *path,
                                const struct gguf *g)
{
	static const char *const kinds[] = {NULL, "mean", "cls", "last"};
	int64_t type = architecture_key(a, g, "bert", "pooling_type");
	if (type >= (int64_t)TFMC_COUNT(kinds))
		diag_warning(cx, LOC_NONE, DIAG_UNSUPPORTED,
		             "'%s': not supported yet: bert.pooling_type %lld; hidden states are not pooled",
		             path, (long long)type);
	return type < 1 || type >= (int64_t)TFMC_COUNT(kinds)
	               ? ""
	               : arena_printf(a, "set: {pooling: \"%s\"}\noutputs: {sentence_embedding: x}\n",
	                              kinds[type]);
}

/* Text for metadata: pooling, and the section `tokenizer` if the file has one; NULL after a diagnostic. */
static const char *gguf_sections(struct parsed_files *f, const char *path, const char *base)
{
	const struct parsed_file *file;
	if (parsed_gguf(f, path, LOC_NONE, &file) != TFMC_OK)
		return NULL;
	const char *pooling = pooling_text(f->arena, f->cx, path, &file->gguf);
	if (!gguf_has_tokenizer(&file->gguf))
		return pooling;
	return arena_printf(f->arena, "%stokenizer: {kind: gguf, file: %s, embed: true, optional: true}\n",
	                    pooling, yaml_quote(f->arena, base));
}

const char *gguf_model(struct parsed_files *f, const char *path, const char *name, const char *at)
{
	struct arena *a = f->arena;
	const char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
	const char *first = file_join(a, at, base), *files = yaml_quote(a, first);
	size_t n = strlen(base);
	int parts = gguf_part_count(base);
	int component, of;
	if (parse_part_name(base, &component, &of) && component > 1) {
		diag_error(f->cx, LOC_NONE, DIAG_FILE, "'%s' is part %d of %d of a GGUF file", path,
		           component, of);
		diag_note(f->cx, LOC_NONE,
		          "give the first part, '%.*s-00001-of-%05d.gguf'; the others beside it are read",
		          (int)(n - (sizeof(part_suffix) - 1)), base, of);
		return NULL;
	}
	for (int i = 2; i <= parts; i++)
		files = arena_printf(a, "%s, %s", files, yaml_quote(a, gguf_part_name(a, first, i)));
	if (parts > 1)
		n -= sizeof(part_suffix) - 1;
	else if (n > 5 && strcmp(base + n - 5, ".gguf") == 0)
		n -= 5;
	const char *sections = gguf_sections(f, path, first);
	if (sections == NULL)
		return NULL;
	return arena_printf(a, "tfmc: 1\nname: %s\nhf: %s\nweights: {files: [%s]}\n%s",
	                    quote_if_null(a, name != NULL ? name : model_name(a, arena_strndup(a, base, n))),
	                    yaml_quote(a, first), files, sections);
}
