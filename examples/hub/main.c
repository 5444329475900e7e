/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from any model of the hub that writes: model.h and model.o come from
 *
 *	tfmc FOLDER --name=model -o model.o
 *
 * with their tokenizer inside, everything else from libtfmcrt and libtfmctok; the compiler is not needed any
 * more.
 *
 *	talk TEXT                           the likeliest continuation, each token as soon as it is there
 *
 *	talk -n 40 -t 0.8 -s 3 TEXT         at most 40 new tokens, drawn at temperature 0.8 with seed 3
 *
 *	talk -w 2 -m FILE TEXT              two workers; weights of large models, else looked for beside it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tfmc_rt.h"
#include "tfmc_tokenizer.h"

#include "model.h"

struct request {
	const char *prompt, *weights;
	uint64_t new_tokens, seed, workers;
	double temperature; /* 0: the likeliest token */
};

/* Resources of one text, all released in one place. */
struct talk {
	struct tfmc_session *session;
	struct tfmc_tokenizer *tokenizer;
	int32_t *ids, *out; /* [cap] each */
	uint64_t cap;
};

static int complain(const struct talk *t, const char *what, int status)
{
	const char *why = !status        ? ""
	                  : status < 200 ? tfmc_session_status_text(t ? t->session : NULL, status)
	                                 : tfmc_tokenizer_status_text(status);
	fprintf(stderr, "talk: %s%s%s\n", what, status ? ": " : "", why);
	return 1;
}

static int write_text(void *out, const char *text, uint64_t bytes)
{
	return fwrite(text, 1, bytes, out) != bytes || fflush(out);
}

static int on_token(void *stream, int32_t id)
{
	return tfmc_token_stream_add(stream, id) != TFMC_TOKENIZER_OK;
}

#define CAUSAL 1 /* generate_kind of models that continue their prompt; others read it as a source */

/*
 * The start ids of a model that continues: of no text, and of a tokenizer that does not say what is in
 * front of a text (SentencePiece and the like); the others add it themselves.
 */
static uint64_t put_start(const struct talk *t, const char *prompt)
{
	const struct tfmc_record *record = tfmc_session_record(t->session);
	const int64_t *start = (const void *)((const char *)record + record->start);
	if (record->generate_kind != CAUSAL || (*prompt && !tfmc_tokenizer_is_bare(t->tokenizer)))
		return 0;
	uint64_t n = (uint64_t)record->n_start < t->cap ? (uint64_t)record->n_start : t->cap;
	for (uint64_t i = 0; i < n; i++)
		t->ids[i] = (int32_t)start[i];
	return n;
}

/* Ids of the prompt; *n of them. */
static int encode(const struct talk *t, const char *prompt, uint64_t *n)
{
	uint64_t first = put_start(t, prompt);
	*n = 0;
	int status =
	        !*prompt ? (int)TFMC_TOKENIZER_OK
	                 : tfmc_tokenizer_encode(t->tokenizer, prompt, strlen(prompt), TFMC_TOKENIZE_SPECIAL,
	                                         t->ids + first, t->cap - first, n);
	*n += first;
	return status;
}

static int answer(struct talk *t, const struct request *r)
{
	struct tfmc_sample_options sample = TFMC_SAMPLE_DEFAULTS;
	struct tfmc_token_stream stream;
	uint64_t n, n_out;
	int continues = tfmc_session_record(t->session)->generate_kind == CAUSAL && *r->prompt;
	int status = encode(t, r->prompt, &n);
	if (n > t->cap) {
		fprintf(stderr, "talk: the prompt has %llu ids; at most %llu are possible\n",
		        (unsigned long long)n, (unsigned long long)t->cap);
		return 1;
	}
	if (status)
		return complain(t, "the prompt", status);
	sample.temperature = r->temperature;
	sample.seed = r->seed;
	tfmc_token_stream_begin(&stream, t->tokenizer, continues ? TFMC_DETOKENIZE_AFTER : 0, write_text,
	                        stdout);
	struct tfmc_generate_options options = {.struct_size = sizeof(options),
	                                        .max_new_tokens = (int64_t)r->new_tokens,
	                                        .sample = r->temperature > 0 ? &sample : NULL,
	                                        .on_token = on_token,
	                                        .user = &stream};
	status = tfmc_generate(t->session, &options, t->ids, n, NULL, 0, t->out, t->cap, &n_out);
	int ended = tfmc_token_stream_end(&stream);
	if (status)
		return complain(t, "generation", status);
	return ended || puts("") < 0 ? complain(t, "writing", ended) : 0;
}

/* Without a path, weights that are not in the object are beside the program or in the current directory.
 */
static const char *find_weights(const struct tfmc_record *record, const struct request *r, char *path,
                                uint64_t cap)
{
	if (r->weights || record->weights_embedded)
		return r->weights;
	return tfmc_weights_find(record, path, cap) ? NULL : path;
}

static int open_talk(struct talk *t, const struct request *r)
{
	char path[4096];
	struct tfmc_model model = model_model();
	struct tfmc_session_options options = {.struct_size = sizeof(options),
	                                       .batch = 1,
	                                       .workers = (int64_t)r->workers,
	                                       .weights_path =
	                                               find_weights(model.record, r, path, sizeof(path))};
	uint64_t bytes;
	int status = tfmc_session_open(&model, &options, &t->session);
	if (status)
		return complain(t, "session", status);
	const void *packed = tfmc_record_tokenizer(tfmc_session_record(t->session), &bytes);
	if (!packed)
		return complain(t, "the model has no tokenizer", 0);
	status = tfmc_tokenizer_open(packed, bytes, &t->tokenizer);
	if (status)
		return complain(t, "tokenizer", status);
	t->cap = 1u << 16;
	t->ids = calloc(t->cap, sizeof(*t->ids));
	t->out = calloc(t->cap, sizeof(*t->out));
	return t->ids && t->out ? 0 : complain(t, "memory", TFMC_RT_E_MEMORY);
}

static int parse_count(const char *text, uint64_t most, uint64_t *out)
{
	char *end;
	*out = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && *out <= most;
}

static int parse_temperature(const char *text, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end != text && !*end && *out >= 0 && *out <= 100;
}

static int parse_option(struct request *r, const char *name, const char *value)
{
	if (!strcmp(name, "-n"))
		return parse_count(value, 1u << 16, &r->new_tokens);
	if (!strcmp(name, "-s"))
		return parse_count(value, UINT64_MAX, &r->seed);
	if (!strcmp(name, "-w"))
		return parse_count(value, 256, &r->workers);
	if (!strcmp(name, "-t"))
		return parse_temperature(value, &r->temperature);
	r->weights = value;
	return !strcmp(name, "-m");
}

int main(int argc, char **argv)
{
	struct request r = {.workers = 1};
	struct talk t = {0};
	int i = 1, ok = 1;
	static const char usage[] =
	        "talk [-n TOKENS] [-t TEMPERATURE] [-s SEED] [-w WORKERS] [-m WEIGHTS] TEXT";
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return puts(usage) < 0;
	for (; ok && i + 2 < argc; i += 2)
		ok = parse_option(&r, argv[i], argv[i + 1]);
	if (!ok || i + 1 != argc)
		return complain(NULL, usage, 0);
	r.prompt = argv[i];
	int failed = open_talk(&t, &r) || answer(&t, &r);
	tfmc_tokenizer_close(t.tokenizer);
	tfmc_session_close(t.session);
	free(t.ids);
	free(t.out);
	return failed;
}
