/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-probabilities of given ids. The entry `score` computes many rows per call; an object without it is fed
 * id by id, and only one row of logits is stored.
 *
 * The ids to score follow others (start ids of the model, or the first id): each is scored by the logits after the ids
 * before it. Only these are fed, so the last id never is. `before` counts them.
 */
#include "runtime/feed.h"
#include "runtime/real.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* ---- by prefill and step ---- */

/* Scores ids after the tokens fed so far, whose logits are in f->logits; the last id is read but not fed. */
static int score_by_steps(struct feeder *f, const int32_t *ids, uint64_t n, double *log_p)
{
	int status = TFMC_RT_OK;
	for (uint64_t i = 0; status == TFMC_RT_OK && i < n; i++) {
		double log_sum;
		status = log_sum_exp(f->logits, f->vocab, &log_sum);
		if (status != TFMC_RT_OK)
			break;
		log_p[i] = (double)f->logits[ids[i]] - log_sum;
		if (i + 1 < n)
			status = feeder_step(f, &ids[i]);
	}
	return status;
}

/* ---- by the entry score ---- */

/* Scores all[n_before .. n_before + n) by calls of `score`, whose targets are the ids one further on. Rows before the
 * first scored id are computed (their keys are needed) and dropped. NaN or infinity: E_LOGITS. */
static int score_by_rows(struct feeder *f, const int32_t *all, uint64_t n_before, uint64_t n, double *log_p)
{
	uint64_t end = n_before + n - 1; /* the last id is not fed */
	const uint64_t most = feeder_score_ids(f) < end ? feeder_score_ids(f) : end;
	float *out = malloc((size_t)most * sizeof(*out));
	int status = out ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
	for (uint64_t at = 0, rows; status == TFMC_RT_OK && at < end; at += rows) {
		rows = end - at < most ? end - at : most;
		status = feeder_score(f, all + at, all + at + 1, rows, out);
		for (uint64_t i = 0; status == TFMC_RT_OK && i < rows; i++) {
			if (!(out[i] <= FLT_MAX)) /* -infinity is probability 0 */
				status = TFMC_RT_E_LOGITS;
			else if (at + i + 1 >= n_before)
				log_p[at + i + 1 - n_before] = (double)out[i];
		}
	}
	free(out);
	return status;
}

/* ---- both ---- */

/* Scores n ids after n_before others, by the entry score or by prefill and steps. call_end: all calls rotate as for
 * the length of the whole (longrope). */
static int score_all(struct feeder *f, const int32_t *all, uint64_t n_before, uint64_t n, double *log_p)
{
	f->call_end = (int32_t)(n_before + n - 1);
	if (f->score_rows)
		return score_by_rows(f, all, n_before, n, log_p);
	if (f->record->prefix > (int64_t)n_before)
		return session_prompt_error(f->session,
		                            "the first %lld positions see each other: only the entry `score` "
		                            "reads them at once, and the object has none",
		                            (long long)f->record->prefix);
	TRY(feeder_prefill(f, all, n_before));
	return score_by_steps(f, all + n_before, n, log_p);
}

/* Checks that the state has capacity for all ids but the last, which is not fed. */
static int check_capacity(const struct feeder *f, uint64_t n)
{
	const struct tfmc_record *r = f->record;
	uint64_t capacity = session_context(f->session), n_before = r->n_start > 0 ? (uint64_t)r->n_start : 0;
	if (n_before <= capacity && n <= capacity + 1 - n_before)
		return TFMC_RT_OK;
	return session_prompt_error(
	        f->session, "%llu ids are to be scored after %llu start ids; the state has room for %llu",
	        (unsigned long long)n, (unsigned long long)n_before, (unsigned long long)capacity);
}

/* Checks and scores ids after the start ids. Without start ids the first id takes their place, with log p 0. */
static int score_ids(struct feeder *f, const int32_t *ids, uint64_t n, double *log_p)
{
	uint64_t n_before;
	int status = check_capacity(f, n);
	if (status == TFMC_RT_OK)
		status = feed_check_ids(f->session, "the ids", ids, n, f->vocab);
	if (status != TFMC_RT_OK)
		return status;
	int32_t *start = record_start_ids(f->record, &n_before);
	if (start && n_before == 0 && n > 0) { /* no id precedes the first one: it has no probability */
		start[0] = *ids++;
		*log_p++ = 0;
		n--;
		n_before = 1;
	}
	int32_t *all = calloc((size_t)n_before + (size_t)n, sizeof(*all));
	status = start && all ? (int)TFMC_RT_OK : (int)TFMC_RT_E_MEMORY;
	if (status == TFMC_RT_OK && n > 0) {
		memcpy(all, start, (size_t)n_before * sizeof(*all));
		memcpy(all + n_before, ids, (size_t)n * sizeof(*all));
		status = score_all(f, all, n_before, n, log_p);
	}
	free(start);
	free(all);
	return status;
}

/* E_FULL of the object, should its state have less room than check_capacity knows of, is a text that is too long:
 * E_PROMPT. */
int tfmc_score(struct tfmc_session *session, const int32_t *source, uint64_t n_source, const int32_t *ids,
               uint64_t n, double *log_p)
{
	struct feeder f = {0};
	if (!session || (!source && n_source) || ((!ids || !log_p) && n))
		return TFMC_RT_E_NULL;
	int status = feeder_open(&f, session, 1);
	if (status == TFMC_RT_OK)
		status = tfmc_session_reset(session);
	if (status == TFMC_RT_OK && f.record->generate_kind != 1)
		status = feeder_encode(&f, source, n_source);
	if (status == TFMC_RT_OK && n > 0)
		status = score_ids(&f, ids, n, log_p);
	feeder_close(&f);
	return status == TFMC_RT_E_FULL ? (int)TFMC_RT_E_PROMPT : session_end_generation(session, status);
}
