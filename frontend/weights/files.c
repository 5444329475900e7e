/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight files: opening by format, one table of all tensors, stripping of prefixes, ignoring by globs, lookup,
 * suggestions. And the cache of parsed files by path; linear search, since a model has few.
 * The key of a tensor is its name without stripped prefixes, by which the map finds it; its name is that of the file,
 * by which its data are found. Attached files (of an adapter) have tables of their own.
 */
#include "frontend/weights/files.h"

#include <string.h>

#include "frontend/syntax/files.h"
#include "frontend/syntax/json.h"
#include "frontend/weights/gguf.h"
#include "frontend/weights/marian.h"
#include "frontend/weights/npy.h"
#include "frontend/weights/onnx.h"
#include "frontend/weights/onnx_quantized.h"
#include "frontend/weights/safetensors.h"
#include "frontend/weights/torch.h"
#include "frontend/weights/zip.h"
#include "ir/support/glob.h"
#include "ir/support/strmap.h"

/* ---- parsed files ---- */

void parsed_files_init(struct parsed_files *f, struct arena *arena, struct diag_context *cx)
{
	*f = (struct parsed_files){.arena = arena, .cx = cx};
}

void parsed_files_destroy(struct parsed_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		file_map_close(&f->items[i]->map);
}

/* The file if it has been read before, else NULL. */
static const struct parsed_file *parsed_find(const struct parsed_files *f, const char *path)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->items[i]->path, path) == 0)
			return f->items[i];
	return NULL;
}

/* Appends a copy of `file` to the cache, which owns its mapping from then on; without memory the caller still does. */
static enum tfmc_status store_file(struct parsed_files *f, const struct parsed_file *file,
                                   const struct parsed_file **out)
{
	struct parsed_file *stored = ARENA_NEW(f->arena, struct parsed_file);
	const char *path = arena_strdup(f->arena, file->path);
	struct parsed_file **slot = arena_failed(f->arena) ? NULL : ARENA_PUSH(f->arena, f);
	if (slot == NULL)
		return TFMC_NO_MEMORY;
	*stored = *file;
	stored->path = path;
	*out = *slot = stored;
	return TFMC_OK;
}

enum tfmc_status parsed_json(struct parsed_files *f, const char *path, struct loc loc, bool shorten,
                             const struct parsed_file **out)
{
	const struct json_source src = {.name = path, .loc = loc, .code = DIAG_FILE};
	struct parsed_file file = {.path = path};
	*out = parsed_find(f, path);
	if (*out != NULL)
		return TFMC_OK;
	TFMC_TRY(file_read(f->arena, f->cx, path, JSON_BYTES_MAX, loc, &file.text, &file.len));
	/* parsed_file.text stays as read: shorten changes only what is parsed, of the same length */
	const char *text = shorten ? json_truncate_long_ints(f->arena, file.text, file.len) : file.text;
	file.root = text != NULL ? json_parse(f->arena, f->cx, &src, text, file.len) : NULL;
	if (file.root == NULL)
		return arena_failed(f->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	return store_file(f, &file, out);
}

/* The mapping belongs to the cache once the file is stored there; until then it is closed on failure. */
enum tfmc_status parsed_gguf(struct parsed_files *f, const char *path, struct loc loc,
                             const struct parsed_file **out)
{
	struct parsed_file file = {.path = path};
	*out = parsed_find(f, path);
	if (*out != NULL)
		return TFMC_OK;
	TFMC_TRY(file_map_open(f->cx, path, loc, &file.map));
	const struct stored_source src = {f->arena, f->cx, path, loc, file.map.data, file.map.len, false};
	enum tfmc_status st = gguf_read(&src, &file.gguf);
	if (st == TFMC_OK)
		st = store_file(f, &file, out);
	if (st != TFMC_OK)
		file_map_close(&file.map);
	return st;
}

/* ---- weight files ---- */

#define NEAREST_MAX     3 /* names in a suggestion */
#define INDEX_FILES_MAX 4096
#define TYPO_NAMES_MAX  20000 /* beyond this, edit distances take too long */

/* An open file. */
struct mapped_file {
	const char *path;
	struct file_map map;
	const struct parsed_file *parsed; /* owner of the mapping; NULL: owned here */
};

struct file_list {
	struct mapped_file *items;
	size_t n, cap;
};

struct tensor_list {
	struct stored_tensor **items;
	size_t n, cap;
};

/* All weight files of a model and their tensors. */
struct weight_files {
	struct arena *arena;
	struct diag_context *cx;
	const struct parsed_files *parsed; /* NULL: none */
	struct file_list files;
	struct {
		const char **items;
		size_t n, cap;
	} paths; /* of all opened files, including indices */
	struct tensor_list tensors;
	struct strmap by_stored;               /* stored name -> tensor */
	struct strmap by_name;                 /* stripped name -> tensor */
	struct weight_files *attached, *owner; /* the list of attached files; whom they are attached to */
	const char **names;                    /* names of all tensors, built on demand */
	size_t n_names;
};

struct weight_files *weight_files_create(struct arena *a, struct diag_context *cx,
                                         const struct parsed_files *parsed)
{
	struct weight_files *wf = ARENA_NEW(a, struct weight_files);
	if (wf == NULL || arena_failed(a))
		return NULL;
	wf->arena = a;
	wf->cx = cx;
	wf->parsed = parsed;
	strmap_init(&wf->by_stored, a);
	strmap_init(&wf->by_name, a);
	return wf;
}

void weight_files_destroy(struct weight_files *wf)
{
	for (; wf != NULL; wf = wf->attached)
		for (size_t i = 0; i < wf->files.n; i++)
			if (wf->files.items[i].parsed == NULL)
				file_map_close(&wf->files.items[i].map);
}

/* Appends to the list of attached files, which destroy, check and lookup traverse from wf on. */
struct weight_files *weight_files_attach(struct weight_files *wf)
{
	struct weight_files *more = weight_files_create(wf->arena, wf->cx, NULL), **end = &wf->attached;
	while (*end != NULL)
		end = &(*end)->attached;
	if (more != NULL) {
		more->owner = wf;
		*end = more;
	}
	return more;
}

void weight_files_record(struct weight_files *wf, const char *path)
{
	ARENA_ADD(wf->arena, &wf->paths, arena_strdup(wf->arena, path));
}

void weight_files_release_pages(const struct weight_files *wf)
{
	for (; wf != NULL; wf = wf->attached)
		for (size_t i = 0; i < wf->files.n; i++)
			file_map_release_pages(&wf->files.items[i].map);
}

enum tfmc_status weight_files_check(const struct weight_files *wf)
{
	for (size_t i = 0; i < wf->files.n; i++) {
		const struct mapped_file *file = &wf->files.items[i];
		if (file_map_is_same(&file->map, file->path))
			continue;
		diag_environment_error(wf->cx, LOC_NONE, DIAG_FILE, "'%.400s' was changed while it was read",
		                       file->path);
		return TFMC_IO;
	}
	return wf->attached != NULL ? weight_files_check(wf->attached) : TFMC_OK;
}

/* ---- opening ---- */

/* Adds a tensor to the table under its stored name; false after a diagnostic: another file has the name. Without
 * memory true, since the arena has failed. */
static bool add_tensor(struct weight_files *wf, struct stored_tensor *t, const char *file, struct loc loc)
{
	const struct stored_tensor *before = strmap_get(&wf->by_stored, t->name);
	if (before != NULL) {
		diag_error(wf->cx, loc, DIAG_WEIGHT_FILE, "the tensor '%.200s' is in '%s' and in '%s'",
		           t->name, before->file, file);
		return false;
	}
	wf->names = NULL; /* the list for suggestions is built again */
	if (!ARENA_ADDED(wf->arena, &wf->tensors, t))
		return true;
	t->key = t->name;
	t->file = file;
	t->loc = loc;
	strmap_set(&wf->by_stored, t->name, t);
	strmap_set(&wf->by_name, t->name, t);
	return true;
}

bool weight_files_add_as(struct weight_files *wf, struct stored_tensor *t, const char *key)
{
	t->key = key;
	t->replaced_by = t;
	wf->names = NULL;
	return ARENA_ADDED(wf->arena, &wf->tensors, t) && strmap_set(&wf->by_name, key, t);
}

bool weight_files_add(struct weight_files *wf, struct stored_tensor *t)
{
	return add_tensor(wf, t, t->file, t->loc);
}

/* Maps a file and adds it to the list, where it stays even if it proves damaged. NULL after a diagnostic. A GGUF file
   that `parsed` has mapped is shared, not mapped twice. Paths are recorded with the owner, whose list has those of
   attached files, too. */
static struct mapped_file *map_file(struct weight_files *wf, const char *path, struct loc loc)
{
	struct mapped_file *file = ARENA_PUSH(wf->arena, &wf->files);
	weight_files_record(wf->owner != NULL ? wf->owner : wf, path);
	if (file == NULL)
		return NULL;
	const struct parsed_file *parsed = wf->parsed != NULL ? parsed_find(wf->parsed, path) : NULL;
	bool is_gguf = parsed != NULL && parsed->map.data != NULL;
	*file = (struct mapped_file){.path = arena_strdup(wf->arena, path),
	                             .parsed = is_gguf ? parsed : NULL};
	if (is_gguf)
		file->map = parsed->map;
	if (is_gguf || file_map_open(wf->cx, path, loc, &file->map) == TFMC_OK)
		return file;
	wf->files.n--;
	return NULL;
}

static enum tfmc_status read_gguf(const struct stored_source *s, struct stored_tensors *out)
{
	struct gguf g;
	TFMC_TRY(gguf_read(s, &g));
	*out = g.tensors;
	return TFMC_OK;
}

static bool safetensors_is(const unsigned char *bytes, size_t len)
{
	return len > 8 && bytes[7] == 0 && bytes[8] == '{';
}

static const struct format {
	const char *name;
	bool (*is)(const unsigned char *bytes, size_t len);
	stored_reader *read;
} formats[] = {{"npy array", npy_has_magic, npy_read},
               {"PyTorch file", torch_has_magic, torch_read}, /* before npz: an archive, too */
               {"npz archive", zip_has_magic, npz_read},
               {"GGUF", gguf_has_magic, read_gguf},
               {"Marian", marian_has_magic, marian_read}, /* before safetensors: its count may be '{' */
               {"safetensors", safetensors_is, safetensors_read},
               {"ONNX", onnx_has_magic, onnx_read}};

/* The last format: its magic is the weakest, any file whose first field is a small number. */
static const struct format *const onnx_format = &formats[TFMC_COUNT(formats) - 1];

static const struct format *detect_format(const unsigned char *bytes, size_t len)
{
	for (size_t i = 0; i < TFMC_COUNT(formats); i++)
		if (formats[i].is(bytes, len))
			return &formats[i];
	return NULL;
}

const char *weight_file_format(const unsigned char *bytes, size_t len)
{
	const struct format *f = detect_format(bytes, len);
	return f != NULL ? f->name : NULL;
}

enum tfmc_status weight_file_read(const struct stored_source *s, struct stored_tensors *out)
{
	const struct format *f = detect_format(s->bytes, s->len);
	return f != NULL ? f->read(s, out) : safetensors_read(s, out);
}

/* Maps an external file of an ONNX model, once; the result is valid until the next file is mapped. `location` comes
   from a downloaded file and must stay inside of its directory. NULL after a diagnostic. */
static const struct file_map *map_external(struct weight_files *wf, const char *dir, const char *location,
                                           struct loc loc)
{
	const char *path = file_path_inside(wf->arena, wf->cx, dir, location, loc);
	for (size_t i = 0; path != NULL && i < wf->files.n; i++)
		if (strcmp(wf->files.items[i].path, path) == 0)
			return &wf->files.items[i].map;
	if (path != NULL && wf->files.n >= INDEX_FILES_MAX) {
		diag_error(wf->cx, loc, DIAG_LIMIT, "more than %d files", INDEX_FILES_MAX);
		return NULL;
	}
	const struct mapped_file *file = path != NULL ? map_file(wf, path, loc) : NULL;
	return file != NULL ? &file->map : NULL;
}

/* Adds the tensors of an ONNX model; data in other files are opened inside its directory. Tensors of quantized
   constants come last, since they read the data of others. */
static enum tfmc_status add_onnx(struct weight_files *wf, const struct mapped_file *file, const char *name,
                                 struct loc loc)
{
	const struct stored_source src = {wf->arena, wf->cx, name, loc, file->map.data, file->map.len, false};
	const char *file_name = arena_strdup(wf->arena, name), *dir = file_dir(wf->arena, file->path);
	struct onnx_model m;
	TFMC_TRY(onnx_read_model(&src, &m));
	for (size_t i = 0; i < m.tensors.n; i++) {
		struct onnx_tensor *t = m.tensors.items[i];
		const struct file_map *data =
		        t->location != NULL ? map_external(wf, dir, t->location, loc) : NULL;
		if ((t->location != NULL &&
		     (data == NULL || !onnx_set_external(&src, t, data->data, data->len))) ||
		    !add_tensor(wf, &t->stored, file_name, loc))
			return arena_failed(wf->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	}
	return onnx_add_quantized(wf, wf->arena, &m, file_name, loc) ? TFMC_OK : TFMC_NO_MEMORY;
}

/* Reads a mapped file and adds its tensors. A GGUF file that was parsed before, for its configuration, is not read
   again. ONNX has a reader of its own here, as its data may be in other files, which weight_file_read cannot open. */
static enum tfmc_status add_file(struct weight_files *wf, const struct mapped_file *file, const char *name,
                                 struct loc loc)
{
	struct stored_tensors st;
	const char *file_name = arena_strdup(wf->arena, name);
	const struct stored_source src = {wf->arena, wf->cx, name, loc, file->map.data, file->map.len, false};
	bool ok = true;
	if (detect_format(file->map.data, file->map.len) == onnx_format)
		return add_onnx(wf, file, name, loc);
	if (file->parsed != NULL)
		st = file->parsed->gguf.tensors;
	else
		TFMC_TRY(weight_file_read(&src, &st));
	for (size_t i = 0; i < st.n && ok; i++)
		ok = add_tensor(wf, &st.items[i], file_name, loc);
	if (arena_failed(wf->arena))
		return TFMC_NO_MEMORY;
	return ok ? TFMC_OK : TFMC_INVALID;
}

/* Opens a shard in the directory of its index; its name must not contain a directory, since an index is downloaded and
   must not name files elsewhere. */
static enum tfmc_status open_shard(struct weight_files *wf, const char *dir, const char *index,
                                   const char *shard, struct loc loc)
{
	if (shard[0] == '\0' || strchr(shard, '/') != NULL || strcmp(shard, "..") == 0 ||
	    strcmp(shard, ".") == 0) {
		diag_error(wf->cx, loc, DIAG_WEIGHT_FILE,
		           "'%s' names the shard '%.200s', which is not a file name", index, shard);
		return TFMC_INVALID;
	}
	const char *name = file_join(wf->arena, file_dir(wf->arena, index), shard);
	const struct mapped_file *file = map_file(wf, file_join(wf->arena, dir, name), loc);
	if (file == NULL)
		return arena_failed(wf->arena) ? TFMC_NO_MEMORY : TFMC_IO;
	return add_file(wf, file, name, loc);
}

/* Checks that every tensor of the index is in the shard it names. */
static bool check_index(struct weight_files *wf, const char *index, const struct json_node *map,
                        struct loc loc)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct stored_tensor *t = strmap_get(&wf->by_stored, map->keys[i]);
		const char *name = file_join(wf->arena, file_dir(wf->arena, index), map->items[i].text);
		if (t != NULL && strcmp(t->file, name) == 0)
			continue;
		diag_error(wf->cx, loc, DIAG_WEIGHT_FILE,
		           "'%s' places the tensor '%.200s' in '%s', which has none", index, map->keys[i],
		           map->items[i].text);
		return false;
	}
	return true;
}

/* Opens all shards that an index of JSON names, each once, in the order of their first tensors, and checks that every
   tensor is where the index says. */
static enum tfmc_status add_index(struct weight_files *wf, const struct file_map *index, const char *dir,
                                  const char *name, struct loc loc)
{
	struct json_source src = {name, loc, DIAG_WEIGHT_FILE, 0};
	struct strmap shards;
	if (index->len > JSON_BYTES_MAX) {
		diag_error(wf->cx, loc, DIAG_LIMIT, "'%s' has %zu bytes, the limit is %zu", name, index->len,
		           JSON_BYTES_MAX);
		return TFMC_INVALID;
	}
	const struct json_node *root =
	        json_parse(wf->arena, wf->cx, &src, (const char *)index->data, index->len);
	if (root == NULL)
		return arena_failed(wf->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	const struct json_node *map = json_find(root, "weight_map");
	bool is_map = map != NULL && map->kind == JSON_NODE_OBJECT;
	for (size_t i = 0; is_map && i < map->n; i++)
		is_map = map->items[i].kind == JSON_NODE_STRING;
	if (!is_map) {
		diag_error(wf->cx, loc, DIAG_WEIGHT_FILE,
		           "'%s': 'weight_map' is missing or does not map tensor names to file names", name);
		return TFMC_INVALID;
	}
	strmap_init(&shards, wf->arena);
	for (size_t i = 0; i < map->n; i++) {
		const char *shard = map->items[i].text;
		if (strmap_has(&shards, shard))
			continue;
		if (shards.n == INDEX_FILES_MAX) {
			diag_error(wf->cx, loc, DIAG_LIMIT, "'%s' names more than %d files", name,
			           INDEX_FILES_MAX);
			return TFMC_INVALID;
		}
		strmap_set(&shards, shard, wf); /* a set: the value is not read */
		TFMC_TRY(open_shard(wf, dir, name, shard, loc));
	}
	return check_index(wf, name, map, loc) ? TFMC_OK : TFMC_INVALID;
}

/* True: JSON text. A safetensors file may begin with the same byte, but has zeros in its first eight. */
static bool is_index(const struct file_map *map, const char *name)
{
	size_t n = map->len < 8 ? map->len : 8;
	return file_ends_with(name, ".safetensors.index.json") ||
	       (n > 0 && map->data[0] == '{' && memchr(map->data, '\0', n) == NULL);
}

/* True: some reader accepts the file, or, by ending or its ninth byte, a safetensors file that is damaged in its first
   eight bytes: its reader then reports the damage. */
static bool is_known_format(const struct file_map *map, const char *name)
{
	return file_ends_with(name, ".safetensors") || (map->len > 8 && map->data[8] == '{') ||
	       detect_format(map->data, map->len) != NULL;
}

/* Reports an unsupported format, by the extension if it is known. Returns TFMC_INVALID. */
static enum tfmc_status reject_format(struct weight_files *wf, const char *name, struct loc loc)
{
	static const char *const others[] = {".h5", ".pb", ".tflite"};
	for (size_t i = 0; i < TFMC_COUNT(others); i++) {
		if (!file_ends_with(name, others[i]))
			continue;
		diag_error(wf->cx, loc, DIAG_UNSUPPORTED,
		           "not supported: weight files of format '%s' ('%.200s'); convert to safetensors",
		           others[i], name);
		return TFMC_INVALID;
	}
	diag_error(wf->cx, loc, DIAG_FILE,
	           "'%.200s' is of no known format; weight files are safetensors, an index of shards, GGUF, "
	           "npy, npz, ONNX, of Marian, or of torch.save",
	           name);
	return TFMC_INVALID;
}

enum tfmc_status weight_files_open(struct weight_files *wf, const char *dir, const char *name, struct loc loc)
{
	const char *from = dir == NULL ? "" : dir;
	if (dir != NULL && file_path_any(wf->arena, wf->cx, dir, name, loc) == NULL)
		return TFMC_INVALID; /* an empty name, reported */
	const struct mapped_file *mapped = map_file(wf, file_join(wf->arena, from, name), loc);
	if (mapped == NULL)
		return arena_failed(wf->arena) ? TFMC_NO_MEMORY : TFMC_IO;
	const struct mapped_file file = *mapped; /* copy: opening shards may reallocate the list */
	enum tfmc_status st = is_index(&file.map, name)          ? add_index(wf, &file.map, from, name, loc)
	                      : is_known_format(&file.map, name) ? add_file(wf, &file, name, loc)
	                                                         : reject_format(wf, name, loc);
	/* A file that is truncated while it is mapped reads as zeros: report that as the cause. */
	return st == TFMC_INVALID && weight_files_check(wf) != TFMC_OK ? TFMC_IO : st;
}

const char *const *weight_files_paths(const struct weight_files *wf, size_t *n)
{
	*n = wf->paths.n;
	return wf->paths.items;
}

enum tfmc_status weight_files_open_all(struct weight_files *wf, const char *dir,
                                       const struct yaml_node *files)
{
	struct yaml_list list = yaml_as_list(wf->arena, files);
	enum tfmc_status worst = TFMC_OK; /* all are opened, so that every mistake is reported */
	for (size_t i = 0; i < list.n; i++) {
		enum tfmc_status st = TFMC_INVALID;
		if (yaml_expect(wf->cx, list.items[i], YAML_SCALAR, "weights.files"))
			st = weight_files_open(wf, dir, list.items[i]->text, list.items[i]->loc);
		worst = st == TFMC_OK ? worst : st;
	}
	return worst;
}

/* ---- strip and ignore ---- */

static bool has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool any_has_prefix(const struct weight_files *wf, const char *prefix)
{
	for (size_t i = 0; i < wf->tensors.n; i++) {
		if (has_prefix(wf->tensors.items[i]->key, prefix))
			return true;
	}
	return prefix[0] == '\0';
}

/* Removes a prefix from all names that have it, except from a name that would be empty, and rebuilds the name map;
   clashes are errors. */
static enum tfmc_status strip_names(struct weight_files *wf, const struct yaml_node *prefix)
{
	strmap_init(&wf->by_name, wf->arena);
	wf->names = NULL;
	for (size_t i = 0; i < wf->tensors.n; i++) {
		struct stored_tensor *t = wf->tensors.items[i];
		bool strips = has_prefix(t->key, prefix->text) && strlen(t->key) > prefix->len;
		t->key += strips ? prefix->len : 0;
		const struct stored_tensor *before = strmap_get(&wf->by_name, t->key);
		if (before != NULL) {
			diag_error(wf->cx, prefix->loc, DIAG_NAME_CLASH,
			           "without '%.60s' the tensors '%.200s' and '%.200s' have the same name",
			           prefix->text, before->name, t->name);
			return TFMC_INVALID;
		}
		strmap_set(&wf->by_name, t->key, t);
	}
	return arena_failed(wf->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

enum tfmc_status weight_files_strip(struct weight_files *wf, const struct yaml_node *prefixes)
{
	if (prefixes == NULL)
		return TFMC_OK;
	struct yaml_list list = yaml_as_list(wf->arena, prefixes);
	for (size_t i = 0; i < list.n; i++) {
		if (!yaml_expect(wf->cx, list.items[i], YAML_SCALAR, "strip_prefix"))
			return TFMC_INVALID;
		if (any_has_prefix(wf, list.items[i]->text))
			return strip_names(wf, list.items[i]);
	}
	diag_error(wf->cx, prefixes->loc, DIAG_MAP,
	           "no tensor name begins with '%.200s'%s; \"\" as the last one always fits",
	           list.n == 0 ? "" : list.items[0]->text, list.n > 1 ? " or another of these prefixes" : "");
	if (wf->tensors.n != 0)
		diag_note(wf->cx, wf->tensors.items[0]->loc, "the first tensor is '%.200s'",
		          wf->tensors.items[0]->name);
	return TFMC_INVALID;
}

enum tfmc_status weight_files_unwrap(struct weight_files *wf, const struct yaml_node *prefixes)
{
	if (prefixes == NULL)
		return TFMC_OK;
	struct yaml_list list = yaml_as_list(wf->arena, prefixes);
	/* Prefixes may be nested in any order: each pass over the list removes a level, of at most n. */
	for (size_t i = 0; i < list.n * list.n; i++) {
		const struct yaml_node *prefix = list.items[i % list.n];
		if (!yaml_expect(wf->cx, prefix, YAML_SCALAR, "unwrap"))
			return TFMC_INVALID;
		if (prefix->len > 0 && any_has_prefix(wf, prefix->text))
			TFMC_TRY(strip_names(wf, prefix));
	}
	return TFMC_OK;
}

enum tfmc_status weight_files_ignore(struct weight_files *wf, const struct yaml_node *globs)
{
	if (globs == NULL)
		return TFMC_OK;
	struct yaml_list list = yaml_as_list(wf->arena, globs);
	for (size_t i = 0; i < list.n; i++) {
		const struct yaml_node *glob = list.items[i];
		if (!yaml_expect(wf->cx, glob, YAML_SCALAR, "ignore"))
			return TFMC_INVALID;
		if (glob->len > GLOB_BYTES_MAX) {
			diag_error(wf->cx, glob->loc, DIAG_LIMIT, "the glob has more than %d bytes",
			           GLOB_BYTES_MAX);
			return TFMC_INVALID;
		}
		for (size_t j = 0; j < wf->tensors.n; j++) {
			struct stored_tensor *t = wf->tensors.items[j];
			t->ignored = t->ignored || glob_match(glob->text, t->key);
		}
	}
	return TFMC_OK;
}

/* ---- lookup ---- */

size_t weight_files_count(const struct weight_files *wf)
{
	return wf->tensors.n;
}

struct stored_tensor *weight_files_at(const struct weight_files *wf, size_t index)
{
	return wf->tensors.items[index];
}

struct stored_tensor *weight_files_find(const struct weight_files *wf, const char *name)
{
	return strmap_get(&wf->by_name, name);
}

struct stored_tensor *weight_files_find_stored(const struct weight_files *wf, const char *name)
{
	return strmap_get(&wf->by_stored, name);
}

/* Lists the keys of all tensors in the order of weight_files_at, on demand, for suggestions. None if the arena failed:
 * a small list is then its scratch area (arena.h), which the next request clears. */
static const char *const *weight_files_names(struct weight_files *wf, size_t *n)
{
	if (wf->names == NULL) {
		wf->names = ARENA_ARRAY(wf->arena, const char *, wf->tensors.n + 1);
		wf->n_names = wf->names == NULL || arena_failed(wf->arena) ? 0 : wf->tensors.n;
		for (size_t i = 0; i < wf->n_names; i++)
			wf->names[i] = wf->tensors.items[i]->key;
	}
	*n = wf->n_names;
	return wf->names;
}

/* Bytes of the common beginning and of the common end. */
size_t weight_name_similarity(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b), n = na < nb ? na : nb, head = 0, tail = 0;
	while (head < n && a[head] == b[head])
		head++;
	while (tail < n - head && a[na - 1 - tail] == b[nb - 1 - tail])
		tail++;
	return head + tail;
}

/* Inserts a name into the best few, best first, unless all are better; earlier names win ties. */
static void insert_best(const char *best[NEAREST_MAX], size_t scores[NEAREST_MAX], const char *name,
                        size_t score)
{
	for (size_t i = 0; i < NEAREST_MAX; i++) {
		if (best[i] != NULL && scores[i] >= score)
			continue;
		for (size_t j = NEAREST_MAX - 1; j > i; j--) {
			best[j] = best[j - 1];
			scores[j] = scores[j - 1];
		}
		best[i] = name;
		scores[i] = score;
		return;
	}
}

/* True: `part` is a prefix or suffix of a dotted name, cut at a dot. */
static bool is_dotted_part(const char *part, const char *name)
{
	size_t n = strlen(part), all = strlen(name);
	return n != 0 && n < all &&
	       ((strncmp(part, name, n) == 0 && name[n] == '.') ||
	        (strcmp(part, name + all - n) == 0 && name[all - n - 1] == '.'));
}

const char *weight_files_nearest(struct weight_files *wf, const char *name)
{
	const char *best[NEAREST_MAX] = {NULL};
	size_t scores[NEAREST_MAX] = {0}, n;
	const char *const *names = weight_files_names(wf, &n);
	const char *typo = n > TYPO_NAMES_MAX ? NULL : nearest_name(name, names, n);
	struct buf out;
	/* Scores, best first: SIZE_MAX, a prefix or suffix more; SIZE_MAX - 1, a typing mistake; else common bytes,
	   which must be half of the name. */
	if (typo != NULL) /* after names that differ in a prefix or suffix */
		insert_best(best, scores, typo, SIZE_MAX - 1);
	for (size_t i = 0; i < n; i++) {
		size_t score = weight_name_similarity(name, names[i]);
		if (is_dotted_part(names[i], name) || is_dotted_part(name, names[i]))
			score = SIZE_MAX; /* ahead of names that share only an end like `.weight` */
		if (score >= (strlen(name) + 1) / 2 && names[i] != typo)
			insert_best(best, scores, names[i], score);
	}
	buf_init(&out);
	for (size_t i = 0; i < NEAREST_MAX && best[i] != NULL; i++)
		buf_printf(&out, "%s%.200s", i == 0 ? "" : ", ", best[i]);
	const char *text = arena_strdup(wf->arena, out.data);
	buf_destroy(&out);
	return text;
}

void weight_tensor_data(const struct stored_tensor *t, struct weight_bytes *out)
{
	*out = (struct weight_bytes){.data = t->data,
	                             .read = t->read,
	                             .dtype = t->dtype,
	                             .rank = t->rank,
	                             .format = t->format,
	                             .read_quants = t->read_quants};
	for (int i = 0; i < t->rank; i++)
		out->dims[i] = t->dims[t->reversed ? t->rank - 1 - i : i];
}

/* Attached files are searched after those of the model, as an adapter may use a name that the model has: the file
   decides which tensor is meant. */
const struct stored_tensor *weight_files_stored(const struct weight_files *wf, const char *file,
                                                const char *tensor)
{
	const struct stored_tensor *t = strmap_get(&wf->by_stored, tensor);
	if (t != NULL && strcmp(t->file, file) == 0)
		return t;
	return wf->attached != NULL ? weight_files_stored(wf->attached, file, tensor) : NULL;
}

/* weight_source.read: data of a tensor of the opened files. */
static enum tfmc_status read_tensor(void *user, struct diag_context *cx, const char *file, const char *tensor,
                                    struct weight_bytes *out)
{
	const struct stored_tensor *t = weight_files_stored(user, file, tensor);
	if (t == NULL || !t->readable) {
		diag_error(cx, LOC_NONE, DIAG_MISSING_TENSOR,
		           "the file '%.200s' has no readable tensor '%.200s'", file, tensor);
		return TFMC_IO;
	}
	weight_tensor_data(t, out);
	return TFMC_OK;
}

struct weight_source weight_files_source(struct weight_files *wf)
{
	return (struct weight_source){.read = read_tensor, .user = wf};
}
