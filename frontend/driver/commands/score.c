/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc score: log-probabilities of tokens under the compiled model. A single text: a line for each token; a file: a
 * line for each text, and a total. For a sequence-to-sequence model the target is scored given its source (text, ids,
 * or a row of the features of --inputs).
 */
#include <math.h>

#include "frontend/driver/commands/prompts.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

struct total {
	double log_p;
	int64_t n;
};

struct scoring {
	struct driver *d;
	struct tfmc_session *session;
	const struct tfmc_record *record;
	struct texts texts;
	struct total total;
};

/* Prints a line: id, text if a tokenizer or the model's vocabulary has it, and log p. */
static void print_token(struct scoring *s, int32_t id, double log_p)
{
	char text[64];
	uint64_t n;
	const char *token;
	buf_printf(&s->d->out, "%d", id);
	if (s->d->tokenizer && driver_detokenize(s->d, &id, 1, TFMC_DETOKENIZE_KEEP | TFMC_DETOKENIZE_AFTER,
	                                         &token) == TFMC_OK) {
		buf_char(&s->d->out, '\t');
		buf_quoted(&s->d->out, token);
	} else if (tfmc_text_decode(s->record, &id, 1, text, sizeof(text), &n) == TFMC_RT_OK)
		buf_printf(&s->d->out, "\t%s", text);
	buf_printf(&s->d->out, "\t%.6f\n", log_p);
}

/* Prints the sum of log p, the number of predicted tokens, and the perplexity e^(-mean log p); without a newline. */
static void print_total(struct driver *d, const struct total *t)
{
	double mean = t->n ? t->log_p / (double)t->n : 0;
	buf_printf(&d->out, "log p %.6f, %lld tokens, perplexity %.4f", t->log_p, (long long)t->n,
	           exp(-mean));
}

/* text_fn: scores a text and prints its tokens, or of a file one line. */
static enum tfmc_status score_text(void *user, const struct text *text)
{
	struct scoring *s = user;
	const struct tfmc_record *r = s->record;
	const struct ids *ids = &text->ids;
	double *log_p = ARENA_ARRAY(&s->d->arena, double, ids->n + 1);
	if (!log_p)
		return TFMC_NO_MEMORY;
	if (text->row >= 0)
		TFMC_TRY(prompt_set_source_row(s->d, s->session, "score", s->texts.rows, text->row));
	int status = tfmc_score(s->session, text->source.items, text->source.n, ids->items, ids->n, log_p);
	TFMC_TRY(prompt_check_status(s->d, s->session, "score", status));
	/* Without start ids nothing precedes the first id, which is then read and not predicted. */
	struct total text_total = {0, (int64_t)ids->n - (r->n_start == 0 && ids->n > 0)};
	for (size_t i = 0; i < ids->n; i++) {
		text_total.log_p += log_p[i];
		if (!text->line)
			print_token(s, ids->items[i], log_p[i]);
	}
	print_total(s->d, &text_total);
	s->total.log_p += text_total.log_p;
	s->total.n += text_total.n;
	if (!text->line)
		return TFMC_OK;
	buf_printf(&s->d->out, "\t%s\n", text->line);
	return driver_flush_out(s->d) ? TFMC_OK : TFMC_IO;
}

/* Scores every text of the options; of a file also prints the total. */
static enum tfmc_status score_all(struct scoring *s)
{
	const struct driver_options *o = &s->d->options;
	TFMC_TRY(texts_each(&s->texts, score_text, s));
	if (o->prompt_file || o->tokens_file) {
		TFMC_TRY(texts_check_count(&s->texts, s->total.n));
		buf_str(&s->d->out, "all: ");
		print_total(s->d, &s->total);
	}
	buf_char(&s->d->out, '\n');
	return TFMC_OK;
}

enum exit_code command_score(struct driver *d)
{
	struct loaded l;
	struct compiled c = {0};
	struct scoring s = {.d = d, .texts = {.d = d, .command = "score"}};
	enum exit_code usage = texts_check_options(d);
	if (usage != EXIT_OK)
		return usage;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = texts_open(&s.texts, &l);
	/* score where the model was built with it, else prefill and step; encode for pairs. */
	static const char *const rows[] = {"score", "encode"}, *const steps[] = {"prefill", "step", "encode"};
	bool has_rows = st == TFMC_OK && ir_find_func(l.module, "score");
	const struct entry_names entries = {has_rows ? rows : steps,
	                                    (has_rows ? 1 : 2) + (size_t)(s.texts.kind == GENERATE_SEQ2SEQ)};
	if (st == TFMC_OK)
		st = driver_compile_and_open(d, &l, entries, 1, &c);
	s.session = c.session;
	s.record = s.texts.record = tfmc_session_record(s.session);
	if (st == TFMC_OK)
		st = score_all(&s);
	compiled_destroy(&c);
	loaded_destroy(&l);
	return exit_code_of(st);
}
