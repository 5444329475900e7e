/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc quality: what a model says after each token of given texts, beside what another one says, which is the
 * same model with its numbers unrounded unless --reference-model names one. Both read the same ids, whatever they would
 * have chosen themselves. Sequences take their steps side by side; of each, one row of logits is held.
 *
 * A text that is longer than the state of either model is cut into parts, of which each begins with the start
 * ids again; without start ids the first id of a part is read and not predicted. What is predicted of a
 * sequence-to-sequence model is its target, which is not cut.
 */
#include "frontend/driver/quality/distance.h"
#include "frontend/driver/quality/texts.h"

#include <math.h>

#define SIDE_BY_SIDE 16

/* A model and the sequences that it has begun. */
struct side {
	struct loaded loaded;
	struct compiled compiled;
	struct tfmc_slots *slots;
};

/* The ids of a text that are predicted; those before the first are in the slots. */
struct part {
	const int32_t *ids;
	size_t n, at;
	int64_t slots[2]; /* of model and other */
	size_t text;      /* number of it, from 1 */
	struct distance_sums sums;
};

struct quality {
	struct driver *d;
	struct texts texts;
	const char *model_path;
	struct side model, other;
	int64_t vocab;
	size_t room; /* ids that the states of both hold */
	struct ids start;
	struct part parts[SIDE_BY_SIDE];
	size_t n_parts, n_texts;
	struct distance_sums sums;
	struct distance_list kl;
};

/* ---- steps ---- */

static enum tfmc_status status_of(struct quality *q, struct side *s, int status)
{
	return prompt_check_status(q->d, s->compiled.session, "quality", status);
}

/* Both distributions at the end of a part, and what follows. */
static enum tfmc_status compare(struct quality *q, struct part *p)
{
	const float *given = tfmc_slots_logits(q->other.slots, p->slots[1]);
	const float *made = tfmc_slots_logits(q->model.slots, p->slots[0]);
	if (!given || !made)
		return TFMC_INTERNAL;
	if (distance_add_position(&q->d->arena, given, made, q->vocab, p->ids[p->at], &p->sums, &q->kl)) {
		p->at++;
		return TFMC_OK;
	}
	diag_error(&q->d->diag, LOC_NONE, DIAG_INPUT,
	           "quality: text %zu, before id %zu of a part: a logit is NaN or infinite", p->text,
	           p->at + 1);
	return TFMC_INVALID;
}

static enum tfmc_status step(struct quality *q, struct side *s, size_t which)
{
	struct tfmc_slot_token next[SIDE_BY_SIDE];
	uint64_t n = 0;
	for (size_t i = 0; i < q->n_parts; i++)
		if (q->parts[i].at < q->parts[i].n)
			next[n++] = (struct tfmc_slot_token){q->parts[i].slots[which],
			                                     q->parts[i].ids[q->parts[i].at - 1]};
	return n ? status_of(q, s, tfmc_slots_step(s->slots, next, n)) : TFMC_OK;
}

/* To the end of all parts that were begun. Sums are added in the order of the texts. */
static enum tfmc_status finish_parts(struct quality *q)
{
	for (size_t left = q->n_parts; left > 0;) {
		left = 0;
		for (size_t i = 0; i < q->n_parts; i++) {
			struct part *p = &q->parts[i];
			if (p->at < p->n)
				TFMC_TRY(compare(q, p));
			left += p->at < p->n;
		}
		TFMC_TRY(step(q, &q->model, 0));
		TFMC_TRY(step(q, &q->other, 1));
	}
	for (size_t i = 0; i < q->n_parts; i++) {
		const struct part *p = &q->parts[i];
		TFMC_TRY(status_of(q, &q->model, tfmc_slots_leave(q->model.slots, p->slots[0])));
		TFMC_TRY(status_of(q, &q->other, tfmc_slots_leave(q->other.slots, p->slots[1])));
		distance_add_sums(&q->sums, &p->sums);
	}
	q->n_parts = 0;
	return TFMC_OK;
}

/* ---- texts ---- */

static enum tfmc_status join(struct quality *q, struct side *s, const struct text *text,
                             const struct ids *before, int64_t *slot)
{
	if (text->row >= 0)
		TFMC_TRY(prompt_set_source_row(q->d, s->compiled.session, "quality", q->texts.rows,
		                               text->row));
	return status_of(q, s,
	                 tfmc_slots_join(s->slots, before->items, before->n, text->source.items,
	                                 text->source.n, slot));
}

static bool is_full(const struct quality *q)
{
	int64_t own = tfmc_session_batch(q->model.compiled.session);
	int64_t other = tfmc_session_batch(q->other.compiled.session);
	return (int64_t)q->n_parts >= (own < other ? own : other) || q->n_parts == SIDE_BY_SIDE;
}

static enum tfmc_status begin_part(struct quality *q, const struct text *text, const struct ids *before,
                                   const int32_t *ids, size_t n)
{
	if (is_full(q))
		TFMC_TRY(finish_parts(q));
	struct part *p = &q->parts[q->n_parts];
	*p = (struct part){.ids = ids, .n = n, .text = q->n_texts};
	TFMC_TRY(join(q, &q->model, text, before, &p->slots[0]));
	TFMC_TRY(join(q, &q->other, text, before, &p->slots[1]));
	q->n_parts++;
	return TFMC_OK;
}

static bool check_ids(struct quality *q, const struct ids *ids)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->items[i] >= q->vocab) {
			diag_error(
			        &q->d->diag, LOC_NONE, DIAG_INPUT,
			        "quality: text %zu: id %d, number %zu, is outside of the vocabulary of %lld",
			        q->n_texts, (int)ids->items[i], i + 1, (long long)q->vocab);
			return false;
		}
	return true;
}

/* Ids of the text that one part has room for, behind `before` in the state: the last one is not read. */
static size_t part_room(const struct quality *q, size_t before)
{
	return q->room + 1 > before ? q->room + 1 - before : 0;
}

static enum tfmc_status add_text(void *user, const struct text *text)
{
	struct quality *q = user;
	bool is_pair = q->texts.kind == GENERATE_SEQ2SEQ;
	q->n_texts++;
	if (!check_ids(q, &text->ids))
		return TFMC_INVALID;
	for (size_t at = 0; at < text->ids.n;) {
		struct ids before =
		        q->start.n ? q->start : (struct ids){.items = text->ids.items + at++, .n = 1};
		size_t n = text->ids.n - at, room = part_room(q, before.n);
		if (room < 1 || (is_pair && n > room)) {
			diag_error(&q->d->diag, LOC_NONE, DIAG_INPUT,
			           "quality: text %zu has %zu ids after %zu; the state has room for %zu",
			           q->n_texts, n, before.n, q->room);
			return TFMC_INVALID;
		}
		n = n < room ? n : room;
		if (n > 0)
			TFMC_TRY(begin_part(q, text, &before, text->ids.items + at, n));
		at += n;
	}
	return TFMC_OK;
}

/* ---- the report ---- */

struct report {
	double kl_mean, kl_999, same_top, rms, perplexity,
	        other_perplexity; /* the last two may be infinite */
	long long n;
};

static struct report summed(struct quality *q)
{
	const struct distance_sums *s = &q->sums;
	double n = (double)s->n;
	return (struct report){.kl_mean = s->kl / n,
	                       .kl_999 = distance_quantile(&q->kl, 0.999),
	                       .same_top = (double)s->n_same / n,
	                       .rms = sqrt(s->square / n),
	                       .perplexity = exp(-s->log_q / n),
	                       .other_perplexity = exp(-s->log_p / n),
	                       .n = (long long)s->n};
}

static void print_text(struct quality *q, const struct report *r)
{
	struct buf *out = &q->d->out;
	const char *other = q->d->options.reference_model;
	buf_printf(out, "%lld positions of %zu texts, against %s\n", r->n, q->n_texts,
	           other ? other : "the same model unrounded");
	buf_printf(out, "KL divergence   mean %.6g, 99.9 %% %.6g nats\n", r->kl_mean, r->kl_999);
	buf_printf(out, "same top token  %.4f %%\n", 100 * r->same_top);
	buf_printf(out, "probability of the true token: RMS of differences %.6g\n", r->rms);
	buf_printf(out, "perplexity      %.6g, of the other %.6g\n", r->perplexity, r->other_perplexity);
}

static void print_number(struct buf *out, const char *name, double v)
{
	buf_printf(out, ",\"%s\":", name);
	if (isfinite(v))
		buf_f64(out, v);
	else
		buf_str(out, "null");
}

static void print_json(struct quality *q, const struct report *r)
{
	struct buf *out = &q->d->out;
	buf_printf(out, "{\"positions\":%lld,\"texts\":%zu", r->n, q->n_texts);
	print_number(out, "kl_mean", r->kl_mean);
	print_number(out, "kl_999", r->kl_999);
	print_number(out, "same_top", r->same_top);
	print_number(out, "rms_probability", r->rms);
	print_number(out, "perplexity", r->perplexity);
	print_number(out, "perplexity_against", r->other_perplexity);
	buf_str(out, "}\n");
}

static enum tfmc_status print_report(struct quality *q)
{
	TFMC_TRY(texts_predicted(&q->texts, q->sums.n));
	struct report r = summed(q);
	if (q->d->options.json)
		print_json(q, &r);
	else
		print_text(q, &r);
	return TFMC_OK;
}

/* ---- both models ---- */

static enum tfmc_status open_slots(struct quality *q, struct side *s)
{
	static const char *const entries[] = {"prefill", "step", "encode"};
	bool is_pair = q->texts.kind == GENERATE_SEQ2SEQ;
	TFMC_TRY(driver_compile_jit(q->d, &s->loaded, (struct entry_names){entries, 2 + (size_t)is_pair},
	                            &s->compiled));
	TFMC_TRY(
	        driver_open_session(q->d, &s->compiled, driver_batch_size(q->d, &s->compiled, SIDE_BY_SIDE)));
	TFMC_TRY(status_of(q, s, tfmc_slots_open(s->compiled.session, &s->slots)));
	const struct tfmc_record *r = tfmc_session_record(s->compiled.session);
	uint64_t room = r->context_limit ? r->context_limit : INT32_MAX;
	q->room = room < q->room ? (size_t)room : q->room;
	return TFMC_OK;
}

static enum tfmc_status check_kind(struct quality *q, const struct texts *other)
{
	if (other->kind == q->texts.kind && other->reads_source == q->texts.reads_source)
		return TFMC_OK;
	diag_error(&q->d->diag, LOC_NONE, DIAG_INPUT,
	           "quality: '%s' and '%s' do not predict tokens from the same: one has no source, or one of "
	           "another kind",
	           q->model_path, q->d->options.input);
	return TFMC_INVALID;
}

/* --set, --dtype, --quantize and --profile are about the model of the command line: --set holds for the other one if that is the same. */
static enum tfmc_status open_other(struct quality *q)
{
	struct driver *d = q->d;
	const struct driver_options kept = d->options;
	struct texts texts = q->texts;
	if (kept.reference_model) {
		d->options.input = kept.reference_model;
		d->options.set = (struct option_list){0};
		d->options.dtype = d->options.quantize = d->options.profile = NULL;
	}
	d->is_unrounded = !kept.reference_model;
	enum tfmc_status st = driver_load(d, &q->other.loaded);
	const struct frontend_model *m = q->other.loaded.model;
	texts.kind = m ? frontend_generate(m)->kind : GENERATE_NONE;
	if (st == TFMC_OK && texts.kind == q->texts.kind)
		st = texts_open(&texts, &q->other.loaded);
	if (st == TFMC_OK)
		st = check_kind(q, &texts);
	if (st == TFMC_OK)
		st = open_slots(q, &q->other);
	d->options = kept;
	return st;
}

static enum tfmc_status open_both(struct quality *q)
{
	TFMC_TRY(driver_load(q->d, &q->model.loaded));
	TFMC_TRY(texts_open(&q->texts, &q->model.loaded));
	TFMC_TRY(open_slots(q, &q->model));
	TFMC_TRY(open_other(q));
	const struct tfmc_record *r = tfmc_session_record(q->model.compiled.session);
	int64_t other = tfmc_slots_vocabulary(q->other.slots);
	q->texts.record = r;
	q->vocab = tfmc_slots_vocabulary(q->model.slots);
	if (q->vocab != other) {
		diag_error(&q->d->diag, LOC_NONE, DIAG_INPUT,
		           "quality: '%s' has a vocabulary of %lld tokens, '%s' one of %lld",
		           q->d->options.input, (long long)q->vocab, q->d->options.reference_model,
		           (long long)other);
		return TFMC_INVALID;
	}
	return prompt_append_record_ids(q->d, r, r->start, r->n_start > 0 ? r->n_start : 0, &q->start);
}

static void close_side(struct side *s)
{
	tfmc_slots_close(s->slots);
	compiled_destroy(&s->compiled);
	loaded_destroy(&s->loaded);
}

enum exit_code command_quality(struct driver *d)
{
	struct quality q = {.d = d,
	                    .model_path = d->options.input,
	                    .texts = {.d = d, .command = "quality"},
	                    .room = INT32_MAX};
	enum exit_code usage = texts_check_options(d);
	if (usage != EXIT_OK)
		return usage;
	enum tfmc_status st = open_both(&q);
	if (st == TFMC_OK)
		st = texts_each(&q.texts, add_text, &q);
	if (st == TFMC_OK)
		st = finish_parts(&q);
	if (st == TFMC_OK)
		st = print_report(&q);
	close_side(&q.other);
	close_side(&q.model);
	return exit_code_of(st);
}
