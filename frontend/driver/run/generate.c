/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc generate: prompts, or feature sources, to text or token ids. A single prompt is streamed; prompts of a file
 * share decode steps (static batches of up to BATCH_MAX sequences) and are printed in their order.
 */
#define _POSIX_C_SOURCE 200809L /* sigaction */
#include <signal.h>
#include <stdlib.h>

#include "frontend/driver/run/generation_config.h"
#include "frontend/driver/run/prompts.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

#define PROMPTS_MAX 128 /* prompts of a file that are read before they are generated and printed */
#define BATCH_MAX   16  /* sequences of the session that generates them */

/* The generation settings of the command. */
struct request {
	int64_t max_tokens; /* new tokens; 0: as many as the context allows */
	struct tfmc_sample_options sample;
	bool is_sampled;
	int64_t samples;               /* sequences to sample, printed with their log p; 0: one, without it */
	struct tfmc_beam_options beam; /* beam 1: no beam search */
	int64_t n_best; /* hypotheses to print with their scores; 0: the best one, without it */
	struct tfmc_constraints rules;
};

/* The state of one command. */
struct generator {
	struct driver *d;
	struct tfmc_session *session;
	const struct tfmc_record *record;
	struct request request;
	const struct frontend_input *source; /* an encoder input of features; NULL: ids */
	bool as_ids;
	bool continues_prompt; /* the new text continues that of the prompt: it keeps a leading blank */
	struct ids target;     /* decoder prefix; empty: the start ids of the model */
	int32_t *out;          /* [cap] */
	double *log_p;
	uint64_t cap;
	bool border_noted, context_warned;
	bool is_batched; /* prompts are queued for generate_batch */
	struct {
		struct ids *items;
		size_t n, cap;
	} queue;
	size_t n_printed;    /* tokens or pieces of text of this prompt */
	double begin, first; /* driver_clock() at the call, and at its first token (0: none yet) */
	struct tfmc_token_stream stream; /* with a tokenizer */
	struct token_text token_text;
};

/* ---- printing ---- */

static void note_first_token(struct generator *g)
{
	if (g->first == 0)
		g->first = driver_clock(NULL);
}

/* SIGINT ends the generation at the next token, so that the line ends and the speed is printed; a second one has its
 * default action. */
static volatile sig_atomic_t interrupted;

static void handle_interrupt(int number)
{
	interrupted = number;
}

static void catch_interrupts(void)
{
	struct sigaction now, ours = {.sa_handler = handle_interrupt, .sa_flags = (int)SA_RESETHAND};
	if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
		(void)sigaction(SIGINT, &ours, NULL);
}

/* The result of a callback after it appended output: 0 continues the generation. */
static int flush_unless_interrupted(struct generator *g)
{
	return driver_flush_out(g->d) && !interrupted ? 0 : 1;
}

/* -v, or on a terminal: tokens per second of prefill and decoding. */
static void report_speed(struct generator *g, uint64_t n_prompt, uint64_t n)
{
	struct driver *d = g->d;
	double end = driver_clock(NULL), read = g->first - g->begin, written = end - g->first;
	if (n < 1 || g->first == 0 || !(d->options.verbose || d->progress_view.form == PROGRESS_BAR))
		return;
	(void)driver_flush_out(d);
	buf_printf(&d->log, "prompt %llu tokens", (unsigned long long)n_prompt);
	if (read > 0)
		buf_printf(&d->log, " in %.2f s, %.1f tokens/s", read, (double)n_prompt / read);
	buf_printf(&d->log, "; answer %llu tokens", (unsigned long long)n);
	/* The first token belongs to prefill. */
	if (n > 1 && written > 0)
		buf_printf(&d->log, " in %.2f s, %.1f tokens/s", written, (double)(n - 1) / written);
	int64_t workers = driver_session_workers(d), in_steps = driver_decode_workers(d, g->record);
	buf_printf(&d->log, "; %lld thread%s", (long long)workers, workers == 1 ? "" : "s");
	if (workers > 1)
		buf_printf(&d->log, ", steps %lld", (long long)in_steps);
	buf_char(&d->log, '\n');
	driver_flush_log(d);
}

/* longrope: notes once that the text passed the length from which the long RoPE factors hold. The last token of
 * a text is not fed, so it does not count. */
static void note_rope_border(struct generator *g, uint64_t n_prompt, uint64_t n)
{
	const struct tfmc_record *r = g->record;
	uint64_t threshold = (uint64_t)r->long_from;
	if (g->border_noted || threshold == 0 || n_prompt > threshold || n_prompt + n <= threshold + 1)
		return;
	g->border_noted = true;
	(void)driver_flush_out(g->d);
	diag_note(&g->d->diag, LOC_NONE,
	          "the text grew past %llu tokens, from which RoPE uses the long factors: %s",
	          (unsigned long long)threshold,
	          r->reread ? "it was read again from its first token"
	                    : "keys that were cached before keep the rotation by the short factors");
}

/* --limit-memory allows a shorter context than the model's, and the text reached it. */
static void warn_out_of_memory(struct generator *g, uint64_t n_tokens)
{
	if (!g->d->session_tokens || n_tokens < (uint64_t)g->d->session_tokens)
		return;
	(void)driver_flush_out(g->d);
	diag_warning(&g->d->diag, LOC_NONE, DIAG_LIMIT, "the text ends at %llu tokens: memory allows no more",
	             (unsigned long long)n_tokens);
	driver_note_context_limit(g->d);
}

/* Warns once that --max-tokens exceeds the remaining context. */
static void warn_context(struct generator *g, uint64_t n_prompt)
{
	const struct tfmc_record *r = g->record;
	int64_t first = r->generate_kind == 1 ? (int64_t)n_prompt : r->n_start, room = r->max_len - first;
	if (g->context_warned || !g->d->options.max_tokens || room < 0 || g->request.max_tokens <= room)
		return;
	g->context_warned = true;
	diag_warning(&g->d->diag, LOC_NONE, DIAG_OPTION,
	             "--max-tokens %lld: a sequence has at most %lld tokens, so that %lld may follow the "
	             "first %lld",
	             (long long)g->request.max_tokens, (long long)r->max_len, (long long)room,
	             (long long)first);
}

static int print_id(void *user, int32_t id)
{
	struct generator *g = user;
	note_first_token(g);
	buf_printf(&g->d->out, "%s%d", g->n_printed++ ? " " : "", id);
	return flush_unless_interrupted(g);
}

static int print_text(void *user, const char *text, uint64_t bytes)
{
	struct generator *g = user;
	note_first_token(g);
	buf_bytes(&g->d->out, text, (size_t)bytes);
	g->n_printed++;
	return flush_unless_interrupted(g);
}

static int stream_text(void *user, int32_t id)
{
	struct generator *g = user;
	note_first_token(g);
	/* Ids beyond the tokenizer's vocabulary have no text. */
	return tfmc_token_stream_add(&g->stream, id) == TFMC_TOKENIZER_E_STOPPED || interrupted;
}

/* A finished sequence as a line, after a score (with_number). */
static enum tfmc_status print_result(struct generator *g, double number, bool with_number, const int32_t *ids,
                                     uint64_t n)
{
	struct buf *out = &g->d->out;
	uint64_t bytes = 0;
	if (with_number)
		buf_printf(out, "%.6f\t", number);
	for (uint64_t i = 0; g->as_ids && i < n; i++)
		buf_printf(out, "%s%d", i ? " " : "", ids[i]);
	if (!g->as_ids && g->d->tokenizer) {
		const char *text;
		TFMC_TRY(driver_detokenize(g->d, ids, n, g->continues_prompt ? TFMC_DETOKENIZE_AFTER : 0,
		                           &text));
		buf_bytes(out, text, (size_t)tfmc_text_stop(&g->request.rules, text));
	} else if (!g->as_ids) {
		TFMC_TRY(prompt_check_status(g->d, g->session, "generate",
		                             tfmc_text_decode(g->record, ids, n, NULL, 0, &bytes)));
		char *text = arena_alloc(&g->d->arena, (size_t)bytes + 1);
		if (!text)
			return TFMC_NO_MEMORY;
		TFMC_TRY(prompt_check_status(g->d, g->session, "generate",
		                             tfmc_text_decode(g->record, ids, n, text, bytes + 1, &bytes)));
		buf_bytes(out, text, (size_t)tfmc_text_stop(&g->request.rules, text));
	}
	buf_char(out, '\n');
	return TFMC_OK;
}

/* ---- one prompt ---- */

static struct tfmc_generate_options generate_options(struct generator *g)
{
	return (struct tfmc_generate_options){.struct_size = sizeof(struct tfmc_generate_options),
	                                      .max_new_tokens = g->request.max_tokens,
	                                      .rules = &g->request.rules,
	                                      .sample = g->request.is_sampled ? &g->request.sample : NULL,
	                                      .ignore_stop = g->d->options.ignore_stop,
	                                      .user = g};
}

/* Prints the n_best hypotheses. */
static enum tfmc_status beam_search(struct generator *g, const struct ids *prompt)
{
	struct arena *a = &g->d->arena;
	const struct request *w = &g->request;
	uint64_t n, cap = w->n_best ? (uint64_t)w->n_best : 1;
	struct tfmc_hypothesis *best = ARENA_ARRAY(a, struct tfmc_hypothesis, cap);
	for (uint64_t i = 0; best && i < cap; i++) {
		best[i].cap = g->cap;
		best[i].tokens = ARENA_ARRAY(a, int32_t, g->cap + 1);
	}
	if (arena_failed(a))
		return TFMC_NO_MEMORY;
	int status = tfmc_beam_search(g->session, &w->beam, prompt->items, prompt->n, g->target.items,
	                              g->target.n, best, cap, &n);
	TFMC_TRY(prompt_check_status(g->d, g->session, "generate", status));
	for (uint64_t i = 0; i < n; i++)
		TFMC_TRY(print_result(g, best[i].score, w->n_best > 0, best[i].tokens, best[i].n));
	for (uint64_t i = 0; i < n; i++)
		note_rope_border(g, prompt->n, best[i].n);
	return TFMC_OK;
}

/* Samples with consecutive seeds and prints each sequence with its log p. */
static enum tfmc_status sample_many(struct generator *g, const struct ids *prompt)
{
	struct tfmc_sample_options sample = g->request.sample;
	struct tfmc_generate_options o = generate_options(g);
	o.sample = &sample;
	o.log_p = g->log_p;
	for (int64_t i = 0; i < g->request.samples; i++, sample.seed++) {
		uint64_t n;
		double sum = 0;
		int status = tfmc_generate(g->session, &o, prompt->items, prompt->n, g->target.items,
		                           g->target.n, g->out, g->cap, &n);
		TFMC_TRY(prompt_check_status(g->d, g->session, "generate", status));
		for (uint64_t k = 0; k < n; k++)
			sum += g->log_p[k];
		TFMC_TRY(print_result(g, sum, true, g->out, n));
		note_rope_border(g, prompt->n, n);
	}
	return TFMC_OK;
}

/* ---- batches ---- */

/* Generates all queued prompts in the slots of the session, and prints them in their order, up to the first
 * failure. */
static enum tfmc_status generate_batch(struct generator *g)
{
	struct arena *a = &g->d->arena;
	size_t n = g->queue.n;
	struct arena_mark mark = arena_mark(a);
	struct tfmc_generation *items = ARENA_ARRAY(a, struct tfmc_generation, n + 1);
	const struct tfmc_generate_options o = generate_options(g);
	for (size_t i = 0; items && i < n; i++) {
		items[i].prompt = g->queue.items[i].items;
		items[i].n_prompt = g->queue.items[i].n;
		items[i].out = ARENA_ARRAY(a, int32_t, g->cap + 1);
		items[i].cap = g->cap;
	}
	if (arena_failed(a))
		return TFMC_NO_MEMORY;
	g->queue.n = 0;
	int status = tfmc_generate_many(g->session, &o, items, n);
	for (size_t i = 0; i < n && (status == TFMC_RT_OK || items[i].status == TFMC_RT_OK); i++) {
		TFMC_TRY(
		        prompt_note_line(g->d, g->queue.items[i].line,
		                         prompt_check_status(g->d, g->session, "generate", items[i].status)));
		TFMC_TRY(print_result(g, 0, false, items[i].out, items[i].n));
		note_rope_border(g, items[i].n_prompt, items[i].n);
	}
	arena_release(a, mark);
	TFMC_TRY(prompt_check_status(g->d, g->session, "generate", status));
	return driver_flush_out(g->d) ? TFMC_OK : TFMC_IO;
}

static enum tfmc_status queue_prompt(struct generator *g, const struct ids *prompt)
{
	if (!ARENA_ADDED(&g->d->arena, &g->queue, *prompt))
		return TFMC_NO_MEMORY;
	return g->queue.n < PROMPTS_MAX ? TFMC_OK : generate_batch(g);
}

/* Generates the queued prompts at the end of a file, also when reading a line failed (TFMC_INVALID). */
static enum tfmc_status finish_batches(struct generator *g, enum tfmc_status st)
{
	enum tfmc_status generated = st != TFMC_INVALID && st != TFMC_OK ? st : generate_batch(g);
	return st == TFMC_OK ? generated : st;
}

static enum tfmc_status generate_alone(struct generator *g, const struct ids *prompt)
{
	if (g->request.beam.beam > 1)
		return beam_search(g, prompt);
	if (g->request.samples)
		return sample_many(g, prompt);
	struct tfmc_generate_options o = generate_options(g);
	/* Text after a stop string must not be printed: with stop strings the library, which looks for them, prints. */
	bool streams = !g->as_ids && g->d->tokenizer && !g->request.rules.n_stop_texts;
	o.on_token = g->as_ids ? print_id : streams ? stream_text : NULL;
	o.on_text = g->as_ids || streams ? NULL : print_text;
	tfmc_token_stream_begin(&g->stream, g->d->target_tokenizer,
	                        g->continues_prompt ? TFMC_DETOKENIZE_AFTER : 0, print_text, g);
	uint64_t n = 0;
	g->n_printed = 0;
	g->first = 0;
	g->begin = driver_clock(NULL);
	enum tfmc_finish finish = TFMC_FINISH_FAILED;
	o.finish = &finish;
	catch_interrupts();
	int status = tfmc_generate(g->session, &o, prompt->items, prompt->n, g->target.items, g->target.n,
	                           g->out, g->cap, &n);
	(void)tfmc_token_stream_end(&g->stream);
	if (status == TFMC_RT_OK || g->n_printed)
		buf_char(&g->d->out, '\n');
	if (status == TFMC_RT_OK) {
		report_speed(g, prompt->n, n);
		note_rope_border(g, prompt->n, n);
		if (finish == TFMC_FINISH_LENGTH)
			warn_out_of_memory(g, prompt->n + n);
	}
	if (interrupted) {
		(void)driver_flush_out(g->d);
		(void)raise(SIGINT); /* SA_RESETHAND: ends the process as the default action does */
	}
	return prompt_check_status(g->d, g->session, "generate", status);
}

/* A tokenizer with a template adds the start tokens itself; otherwise those of the model come first. */
static enum tfmc_status encode_text_prompt(struct generator *g, const char *text, struct ids *prompt)
{
	const struct tfmc_record *r = g->record;
	bool starts = !*text || !g->d->tokenizer || tfmc_tokenizer_is_bare(g->d->tokenizer);
	if (r->generate_kind == 1 && starts)
		TFMC_TRY(prompt_append_record_ids(g->d, r, r->start, r->n_start, prompt));
	g->continues_prompt = r->generate_kind == 1 && *text;
	if (*text) /* an empty prompt needs no vocabulary */
		TFMC_TRY(prompt_append_text(g->d, r, "generate", PROMPT_SOURCE, text, prompt));
	return TFMC_OK;
}

static enum tfmc_status parse_id_prompt(struct generator *g, const char *text, struct ids *prompt)
{
	TFMC_TRY(prompt_append_list(g->d, "generate", text, prompt));
	g->continues_prompt = false;
	for (size_t i = 0; g->d->tokenizer && g->record->generate_kind == 1 && i < prompt->n; i++)
		g->continues_prompt |= !tfmc_tokenizer_is_special(g->d->tokenizer, prompt->items[i]);
	return TFMC_OK;
}

/* The prompt of the command (number 0) or of a line of a file (from 1). */
static enum tfmc_status generate_prompt(void *user, const char *text, size_t number)
{
	struct generator *g = user;
	struct ids prompt = {.line = number};
	bool is_list = g->d->options.tokens || g->d->options.tokens_file;
	enum tfmc_status st =
	        is_list ? parse_id_prompt(g, text, &prompt) : encode_text_prompt(g, text, &prompt);
	if (st == TFMC_OK)
		warn_context(g, prompt.n);
	if (st == TFMC_OK && g->is_batched)
		return queue_prompt(g, &prompt);
	if (st == TFMC_OK)
		st = generate_alone(g, &prompt);
	return prompt_note_line(g->d, number, st);
}

/* ---- feature sources ---- */

static enum tfmc_status generate_sources(struct generator *g, const struct frontend_generate *model)
{
	const struct named_tensor *rows;
	TFMC_TRY(prompt_read_features(g->d, g->source, &rows));
	for (int64_t i = 0; i < rows->dims[0]; i++) {
		TFMC_TRY(prompt_set_source_row(g->d, g->session, "generate", rows, i));
		g->target.n = 0;
		TFMC_TRY(prompt_append_speech_start(g->d, g->session, model, &g->target));
		/* As in transformers, max_length of speech models counts from the end of the decoder prefix. */
		if (g->target.n && !g->d->options.max_tokens && model->max_total)
			g->request.rules.max_tokens = model->max_total + (int64_t)g->target.n;
		TFMC_TRY(generate_alone(g, &(struct ids){0}));
	}
	return TFMC_OK;
}

/* ---- the command ---- */

/* Greedy, sampling or beam search: --beam, else the model's beam unless a sampling option is given.
 * TFMC_INVALID after a diagnostic when options contradict. */
static enum tfmc_status choose_strategy(struct driver *d, const struct frontend_model *m, struct request *w)
{
	const struct frontend_generate *g = frontend_generate(m);
	if (g->kind == GENERATE_NONE) {
		diag_error(&d->diag, LOC_NONE, DIAG_GENERATE, "the model has no generate section");
		return TFMC_INVALID;
	}
	if (g->unsupported) {
		diag_error(&d->diag, g->loc, DIAG_UNSUPPORTED, "not supported yet: generation with '%s'",
		           g->unsupported);
		diag_note(&d->diag, LOC_NONE,
		          "`tfmc import` writes a model file in which it can be left out");
		return TFMC_INVALID;
	}
	w->max_tokens = d->options.max_tokens ? w->max_tokens : g->max_new;
	if (!g->speech.given && (d->options.language || d->options.task || d->options.timestamps)) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "--language, --task and --timestamps go with a model of speech");
		return TFMC_INVALID;
	}
	w->beam = generation_beam(g);
	w->beam.bare_scores = d->options.ctranslate2_scores;
	w->beam.length_penalty = option_real(d->options.length_penalty, w->beam.length_penalty);
	switch (d->options.early_stopping) {
	case EARLY_STOPPING_FROM_FILE: break;
	case EARLY_STOPPING_TRUE: w->beam.early_stopping = TFMC_EARLY_ALWAYS; break;
	case EARLY_STOPPING_FALSE: w->beam.early_stopping = TFMC_EARLY_JUDGED; break;
	case EARLY_STOPPING_NEVER: w->beam.early_stopping = TFMC_EARLY_NEVER; break;
	}
	w->beam.max_new_tokens = w->max_tokens;
	w->n_best = option_int(d->options.n_best, 0);
	if (w->is_sampled || d->options.temperature)
		w->beam.beam = 1;
	w->beam.beam = option_int(d->options.beam, w->beam.beam);
	if (w->samples && !w->is_sampled) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "--samples goes with sampling, such as --temperature 1");
		return TFMC_INVALID;
	}
	const char *search_option = w->n_best                   ? "--n-best"
	                            : w->beam.bare_scores       ? "--ctranslate2-scores"
	                            : d->options.length_penalty ? "--length-penalty"
	                            : d->options.early_stopping != EARLY_STOPPING_FROM_FILE
	                                    ? "--early-stopping"
	                                    : NULL;
	if (w->beam.beam == 1 && search_option) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s goes with a beam search, such as --beam 4",
		           search_option);
		return TFMC_INVALID;
	}
	if (w->beam.beam > 1 && (w->is_sampled || d->options.ignore_stop)) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "a beam of %lld goes neither with sampling nor with --ignore-stop",
		           (long long)w->beam.beam);
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

static enum tfmc_status generate_all(struct generator *g, const struct frontend_generate *model)
{
	const struct driver_options *o = &g->d->options;
	g->cap = g->record->max_len > 0 ? (uint64_t)g->record->max_len : 0;
	if (g->request.max_tokens > 0 && (uint64_t)g->request.max_tokens < g->cap)
		g->cap = (uint64_t)g->request.max_tokens;
	g->out = ARENA_ARRAY(&g->d->arena, int32_t, g->cap + 1);
	g->log_p = ARENA_ARRAY(&g->d->arena, double, g->cap + 1);
	g->as_ids = o->print_tokens || !(g->record->vocabulary || g->d->tokenizer);
	if (!g->out || !g->log_p)
		return TFMC_NO_MEMORY;
	if (!generation_rules(g->d, model, g->record, &g->request.rules))
		return TFMC_INVALID;
	if (g->d->tokenizer) {
		g->token_text.tokenizer = g->d->target_tokenizer;
		g->request.rules.token_text = driver_token_text;
		g->request.rules.user = &g->token_text;
	}
	g->request.beam.rules = &g->request.rules;
	bool has_file = o->prompt_file || o->tokens_file;
	g->is_batched = has_file && g->request.beam.beam == 1 && !g->request.samples &&
	                tfmc_session_batch(g->session) > 1;
	if (has_file)
		return finish_batches(
		        g, prompt_for_each_line(g->d, o->prompt_file ? o->prompt_file : o->tokens_file,
		                                generate_prompt, g));
	if (o->inputs)
		return generate_sources(g, model);
	return generate_prompt(g, o->tokens ? o->tokens : o->prompt ? o->prompt : "", 0);
}

static enum tfmc_status generate_model(struct driver *d, struct loaded *l, const struct request *w)
{
	struct compiled c = {0};
	struct generator g = {.d = d, .request = *w};
	static const char *const entries[] = {"prefill", "step", "encode"};
	const struct driver_options *o = &d->options;
	bool reads_text = o->prompt || o->prompt_file || o->stop.n || o->bad_words.n || o->forced_text;
	enum tfmc_status st = choose_strategy(d, l->model, &g.request);
	if (st == TFMC_OK && (reads_text || !o->print_tokens))
		st = driver_open_tokenizer(d, l->model, reads_text);
	if (st == TFMC_OK)
		st = prompt_find_feature_input(d, l->model, &g.source);
	const struct entry_names called = {entries,
	                                   frontend_generate(l->model)->kind == GENERATE_SEQ2SEQ ? 3 : 2};
	bool is_batched = g.request.beam.beam == 1 && !g.request.samples &&
	                  (d->options.prompt_file || d->options.tokens_file);
	if (st == TFMC_OK)
		st = driver_compile_jit(d, l, called, &c);
	if (st == TFMC_OK)
		st = driver_open_session(
		        d, &c, is_batched ? driver_batch_size(d, &c, BATCH_MAX) : g.request.beam.beam);
	g.session = c.session;
	g.record = tfmc_session_record(g.session);
	if (st == TFMC_OK)
		st = generate_all(&g, frontend_generate(l->model));
	compiled_destroy(&c);
	return st;
}

/* An error text for the first option that is not a list of ids; NULL: all are. */
static const char *find_bad_id_list(struct driver *d)
{
	const struct driver_options *o = &d->options;
	const char *const lists[][2] = {{"tokens", o->tokens},
	                                {"suppress", o->suppress},
	                                {"stop-tokens", o->stop_tokens},
	                                {"forced-tokens", o->forced_tokens}};
	static const char form[] = "--%s is a list of ids such as 1,2,3, not %s";
	struct ids ids = {0};
	for (size_t i = 0; i < TFMC_COUNT(lists); i++)
		if (lists[i][1] && !parse_id_list(d, lists[i][1], &ids.items, &ids.n))
			return arena_printf(&d->arena, form, lists[i][0], lists[i][1]);
	for (size_t i = 0; i < o->bad_words_ids.n; i++)
		if (!parse_id_list(d, o->bad_words_ids.items[i], &ids.items, &ids.n))
			return arena_printf(&d->arena, form, "bad-words-ids", o->bad_words_ids.items[i]);
	return NULL;
}

enum exit_code command_generate(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct request w = {.max_tokens = option_int(o->max_tokens, 0), .samples = option_int(o->samples, 0)};
	struct loaded l;
	if (!!o->tokens + !!o->prompt + !!o->prompt_file + !!o->tokens_file + !!o->inputs > 1)
		return driver_usage_error(
		        d, "only one of --prompt, --prompt-file, --tokens, --tokens-file, --inputs");
	const char *bad = find_bad_id_list(d);
	if (bad)
		return driver_usage_error(d, "%s", bad);
	if (o->forced_text && o->forced_tokens)
		return driver_usage_error(d, "only one of --forced-text, --forced-tokens");
	if (o->ignore_stop && !o->max_tokens)
		return driver_usage_error(d, "--ignore-stop requires --max-tokens");
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !l.model)
		return driver_usage_error(d, "generate requires a model file, not IR text");
	if (st == TFMC_OK) {
		w.is_sampled = generation_sampling(d, frontend_generate(l.model), &w.sample);
		st = generate_model(d, &l, &w);
	}
	loaded_destroy(&l);
	return exit_code_of(st);
}
