/* SPDX-License-Identifier: Apache-2.0 */
/* Cache by path; linear search, since a model has few files. */
#include "frontend/weights/parsed.h"

#include <string.h>

void parsed_files_init(struct parsed_files *f, struct arena *arena, struct diag_context *cx)
{
	*f = (struct parsed_files){.arena = arena, .cx = cx};
}

void parsed_files_destroy(struct parsed_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		file_map_close(&f->items[i]->map);
}

const struct parsed_file *parsed_find(const struct parsed_files *f, const char *path)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->items[i]->path, path) == 0)
			return f->items[i];
	return NULL;
}

/* Appends a file to the cache. */
static enum tfmc_status store_file(struct parsed_files *f, const struct parsed_file *file,
                                   const struct parsed_file **out)
{
	struct parsed_file *stored = ARENA_NEW(f->arena, struct parsed_file);
	struct parsed_file **slot = stored != NULL ? ARENA_PUSH(f->arena, f) : NULL;
	if (slot == NULL)
		return TFMC_NO_MEMORY;
	*stored = *file;
	stored->path = arena_strdup(f->arena, file->path);
	*out = *slot = stored;
	return arena_failed(f->arena) ? TFMC_NO_MEMORY : TFMC_OK;
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
	const char *text = shorten ? json_truncate_long_ints(f->arena, file.text, file.len) : file.text;
	file.root = text != NULL ? json_parse(f->arena, f->cx, &src, text, file.len) : NULL;
	if (file.root == NULL)
		return arena_failed(f->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	return store_file(f, &file, out);
}

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
