/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the library: feeding ids to the entries of a generating object, and
 * what its record says about ids. Greedy generation, sampling and beam search
 * are based on it.
 */
#ifndef TFMC_RUNTIME_CORE_FEED_H
#define TFMC_RUNTIME_CORE_FEED_H

#include "tfmc_rt.h"
#include "try.h"

#define FEED_DIMS_MAX 16

struct feeder {
	struct tfmc_session *session;
	const struct tfmc_record *record;
	int64_t dims[FEED_DIMS_MAX]; /* of the record */
	int64_t batch;               /* sequences that grow together */
	int64_t vocab;
	float *logits; /* [batch, V]: of the last row of each sequence, after prefill and step; NULL without
	                  them */
	uint64_t score_rows;    /* rows that one call of score takes; 0: the object has no such entry */
	const int32_t *lengths; /* [batch]: real tokens of each row of the next calls; NULL: all. Needs
	                           feeder_has_lengths */
	int32_t call_end; /* of one sequence: its length after the last part of a text that is read in several calls;
	                     0: after the call */
};

/* TFMC_RT_E_GENERATE when the object does not generate, TFMC_RT_E_BEAM when it has no room for the batch.
 * Close it also after a failure. */
int feeder_open(struct feeder *f, struct tfmc_session *session, int64_t batch);
void feeder_close(struct feeder *f);
/* The source (seq2seq; that of the session, when it has one), or the tokens that follow: ids [batch, n]. One
 * sequence is prefilled in as many calls as its tokens need; when a later one fails, earlier tokens stay. */
int feeder_encode(struct feeder *f, const int32_t *ids, uint64_t n);
int feeder_prefill(struct feeder *f, const int32_t *ids, uint64_t n);
int feeder_step(struct feeder *f, const int32_t *ids);
/* The sequence has as many tokens as turn by the short factors, and has to be read again with one more. */
int feeder_rereads(const struct feeder *f, int64_t sequence);
/* TFMC_RT_E_PROMPT, with a fault: one of n ids is outside of the vocabulary of the entry `prefill` or `step`. */
int feeder_check_ids(const struct feeder *f, const char *entry, const int32_t *ids, uint64_t n);
/* The entry step can leave rows alone. */
int feeder_has_lengths(const struct feeder *f);
/* Feeds ids [batch, n], n <= score_rows; log_p [batch, n]: of targets [batch, n], each after its id. */
int feeder_score(struct feeder *f, const int32_t *ids, const int32_t *targets, uint64_t n, float *log_p);

/* What tfmc_session_set_source gave; data NULL: nothing. */
struct session_source {
	const void *data;
	uint64_t rank, n; /* n: elements */
	int64_t sizes[TFMC_SOURCE_RANK_MAX];
};
const struct session_source *session_source(const struct tfmc_session *session);

/* Tokens of the sequence that row 0 of a call works on. */
int64_t session_first_length(const struct tfmc_session *session);
/* Tokens that a sequence may have in the state: the bound of the object or the session's own. */
uint64_t session_context(const struct tfmc_session *session);
/* Tokens of a generated sequence with those before it; max_len of the record, within session_context. */
int64_t session_max_len(const struct tfmc_session *session);
/* Tokens of each of `batch` sequences that one call of the session may have. */
uint64_t session_call_rows(const struct tfmc_session *session, int64_t batch);

/* tfmc_session_cancel was called since the last time; each request is taken once. */
int session_take_cancel(struct tfmc_session *session);
/* The same, when a generation has ended well: what came too late for it is not for the next one. */
static inline int session_end(struct tfmc_session *session, int status)
{
	if (status == TFMC_RT_OK)
		(void)session_take_cancel(session);
	return status;
}
/* tfmc_session_trim to any length. */
int session_trim(struct tfmc_session *session, int64_t sequence, int64_t length);
/* Encode has filled what sequence `sequence` reads of its own, or the model has none. */
int session_has_source(const struct tfmc_session *session, int64_t sequence);

/* What is wrong with a prompt, for tfmc_session_status_text, at most SESSION_FAULT - 1 bytes; gives
 * TFMC_RT_E_PROMPT. */
#define SESSION_FAULT 192
int session_fault(struct tfmc_session *session, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *session_last_fault(const struct tfmc_session *session);
void session_clear_fault(struct tfmc_session *session);
/* TFMC_RT_E_PROMPT, with words, unless there are 1 to `most` tokens before new ones. */
int feed_check_first(struct tfmc_session *session, uint64_t n_first, int64_t most);
/* TFMC_RT_E_PROMPT, with words, unless all ids are in [0, below). what: "the prompt". */
int feed_check_ids(struct tfmc_session *session, const char *what, const int32_t *ids, uint64_t n,
                   int64_t below);

/* log of the sum of e^logit: log p(id) is logits[id] minus it. TFMC_RT_E_LOGITS for NaN, +infinity, and when
 * all are -infinity. */
int row_log_sum(const float *logits, int64_t vocab, double *out);

/* ids: offset of int64 [n] in the record. */
int record_has_id(const struct tfmc_record *r, int64_t ids, int64_t n, int64_t id);
/* The first of ids. */
int64_t record_id(const struct tfmc_record *r, int64_t ids);
int record_allows(const struct tfmc_record *r, int64_t id, int first);
/* The model's start ids as i32; the caller frees. NULL when memory ran out. */
int32_t *record_start_ids(const struct tfmc_record *r, uint64_t *n);

#endif
