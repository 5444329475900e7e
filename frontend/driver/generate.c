/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc generate: text or token ids through the compiled object, printed as they
 * come when there is one prompt.
 */
#include "frontend/driver/driver.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/files.h"
#include "ir/support/number.h"

#define PROMPT_FILE_LIMIT ((size_t)64 << 20)

struct ids {
	int32_t *items;
	size_t n, cap;
};

/* What every prompt is generated with. */
struct wish {
	int64_t steps;
	struct tfmc_sample_options sample;
	bool is_sampled;
	struct tfmc_beam_options beam; /* beam 1: no search */
	int64_t n_best;                /* hypotheses to print with their scores; 0: the best one alone */
};

struct printer {
	struct driver *d;
	const struct tfmc_record *record;
	bool as_ids;
	size_t n; /* tokens printed of this prompt */
};

bool driver_ids(struct driver *d, const char *text, int32_t **items, size_t *n)
{
	struct ids out = {0};
	for (const char *s = text; *s;) {
		size_t length = strcspn(s, ", ");
		int64_t id;
		if (length) {
			int32_t *slot = ARENA_PUSH(&d->arena, &out);
			if (!number_parse_i64(s, length, &id) || id < 0 || id > INT32_MAX || !slot)
				return false;
			*slot = (int32_t)id;
		}
		s += length + (s[length] != 0);
	}
	*items = out.items;
	*n = out.n;
	return true;
}

static int print_token(void *user, int32_t id)
{
	struct printer *p = user;
	char text[64];
	uint64_t n;
	if (p->as_ids)
		buf_printf(&p->d->out, "%s%d", p->n ? " " : "", id);
	else if (tfmc_text_decode(p->record, &id, 1, text, sizeof(text), &n) == TFMC_RT_OK)
		buf_str(&p->d->out, text);
	p->n++;
	return driver_flush_out(p->d) ? 0 : 1;
}

static enum tfmc_status report(struct driver *d, int status)
{
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "generate: %s", tfmc_rt_status_text(status));
	return status == TFMC_RT_E_MEMORY ? TFMC_NO_MEMORY : TFMC_INVALID;
}

static void print_hypothesis(struct printer *p, const struct tfmc_hypothesis *h, bool with_score)
{
	p->n = 0;
	if (with_score)
		buf_printf(&p->d->out, "%.6f\t", h->score);
	for (uint64_t i = 0; i < h->n; i++)
		(void)print_token(p, h->tokens[i]);
	buf_char(&p->d->out, '\n');
}

static enum tfmc_status search_ids(struct driver *d, struct tfmc_session *s, const struct ids *prompt,
                                   const struct wish *w)
{
	const struct tfmc_record *r = tfmc_session_record(s);
	struct printer p = {.d = d, .record = r, .as_ids = d->options.print_tokens || !r->vocabulary};
	uint64_t n, cap = w->n_best ? (uint64_t)w->n_best : 1, length = (uint64_t)r->max_len;
	struct tfmc_hypothesis *best = ARENA_ARRAY(&d->arena, struct tfmc_hypothesis, cap);
	for (uint64_t i = 0; best && i < cap; i++) {
		best[i].cap = length;
		best[i].tokens = ARENA_ARRAY(&d->arena, int32_t, length + 1);
	}
	if (arena_failed(&d->arena))
		return TFMC_NO_MEMORY;
	int status = tfmc_beam_search(s, &w->beam, prompt->items, prompt->n, NULL, 0, best, cap, &n);
	for (uint64_t i = 0; status == TFMC_RT_OK && i < n; i++)
		print_hypothesis(&p, &best[i], w->n_best > 0);
	return report(d, status);
}

static enum tfmc_status generate_ids(struct driver *d, struct tfmc_session *s, const struct ids *prompt,
                                     const struct wish *w)
{
	if (w->beam.beam > 1)
		return search_ids(d, s, prompt, w);
	const struct tfmc_record *r = tfmc_session_record(s);
	struct printer p = {.d = d, .record = r, .as_ids = d->options.print_tokens || !r->vocabulary};
	struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .max_new_tokens = w->steps, .on_token = print_token};
	o.user = &p;
	o.sample = w->is_sampled ? &w->sample : NULL;
	o.ignore_stop = d->options.ignore_stop;
	uint64_t n, cap = r->max_len > 0 ? (uint64_t)r->max_len : 0;
	int32_t *out = ARENA_ARRAY(&d->arena, int32_t, cap ? cap : 1);
	if (!out)
		return TFMC_NO_MEMORY;
	int status = tfmc_generate(s, &o, prompt->items, prompt->n, NULL, 0, out, cap, &n);
	if (status == TFMC_RT_OK || p.n)
		buf_char(&d->out, '\n');
	return report(d, status);
}

static enum tfmc_status generate_prompt(struct driver *d, struct tfmc_session *s, const char *text,
                                        const struct wish *w)
{
	const struct tfmc_record *r = tfmc_session_record(s);
	struct ids prompt = {0};
	uint64_t n = 0; /* without text, also objects without a vocabulary begin with the start tokens */
	if (*text)
		TFMC_TRY(report(d, tfmc_text_encode(r, text, NULL, 0, &n)));
	bool is_causal = r->generate_kind == 1;
	uint64_t n_start = is_causal ? (uint64_t)r->n_start : 0;
	prompt.items = ARENA_ARRAY(&d->arena, int32_t, n + n_start + 1);
	if (!prompt.items)
		return TFMC_NO_MEMORY;
	const int64_t *start = (const void *)((const char *)r + r->start);
	for (uint64_t i = 0; i < n_start; i++)
		prompt.items[i] = (int32_t)start[i];
	if (n > 0)
		TFMC_TRY(report(d, tfmc_text_encode(r, text, prompt.items + n_start, n, &n)));
	prompt.n = n + n_start;
	return generate_ids(d, s, &prompt, w);
}

static enum tfmc_status generate_file(struct driver *d, struct tfmc_session *s, const char *path,
                                      const struct wish *w)
{
	const char *text;
	size_t len;
	TFMC_TRY(file_read(&d->arena, &d->diag, path, PROMPT_FILE_LIMIT, LOC_NONE, &text, &len));
	while (*text) {
		size_t n = strcspn(text, "\n");
		TFMC_TRY(generate_prompt(d, s, arena_strndup(&d->arena, text, n), w));
		text += n + (text[n] != 0);
	}
	return TFMC_OK;
}

static bool parse_count(const char *text, int64_t lowest, int64_t *out)
{
	return !text || (number_parse_i64(text, strlen(text), out) && *out >= lowest);
}

/* The width of the search: --beam, else the file's, unless a sampling option is given. */
static enum tfmc_status choose_search(struct driver *d, const struct frontend_model *m, struct wish *w)
{
	const struct frontend_generate *g = frontend_generate(m);
	const char *beam = d->options.beam, *n_best = d->options.n_best;
	if (g->kind == GENERATE_NONE) {
		diag_error(&d->diag, LOC_NONE, DIAG_GENERATE, "the model has no generate section");
		return TFMC_INVALID;
	}
	w->beam = driver_beam(g);
	w->beam.max_new_tokens = w->steps;
	if (!beam && (w->is_sampled || d->options.temperature))
		w->beam.beam = 1;
	if (!parse_count(beam, 1, &w->beam.beam) || !parse_count(n_best, 1, &w->n_best)) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "--beam and --n-best are numbers from 1");
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

static enum tfmc_status generate_all(struct driver *d, struct compiled *c, const struct wish *w)
{
	struct tfmc_session *s;
	struct ids prompt = {0};
	TFMC_TRY(driver_session(d, c, &s));
	enum tfmc_status st;
	if (d->options.tokens) {
		(void)driver_ids(d, d->options.tokens, &prompt.items, &prompt.n);
		st = generate_ids(d, s, &prompt, w);
	} else if (d->options.prompt_file) {
		st = generate_file(d, s, d->options.prompt_file, w);
	} else {
		st = generate_prompt(d, s, d->options.prompt ? d->options.prompt : "", w);
	}
	tfmc_session_close(s);
	return st;
}

enum exit_code command_generate(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct ids ids = {0};
	struct wish w = {0};
	if (!parse_count(o->steps, 1, &w.steps))
		return driver_usage(d, "--steps is a number from 1, not %s", o->steps);
	if (!!o->tokens + !!o->prompt + !!o->prompt_file > 1)
		return driver_usage(d, "only one of --prompt, --prompt-file, --tokens");
	if (o->tokens && !driver_ids(d, o->tokens, &ids.items, &ids.n))
		return driver_usage(d, "--tokens is a list of ids such as 1,2,3, not %s", o->tokens);
	if (o->ignore_stop && !o->steps)
		return driver_usage(d, "--ignore-stop wants --steps");
	struct loaded l;
	struct compiled c = {0};
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !l.model)
		return driver_usage(d, "generate wants a model file, not IR text");
	if (st == TFMC_OK && !driver_sampling(d, frontend_generate(l.model), &w.sample, &w.is_sampled)) {
		driver_unload(&l);
		return EXIT_USAGE;
	}
	if (st == TFMC_OK)
		st = choose_search(d, l.model, &w);
	if (st == TFMC_OK)
		st = driver_compile_native(d, &l, NULL, &c);
	if (st == TFMC_OK)
		st = generate_all(d, &c, &w);
	driver_release(&c);
	driver_unload(&l);
	return exit_code_of(st);
}
