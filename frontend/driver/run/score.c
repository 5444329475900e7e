/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc score: log-probabilities of texts or ids under the compiled model. One
 * prompt: a line for each token; a file of prompts: a line for each, and all of
 * them together. Of a sequence-to-sequence model the target is scored, given
 * its source: text, ids, or features of --inputs, a row for each target.
 */
#include <math.h>
#include <string.h>

#include "frontend/driver/run/prompts.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

struct total {
	double log_p;
	int64_t n;
};

struct scoring {
	struct driver *d;
	struct tfmc_session *session;
	const struct tfmc_record *record;
	bool is_pair;                    /* sequence-to-sequence */
	bool reads_source;               /* as text or ids */
	const struct named_tensor *rows; /* sources that are no ids; NULL: none */
	int64_t n_scored;                /* of them */
	bool each;                       /* print every token */
	struct total total;
};

static void print_token(struct scoring *s, int32_t id, double log_p)
{
	char text[64];
	uint64_t n;
	const char *token;
	buf_printf(&s->d->out, "%d", id);
	if (s->d->tokenizer &&
	    driver_ids_text(s->d, &id, 1, TFMC_DETOKENIZE_KEEP | TFMC_DETOKENIZE_AFTER, &token) == TFMC_OK) {
		buf_char(&s->d->out, '\t');
		buf_quoted(&s->d->out, token);
	} else if (tfmc_text_decode(s->record, &id, 1, text, sizeof(text), &n) == TFMC_RT_OK)
		buf_printf(&s->d->out, "\t%s", text);
	buf_printf(&s->d->out, "\t%.6f\n", log_p);
}

static void print_sum(struct driver *d, const struct total *t)
{
	double mean = t->n ? t->log_p / (double)t->n : 0;
	buf_printf(&d->out, "log p %.6f, %lld tokens, perplexity %.4f", t->log_p, (long long)t->n,
	           exp(-mean));
}

/* The next row is the source of the next target. */
static enum tfmc_status next_row(struct scoring *s)
{
	if (s->n_scored < s->rows->dims[0])
		return prompt_set_row(s->d, s->session, "score", s->rows, s->n_scored++);
	diag_error(&s->d->diag, LOC_NONE, DIAG_INPUT, "score: %s has %lld sources; there are more targets",
	           s->d->options.inputs, (long long)s->rows->dims[0]);
	return TFMC_INVALID;
}

static enum tfmc_status score_ids(struct scoring *s, const struct ids *source, const struct ids *ids)
{
	const struct tfmc_record *r = s->record;
	double *log_p = ARENA_ARRAY(&s->d->arena, double, ids->n + 1);
	if (!log_p)
		return TFMC_NO_MEMORY;
	if (s->rows)
		TFMC_TRY(next_row(s));
	int status = tfmc_score(s->session, source->items, source->n, ids->items, ids->n, log_p);
	TFMC_TRY(prompt_status(s->d, s->session, "score", status));
	struct total own = {0, (int64_t)ids->n - (r->n_start == 0 && ids->n > 0)};
	for (size_t i = 0; i < ids->n; i++) {
		own.log_p += log_p[i];
		if (s->each)
			print_token(s, ids->items[i], log_p[i]);
	}
	print_sum(s->d, &own);
	s->total.log_p += own.log_p;
	s->total.n += own.n;
	return TFMC_OK;
}

/* A source or what is scored: a text or a list of ids. The stop id ends a text, as it ends what is generated. */
struct side {
	const char *text, *list;
};

static enum tfmc_status score_sides(struct scoring *s, struct side source, struct side target)
{
	const struct tfmc_record *r = s->record;
	struct ids in = {0}, ids = {0};
	if (s->reads_source)
		TFMC_TRY(source.list ? prompt_list(s->d, "score", source.list, &in)
		                     : prompt_text(s->d, r, "score", PROMPT_SOURCE, source.text, &in));
	if (target.list) {
		TFMC_TRY(prompt_list(s->d, "score", target.list, &ids));
	} else {
		enum prompt_vocabulary which = s->is_pair ? PROMPT_TARGET : PROMPT_PLAIN;
		TFMC_TRY(prompt_text(s->d, r, "score", which, target.text, &ids));
		TFMC_TRY(prompt_facts(s->d, r, r->stop, r->n_stop > 0, &ids));
	}
	return score_ids(s, &in, &ids);
}

/* "source TAB target", or what is scored alone: also the target of a row of --inputs. */
static enum tfmc_status score_line(void *user, const char *line)
{
	struct scoring *s = user;
	const char *tab = s->reads_source ? strchr(line, '\t') : NULL;
	if (s->reads_source && !tab) {
		diag_error(&s->d->diag, LOC_NONE, DIAG_INPUT, "score: a line is source, tab, target, not: %s",
		           line);
		return TFMC_INVALID;
	}
	const char *source = tab ? arena_strndup(&s->d->arena, line, (size_t)(tab - line)) : "";
	const char *text = tab ? tab + 1 : line;
	if (!source)
		return TFMC_NO_MEMORY;
	bool is_list = s->d->options.tokens_file != NULL;
	TFMC_TRY(is_list ? score_sides(s, (struct side){.list = source}, (struct side){.list = text})
	                 : score_sides(s, (struct side){source, NULL}, (struct side){text, NULL}));
	buf_printf(&s->d->out, "\t%s\n", line);
	return driver_flush_out(s->d) ? TFMC_OK : TFMC_IO;
}

static enum tfmc_status score_file(struct scoring *s, const char *path)
{
	TFMC_TRY(prompt_lines(s->d, path, score_line, s));
	buf_str(&s->d->out, "all: ");
	print_sum(s->d, &s->total);
	return TFMC_OK;
}

static enum tfmc_status score_all(struct scoring *s)
{
	const struct driver_options *o = &s->d->options;
	const char *file = o->prompt_file ? o->prompt_file : o->tokens_file;
	s->each = !file;
	struct side prompt = {o->prompt, o->tokens}, target = {o->target_text, o->target_tokens};
	enum tfmc_status st =
	        file ? score_file(s, file) : score_sides(s, prompt, s->is_pair ? target : prompt);
	if (st == TFMC_OK)
		buf_char(&s->d->out, '\n');
	if (st == TFMC_OK && s->rows && s->n_scored < s->rows->dims[0]) {
		diag_error(&s->d->diag, LOC_NONE, DIAG_INPUT, "score: %s has %lld sources for %lld targets",
		           o->inputs, (long long)s->rows->dims[0], (long long)s->n_scored);
		st = TFMC_INVALID;
	}
	return st;
}

static enum tfmc_status check_model(struct driver *d, const struct loaded *l, struct scoring *s)
{
	const struct frontend_input *source;
	const struct driver_options *o = &d->options;
	enum frontend_generate_kind kind = l->model ? frontend_generate(l->model)->kind : GENERATE_NONE;
	bool has_target = o->target_text || o->target_tokens, has_file = o->prompt_file || o->tokens_file;
	s->is_pair = kind == GENERATE_SEQ2SEQ;
	if (kind == GENERATE_NONE)
		diag_error(&d->diag, LOC_NONE, DIAG_GENERATE,
		           "score wants a model file with a generate section");
	else if (s->is_pair && !has_file && !has_target)
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "what is scored is given by --target-text or --target-tokens");
	else if (has_target && (!s->is_pair || has_file))
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s",
		           has_file ? "targets are in the file, after a tab"
		                    : "the model has no target, only tokens");
	else {
		TFMC_TRY(prompt_features(d, l->model, &source));
		s->reads_source = s->is_pair && !source;
		return source ? prompt_rows(d, source, &s->rows) : TFMC_OK;
	}
	return TFMC_INVALID;
}

/* What scoring calls. */
static struct entry_names called(const struct loaded *l, bool is_pair)
{
	static const char *const rows[] = {"score", "encode"}, *const steps[] = {"prefill", "step", "encode"};
	bool has_rows = ir_find_func(l->module, "score") != NULL;
	return (struct entry_names){has_rows ? rows : steps, (has_rows ? 1 : 2) + (size_t)is_pair};
}

enum exit_code command_score(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct ids ids = {0};
	struct loaded l;
	struct compiled c = {0};
	struct scoring s = {.d = d};
	int n_files = !!o->prompt_file + !!o->tokens_file, n_given = !!o->tokens + !!o->prompt;
	if (o->inputs ? n_given || n_files > 1 : n_given + n_files != 1)
		return driver_usage(d, "one of --prompt, --prompt-file, --tokens, --tokens-file is wanted%s",
		                    o->inputs ? "; with --inputs none, or a file of targets" : "");
	if (o->target_text && o->target_tokens)
		return driver_usage(d, "only one of --target-text, --target-tokens");
	if (o->tokens && !driver_ids(d, o->tokens, &ids.items, &ids.n))
		return driver_usage(d, "--tokens is a list of ids such as 1,2,3, not %s", o->tokens);
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = check_model(d, &l, &s);
	if (st == TFMC_OK && (o->prompt || o->prompt_file || o->target_text))
		st = driver_tokenizer(d, l.model, true);
	if (st == TFMC_OK)
		st = driver_open(d, &l, called(&l, s.is_pair), 1, &c);
	s.session = c.session;
	s.record = tfmc_session_record(s.session);
	if (st == TFMC_OK)
		st = score_all(&s);
	driver_release(&c);
	driver_unload(&l);
	return exit_code_of(st);
}
