/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the lines of a text file that mean what a question means. embed.h and embed.o come from
 * 	tfmc examples/embed/model.yaml -o embed.o
 * and nothing else is needed: this program calls the object without libtfmcrt.
 *
 * 	embed vocab.txt sentences.txt "the cat chased the dog" ...
 *
 * A sentence is its words, in lower case; words that vocab.txt does not have are word 1. Vectors have length 1,
 * so their product is the cosine of the angle between them: 1 for the same meaning.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"

#define LONGEST    20 /* words of a sentence; further ones are left out */
#define WIDTH      48
#define BATCH      32
#define WORDS      1024
#define WORD_MAX   32
#define LINE_BYTES 1024
#define SHOWN      3
#define ALIGNMENT  64

struct vocabulary {
	char words[WORDS][WORD_MAX];
	int n;
};

struct corpus {
	char (*lines)[LINE_BYTES];
	float *vectors; /* [n, WIDTH] */
	size_t n, cap;
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "embed: %s: %s\n", what, why);
	return 0;
}

/* ---- text ---- */

static int read_vocabulary(const char *path, struct vocabulary *v)
{
	char line[LINE_BYTES];
	FILE *f = fopen(path, "r");
	if (!f)
		return complain(path, "cannot be opened");
	while (v->n < WORDS && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\r\n")] = '\0';
		snprintf(v->words[v->n++], WORD_MAX, "%.*s", WORD_MAX - 1, line);
	}
	fclose(f);
	return v->n > 2 ? 1 : complain(path, "has no words");
}

static int32_t word_number(const struct vocabulary *v, const char *word, size_t n)
{
	for (int i = 2; i < v->n; i++) {
		if (strlen(v->words[i]) == n && !memcmp(v->words[i], word, n))
			return i;
	}
	return 1;
}

/* ids [LONGEST]; the number of words, at least one. */
static int32_t encode(const struct vocabulary *v, const char *text, int32_t *ids)
{
	int32_t n = 0;
	while (*text && n < LONGEST) {
		char word[WORD_MAX];
		size_t len = 0;
		while (*text && !isalpha((unsigned char)*text))
			text++;
		for (; isalpha((unsigned char)*text); text++) {
			if (len < WORD_MAX)
				word[len++] = (char)tolower((unsigned char)*text);
		}
		if (len)
			ids[n++] = word_number(v, word, len);
	}
	if (n == 0)
		ids[n++] = 1;
	return n;
}

/* ---- vectors ---- */

/* The vectors of n <= BATCH texts, side by side: shorter ones are filled up with word 0, which nothing looks
 * at. */
static int embed(struct embed_context *context, const struct vocabulary *v, const char *const *texts,
                 size_t n, float *vectors)
{
	int32_t rows[BATCH][LONGEST] = {{0}}, ids[BATCH * LONGEST], lengths[BATCH], longest = 0;
	for (size_t i = 0; i < n; i++) {
		lengths[i] = encode(v, texts[i], rows[i]);
		longest = lengths[i] > longest ? lengths[i] : longest;
	}
	for (size_t i = 0; i < n; i++)
		memcpy(ids + i * (size_t)longest, rows[i], (size_t)longest * sizeof(*ids));
	const struct embed_run_args args = {
	        .B = (int64_t)n,
	        .S = longest,
	        .ids = ids,
	        .ids_count = n * (size_t)longest,
	        .lengths = lengths,
	        .lengths_count = n,
	        .embedding = vectors,
	        .embedding_count = n * WIDTH,
	};
	int32_t status = embed_run(context, &args);
	return status == EMBED_OK ? 1 : complain("run", embed_status_text(status));
}

static int add_line(struct corpus *c, const char *line)
{
	if (c->n == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 64;
		void *lines = realloc(c->lines, cap * sizeof(*c->lines));
		if (lines)
			c->lines = lines;
		if (!lines)
			return complain(line, "no memory");
		c->cap = cap;
	}
	snprintf(c->lines[c->n++], LINE_BYTES, "%s", line);
	return 1;
}

static int read_corpus(const char *path, struct corpus *c)
{
	char line[LINE_BYTES];
	int ok = 1;
	FILE *f = fopen(path, "r");
	if (!f)
		return complain(path, "cannot be opened");
	while (ok && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\r\n")] = '\0';
		ok = !line[0] || add_line(c, line);
	}
	fclose(f);
	return ok && c->n == 0 ? complain(path, "has no lines") : ok;
}

static int embed_corpus(struct embed_context *context, const struct vocabulary *v, struct corpus *c)
{
	c->vectors = malloc(c->n * WIDTH * sizeof(*c->vectors));
	if (!c->vectors)
		return complain("corpus", "no memory");
	for (size_t first = 0; first < c->n; first += BATCH) {
		const char *texts[BATCH];
		size_t n = c->n - first < BATCH ? c->n - first : BATCH;
		for (size_t i = 0; i < n; i++)
			texts[i] = c->lines[first + i];
		if (!embed(context, v, texts, n, c->vectors + first * WIDTH))
			return 0;
	}
	return 1;
}

/* ---- search ---- */

static float cosine(const float *a, const float *b)
{
	float sum = 0;
	for (int i = 0; i < WIDTH; i++)
		sum += a[i] * b[i];
	return sum;
}

/* The nearest lines, nearest first; of equal ones the first. */
static void print_nearest(const struct corpus *c, const float *vector)
{
	float last = 2.0f;
	size_t last_index = 0;
	for (int shown = 0; shown < SHOWN; shown++) {
		float best = -2.0f;
		size_t at = c->n;
		for (size_t i = 0; i < c->n; i++) {
			float s = cosine(vector, c->vectors + i * WIDTH);
			int later = s < last || (s == last && i > last_index && shown > 0);
			if (later && s > best) {
				best = s;
				at = i;
			}
		}
		if (at == c->n)
			return;
		printf("  %6.3f  %s\n", (double)best, c->lines[at]);
		last = best;
		last_index = at;
	}
}

static int search(struct embed_context *context, const struct vocabulary *v, struct corpus *c, int n,
                  char **questions)
{
	int ok = embed_corpus(context, v, c);
	for (int i = 0; ok && i < n; i++) {
		float vector[WIDTH];
		const char *text = questions[i];
		ok = embed(context, v, &text, 1, vector);
		if (!ok)
			return 0;
		printf("%s\n", text);
		print_nearest(c, vector);
	}
	return ok;
}

int main(int argc, char **argv)
{
	static struct vocabulary words;
	static struct embed_context context;
	struct corpus corpus = {0};
	struct tfmc_config config = {.struct_size = sizeof(config), .workers = 1};
	if (argc < 4) {
		fprintf(stderr, "usage: embed vocab.txt sentences.txt QUESTION...\n");
		return 2;
	}
	config.arena_bytes = (embed_arena_size(BATCH, LONGEST, 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	config.arena = aligned_alloc(ALIGNMENT, config.arena_bytes);
	int32_t status = embed_init(&context, &config);
	int ok = status == EMBED_OK ? 1 : complain("init", embed_status_text(status));
	ok = ok && read_vocabulary(argv[1], &words) && read_corpus(argv[2], &corpus) &&
	     search(&context, &words, &corpus, argc - 3, argv + 3);
	free(corpus.lines);
	free(corpus.vectors);
	free(config.arena);
	return !ok;
}
