/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-probabilities of given ids: the model is fed id after id, so that only one
 * row of logits is ever held.
 */
#include "feed.h"
#include "real.h"

#include <stdlib.h>

int row_log_sum(const float *logits, int64_t vocab, double *out)
{
	double max = 0, sum = 0;
	int any = 0;
	for (int64_t i = 0; i < vocab; i++) {
		double v = (double)logits[i];
		if (v == v && (!any || v > max)) {
			max = v;
			any = 1;
		}
	}
	if (!any || max > 3.5e38 || max < -3.5e38)
		return TFMC_RT_E_LOGITS;
	for (int64_t i = 0; i < vocab; i++)
		if (logits[i] == logits[i])
			sum += real_exp((double)logits[i] - max);
	*out = max + real_log(sum);
	return TFMC_RT_OK;
}

static int row_log_p(const struct feeder *f, int32_t id, double *out)
{
	double whole;
	int status = row_log_sum(f->logits, f->vocab, &whole);
	if (status == TFMC_RT_OK && f->logits[id] != f->logits[id])
		status = TFMC_RT_E_LOGITS;
	if (status == TFMC_RT_OK)
		*out = (double)f->logits[id] - whole;
	return status;
}

/* The ids behind what was fed so far; the last one is only asked for, not fed. */
static int score_rest(struct feeder *f, const int32_t *ids, uint64_t n, double *log_p)
{
	int status = TFMC_RT_OK;
	for (uint64_t i = 0; status == TFMC_RT_OK && i < n; i++) {
		if (ids[i] < 0 || ids[i] >= f->vocab)
			return TFMC_RT_E_PROMPT;
		status = row_log_p(f, ids[i], &log_p[i]);
		if (status == TFMC_RT_OK && i + 1 < n)
			status = feeder_step(f, &ids[i]);
	}
	return status;
}

static int score(struct feeder *f, const int32_t *source, uint64_t n_source, const int32_t *ids, uint64_t n,
                 double *log_p)
{
	uint64_t n_start = 0;
	int status = tfmc_session_reset(f->session);
	if (status == TFMC_RT_OK && f->record->generate_kind != 1)
		status = feeder_encode(f, source, n_source);
	if (status != TFMC_RT_OK || n == 0)
		return status;
	int32_t *start = record_start_ids(f->record, &n_start);
	if (!start)
		return TFMC_RT_E_MEMORY;
	if (n_start) {
		status = feeder_prefill(f, start, n_start);
	} else { /* nothing stands before the first id: it has no probability */
		log_p[0] = 0;
		status = feeder_prefill(f, ids, 1);
		ids++, log_p++, n--;
	}
	free(start);
	return status == TFMC_RT_OK ? score_rest(f, ids, n, log_p) : status;
}

int tfmc_score(struct tfmc_session *session, const int32_t *source, uint64_t n_source, const int32_t *ids,
               uint64_t n, double *log_p)
{
	struct feeder f;
	int status = feeder_open(&f, session, 1);
	if (status == TFMC_RT_OK)
		status = score(&f, source, n_source, ids, n, log_p);
	feeder_close(&f);
	return status == TFMC_RT_E_FULL ? TFMC_RT_E_PROMPT : status;
}
