/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer file on the command line, for comparisons and measurements:
 *   tokens FILE[,MERGES] ids [special] <texts, each ended by a zero byte     a line of ids for each
 *   tokens FILE[,MERGES] text          <lines of ids                         their texts, ended by zero bytes
 *   tokens FILE[,MERGES] speed TEXT                                          MB/s, the best of several rounds
 *   tokens FILE[,MERGES] pack OUT                                            the packed form
 * FILE may be a hub folder.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/syntax/files.h"
#include "frontend/model/folder.h"
#include "frontend/frontend.h"
#include "frontend/tokenizer/tokenizer.h"
#include "frontend/weights/gguf.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"
#include "tests/support/tokenizer_json.h"

#define FILE_LIMIT ((size_t)512 << 20)

static void print_diag(void *user, const struct diag_context *cx, const struct diag *d)
{
	(void)user;
	(void)cx;
	fprintf(stderr, "%s\n", d->message);
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), m = strlen(with);
	return n >= m && !strcmp(s + n - m, with);
}

static enum tfmc_status read_gguf(const struct tokenizer_source *s, const unsigned char *bytes, size_t len,
                                  struct tokenizer_packed *out)
{
	struct gguf g;
	const struct stored_source src = {s->arena, s->cx, s->name, s->loc, bytes, len, false};
	TFMC_TRY(gguf_read(&src, &g));
	return gguf_tokenizer(s, &g, out);
}

static enum tfmc_status read_any(struct tokenizer_source *s, const char *text, size_t len, const char *merges,
                                 size_t n_merges, struct tokenizer_packed *out)
{
	const unsigned char *bytes = (const unsigned char *)text;
	if (merges)
		return tokenizer_from_bpe(s, text, len, merges, n_merges, out);
	if (ends(s->name, ".json"))
		return tokenizer_from_json(s, text, len, out);
	if (ends(s->name, ".model"))
		return tokenizer_from_spm(s, bytes, len, out);
	if (gguf_has_magic(bytes, len))
		return read_gguf(s, bytes, len, out);
	if (ends(s->name, ".tsv"))
		return tokenizer_from_scored(s, text, len, out);
	if (ends(s->name, ".bin"))
		return tokenizer_from_llama2c(s, bytes, len, out);
	return tokenizer_from_wordpiece(s, text, len, out);
}

static struct tfmc_tokenizer *open_packed(const struct tokenizer_packed *packed)
{
	struct tfmc_tokenizer *t = NULL;
	int status = tfmc_tokenizer_open(packed->data, packed->bytes, &t);
	if (status)
		fprintf(stderr, "%s\n", tfmc_tokenizer_status_text(status));
	return t;
}

/* The packed form is the model's: it is copied. */
static struct tfmc_tokenizer *load_directory(struct arena *a, struct diag_context *cx, const char *path,
                                             struct tokenizer_packed *packed)
{
	const struct frontend_options none = {0};
	const struct frontend_tokenizer *t;
	struct frontend_model *m;
	if (frontend_load(cx, path, &none, &m) != TFMC_OK)
		return NULL;
	bool ok = frontend_tokenizer(m, true, &t) == TFMC_OK && t->given;
	unsigned char *copy = ok ? arena_alloc(a, t->packed.bytes) : NULL;
	if (copy)
		*packed = (struct tokenizer_packed){memcpy(copy, t->packed.data, t->packed.bytes),
		                                    t->packed.bytes};
	frontend_destroy(m);
	return copy ? open_packed(packed) : NULL;
}

static struct tfmc_tokenizer *load(struct arena *a, struct diag_context *cx, char *name,
                                   struct tokenizer_packed *packed)
{
	struct tokenizer_source s = {a, cx, name, LOC_NONE, false, NULL};
	const char *text, *merges = NULL;
	size_t len, n_merges = 0;
	char *comma = strchr(name, ',');
	if (path_is_directory(name))
		return load_directory(a, cx, name, packed);
	if (comma)
		*comma = 0;
	if (comma && file_read(a, cx, comma + 1, FILE_LIMIT, LOC_NONE, &merges, &n_merges) != TFMC_OK)
		return NULL;
	if (file_read(a, cx, name, FILE_LIMIT, LOC_NONE, &text, &len) != TFMC_OK)
		return NULL;
	if (read_any(&s, text, len, merges, n_merges, packed) != TFMC_OK)
		return NULL;
	return open_packed(packed);
}

static char *read_input(size_t *n)
{
	size_t cap = 1 << 20, got;
	char *data = malloc(cap + 1);
	*n = 0;
	while (data && (got = fread(data + *n, 1, cap - *n, stdin)) > 0) {
		*n += got;
		if (*n == cap) {
			char *grown = realloc(data, 2 * cap + 1);
			if (!grown) {
				free(data);
				return NULL;
			}
			data = grown;
			cap *= 2;
		}
	}
	if (data)
		data[*n] = 0;
	return data;
}

static int print_ids(const struct tfmc_tokenizer *t, unsigned flags)
{
	size_t n;
	char *data = read_input(&n);
	for (size_t at = 0; data && at < n;) {
		size_t len = strlen(data + at);
		uint64_t n_ids;
		int32_t *ids = malloc((4 * len + 64) * sizeof(*ids));
		if (!ids || tfmc_tokenizer_encode(t, data + at, len, flags, ids, 4 * len + 64, &n_ids))
			return 1;
		for (uint64_t i = 0; i < n_ids; i++)
			printf("%s%d", i ? " " : "", ids[i]);
		printf("\n");
		free(ids);
		at += len + 1;
	}
	free(data);
	return 0;
}

static int print_texts(const struct tfmc_tokenizer *t)
{
	static int32_t ids[1 << 16];
	static char text[1 << 20];
	size_t n;
	char *data = read_input(&n);
	for (char *line = data; line && *line;) {
		uint64_t n_ids = 0, bytes;
		while (*line && *line != '\n' && n_ids < 1 << 16) {
			char *end;
			ids[n_ids++] = (int32_t)strtol(line, &end, 10);
			line = *end == ' ' ? end + 1 : end;
		}
		line += *line == '\n';
		if (tfmc_tokenizer_decode(t, ids, n_ids, TFMC_DETOKENIZE_KEEP, text, sizeof(text), &bytes))
			return 1;
		fwrite(text, 1, (size_t)bytes, stdout);
		putchar(0);
	}
	free(data);
	return 0;
}

static double now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int measure(const struct tfmc_tokenizer *t, struct arena *a, struct diag_context *cx, const char *path)
{
	const char *text;
	size_t len;
	double best = 1e9, begin = now();
	uint64_t n = 0;
	if (file_read(a, cx, path, FILE_LIMIT, LOC_NONE, &text, &len) != TFMC_OK)
		return 1;
	int32_t *ids = malloc((len + 64) * sizeof(*ids));
	while (ids && now() - begin < 3) {
		double from = now();
		if (tfmc_tokenizer_encode(t, text, len, 0, ids, len + 64, &n))
			return 1;
		best = now() - from < best ? now() - from : best;
	}
	free(ids);
	printf("%.1f MB/s, %llu ids of %zu bytes\n", (double)len / best * 1e-6, (unsigned long long)n, len);
	return 0;
}

static int write_packed(const struct tokenizer_packed *p, const char *path)
{
	FILE *f = fopen(path, "wb");
	bool ok = f && fwrite(p->data, 1, p->bytes, f) == p->bytes;
	return (f && fclose(f)) || !ok;
}

int main(int argc, char **argv)
{
	struct arena a;
	struct diag_context cx;
	struct tokenizer_packed packed;
	if (argc < 3)
		return 2;
	arena_init(&a);
	diag_init(&cx, print_diag, NULL);
	struct tfmc_tokenizer *t = load(&a, &cx, argv[1], &packed);
	int status = 1;
	if (t && !strcmp(argv[2], "ids"))
		status = print_ids(t, argc > 3 ? TFMC_TOKENIZE_SPECIAL : 0);
	else if (t && !strcmp(argv[2], "text"))
		status = print_texts(t);
	else if (t && !strcmp(argv[2], "speed") && argc > 3)
		status = measure(t, &a, &cx, argv[3]);
	else if (t && !strcmp(argv[2], "pack") && argc > 3)
		status = write_packed(&packed, argv[3]);
	tfmc_tokenizer_close(t);
	diag_destroy(&cx);
	arena_destroy(&a);
	return status;
}
