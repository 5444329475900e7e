/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of a model, and tfmc tokenize, which prints ids or text, or writes the packed tokenizer.
 */
#include <string.h>

#include "frontend/driver/commands/prompts.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

static enum tfmc_status check_tokenizer_status(struct driver *d, int status)
{
	if (status == TFMC_TOKENIZER_OK)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_TOKENIZER, "%s", tfmc_tokenizer_status_text(status));
	return status == TFMC_TOKENIZER_E_MEMORY ? TFMC_NO_MEMORY : TFMC_INVALID;
}

enum tfmc_status driver_open_tokenizer(struct driver *d, struct frontend_model *m, bool needed)
{
	const struct frontend_tokenizer *t = frontend_tokenizer_head(m);
	if (!t->given || t->kind == TOKENIZER_CHARS || d->tokenizer)
		return TFMC_OK;
	TFMC_TRY(frontend_tokenizer(m, needed, &t));
	driver_end_stage(d, "tokenizer");
	if (t->packed.data == NULL)
		return TFMC_OK;
	TFMC_TRY(check_tokenizer_status(d,
	                                tfmc_tokenizer_open(t->packed.data, t->packed.bytes, &d->tokenizer)));
	return check_tokenizer_status(
	        d, tfmc_tokenizer_open_target(t->packed.data, t->packed.bytes, &d->target_tokenizer));
}

enum tfmc_status driver_tokenize(struct driver *d, enum prompt_vocabulary which, const char *text,
                                 int32_t **ids, uint64_t *n)
{
	const struct tfmc_tokenizer *t = which == PROMPT_TARGET ? d->target_tokenizer : d->tokenizer;
	unsigned flags = which == PROMPT_SOURCE ? TFMC_TOKENIZE_SPECIAL : 0;
	size_t len = strlen(text);
	TFMC_TRY(check_tokenizer_status(d, tfmc_tokenizer_encode(t, text, len, flags, NULL, 0, n)));
	*ids = ARENA_ARRAY(&d->arena, int32_t, *n + 1);
	if (!*ids)
		return TFMC_NO_MEMORY;
	return check_tokenizer_status(d, tfmc_tokenizer_encode(t, text, len, flags, *ids, *n, n));
}

enum tfmc_status driver_detokenize(struct driver *d, const int32_t *ids, uint64_t n, unsigned flags,
                                   const char **text)
{
	uint64_t bytes;
	TFMC_TRY(check_tokenizer_status(
	        d, tfmc_tokenizer_decode(d->target_tokenizer, ids, n, flags, NULL, 0, &bytes)));
	char *out = arena_alloc(&d->arena, (size_t)bytes + 1); /* zeroed: the last byte ends the text */
	if (!out)
		return TFMC_NO_MEMORY;
	*text = out;
	return check_tokenizer_status(
	        d, tfmc_tokenizer_decode(d->target_tokenizer, ids, n, flags, out, bytes, &bytes));
}

const char *driver_token_text(void *user, int32_t id, uint64_t *bytes)
{
	struct token_text *t = user;
	int status = tfmc_tokenizer_decode(t->tokenizer, &id, 1, TFMC_DETOKENIZE_AFTER, t->text,
	                                   sizeof(t->text), bytes);
	if (*bytes > sizeof(t->text)) /* truncated: stop strings do not look beyond */
		*bytes = sizeof(t->text);
	return status == TFMC_TOKENIZER_OK ? t->text : NULL;
}

/* ---- tfmc tokenize ---- */

static enum tfmc_status print_ids(struct driver *d, enum prompt_vocabulary which, const char *text)
{
	int32_t *ids;
	uint64_t n;
	TFMC_TRY(driver_tokenize(d, which, text, &ids, &n));
	for (uint64_t i = 0; i < n; i++)
		buf_printf(&d->out, "%s%d", i ? " " : "", ids[i]);
	buf_char(&d->out, '\n');
	return TFMC_OK;
}

static enum tfmc_status print_prompt_line(void *user, const char *line, size_t number)
{
	struct driver *d = user;
	TFMC_TRY(prompt_note_line(d, number, print_ids(d, PROMPT_SOURCE, line)));
	return driver_flush_out(d) ? TFMC_OK : TFMC_IO;
}

static enum tfmc_status print_text(struct driver *d, const char *list)
{
	struct ids ids = {0};
	const char *text;
	TFMC_TRY(prompt_append_list(d, "tokenize", list, &ids));
	TFMC_TRY(driver_detokenize(d, ids.items, ids.n, TFMC_DETOKENIZE_KEEP, &text));
	buf_str(&d->out, text);
	buf_char(&d->out, '\n');
	return TFMC_OK;
}

static enum tfmc_status tokenize(struct driver *d, struct frontend_model *m)
{
	const struct driver_options *o = &d->options;
	const struct frontend_tokenizer *t;
	const struct frontend_tokenizer *head = frontend_tokenizer_head(m);
	if (!head->given) {
		diag_error(&d->diag, LOC_NONE, DIAG_TOKENIZER,
		           "'%s' has no tokenizer: it speaks token ids only", o->input);
		diag_note(&d->diag, LOC_NONE,
		          "a tokenizer comes from the section 'tokenizer' of a model file, "
		          "or from tokenizer.json and its like in a hub folder");
		return TFMC_INVALID;
	}
	if (head->kind == TOKENIZER_CHARS) {
		diag_error(&d->diag, head->loc, DIAG_UNSUPPORTED,
		           "not supported yet: tokenize with a tokenizer of kind chars");
		return TFMC_INVALID;
	}
	TFMC_TRY(driver_open_tokenizer(d, m, true));
	if (o->output) {
		TFMC_TRY(frontend_tokenizer(m, true, &t));
		struct output_file *f = outputs_add(&d->outputs, o->output, NULL);
		return f && output_write(f, t->packed.data, t->packed.bytes) ? outputs_commit(&d->outputs)
		                                                             : TFMC_IO;
	}
	if (o->prompt_file)
		return prompt_for_each_line(d, o->prompt_file, print_prompt_line, d);
	if (o->tokens)
		return print_text(d, o->tokens);
	return o->prompt ? print_ids(d, PROMPT_SOURCE, o->prompt)
	                 : print_ids(d, PROMPT_TARGET, o->target_text);
}

enum exit_code command_tokenize(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct frontend_model *m = NULL;
	if (!!o->tokens + !!o->prompt + !!o->prompt_file + !!o->target_text + !!o->output != 1)
		return driver_usage_error(
		        d, "one of --prompt, --prompt-file, --target-text, --tokens, -o is required");
	enum tfmc_status st = driver_read_model(d, &m);
	if (st == TFMC_OK)
		st = tokenize(d, m);
	frontend_destroy(m);
	return exit_code_of(st);
}
