/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tfmc side of compare.sh: holds one compiled model (compiled in: MODEL_HEADER, MODEL) and times it on
 * command. Commands are lines on stdin, answers are lines on stdout, the same as those of peer.py:
 *
 *	slice SECONDS    times calls (tokens) for so long, at least one: "times T..." in seconds
 *	output FILE      writes the result of one call, or the ids of one generation, as raw bytes: "ok"
 *
 *	worker MODE WEIGHTS THREADS STEPS SOURCE INPUT     INPUT: raw file, i32 ids or f32 patches
 *
 * MODE is run, prefill or decode. Decoding is one generation of STEPS tokens after the prompt (SOURCE 0), or
 * for the source (SOURCE 1); the prompt is read once and the state trimmed back to it between generations.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tfmc_rt.h"

#include MODEL_HEADER

#define MAX_TIMES 100000
#define MAX_DIMS  16

struct worker {
	const char *mode;
	struct tfmc_session *session;
	const struct tfmc_record *record;
	int64_t dims[MAX_DIMS];
	struct tfmc_buffer input, output;
	int64_t n_prompt; /* ids of the prompt or source */
	int64_t steps;
	int is_seq2seq;
	int32_t first;      /* token after the prompt */
	int32_t *generated; /* [steps] */
	double times[MAX_TIMES];
	size_t n_times;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(const char *what, int status)
{
	if (status == TFMC_RT_OK)
		return;
	fprintf(stderr, "worker: %s: %s\n", what, tfmc_rt_status_text(status));
	exit(1);
}

static void *read_file(const char *path, size_t *bytes)
{
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END)) {
		fprintf(stderr, "worker: %s cannot be read\n", path);
		exit(1);
	}
	*bytes = (size_t)ftell(f);
	rewind(f);
	void *data = malloc(*bytes + 64);
	if (!data || fread(data, 1, *bytes, f) != *bytes)
		exit(1);
	fclose(f);
	return data;
}

static void add_time(struct worker *w, double seconds)
{
	if (w->n_times < MAX_TIMES)
		w->times[w->n_times++] = seconds;
}

/* ---- calls ---- */

/* The dims of the model files: B is 1, S the length of the input, T (target tokens) what one call appends. */
static void set_dims(struct worker *w, int64_t s, int64_t t)
{
	for (uint64_t i = 0; i < w->record->n_dims; i++) {
		const char *name = tfmc_record_text(w->record, tfmc_record_dim_at(w->record, i)->name);
		w->dims[i] = !strcmp(name, "S") ? s : !strcmp(name, "T") ? t : 1;
	}
}

static void call(struct worker *w, const char *entry, const void *input, int64_t n, float *output,
                 int64_t n_output)
{
	struct tfmc_buffer in = {(void *)(uintptr_t)input, (uint64_t)n};
	struct tfmc_buffer out = {output, (uint64_t)n_output};
	check(entry, tfmc_session_call(w->session, tfmc_entry_find(w->record, entry), w->dims, &in, &out));
}

static int32_t arg_max(const float *logits, int64_t n)
{
	int64_t best = 0;
	for (int64_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return (int32_t)best;
}

/* Into a state that has read the prompt, or whose sequence is as long as the start token. */
static int32_t read_prompt(struct worker *w)
{
	const int32_t start = 1;
	float *logits = w->output.data;
	int64_t vocab = (int64_t)w->output.count;
	check("reset", tfmc_session_reset(w->session));
	set_dims(w, w->n_prompt, 1);
	if (w->is_seq2seq) {
		call(w, "encode", w->input.data, w->n_prompt, NULL, 0);
		call(w, "prefill", &start, 1, logits, vocab);
	} else {
		call(w, "prefill", w->input.data, w->n_prompt, logits, vocab);
	}
	return arg_max(logits, vocab);
}

/* The tokens after the first one; every token's time is one entry of times. */
static void generate(struct worker *w, int32_t first, double until)
{
	int64_t length = w->is_seq2seq ? 1 : w->n_prompt;
	check("trim", tfmc_session_trim(w->session, 0, length));
	w->generated[0] = first;
	double before = now();
	for (int64_t i = 1; i < w->steps; i++) {
		call(w, "step", &w->generated[i - 1], 1, w->output.data, (int64_t)w->output.count);
		w->generated[i] = arg_max(w->output.data, (int64_t)w->output.count);
		double after = now();
		add_time(w, after - before);
		before = after;
		if (after > until)
			break;
	}
}

static void run_once(struct worker *w)
{
	if (!strcmp(w->mode, "prefill"))
		check("reset", tfmc_session_reset(w->session));
	double before = now();
	call(w, w->mode, w->input.data, (int64_t)w->input.count, w->output.data, (int64_t)w->output.count);
	add_time(w, now() - before);
}

/* ---- commands ---- */

/* Calls after a pause are not timed: an eighth of the slice, or one call. */
static void time_slice(struct worker *w, double seconds)
{
	for (int timed = 0; timed < 2; timed++) {
		double end = now() + (timed ? seconds : seconds / 8);
		w->n_times = 0;
		do {
			if (!strcmp(w->mode, "decode"))
				generate(w, w->first, end);
			else
				run_once(w);
		} while (now() < end);
	}
	printf("times");
	for (size_t i = 0; i < w->n_times; i++)
		printf(" %.9g", w->times[i]);
	printf("\n");
}

static void write_output(struct worker *w, const char *path)
{
	int decodes = !strcmp(w->mode, "decode");
	FILE *f = fopen(path, "wb");
	if (decodes)
		generate(w, read_prompt(w), 1e300);
	else
		run_once(w);
	size_t n = decodes ? (size_t)w->steps : (size_t)w->output.count;
	const void *data = decodes ? (const void *)w->generated : w->output.data;
	if (!f || fwrite(data, 4, n, f) != n || fclose(f)) {
		fprintf(stderr, "worker: %s cannot be written\n", path);
		exit(1);
	}
	printf("ok\n");
}

static void serve(struct worker *w)
{
	char line[4096];
	if (!strcmp(w->mode, "decode"))
		w->first = read_prompt(w);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "slice ", 6))
			time_slice(w, strtod(line + 6, NULL));
		else if (!strncmp(line, "output ", 7))
			write_output(w, line + 7);
		fflush(stdout);
	}
}

/* ---- opening ---- */

static void open_session(struct worker *w, const char *weights, int64_t threads)
{
	struct tfmc_model model = MODEL();
	struct tfmc_session_options o = {
	        .struct_size = sizeof(o), .workers = threads, .weights_path = weights};
	w->record = model.record;
	set_dims(w, w->n_prompt, 1);
	o.batch = 1;
	o.dims_max = w->dims;
	check("open", tfmc_session_open(&model, &o, &w->session));
}

static void open_output(struct worker *w)
{
	const char *entry = !strcmp(w->mode, "decode") ? "step" : w->mode;
	int64_t number = tfmc_entry_find(w->record, entry);
	if (number < 0)
		check(entry, TFMC_RT_E_NAME);
	int64_t n = tfmc_tensor_count(w->record, tfmc_entry_output(w->record, number, 0), w->dims);
	w->output = (struct tfmc_buffer){malloc((size_t)n * sizeof(float) + 64), (uint64_t)n};
	w->generated = calloc((size_t)w->steps + 1, sizeof(int32_t));
	if (!w->output.data || !w->generated)
		check("memory", TFMC_RT_E_MEMORY);
}

int main(int argc, char **argv)
{
	static struct worker w;
	size_t bytes;
	if (argc != 7) {
		fprintf(stderr, "usage: worker MODE WEIGHTS THREADS STEPS SOURCE INPUT\n");
		return 2;
	}
	w.mode = argv[1];
	w.steps = strtol(argv[4], NULL, 10);
	w.is_seq2seq = argv[5][0] == '1';
	w.input.data = read_file(argv[6], &bytes);
	w.input.count = bytes / 4;
	/* Ids are one row; patches are 768 numbers for each position. */
	w.n_prompt = (int64_t)(strstr(argv[6], ".f32") ? w.input.count / 768 : w.input.count);
	open_session(&w, argv[2], strtol(argv[3], NULL, 10));
	open_output(&w);
	serve(&w);
	tfmc_session_close(w.session);
	return 0;
}
