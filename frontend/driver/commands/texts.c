/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options and files to token ids of sources and targets.
 */
#include "frontend/driver/commands/texts.h"

#include <string.h>

struct text_reader {
	struct texts *texts;
	text_fn *each;
	void *user;
};

enum exit_code texts_check_options(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct ids ids = {0};
	int n_files = !!o->prompt_file + !!o->tokens_file, n_given = !!o->tokens + !!o->prompt;
	if (o->inputs ? n_given || n_files > 1 : n_given + n_files != 1)
		return driver_usage_error(
		        d, "one of --prompt, --prompt-file, --tokens, --tokens-file is required%s",
		        o->inputs ? "; with --inputs none, or a file of targets" : "");
	if (o->target_text && o->target_tokens)
		return driver_usage_error(d, "only one of --target-text, --target-tokens");
	if (o->tokens && !parse_id_list(d, o->tokens, &ids.items, &ids.n))
		return driver_usage_error(d, "--tokens is a list of ids such as 1,2,3, not %s", o->tokens);
	return EXIT_OK;
}

enum tfmc_status texts_open(struct texts *t, const struct loaded *l)
{
	struct driver *d = t->d;
	const struct frontend_input *source;
	const struct driver_options *o = &d->options;
	bool has_target = o->target_text || o->target_tokens, has_file = o->prompt_file || o->tokens_file;
	t->kind = l->model ? frontend_generate(l->model)->kind : GENERATE_NONE;
	bool is_pair = t->kind == GENERATE_SEQ2SEQ;
	if (!l->model || (t->kind == GENERATE_NONE && !t->accepts_any))
		diag_error(&d->diag, LOC_NONE, DIAG_GENERATE, "%s requires a model file%s", t->command,
		           t->accepts_any ? "" : " with a generate section");
	else if (is_pair && !has_file && !has_target)
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "what is scored is given by --target-text or --target-tokens");
	else if (has_target && (!is_pair || has_file))
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s",
		           has_file ? "targets are in the file, after a tab"
		                    : "the model has no target, only tokens");
	else {
		TFMC_TRY(prompt_find_feature_input(d, l->model, &source));
		t->reads_source = is_pair && !source;
		if (source)
			TFMC_TRY(prompt_read_features(d, source, &t->rows));
		bool reads_text = o->prompt || o->prompt_file || o->target_text;
		return reads_text ? driver_open_tokenizer(d, l->model, true) : TFMC_OK;
	}
	return TFMC_INVALID;
}

/* The next row of the features is the source of the next target; *row -1: the model reads ids. */
static enum tfmc_status next_row(struct texts *t, int64_t *row)
{
	*row = t->rows ? t->n_rows++ : -1;
	if (!t->rows || *row < t->rows->dims[0])
		return TFMC_OK;
	diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: %s has %lld sources; there are more targets",
	           t->command, t->d->options.inputs, (long long)t->rows->dims[0]);
	return TFMC_INVALID;
}

/* A source or a target as a text or as a list of ids; the other is NULL. */
struct given_text {
	const char *text, *list;
};

/* Encodes both and calls each(). A target given as text ends with a stop id, as generated text does. */
static enum tfmc_status read_pair(struct text_reader *r, const char *line, struct given_text source,
                                  struct given_text target)
{
	struct texts *t = r->texts;
	struct text text = {.line = line};
	if (t->reads_source)
		TFMC_TRY(source.list ? prompt_append_list(t->d, t->command, source.list, &text.source)
		                     : prompt_append_text(t->d, t->record, t->command, PROMPT_SOURCE,
		                                          source.text, &text.source));
	if (target.list) {
		TFMC_TRY(prompt_append_list(t->d, t->command, target.list, &text.ids));
	} else {
		static const enum prompt_vocabulary which[] = {[GENERATE_NONE] = PROMPT_SOURCE,
		                                               [GENERATE_CAUSAL] = PROMPT_PLAIN,
		                                               [GENERATE_SEQ2SEQ] = PROMPT_TARGET};
		TFMC_TRY(prompt_append_text(t->d, t->record, t->command, which[t->kind], target.text,
		                            &text.ids));
		TFMC_TRY(prompt_append_record_ids(t->d, t->record, t->record->stop, t->record->n_stop > 0,
		                                  &text.ids));
	}
	TFMC_TRY(next_row(t, &text.row));
	return r->each(r->user, &text);
}

enum tfmc_status texts_check_count(const struct texts *t, int64_t n)
{
	if (n > 0)
		return TFMC_OK;
	diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: the texts have nothing to predict", t->command);
	return TFMC_INVALID;
}

/* "source TAB target", or a target alone. */
static enum tfmc_status parse_line(struct text_reader *r, const char *line)
{
	struct texts *t = r->texts;
	const char *tab = t->reads_source ? strchr(line, '\t') : NULL;
	if (t->reads_source && !tab) {
		diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: a line is source, tab, target, not: %s",
		           t->command, line);
		return TFMC_INVALID;
	}
	const char *source = tab ? arena_strndup(&t->d->arena, line, (size_t)(tab - line)) : "";
	const char *text = tab ? tab + 1 : line;
	if (!source)
		return TFMC_NO_MEMORY;
	return t->d->options.tokens_file ? read_pair(r, line, (struct given_text){.list = source},
	                                             (struct given_text){.list = text})
	                                 : read_pair(r, line, (struct given_text){source, NULL},
	                                             (struct given_text){text, NULL});
}

static enum tfmc_status read_line(void *user, const char *line, size_t number)
{
	struct text_reader *r = user;
	return prompt_note_line(r->texts->d, number, parse_line(r, line));
}

enum tfmc_status texts_each(struct texts *t, text_fn *each, void *user)
{
	const struct driver_options *o = &t->d->options;
	const char *file = o->prompt_file ? o->prompt_file : o->tokens_file;
	struct text_reader r = {t, each, user};
	struct given_text prompt = {o->prompt, o->tokens}, target = {o->target_text, o->target_tokens};
	bool is_pair = t->kind == GENERATE_SEQ2SEQ;
	TFMC_TRY(file ? prompt_for_each_line(t->d, file, read_line, &r)
	              : read_pair(&r, NULL, prompt, is_pair ? target : prompt));
	if (!t->rows || t->n_rows == t->rows->dims[0])
		return TFMC_OK;
	diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: %s has %lld sources for %lld targets", t->command,
	           o->inputs, (long long)t->rows->dims[0], (long long)t->n_rows);
	return TFMC_INVALID;
}
