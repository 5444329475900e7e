/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc score: log-probabilities of texts or ids under the compiled model. One
 * prompt: a line for each token; a file of prompts: a line for each, and all of
 * them together.
 */
#include "frontend/driver/driver.h"

#include <math.h>
#include <string.h>

#include "frontend/files.h"
#include "ir/support/number.h"

#define PROMPT_FILE_LIMIT ((size_t)64 << 20)

struct ids {
	int32_t *items;
	size_t n, cap;
};

struct total {
	double log_p;
	int64_t n;
};

static enum tfmc_status report(struct driver *d, int status)
{
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "score: %s", tfmc_rt_status_text(status));
	return status == TFMC_RT_E_MEMORY ? TFMC_NO_MEMORY : TFMC_INVALID;
}

/* The stop id ends what is scored, as it ends what is generated. */
static enum tfmc_status add_stop(struct driver *d, const struct tfmc_record *r, struct ids *out)
{
	const int64_t *stop = (const void *)((const char *)r + r->stop);
	int32_t *slot = r->n_stop > 0 ? ARENA_PUSH(&d->arena, out) : NULL;
	if (slot)
		*slot = (int32_t)stop[0];
	return arena_failed(&d->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

static enum tfmc_status encode(struct driver *d, const struct tfmc_record *r, const char *text,
                               struct ids *out)
{
	uint64_t n;
	TFMC_TRY(report(d, tfmc_text_encode(r, text, NULL, 0, &n)));
	out->items = ARENA_ARRAY(&d->arena, int32_t, n + 1);
	if (!out->items)
		return TFMC_NO_MEMORY;
	out->cap = n + 1;
	out->n = n;
	TFMC_TRY(report(d, tfmc_text_encode(r, text, out->items, n, &n)));
	return add_stop(d, r, out);
}

static void print_token(struct driver *d, const struct tfmc_record *r, int32_t id, double log_p)
{
	char text[64];
	uint64_t n;
	buf_printf(&d->out, "%d", id);
	if (tfmc_text_decode(r, &id, 1, text, sizeof(text), &n) == TFMC_RT_OK)
		buf_printf(&d->out, "\t%s", text);
	buf_printf(&d->out, "\t%.6f\n", log_p);
}

static void print_sum(struct driver *d, const struct total *t)
{
	double mean = t->n ? t->log_p / (double)t->n : 0;
	buf_printf(&d->out, "log p %.6f, %lld tokens, perplexity %.4f", t->log_p, (long long)t->n,
	           exp(-mean));
}

/* Scores ids; each: print every token. */
static enum tfmc_status score_ids(struct driver *d, struct tfmc_session *s, const struct ids *ids, bool each,
                                  struct total *total)
{
	const struct tfmc_record *r = tfmc_session_record(s);
	double *log_p = ARENA_ARRAY(&d->arena, double, ids->n + 1);
	if (!log_p)
		return TFMC_NO_MEMORY;
	TFMC_TRY(report(d, tfmc_score(s, NULL, 0, ids->items, ids->n, log_p)));
	struct total own = {0, (int64_t)ids->n - (r->n_start == 0 && ids->n > 0)};
	for (size_t i = 0; i < ids->n; i++) {
		own.log_p += log_p[i];
		if (each)
			print_token(d, r, ids->items[i], log_p[i]);
	}
	print_sum(d, &own);
	total->log_p += own.log_p;
	total->n += own.n;
	return TFMC_OK;
}

static enum tfmc_status score_file(struct driver *d, struct tfmc_session *s, const char *path)
{
	const char *text;
	size_t len;
	struct total total = {0};
	TFMC_TRY(file_read(&d->arena, &d->diag, path, PROMPT_FILE_LIMIT, LOC_NONE, &text, &len));
	while (*text) {
		size_t n = strcspn(text, "\n");
		struct ids ids = {0};
		const char *line = arena_strndup(&d->arena, text, n);
		TFMC_TRY(encode(d, tfmc_session_record(s), line, &ids));
		TFMC_TRY(score_ids(d, s, &ids, false, &total));
		buf_printf(&d->out, "\t%s\n", line);
		text += n + (text[n] != 0);
	}
	buf_str(&d->out, "all: ");
	print_sum(d, &total);
	buf_char(&d->out, '\n');
	return TFMC_OK;
}

static enum tfmc_status score_all(struct driver *d, struct compiled *c)
{
	const struct driver_options *o = &d->options;
	struct tfmc_session *s;
	struct ids ids = {0};
	struct total total = {0};
	TFMC_TRY(driver_session(d, c, &s));
	enum tfmc_status st = TFMC_OK;
	if (o->prompt_file)
		st = score_file(d, s, o->prompt_file);
	else if (o->tokens)
		(void)driver_ids(d, o->tokens, &ids.items, &ids.n);
	else
		st = encode(d, tfmc_session_record(s), o->prompt ? o->prompt : "", &ids);
	if (st == TFMC_OK && !o->prompt_file) {
		st = score_ids(d, s, &ids, true, &total);
		buf_char(&d->out, '\n');
	}
	tfmc_session_close(s);
	return st;
}

static enum tfmc_status check_model(struct driver *d, const struct loaded *l)
{
	enum frontend_generate_kind kind = l->model ? frontend_generate(l->model)->kind : GENERATE_NONE;
	if (kind == GENERATE_CAUSAL)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, kind == GENERATE_NONE ? DIAG_GENERATE : DIAG_UNSUPPORTED,
	           kind == GENERATE_NONE ? "score wants a model file with a generate section"
	                                 : "not supported yet: score of a sequence-to-sequence model");
	return TFMC_INVALID;
}

enum exit_code command_score(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct ids ids = {0};
	struct loaded l;
	struct compiled c = {0};
	if (!!o->tokens + !!o->prompt + !!o->prompt_file != 1)
		return driver_usage(d, "one of --prompt, --prompt-file, --tokens is wanted");
	if (o->tokens && !driver_ids(d, o->tokens, &ids.items, &ids.n))
		return driver_usage(d, "--tokens is a list of ids such as 1,2,3, not %s", o->tokens);
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = check_model(d, &l);
	if (st == TFMC_OK)
		st = driver_compile_native(d, &l, NULL, &c);
	if (st == TFMC_OK)
		st = score_all(d, &c);
	driver_release(&c);
	driver_unload(&l);
	return exit_code_of(st);
}
