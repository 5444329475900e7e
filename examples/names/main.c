/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes up names, and scores given ones, with the compiled model. names.h and names.o come from
 *	tfmc examples/names/model.yaml --entries=prefill,step,score -o names.o
 * and everything else from libtfmcrt; the compiler is not needed any more.
 *
 *	names 10 7                 ten names drawn with the seeds 7 to 16, each after its log-probability
 *	names -s shikuro xqwpt     log-probabilities of given words
 *	names -t 10 7              the same ten names, made side by side (together.c)
 *	names -w 3 ...             with three workers: the same names, the same numbers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tfmc_rt.h"

#include "names.h"
#include "together.h"

#define MAX_IDS   MADE_MAX
#define MAX_BYTES 256

static int complain(const char *what, int status)
{
	fprintf(stderr, "names: %s%s%s\n", what, status ? ": " : "",
	        status ? tfmc_rt_status_text(status) : "");
	return 1;
}

/* Prints log p of ids, which end with the stop id, and the text before it. */
static int print_scored(struct tfmc_session *session, const int32_t *ids, uint64_t n, const char *text)
{
	double log_p[MAX_IDS], sum = 0;
	int status = tfmc_score(session, NULL, 0, ids, n, log_p);
	if (status != TFMC_RT_OK)
		return complain(text, status);
	for (uint64_t i = 0; i < n; i++)
		sum += log_p[i];
	printf("%12.6f  %s\n", sum, text);
	return 0;
}

static struct tfmc_sample_options sample_options(uint64_t seed)
{
	struct tfmc_sample_options sample = TFMC_SAMPLE_DEFAULTS;
	sample.temperature = 0.8;
	sample.top_p = 0.95;
	sample.seed = seed;
	return sample;
}

static int print_name(struct tfmc_session *session, const int32_t *ids, uint64_t n)
{
	char text[MAX_BYTES];
	uint64_t bytes;
	int status = tfmc_text_decode(tfmc_session_record(session), ids, n, text, sizeof(text), &bytes);
	return status == TFMC_RT_OK ? print_scored(session, ids, n, text) : complain("text", status);
}

/* A name: from nothing (the model's start id) to the stop id. */
static int make_up(struct tfmc_session *session, uint64_t seed)
{
	struct tfmc_sample_options sample = sample_options(seed);
	struct tfmc_generate_options options = {.struct_size = sizeof(options), .sample = &sample};
	int32_t ids[MAX_IDS];
	uint64_t n;
	int status = tfmc_generate(session, &options, NULL, 0, NULL, 0, ids, MAX_IDS, &n);
	return status == TFMC_RT_OK ? print_name(session, ids, n) : complain("generate", status);
}

static int make_up_together(struct tfmc_session *session, uint64_t count, uint64_t seed)
{
	struct tfmc_sample_options sample = sample_options(seed);
	struct made *made = count < 1 << 20 ? calloc((size_t)count + 1, sizeof(*made)) : NULL;
	int status = made ? make_together(session, &sample, count, made) : (int)TFMC_RT_E_MEMORY;
	int failed = status == TFMC_RT_OK ? 0 : complain("together", status);
	for (uint64_t i = 0; status == TFMC_RT_OK && i < count; i++)
		failed |= print_name(session, made[i].ids, made[i].n);
	free(made);
	return failed;
}

/* A word counts with its end: the stop id after it. */
static int score(struct tfmc_session *session, const char *word)
{
	const struct tfmc_record *record = tfmc_session_record(session);
	const int64_t *stop = (const void *)((const char *)record + record->stop);
	int32_t ids[MAX_IDS];
	uint64_t n;
	int status = tfmc_text_encode(record, word, ids, MAX_IDS - 1, &n);
	if (status != TFMC_RT_OK)
		return complain(word, status);
	if (n > MAX_IDS - 1)
		return complain(word, TFMC_RT_E_PROMPT);
	ids[n] = (int32_t)stop[0];
	return print_scored(session, ids, n + 1, word);
}

static int parse_number(const char *text, uint64_t *out)
{
	char *end;
	if (*text < '0' || *text > '9')
		return 0;
	*out = strtoull(text, &end, 10);
	return !*end;
}

static int run(struct tfmc_session *session, int argc, char **argv)
{
	uint64_t count, seed;
	int failed = 0;
	if (argc > 1 && !strcmp(argv[0], "-s")) {
		for (int i = 1; i < argc; i++)
			failed |= score(session, argv[i]);
		return failed;
	}
	int together = argc > 0 && !strcmp(argv[0], "-t");
	argc -= together;
	argv += together;
	if (argc != 2 || !parse_number(argv[0], &count) || !parse_number(argv[1], &seed))
		return complain("names [-w WORKERS] [-t] COUNT SEED, or names [-w WORKERS] -s WORD...", 0);
	if (together)
		return make_up_together(session, count, seed);
	for (uint64_t i = 0; i < count; i++)
		failed |= make_up(session, seed + i);
	return failed;
}

int main(int argc, char **argv)
{
	struct tfmc_model model = names_model();
	struct tfmc_session_options options = {.struct_size = sizeof(options), .workers = 1};
	struct tfmc_session *session;
	uint64_t workers = 1;
	int first = argc > 2 && !strcmp(argv[1], "-w") ? 3 : 1;
	if (first == 3 && (!parse_number(argv[2], &workers) || workers < 1 || workers > 256))
		return complain("-w is followed by a number from 1 to 256", 0);
	options.workers = (int64_t)workers;
	int status = tfmc_session_open(&model, &options, &session);
	if (status != TFMC_RT_OK)
		return complain("session", status);
	int failed = run(session, argc - first, argv + first);
	tfmc_session_close(session);
	return failed;
}
