/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects the kind of a file by its magic bytes, so that it is reported before the YAML parser fails on it.
 */
#include "frontend/model/file_kind.h"

#include <string.h>

#include "frontend/syntax/files.h"
#include "frontend/model/folder.h"

enum advice { ADVICE_INSPECT, ADVICE_FOLDER, ADVICE_CONVERT };

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
        {"\0{\"", 7, 3, "a file of weights (safetensors)", ADVICE_FOLDER},
        {"\0{}", 7, 3, "a file of weights (safetensors)", ADVICE_FOLDER},
        {"\x93NUMPY", 0, 6, "an array of NumPy", ADVICE_FOLDER},
        {"PK\3\4", 0, 4, "a zip archive, as .npz and the files of torch.save are", ADVICE_CONVERT},
        {"\x80\2", 0, 2, "a pickle of Python", ADVICE_CONVERT},
        {"\x89HDF", 0, 4, "a file of HDF5", ADVICE_CONVERT},
};

#define HEAD_BYTES 16

static bool ends_with(const char *path, const char *ending)
{
	size_t n = strlen(path), k = strlen(ending);
	return n > k && !strcmp(path + n - k, ending);
}

/* Notes what to give instead. */
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
	case ADVICE_FOLDER:
		diag_note(
		        cx, LOC_NONE,
		        "a model is a model file (.yaml) that names its weights, a folder with config.json, "
		        "or a GGUF file");
		return;
	case ADVICE_CONVERT:
		diag_note(cx, LOC_NONE,
		          "a model is a model file (.yaml), a folder with config.json and safetensors, or a "
		          "GGUF file; transformers writes such a folder with save_pretrained");
		return;
	}
}

/* True: JSON without the key `tfmc`. A model may be written in JSON, since JSON is YAML. */
static bool is_other_json(const char *path)
{
	struct arena local_arena;
	const char *text;
	size_t n;
	struct diag_context silent;
	if (!ends_with(path, ".json"))
		return false;
	arena_init(&local_arena);
	diag_init(&silent, NULL, NULL);
	bool read = file_read(&local_arena, &silent, path, (size_t)64 << 20, LOC_NONE, &text, &n) == TFMC_OK;
	bool other = read && text[strspn(text, " \t\r\n")] == '{' && !strstr(text, "\"tfmc\"");
	diag_destroy(&silent);
	arena_destroy(&local_arena);
	return other;
}

bool file_kind_may_be_model(struct arena *a, struct diag_context *cx, const char *path)
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
	if (ends_with(path, ".gguf") && n > 0) {
		diag_error(cx, LOC_NONE, DIAG_FILE,
		           "'%s' is not a GGUF file: its first four bytes are not 'GGUF'", path);
		return false;
	}
	if (ends_with(path, ".onnx")) {
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' is a graph of ONNX, not a model of tfmc", path);
		diag_note(cx, LOC_NONE, ONNX_ADVICE);
		return false;
	}
	if (is_other_json(path)) {
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' is a JSON file, not a model", path);
		advise(a, cx, path, ADVICE_FOLDER);
		return false;
	}
	return true;
}
