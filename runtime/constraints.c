/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logit constraints. Ids that are excluded in every sequence are marked once; what depends on the sequence
 * (forced ids, first ids, n-grams, banned sequences and strings, minimum lengths, penalties, biases) is
 * computed again for every row. Scores change in the order of the logits processors of `transformers`:
 * biases, source penalty, repetition penalty, decay.
 *
 * `always` marks the ids excluded in every sequence, `excluded` those excluded at the next position. `tail` is the end
 * of the new text in bytes, to find strings that several tokens make up. A factor of 0 is not set; 1 changes nothing.
 */
#include "runtime/constraints.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/feed.h"
#include "runtime/real.h"

/* ---- strings of tokens ---- */

bool constraints_have_text(const struct constraints *c)
{
	return c->record->vocabulary || c->given.token_text;
}

/* As token_string, or by the caller's callback; "" for start and stop ids. */
static const char *constraints_token_string(const struct constraints *c, int32_t id, size_t *bytes)
{
	uint64_t n = 0;
	if (!c->given.token_text)
		return token_string(c->record, id, bytes);
	const char *text = c->given.token_text(c->given.user, id, &n);
	*bytes = text && !token_is_start_or_stop(c->record, id) ? (size_t)n : 0;
	return text ? text : "";
}

/* Bytes of the longest token string: the most that one id adds to the text. */
static uint64_t longest_token(const struct constraints *c)
{
	uint64_t longest = 0, n = 0;
	if (c->given.token_text) {
		for (int64_t id = 0; id < c->vocab; id++)
			if (c->given.token_text(c->given.user, (int32_t)id, &n))
				longest = n > longest ? n : longest;
		return longest;
	}
	const char *line = tfmc_record_text(c->record, (uint64_t)c->record->vocabulary);
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

static bool are_nonempty_strings(const char *const *strings, uint64_t n)
{
	bool ok = strings || !n;
	for (uint64_t i = 0; ok && i < n; i++)
		ok = strings[i] && *strings[i];
	return ok;
}

#define PENALTY_MAX 1e6 /* bound of penalties */

/* True: penalties, factors and counts are in their ranges; comparisons with NaN are false. */
static bool are_numbers_in_range(const struct tfmc_constraints *g)
{
	const double factors[] = {g->repetition_penalty, g->source_repetition_penalty, g->decay};
	bool ok = fabs(g->presence_penalty) <= PENALTY_MAX && fabs(g->frequency_penalty) <= PENALTY_MAX;
	for (size_t i = 0; i < sizeof(factors) / sizeof(*factors); i++)
		ok = ok && factors[i] >= 0 && factors[i] <= PENALTY_MAX;
	return ok && g->decay_after >= 0 && g->source_no_repeat_ngram >= 0 && g->min_tokens >= 0 &&
	       g->max_tokens >= 0 && g->n_counted >= 0 && g->timestamps >= 0 && g->latest_timestamp >= 0;
}

/* E_CONSTRAINTS for ids outside of the vocabulary, empty sequences or values out of range; E_TEXT for strings
 * without a vocabulary. */
static int check_constraints(const struct constraints *c)
{
	const struct tfmc_constraints *g = &c->given;
	bool ok = are_numbers_in_range(g) && in_vocabulary(&g->forced_last, c->vocab) &&
	          (g->biases || !g->n_biases) && in_vocabulary(&g->forced, c->vocab) &&
	          in_vocabulary(&g->suppress, c->vocab) && in_vocabulary(&g->stop, c->vocab) &&
	          g->no_repeat_ngram >= 0 && g->min_new_tokens >= 0 && (g->banned || !g->n_banned) &&
	          are_nonempty_strings(g->stop_texts, g->n_stop_texts) &&
	          are_nonempty_strings(g->banned_texts, g->n_banned_texts);
	for (uint64_t i = 0; ok && i < g->n_banned; i++)
		ok = g->banned[i].n > 0 && in_vocabulary(&g->banned[i], c->vocab);
	for (uint64_t i = 0; ok && i < g->n_biases; i++)
		ok = g->biases[i].ids.n > 0 && in_vocabulary(&g->biases[i].ids, c->vocab) &&
		     isfinite(g->biases[i].by);
	if (!ok)
		return TFMC_RT_E_CONSTRAINTS;
	if (g->n_stop_texts + g->n_banned_texts > 0 && !constraints_have_text(c))
		return TFMC_RT_E_TEXT;
	return TFMC_RT_OK;
}

/* ---- opening ---- */

/*
 * Finds the first end, after offset `from`, of an occurrence of one of the strings in text[0..n). Returns the
 * end, 0: none. *begin: the earliest begin of an occurrence with that end.
 */
static uint64_t find_first_match(const char *const *strings, uint64_t n_strings, const char *text, uint64_t n,
                                 uint64_t from, uint64_t *begin)
{
	for (uint64_t end = from + 1; end <= n; end++) {
		*begin = end;
		for (uint64_t i = 0; i < n_strings; i++) {
			uint64_t bytes = strlen(strings[i]);
			if (bytes <= end && end - bytes < *begin &&
			    !memcmp(text + end - bytes, strings[i], (size_t)bytes))
				*begin = end - bytes;
		}
		if (*begin < end)
			return end;
	}
	return 0;
}

static bool has_banned_text(const struct constraints *c, int32_t id)
{
	const struct tfmc_constraints *g = &c->given;
	size_t bytes;
	uint64_t begin;
	const char *text = g->n_banned_texts ? constraints_token_string(c, id, &bytes) : NULL;
	return text && find_first_match(g->banned_texts, g->n_banned_texts, text, bytes, 0, &begin);
}

/* Marks ids that no sequence may contain: suppressed by the model or the constraints, or with a banned
 * string inside. */
static void mark_always_excluded(struct constraints *c)
{
	for (int64_t id = 0; id < c->vocab; id++)
		c->always[id] = !record_allows_id(c->record, id, 0) || has_banned_text(c, (int32_t)id);
	for (uint64_t i = 0; i < c->given.suppress.n; i++)
		c->always[c->given.suppress.items[i]] = 1;
}

static uint64_t longest_string(const char *const *strings, uint64_t n)
{
	uint64_t longest = 0;
	for (uint64_t i = 0; i < n; i++)
		longest = strlen(strings[i]) > longest ? strlen(strings[i]) : longest;
	return longest;
}

/* Allocates the buffer of the text's end. A string can end anywhere inside the last token, and begins at most
 * `longest` bytes before that: longest string and longest token together are enough. Without strings there is no
 * tail. */
static int alloc_tail(struct constraints *c)
{
	uint64_t stop = longest_string(c->given.stop_texts, c->given.n_stop_texts);
	uint64_t banned = longest_string(c->given.banned_texts, c->given.n_banned_texts);
	c->longest = stop > banned ? stop : banned;
	if (!c->longest)
		return TFMC_RT_OK;
	c->tail_cap = c->longest + longest_token(c);
	c->tail = malloc((size_t)c->tail_cap);
	return c->tail ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
}

/* True: a factor that changes something (0 and 1 do not). */
static bool is_factor(double v)
{
	return v != 0 && v != 1;
}

/* Allocates only the buffers of score changes in use; NULL turns one off. scores, the changed row, is needed by any of
 * them, and by forced_last with a choice, since constraints_score then returns 0 for all its ids. */
static int alloc_score_changes(struct constraints *c)
{
	const struct tfmc_constraints *g = &c->given;
	size_t n = (size_t)c->vocab;
	bool counts =
	        is_factor(g->repetition_penalty) || g->presence_penalty != 0 || g->frequency_penalty != 0;
	bool in_source = is_factor(g->source_repetition_penalty);
	bool any = counts || in_source || g->n_biases || is_factor(g->decay) || g->forced_last.n > 1;
	c->counts = counts ? malloc(n * sizeof(*c->counts)) : NULL;
	c->in_source = in_source ? calloc(n, 1) : NULL;
	c->bias = g->n_biases ? malloc(n * sizeof(*c->bias)) : NULL;
	c->scores = any ? malloc(n * sizeof(*c->scores)) : NULL;
	bool ok = (c->counts || !counts) && (c->in_source || !in_source) && (c->bias || !g->n_biases) &&
	          (c->scores || !any);
	return ok ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
}

int constraints_open(struct constraints *c, const struct tfmc_record *record,
                     const struct tfmc_constraints *given, int64_t vocab)
{
	*c = (struct constraints){.record = record, .vocab = vocab};
	if (given && given->struct_size != sizeof(*given))
		return TFMC_RT_E_ABI;
	if (given)
		c->given = *given;
	TRY(check_constraints(c));
	c->always = malloc((size_t)vocab);
	c->excluded = malloc((size_t)vocab);
	if (!c->always || !c->excluded)
		return TFMC_RT_E_MEMORY;
	mark_always_excluded(c);
	TRY(alloc_score_changes(c));
	return alloc_tail(c);
}

/* Ids of the source that are not in the vocabulary of the output have no score to change. */
void constraints_begin(struct constraints *c, uint64_t n_first, uint64_t n_most, struct tfmc_ids source)
{
	c->n_first = n_first;
	c->n_most = n_most;
	c->source = source;
	for (uint64_t i = 0; c->in_source && i < source.n; i++)
		if (source.items[i] >= 0 && source.items[i] < c->vocab)
			c->in_source[source.items[i]] = 1;
}

int64_t max_sequence_length(const struct tfmc_constraints *constraints, const struct tfmc_session *session)
{
	int64_t max = constraints ? constraints->max_tokens : 0, bound = session_max_len(session);
	return max > 0 && max < bound ? max : bound;
}

void constraints_close(struct constraints *c)
{
	free(c->always);
	free(c->excluded);
	free(c->tail);
	free(c->bias);
	free(c->counts);
	free(c->in_source);
	free(c->scores);
	c->always = c->excluded = c->in_source = NULL;
	c->tail = NULL;
	c->bias = NULL;
	c->counts = NULL;
	c->scores = NULL;
}

/* ---- a row ---- */

int constraints_logits(const struct constraints *c, float *logits, const int32_t *ids, uint64_t n)
{
	if (c->given.on_logits && c->given.on_logits(c->given.user, logits, c->vocab, ids, n))
		return TFMC_RT_E_CANCELLED;
	int wrong = 0;
	for (int64_t id = 0; id < c->vocab; id++)
		wrong |= !(logits[id] <= FLT_MAX); /* true for NaN and +infinity */
	return wrong ? (int)TFMC_RT_E_LOGITS : (int)TFMC_RT_OK;
}

/* Excludes each id that follows the last length - 1 ids of ids[0..n) somewhere in `text` (the sequence itself, or
 * the source): choosing it would repeat an n-gram of that length. length 0: off. */
static void exclude_repeated_ngrams(struct constraints *c, int64_t length, struct tfmc_ids text,
                                    const int32_t *ids, uint64_t n)
{
	uint64_t before = (uint64_t)length - 1;
	if (length == 0 || n < before)
		return;
	for (uint64_t i = 0; text.n > before && i < text.n - before; i++) {
		int32_t next = text.items[i + before];
		if (next >= 0 && next < c->vocab &&
		    !memcmp(text.items + i, ids + n - before, (size_t)before * sizeof(*ids)))
			c->excluded[next] = 1;
	}
}

/* True: the ids before the last one of the sequence are the end of ids[0..n). */
static bool ends_with_beginning(const struct tfmc_ids *sequence, const int32_t *ids, uint64_t n)
{
	uint64_t before = sequence->n - 1;
	return n >= before && !memcmp(ids + n - before, sequence->items, (size_t)before * sizeof(*ids));
}

static double int_power(double base, uint64_t exponent)
{
	double product = 1;
	for (; exponent; exponent >>= 1, base *= base)
		product = exponent & 1 ? product * base : product;
	return product;
}

/* Computes decay, bias and counts for constraints_score from ids[0..n). A bias of several ids applies to the last one
 * where the text ends with those before it. */
static void update_score_changes(struct constraints *c, const int32_t *ids, uint64_t n)
{
	const struct tfmc_constraints *g = &c->given;
	uint64_t n_new = n - c->n_first, after = (uint64_t)g->decay_after;
	/* exponential decay of the length, as transformers has it: the stop id's s becomes s + |s| (f^k - 1) */
	c->decay = is_factor(g->decay) && n_new > after ? int_power(g->decay, n_new - after) - 1 : 0;
	if (c->bias)
		memset(c->bias, 0, (size_t)c->vocab * sizeof(*c->bias));
	for (uint64_t i = 0; i < g->n_biases; i++)
		if (ends_with_beginning(&g->biases[i].ids, ids, n))
			c->bias[g->biases[i].ids.items[g->biases[i].ids.n - 1]] += g->biases[i].by;
	if (c->counts)
		memset(c->counts, 0, (size_t)c->vocab * sizeof(*c->counts));
	for (uint64_t i = 0; c->counts && i < n; i++)
		if (ids[i] >= 0 && ids[i] < c->vocab)
			c->counts[ids[i]]++;
}

/* Copies the end of the new text, as far as it fits, to c->tail[*at .. tail_cap), from its end backwards. *last: bytes
 * of the last id. False: an id has no string, so that no string can be found either. */
static bool copy_tail(struct constraints *c, const int32_t *ids, uint64_t n, uint64_t *at, uint64_t *last)
{
	*at = c->tail_cap;
	*last = 0;
	for (uint64_t i = n; i > c->n_first && *at > 0; i--) {
		size_t bytes;
		const char *text = constraints_token_string(c, ids[i - 1], &bytes);
		if (!text)
			return false;
		size_t n_tail = bytes < *at ? bytes : (size_t)*at;
		*at -= n_tail;
		memcpy(c->tail + *at, text + bytes - n_tail, n_tail);
		*last = i == n ? bytes : *last;
	}
	return true;
}

/* Excludes the ids whose strings begin with this one. */
static void exclude_tokens_beginning_with(struct constraints *c, const char *beginning)
{
	size_t length = strlen(beginning), bytes;
	for (int64_t id = 0; id < c->vocab; id++) {
		const char *text = c->excluded[id] ? NULL : constraints_token_string(c, (int32_t)id, &bytes);
		if (text && bytes >= length && !memcmp(text, beginning, length))
			c->excluded[id] = 1;
	}
}

/* For every proper prefix of a banned string that the new text ends with, excludes the ids that would
 * complete it. Ids that contain a whole banned string are excluded once, in mark_always_excluded. */
static void exclude_banned_texts(struct constraints *c, const int32_t *ids, uint64_t n)
{
	uint64_t at, last;
	if (!c->given.n_banned_texts || !copy_tail(c, ids, n, &at, &last))
		return;
	for (uint64_t i = 0; i < c->given.n_banned_texts; i++) {
		const char *text = c->given.banned_texts[i];
		for (uint64_t k = 1; k < strlen(text) && k <= c->tail_cap - at; k++)
			if (!memcmp(c->tail + c->tail_cap - k, text, (size_t)k))
				exclude_tokens_beginning_with(c, text + k);
	}
}

/* Excludes ids [from, end). */
static void exclude_range(struct constraints *c, int64_t from, int64_t end)
{
	end = end < c->vocab ? end : c->vocab;
	if (from < end)
		memset(c->excluded + from, 1, (size_t)(end - from));
}

/* Whisper's timestamp grammar, for new ids[0..n): text stands between a begin and an end timestamp,
 * timestamps do not decrease, and id timestamps - 1 (no timestamps) is excluded. */
static void exclude_timestamps_by_grammar(struct constraints *c, const int32_t *ids, uint64_t n)
{
	int64_t first = c->given.timestamps, min_id = first;
	if (first <= 0)
		return;
	int64_t stop = c->record->n_stop > 0 ? record_first_id(c->record, c->record->stop) : first;
	bool last = n >= 1 && ids[n - 1] >= first, before = n < 2 || ids[n - 2] >= first;
	exclude_range(c, first - 1, first);
	if (last && before) /* a begin timestamp: text follows */
		exclude_range(c, first, c->vocab);
	else if (last) /* an end timestamp: no text (ids below the stop id), but a begin or the stop id */
		exclude_range(c, 0, stop);
	for (uint64_t i = 0; i < n; i++)
		/* the begin after an end may be equal to it, others are larger */
		min_id = ids[i] >= first ? ids[i] + !(last && !before) : min_id;
	exclude_range(c, first, min_id);
	if (n == 0) /* the first id is a timestamp */
		exclude_range(c, 0, first);
	if (n == 0 && c->given.latest_timestamp > 0)
		exclude_range(c, c->given.latest_timestamp + 1, c->vocab);
}

/* Log-sum-exp of the timestamps' scores against the best score of a text id, among ids that are not excluded.
 * Without effect on the last id (is_last), which must be one of forced_last. */
void constraints_prefer_timestamps(struct constraints *c, const float *logits, double shift)
{
	int64_t first = c->given.timestamps;
	double text = -INFINITY, most = -INFINITY, sum = 0;
	if (first <= 0 || c->is_last)
		return;
	for (int64_t id = 0; id < c->vocab; id++) {
		double score = c->excluded[id]
		                       ? -INFINITY
		                       : constraints_score(c, (int32_t)id, (double)logits[id] - shift);
		double *side = id < first ? &text : &most;
		*side = score > *side ? score : *side;
	}
	for (int64_t id = first; most > -INFINITY && id < c->vocab; id++)
		if (!c->excluded[id])
			sum += real_exp(constraints_score(c, (int32_t)id, (double)logits[id] - shift) - most);
	if (sum > 0 && most + real_log(sum) > text)
		exclude_range(c, 0, first);
}

static void exclude_all_but(struct constraints *c, struct tfmc_ids ids)
{
	memset(c->excluded, 1, (size_t)c->vocab);
	for (uint64_t i = 0; i < ids.n; i++)
		c->excluded[ids.items[i]] = 0;
}

/* Forced ids come before all other rules: exactly one id is allowed then, whatever it repeats; near the length
 * bound that is forced_last, which ends the text and so has no effect where stops are ignored. */
void constraints_mark_excluded(struct constraints *c, const int32_t *ids, uint64_t n)
{
	const struct tfmc_constraints *g = &c->given;
	uint64_t n_new = n - c->n_first;
	update_score_changes(c, ids, n);
	c->is_last = g->forced_last.n && !c->ignore_stop && n + 1 == c->n_most;
	if (c->is_last || n_new < g->forced.n) {
		exclude_all_but(c,
		                c->is_last ? g->forced_last : (struct tfmc_ids){&g->forced.items[n_new], 1});
		return;
	}
	memcpy(c->excluded, c->always, (size_t)c->vocab);
	for (int64_t id = 0; n_new == 0 && id < c->vocab; id++) /* suppressed only as the first new id */
		c->excluded[id] |= !record_allows_id(c->record, id, 1);
	if (n_new < (uint64_t)g->min_new_tokens || n < (uint64_t)g->min_tokens) {
		for (int64_t id = 0; id < c->vocab; id++)
			c->excluded[id] |= constraints_is_stop(c, (int32_t)id);
	}
	exclude_repeated_ngrams(c, g->no_repeat_ngram, (struct tfmc_ids){ids, n}, ids, n);
	exclude_repeated_ngrams(c, g->source_no_repeat_ngram, c->source, ids, n);
	/* Excludes the last id of each banned sequence whose preceding ids end the sequence. */
	for (uint64_t i = 0; i < c->given.n_banned; i++) {
		const struct tfmc_ids *b = &c->given.banned[i];
		if (ends_with_beginning(b, ids, n))
			c->excluded[b->items[b->n - 1]] = 1;
	}
	exclude_banned_texts(c, ids, n);
	exclude_timestamps_by_grammar(c, ids + c->n_first, n_new);
}

/* Repetition penalty of Keskar et al. 2019, section 4.1; negative scores are multiplied. */
static double apply_penalty(double score, double penalty)
{
	return score < 0 ? score * penalty : score / penalty;
}

/* Score changes, in the order of the head. With forced_last the score is 0 (log 1): no other id can follow. The source
 * penalty is inverted as in transformers: above 1 it raises the ids of the source. */
double constraints_score(const struct constraints *c, int32_t id, double score)
{
	const struct tfmc_constraints *g = &c->given;
	int32_t count = c->counts ? c->counts[id] : 0;
	if (c->is_last)
		return 0;
	if (c->bias)
		score += c->bias[id];
	if (c->in_source && c->in_source[id])
		score = apply_penalty(score, 1 / g->source_repetition_penalty);
	if (count && is_factor(g->repetition_penalty))
		score = apply_penalty(score, g->repetition_penalty);
	if (count)
		score -= g->presence_penalty + g->frequency_penalty * (double)count;
	if (c->decay != 0 && isfinite(score) && constraints_is_stop(c, id))
		score += fabs(score) * c->decay;
	return score;
}

const float *constraints_scores(struct constraints *c, const float *logits)
{
	for (int64_t id = 0; c->scores && id < c->vocab; id++)
		c->scores[id] = (float)constraints_score(c, (int32_t)id, (double)logits[id]);
	return c->scores ? c->scores : logits;
}

bool constraints_is_stop(const struct constraints *c, int32_t id)
{
	if (c->ignore_stop)
		return false;
	for (uint64_t i = 0; i < c->given.stop.n; i++)
		if (c->given.stop.items[i] == id)
			return true;
	return record_has_id(c->record, c->record->stop, c->record->n_stop, id);
}

/* ---- stop strings ---- */

uint64_t tfmc_text_stop(const struct tfmc_constraints *constraints, const char *text)
{
	uint64_t n = text ? strlen(text) : 0, begin;
	if (!constraints || !constraints->stop_texts)
		return n;
	return find_first_match(constraints->stop_texts, constraints->n_stop_texts, text, n, 0, &begin)
	               ? begin
	               : n;
}

/* Only ends inside the text of the last id count (from have - last on): earlier ones ended the sequence earlier. An
 * id without text ends none. */
bool constraints_ends_with_stop_text(struct constraints *c, const int32_t *ids, uint64_t n)
{
	uint64_t at, last, begin;
	if (!c->given.n_stop_texts || !copy_tail(c, ids, n, &at, &last) || !last)
		return false;
	uint64_t have = c->tail_cap - at;
	return find_first_match(c->given.stop_texts, c->given.n_stop_texts, c->tail + at, have, have - last,
	                        &begin);
}

/* Length of the longest suffix of the held text that is a proper prefix of a stop string. */
static uint64_t undecided_bytes(const struct stream *s)
{
	const struct tfmc_constraints *g = &s->constraints->given;
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

/* Emits and removes the first `bytes` of the held text. */
static void emit_prefix(struct stream *s, uint64_t bytes)
{
	if (bytes && s->emit && s->emit(s->user, s->held, bytes))
		s->is_ended = true;
	s->n -= bytes;
	memmove(s->held, s->held + bytes, (size_t)s->n);
}

/* Appends text to the withheld bytes of a stream. */
static int append_held(struct stream *s, const char *text, size_t bytes)
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

/* Withholds text that may be the beginning of a stop string until it is decided; what comes before a found one is
 * emitted, the string and what follows it are dropped. A token without bytes (a start, stop or pad id) changes
 * nothing. */
int stream_token(struct stream *s, int32_t id)
{
	size_t bytes;
	if (!s->emit && !s->constraints->given.n_stop_texts)
		return TFMC_RT_OK;
	const char *text = constraints_token_string(s->constraints, id, &bytes);
	if (!text)
		return TFMC_RT_E_TEXT;
	if (!bytes)
		return TFMC_RT_OK;
	uint64_t before = s->n, begin;
	TRY(append_held(s, text, bytes));
	if (find_first_match(s->constraints->given.stop_texts, s->constraints->given.n_stop_texts, s->held,
	                     s->n, before, &begin)) {
		emit_prefix(s, begin);
		s->n = 0;
		s->is_stopped = true;
		return TFMC_RT_OK;
	}
	emit_prefix(s, s->n - undecided_bytes(s));
	return TFMC_RT_OK;
}

void stream_end(struct stream *s)
{
	if (!s->is_stopped && !s->is_ended && s->n)
		emit_prefix(s, s->n);
}

void stream_close(struct stream *s)
{
	free(s->held);
	s->held = NULL;
}
