/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc tokenize: prints the ids of a text or the text of ids, or writes the packed tokenizer.
 */
#include "frontend/driver/commands/prompts.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

/* Prints the ids of a text on a line. */
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

/* Prints the text of a list of ids, special tokens included. */
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

/* Does what the options select: writes the packed tokenizer to -o, or prints ids or text. TFMC_INVALID after a
 * diagnostic: the model has no tokenizer that is packed. */
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
