/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ids may come next, and how their scores change before one is chosen. Ids that never may are marked once;
 * those that depend on the sequence (forced ids, first ids, n-grams, banned sequences and texts, least lengths)
 * are marked again for every row, as are penalties and biases. Scores change in the order of the logits processors of
 * `transformers`: biases, source penalty, repetition penalty, decay.
 */
#include "runtime/generate/rules.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/feed.h"
#include "runtime/generate/real.h"

/* ---- texts of tokens ---- */

bool rules_have_text(const struct rules *r)
{
	return r->record->vocabulary || r->given.token_text;
}

/* As text_of_token. */
static const char *rules_token_text(const struct rules *r, int32_t id, size_t *bytes)
{
	uint64_t n = 0;
	if (!r->given.token_text)
		return text_of_token(r->record, id, bytes);
	const char *text = r->given.token_text(r->given.user, id, &n);
	*bytes = text && !token_is_end(r->record, id) ? (size_t)n : 0;
	return text ? text : "";
}

static uint64_t longest_token(const struct rules *r)
{
	uint64_t longest = 0, n = 0;
	if (r->given.token_text) {
		for (int64_t id = 0; id < r->vocab; id++)
			if (r->given.token_text(r->given.user, (int32_t)id, &n))
				longest = n > longest ? n : longest;
		return longest;
	}
	const char *line = tfmc_record_text(r->record, (uint64_t)r->record->vocabulary);
	for (; *line; line += n + (line[n] == '\n')) {
		n = strcspn(line, "\n");
		longest = n > longest ? n : longest;
	}
	return longest;
}

/* ---- checks ---- */

static bool in_vocabulary(const struct tfmc_ids *ids, int64_t vocab)
{
	if (!ids->items && ids->n)
		return false;
	for (uint64_t i = 0; i < ids->n; i++)
		if (ids->items[i] < 0 || ids->items[i] >= vocab)
			return false;
	return true;
}

static bool are_texts(const char *const *texts, uint64_t n)
{
	bool ok = texts || !n;
	for (uint64_t i = 0; ok && i < n; i++)
		ok = texts[i] && *texts[i];
	return ok;
}

#define NUMBER_MAX 1e6 /* of penalties */

static bool are_numbers(const struct tfmc_rules *g)
{
	const double factors[] = {g->repetition_penalty, g->source_repetition_penalty, g->decay};
	bool ok = fabs(g->presence_penalty) <= NUMBER_MAX && fabs(g->frequency_penalty) <= NUMBER_MAX;
	for (size_t i = 0; i < sizeof(factors) / sizeof(*factors); i++)
		ok = ok && factors[i] >= 0 && factors[i] <= NUMBER_MAX;
	return ok && g->decay_after >= 0 && g->source_no_repeat_ngram >= 0 && g->min_tokens >= 0 &&
	       g->max_tokens >= 0 && g->n_counted >= 0 && g->timestamps >= 0 && g->latest_timestamp >= 0;
}

static int check(const struct rules *r)
{
	const struct tfmc_rules *g = &r->given;
	bool ok = are_numbers(g) && in_vocabulary(&g->forced_last, r->vocab) && (g->biases || !g->n_biases) &&
	          in_vocabulary(&g->forced, r->vocab) && in_vocabulary(&g->suppress, r->vocab) &&
	          in_vocabulary(&g->stop, r->vocab) && g->no_repeat_ngram >= 0 && g->min_new_tokens >= 0 &&
	          (g->banned || !g->n_banned) && are_texts(g->stop_texts, g->n_stop_texts) &&
	          are_texts(g->banned_texts, g->n_banned_texts);
	for (uint64_t i = 0; ok && i < g->n_banned; i++)
		ok = g->banned[i].n > 0 && in_vocabulary(&g->banned[i], r->vocab);
	for (uint64_t i = 0; ok && i < g->n_biases; i++)
		ok = g->biases[i].ids.n > 0 && in_vocabulary(&g->biases[i].ids, r->vocab) &&
		     isfinite(g->biases[i].by);
	if (!ok)
		return TFMC_RT_E_RULES;
	if (g->n_stop_texts + g->n_banned_texts > 0 && !rules_have_text(r))
		return TFMC_RT_E_TEXT;
	return TFMC_RT_OK;
}

/* ---- opening ---- */

/*
 * The first place of text[0..n) after `from` at which one of the texts ends, 0: there is none. *begin: where it
 * begins, the earliest of those that end there.
 */
static uint64_t first_end(const char *const *texts, uint64_t n_texts, const char *text, uint64_t n,
                          uint64_t from, uint64_t *begin)
{
	for (uint64_t end = from + 1; end <= n; end++) {
		*begin = end;
		for (uint64_t i = 0; i < n_texts; i++) {
			uint64_t bytes = strlen(texts[i]);
			if (bytes <= end && end - bytes < *begin &&
			    !memcmp(text + end - bytes, texts[i], (size_t)bytes))
				*begin = end - bytes;
		}
		if (*begin < end)
			return end;
	}
	return 0;
}

static bool has_banned_text(const struct rules *r, int32_t id)
{
	const struct tfmc_rules *g = &r->given;
	size_t bytes;
	uint64_t begin;
	const char *text = g->n_banned_texts ? rules_token_text(r, id, &bytes) : NULL;
	return text && first_end(g->banned_texts, g->n_banned_texts, text, bytes, 0, &begin);
}

static void mark_always(struct rules *r)
{
	for (int64_t id = 0; id < r->vocab; id++)
		r->always[id] = !record_allows(r->record, id, 0) || has_banned_text(r, (int32_t)id);
	for (uint64_t i = 0; i < r->given.suppress.n; i++)
		r->always[r->given.suppress.items[i]] = 1;
}

static uint64_t longest_text(const char *const *texts, uint64_t n)
{
	uint64_t longest = 0;
	for (uint64_t i = 0; i < n; i++)
		longest = strlen(texts[i]) > longest ? strlen(texts[i]) : longest;
	return longest;
}

/* Room for the longest of the texts and the longest token after its beginning. */
static int open_tail(struct rules *r)
{
	uint64_t stop = longest_text(r->given.stop_texts, r->given.n_stop_texts);
	uint64_t banned = longest_text(r->given.banned_texts, r->given.n_banned_texts);
	r->longest = stop > banned ? stop : banned;
	if (!r->longest)
		return TFMC_RT_OK;
	r->tail_cap = r->longest + longest_token(r);
	r->tail = malloc((size_t)r->tail_cap);
	return r->tail ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
}

static bool is_factor(double v)
{
	return v != 0 && v != 1;
}

/* Memory for the changes of scores that the rules ask for. */
static int open_scores(struct rules *r)
{
	const struct tfmc_rules *g = &r->given;
	size_t n = (size_t)r->vocab;
	bool counts =
	        is_factor(g->repetition_penalty) || g->presence_penalty != 0 || g->frequency_penalty != 0;
	bool in_source = is_factor(g->source_repetition_penalty);
	bool any = counts || in_source || g->n_biases || is_factor(g->decay) || g->forced_last.n > 1;
	r->counts = counts ? malloc(n * sizeof(*r->counts)) : NULL;
	r->in_source = in_source ? calloc(n, 1) : NULL;
	r->bias = g->n_biases ? malloc(n * sizeof(*r->bias)) : NULL;
	r->scores = any ? malloc(n * sizeof(*r->scores)) : NULL;
	bool ok = (r->counts || !counts) && (r->in_source || !in_source) && (r->bias || !g->n_biases) &&
	          (r->scores || !any);
	return ok ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
}

int rules_open(struct rules *r, const struct tfmc_record *record, const struct tfmc_rules *given,
               int64_t vocab)
{
	*r = (struct rules){.record = record, .vocab = vocab};
	if (given && given->struct_size != sizeof(*given))
		return TFMC_RT_E_ABI;
	if (given)
		r->given = *given;
	TRY(check(r));
	r->always = malloc((size_t)vocab);
	r->excluded = malloc((size_t)vocab);
	if (!r->always || !r->excluded)
		return TFMC_RT_E_MEMORY;
	mark_always(r);
	TRY(open_scores(r));
	return open_tail(r);
}

void rules_begin(struct rules *r, uint64_t n_first, uint64_t n_most, struct tfmc_ids source)
{
	r->n_first = n_first;
	r->n_most = n_most;
	r->source = source;
	for (uint64_t i = 0; r->in_source && i < source.n; i++)
		if (source.items[i] >= 0 && source.items[i] < r->vocab)
			r->in_source[source.items[i]] = 1;
}

int64_t rules_most(const struct tfmc_rules *rules, const struct tfmc_session *session)
{
	int64_t most = rules ? rules->max_tokens : 0, room = session_max_len(session);
	return most > 0 && most < room ? most : room;
}

void rules_close(struct rules *r)
{
	free(r->always);
	free(r->excluded);
	free(r->tail);
	free(r->bias);
	free(r->counts);
	free(r->in_source);
	free(r->scores);
	r->always = r->excluded = r->in_source = NULL;
	r->tail = NULL;
	r->bias = NULL;
	r->counts = NULL;
	r->scores = NULL;
}

/* ---- a row ---- */

int rules_logits(const struct rules *r, float *logits, const int32_t *ids, uint64_t n)
{
	if (r->given.on_logits && r->given.on_logits(r->given.user, logits, r->vocab, ids, n))
		return TFMC_RT_E_CANCELLED;
	int wrong = 0;
	for (int64_t id = 0; id < r->vocab; id++)
		wrong |= !(logits[id] <= FLT_MAX); /* NaN and +infinity */
	return wrong ? (int)TFMC_RT_E_LOGITS : (int)TFMC_RT_OK;
}

/* Ids that would complete `length` ids of a text. */
static void mark_ngrams(struct rules *r, int64_t length, struct tfmc_ids text, const int32_t *ids, uint64_t n)
{
	uint64_t before = (uint64_t)length - 1;
	if (length == 0 || n < before)
		return;
	for (uint64_t i = 0; text.n > before && i < text.n - before; i++) {
		int32_t next = text.items[i + before];
		if (next >= 0 && next < r->vocab &&
		    !memcmp(text.items + i, ids + n - before, (size_t)before * sizeof(*ids)))
			r->excluded[next] = 1;
	}
}

/* The ids before the last one of a sequence stand at the end of ids[0..n). */
static bool is_begun(const struct tfmc_ids *sequence, const int32_t *ids, uint64_t n)
{
	uint64_t before = sequence->n - 1;
	return n >= before && !memcmp(ids + n - before, sequence->items, (size_t)before * sizeof(*ids));
}

static void mark_banned(struct rules *r, const int32_t *ids, uint64_t n)
{
	for (uint64_t i = 0; i < r->given.n_banned; i++) {
		const struct tfmc_ids *b = &r->given.banned[i];
		if (is_begun(b, ids, n))
			r->excluded[b->items[b->n - 1]] = 1;
	}
}

static double power(double base, uint64_t exponent)
{
	double product = 1;
	for (; exponent; exponent >>= 1, base *= base)
		product = exponent & 1 ? product * base : product;
	return product;
}

/* What rules_score asks for. */
static void mark_scores(struct rules *r, const int32_t *ids, uint64_t n)
{
	const struct tfmc_rules *g = &r->given;
	uint64_t n_new = n - r->n_first, after = (uint64_t)g->decay_after;
	r->decay = is_factor(g->decay) && n_new > after ? power(g->decay, n_new - after) - 1 : 0;
	if (r->bias)
		memset(r->bias, 0, (size_t)r->vocab * sizeof(*r->bias));
	for (uint64_t i = 0; i < g->n_biases; i++)
		if (is_begun(&g->biases[i].ids, ids, n))
			r->bias[g->biases[i].ids.items[g->biases[i].ids.n - 1]] += g->biases[i].by;
	if (r->counts)
		memset(r->counts, 0, (size_t)r->vocab * sizeof(*r->counts));
	for (uint64_t i = 0; r->counts && i < n; i++)
		if (ids[i] >= 0 && ids[i] < r->vocab)
			r->counts[ids[i]]++;
}

/* The end of the text of the new ids, as far as there is room, at r->tail[at .. tail_cap); *last: bytes of the last id.
 * False: an id has no text. */
static bool fill_tail(struct rules *r, const int32_t *ids, uint64_t n, uint64_t *at, uint64_t *last)
{
	*at = r->tail_cap;
	*last = 0;
	for (uint64_t i = n; i > r->n_first && *at > 0; i--) {
		size_t bytes;
		const char *text = rules_token_text(r, ids[i - 1], &bytes);
		if (!text)
			return false;
		size_t part = bytes < *at ? bytes : (size_t)*at;
		*at -= part;
		memcpy(r->tail + *at, text + bytes - part, part);
		*last = i == n ? bytes : *last;
	}
	return true;
}

/* Ids whose texts begin with this one. */
static void mark_beginning(struct rules *r, const char *beginning)
{
	size_t length = strlen(beginning), bytes;
	for (int64_t id = 0; id < r->vocab; id++) {
		const char *text = r->excluded[id] ? NULL : rules_token_text(r, (int32_t)id, &bytes);
		if (text && bytes >= length && !memcmp(text, beginning, length))
			r->excluded[id] = 1;
	}
}

/* Wherever a part of a banned text stands at the end, what continues it; those that contain one are never chosen. */
static void mark_banned_texts(struct rules *r, const int32_t *ids, uint64_t n)
{
	uint64_t at, last;
	if (!r->given.n_banned_texts || !fill_tail(r, ids, n, &at, &last))
		return;
	for (uint64_t i = 0; i < r->given.n_banned_texts; i++) {
		const char *text = r->given.banned_texts[i];
		for (uint64_t k = 1; k < strlen(text) && k <= r->tail_cap - at; k++)
			if (!memcmp(r->tail + r->tail_cap - k, text, (size_t)k))
				mark_beginning(r, text + k);
	}
}

static void mark_stops(struct rules *r)
{
	for (int64_t id = 0; id < r->vocab; id++)
		r->excluded[id] |= rules_is_stop(r, (int32_t)id);
}

static void exclude_range(struct rules *r, int64_t from, int64_t end)
{
	end = end < r->vocab ? end : r->vocab;
	if (from < end)
		memset(r->excluded + from, 1, (size_t)(end - from));
}

/* Timestamps of speech after new ids[0..n): a text lies between two, the end of one is the beginning of the next. */
static void mark_timestamps(struct rules *r, const int32_t *ids, uint64_t n)
{
	int64_t first = r->given.timestamps, least = first;
	if (first <= 0)
		return;
	int64_t stop = r->record->n_stop > 0 ? record_id(r->record, r->record->stop) : first;
	bool last = n >= 1 && ids[n - 1] >= first, before = n < 2 || ids[n - 2] >= first;
	exclude_range(r, first - 1, first);
	if (last && before)
		exclude_range(r, first, r->vocab);
	else if (last)
		exclude_range(r, 0, stop);
	for (uint64_t i = 0; i < n; i++)
		least = ids[i] >= first ? ids[i] + !(last && !before) : least;
	exclude_range(r, first, least);
	if (n == 0)
		exclude_range(r, 0, first);
	if (n == 0 && r->given.latest_timestamp > 0)
		exclude_range(r, r->given.latest_timestamp + 1, r->vocab);
}

void rules_weigh_timestamps(struct rules *r, const float *logits, double shift)
{
	int64_t first = r->given.timestamps;
	double text = -INFINITY, most = -INFINITY, sum = 0;
	if (first <= 0 || r->is_last)
		return;
	for (int64_t id = 0; id < r->vocab; id++) {
		double score =
		        r->excluded[id] ? -INFINITY : rules_score(r, (int32_t)id, (double)logits[id] - shift);
		double *side = id < first ? &text : &most;
		*side = score > *side ? score : *side;
	}
	for (int64_t id = first; most > -INFINITY && id < r->vocab; id++)
		if (!r->excluded[id])
			sum += real_exp(rules_score(r, (int32_t)id, (double)logits[id] - shift) - most);
	if (sum > 0 && most + real_log(sum) > text)
		exclude_range(r, 0, first);
}

static void exclude_others(struct rules *r, struct tfmc_ids ids)
{
	memset(r->excluded, 1, (size_t)r->vocab);
	for (uint64_t i = 0; i < ids.n; i++)
		r->excluded[ids.items[i]] = 0;
}

void rules_mark(struct rules *r, const int32_t *ids, uint64_t n)
{
	const struct tfmc_rules *g = &r->given;
	uint64_t n_new = n - r->n_first;
	mark_scores(r, ids, n);
	r->is_last = g->forced_last.n && !r->ignore_stop && n + 1 == r->n_most;
	if (r->is_last || n_new < g->forced.n) {
		exclude_others(r,
		               r->is_last ? g->forced_last : (struct tfmc_ids){&g->forced.items[n_new], 1});
		return;
	}
	memcpy(r->excluded, r->always, (size_t)r->vocab);
	for (int64_t id = 0; n_new == 0 && id < r->vocab; id++)
		r->excluded[id] |= !record_allows(r->record, id, 1);
	if (n_new < (uint64_t)g->min_new_tokens || n < (uint64_t)g->min_tokens)
		mark_stops(r);
	mark_ngrams(r, g->no_repeat_ngram, (struct tfmc_ids){ids, n}, ids, n);
	mark_ngrams(r, g->source_no_repeat_ngram, r->source, ids, n);
	mark_banned(r, ids, n);
	mark_banned_texts(r, ids, n);
	mark_timestamps(r, ids + r->n_first, n_new);
}

/* Keskar et al. 2019, section 4.1; negative scores are multiplied. */
static double penalized(double score, double penalty)
{
	return score < 0 ? score * penalty : score / penalty;
}

double rules_score(const struct rules *r, int32_t id, double score)
{
	const struct tfmc_rules *g = &r->given;
	int32_t count = r->counts ? r->counts[id] : 0;
	if (r->is_last)
		return 0;
	if (r->bias)
		score += r->bias[id];
	if (r->in_source && r->in_source[id])
		score = penalized(score, 1 / g->source_repetition_penalty);
	if (count && is_factor(g->repetition_penalty))
		score = penalized(score, g->repetition_penalty);
	if (count)
		score -= g->presence_penalty + g->frequency_penalty * (double)count;
	if (r->decay != 0 && isfinite(score) && rules_is_stop(r, id))
		score += fabs(score) * r->decay;
	return score;
}

const float *rules_scores(struct rules *r, const float *logits)
{
	for (int64_t id = 0; r->scores && id < r->vocab; id++)
		r->scores[id] = (float)rules_score(r, (int32_t)id, (double)logits[id]);
	return r->scores ? r->scores : logits;
}

bool rules_is_stop(const struct rules *r, int32_t id)
{
	if (r->ignore_stop)
		return false;
	for (uint64_t i = 0; i < r->given.stop.n; i++)
		if (r->given.stop.items[i] == id)
			return true;
	return record_has_id(r->record, r->record->stop, r->record->n_stop, id);
}

/* ---- stop texts ---- */

uint64_t tfmc_text_stop(const struct tfmc_rules *rules, const char *text)
{
	uint64_t n = text ? strlen(text) : 0, begin;
	if (!rules || !rules->stop_texts)
		return n;
	return first_end(rules->stop_texts, rules->n_stop_texts, text, n, 0, &begin) ? begin : n;
}

bool rules_stop_text(struct rules *r, const int32_t *ids, uint64_t n)
{
	uint64_t at, last, begin;
	if (!r->given.n_stop_texts || !fill_tail(r, ids, n, &at, &last) || !last)
		return false;
	uint64_t have = r->tail_cap - at;
	return first_end(r->given.stop_texts, r->given.n_stop_texts, r->tail + at, have, have - last, &begin);
}

/* Bytes at the end of the held text with which a stop text may begin. */
static uint64_t undecided(const struct stream *s)
{
	const struct tfmc_rules *g = &s->rules->given;
	uint64_t most = 0;
	for (uint64_t i = 0; i < g->n_stop_texts; i++) {
		uint64_t bytes = strlen(g->stop_texts[i]);
		uint64_t n = s->n < bytes ? s->n : bytes - 1;
		while (n > most && memcmp(s->held + s->n - n, g->stop_texts[i], (size_t)n))
			n--;
		most = n > most ? n : most;
	}
	return most;
}

/* Lets the first `bytes` of the held text go. */
static void let_go(struct stream *s, uint64_t bytes)
{
	if (bytes && s->emit && s->emit(s->user, s->held, bytes))
		s->is_ended = true;
	s->n -= bytes;
	memmove(s->held, s->held + bytes, (size_t)s->n);
}

static int append(struct stream *s, const char *text, size_t bytes)
{
	if (s->n + bytes > s->cap) {
		uint64_t cap = 2 * s->cap + bytes;
		char *grown = realloc(s->held, (size_t)cap);
		if (!grown)
			return TFMC_RT_E_MEMORY;
		s->held = grown;
		s->cap = cap;
	}
	memcpy(s->held + s->n, text, bytes);
	s->n += bytes;
	return TFMC_RT_OK;
}

int stream_token(struct stream *s, int32_t id)
{
	size_t bytes;
	if (!s->emit && !s->rules->given.n_stop_texts)
		return TFMC_RT_OK;
	const char *text = rules_token_text(s->rules, id, &bytes);
	if (!text)
		return TFMC_RT_E_TEXT;
	if (!bytes)
		return TFMC_RT_OK;
	uint64_t before = s->n, begin;
	TRY(append(s, text, bytes));
	if (first_end(s->rules->given.stop_texts, s->rules->given.n_stop_texts, s->held, s->n, before,
	              &begin)) {
		let_go(s, begin);
		s->n = 0;
		s->is_stopped = true;
		return TFMC_RT_OK;
	}
	let_go(s, s->n - undecided(s));
	return TFMC_RT_OK;
}

void stream_end(struct stream *s)
{
	if (!s->is_stopped && !s->is_ended && s->n)
		let_go(s, s->n);
}

void stream_close(struct stream *s)
{
	free(s->held);
	s->held = NULL;
}
