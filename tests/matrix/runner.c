/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the cases of cases.bin (frontend/syntax/files.c) on the models of models.h: plain C that
 * knows runtime/abi.h only, so that any compiler for any machine builds it. Every
 * buffer lies at an address aligned for its elements and no more, between guard
 * bytes; inputs must be unchanged after a call.
 *
 *	runner cases.bin NAME.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi.h"
#define MATRIX_RUNNER
#include "tests/matrix/files.h"

#define GUARD       128
#define GUARD_BYTE  0xa5
#define BUFFERS_MAX 64

struct model {
	const char *name;
	const uint64_t *record;
	int32_t (*init)(void *context, const struct tfmc_config *config);
	int32_t (*call)(void *context, uint64_t entry, const uint64_t *args, int64_t worker);
	uint64_t (*arena_bytes)(const int64_t *dims, int64_t workers);
	uint64_t (*state_bytes)(int64_t batch);
};

#define MODEL(name)                                                                               \
	extern const uint64_t name##_record[];                                                    \
	int32_t name##_init(void *context, const struct tfmc_config *config);                     \
	int32_t name##_call(void *context, uint64_t entry, const uint64_t *args, int64_t worker); \
	uint64_t name##_arena_bytes(const int64_t *dims, int64_t workers);                        \
	uint64_t name##_state_bytes(int64_t batch);
#include "models.h"
#undef MODEL

static const struct model models[] = {
#define MODEL(name) {#name, name##_record, name##_init, name##_call, name##_arena_bytes, name##_state_bytes},
#include "models.h"
#undef MODEL
};
#define N_MODELS (sizeof(models) / sizeof(models[0]))

/* ---- memory between guards ---- */

struct guarded {
	unsigned char *base, *data;
	size_t n;
};

/* 64-byte aligned plus `skew`. */
static struct guarded guarded_make(size_t n, size_t skew)
{
	struct guarded g = {NULL, NULL, n};
	size_t all = (n + skew + 2 * GUARD + 63) / 64 * 64;
	g.base = aligned_alloc(64, all);
	if (!g.base) {
		fprintf(stderr, "runner: no memory\n");
		exit(3);
	}
	memset(g.base, GUARD_BYTE, all);
	g.data = g.base + GUARD + skew;
	return g;
}

static int guarded_is_whole(const struct guarded *g)
{
	for (const unsigned char *p = g->base; p < g->data; p++)
		if (*p != GUARD_BYTE)
			return 0;
	for (size_t i = 0; i < GUARD; i++)
		if (g->data[g->n + i] != GUARD_BYTE)
			return 0;
	return 1;
}

static void guarded_free(struct guarded *g)
{
	free(g->base);
	g->base = NULL;
}

/* ---- the file of cases ---- */

struct tensor {
	uint64_t count, size;
	const unsigned char *data; /* NULL: an output */
};

struct test {
	const char *model, *entry;
	size_t model_len, entry_len;
	uint64_t reset, n_dims, n_inputs, n_outputs;
	const int64_t *dims;
	struct tensor in[BUFFERS_MAX], out[BUFFERS_MAX];
};

static uint64_t word(const uint64_t **at)
{
	return *(*at)++;
}

static const void *bytes(const uint64_t **at, size_t n)
{
	const void *p = *at;
	*at += (n + 7) / 8;
	return p;
}

static void read_test(const uint64_t **at, struct test *t)
{
	t->model_len = (size_t)word(at);
	t->model = bytes(at, t->model_len);
	t->entry_len = (size_t)word(at);
	t->entry = bytes(at, t->entry_len);
	t->reset = word(at);
	t->n_dims = word(at);
	t->dims = bytes(at, (size_t)t->n_dims * 8);
	t->n_inputs = word(at);
	for (uint64_t i = 0; i < t->n_inputs && i < BUFFERS_MAX; i++) {
		t->in[i].count = word(at);
		t->in[i].size = word(at);
		t->in[i].data = bytes(at, (size_t)(t->in[i].count * t->in[i].size));
	}
	t->n_outputs = word(at);
	for (uint64_t i = 0; i < t->n_outputs && i < BUFFERS_MAX; i++) {
		t->out[i].count = word(at);
		t->out[i].size = word(at);
	}
}

static const struct model *find_model(const struct test *t)
{
	for (size_t i = 0; i < N_MODELS; i++)
		if (strlen(models[i].name) == t->model_len && !memcmp(models[i].name, t->model, t->model_len))
			return &models[i];
	return NULL;
}

static const struct tfmc_record_entry *find_entry(const struct model *m, const struct test *t,
                                                  uint64_t *number)
{
	const struct tfmc_record *r = (const void *)m->record;
	const struct tfmc_record_entry *e = (const void *)((const char *)r + r->entries);
	for (*number = 0; *number < r->n_entries; (*number)++, e++) {
		const char *name = (const char *)r + e->name;
		if (strlen(name) == t->entry_len && !memcmp(name, t->entry, t->entry_len))
			return e;
	}
	return NULL;
}

/* ---- a model in use: context, state and arena live until the next reset ---- */

struct session {
	const struct model *model;
	struct guarded context, state, arena;
};

static void session_close(struct session *s)
{
	guarded_free(&s->context);
	guarded_free(&s->state);
	guarded_free(&s->arena);
	s->model = NULL;
}

/* Arena for this call and those that follow on the same state. */
static uint64_t arena_for(const struct model *m, const struct test *t, const uint64_t *next, uint64_t n_left)
{
	uint64_t most = m->arena_bytes(t->dims, 1);
	struct test later;
	while (n_left-- > 0) {
		read_test(&next, &later);
		if (later.reset || find_model(&later) != m)
			break;
		uint64_t n = m->arena_bytes(later.dims, 1);
		most = n > most ? n : most;
	}
	return most;
}

static int32_t session_open(struct session *s, const struct model *m, uint64_t arena, int64_t batch)
{
	const struct tfmc_record *r = (const void *)m->record;
	struct tfmc_config config;
	session_close(s);
	s->model = m;
	s->context = guarded_make((size_t)r->context_bytes, 0);
	s->state = guarded_make((size_t)m->state_bytes(batch), 0);
	s->arena = guarded_make((size_t)arena, 0);
	memset(&config, 0, sizeof(config));
	config.struct_size = sizeof(config);
	config.arena = s->arena.data;
	config.arena_bytes = arena;
	if (s->state.n > 0) {
		config.state = s->state.data;
		config.state_bytes = s->state.n;
		config.batch = batch;
	}
	return m->init(s->context.data, &config);
}

/* ---- one case ---- */

static void put(FILE *f, const void *data, size_t n)
{
	static const char zeros[8];
	fwrite(data, 1, n, f);
	fwrite(zeros, 1, (8 - n % 8) % 8, f);
}

/* The words of the call; buffers of inputs, then outputs. */
static void fill_words(const struct model *m, const struct tfmc_record_entry *e, const struct test *t,
                       const struct guarded *buffers, uint64_t *words)
{
	const uint64_t *numbers = (const void *)((const char *)m->record + e->dims);
	for (uint64_t i = 0; i < e->n_dims; i++)
		*words++ = (uint64_t)t->dims[numbers[i]];
	for (uint64_t i = 0; i < t->n_inputs + t->n_outputs; i++) {
		*words++ = (uint64_t)(uintptr_t)buffers[i].data;
		*words++ = i < t->n_inputs ? t->in[i].count : t->out[i - t->n_inputs].count;
	}
}

static uint64_t check_memory(const struct session *s, const struct test *t, const struct guarded *buffers)
{
	if (!guarded_is_whole(&s->context) || !guarded_is_whole(&s->state) || !guarded_is_whole(&s->arena))
		return MATRIX_GUARD;
	for (uint64_t i = 0; i < t->n_inputs + t->n_outputs; i++)
		if (!guarded_is_whole(&buffers[i]))
			return MATRIX_GUARD;
	for (uint64_t i = 0; i < t->n_inputs; i++)
		if (buffers[i].n > 0 && memcmp(buffers[i].data, t->in[i].data, buffers[i].n) != 0)
			return MATRIX_INPUT;
	return 0;
}

static uint64_t call(struct session *s, const struct test *t, const struct tfmc_record_entry *e,
                     uint64_t number, struct guarded *buffers)
{
	uint64_t words[2 * BUFFERS_MAX + 64];
	if (e->n_inputs != t->n_inputs || e->n_outputs != t->n_outputs || e->n_dims > 64)
		return MATRIX_MISMATCH;
	for (uint64_t i = 0; i < t->n_inputs; i++) {
		buffers[i] = guarded_make((size_t)(t->in[i].count * t->in[i].size), (size_t)t->in[i].size);
		memcpy(buffers[i].data, t->in[i].data, buffers[i].n);
	}
	for (uint64_t i = 0; i < t->n_outputs; i++)
		buffers[t->n_inputs + i] =
		        guarded_make((size_t)(t->out[i].count * t->out[i].size), (size_t)t->out[i].size);
	fill_words(s->model, e, t, buffers, words);
	int32_t status = s->model->call(s->context.data, number, words, -1);
	return status ? (uint64_t)status : check_memory(s, t, buffers);
}

static void run(struct session *s, const struct test *t, const uint64_t *next, uint64_t n_left, int64_t batch,
                FILE *f)
{
	struct guarded buffers[BUFFERS_MAX];
	const struct model *m = find_model(t);
	uint64_t status = 0, number = 0, n = t->n_inputs + t->n_outputs;
	const struct tfmc_record_entry *e = m ? find_entry(m, t, &number) : NULL;
	memset(buffers, 0, sizeof(buffers));
	if (!e || n > BUFFERS_MAX)
		status = MATRIX_ABSENT;
	else if (t->reset || s->model != m)
		status = (uint64_t)session_open(s, m, arena_for(m, t, next, n_left), batch);
	if (!status)
		status = call(s, t, e, number, buffers);
	put(f, &status, sizeof(status));
	for (uint64_t i = t->n_inputs; i < n && !status; i++)
		put(f, buffers[i].data, buffers[i].n);
	for (uint64_t i = 0; i < n && i < BUFFERS_MAX; i++)
		guarded_free(&buffers[i]);
}

static uint64_t *read_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	long n = -1;
	uint64_t *words = NULL;
	if (f && !fseek(f, 0, SEEK_END))
		n = ftell(f);
	if (n >= 24)
		words = malloc((size_t)n);
	if (f)
		rewind(f);
	if (words && fread(words, 1, (size_t)n, f) != (size_t)n)
		words = NULL;
	if (f)
		fclose(f);
	return words;
}

int main(int argc, char **argv)
{
	struct session session;
	struct test test;
	uint64_t *words = argc == 3 ? read_file(argv[1]) : NULL;
	FILE *f = words && words[0] == MATRIX_MAGIC ? fopen(argv[2], "wb") : NULL;
	if (!f) {
		fprintf(stderr, "usage: runner cases.bin OUT\n");
		return 2;
	}
	memset(&session, 0, sizeof(session));
	const uint64_t *at = words + 3;
	for (uint64_t i = 0, n = words[2]; i < n; i++) {
		read_test(&at, &test);
		run(&session, &test, at, n - i - 1, (int64_t)words[1], f);
	}
	session_close(&session);
	free(words);
	return fclose(f) ? 3 : 0;
}
