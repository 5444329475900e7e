/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc new: a directory with a model and a program that uses it, which build as they are. It is created with all its
 * files or not at all.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "frontend/driver/compile/driver.h"
#include "frontend/syntax/expr.h"
#include "frontend/frontend.h"
#include "frontend/weights/safetensors.h"
#include "ir/support/number.h"

extern const unsigned char new_model_yaml_in[], new_CMakeLists_txt_in[], new_main_c_in[];

/* ---- weights ---- */

/* Sizes in model.yaml.in. */
enum { WIDTH = 64, KV_WIDTH = 32, INNER = 128, LAYERS = 2, VOCAB = 32 };

/* rows 0: a vector of ones. */
static const struct parameter {
	const char *name;
	int64_t rows, columns;
} ends[] = {{"tokens.weight", VOCAB, WIDTH}, {"final.weight", 0, WIDTH}},
  layer[] = {
          {"self.norm.weight", 0, WIDTH},
          {"self.attention.q.weight", WIDTH, WIDTH},
          {"self.attention.k.weight", KV_WIDTH, WIDTH},
          {"self.attention.v.weight", KV_WIDTH, WIDTH},
          {"self.attention.o.weight", WIDTH, WIDTH},
          {"mlp.norm.weight", 0, WIDTH},
          {"mlp.ffn.gate.weight", INNER, WIDTH},
          {"mlp.ffn.up.weight", INNER, WIDTH},
          {"mlp.ffn.down.weight", WIDTH, INNER},
};

/* Makes a weight of random values, uniform in +-sqrt(3 / K): variance 1 / K, so that dot products have the variance
 * of their inputs; norms are ones. random: state of the generator. False: no memory. */
static bool make_parameter(struct arena *a, const struct parameter *p, const char *name, uint64_t *random,
                           struct stored_tensor *out)
{
	size_t n = (size_t)((p->rows ? p->rows : 1) * p->columns);
	float *data = ARENA_ARRAY(a, float, n);
	double limit = sqrt(3.0 / (double)p->columns);
	for (size_t i = 0; data && i < n; i++)
		data[i] =
		        p->rows ? (float)(limit * ((double)(number_random(random) >> 11) * 0x1p-52 - 1)) : 1;
	*out = (struct stored_tensor){
	        .name = name, .dtype = DT_F32, .readable = true, .rank = p->rows ? 2 : 1};
	out->type_name = ir_dtype_safetensors(DT_F32);
	out->dims[0] = p->rows ? p->rows : p->columns;
	out->dims[1] = p->columns;
	out->data = data;
	out->bytes = n * sizeof(float);
	return data && name;
}

/* Appends the weights as a safetensors file. The seed is fixed, so every new model has the same. */
static bool print_weights(struct arena *a, struct buf *out)
{
	struct stored_tensor items[TFMC_COUNT(ends) + LAYERS * TFMC_COUNT(layer)];
	uint64_t random = 0;
	size_t n = 0;
	bool ok = true;
	for (size_t i = 0; i < TFMC_COUNT(ends); i++)
		ok = make_parameter(a, &ends[i], ends[i].name, &random, &items[n++]) && ok;
	for (int k = 0; k < LAYERS; k++)
		for (size_t i = 0; i < TFMC_COUNT(layer); i++)
			ok = make_parameter(a, &layer[i], arena_printf(a, "layers.%d.%s", k, layer[i].name),
			                    &random, &items[n++]) &&
			     ok;
	return ok && safetensors_write(out, items, n);
}

/* ---- files ---- */

static enum tfmc_status write_file(struct driver *d, const char *directory, const char *file,
                                   struct buf *text)
{
	enum tfmc_status st = driver_write_output(d, arena_printf(&d->arena, "%s/%s", directory, file), text);
	buf_clear(text);
	return st;
}

/* Writes the files of the project and commits them: templates with the name in place of their marks, the schema for
 * editors, the vocabulary of characters, and the weights. */
static enum tfmc_status write_files(struct driver *d, const char *directory, const char *name,
                                    struct buf *text)
{
	const struct {
		const char *file;
		const unsigned char *template;
	} files[] = {{"model.yaml", new_model_yaml_in},
	             {"CMakeLists.txt", new_CMakeLists_txt_in},
	             {"main.c", new_main_c_in}};
	static const char mark[] = "@NAME@";
	for (size_t i = 0; i < TFMC_COUNT(files); i++) {
		const char *at = (const char *)files[i].template, *found;
		for (; (found = strstr(at, mark)); at = found + strlen(mark))
			buf_printf(text, "%.*s%s", (int)(found - at), at, name);
		buf_str(text, at);
		TFMC_TRY(write_file(d, directory, files[i].file, text));
	}
	frontend_schema(text);
	TFMC_TRY(write_file(d, directory, "tfmc.schema.json", text));
	buf_str(text, "<unk>\n<s>\n</s>\n \n.\n,\n");
	for (char c = 'a'; c <= 'z'; c++)
		buf_printf(text, "%c\n", c);
	TFMC_TRY(write_file(d, directory, "vocab.txt", text));
	if (!print_weights(&d->arena, text))
		return TFMC_NO_MEMORY;
	TFMC_TRY(write_file(d, directory, "model.safetensors", text));
	return outputs_commit(&d->outputs);
}

/* Returns why a project of this name would not build; NULL: it would. */
static const char *reserved_meaning(const char *name)
{
#define HEADER  "a header of the system or of tfmc (NAME.h), which the model's own would hide"
#define TARGET  "a target or a file of CMake's own"
#define KEYWORD "a word of CMake"
	static const struct {
		const char *name, *meaning;
	} reserved[] = {
#define NAME(name, meaning) {#name, meaning},
#include "frontend/driver/commands/reserved_names.def"
	};
	for (size_t i = 0; i < TFMC_COUNT(reserved); i++)
		if (!strcmp(name, reserved[i].name))
			return reserved[i].meaning;
	return NULL;
}

/* The directory is registered as a temporary file: a failure or a signal removes it, and after success it stays,
 * since only an empty one is removed. */
enum exit_code command_new(struct driver *d)
{
	const char *directory = d->options.input, *slash = strrchr(directory, '/'),
	           *name = slash ? slash + 1 : directory;
	struct output_file parent;
	struct buf text;
	if (!expr_is_name(name))
		return driver_usage_error(
		        d, "a new model has a name (letters, digits, _; at most 63), not %s", name);
	const char *meaning = reserved_meaning(name);
	if (meaning)
		return driver_usage_error(d, "%s is %s; give another name", name, meaning);
	if (!strncmp(name, "tfmc_", strlen("tfmc_")))
		return driver_usage_error(
		        d,
		        "%s: names that begin with tfmc_ are reserved for tfmc's library; give another name",
		        name);
	if (!outputs_make_directory(&parent, directory)) {
		diag_environment_error(
		        &d->diag, LOC_NONE, DIAG_FILE, "cannot create the folder %s: %s", directory,
		        errno == EEXIST ? "it exists already; give another name" : strerror(errno));
		return EXIT_ENVIRONMENT;
	}
	buf_init(&text);
	enum tfmc_status st = write_files(d, directory, name, &text);
	buf_destroy(&text);
	outputs_discard(&d->outputs);
	outputs_remove_temporary(&parent);
	if (st == TFMC_OK && !d->options.quiet)
		buf_printf(&d->log,
		           "made %s: model.yaml, main.c, CMakeLists.txt (its first line builds it)\n",
		           directory);
	return exit_code_of(st);
}
