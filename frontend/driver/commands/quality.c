/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc quality: the next-token distributions of a model at each position of given texts, compared with those of a
 * reference model, by default the same model as stored. Both read the same ids (teacher forcing). Sequences share
 * decode steps (batches of up to BATCH_MAX); one row of logits is in memory for each.
 *
 * A text longer than the context of either model is cut into chunks, each of which begins with the start ids; without
 * start ids the first id of a chunk is read and not predicted. The target of a sequence-to-sequence model is
 * predicted, and not cut.
 *
 * Distance of the next-token distributions q of a model from the distributions p of a reference model. At a position
 * with logits x [V] the distribution is p(v) = e^(x(v) - m) / sum over u of e^(x(u) - m), m = max x, computed in
 * f64 from logits in f32.
 *
 *   kl        D(p || q) = sum over v of p(v) (log p(v) - log q(v)), in nats (Kullback, Leibler 1951, eq. 2.4); a
 *             sum that rounding brings below 0 is 0
 *   same_top  whether argmax of both is the same token (of equal logits the lowest id)
 *   p, q      probability of the token that follows in the text
 *
 * Of n positions: the mean of kl; its 99.9 % quantile, the element number ceil(0.999 n) of the sorted list
 * (nearest rank); the share of positions with same_top; the root mean square of q - p; the perplexities
 * e^(-mean of log p) and e^(-mean of log q).
 * A chunk is a part of a text that is one sequence, with a slot in the session of either model.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "frontend/driver/commands/prompts.h"
#include "ir/support/number.h"

/* ---- distances between distributions ---- */

/* Sums over the positions of one sequence, or of all. */
struct distance_sums {
	double kl, square, log_p, log_q; /* square: sum of (q - p)^2 */
	int64_t n_same, n;
};

/* kl of each position, for the quantile. */
struct distance_list {
	double *items;
	size_t n, cap;
};

/* Computes log of the sum of e^logit, relative to the largest one so that nothing overflows, and argmax (of equal
 * logits the lowest id). False: NaN, +infinity, or all -infinity. */
static bool log_sum_exp(const float *logits, int64_t vocab, double *log_sum, int64_t *top)
{
	double sum = 0;
	*top = 0;
	for (int64_t v = 0; v < vocab; v++) {
		if (!(logits[v] <= FLT_MAX))
			return false;
		*top = logits[v] > logits[*top] ? v : *top;
	}
	double max = (double)logits[*top];
	if (max < -FLT_MAX)
		return false;
	for (int64_t v = 0; v < vocab; v++)
		sum += exp((double)logits[v] - max);
	*log_sum = max + log(sum);
	return true;
}

/*
 * Adds the position after which `next` follows; 0 <= next < vocab, and vocab >= 1. False, and nothing is added,
 * when a logit is NaN or +infinity, when all are -infinity, or when q is 0 where p is not.
 */
static bool distance_add_position(struct arena *arena, const float *p, const float *q, int64_t vocab,
                                  int32_t next, struct distance_sums *sums, struct distance_list *list)
{
	double p_sum, q_sum, kl = 0;
	int64_t p_top, q_top;
	if (!log_sum_exp(p, vocab, &p_sum, &p_top) || !log_sum_exp(q, vocab, &q_sum, &q_top))
		return false;
	for (int64_t v = 0; v < vocab; v++) {
		double log_p = (double)p[v] - p_sum, part = exp(log_p);
		kl += part > 0 ? part * (log_p - ((double)q[v] - q_sum)) : 0;
	}
	double *slot = isfinite(kl) ? ARENA_PUSH(arena, list) : NULL;
	if (!slot)
		return false;
	*slot = kl > 0 ? kl : 0;
	double log_p = (double)p[next] - p_sum, log_q = (double)q[next] - q_sum;
	double change = exp(log_q) - exp(log_p);
	sums->kl += *slot;
	sums->square += change * change;
	sums->log_p += log_p;
	sums->log_q += log_q;
	sums->n_same += p_top == q_top;
	sums->n++;
	return true;
}

/* The nearest-rank quantile, 0 < share <= 1, of a list with n >= 1; sorts it. */
static double distance_quantile(struct distance_list *list, double share)
{
	number_sort_f64(list->items, list->n);
	size_t rank = (size_t)ceil(share * (double)list->n);
	return list->items[(rank < 1 ? 1 : rank > list->n ? list->n : rank) - 1];
}

#define BATCH_MAX 16

/* A model, and the slots of its session that sequences take. */
struct evaluated_model {
	struct loaded loaded;
	struct compiled compiled;
	struct tfmc_slots *slots;
};

/* The ids to predict of a chunk; those before the first are in the slots already. */
struct chunk {
	const int32_t *ids;
	size_t n, at;
	int64_t slots[2]; /* of model and reference */
	size_t text;      /* number of its text, from 1 */
	struct distance_sums sums;
};

struct quality {
	struct driver *d;
	struct texts texts;
	const char *model_path;
	struct evaluated_model model, reference;
	int64_t vocab;
	size_t context; /* tokens that both models can hold */
	struct ids start;
	struct chunk chunks[BATCH_MAX];
	size_t n_chunks, n_texts;
	struct distance_sums sums;
	struct distance_list kl;
};

/* ---- steps ---- */

static enum tfmc_status check_status(struct quality *q, struct evaluated_model *s, int status)
{
	return prompt_check_status(q->d, s->compiled.session, "quality", status);
}

/* Adds the distance between both distributions at the next id of a chunk, and advances to the following one. */
static enum tfmc_status compare_logits(struct quality *q, struct chunk *p)
{
	const float *given = tfmc_slots_logits(q->reference.slots, p->slots[1]);
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

/* Feeds the last compared id of every unfinished chunk. which: the index in slots. */
static enum tfmc_status decode_step(struct quality *q, struct evaluated_model *s, size_t which)
{
	struct tfmc_slot_token next[BATCH_MAX];
	uint64_t n = 0;
	for (size_t i = 0; i < q->n_chunks; i++)
		if (q->chunks[i].at < q->chunks[i].n)
			next[n++] = (struct tfmc_slot_token){q->chunks[i].slots[which],
			                                     q->chunks[i].ids[q->chunks[i].at - 1]};
	return n ? check_status(q, s, tfmc_slots_step(s->slots, next, n)) : TFMC_OK;
}

/* Compares all begun chunks to their ends. Sums are added in the order of the texts, so that rounding does not
 * depend on the batch. */
static enum tfmc_status finish_chunks(struct quality *q)
{
	for (size_t left = q->n_chunks; left > 0;) {
		left = 0;
		for (size_t i = 0; i < q->n_chunks; i++) {
			struct chunk *p = &q->chunks[i];
			if (p->at < p->n)
				TFMC_TRY(compare_logits(q, p));
			left += p->at < p->n;
		}
		TFMC_TRY(decode_step(q, &q->model, 0));
		TFMC_TRY(decode_step(q, &q->reference, 1));
	}
	for (size_t i = 0; i < q->n_chunks; i++) {
		const struct chunk *p = &q->chunks[i];
		const struct distance_sums *sums = &p->sums;
		TFMC_TRY(check_status(q, &q->model, tfmc_slots_leave(q->model.slots, p->slots[0])));
		TFMC_TRY(check_status(q, &q->reference, tfmc_slots_leave(q->reference.slots, p->slots[1])));
		q->sums.kl += sums->kl;
		q->sums.square += sums->square;
		q->sums.log_p += sums->log_p;
		q->sums.log_q += sums->log_q;
		q->sums.n_same += sums->n_same;
		q->sums.n += sums->n;
	}
	q->n_chunks = 0;
	return TFMC_OK;
}

/* ---- texts ---- */

/* Begins a sequence with the ids `before` in a slot of the model's session. A row of features becomes the source of
 * the session before: joining a slot encodes it. */
static enum tfmc_status join_slot(struct quality *q, struct evaluated_model *s, const struct text *text,
                                  const struct ids *before, int64_t *slot)
{
	if (text->row >= 0)
		TFMC_TRY(prompt_set_source_row(q->d, s->compiled.session, "quality", q->texts.rows,
		                               text->row));
	return check_status(q, s,
	                    tfmc_slots_join(s->slots, before->items, before->n, text->source.items,
	                                    text->source.n, slot));
}

/* Whether no further sequence fits: both models hold the same chunks. */
static bool is_batch_full(const struct quality *q)
{
	int64_t model_batch = tfmc_session_batch(q->model.compiled.session);
	int64_t reference = tfmc_session_batch(q->reference.compiled.session);
	return (int64_t)q->n_chunks >= (model_batch < reference ? model_batch : reference) ||
	       q->n_chunks == BATCH_MAX;
}

/* Begins a sequence for n ids of a text in both models. If no slot is free, finishes those begun before. */
static enum tfmc_status begin_chunk(struct quality *q, const struct text *text, const struct ids *before,
                                    const int32_t *ids, size_t n)
{
	if (is_batch_full(q))
		TFMC_TRY(finish_chunks(q));
	struct chunk *p = &q->chunks[q->n_chunks];
	*p = (struct chunk){.ids = ids, .n = n, .text = q->n_texts};
	TFMC_TRY(join_slot(q, &q->model, text, before, &p->slots[0]));
	TFMC_TRY(join_slot(q, &q->reference, text, before, &p->slots[1]));
	q->n_chunks++;
	return TFMC_OK;
}

/* False after a diagnostic: an id has no logit. */
static bool check_vocabulary(struct quality *q, const struct ids *ids)
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

/* text_fn: cuts a text into chunks that both models can hold, and begins each. */
static enum tfmc_status add_text(void *user, const struct text *text)
{
	struct quality *q = user;
	bool is_pair = q->texts.kind == GENERATE_SEQ2SEQ;
	q->n_texts++;
	if (!check_vocabulary(q, &text->ids))
		return TFMC_INVALID;
	for (size_t at = 0; at < text->ids.n;) {
		struct ids before =
		        q->start.n ? q->start : (struct ids){.items = text->ids.items + at++, .n = 1};
		size_t n = text->ids.n - at;
		/* Ids that a chunk holds after those before it: the last one is predicted and not fed. */
		size_t context = q->context + 1 > before.n ? q->context + 1 - before.n : 0;
		if (context < 1 || (is_pair && n > context)) {
			diag_error(&q->d->diag, LOC_NONE, DIAG_INPUT,
			           "quality: text %zu has %zu ids after %zu; the state has room for %zu",
			           q->n_texts, n, before.n, q->context);
			return TFMC_INVALID;
		}
		n = n < context ? n : context;
		if (n > 0)
			TFMC_TRY(begin_chunk(q, text, &before, text->ids.items + at, n));
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

static void print_text(struct quality *q, const struct report *r)
{
	struct buf *out = &q->d->out;
	const char *reference = q->d->options.reference_model;
	buf_printf(out, "%lld positions of %zu texts, against %s\n", r->n, q->n_texts,
	           reference ? reference : "the same model unrounded");
	buf_printf(out, "KL divergence   mean %.6g, 99.9 %% %.6g nats\n", r->kl_mean, r->kl_999);
	buf_printf(out, "same top token  %.4f %%\n", 100 * r->same_top);
	buf_printf(out, "probability of the true token: RMS of differences %.6g\n", r->rms);
	buf_printf(out, "perplexity      %.6g, of the other %.6g\n", r->perplexity, r->other_perplexity);
}

/* A field of the JSON object; JSON has no infinity, which becomes null. */
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
	print_number(out, "reference_perplexity", r->other_perplexity);
	buf_str(out, "}\n");
}

/* ---- both models ---- */

/* Compiles a loaded model and opens a session and its slots. q->context becomes the smaller context of the models so
 * far, by which texts are cut. */
static enum tfmc_status open_model(struct quality *q, struct evaluated_model *s)
{
	static const char *const entries[] = {"prefill", "step", "encode"};
	bool is_pair = q->texts.kind == GENERATE_SEQ2SEQ;
	TFMC_TRY(driver_compile_jit(q->d, &s->loaded, (struct entry_names){entries, 2 + (size_t)is_pair},
	                            &s->compiled));
	TFMC_TRY(driver_open_session(q->d, &s->compiled, driver_batch_size(q->d, &s->compiled, BATCH_MAX)));
	TFMC_TRY(check_status(q, s, tfmc_slots_open(s->compiled.session, &s->slots)));
	const struct tfmc_record *r = tfmc_session_record(s->compiled.session);
	uint64_t context = r->context_limit ? r->context_limit : INT32_MAX;
	q->context = context < q->context ? (size_t)context : q->context;
	return TFMC_OK;
}

/* TFMC_INVALID after a diagnostic: only models that predict the same tokens from the same input can be compared. */
static enum tfmc_status check_same_kind(struct quality *q, const struct texts *reference)
{
	if (reference->kind == q->texts.kind && reference->reads_source == q->texts.reads_source)
		return TFMC_OK;
	diag_error(&q->d->diag, LOC_NONE, DIAG_INPUT,
	           "quality: '%s' and '%s' do not predict tokens from the same: one has no source, or one of "
	           "another kind",
	           q->model_path, q->d->options.input);
	return TFMC_INVALID;
}

/* Loads and opens the reference with changed options, which it restores: --set, --adapter, --dtype, --quantize and
 * --profile are for the evaluated model, and only --set and --adapter hold for the reference, too, if that is the same
 * model. */
static enum tfmc_status open_reference_model(struct quality *q)
{
	struct driver *d = q->d;
	const struct driver_options saved_options = d->options;
	struct texts texts = q->texts;
	if (saved_options.reference_model) {
		d->options.input = saved_options.reference_model;
		d->options.set = d->options.adapter = (struct option_list){0};
		d->options.dtype = d->options.quantize = d->options.profile = NULL;
	}
	d->is_unrounded = !saved_options.reference_model;
	enum tfmc_status st = driver_load(d, &q->reference.loaded);
	const struct frontend_model *m = q->reference.loaded.model;
	texts.kind = m ? frontend_generate(m)->kind : GENERATE_NONE;
	if (st == TFMC_OK && texts.kind == q->texts.kind)
		st = texts_open(&texts, &q->reference.loaded);
	if (st == TFMC_OK)
		st = check_same_kind(q, &texts);
	if (st == TFMC_OK)
		st = open_model(q, &q->reference);
	d->options = saved_options;
	return st;
}

/*
 * Loads and opens the evaluated model and the reference. Their vocabularies must have the same size: the divergence
 * sums over the ids of both. Start ids are those of the evaluated model; n_start of a record is -1 if the model has
 * none.
 */
static enum tfmc_status open_models(struct quality *q)
{
	TFMC_TRY(driver_load(q->d, &q->model.loaded));
	TFMC_TRY(texts_open(&q->texts, &q->model.loaded));
	TFMC_TRY(open_model(q, &q->model));
	TFMC_TRY(open_reference_model(q));
	const struct tfmc_record *r = tfmc_session_record(q->model.compiled.session);
	int64_t reference = tfmc_slots_vocabulary(q->reference.slots);
	q->texts.record = r;
	q->vocab = tfmc_slots_vocabulary(q->model.slots);
	if (q->vocab != reference) {
		diag_error(&q->d->diag, LOC_NONE, DIAG_INPUT,
		           "quality: '%s' has a vocabulary of %lld tokens, '%s' one of %lld",
		           q->d->options.input, (long long)q->vocab, q->d->options.reference_model,
		           (long long)reference);
		return TFMC_INVALID;
	}
	return prompt_append_record_ids(q->d, r, r->start, r->n_start > 0 ? r->n_start : 0, &q->start);
}

static void close_model(struct evaluated_model *s)
{
	tfmc_slots_close(s->slots);
	compiled_destroy(&s->compiled);
	loaded_destroy(&s->loaded);
}

/* Computes the means, as the head of this file defines them, and prints them. */
static enum tfmc_status print_report(struct quality *q)
{
	const struct distance_sums *s = &q->sums;
	double n = (double)s->n;
	TFMC_TRY(texts_check_count(&q->texts, s->n));
	const struct report r = {.kl_mean = s->kl / n,
	                         .kl_999 = distance_quantile(&q->kl, 0.999),
	                         .same_top = (double)s->n_same / n,
	                         .rms = sqrt(s->square / n),
	                         .perplexity = exp(-s->log_q / n),
	                         .other_perplexity = exp(-s->log_p / n),
	                         .n = (long long)s->n};
	if (q->d->options.json)
		print_json(q, &r);
	else
		print_text(q, &r);
	return TFMC_OK;
}

enum exit_code command_quality(struct driver *d)
{
	struct quality q = {.d = d,
	                    .model_path = d->options.input,
	                    .texts = {.d = d, .command = "quality"},
	                    .context = INT32_MAX};
	enum exit_code usage = texts_check_options(d);
	if (usage != EXIT_OK)
		return usage;
	enum tfmc_status st = open_models(&q);
	if (st == TFMC_OK)
		st = texts_each(&q.texts, add_text, &q);
	if (st == TFMC_OK)
		st = finish_chunks(&q);
	if (st == TFMC_OK)
		st = print_report(&q);
	close_model(&q.reference);
	close_model(&q.model);
	return exit_code_of(st);
}
